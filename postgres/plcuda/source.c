/*
 * A function as it is written: blocks and directives, and the text that the compiler is given.
 *
 * Lines of the user keep their numbers by #line. What has to do with the call (names, types, numbers of arguments)
 * is checked here; the rest is the compiler's.
 */
#include "postgres/plcuda/plcuda.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/proclang.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#define FILE_NAME "plcuda"
#define DIRECTIVE "#plcuda_"
#define HEADERS	  "device" /* folder of the library's */

/* ---- the signature */

static void
fail_feature(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a plcuda function cannot %s", what)));
}

static void
read_signature(plcuda_function *f, HeapTuple tuple)
{
	const Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);

	if (proc->prokind != PROKIND_FUNCTION)
		fail_feature("be a procedure, an aggregate or a window function");
	if (proc->pronargs > PLCUDA_ARGUMENTS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_ARGUMENTS),
				 errmsg("a plcuda function has at most %d arguments", PLCUDA_ARGUMENTS_MAX)));
	f->name = pstrdup(NameStr(proc->proname));
	f->nargs = proc->pronargs;
	f->argument_types = palloc(sizeof(Oid) * (Size) Max(f->nargs, 1));
	f->arguments = palloc0(sizeof(plcuda_type *) * (Size) Max(f->nargs, 1));
	f->columns = palloc0(sizeof(List *) * (Size) Max(f->nargs, 1));
	for (int i = 0; i < f->nargs; i++)
	{
		f->argument_types[i] = proc->proargtypes.values[i];
		f->arguments[i] = plcuda_find_type(f->argument_types[i]);
		if (f->arguments[i] == NULL)
			fail_feature(psprintf("have an argument of type %s", format_type_be(f->argument_types[i])));
	}
	plcuda_read_row(f->oid, proc->proretset, &f->row);
}

/* ---- directives */

typedef struct reader
{
	plcuda_function *f;
	int				 line;
	int				 block; /* PLCUDA_KERNELS: decl; -1: outside */
	int				 block_line;
	bool			 seen[PLCUDA_KERNELS + 1];
	StringInfoData	 texts[PLCUDA_KERNELS + 1];
	StringInfoData	 headers;
	List			*directives; /* as refuse_repeated() names them */
} reader;

static void
fail_line(const reader *r, const char *wrong)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR), errmsg("%s", wrong),
			 errcontext("line %d of a plcuda function", r->line)));
}

/*
 * Without a schema the name is that of a function beside the plcuda function: the caller's search_path must not choose what is
 * called with the rights of the owner. InvalidOid: there is none.
 */
static Oid
look_up(const reader *r, const char *name, int nargs)
{
#if PG_VERSION_NUM >= 160000
	List *names = stringToQualifiedNameList(name, NULL);
#else
	List *names = stringToQualifiedNameList(name);
#endif

	if (list_length(names) == 1)
	{
		char *schema = get_namespace_name(r->f->schema);

		if (schema == NULL) /* dropped since */
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_SCHEMA),
					 errmsg("schema with OID %u does not exist", r->f->schema)));
		names = lcons(makeString(schema), names);
	}
	return LookupFuncName(names, nargs, r->f->argument_types, true);
}

static void
check_helper(const reader *r, const char *name, Oid oid, Oid result, Oid other_result, bool set)
{
	if (oid == r->f->oid)
		fail_line(r, "a directive cannot name the function itself");
	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function %s does not exist",
						funcname_signature_string(name, r->f->nargs, NIL, r->f->argument_types)),
				 errdetail("Functions that directives name have the arguments of the plcuda function."),
				 errcontext("line %d of a plcuda function", r->line)));
	/* The others are not called by themselves: they read what the executor alone gives them. */
	if (get_func_prokind(oid) != PROKIND_FUNCTION)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("%s is an aggregate or window function", name),
				 errdetail("Directives name plain functions."),
				 errcontext("line %d of a plcuda function", r->line)));
	if (get_func_rettype(oid) != result && get_func_rettype(oid) != other_result)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("function %s must return %s", name, format_type_be(result)),
				 errcontext("line %d of a plcuda function", r->line)));
	if (get_func_retset(oid) != set)
		fail_line(r,
				  set ? "the CPU fallback must return a set, too"
					  : "a function that a directive names cannot return a set");
}

