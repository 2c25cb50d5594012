/* tests/conform/execution.h - what the cases about streams, copies and launches share
 * (execution.c).
 *
 * Nothing here waits without a bound.
 */
#ifndef CONFORM_EXECUTION_H
#define CONFORM_EXECUTION_H

#include "tests/conform/conform.h"

#include "tests/conform/cases.h"

#define CONFORM_SOON_MS 5000 /* by then what is not held up has happened */

/* Has the stream finished what it holds, or does it soon? */
bool ends_soon(CUstream stream);
/* Is the stream held up: busy now, and still after a few milliseconds? */
bool stays_busy(CUstream stream);
/* Runs fn(arg) in a thread of its own, without a current context, and waits for its end. */
void in_thread(void (*fn)(void *arg), void *arg);
/* A second copy of the kernels, with globals and function attributes of its own; and a kernel of
 * it. */
CUmodule take_module(void);
CUfunction module_kernel(CUmodule module, const char *symbol);
/* One word of the scratch memory, for results: read by copy after the launch or copy that writes
 * it. */
CUdeviceptr scratch_word(unsigned index);
/* Bytes that differ from their neighbours, from pages apart, and by seed. */
void pattern_write(void *at, size_t size, unsigned seed);
bool pattern_holds(const void *at, size_t size, unsigned seed);
bool bytes_are(const void *at, size_t size, unsigned char value);

#endif
