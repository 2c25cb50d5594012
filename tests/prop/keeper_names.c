/* The model of objects and names. For each request the set of statuses that are right is kept: what
 * was right when it came, and whatever became right while it waited. What a reply changes is done
 * to the model when the reply is sent. */
#include "tests/prop/keeper_simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONE_OF(status) (1ull << (status))
#define OK_OR_DENIED(may) ONE_OF((may) ? GVM_OK : GVM_E_DENIED)

const char *const keeper_names[NAMES] = {"/a", "/b", "/c", "/d/x", "/d/y", "/e"};

int model_name_index(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, keeper_names[i]) == 0)
            return i;
    return -1;
}

object *model_find(simulation *w, uint64_t id)
{
    for (uint32_t i = w->object_count; i > 0; i--)
        if (w->objects[i - 1]->id == id)
            return w->objects[i - 1];
    return NULL;
}

bool model_privileged(const simulation *w, const process *p)
{
    return p->who.uid == 0 || p->who.uid == w->config.uid;
}

bool model_may(const simulation *w, const process *p, const object *o, uint32_t bits)
{
    bool in_group = p->who.gid == o->gid;
    uint32_t granted;

    for (uint32_t i = 0; i < p->who.group_count; i++)
        in_group = in_group || p->who.groups[i] == o->gid;
    granted = p->who.uid == o->uid ? o->mode >> 6 : in_group ? o->mode >> 3 : o->mode;
    return model_privileged(w, p) || (granted & bits) == bits;
}

static bool owns(const simulation *w, const process *p, const object *o)
{
    return model_privileged(w, p) || p->who.uid == o->uid;
}

uint32_t model_chunks(const object *o)
{
    return (uint32_t)((o->bytes + o->chunk_bytes - 1) / o->chunk_bytes);
}

void model_resize(simulation *w, object *o, uint64_t bytes)
{
    const uint32_t before = model_chunks(o);

    o->bytes = bytes;
    for (uint32_t i = model_chunks(o); i < before; i++) {
        o->values[i] = 0;
        o->shown[i] = NULL;
    }
    if (o->promised_bytes > bytes)
        o->promised_bytes = bytes;
    for (uint32_t i = 0; i < w->process_count && model_chunks(o) < before; i++)
        for (uint32_t k = 0; k < w->processes[i]->thread_count; k++)
            if (w->processes[i]->threads[k].least_bytes > bytes)
                w->processes[i]->threads[k].least_bytes = bytes;
}

/* Of a set of MAPs the last one alone has the object's generation and size; those before it have what the opening
 * was sent earlier. */
void model_map(simulation *w, object *o, const gvmi_wire_map *map)
{
    if ((int32_t)(map->generation - o->generation) <= 0)
        return;
    o->generation = map->generation;
    model_resize(w, o, map->bytes);
}

/* ---- what is there */

/* An object that nobody opened and that has no name cannot be reached. */
static void settle(simulation *w, object *o)
{
    if (o->creator_ended && !o->perhaps_kept && o->openings == 0 && o->name >= 0) {
        if (w->names[o->name] == o)
            w->names[o->name] = NULL;
        o->name = -1;
    }
    o->gone = o->openings == 0 && o->name < 0;
    w->loose_ends = w->loose_ends || o->gone; /* a move of it may have to end first */
}

static void take_name(simulation *w, object *o)
{
    if (o->name >= 0 && w->names[o->name] == o)
        w->names[o->name] = NULL;
    o->name = -1;
    settle(w, o);
}

static void give_name(simulation *w, object *o, int name)
{
    object *had = w->names[name];

    if (had != NULL && had != o)
        take_name(w, had);
    take_name(w, o);
    o->name = name;
    o->gone = false;
    w->names[name] = o;
}

#define NOBODY UINT32_MAX

static void creator_ended(simulation *w, object *o, bool sure)
{
    if (o->kept && !o->perhaps_kept)
        return;
    o->creator_ended = true;
    if (sure && !o->perhaps_kept)
        take_name(w, o);
}

static void close_known(simulation *w, process *p, uint32_t slot)
{
    object *o = p->known[slot].object;
    bool last = true; /* of the process's openings of the object */

    p->known[slot] = (known_opening){.births = p->known[slot].births,
                                     .births_seen = p->known[slot].births_seen};
    if (o == NULL)
        return;
    o->openings--;
    for (uint32_t i = 0; i < p->slot_end; i++)
        last = last && p->known[i].object != o;
    if (o->creator == p->index && last) {
        creator_ended(w, o, true);
        o->creator = NOBODY;
    }
    settle(w, o);
}

