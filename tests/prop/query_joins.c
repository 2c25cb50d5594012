/* Random joins on a device, checked against nested loops on the CPU.
 *
 *     query_joins [CASES [SEED]]
 *
 * Goal: hash tables that query_join builds have each row once, and a program with joins of any kinds gives what nested loops over the same tables
 * give: rows multiply, are missing or stay, as the kinds say, with conditions before and behind each join. Method: tables of small integers, many of
 * them equal or NULL, some rows deleted; one to eight joins by one or two keys of any table before; groups with their counts, sums and least values,
 * marks, the rows' numbers, or an ordered list. Hash tables have few free slots, so that probes go far and around the end. Case i of a seed is case 0 of the seed + i.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "query/kernels.h"
#include "query/search.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/query_join_checks.h"

#define CASES 1500u
#define COLUMNS 4u /* of a table */
#define ROWS_MAX 400u
#define MATCHES_MAX 100000u
#define APPENDED_MAX 20000u
#define STATE_WORDS 4u /* rows; a sum; the least */
#define KEYS_MAX 2u
#define GROUPS_MAX 4096u
#define MEMORY_BYTES (16u << 20)

extern const unsigned char gvmi_image_soft_query_kernels[];
extern const unsigned char *const gvmi_image_cuda_query_kernels;
extern const unsigned char gvmi_image_soft_query_joined[];
extern const unsigned char *const gvmi_image_cuda_query_joined;

typedef struct column {
    int64_t values[ROWS_MAX];
    bool is_null[ROWS_MAX];
    uint32_t form;
} column;

typedef struct table {
    uint32_t rows;
    bool dead[ROWS_MAX];
    column columns[COLUMNS];
} table;

typedef struct place {
    uint32_t table, column;
} place;

/* One is at least the other; is NULL where either is. */
typedef struct condition {
    bool is_there;
    place one, other;
} condition;

typedef struct join {
    uint32_t kind, key_count;
    place outer_keys[KEYS_MAX];
    uint32_t inner_keys[KEYS_MAX];
    condition own;  /* of the inner table alone, as table 0 */
    condition pair; /* not of inner joins: what is a match */
    condition after;
} join;

typedef struct group {
    uint64_t keys[KEYS_MAX], nulls, state[STATE_WORDS];
} group;

/* ---- the case, and what nested loops make of it */

static table tables[GQUERY_TABLES_MAX];
static join joins[GQUERY_JOINS_MAX];
static uint32_t join_count, key_count;
static place keys[KEYS_MAX], value;
static condition first;
static bool is_marked, is_appended, is_listed;
static group expected[GROUPS_MAX];
static uint32_t expected_count, matches;
static bool marked[ROWS_MAX];
static uint32_t row[GQUERY_TABLES_MAX];                    /* of each table, or GQUERY_NO_ROW */
static uint64_t appended[APPENDED_MAX][GQUERY_TABLES_MAX]; /* the same of all rows */
static int64_t listed[APPENDED_MAX][KEYS_MAX];             /* and their keys */

static uint64_t state, seed, kinds_run[GQUERY_JOIN_KINDS], pairs_run[GQUERY_JOIN_KINDS], multiplied,
    marks_run, appends_run, lists_run, long_chains, chained;
static char problem[256];

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static bool is_null(place p)
{
    return row[p.table] == GQUERY_NO_ROW || tables[p.table].columns[p.column].is_null[row[p.table]];
}

static int64_t value_of(place p)
{
    return is_null(p) ? 0 : tables[p.table].columns[p.column].values[row[p.table]];
}

static bool is_met(const condition *c)
{
    return !c->is_there ||
           (!is_null(c->one) && !is_null(c->other) && value_of(c->one) >= value_of(c->other));
}

static bool is_match(const join *j, uint32_t t)
{
    const condition own = {j->own.is_there, {t, j->own.one.column}, {t, j->own.other.column}};

    for (uint32_t k = 0; k < j->key_count; k++) {
        const place inner = {t, j->inner_keys[k]};

        if (is_null(j->outer_keys[k]) || is_null(inner) ||
            value_of(j->outer_keys[k]) != value_of(inner))
            return false;
    }
    return is_met(&own) && is_met(&j->pair);
}

static void append_row(void)
{
    for (uint32_t t = 0; t <= join_count && matches < APPENDED_MAX; t++)
        appended[matches][t] = row[t] == GQUERY_NO_ROW ? UINT64_MAX : row[t];
    for (uint32_t k = 0; k < key_count && matches < APPENDED_MAX; k++)
        listed[matches][k] = value_of(keys[k]);
}

