/* Text forms of PostgreSQL's common types (its output functions, with DateStyle ISO and time zone
 * UTC), from their binary forms. */
#include "tools/table_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* pg_type.dat */
enum {
    TYPE_BOOL = 16,
    TYPE_BYTEA = 17,
    TYPE_CHAR = 18,
    TYPE_NAME = 19,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_OID = 26,
    TYPE_JSON = 114,
    TYPE_XML = 142,
    TYPE_FLOAT4 = 700,
    TYPE_FLOAT8 = 701,
    TYPE_BPCHAR = 1042,
    TYPE_VARCHAR = 1043,
    TYPE_DATE = 1082,
    TYPE_TIME = 1083,
    TYPE_TIMESTAMP = 1114,
    TYPE_TIMESTAMPTZ = 1184,
    TYPE_NUMERIC = 1700,
    TYPE_UUID = 2950,
};

#define NEAR_DIGITS 28 /* more than distinguish doubles */
#define DAYS_1970_TO_2000 10957
#define DAY_US INT64_C(86400000000)
#define DECIMAL_DIGITS 38
#define ARRAY_DIMENSIONS_MAX 6
#define ARRAY_ELEMENTS_MAX (1u << 27)

table_kind table_text_kind(uint32_t type)
{
    switch (type) {
    case TYPE_BOOL: return TABLE_KIND_BOOL;
    case TYPE_INT2:
    case TYPE_INT4:
    case TYPE_INT8:
    case TYPE_OID:
    case TYPE_FLOAT4:
    case TYPE_FLOAT8: return TABLE_KIND_NUMBER;
    default: return TABLE_KIND_TEXT;
    }
}

static int64_t take_signed(const uint8_t *bytes, uint64_t len)
{
    uint64_t value = 0;

    for (uint64_t i = len; i > 0; i--)
        value = value << 8 | bytes[i - 1];
    if (len < 8 && (value >> (8 * len - 1)) != 0)
        value |= UINT64_MAX << (8 * len);
    return (int64_t)value;
}

static uint32_t take_u32(const uint8_t *bytes)
{
    return (uint32_t)take_signed(bytes, 4);
}

static bool write_hex(FILE *out, const uint8_t *bytes, uint64_t len)
{
    fputs("\\x", out);
    for (uint64_t i = 0; i < len; i++)
        fprintf(out, "%02x", bytes[i]);
    return true;
}

/* ---- numbers */

static bool reads_as(const char *text, double value, bool single)
{
    return single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value;
}

/* Whether digits ("1.25e+07", precision of them) stand for that number and no other: a little more and a
 * little less must, too. A decimal right between two numbers is read as one of them by convention;
 * PostgreSQL takes none such. */
static bool is_exact(const char *text, int precision, double value, bool single)
{
    const int more = NEAR_DIGITS - precision; /* digits that make it a little more or less */
    const int exponent = atoi(strchr(text, 'e') + 1) - (precision - 1) - more;
    uint64_t digits = 0;
    char near[80];

    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            digits = digits * 10 + (uint64_t)(*c - '0');
    if (digits == 0 || !reads_as(text, value, single))
        return false;
    snprintf(near, sizeof near, "%" PRIu64 "%0*de%d", digits, more, 1, exponent);
    if (!reads_as(near, value, single))
        return false;
    snprintf(near, sizeof near, "%" PRIu64 "%.*se%d", digits - 1, more,
             "9999999999999999999999999999", exponent);
    return reads_as(near, value, single);
}

/* The shortest digits that read back as the same number, set as PostgreSQL does: with an exponent from
 * 10^limit on and below 10^-4. */
