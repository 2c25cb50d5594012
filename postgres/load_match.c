/* Which column goes where; see load.h. */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "postgres/arrow.h"
#include "postgres/load.h"
#include "postgres/option.h"
#include "postgres/rework.h"

#define ROWS_MAX (UINT64CONST(1) << 40) /* so that no size overflows */

/* ---- types */

/* Any 16 bytes are a uuid. Of other types of fixed length, and of variable length, not all bytes are values. */
static bool
is_loadable(const gstore_column *column)
{
	const Oid base = getBaseType(column->type);

	switch (column->form)
	{
		case GSTORE_FORM_FIXED:
			return base == UUIDOID || base == MACADDROID || base == MACADDR8OID;
		case GSTORE_FORM_UTF8:
			return base == TEXTOID || base == VARCHAROID || base == BPCHAROID;
		case GSTORE_FORM_BINARY: /* texts are so in other encodings than UTF-8 */
			return base == BYTEAOID || base == TEXTOID || base == VARCHAROID || base == BPCHAROID;
		default:
			return true;
	}
}

/* Of decimals the scale counts: each number is checked to have as many digits as the column's precision allows. */
static bool
is_same_scale(const char *wanted, const char *given)
{
	int precision, scale, wanted_scale, end = 0;

	return sscanf(wanted, "d:%d,%d", &precision, &wanted_scale) == 2 &&
		sscanf(given, "d:%d,%d%n", &precision, &scale, &end) == 2 && scale == wanted_scale &&
		(given[end] == '\0' || strcmp(given + end, ",128") == 0);
}

static bool
is_same_format(gstore_form form, const char *wanted, const char *given)
{
	if (form == GSTORE_FORM_DECIMAL)
		return is_same_scale(wanted, given);
	if (form == GSTORE_FORM_TIMESTAMPTZ) /* whatever the zone, values count from 1970 UTC */
		return strncmp(given, "tsu:", 4) == 0 && given[4] != '\0';
	return strcmp(given, wanted) == 0;
}

/* Of variable length offsets may have 32 bits, too: *offset_bytes. */
static bool
is_format_of(const gstore_column *column, const gstore_load_column *from, uint32 *offset_bytes)
{
	static const struct
	{
		gstore_form form;
		const char *format;
	} narrow[] = {{GSTORE_FORM_UTF8, "u"}, {GSTORE_FORM_BINARY, "z"}, {GSTORE_FORM_LIST, "+l"}};
	char wanted[GSTORE_ARROW_FORMAT_BYTES], wanted_element[GSTORE_ARROW_FORMAT_BYTES];

	gstore_arrow_format(column, wanted);
	gstore_arrow_element_format(column, wanted_element);
	*offset_bytes = gstore_arrow_is_variable(column) ? sizeof(int64) : 0;
	if (gstore_has_elements(column) &&
		!is_same_format(column->element_form, wanted_element, from->element_format))
		return false;
	for (int i = 0; i < (int) lengthof(narrow); i++)
		if (column->form == narrow[i].form && strcmp(from->format, narrow[i].format) == 0)
		{
			*offset_bytes = sizeof(int32);
			return true;
		}
	return is_same_format(column->form, wanted, from->format);
}

static void
refuse_type(const Form_pg_attribute attribute)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column \"%s\" of type %s cannot be loaded", NameStr(attribute->attname),
					format_type_with_typemod(attribute->atttypid, attribute->atttypmod)),
			 errdetail("Not all bytes are values of the type."),
			 errhint("Load texts or numbers into another table, and INSERT ... SELECT from that.")));
}