static void add_row(void)
{
    group g = {.state = {1, 0, 0, INT64_MAX}};
    group *to = expected;
    const int64_t v = value_of(value);

    marked[row[0]] = true;
    append_row();
    matches++;
    for (uint32_t k = 0; k < key_count; k++) {
        g.nulls |= (uint64_t)is_null(keys[k]) << k;
        g.keys[k] = (uint64_t)value_of(keys[k]);
    }
    while (to < expected + expected_count &&
           (to->nulls != g.nulls || memcmp(to->keys, g.keys, sizeof g.keys) != 0))
        to++;
    if (to == expected + expected_count) {
        *to = g;
        to->state[0] = 0;
        expected_count++;
    }
    to->state[0]++;
    if (is_null(value))
        return;
    to->state[2] += (uint64_t)(v < 0 ? -1 : 0) + ((to->state[1] + (uint64_t)v) < to->state[1]);
    to->state[1] += (uint64_t)v;
    to->state[3] = v < (int64_t)to->state[3] ? (uint64_t)v : to->state[3];
}

/* The rows so far with tables from t on. */
static void join_from(uint32_t t)
{
    const join *j = &joins[t - 1];
    bool found = false;

    if (matches > MATCHES_MAX)
        return;
    if (t > join_count) {
        add_row();
        return;
    }
    for (uint32_t r = 0; r < tables[t].rows; r++) {
        row[t] = r;
        if (tables[t].dead[r] || !is_match(j, t))
            continue;
        found = true;
        if (j->kind >= GQUERY_JOIN_SEMI)
            break;
        if (is_met(&j->after))
            join_from(t + 1);
    }
    row[t] = GQUERY_NO_ROW;
    if (((j->kind == GQUERY_JOIN_LEFT || j->kind == GQUERY_JOIN_ANTI) && !found) ||
        (j->kind == GQUERY_JOIN_SEMI && found))
        if (is_met(&j->after))
            join_from(t + 1);
}

static void evaluate(void)
{
    expected_count = matches = 0;
    memset(marked, 0, sizeof marked);
    for (uint32_t t = 0; t < GQUERY_TABLES_MAX; t++)
        row[t] = GQUERY_NO_ROW;
    for (row[0] = 0; row[0] < tables[0].rows; row[0]++)
        if (!tables[0].dead[row[0]] && is_met(&first))
            join_from(1);
    if (key_count == 0 && expected_count == 0)
        expected[expected_count++] = (group){.state = {0, 0, 0, INT64_MAX}};
}

/* ---- drawing */

static void draw_table(table *t, uint32_t rows_max)
{
    static const uint32_t forms[] = {GQUERY_I64, GQUERY_I32, GQUERY_I16, GQUERY_U8};

    t->rows = draw(12) == 0 ? (uint32_t)draw(2) : 1 + (uint32_t)draw(rows_max);
    for (uint32_t r = 0; r < t->rows; r++)
        t->dead[r] = draw(9) == 0;
    for (uint32_t c = 0; c < COLUMNS; c++) {
        const uint64_t range = 1 + draw(join_count > 3 ? 3 : draw(3) == 0 ? 60 : 12);
        const bool has_nulls = draw(2) == 0;
        int64_t least;

        t->columns[c].form = forms[draw(4)];
        least = t->columns[c].form == GQUERY_U8 ? 0
                : range > 3                     ? -3
                                                : 1 - (int64_t)range; /* 0 is in all */
        for (uint32_t r = 0; r < t->rows; r++) {
            t->columns[c].values[r] = least + (int64_t)draw(range);
            t->columns[c].is_null[r] = has_nulls && draw(7) == 0;
        }
    }
}

static bool has_columns(uint32_t t)
{
    return t == 0 || joins[t - 1].kind <= GQUERY_JOIN_LEFT;
}

/* Of a table that has been joined before `limit`. */
static place draw_place(uint32_t limit)
{
    uint32_t t = (uint32_t)draw(limit);

    while (!has_columns(t))
        t--;
    return (place){t, (uint32_t)draw(COLUMNS)};
}

static condition draw_condition(uint32_t limit)
{
    return (condition){draw(5) == 0, draw_place(limit), draw_place(limit)};
}

