/* query/number.h - the arguments of the kernels in number.c, as host and device see them: texts have numbers by
 * which programs group rows (GQUERY_NUMBERED), and groups have texts. Addresses are numbers. */
#ifndef GQUERY_NUMBER_H
#define GQUERY_NUMBER_H

#include "query/kernels.h"

#define GQUERY_NUMBER_ROWS UINT32_MAX /* a table has fewer rows */

/* A hash table of texts: open addressing, linear probing, a power of two of words, 0 before. A word is bits of a
 * text's hash, and in its lower half a row that has the text, plus 1. The host sets the other members to 0. It is
 * too small, and all is done again with a larger one, where a text finds no word in GQUERY_PROBES_MAX, or more than
 * half of the words are used. */
typedef struct gquery_texts {
    uint64_t words;   /* an address */
    uint64_t mask;    /* words - 1 */
    uint64_t count;   /* of texts */
    uint32_t full;    /* one has found no word */
    uint32_t longest; /* bytes that one has */
} gquery_texts;

static inline bool gquery_texts_full(const gquery_texts *texts)
{
    return texts->full != 0 || texts->count > (texts->mask + 1) / 2;
}

/* query_present: a bitmap of rows [first, limit), 1: the text is not NULL; `first` is a multiple of 8, and whole
 * bytes are written. */
typedef struct gquery_present {
    gquery_source source; /* of texts, with values */
    uint64_t first, limit;
    uint64_t out;
} gquery_present;

/* query_number: numbers of the texts in rows [first, limit), where they are marked and not NULL. */
typedef struct gquery_number {
    gquery_source source; /* likewise */
    uint64_t first, limit;
    uint64_t marked; /* bitmap; 0: all are */
    uint64_t out;    /* uint32_t */
    uint64_t texts;  /* gquery_texts */
    uint64_t error;  /* as of gquery_scan */
    uint32_t flags;  /* of GQUERY_NUMBERED */
} gquery_number;

/* query_put_texts: the text of each of `count` records whose word `key` is its number, into words of it from `at`
 * on: the bytes that it has, and then as many words as they need, with zeros behind them, of `words` in all.
 * Records are `pitch` words from each other; where bit null_bit of word `nulls` is 1, there is no text. */
typedef struct gquery_put_texts {
    gquery_source source;
    uint64_t rows; /* of its table */
    uint64_t records, count;
    uint64_t error; /* as of gquery_scan */
    uint32_t flags; /* of GQUERY_NUMBERED, but for blanks */
    uint32_t pitch;
    uint32_t nulls, null_bit, key;
    uint32_t at, words;
} gquery_put_texts;

#endif
