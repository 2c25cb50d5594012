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
 * Each map is unmapped once, by threads of the same kind. The address is good until then. Who maps a region may
 * map others meanwhile. Threads that map the same region see what the others write there as in plain device memory; loads must
 * not be ld.global.nc (__ldg(), const __restrict__).
 *
 *     function                                  who calls                 what each thread gets
 *     gvm_region_map(), _unmap()                one thread                what it maps
 *     gvm_region_map_warp(), _unmap_warp()      all threads of a warp     the one region of the warp
 *     gvm_region_map_block(), _unmap_block()    all threads of a block    the one region of the block
 *
 * In those of warps and blocks all threads pass the same arguments. Before an unmap the accesses of all of them are over.
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

/* The slot of an address that a map returned: what gvm_region_resolve() writes. */
GVM_DEVICE uint32_t gvm_region_slot(const gvm_region_view *view, const void *address);

/* Bytes from one row, and from one slice, to the next at an address that a map returned. They depend on where the region is: in a
 * frame its rows are packed, at its home they are those of the array. Without a shape the region is one row. */
GVM_DEVICE uint64_t gvm_region_pitch(const gvm_region_view *view, const void *address);
GVM_DEVICE uint64_t gvm_region_slice_pitch(const gvm_region_view *view, const void *address);

#endif /* GVM_KERNEL */

#include <gvmem/device/detail/region.h>

#endif
