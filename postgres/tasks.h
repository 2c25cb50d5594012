/*
 * postgres/tasks.h - what the GPU memory keeper does later, on a thread of its own: dropping
 * what no table has any more, ending tokens, and looking at the keeper once a second.
 *
 * Each of these asks the keeper, which may take its time, or be stopped. The server's process must
 * not wait meanwhile: whole servers wait for each of their processes (DROP DATABASE does).
 *
 * It is independent of PostgreSQL, like the service.
 */
#ifndef GSTORE_TASKS_H
#define GSTORE_TASKS_H

#include <stdbool.h>

#include "postgres/service.h"

typedef struct gstore_tasks gstore_tasks;

/* Starts the thread. wake(latch) is called when there is a report or a dropped store to be taken, or the keeper is lost. */
gvm_status gstore_tasks_start(gstore_service *service, void (*wake)(void *latch), void *latch,
							  gstore_tasks **out);

/* Ends the thread, after the tasks that were given. NULL is ignored. */
void gstore_tasks_stop(gstore_tasks *tasks);

/* Gives a task: a store, or a copy (copies.h), is to be dropped, or a token ends. False: out of memory. */
bool gstore_tasks_drop_store(gstore_tasks *tasks, const gstore_store_name *name);
/* A store of no table that has been dropped: each once. False: there is none left. */
bool gstore_tasks_take_dropped(gstore_tasks *tasks, gstore_store_name *name);
bool gstore_tasks_drop_copy(gstore_tasks *tasks, uint64_t copy);
bool gstore_tasks_unlink(gstore_tasks *tasks, const uint8_t secret[GSTORE_SECRET_BYTES]);
/*
 * A store is to be trimmed (area.h), after the tasks above, and by the latest call if there are several before it is
 * done. Out of memory it is not.
 */
void gstore_tasks_trim_store(gstore_tasks *tasks, const gstore_store_name *name,
							 const gstore_extent *extents, uint32_t count);

/* The latest report, if it was not taken yet, and what stores had; the caller frees *sizes. */
bool gstore_tasks_take_report(gstore_tasks *tasks, gstore_report *out, gstore_store_size **sizes,
							  uint32_t *size_count);

#endif
