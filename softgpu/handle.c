/* Handles of contexts, streams, events, modules and functions: a table of entries. The lowest four
 * bits of a handle are its kind, then 28 bits of entry number, then 32 bits of use number.
 *
 * An entry's use number starts at 1 and grows each time its object goes, so a handle is good for one
 * object only. Entries are reused last freed first; the table grows by doubling and never shrinks. */
#include "softgpu/engine.h"

#include <stdlib.h>

#define KIND_BITS 4
#define INDEX_BITS 28
#define ENTRIES_MAX (1u << INDEX_BITS)

typedef struct handle_entry {
    void *object;        /* NULL: free */
    uint32_t use_number; /* of the object, or of the next one */
    uint32_t next_free;  /* entry number + 1, 0: none */
    soft_handle_kind kind;
} handle_entry;

static handle_entry *entries;
static uint32_t entry_count;
static uint32_t first_free; /* entry number + 1, 0: none */

static uint32_t index_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> KIND_BITS) & (ENTRIES_MAX - 1);
}

static uint32_t use_of(const void *handle)
{
    return (uint32_t)((uintptr_t)handle >> (KIND_BITS + INDEX_BITS));
}

static bool is_kind(soft_handle_kind kind, const void *handle)
{
    return ((uintptr_t)handle & ((1u << KIND_BITS) - 1)) == (uintptr_t)kind &&
           index_of(handle) < entry_count;
}

static bool grow_entries(void)
{
    uint32_t count = entry_count ? entry_count * 2 : 64;
    handle_entry *more;

    if (count > ENTRIES_MAX)
        return false;
    more = realloc(entries, count * sizeof *entries);
    if (!more)
        return false;
    for (uint32_t i = count; i-- > entry_count;) {
        more[i] = (handle_entry){.use_number = 1, .next_free = first_free};
        first_free = i + 1;
    }
    entries = more;
    entry_count = count;
    return true;
}

void *soft_handle_add_locked(soft_handle_kind kind, void *object)
{
    uint32_t index;

    if (!first_free && !grow_entries())
        return NULL;
    index = first_free - 1;
    first_free = entries[index].next_free;
    entries[index].object = object;
    entries[index].kind = kind;
    return (void *)((uintptr_t)entries[index].use_number << (KIND_BITS + INDEX_BITS) |
                    (uintptr_t)index << KIND_BITS | (uintptr_t)kind);
}

void *soft_handle_find_locked(soft_handle_kind kind, const void *handle)
{
    const handle_entry *s;

    if (!is_kind(kind, handle))
        return NULL;
    s = &entries[index_of(handle)];
    return s->kind == kind && s->use_number == use_of(handle) ? s->object : NULL;
}

void *soft_handle_lock(soft_handle_kind kind, const void *handle, CUresult missing, CUresult *result)
{
    void *object;

    *result = soft_enter();
    if (*result != CUDA_SUCCESS)
        return NULL;
    soft_lock();
    object = soft_handle_find_locked(kind, handle);
    if (object)
        return object;
    soft_unlock();
    *result = missing;
    return NULL;
}

void soft_handle_remove_locked(const void *handle)
{
    uint32_t index = index_of(handle);

    entries[index].object = NULL;
    entries[index].use_number++;
    if (entries[index].use_number == 0)
        entries[index].use_number = 1;
    entries[index].next_free = first_free;
    first_free = index + 1;
}

bool soft_handle_stale_locked(soft_handle_kind kind, const void *handle)
{
    return is_kind(kind, handle) && use_of(handle) > 0 &&
           use_of(handle) < entries[index_of(handle)].use_number;
}
