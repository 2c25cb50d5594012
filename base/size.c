/* Sizes as people write them. */
#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gvmi_size_parse(const char *text, uint64_t *out_bytes)
{
    static const char letters[] = "kmgt";
    unsigned shift = 0;
    char *end;
    double value;

    if (!isdigit((unsigned char)text[0])) /* strtod would take spaces, signs, "inf" and hexadecimal */
        return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    value = strtod(text, &end);
    if (*end != '\0') {
        const char *letter = strchr(letters, tolower((unsigned char)*end));

        if (letter != NULL && *letter != '\0') {
            shift = 10u * (unsigned)(letter - letters + 1);
            end++;
            if (tolower((unsigned char)*end) == 'i')
                end++;
        }
        if (tolower((unsigned char)*end) == 'b')
            end++;
    }
    /* 2^63 leaves room for rounding up, and every product below it is exact or fractional. */
    value *= (double)(1ull << shift);
    if (*end != '\0' || !(value < 9223372036854775808.0) || value != (double)(uint64_t)value)
        return false;
    *out_bytes = (uint64_t)value;
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
