/* keeper/table/decode.c: tokens and manifests come from others; whatever they hold, only what is consistent is
 * taken.
 *
 * Rules are broken one at a time in an otherwise valid manifest; then random damage is done, and what is
 * still accepted must obey the rules as they are written down once more here.
 */
#include "tests/unit/unit.h"

#include <gvmem/load.h>

#include "base/clock.h"
#include "keeper/table/table.h"

#define ROUNDS 200000
#define COLUMNS 4
#define TOKEN "gstore3:00000000000000ff:64:400:1000:/gstore/1/2/3:/tmp/s"

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
    w.columns[2].width = 8;
    w.columns[2].flags = GVMI_COLUMN_PGLZ;
    w.columns[2].bodies_bytes = 4096;
    w.columns[3].length = -1;
    w.columns[3].flags = GVMI_COLUMN_NULLS;
    w.columns[3].uniform = GVM_TABLE_BITS;
    w.columns[3].count = 19;
    w.columns[3].width = 3;
    w.columns[3].bodies_bytes = 8;
    return w;
}

/* Of layout 'arrow': a column of each kind. */
enum { NUMBER, BITS, TEXT, LIST, FIXED, ABSENT, DECIMAL, VECTOR, BYTES, KINDS };

typedef struct arrow_whole {
    gvmi_manifest head;
    gvmi_manifest_column columns[KINDS];
    char texts[96];
} arrow_whole;

/* Where the text, one of those that valid_arrow() puts there, is. */
static uint32_t text(const arrow_whole *w, const char *wanted)
{
    const char *at = w->texts + 1; /* the first one is empty */

    if (*wanted == '\0')
        at--;
    while (strcmp(at, wanted) != 0)
        at += strlen(at) + 1;
    return (uint32_t)(at - (const char *)w);
}

static arrow_whole valid_arrow(void)
{
    static const struct {
        const char *arrow, *element;
        int16_t length, width;
        char align;
    } kinds[KINDS] = {
        [NUMBER] = {"i", "", 4, 4, 'i'},         [BITS] = {"b", "", 1, 0, 'c'},
        [TEXT] = {"U", "", -1, 8, 'i'},          [LIST] = {"+L", "s", -1, 8, 'i'},
        [FIXED] = {"w:8", "", 6, 8, 'i'},        [ABSENT] = {"n", "", 8, 8, 'd'},
        [DECIMAL] = {"d:9,-2", "", -1, 16, 'i'}, [VECTOR] = {"+w:5", "e", -1, 10, 'i'},
        [BYTES] = {"w:70000", "", -1, 17, 'i'},
    };
    arrow_whole w = {.head = {.magic = GVMI_MANIFEST_MAGIC,
                              .version = GVMI_TOKEN_VERSION,
                              .bytes = sizeof w,
                              .header_bytes = sizeof w.head,
                              .column_bytes = sizeof w.columns[0],
                              .columns = KINDS,
                              .layout = GVMI_LAYOUT_ARROW,
                              .rows = 1001,
                              .revision = 7}};
    static const char texts[] = "\0t\0i\0b\0U\0+L\0s\0w:8\0n\0Z\0g\0w:08\0w:99999999\0w:\0q\0tsu:\0e"
                                "\0d:9,-2\0d:9,2\0+w:5\0w:70000";

    memcpy(w.texts, texts, sizeof texts);
    w.head.schema = w.head.name = text(&w, "t");
    for (uint16_t i = 0; i < KINDS; i++)
        w.columns[i] = (gvmi_manifest_column){.name = text(&w, "t"),
                                              .type_name = text(&w, "t"),
                                              .arrow = text(&w, kinds[i].arrow),
                                              .arrow_element = text(&w, kinds[i].element),
                                              .length = kinds[i].length,
                                              .align = kinds[i].align,
                                              .width = (uint32_t)kinds[i].width,
                                              .number = (uint16_t)(i + 1),
                                              .flags = GVMI_COLUMN_NULLS};
    w.columns[TEXT].bodies_bytes = 4097;
    w.columns[LIST].bodies_bytes = 4098;
    w.columns[LIST].element = 21;
    w.columns[LIST].element_length = 2;
    w.columns[LIST].element_align = 's';
    w.columns[LIST].flags |= GVMI_COLUMN_ELEMENT_NULLS;
    w.columns[ABSENT].flags = GVMI_COLUMN_ABSENT;
    w.columns[DECIMAL].uniform = GVM_TABLE_DECIMAL;
    w.columns[DECIMAL].precision = 9;
    w.columns[DECIMAL].scale = -2;
    w.columns[VECTOR].uniform = GVM_TABLE_VECTOR;
    w.columns[VECTOR].count = 5;
    w.columns[VECTOR].element_length = 2;
    w.columns[BYTES].uniform = GVM_TABLE_BYTES;
    w.columns[BYTES].count = w.columns[BYTES].width = 70000;
    return w;
}

