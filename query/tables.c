/* See tables.h. Lock: `lock` guards the list, users and the opening of bitmaps. Attaching, which takes some messages to the keeper, is
 * done under it, as is detaching one to make room; detaching those that rest, which unmaps, is not. */
#include "query/tables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gquery_tables {
    pthread_mutex_t lock;
    gvm_client *keeper;
    gquery_attached *attached[GQUERY_ATTACHED_MAX];
    uint32_t count;
};

static const gvm_acquire_options no_hint = {.struct_size = sizeof no_hint};

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

gvm_status gquery_tables_create(int socket, gquery_tables **out)
{
    gquery_tables *tables = calloc(1, sizeof *tables);
    gvm_status status;

    if (tables == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for tables");
    pthread_mutex_init(&tables->lock, NULL);
    status = gvm_client_adopt(socket, &tables->keeper);
    if (status != GVM_OK)
        free(tables);
    else
        *out = tables;
    return status;
}

/* ---- attaching */

static void detach(gquery_attached *a)
{
    gvm_object_close(a->deleted);
    gvm_table_detach(a->table);
    free(a->columns);
    free(a);
}

static gvm_status describe(gquery_attached *a)
{
    gvm_status status;

    a->info.struct_size = sizeof a->info;
    status = gvm_table_get_info(a->table, &a->info);
    if (status != GVM_OK)
        return status;
    a->columns = calloc(a->info.columns + 1, sizeof *a->columns);
    if (a->columns == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for the columns of a table");
    for (uint32_t i = 0; i < a->info.columns && status == GVM_OK; i++) {
        a->columns[i].struct_size = sizeof a->columns[i];
        status = gvm_table_get_column(a->table, i, &a->columns[i]);
    }
    return status;
}

static gvm_status attach(const gquery_tables *tables, const char *token, gquery_attached **out)
{
    gquery_attached *a = calloc(1, sizeof *a);
    gvm_status status;

    if (a == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table");
    snprintf(a->token, sizeof a->token, "%s", token);
    status = gvm_table_attach_over(tables->keeper, token, 0, &a->table);
    if (status != GVM_OK) {
        free(a);
        return status;
    }
    status = describe(a);
    if (status != GVM_OK)
        detach(a);
    else
        *out = a;
    return status;
}

/* Of those without a user, the one that was used first, taken off the list; NULL: there is none that has been so for so long. */
static gquery_attached *take_unused(gquery_tables *tables, int64_t unused_ns)
{
    const int64_t until_ns = now_ns() - unused_ns;
    uint32_t first = tables->count;
    gquery_attached *a;

    for (uint32_t i = 0; i < tables->count; i++)
        if (tables->attached[i]->users == 0 && tables->attached[i]->used_ns <= until_ns &&
            (first == tables->count || tables->attached[i]->used_ns < tables->attached[first]->used_ns))
            first = i;
    if (first == tables->count)
        return NULL;
    a = tables->attached[first];
    tables->attached[first] = tables->attached[--tables->count];
    return a;
}

static gvm_status find_or_attach(gquery_tables *tables, const char *token, gquery_attached **out)
{
    gvm_status status;

    for (uint32_t i = 0; i < tables->count; i++)
        if (strcmp(tables->attached[i]->token, token) == 0) {
            *out = tables->attached[i];
            return GVM_OK;
        }
    if (tables->count == GQUERY_ATTACHED_MAX) {
        gquery_attached *unused = take_unused(tables, 0);

        if (unused == NULL)
            return gvm_error_set(GVM_E_LIMIT, "%d tables are being read", GQUERY_ATTACHED_MAX);
        detach(unused);
    }
    status = attach(tables, token, out);
    if (status == GVM_OK)
        tables->attached[tables->count++] = *out;
    return status;
}

gvm_status gquery_tables_attach(gquery_tables *tables, const char *token, gquery_attached **out)
{
    gvm_status status;

    pthread_mutex_lock(&tables->lock);
    status = find_or_attach(tables, token, out);
    if (status == GVM_OK)
        (*out)->users++;
    pthread_mutex_unlock(&tables->lock);
    return status;
}

void gquery_tables_release(gquery_tables *tables, gquery_attached *attached)
{
    if (attached == NULL)
        return;
    pthread_mutex_lock(&tables->lock);
    attached->users--;
    attached->used_ns = now_ns();
    pthread_mutex_unlock(&tables->lock);
}

uint32_t gquery_tables_detach_unused(gquery_tables *tables, int64_t unused_ns)
{
    for (;;) {
        gquery_attached *a;
        uint32_t left;

        pthread_mutex_lock(&tables->lock);
        a = take_unused(tables, unused_ns);
        left = tables->count;
        pthread_mutex_unlock(&tables->lock);
        if (a == NULL)
            return left;
        detach(a);
    }
}

/* ---- leases */

/* The bitmap of the table's version. */
static gvm_status open_deleted(gquery_tables *tables, gquery_attached *a)
{
    char name[GVM_NAME_BYTES_MAX];
    gvm_status status = GVM_OK;

    pthread_mutex_lock(&tables->lock);
    if (a->deleted == NULL) {
        snprintf(name, sizeof name, "%s/" GQUERY_DELETED_LINK, a->info.objects);
        status = gvm_object_open(tables->keeper, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &a->deleted);
        if (status != GVM_OK)
            a->deleted = NULL;
    }
    pthread_mutex_unlock(&tables->lock);
    return status;
}

gvm_status gquery_leases_take(gquery_tables *tables, gquery_attached *attached,
                              const uint32_t *columns, uint32_t count, bool deleted, int wait_ms,
                              gvm_table_data *data, gquery_leases *out)
{
    gquery_leases l = {.attached = attached, .data = data};
    gvm_status status = count == 0 ? GVM_OK
                                   : gvm_table_acquire(attached->table, columns, count, &no_hint,
                                                       wait_ms, data);

    if (status != GVM_OK)
        return status;
    l.count = count;
    if (deleted) {
        status = open_deleted(tables, attached);
        if (status == GVM_OK)
            status = gvm_object_acquire(attached->deleted, GVM_LEASE_READ, &no_hint, wait_ms,
                                        &l.deleted);
        l.has_deleted = status == GVM_OK;
    }
    if (status != GVM_OK) {
        gvm_error error;

        gvm_error_last(&error);
        gquery_leases_release(&l);
        gvm_error_restore(&error);
        return status;
    }
    *out = l;
    return GVM_OK;
}

void gquery_leases_release(gquery_leases *leases)
{
    if (leases->count > 0)
        (void)gvm_table_release(leases->attached->table, leases->data, leases->count);
    if (leases->has_deleted)
        (void)gvm_object_release(leases->attached->deleted, &leases->deleted);
    *leases = (gquery_leases){0};
}
