/* gvmem/share.h - the same device memory in several processes.
 *
 * A share is what one process sends another so that it can map a buffer: a descriptor (a fixed
 * layout, versioned: which device, which chunks at which offsets) and one file descriptor per
 * chunk. The exporter makes it from a buffer and sends it over any connected unix stream socket;
 * the importer receives it and makes a buffer of it: the very same memory, read-write or read-only,
 * at the exporter's address if that is wanted and free. Any number of importers may do so.
 *
 *     exporter                                     importer
 *     gvm_share_export(buffer, 0, 0, &share);
 *     gvm_share_send(share, socket, timeout_ms);   gvm_share_receive(socket, timeout_ms, &share);
 *     gvm_share_destroy(share);                    gvm_share_import(device, share, NULL, &buffer);
 *                                                  gvm_share_destroy(share);
 *
 * When the buffer has grown, export and send again: gvm_share_import() makes a second mapping,
 * gvm_buffer_update() brings the one there is up to date.
 *
 * Only the owner of memory exports it. An importer passes it on by sending the share that it
 * received, to any number of sockets; it need not even import it. The receiver imports and
 * updates as from the owner.
 *
 * The memory is freed when the owner, every importer and every share, also one on its way, have
 * released it; the end of a process releases it.
 *
 * The socket is the caller's: gvmem neither listens nor forks, reads exactly the bytes of one
 * message, and leaves the socket usable for the caller's own messages. A process that receives a share can
 * map the memory: send it only to processes that may see it.
 *
 * Threads: any thread may call; one thread at a time per socket and direction. No call is a
 * cancellation point.
 * Ownership: the caller owns a share and ends it with gvm_share_destroy(), which closes the fds
 * that are still in it.
 * Every call may also return GVM_E_FOREIGN (an object is unknown or destroyed), GVM_E_NOMEM,
 * GVM_E_LOST and GVM_E_DRIVER.
 *
 * Semantics: CUDA Driver API, cuMemExportToShareableHandle and cuMemImportFromShareableHandle with
 * POSIX file descriptors; unix(7), SCM_RIGHTS, at most 253 fds a message, so larger shares travel
 * in several.
 */
#ifndef GVMEM_SHARE_H
#define GVMEM_SHARE_H

#include <gvmem/buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_share gvm_share;

/* What a share says of the memory. All of it comes from the exporter, checked for consistency only.
 */
typedef struct gvm_share_info {
    size_t struct_size; /* in: sizeof(gvm_share_info) */
    uint8_t device_uuid[16];
    uint8_t buffer_id[16];      /* the same for every share of one buffer, random */
    uint64_t generation;        /* of the exporter's buffer at that moment */
    void *exporter_address;     /* of offset 0 */
    uint64_t reserve_bytes;     /* of the exporter's buffer */
    uint64_t chunk_bytes;       /* as gvm_buffer_get_info() has it */
    uint64_t span_offset_bytes; /* the part exported: [span_offset, span_offset + span_len) */
    uint64_t span_len_bytes;
    uint64_t committed_bytes; /* behind that part */
    uint32_t chunk_count;     /* and so many fds */
    uint8_t sealed;
    uint8_t reserved[3];
} gvm_share_info;

enum {
    /* Map read-only: a kernel of this process that writes breaks its own context alone. */
    GVM_IMPORT_READONLY = 1u << 0,
    /* Map at the exporter's addresses, so that pointers inside the data hold, or GVM_E_ADDRESS; what is to be free is
     * as for gvm_buffer_options.address. */
    GVM_IMPORT_SAME_ADDRESS = 1u << 1,
};

/* Zero means default in every other member. */
typedef struct gvm_import_options {
    size_t struct_size; /* in: sizeof(gvm_import_options) */
    uint32_t flags;     /* GVM_IMPORT_...; a sealed buffer is always mapped read-only */
    uint32_t reserved;  /* 0 */
    /* Addresses to reserve for later gvm_buffer_update(); 0: the part exported, no more. */
    uint64_t reserve_bytes;
} gvm_import_options;

