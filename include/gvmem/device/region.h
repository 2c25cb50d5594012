/* gvmem/device/region.h - regions: data that a kernel maps, wherever it is, and unmaps.
 *
 * The device's side of gvmem/region.h, in the dialect of gvmem/device/kernel.h.
 *
 *     typedef struct { gvm_region_view rows; ... } scale_params;
 *
 *     GVM_KERNEL(scale, scale_params, p)
 *     {
 *         for (uint32_t i = gvm_block(); i < p.rows.count; i += gvm_block_count()) {
 *             float *row = (float *)gvm_region_map_block(&p.rows, i, GVM_REGION_READWRITE);
 *
 *             if (row == NULL)
 *                 continue;                        // the host's next sync says why
 *             for (uint32_t j = gvm_thread(); j < p.width; j += gvm_block_threads())
 *                 row[j] *= 2;
 *             gvm_region_unmap_block(&p.rows, i);
 *         }
 *     }
 *
 * A map returns the region's address in device memory, to which the calling threads bring it if it is not there. If all
 * frames of the collection are mapped, or the policy keeps what is there, it is the address of the region's home in host
 * memory, which kernels read and write over the link. So a map always returns, however many regions a kernel has mapped.
 * NULL: there is no such region, its count of maps is spoilt, or another thread did not finish with it in time.
 *
 * GVM_REGION_WRITE alone: the kernel writes all of the region, and what it held is not fetched.
 *
 * Each map is unmapped once. The address is good until then. Who maps a region may
 * map others meanwhile. Threads that map the same region see what the others write there as in plain device memory; loads must
 * not be ld.global.nc (__ldg(), const __restrict__).
 *
 *     function                                  who calls                 what each thread gets
 *     gvm_region_map(), _unmap()                one thread                what it maps
 *     gvm_region_map_warp(), _unmap_warp()      all threads of a warp     the one region of the warp
 *     gvm_region_map_block(), _unmap_block()    all threads of a block    the one region of the block
 *     gvm_region_map_lanes(), _unmap_lanes()    all threads of a warp     the region that it names itself
 *
 *     gvm_region_map_many_warp(), _block()      maps a list, all of it or nothing
 *     gvm_region_request_warp(), _block()       the first step of a map; gvm_region_wait_warp(), _block() is the second
 *     gvm_region_prefetch_warp(), _block()      brings a region to a frame, and does not map it
 *     gvm_region_create_warp(), _block()        creates a region
 *     gvm_region_tlb_map_warp(), _unmap_warp()  as of a warp, by lines in shared memory
 *
 * In those of warps and blocks all threads pass the same arguments, but for those of lanes; blocks are of whole warps. Before an unmap the accesses of all of
 * them are over. What was mapped in one of these ways may be unmapped in another one, as often.
 *
 * These functions are given a pointer into the kernel's parameter. GVM_KERNEL declares that so that
 * nothing is copied; in a CUDA kernel of one's own write const __grid_constant__ before its type.
 *
 * How it works: gvmem/device/detail/region.h. States, invariants, and why so: docs/design/region.md.
 */
#ifndef GVMEM_DEVICE_REGION_H
#define GVMEM_DEVICE_REGION_H

#include <gvmem/device/kernel.h>
#include <gvmem/region_view.h>

#ifdef GVM_KERNEL

GVM_DEVICE void *gvm_region_map(const gvm_region_view *view, uint32_t region, uint32_t access);
GVM_DEVICE void *gvm_region_map_warp(const gvm_region_view *view, uint32_t region, uint32_t access);
GVM_DEVICE void *gvm_region_map_block(const gvm_region_view *view, uint32_t region, uint32_t access);

GVM_DEVICE void gvm_region_unmap(const gvm_region_view *view, uint32_t region);
GVM_DEVICE void gvm_region_unmap_warp(const gvm_region_view *view, uint32_t region);
GVM_DEVICE void gvm_region_unmap_block(const gvm_region_view *view, uint32_t region);

/* Each lane of a warp maps a region of its own, or GVM_REGION_NONE, which gives NULL. Lanes that name the same
 * region have one atomic operation together and a reference each; it is mapped for what any of them asks for. Regions that are not in a frame are brought by the whole warp, one after
 * the other. An unmap need not have the lanes' regions in the same order. */
GVM_DEVICE void *gvm_region_map_lanes(const gvm_region_view *view, uint32_t region, uint32_t access);
GVM_DEVICE void gvm_region_unmap_lanes(const gvm_region_view *view, uint32_t region);

/* Maps count regions, entries that are GVM_REGION_NONE excepted, and returns 1. If a map of one fails, those before it are
 * unmapped, and it returns 0. Each thread writes all of pointers, an array of its own or one that they share: NULL for those that are not
 * mapped. As regions without a frame are used at their homes, kernels that map many cannot wait for each other's frames. */
GVM_DEVICE int gvm_region_map_many_warp(const gvm_region_view *view, const uint32_t *regions,
                                        uint32_t count, uint32_t access, void **pointers);
GVM_DEVICE int gvm_region_map_many_block(const gvm_region_view *view, const uint32_t *regions,
                                         uint32_t count, uint32_t access, void **pointers);

/* A map in two steps. A request counts as a map at once: from then on the region does not leave its frame. It returns the pointer if
 * there is nothing to fetch, else NULL. The wait returns the pointer in either case; it fetches the region if no others have
 * fetched it meanwhile. A request alone moves no data; the next map of the region does. Between the two steps the same
 * threads may map, request and unmap others. Each request is waited for once, if it returned NULL, and then unmapped if the
 * wait returned a pointer. request belongs to each thread. */
