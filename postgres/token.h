/*
 * postgres/token.h - tokens: who knows one may open what of a store was exported, until the token ends.
 *
 * docs/design/gstore.md, "Tokens", says what they are and when they end. The list is in shared memory, under the
 * directory's lock; the names that lead to memory are the keeper's links, which the service makes and ends.
 */
#ifndef GSTORE_TOKEN_H
#define GSTORE_TOKEN_H

#include "postgres.h"

#include "utils/relcache.h"

#include "postgres/directory.h"
#include "postgres/window.h"

/* What tells the tokens of a store apart. */
typedef struct gstore_token_key
{
	uint64 sum;		   /* of the manifest */
	uint32 privileges; /* of the table, at this moment */
	bool   for_call;   /* for a worker of a session (call.h), or for queries */
	bool   for_query;  /* which those of all roles use */
	/* Rows that are not committed, for_call: of this writer. The token ends with the transaction. 0: all are committed. */
	uint64 writer_number;
} gstore_token_key;

/*
 * The secret of a token for the current user, of these areas of a store: the first is that of the manifests, the last may be
 * that of bitmaps of deleted rows. A token that the user has for the same is used again, and its lifetime begins anew; else a
 * new one is made. False: there is no room for one, or the share is used up (docs/design/gstore.md, "Tokens"), as *refused
 * says; if that is NULL, ERROR. For queries the "user" is all roles.
 */
extern bool gstore_token_make(Oid relation, const gstore_view *view, const gstore_token_key *key,
							  const gstore_piece *pieces, int count,
							  uint8 secret[GSTORE_SECRET_BYTES], gstore_answer *refused);
/* The same, if the user has one. False: there is none. */
extern bool
gstore_token_renew(const gstore_view *view, const gstore_token_key *key, const gstore_piece *pieces,
				   int count, uint8 secret[GSTORE_SECRET_BYTES]);

/*
 * The secret of a new token for the current user, with so many bytes that who knows it may write, at the store that its
 * name says, part STAGED. It ends with the session, too.
 */
extern void gstore_token_make_load(int device, uint64 bytes, uint8 secret[GSTORE_SECRET_BYTES]);
/*
 * The token of a text, which the current subtransaction is to load: the token ends when that is committed. ERROR if it is none,
 * another role's, or another transaction loads it. False: it has ended. Its memory stays until
 * gstore_token_end_reading(), or the end of the transaction.
 */
extern bool gstore_token_claim_load(const char *text, gstore_token *out);
extern void gstore_token_end_reading(const gstore_token *loaded);

/*
 * For the worker: takes one token that has expired, or was given up, off the list. A store that is of no table is the
 * token's, and is to be dropped.
 */
extern bool gstore_token_next_over(uint8 secret[GSTORE_SECRET_BYTES], gstore_store_name *name);

/*
 * A token of gstore_load_begin() that has ended counts for its role's limits until its store is gone: for the worker, the stores
 * that are left, and that one is gone.
 */
extern uint32 gstore_token_list_ending(gstore_store_name stores[GSTORE_TOKENS_MAX]);
extern void	  gstore_token_note_dropped(const gstore_store_name *name);

/* Forgets the tokens of a store, or of all (NULL), whose memory goes. The lock is held exclusively. */
extern void gstore_token_forget(const gstore_store_name *name);

/* The text. ERROR if it is too long for one. */
extern char *gstore_check_token(char *token);

/* For whom a token is. */
typedef enum gstore_export_kind
{
	GSTORE_EXPORT_USER, /* ERROR if the user may not SELECT from the table */
	GSTORE_EXPORT_CALL, /* the same, for a worker of a session: apart from those that users have */
	GSTORE_EXPORT_QUERY, /* for the executor of queries: the statement's rights were checked, of columns or views, too */
	GSTORE_EXPORT_FURTHER, /* the same, of a query that has no local plan any more: it waits for changes of privileges without a limit */
} gstore_export_kind;

/*
 * A token for rows of the open table, which the caller keeps locked; own: of a store that this transaction has made (export.c);
 * but for users' with the version's bitmap of deleted rows, if that is gstore_links_deleted(). A view with a writer's number has
 * rows that are not committed. NULL: there is no room for one, as *refused says; if that is NULL, ERROR.
 */
extern char *gstore_export_rows(Relation relation, const gstore_view *view, bool own,
								gstore_export_kind kind, gstore_answer *refused);

/* A smaller bitmap is sent with the call: to map an object of its own would take more memory. */
#define GSTORE_DELETED_LINK_LEAST (64 * 1024)

static inline bool
gstore_links_deleted(const gstore_view *view)
{
	return view->deleted_bytes >= GSTORE_DELETED_LINK_LEAST;
}

/*
 * The callback that looks at privileges that the transaction has changed. PostgreSQL calls those first that were registered last:
 * this one comes before gstore_pending_init(), so that what takes long of a commit is done before others are locked out.
 */
extern void gstore_token_follow_init(void);
extern void gstore_token_init(void); /* the other callbacks */
extern void gstore_export_init(void);

#endif
