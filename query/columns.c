/* See run.h: a query's table. Columns that the program loads, and vectors whose distances it loads, are found by
 * attribute numbers; what kernels will read of them must be there, whatever the query says. */
#include "query/run.h"

#define BRIEF_MS 10 /* for leases that nothing stands against */
#define PIECE_MS 100
/* For the room on the device that others, which move, may leave to hash tables. After that these are read where they are. */
#define HOT_MS 1000
#define NS_PER_MS INT64_C(1000000)

static const uint32_t form_bytes[GQUERY_FORMS] = {0, 1, 2, 4, 4, 8, 4, 8, 16, 16, 16, 8, 8};

static bool is_gathered(const gquery_window *w, uint32_t column)
{
    for (uint32_t i = 0; i < w->gather_count; i++)
        if ((w->gather[i] & ~GQUERY_GATHER_HIGH) == column)
            return true;
    return false;
}

static bool is_in_code(const gquery_program *p, gquery_op op, uint32_t column)
{
    for (uint32_t i = 0; i < p->code_count; i++)
        if (p->code[i].op == op && p->code[i].a == column)
            return true;
    return false;
}

static bool is_loaded(const gquery_program *p, uint32_t column)
{
    return is_in_code(p, GQUERY_LOAD, column);
}

/* Kernels read so many bytes of it as the form says. */
static bool has_form(const gvm_table_column *c, uint32_t form, uint64_t rows)
{
    const uint64_t bytes = form == GQUERY_BIT ? (rows + 7) / 8 : rows * form_bytes[form];

    return c->absent || (c->width == form_bytes[form] && c->values_bytes >= bytes &&
                         (c->length > 0 || c->uniform != 0));
}

/* Where its texts are is in `values`, and as many bytes as the column says are under the leases: kernels read no others. */
static bool has_texts(const gvm_table_column *c, uint32_t form, uint64_t rows)
{
    if (c->absent)
        return true;
    if (form == GQUERY_TEXT_FIXED)
        return c->uniform == GVM_TABLE_BYTES && c->width > 0 && c->values_bytes / c->width >= rows;
    return c->length == -1 && c->uniform == 0 && (c->arrow != NULL) == (form == GQUERY_TEXT_OFFSETS) &&
           (c->arrow == NULL || strcmp(c->arrow, "U") == 0 || strcmp(c->arrow, "Z") == 0) &&
           c->values_bytes >= (rows + (form == GQUERY_TEXT_OFFSETS)) * form_bytes[form];
}

/* Where NULLs are shown by a bitmap alone. */
static bool has_null_bits(const gvm_table_column *c)
{
    return c->absent || c->has_nulls || c->arrow != NULL || c->length > 0 || c->uniform != 0;
}

/* Of the token's table; NULL: there is none of this number. */
static const gvm_table_column *column_of(const gquery_attached *a, uint32_t number, uint32_t *index)
{
    for (*index = 0; *index < a->info.columns; ++*index)
        if (a->columns[*index].number == number)
            return &a->columns[*index];
    return NULL;
}

static bool find_column(gquery_query *q, uint32_t column, uint32_t *index)
{
    const gquery_program *p = &q->c->query.program;
    const gquery_column *wanted = &p->columns[column];
    const gvm_table_column *c = column_of(q->attached, wanted->number, index);

    if (c == NULL || c->base_type != wanted->type)
        return false;
    if (gquery_is_text(wanted->form))
        return has_texts(c, wanted->form, q->attached->info.rows);
    return is_loaded(p, column) || is_gathered(&q->c->query, column)
               ? has_form(c, wanted->form, q->attached->info.rows)
               : has_null_bits(c);
}

static bool find_vectors(gquery_query *q, const gquery_wanted_distance *wanted, uint32_t *index)
{
    const gvm_table_column *c = column_of(q->attached, wanted->number, index);

    return c != NULL && c->base_type == wanted->type && gquery_distance_fits(q, wanted, c);
}

/* What kernels read of it for all rows, by the code: of NULLs that offsets tell, these. */
static uint64_t scanned_bytes(const gquery_program *p, uint32_t column, const gvm_table_column *c)
{
    if (is_loaded(p, column) || is_in_code(p, GQUERY_TEXT, column))
        return c->nulls_bytes + c->values_bytes + c->bodies_bytes;
    if (!is_in_code(p, GQUERY_LOAD_NULL, column))
        return 0;
    return c->nulls_bytes + (p->columns[column].form == GQUERY_TEXT_BODIES ? c->values_bytes : 0);
}

