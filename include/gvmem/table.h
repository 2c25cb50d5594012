/* gvmem/table.h - a PostgreSQL table in GPU memory, read by another process without a copy.
 *
 * In SQL, gstore_export('mytable') returns a token: a line of text. A program that attaches it here
 * maps the very memory that the table is in, read-only, column by column: only those that are
 * wanted are mapped.
 *
 *     gvm_table_attach(token, 0, &table);
 *     gvm_table_find_column(table, "price", &column);
 *     gvm_table_acquire(table, &column, 1, NULL, GVM_FOREVER, &data);
 *     kernel<<<..., stream>>>((const double *)data.values, rows);
 *     gvm_table_release_async(table, &data, 1, stream);
 *
 * What is seen is one revision: the rows that the exporting statement saw, [0, rows), none of them
 * deleted. Later INSERT, UPDATE and DELETE change nothing of it. A token ends: it expires, is revoked, or
 * goes with privileges that are revoked; TRUNCATE, DROP and compaction release the memory. Columns
 * that were opened before stay whole until they are detached, others are gone: GVM_E_ABSENT.
 * GVM_TABLE_WHOLE opens all at once. When the server or its keeper ends, what is mapped stays
 * readable under leases already taken, and everything else returns GVM_E_KEEPER.
 *
 * Memory is read under leases, as any keeper's object (gvmem/client.h). While there is one, the keeper
 * cannot move the column to make room for others: keep leases for the time of a kernel or a batch. They
 * delay no statement of the server, not even an INSERT into the same table.
 *
 * Layout 'pgstrom'; all numbers little-endian. Row r of a column of fixed length, or of a uniform one, is the
 * `width` bytes at values + r * width. Of one of variable length, values has a uint64_t for each row: 0 for
 * NULL, or else the body is at bodies + offset, a multiple of 8: a PostgreSQL varlena with its 4-byte
 * header, which is the body's length in bytes, itself included, times 4; if bit 1 of it is set, the body
 * is compressed by pglz. Bit r % 8 of byte r / 8 at nulls is 1 for not NULL; without that bitmap no
 * row is NULL, but by an offset of 0.
 *
 * Layout 'arrow': parts are the buffers of Apache Arrow's arrays, as its C data interface takes them.
 * `arrow` names the column's type there, and nulls is the validity bitmap; without it no row is NULL.
 *
 *     b                      values: a bit a row
 *     s i l I f g tdD ttu    values: `width` bytes a row
 *     tsu: tsu:UTC w:N d:P,S
 *     +w:N                   values: N values of the child, whose type `arrow_element` names, a row
 *     U Z                    values: rows + 1 offsets, int64_t; bodies: the bytes
 *     +L                     values: likewise, counting elements; bodies: the child's values, whose type
 *                            `arrow_element` names; element_nulls: its validity bitmap
 *     n                      nothing: the column is absent, every row is NULL
 *
 * The null count of such an array is not known (-1), its offset is 0. Buffers begin at a multiple of 64
 * bytes and can be read up to the next one; bits behind the last row are undefined.
 *
 * A token is a secret: who has it may attach the table until it ends, if the setting gstore_fdw.readers lets in the
 * program's user; by default it is the one that runs the server, and root. It says to which socket to connect: attach
 * only those of servers that are trusted. It names the user who owns the memory, as the keeper knows it: what
 * others put under the secret of a token that has ended is refused, with GVM_E_ABSENT.
 *
 * Threads: any thread may call anything; detach waits for what other threads still do with the table. No
 * call is a cancellation point.
 * Ownership: the caller owns a table and ends it with gvm_table_detach(). Texts and addresses in
 * results are valid as long as it is.
 * Every call may also return GVM_E_FOREIGN (detached or unknown), GVM_E_KEEPER, GVM_E_NOMEM,
 * GVM_E_LOST, GVM_E_DRIVER and GVM_E_SYSTEM.
 *
 * Semantics: docs/design/gstore.md.
 */
#ifndef GVMEM_TABLE_H
#define GVMEM_TABLE_H

#include <gvmem/client.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_table gvm_table; /* attached */

#define GVM_TABLE_TOKEN_BYTES_MAX 512 /* with the NUL */
#define GVM_TABLE_COLUMNS_MAX 1664

/* ---- attaching */

enum {
    /* Opens every column at once, so that the table is whole whatever the server does with its own.
     * Takes longer, and addresses for all of them. */
    GVM_TABLE_WHOLE = 1u << 0,
};

