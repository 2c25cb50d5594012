/*
 * postgres/query_filter.h - conditions of a scan that the GPU evaluates before the first row: the scan takes rows that do not pass
 * for deleted ones.
 */
#ifndef GSTORE_QUERY_FILTER_H
#define GSTORE_QUERY_FILTER_H

#include "postgres.h"

#include "commands/explain.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"

#include "postgres/query_run.h"
#include "postgres/scan.h"

/*
 * Planning: those of the conditions (RestrictInfo) that the GPU is to evaluate, before all others. None of them is evaluated for
 * rows that row security keeps from the user, and none that may raise an error comes before a condition that PostgreSQL evaluates
 * first. NIL: there are none.
 */
extern List *
gstore_filter_choose(PlannerInfo *root, const RelOptInfo *rel, List *infos, gstore_query_size *size);

/* Of a scan that is executed. Lives in the current memory context. */
typedef struct gstore_filter gstore_filter;

/* columns: attribute numbers of those that the scan reads of rows that pass, of the descriptor. */
extern gstore_filter *gstore_filter_create(List *clauses, Index relation, const Bitmapset *columns,
										   TupleDesc descriptor, PlanState *parent);

/*
 * Before the same gstore_filter_run(), which then takes the answer; until that gstore_filter_forget() gives it up. unasked: as in
 * gstore_request.
 */
extern gstore_start
gstore_filter_start(gstore_filter *filter, Relation relation, const gstore_row_range *ranges,
					int count, ExprContext *context, bool unasked);
extern void		   gstore_filter_forget(gstore_filter *filter);
extern gstore_run *gstore_filter_run_of(gstore_filter *filter);

/*
 * For rows of these ranges, with the parameters of now. False: it cannot run there, and the conditions are yet to be evaluated.
 */
extern bool gstore_filter_run(gstore_filter *filter, Relation relation,
							  const gstore_row_range *ranges, int count, ExprContext *context);

/* Of those that passed, the first one from this row on; UINT64_MAX: there is none. */
extern uint64 gstore_filter_next(const gstore_filter *filter, uint64 row);

/*
 * Where few rows have passed the GPU has gathered their columns: then they are taken from here, in their order. False: there is
 * none any more.
 */
extern bool gstore_filter_has_gathered(const gstore_filter *filter);
extern bool gstore_filter_take(gstore_filter *filter, TupleTableSlot *slot);
extern void gstore_filter_rewind(gstore_filter *filter);

extern void gstore_filter_explain(const gstore_filter *filter, ExplainState *es);

#endif
