/* See run.h: tables that a query is joined with, and hash.h: their hash tables.
 *
 * A table's hash table is built by a part of the query: the window's program of that table alone, over its rows. It
 * goes over them twice: to count the rows that are to be entered, and to enter them. The columns that the query
 * itself loads of the table are opened by another part, which runs nothing.
 *
 * Hash tables are found or built before the query has a lane or leases, so that a query that waits for another
 * one's keeps nothing that the other needs. Those that build have both before others wait for them.
 */
#include <stdlib.h>
#include <string.h>

#include "query/hash.h"
#include "query/run.h"

#define WAIT_MS 100
#define SLOTS_EACH 2 /* of a row that is entered */

typedef struct gquery_inner {
    gquery_connection c; /* the query's, with this table alone */
    gquery_query part;
    gquery_hashed *hashed; /* NULL: there is none yet */
    uint64_t lacking; /* bytes for one, that the role's limit does not leave; 0: that was not so */
    gvm_lease lease;  /* mode 0: none */
} gquery_inner;

/* ---- the window */

static const gquery_program *build_of(const gquery_query *q, uint32_t t)
{
    const gquery_span span = q->c->query.builds[t];

    return span.bytes == sizeof(gquery_program) && span.at % GQUERY_ALIGN == 0 ? gquery_at(q->c, span)
                                                                               : NULL;
}

/* The part's program, before anything is run: it may change in the file. */
static bool check_build(gquery_query *q, gquery_inner *inner, uint32_t t)
{
    const gquery_program *program = build_of(q, t);
    gquery_shape shape;
    char problem[128] = "";

    if (program == NULL)
        return gquery_refuse(q, "the program of an inner table is not in the file");
    memcpy(&inner->c.query.program, program, sizeof *program);
    if (!gquery_check(&inner->c.query.program, &shape, problem))
        return gquery_refuse(q, problem);
    if (!shape.built || shape.keys != q->shape.join_keys[t])
        return gquery_refuse(q, "an inner table has other keys than its join");
    for (uint32_t i = 0; i < inner->c.query.program.column_count; i++)
        if (inner->c.query.program.columns[i].table != 0)
            return gquery_refuse(q, "the program of an inner table has a column of something else");
    return true;
}

static bool make_inner(gquery_query *q, uint32_t t)
{
    const gquery_window *w = &q->c->query;
    gquery_inner *inner = calloc(1, sizeof *inner);

    q->inner[t] = inner;
    if (inner == NULL) {
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200", "out of host memory for a join");
        return false;
    }
    inner->c.socket = q->c->socket;
    inner->c.memory = q->c->memory;
    inner->c.file = q->c->file;
    inner->c.file_bytes = q->c->file_bytes;
    inner->c.whole = q->c;
    inner->c.query.table_count = 1;
    inner->c.query.tables[0] = w->tables[1 + t];
    inner->c.query.scratch_bytes_max = w->scratch_bytes_max;
    inner->c.query.first_row = w->first_row;
    return check_build(q, inner, t);
}

bool gquery_inner_check(gquery_query *q)
{
    const gquery_window *w = &q->c->query;

    if (w->table_count != 1 + q->shape.joins)
        return gquery_refuse(q, "there are other tables than those that are joined");
    for (uint32_t t = 0; t < q->shape.joins; t++)
        if (w->tables[1 + t].rows >= GQUERY_NO_ROW) {
            gquery_answer(q->answer, GQUERY_NO_ROOM, "53200", "an inner table has too many rows");
            return false;
        }
    for (uint32_t t = 0; t < q->shape.joins; t++)
        if (!make_inner(q, t)) {
            gquery_inner_close(q);
            return false;
        }
    return true;
}

/* ---- building */

static gquery_query start_part(const gquery_query *q, gquery_inner *inner)
{
    return (gquery_query){.tables = q->tables,
                          .device = q->device,
                          .c = &inner->c,
                          .answer = q->answer,
                          .program = &inner->c.query.program,
                          .rows = inner->c.query.tables[0].rows,
                          .matches = 1};
}