/* table: to be freed by end(). */
static gvm_status decode(const void *manifest, size_t bytes, gvm_table *table)
{
    memset(table, 0, sizeof *table);
    table->token.bytes = bytes;
    table->manifest = malloc(bytes); /* of exactly that size, for sanitizers */
    assert_non_null(table->manifest);
    memcpy(table->manifest, manifest, bytes);
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
    assert_int_equal(decode(&w, sizeof w, &table), GVM_OK);
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
    c = &table.columns[3].info;
    assert_int_equal(c->uniform, GVM_TABLE_BITS);
    assert_int_equal(c->count, 19);
    assert_int_equal(c->values_bytes, 3003);
    assert_int_equal(c->nulls_bytes, 126);
    assert_int_equal(c->bodies_bytes, 0);
    end(&table);
}

static void manifest_of_arrow_is_decoded(void **state)
{
    const arrow_whole w = valid_arrow();
    gvm_table table;
    const gvm_table_column *c;

    (void)state;
    assert_int_equal(decode(&w, sizeof w, &table), GVM_OK);
    assert_string_equal(table.info.layout, "arrow");
    c = &table.columns[NUMBER].info;
    assert_string_equal(c->arrow, "i");
    assert_string_equal(c->arrow_element, "");
    assert_int_equal(c->values_bytes, 4004);
    assert_int_equal(c->nulls_bytes, 126);
    c = &table.columns[BITS].info;
    assert_int_equal(c->width, 0);
    assert_int_equal(c->values_bytes, 126);
    c = &table.columns[TEXT].info;
    assert_int_equal(c->values_bytes, 8016);
    assert_int_equal(c->nulls_bytes, 126);
    assert_int_equal(c->bodies_bytes, 4097);
    assert_int_equal(c->element_nulls_bytes, 0);
    c = &table.columns[LIST].info;
    assert_string_equal(c->arrow, "+L");
    assert_string_equal(c->arrow_element, "s");
    assert_int_equal(c->bodies_bytes, 4098);
    assert_int_equal(c->element_nulls_bytes, 257);
    assert_int_equal(table.columns[FIXED].info.values_bytes, 8008);
    c = &table.columns[ABSENT].info;
    assert_true(c->absent);
    assert_int_equal(c->values_bytes | c->nulls_bytes | c->bodies_bytes, 0);
    c = &table.columns[DECIMAL].info;
    assert_int_equal(c->precision, 9);
    assert_int_equal(c->scale, -2);
    assert_int_equal(c->values_bytes, 16016);
    c = &table.columns[VECTOR].info;
    assert_int_equal(c->count, 5);
    assert_int_equal(c->values_bytes, 10010);
    assert_int_equal(table.columns[BYTES].info.values_bytes, 70070000);
    end(&table);
}

#define BROKEN_ONE(type, make, status, statement) \
    do { \
        type w = make(); \
        gvm_table table; \
        statement; \
        assert_int_equal(decode(&w, sizeof w, &table), status); \
        end(&table); \
    } while (0)
#define BROKEN(status, statement) BROKEN_ONE(whole, valid, status, statement)
#define BROKEN_ARROW(status, statement) BROKEN_ONE(arrow_whole, valid_arrow, status, statement)

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
    BROKEN(GVM_E_FORMAT, w.columns[3].count = 25);
    BROKEN(GVM_E_FORMAT, w.columns[3].count = w.columns[3].width = 0);
    BROKEN(GVM_E_FORMAT, w.columns[3].width = 8);
    BROKEN(GVM_E_FORMAT, w.columns[3].length = 3);
    BROKEN(GVM_E_FORMAT, w.columns[3].uniform = 99);
    BROKEN(GVM_E_FORMAT, w.columns[3].uniform = 0);
    BROKEN(GVM_E_FORMAT, w.columns[3].uniform = GVM_TABLE_ELEMENTS);
    BROKEN(GVM_E_FORMAT, w.columns[3].flags |= GVMI_COLUMN_PGLZ);
    BROKEN(GVM_E_FORMAT, w.columns[2].uniform = GVM_TABLE_BYTES);
}

