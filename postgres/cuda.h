/*
 * postgres/cuda.h - the calls of the CUDA driver that the service makes itself: copies, fills, streams.
 *
 * Their signatures are those of cuda.h, in whose names they are; gvm_driver_get_call() finds them in the driver
 * that libgvmem has loaded.
 *
 * Threads: gstore_cuda_load() comes before all others; then any.
 */
#ifndef GSTORE_CUDA_H
#define GSTORE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include <gvmem/device.h>

#define GSTORE_STREAM_NON_BLOCKING 1u /* CU_STREAM_NON_BLOCKING */
#define GSTORE_REGISTER_PORTABLE   1u /* CU_MEMHOSTREGISTER_PORTABLE */

typedef struct gstore_cuda
{
	int (*cuMemcpyHtoDAsync)(uint64_t to, const void *from, size_t bytes, gvm_stream stream);
	int (*cuMemcpyDtoHAsync)(void *to, uint64_t from, size_t bytes, gvm_stream stream);
	int (*cuMemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t bytes, gvm_stream stream);
	int (*cuMemsetD8Async)(uint64_t to, unsigned char byte, size_t bytes, gvm_stream stream);
	int (*cuMemGetAddressRange)(uint64_t *base, size_t *size, uint64_t address);
	int (*cuMemHostRegister)(void *memory, size_t bytes, unsigned flags);
	int (*cuMemHostUnregister)(void *memory);
	int (*cuStreamCreate)(gvm_stream *stream, unsigned flags);
	int (*cuStreamSynchronize)(gvm_stream stream);
	int (*cuStreamDestroy)(gvm_stream stream);
} gstore_cuda;

extern gstore_cuda gstore_cu;

/* Fills in gstore_cu. Errors: gvm_driver_get_call(). */
gvm_status gstore_cuda_load(void);

#endif
