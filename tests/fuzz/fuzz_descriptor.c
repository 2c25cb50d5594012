/* The share decoder under libFuzzer: any bytes at all must be refused or be consistent, without a
 * read beyond them.
 *
 * clang -fsanitize=fuzzer,address,undefined, or linked with a main that replays files.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/buffer.h>

#include "sharing/descriptor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a receiver does with the chunks, in pieces as they come. */
static void check_chunks(const gvmi_descriptor *about, const uint8_t *data, size_t size)
{
    uint64_t floor_bytes = 0, last_bytes = 0;
    uint32_t left = about->chunk_count;

    while (left > 0 && size >= sizeof(gvmi_descriptor_chunk)) {
        gvmi_descriptor_chunk chunk;

        memcpy(&chunk, data, sizeof chunk);
        if (gvmi_descriptor_check_chunks(about, &chunk, 1, &floor_bytes) != GVM_OK)
            return;
        if (floor_bytes <= last_bytes || floor_bytes > about->span_len_bytes)
            abort();
        last_bytes = floor_bytes;
        data += sizeof chunk;
        size -= sizeof chunk;
        left--;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gvmi_descriptor about;

    if (gvmi_descriptor_decode_start(data, size) != GVM_OK || size < sizeof about)
        return 0;
    if (gvmi_descriptor_decode(data, sizeof about, &about) != GVM_OK)
        return 0;
    if (memcmp(&about, data, sizeof about) != 0 ||
        about.chunk_count > about.span_len_bytes / ((about.flags & GVMI_DESCRIPTOR_GRADED) != 0
                                                        ? GVM_CHUNK_BYTES_MIN
                                                        : about.chunk_bytes))
        abort();
    check_chunks(&about, data + sizeof about, size - sizeof about);
    return 0;
}
