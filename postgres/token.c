/*
 * See token.h.
 *
 *     FREE -> MAKING (gstore_token_make) -> LIVE -> FREE (its links are ended, or gone with their store)
 *             MAKING -> OVER (it failed) -> FREE (the worker)
 *             LIVE -> OVER (the transaction that made it was rolled back, and nobody else was given it; or its end
 *                     failed or was cancelled, when some of its links may be gone; or it has rows of a transaction that has
 *                     ended) -> FREE
 *
 * LIVE tokens that have expired are the worker's, too. A backend that ends one for another reason ends its links
 * first, and waits for that.
 *
 * Tokens of gstore_load_begin() are in the same list. Whatever ends one, it is OVER then, and the worker has the memory given
 * back.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/wait_event.h"

#include <gvmem/table.h>

#include "keeper/table/manifest.h"
#include "postgres/clock.h"
#include "postgres/commit_limit.h"
#include "postgres/privileges.h"
#include "postgres/table.h"
#include "postgres/token.h"

#define ENDED_WAIT_MS	3000 /* the worker tries once a second to free what a program kept */
#define ENDED_LOOK_MS	10
#define CALL_LIFETIME_S 300

PG_FUNCTION_INFO_V1(gstore_revoke);
PG_FUNCTION_INFO_V1(gstore_revoke_all);

/* ---- texts */

char *
gstore_check_token(char *token)
{
	if (strlen(token) >= GVM_TABLE_TOKEN_BYTES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the path of the keeper's socket is too long for a token"),
				 errdetail("With \"%s\" a token has %zu bytes, and it may have %d.", gstore->path,
						   strlen(token), GVM_TABLE_TOKEN_BYTES_MAX - 1),
				 errhint("Set gstore_fdw.keeper, or unix_socket_directories, to a shorter path and restart "
						 "the server.")));
	return token;
}

static int
digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: that is no token. */
static bool
take_secret(const char *token, const char *prefix, uint8 secret[GSTORE_SECRET_BYTES])
{
	static const char head[] = ":/gstore/";
	const char		 *at = strstr(token, head);

	if (strncmp(token, prefix, strlen(prefix)) != 0 || at == NULL)
		return false;
	at += strlen(head);
	for (int i = 0; i < GSTORE_SECRET_BYTES; i++, at += 2)
	{
		const int high = digit_of(at[0]);

		if (high < 0 || digit_of(at[1]) < 0)
			return false;
		secret[i] = (uint8) (high << 4 | digit_of(at[1]));
	}
	return *at == ':' || *at == '/';
}

/* ---- the list. The lock is held. */

static bool
is_of(const gstore_token *t, Oid relation)
{
	return t->state == GSTORE_TOKEN_LIVE && t->name.database == MyDatabaseId &&
		t->staged_bytes == 0 && (!OidIsValid(relation) || t->name.table == relation);
}

static gstore_token *
find_secret(const uint8 secret[GSTORE_SECRET_BYTES])
{
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
		if (gstore->tokens[i].state != GSTORE_TOKEN_FREE &&
			memcmp(gstore->tokens[i].secret, secret, GSTORE_SECRET_BYTES) == 0)
			return &gstore->tokens[i];
	return NULL;
}

/*
 * Its links reach as far as those that are wanted: the same manifest may have been written at another place, and a bitmap of
 * deleted rows since.
 */
static bool
is_same(const gstore_token *t, const gstore_token *wanted)
{
	return is_of(t, wanted->name.table) && t->name.store == wanted->name.store &&
		t->sum == wanted->sum && t->manifest_end >= wanted->manifest_end &&
		t->deleted_end >= wanted->deleted_end && t->role == wanted->role &&
		t->privileges == wanted->privileges && t->for_call == wanted->for_call &&
		t->writer_number == wanted->writer_number && t->expires_ns > gstore_now_ns();
}

/* A session's next query or call is often of the same table: the one that was found last is tried first. */
static gstore_token *
find_same(const gstore_token *wanted)
{
	static int last = 0;

	if (is_same(&gstore->tokens[last], wanted))
		return &gstore->tokens[last];
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
		if (is_same(&gstore->tokens[i], wanted))
			return &gstore->tokens[last = i];
	return NULL;
}

