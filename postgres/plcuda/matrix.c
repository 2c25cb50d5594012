/*
 * Matrices: arrays of two dimensions of a type of fixed length, without NULL, both lower bounds 1. Rows come one after the
 * other, as in every array of PostgreSQL and in C; the column number changes first.
 *
 * Aggregates collect the cells of their inputs in one buffer, and shapes as runs of equal ones, so that each row costs the
 * copy of its cells, and the result another. They have no combine function: the order of rows is that of the input.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/varbit.h"

PG_FUNCTION_INFO_V1(plcuda_matrix_validation);
PG_FUNCTION_INFO_V1(plcuda_matrix_height);
PG_FUNCTION_INFO_V1(plcuda_matrix_width);
PG_FUNCTION_INFO_V1(plcuda_matrix_transpose);
PG_FUNCTION_INFO_V1(plcuda_matrix_unnest);
PG_FUNCTION_INFO_V1(plcuda_rbind);
PG_FUNCTION_INFO_V1(plcuda_cbind);
PG_FUNCTION_INFO_V1(plcuda_matrix_add);
PG_FUNCTION_INFO_V1(plcuda_matrix_add_bits);
PG_FUNCTION_INFO_V1(plcuda_rbind_add);
PG_FUNCTION_INFO_V1(plcuda_cbind_add);
PG_FUNCTION_INFO_V1(plcuda_rbind_end);
PG_FUNCTION_INFO_V1(plcuda_cbind_end);

#define BITS_OF_WORD 32

typedef struct matrix
{
	Oid			type;
	int			size; /* bytes of an element */
	int64		rows, columns;
	const char *cells;
} matrix;

/* What an array of one dimension is. An empty array is a matrix without cells, but for VECTOR_REFUSED. */
typedef enum vector_kind
{
	VECTOR_REFUSED,
	VECTOR_ROW,
	VECTOR_COLUMN,
} vector_kind;

/* ---- arrays */

/* 0: matrices have no elements of this type. */
static int
element_size(Oid type)
{
	switch (type)
	{
		case BOOLOID:
			return 1;
		case INT2OID:
			return 2;
		case INT4OID:
		case FLOAT4OID:
			return 4;
		case INT8OID:
		case FLOAT8OID:
			return 8;
		default:
			return 0;
	}
}

static bool
begins_at_one(const ArrayType *array)
{
	for (int i = 0; i < ARR_NDIM(array); i++)
		if (ARR_LBOUND(array)[i] != 1)
			return false;
	return true;
}

static void
check_array(ArrayType *array, vector_kind vector)
{
	const int dimensions = ARR_NDIM(array);

	if (element_size(ARR_ELEMTYPE(array)) == 0)
		ereport(
			ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("a matrix cannot have elements of type %s", format_type_be(ARR_ELEMTYPE(array))),
			 errhint("Types are smallint, integer, bigint, real, double precision and boolean.")));
	if (dimensions > 2 || (dimensions < 2 && vector == VECTOR_REFUSED))
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("a matrix is an array of two dimensions, not of %d", dimensions)));
	if (!begins_at_one(array))
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("the lower bounds of a matrix must be 1")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a matrix cannot contain NULL"),
				 errhint("Replace NULLs by another value with coalesce() first.")));
}

static matrix
read_matrix(ArrayType *array, vector_kind vector)
{
	matrix m = {ARR_ELEMTYPE(array), element_size(ARR_ELEMTYPE(array)), 0, 0, ARR_DATA_PTR(array)};

	check_array(array, vector);
	if (ARR_NDIM(array) == 2)
	{
		m.rows = ARR_DIMS(array)[0];
		m.columns = ARR_DIMS(array)[1];
	}
	else if (ARR_NDIM(array) == 1)
	{
		m.rows = vector == VECTOR_ROW ? 1 : ARR_DIMS(array)[0];
		m.columns = vector == VECTOR_ROW ? ARR_DIMS(array)[0] : 1;
	}
	return m;
}

static void
check_size(int size, int64 rows, int64 columns)
{
	const int64 most = Min((int64) MaxArraySize,
						   (int64) (MaxAllocSize - ARR_OVERHEAD_NONULLS(2)) / size);

	if (columns > 0 && rows > most / columns)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a matrix of %lld rows and %lld columns is too large", (long long) rows,
						(long long) columns),
				 errdetail("With elements of %d bytes it has at most %lld.", size, (long long) most)));
}

