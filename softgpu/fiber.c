/* Fibers: stacks and the switch between them. The sanitizers follow a thread's stack, so they are told of each switch;
 * valgrind is told of each stack. */
#define _GNU_SOURCE
#include "softgpu/fiber.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

#if defined(ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define STACK_REGISTER(low, high) ((void)VALGRIND_STACK_REGISTER(low, high))
#endif
#endif
#ifndef STACK_REGISTER
#define STACK_REGISTER(low, high) ((void)0)
#endif

/* Sanitizers and builds without optimisation take several times the stack. Only pages that are used are memory. */
#define STACK_BYTES ((size_t)512 << 10)
/* More than a page: a function with large arrays may begin far below its caller. */
#define GUARD_BYTES ((size_t)64 << 10)
/* Before Linux 6.13 each guard takes two of the mappings that a process may have, 65,530 if nothing else is set. So many
 * guards leave half of them to the program. */
#define GUARDS_OF_MAPPINGS_MAX 16384u
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* ---- the switch */

/* void soft_fiber_swap(void **save, void *sp): saves the registers on the stack, the stack's address in *save, and takes
 * those of the other stack.
 * soft_fiber_first: where a new fiber is taken up; calls a function with an argument.
 * Both are symbols of this file alone: hidden, so that the compiler takes their addresses from no table of the linker's. */
void soft_fiber_swap(void **save, void *sp) __attribute__((visibility("hidden")));
void soft_fiber_first(void) __attribute__((visibility("hidden")));

/* clang-format off */
#if defined(__x86_64__)

/* What a switch leaves on a stack, from its lowest word. */
typedef struct saved {
    uint32_t mxcsr;
    uint16_t x87, unused;
    void *r15, *r14, *r13, *r12, *rbx, *rbp, *pc;
} saved;

__asm__(".text\n"
        ".type soft_fiber_swap, @function\n"
        ".p2align 4\n"
        "soft_fiber_swap:\n"
        "    endbr64\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    sub $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    add $8, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size soft_fiber_swap, .-soft_fiber_swap\n"
        ".type soft_fiber_first, @function\n"
        ".p2align 4\n"
        "soft_fiber_first:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n" /* nothing has called it: stack traces end here */
        "    endbr64\n"
        "    mov %r13, %rdi\n"
        "    call *%r12\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size soft_fiber_first, .-soft_fiber_first\n");

static void save_start(saved *at, void (*fn)(soft_fiber *), soft_fiber *fiber)
{
    __asm__("stmxcsr %0" : "=m"(at->mxcsr));
    __asm__("fnstcw %0" : "=m"(at->x87));
    memcpy(&at->r12, &fn, sizeof fn);
    at->r13 = fiber;
    at->pc = (void *)(uintptr_t)soft_fiber_first;
}

#elif defined(__aarch64__)

typedef struct saved {
    void *x[12];  /* x19 to x30; the last is where to go on */
    double d[8];  /* d8 to d15 */
    uint64_t fpcr, unused;
} saved;

__asm__(".text\n"
        ".type soft_fiber_swap, %function\n"
        ".p2align 4\n"
        "soft_fiber_swap:\n"
        "    hint #34\n" /* bti c */
        "    sub sp, sp, #176\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mrs x9, fpcr\n"
        "    str x9, [sp, #160]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldr x9, [sp, #160]\n"
        "    msr fpcr, x9\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    add sp, sp, #176\n"
        "    ret\n"
        ".size soft_fiber_swap, .-soft_fiber_swap\n"
        ".type soft_fiber_first, %function\n"
        ".p2align 4\n"
        "soft_fiber_first:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined x30\n" /* nothing has called it: stack traces end here */
        "    hint #36\n" /* bti j */
        "    mov x0, x20\n"
        "    blr x19\n"
        "    brk #0\n"
        "    .cfi_endproc\n"
        ".size soft_fiber_first, .-soft_fiber_first\n");

static void save_start(saved *at, void (*fn)(soft_fiber *), soft_fiber *fiber)
{
    __asm__("mrs %0, fpcr" : "=r"(at->fpcr));
    memcpy(&at->x[0], &fn, sizeof fn);
    at->x[1] = fiber;
    at->x[11] = (void *)(uintptr_t)soft_fiber_first;
}

#else
#error "the software GPU cannot switch stacks on this machine"
#endif
/* clang-format on */

void soft_fiber_switch(soft_fiber *from, soft_fiber *to)
{
    void *sp = to->sp;

#if defined(ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->stack_bytes);
#elif defined(THREAD_SANITIZER)
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    soft_fiber_swap(&from->sp, sp);
#if defined(ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}

static void begin_fiber(soft_fiber *fiber)
{
#if defined(ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    fiber->main(fiber->arg);
    abort(); /* it must not return */
}

/* ---- stacks */

void soft_fiber_of_thread(soft_fiber *thread)
{
    *thread = (soft_fiber){0};
#if defined(ADDRESS_SANITIZER)
    pthread_attr_t attr;
    void *stack;

    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &stack, &thread->stack_bytes);
        thread->stack = stack;
        pthread_attr_destroy(&attr);
    }
#elif defined(THREAD_SANITIZER)
    thread->sanitizer = __tsan_get_current_fiber();
#endif
}

/* A called function finds the stack at a multiple of 16, less the address that the call has left. */
void soft_fiber_restart(soft_fiber *fiber)
{
    saved *at = (saved *)(void *)(fiber->stack + fiber->stack_bytes - 64 - sizeof *at);

#if defined(ADDRESS_SANITIZER)
    __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
    fiber->sanitizer = NULL;
#elif defined(THREAD_SANITIZER)
    if (fiber->sanitizer)
        __tsan_destroy_fiber(fiber->sanitizer);
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
    *at = (saved){0};
    save_start(at, begin_fiber, fiber);
    fiber->sp = at;
}

/* Takes the access to the pages. A change of the page table leaves stacks that lie side by side one mapping. */
static bool make_guard(unsigned char *low)
{
    static atomic_uint of_mappings;

    if (madvise(low, GUARD_BYTES, MADV_GUARD_INSTALL) == 0)
        return true;
    if (atomic_fetch_add(&of_mappings, 1) < GUARDS_OF_MAPPINGS_MAX &&
        mprotect(low, GUARD_BYTES, PROT_NONE) == 0)
        return true;
    atomic_fetch_sub(&of_mappings, 1);
    return false;
}

bool soft_fiber_make(soft_fiber *fiber, void (*main)(void *arg), void *arg)
{
    unsigned char *low = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

    if (low == MAP_FAILED)
        return false;
    if (!make_guard(low)) {
        munmap(low, GUARD_BYTES + STACK_BYTES);
        return false;
    }
    *fiber = (soft_fiber){.stack = low + GUARD_BYTES,
                          .stack_bytes = STACK_BYTES,
                          .guard_bytes = GUARD_BYTES,
                          .main = main,
                          .arg = arg};
    STACK_REGISTER(fiber->stack, fiber->stack + STACK_BYTES);
    soft_fiber_restart(fiber);
    return true;
}
