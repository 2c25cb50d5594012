/* Opening what a token leads to, by links; handles of tables. */
#include <stdio.h>

#include "base/error.h"
#include "base/registry.h"
#include "keeper/table/table.h"

/* ---- handles */

gvm_status gvmi_table_enter(gvm_table *handle, gvm_table **out)
{
    void *found;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_TABLE, gvmi_key(handle), &found);

    *out = status == GVM_OK ? found : NULL;
    return status;
}

void gvmi_table_leave(gvm_table *table)
{
    gvmi_registry_drop(GVMI_KIND_TABLE, gvmi_key(table));
}

/* ---- links */

gvm_status gvmi_table_fail_ended(void)
{
    return gvm_error_set(GVM_E_ABSENT,
                         "the token has ended: it expired or was revoked, the table's privileges were "
                         "revoked, or it was truncated, compacted or dropped, or the server "
                         "restarted; export a new one");
}

/* Once a token has ended, the names of its links are free. */
static gvm_status check_object_owner(const gvm_table *table, gvm_object *object)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_object_get_info(object, &info);

    if (status == GVM_OK && info.owner_uid != table->token.owner)
        status = gvm_error_set(GVM_E_ABSENT,
                               "the token has ended, and user %u has linked another object under its name; "
                               "export a new one",
                               (unsigned)info.owner_uid);
    return status;
}

gvm_status gvmi_table_open_link(const gvm_table *table, const char *part, gvm_object **out)
{
    char name[sizeof table->token.links + 32];
    gvm_object *object;
    gvm_status status;

    snprintf(name, sizeof name, "%s/%s", table->token.links, part);
    status = gvm_object_open(table->keeper, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &object);
    if (status != GVM_OK)
        return status == GVM_E_ABSENT ? gvmi_table_fail_ended() : status;
    status = check_object_owner(table, object);
    if (status == GVM_OK)
        *out = object;
    else
        gvm_object_close(object);
    return status;
}

/* ---- columns */

static gvm_status open_part(gvm_table *table, gvmi_table_column *column, int part)
{
    static const char *const parts[] = {"values", "bodies", "nulls", "element_nulls"};
    char name[32];
    gvm_object *object, *nobody = NULL;
    gvm_status status;

    snprintf(name, sizeof name, "%u.%s", (unsigned)column->info.number, parts[part]);
    status = gvmi_table_open_link(table, name, &object);
    if (status != GVM_OK)
        return status;
    if (!atomic_compare_exchange_strong(&column->areas[part], &nobody, object))
        gvm_object_close(object); /* another thread was faster */
    return GVM_OK;
}

gvm_status gvmi_table_open_column(gvm_table *table, uint32_t index)
{
    gvmi_table_column *column = &table->columns[index];
    gvm_status status = GVM_OK;

    for (int part = 0; part < GVMI_PART_COUNT && status == GVM_OK; part++)
        if (gvmi_table_part_bytes(&column->info, part) > 0 && atomic_load(&column->areas[part]) == NULL)
            status = open_part(table, column, part);
    return status;
}
