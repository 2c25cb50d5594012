/* What the mapper does with OPENED and MAP: it puts chunks at their places.
 *
 * Nothing here waits for kernels. A MAP takes memory away from nobody who has a lease: the keeper
 * saw to that, except where a MAP fails. Then nothing of the object may stay mapped, and if it was a
 * growth, there may be leases. The object is then not shown any more, so that no further lease is
 * granted, and vacated and the MAP answered once the last lease has ended; the mapper looks every
 * few milliseconds. (A lease word of another thread's failed attempt only puts that off.) The next lease that is
 * asked for has the keeper map all of it anew.
 *
 * Mapping takes the driver far longer than unmapping, and the keeper has use for what is unmapped. So
 * a MAP is taken in two steps: what it replaces goes at once, and UNMAPPED is sent; what is new is
 * pending, and mapped in the order of the MAPs, once there is no further MAP to be read. A burst of MAPs
 * is thus unmapped to its end before the first of them is mapped, and one that comes while a large one is
 * being mapped waits for no more than a slice of it. Messages of other kinds come when nothing is pending,
 * so that a reply finds done what was sent before it; but for those that are not about this process's
 * memory.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/options.h"
#include "base/size.h"
#include "base/text.h"
#include "keeper/client/client.h"
#include "sharing/share.h"

/* ---- what is shown */

static void broadcast_changed(gvm_client *client)
{
    gvmi_lock(&client->lock);
    pthread_cond_broadcast(&client->changed);
    gvmi_unlock(&client->lock);
}

/* Shows size and generation once every chunk below that size is mapped. */
static void publish_mapped_size(gvm_object *object)
{
    const gvmi_chunk *chunks = object->buffer->chunks;

    while (object->keeps_mapped && object->mapped_chunks < object->chunk_count &&
           chunks[object->mapped_chunks].tier != GVM_TIER_ABSENT)
        object->mapped_chunks++;
    if (object->keeps_mapped && object->mapped_chunks < object->chunk_count &&
        object->mapped_chunks * object->chunk_bytes < object->wanted_bytes)
        return;
    atomic_store(&object->shown_bytes, object->wanted_bytes);
    atomic_store(&object->shown_generation, (int64_t)object->wanted_generation);
    broadcast_changed(object->client);
}

/* No lease is granted any more, for the reason in the thread's error. */
static void fail_object(gvm_object *object)
{
    gvm_client *client = object->client;

    atomic_store(&object->shown_generation, GVMI_NOT_SHOWN);
    gvmi_lock(&client->lock);
    object->failure = gvmi_error_save();
    pthread_cond_broadcast(&client->changed);
    gvmi_unlock(&client->lock);
}

gvm_status gvmi_client_wait_shown(gvm_object *object, uint32_t generation, int64_t deadline_ns)
{
    gvm_client *client = object->client;
    gvm_error error = {.status = GVM_OK};
    bool late = false;

    gvmi_lock(&client->lock);
    while (atomic_load(&object->shown_generation) < (int64_t)generation) {
        error = object->failure.status != GVM_OK ? object->failure : client->loss;
        if (error.status != GVM_OK)
            break;
        if (late) {
            gvm_error_set(GVM_E_TIMEOUT,
                          "the keeper (process %u) has not sent all of the object's memory",
                          client->keeper_pid);
            error = gvmi_error_save();
            break;
        }
        late = !gvmi_wait_until(&client->changed, &client->lock, deadline_ns);
    }
    gvmi_unlock(&client->lock);
    if (error.status != GVM_OK)
        gvm_error_restore(&error);
    return error.status;
}

/* ---- answers */

static gvm_status send_mapped(gvm_object *object, uint64_t serial, gvm_status result)
{
    gvmi_wire_message mapped;

    gvmi_wire_start(&mapped, GVMI_WIRE_MAPPED, 0);
    mapped.body.MAPPED = (gvmi_wire_mapped){
        .slot = object->slot,
        .status = (uint32_t)result,
        .serial = serial,
        .address = object->address,
    };
    return gvmi_client_send(object->client, &mapped, GVMI_NEVER_NS);
}