/* A request whose answer nobody waits for any more may still have its effect. */
static void leave_behind(simulation *w, request *r)
{
    const bool grows = r->type == GVMI_WIRE_GROW && r->object != NULL;

    if (grows && r->message->body.GROW.bytes > r->object->perhaps_bytes)
        r->object->perhaps_bytes = r->message->body.GROW.bytes;
    w->loose_ends = w->loose_ends || grows || r->type == GVMI_WIRE_SHRINK ||
                    r->type == GVMI_WIRE_CREATE;
    if (r->type == GVMI_WIRE_CREATE && (r->message->body.CREATE.flags & GVM_OBJECT_KEEP) != 0 &&
        w->orphan_count < ORPHANS_MAX)
        w->orphans[w->orphan_count++] = *r;
    else
        free(r->message);
}

void model_ended(simulation *w, process *p, bool for_good)
{
    for (uint32_t i = 0; i < p->request_count; i++)
        leave_behind(w, &p->requests[i]);
    p->request_count = 0;
    for (uint32_t i = 0; i < p->slot_end; i++) {
        object *o = p->known[i].object;

        if (o == NULL)
            continue;
        if (for_good)
            close_known(w, p, i);
        else if (o->creator == p->index)
            creator_ended(w, o, false);
    }
}

/* A name's object: certainly there, perhaps there, or not. */
typedef enum presence { NAME_FREE, NAME_OF_ENDED, NAME_TAKEN } presence;

static presence presence_of(const simulation *w, int name)
{
    if (name < 0 || w->names[name] == NULL)
        return NAME_FREE;
    return w->names[name]->creator_ended ? NAME_OF_ENDED : NAME_TAKEN;
}

/* Is an object of that name being made, or was it, for somebody who left? */
static bool is_orphan(const simulation *w, const char *name)
{
    for (uint32_t i = 0; i < w->orphan_count; i++)
        if (name == NULL || strcmp(w->orphans[i].message->body.CREATE.name, name) == 0)
            return true;
    return false;
}

static bool is_coming(const simulation *w, const char *name)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        for (uint32_t k = 0; k < w->processes[i]->request_count; k++) {
            const request *r = &w->processes[i]->requests[k];

            if (r->type == GVMI_WIRE_CREATE && strcmp(r->message->body.CREATE.name, name) == 0)
                return true;
        }
    return is_orphan(w, name);
}

/* Somebody's connection is over, but not all of it is: how much it still has is not known here. */
bool some_linger(const simulation *w)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        if (!w->processes[i]->exited && (w->processes[i]->disconnected || w->processes[i]->cut))
            return true;
    return false;
}

/* Others' requests that may already hold what a request wants. */
static bool others_create(const simulation *w, const request *self, const char *name)
{
    if (is_orphan(w, name))
        return true;
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        if (p->exited)
            continue;
        for (uint32_t k = 0; k < p->request_count; k++) {
            const request *r = &p->requests[k];

            if (r != self && r->type == GVMI_WIRE_CREATE &&
                (name == NULL || strcmp(r->message->body.CREATE.name, name) == 0))
                return true;
        }
        if (p->disconnected || p->cut)
            return true; /* what it had asked may linger */
    }
    return false;
}

/* ---- what may be answered, now */

static int device_index(const simulation *w, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < w->config.device_count; i++)
        if (memcmp(w->config.devices[i].uuid, uuid, 16) == 0)
            return (int)i;
    return -1;
}

static uint64_t judge_create(const simulation *w, const process *p, const request *r)
{
    const gvmi_wire_create *c = &r->message->body.CREATE;
    const int device = device_index(w, c->device_uuid);
    const int name = model_name_index(c->name);
    uint64_t must = 0, may = 0, memory;
    uint32_t living = 0, perhaps = 0, living_own = 0, perhaps_own = 0;

    if (c->reserve_bytes == 0 || c->bytes > c->reserve_bytes)
        must |= ONE_OF(GVM_E_INVALID);
    if (device < 0)
        must |= ONE_OF(GVM_E_OTHERDEVICE);
    if (presence_of(w, name) == NAME_TAKEN)
        must |= ONE_OF(GVM_E_EXISTS);
    if (presence_of(w, name) == NAME_OF_ENDED || (name >= 0 && others_create(w, r, c->name)))
        may |= ONE_OF(GVM_E_EXISTS);
    for (uint32_t i = 0; i < w->object_count; i++) {
        const bool own = w->objects[i]->uid == p->who.uid, there = !w->objects[i]->gone,
                   stays = there && !w->objects[i]->creator_ended;

        living += stays;
        living_own += stays && own;
        perhaps += there;
        perhaps_own += there && own;
    }
    if (!sim_share(w, w->config.objects_max, 1024, p->who.uid, living, living_own) && !some_linger(w))
        must |= ONE_OF(GVM_E_LIMIT);
    if (!sim_share(w, w->config.objects_max, 1024, p->who.uid, perhaps, perhaps_own) ||
        others_create(w, r, NULL) || w->loose_ends)
        may |= ONE_OF(GVM_E_LIMIT);
    if (must != 0)
        return must | may | ONE_OF(GVM_E_QUOTA) | ONE_OF(GVM_E_NOSPACE);
    memory = judge_memory(w, r, p->who.uid, (uint32_t)device);
    return memory | may;
}

