/* Giving chunks back: an object becomes smaller, from its end on.
 *
 * Nobody may have a lease, as it says how far a program may go: so the object is FROZEN, as for a move. Its
 * size falls at once, and every opening is sent a MAP with it; the chunks beyond it count as on their way
 * (KEEP_OP_CUT) until all openings have answered. Who opens the object meanwhile is not sent them.
 * After the last chunk the freeze ends, and before that their frames are given back. A client that
 * was cut off holds the frames that it has not said to have unmapped, as after a move (fence.c). */
#include <stdlib.h>

#include "base/assert.h"
#include "keeper/machine/room.h"

void gvmi_keep_cut_chunks(gvmi_machine *m, keep_object *object, uint32_t count)
{
    GVM_ASSERT(object->lease_state == KEEP_FROZEN && count < object->chunk_count);
    for (uint32_t i = count; i < object->chunk_count; i++) {
        keep_chunk *chunk = &object->chunks[i];

        GVM_ASSERT(chunk->op == KEEP_OP_NONE);
        chunk->op = KEEP_OP_CUT;
        gvmi_keep_send_chunk(m, object, i);
        object->moving++;
        if (chunk->device_frame != 0)
            gvmi_keep_count_leaving(m, chunk->device_frame, true);
        if (chunk->lent)
            gvmi_keep_count_leaving(m, chunk->away_frame, true);
    }
    object->bytes = count * object->chunk_bytes;
    object->generation++;
    object->bare_send = true; /* to those that follow none of these chunks */
    gvmi_keep_mark(m, object);
}

static void free_chunk(gvmi_machine *m, keep_object *object, keep_chunk *chunk)
{
    const uint32_t frames[] = {chunk->device_frame, chunk->away_frame};

    GVM_ASSERT(chunk->op == KEEP_OP_NONE && chunk->waits == 0 && chunk->twin_frame == 0);
    object->device_chunks -= chunk->where == KEEP_ON_DEVICE;
    if (chunk->device_frame != 0)
        gvmi_keep_count_leaving(m, chunk->device_frame, false);
    if (chunk->lent)
        gvmi_keep_count_leaving(m, chunk->away_frame, false);
    gvmi_keep_set_chunk(m, object, chunk, KEEP_NOWHERE, false);
    for (unsigned f = 0; f < 2; f++)
        if (frames[f] != 0)
            gvmi_keep_give_frame(m, frames[f], true);
    *chunk = (keep_chunk){0};
}

/* Nobody is charged for them. */
void gvmi_keep_drop_places(keep_object *object)
{
    keep_chunk *chunks;

    if (object->chunk_count == 0) {
        free(object->chunks);
        object->chunks = NULL;
        object->chunk_places = 0;
        return;
    }
    chunks = realloc(object->chunks, object->chunk_count * sizeof *chunks);
    if (chunks == NULL)
        return;
    object->chunks = chunks;
    object->chunk_places = object->chunk_count;
}

void gvmi_keep_end_cut(gvmi_machine *m, keep_object *object)
{
    const uint32_t kept = gvmi_keep_kept_chunks(object);
    const uint64_t bytes = (object->chunk_count - kept) * object->chunk_bytes;
    keep_client *creator = gvmi_keep_client(m, object->creator);
    keep_client *shrinker = gvmi_keep_client_of(m, object->shrinker);

    if (bytes == 0)
        return;
    for (uint32_t i = kept; i < object->chunk_count; i++)
        free_chunk(m, object, &object->chunks[i]);
    object->chunk_count = kept;
    object->clean_end = object->clean_end < kept ? object->clean_end : kept;
    gvmi_keep_drop_places(object);
    gvmi_keep_discharge(m, object->user, bytes);
    if (creator != NULL)
        creator->committed_bytes -= bytes;
    gvmi_policy_resize(m->devices[object->device].policy, &object->item, kept * object->chunk_bytes);
    object->shrinker = 0;
    if (shrinker != NULL)
        gvmi_keep_reply_done(m, shrinker, object->shrink_request, 0);
}
