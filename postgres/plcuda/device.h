/*
 * postgres/plcuda/device.h - the library of plcuda's kernels: columns of tables, errors. Included before a function's text.
 *
 * Of the dialect of gvmem/device/kernel.h. docs/plcuda.md describes each function.
 */
#ifndef PLCUDA_DEVICE_H
#define PLCUDA_DEVICE_H

#include <gvmem/device/kernel.h>

#ifndef __CUDACC__ /* which has them */
#include <math.h>
#endif

#include "device/dates.h"
#include "device/numeric.h"
#include "device/pglz.h"
#include "device/reduce.h"
#include "device/sort.h"
#include "device/text.h"
#include "types.h"

/* PostgreSQL's numbers of its types */
#define PLCUDA_BOOL				 16u
#define PLCUDA_BYTEA			 17u
#define PLCUDA_CHAR				 18u
#define PLCUDA_INT8				 20u
#define PLCUDA_INT2				 21u
#define PLCUDA_INT4				 23u
#define PLCUDA_TEXT				 25u
#define PLCUDA_OID				 26u
#define PLCUDA_POINT			 600u
#define PLCUDA_FLOAT4			 700u
#define PLCUDA_FLOAT8			 701u
#define PLCUDA_MONEY			 790u
#define PLCUDA_BPCHAR			 1042u
#define PLCUDA_VARCHAR			 1043u
#define PLCUDA_DATE				 1082u
#define PLCUDA_TIME				 1083u
#define PLCUDA_TIMESTAMP		 1114u
#define PLCUDA_TIMESTAMPTZ		 1184u
#define PLCUDA_INTERVAL			 1186u
#define PLCUDA_TIMETZ			 1266u
#define PLCUDA_BIT				 1560u
#define PLCUDA_VARBIT			 1562u
#define PLCUDA_NUMERIC			 1700u
#define PLCUDA_UUID				 2950u
#define PLCUDA_BOOL_ARRAY		 1000u
#define PLCUDA_INT2_ARRAY		 1005u
#define PLCUDA_INT4_ARRAY		 1007u
#define PLCUDA_INT8_ARRAY		 1016u
#define PLCUDA_FLOAT4_ARRAY		 1021u
#define PLCUDA_FLOAT8_ARRAY		 1022u
#define PLCUDA_OID_ARRAY		 1028u
#define PLCUDA_TIMESTAMP_ARRAY	 1115u
#define PLCUDA_DATE_ARRAY		 1182u
#define PLCUDA_TIME_ARRAY		 1183u
#define PLCUDA_TIMESTAMPTZ_ARRAY 1185u
#define PLCUDA_UUID_ARRAY		 2951u

/* ---- errors and messages */

#define PLCUDA_NUMBER_VALUE(member, type, number_kind)    \
	GVM_DEVICE plcuda_value plcuda_value_##member(type v) \
	{                                                     \
		plcuda_value r = {number_kind, 0, {0}};           \
		r.is.member = v;                                  \
		return r;                                         \
	}
PLCUDA_NUMBER_VALUE(i64, int64_t, PLCUDA_VALUE_I64)
PLCUDA_NUMBER_VALUE(u64, uint64_t, PLCUDA_VALUE_U64)
PLCUDA_NUMBER_VALUE(f32, float, PLCUDA_VALUE_F32)
PLCUDA_NUMBER_VALUE(f64, double, PLCUDA_VALUE_F64)
#undef PLCUDA_NUMBER_VALUE

GVM_DEVICE plcuda_value
plcuda_value_text(pg_text_t v)
{
	plcuda_value r = {PLCUDA_VALUE_TEXT, v.length, {0}};

	if (v.isnull)
		r.kind = PLCUDA_VALUE_NULL;
	r.is.text = v.value;
	return r;
}

GVM_DEVICE plcuda_value
plcuda_value_string(const char *v)
{
	plcuda_value r = {PLCUDA_VALUE_TEXT, 0, {0}};

	while (r.length < PLCUDA_TEXT_BYTES && v[r.length] != '\0')
		r.length++;
	r.is.text = v;
	return r;
}

GVM_DEVICE plcuda_value
plcuda_value_none(plcuda_nothing v)
{
	plcuda_value r = {PLCUDA_VALUE_NONE, 0, {0}};

	(void) v;
	return r;
}

