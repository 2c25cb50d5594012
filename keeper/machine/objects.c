/* Objects: names, rights, links, openings, and their end.
 *
 * An object lives while it is open anywhere, or has a name and is kept (published, sealed, or made
 * to be). An object that is not kept loses its name when its creator closes it or goes. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/size.h"
#include "base/text.h"
#include "keeper/machine/state.h"

/* Chunks as large as keep their number small: the driver charges by the chunk. As for buffers
 * (memory/buffer.c). */
#define CHUNKS_WANTED 16
#define CHUNK_BYTES_CHOSEN_MAX (64ull << 20)
#define RESERVE_BYTES_MAX (1ull << 46)

/* ---- names: a tree of pointers to keep_object.name */

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

keep_object *gvmi_keep_find(const gvmi_machine *m, const char *name)
{
    void *const *node = tfind(name, (void *const *)&m->names, compare_names);

    return node == NULL ? NULL : (keep_object *)(void *)((char *)*node - offsetof(keep_object, name));
}

keep_object *gvmi_keep_find_made(const gvmi_machine *m, const char *name)
{
    keep_object *object = gvmi_keep_find(m, name);

    if (object != NULL && object->growth != NULL && object->growth->opened_by != NULL)
        return NULL; /* CREATE is not answered yet, and may fail */
    return object;
}

void gvmi_keep_unname(gvmi_machine *m, keep_object *object)
{
    if (object->name[0] != '\0')
        tdelete(object->name, &m->names, compare_names);
    memset(object->name, 0, sizeof object->name); /* it is sent as it is */
    gvmi_keep_mark(m, object);
}

/* The name is free. False: no memory; then it has none. */
static bool give_name(gvmi_machine *m, keep_object *object, const char *name)
{
    gvmi_keep_unname(m, object);
    if (name[0] == '\0')
        return true;
    strcpy(object->name, name); /* of the same size, and terminated: the decoder saw to it */
    if (tsearch(object->name, &m->names, compare_names) != NULL)
        return true;
    memset(object->name, 0, sizeof object->name);
    return false;
}

/* ---- rights */

static bool in_group(const keep_client *client, uint32_t gid)
{
    if (gid == GVMI_GROUP_NONE)
        return false;
    if (client->who.gid == gid)
        return true;
    for (uint32_t i = 0; i < client->who.group_count && i < GVMI_GROUPS_MAX; i++)
        if (client->who.groups[i] == gid)
            return true;
    return false;
}

/* bits as for others: 4 read, 2 write. */
static bool mode_allows(const gvmi_machine *m, const keep_client *client, const keep_object *object,
                        uint32_t mode, uint32_t bits)
{
    uint32_t granted = mode & 7;

    if (gvmi_keep_is_admin(m, client))
        return true;
    if (client->who.uid == object->domain.uid)
        granted = mode >> 6 & 7;
    else if (in_group(client, object->domain.gid))
        granted = mode >> 3 & 7;
    return (granted & bits) == bits;
}

bool gvmi_keep_may(const gvmi_machine *m, const keep_client *client, const keep_object *object,
                   uint32_t bits)
{
    return mode_allows(m, client, object, object->domain.mode, bits);
}

bool gvmi_keep_owns(const gvmi_machine *m, const keep_client *client, const keep_object *object)
{
    return gvmi_keep_is_admin(m, client) || client->who.uid == object->domain.uid;
}

/* ---- links: a tree of pointers to keep_link.name */

/* One that has ended and is not freed yet, too. */
static keep_link *find_link(const gvmi_machine *m, const char *name)
{
    void *const *node = tfind(name, (void *const *)&m->links, compare_names);

    return node == NULL ? NULL : (keep_link *)(void *)((char *)*node - offsetof(keep_link, name));
}

const keep_link *gvmi_keep_find_link(const gvmi_machine *m, const char *name)
{
    const keep_link *link = find_link(m, name);

    return link != NULL && link->links->object != NULL ? link : NULL;
}

static void free_link(gvmi_machine *m, keep_link *link)
{
    keep_links *links = link->links;

    tdelete(link->name, &m->links, compare_names);
    *(link->prev != NULL ? &link->prev->next : &links->first) = link->next;
    if (link->next != NULL)
        link->next->prev = link->prev;
    links->count--;
    if (links->object != NULL)
        gvmi_keep_give(m, links->object->user, KEEP_LINKS, 1);
    free(link);
}

