/* query/gather.h - the arguments of the kernels in gather.c, as host and device see them: rows whose bits are 1 in a bitmap, as a list, and their
 * values. Addresses are numbers. */
#ifndef GQUERY_GATHER_H
#define GQUERY_GATHER_H

#include "query/kernels.h"

/* A bitmap in parts of `each` words of 32 rows; a warp goes through one at a time.
 *
 * query_count_marks: counts[part] becomes how many of the part's bits are 1.
 * query_list_marks: rows[counts[part]] and those after it become the numbers of the part's rows whose bits are 1, ascending. */
typedef struct gquery_marks {
    uint64_t words;  /* uint32_t */
    uint64_t counts; /* uint64_t */
    uint64_t rows;   /* uint64_t */
    uint64_t word_count;
    uint32_t each, parts;
} gquery_marks;

/* query_gather: a record of 2 + `columns` words for each of `count` rows: its number, which columns are NULL (bit i: column i), the values as the
 * stack of query/program.h has them, 0 where they are NULL. None is of GQUERY_DECIMAL and those behind it. */
typedef struct gquery_gather {
    uint64_t rows; /* uint64_t */
    uint64_t count;
    uint64_t out;
    uint32_t columns;
    uint32_t forms[GQUERY_COLUMNS_MAX]; /* gquery_form */
    int64_t biases[GQUERY_COLUMNS_MAX]; /* gquery_column.bias */
    gquery_source sources[GQUERY_COLUMNS_MAX];
} gquery_gather;

#endif
