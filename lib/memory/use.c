/* Uses: which chunks of a buffer calls have without its lock; see buffer.h. */
#include "base/assert.h"
#include "memory/buffer.h"

static bool uses_overlap(const gvmi_use *a, const gvmi_use *b)
{
    return a->first < b->end && b->first < a->end;
}

/* Is a use in the list in the way of one that is not, or that is behind it? */
static bool is_blocked_locked(const gvmi_use *use)
{
    const gvmi_use *other;

    TAILQ_FOREACH(other, &use->buffer->uses, entry)
    {
        if (other == use)
            return false;
        if ((use->exclusive || other->exclusive) && uses_overlap(use, other))
            return true;
    }
    return false;
}

static void wait_locked(gvm_buffer *buffer)
{
    pthread_cond_wait(&buffer->use_ended, &buffer->lock.mutex);
}

void gvmi_use_begin_shared(gvmi_use *a, gvmi_use *b)
{
    for (;;) {
        gvmi_use *blocked;

        gvmi_lock_pair(&a->buffer->lock, &b->buffer->lock);
        blocked = is_blocked_locked(a) ? a : is_blocked_locked(b) ? b : NULL;
        if (blocked == NULL)
            break;
        /* Waiting with the other lock held would keep uses there from ending. */
        gvmi_unlock_pair(&a->buffer->lock, &b->buffer->lock);
        gvmi_lock(&blocked->buffer->lock);
        while (is_blocked_locked(blocked))
            wait_locked(blocked->buffer);
        gvmi_unlock(&blocked->buffer->lock);
    }
    TAILQ_INSERT_TAIL(&a->buffer->uses, a, entry);
    if (a != b)
        TAILQ_INSERT_TAIL(&b->buffer->uses, b, entry);
}

void gvmi_use_begin_exclusive(gvm_buffer *buffer, uint64_t first, uint64_t end, gvmi_use *use)
{
    *use = (gvmi_use){.buffer = buffer, .first = first, .end = end, .exclusive = true};
    gvmi_lock(&buffer->lock);
    TAILQ_INSERT_TAIL(&buffer->uses, use, entry);
    while (is_blocked_locked(use))
        wait_locked(buffer);
}

bool gvmi_use_try_exclusive(gvm_buffer *buffer, uint64_t first, uint64_t end, gvmi_use *use)
{
    *use = (gvmi_use){.buffer = buffer, .first = first, .end = end, .exclusive = true};
    if (!gvmi_try_lock(&buffer->lock))
        return false;
    if (is_blocked_locked(use)) {
        gvmi_unlock(&buffer->lock);
        return false;
    }
    TAILQ_INSERT_TAIL(&buffer->uses, use, entry);
    return true;
}

void gvmi_use_end_locked(gvmi_use *use)
{
    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_BUFFER));
    TAILQ_REMOVE(&use->buffer->uses, use, entry);
    pthread_cond_broadcast(&use->buffer->use_ended);
}

void gvmi_use_end(gvmi_use *use)
{
    gvm_buffer *buffer = use->buffer;

    gvmi_lock(&buffer->lock);
    gvmi_use_end_locked(use);
    gvmi_unlock(&buffer->lock);
}
