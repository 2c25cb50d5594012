/* What there is, as the keeper reports it, and the calls for administrators.
 *
 * A snapshot comes as a file of records whose sizes it contains. The file is read, not mapped,
 * since the keeper truncates it after SNAPSHOT_READ and when the connection ends. Its head is checked once; a
 * record is copied when it is asked for: what an older keeper does not send is zeros, what a newer
 * one sends besides is left out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/struct.h"
#include "keeper/client/client.h"
#include "keeper/protocol/snapshot.h"

/* Far above what a keeper has, and low enough that no sum or product here overflows. */
#define SNAPSHOT_BYTES_MAX (1ull << 30)
#define SNAPSHOT_RECORDS_MAX (1u << 20) /* of one kind */

_Static_assert(5ull * (SNAPSHOT_RECORDS_MAX + 1) * GVMI_STRUCT_BYTES_MAX < UINT64_MAX / 2, "bounds");
_Static_assert(GVM_NAME_BYTES_MAX == GVMI_SNAPSHOT_NAME_BYTES, "names");

struct gvm_snapshot {
    gvmi_snapshot_head head; /* checked */
    char *bytes;             /* the file as it came */
};

/* ---- reading the file */

static gvm_status fail_short(uint64_t done, uint64_t bytes)
{
    return gvm_error_set(
        GVM_E_KEEPER,
        "the keeper took its snapshot back when %llu bytes of %llu were read, as it does when it "
        "cuts a process off: connect anew if the next call on the connection fails, too",
        (unsigned long long)done, (unsigned long long)bytes);
}

static gvm_status read_snapshot_file(int fd, uint64_t bytes, char **out)
{
    struct stat found;
    char *copy;

    if (!GVM_CHECK(bytes >= sizeof(gvmi_snapshot_head) && bytes <= SNAPSHOT_BYTES_MAX) ||
        fstat(fd, &found) != 0 || !GVM_CHECK(S_ISREG(found.st_mode)))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's snapshot is no file of %llu bytes",
                             (unsigned long long)bytes);
    if ((uint64_t)found.st_size < bytes)
        return fail_short(0, bytes);
    copy = malloc(bytes);
    if (copy == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a snapshot of %llu bytes",
                             (unsigned long long)bytes);
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, copy + done, bytes - done, (off_t)done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(copy);
            return got < 0
                       ? gvmi_fail_system(GVM_E_SYSTEM, errno, "pread", "cannot read the snapshot")
                       : fail_short(done, bytes);
        }
        done += (uint64_t)got;
    }
    *out = copy;
    return GVM_OK;
}

static bool is_record_size(uint32_t bytes)
{
    return bytes > 0 && bytes <= GVMI_STRUCT_BYTES_MAX;
}

static gvm_status check_head(const gvmi_snapshot_head *head, uint64_t bytes)
{
    uint64_t wanted;

    if (!GVM_CHECK(head->magic == GVMI_SNAPSHOT_MAGIC && head->head_bytes >= sizeof *head &&
                   head->head_bytes <= GVMI_STRUCT_BYTES_MAX))
        return gvm_error_set(GVM_E_FORMAT, "what the keeper sent is no snapshot");
    if (!GVM_CHECK(is_record_size(head->keeper_bytes) && is_record_size(head->device_bytes) &&
                   is_record_size(head->object_bytes) && is_record_size(head->client_bytes) &&
                   is_record_size(head->user_bytes)))
        return gvm_error_set(GVM_E_FORMAT,
                             "the keeper's snapshot has records of %u, %u, %u, %u and %u bytes",
                             head->keeper_bytes, head->device_bytes, head->object_bytes,
                             head->client_bytes, head->user_bytes);
    if (!GVM_CHECK(
            head->device_count <= SNAPSHOT_RECORDS_MAX && head->object_count <= SNAPSHOT_RECORDS_MAX &&
            head->client_count <= SNAPSHOT_RECORDS_MAX && head->user_count <= SNAPSHOT_RECORDS_MAX))
        return gvm_error_set(
            GVM_E_FORMAT, "the keeper's snapshot has %u devices, %u objects, %u clients, %u users",
            head->device_count, head->object_count, head->client_count, head->user_count);
    wanted = (uint64_t)head->head_bytes + head->keeper_bytes +
             (uint64_t)head->device_count * head->device_bytes +
             (uint64_t)head->object_count * head->object_bytes +
             (uint64_t)head->client_count * head->client_bytes +
             (uint64_t)head->user_count * head->user_bytes;
    if (!GVM_CHECK(wanted <= bytes))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's snapshot is cut short: %llu bytes of %llu",
                             (unsigned long long)bytes, (unsigned long long)wanted);
    return GVM_OK;
}

