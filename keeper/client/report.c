/* What there is, as the keeper reports it, and the calls for administrators.
 *
 * A snapshot comes as a file of records whose sizes it tells itself. The file is read, not mapped,
 * since the keeper truncates it after SNAPSHOT_READ and when the connection ends, and copied record by
 * record to structs of this library's sizes: what an older keeper does not tell is zeros, what a newer
 * one tells besides is left out.
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
#include "base/struct.h"
#include "keeper/client/client.h"
#include "keeper/protocol/snapshot.h"

/* Far above what a keeper has, and low enough that no sum or product here overflows. */
#define SNAPSHOT_BYTES_MAX (1ull << 30)
#define SNAPSHOT_RECORDS_MAX (1u << 20) /* of one kind */

_Static_assert(4ull * (SNAPSHOT_RECORDS_MAX + 1) * GVMI_STRUCT_BYTES_MAX < UINT64_MAX / 2, "bounds");

/* ---- reading the file */

static gvm_status fail_short(uint64_t done, uint64_t bytes)
{
    return gvmi_fail(GVM_E_KEEPER,
                     "the keeper took its snapshot back when %llu bytes of %llu were read, as it does when it "
                     "cuts a process off: connect anew if the next call on the connection fails, too",
                     (unsigned long long)done, (unsigned long long)bytes);
}

