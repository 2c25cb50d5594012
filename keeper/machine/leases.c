/* Leases: who may, who waits, who is next.
 *
 * keeper/protocol/words.h has the protocol of the words, docs/design/keeper.md its states. Permits are stored
 * with sequentially consistent stores, and lease words are trusted to be complete only in a state
 * whose permits are all withdrawn and REVOKED, which is when every client rings. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/text.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

/* What is done of a look at all requests that wait, in one tick: more than one client's, so that each gets on.
 * One whose time is over counts as EXPIRED_UNITS, another as 1. */
#define EXPIRE_SLICE_UNITS 4096u
#define EXPIRED_UNITS 16u

/* ---- the table of states */

#define ROW(from, event, to) {KEEP_##from, KEEP_##event, KEEP_##to},
static const struct {
    keep_lease_state from;
    keep_lease_event event;
    keep_lease_state to;
} transitions[] = {GVMI_LEASE_TRANSITIONS(ROW)};
#undef ROW

bool gvmi_keep_step(keep_lease_state state, keep_lease_event event, keep_lease_state *next)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++)
        if (transitions[i].from == state && transitions[i].event == event) {
            *next = transitions[i].to;
            return true;
        }
    return false;
}

static void step_lease_state(keep_object *object, keep_lease_event event)
{
    const bool known = gvmi_keep_step(object->lease_state, event, &object->lease_state);

    GVM_ASSERT(known);
    (void)known;
}

/* ---- permits */

static uint32_t permit_flags(const keep_opening *opening)
{
    const keep_object *object = opening->object;
    uint32_t flags = object->device_chunks < object->chunk_count ? GVMI_PERMIT_PARTIAL : 0u;

    if (!opening->client->connected || opening->broken) /* what it still holds, it rings for */
        return (opening->client->connected ? GVMI_PERMIT_BROKEN : GVMI_PERMIT_GONE) |
               GVMI_PERMIT_REVOKED;
    switch (object->lease_state) {
    case KEEP_SHARED:
        if (opening->ready)
            flags |= GVMI_PERMIT_READ;
        break;
    case KEEP_EXCLUSIVE:
        if (opening == object->holder && opening->granted_writers == 0)
            flags |= GVMI_PERMIT_READ | GVMI_PERMIT_WRITE;
        break;
    case KEEP_DRAINING:
    case KEEP_FROZEN: flags |= GVMI_PERMIT_REVOKED; break;
    }
    return flags;
}

void gvmi_keep_publish_permit(const keep_opening *opening)
{
    atomic_store(&opening->permit->word,
                 gvmi_permit(opening->object->generation, permit_flags(opening)));
}

void gvmi_keep_publish_permits(keep_object *object)
{
    for (keep_opening *o = object->openings; o != NULL; o = o->next)
        gvmi_keep_publish_permit(o);
}

static void change_lease_state(keep_object *object, keep_lease_event event)
{
    step_lease_state(object, event);
    gvmi_keep_publish_permits(object);
}

/* ---- what is held
 *
 * A client can write anything into its lease word. Any client that opened the object may have a read
 * lease; a write lease by its holder alone, so writers in another word are none. */

uint32_t gvmi_keep_readers(const keep_opening *opening)
{
    return opening->granted_readers + gvmi_lease_readers(atomic_load(&opening->lease->word));
}

uint32_t gvmi_keep_writers(const keep_opening *opening)
{
    if (opening->object->holder != opening)
        return 0;
    return opening->granted_writers + gvmi_lease_writers(atomic_load(&opening->lease->word));
}

static bool has_lease(const keep_opening *opening)
{
    return gvmi_keep_readers(opening) > 0 || gvmi_keep_writers(opening) > 0;
}

bool gvmi_keep_held(const keep_object *object)
{
    for (const keep_opening *o = object->openings; o != NULL; o = o->next)
        if (has_lease(o))
            return true;
    return false;
}

/* An opening that had no lease when it was looked at, after the permits were withdrawn, gets none before they
 * come back. */
bool gvmi_keep_drains(keep_object *object)
{
    GVM_ASSERT(object->lease_state == KEEP_DRAINING);
    while (object->first_held != NULL && !has_lease(object->first_held))
        object->first_held = object->first_held->next;
    return object->first_held != NULL;
}

