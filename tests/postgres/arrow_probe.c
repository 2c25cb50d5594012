/* A program that reads tables of format 'arrow' as bytes, and understands none of them:
 *
 *     arrow_probe token TOKEN     attaches; "rows N layout L", then a line for each column:
 *                                 NAME TYPE ELEMENT ABSENT VALUES NULLS BODIES ELEMENT_NULLS
 *     arrow_probe handle HANDLE   the memory behind a CUDA handle, up to the length at its beginning
 *
 * Bytes are hexadecimal, "-" for none; so is an empty text. A buffer whose address is no multiple of 64, or
 * that cannot be read up to the next one behind its end, is an error. HANDLE: 128 hexadecimal digits.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>
#include <gvmem/table.h>

#include "tests/postgres/probe_cuda.h"

#define ALIGN 64u

static void die(const char *what)
{
    gvm_error error;

    gvm_error_last(&error);
    fprintf(stderr, "arrow_probe: %s: %s\n", what, error.text);
    exit(1);
}

static void must(int condition, const char *what)
{
    if (!condition)
        die(what);
}

static void print_bytes(uint64_t address, uint64_t bytes)
{
    const uint64_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint8_t *local = malloc(whole);

    if (bytes == 0) {
        printf(" -");
        return;
    }
    must(local != NULL, "out of memory");
    must(address % ALIGN == 0, "a buffer is not aligned");
    must(cu.cuMemcpyDtoH(local, address, whole) == 0, "cannot copy");
    printf(" ");
    for (uint64_t i = 0; i < bytes; i++)
        printf("%02x", local[i]);
    free(local);
}

/* A program of before there were columns of one length is not told of one as of another. */
static void check_older_struct(gvm_table *table, uint32_t index, uint32_t uniform)
{
    gvm_table_column older = {.struct_size = offsetof(gvm_table_column, uniform)};

    must(gvm_table_get_column(table, index, &older) == (uniform != 0 ? GVM_E_VERSION : GVM_OK),
         "an older struct of a column");
}

static void print_column(gvm_table *table, uint32_t index)
{
    gvm_table_column c = {.struct_size = sizeof c};
    gvm_table_data data;

    must(gvm_table_get_column(table, index, &c) == GVM_OK, "no column");
    must(c.arrow != NULL && c.arrow_element != NULL, "a column without a type of Arrow's");
    check_older_struct(table, index, c.uniform);
    must(gvm_table_acquire(table, &index, 1, NULL, GVM_FOREVER, &data) == GVM_OK, "no lease");
    printf("%s %s %s %d", c.name, c.arrow, c.arrow_element[0] != '\0' ? c.arrow_element : "-",
           c.absent);
    print_bytes((uintptr_t)data.values, c.values_bytes);
    print_bytes((uintptr_t)data.nulls, c.nulls_bytes);
    print_bytes((uintptr_t)data.bodies, c.bodies_bytes);
    print_bytes((uintptr_t)data.element_nulls, c.element_nulls_bytes);
    printf("\n");
    must(gvm_table_release(table, &data, 1) == GVM_OK, "cannot release");
}

static void show_token(const char *token)
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_device *device;
    gvm_table *table;

    must(gvm_table_attach(token, 0, &table) == GVM_OK, "cannot attach");
    must(gvm_table_get_info(table, &info) == GVM_OK, "no description");
    must(enter_device(info.device, &device), "no device");
    printf("rows %" PRIu64 " layout %s\n", info.rows, info.layout);
    for (uint32_t i = 0; i < info.columns; i++)
        print_column(table, i);
    gvm_table_detach(table);
}

static void show_handle(const char *text)
{
    gvm_ipc_handle handle;
    gvm_device *device;
    uint64_t address, length;
    void *opened;
    uint64_t base;
    size_t bytes;

    must(strlen(text) == 2 * sizeof handle.bytes, "a handle has 128 digits");
    for (size_t i = 0; i < sizeof handle.bytes; i++)
        must(sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]) == 1, "not a hexadecimal digit");
    must(enter_device(0, &device), "no device");
    must(gvm_ipc_open(device, &handle, &opened) == GVM_OK, "cannot open the handle");
    address = (uintptr_t)opened;
    must(cu.cuMemGetAddressRange(&base, &bytes, address) == 0 && bytes >= 64 &&
             cu.cuMemcpyDtoH(&length, address, sizeof length) == 0 && length <= bytes,
         "no length");
    print_bytes(address, length);
    printf("\n");
    must(gvm_ipc_close(device, opened) == GVM_OK, "cannot close the handle");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "token") == 0)
        show_token(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "handle") == 0)
        show_handle(argv[2]);
    else
        return fprintf(stderr, "usage: arrow_probe token TOKEN | handle HANDLE\n"), 2;
    return 0;
}