static void
match_type(const gstore_loading *load, int index, gstore_load_field *field)
{
	const Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(load->relation), index);
	const gstore_column	   *column = &load->columns[index];
	char					wanted[GSTORE_ARROW_FORMAT_BYTES], element[GSTORE_ARROW_FORMAT_BYTES];

	if (strcmp(field->from->format, "n") == 0)
		return;
	if (!is_loadable(column))
		refuse_type(attribute);
	if (is_format_of(column, field->from, &field->offset_bytes))
		return;
	gstore_arrow_format(column, wanted);
	gstore_arrow_element_format(column, element);
	ereport(
		ERROR,
		(errcode(ERRCODE_DATATYPE_MISMATCH),
		 errmsg("column \"%s\" is of type %s, but its values are of Arrow's format \"%s%s%s\"",
				NameStr(attribute->attname),
				format_type_with_typemod(attribute->atttypid, attribute->atttypmod), field->from->format,
				field->from->element_format[0] != '\0' ? " of " : "", field->from->element_format),
		 errhint("Cast them to \"%s%s%s\" first.", wanted, element[0] != '\0' ? " of " : "", element)));
}

/* ---- columns */

static void
check_may_insert(const gstore_loading *load, const Form_pg_attribute attribute)
{
	const Oid oid = RelationGetRelid(load->relation);
	AclResult result = pg_class_aclcheck(oid, GetUserId(), ACL_INSERT);

	if (result != ACLCHECK_OK)
		result = pg_attribute_aclcheck(oid, attribute->attnum, GetUserId(), ACL_INSERT);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FOREIGN_TABLE, RelationGetRelationName(load->relation));
}

static int
find_attribute(const gstore_loading *load, const char *name)
{
	const TupleDesc desc = RelationGetDescr(load->relation);

	if (!pg_verify_mbstr(PG_UTF8, name, (int) strlen(name), true))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("the name of a column is not valid UTF-8")));
	name = pg_any_to_server(name, (int) strlen(name), PG_UTF8);
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			strcmp(NameStr(TupleDescAttr(desc, i)->attname), name) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
					RelationGetRelationName(load->relation))));
}

/* Of such a type, and no domain, all values that are checked are as the type modifier requires. */
static bool
is_of_its_length(const gstore_column *column)
{
	return column->form == GSTORE_FORM_DECIMAL || column->form == GSTORE_FORM_BITS ||
			column->form == GSTORE_FORM_VECTOR
		? getBaseType(column->type) == column->type
		: false;
}

static void
match_column(gstore_loading *load, const gstore_load_column *from)
{
	const int				index = find_attribute(load, from->name);
	const Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(load->relation), index);
	const char			   *name = gstore_load_name(load, index);
	gstore_load_field	   *field = &load->fields[index];

	if (!bms_is_member(attribute->attnum, load->missing))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_COLUMN),
				 errmsg("column \"%s\" is there more than once", name)));
	check_may_insert(load, attribute);
	if (attribute->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("cannot load values into column \"%s\"", name),
				 errdetail("Column \"%s\" is a generated column.", name)));
	load->missing = bms_del_member(load->missing, attribute->attnum);
	field->from = from;
	match_type(load, index, field);
	if (attribute->atttypid == VARCHAROID && attribute->atttypmod >= (int32) VARHDRSZ)
		field->max_chars = attribute->atttypmod - VARHDRSZ;
	else if (!is_of_its_length(&load->columns[index]) && gstore_coercion_of(attribute) != NULL)
		load->by_rows = true;
}

static bool
has_rules(Relation relation)
{
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;

	return (constraints != NULL && (constraints->num_check > 0 || constraints->has_generated_stored)) ||
		relation->rd_rel->relispartition;
}

static void
refuse_triggers(Relation relation)
{
	const TriggerDesc *triggers = relation->trigdesc;

	if (triggers == NULL ||
		!(triggers->trig_insert_before_row || triggers->trig_insert_after_row ||
		  triggers->trig_insert_before_statement || triggers->trig_insert_after_statement ||
		  triggers->trig_insert_new_table))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot load rows into table \"%s\": it has triggers for INSERT",
					RelationGetRelationName(relation)),
			 errhint("Load into a table without triggers, and INSERT ... SELECT from that.")));
}

