/* Sizes as people write them. */
#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SIZE_MAX_BYTES ((1ull << 63) - 1) /* leaves room for rounding up */
#define FRACTION_DIGITS_MAX 6             /* so that a fraction times a unit fits 64 bits */

/* Reads digits, at least one. strtoull and strtod would take signs, spaces and what the locale
 * makes of a point. */
static bool read_digits(const char **text, uint64_t *value, unsigned *count)
{
    for (*count = 0, *value = 0; isdigit((unsigned char)**text); (*text)++, (*count)++) {
        const uint64_t digit = (uint64_t)(**text - '0');

        if (*value > (SIZE_MAX_BYTES - digit) / 10)
            return false;
        *value = *value * 10 + digit;
    }
    return *count > 0;
}

/* "K", "kb", "KiB", ... or "" or "B": as a power of two. */
static bool read_unit(const char *text, unsigned *shift)
{
    static const char letters[] = "kmgt";
    const char *letter = *text != '\0' ? strchr(letters, tolower((unsigned char)*text)) : NULL;

    *shift = 0;
    if (letter != NULL) {
        *shift = 10u * (unsigned)(letter - letters + 1);
        text++;
        if (tolower((unsigned char)*text) == 'i')
            text++;
    }
    if (tolower((unsigned char)*text) == 'b')
        text++;
    return *text == '\0';
}

bool gvmi_size_parse(const char *text, uint64_t *out_bytes)
{
    uint64_t whole, fraction = 0, parts = 1, rest;
    unsigned digits, shift;

    if (!read_digits(&text, &whole, &digits))
        return false;
    if (*text == '.') {
        text++;
        if (!read_digits(&text, &fraction, &digits) || digits > FRACTION_DIGITS_MAX)
            return false;
        while (digits-- > 0)
            parts *= 10;
    }
    if (!read_unit(text, &shift) || whole > SIZE_MAX_BYTES >> shift)
        return false;
    rest = fraction << shift; /* in parts of a byte */
    if (rest % parts != 0 || rest / parts > SIZE_MAX_BYTES - (whole << shift))
        return false;
    *out_bytes = (whole << shift) + rest / parts;
    return true;
}

char *gvmi_size_text(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    if (unit == 0 || value == (double)(uint64_t)value)
        snprintf(out, 32, "%llu %s", (unsigned long long)value, units[unit]);
    else
        snprintf(out, 32, "%.1f %s", value, units[unit]);
    return out;
}
