/* See query_session.h. */
#include "postgres.h"

#include <errno.h>
#include <string.h>

#include "utils/memutils.h"

#include "postgres/peer.h"
#include "postgres/query_session.h"

/* A query of a small table is done in less time than a process needs to wake up. */
#define SPIN_US 50
/* A connection whose memory file results have made larger than this is not kept: both processes would keep the memory. */
#define IDLE_BYTES_MAX (2 * 1024 * 1024)

struct gstore_session
{
	gstore_peer			  peer;
	int					  device;
	uint32				  raised; /* by a row */
	gstore_query_counter  failure;
	MemoryContextCallback ending; /* in a context of the query */
};

/* Connected, and without a query; connection -1: there is none. */
static gstore_peer idle = {"the executor of queries", -1, -1, NULL, 0};
static int		   idle_device;

static void
close_session(void *argument)
{
	gstore_peer_close(&((gstore_session *) argument)->peer);
}

static gquery_message
empty_message(gquery_verb verb)
{
	return (gquery_message){.magic = GQUERY_MAGIC, .verb = verb};
}

/* An executor that has ended since is noticed here; nothing else is sent to a connection without a query. */
static void
take_idle(gstore_session *s)
{
	gquery_message	   message;
	gstore_peer_answer answer = {&message, sizeof message, GQUERY_MAGIC, {0}};

	if (idle.connection >= 0 &&
		(idle_device != s->device || gstore_peer_receive(&idle, &answer) != GSTORE_PEER_NOTHING))
		gstore_peer_close(&idle);
	if (idle.connection < 0)
		return;
	s->peer = idle;
	idle = GSTORE_PEER_NONE(idle.name);
}

static bool
connect_session(gstore_session *s, char why[GSTORE_SESSION_WHY_BYTES])
{
	if (gstore_peer_connect(&s->peer, GSTORE_SPAWN_EXECUTOR, s->device))
		return true;
	snprintf(why, GSTORE_SESSION_WHY_BYTES, "no connection to an executor: %s", strerror(errno));
	gstore_peer_close(&s->peer);
	return false;
}

static bool
map_session(gstore_session *s, Size bytes, char why[GSTORE_SESSION_WHY_BYTES])
{
	const char *failed = gstore_peer_try_map(&s->peer, bytes);

	if (failed == NULL)
		return true;
	snprintf(why, GSTORE_SESSION_WHY_BYTES, "cannot %s the memory file: %s", failed, strerror(errno));
	gstore_peer_close(&s->peer);
	return false;
}

gstore_session *
gstore_session_begin(int device, Size bytes, char why[GSTORE_SESSION_WHY_BYTES])
{
	gstore_session *s = palloc0(sizeof *s);

	s->peer = GSTORE_PEER_NONE(idle.name);
	s->device = device;
	s->ending = (MemoryContextCallback){.func = close_session, .arg = s};
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &s->ending);
	take_idle(s);
	if (!map_session(s, bytes, why) || (s->peer.connection < 0 && !connect_session(s, why)))
		return NULL;
	return s;
}

gquery_window *
gstore_session_window(gstore_session *s)
{
	return (gquery_window *) s->peer.bytes;
}

/* ---- answers */

/* Not a fault of the connection, which the next query has. */
static void
keep_session(gstore_session *s)
{
	gstore_peer_close(&idle);
	if (s->peer.len > IDLE_BYTES_MAX)
	{
		gstore_peer_close(&s->peer);
		return;
	}
	idle = s->peer;
	idle_device = s->device;
	s->peer = GSTORE_PEER_NONE(idle.name);
}

static void
end_session(gstore_session *s, const gquery_message *answer)
{
	if (answer->lost)
		gstore_peer_close(&s->peer);
	else
		keep_session(s);
}

static void
say_ended(const gstore_spawn_ended *ended, char why[GSTORE_SESSION_WHY_BYTES])
{
	if (ended->end == GSTORE_SPAWN_FAILED)
		snprintf(why, GSTORE_SESSION_WHY_BYTES, "no executor can be started: %s",
				 strerror(ended->number));
	else
		strlcpy(why, "the executor has ended", GSTORE_SESSION_WHY_BYTES);
}

/*
 * Whether the executor that has ended had begun with the window's query, which may be why it has ended: another one would, too, with the queries
 * of all its sessions.
 */
static bool
has_begun(gstore_session *s)
{
	return *(volatile uint32 *) &gstore_session_window(s)->begun != 0;
}

