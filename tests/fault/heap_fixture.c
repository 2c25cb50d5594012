/* Heaps, for the scenarios of every_call.
 *
 * A fixture's heap keeps nothing idle, so that what a call commits or gives back shows at once. It
 * has a block of 3 MiB, and one that belongs to a stream.
 */
#include "driver/driver.h"
#include "memory/buffer.h"
#include "tests/fault/fault.h"

bool heap_make(fixture *w, unsigned needs)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options,
        .kind = needs & NEEDS_HOST_HEAP      ? GVM_HEAP_HOST
                : needs & NEEDS_MANAGED_HEAP ? GVM_HEAP_MANAGED
                                             : GVM_HEAP_DEVICE,
        .keep_bytes = GVM_BYTES_NONE,
    };
    bool good;

    if (gvm_heap_create(w->device, &options, &w->heap) != GVM_OK)
        return false;
    if ((needs & NEEDS_HEAP) == 0)
        return true;
    if (gvmi_device_enter(w->device) != GVM_OK)
        return false;
    good = gvmi_cu->cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    gvmi_device_leave();
    return good && gvm_heap_alloc_tagged(w->heap, 3 * MIB, "three", &w->block) == GVM_OK &&
           gvm_heap_alloc_async(w->heap, 3 * MIB, "streams", w->stream, &w->stream_block) == GVM_OK;
}

void heap_end(fixture *w)
{
    gvm_heap_destroy(w->heap);
    if (w->stream != NULL)
        gvmi_cu->cuStreamDestroy(w->stream);
}

gvm_status run_heap_create(fixture *w)
{
    return gvm_heap_create(w->device, NULL, &w->heap);
}

gvm_status run_heap_create_managed(fixture *w)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .kind = GVM_HEAP_MANAGED};

    return gvm_heap_create(w->device, &options, &w->heap);
}

/* A cell, for which there is no slab yet; a small block, for which the thread gets a shelf; one of several chunks; one
 * that is aligned; and one that needs more than half a segment of a managed heap. */
gvm_status run_heap_alloc_cell(fixture *w)
{
    return gvm_heap_alloc(w->heap, 512, &w->out);
}

bool shows_heap_alloc_cell(fixture *w)
{
    size_t bytes = 0;

    return gvm_heap_get_size(w->heap, w->out, &bytes) == GVM_OK && bytes == 512;
}

gvm_status run_heap_alloc_small(fixture *w)
{
    return gvm_heap_alloc(w->heap, PART, &w->out);
}

gvm_status run_heap_alloc(fixture *w)
{
    return gvm_heap_alloc(w->heap, 7 * MIB, &w->out);
}

gvm_status run_heap_alloc_aligned(fixture *w)
{
    return gvm_heap_alloc_aligned(w->heap, 7 * MIB, 2 * MIB, NULL, &w->out);
}

gvm_status run_heap_alloc_lone(fixture *w)
{
    return gvm_heap_alloc(w->heap, 65 * MIB, &w->out);
}

gvm_status run_heap_alloc_async(fixture *w)
{
    return gvm_heap_alloc_async(w->heap, 7 * MIB, NULL, NULL, &w->out);
}

bool shows_heap_alloc(fixture *w)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    size_t bytes = 0;

    return gvm_heap_get_size(w->heap, w->out, &bytes) == GVM_OK && bytes >= PART &&
           gvm_heap_get_info(w->heap, &info) == GVM_OK && info.committed_bytes >= info.requested_bytes;
}

gvm_status run_heap_free(fixture *w)
{
    gvm_status status = gvm_heap_free(w->heap, w->block);

    if (status == GVM_OK)
        w->block = NULL;
    return status;
}

gvm_status run_heap_free_stream(fixture *w)
{
    gvm_status status = gvm_heap_free_async(w->heap, w->stream_block, w->stream);

    if (status == GVM_OK)
        w->stream_block = NULL;
    return status;
}

gvm_status run_heap_free_elsewhere(fixture *w)
{
    gvm_status status = gvm_heap_free_async(w->heap, w->block, w->stream);

    if (status == GVM_OK)
        w->block = NULL;
    return status;
}

bool shows_heap_free(fixture *w)
{
    size_t count;

    return gvm_heap_list(w->heap, 0, sizeof(gvm_heap_block), NULL, &count) == GVM_OK && count == 1;
}

gvm_status run_heap_resize(fixture *w)
{
    return gvm_heap_resize(w->heap, w->block, 9 * MIB);
}

bool shows_heap_resize(fixture *w)
{
    size_t bytes = 0;

    return gvm_heap_get_size(w->heap, w->block, &bytes) == GVM_OK && bytes == 9 * MIB;
}

gvm_status run_heap_stream_end(fixture *w)
{
    return gvm_heap_stream_end(w->heap, w->stream);
}

bool shows_heap_stream_end(fixture *w)
{
    gvm_heap_info info = {.struct_size = sizeof info};

    return gvm_heap_get_info(w->heap, &info) == GVM_OK && info.streams == 0 && info.blocks == 2;
}

gvm_status run_heap_trim(fixture *w)
{
    return gvm_heap_trim(w->heap, 0);
}

/* Of two segments. */
gvm_status run_heap_grant(fixture *w)
{
    return gvm_heap_grant(w->heap, w->peer, GVM_ACCESS_READ);
}

bool shows_heap_grant(fixture *w)
{
    gvm_buffer *buffers[2];
    uint64_t offset;

    return gvm_heap_locate(w->heap, w->block, &buffers[0], &offset) == GVM_OK &&
           gvm_heap_locate(w->heap, w->stream_block, &buffers[1], &offset) == GVM_OK &&
           buffers[0]->grant_count == 1 && buffers[1]->grant_count == 1;
}

gvm_status run_heap_get_usage(fixture *w)
{
    gvm_heap_usage usages[2];
    size_t count = 0;
    gvm_status status = gvm_heap_get_usage(w->heap, 2, sizeof(gvm_heap_usage), usages, &count);

    if (status == GVM_OK)
        w->number = count;
    return status;
}

bool shows_heap_get_usage(fixture *w)
{
    return w->number == 2;
}

gvm_status run_heap_save_snapshot(fixture *w)
{
    return gvm_heap_save_snapshot(w->heap, "/dev/null");
}
