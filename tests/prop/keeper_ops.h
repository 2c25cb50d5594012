/* tests/prop/keeper_ops.h - state that the processes of the test keeper_ops share.
 *
 * One page of memory, shared by all of them, says what every object should be. Three means keep it
 * true while everybody acts at once:
 *
 *   leases    what an object holds, and who is inside, changes only under a lease of the keeper's:
 *             if two writers ever have one at the same time, the page and the memory disagree
 *   asked and done
 *             a fact that a call changes has two values: asked is set before the call, done after
 *             it. Who looks from beside takes done before his own call and asked after it; what he
 *             finds must lie between
 *   a mutex   over names and who outlives whom, so that the answers there are known beforehand. Who
 *             opens a name does not take it
 *
 * Threads: any. Ownership: the page belongs to the process that made it.
 */
#ifndef PROP_KEEPER_OPS_H
#define PROP_KEEPER_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gvmem/client.h>
#include <gvmem/gvmem.h>
#include <gvmem/keeper.h>

#include "driver/driver.h"
#include "tests/lib/units.h"

#define CHUNK_BYTES (2 * MIB)
#define CHUNKS_MAX 3u
#define NAMES 6u
#define HISTORY 256u
#define RECORDS 65536u /* used in turn: one is not met again while anybody may still mean it */
#define SEEDS 127u     /* of data, from 1 on; 0: zeros */
#define PROCESSES_MAX 8u
#define THREADS_MAX 8u
#define SLOTS 6u  /* openings of a process */
#define LEASES 3u /* of a thread, at once */
#define PROBLEM_BYTES 512u
#define METADATA_FILLER_MAX 200u

/* An object. */
typedef struct record {
    _Atomic uint64_t serial; /* 0: not in use */
    uint32_t reserve_chunks;
    int name; /* index, -1: none; under the mutex, as the next */
    bool outlives;
    _Atomic uint32_t chunks_asked, chunks_done;
    atomic_bool seal_asked, seal_done;
    _Atomic uint64_t metadata_asked, metadata_done; /* versions */
    atomic_flag metadata_busy;                      /* somebody sets it */
    _Atomic uint64_t address;                       /* at its creator; 0: not known */
    atomic_int references;                          /* openings, and 1 for a name */
    atomic_int readers, writers;                    /* inside, by their own count */
    _Atomic uint8_t seed[CHUNKS_MAX];               /* of what the chunks hold */
} record;

/* A name, and which objects had it. */
typedef struct name_log {
    _Atomic uint64_t asked, done;      /* positions; history[done % HISTORY] is the present one */
    _Atomic uint64_t history[HISTORY]; /* serials; 0: nobody */
} name_log;

/* clang-format off */
/* X(kind, weight): what threads do, and how often. */
#define KEEPER_OPS(X) \
    X(CREATE, 24) X(OPEN, 40) X(CLOSE, 30) X(GROW, 16) X(SEAL, 3) X(PUBLISH, 20) X(DROP, 8) \
    X(READ, 140) X(WRITE, 80) X(RELEASE, 120) \
    X(SET_METADATA, 10) X(GET_METADATA, 14) X(SET_MODE, 6) \
    X(EVICT, 24) X(INFO, 14) X(SNAPSHOT, 6) X(TRIM, 3) X(RECONNECT, 2) X(INVALID, 8)
/* clang-format on */

#define KEEPER_OP(kind, weight) OP_##kind,
typedef enum op_kind { KEEPER_OPS(KEEPER_OP) OP_COUNT } op_kind;
#undef KEEPER_OP

typedef struct shared_page {
    pthread_mutex_t mutex;
    name_log names[NAMES];
    _Atomic uint64_t serials; /* given out */
    _Atomic uint64_t started, wanted;
    _Atomic uint32_t chunks_in_use; /* at most, by all objects that live */
    _Atomic uint64_t chunks_added;  /* to it, ever; written after it */
    _Atomic uint32_t opens_under_way;
    _Atomic uint64_t opens_begun; /* ever; written after it */
    _Atomic uint32_t working;     /* processes that may still act on names */
    atomic_bool stop;             /* something is wrong; problem says what */
    atomic_flag problem_taken;
    char problem[PROBLEM_BYTES];
    char path[108];
    uint64_t budget_chunks; /* of both tiers */
    uint64_t device_budget_bytes, host_budget_bytes;
    atomic_int now[PROCESSES_MAX][THREADS_MAX];    /* op_kind, to see why nothing moves */
    _Atomic uint64_t done[OP_COUNT], answered[64]; /* by status, in all */
    _Atomic uint64_t bytes_checked;
    record records[RECORDS];
} shared_page;