static gvm_status read_file(int fd, uint64_t bytes, char **out)
{
    struct stat found;
    char *copy;

    if (!GVM_CHECK(bytes >= sizeof(gvmi_snapshot_head) && bytes <= SNAPSHOT_BYTES_MAX) ||
        fstat(fd, &found) != 0 || !GVM_CHECK(S_ISREG(found.st_mode)))
        return gvmi_fail(GVM_E_FORMAT, "the keeper's snapshot is no file of %llu bytes",
                         (unsigned long long)bytes);
    if ((uint64_t)found.st_size < bytes)
        return fail_short(0, bytes);
    copy = malloc(bytes);
    if (copy == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a snapshot of %llu bytes",
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
    return bytes >= sizeof(size_t) && bytes <= GVMI_STRUCT_BYTES_MAX;
}

static gvm_status check_head(const gvmi_snapshot_head *head, uint64_t bytes)
{
    uint64_t wanted;

    if (!GVM_CHECK(head->magic == GVMI_SNAPSHOT_MAGIC && head->head_bytes >= sizeof *head &&
                   head->head_bytes <= GVMI_STRUCT_BYTES_MAX))
        return gvmi_fail(GVM_E_FORMAT, "the keeper's snapshot is none");
    if (!GVM_CHECK(is_record_size(head->keeper_bytes) && is_record_size(head->device_bytes) &&
                   is_record_size(head->object_bytes) && is_record_size(head->client_bytes)))
        return gvmi_fail(GVM_E_FORMAT, "the keeper's snapshot has records of %u, %u, %u and %u bytes",
                         head->keeper_bytes, head->device_bytes, head->object_bytes,
                         head->client_bytes);
    if (!GVM_CHECK(head->device_count <= SNAPSHOT_RECORDS_MAX &&
                   head->object_count <= SNAPSHOT_RECORDS_MAX &&
                   head->client_count <= SNAPSHOT_RECORDS_MAX))
        return gvmi_fail(GVM_E_FORMAT, "the keeper's snapshot has %u devices, %u objects, %u clients",
                         head->device_count, head->object_count, head->client_count);
    wanted = (uint64_t)head->head_bytes + head->keeper_bytes +
             (uint64_t)head->device_count * head->device_bytes +
             (uint64_t)head->object_count * head->object_bytes +
             (uint64_t)head->client_count * head->client_bytes;
    if (!GVM_CHECK(wanted <= bytes))
        return gvmi_fail(GVM_E_FORMAT, "the keeper's snapshot is cut short: %llu bytes of %llu",
                         (unsigned long long)bytes, (unsigned long long)wanted);
    return GVM_OK;
}

/* ---- making the snapshot: one allocation, so that destroying it is one call */

typedef struct whole_snapshot {
    gvm_snapshot head; /* first: what the program sees */
    gvm_keeper_device_info *devices;
    gvm_object_info *objects;
    gvm_client_info *clients;
} whole_snapshot;

static gvm_status allocate(const gvmi_snapshot_head *head, whole_snapshot **out)
{
    const size_t devices_at = sizeof(whole_snapshot);
    const size_t objects_at = devices_at + head->device_count * sizeof(gvm_keeper_device_info);
    const size_t clients_at = objects_at + head->object_count * sizeof(gvm_object_info);
    const size_t bytes = clients_at + head->client_count * sizeof(gvm_client_info);
    whole_snapshot *whole = calloc(1, bytes);

    if (whole == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a snapshot of %zu bytes", bytes);
    whole->devices = (gvm_keeper_device_info *)((char *)whole + devices_at);
    whole->objects = (gvm_object_info *)((char *)whole + objects_at);
    whole->clients = (gvm_client_info *)((char *)whole + clients_at);
    whole->head.devices = whole->devices;
    whole->head.objects = whole->objects;
    whole->head.clients = whole->clients;
    *out = whole;
    return GVM_OK;
}

_Static_assert(sizeof(whole_snapshot) % 8 == 0 && sizeof(gvm_keeper_device_info) % 8 == 0 &&
                   sizeof(gvm_object_info) % 8 == 0 && sizeof(gvm_client_info) % 8 == 0,
               "records lie behind each other");

/* One record into a struct of known bytes, which is zeros; returns what lies behind it. */
static const char *take(const char *from, uint32_t record_bytes, void *to, size_t known_bytes)
{
    memcpy(to, from, record_bytes < known_bytes ? record_bytes : known_bytes);
    memcpy(to, &known_bytes, sizeof known_bytes); /* struct_size */
    return from + record_bytes;
}

static void fill(const gvmi_snapshot_head *head, const char *from, whole_snapshot *whole)
{
    from += head->head_bytes;
    from = take(from, head->keeper_bytes, &whole->head.keeper, sizeof whole->head.keeper);
    for (uint32_t i = 0; i < head->device_count; i++) {
        gvm_keeper_device_info *device = &whole->devices[i];

        from = take(from, head->device_bytes, device, sizeof *device);
        device->name[sizeof device->name - 1] = '\0';
    }
    for (uint32_t i = 0; i < head->object_count; i++) {
        gvm_object_info *object = &whole->objects[i];

        from = take(from, head->object_bytes, object, sizeof *object);
        object->name[sizeof object->name - 1] = '\0';
    }
    for (uint32_t i = 0; i < head->client_count; i++)
        from = take(from, head->client_bytes, &whole->clients[i], sizeof whole->clients[i]);
    whole->head.keeper.devices = head->device_count; /* what the arrays have */
    whole->head.keeper.objects = head->object_count;
    whole->head.keeper.clients = head->client_count;
}

static gvm_status parse(const char *bytes, uint64_t len, gvm_snapshot **out)
{
    gvmi_snapshot_head head;
    whole_snapshot *whole = NULL;
    gvm_status status;

    memcpy(&head, bytes, sizeof head);
    status = check_head(&head, len);
    if (status == GVM_OK)
        status = allocate(&head, &whole);
    if (status != GVM_OK)
        return status;
    fill(&head, bytes, whole);
    *out = &whole->head;
    return GVM_OK;
}

/* Copies what came, and tells the keeper in any case that it can free the file. */
static gvm_status copy_snapshot(gvm_client *keeper, int fd, uint64_t bytes, char **out)
{
    gvmi_wire_message message;
    gvm_status status;
    gvm_error error;

    if (fd < 0) {
        status = gvmi_fail(GVM_E_LIMIT,
                           "the process has too many open files for a snapshot: raise ulimit -n");
    } else {
        status = read_file(fd, bytes, out);
        close(fd);
    }
    error = gvmi_error_save();
    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT_READ, 0);
    if (gvmi_client_send(keeper, &message, GVMI_NEVER_NS) != GVM_OK)
        gvmi_client_break(keeper); /* the next call fails, not this one */
    if (status != GVM_OK)
        gvmi_error_restore(&error);
    return status;
}

static gvm_status get_snapshot(gvm_client *keeper, gvm_snapshot **out)
{
    gvmi_wire_message message;
    gvmi_client_request request = {0};
    char *bytes = NULL;
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_SNAPSHOT, 0);
    status = gvmi_client_call(keeper, &message, &request);
    if (status != GVM_OK)
        return status;
    status = copy_snapshot(keeper, request.fd, message.body.SNAPSHOT_IS.value, &bytes);
    if (status != GVM_OK)
        return status;
    status = parse(bytes, message.body.SNAPSHOT_IS.value, out);
    free(bytes);
    return status;
}

