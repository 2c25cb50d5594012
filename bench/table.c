/* gvmem-bench table: from a token to the first kernel on the table's columns.
 *
 * A program has opened its device and loaded its kernels for its own work already: what is measured
 * is what the table adds. Every repetition attaches anew: it connects to the keeper, reads the
 * manifest, maps every column that has memory, takes leases, runs a kernel on the first bytes of each,
 * and detaches.
 *
 * Floor: the driver's own import, map and set access of as many handles (`gvmem-bench vmm`, sharing).
 */
#include <stdlib.h>

#include <gvmem/kernels.h>
#include <gvmem/table.h>

#include "base/error.h"
#include "base/size.h"
#include "bench/bench.h"

#define READ_BYTES (64u << 10) /* of a column, by the first kernel */
#define SECTION "table"

typedef struct times {
    bench_samples attach, columns, kernel, whole, detach;
} times;

/* What the last repetition saw. */
typedef struct seen {
    uint64_t rows, bytes, checksum;
    uint32_t columns; /* with memory */
} seen;

typedef struct wanted {
    uint32_t *indexes;
    gvm_table_data *data;
    uint64_t *bytes; /* of its values */
    uint32_t count;
} wanted;

static void drop_wanted(wanted *w)
{
    free(w->indexes);
    free(w->data);
    free(w->bytes);
}

/* All columns that have memory. */
static gvm_status choose_columns(gvm_table *table, uint32_t columns, wanted *w)
{
    gvm_table_column column = {.struct_size = sizeof column};
    gvm_status status = GVM_OK;

    w->indexes = calloc(columns + 1u, sizeof *w->indexes);
    w->data = calloc(columns + 1u, sizeof *w->data);
    w->bytes = calloc(columns + 1u, sizeof *w->bytes);
    if (w->indexes == NULL || w->data == NULL || w->bytes == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %u columns", columns);
    for (uint32_t i = 0; i < columns && status == GVM_OK; i++) {
        status = gvm_table_get_column(table, i, &column);
        if (status == GVM_OK && column.values_bytes > 0) {
            w->bytes[w->count] = column.values_bytes;
            w->indexes[w->count++] = i;
        }
    }
    return status;
}

static gvm_status run_kernels(const bench *b, const wanted *w, seen *what)
{
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < w->count && status == GVM_OK; i++) {
        const uint64_t len = w->bytes[i] < READ_BYTES ? w->bytes[i] : READ_BYTES;
        uint64_t checksum;

        status = gvm_kernel_checksum(b->device, w->data[i].values, len, NULL, &checksum);
        what->checksum += checksum;
        what->bytes += w->bytes[i];
    }
    what->columns = w->count;
    return status;
}

static gvm_status measure_attached(const bench *b, gvm_table *table, double start_us, times *t,
                                   seen *what)
{
    gvm_table_info info = {.struct_size = sizeof info};
    wanted w = {0};
    double attached_us = tool_now_us(), mapped_us;
    gvm_status status = gvm_table_get_info(table, &info);

    what->rows = info.rows;
    if (status == GVM_OK)
        status = choose_columns(table, info.columns, &w);
    if (status == GVM_OK)
        status = gvm_table_acquire(table, w.indexes, w.count, NULL, GVM_FOREVER, w.data);
    mapped_us = tool_now_us();
    if (status == GVM_OK) {
        const double end_us = (status = run_kernels(b, &w, what), tool_now_us());

        bench_add(&t->attach, attached_us - start_us);
        bench_add(&t->columns, mapped_us - attached_us);
        bench_add(&t->kernel, end_us - mapped_us);
        bench_add(&t->whole, end_us - start_us);
        if (status == GVM_OK)
            status = gvm_table_release(table, w.data, w.count);
    }
    drop_wanted(&w);
    return status;
}

static gvm_status attach_once(const bench *b, times *t, seen *what)
{
    const double start_us = tool_now_us();
    double detach_us;
    gvm_table *table;
    gvm_status status = gvm_table_attach(b->operands[0], 0, &table);
    gvm_error error;

    if (status != GVM_OK)
        return status;
    *what = (seen){0};
    status = measure_attached(b, table, start_us, t, what);
    error = gvmi_error_save();
    detach_us = tool_now_us();
    gvm_table_detach(table);
    bench_add(&t->detach, tool_now_us() - detach_us);
    if (status != GVM_OK)
        gvm_error_restore(&error);
    return status;
}

static void print_attach_time(bench *b, const char *name, uint64_t bytes, const bench_samples *samples)
{
    fprintf(b->text, "  %-52s %12.1f us\n", name,
            bench_record(b, SECTION, name, "us", bytes, 0, samples));
}

void bench_table(bench *b)
{
    const int repetitions = b->quick ? 5 : 21;
    times first = {0}, t = {0};
    seen what = {0}, last;
    char size[32];
    gvm_status status = attach_once(b, &first, &what); /* loads the kernels, too */

    for (int i = 0; i < repetitions && status == GVM_OK; i++) {
        status = attach_once(b, &t, &last);
        if (status == GVM_OK && last.checksum != what.checksum)
            status = gvm_error_set(GVM_E_FORMAT,
                                   "the table reads differently when it is attached again");
    }
    if (status != GVM_OK) {
        bench_failed(b, "attaching the table");
        return;
    }
    fprintf(b->text, "%llu rows, %u columns with %s in their rows' values\n",
            (unsigned long long)what.rows, what.columns, gvmi_size_text(what.bytes, size));
    bench_record_value(b, SECTION, "rows", "rows", 0, 0, (double)what.rows);
    bench_record_value(b, SECTION, "columns", "columns", 0, 0, what.columns);
    print_attach_time(b, "token to first kernel's end, the process's first", what.bytes, &first.whole);
    print_attach_time(b, "token to first kernel's end", what.bytes, &t.whole);
    print_attach_time(b, "  attach: connect, read the manifest", what.bytes, &t.attach);
    print_attach_time(b, "  map the columns, take their leases", what.bytes, &t.columns);
    print_attach_time(b, "  a kernel on each column", what.bytes, &t.kernel);
    print_attach_time(b, "detach", what.bytes, &t.detach);
}
