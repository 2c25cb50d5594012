/* Numbers of texts, and texts in the place of numbers, beside what the CPU finds. See query/number.h.
 *
 *     query_number [CASES [SEED]]
 *
 * Goal: rows have the same number where their texts are the same, and only there; numbers are of rows that have the text; what is wrong with a text that counts is an
 * error, and a hash table that is too small is said to be full; nothing is written but that. Method: random texts of all forms, some of them not within their column, compressed or too
 * long, or of other characters than ASCII where these are no good; in half of the cases no row with such a one counts. Letters of one case are taken as those of the other one in some of them. Launches over parts of the rows. Texts whose hashes are equal, of which more are there than are
 * searched. Then records whose keys are numbers of rows, some of which are no rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "query/number.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/query_draw.h"

#define CASES 600u
#define CANARIES 8u
#define CANARY 0x5ca1ab1e0ddba11u
#define RECORDS_MAX 300u
#define PITCH_MAX 48u
#define COLLIDING_BYTES 16u

extern const unsigned char gvmi_image_soft_query_number[];
extern const unsigned char *const gvmi_image_cuda_query_number;

typedef enum kernel { NUMBER, PRESENT, PUT_TEXTS, KERNELS } kernel;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;
static CUfunction functions[KERNELS];
static gvm_buffer *memory;
static uint64_t state, next;
static uint64_t collisions, full_tables, raised, trimmed, folded, put;
static host_column column;
static uint32_t form;
static uint64_t rows;
static uint32_t flags; /* of GQUERY_NUMBERED */
static uint8_t marks[ROWS_MAX / 8 + 8];
static uint64_t words[CANARIES * 2 + RECORDS_MAX * PITCH_MAX + ROWS_MAX];
static uint32_t numbers[ROWS_MAX];
static uint8_t texts_there[ROWS_MAX / 8 + 8];
static gquery_texts table;
static char problem[256];

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

/* ---- memory */

static bool copy_in(uint64_t address, const void *data, uint64_t bytes)
{
    return bytes == 0 || gvmi_cu->cuMemcpyHtoD(address, data, bytes) == CUDA_SUCCESS ||
           WRONG("cuMemcpyHtoD fails");
}

static uint64_t put_bytes(const void *data, uint64_t bytes)
{
    const uint64_t at = next;

    next += (bytes + 47) / 16 * 16;
    if (!copy_in(at, data, bytes))
        tap_bail_out("%s", problem);
    return at;
}

/* Words that kernels write, between canaries; data: NULL: 0. */
static uint64_t put_words(const void *data, uint64_t bytes)
{
    const uint64_t count = (bytes + 7) / 8;

    for (uint64_t i = 0; i < CANARIES; i++)
        words[i] = words[CANARIES + count + i] = CANARY + i;
    memset(words + CANARIES, 0, count * 8);
    if (data != NULL)
        memcpy(words + CANARIES, data, bytes);
    return put_bytes(words, (count + 2 * CANARIES) * 8) + CANARIES * 8;
}

static bool take_words(const char *what, uint64_t address, void *to, uint64_t bytes)
{
    const uint64_t count = (bytes + 7) / 8;

    if (gvmi_cu->cuMemcpyDtoH(words, address - CANARIES * 8, (count + 2 * CANARIES) * 8) != CUDA_SUCCESS)
        return WRONG("a kernel before %s is read has failed", what);
    for (uint64_t i = 0; i < CANARIES; i++)
        if (words[i] != CANARY + i || words[CANARIES + count + i] != CANARY + i)
            return WRONG("words beside %s have changed", what);
    memcpy(to, words + CANARIES, bytes);
    return true;
}

static bool launch(kernel which, void *params)
{
    void *arguments[] = {params};
    const unsigned blocks = 1 + (unsigned)draw(4);
    const unsigned threads = (unsigned)info.warp_size * (1 + (unsigned)draw(3));
    const CUresult result = gvmi_cu->cuLaunchKernel(functions[which], blocks, 1, 1, threads, 1, 1,
                                                    0, NULL, arguments, NULL);

    return result == CUDA_SUCCESS || WRONG("cuLaunchKernel: CUresult %d", (int)result);
}