/* Any number or text as a plcuda_value. */
#ifdef __cplusplus
#define PLCUDA_VALUE_OF(from, to)                \
	GVM_DEVICE plcuda_value PLCUDA_VALUE(from v) \
	{                                            \
		return to(v);                            \
	}
PLCUDA_VALUE_OF(int, plcuda_value_i64)
PLCUDA_VALUE_OF(unsigned, plcuda_value_u64)
PLCUDA_VALUE_OF(long, plcuda_value_i64)
PLCUDA_VALUE_OF(unsigned long, plcuda_value_u64)
PLCUDA_VALUE_OF(long long, plcuda_value_i64)
PLCUDA_VALUE_OF(unsigned long long, plcuda_value_u64)
PLCUDA_VALUE_OF(float, plcuda_value_f32)
PLCUDA_VALUE_OF(double, plcuda_value_f64)
PLCUDA_VALUE_OF(pg_text_t, plcuda_value_text)
PLCUDA_VALUE_OF(const char *, plcuda_value_string)
PLCUDA_VALUE_OF(plcuda_nothing, plcuda_value_none)
#undef PLCUDA_VALUE_OF
#else
#define PLCUDA_VALUE(v) \
	_Generic((v), unsigned long                                                                 \
			 : plcuda_value_u64, unsigned long long                                             \
			 : plcuda_value_u64, float                                                          \
			 : plcuda_value_f32, double                                                         \
			 : plcuda_value_f64, pg_text_t                                                      \
			 : plcuda_value_text, const char *                                                  \
			 : plcuda_value_string, char *                                                      \
			 : plcuda_value_string, plcuda_nothing                                              \
			 : plcuda_value_none, default                                                       \
			 : plcuda_value_i64)(v)
#endif

/* Texts beyond the room for them are cut off. */
GVM_DEVICE_RARE void
plcuda_write_note(plcuda_note *note, plcuda_note_level level, const char *sqlstate,
				  const char *text, plcuda_value a, plcuda_value b, plcuda_value c, plcuda_value d)
{
	const plcuda_value values[PLCUDA_VALUES_MAX] = {a, b, c, d};
	uint32_t		   i, j, used = 0;

	note->level = level;
	for (i = 0; i < 5 && sqlstate[i] != '\0'; i++)
		note->sqlstate[i] = sqlstate[i];
	note->sqlstate[i] = '\0';
	for (i = 0; i < PLCUDA_TEXT_BYTES - 1 && text[i] != '\0'; i++)
		note->text[i] = text[i];
	note->text[i] = '\0';
	for (i = 0; i < PLCUDA_VALUES_MAX; i++)
	{
		note->values[i] = values[i];
		if (values[i].kind != PLCUDA_VALUE_TEXT)
			continue;
		for (j = 0; j < values[i].length && used + j < PLCUDA_TEXT_BYTES; j++)
			note->bytes[used + j] = values[i].is.text[j];
		note->values[i].is.u64 = used;
		note->values[i].length = j;
		used += j;
	}
}

/* rest has a type of its own, so that the compiler refuses a fifth value. */
GVM_DEVICE_RARE void
plcuda_raise_with(plcuda_state *state, const char *sqlstate, const char *text, plcuda_value a,
				  plcuda_value b, plcuda_value c, plcuda_value d, plcuda_nothing rest)
{
	(void) rest;
	if (gvm_atomic_cas_u32(&state->raised, 0, 1) == 0)
		plcuda_write_note(&state->error, PLCUDA_NOTE_ERROR, sqlstate, text, a, b, c, d);
}

GVM_DEVICE_RARE void
plcuda_note_with(const plcuda_call *call, plcuda_note_level level, const char *text, plcuda_value a,
				 plcuda_value b, plcuda_value c, plcuda_value d, plcuda_nothing rest)
{
	uint32_t number = gvm_load_consume_u32(&call->state->noted);

	(void) rest;
	if (number > ~0u / 2)
		return; /* the count must not begin anew */
	number = gvm_atomic_add_u32(&call->state->noted, 1);
	if (number < PLCUDA_NOTES_MAX && call->notes != 0)
		plcuda_write_note(&call->notes[number], level, "", text, a, b, c, d);
}

GVM_DEVICE plcuda_nothing
plcuda_no_value(void)
{
	plcuda_nothing r = {0};

	return r;
}

/* A text, and up to four values, each in the place of a %. */
#define PLCUDA_FILL_UP(function, ...)                                              \
	function(__VA_ARGS__, plcuda_no_value(), plcuda_no_value(), plcuda_no_value(), \
			 plcuda_no_value(), plcuda_no_value(), 0)
