/* query/run.h - a query while it runs: what the files share that carry it out.
 *
 * appended.c   joined rows
 * batch.c      a batch of rows in the place of its table
 * columns.c    its table: columns, leases, the bitmap of deleted rows
 * distance.c   distances of vectors from a query, as columns
 * inner.c      tables that it is joined with
 * list.c       an ordered list
 * marks.c      rows that pass
 * nearest.c    the rows nearest to each of many queries
 * run.c        memory, launches, sums, groups; the query as a whole
 * stages.c     a program after another, over its groups
 * texts.c      texts as keys of groups
 *
 * Threads: a query belongs to its connection's.
 * Functions that return bool have put the reason for false into the answer, unless the backend has gone.
 *
 * Circle: appended.c, batch.c, columns.c, distance.c, inner.c, list.c, marks.c, nearest.c, run.c, stages.c and
 * texts.c call each other, because run.c carries out a query by the others, which launch kernels and report
 * failures by it.
 */
#ifndef GQUERY_RUN_H
#define GQUERY_RUN_H

#include "query/executor.h"
#include "query/kernels.h"
#include "query/number.h"

/* Rows of a launch are a multiple of so many, but for the last ones: kernels write whole words of bitmaps. */
#define GQUERY_SLICE_LEAST UINT64_C(4096)
static inline uint64_t gquery_half_rows(uint64_t rows) /* of more than GQUERY_SLICE_LEAST */
{
    return rows / 2 / GQUERY_SLICE_LEAST * GQUERY_SLICE_LEAST;
}

#define GQUERY_LIST_MAX (UINT64_C(1) << 20)

/* What kernels and this process exchange beside states. */
typedef struct gquery_control {
    uint32_t error, reserved;
    uint64_t collected;
    gquery_groups groups;
    gquery_texts texts[GQUERY_KEYS_MAX]; /* texts.c */
    gquery_list appended, kept;          /* list.c */
    gquery_build build;                  /* inner.c */
    gquery_appended joined;              /* appended.c */
} gquery_control;

/* A lane's memory, on host and device: the program, control, states of blocks, a small bitmap; queries of
 * distances, on the host alone. */
#define GQUERY_ROUND_UP(bytes) (((bytes) + 63) / 64 * 64)
#define GQUERY_CONTROL_AT GQUERY_ROUND_UP(sizeof(gquery_program))
#define GQUERY_STATES_AT (GQUERY_CONTROL_AT + GQUERY_ROUND_UP(sizeof(gquery_control)))
#define GQUERY_STATES_BYTES (UINT64_C(1) << 20)
#define GQUERY_DEAD_AT (GQUERY_STATES_AT + GQUERY_STATES_BYTES)
#define GQUERY_DEAD_BYTES (UINT64_C(512) << 10)
#define GQUERY_POINTS_AT (GQUERY_DEAD_AT + GQUERY_DEAD_BYTES + 64)
#define GQUERY_POINTS_BYTES (UINT64_C(256) << 10)
_Static_assert(GQUERY_POINTS_AT + GQUERY_POINTS_BYTES <= GQUERY_HALT_AT,
               "a lane has room for all of it");

typedef enum gquery_outcome {
    GQUERY_SCANNED,
    GQUERY_FULL,   /* the table of groups, or one of texts */
    GQUERY_FAILED, /* answer says why, or the backend has gone */
} gquery_outcome;

/* A distance that is a column of the program. */
typedef struct gquery_vectors {
    gquery_distance launch; /* values 0: all of its vectors are NULL */
    uint64_t nulls;
    uint32_t blocks, shared_bytes;
} gquery_vectors;

/* A column of the program whose texts have numbers. */
typedef struct gquery_numbers {
    uint32_t column;
    uint32_t longest;     /* of its texts, in bytes, after the scan */
    gquery_source source; /* of texts */
    uint64_t rows;        /* of its table */
    uint64_t out, present; /* numbers of rows, and which are not NULL: of a launch, or of an inner table */
    uint64_t words, too_few; /* of the hash table; so many were not enough */
    gquery_block block;      /* these */
} gquery_numbers;

/* Columns of the table without those that occur twice. */
typedef struct gquery_column_list {
    uint32_t list[GQUERY_COLUMNS_MAX + GQUERY_DISTANCES_MAX], count;
    uint64_t scanned_bytes[GQUERY_COLUMNS_MAX + GQUERY_DISTANCES_MAX]; /* 0: it is only gathered */
    uint32_t columns[GQUERY_COLUMNS_MAX]; /* where that of the program's is in list */
    uint32_t vectors[GQUERY_DISTANCES_MAX];
} gquery_column_list;

