/*
 * postgres/query_time.h - timestamps and dates with intervals, and comparisons of different types of them, as instructions (query/program.h).
 *
 * On the stack an interval is the difference of two timestamps, in microseconds. No other ones are there, but constants that they are compared with.
 */
#ifndef GSTORE_QUERY_TIME_H
#define GSTORE_QUERY_TIME_H

#include "postgres.h"

#include "postgres/query_expr.h"

/* Both are intervals, or they are different ones of date, timestamp and timestamptz. */
extern bool gstore_are_times(Oid left, Oid right);

/* The value that was emitted last, whose instructions end at left_end, with another one, so that gstore_are_times(). */
extern bool
gstore_emit_time_compared(gstore_emitter *emitter, const gstore_emitted *left, uint32 left_end,
						  Node *right, gquery_op op, gstore_emitted *other);

/* The year that was emitted last, without a year 0, becomes the decade, century or millennium in which it is, of so many years. */
extern bool gstore_emit_years(gstore_emitter *emitter, int years);

/* Sums with intervals that depend on no row, and fields of intervals. False: the function is none, or has no instructions. */
extern bool
gstore_emit_time_function(gstore_emitter *emitter, Oid function, List *args, gstore_emitted *out);

#endif
