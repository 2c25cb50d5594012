/* Objects: making, finding, changing, ending. */
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "keeper/client/client.h"

#define MODE_DEFAULT 0600u
#define MODE_BITS 0777u
#define OBJECT_FLAGS \
    ((uint32_t)(GVM_OBJECT_KEEP | GVM_OBJECT_UNTRACKED | GVM_OBJECT_HOST | GVM_OBJECT_REGIONS))

/* ---- life */

/* Nothing of the object is mapped any more, and nobody has a lease. */
static void clear_object(gvm_object *object)
{
    if (object->buffer != NULL)
        gvm_buffer_destroy(object->buffer);
    object->buffer = NULL;
    if (object->lease == NULL) /* the keeper has not sent a slot */
        return;
    atomic_fetch_and(&object->lease->word, ~(uint64_t)UINT32_MAX); /* leases end, the count stays */
    atomic_store(&object->lease->hint, (uint32_t)GVM_HINT_NONE);
}

static void free_object_slot(gvm_object *object)
{
    gvm_client *client = object->client;

    gvmi_lock(&client->lock);
    if (object->lease != NULL && client->slots[object->slot] == object)
        client->slots[object->slot] = NULL;
    gvmi_unlock(&client->lock);
}

/* Gives the object to the mapper to end, with the caller's reference. False: the mapper has ended. */
static bool pass_object_to_mapper_locked(gvm_object *object, bool tell)
{
    gvm_client *client = object->client;

    if (client->lost)
        return false;
    object->tell = tell;
    object->next_leaving = client->leaving;
    client->leaving = object;
    return true;
}

/* False: CLOSE could not be sent within the time, and is left to the mapper. */
static bool send_close(gvm_object *object, int64_t deadline_ns)
{
    gvm_client *client = object->client;
    bool sent, handed_over;

    if (gvmi_client_call_close(object, deadline_ns, &sent) != GVM_E_TIMEOUT) {
        free_object_slot(object); /* there is no keeper to send CLOSE to */
        return true;
    }
    if (sent) /* the reply, when it comes, ends the slot */
        return true;
    gvmi_lock(&client->lock);
    handed_over = pass_object_to_mapper_locked(object, true);
    gvmi_unlock(&client->lock);
    if (!handed_over)
        free_object_slot(object);
    return !handed_over;
}

void gvmi_client_end_object(gvm_object *object, bool tell)
{
    const gvm_error error = gvmi_error_save();
    const int64_t deadline_ns = gvmi_deadline_ns(GVMI_CLIENT_BYE_MS);
    gvm_client *client = object->client;
    bool handed_over;

    atomic_store(&object->magic, GVMI_DEAD_MAGIC);
    gvmi_lock(&client->lock);
    object->closed = true;
    while (client->busy == object && gvmi_wait_until(&client->changed, &client->lock, deadline_ns))
        ;
    handed_over = client->busy == object && pass_object_to_mapper_locked(object, tell);
    gvmi_unlock(&client->lock);
    if (!handed_over) {
        clear_object(object);
        if (!tell || object->lease == NULL)
            free_object_slot(object);
        else
            handed_over = !send_close(object, deadline_ns);
    }
    if (!handed_over)
        gvmi_client_drop_object(object);
    gvm_error_restore(&error);
}

void gvmi_client_end_leaving(gvm_client *client)
{
    gvm_object *object;

    do {
        gvmi_lock(&client->lock);
        object = client->leaving;
        if (object != NULL)
            client->leaving = object->next_leaving;
        gvmi_unlock(&client->lock);
        if (object == NULL)
            break;
        clear_object(object);
        if (object->tell && object->lease != NULL)
            gvmi_client_post_close(object);
        else
            free_object_slot(object);
        gvmi_client_drop_object(object);
    } while (true);
}

/* ---- held by collections */