static gvm_status send_unmapped(gvm_object *object, uint64_t serial)
{
    gvmi_wire_message unmapped;

    gvmi_wire_start(&unmapped, GVMI_WIRE_UNMAPPED, 0);
    unmapped.body.UNMAPPED = (gvmi_wire_unmapped){.slot = object->slot, .serial = serial};
    return gvmi_client_send(object->client, &unmapped, GVMI_NEVER_NS);
}

static gvm_status send_failures(gvm_object *object)
{
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < object->unanswered_count && status == GVM_OK; i++)
        status = send_mapped(object, object->unanswered[i], object->failure.status);
    object->unanswered_count = 0;
    gvmi_lock(&object->client->lock);
    object->retriable = status == GVM_OK;
    gvmi_unlock(&object->client->lock);
    return status;
}

bool gvmi_client_may_retry(gvm_object *object)
{
    bool retriable;

    gvmi_lock(&object->client->lock);
    retriable = object->retriable;
    gvmi_unlock(&object->client->lock);
    return retriable;
}

/* The keeper maps all of a failed object once more. */
static void begin_anew(gvm_object *object)
{
    gvmi_lock(&object->client->lock);
    if (object->retriable) {
        object->retriable = object->vacated = false;
        object->failure.status = GVM_OK;
        object->mapped_chunks = 0;
        object->taken_bytes = object->wanted_bytes = object->wanted_generation = 0;
    }
    gvmi_unlock(&object->client->lock);
}

/* Takes everything of a failed object away, unless there are leases, and then says so. */
static gvm_status try_unmap_object(gvm_object *object)
{
    gvm_buffer *buffer = object->buffer;
    gvm_status status = GVM_OK;

    if (!object->vacated) {
        if (gvmi_lease_any(atomic_load(&object->lease->word)))
            return GVM_OK;
        gvmi_lock(&buffer->lock);
        status = gvmi_buffer_vacate_locked(buffer, 0, buffer->chunk_count);
        gvmi_unlock(&buffer->lock);
        object->vacated = status == GVM_OK;
    }
    return status == GVM_OK ? send_failures(object) : status;
}

static gvm_status defer_map_answer(gvm_object *object, uint64_t serial)
{
    uint64_t *serials;

    if (object->unanswered_count == GVMI_CLIENT_UNANSWERED_MAX)
        return gvm_error_set(GVM_E_LIMIT, "too many MAPs wait for the leases on an object to end");
    serials = realloc(object->unanswered, (object->unanswered_count + 1) * sizeof *serials);
    if (serials == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for an answer to the keeper");
    object->unanswered = serials;
    serials[object->unanswered_count++] = serial;
    return GVM_OK;
}

/* ---- MAP */

static gvm_status check_map_chunks(const gvm_object *object, const gvmi_wire_map *map,
                                   const gvmi_wire_chunk *chunks, uint32_t count)
{
    if (!GVM_CHECK(map->serial > object->serial))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's MAP has serial %llu behind %llu",
                             (unsigned long long)map->serial, (unsigned long long)object->serial);
    if (!GVM_CHECK(map->bytes <= object->reserve_bytes))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's MAP leaves the object: %llu bytes of %llu",
                             (unsigned long long)map->bytes,
                             (unsigned long long)object->reserve_bytes);
    if (!GVM_CHECK(count == 0 || chunks[count - 1].index < object->chunk_count)) /* indices rise */
        return gvm_error_set(GVM_E_FORMAT, "the keeper's MAP leaves the object: chunk %u of %llu",
                             chunks[count - 1].index, (unsigned long long)object->chunk_count);
    return GVM_OK;
}

/* Of the chunks of a MAP those that are to be absent. */
static gvm_status unmap_absent_chunks(gvm_object *object, const gvmi_wire_chunk *chunks,
                                      uint32_t count, gvmi_patch *patch)
{
    gvm_buffer *buffer = object->buffer;
    gvm_status status = GVM_OK;

    gvmi_lock(&buffer->lock);
    for (uint32_t i = 0; i < count && status == GVM_OK;) {
        const uint64_t first = chunks[i].index;
        uint64_t end = first;

        if (chunks[i].tier != GVM_TIER_ABSENT) {
            i++;
            continue;
        }
        while (i < count && chunks[i].tier == GVM_TIER_ABSENT && chunks[i].index == end) {
            end++;
            i++;
        }
        status = gvmi_buffer_vacate_locked(buffer, first, end);
        patch->replaced = true;
    }
    gvmi_unlock(&buffer->lock);
    return status;
}

