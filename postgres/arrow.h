/*
 * postgres/arrow.h - format 'arrow': a store's columns as Arrow's buffers.
 *
 * An area is a buffer: `values` has a column's values, or the n+1 offsets of one of variable length,
 * `bodies` the bytes or child values that the offsets count, `nulls` the validity bitmap. All of them
 * only grow, as rows do. docs/gstore_format.md has the bytes, docs/design/gstore.md the reasons.
 *
 * Rows are converted where they are staged and where a batch is read (store.c, batch.c): batches have the same
 * form whatever the table's format.
 */
#ifndef GSTORE_ARROW_H
#define GSTORE_ARROW_H

#include "postgres.h"

#include "catalog/pg_attribute.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "postgres/form.h"

/* Arrow counts days and microseconds from 1970 on, PostgreSQL from 2000. */
#define GSTORE_DAYS_1970_TO_2000 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)
#define GSTORE_US_1970_TO_2000	 ((int64) GSTORE_DAYS_1970_TO_2000 * USECS_PER_DAY)

/* ---- rows to buffers */

/*
 * Days and microseconds since 2000, as PostgreSQL counts, to those since 1970. NULLs may be among them. ERROR
 * if a value is beyond what Arrow reaches. Other forms stay as they are.
 */
extern void gstore_arrow_shift(gstore_form form, void *values, uint64 count);

/*
 * What a value takes in the bodies; body: a varlena that is plainly there. ERROR if it is an array that is no
 * list. name: of the column.
 */
extern uint64
gstore_arrow_payload_bytes(const gstore_column *column, const char *name, const struct varlena *body);
/* Writes that. Those of its elements that are NULL are zero. */
extern void gstore_arrow_payload(const gstore_column *column, const struct varlena *body, uint8 *to);
/*
 * Of a list: sets the bits of its elements, from that of number `at` on; those behind are cleared up to the end
 * of the byte, if they begin one. True: one is NULL.
 */
extern bool gstore_arrow_element_bits(const struct varlena *body, uint8 *bits, uint64 at);

/* NULL: all are. */
static inline bool
gstore_bit_is_set(const uint8 *bits, uint64 at)
{
	return bits == NULL || (bits[at / 8] >> (at % 8) & 1) != 0;
}

/* Bytes of 0 and 1 to bits. */
extern void gstore_arrow_to_bits(const uint8 *values, uint64 count, uint8 *bits);

/* ---- buffers to batches */

extern void gstore_arrow_shift_back(gstore_form form, void *values, uint64 count);

/* The bit `skip` is that of the first of count values. */
extern void gstore_arrow_from_bits(const uint8 *bits, uint64 skip, uint64 count, uint8 *values);

/*
 * Of rows whose offsets are offsets[0..count]: what their varlenas take, each aligned to 8. ERROR if the
 * offsets are no offsets.
 */
extern uint64
gstore_arrow_decoded_bytes(const gstore_column *column, const int64 *offsets, uint64 count);

/* A bitmap of what is not NULL; its bit `skip` is the first one's. bits NULL: nothing is. */
typedef struct gstore_validity
{
	const uint8 *bits;
	uint64		 skip;
} gstore_validity;

/*
 * Writes the varlenas to bodies and, for each row, 0 for NULL or where its varlena is, the first at 8.
 * data and elements: from offsets[0] on.
 */
extern void gstore_arrow_decode(const gstore_column *column, const int64 *offsets,
								const uint8 *data, gstore_validity rows, gstore_validity elements,
								uint64 count, uint64 *places, uint8 *bodies);

#endif