static void draw_join(uint32_t t)
{
    join *j = &joins[t - 1];

    memset(j, 0, sizeof *j);
    j->kind = (uint32_t)(is_marked     ? GQUERY_JOIN_SEMI + draw(2)
                         : draw(3) > 0 ? draw(2)
                                       : draw(GQUERY_JOIN_KINDS));
    j->key_count = 1 + (uint32_t)(draw(3) == 0);
    for (uint32_t k = 0; k < j->key_count; k++) {
        j->outer_keys[k] = draw_place(t);
        j->inner_keys[k] = (uint32_t)draw(COLUMNS);
    }
    j->own = draw_condition(1);
    if (j->kind <= GQUERY_JOIN_LEFT)
        j->after = draw_condition(t + 1);
    if (j->kind != GQUERY_JOIN_INNER && draw(2) == 0) {
        const place outer = draw_place(t), inner = {t, (uint32_t)draw(COLUMNS)};

        j->pair = draw(2) == 0 ? (condition){true, outer, inner} : (condition){true, inner, outer};
    }
}

static void draw_case(void)
{
    join_count = draw(6) == 0 ? 1 + (uint32_t)draw(GQUERY_JOINS_MAX) : 1 + (uint32_t)draw(3);
    is_marked = draw(8) == 0;
    is_appended = !is_marked && draw(4) == 0;
    is_listed = !is_marked && !is_appended && draw(4) == 0;
    draw_table(&tables[0], ROWS_MAX);
    for (uint32_t t = 1; t <= join_count; t++) {
        draw_table(&tables[t], join_count > 3 ? 8 : 60);
        draw_join(t);
    }
    first = draw_condition(1);
    key_count = is_marked || is_appended ? 0
                : is_listed              ? 1 + (uint32_t)draw(KEYS_MAX)
                                         : (uint32_t)draw(KEYS_MAX + 1ull);
    for (uint32_t k = 0; k < KEYS_MAX; k++)
        keys[k] = draw_place(join_count + 1);
    value = draw_place(join_count + 1);
}

/* ---- programs */

static void emit(gquery_program *p, gquery_op op, uint32_t a, uint32_t b, uint64_t v)
{
    p->code[p->code_count++] = (gquery_instruction){
        .op = (uint16_t)op, .b = (uint16_t)b, .a = a, .value = v};
}

/* from: the table that is 0 in the program. */
static void emit_load(gquery_program *p, place at, uint32_t from)
{
    uint32_t i = 0;

    while (i < p->column_count && (p->columns[i].table != at.table || p->columns[i].number != at.column))
        i++;
    if (i == p->column_count)
        p->columns[p->column_count++] = (gquery_column){
            .table = at.table,
            .number = at.column,
            .form = tables[from + at.table].columns[at.column].form};
    emit(p, GQUERY_LOAD, i, 0, 0);
}

static void emit_comparison(gquery_program *p, const condition *c, uint32_t from)
{
    emit_load(p, c->one, from);
    emit_load(p, c->other, from);
    emit(p, GQUERY_GE, 0, GQUERY_ORDER_I64, 0);
}

static void emit_condition(gquery_program *p, const condition *c, uint32_t from)
{
    if (!c->is_there)
        return;
    emit_comparison(p, c, from);
    emit(p, GQUERY_FILTER, 0, 0, 0);
}

static void emit_build(gquery_program *p, uint32_t t)
{
    const join *j = &joins[t - 1];

    memset(p, 0, sizeof *p);
    emit_condition(p, &j->own, t);
    for (uint32_t k = 0; k < j->key_count; k++)
        emit_load(p, (place){0, j->inner_keys[k]}, t);
    emit(p, GQUERY_BUILD, j->key_count, 0, 0);
}

/* A list has no NULLs. */
static void emit_list(gquery_program *p)
{
    for (uint32_t k = 0; k < key_count; k++) {
        emit_load(p, keys[k], 0);
        emit(p, GQUERY_COPY, 0, 0, 0);
        emit(p, GQUERY_IS_NULL, 0, 0, 0);
        emit(p, GQUERY_IF, 0, 0, 0);
        emit(p, GQUERY_CONSTANT, 0, 0, 0);
        emit(p, GQUERY_REPLACE, 0, 0, 0);
        emit(p, GQUERY_END, 0, 0, 0);
    }
    emit(p, GQUERY_EMIT, key_count, 0, 0);
}

