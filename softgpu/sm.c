/* SM threads: each device has sm_count of them, and each runs one block of a kernel at a time.
 *
 * A launch is on its device's list while it has blocks to hand out. SM threads take them from the
 * first launch of the list in groups, and put a launch they took from behind the others, so that
 * launches share the device. A group is one block unless the grid is many times larger than the
 * device; blocks are handed out in ascending order, so that one which waits for a block of a lower
 * number always sees it run.
 *
 * The blocks of a cooperative launch run all at once: the first is handed out only when as many SM
 * threads as it has blocks are idle, and then it stays at the head of the list until each has one.
 * Until then other launches pass it. */
#include "softgpu/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gvmem/device/kernel.h>

#include "softgpu/block.h"

#define GROUP_BLOCKS_MAX 64u
#define GROUPS_PER_SM 8u /* at least so many, before groups grow */

typedef struct sm_thread {
    struct sm_device *device;
    pthread_t thread;
    bool running;                /* has a group, or may be about to begin it */
    const soft_context *context; /* of that group */
    atomic_bool stop;            /* of that group */
    unsigned char *shared; /* SOFT_SHARED_BYTES_MAX, and a page behind them that cannot be touched */
    soft_block *block;     /* runs those of several threads */
} sm_thread;

typedef struct sm_device {
    TAILQ_HEAD(, soft_launch) launches;
    pthread_cond_t work;
    sm_thread *sms;
    unsigned wanted, started, idle;
} sm_device;

/* A part of a grid: blocks [first, first + count). */
typedef struct sm_group {
    const soft_launch *launch;
    unsigned char *shared;
    soft_block *block;
    uint64_t first, count;
    CUresult result;
} sm_group;

static sm_device devices[SOFT_DEVICES_MAX];
static _Thread_local const sm_device *own_device;

static bool take_group_locked(sm_device *device, sm_group *group)
{
    soft_launch *launch;

    TAILQ_FOREACH(launch, &device->launches, entry)
    if (!launch->cooperative || launch->taken > 0 || device->idle + 1 >= launch->blocks)
        break;
    if (!launch)
        return false;
    group->launch = launch;
    group->first = launch->taken;
    group->count = launch->blocks - launch->taken;
    if (group->count > launch->group)
        group->count = launch->group;
    launch->taken += group->count;
    TAILQ_REMOVE(&device->launches, launch, entry);
    if (launch->taken < launch->blocks && launch->cooperative)
        TAILQ_INSERT_HEAD(&device->launches, launch, entry);
    else if (launch->taken < launch->blocks)
        TAILQ_INSERT_TAIL(&device->launches, launch, entry);
    return true;
}

/* The block behind it, as the grid counts: x first. */
static void count_up(gvm_soft_thread *thread)
{
    for (int i = 0; i < 3 && ++thread->block[i] == thread->grid[i]; i++)
        thread->block[i] = 0;
}

/* What a block costs is what a kernel with small blocks costs, so all that blocks have in common is outside of the loop. */
static void run_group(void *arg)
{
    sm_group *group = arg;
    const soft_launch *launch = group->launch;
    const uint32_t *grid = launch->grid, *size = launch->block;
    const uint64_t first = group->first;
    const soft_config *config;
    const char *text;
    gvm_soft_thread thread = {
        .threads = launch->threads,
        .size = {size[0], size[1], size[2]},
        .block = {(uint32_t)(first % grid[0]), (uint32_t)(first / grid[0] % grid[1]),
                  (uint32_t)(first / grid[0] / grid[1])},
        .grid = {grid[0], grid[1], grid[2]},
        .shared = group->shared + SOFT_SHARED_BYTES_MAX - (launch->shared_bytes + 15) / 16 * 16,
        .shared_bytes = launch->shared_bytes,
    };

    group->result = soft_config_get(&config, &text);
    thread.warp_size = (uint32_t)config->warp_size;
    if (launch->threads == 1)
        *launch->kernel->self() = &thread;
    for (uint64_t i = first; i < first + group->count && group->result == CUDA_SUCCESS; i++) {
        if (launch->threads > 1)
            group->result = soft_block_run(group->block, launch->kernel, launch->params, &thread,
                                           launch->op.serial << 32 ^ i);
        else
            launch->kernel->run(launch->params);
        count_up(&thread);
    }
}

static void finish_blocks_locked(soft_launch *launch, uint64_t count, CUresult result)
{
    if (result != CUDA_SUCCESS)
        soft_context_break_locked(launch->op.context, result);
    launch->finished += count;
    if (launch->finished == launch->blocks)
        soft_op_finish_locked(&launch->op, CUDA_SUCCESS);
}

