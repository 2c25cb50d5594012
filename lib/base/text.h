/* base/text.h - sentences in buffers of a fixed size.
 *
 * A sentence that does not fit ends after a whole word, with " ...". A name in a sentence is shortened
 * in its middle, since the end of a path is often what distinguishes it from others. No UTF-8
 * character is cut.
 */
#ifndef GVMI_BASE_TEXT_H
#define GVMI_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

#include "base/private.h"

/* Of a name as a sentence shows it, with the NUL. */
#define GVMI_TEXT_NAME_BYTES 120

/* As snprintf() and vsnprintf(), into at least 8 bytes. The arguments must not lie in out. */
GVMI_API void gvmi_text_print(char *out, size_t out_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
GVMI_API void gvmi_text_vprint(char *out, size_t out_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Writes name, or its first and last bytes with "..." between them, and returns out. */
GVMI_API char *gvmi_text_name(const char *name, char out[GVMI_TEXT_NAME_BYTES]);

/* The same, in memory that lives as long as the block it is in. */
#define GVMI_TEXT_NAME(name) gvmi_text_name((name), (char[GVMI_TEXT_NAME_BYTES]){0})

#endif
