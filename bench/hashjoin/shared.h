/* What the kernels and the host's side of the hash join both know: arguments, rows, checksums.
 *
 * Lengths of texts count bytes, their places units of 16: in the tables each text begins at a unit
 * and is filled up with zeros, so that threads copy 16 bytes at a time.
 */
#ifndef BENCH_HASHJOIN_SHARED_H
#define BENCH_HASHJOIN_SHARED_H

#include <gvmem/device/appender.h>

#define UNIT_BYTES 16u
#define TEXT_BYTES_MAX (16u << 20)
/* The candidates of 32 outer rows must be countable in 32 bits. */
#define ROWS_MAX 100000000u

/* A row of the result. Its text is at text_offset from the start of the buffer that the row is
 * in. */
typedef struct result_row {
    uint32_t outer, inner; /* numbers of the rows that met */
    uint32_t value;        /* the inner row's */
    uint32_t text_bytes;
    uint64_t text_offset;
} result_row;

/* What it takes to see whether a row of the inner side matches, and how much text it has. */
typedef struct __attribute__((aligned(16))) probe {
    uint32_t key, value;
    uint32_t text; /* unit at which it begins */
    uint32_t text_bytes;
} probe;

/* The row, as the hash table has it. A read of its key brings all of it: a GPU's memory is read by 32
 * bytes. */
typedef struct __attribute__((aligned(32))) inner_entry {
    probe probe;
    uint32_t row; /* its number in the inner table */
    uint32_t unused[3];
} inner_entry;

typedef struct __attribute__((aligned(16))) unit {
    uint64_t low, high;
} unit;

/* ---- building the hash table */

/* A word of places counts rows in its upper half and units of text in its lower. */
typedef struct build_params {
    uint64_t keys, values, texts, text_bytes; /* columns of uint32_t; texts: units */
    uint64_t source;                          /* the texts, in the order of the rows */
    uint64_t places;                          /* uint64_t a bucket, and one behind them */
    uint64_t buckets;
    uint32_t rows, hash_shift;
    uint64_t starts, entries, target; /* what is built */
} build_params;

typedef struct scan_params {
    uint64_t values; /* of uint64_t; each becomes the sum of those before it */
    uint64_t count;
    uint64_t sums; /* a uint64_t a block */
} scan_params;

/* ---- joining */

/* Which way a kernel gets its place in the result. */
enum { WAY_COUNT, WAY_APPEND, WAY_FIXED, WAY_TWO_PASS };

enum {
    STOP_NONE = 0,
    STOP_REFUSED = 1,   /* positions are saved: launch again with a fresh buffer */
    STOP_TOO_LARGE = 2, /* a row with its text is larger than any buffer can be */
};

/* How far the join is, in device memory; all zero at its start. What a launch leaves undone, the
 * next one takes up. A line of 128 bytes for each word that all warps write. */
typedef struct join_state {
    uint64_t next_tile;
    uint64_t unused0[15];
    uint64_t next_slice; /* of the heavy tiles */
    uint64_t unused1[15];
    uint64_t heavy; /* how many heavy tiles there are << HEAVY_SHIFT | their slices */
    uint64_t unused2[15];
    uint64_t cursor; /* of a fixed buffer: rows << 32 | units */
    uint64_t unused3[15];
    uint64_t refused; /* ~(where a fixed buffer's first refusal was); 0: there was none */
    uint64_t lost_rows, lost_units;
    uint64_t all_rows, all_units; /* counted */
    uint32_t stop;
    uint32_t unused4;
    uint64_t unused5[10];
} join_state;

/* 2^22 tiles: more than a GPU has of ROWS_MAX rows; 2^42 slices: more than all pairs of so many rows make. */
#define HEAVY_SHIFT 42

/* A tile of more candidates than one warp should have to itself. */
typedef struct heavy_tile {
    uint64_t first_slice;
    uint32_t tile, candidates;
} heavy_tile;

/* What a warp still has to do: candidates [begin, end) of a tile. Nothing if they are the same. */
typedef struct join_range {
    uint32_t tile;
    uint32_t begin, end;
    uint32_t heavy; /* others have the tile's other candidates */
    uint32_t most;  /* matches to be written at once */
} join_range;

typedef struct join_params {
    gvm_append append;                            /* WAY_APPEND */
    uint64_t outer_keys, outer_lows, outer_highs; /* columns of uint32_t */
    uint64_t starts, entries, texts;              /* the hash table */
    uint64_t state, heavy, saved; /* join_state; heavy_tile a tile; join_range a warp */
    uint64_t tiles;               /* WAY_COUNT, WAY_TWO_PASS: uint64_t a tile, rows << 32 | units */
    uint64_t result;              /* WAY_FIXED, WAY_TWO_PASS: where the buffer begins */
    uint64_t text_offset;         /* and where its texts do, from there */
    uint64_t rows_max, units_max; /* WAY_FIXED: what it can hold */
    uint32_t outer_rows, hash_shift;
    uint32_t heavy_phase; /* 0: tile by tile, heavy ones are put aside; 1: those */
    uint32_t outer_first; /* the number of the first outer row, of those that are joined */
} join_params;

/* ---- checking */

typedef struct check_params {
    uint64_t result, rows;
    uint64_t text_low, text_high; /* texts must lie in [low, high) of the buffer */
    uint64_t sums;                /* check_sums */
} check_params;

typedef struct check_sums {
    uint64_t checksum; /* the sum of all rows' hashes: the order does not matter */
    uint64_t bad;      /* rows whose text lies elsewhere */
} check_sums;

GVM_DEVICE uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The text begins at a multiple of 16 and may have anything behind it. */
GVM_DEVICE uint64_t hash_text(const uint64_t *words, uint32_t bytes)
{
    uint64_t hash = mix(bytes + 1), word;
    uint32_t i;

    for (i = 0; i < bytes / 8; i++)
        hash = mix(hash ^ words[i]);
    if (bytes % 8 != 0) {
        word = words[i] & ((uint64_t)-1 >> (64 - 8 * (bytes % 8)));
        hash = mix(hash ^ word);
    }
    return hash;
}

GVM_DEVICE uint64_t hash_row(uint32_t outer, uint32_t inner, uint32_t value, uint64_t text)
{
    return mix(mix((uint64_t)outer << 32 | inner) + (text ^ (uint64_t)value * 0x9e3779b97f4a7c15u));
}

GVM_DEVICE uint32_t bucket_of(uint32_t key, uint32_t hash_shift)
{
    return key * 2654435769u >> hash_shift;
}

GVM_DEVICE uint32_t units_of(uint32_t bytes)
{
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

#endif