/* All links of the object, at once: they are freed in later turns. */
static void end_links(gvmi_machine *m, keep_object *object)
{
    keep_links *links = object->links;

    if (links == NULL)
        return;
    object->links = NULL;
    links->object = NULL;
    links->next_ended = m->ended_links;
    m->ended_links = links;
    gvmi_keep_give(m, object->user, KEEP_LINKS, links->count);
}

void gvmi_keep_free_ended_links(gvmi_machine *m, uint32_t most)
{
    for (uint32_t i = 0; i < most && m->ended_links != NULL; i++) {
        keep_links *links = m->ended_links;

        if (links->first != NULL)
            free_link(m, links->first);
        if (links->first != NULL)
            continue;
        m->ended_links = links->next_ended;
        free(links);
    }
}

/* NULL: no memory. */
static keep_links *links_of(keep_object *object)
{
    if (object->links == NULL)
        object->links = calloc(1, sizeof *object->links);
    if (object->links != NULL)
        object->links->object = object;
    return object->links;
}

/* Nobody has a link of that name. False: no memory. As one that has ended is freed for each that is made, there are
 * never more than the limit. */
static bool make_link(gvmi_machine *m, keep_object *object, const gvmi_wire_link *body)
{
    const size_t name_bytes = strlen(body->name) + 1;
    const uint64_t chunks = (body->bytes - 1) / object->chunk_bytes + 1;
    keep_links *links = links_of(object);
    keep_link *link = links != NULL ? malloc(sizeof *link + name_bytes) : NULL;

    gvmi_keep_free_ended_links(m, 1);
    if (link == NULL)
        return false;
    *link = (keep_link){.links = links,
                        .mode = body->mode,
                        .chunk_limit = chunks < KEEP_CHUNKS_MAX ? (uint32_t)chunks : KEEP_CHUNKS_MAX,
                        .next = links->first};
    memcpy(link->name, body->name, name_bytes);
    if (tsearch(link->name, &m->links, compare_names) == NULL) {
        free(link);
        return false;
    }
    if (link->next != NULL)
        link->next->prev = link;
    links->first = link;
    links->count++;
    gvmi_keep_take(m, object->user, KEEP_LINKS, 1);
    return true;
}

void gvmi_keep_link(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_link *body = &message->body.LINK;
    const uint64_t request = message->head.request;
    keep_opening *opening = gvmi_keep_opening(m, client, message, body->slot);
    keep_link *other = find_link(m, body->name);
    const keep_object *linked = other != NULL ? other->links->object : NULL;

    if (opening == NULL)
        return;
    if (body->bytes == 0)
        gvmi_keep_reply_failed(m, client, request, GVM_E_INVALID, "a link to no bytes");
    else if (!gvmi_keep_owns(m, client, opening->object))
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED, "only its owner may link an object");
    else if (linked != NULL && !gvmi_keep_owns(m, client, linked))
        gvmi_keep_reply_failed(m, client, request, GVM_E_EXISTS,
                               "there is a link of that name already");
    else if (linked == NULL && !gvmi_keep_may_take(m, opening->object->user, KEEP_LINKS, 1))
        gvmi_keep_reply_allowance(m, client, request, KEEP_LINKS);
    else {
        if (other != NULL)
            free_link(m, other);
        if (make_link(m, opening->object, body))
            gvmi_keep_reply_done(m, client, request, 0);
        else
            gvmi_keep_reply_failed(
                m, client, request, GVM_E_NOMEM,
                "the keeper is out of host memory; there is no link of that name now");
    }
}

void gvmi_keep_unlink(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const uint64_t request = message->head.request;
    keep_link *link = find_link(m, message->body.UNLINK.name);

    if (link == NULL || link->links->object == NULL) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_ABSENT, "there is no link of that name");
    } else if (!gvmi_keep_owns(m, client, link->links->object)) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "only the owner of the object and the keeper's user may end a link");
    } else {
        free_link(m, link);
        gvmi_keep_reply_done(m, client, request, 0);
    }
}

/* ---- openings */

uint32_t gvmi_keep_opened_chunks(const keep_opening *opening)
{
    const uint32_t chunks = opening->object->chunk_count;

    return chunks < opening->chunk_limit ? chunks : opening->chunk_limit;
}

uint64_t gvmi_keep_opened_bytes(const keep_opening *opening, uint64_t bytes)
{
    const uint64_t limit = opening->chunk_limit * opening->object->chunk_bytes;

    return bytes < limit ? bytes : limit;
}

