/* One segment's addresses: which units are free, in two ways.
 *
 * A map has a bit for each unit. A buddy has the same as free blocks of at most a chunk: one of order
 * k covers 2^k units and begins at a multiple of that. For each order there is a bitmap, one bit a block, with two
 * summaries above it, so that the lowest free block of an order is found by three counts of trailing
 * zeros. Nothing is kept inside of blocks: the processor cannot reach device memory.
 *
 * Small requests are found in the buddy, runs of any length in the map (run.c); ranges of any length are
 * taken and freed in both. Freeing merges: the buddy's blocks follow from the map.
 */
#include <string.h>

#include "base/assert.h"
#include "heap/heap.h"

#define WORD 64u

static uint32_t block_count(const gvmi_buddy *buddy, unsigned order)
{
    return buddy->units >> order;
}

static bool is_free(const gvmi_buddy *buddy, unsigned order, uint32_t block)
{
    return (buddy->bottom[order][block / WORD] >> block % WORD & 1) != 0;
}

/* Blocks of one word, and one of them. */
static void set_bits(gvmi_buddy *buddy, unsigned order, uint32_t word, uint64_t bits)
{
    GVM_ASSERT((buddy->bottom[order][word] & bits) == 0);
    buddy->bottom[order][word] |= bits;
    buddy->middle[order][word / WORD] |= 1ull << word % WORD;
    buddy->top[order] |= 1ull << word / WORD;
    buddy->orders |= 1u << order;
}

static void clear_bits(gvmi_buddy *buddy, unsigned order, uint32_t word, uint64_t bits)
{
    GVM_ASSERT((buddy->bottom[order][word] & bits) == bits);
    if ((buddy->bottom[order][word] &= ~bits) != 0)
        return;
    if ((buddy->middle[order][word / WORD] &= ~(1ull << word % WORD)) != 0)
        return;
    if ((buddy->top[order] &= ~(1ull << word / WORD)) == 0)
        buddy->orders &= ~(1u << order);
}

static void set_block_bit(gvmi_buddy *buddy, unsigned order, uint32_t block)
{
    set_bits(buddy, order, block / WORD, 1ull << block % WORD);
}

static void clear_block_bit(gvmi_buddy *buddy, unsigned order, uint32_t block)
{
    clear_bits(buddy, order, block / WORD, 1ull << block % WORD);
}

static uint32_t lowest_of(const gvmi_buddy *buddy, unsigned order)
{
    uint32_t at = (uint32_t)__builtin_ctzll(buddy->top[order]);

    at = at * WORD + (uint32_t)__builtin_ctzll(buddy->middle[order][at]);
    return at * WORD + (uint32_t)__builtin_ctzll(buddy->bottom[order][at]);
}

static void turn_map(gvmi_buddy *buddy, uint32_t first, uint32_t end, bool free_before)
{
    while (first < end) {
        const uint32_t word = first / WORD, stop = end < (word + 1) * WORD ? end : (word + 1) * WORD;
        const uint64_t bits = (stop - first == WORD ? ~0ull : (1ull << (stop - first)) - 1)
                              << first % WORD;

        (void)free_before;
        GVM_ASSERT((buddy->map[word] & bits) == (free_before ? bits : 0));
        buddy->map[word] ^= bits;
        gvmi_runs_mark(&buddy->runs, word);
        first = stop;
    }
}

/* The first unit of [unit, end) that is free, or is not; end if there is none. */
static uint32_t next_in_map(const gvmi_buddy *buddy, uint32_t unit, uint32_t end, bool is_free_there)
{
    while (unit < end) {
        const uint64_t word = is_free_there ? buddy->map[unit / WORD] : ~buddy->map[unit / WORD];
        const uint64_t bits = word >> unit % WORD;

        if (bits != 0) {
            unit += (uint32_t)__builtin_ctzll(bits);
            break;
        }
        unit = (unit / WORD + 1) * WORD;
    }
    return unit < end ? unit : end;
}