/* Copies what came, and informs the keeper in any case that it can free the file. */
static gvm_status copy_snapshot(gvm_client *client, int fd, uint64_t bytes, char **out)
{
    gvmi_wire_message message;
    gvm_status status;
    gvm_error error;

    if (fd < 0) {
        status = gvm_error_set(GVM_E_LIMIT,
                               "the process has too many open files for a snapshot: raise ulimit -n");
    } else {
        status = read_snapshot_file(fd, bytes, out);
        close(fd);
    }
    error = gvmi_error_save();
    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT_READ, 0);
    if (gvmi_client_send(client, &message, GVMI_NEVER_NS) != GVM_OK)
        gvmi_client_break(client); /* the next call fails, not this one */
    if (status != GVM_OK)
        gvm_error_restore(&error);
    return status;
}

/* Takes over bytes on success. */
static gvm_status new_snapshot(char *bytes, uint64_t len, gvm_snapshot **out)
{
    gvmi_snapshot_head head;
    gvm_snapshot *snapshot;
    gvm_status status;

    memcpy(&head, bytes, sizeof head);
    status = check_head(&head, len);
    if (status != GVM_OK)
        return status;
    snapshot = malloc(sizeof *snapshot);
    if (snapshot == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a snapshot");
    *snapshot = (gvm_snapshot){.head = head, .bytes = bytes};
    status = gvmi_registry_add(GVMI_KIND_SNAPSHOT, gvmi_key(snapshot), snapshot);
    if (status == GVM_OK)
        *out = snapshot;
    else
        free(snapshot);
    return status;
}

static gvm_status get_snapshot(gvm_client *client, gvm_snapshot **out)
{
    gvmi_wire_message message;
    gvmi_client_request request = {0};
    char *bytes = NULL;
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT, 0);
    status = gvmi_client_call(client, &message, &request);
    if (status != GVM_OK)
        return status;
    status = copy_snapshot(client, request.fd, message.body.SNAPSHOT_IS.value, &bytes);
    if (status == GVM_OK)
        status = new_snapshot(bytes, message.body.SNAPSHOT_IS.value, out);
    if (status != GVM_OK)
        free(bytes);
    return status;
}

gvm_status gvm_client_get_snapshot(gvm_client *handle, gvm_snapshot **out)
{
    GVMI_UNCANCELLED;
    gvm_client *client;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_client_enter(handle, &client);
    if (status != GVM_OK)
        return status;
    status = get_snapshot(client, out);
    gvmi_client_leave(client);
    return status;
}

void gvm_snapshot_destroy(gvm_snapshot *handle)
{
    GVMI_UNCANCELLED;
    const gvm_error error = gvmi_error_save();
    gvm_snapshot *snapshot;
    void *found;

    if (handle != NULL && gvmi_registry_remove(GVMI_KIND_SNAPSHOT, gvmi_key(handle), &found) == GVM_OK) {
        snapshot = found;
        free(snapshot->bytes);
        gvmi_registry_retire(snapshot);
    }
    gvm_error_restore(&error);
}

/* ---- its records */

typedef enum record_kind {
    RECORD_KEEPER,
    RECORD_DEVICE,
    RECORD_OBJECT,
    RECORD_CLIENT,
    RECORD_USER
} record_kind;

/* Copies a record to a struct of known bytes; the rest of the shorter one is zeros, or left out.
 *
 * GVM_E_INVALID, GVM_E_FOREIGN */
