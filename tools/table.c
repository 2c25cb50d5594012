/* gvmem table: what a PostgreSQL table in GPU memory has, seen from outside the server.
 *
 * Rows are read through the device addresses that any kernel would use, in batches: leases are held
 * while a batch is copied, not while it is printed to a slow reader.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/table.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/keeper.h"
#include "tools/table_text.h"
#include "tools/text.h"
#include "tools/tool.h"

static const char usage[] = "usage: gvmem table [OPTION...] TOKEN\n"
                            "\n"
                            "Attaches a PostgreSQL table in GPU memory by the token that gstore_export() returns, and shows\n"
                            "its columns and first rows, read from the GPU.\n"
                            "\n"
                            "  -n, --rows N         so many rows (10); 0: the columns alone\n"
                            "  -c, --columns LIST   these columns alone, separated by commas\n"
                            "  -j, --json           as JSON\n"
                            "  -h, --help           this text\n";

#define BATCH_ROWS 256
#define BLOCK_BYTES (64u << 10) /* copied at once, at least */
#define WIDTH_MAX 40            /* of a column on a terminal; longer values push the others */

/* One part of a column, with the block of it that was copied last. */
typedef struct part {
    uint64_t address, bytes;
    uint8_t *block;
    uint64_t block_from, block_bytes, block_room;
} part;

typedef struct shown_column {
    uint32_t index;
    gvm_table_column info;
    part values, nulls, bodies, element_nulls;
    char *cells[BATCH_ROWS]; /* NULL: the value is */
    unsigned width;
} shown_column;

typedef struct view {
    gvm_table *table;
    gvm_table_info info;
    gvm_device *device;
    int (*copy_out)(void *to, uint64_t from, size_t bytes); /* cuMemcpyDtoH() */
    shown_column *columns;
    uint32_t *indexes;
    gvm_table_data *data;
    uint32_t count;
    uint64_t rows;
    bool as_json, utf8; /* utf8: of the locale */
} view;

/* ---- bytes */

/* len bytes of a part from an offset on, until the next call. NULL, and a failure, if it has not so many. */
static const uint8_t *fetch_part(const view *v, part *p, uint64_t at, uint64_t len)
{
    uint64_t wanted = len > BLOCK_BYTES ? len : BLOCK_BYTES;
    int result;

    if (at > p->bytes || len > p->bytes - at) {
        gvm_error_set(GVM_E_FORMAT, "a value lies beyond its column's memory");
        return NULL;
    }
    if (p->block_bytes > 0 && at >= p->block_from && at + len <= p->block_from + p->block_bytes)
        return p->block + (at - p->block_from);
    if (wanted > p->bytes - at)
        wanted = p->bytes - at;
    if (wanted > p->block_room) {
        uint8_t *grown = realloc(p->block, wanted);

        if (grown == NULL) {
            gvm_error_set(GVM_E_NOMEM, "out of host memory for a value");
            return NULL;
        }
        p->block = grown;
        p->block_room = wanted;
    }
    p->block_bytes = 0;
    if (gvm_device_push_context(v->device) != GVM_OK)
        return NULL;
    result = v->copy_out(p->block, p->address + at, wanted);
    gvm_device_pop_context();
    if (result != 0) {
        gvm_driver_error(result, "cuMemcpyDtoH", "cannot read a column");
        return NULL;
    }
    p->block_from = at;
    p->block_bytes = wanted;
    return p->block;
}

/* ---- values */

static gvm_status write_plain(FILE *out, const shown_column *c, const uint8_t *bytes, uint64_t len)
{
    if (table_text_write(out, &c->info, bytes, len))
        return GVM_OK;
    return gvm_error_set(GVM_E_FORMAT, "a value of column \"%s\" is malformed", c->info.name);
}

