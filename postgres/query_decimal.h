/*
 * postgres/query_decimal.h - decimals of several scales in a program (query/program.h).
 */
#ifndef GSTORE_QUERY_DECIMAL_H
#define GSTORE_QUERY_DECIMAL_H

#include "postgres.h"

#include "postgres/query_expr.h"

/*
 * Puts a product by a power of ten where instructions end, or between them, behind those of an operand: the
 * operand has so many more digits of scale. By 1 as well, which checks that it is a decimal.
 */
extern bool gstore_scale_up(gquery_program *program, uint32 at, int digits);

/*
 * Brings two decimals to the greater scale of both, and notes in the left one if they had different ones. The
 * left one's instructions end at left_end, the right one's are the last.
 */
extern bool
gstore_align(gquery_program *program, gstore_emitted *left, uint32 left_end, gstore_emitted *right);

/*
 * Where full_scale is set: of two values, of which a row has one, the one of the smaller scale becomes NULL.
 * The left one's instructions are from left to left_end, the right one's are the last, from `right` on.
 */
extern bool gstore_emit_full_scale(gstore_emitter *emitter, uint32 left, uint32 left_end,
								   uint32 right, gstore_emitted *one, gstore_emitted *other);

/*
 * A decimal is compared with a number that lies between two of its scale, of which *word is the lower one: what
 * compares with *word, as it is then, instead.
 */
extern gquery_op gstore_beside(gquery_op op, int64 *word);

/* Arithmetic, what rounds, casts of integers to numeric, and those back, also to double precision. */
extern bool
gstore_emit_decimal_function(gstore_emitter *emitter, Oid function, List *args, gstore_emitted *out);

#endif