static gvm_status get_record(const gvm_snapshot *handle, record_kind kind, uint32_t index,
                             void *record, size_t known_bytes, gvmi_snapshot_head *head)
{
    static const char *const names[] = {"keeper", "device", "object", "client", "user"};
    const gvm_snapshot *snapshot;
    void *found;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_SNAPSHOT, gvmi_key(handle), &found);

    if (status != GVM_OK)
        return status;
    snapshot = found;
    *head = snapshot->head;
    {
        const uint32_t counts[] = {1, head->device_count, head->object_count, head->client_count,
                                   head->user_count};
        const uint32_t sizes[] = {head->keeper_bytes, head->device_bytes, head->object_bytes,
                                  head->client_bytes, head->user_bytes};
        const char *at = snapshot->bytes + head->head_bytes;

        for (int before = 0; before < (int)kind; before++)
            at += (size_t)counts[before] * sizes[before];
        memset(record, 0, known_bytes);
        if (index < counts[kind])
            memcpy(record, at + (size_t)index * sizes[kind],
                   sizes[kind] < known_bytes ? sizes[kind] : known_bytes);
        else
            status = gvm_error_set(GVM_E_INVALID, "there is no %s %u: the snapshot has %u",
                                   names[kind], (unsigned)index, (unsigned)counts[kind]);
    }
    gvmi_registry_drop(GVMI_KIND_SNAPSHOT, gvmi_key(handle));
    return status;
}

static gvm_status give(void *info, const void *full, size_t bytes)
{
    return gvmi_struct_out(info, full, bytes, bytes)
               ? GVM_OK
               : gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
}

gvm_status gvm_snapshot_get_keeper(const gvm_snapshot *snapshot, gvm_keeper_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_snapshot_head head;
    gvmi_snapshot_keeper r;
    gvm_status status = get_record(snapshot, RECORD_KEEPER, 0, &r, sizeof r, &head);
    const gvm_keeper_info full = {
        .pid = r.pid,
        .uptime_ms = r.uptime_ms,
        .host_budget_bytes = r.host_budget_bytes,
        .host_used_bytes = r.host_used_bytes,
        .host_free_bytes = r.host_free_bytes,
        .acquires = r.acquires,
        .slow_acquires = r.slow_acquires,
        .revokes = r.revokes,
        .timeouts = r.timeouts,
        .cut_offs = r.cut_offs,
        .interrupted = r.interrupted,
        .messages = r.messages,
        .faults = r.faults,
        .devices = head.device_count, /* what there are records of */
        .objects = head.object_count,
        .clients = head.client_count,
        .users = head.user_count,
    };

    return status == GVM_OK ? give(info, &full, sizeof full) : status;
}

gvm_status gvm_snapshot_get_device(const gvm_snapshot *snapshot, uint32_t index,
                                   gvm_keeper_device_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_snapshot_head head;
    gvmi_snapshot_device r;
    gvm_status status = get_record(snapshot, RECORD_DEVICE, index, &r, sizeof r, &head);
    gvm_keeper_device_info full = {
        .ordinal = r.ordinal,
        .objects = r.objects,
        .budget_bytes = r.budget_bytes,
        .resident_bytes = r.resident_bytes,
        .free_bytes = r.free_bytes,
        .leased_bytes = r.leased_bytes,
        .dirty_bytes = r.dirty_bytes,
        .held_bytes = r.held_bytes,
        .host_backed_bytes = r.host_backed_bytes,
        .evictions = r.evictions,
        .promotions = r.promotions,
        .evicted_bytes = r.evicted_bytes,
        .promoted_bytes = r.promoted_bytes,
        .driver_free_bytes = r.driver_free_bytes,
        .driver_total_bytes = r.driver_total_bytes,
        .lent_bytes = r.lent_bytes,
    };

    if (status != GVM_OK)
        return status;
    memcpy(full.uuid, r.uuid, sizeof full.uuid);
    memcpy(full.name, r.name, sizeof full.name - 1);
    return give(info, &full, sizeof full);
}