static gvm_status acquire(gvm_object *object, gvm_lease_mode mode, gvm_hint hint, int wait_ms,
                          gvm_lease *lease)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = hint};

    return gvm_object_acquire(object, mode, &options, wait_ms, lease);
}

static gquery_hash describe(const gquery_hashed *h, const gvm_lease *lease)
{
    const uint64_t address = (uint64_t)(uintptr_t)lease->address;

    return (gquery_hash){
        .slots = address, .count = h->slots, .next = h->next_at == 0 ? 0 : address + h->next_at};
}

/* The slots are there, and empty. */
static bool enter_rows(gquery_query *part, gquery_hashed *h)
{
    gquery_build build = {.rows = 0};
    gvm_lease lease;
    bool done;

    gquery_await_other(part->c);
    if (!gquery_succeed(part, acquire(h->object, GVM_LEASE_WRITE, GVM_HINT_HOT, GQUERY_LEASE_MS, &lease),
                        "cannot write a hash table"))
        return false;
    (void)gquery_is_closed(part->c); /* it goes on */
    build.hash = describe(h, &lease);
    done = gquery_run_build(part, &build);
    if (!done)
        (void)gvmi_cu->cuStreamSynchronize(part->lane->stream);
    h->repeated = build.repeated;
    if (h->repeated == 0)
        h->next_at = 0;
    return gquery_succeed(part, gvm_object_release(h->object, &lease), "cannot write a hash table") &&
           done &&
           gquery_succeed(part, gvm_object_seal(h->object, GQUERY_LEASE_MS),
                          "cannot seal a hash table");
}

/* Within the role's limit. */
static bool make_table(const gquery_query *q, gquery_inner *inner, uint64_t slots)
{
    const uint64_t most = q->c->query.hash_bytes_max;

    if (!gquery_hash_charge(inner->hashed, slots, most)) {
        inner->lacking = gquery_hash_size(inner->hashed, slots);
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200",
                      "hash tables of the role's joins would exceed their limit of %llu bytes",
                      (unsigned long long)most);
        return false;
    }
    gquery_await_other(inner->part.c);
    return gquery_succeed(&inner->part,
                          gquery_hash_create(inner->hashed, q->device->info.ordinal, slots),
                          "cannot make a hash table");
}

static bool count_and_enter(const gquery_query *q, gquery_inner *inner)
{
    gquery_query *part = &inner->part;
    gquery_hashed *h = inner->hashed;
    gquery_build build = {.rows = 0};

    if (!gquery_run_build(part, &build))
        return false;
    h->keys = part->shape.keys;
    h->rows = build.rows;
    return h->rows == 0 || (make_table(q, inner, SLOTS_EACH * h->rows) && enter_rows(part, h));
}

static void add_cost(gquery_query *q, const gquery_query *part)
{
    q->cost.rows += part->cost.rows;
    q->cost.read_bytes += part->cost.read_bytes;
    q->cost.host_bytes += part->cost.host_bytes;
    q->cost.kernel_ns += part->cost.kernel_ns;
}

/* It is there then, or another one builds it: then the inner table has none yet. */
static bool add_table(gquery_query *q, gquery_inner *inner, const gquery_hash_key *key)
{
    gquery_query *part = &inner->part;
    const gquery_hash_found found = gquery_hash_add(key, q->c->query.role, &inner->hashed);
    bool done = found != GQUERY_HASH_NO_MEMORY;

    if (found == GQUERY_HASH_NO_MEMORY)
        gquery_answer(q->answer, GQUERY_NO_ROOM, "53200", "out of host memory for a hash table");
    if (found == GQUERY_HASH_TO_BUILD) {
        done = key->rows == 0 || count_and_enter(q, inner);
        add_cost(q, part);
        if (done)
            gquery_hash_ready(inner->hashed);
    }
    return done;
}