/* gvm_import_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_import_options)

/* Exports the chunks that [offset_bytes, offset_bytes + len_bytes) touches; len_bytes 0 means to
 * the end of the reservation. Absent chunks are holes in the importer's buffer too. Whole chunks are
 * seen: the bytes that were written since the commit, and beside them zeros or what the same buffer
 * held before (the same heap, if the buffer is a heap's), never another's.
 *
 * GVM_E_INVALID   the range leaves the reservation, or out is NULL
 * GVM_E_IMPORTED  the buffer was imported: send the share that it was imported from
 * GVM_E_ABSENT    nothing is committed in the range
 * GVM_E_NOTSUP    the device cannot export fds, or the buffer was created GVM_BUFFER_UNSHARED
 * GVM_E_LIMIT     too few fds left in this process (RLIMIT_NOFILE): export parts, or use larger
 *                 chunks
 *
 * Costs the driver about 0.1 ms a chunk of 1 GiB on an H100. */
GVM_API GVM_CHECKED gvm_status gvm_share_export(gvm_buffer *buffer, uint64_t offset_bytes,
                                                uint64_t len_bytes, gvm_share **out);

/* Sends a share, exported here or received, over a connected unix stream socket; it can be sent to
 * any number of sockets. timeout_ms bounds the whole call. On failure the socket's stream is undefined and
 * should be closed.
 *
 * GVM_E_INVALID  the socket is no unix stream socket, timeout_ms is below GVM_FOREVER
 * GVM_E_PEER     the other process closed the connection
 * GVM_E_TIMEOUT  the other process did not read in time
 * GVM_E_SYSTEM   sendmsg failed otherwise */
GVM_API GVM_CHECKED gvm_status gvm_share_send(const gvm_share *share, int socket_fd, int timeout_ms);

/* Receives one share. On failure nothing is kept: every fd that arrived is closed. Part of a message may have been read
 * then: close the socket, unless the status is GVM_E_INVALID. A program that only wants to know whether something
 * has come calls poll(2) first.
 *
 * What a hostile sender passes as fds need not be memory. To close one can take as long as that sender wants (a TCP
 * socket with SO_LINGER, a file of a FUSE file system), here after a failure, in gvm_share_destroy(), and in a close(2) of
 * the socket with something unread in it; timeout_ms does not bound that. Receive from users who are not trusted in a thread that
 * nothing waits for.
 *
 * GVM_E_INVALID  the socket is no unix stream socket, timeout_ms is below GVM_FOREVER, or out is NULL
 * GVM_E_PEER     the other process closed the connection, before or within the message
 * GVM_E_TIMEOUT  it did not send in time
 * GVM_E_FORMAT   no share, cut short, inconsistent, or with too few or too many fds
 * GVM_E_VERSION  a share of a version that this library does not know: what a buffer that an appender
 *                filled is exported as has a higher version than other buffers' shares
 * GVM_E_LIMIT    too few fds left in this process (RLIMIT_NOFILE)
 * GVM_E_SYSTEM   recvmsg failed otherwise */
GVM_API GVM_CHECKED gvm_status gvm_share_receive(int socket_fd, int timeout_ms, gvm_share **out);

/* Fills in info.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_share_get_info(const gvm_share *share, gvm_share_info *info);

/* Maps a share as a buffer of this process, whose offset 0 is the start of the part exported. The
 * device is the one the share names (compare device_uuid), opened here; options may be NULL. The
 * share stays usable.
 *
 * GVM_E_INVALID      reserve_bytes is smaller than the part exported, unknown flags, out is NULL
 * GVM_E_OTHERDEVICE  the share names another device than this
 * GVM_E_ADDRESS      the exporter's addresses are not free here
 * GVM_E_FORMAT       an fd is no memory of the device, or not of the size or tier that the share
 *                    says; the error text names the chunk
 * GVM_E_LIMIT        the process has too many mappings, or too few fds left
 * GVM_E_NOTSUP       the device has no virtual memory management
 *
 * Costs the driver about 0.1 ms a chunk on an H100. */
GVM_API GVM_CHECKED gvm_status gvm_share_import(gvm_device *device, const gvm_share *share,
                                                const gvm_import_options *options, gvm_buffer **out);

/* Brings a buffer made by gvm_share_import() up to date with a share of the same buffer, from the
 * same offset and of the same generation or a later one. Within the part exported, chunks that have
 * come are mapped, chunks that have gone (the owner decommitted them) are unmapped, and chunks that
 * were replaced (decommitted and committed again, or moved to another tier) get the new memory;
 * beyond that part nothing changes. So a share of the same generation and span changes nothing.
 * A seal is taken over: all chunks become read-only. Access, address and reservation stay as they
 * are otherwise.
 *
 * Chunks that it has already stay mapped all the time, and kernels may go on using them, unless the
 * share brings a seal: a kernel faults that reads where write access is just being taken away. Work
 * on chunks that go or are replaced must be over: where they were, nothing is mapped for a moment, or
 * for good. The caller orders that with the owner; the owner's old memory is not freed before
 * the update releases it.
 *
 * All or nothing: after a failure the buffer is as it was. (If the driver fails to unmap chunks
 * that have gone, which comes last, the new chunks stay; the same share can be tried again.)
 *
 * GVM_E_INVALID  the buffer was not imported, or from another buffer, or from another offset, or
 *                the share is older
 * GVM_E_ADDRESS  the share spans more than the buffer has reserved: import it anew, or with more
 *                reserve_bytes
 * GVM_E_FORMAT, GVM_E_LIMIT  as for gvm_share_import() */
