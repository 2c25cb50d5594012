/* query/tables.h - tables of a server that a process reads: attached by tokens over one connection to the keeper, kept from use to
 * use, and read under leases.
 *
 * The connection opens what tokens lead to and nothing else (gvm_client_restrict()).
 *
 * Threads: any thread may call anything. Attaching, opening and detaching wait for the keeper as long as it lives,
 * and nobody else waits with them but for the same table.
 * Ownership: what gquery_tables_attach() returns is kept until gquery_tables_release(); later it may be detached.
 */
#ifndef GQUERY_TABLES_H
#define GQUERY_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/table.h>

#define GQUERY_ATTACHED_MAX 256 /* that are being read */
/* Where there are so many, one that nobody uses makes room for another: as many may have the same column over one connection. */
#define GQUERY_ATTACHED_KEPT 16
#define GQUERY_DELETED_LINK "0.deleted"

typedef struct gquery_tables gquery_tables;

typedef struct gquery_attached {
    gvm_table *table;
    gvm_table_info info;
    gvm_table_column *columns; /* info.columns of them */
    /* tables.c's: */
    char token[GVM_TABLE_TOKEN_BYTES_MAX];
    gvm_object *deleted; /* NULL: not opened */
    gvm_error failure;   /* status GVM_OK: it is attached, unless attaching */
    bool attaching;
    bool opening; /* objects of columns: one thread at a time, as a connection may have an object open a few times only */
    uint32_t users;
    int64_t used_ns; /* when the last one released it */
} gquery_attached;

/* Adopts the socket, a connection to the keeper (gvm_client_adopt()). It lasts as long as the process.
 *
 * GVM_E_NOMEM and the errors of gvm_client_adopt() */
gvm_status gquery_tables_create(int socket, gquery_tables **out);

/* The table of a token: one that is attached already, or a new one; for it, what nobody uses may be detached.
 *
 * GVM_E_LIMIT  so many are in use; and the errors of gvm_table_attach_over() */
gvm_status gquery_tables_attach(gquery_tables *tables, const char *token, gquery_attached **out);

/* Opens what leases are to be taken on, which takes messages to the keeper, once. gquery_leases_take() does that too.
 *
 * The errors of gvm_table_open_columns() and gvm_object_open() */
gvm_status gquery_tables_open_columns(gquery_tables *tables, gquery_attached *attached,
                                      const uint32_t *columns, uint32_t count, bool deleted);

/* NULL is ignored. */
void gquery_tables_release(gquery_tables *tables, gquery_attached *attached);

/* Detaches those that have been without a user for so long: they may have been dropped. */
void gquery_tables_detach_unused(gquery_tables *tables, int64_t unused_ns);

/* After GVM_E_LIMIT: detaches those without a user. If there are none, it waits before for so long until there is one. */
void gquery_tables_make_room(gquery_tables *tables, int wait_ms);

#define GQUERY_LEASE_MS 10000 /* as long as one may take, as a rule */

/* Leases on columns of a table, and on its bitmap of deleted rows. */
typedef struct gquery_leases {
    gquery_attached *attached; /* NULL: there are none */
    gvm_table_data *data;      /* count of them, the caller's */
    uint32_t count;
    bool has_deleted;
    gvm_lease deleted;
} gquery_leases;

/* All or none, within wait_ms each. data has room for count.
 *
 * GVM_E_TIMEOUT and the other errors of gvm_table_acquire() and gvm_object_open() */
gvm_status gquery_leases_take(gquery_tables *tables, gquery_attached *attached,
                              const uint32_t *columns, uint32_t count, bool deleted, int wait_ms,
                              gvm_table_data *data, gquery_leases *out);

/* Work that uses them must be over. Without leases this is nothing. */
void gquery_leases_release(gquery_leases *leases);

#endif
