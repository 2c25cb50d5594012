/* Idle memory: holders that the test makes, the cache of free chunks, and the library's thread.
 *
 * The clock stands still until the test sets it, and is far ahead of the system's: the thread looks when it is
 * nudged, not by itself.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include <gvmem/gvmem.h>

#include "base/clock.h"
#include "base/error.h"
#include "memory/background.h"
#include "memory/buffer.h"
#include "memory/idle.h"
#include "memory/serve.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/service_threads.h"
#include "tests/unit/unit.h"

#define CHUNK (2 * MIB)
#define AHEAD_S 1000000
#define MS GVMI_NS_PER_MS
#define PATIENCE 10000 /* ms */

static _Atomic(int64_t) clock_ns;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int64_t ns = atomic_load(&clock_ns);

    if (clock != CLOCK_MONOTONIC || ns == 0)
        return (int)syscall(SYS_clock_gettime, clock, t);
    *t = (struct timespec){ns / (1000 * MS), ns % (1000 * MS)};
    return 0;
}

static atomic_int refused; /* of the next calls */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *arg)
{
    if (atomic_load(&refused) > 0) {
        atomic_fetch_sub(&refused, 1);
        return EAGAIN;
    }
    return __real_pthread_create(thread, attributes, start, arg);
}

static void pass(int64_t ns)
{
    atomic_fetch_add(&clock_ns, ns);
    gvmi_background_nudge();
}

#define COMES_TRUE(condition) \
    ({ \
        int waited_ = 0; \
        while (!(condition) && waited_++ < PATIENCE) \
            pause_ms(1); \
        waited_ < PATIENCE; \
    })

/* ---- a machine, and holders */

static gvm_device *device, *second;

static bool start(void)
{
    struct timespec now;

    fixture_machine("devices=2,memory=256MiB,sms=1");
    setenv("GVMEM_CHECK", "1", 1);
    setenv("GVMEM_CACHE", "8MiB", 1); /* 4 chunks */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&clock_ns, (now.tv_sec + AHEAD_S) * 1000 * MS);
    return gvm_device_open(0, &device) == GVM_OK && gvm_device_open(1, &second) == GVM_OK;
}

static int threads(void)
{
    bool sleeps;

    return service_threads(&sleeps);
}

static bool stop(void)
{
    gvm_device_close(device);
    gvm_device_close(second);
    return threads() == 0 && gvmi_check_held().handles == 0 && gvmi_check_violations() == 0;
}

static gvm_device_info info(void)
{
    gvm_device_info i = {.struct_size = sizeof i};

    if (gvm_device_get_info(device, &i) != GVM_OK)
        abort();
    return i;
}

/* Holds bytes that it gives back: by time half of what it has. */
typedef struct holder {
    gvmi_idle idle; /* first */
    _Atomic(uint64_t) bytes;
    uint64_t wanted; /* of the latest reclaim */
    bool waited;     /* might it wait? */
    int64_t next_ns; /* what decay returns */
    _Atomic(int64_t) decayed_ns;
    atomic_int decays, reclaims;
    atomic_bool shut, shut_waiting; /* calls stay inside while it is */
} holder;

static void stay_inside(atomic_bool *shut)
{
    for (int waited = 0; atomic_load(shut) && waited < PATIENCE; waited++)
        pause_ms(1);
}

static uint64_t reclaim(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait)
{
    holder *h = (holder *)idle;
    const uint64_t bytes = atomic_load(&h->bytes);
    const uint64_t given = bytes < wanted_bytes ? bytes : wanted_bytes;

    (void)gvm_error_set(GVM_E_TIMEOUT, "a failure of the holder's own");
    atomic_fetch_add(&h->reclaims, 1);
    stay_inside(may_wait ? &h->shut_waiting : &h->shut);
    h->wanted = wanted_bytes;
    h->waited = may_wait;
    atomic_fetch_sub(&h->bytes, given);
    return given;
}

static int64_t decay(gvmi_idle *idle, int64_t now_ns)
{
    holder *h = (holder *)idle;

    atomic_store(&h->decayed_ns, now_ns);
    atomic_fetch_add(&h->decays, 1);
    stay_inside(&h->shut);
    atomic_store(&h->bytes, atomic_load(&h->bytes) / 2);
    return h->next_ns;
}