static bool write_float(FILE *out, double value, bool single)
{
    const int most = single ? 9 : 17, limit = single ? 6 : 15;
    char text[40], digits[24];
    int exponent, count = 0;

    if (isnan(value) || isinf(value)) {
        fputs(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity", out);
        return true;
    }
    for (int precision = 1; precision <= most; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, fabs(value));
        if (value == 0 || is_exact(text, precision, fabs(value), single))
            break;
    }
    exponent = atoi(strchr(text, 'e') + 1);
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            digits[count++] = *c;
    if (signbit(value))
        fputc('-', out);
    if (exponent < -4 || exponent >= limit) {
        fprintf(out, "%c%s%.*se%c%02d", digits[0], count > 1 ? "." : "", count - 1, digits + 1,
                exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        fprintf(out, "0.%.*s%.*s", -exponent - 1, "0000", count, digits);
    } else {
        for (int i = 0; i < count || i <= exponent; i++)
            fprintf(out, "%s%c", i == exponent + 1 ? "." : "", i < count ? digits[i] : '0');
    }
    return true;
}

static bool write_numeric(FILE *out, const uint8_t *bytes, uint64_t len)
{
    const unsigned head = len >= 2 ? (unsigned)bytes[0] | (unsigned)bytes[1] << 8 : 0;
    const bool is_short = (head & 0xc000) == 0x8000;
    const uint64_t skip = is_short ? 2 : 4;
    int weight, scale, count;

    if (len < 2)
        return false;
    if ((head & 0xc000) == 0xc000) {
        fputs(head == 0xd000 ? "Infinity" : head == 0xf000 ? "-Infinity" : "NaN", out);
        return true;
    }
    if (len < skip)
        return false;
    weight = is_short ? (int)(head & 0x3f) - (int)(head & 0x40) : (int)take_signed(bytes + 2, 2);
    scale = (int)(is_short ? (head & 0x1f80) >> 7 : head & 0x3fff);
    count = (int)((len - skip) / 2);
    bytes += skip;
    if ((head & (is_short ? 0x2000 : 0x4000)) != 0)
        fputc('-', out);
    if (weight < 0)
        fputc('0', out);
    for (int i = 0; i <= weight; i++)
        fprintf(out, i == 0 ? "%d" : "%04d", i < count ? (int)take_signed(bytes + 2 * i, 2) : 0);
    for (int done = 0, i = weight + 1; done < scale; done += 4, i++) {
        char four[16];

        snprintf(four, sizeof four, "%04d",
                 i >= 0 && i < count ? (int)take_signed(bytes + 2 * i, 2) : 0);
        fprintf(out, "%s%.*s", done == 0 ? "." : "", scale - done < 4 ? scale - done : 4, four);
    }
    return true;
}

/* ---- times */

/* Proleptic Gregorian, from days since 2000-01-01; eras of 400 years that begin on March 1st. Returns
 * whether the year is before Christ. */
static bool write_date_part(FILE *out, int64_t days)
{
    const int64_t shifted = days + DAYS_1970_TO_2000 + 719468;
    const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    const int64_t of_era = shifted - era * 146097;
    const int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t month_from_march = (5 * of_year + 2) / 153;
    const int64_t day = of_year - (153 * month_from_march + 2) / 5 + 1;
    const int64_t month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    const int64_t year = year_of_era + era * 400 + (month <= 2);

    fprintf(out, "%04" PRId64 "-%02" PRId64 "-%02" PRId64, year > 0 ? year : 1 - year, month, day);
    return year <= 0;
}

static void write_time_part(FILE *out, int64_t us)
{
    const int64_t s = us / 1000000;
    char fraction[8];
    int len;

    fprintf(out, "%02" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
    snprintf(fraction, sizeof fraction, "%06d", (int)(us % 1000000));
    for (len = 6; len > 0 && fraction[len - 1] == '0';)
        len--;
    if (len > 0)
        fprintf(out, ".%.*s", len, fraction);
}

static bool write_date(FILE *out, int64_t days)
{
    if (days == INT32_MAX || days == INT32_MIN)
        fputs(days > 0 ? "infinity" : "-infinity", out);
    else if (write_date_part(out, days))
        fputs(" BC", out);
    return true;
}

static bool write_timestamp(FILE *out, int64_t us, const char *zone)
{
    int64_t days, rest;
    bool before_christ;

    if (us == INT64_MAX || us == INT64_MIN) {
        fputs(us > 0 ? "infinity" : "-infinity", out);
        return true;
    }
    days = us / DAY_US - (us % DAY_US < 0);
    rest = us % DAY_US + (us % DAY_US < 0 ? DAY_US : 0);
    before_christ = write_date_part(out, days);
    fputc(' ', out);
    write_time_part(out, rest);
    fputs(zone, out);
    if (before_christ)
        fputs(" BC", out);
    return true;
}

static bool write_uuid(FILE *out, const uint8_t *bytes)
{
    for (int i = 0; i < 16; i++)
        fprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
    return true;
}

/* ---- arrays */

typedef struct array {
    const uint8_t *bytes, *nulls; /* nulls: one bit an element; NULL: none is */
    uint64_t len, at;
    uint32_t type, element, count;
    int16_t element_length;
    uint32_t align;
    int dimensions;
    uint32_t dims[ARRAY_DIMENSIONS_MAX];
} array;

static bool write_scalar(FILE *out, uint32_t type, const uint8_t *bytes, uint64_t len);

static bool needs_quotes(const char *text)
{
    return *text == '\0' || strpbrk(text, "{}\",\\ \t\n\r\v\f") != NULL ||
           strcasecmp(text, "NULL") == 0;
}

/* The next element's bytes; varlenas inside arrays may have headers of one byte. */
static bool next_element(array *a, const uint8_t **bytes, uint64_t *len)
{
    uint64_t at = a->at, header = 0;

    if (!(a->element_length < 0 && at < a->len && a->bytes[at] != 0))
        at = (at + a->align - 1) / a->align * a->align;
    if (a->element_length > 0) {
        *len = (uint64_t)a->element_length;
    } else if (a->element_length == -1 && at + 4 <= a->len && (a->bytes[at] & 3) == 0) {
        header = 4;
        *len = take_u32(a->bytes + at) >> 2;
    } else if (a->element_length == -1 && at < a->len && (a->bytes[at] & 1) == 1) {
        header = 1;
        *len = a->bytes[at] >> 1;
    } else {
        return false;
    }
    if (*len < header || at > a->len || *len > a->len - at)
        return false;
    *bytes = a->bytes + at + header;
    a->at = at + *len;
    *len -= header;
    return true;
}

static bool write_element(FILE *out, array *a)
{
    char *text = NULL;
    const uint8_t *bytes;
    uint64_t len;
    size_t text_len;
    FILE *memory;
    bool good;

    if (a->nulls != NULL && (a->nulls[a->element / 8] >> (a->element % 8) & 1) == 0) {
        a->element++;
        fputs("NULL", out);
        return true;
    }
    a->element++;
    if (!next_element(a, &bytes, &len) || (memory = open_memstream(&text, &text_len)) == NULL)
        return false;
    good = write_scalar(memory, a->type, bytes, len);
    if (fclose(memory) != 0 || !good) {
        free(text);
        return false;
    }
    if (!needs_quotes(text)) {
        fputs(text, out);
    } else {
        fputc('"', out);
        for (const char *c = text; *c != '\0'; c++)
            fprintf(out, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
        fputc('"', out);
    }
    free(text);
    return true;
}

static bool write_dimension(FILE *out, array *a, int dimension)
{
    const bool last = dimension + 1 >= a->dimensions || dimension + 1 >= ARRAY_DIMENSIONS_MAX;
    bool good = true;

    fputc('{', out);
    for (uint32_t i = 0; i < a->dims[dimension] && good; i++) {
        if (i > 0)
            fputc(',', out);
        good = last ? write_element(out, a) : write_dimension(out, a, dimension + 1);
    }
    fputc('}', out);
    return good;
}

/* ndim, offset of the elements (with the header before it; 0: no NULLs), element type, then lengths and
 * lower bounds of the dimensions, the bitmap, the elements. */
static bool write_array(FILE *out, const gvm_table_column *column, const uint8_t *bytes, uint64_t len)
{
    array a = {.bytes = bytes, .len = len, .element_length = column->element_length, .count = 1};
    bool shifted = false;
    uint64_t data;

    if (len < 12)
        return false;
    a.dimensions = (int)take_u32(bytes);
    a.type = take_u32(bytes + 8);
    a.align = column->element_align == 'd'   ? 8
              : column->element_align == 'i' ? 4
              : column->element_align == 's' ? 2
                                             : 1;
    if (a.dimensions == 0) {
        fputs("{}", out);
        return true;
    }
    if (a.dimensions < 0 || a.dimensions > ARRAY_DIMENSIONS_MAX ||
        len < 12 + 8 * (uint64_t)a.dimensions || a.element_length == 0 || a.type != column->element)
        return false;
    for (int i = 0; i < a.dimensions; i++) {
        a.dims[i] = take_u32(bytes + 12 + 4 * i);
        if (a.dims[i] == 0 || a.dims[i] > ARRAY_ELEMENTS_MAX / a.count)
            return false;
        a.count *= a.dims[i];
        shifted |= take_u32(bytes + 12 + 4 * (a.dimensions + i)) != 1;
    }
    data = 12 + 8 * (uint64_t)a.dimensions;
    if (take_u32(bytes + 4) != 0) {
        a.nulls = bytes + data;
        if (len - data < (a.count + 7) / 8 || take_u32(bytes + 4) < 4 + data + (a.count + 7) / 8)
            return false;
        data = take_u32(bytes + 4) - 4;
    } else {
        data = (data + 4 + 7) / 8 * 8 - 4; /* aligned from the varlena's header on */
    }
    /* From here on offsets count from the header, as alignment does. */
    a.at = data + 4;
    a.bytes = bytes - 4;
    a.len = len + 4;
    for (int i = 0; i < a.dimensions && shifted; i++) {
        const int64_t lower = take_signed(bytes + 12 + 4 * (a.dimensions + i), 4);

        fprintf(out, "[%" PRId64 ":%" PRId64 "]%s", lower, lower + a.dims[i] - 1,
                i + 1 == a.dimensions ? "=" : "");
    }
    return write_dimension(out, &a, 0);
}

/* ---- all */

static uint64_t fixed_length(uint32_t type)
{
    switch (type) {
    case TYPE_BOOL:
    case TYPE_CHAR: return 1;
    case TYPE_INT2: return 2;
    case TYPE_INT4:
    case TYPE_OID:
    case TYPE_FLOAT4:
    case TYPE_DATE: return 4;
    case TYPE_INT8:
    case TYPE_FLOAT8:
    case TYPE_TIME:
    case TYPE_TIMESTAMP:
    case TYPE_TIMESTAMPTZ: return 8;
    case TYPE_UUID: return 16;
    default: return 0;
    }
}

static bool write_scalar(FILE *out, uint32_t type, const uint8_t *bytes, uint64_t len)
{
    const uint64_t wanted = fixed_length(type);
    const int64_t number = wanted > 0 && wanted <= 8 && len >= wanted ? take_signed(bytes, wanted) : 0;
    double f8;
    float f4;

    if (len < wanted)
        return false;
    switch (type) {
    case TYPE_BOOL: return fputc(number != 0 ? 't' : 'f', out) != EOF;
    case TYPE_CHAR:
        if (number != 0)
            fputc((int)number & 0xff, out);
        return true;
    case TYPE_INT2:
    case TYPE_INT4:
    case TYPE_INT8: return fprintf(out, "%" PRId64, number) > 0;
    case TYPE_OID: return fprintf(out, "%u", (unsigned)number) > 0;
    case TYPE_FLOAT4: memcpy(&f4, bytes, sizeof f4); return write_float(out, (double)f4, true);
    case TYPE_FLOAT8: memcpy(&f8, bytes, sizeof f8); return write_float(out, f8, false);
    case TYPE_DATE: return write_date(out, number);
    case TYPE_TIME: write_time_part(out, number); return number >= 0 && number <= DAY_US;
    case TYPE_TIMESTAMP: return write_timestamp(out, number, "");
    case TYPE_TIMESTAMPTZ: return write_timestamp(out, number, "+00");
    case TYPE_NUMERIC: return write_numeric(out, bytes, len);
    case TYPE_UUID: return write_uuid(out, bytes);
    case TYPE_NAME: len = strnlen((const char *)bytes, len); /* fallthrough */
    case TYPE_TEXT:
    case TYPE_JSON:
    case TYPE_XML:
    case TYPE_BPCHAR:
    case TYPE_VARCHAR: return fwrite(bytes, 1, len, out) == len;
    default: return write_hex(out, bytes, len);
    }
}

bool table_text_write(FILE *out, const gvm_table_column *column, const uint8_t *bytes, uint64_t len)
{
    if (column->element != 0 && column->length == -1)
        return write_array(out, column, bytes, len);
    return write_scalar(out, column->base_type, bytes, len);
}

/* ---- layout 'arrow' */

void table_text_from_1970(const char *format, uint8_t *value)
{
    int32_t days;
    int64_t us;

    if (strcmp(format, "tdD") == 0) {
        memcpy(&days, value, sizeof days);
        if (days > INT32_MIN + DAYS_1970_TO_2000 && days < INT32_MAX)
            days -= DAYS_1970_TO_2000;
        memcpy(value, &days, sizeof days);
    } else if (strncmp(format, "tsu:", 4) == 0) {
        memcpy(&us, value, sizeof us);
        if (us > INT64_MIN + DAYS_1970_TO_2000 * DAY_US && us < INT64_MAX)
            us -= DAYS_1970_TO_2000 * DAY_US;
        memcpy(value, &us, sizeof us);
    }
}

/* By way of PostgreSQL's form, in which elements that are NULL take no bytes. */
bool table_text_write_list(FILE *out, const gvm_table_column *column, const uint8_t *elements,
                           uint64_t count, const uint8_t *valid, unsigned skip)
{
    const uint64_t width = (uint64_t)column->element_length;
    array a = {.nulls = valid,
               .element = skip,
               .type = column->element,
               .element_length = column->element_length,
               .align = 1,
               .dimensions = 1,
               .dims = {(uint32_t)count}};
    uint8_t *body;
    bool good;

    if (count > ARRAY_ELEMENTS_MAX || (body = malloc(count * width + 1)) == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        if (valid != NULL && (valid[(skip + i) / 8] >> ((skip + i) % 8) & 1) == 0)
            continue;
        memcpy(body + a.len, elements + i * width, width);
        if (column->arrow_element != NULL)
            table_text_from_1970(column->arrow_element, body + a.len);
        a.len += width;
    }
    a.bytes = body;
    good = write_dimension(out, &a, 0);
    free(body);
    return good;
}

/* ---- uniform columns */

/* Digits of number, at least `least`. */
static void write_u128(FILE *out, unsigned __int128 number, int least)
{
    char digits[48], *at = digits + sizeof digits - 1;

    *at = '\0';
    for (int i = 0; number > 0 || i < least; i++, number /= 10)
        *--at = (char)('0' + (int)(number % 10));
    fputs(at, out);
}

static void write_zeros(FILE *out, int count)
{
    for (int i = 0; i < count; i++)
        fputc('0', out);
}

static bool write_decimal(FILE *out, const uint8_t *bytes, int scale)
{
    const unsigned __int128 sign = (unsigned __int128)1 << 127;
    unsigned __int128 number, unit = 1;
    int behind = 0; /* digits of the number behind the point */

    memcpy(&number, bytes, sizeof number);
    if (number == sign)
        return fputs("NaN", out) >= 0;
    if (number >= sign) {
        fputc('-', out);
        number = -number;
    }
    for (; behind < scale && behind < DECIMAL_DIGITS && unit <= number; behind++)
        unit *= 10;
    if (scale > 0 && behind < scale) {
        fputs("0.", out);
        write_zeros(out, scale - behind);
        write_u128(out, number, 0);
    } else if (scale > 0) {
        write_u128(out, number / unit, 1);
        fputc('.', out);
        write_u128(out, number % unit, scale);
    } else {
        write_u128(out, number, 1);
        write_zeros(out, number > 0 ? -scale : 0);
    }
    return true;
}

static float half_to_float(uint16_t half)
{
    const int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    const float size = exponent == 0    ? ldexpf((float)fraction, -24)
                       : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                        : ldexpf((float)(fraction + 0x400), exponent - 25);

    return (half & 0x8000) != 0 ? -size : size;
}

/* As pgvector writes it. */
static bool write_vector(FILE *out, const gvm_table_column *column, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < column->count; i++) {
        uint16_t half;
        float value;

        if (column->element_length == sizeof half) {
            memcpy(&half, bytes, sizeof half);
            value = half_to_float(half);
        } else {
            memcpy(&value, bytes, sizeof value);
        }
        bytes += column->element_length;
        fputc(i == 0 ? '[' : ',', out);
        write_float(out, (double)value, true);
    }
    return fputc(']', out) != EOF;
}

bool table_text_write_uniform(FILE *out, const gvm_table_column *column, const uint8_t *bytes)
{
    switch (column->uniform) {
    case GVM_TABLE_DECIMAL: return write_decimal(out, bytes, column->scale);
    case GVM_TABLE_BITS:
        for (uint32_t i = 0; i < column->count; i++)
            fputc((bytes[i / 8] >> (7 - i % 8) & 1) != 0 ? '1' : '0', out);
        return true;
    case GVM_TABLE_ELEMENTS:
        return table_text_write_list(out, column, bytes, column->count, NULL, 0);
    case GVM_TABLE_VECTOR:
        return (column->element_length == sizeof(uint16_t) || column->element_length == sizeof(float)) &&
               write_vector(out, column, bytes);
    default: return write_scalar(out, column->base_type, bytes, column->width);
    }
}

bool table_text_unsqueeze(const uint8_t *from, uint64_t from_bytes, uint8_t *raw, uint64_t raw_bytes)
{
    uint64_t at = 0, done = 0;

    while (at < from_bytes && done < raw_bytes) {
        const unsigned control = from[at++];

        for (int bit = 0; bit < 8 && at < from_bytes && done < raw_bytes; bit++) {
            uint64_t len, back;

            if ((control >> bit & 1) == 0) {
                raw[done++] = from[at++];
                continue;
            }
            if (from_bytes - at < 2)
                return false;
            len = (from[at] & 0x0fu) + 3;
            back = (from[at] & 0xf0u) << 4 | from[at + 1];
            at += 2;
            if (len == 18) {
                if (at >= from_bytes)
                    return false;
                len += from[at++];
            }
            if (back == 0 || back > done)
                return false;
            for (; len > 0 && done < raw_bytes; len--, done++)
                raw[done] = raw[done - back];
        }
    }
    return done == raw_bytes && at == from_bytes;
}
