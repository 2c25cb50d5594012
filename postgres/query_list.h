/*
 * postgres/query_list.h - IN, = ANY and <> ALL of a list that depends on no row, as GQUERY_IN and GQUERY_IN_PAIRS (query/program.h).
 */
#ifndef GSTORE_QUERY_LIST_H
#define GSTORE_QUERY_LIST_H

#include "postgres.h"

#include "nodes/primnodes.h"

#include "postgres/query_expr.h"

/* As gstore_emit_expression(); not of texts. */
extern bool gstore_emit_list(gstore_emitter *emitter, ScalarArrayOpExpr *list, gstore_emitted *out);

/*
 * The value that was emitted last is whether x is one of the list's elements that are not NULL. It becomes x =
 * ANY(list), or the contrary. Of an empty list neither is NULL.
 */
extern bool gstore_emit_list_end(gstore_emitter *emitter, bool is_any, bool has_null, bool empty,
								 gstore_emitted *out);

#endif
