/* Options of tables and columns, checked when they are written and read when they are needed. */
#include "postgres.h"

#include <ctype.h>

#include "access/reloptions.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"

#include <gvmem/gvmem.h>

#include "postgres/form.h"
#include "postgres/option.h"
#include "postgres/shared.h"

PG_FUNCTION_INFO_V1(gstore_fdw_validator);

static const char *
catalog_object_name(Oid catalog)
{
	switch (catalog)
	{
		case ForeignDataWrapperRelationId:
			return "FOREIGN DATA WRAPPER";
		case ForeignServerRelationId:
			return "SERVER";
		case UserMappingRelationId:
			return "USER MAPPING";
		default:
			return "this";
	}
}

static int
device_number(DefElem *option)
{
	const char *text = defGetString(option);
	char	   *end;
	long		number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (!isdigit((unsigned char) *text) || *end != '\0' || errno != 0 || number >= GVM_KEEPER_DEVICES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"pinning\": \"%s\"", text),
				 errhint("It is the number of a GPU, from 0 to %d.", GVM_KEEPER_DEVICES_MAX - 1)));
	return (int) number;
}

/* Only a WARNING: a dump may be restored before the GPU is there. */
static void
check_device_exists(int device)
{
	if (gstore != NULL && gstore->ready && device >= gstore->device_count)
		ereport(WARNING,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("there is no GPU %d: the table can take no rows", device),
				 errhint("Set the table's option \"pinning\" to one that "
						 "gstore_fdw_keeper_info shows.")));
}

static bool
is_arrow(DefElem *option)
{
	const char *text = defGetString(option);

	if (pg_strcasecmp(text, "arrow") == 0)
		return true;
	if (pg_strcasecmp(text, "pgstrom") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"format\": \"%s\"", text),
				 errhint("Valid values: pgstrom, arrow.")));
	return false;
}

static bool
is_pglz(DefElem *option)
{
	const char *text = defGetString(option);

	if (pg_strcasecmp(text, "pglz") == 0)
		return true;
	if (pg_strcasecmp(text, "none") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"compression\": \"%s\"", text),
				 errhint("Valid values: none, pglz.")));
	return false;
}

/* Of which columns there can be, is for form.c. */
static uint32
value_length(DefElem *option)
{
	const char *text = defGetString(option);
	char	   *end;
	long		number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (!isdigit((unsigned char) *text) || *end != '\0' || errno != 0 || number < 1 ||
		number > GSTORE_STRIDE_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"length\": \"%s\"", text),
				 errhint("It is how many elements, or bytes, each value has, from 1 to %u.",
						 GSTORE_STRIDE_MAX)));
	return (uint32) number;
}

typedef struct parsed_text
{
	const char *text, *name;
} parsed_text;

static void
report_in_text(void *argument)
{
	const parsed_text *parsed = argument;
	const int		   position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(parsed->text);
	}
	errcontext("%s", parsed->name);
}

List *
gstore_parse(const char *text, RawParseMode mode, const char *name)
{
	parsed_text			 parsed = {text, name};
	ErrorContextCallback context = {
		.callback = report_in_text, .arg = &parsed, .previous = error_context_stack};
	List *statements;

	error_context_stack = &context;
	statements = raw_parser(text, mode);
	error_context_stack = context.previous;
	return statements;
}

/*
 * One query, which returns rows. Whether its columns are the table's is seen when it runs: what it names need not be there
 * when a dump is restored.
 */
static const char *
source_query(DefElem *option)
{
	const char *text = defGetString(option);
	const List *statements = gstore_parse(text, RAW_PARSE_DEFAULT, "option \"source\"");
	const Node *first = statements != NIL ? linitial_node(RawStmt, statements)->stmt : NULL;

	if (list_length(statements) != 1 || !IsA(first, SelectStmt) ||
		((const SelectStmt *) first)->intoClause != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"source\": \"%s\"", text),
				 errhint("It is one query, such as SELECT ... FROM schema.table.")));
	return text;
}

static void
report_invalid_option(const DefElem *option, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
			 errmsg("invalid option \"%s\"", option->defname), errhint("%s", hint)));
}

Datum
gstore_fdw_validator(PG_FUNCTION_ARGS)
{
	List	 *options = untransformRelOptions(PG_GETARG_DATUM(0));
	const Oid catalog = PG_GETARG_OID(1);
	ListCell *cell;

	foreach(cell, options)
	{
		DefElem *option = lfirst(cell);

		if (catalog == ForeignTableRelationId)
		{
			if (strcmp(option->defname, "pinning") == 0)
				check_device_exists(device_number(option));
			else if (strcmp(option->defname, "format") == 0)
				(void) is_arrow(option);
			else if (strcmp(option->defname, "source") == 0)
				(void) source_query(option);
			else
				report_invalid_option(option, "Valid options of a table: pinning, format, source.");
		}
		else if (catalog == AttributeRelationId)
		{
			if (strcmp(option->defname, "compression") == 0)
				(void) is_pglz(option);
			else if (strcmp(option->defname, "length") == 0)
				(void) value_length(option);
			else
				report_invalid_option(option, "Valid options of a column: compression, length.");
		}
		else
			report_invalid_option(
				option, psprintf("There are no options on %s.", catalog_object_name(catalog)));
	}
	PG_RETURN_VOID();
}

int
gstore_table_device(Oid relation)
{
	ListCell *cell;

	foreach(cell, GetForeignTable(relation)->options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "pinning") == 0)
			return device_number(option);
	}
	return 0;
}

bool
gstore_table_is_arrow(Oid relation)
{
	ListCell *cell;

	foreach(cell, GetForeignTable(relation)->options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "format") == 0)
			return is_arrow(option);
	}
	return false;
}

const char *
gstore_table_source(Oid relation)
{
	ListCell *cell;

	foreach(cell, GetForeignTable(relation)->options)
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "source") == 0)
			return defGetString(option);
	}
	return NULL;
}

bool
gstore_column_is_compressed(Oid relation, AttrNumber column)
{
	ListCell *cell;

	foreach(cell, GetForeignColumnOptions(relation, column))
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "compression") == 0)
			return is_pglz(option);
	}
	return false;
}

uint32
gstore_column_length(Oid relation, AttrNumber column)
{
	ListCell *cell;

	foreach(cell, GetForeignColumnOptions(relation, column))
	{
		DefElem *option = lfirst(cell);

		if (strcmp(option->defname, "length") == 0)
			return value_length(option);
	}
	return 0;
}
