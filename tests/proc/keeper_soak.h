/* tests/proc/keeper_soak.h - state that the processes of the test keeper_neighbours share.
 *
 * One page of shared memory says what every object of the honest clients should hold. Hostile
 * neighbours are children that speak the protocol by hand and see the page's names only.
 *
 *   honest    keeper_honest.c: clients of the library that write versions into whole objects and
 *             check what they find; and a meter, which measures how long calls take
 *   hostile   keeper_hostile.c: floods, malformed messages, forged lease words, answers that never come
 *   sleepers  keeper_sleeper.c: honest clients that are stopped with leases until they are cut off
 *
 * Threads: any may use the page. Ownership: the page belongs to the process that made it.
 */
#ifndef PROC_KEEPER_SOAK_H
#define PROC_KEEPER_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gvmem/client.h>

#include "tests/proc/keeper_child.h"

/* Users, where the test runs as root. */
#define UID_METER 1000u
#define UID_HONEST 1001u /* and the next */
#define UID_HOSTILE 1003u
#define UID_SLEEPER 1009u /* and the next */
#define GID_HONEST 2000u  /* of the honest and the sleepers: objects of mode 0660 are theirs */
#define GID_HOSTILE 2003u /* and the next, one each */

/* Longer in a long run, in which the machine may be busy with something else for a second. */
#define REVOKE_MS (1000u * SLOWNESS)
#define REVOKE_LONG_MS (4000u * SLOWNESS)
#define SOAK_LEASE_MS (4000u * SLOWNESS) /* where the lease timeout is set at all */
#define HONEST 2u
#define HONEST_THREADS 3u
#define HOSTILE 4u
#define FLOODERS 6u /* each does another flood */
#define POSITIONS 12u
#define RECORDS 65536u /* used in turn: one is not met again while anybody may still mean it */
#define OBJECT_CHUNKS_MAX 3u
/* Of acquires that no neighbour may delay for ever; longer in a long run, where more meets. */
#define PATIENCE_MS (8000u * SLOWNESS)
#define PATIENCE_LONG_MS (30000u * SLOWNESS)
#define PROBLEMS_MAX 20u /* printed */

/* Who may open an object of the honest. */
typedef enum soak_class {
    SOAK_PRIVATE, /* mode 0660 */
    SOAK_READ,    /* mode 0664: neighbours may hold read leases, so that writers may time out */
    SOAK_WRITE,   /* mode 0666: and write leases, so that readers may */
    SOAK_CLASSES
} soak_class;

/* An object. What it holds changes under a write lease only. */
typedef struct soak_record {
    _Atomic uint64_t serial;    /* 0: not in use */
    _Atomic uint64_t committed; /* the version that it holds; 0: zeros */
    _Atomic uint64_t bytes;     /* that have the version; the rest is zeros */
    _Atomic uint32_t chunks_asked;
    atomic_int readers, writers; /* inside, by their own count */
    atomic_bool seal_asked;
    soak_class class;
} soak_record;

#define BUCKETS 256u /* four to an octave of nanoseconds */
typedef struct soak_times {
    _Atomic uint64_t count, max_ns, buckets[BUCKETS];
} soak_times;

typedef struct soak_page {
    char path[PATH_BYTES];
    uint8_t device_uuid[16];
    bool many_users;    /* the test runs as root */
    bool lease_timeout; /* the keeper has one */
    uint32_t patience_ms, revoke_ms;
    _Atomic bool stop;
    _Atomic unsigned problems, sleeper_problems;
    _Atomic uint64_t next_serial;
    _Atomic uint64_t positions[POSITIONS]; /* serials; 0: none */
    soak_record records[RECORDS];
    soak_times acquire, connect, root_connect;
    soak_times meter_acquire, meter_connect; /* first at the processors: what the keeper lets it wait */
    soak_times acquire_work, connect_work; /* what its server thread worked meanwhile */
    pid_t keeper_pid;
    int keeper_thread; /* its server thread */
    _Atomic uint64_t writes, reads, timeouts, refusals, sleeper_rounds, hostile_acts;
    /* What a look at the keeper showed: look() in keeper_neighbours.c */
    gvm_keeper_info keeper;
    gvm_keeper_device_info device;
} soak_page;

extern soak_page *soak;

/* Prints a problem, counts it, and ends the test. */
bool soak_problem(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* GVM_OK, or one of may (bits of 1 << status); otherwise a problem. */
#define MAY(status) (1ull << (status))
bool soak_judge(const char *call, gvm_status status, uint64_t may);

void soak_time(soak_times *times, uint64_t ns);
uint64_t soak_percentile_ns(const soak_times *times, unsigned percent);

/* The processor time that the keeper's server thread has used. */
uint64_t soak_keeper_work_ns(void);

void soak_name(uint64_t serial, char name[64]);

/* ---- what children do; each returns its exit status */

int honest_run(unsigned index, uint64_t seed);
int meter_run(void);
int sleepers_run(uint64_t seed);

/* What hostile neighbours do; the first ones are floods. */
/* clang-format off */
#define HOSTILE_ACTS(X) \
    X(flood_objects) X(flood_snapshots) X(flood_growths) X(flood_connections) \
    X(flood_acquires) X(flood_doorbells) \
    X(connect_and_close) X(stay_silent) X(say_random_bytes) X(say_random_messages) \
    X(forge_words) X(forge_writer) X(answer_nothing) X(answer_in_disorder) X(ring_doorbells) \
    X(fork_and_exec) X(send_descriptors) X(use_memory) X(keep_snapshots)
/* clang-format on */
#define HOSTILE_ENUMERATOR(name) ACT_##name,
typedef enum hostile_act { HOSTILE_ACTS(HOSTILE_ENUMERATOR) ACT_COUNT } hostile_act;
#undef HOSTILE_ENUMERATOR

extern const char *const hostile_act_names[ACT_COUNT];

/* One act, until end_ns. */
int hostile_run(hostile_act act, uint64_t seed, uint64_t end_ns);

#endif