/* Attaches the table of a token. Connects to the server's keeper and reads the description of the table;
 * no column is mapped before it is wanted, but with GVM_TABLE_WHOLE.
 *
 * GVM_E_INVALID   token or out is NULL, unknown flags
 * GVM_E_FORMAT    that is no token, or what it leads to is no table
 * GVM_E_VERSION   the token is of another version of gvmem
 * GVM_E_ABSENT    the token has ended: it expired or was revoked, privileges on the table were revoked, the
 *                 table was truncated, compacted or dropped since, many tokens were made after it, or the
 *                 server was restarted. Export a new one
 * GVM_E_PEER      nobody listens there: the server is down
 * GVM_E_DENIED    the server lets only its own user read; see gstore_fdw.readers
 * GVM_E_NODEVICE  the table's device is not visible to this process
 * and the errors of gvm_client_connect() and gvm_object_open() */
GVM_API GVM_CHECKED gvm_status gvm_table_attach(const char *token, uint32_t flags, gvm_table **out);

/* As gvm_table_attach(), over a connection to the server's keeper that the caller has, in place of one of the table's own: a
 * restricted one (gvm_client_restrict()) is enough. The table must be detached before the connection is closed. Of tables
 * attached over one connection 16 may have the same column.
 *
 * GVM_E_FOREIGN  keeper is closed or unknown
 * and the errors of gvm_table_attach() */
GVM_API GVM_CHECKED gvm_status gvm_table_attach_over(gvm_client *keeper, const char *token,
                                                     uint32_t flags, gvm_table **out);

/* Ends it: unmaps every column. Leases on them end, and work that uses them must be over. NULL and
 * unknown pointers are ignored. */
GVM_API void gvm_table_detach(gvm_table *table);

/* ---- what it is */

typedef struct gvm_table_info {
    size_t struct_size; /* in: sizeof(gvm_table_info) */
    const char *schema, *name;
    const char *layout; /* "pgstrom", "arrow" */
    const char *objects; /* what the names of its links at the keeper begin with: as secret as the token */
    const char *socket; /* of the keeper */
    uint64_t rows;
    uint64_t revision; /* counts the changes of the table */
    uint32_t columns;
    int32_t device; /* ordinal in this process */
} gvm_table_info;

/* Describes the table.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_table_get_info(gvm_table *table, gvm_table_info *info);

/* gvm_table_column.uniform: what PostgreSQL passes with a header lies at a fixed stride without it, in both layouts. */
enum {
    GVM_TABLE_DECIMAL = 1, /* a signed integer of 16 bytes; the number is that * 10^-scale, NaN is -2^127 */
    GVM_TABLE_BITS = 2,  /* bit i is bit 7 - i % 8 of byte i / 8; those behind the last one are 0 */
    GVM_TABLE_BYTES = 3, /* a text or bytea */
    GVM_TABLE_ELEMENTS = 4, /* of an array: in layout 'arrow' as `arrow_element` says, else PostgreSQL's binary form */
    GVM_TABLE_VECTOR = 5, /* float32 of a vector, or float16 of a halfvec, of pgvector */
};

/* One column. Type numbers are PostgreSQL's OIDs (pg_type.h): those of its own types are the same in
 * every server. */
typedef struct gvm_table_column {
    size_t struct_size; /* in: sizeof(gvm_table_column) */
    const char *name;
    const char *type_name; /* as SQL writes it: "numeric(10,2)", "smallint[]" */
    uint32_t number;       /* attribute number in the server */
    uint32_t type;
    uint32_t base_type; /* below any domain; otherwise the same */
    uint32_t element; /* type of an array's or vector's elements; 0: none, or numbers of 16 bits (halfvec) */
    int32_t typmod;
    int16_t length;         /* of a value in bytes; below 0: variable */
    int16_t element_length; /* likewise, of elements */
    uint32_t width;         /* bytes a row in values; 0: a bit */
    char align;             /* 'c', 's', 'i' or 'd': 1, 2, 4 or 8 bytes */
    char element_align;
    uint8_t by_value; /* a number of 1, 2, 4 or 8 bytes */
    uint8_t has_nulls; /* there is a bitmap; without it no NULL, but those of offset 0 in 'pgstrom' */
    uint8_t compressed; /* bodies may be compressed by pglz */
    uint8_t absent;     /* added when the rows were there: all of them are NULL, no memory */
    uint8_t reserved[2];
    uint64_t values_bytes, nulls_bytes, bodies_bytes; /* of the rows; 0: there is no such part */
    /* Layout 'arrow', otherwise NULL: the type as Arrow's C data interface names it, and that of a list's
     * elements, "" for others. */
    const char *arrow, *arrow_element;
    uint64_t element_nulls_bytes; /* 0: no element is NULL */
    uint32_t uniform;             /* GVM_TABLE_DECIMAL ...; 0: it is not */
    uint32_t count;           /* uniform: elements, bits or bytes of each value; of decimals 0 */
    int32_t precision, scale; /* of decimals */
} gvm_table_column;

