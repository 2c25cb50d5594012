/* Objects: making, opening and changing them, and their end.
 *
 * An object lives while it is open anywhere, or has a name and is kept (published, sealed, or made
 * to be). An object that is not kept loses its name when its creator closes it or goes. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/text.h"
#include "keeper/machine/plans.h"
#include "keeper/machine/room.h"

/* Chunks as large as keep their number small: the driver charges by the chunk. As for buffers (memory/buffer.c); but
 * what is large from the start, which programs share whole, has larger ones. To 8 processes that swap two objects of
 * 16 GiB, sizes from 64 MiB to 1 GiB make no difference, a process that maps 16 GiB again takes 70 us for each chunk, and
 * the exchange of what was written takes the longer the larger they are (bench/results/models-*.json). */
#define CHUNKS_WANTED 16
#define CHUNK_BYTES_CHOSEN_MAX (64 * GVMI_MIB)
#define LARGE_CHUNKS_WANTED 32
#define LARGE_CHUNK_BYTES_CHOSEN_MAX (512 * GVMI_MIB)
#define RESERVE_BYTES_MAX (1ull << 46)

#define ADDRESS_TRIES 8 /* at random */

/* ---- create and open */

static bool find_config_device(const gvmi_machine *m, const uint8_t uuid[16], uint32_t *device)
{
    for (*device = 0; *device < m->config.device_count; (*device)++)
        if (memcmp(m->config.devices[*device].uuid, uuid, 16) == 0)
            return true;
    return false;
}

static uint64_t choose_chunk_bytes(uint64_t reserve_bytes, uint64_t bytes)
{
    const uint64_t usual = gvmi_min(gvmi_pow2_up(reserve_bytes / CHUNKS_WANTED),
                                    CHUNK_BYTES_CHOSEN_MAX);
    const uint64_t large = gvmi_min(gvmi_pow2_up(bytes / LARGE_CHUNKS_WANTED),
                                    LARGE_CHUNK_BYTES_CHOSEN_MAX);
    const uint64_t fewest = gvmi_pow2_up((reserve_bytes - 1) / KEEP_CHUNKS_MAX + 1);

    return gvmi_max(gvmi_max(usual, large), gvmi_max(fewest, GVM_CHUNK_BYTES_MIN));
}

/* Sizes as they will be; GVM_OK, or what is wrong with text. */
static gvm_status choose_sizes(const gvmi_wire_create *body, uint64_t *reserve_bytes,
                               uint64_t *chunk_bytes, const char **text)
{
    *chunk_bytes = body->chunk_bytes;
    if (body->reserve_bytes == 0 || body->reserve_bytes > RESERVE_BYTES_MAX) {
        *text = "reserve_bytes is 0 or more than 64 TiB";
        return GVM_E_INVALID;
    }
    if (*chunk_bytes == 0)
        *chunk_bytes = choose_chunk_bytes(body->reserve_bytes, body->bytes);
    if (!gvmi_is_pow2(*chunk_bytes) || *chunk_bytes < GVM_CHUNK_BYTES_MIN ||
        *chunk_bytes > GVM_CHUNK_BYTES_MAX) {
        *text = "chunk_bytes is no power of two from 2 MiB to 1 GiB";
        return GVM_E_INVALID;
    }
    *reserve_bytes = gvmi_round_up(body->reserve_bytes, *chunk_bytes);
    if (*reserve_bytes / *chunk_bytes > KEEP_CHUNKS_MAX) {
        *text = "reserve_bytes is more than 65536 chunks: use larger ones";
        return GVM_E_INVALID;
    }
    if (body->bytes > *reserve_bytes) {
        *text = "bytes are beyond reserve_bytes";
        return GVM_E_INVALID;
    }
    return GVM_OK;
}

