/* The molecules most like a given one, found by the GPU in a table of a PostgreSQL server, by a process
 * that is not the server and copies no table. `make demo` runs it beside the same search in SQL.
 *
 * The table has columns id integer, smiles text and fingerprint bit(1024), and the option format
 * 'arrow'. The distance of two molecules is Jaccard's: 1 - bits set in both / bits set in either.
 * The kernel (similarity_kernel.c) counts these for every row; this program keeps the best.
 *
 *     similarity "$(psql -Atc "SELECT gstore_export('molecules')")" ID
 */
#include <inttypes.h>
#include <time.h>

#include "launch.h"

#define WORDS 16
#define NOTHING UINT32_MAX
#define BEST 10
#define TEXT_BYTES_MAX 4096

/* The same in similarity_kernel.c. */
typedef struct similarity_params {
    uint64_t values, nulls;
    uint64_t rows;
    uint64_t query[WORDS];
    uint64_t results;
} similarity_params;

typedef struct result {
    uint32_t both, either;
} result;

typedef struct match {
    double distance;
    int32_t id;
    uint64_t row;
} match;

enum { ID, SMILES, FINGERPRINT, COLUMNS };

typedef struct molecules {
    gvm_table *table;
    gvm_table_info info;
    uint32_t indexes[COLUMNS];
    gvm_table_data data[COLUMNS];
    int32_t *ids;
} molecules;

static void attach(molecules *m, const char *token)
{
    static const char *const names[] = {"id", "smiles", "fingerprint"};
    static const char *const formats[] = {"i", "U", "w:128"}; /* Arrow's: int32, text, 128 bytes */

    must(gvm_table_attach(token, 0, &m->table), "cannot attach the table");
    m->info.struct_size = sizeof m->info;
    must(gvm_table_get_info(m->table, &m->info), "cannot ask about the table");
    for (int i = 0; i < COLUMNS; i++) {
        gvm_table_column c = {.struct_size = sizeof c};

        must(gvm_table_find_column(m->table, names[i], &m->indexes[i]), "that is not the table wanted");
        must(gvm_table_get_column(m->table, m->indexes[i], &c), "cannot ask about a column");
        if (c.arrow == NULL || strcmp(c.arrow, formats[i]) != 0)
            give_up("a column has another type, or the table is not of format 'arrow'");
    }
}

static void *allocate(uint64_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);

    if (memory == NULL)
        give_up("out of memory");
    return memory;
}

static void copy_out(void *to, const void *from, uint64_t at, uint64_t bytes)
{
    must_cu(cu.copy_out(to, (uintptr_t)from + at, bytes), "cuMemcpyDtoH");
}

static const char *fetch_smiles(const molecules *m, uint64_t row, char text[TEXT_BYTES_MAX])
{
    int64_t ends[2];

    copy_out(ends, m->data[SMILES].values, row * sizeof *ends, sizeof ends);
    if (ends[1] < ends[0] || ends[1] - ends[0] >= TEXT_BYTES_MAX)
        give_up("a text is too long");
    if (ends[1] > ends[0])
        copy_out(text, m->data[SMILES].bodies, (uint64_t)ends[0], (uint64_t)(ends[1] - ends[0]));
    text[ends[1] - ends[0]] = '\0';
    return text;
}

static void fetch_query(const molecules *m, int32_t id, uint64_t query[WORDS])
{
    uint64_t row = 0;

    while (row < m->info.rows && m->ids[row] != id)
        row++;
    if (row == m->info.rows)
        give_up("there is no molecule of that id");
    copy_out(query, m->data[FINGERPRINT].values, row * 8 * WORDS, 8 * WORDS);
}

static void count_common(const molecules *m, gvm_device *device, const uint64_t query[WORDS],
                         result *results)
{
    similarity_params params = {.values = (uintptr_t)m->data[FINGERPRINT].values,
                                .nulls = (uintptr_t)m->data[FINGERPRINT].nulls,
                                .rows = m->info.rows};
    kernel similarity = load_kernel(device, "similarity_kernel", "similarity");
    void *memory;

    must(gvm_alloc(device, (m->info.rows + 1) * sizeof *results, &memory),
         "cannot get memory for results");
    memcpy(params.query, query, sizeof params.query);
    params.results = (uintptr_t)memory;
    run_kernel(device, &similarity, &params);
    if (m->info.rows > 0)
        copy_out(results, memory, 0, m->info.rows * sizeof *results);
    must(gvm_free(memory), "cannot free the results");
    unload_kernel(&similarity);
}

/* The least distance first; those as near by id. */
static int is_before(const match *a, const match *b)
{
    return a->distance < b->distance || (a->distance == b->distance && a->id < b->id);
}

/* Returns how many there are, in order. */
static uint64_t choose_best(const molecules *m, const result *results, match best[BEST])
{
    uint64_t found = 0;

    for (uint64_t row = 0; row < m->info.rows; row++) {
        const result r = results[row];
        const match next = {r.both > 0 ? 1 - (double)r.both / r.either : 1, m->ids[row], row};

        if (r.either == NOTHING || (found == BEST && !is_before(&next, &best[BEST - 1])))
            continue;
        uint64_t at = found < BEST ? found++ : BEST - 1;
        for (; at > 0 && is_before(&next, &best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = next;
    }
    return found;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void search(molecules *m, gvm_device *device, int32_t id)
{
    result *results = allocate(m->info.rows, sizeof *results);
    match best[BEST];
    char smiles[TEXT_BYTES_MAX];
    uint64_t query[WORDS];

    m->ids = allocate(m->info.rows, sizeof *m->ids);
    if (m->info.rows > 0)
        copy_out(m->ids, m->data[ID].values, 0, m->info.rows * sizeof *m->ids);
    fetch_query(m, id, query);

    const double start_ms = now_ms();
    count_common(m, device, query, results);
    const uint64_t found = choose_best(m, results, best);
    fprintf(stderr, "%" PRIu64 " rows searched in %.1f ms\n", m->info.rows, now_ms() - start_ms);

    for (uint64_t i = 0; i < found; i++)
        printf("%" PRId32 "|%.6g|%s\n", best[i].id, best[i].distance,
               fetch_smiles(m, best[i].row, smiles));
    free(m->ids);
    free(results);
}

int main(int argc, char **argv)
{
    gvm_device *device;
    molecules m = {0};

    if (argc != 3)
        give_up("usage: similarity TOKEN ID");
    attach(&m, argv[1]);
    must(gvm_device_open(m.info.device, &device), "cannot open the device");
    use_device(device);

    /* The table's memory is ours to read from here on, and stays where it is. */
    must(gvm_table_acquire(m.table, m.indexes, COLUMNS, NULL, GVM_FOREVER, m.data), "no lease to read");
    search(&m, device, (int32_t)atoi(argv[2]));
    must(gvm_table_release(m.table, m.data, COLUMNS), "cannot give the lease back");

    gvm_table_detach(m.table);
    gvm_device_pop_context();
    gvm_device_close(device);
    return 0;
}
