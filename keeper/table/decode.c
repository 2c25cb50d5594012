/* Tokens and manifests, which come from somebody else: nothing is used before it is checked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "keeper/table/table.h"

/* ---- tokens */

static gvm_status fail_malformed_token(const char *what)
{
    return gvm_error_set(GVM_E_FORMAT,
                         "this is no token of a table: %s; gstore_export() makes one in SQL", what);
}

/* Digits up to a colon, which is passed. */
static bool take_number(const char **text, int base, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = *text;

    for (; *at != ':'; at++) {
        unsigned digit;

        if (*at >= '0' && *at <= '9')
            digit = (unsigned)(*at - '0');
        else if (base == 16 && *at >= 'a' && *at <= 'f')
            digit = (unsigned)(*at - 'a') + 10;
        else
            return false;
        if (value > (UINT64_MAX - digit) / (unsigned)base)
            return false;
        value = value * (unsigned)base + digit;
    }
    if (at == *text)
        return false;
    *text = at + 1;
    *out = value;
    return true;
}

static gvm_status parse_version(const char **text, const char *prefix, uint64_t wanted)
{
    uint64_t version;

    if (strncmp(*text, prefix, strlen(prefix)) != 0)
        return fail_malformed_token("it has another beginning");
    *text += strlen(prefix);
    if (!take_number(text, 10, &version))
        return fail_malformed_token("no version");
    if (version != wanted)
        return gvm_error_set(GVM_E_VERSION,
                             "the token is of version %" PRIu64 ", this library reads %" PRIu64,
                             version, wanted);
    return GVM_OK;
}

static gvm_status check_token_text(const char *text)
{
    if (strnlen(text, GVM_TABLE_TOKEN_BYTES_MAX) == GVM_TABLE_TOKEN_BYTES_MAX)
        return fail_malformed_token("it is too long");
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return fail_malformed_token("a character that cannot be printed");
    return GVM_OK;
}

/* "OWNER:LINKS:SOCKET" */
static gvm_status parse_place(const char *text, gvmi_token *out)
{
    const char *colon;
    uint64_t owner;

    if (!take_number(&text, 10, &owner) || owner > UINT32_MAX)
        return fail_malformed_token("no owner");
    out->owner = (uint32_t)owner;
    colon = strchr(text, ':');
    if (colon == NULL || *text != '/' || colon - text > GVM_NAME_BYTES_MAX - 32)
        return fail_malformed_token("no name of links");
    memcpy(out->links, text, (size_t)(colon - text));
    if (colon[1] != '/')
        return fail_malformed_token("no socket");
    strcpy(out->socket, colon + 1);
    return GVM_OK;
}

gvm_status gvmi_token_parse(const char *text, gvmi_token *out)
{
    gvm_status status = check_token_text(text);

    memset(out, 0, sizeof *out);
    if (status == GVM_OK)
        status = parse_version(&text, GVMI_TOKEN_PREFIX, GVMI_TOKEN_VERSION);
    if (status != GVM_OK)
        return status;
    if (!take_number(&text, 16, &out->sum) || !take_number(&text, 10, &out->offset_bytes) ||
        !take_number(&text, 10, &out->bytes))
        return fail_malformed_token("a number is malformed");
    if (out->bytes < sizeof(gvmi_manifest) || out->bytes > GVMI_MANIFEST_BYTES_MAX ||
        out->offset_bytes > GVMI_MANIFEST_RING_BYTES - out->bytes)
        return fail_malformed_token("a number is out of range");
    return parse_place(text, out);
}

gvm_status gvmi_load_token_parse(const char *text, gvmi_token *out)
{
    gvm_status status = check_token_text(text);

    memset(out, 0, sizeof *out);
    if (status == GVM_OK)
        status = parse_version(&text, GVMI_LOAD_TOKEN_PREFIX, GVMI_LOAD_TOKEN_VERSION);
    return status == GVM_OK ? parse_place(text, out) : status;
}

/* ---- manifests */

static gvm_status fail_malformed_table(const char *what)
{
    return gvm_error_set(GVM_E_FORMAT, "the description of the table is malformed: %s", what);
}

