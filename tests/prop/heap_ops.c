/* Random calls on one heap from several threads, checked against a shadow of it.
 *
 *     heap_ops [COUNT [SEED]]
 *
 * Goal: whatever the order of calls, in whatever threads, no two live blocks share a byte, every
 * block begins where it was asked to, has memory and keeps what was written to it, sizes and statistics are what the calls made
 * them, gvm_heap_check() holds while threads go on, nothing is left at the end, and no driver call
 * breaks its contract.
 *
 * Method: a thread that has a block writes its number into the shadow (tests/lib/shadow.h); what is taken already is
 * an overlap. Two thirds of the blocks are small, of all sizes of cells; an eighth is aligned. Each thread keeps a list of
 * its blocks, and passes some on to be freed by others. The
 * device is small and the heap has a limit, so that memory runs out, and a callback that frees.
 * Threads come and go between rounds; between rounds, too, statistics are compared exactly. What
 * threads do depends on the seed alone, how they meet does not. The thread that gives memory back by time runs beside
 * them, and now and then somebody else is short of memory.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "base/size.h"
#include "driver/driver.h"
#include "memory/device.h"
#include "memory/idle.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/shadow.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#define COUNT_DEFAULT 1000000
#define COUNT_MAX 10000000000ull
#define THREADS 8
#define ROUNDS 10
#define STREAMS 3
#define BLOCKS_MAX 100   /* that a thread has */
#define BOXES 64         /* blocks on their way from thread to thread */
#define CHECK_EVERY 4000 /* operations of a thread */
#define TOUCH_EVERY 16   /* blocks that are written and read */
#define LIMIT_BYTES (320 * MIB)
#define SMALL_BYTES (14 * KIB) /* such blocks share units */
#define ALIGNMENT_SHIFT_MAX 21
#define RUN_LIMIT_S 1200

static gvm_device *device;
static gvm_heap *heap;
static CUstream streams[STREAMS];
static shadow used;
static atomic_bool failed;
static char problem[400];
static pthread_mutex_t problem_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct piece {
    uint64_t address, bytes, mark; /* mark: written at its start and end; 0: nothing */
    int stream;                    /* -1: none */
    bool shares;                   /* its units, with other small ones */
} piece;

typedef struct worker {
    pthread_t thread;
    uint64_t random, count;
    uint8_t number;
    unsigned held;
    piece pieces[BLOCKS_MAX];
    uint64_t allocs, refused, resized;
} worker;

static piece boxes[BOXES];
static unsigned box_count;
static pthread_mutex_t box_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local worker *me;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
    va_list args;

    pthread_mutex_lock(&problem_lock);
    if (!atomic_exchange(&failed, true)) {
        va_start(args, format);
        vsnprintf(problem, sizeof problem, format, args);
        va_end(args);
    }
    pthread_mutex_unlock(&problem_lock);
}

static void fail_call(const char *what, gvm_status status)
{
    gvm_error error;

    gvm_error_last(&error);
    fail("%s returned %s: %s", what, gvm_status_name(status), error.text);
}

static uint64_t below(worker *w, uint64_t end)
{
    return random_next(&w->random) % end;
}

/* ---- the shadow */

static void claim(uint64_t address, uint64_t bytes, bool shares, uint8_t number)
{
    if (!shadow_claim(&used, address, bytes, shares, number))
        fail("some of %llu bytes at %#llx are in another block already", (unsigned long long)bytes,
             (unsigned long long)address);
}

static void unclaim(uint64_t address, uint64_t bytes, bool shares)
{
    if (!shadow_give(&used, address, bytes, shares))
        fail("some of %llu bytes at %#llx were free in the shadow", (unsigned long long)bytes,
             (unsigned long long)address);
}

/* ---- contents: words at both ends, written and read in the order of the block's stream */

