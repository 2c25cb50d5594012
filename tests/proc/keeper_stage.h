/* tests/proc/keeper_stage.h - a keeper, a client that uses its object undisturbed, and what must be
 * so after others have misbehaved.
 *
 * Threads: one. Ownership: stage_end() ends what stage_begin() started.
 */
#ifndef PROC_KEEPER_STAGE_H
#define PROC_KEEPER_STAGE_H

#include "tests/proc/keeper_puppet.h"

#define REVOKE_MS (400u * PROC_SLOWNESS) /* how long a client may take to unmap */
#define SETTLE_MS 10000

typedef struct stage {
    char folder[64], path[PATH_BYTES];
    keeper_puppet keeper, bystander;
    fd_counts fds; /* of the keeper with the bystander alone, without those of frames */
} stage;

/* Of STILL_NAME's bytes, and of as many with numbers of OTHER_SEED; set by stage_learn(). */
extern uint64_t still_checksum, other_checksum;
#define OTHER_SEED 78u

/* Learns what data's checksums are, and how much pinned memory the host has. The device is open. */
bool stage_learn(void);

/* The bystander has STILL_NAME open in slot 0, published, with its data. */
bool stage_begin(stage *s, uint32_t lease_limit_ms);
bool stage_begin_timed(stage *s, uint32_t revoke_limit_ms, uint32_t lease_limit_ms);

/* The same with a keeper that runs already, after another one's death. */
bool stage_begin_bystander(stage *s);

/* The clients that came have gone: the bystander's data, names, leases, objects, memory and the keeper's fds
 * are what they were, after at most SETTLE_MS. */
bool stage_is_whole(stage *s);

/* The bystander reads its data under a lease. */
bool stage_reads(stage *s);

/* The bystander writes numbers of a seed into its data, under a lease. */
bool stage_writes(stage *s, uint64_t content);

/* What the keeper says to the bystander. */
bool stage_snapshot(stage *s, keeper_answer *out);

/* Ends all; the device's memory, and the host's, is free again. */
bool stage_end(stage *s);

/* ---- the tests, in groups */

void test_stops(void);           /* keeper_stop.c: SIGSTOP, leases never given back */
void test_abuses(uint64_t seed); /* keeper_abuse.c: what no client says */

#endif
