/* The host's side of the hash join, file by file. */
#ifndef BENCH_HASHJOIN_HASHJOIN_H
#define BENCH_HASHJOIN_HASHJOIN_H

#include <stdbool.h>
#include <stdio.h>

#include <gvmem/gvmem.h>

#include "bench/hashjoin/shared.h"

/* ---- tables.c: what is joined */

/* Columns on the host. The join's condition: the keys are the same, and low <= value <= high. */
typedef struct tables {
    uint32_t outer_rows, inner_rows;
    uint32_t *outer_keys, *outer_lows, *outer_highs;
    uint32_t *inner_keys, *inner_values;
    uint32_t *inner_texts, *inner_text_bytes; /* where in texts, in units, and how long */
    unit *texts;
    uint64_t text_units, text_units_room;
    uint32_t keys;       /* all keys of both sides are below */
    char **outer_labels; /* of packages: what a row is, to print it; otherwise NULL */
    uint32_t outer_room, inner_room;
} tables;

/* Rows are added at the end. A text of more than TEXT_BYTES_MAX ends the program, as more than
 * ROWS_MAX rows do. */
void tables_add_outer(tables *t, uint32_t key, uint32_t low, uint32_t high, const char *label);
void tables_add_inner(tables *t, uint32_t key, uint32_t value, const char *text, size_t bytes);
/* What a planner expects that knows how many rows and different keys either side has, and how
 * many of the pairs with the same key the rest of the condition lets pass. */
uint64_t tables_estimate(const tables *t, double fraction);
void tables_free(tables *t);

/* ---- generate.c: made-up tables */

typedef struct generated {
    uint32_t outer_rows, inner_rows;
    uint32_t keys;               /* how many different ones there may be */
    double zipf;                 /* key number i is as frequent as 1 / i^zipf; 0: all alike */
    uint32_t explode;            /* so many rows of either side have one key of their own */
    double fraction;             /* of the pairs with the same key that match */
    double guess;                /* what the planner takes that fraction for; 0: for what it is */
    uint32_t text_min, text_max; /* bytes */
    bool disjoint;               /* no key of one side is on the other */
    uint64_t seed;
} generated;

void generate(const generated *g, tables *out);
double generated_guess(const generated *g);
/* The exponent at which the result of so many outer rows, and fewer inner ones, is so many times as
 * large as the estimate. */
double zipf_for(uint32_t keys, uint32_t rows, double times);

/* ---- packages.c: Debian's packages and what they depend on */

/* Reads a Packages file, dpkg's status file, or what `apt-cache dumpavail` prints; "-" is standard
 * input. Outer rows are the alternatives of all dependencies, inner rows packages by their own name
 * and by those that they provide. */
void read_packages(const char *path, tables *out);

/* ---- reference.c: the same join on the CPU */

typedef struct reference {
    uint64_t rows, text_bytes, checksum;
} reference;

/* Makes nothing but sums; several threads. */
void reference_join(const tables *t, reference *out);
/* All rows of the result, sorted by outer and inner. The caller frees them. */
result_row *reference_rows(const tables *t, const reference *sums);

/* ---- gpu.c: the device, and kernels on it */

typedef enum kernel {
    BUILD_COUNT,
    BUILD_STARTS,
    BUILD_FILL,
    SCAN_SUMS,
    SCAN_WRITE,
    JOIN_APPEND,
    JOIN_COUNT,
    JOIN_TWO_PASS,
    JOIN_FIXED,
    CHECK_ROWS,
    KERNELS,
} kernel;

typedef struct gpu {
    gvm_device *device;
    gvm_device_info info;
    gvm_heap *heap;
    unsigned block_threads, blocks; /* of every launch */
    uint32_t warps;                 /* of one */
} gpu;

void gpu_open(gpu *g);
void gpu_close(gpu *g);
/* Launches behind what was launched before. */
void gpu_launch(gpu *g, kernel which, const void *params);
void gpu_synchronize(void);
void gpu_zero(uint64_t address, uint64_t bytes); /* as a launch */
void gpu_copy_in(uint64_t to, const void *from, uint64_t bytes);
void gpu_copy_out(void *to, uint64_t from, uint64_t bytes); /* waits for what was launched */
/* A block of the heap. It has a tag to be found by if it is forgotten. */
uint64_t gpu_block(gpu *g, uint64_t bytes, const char *tag);
void gpu_free(gpu *g, uint64_t block);

