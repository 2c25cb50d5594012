/* query/wire.h - what a backend and the executor exchange: messages over a connection (SOCK_SEQPACKET), and a
 * memory file that both have mapped.
 *
 * The backend makes the file and seals it against shrinking. It begins with a gquery_window; spans are offsets from
 * the file's start. Both are programs of one user; each checks what it takes from the other before it uses it.
 */
#ifndef GQUERY_WIRE_H
#define GQUERY_WIRE_H

#include "query/search.h"

#define GQUERY_MAGIC 0x79717267u
#define GQUERY_VERSION 2u
#define GQUERY_NEAREST_MAX 4096u /* queries at a time */
#define GQUERY_TOKEN_BYTES 512
#define GQUERY_TEXT_BYTES 1024
#define GQUERY_PIECE_BYTES (8u << 20) /* of results, at a time; all, if they are less than */
#define GQUERY_PIECE_MAX (16u << 20)
#define GQUERY_ALIGN 64u
#define GQUERY_STAGES_MAX 2 /* programs after the first one */
#define GQUERY_BATCH_ROWS_MAX 32768u
#define GQUERY_BATCH_PITCH(rows) (((rows) + 63) / 64 * 64) /* values of a column */
#define GQUERY_BATCH_BYTES(rows) (GQUERY_BATCH_PITCH(rows) * 8 + GQUERY_BATCH_PITCH(rows) / 8)
/* In `gather`, beside a column of decimals: the upper half; without it, the lower one. */
#define GQUERY_GATHER_HIGH 0x80000000u
/* In `gather`, beside a table and not a column: the number of its row; NULL where a left join has found none. */
#define GQUERY_GATHER_ROW 0x40000000u

typedef enum gquery_verb {
    /* to the executor */
    GQUERY_RUN = 1, /* the window's query */
    GQUERY_FETCH,   /* the next piece of its results */
    GQUERY_FORGET,  /* the results are not wanted; no answer */
    /* to the backend */
    GQUERY_DONE,    /* the window has results */
    GQUERY_ERROR,   /* sqlstate and text */
    GQUERY_RAISED,  /* a row has raised `error`, gquery_error */
    GQUERY_NO_ROOM, /* of memory, or there is no such device now: text; the local plan may do it */
    GQUERY_FAULT,   /* a call of the driver or the system has failed; likewise */
} gquery_verb;

typedef struct gquery_message {
    uint32_t magic;
    uint32_t verb;
    uint32_t error;
    uint32_t lost; /* the executor ends: connections have no use any more */
    char sqlstate[8];
    char text[GQUERY_TEXT_BYTES];
} gquery_message;

typedef struct gquery_span {
    uint64_t at, bytes;
} gquery_span;

/* Rows [0, rows) of the token's table, but for those that the bitmaps name (1: not seen). */
typedef struct gquery_table {
    char token[GQUERY_TOKEN_BYTES]; /* "": no rows */
    uint64_t rows;
    uint64_t store,
        version; /* where both are the same, so are the rows that are seen; store 0: that cannot be said */
    gquery_span dead;                   /* in this file; no bytes: there is none */
    uint64_t deleted_at, deleted_bytes; /* on the device, in what the token's link "0.deleted" leads to */
} gquery_table;

/* A column of program.h's GQUERY_DISTANCE: of a column of vectors from a query, by query/search.h. NULL where the vector is. */
typedef struct gquery_wanted_distance {
    uint32_t table, number, type; /* of the vectors, as in gquery_column */
    uint32_t elements, metric;    /* gquery_elements, gquery_metric */
    uint32_t stride, count;
    double query_square;
    gquery_span query; /* with zeros up to a multiple of 16 bytes */
} gquery_wanted_distance;

/* Of groups that are sent, a text in the place of its number, which is key `key`: of a column of the first program. */
typedef struct gquery_wanted_text {
    uint32_t key, column;
} gquery_wanted_text;

/* What a query has cost. */
typedef struct gquery_cost {
    uint64_t rows, read_bytes; /* that went through the program */
    uint64_t host_bytes;       /* of these, and of hash tables, in host memory when it began */
    uint64_t kernel_ns, total_ns;
    uint64_t scratch_bytes; /* of device memory, at most */
} gquery_cost;

