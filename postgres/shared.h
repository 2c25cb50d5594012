/*
 * postgres/shared.h - what all processes of the server share: the directory of tables and their
 * versions, the windows, the keeper's state.
 *
 * docs/design/gstore.md explains stores, versions and the horizon. Everything here that points into
 * dynamic shared memory is read and changed under the directory's lock.
 */
#ifndef GSTORE_SHARED_H
#define GSTORE_SHARED_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/hsearch.h"
#include "utils/snapshot.h"

#include "postgres/column.h"
#include "postgres/rowset.h"
#include "postgres/service.h"
#include "postgres/settings.h"

/* ---- the directory */

/* A storage generation. In dynamic shared memory. */
typedef struct gstore_store
{
	gstore_store_name name;
	bool			  arrow;		  /* its format: 'arrow', not 'pgstrom' */
	uint32			  refs;			  /* versions, transactions */
	dsa_pointer		  previous, next; /* of all stores */
	dsa_pointer		  next_dead;
	dsa_pointer		  dead_rows;  /* bitmap of rows that no snapshot sees any more; may be absent */
	uint64			  dead_bytes; /* its size */
	uint64			  dead_count;
	bool			  sized;
	uint64			  committed_bytes; /* sized: what it has of the keeper, as of the last report */
	uint64			  trim_writer; /* as gstore_ask_trim() has it; 0: nothing is to be given back */
	uint64			  manifest_end; /* where the next one goes; see export.c */
	uint64			  manifest_sum, manifest_at, manifest_bytes; /* the latest one */
} gstore_store;

/* A dense copy of one version, in device memory under a CUDA handle. In dynamic shared memory. */
typedef struct gstore_copy
{
	dsa_pointer	  next_dead, next; /* of all that are not freed */
	uint64		  id;
	Oid			  owner;	  /* the session's user when it was made */
	uint32		  epoch;	  /* of the keeper in which it was made */
	uint32		  privileges; /* of the table, when it was made */
	TransactionId ended; /* by this transaction it was revoked: who sees that does not know it */
	uint64		  definition; /* of the columns that it shows (gstore_dense_definition()) */
	uint64		  bytes;
	uint8		  handle[GSTORE_HANDLE_BYTES];
} gstore_copy;

#define GSTORE_TABLES_A_FREE_ONE 3 /* so many times as many as are free an owner may have */

/* ---- tokens (token.h) */

#define GSTORE_NO_WRITER			 1 /* no writer has it */
#define GSTORE_TOKENS_MAX			 4096
#define GSTORE_TOKENS_OF_A_TABLE_MAX 64 /* of each kind, of a user */
#define GSTORE_TOKENS_A_FREE_ONE	 3	/* so many times as many as are free a user may have */
#define GSTORE_LOADS_OF_A_ROLE_MAX	 64

typedef enum gstore_token_state
{
	GSTORE_TOKEN_FREE,
	GSTORE_TOKEN_MAKING,
	GSTORE_TOKEN_LIVE,
	GSTORE_TOKEN_OVER,
	GSTORE_TOKEN_ENDING, /* of gstore_load_begin(): the worker has it ended; its memory is not free yet */
} gstore_token_state;

typedef struct gstore_token
{
	gstore_token_state state;
	uint8			   secret[GSTORE_SECRET_BYTES];
	gstore_store_name  name;
	Oid				   role; /* that made it; InvalidOid: it is for queries of all roles */
	Oid	   owner;		 /* the session's user, of whose share it is; InvalidOid: that of queries */
	uint32 privileges;	 /* of the table, when it was made */
	uint64 sum;			 /* of the manifest */
	uint64 manifest_end; /* where the link to the store's manifests ends */
	uint64 deleted_end;	 /* and that to its bitmaps of deleted rows; 0: there is none */
	uint64 number;		 /* they rise */
	int64  expires_ns;	 /* CLOCK_MONOTONIC */
	/* The process in whose transaction it was made; 0: that has ended, or others have it, too. */
	pid_t			 maker;
	SubTransactionId made_in; /* if there is a maker */
	/* Of gstore_load_begin(): name is that of a store of no table. */
	uint64 staged_bytes; /* 0: it is one of gstore_export(), or of a call */
	bool   for_call;	 /* for a worker of a session (call.h), or for queries: no user has it */
	uint64 writer_number; /* for_call: it has rows of this writer that are not committed; 0: it has none */
	pid_t session;		  /* it ends with this process */
	/* The process whose transaction has loaded the rows and not ended; 0: none has. */
	pid_t			 loader;
	SubTransactionId loaded_in; /* if there is a loader */
	SubTransactionId reading_in; /* the memory stays until this one is aborted; InvalidSubTransactionId: no load is under way */
} gstore_token;

