/* Which client is served next; see schedule.h.
 *
 * I1  a user is in the list of those to be served iff a place of it is queued; none of it has had less time than
 *     those before it.
 * I2  had_ns of the schedule never falls, and no queued user has had less. */
#include "keeper/server/schedule.h"

#include <search.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"

static gvmi_schedule_user *find_schedule_user(const gvmi_schedule *schedule, uint32_t uid)
{
    void *const *node = tfind(&uid, (void *const *)&schedule->users, gvmi_compare_u32);

    return node == NULL
               ? NULL
               : (gvmi_schedule_user *)(void *)((char *)*node - offsetof(gvmi_schedule_user, uid));
}

static gvmi_schedule_user *new_user(gvmi_schedule *schedule, uint32_t uid)
{
    gvmi_schedule_user *user = calloc(1, sizeof *user);

    if (user == NULL)
        return NULL;
    user->uid = uid;
    user->weight = 1;
    user->had_ns = schedule->had_ns + GVMI_VISIT_NS; /* who leaves and comes again is behind who stays */
    if (tsearch(&user->uid, &schedule->users, gvmi_compare_u32) != NULL)
        return user;
    free(user);
    return NULL;
}

gvm_status gvmi_schedule_join(gvmi_schedule *schedule, uint32_t uid, void *owner, gvmi_place *out)
{
    gvmi_schedule_user *user = find_schedule_user(schedule, uid);

    if (user == NULL)
        user = new_user(schedule, uid);
    if (user == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a user");
    user->places++;
    *out = (gvmi_place){.owner = owner, .user = user};
    return GVM_OK;
}

void gvmi_schedule_leave(gvmi_schedule *schedule, gvmi_place *place)
{
    gvmi_schedule_user *user = place->user;

    GVM_ASSERT(!place->queued);
    if (user == NULL)
        return;
    place->user = NULL;
    if (--user->places > 0)
        return;
    if (schedule->visited == user)
        schedule->visited = NULL;
    tdelete(&user->uid, &schedule->users, gvmi_compare_u32);
    free(user);
}

/* Behind those that have had as much. */
static void insert_schedule_user(gvmi_schedule *schedule, gvmi_schedule_user *user)
{
    gvmi_schedule_user **at = &schedule->first;

    while (*at != NULL && (*at)->had_ns <= user->had_ns)
        at = &(*at)->next;
    user->next = *at;
    *at = user;
}

static void remove_user(gvmi_schedule *schedule, gvmi_schedule_user *user)
{
    gvmi_schedule_user **at = &schedule->first;

    while (*at != user)
        at = &(*at)->next;
    *at = user->next;
}

void gvmi_schedule_queue(gvmi_schedule *schedule, gvmi_place *place)
{
    gvmi_schedule_user *user = place->user;

    if (place->queued)
        return;
    place->queued = true;
    place->next = NULL;
    if (user->first == NULL) {
        if (user->had_ns < schedule->had_ns)
            user->had_ns = schedule->had_ns;
        insert_schedule_user(schedule, user);
    }
    *(user->first != NULL ? &user->last->next : &user->first) = place;
    user->last = place;
}

void *gvmi_schedule_next(gvmi_schedule *schedule, int64_t now_ns)
{
    gvmi_schedule_user *user = schedule->first;
    gvmi_place *place;

    schedule->visited = user;
    if (user == NULL)
        return NULL;
    schedule->had_ns = user->had_ns;
    schedule->end_ns = now_ns + GVMI_VISIT_NS;
    place = user->first;
    user->first = place->next;
    place->queued = false;
    if (user->first == NULL)
        schedule->first = user->next;
    return place->owner;
}

void gvmi_schedule_visited(gvmi_schedule *schedule, int64_t spent_ns)
{
    gvmi_schedule_user *user = schedule->visited;

    schedule->visited = NULL;
    if (user == NULL)
        return;
    if (user->first != NULL)
        remove_user(schedule, user);
    user->had_ns += spent_ns / user->weight;
    if (user->first != NULL)
        insert_schedule_user(schedule, user);
}

void gvmi_schedule_clear(gvmi_schedule *schedule)
{
    while (gvmi_schedule_next(schedule, 0) != NULL)
        ;
}

bool gvmi_schedule_waits(const gvmi_schedule *schedule)
{
    return schedule->first != NULL;
}
