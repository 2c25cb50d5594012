/* The molecules most like a given one, found by the GPU in a table of a PostgreSQL server, by a process
 * that is not the server and copies no table.
 *
 * The table has columns id integer, name text, smiles text and signature smallint[] (64 of them: a
 * fingerprint of 1024 bits). Two molecules are as similar as their fingerprints by Tanimoto's measure:
 * bits set in both, divided by bits set in either. The kernel (similarity_kernel.c) counts both for every
 * row; this program sorts, and fetches the names of the best.
 *
 *     similarity "$(psql -Atc "SELECT gstore_export('molecules')")" ID [COUNT]
 *
 * A kernel of one's own is loaded by the CUDA driver, as in any CUDA program; gvmem reports
 * which driver it uses, so that the same program runs on the software GPU. The image is a file
 * beside the program: similarity_kernel.fatbin for a GPU, similarity_kernel.so for the software
 * one.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#define WORDS 16
#define ARRAY_BYTES 24
#define NOTHING UINT32_MAX
#define BLOCK_THREADS 256
#define BLOCKS_PER_SM 8
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

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "similarity: %s\n", what);
    exit(1);
}

/* Every call returns a status; what exactly went wrong is kept for the thread that called. */
static void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "similarity: %s: %s: %s\n", what, gvm_status_text(status), error.text);
    exit(1);
}

/* ---- the CUDA driver, as far as a kernel needs it; with CUDA's toolkit, cuda.h declares it */

typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUctx_st *cu_context;

static struct {
    int (*device_get)(int *device, int ordinal);
    int (*context_retain)(cu_context *context, int device);
    int (*context_release)(int device);
    int (*context_set)(cu_context context);
    int (*synchronize)(void);
    int (*module_load)(cu_module *module, const void *image);
    int (*module_unload)(cu_module module);
    int (*function_get)(cu_function *function, cu_module module, const char *name);
    int (*launch)(cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                  gvm_stream stream, void **params, void **extra);
    int (*copy_out)(void *to, uint64_t from, size_t bytes);
} cu;

static void must_cu(int code, const char *what)
{
    if (code == 0)
        return;
    fprintf(stderr, "similarity: %s: CUDA error %d\n", what, code);
    exit(1);
}

static void find_call(void *driver, const char *name, void *call)
{
    void *found = dlsym(driver, name);

    if (found == NULL)
        give_up("the driver lacks a call");
    memcpy(call, &found, sizeof found);
}

static void find_driver(const char *path)
{
    void *driver = dlopen(path, RTLD_NOW); /* gvmem has loaded it already */

    if (driver == NULL)
        give_up("cannot find the driver");
    find_call(driver, "cuDeviceGet", &cu.device_get);
    find_call(driver, "cuDevicePrimaryCtxRetain", &cu.context_retain);
    find_call(driver, "cuDevicePrimaryCtxRelease_v2", &cu.context_release);
    find_call(driver, "cuCtxSetCurrent", &cu.context_set);
    find_call(driver, "cuCtxSynchronize", &cu.synchronize);
    find_call(driver, "cuModuleLoadData", &cu.module_load);
    find_call(driver, "cuModuleUnload", &cu.module_unload);
    find_call(driver, "cuModuleGetFunction", &cu.function_get);
    find_call(driver, "cuLaunchKernel", &cu.launch);
    find_call(driver, "cuMemcpyDtoH_v2", &cu.copy_out);
}

/* The kernel's image, from beside the program. It stays in memory as long as it is loaded. */
static void *read_image(bool software)
{
    char path[4096];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 64);
    char *slash, *bytes;
    long size;
    FILE *file;

    if (len < 0)
        give_up("cannot find the folder of the program");
    path[len] = '\0';
    slash = strrchr(path, '/') + 1;
    strcpy(slash, software ? "similarity_kernel.so" : "similarity_kernel.fatbin");
    file = fopen(path, "rbe");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) <= 0)
        give_up(software ? "cannot read similarity_kernel.so"
                         : "cannot read similarity_kernel.fatbin: built without nvcc?");
    rewind(file);
    bytes = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
    if (bytes == NULL || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        give_up("cannot read the kernel");
    fclose(file);
    return bytes;
}

