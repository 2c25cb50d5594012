/* gvmem/device/rsvm.h - regions in kernels by their numbers, with the names that the RSVM paper's authors use.
 *
 * The device's side of gvmem/rsvm.h; gvmem/device/region.h does the work. Kernels are given numbers of regions and
 * collections. A kernel file that includes this header has a variable rsvm_address, which rsvm_bind() sets once its module is loaded.
 *
 *     int complete, req;
 *     float *row = (float *)rgn_map_gpu(id, rgn_op_readonly, &complete, &req);
 *
 *     ...                                         // other work; other maps
 *     if (!complete)
 *         row = (float *)rgn_wait_map_gpu(id, req);
 *     ...
 *     rgn_unmap_gpu(id);
 *
 * All threads of a warp call these functions together, with the same arguments; each warp maps and unmaps for itself. Warps that write
 * parts of one region by rgn_op_writeonly have it mapped at the same time: all of them map it before one unmaps it. NULL,
 * and complete: there is no such region, and rsvm_sync() says so.
 */
#ifndef GVMEM_DEVICE_RSVM_H
#define GVMEM_DEVICE_RSVM_H

#include <gvmem/device/region.h>
#include <gvmem/rsvm_view.h>

#ifdef GVM_KERNEL

GVM_GLOBAL(uint64_t, rsvm_address)

/* C converts void pointers to others, C++ does not. */
#ifdef __cplusplus
struct rsvm_pointer {
    void *address;
    template <typename type> __device__ operator type *() const
    {
        return (type *)address;
    }
};
#define RSVM_POINTER(address) (rsvm_pointer{address})
#else
typedef void *rsvm_pointer;
#define RSVM_POINTER(address) (address)
#endif

/* The collection of an id, or NULL. */
GVM_DEVICE const rsvm_entry *rsvm_find(rgn_id id)
{
    rsvm_table *table = (rsvm_table *)(uintptr_t)rsvm_address;
    const uint32_t at = RSVM_COLLECTION(id);

    if (table == (rsvm_table *)0)
        return (const rsvm_entry *)0;
    if (id != RGN_NONE && at < RSVM_COLLECTIONS_MAX && table->entries[at].id == RSVM_FIRST(id))
        return &table->entries[at];
    if (gvm_lane() == 0)
        (void)gvm_atomic_cas_u64(&table->error, 0, id != RGN_NONE ? id : ~0ull);
    return (const rsvm_entry *)0;
}

/* Maps a region. *complete: the address is returned; else the region is to be fetched, by rgn_wait_map_gpu() or by others that map it
 * meanwhile. With NULL for complete or req the map is complete. */
GVM_DEVICE rsvm_pointer rgn_map_gpu(rgn_id id, rgn_op op, int *complete, int *req)
{
    const rsvm_entry *entry = rsvm_find(id);
    const int at_once = complete == (int *)0 || req == (int *)0;
    gvm_region_request request = {GVM_REGION_NONE, 0, 0};
    void *address = (void *)0;

    if (entry != (const rsvm_entry *)0)
        address = at_once
                      ? gvm_region_map_warp(&entry->view, RSVM_REGION(id), (uint32_t)op)
                      : gvm_region_request_warp(&entry->view, RSVM_REGION(id), (uint32_t)op, &request);
    if (complete != (int *)0)
        *complete = request.region == GVM_REGION_NONE;
    if (req != (int *)0)
        *req = (int)op;
    return RSVM_POINTER(address);
}

/* Waits for a map that was not complete. */
GVM_DEVICE rsvm_pointer rgn_wait_map_gpu(rgn_id id, int req)
{
    const rsvm_entry *entry = rsvm_find(id);
    gvm_region_request request = {RSVM_REGION(id), (uint32_t)req, 0};

    return RSVM_POINTER(entry != (const rsvm_entry *)0 ? gvm_region_wait_warp(&entry->view, &request)
                                                       : (void *)0);
}

GVM_DEVICE void rgn_unmap_gpu(rgn_id id)
{
    const rsvm_entry *entry = rsvm_find(id);

    if (entry != (const rsvm_entry *)0)
        gvm_region_unmap_warp(&entry->view, RSVM_REGION(id));
}

/* Bytes from one row of a mapped region to the next, and in three dimensions from one slice to the next: in a frame they are
 * closer than in the array. */
GVM_DEVICE uint64_t rgn_pitch_gpu(rgn_id id, const void *address)
{
    const rsvm_entry *entry = rsvm_find(id);

    return entry != (const rsvm_entry *)0 ? gvm_region_pitch(&entry->view, address) : 0;
}

/* The metadata of a collection, or NULL. It needs no unmap: its frame is not taken for anything else. */
GVM_DEVICE rgn_coll_meta rgn_coll_get_meta_gpu(rgn_coll_id id)
{
    const rsvm_entry *entry = rsvm_find(id);
    rgn_coll_meta meta = (rgn_coll_meta)0;

    if (entry != (const rsvm_entry *)0)
        meta = (rgn_coll_meta)rgn_map_gpu(entry->meta, rgn_op_readonly, (int *)0, (int *)0);
    if (meta != (rgn_coll_meta)0)
        rgn_unmap_gpu(entry->meta);
    return meta;
}

#endif /* GVM_KERNEL */
#endif
