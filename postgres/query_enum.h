/*
 * postgres/query_enum.h - the order of an enum's values.
 */
#ifndef GSTORE_QUERY_ENUM_H
#define GSTORE_QUERY_ENUM_H

#include "postgres.h"

#include "postgres/query_expr.h"
#include "query/program.h"

/*
 * The value of an enum that was emitted last, in its order beside one that depends on no row: op, GQUERY_LT to GQUERY_GE, is whether it is
 * in a list of those that are.
 */
extern bool gstore_emit_enum_order(gstore_emitter *emitter, const gstore_emitted *left, Node *right,
								   gquery_op op, gstore_emitted *other);

/*
 * The value of an enum that was emitted last, as a number whose order is the enum's: its OID, or a word with that in the lower half, if values were put between others
 * later. Of such a number it is the same one. And the value of such a number.
 */
extern bool gstore_emit_enum_number(gstore_emitter *emitter, Oid type);
extern bool gstore_emit_enum_value(gstore_emitter *emitter);

#endif