void gvmi_client_hold_object(gvm_object *object)
{
    gvm_client *client = object->client;

    gvmi_lock(&client->lock);
    object->holders++;
    gvmi_unlock(&client->lock);
}

/* False: nobody holds it. */
static bool leave_to_holders(gvm_object *object)
{
    gvm_client *client = object->client;
    bool held;

    gvmi_lock(&client->lock);
    held = object->holders > 0;
    if (held) {
        object->left = true;
        client->left_objects++;
        atomic_store(&object->magic, GVMI_DEAD_MAGIC);
        if (client->busy != object) /* else at the end of the mapper's work, which may add leases */
            gvmi_client_end_other_leases_locked(object);
    }
    gvmi_unlock(&client->lock);
    return held;
}

void gvmi_client_close_object(gvm_object *object, bool tell)
{
    if (!leave_to_holders(object))
        gvmi_client_end_object(object, tell);
}

/* ---- opening */

/* Sends CREATE or OPEN, and with GVM_OPEN_MAPPED waits until all that the object has at this moment is mapped. */
static gvm_status call_opening(gvm_client *client, gvmi_wire_message *message, gvm_object **out)
{
    gvmi_client_request request = {0};
    gvm_object *object = NULL;
    gvm_status status = gvmi_client_new_object(client, &object);

    if (status != GVM_OK)
        return status;
    request.object = object;
    status = gvmi_client_call(client, message, &request);
    if (status == GVM_OK)
        status = gvmi_client_wait_shown(object, 0, GVMI_NEVER_NS);
    if (status == GVM_OK)
        status = gvmi_registry_add(GVMI_KIND_OBJECT, gvmi_key(object), object);
    if (status != GVM_OK) {
        gvmi_client_end_object(object, true);
        return status;
    }
    atomic_store(&object->magic, GVMI_OBJECT_MAGIC);
    *out = object;
    return GVM_OK;
}

static gvm_status set_name(char to[GVM_NAME_BYTES_MAX], const char *name)
{
    gvm_status status = gvmi_wire_check_name(name);

    if (status == GVM_OK)
        memcpy(to, name, strlen(name)); /* the rest is zeros */
    return status;
}

static gvm_status set_metadata(gvmi_wire_message *message, const void *bytes, uint32_t len_bytes)
{
    if (len_bytes > GVM_METADATA_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "metadata has at most %d bytes, not %u",
                             GVM_METADATA_BYTES_MAX, (unsigned)len_bytes);
    if (len_bytes > 0 && bytes == NULL)
        return gvm_error_set(GVM_E_INVALID, "the metadata is NULL");
    message->head.tail_bytes = len_bytes;
    if (len_bytes > 0)
        memcpy(message->tail.bytes, bytes, len_bytes);
    return GVM_OK;
}

static gvm_status check_object_sizes(uint64_t reserve_bytes, const gvm_object_options *options)
{
    char size[32];

    if (reserve_bytes == 0 || reserve_bytes > GVMI_SPAN_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "an object reserves between 1 byte and 128 TiB, not %s",
                             gvmi_size_text(reserve_bytes, size));
    if (options->size_bytes > reserve_bytes)
        return gvm_error_set(GVM_E_INVALID,
                             "the object is to have %s from the start, beyond its reservation",
                             gvmi_size_text(options->size_bytes, size));
    if (options->chunk_bytes != 0 &&
        (!gvmi_is_pow2(options->chunk_bytes) || options->chunk_bytes < GVM_CHUNK_BYTES_MIN ||
         options->chunk_bytes > GVM_CHUNK_BYTES_MAX))
        return gvm_error_set(GVM_E_INVALID, "a chunk is a power of two from 2 MiB to 1 GiB, not %s",
                             gvmi_size_text(options->chunk_bytes, size));
    return GVM_OK;
}

