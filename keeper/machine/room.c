/* Frames: where memory for chunks comes from, and who may get it next.
 *
 * A process that was sent a frame may read it for ever, as the driver takes no handle back. So a free
 * frame goes only to objects of the domain that saw it (any object, if nobody did). If a process of
 * another user saw it, as part of an object that it may open, the frame goes to that object alone
 * and is released when the object ends. A frame that a process which was cut off may still have
 * (fence.c) is released as soon as no chunk uses it, and is counted until that process is gone.
 *
 * A frame that a device lends (lend.c) is counted to that device. Once it is free, the device uses it for its own objects, or lends it again.
 *
 * A free frame stays counted in used_bytes until it is dropped: it is memory of the machine. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "keeper/machine/room.h"

/* Free frames looked at to find one that fits: those of one place, newest first. */
#define FREE_LOOKS_MAX 256

keep_place *gvmi_keep_place(gvmi_machine *m, gvm_tier tier, uint32_t device)
{
    return tier == GVM_TIER_HOST ? &m->host : &m->devices[device].place;
}

uint64_t gvmi_keep_room_bytes(const keep_place *place)
{
    const uint64_t taken_bytes = place->used_bytes - place->free_bytes;

    return place->budget_bytes > taken_bytes ? place->budget_bytes - taken_bytes : 0;
}

uint64_t gvmi_keep_staying_bytes(const keep_device *device)
{
    return device->place.used_bytes - device->place.free_bytes - device->leaving_bytes;
}

uint32_t gvmi_keep_frame_where(const keep_chunk *chunk)
{
    return chunk->where == KEEP_ON_DEVICE ? chunk->device_frame : chunk->away_frame;
}

bool gvmi_keep_is_lent(const gvmi_machine *m, uint32_t number)
{
    return number != 0 && m->frames[number - 1].lent;
}

uint32_t gvmi_keep_other_frame(const keep_chunk *chunk)
{
    return chunk->where == KEEP_ON_DEVICE ? chunk->away_frame : chunk->device_frame;
}

static keep_place *place_of(gvmi_machine *m, const keep_frame *frame)
{
    return gvmi_keep_place(m, (gvm_tier)frame->spec.tier, frame->spec.device);
}

/* ---- the lists of free frames: those of a place, and of them those that are kept for one object */

static void list_foreign(gvmi_machine *m, keep_frame *frame)
{
    keep_object *object = frame->foreign;

    if (object == NULL)
        return;
    frame->foreign_prev = 0;
    frame->foreign_next = object->first_foreign;
    if (frame->foreign_next != 0)
        gvmi_keep_frame(m, frame->foreign_next)->foreign_prev = frame->spec.frame;
    object->first_foreign = frame->spec.frame;
}

static void unlist_foreign(gvmi_machine *m, keep_frame *frame)
{
    if (frame->foreign == NULL)
        return;
    if (frame->foreign_prev != 0)
        gvmi_keep_frame(m, frame->foreign_prev)->foreign_next = frame->foreign_next;
    else
        frame->foreign->first_foreign = frame->foreign_next;
    if (frame->foreign_next != 0)
        gvmi_keep_frame(m, frame->foreign_next)->foreign_prev = frame->foreign_prev;
    frame->foreign_prev = frame->foreign_next = 0;
}

static void list_free(gvmi_machine *m, keep_frame *frame)
{
    keep_place *place = place_of(m, frame);

    frame->state = KEEP_FRAME_FREE;
    frame->prev = 0;
    frame->next = place->first_free;
    if (place->first_free != 0)
        gvmi_keep_frame(m, place->first_free)->prev = frame->spec.frame;
    place->first_free = frame->spec.frame;
    place->free_bytes += frame->spec.bytes;
    list_foreign(m, frame);
}

