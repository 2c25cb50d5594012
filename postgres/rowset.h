/*
 * postgres/rowset.h - a set of row numbers: a bitmap in pages that are made as they are needed, so
 * that a few rows of a large table take little, and many little more than a bit each.
 */
#ifndef GSTORE_ROWSET_H
#define GSTORE_ROWSET_H

#include "postgres.h"

#define GSTORE_ROWSET_PAGE_ROWS	 65536u
#define GSTORE_ROWSET_PAGE_BYTES (GSTORE_ROWSET_PAGE_ROWS / 8)

typedef struct gstore_rowset
{
	MemoryContext context;
	/* Bit r % 8 of byte r / 8, as everywhere; NULL: none of its rows is in the set. */
	uint8 **pages;
	uint64	page_count;
	uint64	count; /* rows */
} gstore_rowset;

/* Lives in the current memory context. */
extern gstore_rowset *gstore_rowset_create(void);
/* False: it is there already. */
extern bool gstore_rowset_add(gstore_rowset *set, uint64 row);
extern bool gstore_rowset_has(const gstore_rowset *set, uint64 row);
/* One that is there. */
extern void gstore_rowset_remove(gstore_rowset *set, uint64 row);
/* Keeps the pages: to add rows again that have been in the set takes no memory. */
extern void gstore_rowset_clear(gstore_rowset *set);

/* The number behind the last row's, or more; 0 if there is none. A multiple of 8. */
extern uint64 gstore_rowset_limit(const gstore_rowset *set);
/* Sets the rows' bits in a bitmap that reaches to the set's limit. */
extern void gstore_rowset_mark(const gstore_rowset *set, uint8 *bitmap);
/* The rows in ascending order; out is large enough for all. */
extern void gstore_rowset_list(const gstore_rowset *set, uint64 *out);

#endif
