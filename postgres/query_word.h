/*
 * postgres/query_word.h - values of PostgreSQL as words of a program's stack (query/program.h), and back.
 *
 * A decimal on the stack has a scale, which the compiler keeps beside it: the number times 10^scale.
 */
#ifndef GSTORE_QUERY_WORD_H
#define GSTORE_QUERY_WORD_H

#include "postgres.h"

#include "catalog/pg_type.h"

#include "postgres/decimal.h"
#include "query/program.h"

/* Of a type that can be on the stack. */
extern bool gstore_is_compiled_type(Oid type);

static inline bool
gstore_is_float(Oid type)
{
	return type == FLOAT4OID || type == FLOAT8OID;
}

static inline bool
gstore_is_text(Oid type)
{
	return type == TEXTOID || type == VARCHAROID || type == BPCHAROID;
}

/* Values of the stack that one of the type has; of texts as keys that is their number. */
static inline int
gstore_stack_words(Oid type)
{
	return type == UUIDOID ? 2 : 1;
}

/* Of other types than numeric. which: 0, or of a uuid 1, too */
extern int64 gstore_stack_word(Datum value, Oid type, int which);
/* scale: of a numeric; not of a uuid */
extern Datum gstore_stack_value(int64 word, Oid type, int scale);
/* GQUERY_ORDER_KEY of a double as the stack has it; it is its own inverse, but that all NaNs are one, and -0 is 0. */
extern int64 gstore_order_key(int64 word);
/* The double of a key. */
extern int64 gstore_order_value(int64 key);

/*
 * The greatest decimal of the scale that is not above the number; true: it is equal. Of a number beyond all
 * that can be on the stack: the greatest of these, or one that is below them.
 */
extern bool gstore_decimal_word(Datum numeric, int scale, int64 *word);
/* The number with the scale that PostgreSQL shows it with. False: it cannot be on the stack. */
extern bool	 gstore_number_word(Datum numeric, int *scale, int64 *word);
extern Datum gstore_decimal_value(gstore_decimal decimal, int scale);

extern Datum gstore_uuid_value(int64 first, int64 second);

/* Of a record (query/wire.h), a text in so many words. trimmed: without blanks at its end. */
extern Datum gstore_text_value(const uint64 *words, uint32 count, bool trimmed);

#endif
