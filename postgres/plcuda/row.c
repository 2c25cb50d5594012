/*
 * What a function returns: a row. Of a composite result it has a member for each column, else it is the value's slot itself;
 * a set has many. Here are its struct, as kernels have it, and the way from there to PostgreSQL's values.
 */
#include "postgres/plcuda/plcuda.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/typcache.h"

/* ---- names of members */

/* Of C and C++, and what the C compiler defines without an underscore. */
static const char *const keywords[] = {
	"alignas",	   "alignof",	   "and",		"and_eq",
	"asm",		   "auto",		   "bitand",	"bitor",
	"bool",		   "break",		   "case",		"catch",
	"char",		   "char16_t",	   "char32_t",	"char8_t",
	"class",	   "co_await",	   "co_return", "co_yield",
	"compl",	   "concept",	   "const",		"const_cast",
	"consteval",   "constexpr",	   "constinit", "continue",
	"decltype",	   "default",	   "delete",	"do",
	"double",	   "dynamic_cast", "else",		"enum",
	"explicit",	   "export",	   "extern",	"false",
	"float",	   "for",		   "friend",	"goto",
	"if",		   "inline",	   "int",		"linux",
	"long",		   "mutable",	   "namespace", "new",
	"noexcept",	   "not",		   "not_eq",	"nullptr",
	"operator",	   "or",		   "or_eq",		"private",
	"protected",   "public",	   "register",	"reinterpret_cast",
	"requires",	   "restrict",	   "return",	"short",
	"signed",	   "sizeof",	   "static",	"static_assert",
	"static_cast", "struct",	   "switch",	"template",
	"this",		   "thread_local", "throw",		"true",
	"try",		   "typedef",	   "typeid",	"typename",
	"typeof",	   "union",		   "unix",		"unsigned",
	"using",	   "virtual",	   "void",		"volatile",
	"wchar_t",	   "while",		   "xor",		"xor_eq",
};

/* Not columnN, which stands for column number N; not names that the headers may have as macros. */
static bool
is_member_name(const char *name)
{
	if (!isalpha((unsigned char) name[0]) || strncmp(name, "GVM_", 4) == 0 ||
		strncmp(name, "PLCUDA_", 7) == 0 ||
		(strncmp(name, "column", 6) == 0 && strspn(name + 6, "0123456789") == strlen(name + 6)))
		return false;
	for (const char *c = name; *c != '\0'; c++)
		if (IS_HIGHBIT_SET(*c) || (!isalnum((unsigned char) *c) && *c != '_'))
			return false;
	for (size_t i = 0; i < lengthof(keywords); i++)
		if (strcmp(name, keywords[i]) == 0)
			return false;
	return true;
}

/* ---- columns */

static void
add_column(plcuda_row *row, const Form_pg_attribute attribute)
{
	plcuda_row_column *c = &row->columns[row->count++];

	if (attribute->attisdropped)
		return;
	c->oid = attribute->atttypid;
	c->type = plcuda_find_type(c->oid);
	if (c->type == NULL || c->type->kind == PLCUDA_KIND_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a plcuda function cannot return %s", format_type_be(attribute->atttypid)),
				 row->composite
					 ? errdetail("Column \"%s\" is of that type.", NameStr(attribute->attname))
					 : 0));
	c->member = is_member_name(NameStr(attribute->attname)) ? pstrdup(NameStr(attribute->attname))
															: psprintf("column%d", row->count);
	c->typmod = attribute->atttypmod;
	plcuda_find_coercion(attribute->atttypid, c->typmod, &c->coercion);
}

/* As the compiler lays out a struct. */
static void
lay_out(plcuda_row *row)
{
	uint32 at = 0, align = 1;

	for (int i = 0; i < row->count; i++)
	{
		plcuda_row_column *c = &row->columns[i];

		if (c->type == NULL)
			continue;
		at = TYPEALIGN(c->type->slot_align, at);
		c->at = at;
		at += c->type->slot_bytes;
		align = Max(align, c->type->slot_align);
		row->pointer_count += c->type->pointer_count;
	}
	row->bytes = Max(TYPEALIGN(align, at), 1); /* without columns: a char */
	if (row->bytes > PLCUDA_ROW_BYTES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("a plcuda function cannot return a row of %u bytes; %d is the most",
						row->bytes, PLCUDA_ROW_BYTES_MAX)));
}