static void unlist_free(gvmi_machine *m, keep_frame *frame)
{
    keep_place *place = place_of(m, frame);

    if (frame->prev != 0)
        gvmi_keep_frame(m, frame->prev)->next = frame->next;
    else
        place->first_free = frame->next;
    if (frame->next != 0)
        gvmi_keep_frame(m, frame->next)->prev = frame->prev;
    frame->prev = frame->next = 0;
    place->free_bytes -= frame->spec.bytes;
    unlist_foreign(m, frame);
}

/* ---- making and dropping */

static keep_frame *new_frame(gvmi_machine *m, keep_place *place, uint32_t device, uint64_t bytes)
{
    keep_frame *frame;

    if (m->first_unused_frame == 0) {
        const uint32_t capacity = m->frame_capacity == 0 ? 64 : m->frame_capacity * 2;
        keep_frame *frames = realloc(m->frames, capacity * sizeof *frames);

        if (frames == NULL)
            return NULL;
        m->frames = frames;
        for (uint32_t i = capacity; i-- > m->frame_capacity;) {
            frames[i] = (keep_frame){.next = m->first_unused_frame};
            m->first_unused_frame = i + 1;
        }
        m->frame_capacity = capacity;
    }
    frame = &m->frames[m->first_unused_frame - 1];
    m->first_unused_frame = frame->next;
    *frame = (keep_frame){
        .state = KEEP_FRAME_USED,
        .spec = {.frame = (uint32_t)(frame - m->frames) + 1,
                 .device = device,
                 .tier = (uint32_t)place->tier,
                 .bytes = bytes},
    };
    place->used_bytes += bytes;
    return frame;
}

static void forget_frame(gvmi_machine *m, keep_frame *frame)
{
    const uint32_t number = frame->spec.frame;

    GVM_ASSERT(frame->holds == NULL);
    *frame = (keep_frame){.next = m->first_unused_frame};
    m->first_unused_frame = number;
}

static void list_drop(gvmi_machine *m, keep_frame *frame)
{
    frame->next = m->first_drop;
    m->first_drop = frame->spec.frame;
}

static void drop_frame(gvmi_machine *m, keep_frame *frame)
{
    place_of(m, frame)->used_bytes -= frame->spec.bytes;
    frame->state = KEEP_FRAME_DROPPED;
    list_drop(m, frame);
}

bool gvmi_keep_next_drop(gvmi_machine *m, gvmi_action *out)
{
    keep_frame *frame;

    if (m->first_drop == 0)
        return false;
    frame = gvmi_keep_frame(m, m->first_drop);
    m->first_drop = frame->next;
    *out = (gvmi_action){.kind = GVMI_ACTION_DROP, .to = frame->spec};
    if (frame->state == KEEP_FRAME_HELD)
        frame->dropped = true; /* its number stays taken, and its bytes counted */
    else
        forget_frame(m, frame);
    return true;
}

uint64_t gvmi_keep_trim(gvmi_machine *m, keep_place *place, uint64_t keep_bytes)
{
    uint64_t dropped_bytes = 0;

    while (place->free_bytes > keep_bytes) {
        keep_frame *frame = gvmi_keep_frame(m, place->first_free);

        dropped_bytes += frame->spec.bytes;
        unlist_free(m, frame);
        drop_frame(m, frame);
    }
    return dropped_bytes;
}

/* ---- taking */

/* Host memory, too, is some device's: the one that copies to and from it. What a device lends is its own. */
static bool frame_fits_object(const keep_frame *frame, const keep_object *object)
{
    return frame->spec.bytes == object->chunk_bytes &&
           (frame->spec.tier == GVM_TIER_DEVICE || frame->spec.device == object->device) &&
           (frame->foreign == NULL || frame->foreign == object) &&
           (!frame->seen || memcmp(&frame->domain, &object->domain, sizeof frame->domain) == 0);
}