typedef struct gquery_query {
    gquery_tables *tables;
    const gquery_device *device;
    gquery_connection *c;
    gquery_message *answer;
    gquery_lane *lane;
    uint32_t stage; /* its program now: the first one, or which one of the stages, from 1 on; and its rows */
    const gquery_program *program;
    uint64_t rows;
    gquery_shape shape, shapes[1 + GQUERY_STAGES_MAX];
    gquery_attached *attached; /* NULL: no rows */
    gquery_column_list listed;
    gquery_leases leases;
    gvm_table_data data[GQUERY_COLUMNS_MAX + GQUERY_DISTANCES_MAX];
    gquery_vectors vectors[GQUERY_DISTANCES_MAX];
    gquery_block dead, batch, groups, distances;
    gquery_block marked, passed; /* marks.c: a bitmap, row numbers; these appended.c's, too */
    gquery_block gathered;       /* marks.c, appended.c, stages.c, nearest.c: records */
    uint32_t numbered;           /* texts.c */
    gquery_numbers numbers[GQUERY_KEYS_MAX];
    gquery_block number_block;
    uint64_t number_marks;                        /* in it */
    gquery_block list, kept;                      /* list.c, nearest.c: entries */
    gquery_block columns;                         /* stages.c */
    uint64_t pitch;                               /* of columns: words from one to the next */
    void *staged;                                 /* nearest.c: what is copied to the device */
    struct gquery_inner *inner[GQUERY_JOINS_MAX]; /* inner.c */
    double matches, matches_most;                 /* of a row, about and at most */
    uint64_t slots;
    uint64_t unit;            /* rows of the first batch; later ones have a multiple of it */
    uint64_t launch_rows;     /* of a launch, at most; divides unit, if it is less */
    uint32_t threads, blocks; /* of a scan */
    gquery_scan scan;
    gquery_cost cost;
    uint64_t scratch_bytes; /* now, in blocks */
} gquery_query;

/* ---- run.c */

bool gquery_succeed(gquery_query *q, gvm_status status, const char *what);
bool gquery_check_call(gquery_query *q, CUresult result, const char *call);
/* The query is malformed. False. */
bool gquery_refuse(gquery_query *q, const char *what);

/* Of the bound of the query's scratch memory, what is left, and a block of it: GQUERY_NO_ROOM. Blocks count as
 * gquery_scratch_size() says. */
uint64_t gquery_room(const gquery_query *q);
bool gquery_take_block(gquery_query *q, uint64_t bytes, gquery_block *block);
/* Work that uses it is over. */
void gquery_give_block(gquery_query *q, gquery_block *block);

static inline gquery_control *gquery_control_of(const gquery_query *q)
{
    return (gquery_control *)(void *)(q->lane->host + GQUERY_CONTROL_AT);
}

/* The program, and control, which is 0 but for the argument. */
bool gquery_send_control(gquery_query *q, const gquery_control *control);

bool gquery_launch(gquery_query *q, CUfunction kernel, uint64_t blocks, uint32_t threads,
                   uint64_t shared_bytes, const void *params);
/* Blocks that `work` threads are, but no more than the device runs at once. */
uint64_t gquery_count_blocks(const gquery_query *q, uint64_t work);
/* Blocks that run at once. */
bool gquery_count_resident(gquery_query *q, CUfunction kernel, uint32_t threads,
                           uint64_t shared_bytes, uint32_t *blocks);
bool gquery_choose_launch(gquery_query *q);

/* A batch: what is launched between these. end waits, with the control and so many bytes of states copied back. */
bool gquery_batch_begin(gquery_query *q);
bool gquery_launch_scan(gquery_query *q, uint64_t first, uint64_t limit);
/* As the scan is launched: one like it. */
bool gquery_launch_program(gquery_query *q, const gquery_scan *scan);
bool gquery_batch_end(gquery_query *q, uint64_t states_bytes);
gquery_outcome gquery_batch_look(gquery_query *q);
/* Rows of the next one, where this one had so many. */
uint64_t gquery_batch_adapt(gquery_query *q, uint64_t rows);

/* All rows through the scan, batch by batch. */
gquery_outcome gquery_scan_rows(gquery_query *q);

static inline gquery_window *gquery_window_of(const gquery_query *q)
{
    return (gquery_window *)(void *)q->c->file;
}

/* Records that are in this process: all of the results. */
bool gquery_write_records(gquery_query *q, const void *records, uint64_t count, uint32_t words);

/* Records that are on the device: the block becomes the connection's. */
bool gquery_write_block(gquery_query *q, gquery_block *block, uint64_t count, uint32_t words,
                        bool gathered);

/* The rows of a program with GQUERY_BUILD into a hash table, or counted, as `build` says, which is as the kernels leave it then. */
bool gquery_run_build(gquery_query *q, gquery_build *build);

