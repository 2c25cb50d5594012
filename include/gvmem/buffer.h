/* gvmem/buffer.h - a range of device addresses and the memory behind it.
 *
 * A buffer owns addresses from creation on; memory is put behind any part of it by
 * gvm_buffer_commit() and taken away by gvm_buffer_decommit(). The memory comes in chunks, all of
 * one size per buffer (what appenders fill has smaller ones at both ends: gvmem/appender.h), and each chunk
 * is absent, on the device, in the memory of a peer device, or in host memory; the device reads the latter two over
 * links. The address of a byte never changes, wherever its chunk is kept.
 *
 * Offsets and lengths are in bytes from the start of the buffer; a range is [offset, offset + len).
 *
 * Work on the GPU: a kernel that touches an absent chunk, or writes to a sealed one, breaks its
 * context, as an invalid pointer does. decommit, move, seal and destroy do not wait for kernels:
 * end or order the work that uses the range first, as with munmap(2). Kernels that do not touch the
 * range may keep running. commit never disturbs other calls or kernels.
 *
 * Devices without virtual memory management (some vGPU profiles), and GVMEM_VMM=0: a buffer is then
 * one cuMemAlloc of its whole reservation. commit succeeds at once, copies, fills and sharing
 * by CUDA IPC work; decommit, move, seal, grant and fd sharing answer GVM_E_NOTSUP; destroy waits for
 * running kernels, as cuMemFree does.
 *
 * Threads: any thread may call. Copies and fills run beside each other and beside calls on other chunks;
 * commit waits for none of them. What takes memory or rights from chunks waits for calls that copy or
 * fill them: decommit and move for those on chunks of their range, seal and grant for all. A copy or
 * fill that is called while one of these waits or runs comes after it. So, if the stream of a copy
 * waits for work that a thread has yet to launch or to answer, that thread must launch or answer it
 * before it calls these on the copy's chunks: otherwise it waits for itself.
 * Ownership: the caller owns a buffer it created or imported and ends it with gvm_buffer_destroy().
 * Errors that any call here may return besides those listed: GVM_E_FOREIGN (the buffer is unknown
 * or destroyed), GVM_E_NOMEM (host memory), GVM_E_LOST (the context is broken), GVM_E_DRIVER (the
 * driver refused for a reason without a code of its own).
 *
 * Semantics: CUDA Driver API, "Virtual Memory Management" and "Memory Management"; the unit of
 * mapping and of moving is the handle.
 */
#ifndef GVMEM_BUFFER_H
#define GVMEM_BUFFER_H

#include <gvmem/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_buffer gvm_buffer;

/* Where a chunk is. More places may follow; treat an unknown one as "somewhere readable". */
typedef enum gvm_tier {
    GVM_TIER_ABSENT = 0,
    GVM_TIER_DEVICE = 1,
    GVM_TIER_HOST = 2,
    GVM_TIER_PEER = 3, /* in the memory of another device, that the buffer's device reaches */
} gvm_tier;

/* Chunk sizes are powers of two in this range. */
#define GVM_CHUNK_BYTES_MIN (2ull << 20)
#define GVM_CHUNK_BYTES_MAX (1ull << 30)

enum {
    /* Never to be exported, nor copied by gvm_ipc_export(): saves the driver the bookkeeping, and
     * commit may use memory again that other buffers of this process have freed, as they left it.
     * Cannot be changed later. */
    GVM_BUFFER_UNSHARED = 1u << 0,
};

/* Zero means default in every other member. */
typedef struct gvm_buffer_options {
    size_t struct_size; /* in: sizeof(gvm_buffer_options) */
    /* 0: chosen, from 2 MiB for reservations up to 32 MiB to 64 MiB from 1 GiB on. Larger chunks
     * commit, move and share faster (the driver's cost is per chunk), smaller ones waste less at
     * the ends; copies within the device run at full speed from 32 to 64 MiB on. */
    uint64_t chunk_bytes;
    /* Wanted, a multiple of 2 MiB; GVM_E_ADDRESS if what lies there is taken: with NVIDIA's driver, anything in the units of
     * 32 MiB that the buffer touches. NULL: any. */
    void *address;
    uint32_t flags;    /* GVM_BUFFER_... */
    uint32_t reserved; /* 0 */
} gvm_buffer_options;