static keep_frame *take_free_frame(gvmi_machine *m, keep_place *place, const keep_object *object)
{
    uint32_t number = place->first_free;

    for (unsigned looks = 0; number != 0 && looks < FREE_LOOKS_MAX; looks++) {
        keep_frame *frame = gvmi_keep_frame(m, number);

        if (frame_fits_object(frame, object)) {
            unlist_free(m, frame);
            frame->state = KEEP_FRAME_USED;
            return frame;
        }
        number = frame->next;
    }
    return NULL;
}

static bool has_room(const keep_place *place, uint64_t bytes)
{
    return place->used_bytes <= place->budget_bytes && bytes <= place->budget_bytes - place->used_bytes;
}

static void list_borrower(gvmi_machine *m, keep_object *object)
{
    keep_object *next = m->borrowers != NULL ? m->borrowers : object;
    keep_object *prev = m->borrowers != NULL ? next->borrowers_prev : object;

    object->borrowers_prev = prev;
    object->borrowers_next = next;
    prev->borrowers_next = object;
    next->borrowers_prev = object;
    m->borrowers = object;
}

static void unlist_borrower(gvmi_machine *m, keep_object *object)
{
    object->borrowers_prev->borrowers_next = object->borrowers_next;
    object->borrowers_next->borrowers_prev = object->borrowers_prev;
    if (m->borrowers == object)
        m->borrowers = object->borrowers_next != object ? object->borrowers_next : NULL;
}

/* The chunk is where it is to be now. */
static void set_chunk_lent(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    const bool lent = chunk->where == KEEP_AWAY && gvmi_keep_is_lent(m, chunk->away_frame);
    const uint32_t before = object->lent_chunks;

    if (chunk->lent != 0) {
        object->lent_chunks--;
        object->lent_by[chunk->lent - 1]--;
    }
    chunk->lent = lent ? (uint8_t)(1 + gvmi_keep_frame(m, chunk->away_frame)->spec.device) : 0;
    if (chunk->lent != 0) {
        object->lent_chunks++;
        object->lent_by[chunk->lent - 1]++;
    }
    if (before == 0 && object->lent_chunks > 0)
        list_borrower(m, object);
    else if (before > 0 && object->lent_chunks == 0)
        unlist_borrower(m, object);
}

static void list_duplicated(gvmi_machine *m, keep_object *object)
{
    object->duplicated_prev = NULL;
    object->duplicated_next = m->duplicated;
    if (m->duplicated != NULL)
        m->duplicated->duplicated_prev = object;
    m->duplicated = object;
}

static void unlist_duplicated(gvmi_machine *m, keep_object *object)
{
    if (object->duplicated_prev != NULL)
        object->duplicated_prev->duplicated_next = object->duplicated_next;
    else
        m->duplicated = object->duplicated_next;
    if (object->duplicated_next != NULL)
        object->duplicated_next->duplicated_prev = object->duplicated_prev;
}

static bool is_duplicated(const keep_chunk *chunk)
{
    return chunk->clean && chunk->where == KEEP_ON_DEVICE;
}

/* The chunk's host copy is only a duplicate, and nobody has it mapped. */
static bool is_spare(const keep_chunk *chunk)
{
    return is_duplicated(chunk) &&
           (chunk->op == KEEP_OP_NONE ||
            (chunk->op == KEEP_OP_IN_MAP && chunk->unmaps == 0 && !chunk->send));
}

void gvmi_keep_set_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk, keep_where where,
                         bool clean)
{
    const uint32_t index = (uint32_t)(chunk - object->chunks), before = object->duplicate_chunks;

    object->duplicate_chunks -= is_duplicated(chunk);
    chunk->where = (uint8_t)where;
    chunk->clean = clean;
    object->duplicate_chunks += is_duplicated(chunk);
    if (is_spare(chunk) && index >= object->clean_end)
        object->clean_end = index + 1;
    set_chunk_lent(m, object, chunk);
    if (before == 0 && object->duplicate_chunks > 0)
        list_duplicated(m, object);
    else if (before > 0 && object->duplicate_chunks == 0)
        unlist_duplicated(m, object);
}