static void fill_object_info(const gvmi_snapshot_object *r, gvm_object_info *full)
{
    *full = (gvm_object_info){
        .id = r->id,
        .size_bytes = r->size_bytes,
        .reserve_bytes = r->reserve_bytes,
        .chunk_bytes = r->chunk_bytes,
        .device_bytes = r->device_bytes,
        .host_bytes = r->host_bytes,
        .lent_bytes = r->lent_bytes,
        .duplicate_bytes = r->duplicate_bytes,
        .dirty_bytes = r->dirty_bytes,
        .generation = r->generation,
        .acquires = r->acquires,
        .evicted_bytes = r->evicted_bytes,
        .promoted_bytes = r->promoted_bytes,
        .owner_uid = r->owner_uid,
        .owner_gid = r->owner_gid,
        .mode = r->mode,
        .openings = r->openings,
        .read_leases = r->read_leases,
        .write_leases = r->write_leases,
        .waiting = r->waiting,
        .interrupted = r->interrupted,
        .device = r->device,
        .local_device = -1,
        .metadata_bytes = r->metadata_bytes,
        .sealed = r->sealed,
        .kept = r->kept,
        .moving = r->moving,
        .untracked = r->untracked,
        .fenced = r->fenced,
        .foreign = r->foreign,
    };
    memcpy(full->name, r->name, sizeof full->name - 1);
    memcpy(full->metadata_start, r->metadata_start, sizeof full->metadata_start);
}

gvm_status gvm_snapshot_get_object(const gvm_snapshot *snapshot, uint32_t index, gvm_object_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_snapshot_head head;
    gvmi_snapshot_object r;
    gvm_object_info full;
    gvm_status status = get_record(snapshot, RECORD_OBJECT, index, &r, sizeof r, &head);

    if (status != GVM_OK)
        return status;
    fill_object_info(&r, &full);
    return give(info, &full, sizeof full);
}

gvm_status gvm_snapshot_get_client(const gvm_snapshot *snapshot, uint32_t index, gvm_client_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_snapshot_head head;
    gvmi_snapshot_client r = {0};
    gvm_status status = get_record(snapshot, RECORD_CLIENT, index, &r, sizeof r, &head);
    const gvm_client_info full = {
        .id = r.id,
        .pid = r.pid,
        .uid = r.uid,
        .gid = r.gid,
        .objects_open = r.objects_open,
        .committed_bytes = r.committed_bytes,
        .acquires = r.acquires,
        .held_bytes = r.held_bytes,
        .read_leases = r.read_leases,
        .write_leases = r.write_leases,
        .cut_off = r.cut_off,
    };

    return status == GVM_OK ? give(info, &full, sizeof full) : status;
}

gvm_status gvm_snapshot_get_user(const gvm_snapshot *snapshot, uint32_t index, gvm_user_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_snapshot_head head;
    gvmi_snapshot_user r = {0};
    gvm_status status = get_record(snapshot, RECORD_USER, index, &r, sizeof r, &head);
    const gvm_user_info full = {
        .uid = r.uid,
        .quota_bytes = r.quota_bytes,
        .committed_bytes = r.committed_bytes,
        .held_bytes = r.held_bytes,
    };

    return status == GVM_OK ? give(info, &full, sizeof full) : status;
}

/* ---- one object */

gvm_status gvmi_client_get_object_info(gvm_object *object, int64_t deadline_ns, gvm_object_info *info)
{
    gvmi_wire_message message;
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_GET_INFO, 0);
    message.body.GET_INFO.slot = object->slot;
    status = gvmi_client_call_until(object->client, &message, object, 0, deadline_ns);
    if (status != GVM_OK)
        return status;
    fill_object_info(&message.body.INFO.info, info);
    info->address = gvmi_pointer(object->address);
    if (object->buffer != NULL)
        info->local_device = object->buffer->device->info.ordinal;
    return GVM_OK;
}

gvm_status gvm_object_get_info(gvm_object *handle, gvm_object_info *info)
{
    GVMI_UNCANCELLED;
    gvm_object_info full;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    status = gvmi_client_get_object_info(object, GVMI_NEVER_NS, &full);
    gvmi_object_leave(object);
    return status == GVM_OK ? give(info, &full, sizeof full) : status;
}