/* A worker attaches it soon, and the next call renews it. */
static int64
lifetime_end(const gstore_token *t)
{
	const int64 seconds = t->for_call ? Min(CALL_LIFETIME_S, gstore_token_lifetime_s)
									  : gstore_token_lifetime_s;

	return gstore_deadline_ns(seconds * 1000);
}

/* Links, or its memory, that a command which was left is yet to make would stay if it ended before. */
static bool
is_being_made(const gstore_token *t)
{
	return gstore_has_left_link(t->secret) ||
		(t->staged_bytes > 0 && gstore_has_left_change(&t->name));
}

bool
gstore_token_next_over(uint8 secret[GSTORE_SECRET_BYTES], gstore_store_name *name)
{
	const int64 now = gstore_now_ns();
	bool		found = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_TOKENS_MAX && !found; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		found = (t->state == GSTORE_TOKEN_OVER && !is_being_made(t)) ||
			(t->state == GSTORE_TOKEN_LIVE && t->expires_ns <= now);
		found &= t->reading_in == InvalidSubTransactionId;
		if (found)
		{
			memcpy(secret, t->secret, GSTORE_SECRET_BYTES);
			*name = t->name;
			t->state = t->staged_bytes > 0 && t->name.epoch == gstore->epoch ? GSTORE_TOKEN_ENDING
																			 : GSTORE_TOKEN_FREE;
		}
	}
	LWLockRelease(gstore->lock);
	return found;
}

uint32
gstore_token_list_ending(gstore_store_name stores[GSTORE_TOKENS_MAX])
{
	uint32 count = 0;

	LWLockAcquire(gstore->lock, LW_SHARED);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
		if (gstore->tokens[i].state == GSTORE_TOKEN_ENDING)
			stores[count++] = gstore->tokens[i].name;
	LWLockRelease(gstore->lock);
	return count;
}

void
gstore_token_note_dropped(const gstore_store_name *name)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	gstore_token_forget(name);
	LWLockRelease(gstore->lock);
}

void
gstore_token_forget(const gstore_store_name *name)
{
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
		if (name == NULL || gstore->tokens[i].name.store == name->store)
			gstore->tokens[i].state = GSTORE_TOKEN_FREE;
}

/* ---- ending */

static void
set_state(const uint8 secret[GSTORE_SECRET_BYTES], gstore_token_state state)
{
	gstore_token *t;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	t = find_secret(secret); /* not there any more if the keeper was started anew */
	if (t != NULL)
	{
		t->expires_ns = lifetime_end(t);
		t->state = state;
	}
	LWLockRelease(gstore->lock);
}

/* After an ERROR while links are made or ended, and at exit: the worker ends those that there are. */
static void
abort_token(int code, Datum secret)
{
	gstore_settle();
	set_state((const uint8 *) DatumGetPointer(secret), GSTORE_TOKEN_OVER);
	gstore_wake_worker();
}

/* With its links, which a keeper that is not there any more has lost. */
static void
end_token(const gstore_token *ending)
{
	gstore_far far = {0};

	if (gstore->ready && ending->name.epoch == gstore->epoch)
	{
		gstore_wait_ready(); /* its clean-up at exit is registered before ours */
		memcpy(far.handle, ending->secret, GSTORE_SECRET_BYTES);
		PG_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(ending->secret));
		{
			gstore_transfer_far(GSTORE_UNLINK, &ending->name, &far, NULL, 0);
		}
		PG_END_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(ending->secret));
	}
	if (ending->staged_bytes == 0)
		set_state(ending->secret, GSTORE_TOKEN_FREE);
	else
	{
		set_state(ending->secret, GSTORE_TOKEN_OVER);
		gstore_wake_worker();
	}
}

