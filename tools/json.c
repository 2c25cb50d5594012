/* A writer of JSON (RFC 8259). Bytes that are no UTF-8 become U+FFFD, so that the text is valid
 * whatever a driver's strings hold; control characters are escaped, which a terminal might obey. */
#include "tools/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "tools/text.h"

void json_start(json *j, FILE *out)
{
    memset(j, 0, sizeof *j);
    j->out = out;
}

static void write_string(FILE *out, const char *s)
{
    fputc('"', out);
    while (*s != '\0') {
        unsigned len = text_utf8_len(s);

        if (len == 0)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (len == 1 && (*s < 0x20 || *s == 0x7f))
            fprintf(out, "\\u%04x", (unsigned)*s);
        else if (len == 2 && (unsigned char)s[0] == 0xc2 && (unsigned char)s[1] < 0xa0)
            fprintf(out, "\\u%04x", (unsigned)(unsigned char)s[1]); /* U+0080 to U+009F */
        else
            fwrite(s, 1, len, out);
        s += len > 0 ? len : 1;
    }
    fputc('"', out);
}

static void new_line(const json *j)
{
    fprintf(j->out, "\n%*s", (int)(2 * j->depth), "");
}

/* What comes before a value: comma, line, name. */
static void begin_value(json *j, const char *key)
{
    if (j->depth == 0)
        return;
    if (j->filled[j->depth - 1])
        fputc(',', j->out);
    j->filled[j->depth - 1] = true;
    new_line(j);
    if (key != NULL) {
        write_string(j->out, key);
        fputs(": ", j->out);
    }
}

static void open_level(json *j, const char *key, char opening, char closing)
{
    GVM_ASSERT(j->depth < JSON_DEPTH_MAX);
    begin_value(j, key);
    fputc(opening, j->out);
    j->filled[j->depth] = false;
    j->closing[j->depth++] = closing;
}

void json_object(json *j, const char *key)
{
    open_level(j, key, '{', '}');
}

void json_array(json *j, const char *key)
{
    open_level(j, key, '[', ']');
}

void json_end(json *j)
{
    GVM_ASSERT(j->depth > 0);
    j->depth--;
    if (j->filled[j->depth])
        new_line(j);
    fputc(j->closing[j->depth], j->out);
    if (j->depth == 0)
        fputc('\n', j->out);
}

void json_string(json *j, const char *key, const char *value)
{
    if (value == NULL) {
        json_null(j, key);
        return;
    }
    begin_value(j, key);
    write_string(j->out, value);
}

void json_unsigned(json *j, const char *key, uint64_t value)
{
    begin_value(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_integer(json *j, const char *key, int64_t value)
{
    begin_value(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_number(json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    begin_value(j, key);
    fprintf(j->out, "%.6g", value);
}

void json_bool(json *j, const char *key, bool value)
{
    begin_value(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(json *j, const char *key)
{
    begin_value(j, key);
    fputs("null", j->out);
}

void json_verbatim(json *j, const char *key, const char *number)
{
    begin_value(j, key);
    fputs(number, j->out);
}
