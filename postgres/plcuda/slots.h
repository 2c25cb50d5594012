/*
 * postgres/plcuda/slots.h - values as kernels have them: a struct pg_NAME_t for each type. For the C compiler and NVRTC, and for
 * the programs that fill it in.
 *
 * Where isnull is not 0 the other members mean nothing. A struct of zeros is a value. Addresses are of the
 * device.
 */
#ifndef PLCUDA_SLOTS_H
#define PLCUDA_SLOTS_H

#include <gvmem/device/detail/types.h>

/* ---- of fixed length */

typedef struct plcuda_interval
{
	int64_t time; /* microseconds */
	int32_t day, month;
} plcuda_interval;
typedef struct plcuda_timetz
{
	int64_t time;
	int32_t zone; /* seconds to the west of Greenwich */
} plcuda_timetz;
typedef struct plcuda_point
{
	double x, y;
} plcuda_point;
typedef struct plcuda_uuid
{
	unsigned char data[16];
} plcuda_uuid;

#define PLCUDA_SLOT(name, type)  \
	typedef struct pg_##name##_t \
	{                            \
		type value;              \
		char isnull;             \
	} pg_##name##_t
PLCUDA_SLOT(bool, char);
PLCUDA_SLOT(char, char);
PLCUDA_SLOT(int2, short);
PLCUDA_SLOT(int4, int32_t);
PLCUDA_SLOT(int8, int64_t);
PLCUDA_SLOT(float4, float);
PLCUDA_SLOT(float8, double);
PLCUDA_SLOT(oid, uint32_t);
PLCUDA_SLOT(money, int64_t); /* in the currency's smallest unit */
/* Dates are days, times microseconds, since 2000-01-01. Infinite ones are the greatest and the least number. */
PLCUDA_SLOT(date, int32_t);
PLCUDA_SLOT(time, int64_t);
PLCUDA_SLOT(timetz, plcuda_timetz);
PLCUDA_SLOT(timestamp, int64_t);
PLCUDA_SLOT(timestamptz, int64_t);
PLCUDA_SLOT(interval, plcuda_interval);
PLCUDA_SLOT(uuid, plcuda_uuid);
PLCUDA_SLOT(point, plcuda_point);
PLCUDA_SLOT(enum, uint32_t); /* OID of a label, as in pg_enum: good to compare with others for equality */
#undef PLCUDA_SLOT

/* ---- of variable length */

/* length bytes, without a header or a NUL. A result's may be anywhere where a kernel can read. */
typedef struct pg_text_t
{
	const char *value;
	uint32_t	length;
	char		isnull;
} pg_text_t;
typedef struct pg_text_t pg_bytea_t;

/* length bits: bit i is bit 7 - i % 8 of byte i / 8. */
typedef struct pg_varbit_t
{
	const unsigned char *value;
	uint32_t			 length;
	char				 isnull;
} pg_varbit_t;
typedef struct pg_varbit_t pg_bit_t;

/* length elements, of pgvector. Those of halfvec are float16: plcuda_half_to_float(). */
typedef struct pg_vector_t
{
	const float *value;
	uint32_t	 length;
	char		 isnull;
} pg_vector_t;
typedef struct pg_halfvec_t
{
	const unsigned short *value;
	uint32_t			  length;
	char				  isnull;
} pg_halfvec_t;

typedef enum plcuda_numeric_kind
{
	PLCUDA_NUMERIC_FINITE, /* high * 2^64 + low, divided by 10^scale: of 38 digits at most */
	PLCUDA_NUMERIC_NAN,
	PLCUDA_NUMERIC_INFINITY,
	PLCUDA_NUMERIC_MINUS_INFINITY,
	PLCUDA_NUMERIC_LONG, /* of more than 38 digits: PostgreSQL's form of it, without the header of a varlena */
} plcuda_numeric_kind;

typedef struct pg_numeric_t
{
	const char *value; /* of PLCUDA_NUMERIC_LONG: length bytes */
	uint32_t	length;
	short		scale;
	char		kind;
	char		isnull;
	uint64_t	low;
	int64_t		high;
} pg_numeric_t;

/* ---- arrays */

#define PLCUDA_DIMENSIONS_MAX 6 /* PostgreSQL's */

/*
 * length elements at value, row by row: element (i, j) of two dimensions is number i * dims[1] + j. PostgreSQL counts those of a
 * dimension from base + 1 on. An array of one dimension may have dimensions 0, as an empty one has.
 *
 * NULL is bit nulls_from + i of nulls if it is 0. Elements of a column may then be packed: those that are NULL do not lie at
 * value. And dates of a table of format 'arrow' may count from 1970. So plcuda_NAME_element() reads any array;
 * value[i] is right where nulls is 0 and from_1970 is 0, and always of an argument.
 */
#define PLCUDA_ARRAY(name, type)                                                                 \
	typedef struct pg_##name##_t                                                                 \
	{                                                                                            \
		const type			*value;                                                              \
		const unsigned char *nulls; /* 0: no element is NULL */                                  \
		uint32_t			 length;                                                             \
		int32_t				 packed; /* minus the number of elements that do not lie at value */ \
		uint32_t			 dimensions;                                                         \
		int32_t				 dims[PLCUDA_DIMENSIONS_MAX], base[PLCUDA_DIMENSIONS_MAX];           \
		int32_t				 nulls_from;                                                         \
		char				 from_1970;                                                          \
		char				 isnull;                                                             \
	} pg_##name##_t
PLCUDA_ARRAY(array, void); /* all others have the same layout */
PLCUDA_ARRAY(bool_array, char);
PLCUDA_ARRAY(int2_array, short);
PLCUDA_ARRAY(int4_array, int32_t);
PLCUDA_ARRAY(int8_array, int64_t);
PLCUDA_ARRAY(float4_array, float);
PLCUDA_ARRAY(float8_array, double);
PLCUDA_ARRAY(oid_array, uint32_t);
PLCUDA_ARRAY(date_array, int32_t);
PLCUDA_ARRAY(time_array, int64_t);
PLCUDA_ARRAY(timestamp_array, int64_t);
PLCUDA_ARRAY(timestamptz_array, int64_t);
PLCUDA_ARRAY(uuid_array, plcuda_uuid);
#undef PLCUDA_ARRAY

#define PLCUDA_SLOT_BYTES 96 /* an argument; each type fits */

/* ---- what slots point to */

/*
 * A pointer of a slot, or of a row of slots: offsets of its address and of the number of units there. Code that moves these
 * units into one block writes offsets in that block in place of addresses; the first one is PLCUDA_GATHERED_AT.
 */
typedef struct plcuda_pointer
{
	uint32_t value, length, isnull;
	uint32_t more;	   /* of an int32_t that is added to length; 0: none is */
	uint32_t bits;	   /* of a unit */
	uint32_t optional; /* the address may be 0, also as an offset: then nothing is there */
} plcuda_pointer;

#define PLCUDA_POINTERS_MAX 2 /* of a slot */
#define PLCUDA_GATHERED_AT	8

#endif