/* body: with its header. */
static gvm_status write_body(FILE *out, const shown_column *c, const uint8_t *body, uint64_t len)
{
    uint32_t head, raw_bytes;
    gvm_status status;
    uint8_t *raw;

    memcpy(&head, body, sizeof head);
    if ((head & 3) == 0)
        return write_plain(out, c, body + 4, len - 4);
    if (len < 8)
        return gvm_error_set(GVM_E_FORMAT, "a compressed value of column \"%s\" is malformed",
                             c->info.name);
    memcpy(&raw_bytes, body + 4, sizeof raw_bytes);
    if (raw_bytes >> 30 != 0)
        return gvm_error_set(GVM_E_NOTSUP, "column \"%s\" is compressed otherwise than by pglz",
                             c->info.name);
    raw = malloc(raw_bytes + 8u); /* arrays count from a header on */
    if (raw == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a value");
    memset(raw, 0, 4);
    if (table_text_unsqueeze(body + 8, len - 8, raw + 4, raw_bytes))
        status = write_plain(out, c, raw + 4, raw_bytes);
    else
        status = gvm_error_set(GVM_E_FORMAT, "a compressed value of column \"%s\" is malformed",
                               c->info.name);
    free(raw);
    return status;
}

static gvm_status write_variable(const view *v, FILE *out, shown_column *c, uint64_t at)
{
    const uint8_t *body = fetch_part(v, &c->bodies, at, 4);
    uint32_t head;

    if (body == NULL)
        return tool_failure_status();
    memcpy(&head, body, sizeof head);
    if ((head & 1) != 0 || head >> 2 < 4)
        return gvm_error_set(GVM_E_FORMAT, "a value of column \"%s\" is malformed", c->info.name);
    body = fetch_part(v, &c->bodies, at, head >> 2);
    return body != NULL ? write_body(out, c, body, head >> 2) : tool_failure_status();
}

static gvm_status is_null(const view *v, shown_column *c, uint64_t row, bool *null)
{
    const uint8_t *byte;

    *null = c->info.absent;
    if (!c->info.has_nulls || c->info.absent)
        return GVM_OK;
    byte = fetch_part(v, &c->nulls, row / 8, 1);
    if (byte == NULL)
        return tool_failure_status();
    *null = (*byte >> (row % 8) & 1) == 0;
    return GVM_OK;
}

/* Layout 'arrow'. A row's place in the bodies, in what offsets count. */
static gvm_status fetch_offsets(const view *v, shown_column *c, uint64_t row, uint64_t *from,
                                uint64_t *to)
{
    const uint8_t *offsets = fetch_part(v, &c->values, row * sizeof *from, 2 * sizeof *from);

    if (offsets == NULL)
        return tool_failure_status();
    memcpy(from, offsets, sizeof *from);
    memcpy(to, offsets + sizeof *from, sizeof *to);
    if (*to < *from || *to > c->bodies.bytes)
        return gvm_error_set(GVM_E_FORMAT, "offsets of column \"%s\" are out of order", c->info.name);
    return GVM_OK;
}

static gvm_status write_arrow_variable(const view *v, FILE *out, shown_column *c, uint64_t row)
{
    const bool list = c->info.arrow_element[0] != '\0';
    const uint64_t unit = list ? (uint64_t)c->info.element_length : 1;
    const uint8_t *bytes = (const uint8_t *)"", *valid = NULL;
    uint64_t from = 0, to = 0;
    gvm_status status = fetch_offsets(v, c, row, &from, &to);

    if (status != GVM_OK)
        return status;
    if (to > from)
        bytes = fetch_part(v, &c->bodies, from * unit, (to - from) * unit);
    if (bytes == NULL)
        return tool_failure_status();
    if (!list)
        return write_plain(out, c, bytes, to - from);
    if (c->element_nulls.bytes > 0 && to > from) {
        valid = fetch_part(v, &c->element_nulls, from / 8, (to + 7) / 8 - from / 8);
        if (valid == NULL)
            return tool_failure_status();
    }
    if (table_text_write_list(out, &c->info, bytes, to - from, valid, from % 8))
        return GVM_OK;
    return gvm_error_set(GVM_E_FORMAT, "a value of column \"%s\" is malformed", c->info.name);
}

static gvm_status write_uniform(const view *v, FILE *out, shown_column *c, uint64_t row)
{
    const uint8_t *value = fetch_part(v, &c->values, row * c->info.width, c->info.width);

    if (value == NULL)
        return tool_failure_status();
    if (table_text_write_uniform(out, &c->info, value))
        return GVM_OK;
    return gvm_error_set(GVM_E_FORMAT, "a value of column \"%s\" is malformed", c->info.name);
}

static gvm_status write_arrow(const view *v, FILE *out, shown_column *c, uint64_t row)
{
    const bool bit = c->info.width == 0;
    uint8_t value[8];
    const uint8_t *bytes;

    if (c->info.length < 0)
        return write_arrow_variable(v, out, c, row);
    bytes = bit ? fetch_part(v, &c->values, row / 8, 1)
                : fetch_part(v, &c->values, row * c->info.width, c->info.width);
    if (bytes == NULL)
        return tool_failure_status();
    if (bit) {
        value[0] = *bytes >> (row % 8) & 1;
        bytes = value;
    } else if (c->info.width <= sizeof value) {
        memcpy(value, bytes, c->info.width);
        table_text_from_1970(c->info.arrow, value);
        bytes = value;
    }
    return write_plain(out, c, bytes, (uint64_t)c->info.length);
}

static gvm_status write_value(const view *v, FILE *out, shown_column *c, uint64_t row, bool *null)
{
    const uint8_t *value;
    uint64_t offset;
    gvm_status status = is_null(v, c, row, null);

    if (status != GVM_OK || *null)
        return status;
    if (c->info.uniform != 0)
        return write_uniform(v, out, c, row);
    if (c->info.arrow != NULL)
        return write_arrow(v, out, c, row);
    value = fetch_part(v, &c->values, row * c->info.width, c->info.width);
    if (value == NULL)
        return tool_failure_status();
    if (c->info.length > 0)
        return write_plain(out, c, value, (uint64_t)c->info.length);
    memcpy(&offset, value, sizeof offset);
    *null = offset == 0;
    return *null ? GVM_OK : write_variable(v, out, c, offset);
}

static gvm_status make_cell(const view *v, shown_column *c, uint64_t row, char **cell)
{
    char *text = NULL;
    size_t len;
    bool null = false;
    FILE *out = open_memstream(&text, &len);
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a value");
    status = write_value(v, out, c, row, &null);
    if (fclose(out) != 0 && status == GVM_OK)
        status = gvm_error_set(GVM_E_NOMEM, "out of host memory for a value");
    if (status != GVM_OK || null) {
        free(text);
        text = NULL;
    }
    *cell = text;
    return status;
}

static void free_cells(view *v)
{
    for (uint32_t i = 0; i < v->count; i++)
        for (uint32_t r = 0; r < BATCH_ROWS; r++) {
            free(v->columns[i].cells[r]);
            v->columns[i].cells[r] = NULL;
        }
}

static gvm_status read_batch(view *v, uint64_t first, uint32_t rows)
{
    gvm_acquire_options scan = gvm_acquire_options_init();
    gvm_status status;

    free_cells(v);
    scan.hint = GVM_HINT_SCAN;
    status = gvm_table_acquire(v->table, v->indexes, v->count, &scan, GVM_FOREVER, v->data);
    if (status != GVM_OK)
        return status;
    for (uint32_t i = 0; i < v->count && status == GVM_OK; i++) {
        shown_column *c = &v->columns[i];

        c->values.address = (uintptr_t)v->data[i].values;
        c->nulls.address = (uintptr_t)v->data[i].nulls;
        c->bodies.address = (uintptr_t)v->data[i].bodies;
        c->element_nulls.address = (uintptr_t)v->data[i].element_nulls;
        for (uint32_t r = 0; r < rows && status == GVM_OK; r++)
            status = make_cell(v, c, first + r, &c->cells[r]);
    }
    if (status == GVM_OK)
        return gvm_table_release(v->table, v->data, v->count);
    {
        gvm_error error;

        (void)gvm_error_last(&error);
        (void)gvm_table_release(v->table, v->data, v->count);
        gvm_error_restore(&error);
    }
    return status;
}

/* ---- text */

/* Others' texts. Control characters, U+0080 to U+009F too, would end the line or worse; and in another
 * coding any byte of a longer character may be one. */
static unsigned print_cell(const view *v, const char *text, bool print)
{
    unsigned columns = 0;

    for (const char *c = text; *c != '\0'; columns++) {
        const unsigned len = text_utf8_len(c);
        const char *glyph = c;

        if (len == 0 || (unsigned char)*c < 0x20 || *c == 0x7f || (len > 1 && !v->utf8) ||
            (len == 2 && c[0] == '\xc2' && (unsigned char)c[1] < 0xa0))
            glyph = "?";
        if (print)
            printf("%.*s", glyph == c ? (int)len : 1, glyph);
        c += len > 0 ? len : 1;
    }
    return columns;
}

static void print_padded(const view *v, const char *text, unsigned width, bool right, bool last)
{
    const unsigned columns = print_cell(v, text, false),
                   blanks = columns < width ? width - columns : 0;

    if (right)
        printf("%*s", (int)blanks, "");
    print_cell(v, text, true);
    if (!right && !last)
        printf("%*s", (int)blanks, "");
}

static void print_schema(const view *v)
{
    const bool arrow = strcmp(v->info.layout, "arrow") == 0;
    char values[32], nulls[32], bodies[32], format[32];

    fputs("table      ", stdout);
    print_cell(v, v->info.schema, true);
    putchar('.');
    print_cell(v, v->info.name, true);
    printf(", revision %" PRIu64 "\n", v->info.revision);
    printf("rows       %" PRIu64 "\n", v->info.rows);
    printf("memory     device %d, layout %s, objects ", (int)v->info.device, v->info.layout);
    print_cell(v, v->info.objects, true);
    fputs("/*\nkeeper     ", stdout);
    print_cell(v, v->info.socket, true);
    fputs("\n\n", stdout);
    printf("%-20s %-20s%s %12s %12s %12s\n", "column", "type", arrow ? " arrow      " : "",
           "values", "nulls", "bodies");
    for (uint32_t i = 0; i < v->count; i++) {
        const gvm_table_column *c = &v->columns[i].info;

        print_padded(v, c->name, 20, false, false);
        putchar(' ');
        print_padded(v, c->type_name, 20, false, false);
        if (arrow) {
            snprintf(format, sizeof format, c->arrow_element[0] != '\0' ? "%s<%s>" : "%s", c->arrow,
                     c->arrow_element);
            printf(" %-11s", format);
        }
        printf(" %12s %12s %12s%s\n", c->absent ? "-" : gvmi_size_text(c->values_bytes, values),
               c->has_nulls ? gvmi_size_text(c->nulls_bytes, nulls) : "-",
               c->length < 0 && c->uniform == 0 && !c->absent ? gvmi_size_text(c->bodies_bytes, bodies)
                                                              : "-",
               c->compressed ? "  pglz" : "");
    }
}

static void print_rule(const view *v)
{
    for (uint32_t i = 0; i < v->count; i++) {
        fputs(i > 0 ? "+" : "", stdout);
        for (unsigned w = 0; w < v->columns[i].width + 2; w++)
            putchar('-');
    }
    putchar('\n');
}

static void set_widths(view *v, uint32_t rows)
{
    for (uint32_t i = 0; i < v->count; i++) {
        shown_column *c = &v->columns[i];

        c->width = print_cell(v, c->info.name, false);
        for (uint32_t r = 0; r < rows; r++) {
            const unsigned width = c->cells[r] != NULL ? print_cell(v, c->cells[r], false) : 0;

            if (width > c->width)
                c->width = width < WIDTH_MAX ? width : WIDTH_MAX;
        }
    }
}

static void print_rows(view *v, uint64_t first, uint32_t rows)
{
    if (first == 0) {
        set_widths(v, rows);
        putchar('\n');
        for (uint32_t i = 0; i < v->count; i++) {
            fputs(i > 0 ? "| " : " ", stdout);
            print_padded(v, v->columns[i].info.name, v->columns[i].width, false, i + 1 == v->count);
            putchar(i + 1 < v->count ? ' ' : '\n');
        }
        print_rule(v);
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < v->count; i++) {
            const shown_column *c = &v->columns[i];
            const bool number = table_text_kind(c->info.base_type) == TABLE_KIND_NUMBER;

            fputs(i > 0 ? "| " : " ", stdout);
            print_padded(v, c->cells[r] != NULL ? c->cells[r] : "", c->width,
                         number && c->info.element == 0, i + 1 == v->count);
            putchar(i + 1 < v->count ? ' ' : '\n');
        }
}

/* ---- JSON */

static void write_schema(const view *v, json *j)
{
    json_string(j, "schema", v->info.schema);
    json_string(j, "name", v->info.name);
    json_unsigned(j, "revision", v->info.revision);
    json_unsigned(j, "row_count", v->info.rows);
    json_integer(j, "device", v->info.device);
    json_string(j, "layout", v->info.layout);
    json_string(j, "objects", v->info.objects);
    json_string(j, "keeper", v->info.socket);
    json_array(j, "columns");
    for (uint32_t i = 0; i < v->count; i++) {
        const gvm_table_column *c = &v->columns[i].info;

        json_object(j, NULL);
        json_string(j, "name", c->name);
        json_string(j, "type", c->type_name);
        json_unsigned(j, "type_oid", c->type);
        json_unsigned(j, "number", c->number);
        if (c->arrow != NULL) {
            json_string(j, "arrow", c->arrow);
            json_string(j, "arrow_element", c->arrow_element);
        }
        json_unsigned(j, "width", c->width);
        if (c->uniform == GVM_TABLE_DECIMAL) {
            json_integer(j, "precision", c->precision);
            json_integer(j, "scale", c->scale);
        } else if (c->uniform != 0) {
            json_unsigned(j, "length", c->count);
        }
        json_unsigned(j, "values_bytes", c->values_bytes);
        json_unsigned(j, "nulls_bytes", c->nulls_bytes);
        json_unsigned(j, "bodies_bytes", c->bodies_bytes);
        if (c->arrow != NULL)
            json_unsigned(j, "element_nulls_bytes", c->element_nulls_bytes);
        json_bool(j, "compressed", c->compressed != 0);
        json_end(j);
    }
    json_end(j);
}

static void write_cell(json *j, const shown_column *c, const char *cell)
{
    const bool is_plain = c->info.element == 0 &&
                          (c->info.uniform == 0 || c->info.uniform == GVM_TABLE_DECIMAL);
    const table_kind kind = is_plain ? table_text_kind(c->info.base_type) : TABLE_KIND_TEXT;
    const bool finite = cell != NULL && strpbrk(cell, "NI") == NULL;

    if (cell == NULL)
        json_null(j, c->info.name);
    else if (kind == TABLE_KIND_BOOL)
        json_bool(j, c->info.name, cell[0] == 't');
    else if (kind == TABLE_KIND_NUMBER && finite)
        json_verbatim(j, c->info.name, cell);
    else
        json_string(j, c->info.name, cell);
}

static void write_rows(view *v, json *j, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        json_object(j, NULL);
        for (uint32_t i = 0; i < v->count; i++)
            write_cell(j, &v->columns[i], v->columns[i].cells[r]);
        json_end(j);
    }
}

