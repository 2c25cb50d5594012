/* tests/prop/appender_kernels.h - what the test and its kernel agree on: what an item is, where the
 * kernel says what it did. In the dialect of gvmem/device/kernel.h where the kernel includes it. */
#ifndef APPENDER_KERNELS_H
#define APPENDER_KERNELS_H

#include <gvmem/appender.h>

/* Which call claims. */
enum {
    APPEND_BY_THREAD,
    APPEND_BY_WARP,
    APPEND_BY_BLOCK,
    APPEND_BY_WHOLE_WARP,  /* the items are the warps' */
    APPEND_BY_WHOLE_BLOCK, /* and here the blocks' */
    APPEND_MODES
};

/* What was done about one item. */
typedef struct append_log {
    uint64_t row, offset, amount;
    uint64_t bytes_at; /* the slot's pointer, less the buffer's address */
    uint32_t rows, bytes, launch_number, times;
} append_log;

typedef struct append_rows_params {
    gvm_append append;
    uint64_t logs;      /* append_log of each item */
    uint64_t positions; /* of each worker: how many rounds it has done; kept from launch to launch */
    uint64_t answers;   /* uint64_t [4]: how often claim gave each answer but OK */
    uint64_t first, items, seed;
    uint64_t crash; /* the item at which the kernel writes where nothing is; UINT64_MAX: none */
    uint32_t mode, rows_max, bytes_max, launch_number;
    uint32_t gather; /* 1: published once, at the end */
    uint32_t unused;
} append_rows_params;

#define APPEND_ROW_BYTES_MIN 32u

#ifdef __CUDACC__
#define APPEND_MIX static __device__ __forceinline__
#else
#define APPEND_MIX static inline __attribute__((unused))
#endif
APPEND_MIX uint64_t append_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Items are of no rows or no bytes or neither every now and then, and seldom as large as they can
 * be. */
#define APPEND_ITEM_MOST(item, salt, most) \
    (append_mix((item) + (salt)) % 16 == 0 ? (uint64_t)(most) : ((uint64_t)(most) + 7) / 8)
#define APPEND_ITEM_SIZE(seed, item, salt, most) \
    ((uint32_t)(append_mix((seed) ^ append_mix((item)*4 + (salt))) % \
                (APPEND_ITEM_MOST(item, salt, most) + 1)))
#define APPEND_ITEM_ROWS(seed, item, most) APPEND_ITEM_SIZE(seed, item, 1, most)
#define APPEND_ITEM_BYTES(seed, item, most) APPEND_ITEM_SIZE(seed, item, 2, most)
#define APPEND_ITEM_ALIGN(seed, item) \
    (append_mix((seed) + (item)) % 4 != 0 ? 1u : 1u << append_mix((seed) - (item)) % 13)

/* Word w of row r of an item; byte b of its bytes. */
#define APPEND_ROW_WORD(item, r, w) append_mix((item)*1000003 + (uint64_t)(r)*257 + (w))
#define APPEND_BYTE(item, b) ((unsigned char)(append_mix(item) + 7 * (uint64_t)(b)))

#endif