static const char *text_at(const gvm_table *table, uint32_t offset)
{
    const uint64_t bytes = table->token.bytes;

    if (offset < sizeof(gvmi_manifest) || offset >= bytes ||
        memchr(table->manifest + offset, '\0', bytes - offset) == NULL)
        return NULL;
    return table->manifest + offset;
}

static uint32_t align_bytes(char align)
{
    switch (align) {
    case 'c': return 1;
    case 's': return 2;
    case 'i': return 4;
    case 'd': return 8;
    default: return 0;
    }
}

/* Of rows * bytes, which do not wrap: both come from outside. */
static bool multiply_saturating(uint64_t rows, uint64_t bytes, uint64_t *out)
{
    return !__builtin_mul_overflow(rows, bytes, out) && *out <= INT64_MAX;
}

static uint64_t bits_bytes(uint64_t bits)
{
    return bits / 8 + (bits % 8 != 0);
}

/* of a value of fixed length; 0: there is none such. */
static uint32_t fixed_width(const gvmi_manifest_column *from)
{
    const uint32_t align = align_bytes(from->align);

    return align > 0 && from->length > 0 ? ((uint32_t)from->length + align - 1) / align * align : 0;
}

/* of a uniform value; 0: there is none such. */
static uint64_t uniform_bytes(const gvmi_manifest_column *from)
{
    if (from->length > 0 || (from->flags & GVMI_COLUMN_PGLZ) != 0)
        return 0;
    switch (from->uniform) {
    case GVM_TABLE_DECIMAL:
        return from->precision > 0 && from->precision <= 38 && from->count == 0 ? 16 : 0;
    case GVM_TABLE_BITS: return bits_bytes(from->count);
    case GVM_TABLE_BYTES: return from->count;
    case GVM_TABLE_ELEMENTS:
    case GVM_TABLE_VECTOR:
        return from->element_length > 0 ? from->count * (uint64_t)from->element_length : 0;
    default: return 0;
    }
}

static bool is_variable(const gvmi_manifest_column *from)
{
    return from->length < 0 && from->uniform == 0;
}

static gvm_status decode_sizes(const gvm_table *table, const gvmi_manifest_column *from,
                               gvm_table_column *to)
{
    const uint32_t width = is_variable(from)    ? 8
                           : from->uniform != 0 ? from->width
                                                : fixed_width(from);

    if (from->width != width)
        return fail_malformed_table("the width of a column");
    to->width = width;
    if (to->absent)
        return GVM_OK;
    if (!multiply_saturating(table->info.rows, width, &to->values_bytes))
        return fail_malformed_table("the number of rows");
    if (to->has_nulls)
        to->nulls_bytes = bits_bytes(table->info.rows);
    if (is_variable(from))
        to->bodies_bytes = from->bodies_bytes > 8 ? from->bodies_bytes : 0;
    return GVM_OK;
}

/* ---- layout 'arrow' */

enum { WIDTH_UNKNOWN = -1, WIDTH_VARIABLE = -2, WIDTH_NONE = -3 };

/* Bytes of a value of one of Arrow's types, by its name; 0: a bit; or as above. */
static int arrow_width(const char *format)
{
    static const struct {
        const char *format;
        int width;
    } known[] = {
        {"n", WIDTH_NONE},
        {"b", 0},
        {"s", 2},
        {"i", 4},
        {"I", 4},
        {"e", 2},
        {"l", 8},
        {"f", 4},
        {"g", 8},
        {"tdD", 4},
        {"ttu", 8},
        {"tsu:", 8},
        {"tsu:UTC", 8},
        {"U", WIDTH_VARIABLE},
        {"Z", WIDTH_VARIABLE},
        {"+L", WIDTH_VARIABLE},
    };
    int width = 0;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(format, known[i].format) == 0)
            return known[i].width;
    if (format[0] != 'w' || format[1] != ':' || format[2] == '\0' || format[2] == '0')
        return WIDTH_UNKNOWN;
    for (const char *c = format + 2; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || width > INT16_MAX)
            return WIDTH_UNKNOWN;
        width = width * 10 + (*c - '0');
    }
    return width;
}