static Oid
find_function(const reader *r, const char *name, Oid result, Oid other_result, bool set)
{
	const Oid oid = look_up(r, name, r->f->nargs);

	check_helper(r, name, oid, result, other_result, set);
	return oid;
}

static Oid
find_fallback(const reader *r, const char *name)
{
	const plcuda_row *row = &r->f->row;
	const Oid		  oid = find_function(r, name, row->type, row->type, row->set);
	TupleDesc		  desc;

	if (row->type != RECORDOID)
		return oid;
	if (get_func_result_type(oid, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != row->desc->natts)
		fail_line(r, "the CPU fallback must return the same columns");
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->atttypid != TupleDescAttr(row->desc, i)->atttypid)
			fail_line(r, "the CPU fallback must return the same columns");
	return oid;
}

static void
read_size(const reader *r, const char *value, int64 least, plcuda_size *out)
{
	if (*value == '\0')
		fail_line(r, "a number, or the name of a function, is missing");
	*out = (plcuda_size){0, InvalidOid};
	if (isdigit((unsigned char) *value))
	{
		out->value = DatumGetInt64(DirectFunctionCall1(int8in, CStringGetDatum(value)));
		if (out->value < least)
			fail_line(r, psprintf("the number must be at least %lld, not %s", (long long) least, value));
	}
	else
		out->function = find_function(r, value, INT8OID, INT4OID, false);
}

/* block: that which the directive is for; -1: for the function. */
static void
refuse_repeated(reader *r, int block, const char *name)
{
	char	 *key = psprintf("%d %s", block, name);
	ListCell *cell;

	foreach(cell, r->directives)
		if (strcmp(lfirst(cell), key) == 0)
			fail_line(
				r, psprintf("a second " DIRECTIVE "%s%s", name, block >= 0 ? " in one block" : ""));
	r->directives = lappend(r->directives, key);
}

static plcuda_block *
current_block(reader *r, const char *name)
{
	if (r->block < 0 || r->block == PLCUDA_KERNELS)
		fail_line(r, "this directive stands in a block of #plcuda_prep, #plcuda_begin or #plcuda_post");
	refuse_repeated(r, r->block, name);
	return &r->f->blocks[r->block];
}

static void
begin_block(reader *r, int block)
{
	if (r->block >= 0)
		fail_line(r, "a block begins before the one above it has ended by #plcuda_end");
	if (r->seen[block])
		fail_line(r, "a second block of this kind");
	r->seen[block] = true;
	r->block = block;
	r->block_line = r->line;
	if (block < PLCUDA_KERNELS)
	{
		r->f->blocks[block].present = true;
		r->f->blocks[block].threads.value = 1;
	}
	appendStringInfo(&r->texts[block], "#line %d \"" FILE_NAME "\"\n", r->line + 1);
}

/* Of the library, by its name in quotes: nothing else can be included. */
static void
add_header(reader *r, const char *value)
{
	const size_t len = strspn(value + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");

	if (len == 0 || strcmp(value + 1 + len, ".h\"") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a plcuda function cannot include files"),
				 errdetail(DIRECTIVE "include %s is no header of the library of plcuda.", value),
				 errcontext("line %d of a plcuda function", r->line)));
	appendStringInfo(&r->headers, "#line %d \"" FILE_NAME "\"\n#include \"" HEADERS "/%.*s.h\"\n",
					 r->line, (int) len, value + 1);
}

static bool
is_superusers(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool is = HeapTupleIsValid(tuple) && superuser_arg(((Form_pg_proc) GETSTRUCT(tuple))->proowner);

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return is;
}

/* A function of the same arguments, or of none. */
static void
add_include(reader *r, const char *value)
{
	Oid oid;

	if (*value == '\0')
		fail_line(r, "the name of a function, or of a header in quotes, is missing");
	if (*value == '"')
	{
		add_header(r, value);
		return;
	}
	oid = look_up(r, value, r->f->nargs);
	if (!OidIsValid(oid))
		oid = look_up(r, value, 0);
	check_helper(r, value, oid, TEXTOID, TEXTOID, false);
	/* What it returns is compiled. */
	if (!is_superusers(oid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("function %s, whose text is included, must belong to a superuser", value),
				 errcontext("line %d of a plcuda function", r->line)));
	r->f->includes = lappend_oid(r->f->includes, oid);
}

