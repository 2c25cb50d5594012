/* python/src/pools.c: what a device gives at most, for how long its heaps keep what is free, and when pools end.
 *
 * usage: test_pools_limits LIBRARY
 */
#include "tests/unit/pools_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/fixture.h"

static int be_limited(void *arg)
{
    const pool_id other = {7, 0};
    pool_stats stats;

    (void)arg;
    CHILD_EXPECT(load_pools());
    choose((pools_options){.limit_bytes = 8 << 20});
    choose((pools_options){.decay_ms = 1000000}); /* the limit stays */
    CHILD_EXPECT(calls->set_limit(0, 4 << 20) == 0);
    CHILD_EXPECT(take(3 << 20, 0, NULL) != NULL && take(3 << 20, 0, NULL) == NULL);
    CHILD_EXPECT(calls->set_limit(0, GVM_BYTES_UNLIMITED) == 0); /* what was chosen stays */
    CHILD_EXPECT(take(3 << 20, 0, NULL) != NULL);
    CHILD_EXPECT(calls->retain(0, other) == 0 && calls->users(0, other) == 1);
    CHILD_EXPECT(take(3 << 20, 0, NULL) == NULL && calls->release(0, other) == 0 &&
                 calls->users(0, other) == 0);
    CHILD_EXPECT(calls->stats(0, &stats) == 0 && stats.failures == 2 && stats.held_bytes <= 8 << 20);
    CHILD_EXPECT(stats.blocks[POOLS_ALL].current == 2 && stats.bytes[POOLS_LARGE].peak == 6 << 20);
    return 0;
}

static int takes_all(void *arg, void *stream)
{
    (void)arg;
    (void)stream;
    return 1;
}

static void drop_nothing(void *arg)
{
    (void)arg;
}

/* What a pool had of the limit is there for others when it is gone, or has no use for it. */
static int share_limit(void *arg)
{
    const pool_id other = {7, 0};
    void *of_other;

    (void)arg;
    CHILD_EXPECT(load_pools());
    choose((pools_options){.limit_bytes = 16 << 20});
    CHILD_EXPECT(calls->begin(0, other, (pool_filter){takes_all, drop_nothing, NULL}) == 0);
    CHILD_EXPECT((of_other = take(8 << 20, 0, NULL)) != NULL && calls->end(0, other) == 0);
    CHILD_EXPECT(take(2 << 20, 0, NULL) != NULL && take(8 << 20, 0, NULL) == NULL);
    CHILD_EXPECT(give(of_other) && take(8 << 20, 0, NULL) != NULL);
    CHILD_EXPECT(calls->release(0, other) == 0);
    CHILD_EXPECT(take(4 << 20, 0, NULL) != NULL && take(4 << 20, 0, NULL) == NULL);
    return 0;
}

static pthread_barrier_t round_barrier;
static atomic_int rounds_granted, rounds_wrong;
static atomic_bool is_slow;

/* In the place of the library's, for what is loaded: it comes late, where that is wanted. */
GVM_API gvm_status gvm_heap_alloc_async(gvm_heap *heap, size_t size_bytes, const char *tag,
                                        gvm_stream stream, void **out_ptr)
{
    gvm_status (*call)(gvm_heap *, size_t, const char *, gvm_stream, void **);

    *(void **)&call = dlsym(loaded, "gvm_heap_alloc_async");
    if (atomic_load(&is_slow))
        pause_ms(1);
    return call(heap, size_bytes, tag, stream, out_ptr);
}

static int takes_of_thread(void *thread, void *stream)
{
    (void)stream;
    return pthread_equal(*(pthread_t *)thread, pthread_self());
}

/* Of 16 MiB that two pools have together, both ask for 12 at once: one has it. */
static void *ask_in_rounds(void *number)
{
    const pool_id own = {7 + (uint64_t)(uintptr_t)number, 0};
    pthread_t self = pthread_self();
    pool_stats stats;

    if (calls->begin(0, own, (pool_filter){takes_of_thread, drop_nothing, &self}) != 0)
        atomic_fetch_add(&rounds_wrong, 1);
    for (int i = 0; i < 20; i++) {
        void *ptr;

        pthread_barrier_wait(&round_barrier);
        ptr = take(12 << 20, 0, NULL);
        atomic_fetch_add(&rounds_granted, ptr != NULL);
        pthread_barrier_wait(&round_barrier);
        if (atomic_load(&rounds_granted) != i + 1 || calls->stats(0, &stats) != 0 ||
            stats.held_bytes > 16 << 20)
            atomic_fetch_add(&rounds_wrong, 1);
        pthread_barrier_wait(&round_barrier);
        (void)give(ptr);
        (void)calls->trim(0, own);
    }
    (void)calls->end(0, own);
    return NULL;
}

static int share_limit_at_once(void *arg)
{
    pthread_t other;

    (void)arg;
    end_child_after(60);
    CHILD_EXPECT(load_pools());
    choose((pools_options){.limit_bytes = 16 << 20});
    atomic_store(&is_slow, true);
    CHILD_EXPECT(pthread_barrier_init(&round_barrier, NULL, 2) == 0);
    CHILD_EXPECT(pthread_create(&other, NULL, ask_in_rounds, (void *)1) == 0);
    (void)ask_in_rounds(NULL);
    CHILD_EXPECT(pthread_join(other, NULL) == 0);
    CHILD_EXPECT(atomic_load(&rounds_wrong) == 0);
    return 0;
}

