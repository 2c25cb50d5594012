/* query/search.h - the arguments of the kernels in search.c, as host and device see them. Addresses are numbers. */
#ifndef GQUERY_SEARCH_H
#define GQUERY_SEARCH_H

#include "query/program.h"

/* A query of at most so many bytes is kept in shared memory. */
#define GQUERY_SEARCH_SHARED_BYTES 32768u
#define GQUERY_ENTRY_WORDS_MAX (GQUERY_KEYS_MAX + GQUERY_TABLES_MAX)

/* What the elements of a column of fixed length are, and what they are summed as. */
typedef enum gquery_elements {
    GQUERY_ELEMENTS_F32, /* float; summed again as double where that sum overflows, or is so small that terms were subnormal */
    GQUERY_ELEMENTS_F16, /* the same */
    GQUERY_ELEMENTS_F64, /* double */
    GQUERY_ELEMENTS_I16, /* double */
    GQUERY_ELEMENTS_BITS, /* count is in bits; those behind the last one are 0 */
    GQUERY_ELEMENTS,
} gquery_elements;

/* As pgvector defines them. Of bits the last two, of others the rest. */
typedef enum gquery_metric {
    GQUERY_L2,      /* <-> */
    GQUERY_INNER,   /* <#> negative inner product */
    GQUERY_COSINE,  /* <=> NaN if either is all zeros */
    GQUERY_L1,      /* <+> */
    GQUERY_HAMMING, /* <~> */
    GQUERY_JACCARD, /* <%> 1 where no bit is in both */
    GQUERY_METRICS,
} gquery_metric;

/* query_distance: out[r - first], a double, is the distance of row r from the query, for rows [first, limit). A row
 * has `lanes` threads, a power of two that divides a warp: gquery_lanes(). Dynamic shared memory: the query's
 * bytes, if they are at most GQUERY_SEARCH_SHARED_BYTES. */
typedef struct gquery_distance {
    uint64_t values;
    /* Float of GQUERY_ELEMENTS_F32 and _F16, double of _F64 and _I16, bytes of _BITS; with zeros up to a multiple
     * of 16 bytes. */
    uint64_t query;
    uint64_t out;
    uint64_t first, limit;  /* rows */
    double query_square;    /* the sum of the squares of the query's elements, for GQUERY_COSINE */
    uint32_t stride, count; /* bytes of a row, elements or bits */
    uint32_t query_bytes;   /* with these zeros */
    uint32_t elements, metric;
    uint32_t lanes;
} gquery_distance;

/* A thread has four units at a time where a row is long enough; 16 threads read whole lines of memory. On the
 * software GPU, where threads that wait for each other are slow, a row has one. */
static inline uint32_t gquery_lanes(uint32_t stride, bool software)
{
    const uint32_t units = stride % 16 == 0 ? stride / 16 : stride / 8;
    uint32_t lanes = 1;

    while (!software && lanes < 16 && lanes * 8 <= units)
        lanes *= 2;
    return lanes;
}

/* A list of entries, each of `words` int64_t: keys, then a row, or, of joined rows, one of each table; -1: none.
 * They are in the order of these numbers, the first one first; no two are equal. */
typedef struct gquery_list {
    uint64_t entries;
    uint64_t count; /* may exceed max: what is beyond was left out */
    uint64_t max;
    int64_t bound[GQUERY_ENTRY_WORDS_MAX]; /* entries above it are not wanted any more */
    int64_t after[GQUERY_ENTRY_WORDS_MAX]; /* nor those that are not above this one: of an earlier part of the list */
    uint32_t words;
    uint32_t bounded, continued; /* there is a bound; there is an `after` */
    uint32_t tables; /* of joined rows, a bit for each: those whose rows entries have; of others -1 */
} gquery_list;

/* query_select, one block: the bound of the list becomes its entry number `k`, counted from 1 in their order;
 * unless it has fewer: then nothing changes. Dynamic shared memory: none.
 * query_keep: entries of `from` up to its bound are appended to `to`, which becomes its bound, too. */
typedef struct gquery_select {
    uint64_t from, to; /* gquery_list */
    uint64_t k;
} gquery_select;

/* query_nearest: for each pair of a row of [first, limit) and a query, an entry (GQUERY_ORDER_KEY of the distance,
 * the row) is appended to the query's list, if it is not above the list's bound; not of rows whose bit in `marked`
 * or `nulls` is 0. A block has side * side threads. Dynamic shared memory: none.
 * query_products: the same; faster where lists have bounds. See gquery_has_products(); of bits only this one. */
#define GQUERY_SIDE_MAX 16u
#define GQUERY_NEAREST_EACH 4u  /* rows, and queries, of a thread */
#define GQUERY_PRODUCTS_EACH 8u /* the same of query_products */
#define GQUERY_SIDE_SOFT 1u     /* threads of a block are not faster together there */

typedef struct gquery_nearest {
    uint64_t values;
    uint64_t nulls;   /* as of gquery_source; 0: none is NULL */
    uint64_t marked;  /* a bitmap; 0: all rows are wanted */
    uint64_t queries; /* query_bytes each, as gquery_distance.query; of GQUERY_ELEMENTS_F16 floats that are float16s, too */
    uint64_t query_squares; /* double for each: the sum of the squares of its elements, of bits how many are 1 */
    uint64_t lists;        /* gquery_list for each, of 2 words */
    uint64_t first, limit; /* rows */
    uint64_t query_count;
    uint32_t stride, count, query_bytes; /* as of gquery_distance */
    uint32_t elements, metric;
    uint32_t side;
} gquery_nearest;

static inline bool gquery_has_products(uint32_t elements, uint32_t metric)
{
    return elements == GQUERY_ELEMENTS_BITS ||
           (metric != GQUERY_L1 &&
            (elements == GQUERY_ELEMENTS_F32 || elements == GQUERY_ELEMENTS_F16));
}

/* query_shorten, a block for each list: of more than k entries the first k are left, and the k-th becomes the
 * bound. They are also in its list of `kept`, whose max is k; last: of those with fewer entries, too, with words of
 * -1 behind them. Dynamic shared memory: none. */
typedef struct gquery_shorten {
    uint64_t lists, kept; /* gquery_list, one behind the other */
    uint64_t k;
    uint32_t last;
} gquery_shorten;

#endif
