/* Values of a column that is too large to be copied to the host, as another program has it. Prints for each row "LENGTH BEGINNING
 * END", the latter of 8 bytes each:
 *
 *     large_probe token TOKEN COLUMN      by the name of the column, where it is (gvmem/table.h)
 *     large_probe handle HANDLE NUMBER    by its attribute number, in the copy (gvmem/gstore_kds.h)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gstore_kds.h>
#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#include "tests/postgres/probe_cuda.h"

static void must(int condition, const char *what)
{
    gvm_error error;

    if (condition)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "large_probe: %s: %s\n", what, error.text);
    exit(1);
}

static void copy_out(void *to, uint64_t from, size_t bytes)
{
    must(cu.cuMemcpyDtoH(to, from, bytes) == 0, "cannot copy");
}

/* offsets: of the rows, counted from `from`. */
static void print_ends(uint64_t offsets, uint64_t from, uint64_t rows)
{
    for (uint64_t row = 0; row < rows; row++) {
        char first[8], last[8];
        uint64_t offset;
        uint32_t head;

        copy_out(&offset, offsets + row * sizeof offset, sizeof offset);
        copy_out(&head, from + offset, sizeof head);
        must(offset != 0 && (head & 3) == 0 && head >> 2 >= 12, "a value is malformed");
        copy_out(first, from + offset + 4, sizeof first);
        copy_out(last, from + offset + (head >> 2) - sizeof last, sizeof last);
        printf("%" PRIu32 " %.8s %.8s\n", (head >> 2) - 4, first, last);
    }
}

static void show_token(const char *token, const char *column)
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_device *device;
    gvm_table_data data;
    gvm_table *table;
    uint32_t index;

    must(gvm_table_attach(token, 0, &table) == GVM_OK && gvm_table_get_info(table, &info) == GVM_OK &&
             gvm_table_find_column(table, column, &index) == GVM_OK &&
             enter_device(info.device, &device),
         "cannot attach the table");
    must(gvm_table_acquire(table, &index, 1, NULL, GVM_FOREVER, &data) == GVM_OK, "no lease");
    print_ends((uintptr_t)data.values, (uintptr_t)data.bodies, info.rows);
    must(gvm_table_release(table, &data, 1) == GVM_OK, "cannot release");
    gvm_table_detach(table);
}

static void show_handle(const char *text, uint32_t number)
{
    gvm_ipc_handle handle;
    gstore_kds_column column;
    gstore_kds_head head;
    gvm_device *device;
    uint64_t address, at;
    void *opened;

    must(strlen(text) == 2 * sizeof handle.bytes, "a handle has 128 digits");
    for (size_t i = 0; i < sizeof handle.bytes; i++)
        must(sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]) == 1, "not a hexadecimal digit");
    must(enter_device(0, &device) && gvm_ipc_open(device, &handle, &opened) == GVM_OK,
         "cannot open the handle");
    address = (uintptr_t)opened;
    copy_out(&head, address, sizeof head);
    must(head.format == GSTORE_KDS_COLUMN && head.version == GSTORE_KDS_VERSION && number <= head.ncols,
         "another format");
    copy_out(&column, address + head.head_bytes + (number - 1) * (uint64_t)head.column_bytes,
             sizeof column);
    at = address + column.va_offset;
    print_ends(at, at, head.nitems);
    must(gvm_ipc_close(device, opened) == GVM_OK, "cannot close the handle");
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "token") == 0)
        show_token(argv[2], argv[3]);
    else if (argc == 4 && strcmp(argv[1], "handle") == 0 && atoi(argv[3]) > 0)
        show_handle(argv[2], (uint32_t)atoi(argv[3]));
    else
        return 2;
    return 0;
}
