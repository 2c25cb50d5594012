/* query/kernels.h - the arguments of the kernels, as host and device see them. Addresses are numbers. */
#ifndef GQUERY_KERNELS_H
#define GQUERY_KERNELS_H

#include "query/program.h"

#define GQUERY_THREADS 256 /* of a block, at most; any multiple of a warp */
#define GQUERY_EACH 4      /* rows that a thread has at a time */

/* An instruction as gquery_fuse() has changed it, which is one that does up to three things. op: the column plus 1
 * that is loaded before, the operation, and whether a GQUERY_FILTER follows. b of comparisons and + - *: where the
 * right operand is, if not on the stack. Loads and filters that are by themselves are such an addition to an
 * operation that does nothing else. */
#define GQUERY_OPERATION 0x7fu
#define GQUERY_THEN_FILTER 0x80u
#define GQUERY_LOADED_SHIFT 8
#define GQUERY_OPERAND 0x300u
#define GQUERY_OPERAND_VALUE 0x100u  /* `value` */
#define GQUERY_OPERAND_COLUMN 0x200u /* column `a` */
/* And of comparisons which of less, equal and greater they are true for: bits 4, 5 and 6. */
#define GQUERY_OUTCOMES_SHIFT 4
#define GQUERY_KIND 0xfu

/* A condition that needs no stack: a column beside a constant. Rows are active where it is true. */
typedef enum gquery_test_kind {
    GQUERY_TEST_CODE, /* by the instruction `at` */
    GQUERY_TEST_I32,  /* of GQUERY_I32 without a bias: from low to high */
    GQUERY_TEST_I64,  /* of GQUERY_I64, likewise */
} gquery_test_kind;

typedef struct gquery_test {
    uint32_t column, kind;
    uint32_t at;
    uint32_t is_outside; /* true of the numbers that are not from low to high */
    int64_t low, high;
} gquery_test;

#define GQUERY_TESTS_MAX 8

typedef struct gquery_tests {
    uint32_t count;
    uint32_t end;        /* the first instruction that is none of them */
    uint32_t code_count; /* of all */
    gquery_test each[GQUERY_TESTS_MAX];
} gquery_tests;

/* Makes of a program that gquery_check() has accepted what kernels run, and says which tests it begins with. Ranges
 * of a column are one test. */
gquery_tests gquery_fuse(gquery_program *program);

typedef struct gquery_source {
    uint64_t values;
    uint64_t nulls; /* bitmap, 1: not NULL; 0: none is NULL. Where values are 0 too, all are NULL */
    uint32_t table; /* as in gquery_column, of tables: which row is read */
    uint16_t form;  /* gquery_form */
    uint16_t has;   /* bits: GQUERY_HAS_NULLS, GQUERY_HAS_BIAS */
    /* Of texts: an address, and how many bytes there are; of GQUERY_TEXT_FIXED these are a row's, and there are no bodies. */
    uint64_t bodies, bytes;
} gquery_source;

#define GQUERY_HAS_NULLS 1u
#define GQUERY_HAS_BIAS 2u /* the column has one, or decimals are checked */

/* Where a column of table 0 is. */
gquery_source gquery_source_at(const gquery_column *column, uint64_t values, uint64_t nulls);

#define GQUERY_NO_ROW UINT32_MAX

/* Slots of a hash table that are searched for keys, from the one that their hash gives. Tables are half full at
 * most, so that ordinary keys need fewer than a hundred. Keys whose hashes are equal, as a user may choose them,
 * would each be searched for behind all before. */
#define GQUERY_PROBES_MAX 1024u

/* An inner table by its keys: open addressing, linear probing. A slot is a word, which has a state in its lower
 * half and a row, below GQUERY_NO_ROW, in its upper one, and then the keys. Rows with the same keys are chained by
 * `next`, a uint32_t for each row of the table that has been entered. */