typedef struct gvm_region_request {
    uint32_t region, access; /* GVM_REGION_NONE: there is nothing to wait for */
    uint64_t found;
} gvm_region_request;
GVM_DEVICE void *gvm_region_request_warp(const gvm_region_view *view, uint32_t region,
                                         uint32_t access, gvm_region_request *request);
GVM_DEVICE void *gvm_region_wait_warp(const gvm_region_view *view, gvm_region_request *request);
GVM_DEVICE void *gvm_region_request_block(const gvm_region_view *view, uint32_t region,
                                          uint32_t access, gvm_region_request *request);
GVM_DEVICE void *gvm_region_wait_block(const gvm_region_view *view, gvm_region_request *request);

/* Brings a region to a frame if it is in none. That is a hint: numbers that no region has are passed over. */
GVM_DEVICE void gvm_region_prefetch_warp(const gvm_region_view *view, uint32_t region);
GVM_DEVICE void gvm_region_prefetch_block(const gvm_region_view *view, uint32_t region);

/* Creates a region, all zeros, and returns 1. Kernels may map it at once, the CPU after the next sync. *region, which belongs to each
 * thread, is its number. 0, and GVM_REGION_NONE: the collection has no number left that no region has, or the host did not answer in time;
 * in a space of whose collections none was made with unused_count, and had none deleted, it does not. Numbers
 * come in segments of up to 4096, for each of which the host is asked once, by a callback of the library. */
GVM_DEVICE int gvm_region_create_warp(const gvm_region_view *view, uint32_t *region);
GVM_DEVICE int gvm_region_create_block(const gvm_region_view *view, uint32_t *region);

/* Lines in shared memory that keep what the warps of a block have mapped: a translation lookaside buffer.
 *
 *     GVM_SHARED(gvm_region_line, lines, 32);
 *     GVM_SHARED(gvm_region_tlb, tlb, 1);
 *
 *     gvm_region_tlb_begin(tlb, &p.rows, lines, 32);
 *     ...  gvm_region_tlb_map_warp(tlb, i, GVM_REGION_READ)  ...  gvm_region_tlb_unmap_warp(tlb, i)
 *     gvm_region_tlb_end(tlb);
 *
 * Any line may have any region of one collection. A map by a line needs no operation on device memory; a line keeps its region, with one
 * reference, when it is not mapped any more, until the line is needed for another region or the TLB ends. So a block holds as many
 * frames as there are lines. Where all lines are mapped, or one that was mapped to read is to be written, a map is as without a
 * TLB. It pays where warps of a block map the same regions again and again: a search of the lines takes longer than a map of a region
 * that few others use. A line has what the region held when it was mapped for the line: the block sees what others write after that when
 * the line was unmapped by all and used for another region, or ended. All threads of the block call begin and end. What was mapped by a TLB is unmapped by it, before
 * its end. */
typedef struct gvm_region_line {
    uint64_t key, word;
} gvm_region_line;
typedef struct gvm_region_tlb {
    const gvm_region_view *view;
    gvm_region_line *lines;
    uint64_t unmaps; /* atomic */
    uint32_t count, reserved;
} gvm_region_tlb;
GVM_DEVICE void gvm_region_tlb_begin(gvm_region_tlb *tlb, const gvm_region_view *view,
                                     gvm_region_line *lines, uint32_t count);
GVM_DEVICE void *gvm_region_tlb_map_warp(gvm_region_tlb *tlb, uint32_t region, uint32_t access);
GVM_DEVICE void gvm_region_tlb_unmap_warp(gvm_region_tlb *tlb, uint32_t region);
GVM_DEVICE void gvm_region_tlb_end(gvm_region_tlb *tlb);

/* Map a region for the statement that follows, in which `type name` is its address, and unmap it behind that. It is not run if
 * the map fails. break and continue leave it, return and goto would leave the region mapped. view and region are evaluated
 * twice.
 *
 *     GVM_REGION_SCOPE_BLOCK(float *, row, &p.rows, i, GVM_REGION_READWRITE)
 *         scale(row, p.width);
 */
#define GVM_REGION_SCOPE(type, name, view, region, access) \
    GVM_REGION_SCOPE_BY(type, name, view, region, access, gvm_region_map, gvm_region_unmap)
#define GVM_REGION_SCOPE_WARP(type, name, view, region, access) \
    GVM_REGION_SCOPE_BY(type, name, view, region, access, gvm_region_map_warp, gvm_region_unmap_warp)
#define GVM_REGION_SCOPE_BLOCK(type, name, view, region, access) \
    GVM_REGION_SCOPE_BY(type, name, view, region, access, gvm_region_map_block, gvm_region_unmap_block)
#define GVM_REGION_SCOPE_BY(type, name, view, region, access, map, unmap) \
    for (void *name##_mapped = map(view, region, access); name##_mapped != (void *)0; \
         unmap(view, region), name##_mapped = (void *)0) \
        for (type name = (type)name##_mapped; name != (type)0; name = (type)0)

/* The slot of an address that a map returned: what gvm_region_resolve() writes. */
GVM_DEVICE uint32_t gvm_region_slot(const gvm_region_view *view, const void *address);

/* Bytes from one row, and from one slice, to the next at an address that a map returned. They depend on where the region is: in a
 * frame its rows are packed, at its home they are those of the array. Without a shape the region is one row. */
GVM_DEVICE uint64_t gvm_region_pitch(const gvm_region_view *view, const void *address);
GVM_DEVICE uint64_t gvm_region_slice_pitch(const gvm_region_view *view, const void *address);

#endif /* GVM_KERNEL */

#include <gvmem/device/detail/region.h>
#include <gvmem/device/detail/region_create.h>
#include <gvmem/device/detail/region_maps.h>
#include <gvmem/device/detail/region_tlb.h>

#endif
