/* gvmem/device/detail/callback.h - how kernels call the host: the words that they share with the library, and the functions.
 *
 * Included by gvmem/device/callback.h, which has what a kernel uses. What is here changes with the library.
 *
 * A call with parameters takes a slot, puts its words into the slot's lines of host memory, and then posts the slot's number of uses. The
 * host's answer is a bit for each slot, which changes when a use is over. A call of a collective function adds to its count of requests; one
 * thread at a time tells the host of the count, and the host says up to which request it has served. All that wait look at copies
 * in device memory, which the poller (detail/poller.h) makes.
 *
 * The words. The library sets all of them to 0 when it makes a server. From then on:
 *
 *     word            written by                       when                                       order of the store
 *     slots           a thread that takes a slot       compare-and-swap from free, or from left and done  acquire
 *                     the same thread                  when it has read the answer, or goes on without it  release
 *     done, news      the poller                       when the mail's done has changed           release
 *     beat            the poller                       with news                                  release
 *     state           the poller                       LATE to OK when there are news; CLOSED     relaxed; release
 *                     a thread whose wait was in vain  OK to LATE                                 relaxed
 *     asked           threads that request             each request: add 2                        release
 *                     the one that tells               1 while it does                            acquire; release
 *     told            the one that tells               before the mail's asked                    release
 *     served, result  the poller, waiting for these    when the mail's served has changed         release
 *     mail.posted     the thread that has the slot     when its words are in the mail             release, system
 *     mail.asked      the one that tells               when asked has grown                       release, system
 *     mail.done       the host                         when code and reply are in the mail        release, system
 *     mail.served     the host                         when result is in the mail                 release, system
 *     mail.beat       the host                         each time that it looks                    relaxed
 *     mail.closed     the host                         once, behind the last done and served      release, system
 *
 * No word that the host writes is changed by an atomic operation of the device, nor the other way round: links without native
 * atomics have none. docs/design/callback.md has the states of a slot.
 */
#ifndef GVMEM_DEVICE_DETAIL_CALLBACK_H
#define GVMEM_DEVICE_DETAIL_CALLBACK_H

#include <gvmem/callback_view.h>
#include <gvmem/device/detail/poller.h>

#define GVM_CALLBACK_SLOTS 256u
#define GVM_CALLBACK_DONE_WORDS (GVM_CALLBACK_SLOTS / 64)
#define GVM_CALLBACK_PAGE_BYTES 16384u

/* A slot's word: the number of its uses, and below it its state. */
enum {
    GVM_CALLBACK_SLOT_FREE = 0,
    GVM_CALLBACK_SLOT_TAKEN = 1, /* by a thread that waits for the answer, or is about to post */
    GVM_CALLBACK_SLOT_LEFT = 2,  /* nobody waits for the answer: free when the use is done */
};
#define GVM_CALLBACK_SLOT_SHIFT 8
#define GVM_CALLBACK_SLOT_STATE 0xffull

/* What is posted: the number of the use in the upper half, then the number of words, whether the caller waits, the function. */
#define GVM_CALLBACK_POSTED(use, count, waits, function) \
    ((uint64_t)(uint32_t)(use) << 32 | (uint64_t)(count) << 16 | (uint64_t)(waits) << 8 | (function))
#define GVM_CALLBACK_POSTED_USE(posted) ((uint32_t)((posted) >> 32))
#define GVM_CALLBACK_POSTED_COUNT(posted) ((uint32_t)((posted) >> 16) & 0xffffu)
#define GVM_CALLBACK_POSTED_WAITS(posted) ((uint32_t)((posted) >> 8) & 1u)
#define GVM_CALLBACK_POSTED_FUNCTION(posted) ((uint32_t)(posted)&0xffu)

/* Requests that were served, and the code of the call that did. */
#define GVM_CALLBACK_SERVED_SHIFT 3
#define GVM_CALLBACK_SERVED_CODE 7u

/* Another number for each change of what is above or below: a kernel is compiled with its headers, and loaded by any program. */
#define GVM_CALLBACK_LAYOUT 1u

/* Of a collective function, in device memory. */
typedef struct gvm_callback_group {
    uint64_t asked; /* requests so far, times 2, and 1 while a thread tells the host of them */
    uint64_t told;
    uint64_t unused0[14];
    uint64_t served; /* poller's */
    uint64_t result; /* poller's: of the latest call that succeeded */
    uint64_t unused1[14];
} gvm_callback_group;

