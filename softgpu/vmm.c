/* Virtual memory management: reservations, handles, mappings, access, export and import. All of it
 * works from cuInit on, without a context.
 *
 * A handle value is (serial, place in the table): a value that was released never means another
 * allocation. A handle object lives while values or mappings of it do, so a mapping outlives
 * cuMemRelease, and cuMemRetainAllocationHandle makes the old value valid again, as the real driver
 * documents it.
 *
 * Everything below runs under the space lock, so a call either happens as a whole or, on failure,
 * not at all.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "softgpu/space.h"

#define PLACE_BITS 24
#define PLACES_MAX (1u << PLACE_BITS)
#define LOCATION_UNSEEN \
    (-2) /* what the real driver says of a device that the process does not see */

typedef struct handle_place {
    soft_vmm_handle *handle; /* NULL: free */
    uint32_t next_free;
} handle_place;

static handle_place *places;
static uint32_t place_count, place_capacity;
static uint32_t place_free = PLACES_MAX; /* first of the free ones, PLACES_MAX: none */
static uint64_t serial;

/* ---- arguments */

static bool is_granular(uint64_t bytes)
{
    return bytes % SOFT_GRANULARITY_BYTES == 0;
}

/* A range of whole granules that does not wrap. */
static bool is_granular_range(CUdeviceptr addr, uint64_t size_bytes)
{
    CUdeviceptr end;
    return size_bytes > 0 && is_granular(addr) && is_granular(size_bytes) &&
           !__builtin_add_overflow(addr, size_bytes, &end);
}

