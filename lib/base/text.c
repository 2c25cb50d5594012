/* Sentences in buffers of a fixed size; see text.h. */
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MARK "..."
#define MARK_BYTES (sizeof MARK - 1)
#define NAME_HEAD_BYTES 40 /* of a shortened name's beginning */

/* A byte within a UTF-8 character, which a text must not be cut before. */
static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* out is full, and the sentence goes on. A word that takes more than half of it is cut all the same. */
static void cut_with_ellipsis(char *out, size_t out_bytes)
{
    const size_t most = out_bytes - 1 - MARK_BYTES;
    size_t end = most;

    while (end > most / 2 && out[end - 1] != ' ')
        end--;
    if (end == most / 2) {
        end = most;
        while (end > 0 && is_continuation(out[end]))
            end--;
    }
    memcpy(out + end, MARK, sizeof MARK);
}

void gvmi_text_vprint(char *out, size_t out_bytes, const char *format, va_list args)
{
    const int len = vsnprintf(out, out_bytes, format, args);

    if (len < 0)
        out[0] = '\0';
    else if ((size_t)len >= out_bytes)
        cut_with_ellipsis(out, out_bytes);
}

void gvmi_text_print(char *out, size_t out_bytes, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_text_vprint(out, out_bytes, format, args);
    va_end(args);
}

char *gvmi_text_name(const char *name, char out[GVMI_TEXT_NAME_BYTES])
{
    const size_t len = strlen(name);
    size_t head = NAME_HEAD_BYTES;
    const char *tail;

    if (len < GVMI_TEXT_NAME_BYTES) {
        memcpy(out, name, len + 1);
        return out;
    }
    while (head > 0 && is_continuation(name[head]))
        head--;
    tail = name + len - (GVMI_TEXT_NAME_BYTES - 1 - NAME_HEAD_BYTES - MARK_BYTES);
    while (is_continuation(*tail))
        tail++;
    memcpy(out, name, head);
    memcpy(out + head, MARK, MARK_BYTES);
    strcpy(out + head + MARK_BYTES, tail);
    return out;
}
