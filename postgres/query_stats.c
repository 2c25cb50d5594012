/* See query_stats.h. A counter is an atomic by itself: a reader may see a query's rows before its bytes. */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "postgres/query_stats.h"

PG_FUNCTION_INFO_V1(gstore_fdw_queries);
PG_FUNCTION_INFO_V1(gstore_fdw_queries_reset);

typedef struct query_stats
{
	pg_atomic_uint64 counts[GSTORE_QUERY_KINDS][GSTORE_QUERY_COUNTERS];
	pg_atomic_uint64 reset; /* TimestampTz */
} query_stats;

static query_stats *stats; /* NULL: the library was not loaded at server start */

static const char *const kind_names[] = {"filter", "aggregate", "join", "order", "search"};

StaticAssertDecl(lengthof(kind_names) == GSTORE_QUERY_KINDS, "each kind has a name");

Size
gstore_query_stats_size(void)
{
	return sizeof(query_stats);
}

void
gstore_query_stats_attach(void *place, bool found)
{
	stats = place;
	if (found)
		return;
	for (int kind = 0; kind < GSTORE_QUERY_KINDS; kind++)
		for (int i = 0; i < GSTORE_QUERY_COUNTERS; i++)
			pg_atomic_init_u64(&stats->counts[kind][i], 0);
	pg_atomic_init_u64(&stats->reset, (uint64) GetCurrentTimestamp());
}

void
gstore_query_count(gstore_query_kind kind, gstore_query_counter counter, uint64 more)
{
	if (stats != NULL && more > 0)
		pg_atomic_fetch_add_u64(&stats->counts[kind][counter], (int64) more);
}

void
gstore_query_add_cost(gstore_query_kind kind, gstore_run_figures *figures, const gquery_cost *cost)
{
	gquery_cost *sum = &figures->cost;

	sum->rows += cost->rows;
	sum->read_bytes += cost->read_bytes;
	sum->host_bytes += cost->host_bytes;
	sum->kernel_ns += cost->kernel_ns;
	sum->total_ns += cost->total_ns;
	sum->scratch_bytes = Max(sum->scratch_bytes, cost->scratch_bytes);
	gstore_query_count(kind, GSTORE_QUERY_ROWS_READ, cost->rows);
	gstore_query_count(kind, GSTORE_QUERY_BYTES_READ, cost->read_bytes);
	gstore_query_count(kind, GSTORE_QUERY_KERNEL_NS, cost->kernel_ns);
}

void
gstore_query_explain(const gstore_run_figures *figures, const char *local, const char *why,
					 const char *label, ExplainState *es)
{
	const gquery_cost *cost = &figures->cost;

	if (local != NULL)
		ExplainPropertyText("Ran", psprintf("%s: %s", local, why), es);
	else if (figures->place != NULL)
		ExplainPropertyText("Ran", figures->place, es);
	ExplainPropertyInteger("GPU Rows Read", NULL, (int64) cost->rows, es);
	if (label != NULL)
		ExplainPropertyInteger(label, NULL, (int64) figures->records, es);
	ExplainPropertyInteger("GPU Bytes Read", NULL, (int64) cost->read_bytes, es);
	if (cost->host_bytes > 0 || es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyInteger("GPU Bytes on Host", NULL, (int64) cost->host_bytes, es);
	if (es->timing)
		ExplainPropertyFloat("GPU Kernel Time", "ms", (double) cost->kernel_ns / 1e6, 3, es);
}

Datum
gstore_fdw_queries(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int kind = 0; stats != NULL && kind < GSTORE_QUERY_KINDS; kind++)
	{
		Datum values[1 + GSTORE_QUERY_COUNTERS + 1];
		bool  nulls[lengthof(values)] = {0};

		values[0] = CStringGetTextDatum(kind_names[kind]);
		for (int i = 0; i < GSTORE_QUERY_COUNTERS; i++)
		{
			const uint64 count = pg_atomic_read_u64(&stats->counts[kind][i]);

			values[1 + i] = i == GSTORE_QUERY_KERNEL_NS ? Float8GetDatum((double) count / 1e6)
														: Int64GetDatum((int64) count);
		}
		values[1 + GSTORE_QUERY_COUNTERS] = TimestampTzGetDatum(
			(TimestampTz) pg_atomic_read_u64(&stats->reset));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* Who may call it is a matter of GRANT, as of pg_stat_reset(). */
Datum
gstore_fdw_queries_reset(PG_FUNCTION_ARGS)
{
	if (stats != NULL)
	{
		for (int kind = 0; kind < GSTORE_QUERY_KINDS; kind++)
			for (int i = 0; i < GSTORE_QUERY_COUNTERS; i++)
				pg_atomic_write_u64(&stats->counts[kind][i], 0);
		pg_atomic_write_u64(&stats->reset, (uint64) GetCurrentTimestamp());
	}
	PG_RETURN_VOID();
}
