/*
 * postgres/query_function.h - which of PostgreSQL's functions of integers, floats, dates and timestamps are
 * instructions of a program (query/program.h).
 */
#ifndef GSTORE_QUERY_FUNCTION_H
#define GSTORE_QUERY_FUNCTION_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* op 0: the value is the same on the stack. */
typedef struct gstore_number_function
{
	Oid	   function;
	uint16 op, b, value; /* of the instruction */
} gstore_number_function;

/* NULL: it is none. */
extern const gstore_number_function *gstore_find_function(Oid function);
/* With these arguments, for some of their values. */
extern bool gstore_can_raise(const gstore_number_function *function, List *args);

#endif