/* Of zeros. */
static ArrayType *
make_matrix(Oid type, int size, int64 rows, int64 columns)
{
	const Size head = ARR_OVERHEAD_NONULLS(2);
	ArrayType *array;

	check_size(size, rows, columns);
	if (rows == 0 || columns == 0)
		return construct_empty_array(type);
	array = palloc0(head + (Size) (rows * columns * size));
	SET_VARSIZE(array, head + (Size) (rows * columns * size));
	array->ndim = 2;
	array->elemtype = type;
	ARR_DIMS(array)[0] = (int) rows;
	ARR_DIMS(array)[1] = (int) columns;
	ARR_LBOUND(array)[0] = ARR_LBOUND(array)[1] = 1;
	return array;
}

/* Copies m into a larger one, from that cell on. */
static void
paste(ArrayType *into, int64 row, int64 column, const matrix *m)
{
	const int64 width = m->rows * m->columns > 0 ? ARR_DIMS(into)[1] : 0;
	const int64 line = m->columns * m->size;
	char	   *to = ARR_DATA_PTR(into) + (row * width + column) * m->size;

	if (width == m->columns)
	{
		memcpy(to, m->cells, (Size) (m->rows * line));
		return;
	}
	for (int64 i = 0; i < m->rows; i++)
		memcpy(to + i * width * m->size, m->cells + i * line, (Size) line);
}

/* ---- one matrix */

Datum
plcuda_matrix_validation(PG_FUNCTION_ARGS)
{
	ArrayType *array = PG_GETARG_ARRAYTYPE_P(0);

	PG_RETURN_BOOL(element_size(ARR_ELEMTYPE(array)) > 0 && ARR_NDIM(array) == 2 &&
				   begins_at_one(array) && !array_contains_nulls(array));
}

Datum
plcuda_matrix_height(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) read_matrix(PG_GETARG_ARRAYTYPE_P(0), VECTOR_REFUSED).rows);
}

Datum
plcuda_matrix_width(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32((int32) read_matrix(PG_GETARG_ARRAYTYPE_P(0), VECTOR_REFUSED).columns);
}

/* By squares whose lines stay in the processor's cache. */
#define SQUARE 32
#define TRANSPOSE(type, m, out)                                                         \
	do                                                                                  \
	{                                                                                   \
		const type *from = (const type *) (const void *) (m)->cells;                    \
		type	   *to = (type *) (void *) (out);                                       \
		for (int64 row = 0; row < (m)->rows; row += SQUARE)                             \
		{                                                                               \
			CHECK_FOR_INTERRUPTS();                                                     \
			for (int64 column = 0; column < (m)->columns; column += SQUARE)             \
				for (int64 i = row; i < Min(row + SQUARE, (m)->rows); i++)              \
					for (int64 j = column; j < Min(column + SQUARE, (m)->columns); j++) \
						to[j * (m)->rows + i] = from[i * (m)->columns + j];             \
		}                                                                               \
	} while (0)

Datum
plcuda_matrix_transpose(PG_FUNCTION_ARGS)
{
	const matrix m = read_matrix(PG_GETARG_ARRAYTYPE_P(0), VECTOR_REFUSED);
	ArrayType	*result = make_matrix(m.type, m.size, m.columns, m.rows);

	switch (m.size)
	{
		case 1:
			TRANSPOSE(uint8, &m, ARR_DATA_PTR(result));
			break;
		case 2:
			TRANSPOSE(uint16, &m, ARR_DATA_PTR(result));
			break;
		case 4:
			TRANSPOSE(uint32, &m, ARR_DATA_PTR(result));
			break;
		default:
			TRANSPOSE(uint64, &m, ARR_DATA_PTR(result));
			break;
	}
	PG_RETURN_ARRAYTYPE_P(result);
}

/* ---- rows of a matrix */

typedef struct unnested
{
	matrix	  m;
	TupleDesc row;
	Datum	 *values;
	bool	 *nulls;
} unnested;

static unnested *
begin_unnest(ArrayType *array)
{
	unnested *u = palloc(sizeof *u);

	u->m = read_matrix(array, VECTOR_REFUSED);
	if (u->m.columns > MaxTupleAttributeNumber)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("a row cannot have the %lld columns of the matrix", (long long) u->m.columns),
				 errdetail("It has at most %d.", MaxTupleAttributeNumber)));
	u->row = CreateTemplateTupleDesc((int) u->m.columns);
	for (int i = 0; i < u->m.columns; i++)
		TupleDescInitEntry(u->row, (AttrNumber) (i + 1), psprintf("c%d", i + 1), u->m.type, -1, 0);
	u->row = BlessTupleDesc(u->row);
	u->values = palloc(sizeof(Datum) * (Size) u->m.columns);
	u->nulls = palloc0(sizeof(bool) * (Size) u->m.columns);
	return u;
}