/* ---- the table */

typedef struct molecules {
    gvm_table *table;
    gvm_table_info info;
    uint32_t indexes[4];
    gvm_table_column columns[4];
    gvm_table_data data[4];
} molecules;

enum { ID, NAME, SMILES, SIGNATURE };

static void attach(molecules *m, const char *token)
{
    static const char *const names[] = {"id", "name", "smiles", "signature"};
    static const uint32_t types[] = {23, 25, 25, 1005}; /* int4, text, text, int2[] */

    must(gvm_table_attach(token, 0, &m->table), "cannot attach the table");
    m->info.struct_size = sizeof m->info;
    must(gvm_table_get_info(m->table, &m->info), "cannot ask about the table");
    for (int i = 0; i < 4; i++) {
        gvm_table_column *c = &m->columns[i];

        must(gvm_table_find_column(m->table, names[i], &m->indexes[i]), "that is not the table wanted");
        c->struct_size = sizeof *c;
        must(gvm_table_get_column(m->table, m->indexes[i], c), "cannot ask about a column");
        if (c->type != types[i] || c->compressed || c->absent)
            give_up("a column has another type, or is compressed");
    }
}

/* The value of a row as text; of variable length, not compressed. */
static const char *fetch_text(const molecules *m, int column, uint64_t row, char text[TEXT_BYTES_MAX])
{
    const gvm_table_data *d = &m->data[column];
    const uint64_t bodies_bytes = m->columns[column].bodies_bytes;
    uint32_t offset, head;
    uint64_t at, len;

    must_cu(cu.copy_out(&offset, (uintptr_t)d->values + row * 4, sizeof offset), "cannot read a value");
    at = (uint64_t)offset * 8;
    if (offset == 0)
        return strcpy(text, "");
    if (at + sizeof head > bodies_bytes)
        give_up("a value lies beyond its column");
    must_cu(cu.copy_out(&head, (uintptr_t)d->bodies + at, sizeof head), "cannot read a value");
    len = head / 4;
    if (len < sizeof head || len > bodies_bytes - at || len - sizeof head >= TEXT_BYTES_MAX)
        give_up("a value is malformed or too long");
    len -= sizeof head;
    must_cu(cu.copy_out(text, (uintptr_t)d->bodies + at + sizeof head, len), "cannot read a value");
    text[len] = '\0';
    return text;
}

static int32_t *fetch_ids(const molecules *m)
{
    int32_t *ids = malloc(m->info.rows * sizeof *ids + 1);

    if (ids == NULL)
        give_up("out of memory");
    must_cu(cu.copy_out(ids, (uintptr_t)m->data[ID].values, m->info.rows * sizeof *ids),
            "cannot read the ids");
    return ids;
}

static void fetch_query(const molecules *m, const int32_t *ids, int32_t id, uint64_t query[WORDS])
{
    const gvm_table_data *d = &m->data[SIGNATURE];
    uint64_t row = 0;
    uint32_t offset, head;

    while (row < m->info.rows && ids[row] != id)
        row++;
    if (row == m->info.rows)
        give_up("there is no molecule of that id");
    must_cu(cu.copy_out(&offset, (uintptr_t)d->values + row * 4, sizeof offset),
            "cannot read the signature");
    if (offset == 0 ||
        (uint64_t)offset * 8 + ARRAY_BYTES + 8 * WORDS > m->columns[SIGNATURE].bodies_bytes)
        give_up("the molecule has no signature");
    must_cu(cu.copy_out(&head, (uintptr_t)d->bodies + (uint64_t)offset * 8, sizeof head),
            "cannot read it");
    if (head != (ARRAY_BYTES + 8 * WORDS) * 4)
        give_up("the molecule's signature is not of 64 smallint");
    must_cu(cu.copy_out(query, (uintptr_t)d->bodies + (uint64_t)offset * 8 + ARRAY_BYTES, 8 * WORDS),
            "cannot read the signature");
}

/* ---- the search */

