/* I1  both tables are sorted by address, and no two entries of one overlap.
 * I2  every mapping lies within one range of kind SOFT_KIND_RESERVED, and no range of another kind
 *     overlaps a reservation.
 * I3  the pages of a reservation are inaccessible but where a mapping grants access; what a mapping
 *     grants to anybody is granted to this process's CPU too, because the SM threads are threads of
 *     it.
 *
 * Finding is a binary search. Adding in the middle moves pointers, 8 bytes an entry: at the 65,530
 * mappings that Linux allows a process by default that is 30 us.
 */
#include "softgpu/space.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct span_table {
    soft_span **at;
    size_t count, capacity;
} span_table;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static span_table ranges;
static span_table mappings;

void soft_space_lock_read(void)
{
    soft_cancel_hold();
    pthread_rwlock_rdlock(&lock);
}

void soft_space_lock_write(void)
{
    soft_cancel_hold();
    pthread_rwlock_wrlock(&lock);
}

void soft_space_unlock(void)
{
    pthread_rwlock_unlock(&lock);
    soft_cancel_release();
}

/* ---- tables */

static CUdeviceptr span_end(const soft_span *span)
{
    return span->addr + span->size_bytes;
}

/* The place of the first span that ends behind addr; count if there is none. */
static size_t table_from(const span_table *table, CUdeviceptr addr)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (span_end(table->at[middle]) > addr)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void *table_nth(const span_table *table, size_t index)
{
    return index < table->count ? table->at[index] : NULL;
}

static void *table_at(const span_table *table, CUdeviceptr addr)
{
    soft_span *span = table_nth(table, table_from(table, addr));
    return span && span->addr <= addr ? span : NULL;
}

static bool table_add(span_table *table, soft_span *span)
{
    size_t index = table_from(table, span->addr);
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        soft_span **bigger = realloc(table->at, capacity * sizeof(soft_span *));
        if (!bigger)
            return false;
        table->at = bigger;
        table->capacity = capacity;
    }
    memmove(table->at + index + 1, table->at + index, (table->count - index) * sizeof *table->at);
    table->at[index] = span;
    table->count++;
    return true;
}

static void table_remove(span_table *table, size_t index, size_t count)
{
    table->count -= count;
    memmove(table->at + index, table->at + index + count, (table->count - index) * sizeof *table->at);
}

soft_range *soft_range_at_locked(CUdeviceptr addr)
{
    return table_at(&ranges, addr);
}

soft_mapping *soft_mapping_at_locked(CUdeviceptr addr)
{
    return table_at(&mappings, addr);
}

/* The first one that ends behind addr, or NULL; *index is its place, for walking on from there. */
static soft_range *range_from_locked(CUdeviceptr addr, size_t *index)
{
    *index = table_from(&ranges, addr);
    return table_nth(&ranges, *index);
}

soft_range *soft_range_nth_locked(size_t index)
{
    return table_nth(&ranges, index);
}

soft_mapping *soft_mapping_from_locked(CUdeviceptr addr, size_t *index)
{
    *index = table_from(&mappings, addr);
    return table_nth(&mappings, *index);
}

soft_mapping *soft_mapping_nth_locked(size_t index)
{
    return table_nth(&mappings, index);
}

bool soft_mapping_add_locked(soft_mapping *mapping)
{
    return table_add(&mappings, &mapping->span);
}

void soft_mapping_forget_locked(size_t index, size_t count)
{
    table_remove(&mappings, index, count);
}

/* ---- ranges */

