/* See query_run.h. */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "postgres/pending.h"
#include "postgres/query_expr.h"
#include "postgres/query_run.h"
#include "postgres/settings.h"
#include "postgres/whole.h"

/* Of what fails when rows have been returned, so that the local plan cannot begin any more. */
#define REPEAT_HINT "Repeat the statement. With gstore_fdw.gpu_queries off it runs without the GPU."

/* A request, compiled. */
struct compiled_query
{
	bool				  done; /* it is */
	gquery_program		  program;
	uint64				  met; /* of gstore_run, when it was compiled */
	uint64				  scratch_bytes_max, hash_bytes_max;
	int					  record_words;
	const gquery_program *builds; /* of inner tables */
	int					  build_count;
	/* Columns of GQUERY_DISTANCE. Their spans are within `queries`. */
	const gquery_wanted_distance *distances;
	int							  distance_count;
	const void					 *queries;
	Size						  queries_bytes;
	/* Columns to be gathered. */
	uint64		  gather_max; /* 0: they are not */
	const uint32 *gather;
	int			  gather_count, vector_words;
	/* Programs over the groups of the one before. */
	const gquery_program *stages;
	int					  stage_count;
	gquery_wanted_text	  texts[GQUERY_KEYS_MAX];
	int					  text_count;
};

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
	run->cost.host_bytes += cost->host_bytes;
	run->cost.kernel_ns += cost->kernel_ns;
	run->cost.total_ns += cost->total_ns;
	run->cost.scratch_bytes = Max(run->cost.scratch_bytes, cost->scratch_bytes);
}

static void
count_cost(const gstore_run *run, const gquery_cost *cost)
{
	gstore_query_count(run->kind, GSTORE_QUERY_ROWS_READ, cost->rows);
	gstore_query_count(run->kind, GSTORE_QUERY_BYTES_READ, cost->read_bytes);
	gstore_query_count(run->kind, GSTORE_QUERY_KERNEL_NS, cost->kernel_ns);
}

/* ---- the memory file: the window, bitmaps, programs of inner tables, queries of distances, programs over groups, a batch */

/* A table as it is exported. */
typedef struct table_rows
{
	gstore_call_table rows;
	uint64			  store, version; /* of gquery_table */
} table_rows;

static uint64
bitmap_at(const table_rows *tables, int table)
{
	uint64 at = TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_window));

	for (int i = 0; i < table; i++)
		at += TYPEALIGN64(GQUERY_ALIGN, tables[i].rows.dead_bytes);
	return at;
}

static uint64
build_at(const table_rows *tables, const compiled_query *query, int inner)
{
	return bitmap_at(tables, 1 + query->build_count) +
		(uint64) inner * TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_program));
}

static uint64
queries_at(const table_rows *tables, const compiled_query *query)
{
	return build_at(tables, query, query->build_count);
}

static void
fill_table(gquery_window *window, const table_rows *tables, int number)
{
	const gstore_call_table *rows = &tables[number].rows;
	const uint64			 at = bitmap_at(tables, number);
	gquery_table			*table = &window->tables[number];

	table->store = tables[number].store;
	table->version = tables[number].version;
	if (rows->token != NULL)
		strlcpy(table->token, rows->token, sizeof table->token);
	table->rows = rows->rows;
	table->dead = (gquery_span){at, rows->dead_bytes};
	table->deleted_at = rows->deleted_at;
	table->deleted_bytes = rows->deleted_bytes;
	if (rows->dead_bytes > 0)
		memcpy((uint8 *) window + at, rows->dead, rows->dead_bytes);
}

static void
fill_builds(gquery_window *window, const table_rows *tables, const compiled_query *query)
{
	for (int i = 0; i < query->build_count; i++)
	{
		const uint64 at = build_at(tables, query, i);

		window->builds[i] = (gquery_span){at, sizeof(gquery_program)};
		memcpy((uint8 *) window + at, &query->builds[i], sizeof(gquery_program));
	}
}

static void
fill_distances(gquery_window *window, const table_rows *tables, const compiled_query *query)
{
	const uint64 at = queries_at(tables, query);

	window->distance_count = (uint32) query->distance_count;
	for (int i = 0; i < query->distance_count; i++)
	{
		window->distances[i] = query->distances[i];
		window->distances[i].query.at += at;
	}
	if (query->queries_bytes > 0)
		memcpy((uint8 *) window + at, query->queries, query->queries_bytes);
}

static uint64
stages_at(const table_rows *tables, const compiled_query *query)
{
	return TYPEALIGN64(GQUERY_ALIGN, queries_at(tables, query) + query->queries_bytes);
}

static uint64
batch_at(const table_rows *tables, const compiled_query *query)
{
	return stages_at(tables, query) +
		TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_program)) * (uint64) query->stage_count;
}

