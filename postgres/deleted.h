/*
 * postgres/deleted.h - bitmaps of deleted rows on the device, a version's in one piece.
 *
 * Bit r % 8 of byte r / 8 is 1 where row r of the store is deleted for who sees the version: by it, or before it. All bitmaps of
 * a store are in one area of it (GSTORE_DELETED, of column 0). The version says where its own is, once somebody has
 * written it: the first scan of the whole table that finds none, as a commit must not cost the table's size. It
 * stays what it is. Its place is free again when the version is forgotten, as nobody sees that any more.
 *
 * What a transaction has deleted itself is never there: gstore_view.dead has it on top.
 */
#ifndef GSTORE_DELETED_H
#define GSTORE_DELETED_H

#include "postgres/directory.h"

/*
 * Of a view with its deleted rows as gstore_look() has them, those of committed versions alone: writes the bitmap, if it
 * is not there yet and large enough to be worth it. Then view->dead goes, and deleted_at and deleted_bytes say where it is. All
 * stays as it was where somebody else is writing one, where there is no memory, or there are too many.
 */
extern void gstore_deleted_provide(Oid relation, gstore_view *view);

/* Of a view, one stretch of rows after the other: bits that are here. Lives in the current memory context. */
typedef struct gstore_deleted gstore_deleted;

extern gstore_deleted *gstore_deleted_create(void);

/*
 * Of rows [first, first + count) of the view: bit r % 8 of byte r / 8 - first / 8 is 1 if row r is not there. NULL: all are.
 * Good until the next call.
 */
extern const uint8 *
gstore_deleted_bits(gstore_deleted *deleted, const gstore_view *view, uint64 first, uint64 count);

/* Bytes that were moved since the last call. */
extern uint64 gstore_deleted_moved(gstore_deleted *deleted);

/* bits: as above, or NULL. */
static inline bool
gstore_is_deleted(const uint8 *bits, uint64 first, uint64 row)
{
	return bits != NULL && (bits[row / 8 - first / 8] >> (row % 8) & 1) != 0;
}

#endif
