/* Chunks on their way between the tiers.
 *
 *     out:  DEVICE -(copy, unless clean)-> OUT_MAP -(all openings have answered)-> HOST
 *     in:   HOST -(room)-> -(copy)-> IN_MAP -(all openings have answered)-> DEVICE, clean
 *               -(no room, or the copy failed)-> STAY_MAP -(all openings have answered)-> HOST
 *     renew:  either -(copy)-> RENEW_MAP -(all openings have answered)-> as before, in another frame
 *     cut:  either -> CUT -(all openings have answered)-> gone, with the others of its object (shrink.c)
 *
 * `where` changes, and a new stamp is given, at the moment the MAP is decided on: who maps the chunk from then on
 * maps the new frame. A device frame is free once everybody has unmapped it, while the object stays FROZEN until
 * everybody has mapped what takes its place (maps.c). */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "keeper/machine/probes.h"
#include "keeper/machine/state.h"

static keep_device *device_of(gvmi_machine *m, const keep_object *object)
{
    return &m->devices[object->device];
}

void gvmi_keep_resident(gvmi_machine *m, keep_object *object)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < object->chunk_places; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->device_frame != 0 && chunk->op != KEEP_OP_OUT_COPY && chunk->op != KEEP_OP_OUT_MAP)
            bytes += object->chunk_bytes;
    }
    gvmi_policy_resident(device_of(m, object)->policy, &object->item, bytes);
}

/* ---- where chunks are */

static void set_chunk_tier(gvmi_machine *m, keep_object *object, uint32_t index, gvm_tier tier)
{
    keep_chunk *chunk = &object->chunks[index];

    object->device_chunks -= chunk->where == GVM_TIER_DEVICE;
    object->device_chunks += tier == GVM_TIER_DEVICE;
    gvmi_keep_set_chunk(m, object, chunk, tier, chunk->clean);
    chunk->stamp = ++m->stamps;
    chunk->send = true;
    object->sending++;
    gvmi_keep_mark(m, object);
}

static void end_move(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    if (chunk->op == KEEP_OP_IN_COPY || chunk->op == KEEP_OP_IN_MAP)
        device_of(m, object)->arriving--;
    chunk->op = KEEP_OP_NONE;
    object->moving--;
    gvmi_keep_mark(m, object);
}

void gvmi_keep_stay(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    if (!object->bringing) {
        end_move(m, object, chunk);
        return;
    }
    device_of(m, object)->arriving -= chunk->op == KEEP_OP_IN_COPY;
    chunk->op = KEEP_OP_STAY_MAP;
    chunk->send = true;
    object->sending++;
    gvmi_keep_mark(m, object);
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

/* A chunk with an OUT has no device frame any more, or keeps it for good. */
static void end_leaving(gvmi_machine *m, keep_object *object)
{
    device_of(m, object)->leaving--;
    if (--object->leaving == 0)
        gvmi_keep_answer_evictor(m, object);
}

/* Nobody has the frame any more, but those that hold it. */
static void release_duplicate_frame(gvmi_machine *m, keep_chunk *chunk)
{
    gvmi_keep_give_frame(m, chunk->twin_frame, true);
    chunk->twin_frame = 0;
}

/* Nobody has the device frame any more. */
static void demote_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    keep_device *device = device_of(m, object);

    gvmi_keep_give_frame(m, chunk->device_frame, true);
    chunk->device_frame = 0;
    gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, false);
    object->evicted_bytes += object->chunk_bytes;
    device->evicted_bytes += object->chunk_bytes;
    device->evictions++;
    end_leaving(m, object);
}

static void note_promoted(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_device *device = device_of(m, object);

    object->promoted_bytes += object->chunk_bytes;
    device->promoted_bytes += object->chunk_bytes;
    device->promotions++;
    GVMI_PROBE_PROMOTE(object->id, index, object->chunk_bytes);
    end_move(m, object, &object->chunks[index]);
}

void gvmi_keep_check_answers(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];

    if (chunk->unmaps > 0 || chunk->send)
        return;
    if (chunk->op == KEEP_OP_OUT_MAP && chunk->device_frame != 0)
        demote_chunk(m, object, chunk);
    if (chunk->twin_frame != 0 && chunk->op != KEEP_OP_RENEW_COPY)
        release_duplicate_frame(m, chunk);
    if (chunk->waits > 0)
        return;
    switch ((keep_op)chunk->op) {
    case KEEP_OP_IN_MAP: note_promoted(m, object, index); break;
    case KEEP_OP_OUT_MAP:
    case KEEP_OP_STAY_MAP:
    case KEEP_OP_RENEW_MAP:
    case KEEP_OP_CUT: end_move(m, object, chunk); break;
    default: break;
    }
}

/* ---- out */

static bool start_copy_out(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];
    bool make;
    const uint32_t frame = gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make);

    if (frame == 0)
        return false;
    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame, chunk->device_frame, make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->away_frame = frame;
    chunk->op = KEEP_OP_OUT_COPY;
    return true;
}

