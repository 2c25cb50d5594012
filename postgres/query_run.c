/* See query_run.h. */
#include "postgres.h"

#include "miscadmin.h"

#include "postgres/query_expr.h"
#include "postgres/query_records.h"

static gstore_session *
prepare(gstore_run *run, const gstore_request *request)
{
	return gstore_request_prepare(request, run->query, run->met, run->why, &run->failure);
}

/* NULL: it cannot run; raised: what a row has raised there. */
static gstore_session *
exchange_request(gstore_run *run, const gstore_request *request, uint32 *raised)
{
	gstore_session *session = run->sent != NULL ? run->sent : prepare(run, request);

	run->sent = NULL;
	if (session == NULL || gstore_session_run(session, GQUERY_RUN, run->why))
		return session;
	*raised = gstore_session_raised(session);
	run->failure = gstore_session_failure(session);
	return NULL;
}

/*
 * Those that no row comes to are not evaluated: they may raise an error. Nor are those of rows that may not be asked for; the local plan does, as far as it
 * is. Once rows have been returned it cannot begin.
 */
static void
note_met(gstore_run *run, const gstore_request *request, uint32 raised)
{
	if ((raised & ((1u << GQUERY_UNKNOWN_SHIFT) - 1)) == GQUERY_E_UNKNOWN)
		run->met |= gstore_met_bit(raised >> GQUERY_UNKNOWN_SHIFT) &
			(request->first_row > 0 ? PG_UINT64_MAX : ~gstore_query_behind(request->compiled));
}

/* False, with more values that a row has come to: it is to be tried again. */
static bool
try_run(gstore_run *run, const gstore_request *request)
{
	uint32			raised = GQUERY_E_NONE;
	gquery_cost		cost;
	gstore_session *session = exchange_request(run, request, &raised);

	note_met(run, request, raised);
	if (session == NULL)
		return false;
	cost = gstore_session_window(session)->cost;
	gstore_query_add_cost(run->kind, &run->figures, &cost);
	gstore_run_receive(run, session, request, gstore_request_shape(run->query));
	run->figures.place = "on the GPU";
	return true;
}

static void
forget_query(gstore_run *run)
{
	pfree(run->query);
	run->query = NULL;
}

gstore_start
gstore_run_start(gstore_run *run, const gstore_request *request)
{
	if (run->sent != NULL)
		return GSTORE_STARTED;
	if (gstore_session_count_sent(request->view[0].name.device) >= GSTORE_SENT_MOST)
		return GSTORE_START_LATER;
	run->query = gstore_request_create();
	run->sent = prepare(run, request);
	if (run->sent == NULL)
	{
		forget_query(run);
		return GSTORE_NOT_STARTED;
	}
	gstore_session_send(run->sent);
	return GSTORE_STARTED;
}

/* What goes on is the program that was checked with the first rows, with the same values, within the same memory. */
static bool
begin_run(gstore_run *run, const gstore_request *request)
{
	uint64 met = run->met;
	bool   done;

	if (run->sent == NULL && request->first_row == 0 && (request->after == NULL || run->query == NULL))
		run->query = gstore_request_create();
	while (!(done = try_run(run, request)) && run->met != met)
	{
		met = run->met;
		gstore_query_count(run->kind, GSTORE_QUERY_RERUNS, 1);
	}
	if (!done || (run->next_row == 0 && !request->continues))
		forget_query(run);
	return done;
}

static bool
is_cancel(int sqlstate)
{
	return sqlstate == ERRCODE_QUERY_CANCELED || sqlstate == ERRCODE_ADMIN_SHUTDOWN;
}

bool
gstore_run_begin(gstore_run *run, const gstore_request *request)
{
	bool done;

	run->kind = gstore_query_kind_of(request->compiled);
	PG_TRY();
	{
		done = begin_run(run, request);
	}
	PG_CATCH();
	{
		gstore_query_count(run->kind,
						   is_cancel(geterrcode()) ? GSTORE_QUERY_CANCELLED : GSTORE_QUERY_FAILED, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!done || request->first_row == 0)
		gstore_query_count(run->kind, done ? GSTORE_QUERIES : run->failure, 1);
	return done;
}

bool
gstore_run_refuse(gstore_run *run, const gstore_compiled *compiled, const char *why)
{
	strlcpy(run->why, why, sizeof run->why);
	gstore_query_count(gstore_query_kind_of(compiled), GSTORE_QUERY_UNSUPPORTED, 1);
	return false;
}

void
gstore_run_fail(const gstore_run *run)
{
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("a join on the GPU cannot go on: %s", run->why), errhint(GSTORE_REPEAT_HINT)));
}

bool
gstore_run_go_on(gstore_run *run, gstore_request *request, MemoryContext context)
{
	MemoryContext old;

	if (run->next_row == 0)
		return false;
	CHECK_FOR_INTERRUPTS();
	gstore_run_forget(run);
	MemoryContextReset(context);
	request->first_row = run->next_row;
	request->slice_rows = run->slice_rows;
	request->must_run = true;
	old = MemoryContextSwitchTo(context);
	if (!gstore_run_begin(run, request))
		gstore_run_fail(run);
	MemoryContextSwitchTo(old);
	return true;
}

void
gstore_run_end(gstore_run *run)
{
	gstore_session_end(run->sent, false);
	gstore_session_end(run->session, run->left > 0);
	run->sent = run->session = NULL;
	run->records = NULL;
	run->query = NULL;
	run->met = 0;
	run->count = run->at = run->left = run->next_row = 0;
}