bool gvmi_buddy_lowest_run(gvmi_buddy *buddy, uint32_t units, uint32_t *first)
{
    return gvmi_runs_lowest(&buddy->runs, buddy->map, units, first);
}

void gvmi_buddy_init(gvmi_buddy *buddy, uint32_t units, unsigned largest)
{
    uint64_t *word = buddy->words;

    GVM_ASSERT(units % (1u << largest) == 0 && units <= 1u << (GVMI_HEAP_ORDERS - 1));
    memset(buddy, 0, sizeof *buddy);
    buddy->units = units;
    buddy->largest = largest;
    for (unsigned order = 0; order <= buddy->largest; order++) {
        const uint32_t words = (block_count(buddy, order) + WORD - 1) / WORD;

        buddy->bottom[order] = word;
        word += words;
        buddy->middle[order] = word;
        word += (words + WORD - 1) / WORD;
    }
    GVM_ASSERT(word <= buddy->words + sizeof buddy->words / sizeof buddy->words[0]);
    for (uint32_t block = 0; block < units >> largest; block++)
        set_block_bit(buddy, largest, block);
    turn_map(buddy, 0, units, false);
    gvmi_runs_init(&buddy->runs, buddy->map, units);
}

bool gvmi_buddy_lowest(const gvmi_buddy *buddy, unsigned least, unsigned end, unsigned *order,
                       uint32_t *unit)
{
    uint32_t orders = buddy->orders & ~((1u << least) - 1) & ((1u << end) - 1);
    bool found = orders != 0;

    *unit = UINT32_MAX;
    for (; orders != 0; orders &= orders - 1) {
        const unsigned o = (unsigned)__builtin_ctz(orders);
        const uint32_t at = lowest_of(buddy, o) << o;

        if (at < *unit) {
            *unit = at;
            *order = o;
        }
    }
    return found;
}

int gvmi_buddy_covering(const gvmi_buddy *buddy, uint32_t unit)
{
    for (uint32_t orders = buddy->orders; orders != 0; orders &= orders - 1) {
        const unsigned order = (unsigned)__builtin_ctz(orders);

        if (is_free(buddy, order, unit >> order))
            return (int)order;
    }
    return -1;
}

static void carve_block(gvmi_buddy *buddy, uint32_t unit, unsigned order)
{
    int around = gvmi_buddy_covering(buddy, unit);

    GVM_ASSERT(around >= (int)order && unit % (1u << order) == 0);
    clear_block_bit(buddy, (unsigned)around, unit >> around);
    while (around > (int)order) { /* the half that does not hold it is free */
        around--;
        set_block_bit(buddy, (unsigned)around, unit >> around ^ 1);
    }
}

static void merge_free_block(gvmi_buddy *buddy, uint32_t unit, unsigned order)
{
    uint32_t block = unit >> order;

    while (order < buddy->largest && is_free(buddy, order, block ^ 1)) {
        clear_block_bit(buddy, order, block ^ 1);
        block /= 2;
        order++;
    }
    set_block_bit(buddy, order, block);
}

/* The order of the largest block that begins at a unit and ends by end. */
static unsigned largest_order_at(const gvmi_buddy *buddy, uint32_t unit, uint32_t end)
{
    const unsigned size = 31u - (unsigned)__builtin_clz(end - unit);
    const unsigned alignment = (unsigned)__builtin_ctz(unit | 1u << buddy->largest);

    return alignment < size ? alignment : size;
}

/* The whole chunks at the start of a range as far as one word has them; 0 if it begins inside of one.
 * A long range is mostly these, and they are taken and freed a word at a time. */
static uint32_t whole_chunk_bits(const gvmi_buddy *buddy, uint32_t first, uint32_t end, uint64_t *bits)
{
    const uint32_t at = (first >> buddy->largest) % WORD, count = (end - first) >> buddy->largest;
    const uint32_t here = count < WORD - at ? count : WORD - at;

    if (here == 0 || first % (1u << buddy->largest) != 0)
        return 0;
    *bits = (here == WORD ? ~0ull : (1ull << here) - 1) << at;
    return here;
}

