/* Figures of objects, clients, devices and the keeper. */
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "keeper/machine/state.h"

/* ---- objects */

static void count_leases(const keep_object *object, gvmi_snapshot_object *info)
{
    for (const keep_opening *o = object->openings; o != NULL; o = o->next) {
        info->read_leases += gvmi_keep_readers(o);
        info->write_leases += gvmi_keep_writers(o);
    }
}

/* Of so many chunks, of which these are on the device, and clean there, and these in memory that others lend. */
static void count_bytes(const keep_object *object, uint32_t chunks, uint32_t device,
                        uint32_t duplicate, uint32_t lent, gvmi_snapshot_object *info)
{
    const uint64_t bytes = object->chunk_bytes;

    info->device_bytes = device * bytes;
    info->lent_bytes = lent * bytes;
    info->host_bytes = (chunks - device - lent) * bytes;
    info->duplicate_bytes = duplicate * bytes;
    info->dirty_bytes = info->device_bytes - info->duplicate_bytes;
}

void gvmi_keep_describe_object(gvmi_machine *m, keep_object *object, gvmi_snapshot_object *info)
{
    gvmi_keep_sample(m, object);
    memset(info, 0, sizeof *info);
    memcpy(info->name, object->name, sizeof info->name);
    info->id = object->id;
    info->size_bytes = object->bytes;
    info->reserve_bytes = object->reserve_bytes;
    info->chunk_bytes = object->chunk_bytes;
    count_bytes(object, object->chunk_count, object->device_chunks, object->duplicate_chunks,
                object->lent_chunks, info);
    info->generation = object->generation;
    info->acquires = object->acquires;
    info->evicted_bytes = object->evicted_bytes;
    info->promoted_bytes = object->promoted_bytes;
    info->owner_uid = object->domain.uid;
    info->owner_gid = object->domain.gid;
    info->mode = object->domain.mode;
    info->openings = object->opening_count;
    count_leases(object, info);
    info->waiting = object->wait_count;
    info->interrupted = object->interrupted;
    info->device = m->config.devices[object->device].ordinal;
    info->metadata_bytes = object->metadata_bytes;
    if (object->metadata_bytes > 0)
        memcpy(info->metadata_start, object->metadata,
               object->metadata_bytes < sizeof info->metadata_start ? object->metadata_bytes
                                                                    : sizeof info->metadata_start);
    info->sealed = object->sealed;
    info->kept = object->kept;
    info->untracked = object->untracked;
    info->fenced = object->fenced;
    info->foreign = object->foreign;
    info->moving = object->moving > 0;
}

/* A link says nothing of what it does not give. */
static void limit_to_opening(const keep_opening *opening, gvmi_snapshot_object *info)
{
    const keep_object *object = opening->object;
    const uint32_t chunks = gvmi_keep_opened_chunks(opening);
    uint32_t device = 0, duplicate = 0, lent = 0;

    for (uint32_t i = 0; i < chunks; i++) {
        device += object->chunks[i].where == KEEP_ON_DEVICE;
        duplicate += object->chunks[i].where == KEEP_ON_DEVICE && object->chunks[i].clean;
        lent += object->chunks[i].lent != 0;
    }
    count_bytes(object, chunks, device, duplicate, lent, info);
    memset(info->name, 0, sizeof info->name);
    info->size_bytes = gvmi_keep_opened_bytes(opening, info->size_bytes);
    info->reserve_bytes = gvmi_keep_opened_bytes(opening, info->reserve_bytes);
    info->evicted_bytes = info->promoted_bytes = 0;
}

void gvmi_keep_get_info(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.GET_INFO.slot);
    gvmi_wire_message reply;

    if (opening == NULL)
        return;
    gvmi_wire_start(&reply, GVMI_WIRE_INFO, message->head.request);
    gvmi_keep_describe_object(m, opening->object, &reply.body.INFO.info);
    if (opening->chunk_limit != UINT32_MAX)
        limit_to_opening(opening, &reply.body.INFO.info);
    (void)gvmi_keep_send(m, client, &reply, NULL);
}

static uint8_t chunk_state(const keep_chunk *chunk)
{
    const uint8_t state = chunk->lent                      ? GVM_CHUNK_LENT
                          : chunk->where != KEEP_ON_DEVICE ? GVM_CHUNK_HOST
                          : chunk->clean                   ? GVM_CHUNK_DEVICE | GVM_CHUNK_HOST
                                                           : GVM_CHUNK_DEVICE;

    return chunk->op == KEEP_OP_NONE ? state : state | GVM_CHUNK_MOVING;
}