static uint64_t judge_open(const simulation *w, const process *p, const request *r)
{
    const gvmi_wire_open *c = &r->message->body.OPEN;
    const int name = model_name_index(c->name);
    const presence there = presence_of(w, name);
    uint64_t set;

    if (there == NAME_FREE)
        return ONE_OF(GVM_E_ABSENT) |
               (is_orphan(w, c->name) ? ONE_OF(GVM_OK) | ONE_OF(GVM_E_DENIED) : 0);
    if (w->names[name]->sealed && model_may(w, p, w->names[name], 4) &&
        !model_may(w, p, w->names[name], 6))
        return ONE_OF(GVM_OK) | ONE_OF(GVM_E_DENIED) |
               (there == NAME_OF_ENDED ? ONE_OF(GVM_E_ABSENT) : 0);
    set = model_may(w, p, w->names[name], c->flags & GVM_OPEN_READONLY ? 4 : 6)
              ? ONE_OF(GVM_OK)
              : ONE_OF(GVM_E_DENIED);
    if (there == NAME_OF_ENDED)
        set |= ONE_OF(GVM_E_ABSENT) |
               (is_orphan(w, c->name) ? ONE_OF(GVM_OK) | ONE_OF(GVM_E_DENIED) : 0);
    return set;
}

static uint64_t judge_named(const simulation *w, const process *p, const char *text, bool reading)
{
    const int name = model_name_index(text);
    const presence there = presence_of(w, name);
    const uint64_t absent = ONE_OF(GVM_E_ABSENT) |
                            (is_orphan(w, text) ? OK_OR_DENIED(true) | OK_OR_DENIED(false) : 0);

    if (there == NAME_FREE)
        return absent;
    return OK_OR_DENIED(reading ? model_may(w, p, w->names[name], 4) : owns(w, p, w->names[name])) |
           (there == NAME_OF_ENDED ? absent : 0);
}

static uint64_t judge_publish(const simulation *w, const process *p, const request *r)
{
    const gvmi_wire_publish *c = &r->message->body.PUBLISH;
    const int name = model_name_index(c->name);
    const presence there = presence_of(w, name);
    uint64_t set = 0;

    if (!owns(w, p, r->object))
        return ONE_OF(GVM_E_DENIED) | (there != NAME_FREE ? ONE_OF(GVM_E_EXISTS) : 0);
    if ((c->flags & GVM_PUBLISH_PRIVATE) != 0 && r->object->creator != p->index)
        return ONE_OF(GVM_E_DENIED);
    if (there == NAME_FREE)
        return ONE_OF(GVM_OK) |
               (is_coming(w, c->name) ? ONE_OF(GVM_E_EXISTS) | ONE_OF(GVM_E_DENIED) : 0);
    if (w->names[name] == r->object)
        return ONE_OF(GVM_OK) | (c->flags & GVM_PUBLISH_REPLACE ? 0 : ONE_OF(GVM_E_EXISTS)) |
               (there == NAME_OF_ENDED && is_coming(w, c->name)
                    ? ONE_OF(GVM_E_EXISTS) | ONE_OF(GVM_E_DENIED)
                    : 0);
    if ((c->flags & GVM_PUBLISH_REPLACE) == 0)
        set |= ONE_OF(GVM_E_EXISTS);
    else if (!owns(w, p, w->names[name]))
        set |= ONE_OF(GVM_E_DENIED);
    if (there == NAME_OF_ENDED && is_coming(w, c->name))
        set |= ONE_OF(GVM_E_EXISTS) | ONE_OF(GVM_E_DENIED) | ONE_OF(GVM_OK);
    if (set == 0 || there == NAME_OF_ENDED)
        set |= ONE_OF(GVM_OK);
    return set;
}

static bool elapsed(const simulation *w, const request *r, int32_t timeout_ms)
{
    return timeout_ms >= 0 && w->tick_ns - r->tick_ns >= (int64_t)timeout_ms * 1000000;
}