static gvm_status check_permission_bits(uint32_t mode)
{
    if ((mode & ~MODE_BITS) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown mode bits %#o", (unsigned)mode);
    return GVM_OK;
}

/* CREATE but for the device. */
static gvm_status fill_create_message(const char *name, uint64_t reserve_bytes,
                                      const gvm_object_options *options, gvmi_wire_message *message)
{
    gvmi_wire_create *create = &message->body.CREATE;
    gvm_status status = check_object_sizes(reserve_bytes, options);

    if (status == GVM_OK)
        status = check_permission_bits(options->mode);
    if (status == GVM_OK && (options->flags & ~OBJECT_FLAGS) != 0)
        status = gvm_error_set(GVM_E_INVALID, "unknown object flags %#x", (unsigned)options->flags);
    if (status != GVM_OK)
        return status;
    gvmi_wire_start(message, GVMI_WIRE_CREATE, 0);
    create->reserve_bytes = reserve_bytes;
    create->chunk_bytes = options->chunk_bytes;
    create->bytes = options->size_bytes;
    create->mode = options->mode != 0 ? options->mode : MODE_DEFAULT;
    create->flags = options->flags;
    if (name != NULL && name[0] != '\0')
        status = set_name(create->name, name);
    return status == GVM_OK ? set_metadata(message, options->metadata, options->metadata_bytes)
                            : status;
}

static gvm_status create_object(gvm_client *client, const char *name, uint64_t reserve_bytes,
                                const gvm_object_options *options, gvm_object **out)
{
    gvmi_wire_message message;
    gvm_object_options full;
    gvm_device *device;
    gvm_status status;

    if (!gvmi_struct_in(&full, sizeof full, options, sizeof full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    status = fill_create_message(name, reserve_bytes, &full, &message);
    if (status != GVM_OK)
        return status;
    status = gvm_device_open(full.device, &device); /* here, so that the mapper need not */
    if (status != GVM_OK)
        return status;
    memcpy(message.body.CREATE.device_uuid, device->info.uuid, sizeof device->info.uuid);
    status = call_opening(client, &message, out);
    gvm_device_close(device);
    return status;
}

gvm_status gvm_object_create(gvm_client *handle, const char *name, uint64_t reserve_bytes,
                             const gvm_object_options *options, gvm_object **out)
{
    GVMI_UNCANCELLED;
    gvm_client *client;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_client_enter(handle, &client);
    if (status != GVM_OK)
        return status;
    status = create_object(client, name, reserve_bytes, options, out);
    gvmi_client_leave(client);
    return status;
}

static gvm_status open_named(gvm_client *client, const char *name, uint32_t flags, gvm_object **out)
{
    gvmi_wire_message message;
    int32_t count;
    gvm_status status;

    if ((flags & ~(uint32_t)(GVM_OPEN_READONLY | GVM_OPEN_SAME_ADDRESS | GVM_OPEN_LINK |
                             GVM_OPEN_MAPPED)) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown open flags %#x", (unsigned)flags);
    gvmi_wire_start(&message, GVMI_WIRE_OPEN, 0);
    message.body.OPEN.flags = flags;
    status = set_name(message.body.OPEN.name, name);
    if (status == GVM_OK)
        status = gvm_device_count(&count); /* loads the driver, so that the mapper need not */
    return status == GVM_OK ? call_opening(client, &message, out) : status;
}

gvm_status gvm_object_open(gvm_client *handle, const char *name, uint32_t flags, gvm_object **out)
{
    GVMI_UNCANCELLED;
    gvm_client *client;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_client_enter(handle, &client);
    if (status != GVM_OK)
        return status;
    status = open_named(client, name, flags, out);
    gvmi_client_leave(client);
    return status;
}

void gvm_object_close(gvm_object *handle)
{
    GVMI_UNCANCELLED;
    const gvm_error error = gvmi_error_save();
    gvm_object *entered;
    void *object;

    if (handle != NULL && gvmi_object_enter(handle, &entered) == GVM_OK) { /* and not the parent's */
        gvmi_object_leave(entered);
        if (gvmi_registry_remove(GVMI_KIND_OBJECT, gvmi_key(handle), &object) == GVM_OK)
            gvmi_client_close_object(object, true);
    }
    gvm_error_restore(&error);
}

/* A request about a name alone. */
static gvm_status start_object_call(gvm_client *handle, gvmi_wire_type type, const char *name)
{
    gvmi_wire_message message;
    gvmi_client_request request = {0};
    gvm_client *client;
    gvm_status status = gvmi_client_enter(handle, &client);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, type, 0);
    status = set_name(message.body.DROP.name, name); /* UNLINK has the same body */
    if (status == GVM_OK)
        status = gvmi_client_call(client, &message, &request);
    gvmi_client_leave(client);
    return status;
}

gvm_status gvm_object_drop(gvm_client *handle, const char *name)
{
    GVMI_UNCANCELLED;

    return start_object_call(handle, GVMI_WIRE_DROP, name);
}

gvm_status gvm_object_unlink(gvm_client *handle, const char *name)
{
    GVMI_UNCANCELLED;

    return start_object_call(handle, GVMI_WIRE_UNLINK, name);
}

/* ---- changing */

/* Sends what a call on an object comes to, if it was put together. */
static gvm_status send_and_end_use(gvm_object *object, gvmi_wire_message *message, gvm_status status)
{
    gvmi_client_request request = {.object = object};

    if (status == GVM_OK)
        status = gvmi_client_call(object->client, message, &request);
    gvmi_object_leave(object);
    return status;
}

static gvm_status check_changeable(const gvm_object *object)
{
    if (object->readonly)
        return gvm_error_set(GVM_E_DENIED, "the object was opened GVM_OPEN_READONLY");
    if (atomic_load(&object->sealed))
        return gvm_error_set(GVM_E_SEALED, "the object is sealed");
    return GVM_OK;
}

gvm_status gvm_object_grow(gvm_object *handle, uint64_t size_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvmi_client_request request = {0};
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);
    bool failed_before;

    if (status != GVM_OK)
        return status;
    failed_before = gvmi_client_may_retry(object); /* then nothing is mapped until an acquire asks for it */
    status = check_changeable(object);
    if (status == GVM_OK && size_bytes > object->reserve_bytes)
        status = gvm_error_set(GVM_E_INVALID, "%llu bytes are beyond the object's reservation of %llu",
                               (unsigned long long)size_bytes,
                               (unsigned long long)object->reserve_bytes);
    gvmi_wire_start(&message, GVMI_WIRE_GROW, 0);
    message.body.GROW.slot = object->slot;
    message.body.GROW.bytes = size_bytes;
    if (status == GVM_OK)
        status = gvmi_client_call(object->client, &message, &request);
    /* The MAPs came before DONE; this shows whether they succeeded here. */
    if (status == GVM_OK && !(failed_before && gvmi_client_may_retry(object)))
        status = gvmi_client_wait_shown(object, 0, GVMI_NEVER_NS);
    gvmi_object_leave(object);
    return status;
}

gvm_status gvm_object_shrink(gvm_object *handle, uint64_t size_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_SHRINK, 0);
    message.body.SHRINK.slot = object->slot;
    message.body.SHRINK.bytes = size_bytes;
    return send_and_end_use(object, &message, check_changeable(object));
}

gvm_status gvm_object_seal(gvm_object *handle, int timeout_ms)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_SEAL, 0);
    message.body.SEAL.slot = object->slot;
    message.body.SEAL.timeout_ms = timeout_ms;
    status = gvmi_check_timeout(timeout_ms);
    if (status == GVM_OK && object->readonly)
        status = gvm_error_set(GVM_E_DENIED, "the object was opened GVM_OPEN_READONLY");
    if (timeout_ms == GVM_FOREVER || status != GVM_OK)
        return send_and_end_use(object, &message, status);
    status = gvmi_client_call_until(object->client, &message, object, 0,
                                    gvmi_client_limit_ns(timeout_ms));
    gvmi_object_leave(object);
    return status;
}

