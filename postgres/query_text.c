/*
 * See query_text.h.
 *
 * A pattern of LIKE becomes pieces: what is between its %, with a byte of 0, which no text has, for each _.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"

#include "postgres/compat.h"
#include "postgres/qual.h"
#include "postgres/query_list.h"
#include "postgres/query_text.h"

#define PATTERN_MAX \
	((int) (2 * sizeof(int64) * GQUERY_VALUES_MAX)) /* bytes: each of them may be escaped */

typedef enum question
{
	ASKS_EQUAL,
	ASKS_LIKE,
	ASKS_ILIKE,
	ASKS_PREFIX,
	ASKS_BYTES,
	ASKS_CHARACTERS,
} question;

typedef struct text_function
{
	Oid	  function;
	uint8 asks; /* question */
	bool  negated;
	bool  trimmed; /* blanks at the end of both are none of them */
} text_function;

static const text_function functions[] = {
	{F_TEXTEQ, ASKS_EQUAL, false, false},
	{F_TEXTNE, ASKS_EQUAL, true, false},
	{F_BPCHAREQ, ASKS_EQUAL, false, true},
	{F_BPCHARNE, ASKS_EQUAL, true, true},
	{F_TEXTLIKE, ASKS_LIKE, false, false},
	{F_TEXTNLIKE, ASKS_LIKE, true, false},
	{F_BPCHARLIKE, ASKS_LIKE, false, false},
	{F_BPCHARNLIKE, ASKS_LIKE, true, false},
	{F_TEXTICLIKE, ASKS_ILIKE, false, false},
	{F_TEXTICNLIKE, ASKS_ILIKE, true, false},
	{F_BPCHARICLIKE, ASKS_ILIKE, false, false},
	{F_BPCHARICNLIKE, ASKS_ILIKE, true, false},
	{F_LIKE_TEXT_TEXT, ASKS_LIKE, false, false},
	{F_NOTLIKE_TEXT_TEXT, ASKS_LIKE, true, false},
	{F_STARTS_WITH, ASKS_PREFIX, false, false},
	{F_OCTET_LENGTH_TEXT, ASKS_BYTES, false, false},
	{F_OCTET_LENGTH_BPCHAR, ASKS_BYTES, false, false},
	{F_LENGTH_TEXT, ASKS_CHARACTERS, false, false},
	{F_CHAR_LENGTH_TEXT, ASKS_CHARACTERS, false, false},
	{F_CHARACTER_LENGTH_TEXT, ASKS_CHARACTERS, false, false},
	{F_LENGTH_BPCHAR, ASKS_CHARACTERS, false, true},
	{F_CHAR_LENGTH_BPCHAR, ASKS_CHARACTERS, false, true},
	{F_CHARACTER_LENGTH_BPCHAR, ASKS_CHARACTERS, false, true},
};

static const text_function *
find_function(Oid function)
{
	for (Size i = 0; i < lengthof(functions); i++)
		if (functions[i].function == function)
			return &functions[i];
	return NULL;
}

/* Of what compares: equal texts have equal bytes. Without a collation PostgreSQL raises an error. */
static bool
is_deterministic(Oid collation)
{
	return OidIsValid(collation) && get_collation_isdeterministic(collation);
}

/* Characters are known to kernels: those of UTF-8, or bytes. */
static bool
has_characters(void)
{
	return GetDatabaseEncoding() == PG_UTF8 || pg_database_encoding_max_length() == 1;
}

static uint32
character_flag(void)
{
	return GetDatabaseEncoding() == PG_UTF8 ? GQUERY_TEXT_UTF8 : 0;
}

/* The column that an expression is, as it is, or with a cast that cuts blanks off. NULL: it is something else. */
static Node *
find_cast(gstore_emitter *e, Node *node, bool *trimmed)
{
	bool in_case = false;

	*trimmed = false;

	while (node != NULL && !IsA(node, Var))
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, CaseTestExpr) && !in_case)
		{
			node = gstore_case_value(e);
			in_case = true;
		}
		else if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == F_TEXT_BPCHAR)
		{
			*trimmed = true;
			node = linitial(((FuncExpr *) node)->args);
		}
		else
			return NULL;
	}
	return node;
}