/* The others as a share that lists them alone. What all of them replace is released. */
static gvm_status accept_chunks(gvm_object *object, gvmi_client_message *message, uint32_t count,
                                gvmi_patch *out)
{
    const gvmi_wire_chunk *chunks = message->wire.tail.chunks;
    gvmi_descriptor_chunk entries[GVMI_WIRE_CHUNKS_MAX];
    gvm_share share = {.chunks = entries, .fds = message->fds};
    gvm_status status;

    if (message->came.lost)
        return gvm_error_set(
            GVM_E_LIMIT,
            "the process has no room for the %u files of a part of the object: raise ulimit -n",
            message->wire.head.fd_count);
    for (uint32_t i = 0; i < count; i++)
        if (chunks[i].tier != GVM_TIER_ABSENT)
            entries[share.count++] = (gvmi_descriptor_chunk){
                .offset_bytes = chunks[i].index * object->chunk_bytes,
                .stamp = chunks[i].stamp,
                .tier = chunks[i].tier,
            };
    share.about.chunk_count = share.count;
    share.about.chunk_bytes = object->chunk_bytes;
    share.about.flags = message->wire.body.MAP.sealed ? GVMI_DESCRIPTOR_SEALED : 0;
    status = gvmi_share_patch(&share, object->buffer, out);
    return status == GVM_OK ? unmap_absent_chunks(object, chunks, count, out) : status;
}

/* The object has become smaller: everybody is to unmap what lies beyond. Before the chunks of any later MAP come. */
static gvm_status unmap_cut_chunks(gvm_object *object, uint64_t bytes, gvmi_patch *patch)
{
    const uint64_t kept = (bytes + object->chunk_bytes - 1) / object->chunk_bytes;
    const bool cut = bytes < object->taken_bytes;
    gvm_buffer *buffer = object->buffer;
    gvm_status status;

    object->taken_bytes = bytes;
    if (!cut)
        return GVM_OK;
    gvmi_lock(&buffer->lock);
    status = gvmi_buffer_vacate_locked(buffer, kept, buffer->chunk_count);
    gvmi_unlock(&buffer->lock);
    if (object->mapped_chunks > kept)
        object->mapped_chunks = kept;
    patch->replaced = true;
    return status;
}

static void list_failing(gvm_object *object)
{
    gvm_client *client = object->client;

    atomic_fetch_add(&object->references, 1); /* the list's */
    object->next_failing = client->failing;
    client->failing = object;
}

/* For an object that has failed, now or before. */
static gvm_status refuse_map(gvm_object *object, uint64_t serial)
{
    gvm_status status;

    if (object->buffer == NULL) /* nothing was ever mapped */
        return send_mapped(object, serial, object->failure.status);
    status = defer_map_answer(object, serial);
    if (status != GVM_OK)
        return status;
    if (object->unanswered_count > 1) /* it is in the list */
        return GVM_OK;
    status = try_unmap_object(object);
    if (status == GVM_OK && object->unanswered_count > 0)
        list_failing(object);
    return status;
}

/* ---- MAP, the first step: what it replaces goes */

/* A failure that is the object's is left in it, one of the connection is returned. The MAP is pending
 * in any case: what a lost keeper gave stays. */
static gvm_status accept_map(gvm_object *object, gvmi_client_message *message)
{
    gvm_client *client = object->client;
    const gvmi_wire_map *map = &message->wire.body.MAP;
    const uint32_t count = message->wire.head.tail_bytes / (uint32_t)sizeof(gvmi_wire_chunk);
    gvm_status status = check_map_chunks(object, map, message->wire.tail.chunks, count);
    gvmi_client_pending *pending;

    if (status != GVM_OK)
        return status;
    object->serial = map->serial;
    GVM_ASSERT(client->pending_count < GVMI_CLIENT_PENDING_MAX);
    pending = &client->pending[(client->first_pending + client->pending_count++) % GVMI_CLIENT_PENDING_MAX];
    *pending = (gvmi_client_pending){.object = object, .map = *map};
    atomic_fetch_add(&object->references, 1); /* the queue's */
    if (map->anew)
        begin_anew(object);
    if (object->failure.status != GVM_OK)
        return GVM_OK;
    if (unmap_cut_chunks(object, map->bytes, &pending->patch) != GVM_OK ||
        accept_chunks(object, message, count, &pending->patch) != GVM_OK)
        fail_object(object);
    else if (pending->patch.replaced)
        status = send_unmapped(object, map->serial);
    return status;
}

