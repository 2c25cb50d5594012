/*
 * Distances as SQL functions: of arrays of real, double precision or smallint, and of bit strings. They compute in double precision.
 * query_distance.c has those that the GPU computes by their names.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "port/pg_bitutils.h"
#include "utils/array.h"
#include "utils/varbit.h"

#include "query/search.h"

PG_FUNCTION_INFO_V1(gstore_l2_distance);
PG_FUNCTION_INFO_V1(gstore_negative_inner_product);
PG_FUNCTION_INFO_V1(gstore_cosine_distance);
PG_FUNCTION_INFO_V1(gstore_l1_distance);
PG_FUNCTION_INFO_V1(gstore_hamming_distance);
PG_FUNCTION_INFO_V1(gstore_jaccard_distance);

/* ---- arrays */

/* NaN where either is all zeros. */
static double
cosine_distance(double product, double left_square, double right_square)
{
	const double similarity = product / sqrt(left_square * right_square);

	return 1 - (similarity > 1 ? 1 : similarity < -1 ? -1 : similarity);
}

#define LANES 4

/* Of each LANES-th element a sum, so that an addition does not wait for the one before. */
#define SUM(name, type, term)                                          \
	static double name(const type *left, const type *right, int count) \
	{                                                                  \
		double sums[LANES] = {0};                                      \
		int	   i = 0;                                                  \
                                                                       \
		for (; i + LANES <= count; i += LANES)                         \
			for (int lane = 0; lane < LANES; lane++)                   \
			{                                                          \
				const double x = left[i + lane], y = right[i + lane];  \
                                                                       \
				sums[lane] += term;                                    \
			}                                                          \
		for (; i < count; i++)                                         \
		{                                                              \
			const double x = left[i], y = right[i];                    \
                                                                       \
			sums[0] += term;                                           \
		}                                                              \
		return (sums[0] + sums[1]) + (sums[2] + sums[3]);              \
	}

/* A function for each sum, so that each is a loop that the compiler can vectorize. */
#define DISTANCE(name, type)                                                                 \
	SUM(name##_squares, type, (x - y) * (x - y))                                             \
	SUM(name##_products, type, x *y)                                                         \
	SUM(name##_differences, type, fabs(x - y))                                               \
                                                                                             \
	static double name(gquery_metric metric, const type *left, const type *right, int count) \
	{                                                                                        \
		switch (metric)                                                                      \
		{                                                                                    \
			case GQUERY_L2:                                                                  \
				return sqrt(name##_squares(left, right, count));                             \
			case GQUERY_INNER:                                                               \
				return -name##_products(left, right, count);                                 \
			case GQUERY_L1:                                                                  \
				return name##_differences(left, right, count);                               \
			default:                                                                         \
				return cosine_distance(name##_products(left, right, count),                  \
									   name##_products(left, left, count),                   \
									   name##_products(right, right, count));                \
		}                                                                                    \
	}

DISTANCE(distance_of_real, float4)
DISTANCE(distance_of_double, float8)
DISTANCE(distance_of_smallint, int16)

static int
count_elements(const ArrayType *array)
{
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("distances need arrays of one dimension")));
	if (array_contains_nulls(unconstify(ArrayType *, array)))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("distances need arrays without NULL elements")));
	return ARR_NDIM(array) == 0 ? 0 : ARR_DIMS(array)[0];
}

static Datum
distance_of_arrays(FunctionCallInfo fcinfo, gquery_metric metric)
{
	ArrayType  *left = PG_GETARG_ARRAYTYPE_P(0), *right = PG_GETARG_ARRAYTYPE_P(1);
	const int	count = count_elements(left), other = count_elements(right);
	const void *l = ARR_DATA_PTR(left), *r = ARR_DATA_PTR(right);
	double		distance;

	if (count != other)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("distances need arrays of equal length, not of %d and %d elements", count,
						other)));
	if (ARR_ELEMTYPE(left) != ARR_ELEMTYPE(right))
		elog(ERROR, "distances need arrays of one type");
	switch (ARR_ELEMTYPE(left))
	{
		case FLOAT4OID:
			distance = distance_of_real(metric, l, r, count);
			break;
		case FLOAT8OID:
			distance = distance_of_double(metric, l, r, count);
			break;
		case INT2OID:
			distance = distance_of_smallint(metric, l, r, count);
			break;
		default:
			elog(ERROR, "there is no distance of arrays of this type");
	}
	PG_FREE_IF_COPY(left, 0);
	PG_FREE_IF_COPY(right, 1);
	PG_RETURN_FLOAT8(distance);
}

Datum
gstore_l2_distance(PG_FUNCTION_ARGS)
{
	return distance_of_arrays(fcinfo, GQUERY_L2);
}

Datum
gstore_negative_inner_product(PG_FUNCTION_ARGS)
{
	return distance_of_arrays(fcinfo, GQUERY_INNER);
}

Datum
gstore_cosine_distance(PG_FUNCTION_ARGS)
{
	return distance_of_arrays(fcinfo, GQUERY_COSINE);
}

Datum
gstore_l1_distance(PG_FUNCTION_ARGS)
{
	return distance_of_arrays(fcinfo, GQUERY_L1);
}

/* ---- bit strings, whose bits behind the last one are 0 */

typedef struct bit_counts
{
	uint64 both, either;
} bit_counts;

static uint64
load_bits(const bits8 *bits, int bytes)
{
	uint64 word = 0;

	memcpy(&word, bits, (Size) Min(bytes, (int) sizeof word));
	return word;
}

static bit_counts
count_bits(FunctionCallInfo fcinfo)
{
	const VarBit *left = PG_GETARG_VARBIT_P(0), *right = PG_GETARG_VARBIT_P(1);
	bit_counts	  counts = {0};

	if (VARBITLEN(left) != VARBITLEN(right))
		ereport(ERROR,
				(errcode(ERRCODE_STRING_DATA_LENGTH_MISMATCH),
				 errmsg("distances need bit strings of equal length, not of %d and %d bits",
						VARBITLEN(left), VARBITLEN(right))));
	for (int at = 0; at < (int) VARBITBYTES(left); at += (int) sizeof(uint64))
	{
		const uint64 l = load_bits(VARBITS(left) + at, (int) VARBITBYTES(left) - at);
		const uint64 r = load_bits(VARBITS(right) + at, (int) VARBITBYTES(right) - at);

		counts.both += (uint64) pg_popcount64(l & r);
		counts.either += (uint64) pg_popcount64(l | r);
	}
	return counts;
}

Datum
gstore_hamming_distance(PG_FUNCTION_ARGS)
{
	const bit_counts counts = count_bits(fcinfo);

	PG_RETURN_FLOAT8((double) (counts.either - counts.both));
}

/* 1 where no bit is in both. */
Datum
gstore_jaccard_distance(PG_FUNCTION_ARGS)
{
	const bit_counts counts = count_bits(fcinfo);

	PG_RETURN_FLOAT8(counts.both == 0 ? 1 : 1 - (double) counts.both / (double) counts.either);
}
