/* Peers: other devices that reach a heap's memory, in the segments that there are and in those to come
 * (backing.c). */
#include "base/cancel.h"
#include "base/error.h"
#include "heap/heap.h"

/* The first so many segments. Returns how many were done before one failed. */
static size_t grant_segments_locked(gvm_heap *heap, gvm_device *peer, gvm_access access,
                                    size_t most, gvm_status *status)
{
    size_t done = 0;

    *status = GVM_OK;
    for (gvmi_arena *arena = &heap->plain; arena != NULL;
         arena = arena == &heap->plain ? heap->arenas : arena->next)
        for (size_t i = 0; i < arena->count && done < most; i++, done++) {
            *status = gvmi_buffer_grant(arena->segments[i]->buffer, peer, access);
            if (*status != GVM_OK)
                return done;
        }
    return done;
}

/* All segments, or none. */
static gvm_status grant_all_locked(gvm_heap *heap, gvm_device *peer, gvm_access access, gvm_access before)
{
    gvm_status status, undone;
    const size_t done = grant_segments_locked(heap, peer, access, SIZE_MAX, &status);

    if (status != GVM_OK) {
        const gvm_error error = gvmi_error_save();

        (void)grant_segments_locked(heap, peer, before, done, &undone);
        gvm_error_restore(&error);
    }
    return status;
}

static gvm_status grant_heap_locked(gvm_heap *heap, gvm_device *peer, gvm_access access)
{
    uint32_t index = 0;
    gvm_access before = GVM_ACCESS_NONE;
    gvm_status status;

    while (index < heap->grant_count && heap->grants[index].peer != peer)
        index++;
    if (index < heap->grant_count)
        before = heap->grants[index].access;
    else if (index == GVMI_GRANTS_MAX)
        return gvm_error_set(GVM_E_LIMIT, "a heap can be granted to %d peers", GVMI_GRANTS_MAX);
    if (access == before)
        return GVM_OK;
    status = grant_all_locked(heap, peer, access, before);
    if (status != GVM_OK)
        return status;
    if (before == GVM_ACCESS_NONE) {
        gvmi_device_retain(peer);
        heap->grants[heap->grant_count++] = (gvmi_grant){peer, access};
    } else if (access == GVM_ACCESS_NONE) { /* the caller has a reference of its own */
        heap->grants[index] = heap->grants[--heap->grant_count];
        gvmi_device_release(peer);
    } else {
        heap->grants[index].access = access;
    }
    return GVM_OK;
}

gvm_status gvm_heap_grant(gvm_heap *handle, gvm_device *peer_handle, gvm_access access)
{
    GVMI_UNCANCELLED;
    gvm_device *peer;
    gvm_heap *heap;
    gvm_status status = gvmi_device_hold(peer_handle, &peer);

    if (status != GVM_OK)
        return status;
    status = gvmi_heap_hold(handle, &heap);
    if (status == GVM_OK) {
        gvmi_lock(&heap->lock);
        if (heap->kind != GVM_HEAP_DEVICE)
            status = gvm_error_set(
                GVM_E_NOTSUP, "pinned and managed memory is every device's: there is no access to set");
        else
            status = gvmi_grant_check(heap->device, peer, access);
        if (status == GVM_OK)
            status = grant_heap_locked(heap, peer, access);
        gvmi_unlock(&heap->lock);
        gvmi_heap_drop(heap);
    }
    gvmi_device_release(peer);
    return status;
}
