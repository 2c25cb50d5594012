/* query/gather.h - the arguments of the kernels in gather.c, as host and device see them: rows whose bits are 1 in
 * a bitmap, as a list, and their values. Addresses are numbers. */
#ifndef GQUERY_GATHER_H
#define GQUERY_GATHER_H

#include "query/kernels.h"

/* A form here: the upper half of a decimal; GQUERY_DECIMAL is the lower one. */
#define GQUERY_DECIMAL_HIGH GQUERY_FORMS
/* Likewise: the row of a table, whose `values` are not 0. */
#define GQUERY_ROW_NUMBER (GQUERY_FORMS + 1)

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

/* query_gather: a record for each of `count` rows, of 2 + `columns` words and those of a vector: its number, which columns are NULL (bit i: column i), the values as the
 * stack of query/program.h has them, 0 where they are NULL; the vector's bytes, and zeros behind them. Of rows that are joined there is a number for each table; records are
 * without them. Entries (query/search.h) are taken for two tables: the key for the row of the first one, with which records begin. */
typedef struct gquery_gather {
    uint64_t rows; /* uint64_t, `tables` of each; all ones: there is none, and the table's columns are NULL */
    uint64_t count;
    uint64_t out;
    uint32_t tables;
    uint32_t skipped; /* words that records begin without: 0 or 1 */
    uint32_t columns;
    uint32_t forms[GQUERY_COLUMNS_MAX]; /* gquery_form, or one of the above */
    int64_t biases[GQUERY_COLUMNS_MAX]; /* gquery_column.bias */
    gquery_source sources[GQUERY_COLUMNS_MAX];
    gquery_source vectors; /* of so many bytes each, which are as many words; `columns` says nothing of them. 0: none */
    uint32_t vector_bytes, vector_words;
} gquery_gather;

#endif
