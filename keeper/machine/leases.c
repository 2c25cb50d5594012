/* Leases: who is next, and what is done when it is granted.
 *
 * A request may also be one to seal, evict or shrink the object: those wait in the same queue. */
#include "base/text.h"
#include "keeper/machine/lend.h"
#include "keeper/machine/plans.h"
#include "keeper/machine/probes.h"

/* A plan counts as so many requests: it may look at many victims, and their openings, several times. */
#define PLAN_REQUESTS 8u

/* ---- serving the queue */

/* Must the request at the head wait for leases to end? */
static bool must_drain(keep_object *object, bool readers_too)
{
    if (readers_too)
        return gvmi_keep_drains(object);
    return object->writer != NULL && gvmi_keep_writers(object->writer) > 0;
}

/* HOT: what moves, or leaves the device, will give the object more room than the plan has found, and nobody's lease
 * keeps the object from being moved to it. */
static bool gains_by_waiting(const gvmi_machine *m, const keep_object *object,
                             const keep_wait *wait, const gvmi_policy_plan *plan)
{
    const keep_device *device = &m->devices[object->device];
    const uint64_t fits_bytes = device->place.budget_bytes -
                                device->place.budget_bytes % object->chunk_bytes;
    const uint64_t wanted_bytes = object->item.bytes < fits_bytes ? object->item.bytes : fits_bytes;

    return wait->hint == GVM_HINT_HOT && wait->thaws < KEEP_THAWS_MAX &&
           object->item.resident_bytes + plan->bring_bytes < wanted_bytes &&
           (plan->passed_moving || device->leaving_bytes > 0 || gvmi_keep_lends_to_moving(m, device)) &&
           !gvmi_keep_leased(object);
}

static uint32_t missing_chunks(const keep_object *object)
{
    return object->chunk_count - object->device_chunks;
}

/* HOT: chunks came in since the policy was asked. That made room on the host, where what is to leave the device had none, perhaps. Where the
 * device has turned out to have less memory than its budget, it gets no more. */
static bool may_bring_more(const keep_object *object, const keep_wait *wait)
{
    return wait->hint == GVM_HINT_HOT && missing_chunks(object) < wait->missing &&
           !object->bring_failed;
}

/* Asks the policy, once a request and as long as may_bring_more(), whether chunks should come before it is granted. Leases that it waits for have
 * ended. True: not yet, the object is looked at again. */
static bool plan_promotion(gvmi_machine *m, keep_object *object, keep_wait *wait)
{
    gvmi_policy_plan plan;

    if (wait->awaits_thaw)
        return true;
    if (wait->considered && !may_bring_more(object, wait))
        return false;
    wait->considered = true;
    if (object->device_chunks == object->chunk_count || wait->hint == GVM_HINT_ONCE ||
        wait->kind == KEEP_WAIT_SEAL || object->has_regions)
        return false; /* homes of regions stay in host memory */
    (void)gvmi_keep_sample(m, object);
    gvmi_keep_count_served(m, PLAN_REQUESTS);
    gvmi_keep_plan_for(m, object, wait->hint == GVM_HINT_HOT, &plan);
    if (gains_by_waiting(m, object, wait, &plan)) {
        wait->considered = false;
        gvmi_keep_await_thaw(m, wait);
        return true;
    }
    if (plan.bring_bytes == 0 || !gvmi_keep_freeze(m, object))
        return false;
    wait->missing = missing_chunks(object);
    if (gvmi_keep_bring(m, object, &plan))
        gvmi_keep_map_for_waits(m, object);
    else
        gvmi_keep_thaw(m, object);
    return true;
}

static void fail_demotion(gvmi_machine *m, keep_wait *wait)
{
    const keep_object *object = wait->object;

    if (object->evict_cause != GVM_OK)
        gvmi_keep_reply_failed(m, wait->client, wait->request, object->evict_cause, "%s",
                               gvmi_keep_job_failure_text(object->evict_cause));
    else
        gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_NOMEM,
                               "the host budget has no room for what the object has on the device");
    gvmi_keep_end_wait(m, wait);
}

/* Has all of a DRAINED object leave the device for a request that is for the CPU, once. What comes afterwards, by growth, has it fail. */
static void demote_for(gvmi_machine *m, keep_object *object, keep_wait *wait)
{
    if (wait->demoted) {
        fail_demotion(m, wait);
        return;
    }
    if (!gvmi_keep_freeze(m, object))
        return;
    wait->demoted = true;
    object->evict_short = false;
    object->evict_cause = GVM_OK;
    gvmi_keep_move_to_host(m, object, &object->evict_short);
    if (object->moving == 0)
        gvmi_keep_thaw(m, object);
}