static void manifest_of_arrow_broken_is_refused(void **state)
{
    (void)state;
    BROKEN_ARROW(GVM_OK, w.head.rows = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.head.rows = UINT64_MAX / 3);
    BROKEN_ARROW(GVM_E_FORMAT, (w.head.rows = UINT64_MAX, w.head.columns = 2,
                                w.columns[0] = w.columns[BITS], w.columns[0].number = 1));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow_element = sizeof w);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow_element = text(&w, "s"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow = text(&w, "g"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow = text(&w, "U"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow = text(&w, "b"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].arrow = text(&w, "n"));
    BROKEN_ARROW(GVM_E_VERSION, w.columns[NUMBER].arrow = text(&w, "q"));
    BROKEN_ARROW(GVM_E_VERSION, w.columns[NUMBER].arrow = text(&w, ""));
    BROKEN_ARROW(GVM_E_VERSION, w.columns[FIXED].arrow = text(&w, "w:"));
    BROKEN_ARROW(GVM_E_VERSION, w.columns[FIXED].arrow = text(&w, "w:08"));
    BROKEN_ARROW(GVM_E_VERSION, w.columns[FIXED].arrow = text(&w, "w:99999999"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[FIXED].length = 9);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].width = 8);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].length = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[NUMBER].align = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[BITS].width = 1);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[BITS].length = 2);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[TEXT].length = 4);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[TEXT].width = 4);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[TEXT].bodies_bytes = UINT64_MAX);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[TEXT].flags |= GVMI_COLUMN_PGLZ);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[TEXT].flags |= GVMI_COLUMN_ABSENT);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].bodies_bytes++);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].arrow_element = text(&w, ""));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].arrow_element = text(&w, "b"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].arrow_element = text(&w, "Z"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].arrow_element = text(&w, "i"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].element_length = 4);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[LIST].element = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[ABSENT].flags = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].arrow = text(&w, "d:9,2"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].arrow = text(&w, "n"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].arrow_element = text(&w, "s"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].precision = 39);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].precision = 0);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].count = 1);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[DECIMAL].width = 8);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[VECTOR].arrow_element = text(&w, "g"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[VECTOR].arrow_element = text(&w, ""));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[VECTOR].element_length = -2);
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[VECTOR].count = UINT32_MAX);
    BROKEN_ARROW(GVM_OK, (w.columns[VECTOR].flags = GVMI_COLUMN_ABSENT,
                          w.columns[VECTOR].arrow = text(&w, "n"),
                          w.columns[VECTOR].arrow_element = text(&w, "")));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[BYTES].arrow = text(&w, "w:8"));
    BROKEN_ARROW(GVM_E_FORMAT, w.columns[BYTES].length = 4);
}

static void check_arrow_rules(const gvm_table *table, const gvm_table_column *c)
{
    const uint64_t rows = table->info.rows, bits = (rows + 7) / 8;
    const uint64_t unit = c->arrow_element[0] != '\0' ? (uint64_t)c->element_length : 1;
    const bool variable = c->length < 0 && c->uniform == 0;

    assert_true(c->nulls_bytes == 0 || c->nulls_bytes == bits);
    assert_false(c->compressed);
    assert_true((strcmp(c->arrow, "n") == 0) == c->absent);
    if (c->absent)
        assert_int_equal(c->values_bytes | c->nulls_bytes | c->bodies_bytes | c->element_nulls_bytes,
                         0);
    else if (c->width == 0)
        assert_int_equal(c->values_bytes, bits);
    else
        assert_int_equal(c->values_bytes / c->width, rows + variable);
    assert_true(variable || (c->bodies_bytes | c->element_nulls_bytes) == 0);
    assert_true(unit > 0 && c->bodies_bytes % unit == 0);
    assert_true(c->element_nulls_bytes == 0 ||
                c->element_nulls_bytes == (c->bodies_bytes / unit + 7) / 8);
}