gvm_status gvm_client_get_snapshot(gvm_client *handle, gvm_snapshot **out)
{
    GVMI_UNCANCELLED;
    gvm_client *keeper;
    gvm_status status;

    if (out == NULL)
        return gvmi_fail(GVM_E_INVALID, "out is NULL");
    status = gvmi_client_hold(handle, &keeper);
    if (status != GVM_OK)
        return status;
    status = get_snapshot(keeper, out);
    gvmi_client_leave(keeper);
    return status;
}

void gvm_snapshot_destroy(gvm_snapshot *snapshot)
{
    free(snapshot); /* the first member of a whole_snapshot */
}

gvm_status gvm_object_get_info(gvm_object *handle, gvm_object_info *info)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvmi_client_request request = {0};
    gvm_object_info full;
    gvm_object *object;
    gvm_status status = gvmi_object_hold(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_GET_INFO, 0);
    message.body.GET_INFO.slot = object->slot;
    status = gvmi_client_call(object->keeper, &message, &request);
    full = message.body.INFO.info;
    full.address = gvmi_pointer(object->address);
    gvmi_object_leave(object);
    if (status == GVM_OK && !gvmi_struct_out(info, &full, sizeof full, sizeof full))
        status = gvmi_fail(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return status;
}

/* ---- for administrators */

/* Sends what a call comes to, if it was put together; *value, which may be NULL, is DONE's. */
static gvm_status call(gvm_client *handle, gvmi_wire_message *message, gvm_status status, uint64_t *value)
{
    gvmi_client_request request = {0};
    gvm_client *keeper;

    if (status == GVM_OK)
        status = gvmi_client_hold(handle, &keeper);
    if (status != GVM_OK)
        return status;
    status = gvmi_client_call(keeper, message, &request);
    gvmi_client_leave(keeper);
    if (status == GVM_OK && value != NULL)
        *value = message->body.DONE.value;
    return status;
}

/* Of an argument, where nothing is 0. */
static gvm_status check_amount(uint64_t bytes)
{
    return bytes != GVM_BYTES_NONE
               ? GVM_OK
               : gvmi_fail(GVM_E_INVALID, "GVM_BYTES_NONE is for options: an argument is 0");
}

gvm_status gvm_client_evict(gvm_client *keeper, const char *name, uint64_t size_bytes,
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
    return call(keeper, &message, status, evicted_bytes);
}

gvm_status gvm_client_trim(gvm_client *keeper, int32_t keeper_device, uint64_t keep_bytes,
                           uint64_t *freed_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_TRIM, 0);
    message.body.TRIM.device = (uint32_t)keeper_device; /* a negative one is none of the keeper's */
    message.body.TRIM.keep_bytes = keep_bytes;
    return call(keeper, &message, GVM_OK, freed_bytes);
}

gvm_status gvm_client_set_quota(gvm_client *keeper, uint32_t uid, uint64_t quota_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_SET_QUOTA, 0);
    message.body.SET_QUOTA.uid = uid;
    message.body.SET_QUOTA.bytes = quota_bytes;
    return call(keeper, &message, check_amount(quota_bytes), NULL);
}