/* gvm_buffer_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_buffer_options)

typedef struct gvm_buffer_info {
    size_t struct_size; /* in: sizeof(gvm_buffer_info) */
    void *address;
    uint64_t reserve_bytes; /* whole chunks */
    uint64_t chunk_bytes;   /* of all chunks, or all but those of an appender's ends */
    uint64_t device_bytes;  /* committed, by tier */
    uint64_t host_bytes;
    uint64_t generation;  /* grows with every commit, decommit, move and seal */
    uint64_t moved_bytes; /* between tiers, since creation */
    int32_t ordinal;      /* the device */
    gvm_access access;    /* what this process may do */
    uint8_t sealed;
    uint8_t imported; /* the memory belongs to another process */
    uint8_t vmm;      /* 0: the cuMemAlloc fallback */
    uint8_t reserved[5];
    uint64_t peer_bytes; /* committed, in the memory of peers */
} gvm_buffer_info;

/* Reserves addresses for reserve_bytes, rounded up to whole chunks, and commits nothing. Addresses
 * are cheap (terabytes are fine): reserve what the buffer could ever need. options may be NULL.
 *
 * GVM_E_INVALID  reserve_bytes is 0 or too large, chunk_bytes is no power of two within the limits,
 *                address is no multiple of 2 MiB, unknown flags, out is NULL
 * GVM_E_ADDRESS  the addresses wanted are not free, or the address space is used up
 * GVM_E_NOSPACE  only in the fallback: the device has not enough memory
 * GVM_E_SYSTEM   the system has no random numbers for the buffer's identity */
GVM_API GVM_CHECKED gvm_status gvm_buffer_create(gvm_device *device, uint64_t reserve_bytes,
                                                 const gvm_buffer_options *options, gvm_buffer **out);

/* Puts memory behind [offset_bytes, offset_bytes + len_bytes), rounded outwards to whole chunks;
 * parts already backed stay as they are. New memory holds zeros, or what this buffer held anywhere
 * before, so that a process that imports the buffer sees nothing that was not its owner's; with
 * GVM_BUFFER_UNSHARED it may also hold what other buffers of this process held. Which of these is
 * not defined. All or nothing: on failure the buffer is as it was.
 *
 * GVM_E_INVALID   the range is empty or leaves the reservation
 * GVM_E_NOSPACE   the device has too little free memory, though what this process keeps idle there (free
 *                 chunks, heaps, what appenders have ahead) was given back; the error text
 *                 says how much was wanted and how much is free
 * GVM_E_LIMIT     the process has too many mappings or descriptors: use larger chunks
 * GVM_E_SEALED    the buffer is sealed
 * GVM_E_IMPORTED  the buffer was imported
 *
 * Blocks on the driver only (about 40 us a chunk on an H100); never waits for the GPU to be idle. Only where
 * the device is full may it wait for streams in whose order memory was freed, on any heap of this process: for about
 * 10 s at most, after which it returns GVM_E_NOSPACE. Other calls that allocate device memory do
 * the same. */
GVM_API GVM_CHECKED gvm_status gvm_buffer_commit(gvm_buffer *buffer, uint64_t offset_bytes,
                                                 uint64_t len_bytes);

/* Takes memory from behind the chunks that lie wholly inside the range; absent ones are passed
 * over. Contents are lost. The memory is free once every process that imported it has released it
 * too. Waits for calls of other threads that copy or fill these chunks, and for no others.
 *
 * GVM_E_INVALID   the range is empty or leaves the reservation
 * GVM_E_SEALED, GVM_E_IMPORTED  as for commit
 * GVM_E_NOTSUP    the device has no virtual memory management */
GVM_API GVM_CHECKED gvm_status gvm_buffer_decommit(gvm_buffer *buffer, uint64_t offset_bytes,
                                                   uint64_t len_bytes);

