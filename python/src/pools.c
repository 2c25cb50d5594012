/* Pools of a device, their blocks and what is counted of them; see pools.h. It calls the public C API alone, and no Python. */
#include "pools.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pools_state.h"
#include "pools_trace.h"
#include "wait.h"

_Static_assert((int)POOLS_NO_SPACE == (int)GVM_E_NOSPACE, "one number has one meaning");

#define BUCKET_BITS 16
#define SMALL_BYTES (1u << 20)
#define COUNTED_BYTES 512u                    /* what PyTorch rounds to */
#define LEGACY ((gvm_stream)(uintptr_t)1)     /* CU_STREAM_LEGACY; also NULL */
#define PER_THREAD ((gvm_stream)(uintptr_t)2) /* CU_STREAM_PER_THREAD */
#define PER_THREAD_TEXT \
    "the per-thread default stream is another one in each thread: use streams that the program makes"
#define UNKNOWN_CAPTURE UINT64_MAX
#define STREAM_END_MS \
    1 /* a GPU needs a few microseconds to pass an event on a stream without work */
#define LARGEST_BYTES (32ull << 40) /* that a heap can be asked for */

typedef struct block {
    struct block *next;
    struct block *next_capture;
    void *address;
    uint64_t bytes;
    pool *of;
    gvm_heap *heap;
    gvm_stream stream;
    uint64_t capture_id; /* that its free waits for */
    gvm_stream captured; /* by it */
    bool is_unordered;   /* its stream may be gone; see is_of_no_stream() */
    size_t used_count;   /* streams besides its own */
    gvm_stream *used;
} block;

pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER; /* for all that follows */
device_state pools_devices[DEVICES_MAX];
static block *buckets[1u << BUCKET_BITS];
static block *late; /* frees that wait for the end of a capture: of each capture one, by next_capture; behind it the others, by next */
static pthread_mutex_t limit_locks[DEVICES_MAX]; /* see alloc_in_share(); taken before the lock */
static pools_options chosen = {.limit_bytes = 0};
static atomic_size_t late_count; /* of captures; looked at without the lock */
static atomic_bool is_child;

/* In a child by fork(). A process that has used no GPU leaves nothing that must not be used. */
static void forget_all(void)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (pools_devices[i].device != NULL)
            atomic_store(&is_child, true);
    pthread_mutex_init(&pools_lock, NULL); /* its owner may be a thread that is not here */
    pools_trace_forget();
}

__attribute__((constructor)) static void prepare(void)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        pthread_mutex_init(&limit_locks[i], NULL);
    (void)pthread_atfork(NULL, NULL, forget_all);
}

static const char *last_error(void)
{
    static _Thread_local gvm_error error;

    gvm_error_last(&error);
    return error.text;
}

/* ---- devices and heaps */

gvm_status pools_check_device(int device)
{
    if (atomic_load_explicit(&is_child, memory_order_relaxed))
        return gvm_error_set(GVM_E_FOREIGN,
                             "a process made by fork() cannot use its parent's memory of the GPU");
    return device >= 0 && device < DEVICES_MAX
               ? GVM_OK
               : gvm_error_set(GVM_E_NODEVICE, "there is no GPU %d", device);
}

static uint64_t chosen_limit(void)
{
    if (chosen.limit_bytes == 0)
        return GVM_BYTES_UNLIMITED;
    return chosen.limit_bytes == GVM_BYTES_NONE ? 0 : chosen.limit_bytes;
}

gvm_status pools_open_device_locked(int ordinal)
{
    device_state *d = &pools_devices[ordinal];
    gvm_device *device;
    gvm_status status;

    if (d->device != NULL)
        return GVM_OK;
    status = gvm_device_open(ordinal, &device);
    if (status != GVM_OK)
        return status;
    d->limit_bytes = chosen_limit();
    d->first.device = ordinal;
    d->first.users = 1;
    d->device = device;
    return GVM_OK;
}

static gvm_status grant_heap(gvm_heap *heap, int peer)
{
    gvm_device *device;
    gvm_status status;

    if (heap == NULL)
        return GVM_OK;
    status = gvm_device_open(peer, &device);
    if (status != GVM_OK)
        return status;
    status = gvm_heap_grant(heap, device, GVM_ACCESS_READWRITE);
    gvm_device_close(device); /* the heap keeps it open */
    return status;
}