static uint32_t add_to_list(gquery_column_list *l, uint32_t index, uint64_t scanned_bytes)
{
    uint32_t at = 0;

    while (at < l->count && l->list[at] != index)
        at++;
    if (at == l->count)
        l->list[l->count++] = index;
    if (l->scanned_bytes[at] < scanned_bytes)
        l->scanned_bytes[at] = scanned_bytes;
    return at;
}

static bool list_columns(gquery_query *q)
{
    gquery_column_list *l = &q->listed;
    const gquery_window *w = &q->c->query;
    uint32_t number = 0, index;

    for (uint32_t i = 0; i < w->program.column_count; i++) {
        if (w->program.columns[i].table != 0) /* inner.c's, or a distance */
            continue;
        number = w->program.columns[i].number;
        if (!find_column(q, i, &index))
            goto other;
        l->columns[i] = add_to_list(l, index,
                                    scanned_bytes(&w->program, i, &q->attached->columns[index]));
    }
    for (uint32_t i = 0; i < w->distance_count; i++) {
        const gvm_table_column *c;

        number = w->distances[i].number;
        if (!find_vectors(q, &w->distances[i], &index))
            goto other;
        c = &q->attached->columns[index];
        l->vectors[i] = add_to_list(l, index, c->nulls_bytes + c->values_bytes + c->bodies_bytes);
    }
    return true;
other:
    gquery_answer(q->answer, GQUERY_ERROR, "55000",
                  "column %u of the table is not as the query has it", number);
    return false;
}

static void set_sources(gquery_query *q)
{
    const gquery_column_list *l = &q->listed;
    const gquery_window *w = &q->c->query;

    for (uint32_t i = 0; i < w->program.column_count; i++)
        if (w->program.columns[i].table == 0) {
            const gvm_table_data *d = &q->data[l->columns[i]];
            const gvm_table_column *c = &q->attached->columns[l->list[l->columns[i]]];

            q->scan.sources[i] = gquery_source_at(&w->program.columns[i],
                                                  (uint64_t)(uintptr_t)d->values,
                                                  (uint64_t)(uintptr_t)d->nulls);
            q->scan.sources[i].bodies = (uint64_t)(uintptr_t)d->bodies;
            q->scan.sources[i].bytes = w->program.columns[i].form == GQUERY_TEXT_FIXED
                                           ? c->width
                                           : c->bodies_bytes;
        }
    for (uint32_t i = 0; i < w->distance_count; i++) {
        q->vectors[i].launch.values = (uint64_t)(uintptr_t)q->data[l->vectors[i]].values;
        q->vectors[i].nulls = (uint64_t)(uintptr_t)q->data[l->vectors[i]].nulls;
    }
}

static bool check_table(gquery_query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];

    if (q->attached->info.device != q->device->info.ordinal)
        gquery_answer(q->answer, GQUERY_ERROR, "55000", "the table is on another GPU");
    else if (q->attached->info.rows != wanted->rows)
        gquery_answer(q->answer, GQUERY_ERROR, "55000", "the table has other rows than its token");
    else
        return true;
    return false;
}

static bool set_deleted(gquery_query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];
    const gvm_lease *lease = &q->leases.deleted;

    if (wanted->deleted_bytes == 0)
        return true;
    if (wanted->deleted_at % 8 != 0 || wanted->deleted_bytes > lease->size_bytes ||
        wanted->deleted_at > lease->size_bytes - wanted->deleted_bytes)
        return gquery_refuse(q, "the table's bitmap of deleted rows is not where it was");
    q->scan.deleted = (uint64_t)(uintptr_t)lease->address + wanted->deleted_at;
    q->scan.deleted_rows = wanted->deleted_bytes * 8;
    return true;
}

/* What goes through the kernels; of a query that goes on it has been counted. */
static void count_bytes(gquery_query *q)
{
    uint64_t bytes = q->c->query.tables[0].deleted_bytes + q->c->query.tables[0].dead.bytes, host_bytes;

    if (q->c->query.first_row > 0)
        return;
    for (uint32_t i = 0; i < q->listed.count; i++) {
        const uint64_t scanned = q->listed.scanned_bytes[i];

        bytes += scanned;
        if (scanned > 0 &&
            gvm_table_get_host_bytes(q->attached->table, &q->data[i], &host_bytes) == GVM_OK)
            q->cost.host_bytes += host_bytes < scanned ? host_bytes : scanned;
    }
    q->cost.rows += q->c->query.tables[0].rows;
    q->cost.read_bytes += bytes;
}

/* ---- the keeper */

static gvm_status attach_table(gquery_query *q)
{
    return gquery_tables_attach(q->tables, q->c->query.tables[0].token, &q->attached);
}