/* In device memory. */
typedef struct gvm_callback_words {
    uint64_t slots[GVM_CALLBACK_SLOTS];
    uint64_t done[GVM_CALLBACK_DONE_WORDS]; /* poller's, as the next two */
    uint64_t news;                          /* how often it found something new */
    uint64_t beat;
    uint32_t state;  /* GVM_CALLBACK_OK, LATE or CLOSED */
    uint32_t poller; /* 1: a thread reads the mail; the words called poller's are its alone */
    uint32_t page;   /* 1: a thread has the mail's page */
    uint32_t unused0;
    uint64_t unused1[8];
    gvm_callback_group groups[GVM_CALLBACK_FUNCTIONS];
} gvm_callback_words;

typedef struct gvm_callback_served {
    uint64_t served, result;
} gvm_callback_served;

typedef struct gvm_callback_line {
    uint64_t words[GVM_CALLBACK_WORDS];
} gvm_callback_line;

/* In pinned host memory: what the host writes, then what the device writes, lines for each. */
typedef struct gvm_callback_mail {
    uint64_t done[GVM_CALLBACK_DONE_WORDS]; /* a bit for each slot: the number of the last use that is over, modulo 2 */
    uint64_t beat;
    uint64_t closed;
    uint64_t page_turn; /* how often the page was written; 0: it is written now */
    uint64_t unused0[9];
    gvm_callback_served groups[GVM_CALLBACK_FUNCTIONS];
    uint64_t codes[GVM_CALLBACK_SLOTS];
    gvm_callback_line replies[GVM_CALLBACK_SLOTS];
    uint64_t page[GVM_CALLBACK_PAGE_BYTES / 8]; /* for replies that are longer; of one thread at a time */
    uint64_t posted[GVM_CALLBACK_SLOTS];
    uint64_t asked[GVM_CALLBACK_FUNCTIONS];
    gvm_callback_line requests[GVM_CALLBACK_SLOTS];
} gvm_callback_mail;

#ifdef GVM_KERNEL

GVM_DEVICE gvm_callback_words *gvm_callback_words_of(const gvm_callback_view *view)
{
    return (gvm_callback_words *)(uintptr_t)view->words;
}

GVM_DEVICE gvm_callback_mail *gvm_callback_mail_of(const gvm_callback_view *view)
{
    return (gvm_callback_mail *)(uintptr_t)view->mail;
}

/* ---- the poller: what the host has written */

/* Copies what is new to device memory: done, and what was served of one function, if that is one. What is there before the host
 * closes is read after the mail says closed. Returns whether a call has ended. */
GVM_DEVICE uint32_t gvm_callback_exchange(const gvm_callback_view *view, uint32_t function)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    const gvm_callback_mail *mail = gvm_callback_mail_of(view);
    uint64_t done[GVM_CALLBACK_DONE_WORDS], before[GVM_CALLBACK_DONE_WORDS];
    uint64_t closed = gvm_load_consume_u64_system(&mail->closed), beat, served = 0, result;
    uint32_t i, news = 0;

    if (closed != 0)
        closed = gvm_load_acquire_u64_system(&mail->closed);
    beat = gvm_load_consume_u64_system(&mail->beat);
    GVM_UNROLL
    for (i = 0; i < GVM_CALLBACK_DONE_WORDS; i++)
        done[i] = gvm_load_consume_u64_system(&mail->done[i]);
    if (function < GVM_CALLBACK_FUNCTIONS)
        served = gvm_load_consume_u64_system(&mail->groups[function].served);
    GVM_UNROLL
    for (i = 0; i < GVM_CALLBACK_DONE_WORDS; i++)
        before[i] = gvm_load_consume_u64(&w->done[i]);
    GVM_UNROLL
    for (i = 0; i < GVM_CALLBACK_DONE_WORDS; i++)
        if (done[i] != before[i]) {
            gvm_store_release_u64(&w->done[i], gvm_load_acquire_u64_system(&mail->done[i]));
            news = 1;
        }
    if (function < GVM_CALLBACK_FUNCTIONS &&
        served != gvm_load_consume_u64(&w->groups[function].served)) {
        served = gvm_load_acquire_u64_system(&mail->groups[function].served);
        result = gvm_load_consume_u64_system(&mail->groups[function].result);
        gvm_store_release_u64(&w->groups[function].result, result);
        gvm_store_release_u64(&w->groups[function].served, served);
        news = 1;
    }
    if (news || beat != gvm_load_consume_u64(&w->beat)) {
        gvm_store_release_u64(&w->beat, beat);
        gvm_store_release_u64(&w->news, gvm_load_consume_u64(&w->news) + 1);
        if (gvm_load_consume_u32(&w->state) == GVM_CALLBACK_LATE)
            gvm_atomic_cas_u32(&w->state, GVM_CALLBACK_LATE, GVM_CALLBACK_OK);
    }
    if (closed != 0)
        gvm_store_release_u32(&w->state, GVM_CALLBACK_CLOSED);
    return news;
}

