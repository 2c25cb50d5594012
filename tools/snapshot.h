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
} snapshot_copy;

typedef struct snapshot_whole {
    snapshot_copy copy; /* first: what the caller sees */
    gvm_keeper_device_info *devices;
    gvm_object_info *objects;
    gvm_client_info *clients;
} snapshot_whole;

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

#endif
