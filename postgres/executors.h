/*
 * postgres/executors.h - the executors of queries (query/executor.c) that the spawner has started, and how backends' connections
 * reach them.
 *
 * The spawner's thread alone calls these. A process that does not send a sign of life for GSTORE_SPAWN_HANG_MS is killed.
 */
#ifndef GSTORE_EXECUTORS_H
#define GSTORE_EXECUTORS_H

#include <poll.h>
#include <stdbool.h>

#include "postgres/connector.h"
#include "postgres/spawn_process.h"
#include "postgres/spawner.h"

#define GSTORE_EXECUTORS_POLLED (2 * GSTORE_EXECUTORS_MAX)

typedef struct gstore_executor
{
	int32_t		   device;
	int			   control;		/* -1: it is being killed */
	gstore_process process;		/* its fd is -1: there is none */
	int64_t		   deadline_ns; /* for the next sign of life */
} gstore_executor;

typedef struct gstore_executors
{
	const char		 *program; /* path; NULL: there is none */
	gstore_connector *connector;
	gstore_executor	  all[GSTORE_EXECUTORS_MAX];
} gstore_executors;

extern void
gstore_executors_init(gstore_executors *executors, const char *program, gstore_connector *connector);

/*
 * Passes a connection and its memory file on, which stay the caller's, to the executor of the request's device. 0, or an errno:
 * EINPROGRESS, where one is to be started, and the connector has no connection for it yet (gstore_connector_take(), since_ns).
 */
extern int gstore_executors_pass(gstore_executors *executors, const gstore_spawn_request *request,
								 int connection, int memory, int64_t since_ns);

/* Fills in GSTORE_EXECUTORS_POLLED of them. Whether there are deadlines to look at. */
extern bool gstore_executors_prepare(const gstore_executors *executors, struct pollfd *polled);
extern void gstore_executors_look(gstore_executors *executors, const struct pollfd *polled);

/* Kills all, and does not wait for their memory. */
extern void gstore_executors_end(gstore_executors *executors);

#endif