/* ---- MAP, the second step: what is new comes */

uint64_t gvmi_client_slice_bytes = 32ull << 20; /* 0.3 ms of host memory */

/* A slice of them; false: there are more. */
static bool put_chunks(gvm_object *object, gvmi_client_pending *pending)
{
    const uint64_t chunks = gvmi_client_slice_bytes / object->chunk_bytes;

    if (object->failure.status != GVM_OK)
        return true;
    if (gvmi_share_settle_patch(object->buffer, &pending->patch, chunks > 0 ? chunks : 1) != GVM_OK) {
        fail_object(object);
        return true;
    }
    return pending->patch.first == pending->patch.end;
}

static gvm_status answer_map(gvm_object *object, const gvmi_wire_map *map)
{
    gvm_status status;

    if (object->failure.status != GVM_OK)
        return refuse_map(object, map->serial);
    object->wanted_bytes = map->bytes;
    if (map->generation > object->wanted_generation)
        object->wanted_generation = map->generation;
    if (map->sealed)
        atomic_store(&object->sealed, true);
    status = send_mapped(object, map->serial, GVM_OK);
    if (status == GVM_OK)
        publish_mapped_size(object); /* only now, so that no request overtakes the answer */
    return status;
}

bool gvmi_client_begin_work(gvm_object *object)
{
    gvm_client *client = object->client;
    bool open;

    gvmi_lock(&client->lock);
    open = !object->closed;
    if (open)
        client->busy = object;
    gvmi_unlock(&client->lock);
    return open;
}

void gvmi_client_end_work(gvm_client *client)
{
    gvmi_lock(&client->lock);
    if (client->busy != NULL && client->busy->left)
        gvmi_client_end_other_leases_locked(client->busy);
    client->busy = NULL;
    pthread_cond_broadcast(&client->changed);
    gvmi_unlock(&client->lock);
}

/* A slice of the MAP that is pending longest; answer: unless the connection is lost. */
gvm_status gvmi_client_continue_oldest_map(gvm_client *client, bool answer)
{
    gvmi_client_pending *pending = &client->pending[client->first_pending];
    gvm_object *object = pending->object;
    gvm_status status = GVM_OK;
    bool done = true;

    if (gvmi_client_begin_work(object)) { /* otherwise the CLOSE that is on its way answers this, too */
        done = put_chunks(object, pending);
        if (done && answer)
            status = answer_map(object, &pending->map);
        gvmi_client_end_work(client);
    }
    if (!done)
        return GVM_OK;
    client->first_pending = (client->first_pending + 1) % GVMI_CLIENT_PENDING_MAX;
    client->pending_count--;
    gvmi_client_drop_object(object);
    return status;
}

gvm_status gvmi_client_finish_pending_maps(gvm_client *client, uint32_t left)
{
    gvm_status status = GVM_OK;

    while (client->pending_count > left && status == GVM_OK)
        status = gvmi_client_continue_oldest_map(client, true);
    return status;
}

gvm_status gvmi_client_handle_map(gvm_client *client, gvmi_client_message *message)
{
    const uint32_t slot = message->wire.body.MAP.slot;
    gvm_object *object = NULL;
    bool known, ending, open = false;
    /* What was sent before a failure was known of is refused yet, by that failure. */
    gvm_status status = gvmi_client_finish_pending_maps(
        client, message->wire.body.MAP.anew ? 0 : GVMI_CLIENT_PENDING_MAX - 1);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&client->lock);
    ending = client->ending;
    known = slot < GVM_OBJECTS_OPEN_MAX && client->slots[slot] != NULL;
    if (known) {
        object = client->slots[slot];
        open = !object->closed;
        client->busy = open ? object : NULL;
    }
    gvmi_unlock(&client->lock);
    if (!known && ending) /* it was on its way when the slot was left; BYE answers it */
        return GVM_OK;
    if (!GVM_CHECK(known))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's MAP is for slot %u, where nothing is open",
                             slot);
    if (!open) /* the CLOSE that is on its way answers this, too */
        return GVM_OK;
    status = accept_map(object, message);
    gvmi_client_end_work(client);
    return status;
}

