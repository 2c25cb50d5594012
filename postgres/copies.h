/*
 * postgres/copies.h - device memory under 64-byte CUDA handles: copies of tables that other programs
 * open, and memory of other programs that SQL functions read and write.
 *
 * A part of the service (service.h), and likewise independent of PostgreSQL. Plain CUDA handles
 * exist for memory of cuMemAlloc alone, hence copies; they do not count against the keeper's
 * budget.
 *
 * Threads: any thread may call. A copy is used by the command of one backend at a time, and dropped after
 * that backend is through with it, and after commands that it has left (memory.c).
 */
#ifndef GSTORE_COPIES_H
#define GSTORE_COPIES_H

#include <gvmem/gvmem.h>

#include "postgres/command.h"

typedef struct gstore_copies gstore_copies;

/*
 * devices: by ordinal; they outlive the copies. keeper: asked to give back free device memory when there
 * is no memory for a copy.
 */
gvm_status gstore_copies_create(gvm_device *const *devices, gvm_client *keeper, gstore_copies **out);

/* Frees every copy and closes what is open. No command is under way. NULL is ignored. */
void gstore_copies_destroy(gstore_copies *copies);

/*
 * One command with a GSTORE_COPY_... or GSTORE_FOREIGN_... verb but GSTORE_COPY_TAKE, in the context of
 * its device: w->name.device. bytes is the window, window_bytes large. Answers into w->handle.
 */
gvm_status gstore_copies_carry_out(gstore_copies *copies, gstore_window *w, uint8_t *bytes,
								   uint64_t window_bytes, gvm_stream stream);

/*
 * Where [offset_bytes, + len_bytes) of a copy is on its device. GVM_E_INVALID: beyond the copy, or there
 * is none.
 */
gvm_status gstore_copies_find(gstore_copies *copies, uint64_t copy, int32_t device,
							  uint64_t offset_bytes, uint64_t len_bytes, uint64_t *address);

/* Frees a copy. Programs that still have it open lose it. Unknown ones are ignored. */
void gstore_copies_drop(gstore_copies *copies, uint64_t copy);

/* Closes foreign memory that nobody has used for a while: its backend ended or was cancelled. */
void gstore_copies_tidy(gstore_copies *copies);

/*
 * A device as the keeper knows it. Its ordinal may be another there: an external keeper may see other devices.
 * GVM_E_OTHERDEVICE: the keeper does not serve it.
 */
gvm_status gstore_find_keeper_device(const gvm_snapshot *snapshot, gvm_device *device,
									 gvm_keeper_device_info *out);

/* What copies take on a device. */
uint64_t gstore_copies_bytes(gstore_copies *copies, int32_t device);

#endif