static CUresult copy_words(const piece *p, uint64_t words[2], bool in)
{
    const CUstream stream = p->stream >= 0 ? streams[p->stream] : device->stream;
    const uint64_t at[2] = {p->address, p->address + p->bytes - 8};
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
        result = in ? gvmi_cu->cuMemcpyHtoDAsync(at[i], &words[i], 8, stream)
                    : gvmi_cu->cuMemcpyDtoHAsync(&words[i], at[i], 8, stream);
    return result == CUDA_SUCCESS ? gvmi_cu->cuStreamSynchronize(stream) : result;
}

static void write_marks(piece *p, uint64_t mark)
{
    uint64_t words[2] = {mark, mark};

    p->mark = mark;
    if (copy_words(p, words, true) != CUDA_SUCCESS)
        fail("the block of %llu bytes at %#llx cannot be written", (unsigned long long)p->bytes,
             (unsigned long long)p->address);
}

static void read_marks(const piece *p)
{
    uint64_t words[2] = {0, 0};

    if (p->mark == 0)
        return;
    if (copy_words(p, words, false) != CUDA_SUCCESS || words[0] != p->mark || words[1] != p->mark)
        fail("the block of %llu bytes at %#llx does not hold what was written",
             (unsigned long long)p->bytes, (unsigned long long)p->address);
}

/* ---- operations */

static uint64_t random_bytes(worker *w)
{
    const uint64_t kind = below(w, 1000);

    if (kind < 650)
        return 1 + below(w, 1ull << (6 + below(w, 9)));
    if (kind < 750)
        return 1 + below(w, 64 * KIB);
    if (kind < 900)
        return 1 + below(w, MIB);
    if (kind < 990)
        return 1 + below(w, 12 * MIB);
    if (kind < 999)
        return 1 + below(w, 60 * MIB);
    return 1 + below(w, 700 * MIB);
}

static void free_piece(worker *w, const piece *p, bool other_stream)
{
    void *ptr = (void *)(uintptr_t)p->address;
    gvm_status status;

    read_marks(p);
    unclaim(p->address, p->bytes, p->shares);
    if (other_stream || (p->stream >= 0 && below(w, 8) != 0))
        status = gvm_heap_free_async(heap, ptr,
                                     streams[other_stream ? (int)below(w, STREAMS) : p->stream]);
    else
        status = gvm_heap_free(heap, ptr);
    if (status != GVM_OK)
        fail_call("free", status);
}

static void drop(worker *w, unsigned index, bool other_stream)
{
    const piece gone = w->pieces[index];

    w->pieces[index] = w->pieces[--w->held];
    free_piece(w, &gone, other_stream);
}

/* The callback: the thread frees a block of its own, if it has one to spare. */
static int exhausted(gvm_heap *which, uint64_t wanted_bytes, void *arg)
{
    (void)arg;
    if (which != heap || wanted_bytes == 0)
        fail("the callback was called for nothing");
    if (me == NULL || me->held < BLOCKS_MAX / 2 || below(me, 2) == 0)
        return 0;
    drop(me, (unsigned)below(me, me->held), false);
    return 1;
}

static gvm_status alloc_aligned(const piece *p, uint64_t alignment, void **out)
{
    return p->stream >= 0
               ? gvm_heap_alloc_aligned_async(heap, p->bytes, alignment, "a", streams[p->stream], out)
               : gvm_heap_alloc_aligned(heap, p->bytes, alignment, "a", out);
}