static void
check_no_value(const reader *r, const char *name, const char *value)
{
	if (*value != '\0')
		fail_line(
			r, psprintf("nothing may follow " DIRECTIVE "%s in its line, not \"%s\"", name, value));
}

/* ARGUMENT NAME, NAME ...: those of a table that the function reads; others cost neither memory nor time. */
static void
read_columns(reader *r, const char *value)
{
	char	   *copy = pstrdup(value), *names = copy + strcspn(copy, " \t");
	const char *digits = strncmp(copy, "arg", 3) == 0 ? copy + 3 : copy;
	List	   *found = NIL;
	int			number;

	if (*names != '\0')
		*names++ = '\0';
	number = strlen(digits) <= 3 && strspn(digits, "0123456789") == strlen(digits) ? atoi(digits) : 0;
	if (number < 1 || number > r->f->nargs || r->f->arguments[number - 1]->kind != PLCUDA_KIND_TABLE)
		fail_line(r, psprintf("\"%s\" is no argument of type reggstore, as arg1 or arg2", copy));
	if (!SplitIdentifierString(names, ',', &found) || found == NIL)
		fail_line(r, "names of columns are missing, or not separated by commas");
	refuse_repeated(r, -1, psprintf("columns arg%d", number));
	r->f->columns[number - 1] = found;
}

/* Of those for the function, in any place. False: it is none. */
static bool
take_function_directive(reader *r, const char *name, const char *value)
{
	plcuda_function *f = r->f;

	if (strcmp(name, "include") == 0)
	{
		add_include(r, value);
		return true;
	}
	if (strcmp(name, "library") == 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("a plcuda function cannot be linked with a library"),
			 errdetail("Its blocks are code for the GPU, and libraries for the host cannot be called from there."),
			 errhint("A function's own code stands in #plcuda_decl, or is included by #plcuda_include."),
			 errcontext("line %d of a plcuda function", r->line)));
	if (strcmp(name, "columns") == 0)
	{
		read_columns(r, value); /* one for each argument */
		return true;
	}
	refuse_repeated(r, -1, name);
	if (strcmp(name, "results_bufsz") == 0)
		read_size(r, value, 0, &f->results);
	else if (strcmp(name, "working_bufsz") == 0)
		read_size(r, value, 0, &f->workbuf);
	else if (strcmp(name, "sanity_check") == 0)
		f->sanity_check = find_function(r, value, BOOLOID, BOOLOID, false);
	else if (strcmp(name, "cpu_fallback") == 0)
		f->cpu_fallback = find_fallback(r, value);
	else
		return false;
	return true;
}

static void
take_directive(reader *r, const char *name, const char *value)
{
	static const char *const blocks[] = {"prep", "begin", "post", "decl"}; /* as in reader.texts */

	for (int i = 0; i <= PLCUDA_KERNELS; i++)
		if (strcmp(name, blocks[i]) == 0)
		{
			check_no_value(r, name, value);
			begin_block(r, i);
			return;
		}
	if (strcmp(name, "end") == 0)
	{
		check_no_value(r, name, value);
		if (r->block < 0)
			fail_line(r, "#plcuda_end without a block");
		r->block = -1;
	}
	else if (strcmp(name, "num_threads") == 0)
		read_size(r, value, 1, &current_block(r, name)->threads);
	else if (strcmp(name, "kernel_blocksz") == 0)
		read_size(r, value, 0, &current_block(r, name)->block_threads);
	else if (strcmp(name, "shmem_unitsz") == 0)
		read_size(r, value, 0, &current_block(r, name)->shared_thread);
	else if (strcmp(name, "shmem_blocksz") == 0)
		read_size(r, value, 0, &current_block(r, name)->shared_block);
	else if (!take_function_directive(r, name, value))
		fail_line(r, psprintf("unknown directive " DIRECTIVE "%s", name));
}

