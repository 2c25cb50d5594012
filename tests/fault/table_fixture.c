/* A table of the kind that a server exports, made by hand in the other process; what a reader of it
 * does is in scenarios.c. Column 0 is a number, 3 * row + 1; column 1 has a text in every other row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/keeper.h>
#include <gvmem/region_object.h>
#include <gvmem/table.h>

#include "base/address.h"
#include "driver/driver.h"
#include "keeper/table/manifest.h"
#include "memory/device.h"
#include "tests/fault/fault.h"

#define OBJECTS "/gstore/1/2/3"
#define BODY_BYTES 8u /* of one text, with its header */

static gvm_keeper *server;
static gvm_client *exporter; /* whose objects the table is made of, while it is served */
static gvm_device *exporter_device;

typedef struct description {
    gvmi_manifest head;
    gvmi_manifest_column columns[2];
    char texts[40];
} description;

static description describe(void)
{
    /* The table and a type are named by what a terminal may obey: ESC and U+009B. */
    static const char texts[] = "public\0\033\0id\0int\0body\0te\xc2\x9b";
    description d = {.head = {.version = GVMI_TOKEN_VERSION,
                              .bytes = sizeof d,
                              .header_bytes = sizeof d.head,
                              .column_bytes = sizeof d.columns[0],
                              .columns = 2,
                              .layout = GVMI_LAYOUT_PGSTROM,
                              .rows = FAULT_TABLE_ROWS,
                              .revision = 1,
                              .schema = offsetof(description, texts),
                              .name = offsetof(description, texts) + 7}};

    memcpy(d.head.magic, GVMI_MANIFEST_MAGIC, sizeof d.head.magic);
    memcpy(d.texts, texts, sizeof texts);
    d.columns[0] = (gvmi_manifest_column){.name = d.head.schema + 9,
                                          .type_name = d.head.schema + 12,
                                          .type = 23,
                                          .base_type = 23,
                                          .length = 4,
                                          .number = 1,
                                          .flags = GVMI_COLUMN_BY_VALUE,
                                          .width = 4,
                                          .align = 'i'};
    d.columns[1] = d.columns[0];
    d.columns[1].name = d.head.schema + 16;
    d.columns[1].type_name = d.head.schema + 21;
    d.columns[1].type = d.columns[1].base_type = 25;
    d.columns[1].length = -1;
    d.columns[1].number = 2;
    d.columns[1].width = sizeof(uint64_t);
    d.columns[1].flags = GVMI_COLUMN_NULLS;
    d.columns[1].bodies_bytes = FAULT_TABLE_ROWS * BODY_BYTES;
    return d;
}

static bool publish(const char *part, const void *bytes, size_t len)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .size_bytes = CHUNK};
    char name[sizeof OBJECTS + 32];
    gvm_object *object;

    snprintf(name, sizeof name, "%s/%s", OBJECTS, part);
    if (gvm_object_create(exporter, name, CHUNK, &options, &object) != GVM_OK ||
        gvm_object_link(object, name, 0400, CHUNK) != GVM_OK)
        return false;
    return gvm_object_copy_in(object, 0, bytes, len, GVM_FOREVER) == GVM_OK;
}

/* What gvm_load_open() opens. */
static bool publish_rows_to_come(void)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .size_bytes = CHUNK};
    gvm_object *object;

    return gvm_object_create(exporter, OBJECTS "/rows", CHUNK, &options, &object) == GVM_OK &&
           gvm_object_link(object, OBJECTS GVMI_LOAD_LINK, 0600, CHUNK) == GVM_OK;
}

static bool publish_columns(void)
{
    static uint32_t numbers[FAULT_TABLE_ROWS];
    static uint64_t offsets[FAULT_TABLE_ROWS];
    static uint8_t bodies[FAULT_TABLE_ROWS * BODY_BYTES], nulls[FAULT_TABLE_ROWS / 8 + 1];

    for (uint32_t row = 0; row < FAULT_TABLE_ROWS; row++) {
        const uint32_t head = 7u << 2; /* a varlena of 7 bytes */

        numbers[row] = FAULT_TABLE_NUMBER(row);
        if (row % 2 == 0)
            continue;
        offsets[row] = (uint64_t)row * BODY_BYTES;
        nulls[row / 8] |= (uint8_t)(1u << row % 8);
        memcpy(bodies + row * BODY_BYTES, &head, sizeof head);
        memcpy(bodies + row * BODY_BYTES + sizeof head, "odd", 3);
    }
    return publish("1.values", numbers, sizeof numbers) &&
           publish("2.values", offsets, sizeof offsets) &&
           publish("2.nulls", nulls, sizeof nulls) && publish("2.bodies", bodies, sizeof bodies);
}

/* What region_fixture.c attaches. */
static bool publish_regions(void)
{
    const gvm_object_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_object *object;

    return gvm_region_object_create(exporter, FAULT_REGIONS_NAME, FAULT_REGIONS, FAULT_REGION_BYTES,
                                    NULL, &options, &object) == GVM_OK;
}

bool table_serve(char token[GVM_TABLE_TOKEN_BYTES_MAX])
{
    const description d = describe();
    char path[64];
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = path,
                                        .devices = &(int32_t){0},
                                        .device_count = 1,
                                        .device_budget_bytes = 16 * CHUNK,
                                        .host_budget_bytes = 16 * CHUNK};

    snprintf(path, sizeof path, "/tmp/gvmem-fault-%d.sock", (int)getpid());
    if (gvm_keeper_start(&options, &server) != GVM_OK || gvm_client_connect(path, &exporter) != GVM_OK ||
        gvm_device_open(0, &exporter_device) != GVM_OK || !publish("0.manifest", &d, sizeof d) ||
        !publish_columns() || !publish_rows_to_come() || !publish_regions())
        return false;
    snprintf(token, GVM_TABLE_TOKEN_BYTES_MAX, "%s%d:%016llx:0:%zu:%u:%s:%s", GVMI_TOKEN_PREFIX,
             GVMI_TOKEN_VERSION, (unsigned long long)gvm_kernel_checksum_host(&d, sizeof d),
             sizeof d, (unsigned)geteuid(), OBJECTS, path);
    return true;
}

void table_serve_end(void)
{
    gvm_client_close(exporter);
    gvm_keeper_stop(server);
    gvm_device_close(exporter_device);
    exporter = NULL;
    server = NULL;
    exporter_device = NULL;
}

/* ---- what a reader looks for */

bool table_reads_well(gvm_device *device, const gvm_table_data *data)
{
    static uint32_t numbers[FAULT_TABLE_ROWS];
    uint8_t body[BODY_BYTES] = {0};
    bool good;

    if (gvmi_device_enter(device) != GVM_OK)
        return false;
    good = gvmi_cu->cuMemcpyDtoH(numbers, gvmi_address(data[0].values), sizeof numbers) ==
               CUDA_SUCCESS &&
           gvmi_cu->cuMemcpyDtoH(body, gvmi_address(data[1].bodies) + 3 * BODY_BYTES, BODY_BYTES) ==
               CUDA_SUCCESS;
    gvmi_device_leave();
    for (uint32_t row = 0; row < FAULT_TABLE_ROWS && good; row++)
        good = numbers[row] == FAULT_TABLE_NUMBER(row);
    return good && memcmp(body + 4, "odd", 3) == 0;
}
