/*
 * postgres/call.h - tables as arguments of functions that run in GPU workers: what the extension plcuda needs of this library.
 *
 * It is found by find_rendezvous_variable(GSTORE_CALL_VARIABLE), which is NULL where the library is not in
 * shared_preload_libraries.
 */
#ifndef GSTORE_CALL_H
#define GSTORE_CALL_H

#include "postgres.h"

#define GSTORE_CALL_VARIABLE "gstore_fdw call"
#define GSTORE_CALL_VERSION	 2

/* Rows as the active snapshot sees them; all is palloc'd. */
typedef struct gstore_call_table
{
	char		*token; /* for a worker of this server's user; NULL: there is no row */
	uint64		 rows;
	const uint8 *dead; /* bitmap, 1: a row that is not seen; NULL: none is */
	uint64		 dead_bytes;
	/* On top of it, one on the device: at this offset in what the token's link "0.deleted" leads to. 0 bytes: there is none. */
	uint64 deleted_at, deleted_bytes;
} gstore_call_table;

typedef struct gstore_call_api
{
	uint32 version;
	/*
	 * Locks the table as a SELECT does. ERROR if the user may not SELECT from it. The token is good for a call that begins
	 * now: it ends with the transaction, or another call, if it has rows that are not committed.
	 */
	void (*open_table)(Oid relation, gstore_call_table *out);
	/* Until workers can be started, or ERROR. */
	void (*wait_ready)(void);
} gstore_call_api;

extern void gstore_call_init(void);

#endif