/* Bytes that an offset counts; 0: the format of the elements is none. */
static uint64_t arrow_unit(const gvm_table_column *c)
{
    const int width = arrow_width(c->arrow_element);

    if (strcmp(c->arrow, "+L") != 0)
        return c->arrow_element[0] == '\0';
    return width > 0 && c->element != 0 && width == c->element_length ? (uint64_t)width : 0;
}

static gvm_status decode_arrow_uniform(const gvm_table *table, const gvmi_manifest_column *from,
                                       gvm_table_column *to)
{
    const bool elements = to->uniform == GVM_TABLE_ELEMENTS || to->uniform == GVM_TABLE_VECTOR;
    char format[32];

    if (to->absent)
        strcpy(format, "n");
    else if (to->uniform == GVM_TABLE_DECIMAL)
        snprintf(format, sizeof format, "d:%d,%d", (int)to->precision, (int)to->scale);
    else if (elements)
        snprintf(format, sizeof format, "+w:%u", (unsigned)to->count);
    else
        snprintf(format, sizeof format, "w:%u", (unsigned)from->width);
    if (strcmp(format, to->arrow) != 0 ||
        (elements && !to->absent ? arrow_width(to->arrow_element) != to->element_length
                                 : to->arrow_element[0] != '\0'))
        return fail_malformed_table("the type of a column");
    return decode_sizes(table, from, to);
}

static gvm_status decode_arrow_sizes(const gvm_table *table, const gvmi_manifest_column *from,
                                     gvm_table_column *to)
{
    const uint64_t rows = table->info.rows;
    const int width = arrow_width(to->arrow);
    const uint64_t unit = arrow_unit(to);

    if (width == WIDTH_UNKNOWN)
        return gvm_error_set(GVM_E_VERSION,
                             "column \"%s\" has a type of Arrow's that is not known here: %s",
                             to->name, to->arrow);
    if (to->absent != (width == WIDTH_NONE) || to->compressed || unit == 0)
        return fail_malformed_table("the type of a column");
    if (to->absent)
        return GVM_OK;
    to->width = width == WIDTH_VARIABLE ? 8 : (uint32_t)width;
    if ((width == WIDTH_VARIABLE) != (from->length < 0) || from->width != to->width ||
        (width > 0 && (uint32_t)width != fixed_width(from)) || (width == 0 && from->length != 1))
        return fail_malformed_table("the width of a column");
    if (!multiply_saturating(rows, to->width, &to->values_bytes) || rows > INT64_MAX / 8 - 1 ||
        from->bodies_bytes > INT64_MAX || from->bodies_bytes % unit != 0)
        return fail_malformed_table("the number of rows");
    if (width == 0)
        to->values_bytes = bits_bytes(rows);
    if (to->has_nulls)
        to->nulls_bytes = bits_bytes(rows);
    if (width == WIDTH_VARIABLE) {
        to->values_bytes = (rows + 1) * sizeof(int64_t);
        to->bodies_bytes = from->bodies_bytes;
        if (to->arrow_element[0] != '\0' && (from->flags & GVMI_COLUMN_ELEMENT_NULLS) != 0)
            to->element_nulls_bytes = bits_bytes(from->bodies_bytes / unit);
    }
    return GVM_OK;
}

