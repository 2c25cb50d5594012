/* See query_state.h. */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "nodes/execnodes.h"
#include "utils/array.h"

#include "postgres/query_state.h"

#define BASE		 10000 /* of a numeric's digits */
#define DIGITS_MOST	 10	   /* of 128 bits */
#define NUMERIC_PLUS 0x0000
#define NUMERIC_LESS 0x4000

/* As numericvar_serialize() writes an integer. */
static void
append_integer(StringInfo out, gstore_decimal value)
{
	unsigned __int128 left = value < 0 ? -(unsigned __int128) value : (unsigned __int128) value;
	uint16			  digits[DIGITS_MOST]; /* the last one first */
	int				  count = 0, zeros = 0;

	for (; left > 0; left /= BASE)
		digits[count++] = (uint16) (left % BASE);
	while (zeros < count && digits[zeros] == 0)
		zeros++;
	pq_sendint32(out, (uint32) (count - zeros));
	pq_sendint32(out, (uint32) (count > 0 ? count - 1 : 0)); /* weight */
	pq_sendint32(out, value < 0 ? NUMERIC_LESS : NUMERIC_PLUS);
	pq_sendint32(out, 0); /* digits behind the point */
	for (int i = count - 1; i >= zeros; i--)
		pq_sendint16(out, digits[i]);
}

static void
begin_state(StringInfo out, const gstore_moments *m)
{
	pq_begintypsend(out);
	pq_sendint64(out, (uint64) m->count);
	append_integer(out, m->sum);
}

Datum
gstore_state_of_int8_sum(const gstore_moments *m)
{
	StringInfoData out;

	begin_state(&out, m);
	return PointerGetDatum(pq_endtypsend(&out));
}

Datum
gstore_state_of_poly(const gstore_moments *m)
{
	StringInfoData out;

	begin_state(&out, m);
	append_integer(&out, m->squares);
	return PointerGetDatum(pq_endtypsend(&out));
}

/* All values have no digits behind the point; none is NaN or infinite. */
Datum
gstore_state_of_numeric(const gstore_moments *m)
{
	StringInfoData out;

	begin_state(&out, m);
	append_integer(&out, m->squares);
	pq_sendint32(&out, 0);
	pq_sendint64(&out, (uint64) m->count);
	for (int i = 0; i < 3; i++) /* NaN, infinity, -infinity */
		pq_sendint64(&out, 0);
	return PointerGetDatum(pq_endtypsend(&out));
}

Datum
gstore_state_of_int4_avg(int64 count, int64 sum)
{
	Datum values[] = {Int64GetDatum(count), Int64GetDatum(sum)};

	return PointerGetDatum(construct_array(values, lengthof(values), INT8OID, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

Datum
gstore_state_of_floats(int64 count, double sum, double squares)
{
	Datum values[] = {Float8GetDatum((double) count), Float8GetDatum(sum), Float8GetDatum(squares)};

	return PointerGetDatum(construct_array(values, lengthof(values), FLOAT8OID, sizeof(double),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* These functions insist on being called for an aggregate. */
static Datum
deserialize_state(PGFunction deserialize, Datum state)
{
	LOCAL_FCINFO(call, 2);
	WindowAggState *aggregate = makeNode(WindowAggState);

	aggregate->curaggcontext = CurrentMemoryContext;
	InitFunctionCallInfoData(*call, NULL, 2, InvalidOid, (Node *) aggregate, NULL);
	call->args[0] = (NullableDatum){state, false};
	call->args[1] = (NullableDatum){(Datum) 0, false};
	return deserialize(call);
}

Datum
gstore_state_final(Datum state, PGFunction deserialize, PGFunction final, bool *null)
{
	LOCAL_FCINFO(call, 1);
	Datum value;

	if (deserialize != NULL)
		state = deserialize_state(deserialize, state);
	InitFunctionCallInfoData(*call, NULL, 1, InvalidOid, NULL, NULL);
	call->args[0] = (NullableDatum){state, false};
	value = final(call);
	*null = call->isnull;
	return value;
}