static const gvmi_idle_calls calls = {.reclaim = reclaim, .decay = decay};

static void join(gvm_device *of, holder *h, uint64_t bytes)
{
    *h = (holder){.bytes = bytes, .next_ns = GVMI_NEVER_NS};
    gvmi_idle_join(of, &h->idle, &calls);
}

/* ---- by time */

static int be_due(void *arg)
{
    int64_t now_ns;
    holder a, b;

    (void)arg;
    CHILD_EXPECT(start());
    now_ns = gvmi_now_ns();
    join(device, &a, 1024);
    join(second, &b, 1024);
    CHILD_EXPECT(threads() == 0); /* nobody has asked for it */
    gvmi_idle_wake(&a.idle, now_ns + 20 * MS);
    gvmi_idle_wake(&a.idle, now_ns + 10 * MS);
    gvmi_idle_wake(&a.idle, now_ns + 30 * MS);
    gvmi_idle_wake(&b.idle, now_ns + 5 * MS);
    CHILD_EXPECT(threads() == 1);
    a.next_ns = now_ns + 12 * MS;
    CHILD_EXPECT(gvmi_idle_step(now_ns) == now_ns + 5 * MS);
    CHILD_EXPECT(atomic_load(&a.decays) == 0 && atomic_load(&b.decays) == 0);
    CHILD_EXPECT(gvmi_idle_step(now_ns + 11 * MS) == now_ns + 10 * MS); /* one each time */
    CHILD_EXPECT(atomic_load(&b.decays) == 1 && atomic_load(&a.decays) == 0);
    CHILD_EXPECT(gvmi_idle_step(now_ns + 11 * MS) == now_ns + 12 * MS);
    CHILD_EXPECT(atomic_load(&a.decayed_ns) == now_ns + 11 * MS);
    a.next_ns = GVMI_NEVER_NS;
    pass(12 * MS); /* the thread's turn */
    CHILD_EXPECT(COMES_TRUE(atomic_load(&a.decays) == 2));
    CHILD_EXPECT(atomic_load(&a.decayed_ns) == now_ns + 12 * MS);
    CHILD_EXPECT(COMES_TRUE(gvmi_idle_step(now_ns + 40 * MS) == GVMI_NEVER_NS));
    gvmi_idle_leave(&a.idle);
    gvmi_idle_leave(&b.idle);
    CHILD_EXPECT(stop());
    return 0;
}

static gvm_buffer *buffer_of(uint64_t bytes)
{
    const gvm_buffer_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .flags = GVM_BUFFER_UNSHARED};
    gvm_buffer *buffer = NULL;

    return gvm_buffer_create(device, bytes, &options, &buffer) == GVM_OK ? buffer : NULL;
}

