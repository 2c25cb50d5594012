/* Memory by the piece: a buffer that is committed whole, known by its address. */
#include <gvmem/heap.h>

#include <inttypes.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "memory/buffer.h"
#include "memory/idle.h"

/* The largest chunk with which rounding up wastes at most a sixteenth: few handles, little waste.
 */
static uint64_t piece_chunk_bytes(uint64_t size_bytes)
{
    uint64_t chunk_bytes = GVM_CHUNK_BYTES_MAX;

    while (chunk_bytes > GVM_CHUNK_BYTES_MIN &&
           gvmi_round_up(size_bytes, chunk_bytes) - size_bytes > size_bytes / 16)
        chunk_bytes /= 2;
    return chunk_bytes;
}

/* The largest smaller chunk with which the whole fits what is free now; 0: there is none. */
static uint64_t smaller_chunk_bytes(const gvm_device *device, uint64_t size_bytes, uint64_t chunk_bytes)
{
    const uint64_t whole_bytes = gvmi_round_up(size_bytes, chunk_bytes);
    const uint64_t free_bytes = gvmi_device_free_bytes(device);

    while (chunk_bytes > GVM_CHUNK_BYTES_MIN && chunk_bytes > device->info.granularity_bytes) {
        uint64_t bytes;

        chunk_bytes /= 2;
        bytes = gvmi_round_up(size_bytes, chunk_bytes);
        if (bytes < whole_bytes && bytes <= free_bytes)
            return chunk_bytes;
    }
    return 0;
}

static gvm_status make_piece(gvm_device *device, uint64_t size_bytes, uint64_t chunk_bytes,
                             gvm_buffer **out)
{
    const gvmi_buffer_spec spec = {.reserve_bytes = size_bytes, .chunk_bytes = chunk_bytes};
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_create(device, &spec, &buffer);

    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_commit(buffer, 0, size_bytes);
    if (status == GVM_OK)
        status = gvmi_registry_add(GVMI_KIND_PIECE, buffer->address, buffer);
    if (status == GVM_OK)
        *out = buffer;
    else
        gvm_buffer_destroy(buffer);
    return status;
}

/* On a full device with smaller chunks, which round up less: others keep their idle memory if that is
 * enough. */
static gvm_status make_piece_that_fits(gvm_device *device, uint64_t size_bytes, gvm_buffer **out)
{
    uint64_t chunk_bytes = piece_chunk_bytes(size_bytes);
    gvm_status status = make_piece(device, size_bytes, chunk_bytes, out);

    while (status == GVM_E_NOSPACE &&
           (chunk_bytes = smaller_chunk_bytes(device, size_bytes, chunk_bytes)) != 0)
        status = make_piece(device, size_bytes, chunk_bytes, out);
    return status;
}

/* Has idle memory given back before it fails. */
static gvm_status make_piece_by_all_means(gvm_device *device, uint64_t size_bytes, void **out)
{
    gvmi_shortage shortage = {0};
    gvm_buffer *buffer;
    gvm_status status;

    do
        status = make_piece_that_fits(device, size_bytes, &buffer);
    while (status == GVM_E_NOSPACE &&
           gvmi_idle_retry(device, gvmi_round_up(size_bytes, GVM_CHUNK_BYTES_MIN), &shortage));
    if (status == GVM_OK)
        *out = gvmi_pointer(buffer->address);
    return status;
}

gvm_status gvm_alloc(gvm_device *handle, size_t size_bytes, void **out)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    char most[32];
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (size_bytes == 0 || size_bytes > GVMI_SPAN_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "a piece has 1 byte to %s, not %zu bytes",
                             gvmi_size_text(GVMI_SPAN_BYTES_MAX, most), size_bytes);
    status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    status = make_piece_by_all_means(device, size_bytes, out);
    gvmi_device_release(device);
    return status;
}

gvm_status gvm_alloc_pitch(gvm_device *handle, uint64_t width_bytes, uint64_t rows, void **out,
                           uint64_t *pitch_bytes)
{
    GVMI_UNCANCELLED;
    gvm_device *device;
    uint64_t pitch, size_bytes;
    char most[32];
    gvm_status status;

    if (out == NULL || pitch_bytes == NULL)
        return gvm_error_set(GVM_E_INVALID, "%s is NULL", out == NULL ? "out" : "pitch_bytes");
    if (width_bytes == 0 || rows == 0)
        return gvm_error_set(GVM_E_INVALID, "there is nothing in %" PRIu64 " rows of %" PRIu64 " bytes",
                             rows, width_bytes);
    status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    pitch = width_bytes <= GVMI_SPAN_BYTES_MAX ? gvmi_round_up(width_bytes, device->row_bytes)
                                               : UINT64_MAX;
    if (__builtin_mul_overflow(pitch, rows, &size_bytes) || size_bytes > GVMI_SPAN_BYTES_MAX)
        status = gvm_error_set(GVM_E_INVALID,
                               "a piece has up to %s, not %" PRIu64 " rows of %" PRIu64 " bytes",
                               gvmi_size_text(GVMI_SPAN_BYTES_MAX, most), rows, width_bytes);
    else
        status = make_piece_by_all_means(device, size_bytes, out);
    gvmi_device_release(device);
    if (status == GVM_OK)
        *pitch_bytes = pitch;
    return status;
}

gvm_status gvm_free(void *ptr)
{
    GVMI_UNCANCELLED;
    void *buffer;
    gvm_status status;

    if (ptr == NULL)
        return GVM_OK;
    status = gvmi_registry_remove(GVMI_KIND_PIECE, gvmi_key(ptr), &buffer);
    if (status == GVM_OK)
        gvm_buffer_destroy(buffer);
    return status;
}

gvm_status gvm_alloc_buffer(const void *ptr, gvm_buffer **out)
{
    GVMI_UNCANCELLED;
    void *buffer;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_registry_hold(GVMI_KIND_PIECE, gvmi_key(ptr), &buffer);
    if (status != GVM_OK)
        return status;
    gvmi_registry_drop(GVMI_KIND_PIECE, gvmi_key(ptr));
    *out = buffer;
    return GVM_OK;
}
