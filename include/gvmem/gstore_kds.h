/* gvmem/gstore_kds.h - format 'pgstrom': a PostgreSQL table as one dense piece of device memory
 *
 * What gstore_export_ipchandle() makes, byte by byte as docs/gstore_format.md has it. Plain C without
 * PostgreSQL, for programs that open the handle. Numbers are little-endian, sizes and offsets in bytes.
 */
#ifndef GVMEM_GSTORE_KDS_H
#define GVMEM_GSTORE_KDS_H

#include <stdint.h>

#define GSTORE_KDS_COLUMN 'c' /* gstore_kds_head.format */
#define GSTORE_KDS_VERSION \
    2u /* copies before it have the number of rows in its place, and no head_bytes */
#define GSTORE_KDS_NAME_BYTES 64
#define GSTORE_KDS_ALIGN 16u      /* of the head, and of every column */
#define GSTORE_KDS_EXTRA_ALIGN 8u /* of what is behind the values, and of every body */

/* gstore_kds_column.uniform: values of one length, `width` bytes each, without headers; docs/gstore_format.md */
enum {
    GSTORE_KDS_DECIMAL = 1, /* numeric(p, s): a signed integer of 16 bytes, times 10^-scale; the least one is NaN */
    GSTORE_KDS_BITS = 2,     /* bit(n) */
    GSTORE_KDS_BYTES = 3,    /* text, character or bytea */
    GSTORE_KDS_ELEMENTS = 4, /* of an array */
    GSTORE_KDS_VECTOR = 5,   /* elements of a vector or halfvec of pgvector */
};

typedef struct gstore_kds_column {
    int8_t attbyval;
    int8_t attalign; /* bytes: 1, 2, 4 or 8 */
    int16_t attlen;  /* of the type; -1: variable length, if the column is not uniform */
    int16_t attnum;  /* from 1 */
    int16_t attcacheoff;
    uint32_t atttypid; /* 0: dropped */
    int32_t atttypmod;
    uint64_t va_offset; /* of the values, from the head's first byte; 0: every row is NULL */
    uint64_t extra_sz;  /* of null bitmap or bodies behind the values */
    uint32_t width;     /* bytes a row in the values; 0: there are none */
    uint32_t count; /* uniform: elements, bits or bytes of each value; of decimals the precision */
    uint32_t element; /* elements: their type; 0: numbers of 16 bits, of halfvec */
    int16_t scale;    /* of decimals */
    uint8_t uniform;  /* 0: it is not */
    uint8_t reserved;
} gstore_kds_column;

typedef struct gstore_kds_head {
    uint64_t length; /* of everything */
    uint64_t nitems;
    uint32_t version;
    uint32_t ncols;
    uint8_t format;
    uint8_t has_notbyval; /* some column is not passed by value */
    uint8_t has_attnames; /* 1: names follow the columns' descriptions */
    uint8_t reserved;
    uint32_t tdtypeid; /* the table's row type */
    int32_t tdtypmod;
    uint32_t table_oid;
    uint32_t head_bytes, column_bytes; /* 56, 48 */
    uint8_t reserved_2[8];
} gstore_kds_head; /* 56 bytes; then ncols columns of 48 bytes; then ncols names */

static inline gstore_kds_column *gstore_kds_columns(const gstore_kds_head *head)
{
    return (gstore_kds_column *)(head + 1);
}

static inline uint64_t gstore_kds_round(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static inline uint64_t gstore_kds_head_bytes(uint32_t ncols)
{
    return gstore_kds_round(sizeof(gstore_kds_head) +
                                ncols * (sizeof(gstore_kds_column) + (uint64_t)GSTORE_KDS_NAME_BYTES),
                            GSTORE_KDS_ALIGN);
}

/* Where a column's extra bytes begin: behind the values. */
static inline uint64_t gstore_kds_extra_offset(const gstore_kds_column *column, uint64_t nitems)
{
    return column->va_offset + gstore_kds_round(column->width * nitems, GSTORE_KDS_EXTRA_ALIGN);
}

#endif