/* False: the line is no directive. */
static bool
take_if_directive(reader *r, const char *line)
{
	char *copy, *name, *value, *end;

	while (*line == ' ' || *line == '\t')
		line++;
	if (strncmp(line, DIRECTIVE, strlen(DIRECTIVE)) != 0)
		return false;
	copy = pstrdup(line + strlen(DIRECTIVE));
	end = copy + strlen(copy);
	while (end > copy && isspace((unsigned char) end[-1]))
		*--end = '\0';
	name = value = copy;
	while (*value != '\0' && !isspace((unsigned char) *value))
		value++;
	if (*value != '\0')
		*value++ = '\0';
	while (isspace((unsigned char) *value))
		value++;
	take_directive(r, name, value);
	return true;
}

static bool
is_blank(const char *line)
{
	while (isspace((unsigned char) *line))
		line++;
	return *line == '\0' || strncmp(line, "//", 2) == 0;
}

static void
read_line(reader *r, const char *line)
{
	const int block = r->block;

	if (!take_if_directive(r, line))
	{
		if (r->block < 0 && !is_blank(line))
			fail_line(r,
					  "text outside of blocks: they begin with #plcuda_decl, #plcuda_prep, #plcuda_begin or "
					  "#plcuda_post, and end with #plcuda_end");
		if (r->block >= 0)
			appendStringInfo(&r->texts[r->block], "%s\n", line);
	}
	else if (block >= 0 && r->block == block)
		appendStringInfoChar(&r->texts[block], '\n'); /* the lines below keep their numbers */
}

/* ---- files */

static bool
begins_with_word(const char *at, const char *word)
{
	const size_t len = strlen(word);

	return strncmp(at, word, len) == 0 && at[len] != '_' && !isalnum((unsigned char) at[len]);
}

/* Behind white space and comments. */
static const char *
skip_space(const char *at)
{
	for (;;)
	{
		if (isspace((unsigned char) *at))
			at++;
		else if (at[0] == '/' && at[1] == '*' && strstr(at + 2, "*/") != NULL)
			at = strstr(at + 2, "*/") + 2;
		else
			return at;
	}
}

/*
 * No directive of the preprocessor names a file. Looked for anywhere, in strings and comments too: what these are
 * differs between languages. Lines that are continued are joined first, as the compiler does.
 */
static void
refuse_files(const char *text)
{
	char *joined = pstrdup(text), *to = joined;

	for (const char *from = text; *from != '\0';)
	{
		const char *behind = from + 1;

		if (*from == '\\')
			while (*behind == ' ' || *behind == '\t' || *behind == '\r')
				behind++;
		if (*from == '\\' && *behind == '\n')
			from = behind + 1;
		else
			*to++ = *from++;
	}
	*to = '\0';
	for (const char *at = joined; *at != '\0'; at++)
	{
		const char *word;

		if (*at == '#')
			word = skip_space(at + 1);
		else if (at[0] == '%' && at[1] == ':')
			word = skip_space(at + 2);
		else if (at[0] == '?' && at[1] == '?' && at[2] == '=')
			word = skip_space(at + 3);
		else
			continue;
		if (begins_with_word(word, "include") || begins_with_word(word, "include_next") ||
			begins_with_word(word, "import") || begins_with_word(word, "embed"))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a plcuda function cannot include files"),
					 errdetail("What docs/plcuda.md lists is declared without that; functions can return more text by " DIRECTIVE
							   "include.")));
	}
}

/* ---- the text */

static void
append_kernel(StringInfo out, const plcuda_function *f, const char *name, const char *body)
{
	appendStringInfo(out,
					 "GVM_KERNEL(plcuda_%s, plcuda_params, plcuda_p)\n{\n"
					 "    const plcuda_call *plcuda = plcuda_p.call;\n",
					 name);
	for (int i = 0; i < f->nargs; i++)
		appendStringInfo(
			out,
			"    const pg_%s_t arg%d = *(const pg_%s_t *)(const void *)(plcuda->arguments + %d);\n",
			f->arguments[i]->name, i + 1, f->arguments[i]->name, i * PLCUDA_SLOT_BYTES);
	if (!f->row.set)
		appendStringInfoString(
			out, "    plcuda_row *retval = (plcuda_row *)(void *)plcuda->result;\n    (void)retval;\n");
	appendStringInfoString(
		out,
		"    void *results = plcuda->results, *workbuf = plcuda->workbuf;\n"
		"    const uint64_t results_bytes = plcuda->results_bytes, workbuf_bytes = plcuda->workbuf_bytes;\n");
	for (int i = 0; i < f->nargs; i++)
		appendStringInfo(out, "    (void)arg%d;\n", i + 1);
	appendStringInfoString(
		out, "    (void)results; (void)workbuf; (void)results_bytes; (void)workbuf_bytes;\n");
	appendStringInfo(out, "%s}\n", body);
}