typedef struct gquery_hash {
    uint64_t slots; /* an address */
    uint64_t count; /* of slots; 0: no row was entered */
    uint64_t next;  /* an address; 0: no two rows have the same keys */
    /* By gquery_scan: the instructions behind the table's GQUERY_PROBE, and behind its GQUERY_MATCH. */
    uint32_t resume, matched;
} gquery_hash;

/* Of GQUERY_BUILD. A scan with hash.count 0 counts rows in `rows`, one with slots, which are 0 before, enters them,
 * and counts in `repeated` those whose keys were there.
 * GQUERY_E_LONG: keys find no slot in GQUERY_PROBES_MAX. */
typedef struct gquery_build {
    gquery_hash hash;
    uint64_t rows;
    uint64_t repeated;
} gquery_build;

/* Of GQUERY_APPEND: the numbers of the rows that are joined, of each table one, the outer one's first; all ones:
 * there is none. Where count exceeds max, those beyond were left out; where it exceeds `stop`, rows may not have
 * been looked at. */
typedef struct gquery_appended {
    uint64_t rows; /* `tables` uint64_t each */
    uint64_t count, max, stop;
    uint64_t tables;
} gquery_appended;

/* Of a program that has been through gquery_fuse(): resume and matched of its tables. */
void gquery_set_resumes(const gquery_program *program, gquery_hash *hashes);

/* query_scan: rows [first, limit) through the program. query_join: the same, also of programs with GQUERY_PROBE and
 * GQUERY_BUILD. Dynamic shared memory: gquery_shared_bytes().
 *
 * All in one group (groups 0): each block adds what it has found to its part of `partial`, a state of state_words
 * each, which a launch of query_reduce adds up. So sums of doubles do not depend on timing.
 *
 * By groups: `groups` is a gquery_groups. Where it is full, or keys find no slot in GQUERY_PROBES_MAX, rows are
 * left out and groups.full is 1: the caller begins anew with a larger one.
 *
 * GQUERY_MARK: all bits of the 32-bit words that have rows [first, limit) are written, those behind `limit` as 0;
 * nothing need be there before.
 * GQUERY_EMIT: entries of the list that are above `after` and not above `bound` are appended, in any order. Where
 * count exceeds max, entries beyond that were left out.
 */
typedef struct gquery_scan {
    uint64_t program;      /* gquery_program */
    uint64_t first, limit; /* rows */
    uint64_t dead,
        dead_rows; /* bitmap, 1: a row that is not seen; it has so many bits. 0: there is none */
    uint64_t deleted, deleted_rows; /* a second one */
    uint64_t partial;
    uint64_t groups;
    uint64_t marked; /* of GQUERY_MARK: the bitmap, row 0 at its beginning; `first` is a multiple of 32 */
    uint64_t list; /* of GQUERY_EMIT: gquery_list, its words `keys` + 1 + joins: the keys and the rows; otherwise 0, as `marked` */
    uint64_t error; /* uint32_t, gquery_error; 0 before the first launch */
    uint32_t depth; /* gquery_shape.depth + joins */
    uint32_t state_words, keys;
    uint32_t local_groups, local_copies, local_tiles; /* by gquery_set_local(); 0: none */
    uint32_t local_keys_at, local_tags_at,
        stack_at;       /* likewise: words of 64 bits before them in shared memory */
    gquery_tests tests; /* of gquery_fuse(); with count and end 0 the program does all */
    gquery_source sources[GQUERY_COLUMNS_MAX];
    gquery_hash hashes[GQUERY_JOINS_MAX]; /* of tables from 1 on */
    uint64_t build;                       /* of GQUERY_BUILD: gquery_build; otherwise 0 */
    uint64_t appended;                    /* of GQUERY_APPEND: gquery_appended; otherwise 0 */
    /* A uint32_t of the host. Where it is not 0, further matches of rows and searches for patterns are left out, and
     * GQUERY_E_LONG is raised. 0: there is none. */
    uint64_t halt;
} gquery_scan;