static bool start_out(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];

    GVMI_PROBE_EVICT(object->id, index, object->chunk_bytes, !chunk->clean);
    if (chunk->clean) {
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_HOST);
    } else if (!start_copy_out(m, object, index)) {
        return false;
    }
    object->moving++;
    object->leaving++;
    device_of(m, object)->leaving++;
    return true;
}

/* From the end, as gvmi_keep_bring() begins at the start: what stays is one piece. */
uint64_t gvmi_keep_evict_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes, bool *host_full)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = object->chunk_count; i-- > 0 && begun_bytes < bytes;) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != GVM_TIER_DEVICE || chunk->op != KEEP_OP_NONE)
            continue;
        if (!start_out(m, object, i)) {
            *host_full = true;
            break;
        }
        begun_bytes += object->chunk_bytes;
    }
    gvmi_keep_resident(m, object);
    return begun_bytes;
}

void gvmi_keep_take_victims(gvmi_machine *m, const keep_object *wanting, const gvmi_policy_plan *plan)
{
    for (uint32_t i = 0; i < plan->victim_count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);
        bool host_full = false;

        if (victim == wanting || !gvmi_keep_freeze(m, victim))
            continue;
        (void)gvmi_keep_evict_chunks(m, victim, plan->victims[i].bytes, &host_full);
        gvmi_keep_mark(m, victim); /* ends the freeze at once if nothing could be begun */
    }
}

/* ---- in */

bool gvmi_keep_wait_room(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_device *device = device_of(m, object);
    keep_room *room = malloc(sizeof *room);

    if (room == NULL)
        return false;
    *room = (keep_room){.object = object, .chunk = index};
    if (device->last_room != NULL)
        device->last_room->next = room;
    else
        device->first_room = room;
    device->last_room = room;
    return true;
}

bool gvmi_keep_bring(gvmi_machine *m, keep_object *object, const gvmi_policy_plan *plan)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    gvmi_keep_take_victims(m, object, plan);
    for (uint32_t i = 0; i < object->chunk_count && begun_bytes < plan->bring_bytes; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != GVM_TIER_HOST || chunk->op != KEEP_OP_NONE)
            continue;
        if (!gvmi_keep_wait_room(m, object, i))
            break;
        chunk->op = KEEP_OP_IN_ROOM;
        object->moving++;
        begun_bytes += object->chunk_bytes;
    }
    return begun_bytes > 0;
}

void gvmi_keep_start_copy_in(gvmi_machine *m, keep_object *object, uint32_t index, uint32_t frame,
                             bool make)
{
    keep_chunk *chunk = &object->chunks[index];

    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame, chunk->away_frame, make)) {
        gvmi_keep_give_frame(m, frame, !make);
        gvmi_keep_stay(m, object, chunk);
        return;
    }
    chunk->device_frame = frame;
    chunk->op = KEEP_OP_IN_COPY;
    /* Now: what writes there may be gone when the copy is over, and the two differ. */
    chunk->unsafe = gvmi_keep_has_writers(m, chunk->away_frame);
    device_of(m, object)->arriving++;
}

/* ---- out of frames that have writers */

static bool start_renew(gvmi_machine *m, keep_object *object, uint32_t index)
{
    keep_chunk *chunk = &object->chunks[index];
    const gvm_tier tier = (gvm_tier)chunk->where;
    bool make;
    uint32_t frame = gvmi_keep_take_frame(m, object, tier, &make);

    if (frame == 0 && tier == GVM_TIER_DEVICE)
        return start_out(m, object, index);
    if (frame == 0) { /* to the device, if there is room without anybody leaving */
        frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);
        if (frame == 0)
            return false;
        object->moving++;
        gvmi_keep_start_copy_in(m, object, index, frame, make);
        return chunk->op != KEEP_OP_NONE;
    }
    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame,
                             gvmi_keep_frame_where(chunk), make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->twin_frame = frame;
    chunk->op = KEEP_OP_RENEW_COPY;
    object->moving++;
    return true;
}

bool gvmi_keep_renew_chunks(gvmi_machine *m, keep_object *object)
{
    bool begun = false;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->op != KEEP_OP_NONE || !gvmi_keep_has_writers(m, gvmi_keep_frame_where(chunk)))
            continue;
        if (!start_renew(m, object, i))
            break;
        begun = true;
    }
    gvmi_keep_resident(m, object);
    return begun;
}

bool gvmi_keep_room_comes(const gvmi_machine *m)
{
    bool moves = m->ahead_jobs > 0;

    for (uint32_t d = 0; d < m->config.device_count; d++)
        moves = moves || m->devices[d].leaving > 0 || m->devices[d].arriving > 0;
    return moves;
}

/* ---- copies that ended */

/* The machine has less memory than the budget says. A copy that the fence needs is made again at the next
 * look: at once it would fail in the same way. */
static void copy_failed(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    object->fence_waits = object->fenced;
    end_move(m, object, chunk);
}