static uint64
used_bytes(const table_rows *tables, const gstore_request *request, const compiled_query *query)
{
	return batch_at(tables, query) +
		(request->batch == NULL ? 0 : gstore_row_batch_bytes(request->batch, &query->program));
}

static void
fill_stages(gquery_window *window, const table_rows *tables, const compiled_query *query)
{
	uint64 at = stages_at(tables, query);

	window->stage_count = (uint32) query->stage_count;
	for (int i = 0; i < query->stage_count; i++)
	{
		window->stages[i] = (gquery_span){at, sizeof(gquery_program)};
		memcpy((uint8 *) window + at, &query->stages[i], sizeof(gquery_program));
		at += TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_program));
	}
}

/* False: a value has no word. */
static bool
fill_batch(gquery_window *window, const table_rows *tables, const gstore_request *request,
		   const compiled_query *query)
{
	const uint64 at = batch_at(tables, query);

	if (request->batch == NULL)
		return true;
	window->batched = 1;
	window->batch = (gquery_span){at, gstore_row_batch_bytes(request->batch, &query->program)};
	return gstore_row_batch_write(request->batch, &query->program, (uint8 *) window + at);
}

static void
fill_window(gquery_window *window, const table_rows *tables, const gstore_request *request,
			const compiled_query *query)
{
	memset(window, 0, sizeof *window);
	window->magic = GQUERY_MAGIC;
	window->version = GQUERY_VERSION;
	window->used = used_bytes(tables, request, query);
	window->role = GetSessionUserId();
	window->table_count = 1 + (uint32) query->build_count;
	for (int i = 0; i <= query->build_count; i++)
		fill_table(window, tables, i);
	fill_builds(window, tables, query);
	fill_distances(window, tables, query);
	fill_stages(window, tables, query);
	window->text_count = (uint32) query->text_count;
	memcpy(window->texts, query->texts, sizeof window->texts);
	window->program = query->program;
	window->scratch_bytes_max = query->scratch_bytes_max;
	window->hash_bytes_max = query->hash_bytes_max;
	window->list_max = request->list_max;
	window->first_row = request->first_row;
	window->slice_rows = request->slice_rows;
	window->gather_max = query->gather_max;
	window->gather_count = (uint32) query->gather_count;
	window->gather_vectors = query->vector_words > 0;
	if (query->gather_count > 0)
		memcpy(window->gather, query->gather, sizeof(uint32) * (Size) query->gather_count);
	window->continued = request->after != NULL;
	window->nearest = request->nearest;
	if (request->after != NULL)
		memcpy(window->after, request->after, sizeof(int64) * (Size) request->after_words);
}

/* ---- memory */

uint64
gstore_join_memory(void)
{
	uint64 bytes = PG_UINT64_MAX;

	if (gstore_gpu_join_memory_mb >= 0)
		return (uint64) gstore_gpu_join_memory_mb * 1024 * 1024;
	LWLockAcquire(gstore->lock, LW_SHARED);
	for (uint32 i = 0; i < gstore->report.device_count; i++)
		bytes = Min(bytes, gstore->report.devices[i].budget_bytes);
	if (gstore->report.device_count > 0)
		bytes = (bytes + gstore->report.host_budget_bytes) / 2;
	LWLockRelease(gstore->lock);
	return bytes;
}

/* ---- a run */

static bool
compile_request(gstore_run *run, const gstore_request *request, compiled_query *query)
{
	strlcpy(run->why, "too many instructions or values", sizeof run->why);
	query->done = false;
	query->met = run->met;
	if (!gstore_query_compile(request->compiled, request->context, request->view, !request->unasked,
							  run->met, &query->program))
		return false;
	query->record_words = gstore_query_record_words(request->compiled);
	if (request->after != NULL && query->record_words != request->after_words)
	{
		strlcpy(run->why, "a value that was not known is", sizeof run->why);
		return false;
	}
	query->gather_max = request->gather_max;
	if (!gstore_query_gathered(request->compiled, &query->gather, &query->gather_count,
							   &query->vector_words))
		query->gather_max = query->gather_count = query->vector_words = 0;
	query->build_count = gstore_query_builds(request->compiled, &query->builds);
	query->distance_count = gstore_query_distances(request->compiled, &query->distances,
												   &query->queries, &query->queries_bytes);
	query->stage_count = gstore_query_stages(request->compiled, &query->stages);
	query->text_count = gstore_query_texts(request->compiled, query->texts);
	query->done = true;
	return true;
}

