/* Handles of contexts, streams, events, modules and functions: a table of slots. The lowest four
 * bits of a handle are its kind, then 28 bits of slot number, then 32 bits of generation.
 *
 * A slot's generation starts at 1 and grows each time its object goes, so a handle is good for one
 * object only. Slots are reused last freed first; the table grows by doubling and never shrinks. */
#include "softgpu/engine.h"

#include <stdlib.h>

#define KIND_BITS 4
#define INDEX_BITS 28
#define SLOTS_MAX (1u << INDEX_BITS)

typedef struct token_slot {
    void *object;        /* NULL: free */
    uint32_t generation; /* of the object, or of the next one */
    uint32_t next_free;  /* slot number + 1, 0: none */
    soft_token_kind kind;
} token_slot;

static token_slot *slots;
static uint32_t slot_count;
static uint32_t first_free; /* slot number + 1, 0: none */

static uint32_t index_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> KIND_BITS) & (SLOTS_MAX - 1);
}

static uint32_t generation_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> (KIND_BITS + INDEX_BITS));
}

static bool is_kind(soft_token_kind kind, const void *handle)
{
    return ((uintptr_t)handle & ((1u << KIND_BITS) - 1)) == (uintptr_t)kind &&
           index_of(handle) < slot_count;
}

static bool grow_slots(void)
{
    uint32_t count = slot_count ? slot_count * 2 : 64;
    token_slot *more;

    if (count > SLOTS_MAX)
        return false;
    more = realloc(slots, count * sizeof *slots);
    if (!more)
        return false;
    for (uint32_t i = count; i-- > slot_count;) {
        more[i] = (token_slot){.generation = 1, .next_free = first_free};
        first_free = i + 1;
    }
    slots = more;
    slot_count = count;
    return true;
}

void *soft_token_add_locked(soft_token_kind kind, void *object)
{
    uint32_t index;

    if (!first_free && !grow_slots())
        return NULL;
    index = first_free - 1;
    first_free = slots[index].next_free;
    slots[index].object = object;
    slots[index].kind = kind;
    return (void *)((uintptr_t)slots[index].generation << (KIND_BITS + INDEX_BITS) |
                    (uintptr_t)index << KIND_BITS | (uintptr_t)kind);
}

void *soft_token_find_locked(soft_token_kind kind, const void *handle)
{
    const token_slot *s;

    if (!is_kind(kind, handle))
        return NULL;
    s = &slots[index_of(handle)];
    return s->kind == kind && s->generation == generation_of(handle) ? s->object : NULL;
}

void soft_token_remove_locked(const void *handle)
{
    uint32_t index = index_of(handle);

    slots[index].object = NULL;
    slots[index].generation++;
    if (slots[index].generation == 0)
        slots[index].generation = 1;
    slots[index].next_free = first_free;
    first_free = index + 1;
}

bool soft_token_stale_locked(soft_token_kind kind, const void *handle)
{
    return is_kind(kind, handle) && generation_of(handle) > 0 &&
           generation_of(handle) < slots[index_of(handle)].generation;
}
