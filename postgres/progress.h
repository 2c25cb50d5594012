/*
 * postgres/progress.h - how far long statements on tables in GPU memory are, for a view.
 *
 * Each backend has one place in shared memory. The outermost statement that asks gets it; those
 * that run inside (triggers) are not shown. It is cleared when that statement ends, or its
 * transaction or subtransaction is undone.
 */
#ifndef GSTORE_PROGRESS_H
#define GSTORE_PROGRESS_H

#include "postgres.h"

#include "port/atomics.h"

typedef enum gstore_progress_command
{
	GSTORE_NOTHING,
	GSTORE_INSERTING,
	GSTORE_COPYING,
	GSTORE_UPDATING,
	GSTORE_COMPACTING,
	GSTORE_EXPORTING,
	GSTORE_LOADING,
	GSTORE_ALTERING, /* rows are rewritten, or checked against constraints */
} gstore_progress_command;

extern Size gstore_progress_size(void);
extern void gstore_progress_attach(void *place, bool found); /* at server start */

/* owner: any address that is the statement's own. */
extern void gstore_progress_begin(gstore_progress_command command, Oid relation, const void *owner);
extern void gstore_progress_end(const void *owner);

/* Of a table that another statement is about: ignored. */
extern void gstore_progress_add(Oid relation, uint64 rows, uint64 bytes);

typedef struct gstore_progress_info
{
	int						pid;
	Oid						database, relation, user;
	gstore_progress_command command;
	int64					started; /* TimestampTz */
	uint64					rows, bytes;
} gstore_progress_info;

/* Those at work now, palloc'd. */
extern int gstore_list_progress(gstore_progress_info **out);

#endif