void
gstore_load_match(gstore_loading *load)
{
	const TupleDesc desc = RelationGetDescr(load->relation);

	refuse_triggers(load->relation);
	load->columns = gstore_describe(load->relation, true);
	load->fields = palloc0(sizeof *load->fields * (Size) Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		load->fields[i].max_chars = -1;
		if (!TupleDescAttr(desc, i)->attisdropped)
			load->missing = bms_add_member(load->missing, i + 1);
	}
	load->by_rows = has_rules(load->relation) ||
		!gstore_table_is_arrow(RelationGetRelid(load->relation));
	for (uint32 i = 0; i < load->batch->column_count; i++)
		match_column(load, &load->batch->columns[i]);
	for (int number = -1; (number = bms_next_member(load->missing, number)) >= 0;)
		load->by_rows = load->by_rows ||
			gstore_default_of(load->relation, TupleDescAttr(desc, number - 1)) != NULL;
}

/* ---- buffers */

static void
refuse_buffer(const gstore_load_column *from, const char *what)
{
	const char *name = pg_any_to_server(from->name, (int) strlen(from->name), PG_UTF8);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("the %s of column \"%s\" are not within the bytes, or too short", what, name)));
}

static void
check_buffer(const gstore_loading *load, const gstore_load_column *from, const char *what,
			 const gstore_load_buffer *buffer, uint64 wanted)
{
	if (buffer->bytes < wanted || buffer->offset > load->source->bytes ||
		buffer->bytes > load->source->bytes - buffer->offset)
		refuse_buffer(from, what);
}

/* How many elements there are is at most what there are bytes for. */
static void
check_list(const gstore_loading *load, const gstore_column *column, const gstore_load_column *from)
{
	const uint64 elements = from->values.bytes / column->element_width;

	if (from->elements > elements)
		refuse_buffer(from, "elements");
	if (from->element_validity.bytes > 0)
		check_buffer(load, from, "validity bits of elements", &from->element_validity,
					 from->elements / 8 + (from->elements % 8 != 0));
}

/* True: it has buffers. */
static bool
check_column(const gstore_loading *load, const gstore_column *column, const gstore_load_field *field)
{
	const gstore_load_column *from = field->from;
	const uint64			  rows = load->batch->rows;

	if (strcmp(from->format, "n") == 0)
		return false;
	if (from->validity.bytes > 0)
		check_buffer(load, from, "validity bits", &from->validity, (rows + 7) / 8);
	if (!gstore_arrow_is_variable(column))
	{
		check_buffer(load, from, "values", &from->values,
					 column->form == GSTORE_FORM_BOOL ? (rows + 7) / 8 : rows * gstore_stride(column));
		if (gstore_has_elements(column) && from->element_validity.bytes > 0)
			check_buffer(load, from, "validity bits of elements", &from->element_validity,
						 (rows * column->count + 7) / 8);
		return true;
	}
	check_buffer(load, from, "offsets", &from->offsets, (rows + 1) * field->offset_bytes);
	check_buffer(load, from, "values", &from->values, 0);
	if (column->form == GSTORE_FORM_LIST)
		check_list(load, column, from);
	return true;
}

void
gstore_load_check_batch(gstore_loading *load)
{
	const int natts = RelationGetDescr(load->relation)->natts;
	bool	  any = false;

	if (load->batch->rows == 0)
		return;
	if (load->batch->rows > ROWS_MAX)
		ereport(
			ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("%llu rows are more than there can be", (unsigned long long) load->batch->rows)));
	for (int i = 0; i < natts; i++)
	{
		load->fields[i].end = PG_UINT64_MAX;
		if (load->fields[i].from != NULL)
			any |= check_column(load, &load->columns[i], &load->fields[i]);
	}
	if (!any)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("there are %llu rows, and no column that has values",
						(unsigned long long) load->batch->rows)));
}