static void let_limit_go(gvm_heap *heap, int begins, void *arg);

static gvm_status make_heap_locked(device_state *d, bool captured, gvm_heap **heap)
{
    gvm_heap_options options = gvm_heap_options_init();
    gvm_status status;

    options.limit_bytes = d->limit_bytes == 0 ? GVM_BYTES_NONE : d->limit_bytes;
    options.waits = let_limit_go;
    options.waits_arg = d;
    if (captured) {
        options.flags = GVM_HEAP_KEEP;
    } else {
        options.keep_bytes = chosen.keep_bytes;
        options.decay_ms = chosen.decay_ms;
    }
    status = gvm_heap_create(d->device, &options, heap);
    for (int peer = 0; status == GVM_OK && peer < DEVICES_MAX; peer++)
        if (d->granted[peer])
            (void)grant_heap(*heap, peer); /* they could reach each other when it was granted */
    return status;
}

/* ---- the limit: of all heaps of a device together, while there are several */

static uint64_t held_by(gvm_heap *heap)
{
    gvm_heap_info info = {.struct_size = sizeof info};

    return heap != NULL && gvm_heap_get_info(heap, &info) == GVM_OK ? info.committed_bytes : 0;
}

static uint64_t held_by_pool(const pool *p, const gvm_heap *except)
{
    return (p->heap == except ? 0 : held_by(p->heap)) +
           (p->captured == except ? 0 : held_by(p->captured));
}

static gvm_status share_limit_locked(device_state *d, gvm_heap *heap)
{
    const bool several = d->others != NULL || d->first.captured != NULL;
    uint64_t others;

    if (d->limit_bytes == GVM_BYTES_UNLIMITED || (!several && !d->limit_is_shared))
        return GVM_OK;
    d->limit_is_shared = several;
    others = held_by_pool(&d->first, heap);
    for (const pool *p = d->others; p != NULL; p = p->next)
        others += held_by_pool(p, heap);
    return gvm_heap_set_limit(heap, d->limit_bytes > others ? d->limit_bytes - others : 0);
}

/* ---- blocks by address */

static block **bucket_of(const void *address)
{
    const uint64_t grain = (uint64_t)(uintptr_t)address / 256; /* what all blocks begin at multiples of */

    return &buckets[(grain * 0x9E3779B97F4A7C15ull) >> (64 - BUCKET_BITS)];
}

/* The link to a block; to NULL if there is none. */
static block **find_block_locked(const void *address)
{
    block **link = bucket_of(address);

    while (*link != NULL && (*link)->address != address)
        link = &(*link)->next;
    return link;
}

static gvm_status unknown_block(const void *address)
{
    return gvm_error_set(GVM_E_FOREIGN, "%p is not the start of a block that a pool has given",
                         address);
}

/* What is taken in a capture is its stream's in any case. */
static bool is_of_no_stream(const block *b)
{
    return b->is_unordered && b->heap != b->of->captured;
}

static void free_block_record(block *b)
{
    free(b->used);
    free(b);
}

/* ---- counting */

static void add(pool_count *count, int64_t n)
{
    count->current += n;
    if (n > 0)
        count->allocated += n;
    else
        count->freed -= n;
    if (count->current > count->peak)
        count->peak = count->current;
}

static void count_block_locked(device_state *d, uint64_t bytes, int sign)
{
    const int sizes[] = {POOLS_ALL, bytes <= SMALL_BYTES ? POOLS_SMALL : POOLS_LARGE};
    const uint64_t counted = (bytes + COUNTED_BYTES - 1) / COUNTED_BYTES * COUNTED_BYTES;

    for (int i = 0; i < 2; i++) {
        add(&d->counted.blocks[sizes[i]], sign);
        add(&d->counted.bytes[sizes[i]], sign * (int64_t)counted);
        add(&d->counted.requested_bytes[sizes[i]], sign * (int64_t)bytes);
    }
}

