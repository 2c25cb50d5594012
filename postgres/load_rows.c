/*
 * Rows of a segment, one by one; see load.h.
 *
 * The segment is written, and checked, as any other, but to a store of its own, from which rows are read as from a table.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "utils/memutils.h"

#include "postgres/load.h"
#include "postgres/rework.h"
#include "postgres/scan.h"

typedef struct coercion
{
	int		   index;
	ExprState *evaluate;
} coercion;

typedef struct gstore_load_rows
{
	EState		   *estate;
	ResultRelInfo  *result;
	TupleTableSlot *slot;
	gstore_default *defaults;
	int				default_count;
	coercion	   *coercions;
	int				coercion_count;
	gstore_view		scratch; /* of the segment */
	dsa_pointer		store;	 /* in which that is */
} gstore_load_rows;

static void
prepare_coercions(const gstore_loading *load, gstore_load_rows *rows)
{
	const TupleDesc desc = RelationGetDescr(load->relation);

	rows->coercions = palloc(sizeof(coercion) * (Size) Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Expr *coerce;

		if (TupleDescAttr(desc, i)->attisdropped || bms_is_member(i + 1, load->missing))
			continue;
		coerce = gstore_coercion_of(TupleDescAttr(desc, i));
		if (coerce != NULL)
			rows->coercions[rows->coercion_count++] = (coercion){
				i, ExecPrepareExpr(coerce, rows->estate)};
	}
}

static gstore_load_rows *
begin_rows(gstore_loading *load)
{
	MemoryContext	  old = MemoryContextSwitchTo(load->context);
	gstore_load_rows *rows = palloc0(sizeof *rows);

	rows->estate = CreateExecutorState();
	MemoryContextSwitchTo(rows->estate->es_query_cxt);
	rows->slot = MakeSingleTupleTableSlot(RelationGetDescr(load->relation), &TTSOpsVirtual);
	rows->slot->tts_tableOid = RelationGetRelid(load->relation); /* checks may use it */
	rows->result = makeNode(ResultRelInfo);
	InitResultRelInfo(rows->result, load->relation, 0, NULL, 0);
	rows->default_count = gstore_prepare_defaults(load->relation, load->missing, rows->estate,
												  &rows->defaults);
	prepare_coercions(load, rows);
	MemoryContextSwitchTo(load->context);
	rows->scratch = (gstore_view){.arrow = true,
								  .column_count = RelationGetDescr(load->relation)->natts};
	rows->store = gstore_make_scratch(load->pending, true, &rows->scratch.name);
	MemoryContextSwitchTo(old);
	return rows;
}

static void
coerce_values(const gstore_load_rows *rows)
{
	ExprContext *context = GetPerTupleExprContext(rows->estate);

	for (int i = 0; i < rows->coercion_count; i++)
	{
		const int index = rows->coercions[i].index;

		context->caseValue_datum = rows->slot->tts_values[index];
		context->caseValue_isNull = rows->slot->tts_isnull[index];
		rows->slot->tts_values[index] = ExecEvalExprSwitchContext(
			rows->coercions[i].evaluate, context, &rows->slot->tts_isnull[index]);
	}
}

static void
check_row(const gstore_loading *load, const gstore_load_rows *rows)
{
	if (RelationGetDescr(load->relation)->constr != NULL)
		ExecConstraints(rows->result, rows->slot, rows->estate);
	if (load->relation->rd_rel->relispartition)
		(void) ExecPartitionCheck(rows->result, rows->slot, rows->estate, true);
}

void
gstore_load_insert(gstore_loading *load, const gstore_load_segment *segment)
{
	gstore_load_rows *rows = load->rows;
	gstore_row_range  range = {0};
	gstore_walk		 *walk;

	if (rows == NULL)
		rows = load->rows = begin_rows(load);
	rows->scratch.rows = rows->scratch.live_rows = 0;
	rows->scratch.columns = gstore_describe(load->relation, true);
	(void) gstore_load_append(load, segment, &rows->scratch);
	range.view = rows->scratch;
	range.limit = rows->scratch.rows;
	walk = gstore_walk_begin(load->relation, &range, 1);
	while (gstore_walk_next(walk, rows->slot))
	{
		ResetPerTupleExprContext(rows->estate);
		coerce_values(rows); /* first, as generated columns see them */
		gstore_set_defaults(rows->defaults, rows->default_count, rows->slot, rows->estate);
		check_row(load, rows);
		gstore_insert(load->pending, rows->slot);
	}
	gstore_walk_end(walk);
}

void
gstore_load_rows_end(gstore_loading *load)
{
	if (load->rows == NULL)
		return;
	ExecDropSingleTupleTableSlot(load->rows->slot);
	FreeExecutorState(load->rows->estate);
	gstore_pending_release_store(load->pending, load->rows->store);
	load->rows = NULL;
}