gvm_status gvmi_client_answer_failing_maps(gvm_client *client)
{
    gvm_object **place = &client->failing;
    gvm_status status = GVM_OK;

    while (*place != NULL && status == GVM_OK) {
        gvm_object *object = *place;
        const bool open = gvmi_client_begin_work(object);

        if (open) {
            status = try_unmap_object(object);
            gvmi_client_end_work(client);
        }
        if (open && object->unanswered_count > 0) {
            place = &object->next_failing;
        } else {
            *place = object->next_failing;
            gvmi_client_drop_object(object);
        }
    }
    return status;
}

/* ---- OPENED */

/* Settings decide which devices a process has. */
static gvm_status fail_elsewhere(const uint8_t uuid[16])
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    char text[GVMI_UUID_TEXT_BYTES];

    gvmi_uuid_text(uuid, text);
    if (gvm_driver_get_info(&driver) == GVM_OK && driver.software != 0)
        return gvm_error_set(GVM_E_NODEVICE,
                             "the object is on %s, which is none of the software GPUs here: set GVMEM_SOFTGPU, "
                             "with instance=, as for the keeper (here \"%s\")",
                             text, GVMI_TEXT_NAME(gvmi_option_text(GVMI_OPTION_GVMEM_SOFTGPU)));
    return gvm_error_set(GVM_E_NODEVICE,
                         "the object is on %s, which is none of the GPUs here: set CUDA_VISIBLE_DEVICES and "
                         "GVMEM_DRIVER as for the keeper",
                         text);
}

static gvm_status find_device_by_uuid(const uint8_t uuid[16], gvm_device **out)
{
    char text[GVMI_UUID_TEXT_BYTES];
    int32_t count;
    CUresult failure = CUDA_SUCCESS; /* of a device that may be the one */
    gvm_status status = gvm_device_count(&count);

    for (int32_t i = 0; i < count && status == GVM_OK; i++) {
        CUdevice cu;
        CUuuid found;
        CUresult result = gvmi_cu->cuDeviceGet(&cu, i);

        if (result == CUDA_SUCCESS)
            result = gvmi_cu->cuDeviceGetUuid(&found, cu);
        if (result != CUDA_SUCCESS)
            failure = result;
        else if (memcmp(found.bytes, uuid, sizeof found.bytes) == 0)
            return gvm_device_open(i, out);
    }
    if (status != GVM_OK)
        return status;
    if (failure != CUDA_SUCCESS)
        return gvmi_driver_fail(failure, "cuDeviceGetUuid", "cannot look for %s among %d devices",
                                gvmi_uuid_text(uuid, text), (int)count);
    return fail_elsewhere(uuid);
}

/* Where other processes have it, if that is free here, or anywhere. */
static gvm_status make_buffer_of(const gvmi_descriptor *about, gvm_device *device,
                                 gvm_import_options options, gvmi_range *range, gvm_buffer **out)
{
    const bool anywhere = (options.flags & GVM_IMPORT_SAME_ADDRESS) == 0;
    gvm_status status = GVM_E_ADDRESS;

    if (about->exporter_address != 0) {
        options.flags |= GVM_IMPORT_SAME_ADDRESS;
        status = gvmi_share_make_buffer(about, device, &options, range, out);
    }
    if (status != GVM_E_ADDRESS || !anywhere)
        return status;
    options.flags &= ~(uint32_t)GVM_IMPORT_SAME_ADDRESS;
    return gvmi_share_make_buffer(about, device, &options, range, out);
}

