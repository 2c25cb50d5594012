/* memory/buffer.h - the buffer inside the library.
 *
 * A buffer is a reserved range cut into chunks as its layout says (memory/layout.h). A chunk has a tier, a
 * handle unless it is absent, and flags that say how far its place at its address is behind what it should be:
 *
 *     absent --create or import--> UNMAPPED|STALE --map--> STALE --set access--> in place
 *
 * and unmapping and releasing lead back to absent.
 *
 * The lock is held over calls that the driver completes at once, never while it copies or waits:
 * commits of an appender, for which a kernel waits, come through here. Calls that use chunks for
 * longer have a gvmi_use of them. A shared one (copies, fills) keeps memory and rights of its
 * chunks as they are; an exclusive one (decommit, move, seal, grant, update) is for taking those
 * away. Commit needs neither, as it changes absent chunks alone.
 *
 * A thread that waits for chunks holds no use that has begun and no buffer's lock: a copy begins both
 * its uses at once or waits with neither, and an exclusive use is the only one of its call. So no threads
 * wait for each other in a circle.
 *
 * Every change sets flags and calls gvmi_buffer_settle_locked(), the only function that maps and
 * sets access. When the driver fails half way the flags still describe the state, nothing is lost,
 * and the next call that needs the chunk settles it.
 *
 * I1  tier == GVM_TIER_ABSENT iff handle == 0 (or the buffer is the cuMemAlloc fallback, which has
 *     no handles), and then flags == 0.
 * I2  device_bytes and host_bytes are the sums of the sizes of the chunks of that tier, the bytes of each of peers those
 *     of the chunks of GVM_TIER_PEER that have its index; no two of peers are one device, none is the buffer's own.
 * I3  a chunk without UNMAPPED is mapped at gvmi_chunk_address(); without STALE and PEERS
 *     it has the access that the buffer's fields say, or more if a patch sealed the buffer over it
 *     (sharing/update.c).
 * I4  sealed implies access == GVM_ACCESS_READ.
 * I5  grants name distinct devices, none of them the buffer's own.
 * I6  what an exclusive use has overlaps no other use that has begun; uses lies on stacks of calls
 *     that have the buffer held.
 */
#ifndef GVMI_MEMORY_BUFFER_H
#define GVMI_MEMORY_BUFFER_H

#include <stdbool.h>
#include <sys/queue.h>

#include <gvmem/buffer.h>

#include "base/private.h"
#include "memory/device.h"
#include "memory/layout.h"
#include "memory/range.h"

#define GVMI_GRANTS_MAX 31               /* peers of one buffer */
#define GVMI_PEERS_MAX 31                /* that chunks of one buffer may be on */
#define GVMI_CHUNKS_MAX (1ull << 24)     /* of one buffer; far above what a process can map */
#define GVMI_SPAN_BYTES_MAX (1ull << 47) /* a reservation: what user space addresses */

enum {
    GVMI_CHUNK_UNMAPPED = 1 << 0, /* has a handle, is not at its address */
    GVMI_CHUNK_STALE = 1 << 1,    /* its access at the driver is not what the buffer says */
    GVMI_CHUNK_SEEN = 1 << 2,  /* exported or imported: others may have it, so it is never reused */
    GVMI_CHUNK_FRESH = 1 << 3, /* made by the call that is under way; undone if that fails */
    GVMI_CHUNK_PEERS = 1 << 4, /* as STALE, but what the buffer's own device may do is in place */
};

typedef struct gvmi_chunk {
    CUmemGenericAllocationHandle handle;
    /* While SEEN: the owner's generation when this memory was first exported, so that other memory
     * at the same place has another stamp (sharing/descriptor.h). */
    uint64_t stamp;
    uint8_t tier; /* gvm_tier */
    uint8_t flags;
    uint8_t peer; /* GVM_TIER_PEER: index into the buffer's peers; 0 in other tiers */
} gvmi_chunk;

/* Chunks [first, end) of a buffer that a call uses without the lock. On the call's stack. */
typedef struct gvmi_use {
    TAILQ_ENTRY(gvmi_use) entry;
    gvm_buffer *buffer;
    uint64_t first, end;
    bool exclusive;
} gvmi_use;

typedef struct gvmi_grant {
    gvm_device *peer; /* referenced */
    gvm_access access;
} gvmi_grant;