/* Must the request at the head wait for leases to end? */
static bool must_drain(keep_object *object, bool readers_too)
{
    if (readers_too)
        return gvmi_keep_drains(object);
    return object->holder != NULL && gvmi_keep_writers(object->holder) > 0;
}

/* A client asks for it again. */
void gvmi_keep_unpark(keep_object *object)
{
    object->evicted_on_request = false;
    object->item.pinned = object->lease_state == KEEP_FROZEN;
}

bool gvmi_keep_sample_opening(gvmi_machine *m, keep_opening *opening)
{
    keep_object *object = opening->object;
    const uint32_t now = gvmi_lease_acquires(atomic_load(&opening->lease->word));
    const uint32_t count = now - opening->seen_acquires;
    const uint32_t hint = atomic_load(&opening->lease->hint);

    if (count == 0)
        return false;
    opening->seen_acquires = now;
    opening->client->acquires += count;
    object->acquires += count;
    m->acquires += count;
    gvmi_keep_unpark(object);
    gvmi_policy_acquired(m->devices[object->device].policy, &object->item, count,
                         hint <= GVM_HINT_ONCE ? (gvm_hint)hint : GVM_HINT_NONE);
    if (m->config.trace != NULL)
        m->config.trace(m->config.trace_context, object->device, object->id,
                        (uint64_t)object->chunk_count * object->chunk_bytes, count, hint);
    return true;
}

bool gvmi_keep_sample(gvmi_machine *m, keep_object *object)
{
    bool news = false;

    for (keep_opening *o = object->openings; o != NULL; o = o->next)
        news |= gvmi_keep_sample_opening(m, o);
    return news;
}

/* ---- freezing, for moves */

void gvmi_keep_withdraw(gvmi_machine *m, keep_object *object)
{
    m->revokes++;
    object->draining_since_ns = m->now_ns;
    change_lease_state(object, KEEP_WAIT);
    object->first_held = object->openings;
    GVMI_PROBE_REVOKE(object->id, object->lease_state);
}

static void end_draining(keep_object *object)
{
    if (object->lease_state == KEEP_DRAINING && object->first_wait == NULL && !object->fenced)
        change_lease_state(object, object->holder != NULL ? KEEP_RESUME : KEEP_CALM);
}

bool gvmi_keep_freeze(gvmi_machine *m, keep_object *object)
{
    if (object->lease_state == KEEP_FROZEN)
        return false;
    if (object->lease_state != KEEP_DRAINING)
        gvmi_keep_withdraw(m, object);
    if (gvmi_keep_drains(object)) {
        end_draining(object);
        return false;
    }
    object->holder = NULL;
    step_lease_state(object, KEEP_FREEZE); /* the permits are as they should be */
    object->item.pinned = true;
    return true;
}

void gvmi_keep_answer_evictor(gvmi_machine *m, keep_object *object)
{
    keep_client *evictor = gvmi_keep_client_of(m, object->evictor);

    object->evictor = 0;
    if (evictor == NULL)
        return;
    if (object->evict_bytes == 0 && object->evict_cause != GVM_OK)
        gvmi_keep_reply_failed(m, evictor, object->evict_request, object->evict_cause, "%s",
                               gvmi_keep_job_failure_text(object->evict_cause));
    else if (object->evict_bytes == 0 && object->evict_short)
        gvmi_keep_reply_failed(m, evictor, object->evict_request, GVM_E_NOMEM,
                               "the host budget has no room for what would leave the device");
    else
        gvmi_keep_reply_done(m, evictor, object->evict_request, object->evict_bytes);
}

void gvmi_keep_thaw(gvmi_machine *m, keep_object *object)
{
    GVM_ASSERT(object->moving == 0);
    gvmi_keep_end_cut(m, object);
    if (object->untracked && !object->sealed)
        gvmi_keep_stale_copies(m, object);
    object->item.pinned = object->evicted_on_request;
    gvmi_keep_resident(m, object);
    gvmi_keep_check_fence(m, object);
    step_lease_state(object, KEEP_THAW);
    if (object->fenced) { /* before anybody sees a permit */
        object->draining_since_ns = m->now_ns;
        step_lease_state(object, KEEP_WAIT);
        object->first_held = NULL; /* while it was FROZEN nobody had a lease */
    }
    gvmi_keep_publish_permits(object);
    gvmi_keep_mark(m, object);
}