static uint64_t judge_acquire(const simulation *w, const process *p, const request *r,
                              const known_opening *known)
{
    const gvmi_wire_acquire *c = &r->message->body.ACQUIRE;
    const bool readonly = known->readonly, for_cpu = (c->flags & GVM_ACQUIRE_CPU) != 0;
    uint64_t set = ONE_OF(GVM_OK);

    if (elapsed(w, r, c->timeout_ms) && (for_cpu || !(r->unhindered && c->timeout_ms == 0)))
        set |= ONE_OF(GVM_E_TIMEOUT);
    if (for_cpu)
        set |= ONE_OF(GVM_E_NOMEM) | (w->jobs_fail ? ONE_OF(GVM_E_LIMIT) | ONE_OF(GVM_E_DRIVER) : 0);
    if (c->mode == GVM_LEASE_WRITE && (r->object->sealed || readonly))
        set = (set & ~ONE_OF(GVM_OK)) | (r->object->sealed ? ONE_OF(GVM_E_SEALED) : 0) |
              (readonly ? ONE_OF(GVM_E_READONLY) : 0);
    /* After a MAP that failed the opening is mapped anew, for which as much may be held as for writing. */
    if (c->mode == GVM_LEASE_WRITE || r->object->untracked || known->failed)
        set |= judge_held(w, p->who.uid);
    return set | (known->failed || !p->honest ? ONE_OF(GVM_E_LIMIT) : 0);
}

/* Of those that name a slot which is open. */
static uint64_t judge_slot(const simulation *w, const process *p, const request *r,
                           const known_opening *known)
{
    const object *o = r->object;
    const bool readonly = known->readonly;

    switch (r->type) {
    case GVMI_WIRE_GROW:
        if (readonly || o->sealed || r->message->body.GROW.bytes > o->reserve_bytes)
            return (readonly ? ONE_OF(GVM_E_DENIED) : 0) | (o->sealed ? ONE_OF(GVM_E_SEALED) : 0) |
                   (r->message->body.GROW.bytes > o->reserve_bytes ? ONE_OF(GVM_E_INVALID) : 0);
        return judge_memory(w, r, o->uid, o->device);
    case GVMI_WIRE_SEAL:
        if (readonly)
            return ONE_OF(GVM_E_DENIED);
        return ONE_OF(GVM_OK) | (owns(w, p, o) ? 0 : ONE_OF(GVM_E_DENIED)) |
               (o->sealed ? ONE_OF(GVM_E_SEALED) : 0) |
               (elapsed(w, r, r->message->body.SEAL.timeout_ms) ? ONE_OF(GVM_E_TIMEOUT) : 0);
    case GVMI_WIRE_SHRINK:
        if (readonly)
            return ONE_OF(GVM_E_DENIED);
        return o->sealed ? ONE_OF(GVM_E_SEALED) : ONE_OF(GVM_OK) | ONE_OF(GVM_E_TIMEOUT);
    case GVMI_WIRE_PUBLISH: return judge_publish(w, p, r);
    case GVMI_WIRE_SET_MODE:
        if ((r->message->body.SET_MODE.value & ~0777u) != 0)
            return ONE_OF(GVM_E_INVALID) | (owns(w, p, o) ? 0 : ONE_OF(GVM_E_DENIED));
        return ONE_OF(owns(w, p, o) ? GVM_OK : GVM_E_DENIED);
    case GVMI_WIRE_SET_METADATA:
        if (readonly || o->sealed)
            return (readonly ? ONE_OF(GVM_E_DENIED) : 0) | (o->sealed ? ONE_OF(GVM_E_SEALED) : 0);
        return ONE_OF(GVM_OK);
    case GVMI_WIRE_ACQUIRE: return judge_acquire(w, p, r, known);
    default: return ONE_OF(GVM_OK);
    }
}

static uint32_t slot_of(const gvmi_wire_message *m)
{
    /* Every body with a slot begins with it. */
    return m->body.CLOSE.slot;
}

static bool has_slot(uint16_t type)
{
    switch (type) {
    case GVMI_WIRE_GROW:
    case GVMI_WIRE_SHRINK:
    case GVMI_WIRE_SEAL:
    case GVMI_WIRE_PUBLISH:
    case GVMI_WIRE_SET_MODE:
    case GVMI_WIRE_SET_METADATA:
    case GVMI_WIRE_GET_METADATA:
    case GVMI_WIRE_ACQUIRE:
    case GVMI_WIRE_CLOSE:
    case GVMI_WIRE_GET_INFO: return true;
    default: return false;
    }
}