/* The lane comes first, as it may be withheld from this query's role, and not from those that wait for the table. */
static bool build(gquery_query *q, gquery_inner *inner, const gquery_hash_key *key)
{
    gquery_query *part = &inner->part;
    char problem[128];
    bool done;

    *part = start_part(q, inner);
    done = gquery_check(&inner->c.query.program, &part->shape, problem) &&
           (key->rows == 0 || gquery_begin_part(part)) && add_table(q, inner, key);
    gquery_end_part(part, done);
    *part = start_part(q, inner); /* without the table */
    return done;
}

/* ---- finding */

static bool find_or_build(gquery_query *q, gquery_inner *inner)
{
    const gquery_table *table = &inner->c.query.tables[0];
    const gquery_hash_key key = {.store = table->store,
                                 .version = table->version,
                                 .rows = table->rows,
                                 .program = &inner->c.query.program};
    gquery_hash_found found;

    do {
        found = gquery_hash_find(&key, WAIT_MS, &inner->hashed);
        if (found == GQUERY_HASH_ABSENT && !build(q, inner, &key))
            return false;
    } while (inner->hashed == NULL && !gquery_is_closed(q->c));
    return inner->hashed != NULL;
}

/* ---- columns */

static bool is_read(const gquery_instruction *i)
{
    return i->op == GQUERY_LOAD || i->op == GQUERY_LOAD_NULL || i->op == GQUERY_TEXT;
}

/* Reads the columns that the query's program has of the table, in their order, and gathers those that the query does. */
static void list_columns(const gquery_window *w, uint32_t t, gquery_window *part)
{
    const gquery_program *whole = &w->program;
    gquery_program *out = &part->program;
    uint32_t places[GQUERY_COLUMNS_MAX];

    out->column_count = out->code_count = part->gather_count = 0;
    for (uint32_t i = 0; i < whole->column_count; i++)
        if (whole->columns[i].table == 1 + t) {
            places[i] = out->column_count;
            out->columns[out->column_count] = whole->columns[i];
            out->columns[out->column_count++].table = 0;
        }
    for (uint32_t i = 0; i < whole->code_count; i++)
        if (is_read(&whole->code[i]) && whole->columns[whole->code[i].a].table == 1 + t) {
            out->code[out->code_count] = whole->code[i];
            out->code[out->code_count++].a = places[whole->code[i].a];
        }
    for (uint32_t i = 0; i < w->gather_count; i++) {
        const uint32_t column = w->gather[i] & ~GQUERY_GATHER_HIGH;

        if ((column & GQUERY_GATHER_ROW) == 0 && whole->columns[column].table == 1 + t)
            part->gather[part->gather_count++] = places[column];
    }
}

/* Those of deleted rows are not in the hash table. */
static bool open_columns(gquery_query *q, gquery_inner *inner, uint32_t t)
{
    list_columns(&q->c->query, t, &inner->c.query);
    if (inner->c.query.program.column_count == 0)
        return true;
    inner->part = start_part(q, inner);
    inner->c.query.tables[0].deleted_bytes = 0;
    return gquery_open_table(&inner->part);
}

static void set_sources(gquery_query *q, gquery_inner *inner, uint32_t t)
{
    const gquery_program *whole = &q->c->query.program;
    uint32_t at = 0;

    (void)gquery_set_sources(&inner->part); /* it has no deleted rows that could be refused */
    q->cost.read_bytes += inner->part.cost.read_bytes;
    q->cost.host_bytes += inner->part.cost.host_bytes;
    for (uint32_t i = 0; i < whole->column_count; i++)
        if (whole->columns[i].table == 1 + t) {
            q->scan.sources[i] = inner->part.scan.sources[at++];
            q->scan.sources[i].table = 1 + t;
        }
}

/* ---- the whole */