/* ---- waiting */

/* For the next look at who has waited too long, and the one after it. */
static void note_deadline(gvmi_machine *m, const keep_wait *wait)
{
    if (wait->deadline_ns < m->next_wait_ns)
        m->next_wait_ns = wait->deadline_ns;
    if (wait->deadline_ns < m->later_wait_ns)
        m->later_wait_ns = wait->deadline_ns;
}

/* At the end of the queue; what waits for nobody's lease, an eviction or a shrink, at its head. */
static void link_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;
    const bool first = wait->kind == KEEP_WAIT_EVICT || wait->kind == KEEP_WAIT_SHRINK;

    wait->prev = first ? NULL : object->last_wait;
    wait->next = first ? object->first_wait : NULL;
    *(wait->prev != NULL ? &wait->prev->next : &object->first_wait) = wait;
    *(wait->next != NULL ? &wait->next->prev : &object->last_wait) = wait;
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

static void end_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    if (wait->prev != NULL)
        wait->prev->next = wait->next;
    else
        object->first_wait = wait->next;
    if (wait->next != NULL)
        wait->next->prev = wait->prev;
    else
        object->last_wait = wait->prev;
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
        end_wait(m, wait);
    }
}

static void expire_wait(gvmi_machine *m, keep_wait *wait)
{
    m->timeouts++;
    gvmi_keep_reply_failed(
        m, wait->client, wait->request, GVM_E_TIMEOUT, "%s",
        wait->object->fence_waits
            ? "a process that was cut off may still write to the object, and there is no room to "
              "copy it: end that process (gvmem top shows it as cut off), or make room"
            : "others kept a conflicting lease, or the object was being moved");
    end_wait(m, wait);
}

