/* base/size.h - arithmetic on sizes, and sizes as people write them. */
#ifndef GVMI_BASE_SIZE_H
#define GVMI_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gvmem/status.h>

#define GVMI_KIB (1ull << 10)
#define GVMI_MIB (1ull << 20)
#define GVMI_GIB (1ull << 30)
#define GVMI_TIB (1ull << 40)

static inline uint64_t gvmi_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t gvmi_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of two uint32_t, for qsort() and tsearch(). */
static inline int gvmi_compare_u32(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static inline bool gvmi_is_pow2(uint64_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

/* The smallest power of two that is at least n; n at most 2^63. */
static inline uint64_t gvmi_pow2_up(uint64_t n)
{
    return n <= 1 ? 1 : 1ull << (64 - __builtin_clzll(n - 1));
}

/* unit is a power of two; up() must not overflow (check against UINT64_MAX - unit first). */
static inline uint64_t gvmi_round_down(uint64_t n, uint64_t unit)
{
    return n & ~(unit - 1);
}
static inline uint64_t gvmi_round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}

/* [offset, offset + len) lies within [0, limit). An empty range does anywhere up to limit. */
static inline bool gvmi_range_within(uint64_t offset, uint64_t len, uint64_t limit)
{
    return offset <= limit && len <= limit - offset;
}

/* An amount among options: 0 is the default, GVM_BYTES_NONE is none. */
static inline uint64_t gvmi_amount(uint64_t given, uint64_t fallback)
{
    return given == 0 ? fallback : given == GVM_BYTES_NONE ? 0 : given;
}

/* Reads "4096", "64K", "64KiB", "2MiB", "1.5G", "4TiB" (binary units, any case). False if it is no
 * size or does not fit. */
bool gvmi_size_parse(const char *text, uint64_t *out_bytes);

/* Writes "64 KiB", "1.5 GiB", "4097 B" into a buffer of at least 32 bytes and returns it. */
char *gvmi_size_text(uint64_t bytes, char out[32]);

#endif
