/* Chunks on their way between their device and other places, AWAY: the host, or memory that another device lends.
 *
 *     out:  DEVICE -(copy, unless clean)-> OUT_MAP -(all openings have answered)-> AWAY
 *     in:   AWAY -(room)-> -(copy)-> IN_MAP -(all openings have answered)-> DEVICE, clean if it was on the host
 *               -(no room, or the copy failed)-> STAY_MAP -(all openings have answered)-> AWAY
 *     renew:  either -(copy)-> RENEW_MAP -(all openings have answered)-> as before, in another frame (AWAY: of the host or its lender)
 *     recall:  as in, with a frame from the beginning; or as renew, from lent memory to the host
 *     lend:  as renew, from the host to lent memory
 *     cut:  either -> CUT -(all openings have answered)-> gone, with the others of its object (shrink.c)
 *
 * All openings are those that had the chunk mapped, or were mapping it, when the MAP was sent (maps.c); of a cut, every opening. `where` changes, and a new
 * stamp is given, when the move is decided on: who maps the chunk from then on maps the new frame. A device frame is free once all have unmapped it,
 * while the object stays FROZEN until all have mapped what takes its place. */
#include <stdlib.h>

#include "base/assert.h"
#include "keeper/machine/lend.h"
#include "keeper/machine/probes.h"

static keep_device *device_of(gvmi_machine *m, const keep_object *object)
{
    return &m->devices[object->device];
}

void gvmi_keep_resident(gvmi_machine *m, keep_object *object)
{
    uint64_t bytes = 0;

    gvmi_keep_count_served(m, object->chunk_places / KEEP_REQUEST_CHUNKS);
    for (uint32_t i = 0; i < object->chunk_places; i++) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->device_frame != 0 && chunk->op != KEEP_OP_OUT_COPY && chunk->op != KEEP_OP_OUT_MAP)
            bytes += object->chunk_bytes;
    }
    gvmi_policy_resident(device_of(m, object)->policy, &object->item, bytes);
}

/* ---- where chunks are */

static void set_chunk_where(gvmi_machine *m, keep_object *object, uint32_t index, keep_where where)
{
    keep_chunk *chunk = &object->chunks[index];

    object->device_chunks -= chunk->where == KEEP_ON_DEVICE;
    object->device_chunks += where == KEEP_ON_DEVICE;
    gvmi_keep_send_chunk(m, object, index); /* its host copy is in use until then */
    gvmi_keep_set_chunk(m, object, chunk, where, chunk->clean);
    chunk->stamp = ++m->stamps;
}

/* The chunk's host copy can be given up now, perhaps. */
static void note_spare(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    if (chunk->clean)
        gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, true);
}

static void count_lent_leaving(gvmi_machine *m, uint32_t frame, bool more)
{
    if (gvmi_keep_is_lent(m, frame))
        gvmi_keep_count_leaving(m, frame, more);
}

bool gvmi_keep_leaves_lent(const gvmi_machine *m, const keep_chunk *chunk)
{
    return chunk->op == KEEP_OP_RENEW_MAP && gvmi_keep_is_lent(m, chunk->twin_frame);
}

static void end_move(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    if (chunk->op == KEEP_OP_IN_COPY || chunk->op == KEEP_OP_IN_MAP)
        device_of(m, object)->arriving--;
    chunk->op = KEEP_OP_NONE;
    object->moving--;
    note_spare(m, object, chunk);
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
    gvmi_keep_send_chunk(m, object, (uint32_t)(chunk - object->chunks));
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

/* A chunk with an OUT is about to have no device frame any more, or keeps it for good. */
static void end_leaving(gvmi_machine *m, keep_object *object, const keep_chunk *chunk)
{
    gvmi_keep_count_leaving(m, chunk->device_frame, false);
    if (--object->leaving == 0)
        gvmi_keep_answer_evictor(m, object);
}

/* Nobody has the frame any more, but those that hold it. */
static void release_duplicate_frame(gvmi_machine *m, keep_chunk *chunk)
{
    count_lent_leaving(m, chunk->twin_frame, false);
    gvmi_keep_give_frame(m, chunk->twin_frame, true);
    chunk->twin_frame = 0;
}

/* Nobody has the device frame any more. */
static void demote_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    keep_device *device = device_of(m, object);

    end_leaving(m, object, chunk);
    gvmi_keep_give_frame(m, chunk->device_frame, true);
    chunk->device_frame = 0;
    gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, false);
    object->evicted_bytes += object->chunk_bytes;
    device->evicted_bytes += object->chunk_bytes;
    device->evictions++;
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
    note_spare(m, object, chunk);
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

