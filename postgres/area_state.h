/* postgres/area_state.h - what the files share that area.h is implemented by.
 *
 *   area.c       areas in use, making and moving them   link.c   links of tokens to areas
 *   area_trim.c  memory given back
 *
 * I1  an area in the tree has an open object; refs counts the commands and threads that use it now.
 * I2  a dropped area is out of the tree; the last one that uses it closes it.
 * I3  an area that is busy is used by the thread alone that gives back memory of it; others wait. But links are made
 *     to it: whoever puts another object in its place takes them along.
 * I4  beyond needed_bytes there is nothing of use: what writers have written since the turn they are of,
 *     or what gstore_areas_trim() was told.
 *
 * The tokens' lock comes before the other one.
 */
#ifndef GSTORE_AREA_STATE_H
#define GSTORE_AREA_STATE_H

#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "postgres/area.h"

#define GSTORE_CONNECTIONS_MAX 16u

/* A connection to the keeper: it can have so many objects open. */
typedef struct connection {
    gvm_keeper *keeper;
    uint32_t open;
} connection;

typedef struct gstore_area {
    gstore_store_name name; /* turn: of its latest writer */
    uint16_t column;
    uint8_t part;
    bool large;         /* its chunks */
    _Atomic bool ended; /* a token of it */
    connection *connection;
    gvm_object *object;
    uint64_t bytes; /* committed */
    uint64_t needed_bytes;
    uint32_t refs;
    bool dropped, busy;
    bool trim;                      /* it is to give back what it does not need */
    struct gstore_area *next_found; /* of a sweep, which needs no memory so: what it did not find would stay for ever */
} area;

struct gstore_areas {
    char path[108];
    connection connections[GSTORE_CONNECTIONS_MAX]; /* the first one for all that is not an area */
    _Atomic uint32_t connection_count; /* under the lock; gstore_areas_sever() looks without it */
    pthread_mutex_t lock; /* areas, connections; no driver or keeper call but connect and create under it */
    pthread_cond_t not_busy;     /* an area */
    void *tree;                  /* tsearch(3) */
    pthread_mutex_t tokens_lock; /* the keeper is called under it */
    struct gstore_linked_token *tokens;
    uint32_t link_mode;
    _Atomic bool stop, trims_left;
};

/* ---- area.c */

extern const char *const gstore_part_names[];

int gstore_areas_compare(const void *left, const void *right);
uint64_t gstore_area_chunk_bytes(const area *a);

/* Gives back a reference. */
void gstore_area_let_go(gstore_areas *s, area *a);

/* Like gstore_area_hold() of an area that the caller has a reference to, which stays its own. */
gvm_status gstore_area_acquire(const area *a, gvm_lease *lease);

void gstore_area_set_bytes(gstore_areas *s, area *a, uint64_t bytes);

/* Is the area with small chunks if it is made now for so many bytes? */
bool gstore_area_fits_small(uint64_t needed);

/* Puts an area with large chunks or small ones in the place of that held, which the caller still holds: *out, with a
 * reference. The caller is the only one that changes the area. */
gvm_status gstore_area_move(gstore_areas *s, const gstore_hold *from, bool large, uint64_t needed,
                            CUstream stream, area **out);

/* Once for each node of a walk, in the tree's order. */
static inline bool gstore_is_in_order(VISIT visit)
{
    return visit == postorder || visit == leaf;
}

static inline int gstore_compare_stores(const gstore_store_name *a, const gstore_store_name *b)
{
    return (a->store > b->store) - (a->store < b->store);
}

/* ---- link.c */

/* An area has another object: its links go there, and so do those who open it by a token from now on. The tokens'
 * lock is held. */
void gstore_areas_relink(gstore_areas *s, const area *a);

/* Of a store that goes; NULL: of all. */
void gstore_areas_forget_tokens(gstore_areas *s, const gstore_store_name *name);

#endif