/* A query that is a part of another one: it has a table and a program of its own, and takes a lane and leases. */
bool gquery_begin_part(gquery_query *part);
void gquery_end_part(gquery_query *part, bool done);

/* ---- columns.c */

/* Attaches the table and opens its columns. */
bool gquery_open_table(gquery_query *q);
/* Takes a lane and leases, and sets the scan's sources, but those of distances. */
bool gquery_begin_reading(gquery_query *q);
/* Parts of it, without a lane: within wait_ms; GVM_OK without a table. Then the scan's sources. */
gvm_status gquery_take_leases(gquery_query *q, int wait_ms);
bool gquery_set_sources(gquery_query *q);

/* ---- batch.c */

/* Without a batch these are nothing. What the window says of one. */
bool gquery_batch_check(gquery_query *q);
/* With a lane: to the device. Sets the scan's sources. */
bool gquery_batch_send(gquery_query *q);

/* ---- distance.c */

/* Whether the token's column is as the distance says. */
bool gquery_distance_fits(const gquery_query *q, const gquery_wanted_distance *wanted,
                          const gvm_table_column *column);
/* What the window says of them, before anything of the table is known. */
bool gquery_distances_check(gquery_query *q);
/* Takes memory for them, sends the queries, and says how many rows a launch has. */
bool gquery_distances_prepare(gquery_query *q);
/* Computes those of rows [first, limit), launch_rows at most, and sets the scan's sources. */
bool gquery_distances_launch(gquery_query *q, uint64_t first, uint64_t limit);

/* ---- marks.c */

/* What the window says of columns that are to be gathered. */
bool gquery_marks_check(gquery_query *q);
bool gquery_run_marks(gquery_query *q);
/* The bitmap of a program that ends in GQUERY_MARK, into q->marked; there are rows. */
bool gquery_mark(gquery_query *q);
/* Records of query_gather of so many rows, into q->gathered; of entries, with `nearest`. */
bool gquery_gather_values(gquery_query *q, const gquery_block *rows, uint64_t count,
                          uint32_t tables, uint32_t skipped);
uint32_t gquery_gathered_words(const gquery_query *q);

/* ---- appended.c */

bool gquery_run_appended(gquery_query *q);

/* ---- inner.c */

/* What the window says of them. */
bool gquery_inner_check(gquery_query *q);
/* Finds or builds their hash tables, and attaches the tables whose columns are loaded. The query has neither a lane
 * nor leases, as builds have some. */
bool gquery_inner_open(gquery_query *q);
/* On hash tables, with the hint, and columns: all or none, within wait_ms each. */
gvm_status gquery_inner_take_leases(gquery_query *q, gvm_hint hint, int wait_ms);
void gquery_inner_release_leases(gquery_query *q);
/* With leases: what the scan needs of them. */
void gquery_inner_set_sources(gquery_query *q);
/* Work that uses them is over. */
void gquery_inner_close(gquery_query *q);

/* ---- list.c */

bool gquery_run_list(gquery_query *q);

/* ---- nearest.c */

bool gquery_run_nearest(gquery_query *q);

/* ---- stages.c */

/* Copies the programs, checks all of them, and begins with the first one. */
bool gquery_stages_check(gquery_query *q);
/* The groups that were found become rows of the next program. Nothing runs on the stream then. */
bool gquery_stages_next(gquery_query *q);
/* Results: entries of the list in q->kept, whose rows are groups. */
bool gquery_write_listed_groups(gquery_query *q, uint64_t count);

/* ---- texts.c */

/* What the window says of them. */
bool gquery_texts_check(gquery_query *q);
/* Memory for numbers, when the scan's sources are set. */
bool gquery_texts_prepare(gquery_query *q);
/* Memory for the hash tables, until gquery_texts_end(): full: they are to be larger if they were too small. */
bool gquery_texts_take(gquery_query *q);
void gquery_texts_end(gquery_query *q, bool full);
/* Describes and clears them. */
bool gquery_texts_begin(gquery_query *q, gquery_control *control);
bool gquery_texts_are_full(const gquery_query *q);
/* Numbers of inner tables' texts; of those in rows [first, limit) of the outer one, launch_rows at most. They set
 * the scan's sources. */
gquery_outcome gquery_texts_of_inner(gquery_query *q);
bool gquery_texts_launch(gquery_query *q, uint64_t first, uint64_t limit);
/* Words that each of the results has more, and the texts into these: from `at` on, of groups that begin at word `nulls`. */
uint32_t gquery_texts_words(gquery_query *q);
bool gquery_texts_put(gquery_query *q, uint64_t records, uint64_t count, uint32_t nulls, uint32_t at);

#endif