static void do_alloc(worker *w)
{
    piece p = {.bytes = random_bytes(w), .stream = (int)below(w, 2 * STREAMS) - STREAMS};
    uint64_t alignment = p.bytes > SMALL_BYTES ? GVM_HEAP_UNIT_BYTES : 256;
    void *ptr = NULL;
    size_t size = 0;
    gvm_status status;

    if (p.stream < 0)
        p.stream = -1;
    p.shares = p.bytes <= SMALL_BYTES;
    if (below(w, 8) == 0)
        status = alloc_aligned(&p, alignment = 1ull << below(w, ALIGNMENT_SHIFT_MAX + 1), &ptr);
    else
        status = p.stream >= 0 ? gvm_heap_alloc_async(heap, p.bytes, "s", streams[p.stream], &ptr)
                               : gvm_heap_alloc(heap, p.bytes, &ptr);
    if (status == GVM_E_NOSPACE) {
        w->refused++;
        if (w->held > 0)
            drop(w, (unsigned)below(w, w->held), false);
        return;
    }
    if (status != GVM_OK) {
        fail_call("alloc", status);
        return;
    }
    p.address = (uintptr_t)ptr;
    if (p.address % alignment != 0)
        fail("a block of %llu bytes begins at %#llx, not at a multiple of %llu",
             (unsigned long long)p.bytes, (unsigned long long)p.address,
             (unsigned long long)alignment);
    claim(p.address, p.bytes, p.shares, w->number);
    status = gvm_heap_get_size(heap, ptr, &size);
    if (status != GVM_OK || size != p.bytes)
        fail("the size of a block of %llu is %zu", (unsigned long long)p.bytes, size);
    if (p.bytes >= 16 && below(w, TOUCH_EVERY) == 0)
        write_marks(&p, random_next(&w->random) | 1);
    w->pieces[w->held++] = p;
    w->allocs++;
}

static void do_resize(worker *w)
{
    const unsigned index = (unsigned)below(w, w->held);
    piece taken = w->pieces[index], *p = &taken;
    const uint64_t bytes = below(w, 2) == 0
                               ? 1 + below(w, p->bytes)
                               : p->bytes + below(w, p->shares ? p->bytes : p->bytes + MIB);

    const uint64_t grain = p->shares ? 256 : GVM_HEAP_UNIT_BYTES;
    const uint64_t old_end = gvmi_round_up(p->address + p->bytes, grain);
    const uint64_t new_end = gvmi_round_up(p->address + bytes, grain);
    gvm_status status;

    w->pieces[index] = w->pieces[--w->held]; /* the callback must not free it meanwhile */
    read_marks(p);
    p->mark = 0;
    if (new_end < old_end)
        unclaim(new_end, old_end - new_end, p->shares); /* before, as for a free */
    status = gvm_heap_resize(heap, (void *)(uintptr_t)p->address, bytes);
    if (status == GVM_OK) {
        if (new_end > old_end)
            claim(old_end, new_end - old_end, p->shares, w->number);
        p->bytes = bytes;
        w->resized++;
    } else if (bytes <= p->bytes || (status != GVM_E_ADDRESS && status != GVM_E_NOSPACE)) {
        fail_call("resize", status);
    }
    w->pieces[w->held++] = taken;
}

/* To another thread, or from one. */
static void do_pass(worker *w)
{
    piece got = {0};

    pthread_mutex_lock(&box_lock);
    if (w->held > 0 && box_count < BOXES && below(w, 2) == 0)
        boxes[box_count++] = w->pieces[--w->held];
    else if (box_count > 0)
        got = boxes[--box_count];
    pthread_mutex_unlock(&box_lock);
    if (got.address != 0)
        free_piece(w, &got, false);
}

static void do_nonsense(worker *w)
{
    const piece *p = &w->pieces[below(w, w->held)];
    void *inside = (void *)(uintptr_t)(p->address + 1 + below(w, p->bytes));
    gvm_status status = GVM_E_FOREIGN;

    if (p->bytes > 4 * GVM_HEAP_UNIT_BYTES && below(w, 2) == 0)
        inside = (void *)(uintptr_t)(p->address + (1 + below(w, 3)) * GVM_HEAP_UNIT_BYTES);
    if (gvmi_key(inside) - p->address < p->bytes)
        status = below(w, 2) == 0 ? gvm_heap_free(heap, inside) : gvm_heap_resize(heap, inside, 1);
    if (status != GVM_E_FOREIGN)
        fail("a free of the inside of a block returned %s", gvm_status_name(status));
}