/* A transaction that has changed the table sees rows that are in no version. */
static bool
export_table(gstore_run *run, Relation relation, gstore_view *view, table_rows *out)
{
	gstore_answer refused;

	memset(out, 0, sizeof *out);
	if (view->rows == 0)
		return true;
	if (!gstore_whole_export(relation, view, GSTORE_EXPORT_QUERY, &out->rows, &refused))
	{
		strlcpy(run->why, refused.text, sizeof run->why);
		run->failure = refused.status == GVM_E_NOSPACE ? GSTORE_QUERY_NO_ROOM
													   : GSTORE_QUERY_UNAVAILABLE;
		return false;
	}
	if (gstore_pending_find(RelationGetRelid(relation)) != NULL)
		return true;
	out->store = view->name.store;
	out->version = view->revision;
	return true;
}

static bool
export_tables(gstore_run *run, const gstore_request *request, table_rows *out)
{
	gstore_view *views = request->view;

	if (request->batch != NULL)
		out[0] = (table_rows){.rows.rows = views[0].rows};
	else if (!export_table(run, request->relation, &views[0], &out[0]))
		return false;
	for (int i = 0; i < request->inner_count; i++)
	{
		strlcpy(run->why, "tables are on several GPUs", sizeof run->why);
		if ((views[1 + i].rows > 0 && views[1 + i].name.device != views[0].name.device) ||
			!export_table(run, request->inner[i], &views[1 + i], &out[1 + i]))
			return false;
	}
	return true;
}

/* Compiled, and written to the window. NULL: it cannot run. */
static gstore_session *
prepare_request(gstore_run *run, const gstore_request *request, compiled_query *query)
{
	table_rows		tables[GQUERY_TABLES_MAX];
	gstore_session *session;

	run->failure = GSTORE_QUERY_UNSUPPORTED;
	if ((!query->done || query->met != run->met) && !compile_request(run, request, query))
		return NULL;
	gstore_wait_ready();
	if (!export_tables(run, request, tables))
		return NULL;
	run->failure = GSTORE_QUERY_UNAVAILABLE;
	session = gstore_session_begin(request->view->name.device, used_bytes(tables, request, query),
								   run->why);
	if (session == NULL)
		return NULL;
	fill_window(gstore_session_window(session), tables, request, query);
	if (!fill_batch(gstore_session_window(session), tables, request, query))
	{
		strlcpy(run->why, "a number has too many digits, or is NaN", sizeof run->why);
		run->failure = GSTORE_QUERY_DECIMALS;
		gstore_session_end(session, false);
		return NULL;
	}
	return session;
}

/* NULL: it cannot run; raised: what a row has raised there. */
static gstore_session *
take_answer(gstore_run *run, const gstore_request *request, compiled_query *query, uint32 *raised)
{
	gstore_session *session = run->sent != NULL ? run->sent : prepare_request(run, request, query);

	run->sent = NULL;
	if (session == NULL || gstore_session_run(session, GQUERY_RUN, run->why))
		return session;
	*raised = gstore_session_raised(session);
	run->failure = gstore_session_failure(session);
	return NULL;
}

/* Those that no row comes to are not evaluated: they may raise an error. */
static void
note_met(gstore_run *run, uint32 raised)
{
	const uint32 number = raised >> GQUERY_UNKNOWN_SHIFT;

	if ((raised & ((1u << GQUERY_UNKNOWN_SHIFT) - 1)) == GQUERY_E_UNKNOWN && number < GSTORE_MET_MAX)
		run->met |= UINT64CONST(1) << number;
}

/* Where the request goes on. */
static void
take_next_row(gstore_run *run, const gstore_request *request)
{
	const gquery_window *window = gstore_session_window(run->session);

	run->next_row = window->next_row < request->view[0].rows ? window->next_row : 0;
	run->slice_rows = window->next_slice_rows;
	if (run->next_row > 0 && run->next_row <= request->first_row)
		elog(ERROR, "the executor of queries has returned no valid result");
}

/* Records have texts behind their other words. */
static void
add_text_words(gstore_run *run, int texts)
{
	const gquery_window *window = gstore_session_window(run->session);

	for (int i = 0; i < texts; i++)
	{
		run->text_words[i] = window->text_words[i];
		if (run->text_words[i] == 0 || run->text_words[i] > 1 + GQUERY_NUMBERED_BYTES / sizeof(uint64))
			elog(ERROR, "the executor of queries has returned no valid result");
		run->words += (int) run->text_words[i];
	}
}

