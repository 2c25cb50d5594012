/* softgpu/block.c and fiber.c: what the conformance table cannot hold, as a real device hangs, or dies, or leaves it open.
 *
 * Blocks are run here as an SM thread runs them, without the rest of the software GPU. After each block that failed the same
 * fibers run a good one.
 */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fenv.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "softgpu/block.h"
#include "softgpu/engine.h"
#include "softgpu/fiber.h"

#define THREADS 64u
#define LIMIT_S 60

static struct {
    int (*fn)(void);
    int outcome;
    sem_t ended, reached;
    pthread_t thread;
    atomic_bool stop;
    soft_block *block;
    uint32_t words[1024];
    uint32_t count;
} fixture;

/* ---- running */

typedef struct job {
    gvm_soft_kernel kernel;
    gvm_soft_thread like;
    CUresult result;
} job;

static void run_job(void *arg)
{
    job *j = arg;

    j->result = soft_block_run(fixture.block, &j->kernel, NULL, &j->like, 1);
}

static CUresult run_shape(void (*run)(const void *params), uint32_t x, uint32_t y, uint32_t z)
{
    const soft_config *config;
    const char *text;
    job j = {.kernel = {GVM_SOFT_ABI, 0, run, gvm_soft_slot},
             .like = {.threads = x * y * z, .size = {x, y, z}, .grid = {1, 1, 1}}};
    CUresult result = soft_config_get(&config, &text);

    j.like.warp_size = (uint32_t)config->warp_size;
    fixture.count = 0;
    memset(fixture.words, 0, sizeof fixture.words);
    if (result == CUDA_SUCCESS)
        result = soft_fault_guard(run_job, &j, &fixture.stop);
    gvm_soft_current = NULL;
    return result != CUDA_SUCCESS ? result : j.result;
}

static CUresult run_block(void (*run)(const void *params))
{
    return run_shape(run, THREADS, 1, 1);
}

static void sm_main(void *arg)
{
    (void)arg;
    fixture.thread = pthread_self();
    fixture.block = soft_block_new(&fixture.stop);
    fixture.outcome = fixture.block ? fixture.fn() : 1;
    sem_post(&fixture.ended);
    for (;;)
        pause(); /* as an SM thread, it never ends */
}

static int begin(const char *machine)
{
    const soft_config *config;
    const char *text;

    setenv("GVMEM_SOFTGPU", machine, 1);
    CHILD_EXPECT(soft_config_get(&config, &text) == CUDA_SUCCESS);
    soft_fault_install();
    CHILD_EXPECT(sem_init(&fixture.ended, 0, 0) == 0 && sem_init(&fixture.reached, 0, 0) == 0);
    end_child_after(LIMIT_S);
    CHILD_EXPECT(soft_thread_start(sm_main, NULL, "test-sm") == CUDA_SUCCESS);
    return 0;
}

static int run_on_sm(void *fn)
{
    memcpy(&fixture.fn, &fn, sizeof fn);
    CHILD_EXPECT(begin("threads=1024,warp=32") == 0);
    while (sem_wait(&fixture.ended) != 0)
        ;
    return fixture.outcome;
}

#define SM_TEST(name, fn) \
    static void name(void **state) \
    { \
        (void)state; \
        assert_child_succeeds(run_on_sm, (void *)(uintptr_t)fn); \
    }

/* Likewise, where a kernel faults. */
#define SM_TEST_OF_FAULTS(name, fn) \
    static void name(void **state) \
    { \
        (void)state; \
        SKIP_UNDER_VALGRIND(VALGRIND_FAULT); \
        assert_child_succeeds(run_on_sm, (void *)(uintptr_t)fn); \
    }

/* ---- a good block */

static void count_in_rounds(const void *params)
{
    (void)params;
    for (uint32_t round = 0; round < 3; round++) {
        fixture.words[gvm_thread()] += gvm_warp_shuffle_xor_u32(~0u, gvm_thread(), 1, 32);
        gvm_block_sync();
        gvm_atomic_add_u32(&fixture.count, fixture.words[gvm_block_threads() - 1 - gvm_thread()]);
        gvm_block_sync();
    }
}