/* The last chunk of the object that has such a copy; NULL: none has. */
static keep_chunk *find_spare(keep_object *object)
{
    while (object->clean_end > 0 && !is_spare(&object->chunks[object->clean_end - 1]))
        object->clean_end--;
    return object->clean_end > 0 ? &object->chunks[object->clean_end - 1] : NULL;
}

/* Gives up one such copy, of whichever object is found first. */
static bool drop_clean_copy(gvmi_machine *m)
{
    for (keep_object *object = m->duplicated; object != NULL; object = object->duplicated_next) {
        keep_chunk *chunk = find_spare(object);

        if (chunk != NULL) {
            const uint32_t frame = chunk->away_frame;

            gvmi_keep_set_chunk(m, object, chunk, (keep_where)chunk->where, false);
            chunk->away_frame = 0;
            gvmi_keep_give_frame(m, frame, true);
            return true;
        }
    }
    return false;
}

static uint32_t take_frame(gvmi_machine *m, const keep_object *object, keep_place *place,
                           uint32_t device, bool *make)
{
    const uint64_t bytes = object->chunk_bytes;
    keep_frame *frame = take_free_frame(m, place, object);

    *make = false;
    while (frame == NULL && !has_room(place, bytes)) {
        /* Free, but not for this object. Only if it helps: making host memory again takes 0.3 s a GiB. */
        if (gvmi_keep_room_bytes(place) >= bytes)
            (void)gvmi_keep_trim(m, place, place->free_bytes > bytes ? place->free_bytes - bytes : 0);
        else if (place->tier != GVM_TIER_HOST || !drop_clean_copy(m))
            return 0;
        frame = take_free_frame(m, place, object);
    }
    if (frame == NULL) {
        *make = true;
        frame = new_frame(m, place, device, bytes);
    }
    return frame == NULL ? 0 : frame->spec.frame;
}

uint32_t gvmi_keep_take_frame(gvmi_machine *m, const keep_object *object, gvm_tier tier, bool *make)
{
    return take_frame(m, object, gvmi_keep_place(m, tier, object->device), object->device, make);
}

uint32_t gvmi_keep_take_lent_frame(gvmi_machine *m, const keep_object *object, uint32_t lender,
                                   bool *make)
{
    keep_place *place = &m->devices[lender].place;
    const uint32_t number = take_frame(m, object, place, lender, make);

    if (number == 0)
        return 0;
    gvmi_keep_frame(m, number)->lent = true;
    place->lent_bytes += object->chunk_bytes;
    return number;
}

void gvmi_keep_charge_holder(const keep_frame *frame)
{
    keep_user *user = frame->holds->client->user;

    gvmi_keep_charge(user, frame->spec.bytes);
    user->held_bytes += frame->spec.bytes;
}

void gvmi_keep_give_frame(gvmi_machine *m, uint32_t number, bool made)
{
    keep_frame *frame = gvmi_keep_frame(m, number);

    GVM_ASSERT(frame->state == KEEP_FRAME_USED);
    if (frame->lent)
        place_of(m, frame)->lent_bytes -= frame->spec.bytes;
    frame->lent = false;
    if (!made) { /* there is nothing to be dropped, and nobody was sent it */
        place_of(m, frame)->used_bytes -= frame->spec.bytes;
        forget_frame(m, frame);
    } else if (frame->holders > 0) {
        frame->state = KEEP_FRAME_HELD;
        place_of(m, frame)->held_bytes += frame->spec.bytes;
        gvmi_keep_charge_holder(frame);
        list_drop(m, frame);
    } else if (frame->tainted) {
        drop_frame(m, frame);
    } else {
        list_free(m, frame);
    }
}

void gvmi_keep_count_leaving(gvmi_machine *m, uint32_t frame, bool more)
{
    const gvmi_frame_spec *spec = &gvmi_keep_frame(m, frame)->spec;
    uint64_t *leaving_bytes = &m->devices[spec->device].leaving_bytes;

    *leaving_bytes = more ? *leaving_bytes + spec->bytes : *leaving_bytes - spec->bytes;
}