typedef struct gquery_window {
    uint32_t magic, version;
    uint64_t used;  /* bytes of the file that mean something; the executor writes behind */
    uint32_t begun; /* the executor's: not 0 from when it begins with the query */
    uint32_t role;  /* of the session: those of one role leave lanes to others */
    uint32_t table_count;
    gquery_table tables[GQUERY_TABLES_MAX];
    /* Not 0: table 0 is a batch, tables[0].rows rows without a token. `batch` has the program's columns of it in
     * their order, each of GQUERY_BATCH_BYTES(rows): as the stack has them, of GQUERY_I64 or GQUERY_F64, without a
     * bias, then a bitmap, 1: not NULL. */
    uint32_t batched;
    gquery_span batch;
    gquery_program program;
    /* Of tables from 1 on: a gquery_program over that table alone, as table 0, which ends in GQUERY_BUILD. */
    gquery_span builds[GQUERY_JOINS_MAX];
    uint32_t distance_count;
    gquery_wanted_distance distances[GQUERY_DISTANCES_MAX];
    uint64_t scratch_bytes_max; /* of device memory, for this query */
    uint64_t hash_bytes_max; /* of hash tables, for all that sessions of the role have had built */
    /* Of GQUERY_EMIT: so many of the first entries are wanted, of those after `after`. Of a table 2^20 at most. */
    uint64_t list_max;
    uint32_t continued;
    /* Not 0: of so many queries, which are those of the only distance, one behind the other, list_max rows each. The program ends in GQUERY_MARK: rows that
     * it marks count, if their vector is not NULL. */
    uint32_t nearest;
    int64_t after[GQUERY_ENTRY_WORDS_MAX];
    /* Of GQUERY_MARK: if no more rows pass than gather_max, a list of them is wanted, with the values of these columns of the program; with `nearest`, if there are no more entries. */
    uint64_t gather_max;
    uint32_t gather_count;
    uint32_t gather[GQUERY_COLUMNS_MAX];
    uint32_t gather_vectors; /* not 0: with `nearest`, the vectors, too */
    /* Stages: further programs, each of the groups of the one before, whose rows are these (GQUERY_GROUPS). Their lists have all groups where list_max says so,
     * and are not continued; marks are of tables alone. */
    uint32_t stage_count;
    gquery_span stages[GQUERY_STAGES_MAX]; /* gquery_program */
    /* Of GQUERY_APPEND: from row first_row of the outer table on; 0, or the next_row of the query before, with its slice_rows then. The columns of gather are wanted, whatever gather_max is. It may
     * end when there are list_max rows. */
    uint64_t first_row, slice_rows;
    uint32_t text_count;
    gquery_wanted_text texts[GQUERY_KEYS_MAX];
    /* Results, of which those of GQUERY_APPEND over a batch begin with the number of its row. Of groups, records of record_words words: which keys are NULL (bit k), keys, state. Of GQUERY_EMIT entries (query/search.h), in any order; where these are of groups,
     * each with its group's words behind it. Of GQUERY_MARK the bitmap, 64 rows a record, or, if `gathered`, a record of query/gather.h's query_gather for each row that passes, ascending. With `nearest` entries
     * of 2 words, the distance by GQUERY_ORDER_KEY and the row, in any order: as many of each query, in the order of these; a row of -1 is none; or, if `gathered`, a record of query_gather for each of these. Of GQUERY_APPEND a record for
     * each joined row, in any order: which of the columns are NULL (bit i: column i), their values. */
    uint64_t record_count; /* in all */
    /* Behind a group each of `texts`, in so many words: its bytes' number, then the bytes, and zeros behind them. */
    uint32_t text_words[GQUERY_KEYS_MAX];
    uint32_t record_words;
    uint32_t more; /* there are more than these: GQUERY_FETCH */
    uint32_t gathered;
    gquery_span records;
    /* Of GQUERY_APPEND: outer rows before this one are done; where that is not all of them, the same query goes on
     * from there, and no row raises an error then. */
    uint64_t next_row, next_slice_rows;
    gquery_cost cost;
} gquery_window;

#endif
