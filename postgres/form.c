/* Forms of columns, and which column has which one; see form.h. */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include <gvmem/table.h>

#include "postgres/decimal.h"
#include "postgres/form.h"

/* ---- the table */

typedef struct form_row
{
	const char *format; /* Arrow's; what follows its colon belongs to the column */
	uint8		width;	/* of a value; 0: the column's own, or bits */
	bool element; /* lists may have such elements: they follow each other without gaps, and are no bits */
	uint8 uniform; /* gstore_uniform_kind() */
} form_row;

static const form_row forms[GSTORE_FORMS] = {
	[GSTORE_FORM_NONE] = {""},
	[GSTORE_FORM_BOOL] = {"b"},
	[GSTORE_FORM_INT16] = {"s", 2, true},
	[GSTORE_FORM_INT32] = {"i", 4, true},
	[GSTORE_FORM_INT64] = {"l", 8, true},
	[GSTORE_FORM_UINT32] = {"I", 4, true},
	[GSTORE_FORM_HALF] = {"e", 2, true},
	[GSTORE_FORM_FLOAT] = {"f", 4, true},
	[GSTORE_FORM_DOUBLE] = {"g", 8, true},
	[GSTORE_FORM_DATE] = {"tdD", 4, true},
	[GSTORE_FORM_TIME] = {"ttu", 8, true},
	[GSTORE_FORM_TIMESTAMP] = {"tsu:", 8, true},
	[GSTORE_FORM_TIMESTAMPTZ] = {"tsu:UTC", 8, true},
	[GSTORE_FORM_FIXED] = {"w:"},
	[GSTORE_FORM_DECIMAL] = {"d:", GSTORE_DECIMAL_BYTES, false, GVM_TABLE_DECIMAL},
	[GSTORE_FORM_BITS] = {"w:", 0, false, GVM_TABLE_BITS},
	[GSTORE_FORM_BYTES] = {"w:", 0, false, GVM_TABLE_BYTES},
	[GSTORE_FORM_ARRAY] = {"+w:", 0, false, GVM_TABLE_ELEMENTS},
	[GSTORE_FORM_VECTOR] = {"+w:", 0, false, GVM_TABLE_VECTOR},
	[GSTORE_FORM_UTF8] = {"U"},
	[GSTORE_FORM_BINARY] = {"Z"},
	[GSTORE_FORM_LIST] = {"+L"},
};

/* Types of fixed length that have a form of their own, and texts. */
static const struct
{
	Oid	  type;
	uint8 form;
} types[] = {
	{BOOLOID, GSTORE_FORM_BOOL},
	{INT2OID, GSTORE_FORM_INT16},
	{INT4OID, GSTORE_FORM_INT32},
	{INT8OID, GSTORE_FORM_INT64},
	{OIDOID, GSTORE_FORM_UINT32},
	{FLOAT4OID, GSTORE_FORM_FLOAT},
	{FLOAT8OID, GSTORE_FORM_DOUBLE},
	{DATEOID, GSTORE_FORM_DATE},
	{TIMEOID, GSTORE_FORM_TIME},
	{TIMESTAMPOID, GSTORE_FORM_TIMESTAMP},
	{TIMESTAMPTZOID, GSTORE_FORM_TIMESTAMPTZ},
	{TEXTOID, GSTORE_FORM_UTF8},
	{VARCHAROID, GSTORE_FORM_UTF8},
	{BPCHAROID, GSTORE_FORM_UTF8},
	{JSONOID, GSTORE_FORM_UTF8},
	{XMLOID, GSTORE_FORM_UTF8},
};

/* ---- which one a type has */

static gstore_form
form_of(Oid base, int16 length)
{
	for (Size i = 0; i < lengthof(types); i++)
		if (types[i].type == base)
		{
			/* Texts have the database's encoding, Arrow's have one. */
			if (types[i].form == GSTORE_FORM_UTF8 && GetDatabaseEncoding() != PG_UTF8)
				return GSTORE_FORM_BINARY;
			return (gstore_form) types[i].form;
		}
	return length > 0 ? GSTORE_FORM_FIXED : GSTORE_FORM_BINARY;
}

