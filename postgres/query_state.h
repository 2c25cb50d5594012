/*
 * postgres/query_state.h - transition states of PostgreSQL's own aggregates, as it hands them from a partial
 * aggregate to the final one, and their final functions.
 *
 * States of type internal are serialised (PostgreSQL's int8_avg_serialize(), numeric_poly_serialize(),
 * numeric_serialize()): the form is the same in releases 15 and 16. What is returned lives in the current memory
 * context.
 */
#ifndef GSTORE_QUERY_STATE_H
#define GSTORE_QUERY_STATE_H

#include "postgres.h"

#include "fmgr.h"

#include "postgres/decimal.h"

/* Of values: how many, their sum, the sum of their squares. */
typedef struct gstore_moments
{
	int64		   count;
	gstore_decimal sum, squares;
} gstore_moments;

/* bytea: of sum(int8) and avg(int8); of variance(int2, int4); of variance(int8). */
extern Datum gstore_state_of_int8_sum(const gstore_moments *moments);
extern Datum gstore_state_of_poly(const gstore_moments *moments);
extern Datum gstore_state_of_numeric(const gstore_moments *moments);
/* int8[]: of avg(int2, int4). float8[]: of avg and variance of floats, with the sum of squared differences from the mean. */
extern Datum gstore_state_of_int4_avg(int64 count, int64 sum);
extern Datum gstore_state_of_floats(int64 count, double sum, double squares);

/* The final function's value of such a state; deserialize: NULL, if it is of no type internal. */
extern Datum gstore_state_final(Datum state, PGFunction deserialize, PGFunction final, bool *null);

#endif