/* LIVE tokens of a table of this database, or of all tables of it (InvalidOid); palloc'd. */
static int
list_tokens(Oid relation, gstore_token **out)
{
	int count = 0;

	*out = palloc(sizeof **out * GSTORE_TOKENS_MAX);
	LWLockAcquire(gstore->lock, LW_SHARED);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
		if (is_of(&gstore->tokens[i], relation))
			(*out)[count++] = gstore->tokens[i];
	LWLockRelease(gstore->lock);
	return count;
}

/* ---- making */

static bool made_some; /* tokens, in this transaction */

/* What a user has of the list. */
typedef struct share
{
	int			  count, free;
	gstore_token *place; /* a free one; NULL: there is none */
	gstore_token oldest; /* of the user's that are LIVE, the one that was asked for before all others */
} share;

/* The lock is held. */
static share
find_share(Oid owner)
{
	share found = {0};

	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		if (t->state == GSTORE_TOKEN_FREE)
		{
			found.free++;
			found.place = t;
			continue;
		}
		if (t->owner != owner)
			continue;
		found.count++;
		if (t->state == GSTORE_TOKEN_LIVE &&
			(found.oldest.state == GSTORE_TOKEN_FREE || t->expires_ns < found.oldest.expires_ns))
			found.oldest = *t;
	}
	return found;
}

/* Others that come find some free; who has many gets no more until others end theirs. */
static bool
has_room(const share *s)
{
	return s->count < GSTORE_TOKENS_A_FREE_ONE * s->free;
}

/* A user has so many tokens of a table and kind at most, and one more is to come. */
static void
end_oldest(const gstore_token *wanted)
{
	gstore_token	   *all;
	const int			listed = list_tokens(wanted->name.table, &all);
	const gstore_token *oldest = NULL;
	int					count = 0;

	for (int i = 0; i < listed; i++)
		if (all[i].for_call == wanted->for_call && all[i].owner == wanted->owner)
		{
			count++;
			if (oldest == NULL || all[i].number < oldest->number)
				oldest = &all[i];
		}
	if (count >= GSTORE_TOKENS_OF_A_TABLE_MAX)
		end_token(oldest);
	pfree(all);
}

/* Nobody else knows tokens of queries, so the one that none has asked for longest gives way to another. */
static void
end_unused(void)
{
	share s;

	LWLockAcquire(gstore->lock, LW_SHARED);
	s = find_share(InvalidOid);
	LWLockRelease(gstore->lock);
	if (!has_room(&s) && s.oldest.state != GSTORE_TOKEN_FREE)
		end_token(&s.oldest);
}

/* This transaction's tokens of rows of the table that it has not committed: the next call has another one. */
static void
end_uncommitted(Oid relation)
{
	gstore_token *all;
	const int	  count = list_tokens(relation, &all);

	for (int i = 0; i < count; i++)
		if (all[i].writer_number != 0 && all[i].maker == MyProcPid)
			end_token(&all[i]);
	pfree(all);
}

/* What the current user has by tokens of gstore_load_begin(). */
typedef struct load_usage
{
	uint64 bytes;
	int	   count;
	bool   ending; /* some of it will be free soon, unless a program keeps it */
} load_usage;

/* The lock is held. */
static load_usage
sum_loads(void)
{
	load_usage usage = {0};

	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		const gstore_token *t = &gstore->tokens[i];

		if (t->state == GSTORE_TOKEN_FREE || t->staged_bytes == 0 || t->role != GetUserId())
			continue;
		usage.bytes += t->staged_bytes;
		usage.count++;
		usage.ending |= t->state == GSTORE_TOKEN_OVER || t->state == GSTORE_TOKEN_ENDING;
	}
	return usage;
}

static bool
is_beyond_limits(const load_usage *usage, uint64 bytes)
{
	return usage->count >= GSTORE_LOADS_OF_A_ROLE_MAX ||
		(gstore_load_memory_mb >= 0 &&
		 usage->bytes + bytes > (uint64) gstore_load_memory_mb * 1024 * 1024);
}

