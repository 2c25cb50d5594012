/* Steps: moments at which a process of the keeper can be killed or stopped, counted.
 *
 * Before and after every driver call, by a table in front of the driver's; before and after every
 * system call that moves a message, a doorbell or a file descriptor, by wrapping them at link time
 * (-Wl,--wrap). All threads of the process count together.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "driver/driver.h"
#include "tests/proc/keeper_child.h"

static _Atomic uint64_t steps, deadly;
static atomic_int deadly_signal;

static void step(void)
{
    const uint64_t nth = atomic_load_explicit(&deadly, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed) + 1 != nth)
        return;
    if (atomic_load(&deadly_signal) == SIGSTOP) {
        (void)raise(SIGSTOP); /* returns after SIGCONT */
        return;
    }
    kill(getpid(), SIGKILL);
    for (;;) /* the other threads may live for a moment more; this one does not go on */
        pause();
}

uint64_t step_arm(uint64_t nth, int signal)
{
    uint64_t before;

    atomic_store(&deadly, 0);
    before = atomic_exchange(&steps, 0);
    atomic_store(&deadly_signal, signal);
    atomic_store(&deadly, nth);
    return before;
}

uint64_t step_count(void)
{
    return atomic_load(&steps);
}

/* ---- driver calls */

static const gvmi_driver *below;

#define WRAP(name, symbol, since, need, params, args) \
    static CUresult step_##name params \
    { \
        CUresult result; \
\
        step(); \
        result = below->name args; \
        step(); \
        return result; \
    }
GVMI_CUDA_CALLS(WRAP)
#undef WRAP

void step_watch_driver(void)
{
    static const gvmi_driver table = {
#define MEMBER(name, symbol, since, need, params, args) .name = step_##name,
        GVMI_CUDA_CALLS(MEMBER)
#undef MEMBER
    };

    if (below == NULL) {
        below = gvmi_cu;
        gvmi_cu = &table;
    }
}

/* ---- system calls */

#define WRAP_SYSTEM(result_, name, params, args) \
    result_ __real_##name params; \
    result_ __wrap_##name params; \
    result_ __wrap_##name params \
    { \
        result_ result; \
\
        step(); \
        result = __real_##name args; \
        step(); \
        return result; \
    }

/* clang-format off */
WRAP_SYSTEM(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP_SYSTEM(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP_SYSTEM(ssize_t, write, (int fd, const void *bytes, size_t len), (fd, bytes, len))
WRAP_SYSTEM(ssize_t, read, (int fd, void *bytes, size_t len), (fd, bytes, len))
WRAP_SYSTEM(int, eventfd, (unsigned initial, int flags), (initial, flags))
/* clang-format on */