static result *search(const molecules *m, gvm_device *device, const uint64_t query[WORDS])
{
    gvm_device_info info = {.struct_size = sizeof info};
    const uint64_t bytes = m->info.rows * sizeof(result);
    similarity_params params = {.values = (uintptr_t)m->data[SIGNATURE].values,
                                .bodies = (uintptr_t)m->data[SIGNATURE].bodies,
                                .bodies_bytes = m->columns[SIGNATURE].bodies_bytes,
                                .rows = m->info.rows};
    void *arguments[] = {&params}, *image;
    result *results = malloc(bytes);
    cu_function function;
    cu_module module;
    void *memory;

    must(gvm_device_get_info(device, &info), "cannot ask about the device");
    must(gvm_alloc(device, bytes, &memory), "cannot get memory for results");
    memcpy(params.query, query, sizeof params.query);
    params.results = (uint64_t)(uintptr_t)memory;
    image = read_image(info.software != 0);
    must_cu(cu.module_load(&module, image), "cannot load the kernel");
    must_cu(cu.function_get(&function, module, "similarity"), "cannot find the kernel");
    must_cu(cu.launch(function, (unsigned)(info.sm_count * BLOCKS_PER_SM), 1, 1,
                      info.block_threads_max < BLOCK_THREADS ? (unsigned)info.block_threads_max
                                                             : BLOCK_THREADS,
                      1, 1, 0, NULL, arguments, NULL),
            "cannot launch the kernel");
    must_cu(cu.synchronize(), "the kernel failed");
    if (results == NULL)
        give_up("out of memory");
    must_cu(cu.copy_out(results, params.results, bytes), "cannot read the results");
    cu.module_unload(module);
    free(image);
    must(gvm_free(memory), "cannot give memory back");
    return results;
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

static void print_best(const molecules *m, const int32_t *ids, const result *results, uint64_t count)
{
    match *all = malloc(m->info.rows * sizeof *all);
    char name[TEXT_BYTES_MAX], smiles[TEXT_BYTES_MAX];
    uint64_t found = 0;

    if (all == NULL)
        give_up("out of memory");
    for (uint64_t row = 0; row < m->info.rows; row++)
        if (results[row].either != NOTHING)
            all[found++] = (match){results[row], ids[row], row};
    qsort(all, found, sizeof *all, compare);
    for (uint64_t i = 0; i < found && i < count; i++)
        printf("%.6f  %3" PRIu32 "/%-3" PRIu32 "  %-8s  %s\n", score_of(all[i].score),
               all[i].score.both, all[i].score.either, fetch_text(m, NAME, all[i].row, name),
               fetch_text(m, SMILES, all[i].row, smiles));
    free(all);
}

int main(int argc, char **argv)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    uint64_t query[WORDS];
    cu_context context;
    gvm_device *device;
    molecules m = {0};
    result *results;
    int32_t *ids;
    int number;

    if (argc < 3) {
        fputs("usage: similarity TOKEN ID [COUNT]\n", stderr);
        return 2;
    }
    attach(&m, argv[1]);
    must(gvm_device_open(m.info.device, &device), "cannot open the device");
    must(gvm_driver_get_info(&driver), "cannot ask about the driver");
    find_driver(driver.path);
    must_cu(cu.device_get(&number, m.info.device), "cannot find the device");
    must_cu(cu.context_retain(&context, number), "cannot use the device");
    must_cu(cu.context_set(context), "cannot use the device");

    /* The table's memory is ours to read from here on, and stays where it is. */
    must(gvm_table_acquire(m.table, m.indexes, 4, NULL, GVM_FOREVER, m.data), "no lease to read");
    ids = fetch_ids(&m);
    fetch_query(&m, ids, (int32_t)atoi(argv[2]), query);
    results = search(&m, device, query);
    print_best(&m, ids, results, argc > 3 ? strtoull(argv[3], NULL, 10) : 10);
    must(gvm_table_release(m.table, m.data, 4), "cannot give the lease back");

    free(results);
    free(ids);
    gvm_table_detach(m.table);
    cu.context_set(NULL);
    cu.context_release(number);
    gvm_device_close(device);
    return 0;
}