static bool open_all(gquery_query *q)
{
    q->matches = q->matches_most = 1;
    for (uint32_t t = 0; t < q->shape.joins; t++) {
        const gquery_hashed *h;

        if (!find_or_build(q, q->inner[t]) || !open_columns(q, q->inner[t], t))
            return false;
        h = q->inner[t]->hashed;
        if (h->repeated > 0)
            q->matches *= (double)h->rows / (double)(h->rows - h->repeated);
        q->matches_most *= (double)h->repeated + 1;
    }
    return true;
}

/* Whether what others of the role use is all that leaves no room for a hash table. */
static bool is_crowded_out(const gquery_query *q)
{
    const gquery_window *w = &q->c->query;
    uint64_t lacking = 0, own = 0;

    for (uint32_t t = 0; t < q->shape.joins; t++) {
        const gquery_hashed *h = q->inner[t]->hashed;

        lacking += q->inner[t]->lacking;
        own += h != NULL && h->role == w->role ? h->bytes : 0;
    }
    return lacking > 0 && own + lacking <= w->hash_bytes_max;
}

/* A query of which rows were returned waits for room: it cannot be done otherwise any more. Meanwhile it has no hash table, so of two that
 * wait one goes on. */
bool gquery_inner_open(gquery_query *q)
{
    while (!open_all(q)) {
        if (!gquery_goes_on(q->c) || !is_crowded_out(q))
            return false;
        gquery_inner_close(q);
        gquery_hash_await(WAIT_MS);
        if (gquery_is_closed(q->c) || !gquery_inner_check(q))
            return false;
        q->answer->verb = GQUERY_DONE;
    }
    return true;
}

gvm_status gquery_inner_take_leases(gquery_query *q, gvm_hint hint, int wait_ms)
{
    gvm_status status = GVM_OK;

    for (uint32_t t = 0; t < q->shape.joins && status == GVM_OK; t++) {
        gquery_inner *inner = q->inner[t];

        if (inner->hashed->object != NULL)
            status = acquire(inner->hashed->object, GVM_LEASE_READ, hint, wait_ms, &inner->lease);
        if (status == GVM_OK)
            status = gquery_take_leases(&inner->part, wait_ms);
    }
    if (status != GVM_OK) {
        gvm_error error;

        gvm_error_last(&error);
        gquery_inner_release_leases(q);
        gvm_error_restore(&error);
    }
    return status;
}

void gquery_inner_release_leases(gquery_query *q)
{
    for (uint32_t t = 0; t < GQUERY_JOINS_MAX && q->inner[t] != NULL; t++) {
        gquery_inner *inner = q->inner[t];

        gquery_leases_release(&inner->part.leases);
        if (inner->lease.mode != 0)
            (void)gvm_object_release(inner->hashed->object, &inner->lease);
        inner->lease = (gvm_lease){0};
    }
}

static void count_host_bytes(gquery_query *q, const gquery_inner *inner)
{
    uint64_t bytes;

    if (q->c->query.first_row == 0 &&
        gvm_object_get_host_bytes(inner->hashed->object, &inner->lease, inner->lease.size_bytes,
                                  &bytes) == GVM_OK)
        q->cost.host_bytes += bytes;
}

void gquery_inner_set_sources(gquery_query *q)
{
    for (uint32_t t = 0; t < q->shape.joins; t++) {
        gquery_inner *inner = q->inner[t];

        if (inner->hashed->object != NULL) {
            q->scan.hashes[t] = describe(inner->hashed, &inner->lease);
            count_host_bytes(q, inner);
        }
        set_sources(q, inner, t);
    }
}

void gquery_inner_close(gquery_query *q)
{
    gquery_inner_release_leases(q);
    for (uint32_t t = 0; t < GQUERY_JOINS_MAX && q->inner[t] != NULL; t++) {
        gquery_inner *inner = q->inner[t];

        gquery_tables_release(q->tables, inner->part.attached);
        if (inner->hashed != NULL)
            gquery_hash_release(inner->hashed);
        free(inner);
        q->inner[t] = NULL;
    }
}