#define ASCII_END 128

/* Of lower() and upper(), what becomes of ASCII; of others the collation's locale decides, but for C. False: it does with ASCII as well. */
static bool
find_letters(bool is_lower, Oid collation, uint16 *flags)
{
	char all[ASCII_END] = "", wanted[ASCII_END] = "", *changed;

	*flags |= is_lower ? GQUERY_TEXT_LOWER : GQUERY_TEXT_UPPER;
	if (!OidIsValid(collation) || (*flags & GQUERY_TEXT_LOWER && *flags & GQUERY_TEXT_UPPER))
		return false;
	if (lc_ctype_is_c(collation))
		return true;
	*flags |= GQUERY_TEXT_ASCII;
	for (int c = 1; c < ASCII_END; c++)
	{
		all[c - 1] = (char) c;
		wanted[c - 1] = (char) (is_lower ? pg_ascii_tolower((unsigned char) c)
										 : pg_ascii_toupper((unsigned char) c));
	}
	changed = is_lower ? str_tolower(all, ASCII_END - 1, collation)
					   : str_toupper(all, ASCII_END - 1, collation);
	return strcmp(changed, wanted) == 0;
}

/* Of a column, or of lower() or upper() of it, the column, and what is done with its texts. NULL: it is something else. */
static Node *
find_source(gstore_emitter *e, Node *node, uint16 *flags)
{
	bool trimmed;

	while (IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	if (IsA(node, FuncExpr) &&
		(((FuncExpr *) node)->funcid == F_LOWER_TEXT || ((FuncExpr *) node)->funcid == F_UPPER_TEXT))
	{
		const FuncExpr *f = (FuncExpr *) node;

		if (!find_letters(f->funcid == F_LOWER_TEXT, f->inputcollid, flags))
			return NULL;
		node = linitial(f->args);
	}
	node = find_cast(e, node, &trimmed);
	*flags |= trimmed ? GQUERY_TEXT_TRIMMED : 0;
	return node;
}

static bool
find_text(gstore_emitter *e, Node *node, gquery_instruction *i, bool *nullable)
{
	node = find_source(e, node, &i->b);
	return node != NULL && gstore_find_text(e, node, 0, &i->a, nullable);
}

/* ---- what it is compared with: the program's values */

/* Words for so many texts. False: there is no room. */
static bool
begin_texts(gquery_program *p, uint32 count, gquery_instruction *i)
{
	if (count > GQUERY_VALUES_MAX - p->value_count)
		return false;
	i->value = p->value_count | (uint64) count << 32;
	p->value_count += count;
	return true;
}

static bool
add_text(gquery_program *p, uint32 at, const char *bytes, uint32 count)
{
	const uint32 words = (count + 7) / 8;

	if (words > GQUERY_VALUES_MAX - p->value_count)
		return false;
	memset(&p->values[p->value_count], 0, words * sizeof p->values[0]);
	memcpy(&p->values[p->value_count], bytes, count);
	p->values[at] = (int64) ((uint64) count << 32 | p->value_count);
	p->value_count += words;
	return true;
}

/* Of ASKS_EQUAL. */
static bool
add_value(gquery_program *p, uint32 at, Datum value, bool trimmed)
{
	const text *from = DatumGetTextPP(value);
	const char *bytes = VARDATA_ANY(from);
	uint32		count = VARSIZE_ANY_EXHDR(from);

	while (trimmed && count > 0 && bytes[count - 1] == ' ')
		count--;
	return add_text(p, at, bytes, count);
}

/* As GQUERY_TEXT_IN has them in order. */
static int
compare_texts(const void *left, const void *right, void *program)
{
	const gquery_program *p = program;
	const uint64		  l = *(const uint64 *) left, r = *(const uint64 *) right;

	if (l >> 32 != r >> 32)
		return l >> 32 < r >> 32 ? -1 : 1;
	for (uint32 i = 0; i < ((l >> 32) + 7) / 8; i++)
	{
		const uint64 one = (uint64) p->values[(uint32) l + i],
					 other = (uint64) p->values[(uint32) r + i];

		if (one != other)
			return one < other ? -1 : 1;
	}
	return 0;
}

/* Those that are not NULL, and how many. */
static Datum *
read_elements(Datum array, int *count, bool *has_null, bool *empty)
{
	ArrayType *texts = DatumGetArrayTypeP(array); /* of text, varchar or char(n) */
	Datum	  *elements;
	bool	  *nulls;
	int		   n;

	deconstruct_array(texts, ARR_ELEMTYPE(texts), -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	*count = 0;
	for (int k = 0; k < n; k++)
		if (!nulls[k])
			elements[(*count)++] = elements[k];
	*has_null = *count < n;
	*empty = n == 0;
	return elements;
}

/* Elements that are not NULL. */
static bool
add_elements(gquery_program *p, Datum array, bool trimmed, gquery_instruction *i, bool *has_null,
			 bool *empty)
{
	const uint32 first = p->value_count;
	int			 count;
	const Datum *elements = read_elements(array, &count, has_null, empty);

	if (!begin_texts(p, (uint32) count, i))
		return false;
	for (int k = 0; k < count; k++)
		if (!add_value(p, first + (uint32) k, elements[k], trimmed))
			return false;
	qsort_arg(&p->values[first], (size_t) count, sizeof p->values[0], compare_texts, p);
	return true;
}

typedef struct pattern
{
	char *bytes; /* of all pieces */
	int	 *ends;	 /* of each of them */
	int	  count;
	bool  has_wildcard, from_start, to_end;
} pattern;

static void
end_piece(pattern *p, int at)
{
	if (at > (p->count > 0 ? p->ends[p->count - 1] : 0))
		p->ends[p->count++] = at;
}

/* False: it is too long, or it ends in the character that escapes others, which is an error of rows that come to it. */
static bool
split_pattern(const char *text, int length, pattern *out)
{
	int at = 0;

	if (length > PATTERN_MAX)
		return false;
	*out = (pattern){.bytes = palloc((Size) length + 1),
					 .ends = palloc(sizeof(int) * (Size) (length + 1))};
	for (const char *c = text; c < text + length; c++)
	{
		out->has_wildcard |= *c == '%' || *c == '_';
		out->to_end = *c != '%';
		if (*c == '%')
			end_piece(out, at);
		else if (*c == '_')
			out->bytes[at++] = '\0';
		else if (*c == '\\' && ++c == text + length)
			return false;
		else
			out->bytes[at++] = *c;
	}
	end_piece(out, at);
	out->from_start = length > 0 && text[0] != '%';
	return true;
}

static bool
add_pattern(gquery_program *p, Datum value, gquery_instruction *i)
{
	const text *from = DatumGetTextPP(value);
	pattern		found;
	uint32		first = p->value_count;
	int			begin = 0;

	if (!has_characters() || !split_pattern(VARDATA_ANY(from), (int) VARSIZE_ANY_EXHDR(from), &found))
		return false;
	if (!found.has_wildcard) /* the whole text, which may be empty */
	{
		i->b |= GQUERY_TEXT_IN;
		return begin_texts(p, 1, i) &&
			add_text(p, first, found.bytes, found.count > 0 ? (uint32) found.ends[0] : 0);
	}
	i->b |= (uint16) (GQUERY_TEXT_LIKE | character_flag() |
					  (found.from_start ? GQUERY_TEXT_FROM_START : 0) |
					  (found.to_end ? GQUERY_TEXT_TO_END : 0));
	if (!begin_texts(p, (uint32) found.count, i))
		return false;
	for (int k = 0; k < found.count; k++)
	{
		if (!add_text(p, first + (uint32) k, found.bytes + begin, (uint32) (found.ends[k] - begin)))
			return false;
		begin = found.ends[k];
	}
	return true;
}

/* An empty prefix is a pattern without pieces, which every text matches. */
static bool
add_prefix(gquery_program *p, Datum value, gquery_instruction *i)
{
	const text	*from = DatumGetTextPP(value);
	const uint32 first = p->value_count, count = VARSIZE_ANY_EXHDR(from);

	i->b |= (uint16) (GQUERY_TEXT_LIKE | (count > 0 ? GQUERY_TEXT_FROM_START : 0));
	return begin_texts(p, count > 0, i) &&
		(count == 0 || add_text(p, first, VARDATA_ANY(from), count));
}

/* What the column's first characters, so many of them, are compared with. */
static bool
add_beginning(gquery_program *p, const text_function *f, int characters, Datum value,
			  gquery_instruction *i)
{
	const text *from = DatumGetTextPP(value);
	const int	wanted = pg_mbstrlen_with_len(VARDATA_ANY(from), (int) VARSIZE_ANY_EXHDR(from));

	if (f->asks != ASKS_EQUAL || f->trimmed)
		return false;
	if (wanted == characters)
		return add_prefix(p, value, i);
	if (wanted > characters) /* it is none of no texts */
		return begin_texts(p, 0, i);
	return begin_texts(p, 1, i) && add_value(p, (uint32) i->value, value, false);
}

/* ---- instructions */

/* The boolean that was emitted last is negated. */
static bool
emit_negated(gstore_emitter *e, bool negated)
{
	return !negated || gstore_emit(e, GQUERY_NOT, 0, 0);
}

static bool
emit_null_comparison(gstore_emitter *e, uint32 column, bool distinct)
{
	return distinct ? gstore_emit(e, GQUERY_LOAD_NULL, column, 0) && gstore_emit(e, GQUERY_NOT, 0, 0)
					: gstore_emit(e, GQUERY_NULL, 0, 0);
}

static bool
add_compared(gquery_program *p, const text_function *f, Oid collation, int characters, Datum value,
			 gquery_instruction *i)
{
	if (characters >= 0)
		return add_beginning(p, f, characters, value, i);
	switch ((question) f->asks)
	{
		case ASKS_ILIKE: /* as PostgreSQL does */
			value = DirectFunctionCall1Coll(lower, collation, value);
			return find_letters(true, collation, &i->b) && add_pattern(p, value, i);
		case ASKS_EQUAL:
			return begin_texts(p, 1, i) && add_value(p, (uint32) i->value, value, f->trimmed);
		case ASKS_LIKE:
			return add_pattern(p, value, i);
		default:
			return add_prefix(p, value, i);
	}
}

static bool
constant_int(const Node *node, int *value)
{
	const Const *c = (const Const *) node;

	if (!IsA(node, Const) || c->constisnull || c->consttype != INT4OID)
		return false;
	*value = DatumGetInt32(c->constvalue);
	return true;
}

/* left() and substr() from the first character on: what they are of, and how many characters they are; others: itself, and -1. */
static Node *
find_beginning(Node *node, int *characters)
{
	const FuncExpr *f = (const FuncExpr *) node;
	int				first, count;

	*characters = -1;
	if (!IsA(node, FuncExpr))
		return node;
	if (f->funcid == F_LEFT && constant_int(lsecond(f->args), &count) && count >= 0)
		*characters = count;
	else if ((f->funcid == F_SUBSTR_TEXT_INT4_INT4 || f->funcid == F_SUBSTRING_TEXT_INT4_INT4) &&
			 constant_int(lsecond(f->args), &first) && first == 1 &&
			 constant_int(lthird(f->args), &count) && count >= 0)
		*characters = count;
	return *characters >= 0 ? linitial(f->args) : node;
}

static bool
emit_compared(gstore_emitter *e, const text_function *f, Oid collation, List *args, bool distinct,
			  gstore_emitted *out)
{
	gquery_instruction i = {.op = GQUERY_TEXT, .b = f->trimmed ? GQUERY_TEXT_TRIMMED : 0};
	Node			  *other = lsecond(args), *one = linitial(args);
	Datum			   value;
	bool			   null, nullable;
	int				   characters;

	if (f->asks == ASKS_EQUAL && gstore_is_row_independent(one))
	{
		other = one;
		one = lsecond(args);
	}
	if (!find_text(e, find_beginning(one, &characters), &i, &nullable))
		return false;
	if (!gstore_is_row_independent(other))
		return false;
	*out = (gstore_emitted){.type = BOOLOID, .nullable = !distinct};
	if (!gstore_evaluate(e, (Expr *) other, &value, &null, &out->raises))
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0);
	if (null)
		return emit_null_comparison(e, i.a, distinct);
	return add_compared(e->program, f, collation, characters, value, &i) &&
		gstore_emit_instruction(e, i) && (!distinct || gstore_emit(e, GQUERY_IS_TRUE, 0, 0)) &&
		emit_negated(e, f->negated || distinct);
}

static bool
emit_length(gstore_emitter *e, const text_function *f, List *args, gstore_emitted *out)
{
	gquery_instruction i = {.op = GQUERY_TEXT, .b = f->trimmed ? GQUERY_TEXT_TRIMMED : 0};
	bool			   nullable;

	if (!find_text(e, linitial(args), &i, &nullable) ||
		(i.b & (GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER)) != 0 ||
		(f->asks == ASKS_CHARACTERS && !has_characters()))
		return false;
	*out = (gstore_emitted){.type = INT4OID, .nullable = true};
	i.b |= f->asks == ASKS_BYTES ? GQUERY_TEXT_LENGTH
								 : (uint16) (GQUERY_TEXT_CHARACTERS | character_flag());
	return gstore_emit_instruction(e, i);
}

/* The column's first characters, so many of them, beside the elements that are not NULL. */
static bool
emit_beginnings(gstore_emitter *e, const text_function *f, int characters, Datum array,
				gquery_instruction i, bool *has_null, bool *empty)
{
	int			 count;
	const Datum *elements = read_elements(array, &count, has_null, empty);

	for (int k = 0; k < count; k++)
	{
		gquery_instruction one = i;

		if (!add_beginning(e->program, f, characters, elements[k], &one) ||
			!gstore_emit_instruction(e, one) || (k > 0 && !gstore_emit(e, GQUERY_OR, 0, 0)))
			return false;
	}
	return count > 0 || gstore_emit_instruction(e, i); /* it is none of no texts */
}

/* x = ANY(list) and x <> ALL(list). */
static bool
emit_list(gstore_emitter *e, ScalarArrayOpExpr *s, gstore_emitted *out)
{
	const text_function *f = find_function(get_opcode(s->opno));
	Node				*list = lsecond(s->args);
	gquery_instruction	 i = {.op = GQUERY_TEXT};
	Datum				 array;
	bool				 null, has_null = true, empty = false, known, nullable;
	int					 characters;

	if (f == NULL || f->asks != ASKS_EQUAL || f->negated == s->useOr ||
		!is_deterministic(s->inputcollid) ||
		!find_text(e, find_beginning(linitial(s->args), &characters), &i, &nullable) ||
		!gstore_is_row_independent(list))
		return false;
	i.b |= f->trimmed ? GQUERY_TEXT_TRIMMED : 0;
	*out = (gstore_emitted){.type = BOOLOID, .nullable = true};
	known = gstore_evaluate(e, (Expr *) list, &array, &null, &out->raises);
	if (e->context != NULL && !known)
		return gstore_emit(e, GQUERY_UNKNOWN, e->unknown, 0);
	if (known && !null && characters >= 0)
		return emit_beginnings(e, f, characters, array, i, &has_null, &empty) &&
			gstore_emit_list_end(e, s->useOr, has_null, empty, out);
	if (known && !null && !add_elements(e->program, array, f->trimmed, &i, &has_null, &empty))
		return false;
	return gstore_emit_instruction(e, i) && gstore_emit_list_end(e, s->useOr, has_null, empty, out);
}

static bool
emit_call(gstore_emitter *e, Oid function, Oid collation, List *args, bool distinct, gstore_emitted *out)
{
	const text_function *f = find_function(function);

	if (f == NULL)
		return false;
	if (f->asks == ASKS_BYTES || f->asks == ASKS_CHARACTERS)
		return emit_length(e, f, args, out);
	return is_deterministic(collation) && emit_compared(e, f, collation, args, distinct, out);
}

bool
gstore_emit_text_key(gstore_emitter *e, Node *key, uint32 *column, bool *trimmed)
{
	uint16		flags = 0;
	const Node *node = find_source(e, key, &flags);
	bool		nullable;

	*trimmed = (flags & GQUERY_TEXT_TRIMMED) != 0;
	if (getBaseType(exprType(key)) == BPCHAROID)
		flags |= GQUERY_TEXT_TRIMMED;
	return node != NULL && is_deterministic(exprCollation(key)) &&
		gstore_find_text(e, node, GQUERY_NUMBERED | flags, column, &nullable) &&
		gstore_emit(e, GQUERY_LOAD, *column, 0);
}

bool
gstore_emit_text_word(gstore_emitter *e, Node *key, int which, bool *nullable)
{
	const Oid		   collation = exprCollation(key);
	gquery_instruction i = {.op = GQUERY_TEXT,
							.b = GQUERY_TEXT_WORD |
								(getBaseType(exprType(key)) == BPCHAROID ? GQUERY_TEXT_TRIMMED : 0),
							.value = (uint64) which * sizeof(uint64)};

	if (!OidIsValid(collation) || !lc_collate_is_c(collation) || !find_text(e, key, &i, nullable))
		return false;
	if (which >= 0)
		return gstore_emit_instruction(e, i);
	return !*nullable || gstore_emit(e, GQUERY_LOAD_NULL, i.a, 0);
}

/* To compare a constant with another raises no error. */
static bool
can_fold(const OpExpr *o, const Const *with)
{
	const text_function *f = find_function(get_opcode(o->opno));
	pattern				 ignored;

	if (!is_deterministic(o->inputcollid))
		return false;
	return with->constisnull || (f->asks != ASKS_LIKE && f->asks != ASKS_ILIKE) ||
		split_pattern(VARDATA_ANY(DatumGetTextPP(with->constvalue)),
					  (int) VARSIZE_ANY_EXHDR(DatumGetTextPP(with->constvalue)), &ignored);
}

/* coalesce(a, b) = x is coalesce(a = x, b = x), where all but a column is constant: its values are those of one expression then. */
static bool
emit_coalesced(gstore_emitter *e, const OpExpr *o, gstore_emitted *out)
{
	CoalesceExpr *all = makeNode(CoalesceExpr), *c = linitial(o->args);
	RelabelType	 *cast = IsA(c, RelabelType) ? (RelabelType *) c : NULL;
	ListCell	 *cell;

	if (list_length(o->args) != 2) /* a prefix operator, which users may make of length() */
		return false;
	if (cast != NULL)
		c = (CoalesceExpr *) cast->arg;
	if (!IsA(c, CoalesceExpr) || !IsA(lsecond(o->args), Const) || !can_fold(o, lsecond(o->args)))
		return false;
	all->coalescetype = BOOLOID;
	all->location = -1;
	foreach(cell, c->args)
	{
		OpExpr		*one = makeNode(OpExpr);
		RelabelType *as = makeNode(RelabelType);

		*one = *o;
		if (cast != NULL)
			*as = *cast;
		as->arg = lfirst(cell);
		one->args = list_make2(cast != NULL ? (void *) as : lfirst(cell), lsecond(o->args));
		all->args = lappend(all->args, eval_const_expressions(NULL, (Node *) one));
		if (gstore_is_row_independent(llast(all->args)) && !IsA(llast(all->args), Const))
			return false;
	}
	return gstore_emit_expression(e, (Node *) all, out);
}

bool
gstore_emit_text(gstore_emitter *e, Node *node, gstore_emitted *out)
{
	const uint32 code = e->program->code_count, values = e->program->value_count;
	bool		 done;

	if (IsA(node, FuncExpr))
		done = emit_call(e, ((FuncExpr *) node)->funcid, ((FuncExpr *) node)->inputcollid,
						 ((FuncExpr *) node)->args, false, out);
	else if (IsA(node, ScalarArrayOpExpr))
		done = emit_list(e, (ScalarArrayOpExpr *) node, out);
	else /* OpExpr, DistinctExpr */
		done = emit_call(e, get_opcode(((OpExpr *) node)->opno), ((OpExpr *) node)->inputcollid,
						 ((OpExpr *) node)->args, IsA(node, DistinctExpr), out) ||
			(IsA(node, OpExpr) && find_function(get_opcode(((OpExpr *) node)->opno)) != NULL &&
			 emit_coalesced(e, (OpExpr *) node, out));
	if (done)
		return true;
	e->program->code_count = code;
	e->program->value_count = values;
	return false;
}