/* What is taken and put back in the meantime stays. */
static int be_cached(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT((buffer = buffer_of(8 * CHUNK)) != NULL);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_OK && threads() == 0);
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 0, 4 * CHUNK) == GVM_OK && threads() == 1);
    pass(600 * MS);
    CHILD_EXPECT(info().cached_bytes == 4 * CHUNK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 0, CHUNK) == GVM_OK);
    pass(399 * MS);
    CHILD_EXPECT(gvmi_idle_step(gvmi_now_ns()) == gvmi_now_ns() + MS);
    CHILD_EXPECT(info().cached_bytes == 4 * CHUNK);
    pass(MS);
    CHILD_EXPECT(COMES_TRUE(info().cached_bytes == CHUNK));
    CHILD_EXPECT(gvmi_idle_step(gvmi_now_ns()) == gvmi_now_ns() + 600 * MS);
    pass(600 * MS);
    CHILD_EXPECT(COMES_TRUE(info().cached_bytes == 0));
    CHILD_EXPECT(gvmi_check_held().handles == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* What lies beyond the limit for a moment goes after it, and no more; trimming takes the rest. */
static int be_beyond(void *arg)
{
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT((buffer = buffer_of(8 * CHUNK)) != NULL);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 7 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvmi_buffer_decommit(buffer, 0, 7 * CHUNK, GVMI_RELEASE_LATER, true) == GVM_OK);
    CHILD_EXPECT(gvmi_idle_step(gvmi_now_ns() + MS) == gvmi_now_ns() + 2 * MS);
    CHILD_EXPECT(info().cached_bytes == 7 * CHUNK);
    pass(2 * MS);
    CHILD_EXPECT(COMES_TRUE(gvmi_idle_step(gvmi_now_ns()) == gvmi_now_ns() + 998 * MS));
    CHILD_EXPECT(info().cached_bytes == 4 * CHUNK);
    CHILD_EXPECT(gvm_device_trim(device, 0) == GVM_OK && info().cached_bytes == 0);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- on shortage */

static int be_reclaimed(void *arg)
{
    gvmi_shortage shortage = {0};
    gvm_error error = {0};
    gvm_buffer *buffer;
    holder a, b, other;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT((buffer = buffer_of(8 * CHUNK)) != NULL);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 3 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_decommit(buffer, 0, 3 * CHUNK) == GVM_OK);
    join(device, &a, 1000);
    join(second, &other, 1000);
    join(device, &b, 1000);
    (void)gvm_error_set(GVM_E_ABSENT, "an error that stays");
    CHILD_EXPECT(gvmi_idle_reclaim(device, 700, false) == 700);
    CHILD_EXPECT(a.wanted == 700 && !a.waited && atomic_load(&b.reclaims) == 0);
    CHILD_EXPECT(info().cached_bytes == 0); /* the driver has it */
    CHILD_EXPECT(gvmi_idle_reclaim(device, 700, true) == 700);
    CHILD_EXPECT(a.wanted == 700 && a.waited && b.wanted == 400 && b.waited);
    CHILD_EXPECT(gvmi_idle_reclaim(device, UINT64_MAX, false) == 600);
    CHILD_EXPECT(atomic_load(&other.reclaims) == 0);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && error.status == GVM_E_ABSENT);
    CHILD_EXPECT(gvmi_idle_retry(device, 8, &shortage) && !b.waited);
    for (int i = 0; i < 2; i++)
        CHILD_EXPECT(gvmi_idle_retry(device, 8, &shortage) && b.waited);
    CHILD_EXPECT(!gvmi_idle_retry(device, 8, &shortage));
    CHILD_EXPECT(atomic_load(&b.reclaims) == 5);
    gvmi_idle_leave(&a.idle);
    gvmi_idle_leave(&other.idle);
    gvmi_idle_leave(&b.idle);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- several threads */

static holder shared;
static _Atomic(uint64_t) answer;
static atomic_bool answered;

static void *reclaim_all(void *may_wait)
{
    atomic_store(&answer, gvmi_idle_reclaim(device, UINT64_MAX, may_wait != NULL));
    atomic_store(&answered, true);
    return NULL;
}

static void *leave(void *unused)
{
    (void)unused;
    gvmi_idle_leave(&shared.idle);
    atomic_store(&answered, true);
    return NULL;
}

/* Looked at without idle.c's lock, which only a test may do. */
__attribute__((no_sanitize_thread)) static uint32_t callers(void)
{
    return *(volatile uint32_t *)&shared.idle.callers;
}

__attribute__((no_sanitize_thread)) static bool is_leaving(void)
{
    return *(volatile bool *)&shared.idle.leaving;
}

/* A thread that finds the device full gets what the thread is giving back: afterwards, not too late. */
static int be_waited_for(void *arg)
{
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(start());
    join(device, &shared, 1000);
    atomic_store(&shared.shut, true);
    gvmi_idle_wake(&shared.idle, 1);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&shared.decays) == 1));
    CHILD_EXPECT(pthread_create(&thread, NULL, reclaim_all, NULL) == 0);
    CHILD_EXPECT(COMES_TRUE(callers() == 2) && atomic_load(&shared.reclaims) == 0);
    atomic_store(&shared.shut, false);
    pthread_join(thread, NULL);
    CHILD_EXPECT(atomic_load(&answer) == 500); /* the other half has gone before */
    gvmi_idle_leave(&shared.idle);
    CHILD_EXPECT(stop());
    return 0;
}

