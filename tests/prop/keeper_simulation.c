/* Events into the machine, actions out of it, and the frames and jobs that actions are about. */
#include "tests/prop/keeper_simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/random.h"

#define ACTIONS_MAX 100000 /* of one event */

/* ---- chance and failure */

uint64_t sim_random(simulation *w, uint64_t below)
{
    return random_next(&w->random) % below;
}

bool sim_chance(simulation *w, uint32_t percent)
{
    return sim_random(w, 100) < percent;
}

void sim_wrong(simulation *w, const char *format, ...)
{
    va_list args;

    if (w->problem[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(w->problem, sizeof w->problem, format, args);
    va_end(args);
}

void sim_log(simulation *w, const char *format, ...)
{
    char *line = w->log[w->log_count++ % LOG_LINES];
    int used = snprintf(line, LOG_BYTES, "%llu %lld.%03lld ms: ", (unsigned long long)w->step,
                        (long long)(w->now_ns / 1000000), (long long)(w->now_ns / 1000 % 1000));
    va_list args;

    va_start(args, format);
    vsnprintf(line + used, (size_t)(LOG_BYTES - used), format, args);
    va_end(args);
}

static void *must(void *memory)
{
    if (memory == NULL)
        abort(); /* the test's own memory */
    return memory;
}

/* ---- frames */

static frame *frame_new(simulation *w, const gvmi_frame_spec *spec)
{
    frame *f = must(calloc(1, sizeof *f));

    f->spec = *spec;
    f->value = UINT64_MAX; /* nobody knows what is in it */
    if (w->all_count == w->all_room) {
        w->all_room = w->all_room * 2 + 64;
        w->all = must(realloc(w->all, w->all_room * sizeof(frame *)));
    }
    w->all[w->all_count++] = f;
    return f;
}

/* What counts against budgets: frames from the order to make them to the order to drop them. */
static void frame_count(simulation *w, const frame *f, bool more)
{
    uint64_t *used = f->spec.tier == GVM_TIER_HOST ? &w->host_bytes : &w->used_bytes[f->spec.device];
    const uint64_t limit = f->spec.tier == GVM_TIER_HOST ? w->config.host_budget_bytes
                                                         : w->budget_bytes[f->spec.device];

    *used = more ? *used + f->spec.bytes : *used - f->spec.bytes;
    if (more && *used + voided_bytes(w, f) > limit)
        sim_wrong(w, "frame %u: %llu MiB of tier %u, device %u are in use, of %llu", f->spec.frame,
                  (unsigned long long)(*used / MIB), f->spec.tier, f->spec.device,
                  (unsigned long long)(limit / MIB));
}

static bool spec_is_sane(simulation *w, const gvmi_frame_spec *spec)
{
    if (spec->frame > 0 && spec->frame < FRAMES_MAX && spec->device < w->config.device_count &&
        (spec->tier == GVM_TIER_HOST || spec->tier == GVM_TIER_DEVICE) && spec->bytes > 0)
        return true;
    sim_wrong(w, "frame %u of device %u, tier %u, %llu bytes is none", spec->frame, spec->device,
              spec->tier, (unsigned long long)spec->bytes);
    return false;
}

/* The frame that an action names, which must be there. */
static frame *frame_named(simulation *w, const gvmi_frame_spec *spec)
{
    frame *f = spec_is_sane(w, spec) ? w->frames[spec->frame] : NULL;

    if (f == NULL) {
        sim_wrong(w, "an action names frame %u, which is not there", spec->frame);
        return NULL;
    }
    if (f->spec.device != spec->device || f->spec.tier != spec->tier || f->spec.bytes != spec->bytes)
        sim_wrong(w, "an action takes frame %u for one of another kind", spec->frame);
    return f;
}

static void frame_end(simulation *w, frame *f)
{
    frame_count(w, f, false);
    if (w->frames[f->spec.frame] == f)
        w->frames[f->spec.frame] = NULL;
    f->dropped = true;
}

/* A frame is to be written, dropped, or given away: does anybody have it? */
static void must_be_unmapped(simulation *w, const frame *f, const char *why)
{
    if (f->mapped > 0 || f->flying > 0)
        sim_wrong(w, "frame %u is %s, but %u places map it and %u messages carry it (object %llu, chunk %u)",
                  f->spec.frame, why, f->mapped, f->flying, (unsigned long long)f->object, f->chunk);
}

static void action_drop(simulation *w, const gvmi_action *action)
{
    frame *f = frame_named(w, &action->to);

    sim_log(w, "  DROP frame %u", action->to.frame);
    if (f == NULL)
        return;
    frame_end(w, f);
    if ((f->mapped > 0 || f->flying > 0) && w->left_count < FRAMES_MAX)
        w->left[w->left_count++] = f;
}

/* ---- jobs */

/* May memory of the lender be lent to objects of the device? */
static bool lends(const simulation *w, uint32_t lender, uint32_t device)
{
    return (w->config.devices[device].lenders >> lender & 1) != 0;
}

/* Does the device that copies have a frame? Host memory is mapped for one device, that of another one for those that it
 * lends to, and that lend to it. */
static bool reaches(const simulation *w, uint32_t device, const gvmi_frame_spec *spec)
{
    return device == spec->device ||
           (spec->tier == GVM_TIER_DEVICE &&
            (lends(w, spec->device, device) || lends(w, device, spec->device)));
}

static void action_job(simulation *w, const gvmi_action *action)
{
    const bool make = action->kind == GVMI_ACTION_MAKE ||
                      (action->kind == GVMI_ACTION_COPY && action->make);
    const uint32_t device = gvmi_action_device(action);
    job *j = must(calloc(1, sizeof *j)), **at;

    j->kind = action->kind;
    j->number = action->job;
    j->make = make;
    sim_log(w, "  job %llu: %s frame %u (tier %u, device %u)%s from %u",
            (unsigned long long)action->job,
            action->kind == GVMI_ACTION_MAKE   ? "MAKE"
            : action->kind == GVMI_ACTION_COPY ? "COPY"
                                               : "ZERO",
            action->to.frame, action->to.tier, action->to.device, make ? " made" : "",
            action->kind == GVMI_ACTION_COPY ? action->from.frame : 0);
    if (make && spec_is_sane(w, &action->to)) {
        if (w->frames[action->to.frame] != NULL)
            sim_wrong(w, "frame %u is to be made, but is there", action->to.frame);
        j->to = w->frames[action->to.frame] = frame_new(w, &action->to);
        frame_count(w, j->to, true);
    } else {
        j->to = frame_named(w, &action->to);
        if (j->to != NULL)
            must_be_unmapped(w, j->to, "to be written");
    }
    if (action->kind == GVMI_ACTION_COPY && (j->from = frame_named(w, &action->from)) != NULL)
        j->from->jobs++;
    if (j->to == NULL || (action->kind == GVMI_ACTION_COPY && j->from == NULL)) {
        free(j);
        return;
    }
    if (j->from != NULL && (!j->from->made || j->from->filling > 0))
        sim_wrong(w, "frame %u is copied, but not made yet", j->from->spec.frame);
    if (j->from != NULL && !(reaches(w, device, &action->to) && reaches(w, device, &action->from)))
        sim_wrong(w, "frame %u is copied to %u by device %u, which does not have both",
                  j->from->spec.frame, j->to->spec.frame, device);
    if (j->from != NULL && j->from->spec.tier == GVM_TIER_HOST)
        w->lent_later += action->from.device != action->to.device;
    if (j->from != NULL && j->from->spec.tier == GVM_TIER_DEVICE && j->to->spec.tier == GVM_TIER_HOST)
        w->recalls += j->from->object != 0 && model_find(w, j->from->object) != NULL &&
                      model_find(w, j->from->object)->device != j->from->spec.device;
    if (j->to->filling > 0)
        sim_wrong(w, "frame %u is written by two jobs", j->to->spec.frame);
    j->to->jobs++;
    j->to->filling++;
    at = &w->movers[device][sim_random(w, 2)];
    while (*at != NULL)
        at = &(*at)->next;
    *at = j;
    w->job_count++;
}

static gvm_status job_chance(simulation *w, const job *j)
{
    if (!w->jobs_fail || w->quiet || !sim_chance(w, 8))
        return GVM_OK;
    if (!j->make)
        return sim_chance(w, 20) ? GVM_E_DRIVER : GVM_OK;
    if (sim_chance(w, 30))
        return GVM_E_LIMIT;
    return j->to->spec.tier == GVM_TIER_HOST ? GVM_E_NOMEM : GVM_E_NOSPACE;
}

/* The chunk is in the other frame now, also if nobody has the object open and is sent a MAP. */
static void note_copied(simulation *w, const job *j)
{
    object *o = model_find(w, j->from->object);

    w->copies++;
    if (o != NULL && o->shown[j->from->chunk] == j->from)
        o->shown[j->from->chunk] = j->to;
}

static void job_end(simulation *w, job *j)
{
    const gvm_status status = job_chance(w, j);
    const uint64_t number = j->number;
    frame *to = j->to;

    if (to->mapped > 0 || to->flying > 0)
        sim_wrong(w, "frame %u is being written and mapped", to->spec.frame);
    sim_log(w, "job %llu on frame %u ends: %s", (unsigned long long)number, to->spec.frame,
            gvm_status_name(status));
    to->jobs--;
    to->filling--;
    if (j->from != NULL) {
        j->from->jobs--;
        if (j->from->disputed && status != GVM_OK)
            model_find(w, j->from->object)->values[j->from->chunk] = j->from->value;
        j->from->disputed = j->from->disputed && status == GVM_OK;
    }
    if (status == GVM_OK) {
        to->made = true;
        to->value = j->kind == GVMI_ACTION_COPY ? j->value : 0;
        if (j->kind == GVMI_ACTION_COPY)
            note_copied(w, j);
    } else if (j->make && !to->dropped) {
        frame_end(w, to);
    }
    free(j);
    w->job_count--;
    gvmi_machine_job_done(w->machine, number, status);
}

static void sim_act(simulation *w);

bool sim_job_step(simulation *w)
{
    const uint32_t lists = w->config.device_count * 2;
    const uint32_t from = (uint32_t)sim_random(w, lists);

    for (uint32_t i = 0; i < lists; i++) {
        job **list = &w->movers[(from + i) % lists / 2][(from + i) % 2], *j = *list;

        if (j == NULL)
            continue;
        if (!j->started) {
            j->started = true;
            if (j->from != NULL)
                j->value = j->from->value;
            return true;
        }
        *list = j->next;
        job_end(w, j);
        sim_act(w);
        return true;
    }
    return false;
}

/* ---- messages in flight */

void sim_queue_add(queue *q, packet *p)
{
    if (q->last == NULL || q->first == NULL)
        q->last = &q->first;
    p->next = NULL;
    *q->last = p;
    q->last = &p->next;
}

packet *sim_queue_take(queue *q)
{
    packet *p = q->first;

    if (p != NULL && (q->first = p->next) == NULL)
        q->last = &q->first;
    return p;
}

void sim_land(packet *landed)
{
    for (uint32_t i = 0; i < landed->frame_count; i++)
        if (landed->frames[i] != NULL)
            landed->frames[i]->flying--;
    landed->frame_count = 0;
}

void sim_packet_free(simulation *w, packet *freed)
{
    (void)w;
    sim_land(freed);
    free(freed->message);
    free(freed);
}

static void queue_clear(simulation *w, queue *q)
{
    packet *p;

    while ((p = sim_queue_take(q)) != NULL)
        sim_packet_free(w, p);
}

gvmi_wire_message *sim_message(simulation *w, process *p, gvmi_wire_type type)
{
    gvmi_wire_message *message = must(malloc(sizeof *message));
    const bool numbered = type != GVMI_WIRE_TAKEN && type != GVMI_WIRE_MAPPED &&
                          type != GVMI_WIRE_UNMAPPED && type != GVMI_WIRE_BYE &&
                          type != GVMI_WIRE_SNAPSHOT_READ;

    (void)w;
    gvmi_wire_start(message, type, numbered ? ++p->next_request : 0);
    return message;
}

void sim_send(simulation *w, process *p, gvmi_wire_message *message)
{
    packet *sent;

    (void)w;
    if (p->cut || p->hung_up) { /* nobody reads it */
        free(message);
        return;
    }
    sent = must(calloc(1, sizeof *sent));
    sent->message = message;
    sim_queue_add(&p->out, sent);
}

packet *sim_receive(simulation *w, process *p)
{
    packet *came = sim_queue_take(&p->in);

    if (came != NULL && came->message != NULL && came->message->head.type == GVMI_WIRE_SNAPSHOT_IS)
        sim_send(w, p, sim_message(w, p, GVMI_WIRE_SNAPSHOT_READ));
    return came;
}

/* ---- actions */

static process *process_of(simulation *w, uint32_t client)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        if (w->processes[i]->client == client && !w->processes[i]->exited)
            return w->processes[i];
    return NULL;
}

/* What is on its way must pass the decoder. */
static bool passes(simulation *w, const gvmi_wire_message *message, bool from_client,
                   gvmi_wire_message *out)
{
    static uint8_t bytes[sizeof(gvmi_wire_message)];
    gvm_status status;

    if (from_client && message->head.type == 0) /* stands for anything malformed */
        return false;
    status = gvmi_wire_decode(bytes, gvmi_wire_encode(message, bytes), from_client, out);
    if (status != GVM_OK && !from_client) {
        gvm_error error;

        gvm_error_last(&error);
        sim_wrong(w, "the machine sends a %s that the decoder refuses: %s",
                  gvmi_wire_name_of(message->head.type), error.text);
    }
    return status == GVM_OK;
}

/* A frame is shown to a process as a chunk of an object. */
static void show_frame(simulation *w, process *p, const object *o, const gvmi_wire_chunk *chunk,
                       frame *f)
{
    if (f->spec.bytes != o->chunk_bytes || f->spec.tier != chunk->tier ||
        (f->spec.tier == GVM_TIER_DEVICE && f->spec.device != o->device &&
         !lends(w, f->spec.device, o->device)))
        sim_wrong(w, "chunk %u of object %llu on device %u, tier %u: frame %u is of device %u, tier %u, %llu bytes",
                  chunk->index, (unsigned long long)o->id, o->device, chunk->tier, f->spec.frame,
                  f->spec.device, f->spec.tier, (unsigned long long)f->spec.bytes);
    if (!f->made || f->filling > 0)
        sim_wrong(w, "chunk %u of object %llu: frame %u is not ready", chunk->index,
                  (unsigned long long)o->id, f->spec.frame);
    if (chunk->index >= CHUNKS_MAX || chunk->index >= o->reserve_bytes / o->chunk_bytes) {
        sim_wrong(w, "chunk %u is beyond the object", chunk->index);
        return;
    }
    if (f->value != o->values[chunk->index] && !f->disputed)
        sim_wrong(w, "chunk %u of object %llu: frame %u has version %lld, not %lld", chunk->index,
                  (unsigned long long)o->id, f->spec.frame, (long long)f->value,
                  (long long)o->values[chunk->index]);
    if (f->spec.tier == GVM_TIER_DEVICE && f->spec.device != o->device)
        w->shown_lent++;
    if (chunk->index < CHUNKS_MAX)
        model_find(w, o->id)->shown[chunk->index] = f;
    if (f->object != o->id || f->chunk != chunk->index) {
        must_be_unmapped(w, f, "given to another chunk");
        for (uint32_t i = 0; i < w->process_count; i++)
            if ((f->seen >> i & 1) != 0 && f->object != o->id && !w->processes[i]->gone &&
                w->processes[i]->who.uid != o->uid && /* who may give itself the right */
                !model_may(w, w->processes[i], o, 4))
                sim_wrong(
                    w, "frame %u goes from object %llu to %llu, which process %u, who saw it, may not read",
                    f->spec.frame, (unsigned long long)f->object, (unsigned long long)o->id, i);
        f->object = o->id;
        f->chunk = chunk->index;
    }
    f->seen |= 1ull << p->index;
}

bool sim_let_go(const process *p, uint32_t slot)
{
    const opening *o = p->openings[slot];

    return o != NULL && (o->closing || o->lost || (o->empty && !p->known[slot].anew)) &&
           p->known[slot].births == p->known[slot].births_seen;
}

static void show_map(simulation *w, process *p, packet *sent, const gvmi_action *action)
{
    const gvmi_wire_map *map = &sent->message->body.MAP;
    known_opening *known = map->slot < GVM_OBJECTS_OPEN_MAX ? &p->known[map->slot] : NULL;
    const uint32_t count = sent->message->head.tail_bytes / (uint32_t)sizeof(gvmi_wire_chunk);
    uint32_t fds = 0;

    if (known == NULL || known->object == NULL) {
        sim_wrong(w, "a MAP to slot %u of process %u, which is not open", map->slot, p->index);
        return;
    }
    if (known->maps++ == 0)
        known->maps_ns = w->tick_ns;
    if (map->bytes < known->sent_bytes && !known->object->shrinks)
        sim_wrong(w, "a MAP to process %u has %llu bytes of object %llu, which had %llu and did not shrink",
                  p->index, (unsigned long long)map->bytes, (unsigned long long)known->object->id,
                  (unsigned long long)known->sent_bytes);
    known->sent_bytes = map->bytes;
    known->anew = known->anew || map->anew;
    model_map(w, known->object, map);
    for (uint32_t i = 0; i < count && i < GVMI_WIRE_CHUNKS_MAX; i++) {
        const gvmi_wire_chunk *chunk = &sent->message->tail.chunks[i];
        const uint32_t number = chunk->tier == GVM_TIER_ABSENT ? 0 : action->frames[fds++];
        frame *f = number < FRAMES_MAX ? w->frames[number] : NULL;

        if (chunk->tier != GVM_TIER_ABSENT && f == NULL) {
            sim_wrong(w, "a MAP carries frame %u, which is not there", number);
            return;
        }
        if (f != NULL)
            show_frame(w, p, known->object, chunk, f);
        if (p->honest && !sim_let_go(p, map->slot)) {
            if (f != NULL)
                f->flying++;
            sent->frames[sent->frame_count++] = f;
        }
    }
}

static void action_send(simulation *w, gvmi_action *action)
{
    process *p = process_of(w, action->client);
    packet *sent = must(calloc(1, sizeof *sent));
    gvmi_wire_message decoded;

    sent->message = action->message;
    sim_log(w, "  %s %llu to process %d, slot %u, serial %llu, %u frames",
            gvmi_wire_name_of(action->message->head.type),
            (unsigned long long)action->message->head.request, p != NULL ? (int)p->index : -1,
            action->message->body.MAP.slot,
            (unsigned long long)(action->message->head.type == GVMI_WIRE_MAP
                                     ? action->message->body.MAP.serial
                                     : 0),
            action->message->head.fd_count);
    if (p == NULL || p->disconnected || p->cut)
        sim_wrong(w, "a %s to client %u, who is not connected",
                  gvmi_wire_name_of(action->message->head.type), action->client);
    else if (passes(w, action->message, false, &decoded)) {
        if (action->message->head.type == GVMI_WIRE_MAP)
            show_map(w, p, sent, action);
        else
            model_reply(w, p, action->message, action->bytes, action->len);
    }
    free(action->bytes);
    if (p == NULL || p->hung_up || p->disconnected || p->cut)
        sim_packet_free(w, sent);
    else
        sim_queue_add(&p->in, sent);
}

/* May the keeper lose patience with an honest process? */
static bool may_be_cut(const simulation *w, const process *p)
{
    const int64_t patience = (int64_t)w->config.revoke_limit_ms * 1000000;

    if (!p->honest)
        return true;
    for (uint32_t i = 0; i < p->slot_end; i++) {
        const known_opening *known = &p->known[i];

        if (known->object == NULL)
            continue;
        if ((known->maps > 0 && w->tick_ns - known->maps_ns >= patience) ||
            (known->untaken > 0 && w->tick_ns - known->untaken_ns >= patience))
            return true;
    }
    for (uint32_t i = 0; i < p->thread_count && w->config.lease_limit_ms != 0; i++)
        if (p->threads[i].leased || p->threads[i].phase != PHASE_IDLE)
            return true;
    return false;
}

static void action_cut(simulation *w, const gvmi_action *action)
{
    process *p = process_of(w, action->client);
    packet *end = must(calloc(1, sizeof *end));

    sim_log(w, "  CUT process %d: %.90s", p != NULL ? (int)p->index : -1, action->reason);
    if (p == NULL || p->disconnected || p->cut) {
        sim_wrong(w, "client %u is cut off, but is not connected", action->client);
        free(end);
        return;
    }
    if (!may_be_cut(w, p))
        sim_wrong(w, "process %u is cut off for nothing: %.90s", p->index, action->reason);
    w->cuts++;
    voided_begin(p);
    p->cut = true;
    p->cut_step = w->step;
    queue_clear(w, &p->out);
    p->rung = false;
    model_ended(w, p, false);
    if (p->hung_up)
        free(end);
    else
        sim_queue_add(&p->in, end);
}

static void action_forget(simulation *w, const gvmi_action *action)
{
    process *p = process_of(w, action->client);

    if (p == NULL || (!p->disconnected && !p->cut)) {
        sim_wrong(w, "client %u is to be forgotten, but is there", action->client);
        return;
    }
    sim_log(w, "  FORGET process %u", p->index);
    voided_check_forgotten(w, p);
    p->exited = true;
    model_ended(w, p, true);
    gvmi_machine_exited(w->machine, p->client);
}

/* Pieces of a snapshot are put together. */
static void action_snapshot(simulation *w, gvmi_action *action)
{
    process *p = process_of(w, action->client);
    const size_t end = action->offset_bytes + action->len;

    if (p == NULL) {
        sim_wrong(w, "a snapshot for client %u, who is not there", action->client);
    } else if (action->len > 0) {
        if (end > p->snapshot_len) {
            p->snapshot = must(realloc(p->snapshot, end));
            p->snapshot_len = end;
        }
        memcpy(p->snapshot + action->offset_bytes, action->bytes, action->len);
    }
    free(action->bytes);
    action->bytes = NULL;
    if (action->message == NULL || p == NULL) {
        free(action->message);
        return;
    }
    action->bytes = p->snapshot;
    action->len = p->snapshot_len;
    p->snapshot = NULL;
    p->snapshot_len = 0;
    action_send(w, action);
}

/* Takes out and does what the latest event led to. */
static void act_all(simulation *w)
{
    static gvmi_action action;
    uint32_t count = 0;

    while (gvmi_machine_next(w->machine, &action)) {
        if (++count > ACTIONS_MAX) {
            sim_wrong(w, "actions without end");
            break;
        }
        w->actions++;
        switch (action.kind) {
        case GVMI_ACTION_SEND:
            action.bytes = NULL;
            action_send(w, &action);
            break;
        case GVMI_ACTION_SNAPSHOT: action_snapshot(w, &action); break;
        case GVMI_ACTION_MAKE:
        case GVMI_ACTION_COPY:
        case GVMI_ACTION_ZERO: action_job(w, &action); break;
        case GVMI_ACTION_DROP: action_drop(w, &action); break;
        case GVMI_ACTION_CUT: action_cut(w, &action); break;
        case GVMI_ACTION_FORGET: action_forget(w, &action); break;
        case GVMI_ACTION_LOG: break;
        default: sim_wrong(w, "action %d is none", (int)action.kind);
        }
    }
}

/* With what the machine does between events, so that a snapshot is of one moment: the model's. */
static void sim_act(simulation *w)
{
    bool more;

    act_all(w);
    do {
        more = gvmi_machine_work(w->machine);
        act_all(w);
    } while (more && w->problem[0] == '\0');
    voided_check_dropped(w);
    model_refresh(w);
    if (w->problem[0] == '\0' && sim_random(w, w->check_every) == 0 && !gvmi_machine_check(w->machine))
        sim_wrong(w, "gvmi_machine_check() failed");
}

/* ---- events */

bool sim_share(const simulation *w, uint32_t limit, uint32_t reserve, uint32_t uid, uint32_t all,
               uint32_t own)
{
    if (uid == 0 || uid == w->config.uid)
        return all < limit;
    if (reserve > limit / 8)
        reserve = limit / 8;
    return all + own + reserve < limit;
}

process *sim_connect(simulation *w, const gvmi_credentials *who, bool honest)
{
    process *p = must(calloc(1, sizeof *p));
    uint32_t connected = 0, own = 0;
    gvm_status status;
    bool admitted;

    for (uint32_t i = 0; i < w->process_count; i++) {
        connected += !w->processes[i]->exited;
        own += !w->processes[i]->exited && w->processes[i]->who.uid == who->uid;
    }
    admitted = sim_share(w, w->config.clients_max, 64, who->uid, connected, own);
    p->who = *who;
    p->honest = honest;
    p->leases = must(aligned_alloc(64, GVMI_LEASE_PAGE_BYTES));
    memset(p->leases, 0, GVMI_LEASE_PAGE_BYTES);
    p->permits = must(calloc(1, GVMI_PERMIT_PAGE_BYTES));
    p->known = must(calloc(GVM_OBJECTS_OPEN_MAX, sizeof *p->known));
    p->openings = must(calloc(GVM_OBJECTS_OPEN_MAX, sizeof(opening *)));
    p->index = w->process_count;
    status = gvmi_machine_connect(w->machine, who, p->leases, p->permits, &p->client);
    sim_log(w, "process %u connects as client %u, user %u: %s", p->index, p->client, who->uid,
            gvm_status_name(status));
    if (status != GVM_OK) {
        if (status != GVM_E_LIMIT || admitted)
            sim_wrong(w, "connecting the client number %u is answered %s", connected + 1,
                      gvm_status_name(status));
        free(p->leases);
        free(p->permits);
        free(p->known);
        free(p->openings);
        free(p);
        sim_act(w);
        return NULL;
    }
    if (!admitted)
        sim_wrong(w, "%u clients, %u of user %u, are one too many", connected + 1, own + 1, who->uid);
    if (process_of(w, p->client) != NULL)
        sim_wrong(w, "client number %u is given twice", p->client);
    w->processes[w->process_count++] = p;
    sim_act(w);
    return p;
}

static void deliver_end(simulation *w, process *p)
{
    sim_log(w, "process %u is disconnected", p->index);
    voided_begin(p);
    p->disconnected = true;
    p->disconnected_ns = w->tick_ns;
    model_ended(w, p, false);
    if (p->bye && sim_chance(w, 50)) { /* otherwise as of a process that cannot be watched */
        p->closed = true;
        gvmi_machine_bye(w->machine, p->client);
    } else {
        gvmi_machine_disconnect(w->machine, p->client);
    }
}

void sim_deliver(simulation *w, process *p)
{
    packet *came = sim_queue_take(&p->out);
    gvmi_wire_message decoded;

    if (came == NULL)
        return;
    if (came->message == NULL) {
        deliver_end(w, p);
    } else if (passes(w, came->message, true, &decoded)) {
        sim_log(w, "%s %llu from process %u, slot %u", gvmi_wire_name_of(decoded.head.type),
                (unsigned long long)decoded.head.request, p->index, decoded.body.CLOSE.slot);
        model_request(w, p, &decoded);
        gvmi_machine_message(w->machine, p->client, &decoded);
    } else {
        sim_log(w, "a violation by process %u", p->index);
        if (p->honest)
            sim_wrong(w, "the decoder refuses a %s of an honest process",
                      gvmi_wire_name_of(came->message->head.type));
        gvmi_machine_violation(w->machine, p->client, "not decoded");
    }
    sim_packet_free(w, came);
    sim_act(w);
}

void sim_ring(simulation *w, process *p)
{
    if (!p->rung || p->disconnected || p->cut)
        return;
    sim_log(w, "doorbell of process %u", p->index);
    p->rung = false;
    gvmi_machine_doorbell(w->machine, p->client);
    sim_act(w);
}

void sim_tick(simulation *w)
{
    w->tick_ns = w->now_ns;
    sim_log(w, "tick");
    gvmi_machine_tick(w->machine, w->now_ns);
    sim_act(w);
}

void sim_exited(simulation *w, process *p)
{
    sim_log(w, "process %u has exited", p->index);
    p->exited = true;
    model_ended(w, p, true);
    gvmi_machine_exited(w->machine, p->client);
    sim_act(w);
}

void sim_closed(simulation *w, process *p)
{
    sim_log(w, "process %u has closed its socket", p->index);
    p->closed = true;
    gvmi_machine_closed(w->machine, p->client);
    sim_act(w);
}

void sim_budget(simulation *w, uint32_t device, uint64_t bytes)
{
    sim_log(w, "the budget of device %u becomes %llu MiB", device, (unsigned long long)(bytes / MIB));
    w->budget_bytes[device] = bytes;
    if (bytes < w->least_budget_bytes[device])
        w->least_budget_bytes[device] = bytes;
    gvmi_machine_driver_memory(w->machine, device, bytes / 2, bytes * 2, bytes);
    sim_act(w);
}

/* ---- ends of processes */

void sim_hang_up(simulation *w, process *p)
{
    packet *end;

    if (p->hung_up)
        return;
    sim_log(w, "process %u hangs up", p->index);
    p->hung_up = true;
    queue_clear(w, &p->in);
    queue_clear(w, &p->pending);
    if (p->mapping != NULL)
        sim_land(p->mapping);
    if (p->cut || p->disconnected)
        return;
    end = must(calloc(1, sizeof *end));
    sim_queue_add(&p->out, end);
}

void sim_gone(simulation *w, process *p)
{
    sim_hang_up(w, p);
    sim_log(w, "process %u is gone", p->index);
    p->gone = true;
    for (uint32_t i = 0; i < p->thread_count; i++) {
        p->threads[i].leased = false;
        p->threads[i].phase = PHASE_IDLE;
    }
    client_drop_openings(w, p);
    if (p->mapping != NULL)
        sim_packet_free(w, p->mapping);
    p->mapping = NULL;
}

bool sim_lease_counts(const simulation *w, const process *p)
{
    const int64_t patience = (int64_t)w->config.revoke_limit_ms * 1000000;

    /* Of one that hung up, the lease timeout may end them earlier. */
    return !p->gone && !p->cut && !p->exited &&
           !(p->disconnected &&
             (w->config.lease_limit_ms != 0 || w->tick_ns - p->disconnected_ns >= patience));
}