Datum
plcuda_matrix_unnest(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	unnested		*u;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext before;

		call = SRF_FIRSTCALL_INIT();
		before = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		u = begin_unnest(PG_GETARG_ARRAYTYPE_P_COPY(0));
		MemoryContextSwitchTo(before);
		call->user_fctx = u;
		call->max_calls = (uint64) u->m.rows;
	}
	call = SRF_PERCALL_SETUP();
	u = call->user_fctx;
	if (call->call_cntr < call->max_calls)
	{
		const char *cells = u->m.cells + (int64) call->call_cntr * u->m.columns * u->m.size;

		for (int i = 0; i < u->m.columns; i++)
			u->values[i] = fetch_att(cells + i * u->m.size, true, u->m.size);
		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(u->row, u->values, u->nulls)));
	}
	SRF_RETURN_DONE(call);
}

/* ---- two matrices */

static void
check_same_type(Oid first, Oid second)
{
	if (first != second)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("matrices of %s and of %s cannot be bound", format_type_be(first),
						format_type_be(second))));
}

Datum
plcuda_rbind(PG_FUNCTION_ARGS)
{
	const matrix a = read_matrix(PG_GETARG_ARRAYTYPE_P(0), VECTOR_ROW);
	const matrix b = read_matrix(PG_GETARG_ARRAYTYPE_P(1), VECTOR_ROW);
	ArrayType	*result;

	check_same_type(a.type, b.type);
	result = make_matrix(a.type, a.size, a.rows + b.rows, Max(a.columns, b.columns));
	paste(result, 0, 0, &a);
	paste(result, a.rows, 0, &b);
	PG_RETURN_ARRAYTYPE_P(result);
}

Datum
plcuda_cbind(PG_FUNCTION_ARGS)
{
	const matrix a = read_matrix(PG_GETARG_ARRAYTYPE_P(0), VECTOR_COLUMN);
	const matrix b = read_matrix(PG_GETARG_ARRAYTYPE_P(1), VECTOR_COLUMN);
	ArrayType	*result;

	check_same_type(a.type, b.type);
	result = make_matrix(a.type, a.size, Max(a.rows, b.rows), a.columns + b.columns);
	paste(result, 0, 0, &a);
	paste(result, 0, a.columns, &b);
	PG_RETURN_ARRAYTYPE_P(result);
}

/* ---- aggregates */

typedef struct run
{
	int64 count, rows, columns; /* so many inputs of this shape, one after the other */
} run;

typedef struct collected
{
	Oid	  type;
	int	  size;
	int64 sum_rows, sum_columns, most_rows, most_columns;
	char *cells; /* those of all inputs */
	Size  used, room;
	run	 *runs;
	Size  count, runs_room;
} collected;

static void *
enlarge(void *bytes, Size needed, Size *room)
{
	if (needed <= *room)
		return bytes;
	*room = Max(needed, *room * 2);
	return repalloc_huge(bytes, *room);
}

static collected *
begin_collected(const matrix *m)
{
	collected *c = palloc0(sizeof *c);

	c->type = m->type;
	c->size = m->size;
	c->room = 1024;
	c->cells = palloc(c->room);
	c->runs_room = 16 * sizeof(run);
	c->runs = palloc(c->runs_room);
	return c;
}

static void
add_matrix(collected *c, const matrix *m)
{
	const Size bytes = (Size) (m->rows * m->columns * m->size);
	run		  *last = c->count > 0 ? &c->runs[c->count - 1] : NULL;

	check_same_type(c->type, m->type);
	c->cells = enlarge(c->cells, c->used + bytes, &c->room);
	memcpy(c->cells + c->used, m->cells, bytes);
	c->used += bytes;
	if (last != NULL && last->rows == m->rows && last->columns == m->columns)
		last->count++;
	else
	{
		c->runs = enlarge(c->runs, (c->count + 1) * sizeof(run), &c->runs_room);
		c->runs[c->count++] = (run){1, m->rows, m->columns};
	}
	c->sum_rows += m->rows;
	c->sum_columns += m->columns;
	c->most_rows = Max(c->most_rows, m->rows);
	c->most_columns = Max(c->most_columns, m->columns);
}

/* The state after one more matrix, which is in the memory of the aggregate. */
static collected *
collect(FunctionCallInfo fcinfo, const matrix *m)
{
	collected	 *c = PG_ARGISNULL(0) ? NULL : (collected *) PG_GETARG_POINTER(0);
	MemoryContext memory, before;

	if (!AggCheckCallContext(fcinfo, &memory))
		elog(ERROR, "this function is part of an aggregate");
	before = MemoryContextSwitchTo(memory);
	if (c == NULL)
		c = begin_collected(m);
	add_matrix(c, m);
	MemoryContextSwitchTo(before);
	return c;
}