static void note_block(device_state *d, block *b, gvm_status status)
{
    block **link;

    pthread_mutex_lock(&pools_lock);
    if (status == GVM_OK) {
        link = bucket_of(b->address);
        b->next = *link;
        *link = b;
        count_block_locked(d, b->bytes, 1);
    } else {
        b->of->blocks--;
        d->counted.failures += status == GVM_E_NOSPACE;
    }
    pthread_mutex_unlock(&pools_lock);
}

/* ---- captures */

/* The legacy stream, which most programs use, cannot be captured. */
static gvm_status find_capture(int device, gvm_stream stream, uint64_t *id)
{
    *id = 0;
    return stream == NULL || stream == LEGACY
               ? GVM_OK
               : gvm_device_get_capture(pools_devices[device].device, stream, id);
}

static bool is_captured(block *b, gvm_stream stream)
{
    const gvm_status status = find_capture(b->of->device, stream, &b->capture_id);

    if (status != GVM_OK && status != GVM_E_LOST) /* in a context that is lost nothing is captured */
        b->capture_id = UNKNOWN_CAPTURE;
    b->captured = stream;
    return b->capture_id != 0;
}

/* Whether an event of one of the streams that have used it would be part of a graph; or of a captured block, that it may be: then
 * they may be part of the capture, too, and their order with what it takes later is not known. It is noted which stream. One that
 * may be gone is not asked: work that was freed with it is named by the free. */
static bool is_used_in_capture(block *b)
{
    if (b->used_count > 0 && b->heap == b->of->captured && !b->is_unordered && is_captured(b, b->stream))
        return true;
    for (size_t i = 0; i < b->used_count; i++)
        if (is_captured(b, b->used[i]))
            return true;
    return false;
}

static bool has_ended(const block *b)
{
    gvm_status status;
    uint64_t id;

    if (b->capture_id == 0) /* its free failed after the end */
        return true;
    status = find_capture(b->of->device, b->captured, &id);
    return status == GVM_E_LOST || (status == GVM_OK && id != b->capture_id);
}

/* ---- giving back */

static gvm_status free_after_all_work(const block *b)
{
    gvm_device *device = pools_devices[b->of->device].device;
    const gvm_status status = device_wait(device);

    /* In a context that is lost nothing runs. */
    return status == GVM_OK || status == GVM_E_LOST ? gvm_heap_free(b->heap, b->address) : status;
}

static gvm_status free_in_heap(block *b)
{
    /* When the capture has ended its streams may be gone. What was taken in it stays the graph's. */
    if (b->is_unordered && is_used_in_capture(b))
        return is_of_no_stream(b) ? free_after_all_work(b) : GVM_OK;
    if (b->used_count > 0) {
        const gvm_status status = gvm_heap_free_after(b->heap, b->address, b->used, b->used_count);

        return status == GVM_E_LOST ? free_after_all_work(b) : status;
    }
    if (is_of_no_stream(b))
        return free_after_all_work(b);
    /* One of a stream stays that stream's. In a capture nothing may be recorded. */
    return b->heap == b->of->captured ? gvm_heap_free(b->heap, b->address)
                                      : gvm_heap_free_async(b->heap, b->address, b->stream);
}

static void add_late(block *b)
{
    block *first;

    pthread_mutex_lock(&pools_lock);
    for (first = late; first != NULL &&
                       (first->capture_id != b->capture_id || first->of->device != b->of->device);)
        first = first->next_capture;
    if (first != NULL) {
        b->next = first->next;
        first->next = b;
    } else {
        b->next = NULL;
        b->next_capture = late;
        late = b;
        atomic_fetch_add(&late_count, 1);
    }
    pthread_mutex_unlock(&pools_lock);
}

/* A block that is no longer in the table. Where that fails it is there again, and the caller's; one that is late, whose free has
 * succeeded, stays late. */
