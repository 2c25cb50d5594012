/* A GPU program as others write them, on the two sides of gstore_fdw's CUDA handles:
 *
 *     ipc_probe show HANDLE      opens a table's handle, checks the head of format 'pgstrom' and
 *                                prints the rows, as docs/gstore_format.md has them
 *     ipc_probe serve BYTES      allocates memory of byte i = i % 251, prints its handle, and on each
 *                                line it reads prints the sum of "OFFSET LENGTH"; ends at end of file
 *
 * Through the driver table, so that it runs on the software GPU as on a real one. HANDLE: 128
 * hexadecimal digits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gstore_kds.h>
#include <gvmem/gvmem.h>

#include "tests/postgres/probe_cuda.h"

#define INT2_OID 21u
#define INT4_OID 23u
#define INT8_OID 20u
#define FLOAT8_OID 701u

static void die(const char *what)
{
    gvm_error error;

    gvm_error_last(&error);
    fprintf(stderr, "ipc_probe: %s: %s\n", what, error.text);
    exit(1);
}

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "ipc_probe: %s\n", what);
    exit(1);
}

static gvm_device *open_device(void)
{
    gvm_device *device;

    if (!enter_device(0, &device))
        die("no device 0");
    return device;
}

static void read_handle(const char *text, gvm_ipc_handle *handle)
{
    must(strlen(text) == 2 * sizeof handle->bytes, "a handle has 128 digits");
    for (size_t i = 0; i < sizeof handle->bytes; i++)
        must(sscanf(text + 2 * i, "%2hhx", &handle->bytes[i]) == 1, "not a hexadecimal digit");
}

/* ---- show */

static void check_head(const gstore_kds_head *head, uint64_t bytes)
{
    must(head->length <= bytes, "head.length is more than the memory");
    must(head->format == GSTORE_KDS_COLUMN, "head.format");
    must(head->version == GSTORE_KDS_VERSION, "head.version");
    must(head->head_bytes == sizeof *head && head->column_bytes == sizeof(gstore_kds_column),
         "head.head_bytes or head.column_bytes");
    must(head->has_attnames == 1, "head.has_attnames");
    must(gstore_kds_head_bytes(head->ncols) <= bytes, "more columns than the head has bytes for");
    for (uint32_t i = 0; i < head->ncols; i++) {
        const gstore_kds_column *c = &gstore_kds_columns(head)[i];
        const uint64_t end = gstore_kds_extra_offset(c, head->nitems) + c->extra_sz;

        must(c->attnum == (int)i + 1, "column.attnum");
        must(c->va_offset == 0 || (c->va_offset >= gstore_kds_head_bytes(head->ncols) &&
                                   c->va_offset % GSTORE_KDS_ALIGN == 0 && end <= bytes),
             "a column beyond the memory");
    }
}

static void print_varlena(const uint8_t *body, const uint8_t *end)
{
    uint32_t header;

    must(body + 4 <= end, "a body beyond the memory");
    memcpy(&header, body, sizeof header);
    must((header & 3) == 0, "a body that is compressed or has a short header");
    header >>= 2;
    must(header >= 4 && body + header <= end, "a body beyond the memory");
    printf("%.*s", (int)(header - 4), (const char *)body + 4);
}

static void print_fixed(uint32_t type, const uint8_t *at)
{
    int16_t i2;
    int32_t i4;
    int64_t i8;
    double f8;

    switch (type) {
    case INT2_OID:
        memcpy(&i2, at, sizeof i2);
        printf("%d", i2);
        return;
    case INT4_OID:
        memcpy(&i4, at, sizeof i4);
        printf("%" PRId32, i4);
        return;
    case INT8_OID:
        memcpy(&i8, at, sizeof i8);
        printf("%" PRId64, i8);
        return;
    case FLOAT8_OID:
        memcpy(&f8, at, sizeof f8);
        printf("%.15g", f8);
        return;
    default: printf("?"); return;
    }
}

/* Decimals of few digits, arrays of the types above. */
static void print_uniform(const gstore_kds_column *c, const uint8_t *at)
{
    __int128 number;
    int64_t unit = 1, magnitude;

    switch (c->uniform) {
    case GSTORE_KDS_DECIMAL:
        must(c->width == 16 && c->count >= 1 && c->count <= 18 && c->scale >= 0, "a decimal");
        memcpy(&number, at, sizeof number);
        if (number == (__int128)((unsigned __int128)1 << 127)) {
            printf("NaN");
            return;
        }
        for (int i = 0; i < c->scale; i++)
            unit *= 10;
        magnitude = (int64_t)(number < 0 ? -number : number);
        printf("%s%" PRId64, number < 0 ? "-" : "", magnitude / unit);
        if (c->scale > 0)
            printf(".%0*" PRId64, c->scale, magnitude % unit);
        return;
    case GSTORE_KDS_BITS:
        must(c->width == (c->count + 7) / 8, "width of bits");
        for (uint32_t i = 0; i < c->count; i++)
            printf("%d", at[i / 8] >> (7 - i % 8) & 1);
        return;
    case GSTORE_KDS_BYTES:
        must(c->width == c->count, "width of bytes");
        printf("%.*s", (int)c->count, (const char *)at);
        return;
    case GSTORE_KDS_ELEMENTS:
        must(c->element != 0 && c->width % c->count == 0, "width of elements");
        for (uint32_t i = 0; i < c->count; i++) {
            printf("%s", i == 0 ? "{" : ",");
            print_fixed(c->element, at + i * (c->width / c->count));
        }
        printf("}");
        return;
    default: must(0, "column.uniform");
    }
}