static gvm_status open_columns(gquery_query *q)
{
    return gquery_tables_open_columns(q->tables, q->attached, q->listed.list, q->listed.count,
                                      q->c->query.tables[0].deleted_bytes > 0);
}

/* Other queries may have open what can be: until one of them ends, as for a turn. */
static gvm_status await_open(gquery_query *q, gvm_status (*open)(gquery_query *))
{
    const int64_t until_ns = gquery_now_ns() + GQUERY_TURN_WAIT_MS * INT64_C(1000000);
    gquery_connection *c = q->c->whole != NULL ? q->c->whole : q->c;
    gvm_status status = open(q);

    while (status == GVM_E_LIMIT && gquery_now_ns() < until_ns && !gquery_is_closed(q->c)) {
        gquery_await_other(q->c);
        gquery_tables_make_room(q->tables, PIECE_MS);
        status = open(q);
    }
    c->crowded = status == GVM_E_LIMIT;
    return status;
}

bool gquery_open_table(gquery_query *q)
{
    const gquery_table *wanted = &q->c->query.tables[0];

    if (wanted->token[0] == '\0')
        return wanted->rows == 0 || q->c->query.batched != 0 ||
               gquery_refuse(q, "rows without a table");
    gquery_await_other(q->c);
    return gquery_succeed(q, await_open(q, attach_table), "cannot attach a table") && check_table(q) &&
           list_columns(q) && gquery_succeed(q, await_open(q, open_columns), "cannot read a table") &&
           !gquery_is_closed(q->c);
}

gvm_status gquery_take_leases(gquery_query *q, int wait_ms)
{
    if (q->attached == NULL)
        return GVM_OK;
    return gquery_leases_take(q->tables, q->attached, q->listed.list, q->listed.count,
                              q->c->query.tables[0].deleted_bytes > 0, wait_ms, q->data, &q->leases);
}

/* Of all tables, or of none. */
static gvm_status take_all_leases(gquery_query *q, gvm_hint hint, int wait_ms)
{
    gvm_status status = gquery_take_leases(q, wait_ms);

    if (status != GVM_OK)
        return status;
    status = gquery_inner_take_leases(q, hint, wait_ms);
    if (status != GVM_OK) {
        gvm_error error;

        gvm_error_last(&error);
        gquery_leases_release(&q->leases);
        gvm_error_restore(&error);
    }
    return status;
}

/* Until they could be taken, in pieces: between them the query shows that it goes on, and ends if its backend is gone. */
static gvm_status await_leases(gquery_query *q, int64_t *left_ns)
{
    const int64_t until_ns = gquery_now_ns() + *left_ns;
    gvm_status status = GVM_E_TIMEOUT;

    while (status == GVM_E_TIMEOUT && *left_ns > 0 && !gquery_is_closed(q->c)) {
        const bool hot = *left_ns > (GQUERY_LEASE_MS - HOT_MS) * NS_PER_MS;

        status = take_all_leases(q, hot ? GVM_HINT_HOT : GVM_HINT_NONE, PIECE_MS);
        *left_ns = until_ns - gquery_now_ns();
    }
    if (status == GVM_OK) {
        gquery_leases_release(&q->leases);
        gquery_inner_release_leases(q);
    }
    return status;
}

/* While it waits for leases it has no lane, which others can use, and while it waits for a lane it has no leases,
 * which keep memory where it is. The time in which it waits for a lane does not count as time for leases. */
static gvm_status take_both(gquery_query *q)
{
    int64_t left_ns = GQUERY_LEASE_MS * NS_PER_MS;
    gvm_hint hint = GVM_HINT_HOT;
    gvm_status status;

    for (;;) {
        status = gquery_lane_take(q->c, &q->lane);
        if (status == GVM_OK)
            status = take_all_leases(q, hint, BRIEF_MS);
        if (status == GVM_OK || q->lane == NULL)
            return status;
        gquery_lane_give(q->lane);
        q->lane = NULL;
        left_ns -= BRIEF_MS * NS_PER_MS;
        if (status == GVM_E_TIMEOUT)
            status = await_leases(q, &left_ns);
        if (status != GVM_OK)
            return status;
        hint = GVM_HINT_NONE; /* what could be moved for it has been */
    }
}

bool gquery_set_sources(gquery_query *q)
{
    if (q->attached == NULL)
        return true;
    set_sources(q);
    count_bytes(q);
    return set_deleted(q);
}

bool gquery_begin_reading(gquery_query *q)
{
    if (!gquery_succeed(q, take_both(q), "cannot read a table"))
        return false;
    gquery_inner_set_sources(q);
    return gquery_set_sources(q);
}
