/*
 * postgres/query_enum.h - the order of an enum's values.
 */
#ifndef GSTORE_QUERY_ENUM_H
#define GSTORE_QUERY_ENUM_H

#include "postgres.h"

#include "query/program.h"

/*
 * The enum's values that are less than `value`, or what else op, GQUERY_LT to GQUERY_GE, says, as words of a list that ascends; how many
 * there are, of which only the first `room` are written.
 */
extern uint32 gstore_enum_values(Oid type, Oid value, gquery_op op, int64 *words, uint32 room);

#endif