static void check_rules(const gvm_table *table)
{
    const char *from = table->manifest, *to = from + table->token.bytes;

    for (uint32_t i = 0; i < table->info.columns; i++) {
        const gvm_table_column *c = &table->columns[i].info;

        assert_true(c->name > from && c->name + strlen(c->name) < to);
        assert_true(c->type_name > from && c->type_name + strlen(c->type_name) < to);
        assert_true(i == 0 || c->number > table->columns[i - 1].info.number);
        if (c->arrow != NULL) {
            assert_true(c->arrow > from && c->arrow + strlen(c->arrow) < to);
            check_arrow_rules(table, c);
            continue;
        }
        assert_true(c->width >= 1 && (c->uniform != 0 || c->width <= 1 << 15));
        assert_true(c->absent || c->values_bytes / c->width == table->info.rows);
        assert_true((c->length < 0 && c->uniform == 0) || c->bodies_bytes == 0);
        assert_true(!c->absent || (c->values_bytes | c->nulls_bytes | c->bodies_bytes) == 0);
    }
}

/* Returns whether it was accepted. */
static int damage(void *manifest, size_t bytes, unsigned *seed)
{
    gvm_table table;
    int accepted = 0;

    for (int i = rand_r(seed) % 3; i >= 0; i--)
        ((uint8_t *)manifest)[(size_t)rand_r(seed) % bytes] = (uint8_t)rand_r(seed);
    if (decode(manifest, bytes, &table) == GVM_OK) {
        check_rules(&table);
        accepted = 1;
    }
    end(&table);
    return accepted;
}

static void manifest_with_random_damage_obeys_the_rules(void **state)
{
    unsigned seed = (unsigned)gvmi_now_ns();
    int accepted = 0, accepted_arrow = 0;

    (void)state;
    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        whole w = valid();
        arrow_whole a = valid_arrow();

        accepted += damage(&w, sizeof w, &seed);
        accepted_arrow += damage(&a, sizeof a, &seed);
    }
    assert_true(accepted > ROUNDS / 100 && accepted_arrow > ROUNDS / 100);
}

static void token_valid_is_parsed(void **state)
{
    gvmi_token token;

    (void)state;
    assert_int_equal(gvmi_token_parse(TOKEN, &token), GVM_OK);
    assert_int_equal(token.sum, 255);
    assert_int_equal(token.offset_bytes, 64);
    assert_int_equal(token.bytes, 400);
    assert_int_equal(token.owner, 1000);
    assert_string_equal(token.links, "/gstore/1/2/3");
    assert_string_equal(token.socket, "/tmp/s");
}

static void token_of_memory_for_rows_is_parsed(void **state)
{
    static const char *const hostile[] = {
        TOKEN,
        "gstoreload",
        "gstoreload:",
        "gstoreload1",
        "gstoreload1:",
        "gstoreload1:1000",
        "gstoreload1:1000:/a",
        "gstoreload1:1000:/a:",
        "gstoreload1:1000:/a:b",
        "gstoreload1:1000:a:/b",
        "gstoreload1:-1:/a:/b",
        "gstoreload1:4294967296:/a:/b",
        "gstoreload1::/a:/b",
        "gstoreload1:1000:/a:/b\n",
    };
    gvm_client *client = NULL;
    gvm_object *object = NULL;
    gvmi_token token;

    (void)state;
    assert_int_equal(gvmi_load_token_parse("gstoreload1:1000:/gstore/1/load:/tmp/s", &token), GVM_OK);
    assert_int_equal(token.owner, 1000);
    assert_string_equal(token.links, "/gstore/1/load");
    assert_string_equal(token.socket, "/tmp/s");
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        assert_int_equal(gvmi_load_token_parse(hostile[i], &token), GVM_E_FORMAT);
    assert_int_equal(gvmi_load_token_parse("gstoreload2:1000:/a:/b", &token), GVM_E_VERSION);
    assert_int_equal(gvmi_token_parse("gstoreload1:1000:/gstore/1/load:/tmp/s", &token), GVM_E_FORMAT);
    assert_int_equal(gvm_load_open(NULL, &client, &object), GVM_E_INVALID);
    assert_int_equal(gvm_load_open("gstoreload1:1000:/a:/nowhere/s", NULL, &object), GVM_E_INVALID);
    assert_int_equal(gvm_load_open("gstoreload1:1000:/a:/nowhere/s", &client, &object), GVM_E_PEER);
    assert_true(client == NULL && object == NULL);
}

