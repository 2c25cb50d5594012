/* Structs that grow at their end; see struct.h. */
#include "base/struct.h"

#include <stdint.h>
#include <string.h>

#include "base/size.h"

static size_t struct_size_of(const void *sized)
{
    size_t bytes;

    memcpy(&bytes, sized, sizeof bytes);
    return bytes;
}

bool gvmi_struct_out(void *out, const void *full, size_t full_bytes, size_t oldest_bytes)
{
    size_t bytes;

    if (out == NULL)
        return false;
    bytes = struct_size_of(out);
    if (bytes < oldest_bytes || bytes > GVMI_STRUCT_BYTES_MAX)
        return false;
    memset((char *)out + sizeof bytes, 0, bytes - sizeof bytes);
    memcpy((char *)out + sizeof bytes, (const char *)full + sizeof bytes,
           gvmi_min(bytes, full_bytes) - sizeof bytes);
    return true;
}

bool gvmi_stride_is_good(size_t stride_bytes, size_t oldest_bytes)
{
    return stride_bytes >= oldest_bytes && stride_bytes <= GVMI_STRUCT_BYTES_MAX &&
           stride_bytes % sizeof(uint64_t) == 0;
}

void gvmi_record_out(void *array, size_t index, size_t stride_bytes, const void *full, size_t full_bytes)
{
    char *record = (char *)array + index * stride_bytes;

    memset(record, 0, stride_bytes);
    memcpy(record, full, gvmi_min(stride_bytes, full_bytes));
}

bool gvmi_struct_in(void *full, size_t full_bytes, const void *in, size_t oldest_bytes)
{
    size_t bytes;

    memset(full, 0, full_bytes);
    if (in == NULL)
        return true;
    bytes = struct_size_of(in);
    if (bytes < oldest_bytes || bytes > GVMI_STRUCT_BYTES_MAX)
        return false;
    for (size_t i = full_bytes; i < bytes; i++)
        if (((const unsigned char *)in)[i] != 0)
            return false;
    memcpy(full, in, gvmi_min(bytes, full_bytes));
    return true;
}
