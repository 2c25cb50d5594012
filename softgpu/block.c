/* The threads of a block: which one runs, and what the others wait for.
 *
 *   NEW      not begun; in the queue
 *   READY    to go on where it stands; in the queue, or the one that runs
 *   BARRIER  at gvm_block_sync(), until all that have not ended are there
 *   WARP     in an operation of its warp, until the lanes of the mask that have not ended are in the same one
 *   ENDED    has returned from the kernel
 *
 * A thread runs until it has to wait, ends, pauses, or has touched shared words STEPS times: so one that waits for a word of
 * another's in a loop sees it written. The queue is in the order in which threads came to it; with switches= any
 * thread of it is next, and after any number of steps. If the queue is empty and no thread runs, those left wait for each
 * other: the block ends.
 *
 * A fiber that has run a thread to its end takes the next NEW one. A kernel whose threads do not wait so needs one
 * fiber.
 *
 * What is not kernel runs disarmed: a stop that comes meanwhile is found when the kernel is gone back to. A fault in the
 * kernel ends in the guard at the bottom of the same fiber, and the block with it.
 *
 *   I1  every thread that has begun and not ended has a fiber; every other fiber made is in the list of free ones, at the
 *       place in run_threads() where it is given a thread, or has not begun.
 *   I2  a bit of waiting is set for the lanes in state WARP, one of ended for those ENDED or not there.
 */
#include "softgpu/block.h"

#include <stdlib.h>
#include <threads.h>

#include "softgpu/engine.h"
#include "softgpu/fiber.h"

#define THREADS_MAX 1024u /* a power of two: the queue is a ring */
#define LANES_MAX 32u
#define STEPS 64u                           /* between switches, without switches= */
#define STEPS_RANDOM 16u                    /* at most, with it */
#define STACK_LEFT_BYTES ((size_t)16 << 10) /* more than the driver's part of a fiber needs */

typedef struct block_fiber {
    soft_fiber fiber;
    soft_block *block;
    struct block_thread *thread; /* the one it runs, or has run */
    bool free;
    struct block_fiber *next; /* free one */
} block_fiber;

typedef struct block_thread {
    gvm_soft_thread view;
    soft_block *block;
    block_fiber *fiber;
    enum { NEW, READY, BARRIER, WARP, ENDED } state;
    gvm_soft_exchange *exchange; /* in WARP */
} block_thread;

typedef struct block_warp {
    uint32_t waiting, ended;
} block_warp;

struct soft_block {
    atomic_bool *stop;
    soft_fiber own; /* of the SM thread */
    block_fiber *fibers[THREADS_MAX], *free;
    unsigned fiber_count;
    /* of the block that runs */
    const gvm_soft_kernel *kernel;
    const void *params;
    gvm_soft_thread **slot;
    block_thread *running;
    block_fiber *fiber; /* on which it runs */
    CUresult result;
    uint64_t random; /* 0: no switches at random */
    uint32_t count, ended, at_barrier, pauses;
    uint32_t queue_first, queued;
    uint16_t queue[THREADS_MAX];
    block_warp warps[LANES_MAX];
    block_thread threads[THREADS_MAX];
};

static block_thread *thread_of(gvm_soft_thread *view)
{
    return (block_thread *)(void *)view; /* its first member */
}