/* Makes the buffer read-only for good, in place, for every device that has access, and for everyone
 * who imports it from now on. What was imported read-write before stays so. Sealed chunks may still
 * move between tiers. Work that only reads must be over as well: a kernel faults that reads where
 * access is just being changed.
 *
 * GVM_E_IMPORTED  the buffer was imported
 * GVM_E_LIMIT     the driver has too many mappings
 * GVM_E_NOTSUP    the device has no virtual memory management */
GVM_API GVM_CHECKED gvm_status gvm_buffer_seal(gvm_buffer *buffer);

/* Moves the committed chunks that the range touches to a tier, contents and address unchanged;
 * absent chunks and chunks already there are passed over. Chunk by chunk: after a failure some have
 * moved, none is lost, and calling again goes on. Processes that imported the chunks keep the old
 * memory with the old contents: moving what others use is the keeper's business.
 *
 * GVM_E_INVALID   the range is empty or leaves the reservation, or tier is neither GVM_TIER_DEVICE
 *                 nor GVM_TIER_HOST (for GVM_TIER_PEER: gvm_buffer_move_to_peer())
 * GVM_E_NOSPACE   the device has too little free memory
 * GVM_E_NOMEM     the host has too little free memory
 * GVM_E_IMPORTED  the buffer was imported
 * GVM_E_NOTSUP    the device has no virtual memory management, or tier is GVM_TIER_HOST and it has no host tier
 * GVM_E_LIMIT     the process has too many mappings: use larger chunks
 * GVM_E_ADDRESS   no addresses are left to move chunks through
 *
 * Blocks until the bytes are copied (about 50 GB/s on PCIe 5; making new host memory costs 0.3 s a
 * GiB). Calls of other threads on other chunks, and commits, go on meanwhile. */
GVM_API GVM_CHECKED gvm_status gvm_buffer_move(gvm_buffer *buffer, uint64_t offset_bytes,
                                               uint64_t len_bytes, gvm_tier tier);

/* gvm_buffer_move() to the memory of a peer device, which the buffer's own device then reads and writes over the link
 * between the two (NVLink of an H200: seven times as fast as host memory). Address and contents stay, and so does what grants
 * gave to devices; the peer itself has access where it was granted some. gvm_buffer_move() brings the chunks back, or to the
 * host. Commits are on the buffer's device as before. The buffer keeps the peer, which the program may close. Who imports
 * such chunks finds them in GVM_TIER_DEVICE.
 *
 * GVM_E_INVALID   the range is empty or leaves the reservation, or peer is the buffer's own device
 * GVM_E_NOSPACE   the peer has too little free memory
 * GVM_E_IMPORTED  the buffer was imported
 * GVM_E_NOTSUP    the buffer's device, or one that the buffer is granted to, cannot reach the peer's memory, or one of
 *                 the two has no virtual memory management; nothing was moved
 * GVM_E_LIMIT     the process has too many mappings, or chunks of the buffer have been on 31 other peers
 * GVM_E_ADDRESS   no addresses are left to move chunks through
 *
 * Blocks until the bytes are copied. */
GVM_API GVM_CHECKED gvm_status gvm_buffer_move_to_peer(gvm_buffer *buffer, uint64_t offset_bytes,
                                                       uint64_t len_bytes, gvm_device *peer);

/* Gives a peer device access to the whole buffer, now and after later commits, or takes it away
 * (GVM_ACCESS_NONE). On a sealed buffer read-write is not available.
 * Kernels of other devices go on; a peer that has access already must not use the
 * buffer while that changes.
 *
 * GVM_E_INVALID   access is no gvm_access, or peer is the buffer's own device
 * GVM_E_SEALED    read-write access to a sealed buffer
 * GVM_E_READONLY  read-write access to a buffer imported read-only
 * GVM_E_LIMIT     the buffer is granted to 31 peers already, or the driver has too many mappings
 * GVM_E_NOTSUP    the peer cannot reach the memory of the buffer's device, or of another one that chunks of the buffer are on, or
 *                 there is no virtual memory management */
GVM_API GVM_CHECKED gvm_status gvm_buffer_grant(gvm_buffer *buffer, gvm_device *peer,
                                                gvm_access access);

