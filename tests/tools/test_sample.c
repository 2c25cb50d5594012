/* A made-up snapshot. */
#include "tests/tools/test_sample.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/units.h"

static void make_device(gvm_keeper_device_info *d, int ordinal, unsigned seconds)
{
    *d = (gvm_keeper_device_info){
        .struct_size = sizeof *d,
        .ordinal = ordinal,
        .objects = SAMPLE_OBJECTS / 2,
        .budget_bytes = 73728 * MIB,
        .resident_bytes = 60000 * MIB,
        .free_bytes = 256 * MIB,
        .leased_bytes = 20000 * MIB,
        .dirty_bytes = 12345 * MIB,
        .held_bytes = 700 * MIB,
        .host_backed_bytes = 9000 * MIB,
        .evictions = 7 + 3ull * seconds,
        .promotions = 5 + 2ull * seconds,
        .evicted_bytes = (70 + 30ull * seconds) * MIB,
        .promoted_bytes = (50 + 20ull * seconds) * MIB,
        .driver_free_bytes = 4000 * MIB,
        .driver_total_bytes = 81559 * MIB,
    };
    for (unsigned i = 0; i < sizeof d->uuid; i++)
        d->uuid[i] = (uint8_t)(17 * i + (unsigned)ordinal);
    strcpy(d->name, ordinal == 0 ? "GPU of 80 GB" : "a \"quoted\\\" \033[31mGPU\n");
    if (ordinal == 1) /* its budget shrank below what is in use */
        d->budget_bytes = 50000 * MIB;
}

static void make_object(gvm_object_info *o, unsigned i, unsigned seconds)
{
    static const char *const odd_names[] = {
        "",
        "/quote\"back\\slash",
        "/line\nend",
        "/escape\033[2J\033]0;title\007",
        "/umlaut/\xc3\xa4\xc3\xb6\xc3\xbc",
        "/wide/\xe8\xa1\xa8\xe8\xa1\xa8\xe8\xa1\xa8",
        "/no utf-8/\xff\xc3(",
        "",
    };

    *o = (gvm_object_info){
        .struct_size = sizeof *o,
        .id = 100 + i,
        .size_bytes = (uint64_t)(i + 1) * 640 * MIB,
        .reserve_bytes = (uint64_t)(i + 1) * 1024 * MIB,
        .chunk_bytes = 32 * MIB,
        .device_bytes = (uint64_t)(i * 7 % SAMPLE_OBJECTS) * 64 * MIB,
        .host_bytes = (uint64_t)i * 32 * MIB,
        .dirty_bytes = (uint64_t)(i * 7 % SAMPLE_OBJECTS) * 16 * MIB,
        .duplicate_bytes = (uint64_t)(i * 7 % SAMPLE_OBJECTS) * 48 * MIB,
        .generation = i,
        .acquires = 1000 + 10ull * (i + 1) * seconds,
        .evicted_bytes = i * MIB,
        .owner_uid = i % 3 == 0 ? 0 : 4000000000u,
        .mode = 0640,
        .openings = i % 4,
        .read_leases = i % 5 == 0 ? 3 : 0,
        .write_leases = i % 5 == 1,
        .waiting = i % 9,
        .interrupted = i == 3,
        .device = (int32_t)(i % SAMPLE_DEVICES),
        .sealed = i % 2,
        .kept = i % 3 == 0,
        .moving = i % 7 == 0,
    };
    if (i < sizeof odd_names / sizeof odd_names[0])
        strcpy(o->name, odd_names[i]);
    else
        snprintf(o->name, sizeof o->name, "/sales/2026/q%u", i);
    if (i == 11 || i == 12) /* a model; and what is not sealed, so none */
        memcpy(o->metadata_start, "gvmem-model 1 290 2\033[2J", 23);
    if (i == 13)
        memcpy(o->metadata_start, "gvmem-model 1 290", 17);
    if (i == 20) {
        memset(o->name, 'n', GVM_NAME_BYTES_MAX - 1);
        o->name[0] = '/';
        o->name[GVM_NAME_BYTES_MAX - 1] = '\0';
    }
}

static void make_client(gvm_client_info *c, unsigned i, unsigned seconds)
{
    *c = (gvm_client_info){
        .struct_size = sizeof *c,
        .id = 1 + i,
        .pid = i == 1 ? 5000 : 5000 + (int32_t)i, /* two connections of one process */
        .uid = i % 2 != 0 ? 4294967294u : 0,
        .objects_open = i,
        .committed_bytes = i * 100 * MIB,
        .acquires = 500 + (uint64_t)i * seconds,
        .held_bytes = i == 4 ? 700 * MIB : 0,
        .read_leases = i % 3,
        .cut_off = i == 4,
    };
}

void sample_make(sample_data *out, unsigned seconds, unsigned objects, unsigned clients)
{
    memset(out, 0, sizeof *out);
    out->snapshot.keeper = (gvm_keeper_info){
        .struct_size = sizeof out->snapshot.keeper,
        .pid = 4321,
        .uptime_ms = 100007123 + 1000ull * seconds,
        .host_budget_bytes = 128 * 1024 * MIB,
        .host_used_bytes = 20000 * MIB,
        .host_free_bytes = 1024 * MIB,
        .acquires = 123456789012ull + 1000ull * seconds,
        .slow_acquires = 555 + 5ull * seconds,
        .revokes = 44,
        .cut_offs = 1,
        .interrupted = 1,
        .messages = 99999,
        .faults = 2 + 1ull * seconds,
        .devices = SAMPLE_DEVICES,
        .objects = objects,
        .clients = clients,
    };
    for (unsigned i = 0; i < SAMPLE_DEVICES; i++)
        make_device(&out->devices[i], (int)i, seconds);
    for (unsigned i = 0; i < objects; i++)
        make_object(&out->objects[i], i, seconds);
    for (unsigned i = 0; i < clients; i++)
        make_client(&out->clients[i], i, seconds);
    out->snapshot.devices = out->devices;
    out->snapshot.objects = out->objects;
    out->snapshot.clients = out->clients;
}