keep_opening *gvmi_keep_opening(gvmi_machine *m, keep_client *client,
                                const gvmi_wire_message *message, uint32_t slot)
{
    (void)message;
    if (slot < GVM_OBJECTS_OPEN_MAX && client->slots[slot] != NULL && client->slots[slot]->welcomed)
        return client->slots[slot];
    gvmi_keep_violated(m, client, "a slot that is not open");
    return NULL;
}

static bool has_slot(const keep_client *client)
{
    return client->opening_count < GVM_OBJECTS_OPEN_MAX;
}

/* The lowest that is free; there is one. */
static uint32_t take_slot(keep_client *client)
{
    while (client->slots[client->free_slot] != NULL)
        client->free_slot++;
    return client->free_slot++;
}

/* Of the object, by the client. */
static uint32_t count_openings(const keep_client *client, const keep_object *object)
{
    uint32_t count = 0;

    for (const keep_opening *o = client->openings; o != NULL; o = o->own_next)
        count += o->object == object;
    return count;
}

/* ---- whose openings of an object there are */

static keep_opener *find_opener(const keep_object *object, const keep_user *user)
{
    keep_opener *opener = object->openers;

    while (opener != NULL && opener->user != user)
        opener = opener->next;
    return opener;
}

/* NULL: no memory. */
static keep_opener *take_opener(keep_object *object, keep_user *user)
{
    keep_opener *opener = find_opener(object, user);

    if (opener == NULL) {
        opener = calloc(1, sizeof *opener);
        if (opener == NULL)
            return NULL;
        opener->user = user;
        opener->next = object->openers;
        if (opener->next != NULL)
            opener->next->prev = opener;
        object->openers = opener;
    }
    opener->count++;
    return opener;
}

static void release_opener(keep_object *object, keep_opener *opener)
{
    if (--opener->count > 0)
        return;
    if (opener->prev != NULL)
        opener->prev->next = opener->next;
    else
        object->openers = opener->next;
    if (opener->next != NULL)
        opener->next->prev = opener->prev;
    free(opener);
}

/* What one acquire costs grows with the openings of the object. */
static bool check_openings_limit(gvmi_machine *m, keep_client *client, const keep_object *object,
                                 const char *name, uint64_t request)
{
    const keep_opener *opener = find_opener(object, client->user);

    if (count_openings(client, object) >= KEEP_CLIENT_OPENINGS_MAX)
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "this connection has %s open %u times, the limit: use one of them",
                               GVMI_TEXT_NAME(name), KEEP_CLIENT_OPENINGS_MAX);
    else if (opener != NULL && opener->count >= KEEP_USER_OPENINGS_MAX && !gvmi_keep_is_admin(m, client))
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "user %u has %s open %u times, the limit: close some",
                               client->user->uid, GVMI_TEXT_NAME(name), KEEP_USER_OPENINGS_MAX);
    else
        return true;
    return false;
}

/* May the client open one more? If not, the reply with the reason is sent. */
static bool may_open(gvmi_machine *m, keep_client *client, uint64_t request)
{
    if (!has_slot(client))
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "this connection has %u objects open, the limit: close some",
                               client->opening_count);
    else if (!gvmi_keep_may_take(m, client->user, KEEP_OPENINGS, 1))
        gvmi_keep_reply_allowance(m, client, request, KEEP_OPENINGS);
    else
        return true;
    return false;
}

/* NULL: no memory. There is a slot. */
static keep_opening *new_opening(gvmi_machine *m, keep_client *client, keep_object *object,
                                 uint32_t flags, uint32_t chunk_limit)
{
    keep_opening *opening = calloc(1, sizeof *opening);
    uint32_t slot;

    if (opening != NULL)
        opening->opener = take_opener(object, client->user);
    if (opening == NULL || opening->opener == NULL) {
        free(opening);
        return NULL;
    }
    slot = take_slot(client);
    opening->client = client;
    opening->object = object;
    opening->slot = slot;
    opening->flags = flags;
    opening->chunk_limit = chunk_limit;
    opening->lease = &client->leases[slot];
    opening->permit = &client->permits[slot];
    opening->next = object->openings;
    if (object->openings != NULL)
        object->openings->prev = opening;
    object->openings = opening;
    object->opening_count++;
    client->slots[slot] = opening;
    opening->own_next = client->openings;
    if (opening->own_next != NULL)
        opening->own_next->own_prev = opening;
    client->openings = opening;
    client->opening_count++;
    gvmi_keep_take(m, client->user, KEEP_OPENINGS, 1);
    /* The client does not use the slot before OPENED. */
    atomic_store(&opening->lease->word, 0);
    atomic_store(&opening->lease->hint, GVM_HINT_NONE);
    gvmi_keep_publish_permit(opening);
    return opening;
}

