/*
 * postgres/query_join.h - joins of tables of ours within one query on the GPU (docs/design/query-joins.md): which there are, and their
 * instructions.
 */
#ifndef GSTORE_QUERY_JOIN_H
#define GSTORE_QUERY_JOIN_H

#include "postgres.h"

#include "commands/explain.h"
#include "foreign/fdwapi.h"
#include "nodes/pathnodes.h"

#include "postgres/query_compile.h"
#include "postgres/query_expr.h"

/* A table that the rows so far are joined with: the inner one. */
typedef struct gstore_query_join
{
	Index		relation;
	gquery_join kind;
	List	   *keys;		/* OpExpr: an expression of it equals one of the tables before */
	List	   *filters;	/* of its rows, before they are joined */
	List	   *matches;	/* of other joins than inner ones: what is a match, beside the keys */
	List	   *conditions; /* of joined rows */
} gstore_query_join;

/* ---- planning */

/* How a relation is made on the GPU: the rows of one table, joined with others in this order. */
typedef struct gstore_join_plan
{
	Index  outer;
	List  *filters; /* of its rows */
	List  *joins;	/* of gstore_query_join */
	Relids tables;
	double probes;	   /* what it costs beside the outer table's rows, in probes of a hash table */
	double hash_bytes; /* of its hash tables */
	/* Of a joined relation: the cheapest path without joins on the GPU that is known; NULL: there is none. */
	Path *local;
	/*
	 * Not NULL: the outer rows are this relation's, whatever it is, in batches (query_heap.h); there are no
	 * filters, and `outer` is 0.
	 */
	RelOptInfo *rows;
	Cost		total; /* then: of the path */
} gstore_join_plan;

/* GetForeignJoinPaths. */
extern void gstore_join_callbacks(FdwRoutine *routine);

/* Whether an expression has columns of a table that is joined by a semi or anti join, as those of equivalence classes may. */
extern bool
gstore_join_hides(PlannerInfo *root, const gstore_join_plan *plan, const List *expressions);
/* Whether a joined relation may be made on the GPU. */
extern bool gstore_join_is_offered(const PlannerInfo *root, const RelOptInfo *joined);
/*
 * The outer relation is made as `before` says, and joined with one more table. NULL: that is not for the GPU;
 * expressions are not looked at.
 */
extern gstore_join_plan *
gstore_join_extend(PlannerInfo *root, const gstore_join_plan *before, RelOptInfo *joined,
				   RelOptInfo *outer, RelOptInfo *inner, JoinType type, List *infos);
/* What is to be compiled, but for what becomes of rows. */
extern gstore_query gstore_join_query(PlannerInfo *root, const gstore_join_plan *plan);
/* Of the plan's probes, what its hash tables cost; own: of tables that the transaction has changed, which each query builds anew. */
extern Cost gstore_join_builds(PlannerInfo *root, const gstore_join_plan *plan, bool own);

/* Whether a path to rows of a query joins some of them on the GPU. */
extern bool gstore_join_has_gpu(const Path *path);

/* Of one of our tables, or a join of them; NULL: it is not made on the GPU. */
extern const gstore_join_plan *gstore_join_find(PlannerInfo *root, RelOptInfo *rel);

/*
 * Joins in a plan: expressions that are added to its scan tuple, each list of them as one AND, and numbers for
 * its fdw_private; and back.
 * tables: of the plan.
 */
extern List *gstore_join_encode(const gstore_join_plan *join, List **expressions);
extern void	 gstore_join_decode(const List *numbers, const Bitmapset *tables, List *expressions,
								gstore_join_plan *join);

/* ---- instructions: query_join_emit.c */

/* A row without a match of one of them goes no further: without rows of that table, PostgreSQL may evaluate nothing of the outer one's. */
extern bool gstore_join_leaves_out(const List *joins);

/* Of all joins, one behind the other. raises: a condition may raise an error. False: there are none for an expression. */
extern bool gstore_join_emit(gstore_emitter *emitter, const List *joins, bool *raises);

/*
 * Of the inner table's own program. The emitter's program is that, and its table is the inner one. asked: a row comes to the join. If not, and there are
 * values that are not known, no row of the table is evaluated.
 */
extern bool gstore_join_emit_build(gstore_emitter *emitter, const gstore_query_join *join,
								   bool asked, bool *raises);

/* ---- EXPLAIN */

extern void gstore_join_explain(const PlanState *node, const List *joins, ExplainState *es);

#endif
