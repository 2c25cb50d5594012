/* table/decode.c: tokens and manifests come from others; whatever they hold, only what is consistent is
 * taken.
 *
 * Rules are broken one at a time in an otherwise valid manifest; then random damage is done, and what is
 * still accepted must obey the rules as they are written down once more here.
 */
#include "tests/unit/unit.h"

#include <time.h>

#include "table/table.h"

#define ROUNDS 200000
#define COLUMNS 3
#define TOKEN "gstore1:00000000000000ff:64:400:/gstore/1/2/3:/tmp/s"

typedef struct whole {
    gvmi_manifest head;
    gvmi_manifest_column columns[COLUMNS];
    char texts[32];
} whole;

static whole valid(void)
{
    whole w = {.head = {.magic = GVMI_MANIFEST_MAGIC,
                        .version = GVMI_TOKEN_VERSION,
                        .bytes = sizeof w,
                        .header_bytes = sizeof w.head,
                        .column_bytes = sizeof w.columns[0],
                        .columns = COLUMNS,
                        .layout = GVMI_LAYOUT_PGSTROM,
                        .rows = 1001,
                        .revision = 7}};

    memcpy(w.texts, "public\0t\0id\0int\0body", 20);
    w.head.schema = offsetof(whole, texts);
    w.head.name = w.head.schema + 7;
    for (uint16_t i = 0; i < COLUMNS; i++)
        w.columns[i] = (gvmi_manifest_column){.name = w.head.schema + 9,
                                              .type_name = w.head.schema + 12,
                                              .type = 23,
                                              .base_type = 23,
                                              .length = 4,
                                              .number = (uint16_t)(2 * i + 1),
                                              .flags = GVMI_COLUMN_BY_VALUE | GVMI_COLUMN_NULLS,
                                              .width = 4,
                                              .align = 'i'};
    w.columns[2].length = -1;
    w.columns[2].flags = GVMI_COLUMN_PGLZ;
    w.columns[2].bodies_bytes = 4096;
    return w;
}

/* table: to be freed by end(). */
static gvm_status decode(const whole *w, gvm_table *table)
{
    memset(table, 0, sizeof *table);
    table->token.bytes = sizeof *w;
    table->manifest = malloc(sizeof *w); /* of exactly that size, for sanitizers */
    assert_non_null(table->manifest);
    memcpy(table->manifest, w, sizeof *w);
    return gvmi_table_decode(table);
}

static void end(gvm_table *table)
{
    free(table->columns);
    free(table->manifest);
}

static void manifest_valid_is_decoded(void **state)
{
    const whole w = valid();
    gvm_table table;
    const gvm_table_column *c;

    (void)state;
    assert_int_equal(decode(&w, &table), GVM_OK);
    assert_string_equal(table.info.schema, "public");
    assert_string_equal(table.info.name, "t");
    assert_int_equal(table.info.rows, 1001);
    c = &table.columns[0].info;
    assert_string_equal(c->name, "id");
    assert_int_equal(c->values_bytes, 4004);
    assert_int_equal(c->nulls_bytes, 126);
    assert_int_equal(c->bodies_bytes, 0);
    c = &table.columns[2].info;
    assert_int_equal(c->number, 5);
    assert_int_equal(c->bodies_bytes, 4096);
    assert_int_equal(c->nulls_bytes, 0);
    assert_true(c->compressed);
    end(&table);
}

#define BROKEN(status, statement) \
    do { \
        whole w = valid(); \
        gvm_table table; \
        statement; \
        assert_int_equal(decode(&w, &table), status); \
        end(&table); \
    } while (0)

static void manifest_broken_is_refused(void **state)
{
    (void)state;
    BROKEN(GVM_E_FORMAT, w.head.magic[0]++);
    BROKEN(GVM_E_VERSION, w.head.version++);
    BROKEN(GVM_E_VERSION, w.head.layout = 9);
    BROKEN(GVM_E_FORMAT, w.head.bytes--);
    BROKEN(GVM_E_FORMAT, w.head.header_bytes--);
    BROKEN(GVM_E_FORMAT, w.head.column_bytes++);
    BROKEN(GVM_E_FORMAT, w.head.columns = 100);
    BROKEN(GVM_E_FORMAT, w.head.columns = UINT32_MAX);
    BROKEN(GVM_E_FORMAT, w.head.schema = 0);
    BROKEN(GVM_E_FORMAT, w.head.name = sizeof w);
    BROKEN(GVM_E_FORMAT, w.head.rows = UINT64_MAX / 3);
    BROKEN(GVM_E_FORMAT, memset(w.texts + 12, 'x', sizeof w.texts - 12)); /* no end */
    BROKEN(GVM_E_FORMAT, w.columns[0].name = UINT32_MAX);
    BROKEN(GVM_E_FORMAT, w.columns[1].width = 8);
    BROKEN(GVM_E_FORMAT, w.columns[1].length = 0);
    BROKEN(GVM_E_FORMAT, w.columns[1].align = 'x');
    BROKEN(GVM_E_FORMAT, w.columns[1].number = 1);
    BROKEN(GVM_E_FORMAT, w.columns[0].number = 0);
    BROKEN(GVM_E_FORMAT, (w.columns[0].length = 3, w.columns[0].width = 4));
    BROKEN(GVM_E_FORMAT, w.columns[2].element = 21);
}

