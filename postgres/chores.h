/* postgres/chores.h - what the GPU memory keeper does later, on a thread of its own: dropping
 * what no table has any more, ending tokens, and looking at the keeper once a second.
 *
 * Each of these asks the keeper, which may take its time, or be stopped. The server's process must
 * not wait meanwhile: whole servers wait for each of their processes (DROP DATABASE does).
 *
 * It knows nothing of PostgreSQL, like the service.
 */
#ifndef GSTORE_CHORES_H
#define GSTORE_CHORES_H

#include <stdbool.h>

#include "postgres/service.h"

typedef struct gstore_chores gstore_chores;

/* Starts the thread. wake(latch) is called when there is news: a report, or the keeper is lost. */
gvm_status gstore_chores_start(gstore_service *service, void (*wake)(void *latch), void *latch,
                               gstore_chores **out);

/* Ends the thread, after the chores that were given. NULL is ignored. */
void gstore_chores_stop(gstore_chores *chores);

/* Gives a chore: a store, or a copy (copies.h), is to be dropped, or a token ends. False: out of memory. */
bool gstore_chores_drop_store(gstore_chores *chores, const gstore_store_name *name);
bool gstore_chores_drop_copy(gstore_chores *chores, uint64_t copy);
bool gstore_chores_unlink(gstore_chores *chores, const uint8_t secret[GSTORE_SECRET_BYTES]);
/* A store is to be trimmed (area.h), after the chores above, and by the latest call if there are several before it is
 * done. Out of memory it is not. */
void gstore_chores_trim_store(gstore_chores *chores, const gstore_store_name *name,
                              const gstore_extent *extents, uint32_t count);

/* The latest report, if it was not taken yet, and what stores had; the caller frees *sizes. */
bool gstore_chores_take_report(gstore_chores *chores, gstore_report *out, gstore_store_size **sizes,
                               uint32_t *size_count);

#endif