static void copied_out(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];

    if (status == GVM_OK) {
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, true);
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_HOST);
        return;
    }
    gvmi_keep_give_frame(m, chunk->away_frame, made);
    chunk->away_frame = 0;
    object->evict_short = true;
    object->evict_cause = status;
    if (object->evictor != 0 && object->evict_bytes >= object->chunk_bytes)
        object->evict_bytes -= object->chunk_bytes;
    end_leaving(m, object);
    copy_failed(m, object, chunk);
}

static void copied_in(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];

    if (status == GVM_OK) {
        if (chunk->unsafe) {
            chunk->twin_frame = chunk->away_frame;
            chunk->away_frame = 0;
        }
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, !chunk->unsafe);
        chunk->op = KEEP_OP_IN_MAP;
        set_chunk_tier(m, object, index, GVM_TIER_DEVICE);
        return;
    }
    gvmi_keep_give_frame(m, chunk->device_frame, made);
    chunk->device_frame = 0;
    object->fence_waits = object->fenced;
    gvmi_keep_stay(m, object, chunk);
}

static void finish_duplicate_copy(gvmi_machine *m, keep_object *object, uint32_t index,
                                  gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];
    uint32_t *own = chunk->where == GVM_TIER_DEVICE ? &chunk->device_frame : &chunk->away_frame;
    const uint32_t old = *own;

    GVM_ASSERT(!chunk->clean);
    if (status != GVM_OK) {
        gvmi_keep_give_frame(m, chunk->twin_frame, made);
        chunk->twin_frame = 0;
        copy_failed(m, object, chunk);
        return;
    }
    *own = chunk->twin_frame;
    chunk->twin_frame = old;
    chunk->op = KEEP_OP_RENEW_MAP;
    set_chunk_tier(m, object, index, (gvm_tier)chunk->where);
}

void gvmi_keep_copied(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    switch ((keep_op)object->chunks[index].op) {
    case KEEP_OP_OUT_COPY: copied_out(m, object, index, status, made); break;
    case KEEP_OP_IN_COPY: copied_in(m, object, index, status, made); break;
    case KEEP_OP_RENEW_COPY: finish_duplicate_copy(m, object, index, status, made); break;
    default: GVM_ASSERT(false); /* a chunk that is not being copied */
    }
}

/* ---- writes to come make host copies stale */

void gvmi_keep_stale_copies(gvmi_machine *m, keep_object *object)
{
    for (uint32_t i = 0; i < object->chunk_count && object->duplicate_chunks > 0; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (!chunk->clean)
            continue;
        GVM_ASSERT(chunk->where == GVM_TIER_DEVICE && chunk->op == KEEP_OP_NONE);
        gvmi_keep_give_frame(m, chunk->away_frame, true);
        chunk->away_frame = 0;
        gvmi_keep_set_chunk(m, object, chunk, (gvm_tier)chunk->where, false);
    }
}

/* ---- the end of a freeze */

void gvmi_keep_thaw(gvmi_machine *m, keep_object *object)
{
    GVM_ASSERT(object->moving == 0);
    object->bringing = false;
    gvmi_keep_end_cut(m, object);
    if (object->untracked && !object->sealed)
        gvmi_keep_stale_copies(m, object);
    object->item.pinned = false;
    gvmi_keep_resident(m, object);
    gvmi_keep_check_fence(m, object);
    gvmi_keep_end_freeze(m, object);
    gvmi_keep_mark(m, object);
}

/* ---- what moves though nobody asks */

static void demote_over_budget(gvmi_machine *m, keep_device *device)
{
    gvmi_policy_plan plan;
    uint64_t over_bytes = device->place.used_bytes - device->place.budget_bytes;

    over_bytes -= gvmi_keep_trim(
        m, &device->place,
        device->place.free_bytes > over_bytes ? device->place.free_bytes - over_bytes : 0);
    if (device->place.used_bytes <= device->place.budget_bytes)
        return;
    gvmi_keep_plan_shrink(m, device, over_bytes, &plan);
    gvmi_keep_take_victims(m, NULL, &plan);
}

static void promote_planned(gvmi_machine *m, keep_device *device)
{
    gvmi_policy_plan plan;
    keep_object *object = gvmi_keep_plan_next(m, device, &plan);

    if (object == NULL)
        return;
    if (object->first_wait != NULL || object->has_regions || !gvmi_keep_freeze(m, object)) {
        object->item.pinned = true; /* until the next look: others may gain, too */
        return;
    }
    (void)gvmi_keep_bring(m, object, &plan);
    gvmi_keep_mark(m, object);
}

void gvmi_keep_rebalance(gvmi_machine *m)
{
    for (uint32_t d = 0; d < m->config.device_count; d++) {
        keep_device *device = &m->devices[d];

        if (device->first_room != NULL || device->leaving > 0)
            continue;
        if (device->place.used_bytes > device->place.budget_bytes)
            demote_over_budget(m, device);
        else
            promote_planned(m, device);
    }
}