/* Until tokens that have ended do not stand in the way of another one, for a short time. */
static void
wait_for_ended_loads(uint64 bytes)
{
	const int64 deadline = gstore_deadline_ns(ENDED_WAIT_MS);
	load_usage	usage;

	for (;;)
	{
		LWLockAcquire(gstore->lock, LW_SHARED);
		usage = sum_loads();
		LWLockRelease(gstore->lock);
		if (!usage.ending || !is_beyond_limits(&usage, bytes) || gstore_now_ns() >= deadline)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ENDED_LOOK_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* The lock is held. */
static void
check_load_limits(uint64 bytes)
{
	const load_usage usage = sum_loads();

	if (!is_beyond_limits(&usage, bytes))
		return;
	if (usage.count >= GSTORE_LOADS_OF_A_ROLE_MAX)
		ereport(
			ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("the role has %d tokens of gstore_load_begin(), the limit", usage.count),
			 errhint("End some by gstore_revoke(). An ended one counts while a program keeps a lease.")));
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("memory for rows to be loaded is limited to %d MiB a role", gstore_load_memory_mb),
			 errdetail("With these %llu KiB the role would have %llu KiB.",
					   (unsigned long long) (bytes + 1023) / 1024,
					   (unsigned long long) (usage.bytes + bytes + 1023) / 1024),
			 errhint("End tokens by gstore_revoke(), or have gstore_fdw.load_memory raised. An ended one counts "
					 "while a program keeps a lease.")));
}

/* Queries have another way. */
static void
refuse_token(const share *s, gstore_answer *refused)
{
	if (refused == NULL)
		ereport(
			ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("role \"%s\" has %d tokens of tables in GPU memory, its share of %d",
					GetUserNameFromId(GetSessionUserId(), false), s->count, GSTORE_TOKENS_MAX),
			 errdetail("A role may have %d times as many as are free, and %d are free.",
					   GSTORE_TOKENS_A_FREE_ONE, s->free),
			 errhint("End some by gstore_revoke() or gstore_revoke_all(), or have gstore_fdw.token_lifetime lowered.")));
	refused->status = GVM_E_LIMIT;
	strlcpy(refused->text, "roles have all tokens of tables in GPU memory", sizeof refused->text);
}

/* As described, but for what is the same for all. Where the user's share is used up: refused, or ERROR if that is NULL. */
static bool
begin_token(const gstore_token *described, uint8 secret[GSTORE_SECRET_BYTES], gstore_answer *refused)
{
	share s;
	bool  room;

	if (!pg_strong_random(secret, GSTORE_SECRET_BYTES))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random bytes for a token")));
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	if (described->staged_bytes > 0)
		check_load_limits(described->staged_bytes);
	s = find_share(described->owner);
	room = has_room(&s);
	if (room)
	{
		*s.place = *described;
		s.place->state = GSTORE_TOKEN_MAKING;
		s.place->number = ++gstore->token_numbers;
		s.place->maker = MyProcPid;
		s.place->made_in = GetCurrentSubTransactionId();
		memcpy(s.place->secret, secret, GSTORE_SECRET_BYTES);
		made_some = true;
	}
	LWLockRelease(gstore->lock);
	if (!room)
		refuse_token(&s, refused);
	return room;
}

static bool
renew_token(const gstore_token *wanted, uint8 secret[GSTORE_SECRET_BYTES])
{
	gstore_token *t;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	t = find_same(wanted);
	if (t != NULL)
	{
		t->expires_ns = lifetime_end(t);
		if (t->maker != MyProcPid)
			t->maker = 0; /* two have it: the end of one transaction does not end it */
		memcpy(secret, t->secret, GSTORE_SECRET_BYTES);
	}
	LWLockRelease(gstore->lock);
	return t != NULL;
}

static gstore_token
describe_wanted(const gstore_view *view, const gstore_token_key *key, const gstore_piece *pieces,
				int count)
{
	const gstore_piece *last = &pieces[count - 1];

	return (gstore_token){.name = view->name,
						  .privileges = key->privileges,
						  .role = key->for_query ? InvalidOid : GetUserId(),
						  .owner = key->for_query ? InvalidOid : GetSessionUserId(),
						  .sum = key->sum,
						  .manifest_end = pieces[0].bytes,
						  .deleted_end = last->part == GSTORE_DELETED ? last->bytes : 0,
						  .for_call = key->for_call,
						  .writer_number = key->writer_number};
}

