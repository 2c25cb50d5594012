/* gvmem/gstore_arrow.h - format 'arrow': a PostgreSQL table as one dense piece of device memory
 *
 * What gstore_export_ipchandle() makes, byte by byte as docs/gstore_format.md has it. Plain C without
 * PostgreSQL, for programs that open the handle. Numbers are little-endian; offsets are from the head's
 * first byte. Byte 24 distinguishes this copy from one of format 'pgstrom' (gvmem/gstore_kds.h).
 */
#ifndef GVMEM_GSTORE_ARROW_H
#define GVMEM_GSTORE_ARROW_H

#include <stdint.h>

#define GSTORE_ARROW_COPY 'a'   /* gstore_arrow_head.format */
#define GSTORE_ARROW_VERSION 2u /* 1: before there were columns of one length */
#define GSTORE_ARROW_ALIGN 64u  /* of every buffer, and of the whole */

typedef struct gstore_arrow_buffer {
    uint64_t offset; /* 0: there is none */
    uint64_t bytes;
} gstore_arrow_buffer;

typedef struct gstore_arrow_column {
    char name[64];
    char format[16];         /* of Arrow's C data interface: "i", "g", "U", "+L", "+w:3", ... */
    char element_format[16]; /* of a list's child; otherwise "" */
    uint32_t atttypid;
    int32_t atttypmod;
    int16_t attnum; /* from 1 */
    uint8_t reserved[6];
    gstore_arrow_buffer validity; /* none: no row is NULL */
    gstore_arrow_buffer offsets;  /* none: fixed length */
    gstore_arrow_buffer values;   /* of a list: the child's, */
    gstore_arrow_buffer element_validity;
    uint64_t elements; /* and how many there are, in all rows */
    uint64_t reserved_2;
} gstore_arrow_column;

typedef struct gstore_arrow_head {
    uint64_t length; /* of everything */
    uint64_t nitems;
    uint32_t version;
    uint32_t ncols; /* dropped ones are left out */
    uint8_t format;
    uint8_t reserved[3];
    uint32_t head_bytes, column_bytes; /* 64, 192 */
    uint32_t table_oid;
    uint8_t reserved_2[24];
} gstore_arrow_head; /* 64 bytes; then ncols columns of 192 bytes */

static inline gstore_arrow_column *gstore_arrow_columns(const gstore_arrow_head *head)
{
    return (gstore_arrow_column *)(head + 1);
}

#endif
