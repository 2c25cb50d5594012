/* tests/proc/keeper_fixture.h - a keeper, a client that uses its object undisturbed, and what must be
 * so after others have misbehaved.
 *
 * Threads: one. Ownership: fixture_end() ends what fixture_begin() started.
 */
#ifndef PROC_KEEPER_FIXTURE_H
#define PROC_KEEPER_FIXTURE_H

#include "tests/proc/keeper_child.h"

#define REVOKE_MS (400u * SLOWNESS) /* how long a client may take to unmap */
#define SETTLE_MS 10000

typedef struct fixture {
    fixture_folder folder;
    child keeper, bystander;
    fd_counts fds; /* of the keeper with the bystander alone, without those of frames */
} fixture;

/* Of STILL_NAME's bytes, and of as many with numbers of OTHER_SEED; set by fixture_learn(). */
extern uint64_t still_checksum, other_checksum;
#define OTHER_SEED 78u

/* Learns what data's checksums are, and how much pinned memory the host has. The device is open. */
bool fixture_learn(void);

/* The bystander has STILL_NAME open in slot 0, published, with its data. */
bool fixture_begin(fixture *s, uint32_t lease_limit_ms);
bool fixture_begin_timed(fixture *s, uint32_t revoke_limit_ms, uint32_t lease_limit_ms);

/* The same with a keeper that runs already, after another one's death. */
bool fixture_begin_bystander(fixture *s);

/* The clients that came have gone: the bystander's data, names, leases, objects, memory and the keeper's fds
 * are what they were, after at most SETTLE_MS. */
bool fixture_is_whole(fixture *s);

/* The bystander reads its data under a lease. */
bool fixture_reads(fixture *s);

/* The bystander writes numbers of a seed into its data, under a lease. */
bool fixture_writes(fixture *s, uint64_t content);

/* What the keeper says to the bystander. */
bool fixture_snapshot(fixture *s, keeper_answer *out);

/* Ends all; the device's memory, and the host's, is free again. */
bool fixture_end(fixture *s);

/* ---- the tests, in groups */

void test_stops(void);           /* keeper_stop.c: SIGSTOP, leases never given back */
void test_abuses(uint64_t seed); /* keeper_abuse.c: what no client says */

#endif