/* False, with more values that a row has come to: it is to be tried again. */
static bool
try_run(gstore_run *run, const gstore_request *request, compiled_query *query)
{
	uint32			raised = GQUERY_E_NONE;
	gquery_cost		cost;
	gstore_session *session;

	session = take_answer(run, request, query, &raised);
	note_met(run, raised);
	if (session == NULL)
		return false;
	cost = gstore_session_window(session)->cost;
	add_cost(run, &cost);
	count_cost(run, &cost);
	run->session = session;
	run->gathered = query->gather_max > 0 && gstore_session_window(session)->gathered != 0;
	run->words = run->gathered ? 2 + query->gather_count + query->vector_words : query->record_words;
	add_text_words(run, query->text_count);
	run->left = gstore_session_window(session)->record_count;
	run->total += run->left;
	if (request->nearest == 0 && (run->gathered || run->kind != GSTORE_QUERY_FILTER))
		gstore_query_count(run->kind, GSTORE_QUERY_ROWS_RETURNED, run->left);
	run->fetched = request->first_row > 0 || request->after != NULL;
	take_next_row(run, request);
	take_piece(run);
	run->place = "on the GPU";
	return true;
}

void
gstore_run_forget(gstore_run *run)
{
	if (run->records != NULL)
		pfree((void *) run->records);
	run->records = NULL;
	run->count = run->at = 0;
}

static void
forget_query(gstore_run *run)
{
	pfree(run->query);
	run->query = NULL;
}

static void
create_query(gstore_run *run)
{
	run->query = palloc(sizeof *run->query);
	run->query->done = false;
	run->query->scratch_bytes_max = (uint64) gstore_gpu_query_memory_mb * 1024 * 1024;
	run->query->hash_bytes_max = gstore_join_memory();
}

gstore_start
gstore_run_start(gstore_run *run, const gstore_request *request)
{
	if (run->sent != NULL)
		return GSTORE_STARTED;
	if (gstore_session_count_sent(request->view[0].name.device) >= GSTORE_SENT_MOST)
		return GSTORE_START_LATER;
	create_query(run);
	run->sent = prepare_request(run, request, run->query);
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
		create_query(run);
	while (!(done = try_run(run, request, run->query)) && run->met != met)
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

bool
gstore_run_try_fetch(gstore_run *run)
{
	CHECK_FOR_INTERRUPTS();
	gstore_run_forget(run);
	run->fetched = true;
	if (!gstore_session_run(run->session, GQUERY_FETCH, run->why))
	{
		gstore_query_count(run->kind, gstore_session_failure(run->session), 1);
		run->session = NULL;
		run->left = 0;
		return false;
	}
	take_piece(run);
	return true;
}

void
gstore_run_fail(const gstore_run *run)
{
	ereport(ERROR,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("a join on the GPU cannot go on: %s", run->why), errhint(REPEAT_HINT)));
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
	old = MemoryContextSwitchTo(context);
	if (!gstore_run_begin(run, request))
		gstore_run_fail(run);
	MemoryContextSwitchTo(old);
	return true;
}

bool
gstore_run_fetch(gstore_run *run)
{
	if (run->session == NULL)
		return false;
	if (!gstore_run_try_fetch(run))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("the results of a query on the GPU cannot be fetched: %s", run->why),
				 errhint(REPEAT_HINT)));
	return true;
}

uint64 *
gstore_run_take(gstore_run *run, uint64 *count)
{
	const Size words = (Size) run->words;
	uint64	  *out, taken = 0;

	*count = run->count + run->left;
	out = MemoryContextAllocHuge(CurrentMemoryContext, sizeof *out * Max(*count * words, 1));
	for (;;)
	{
		memcpy(out + taken * words, run->records, sizeof *out * words * run->count);
		taken += run->count;
		if (run->session == NULL)
		{
			gstore_run_forget(run);
			return out;
		}
		if (!gstore_run_try_fetch(run))
		{
			pfree(out);
			return NULL;
		}
	}
}

static int
compare_words(const void *left, const void *right, void *argument)
{
	const int64 *l = left, *r = right;
	const int	 words = *(const int *) argument;

	CHECK_FOR_INTERRUPTS(); /* of millions of records */
	for (int i = 0; i < words; i++)
		if (l[i] != r[i])
			return l[i] < r[i] ? -1 : 1;
	return 0;
}

void
gstore_sort_records(uint64 *records, uint64 count, int record_words, int words)
{
	qsort_arg(records, count, sizeof *records * (Size) record_words, compare_words, &words);
}

bool
gstore_run_sort(gstore_run *run, int words)
{
	uint64	count;
	uint64 *records = gstore_run_take(run, &count);

	if (records == NULL)
		return false;
	gstore_sort_records(records, count, run->words, words);
	run->records = records;
	run->count = count;
	run->at = 0;
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
	if (run->cost.host_bytes > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyInteger("GPU Bytes on Host", NULL, (int64) run->cost.host_bytes, es);
	if (es->timing)
		ExplainPropertyFloat("GPU Kernel Time", "ms", (double) run->cost.kernel_ns / 1e6, 3, es);
}