/* Every call returns a status; what exactly went wrong is kept for the thread that called. These
 * end the program. */
void must(gvm_status status, const char *what);
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *must_have(size_t count, size_t bytes); /* zeroed */
double now_ms(void);

/* ---- table.c: the hash table in the heap */

typedef struct built {
    join_params params; /* with what all ways have in common */
    uint64_t blocks[16];
    unsigned block_count;
    uint64_t tiles; /* of the outer side */
    uint64_t sums;  /* for scan() */
} built;

void build(gpu *g, const tables *t, built *out);
void build_free(gpu *g, built *b);
/* Each of count values becomes the sum of those before it. */
void scan(gpu *g, uint64_t values, uint64_t count, uint64_t sums);

/* ---- methods.c: the join itself, in three ways */

typedef enum method { APPENDER, TWO_PASS, FIXED, METHODS } method;

/* Part of a result: the whole but where a budget cuts it up. */
typedef struct piece {
    uint64_t address, rows;
    uint64_t text_low, text_high;
    uint64_t text_bytes; /* with what fills up units */
} piece;

typedef struct outcome {
    double ms;      /* until the caller has the result in memory of its size */
    double free_ms; /* giving its memory back */
    /* Of ms: counting, memory before the kernel that writes begins, that kernel, and giving back what was
     * committed ahead. */
    double count_ms, allocate_ms, write_ms, take_ms;
    uint64_t rows, text_bytes;
    unsigned launches;        /* of a pair of kernels that write */
    unsigned parts;           /* of the outer side, joined one after the other */
    uint64_t piece_bytes_max; /* rows and texts of the largest piece */
    /* The appender's. */
    uint64_t commits, pieces;
    double commit_ms, first_ms;
    unsigned empty; /* buffers in a row in which nothing had room */
    /* A fixed buffer's: what did not fit, and the time up to there. */
    uint64_t lost_rows;
    double first_try_ms;
} outcome;

typedef struct settings {
    uint64_t budget_bytes, chunk_bytes; /* of the appender; 0: none, its own choice */
    double factor;                      /* of the estimate that a fixed buffer is made for */
    uint64_t estimate;
    uint64_t average_units; /* of a text */
    uint32_t part_rows;     /* outer rows that are joined at once; 0: all */
} settings;

/* Called with each piece when it is full, outside of the times measured. */
typedef void (*piece_taker)(const piece *p, void *arg);

void join_with(gpu *g, method m, const built *b, const settings *s, piece_taker take, void *arg,
               outcome *out);
extern const char *const method_names[METHODS];

/* ---- check.c: a result against the reference */

typedef struct checker {
    gpu *g;
    const tables *t;
    const reference *wanted;
    bool whole;    /* every row, not only sums */
    FILE *print;   /* the rows go there; NULL: nowhere */
    uint64_t sums; /* a block of the heap */
    uint64_t rows, checksum, bad;
    result_row *kept; /* with texts as places in texts */
    unsigned char *texts;
    uint64_t text_bytes;
} checker;

void checker_start(checker *c, gpu *g, const tables *t, const reference *wanted, bool whole,
                   FILE *print);
void checker_take(const piece *p, void *arg); /* a piece_taker */
/* NULL if all is as it should be, otherwise what is not. Ends the checker. */
const char *checker_end(checker *c);

/* ---- report.c: measuring, and its report */

#define REPETITIONS_MAX 33

typedef struct measured {
    unsigned count;
    outcome runs[REPETITIONS_MAX];
} measured;

typedef struct join_case {
    const char *input; /* what was joined: "zipf", "explode", "packages" */
    generated made;    /* all zero for packages */
    uint32_t outer_rows, inner_rows;
    uint64_t estimate;
    reference wanted;
    bool checked, correct;
    double build_ms;
    unsigned repetitions;
    bool measured[METHODS];
    measured of[METHODS];
} join_case;

void report_text(FILE *out, const join_case *c, const settings *s);
/* NULL for standard output. Returns whether it was written. */
bool report_json(const char *path, const gpu *g, const char *command, const settings *s,
                 const join_case *cases, unsigned count);

#endif