gvm_status gvm_object_publish(gvm_object *handle, const char *name, uint32_t flags)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_PUBLISH, 0);
    message.body.PUBLISH.slot = object->slot;
    message.body.PUBLISH.flags = flags;
    if ((flags & ~(uint32_t)(GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE)) != 0)
        status = gvm_error_set(GVM_E_INVALID, "unknown publish flags %#x", (unsigned)flags);
    else
        status = set_name(message.body.PUBLISH.name, name);
    return send_and_end_use(object, &message, status);
}

gvm_status gvm_object_link(gvm_object *handle, const char *name, uint32_t mode, uint64_t size_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_LINK, 0);
    message.body.LINK.slot = object->slot;
    message.body.LINK.mode = mode;
    message.body.LINK.bytes = size_bytes;
    status = size_bytes == 0 ? gvm_error_set(GVM_E_INVALID, "size_bytes is 0")
                             : check_permission_bits(mode);
    if (status == GVM_OK)
        status = set_name(message.body.LINK.name, name);
    return send_and_end_use(object, &message, status);
}

gvm_status gvm_object_set_mode(gvm_object *handle, uint32_t mode)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_SET_MODE, 0);
    message.body.SET_MODE.slot = object->slot;
    message.body.SET_MODE.value = mode;
    return send_and_end_use(object, &message, check_permission_bits(mode));
}

