/* gvmem/append.h - what a kernel needs to append.
 *
 * gvm_appender_begin() (gvmem/appender.h) fills it in. It is passed by value inside the kernel's argument, to the functions
 * of gvmem/device/appender.h, and is good until gvm_appender_finish().
 *
 * Host code and device code include this header; it needs no other, so that NVRTC takes it.
 */
#ifndef GVMEM_APPEND_H
#define GVMEM_APPEND_H

#include <gvmem/device/detail/types.h>

typedef struct gvm_append {
    size_t struct_size; /* in: sizeof(gvm_append) */
    uint64_t address;   /* of row 0 */
    uint64_t reserve_bytes;
    uint64_t row_bytes;
    uint64_t capacity_bytes; /* most that rows and bytes together can ever take */
    /* The rest is for gvmem/device/detail/appender.h. */
    uint64_t words, mail;
    uint64_t wait_ns;
    uint32_t rows_max, units_max;
    uint32_t unit_shift;
    uint32_t ahead_rows_min, ahead_rows_max;
    uint32_t ahead_units_min, ahead_units_max;
    uint32_t chunk_shift; /* of the chunks that the budget counts; 0: it does not limit */
} gvm_append;

#endif