/* Describes a column, counted from 0 in the order of the table.
 *
 * GVM_E_INVALID  there is no such column; column is NULL or its struct_size is too small
 * GVM_E_VERSION  the column is uniform, and the struct is of before there were such columns */
GVM_API GVM_CHECKED gvm_status gvm_table_get_column(gvm_table *table, uint32_t index,
                                                    gvm_table_column *column);

/* Finds a column by its name, as written in the catalog: case counts.
 *
 * GVM_E_INVALID  name or index is NULL
 * GVM_E_ABSENT   there is none of that name */
GVM_API GVM_CHECKED gvm_status gvm_table_find_column(gvm_table *table, const char *name,
                                                     uint32_t *index);

/* ---- reading */

/* Opens columns without a lease: from then on they stay, whatever becomes of the table. Others are
 * opened by their first acquire. Opening one twice is nothing. Blocks for the keeper's answers. Their
 * memory is mapped by the first acquire.
 *
 * GVM_E_INVALID  there is no such column, or columns is NULL
 * GVM_E_ABSENT   the token has ended, or the table was truncated, compacted or dropped: attach a new token
 * GVM_E_FORMAT   what the server keeps is not as the token says
 * and the errors of gvm_object_open() */
GVM_API GVM_CHECKED gvm_status gvm_table_open_columns(gvm_table *table, const uint32_t *columns,
                                                      uint32_t count);

/* A column under a lease. Addresses are on the table's device, never change while it is attached, and
 * are good to read until the release. */
typedef struct gvm_table_data {
    void *values;        /* NULL: the column is absent */
    void *nulls;         /* NULL: there is no bitmap */
    void *bodies;        /* NULL: fixed length, or nothing but NULL (or empty values, in 'arrow') */
    void *element_nulls; /* of a list in layout 'arrow'; NULL: there is no bitmap */
    uint32_t column;
    uint32_t acquired; /* the library's, as are */
    gvm_lease leases[4];
} gvm_table_data;

/* Takes read leases on all the columns of a list, so that data[i] is columns[i]; all or none, and
 * then data is cleared. Columns wanted together are taken together, in one call: it takes them in one
 * order, so that no two programs wait for each other. options, which may be NULL, are for each lease;
 * timeout_ms bounds the wait for all of them together, but not the opening of columns.
 *
 * GVM_E_INVALID  there is no such column, one is listed twice, columns or data is NULL, timeout_ms is below
 *                GVM_FOREVER
 * GVM_E_TIMEOUT  somebody kept a lease to write, or waited for the rows with GVM_ACQUIRE_CPU; or these are to be so, as gvm_object_acquire() says
 * and the errors of gvm_table_open_columns() and gvm_object_acquire() */
GVM_API GVM_CHECKED gvm_status gvm_table_acquire(gvm_table *table, const uint32_t *columns,
                                                 uint32_t count, const gvm_acquire_options *options,
                                                 int timeout_ms, gvm_table_data *data);

/* How many of the bytes of a column's rows are in host memory now; see gvm_object_get_host_bytes().
 *
 * GVM_E_INVALID  data or host_bytes is NULL, or data was released already */
GVM_API GVM_CHECKED gvm_status gvm_table_get_host_bytes(gvm_table *table, const gvm_table_data *data,
                                                        uint64_t *host_bytes);

/* Gives leases back and clears data. Work on the GPU that uses them must be over.
 *
 * GVM_E_INVALID  data is NULL or was released already; the others of the list are released */
GVM_API gvm_status gvm_table_release(gvm_table *table, gvm_table_data *data, uint32_t count);

/* Gives leases back when the work submitted to the stream so far is done; clears data at once. A lease
 * with which that could not be arranged (GVM_E_NOMEM, GVM_E_DRIVER) stays in its data: wait for the
 * stream and give it back by gvm_table_release().
 *
 * GVM_E_INVALID  as for gvm_table_release(); or the stream is being captured into a graph, or is the legacy default stream while
 *                one that waits for it is: all leases stay, and the capture goes on
 * GVM_E_LOST     the stream's context is broken */
GVM_API gvm_status gvm_table_release_async(gvm_table *table, gvm_table_data *data, uint32_t count,
                                           gvm_stream stream);

#ifdef __cplusplus
}
#endif
#endif