/* As long as *units last. False: they did not. */
static bool expire_some(gvmi_machine *m, const keep_client *client, uint32_t *units)
{
    for (keep_wait *wait = client->waits, *next; wait != NULL; wait = next) {
        /* While others are granted what they waited for, it may be next. */
        const bool expired = wait->deadline_ns <= m->now_ns && !wait->object->unserved;
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
static keep_wait *new_wait(gvmi_machine *m, keep_client *client, keep_object *object,
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
    wait->deadline_ns = timeout_ms < 0 ? INT64_MAX : m->now_ns + timeout_ms * GVMI_NS_PER_MS;
    link_wait(m, wait);
    return wait;
}

/* ---- serving the queue */

/* Pins those victims of a plan that cannot be evicted, as they are leased, for a while. Also
 * records what the others were acquired for. True: the plan is to be made again. */
static bool pin_leased_victims(gvmi_machine *m, const gvmi_policy_plan *plan, keep_pins *pins)
{
    bool news = false;

    for (uint32_t i = 0; i < plan->victim_count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);

        news |= gvmi_keep_sample(m, victim);
        if (gvmi_keep_held(victim)) {
            victim->item.pinned = true;
            pins->items[pins->count++] = &victim->item;
            news = true;
        }
    }
    return news;
}

static void unpin_victims(keep_pins *pins)
{
    while (pins->count > 0)
        pins->items[--pins->count]->pinned = false;
}

void gvmi_keep_plan_for(gvmi_machine *m, keep_object *object, bool forced, gvmi_policy_plan *plan)
{
    keep_device *device = &m->devices[object->device];
    const bool was_pinned = object->item.pinned;
    keep_pins pins = {.count = 0};
    unsigned tries = 0;

    object->item.pinned = false;
    do
        gvmi_policy_plan_for(device->policy, &object->item, gvmi_keep_room_bytes(&device->place),
                             forced, plan);
    while (pin_leased_victims(m, plan, &pins) && ++tries < KEEP_PLAN_TRIES_MAX);
    unpin_victims(&pins);
    object->item.pinned = was_pinned;
}

keep_object *gvmi_keep_plan_next(gvmi_machine *m, keep_device *device, gvmi_policy_plan *plan)
{
    keep_pins pins = {.count = 0};
    unsigned tries = 0;
    gvmi_policy_item *item;

    do
        item = gvmi_policy_plan_next(device->policy, gvmi_keep_room_bytes(&device->place), plan);
    while (item != NULL && pin_leased_victims(m, plan, &pins) && ++tries < KEEP_PLAN_TRIES_MAX);
    unpin_victims(&pins);
    return item != NULL && plan->bring_bytes > 0 ? gvmi_keep_object_of(item) : NULL;
}

void gvmi_keep_plan_shrink(gvmi_machine *m, keep_device *device, uint64_t bytes, gvmi_policy_plan *plan)
{
    keep_pins pins = {.count = 0};
    unsigned tries = 0;

    do
        (void)gvmi_policy_plan_shrink(device->policy, bytes, plan);
    while (pin_leased_victims(m, plan, &pins) && ++tries < KEEP_PLAN_TRIES_MAX);
    unpin_victims(&pins);
}

/* Asks the policy, once a request, whether chunks should come before it is granted. */
static bool plan_promotion(gvmi_machine *m, keep_object *object, keep_wait *wait)
{
    gvmi_policy_plan plan;

    if (wait->considered)
        return false;
    wait->considered = true;
    if (object->device_chunks == object->chunk_count || wait->hint == GVM_HINT_ONCE ||
        wait->kind == KEEP_WAIT_SEAL)
        return false;
    (void)gvmi_keep_sample(m, object);
    gvmi_keep_plan_for(m, object, wait->hint == GVM_HINT_HOT, &plan);
    if (plan.bring_bytes == 0 || !gvmi_keep_freeze(m, object))
        return false;
    if (gvmi_keep_bring(m, object, &plan))
        return true;
    gvmi_keep_thaw(m, object);
    return false;
}

static void grant_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_opening *opening = wait->opening;
    gvmi_wire_message reply;

    if (wait->kind == KEEP_WAIT_WRITE) {
        wait->object->holder = opening;
        opening->granted_writers = 1;
        gvmi_keep_stale_copies(m, wait->object);
        change_lease_state(wait->object, KEEP_GRANT_WRITE);
    } else {
        wait->object->holder = NULL;
        opening->granted_readers++;
        if (wait->object->lease_state == KEEP_SHARED) /* the permits are as they should be */
            step_lease_state(wait->object, KEEP_GRANT_READ);
        else
            change_lease_state(wait->object, KEEP_GRANT_READ);
    }
    GVMI_PROBE_LEASE(wait->object->id, wait->client->number, wait->kind);
    gvmi_wire_start(&reply, GVMI_WIRE_GRANTED, wait->request);
    reply.body.GRANTED.slot = opening->slot;
    (void)gvmi_keep_send(m, wait->client, &reply, NULL);
    end_wait(m, wait);
}

static void seal_now(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    object->holder = NULL;
    if (!object->sealed) {
        object->sealed = true;
        object->kept = true;
        object->generation++;
        object->bare_send = true;
    }
    change_lease_state(object, KEEP_GRANT_READ);
    object->asker = wait->client;
    gvmi_keep_send_maps(m, object);
    object->asker = NULL;
    gvmi_keep_catch_up(m, wait->opening); /* another has sealed it, perhaps */
    gvmi_keep_reply_done(m, wait->client, wait->request, 0);
    end_wait(m, wait);
}

static void evict_now(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    if (wait->bytes < object->chunk_bytes || !gvmi_keep_freeze(m, object)) {
        gvmi_keep_reply_done(m, wait->client, wait->request, 0);
        end_wait(m, wait);
        return;
    }
    (void)gvmi_keep_sample(m, object); /* what was acquired before is no reason to come back */
    object->evicted_on_request = true;
    object->evict_short = false;
    object->evict_cause = GVM_OK;
    object->evictor = wait->client->id;
    object->evict_request = wait->request;
    /* Whole chunks, and not more than was asked for. */
    object->evict_bytes = gvmi_keep_evict_chunks(
        m, object, wait->bytes - wait->bytes % object->chunk_bytes, &object->evict_short);
    end_wait(m, wait);
    if (object->leaving == 0)
        gvmi_keep_answer_evictor(m, object);
    if (object->moving == 0)
        gvmi_keep_thaw(m, object);
}