/* The elements of an array type that can be a list; NONE: it cannot. */
static gstore_form
describe_elements(gstore_column *column, Oid base)
{
	const Oid	element = get_element_type(base);
	gstore_form form;

	/* int2vector and the like count from 0 */
	if (column->length >= 0 || !OidIsValid(element) || get_array_type(element) != base)
		return GSTORE_FORM_NONE;
	form = form_of(element, get_typlen(element));
	if (!forms[form].element && element != UUIDOID)
		return GSTORE_FORM_NONE;
	column->element = element;
	column->element_form = (uint8) form;
	column->element_width = (uint32) get_typlen(element);
	return form;
}

/* Of pgvector's types: what they consist of; NONE: it is none of them. Other types may have their names. */
static gstore_form
element_of_pgvector(Oid base)
{
	gstore_form form = GSTORE_FORM_NONE;
	HeapTuple	tuple;
	Oid			extension;

	if (base < FirstNormalObjectId)
		return GSTORE_FORM_NONE;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(base));
	if (!HeapTupleIsValid(tuple))
		return GSTORE_FORM_NONE;
	if (strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), "vector") == 0)
		form = GSTORE_FORM_FLOAT;
	else if (strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), "halfvec") == 0)
		form = GSTORE_FORM_HALF;
	ReleaseSysCache(tuple);
	if (form == GSTORE_FORM_NONE)
		return form;
	extension = getExtensionOfObject(TypeRelationId, base);
	if (!OidIsValid(extension) || strcmp(get_extension_name(extension), "vector") != 0)
		return GSTORE_FORM_NONE;
	return form;
}

/* ---- columns of one length */

static void
set_uniform(gstore_column *column, gstore_form form, uint64 count, uint64 stride)
{
	if (stride > GSTORE_STRIDE_MAX)
		return;
	column->form = (uint8) form;
	column->count = (uint32) count;
	column->stride = (uint32) stride;
}

bool
gstore_form_decimal(int32 typmod, int *precision, int *scale)
{
	if (typmod < VARHDRSZ)
		return false;
	*precision = ((typmod - VARHDRSZ) >> 16) & 0xffff;
	*scale = (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024; /* as PostgreSQL packs both into it */
	return *precision <= GSTORE_DECIMAL_PRECISION_MAX;
}

static void
describe_decimal(gstore_column *column, int32 typmod)
{
	int precision, scale;

	if (!gstore_form_decimal(typmod, &precision, &scale))
		return;
	set_uniform(column, GSTORE_FORM_DECIMAL, 0, GSTORE_DECIMAL_BYTES);
	column->precision = (uint8) precision;
	column->scale = (int16) scale;
}

static void
describe_vector(gstore_column *column, Oid base, int32 typmod)
{
	const gstore_form element = typmod > 0 ? element_of_pgvector(base) : GSTORE_FORM_NONE;

	if (element == GSTORE_FORM_NONE)
		return;
	set_uniform(column, GSTORE_FORM_VECTOR, (uint64) typmod, (uint64) typmod * forms[element].width);
	if (column->form != GSTORE_FORM_VECTOR)
		return;
	column->element = element == GSTORE_FORM_FLOAT ? FLOAT4OID : InvalidOid;
	column->element_form = (uint8) element;
	column->element_width = forms[element].width;
}

/* By the type alone, as far as it says how long its values are. */
static void
describe_by_type(gstore_column *column, Oid base, int32 typmod)
{
	switch (base)
	{
		case NUMERICOID:
			describe_decimal(column, typmod);
			break;
		case BITOID:
			if (typmod > 0)
				set_uniform(column, GSTORE_FORM_BITS, (uint64) typmod, ((uint64) typmod + 7) / 8);
			break;
		case BPCHAROID: /* counts characters */
			if (typmod > VARHDRSZ && pg_database_encoding_max_length() == 1)
				set_uniform(column, GSTORE_FORM_BYTES, (uint64) typmod - VARHDRSZ,
							(uint64) typmod - VARHDRSZ);
			break;
		default:
			describe_vector(column, base, typmod);
	}
}

static void
describe_by_option(gstore_column *column, Oid base, const char *name, uint32 length)
{
	if (base == TEXTOID || base == VARCHAROID || base == BPCHAROID || base == BYTEAOID)
		set_uniform(column, GSTORE_FORM_BYTES, length, length);
	else if (describe_elements(column, base) != GSTORE_FORM_NONE)
		set_uniform(column, GSTORE_FORM_ARRAY, length, (uint64) length * column->element_width);
	else
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("column \"%s\" of type %s cannot have the option \"length\"", name,
						format_type_be(column->type)),
				 errhint("It is for text, character, character varying, bytea, and arrays of "
						 "numbers, dates, times and uuid.")));
	if (!gstore_is_uniform(column))
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE),
				 errmsg("invalid value for option \"length\" of column \"%s\": %u", name, length),
				 errhint("Values of one length have at most %u bytes.", GSTORE_STRIDE_MAX)));
}