/* ---- a column, and which of its rows count */

static bool is_marked(uint64_t row)
{
    return (marks[row / 8] >> row % 8 & 1) != 0;
}

static bool is_null(uint64_t row)
{
    return (column.has_nulls && (column.nulls[row / 8] >> row % 8 & 1) == 0) ||
           (form == GQUERY_TEXT_BODIES && ((const uint64_t *)column.values)[row] == 0);
}

static bool is_ascii(const host_text *t)
{
    for (uint64_t i = 0; i < t->count; i++)
        if (t->bytes[i] > 127)
            return false;
    return true;
}

static uint8_t in_case(uint8_t byte)
{
    if ((flags & GQUERY_TEXT_LOWER) != 0 && byte >= 'A' && byte <= 'Z')
        return (uint8_t)(byte - 'A' + 'a');
    if ((flags & GQUERY_TEXT_UPPER) != 0 && byte >= 'a' && byte <= 'z')
        return (uint8_t)(byte - 'a' + 'A');
    return byte;
}

/* The text as it compares, but for cases. What is wrong with it: gquery_error. */
static uint32_t text_of(uint64_t row, bool is_compared, host_text *out)
{
    if (!query_read_text(&column, form, row, out))
        return GQUERY_E_TEXT;
    if (out->count > GQUERY_NUMBERED_BYTES)
        return GQUERY_E_NUMBERED;
    if (out->bytes == NULL || ((flags & GQUERY_TEXT_ASCII) != 0 && !is_ascii(out)))
        return GQUERY_E_TEXT;
    while (is_compared && (flags & GQUERY_TEXT_TRIMMED) != 0 && out->count > 0 &&
           out->bytes[out->count - 1] == ' ')
        out->count--;
    return GQUERY_E_NONE;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0xbf58476d1ce4e5b9u;
    return h ^ h >> 29;
}

/* The second word of each makes up for what the first one did to the hash. */
static void draw_colliding(uint64_t kinds)
{
    uint64_t *offsets = (uint64_t *)column.values;

    collisions++;
    form = GQUERY_TEXT_OFFSETS;
    flags = 0;
    rows = kinds + draw(ROWS_MAX - kinds);
    column.has_nulls = false;
    column.bytes = rows * COLLIDING_BYTES;
    for (uint64_t row = 0; row < rows; row++) {
        const uint64_t first = row % kinds + 1, second = mix(COLLIDING_BYTES, first) ^ 0x123456789u;

        offsets[row] = row * COLLIDING_BYTES;
        memcpy(column.bodies + row * COLLIDING_BYTES, &first, 8);
        memcpy(column.bodies + row * COLLIDING_BYTES + 8, &second, 8);
    }
    offsets[rows] = column.bytes;
}

static void draw_column(void)
{
    static const uint32_t cases[] = {0, GQUERY_TEXT_LOWER, GQUERY_TEXT_UPPER,
                                     GQUERY_TEXT_LOWER | GQUERY_TEXT_ASCII};

    form = GQUERY_TEXT_BODIES + (uint32_t)draw(3);
    rows = 1 + draw(draw(2) == 0 ? 200 : ROWS_MAX - 1);
    flags = (draw(3) == 0 ? GQUERY_TEXT_TRIMMED : 0) | cases[draw(4)];
    trimmed += (flags & GQUERY_TEXT_TRIMMED) != 0;
    folded += (flags & (GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER)) != 0;
    query_draw_texts(&state, form, &column, rows);
}

