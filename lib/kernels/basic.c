/* Device code: fill with numbers, sum, checksum, compare, at the speed of the memory.
 *
 * All four walk an array of 8-byte words in the same way. Words are taken in pairs, one 16-byte
 * access each, starting at the first 16-byte boundary; the odd word before it (head) and behind the
 * last pair (tail) are left to one thread of the launch. Pairs are cut into tiles, dealt to blocks
 * in turn. Within a tile neighbouring threads take neighbouring pairs (one transaction a warp), and
 * each thread starts LOADS loads before it uses the first, so that enough bytes are under way to
 * cover the latency of the memory. On the software GPU tiles keep the
 * SM threads out of each other's cache lines.
 *
 * Sums go from threads to a block and with one atomic operation to the result.
 */
#include <gvmem/device/kernel.h>

#include "kernels/basic.h"

#define TILE_PAIRS (GVMI_TILE_WORDS / 2)
#define LOADS 4u

typedef struct __attribute__((aligned(16))) words2 {
    uint64_t x, y;
} words2;

typedef struct __attribute__((aligned(16))) doubles2 {
    double x, y;
} doubles2;

/* An array of words, cut up. */
typedef struct span {
    uint64_t head; /* words before the first pair: 0 or 1 */
    uint64_t pairs;
    uint64_t tail; /* words behind the last pair: 0 or 1 */
} span;

GVM_DEVICE span span_of(uint64_t address, uint64_t words)
{
    span s;

    s.head = (address & 8) != 0 && words > 0;
    s.pairs = (words - s.head) / 2;
    s.tail = (words - s.head) % 2;
    return s;
}

/* Where this block's tile ends. */
GVM_DEVICE uint64_t tile_end(uint64_t first, uint64_t pairs)
{
    return pairs - first < TILE_PAIRS ? pairs : first + TILE_PAIRS;
}

/* The first pair of this block's first tile, and from tile to tile. */
GVM_DEVICE uint64_t tile_first(void)
{
    return (uint64_t)gvm_block() * TILE_PAIRS;
}
GVM_DEVICE uint64_t tile_stride(void)
{
    return (uint64_t)gvm_block_count() * TILE_PAIRS;
}

/* ------------------------------------------------------------------ fill */

/* A number in [0, 1) with 53 random bits. */
GVM_DEVICE double random_f64(uint64_t seed, uint64_t index)
{
    return (double)(gvmi_splitmix64(seed ^ gvmi_splitmix64(index)) >> 11) * 0x1p-53;
}

GVM_KERNEL(fill_random_f64, gvmi_fill_params, p)
{
    double *values = (double *)(uintptr_t)p.address;
    span s = span_of(p.address, p.count);
    doubles2 *pairs = (doubles2 *)(void *)(values + s.head);
    uint64_t first, end, i, index;

    for (first = tile_first(); first < s.pairs; first += tile_stride()) {
        end = tile_end(first, s.pairs);
        for (i = first + gvm_thread(); i < end; i += gvm_block_threads()) {
            doubles2 pair;

            index = p.first_index + s.head + 2 * i;
            pair.x = random_f64(p.seed, index);
            pair.y = random_f64(p.seed, index + 1);
            pairs[i] = pair;
        }
    }
    if (gvm_thread_global() != 0)
        return;
    if (s.head)
        values[0] = random_f64(p.seed, p.first_index);
    if (s.tail)
        values[p.count - 1] = random_f64(p.seed, p.first_index + p.count - 1);
}

/* ------------------------------------------------------------------ sum */

GVM_DEVICE double sum_batch(const doubles2 *pairs, uint64_t i, uint64_t end)
{
    uint32_t step = gvm_block_threads(), k;
    doubles2 v[LOADS];
    double sum = 0;

    if (i + (LOADS - 1) * step < end) {
        for (k = 0; k < LOADS; k++)
            v[k] = pairs[i + k * step];
        for (k = 0; k < LOADS; k++)
            sum += v[k].x + v[k].y;
    } else {
        for (; i < end; i += step)
            sum += pairs[i].x + pairs[i].y;
    }
    return sum;
}

