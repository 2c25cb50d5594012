/* Addresses reserved as a whole; see range.h. */
#include "memory/range.h"

#include <sys/mman.h>

#include "base/address.h"
#include "base/error.h"
#include "memory/buffer.h"

/* Another address than the one wanted is of no use. */
static bool reserve_range(const gvmi_range *range)
{
    CUdeviceptr address;

    if (gvmi_cu->cuMemAddressReserve(&address, range->reserve_bytes, 0, range->address, 0) !=
        CUDA_SUCCESS)
        return false;
    if (address == range->address)
        return true;
    gvmi_cu->cuMemAddressFree(address, range->reserve_bytes);
    return false;
}

/* An older kernel takes the address for a hint. */
static void map_range_locked(gvmi_range *range)
{
    void *wanted = gvmi_pointer(range->address);
    void *there = mmap(wanted, range->reserve_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    range->mapped = there == wanted;
    if (there != MAP_FAILED && !range->mapped)
        munmap(there, range->reserve_bytes);
}

static void unmap_range_locked(gvmi_range *range)
{
    if (range->mapped)
        munmap(gvmi_pointer(range->address), range->reserve_bytes);
    range->mapped = false;
}

static void free_unused_range_locked(gvmi_range *range)
{
    if (range->holds > 0 || !LIST_EMPTY(&range->buffers))
        return;
    unmap_range_locked(range);
    if (range->reserved)
        gvmi_cu->cuMemAddressFree(range->address, range->reserve_bytes);
    range->reserved = false;
}

void gvmi_range_hold(gvmi_range *range)
{
    gvmi_lock(&range->lock);
    if (range->holds++ == 0 && !range->reserved)
        map_range_locked(range);
    gvmi_unlock(&range->lock);
}

void gvmi_range_release(gvmi_range *range)
{
    gvmi_lock(&range->lock);
    range->holds--;
    free_unused_range_locked(range);
    gvmi_unlock(&range->lock);
}

static const gvm_buffer *find_in_range_locked(const gvmi_range *range, uint64_t address, uint64_t bytes)
{
    const gvm_buffer *buffer;

    LIST_FOREACH(buffer, &range->buffers, in_range)
    if (buffer->address < address + bytes && address < buffer->address + buffer->reserve_bytes)
        return buffer;
    return NULL;
}

gvm_status gvmi_range_take(gvmi_range *range, gvm_buffer *buffer, uint64_t address, bool *taken)
{
    gvm_status status = GVM_OK;

    *taken = false;
    if (address < range->address || buffer->reserve_bytes > range->reserve_bytes ||
        address - range->address > range->reserve_bytes - buffer->reserve_bytes)
        return GVM_OK;
    gvmi_lock(&range->lock);
    if (!range->reserved) {
        unmap_range_locked(range);
        range->reserved = reserve_range(range);
    }
    if (!range->reserved) {
        if (range->holds > 0)
            map_range_locked(range);
        goto done;
    }
    if (find_in_range_locked(range, address, buffer->reserve_bytes) != NULL) {
        status = gvm_error_set(GVM_E_ADDRESS, "other memory is at %#llx in this process",
                               (unsigned long long)address);
        goto done;
    }
    buffer->address = address;
    buffer->range = range;
    LIST_INSERT_HEAD(&range->buffers, buffer, in_range);
    *taken = true;
done:
    gvmi_unlock(&range->lock);
    return status;
}

void gvmi_range_give(gvm_buffer *buffer)
{
    gvmi_range *range = buffer->range;

    gvmi_lock(&range->lock);
    LIST_REMOVE(buffer, in_range);
    free_unused_range_locked(range);
    gvmi_unlock(&range->lock);
}

void gvmi_range_reset_in_child(gvmi_range *range)
{
    gvmi_mutex_init(&range->lock, GVMI_RANK_RANGE);
    unmap_range_locked(range);
    LIST_INIT(&range->buffers);
    range->holds = 0;
    range->reserved = false;
}