static gvm_status list_chunks(gvm_client *client, const char *name, uint64_t first,
                              uint64_t capacity, uint8_t *states, uint64_t *count)
{
    uint64_t done = 0, total;

    do {
        gvmi_wire_message message;
        gvmi_client_request request = {0};
        gvm_status status;

        gvmi_wire_start(&message, GVMI_WIRE_LIST_CHUNKS, 0);
        message.body.LIST_CHUNKS.value = first + done;
        memcpy(message.body.LIST_CHUNKS.name, name, strlen(name));
        status = gvmi_client_call(client, &message, &request);
        if (status != GVM_OK)
            return status;
        total = message.body.CHUNK_STATES.value > first ? message.body.CHUNK_STATES.value - first : 0;
        if (message.head.tail_bytes == 0) /* the object has shrunk meanwhile, or there are none */
            break;
        if (capacity > 0)
            memcpy(states + done, message.tail.bytes,
                   gvmi_min(message.head.tail_bytes, capacity - done));
        done += message.head.tail_bytes;
    } while (done < gvmi_min(total, capacity));
    *count = total;
    return GVM_OK;
}

gvm_status gvm_client_list_chunks(gvm_client *handle, const char *name, uint64_t first,
                                  uint64_t capacity, uint8_t *states, uint64_t *count)
{
    GVMI_UNCANCELLED;
    gvm_client *client;
    gvm_status status = gvmi_wire_check_name(name);

    if (status == GVM_OK && (count == NULL || (states == NULL && capacity > 0)))
        status = gvm_error_set(GVM_E_INVALID, "states or count is NULL");
    if (status == GVM_OK)
        status = gvmi_client_enter(handle, &client);
    if (status != GVM_OK)
        return status;
    status = list_chunks(client, name, first, capacity, states, count);
    gvmi_client_leave(client);
    return status;
}

/* ---- for administrators */

/* Sends what a call comes to, if it was put together; *value, which may be NULL, is DONE's. */
static gvm_status send_report_call(gvm_client *handle, gvmi_wire_message *message,
                                   gvm_status status, uint64_t *value)
{
    gvmi_client_request request = {0};
    gvm_client *client;

    if (status == GVM_OK)
        status = gvmi_client_enter(handle, &client);
    if (status != GVM_OK)
        return status;
    status = gvmi_client_call(client, message, &request);
    gvmi_client_leave(client);
    if (status == GVM_OK && value != NULL)
        *value = message->body.DONE.value;
    return status;
}

/* Of an argument, where nothing is 0. */
static gvm_status check_amount(uint64_t bytes)
{
    return bytes != GVM_BYTES_NONE
               ? GVM_OK
               : gvm_error_set(GVM_E_INVALID,
                               "GVM_BYTES_NONE is for members of options: as an argument pass 0");
}

gvm_status gvm_client_evict(gvm_client *client, const char *name, uint64_t size_bytes,
                            uint64_t *evicted_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_status status = gvmi_wire_check_name(name);

    gvmi_wire_start(&message, GVMI_WIRE_EVICT, 0);
    message.body.EVICT.value = size_bytes;
    if (status == GVM_OK)
        status = check_amount(size_bytes);
    if (status == GVM_OK)
        memcpy(message.body.EVICT.name, name, strlen(name));
    return send_report_call(client, &message, status, evicted_bytes);
}

gvm_status gvm_client_trim(gvm_client *client, int32_t keeper_device, uint64_t keep_bytes,
                           uint64_t *freed_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_TRIM, 0);
    message.body.TRIM.device = (uint32_t)keeper_device; /* a negative one is none of the keeper's */
    message.body.TRIM.keep_bytes = keep_bytes;
    return send_report_call(client, &message, GVM_OK, freed_bytes);
}

gvm_status gvm_client_set_quota(gvm_client *client, uint32_t uid, uint64_t quota_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_SET_QUOTA, 0);
    message.body.SET_QUOTA.uid = uid;
    message.body.SET_QUOTA.bytes = quota_bytes;
    return send_report_call(client, &message, check_amount(quota_bytes), NULL);
}