/* A device whose memory chunks of GVM_TIER_PEER are in, or were. It stays until the buffer's end. */
typedef struct gvmi_chunk_peer {
    gvm_device *device; /* referenced */
    uint64_t bytes;
} gvmi_chunk_peer;

struct gvm_buffer {
    gvmi_mutex lock;
    TAILQ_HEAD(, gvmi_use) uses; /* shared ones that have begun, exclusive ones that have or wait */
    pthread_cond_t use_ended;
    gvm_device *device; /* referenced */
    uint64_t address, reserve_bytes, chunk_count;
    gvmi_range *range;       /* that has the addresses; NULL: they are reserved for this buffer */
    CUdeviceptr own_address; /* what is reserved for it: at a wanted address sometimes more than it has */
    uint64_t own_bytes;
    LIST_ENTRY(gvm_buffer) in_range;
    gvmi_layout layout;
    gvmi_chunk *chunks;
    uint64_t device_bytes, host_bytes, moved_bytes, generation;
    uint8_t id[16]; /* random, from gvm_buffer_create(); an importer has the exporter's */
    gvm_access access;
    uint64_t owner; /* of what the chunks hold; GVMI_OWNER_ANY: the buffer is never exported */
    bool own_owner; /* it is nobody else's */
    bool vmm, shareable, sealed, imported;
    bool open_to_cpu; /* the processor has access to chunks in host memory */
    /* Imported: where offset 0 lies in the owner's buffer, and which state of that is shown. */
    uint64_t source_offset_bytes, source_generation;
    uint32_t grant_count;
    gvmi_grant grants[GVMI_GRANTS_MAX];
    uint32_t peer_count;
    gvmi_chunk_peer peers[GVMI_PEERS_MAX];
};

/* What a new buffer is to be; sizes are checked and rounded here, GVM_E_INVALID, GVM_E_ADDRESS. */
typedef struct gvmi_buffer_spec {
    uint64_t reserve_bytes; /* rounded up to whole chunks */
    uint64_t chunk_bytes;   /* 0: chosen */
    bool graded;            /* small chunks at both ends, if the reservation has room for that */
    /* Imported, graded: what the owner reserves, and where in that this buffer begins, at a chunk's edge. 0: it
     * is the owner. */
    uint64_t owner_reserve_bytes, skip_bytes;
    uint64_t address;  /* 0: any */
    gvmi_range *range; /* to take the address from, if that is in it; or NULL */
    uint64_t owner;    /* that several buffers have in common; 0: one of its own */
    bool unshared;     /* never exported: it may be given memory that holds others' bytes */
} gvmi_buffer_spec;

/* The chunk that an offset lies in, of the reservation's end the number of chunks; where a chunk begins;
 * and its size. */
static inline uint64_t gvmi_chunk_at(const gvm_buffer *buffer, uint64_t offset_bytes)
{
    return gvmi_layout_at(&buffer->layout, offset_bytes);
}

static inline uint64_t gvmi_chunk_start(const gvm_buffer *buffer, uint64_t index)
{
    return gvmi_layout_start(&buffer->layout, index);
}

static inline uint64_t gvmi_chunk_bytes(const gvm_buffer *buffer, uint64_t index)
{
    return gvmi_layout_size(&buffer->layout, index);
}

static inline CUdeviceptr gvmi_chunk_address(const gvm_buffer *buffer, uint64_t index)
{
    return buffer->address + gvmi_chunk_start(buffer, index);
}

/* Bytes of the chunks [first, end). */
static inline uint64_t gvmi_chunks_bytes(const gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    return gvmi_chunk_start(buffer, end) - gvmi_chunk_start(buffer, first);
}

/* Are two chunks in memory of one kind, of one device? */
static inline bool gvmi_chunks_together(const gvmi_chunk *a, const gvmi_chunk *b)
{
    return a->tier == b->tier && a->peer == b->peer;
}

/* Bytes of chunks on peers; of all chunks that are not absent; and the count that a chunk, which is not absent, is part of. */
static inline uint64_t gvmi_buffer_peer_bytes(const gvm_buffer *buffer)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < buffer->peer_count; i++)
        bytes += buffer->peers[i].bytes;
    return bytes;
}