/* ---- to another frame of where it is, or in though nobody waits for it */

static bool start_renew_to(gvmi_machine *m, keep_object *object, uint32_t index, uint32_t frame,
                           bool make)
{
    keep_chunk *chunk = &object->chunks[index];

    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame,
                             gvmi_keep_frame_where(chunk), make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->twin_frame = frame;
    chunk->op = KEEP_OP_RENEW_COPY;
    object->moving++;
    count_lent_leaving(m, gvmi_keep_frame_where(chunk), true);
    return true;
}

/* From the host, or from lent memory, to the host. */
static bool start_renew_to_host(gvmi_machine *m, keep_object *object, uint32_t index)
{
    bool make;
    const uint32_t frame = gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make);

    return frame != 0 && start_renew_to(m, object, index, frame, make);
}

/* From the host to memory that a device lends; from lent memory to another frame of its lender, which copies: others
 * do not reach that one's memory, perhaps. */
static bool start_renew_to_lent(gvmi_machine *m, keep_object *object, uint32_t index)
{
    const uint32_t lender = object->chunks[index].lent - 1u;
    bool make;
    uint32_t frame = 0;

    if (object->chunks[index].lent == 0)
        frame = gvmi_keep_borrow_frame(m, object, &make);
    else if (gvmi_keep_may_lend(m, lender, object))
        frame = gvmi_keep_take_lent_frame(m, object, lender, &make);
    return frame != 0 && start_renew_to(m, object, index, frame, make);
}

/* If there is room on the device without anybody leaving. */
static bool start_in(gvmi_machine *m, keep_object *object, uint32_t index)
{
    bool make;
    const uint32_t frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);

    if (frame == 0)
        return false;
    object->moving++;
    gvmi_keep_start_copy_in(m, object, index, frame, make);
    return object->chunks[index].op != KEEP_OP_NONE;
}

/* ---- out */

static bool start_copy_out(gvmi_machine *m, keep_object *object, uint32_t index, uint32_t frame,
                           bool make)
{
    keep_chunk *chunk = &object->chunks[index];

    if (!gvmi_keep_start_job(m, GVMI_ACTION_COPY, object, index, frame, chunk->device_frame, make)) {
        gvmi_keep_give_frame(m, frame, !make);
        return false;
    }
    chunk->away_frame = frame;
    chunk->op = KEEP_OP_OUT_COPY;
    return true;
}

/* Its copy on the host is not to be where it goes. */
static void drop_copy(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    const uint32_t frame = chunk->away_frame;

    chunk->away_frame = 0;
    gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, false);
    gvmi_keep_give_frame(m, frame, true);
}

/* To memory that another device lends, if there is some and it need not be the host's. */
static bool start_out(gvmi_machine *m, keep_object *object, uint32_t index, bool to_host)
{
    keep_chunk *chunk = &object->chunks[index];
    bool make;
    uint32_t frame = to_host ? 0 : gvmi_keep_borrow_frame(m, object, &make);

    GVMI_PROBE_EVICT(object->id, index, object->chunk_bytes, !chunk->clean);
    if (frame == 0 && chunk->clean) {
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_where(m, object, index, KEEP_AWAY);
    } else {
        if (chunk->clean)
            drop_copy(m, object, chunk);
        if (frame == 0)
            frame = gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make);
        if (frame == 0 || !start_copy_out(m, object, index, frame, make))
            return false;
    }
    object->moving++;
    object->leaving++;
    gvmi_keep_count_leaving(m, chunk->device_frame, true);
    return true;
}

/* From the end, as gvmi_keep_bring() begins at the start: what stays is one piece. */
uint64_t gvmi_keep_evict_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes, bool to_host,
                                bool *host_full)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = object->chunk_count; i-- > 0 && begun_bytes < bytes;) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != KEEP_ON_DEVICE || chunk->op != KEEP_OP_NONE)
            continue;
        if (!start_out(m, object, i, to_host)) {
            *host_full = true;
            break;
        }
        begun_bytes += object->chunk_bytes;
    }
    gvmi_keep_resident(m, object);
    return begun_bytes;
}

void gvmi_keep_move_to_host(gvmi_machine *m, keep_object *object, bool *host_full)
{
    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = object->chunk_count; i-- > 0 && !*host_full;) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->op == KEEP_OP_NONE && chunk->where == KEEP_ON_DEVICE)
            *host_full = !start_out(m, object, i, true);
        else if (chunk->op == KEEP_OP_NONE && chunk->lent)
            *host_full = !start_renew_to_host(m, object, i);
    }
    gvmi_keep_resident(m, object);
}

