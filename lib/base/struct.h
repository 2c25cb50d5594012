/* base/struct.h - structs that grow at their end from version to version.
 *
 * Public structs begin with size_t struct_size, the size that the caller was compiled with. A
 * caller compiled with an older header gets the members it knows; one compiled with a newer header
 * gets those that this library knows and zeros behind them.
 */
#ifndef GVMI_BASE_STRUCT_H
#define GVMI_BASE_STRUCT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/private.h"

/* No struct will ever be larger. One that says so was not initialised, and what lies behind it is
 * not ours to read or write. */
#define GVMI_STRUCT_BYTES_MAX 4096

/* Copies full (of full_bytes, its struct_size is ignored) to a caller's struct, whose struct_size
 * stays. False if out is NULL, smaller than oldest_bytes, the size of the struct in the first
 * version that had it, or larger than any. */
GVMI_API bool gvmi_struct_out(void *out, const void *full, size_t full_bytes, size_t oldest_bytes);

/* Records of a caller's array, stride_bytes apart: can records of oldest_bytes, the size in the first version that had
 * them, be so far apart? And writes one, with zeros behind what this library knows. */
bool gvmi_stride_is_good(size_t stride_bytes, size_t oldest_bytes);
void gvmi_record_out(void *array, size_t index, size_t stride_bytes, const void *full,
                     size_t full_bytes);

/* Copies a caller's options to full (of full_bytes), zeros where in is NULL or shorter. False if in
 * is smaller than oldest_bytes or larger than any struct, or if it is longer than this library
 * knows and not zero there: an option that would be ignored silently. */
GVMI_API bool gvmi_struct_in(void *full, size_t full_bytes, const void *in, size_t oldest_bytes);

#endif