/* Of a value that is no composite one: one column. A name makes it a member. */
static TupleDesc
describe_scalar(Oid type, const char *name)
{
	TupleDesc desc;

	if (type == VOIDOID)
		return CreateTemplateTupleDesc(0);
	desc = CreateTemplateTupleDesc(1);
	TupleDescInitEntry(desc, 1, name, type, -1, 0);
	return desc;
}

void
plcuda_read_row(Oid function, bool set, plcuda_row *row)
{
	Oid type;
	const TypeFuncClass class = get_func_result_type(function, &type, &row->desc);
	const char *name = get_func_result_name(function);

	row->set = set;
	row->type = type;
	if (class == TYPEFUNC_RECORD || class == TYPEFUNC_OTHER || class == TYPEFUNC_COMPOSITE_DOMAIN)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a plcuda function cannot return %s", format_type_be(type)),
				 type == RECORDOID ? errhint("Declare the columns by OUT arguments or RETURNS TABLE.")
								   : 0));
	row->composite = class == TYPEFUNC_COMPOSITE;
	if (row->composite)
		row->desc = BlessTupleDesc(row->desc);
	else
		row->desc = describe_scalar(type, name != NULL ? name : "column1");
	row->columns = palloc0(sizeof *row->columns * (Size) Max(row->desc->natts, 1));
	for (int i = 0; i < row->desc->natts; i++)
		add_column(row, TupleDescAttr(row->desc, i));
	if (!row->composite && name == NULL && row->count == 1)
		row->columns[0].member = NULL;
	lay_out(row);
}

void
plcuda_append_row_type(StringInfo out, const plcuda_row *row)
{
	const bool plain = row->count == 1 && row->columns[0].type != NULL &&
		row->columns[0].member == NULL;

	if (plain)
		appendStringInfo(out, "typedef pg_%s_t plcuda_row;\n", row->columns[0].type->name);
	else
	{
		appendStringInfoString(out, "typedef struct plcuda_row {\n");
		for (int i = 0; i < row->count; i++)
			if (row->columns[i].type != NULL)
				appendStringInfo(out, "    pg_%s_t %s;\n", row->columns[i].type->name,
								 row->columns[i].member);
		appendStringInfo(out, "%s} plcuda_row;\n", row->bytes == 1 ? "    char column0;\n" : "");
	}
	appendStringInfo(out, "typedef char plcuda_row_has_its_size[sizeof(plcuda_row) == %u ? 1 : -1];\n",
					 row->bytes);
	if (!row->set)
		return;
	appendStringInfoString(out,
						   "GVM_DEVICE void plcuda_clear_row(plcuda_row *row)\n{\n"
						   "    const plcuda_row zero = {0};\n    *row = zero;\n");
	for (int i = 0; i < row->count; i++)
		if (row->columns[i].type != NULL)
			appendStringInfo(out, "    row->%s%sisnull = 1;\n", plain ? "" : row->columns[i].member,
							 plain ? "" : ".");
	appendStringInfoString(out, "}\n");
}

/* ---- values */

void
plcuda_null_row(const plcuda_row *row, void *to)
{
	memset(to, 0, row->bytes);
	for (int i = 0; i < row->count; i++)
		if (row->columns[i].type != NULL)
			plcuda_null_to_slot(row->columns[i].type, (char *) to + row->columns[i].at);
}

void
plcuda_list_pointers(const plcuda_row *row, plcuda_pointer *pointers)
{
	for (int i = 0; i < row->count; i++)
	{
		const plcuda_row_column *c = &row->columns[i];

		for (int j = 0; c->type != NULL && j < c->type->pointer_count; j++)
		{
			*pointers = c->type->pointers[j];
			pointers->value += c->at;
			pointers->length += c->at;
			pointers->isnull += c->at;
			if (pointers->more > 0)
				pointers->more += c->at;
			pointers++;
		}
	}
}

void
plcuda_row_to_datums(const plcuda_row *row, const char *from, plcuda_bytes all, Datum *values,
					 bool *nulls)
{
	for (int i = 0; i < row->count; i++)
	{
		plcuda_row_column *c = &row->columns[i];

		values[i] = (Datum) 0;
		nulls[i] = true;
		if (c->type != NULL)
			values[i] = plcuda_slot_to_datum(c->type, c->oid, from + c->at, all, &nulls[i]);
		if (c->coercion.fn_oid != InvalidOid && !nulls[i])
			values[i] = plcuda_coerce(c->type, &c->coercion, c->typmod, values[i]);
	}
}