/* ---- the command */

static gvm_status choose_columns(view *v, char *list)
{
    gvm_status status = GVM_OK;

    if (list == NULL) {
        for (v->count = 0; v->count < v->info.columns; v->count++)
            v->columns[v->count].index = v->count;
    }
    for (char *rest = list, *name;
         list != NULL && status == GVM_OK && (name = strsep(&rest, ",")) != NULL;) {
        uint32_t index;

        status = gvm_table_find_column(v->table, name, &index);
        for (uint32_t i = 0; i < v->count && status == GVM_OK; i++)
            if (v->columns[i].index == index)
                status = gvm_error_set(GVM_E_INVALID, "column \"%s\" is named twice", name);
        if (status == GVM_OK)
            v->columns[v->count++].index = index;
    }
    for (uint32_t i = 0; i < v->count && status == GVM_OK; i++) {
        shown_column *c = &v->columns[i];

        v->indexes[i] = c->index;
        c->info.struct_size = sizeof c->info;
        status = gvm_table_get_column(v->table, c->index, &c->info);
        c->values.bytes = c->info.values_bytes;
        c->nulls.bytes = c->info.nulls_bytes;
        c->bodies.bytes = c->info.bodies_bytes;
        c->element_nulls.bytes = c->info.element_nulls_bytes;
    }
    return status;
}