static void grant_wait(gvmi_machine *m, keep_wait *wait)
{
    keep_opening *opening = wait->opening;
    gvmi_wire_message reply;

    gvmi_keep_map_all(m, opening); /* the client does this before it takes the lease */
    if (wait->kind == KEEP_WAIT_WRITE) {
        wait->object->writer = opening;
        opening->granted_writers = 1;
        gvmi_keep_stale_copies(m, wait->object);
        gvmi_keep_change_state(wait->object, KEEP_GRANT_WRITE);
    } else {
        wait->object->writer = NULL;
        opening->granted_readers++;
        if (wait->object->lease_state == KEEP_SHARED) /* the permits are as they should be */
            gvmi_keep_step_object(wait->object, KEEP_GRANT_READ);
        else
            gvmi_keep_change_state(wait->object, KEEP_GRANT_READ);
    }
    GVMI_PROBE_LEASE(wait->object->id, wait->client->number, wait->kind);
    gvmi_wire_start(&reply, GVMI_WIRE_GRANTED, wait->request);
    reply.body.GRANTED.slot = opening->slot;
    (void)gvmi_keep_send(m, wait->client, &reply, NULL);
    gvmi_keep_end_wait(m, wait);
}

static void seal_now(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    object->writer = NULL;
    if (!object->sealed) {
        object->sealed = true;
        object->kept = true;
        object->generation++;
        object->bare_send = true;
    }
    gvmi_keep_change_state(object, KEEP_GRANT_READ);
    object->asker = wait->client;
    gvmi_keep_send_maps(m, object);
    object->asker = NULL;
    gvmi_keep_catch_up(m, wait->opening); /* another has sealed it, perhaps */
    gvmi_keep_reply_done(m, wait->client, wait->request, 0);
    gvmi_keep_end_wait(m, wait);
}

static void evict_now(gvmi_machine *m, keep_wait *wait)
{
    keep_object *object = wait->object;

    if (wait->bytes < object->chunk_bytes || !gvmi_keep_freeze(m, object)) {
        gvmi_keep_reply_done(m, wait->client, wait->request, 0);
        gvmi_keep_end_wait(m, wait);
        return;
    }
    (void)gvmi_keep_sample(m, object); /* what was acquired before is no reason to come back */
    object->evict_short = false;
    object->evict_cause = GVM_OK;
    object->evictor = wait->client->id;
    object->evict_request = wait->request;
    /* Whole chunks, and not more than was asked for. */
    object->evict_bytes = gvmi_keep_evict_chunks(
        m, object, wait->bytes - wait->bytes % object->chunk_bytes, true, &object->evict_short);
    gvmi_keep_end_wait(m, wait);
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
    gvmi_keep_end_wait(m, wait);
}

/* False: a lease on a fenced object cannot be granted now. */
static bool pass_fence(gvmi_machine *m, keep_object *object)
{
    gvmi_keep_check_fence(m, object);
    if (!object->fenced)
        return true;
    if (object->fence_waits || !gvmi_keep_freeze(m, object))
        return false;
    if (!gvmi_keep_renew_chunks(m, object)) {
        object->fence_waits = true;
        gvmi_keep_thaw(m, object);
        gvmi_keep_log_no_room(m, object);
    }
    return false;
}

/* SHARED: of an opening that has a read lease; NULL: none has. */
static const keep_client *find_reader(const keep_object *object)
{
    for (const keep_opening *o = object->openings; o != NULL; o = o->next)
        if (gvmi_keep_readers(o) > 0)
            return o->client;
    return NULL;
}

/* Leases of collections last as long as the collections. A request to write or to seal fails while there are any, so that no request waits behind
 * it. */
