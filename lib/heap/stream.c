/* Streams: an arena for each, and blocks that wait for a stream that is not theirs.
 *
 * Memory that a stream's block leaves is used again by the same stream without waiting: whatever
 * work the stream still has on it comes first. It goes elsewhere only by way of the driver, and
 * before that the stream has to pass a stream mark (chunk.c).
 *
 * A block that is freed on another stream than its own, or that has none, waits PENDING with an
 * event of that stream. Calls that take the lock look at the oldest few.
 */
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "heap/heap.h"
#include "memory/device.h"

#define EVENTS_KEPT 64
#define PAUSE_NS 20000l /* the first, while a stream is waited for */
#define PAUSE_DOUBLINGS 6

/* ---- events: the context must be current, for the default stream and for making them */

static gvm_status event_cache_take(gvm_heap *heap, CUevent *out)
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

/* Did it go with a context that the program has destroyed or reset? Then the driver must not be given it any more. Of events
 * of the device's own context this is asked where that is there. */
static bool is_lost(const gvmi_heap_event *event)
{
    return event->foreign != NULL && gvmi_context_is_gone(event->foreign, event->foreign_id);
}

static void destroy_event(const gvmi_heap_event *event)
{
    if (!is_lost(event))
        gvmi_cu->cuEventDestroy(event->event);
}

static void event_cache_put(gvm_heap *heap, gvmi_heap_event event)
{
    if (heap->events == NULL)
        heap->events = malloc(EVENTS_KEPT * sizeof(CUevent));
    if (event.foreign == NULL && heap->events != NULL && heap->event_count < EVENTS_KEPT)
        heap->events[heap->event_count++] = event.event;
    else
        destroy_event(&event);
}

/* In the stream's own context: an event is recorded on streams of its context alone. */
static CUresult record_in_own_context(CUstream stream, gvmi_heap_event *out)
{
    unsigned long long id = 0;
    CUevent event = NULL;
    CUcontext context;
    CUresult result = gvmi_cu->cuStreamGetCtx(stream, &context);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuCtxPushCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = gvmi_cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventRecord(event, stream);
    if (result == CUDA_SUCCESS) {
        (void)gvmi_cu->cuCtxGetId(context, &id);
        out->event = event;
        out->foreign = context;
        out->foreign_id = id;
    } else if (event != NULL) {
        gvmi_cu->cuEventDestroy(event);
    }
    gvmi_cu->cuCtxPopCurrent(&context);
    return result;
}

/* An event that says when what is on the stream now is done. The stream may be another device's. Of one that is being captured
 * it would be a part of the graph. */
static gvm_status event_record(gvm_heap *heap, CUstream stream, gvmi_heap_event *out)
{
    gvmi_heap_event recorded = {.key = gvmi_stream_key(stream)};
    CUresult result;
    gvm_status status;

    if (gvmi_stream_is_captured(stream))
        return gvmi_stream_fail_captured(stream);
    status = event_cache_take(heap, &recorded.event);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuEventRecord(recorded.event, stream);
    if (result != CUDA_SUCCESS)
        gvmi_cu->cuEventDestroy(recorded.event);
    if (result == CUDA_ERROR_INVALID_HANDLE)
        result = record_in_own_context(stream, &recorded);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuEventRecord", "cannot record an event on stream %p",
                                (void *)stream);
    *out = recorded;
    return GVM_OK;
}

/* Is it done? Where a kernel has broken the context, or that is gone, nothing runs any more. */
static gvmi_passing event_passing(const gvmi_heap_event *event)
{
    const CUresult result = is_lost(event) ? CUDA_SUCCESS : gvmi_cu->cuEventQuery(event->event);

    if (result == CUDA_SUCCESS || gvmi_driver_is_sticky(result))
        return GVMI_PASSED;
    if (result == CUDA_ERROR_NOT_READY)
        return GVMI_BUSY;
    gvmi_driver_fail(result, "cuEventQuery", "cannot tell how far a stream is");
    return GVMI_REFUSED;
}

static void destroy_events(const gvmi_heap_wait *wait)
{
    destroy_event(&wait->event);
    for (size_t i = 0; i < wait->other_count; i++)
        destroy_event(&wait->others[i]);
}

/* ---- arenas */

uint64_t gvmi_stream_key(gvm_stream stream)
{
    const uint64_t handle = gvmi_key(stream);

    if (handle == gvmi_key(CU_STREAM_PER_THREAD)) /* many streams under one name */
        return GVMI_HEAP_PLAIN;
    return handle == gvmi_key(CU_STREAM_LEGACY) ? 0 : handle;
}

