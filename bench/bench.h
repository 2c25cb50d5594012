/* bench/bench.h - measuring: samples, figures, records, and the sections of `gvmem-bench vmm`.
 *
 * A section measures, prints its table to b->text and records a figure for each number. What it
 * cannot measure here it leaves out and says so; what fails makes the program exit with 1, after
 * the other sections.
 *
 * Things to compare are measured in turns, one of each a repetition, so that whatever drifts
 * (clocks, other users of the machine) drifts for all. Medians are compared.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "driver/driver.h"
#include "kernels/kernels.h"
#include "tools/json.h"
#include "tools/peer.h"
#include "tools/tool.h"

#define BENCH_SAMPLES_MAX 64u
#define BENCH_FIGURES_MAX 2048u
#define BENCH_NOTES_MAX 32u
#define BENCH_POOLS_MAX 8u
#define BENCH_EXTENTS_MAX 4u
#define BENCH_TEXTS_BYTES (128u << 10)

typedef struct bench_samples {
    unsigned count;
    double value[BENCH_SAMPLES_MAX];
} bench_samples;

typedef struct bench_figure {
    const char *section, *name, *unit;
    uint64_t bytes, chunk_bytes; /* 0: does not apply */
    double min, median, max;
    unsigned count;
} bench_figure;

typedef struct bench {
    gvm_device *device; /* its context is current */
    gvm_device_info info;
    peer importer;
    int ordinal;
    int lender; /* of the keeper; -1: none */
    bool quick;
    const char *benchmark, *command;
    char *const *operands; /* of the benchmark: a token, or names of parts */
    int operand_count;
    uint64_t max_bytes;                       /* of growth; 0: chosen */
    uint64_t budget_bytes;                    /* of regions; 0: chosen */
    uint64_t extent_bytes[BENCH_EXTENTS_MAX]; /* of regions */
    unsigned extent_count;
    int scale;              /* experts are smaller by this; 0: chosen */
    int devices;            /* of a search in regions; 0: one, without homes in common */
    bool processes;         /* one for each of these devices */
    const char *graph_path; /* of regions, to read; NULL: drawn ones */
    const char *trace_path; /* of the keeper, to write; of the heap, to read; NULL: none */
    const char *pool_paths[BENCH_POOLS_MAX]; /* of the heap: libraries to measure beside it */
    unsigned pool_count, pools_loaded;
    FILE *text;
    int code; /* exit status so far */
    unsigned figure_count, note_count;
    bench_figure figures[BENCH_FIGURES_MAX];
    char notes[BENCH_NOTES_MAX][400];
    char texts[BENCH_TEXTS_BYTES]; /* of bench_text() */
    unsigned text_bytes;
} bench;

/* Samples past the maximum are dropped. The median of an even number is the lower one of the
 * two. */
void bench_add(bench_samples *samples, double value);
double bench_median(const bench_samples *samples);

/* Records what was measured. Texts must be constants. Returns the median. */
double bench_record(bench *b, const char *section, const char *name, const char *unit,
                    uint64_t bytes, uint64_t chunk_bytes, const bench_samples *samples);

/* Records one number that follows from others. */
void bench_record_value(bench *b, const char *section, const char *name, const char *unit,
                        uint64_t bytes, uint64_t chunk_bytes, double value);

/* A name for a figure, kept as long as b is. */
const char *bench_text(bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says why something is not measured, or what failed. */
void bench_note(bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Complains about a failed driver call, or the library's latest failure; the exit status will be
 * 1. */
void bench_failed_driver(bench *b, CUresult result, const char *call);
bool bench_check_driver(bench *b, CUresult result, const char *call); /* false: it has failed */
void bench_failed(bench *b, const char *what);

/* Opens the device of that ordinal, whose context is current from then on; complains if it cannot. */
bool bench_open_device(bench *b);
void bench_close_device(bench *b);

/* Waits until the device is idle; gives what the library keeps for reuse back to the driver. */
void bench_wait(bench *b);
void bench_trim(bench *b);

/* Free device memory, after giving back what this process caches. */
uint64_t bench_free_bytes(bench *b);

/* A stream with a pair of events, in the current context. */
typedef struct bench_timer {
    CUstream stream;
    CUevent start, end;
} bench_timer;

bool bench_timer_create(bench *b, bench_timer *timer);
void bench_timer_destroy(bench_timer *timer);
bool bench_timer_start(bench *b, bench_timer *timer);
bool bench_timer_stop(bench *b, bench_timer *timer, double *us); /* waits */

/* The sections. */
void bench_calls(bench *b);
void bench_growth(bench *b);
void bench_copies(bench *b);
void bench_transfers(bench *b);
void bench_kernels(bench *b);
void bench_peers(bench *b);
void bench_sharing(bench *b);

/* Begins a record, in an object that is open: what was measured how, when and where. */
void bench_write_head(json *j, const char *benchmark, const char *command);

/* Writes a record to a file beside the wanted one and renames, so that there is a whole one or
 * none. "-" is standard output. Returns an exit status, having complained. */
int bench_save(const char *path, void (*write)(FILE *out, const void *arg), const void *arg);

/* The same of the head, the device, and the figures and notes of b. */
int bench_save_figures(const char *path, const bench *b);

/* appender.c: `gvmem-bench appender`. */
void bench_appender(bench *b);

/* heap.c: `gvmem-bench heap`. */
void bench_heap(bench *b);

/* pglz.c: `gvmem-bench pglz`. */
void bench_pglz(bench *b);

/* search.c: `gvmem-bench search`. */
void bench_search(bench *b);

/* query.c: `gvmem-bench query`. */
void bench_query(bench *b);

/* region/: `gvmem-bench region`; is there such a part of it? */
void bench_region(bench *b);
bool bench_region_has(const char *part);
/* Processes for devices, if they are wanted: forked before the first driver call, and ended. */
bool bench_region_start(bench *b);
int bench_region_finish(bench *b);

/* table.c: `gvmem-bench table`. */
void bench_table(bench *b);

/* policy.c: `gvmem-bench policy`, which needs no device. */
int bench_policy(int argc, char **argv, const char *command);

/* share.c: what the importer process runs. */
int bench_importer(int socket, const void *arg);

#endif