/* ERROR if it cannot be another row of what is collected. Its cells need not be there yet. */
static void
check_row(FunctionCallInfo fcinfo, const matrix *row)
{
	const collected *c = PG_ARGISNULL(0) ? NULL : (const collected *) PG_GETARG_POINTER(0);

	if (row->columns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR), errmsg("a row of a matrix cannot be empty")));
	if (c != NULL && c->most_columns != row->columns)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("a row of %lld values does not fit a matrix of %lld columns",
						(long long) row->columns, (long long) c->most_columns)));
	check_size(row->size, c == NULL ? 1 : c->sum_rows + 1, row->columns);
}

static void
fail_null_row(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("a row of a matrix cannot be NULL")));
}

Datum
plcuda_matrix_add(PG_FUNCTION_ARGS)
{
	ArrayType *array;
	matrix	   row;

	if (PG_ARGISNULL(1))
		fail_null_row();
	array = PG_GETARG_ARRAYTYPE_P(1);
	row = read_matrix(array, VECTOR_ROW);
	if (ARR_NDIM(array) == 2)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("a row of a matrix is an array of one dimension, not of 2"),
				 errhint("The aggregate rbind() puts matrices below each other.")));
	check_row(fcinfo, &row);
	PG_RETURN_POINTER(collect(fcinfo, &row));
}

/* Bit n, as get_bit() counts, is bit n % 32 of word n / 32. */
Datum
plcuda_matrix_add_bits(PG_FUNCTION_ARGS)
{
	VarBit	  *bits;
	uint32	  *words;
	matrix	   row = {INT4OID, sizeof *words, 1, 0, NULL};
	collected *c;

	if (PG_ARGISNULL(1))
		fail_null_row();
	bits = PG_GETARG_VARBIT_P(1);
	row.columns = ((int64) VARBITLEN(bits) + BITS_OF_WORD - 1) / BITS_OF_WORD;
	check_row(fcinfo, &row);
	words = palloc0(sizeof *words * (Size) row.columns);
	for (int i = 0; i < VARBITLEN(bits); i++)
	{
		if (i % BITS_OF_WORD == 0)
			CHECK_FOR_INTERRUPTS();
		words[i / BITS_OF_WORD] |= (uint32) (VARBITS(bits)[i / 8] >> (7 - i % 8) & 1)
			<< i % BITS_OF_WORD;
	}
	row.cells = (const char *) words;
	c = collect(fcinfo, &row);
	pfree(words);
	PG_RETURN_POINTER(c);
}

/* One more matrix, below those before it or to their right. A NULL is left out. */
static collected *
add_bound(FunctionCallInfo fcinfo, bool below)
{
	collected *c = PG_ARGISNULL(0) ? NULL : (collected *) PG_GETARG_POINTER(0);
	matrix	   m;

	if (PG_ARGISNULL(1))
		return c;
	m = read_matrix(PG_GETARG_ARRAYTYPE_P(1), below ? VECTOR_ROW : VECTOR_COLUMN);
	if (c != NULL && below)
		check_size(m.size, c->sum_rows + m.rows, Max(c->most_columns, m.columns));
	else if (c != NULL)
		check_size(m.size, Max(c->most_rows, m.rows), c->sum_columns + m.columns);
	return collect(fcinfo, &m);
}

Datum
plcuda_rbind_add(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(add_bound(fcinfo, true));
}

Datum
plcuda_cbind_add(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(add_bound(fcinfo, false));
}

static Datum
end_bound(FunctionCallInfo fcinfo, bool below)
{
	const collected *c = PG_ARGISNULL(0) ? NULL : (const collected *) PG_GETARG_POINTER(0);
	ArrayType		*result;
	const char		*cells;
	int64			 row = 0, column = 0;

	if (c == NULL)
		PG_RETURN_NULL();
	result = below ? make_matrix(c->type, c->size, c->sum_rows, c->most_columns)
				   : make_matrix(c->type, c->size, c->most_rows, c->sum_columns);
	cells = c->cells;
	for (Size i = 0; i < c->count; i++)
		for (int64 j = 0; j < c->runs[i].count; j++)
		{
			const matrix m = {c->type, c->size, c->runs[i].rows, c->runs[i].columns, cells};

			CHECK_FOR_INTERRUPTS();
			paste(result, row, column, &m);
			row += below ? m.rows : 0;
			column += below ? 0 : m.columns;
			cells += m.rows * m.columns * m.size;
		}
	PG_RETURN_ARRAYTYPE_P(result);
}

Datum
plcuda_rbind_end(PG_FUNCTION_ARGS)
{
	return end_bound(fcinfo, true);
}

Datum
plcuda_cbind_end(PG_FUNCTION_ARGS)
{
	return end_bound(fcinfo, false);
}