extern shared_page *page;

/* ---- a process */

typedef struct slot {
    pthread_rwlock_t lock; /* written: opening and closing, only ever tried; read: use */
    gvm_object *object;    /* NULL: free */
    record *record;
    uint64_t serial, id, address;
    bool creator, readonly;
} slot;

typedef struct party {
    unsigned index;
    gvm_device *device;
    CUmodule kernels; /* and its functions */
    CUfunction fill, check;
    unsigned blocks, block_threads;
    gvm_client *keeper;
    pthread_rwlock_t connection; /* read: while a thread uses it or holds leases */
    pthread_rwlock_t opening;    /* read: an open by name; written: closing what bears a name */
    atomic_bool reconnecting;    /* let go of everything, somebody waits for the lock */
    slot slots[SLOTS];
} party;

typedef struct holding {
    slot *slot; /* whose lock is held for reading */
    gvm_lease lease;
} holding;

typedef struct worker {
    pthread_t thread;
    party *party;
    unsigned index;
    uint64_t seed;
    CUstream stream;
    bool connected; /* holds the connection's lock */
    unsigned lease_count;
    holding leases[LEASES];
} worker;

/* Opens device and connection, runs the threads, closes everything. False: page->problem says
 * why. */
bool party_run(unsigned index, unsigned threads, uint64_t seed);

/* ---- keeper_ops_model.c */

/* Makes the page; NULL if there is no memory. */
shared_page *model_page_create(void);

/* Records a problem, if it is the first, and stops everybody. Returns false. */
bool wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* False with a problem unless status is GVM_OK or one of may; false too if GVM_OK is wrong there,
 * which MUST_FAIL in may says. */
#define ONE_OF(status) (1ull << (status))
#define MUST_FAIL ONE_OF(63)
bool judged(const char *call, gvm_status status, uint64_t may);

/* The names; all of it but name_was() under the mutex. */
void names_lock(void);
void names_unlock(void);
uint64_t name_owner(unsigned name);            /* serial; 0: nobody */
void name_ask(unsigned name, uint64_t serial); /* before the call that gives it */
/* After the call: before had the name until now, after has it. What before or after had besides is
 * forgotten or given up. */
void name_done(unsigned name, uint64_t before, uint64_t after);
const char *name_text(unsigned name);

/* Did the name belong to that serial (0: nobody) at some time since done was taken? */
bool name_was(unsigned name, uint64_t done, uint64_t serial);

record *record_create(uint32_t reserve_chunks);
record *record_find(uint64_t serial); /* NULL: no such */
void record_hold(record *r);
void record_drop(record *r);
void record_ask_chunks(record *r, uint32_t chunks); /* before growth */
void record_grown(record *r, uint32_t chunks);      /* after it */

/* How full the keeper is at most; and may it have been full at some time since? What came and went
 * in between counts, and so do the chunks that the caller asked for himself. */
typedef struct fullness {
    uint64_t chunks_added, opens_begun;
    uint32_t chunks_in_use, opens_under_way;
} fullness;
fullness model_fullness(void);
bool model_may_have_been_full(const fullness *before);

void model_open_begins(void);
void model_open_ends(void);

/* What a creator attaches: which record it is, a version, and bytes that follow from both. */
typedef struct metadata {
    uint64_t magic, serial, version;
    uint8_t filler[METADATA_FILLER_MAX];
} metadata;
uint32_t metadata_make(metadata *out, uint64_t serial, uint64_t version);
bool metadata_good(const metadata *m, uint32_t len_bytes);

/* ---- keeper_ops_lease.c */

/* Loads the kernels that fill and check chunks, onto the party's device; unloads them. */
bool kernels_load(party *p);
void kernels_unload(party *p);

bool do_read(worker *w);
bool do_write(worker *w);
bool do_release(worker *w);
bool release_all(worker *w); /* also lets go of the connection */

/* ---- keeper_ops_object.c */

bool do_object_op(worker *w, op_kind kind);

/* A random slot that is in use, its lock held for reading; NULL: none found. */
slot *pick_slot(worker *w);
void leave_slot(slot *s);

#endif