/* The next number of the sequence SplitMix64: spread evenly, not secret. */
static uint64_t next_random(gvmi_machine *m)
{
    uint64_t x = m->random += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool is_proposed(const gvmi_machine *m, uint64_t address, uint64_t bytes)
{
    for (const keep_object *o = m->objects; o != NULL; o = o->next)
        if (o->proposed && o->home_address < address + bytes &&
            address < o->home_address + o->reserve_bytes)
            return true;
    return false;
}

/* Where all processes can have the object: addresses that were proposed for no other object of the keeper. 0: none, or too few would be
 * left: fewer than its user has then (the keeper's own, and root: than the object has). */
static uint64_t propose_address(gvmi_machine *m, const keep_user *user, uint64_t reserve_bytes,
                                uint64_t chunk_bytes)
{
    if (!gvmi_keep_may_take(m, user, KEEP_ADDRESSES, 2 * reserve_bytes))
        return 0;
    for (int i = 0; i < ADDRESS_TRIES && reserve_bytes < GVMI_OBJECT_RANGE_BYTES; i++) {
        const uint64_t offset = next_random(m) % (GVMI_OBJECT_RANGE_BYTES - reserve_bytes);
        const uint64_t address = GVMI_OBJECT_RANGE_ADDRESS + gvmi_round_down(offset, chunk_bytes);

        if (!is_proposed(m, address, reserve_bytes))
            return address;
    }
    return 0;
}

static keep_object *new_object(gvmi_machine *m, keep_client *client, uint32_t device,
                               const gvmi_wire_create *body, uint64_t reserve_bytes,
                               uint64_t chunk_bytes)
{
    keep_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        return NULL;
    object->chunk_bytes = chunk_bytes;
    object->reserve_bytes = reserve_bytes;
    object->home_address = propose_address(m, client->user, reserve_bytes, chunk_bytes);
    object->item.unit_bytes = chunk_bytes;
    if (gvmi_policy_add(m->devices[device].policy, &object->item) != GVM_OK) {
        free(object);
        return NULL;
    }
    object->id = ++m->object_ids;
    object->device = device;
    object->creator = client->number;
    object->created_next = client->created;
    if (object->created_next != NULL)
        object->created_next->created_prev = object;
    client->created = object;
    object->kept = (body->flags & GVM_OBJECT_KEEP) != 0;
    object->untracked = (body->flags & GVM_OBJECT_UNTRACKED) != 0;
    object->has_regions = (body->flags & GVM_OBJECT_REGIONS) != 0;
    object->on_host = (body->flags & GVM_OBJECT_HOST) != 0;
    object->domain = (keep_domain){
        .uid = client->who.uid, .gid = client->who.gid, .mode = body->mode != 0 ? body->mode : 0600};
    object->user = client->user;
    gvmi_keep_take(m, object->user, KEEP_OBJECTS, 1);
    object->proposed = object->home_address != 0;
    if (object->proposed)
        gvmi_keep_take(m, object->user, KEEP_ADDRESSES, reserve_bytes);
    object->generation = 1;
    object->next = m->objects;
    if (m->objects != NULL)
        m->objects->prev = object;
    m->objects = object;
    return object;
}

/* It has no creator any more. */
static void forget_creator(gvmi_machine *m, keep_object *object)
{
    keep_client *client = gvmi_keep_client(m, object->creator);

    if (client == NULL)
        return;
    if (object->created_prev != NULL)
        object->created_prev->created_next = object->created_next;
    else
        client->created = object->created_next;
    if (object->created_next != NULL)
        object->created_next->created_prev = object->created_prev;
    object->created_prev = object->created_next = NULL;
    client->committed_bytes -= (uint64_t)object->chunk_count * object->chunk_bytes;
    object->creator = 0;
}

void gvmi_keep_free_object(gvmi_machine *m, keep_object *object)
{
    const keep_growth *started = object->growth; /* only when the machine ends */
    uint32_t charged = object->chunk_count;

    if (started != NULL && started->started)
        charged += started->new_count - started->old_count;
    forget_creator(m, object);
    gvmi_keep_unname(m, object);
    gvmi_keep_end_links(m, object);
    gvmi_keep_drop_foreign(m, object);
    /* Where it was not marked, gvmi_keep_unname() has put it at the head. */
    for (keep_object **link = &m->marked; *link != NULL; link = &(*link)->next_marked)
        if (*link == object) {
            *link = object->next_marked;
            break;
        }
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        gvmi_keep_set_chunk(m, object, &object->chunks[i], KEEP_NOWHERE, false);
        if (object->chunks[i].device_frame != 0)
            gvmi_keep_give_frame(m, object->chunks[i].device_frame, true);
        if (object->chunks[i].away_frame != 0)
            gvmi_keep_give_frame(m, object->chunks[i].away_frame, true);
    }
    gvmi_keep_discharge(m, object->user, charged * object->chunk_bytes);
    gvmi_keep_unpin(m, object);
    gvmi_policy_remove(m->devices[object->device].policy, &object->item);
    gvmi_keep_skip_object(m, object);
    if (m->looked_next == object)
        m->looked_next = object->next;
    if (object->prev != NULL)
        object->prev->next = object->next;
    else
        m->objects = object->next;
    if (object->next != NULL)
        object->next->prev = object->prev;
    gvmi_keep_end_proposal(m, object);
    gvmi_keep_give(m, object->user, KEEP_OBJECTS, 1);
    while (object->growth != NULL) {
        keep_growth *growth = object->growth;

        object->growth = growth->next;
        gvmi_keep_free_growth(m, growth);
    }
    free(object->metadata);
    free(object->chunks);
    free(object);
}