static void emit_whole(gquery_program *p)
{
    memset(p, 0, sizeof *p);
    emit_condition(p, &first, 0);
    for (uint32_t t = 1; t <= join_count; t++) {
        const join *j = &joins[t - 1];
        const uint32_t kind = j->kind | (j->pair.is_there ? GQUERY_JOIN_CONDITION : 0);

        for (uint32_t k = 0; k < j->key_count; k++)
            emit_load(p, j->outer_keys[k], 0);
        emit(p, GQUERY_PROBE, t, j->key_count, kind);
        if (j->pair.is_there) {
            emit_comparison(p, &j->pair, 0);
            emit(p, GQUERY_MATCH, t, 0, kind);
        }
        emit_condition(p, &j->after, 0);
    }
    if (is_marked || is_appended) {
        emit(p, is_marked ? GQUERY_MARK : GQUERY_APPEND, 0, 0, 0);
        return;
    }
    if (is_listed) {
        emit_list(p);
        return;
    }
    for (uint32_t k = 0; k < key_count; k++)
        emit_load(p, keys[k], 0);
    if (key_count > 0)
        emit(p, GQUERY_GROUP, key_count, 0, 0);
    emit(p, GQUERY_AGGREGATE, 0, GQUERY_COUNT_ROWS, 0);
    emit_load(p, value, 0);
    emit(p, GQUERY_COPY, 0, 0, 0);
    emit(p, GQUERY_AGGREGATE, 1, GQUERY_SUM_I64, 0);
    emit(p, GQUERY_AGGREGATE, 3, GQUERY_MIN_I64, 0);
    p->state_words = STATE_WORDS;
}

/* ---- the device */

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUfunction begin, reduce, collect, scan_joined;
static gvm_buffer *memory;
static uint64_t next_free;

static bool open_device(void)
{
    CUmodule kernels, joined;

    if (!device_open_with_kernels(gvmi_image_soft_query_kernels, gvmi_image_cuda_query_kernels,
                                  &device, &info, &kernels))
        return false;
    if (kernels == NULL)
        return true;
    return gvmi_cu->cuModuleLoadData(&joined, info.software
                                                  ? gvmi_image_soft_query_joined
                                                  : gvmi_image_cuda_query_joined) == CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(&begin, kernels, "query_begin") == CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(&reduce, kernels, "query_reduce") == CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(&collect, kernels, "query_collect") == CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(&scan_joined, joined, "query_join") == CUDA_SUCCESS &&
           gvm_buffer_create(device, MEMORY_BYTES, NULL, &memory) == GVM_OK &&
           gvm_buffer_commit(memory, 0, MEMORY_BYTES) == GVM_OK;
}

/* data NULL: zeros. */
static uint64_t put(const void *data, uint64_t bytes)
{
    const uint64_t at = next_free;

    next_free += (bytes + 63) / 32 * 32;
    if (next_free > gvmi_address(gvm_buffer_address(memory)) + MEMORY_BYTES)
        tap_bail_out("a case needs more memory");
    if ((data == NULL ? gvmi_cu->cuMemsetD8(at, 0, bytes + 1)
                      : gvmi_cu->cuMemcpyHtoD(at, data, bytes)) != CUDA_SUCCESS)
        tap_bail_out("memory of the device cannot be written");
    return at;
}

static void take(void *to, uint64_t from, uint64_t bytes)
{
    if (gvmi_cu->cuMemcpyDtoH(to, from, bytes) != CUDA_SUCCESS)
        tap_bail_out("a kernel has failed");
}

static void launch(CUfunction kernel, uint32_t blocks, uint32_t threads, uint64_t shared, void *params)
{
    void *arguments[] = {params};

    if (gvmi_cu->cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, (unsigned)shared, NULL,
                                arguments, NULL) != CUDA_SUCCESS)
        tap_bail_out("cuLaunchKernel fails");
}

static uint64_t put_bits(const bool *bits, uint32_t count)
{
    uint8_t bytes[ROWS_MAX / 8 + 1] = {0};

    for (uint32_t i = 0; i < count; i++)
        bytes[i / 8] = (uint8_t)(bytes[i / 8] | bits[i] << i % 8);
    return put(bytes, (count + 7) / 8);
}

static gquery_source put_column(const column *c, uint32_t rows)
{
    const uint32_t width = c->form == GQUERY_I64   ? 8
                           : c->form == GQUERY_I32 ? 4
                           : c->form == GQUERY_I16 ? 2
                                                   : 1;
    uint8_t bytes[ROWS_MAX * 8] = {0};
    bool valid[ROWS_MAX];

    for (uint32_t r = 0; r < rows; r++) { /* little-endian */
        memcpy(bytes + r * width, &c->values[r], width);
        valid[r] = !c->is_null[r];
    }
    return gquery_source_at(&(gquery_column){.form = c->form}, put(bytes, (uint64_t)rows * width),
                            put_bits(valid, rows));
}