/*
 * False: the executor has ended. One that ends as it has been idle may not have read the message: another connection is asked
 * for, once. What was sent is still in the file.
 */
static bool
exchange(gstore_session *s, gquery_verb verb, gquery_message *message,
		 char why[GSTORE_SESSION_WHY_BYTES])
{
	const gquery_message request = empty_message(verb);
	gstore_peer_answer	 answer = {message, sizeof *message, GQUERY_MAGIC, {0}};

	for (int tries = verb == GQUERY_RUN ? 2 : 1; tries > 0; tries--)
	{
		(void) gstore_peer_send(&s->peer, &request, sizeof request);
		if (gstore_peer_await(&s->peer, 0, SPIN_US, &answer) == GSTORE_PEER_ANSWER)
			return true;
		say_ended(&answer.ended, why);
		gstore_peer_disconnect(&s->peer);
		if (answer.ended.end != 0 || tries == 1 || has_begun(s) || !connect_session(s, why))
			break;
	}
	gstore_peer_close(&s->peer);
	return false;
}

/* Of what a row has raised. */
static gstore_query_counter
failure_of(uint32 raised)
{
	switch (raised)
	{
		case GQUERY_E_DECIMAL:
			return GSTORE_QUERY_DECIMALS;
		case GQUERY_E_NUMBERED:
			return GSTORE_QUERY_UNSUPPORTED;
		default:
			return GSTORE_QUERY_ROW_ERRORS;
	}
}

bool
gstore_session_run(gstore_session *s, gquery_verb verb, char why[GSTORE_SESSION_WHY_BYTES])
{
	gquery_message answer;

	s->failure = GSTORE_QUERY_LOST;
	if (!exchange(s, verb, &answer, why))
		return false;
	s->failure = GSTORE_QUERY_UNAVAILABLE;
	answer.sqlstate[sizeof answer.sqlstate - 1] = answer.text[sizeof answer.text - 1] = '\0';
	gstore_make_printable(answer.text);
	if (answer.verb == GQUERY_DONE)
		return map_session(s, 0, why);
	end_session(s, &answer);
	switch (answer.verb)
	{
		case GQUERY_NO_ROOM:
			strlcpy(why, answer.text, GSTORE_SESSION_WHY_BYTES);
			if (answer.error == GQUERY_E_LONG)
				s->failure = GSTORE_QUERY_UNSUPPORTED;
			else if (strcmp(answer.sqlstate, "53200") == 0)
				s->failure = GSTORE_QUERY_NO_ROOM;
			return false;
		case GQUERY_FAULT:
			ereport(LOG,
					(errcode(gstore_peer_errcode(answer.sqlstate)),
					 errmsg("a query is not computed by the GPU: %s", answer.text)));
			strlcpy(why, answer.text, GSTORE_SESSION_WHY_BYTES);
			s->failure = GSTORE_QUERY_DEVICE_ERRORS;
			return false;
		case GQUERY_RAISED:
			s->raised = answer.error;
			s->failure = failure_of(s->raised);
			strlcpy(why,
					s->raised == GQUERY_E_NUMBERED ? "a text is too long for a key"
												   : "a row raises an error, or a sum may",
					GSTORE_SESSION_WHY_BYTES);
			return false;
		default:
			ereport(
				ERROR,
				(errcode(gstore_peer_errcode(answer.sqlstate)), errmsg("%s", answer.text),
				 errhint("SET gstore_fdw.gpu_queries = off runs the statement without the executor.")));
	}
	return false;
}

uint32
gstore_session_raised(const gstore_session *s)
{
	return s->raised;
}

gstore_query_counter
gstore_session_failure(const gstore_session *s)
{
	return s->failure;
}

void *
gstore_session_copy(gstore_session *s, gquery_span span)
{
	if (span.bytes > GQUERY_PIECE_MAX || span.at > s->peer.len || span.bytes > s->peer.len - span.at)
		elog(ERROR, "the executor of queries has returned no valid result");
	return memcpy(palloc(Max(span.bytes, 1)), s->peer.bytes + span.at, span.bytes);
}

void
gstore_session_end(gstore_session *s, bool more)
{
	const gquery_message forget = empty_message(GQUERY_FORGET);

	if (s == NULL || s->peer.connection < 0)
		return;
	if (more && !gstore_peer_send(&s->peer, &forget, sizeof forget))
		gstore_peer_close(&s->peer);
	else
		keep_session(s);
}