static inline uint64_t gvmi_buffer_committed_bytes(const gvm_buffer *buffer)
{
    return buffer->device_bytes + buffer->host_bytes + gvmi_buffer_peer_bytes(buffer);
}

static inline uint64_t *gvmi_buffer_count_of(gvm_buffer *buffer, const gvmi_chunk *chunk)
{
    return chunk->tier == GVM_TIER_DEVICE ? &buffer->device_bytes
           : chunk->tier == GVM_TIER_HOST ? &buffer->host_bytes
                                          : &buffer->peers[chunk->peer].bytes;
}

/* Makes a buffer with reserved addresses and no chunks, not yet known to the registry. */
GVMI_API gvm_status gvmi_buffer_new(gvm_device *device, const gvmi_buffer_spec *spec, gvm_buffer **out);

/* Makes a buffer known, so that the program can use it; and the reverse of new (unmaps and releases
 * whatever is there; cannot fail). */
gvm_status gvmi_buffer_publish(gvm_buffer *buffer);
GVMI_API void gvmi_buffer_free(gvm_buffer *buffer);

/* Makes a buffer of its own identity, and makes it known: gvm_buffer_create() on a device that is
 * held, whether or not the program still has it open; and gvm_buffer_commit(). Both without asking for idle
 * memory when the device is full: the outermost call does that (idle.h). */
gvm_status gvmi_buffer_create(gvm_device *device, const gvmi_buffer_spec *spec, gvm_buffer **out);
gvm_status gvmi_buffer_commit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes);

/* Checks a handle from the program and counts the caller in; drop counts out. */
gvm_status gvmi_buffer_hold(const gvm_buffer *handle, gvm_buffer **out);
void gvmi_buffer_drop(gvm_buffer *buffer);

/* Begins two shared uses, which may be one, or of one buffer, and leaves the buffers locked. Waits for
 * exclusive uses that overlap them, those that wait themselves included: threads that copy without a
 * pause would keep these out for ever. The caller fills in buffer, first and end. */
void gvmi_use_begin_shared(gvmi_use *a, gvmi_use *b);

/* Begins an exclusive use and leaves the buffer locked. Waits for all uses that overlap it and were
 * there before it. */
void gvmi_use_begin_exclusive(gvm_buffer *buffer, uint64_t first, uint64_t end, gvmi_use *use);

/* The same for a thread that waits for no other: false, and nothing was done, where it would have to. */
bool gvmi_use_try_exclusive(gvm_buffer *buffer, uint64_t first, uint64_t end, gvmi_use *use);

/* Ends a use; its buffer is not locked, or is. */
void gvmi_use_end(gvmi_use *use);
void gvmi_use_end_locked(gvmi_use *use);

/* Brings the chunks [first, end) that are behind to their place: maps what is UNMAPPED, sets access
 * on what is STALE, that of peers on what is PEERS, in as few driver calls as there are runs. Absent
 * chunks are passed over. On failure the flags show how far it came. */
gvm_status gvmi_buffer_settle_locked(gvm_buffer *buffer, uint64_t first, uint64_t end);

/* Puts new memory of a tier behind the absent chunks of [first, end); the others stay as they are.
 * All or nothing.
 *
 * GVM_E_NOSPACE, GVM_E_NOMEM (host tier), and those of settle */
GVMI_API gvm_status gvmi_buffer_commit_tier_locked(gvm_buffer *buffer, uint64_t first, uint64_t end,
                                                   gvm_tier tier);

/* Maps the first so many chunks of another buffer, all in host memory, behind absent chunks of this one too, whose size is the
 * same. They stay mapped here, to be written, whatever becomes of the other one. All or nothing.
 *
 * GVM_E_READONLY, GVM_E_SEALED (the other one is not to be written), GVM_E_ABSENT (one is not mapped there, or is on the device), GVM_E_NOMEM, and those of settle */
gvm_status gvmi_buffer_alias(gvm_buffer *buffer, uint64_t first, gvm_buffer *source, uint64_t count);

/* What a chunk of a buffer, in a tier, is to the cache of free chunks. */
gvmi_chunk_spec gvmi_buffer_chunk_spec(const gvm_buffer *buffer, uint64_t index, gvm_tier tier);

/* Makes an unmapped chunk absent, and releases its handle. */
void gvmi_buffer_release_chunk_locked(gvm_buffer *buffer, uint64_t index, gvmi_release how);