/* Of a checked program over tables from `from` on. */
static gquery_scan describe(const gquery_program *program, const gquery_shape *shape, uint32_t from)
{
    gquery_scan scan = {.limit = tables[from].rows,
                        .error = put(NULL, 8),
                        .depth = shape->depth + shape->joins,
                        .state_words = program->state_words,
                        .keys = shape->keys};
    gquery_program fused = *program;

    for (uint32_t i = 0; i < program->column_count; i++) {
        const table *t = &tables[from + program->columns[i].table];

        scan.sources[i] = put_column(&t->columns[program->columns[i].number], t->rows);
        scan.sources[i].table = program->columns[i].table;
    }
    scan.tests = gquery_fuse(&fused);
    scan.program = put(&fused, sizeof fused);
    scan.dead = put_bits(tables[from].dead, tables[from].rows);
    scan.dead_rows = tables[from].rows;
    gquery_set_resumes(&fused, scan.hashes);
    return scan;
}

static uint32_t draw_threads(const gquery_scan *scan)
{
    const uint32_t warp = (uint32_t)info.warp_size;
    uint32_t most = (uint32_t)info.block_threads_max < GQUERY_THREADS ? (uint32_t)info.block_threads_max
                                                                      : GQUERY_THREADS;

    while (most > warp && gquery_shared_bytes(scan, most) > 48u << 10)
        most -= warp;
    return warp * (1 + (uint32_t)draw(most / warp));
}

static void launch_scan(gquery_scan *scan, uint32_t blocks)
{
    const uint32_t threads = draw_threads(scan);

    launch(scan_joined, blocks, threads, gquery_shared_bytes(scan, threads), scan);
}

/* ---- hash tables */

/* Each row that nested loops would find is in the chain of its keys, once. */
static bool check_hash(const gquery_build *b, uint32_t t)
{
    static uint64_t slots[(ROWS_MAX * 2 + 2) * (1 + KEYS_MAX)];
    static uint32_t next[ROWS_MAX];
    const join *j = &joins[t - 1];
    const uint32_t words = 1 + j->key_count;
    uint32_t entered = 0, firsts = 0;

    take(slots, b->hash.slots, b->hash.count * words * 8);
    take(next, b->hash.next, tables[t].rows * 4);
    for (uint64_t s = 0; s < b->hash.count; s++) {
        firsts += slots[s * words] != 0;
        for (uint32_t r = slots[s * words] == 0 ? GQUERY_NO_ROW : (uint32_t)(slots[s * words] >> 32);
             r != GQUERY_NO_ROW; r = next[r]) {
            if (r >= tables[t].rows || tables[t].dead[r] || ++entered > tables[t].rows)
                return WRONG("a chain of table %u has row %u", t, r);
            for (uint32_t k = 0; k < j->key_count; k++)
                if (tables[t].columns[j->inner_keys[k]].is_null[r] ||
                    (uint64_t)tables[t].columns[j->inner_keys[k]].values[r] != slots[s * words + 1 + k])
                    return WRONG("row %u of table %u is in the chain of other keys", r, t);
        }
    }
    chained += entered > firsts;
    return (entered == b->rows && b->repeated == entered - firsts) ||
           WRONG("table %u has %u rows in %u chains, %llu counted, %llu repeated", t, entered,
                 firsts, (unsigned long long)b->rows, (unsigned long long)b->repeated);
}

static bool build(uint32_t t, gquery_hash *out)
{
    static gquery_program program;
    gquery_build b = {.rows = 0};
    gquery_shape shape;
    gquery_scan scan;
    char text[128];

    emit_build(&program, t);
    if (!gquery_check(&program, &shape, text) || !shape.built)
        return WRONG("the program of table %u is refused: %s", t, text);
    scan = describe(&program, &shape, t);
    scan.build = put(&b, sizeof b);
    launch_scan(&scan, 1 + (uint32_t)draw(4));
    take(&b, scan.build, sizeof b);
    if (b.rows == 0)
        return true;
    b.hash.count = draw(3) == 0 ? b.rows : 2 * b.rows;
    b.hash.slots = put(NULL, b.hash.count * (1ull + shape.keys) * 8);
    b.hash.next = put(NULL, tables[t].rows * 4);
    scan.build = put(&b, sizeof b);
    launch_scan(&scan, 1 + (uint32_t)draw(4));
    take(&b, scan.build, sizeof b);
    *out = b.hash;
    if (b.repeated == 0)
        out->next = 0;
    return check_hash(&b, t);
}

