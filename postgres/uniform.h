/*
 * postgres/uniform.h - values of uniform columns (form.h): without their headers into areas, and with them into batches.
 *
 * In a batch such a column is one of fixed length passed by reference: each value has gstore_uniform_width().
 */
#ifndef GSTORE_UNIFORM_H
#define GSTORE_UNIFORM_H

#include "postgres.h"

#include "postgres/form.h"

/* A multiple of 8. */
extern uint32 gstore_uniform_width(const gstore_column *column);

/*
 * Writes the column's stride. body: a varlena that is plainly there, with a header of 4 bytes. ERROR if it is not of the length
 * that the column, of that name, has.
 */
extern void gstore_uniform_strip(const gstore_column *column, const char *name,
								 const struct varlena *body, uint8 *to);

/* Writes values that have headers, and are zero where they are no part of a value. */
extern void gstore_uniform_restore(const gstore_column *column, const uint8 *uniform, uint64 count,
								   uint8 *values);

#endif
