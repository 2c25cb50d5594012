/* See query_session.h. */
#include "postgres.h"

#include <errno.h>
#include <string.h>

#include "utils/memutils.h"

#include <gvmem/keeper.h>

#include "postgres/peer.h"
#include "postgres/query_session.h"

/* A query of a small table is done in less time than a process needs to wake up. */
#define SPIN_US 50
/* A connection whose memory file results have made larger than this is not kept: both processes would keep the memory. */
#define IDLE_BYTES_MAX (2 * 1024 * 1024)
/* Connections that are kept: as many for a device as a statement sends queries to it at a time; and in all. */
#define IDLE_OF_DEVICE 2
#define IDLE_MOST	   16

struct gstore_session
{
	gstore_peer	   peer;
	int			   device;
	bool		   sent;	 /* a query, whose answer was not received yet */
	bool		   answered; /* it was, and is not taken yet; without a connection, there is none */
	gquery_message answer;
	uint32		   raised; /* by a row */
	gstore_query_counter  failure;
	MemoryContextCallback ending; /* in a context of the query */
};

/* Connected, and without a query: the one that has been kept for the longest time is the first. */
typedef struct idle_session
{
	gstore_peer peer;
	int			device;
} idle_session;

static idle_session idle[IDLE_MOST];
static int			idle_count;

static int sent_count[GVM_KEEPER_DEVICES_MAX];

static void
note_sent(gstore_session *s, bool sent)
{
	sent_count[s->device] += (int) sent - (int) s->sent;
	s->sent = sent;
}

static void
close_session(void *argument)
{
	gstore_session *s = argument;

	note_sent(s, false);
	gstore_peer_close(&s->peer);
}

static gquery_message
empty_message(gquery_verb verb)
{
	return (gquery_message){.magic = GQUERY_MAGIC, .verb = verb};
}

static void
remove_idle(int at)
{
	idle_count--;
	memmove(&idle[at], &idle[at + 1], sizeof idle[0] * (Size) (idle_count - at));
}

/* An executor that has ended since is noticed here; nothing else is sent to a connection without a query. */
static void
take_idle(gstore_session *s)
{
	gquery_message	   message;
	gstore_peer_answer answer = {&message, sizeof message, GQUERY_MAGIC, {0}};

	for (int at = idle_count - 1; at >= 0 && s->peer.connection < 0; at--)
		if (idle[at].device == s->device)
		{
			s->peer = idle[at].peer;
			remove_idle(at);
			if (gstore_peer_receive(&s->peer, &answer) != GSTORE_PEER_NOTHING)
				gstore_peer_close(&s->peer);
		}
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

	s->peer = GSTORE_PEER_NONE("the executor of queries");
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
	int count = 0;

	for (int at = 0; at < idle_count; at++)
		count += idle[at].device == s->device;
	if (count >= IDLE_OF_DEVICE || s->peer.len > IDLE_BYTES_MAX)
	{
		gstore_peer_close(&s->peer);
		return;
	}
	if (idle_count == IDLE_MOST)
	{
		gstore_peer_close(&idle[0].peer);
		remove_idle(0);
	}
	idle[idle_count++] = (idle_session){s->peer, s->device};
	s->peer = GSTORE_PEER_NONE(s->peer.name);
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

void
gstore_session_send(gstore_session *s)
{
	const gquery_message request = empty_message(GQUERY_RUN);

	(void) gstore_peer_send(&s->peer, &request, sizeof request);
	note_sent(s, true);
}

int
gstore_session_socket(const gstore_session *s)
{
	return s->peer.connection;
}

int
gstore_session_count_sent(int device)
{
	return sent_count[device];
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
		gstore_peer_event event;

		if (!s->sent)
			(void) gstore_peer_send(&s->peer, &request, sizeof request);
		event = gstore_peer_await(&s->peer, 0, SPIN_US, &answer);
		note_sent(s, false);
		if (event == GSTORE_PEER_ANSWER)
			return true;
		say_ended(&answer.ended, why);
		gstore_peer_disconnect(&s->peer);
		if (answer.ended.end != 0 || tries == 1 || has_begun(s) || !connect_session(s, why))
			break;
	}
	gstore_peer_close(&s->peer);
	return false;
}

void
gstore_session_await(gstore_session *s, char why[GSTORE_SESSION_WHY_BYTES])
{
	(void) exchange(s, GQUERY_RUN, &s->answer, why);
	s->answered = true;
}

bool
gstore_session_is_answered(const gstore_session *s)
{
	return s->answered;
}

/* One that was received before, or else of exchange(). */
static bool
take_answer(gstore_session *s, gquery_verb verb, gquery_message *answer,
			char why[GSTORE_SESSION_WHY_BYTES])
{
	if (!s->answered)
		return exchange(s, verb, answer, why);
	s->answered = false;
	*answer = s->answer;
	return s->peer.connection >= 0;
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
	if (!take_answer(s, verb, &answer, why))
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
				 errhint("SET gstore_fdw.gpu_queries = off runs the statement without the executor; DISCARD PLANS, too, if it was planned before.")));
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
	if (s->sent || s->answered || (more && !gstore_peer_send(&s->peer, &forget, sizeof forget)))
		close_session(s);
	else
		keep_session(s);
}