bool gvmi_keep_is_over(const keep_object *object)
{
    return object->opening_count == 0 && !(object->name[0] != '\0' && object->kept) &&
           object->jobs == 0 && object->moving == 0 && object->growth == NULL &&
           object->first_wait == NULL && !object->unserved;
}

/* The object's own copy of bytes; NULL of none, too. */
static bool copy_metadata(keep_object *object, const uint8_t *bytes, uint32_t len)
{
    void *copy = NULL;

    if (len > 0) {
        copy = malloc(len);
        if (copy == NULL)
            return false;
        memcpy(copy, bytes, len);
    }
    free(object->metadata);
    object->metadata = copy;
    object->metadata_bytes = len;
    return true;
}

/* Everything about a new object that can fail for want of memory; the caller ends it if so. */
static bool allocate_object_parts(gvmi_machine *m, keep_client *client, keep_object *object,
                                  const gvmi_wire_message *message)
{
    keep_opening *opening;

    if (!copy_metadata(object, message->tail.bytes, message->head.tail_bytes) ||
        !gvmi_keep_give_name(m, object, message->body.CREATE.name))
        return false;
    opening = gvmi_keep_new_opening(m, client, object, 0, UINT32_MAX);
    if (opening == NULL)
        return false;
    if (gvmi_keep_grow_to(m, object, client, opening, message->head.request,
                          message->body.CREATE.bytes) == GVM_OK)
        return true;
    gvmi_keep_end_opening(m, opening);
    return false;
}

void gvmi_keep_create(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_create *body = &message->body.CREATE;
    const uint64_t request = message->head.request;
    uint64_t reserve_bytes = 0, chunk_bytes = 0;
    const char *text = "";
    uint32_t device;
    keep_object *object;

    if (choose_sizes(body, &reserve_bytes, &chunk_bytes, &text) != GVM_OK) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_INVALID, "%s", text);
    } else if (!find_config_device(m, body->device_uuid, &device)) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_OTHERDEVICE,
                               "the keeper does not serve that device");
    } else if (body->name[0] != '\0' && gvmi_keep_find(m, body->name) != NULL) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_EXISTS, "there is an object %s already",
                               GVMI_TEXT_NAME(body->name));
    } else if (!gvmi_keep_may_take(m, client->user, KEEP_OBJECTS, 1)) {
        gvmi_keep_reply_allowance(m, client, request, KEEP_OBJECTS);
    } else if (!gvmi_keep_may_open(m, client, request) || !gvmi_keep_may_grow(m, client, request)) {
        return; /* the reply is sent */
    } else if ((object = new_object(m, client, device, body, reserve_bytes, chunk_bytes)) == NULL) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    } else {
        if (!allocate_object_parts(m, client, object, message)) {
            object->kept = false;
            gvmi_keep_mark(m, object); /* and so it ends */
            gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
        }
    }
}

void gvmi_keep_open(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_open *body = &message->body.OPEN;
    const uint64_t request = message->head.request;
    const uint32_t bits = (body->flags & GVM_OPEN_READONLY) != 0 ? 4 : 6;
    const bool linked = (body->flags & GVM_OPEN_LINK) != 0;
    const keep_link *link = linked ? gvmi_keep_find_link(m, body->name) : NULL;
    keep_object *object = link != NULL ? link->links->object
                          : linked     ? NULL
                                       : gvmi_keep_find_made(m, body->name);
    const uint32_t mode = link != NULL ? link->mode : object != NULL ? object->domain.mode : 0;
    keep_opening *opening;

    if (object == NULL)
        gvmi_keep_reply_failed(m, client, request, GVM_E_ABSENT, "there is no %s %s",
                               linked ? "link" : "object", GVMI_TEXT_NAME(body->name));
    else if (!gvmi_keep_mode_allows(m, client, object, mode, object->sealed ? 4 : bits) ||
             (linked && (bits & 2) != 0 && (mode & 0222) == 0)) /* a link for reading is that for admins, too */
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "the owner and mode (%04o) of %s do not allow it", mode,
                               GVMI_TEXT_NAME(body->name));
    else if (gvmi_keep_holds_too_much(m, client->user))
        gvmi_keep_reply_holds(m, client, request);
    else if (!gvmi_keep_check_openings_limit(m, client, object, body->name, request) ||
             !gvmi_keep_may_open(m, client, request))
        return; /* the reply is sent */
    else if ((opening = gvmi_keep_new_opening(m, client, object, body->flags,
                                              link != NULL ? link->chunk_limit : UINT32_MAX)) == NULL)
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    else
        gvmi_keep_welcome_opening(m, opening, request);
}

/* ---- the end of openings and creators */

