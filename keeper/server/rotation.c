/* Which client is served next; see rotation.h.
 *
 * I1  a user is in the list of those to be served iff a place of it is queued.
 * I2  a slice that has begun is the first user's, and that user has been visited in it. */
#include "keeper/server/rotation.h"

#include <search.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"

static int compare_uids(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static gvmi_rotation_user *find_user(const gvmi_rotation *rotation, uint32_t uid)
{
    void *const *node = tfind(&uid, (void *const *)&rotation->users, compare_uids);

    return node == NULL
               ? NULL
               : (gvmi_rotation_user *)(void *)((char *)*node - offsetof(gvmi_rotation_user, uid));
}

static gvmi_rotation_user *new_user(gvmi_rotation *rotation, uint32_t uid)
{
    gvmi_rotation_user *user = calloc(1, sizeof *user);

    if (user == NULL)
        return NULL;
    user->uid = uid;
    user->slice_ns = GVMI_SLICE_NS;
    if (tsearch(&user->uid, &rotation->users, compare_uids) != NULL)
        return user;
    free(user);
    return NULL;
}

gvm_status gvmi_rotation_join(gvmi_rotation *rotation, uint32_t uid, void *owner, gvmi_place *out)
{
    gvmi_rotation_user *user = find_user(rotation, uid);

    if (user == NULL)
        user = new_user(rotation, uid);
    if (user == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a user");
    user->places++;
    *out = (gvmi_place){.owner = owner, .user = user};
    return GVM_OK;
}

void gvmi_rotation_leave(gvmi_rotation *rotation, gvmi_place *place)
{
    gvmi_rotation_user *user = place->user;

    GVM_ASSERT(!place->queued);
    if (user == NULL)
        return;
    place->user = NULL;
    if (--user->places > 0)
        return;
    tdelete(&user->uid, &rotation->users, compare_uids);
    free(user);
}

static void add_user(gvmi_rotation *rotation, gvmi_rotation_user *user)
{
    user->next = NULL;
    *(rotation->last != NULL ? &rotation->last->next : &rotation->first) = user;
    rotation->last = user;
}

static gvmi_rotation_user *take_user(gvmi_rotation *rotation)
{
    gvmi_rotation_user *user = rotation->first;

    rotation->first = user->next;
    if (rotation->first == NULL)
        rotation->last = NULL;
    rotation->begun = false;
    return user;
}

void gvmi_rotation_queue(gvmi_rotation *rotation, gvmi_place *place)
{
    gvmi_rotation_user *user = place->user;

    if (place->queued)
        return;
    place->queued = true;
    place->next = NULL;
    if (user->first == NULL)
        add_user(rotation, user);
    *(user->first != NULL ? &user->last->next : &user->first) = place;
    user->last = place;
}

void *gvmi_rotation_next(gvmi_rotation *rotation, int64_t now_ns)
{
    gvmi_rotation_user *user;
    gvmi_place *place;

    if (rotation->begun && now_ns >= rotation->end_ns)
        add_user(rotation, take_user(rotation));
    user = rotation->first;
    if (user == NULL)
        return NULL;
    if (!rotation->begun)
        rotation->end_ns = now_ns + user->slice_ns;
    rotation->begun = true;
    place = user->first;
    user->first = place->next;
    place->queued = false;
    if (user->first == NULL)
        (void)take_user(rotation);
    return place->owner;
}

void gvmi_rotation_clear(gvmi_rotation *rotation)
{
    while (gvmi_rotation_next(rotation, 0) != NULL)
        ;
}

bool gvmi_rotation_waits(const gvmi_rotation *rotation)
{
    return rotation->first != NULL;
}