GVM_KERNEL(sum_f64, gvmi_sum_params, p)
{
    const double *values = (const double *)(uintptr_t)p.address;
    span s = span_of(p.address, p.count);
    const doubles2 *pairs = (const doubles2 *)(const void *)(values + s.head);
    uint64_t first, end, i;
    double sum = 0;

    for (first = tile_first(); first < s.pairs; first += tile_stride()) {
        end = tile_end(first, s.pairs);
        for (i = first + gvm_thread(); i < end; i += LOADS * gvm_block_threads())
            sum += sum_batch(pairs, i, end);
    }
    if (gvm_thread_global() == 0) {
        if (s.head)
            sum += values[0];
        if (s.tail)
            sum += values[p.count - 1];
    }
    sum = gvm_block_sum_f64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_f64((double *)(uintptr_t)p.result, sum);
}

/* ------------------------------------------------------------------ checksum */

/* The bytes at the end that make up no word, as a word padded with zeros. */
GVM_DEVICE uint64_t partial_word(uint64_t address, uint64_t len_bytes)
{
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)(address + (len_bytes & ~(uint64_t)7));
    uint64_t word = 0, k;

    for (k = 0; k < len_bytes % 8; k++)
        word |= (uint64_t)bytes[k] << (8 * k);
    return word;
}

GVM_DEVICE uint64_t mix_word(uint64_t word, uint64_t index)
{
    return gvmi_splitmix64(word ^ gvmi_splitmix64(index));
}

/* index is the number of the word pairs[0].x. */
GVM_DEVICE uint64_t mix_batch(const words2 *pairs, uint64_t index, uint64_t i, uint64_t end)
{
    uint32_t step = gvm_block_threads(), k;
    words2 v[LOADS];
    uint64_t sum = 0;

    if (i + (LOADS - 1) * step < end) {
        for (k = 0; k < LOADS; k++)
            v[k] = pairs[i + k * step];
        for (k = 0; k < LOADS; k++, i += step)
            sum += mix_word(v[k].x, index + 2 * i) + mix_word(v[k].y, index + 2 * i + 1);
    } else {
        for (; i < end; i += step)
            sum += mix_word(pairs[i].x, index + 2 * i) + mix_word(pairs[i].y, index + 2 * i + 1);
    }
    return sum;
}

GVM_KERNEL(checksum, gvmi_checksum_params, p)
{
    const uint64_t *words = (const uint64_t *)(uintptr_t)p.address;
    uint64_t count = p.len_bytes / 8;
    span s = span_of(p.address, count);
    const words2 *pairs = (const words2 *)(const void *)(words + s.head);
    uint64_t first, end, i, sum = 0;

    for (first = tile_first(); first < s.pairs; first += tile_stride()) {
        end = tile_end(first, s.pairs);
        for (i = first + gvm_thread(); i < end; i += LOADS * gvm_block_threads())
            sum += mix_batch(pairs, s.head, i, end);
    }
    if (gvm_thread_global() == 0) {
        if (s.head)
            sum += mix_word(words[0], 0);
        if (s.tail)
            sum += mix_word(words[count - 1], count - 1);
        if (p.len_bytes % 8)
            sum += mix_word(partial_word(p.address, p.len_bytes), count);
    }
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.result, sum);
}

/* ------------------------------------------------------------------ compare */

#define NO_DIFFERENCE UINT64_MAX

GVM_DEVICE uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The offset of the first byte that differs in two words at index, of which difference is the
 * exclusive or. */
GVM_DEVICE uint64_t differing_byte(uint64_t difference, uint64_t index)
{
    uint64_t offset = 8 * index;

    if (difference == 0)
        return NO_DIFFERENCE;
    while ((difference & 0xff) == 0) {
        difference >>= 8;
        offset++;
    }
    return offset;
}