static gvm_status give(block *b, bool is_late)
{
    const int device = b->of->device;
    gvm_status status;
    bool last;

    if (!b->is_unordered && is_used_in_capture(b)) {
        add_late(b);
        return GVM_OK;
    }
    status = free_in_heap(b);
    if (status != GVM_OK && is_late) {
        add_late(b);
        return status;
    }
    if (status != GVM_OK) {
        note_block(&pools_devices[device], b, GVM_OK);
        pools_trace_event('a', b->address, b->bytes, b->stream);
        return status;
    }
    pthread_mutex_lock(&pools_lock);
    last = --b->of->blocks == 0 && b->of->users == 0;
    pthread_mutex_unlock(&pools_lock);
    free_block_record(b);
    if (last)
        pools_reap(device);
    return status;
}

/* Those whose captures have ended. The driver is asked once a capture. */
void pools_give_late(void)
{
    block *ended = NULL, **end = &ended;

    if (atomic_load_explicit(&late_count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&pools_lock);
    for (block **link = &late; *link != NULL;) {
        if (!has_ended(*link)) {
            link = &(*link)->next_capture;
            continue;
        }
        *end = *link;
        *link = (*link)->next_capture;
        atomic_fetch_sub(&late_count, 1);
        while (*end != NULL)
            end = &(*end)->next;
    }
    pthread_mutex_unlock(&pools_lock);
    while (ended != NULL) {
        block *next = ended->next;

        (void)give(ended, true);
        ended = next;
    }
}

/* ---- calls */

/* The heap that a request is served from; its pool has one more block then, so that it stays. limited: its device has a limit. */
static gvm_status find_heap(int device, gvm_stream stream, block *b, bool *limited)
{
    device_state *d = &pools_devices[device];
    gvm_status status;
    uint64_t capture_id;
    gvm_heap **heap;

    pthread_mutex_lock(&pools_lock);
    status = pools_open_device_locked(device);
    if (status == GVM_OK)
        status = find_capture(device, stream, &capture_id);
    if (status != GVM_OK)
        goto end;
    b->of = pools_choose_locked(d, stream, capture_id);
    if (b->of == NULL) {
        status = GVM_E_NOMEM;
        goto end;
    }
    heap = capture_id != 0 ? &b->of->captured : &b->of->heap;
    if (*heap == NULL)
        status = make_heap_locked(d, capture_id != 0, heap);
    *limited = d->limit_bytes != GVM_BYTES_UNLIMITED;
    b->heap = *heap;
    b->of->blocks += status == GVM_OK;

end:
    pthread_mutex_unlock(&pools_lock);
    return status;
}

static gvm_status alloc_in_heap(block *b)
{
    if (b->bytes > LARGEST_BYTES)
        return gvm_error_set(GVM_E_NOSPACE, "no block has more than 32 TiB");
    return is_of_no_stream(b)
               ? gvm_heap_alloc_tagged(b->heap, b->bytes, "pool", &b->address)
               : gvm_heap_alloc_async(b->heap, b->bytes, "pool", b->stream, &b->address);
}

static gvm_status trim_heap(const pool *p, gvm_heap *heap, void *arg)
{
    (void)p;
    (void)arg;
    return gvm_heap_trim(heap, 0);
}

static gvm_status share_limit(device_state *d, gvm_heap *heap, bool *several)
{
    gvm_status status;

    pthread_mutex_lock(&pools_lock);
    status = share_limit_locked(d, heap);
    *several = d->limit_is_shared;
    pthread_mutex_unlock(&pools_lock);
    return status;
}

static _Thread_local bool has_limit; /* the thread holds the lock of a limit, and makes a request of a heap */

/* While a request waits others may have theirs, of this heap or another one; what they have taken is missing from its share then. */
static void let_limit_go(gvm_heap *heap, int begins, void *arg)
{
    device_state *d = arg;
    pthread_mutex_t *lock = &limit_locks[d - pools_devices];
    gvm_status status;
    bool several;

    if (!has_limit)
        return;
    if (begins) {
        pthread_mutex_unlock(lock);
        return;
    }
    pthread_mutex_lock(lock);
    status = share_limit(d, heap, &several);
    (void)status; /* the heap is there */
}

/* What a heap may have depends on what others have, until it has it: one request of a device at a time. */
static gvm_status alloc_in_share(device_state *d, block *b, bool *several)
{
    pthread_mutex_t *lock = &limit_locks[d - pools_devices];
    gvm_status status;

    pthread_mutex_lock(lock);
    has_limit = true;
    status = share_limit(d, b->heap, several);
    if (status == GVM_OK)
        status = alloc_in_heap(b);
    has_limit = false;
    pthread_mutex_unlock(lock);
    return status;
}

/* What others have idle is given back when it is missing; not in a capture, which no wait may come into. */
static gvm_status alloc_within_limit(int device, block *b)
{
    device_state *d = &pools_devices[device];
    bool several;
    gvm_status status = alloc_in_share(d, b, &several);

    if (status != GVM_E_NOSPACE || !several || b->heap == b->of->captured)
        return status;
    status = pools_for_heaps(device, (pool_id){0, 0}, false, trim_heap, NULL);
    return status == GVM_OK ? alloc_in_share(d, b, &several) : status;
}

static int alloc_block(int device, uint64_t bytes, void *stream, bool is_unordered, void **out)
{
    gvm_status status = pools_check_device(device);
    bool limited;
    block *b;

    *out = NULL;
    if (status != GVM_OK || bytes == 0)
        return (int)status;
    if ((gvm_stream)stream == PER_THREAD)
        return (int)gvm_error_set(GVM_E_NOTSUP, PER_THREAD_TEXT);
    pools_give_late();
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return (int)gvm_error_set(GVM_E_NOMEM, "out of host memory for a block's record");
    b->bytes = bytes;
    b->stream = (gvm_stream)stream;
    b->is_unordered = is_unordered;
    status = find_heap(device, b->stream, b, &limited);
    if (status == GVM_OK) {
        status = limited ? alloc_within_limit(device, b) : alloc_in_heap(b);
        note_block(&pools_devices[device], b, status);
    }
    if (status != GVM_OK) {
        free(b);
        return (int)status;
    }
    *out = b->address;
    pools_trace_event('a', *out, bytes, stream);
    return 0;
}

static int pool_alloc(int device, uint64_t bytes, void *stream, void **out)
{
    return alloc_block(device, bytes, stream, false, out);
}

int pools_alloc_unordered(int device, uint64_t bytes, void *stream, void **out)
{
    return alloc_block(device, bytes, stream, true, out);
}

static int pool_free(void *address)
{
    block **link, *b;

    if (address == NULL || atomic_load_explicit(&is_child, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&pools_lock);
    link = find_block_locked(address);
    b = *link;
    if (b != NULL) {
        *link = b->next;
        count_block_locked(&pools_devices[b->of->device], b->bytes, -1);
        /* Before it is free: then another thread may be given it, and its line must come later. */
        pools_trace_event('f', address, b->bytes, b->stream);
    }
    pthread_mutex_unlock(&pools_lock);
    if (b == NULL)
        return (int)unknown_block(address);
    pools_give_late();
    return (int)give(b, false);
}

static gvm_status add_use_locked(block *b, gvm_stream stream)
{
    gvm_stream *grown;

    for (size_t i = 0; i < b->used_count; i++)
        if (b->used[i] == stream)
            return GVM_OK;
    if (stream == b->stream && !is_of_no_stream(b))
        return GVM_OK;
    if (stream == PER_THREAD)
        return gvm_error_set(GVM_E_NOTSUP, PER_THREAD_TEXT);
    grown = realloc(b->used, (b->used_count + 1) * sizeof *grown);
    if (grown == NULL)
        return gvm_error_set(GVM_E_NOMEM,
                             "out of host memory: it is not noted that a stream uses a block");
    b->used = grown;
    b->used[b->used_count++] = stream;
    return GVM_OK;
}

static int pool_use_on(void *address, void *stream)
{
    gvm_status status;
    block *b;

    if (address == NULL || atomic_load_explicit(&is_child, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&pools_lock);
    b = *find_block_locked(address);
    status = b != NULL ? add_use_locked(b, (gvm_stream)stream) : unknown_block(address);
    pthread_mutex_unlock(&pools_lock);
    return (int)status;
}

static int pool_find(void *address, pool_block *out)
{
    const block *b;

    pthread_mutex_lock(&pools_lock);
    b = *find_block_locked(address);
    if (b != NULL)
        *out = (pool_block){.address = b->address,
                            .stream = b->stream,
                            .requested_bytes = b->bytes,
                            .device = b->of->device,
                            .pool = b->of->id};
    pthread_mutex_unlock(&pools_lock);
    return b != NULL ? 0 : (int)unknown_block(address);
}

/* ---- all heaps */

static int pool_trim(int device, pool_id id)
{
    const int end = device < 0 ? DEVICES_MAX : device + 1;
    gvm_status status = pools_check_device(device < 0 ? 0 : device);

    if (status == GVM_OK)
        pools_give_late();
    for (int i = device < 0 ? 0 : device; i < end && status == GVM_OK; i++)
        if (pools_devices[i].device != NULL) {
            pools_reap(i);
            status = pools_for_heaps(i, id, false, trim_heap, NULL);
        }
    return (int)status;
}

static gvm_status end_stream(const pool *p, gvm_heap *heap, void *stream)
{
    (void)p;
    return gvm_heap_stream_end_within(heap, (gvm_stream)stream, STREAM_END_MS);
}

int pools_stream_end(void *stream)
{
    gvm_status status = pools_check_device(0);

    for (int i = 0; i < DEVICES_MAX && status == GVM_OK; i++)
        if (pools_devices[i].device != NULL)
            status = pools_for_heaps(i, (pool_id){0, 0}, true, end_stream, stream);
    return (int)status;
}

static gvm_status limit_heap(const pool *p, gvm_heap *heap, void *arg)
{
    (void)p;
    return gvm_heap_set_limit(heap, *(const uint64_t *)arg);
}

static int pool_set_limit(int device, uint64_t bytes)
{
    gvm_status status = pools_check_device(device);

    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    status = pools_open_device_locked(device);
    bytes = bytes < chosen_limit() ? bytes : chosen_limit();
    if (status == GVM_OK)
        pools_devices[device].limit_bytes = bytes;
    pthread_mutex_unlock(&pools_lock);
    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&limit_locks[device]);
    status = pools_for_heaps(device, (pool_id){0, 0}, true, limit_heap, &bytes);
    pthread_mutex_unlock(&limit_locks[device]);
    return (int)status;
}

static gvm_status grant_one(const pool *p, gvm_heap *heap, void *arg)
{
    (void)p;
    return grant_heap(heap, *(const int *)arg);
}

static int pool_grant(int device, int peer)
{
    gvm_status status = pools_check_device(device);
    bool before;

    if (status == GVM_OK)
        status = pools_check_device(peer);
    if (status != GVM_OK || device == peer)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    status = pools_open_device_locked(device);
    before = pools_devices[device].granted[peer];
    pools_devices[device].granted[peer] = before || status == GVM_OK;
    pthread_mutex_unlock(&pools_lock);
    if (status == GVM_OK)
        status = pools_for_heaps(device, (pool_id){0, 0}, true, grant_one, &peer);
    if (status != GVM_OK) {
        pthread_mutex_lock(&pools_lock);
        pools_devices[device].granted[peer] = before;
        pthread_mutex_unlock(&pools_lock);
    }
    return (int)status;
}

void pools_choose(const pools_options *options)
{
    pthread_mutex_lock(&pools_lock);
    if (options->limit_bytes != 0)
        chosen.limit_bytes = options->limit_bytes;
    if (options->keep_bytes != 0 || options->decay_ms != 0) { /* one of them decides */
        chosen.keep_bytes = options->keep_bytes;
        chosen.decay_ms = options->decay_ms == POOLS_DECAY_NONE ? 0 : options->decay_ms;
    }
    pthread_mutex_unlock(&pools_lock);
}

const pool_calls pools = {
    .struct_bytes = sizeof(pool_calls),
    .error = last_error,
    .alloc = pool_alloc,
    .free = pool_free,
    .use = pool_use_on,
    .find = pool_find,
    .begin = pools_begin,
    .end = pools_end,
    .retain = pools_retain,
    .release = pools_release,
    .users = pools_users,
    .trim = pool_trim,
    .set_limit = pool_set_limit,
    .grant = pool_grant,
    .stats = pools_stats_of,
    .reset_peaks = pools_reset_peaks,
    .reset_counts = pools_reset_counts,
    .walk = pools_walk,
};
