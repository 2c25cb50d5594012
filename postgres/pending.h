/*
 * postgres/pending.h - what the current transaction has changed, until it commits.
 *
 * One gstore_pending for each table written, from its first change to the end of the transaction. The
 * table's SHARE UPDATE EXCLUSIVE lock (or a stronger one) is held all that time.
 */
#ifndef GSTORE_PENDING_H
#define GSTORE_PENDING_H

#include "postgres/store.h"

typedef struct gstore_pending gstore_pending;

/* NULL: the transaction has not changed the table. */
extern gstore_pending *gstore_pending_find(Oid relation);
/* Makes one if there is none; the lock is held. */
extern gstore_pending *gstore_pending_begin(Relation relation);
/*
 * Takes the writers' lock for the subtransaction, beside that lock or a stronger one, which the caller has. A lock of a portal is released when the
 * portal fails, also within an inner subtransaction, whose end leaves what was changed before.
 */
extern void gstore_pending_keep_lock(Relation relation);

extern void gstore_insert(gstore_pending *pending, TupleTableSlot *slot);
/*
 * What rows are appended to, for a caller that writes columns itself and then moves the view's numbers on: rows,
 * live_rows, and those of its columns. They are rows of the current command.
 */
extern gstore_view *gstore_append_begin(gstore_pending *pending);
/*
 * A row that a scan found; statement: the id of the command that the statement began with. False: this
 * transaction deleted it already.
 */
extern bool gstore_delete(gstore_pending *pending, uint64 row, CommandId statement);
/*
 * Whether one that this transaction has deleted was not deleted by the statement itself, but by a command
 * that ran within it: of a trigger, or of a function.
 */
extern bool gstore_was_deleted_within(const gstore_pending *pending, uint64 row, CommandId statement);
/* One more row was inserted, updated or deleted by a statement: what ANALYZE is to know of. */
extern void gstore_count_change(gstore_pending *pending);
extern void gstore_count_changes(gstore_pending *pending, uint64 rows);
/* A further store, for the caller's own use until the transaction ends, or until it is released. arrow: its format. */
extern dsa_pointer gstore_make_scratch(gstore_pending *pending, bool arrow, gstore_store_name *name);
/* Its memory goes, if the transaction has made it and has no other use for it. No write to it is under way. */
extern void gstore_pending_release_store(gstore_pending *pending, dsa_pointer store);
/* Whether the store is one that this transaction has made. */
extern bool gstore_pending_has_made(const gstore_pending *pending, dsa_pointer store);
extern void gstore_truncate(gstore_pending *pending);
/* The same, of rows that the caller still reads. Returns the store that has them, to be released then. */
extern dsa_pointer gstore_replace(gstore_pending *pending);

/* Everything as it is with the changes. */
extern const gstore_view *gstore_pending_state(const gstore_pending *pending);

/*
 * The rows of this transaction and the store they are in, after writing out what is staged: those
 * that commands before `before` made are [*first, *limit). Marks what those deleted in view, if that is
 * of the same store.
 */
extern const gstore_view *
gstore_pending_rows(gstore_pending *pending, CommandId before, uint64 *first, uint64 *limit);
extern void
gstore_pending_mark_deleted(const gstore_pending *pending, CommandId before, gstore_view *view);
/* Whether the transaction has deleted a row that a scan of it found, by now. */
extern bool gstore_pending_has_deleted(Oid relation, uint64 row);
/* The transaction replaced the whole content (TRUNCATE): what was committed is not seen. */
extern bool gstore_pending_replaced(const gstore_pending *pending, CommandId before);
/* The table's columns have other types now, with the same values (ALTER): the commit adds a version that says so. */
extern void gstore_pending_retype(Relation relation);
extern void gstore_pending_show_types(const gstore_pending *pending, gstore_view *view);
/* It was replaced since, after changes that are seen: what these were is not known any more. */
extern bool gstore_pending_has_forgotten(const gstore_pending *pending, CommandId before);

/*
 * Writes the rows that are alive to a new store, and returns how many rows, deleted ones, are gone by
 * that. Readers keep the old store as long as their snapshots need it. Takes the writer's lock. At REPEATABLE READ and above
 * it fails (40001) if more is committed than the active snapshot sees.
 */
extern uint64 gstore_compact(Relation relation);

/* The table is being dropped, and was emptied for that: where versions of this transaction were added, its own is, too. */
extern void gstore_pending_dropped(gstore_pending *pending);

/* What an ALTER asks of a table's rows. */
typedef struct gstore_rules
{
	/* Columns (attribute numbers) that get their defaults, which writes all rows anew. */
	Bitmapset *added;
	Bitmapset *not_null; /* columns that may have no NULL */
	List	  *checks;	 /* names of CHECKs that rows have to pass */
	bool partition;		 /* they must be within the bounds of the partition that the table is now */
} gstore_rules;

/* A lock that excludes writers is held. */
extern void gstore_rework(Relation relation, const gstore_rules *rules); /* rework.c */

/* Takes the writers' lock, for one who has the table open for writing. */
extern gstore_pending *gstore_begin_writing(Relation relation); /* modify.c */

extern void gstore_pending_init(void); /* the callbacks */

#endif