/* What one transaction left of a table. In dynamic shared memory. */
typedef struct gstore_version
{
	dsa_pointer	  older;
	TransactionId xid;
	dsa_pointer	  store; /* of gstore_store; InvalidDsaPointer: no rows */
	uint64		  rows;	 /* in the store, dead ones too */
	uint64		  live_rows;
	dsa_pointer	  deletes; /* what this transaction deleted: */
	uint64		  delete_count;
	uint64		  delete_bytes;				 /* of a bitmap; 0: it is a list of uint64, ascending */
	uint64		  changes;					 /* rows that this transaction changed */
	uint64		  deleted_at, deleted_bytes; /* the bitmap of deleted.h; 0 bytes: there is none */
	dsa_pointer copy; /* of gstore_copy: a dense copy of it that programs can open; may be absent */
	uint32		revision; /* counts a table's versions */
	uint32		column_count;
	gstore_column columns[FLEXIBLE_ARRAY_MEMBER];
} gstore_version;

typedef struct gstore_table_key
{
	Oid database, relation;
} gstore_table_key;

typedef struct gstore_table
{
	gstore_table_key key;
	dsa_pointer		 newest; /* of gstore_version */
	uint32			 revisions;
	Oid	   owner; /* at the latest commit; InvalidOid: there was none since the server's start */
	bool   gone;  /* with its database: no snapshot needs a version */
	uint64 version_bytes; /* of its versions, as they count for the owner */
	int64  merge_ns; /* deletions become a bitmap of the store no earlier, on CLOCK_MONOTONIC */
	/* Of the loss of all versions there were; a snapshot that does not see it is older. */
	TransactionId lost_xid;
	bool		  lost; /* and with it rows, which no newer version replaces for all snapshots */
	bool		  recorded; /* the file of lost.c has it */
	/* If it is lost, and has the option "source" (reload.h): */
	int64 reload_at;  /* the next try, on CLOCK_MONOTONIC; 0: at once */
	bool  reload_due; /* the next loader in the database tries it */
	int	  reload_tries;
	int	  reload_error; /* SQLSTATE of the last one; 0: none, or it has not ended */
	bool  reload_waits; /* for the load of another table of its owner's */
	/* For autoanalyze.h: */
	uint64 changes;		  /* rows changed since the last ANALYZE */
	double analyzed_rows; /* rows then; pg_class.reltuples, as far as it is known */
	int64  analyze_at;	  /* not tried before, on CLOCK_MONOTONIC */
} gstore_table;

/* A process that works through tables (background.h). */
typedef struct gstore_working
{
	pid_t pid; /* 0: there is none */
	Oid	  database;
	Oid	  relation, owner; /* of the table that it is at; InvalidOid: it is at none */
	bool  awaited;		   /* that has kept another process from a table of this owner's */
} gstore_working;

#define GSTORE_WORKING_MOST 4 /* of a kind */

typedef struct gstore_shared
{
	LWLock			 *lock;			/* of the directory: tables, versions, stores */
	LWLock			 *record_lock;	/* of the file of lost.c; taken before the other one */
	bool			  record_stale; /* it has a table that the directory has not */
	Latch			 *worker_latch; /* NULL: none runs */
	pid_t			  worker_pid;
	uint32			  epoch; /* 0: no keeper yet */
	bool			  ready;
	int32			  device_count;
	bool			  software;		/* the keeper's device is the software GPU */
	char			  path[108];	/* of the keeper's socket */
	uint32			  owner;		/* of all areas there; known once there is a token */
	char			  problem[400]; /* why it is not ready */
	bool			  no_driver;	/* the reason is that no driver could be loaded */
	uint32			  failed_starts;
	pg_atomic_uint64  next_store, next_writer_number;
	dsa_pointer		  stores;	   /* all of them */
	dsa_pointer		  dead_stores; /* to be dropped by the worker */
	dsa_pointer		  copies;	   /* all that are not freed, also those that are being made */
	dsa_pointer		  dead_copies;
	uint32			  new_versions;	 /* added since old ones were last forgotten */
	uint64			  version_bytes; /* of all tables */
	dsa_pointer		  ended_copies;	 /* until no transaction knows them */
	uint64			  token_numbers;
	gstore_token	  tokens[GSTORE_TOKENS_MAX];
	gstore_report	  report; /* of the last second */
	ConditionVariable ready_changed;
	ConditionVariable reloaded; /* or failed to */
	gstore_working	  loaders[GSTORE_WORKING_MOST], analyzers[GSTORE_WORKING_MOST];

	slock_t			  windows_lock;
	uint32			  free_count;
	uint32			  lent_count; /* windows of writes that were begun (window.h) */
	uint16			  free[GSTORE_WINDOWS_MAX];
	ConditionVariable window_freed;
	gstore_queue	  queue;
	gstore_window	  windows[FLEXIBLE_ARRAY_MEMBER];
} gstore_shared;

extern gstore_shared *gstore;

#define GSTORE_TRANCHE "gstore_fdw" /* of GSTORE_LOCKS locks */
#define GSTORE_LOCKS   3

extern Size gstore_shared_size(void);
/* Makes it, or attaches to it, while shared memory is set up. False: it was not there. */
extern bool gstore_shared_attach(void);

extern uint8	*gstore_window_bytes(uint32 window);
extern dsa_area *gstore_dsa(void);			   /* of this process */
extern void		*gstore_at(dsa_pointer place); /* NULL: the pointer is invalid */
extern void		 gstore_wake_worker(void);

/* What to do while the keeper is not ready. */
extern const char *gstore_keeper_hint(void);

#endif
