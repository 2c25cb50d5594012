/* softgpu/fiber.h - stacks between which one system thread switches.
 *
 * A fiber is a stack with a function that runs on it. soft_fiber_switch() saves what a called function must leave as it
 * was (registers, and how floating-point numbers are rounded) on the stack that it leaves, and goes on where the other one
 * was left. Below each stack is memory without access, so that one that is too deep faults.
 *
 * Threads: a fiber belongs to the thread that made it.
 * Ownership: fibers are made once and used again; they stay as long as their thread.
 */
#ifndef SOFTGPU_FIBER_H
#define SOFTGPU_FIBER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct soft_fiber {
    void *sp;             /* where it was left */
    unsigned char *stack; /* its lowest byte; below it are guard_bytes without access */
    size_t stack_bytes, guard_bytes;
    void (*main)(void *arg);
    void *arg;
    void *sanitizer; /* what ThreadSanitizer, or AddressSanitizer, has for it */
} soft_fiber;

/* The calling thread itself, on the stack that it has. */
void soft_fiber_of_thread(soft_fiber *thread);
/* A fiber whose first switch calls main(arg), which must not return. False: no memory, or the process has as many fibers
 * as it may. */
bool soft_fiber_make(soft_fiber *fiber, void (*main)(void *arg), void *arg);
/* Forgets where the fiber was left: the next switch calls main(arg). */
void soft_fiber_restart(soft_fiber *fiber);
/* Leaves from, on which the caller runs, for to; returns when another switch goes to from. */
void soft_fiber_switch(soft_fiber *from, soft_fiber *to);

#endif
