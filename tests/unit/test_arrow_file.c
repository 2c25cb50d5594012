/* The reader of Arrow's IPC formats, on the files of tests/postgres/arrow_files: what it finds in them, and that it
 * refuses them shortened and with any byte changed, or still returns buffers that lie within them.
 */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "postgres/arrow_file.h"

#define FILE_BYTES_MAX 65536u
#define BATCHES_MAX 100

typedef struct bytes {
    uint8_t data[FILE_BYTES_MAX];
    uint64_t size;
    uint64_t fails_from; /* reading does; UINT64_MAX: never */
} bytes;

static bool read_bytes(void *argument, uint64_t offset, void *to, uint64_t count)
{
    const bytes *b = argument;

    assert_true(offset <= b->size && count <= b->size - offset);
    if (count > 0)
        memcpy(to, b->data + offset, count);
    return offset + count <= b->fails_from;
}

static void read_file(const char *name, bytes *out)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", ARROW_FILES, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    out->size = fread(out->data, 1, sizeof out->data, file);
    out->fails_from = UINT64_MAX;
    fclose(file);
}

static void check_buffer(const bytes *b, const gstore_load_buffer *buffer)
{
    assert_true(buffer->offset <= b->size && buffer->bytes <= b->size - buffer->offset);
}

/* The last result; *rows of all batches. */
static gstore_arrow_result read_all(bytes *b, uint64_t *rows, char *text)
{
    const gstore_arrow_input input = {.read = read_bytes, .argument = b, .bytes = b->size};
    gstore_arrow_file *file = NULL;
    gstore_load_batch batch;
    gstore_arrow_result result = gstore_arrow_file_open(&input, &file, text);

    *rows = 0;
    for (int i = 0; i < BATCHES_MAX && result == GSTORE_ARROW_OK; i++) {
        result = gstore_arrow_file_next(file, &batch, text);
        if (result != GSTORE_ARROW_OK)
            break;
        *rows += batch.rows;
        for (uint32_t c = 0; c < batch.column_count; c++) {
            check_buffer(b, &batch.columns[c].validity);
            check_buffer(b, &batch.columns[c].offsets);
            check_buffer(b, &batch.columns[c].values);
            check_buffer(b, &batch.columns[c].element_validity);
        }
    }
    gstore_arrow_file_close(file);
    return result;
}

static void file_has_its_rows_in_each_format(void **state)
{
    static const char *const names[] = {"rows.arrow", "rows.arrows", "version_4.arrow",
                                        "legacy.arrows"};
    static bytes b;
    char text[GSTORE_ARROW_TEXT_BYTES];
    uint64_t rows;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        read_file(names[i], &b);
        assert_int_equal(read_all(&b, &rows, text), GSTORE_ARROW_END);
        assert_int_equal(rows, 12);
    }
}

static void column_is_described_as_in_the_c_data_interface(void **state)
{
    static const struct {
        const char *name, *format, *element_format;
    } wanted[] = {
        {"id", "i", ""}, {"name", "u", ""}, {"price", "g", ""}, {"day", "tdD", ""}, {"tags", "+l", "s"}};
    static bytes b;
    const gstore_arrow_input input = {.read = read_bytes, .argument = &b};
    gstore_arrow_input given = input;
    char text[GSTORE_ARROW_TEXT_BYTES];
    gstore_arrow_file *file;
    gstore_load_batch batch;
    int32_t id;

    (void)state;
    read_file("rows.arrow", &b);
    given.bytes = b.size;
    assert_int_equal(gstore_arrow_file_open(&given, &file, text), GSTORE_ARROW_OK);
    assert_int_equal(gstore_arrow_file_next(file, &batch, text), GSTORE_ARROW_OK);
    assert_int_equal(batch.rows, 5);
    assert_int_equal(batch.column_count, 5);
    for (uint32_t i = 0; i < batch.column_count; i++) {
        assert_string_equal(batch.columns[i].name, wanted[i].name);
        assert_string_equal(batch.columns[i].format, wanted[i].format);
        assert_string_equal(batch.columns[i].element_format, wanted[i].element_format);
    }
    assert_int_equal(batch.columns[0].validity.bytes, 0);
    assert_true(batch.columns[1].validity.bytes > 0 && batch.columns[1].offsets.bytes >= 6 * 4);
    memcpy(&id, b.data + batch.columns[0].values.offset + 4 * sizeof id, sizeof id);
    assert_int_equal(id, 4);
    gstore_arrow_file_close(file);
}

static void file_with_what_cannot_be_read_says_so(void **state)
{
    static const struct {
        const char *name, *text;
    } wanted[] = {{"compressed.arrow", "compression"},
                  {"dictionary.arrow", "dictionaries: column id"},
                  {"struct.arrow", "the type of column id"},
                  {"view.arrow", "the type of column id"},
                  {"dictionary.arrows", "dictionaries: column id"}};
    static bytes b;
    char text[GSTORE_ARROW_TEXT_BYTES];
    uint64_t rows;

    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        read_file(wanted[i].name, &b);
        assert_int_equal(read_all(&b, &rows, text), GSTORE_ARROW_UNSUPPORTED);
        assert_string_equal(text, wanted[i].text);
    }
    read_file("rows.arrow", &b);
    b.fails_from = 100;
    assert_int_equal(read_all(&b, &rows, text), GSTORE_ARROW_UNREADABLE);
    b.size = 0;
    assert_int_equal(read_all(&b, &rows, text), GSTORE_ARROW_MALFORMED);
}

/* Under the sanitizers of make check-all a read beyond the metadata ends the test. */
static void file_changed_anywhere_leads_nowhere_else(void **state)
{
    DIR *folder = opendir(ARROW_FILES);
    const struct dirent *entry;
    static bytes b, changed;
    char text[GSTORE_ARROW_TEXT_BYTES];
    uint64_t rows;

    (void)state;
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        if (strstr(entry->d_name, ".arrow") == NULL)
            continue;
        read_file(entry->d_name, &b);
        for (uint64_t at = 0; at < b.size; at++) {
            changed = b;
            changed.size = at;
            (void)read_all(&changed, &rows, text);
            changed.size = b.size;
            for (unsigned bit = 0; bit < 8; bit++) {
                changed.data[at] = (uint8_t)(b.data[at] ^ 1u << bit);
                (void)read_all(&changed, &rows, text);
            }
            changed.data[at] = 0xff;
            (void)read_all(&changed, &rows, text);
            changed.data[at] = 0x7f;
            (void)read_all(&changed, &rows, text);
        }
    }
    closedir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_has_its_rows_in_each_format),
        cmocka_unit_test(column_is_described_as_in_the_c_data_interface),
        cmocka_unit_test(file_with_what_cannot_be_read_says_so),
        cmocka_unit_test(file_changed_anywhere_leads_nowhere_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