gvm_status gvm_object_set_metadata(gvm_object *handle, const void *bytes, uint32_t len_bytes)
{
    GVMI_UNCANCELLED;
    gvmi_wire_message message;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    gvmi_wire_start(&message, GVMI_WIRE_SET_METADATA, 0);
    message.body.SET_METADATA.slot = object->slot;
    status = set_metadata(&message, bytes, len_bytes);
    if (status == GVM_OK)
        status = check_changeable(object);
    return send_and_end_use(object, &message, status);
}

gvm_status gvmi_client_get_metadata(gvm_object *object, int64_t deadline_ns, void *bytes,
                                    uint32_t capacity_bytes, uint32_t *len_bytes)
{
    gvmi_wire_message message;
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_GET_METADATA, 0);
    message.body.GET_METADATA.slot = object->slot;
    status = gvmi_client_call_until(object->client, &message, object, 0, deadline_ns);
    if (status != GVM_OK)
        return status;
    *len_bytes = message.head.tail_bytes; /* judged: at most GVMI_WIRE_TAIL_BYTES_MAX */
    if (capacity_bytes > 0)
        memcpy(bytes, message.tail.bytes, *len_bytes < capacity_bytes ? *len_bytes : capacity_bytes);
    return GVM_OK;
}

gvm_status gvm_object_get_metadata(gvm_object *handle, void *bytes, uint32_t capacity_bytes,
                                   uint32_t *len_bytes)
{
    GVMI_UNCANCELLED;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    if ((bytes == NULL && capacity_bytes > 0) || len_bytes == NULL)
        status = gvm_error_set(GVM_E_INVALID, "bytes or len_bytes is NULL");
    else
        status = gvmi_client_get_metadata(object, GVMI_NEVER_NS, bytes, capacity_bytes, len_bytes);
    gvmi_object_leave(object);
    return status;
}

gvm_status gvm_object_grant(gvm_object *handle, gvm_device *peer, gvm_access access)
{
    GVMI_UNCANCELLED;
    gvm_object *object;
    gvm_status status = gvmi_object_enter(handle, &object);

    if (status != GVM_OK)
        return status;
    status = (atomic_load(&object->permit->word) & GVMI_PERMIT_GONE) != 0
                 ? gvmi_client_fail_cut_off(object->client)
                 : gvm_buffer_grant(object->buffer, peer, access);
    gvmi_object_leave(object);
    return status;
}