static void draw_marks(bool only_good)
{
    const uint64_t of_16 = draw(2) == 0 ? 16 : 1 + draw(16);

    memset(marks, 0, sizeof marks);
    for (uint64_t row = 0; row < rows; row++) {
        host_text ignored;

        if (draw(16) < of_16 &&
            (!only_good || is_null(row) || text_of(row, true, &ignored) == GQUERY_E_NONE))
            marks[row / 8] |= (uint8_t)(1u << row % 8);
    }
}

static gquery_source put_source(void)
{
    const gquery_column as = {.form = form, .bias = GQUERY_NUMBERED};
    gquery_source source = gquery_source_at(
        &as, put_bytes(column.values, query_values_bytes(form, &column, rows)),
        column.has_nulls ? put_bytes(column.nulls, (rows + 7) / 8) : 0);

    source.bytes = query_text_bytes(form, &column);
    if (form != GQUERY_TEXT_FIXED)
        source.bodies = put_bytes(column.bodies, column.bytes);
    return source;
}

/* ---- numbers */

static bool run_numbers(gquery_number *number, gquery_present *present)
{
    bool good = true;

    for (number->first = 0; good && number->first < rows; number->first = number->limit) {
        const uint64_t left = rows - number->first;

        number->limit = number->first + (draw(2) == 0 ? left : 8 * (1 + draw(left) / 8));
        number->limit = number->limit < rows ? number->limit : rows;
        present->first = number->first;
        present->limit = number->limit;
        good = launch(NUMBER, number) && launch(PRESENT, present);
    }
    return good;
}

static int compare_texts(const void *left, const void *right)
{
    host_text l, r;

    (void)text_of(*(const uint32_t *)left, true, &l);
    (void)text_of(*(const uint32_t *)right, true, &r);
    if (l.count != r.count)
        return l.count < r.count ? -1 : 1;
    for (uint64_t i = 0; i < l.count; i++)
        if (in_case(l.bytes[i]) != in_case(r.bytes[i]))
            return in_case(l.bytes[i]) < in_case(r.bytes[i]) ? -1 : 1;
    return 0;
}

/* Rows whose number is their own: no two of them have the same text. */
static bool check_different(uint32_t *own, uint64_t count, uint64_t longest)
{
    qsort(own, count, sizeof *own, compare_texts);
    for (uint64_t i = 1; i < count; i++)
        if (compare_texts(&own[i - 1], &own[i]) == 0)
            return WRONG("rows %u and %u have the same text, and different numbers",
                         (unsigned)own[i - 1], (unsigned)own[i]);
    if (table.count != count || table.longest != longest)
        return WRONG("%llu texts of %u bytes at most, and not %llu of %llu",
                     (unsigned long long)table.count, (unsigned)table.longest,
                     (unsigned long long)count, (unsigned long long)longest);
    return true;
}

static bool check_number(uint64_t row)
{
    const uint32_t number = numbers[row];

    if (number >= rows || !is_marked(number) || is_null(number) || numbers[number] != number)
        return WRONG("row %llu has the number %u, which is none", (unsigned long long)row,
                     (unsigned)number);
    return compare_texts(&number, &(uint32_t){(uint32_t)row}) == 0 ||
           WRONG("row %llu has the number of another text, %u", (unsigned long long)row,
                 (unsigned)number);
}

static bool check_numbers(void)
{
    static uint32_t own[ROWS_MAX];
    uint64_t count = 0, longest = 0;

    for (uint64_t row = 0; row < rows; row++) {
        host_text whole;

        if (!is_marked(row) || is_null(row))
            continue;
        if (!check_number(row))
            return false;
        if (numbers[row] != row)
            continue;
        own[count++] = (uint32_t)row;
        (void)text_of(row, false, &whole);
        longest = whole.count > longest ? whole.count : longest;
    }
    return check_different(own, count, longest);
}

