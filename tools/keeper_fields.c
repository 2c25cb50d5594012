/* The members of a snapshot's records, and their JSON. */
#include "tools/keeper_fields.h"

#include <string.h>

#include "tools/tool.h"

/* clang-format off */
#define FIELD(type, member, kind, metric, help) {#member, KEEPER_##kind, offsetof(type, member), metric, help}
#define COUNT(array) (sizeof (array) / sizeof (array)[0])

#define K(member, kind, metric, help) FIELD(gvm_keeper_info, member, kind, metric, help)
static const keeper_field keeper_fields[] = {
    K(pid, U64, NULL, NULL),
    K(uptime_ms, MS, "uptime_seconds", "Time since the keeper started."),
    K(host_budget_bytes, BYTES, "host_budget_bytes", "Host memory that the keeper may use."),
    K(host_used_bytes, BYTES, "host_used_bytes", "Host memory that holds chunks of objects."),
    K(host_free_bytes, BYTES, "host_free_bytes", "Host memory of the budget that is kept free."),
    K(acquires, U64, "acquires_total", "Leases asked for, on the fast path too."),
    K(slow_acquires, U64, "slow_acquires_total", "Leases asked for by a message to the keeper."),
    K(revokes, U64, "revokes_total", "Times that permits were withdrawn."),
    K(timeouts, U64, "timeouts_total", "Acquires that ran out of time."),
    K(cut_offs, U64, "cut_offs_total", "Clients that were cut off."),
    K(interrupted, U64, "interrupted_total", "Writers that ended under a write lease."),
    K(messages, U64, "messages_total", "Messages from clients."),
    K(faults, U64, "faults_total", "Protocol violations by clients."),
    K(devices, U32, "devices", "Devices served."),
    K(objects, U32, "objects", "Objects that the caller may see."),
    K(clients, U32, "clients", "Connections."),
};
#undef K

#define D(member, kind, metric, help) FIELD(gvm_keeper_device_info, member, kind, metric, help)
static const keeper_field device_fields[] = {
    D(ordinal, I32, NULL, NULL),
    D(name, TEXT, NULL, NULL),
    D(uuid, UUID, NULL, NULL),
    D(objects, U32, "objects", "Objects of the device."),
    D(budget_bytes, BYTES, "budget_bytes", "Device memory that the keeper may use."),
    D(resident_bytes, BYTES, "resident_bytes", "Device memory that holds chunks of objects."),
    D(free_bytes, BYTES, "free_bytes", "Device memory of the budget that is kept free."),
    D(leased_bytes, BYTES, "leased_bytes", "Device memory of objects under a lease."),
    D(dirty_bytes, BYTES, "dirty_bytes", "Device memory without a clean copy on the host."),
    D(held_bytes, BYTES, "held_bytes", "Device memory held by clients that were cut off."),
    D(lent_bytes, BYTES, "lent_bytes", "Device memory that holds chunks of other devices' objects."),
    D(host_backed_bytes, BYTES, "host_backed_bytes", "Bytes of the device's objects that are in host memory alone."),
    D(evictions, U64, "evictions_total", "Chunks moved from the device to host memory, or to memory that others lend."),
    D(promotions, U64, "promotions_total", "Chunks moved to the device."),
    D(evicted_bytes, BYTES, "evicted_bytes_total", "Bytes moved likewise."),
    D(promoted_bytes, BYTES, "promoted_bytes_total", "Bytes moved to the device."),
    D(driver_free_bytes, BYTES, "driver_free_bytes", "Device memory free for all programs, says the driver."),
    D(driver_total_bytes, BYTES, "driver_total_bytes", "Device memory in all, says the driver."),
};
#undef D

#define O(member, kind, metric, help) FIELD(gvm_object_info, member, kind, metric, help)
static const keeper_field object_fields[] = {
    O(name, TEXT, NULL, NULL),
    O(id, U64, NULL, NULL),
    O(device, I32, NULL, NULL),
    O(owner_uid, U32, NULL, NULL),
    O(owner_gid, U32, NULL, NULL),
    O(mode, MODE, NULL, NULL),
    O(size_bytes, BYTES, "bytes", "Committed bytes of the object."),
    O(reserve_bytes, BYTES, "reserve_bytes", "Bytes to which the object can grow."),
    O(chunk_bytes, BYTES, "chunk_bytes", "Size of the object's chunks."),
    O(device_bytes, BYTES, "device_bytes", "Bytes of the object on the device."),
    O(host_bytes, BYTES, "host_bytes", "Bytes of the object in host memory alone."),
    O(lent_bytes, BYTES, "lent_bytes", "Bytes of the object in memory that other devices lend."),
    O(duplicate_bytes, BYTES, "duplicate_bytes", "Bytes on the device with a clean copy in host memory."),
    O(dirty_bytes, BYTES, "dirty_bytes", "Bytes on the device without a clean copy in host memory."),
    O(generation, U64, NULL, NULL),
    O(acquires, U64, "acquires_total", "Leases asked for that the keeper has seen."),
    O(evicted_bytes, BYTES, "evicted_bytes_total", "Bytes moved from the device to host memory, or to memory that others lend."),
    O(promoted_bytes, BYTES, "promoted_bytes_total", "Bytes moved to the device."),
    O(openings, U32, "openings", "Openings by all connections."),
    O(read_leases, U32, "read_leases", "Read leases held."),
    O(write_leases, U32, "write_leases", "Write leases held."),
    O(waiting, U32, "waiting", "Acquires that wait."),
    O(interrupted, U32, "interrupted_total", "Writers that ended under a write lease."),
    O(metadata_bytes, U32, NULL, NULL),
    O(sealed, BOOL, "sealed", "1: read-only for good."),
    O(kept, BOOL, "kept", "1: outlives its creator."),
    O(untracked, BOOL, "untracked", "1: read leases allow writing."),
    O(fenced, BOOL, "fenced", "1: no lease before a copy is made, as a process that was cut off may write to it."),
    O(foreign, BOOL, "foreign", "1: processes of other users were sent memory of it."),
    O(moving, BOOL, "moving", "1: chunks are being moved."),
};
#undef O