#define PLCUDA_RAISE(state, sqlstate, text, a, b, c, d, e, ...)                                 \
	plcuda_raise_with(state, sqlstate, text, PLCUDA_VALUE(a), PLCUDA_VALUE(b), PLCUDA_VALUE(c), \
					  PLCUDA_VALUE(d), e)
#define PLCUDA_NOTE(call, level, text, a, b, c, d, e, ...)                                 \
	plcuda_note_with(call, level, text, PLCUDA_VALUE(a), PLCUDA_VALUE(b), PLCUDA_VALUE(c), \
					 PLCUDA_VALUE(d), e)

/* The call ends with this error once the kernel has ended. Of several the first one counts. */
#define plcuda_raise_in(state, ...) PLCUDA_FILL_UP(PLCUDA_RAISE, state, __VA_ARGS__)
#define plcuda_raise(call, ...)		plcuda_raise_in((call)->state, __VA_ARGS__)
/* The client gets this message once the kernels have ended. */
#define plcuda_notice(call, ...) PLCUDA_FILL_UP(PLCUDA_NOTE, call, PLCUDA_NOTE_NOTICE, __VA_ARGS__)
#define plcuda_debug(call, ...)	 PLCUDA_FILL_UP(PLCUDA_NOTE, call, PLCUDA_NOTE_DEBUG, __VA_ARGS__)

/* The call is answered by the function of #plcuda_cpu_fallback instead. */
GVM_DEVICE void
plcuda_fall_back(const plcuda_call *call)
{
	plcuda_raise_in(call->state, PLCUDA_FALL_BACK, "");
}

/* ---- tables */

/* For each row that a statement sees, shared among all threads of the kernel. */
#define PLCUDA_FOR_ROWS(table, row)                                                          \
	for (uint64_t row = gvm_thread_global(); row < (table)->rows; row += gvm_thread_count()) \
		if (plcuda_is_live(table, row))

GVM_DEVICE int
plcuda_has_bit(const unsigned char *bits, uint64_t bytes, uint64_t row)
{
	return row / 8 < bytes && (bits[row / 8] >> (row % 8) & 1) != 0;
}

GVM_DEVICE int
plcuda_is_live(const plcuda_table *t, uint64_t row)
{
	return row < t->rows && !plcuda_has_bit(t->dead, t->dead_bytes, row) &&
		!plcuda_has_bit(t->deleted, t->deleted_bytes, row);
}

GVM_DEVICE int
plcuda_is_same(const char *a, const char *b)
{
	uint32_t i = 0;

	while (i < PLCUDA_NAME_BYTES && a[i] == b[i] && a[i] != '\0')
		i++;
	return i == PLCUDA_NAME_BYTES || a[i] == b[i];
}

/* The column's number; 0 and an error if there is none. */
GVM_DEVICE_RARE int32_t
plcuda_column_number(const plcuda_table *t, const char *name)
{
	uint32_t i;

	for (i = 0; i < t->column_count; i++)
		if (t->columns[i].type != 0 && plcuda_is_same(t->columns[i].name, name))
			return (int32_t) i + 1;
	plcuda_raise_in(t->state, "42703", "the table has no column \"%\"", name);
	return 0;
}

GVM_DEVICE int
plcuda_is_text(uint32_t type)
{
	return type == PLCUDA_TEXT || type == PLCUDA_VARCHAR || type == PLCUDA_BPCHAR;
}

GVM_DEVICE_RARE void
plcuda_raise_no_column(const plcuda_table *t, int32_t number)
{
	if (number >= 1 && (uint32_t) number <= t->column_count &&
		t->columns[number - 1].type == PLCUDA_UNREAD)
		plcuda_raise_in(t->state, "42703", "column \"%\" is not among those of #plcuda_columns",
						t->columns[number - 1].name);
	else
		plcuda_raise_in(t->state, "42703", "the table has no column number %", number);
}

GVM_DEVICE_RARE void
plcuda_raise_type(const plcuda_table *t, int32_t number)
{
	plcuda_raise_in(t->state, "42804", "column \"%\" has another type than the function reads",
					t->columns[number - 1].name);
}