GVM_API GVM_CHECKED gvm_status gvm_buffer_update(gvm_buffer *buffer, const gvm_share *share);

/* Closes the fds of a share and frees it. NULL and unknown pointers are ignored. */
GVM_API void gvm_share_destroy(gvm_share *share);

/* The 64 bytes of a CUDA IPC handle (CUipcMemHandle, cudaIpcMemHandle_t), for programs that know
 * nothing of gvmem. */
typedef struct gvm_ipc_handle {
    uint8_t bytes[64];
} gvm_ipc_handle;

/* A copy of part of a buffer in cuMemAlloc memory, with the handle under which any CUDA process
 * opens it (cuIpcOpenMemHandle). Virtual memory itself cannot be shared that way, hence the copy.
 */
typedef struct gvm_ipc gvm_ipc;

typedef struct gvm_ipc_info {
    size_t struct_size; /* in: sizeof(gvm_ipc_info) */
    void *address;      /* of the copy */
    uint64_t size_bytes;
    gvm_ipc_handle handle;
} gvm_ipc_info;

/* Copies [offset_bytes, offset_bytes + len_bytes) and makes the handle; len_bytes 0 means to the
 * end of the reservation.
 *
 * GVM_E_INVALID  the range leaves the reservation, or out is NULL
 * GVM_E_ABSENT   nothing is committed behind part of the range
 * GVM_E_NOSPACE  the device has no room for the copy
 * GVM_E_NOTSUP   the device has no CUDA IPC, or the buffer was created GVM_BUFFER_UNSHARED
 *
 * The copy takes whole multiples of 2 MiB, which the driver shows to who opens the handle; behind its
 * last byte they hold zeros. */
GVM_API GVM_CHECKED gvm_status gvm_ipc_export(gvm_buffer *buffer, uint64_t offset_bytes,
                                              uint64_t len_bytes, gvm_ipc **out);

/* Memory of cuMemAlloc that can be opened by its handle, filled with zeros: for what is written there, rather than
 * copied from a buffer. Takes whole multiples of 2 MiB.
 *
 * GVM_E_INVALID  size_bytes is 0 or too large, or out is NULL
 * GVM_E_NOSPACE  the device has no room for it
 * GVM_E_NOTSUP   the device has no CUDA IPC */
GVM_API GVM_CHECKED gvm_status gvm_ipc_create(gvm_device *device, uint64_t size_bytes, gvm_ipc **out);

/* Fills in info.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_ipc_get_info(const gvm_ipc *ipc, gvm_ipc_info *info);

/* Frees the copy. Close it in the other processes first: the driver leaves what happens otherwise
 * undefined. Waits for running kernels. NULL and unknown pointers are ignored. */
GVM_API void gvm_ipc_destroy(gvm_ipc *ipc);

/* Opens a handle that another process made, with gvmem or with CUDA; the address is good until
 * gvm_ipc_close().
 *
 * GVM_E_INVALID  handle or address is NULL, the handle is not valid, or it was made by this process
 * GVM_E_NOTSUP   the device has no CUDA IPC
 * GVM_E_NOSPACE  the driver has no room for the mapping
 *
 * Blocks on the driver, which takes about 0.2 ms for 8 GiB on an H100. */
GVM_API GVM_CHECKED gvm_status gvm_ipc_open(gvm_device *device, const gvm_ipc_handle *handle,
                                            void **address);

/* Ends one opening; an address that was opened twice stays until it was closed twice. A reset of the device's context takes the
 * mapping away. The opening must be ended nevertheless, with the handle that the device had before, and before the memory is
 * opened again. The device may have been closed.
 *
 * GVM_E_FOREIGN  the address was not opened by gvm_ipc_open() on this device, or was closed
 *                already */
GVM_API gvm_status gvm_ipc_close(gvm_device *device, void *address);

#ifdef __cplusplus
}
#endif
#endif