static uint64_t judge(const simulation *w, const process *p, const request *r)
{
    const gvmi_wire_message *m = r->message;

    if (has_slot(r->type)) {
        const uint32_t slot = slot_of(m);

        if (r->object == NULL || p->known[slot].object != r->object)
            return p->honest ? 0 : ~ONE_OF(GVM_OK); /* closed under its own feet, or never open */
        /* A client that closes a slot while it waits there gets an error. */
        return judge_slot(w, p, r, &p->known[slot]) | (p->honest ? 0 : ONE_OF(GVM_E_FOREIGN));
    }
    switch (r->type) {
    case GVMI_WIRE_CREATE: return judge_create(w, p, r);
    case GVMI_WIRE_OPEN: return judge_open(w, p, r) | judge_held(w, p->who.uid);
    case GVMI_WIRE_DROP: return judge_named(w, p, m->body.DROP.name, false);
    case GVMI_WIRE_LIST_CHUNKS: return judge_named(w, p, m->body.LIST_CHUNKS.name, true);
    case GVMI_WIRE_EVICT:
        /* When the host budget is short of it is not worked out here. */
        return judge_named(w, p, m->body.EVICT.name, false) | ONE_OF(GVM_E_NOMEM) |
               (w->jobs_fail ? ONE_OF(GVM_E_LIMIT) | ONE_OF(GVM_E_DRIVER) : 0);
    case GVMI_WIRE_TRIM:
        if (!model_privileged(w, p) || m->body.TRIM.device >= w->config.device_count)
            return (model_privileged(w, p) ? 0 : ONE_OF(GVM_E_DENIED)) |
                   (m->body.TRIM.device >= w->config.device_count ? ONE_OF(GVM_E_INVALID) : 0);
        return ONE_OF(GVM_OK);
    case GVMI_WIRE_SET_QUOTA: return OK_OR_DENIED(model_privileged(w, p));
    default: return ONE_OF(GVM_OK);
    }
}

static bool moves_may_go_on(const simulation *w)
{
    if (w->job_count > 0)
        return true;
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        for (uint32_t k = 0; k < p->slot_end && !p->exited; k++)
            if (p->known[k].maps > 0)
                return true;
        for (uint32_t k = 0; k < p->request_count; k++)
            if (p->requests[k].type == GVMI_WIRE_EVICT || p->requests[k].type == GVMI_WIRE_SHRINK)
                return true;
    }
    return false;
}

void model_refresh(simulation *w)
{
    w->loose_ends = w->loose_ends && moves_may_go_on(w);
    for (uint32_t i = 0; i < w->process_count; i++) {
        process *p = w->processes[i];

        for (uint32_t k = 0; k < p->request_count; k++)
            p->requests[k].accepted |= judge(w, p, &p->requests[k]);
    }
}

/* ---- requests come */

/* Nothing is in the way of a lease: nobody has one, or is about to, and nothing moves. */
static bool is_unhindered(const simulation *w, const object *o)
{
    if (w->job_count > 0)
        return false;
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        if (p->exited)
            continue;
        for (uint32_t k = 0; k < p->slot_end; k++)
            if (p->known[k].object == o &&
                (p->known[k].maps > 0 || p->known[k].untaken > 0 || p->disconnected || p->cut ||
                 gvmi_lease_any(atomic_load(&p->leases[k].word))))
                return false;
        for (uint32_t k = 0; k < p->request_count; k++) {
            const uint16_t type = p->requests[k].type;

            if (type == GVMI_WIRE_EVICT || type == GVMI_WIRE_TRIM ||
                (p->requests[k].object == o &&
                 (type == GVMI_WIRE_ACQUIRE || type == GVMI_WIRE_SEAL || type == GVMI_WIRE_SHRINK)))
                return false;
        }
    }
    return true;
}

/* Its creator has addresses for it, or has none: then it is not kept, unless others have opened it by then. */
static void note_creation(const process *p, object *o, uint32_t status)
{
    if (status == GVM_OK)
        o->homed = true;
    else if (p->honest && !o->homed && o->openings == 1)
        o->kept = false;
    else if (!p->honest || !o->homed)
        o->perhaps_kept = o->kept;
}

static void note_mapped(process *p, const gvmi_wire_mapped *m)
{
    known_opening *known = m->slot < GVM_OBJECTS_OPEN_MAX ? &p->known[m->slot] : NULL;

    if (known == NULL || known->object == NULL)
        return;
    if (m->serial == 0 && known->object->creator == p->index)
        note_creation(p, known->object, m->status);
    if (known->maps == 0)
        return;
    if (m->status != GVM_OK) {
        known->failed = p->holds = true;
        voided_slot(p, m->slot);
    }
    known->maps--;
}

static void note_close(process *p, const gvmi_wire_slot *m)
{
    if (m->slot >= GVM_OBJECTS_OPEN_MAX || !gvmi_lease_any(atomic_load(&p->leases[m->slot].word)))
        return;
    p->holds = true;
    voided_slot(p, m->slot);
}