/* 0 (NULL) and an error: there is none of that number, or it is not to be read. */
GVM_DEVICE const plcuda_column *
plcuda_find_column(const plcuda_table *t, int32_t number)
{
	/* Neither 0 nor PLCUDA_UNREAD. */
	if (number >= 1 && (uint32_t) number <= t->column_count &&
		t->columns[number - 1].type - 1u < PLCUDA_UNREAD - 1u)
		return &t->columns[number - 1];
	plcuda_raise_no_column(t, number);
	return 0;
}

/* False: the value is NULL; of a text or bytea it may still be NULL if it is true. */
GVM_DEVICE int
plcuda_has_value(const plcuda_table *t, const plcuda_column *c, uint64_t row)
{
	return row < t->rows && c->stored != 0 &&
		(c->nulls == 0 || (c->nulls[row / 8] >> (row % 8) & 1) != 0);
}

/* 0 (NULL): there is no such column of that type, which is an error, or the value is NULL. */
GVM_DEVICE const plcuda_column *
plcuda_find_value(const plcuda_table *t, int32_t number, uint64_t row, uint32_t type)
{
	const plcuda_column *c = plcuda_find_column(t, number);

	if (c != 0 && c->type != type && !(type == PLCUDA_TEXT && plcuda_is_text(c->type)) &&
		!(type == PLCUDA_VARBIT && c->type == PLCUDA_BIT))
	{
		plcuda_raise_type(t, number);
		return 0;
	}
	return c != 0 && plcuda_has_value(t, c, row) ? c : 0;
}

GVM_DEVICE pg_bool_t
plcuda_get_bool(const plcuda_table *t, int32_t number, uint64_t row)
{
	const plcuda_column *c = plcuda_find_value(t, number, row, PLCUDA_BOOL);
	pg_bool_t			 r = {0, 1};

	if (c != 0)
	{
		r.value = (char) (t->arrow ? c->values[row / 8] >> (row % 8) & 1 : c->values[row] != 0);
		r.isnull = 0;
	}
	return r;
}

/* In format 'pgstrom': an offset, 0 for NULL, to a header of 4 bytes and the bytes, or if compressed to another 4 bytes first. */
GVM_DEVICE plcuda_compressed
plcuda_get_body(const plcuda_table *t, const plcuda_column *c, uint64_t row)
{
	plcuda_compressed r = {0, 0, 0, 0, 1, t->state};
	const uint64_t	  at = ((const uint64_t *) (const void *) c->values)[row];
	const uint32_t	 *head;
	uint32_t		  before = sizeof *head;

	if (at == 0)
		return r;
	if (at % 8 != 0 || at > c->bodies_bytes || c->bodies_bytes - at < before)
	{
		plcuda_raise_in(t->state, "XX001", "a value lies beyond its column");
		return r;
	}
	head = (const uint32_t *) (const void *) (c->bodies + at);
	r.compressed = (head[0] & 3) == 2;
	before += r.compressed ? 4 : 0;
	if ((head[0] & 1) != 0 || head[0] / 4 < before || head[0] / 4 > c->bodies_bytes - at)
	{
		plcuda_raise_in(t->state, "XX001", "a value lies beyond its column");
		return r;
	}
	if (r.compressed && head[1] >> PLCUDA_RAW_LENGTH_BITS != 0)
	{
		plcuda_raise_in(t->state, "0A000", "a value is compressed by another method than pglz");
		return r;
	}
	r.value = c->bodies + at + before;
	r.length = head[0] / 4 - before;
	r.raw_length = r.compressed ? head[1] : r.length;
	r.isnull = 0;
	return r;
}

/* In format 'arrow': two offsets into the bytes. */
GVM_DEVICE plcuda_compressed
plcuda_get_bytes(const plcuda_table *t, const plcuda_column *c, uint64_t row)
{
	plcuda_compressed r = {0, 0, 0, 0, 1, t->state};
	const int64_t	 *offsets = (const int64_t *) (const void *) c->values;

	if (offsets[row] < 0 || offsets[row + 1] < offsets[row] ||
		(uint64_t) offsets[row + 1] > c->bodies_bytes || offsets[row + 1] - offsets[row] > 0x7fffffff)
	{
		plcuda_raise_in(t->state, "XX001", "a value lies beyond its column");
		return r;
	}
	r.value = c->bodies + offsets[row];
	r.length = r.raw_length = (uint32_t) (offsets[row + 1] - offsets[row]);
	r.isnull = 0;
	return r;
}