/* ---- waiting */

typedef struct gvm_callback_timer {
    uint64_t since, news;
    uint32_t pauses;
} gvm_callback_timer;

/* A call begins. Where calls before it were late it looks once whether the host works again. */
GVM_DEVICE uint32_t gvm_callback_begin(const gvm_callback_view *view, gvm_callback_timer *timer)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    uint32_t state;

    if (view->layout != GVM_CALLBACK_LAYOUT)
        return GVM_CALLBACK_INVALID;
    state = gvm_load_acquire_u32(&w->state);
    if (state == GVM_CALLBACK_LATE && gvm_poller_begin(&w->poller)) {
        (void)gvm_callback_exchange(view, GVM_CALLBACK_FUNCTIONS);
        gvm_poller_end(&w->poller);
        state = gvm_load_acquire_u32(&w->state);
    }
    timer->since = gvm_clock_ns();
    timer->news = gvm_load_consume_u64(&w->news);
    timer->pauses = 1;
    return state;
}

/* Between two looks of a thread that waits. GVM_CALLBACK_OK: it goes on waiting; else it looks once more, and fails with that.
 * state: of before its last look, which is final if that is CLOSED. */
GVM_DEVICE uint32_t gvm_callback_wait(const gvm_callback_view *view, uint32_t function,
                                      gvm_callback_timer *timer, uint32_t state)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    const uint64_t now = gvm_clock_ns();
    const int late = now > timer->since && now - timer->since > view->wait_ns;
    uint32_t news;

    if (state == GVM_CALLBACK_CLOSED)
        return GVM_CALLBACK_CLOSED;
    if (gvm_poller_begin(&w->poller)) {
        news = gvm_callback_exchange(view, function);
        gvm_poller_end(&w->poller);
        if (!news)
            gvm_pause();
        timer->pauses = 1;
    } else if (!late) {
        gvm_poller_pause(&timer->pauses);
    }
    return late ? GVM_CALLBACK_LATE : GVM_CALLBACK_OK;
}

/* If the host did nothing at all while this thread waited, others need not wait as long. */
GVM_DEVICE uint32_t gvm_callback_give_up(const gvm_callback_view *view,
                                         const gvm_callback_timer *timer, uint32_t code)
{
    gvm_callback_words *w = gvm_callback_words_of(view);

    if (code == GVM_CALLBACK_LATE && gvm_load_consume_u64(&w->news) == timer->news)
        gvm_atomic_cas_u32(&w->state, GVM_CALLBACK_OK, GVM_CALLBACK_LATE);
    return code;
}

/* ---- calls with parameters: slots */

GVM_DEVICE int gvm_callback_is_done(gvm_callback_words *w, uint32_t slot, uint64_t use)
{
    return (gvm_load_acquire_u64(&w->done[slot / 64]) >> slot % 64 & 1) == (use & 1);
}

GVM_DEVICE uint64_t gvm_callback_slot_word(uint64_t use, uint32_t state)
{
    return use << GVM_CALLBACK_SLOT_SHIFT | state;
}