/* Errors that rows have raised, bit by bit; and which rows have a text. */
static bool check_rows(uint32_t error)
{
    uint32_t expected = 0;

    for (uint64_t row = 0; row < rows; row++) {
        const bool there = !is_null(row);
        host_text ignored;

        if (there && is_marked(row))
            expected |= 1u << text_of(row, true, &ignored);
        if (((texts_there[row / 8] >> row % 8 & 1) != 0) != there)
            return WRONG("row %llu is%s NULL", (unsigned long long)row, there ? "" : " not");
    }
    expected &= ~(1u << GQUERY_E_NONE);
    raised += expected != 0;
    if (error >= 32 ||
        (error == 0 ? expected != 0 && !gquery_texts_full(&table) : (expected >> error & 1) == 0))
        return WRONG("error %u of the set %#x", (unsigned)error, (unsigned)expected);
    return error != 0 || gquery_texts_full(&table) || check_numbers();
}

/* Half of its words are more than are needed, or not. */
static uint64_t draw_words(void)
{
    uint64_t count = 2;

    while (count < 2 * (rows + 1))
        count *= 2;
    return draw(5) == 0 && count > 16 ? count / (2u << draw(4)) : count;
}

static bool check_table(uint64_t most)
{
    full_tables += gquery_texts_full(&table);
    return !gquery_texts_full(&table) || most > (table.mask + 1) / 2 || most > GQUERY_PROBES_MAX ||
           WRONG("%llu texts are too many for %llu words", (unsigned long long)most,
                 (unsigned long long)table.mask + 1);
}

/* ---- texts of numbers */

/* Words of a record: what NULLs there are, a key before, the key, a state, the text; and one that is not touched. */
static bool check_record(const uint64_t *before, const uint64_t *record, const gquery_put_texts *p)
{
    const uint64_t number = before[p->key];
    const bool there = (before[p->nulls] >> p->null_bit & 1) == 0 && number < rows;
    uint8_t bytes[GQUERY_NUMBERED_BYTES + 8] = {0};
    host_text t = {NULL, 0};

    if (there)
        (void)text_of(number, false, &t);
    for (uint64_t i = 0; i < t.count; i++)
        bytes[i] = in_case(t.bytes[i]);
    if (record[p->at] != t.count || memcmp(&record[p->at + 1], bytes, (p->words - 1) * 8) != 0)
        return WRONG("the text of number %llu is another one", (unsigned long long)number);
    return (memcmp(before, record, p->at * 8) == 0 &&
            memcmp(before + p->at + p->words, record + p->at + p->words,
                   (p->pitch - p->at - p->words) * 8) == 0) ||
           WRONG("other words of a record have changed");
}

static bool check_texts(const gquery_source *source)
{
    static uint64_t before[RECORDS_MAX * PITCH_MAX], after[RECORDS_MAX * PITCH_MAX];
    gquery_put_texts p = {.source = *source,
                          .rows = rows,
                          .count = 1 + draw(RECORDS_MAX),
                          .flags = flags,
                          .nulls = (uint32_t)draw(3),
                          .null_bit = (uint32_t)draw(8),
                          .words = 1 + (table.longest + 7) / 8};
    bool is_bad = false;
    uint32_t error;

    put++;
    p.key = p.nulls + 1 + (uint32_t)draw(2);
    p.at = p.key + 1 + (uint32_t)draw(2);
    p.pitch = p.at + p.words + (uint32_t)draw(2);
    for (uint64_t i = 0; i < p.count; i++) {
        uint64_t *record = before + i * p.pitch, row = draw(rows);

        for (uint32_t w = 0; w < p.pitch; w++)
            record[w] = random_next(&state);
        record[p.key] = is_marked(row) && !is_null(row) ? numbers[row] : row;
        if (!is_marked(row) || is_null(row))
            record[p.nulls] |= 1u << p.null_bit;
        if (draw(3000) == 0)
            record[p.key] = rows + draw(3), is_bad |= (record[p.nulls] >> p.null_bit & 1) == 0;
    }
    p.records = put_words(before, p.count * p.pitch * 8);
    p.error = put_words(NULL, 8);
    if (!launch(PUT_TEXTS, &p) || !take_words("the error", p.error, &error, sizeof error) ||
        !take_words("the records", p.records, after, p.count * p.pitch * 8))
        return false;
    if (error != (is_bad ? GQUERY_E_TEXT : GQUERY_E_NONE))
        return WRONG("error %u of records", (unsigned)error);
    for (uint64_t i = 0; i < p.count; i++)
        if (!check_record(before + i * p.pitch, after + i * p.pitch, &p))
            return false;
    return true;
}

