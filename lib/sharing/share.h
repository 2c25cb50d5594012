/* sharing/share.h - the share object inside the library.
 *
 * A share is made by export or receive, published once it is whole, and constant from then on: the
 * calls that read it need no lock, and destroying it waits for them (base/registry.h).
 *
 * I1  about passed gvmi_descriptor_decode(), the chunks gvmi_descriptor_check_chunks(), or were
 *     made here in the same form.
 * I2  chunks [0, count) are filled in and own fds[i]; a published share has count ==
 *     about.chunk_count.
 */
#ifndef GVMI_SHARING_SHARE_H
#define GVMI_SHARING_SHARE_H

#include <stdbool.h>

#include <gvmem/share.h>

#include "base/private.h"
#include "driver/driver.h"
#include "memory/buffer.h"
#include "sharing/descriptor.h"

#define GVMI_UUID_TEXT_BYTES 41 /* "GPU-" and 36 characters, as nvidia-smi writes them */

struct gvm_share {
    gvmi_descriptor about;
    gvmi_descriptor_chunk *chunks;
    int *fds;
    uint32_t count, capacity;
};

/* An empty share that nobody knows; makes room for chunks; closes its fds and frees it, keeping the
 * thread's error. */
gvm_status gvmi_share_new(gvm_share **out);
gvm_status gvmi_share_grow(gvm_share *share, uint32_t capacity);
void gvmi_share_free(gvm_share *share);

/* Makes a whole share known to the program and stores it in *out; frees it on failure. */
gvm_status gvmi_share_publish(gvm_share *share, gvm_share **out);

/* Checks a handle from the program and counts the caller in; drop counts out. */
gvm_status gvmi_share_hold(const gvm_share *handle, gvm_share **out);
void gvmi_share_drop(gvm_share *share);

/* Records that a driver call failed for want of fds. GVM_E_LIMIT */
gvm_status gvmi_share_fail_fds(CUresult result, const char *call, uint32_t fds_wanted);

char *gvmi_uuid_text(const uint8_t uuid[16], char out[GVMI_UUID_TEXT_BYTES]);

/* ---- import.c, also for update.c */

/* Imports the memory of one chunk of a share. *out is the caller's to release.
 *
 * GVM_E_FORMAT, GVM_E_LIMIT, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_share_import_chunk(const gvm_share *share, uint32_t index,
                                   CUmemGenericAllocationHandle *out);

/* Puts an imported handle behind an absent chunk of the buffer. */
void gvmi_share_place_locked(const gvm_share *share, uint32_t index,
                             CUmemGenericAllocationHandle handle, gvm_buffer *buffer);

/* Settles the chunks [first, end). That an fd is of another size than the share says shows only here.
 *
 * GVM_E_FORMAT, and otherwise those of settle */
gvm_status gvmi_share_settle_locked(gvm_buffer *buffer, uint64_t first, uint64_t end);

/* ---- for the keeper's clients, whose memory comes and goes chunk by chunk */

/* Makes an imported buffer with the addresses and the properties that the share's fixed part and
 * the options want, and no memory yet; not yet published. options are full, reserve_bytes set. Addresses in
 * the range, which may be NULL, are taken from it.
 *
 * GVM_E_OTHERDEVICE, GVM_E_NOTSUP, GVM_E_ADDRESS, GVM_E_INVALID (chunks too small for the device) */
gvm_status gvmi_share_make_buffer(const gvmi_descriptor *about, gvm_device *device,
                                  const gvm_import_options *options, gvmi_range *range,
                                  gvm_buffer **out);

/* Chunks [first, end) of a buffer that a patch left to be settled. */
typedef struct gvmi_patch {
    uint64_t first, end;
    bool replaced; /* some were there before */
} gvmi_patch;

/* Brings an imported buffer up to date by a share that lists only the chunks it has, count of
 * them, which may be none, and of the seal: what it does not have stays. The share need not be
 * published; of its fixed part only flags and chunk_bytes count. It must be of the buffer, with its
 * chunks inside the reservation.
 *
 * Nothing that is replaced may be in use: running kernels are not waited for. All or nothing. On
 * success, what is replaced is unmapped and released, which its owner may want to know early; what
 * takes its place is not mapped yet: that is gvmi_share_settle_patch()'s.
 *
 * GVM_E_FORMAT, GVM_E_LIMIT, GVM_E_NOMEM, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_share_patch(const gvm_share *share, gvm_buffer *buffer, gvmi_patch *out);

/* Settles about so many chunks more; what is left is in the patch, none if first == end. Failure leaves
 * chunks that are not in place, and no way back: the caller is to vacate the buffer.
 *
 * GVM_E_FORMAT, GVM_E_LIMIT, GVM_E_NOMEM, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_share_settle_patch(gvm_buffer *buffer, gvmi_patch *patch, uint64_t chunks);

#endif
