/* See query_request.h. */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/rel.h"

#include "postgres/memory.h"
#include "postgres/pending.h"
#include "postgres/query_request.h"
#include "postgres/settings.h"
#include "postgres/whole.h"

/* A request, compiled. */
struct gstore_prepared
{
	bool				  done; /* it is */
	gquery_program		  program;
	uint64				  met; /* when it was compiled */
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

gstore_prepared *
gstore_request_create(void)
{
	gstore_prepared *query = palloc(sizeof *query);

	query->done = false;
	query->scratch_bytes_max = (uint64) gstore_gpu_query_memory_mb * 1024 * 1024;
	query->hash_bytes_max = gstore_join_memory();
	return query;
}

gstore_record_shape
gstore_request_shape(const gstore_prepared *query)
{
	return (gstore_record_shape){
		.words = query->record_words,
		.gathered_words = query->gather_max > 0 ? 2 + query->gather_count + query->vector_words : 0,
		.texts = query->text_count};
}

/* ---- compiled */

static bool
compile_request(const gstore_request *request, gstore_prepared *query, uint64 met, char *why)
{
	strlcpy(why, "too many instructions or values", GSTORE_SESSION_WHY_BYTES);
	query->done = false;
	query->met = met;
	if (!gstore_query_compile(request->compiled, request->context, request->view, !request->unasked,
							  met, &query->program))
	{
		if (gstore_query_is_outdated(request->compiled))
			strlcpy(why, "settings, or scales of parameters, are others than when it was prepared",
					GSTORE_SESSION_WHY_BYTES);
		return false;
	}
	query->record_words = gstore_query_record_words(request->compiled);
	if (request->after != NULL && query->record_words != request->after_words)
	{
		strlcpy(why, "a value that was not known is", GSTORE_SESSION_WHY_BYTES);
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

/* ---- the tables */

/* A table as it is exported. */
typedef struct table_rows
{
	gstore_call_table rows;
	uint64			  store, version; /* of gquery_table */
} table_rows;

/* A transaction that has changed the table sees rows that are in no version. */
static bool
export_table(Relation relation, gstore_view *view, gstore_export_kind kind, table_rows *out,
			 char *why, gstore_query_counter *failure)
{
	gstore_answer refused;

	memset(out, 0, sizeof *out);
	if (view->rows == 0)
		return true;
	if (!gstore_whole_export(relation, view, kind, &out->rows, &refused))
	{
		strlcpy(why, refused.text, GSTORE_SESSION_WHY_BYTES);
		*failure = refused.status == GVM_E_NOSPACE ? GSTORE_QUERY_NO_ROOM : GSTORE_QUERY_UNAVAILABLE;
		return false;
	}
	if (gstore_pending_find(RelationGetRelid(relation)) != NULL)
		return true;
	out->store = view->name.store;
	out->version = view->revision;
	return true;
}

static bool
export_tables(const gstore_request *request, table_rows *out, char *why, gstore_query_counter *failure)
{
	const gstore_export_kind kind = request->must_run ? GSTORE_EXPORT_FURTHER : GSTORE_EXPORT_QUERY;
	gstore_view				*views = request->view;

	if (request->batch != NULL)
		out[0] = (table_rows){.rows.rows = views[0].rows};
	else if (!export_table(request->relation, &views[0], kind, &out[0], why, failure))
		return false;
	for (int i = 0; i < request->inner_count; i++)
	{
		strlcpy(why, "tables are on several GPUs", GSTORE_SESSION_WHY_BYTES);
		if ((views[1 + i].rows > 0 && views[1 + i].name.device != views[0].name.device) ||
			!export_table(request->inner[i], &views[1 + i], kind, &out[1 + i], why, failure))
			return false;
	}
	return true;
}

/* ---- the memory file */

/* Where its parts begin, behind the window: bitmaps of deleted rows, programs of inner tables, points of distances, programs over groups, a batch. */
typedef struct layout
{
	uint64 dead[GQUERY_TABLES_MAX], builds, queries, stages, batch, used;
} layout;

#define PROGRAM_BYTES TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_program))

static layout
lay_out(const table_rows *tables, const gstore_request *request, const gstore_prepared *query)
{
	layout at;
	uint64 end = TYPEALIGN64(GQUERY_ALIGN, sizeof(gquery_window));

	for (int i = 0; i <= query->build_count; i++)
	{
		at.dead[i] = end;
		end += TYPEALIGN64(GQUERY_ALIGN, tables[i].rows.dead_bytes);
	}
	at.builds = end;
	at.queries = at.builds + PROGRAM_BYTES * (uint64) query->build_count;
	at.stages = TYPEALIGN64(GQUERY_ALIGN, at.queries + query->queries_bytes);
	at.batch = at.stages + PROGRAM_BYTES * (uint64) query->stage_count;
	at.used = at.batch +
		(request->batch == NULL ? 0 : gstore_row_batch_bytes(request->batch, &query->program));
	return at;
}

static void
write_table(gquery_window *window, int number, const table_rows *from, uint64 at)
{
	const gstore_call_table *rows = &from->rows;
	gquery_table			*table = &window->tables[number];

	table->store = from->store;
	table->version = from->version;
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
write_programs(gquery_window *window, uint64 at, const gquery_program *programs, int count,
			   gquery_span *spans)
{
	for (int i = 0; i < count; i++)
	{
		spans[i] = (gquery_span){at, sizeof(gquery_program)};
		memcpy((uint8 *) window + at, &programs[i], sizeof(gquery_program));
		at += PROGRAM_BYTES;
	}
}

static void
write_distances(gquery_window *window, uint64 at, const gstore_prepared *query)
{
	window->distance_count = (uint32) query->distance_count;
	for (int i = 0; i < query->distance_count; i++)
	{
		window->distances[i] = query->distances[i];
		window->distances[i].query.at += at;
	}
	if (query->queries_bytes > 0)
		memcpy((uint8 *) window + at, query->queries, query->queries_bytes);
}

/* False: a value has no word. */
static bool
write_batch(gquery_window *window, const layout *at, gstore_row_batch *batch,
			const gquery_program *program)
{
	if (batch == NULL)
		return true;
	window->batched = 1;
	window->batch = (gquery_span){at->batch, at->used - at->batch};
	return gstore_row_batch_write(batch, program, (uint8 *) window + at->batch);
}

static void
write_window(gquery_window *window, const table_rows *tables, const layout *at,
			 const gstore_request *request, const gstore_prepared *query)
{
	memset(window, 0, sizeof *window);
	window->magic = GQUERY_MAGIC;
	window->version = GQUERY_VERSION;
	window->used = at->used;
	window->role = GetSessionUserId();
	window->table_count = 1 + (uint32) query->build_count;
	for (int i = 0; i <= query->build_count; i++)
		write_table(window, i, &tables[i], at->dead[i]);
	write_programs(window, at->builds, query->builds, query->build_count, window->builds);
	write_distances(window, at->queries, query);
	window->stage_count = (uint32) query->stage_count;
	write_programs(window, at->stages, query->stages, query->stage_count, window->stages);
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

gstore_session *
gstore_request_prepare(const gstore_request *request, gstore_prepared *query, uint64 met,
					   char why[GSTORE_SESSION_WHY_BYTES], gstore_query_counter *failure)
{
	table_rows		tables[GQUERY_TABLES_MAX];
	layout			at;
	gstore_session *session;

	*failure = GSTORE_QUERY_UNSUPPORTED;
	if ((!query->done || query->met != met) && !compile_request(request, query, met, why))
		return NULL;
	gstore_wait_ready();
	if (!export_tables(request, tables, why, failure))
		return NULL;
	*failure = GSTORE_QUERY_UNAVAILABLE;
	at = lay_out(tables, request, query);
	session = gstore_session_begin(request->view->name.device, at.used, why);
	if (session == NULL)
		return NULL;
	write_window(gstore_session_window(session), tables, &at, request, query);
	if (write_batch(gstore_session_window(session), &at, request->batch, &query->program))
		return session;
	strlcpy(why, "a number has too many digits, or is NaN", GSTORE_SESSION_WHY_BYTES);
	*failure = GSTORE_QUERY_DECIMALS;
	gstore_session_end(session, false);
	return NULL;
}
