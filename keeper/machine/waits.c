/* Requests that wait for a lease, or for that nobody has one: each in its object's queue and its client's list. */
#include <stdlib.h>

#include "base/clock.h"
#include "keeper/machine/state.h"

/* What is done of a look at all requests that wait, in one tick: more than one client's, so that each gets on.
 * One whose time is over counts as EXPIRED_UNITS, another as 1. */
#define EXPIRE_SLICE_UNITS 4096u
#define EXPIRED_UNITS 16u

bool gvmi_keep_waits_for_host(const keep_wait *wait)
{
    return wait->for_cpu && wait->object->device_chunks + wait->object->lent_chunks > 0;
}

/* Readers of an untracked object may write, so its seal waits for them, too. A chunk that leaves the device waits for all. */
bool gvmi_keep_waits_for_readers(const keep_wait *wait)
{
    const keep_object *object = wait->object;

    return wait->kind == KEEP_WAIT_WRITE || object->fenced || gvmi_keep_waits_for_host(wait) ||
           (wait->kind == KEEP_WAIT_SEAL && object->untracked && !object->sealed);
}

/* For the next look at who has waited too long, and the one after it. */
static void note_deadline(gvmi_machine *m, const keep_wait *wait)
{
    if (wait->deadline_ns < m->next_wait_ns)
        m->next_wait_ns = wait->deadline_ns;
    if (wait->deadline_ns < m->later_wait_ns)
        m->later_wait_ns = wait->deadline_ns;
}

/* ---- the queue of an object */

/* next NULL: at its end. */
static void queue_before(keep_wait *wait, keep_wait *next)
{
    keep_object *object = wait->object;

    wait->next = next;
    wait->prev = next != NULL ? next->prev : object->last_wait;
    *(wait->prev != NULL ? &wait->prev->next : &object->first_wait) = wait;
    *(next != NULL ? &next->prev : &object->last_wait) = wait;
}

static void unqueue(keep_wait *wait)
{
    keep_object *object = wait->object;

    *(wait->prev != NULL ? &wait->prev->next : &object->first_wait) = wait->next;
    *(wait->next != NULL ? &wait->next->prev : &object->last_wait) = wait->prev;
}

/* Behind all but those that await the end of a move; what waits for nobody's lease, an eviction or a shrink, at the head. */
static void link_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;
    const bool first = wait->kind == KEEP_WAIT_EVICT || wait->kind == KEEP_WAIT_SHRINK;

    queue_before(wait, first ? object->first_wait : object->first_thaw);
    object->wait_count++;
    wait->client->wait_count++;
    wait->own_next = wait->client->waits;
    if (wait->own_next != NULL)
        wait->own_next->own_prev = wait;
    wait->client->waits = wait;
    gvmi_keep_take(m, wait->client->user, KEEP_WAITS, 1);
    note_deadline(m, wait);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_await_thaw(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    GVM_ASSERT(!wait->awaits_thaw);
    unqueue(wait);
    queue_before(wait, NULL);
    if (object->first_thaw == NULL)
        object->first_thaw = wait;
    wait->awaits_thaw = true;
    wait->thaws++;
    wait->thaw_prev = NULL;
    wait->thaw_next = m->thaw_waits;
    if (m->thaw_waits != NULL)
        m->thaw_waits->thaw_prev = wait;
    m->thaw_waits = wait;
}

static void unlist_thaw_wait(gvmi_machine *m, keep_wait *wait)
{
    wait->awaits_thaw = false;
    if (wait->object->first_thaw == wait)
        wait->object->first_thaw = wait->next;
    *(wait->thaw_prev != NULL ? &wait->thaw_prev->thaw_next : &m->thaw_waits) = wait->thaw_next;
    if (wait->thaw_next != NULL)
        wait->thaw_next->thaw_prev = wait->thaw_prev;
}

void gvmi_keep_end_thaw_waits(gvmi_machine *m)
{
    while (m->thaw_waits != NULL) {
        keep_object *object = m->thaw_waits->object;

        unlist_thaw_wait(m, m->thaw_waits);
        object->first_thaw = NULL;
        gvmi_keep_mark(m, object);
    }
}

void gvmi_keep_end_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    if (wait->awaits_thaw)
        unlist_thaw_wait(m, wait);
    unqueue(wait);
    if (wait->own_prev != NULL)
        wait->own_prev->own_next = wait->own_next;
    else
        wait->client->waits = wait->own_next;
    if (wait->own_next != NULL)
        wait->own_next->own_prev = wait->own_prev;
    gvmi_keep_give(m, wait->client->user, KEEP_WAITS, 1);
    object->wait_count--;
    wait->client->wait_count--;
    gvmi_keep_mark(m, object);
    free(wait);
}