static CUresult check_device(int ordinal)
{
    const soft_config *config;
    soft_config_get(&config, NULL);
    return ordinal >= 0 && ordinal < config->device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult check_location(const CUmemAllocationProp *prop)
{
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: return check_device(prop->location.id);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: /* the machine has one node */
        return prop->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST: /* documented as not shareable */
        return prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->allocFlags.usage != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->allocFlags.gpuDirectRDMACapable && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return check_location(prop);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!granularity || !prop ||
        (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = SOFT_GRANULARITY_BYTES; /* whatever the properties: cuMemCreate checks them */
    return CUDA_SUCCESS;
}

/* ---- reservations */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    soft_range model = {.kind = SOFT_KIND_RESERVED, .origin = SOFT_ORIGIN_RESERVE, .device = -1};
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!ptr || size == 0 || !is_granular(size) || (alignment & (alignment - 1)) != 0 ||
        addr % (CUdeviceptr)sysconf(_SC_PAGESIZE) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < SOFT_GRANULARITY_BYTES)
        alignment = SOFT_GRANULARITY_BYTES;
    model.span = (soft_span){soft_pages_reserve(size, alignment, addr), size};
    model.page_bytes = size;
    if (model.span.addr == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rc = soft_range_add(&model);
    if (rc == CUDA_SUCCESS)
        *ptr = model.span.addr;
    else
        soft_pages_release(model.span.addr, size);
    return rc;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    soft_range *range;
    soft_mapping *mapping;
    size_t index;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_write();
    range = soft_range_at_locked(ptr);
    mapping = soft_mapping_from_locked(ptr, &index);
    if (!range || range->kind != SOFT_KIND_RESERVED || range->span.addr != ptr ||
        range->span.size_bytes != size || (mapping && mapping->span.addr < ptr + size))
        rc = CUDA_ERROR_INVALID_VALUE;
    else
        rc = soft_range_end_locked(range);
    soft_space_unlock();
    return rc;
}

/* ---- handles */

static soft_vmm_handle *handle_of_locked(CUmemGenericAllocationHandle value)
{
    uint32_t place = (uint32_t)(value & (PLACES_MAX - 1));
    soft_vmm_handle *handle = place < place_count ? places[place].handle : NULL;
    return handle && handle->value == value && handle->value_count > 0 ? handle : NULL;
}

static bool take_place_locked(uint32_t *place)
{
    if (place_free != PLACES_MAX) {
        *place = place_free;
        place_free = places[place_free].next_free;
        return true;
    }
    if (place_count == place_capacity) {
        uint32_t capacity = place_capacity ? 2 * place_capacity : 64;
        handle_place *bigger;
        if (capacity > PLACES_MAX)
            return false;
        bigger = realloc(places, capacity * sizeof *places);
        if (!bigger)
            return false;
        places = bigger;
        place_capacity = capacity;
    }
    *place = place_count++;
    return true;
}

/* Makes the first value of a handle for the backing, which is the handle's on success. */
static CUresult add_handle(const soft_backing *backing, CUmemGenericAllocationHandle *value)
{
    soft_vmm_handle *handle = malloc(sizeof *handle);
    uint32_t place;
    bool added;
    if (!handle)
        return CUDA_ERROR_OUT_OF_MEMORY;
    soft_space_lock_write();
    added = take_place_locked(&place);
    if (added) {
        *handle = (soft_vmm_handle){
            .value = ++serial << PLACE_BITS | place,
            .backing = *backing,
            .value_count = 1,
            .buffer_id = soft_buffer_id_next(),
        };
        places[place] = (handle_place){.handle = handle};
        *value = handle->value;
    }
    soft_space_unlock();
    if (!added)
        free(handle);
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends the handle if nothing keeps it any more. */
static void settle_handle_locked(soft_vmm_handle *handle)
{
    uint32_t place = (uint32_t)(handle->value & (PLACES_MAX - 1));
    if (handle->value_count > 0 || handle->mapping_count > 0)
        return;
    places[place] = (handle_place){.next_free = place_free};
    place_free = place;
    soft_backing_destroy(&handle->backing);
    free(handle);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    soft_backing backing;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!handle || size == 0 || !is_granular(size) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    rc = check_prop(prop);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rc = soft_backing_create(&backing, SOFT_USE_HANDLE, prop->location, prop->requestedHandleTypes,
                             size);
    if (rc != CUDA_SUCCESS)
        return rc;
    backing.rdma = prop->allocFlags.gpuDirectRDMACapable != 0;
    rc = add_handle(&backing, handle);
    if (rc != CUDA_SUCCESS)
        soft_backing_destroy(&backing);
    return rc;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle value)
{
    soft_vmm_handle *handle;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_write();
    handle = handle_of_locked(value);
    if (handle) {
        handle->value_count--;
        settle_handle_locked(handle);
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    soft_space_unlock();
    return rc;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *value, void *addr)
{
    soft_mapping *mapping;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_write();
    mapping = soft_mapping_at_locked((CUdeviceptr)(uintptr_t)addr);
    if (mapping) {
        mapping->handle->value_count++;
        *value = mapping->handle->value;
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    soft_space_unlock();
    return rc;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle value)
{
    const soft_vmm_handle *handle;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_read();
    handle = handle_of_locked(value);
    if (!handle)
        rc = CUDA_ERROR_INVALID_VALUE;
    else
        *prop = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = handle->backing.handle_types,
            .location = handle->backing.location,
            .allocFlags = {.gpuDirectRDMACapable = handle->backing.rdma},
        };
    if (handle && handle->backing.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        check_device(handle->backing.location.id) != CUDA_SUCCESS)
        prop->location.id = LOCATION_UNSEEN;
    soft_space_unlock();
    return rc;
}

/* ---- export and import */

static CUresult export_locked(CUmemGenericAllocationHandle value, int *fd)
{
    const soft_vmm_handle *handle = handle_of_locked(value);
    CUresult rc;
    if (!handle || !(handle->backing.handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    rc = soft_charge_export(handle->backing.charge);
    return rc == CUDA_SUCCESS ? soft_backing_dup(&handle->backing, fd) : rc;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    int fd;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!shareable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_read();
    rc = export_locked(handle, &fd);
    soft_space_unlock();
    if (rc == CUDA_SUCCESS)
        memcpy(shareable, &fd, sizeof fd);
    return rc;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    soft_backing backing;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC || type == CU_MEM_HANDLE_TYPE_WIN32)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    rc = soft_backing_adopt(&backing, SOFT_USE_HANDLE, (int)(intptr_t)os_handle);
    if (rc == CUDA_ERROR_INVALID_VALUE) /* a descriptor of something else, or none at all */
        return CUDA_ERROR_UNKNOWN;
    if (rc != CUDA_SUCCESS)
        return rc;
    backing.handle_types = CU_MEM_HANDLE_TYPE_NONE; /* what was imported cannot be exported again */
    rc = add_handle(&backing, handle);
    if (rc != CUDA_SUCCESS)
        soft_backing_destroy(&backing);
    return rc;
}

/* ---- mappings */

/* The range lies within one reservation and nothing is mapped there. */
static bool is_vacant_locked(CUdeviceptr addr, uint64_t size_bytes)
{
    size_t index;
    const soft_range *range = soft_range_at_locked(addr);
    const soft_mapping *next = soft_mapping_from_locked(addr, &index);
    return range && range->kind == SOFT_KIND_RESERVED &&
           size_bytes <= range->span.addr + range->span.size_bytes - addr &&
           (!next || next->span.addr >= addr + size_bytes);
}

static CUresult map_locked(CUdeviceptr ptr, uint64_t size_bytes, soft_vmm_handle *handle)
{
    soft_mapping *mapping;
    if (!is_vacant_locked(ptr, size_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    mapping = malloc(sizeof *mapping);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *mapping = (soft_mapping){.span = {ptr, size_bytes}, .handle = handle};
    if (!soft_mapping_add_locked(mapping)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!soft_pages_map(ptr, size_bytes, handle->backing.fd, PROT_NONE)) {
        size_t index;
        soft_mapping_from_locked(ptr, &index);
        soft_mapping_forget_locked(index, 1);
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->mapping_count++;
    return CUDA_SUCCESS;
}

/* A handle is mapped whole or not at all. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle value,
                  unsigned long long flags)
{
    soft_vmm_handle *handle;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (size == 0 || !is_granular(ptr) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_write();
    handle = handle_of_locked(value);
    if (!handle)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (offset != 0 || size != handle->backing.size_bytes)
        rc = CUDA_ERROR_NOT_SUPPORTED;
    else
        rc = map_locked(ptr, size, handle);
    soft_space_unlock();
    return rc;
}

static CUdeviceptr mapping_end(const soft_mapping *mapping)
{
    return mapping->span.addr + mapping->span.size_bytes;
}

/* Looks for the mappings of a range that must lie within one reservation and must cut no mapping;
 * there may be holes, or nothing but a hole. *index is the first mapping's place, *count their
 * number. */
static bool find_whole_locked(CUdeviceptr ptr, uint64_t size_bytes, size_t *index, size_t *count)
{
    const soft_range *range = soft_range_at_locked(ptr);
    const soft_mapping *mapping = soft_mapping_from_locked(ptr, index);
    CUdeviceptr end = ptr + size_bytes;
    if (!range || range->kind != SOFT_KIND_RESERVED || end > range->span.addr + range->span.size_bytes)
        return false;
    for (*count = 0; mapping && mapping->span.addr < end; ++*count) {
        if (mapping->span.addr < ptr || mapping_end(mapping) > end)
            return false;
        mapping = soft_mapping_nth_locked(*index + *count + 1);
    }
    return true;
}

/* Unmapping what is not mapped is no error. */
CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    size_t index, count;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!is_granular_range(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_write();
    if (!find_whole_locked(ptr, size, &index, &count)) {
        rc = CUDA_ERROR_INVALID_VALUE;
    } else if (count > 0 && !soft_pages_unmap(ptr, size)) {
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        for (size_t i = 0; i < count; i++) {
            soft_mapping *mapping = soft_mapping_nth_locked(index + i);
            mapping->handle->mapping_count--;
            settle_handle_locked(mapping->handle);
            free(mapping);
        }
        soft_mapping_forget_locked(index, count);
    }
    soft_space_unlock();
    return rc;
}

/* ---- access */

static int prot_of(const uint8_t access[SOFT_ACCESSORS])
{
    int all = SOFT_ACCESS_NONE;
    for (int i = 0; i < SOFT_ACCESSORS; i++)
        all |= access[i];
    return all == SOFT_ACCESS_NONE   ? PROT_NONE
           : all == SOFT_ACCESS_READ ? PROT_READ
                                     : PROT_READ | PROT_WRITE;
}

/* Which accessor a location means. */
static CUresult accessor_of(const CUmemLocation *location, int *accessor)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *accessor = location->id;
        return check_device(location->id) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: *accessor = SOFT_ACCESSOR_CPU; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Of a device, or the CPU. */
static bool is_reachable(const soft_mapping *mapping, int accessor)
{
    const CUmemLocation *location = &mapping->handle->backing.location;

    return accessor == SOFT_ACCESSOR_CPU || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
           accessor == location->id || soft_is_peer(accessor, location->id);
}

/* What the mapping's access would be after the descriptors, in order. */
static CUresult apply_access(const soft_mapping *mapping, const CUmemAccessDesc *desc,
                             size_t desc_count, uint8_t access[SOFT_ACCESSORS])
{
    memcpy(access, mapping->access, sizeof mapping->access);
    for (size_t i = 0; i < desc_count; i++) {
        int accessor;
        CUresult rc;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
        rc = accessor_of(&desc[i].location, &accessor);
        if (rc != CUDA_SUCCESS)
            return rc;
        if (accessor == SOFT_ACCESSOR_CPU &&
            mapping->handle->backing.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED; /* the CPU cannot be let to device memory */
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && !is_reachable(mapping, accessor))
            return CUDA_ERROR_INVALID_DEVICE;
        access[accessor] = (uint8_t)desc[i].flags;
    }
    return CUDA_SUCCESS;
}

/* On a real device a kernel that uses memory whose rights are being changed faults, even where both
 * the old rights and the new ones allow what it does. Here a range whose rights change has none for
 * a moment, so that such a kernel, or copy, fails in the same way. Not if somebody keeps the rights
 * that he had: all devices of the process share these pages, and so does its CPU, which nobody
 * would catch; a real driver leaves them alone. */
static bool is_closed_by(const soft_mapping *mapping, const CUmemAccessDesc *desc, size_t desc_count)
{
    const uint8_t *before = mapping->access;
    uint8_t after[SOFT_ACCESSORS];
    apply_access(mapping, desc, desc_count, after);
    if (before[SOFT_ACCESSOR_CPU] != SOFT_ACCESS_NONE)
        return false;
    for (int i = 0; i < SOFT_ACCESSORS; i++)
        if (before[i] != SOFT_ACCESS_NONE && before[i] == after[i])
            return false;
    return prot_of(before) != PROT_NONE && prot_of(after) != PROT_NONE;
}

/* What the descriptors lead to; between: on the way there. */
static int prot_by(const soft_mapping *mapping, const CUmemAccessDesc *desc, size_t desc_count,
                   bool between)
{
    uint8_t access[SOFT_ACCESSORS];
    if (between)
        return is_closed_by(mapping, desc, desc_count) ? PROT_NONE : prot_of(mapping->access);
    apply_access(mapping, desc, desc_count, access);
    return prot_of(access);
}

/* Tells the kernel; neighbours that shall have the same protection go in one call. If it fails, some
 * are changed and some are not. */
static bool protect_locked(size_t index, size_t count, const CUmemAccessDesc *desc,
                           size_t desc_count, bool between)
{
    size_t done = 0;
    while (done < count) {
        const soft_mapping *first = soft_mapping_nth_locked(index + done);
        int prot = prot_by(first, desc, desc_count, between);
        uint64_t run_bytes = first->span.size_bytes;
        for (done++; done < count; done++) {
            const soft_mapping *mapping = soft_mapping_nth_locked(index + done);
            if (prot_by(mapping, desc, desc_count, between) != prot ||
                mapping->span.addr != first->span.addr + run_bytes)
                break;
            run_bytes += mapping->span.size_bytes;
        }
        if (!soft_pages_protect(first->span.addr, run_bytes, prot))
            return false;
    }
    return true;
}

/* Closes the mappings whose rights change, for as long as the configuration says. */
static bool close_mappings_briefly_locked(size_t index, size_t count, const CUmemAccessDesc *desc,
                                          size_t desc_count)
{
    const soft_config *config;
    struct timespec pause;
    size_t i = 0;
    soft_config_get(&config, NULL);
    pause = (struct timespec){config->gap_us / 1000000, config->gap_us % 1000000 * 1000};
    while (i < count && !is_closed_by(soft_mapping_nth_locked(index + i), desc, desc_count))
        i++;
    if (i == count || config->gap_us == 0)
        return true;
    if (!protect_locked(index, count, desc, desc_count, true))
        return false;
    nanosleep(&pause, NULL); /* which lets the SM threads run, too */
    return true;
}

static CUresult set_access_locked(size_t index, size_t count, const CUmemAccessDesc *desc,
                                  size_t desc_count)
{
    uint8_t access[SOFT_ACCESSORS];
    for (size_t i = 0; i < count; i++) {
        CUresult rc = apply_access(soft_mapping_nth_locked(index + i), desc, desc_count, access);
        if (rc != CUDA_SUCCESS)
            return rc;
    }
    if (!close_mappings_briefly_locked(index, count, desc, desc_count) ||
        !protect_locked(index, count, desc, desc_count, false)) {
        protect_locked(index, count, NULL, 0, false);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        soft_mapping *mapping = soft_mapping_nth_locked(index + i);
        apply_access(mapping, desc, desc_count, access);
        memcpy(mapping->access, access, sizeof access);
    }
    return CUDA_SUCCESS;
}

/* The range begins and ends with a mapping; a hole between is no error. */
static bool is_mapped_at_its_ends_locked(CUdeviceptr ptr, uint64_t size_bytes, size_t index, size_t count)
{
    return count > 0 && soft_mapping_nth_locked(index)->span.addr == ptr &&
           mapping_end(soft_mapping_nth_locked(index + count - 1)) == ptr + size_bytes;
}

/* How many of the mappings lie before the first hole. Like the real driver, which returns success
 * and leaves what lies behind a hole as it was. */
static size_t count_before_hole_locked(size_t index, size_t count)
{
    size_t i = 1;
    while (i < count && soft_mapping_nth_locked(index + i)->span.addr ==
                            mapping_end(soft_mapping_nth_locked(index + i - 1)))
        i++;
    return i;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    size_t index, mapping_count;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!is_granular_range(ptr, size) || !desc || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    soft_space_lock_write();
    if (find_whole_locked(ptr, size, &index, &mapping_count) &&
        is_mapped_at_its_ends_locked(ptr, size, index, mapping_count))
        rc = set_access_locked(index, count_before_hole_locked(index, mapping_count), desc, count);
    else
        rc = CUDA_ERROR_INVALID_VALUE;
    soft_space_unlock();
    return rc;
}

/* Says "none" of memory that has no access rights of this kind, and even where it refuses. */
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    const soft_mapping *mapping;
    const soft_range *range;
    int accessor;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = SOFT_ACCESS_NONE;
    rc = accessor_of(location, &accessor);
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_read();
    range = soft_range_at_locked(ptr);
    mapping = soft_mapping_at_locked(ptr);
    if (mapping)
        *flags = mapping->access[accessor];
    else if (!range || range->kind == SOFT_KIND_RESERVED)
        rc = CUDA_ERROR_INVALID_VALUE;
    soft_space_unlock();
    return rc;
}
