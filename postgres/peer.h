/*
 * postgres/peer.h - a process that the spawner starts or leads to (spawner.h), as a backend has it: the connection, and the
 * memory file that both have mapped.
 *
 * Compiled into gstore_fdw and plcuda. What the other process writes is copied, then checked, then used.
 */
#ifndef GSTORE_PEER_H
#define GSTORE_PEER_H

#include "postgres.h"

#include "postgres/spawner.h"

typedef struct gstore_peer
{
	const char *name;				/* for messages: "a GPU worker" */
	int			connection, memory; /* file descriptors; -1: none */
	uint8	   *bytes;				/* of the memory file, mapped */
	uint64		len;
	uint64 allocated; /* bytes at the start of the file that have memory; who gives some back lowers it */
} gstore_peer;

#define GSTORE_PEER_NONE(name) ((gstore_peer){(name), -1, -1, NULL, 0, 0})

/* Closes what there is. The process sees the end of the connection. */
extern void gstore_peer_close(gstore_peer *peer);

/* The same but for the memory file, with what is in it. */
extern void gstore_peer_disconnect(gstore_peer *peer);

/*
 * Makes the file, if there is none, which no process can make shorter; extends it to at least so many bytes,
 * and maps all of it: the other process may have made it longer. Memory for that many bytes is allocated here: a write to a page
 * that cannot be allocated would be a SIGBUS. What is returned says what could not be done ("extend"), and
 * errno why; NULL: it is done. A failure leaves what was made, for gstore_peer_close().
 */
extern const char *gstore_peer_try_map(gstore_peer *peer, uint64 bytes);
/* The same; a failure is an ERROR. */
extern void gstore_peer_map(gstore_peer *peer, uint64 bytes);

/*
 * Connects, and sends the request with the memory file. Where too many wait to be accepted it waits, until it is cancelled. False: errno says
 * why; EMFILE, that this server may open no more.
 */
extern bool gstore_peer_connect(gstore_peer *peer, gstore_spawn_kind kind, int device);

typedef enum gstore_peer_event
{
	GSTORE_PEER_NOTHING, /* nothing is there; the time has passed */
	GSTORE_PEER_ANSWER,
	GSTORE_PEER_ENDED, /* how is in `ended`; end 0: the connection was closed without saying */
} gstore_peer_event;

/* A message of that size that begins with that number is an answer. */
typedef struct gstore_peer_answer
{
	void			  *message;
	Size			   bytes;
	uint32			   magic;
	gstore_spawn_ended ended;
} gstore_peer_answer;

extern bool				 gstore_peer_send(const gstore_peer *peer, const void *message, Size bytes);
extern gstore_peer_event gstore_peer_receive(const gstore_peer *peer, gstore_peer_answer *answer);

/*
 * Waits for one of both, asking again and again for spin_us before it sleeps; deadline_ns of gstore_now_ns(), 0: none. ERROR at
 * a cancel.
 */
extern gstore_peer_event gstore_peer_await(const gstore_peer *peer, int64 deadline_ns, int spin_us,
										   gstore_peer_answer *answer);

/* ---- errors that the other process reports */

/* ERRCODE_EXTERNAL_ROUTINE_EXCEPTION, where the text is no SQLSTATE of an error. */
extern int gstore_peer_errcode(const char *sqlstate);
/* A character that was cut off at the end is removed; ? is in place of bytes that are not valid in the server's encoding. */
extern void gstore_make_printable(char *text);

#endif