/* A thread reclaims all, and is inside until the door is open. */
static bool start_reclaim(atomic_bool *door_shut, void *arg, pthread_t *thread)
{
    if (!start())
        return false;
    join(device, &shared, 1000);
    atomic_store(door_shut, true);
    return pthread_create(thread, NULL, reclaim_all, arg) == 0 &&
           COMES_TRUE(atomic_load(&shared.reclaims) == 1);
}

/* A caller that must not wait for a kernel does not wait for one that does. */
static int be_passed(void *arg)
{
    const int64_t now_ns = gvmi_now_ns();
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(start_reclaim(&shared.shut_waiting, &shared, &thread));
    CHILD_EXPECT(gvmi_idle_reclaim(device, 300, false) == 300);
    gvmi_idle_wake(&shared.idle, now_ns);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&shared.decays) == 1));
    CHILD_EXPECT(!atomic_load(&answered));
    atomic_store(&shared.shut_waiting, false);
    pthread_join(thread, NULL);
    gvmi_idle_leave(&shared.idle);
    CHILD_EXPECT(stop());
    return 0;
}

/* The thread does not wait for who is giving back, but looks again. */
static int be_looked_at_again(void *arg)
{
    const int64_t now_ns = gvmi_now_ns();
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(start_reclaim(&shared.shut, NULL, &thread));
    gvmi_idle_wake(&shared.idle, now_ns);
    CHILD_EXPECT(COMES_TRUE(gvmi_idle_step(now_ns) > now_ns));
    CHILD_EXPECT(atomic_load(&shared.decays) == 0);
    atomic_store(&shared.shut, false);
    pthread_join(thread, NULL);
    pass(1000 * MS);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&shared.decays) == 1));
    gvmi_idle_leave(&shared.idle);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_left(void *arg)
{
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(start());
    join(device, &shared, 1000);
    atomic_store(&shared.shut, true);
    gvmi_idle_wake(&shared.idle, 1);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&shared.decays) == 1));
    CHILD_EXPECT(pthread_create(&thread, NULL, leave, NULL) == 0);
    CHILD_EXPECT(COMES_TRUE(is_leaving()));
    CHILD_EXPECT(gvmi_idle_reclaim(device, 1, false) == 0); /* it is not called any more */
    CHILD_EXPECT(!atomic_load(&answered));
    atomic_store(&shared.shut, false);
    pthread_join(thread, NULL);
    CHILD_EXPECT(atomic_load(&shared.decays) == 1 && atomic_load(&shared.reclaims) == 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- the thread's life */

static int be_started_again(void *arg)
{
    holder h;

    (void)arg;
    for (int round = 0; round < 50; round++) {
        CHILD_EXPECT(start() && threads() == 0);
        join(device, &h, 8);
        gvmi_idle_wake(&h.idle, 1);
        CHILD_EXPECT(threads() == 1 && COMES_TRUE(atomic_load(&h.decays) == 1));
        gvmi_idle_leave(&h.idle);
        CHILD_EXPECT(stop());
    }
    return 0;
}

/* The system has no thread at first: each call that wakes a holder tries again. */
static int be_refused(void *arg)
{
    gvm_heap *heap;
    void *ptr;
    holder h;

    (void)arg;
    CHILD_EXPECT(start());
    join(device, &h, 8);
    atomic_store(&refused, 3);
    for (int i = 0; i < 3; i++) {
        gvmi_idle_wake(&h.idle, 1);
        CHILD_EXPECT(threads() == 0);
    }
    gvmi_idle_wake(&h.idle, 1);
    CHILD_EXPECT(threads() == 1 && COMES_TRUE(atomic_load(&h.decays) == 1));
    gvmi_idle_leave(&h.idle);
    CHILD_EXPECT(stop());

    CHILD_EXPECT(start() && gvm_heap_create(device, NULL, &heap) == GVM_OK);
    atomic_store(&refused, 1);
    CHILD_EXPECT(gvm_heap_alloc(heap, 16 * MIB, &ptr) == GVM_OK && threads() == 0);
    CHILD_EXPECT(gvm_heap_free(heap, ptr) == GVM_OK && threads() == 1);
    gvm_heap_destroy(heap);
    CHILD_EXPECT(stop());
    return 0;
}

/* Other threads take what a call has had given back: it goes on, but not for ever. */
static int be_taken(void *arg)
{
    gvmi_shortage shortage = {0};
    holder h;
    int rounds = 0;

    (void)arg;
    CHILD_EXPECT(start());
    join(device, &h, 10);
    while (gvmi_idle_retry(device, 1, &shortage))
        rounds++;
    CHILD_EXPECT(rounds == 10 + GVMI_SHORTAGE_FRUITLESS_MAX && atomic_load(&h.reclaims) == rounds);
    gvmi_idle_leave(&h.idle);
    join(device, &h, 1000);
    shortage = (gvmi_shortage){0};
    for (rounds = 0; gvmi_idle_retry(device, 1, &shortage);)
        rounds++;
    CHILD_EXPECT(rounds == GVMI_SHORTAGE_ROUNDS_MAX);
    gvmi_idle_leave(&h.idle);
    CHILD_EXPECT(stop());
    return 0;
}

static atomic_bool serving;

static bool serve_for_long(gvmi_served *served)
{
    (void)served;
    atomic_store(&serving, true);
    stay_inside(&shared.shut);
    return false;
}

/* The last holder leaves, and another comes before the thread has ended. */
static int be_wanted_again(void *arg)
{
    gvmi_served served = {.step = serve_for_long};
    pthread_t leaver;
    holder other;

    (void)arg;
    CHILD_EXPECT(start());
    gvm_device_close(second);
    join(device, &shared, 1000);
    gvm_device_close(device); /* the cache has left */
    atomic_store(&shared.shut, true);
    gvmi_serve_join(&served);
    gvmi_idle_wake(&shared.idle, GVMI_NEVER_NS - 1);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&serving)));
    CHILD_EXPECT(pthread_create(&leaver, NULL, leave, NULL) == 0);
    CHILD_EXPECT(COMES_TRUE(is_leaving()));
    pause_ms(20); /* ends the thread, most likely */
    join(device, &other, 1000);
    gvmi_idle_wake(&other.idle, 1);
    atomic_store(&shared.shut, false);
    CHILD_EXPECT(pthread_join(leaver, NULL) == 0);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&other.decays) == 1) && threads() == 1);
    CHILD_EXPECT(gvmi_background_start() == GVM_OK);
    gvmi_idle_leave(&other.idle);
    CHILD_EXPECT(threads() == 0);
    gvmi_serve_leave(&served);
    return 0;
}