static void drop_creator_reference(gvmi_machine *m, keep_object *object)
{
    forget_creator(m, object);
    if (!object->kept) {
        gvmi_keep_unname(m, object);
        gvmi_keep_end_links(m, object);
    }
}

void gvmi_keep_close(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.CLOSE.slot);
    keep_object *object;

    if (opening == NULL)
        return;
    object = opening->object;
    if (!opening->broken)
        gvmi_keep_hold_closed(m, opening);
    opening->granted_readers = opening->granted_writers = 0; /* what it has not taken by now it does not take */
    gvmi_keep_end_opening(m, opening);
    if (object->creator == client->number && gvmi_keep_count_openings(client, object) == 0)
        drop_creator_reference(m, object);
    gvmi_keep_reply_done(m, client, message->head.request, 0);
}

void gvmi_keep_forget_creator(gvmi_machine *m, keep_client *client)
{
    while (client->created != NULL)
        drop_creator_reference(m, client->created);
}

/* ---- changing what an object is */

void gvmi_keep_publish(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_publish *body = &message->body.PUBLISH;
    const uint64_t request = message->head.request;
    keep_opening *opening = gvmi_keep_opening(m, client, body->slot);
    keep_object *object, *other;

    if (opening == NULL)
        return;
    object = opening->object;
    other = gvmi_keep_find(m, body->name);
    if (!gvmi_keep_owns(m, client, object)) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "only its owner may publish an object");
        return;
    }
    if ((body->flags & GVM_PUBLISH_PRIVATE) != 0 && object->creator != client->number) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "only its creator may name a private object");
        return;
    }
    if (other != NULL && other != object) {
        if ((body->flags & GVM_PUBLISH_REPLACE) == 0) {
            gvmi_keep_reply_failed(m, client, request, GVM_E_EXISTS,
                                   "there is an object %s already", GVMI_TEXT_NAME(body->name));
            return;
        }
        if (!gvmi_keep_owns(m, client, other)) {
            gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED, "%s belongs to another user",
                                   GVMI_TEXT_NAME(body->name));
            return;
        }
    }
    if (other != object) {
        if (other != NULL)
            gvmi_keep_unname(m, other);
        if (!gvmi_keep_give_name(m, object, body->name)) {
            gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM,
                                   "the keeper is out of host memory; the object has no name now");
            return;
        }
    }
    if ((body->flags & GVM_PUBLISH_PRIVATE) == 0)
        object->kept = true;
    gvmi_keep_reply_done(m, client, request, 0);
}

void gvmi_keep_drop(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const char *name = message->body.DROP.name;
    keep_object *object = gvmi_keep_find_made(m, name);

    if (object == NULL) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_ABSENT,
                               "there is no object %s", GVMI_TEXT_NAME(name));
    } else if (!gvmi_keep_owns(m, client, object)) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only its owner and the keeper's user may drop %s",
                               GVMI_TEXT_NAME(name));
    } else {
        gvmi_keep_unname(m, object);
        gvmi_keep_end_links(m, object);
        gvmi_keep_reply_done(m, client, message->head.request, 0);
    }
}

void gvmi_keep_set_mode(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_slot_value *body = &message->body.SET_MODE;
    keep_opening *opening = gvmi_keep_opening(m, client, body->slot);

    if (opening == NULL)
        return;
    if (!gvmi_keep_owns(m, client, opening->object)) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only its owner may change an object's mode");
        return;
    }
    opening->object->mixed = opening->object->mixed || opening->object->domain.mode != body->value;
    opening->object->domain.mode = body->value;
    gvmi_keep_reply_done(m, client, message->head.request, 0);
}

void gvmi_keep_set_metadata(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const uint64_t request = message->head.request;
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.SET_METADATA.slot);

    if (opening == NULL)
        return;
    if (!gvmi_keep_may_change(m, client, opening, request))
        return;
    if (opening->object->sealed)
        gvmi_keep_reply_failed(m, client, request, GVM_E_SEALED, "the object is sealed");
    else if (!copy_metadata(opening->object, message->tail.bytes, message->head.tail_bytes))
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    else
        gvmi_keep_reply_done(m, client, request, 0);
}

void gvmi_keep_get_metadata(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.GET_METADATA.slot);
    gvmi_wire_message reply;

    if (opening == NULL)
        return;
    gvmi_wire_start(&reply, GVMI_WIRE_METADATA, message->head.request);
    reply.head.tail_bytes = opening->object->metadata_bytes;
    if (reply.head.tail_bytes > 0)
        memcpy(reply.tail.bytes, opening->object->metadata, reply.head.tail_bytes);
    (void)gvmi_keep_send(m, client, &reply, NULL);
}
