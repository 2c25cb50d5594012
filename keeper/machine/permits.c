/* Permits, and the leases that they let clients take.
 *
 * keeper/protocol/words.h has the protocol of the words, docs/design/keeper.md its states. Permits are stored
 * with sequentially consistent stores, and lease words are trusted to be complete only in a state
 * whose permits are all withdrawn and REVOKED, which is when every client rings. */
#include "base/assert.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

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

void gvmi_keep_step_object(keep_object *object, keep_lease_event event)
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

    /* It rings for leases that it still has. A client that is to be cut off may lack a MAP. */
    if (!opening->client->connected || opening->broken || opening->client->cut_due)
        return (opening->client->connected ? GVMI_PERMIT_BROKEN : GVMI_PERMIT_GONE) |
               GVMI_PERMIT_REVOKED;
    switch (object->lease_state) {
    case KEEP_SHARED:
        if (opening->ready && gvmi_keep_follows_all(opening))
            flags |= GVMI_PERMIT_READ;
        break;
    case KEEP_EXCLUSIVE:
        if (opening == object->writer && opening->granted_writers == 0)
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

void gvmi_keep_change_state(keep_object *object, keep_lease_event event)
{
    gvmi_keep_step_object(object, event);
    gvmi_keep_publish_permits(object);
}

/* ---- leases there are
 *
 * A client can write anything into its lease word. Any client that opened the object may have a read
 * lease; a write lease its writer alone, so writers in another word are none. */

uint32_t gvmi_keep_readers(const keep_opening *opening)
{
    return opening->granted_readers + gvmi_lease_readers(atomic_load(&opening->lease->word));
}

uint32_t gvmi_keep_writers(const keep_opening *opening)
{
    if (opening->object->writer != opening)
        return 0;
    return opening->granted_writers + gvmi_lease_writers(atomic_load(&opening->lease->word));
}

static bool has_lease(const keep_opening *opening)
{
    return gvmi_keep_readers(opening) > 0 || gvmi_keep_writers(opening) > 0;
}

bool gvmi_keep_leased(const keep_object *object)
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
    while (object->first_leased != NULL && !has_lease(object->first_leased))
        object->first_leased = object->first_leased->next;
    return object->first_leased != NULL;
}

/* ---- what was acquired by the fast path */

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
    gvmi_policy_acquired(m->devices[object->device].policy, &object->item, count,
                         hint <= GVM_HINT_ONCE ? (gvm_hint)hint : GVM_HINT_NONE);
    if (m->config.trace != NULL)
        m->config.trace(m->config.trace_context, object->device, object->id,
                        (uint64_t)object->chunk_count * object->chunk_bytes, count, hint);
    return true;
}

bool gvmi_keep_sample(gvmi_machine *m, keep_object *object)
{
    bool found = false;

    for (keep_opening *o = object->openings; o != NULL; o = o->next)
        found |= gvmi_keep_sample_opening(m, o);
    return found;
}

/* ---- withdrawing, and freezing for moves */

void gvmi_keep_withdraw(gvmi_machine *m, keep_object *object)
{
    m->revokes++;
    object->draining_since_ns = m->now_ns;
    gvmi_keep_change_state(object, KEEP_WAIT);
    object->first_leased = object->openings;
    GVMI_PROBE_REVOKE(object->id, object->lease_state);
}

void gvmi_keep_end_draining(keep_object *object)
{
    if (object->lease_state == KEEP_DRAINING && object->first_wait == NULL && !object->fenced)
        gvmi_keep_change_state(object, object->writer != NULL ? KEEP_RESUME : KEEP_REOPEN);
}

bool gvmi_keep_freeze(gvmi_machine *m, keep_object *object)
{
    if (object->lease_state == KEEP_FROZEN)
        return false;
    if (object->lease_state != KEEP_DRAINING)
        gvmi_keep_withdraw(m, object);
    if (gvmi_keep_drains(object)) {
        gvmi_keep_end_draining(object);
        return false;
    }
    object->writer = NULL;
    gvmi_keep_step_object(object, KEEP_FREEZE); /* the permits are as they should be */
    object->item.moving = true;
    return true;
}

void gvmi_keep_end_freeze(gvmi_machine *m, keep_object *object)
{
    gvmi_keep_step_object(object, KEEP_THAW);
    if (object->fenced) { /* before anybody sees a permit */
        object->draining_since_ns = m->now_ns;
        gvmi_keep_step_object(object, KEEP_WAIT);
        object->first_leased = NULL; /* while it was FROZEN nobody had a lease */
    }
    gvmi_keep_publish_permits(object);
}

/* FROZEN: nobody holds a lease, whatever the lease word says. */
bool gvmi_keep_could_write(const keep_opening *opening)
{
    const keep_object *object = opening->object;

    if ((opening->flags & GVM_OPEN_READONLY) != 0 || object->lease_state == KEEP_FROZEN)
        return false;
    return gvmi_keep_writers(opening) > 0 ||
           (object->untracked && !object->sealed && gvmi_keep_readers(opening) > 0);
}

void gvmi_keep_writer_gone(gvmi_machine *m, keep_opening *opening)
{
    keep_object *object = opening->object;

    if (gvmi_keep_could_write(opening)) {
        object->interrupted++;
        m->interrupted++;
    }
    if (object->writer != opening)
        return;
    object->writer = NULL;
    if (object->lease_state == KEEP_EXCLUSIVE || object->lease_state == KEEP_DRAINING)
        gvmi_keep_change_state(object, KEEP_GONE);
}
