/* tools/text.h - text in columns for people: clipped to a width, coloured if wanted, and harmless
 * to a terminal whatever names hold.
 *
 * A pen writes lines of at most width columns and at most lines_max lines; what would go beyond is
 * left out. Control characters, and characters that the locale cannot show, become '?'.
 */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_UNLIMITED (~0u)

typedef struct text_pen {
    FILE *out;
    unsigned width, lines_max; /* TEXT_UNLIMITED: no end */
    bool color, utf8;          /* utf8: setlocale() was called and the locale's coding is UTF-8 */
    unsigned column, line;
} text_pen;

/* How many bytes the UTF-8 character at s has; 0 if there is none. s is closed by a NUL. */
unsigned text_utf8_len(const char *s);

/* Text from here on, as printf(3) makes it, at most 1023 bytes at once. */
void text_put(text_pen *pen, const char *text);
void text_print(text_pen *pen, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A character of one column, count times. It is written as it is. */
void text_repeat(text_pen *pen, const char *glyph, unsigned count);

/* Blanks up to a column; none if it is passed already. */
void text_column(text_pen *pen, unsigned column);

/* Select Graphic Rendition: "1", "32", "7"; "0" ends it. Nothing without colour. */
void text_style(text_pen *pen, const char *style);

/* Ends the line. */
void text_end(text_pen *pen);

/* At most 5 characters: "0", "1023", "1.50K", "63.2G", "-" for NaN; in powers of 1000, or of 1024
 * if binary. */
char *text_short(double value, bool binary, char out[16]);

/* "3 s", "12:07", "5:12:07", "3 d 05:12". */
char *text_duration(uint64_t ms, char out[32]);

#endif