static int run_good_block(uint32_t threads)
{
    CHILD_EXPECT(run_shape(count_in_rounds, threads, 1, 1) == CUDA_SUCCESS);
    CHILD_EXPECT(fixture.count == threads * (threads - 1) / 2 * (1 + 2 + 3));
    for (uint32_t i = 0; i < threads; i++)
        CHILD_EXPECT(fixture.words[i] == 3 * (i ^ 1));
    return 0;
}

/* The block ends so, and the same fibers run another. */
static int expect_end(void (*run)(const void *params), CUresult result)
{
    for (int i = 0; i < 3; i++) {
        CHILD_EXPECT(run_block(run) == result);
        CHILD_EXPECT(run_good_block(THREADS) == 0);
    }
    CHILD_EXPECT(run_good_block(1024) == 0);
    return 0;
}

/* ---- what never comes to its end by itself */

static void wait_for_one_that_waits(const void *params)
{
    (void)params;
    if (gvm_thread() == 5)
        gvm_warp_sync_lanes(1u << 5 | 1u << 6); /* 6 is at the barrier */
    gvm_block_sync();
}

static void name_different_lanes(const void *params)
{
    (void)params;
    gvm_warp_sync_lanes(gvm_lane() == 3 ? ~0u : 0x7fffffffu | 1u << gvm_lane());
}

static void call_different_operations(const void *params)
{
    (void)params;
    if (gvm_thread() % 2 == 0)
        (void)gvm_warp_ballot(~0u, 1);
    else
        (void)gvm_warp_shuffle_u32(~0u, 1, 0, 32);
}

static void call_different_votes(const void *params)
{
    (void)params;
    if (gvm_thread() % 3 == 0)
        (void)gvm_warp_ballot(~0u, 1);
    else if (gvm_thread() % 3 == 1)
        (void)gvm_warp_any(~0u, 1);
    else
        (void)gvm_warp_all(~0u, 1);
}

static void call_different_shuffles(const void *params)
{
    (void)params;
    if (gvm_thread() % 2 == 0)
        (void)gvm_warp_shuffle_up_u32(~0u, 1, 1, 32);
    else
        (void)gvm_warp_shuffle_down_u32(~0u, 1, 1, 32);
}

static void shuffle_different_types(const void *params)
{
    (void)params;
    if (gvm_thread() % 2 == 0)
        (void)gvm_warp_shuffle_u32(~0u, 1, 1, 32);
    else
        (void)gvm_warp_shuffle_u64(~0u, 1, 1, 32);
}

