/* The trace of what pools give and get back: GVMEM_HEAP_TRACE names its file; bench/heap_trace.h describes it. */
#ifndef GVMEM_PYTHON_POOLS_TRACE_H
#define GVMEM_PYTHON_POOLS_TRACE_H

#include <stdint.h>

/* Begins it, if a file is named; once. */
void pools_trace_open(const char *path);

/* kind: 'a' for a block that was allocated, 'f' for one that is about to be freed. */
void pools_trace_event(char kind, const void *address, uint64_t bytes, const void *stream);

/* In a child made by fork(), which has nothing to record. */
void pools_trace_forget(void);

#endif
