/* keeper/table/table.h - an attached table inside the library.
 *
 *   attach.c  attaching, what a table is     lease.c   leases on columns
 *   open.c    links and handles              decode.c  tokens and manifests (manifest.h)
 *   load.c    memory for rows to be loaded
 *
 * I1  columns are checked: width fits length and align, numbers rise, texts are inside `manifest`.
 * I2  areas[p] of a column is NULL or open; it is set once, by whichever thread opened it first.
 */
#ifndef GVMI_KEEPER_TABLE_TABLE_H
#define GVMI_KEEPER_TABLE_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <gvmem/table.h>

#include "keeper/table/manifest.h"

/* In the order in which a server's writer takes its leases. */
enum {
    GVMI_PART_VALUES,
    GVMI_PART_BODIES,
    GVMI_PART_NULLS,
    GVMI_PART_ELEMENT_NULLS,
    GVMI_PART_COUNT
};

typedef struct gvmi_table_column {
    gvm_table_column info;
    _Atomic(gvm_object *) areas[GVMI_PART_COUNT];
} gvmi_table_column;

typedef struct gvmi_token {
    uint64_t sum, offset_bytes, bytes;
    uint32_t owner; /* of the objects, a user id */
    char links[GVM_TABLE_TOKEN_BYTES_MAX];
    char socket[GVM_TABLE_TOKEN_BYTES_MAX];
} gvmi_token;

struct gvm_table {
    gvmi_token token;
    gvm_table_info info;
    gvm_client *keeper;
    bool owns_keeper; /* the connection is closed with the table; else it is the caller's */
    gvm_object *manifest_object; /* shows, while it has its name, that the table is the server's still */
    char *manifest;
    gvmi_table_column *columns; /* info.columns of them */
};

/* Checks a handle and counts the caller in, until gvmi_table_leave(). */
gvm_status gvmi_table_enter(gvm_table *handle, gvm_table **out);
void gvmi_table_leave(gvm_table *table);

/* GVM_E_FORMAT, GVM_E_VERSION */
gvm_status gvmi_token_parse(const char *text, gvmi_token *out);

/* A token of gstore_load_begin(): links is the whole name of its link, sum and place are 0. Likewise. */
gvm_status gvmi_load_token_parse(const char *text, gvmi_token *out);

/* Checks table->manifest (token.bytes of them) and fills in info and columns from it.
 *
 * GVM_E_FORMAT, GVM_E_VERSION, GVM_E_NOMEM */
gvm_status gvmi_table_decode(gvm_table *table);

/* How many bytes a part of a column has; 0: there is none. */
uint64_t gvmi_table_part_bytes(const gvm_table_column *column, int part);

/* The token has ended. GVM_E_ABSENT */
gvm_status gvmi_table_fail_ended(void);

/* Opens what the token's link of that name, "COLUMN.PART", leads to, if the token's owner owns it.
 *
 * GVM_E_ABSENT  the token has ended
 * and the errors of gvm_object_open() */
gvm_status gvmi_table_open_link(const gvm_table *table, const char *part, gvm_object **out);

/* Opens the parts of a column that are not open yet. */
gvm_status gvmi_table_open_column(gvm_table *table, uint32_t index);

#endif