/* query_reduce, one block: states of `blocks` blocks in their order, into the first one. */
typedef struct gquery_reduce {
    uint64_t program;
    uint64_t partial;
    uint64_t error; /* as of gquery_scan */
    uint32_t blocks, state_words;
} gquery_reduce;

/* A hash table of groups: open addressing, a power of two of slots, of which half are used at most: the host sets
 * count and full to 0, max to that; keys without values of their own (NULL) are 0. A slot is `1 + keys +
 * state_words` words: first what kernels need while a group comes into being and which keys are NULL (bit k: key
 * k), then the keys, then the state. */
typedef struct gquery_groups {
    uint64_t slots;
    uint64_t mask;  /* slots - 1 */
    uint64_t count; /* of groups */
    uint64_t max;   /* of them */
    uint32_t full;
    uint32_t slot_words;
} gquery_groups;

/* query_begin: states as before the first row: of `count` states at `states` (partial), or of all slots of groups. */
typedef struct gquery_begin {
    uint64_t program;
    uint64_t partial;
    uint64_t groups;
    uint64_t count;
    uint32_t keys, state_words;
} gquery_begin;

/* query_collect: groups at `out`, in any order: as slots, with a first word that has but the bits of NULL keys.
 * Word w of group i is i * group_pitch + w * word_pitch words on: groups behind each other, or as columns.
 * `collected` counts them: uint64_t, 0 before.
 * sums: which words of a state are sums of doubles; one of them is not finite: GQUERY_E_OVERFLOW.
 * nulls, if not 0: bitmaps of the keys, word_pitch bits each, all 1 before; bits of NULLs become 0. word_pitch is a
 * multiple of 32 then. */
typedef struct gquery_collect {
    uint64_t groups;
    uint64_t out, collected;
    uint64_t group_pitch, word_pitch;
    uint64_t nulls;
    uint64_t sums;
    uint64_t error; /* as of gquery_scan */
    uint32_t slot_words, keys;
} gquery_collect;

/* query_list_groups: the entries of a list whose rows are groups, each with its group's words behind it, at `out`.
 * Word w of group i is at groups, w * word_pitch + i words on. They are `pitch` words from each other. */
typedef struct gquery_listed_groups {
    uint64_t entries, count;
    uint64_t groups, word_pitch;
    uint64_t out, pitch;
    uint32_t entry_words, group_words;
} gquery_listed_groups;

/* Words of the state, bit by bit, that are sums of doubles. */
uint64_t gquery_double_sums(const gquery_program *program);

/* Groups that a block has in shared memory (query/kernel_partial.h), and how many tiles there are between two
 * reviews of them, 255 at most; groups and copies are powers of two. The first ones have all copies of their
 * state. */
#define GQUERY_LOCAL_MAX 128
#define GQUERY_LOCAL_TAGS 4 /* for each of them */
#define GQUERY_LOCAL_COUNTS 4
#define GQUERY_LOCAL_MANY 8
/* Copies, of the others: local_copies is as many at least, if there are others. */
#define GQUERY_LOCAL_FEWER 16
#define GQUERY_LOCAL_STATES(groups, copies) \
    (GQUERY_LOCAL_MANY * (copies) + ((groups)-GQUERY_LOCAL_MANY) * ((copies) / GQUERY_LOCAL_FEWER))

/* Sets how many groups a block of so many threads has in shared memory: as fit into what the stack leaves of it,
 * with as many blocks in a multiprocessor as there would be without. A block may have block_bytes, a multiprocessor
 * has so many; 0: no groups. */
void gquery_set_local(gquery_scan *scan, uint32_t threads, uint64_t block_bytes,
                      uint64_t multiprocessor_bytes);

/* Sets how many there are, and where. */
void gquery_place_local(gquery_scan *scan, uint32_t groups, uint32_t copies);

/* Bytes of dynamic shared memory for blocks of `threads`. */
uint64_t gquery_shared_bytes(const gquery_scan *scan, uint32_t threads);

#endif