/* A call is under way in the parent, for ever in the child. */
static int be_forked(void *arg)
{
    int status = -1;
    holder own;
    pid_t pid;

    (void)arg;
    CHILD_EXPECT(start());
    join(device, &shared, 1000);
    atomic_store(&shared.shut, true);
    gvmi_idle_wake(&shared.idle, 1);
    CHILD_EXPECT(COMES_TRUE(atomic_load(&shared.decays) == 1));
    pid = fork();
    if (pid == 0) {
        end_child_after(20);
        CHILD_EXPECT(gvmi_idle_reclaim(device, UINT64_MAX, true) == 0);
        gvmi_idle_wake(&shared.idle, 2);
        gvmi_idle_leave(&shared.idle);
        join(device, &own, 1000);
        gvmi_idle_wake(&own.idle, 1);
        CHILD_EXPECT(threads() == 0 && gvmi_background_start() == GVM_E_FOREIGN);
        CHILD_EXPECT(gvmi_idle_reclaim(device, 100, true) == 100);
        gvmi_idle_leave(&own.idle);
        _exit(0);
    }
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    atomic_store(&shared.shut, false);
    gvmi_idle_leave(&shared.idle);
    CHILD_EXPECT(stop());
    return 0;
}

CHILD_TEST(holder_is_called_when_it_is_due, be_due)
CHILD_TEST(free_chunk_nobody_took_for_a_second_goes, be_cached)
CHILD_TEST(free_chunks_beyond_the_limit_go_after_a_moment, be_beyond)
CHILD_TEST(shortage_has_holders_of_the_device_give_what_is_wanted, be_reclaimed)
CHILD_TEST(shortage_waits_for_a_release_under_way, be_waited_for)
CHILD_TEST(shortage_that_must_not_wait_passes_who_waits, be_passed)
CHILD_TEST(holder_that_is_giving_back_is_looked_at_again, be_looked_at_again)
CHILD_TEST(holder_leaves_when_its_call_has_ended, be_left)
CHILD_TEST(shortage_goes_on_while_holders_give, be_taken)
CHILD_TEST(thread_that_cannot_be_started_is_tried_again, be_refused)
CHILD_TEST(thread_that_has_ended_is_started_again, be_started_again)
CHILD_TEST(thread_wanted_while_it_ends_is_started_again, be_wanted_again)
CHILD_TEST(child_waits_for_no_holder_of_its_parent, be_forked)

