/* What the keeper shows of objects, devices and itself, compared with the model. */
#include "tests/prop/keeper_simulation.h"

#include <string.h>

#include "keeper/protocol/snapshot.h"

void model_compare_info(simulation *w, const request *r, const gvmi_snapshot_object *i)
{
    object *o = r->object;
    uint32_t version = 0;
    const uint64_t there = i->device_bytes + i->host_bytes + i->lent_bytes;
    const bool cutting = o->shrinks && there > rounded(i->size_bytes, o->chunk_bytes);

    if (o->shrinks && i->size_bytes < o->bytes) /* no opening could be told */
        model_resize(w, o, i->size_bytes);
    if (i->id != o->id || i->size_bytes != o->bytes || i->reserve_bytes != o->reserve_bytes ||
        i->owner_uid != o->uid || i->owner_gid != o->gid || i->mode != o->mode ||
        i->sealed != o->sealed || i->metadata_bytes != o->metadata_bytes)
        sim_wrong(w, "info of object %llu: bytes %llu mode %o sealed %u, not %llu %o %d",
                  (unsigned long long)o->id, (unsigned long long)i->size_bytes, i->mode, i->sealed,
                  (unsigned long long)o->bytes, o->mode, o->sealed);
    memcpy(&version, i->metadata_start, sizeof version);
    if (o->metadata_bytes >= sizeof version && version != o->metadata_version)
        sim_wrong(w, "metadata of object %llu begins with version %u, not %u",
                  (unsigned long long)o->id, version, o->metadata_version);
    if (!o->creator_ended && strcmp(i->name, o->name >= 0 ? keeper_names[o->name] : "") != 0)
        sim_wrong(w, "object %llu says that it is \"%s\", not \"%s\"", (unsigned long long)o->id,
                  i->name, o->name >= 0 ? keeper_names[o->name] : "");
    if ((there != rounded(o->bytes, o->chunk_bytes) && !cutting) ||
        i->duplicate_bytes + i->dirty_bytes != i->device_bytes)
        sim_wrong(w, "object %llu of %llu bytes: %llu on the device, %llu in all, %llu twice, %llu dirty",
                  (unsigned long long)o->id, (unsigned long long)o->bytes,
                  (unsigned long long)i->device_bytes, (unsigned long long)there,
                  (unsigned long long)i->duplicate_bytes, (unsigned long long)i->dirty_bytes);
}

/* Every named object that p may read is listed, and nothing that it may not read. */
static void compare_listed(simulation *w, const process *p, const gvmi_snapshot_head *head,
                           const uint8_t *at)
{
    uint32_t named = 0;

    for (uint32_t i = 0; i < head->object_count; i++, at += head->object_bytes) {
        gvmi_snapshot_object info;
        const object *o;

        memcpy(&info, at, sizeof info);
        o = model_find(w, info.id);
        if (o == NULL)
            continue; /* being created */
        if (!model_may(w, p, o, 4))
            sim_wrong(w, "the snapshot shows object %llu, which process %u may not read",
                      (unsigned long long)o->id, p->index);
        named += !o->creator_ended && o->name >= 0;
    }
    for (uint32_t i = 0; i < NAMES; i++)
        if (w->names[i] != NULL && !w->names[i]->creator_ended && model_may(w, p, w->names[i], 4))
            named--;
    if (named != 0)
        sim_wrong(w, "the snapshot has %d objects too many or too few", (int32_t)named);
}

/* When everybody but one administrator has gone, and all names with them. */
static void compare_empty(simulation *w, const gvmi_snapshot_head *head, const uint8_t *at)
{
    gvmi_snapshot_keeper info;

    memcpy(&info, at, sizeof info);
    if (head->object_count != 0 || head->client_count != 1 || info.objects != 0 || info.clients != 1)
        sim_wrong(w, "at the end %u objects and %u clients are left", head->object_count,
                  head->client_count);
    if (info.host_used_bytes != 0 || info.host_free_bytes != w->host_bytes)
        sim_wrong(w, "at the end %llu bytes of host memory are in use, %llu free, %llu made",
                  (unsigned long long)info.host_used_bytes,
                  (unsigned long long)info.host_free_bytes, (unsigned long long)w->host_bytes);
    sim_check_traced(w, info.acquires);
    at += head->keeper_bytes;
    for (uint32_t i = 0; i < head->device_count; i++, at += head->device_bytes) {
        gvmi_snapshot_device device;

        memcpy(&device, at, sizeof device);
        if (device.resident_bytes != 0 || device.held_bytes != 0 || device.lent_bytes != 0 ||
            device.free_bytes != w->used_bytes[i])
            sim_wrong(w, "at the end device %u has %llu resident, %llu held, %llu free of %llu bytes",
                      i, (unsigned long long)device.resident_bytes,
                      (unsigned long long)device.held_bytes, (unsigned long long)device.free_bytes,
                      (unsigned long long)w->used_bytes[i]);
    }
}

void model_compare_snapshot(simulation *w, const process *p, const void *bytes, size_t len)
{
    gvmi_snapshot_head head;
    const uint8_t *at = bytes;

    if (len < sizeof head) {
        sim_wrong(w, "a snapshot of %llu bytes", (unsigned long long)len);
        return;
    }
    memcpy(&head, bytes, sizeof head);
    if (head.magic != GVMI_SNAPSHOT_MAGIC || head.device_count != w->config.device_count ||
        head.object_bytes != sizeof(gvmi_snapshot_object) ||
        len != head.head_bytes + head.keeper_bytes + (size_t)head.device_bytes * head.device_count +
                   (size_t)head.object_bytes * head.object_count +
                   (size_t)head.client_bytes * head.client_count +
                   (size_t)head.user_bytes * head.user_count) {
        sim_wrong(w, "the snapshot's sizes do not agree");
        return;
    }
    if (w->empty)
        compare_empty(w, &head, at + head.head_bytes);
    at += head.head_bytes + head.keeper_bytes;
    for (uint32_t i = 0; i < head.device_count; i++, at += head.device_bytes) {
        gvmi_snapshot_device info;

        memcpy(&info, at, sizeof info);
        if (info.resident_bytes + info.free_bytes + info.held_bytes > w->config.devices[i].budget_bytes)
            sim_wrong(w, "device %u: %llu resident, %llu free, %llu held bytes are beyond the budget",
                      i, (unsigned long long)info.resident_bytes,
                      (unsigned long long)info.free_bytes, (unsigned long long)info.held_bytes);
    }
    compare_listed(w, p, &head, at);
}

void model_compare_metadata(simulation *w, const request *r, const gvmi_wire_message *m)
{
    uint32_t version = 0;

    if (m->head.tail_bytes >= sizeof version)
        memcpy(&version, m->tail.bytes, sizeof version);
    if (m->head.tail_bytes != r->object->metadata_bytes ||
        (m->head.tail_bytes > 0 && version != r->object->metadata_version))
        sim_wrong(w, "metadata of object %llu: %u bytes, version %u, not %u, %u",
                  (unsigned long long)r->object->id, m->head.tail_bytes, version,
                  r->object->metadata_bytes, r->object->metadata_version);
}
