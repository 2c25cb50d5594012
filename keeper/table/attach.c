/* Attaching and detaching; what a table is. */
#include <stdlib.h>
#include <string.h>

#include <gvmem/kernels.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/struct.h"
#include "keeper/client/client.h"
#include "keeper/table/table.h"

/* ---- the manifest */

/* The object is on the table's device, and so shows which that is here. */
static gvm_status find_device(gvm_table *table)
{
    gvm_buffer_info buffer = {.struct_size = sizeof buffer};
    gvm_status status = gvm_buffer_get_info(table->manifest_object->buffer, &buffer);

    table->info.device = buffer.ordinal;
    return status;
}

static gvm_status read_manifest(gvm_table *table)
{
    gvm_status status = gvm_object_copy_out(table->manifest, table->manifest_object,
                                            table->token.offset_bytes, table->token.bytes,
                                            GVM_FOREVER);

    if (status == GVM_E_INVALID)
        status = gvm_error_set(GVM_E_FORMAT, "the token is of another table's size");
    if (status == GVM_OK)
        status = find_device(table);
    if (status == GVM_OK &&
        gvm_kernel_checksum_host(table->manifest, table->token.bytes) != table->token.sum)
        status = gvmi_table_fail_ended(); /* its place in the ring has another one now */
    return status;
}

/* ---- life */

static void close_objects(gvm_table *table)
{
    for (uint32_t i = 0; i < table->info.columns && table->columns != NULL; i++)
        for (int part = 0; part < GVMI_PART_COUNT; part++)
            gvm_object_close(atomic_load(&table->columns[i].areas[part]));
    gvm_object_close(table->manifest_object);
}

static void free_table(gvm_table *table)
{
    const gvm_error error = gvmi_error_save();

    if (table->owns_keeper)
        gvm_client_close(table->keeper); /* and all objects */
    else
        close_objects(table);
    free(table->columns);
    free(table->manifest);
    gvmi_registry_retire(table);
    gvm_error_restore(&error);
}

static gvm_status attach_objects(gvm_table *table, uint32_t flags)
{
    gvm_status status;

    table->manifest = malloc(table->token.bytes);
    if (table->manifest == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table's description");
    status = table->owns_keeper ? gvm_client_connect(table->token.socket, &table->keeper) : GVM_OK;
    if (status == GVM_OK)
        status = gvmi_table_open_link(table, "0.manifest", &table->manifest_object);
    if (status == GVM_OK)
        status = read_manifest(table);
    if (status == GVM_OK)
        status = gvmi_table_decode(table);
    if ((flags & GVM_TABLE_WHOLE) != 0)
        for (uint32_t i = 0; i < table->info.columns && status == GVM_OK; i++)
            status = gvmi_table_open_column(table, i);
    return status;
}

/* keeper NULL: the table makes a connection of its own. */
static gvm_status attach(gvm_client *keeper, const char *token, uint32_t flags, gvm_table **out)
{
    gvm_table *table;
    gvm_status status;

    if (token == NULL || out == NULL)
        return gvm_error_set(GVM_E_INVALID, "token or out is NULL");
    if ((flags & ~(uint32_t)GVM_TABLE_WHOLE) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown flags %#x", (unsigned)flags);
    table = calloc(1, sizeof *table);
    if (table == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table");
    table->keeper = keeper;
    table->owns_keeper = keeper == NULL;
    status = gvmi_token_parse(token, &table->token);
    if (status == GVM_OK)
        status = attach_objects(table, flags);
    if (status == GVM_OK)
        status = gvmi_registry_add(GVMI_KIND_TABLE, gvmi_key(table), table);
    if (status != GVM_OK) {
        free_table(table);
        return status;
    }
    *out = table;
    return GVM_OK;
}

gvm_status gvm_table_attach(const char *token, uint32_t flags, gvm_table **out)
{
    GVMI_UNCANCELLED;

    return attach(NULL, token, flags, out);
}

gvm_status gvm_table_attach_over(gvm_client *keeper, const char *token, uint32_t flags, gvm_table **out)
{
    GVMI_UNCANCELLED;

    if (keeper == NULL)
        return gvm_error_set(GVM_E_FOREIGN, "the connection is NULL");
    return attach(keeper, token, flags, out);
}

void gvm_table_detach(gvm_table *handle)
{
    GVMI_UNCANCELLED;
    void *table;

    if (handle == NULL || gvmi_registry_remove(GVMI_KIND_TABLE, gvmi_key(handle), &table) != GVM_OK)
        return;
    free_table(table);
}

/* ---- what it is */

gvm_status gvm_table_get_info(gvm_table *handle, gvm_table_info *info)
{
    GVMI_UNCANCELLED;
    gvm_table *table;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    if (!gvmi_struct_out(info, &table->info, sizeof table->info, sizeof table->info))
        status = gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is wrong");
    gvmi_table_leave(table);
    return status;
}

gvm_status gvm_table_get_column(gvm_table *handle, uint32_t index, gvm_table_column *column)
{
    GVMI_UNCANCELLED;
    gvm_table *table;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    if (index >= table->info.columns)
        status = gvm_error_set(GVM_E_INVALID, "there is no column %u: the table has %u",
                               (unsigned)index, (unsigned)table->info.columns);
    else if (column != NULL && column->struct_size == offsetof(gvm_table_column, uniform) &&
             table->columns[index].info.uniform != 0)
        status = gvm_error_set(
            GVM_E_VERSION,
            "column \"%s\" has values of one length, which programs of before do not know",
            table->columns[index].info.name);
    else if (!gvmi_struct_out(column, &table->columns[index].info, sizeof *column,
                              offsetof(gvm_table_column, uniform)))
        status = gvm_error_set(GVM_E_INVALID, "column is NULL or its struct_size is wrong");
    gvmi_table_leave(table);
    return status;
}

gvm_status gvm_table_find_column(gvm_table *handle, const char *name, uint32_t *index)
{
    GVMI_UNCANCELLED;
    gvm_table *table;
    gvm_status status;
    uint32_t i = 0;

    if (name == NULL || index == NULL)
        return gvm_error_set(GVM_E_INVALID, "name or index is NULL");
    status = gvmi_table_enter(handle, &table);
    if (status != GVM_OK)
        return status;
    while (i < table->info.columns && strcmp(table->columns[i].info.name, name) != 0)
        i++;
    if (i < table->info.columns)
        *index = i;
    else
        status = gvm_error_set(GVM_E_ABSENT, "table %s.%s has no column \"%s\"", table->info.schema,
                               table->info.name, name);
    gvmi_table_leave(table);
    return status;
}