static gvm_status make_buffer(gvm_object *object, const gvmi_wire_opened *opened)
{
    const bool same_address = (opened->open_flags & GVM_OPEN_SAME_ADDRESS) != 0;
    const gvm_import_options options = {
        .struct_size = sizeof options,
        .reserve_bytes = opened->reserve_bytes,
        .flags = (opened->open_flags & GVM_OPEN_READONLY ? GVM_IMPORT_READONLY : 0u) |
                 (same_address ? GVM_IMPORT_SAME_ADDRESS : 0u),
    };
    gvmi_descriptor about;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_status status;

    if (same_address && opened->home_address == 0)
        return gvm_error_set(GVM_E_ADDRESS, "the keeper has no address for the object");
    gvmi_descriptor_init(&about);
    about.flags = opened->sealed ? GVMI_DESCRIPTOR_SEALED : 0;
    about.chunk_bytes = opened->chunk_bytes;
    about.exporter_address = opened->home_address;
    memcpy(about.device_uuid, opened->device_uuid, sizeof about.device_uuid);
    memcpy(about.buffer_id, &opened->id, sizeof opened->id);
    memcpy(about.buffer_id + sizeof opened->id, "gvmkept", 8); /* no buffer's own id is like this */
    status = find_device_by_uuid(opened->device_uuid, &device);
    if (status != GVM_OK)
        return status;
    status = make_buffer_of(&about, device, options, gvmi_client_range(object->client), &buffer);
    gvm_device_close(device); /* the buffer keeps it */
    if (status != GVM_OK)
        return status;
    status = gvmi_buffer_publish(buffer);
    if (status != GVM_OK) {
        gvmi_buffer_free(buffer);
        return status;
    }
    object->buffer = buffer;
    object->address = buffer->address;
    GVM_ASSERT(object->chunk_count == buffer->chunk_count);
    return GVM_OK;
}

static gvm_status check_opened_sizes(const gvmi_wire_opened *opened)
{
    if (!GVM_CHECK(opened->reserve_bytes > 0 && opened->reserve_bytes <= GVMI_SPAN_BYTES_MAX &&
                   opened->bytes <= opened->reserve_bytes && gvmi_is_pow2(opened->chunk_bytes)))
        return gvm_error_set(
            GVM_E_FORMAT, "the keeper's OPENED has %llu bytes of %llu in chunks of %llu",
            (unsigned long long)opened->bytes, (unsigned long long)opened->reserve_bytes,
            (unsigned long long)opened->chunk_bytes);
    if (!GVM_CHECK(opened->home_address % GVM_CHUNK_BYTES_MIN == 0))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's OPENED has address %#llx",
                             (unsigned long long)opened->home_address);
    return GVM_OK;
}

gvm_status gvmi_client_opened(gvm_object *object, const gvmi_wire_opened *opened)
{
    gvm_client *client = object->client;
    gvm_status status = check_opened_sizes(opened);
    bool vacant;

    if (status != GVM_OK)
        return status;
    object->slot = opened->slot;
    object->id = opened->id;
    object->readonly = (opened->open_flags & GVM_OPEN_READONLY) != 0;
    object->keeps_mapped = (opened->open_flags & GVM_OPEN_MAPPED) != 0;
    object->sealed = opened->sealed != 0;
    object->reserve_bytes = opened->reserve_bytes;
    object->chunk_bytes = opened->chunk_bytes;
    object->chunk_count = (opened->reserve_bytes - 1) / opened->chunk_bytes + 1;
    object->taken_bytes = object->wanted_bytes = opened->bytes;
    object->wanted_generation = opened->generation;
    gvmi_lock(&client->lock);
    vacant = client->slots[opened->slot] == NULL;
    if (vacant)
        client->slots[opened->slot] = object;
    gvmi_unlock(&client->lock);
    if (!GVM_CHECK(vacant))
        return gvm_error_set(GVM_E_FORMAT, "the keeper's OPENED is of slot %u, which is taken",
                             opened->slot);
    object->permit = &client->permits[opened->slot];
    object->lease = &client->leases[opened->slot];
    if (make_buffer(object, opened) != GVM_OK)
        fail_object(object);
    status = send_mapped(object, 0, object->failure.status);
    if (status == GVM_OK && object->buffer != NULL)
        publish_mapped_size(object);
    return status;
}