bool
gstore_token_renew(const gstore_view *view, const gstore_token_key *key, const gstore_piece *pieces,
				   int count, uint8 secret[GSTORE_SECRET_BYTES])
{
	const gstore_token wanted = describe_wanted(view, key, pieces, count);

	return renew_token(&wanted, secret);
}

bool
gstore_token_make(Oid relation, const gstore_view *view, const gstore_token_key *key,
				  const gstore_piece *pieces, int count, uint8 secret[GSTORE_SECRET_BYTES],
				  gstore_answer *refused)
{
	const gstore_token wanted = describe_wanted(view, key, pieces, count);
	gstore_far		   far = {0};
	bool			   linked;

	if (renew_token(&wanted, secret))
		return true;
	if (key->writer_number != 0)
		end_uncommitted(relation);
	end_oldest(&wanted);
	if (key->for_query)
		end_unused();
	if (!begin_token(&wanted, secret, refused))
		return false;
	PG_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(secret));
	{
		memcpy(far.handle, secret, GSTORE_SECRET_BYTES);
		linked = gstore_try_transfer(GSTORE_LINK, &view->name, &far, pieces, count, refused);
	}
	PG_END_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(secret));
	if (!linked)
	{
		abort_token(0, PointerGetDatum(secret));
		return false;
	}
	gstore->owner = far.owner; /* the same for all */
	set_state(secret, GSTORE_TOKEN_LIVE);
	return true;
}

/* ---- of gstore_load_begin() */

static bool loaded_some; /* by tokens, in this transaction */

/* The session's, which others cannot want any more. */
static void
end_loads_at_exit(int code, Datum argument)
{
	bool some = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		if (t->state != GSTORE_TOKEN_LIVE || t->staged_bytes == 0 || t->session != MyProcPid)
			continue;
		t->state = GSTORE_TOKEN_OVER;
		some = true;
	}
	LWLockRelease(gstore->lock);
	if (some)
		gstore_wake_worker();
}

void
gstore_token_make_load(int device, uint64 bytes, uint8 secret[GSTORE_SECRET_BYTES])
{
	const gstore_store_name name = {.database = MyDatabaseId,
									.store = pg_atomic_fetch_add_u64(&gstore->next_store, 1),
									.device = device,
									.epoch = gstore->epoch};
	const gstore_piece		piece = {.part = GSTORE_STAGED, .bytes = bytes};
	static bool				registered = false;
	gstore_far				far = {0};

	wait_for_ended_loads(bytes);
	if (!registered)
	{
		before_shmem_exit(end_loads_at_exit, (Datum) 0);
		registered = true;
	}
	(void) begin_token(&(gstore_token){.name = name,
									   .role = GetUserId(),
									   .owner = GetSessionUserId(),
									   .staged_bytes = bytes,
									   .session = MyProcPid},
					   secret, NULL);
	PG_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(secret));
	{
		gstore_transfer_far(GSTORE_STAGE, &name, &far, &piece, 1);
		memcpy(far.handle, secret, GSTORE_SECRET_BYTES);
		gstore_transfer_far(GSTORE_LINK, &name, &far, &piece, 1);
	}
	PG_END_ENSURE_ERROR_CLEANUP(abort_token, PointerGetDatum(secret));
	gstore->owner = far.owner;
	set_state(secret, GSTORE_TOKEN_LIVE);
}

/* The lock is held. NULL: there is none, or it has ended. */
static gstore_token *
find_load(const uint8 secret[GSTORE_SECRET_BYTES])
{
	gstore_token *t = find_secret(secret);

	if (t == NULL || t->staged_bytes == 0 || t->state != GSTORE_TOKEN_LIVE ||
		t->name.database != MyDatabaseId || t->expires_ns <= gstore_now_ns())
		return NULL;
	return t;
}

