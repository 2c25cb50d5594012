/* tests/unit/unit.h - what the unit tests share: cmocka with its includes, and children for what
 * can only be done once a process. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Settings are read once and a driver is loaded once, so each such case runs in a child. It must
 * not use cmocka's assertions, which would go on with the parent's tests: it returns 0 or the
 * number of the line that found a fault. */
#define CHILD_EXPECT(condition) \
    do { \
        if (!(condition)) { \
            dprintf(STDERR_FILENO, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

/* The wait status of a child that ran fn(arg). quiet: its stderr is thrown away, for those that
 * are to abort. */
static inline int run_in_child(int (*fn)(void *arg), void *arg, bool quiet)
{
    int status = -1;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (quiet)
            dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        _exit(fn(arg));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* LD_PRELOAD names what valgrind puts before the program. */
static inline bool under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");

    return preloaded != NULL && strstr(preloaded, "/vgpreload_") != NULL;
}

/* Ends a child in which a call waits for ever; under valgrind programs take many times as long. */
static inline void end_child_after(unsigned seconds)
{
    alarm(under_valgrind() ? 20 * seconds : seconds);
}

/* Leaves a test out where valgrind cannot run it. */
#define SKIP_UNDER_VALGRIND(why) \
    do { \
        if (under_valgrind()) { \
            print_message("left out under valgrind: %s\n", why); \
            skip(); \
        } \
    } while (0)
#define VALGRIND_FDS \
    "it limits descriptors by itself, so the kernel does not refuse one that is received"
#define VALGRIND_ADDRESSES "its programs have less than 256 GiB of addresses"
#define VALGRIND_FAULT "it reports a kernel's access to memory that is not there"
#define VALGRIND_BYTES "it looks at each byte that mprotect() makes accessible: minutes for 32 GiB"

/* Leaves a test out where ThreadSanitizer cannot run it. */
#if defined(__SANITIZE_THREAD__)
#define SKIP_UNDER_TSAN(why) \
    do { \
        print_message("left out under ThreadSanitizer: %s\n", why); \
        skip(); \
    } while (0)
#else
#define SKIP_UNDER_TSAN(why) ((void)0)
#endif

/* Built with a sanitizer that needs address space of its own? */
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define assert_child_succeeds(fn, arg) assert_int_equal(run_in_child(fn, arg, false), 0)

/* A test that is one child. */
#define CHILD_TEST(name, fn) \
    static void name(void **state) \
    { \
        (void)state; \
        assert_child_succeeds(fn, NULL); \
    }

/* The same, left out where valgrind cannot run it. */
#define CHILD_TEST_NOT_VALGRIND(name, fn, why) \
    static void name(void **state) \
    { \
        (void)state; \
        SKIP_UNDER_VALGRIND(why); \
        assert_child_succeeds(fn, NULL); \
    }

#endif