/* That of a stream; NULL if there is none. */
static gvmi_arena *find_arena(const gvm_heap *heap, uint64_t key)
{
    gvmi_arena *arena = heap->arenas;

    while (arena != NULL && arena->key != key)
        arena = arena->next;
    return arena;
}

gvm_status gvmi_stream_arena_locked(gvm_heap *heap, uint64_t key, gvmi_arena **out)
{
    gvmi_arena *arena = key == GVMI_HEAP_PLAIN ? &heap->plain : find_arena(heap, key);

    if (arena == NULL) {
        arena = calloc(1, sizeof *arena);
        if (arena == NULL)
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for a stream's list of segments");
        arena->heap = heap;
        arena->key = key;
        arena->next = heap->arenas;
        heap->arenas = arena;
    }
    *out = arena;
    return GVM_OK;
}

/* Asked again: a capture may have begun in between. That of the stream itself then has the event as a part without effect. One
 * of a stream that waits for the legacy stream, where this is that one, is ended by the driver (gvmem/heap.h).
 * Called by the library's thread, too, with the heap's lock held. */
static gvmi_passing record_mark(gvmi_arena *arena)
{
    const CUstream stream = (CUstream)(uintptr_t)arena->key;

    if (event_record(arena->heap, stream, &arena->mark) != GVM_OK)
        return GVMI_REFUSED;
    if (gvmi_stream_is_captured(stream)) {
        destroy_event(&arena->mark);
        (void)gvmi_stream_fail_captured(stream);
        return GVMI_REFUSED;
    }
    arena->marked = arena->heap->idle_number;
    arena->mark_recorded = true;
    return GVMI_BUSY;
}

/* What is recorded, if it is; what has passed, or is of no use, is recorded no more. */
static gvmi_passing look_at_mark(gvmi_arena *arena)
{
    gvmi_passing passing;

    if (!arena->mark_recorded)
        return GVMI_PASSED;
    passing = event_passing(&arena->mark);
    if (passing == GVMI_PASSED)
        arena->passed = arena->marked;
    if (passing == GVMI_BUSY)
        return GVMI_BUSY;
    arena->mark_recorded = false;
    if (passing == GVMI_PASSED)
        event_cache_put(arena->heap, arena->mark);
    else
        destroy_event(&arena->mark);
    return passing;
}

static gvmi_passing pass_mark_locked(gvmi_arena *arena, uint64_t until)
{
    const uint64_t wanted = until != 0 && until < arena->idled ? until : arena->idled;
    gvmi_passing passing = look_at_mark(arena);

    if (passing == GVMI_BUSY && arena->marked < until) { /* of earlier: a newer one covers it */
        event_cache_put(arena->heap, arena->mark);
        arena->mark_recorded = false;
        passing = GVMI_PASSED;
    }
    if (passing != GVMI_PASSED || arena->passed >= wanted)
        return passing;
    passing = record_mark(arena);
    return passing == GVMI_BUSY ? look_at_mark(arena) : passing;
}

/* A reset of the context has ended the work of its streams, and taken the events. */
static gvmi_passing clear_lost_arena(gvmi_arena *arena)
{
    if (!gvmi_device_was_reset(arena->heap->device))
        return GVMI_REFUSED;
    if (arena->mark_recorded && arena->mark.foreign != NULL)
        destroy_event(&arena->mark); /* of another context */
    arena->mark_recorded = false;
    arena->passed = arena->idled;
    return GVMI_PASSED;
}

gvmi_passing gvmi_arena_mark_locked(gvmi_arena *arena, uint64_t until)
{
    gvmi_passing passing;

    if (arena->passed >= arena->idled || (until != 0 && arena->passed >= until))
        return GVMI_PASSED;
    if (gvmi_device_enter(arena->heap->device) != GVM_OK)
        return clear_lost_arena(arena);
    passing = pass_mark_locked(arena, until);
    gvmi_device_leave();
    return passing;
}

static void free_arena(gvmi_arena *arena)
{
    free(arena->segments);
    free(arena);
}

/* ---- blocks that wait */

