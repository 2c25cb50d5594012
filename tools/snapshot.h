/* tools/snapshot.h - all the records of a snapshot side by side, for what sorts and compares them. */
#ifndef TOOLS_SNAPSHOT_H
#define TOOLS_SNAPSHOT_H

#include <stdlib.h>

#include <gvmem/client.h>

typedef struct snapshot_copy {
    gvm_keeper_info keeper;
    const gvm_keeper_device_info *devices;
    const gvm_object_info *objects;
    const gvm_client_info *clients;
    const uint8_t *const *chunks; /* of each object, GVM_CHUNK_… of snapshot_chunks() many; NULL: not asked for, or not known */
} snapshot_copy;

typedef struct snapshot_whole {
    snapshot_copy copy; /* first: what the caller sees */
    gvm_keeper_device_info *devices;
    gvm_object_info *objects;
    gvm_client_info *clients;
    uint8_t **chunks;
} snapshot_whole;

static inline uint64_t snapshot_chunks(const gvm_object_info *object)
{
    return object->chunk_bytes > 0
               ? (object->size_bytes + object->chunk_bytes - 1) / object->chunk_bytes
               : 0;
}

static inline gvm_status snapshot_copy_records(const gvm_snapshot *from, snapshot_whole *to)
{
    const gvm_keeper_info *k = &to->copy.keeper;
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < k->devices && status == GVM_OK; i++) {
        to->devices[i].struct_size = sizeof to->devices[i];
        status = gvm_snapshot_get_device(from, i, &to->devices[i]);
    }
    for (uint32_t i = 0; i < k->objects && status == GVM_OK; i++) {
        to->objects[i].struct_size = sizeof to->objects[i];
        status = gvm_snapshot_get_object(from, i, &to->objects[i]);
    }
    for (uint32_t i = 0; i < k->clients && status == GVM_OK; i++) {
        to->clients[i].struct_size = sizeof to->clients[i];
        status = gvm_snapshot_get_client(from, i, &to->clients[i]);
    }
    return status;
}

static inline gvm_status snapshot_copy_all(const gvm_snapshot *from, snapshot_whole *to)
{
    const gvm_keeper_info *k = &to->copy.keeper;
    gvm_status status;

    to->copy.keeper.struct_size = sizeof to->copy.keeper;
    status = gvm_snapshot_get_keeper(from, &to->copy.keeper);
    if (status != GVM_OK)
        return status;
    to->copy.devices = to->devices = calloc(k->devices + 1, sizeof to->devices[0]);
    to->copy.objects = to->objects = calloc(k->objects + 1, sizeof to->objects[0]);
    to->copy.clients = to->clients = calloc(k->clients + 1, sizeof to->clients[0]);
    if (to->devices == NULL || to->objects == NULL || to->clients == NULL)
        return GVM_E_NOMEM;
    return snapshot_copy_records(from, to);
}

/* NULL is ignored. */
static inline void snapshot_free(snapshot_copy *snapshot)
{
    snapshot_whole *whole = (snapshot_whole *)snapshot;

    if (whole == NULL)
        return;
    for (uint32_t i = 0; whole->chunks != NULL && i < whole->copy.keeper.objects; i++)
        free(whole->chunks[i]);
    free(whole->chunks);
    free(whole->devices);
    free(whole->objects);
    free(whole->clients);
    free(whole);
}

/* What gvm_client_get_snapshot() answers, and GVM_E_NOMEM. The caller ends it with snapshot_free(). */
static inline gvm_status snapshot_take(gvm_client *from, snapshot_copy **out)
{
    gvm_snapshot *snapshot = NULL;
    snapshot_whole *whole;
    gvm_status status = gvm_client_get_snapshot(from, &snapshot);

    if (status != GVM_OK)
        return status;
    whole = calloc(1, sizeof *whole);
    status = whole != NULL ? snapshot_copy_all(snapshot, whole) : GVM_E_NOMEM;
    gvm_snapshot_destroy(snapshot);
    if (status == GVM_OK)
        *out = &whole->copy;
    else
        snapshot_free((snapshot_copy *)whole);
    return status;
}

/* Where the chunks of its objects are by now, as far as they have names, and are there still: GVM_E_NOMEM, and what
 * gvm_client_list_chunks() returns of the connection. */
static inline gvm_status snapshot_take_chunks(gvm_client *from, snapshot_copy *snapshot)
{
    snapshot_whole *whole = (snapshot_whole *)snapshot;

    whole->chunks = calloc(snapshot->keeper.objects + 1, sizeof whole->chunks[0]);
    snapshot->chunks = (const uint8_t *const *)whole->chunks;
    for (uint32_t i = 0; whole->chunks != NULL && i < snapshot->keeper.objects; i++) {
        const gvm_object_info *object = &snapshot->objects[i];
        const uint64_t count = snapshot_chunks(object);
        uint64_t now;
        gvm_status status;

        if (object->name[0] == '\0')
            continue;
        whole->chunks[i] = calloc(count + 1, 1);
        if (whole->chunks[i] == NULL)
            return GVM_E_NOMEM;
        status = gvm_client_list_chunks(from, object->name, 0, count, whole->chunks[i], &now);
        if (status != GVM_OK && status != GVM_E_ABSENT && status != GVM_E_DENIED)
            return status;
    }
    return whole->chunks != NULL ? GVM_OK : GVM_E_NOMEM;
}

#endif
