/* gvmem/alloc.h - device memory by the piece: malloc and free over virtual memory management.
 *
 * The two calls of seed programs that wrap cuMemCreate and cuMemMap by hand, needing no size when
 * freeing, and giving the bandwidth of cuMemAlloc memory. A piece is a buffer that is committed
 * whole; gvm_alloc_buffer() finds it, to move, seal, grant or share the piece.
 * Every piece takes at least one chunk of 2 MiB.
 *
 * Threads: any thread may call.
 * Ownership: the caller owns a piece until gvm_free().
 */
#ifndef GVMEM_ALLOC_H
#define GVMEM_ALLOC_H

#include <gvmem/buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates size_bytes of device memory, aligned to 2 MiB, contents undefined. Chunks are as large
 * as they can be while the rounding stays within one sixteenth of the size (or one chunk of 2 MiB);
 * smaller, where the device is too full for that. Like gvm_buffer_commit() it has idle memory of the
 * process given back before it fails, and waits about 10 s at most for streams.
 *
 * GVM_E_INVALID  size_bytes is 0 or too large, or out is NULL
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_NOSPACE  the device has too little free memory
 * GVM_E_NOMEM    out of host memory
 * GVM_E_ADDRESS, GVM_E_LIMIT, GVM_E_SYSTEM, GVM_E_DRIVER, GVM_E_LOST  as gvm_buffer_create() and
 *     gvm_buffer_commit() */
GVM_API gvm_status gvm_alloc(gvm_device *device, void **out, size_t size_bytes);

/* Frees what gvm_alloc() returned. NULL is a success. Does not wait for kernels: end the work that
 * uses the memory first.
 *
 * GVM_E_FOREIGN  the pointer is not the start of a piece, or was freed already */
GVM_API gvm_status gvm_free(void *ptr);

/* The buffer behind a piece; it stays owned by the piece and must not be destroyed.
 *
 * GVM_E_INVALID  out is NULL
 * GVM_E_FOREIGN  the pointer is not the start of a piece, or was freed already */
GVM_API gvm_status gvm_alloc_buffer(const void *ptr, gvm_buffer **out);

#ifdef __cplusplus
}
#endif
#endif
