/* keeper/table/manifest.h - what a token leads to: the description of a table, written by the server
 * (postgres/export.c) and read by the process that attaches it.
 *
 * A token is "gstore3:SUM:OFFSET:BYTES:OWNER:LINKS:SOCKET": the manifest is the BYTES bytes from OFFSET on of
 * what the keeper's link LINKS/0.manifest leads to, the keeper listens at SOCKET (an absolute path, the rest
 * of the line), and SUM is the manifest's gvm_kernel_checksum() as 16 hexadecimal digits, the others are
 * decimal. LINKS has 128 random bits, so a token is known only to those who were given it, and
 * never leads to another table. OWNER is the user whose objects the links lead to, by the keeper's
 * numbers: once a token has ended, any user who knows it may link objects under LINKS; those are of
 * another owner and are refused. The object is a ring that later manifests of the same store
 * overwrite: then the sum differs, and the token is stale.
 *
 * A manifest is gvmi_manifest, then its columns, then texts ended by NUL, which the others name by
 * their offset from the start. Little-endian. What is read from it is checked first: the object's writer
 * may be anybody.
 */
#ifndef GVMI_KEEPER_TABLE_MANIFEST_H
#define GVMI_KEEPER_TABLE_MANIFEST_H

#include <stdint.h>

#define GVMI_TOKEN_PREFIX "gstore"
#define GVMI_TOKEN_VERSION 3
/* A token of gstore_load_begin() is "gstoreload1:OWNER:LINK:SOCKET", likewise: the keeper's link LINK leads to the
 * memory that rows are to be written to. */
#define GVMI_LOAD_TOKEN_PREFIX "gstoreload"
#define GVMI_LOAD_TOKEN_VERSION 1
#define GVMI_LOAD_LINK "/load"        /* what LINK ends with, behind the secret */
#define GVMI_MANIFEST_MAGIC "GSTOREM" /* with its NUL, 8 bytes */
#define GVMI_MANIFEST_BYTES_MAX (1u << 20)
#define GVMI_MANIFEST_RING_BYTES (4u << 20)
#define GVMI_MANIFEST_ALIGN 64u

enum {
    GVMI_LAYOUT_PGSTROM = 1,
    GVMI_LAYOUT_ARROW = 2,
};

enum {
    GVMI_COLUMN_BY_VALUE = 1 << 0,
    GVMI_COLUMN_NULLS = 1 << 1, /* there is a link COLUMN.nulls */
    GVMI_COLUMN_PGLZ = 1 << 2,
    GVMI_COLUMN_ABSENT = 1 << 3,        /* there is no link */
    GVMI_COLUMN_ELEMENT_NULLS = 1 << 4, /* there is a link COLUMN.element_nulls */
};

typedef struct gvmi_manifest {
    char magic[8];
    uint32_t version;
    uint32_t bytes; /* of all of it */
    uint32_t header_bytes, column_bytes;
    uint32_t columns;
    uint32_t layout;
    uint64_t rows;
    uint64_t revision;
    uint32_t schema, name; /* texts */
} gvmi_manifest;

typedef struct gvmi_manifest_column {
    uint32_t name, type_name;      /* texts */
    uint32_t arrow, arrow_element; /* likewise; layout ARROW: formats of Arrow's C data interface */
    uint32_t type, base_type, element;
    int32_t typmod;
    int16_t length, element_length;
    uint16_t number; /* COLUMN in the names of its links: COLUMN.values, .nulls, .bodies */
    uint16_t flags;
    uint32_t width; /* bytes a row in COLUMN.values; 0: bits */
    char align, element_align;
    uint8_t uniform; /* GVM_TABLE_DECIMAL ..., in both layouts; 0: it is not. Then `width` is a value's bytes */
    uint8_t precision; /* of decimals */
    uint64_t bodies_bytes;
    uint32_t count; /* uniform: elements, bits or bytes of each value; of decimals 0 */
    int16_t scale;  /* of decimals */
    uint8_t reserved[2];
} gvmi_manifest_column;

#endif