/* The least v of the block, in thread 0. Every thread must call it. */
GVM_DEVICE uint64_t block_min_u64(uint64_t v)
{
    GVM_SHARED(uint64_t, warps, 32);
    uint32_t step, i;

    for (step = gvm_warp_size() / 2; step > 0; step /= 2)
        v = min_u64(v, gvm_warp_down_u64(v, step));
    if (gvm_lane() == 0)
        warps[gvm_warp()] = v;
    gvm_block_sync();
    if (gvm_thread() == 0)
        for (i = 1; i < gvm_block_threads() / gvm_warp_size(); i++)
            v = min_u64(v, warps[i]);
    return v;
}

/* Pairs without a difference are by far the common case: they cost one branch. Offsets are
 * relative to the first pair. */
GVM_DEVICE uint64_t compare_batch(const words2 *a, const words2 *b, uint64_t i, uint64_t end)
{
    uint32_t step = gvm_block_threads(), k;
    words2 v[LOADS], w[LOADS];
    uint64_t any = 0;

    if (i + (LOADS - 1) * step < end) {
        for (k = 0; k < LOADS; k++) {
            v[k] = a[i + k * step];
            w[k] = b[i + k * step];
        }
        for (k = 0; k < LOADS; k++)
            any |= (v[k].x ^ w[k].x) | (v[k].y ^ w[k].y);
        if (any == 0)
            return NO_DIFFERENCE;
    }
    for (k = 0; k < LOADS && i < end; k++, i += step) {
        if (a[i].x != b[i].x)
            return differing_byte(a[i].x ^ b[i].x, 2 * i);
        if (a[i].y != b[i].y)
            return differing_byte(a[i].y ^ b[i].y, 2 * i + 1);
    }
    return NO_DIFFERENCE;
}

/* The pairs of two ranges that are aligned alike. A thread's later pairs lie behind its earlier
 * ones, so it stops at its first difference. */
GVM_DEVICE uint64_t compare_pairs(const words2 *a, const words2 *b, uint64_t pairs)
{
    uint64_t first, end, i, found;

    for (first = tile_first(); first < pairs; first += tile_stride()) {
        end = tile_end(first, pairs);
        for (i = first + gvm_thread(); i < end; i += LOADS * gvm_block_threads()) {
            found = compare_batch(a, b, i, end);
            if (found != NO_DIFFERENCE)
                return found;
        }
    }
    return NO_DIFFERENCE;
}

/* Word by word: for ranges of which one starts on a 16-byte boundary and the other does not. */
GVM_DEVICE uint64_t compare_words(const uint64_t *a, const uint64_t *b, uint64_t words)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < words; i += gvm_thread_count())
        if (a[i] != b[i])
            return differing_byte(a[i] ^ b[i], i);
    return NO_DIFFERENCE;
}

GVM_KERNEL(compare, gvmi_compare_params, p)
{
    const uint64_t *a = (const uint64_t *)(uintptr_t)p.address_a;
    const uint64_t *b = (const uint64_t *)(uintptr_t)p.address_b;
    uint64_t words = p.len_bytes / 8, found;
    span s = span_of(p.address_a, words);

    if (((p.address_a ^ p.address_b) & 8) != 0) {
        found = compare_words(a, b, words);
    } else {
        found = compare_pairs((const words2 *)(const void *)(a + s.head),
                              (const words2 *)(const void *)(b + s.head), s.pairs);
        if (found != NO_DIFFERENCE)
            found += 8 * s.head;
        if (gvm_thread_global() == 0) {
            if (s.head)
                found = min_u64(found, differing_byte(a[0] ^ b[0], 0));
            if (s.tail)
                found = min_u64(found, differing_byte(a[words - 1] ^ b[words - 1], words - 1));
        }
    }
    if (gvm_thread_global() == 0 && p.len_bytes % 8)
        found = min_u64(found, differing_byte(partial_word(p.address_a, p.len_bytes) ^
                                                  partial_word(p.address_b, p.len_bytes),
                                              words));
    found = block_min_u64(found);
    if (gvm_thread() == 0 && found != NO_DIFFERENCE)
        gvm_atomic_min_u64((uint64_t *)(uintptr_t)p.result, found);
}