void
gstore_form_describe(gstore_column *column, const char *name, uint32 length)
{
	int32	  typmod = column->typmod;
	const Oid base = getBaseTypeAndTypmod(column->type, &typmod);

	column->form = column->element_form = GSTORE_FORM_NONE;
	if (length > 0)
		describe_by_option(column, base, name, length);
	else if (column->length < 0)
		describe_by_type(column, base, typmod);
	if (gstore_is_uniform(column) || !column->arrow)
		return;
	column->form = (uint8) form_of(base, column->length);
	if (column->form == GSTORE_FORM_BINARY && describe_elements(column, base) != GSTORE_FORM_NONE)
		column->form = GSTORE_FORM_LIST;
}

bool
gstore_form_is_same(const gstore_column *one, const gstore_column *other)
{
	return one->arrow == other->arrow && one->form == other->form &&
		one->element_form == other->element_form && one->element == other->element &&
		one->stride == other->stride && one->count == other->count && one->scale == other->scale;
}

uint8
gstore_uniform_kind(const gstore_column *column)
{
	return forms[column->form].uniform;
}

/* ---- Arrow's names */

void
gstore_arrow_format(const gstore_column *column, char text[GSTORE_ARROW_FORMAT_BYTES])
{
	const char *format = forms[column->form].format;

	switch (column->form)
	{
		case GSTORE_FORM_DECIMAL:
			snprintf(text, GSTORE_ARROW_FORMAT_BYTES, "%s%u,%d", format, column->precision,
					 column->scale);
			break;
		case GSTORE_FORM_ARRAY:
		case GSTORE_FORM_VECTOR:
			snprintf(text, GSTORE_ARROW_FORMAT_BYTES, "%s%u", format, column->count);
			break;
		case GSTORE_FORM_FIXED:
		case GSTORE_FORM_BITS:
		case GSTORE_FORM_BYTES:
			snprintf(text, GSTORE_ARROW_FORMAT_BYTES, "%s%u", format, gstore_stride(column));
			break;
		default:
			strlcpy(text, format, GSTORE_ARROW_FORMAT_BYTES);
	}
}

void
gstore_arrow_element_format(const gstore_column *column, char text[GSTORE_ARROW_FORMAT_BYTES])
{
	const form_row *row = &forms[column->element_form];

	if (column->element_form == GSTORE_FORM_FIXED)
		snprintf(text, GSTORE_ARROW_FORMAT_BYTES, "%s%u", row->format, column->element_width);
	else
		strlcpy(text, row->format, GSTORE_ARROW_FORMAT_BYTES);
}