/* ---- results */

static bool is_expected(const uint64_t *record)
{
    for (uint32_t i = 0; i < expected_count; i++) {
        const group *g = &expected[i];

        if (g->nulls == record[0] && memcmp(g->keys, record + 1, key_count * 8) == 0)
            return memcmp(g->state, record + 1 + key_count, sizeof g->state) == 0 ||
                   WRONG("a group has %llu rows and not %llu, or other values",
                         (unsigned long long)record[1 + key_count], (unsigned long long)g->state[0]);
    }
    return WRONG("a group is none of the expected ones");
}

static bool check_groups(gquery_scan *scan)
{
    static uint64_t records[GROUPS_MAX * (1 + KEYS_MAX + STATE_WORDS)];
    const uint32_t words = 1 + key_count + STATE_WORDS;
    gquery_groups groups = {.mask = 2 * GROUPS_MAX - 1, .max = GROUPS_MAX, .slot_words = words};
    gquery_begin b = {.program = scan->program, .keys = key_count, .state_words = STATE_WORDS};
    gquery_collect c = {.group_pitch = words, .word_pitch = 1, .slot_words = words, .keys = key_count};
    uint64_t count;

    groups.slots = put(NULL, 2 * GROUPS_MAX * words * 8);
    scan->groups = b.groups = c.groups = put(&groups, sizeof groups);
    c.collected = put(NULL, 8);
    c.out = put(NULL, (expected_count + 1ull) * words * 8);
    launch(begin, 2, (uint32_t)info.warp_size, 0, &b);
    launch_scan(scan, 1 + (uint32_t)draw(4));
    take(&groups, scan->groups, sizeof groups);
    if (groups.count != expected_count)
        return WRONG("%llu groups and not %u", (unsigned long long)groups.count, expected_count);
    launch(collect, 2, (uint32_t)info.warp_size, 0, &c);
    take(&count, c.collected, 8);
    take(records, c.out, count * words * 8);
    for (uint64_t i = 0; i < count; i++)
        if (!is_expected(records + i * words))
            return false;
    return true;
}

static bool check_state(gquery_scan *scan)
{
    const uint32_t blocks = 1 + (uint32_t)draw(4);
    uint64_t record[1 + STATE_WORDS] = {0};
    gquery_begin b = {.program = scan->program, .count = blocks, .state_words = STATE_WORDS};
    gquery_reduce r = {
        .program = scan->program, .error = scan->error, .blocks = blocks, .state_words = STATE_WORDS};

    scan->partial = b.partial = r.partial = put(NULL, blocks * STATE_WORDS * 8);
    launch(begin, 2, (uint32_t)info.warp_size, 0, &b);
    launch_scan(scan, blocks);
    launch(reduce, 1, (uint32_t)info.warp_size, 0, &r);
    take(record + 1, scan->partial, STATE_WORDS * 8);
    return is_expected(record);
}

static bool check_marks(gquery_scan *scan)
{
    uint8_t bits[ROWS_MAX / 8 + 8];

    scan->marked = put(NULL, sizeof bits);
    launch_scan(scan, 1 + (uint32_t)draw(4));
    take(bits, scan->marked, (tables[0].rows + 31) / 32 * 4);
    for (uint32_t r = 0; r < tables[0].rows; r++)
        if ((bits[r / 8] >> r % 8 & 1) != marked[r])
            return WRONG("row %u is%s marked", r, marked[r] ? " not" : "");
    return true;
}

static int compare_joined(const void *left, const void *right)
{
    return memcmp(left, right, (join_count + 1ull) * 8);
}

/* Rows of tables that are not loaded may be any of those that match. */
static void hide_unloadable(uint64_t *rows, uint64_t count, uint64_t pitch)
{
    for (uint64_t i = 0; i < count; i++)
        for (uint32_t t = 1; t <= join_count; t++)
            if (!has_columns(t))
                rows[i * pitch + t] = 0;
}