#define C(member, kind, metric, help) FIELD(gvm_client_info, member, kind, metric, help)
static const keeper_field client_fields[] = {
    C(id, U64, NULL, NULL),
    C(pid, I32, NULL, NULL),
    C(uid, U32, NULL, NULL),
    C(gid, U32, NULL, NULL),
    C(objects_open, U32, "objects_open", "Objects that the client has open."),
    C(committed_bytes, BYTES, "committed_bytes", "Bytes of the objects that the client created."),
    C(acquires, U64, "acquires_total", "Leases asked for that the keeper has seen."),
    C(held_bytes, BYTES, "held_bytes", "Bytes taken from the client that it has not released."),
    C(read_leases, U32, "read_leases", "Read leases held."),
    C(write_leases, U32, "write_leases", "Write leases held."),
    C(cut_off, BOOL, "cut_off", "1: the keeper has cut it off and waits for its process to end."),
};
#undef C
/* clang-format on */

const keeper_table keeper_of_keeper = {"gvmem_keeper_", keeper_fields, COUNT(keeper_fields),
                                       sizeof(gvm_keeper_info)};
const keeper_table keeper_of_device = {"gvmem_keeper_device_", device_fields, COUNT(device_fields),
                                       sizeof(gvm_keeper_device_info)};
const keeper_table keeper_of_object = {"gvmem_keeper_object_", object_fields, COUNT(object_fields),
                                       sizeof(gvm_object_info)};
const keeper_table keeper_of_client = {"gvmem_keeper_client_", client_fields, COUNT(client_fields),
                                       sizeof(gvm_client_info)};

uint64_t keeper_number(const keeper_field *field, const void *record)
{
    const char *at = (const char *)record + field->offset;
    uint64_t u64;
    uint32_t u32;
    int32_t i32;

    switch (field->type) {
    case KEEPER_BOOL: return *(const uint8_t *)at;
    case KEEPER_I32: memcpy(&i32, at, sizeof i32); return (uint64_t)(int64_t)i32;
    case KEEPER_U32:
    case KEEPER_MODE: memcpy(&u32, at, sizeof u32); return u32;
    case KEEPER_U64:
    case KEEPER_BYTES:
    case KEEPER_MS: memcpy(&u64, at, sizeof u64); return u64;
    case KEEPER_TEXT:
    case KEEPER_UUID: break;
    }
    return 0;
}

void keeper_json_fields(json *j, const keeper_table *table, const void *record)
{
    char uuid[48];

    for (size_t i = 0; i < table->field_count; i++) {
        const keeper_field *field = &table->fields[i];
        const char *at = (const char *)record + field->offset;

        switch (field->type) {
        case KEEPER_TEXT: json_string(j, field->name, at); break;
        case KEEPER_UUID:
            json_string(j, field->name, tool_uuid_text((const uint8_t *)at, uuid));
            break;
        case KEEPER_BOOL: json_bool(j, field->name, keeper_number(field, record) != 0); break;
        case KEEPER_I32: json_integer(j, field->name, (int64_t)keeper_number(field, record)); break;
        default: json_unsigned(j, field->name, keeper_number(field, record)); break;
        }
    }
}

static void json_records(json *j, const char *key, const keeper_table *table, const void *records,
                         uint32_t count)
{
    json_array(j, key);
    for (uint32_t i = 0; i < count; i++) {
        json_object(j, NULL);
        keeper_json_fields(j, table, (const char *)records + i * table->record_bytes);
        json_end(j);
    }
    json_end(j);
}

void keeper_json(FILE *out, const snapshot_copy *s)
{
    json j;

    json_start(&j, out);
    json_object(&j, NULL);
    json_object(&j, "keeper");
    keeper_json_fields(&j, &keeper_of_keeper, &s->keeper);
    json_end(&j);
    json_records(&j, "devices", &keeper_of_device, s->devices, s->keeper.devices);
    json_records(&j, "objects", &keeper_of_object, s->objects, s->keeper.objects);
    json_records(&j, "clients", &keeper_of_client, s->clients, s->keeper.clients);
    json_end(&j);
}
