/* Streams: an arena for each, and blocks that wait for a stream that is not theirs.
 *
 * Memory that a stream's block leaves is used again by the same stream without waiting: whatever
 * work the stream still has on it comes first. It goes elsewhere only by way of the driver, and
 * before that the stream has to pass a fence (chunk.c).
 *
 * A block that is freed on another stream than its own, or that has none, waits PENDING with an
 * event of that stream. Calls that take the lock look at the oldest few.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "heap/heap.h"
#include "memory/device.h"

#define EVENTS_KEPT 64

/* ---- events: the context must be current, for the default stream and for making them */

static gvm_status event_take(gvm_heap *heap, CUevent *out)
{
    CUresult result;

    if (heap->event_count > 0) {
        *out = heap->events[--heap->event_count];
        return GVM_OK;
    }
    result = gvmi_cu->cuEventCreate(out, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? GVM_OK
                                  : gvmi_driver_fail(result, "cuEventCreate", "cannot make an event");
}

static void event_keep(gvm_heap *heap, CUevent event)
{
    if (heap->events == NULL)
        heap->events = malloc(EVENTS_KEPT * sizeof(CUevent));
    if (heap->events != NULL && heap->event_count < EVENTS_KEPT)
        heap->events[heap->event_count++] = event;
    else
        gvmi_cu->cuEventDestroy(event);
}

/* An event that says when what is on the stream now is done. */
static gvm_status event_record(gvm_heap *heap, CUstream stream, CUevent *out)
{
    CUevent event = NULL;
    CUresult result;
    gvm_status status = event_take(heap, &event);

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) {
        *out = event;
        return GVM_OK;
    }
    gvmi_cu->cuEventDestroy(event);
    return gvmi_driver_fail(result, "cuEventRecord", "cannot record an event on stream %p",
                            (void *)stream);
}

/* Is it done? wait: waits for it; what fails then is recorded. Where a kernel has broken the context
 * nothing runs any more. */
static bool event_passed(CUevent event, bool wait)
{
    const CUresult result = wait ? gvmi_cu->cuEventSynchronize(event) : gvmi_cu->cuEventQuery(event);

    if (wait && result != CUDA_SUCCESS)
        gvmi_driver_fail(result, "cuEventSynchronize", "cannot wait for a stream");
    return result == CUDA_SUCCESS || gvmi_driver_is_sticky(result);
}

static void destroy_events(const gvmi_heap_wait *wait)
{
    gvmi_cu->cuEventDestroy(wait->event);
    for (size_t i = 0; i < wait->other_count; i++)
        gvmi_cu->cuEventDestroy(wait->others[i]);
}

/* ---- arenas */

uint64_t gvmi_stream_key(gvm_stream stream)
{
    const uint64_t handle = gvmi_key(stream);

    if (handle == gvmi_key(CU_STREAM_PER_THREAD)) /* many streams under one name */
        return GVMI_HEAP_PLAIN;
    return handle == gvmi_key(CU_STREAM_LEGACY) ? 0 : handle;
}

gvm_status gvmi_stream_arena_locked(gvm_heap *heap, uint64_t key, gvmi_arena **out)
{
    gvmi_arena *arena = heap->arenas;

    if (key == GVMI_HEAP_PLAIN) {
        *out = &heap->plain;
        return GVM_OK;
    }
    while (arena != NULL && arena->key != key)
        arena = arena->next;
    if (arena == NULL) {
        arena = calloc(1, sizeof *arena);
        if (arena == NULL)
            return gvmi_fail(GVM_E_NOMEM, "out of host memory for a stream's list of segments");
        arena->heap = heap;
        arena->key = key;
        arena->next = heap->arenas;
        heap->arenas = arena;
    }
    *out = arena;
    return GVM_OK;
}

static void fence_locked(gvmi_arena *arena, bool wait)
{
    gvm_heap *heap = arena->heap;

    if (arena->fence_recorded && event_passed(arena->fence, wait && arena->fenced == arena->clock)) {
        arena->passed = arena->fenced;
        arena->fence_recorded = false;
        event_keep(heap, arena->fence);
    }
    if (arena->passed >= arena->clock || (arena->fence_recorded && !wait))
        return;
    if (arena->fence_recorded) { /* of earlier: a newer one covers it */
        event_keep(heap, arena->fence);
        arena->fence_recorded = false;
    }
    if (event_record(heap, (CUstream)(uintptr_t)arena->key, &arena->fence) != GVM_OK)
        return;
    arena->fenced = arena->clock;
    arena->fence_recorded = true;
    if (event_passed(arena->fence, wait)) {
        arena->passed = arena->fenced;
        arena->fence_recorded = false;
        event_keep(heap, arena->fence);
    } else if (wait) { /* the next one who waits records another */
        arena->fence_recorded = false;
        gvmi_cu->cuEventDestroy(arena->fence);
    }
}

bool gvmi_arena_fence_locked(gvmi_arena *arena, bool wait)
{
    if (arena->passed >= arena->clock)
        return true;
    if (gvmi_device_enter(arena->heap->device) != GVM_OK)
        return false;
    gvmi_capture_relax();
    fence_locked(arena, wait);
    gvmi_capture_restore();
    gvmi_device_leave();
    return arena->passed >= arena->clock;
}

static void free_arena(gvmi_arena *arena)
{
    free(arena->segments);
    free(arena);
}