void model_request(simulation *w, process *p, const gvmi_wire_message *message)
{
    request *r;

    switch (message->head.type) {
    case GVMI_WIRE_MAPPED: note_mapped(p, &message->body.MAPPED); return;
    case GVMI_WIRE_UNMAPPED:
    case GVMI_WIRE_SNAPSHOT_READ: return;
    case GVMI_WIRE_TAKEN:
        if (message->body.TAKEN.slot < GVM_OBJECTS_OPEN_MAX &&
            p->known[message->body.TAKEN.slot].untaken > 0)
            p->known[message->body.TAKEN.slot].untaken--;
        return;
    case GVMI_WIRE_BYE: p->bye = true; return;
    case GVMI_WIRE_CLOSE: note_close(p, &message->body.CLOSE); break;
    default: break;
    }
    if (p->request_count == REQUESTS_MAX) { /* abuse keeps below; honest threads are few */
        sim_wrong(w, "process %u has too many requests", p->index);
        return;
    }
    r = &p->requests[p->request_count++];
    *r = (request){.number = message->head.request,
                   .uid = p->who.uid,
                   .gid = p->who.gid,
                   .process = p->index,
                   .type = message->head.type,
                   .message = malloc(sizeof *message),
                   .tick_ns = w->tick_ns};
    if (r->message == NULL)
        abort();
    memcpy(r->message, message, sizeof *message);
    if (has_slot(r->type) && slot_of(message) < GVM_OBJECTS_OPEN_MAX)
        r->object = p->known[slot_of(message)].object;
    if (r->type == GVMI_WIRE_SHRINK && r->object != NULL)
        r->object->shrinks = true;
    r->unhindered = r->type == GVMI_WIRE_ACQUIRE && r->object != NULL && is_unhindered(w, r->object);
    if (r->type == GVMI_WIRE_ACQUIRE && r->unhindered) { /* it counts itself */
        p->request_count--;
        r->unhindered = is_unhindered(w, r->object);
        p->request_count++;
    }
    r->accepted = judge(w, p, r);
}

/* ---- replies go */

/* The object that a CREATE asked for, as OPENED says it is. */
static object *made(simulation *w, const request *r, const gvmi_wire_opened *m)
{
    const gvmi_wire_create *c = &r->message->body.CREATE;
    const int name = model_name_index(c->name);
    object *o = calloc(1, sizeof *o);

    if (o == NULL || w->object_count == OBJECTS_MAX)
        abort();
    *o = (object){.id = m->id,
                  .name = -1,
                  .creator = r->process,
                  .uid = r->uid,
                  .gid = r->gid,
                  .mode = c->mode != 0 ? c->mode : 0600,
                  .device = (uint32_t)device_index(w, c->device_uuid),
                  .chunk_bytes = m->chunk_bytes,
                  .reserve_bytes = m->reserve_bytes,
                  .bytes = m->bytes,
                  .generation = m->generation,
                  .kept = (c->flags & GVM_OBJECT_KEEP) != 0,
                  .untracked = (c->flags & GVM_OBJECT_UNTRACKED) != 0,
                  .metadata_bytes = r->message->head.tail_bytes};
    if (o->metadata_bytes > 0)
        memcpy(&o->metadata_version, r->message->tail.bytes, sizeof o->metadata_version);
    w->objects[w->object_count++] = o;
    if (name >= 0 && !r->renamed) {
        if (presence_of(w, name) == NAME_TAKEN)
            sim_wrong(w, "two objects are %s", c->name);
        give_name(w, o, name);
    }
    if (m->chunk_bytes != c->chunk_bytes || m->reserve_bytes < c->reserve_bytes ||
        (r->number != 0 && m->bytes < c->bytes) || m->bytes > m->reserve_bytes)
        sim_wrong(w, "an object of other sizes was made");
    return o;
}

/* Somebody opens what its creator never heard of. */
static object *adopted(simulation *w, const gvmi_wire_opened *m, const char *name)
{
    for (uint32_t i = 0; i < w->orphan_count; i++) {
        request r = w->orphans[i];
        object *o;

        if (r.renamed || strcmp(r.message->body.CREATE.name, name) != 0 ||
            r.message->body.CREATE.reserve_bytes != m->reserve_bytes ||
            (r.message->body.CREATE.bytes != m->bytes && m->bytes != 0) ||
            r.message->body.CREATE.chunk_bytes != m->chunk_bytes)
            continue;
        w->orphans[i] = w->orphans[--w->orphan_count];
        r.number = 0;
        o = made(w, &r, m);
        o->perhaps_bytes = r.message->body.CREATE.bytes; /* it may be growing to it still */
        free(r.message);
        return o;
    }
    return NULL;
}

static void compare_opened(simulation *w, const request *r, object *o, const gvmi_wire_opened *m)
{
    const char *name = r->message->body.OPEN.name;

    if (o->name < 0 || o->name != model_name_index(name))
        sim_wrong(w, "%s is opened as object %llu, which it is not", name, (unsigned long long)m->id);
    if (m->sealed != o->sealed || (m->bytes < o->bytes && !o->shrinks) ||
        m->bytes > larger(o->bytes, o->perhaps_bytes) || m->chunk_bytes != o->chunk_bytes ||
        m->reserve_bytes != o->reserve_bytes)
        sim_wrong(w, "object %llu is opened with sealed %u, %llu bytes, not %d, %llu",
                  (unsigned long long)o->id, m->sealed, (unsigned long long)m->bytes, o->sealed,
                  (unsigned long long)o->bytes);
    model_resize(w, o, m->bytes);
    o->generation = m->generation;
}

