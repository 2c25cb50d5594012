/*
 * postgres/connector.h - connections to the keeper, restricted ones as a rule, for processes that the spawner starts.
 *
 * A keeper that is stopped, or has too much to do, may keep a connection waiting for GSTORE_KEEPER_WAIT_S. So they are made by a
 * thread of their own, one at a time, and the spawner's thread, which serves all backends, waits for none.
 */
#ifndef GSTORE_CONNECTOR_H
#define GSTORE_CONNECTOR_H

#include <stdint.h>

#define GSTORE_KEEPER_WAIT_S 10

typedef struct gstore_connector gstore_connector;

/* keeper: path of its socket; it is copied. 0, or an errno. */
extern int gstore_connector_start(const char *keeper, gstore_connector **out);

/* Waits for a connection that is being made, which takes GSTORE_KEEPER_WAIT_S at most for each of its steps. NULL is ignored. */
extern void gstore_connector_stop(gstore_connector *connector);

/* A file descriptor that can be read when there is something new for gstore_connector_take(), until the event is cleared. */
extern int	gstore_connector_event(const gstore_connector *connector);
extern void gstore_connector_clear(const gstore_connector *connector);

/*
 * A connection, which becomes the caller's. EINPROGRESS: it is being made, the event says when; another errno: none could be
 * made at since_ns (gstore_now_ns()) or later.
 */
extern int gstore_connector_take(gstore_connector *connector, int64_t since_ns, int *out);

/* One that is not restricted, and has not been greeted: that needs no waiting. 0, or an errno. */
extern int gstore_connector_connect(const gstore_connector *connector, int *out);

#endif