/* ---- streams that wait for the thread that waits for them */

static atomic_bool served;

static void *pass_seconds(void *unused)
{
    while (!atomic_load(&served)) {
        pass(1000 * MS);
        pause_ms(1);
    }
    return unused;
}

static int be_waited_for_in_vain(void *arg)
{
    gvm_heap *heap, *limited;
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 64 * CHUNK};
    gvm_buffer *buffer;
    CUstream stream;
    void *block, *word;
    uint32_t *gate;
    pthread_t clock;
    bool good;

    (void)arg;
    CHILD_EXPECT(start() && gvm_heap_create(device, NULL, &heap) == GVM_OK &&
                 gvm_heap_create(device, &options, &limited) == GVM_OK);
    CHILD_EXPECT((buffer = buffer_of(100 * CHUNK)) != NULL);
    good = gvmi_device_enter(device) == GVM_OK &&
           gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           gvmi_cu->cuMemHostAlloc(&word, sizeof *gate, 0) == CUDA_SUCCESS &&
           (*(gate = word) = 0, true) &&
           gvmi_cu->cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)gate, 1,
                                        CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    gvmi_device_leave();
    CHILD_EXPECT(good);
    CHILD_EXPECT(gvm_heap_alloc_async(heap, 40 * CHUNK, "", stream, &block) == GVM_OK &&
                 gvm_heap_free_async(heap, block, stream) == GVM_OK &&
                 gvm_heap_alloc_async(limited, 40 * CHUNK, "", stream, &block) == GVM_OK &&
                 gvm_heap_free_async(limited, block, stream) == GVM_OK);
    atomic_store(&served, false);
    CHILD_EXPECT(pthread_create(&clock, NULL, pass_seconds, NULL) == 0);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 100 * CHUNK) == GVM_E_NOSPACE);
    CHILD_EXPECT(gvm_heap_alloc(limited, 40 * CHUNK, &block) == GVM_E_NOSPACE);
    atomic_store(&served, true);
    pthread_join(clock, NULL);                   /* the stream may take its time from here on */
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST); /* what this thread was to do */
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 100 * CHUNK) == GVM_OK);
    gvm_heap_destroy(heap);
    gvm_heap_destroy(limited);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuStreamDestroy(stream) == CUDA_SUCCESS &&
                 gvmi_cu->cuMemFreeHost(gate) == CUDA_SUCCESS);
    gvmi_device_leave();
    CHILD_EXPECT(stop());
    return 0;
}

CHILD_TEST(stream_that_waits_for_the_caller_is_not_waited_for_without_end, be_waited_for_in_vain)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holder_is_called_when_it_is_due),
        cmocka_unit_test(free_chunk_nobody_took_for_a_second_goes),
        cmocka_unit_test(free_chunks_beyond_the_limit_go_after_a_moment),
        cmocka_unit_test(shortage_has_holders_of_the_device_give_what_is_wanted),
        cmocka_unit_test(shortage_waits_for_a_release_under_way),
        cmocka_unit_test(shortage_that_must_not_wait_passes_who_waits),
        cmocka_unit_test(holder_that_is_giving_back_is_looked_at_again),
        cmocka_unit_test(holder_leaves_when_its_call_has_ended),
        cmocka_unit_test(shortage_goes_on_while_holders_give),
        cmocka_unit_test(thread_that_cannot_be_started_is_tried_again),
        cmocka_unit_test(thread_that_has_ended_is_started_again),
        cmocka_unit_test(thread_wanted_while_it_ends_is_started_again),
        cmocka_unit_test(stream_that_waits_for_the_caller_is_not_waited_for_without_end),
        cmocka_unit_test(child_waits_for_no_holder_of_its_parent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
