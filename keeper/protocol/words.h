/* keeper/protocol/words.h - the two words that a client and the keeper share for each open object.
 *
 * The lease word is written by the client alone, the permit word by the keeper alone (the client
 * maps its page read-only). So a client can damage only its own data, and the keeper checks what it
 * reads.
 *
 *     client, acquire:  add to the lease word;  load the permit word;  allowed? done, but where
 *                       writing is permitted load the lease word again: alone? done.
 *                       otherwise subtract again and ask the keeper
 *     client, release:  subtract from the lease word;  load the permit word;  REVOKED and the last
 *                       lease, or the last writer? ring the keeper's doorbell
 *     keeper, revoke:   store REVOKED in the permit word;  load the lease word;  leases? wait for
 *                       the doorbell, and load again every 100 ms: who should ring may be stopped
 *
 * Both sides store, pass a barrier and load, so at least one of them sees the other (Dekker). All operations
 * are sequentially consistent; on x86 the client's addition is the barrier, at no extra cost.
 *
 *     lease word   63........32 31......16 15......0     permit word  63........32 31..6 5..0
 *                  acquires     writers    readers                    generation   0     flags
 *
 * acquires counts successes and failures, wrapping; it feeds the policy.
 */
#ifndef GVMI_KEEPER_PROTOCOL_WORDS_H
#define GVMI_KEEPER_PROTOCOL_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gvmem/client.h>

#define GVMI_LEASE_READER 1ull
#define GVMI_LEASE_WRITER (1ull << 16)
#define GVMI_LEASE_COUNTED (1ull << 32)
#define GVMI_LEASE_READERS_MAX \
    32767u /* beyond, an acquire is refused; the rest is for transients */

enum {
    GVMI_PERMIT_READ = 1 << 0,    /* read leases may be taken */
    GVMI_PERMIT_WRITE = 1 << 1,   /* a write lease may be taken, if nobody here has any */
    GVMI_PERMIT_REVOKED = 1 << 2, /* ring when the last lease goes */
    GVMI_PERMIT_PARTIAL = 1 << 3, /* not all on the device: ask the keeper, unless for a scan */
    GVMI_PERMIT_GONE = 1 << 4,    /* the keeper has cut this process off, or ended the opening */
    GVMI_PERMIT_BROKEN = 1 << 5, /* a MAP of this opening has failed: it permits nothing before a lease is granted */
};

/* A line of its own each, or threads on different objects would share one. */
typedef struct gvmi_lease_slot {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint32_t hint; /* gvm_hint of the latest acquire */
} gvmi_lease_slot;

typedef struct gvmi_permit_slot {
    _Atomic uint64_t word;
} gvmi_permit_slot;

_Static_assert(sizeof(gvmi_lease_slot) == 64 && sizeof(gvmi_permit_slot) == 8, "shared layout");

#define GVMI_LEASE_PAGE_BYTES (GVM_OBJECTS_OPEN_MAX * sizeof(gvmi_lease_slot))
#define GVMI_PERMIT_PAGE_BYTES (GVM_OBJECTS_OPEN_MAX * sizeof(gvmi_permit_slot))

static inline uint32_t gvmi_lease_readers(uint64_t word)
{
    return (uint32_t)(word & 0xffff);
}

static inline uint32_t gvmi_lease_writers(uint64_t word)
{
    return (uint32_t)(word >> 16 & 0xffff);
}

static inline uint32_t gvmi_lease_acquires(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline bool gvmi_lease_any(uint64_t word)
{
    return (word & 0xffffffff) != 0;
}

static inline uint64_t gvmi_permit(uint32_t generation, uint32_t flags)
{
    return (uint64_t)generation << 32 | flags;
}

static inline uint32_t gvmi_permit_generation(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

#endif
