/*
 * postgres/query_choice.h - expressions that are one of several values: CASE, COALESCE, NULLIF, GREATEST and LEAST.
 */
#ifndef GSTORE_QUERY_CHOICE_H
#define GSTORE_QUERY_CHOICE_H

#include "postgres.h"

#include "postgres/query_expr.h"

/* False: it is none, or has no instructions. */
extern bool gstore_emit_choice(gstore_emitter *emitter, Node *node, gstore_emitted *out);

#endif
