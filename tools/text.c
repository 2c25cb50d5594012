/* Text for a terminal: columns by the width of UTF-8 characters, and nothing that the terminal would obey. */
#include "tools/text.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <wchar.h>

unsigned text_utf8_len(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
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

static wchar_t decode_utf8(const char *s, unsigned len)
{
    static const unsigned char first_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    unsigned value = (unsigned char)s[0] & first_mask[len];

    for (unsigned i = 1; i < len; i++)
        value = value << 6 | ((unsigned char)s[i] & 0x3f);
    return (wchar_t)value;
}

/* The columns that a character takes; 0 if it must not reach the terminal. */
static unsigned columns_of(const text_pen *pen, const char *s, unsigned len)
{
    int columns;

    if (len == 1)
        return *s >= ' ' && *s <= '~';
    if (len == 0 || !pen->utf8)
        return 0;
    columns = wcwidth(decode_utf8(s, len));
    return columns > 0 ? (unsigned)columns : 0;
}

void text_put(text_pen *pen, const char *text)
{
    while (*text != '\0' && pen->column < pen->width && pen->line < pen->lines_max) {
        unsigned len = text_utf8_len(text), columns = columns_of(pen, text, len);

        if (columns == 0) {
            fputc('?', pen->out);
            pen->column++;
        } else if (columns > pen->width - pen->column) {
            pen->column = pen->width; /* a wide one at the edge */
        } else {
            fwrite(text, 1, len, pen->out);
            pen->column += columns;
        }
        text += len > 0 ? len : 1;
    }
}

void text_print(text_pen *pen, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_put(pen, text);
}

void text_repeat(text_pen *pen, const char *glyph, unsigned count)
{
    for (; count > 0 && pen->column < pen->width && pen->line < pen->lines_max; count--) {
        fputs(glyph, pen->out);
        pen->column++;
    }
}

void text_column(text_pen *pen, unsigned column)
{
    if (column > pen->column)
        text_repeat(pen, " ", column - pen->column);
}

void text_style(text_pen *pen, const char *style)
{
    if (pen->color && pen->line < pen->lines_max)
        fprintf(pen->out, "\033[%sm", style);
}

void text_end(text_pen *pen)
{
    if (pen->line >= pen->lines_max)
        return;
    fputc('\n', pen->out);
    pen->column = 0;
    pen->line++;
}

char *text_short(double value, bool binary, char out[16])
{
    static const char units[] = " KMGTPE";
    const double base = binary ? 1024 : 1000;
    unsigned unit = 0;

    if (!isfinite(value))
        return strcpy(out, "-");
    /* What would be rounded up to the base belongs to the next unit. */
    while (value >= base - 0.5 && unit + 2 < sizeof units) {
        value /= base;
        unit++;
    }
    if (unit == 0)
        snprintf(out, 16, value < 9.95 && value != floor(value) ? "%.1f" : "%.0f", value);
    else
        snprintf(out, 16, "%.*f%c", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
    return out;
}

char *text_duration(uint64_t ms, char out[32])
{
    const uint64_t s = ms / 1000;

    if (s < 60)
        snprintf(out, 32, "%u s", (unsigned)s);
    else if (s < 3600)
        snprintf(out, 32, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(out, 32, "%u:%02u:%02u", (unsigned)(s / 3600), (unsigned)(s / 60 % 60),
                 (unsigned)(s % 60));
    else
        snprintf(out, 32, "%llu d %02u:%02u", (unsigned long long)(s / 86400),
                 (unsigned)(s / 3600 % 24), (unsigned)(s / 60 % 60));
    return out;
}