GVM_DEVICE plcuda_compressed
plcuda_get_varying(const plcuda_table *t, const plcuda_column *c, uint64_t row)
{
	plcuda_compressed r = {0, 0, 0, 0, 1, t->state};

	if (c->uniform_bytes == 0)
		return t->arrow ? plcuda_get_bytes(t, c, row) : plcuda_get_body(t, c, row);
	r.value = c->values + row * c->uniform_bytes;
	r.length = r.raw_length = (uint32_t) c->uniform_bytes;
	r.isnull = 0;
	return r;
}

/* A value of variable length to PostgreSQL; in a column of values of one length without a header. NULL if there is no column. */
GVM_DEVICE pg_text_t
plcuda_read_bytes(const plcuda_table *t, const plcuda_column *c, uint64_t row)
{
	plcuda_compressed v;
	pg_text_t		  r = {0, 0, 1};

	if (c == 0)
		return r;
	v = plcuda_get_varying(t, c, row);
	if (v.compressed)
	{
		plcuda_raise_in(
			t->state, "0A000",
			"a compressed value of column \"%\" cannot be read in place: use plcuda_get_compressed()",
			c->name);
		return r;
	}
	r.value = v.value;
	r.length = v.length;
	r.isnull = v.isnull;
	return r;
}

GVM_DEVICE pg_text_t
plcuda_get_varlena(const plcuda_table *t, int32_t number, uint64_t row, uint32_t type)
{
	return plcuda_read_bytes(t, plcuda_find_value(t, number, row, type), row);
}

/* The bytes stay where they are in the table. Text is in the server's encoding. */
GVM_DEVICE pg_text_t
plcuda_get_text(const plcuda_table *t, int32_t number, uint64_t row)
{
	return plcuda_get_varlena(t, number, row, PLCUDA_TEXT);
}
GVM_DEVICE pg_bytea_t
plcuda_get_bytea(const plcuda_table *t, int32_t number, uint64_t row)
{
	return plcuda_get_varlena(t, number, row, PLCUDA_BYTEA);
}

/* ---- compressed values */

/* The bytes of a value of varying length as the table has them, compressed or not, in a column of any such type. */
GVM_DEVICE plcuda_compressed
plcuda_get_compressed(const plcuda_table *t, int32_t number, uint64_t row)
{
	plcuda_compressed	 r = {0, 0, 0, 0, 1, t->state};
	const plcuda_column *c = plcuda_find_column(t, number);

	if (c == 0 || !plcuda_has_value(t, c, row))
		return r;
	if (!c->varying && c->uniform_bytes == 0)
	{
		plcuda_raise_in(t->state, "42804", "column \"%\" has no values that may be compressed",
						t->columns[number - 1].name);
		return r;
	}
	return plcuda_get_varying(t, c, row);
}

/* How long a value is when it is not compressed; -1: it is NULL. */
GVM_DEVICE int32_t
plcuda_raw_length(const plcuda_table *t, int32_t number, uint64_t row)
{
	const plcuda_compressed v = plcuda_get_compressed(t, number, row);

	return v.isnull ? -1 : (int32_t) v.raw_length;
}

/* Writes raw_length bytes to dest and returns how many; -1: the value is NULL, or damaged, which is an error. */
GVM_DEVICE int32_t
plcuda_decompress(plcuda_compressed v, char *dest)
{
	uint32_t i;

	if (v.isnull)
		return -1;
	for (i = 0; !v.compressed && i < v.length; i++)
		dest[i] = v.value[i];
	if (v.compressed && pglz_decompress(v.value, (int32_t) v.length, dest, (int32_t) v.raw_length) < 0)
	{
		plcuda_raise_in(v.state, "XX001", "a compressed value is damaged");
		return -1;
	}
	return (int32_t) v.raw_length;
}

/* The same by all lanes of a warp, with the same arguments; each may then read all of dest. */
GVM_DEVICE int32_t
plcuda_decompress_warp(plcuda_compressed v, char *dest)
{
	uint32_t i;

	if (v.isnull)
		return -1;
	if (v.compressed &&
		pglz_decompress_warp(v.value, (int32_t) v.length, dest, (int32_t) v.raw_length) < 0)
	{
		plcuda_raise_in(v.state, "XX001", "a compressed value is damaged");
		return -1;
	}
	for (i = gvm_lane(); !v.compressed && i < v.length; i += plcuda_lanes())
		dest[i] = v.value[i];
	plcuda_warp_sync();
	return (int32_t) v.raw_length;
}

#include "device/values.h"

#endif
