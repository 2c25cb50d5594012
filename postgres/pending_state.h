/*
 * postgres/pending_state.h - what the files share that pending.h is implemented by.
 *
 *   pending.c          changes, and what scans of the same transaction see
 *   pending_compact.c  rows that are alive, written to a new store
 *   pending_end.c      ends of transactions and subtransactions
 */
#ifndef GSTORE_PENDING_STATE_H
#define GSTORE_PENDING_STATE_H

#include "postgres/pending.h"

/* The rows from this one on were made by this command. */
typedef struct command_mark
{
	CommandId command;
	uint64	  rows;
} command_mark;

/*
 * The deletions from this one on were made at this command, by the statement that began at that one: the
 * commands of triggers and functions within a statement move the transaction's on.
 */
typedef struct deletion_mark
{
	CommandId command, statement;
	uint64	  deletions;
} deletion_mark;

/* What a subtransaction goes back to. */
typedef struct save
{
	struct save *outer;
	int			 level;
	gstore_view	 state; /* columns are a copy of its own */
	bool		 own_store;
	bool		 replaced, retyped;
	CommandId	 replaced_command;
	uint64		 base_rows;
	int			 mark_count, first_mark;
	uint64		 deletion_count, first_deletion;
	int			 deletion_mark_count;
	uint64		 changes;
} save;

typedef struct made_store
{
	dsa_pointer store;
	int			level; /* of the subtransaction that made it, and is not over */
} made_store;

struct gstore_pending
{
	gstore_pending *next;
	Oid				relation;
	int				device;
	bool			arrow;	 /* the table's format */
	int				level;	 /* of the subtransaction that made this, and has the lock */
	MemoryContext	context; /* of everything that is here */
	TupleDesc		desc;
	gstore_view		state;	   /* with our changes */
	bool			own_store; /* state.store was made by us, and is referenced by us */
	bool			replaced;  /* the committed content does not count any more */
	CommandId		replaced_command, first_replaced_command;
	bool retyped; /* state.columns has the table's types, which may not be those of the committed version */
	uint64		   base_rows; /* ours come after them */
	uint64		   changes;	  /* rows that statements inserted, updated and deleted */
	bool		   versioned; /* a version was added for it */
	bool		   describe;  /* the table may look different since the last statement */
	uint64		   writer_number;
	bool		   wrote;		/* rows, perhaps */
	bool		   left_memory; /* rows were undone, or written anew */
	gstore_writer *writer;
	command_mark  *marks;
	int			   mark_count, mark_capacity, first_mark;
	/* Row numbers, in the order of commands; from the first on: of state.store. */
	uint64		  *deletions;
	uint64		   deletion_count, deletion_capacity, first_deletion;
	deletion_mark *deletion_marks;
	int			   deletion_mark_count, deletion_mark_capacity;
	gstore_rowset *deleted; /* the deletions from the first on; NULL: there was none yet */
	made_store	  *stores;	/* all that we made */
	int			   store_count;
	save		  *saves;
};

/* Of this transaction; their memory goes with it. */
extern gstore_pending *gstore_pendings;
extern void			   gstore_pendings_forget(void);

/* The table has been altered since: what is staged goes out in the old form. */
extern void gstore_pending_follow(gstore_pending *pending, Relation relation);

/* Rows that are only staged go; those of another store have another writer. */
extern void gstore_pending_end_writer(gstore_pending *pending);

/*
 * Writes the rows anew, if so many of them are dead and there is memory for a second store: in a subtransaction, so that a
 * failure leaves the table as it is.
 */
extern void gstore_pending_compact(gstore_pending *pending);

#endif
