/* A writer of JSON (RFC 8259). Bytes that are no UTF-8 become U+FFFD, so that the text is valid
 * whatever a driver's strings hold. */
#include "tools/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"

void json_start(json *j, FILE *out)
{
    memset(j, 0, sizeof *j);
    j->out = out;
}

/* How many bytes the UTF-8 character at s has; 0 if there is none. */
static unsigned utf8_len(const unsigned char *s)
{
    unsigned len = s[0] < 0x80   ? 1
                   : s[0] < 0xc2 ? 0
                   : s[0] < 0xe0 ? 2
                   : s[0] < 0xf0 ? 3
                   : s[0] < 0xf5 ? 4
                                 : 0;

    for (unsigned i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies past the last character. */
    if (len == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)))
        return 0;
    if (len == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)))
        return 0;
    return len;
}

static void write_string(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    fputc('"', out);
    while (*s != '\0') {
        unsigned len = utf8_len(s);

        if (len == 0)
            fputs("\\ufffd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
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

/* What stands before a value: comma, line, name. */
static void lead_in(json *j, const char *key)
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
    lead_in(j, key);
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
    lead_in(j, key);
    write_string(j->out, value);
}

void json_unsigned(json *j, const char *key, uint64_t value)
{
    lead_in(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_integer(json *j, const char *key, int64_t value)
{
    lead_in(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_number(json *j, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(j, key);
        return;
    }
    lead_in(j, key);
    fprintf(j->out, "%.6g", value);
}

void json_bool(json *j, const char *key, bool value)
{
    lead_in(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(json *j, const char *key)
{
    lead_in(j, key);
    fputs("null", j->out);
}
