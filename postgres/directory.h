/*
 * postgres/directory.h - the directory: every table, its versions and stores, and which of them a snapshot sees.
 *
 * It is in the memory of shared.h, under gstore->lock, which these functions take unless they say that it is held.
 */
#ifndef GSTORE_DIRECTORY_H
#define GSTORE_DIRECTORY_H

#include "postgres/shared.h"

/* So many tables can have rows, or have lost them: by the setting, or as many as had some when the server started. */
extern int gstore_tables_max;

/* Bytes of shared memory; lost: so many tables had rows when the server's last run ended. */
extern Size gstore_directory_size(int lost);
/* Makes it, or attaches to it, while shared memory is set up. */
extern void gstore_directory_attach(void);

/* The table's entry; NULL: there is none; create: there are too many. The lock is held. */
extern gstore_table *gstore_find_table(Oid relation, bool create);
/* The same of any database. */
extern gstore_table *gstore_find_table_of(gstore_table_key key, bool create);
/* Then hash_seq_search() returns each of all databases. The lock is held. */
extern void gstore_begin_tables(HASH_SEQ_STATUS *scan);
/* The lock is held exclusively. */
extern void gstore_forget_versions(gstore_table *table);
/* The catalog of this database has no such table any more: if it is lost, its entry goes. */
extern void gstore_forget_lost(Oid relation);

/* ---- versions as a process sees them */

typedef struct gstore_view
{
	bool			  empty;	/* no store */
	bool			  lost;		/* empty, because the rows were lost */
	bool			  outdated; /* the same, after the snapshot was taken: it does not see that */
	bool			  arrow;	/* the store's format */
	dsa_pointer		  store;
	gstore_store_name name;
	uint64			  rows, live_rows;
	uint32			  revision;
	TransactionId	  xid; /* whose version it is */
	int				  column_count;
	gstore_column	 *columns;
	uint64			  dead_bytes;
	uint8			 *dead; /* bitmap, 1: not there for this view; NULL: all are. Palloc'd */
	/* On the device is the bitmap of rows deleted for all who see the version (deleted.h); 0 bytes: it is not. */
	uint64 deleted_at, deleted_bytes;
} gstore_view;

/* The version that the view is of, known by its number and its store; NULL: it is forgotten. The lock is held. */
extern gstore_version *gstore_find_version(Oid relation, const gstore_view *view);

/* How a view has deleted rows. */
typedef enum gstore_dead
{
	GSTORE_DEAD_NOT_WANTED,
	GSTORE_DEAD_HERE,	  /* view->dead has all */
	GSTORE_DEAD_ANYWHERE, /* or they are on the device, if the version has its bitmap there */
} gstore_dead;

/*
 * The newest version that the snapshot sees; snapshot NULL: the newest committed one. Never fails for want of a table:
 * that is an empty view.
 */
extern void gstore_look(Oid relation, Snapshot snapshot, gstore_dead dead, gstore_view *view);

/* The transactions whose versions the snapshot does not see, committed or in progress; palloc'd. */
extern int gstore_newer_versions(Oid relation, Snapshot snapshot, TransactionId **xids);

/* Adds a bit, or those of a set; the bitmap grows. */
extern void gstore_view_delete(gstore_view *view, uint64 row);
extern void gstore_view_delete_all(gstore_view *view, const gstore_rowset *rows);

static inline bool
gstore_view_is_dead(const gstore_view *view, uint64 row)
{
	return view->dead != NULL && row / 8 < view->dead_bytes &&
		(view->dead[row / 8] >> (row % 8) & 1) != 0;
}

/* A new store for the table, referenced by the caller's transaction; arrow: its format. */
extern dsa_pointer gstore_new_store(Oid relation, int device, bool arrow, gstore_store_name *name);
extern void		   gstore_release_store(dsa_pointer store);
/* For the worker, of one that is dead. The lock is held exclusively. */
extern void gstore_free_store(dsa_pointer store);

/*
 * Adds a version of the current transaction; the version takes a reference of its own to the store.
 * deletes: the rows that it deleted; NULL: none. changes: how many it inserted, updated and deleted. owner: the table's, whose
 * share is counted; InvalidOid: the table was dropped. ERROR (53400) if that has too much, or too many tables.
 */
extern void gstore_add_version(Oid relation, Oid owner, const gstore_view *state,
							   const gstore_rowset *deletes, uint64 changes,
							   bool *recorded); /* false: gstore_record_tables() is to be called */
/* Takes away what the transaction added to the table. */
extern void gstore_remove_version(Oid relation, TransactionId xid);

/* For the worker: forgets versions of a table that no snapshot needs; those before it, and the table itself if nothing is left. */
extern void gstore_forget_old_versions(gstore_table_key key, TransactionId horizon);
extern void gstore_forget_ended_copies(TransactionId horizon);
/* A database is gone: the worker forgets its tables. Cannot fail. */
extern void gstore_forget_database(Oid database);

/* ---- copies of versions */

/*
 * A record of a copy that is being made: the caller hangs it on a version or releases it. ERROR (53400) if copies of the session's
 * user would have more than gstore_fdw.copy_memory; they count until they are freed. replaced: all copies of this table's
 * versions end with it, and do not count for it; InvalidOid: none do.
 */
extern dsa_pointer gstore_new_copy(Oid replaced, uint64 *id, uint64 definition, uint64 bytes);
/* The record of the version's copy. False: the version has none. */
extern bool gstore_get_copy(Oid relation, const gstore_view *view, gstore_copy *out);
/*
 * From here on the copy lives as long as the version. privileges: of the table now, which the caller keeps from changes
 * (privileges.h). False: the version is gone, or has one.
 */
extern bool gstore_hang_copy(Oid relation, const gstore_view *view, dsa_pointer copy,
							 uint32 privileges, const uint8 handle[GSTORE_HANDLE_BYTES]);
extern void gstore_release_copy(dsa_pointer copy);
/* For the worker, of one that is in no other list any more. The lock is held exclusively. */
extern void gstore_free_copy(dsa_pointer copy);
/* Takes the copies off a table's versions; they are freed when every transaction sees the end of this one. */
extern void gstore_end_copies(Oid relation);
/*
 * The same for the tables of this database whose privileges are others than when the copy was made, or that
 * are gone; *accept: it is noted instead.
 */
extern void
gstore_follow_copies(bool (*privileges_of)(Oid relation, uint32 *privileges, bool *accept));

/* ---- for views */

typedef struct gstore_version_info
{
	gstore_table_key key;
	uint32			 revision;
	TransactionId	 xmin, xmax; /* xmax: of the version that follows, or 0 */
	int32			 device;
	gstore_view		 view; /* without dead rows; lost: it is not a version, the rows were lost */
	uint64			 copy_bytes; /* of a copy of it; 0: there is none */
	uint64			 copy_definition;
	bool   sized; /* it is the newest one of its store, of which committed_bytes are known */
	uint64 committed_bytes;
} gstore_version_info;

/* Tables that have versions, or are lost, of all databases, for which wanted() is true (NULL: all); palloc'd. It is called with the lock held. */
extern int gstore_list_tables(bool (*wanted)(const gstore_table *), gstore_table_key **out);
/* Every version of one, palloc'd. */
extern int gstore_list_versions(gstore_table_key key, gstore_version_info **out);

#endif
