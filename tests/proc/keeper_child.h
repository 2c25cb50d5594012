/* tests/proc/keeper_child.h - children (tests/lib/child.h) that are keepers and clients.
 *
 * One may be a keeper, another a client of it. Any of them can be commanded to kill itself at its Nth
 * step: a step is the moment before or after a driver call, or a system call by which processes of the
 * keeper speak to each other (keeper_step.c).
 */
#ifndef PROC_KEEPER_CHILD_H
#define PROC_KEEPER_CHILD_H

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include "tests/lib/child.h"
#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/proc/process.h"

#define CHUNK_BYTES (2 * MIB)
#define DEVICE_BUDGET_CHUNKS 6u
#define LENDING "GVMEM_TEST_LENDING" /* set: SERVE serves two devices, which lend to each other */
#define LENDING_BUDGET_CHUNKS 4u     /* of each */
#define HOST_BUDGET_CHUNKS 12u
#define SLOTS 8u
#define PATH_BYTES 108u
#define LEASE_WAIT_MS 20000 /* of acquires that must succeed in the end */

/* clang-format off */
/* X(verb): slot, name, a and b are the command's. */
#define KEEPER_VERBS(X) \
    X(SERVE)      /* starts a keeper at the path name; a: revoke timeout, b: lease timeout, ms */ \
    X(STOP)       /* ends it */ \
    X(CONNECT)    /* to the keeper at the path name */ \
    X(DISCONNECT) \
    X(CREATE)     /* name, a chunks reserved, b committed */ \
    X(OPEN)       /* name, flags a */ \
    X(CLOSE) \
    X(DROP)       /* name */ \
    X(ACQUIRE)    /* mode a, timeout_ms b */ \
    X(RELEASE) \
    X(FILL)       /* under the lease: all chunks, with numbers of seed a */ \
    X(CHECK)      /* checksum of the bytes of the lease, or of the latest one */ \
    X(GROW)       /* to a chunks */ \
    X(SEAL)       /* timeout a */ \
    X(PUBLISH)    /* name, flags a */ \
    X(EVICT)      /* name */ \
    X(TRIM) \
    X(INFO) \
    X(SNAPSHOT)   /* the answer has the keeper's and the device's figures */ \
    X(SCENARIO)   /* a whole life of a client of the keeper at the path name, up to its end */ \
    X(RANDOM)     /* whatever comes to mind, for ever, at the keeper at the path name; seed a */ \
    X(ARM)        /* kill yourself at the ath step from now, 0: never; b SIGSTOP: stop instead; \
                   * answers the steps so far */ \
    X(WRITTEN)    /* between which steps (value: from, until: to) SCENARIO wrote STILL_NAME */ \
    X(SET_MODE)   /* a */ \
    X(BECOME)     /* user a, group b, and no other groups; before CONNECT */ \
    X(EXEC)       /* no answer: becomes a program that does nothing until it is killed */
/* clang-format on */

#define KEEPER_VERB(verb) KEEPER_##verb,
typedef enum keeper_verb { KEEPER_VERBS(KEEPER_VERB) KEEPER_VERB_COUNT } keeper_verb;
#undef KEEPER_VERB

typedef struct keeper_answer {
    gvm_status status;
    uint64_t value, until;
    gvm_object_info object; /* INFO */
    gvm_keeper_info keeper; /* SNAPSHOT */
    gvm_keeper_device_info device;
    uint32_t cut_off; /* clients that are, in a SNAPSHOT */
    char text[200];   /* the error's */
} keeper_answer;

/* main() must begin with this; it does not return in a child. */
void keeper_child_main(int argc, char **argv);
child keeper_child_start(void);

/* A command without waiting; the answer to the oldest one without, false if the child is dead;
 * both, with GVM_E_SYSTEM if it died. name may be NULL. */
bool keeper_post(child *p, keeper_verb verb, unsigned slot, const char *name, uint64_t a, uint64_t b);
bool keeper_wait(child *p, keeper_answer *out);
keeper_answer keeper_do(child *p, keeper_verb verb, unsigned slot, const char *name, uint64_t a,
                        uint64_t b);

/* A command that must answer the status; says where and returns false otherwise. */
#define KEEPER_EXPECT(p, verb, slot, name, a, b, wanted) \
    keeper_expect(__FILE__, __LINE__, p, KEEPER_##verb, slot, name, a, b, wanted)
#define KEEPER_OK(p, verb, slot, name, a, b) KEEPER_EXPECT(p, verb, slot, name, a, b, GVM_OK)
bool keeper_expect(const char *file, int line, child *p, keeper_verb verb, unsigned slot,
                   const char *name, uint64_t a, uint64_t b, gvm_status wanted);

/* ---- keeper_step.c */

/* Counts this process's steps from now on, and kills it at the nth, or stops it if signal is SIGSTOP;
 * 0: only counts. Returns how many there have been since the last call. */
uint64_t step_arm(uint64_t nth, int signal);

/* How many there have been since then. */
uint64_t step_count(void);

/* Puts the counting in front of the driver's calls. The driver has been started. */
void step_watch_driver(void);

/* ---- keeper_life.c: what a client does of its own accord */

#define STILL_NAME "/still" /* an object of STILL_CHUNKS chunks with data of STILL_SEED, always */
#define STILL_CHUNKS 2u
#define STILL_SEED 77u

/* Every call once or more; the first failure ends it. */
gvm_status life_scenario(gvm_device *device, const char *path);

/* Between which steps of this process it wrote STILL_NAME, under one lease. */
extern uint64_t life_wrote_from, life_wrote_until;

/* Until it is killed, or the keeper is gone. */
gvm_status life_random(gvm_device *device, const char *path, uint64_t seed);

/* All chunks of a lease, with numbers of a seed; waits. And their checksum. */
gvm_status life_fill(gvm_device *device, const gvm_lease *lease, uint64_t seed);
gvm_status life_check(gvm_device *device, const gvm_lease *lease, uint64_t *checksum);

#endif