void gvmi_buddy_free(gvmi_buddy *buddy, uint32_t first, uint32_t end)
{
    turn_map(buddy, first, end, false);
    while (first < end) {
        const unsigned order = largest_order_at(buddy, first, end);
        uint64_t bits;
        const uint32_t whole = whole_chunk_bits(buddy, first, end, &bits);

        if (whole > 0) { /* there is nothing larger to merge them into */
            set_bits(buddy, buddy->largest, (first >> buddy->largest) / WORD, bits);
            first += whole << buddy->largest;
            continue;
        }

        merge_free_block(buddy, first, order);
        first += 1u << order;
    }
}

bool gvmi_buddy_is_free(const gvmi_buddy *buddy, uint32_t first, uint32_t end)
{
    return first >= end || (end <= buddy->units && next_in_map(buddy, first, end, false) == end);
}

void gvmi_buddy_take(gvmi_buddy *buddy, uint32_t first, uint32_t end)
{
    turn_map(buddy, first, end, true);
    while (first < end) {
        const unsigned order = largest_order_at(buddy, first, end);
        const uint32_t word = (first >> buddy->largest) / WORD;
        uint64_t bits;
        const uint32_t whole = whole_chunk_bits(buddy, first, end, &bits);

        if (whole > 0 && (buddy->bottom[buddy->largest][word] & bits) == bits) {
            clear_bits(buddy, buddy->largest, word, bits);
            first += whole << buddy->largest;
            continue;
        }
        const int around = is_free(buddy, order, first >> order) ? (int)order
                                                                 : gvmi_buddy_covering(buddy, first);

        GVM_ASSERT(around >= 0);
        if (around == (int)order) {
            clear_block_bit(buddy, order, first >> order);
            first += 1u << order;
        } else if (around > (int)order) {
            carve_block(buddy, first, order);
            first += 1u << order;
        } else { /* smaller free blocks, beside each other only if their buddies are in use */
            clear_block_bit(buddy, (unsigned)around, first >> around);
            first += 1u << around;
        }
    }
}

/* ---- checking */

static bool check_summaries(const gvmi_buddy *buddy, unsigned order)
{
    const uint32_t words = (block_count(buddy, order) + WORD - 1) / WORD;
    uint64_t top = 0;

    for (uint32_t i = 0; i < words; i += WORD) {
        uint64_t middle = 0;

        for (uint32_t j = i; j < words && j < i + WORD; j++)
            if (buddy->bottom[order][j] != 0)
                middle |= 1ull << (j - i);
        if (middle != buddy->middle[order][i / WORD])
            return false;
        if (middle != 0)
            top |= 1ull << i / WORD;
    }
    return top == buddy->top[order] && (top != 0) == ((buddy->orders >> order & 1) != 0);
}

bool gvmi_buddy_check(gvmi_buddy *buddy, uint64_t *marks, uint64_t *free_units)
{
    uint64_t in_map = 0;

    *free_units = 0;
    for (uint32_t i = 0; i < (buddy->units + WORD - 1) / WORD; i++)
        in_map += (uint64_t)__builtin_popcountll(buddy->map[i]);
    for (unsigned order = 0; order <= buddy->largest; order++) {
        if (!check_summaries(buddy, order))
            return false;
        for (uint32_t block = 0; block < block_count(buddy, order); block++) {
            if (!is_free(buddy, order, block))
                continue;
            if (order < buddy->largest && is_free(buddy, order, block ^ 1))
                return false;
            for (uint32_t unit = block << order; unit < (block + 1) << order; unit++) {
                if ((marks[unit / WORD] >> unit % WORD & 1) != 0)
                    return false;
                if ((buddy->map[unit / WORD] >> unit % WORD & 1) == 0)
                    return false;
                marks[unit / WORD] |= 1ull << unit % WORD;
            }
            *free_units += 1ull << order;
        }
    }
    return in_map == *free_units && gvmi_runs_check(&buddy->runs, buddy->map);
}