uint64_t soft_buffer_id_next(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

/* The kernel has just given these addresses out, so what was registered there is gone: the program
 * unmapped it without a word to us. */
static void end_stale_locked(CUdeviceptr addr, uint64_t size_bytes)
{
    size_t index;
    soft_range *range = range_from_locked(addr, &index);
    while (range && range->span.addr < addr + size_bytes) {
        if (range->origin == SOFT_ORIGIN_REGISTER)
            soft_range_end_locked(range);
        else
            index++;
        range = soft_range_nth_locked(index);
    }
}

/* Addresses that the caller named may be taken: by another registration, or by memory of ours. */
static CUresult check_vacant_locked(const soft_span *span)
{
    size_t index;
    const soft_range *next = range_from_locked(span->addr, &index);
    if (!next || next->span.addr >= span_end(span))
        return CUDA_SUCCESS;
    return next->origin == SOFT_ORIGIN_REGISTER ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                : CUDA_ERROR_INVALID_VALUE;
}

/* What failed meanwhile is not in it: only memory that is there. */
static void note_highest(CUmemoryPool pool)
{
    if (pool->used_high_bytes < pool->used_bytes)
        pool->used_high_bytes = pool->used_bytes;
    if (pool->reserved_high_bytes < pool->reserved_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
}

CUresult soft_range_add(const soft_range *model)
{
    CUresult rc = CUDA_SUCCESS;
    soft_range *range = malloc(sizeof *range);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *range = *model;
    range->buffer_id = soft_buffer_id_next();
    soft_space_lock_write();
    if (range->page_bytes > 0)
        end_stale_locked(range->span.addr, range->page_bytes);
    else
        rc = check_vacant_locked(&range->span);
    if (rc == CUDA_SUCCESS && !table_add(&ranges, &range->span))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc == CUDA_SUCCESS && range->pool)
        note_highest(range->pool);
    soft_space_unlock();
    if (rc != CUDA_SUCCESS)
        free(range);
    return rc;
}

CUresult soft_range_place(soft_range *model, uint64_t alignment)
{
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    model->span.addr = soft_pages_reserve(model->page_bytes, alignment, 0);
    if (model->span.addr == 0)
        goto fail_backing;
    if (!soft_pages_map(model->span.addr, model->page_bytes, model->backing.fd, PROT_READ | PROT_WRITE))
        goto fail_pages;
    rc = soft_range_add(model);
    if (rc == CUDA_SUCCESS)
        return rc;
fail_pages:
    soft_pages_release(model->span.addr, model->page_bytes);
fail_backing:
    soft_backing_destroy(&model->backing);
    return rc;
}

void soft_pool_unref_locked(CUmemoryPool pool)
{
    if (--pool->refs == 0)
        free(pool);
}

CUresult soft_range_end_locked(soft_range *range)
{
    if (range->page_bytes > 0 && !soft_pages_release(range->span.addr, range->page_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    table_remove(&ranges, table_from(&ranges, range->span.addr), 1);
    if (range->backing.charge.id != 0)
        soft_backing_destroy(&range->backing);
    if (range->pool) {
        range->pool->used_bytes -= range->span.size_bytes;
        range->pool->reserved_bytes -= range->page_bytes;
        soft_pool_unref_locked(range->pool);
    }
    free(range);
    return CUDA_SUCCESS;
}

CUresult soft_space_add_global(void *addr, uint64_t size_bytes, int device)
{
    const soft_range model = {
        .span = {(CUdeviceptr)(uintptr_t)addr, size_bytes},
        .kind = SOFT_KIND_DEVICE,
        .origin = SOFT_ORIGIN_GLOBAL,
        .device = device,
    };
    return soft_range_add(&model);
}

void soft_space_remove_global(void *addr)
{
    soft_range *range;
    soft_space_lock_write();
    range = soft_range_at_locked((CUdeviceptr)(uintptr_t)addr);
    if (range && range->origin == SOFT_ORIGIN_GLOBAL)
        soft_range_end_locked(range);
    soft_space_unlock();
}

static bool is_of_context(const soft_range *range, uint64_t context_id)
{
    return range->context_id == context_id;
}

static bool is_from_pool(const soft_range *range, uint64_t device)
{
    return range->origin == SOFT_ORIGIN_STREAM && range->device == (int)device;
}

static void drop_ranges(bool (*goes)(const soft_range *range, uint64_t of), uint64_t of)
{
    size_t index = 0;
    soft_range *range;
    soft_space_lock_write();
    while ((range = soft_range_nth_locked(index)))
        if (range->ending || !goes(range, of) || soft_range_end_locked(range) != CUDA_SUCCESS)
            index++;
    soft_space_unlock();
}

void soft_space_drop_context(uint64_t context_id)
{
    drop_ranges(is_of_context, context_id);
}

void soft_space_drop_pools(int device)
{
    drop_ranges(is_from_pool, (uint64_t)device);
}

/* ---- questions of the copies */

static CUresult check_locked(int device, CUdeviceptr addr, CUdeviceptr end, int access)
{
    size_t index;
    soft_mapping *mapping = soft_mapping_from_locked(addr, &index);
    if (!mapping || mapping->span.addr > addr) {
        soft_range *range = soft_range_at_locked(addr);
        if (!range || range->kind == SOFT_KIND_RESERVED || span_end(&range->span) < end)
            return CUDA_ERROR_INVALID_VALUE;
        return !range->pool || (range->pool->access[device] & access) == access
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    }
    while (addr < end) {
        if (!mapping || mapping->span.addr > addr || (mapping->access[device] & access) != access)
            return CUDA_ERROR_INVALID_VALUE;
        addr = span_end(&mapping->span);
        mapping = soft_mapping_nth_locked(++index);
    }
    return CUDA_SUCCESS;
}

CUresult soft_space_check(int device, CUdeviceptr addr, uint64_t size_bytes, int access)
{
    CUresult rc;
    CUdeviceptr end;
    if (size_bytes == 0)
        return CUDA_SUCCESS;
    if (__builtin_add_overflow(addr, size_bytes, &end))
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_read();
    rc = check_locked(device, addr, end, access);
    soft_space_unlock();
    return rc;
}

/* Is the part of the reservation that [addr, end) covers mapped, and for the CPU? */
static bool is_cpu_accessible_locked(CUdeviceptr addr, CUdeviceptr end)
{
    size_t index;
    soft_mapping *mapping = soft_mapping_from_locked(addr, &index);
    while (addr < end) {
        if (!mapping || mapping->span.addr > addr || !mapping->access[SOFT_ACCESSOR_CPU])
            return false;
        addr = span_end(&mapping->span);
        mapping = soft_mapping_nth_locked(++index);
    }
    return true;
}

static CUresult check_host_locked(CUdeviceptr addr, CUdeviceptr end)
{
    size_t index;
    soft_range *range = range_from_locked(addr, &index);
    bool pinned = false;
    for (; range && range->span.addr < end; range = soft_range_nth_locked(++index)) {
        CUdeviceptr from = range->span.addr > addr ? range->span.addr : addr;
        CUdeviceptr to = span_end(&range->span) < end ? span_end(&range->span) : end;
        if (range->kind == SOFT_KIND_DEVICE || (range->kind == SOFT_KIND_HOST && pinned))
            return CUDA_ERROR_INVALID_VALUE;
        pinned = pinned || range->kind == SOFT_KIND_HOST;
        if (range->kind == SOFT_KIND_RESERVED && !is_cpu_accessible_locked(from, to))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult soft_space_check_host(const void *addr, uint64_t size_bytes)
{
    CUresult rc;
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)addr, end;
    if (size_bytes == 0)
        return CUDA_SUCCESS;
    if (!addr || __builtin_add_overflow(start, size_bytes, &end))
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_read();
    rc = check_host_locked(start, end);
    soft_space_unlock();
    return rc;
}

soft_kind soft_space_kind(CUdeviceptr addr)
{
    const soft_range *range;
    soft_kind kind = SOFT_KIND_NONE;
    soft_space_lock_read();
    range = soft_range_at_locked(addr);
    if (range)
        kind = range->kind;
    if (kind == SOFT_KIND_RESERVED && soft_mapping_at_locked(addr))
        kind = SOFT_KIND_MAPPED;
    soft_space_unlock();
    return kind;
}

bool soft_space_on_host(CUdeviceptr addr)
{
    const soft_mapping *mapping;
    const soft_range *range;
    bool on_host;

    soft_space_lock_read();
    range = soft_range_at_locked(addr);
    mapping = soft_mapping_at_locked(addr);
    on_host = mapping ? mapping->handle->backing.location.type != CU_MEM_LOCATION_TYPE_DEVICE
                      : !range || range->kind == SOFT_KIND_HOST;
    soft_space_unlock();
    return on_host;
}

/* ---- pages */

/* Linux refuses every mmap of a process with vm.max_map_count mappings (65,530 by default), even
 * one that takes mappings away. So that memory can be given back in a process that is full, some
 * mappings are kept to spare: pages of alternating protection, each of which counts as a mapping.
 * They are released for as long as giving back takes. */
enum { SPARE_PAGES = 16 };
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static char *spare;

static bool reserve_spare_locked(void)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *pages;
    if (spare)
        return true;
    pages = mmap(NULL, SPARE_PAGES * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return false;
    for (size_t i = 1; i < SPARE_PAGES; i += 2)
        if (mprotect(pages + i * page_bytes, page_bytes, PROT_READ) != 0) {
            munmap(pages, SPARE_PAGES * page_bytes);
            return false;
        }
    spare = pages;
    return true;
}

/* Before mappings are taken it is made sure that giving them back will work. */
static bool reserve_spare(void)
{
    bool held;
    pthread_mutex_lock(&spare_lock);
    held = reserve_spare_locked();
    pthread_mutex_unlock(&spare_lock);
    return held;
}

static void *map_inaccessible(CUdeviceptr addr, uint64_t size_bytes, int flags)
{
    return mmap(soft_pages_pointer(addr), size_bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static bool replace_by_inaccessible(CUdeviceptr addr, uint64_t size_bytes)
{
    return map_inaccessible(addr, size_bytes, MAP_FIXED) == soft_pages_pointer(addr);
}

static bool unmap_pages(CUdeviceptr addr, uint64_t size_bytes)
{
    return munmap(soft_pages_pointer(addr), size_bytes) == 0;
}

static bool restore_inaccessible(bool (*how)(CUdeviceptr, uint64_t), CUdeviceptr addr,
                                 uint64_t size_bytes)
{
    bool done = how(addr, size_bytes);
    if (done)
        return true;
    pthread_mutex_lock(&spare_lock);
    if (spare) {
        munmap(spare, SPARE_PAGES * (size_t)sysconf(_SC_PAGESIZE));
        spare = NULL;
        done = how(addr, size_bytes);
        reserve_spare_locked();
    }
    pthread_mutex_unlock(&spare_lock);
    return done;
}

bool soft_pages_unmap(CUdeviceptr addr, uint64_t size_bytes)
{
    return restore_inaccessible(replace_by_inaccessible, addr, size_bytes);
}

bool soft_pages_release(CUdeviceptr addr, uint64_t size_bytes)
{
    return restore_inaccessible(unmap_pages, addr, size_bytes);
}

CUdeviceptr soft_pages_reserve(uint64_t size_bytes, uint64_t alignment, CUdeviceptr wanted)
{
    uint64_t room_bytes, before, after;
    CUdeviceptr room, addr;
    void *pages;
    if (!reserve_spare())
        return 0;
    if (wanted != 0 && wanted % alignment == 0) {
        /* A hint: ThreadSanitizer makes 0 of addresses that a program may not have there, and MAP_FIXED_NOREPLACE would
         * map that. */
        pages = map_inaccessible(wanted, size_bytes, 0);
        if (pages == soft_pages_pointer(wanted))
            return wanted;
        if (pages != MAP_FAILED)
            munmap(pages, size_bytes);
    }
    if (__builtin_add_overflow(size_bytes, alignment, &room_bytes))
        return 0;
    pages = map_inaccessible(0, room_bytes, 0);
    if (pages == MAP_FAILED)
        return 0;
    room = (CUdeviceptr)(uintptr_t)pages;
    addr = (room + alignment - 1) & ~(alignment - 1);
    before = addr - room;
    after = room_bytes - before - size_bytes;
    if ((before > 0 && !soft_pages_release(room, before)) ||
        (after > 0 && !soft_pages_release(addr + size_bytes, after))) {
        munmap(pages, room_bytes);
        return 0;
    }
    return addr;
}

bool soft_pages_map(CUdeviceptr addr, uint64_t size_bytes, int fd, int prot)
{
    int flags = MAP_SHARED | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0);
    void *wanted = soft_pages_pointer(addr);
    if (!reserve_spare())
        return false;
    if (mmap(wanted, size_bytes, prot, flags, fd, 0) == wanted)
        return true;
    /* Older kernels may have taken the reserved pages away before they failed. */
    soft_pages_unmap(addr, size_bytes);
    return false;
}

bool soft_pages_protect(CUdeviceptr addr, uint64_t size_bytes, int prot)
{
    return mprotect(soft_pages_pointer(addr), size_bytes, prot) == 0;
}