static void shrink_now(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;
    const uint64_t count = wait->bytes / object->chunk_bytes + (wait->bytes % object->chunk_bytes != 0);

    if (object->sealed) {
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_SEALED, "the object is sealed");
    } else if (count >= object->chunk_count) {
        gvmi_keep_reply_done(m, wait->client, wait->request, 0);
    } else if (object->growth != NULL || !gvmi_keep_freeze(m, object)) {
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_TIMEOUT,
                               "there are leases on the object, or it is growing");
    } else {
        object->shrinker = wait->client->id;
        object->shrink_request = wait->request;
        gvmi_keep_cut_chunks(m, object, (uint32_t)count);
    }
    end_wait(m, wait);
}

/* Readers of an untracked object may write, so its seal waits for them, too. */
bool gvmi_keep_waits_for_readers(const keep_wait *wait)
{
    const keep_object *object = wait->object;

    return wait->kind == KEEP_WAIT_WRITE || object->fenced ||
           (wait->kind == KEEP_WAIT_SEAL && object->untracked && !object->sealed);
}

/* Grants the request at the head if it can be. */
static bool serve_head(gvmi_machine *m, keep_object *object)
{
    keep_wait *wait = object->first_wait;
    const bool alone = gvmi_keep_waits_for_readers(wait);

    if (wait->kind == KEEP_WAIT_EVICT) {
        evict_now(m, wait);
        return object->lease_state != KEEP_FROZEN;
    }
    if (wait->kind == KEEP_WAIT_SHRINK) {
        shrink_now(m, wait);
        return object->lease_state != KEEP_FROZEN;
    }
    if (wait->kind == KEEP_WAIT_WRITE && object->sealed) {
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_SEALED, "the object is sealed");
        end_wait(m, wait);
        return true;
    }
    if (!gvmi_keep_pass_fence(m, object) || plan_promotion(m, object, wait))
        return false;
    if (object->lease_state == KEEP_EXCLUSIVE || (object->lease_state == KEEP_SHARED && alone))
        gvmi_keep_withdraw(m, object);
    if (object->lease_state == KEEP_DRAINING && must_drain(object, alone))
        return false;
    if (wait->kind == KEEP_WAIT_SEAL)
        seal_now(m, wait);
    else
        grant_wait(m, wait);
    return true;
}

void gvmi_keep_serve(gvmi_machine *m, keep_object *object)
{
    if (!object->fence_waits)
        gvmi_keep_check_fence(m, object);
    while (object->first_wait != NULL && m->serves_left > 0 && serve_head(m, object))
        gvmi_keep_count_served(m, 1);
    if (object->first_wait != NULL && m->serves_left == 0)
        gvmi_keep_serve_later(m, object);
    if (object->lease_state != KEEP_FROZEN)
        end_draining(object);
}

/* ---- messages */

void gvmi_keep_acquire(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_acquire *body = &message->body.ACQUIRE;
    keep_opening *opening = gvmi_keep_opening(m, client, message, body->slot);
    keep_object *object;
    keep_wait *wait;

    if (opening == NULL)
        return;
    object = opening->object;
    m->slow_acquires++;
    if (body->mode == GVM_LEASE_WRITE && (opening->flags & GVM_OPEN_READONLY) != 0) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_READONLY,
                               "the object was opened read-only");
        return;
    }
    if (body->mode == GVM_LEASE_WRITE && object->sealed) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_SEALED, "the object is sealed");
        return;
    }
    if ((body->mode == GVM_LEASE_WRITE || object->untracked) &&
        gvmi_keep_holds_too_much(m, client->user)) {
        gvmi_keep_reply_holds(m, client, message->head.request);
        return;
    }
    if (opening->broken) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_LIMIT,
                               "the object could not be mapped there");
        return;
    }
    atomic_store(&opening->lease->hint, body->hint);
    (void)gvmi_keep_sample_opening(m, opening); /* the object may have many others */
    wait = new_wait(m, client, object, opening,
                    body->mode == GVM_LEASE_WRITE ? KEEP_WAIT_WRITE : KEEP_WAIT_READ,
                    message->head.request, body->timeout_ms);
    if (wait == NULL)
        return;
    wait->hint = (gvm_hint)body->hint;
    wait->considered = body->timeout_ms == 0; /* who cannot wait does not wait for a move */
    gvmi_keep_unpark(object);
    /* Now, as it decides on what comes in; the lease word shows the same again at TAKEN. */
    gvmi_policy_acquired(m->devices[object->device].policy, &object->item, 1, wait->hint);
    gvmi_keep_settle(m);
    if (body->timeout_ms == 0)
        gvmi_keep_expire_waits_of(m, client);
}

