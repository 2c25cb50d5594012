/* gvmem/kernels.h - small kernels that fill and check memory, for tools and tests.
 *
 * They answer one question: does this memory hold what was written there, in this process or in another? They are no
 * library of computations, and no other header needs them. They run on any device address of the process (a buffer, a
 * piece, cuMemAlloc memory, peer memory), on real GPUs and on the software GPU alike, at the speed of the memory.
 *
 * Each call queues its work on the stream given (NULL: the legacy default stream) and returns when
 * the result is there; fill returns at once. A range that is not committed breaks the context, as
 * in any kernel. On a stream that is being captured into a graph fill becomes part of the graph, and all others, which
 * would wait for what does not run, return GVM_E_INVALID and leave the capture alone.
 *
 * Ownership: nothing is kept; addresses and results are the caller's.
 * Threads: any thread may call. Every call may also return GVM_E_FOREIGN (the device is not open),
 * GVM_E_NOMEM, GVM_E_LOST, GVM_E_DRIVER, GVM_E_NOTSUP (the library was built without code for this
 * device), and all but fill GVM_E_NOSPACE (no room on the device for code or a few KiB of results, after the waits of gvm_buffer_commit()) and
 * GVM_E_LIMIT (thousands of them wait at once).
 */
#ifndef GVMEM_KERNELS_H
#define GVMEM_KERNELS_H

#include <gvmem/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes count doubles, element i being a pseudo-random number in [0, 1) that depends on seed and
 * first_index + i alone, so that a range filled in parts, or in another process, is the same.
 *
 * GVM_E_INVALID  address is NULL or not a multiple of 8 */
GVM_API GVM_CHECKED gvm_status gvm_kernel_fill_random_f64(gvm_device *device, void *address,
                                                          uint64_t count, uint64_t first_index,
                                                          uint64_t seed, gvm_stream stream);

/* The sum of count doubles. The order of additions is not fixed, so the last digits may differ from
 * run to run.
 *
 * GVM_E_INVALID  address is NULL or not a multiple of 8, or sum is NULL */
GVM_API GVM_CHECKED gvm_status gvm_kernel_sum_f64(gvm_device *device, const void *address,
                                                  uint64_t count, gvm_stream stream, double *sum);

/* A 64-bit checksum of len_bytes that depends on every byte and its place, the same on every
 * device: the wrapping sum over all 8-byte words w[i] (little-endian, the last one padded with
 * zeros) of splitmix64(w[i] ^ splitmix64(i)), plus splitmix64(len_bytes). Checksums of adjacent
 * parts do not add up. Not for adversaries.
 *
 * GVM_E_INVALID  address is NULL or not a multiple of 8, or checksum is NULL */
GVM_API GVM_CHECKED gvm_status gvm_kernel_checksum(gvm_device *device, const void *address,
                                                   uint64_t len_bytes, gvm_stream stream,
                                                   uint64_t *checksum);

/* The same checksum of host memory. data need not be aligned. */
GVM_API uint64_t gvm_kernel_checksum_host(const void *data, uint64_t len_bytes);

/* The offset of the first byte that differs between two ranges, or UINT64_MAX if none does.
 *
 * GVM_E_INVALID  an address is NULL or not a multiple of 8, or first_difference is NULL */
GVM_API GVM_CHECKED gvm_status gvm_kernel_compare(gvm_device *device, const void *a, const void *b,
                                                  uint64_t len_bytes, gvm_stream stream,
                                                  uint64_t *first_difference);

/* Which real GPUs the library has these kernels for, as "sm_75 sm_90 compute_90": compute_90 serves all of capability
 * 9.0 and later, compiled by the driver when it is loaded. "": the library was built without nvcc, and real
 * GPUs get GVM_E_NOTSUP. The software GPU always has them. Does not block. */
GVM_API const char *gvm_kernel_architectures(void);

#ifdef __cplusplus
}
#endif
#endif
