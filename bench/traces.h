/* bench/traces.h - what objects a keeper's clients acquired, one after the other.
 *
 * A trace file begins with the line "# gvmem-keeper trace 1"; each further line that is no comment
 * has five decimal numbers: device, object, its bytes at that moment, how many acquires, and the
 * hint (gvm_hint) of the latest.
 */
#ifndef BENCH_TRACES_H
#define BENCH_TRACES_H

#include "tools/tool.h"

#define TRACE_EVENTS_MAX (1u << 26)
#define TRACE_BYTES_MAX (1ull << 50) /* of one object */

typedef struct trace_event {
    uint64_t bytes;
    uint32_t object; /* dense from 0 on */
    uint32_t count;
    uint32_t device;
    uint32_t hint;
} trace_event;

typedef struct trace {
    char name[64];
    trace_event *events;
    uint32_t count, capacity;
    uint32_t object_count;
    uint32_t device_count; /* the largest number seen, and one */
} trace;

/* Reads a file. Returns an exit status, having complained. */
int trace_load(trace *t, const char *path);

/* Writes one. Returns an exit status, having complained. */
int trace_save(const trace *t, const char *path);

/* Generators. Every seed gives another trace of the same kind; seed 0 is the one that is measured
 * by default, the others vary sizes and mixes too. */
typedef struct trace_kind {
    const char *name, *text;
    bool (*make)(trace *t, uint64_t seed); /* false: out of memory */
} trace_kind;

extern const trace_kind trace_kinds[];
extern const unsigned trace_kind_count;

void trace_free(trace *t);

#endif