static void check_rules(const gvm_table *table)
{
    const char *from = table->manifest, *to = from + table->token.bytes;

    for (uint32_t i = 0; i < table->info.columns; i++) {
        const gvm_table_column *c = &table->columns[i].info;

        assert_true(c->name > from && c->name + strlen(c->name) < to);
        assert_true(c->type_name > from && c->type_name + strlen(c->type_name) < to);
        assert_true(c->width >= 1 && c->width <= 1 << 15);
        assert_true(c->absent || c->values_bytes / c->width == table->info.rows);
        assert_true(c->length < 0 || c->bodies_bytes == 0);
        assert_true(i == 0 || c->number > table->columns[i - 1].info.number);
        assert_true(!c->absent || (c->values_bytes | c->nulls_bytes | c->bodies_bytes) == 0);
    }
}

static void manifest_with_random_damage_obeys_the_rules(void **state)
{
    unsigned seed = (unsigned)time(NULL);
    int accepted = 0;

    (void)state;
    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        whole w = valid();
        gvm_table table;

        for (int i = rand_r(&seed) % 3; i >= 0; i--)
            ((uint8_t *)&w)[(size_t)rand_r(&seed) % sizeof w] = (uint8_t)rand_r(&seed);
        if (decode(&w, &table) == GVM_OK) {
            check_rules(&table);
            accepted++;
        }
        end(&table);
    }
    assert_true(accepted > ROUNDS / 100);
}

static void token_valid_is_parsed(void **state)
{
    gvmi_token token;

    (void)state;
    assert_int_equal(gvmi_token_parse(TOKEN, &token), GVM_OK);
    assert_int_equal(token.sum, 255);
    assert_int_equal(token.offset_bytes, 64);
    assert_int_equal(token.bytes, 400);
    assert_string_equal(token.objects, "/gstore/1/2/3");
    assert_string_equal(token.socket, "/tmp/s");
}

static void token_malformed_is_refused(void **state)
{
    static const char *const hostile[] = {
        "",
        "gstore",
        "gstore1",
        "gstore1:",
        "gstore1:00:0:400:/a",
        "gstore1:00:0:400::/tmp/s",
        "gstore1:00:0:400:/a:",
        "gstore1:00:0:400:/a:tmp/s",
        "gstore1:00:0:400:a:/tmp/s",
        "gstore1:0g:0:400:/a:/tmp/s",
        "gstore1:00:-1:400:/a:/tmp/s",
        "gstore1:00:0: 400:/a:/tmp/s",
        "gstore1:00:0:4:/a:/tmp/s",
        "gstore1:00:0:2000000:/a:/tmp/s",
        "gstore1:00:4194304:400:/a:/tmp/s",
        "gstore1:00:18446744073709551616:400:/a:/tmp/s",
        "gstore1:00:18446744073709551615:400:/a:/tmp/s",
        "gstore1:10000000000000000:0:400:/a:/tmp/s",
        "gstore1:00:0:400:/a:/tmp/s\n",
        " gstore1:00:0:400:/a:/tmp/s",
    };
    char text[2 * GVM_TABLE_TOKEN_BYTES_MAX];
    gvmi_token token;

    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        assert_int_equal(gvmi_token_parse(hostile[i], &token), GVM_E_FORMAT);
    assert_int_equal(gvmi_token_parse("gstore2:x", &token), GVM_E_VERSION);
    for (size_t len = 30; len < sizeof text; len++) { /* long sockets, then long names */
        memset(text, 'x', len);
        text[len] = '\0';
        memcpy(text, "gstore1:00:0:400:/a:/", 21);
        assert_int_equal(gvmi_token_parse(text, &token),
                         len < GVM_TABLE_TOKEN_BYTES_MAX ? GVM_OK : GVM_E_FORMAT);
        memcpy(text, "gstore1:00:0:400:/xxx", 21);
        memcpy(text + len - 3, ":/s", 3);
        assert_int_equal(gvmi_token_parse(text, &token),
                         len <= GVM_NAME_BYTES_MAX - 32 + 20 ? GVM_OK : GVM_E_FORMAT);
    }
}

static void handles_that_are_none_are_refused(void **state)
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_table *none = (gvm_table *)(uintptr_t)4096, *out;
    gvm_table_data data = {0};
    uint32_t index = 0;

    (void)state;
    assert_int_equal(gvm_table_attach(NULL, 0, &out), GVM_E_INVALID);
    assert_int_equal(gvm_table_attach(TOKEN, 0, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_table_attach(TOKEN, 2, &out), GVM_E_INVALID);
    assert_int_equal(gvm_table_get_info(none, &info), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_find_column(none, "x", &index), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_open_columns(none, &index, 1), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_acquire(none, &index, 1, NULL, &data), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_release(none, &data, 1), GVM_E_FOREIGN);
    gvm_table_detach(none);
    gvm_table_detach(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_valid_is_decoded),
        cmocka_unit_test(manifest_broken_is_refused),
        cmocka_unit_test(manifest_with_random_damage_obeys_the_rules),
        cmocka_unit_test(token_valid_is_parsed),
        cmocka_unit_test(token_malformed_is_refused),
        cmocka_unit_test(handles_that_are_none_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