/* ---- cases */

static bool run_case(uint64_t number)
{
    const bool collides = number % 16 == 0;
    static uint64_t cleared[8 * ROWS_MAX];
    uint64_t count, most = 0, error = 0;
    gquery_number n = {0};
    gquery_present present = {0};

    state = number;
    next = gvmi_address(gvm_buffer_address(memory));
    if (collides)
        most = draw(2) == 0 ? 20 : GQUERY_PROBES_MAX + 1 + draw(100), draw_colliding(most);
    else
        draw_column(), most = rows;
    draw_marks(draw(2) == 0);
    count = draw_words();
    n.source = put_source();
    n.flags = flags;
    n.marked = put_bytes(marks, sizeof marks);
    n.out = put_words(NULL, rows * sizeof(uint32_t));
    present.out = put_words(NULL, (rows + 7) / 8);
    present.source = n.source;
    n.error = put_words(NULL, 8);
    table = (gquery_texts){.words = put_bytes(cleared, count * 8), .mask = count - 1};
    n.texts = put_words(&table, sizeof table);
    if (!run_numbers(&n, &present) || !take_words("the table", n.texts, &table, sizeof table) ||
        !take_words("the numbers", n.out, numbers, rows * sizeof numbers[0]) ||
        !take_words("the bitmap", present.out, texts_there, (rows + 7) / 8) ||
        !take_words("the error", n.error, &error, sizeof error) || !check_table(most) ||
        !check_rows((uint32_t)error))
        return false;
    return error != 0 || gquery_texts_full(&table) || check_texts(&n.source);
}

static bool open_device(void)
{
    static const char *const names[KERNELS] = {"query_number", "query_present", "query_put_texts"};

    if (!device_open_with_kernels(gvmi_image_soft_query_number, gvmi_image_cuda_query_number,
                                  &device, &info, &module))
        return false;
    for (int i = 0; module != NULL && i < KERNELS; i++)
        if (gvmi_cu->cuModuleGetFunction(&functions[i], module, names[i]) != CUDA_SUCCESS)
            return false;
    return gvm_buffer_create(device, 4 * MIB, NULL, &memory) == GVM_OK &&
           gvm_buffer_commit(memory, 0, 4 * MIB) == GVM_OK;
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : CASES;
    const uint64_t seed = random_seed(argc > 2 ? argv[2] : NULL);
    bool good = true;
    uint64_t i;

    fixture_machine_drawn(seed);
    if (!open_device())
        tap_bail_out("the device cannot be used");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for this device");
    for (i = 0; i < cases && good; i++)
        good = run_case(seed + i);
    if (!good)
        printf("# case of the seed %llu, %llu rows, form %u: %s\n",
               (unsigned long long)(seed + i - 1), (unsigned long long)rows, (unsigned)form, problem);
    printf("# %llu with equal hashes, %llu full tables, %llu with errors, %llu without blanks, %llu in one case, %llu with records\n",
           (unsigned long long)collisions, (unsigned long long)full_tables, (unsigned long long)raised,
           (unsigned long long)trimmed, (unsigned long long)folded, (unsigned long long)put);
    tap_result(good, "texts_have_the_same_number_where_they_are_the_same (%llu cases, seed %llu)",
               (unsigned long long)i, (unsigned long long)seed);
    tap_result(cases < 300 || (collisions > 0 && full_tables > 0 && raised > 0 && trimmed > 0 &&
                               folded > 0 && put > 0),
               "cases_of_all_kinds_have_run");
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