/* Takes the first free slot from one on that other threads begin with seldom; 0: there is none. */
GVM_DEVICE uint64_t gvm_callback_take_slot(gvm_callback_words *w, uint32_t *slot)
{
    const uint32_t first = (gvm_block_x() * 0x9e3779b1u + gvm_thread() * 0x85ebca6bu) >> 16;
    uint64_t word, use;
    uint32_t i;

    for (i = 0; i < GVM_CALLBACK_SLOTS; i++) {
        *slot = (first + i) % GVM_CALLBACK_SLOTS;
        word = gvm_load_consume_u64(&w->slots[*slot]);
        use = word >> GVM_CALLBACK_SLOT_SHIFT;
        if ((word & GVM_CALLBACK_SLOT_STATE) == GVM_CALLBACK_SLOT_TAKEN ||
            ((word & GVM_CALLBACK_SLOT_STATE) == GVM_CALLBACK_SLOT_LEFT &&
             !gvm_callback_is_done(w, *slot, use)))
            continue;
        if (gvm_atomic_cas_acquire_u64(&w->slots[*slot], word,
                                       gvm_callback_slot_word(use + 1, GVM_CALLBACK_SLOT_TAKEN)) == word)
            return use + 1;
    }
    return 0;
}

GVM_DEVICE uint32_t gvm_callback_await_slot(const gvm_callback_view *view,
                                            gvm_callback_timer *timer, uint32_t *slot, uint64_t *use)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    uint32_t state, code = GVM_CALLBACK_OK;

    for (;;) {
        state = gvm_load_acquire_u32(&w->state);
        *use = gvm_callback_take_slot(w, slot);
        if (*use != 0)
            return GVM_CALLBACK_OK;
        if (code != GVM_CALLBACK_OK)
            return gvm_callback_give_up(view, timer, code);
        code = gvm_callback_wait(view, GVM_CALLBACK_FUNCTIONS, timer, state);
    }
}

GVM_DEVICE uint32_t gvm_callback_await_done(const gvm_callback_view *view,
                                            gvm_callback_timer *timer, uint32_t slot, uint64_t use)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    uint32_t state, code = GVM_CALLBACK_OK;

    for (;;) {
        state = gvm_load_acquire_u32(&w->state); /* before done: is that final? */
        if (gvm_callback_is_done(w, slot, use))
            return GVM_CALLBACK_OK;
        if (code != GVM_CALLBACK_OK)
            return gvm_callback_give_up(view, timer, code);
        code = gvm_callback_wait(view, GVM_CALLBACK_FUNCTIONS, timer, state);
    }
}

/* Four words are loaded before the first is stored, as host memory is far and registers are few. */
GVM_DEVICE void gvm_callback_read_reply(const gvm_callback_mail *mail, uint32_t slot,
                                        uint64_t *words, uint32_t count)
{
    uint64_t reply[4];
    uint32_t first, i;

    GVM_NO_UNROLL
    for (first = 0; first < count; first += 4) {
        GVM_UNROLL
        for (i = 0; i < 4; i++)
            reply[i] = first + i < count ? mail->replies[slot].words[first + i] : 0;
        GVM_UNROLL
        for (i = 0; i < 4; i++)
            if (first + i < count)
                words[first + i] = reply[i];
    }
}

/* One thread. words is only read where it does not wait. */
GVM_DEVICE_RARE uint32_t gvm_callback_call_one(const gvm_callback_view *view, uint32_t function,
                                               uint64_t *words, uint32_t count, uint32_t waits)
{
    gvm_callback_words *w = gvm_callback_words_of(view);
    gvm_callback_mail *mail = gvm_callback_mail_of(view);
    gvm_callback_timer timer;
    uint32_t slot = 0, code, i;
    uint64_t use = 0;

    if (function >= GVM_CALLBACK_FUNCTIONS || count > GVM_CALLBACK_WORDS)
        return GVM_CALLBACK_INVALID;
    code = gvm_callback_begin(view, &timer);
    if (code == GVM_CALLBACK_OK)
        code = gvm_callback_await_slot(view, &timer, &slot, &use);
    if (code != GVM_CALLBACK_OK)
        return code;
    for (i = 0; i < count; i++)
        gvm_stream_u64(&mail->requests[slot].words[i], words[i]);
    gvm_store_release_u64_system(&mail->posted[slot], GVM_CALLBACK_POSTED(use, count, waits, function));
    if (waits)
        code = gvm_callback_await_done(view, &timer, slot, use);
    if (!waits || code != GVM_CALLBACK_OK) {
        gvm_store_release_u64(&w->slots[slot], gvm_callback_slot_word(use, GVM_CALLBACK_SLOT_LEFT));
        return code;
    }
    code = (uint32_t)mail->codes[slot];
    if (code == GVM_CALLBACK_OK)
        gvm_callback_read_reply(mail, slot, words, count);
    gvm_store_release_u64(&w->slots[slot], gvm_callback_slot_word(use, GVM_CALLBACK_SLOT_FREE));
    return code;
}