void gvmi_keep_list_chunks(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_name_value *body = &message->body.LIST_CHUNKS;
    const keep_object *object = gvmi_keep_find_made(m, body->name);
    gvmi_wire_message reply;

    if (object == NULL) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_ABSENT,
                               "there is no object %s", GVMI_TEXT_NAME(body->name));
        return;
    }
    if (!gvmi_keep_may_read(m, client, object)) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "user %u may not read %s", client->who.uid, GVMI_TEXT_NAME(body->name));
        return;
    }
    gvmi_wire_start(&reply, GVMI_WIRE_CHUNK_STATES, message->head.request);
    reply.body.CHUNK_STATES.value = object->chunk_count;
    for (uint64_t i = body->value;
         i < object->chunk_count && reply.head.tail_bytes < GVMI_WIRE_TAIL_BYTES_MAX; i++)
        reply.tail.bytes[reply.head.tail_bytes++] = chunk_state(&object->chunks[i]);
    (void)gvmi_keep_send(m, client, &reply, NULL);
}

/* ---- devices */

void gvmi_keep_describe_device(const gvmi_machine *m, uint32_t index, gvmi_snapshot_device *info)
{
    const keep_device *device = &m->devices[index];
    const gvmi_machine_device *config = &m->config.devices[index];

    memcpy(info->uuid, config->uuid, sizeof info->uuid);
    memcpy(info->name, config->name, sizeof info->name);
    info->ordinal = config->ordinal;
    info->budget_bytes = device->place.budget_bytes;
    info->resident_bytes = device->place.used_bytes - device->place.free_bytes -
                           device->place.held_bytes;
    info->free_bytes = device->place.free_bytes;
    info->held_bytes = device->place.held_bytes;
    info->lent_bytes = device->place.lent_bytes;
    info->evictions = device->evictions;
    info->promotions = device->promotions;
    info->evicted_bytes = device->evicted_bytes;
    info->promoted_bytes = device->promoted_bytes;
    info->driver_free_bytes = device->driver_free_bytes;
    info->driver_total_bytes = device->driver_total_bytes;
}

/* ---- clients */

void gvmi_keep_describe_client(gvmi_machine *m, const keep_client *client, gvmi_snapshot_client *info)
{
    uint32_t next = 0;

    memset(info, 0, sizeof *info);
    info->id = client->number;
    info->pid = client->who.pid;
    info->uid = client->who.uid;
    info->gid = client->who.gid;
    info->objects_open = client->opening_count;
    info->acquires = client->acquires;
    info->cut_off = client->cut;
    info->committed_bytes = client->committed_bytes;
    for (const keep_hold *hold; (hold = gvmi_keep_next_hold(client, &next)) != NULL;) {
        const keep_frame *frame = gvmi_keep_frame(m, hold->frame);

        if (frame->state == KEEP_FRAME_HELD)
            info->held_bytes += frame->spec.bytes;
    }
    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next) {
        info->read_leases += gvmi_keep_readers(o);
        info->write_leases += gvmi_keep_writers(o);
    }
}

void gvmi_keep_describe_user(const gvmi_machine *m, const keep_user *user, gvmi_snapshot_user *info)
{
    *info = (gvmi_snapshot_user){
        .uid = user->uid,
        .quota_bytes = user->limited ? user->limit_bytes : m->config.quota_bytes,
        .committed_bytes = user->used_bytes,
        .held_bytes = user->held_bytes,
    };
}

/* ---- the whole */

void gvmi_keep_describe_keeper(const gvmi_machine *m, gvmi_snapshot_keeper *info)
{
    memset(info, 0, sizeof *info);
    info->pid = m->config.pid;
    info->uptime_ms = (uint64_t)((m->now_ns - m->start_ns) / GVMI_NS_PER_MS);
    info->host_budget_bytes = m->host.budget_bytes;
    info->host_used_bytes = m->host.used_bytes - m->host.free_bytes;
    info->host_free_bytes = m->host.free_bytes;
    info->acquires = m->acquires;
    info->slow_acquires = m->slow_acquires;
    info->revokes = m->revokes;
    info->timeouts = m->timeouts;
    info->cut_offs = m->cut_offs;
    info->interrupted = m->interrupted;
    info->messages = m->messages;
    info->faults = m->faults;
    info->devices = m->config.device_count;
    info->objects = (uint32_t)m->taken[KEEP_OBJECTS];
    info->clients = (uint32_t)m->taken[KEEP_CLIENTS];
}