void gvmi_keep_take_victims(gvmi_machine *m, const keep_object *wanting, const gvmi_policy_plan *plan)
{
    for (uint32_t i = 0; i < plan->victim_count; i++) {
        keep_object *victim = gvmi_keep_object_of(plan->victims[i].item);
        bool host_full = false;

        if (victim == wanting || !gvmi_keep_freeze(m, victim))
            continue;
        (void)gvmi_keep_evict_chunks(m, victim, plan->victims[i].bytes, false, &host_full);
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
    device->wanted_bytes += object->chunk_bytes;
    return true;
}

/* Of the chunks on the host, or of those in lent memory. */
static uint64_t bring_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes, bool lent)
{
    uint64_t begun_bytes = 0;

    for (uint32_t i = 0; i < object->chunk_count && begun_bytes < bytes; i++) {
        keep_chunk *chunk = &object->chunks[i];

        if (chunk->where != KEEP_AWAY || (chunk->lent != 0) != lent || chunk->op != KEEP_OP_NONE)
            continue;
        if (!gvmi_keep_wait_room(m, object, i))
            break;
        chunk->op = KEEP_OP_IN_ROOM;
        object->moving++;
        begun_bytes += object->chunk_bytes;
    }
    return begun_bytes;
}

/* What is on the host comes first: it is the slowest to read. */
bool gvmi_keep_bring(gvmi_machine *m, keep_object *object, const gvmi_policy_plan *plan)
{
    uint64_t begun_bytes;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    object->bring_failed = false;
    gvmi_keep_take_victims(m, object, plan);
    begun_bytes = bring_chunks(m, object, plan->bring_bytes, false);
    if (begun_bytes < plan->bring_bytes && object->lent_chunks > 0)
        begun_bytes += bring_chunks(m, object, plan->bring_bytes - begun_bytes, true);
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
    count_lent_leaving(m, chunk->away_frame, true);
    device_of(m, object)->arriving++;
}

uint64_t gvmi_keep_recall_chunks(gvmi_machine *m, keep_object *object, const keep_device *lender,
                                 uint64_t bytes, bool *host_full)
{
    const bool in = device_of(m, object)->first_room == NULL && !object->in_failed;
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = object->chunk_count; i-- > 0 && begun_bytes < bytes && !*host_full;) {
        const keep_chunk *chunk = &object->chunks[i];

        if (chunk->lent != 1 + lender->place.device || chunk->op != KEEP_OP_NONE)
            continue;
        if ((in && start_in(m, object, i)) || start_renew_to_host(m, object, i))
            begun_bytes += object->chunk_bytes;
        else
            *host_full = true;
    }
    gvmi_keep_resident(m, object);
    return begun_bytes;
}

void gvmi_keep_lend_chunks(gvmi_machine *m, keep_object *object, uint64_t bytes)
{
    uint64_t begun_bytes = 0;

    GVM_ASSERT(object->lease_state == KEEP_FROZEN);
    for (uint32_t i = 0; i < object->chunk_count && begun_bytes < bytes; i++) {
        const keep_chunk *chunk = &object->chunks[i];
        bool make;
        uint32_t frame;

        if (chunk->where != KEEP_AWAY || chunk->lent != 0 || chunk->op != KEEP_OP_NONE)
            continue;
        frame = gvmi_keep_borrow_settled(m, object, &make);
        if (frame == 0 || !start_renew_to(m, object, i, frame, make))
            break;
        begun_bytes += object->chunk_bytes;
    }
}

/* ---- out of frames that have writers */