static gvm_status prepare_view(view *v, const char *token, char *list)
{
    gvm_status status = gvm_table_attach(token, 0, &v->table);
    size_t most;

    v->info.struct_size = sizeof v->info;
    if (status == GVM_OK)
        status = gvm_table_get_info(v->table, &v->info);
    if (status == GVM_OK)
        status = gvm_device_open(v->info.device, &v->device);
    if (status == GVM_OK)
        status = gvm_driver_get_call("cuMemcpyDtoH_v2", (void (**)(void)) & v->copy_out);
    if (status != GVM_OK)
        return status;
    most = v->info.columns > 0 ? v->info.columns : 1;
    v->columns = calloc(most, sizeof v->columns[0]);
    v->indexes = calloc(most, sizeof v->indexes[0]);
    v->data = calloc(most, sizeof v->data[0]);
    if (v->columns == NULL || v->indexes == NULL || v->data == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %u columns",
                             (unsigned)v->info.columns);
    return choose_columns(v, list);
}

static gvm_status show_table(view *v)
{
    gvm_status status = GVM_OK;
    json j;

    if (v->as_json) {
        json_start(&j, stdout);
        json_object(&j, NULL);
        write_schema(v, &j);
        json_array(&j, "rows");
    } else {
        print_schema(v);
    }
    /* Until nobody reads it any more: tool_flush() says so. */
    for (uint64_t first = 0, some; first < v->rows && status == GVM_OK && !ferror(stdout);
         first += some) {
        some = v->rows - first < BATCH_ROWS ? v->rows - first : BATCH_ROWS;
        status = read_batch(v, first, (uint32_t)some);
        if (status != GVM_OK)
            break;
        if (v->as_json)
            write_rows(v, &j, (uint32_t)some);
        else
            print_rows(v, first, (uint32_t)some);
    }
    if (v->as_json) {
        json_end(&j);
        json_end(&j);
    }
    return status;
}

