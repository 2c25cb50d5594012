/* Rows that have passed: from a bitmap to a list, and their values. See gather.h. */
#include <gvmem/device/kernel.h>

#include "query/gather.h"
#include "query/kernel_values.h"

/* ---- the list */

typedef struct part {
    uint64_t first, limit; /* words */
} part;

GVM_DEVICE part part_of(const gquery_marks *p, uint32_t number)
{
    const uint64_t first = (uint64_t)number * p->each, limit = first + p->each;
    const part found = {first, limit < p->word_count ? limit : p->word_count};

    return found;
}

GVM_DEVICE uint32_t first_part(void)
{
    return (uint32_t)(gvm_thread_global() / gvm_warp_size());
}

GVM_DEVICE uint32_t parts_step(void)
{
    return (uint32_t)(gvm_thread_count() / gvm_warp_size());
}

GVM_KERNEL(query_count_marks, gquery_marks, p)
{
    const uint32_t *words = (const uint32_t *)(uintptr_t)p.words;
    uint32_t number;

    for (number = first_part(); number < p.parts; number += parts_step()) {
        const part all = part_of(&p, number);
        uint32_t ones = 0, total;
        uint64_t at;

        for (at = all.first + gvm_lane(); at < all.limit; at += gvm_warp_size())
            ones += gvm_count_ones(words[at]);
        gvm_warp_before_u32(ones, &total);
        if (gvm_lane() == 0)
            ((uint64_t *)(uintptr_t)p.counts)[number] = total;
    }
}

GVM_DEVICE void put_rows(uint64_t *to, uint64_t first, uint32_t bits)
{
    for (; bits != 0; bits &= bits - 1)
        *to++ = first + gvm_count_ones((bits & (0 - bits)) - 1);
}

GVM_KERNEL(query_list_marks, gquery_marks, p)
{
    const uint32_t *words = (const uint32_t *)(uintptr_t)p.words;
    uint32_t number;

    for (number = first_part(); number < p.parts; number += parts_step()) {
        const part all = part_of(&p, number);
        uint64_t *to = (uint64_t *)(uintptr_t)p.rows + ((const uint64_t *)(uintptr_t)p.counts)[number];
        uint64_t at;

        for (at = all.first; at < all.limit; at += gvm_warp_size()) {
            const uint64_t mine = at + gvm_lane();
            const uint32_t bits = mine < all.limit ? words[mine] : 0;
            uint32_t total;
            const uint32_t before = gvm_warp_before_u32(gvm_count_ones(bits), &total);

            put_rows(to + before, mine * 32, bits);
            to += total;
        }
    }
}

/* ---- values */

GVM_DEVICE int is_null(const gquery_source *source, uint64_t row)
{
    if (row == ~(uint64_t)0)
        return 1;
    if (source->nulls == 0)
        return source->values == 0;
    return (((const uint8_t *)(uintptr_t)source->nulls)[row / 8] >> row % 8 & 1) == 0;
}

#define VALUE(type) (((const type *)(uintptr_t)source->values)[row])

GVM_DEVICE uint64_t value_of(const gquery_source *source, uint32_t form, uint64_t row)
{
    switch (form) {
    case GQUERY_DECIMAL:
    case GQUERY_DECIMAL_HIGH:
        return ((const uint64_t *)(uintptr_t)source->values)[2 * row + (form == GQUERY_DECIMAL_HIGH)];
    case GQUERY_UUID_HIGH:
    case GQUERY_UUID_LOW:
        return word_of_bytes(
            ((const uint64_t *)(uintptr_t)source->values)[2 * row + (form == GQUERY_UUID_LOW)]);
    case GQUERY_BIT: return ((const uint8_t *)(uintptr_t)source->values)[row / 8] >> row % 8 & 1;
    case GQUERY_U8: return VALUE(uint8_t);
    case GQUERY_I16: return (uint64_t)(int64_t)VALUE(int16_t);
    case GQUERY_I32: return (uint64_t)(int64_t)VALUE(int32_t);
    case GQUERY_U32: return VALUE(uint32_t);
    case GQUERY_F32: return to_bits((double)VALUE(float));
    case GQUERY_ROW_NUMBER: return row;
    default: return VALUE(uint64_t);
    }
}

/* But for infinities of dates and times. */
GVM_DEVICE uint64_t add_bias(uint64_t v, uint32_t form, int64_t bias)
{
    const int64_t least = form == GQUERY_I32 ? INT32_MIN : INT64_MIN;

    return bias == 0 || (int64_t)v == least || (int64_t)v == ~least ? v : v + (uint64_t)bias;
}

/* Bytes 8 * word and those behind it. */
GVM_DEVICE uint64_t vector_word(const gquery_gather *p, uint64_t row, uint32_t word)
{
    const uint8_t *bytes = (const uint8_t *)(uintptr_t)p->vectors.values + row * p->vector_bytes;
    uint64_t v = 0;
    uint32_t i;

    if (row == ~(uint64_t)0)
        return 0;
    if (p->vector_bytes % 8 == 0)
        return ((const uint64_t *)(uintptr_t)bytes)[word];
    for (i = 8 * word; i < 8 * word + 8 && i < p->vector_bytes; i++)
        v |= (uint64_t)bytes[i] << i % 8 * 8;
    return v;
}

/* rows: of each table one. */
GVM_DEVICE uint64_t record_word(const gquery_gather *p, const uint64_t *rows, uint32_t word)
{
    uint64_t nulls = 0;
    uint32_t c;

    if (word == 0)
        return rows[0];
    if (word >= 2 + p->columns)
        return vector_word(p, rows[p->vectors.table], word - 2 - p->columns);
    if (word > 1) {
        const gquery_source *source = &p->sources[word - 2];
        const uint64_t row = rows[source->table];

        c = word - 2;
        return is_null(source, row)
                   ? 0
                   : add_bias(value_of(source, p->forms[c], row), p->forms[c], p->biases[c]);
    }
    for (c = 0; c < p->columns; c++)
        nulls |= (uint64_t)is_null(&p->sources[c], rows[p->sources[c].table]) << c;
    return nulls;
}

GVM_KERNEL(query_gather, gquery_gather, p)
{
    const uint64_t words = p.columns + 2 - p.skipped + p.vector_words, all = p.count * words;
    uint64_t at;

    for (at = gvm_thread_global(); at < all; at += gvm_thread_count())
        ((uint64_t *)(uintptr_t)p.out)[at] = record_word(
            &p, (const uint64_t *)(uintptr_t)p.rows + at / words * p.tables,
            (uint32_t)(at % words) + p.skipped);
}