static void
check_length(Size bytes)
{
	if (bytes >= PLCUDA_TEXT_BYTES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a plcuda function has at most %u bytes, not %zu", PLCUDA_TEXT_BYTES_MAX,
						bytes)));
}

/* For comments and the compiler's messages: letters and digits. */
static char *
plain_name(Oid function)
{
	char *name = get_func_name(function);

	for (char *c = name; c != NULL && *c != '\0'; c++)
		if (!isalnum((unsigned char) *c))
			*c = '_';
	return name == NULL ? pstrdup("") : name;
}

static void
make_text(reader *r)
{
	static const char *const names[PLCUDA_KERNELS] = {"prep", "main", "post"};
	StringInfoData			 out;
	ListCell				*cell;

	initStringInfo(&out);
	appendStringInfoString(&out, "#include \"device.h\"\n");
	plcuda_append_row_type(&out, &r->f->row);
	if (r->f->row.set)
		appendStringInfoString(&out, "#include \"set.h\"\n");
	else if (r->f->appends_bytes || r->f->includes != NIL)
		appendStringInfoString(&out, "#include \"append.h\"\n");
	if (r->f->row.pointer_count > 0)
		appendStringInfoString(&out, "#include \"gather.h\"\n");
	appendStringInfoString(&out, r->headers.data);
	foreach(cell, r->f->includes)
		appendStringInfo(&out, "/* " DIRECTIVE "include %s */\n", plain_name(lfirst_oid(cell)));
	r->f->include_at = (Size) out.len;
	appendStringInfoString(&out, r->texts[PLCUDA_KERNELS].data);
	for (int i = 0; i < PLCUDA_KERNELS; i++)
		if (r->f->blocks[i].present)
			append_kernel(&out, r->f, names[i], r->texts[i].data);
	check_length((Size) out.len);
	r->f->text = out.data;
}

char *
plcuda_include_texts(const plcuda_function *f, const List *texts)
{
	StringInfoData out;
	ListCell	  *text, *function;

	initStringInfo(&out);
	appendBinaryStringInfo(&out, f->text, (int) f->include_at);
	forboth(text, texts, function, f->includes)
		appendStringInfo(&out, "#line 1 \"%s\"\n%s\n", plain_name(lfirst_oid(function)),
						 (const char *) lfirst(text));
	appendStringInfoString(&out, f->text + f->include_at);
	check_length((Size) out.len);
	refuse_files(out.data + f->include_at);
	return out.data;
}

static void
read_source(plcuda_function *f, char *source)
{
	reader r = {.f = f, .line = 0, .block = -1};

	refuse_files(source);
	initStringInfo(&r.headers);
	f->appends_bytes = strstr(source, "plcuda_append_bytes") != NULL;
	for (int i = 0; i <= PLCUDA_KERNELS; i++)
		initStringInfo(&r.texts[i]);
	for (char *line = source, *next; line != NULL; line = next)
	{
		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		r.line++;
		read_line(&r, line);
	}
	if (r.block >= 0)
	{
		r.line = r.block_line;
		fail_line(&r, "a block is not ended by #plcuda_end");
	}
	if (!f->blocks[PLCUDA_MAIN].present)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("a plcuda function needs a block #plcuda_begin")));
	make_text(&r);
}

plcuda_function *
plcuda_read_function(Oid oid)
{
	plcuda_function *f = palloc0(sizeof *f);
	HeapTuple		 tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Datum			 source;
	bool			 null;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("function with OID %u does not exist", oid)));
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang != get_language_oid("plcuda", false))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a function in the language plcuda",
						NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname))));
	f->oid = oid;
	f->schema = ((Form_pg_proc) GETSTRUCT(tuple))->pronamespace;
	read_signature(f, tuple);
	source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &null);
	if (null)
		elog(ERROR, "function %u has no source", oid);
	read_source(f, TextDatumGetCString(source));
	ReleaseSysCache(tuple);
	return f;
}