/* 0 is a limit: by the options, and set before the first heap is there. */
static int be_limited_to_nothing(void *how)
{
    const bool chosen = strcmp(how, "chosen") == 0;
    const pool_id other = {7, 0};

    CHILD_EXPECT(load_pools());
    choose((pools_options){.limit_bytes = chosen ? GVM_BYTES_NONE : 0});
    CHILD_EXPECT(chosen || calls->set_limit(0, 0) == 0);
    CHILD_EXPECT(take(1 << 20, 0, NULL) == NULL);
    CHILD_EXPECT(calls->begin(0, other, (pool_filter){takes_all, drop_nothing, NULL}) == 0);
    CHILD_EXPECT(take(1 << 20, 0, NULL) == NULL && calls->end(0, other) == 0);
    CHILD_EXPECT(calls->set_limit(0, GVM_BYTES_UNLIMITED) == 0);
    CHILD_EXPECT((take(1 << 20, 0, NULL) == NULL) == chosen);
    return 0;
}

/* After 192 MiB at once, 96 MiB again and again: what is not needed goes, or stays. */
static int keep_for(void *arg)
{
    const bool again = strcmp(arg, "1000000, then 0") == 0, decays = again || strcmp(arg, "0") == 0;
    pool_stats stats;

    end_child_after(60);
    CHILD_EXPECT(load_pools());
    choose((pools_options){.decay_ms = decays && !again ? 0 : 1000000});
    if (again)
        choose((pools_options){.decay_ms = UINT32_MAX}); /* POOLS_DECAY_NONE */
    do {
        for (uint64_t mib = 192, i = 0; i < 20; mib = 96, i++) {
            void *ptr = take(mib << 20, 0, NULL);

            CHILD_EXPECT(ptr != NULL && give(ptr));
        }
        pause_ms(50);
        CHILD_EXPECT(calls->stats(0, &stats) == 0);
    } while (decays && stats.decommits == 0);
    return decays || stats.decommits == 0 ? 0 : 1;
}

static void *given_in_trim;

/* In the place of the library's, for what is loaded: a block is freed meanwhile. */
GVM_API gvm_status gvm_heap_trim(gvm_heap *heap, uint64_t keep_bytes)
{
    void *ptr = given_in_trim;
    gvm_status (*call)(gvm_heap *, uint64_t), status;

    *(void **)&call = dlsym(loaded, "gvm_heap_trim");
    status = call(heap, keep_bytes);
    if (ptr == NULL) /* several threads trim */
        return status;
    given_in_trim = NULL;
    return give(ptr) ? status : GVM_E_FOREIGN;
}

static int64_t count_held(void)
{
    pool_stats stats;

    return calls->stats(0, &stats) == 0 ? stats.held_bytes : -1;
}

/* A block of a pool that ends with it. */
static void *take_of(pool_id id)
{
    void *ptr = calls->begin(0, id, (pool_filter){takes_all, drop_nothing, NULL}) == 0
                    ? take(4 << 20, 0, NULL)
                    : NULL;

    return calls->end(0, id) == 0 ? ptr : NULL;
}

static int32_t count_devices(void)
{
    gvm_status (*call)(int32_t *);
    int32_t count = 0;

    *(void **)&call = dlsym(loaded, "gvm_device_count");
    return call(&count) == GVM_OK ? count : 0;
}

/* A pool that could not end while another one was open, on any device, or was looked at, ends after that. */
static int end_dead_pools(void *arg)
{
    const pool_id dead = {5, 0}, empty = {6, 0}, open = {7, 0};
    int other;
    void *ptr;

    (void)arg;
    unsetenv("GVMEM_SOFTGPU");
    fixture_machine_default("devices=2,memory=256MiB,sms=1");
    CHILD_EXPECT(load_pools());
    choose((pools_options){.decay_ms = 1000000});
    CHILD_EXPECT((other = count_devices() - 1) >= 0);
    CHILD_EXPECT((ptr = take_of(dead)) != NULL);
    CHILD_EXPECT(calls->begin(other, open, (pool_filter){takes_all, drop_nothing, NULL}) == 0);
    CHILD_EXPECT(calls->retain(0, empty) == 0 && calls->release(0, dead) == 0);
    CHILD_EXPECT(give(ptr) && calls->release(0, empty) == 0 && count_held() >= 4 << 20);
    CHILD_EXPECT(calls->end(other, open) == 0 && count_held() == 0);

    CHILD_EXPECT((given_in_trim = take_of(dead)) != NULL && calls->release(0, dead) == 0);
    CHILD_EXPECT(calls->trim(0, (pool_id){0, 0}) == 0 && given_in_trim == NULL && count_held() == 0);
    return 0;
}

static void pool_that_nobody_has_ends(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(end_dead_pools, NULL, false), 0);
}

static void options_are_heeded(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(keep_for, "0", true), 0);
    assert_int_equal(run_in_child(keep_for, "1000000", true), 0);
    assert_int_equal(run_in_child(keep_for, "1000000, then 0", true), 0);
    assert_int_equal(run_in_child(be_limited, NULL, true), 0);
    assert_int_equal(run_in_child(share_limit, NULL, true), 0);
    assert_int_equal(run_in_child(share_limit_at_once, NULL, true), 0);
    assert_int_equal(run_in_child(be_limited_to_nothing, "chosen", true), 0);
    assert_int_equal(run_in_child(be_limited_to_nothing, "set", true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_heeded),
        cmocka_unit_test(pool_that_nobody_has_ends),
    };

    if (argc != 2)
        return 2;
    library = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
