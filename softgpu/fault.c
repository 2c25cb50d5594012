/* Faults in code that the driver runs for the user: kernels, and copies whose memory goes away
 * under them.
 *
 * The handlers are installed once. They act only on a thread that has a recovery point armed, and
 * on what that thread did itself (or on a stop that was asked for); anything else is passed on
 * exactly as if they were not there. A handler that the program installs later takes ours out, as
 * it would any other library's, unless it calls the one before it.
 *
 * A recovery point is on the stack of the code that it guards, and what is armed changes with the stack: block.c.
 *
 * Jumping out of a handler is safe because code under a guard holds no locks and owns nothing. The
 * handler gives back the signal mask before it jumps, so that a guard that meets no fault never has
 * to ask the kernel for it. */
#include "softgpu/engine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

#define ALTERNATE_STACK_BYTES (64u << 10)

static const struct {
    int signal;
    CUresult result;
} faults[] = {
    {SIGSEGV, CUDA_ERROR_ILLEGAL_ADDRESS},     {SIGBUS, CUDA_ERROR_ILLEGAL_ADDRESS},
    {SIGILL, CUDA_ERROR_ILLEGAL_INSTRUCTION},  {SIGFPE, CUDA_ERROR_LAUNCH_FAILED},
    {SIGTRAP, CUDA_ERROR_ILLEGAL_INSTRUCTION},
};
#define FAULT_COUNT (sizeof faults / sizeof faults[0])

static struct sigaction previous[FAULT_COUNT];

struct soft_recovery {
    sigjmp_buf resume;
    soft_recovery *outer;
    atomic_bool *stop;
    const unsigned char *stack; /* NULL, or where the stack ends: a fault in the guard_bytes below is that of a stack too deep */
    size_t guard_bytes;
    volatile CUresult caught;
};

/* In static thread storage: a handler must not be the one who allocates it. */
static _Thread_local soft_recovery *volatile armed __attribute__((tls_model("initial-exec")));
static _Thread_local bool driver_thread __attribute__((tls_model("initial-exec")));

/* Does what would have happened without our handler. */
static void call_previous_handler(struct sigaction *previous_one, int signal, siginfo_t *info,
                                  void *context)
{
    struct sigaction old = *previous_one;
    bool plain = !(old.sa_flags & SA_SIGINFO);
    bool sent = info->si_code <= 0; /* by somebody, not by an instruction of this thread */
    sigset_t self;

    if (plain && old.sa_handler == SIG_IGN && sent)
        return;
    if (plain && (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)) {
        sigaction(signal, &old, NULL); /* then the instruction faults again */
        if (sent)
            raise(signal);
        return;
    }
    if (old.sa_flags & (int)SA_RESETHAND)
        *previous_one = (struct sigaction){.sa_handler = SIG_DFL};
    pthread_sigmask(SIG_BLOCK, &old.sa_mask, NULL); /* until our handler returns */
    if (old.sa_flags & SA_NODEFER) {
        sigemptyset(&self);
        sigaddset(&self, signal);
        pthread_sigmask(SIG_UNBLOCK, &self, NULL);
    }
    if (plain)
        old.sa_handler(signal);
    else
        old.sa_sigaction(signal, info, context);
}

static void resume_after_fault(soft_recovery *point, CUresult caught, const ucontext_t *context)
{
    point->caught = caught;
    armed = point->outer; /* before more signals may come: a stop that meets this jump is late */
    pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
    siglongjmp(point->resume, 1);
}

static bool is_stack_overflow(const soft_recovery *point, const siginfo_t *info)
{
    const uintptr_t address = (uintptr_t)info->si_addr, stack = (uintptr_t)point->stack;

    return point->stack && address < stack && address >= stack - point->guard_bytes;
}

/* A stop may come in the middle of a switch to another stack, of which ThreadSanitizer has seen one half. */
__attribute__((no_sanitize("thread"))) static void on_fault(int signal, siginfo_t *info, void *context)
{
    soft_recovery *point = armed;
    size_t i = 0;

    while (i + 1 < FAULT_COUNT && faults[i].signal != signal)
        i++;
    if (point && info->si_code > 0)
        resume_after_fault(point,
                           signal == SIGSEGV && is_stack_overflow(point, info)
                               ? CUDA_ERROR_HARDWARE_STACK_ERROR
                               : faults[i].result,
                           context);
    if (driver_thread && info->si_code == SI_TKILL && info->si_pid == getpid()) {
        if (!point || !point->stop || !atomic_load(point->stop))
            return; /* a stop that came late */
        resume_after_fault(point, CUDA_ERROR_LAUNCH_FAILED, context);
    }
    call_previous_handler(&previous[i], signal, info, context);
}

void soft_fault_install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};

    action.sa_sigaction = on_fault;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < FAULT_COUNT; i++)
        sigaction(faults[i].signal, &action, &previous[i]);
}

CUresult soft_fault_guard(void (*fn)(void *arg), void *arg, atomic_bool *stop)
{
    return soft_fault_guard_stack(fn, arg, stop, NULL, 0);
}

CUresult soft_fault_guard_stack(void (*fn)(void *arg), void *arg, atomic_bool *stop,
                                const unsigned char *stack, size_t guard_bytes)
{
    soft_recovery here = {
        .outer = armed, .stop = stop, .stack = stack, .guard_bytes = guard_bytes, .caught = CUDA_SUCCESS};

    if (sigsetjmp(here.resume, 0) == 0) {
        /* A stop asked for before this point sets the flag, one asked for after it jumps. */
        if (soft_fault_arm(&here))
            fn(arg);
    }
    armed = here.outer;
    return here.caught;
}

soft_recovery *soft_fault_disarm(void)
{
    soft_recovery *point = armed;

    armed = NULL;
    return point;
}

bool soft_fault_arm(soft_recovery *point)
{
    armed = point;
    return !point->stop || !atomic_load(point->stop);
}

typedef struct thread_start {
    void (*main)(void *arg);
    void *arg;
    char name[16];
    unsigned char alternate_stack[ALTERNATE_STACK_BYTES]; /* for handlers when the thread's own has run over */
} thread_start;

static void *thread_main(void *p)
{
    thread_start *start = p;
    stack_t ours = {.ss_sp = start->alternate_stack, .ss_size = sizeof start->alternate_stack};
    stack_t found;

    pthread_setname_np(pthread_self(), start->name);
    driver_thread = true;
    sigaltstack(NULL, &found); /* a sanitizer has its own, which must be there again at the end */
    if (found.ss_flags & SS_DISABLE)
        sigaltstack(&ours, NULL);
    start->main(start->arg);
    sigaltstack(&found, NULL);
    free(start);
    return NULL;
}

CUresult soft_thread_start(void (*main)(void *arg), void *arg, const char *name)
{
    thread_start *start = malloc(sizeof *start);
    pthread_attr_t attr;
    sigset_t mask, before;
    pthread_t thread;
    int failed;

    if (!start)
        return CUDA_ERROR_OUT_OF_MEMORY;
    start->main = main;
    start->arg = arg;
    snprintf(start->name, sizeof start->name, "%s", name);
    sigfillset(&mask);
    for (size_t i = 0; i < FAULT_COUNT; i++)
        sigdelset(&mask, faults[i].signal);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &mask, &before); /* a new thread inherits it */
    failed = pthread_create(&thread, &attr, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (failed)
        free(start);
    return failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