/* Copies host memory into the buffer, the buffer into host memory, or between buffers of this
 * process. These may be one buffer, if the ranges do not overlap, or on different devices, if the
 * source is granted to the destination's.
 *
 * The plain forms return when the bytes are there, ordered after nothing: work on other streams is
 * the caller's to wait for. The _async forms do the copy in the order of the stream (one of the
 * destination's device, or of the buffer's) and return at once, except that from or to pageable
 * host memory the driver may wait, also for the work before it on the stream: a decommit, move, seal or
 * grant of these chunks then waits as long. The memory must stay until the stream has passed the copy.
 * Plain copies of up to 64 KiB between host memory and a buffer are not behind larger ones of other
 * threads. A length of 0 is a success that does nothing, at
 * any offset. If an _async form fails, part of the copy may be on
 * the stream all the same: let the stream pass it before the memory is used otherwise.
 *
 * GVM_E_INVALID   a range leaves its reservation, ranges overlap, a pointer is NULL, or the
 *                 destination's device has no access to the source
 * GVM_E_ABSENT    nothing is committed behind part of a range
 * GVM_E_SEALED    the destination is sealed
 * GVM_E_READONLY  the destination was imported read-only
 * GVM_E_NOSPACE   the driver has no memory for the copy itself */
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy_in(gvm_buffer *dst, uint64_t dst_offset_bytes,
                                                  const void *src, uint64_t len_bytes);
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy_out(void *dst, gvm_buffer *src,
                                                   uint64_t src_offset_bytes, uint64_t len_bytes);
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy(gvm_buffer *dst, uint64_t dst_offset_bytes,
                                               gvm_buffer *src, uint64_t src_offset_bytes,
                                               uint64_t len_bytes);
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy_in_async(gvm_buffer *dst, uint64_t dst_offset_bytes,
                                                        const void *src, uint64_t len_bytes,
                                                        gvm_stream stream);
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy_out_async(void *dst, gvm_buffer *src,
                                                         uint64_t src_offset_bytes,
                                                         uint64_t len_bytes, gvm_stream stream);
GVM_API GVM_CHECKED gvm_status gvm_buffer_copy_async(gvm_buffer *dst, uint64_t dst_offset_bytes,
                                                     gvm_buffer *src, uint64_t src_offset_bytes,
                                                     uint64_t len_bytes, gvm_stream stream);

/* Fills a range with a pattern of 1, 2 or 4 bytes; offset and length must be multiples of the
 * pattern's size. A length of 0 is a success that does nothing, at any offset.
 *
 * GVM_E_INVALID   the range leaves the reservation, or the pattern's size or the alignment is wrong
 * GVM_E_ABSENT, GVM_E_SEALED, GVM_E_READONLY, GVM_E_NOSPACE  as for the copies */
GVM_API GVM_CHECKED gvm_status gvm_buffer_fill(gvm_buffer *dst, uint64_t offset_bytes,
                                               uint64_t len_bytes, const void *pattern,
                                               size_t pattern_bytes);
GVM_API GVM_CHECKED gvm_status gvm_buffer_fill_async(gvm_buffer *dst, uint64_t offset_bytes,
                                                     uint64_t len_bytes, const void *pattern,
                                                     size_t pattern_bytes, gvm_stream stream);

/* The buffer's address: what a CUDA program passes to kernels as a pointer, or casts to CUdeviceptr. NULL for
 * an unknown buffer. Constant for life. */
GVM_API void *gvm_buffer_address(const gvm_buffer *buffer);

/* A snapshot of the buffer.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_buffer_get_info(gvm_buffer *buffer, gvm_buffer_info *info);

/* Where the chunk at an offset is.
 *
 * GVM_E_INVALID  the offset is past the reservation, or tier is NULL */
GVM_API GVM_CHECKED gvm_status gvm_buffer_get_tier(gvm_buffer *buffer, uint64_t offset_bytes,
                                                   gvm_tier *tier);

/* Gives back memory and addresses. NULL and unknown pointers are ignored. Importers in other
 * processes keep what they mapped. */
GVM_API void gvm_buffer_destroy(gvm_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif
