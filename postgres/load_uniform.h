/*
 * postgres/load_uniform.h - whether bytes that are loaded are values of a uniform column (form.h).
 *
 * What text and dates want is in load_append.c, as columns of variable length want it, too.
 */
#ifndef GSTORE_LOAD_UNIFORM_H
#define GSTORE_LOAD_UNIFORM_H

#include "postgres.h"

#include "postgres/form.h"

/* Not all bytes are values. */
extern bool gstore_load_uniform_is_checked(const gstore_column *column);

/* Of a decimal, of bits, of a vector; the column's stride. */
extern bool gstore_load_uniform_is_value(const gstore_column *column, const uint8 *bytes);

#endif