static void token_malformed_is_refused(void **state)
{
    static const char *const hostile[] = {
        "",
        "gstore",
        "gstore3",
        "gstore3:",
        "gstore3:00:0:400:0:/a",
        "gstore3:00:0:400:0::/tmp/s",
        "gstore3:00:0:400:0:/a:",
        "gstore3:00:0:400:0:/a:tmp/s",
        "gstore3:00:0:400:0:a:/tmp/s",
        "gstore3:0g:0:400:0:/a:/tmp/s",
        "gstore3:00:-1:400:0:/a:/tmp/s",
        "gstore3:00:0: 400:0:/a:/tmp/s",
        "gstore3:00:0:4:0:/a:/tmp/s",
        "gstore3:00:0:2000000:0:/a:/tmp/s",
        "gstore3:00:4194304:400:0:/a:/tmp/s",
        "gstore3:00:18446744073709551616:400:0:/a:/tmp/s",
        "gstore3:00:18446744073709551615:400:0:/a:/tmp/s",
        "gstore3:10000000000000000:0:400:0:/a:/tmp/s",
        "gstore3:00:0:400:0:/a:/tmp/s\n",
        " gstore3:00:0:400:0:/a:/tmp/s",
        "gstore3:00:0:400:/a:/tmp/s",
        "gstore3:00:0:400::/a:/tmp/s",
        "gstore3:00:0:400:-1:/a:/tmp/s",
        "gstore3:00:0:400:4294967296:/a:/tmp/s",
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
        memcpy(text, "gstore3:00:0:400:0:/a:/", 23);
        assert_int_equal(gvmi_token_parse(text, &token),
                         len < GVM_TABLE_TOKEN_BYTES_MAX ? GVM_OK : GVM_E_FORMAT);
        memcpy(text, "gstore3:00:0:400:0:/xxx", 23);
        memcpy(text + len - 3, ":/s", 3);
        assert_int_equal(gvmi_token_parse(text, &token),
                         len <= GVM_NAME_BYTES_MAX - 32 + 22 ? GVM_OK : GVM_E_FORMAT);
    }
}

static void attach_without_a_connection_is_refused(void **state)
{
    gvm_table *table = NULL;
    int none;

    (void)state;
    assert_int_equal(gvm_table_attach_over(NULL, TOKEN, 0, &table), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_attach_over((gvm_client *)&none, "no token", 0, &table), GVM_E_FORMAT);
    assert_int_equal(gvm_table_attach_over((gvm_client *)&none, TOKEN, 0, &table), GVM_E_FOREIGN);
    assert_null(table);
}

static void handles_that_are_none_are_refused(void **state)
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_table *none = (gvm_table *)(uintptr_t)4096, *out;
    gvm_table_data data = {0};
    uint64_t bytes;
    uint32_t index = 0;

    (void)state;
    assert_int_equal(gvm_table_attach(NULL, 0, &out), GVM_E_INVALID);
    assert_int_equal(gvm_table_attach(TOKEN, 0, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_table_attach(TOKEN, 2, &out), GVM_E_INVALID);
    assert_int_equal(gvm_table_get_info(none, &info), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_find_column(none, "x", &index), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_open_columns(none, &index, 1), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_acquire(none, &index, 1, NULL, GVM_FOREVER, &data), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_get_host_bytes(none, &data, &bytes), GVM_E_FOREIGN);
    assert_int_equal(gvm_table_release(none, &data, 1), GVM_E_FOREIGN);
    gvm_table_detach(none);
    gvm_table_detach(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_valid_is_decoded),
        cmocka_unit_test(manifest_broken_is_refused),
        cmocka_unit_test(manifest_of_arrow_is_decoded),
        cmocka_unit_test(manifest_of_arrow_broken_is_refused),
        cmocka_unit_test(manifest_with_random_damage_obeys_the_rules),
        cmocka_unit_test(token_valid_is_parsed),
        cmocka_unit_test(token_of_memory_for_rows_is_parsed),
        cmocka_unit_test(token_malformed_is_refused),
        cmocka_unit_test(attach_without_a_connection_is_refused),
        cmocka_unit_test(handles_that_are_none_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