static gvm_status decode_column(gvm_table *table, bool is_arrow, const gvmi_manifest_column *from,
                                gvm_table_column *to)
{
    *to = (gvm_table_column){.struct_size = sizeof *to,
                             .name = text_at(table, from->name),
                             .type_name = text_at(table, from->type_name),
                             .number = from->number,
                             .type = from->type,
                             .base_type = from->base_type,
                             .element = from->element,
                             .typmod = from->typmod,
                             .length = from->length,
                             .element_length = from->element_length,
                             .align = from->align,
                             .element_align = from->element_align,
                             .by_value = (from->flags & GVMI_COLUMN_BY_VALUE) != 0,
                             .compressed = (from->flags & GVMI_COLUMN_PGLZ) != 0,
                             .absent = (from->flags & GVMI_COLUMN_ABSENT) != 0,
                             .uniform = from->uniform,
                             .count = from->count,
                             .precision = from->precision,
                             .scale = from->scale};
    to->has_nulls = !to->absent && (!is_variable(from) || is_arrow) &&
                    (from->flags & GVMI_COLUMN_NULLS) != 0;
    if (to->name == NULL || to->type_name == NULL)
        return fail_malformed_table("the name of a column");
    if (align_bytes(from->align) == 0 || from->length == 0)
        return fail_malformed_table("the alignment or length of a type");
    if (to->by_value && to->length != 1 && to->length != 2 && to->length != 4 && to->length != 8)
        return fail_malformed_table("the length of a number");
    if (to->element != 0 && align_bytes(to->element_align) == 0)
        return fail_malformed_table("the alignment of an array's elements");
    if (to->uniform != 0 && (from->width == 0 || from->width != uniform_bytes(from)))
        return fail_malformed_table("the length of uniform values");
    if (!is_arrow)
        return decode_sizes(table, from, to);
    to->arrow = text_at(table, from->arrow);
    to->arrow_element = text_at(table, from->arrow_element);
    if (to->arrow == NULL || to->arrow_element == NULL)
        return fail_malformed_table("the type of a column");
    return to->uniform != 0 ? decode_arrow_uniform(table, from, to)
                            : decode_arrow_sizes(table, from, to);
}

static gvm_status decode_columns(gvm_table *table, bool is_arrow)
{
    const char *from = table->manifest + sizeof(gvmi_manifest);
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < table->info.columns && status == GVM_OK; i++) {
        gvmi_manifest_column column;

        memcpy(&column, from + i * sizeof column, sizeof column);
        status = decode_column(table, is_arrow, &column, &table->columns[i].info);
        if (status == GVM_OK && column.number <= (i > 0 ? table->columns[i - 1].info.number : 0))
            status = fail_malformed_table("the order of the columns");
    }
    return status;
}

gvm_status gvmi_table_decode(gvm_table *table)
{
    gvmi_manifest head;

    memcpy(&head, table->manifest, sizeof head);
    if (memcmp(head.magic, GVMI_MANIFEST_MAGIC, sizeof head.magic) != 0)
        return fail_malformed_table("it is none");
    if (head.version != GVMI_TOKEN_VERSION ||
        (head.layout != GVMI_LAYOUT_PGSTROM && head.layout != GVMI_LAYOUT_ARROW))
        return gvm_error_set(GVM_E_VERSION, "the table's description is of version %u, layout %u",
                             (unsigned)head.version, (unsigned)head.layout);
    if (head.bytes != table->token.bytes || head.header_bytes != sizeof head ||
        head.column_bytes != sizeof(gvmi_manifest_column) || head.columns > GVM_TABLE_COLUMNS_MAX ||
        head.bytes - sizeof head < head.columns * sizeof(gvmi_manifest_column))
        return fail_malformed_table("its sizes");
    table->info = (gvm_table_info){.struct_size = sizeof table->info,
                                   .schema = text_at(table, head.schema),
                                   .name = text_at(table, head.name),
                                   .layout = head.layout == GVMI_LAYOUT_ARROW ? "arrow" : "pgstrom",
                                   .objects = table->token.links,
                                   .socket = table->token.socket,
                                   .rows = head.rows,
                                   .revision = head.revision,
                                   .columns = head.columns,
                                   .device = table->info.device};
    if (table->info.schema == NULL || table->info.name == NULL)
        return fail_malformed_table("its name");
    table->columns = calloc(head.columns > 0 ? head.columns : 1, sizeof table->columns[0]);
    if (table->columns == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %u columns", (unsigned)head.columns);
    return decode_columns(table, head.layout == GVMI_LAYOUT_ARROW);
}

uint64_t gvmi_table_part_bytes(const gvm_table_column *column, int part)
{
    switch (part) {
    case GVMI_PART_VALUES: return column->values_bytes;
    case GVMI_PART_BODIES: return column->bodies_bytes;
    case GVMI_PART_ELEMENT_NULLS: return column->element_nulls_bytes;
    default: return column->nulls_bytes;
    }
}