/* ---- collective calls: requests that are counted */

/* Up to which request the function was served. The poller that saw the server closed may have copied what was served of another one:
 * the mail, which does not change any more, has it. */
GVM_DEVICE uint64_t gvm_callback_served_of(const gvm_callback_view *view, uint32_t function,
                                           uint32_t code, uint64_t *result)
{
    const gvm_callback_group *group = &gvm_callback_words_of(view)->groups[function];
    const gvm_callback_served *mail = &gvm_callback_mail_of(view)->groups[function];
    uint64_t served;

    if (code == GVM_CALLBACK_CLOSED) {
        served = gvm_load_acquire_u64_system(&mail->served);
        *result = gvm_load_consume_u64_system(&mail->result);
    } else {
        served = gvm_load_acquire_u64(&group->served);
        *result = gvm_load_consume_u64(&group->result);
    }
    return served;
}

/* Tells the host how many requests there are, unless another thread is about to: that sees this one's when it stops. */
GVM_DEVICE void gvm_callback_tell(gvm_callback_group *group, uint64_t *mail_asked)
{
    uint64_t asked = gvm_load_acquire_u64(&group->asked), seen;

    for (;; asked = seen) {
        if ((asked & 1) != 0)
            return;
        seen = gvm_atomic_cas_acquire_u64(&group->asked, asked, asked | 1);
        if (seen == asked)
            break;
    }
    for (asked |= 1;; asked = gvm_load_acquire_u64(&group->asked)) {
        if (gvm_load_consume_u64(&group->told) != asked >> 1) {
            gvm_store_release_u64(&group->told, asked >> 1);
            gvm_store_release_u64_system(mail_asked, asked >> 1);
        }
        if (gvm_atomic_cas_release_u64(&group->asked, asked, asked & ~1ull) == asked)
            return;
    }
}

GVM_DEVICE_RARE uint32_t gvm_callback_join_one(const gvm_callback_view *view, uint32_t function,
                                               uint64_t *result, uint32_t waits)
{
    gvm_callback_group *group = &gvm_callback_words_of(view)->groups[function % GVM_CALLBACK_FUNCTIONS];
    gvm_callback_timer timer;
    uint64_t request, served, found;
    uint32_t state, code;

    if (function >= GVM_CALLBACK_FUNCTIONS)
        return GVM_CALLBACK_INVALID;
    code = gvm_callback_begin(view, &timer);
    if (code != GVM_CALLBACK_OK)
        return code;
    request = (gvm_atomic_add_release_u64(&group->asked, 2) >> 1) + 1;
    gvm_callback_tell(group, &gvm_callback_mail_of(view)->asked[function]);
    while (waits) {
        state = gvm_load_acquire_u32(&gvm_callback_words_of(view)->state); /* before served: is that final? */
        served = gvm_callback_served_of(view, function, code, &found);
        if (served >> GVM_CALLBACK_SERVED_SHIFT >= request) {
            code = (uint32_t)served & GVM_CALLBACK_SERVED_CODE;
            if (code == GVM_CALLBACK_OK)
                *result = found;
            return code;
        }
        if (code != GVM_CALLBACK_OK)
            return gvm_callback_give_up(view, &timer, code);
        code = gvm_callback_wait(view, function, &timer, state);
    }
    return GVM_CALLBACK_OK;
}

/* ---- the calls */

/* What the leader of a block got, to all its threads: the code, and words if that is OK. */
GVM_DEVICE_RARE uint32_t gvm_callback_tell_block(uint32_t code, uint64_t *words, uint32_t count)
{
    GVM_SHARED(uint64_t, told, GVM_CALLBACK_WORDS + 1);
    uint32_t i;

    if (gvm_thread() == 0) {
        told[GVM_CALLBACK_WORDS] = code;
        for (i = 0; i < count && code == GVM_CALLBACK_OK; i++)
            told[i] = words[i];
    }
    gvm_block_sync();
    code = (uint32_t)told[GVM_CALLBACK_WORDS];
    for (i = 0; i < count && code == GVM_CALLBACK_OK; i++)
        words[i] = told[i];
    gvm_block_sync(); /* the shared words are free for the next call */
    return code;
}