void gvmi_keep_taken(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_taken *body = &message->body.TAKEN;
    keep_opening *opening = body->slot < GVM_OBJECTS_OPEN_MAX ? client->slots[body->slot] : NULL;

    if (opening == NULL) /* closed meanwhile */
        return;
    if (body->mode == GVM_LEASE_WRITE && opening->granted_writers > 0)
        opening->granted_writers--;
    else if (body->mode == GVM_LEASE_READ && opening->granted_readers > 0)
        opening->granted_readers--;
    else {
        gvmi_keep_violated(m, client, "TAKEN without GRANTED");
        return;
    }
    gvmi_keep_publish_permit(opening);
    gvmi_keep_mark(m, opening->object);
}

void gvmi_keep_seal(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message, message->body.SEAL.slot);

    if (opening == NULL)
        return;
    if (!gvmi_keep_owns(m, client, opening->object) || (opening->flags & GVM_OPEN_READONLY) != 0) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only its owner, having opened it for writing, may seal an object");
        return;
    }
    if (new_wait(m, client, opening->object, opening, KEEP_WAIT_SEAL, message->head.request,
                 message->body.SEAL.timeout_ms) == NULL)
        return;
    gvmi_keep_settle(m);
    if (message->body.SEAL.timeout_ms == 0)
        gvmi_keep_expire_waits_of(m, client);
}

void gvmi_keep_evict(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_name_value *body = &message->body.EVICT;
    keep_object *object = gvmi_keep_find_made(m, body->name);
    keep_wait *wait;

    if (object == NULL) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_ABSENT,
                               "there is no object %s", GVMI_TEXT_NAME(body->name));
        return;
    }
    if (!gvmi_keep_owns(m, client, object)) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only its owner and the keeper's user may evict %s",
                               GVMI_TEXT_NAME(body->name));
        return;
    }
    wait = new_wait(m, client, object, NULL, KEEP_WAIT_EVICT, message->head.request, -1);
    if (wait != NULL)
        wait->bytes = body->value;
}

void gvmi_keep_shrink(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message, message->body.SHRINK.slot);
    keep_wait *wait;

    if (opening == NULL)
        return;
    if ((opening->flags & GVM_OPEN_READONLY) != 0) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "the object was opened read-only");
        return;
    }
    wait = new_wait(m, client, opening->object, opening, KEEP_WAIT_SHRINK, message->head.request, -1);
    if (wait != NULL)
        wait->bytes = message->body.SHRINK.bytes;
}

void gvmi_machine_doorbell(gvmi_machine *m, uint32_t number)
{
    keep_client *client = gvmi_keep_client(m, number);

    for (const keep_opening *o = client != NULL ? client->openings : NULL; o != NULL; o = o->own_next)
        if (o->object->lease_state == KEEP_DRAINING)
            gvmi_keep_mark(m, o->object);
    gvmi_keep_settle(m);
}

void gvmi_keep_holder_gone(gvmi_machine *m, keep_opening *opening)
{
    keep_object *object = opening->object;

    if (gvmi_keep_writers(opening) > 0) {
        object->interrupted++;
        m->interrupted++;
    }
    if (object->holder != opening)
        return;
    object->holder = NULL;
    if (object->lease_state == KEEP_EXCLUSIVE || object->lease_state == KEEP_DRAINING)
        change_lease_state(object, KEEP_GONE);
}
