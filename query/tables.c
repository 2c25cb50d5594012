/* See tables.h. Lock: `lock` guards the list, users, and whether a bitmap is open. The keeper, which may take long,
 * is not called under it: a table that is being attached is in the list, and others that want it wait until it is,
 * or until that has failed. */
#include "query/tables.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/clock.h"

struct gquery_tables {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one has been attached, or has not, or was released */
    gvm_client *keeper;
    gquery_attached *attached[GQUERY_ATTACHED_MAX];
    uint32_t count;
};

static const gvm_acquire_options no_hint = {.struct_size = sizeof no_hint};

gvm_status gquery_tables_create(int socket, gquery_tables **out)
{
    gquery_tables *tables = calloc(1, sizeof *tables);
    gvm_status status;

    if (tables == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for tables");
    pthread_mutex_init(&tables->lock, NULL);
    pthread_cond_init(&tables->changed, NULL);
    status = gvm_client_adopt(socket, &tables->keeper);
    if (status != GVM_OK)
        free(tables);
    else
        *out = tables;
    return status;
}

/* ---- attaching */

static void close_table(gquery_attached *a)
{
    gvm_object_close(a->deleted);
    gvm_table_detach(a->table);
    free(a->columns);
}

static void detach(gquery_attached *a)
{
    if (a != NULL)
        close_table(a);
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

/* The keeper's texts name links, which lead to the table as the token does: what is said of a query may be shown to
 * users who have no right to it. */
static gvm_status hide_link(gvm_status status)
{
    switch (status) {
    case GVM_E_DENIED: return gvm_error_set(status, "an object of the table may not be opened");
    case GVM_E_LIMIT:
        return gvm_error_set(
            status, "the table's objects, or those of all tables, are open as often as they may be");
    default: return status;
    }
}

/* On failure nothing is left of it. */
static gvm_status open_table(const gquery_tables *tables, gquery_attached *a)
{
    gvm_status status = hide_link(gvm_table_attach_over(tables->keeper, a->token, 0, &a->table));

    if (status != GVM_OK)
        return status;
    status = describe(a);
    if (status != GVM_OK)
        close_table(a);
    return status;
}

/* Of those without a user, the one that was used first, taken off the list; NULL: there is none that has been so for so long. */
static gquery_attached *take_unused(gquery_tables *tables, int64_t unused_ns)
{
    const int64_t until_ns = gstore_now_ns() - unused_ns;
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

/* With a user; NULL: there is none. The lock is held here and below, but while the keeper is called. */
static gquery_attached *find(gquery_tables *tables, const char *token)
{
    for (uint32_t i = 0; i < tables->count; i++)
        if (strcmp(tables->attached[i]->token, token) == 0) {
            tables->attached[i]->users++;
            return tables->attached[i];
        }
    return NULL;
}

/* One that is to be attached, with a user. */
static gvm_status add(gquery_tables *tables, const char *token, gquery_attached **out)
{
    gquery_attached *a;

    if (tables->count == GQUERY_ATTACHED_MAX)
        return gvm_error_set(GVM_E_LIMIT, "%d tables are being read", GQUERY_ATTACHED_MAX);
    a = calloc(1, sizeof *a);
    if (a == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table");
    snprintf(a->token, sizeof a->token, "%s", token);
    a->users = 1;
    a->attaching = true;
    *out = tables->attached[tables->count++] = a;
    return GVM_OK;
}

static void take_off(gquery_tables *tables, const gquery_attached *a)
{
    uint32_t at = 0;

    while (tables->attached[at] != a)
        at++;
    tables->attached[at] = tables->attached[--tables->count];
}

/* Of one that was found: why it could not be attached, which is forgotten with its last user. */
static gvm_status await_attached(gquery_tables *tables, gquery_attached *a)
{
    gvm_status status;

    while (a->attaching)
        pthread_cond_wait(&tables->changed, &tables->lock);
    status = a->failure.status;
    if (status == GVM_OK)
        return GVM_OK;
    gvm_error_restore(&a->failure);
    if (--a->users == 0)
        free(a);
    return status;
}

static void attach(gquery_tables *tables, gquery_attached *a, gquery_attached *unused)
{
    gvm_status status;

    pthread_mutex_unlock(&tables->lock);
    detach(unused);
    status = open_table(tables, a);
    pthread_mutex_lock(&tables->lock);
    if (status != GVM_OK) {
        gvm_error_last(&a->failure);
        take_off(tables, a);
    }
    a->attaching = false;
    pthread_cond_broadcast(&tables->changed);
}

gvm_status gquery_tables_attach(gquery_tables *tables, const char *token, gquery_attached **out)
{
    gquery_attached *a, *unused = NULL;
    gvm_status status = GVM_OK;

    pthread_mutex_lock(&tables->lock);
    a = find(tables, token);
    if (a == NULL) {
        if (tables->count >= GQUERY_ATTACHED_KEPT)
            unused = take_unused(tables, 0);
        status = add(tables, token, &a);
        if (status == GVM_OK)
            attach(tables, a, unused);
        else if (unused != NULL)
            tables->attached[tables->count++] = unused;
    }
    if (status == GVM_OK)
        status = await_attached(tables, a);
    pthread_mutex_unlock(&tables->lock);
    if (status == GVM_OK)
        *out = a;
    return status;
}

void gquery_tables_release(gquery_tables *tables, gquery_attached *attached)
{
    if (attached == NULL)
        return;
    pthread_mutex_lock(&tables->lock);
    attached->users--;
    attached->used_ns = gstore_now_ns();
    pthread_cond_broadcast(&tables->changed);
    pthread_mutex_unlock(&tables->lock);
}

void gquery_tables_detach_unused(gquery_tables *tables, int64_t unused_ns)
{
    gquery_attached *a;

    do {
        pthread_mutex_lock(&tables->lock);
        a = take_unused(tables, unused_ns);
        pthread_mutex_unlock(&tables->lock);
        detach(a);
    } while (a != NULL);
}

static bool has_unused(const gquery_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++)
        if (tables->attached[i]->users == 0)
            return true;
    return false;
}

void gquery_tables_make_room(gquery_tables *tables, int wait_ms)
{
    const int64_t until_ns = gstore_now_ns() + wait_ms * INT64_C(1000000);
    const struct timespec until = {until_ns / INT64_C(1000000000), until_ns % INT64_C(1000000000)};
    int waited = 0;

    pthread_mutex_lock(&tables->lock);
    while (!has_unused(tables) && waited == 0)
        waited = pthread_cond_clockwait(&tables->changed, &tables->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&tables->lock);
    gquery_tables_detach_unused(tables, 0);
}

/* ---- leases */

static bool has_deleted(gquery_tables *tables, const gquery_attached *a)
{
    bool has;

    pthread_mutex_lock(&tables->lock);
    has = a->deleted != NULL;
    pthread_mutex_unlock(&tables->lock);
    return has;
}

/* The bitmap of the table's version. */
static gvm_status open_deleted(gquery_tables *tables, gquery_attached *a)
{
    char name[GVM_NAME_BYTES_MAX];
    gvm_object *deleted = NULL;
    gvm_status status;

    if (has_deleted(tables, a))
        return GVM_OK;
    snprintf(name, sizeof name, "%s/" GQUERY_DELETED_LINK, a->info.objects);
    status = gvm_object_open(tables->keeper, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &deleted);
    if (status == GVM_E_ABSENT)
        return gvm_error_set(status, "the table's bitmap of deleted rows is not there any more");
    if (status != GVM_OK)
        return hide_link(status);
    pthread_mutex_lock(&tables->lock);
    if (a->deleted == NULL) {
        a->deleted = deleted;
        deleted = NULL;
    }
    pthread_mutex_unlock(&tables->lock);
    gvm_object_close(deleted); /* another thread was first */
    return GVM_OK;
}

gvm_status gquery_tables_open_columns(gquery_tables *tables, gquery_attached *attached,
                                      const uint32_t *columns, uint32_t count, bool deleted)
{
    gvm_status status;

    pthread_mutex_lock(&tables->lock);
    while (attached->opening)
        pthread_cond_wait(&tables->changed, &tables->lock);
    attached->opening = true;
    pthread_mutex_unlock(&tables->lock);
    status = hide_link(gvm_table_open_columns(attached->table, columns, count));
    if (status == GVM_OK && deleted)
        status = open_deleted(tables, attached);
    pthread_mutex_lock(&tables->lock);
    attached->opening = false;
    pthread_cond_broadcast(&tables->changed);
    pthread_mutex_unlock(&tables->lock);
    return status;
}

gvm_status gquery_leases_take(gquery_tables *tables, gquery_attached *attached,
                              const uint32_t *columns, uint32_t count, bool deleted, int wait_ms,
                              gvm_table_data *data, gquery_leases *out)
{
    gquery_leases l = {.attached = attached, .data = data};
    gvm_status status = deleted ? open_deleted(tables, attached) : GVM_OK;

    if (status == GVM_OK && count > 0)
        status = gvm_table_acquire(attached->table, columns, count, &no_hint, wait_ms, data);
    if (status != GVM_OK)
        return status;
    l.count = count;
    if (deleted) {
        status = gvm_object_acquire(attached->deleted, GVM_LEASE_READ, &no_hint, wait_ms, &l.deleted);
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
