/* The molecules most like a given one, found by the GPU in a table of a PostgreSQL server, by a process
 * that is not the server and copies no table.
 *
 * The table has columns id integer, name text, smiles text and signature smallint[] (64 of them: a
 * fingerprint of 1024 bits). Two molecules are as similar as their fingerprints by Tanimoto's measure:
 * bits set in both, divided by bits set in either. The kernel (similarity_kernel.c) counts both for every
 * row; this program sorts, and fetches the names of the best.
 *
 *     similarity "$(psql -Atc "SELECT gstore_export('molecules')")" ID [COUNT]
 */
#include <inttypes.h>

#include "launch.h"

#define WORDS 16
#define ARRAY_HEAD_BYTES 20 /* of an array, before its elements */
#define NOTHING UINT32_MAX
#define TEXT_BYTES_MAX 4096

/* The same in similarity_kernel.c. */
typedef struct similarity_params {
    uint64_t values, bodies, bodies_bytes;
    uint64_t rows;
    uint64_t query[WORDS];
    uint64_t results;
} similarity_params;

typedef struct result {
    uint32_t both, either;
} result;

typedef struct match {
    result score;
    int32_t id;
    uint64_t row;
} match;

enum { ID, NAME, SMILES, SIGNATURE, COLUMNS };

typedef struct molecules {
    gvm_table *table;
    gvm_table_info info;
    uint32_t indexes[COLUMNS];
    gvm_table_column columns[COLUMNS];
    gvm_table_data data[COLUMNS];
} molecules;

static void attach(molecules *m, const char *token)
{
    static const char *const names[] = {"id", "name", "smiles", "signature"};
    static const uint32_t types[] = {23, 25, 25, 1005}; /* int4, text, text, int2[] */

    must(gvm_table_attach(token, 0, &m->table), "cannot attach the table");
    m->info.struct_size = sizeof m->info;
    must(gvm_table_get_info(m->table, &m->info), "cannot ask about the table");
    for (int i = 0; i < COLUMNS; i++) {
        gvm_table_column *c = &m->columns[i];

        must(gvm_table_find_column(m->table, names[i], &m->indexes[i]), "that is not the table wanted");
        c->struct_size = sizeof *c;
        must(gvm_table_get_column(m->table, m->indexes[i], c), "cannot ask about a column");
        if (c->type != types[i] || c->compressed || c->absent)
            give_up("a column has another type, or is compressed");
    }
}

static void copy_out(void *to, const void *from, uint64_t at, uint64_t bytes)
{
    must_cu(cu.copy_out(to, (uintptr_t)from + at, bytes), "cuMemcpyDtoH");
}

/* A value of variable length, without its header of 4 bytes. Returns its length; 0 for NULL, too. */
static uint64_t fetch_body(const molecules *m, int column, uint64_t row, void *body, uint64_t room)
{
    const gvm_table_data *d = &m->data[column];
    const uint64_t end = m->columns[column].bodies_bytes;
    uint64_t at, len;
    uint32_t head;

    copy_out(&at, d->values, row * sizeof at, sizeof at);
    if (at == 0)
        return 0;
    if (at > end || end - at < sizeof head)
        give_up("a value lies beyond its column");
    copy_out(&head, d->bodies, at, sizeof head);
    len = head / 4;
    if (len < sizeof head || len > end - at || len - sizeof head > room)
        give_up("a value is malformed or too long");
    copy_out(body, d->bodies, at + sizeof head, len - sizeof head);
    return len - sizeof head;
}

static const char *fetch_text(const molecules *m, int column, uint64_t row, char text[TEXT_BYTES_MAX])
{
    text[fetch_body(m, column, row, text, TEXT_BYTES_MAX - 1)] = '\0';
    return text;
}

