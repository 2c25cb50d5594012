/* See query_run.h. */
#include "postgres.h"

#include "miscadmin.h"

#include "postgres/query_run.h"
#include "postgres/settings.h"
#include "postgres/whole.h"

/* The results' next piece. Other than what is said of the first one, it is an error if it is not as it was said to be. */
static void
take_piece(gstore_run *run)
{
	const gquery_window *window = gstore_session_window(run->session);
	const uint32		 words = window->record_words;
	const gquery_span	 span = window->records;
	const uint64		 count = span.bytes / (words * sizeof(uint64) + (words == 0));

	if (words != (uint32) run->words || span.bytes % (words * sizeof(uint64)) != 0 ||
		count > run->left || (count == 0 && run->left > 0))
		elog(ERROR, "the executor of queries has returned no valid result");
	run->records = gstore_session_copy(run->session, span);
	run->count = count;
	run->at = 0;
	run->left -= count;
	if (run->left > 0)
		return;
	gstore_session_end(run->session, false);
	run->session = NULL;
}

static void
add_cost(gstore_run *run, const gquery_cost *cost)
{
	run->cost.rows += cost->rows;
	run->cost.read_bytes += cost->read_bytes;
	run->cost.kernel_ns += cost->kernel_ns;
	run->cost.total_ns += cost->total_ns;
	run->cost.scratch_bytes = Max(run->cost.scratch_bytes, cost->scratch_bytes);
}

/* ---- the memory file: the window, a bitmap, queries of distances */

static uint64
queries_at(const gstore_call_table *rows)
{
	return TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_window)) +
		TYPEALIGN64(GQUERY_ALIGN, rows->dead_bytes);
}

static void
fill_table(gquery_window *window, const gstore_call_table *rows)
{
	const uint64  at = TYPEALIGN64(GQUERY_ALIGN, sizeof *window);
	gquery_table *table = &window->tables[0];

	window->table_count = 1;
	strlcpy(table->token, rows->token, sizeof table->token);
	table->rows = rows->rows;
	table->dead = (gquery_span){at, rows->dead_bytes};
	table->deleted_at = rows->deleted_at;
	table->deleted_bytes = rows->deleted_bytes;
	if (rows->dead_bytes > 0)
		memcpy((uint8 *) window + at, rows->dead, rows->dead_bytes);
}

static void
fill_distances(gquery_window *window, const gstore_call_table *rows, const gstore_request *request)
{
	const uint64 at = queries_at(rows);

	window->distance_count = (uint32) request->distance_count;
	for (int i = 0; i < request->distance_count; i++)
	{
		window->distances[i] = request->distances[i];
		window->distances[i].query.at += at;
	}
	if (request->queries_bytes > 0)
		memcpy((uint8 *) window + at, request->queries, request->queries_bytes);
}

static void
fill_window(gquery_window *window, const gstore_call_table *rows, const gstore_request *request)
{
	memset(window, 0, sizeof *window);
	window->magic = GQUERY_MAGIC;
	window->version = GQUERY_VERSION;
	window->used = queries_at(rows) + request->queries_bytes;
	fill_table(window, rows);
	fill_distances(window, rows, request);
	window->program = *request->program;
	window->scratch_bytes_max = (uint64) gstore_gpu_query_memory_mb * 1024 * 1024;
	window->list_max = request->list_max;
	window->continued = request->after != NULL;
	window->nearest = request->nearest;
	if (request->after != NULL)
		memcpy(window->after, request->after, sizeof(int64) * (Size) request->record_words);
}

/* ---- a run */

bool
gstore_run_begin(gstore_run *run, Relation relation, gstore_view *view, const gstore_request *request)
{
	gstore_call_table rows;
	gquery_cost		  cost;
	gstore_session	 *session;
	gstore_answer	  refused;

	gstore_wait_ready();
	if (!gstore_whole_export(relation, view, GSTORE_EXPORT_QUERY, &rows, &refused))
	{
		strlcpy(run->why, refused.text, sizeof run->why);
		return false;
	}
	session = gstore_session_begin(view->name.device, queries_at(&rows) + request->queries_bytes,
								   run->why);
	if (session == NULL)
		return false;
	fill_window(gstore_session_window(session), &rows, request);
	if (!gstore_session_run(session, GQUERY_RUN, run->why))
		return false;
	cost = gstore_session_window(session)->cost;
	add_cost(run, &cost);
	run->session = session;
	run->words = request->record_words;
	run->left = gstore_session_window(session)->record_count;
	run->total += run->left;
	run->fetched = false;
	take_piece(run);
	run->place = "on the GPU";
	return true;
}

bool
gstore_run_fetch(gstore_run *run)
{
	if (run->session == NULL)
		return false;
	CHECK_FOR_INTERRUPTS();
	pfree((void *) run->records);
	run->records = NULL;
	run->fetched = true;
	if (!gstore_session_run(run->session, GQUERY_FETCH, run->why))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the results of a query on the GPU cannot be fetched: %s", run->why)));
	take_piece(run);
	return true;
}

void
gstore_run_end(gstore_run *run)
{
	if (run->session != NULL)
		gstore_session_end(run->session, run->left > 0);
	run->session = NULL;
	run->records = NULL;
	run->count = run->at = run->left = 0;
}

void
gstore_run_explain(const gstore_run *run, const char *local, const char *label, ExplainState *es)
{
	if (local != NULL)
		ExplainPropertyText("Ran", psprintf("%s: %s", local, run->why), es);
	else if (run->place != NULL)
		ExplainPropertyText("Ran", run->place, es);
	ExplainPropertyInteger("GPU Rows Read", NULL, (int64) run->cost.rows, es);
	if (label != NULL)
		ExplainPropertyInteger(label, NULL, (int64) run->total, es);
	ExplainPropertyInteger("GPU Bytes Read", NULL, (int64) run->cost.read_bytes, es);
	if (es->timing)
		ExplainPropertyFloat("GPU Kernel Time", "ms", (double) run->cost.kernel_ns / 1e6, 3, es);
}