void gvmi_keep_end_opening(gvmi_machine *m, keep_opening *opening)
{
    keep_object *object = opening->object;
    keep_client *client = opening->client;

    (void)gvmi_keep_sample_opening(m, opening); /* the object may have very many others */
    gvmi_keep_end_waits(m, client, opening);
    gvmi_keep_holder_gone(m, opening);
    gvmi_keep_answer_all(m, opening);
    gvmi_keep_forget_opening(opening);
    if (opening->prev != NULL)
        opening->prev->next = opening->next;
    else
        object->openings = opening->next;
    if (opening->next != NULL)
        opening->next->prev = opening->prev;
    if (object->first_held == opening)
        object->first_held = opening->next;
    release_opener(object, opening->opener);
    object->opening_count--;
    client->slots[opening->slot] = NULL;
    if (opening->slot < client->free_slot)
        client->free_slot = opening->slot;
    if (opening->own_prev != NULL)
        opening->own_prev->own_next = opening->own_next;
    else
        client->openings = opening->own_next;
    if (opening->own_next != NULL)
        opening->own_next->own_prev = opening->own_prev;
    client->opening_count--;
    gvmi_keep_give(m, client->user, KEEP_OPENINGS, 1);
    atomic_store(&opening->permit->word, gvmi_permit(object->generation, GVMI_PERMIT_GONE));
    free(opening);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_welcome_opening(gvmi_machine *m, keep_opening *opening, uint64_t request)
{
    const keep_object *object = opening->object;
    gvmi_wire_message reply;

    gvmi_wire_start(&reply, GVMI_WIRE_OPENED, request);
    reply.body.OPENED = (gvmi_wire_opened){
        .slot = opening->slot,
        .generation = object->generation,
        .id = object->id,
        .reserve_bytes = gvmi_keep_opened_bytes(opening, object->reserve_bytes),
        .chunk_bytes = object->chunk_bytes,
        .bytes = gvmi_keep_opened_bytes(opening, object->bytes),
        .home_address = object->home_address,
        .open_flags = opening->flags,
        .sealed = object->sealed};
    memcpy(reply.body.OPENED.device_uuid, m->config.devices[object->device].uuid,
           sizeof reply.body.OPENED.device_uuid);
    opening->welcomed = true;
    opening->sent_generation = object->generation - 1;
    opening->sent_bytes = reply.body.OPENED.bytes;
    if (gvmi_keep_send(m, opening->client, &reply, NULL))
        gvmi_keep_send_all(m, opening);
}

/* ---- create and open */

static bool find_config_device(const gvmi_machine *m, const uint8_t uuid[16], uint32_t *device)
{
    for (*device = 0; *device < m->config.device_count; (*device)++)
        if (memcmp(m->config.devices[*device].uuid, uuid, 16) == 0)
            return true;
    return false;
}

static uint64_t choose_chunk_bytes(uint64_t reserve_bytes)
{
    const uint64_t bytes = gvmi_pow2_up(reserve_bytes / CHUNKS_WANTED);

    if (bytes < GVM_CHUNK_BYTES_MIN)
        return GVM_CHUNK_BYTES_MIN;
    return bytes < CHUNK_BYTES_CHOSEN_MAX ? bytes : CHUNK_BYTES_CHOSEN_MAX;
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
        *chunk_bytes = choose_chunk_bytes(body->reserve_bytes);
    if (!gvmi_is_pow2(*chunk_bytes) || *chunk_bytes < GVM_CHUNK_BYTES_MIN ||
        *chunk_bytes > GVM_CHUNK_BYTES_MAX) {
        *text = "chunk_bytes is no power of two from 2 MiB to 1 GiB";
        return GVM_E_INVALID;
    }
    *reserve_bytes = gvmi_round_up(body->reserve_bytes, *chunk_bytes);
    if (*reserve_bytes / *chunk_bytes > KEEP_CHUNKS_MAX) {
        *text = "reserve_bytes is more than 1048576 chunks: use larger ones";
        return GVM_E_INVALID;
    }
    if (body->bytes > *reserve_bytes) {
        *text = "bytes are beyond reserve_bytes";
        return GVM_E_INVALID;
    }
    return GVM_OK;
}

static keep_object *new_object(gvmi_machine *m, keep_client *client, uint32_t device,
                               const gvmi_wire_create *body, uint64_t chunk_bytes)
{
    keep_object *object = calloc(1, sizeof *object);

    if (object == NULL)
        return NULL;
    object->chunk_bytes = chunk_bytes;
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
    object->domain = (keep_domain){
        .uid = client->who.uid, .gid = client->who.gid, .mode = body->mode != 0 ? body->mode : 0600};
    object->user = client->user;
    gvmi_keep_take(m, object->user, KEEP_OBJECTS, 1);
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
    end_links(m, object);
    gvmi_keep_drop_foreign(m, object);
    for (keep_object **link = &m->marked; *link != NULL; link = &(*link)->next_marked)
        if (*link == object) {
            *link = object->next_marked;
            break;
        }
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        gvmi_keep_set_chunk(m, object, &object->chunks[i], (gvm_tier)object->chunks[i].where, false);
        if (object->chunks[i].device_frame != 0)
            gvmi_keep_give_frame(m, object->chunks[i].device_frame, true);
        if (object->chunks[i].host_frame != 0)
            gvmi_keep_give_frame(m, object->chunks[i].host_frame, true);
    }
    gvmi_keep_discharge(m, object->user, charged * object->chunk_bytes);
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
        !give_name(m, object, message->body.CREATE.name))
        return false;
    opening = new_opening(m, client, object, 0, UINT32_MAX);
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
    } else if (!may_open(m, client, request) || !gvmi_keep_may_grow(m, client, request)) {
        return; /* the reply is sent */
    } else if ((object = new_object(m, client, device, body, chunk_bytes)) == NULL) {
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    } else {
        object->reserve_bytes = reserve_bytes;
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
    else if (linked && bits != 4)
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED, "a link is opened for reading alone");
    else if (!mode_allows(m, client, object, mode, object->sealed ? 4 : bits))
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED,
                               "the owner and mode (%04o) of %s do not allow it", mode,
                               GVMI_TEXT_NAME(body->name));
    else if (gvmi_keep_holds_too_much(m, client->user))
        gvmi_keep_reply_holds(m, client, request);
    else if (!check_openings_limit(m, client, object, body->name, request) ||
             !may_open(m, client, request))
        return; /* the reply is sent */
    else if ((opening = new_opening(m, client, object, body->flags,
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
        end_links(m, object);
    }
}

void gvmi_keep_close(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message, message->body.CLOSE.slot);
    keep_object *object;

    if (opening == NULL)
        return;
    object = opening->object;
    if (!opening->broken)
        gvmi_keep_hold_untrusted(m, opening, true);
    gvmi_keep_end_opening(m, opening);
    if (object->creator == client->number && count_openings(client, object) == 0)
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
    keep_opening *opening = gvmi_keep_opening(m, client, message, body->slot);
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
        if (!give_name(m, object, body->name)) {
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
        end_links(m, object);
        gvmi_keep_reply_done(m, client, message->head.request, 0);
    }
}

