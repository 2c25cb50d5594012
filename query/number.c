/* Numbers of texts, and texts of numbers. See number.h.
 *
 * A word of the hash table changes once, from 0, and the text that it stands for is there before: nobody waits for anybody.
 *
 * Threads: whole warps go through the rows.
 */
#include <gvmem/device/kernel.h>

#include "query/kernel_groups.h"
#include "query/kernel_lists.h"
#include "query/kernel_text.h"
#include "query/number.h"

#define NUMBER_BITS 0xffffffffu
#define WARP_BITS 32u /* of a word of a bitmap */

GVM_DEVICE void raise_error(uint64_t address, uint32_t error)
{
    gvm_atomic_cas_u32((uint32_t *)(uintptr_t)address, GQUERY_E_NONE, error);
}

/* ---- which rows */

GVM_DEVICE int is_marked(uint64_t bitmap, uint64_t row)
{
    return bitmap == 0 || (((const uint8_t *)(uintptr_t)bitmap)[row / 8] >> row % 8 & 1) != 0;
}

GVM_DEVICE int is_null(const gquery_source *source, uint64_t row)
{
    if (source->values == 0 || (source->nulls != 0 && !is_marked(source->nulls, row)))
        return 1;
    return source->form == GQUERY_TEXT_BODIES &&
           ((const uint64_t *)(uintptr_t)source->values)[row] == 0;
}

/* Of a warp's rows, which are neighbours. */
GVM_DEVICE void put_nulls(uint64_t bitmap, uint64_t first, uint32_t bits)
{
    uint32_t *word = (uint32_t *)(uintptr_t)bitmap + first / WARP_BITS;
    const uint32_t lanes = gvm_warp_size(), shift = (uint32_t)first % WARP_BITS;

    if (gvm_lane() != 0)
        return;
    if (lanes == WARP_BITS)
        *word = bits;
    else
        put_bits(word, bits << shift, ((1u << lanes) - 1) << shift);
}

/* ---- numbers */

GVM_DEVICE uint64_t hash_text(text t)
{
    uint64_t h = t.bytes, at;

    for (at = 0; at < t.bytes; at += 8)
        h = mix(h, word_at(t, at, t.bytes - at));
    h *= 0x94d049bb133111ebu;
    return h ^ h >> 32;
}

GVM_DEVICE int is_same(text t, text other)
{
    uint64_t at;

    if (t.bytes != other.bytes)
        return 0;
    for (at = 0; at < t.bytes; at += 8)
        if (word_at(t, at, t.bytes - at) != word_at(other, at, t.bytes - at))
            return 0;
    return 1;
}

/* Of a row whose text has a word of the hash table. */
GVM_DEVICE int has_text(const gquery_number *p, uint64_t row, text t)
{
    text other = {0, 0};

    (void)find_text(&p->source, p->source.form, row, &other);
    if (p->is_trimmed != 0)
        trim(&other);
    return is_same(t, other);
}

/* is_new: no row before had it. */
GVM_DEVICE uint32_t number_text(const gquery_number *p, gquery_texts *texts, uint64_t row, text t,
                                int *is_new)
{
    const uint64_t hash = hash_text(t), own = (hash & ~(uint64_t)NUMBER_BITS) | (row + 1);
    uint64_t at = hash, probes;

    for (probes = 0; probes <= texts->mask && probes < GQUERY_PROBES_MAX; probes++, at++) {
        uint64_t *place = (uint64_t *)(uintptr_t)texts->words + (at & texts->mask);
        uint64_t word = gvm_load_consume_u64(place);

        if (word == 0) {
            word = gvm_atomic_cas_u64(place, 0, own);
            if (word == 0) {
                *is_new = 1;
                return (uint32_t)row;
            }
        }
        if (((word ^ own) & ~(uint64_t)NUMBER_BITS) == 0 && has_text(p, (word & NUMBER_BITS) - 1, t))
            return (uint32_t)(word & NUMBER_BITS) - 1;
    }
    gvm_atomic_exchange_u32(&texts->full, 1);
    return (uint32_t)row;
}

/* What is wrong with the text; it has its bytes without blanks then, if these make no difference. */
GVM_DEVICE uint32_t look_at_text(const gquery_number *p, uint64_t row, text *out)
{
    if (!find_text(&p->source, p->source.form, row, out))
        return GQUERY_E_TEXT;
    if (out->bytes > GQUERY_NUMBERED_BYTES)
        return GQUERY_E_NUMBERED;
    return out->at == UNREADABLE ? GQUERY_E_TEXT : GQUERY_E_NONE;
}

GVM_DEVICE int number_row(const gquery_number *p, gquery_texts *texts, uint64_t row, uint32_t *error)
{
    text t;
    uint32_t bytes;
    const uint32_t wrong = look_at_text(p, row, &t);
    int is_new = 0;

    if (wrong != GQUERY_E_NONE) {
        *error = wrong;
        return 0;
    }
    bytes = (uint32_t)t.bytes;
    if (p->is_trimmed != 0)
        trim(&t);
    ((uint32_t *)(uintptr_t)p->out)[row] = number_text(p, texts, row, t, &is_new);
    if (is_new && bytes > gvm_load_consume_u32(&texts->longest))
        gvm_atomic_max_u32(&texts->longest, bytes);
    return is_new;
}

GVM_DEVICE void count_new(gquery_texts *texts, int is_new)
{
    const uint32_t count = gvm_count_ones(gvm_warp_ballot(~0u, is_new));

    if (gvm_lane() == 0 && count > 0 && gvm_atomic_add_u64(&texts->count, count) + count > texts->max)
        gvm_atomic_exchange_u32(&texts->full, 1);
}

GVM_KERNEL(query_number, gquery_number, p)
{
    gquery_texts *texts = (gquery_texts *)(uintptr_t)p.texts;
    uint64_t first;
    uint32_t error = GQUERY_E_NONE;

    for (first = p.first + gvm_thread_global() - gvm_lane(); first < p.limit;
         first += gvm_thread_count()) {
        const uint64_t row = first + gvm_lane();
        const int is_text = row < p.limit && is_marked(p.marked, row) && !is_null(&p.source, row);
        int is_new = 0;

        put_nulls(p.nulls, first, gvm_warp_ballot(~0u, is_text));
        if (is_text && gvm_load_consume_u32(&texts->full) == 0)
            is_new = number_row(&p, texts, row, &error);
        count_new(texts, is_new);
    }
    if (error != GQUERY_E_NONE)
        raise_error(p.error, error);
}

/* ---- texts */

GVM_KERNEL(query_put_texts, gquery_put_texts, p)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count * p.words; i += gvm_thread_count()) {
        uint64_t *record = (uint64_t *)(uintptr_t)p.records + i / p.words * p.pitch;
        const uint64_t w = i % p.words, row = record[p.key];
        text t = {0, 0};

        if ((record[p.nulls] >> p.null_bit & 1) == 0 &&
            (row >= p.rows || !find_text(&p.source, p.source.form, row, &t) || t.at == UNREADABLE ||
             t.bytes > (p.words - 1) * 8)) {
            raise_error(p.error, GQUERY_E_TEXT);
            t.bytes = 0;
        }
        record[p.at + w] = w == 0                  ? t.bytes
                           : (w - 1) * 8 < t.bytes ? word_at(t, (w - 1) * 8, t.bytes - (w - 1) * 8)
                                                   : 0;
    }
}