static void do_question(worker *w)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    gvm_heap_block blocks[4];
    size_t count;
    gvm_status status = gvm_heap_get_info(heap, &info);

    if (status == GVM_OK &&
        (info.block_bytes < info.requested_bytes ||
         info.committed_bytes < info.block_bytes + info.shelf_bytes + info.pending_bytes ||
         info.committed_bytes > LIMIT_BYTES))
        fail("the heap has %llu requested, %llu in blocks, %llu committed",
             (unsigned long long)info.requested_bytes, (unsigned long long)info.block_bytes,
             (unsigned long long)info.committed_bytes);
    if (status == GVM_OK && below(w, 16) == 0)
        status = gvm_heap_trim(heap, below(w, 64) * MIB);
    if (status == GVM_OK && below(w, 16) == 0)
        (void)gvmi_idle_reclaim(device, below(w, 64) * MIB, below(w, 2) == 0);
    if (status == GVM_OK && below(w, 4) == 0)
        status = gvm_heap_list(heap, 4, sizeof(gvm_heap_block), blocks, &count);
    if (status != GVM_OK)
        fail_call("a question", status);
}

static void step(worker *w)
{
    const uint64_t kind = below(w, 1000);

    if (w->held < BLOCKS_MAX && (w->held == 0 || kind < 480))
        do_alloc(w);
    else if (w->held == 0 || (kind < 920 && kind >= 880))
        do_pass(w);
    else if (kind < 880)
        drop(w, (unsigned)below(w, w->held), false);
    else if (kind < 930)
        drop(w, (unsigned)below(w, w->held), true);
    else if (kind < 980)
        do_resize(w);
    else if (kind < 998)
        do_nonsense(w);
    else
        do_question(w);
}

static void *work(void *arg)
{
    worker *w = arg;

    me = w;
    if (gvmi_device_enter(device) != GVM_OK)
        fail("no context");
    for (uint64_t i = 1; i <= w->count && !atomic_load(&failed); i++) {
        step(w);
        if (i % CHECK_EVERY == 0) {
            gvm_status status = gvm_heap_check(heap);

            if (status != GVM_OK)
                fail_call("check", status);
        }
    }
    gvmi_device_leave();
    return NULL;
}

/* ---- between rounds: all threads have ended */

static void compare(const worker *workers)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    uint64_t bytes = 0, blocks = box_count;
    gvm_status status = gvm_heap_check(heap);

    for (unsigned i = 0; i < box_count; i++)
        bytes += boxes[i].bytes;
    for (int i = 0; i < THREADS; i++) {
        blocks += workers[i].held;
        for (unsigned j = 0; j < workers[i].held; j++)
            bytes += workers[i].pieces[j].bytes;
    }
    if (status == GVM_OK)
        status = gvm_heap_get_info(heap, &info);
    if (status != GVM_OK)
        fail_call("check", status);
    else if (info.requested_bytes != bytes || info.blocks != blocks || info.shelf_bytes != 0)
        fail("the heap has %llu blocks of %llu bytes, and %llu bytes on shelves of threads that "
             "have ended; the shadow has %llu of %llu",
             (unsigned long long)info.blocks, (unsigned long long)info.requested_bytes,
             (unsigned long long)info.shelf_bytes, (unsigned long long)blocks,
             (unsigned long long)bytes);
}

static void end_streams(worker *w)
{
    const int index = (int)below(w, STREAMS);
    gvm_status status = gvm_heap_stream_end(heap, streams[index]);

    if (status != GVM_OK)
        fail_call("stream_end", status);
    /* Its blocks are nobody's now. */
    for (unsigned i = 0; i < box_count; i++)
        if (boxes[i].stream == index)
            boxes[i].stream = -1;
}

