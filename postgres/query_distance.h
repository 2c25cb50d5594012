/* postgres/query_distance.h - distances of a column from a value that depends on no row, as columns of a program.
 */
#ifndef GSTORE_QUERY_DISTANCE_H
#define GSTORE_QUERY_DISTANCE_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "postgres/query_expr.h"
#include "query/wire.h"

/* Of a program. */
typedef struct gstore_distances
{
	int					   count;
	Node				  *nodes[GQUERY_DISTANCES_MAX]; /* the expressions */
	uint32				   columns[GQUERY_DISTANCES_MAX];
	gquery_wanted_distance wanted[GQUERY_DISTANCES_MAX]; /* spans are within `queries` */
	StringInfoData		   queries;
} gstore_distances;

/*
 * As gstore_emit_expression(), of a distance: operators of the extension "vector" on vector(n), halfvec(n) and
 * bit(n), and functions of gstore_fdw's (distance.c), or operators by them, on arrays of one length and bit(n).
 * False: it is none, or the value has another length, which is an error if PostgreSQL evaluates it.
 */
extern bool gstore_emit_distance(gstore_emitter *emitter, Node *node, gstore_emitted *out);

/*
 * Of a search (query/wire.h): the only distance, from all points. False: there is another, it is none, or a
 * point has another length.
 */
extern bool
gstore_describe_nearest(gstore_emitter *emitter, Node *node, const Datum *points, int count);

#endif