static void sm_main(void *arg)
{
    sm_thread *self = arg;
    sm_device *device = self->device;
    sm_group group = {.shared = self->shared, .block = self->block};

    own_device = device;
    soft_lock();
    self->thread = pthread_self();
    for (;;) {
        CUresult result;

        if (!take_group_locked(device, &group)) {
            device->idle++;
            soft_sleep_locked(&device->work);
            device->idle--;
            continue;
        }
        if (!TAILQ_EMPTY(&device->launches) && device->idle > 0)
            pthread_cond_signal(&device->work);
        self->running = true;
        self->context = group.launch->op.context;
        atomic_store(&self->stop, false);
        soft_unlock();
        soft_module_touch(group.launch->module);
        result = soft_fault_guard(run_group, &group, &self->stop);
        if (result == CUDA_SUCCESS)
            result = group.result;
        *group.launch->kernel->self() = NULL;
        soft_lock();
        self->running = false;
        finish_blocks_locked((soft_launch *)(uintptr_t)group.launch, group.count, result);
    }
}

static CUresult prepare_locked(sm_device *device)
{
    const soft_config *config;
    const char *text;
    CUresult result = soft_config_get(&config, &text);

    if (result != CUDA_SUCCESS || device->sms)
        return result;
    device->sms = calloc((size_t)config->sm_count, sizeof *device->sms);
    if (!device->sms)
        return CUDA_ERROR_OUT_OF_MEMORY;
    TAILQ_INIT(&device->launches);
    pthread_cond_init(&device->work, NULL);
    device->wanted = (unsigned)config->sm_count;
    return CUDA_SUCCESS;
}

/* A block's memory ends at the page behind, so that a kernel that goes beyond it faults, as on a GPU. */
static unsigned char *map_shared(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (SOFT_SHARED_BYTES_MAX + page - 1) / page * page;
    unsigned char *mapped = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (mapped == MAP_FAILED)
        return NULL;
    if (mprotect(mapped + bytes, page, PROT_NONE) == 0)
        return mapped + bytes - SOFT_SHARED_BYTES_MAX;
    munmap(mapped, bytes + page);
    return NULL;
}

CUresult soft_sm_start_locked(int ordinal)
{
    sm_device *device = &devices[ordinal];
    CUresult result = prepare_locked(device);

    while (result == CUDA_SUCCESS && device->started < device->wanted) {
        sm_thread *sm = &device->sms[device->started];
        char name[32];

        sm->device = device;
        if (!sm->shared)
            sm->shared = map_shared();
        if (!sm->block)
            sm->block = soft_block_new(&sm->stop);
        snprintf(name, sizeof name, "gvmem-sm%d.%u", ordinal, device->started);
        result = sm->shared && sm->block ? soft_thread_start(sm_main, sm, name)
                                         : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            device->started++;
    }
    return result;
}

void soft_sm_push_locked(soft_launch *launch)
{
    sm_device *device = &devices[launch->op.context->device];
    uint64_t group = launch->blocks / (device->wanted * GROUPS_PER_SM);

    launch->group = group == 0 || launch->cooperative ? 1
                    : group < GROUP_BLOCKS_MAX        ? group
                                                      : GROUP_BLOCKS_MAX;
    TAILQ_INSERT_TAIL(&device->launches, launch, entry);
    if (own_device != device) /* else this thread looks next */
        pthread_cond_signal(&device->work);
}

static soft_launch *first_of_locked(const sm_device *device, const soft_context *context)
{
    soft_launch *launch;

    TAILQ_FOREACH(launch, &device->launches, entry)
    if (launch->op.context == context)
        break;
    return launch;
}

void soft_sm_interrupt_locked(const soft_context *context)
{
    sm_device *device = &devices[context->device];
    soft_launch *launch;

    for (unsigned i = 0; i < device->started; i++)
        if (device->sms[i].running && device->sms[i].context == context) {
            atomic_store(&device->sms[i].stop, true);
            pthread_kill(device->sms[i].thread, SOFT_FAULT_STOP);
        }
    while (device->sms && (launch = first_of_locked(device, context))) {
        uint64_t rest = launch->blocks - launch->taken;

        TAILQ_REMOVE(&device->launches, launch, entry);
        launch->taken = launch->blocks;
        finish_blocks_locked(launch, rest, CUDA_SUCCESS);
    }
}