static void run_rounds(worker *workers, uint64_t count)
{
    for (int round = 0; round < ROUNDS && !atomic_load(&failed); round++) {
        for (int i = 0; i < THREADS; i++) {
            workers[i].count = count / THREADS / ROUNDS;
            if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                exit(2);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(workers[i].thread, NULL);
        if (atomic_load(&failed))
            return;
        compare(workers);
        end_streams(&workers[0]);
    }
}

static void free_all(worker *workers)
{
    for (int i = 0; i < THREADS; i++)
        while (workers[i].held > 0)
            drop(&workers[i], 0, false);
    while (box_count > 0)
        free_piece(&workers[0], &boxes[--box_count], false);
}

/* ---- start and end */

/* With every other seed memory goes back by intervals, in the library's thread. */
static bool start(uint64_t seed)
{
    const gvm_heap_options options = {.struct_size = sizeof options,
                                      .limit_bytes = LIMIT_BYTES,
                                      .keep_bytes = seed % 2 * 24 * MIB,
                                      .shelf_bytes = 2 * MIB,
                                      .exhausted = exhausted};

    if (!shadow_make(&used) || gvm_device_open(0, &device) != GVM_OK ||
        gvm_heap_create(device, &options, &heap) != GVM_OK || gvmi_device_enter(device) != GVM_OK)
        return false;
    for (int i = 0; i < STREAMS; i++)
        if (gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
            return false;
    gvmi_device_leave();
    return true;
}

static void stop(void)
{
    gvm_heap_info info = {.struct_size = sizeof info};
    gvmi_check_holdings held;

    if (gvm_heap_check(heap) != GVM_OK || gvm_heap_trim(heap, 0) != GVM_OK ||
        gvm_heap_get_info(heap, &info) != GVM_OK || info.blocks != 0 || info.requested_bytes != 0 ||
        info.committed_bytes != 0 || info.pending_bytes != 0 || info.segments != 0)
        fail("at the end %llu blocks and %llu bytes of memory are left",
             (unsigned long long)info.blocks, (unsigned long long)info.committed_bytes);
    printf("# %llu commits, %llu decommits, %llu times exhausted, peak %llu MiB of %llu requested\n",
           (unsigned long long)info.commits, (unsigned long long)info.decommits,
           (unsigned long long)info.exhausted, (unsigned long long)(info.committed_peak_bytes / MIB),
           (unsigned long long)(info.requested_peak_bytes / MIB));
    gvm_heap_destroy(heap);
    for (int i = 0; i < STREAMS; i++)
        gvmi_cu->cuStreamDestroy(streams[i]);
    gvm_device_close(device);
    held = gvmi_check_held();
    if (memcmp(&held, &(gvmi_check_holdings){0}, sizeof held) != 0)
        fail("left at the driver: %llu reservations, %llu handles, %llu mappings, %llu events",
             (unsigned long long)held.reservations, (unsigned long long)held.handles,
             (unsigned long long)held.mappings, (unsigned long long)held.events);
    if (gvmi_check_violations() != 0)
        fail("%llu violations of the driver's contract", (unsigned long long)gvmi_check_violations());
}

int main(int argc, char **argv)
{
    static worker workers[THREADS];
    const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : COUNT_DEFAULT;
    uint64_t seed, allocs = 0, refused = 0, resized = 0;

    seed = random_seed(argc > 2 ? argv[2] : NULL);
    if (argc > 3 || count < THREADS * ROUNDS || count > COUNT_MAX) {
        fprintf(stderr, "usage: heap_ops [COUNT [SEED]]\n");
        return 2;
    }
    fixture_machine_default("devices=1,memory=512MiB,sms=2");
    setenv("GVMEM_CHECK", "1", 1);
    alarm(RUN_LIMIT_S);
    tap_plan(1);
    printf("# %d threads, seed %llu\n", THREADS, (unsigned long long)seed);
    if (!start(seed))
        tap_bail_out("no heap");
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = (uint8_t)(i + 1);
        workers[i].random = seed * 1000003 + (uint64_t)i;
    }
    run_rounds(workers, count);
    if (!atomic_load(&failed)) {
        if (gvmi_device_enter(device) != GVM_OK)
            return 2;
        free_all(workers);
        gvmi_device_leave();
        stop();
    }
    for (int i = 0; i < THREADS; i++) {
        allocs += workers[i].allocs;
        refused += workers[i].refused;
        resized += workers[i].resized;
    }
    printf("# %llu allocated, %llu refused, %llu resized\n", (unsigned long long)allocs,
           (unsigned long long)refused, (unsigned long long)resized);
    if (atomic_load(&failed))
        printf("# %s\n", problem);
    tap_result(!atomic_load(&failed), "%llu operations, seed %llu", (unsigned long long)count,
               (unsigned long long)seed);
    return tap_finish();
}