GVM_DEVICE uint32_t gvm_callback_tell_warp(uint32_t code, uint64_t *words, uint32_t count)
{
    uint32_t i;

    code = gvm_warp_get_u32(code, 0);
    for (i = 0; i < count && code == GVM_CALLBACK_OK; i++)
        words[i] = gvm_warp_get_u64(words[i], 0);
    gvm_warp_sync(); /* what the function has written is there for all lanes */
    return code;
}

GVM_DEVICE uint32_t gvm_callback_call(const gvm_callback_view *view, uint32_t function,
                                      uint64_t *words, uint32_t count)
{
    return gvm_callback_call_one(view, function, words, count, 1);
}

GVM_DEVICE uint32_t gvm_callback_call_warp(const gvm_callback_view *view, uint32_t function,
                                           uint64_t *words, uint32_t count)
{
    uint32_t code = GVM_CALLBACK_OK;

    gvm_warp_sync();
    if (gvm_lane() == 0)
        code = gvm_callback_call_one(view, function, words, count, 1);
    return gvm_callback_tell_warp(code, words, count);
}

GVM_DEVICE uint32_t gvm_callback_call_block(const gvm_callback_view *view, uint32_t function,
                                            uint64_t *words, uint32_t count)
{
    uint32_t code = GVM_CALLBACK_OK;

    gvm_block_sync();
    if (gvm_thread() == 0)
        code = gvm_callback_call_one(view, function, words, count, 1);
    return gvm_callback_tell_block(code, words, count);
}

GVM_DEVICE uint32_t gvm_callback_post(const gvm_callback_view *view, uint32_t function,
                                      const uint64_t *words, uint32_t count)
{
    return gvm_callback_call_one(view, function, (uint64_t *)(uintptr_t)words, count, 0);
}

GVM_DEVICE uint32_t gvm_callback_post_warp(const gvm_callback_view *view, uint32_t function,
                                           const uint64_t *words, uint32_t count)
{
    uint32_t code = GVM_CALLBACK_OK;

    gvm_warp_sync();
    if (gvm_lane() == 0)
        code = gvm_callback_post(view, function, words, count);
    return gvm_callback_tell_warp(code, (uint64_t *)0, 0);
}

GVM_DEVICE uint32_t gvm_callback_post_block(const gvm_callback_view *view, uint32_t function,
                                            const uint64_t *words, uint32_t count)
{
    uint32_t code = GVM_CALLBACK_OK;

    gvm_block_sync();
    if (gvm_thread() == 0)
        code = gvm_callback_post(view, function, words, count);
    return gvm_callback_tell_block(code, (uint64_t *)0, 0);
}

GVM_DEVICE uint32_t gvm_callback_join(const gvm_callback_view *view, uint32_t function, uint64_t *result)
{
    uint64_t word = 0;
    const uint32_t code = gvm_callback_join_one(view, function, &word, 1);

    if (code == GVM_CALLBACK_OK && result != (uint64_t *)0)
        *result = word;
    return code;
}

GVM_DEVICE uint32_t gvm_callback_join_warp(const gvm_callback_view *view, uint32_t function,
                                           uint64_t *result)
{
    uint32_t code = GVM_CALLBACK_OK;
    uint64_t word = 0;

    gvm_warp_sync();
    if (gvm_lane() == 0)
        code = gvm_callback_join_one(view, function, &word, 1);
    code = gvm_callback_tell_warp(code, &word, 1);
    if (code == GVM_CALLBACK_OK && result != (uint64_t *)0)
        *result = word;
    return code;
}

GVM_DEVICE uint32_t gvm_callback_join_block(const gvm_callback_view *view, uint32_t function,
                                            uint64_t *result)
{
    uint32_t code = GVM_CALLBACK_OK;
    uint64_t word = 0;

    gvm_block_sync();
    if (gvm_thread() == 0)
        code = gvm_callback_join_one(view, function, &word, 1);
    code = gvm_callback_tell_block(code, &word, 1);
    if (code == GVM_CALLBACK_OK && result != (uint64_t *)0)
        *result = word;
    return code;
}

GVM_DEVICE uint32_t gvm_callback_signal(const gvm_callback_view *view, uint32_t function)
{
    uint64_t none;

    return gvm_callback_join_one(view, function, &none, 0);
}

#endif /* GVM_KERNEL */
#endif
