/*
 * postgres/query_calendar.h - PostgreSQL's functions of dates and times as GQUERY_FIELD (query/program.h).
 */
#ifndef GSTORE_QUERY_CALENDAR_H
#define GSTORE_QUERY_CALENDAR_H

#include "postgres.h"

#include "nodes/pg_list.h"

#include "query/program.h"

#define GSTORE_USECS_DIGITS 6 /* of a second */

typedef struct gstore_calendar
{
	gquery_field	what;
	gquery_field_of of;
	int64			offset;	 /* of the instruction */
	int64			divisor; /* of a double that the field becomes; 0: it becomes none */
	int				scale;	 /* of a number */
	int years; /* the field is a decade, a century or a millennium, made of the year; 0: it is none */
	Node *argument; /* of which it is a field */
} gstore_calendar;

/* False: the function is none, or what it does depends on more: on a time zone that has changed its offset. */
extern bool gstore_find_calendar(Oid function, List *args, gstore_calendar *out);

/* The session's time zone from UTC, so many times, in microseconds. False: it has not always been the same. */
extern bool gstore_find_offset(int times, int64 *offset);

/* By the name that a constant text is; truncates: the beginning of it. years: as of gstore_calendar. False: there is none. */
extern bool gstore_find_field(const Node *name, bool truncates, gquery_field *field, int *years);

#endif