static void fetch_query(const molecules *m, const int32_t *ids, int32_t id, uint64_t query[WORDS])
{
    uint8_t array[ARRAY_HEAD_BYTES + 8 * WORDS];
    uint64_t row = 0;

    while (row < m->info.rows && ids[row] != id)
        row++;
    if (row == m->info.rows)
        give_up("there is no molecule of that id");
    if (fetch_body(m, SIGNATURE, row, array, sizeof array) != sizeof array)
        give_up("the molecule's signature is not of 64 smallint");
    memcpy(query, array + ARRAY_HEAD_BYTES, 8 * WORDS);
}

static void search(const molecules *m, gvm_device *device, const uint64_t query[WORDS], result *results)
{
    const uint64_t bytes = m->info.rows * sizeof *results;
    similarity_params params = {.values = (uintptr_t)m->data[SIGNATURE].values,
                                .bodies = (uintptr_t)m->data[SIGNATURE].bodies,
                                .bodies_bytes = m->columns[SIGNATURE].bodies_bytes,
                                .rows = m->info.rows};
    kernel similarity = load_kernel(device, "similarity_kernel", "similarity");
    void *memory;

    must(gvm_alloc(device, bytes, &memory), "cannot get memory for results");
    memcpy(params.query, query, sizeof params.query);
    params.results = (uintptr_t)memory;
    run_kernel(device, &similarity, &params);
    copy_out(results, memory, 0, bytes);
    must(gvm_free(memory), "cannot free the results");
    unload_kernel(&similarity);
}

static double score_of(result r)
{
    return r.either > 0 ? (double)r.both / r.either : 0;
}

/* The best first; those as good by id. */
static int compare(const void *left, const void *right)
{
    const match *a = left, *b = right;
    const double x = score_of(a->score), y = score_of(b->score);

    if (x != y)
        return x < y ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

static void print_best(const molecules *m, match *all, uint64_t found, uint64_t count)
{
    char name[TEXT_BYTES_MAX], smiles[TEXT_BYTES_MAX];

    qsort(all, found, sizeof *all, compare);
    for (uint64_t i = 0; i < found && i < count; i++)
        printf("%.6f  %3" PRIu32 "/%-3" PRIu32 "  %-8s  %s\n", score_of(all[i].score),
               all[i].score.both, all[i].score.either, fetch_text(m, NAME, all[i].row, name),
               fetch_text(m, SMILES, all[i].row, smiles));
}

int main(int argc, char **argv)
{
    uint64_t query[WORDS], found = 0;
    gvm_device *device;
    molecules m = {0};

    if (argc < 3) {
        fputs("usage: similarity TOKEN ID [COUNT]\n", stderr);
        return 2;
    }
    attach(&m, argv[1]);
    int32_t *ids = calloc(m.info.rows + 1, sizeof *ids);
    result *results = calloc(m.info.rows + 1, sizeof *results);
    match *all = calloc(m.info.rows + 1, sizeof *all);

    if (ids == NULL || results == NULL || all == NULL)
        give_up("out of memory");
    must(gvm_device_open(m.info.device, &device), "cannot open the device");
    use_device(device);

    /* The table's memory is ours to read from here on, and stays where it is. */
    must(gvm_table_acquire(m.table, m.indexes, COLUMNS, NULL, GVM_FOREVER, m.data), "no lease to read");
    copy_out(ids, m.data[ID].values, 0, m.info.rows * sizeof *ids);
    fetch_query(&m, ids, (int32_t)atoi(argv[2]), query);
    search(&m, device, query, results);
    for (uint64_t row = 0; row < m.info.rows; row++)
        if (results[row].either != NOTHING)
            all[found++] = (match){results[row], ids[row], row};
    print_best(&m, all, found, argc > 3 ? strtoull(argv[3], NULL, 10) : 10);
    must(gvm_table_release(m.table, m.data, COLUMNS), "cannot give the lease back");

    free(all);
    free(results);
    free(ids);
    gvm_table_detach(m.table);
    gvm_device_pop_context();
    gvm_device_close(device);
    return 0;
}
