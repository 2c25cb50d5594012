/*
 * postgres/nulls.h - columns of which a query wants to know no more than which rows are NULL there, as count(column) and
 * column IS NULL do. Their values need not be read.
 */
#ifndef GSTORE_NULLS_H
#define GSTORE_NULLS_H

#include "nodes/bitmapset.h"
#include "nodes/pathnodes.h"

/*
 * Those of rows (attribute numbers that rows above the scan must have) and of the scan's conditions whose values are
 * needed.
 */
extern Bitmapset *gstore_valued_columns(PlannerInfo *root, RelOptInfo *rel, const Bitmapset *rows);

#endif