/* Takes the chunks [first, end) away: unmaps runs, releases handles. Failure (of an unmap) leaves
 * the chunks from there on as they were. The handles are kept for reuse, or released as asked. */
GVMI_API gvm_status gvmi_buffer_vacate_locked(gvm_buffer *buffer, uint64_t first, uint64_t end);
gvm_status gvmi_buffer_vacate_as_locked(gvm_buffer *buffer, uint64_t first, uint64_t end,
                                        gvmi_release how);

/* gvm_buffer_commit() for a thread that waits for no other: false, and nothing was done, where another
 * call has the buffer's lock. */
bool gvmi_buffer_try_commit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                            gvm_status *status);

/* gvm_buffer_decommit(), which keeps handles for reuse, or lets them go in another way. If it may not wait
 * for other threads it returns GVM_E_TIMEOUT where it would have to. */
gvm_status gvmi_buffer_decommit(gvm_buffer *handle, uint64_t offset_bytes, uint64_t len_bytes,
                                gvmi_release how, bool may_wait);

/* Does a device reach the memory of another one? GVM_E_NOTSUP */
gvm_status gvmi_device_check_reach(const gvm_device *device, const gvm_device *memory);

/* Could a peer be granted that access to memory of the device? GVM_E_NOTSUP, GVM_E_INVALID. And gvm_buffer_grant() to
 * a peer that is held, whether or not the program still has it open. */
gvm_status gvmi_grant_check(const gvm_device *device, const gvm_device *peer, gvm_access access);
gvm_status gvmi_buffer_grant(gvm_buffer *handle, gvm_device *peer, gvm_access access);

/* Gives a peer that could be granted it read-write access to a new buffer, before memory is put behind that. There are fewer
 * than GVMI_GRANTS_MAX so far. */
GVMI_API void gvmi_buffer_add_peer(gvm_buffer *buffer, gvm_device *peer);

/* Gives the processor access to the chunks in host memory, those that come later too. *bytes: how much it may access
 * from the buffer's start on. Errors are those of mapping; after one, chunks that come later are not accessible. */
gvm_status gvmi_buffer_open_to_cpu(gvm_buffer *buffer, uint64_t *bytes);

/* Takes away the chunks of [first, end) that are FRESH, keeping the thread's error; or makes them
 * ordinary ones. */
void gvmi_buffer_undo_fresh_locked(gvm_buffer *buffer, uint64_t first, uint64_t end);
void gvmi_buffer_keep_fresh_locked(gvm_buffer *buffer, uint64_t first, uint64_t end);

/* Records that mapping or setting access failed; for want of something of the process: GVM_E_LIMIT.
 */
gvm_status gvmi_buffer_fail_mapping(CUresult result, const char *call);

/* Puts a handle behind an absent chunk: UNMAPPED, STALE and FRESH besides flags. */
void gvmi_buffer_place_locked(gvm_buffer *buffer, uint64_t index, gvm_tier tier,
                              CUmemGenericAllocationHandle handle, uint8_t flags);

/* [offset, offset + len) as chunk numbers [*first, *end), rounded outwards. len 0 is refused.
 * GVM_E_INVALID */
gvm_status gvmi_buffer_chunk_range(const gvm_buffer *buffer, uint64_t offset_bytes,
                                   uint64_t len_bytes, uint64_t *first, uint64_t *end);

/* For copies. Is the whole range there, and in place? GVM_E_INVALID, GVM_E_ABSENT, and those of
 * settle. And how far memory of one tier goes from an offset in such a range, at most len_bytes: a
 * driver copy is to stay within memory of one kind. */
gvm_status gvmi_buffer_ready_locked(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes);
uint64_t gvmi_buffer_run(gvm_buffer *buffer, uint64_t offset_bytes, uint64_t len_bytes);

/* How many of the first len_bytes bytes, which are reserved, are in host memory. */
uint64_t gvmi_buffer_host_bytes(gvm_buffer *buffer, uint64_t len_bytes);

/* What a program may do through writes: GVM_OK, GVM_E_SEALED or GVM_E_READONLY. */
gvm_status gvmi_buffer_writable_locked(const gvm_buffer *buffer);

/* Walks the whole buffer and holds it against I1 to I5. */
bool gvmi_buffer_check(gvm_buffer *buffer);

#endif