void gvmi_keep_end_waits(gvmi_machine *m, keep_client *client, keep_opening *opening)
{
    for (keep_wait *wait = client->waits, *next; wait != NULL; wait = next) {
        next = wait->own_next;
        if (opening != NULL && wait->opening != opening)
            continue;
        gvmi_keep_reply_failed(m, client, wait->request, GVM_E_FOREIGN, "the object was closed");
        gvmi_keep_end_wait(m, wait);
    }
}

static void expire_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    m->timeouts++;
    if (object->fenced)
        gvmi_keep_reply_failed(
            m, wait->client, wait->request, GVM_E_TIMEOUT,
            "process %d was cut off and may still write to the object, and %s: end that process "
            "(gvmem top shows it as cut off), or %s",
            (int)gvmi_keep_fence_writer(m, object),
            object->fence_waits ? "there is no room to copy it"
                                : "it is not copied while others have leases on it",
            object->fence_waits ? "make room" : "have those leases end");
    else if (wait->awaits_thaw)
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_TIMEOUT,
                               "other objects were being moved, and until then the device has no room for "
                               "all of this one: wait longer, or acquire it without GVM_HINT_HOT");
    else
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_TIMEOUT,
                               "others kept a conflicting lease, or the object was being moved");
    gvmi_keep_end_wait(m, wait);
}

/* As long as *units last. False: they did not. */
static bool expire_some(gvmi_machine *m, const keep_client *client, uint32_t *units)
{
    for (keep_wait *wait = client->waits, *next; wait != NULL; wait = next) {
        /* While others are granted what they waited for, it may be next; of a frozen object nobody is. */
        const bool expired = wait->deadline_ns <= m->now_ns &&
                             (!wait->object->unserved || wait->object->lease_state == KEEP_FROZEN);
        const uint32_t cost = expired ? EXPIRED_UNITS : 1;

        if (*units < cost)
            return false;
        *units -= cost;
        next = wait->own_next;
        if (expired)
            expire_wait(m, wait);
        else
            note_deadline(m, wait);
    }
    return true;
}

void gvmi_keep_expire_waits_of(gvmi_machine *m, const keep_client *client)
{
    uint32_t units = KEEP_CLIENT_WAITS_MAX * EXPIRED_UNITS;

    (void)expire_some(m, client, &units);
}

/* A slice of a look at all of them; until its end next_wait_ns has passed. */
void gvmi_keep_expire_waits(gvmi_machine *m)
{
    uint32_t units = EXPIRE_SLICE_UNITS;

    if (m->expire_next == 0)
        m->later_wait_ns = INT64_MAX;
    for (; m->expire_next < m->client_capacity; m->expire_next++) {
        const keep_client *client = m->clients[m->expire_next];

        if (client != NULL && !expire_some(m, client, &units))
            return;
    }
    m->expire_next = 0;
    m->next_wait_ns = m->later_wait_ns;
}

/* Queues a request; it is looked at when the event is settled. */
keep_wait *gvmi_keep_new_wait(gvmi_machine *m, keep_client *client, keep_object *object,
                              keep_opening *opening, keep_wait_kind kind, uint64_t request,
                              int32_t timeout_ms)
{
    keep_wait *wait = NULL;

    if (client->wait_count >= KEEP_CLIENT_WAITS_MAX)
        gvmi_keep_reply_failed(m, client, request, GVM_E_LIMIT,
                               "%u requests of this connection wait already, the limit: wait for some "
                               "of them",
                               client->wait_count);
    else if (!gvmi_keep_may_take(m, client->user, KEEP_WAITS, 1))
        gvmi_keep_reply_allowance(m, client, request, KEEP_WAITS);
    else if ((wait = calloc(1, sizeof *wait)) == NULL)
        gvmi_keep_reply_failed(m, client, request, GVM_E_NOMEM, "the keeper is out of host memory");
    if (wait == NULL)
        return NULL;
    wait->kind = kind;
    wait->client = client;
    wait->object = object;
    wait->opening = opening;
    wait->request = request;
    wait->since_ns = m->now_ns;
    m->expire_due = m->expire_due || timeout_ms == 0;
    wait->deadline_ns = timeout_ms < 0 ? INT64_MAX : m->now_ns + timeout_ms * GVMI_NS_PER_MS;
    link_wait(m, wait);
    return wait;
}
