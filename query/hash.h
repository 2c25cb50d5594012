/* query/hash.h - hash tables of inner tables (query/kernels.h): each lies in an object of the keeper, which counts
 * to the device's budget and may be larger, and is used by all queries that need the same one.
 *
 * One query builds it, and others that need it wait until it is ready or has failed. It is kept for a while without a user.
 * Its bytes are charged to the role of the session that builds it, also while sessions of other roles use it, until it is given up.
 *
 * Threads: any thread may call anything.
 * Ownership: gquery_hash_find() and gquery_hash_add() make their caller a user, until gquery_hash_release().
 */
#ifndef GQUERY_HASH_H
#define GQUERY_HASH_H

#include <gvmem/client.h>

#include "query/kernels.h"

#define GQUERY_HASH_REST_NS INT64_C(10000000000) /* without a user; then it is given up */

/* Of which rows by which keys. */
typedef struct gquery_hash_key {
    /* By the backend's word: docs/security.md says why that is no boundary. */
    uint64_t store, version, rows; /* as in gquery_table */
    const gquery_program *program;
} gquery_hash_key;

typedef struct gquery_hashed {
    gvm_object *object;      /* NULL: no row was entered */
    uint64_t slots;          /* at the object's beginning */
    uint64_t next_at;        /* offset of `next` in the object; 0: no two rows have the same keys */
    uint64_t rows, repeated; /* entered; of them, rows with the keys of another one */
    uint32_t keys;
    /* hash.c's: */
    struct gquery_hashed *next;
    gquery_hash_key key; /* its program is its own */
    uint32_t role;       /* whose session builds it */
    uint64_t bytes;      /* that are charged to the role */
    bool shared;         /* others find it */
    bool ready;
    uint32_t users;
    int64_t used_ns;
} gquery_hashed;

/* By which objects are created. Before all others. */
void gquery_hash_init(gvm_client *keeper);

typedef enum gquery_hash_found {
    GQUERY_HASH_READY,
    GQUERY_HASH_TO_BUILD, /* the caller builds it, and says how that ended */
    GQUERY_HASH_ABSENT,   /* gquery_hash_add() makes it */
    GQUERY_HASH_BUSY,     /* another one builds it: it was waited for, for wait_ms */
    GQUERY_HASH_NO_MEMORY,
} gquery_hash_found;

/* READY, ABSENT or BUSY; its caller is a user of one that is READY. */
gquery_hash_found gquery_hash_find(const gquery_hash_key *key, int wait_ms, gquery_hashed **out);

/* The same without a wait, and not ABSENT: TO_BUILD, with the caller as its user, or NO_MEMORY. Others wait for it from then
 * on, so the caller has all that it waits for itself: a lane and leases. */
gquery_hash_found gquery_hash_add(const gquery_hash_key *key, uint32_t role, gquery_hashed **out);

/* What `slots` slots and, behind them, `next` take. */
uint64_t gquery_hash_size(const gquery_hashed *hashed, uint64_t slots);

/* Charges them to the role. Where it would have more than bytes_max then, those of its hash tables go first that nobody uses.
 * False: it still would; nothing was charged, and none has gone if that could not have helped. */
bool gquery_hash_charge(gquery_hashed *hashed, uint64_t slots, uint64_t bytes_max);

/* Waits until one has no user any more, or was given up. */
void gquery_hash_await(int wait_ms);

/* Memory on the device for them; all is 0.
 *
 * The errors of gvm_object_create() */
gvm_status gquery_hash_create(gquery_hashed *hashed, int32_t device, uint64_t slots);

/* The caller has built it, and the object is sealed, if there is one. */
void gquery_hash_ready(gquery_hashed *hashed);

/* One that is not ready goes, as it could not be built. */
void gquery_hash_release(gquery_hashed *hashed);

/* Gives up those without a user for so long. */
void gquery_hash_rest(int64_t unused_ns);

#endif
