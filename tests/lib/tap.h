/* tests/lib/tap.h - what a test program prints, in the Test Anything Protocol.
 *
 * Threads: one. Not for the tests of tests/unit, which cmocka counts. */
#ifndef LIB_TAP_H
#define LIB_TAP_H

#include <stdbool.h>

/* How many results there will be. Without it tap_finish() says how many there were. */
void tap_plan(unsigned count);

/* "ok N - name" or "not ok N - name", N from 1 on; returns good. */
__attribute__((format(printf, 2, 3))) bool tap_result(bool good, const char *name, ...);
void tap_skip(const char *name, const char *why);

/* Nothing can be tested here: says so, as the program's only line; 0, its exit status. */
int tap_skip_all(const char *why);

/* The plan, if there was none; then the program's exit status: 0 if all was good, and was tested. */
int tap_finish(void);

/* The program cannot go on: says why, and exits with status 2. */
__attribute__((format(printf, 1, 2))) _Noreturn void tap_bail_out(const char *why, ...);

#endif
