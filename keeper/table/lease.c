/* Leases on columns. */
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "keeper/table/table.h"

/* ---- columns */

static gvm_status check_columns(const gvm_table *table, const uint32_t *columns, uint32_t count)
{
    if (columns == NULL && count > 0)
        return gvm_error_set(GVM_E_INVALID, "columns is NULL");
    for (uint32_t i = 0; i < count; i++)
        if (columns[i] >= table->info.columns)
            return gvm_error_set(GVM_E_INVALID, "there is no column %u: the table has %u",
                                 (unsigned)columns[i], (unsigned)table->info.columns);
    return GVM_OK;
}

gvm_status gvm_table_open_columns(gvm_table *handle, const uint32_t *columns, uint32_t count)
{
    GVMI_UNCANCELLED;
    gvm_table *table;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    status = check_columns(table, columns, count);
    for (uint32_t i = 0; i < count && status == GVM_OK; i++)
        status = gvmi_table_open_column(table, columns[i]);
    gvmi_table_leave(table);
    return status;
}

/* ---- leases */

/* What the leases of one call are asked for by; the options may be NULL. */
typedef struct lease_terms {
    const gvm_acquire_options *options;
    int64_t deadline_ns; /* GVMI_NEVER_NS: none */
} lease_terms;

/* The time left, rounded up. */
static int left_ms(int64_t deadline_ns)
{
    const int64_t left_ns = deadline_ns - gvmi_now_ns();

    if (deadline_ns == GVMI_NEVER_NS)
        return GVM_FOREVER;
    return left_ns > 0 ? (int)((left_ns + GVMI_NS_PER_MS - 1) / GVMI_NS_PER_MS) : GVM_TRY;
}

static gvm_status acquire_part(gvmi_table_column *column, int part, const lease_terms *terms,
                               gvm_table_data *data, void **address)
{
    gvm_object *object = atomic_load(&column->areas[part]);
    gvm_lease *lease = &data->leases[part];
    gvm_status status;

    if (gvmi_table_part_bytes(&column->info, part) == 0)
        return GVM_OK;
    status = gvm_object_acquire(object, GVM_LEASE_READ, terms->options, left_ms(terms->deadline_ns),
                                lease);
    if (status != GVM_OK)
        return status;
    if (lease->size_bytes < gvmi_table_part_bytes(&column->info, part))
        return gvm_error_set(GVM_E_FORMAT, "column \"%s\" has less memory than its rows take",
                             column->info.name);
    *address = lease->address;
    return GVM_OK;
}

static gvm_status acquire_column(gvm_table *table, const lease_terms *terms, gvm_table_data *data)
{
    gvmi_table_column *column = &table->columns[data->column];
    gvm_status status = acquire_part(column, GVMI_PART_VALUES, terms, data, &data->values);

    if (status == GVM_OK)
        status = acquire_part(column, GVMI_PART_BODIES, terms, data, &data->bodies);
    if (status == GVM_OK)
        status = acquire_part(column, GVMI_PART_NULLS, terms, data, &data->nulls);
    if (status == GVM_OK)
        status = acquire_part(column, GVMI_PART_ELEMENT_NULLS, terms, data, &data->element_nulls);
    return status;
}

static int by_column(const void *left, const void *right)
{
    const gvm_table_data *a = *(gvm_table_data *const *)left, *b = *(gvm_table_data *const *)right;

    return (a->column > b->column) - (a->column < b->column);
}

/* Clears data, but where a lease could not be given back behind a stream: that stays in it. */
static gvm_status release_column(gvm_table *table, gvm_table_data *data, gvm_stream stream, bool async)
{
    gvm_status status = data->acquired
                            ? GVM_OK
                            : gvm_error_set(GVM_E_INVALID,
                                            "there is no lease, or it was released already");
    bool left = false;

    for (int part = 0; part < GVMI_PART_COUNT && data->column < table->info.columns; part++) {
        gvm_object *object = atomic_load(&table->columns[data->column].areas[part]);
        gvm_lease *lease = &data->leases[part];
        gvm_status one = GVM_OK;

        if (lease->mode != 0)
            one = async ? gvm_object_release_async(object, lease, stream)
                        : gvm_object_release(object, lease);
        left |= async && one != GVM_OK && lease->mode != 0;
        status = status != GVM_OK ? status : one;
    }
    if (!left)
        memset(data, 0, sizeof *data);
    return status;
}

static gvm_status release_columns(gvm_table *table, gvm_table_data *data, uint32_t count,
                                  gvm_stream stream, bool async)
{
    gvm_status status = GVM_OK;
    gvm_error error;

    for (uint32_t i = 0; i < count; i++) {
        const gvm_status one = release_column(table, &data[i], stream, async);

        if (status != GVM_OK || one == GVM_OK)
            continue;
        status = one;
        error = gvmi_error_save();
    }
    if (status != GVM_OK)
        gvm_error_restore(&error);
    return status;
}