static uint32_t draw(soft_block *b, uint32_t below)
{
    uint64_t z;

    b->random += 0x9e3779b97f4a7c15u;
    z = (b->random ^ b->random >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

/* ---- the queue */

static void put_in_queue(block_thread *t)
{
    soft_block *b = t->block;

    b->queue[(b->queue_first + b->queued++) % THREADS_MAX] = (uint16_t)t->view.thread;
}

/* It waits no longer. The one that runs need not be in the queue. */
static void make_ready(block_thread *t)
{
    t->state = READY;
    if (t != t->block->running)
        put_in_queue(t);
}

static block_thread *take_from_queue(soft_block *b)
{
    uint16_t *first = &b->queue[b->queue_first], *chosen = first;
    block_thread *t;

    if (b->queued == 0)
        return NULL;
    if (b->random != 0)
        chosen = &b->queue[(b->queue_first + draw(b, b->queued)) % THREADS_MAX];
    t = &b->threads[*chosen];
    *chosen = *first;
    b->queue_first = (b->queue_first + 1) % THREADS_MAX;
    b->queued--;
    return t;
}

/* ---- fibers */

static void fiber_main(void *arg);

/* Back to the SM thread; the fibers are restarted there. */
_Noreturn static void end_block(soft_block *b, CUresult result)
{
    b->result = result;
    soft_fiber_switch(&b->fiber->fiber, &b->own);
    abort(); /* restarted fibers do not come back */
}

/* From the kernel to the driver's part, in which a fault would be the process's: ends the block here if the stack has
 * little left. */
static soft_recovery *leave_kernel(const block_thread *t)
{
    unsigned char *stack = t->fiber->fiber.stack;

    if ((uintptr_t)__builtin_frame_address(0) < (uintptr_t)stack + STACK_LEFT_BYTES)
        *(volatile unsigned char *)(stack - 1) = 0; /* faults, as a stack that is too deep */
    return soft_fault_disarm();
}

/* Back to the kernel. */
static void resume_kernel(soft_block *b, soft_recovery *point)
{
    if (soft_fault_arm(point))
        return;
    soft_fault_disarm();
    end_block(b, CUDA_ERROR_LAUNCH_FAILED);
}

static block_fiber *take_fiber(soft_block *b)
{
    block_fiber *f = b->free;

    if (f) {
        b->free = f->next;
        f->free = false;
        return f;
    }
    f = malloc(sizeof *f);
    if (!f || !soft_fiber_make(&f->fiber, fiber_main, f)) {
        free(f);
        return NULL;
    }
    f->block = b;
    f->free = false;
    b->fibers[b->fiber_count++] = f;
    return f;
}

static void free_fiber(block_fiber *f)
{
    f->free = true;
    f->next = f->block->free;
    f->block->free = f;
}

/* The thread runs on the fiber that it has, from here on or from the next switch to it. */
static void set_running(block_thread *t)
{
    soft_block *b = t->block;

    t->state = READY;
    t->view.steps = b->random != 0 ? 1 + draw(b, STEPS_RANDOM) : STEPS;
    b->running = t;
    b->fiber = t->fiber;
    *b->slot = &t->view;
}

/* Gives a new thread a fiber. */
static bool begin_thread(block_thread *t)
{
    block_fiber *f = take_fiber(t->block);

    if (f) {
        f->thread = t;
        t->fiber = f;
    }
    return f != NULL;
}

static void switch_to(soft_fiber *from, block_thread *next)
{
    if (next->state == NEW && !begin_thread(next))
        end_block(next->block, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    set_running(next);
    soft_fiber_switch(from, &next->fiber->fiber);
}

/* Runs others until t, which runs, is taken from the queue: it is there already, or another puts it there. */
static void let_others_run(block_thread *t)
{
    soft_block *b = t->block;
    block_thread *next = take_from_queue(b);

    if (!next)
        end_block(b, CUDA_ERROR_LAUNCH_TIMEOUT);
    if (next == t)
        set_running(t);
    else
        switch_to(&t->fiber->fiber, next);
}

/* Runs others if t, which runs, has to wait, or is due to switch. */
static void wait_or_go_on(block_thread *t)
{
    if (t->state == READY) {
        if (t->block->random == 0 && --t->view.steps > 0)
            return;
        put_in_queue(t);
    }
    let_others_run(t);
}

/* ---- what threads wait for */

/* Ends the wait at the barrier if all are there. */
static void pass_barrier(soft_block *b)
{
    if (b->at_barrier + b->ended < b->count)
        return;
    b->at_barrier = 0;
    for (uint32_t i = 0; i < b->count; i++)
        if (b->threads[i].state == BARRIER) {
            b->threads[i].state = READY;
            put_in_queue(&b->threads[i]);
        }
}

/* Ends the operation in which the lane waits if all its lanes are there. */
static void finish_exchange(soft_block *b, uint32_t warp, uint32_t lane)
{
    block_thread *first = &b->threads[warp * b->threads[0].view.warp_size];
    const gvm_soft_exchange *like = first[lane].exchange;
    const uint32_t lanes = like->mask & ~b->warps[warp].ended;
    uint64_t values[LANES_MAX];
    uint32_t set = 0;

    if ((lanes & ~b->warps[warp].waiting) != 0)
        return;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        const uint32_t i = (uint32_t)__builtin_ctz(left);

        if (first[i].exchange->mask != like->mask || first[i].exchange->kind != like->kind)
            return;
        values[i] = first[i].exchange->value;
        set |= (uint32_t)(values[i] != 0) << i;
    }
    b->warps[warp].waiting &= ~lanes;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
        block_thread *t = &first[__builtin_ctz(left)];
        gvm_soft_exchange *e = t->exchange;
        const bool there = e->from < LANES_MAX && (lanes >> e->from & 1) != 0;

        e->value = there ? values[e->from] : GVM_SOFT_NONSENSE;
        e->set = set;
        t->exchange = NULL;
        make_ready(t);
    }
}

static void end_thread(block_thread *t)
{
    soft_block *b = t->block;
    const uint32_t number = t->view.thread / t->view.warp_size;
    block_warp *warp = &b->warps[number];

    t->state = ENDED;
    b->ended++;
    b->pauses = 0;
    warp->ended |= 1u << t->view.lane;
    pass_barrier(b);
    for (uint32_t left = warp->waiting; left != 0; left &= left - 1)
        if ((warp->waiting & left & -left) != 0) /* still */
            finish_exchange(b, number, (uint32_t)__builtin_ctz(left));
}

/* ---- what the kernel calls */

static void call_step(gvm_soft_thread *self)
{
    block_thread *t = thread_of(self);
    soft_recovery *point = leave_kernel(t);

    t->block->pauses = 0;
    put_in_queue(t);
    let_others_run(t);
    resume_kernel(t->block, point);
}

/* Sleeps if all that could run have paused since one of them did anything else. */
static void call_pause(gvm_soft_thread *self)
{
    const struct timespec wait = {0, 1000};
    block_thread *t = thread_of(self);
    soft_block *b = t->block;
    soft_recovery *point = leave_kernel(t);

    put_in_queue(t);
    if (++b->pauses >= b->queued) {
        b->pauses = 0;
        thrd_sleep(&wait, NULL);
    }
    let_others_run(t);
    resume_kernel(b, point);
}

static void call_barrier(gvm_soft_thread *self)
{
    block_thread *t = thread_of(self);
    soft_block *b = t->block;
    soft_recovery *point = leave_kernel(t);

    b->pauses = 0;
    b->at_barrier++;
    t->state = BARRIER;
    pass_barrier(b);
    let_others_run(t);
    resume_kernel(b, point);
}

static void call_exchange(gvm_soft_thread *self, gvm_soft_exchange *exchange)
{
    block_thread *t = thread_of(self);
    soft_block *b = t->block;
    soft_recovery *point = leave_kernel(t);
    const uint32_t warp = self->thread / self->warp_size;

    if ((exchange->mask >> self->lane & 1) == 0)
        end_block(b, CUDA_ERROR_ILLEGAL_INSTRUCTION);
    exchange->mask &= ~0u >> (LANES_MAX - self->warp_size); /* ~0u and gvm_warp_mask() name the same lanes */
    b->pauses = 0;
    t->state = WARP;
    t->exchange = exchange;
    b->warps[warp].waiting |= 1u << self->lane;
    finish_exchange(b, warp, self->lane);
    wait_or_go_on(t);
    resume_kernel(b, point);
}

static const gvm_soft_calls calls = {
    .step = call_step,
    .pause = call_pause,
    .barrier = call_barrier,
    .exchange = call_exchange,
};

/* ---- running */

/* Runs the fiber's thread, and then others, for good. */
static void run_threads(void *arg)
{
    block_fiber *f = arg;
    soft_block *b = f->block;

    for (;;) {
        soft_recovery *point;
        block_thread *next;

        b->kernel->run(b->params);
        point = soft_fault_disarm();
        end_thread(f->thread);
        next = take_from_queue(b);
        if (!next && b->ended < b->count)
            end_block(b, CUDA_ERROR_LAUNCH_TIMEOUT);
        if (next && next->state == NEW) {
            f->thread = next;
            next->fiber = f;
            set_running(next);
        } else {
            free_fiber(f);
            if (next)
                switch_to(&f->fiber, next);
            else
                soft_fiber_switch(&f->fiber, &b->own);
        }
        resume_kernel(b, point); /* with a new thread */
    }
}

static void fiber_main(void *arg)
{
    block_fiber *f = arg;
    const CUresult result = soft_fault_guard_stack(run_threads, f, f->block->stop, f->fiber.stack,
                                                   f->fiber.guard_bytes);

    end_block(f->block, result == CUDA_SUCCESS ? CUDA_ERROR_LAUNCH_FAILED
                                               : result); /* success: it was stopped before */
}

soft_block *soft_block_new(atomic_bool *stop)
{
    soft_block *b = calloc(1, sizeof *b);

    if (b)
        b->stop = stop;
    return b;
}

static void prepare(soft_block *b, const gvm_soft_thread *like, uint64_t number)
{
    const soft_config *config;
    const char *text;
    const uint32_t lanes = like->warp_size;

    (void)soft_config_get(&config, &text);
    b->random = 0;
    if (config->switches != 0)
        b->random = (config->switches ^ number * 0xd1342543de82ef95u) | 1;
    b->result = CUDA_SUCCESS;
    b->count = like->threads;
    b->ended = b->at_barrier = b->pauses = b->queue_first = b->queued = 0;
    for (uint32_t w = 0; w * lanes < b->count; w++) {
        const uint32_t there = b->count - w * lanes < lanes ? b->count - w * lanes : lanes;

        b->warps[w] = (block_warp){.ended = there < LANES_MAX ? ~0u << there : 0};
    }
    for (uint32_t i = 0; i < b->count; i++) {
        block_thread *t = &b->threads[i];

        *t = (block_thread){.view = *like, .block = b, .state = NEW};
        t->view.calls = &calls;
        t->view.thread = i;
        t->view.lane = i % lanes;
        t->view.index[0] = i % like->size[0];
        t->view.index[1] = i / like->size[0] % like->size[1];
        t->view.index[2] = i / like->size[0] / like->size[1];
        put_in_queue(t);
    }
}

CUresult soft_block_run(soft_block *b, const gvm_soft_kernel *kernel, const void *params,
                        const gvm_soft_thread *like, uint64_t number)
{
    soft_recovery *point = soft_fault_disarm();
    block_thread *first;

    if (b->fiber_count == 0)
        soft_fiber_of_thread(&b->own);
    b->kernel = kernel;
    b->params = params;
    b->slot = kernel->self();
    prepare(b, like, number);
    first = take_from_queue(b);
    if (begin_thread(first)) {
        set_running(first);
        soft_fiber_switch(&b->own, &first->fiber->fiber);
    } else {
        b->result = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    for (unsigned i = 0; b->result != CUDA_SUCCESS && i < b->fiber_count; i++)
        if (!b->fibers[i]->free) { /* where it stands there is nothing to give back */
            soft_fiber_restart(&b->fibers[i]->fiber);
            free_fiber(b->fibers[i]);
        }
    (void)soft_fault_arm(point); /* the caller finds a stop */
    return b->result;
}
