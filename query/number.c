/* Numbers of texts, and texts of numbers. See number.h.
 *
 * A word of the hash table changes once, from 0, and the text that it stands for is there before: nobody waits for anybody.
 *
 * Threads: any. There are no operations of warps, which would take most of the time on the software GPU.
 */
#include <gvmem/device/kernel.h>

#include "query/kernel_groups.h"
#include "query/kernel_text.h"
#include "query/number.h"

#define NUMBER_BITS 0xffffffffu

GVM_DEVICE void raise_error(uint64_t address, uint32_t error)
{
    gvm_atomic_cas_u32((uint32_t *)(uintptr_t)address, GQUERY_E_NONE, error);
}

/* ---- which rows */

/* Without a bitmap all are. */
GVM_DEVICE int is_set(uint64_t bitmap, uint64_t row)
{
    return bitmap == 0 || (((const uint8_t *)(uintptr_t)bitmap)[row / 8] >> row % 8 & 1) != 0;
}

GVM_DEVICE int is_null(const gquery_source *source, uint64_t row)
{
    return !is_set(source->nulls, row) || (source->form == GQUERY_TEXT_BODIES &&
                                           ((const uint64_t *)(uintptr_t)source->values)[row] == 0);
}

GVM_KERNEL(query_present, gquery_present, p)
{
    uint64_t first;

    for (first = p.first + 8 * gvm_thread_global(); first < p.limit; first += 8 * gvm_thread_count()) {
        uint32_t bits = 0, i;

        for (i = 0; i < 8 && first + i < p.limit; i++)
            bits |= (uint32_t)!is_null(&p.source, first + i) << i;
        ((uint8_t *)(uintptr_t)p.out)[first / 8] = (uint8_t)bits;
    }
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
    text other = {0, 0, letters_of(p->flags)};

    if (!find_text(&p->source, p->source.form, row, &other) || other.at == UNREADABLE)
        return 0; /* it was another one when its word was entered */
    if ((p->flags & GQUERY_TEXT_TRIMMED) != 0)
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
    if (out->at == UNREADABLE || ((p->flags & GQUERY_TEXT_ASCII) != 0 && !is_ascii(*out)))
        return GQUERY_E_TEXT;
    return GQUERY_E_NONE;
}

GVM_DEVICE int number_row(const gquery_number *p, gquery_texts *texts, uint64_t row, uint32_t *error)
{
    text t = {0, 0, letters_of(p->flags)};
    uint32_t bytes;
    const uint32_t wrong = look_at_text(p, row, &t);
    int is_new = 0;

    if (wrong != GQUERY_E_NONE) {
        *error = wrong;
        return 0;
    }
    bytes = (uint32_t)t.bytes;
    if ((p->flags & GQUERY_TEXT_TRIMMED) != 0)
        trim(&t);
    ((uint32_t *)(uintptr_t)p->out)[row] = number_text(p, texts, row, t, &is_new);
    if (is_new && bytes > gvm_load_consume_u32(&texts->longest))
        gvm_atomic_max_u32(&texts->longest, bytes);
    return is_new;
}

GVM_KERNEL(query_number, gquery_number, p)
{
    gquery_texts *texts = (gquery_texts *)(uintptr_t)p.texts;
    uint64_t row, count = 0;
    uint32_t error = GQUERY_E_NONE;

    for (row = p.first + gvm_thread_global(); row < p.limit; row += gvm_thread_count())
        if (is_set(p.marked, row) && !is_null(&p.source, row) && gvm_load_consume_u32(&texts->full) == 0)
            count += (uint64_t)number_row(&p, texts, row, &error);
    if (count > 0)
        gvm_atomic_add_u64(&texts->count, count);
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
        text t = {0, 0, letters_of(p.flags)};

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