gvm_status gvmi_arena_end_locked(gvmi_arena *arena)
{
    gvm_heap *heap = arena->heap;
    gvmi_arena *plain = &heap->plain, **link = &heap->arenas;

    arena->clock++; /* blocks that are still live, too, wait for the stream */
    if (!gvmi_arena_fence_locked(arena, true))
        return gvmi_error_save().status;
    /* Room first, so that nothing fails half way. */
    if (plain->capacity < plain->count + arena->count) {
        const size_t capacity = plain->count + arena->count;
        gvmi_segment **grown = realloc(plain->segments, capacity * sizeof(gvmi_segment *));

        if (grown == NULL)
            return gvmi_fail(GVM_E_NOMEM, "out of host memory for a heap's list of segments");
        plain->segments = grown;
        plain->capacity = capacity;
    }
    for (size_t i = 0; i < arena->count; i++)
        (void)gvmi_arena_add_locked(plain, arena->segments[i]);
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    free_arena(arena);
    return GVM_OK;
}

/* ---- blocks that wait */

static gvm_status ring_reserve(gvm_heap *heap)
{
    const size_t capacity = heap->wait_capacity > 0 ? 2 * heap->wait_capacity : 16;
    gvmi_heap_wait *grown;

    if (heap->wait_count < heap->wait_capacity)
        return GVM_OK;
    grown = malloc(capacity * sizeof *grown);
    if (grown == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a block that waits for a stream");
    for (size_t i = 0; i < heap->wait_count; i++)
        grown[i] = heap->waits[(heap->wait_first + i) & (heap->wait_capacity - 1)];
    free(heap->waits);
    heap->waits = grown;
    heap->wait_capacity = capacity;
    heap->wait_first = 0;
    return GVM_OK;
}

static gvmi_heap_wait *wait_at(gvm_heap *heap, size_t index)
{
    return &heap->waits[(heap->wait_first + index) & (heap->wait_capacity - 1)];
}

gvm_status gvmi_heap_delay_locked(gvm_heap *heap, gvmi_block *block, const gvm_stream *streams,
                                  size_t count)
{
    gvmi_heap_wait wait = {.block = block};
    gvm_status status = ring_reserve(heap);

    if (status == GVM_OK && count > 1) {
        wait.others = malloc((count - 1) * sizeof(CUevent));
        if (wait.others == NULL)
            status = gvmi_fail(GVM_E_NOMEM, "out of host memory for a block that waits for streams");
    }
    if (status == GVM_OK)
        status = gvmi_device_enter(heap->device);
    if (status != GVM_OK)
        goto fail_free;
    gvmi_capture_relax();
    status = event_record(heap, streams[0], &wait.event);
    for (size_t i = 1; i < count && status == GVM_OK; i++) {
        status = event_record(heap, streams[i], &wait.others[wait.other_count]);
        wait.other_count += status == GVM_OK;
    }
    if (status != GVM_OK && wait.event != NULL)
        destroy_events(&wait);
    gvmi_capture_restore();
    gvmi_device_leave();
    if (status != GVM_OK)
        goto fail_free;
    heap->wait_count++;
    *wait_at(heap, heap->wait_count - 1) = wait;
    return GVM_OK;

fail_free:
    free(wait.others);
    return status;
}

static void end_wait(gvm_heap *heap, const gvmi_heap_wait *wait)
{
    heap->pending_units -= wait->block->units;
    heap->order_pending[gvmi_heap_row(wait->block->units)]--;
    event_keep(heap, wait->event);
    free(wait->others);
    gvmi_heap_give_locked(heap, wait->block);
}

void gvmi_heap_poll_locked(gvm_heap *heap, bool wait)
{
    size_t looked = heap->wait_count < GVMI_HEAP_PENDING_POLLS || wait ? heap->wait_count
                                                                       : GVMI_HEAP_PENDING_POLLS;
    gvm_error error;

    if (heap->wait_count == 0)
        return;
    error = gvmi_error_save();
    if (gvmi_device_enter(heap->device) != GVM_OK) {
        gvmi_error_restore(&error);
        return;
    }
    gvmi_capture_relax();
    /* One that is not done goes to the end of the ring, so that it does not hide those of other
     * streams behind it. */
    for (; looked > 0; looked--) {
        gvmi_heap_wait first = *wait_at(heap, 0);
        bool passed;

        heap->wait_first = (heap->wait_first + 1) & (heap->wait_capacity - 1);
        heap->wait_count--;
        passed = event_passed(first.event, wait);
        while (passed && first.other_count > 0) {
            event_keep(heap, first.event);
            first.event = first.others[--first.other_count];
            passed = event_passed(first.event, wait);
        }
        if (passed)
            end_wait(heap, &first);
        else
            *wait_at(heap, heap->wait_count++) = first;
    }
    gvmi_capture_restore();
    gvmi_device_leave();
    gvmi_error_restore(&error);
}

void gvmi_streams_free(gvm_heap *heap)
{
    bool entered;
    const bool there = gvmi_device_enter_to_free(heap->device, &entered);

    for (size_t i = 0; i < heap->wait_count; i++) {
        if (there)
            destroy_events(wait_at(heap, i));
        free(wait_at(heap, i)->others);
    }
    for (size_t i = 0; i < heap->event_count && there; i++)
        gvmi_cu->cuEventDestroy(heap->events[i]);
    while (heap->arenas != NULL) {
        gvmi_arena *next = heap->arenas->next;

        if (heap->arenas->fence_recorded && there)
            gvmi_cu->cuEventDestroy(heap->arenas->fence);
        free_arena(heap->arenas);
        heap->arenas = next;
    }
    if (entered)
        gvmi_device_leave();
    free(heap->waits);
    free(heap->events);
    free(heap->plain.segments);
}