static void free_view(view *v)
{
    if (v->columns != NULL)
        free_cells(v);
    for (uint32_t i = 0; v->columns != NULL && i < v->info.columns; i++) {
        free(v->columns[i].values.block);
        free(v->columns[i].nulls.block);
        free(v->columns[i].bodies.block);
        free(v->columns[i].element_nulls.block);
    }
    free(v->columns);
    free(v->indexes);
    free(v->data);
    gvm_device_close(v->device);
    gvm_table_detach(v->table);
}

int tool_table(int argc, char **argv)
{
    static const struct option longs[] = {{"rows", required_argument, NULL, 'n'},
                                          {"columns", required_argument, NULL, 'c'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int rows = 10, option, code = TOOL_DONE;
    view v = {.utf8 = keeper_pen().utf8};
    char *list = NULL;

    while ((option = getopt_long(argc, argv, ":n:c:jh", longs, NULL)) != -1) {
        if (option == 'n') {
            if (!tool_parse_number("table", "--rows", optarg, 0, INT32_MAX, &rows))
                return TOOL_USAGE;
        } else if (option == 'c')
            list = optarg;
        else if (option == 'j')
            v.as_json = true;
        else if (option == 'h')
            return tool_help(usage);
        else
            return tool_bad_option("table", option, argv);
    }
    if (optind >= argc)
        return tool_usage("table", "a token is missing");
    if (optind + 1 < argc)
        return tool_usage("table", "\"%s\" is one argument too many", argv[optind + 1]);
    if (prepare_view(&v, argv[optind], list) != GVM_OK) {
        code = tool_fail("cannot attach the table");
    } else {
        v.rows = v.info.rows < (uint64_t)rows ? v.info.rows : (uint64_t)rows;
        if (show_table(&v) != GVM_OK)
            code = tool_fail("cannot read the table");
    }
    free_view(&v);
    return tool_flush(stdout, "standard output") ? code : TOOL_FAILED;
}