void gvmi_keep_set_mode(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_slot_value *body = &message->body.SET_MODE;
    keep_opening *opening = gvmi_keep_opening(m, client, message, body->slot);

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
    keep_opening *opening = gvmi_keep_opening(m, client, message, message->body.SET_METADATA.slot);

    if (opening == NULL)
        return;
    if ((opening->flags & GVM_OPEN_READONLY) != 0)
        gvmi_keep_reply_failed(m, client, request, GVM_E_DENIED, "the object was opened read-only");
    else if (opening->object->sealed)
        gvmi_keep_reply_failed(m, client, request, GVM_E_SEALED, "the object is sealed");
    else if (!copy_metadata(opening->object, message->tail.bytes, message->head.tail_bytes))
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    else
        gvmi_keep_reply_done(m, client, request, 0);
}

void gvmi_keep_get_metadata(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message, message->body.GET_METADATA.slot);
    gvmi_wire_message reply;

    if (opening == NULL)
        return;
    gvmi_wire_start(&reply, GVMI_WIRE_METADATA, message->head.request);
    reply.head.tail_bytes = opening->object->metadata_bytes;
    if (reply.head.tail_bytes > 0)
        memcpy(reply.tail.bytes, opening->object->metadata, reply.head.tail_bytes);
    (void)gvmi_keep_send(m, client, &reply, NULL);
}
