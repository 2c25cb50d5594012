/* query/kernel_groups.h - the hash table of groups, as threads of all blocks use it at once: device code.
 *
 * Open addressing, linear probing. A slot's first word is 0, CLAIMED, or READY and the bits of keys that are NULL.
 * A thread that finds 0 claims the slot, writes its keys and then READY; one that finds CLAIMED waits, because
 * these may be its own keys: so no group is there twice. READY slots do not change any more but for their states,
 * to which all add by atomic operations. READY is read by consume (gvmem/device/kernel.h), since the keys are read
 * behind a branch on it, and by loads that take nothing from a multiprocessor's cache: acquire would empty that at
 * each probe.
 *
 * Threads: any. Those of a warp may wait for each other.
 */
#ifndef GQUERY_KERNEL_GROUPS_H
#define GQUERY_KERNEL_GROUPS_H

#include "query/kernel_values.h"
#include "query/kernels.h"

#define CLAIMED (1ull << 63)
#define READY (1ull << 62)

/* Keys of a row: key k is at values[k * pitch], 0 where it is NULL. */
typedef struct row_keys {
    const uint64_t *values;
    uint32_t pitch, count;
    uint32_t nulls; /* bit k */
} row_keys;

GVM_DEVICE uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0xbf58476d1ce4e5b9u;
    return h ^ h >> 29;
}

GVM_DEVICE uint64_t hash_keys(const row_keys *keys)
{
    uint64_t h = 0;
    uint32_t k;

    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        h = mix(h, keys->values[k * keys->pitch]);
    h *= 0x94d049bb133111ebu;
    return h ^ h >> 32;
}

GVM_DEVICE int has_keys(const uint64_t *slot, const row_keys *keys)
{
    uint32_t k;

    GVM_NO_UNROLL
    for (k = 0; k < keys->count; k++)
        if (gvm_load_consume_u64(slot + 1 + k) != keys->values[k * keys->pitch])
            return 0;
    return 1;
}

/* 0: there is no room for another group. */
GVM_DEVICE int fill_slot(gquery_groups *groups, uint64_t *slot, const row_keys *keys)
{
    uint32_t k;

    if (gvm_atomic_add_u64(&groups->count, 1) >= groups->max) {
        gvm_store_release_u64(slot, 0);
        return 0;
    }
    for (k = 0; k < keys->count; k++)
        slot[1 + k] = keys->values[k * keys->pitch];
    gvm_store_release_u64(slot, READY | keys->nulls);
    return 1;
}

/* The slot's first word, once that is not CLAIMED; the slot has this row's keys now if it was free. 0: it was, and
 * there is no room. */
GVM_DEVICE uint64_t claim_slot(gquery_groups *groups, uint64_t *slot, const row_keys *keys)
{
    for (;;) {
        const uint64_t word = gvm_load_consume_u64(slot);

        if (word == CLAIMED)
            gvm_pause();
        else if (word != 0)
            return word;
        else if (gvm_atomic_cas_u64(slot, 0, CLAIMED) == 0)
            return fill_slot(groups, slot, keys) ? READY | keys->nulls : 0;
    }
}

/* The address of the state of the group with these keys, of which hash is hash_keys(); 0, and groups->full is 1:
 * there is no room for another. */
GVM_DEVICE uint64_t find_group(gquery_groups *groups, const row_keys *keys, uint64_t hash)
{
    const uint64_t mask = groups->mask, words = groups->slot_words;
    uint64_t at = hash & mask, probes;

    for (probes = 0; probes <= mask && probes < GQUERY_PROBES_MAX; probes++) {
        uint64_t *slot = (uint64_t *)(uintptr_t)groups->slots + at * words;
        uint64_t word;

        GVM_ASSUME_GLOBAL(slot);
        word = claim_slot(groups, slot, keys);
        if (word == 0)
            break;
        if (word == (READY | keys->nulls) && has_keys(slot, keys))
            return (uint64_t)(uintptr_t)(slot + 1 + keys->count);
        at = (at + 1) & mask;
    }
    gvm_atomic_exchange_u32(&groups->full, 1);
    return 0;
}

/* ---- states */

/* 128 bits, into a sum. */
GVM_DEVICE void add_wide(uint64_t *word, uint64_t low, uint64_t high)
{
    high += gvm_atomic_add_u64(word, low) + low < low;
    if (high != 0)
        gvm_atomic_add_u64(word + 1, high);
}

/* A value into the aggregate whose words begin there. */
GVM_DEVICE void add_to_group(uint32_t aggregate, uint64_t *word, uint64_t v)
{
    uint64_t old, next, wanted;

    GVM_ASSUME_GLOBAL(word);
    switch (aggregate) {
    case GQUERY_COUNT_ROWS:
    case GQUERY_COUNT: gvm_atomic_add_u64(word, 1); return;
    case GQUERY_SUM_I64: add_wide(word, v, (uint64_t)((int64_t)v >> 63)); return;
    case GQUERY_SUM_F64: gvm_atomic_add_f64((double *)(void *)word, to_double(v)); return;
    case GQUERY_OR_I64: gvm_atomic_or_u64(word, v); return;
    case GQUERY_MOMENTS_F64: add_moments(word, 1, moments_of(v)); return;
    default: break;
    }
    for (old = gvm_load_consume_u64(word);; old = next) {
        wanted = fold(aggregate, old, v);
        if (wanted == old)
            return;
        next = gvm_atomic_cas_u64(word, old, wanted);
        if (next == old)
            return;
    }
}

#endif