static void print_value(const gstore_kds_head *head, const gstore_kds_column *c, uint64_t row)
{
    const uint8_t *base = (const uint8_t *)head;
    const uint8_t *values = base + c->va_offset;
    const uint8_t *nulls = base + gstore_kds_extra_offset(c, head->nitems);
    uint64_t offset;

    if (c->va_offset == 0)
        return;
    if (c->uniform != 0) {
        if (c->extra_sz == 0 || (nulls[row / 8] >> (row % 8) & 1) != 0)
            print_uniform(c, values + row * c->width);
        return;
    }
    if (c->attlen >= 0) {
        if (c->extra_sz == 0 || (nulls[row / 8] >> (row % 8) & 1) != 0)
            print_fixed(c->atttypid, values + row * c->width);
        return;
    }
    memcpy(&offset, values + row * sizeof offset, sizeof offset);
    if (offset != 0)
        print_varlena(values + offset, base + head->length);
}

/* In the manner of psql -At: NULL is nothing, dropped columns are left out. */
static void print_rows(const gstore_kds_head *head)
{
    const char *names = (const char *)&gstore_kds_columns(head)[head->ncols];

    printf("%" PRIu64 " rows:", head->nitems);
    for (uint32_t i = 0; i < head->ncols; i++)
        if (gstore_kds_columns(head)[i].atttypid != 0)
            printf(" %s", names + (size_t)i * GSTORE_KDS_NAME_BYTES);
    printf("\n");
    for (uint64_t row = 0; row < head->nitems; row++) {
        int first = 1;

        for (uint32_t i = 0; i < head->ncols; i++) {
            if (gstore_kds_columns(head)[i].atttypid == 0)
                continue;
            if (!first)
                printf("|");
            first = 0;
            print_value(head, &gstore_kds_columns(head)[i], row);
        }
        printf("\n");
    }
}

static int show(const char *text)
{
    gvm_device *device = open_device();
    gvm_ipc_handle handle;
    uint64_t base;
    gstore_kds_head *head;
    void *opened;
    uint64_t address;
    size_t bytes;

    read_handle(text, &handle);
    if (gvm_ipc_open(device, &handle, &opened) != GVM_OK)
        die("cannot open the handle");
    address = (uintptr_t)opened;
    must(cu.cuMemGetAddressRange(&base, &bytes, address) == 0, "no size");
    head = malloc(bytes);
    must(head != NULL && bytes >= sizeof *head, "too little memory");
    must(cu.cuMemcpyDtoH(head, address, bytes) == 0, "cannot copy");
    check_head(head, bytes);
    print_rows(head);
    free(head);
    return gvm_ipc_close(device, opened) == GVM_OK ? 0 : 1;
}

/* ---- serve */

static int serve(size_t bytes)
{
    gvm_ipc_handle handle;
    uint8_t *local = malloc(bytes);
    unsigned long long offset, length;
    uint64_t address;

    (void)open_device();
    must(local != NULL, "out of memory");
    for (size_t i = 0; i < bytes; i++)
        local[i] = (uint8_t)(i % 251);
    must(cu.cuMemAlloc(&address, bytes) == 0 && cu.cuMemcpyHtoD(address, local, bytes) == 0 &&
             cu.cuIpcGetMemHandle(&handle, address) == 0,
         "cannot share memory");
    for (size_t i = 0; i < sizeof handle; i++)
        printf("%02x", ((const uint8_t *)&handle)[i]);
    printf("\n");
    fflush(stdout);
    while (scanf("%llu %llu", &offset, &length) == 2) {
        unsigned long long sum = 0;

        must(offset <= bytes && length <= bytes - offset, "beyond the memory");
        must(cu.cuMemcpyDtoH(local, address, bytes) == 0, "cannot copy");
        for (size_t i = 0; i < length; i++)
            sum += (i + 1) % 1000 * local[offset + i];
        printf("%llu\n", sum);
        fflush(stdout);
    }
    cu.cuMemFree(address);
    free(local);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "show") == 0)
        return show(argv[2]);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(strtoul(argv[2], NULL, 10));
    fprintf(stderr, "usage: ipc_probe show HANDLE | serve BYTES\n");
    return 2;
}
