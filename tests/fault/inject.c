/* Ways to fail: driver calls through the fault decorator; memory and system calls by wrapping the
 * library's own (-Wl,--wrap).
 *
 * The wrapped calls count and fail on the one thread that armed them, and only those of the
 * library: the software GPU is a library of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <search.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "driver/driver.h"
#include "tests/fault/fault.h"

typedef struct trap {
    uint64_t nth, count;
    bool for_ever, struck;
    int code;
} trap;

static _Thread_local trap memory_trap, system_trap;

/* Counts a call; true if it is to fail, with errno set. */
static bool strikes(trap *t)
{
    t->count++;
    if (t->nth == 0 || t->count < t->nth || (t->count > t->nth && !t->for_ever))
        return false;
    t->struck = true;
    errno = t->code;
    return true;
}

static void arm(trap *t, uint64_t nth, bool for_ever, int code)
{
    *t = (trap){.nth = nth, .for_ever = for_ever, .code = code};
}

/* ---- memory */

#define WRAP(result, name, params, args, trap_, failed) \
    result __real_##name params; \
    result __wrap_##name params; \
    result __wrap_##name params \
    { \
        return strikes(&trap_) ? failed : __real_##name args; \
    }

/* clang-format off */
WRAP(void *, malloc, (size_t size), (size), memory_trap, NULL)
WRAP(void *, calloc, (size_t count, size_t size), (count, size), memory_trap, NULL)
WRAP(void *, realloc, (void *at, size_t size), (at, size), memory_trap, NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), memory_trap, NULL)
WRAP(char *, strdup, (const char *text), (text), memory_trap, NULL)
WRAP(void *, tsearch, (const void *key, void **root, int (*compare)(const void *, const void *)), (key, root, compare), memory_trap, NULL)

/* ---- system calls */

WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), system_trap, -1)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), system_trap, -1)
WRAP(int, poll, (struct pollfd *fds, nfds_t count, int timeout), (fds, count, timeout), system_trap, -1)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len), system_trap, -1)
WRAP(void *, mmap, (void *at, size_t size, int rights, int flags, int fd, off_t offset), (at, size, rights, flags, fd, offset), system_trap, MAP_FAILED)
WRAP(int, mprotect, (void *at, size_t size, int rights), (at, size, rights), system_trap, -1)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), system_trap, -1)
WRAP(ssize_t, getrandom, (void *at, size_t size, unsigned flags), (at, size, flags), system_trap, -1)
WRAP(int, pthread_create, (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg), (thread, attributes, run, arg), system_trap, system_trap.code)

/* clang-format on */

static int failing_fcntl(int fd, int command, long arg, int (*real)(int fd, int command, ...))
{
    return strikes(&system_trap) ? -1 : real(fd, command, arg);
}

/* The library passes numbers alone. */
#define WRAP_FCNTL(name) \
    int __real_##name(int fd, int command, ...); \
    int __wrap_##name(int fd, int command, ...); \
    int __wrap_##name(int fd, int command, ...) \
    { \
        va_list args; \
        long arg; \
\
        va_start(args, command); \
        arg = va_arg(args, int); \
        va_end(args); \
        return failing_fcntl(fd, command, arg, __real_##name); \
    }
WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

/* ---- the table */

static void arm_driver_usual(uint64_t nth, bool for_ever)
{
    gvmi_fault_arm(GVMI_CALL_COUNT, nth, for_ever, CUDA_SUCCESS);
}

static void arm_driver_unknown(uint64_t nth, bool for_ever)
{
    gvmi_fault_arm(GVMI_CALL_COUNT, nth, for_ever, CUDA_ERROR_UNKNOWN);
}

static void arm_driver_full(uint64_t nth, bool for_ever)
{
    gvmi_fault_arm(GVMI_CALL_COUNT, nth, for_ever, CUDA_ERROR_OUT_OF_MEMORY);
}

static void arm_driver_lost(uint64_t nth, bool for_ever)
{
    gvmi_fault_arm(GVMI_CALL_COUNT, nth, for_ever, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void arm_memory(uint64_t nth, bool for_ever)
{
    arm(&memory_trap, nth, for_ever, ENOMEM);
}

static void arm_system(uint64_t nth, bool for_ever)
{
    arm(&system_trap, nth, for_ever, EIO);
}

static void arm_interrupt(uint64_t nth, bool for_ever)
{
    arm(&system_trap, nth, for_ever, EINTR);
}

static uint64_t memory_calls(void)
{
    return memory_trap.count;
}

static bool memory_struck(void)
{
    return memory_trap.struck;
}

static uint64_t system_calls(void)
{
    return system_trap.count;
}

static bool system_struck(void)
{
    return system_trap.struck;
}

const injector injectors[] = {
    {"driver calls, as they usually fail", true, 0, arm_driver_usual, gvmi_fault_calls,
     gvmi_fault_struck},
    {"driver calls, for no known reason", true, 0, arm_driver_unknown, gvmi_fault_calls,
     gvmi_fault_struck},
    {"driver calls, out of memory", true, 1ull << GVM_E_NOSPACE, arm_driver_full, gvmi_fault_calls,
     gvmi_fault_struck},
    {"driver calls, context broken", true, 1ull << GVM_E_LOST, arm_driver_lost, gvmi_fault_calls,
     gvmi_fault_struck},
    {"memory", true, 0, arm_memory, memory_calls, memory_struck},
    {"system calls", true, 0, arm_system, system_calls, system_struck},
    {"system calls, interrupted", false, 0, arm_interrupt, system_calls, system_struck},
};
const size_t injector_count = sizeof injectors / sizeof injectors[0];
