/* Names of objects, and links: further names. */
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/machine/state.h"

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

bool gvmi_keep_give_name(gvmi_machine *m, keep_object *object, const char *name)
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

void gvmi_keep_end_links(gvmi_machine *m, keep_object *object)
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
    keep_opening *opening = gvmi_keep_opening(m, client, body->slot);
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
