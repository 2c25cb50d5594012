/* gvmem-bench heap: pairs of alloc and free, beside the driver's stream-ordered pool and others.
 *
 * One thread: groups of 8 pairs are timed, so that the clock's own cost (some 25 ns) does not count
 * for more than a few, and divided; median and 99th percentile are those of groups. What is compared
 * is measured in turns.
 *
 * Threads: each does pairs among 16 blocks of mixed sizes that it keeps, for a fixed time.
 */
#include "bench/heap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/size.h"

#define GROUP 8 /* pairs timed at once */
#define GROUPS_MAX 40000
#define TURNS 10
#define THREADS_MAX 16
#define KEPT 16 /* blocks that a thread has at once */

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- one thread */

typedef struct times {
    size_t count;
    double ns[GROUPS_MAX];
} times;

static int compare_times(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static bool time_groups(const bench_subject *s, uint64_t bytes, size_t groups, times *out)
{
    for (size_t i = 0; i < groups; i++) {
        const double start = now_ns();

        for (int j = 0; j < GROUP; j++) {
            void *ptr;

            if (!bench_take(s, bytes, s->stream, &ptr) || !bench_give(s, ptr, bytes, s->stream))
                return false;
        }
        if (out->count < GROUPS_MAX)
            out->ns[out->count++] = (now_ns() - start) / GROUP;
    }
    return true;
}

static void measure_heap_size(bench *b, const bench_subject *subjects, size_t count, uint64_t bytes)
{
    const size_t groups = b->quick ? 200 : GROUPS_MAX / TURNS;
    times *all = calloc(count, sizeof *all);
    char size[32];

    if (all == NULL) {
        bench_note(b, "no host memory for samples");
        return;
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < count; i++) {
            const size_t before = all[i].count;

            if (!time_groups(&subjects[i], bytes, turn == 0 ? 20 : 2, &all[i]) /* warm up */
                || (all[i].count = before, !time_groups(&subjects[i], bytes, groups, &all[i]))) {
                bench_subject_failed(b, &subjects[i]);
                free(all);
                return;
            }
            (void)gvmi_cu->cuStreamSynchronize(subjects[i].stream);
        }
    fprintf(b->text, "  %-8s", gvmi_size_text(bytes, size));
    for (size_t i = 0; i < count; i++) {
        double p50, p99;

        qsort(all[i].ns, all[i].count, sizeof all[i].ns[0], compare_times);
        p50 = all[i].ns[all[i].count / 2];
        p99 = all[i].ns[all[i].count / 100 * 99];
        bench_record_value(b, "pair, p50", subjects[i].name, "ns", bytes, 0, p50);
        bench_record_value(b, "pair, p99", subjects[i].name, "ns", bytes, 0, p99);
        fprintf(b->text, "  %9.1f %9.1f", p50, p99);
    }
    fputc('\n', b->text);
    free(all);
}

/* ---- threads */

typedef struct runner {
    pthread_t thread;
    const bench_subject *subject;
    gvm_device *device;
    pthread_barrier_t *start;
    atomic_bool *stop;
    uint64_t pairs;
    bool failed;
} runner;

/* Mostly small, as programs ask. */
static uint64_t mixed_bytes(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t draw = *state >> 33;

    return (draw % 8 == 0 ? 256 : 16) * GVMI_KIB + draw % (48 * GVMI_KIB);
}

static void *run_pairs(void *arg)
{
    runner *r = arg;
    const bench_subject *s = r->subject;
    struct {
        void *at;
        uint64_t bytes;
    } kept[KEPT] = {0};
    uint64_t state = (uintptr_t)arg;

    r->failed = gvmi_device_enter(r->device) != GVM_OK;
    pthread_barrier_wait(r->start);
    for (uint64_t i = 0; !r->failed && !atomic_load_explicit(r->stop, memory_order_relaxed); i++) {
        void **at = &kept[i % KEPT].at;
        const bool freed = *at == NULL || bench_give(s, *at, kept[i % KEPT].bytes, s->stream);

        kept[i % KEPT].bytes = mixed_bytes(&state);
        if (!freed || !bench_take(s, kept[i % KEPT].bytes, s->stream, at)) {
            *at = NULL;
            r->failed = true;
        }
        r->pairs++;
    }
    for (int i = 0; i < KEPT; i++)
        if (kept[i].at != NULL && !bench_give(s, kept[i].at, kept[i].bytes, s->stream))
            r->failed = true;
    gvmi_device_leave();
    return NULL;
}

/* Millions of pairs a second; 0, with a complaint, if that failed. */
static double run_threads(bench *b, const bench_subject *s, unsigned count)
{
    const struct timespec pause = {0, b->quick ? 50000000 : 300000000};
    static struct {
        runner r;
        char apart[128]; /* so that counters do not share a cache line */
    } runners[THREADS_MAX];
    pthread_barrier_t start;
    atomic_bool stop = false;
    uint64_t pairs = 0;
    bool failed = false;
    double begin, end;

    pthread_barrier_init(&start, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        runners[i].r = (runner){.subject = s, .device = b->device, .start = &start, .stop = &stop};
        if (pthread_create(&runners[i].r.thread, NULL, run_pairs, &runners[i].r) != 0) {
            tool_error("cannot start %u threads", count);
            exit(TOOL_FAILED); /* those that run wait for the barrier */
        }
    }
    pthread_barrier_wait(&start);
    begin = now_ns();
    nanosleep(&pause, NULL);
    atomic_store(&stop, true);
    end = now_ns();
    for (unsigned i = 0; i < count; i++) {
        pthread_join(runners[i].r.thread, NULL);
        pairs += runners[i].r.pairs;
        failed = failed || runners[i].r.failed;
    }
    pthread_barrier_destroy(&start);
    if (failed)
        bench_subject_failed(b, s);
    return failed ? 0 : (double)pairs / (end - begin) * 1e3;
}

static void measure_threads(bench *b, const bench_subject *subjects, size_t count)
{
    fprintf(b->text,
            "\nthreads that keep %d blocks of 16 KiB to 304 KiB each, million pairs a second\n"
            "                             1 thread  %u threads     ratio\n",
            KEPT, THREADS_MAX);
    for (size_t i = 0; i < count; i++) {
        bench_samples one = {0}, many = {0};
        double single, several;

        for (int turn = 0; turn < (b->quick ? 1 : 3); turn++) {
            bench_add(&one, run_threads(b, &subjects[i], 1));
            bench_add(&many, run_threads(b, &subjects[i], THREADS_MAX));
        }
        single = bench_record(b, "threads, 1", subjects[i].name, "M pairs/s", 0, 0, &one);
        several = bench_record(b, "threads, 16", subjects[i].name, "M pairs/s", 0, 0, &many);
        if (single <= 0 || several <= 0)
            continue;
        bench_record_value(b, "threads, 16 / 1", subjects[i].name, "ratio", 0, 0, several / single);
        fprintf(b->text, "  %-24s %10.2f  %10.2f  %8.2f\n", subjects[i].name, single, several,
                several / single);
    }
}

/* ---- all */

static void measure_pairs(bench *b)
{
    static const uint64_t sizes[] = {512, 16 * GVMI_KIB, GVMI_MIB, 20 * GVMI_MIB};
    gvm_heap *heap = NULL;
    CUmemoryPool pool = NULL;
    bench_timer timer;
    bench_subject subjects[3 + BENCH_POOLS_MAX];
    const bench_foreign_pool *others;
    const size_t other_count = bench_load_pools(b, &others);
    const bool has_pool = bench_driver_pool_start(b, &pool);
    size_t count = 0;

    if (!bench_timer_create(b, &timer))
        return;
    if (gvm_heap_create(b->device, NULL, &heap) != GVM_OK) {
        bench_failed(b, "a heap");
        bench_timer_destroy(&timer);
        return;
    }
    subjects[count++] = (bench_subject){.name = "gvm_heap", .heap = heap, .stream = timer.stream};
    subjects[count++] = (bench_subject){
        .name = "gvm_heap async", .heap = heap, .stream = timer.stream, .ordered = true};
    if (has_pool)
        subjects[count++] = (bench_subject){
            .name = "cuMemAllocAsync", .driver_pool = pool, .stream = timer.stream, .ordered = true};
    for (size_t i = 0; i < other_count; i++)
        subjects[count++] = (bench_subject){
            .name = others[i].name(), .pool = &others[i], .stream = timer.stream, .ordered = true};

    fputs("\nalloc and free, ns a pair (p50 and p99 of groups of 8)\n  size    ", b->text);
    for (size_t i = 0; i < count; i++)
        fprintf(b->text, "  %19s", subjects[i].name);
    fputc('\n', b->text);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure_heap_size(b, subjects, count, sizes[i]);
    measure_threads(b, subjects, count);
    for (size_t i = 0; i < count; i++)
        bench_give_back(b, &subjects[i]);
    gvm_heap_destroy(heap);
    bench_timer_destroy(&timer);
    if (has_pool)
        bench_driver_pool_stop(pool);
}

void bench_heap(bench *b)
{
    heap_trace trace;

    if (!bench_heap_trace(b, &trace)) /* first: a wrong file is said to be so at once */
        return;
    measure_pairs(b);
    bench_heap_replay(b, &trace);
    heap_trace_free(&trace);
}
