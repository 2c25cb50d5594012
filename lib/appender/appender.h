/* appender/appender.h - the appender inside the library.
 *
 *   appender.c   creation, questions, end; what options mean
 *   finish.c     begin and finish, take and reset: what crosses to the device and back
 *   feed.c       committing for one appender: how much, at which end, and what to answer
 *   feeder.c     those steps for all appenders that have begun, in the library's thread
 *
 * Between begin and finish the feed belongs to the library's thread, everything else to the lock.
 * finish and destroy take the appender from the feeder, which waits for a step under way, before
 * they look at the feed.
 *
 * Chunks are counted from either end; both ends are cut alike (memory/layout.h), so that layout has
 * the bytes of so many chunks of either.
 *
 * I1  front_chunks + back_chunks <= chunk_count; those chunks are committed, and no others but written ones behind
 *     chunks that the program decommitted. True again from begin on, if the program changed the buffer before.
 * I2  the host's ready is never beyond what I1 says, and only rises while the appender has begun.
 * I3  after refused was set, ready does not change.
 */
#ifndef GVMI_APPENDER_APPENDER_H
#define GVMI_APPENDER_APPENDER_H

#include <stdbool.h>

#include <gvmem/appender.h>
#include <gvmem/device/appender.h>

#include "base/size.h"
#include "memory/buffer.h"
#include "memory/idle.h"
#include "memory/serve.h"

/* ---- feed.c */

/* What of an appender is being committed. */
typedef struct gvmi_append_feed {
    bool starting;                      /* atomic: the first chunks are not there yet */
    uint64_t front_chunks, back_chunks; /* atomic: gvm_appender_get_info() looks */
    uint64_t budget_bytes;              /* by the budget, of both */
    uint64_t step_bytes;  /* of the next commit at most, or one chunk if that is more */
    uint64_t asked, need; /* positions, the highest that the device reported */
    bool front_last;      /* the latest commit was at the front */
    bool ahead_over;   /* the launch gets only what it needs: the one before was granted nothing */
    bool ahead_failed; /* committing what is asked now has failed: tried again when more is asked */
    bool refused;      /* reported; reason says why */
    gvm_status reason;
    int64_t begun_us;
    uint64_t commits, commit_us, first_us;  /* since begin */
    uint64_t commits_ever, committed_bytes; /* atomic */
} gvmi_append_feed;

struct gvm_appender {
    gvmi_idle idle; /* first; of what is committed beyond what is written, while it has not begun */
    gvmi_served served; /* while it has begun */
    gvmi_mutex lock;
    gvm_device *device; /* referenced */
    gvm_buffer *buffer;
    gvmi_buffer_spec spec;     /* of buffer, and of those that follow it */
    gvmi_words words;          /* on the device: gvm_append_words */
    gvm_append_mail *mail;     /* pinned */
    CUdeviceptr mail_address;  /* the same for kernels */
    gvm_append_words *staging; /* pinned: the words on their way to the device and back */
    uint64_t address, row_bytes, reserve_bytes, chunk_bytes, chunk_count;
    gvmi_layout layout; /* of each of its buffers */
    uint64_t budget_bytes;
    uint64_t step_bytes, ahead_bytes, wait_ns;
    uint32_t unit_shift;
    gvm_append limits;                    /* what the latest begin gave to kernels */
    uint64_t position;                    /* what is written, as of the last finish */
    uint64_t front_history, back_history; /* bytes that the last launch wrote there */
    bool begun, torn, rows_only;
    uint64_t begins; /* so far: a finish ends the one that it has found, whatever other threads do while it waits */
    bool dirty; /* what lies beyond the position may have been written: reset, not complete, or the program has
                 * had the buffer */
    bool stuck; /* the last launch was granted nothing: nothing is committed ahead of the next */
    gvmi_append_feed feed;
};

/* Readies the feed for a begin: answers in the mailbox say what is committed. */
void gvmi_append_feed_begin(gvm_appender *appender);

/* Counts what the program has left in the buffer, which is its own while the appender has not begun, and gives back what
 * lies beyond a hole and is not written. GVM_E_SEALED */
gvm_status gvmi_append_feed_recount(gvm_appender *appender);

/* Does a chunk of the buffer hold something that is written? */
bool gvmi_append_is_written(const gvm_appender *appender, uint64_t index);

/* Gives back what is committed beyond so many chunks, or beyond what is written: unmapped here, given to
 * the driver by the library's thread. What cannot be given back stays. Not while the appender has
 * begun. may_wait: for other threads' use of the buffer; else what they use stays. */
void gvmi_append_feed_give_back(gvm_appender *appender, uint64_t front_chunks, uint64_t back_chunks,
                                bool may_wait);
void gvmi_append_feed_trim(gvm_appender *appender, bool may_wait);

/* The first chunks, or one commit at most. False: there was nothing to do, or another thread has the
 * buffer's lock at the moment: the others are not to wait for it, and this one is tried again. */
bool gvmi_append_feed_step(gvm_appender *appender);

/* Bytes of the first so many chunks of either end. */
static inline uint64_t gvmi_append_end_bytes(const gvm_appender *appender, uint64_t chunks)
{
    return gvmi_layout_start(&appender->layout, chunks);
}

/* Bytes that are committed, of both ends. */
static inline uint64_t gvmi_append_committed_bytes(const gvm_appender *appender)
{
    return gvmi_append_end_bytes(appender, appender->feed.front_chunks) +
           gvmi_append_end_bytes(appender, appender->feed.back_chunks);
}

/* Bytes that the budget allows, in whole chunks of chunk_bytes. */
static inline uint64_t gvmi_append_budget_bytes(const gvm_appender *appender)
{
    return gvmi_min(gvmi_round_down(appender->budget_bytes, appender->chunk_bytes),
                    appender->reserve_bytes);
}

/* How much of an end is expected to be used: what the launch before wrote there, but no less than its first
 * chunk and no more than chunk_bytes. */
uint64_t gvmi_append_expected(const gvm_appender *appender, bool front);

/* The position up to which memory is committed, within the limits. */
uint64_t gvmi_append_ready(const gvm_appender *appender);

/* ---- feeder.c */

/* Starts the library's thread unless it runs. GVM_E_SYSTEM, GVM_E_LIMIT, GVM_E_FOREIGN (in a child) */
gvm_status gvmi_append_feeder_start(void);

/* From now on the thread serves the appender, and its first chunks are there, or could not be
 * committed; it no longer does, and has left it. */
void gvmi_append_feeder_join(gvm_appender *appender);
void gvmi_append_feeder_leave(gvm_appender *appender);

/* ---- appender.c */

/* Checks a handle from the program, counts the caller in, and locks; drop undoes both. */
gvm_status gvmi_appender_hold(const gvm_appender *handle, gvm_appender **out);
void gvmi_appender_drop(gvm_appender *appender);

/* Makes the buffer that the spec says; the appender holds nothing of it yet. */
gvm_status gvmi_appender_new_buffer(const gvm_appender *appender, gvm_buffer **out, uint64_t *address);

/* Holds I1 and I2 against the buffer. Not while the appender has begun. */
bool gvmi_appender_check(gvm_appender *appender);

#endif
