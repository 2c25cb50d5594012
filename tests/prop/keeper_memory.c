/* What the model of names says of memory: whether a request for some certainly has enough, of the
 * budgets and of its user's quota, or may be refused. */
#include "tests/prop/keeper_simulation.h"

#define ONE_OF(status) (1ull << (status))

/* ---- memory: is there certainly enough? */

static uint64_t wanted_bytes(const request *r)
{
    const gvmi_wire_message *m = r->message;

    if (r->type == GVMI_WIRE_CREATE)
        return rounded(m->body.CREATE.bytes, m->body.CREATE.chunk_bytes);
    if (r->type == GVMI_WIRE_GROW && r->object != NULL && m->body.GROW.bytes > r->object->bytes)
        return rounded(m->body.GROW.bytes, r->object->chunk_bytes) -
               rounded(r->object->bytes, r->object->chunk_bytes);
    return 0;
}

bool model_some_shrink(const simulation *w)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        for (uint32_t k = 0; k < w->processes[i]->request_count; k++)
            if (w->processes[i]->requests[k].type == GVMI_WIRE_SHRINK)
                return true;
    return false;
}

/* May frames that no object has be counted for the process? */
static bool may_hold(const process *p)
{
    return !p->exited && (p->disconnected || p->cut || p->holds);
}

/* All objects of the device, and all that is asked for, fit it together. */
static bool fits(const simulation *w, uint32_t device)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < w->object_count; i++)
        if (w->objects[i]->device == device && !w->objects[i]->gone)
            sum += rounded(larger(w->objects[i]->bytes, w->objects[i]->perhaps_bytes),
                           w->objects[i]->chunk_bytes);
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        if (may_hold(p))
            return false;
        for (uint32_t k = 0; k < p->request_count && !p->exited; k++)
            sum += wanted_bytes(&p->requests[k]);
    }
    return sum <= w->least_budget_bytes[device];
}

/* If everything fits, nothing can be short: nor is anything lent, which a lease keeps from being recalled. */
static bool surely_space(const simulation *w, uint32_t device)
{
    if (w->jobs_fail || w->loose_ends || w->orphan_count > 0)
        return false;
    if (model_some_shrink(w)) /* frames are not free yet */
        return false;
    for (uint32_t d = 0; d < w->config.device_count; d++)
        if ((w->config.devices[d].lenders >> device & 1) != 0 && !fits(w, d))
            return false;
    return fits(w, device);
}

static uint64_t quota_of(const simulation *w, uint32_t uid)
{
    for (uint32_t i = 0; i < w->quota_count; i++)
        if (w->quota_uids[i] == uid)
            return w->quotas[i];
    return w->config.quota_bytes;
}

uint64_t judge_held(const simulation *w, uint32_t uid)
{
    for (uint32_t i = 0; i < w->process_count && quota_of(w, uid) != UINT64_MAX; i++)
        if (w->processes[i]->who.uid == uid && may_hold(w->processes[i]))
            return ONE_OF(GVM_E_QUOTA);
    return 0;
}

/* sure: what a user's objects certainly commit; else at most. */
static uint64_t committed(const simulation *w, uint32_t uid, bool sure)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < w->object_count; i++) {
        const object *o = w->objects[i];

        if (o->uid == uid && !o->gone && !(sure && o->creator_ended))
            sum += rounded(sure ? o->bytes : larger(o->bytes, o->perhaps_bytes), o->chunk_bytes);
    }
    if (!sure && (w->loose_ends || w->orphan_count > 0 || model_some_shrink(w)))
        return UINT64_MAX / 2;
    for (uint32_t i = 0; i < w->process_count && !sure; i++) {
        const process *p = w->processes[i];

        for (uint32_t k = 0; k < p->request_count && !p->exited && p->who.uid == uid; k++)
            sum += wanted_bytes(&p->requests[k]);
        /* Growth of other users' objects, and what an ended process had asked for, is not looked
         * at more closely. */
        if (may_hold(p))
            return UINT64_MAX / 2;
    }
    return sum;
}

static bool others_grow(const simulation *w, const request *self, uint32_t uid)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        for (uint32_t k = 0; k < w->processes[i]->request_count; k++) {
            const request *r = &w->processes[i]->requests[k];

            if (r != self && r->type == GVMI_WIRE_GROW && r->object != NULL && r->object->uid == uid)
                return true;
        }
    return false;
}

uint64_t judge_memory(const simulation *w, const request *r, uint32_t uid, uint32_t device)
{
    const uint64_t wanted = wanted_bytes(r), quota = quota_of(w, uid);
    uint64_t set = ONE_OF(GVM_OK);

    if (wanted == 0)
        return set;
    if (!some_linger(w) &&
        (committed(w, uid, true) > quota || wanted > quota - committed(w, uid, true)))
        set = ONE_OF(GVM_E_QUOTA);
    else if (committed(w, uid, false) > quota || wanted > quota - committed(w, uid, false) ||
             others_grow(w, r, uid))
        set |= ONE_OF(GVM_E_QUOTA);
    if (!surely_space(w, device))
        set |= ONE_OF(GVM_E_NOSPACE);
    if (w->jobs_fail)
        set |= ONE_OF(GVM_E_NOMEM) | ONE_OF(GVM_E_LIMIT) | ONE_OF(GVM_E_DRIVER);
    return set;
}