static bool fail_behind_regions(gvmi_machine *m, keep_wait *wait)
{
    const keep_object *object = wait->object;
    const keep_client *reader;

    if (!object->has_regions || object->lease_state != KEEP_SHARED ||
        wait->kind == KEEP_WAIT_READ || !gvmi_keep_waits_for_readers(wait))
        return false;
    reader = find_reader(object);
    if (reader == NULL)
        return false;
    gvmi_keep_reply_failed(m, wait->client, wait->request, GVM_E_TIMEOUT,
                           "the object has regions that process %d has attached, or has a read lease on: "
                           "write to it, or seal it, when no collection of it is left",
                           (int)reader->who.pid);
    gvmi_keep_end_wait(m, wait);
    return true;
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
        gvmi_keep_end_wait(m, wait);
        return true;
    }
    if (fail_behind_regions(m, wait))
        return true;
    if (!pass_fence(m, object))
        return false;
    if (object->lease_state == KEEP_EXCLUSIVE || (object->lease_state == KEEP_SHARED && alone))
        gvmi_keep_withdraw(m, object);
    if (object->lease_state == KEEP_DRAINING && must_drain(object, alone)) {
        if (!wait->client->restricted || !gvmi_keep_waits_for_host(wait))
            return false;
        gvmi_keep_reply_failed(
            m, wait->client, wait->request, GVM_E_TIMEOUT,
            "others have leases on the object, a part of which is on a device, and the connection is "
            "restricted: it waits for none of them; try again, or read on the device");
        gvmi_keep_end_wait(m, wait);
        return true;
    }
    if (plan_promotion(m, object, wait))
        return object->first_wait != wait; /* others pass it */
    if (gvmi_keep_waits_for_host(wait)) {
        demote_for(m, object, wait);
        return object->lease_state != KEEP_FROZEN;
    }
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
        gvmi_keep_end_draining(object);
}

/* ---- messages */

void gvmi_keep_acquire(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    const gvmi_wire_acquire *body = &message->body.ACQUIRE;
    keep_opening *opening = gvmi_keep_opening(m, client, body->slot);
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
    if ((body->mode == GVM_LEASE_WRITE || object->untracked || opening->broken) &&
        gvmi_keep_holds_too_much(m, client->user)) {
        gvmi_keep_reply_holds(m, client, message->head.request);
        return;
    }
    if ((body->flags & GVM_ACQUIRE_CPU) != 0 && body->timeout_ms == 0 &&
        object->device_chunks + object->lent_chunks > 0) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_TIMEOUT,
                               "a part of the object is on a device");
        return;
    }
    atomic_store(&opening->lease->hint, body->hint);
    (void)gvmi_keep_sample_opening(m, opening); /* the object may have many others */
    wait = gvmi_keep_new_wait(m, client, object, opening,
                              body->mode == GVM_LEASE_WRITE ? KEEP_WAIT_WRITE : KEEP_WAIT_READ,
                              message->head.request, body->timeout_ms);
    if (wait == NULL)
        return;
    wait->hint = (gvm_hint)body->hint;
    wait->for_cpu = (body->flags & GVM_ACQUIRE_CPU) != 0;
    wait->considered = body->timeout_ms == 0 ||
                       wait->for_cpu; /* who cannot wait does not wait for a move */
    if (object->bringing && body->timeout_ms != 0)
        gvmi_keep_map_all(m, opening);
    /* Now, as it decides on what comes in; the lease word shows the same again at TAKEN. */
    gvmi_policy_acquired(m->devices[object->device].policy, &object->item, 1, wait->hint);
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
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.SEAL.slot);

    if (opening == NULL)
        return;
    if (!gvmi_keep_owns(m, client, opening->object) || (opening->flags & GVM_OPEN_READONLY) != 0) {
        gvmi_keep_reply_failed(m, client, message->head.request, GVM_E_DENIED,
                               "only its owner, having opened it for writing, may seal an object");
        return;
    }
    (void)gvmi_keep_new_wait(m, client, opening->object, opening, KEEP_WAIT_SEAL,
                             message->head.request, message->body.SEAL.timeout_ms);
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
    wait = gvmi_keep_new_wait(m, client, object, NULL, KEEP_WAIT_EVICT, message->head.request, -1);
    if (wait != NULL)
        wait->bytes = body->value;
}

void gvmi_keep_shrink(gvmi_machine *m, keep_client *client, const gvmi_wire_message *message)
{
    keep_opening *opening = gvmi_keep_opening(m, client, message->body.SHRINK.slot);
    keep_wait *wait;

    if (opening == NULL)
        return;
    if (!gvmi_keep_may_change(m, client, opening, message->head.request))
        return;
    wait = gvmi_keep_new_wait(m, client, opening->object, opening, KEEP_WAIT_SHRINK,
                              message->head.request, -1);
    if (wait != NULL)
        wait->bytes = message->body.SHRINK.bytes;
}