static gvm_status ring_make_room(gvm_heap *heap)
{
    const size_t capacity = heap->wait_capacity > 0 ? 2 * heap->wait_capacity : 16;
    gvmi_heap_wait *grown;

    if (heap->wait_count < heap->wait_capacity)
        return GVM_OK;
    grown = malloc(capacity * sizeof *grown);
    if (grown == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a block that waits for a stream");
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
    gvmi_heap_wait wait = {.block = block, .since = ++heap->idle_number};
    gvm_status status = ring_make_room(heap);

    if (status == GVM_OK && count > 1) {
        wait.others = malloc((count - 1) * sizeof *wait.others);
        if (wait.others == NULL)
            status = gvm_error_set(GVM_E_NOMEM,
                                   "out of host memory for a block that waits for streams");
    }
    if (status == GVM_OK)
        status = gvmi_device_enter(heap->device);
    if (status != GVM_OK)
        goto fail_free;
    status = event_record(heap, streams[0], &wait.event);
    for (size_t i = 1; i < count && status == GVM_OK; i++) {
        status = event_record(heap, streams[i], &wait.others[wait.other_count]);
        wait.other_count += status == GVM_OK;
    }
    if (status != GVM_OK && wait.event.event != NULL)
        destroy_events(&wait);
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
    const uint64_t bytes = gvmi_block_bytes(wait->block);

    heap->pending_bytes -= bytes;
    heap->order_pending[gvmi_heap_row(bytes)]--;
    free(wait->others);
    gvmi_heap_give_locked(heap, wait->block);
}

/* One that is done is given back. */
static gvmi_passing look_at_wait(gvm_heap *heap, gvmi_heap_wait *wait)
{
    gvmi_passing passing = event_passing(&wait->event);

    while (passing == GVMI_PASSED && wait->other_count > 0) {
        event_cache_put(heap, wait->event);
        wait->event = wait->others[--wait->other_count];
        passing = event_passing(&wait->event);
    }
    if (passing == GVMI_PASSED) {
        event_cache_put(heap, wait->event);
        end_wait(heap, wait);
    }
    return passing;
}

/* The next to be looked at, taken out of the ring. */
static gvmi_heap_wait take_wait(gvm_heap *heap)
{
    const gvmi_heap_wait first = *wait_at(heap, 0);

    heap->wait_first = (heap->wait_first + 1) & (heap->wait_capacity - 1);
    heap->wait_count--;
    return first;
}

/* After a reset of the device's context: its own events went with it, those of streams of other contexts did not. */
static void destroy_foreign_events(const gvmi_heap_wait *wait)
{
    if (wait->event.foreign != NULL)
        destroy_event(&wait->event);
    for (size_t i = 0; i < wait->other_count; i++)
        if (wait->others[i].foreign != NULL)
            destroy_event(&wait->others[i]);
}

/* After a reset of the context nothing is waited for. */
static void clear_lost_waits_locked(gvm_heap *heap)
{
    while (heap->wait_count > 0 && gvmi_device_was_reset(heap->device)) {
        const gvmi_heap_wait first = take_wait(heap);

        destroy_foreign_events(&first);
        end_wait(heap, &first);
    }
}

/* Looks at most at so many of the oldest. True: one that waits since an idle number up to until is not done. */
static bool poll_locked(gvm_heap *heap, size_t most, uint64_t until)
{
    size_t looked = gvmi_min(heap->wait_count, most);
    bool busy = false;
    gvm_error error;

    if (looked == 0)
        return false;
    error = gvmi_error_save();
    if (gvmi_device_enter(heap->device) != GVM_OK) {
        clear_lost_waits_locked(heap);
        gvm_error_restore(&error);
        return false;
    }
    /* One that is not done goes to the end of the ring, so that it does not hide those of other
     * streams behind it. */
    for (; looked > 0; looked--) {
        gvmi_heap_wait first = take_wait(heap);
        const gvmi_passing passing = look_at_wait(heap, &first);

        if (passing != GVMI_PASSED)
            *wait_at(heap, heap->wait_count++) = first;
        busy = busy || (passing == GVMI_BUSY && first.since <= until);
    }
    gvmi_device_leave();
    gvm_error_restore(&error);
    return busy;
}

void gvmi_heap_poll_locked(gvm_heap *heap)
{
    (void)poll_locked(heap, GVMI_HEAP_PENDING_POLLS, 0);
}

/* ---- waiting */

static bool is_busy_locked(gvm_heap *heap, uint64_t until)
{
    bool busy = poll_locked(heap, SIZE_MAX, until);

    for (gvmi_arena *arena = heap->arenas; arena != NULL; arena = arena->next)
        if (gvmi_arena_has_idle(arena) && gvmi_arena_mark_locked(arena, until) == GVMI_BUSY)
            busy = true;
    return busy;
}

/* Longer each time, up to a millisecond. */
static void pause_unlocked(gvm_heap *heap, unsigned *waits)
{
    const struct timespec pause = {0, PAUSE_NS
                                          << (*waits < PAUSE_DOUBLINGS ? *waits : PAUSE_DOUBLINGS)};

    (*waits)++;
    gvmi_unlock(&heap->lock);
    nanosleep(&pause, NULL);
    gvmi_lock(&heap->lock);
}

bool gvmi_heap_await_streams(gvm_heap *heap, int64_t until_ns)
{
    const gvm_error error = gvmi_error_save();
    const uint64_t until = heap->idle_number;
    unsigned waits = 0;
    bool busy;

    while ((busy = is_busy_locked(heap, until)) && gvmi_now_ns() < until_ns)
        pause_unlocked(heap, &waits);
    gvm_error_restore(&error);
    return !busy;
}

void gvmi_heap_await_pending_locked(gvm_heap *heap)
{
    unsigned waits = 0;

    while (poll_locked(heap, SIZE_MAX, UINT64_MAX))
        pause_unlocked(heap, &waits);
}

/* Has the block an event of the stream that has not passed? */
static bool waits_for(const gvmi_heap_wait *wait, uint64_t key)
{
    bool busy = wait->event.key == key && event_passing(&wait->event) == GVMI_BUSY;

    for (size_t i = 0; i < wait->other_count && !busy; i++)
        busy = wait->others[i].key == key && event_passing(&wait->others[i]) == GVMI_BUSY;
    return busy;
}

/* Has a stream work still that blocks wait for since an idle number up to until? Gives back those that need not wait any more. */
static bool is_waited_for_locked(gvm_heap *heap, uint64_t key, uint64_t until)
{
    const gvm_error error = gvmi_error_save();
    bool busy = false;

    (void)poll_locked(heap, SIZE_MAX, until);
    if (heap->wait_count > 0 && gvmi_device_enter(heap->device) == GVM_OK) {
        for (size_t i = 0; i < heap->wait_count && !busy; i++)
            busy = wait_at(heap, i)->since <= until && waits_for(wait_at(heap, i), key);
        gvmi_device_leave();
    }
    gvm_error_restore(&error);
    return busy;
}

/* Another thread may have recorded one while the stream was waited for. */
static void end_mark(const gvmi_arena *arena)
{
    bool entered;

    if (!arena->mark_recorded)
        return;
    if (gvmi_device_enter_to_free(arena->heap->device, &entered) || arena->mark.foreign != NULL)
        destroy_event(&arena->mark);
    if (entered)
        gvmi_device_leave();
}

static gvm_status end_arena_locked(gvmi_arena *arena)
{
    gvm_heap *heap = arena->heap;
    gvmi_arena **link = &heap->arenas;
    gvm_status status = gvmi_arena_make_room_locked(&heap->plain, arena->count);

    if (status != GVM_OK)
        return status;
    gvmi_shelves_own_locked(heap);
    gvmi_shelves_end_locked(heap, arena);
    for (size_t i = 0; i < arena->count; i++)
        gvmi_arena_add_locked(&heap->plain, arena->segments[i]);
    gvmi_slabs_move_locked(&heap->plain, arena);
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    end_mark(arena);
    free_arena(arena);
    gvmi_shelves_leave_locked(heap);
    return GVM_OK;
}

gvm_status gvmi_heap_end_stream(gvm_heap *heap, uint64_t key, int64_t until_ns)
{
    const uint64_t until = ++heap->idle_number; /* blocks that are still live, too, wait for the stream */
    gvmi_passing passing;
    unsigned waits = 0;
    gvmi_arena *arena;

    for (;; pause_unlocked(heap, &waits)) {
        passing = GVMI_PASSED;
        arena = find_arena(heap, key); /* NULL: it has none, or another thread has ended it */
        if (arena != NULL) {
            arena->idled = gvmi_max(arena->idled, until);
            passing = gvmi_arena_mark_locked(arena, until);
        }
        if (passing == GVMI_REFUSED)
            return gvmi_error_save().status;
        if (passing == GVMI_PASSED && !is_waited_for_locked(heap, key, until))
            return arena != NULL ? end_arena_locked(arena) : GVM_OK;
        if (gvmi_now_ns() >= until_ns)
            return gvm_error_set(GVM_E_TIMEOUT, "the stream has work still");
    }
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

        if (heap->arenas->mark_recorded && (there || heap->arenas->mark.foreign != NULL))
            destroy_event(&heap->arenas->mark);
        free_arena(heap->arenas);
        heap->arenas = next;
    }
    if (entered)
        gvmi_device_leave();
    free(heap->waits);
    free(heap->events);
    heap->wait_count = heap->event_count = 0;
}