/* Expected rows side by side. */
static void pack_appended(uint64_t *to)
{
    hide_unloadable(appended[0], matches, GQUERY_TABLES_MAX);
    for (uint32_t i = 0; i < matches; i++)
        memcpy(to + i * (join_count + 1ull), appended[i], (join_count + 1ull) * 8);
    qsort(to, matches, (join_count + 1ull) * 8, compare_joined);
}

/* All of them, if there is room; otherwise some, each as often as it is there, and nothing behind the room. */
static bool check_appended_to(gquery_scan *scan, const uint64_t *wanted, uint64_t max, uint64_t stop)
{
    static uint64_t found[(APPENDED_MAX + 1) * GQUERY_TABLES_MAX];
    const uint64_t words = join_count + 1;
    gquery_appended a = {.max = max, .stop = stop, .tables = words};
    uint64_t at = 0, count;

    a.rows = put(NULL, (max + 1) * words * 8);
    scan->appended = put(&a, sizeof a);
    launch_scan(scan, 1 + (uint32_t)draw(4));
    take(&a, scan->appended, sizeof a);
    take(found, a.rows, (max + 1) * words * 8);
    if (stop >= matches ? a.count != matches : a.count <= stop)
        return WRONG("%llu rows and not %u", (unsigned long long)a.count, matches);
    for (uint64_t w = 0; w < words; w++)
        if (found[max * words + w] != 0)
            return WRONG("rows behind the room for %llu", (unsigned long long)max);
    count = a.count < max ? a.count : max;
    hide_unloadable(found, count, words);
    qsort(found, count, words * 8, compare_joined);
    for (uint64_t i = 0; i < count; i++, at++) {
        while (at < matches && compare_joined(wanted + at * words, found + i * words) != 0)
            at++;
        if (at == matches)
            return WRONG("a row is none of the expected ones, or too often there");
    }
    return true;
}

static bool check_appended(gquery_scan *scan)
{
    static uint64_t wanted[APPENDED_MAX * GQUERY_TABLES_MAX];

    if (matches >= APPENDED_MAX)
        return true;
    pack_appended(wanted);
    return check_appended_to(scan, wanted, matches, UINT64_MAX) &&
           check_appended_to(scan, wanted, draw(matches + 1ull), UINT64_MAX) &&
           check_appended_to(scan, wanted, draw(matches + 1ull), draw(matches + 1ull));
}

/* ---- lists: keys, then the rows of all tables; of those that are not loaded -1 */

static int compare_entries(const void *left, const void *right)
{
    const int64_t *l = left, *r = right;

    for (uint32_t w = 0; w < key_count + 1 + join_count; w++)
        if (l[w] != r[w])
            return l[w] < r[w] ? -1 : 1;
    return 0;
}

static void pack_entries(int64_t *to)
{
    int64_t *entry = to;

    for (uint32_t i = 0; i < matches; i++) {
        for (uint32_t k = 0; k < key_count; k++)
            *entry++ = listed[i][k];
        for (uint32_t t = 0; t <= join_count; t++)
            *entry++ = has_columns(t) ? (int64_t)appended[i][t] : -1;
    }
    qsort(to, matches, (key_count + 1ull + join_count) * 8, compare_entries);
}

/* Those behind one of the expected entries, up to another one, as far as there is room. */
static bool check_list(gquery_scan *scan, uint32_t loadable)
{
    static int64_t wanted[APPENDED_MAX * GQUERY_ENTRY_WORDS_MAX],
        found[(APPENDED_MAX + 1) * GQUERY_ENTRY_WORDS_MAX];
    const uint64_t words = key_count + 1 + join_count;
    gquery_list list = {.words = (uint32_t)words, .tables = loadable};
    uint64_t first_wanted = 0, limit = matches, count, at = 0;

    if (matches >= APPENDED_MAX)
        return true;
    pack_entries(wanted);
    list.continued = matches > 0 && draw(2) == 0;
    list.bounded = matches > 0 && draw(2) == 0;
    if (list.continued)
        first_wanted = 1 + draw(matches);
    if (list.bounded)
        limit = 1 + draw(matches);
    memcpy(list.after, wanted + (first_wanted > 0 ? first_wanted - 1 : 0) * words, words * 8);
    memcpy(list.bound, wanted + (limit > 0 ? limit - 1 : 0) * words, words * 8);
    count = limit > first_wanted ? limit - first_wanted : 0;
    list.max = draw(2) == 0 ? count : draw(count + 1);
    list.entries = put(NULL, (list.max + 1) * words * 8);
    scan->list = put(&list, sizeof list);
    launch_scan(scan, 1 + (uint32_t)draw(4));
    take(&list, scan->list, sizeof list);
    take(found, list.entries, (list.max + 1) * words * 8);
    if (list.count != count)
        return WRONG("%llu entries and not %llu", (unsigned long long)list.count,
                     (unsigned long long)count);
    for (uint64_t w = 0; w < words; w++)
        if (found[list.max * words + w] != 0)
            return WRONG("entries behind the room for %llu", (unsigned long long)list.max);
    qsort(found, list.max, words * 8, compare_entries);
    for (uint64_t i = 0; i < list.max; i++, at++) {
        while (at < count &&
               compare_entries(wanted + (first_wanted + at) * words, found + i * words) != 0)
            at++;
        if (at == count)
            return WRONG("an entry is none of the expected ones, or twice there");
    }
    lists_run += count > 0;
    return true;
}