static bool start_renew(gvmi_machine *m, keep_object *object, uint32_t index)
{
    const keep_chunk *chunk = &object->chunks[index];
    bool make;
    uint32_t frame;

    if (chunk->where == KEEP_AWAY)
        return start_renew_to_host(m, object, index) || start_in(m, object, index) ||
               start_renew_to_lent(m, object, index);
    frame = gvmi_keep_take_frame(m, object, GVM_TIER_DEVICE, &make);
    return frame != 0 ? start_renew_to(m, object, index, frame, make)
                      : start_out(m, object, index, false);
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

bool gvmi_keep_device_room_comes(const keep_device *device, uint64_t bytes)
{
    return device->leaving_bytes > 0 &&
           gvmi_keep_staying_bytes(device) + bytes <= device->place.budget_bytes;
}

bool gvmi_keep_room_comes(const gvmi_machine *m, uint64_t bytes)
{
    bool moves = m->ahead_jobs > 0;

    for (uint32_t d = 0; d < m->config.device_count; d++)
        moves = moves || m->devices[d].arriving > 0 ||
                gvmi_keep_device_room_comes(&m->devices[d], bytes);
    return moves;
}

/* ---- copies that ended */

/* What was to be recalled stays: it is not tried again before the next look. */
static void note_not_recalled(gvmi_machine *m, uint32_t frame)
{
    if (!gvmi_keep_is_lent(m, frame))
        return;
    gvmi_keep_count_leaving(m, frame, false);
    m->devices[gvmi_keep_frame(m, frame)->spec.device].recall_short = true;
}

/* The machine has less memory than the budget says. A copy that the fence needs is made again at the next
 * look: at once it would fail in the same way. */
static void copy_failed(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    object->fence_waits = object->fenced;
    end_move(m, object, chunk);
}

/* The lender has less memory than its budget says. */
static bool copy_out_to_host(gvmi_machine *m, keep_object *object, uint32_t index)
{
    bool make;
    const uint32_t frame = gvmi_keep_take_frame(m, object, GVM_TIER_HOST, &make);

    return frame != 0 && start_copy_out(m, object, index, frame, make);
}

static void copied_out(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];
    const bool lent = gvmi_keep_is_lent(m, chunk->away_frame);

    if (status == GVM_OK) {
        gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, !lent);
        chunk->op = KEEP_OP_OUT_MAP;
        set_chunk_where(m, object, index, KEEP_AWAY);
        return;
    }
    gvmi_keep_give_frame(m, chunk->away_frame, made);
    chunk->away_frame = 0;
    if (lent && copy_out_to_host(m, object, index))
        return;
    object->evict_short = true;
    object->evict_cause = status;
    if (object->evictor != 0 && object->evict_bytes >= object->chunk_bytes)
        object->evict_bytes -= object->chunk_bytes;
    end_leaving(m, object, chunk);
    copy_failed(m, object, chunk);
}

static void copied_in(gvmi_machine *m, keep_object *object, uint32_t index, gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];

    if (status == GVM_OK) {
        const bool stays = !chunk->unsafe && !gvmi_keep_is_lent(m, chunk->away_frame);

        object->in_failed = false;
        if (!stays) {
            chunk->twin_frame = chunk->away_frame;
            chunk->away_frame = 0;
        }
        gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, stays);
        chunk->op = KEEP_OP_IN_MAP;
        set_chunk_where(m, object, index, KEEP_ON_DEVICE);
        return;
    }
    object->bring_failed = true;
    object->in_failed = gvmi_keep_is_lent(m, chunk->away_frame);
    note_not_recalled(m, chunk->away_frame);
    gvmi_keep_give_frame(m, chunk->device_frame, made);
    chunk->device_frame = 0;
    object->fence_waits = object->fenced;
    gvmi_keep_stay(m, object, chunk);
}

static void finish_duplicate_copy(gvmi_machine *m, keep_object *object, uint32_t index,
                                  gvm_status status, bool made)
{
    keep_chunk *chunk = &object->chunks[index];
    uint32_t *own = chunk->where == KEEP_ON_DEVICE ? &chunk->device_frame : &chunk->away_frame;
    const uint32_t old = *own;

    GVM_ASSERT(!chunk->clean);
    if (status != GVM_OK) {
        if (gvmi_keep_is_lent(m, chunk->twin_frame)) /* the lender has less memory than its budget says */
            gvmi_keep_unsettle_lender(
                m, &m->devices[gvmi_keep_frame(m, chunk->twin_frame)->spec.device]);
        gvmi_keep_give_frame(m, chunk->twin_frame, made);
        chunk->twin_frame = 0;
        object->evict_cause = status;
        note_not_recalled(m, old);
        copy_failed(m, object, chunk);
        return;
    }
    *own = chunk->twin_frame;
    chunk->twin_frame = old;
    chunk->op = KEEP_OP_RENEW_MAP;
    set_chunk_where(m, object, index, (keep_where)chunk->where);
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
        GVM_ASSERT(chunk->where == KEEP_ON_DEVICE && chunk->op == KEEP_OP_NONE);
        gvmi_keep_give_frame(m, chunk->away_frame, true);
        chunk->away_frame = 0;
        gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, false);
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
    object->item.moving = false;
    gvmi_keep_resident(m, object);
    gvmi_keep_check_fence(m, object);
    gvmi_keep_end_freeze(m, object);
    gvmi_keep_mark(m, object);
    gvmi_keep_end_thaw_waits(m);
}