static void opened(simulation *w, process *p, const request *r, const gvmi_wire_opened *m)
{
    object *o = model_find(w, m->id);
    known_opening *known;

    if (m->slot >= GVM_OBJECTS_OPEN_MAX || p->known[m->slot].object != NULL) {
        sim_wrong(w, "slot %u of process %u is opened twice or none", m->slot, p->index);
        return;
    }
    if (r->type == GVMI_WIRE_CREATE && o != NULL) {
        sim_wrong(w, "a new object has the number of another: %llu", (unsigned long long)m->id);
        return;
    }
    if (o == NULL)
        o = r->type == GVMI_WIRE_CREATE ? made(w, r, m) : adopted(w, m, r->message->body.OPEN.name);
    else
        compare_opened(w, r, o, m);
    if (o == NULL) {
        sim_wrong(w, "object %llu was never made", (unsigned long long)m->id);
        return;
    }
    known = &p->known[m->slot];
    *known = (known_opening){.object = o,
                             .maps = 1,
                             .maps_ns = w->tick_ns,
                             .sent_bytes = m->bytes,
                             .births = known->births + 1,
                             .births_seen = known->births_seen};
    known->readonly = r->type == GVMI_WIRE_OPEN && (r->message->body.OPEN.flags & GVM_OPEN_READONLY);
    if (m->slot >= p->slot_end)
        p->slot_end = m->slot + 1;
    o->openings++;
}

/* A name is taken away or given: objects being made lose it. */
static void rename_coming(simulation *w, const char *name)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        for (uint32_t k = 0; k < w->processes[i]->request_count; k++) {
            request *r = &w->processes[i]->requests[k];

            if (r->type == GVMI_WIRE_CREATE && strcmp(r->message->body.CREATE.name, name) == 0)
                r->renamed = true;
        }
    for (uint32_t i = 0; i < w->orphan_count; i++)
        if (strcmp(w->orphans[i].message->body.CREATE.name, name) == 0)
            w->orphans[i].renamed = true;
}

static void sealed(simulation *w, object *o)
{
    o->sealed = o->kept = true;
    o->perhaps_kept = false;
    for (uint32_t i = 0; i < w->process_count; i++) {
        process *p = w->processes[i];

        for (uint32_t k = 0; k < p->thread_count && sim_lease_counts(w, p); k++)
            if (p->threads[k].leased && p->threads[k].mode == GVM_LEASE_WRITE &&
                p->threads[k].opening->object == o->id)
                sim_wrong(w, "object %llu is sealed under a write lease of process %u",
                          (unsigned long long)o->id, i);
    }
}

static void set_quota(simulation *w, uint32_t uid, uint64_t bytes)
{
    uint32_t i = 0;

    while (i < w->quota_count && w->quota_uids[i] != uid)
        i++;
    if (i == 8)
        return;
    if (i == w->quota_count)
        w->quota_count++;
    w->quota_uids[i] = uid;
    w->quotas[i] = bytes;
}

static void done(simulation *w, process *p, const request *r, uint64_t value)
{
    const gvmi_wire_message *m = r->message;
    object *o = r->object;

    switch (r->type) {
    case GVMI_WIRE_GROW:
        if (p->known[m->body.GROW.slot].failed && m->body.GROW.bytes > o->bytes)
            o->bytes = m->body.GROW.bytes; /* nothing is sent to an opening that cannot map */
        if (m->body.GROW.bytes > o->bytes)
            sim_wrong(w, "object %llu grew to %llu bytes, but no client was informed",
                      (unsigned long long)o->id, (unsigned long long)m->body.GROW.bytes);
        break;
    case GVMI_WIRE_SHRINK:
        if (o->bytes > rounded(m->body.SHRINK.bytes, o->chunk_bytes) &&
            p->known[m->body.SHRINK.slot].failed)
            model_resize(w, o, rounded(m->body.SHRINK.bytes, o->chunk_bytes));
        break;
    case GVMI_WIRE_SEAL: sealed(w, o); break;
    case GVMI_WIRE_PUBLISH:
        rename_coming(w, m->body.PUBLISH.name);
        give_name(w, o, model_name_index(m->body.PUBLISH.name));
        if ((m->body.PUBLISH.flags & GVM_PUBLISH_PRIVATE) == 0) {
            o->kept = true;
            o->perhaps_kept = o->creator_ended = false;
        }
        break;
    case GVMI_WIRE_DROP:
        if (is_orphan(w, m->body.DROP.name))
            rename_coming(w, m->body.DROP.name);
        if (w->names[model_name_index(m->body.DROP.name)] != NULL)
            take_name(w, w->names[model_name_index(m->body.DROP.name)]);
        break;
    case GVMI_WIRE_SET_MODE: o->mode = m->body.SET_MODE.value; break;
    case GVMI_WIRE_SET_METADATA:
        o->metadata_bytes = m->head.tail_bytes;
        if (o->metadata_bytes > 0)
            memcpy(&o->metadata_version, m->tail.bytes, sizeof o->metadata_version);
        break;
    case GVMI_WIRE_CLOSE: close_known(w, p, m->body.CLOSE.slot); break;
    case GVMI_WIRE_EVICT:
        if (value > m->body.EVICT.value)
            sim_wrong(w, "%llu bytes were evicted, not %llu at most", (unsigned long long)value,
                      (unsigned long long)m->body.EVICT.value);
        break;
    case GVMI_WIRE_SET_QUOTA: set_quota(w, m->body.SET_QUOTA.uid, m->body.SET_QUOTA.bytes); break;
    default: break;
    }
}