/* ---- cases */

static void count_case(void)
{
    for (uint32_t t = 0; t < join_count; t++) {
        kinds_run[joins[t].kind]++;
        pairs_run[joins[t].kind] += joins[t].pair.is_there && matches > 0;
    }
    multiplied += matches > tables[0].rows;
    marks_run += is_marked;
    appends_run += is_appended && matches > 0;
    long_chains += join_count > 4 && matches > 0;
}

static bool run_case(uint64_t number)
{
    static gquery_program program;
    gquery_hash hashes[GQUERY_JOINS_MAX] = {{0}};
    gquery_shape shape;
    gquery_scan scan;
    char text[128];

    state = number;
    draw_case();
    evaluate();
    if (matches > MATCHES_MAX || expected_count >= GROUPS_MAX / 2)
        return true;
    next_free = gvmi_address(gvm_buffer_address(memory));
    for (uint32_t t = 1; t <= join_count; t++)
        if (!build(t, &hashes[t - 1]))
            return false;
    emit_whole(&program);
    if (!gquery_check(&program, &shape, text))
        return WRONG("the program is refused: %s", text);
    scan = describe(&program, &shape, 0);
    for (uint32_t t = 0; t < join_count; t++) {
        hashes[t].resume = scan.hashes[t].resume;
        hashes[t].matched = scan.hashes[t].matched;
        scan.hashes[t] = hashes[t];
    }
    count_case();
    return is_marked       ? check_marks(&scan)
           : is_appended   ? check_appended(&scan)
           : is_listed     ? check_list(&scan, shape.loadable)
           : key_count > 0 ? check_groups(&scan)
                           : check_state(&scan);
}

static bool run_cases(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!run_case(seed + i)) {
            printf("# case of the seed %llu, %u joins, %u rows: %s\n",
                   (unsigned long long)(seed + i), join_count, tables[0].rows, problem);
            return false;
        }
    printf("# joins: %llu inner, %llu left, %llu semi, %llu anti (%llu, %llu, %llu with a condition); %llu cases with more rows than the table, %llu bitmaps, %llu with appended rows, %llu lists, %llu long chains of joins, "
           "%llu hash tables with chains\n",
           (unsigned long long)kinds_run[0], (unsigned long long)kinds_run[1],
           (unsigned long long)kinds_run[2], (unsigned long long)kinds_run[3],
           (unsigned long long)pairs_run[1], (unsigned long long)pairs_run[2],
           (unsigned long long)pairs_run[3], (unsigned long long)multiplied,
           (unsigned long long)marks_run, (unsigned long long)appends_run,
           (unsigned long long)lists_run, (unsigned long long)long_chains,
           (unsigned long long)chained);
    return true;
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : CASES;

    seed = random_seed(argc > 2 ? argv[2] : NULL);
    printf("# seed %llu\n", (unsigned long long)seed);
    fixture_machine_drawn(seed);
    if (!open_device())
        tap_bail_out("the device cannot be used");
    if (memory == NULL)
        return tap_skip_all("this build has no kernels for this device");
    tap_result(query_joins_are_checked(), "joins_are_accepted_in_their_place");
    tap_result(run_cases(cases), "joins_give_what_nested_loops_give");
    tap_result(cases < 500 || (kinds_run[0] > 0 && pairs_run[1] > 0 && pairs_run[2] > 0 &&
                               pairs_run[3] > 0 && multiplied > 0 && marks_run > 0 &&
                               appends_run > 0 && lists_run > 0 && long_chains > 0 && chained > 0),
               "joins_of_all_kinds_have_run");
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