static int deadlock(void)
{
    CHILD_EXPECT(expect_end(wait_for_one_that_waits, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    CHILD_EXPECT(expect_end(name_different_lanes, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    CHILD_EXPECT(expect_end(call_different_operations, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    CHILD_EXPECT(expect_end(call_different_votes, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    CHILD_EXPECT(expect_end(call_different_shuffles, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    CHILD_EXPECT(expect_end(shuffle_different_types, CUDA_ERROR_LAUNCH_TIMEOUT) == 0);
    return 0;
}

SM_TEST(block_whose_threads_wait_for_each_other_times_out, deadlock)

static void vote_for_others(const void *params)
{
    (void)params;
    gvm_block_sync();
    if (gvm_thread() == 40)
        (void)gvm_warp_ballot(1, 1);
    gvm_block_sync();
}

static int not_in_mask(void)
{
    return expect_end(vote_for_others, CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

SM_TEST(lane_that_its_mask_does_not_name_ends_the_block, not_in_mask)

/* ---- warps of few lanes */

static void name_all_lanes_in_two_ways(const void *params)
{
    (void)params;
    fixture.words[gvm_thread()] = gvm_warp_ballot(gvm_lane() % 2 == 0 ? ~0u : gvm_warp_mask(), 1);
}

static int name_all_lanes(void)
{
    CHILD_EXPECT(run_block(name_all_lanes_in_two_ways) == CUDA_SUCCESS);
    for (uint32_t i = 0; i < THREADS; i++)
        CHILD_EXPECT(fixture.words[i] == 0xff);
    return 0;
}

static int name_all_of_8_lanes(void *unused)
{
    (void)unused;
    fixture.fn = name_all_lanes;
    CHILD_EXPECT(begin("warp=8") == 0);
    while (sem_wait(&fixture.ended) != 0)
        ;
    return fixture.outcome;
}

static void mask_may_name_lanes_that_a_warp_has_not(void **state)
{
    (void)state;
    assert_child_succeeds(name_all_of_8_lanes, NULL);
}

/* ---- faults */

static void write_nowhere(const void *params)
{
    uint32_t *volatile nowhere = (uint32_t *)16;

    (void)params;
    gvm_block_sync();
    if (gvm_thread() == 33)
        *nowhere = 1;
    gvm_block_sync();
}

static volatile uint32_t sink;

static __attribute__((noinline)) uint32_t descend(uint32_t depth)
{
    volatile uint32_t frame[256];

    for (uint32_t i = 0; i < 256; i++)
        frame[i] = depth + i;
    return depth == 0 ? frame[sink % 256] : descend(depth - 1) + frame[depth % 256];
}

static void go_too_deep(const void *params)
{
    (void)params;
    gvm_block_sync();
    if (gvm_thread() == 33)
        sink = descend(100000);
    gvm_block_sync();
}

static __attribute__((noinline)) uint32_t descend_and_wait(uint32_t depth)
{
    volatile uint32_t frame[2];

    frame[depth % 2] = depth;
    gvm_warp_sync_lanes(1u << gvm_lane());
    return depth == 0 ? frame[0] : descend_and_wait(depth - 1) + frame[depth % 2];
}

/* The stack ends in a function of the driver, unless the driver looks. */
static void go_too_deep_and_wait(const void *params)
{
    (void)params;
    gvm_block_sync();
    if (gvm_thread() == 33)
        sink = descend_and_wait(1000000);
    gvm_block_sync();
}

static int faults(void)
{
    CHILD_EXPECT(expect_end(go_too_deep_and_wait, CUDA_ERROR_HARDWARE_STACK_ERROR) == 0);
    CHILD_EXPECT(expect_end(write_nowhere, CUDA_ERROR_ILLEGAL_ADDRESS) == 0);
    CHILD_EXPECT(expect_end(go_too_deep, CUDA_ERROR_HARDWARE_STACK_ERROR) == 0);
    return 0;
}

SM_TEST_OF_FAULTS(thread_that_faults_ends_its_block_alone, faults)

/* ---- stopping */

static void wait_for_ever(const void *params)
{
    (void)params;
    if (gvm_thread() == THREADS - 1)
        sem_post(&fixture.reached);
    while (gvm_load_acquire_u32(&fixture.count) == 0)
        if (gvm_thread() % 3 == 0)
            gvm_pause();
        else if (gvm_thread() % 3 == 1)
            (void)gvm_warp_ballot(1u << gvm_lane(), 1);
}

static int run_until_stopped(void)
{
    for (int i = 0; i < 100; i++) {
        CHILD_EXPECT(run_block(wait_for_ever) == CUDA_ERROR_LAUNCH_FAILED);
        atomic_store(&fixture.stop, false);
        CHILD_EXPECT(run_good_block(THREADS) == 0);
    }
    return 0;
}

static int stop_blocks(void *arg)
{
    (void)arg;
    fixture.fn = run_until_stopped;
    CHILD_EXPECT(begin("switches=3") == 0);
    for (int i = 0; i < 100; i++) {
        while (sem_wait(&fixture.reached) != 0)
            ;
        atomic_store(&fixture.stop, true);
        pthread_kill(fixture.thread, SOFT_FAULT_STOP);
    }
    while (sem_wait(&fixture.ended) != 0)
        ;
    return fixture.outcome;
}

CHILD_TEST_NOT_VALGRIND(block_that_is_stopped_leaves_its_fibers_usable, stop_blocks,
                        "it ends itself where a signal handler leaves a system call by siglongjmp()")

static size_t count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    size_t lines = 0;

    for (int c; maps && (c = getc(maps)) != EOF;)
        lines += c == '\n';
    if (maps)
        fclose(maps);
    return lines;
}

static int fail_often(void)
{
    size_t before;

    CHILD_EXPECT(expect_end(write_nowhere, CUDA_ERROR_ILLEGAL_ADDRESS) == 0);
    before = count_mappings();
    for (int i = 0; i < 200; i++) {
        CHILD_EXPECT(run_block(write_nowhere) == CUDA_ERROR_ILLEGAL_ADDRESS);
        CHILD_EXPECT(run_good_block(THREADS) == 0);
    }
    CHILD_EXPECT(count_mappings() <= before + 8);
    return 0;
}

SM_TEST_OF_FAULTS(blocks_that_fail_take_no_more_stacks, fail_often)

/* ---- mappings: a process may have 65,530 of them */

static bool has_light_guards(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool yes = page != MAP_FAILED && madvise(page, bytes, 102 /* MADV_GUARD_INSTALL */) == 0;

    if (page != MAP_FAILED)
        munmap(page, bytes);
    return yes;
}

static int run_full_block(void)
{
    size_t before;

    CHILD_EXPECT(run_good_block(2) == 0);
    before = count_mappings();
    CHILD_EXPECT(run_good_block(1024) == 0);
    CHILD_EXPECT(SANITIZED || !has_light_guards() || count_mappings() < before + 64);
    return 0;
}

SM_TEST(stacks_of_a_block_share_mappings, run_full_block)

/* madvise() is that of a kernel that does not know guards. */
static bool forbid_light_guards(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 102 /* MADV_GUARD_INSTALL */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 && !has_light_guards();
}

static void run_nothing(void *arg)
{
    (void)arg;
}

static int make_many_fibers(void)
{
    soft_block *const first = fixture.block;
    soft_fiber fiber;
    size_t made = 0;

    if (SANITIZED || !forbid_light_guards())
        return 0;
    CHILD_EXPECT(expect_end(go_too_deep, CUDA_ERROR_HARDWARE_STACK_ERROR) == 0);
    while (made < 40000 && soft_fiber_make(&fiber, run_nothing, NULL))
        made++;
    CHILD_EXPECT(made + 1024 == 16384);
    CHILD_EXPECT(count_mappings() < 40000);
    fixture.block = soft_block_new(&fixture.stop);
    CHILD_EXPECT(fixture.block != NULL);
    CHILD_EXPECT(run_block(count_in_rounds) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    fixture.block = first;
    return run_good_block(1024);
}

SM_TEST_OF_FAULTS(stacks_leave_mappings_to_the_program, make_many_fibers)

static int no_stacks(void)
{
    struct rlimit limit, none;

    if (SANITIZED) /* which needs address space of its own */
        return 0;
    CHILD_EXPECT(run_good_block(2) == 0);
    CHILD_EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    none = limit;
    none.rlim_cur = 1;
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &none) == 0);
    CHILD_EXPECT(run_block(count_in_rounds) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHILD_EXPECT(run_good_block(2) == 0);
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    return run_good_block(THREADS);
}

static int no_first_stack(void)
{
    struct rlimit limit, none;

    if (SANITIZED)
        return 0;
    CHILD_EXPECT(getrlimit(RLIMIT_AS, &limit) == 0);
    none = limit;
    none.rlim_cur = 1;
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &none) == 0);
    CHILD_EXPECT(run_block(count_in_rounds) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    CHILD_EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
    return run_good_block(THREADS);
}

SM_TEST(block_without_memory_for_stacks_is_refused, no_stacks)
SM_TEST(block_without_memory_for_its_first_stack_is_refused, no_first_stack)

/* ---- which thread runs */

static void note_stack(const void *params)
{
    (void)params;
    if (gvm_thread() == 0)
        fixture.words[0] = (uint32_t)(uintptr_t)__builtin_frame_address(0);
    fixture.count += fixture.words[0] == (uint32_t)(uintptr_t)__builtin_frame_address(0);
}

static int share_a_stack(void)
{
    CHILD_EXPECT(run_block(note_stack) == CUDA_SUCCESS);
    CHILD_EXPECT(fixture.count == THREADS);
    return 0;
}

SM_TEST(threads_that_do_not_wait_share_one_stack, share_a_stack)

/* Each thread rounds as it set it, whatever others have set meanwhile. */
static void set_rounding(const void *params)
{
    const int mode = gvm_thread() % 2 == 0 ? FE_UPWARD : FE_DOWNWARD;
    volatile double one = 1, three = 3;
    double third;

    (void)params;
    fesetround(mode);
    third = one / three;
    for (int i = 0; i < 10; i++) {
        gvm_block_sync();
        fixture.count += fegetround() == mode && one / three <= third && third <= one / three;
    }
    fesetround(FE_TONEAREST);
}

static int keep_rounding(void)
{
    CHILD_EXPECT(run_block(set_rounding) == CUDA_SUCCESS);
    CHILD_EXPECT(fixture.count == 10 * THREADS);
    return 0;
}

SM_TEST(thread_keeps_its_rounding_of_numbers, keep_rounding)

/* The order in which threads come past, as a number. */
static void note_order(const void *params)
{
    (void)params;
    for (int i = 0; i < 10; i++) {
        const uint32_t seen = gvm_load_acquire_u32(&fixture.count);

        fixture.count = (seen ^ gvm_thread()) * 0x9e3779b1u;
    }
}

static int print_order(void)
{
    CHILD_EXPECT(run_block(note_order) == CUDA_SUCCESS);
    return 0;
}

static int order_by(void *machine)
{
    fixture.fn = print_order;
    CHILD_EXPECT(begin(machine) == 0);
    while (sem_wait(&fixture.ended) != 0)
        ;
    CHILD_EXPECT(fixture.outcome == 0);
    return (int)(fixture.count % 251) + 2; /* 1 is a failure */
}

static int order_of(const char *machine)
{
    const int status = run_in_child(order_by, (void *)(uintptr_t)machine, false);

    assert_true(WIFEXITED(status) && WEXITSTATUS(status) > 1);
    return WEXITSTATUS(status);
}

static void switches_come_from_their_seed(void **state)
{
    const int one = order_of("switches=1");
    int others = 0;

    (void)state;
    assert_int_equal(order_of("switches=1"), one);
    assert_int_equal(order_of("switches=0"), order_of("threads=64"));
    others += order_of("switches=2") != one;
    others += order_of("switches=3") != one;
    others += order_of("switches=0") != one;
    assert_in_range(others, 2, 3);
}

/* ---- names */

/* What a program calls its types is its own affair. */
typedef struct params {
    uint32_t *at;
    uint32_t value;
} params;

GVM_KERNEL(store_value, params, p)
{
    *p.at = p.value;
}

static void kernel_may_have_an_argument_of_any_name(void **state)
{
    uint32_t word = 0;
    const params argument = {&word, 5};

    (void)state;
    gvm_soft_kernel_store_value.run(&argument);
    assert_int_equal(word, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_whose_threads_wait_for_each_other_times_out),
        cmocka_unit_test(lane_that_its_mask_does_not_name_ends_the_block),
        cmocka_unit_test(mask_may_name_lanes_that_a_warp_has_not),
        cmocka_unit_test(thread_that_faults_ends_its_block_alone),
        cmocka_unit_test(block_that_is_stopped_leaves_its_fibers_usable),
        cmocka_unit_test(blocks_that_fail_take_no_more_stacks),
        cmocka_unit_test(stacks_of_a_block_share_mappings),
        cmocka_unit_test(stacks_leave_mappings_to_the_program),
        cmocka_unit_test(block_without_memory_for_stacks_is_refused),
        cmocka_unit_test(block_without_memory_for_its_first_stack_is_refused),
        cmocka_unit_test(threads_that_do_not_wait_share_one_stack),
        cmocka_unit_test(thread_keeps_its_rounding_of_numbers),
        cmocka_unit_test(switches_come_from_their_seed),
        cmocka_unit_test(kernel_may_have_an_argument_of_any_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