static void granted(simulation *w, process *p, const request *r)
{
    known_opening *known = &p->known[r->message->body.ACQUIRE.slot];

    if (known->untaken++ == 0)
        known->untaken_ns = w->tick_ns;
}

static uint16_t reply_type(uint16_t type)
{
    switch (type) {
    case GVMI_WIRE_HELLO: return GVMI_WIRE_WELCOME;
    case GVMI_WIRE_CREATE:
    case GVMI_WIRE_OPEN: return GVMI_WIRE_OPENED;
    case GVMI_WIRE_GET_METADATA: return GVMI_WIRE_METADATA;
    case GVMI_WIRE_ACQUIRE: return GVMI_WIRE_GRANTED;
    case GVMI_WIRE_SNAPSHOT: return GVMI_WIRE_SNAPSHOT_IS;
    case GVMI_WIRE_GET_INFO: return GVMI_WIRE_INFO;
    case GVMI_WIRE_LIST_CHUNKS: return GVMI_WIRE_CHUNK_STATES;
    default: return GVMI_WIRE_DONE;
    }
}

static void succeeded(simulation *w, process *p, const request *r, const gvmi_wire_message *m,
                      const void *bytes, size_t len)
{
    switch (m->head.type) {
    case GVMI_WIRE_WELCOME: p->welcome = true; break;
    case GVMI_WIRE_OPENED: opened(w, p, r, &m->body.OPENED); break;
    case GVMI_WIRE_GRANTED: granted(w, p, r); break;
    case GVMI_WIRE_DONE: done(w, p, r, m->body.DONE.value); break;
    case GVMI_WIRE_METADATA: model_compare_metadata(w, r, m); break;
    case GVMI_WIRE_INFO: model_compare_info(w, r, &m->body.INFO.info); break;
    case GVMI_WIRE_SNAPSHOT_IS: model_compare_snapshot(w, p, bytes, len); break;
    default: break;
    }
}

void model_reply(simulation *w, process *p, const gvmi_wire_message *m, const void *bytes, size_t len)
{
    const gvm_status status = m->head.type == GVMI_WIRE_FAILED ? (gvm_status)m->body.FAILED.status
                                                               : GVM_OK;
    uint32_t i = 0;
    request r;

    while (i < p->request_count && p->requests[i].number != m->head.request)
        i++;
    if (i == p->request_count) {
        sim_wrong(w, "a %s to process %u answers request %llu, which waits for no answer",
                  gvmi_wire_name_of(m->head.type), p->index, (unsigned long long)m->head.request);
        return;
    }
    r = p->requests[i];
    r.accepted |= judge(w, p, &p->requests[i]);
    p->requests[i] = p->requests[--p->request_count];
    if (m->head.type != GVMI_WIRE_FAILED && m->head.type != reply_type(r.type))
        sim_wrong(w, "a %s is answered by a %s", gvmi_wire_name_of(r.type),
                  gvmi_wire_name_of(m->head.type));
    else if ((unsigned)status >= 64 || (r.accepted >> status & 1) == 0)
        sim_wrong(
            w, "%s %llu of process %u (slot %u, object %lld) is answered %s: %.120s; right was one of %#llx",
            gvmi_wire_name_of(r.type), (unsigned long long)r.number, p->index, slot_of(r.message),
            r.object != NULL ? (long long)r.object->id : -1, gvm_status_name(status),
            status != GVM_OK ? m->body.FAILED.text : "", (unsigned long long)r.accepted);
    else if (status == GVM_OK)
        succeeded(w, p, &r, m, bytes, len);
    w->answered[r.type][(unsigned)status % 64]++;
    free(r.message);
}