static gvm_status acquire_columns(gvm_table *table, gvm_table_data **order, uint32_t count,
                                  const gvm_acquire_options *options, int timeout_ms)
{
    lease_terms terms = {.options = options};
    gvm_status status = GVM_OK;

    qsort(order, count, sizeof(gvm_table_data *), by_column);
    for (uint32_t i = 1; i < count; i++)
        if (order[i]->column == order[i - 1]->column)
            return gvm_error_set(GVM_E_INVALID, "column %u is listed twice",
                                 (unsigned)order[i]->column);
    for (uint32_t i = 0; i < count && status == GVM_OK; i++)
        status = gvmi_table_open_column(table, order[i]->column); /* before anybody waits for us */
    terms.deadline_ns = timeout_ms == GVM_FOREVER ? GVMI_NEVER_NS : gvmi_deadline_ns(timeout_ms);
    for (uint32_t i = 0; i < count && status == GVM_OK; i++)
        status = acquire_column(table, &terms, order[i]);
    return status;
}

gvm_status gvm_table_acquire(gvm_table *handle, const uint32_t *columns, uint32_t count,
                             const gvm_acquire_options *options, int timeout_ms, gvm_table_data *data)
{
    GVMI_UNCANCELLED;
    gvm_table_data **order = NULL;
    gvm_table *table;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    status = check_columns(table, columns, count);
    if (status == GVM_OK)
        status = gvmi_check_timeout(timeout_ms);
    if (status == GVM_OK && data == NULL && count > 0)
        status = gvm_error_set(GVM_E_INVALID, "data is NULL");
    if (status != GVM_OK || count == 0)
        goto leave_table;
    order = count <= table->info.columns ? malloc(count * sizeof(gvm_table_data *)) : NULL;
    if (order == NULL) {
        status = count <= table->info.columns
                     ? gvm_error_set(GVM_E_NOMEM, "out of host memory for leases")
                     : gvm_error_set(GVM_E_INVALID, "a column is listed twice");
        goto leave_table;
    }
    for (uint32_t i = 0; i < count; i++) {
        data[i] = (gvm_table_data){.column = columns[i], .acquired = 1};
        order[i] = &data[i];
    }
    status = acquire_columns(table, order, count, options, timeout_ms);
    if (status != GVM_OK) {
        const gvm_error error = gvmi_error_save();

        (void)release_columns(table, data, count, NULL, false);
        gvm_error_restore(&error);
    }
    free(order);
leave_table:
    gvmi_table_leave(table);
    return status;
}

/* *bytes grows by what its parts have on the host. */
static gvm_status add_host_bytes(gvm_table *table, const gvm_table_data *data, uint64_t *bytes)
{
    gvmi_table_column *column = &table->columns[data->column];
    gvm_status status = GVM_OK;

    for (int part = 0; part < GVMI_PART_COUNT && status == GVM_OK; part++) {
        uint64_t more = 0;

        if (data->leases[part].mode != 0)
            status = gvm_object_get_host_bytes(atomic_load(&column->areas[part]), &data->leases[part],
                                               gvmi_table_part_bytes(&column->info, part), &more);
        *bytes += more;
    }
    return status;
}

gvm_status gvm_table_get_host_bytes(gvm_table *handle, const gvm_table_data *data, uint64_t *host_bytes)
{
    GVMI_UNCANCELLED;
    gvm_table *table;
    uint64_t bytes = 0;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    if (data == NULL || host_bytes == NULL)
        status = gvm_error_set(GVM_E_INVALID, "data or host_bytes is NULL");
    else if (!data->acquired || data->column >= table->info.columns)
        status = gvm_error_set(GVM_E_INVALID, "there is no lease, or it was released already");
    else
        status = add_host_bytes(table, data, &bytes);
    if (status == GVM_OK)
        *host_bytes = bytes;
    gvmi_table_leave(table);
    return status;
}

static gvm_status release_all(gvm_table *handle, gvm_table_data *data, uint32_t count,
                              gvm_stream stream, bool async)
{
    gvm_table *table;
    gvm_status status = gvmi_table_enter(handle, &table);

    if (status != GVM_OK)
        return status;
    if (data == NULL && count > 0)
        status = gvm_error_set(GVM_E_INVALID, "data is NULL");
    else
        status = release_columns(table, data, count, stream, async);
    gvmi_table_leave(table);
    return status;
}

gvm_status gvm_table_release(gvm_table *table, gvm_table_data *data, uint32_t count)
{
    GVMI_UNCANCELLED;

    return release_all(table, data, count, NULL, false);
}

gvm_status gvm_table_release_async(gvm_table *table, gvm_table_data *data, uint32_t count,
                                   gvm_stream stream)
{
    GVMI_UNCANCELLED;

    return release_all(table, data, count, stream, true);
}
