/* See query_calendar.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "nodes/primnodes.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

#include "postgres/query_calendar.h"

/* Names of fields, as extract() and date_trunc() have them, and the beginning of each; GQUERY_FIELDS: it has none. years: that one has, where the field is made of the year. */
static const struct
{
	const char *name;
	uint8		field, beginning;
	int16		years;
} fields[] = {
	{"year", GQUERY_YEAR, GQUERY_TO_YEAR, 0},
	{"decade", GQUERY_YEAR, GQUERY_FIELDS, 10},
	{"century", GQUERY_YEAR, GQUERY_FIELDS, 100},
	{"millennium", GQUERY_YEAR, GQUERY_FIELDS, 1000},
	{"quarter", GQUERY_QUARTER, GQUERY_TO_QUARTER, 0},
	{"month", GQUERY_MONTH, GQUERY_TO_MONTH, 0},
	{"week", GQUERY_WEEK, GQUERY_TO_WEEK, 0},
	{"isoyear", GQUERY_ISO_YEAR, GQUERY_FIELDS, 0},
	{"day", GQUERY_DAY, GQUERY_TO_DAY, 0},
	{"doy", GQUERY_DAY_OF_YEAR, GQUERY_FIELDS, 0},
	{"dow", GQUERY_DAY_OF_WEEK, GQUERY_FIELDS, 0},
	{"isodow", GQUERY_ISO_DAY_OF_WEEK, GQUERY_FIELDS, 0},
	{"hour", GQUERY_HOUR, GQUERY_TO_HOUR, 0},
	{"minute", GQUERY_MINUTE, GQUERY_TO_MINUTE, 0},
	{"second", GQUERY_SECOND, GQUERY_TO_SECOND, 0},
	{"epoch", GQUERY_EPOCH, GQUERY_FIELDS, 0},
};

typedef enum result_kind
{
	KIND_NUMBER,   /* numeric, extract(field) */
	KIND_DOUBLE,   /* date_part() */
	KIND_TRUNCATE, /* date_trunc() */
	KIND_CAST,
} result_kind;

/* zone: how often the offset of the session's time zone is added to the argument. */
static const struct
{
	Oid	  function;
	uint8 kind, of, what;
	int8  zone;
} functions[] = {
	{F_EXTRACT_TEXT_DATE, KIND_NUMBER, GQUERY_OF_DATE, 0, 0},
	{F_EXTRACT_TEXT_TIME, KIND_NUMBER, GQUERY_OF_TIME, 0, 0},
	{F_EXTRACT_TEXT_TIMESTAMP, KIND_NUMBER, GQUERY_OF_TIMESTAMP, 0, 0},
	{F_EXTRACT_TEXT_TIMESTAMPTZ, KIND_NUMBER, GQUERY_OF_TIMESTAMP, 0, 1},
	{F_DATE_PART_TEXT_TIME, KIND_DOUBLE, GQUERY_OF_TIME, 0, 0},
	{F_DATE_PART_TEXT_TIMESTAMP, KIND_DOUBLE, GQUERY_OF_TIMESTAMP, 0, 0},
	{F_DATE_PART_TEXT_TIMESTAMPTZ, KIND_DOUBLE, GQUERY_OF_TIMESTAMP, 0, 1},
	{F_DATE_TRUNC_TEXT_TIMESTAMP, KIND_TRUNCATE, GQUERY_OF_TIMESTAMP, 0, 0},
	{F_DATE_TRUNC_TEXT_TIMESTAMPTZ, KIND_TRUNCATE, GQUERY_OF_TIMESTAMP, 0, 1},
	/* casts, named RESULT_ARGUMENT */
	{F_TIMESTAMP_DATE, KIND_CAST, GQUERY_OF_DATE, GQUERY_TO_TIMESTAMP, 0},
	{F_TIMESTAMPTZ_DATE, KIND_CAST, GQUERY_OF_DATE, GQUERY_TO_TIMESTAMP, 1},
	{F_DATE_TIMESTAMP, KIND_CAST, GQUERY_OF_TIMESTAMP, GQUERY_TO_DATE, 0},
	{F_DATE_TIMESTAMPTZ, KIND_CAST, GQUERY_OF_TIMESTAMP, GQUERY_TO_DATE, 1},
	{F_TIMESTAMP_TIMESTAMPTZ, KIND_CAST, GQUERY_OF_TIMESTAMP, GQUERY_TO_TIMESTAMP, 1},
	{F_TIMESTAMPTZ_TIMESTAMP, KIND_CAST, GQUERY_OF_TIMESTAMP, GQUERY_TO_TIMESTAMP, -1},
};

bool
gstore_find_offset(int times, int64 *offset)
{
	long seconds = 0;

	if (times != 0 && !pg_get_timezone_offset(session_timezone, &seconds))
		return false;
	*offset = times * (int64) seconds * USECS_PER_SEC;
	return true;
}

bool
gstore_find_field(const Node *node, bool truncates, gquery_field *field, int *years)
{
	const Const *name = (const Const *) node;
	char		*value;

	if (!IsA(node, Const) || name->constisnull || name->consttype != TEXTOID)
		return false;
	value = TextDatumGetCString(name->constvalue);
	for (Size i = 0; i < lengthof(fields); i++)
		if (pg_strcasecmp(fields[i].name, value) == 0)
		{
			*field = truncates ? fields[i].beginning : fields[i].field;
			*years = fields[i].years;
			return *field != GQUERY_FIELDS;
		}
	return false;
}

/* PostgreSQL adds two doubles for a second with fractions. */
static bool
set_result(result_kind kind, gstore_calendar *out)
{
	const bool in_usecs = out->what == GQUERY_SECOND ||
		(out->what == GQUERY_EPOCH && out->of != GQUERY_OF_DATE);

	out->scale = in_usecs ? GSTORE_USECS_DIGITS : 0;
	out->divisor = kind != KIND_DOUBLE ? 0 : in_usecs ? USECS_PER_SEC : 1;
	return kind != KIND_DOUBLE || out->what != GQUERY_SECOND;
}

static bool
has_field(const gstore_calendar *c)
{
	switch (c->of)
	{
		case GQUERY_OF_TIME:
			return c->what >= GQUERY_HOUR && c->what <= GQUERY_EPOCH;
		case GQUERY_OF_DATE:
			return c->what < GQUERY_HOUR || c->what > GQUERY_SECOND;
		default:
			return true;
	}
}

bool
gstore_find_calendar(Oid function, List *args, gstore_calendar *out)
{
	for (Size i = 0; i < lengthof(functions); i++)
	{
		const result_kind kind = (result_kind) functions[i].kind;

		if (functions[i].function != function)
			continue;
		*out = (gstore_calendar){.what = (gquery_field) functions[i].what,
								 .of = (gquery_field_of) functions[i].of,
								 .argument = llast(args)};
		return gstore_find_offset(functions[i].zone, &out->offset) &&
			(kind == KIND_CAST ||
			 gstore_find_field(linitial(args), kind == KIND_TRUNCATE, &out->what, &out->years)) &&
			has_field(out) && set_result(kind, out);
	}
	return false;
}