bool
gstore_token_claim_load(const char *text, gstore_token *out)
{
	uint8		  secret[GSTORE_SECRET_BYTES];
	gstore_token *t;
	int			  loader = 0;

	if (!take_secret(text, GVMI_LOAD_TOKEN_PREFIX, secret))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("that is no token of gstore_load_begin()")));
	LWLockAcquire(gstore->lock, LW_SHARED);
	t = find_load(secret);
	if (t != NULL)
		*out = *t;
	LWLockRelease(gstore->lock);
	if (t == NULL)
		return false;
	if (!has_privs_of_role(GetUserId(), out->role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for a token of another role")));
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	t = find_load(secret);
	if (t != NULL && (loader = t->loader) == 0)
	{ /* else an outer subtransaction has loaded it, and stays the one that counts */
		t->loader = MyProcPid;
		t->loaded_in = GetCurrentSubTransactionId();
		loaded_some = true;
	}
	out->reading_in = InvalidSubTransactionId;
	if (t != NULL && t->loader == MyProcPid && t->reading_in == InvalidSubTransactionId)
		out->reading_in = t->reading_in = GetCurrentSubTransactionId();
	LWLockRelease(gstore->lock);
	if (loader != 0 && loader != MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another transaction is loading the rows of this token"),
				 errhint("Wait for its end: the token ends if it commits.")));
	return t != NULL;
}

void
gstore_token_end_reading(const gstore_token *loaded)
{
	gstore_token *t;

	if (loaded->reading_in == InvalidSubTransactionId) /* by a load that this one is within */
		return;
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	t = find_secret(loaded->secret);
	if (t != NULL)
		t->reading_in = InvalidSubTransactionId;
	LWLockRelease(gstore->lock);
	gstore_wake_worker(); /* one may have ended meanwhile */
}

/*
 * Of a subtransaction, or of all (InvalidSubTransactionId), that this process has loaded: over if that was committed, the
 * parent's, or as if nothing had been.
 */
static void
end_loads(SubTransactionId loaded_in, bool committed, SubTransactionId parent)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		if (t->loader != MyProcPid)
			continue;
		if (t->reading_in == loaded_in) /* the load has failed: one that is committed has ended before */
			t->reading_in = InvalidSubTransactionId;
		if (loaded_in != InvalidSubTransactionId && t->loaded_in != loaded_in)
			continue;
		t->loaded_in = parent;
		if (parent != InvalidSubTransactionId)
			continue;
		t->loader = 0;
		t->reading_in = InvalidSubTransactionId;
		if (committed && t->state == GSTORE_TOKEN_LIVE)
			t->state = GSTORE_TOKEN_OVER;
	}
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

/* ---- the end of the transaction that made some */

/*
 * Those of a subtransaction become the parent's; all of the transaction (InvalidSubTransactionId) have no maker any more, or
 * end, if they are of its own rows.
 */
static void
keep_tokens(SubTransactionId made_in, SubTransactionId parent)
{
	bool some_over = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		if (t->maker != MyProcPid)
			continue;
		if (made_in == InvalidSubTransactionId)
		{
			t->maker = 0;
			if (t->writer_number != 0 && t->state == GSTORE_TOKEN_LIVE)
			{
				t->state = GSTORE_TOKEN_OVER;
				some_over = true;
			}
		}
		else if (t->made_in == made_in)
			t->made_in = parent;
	}
	LWLockRelease(gstore->lock);
	if (some_over)
		gstore_wake_worker();
}

/* Those of a subtransaction, or all (InvalidSubTransactionId). The worker ends their links. */
static void
drop_tokens(SubTransactionId made_in)
{
	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	for (int i = 0; i < GSTORE_TOKENS_MAX; i++)
	{
		gstore_token *t = &gstore->tokens[i];

		if (t->state == GSTORE_TOKEN_LIVE && t->maker == MyProcPid &&
			(made_in == InvalidSubTransactionId || t->made_in == made_in))
			t->state = GSTORE_TOKEN_OVER;
	}
	LWLockRelease(gstore->lock);
	gstore_wake_worker();
}

/* ---- changes of privileges */

/* What was granted ends nothing, but must not be taken for a change later. */
static void
accept_privileges(const gstore_token *token, uint32 privileges)
{
	gstore_token *t;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	t = find_secret(token->secret);
	if (t != NULL)
		t->privileges = privileges;
	LWLockRelease(gstore->lock);
}

