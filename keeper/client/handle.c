/* Connections and objects as callers name them: who is in a call, and what lives how long. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "base/registry.h"
#include "keeper/client/client.h"

/* ---- connections */

gvm_status gvmi_client_enter(const gvm_client *handle, gvm_client **out)
{
    void *found;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_CONNECTION, gvmi_key(handle), &found);
    gvm_client *client = found;

    if (status == GVM_OK && atomic_load(&client->magic) != GVMI_CLIENT_MAGIC) {
        gvmi_client_leave(client);
        status = gvm_error_set(
            GVM_E_FOREIGN,
            "the connection is the parent process's: a child made by fork() must exec a program "
            "to use a keeper, or connect before its parent has used a GPU");
    }
    *out = status == GVM_OK ? client : NULL;
    return status;
}

void gvmi_client_leave(gvm_client *client)
{
    gvmi_registry_drop(GVMI_KIND_CONNECTION, gvmi_key(client));
}

void gvmi_client_end_other_leases_locked(const gvm_object *object)
{
    uint64_t word = atomic_load(&object->lease->word);

    while (!atomic_compare_exchange_weak(&object->lease->word, &word,
                                         (word & ~(uint64_t)UINT32_MAX) |
                                             object->holders * GVMI_LEASE_READER))
        ;
}

/* Of this process, for the objects of all its connections. */
static gvmi_range object_range = GVMI_RANGE_INIT(GVMI_OBJECT_RANGE_ADDRESS, GVMI_OBJECT_RANGE_BYTES);

gvm_status gvmi_client_hold_range(gvm_client *client)
{
    gvm_status status = gvmi_option_bool(GVMI_OPTION_GVMEM_RANGE, &client->holds_range);

    if (status == GVM_OK && client->holds_range)
        gvmi_range_hold(&object_range);
    return status;
}

void gvmi_client_release_range(const gvm_client *client)
{
    if (client->holds_range)
        gvmi_range_release(&object_range);
}

void gvmi_client_reset_range_in_child(void)
{
    gvmi_range_reset_in_child(&object_range);
}

gvmi_range *gvmi_client_range(const gvm_client *client)
{
    return client->holds_range ? &object_range : NULL;
}

void gvmi_client_drop(gvm_client *client)
{
    if (atomic_fetch_sub(&client->references, 1) > 1)
        return;
    if (client->leases != NULL)
        munmap(client->leases, GVMI_LEASE_PAGE_BYTES);
    if (client->permits != NULL)
        munmap((void *)(uintptr_t)client->permits, GVMI_PERMIT_PAGE_BYTES);
    if (client->doorbell >= 0)
        close(client->doorbell);
    if (client->socket >= 0)
        close(client->socket);
    pthread_cond_destroy(&client->changed);
    pthread_cond_destroy(&client->sent);
    gvmi_mutex_destroy(&client->lock);
    gvmi_mutex_destroy(&client->send_lock);
    gvmi_registry_retire(client);
}

/* ---- objects */

gvm_status gvmi_client_new_object(gvm_client *client, gvm_object **out)
{
    gvm_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for an object");
    object->references = 1;
    object->shown_generation = GVMI_NOT_SHOWN;
    object->client = client;
    atomic_fetch_add(&client->references, 1);
    *out = object;
    return GVM_OK;
}

void gvmi_client_drop_object(gvm_object *object)
{
    if (atomic_fetch_sub(&object->references, 1) > 1)
        return;
    gvmi_client_drop(object->client);
    free(object->unanswered);
    gvmi_registry_retire(object);
}

gvm_status gvmi_object_enter(const gvm_object *handle, gvm_object **out)
{
    void *found;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_OBJECT, gvmi_key(handle), &found);
    gvm_object *object = found;

    if (status == GVM_OK && atomic_load(&object->magic) != GVMI_OBJECT_MAGIC) {
        gvmi_object_leave(object);
        status = gvm_error_set(
            GVM_E_FOREIGN,
            "the object is the parent process's: a child made by fork() must exec a program to "
            "use a keeper, or connect before its parent has used a GPU");
    }
    *out = status == GVM_OK ? object : NULL;
    return status;
}

void gvmi_object_leave(gvm_object *object)
{
    gvmi_registry_drop(GVMI_KIND_OBJECT, gvmi_key(object));
}