void gvmi_keep_taint(gvmi_machine *m, uint32_t number)
{
    if (number != 0)
        gvmi_keep_frame(m, number)->tainted = true;
}

void gvmi_keep_free_held(gvmi_machine *m, uint32_t number)
{
    keep_frame *frame = gvmi_keep_frame(m, number);
    keep_place *place = place_of(m, frame);

    GVM_ASSERT(frame->state == KEEP_FRAME_HELD && frame->holders == 0);
    place->held_bytes -= frame->spec.bytes;
    place->used_bytes -= frame->spec.bytes;
    if (frame->dropped)
        forget_frame(m, frame);
    else
        frame->state = KEEP_FRAME_DROPPED; /* it is in the list of those */
}

bool gvmi_keep_has_writers(gvmi_machine *m, uint32_t number)
{
    const keep_frame *frame = number != 0 ? gvmi_keep_frame(m, number) : NULL;

    return frame != NULL && (frame->writers > 0 || frame->unsafe);
}

void gvmi_keep_frame_seen(gvmi_machine *m, uint32_t number, const keep_opening *opening)
{
    keep_frame *frame = gvmi_keep_frame(m, number);
    keep_object *object = opening->object;
    const keep_domain *domain = &object->domain;

    if (frame->seen && memcmp(&frame->domain, domain, sizeof *domain) != 0)
        frame->tainted = true; /* the object's mode was changed: users of both modes have seen it */
    frame->seen = true;
    frame->domain = *domain;
    opening->client->mapped = true;
    if (!gvmi_keep_owns(m, opening->client, object)) {
        frame->foreign = object;
        object->foreign = true;
    }
}

/* Taints its own frames of that kind, so that they are dropped, and drops those that are free. */
void gvmi_keep_drop_foreign(gvmi_machine *m, keep_object *object)
{
    if (!object->foreign)
        return;
    for (uint32_t i = 0; i < object->chunk_count; i++) {
        const uint32_t frames[] = {object->chunks[i].device_frame, object->chunks[i].away_frame};

        for (unsigned f = 0; f < 2; f++)
            if (frames[f] != 0 && gvmi_keep_frame(m, frames[f])->foreign != NULL)
                gvmi_keep_taint(m, frames[f]);
    }
    while (object->first_foreign != 0) {
        keep_frame *frame = gvmi_keep_frame(m, object->first_foreign);

        unlist_free(m, frame);
        drop_frame(m, frame);
    }
}

/* ---- host frames ahead of need: the driver takes 0.3 s a GiB to make them */

void gvmi_keep_make_ahead(gvmi_machine *m)
{
    const uint64_t bytes = m->ahead_bytes;

    while (bytes > 0 && m->ahead_jobs < KEEP_AHEAD_JOBS_MAX && has_room(&m->host, bytes) &&
           m->host.free_bytes + (m->ahead_jobs + 1) * bytes <= m->config.host_ahead_bytes) {
        keep_frame *frame = new_frame(m, &m->host, m->ahead_device, bytes);

        if (frame == NULL)
            return;
        frame->state = KEEP_FRAME_MAKING;
        if (!gvmi_keep_start_job(m, GVMI_ACTION_MAKE, NULL, 0, frame->spec.frame, 0, true)) {
            m->host.used_bytes -= bytes;
            forget_frame(m, frame);
            return;
        }
        m->ahead_jobs++;
    }
}

void gvmi_keep_ahead_done(gvmi_machine *m, uint32_t number, gvm_status status)
{
    keep_frame *frame = gvmi_keep_frame(m, number);

    m->ahead_jobs--;
    frame->state = KEEP_FRAME_USED;
    gvmi_keep_give_frame(m, number, status == GVM_OK);
    if (status != GVM_OK)
        m->ahead_bytes = 0; /* the machine has no more: until the next object */
    else
        gvmi_keep_make_ahead(m);
}