static void
follow_privileges(void)
{
	gstore_token *all;
	int			  count;

	gstore_lock_privileges();
	count = list_tokens(InvalidOid, &all);
	for (int i = 0; i < count; i++)
	{
		uint32	   privileges;
		bool	   accept;
		const bool there = gstore_look_at_privileges(all[i].name.table, &privileges, &accept);

		if (there && privileges == all[i].privileges)
			continue;
		if (accept)
			accept_privileges(&all[i], privileges);
		else
			end_token(&all[i]);
	}
	pfree(all);
	gstore_follow_copies(gstore_look_at_privileges);
}

static void
follow_xact_callback(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_PRE_COMMIT && gstore_privileges_changed() && gstore != NULL)
		gstore_commit_limited(follow_privileges);
}

static void
token_xact_callback(XactEvent event, void *argument)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PREPARE:
			if (made_some)
				keep_tokens(InvalidSubTransactionId, InvalidSubTransactionId);
			if (loaded_some)
				end_loads(InvalidSubTransactionId, true, InvalidSubTransactionId);
			made_some = loaded_some = false;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			if (made_some)
				drop_tokens(InvalidSubTransactionId);
			if (loaded_some)
				end_loads(InvalidSubTransactionId, false, InvalidSubTransactionId);
			made_some = loaded_some = false;
			break;
		default:
			break;
	}
}

static void
token_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *argument)
{
	if (event == SUBXACT_EVENT_COMMIT_SUB && made_some)
		keep_tokens(mine, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB && made_some)
		drop_tokens(mine);
	if (event == SUBXACT_EVENT_COMMIT_SUB && loaded_some)
		end_loads(mine, true, parent);
	else if (event == SUBXACT_EVENT_ABORT_SUB && loaded_some)
		end_loads(mine, false, InvalidSubTransactionId);
}

void
gstore_token_follow_init(void)
{
	RegisterXactCallback(follow_xact_callback, NULL);
}

void
gstore_token_init(void)
{
	RegisterXactCallback(token_xact_callback, NULL);
	RegisterSubXactCallback(token_subxact_callback, NULL);
}

/* ---- SQL */

/* At once, and for good: it is not undone by ROLLBACK. */
Datum
gstore_revoke(PG_FUNCTION_ARGS)
{
	uint8				secret[GSTORE_SECRET_BYTES];
	gstore_token		token = {0};
	const gstore_token *found;

	if (!take_secret(text_to_cstring(PG_GETARG_TEXT_PP(0)), GVMI_TOKEN_PREFIX, secret))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("that is no token of gstore_export() or gstore_load_begin()")));
	gstore_wait_ready();
	LWLockAcquire(gstore->lock, LW_SHARED);
	found = find_secret(secret);
	if (found != NULL && found->state == GSTORE_TOKEN_LIVE && found->name.database == MyDatabaseId)
		token = *found;
	LWLockRelease(gstore->lock);
	if (token.state != GSTORE_TOKEN_LIVE)
		PG_RETURN_BOOL(false);
	if (!has_privs_of_role(GetUserId(), token.role) &&
		(token.staged_bytes > 0 || !gstore_is_owner(token.name.table)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to revoke a token of another role"),
				 errhint("Who made it may, and the owner of the table.")));
	end_token(&token);
	PG_RETURN_BOOL(true);
}

/* Likewise; and the copies under CUDA handles. */
Datum
gstore_revoke_all(PG_FUNCTION_ARGS)
{
	const Oid	  relation = PG_GETARG_OID(0);
	gstore_token *all;
	int			  count;

	gstore_check_table(relation);
	if (!gstore_is_owner(relation))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_FOREIGN_TABLE, get_rel_name(relation));
	gstore_wait_ready();
	gstore_lock_privileges();
	count = list_tokens(relation, &all);
	for (int i = 0; i < count; i++)
		end_token(&all[i]);
	pfree(all);
	gstore_end_copies(relation);
	gstore_unlock_privileges(ExclusiveLock);
	PG_RETURN_INT64(count);
}
