/* gvmem/device/detail/appender.h - how kernels append: the words that they share with the library, and the functions.
 *
 * Included by gvmem/device/appender.h, which has what a kernel uses. What is here changes with the library.
 *
 * A claim adds to the cursor. Where it lies within ready it is granted; else the thread waits until ready has risen, or
 * nothing more comes. One thread at a time is the poller, which alone reads and writes the host's words: the mail.
 * docs/design/appender.md has the states and the invariants.
 *
 * The words. The library sets all of them in gvm_appender_begin(), before it returns, and reads them in
 * gvm_appender_finish(), after the stream has passed. Between:
 *
 *     word          written by                          when                                    order of the store
 *     cursor        every thread that claims            each claim: add, or compare-and-swap    relaxed
 *     published     threads that have written           before their kernel ends: add           relaxed; its end orders
 *     end           threads whose claim failed          at the failure: min                     relaxed
 *     asked         threads near the end of ready       compare-and-swap, rising                relaxed
 *     need          the first thread that waits         while it waits: max                     relaxed
 *     poller        who becomes the poller, and is it   before and behind an exchange           acquire; release
 *     reported_asked  the poller                        before the mail's asked                 release
 *     reported_need   the poller                        before the mail's need                  release
 *     ready         the poller                          when the mail's ready has risen         release
 *     acked         the poller                          behind ready                            release
 *     state         the poller                          behind ready: that is final then        release
 *     mail.need     the poller                          when need has changed                   release, system
 *     mail.asked    the poller                          behind mail.need                        release, system
 *     mail.ready    the library's thread                when memory has been committed          release, system
 *     mail.acked    the library's thread                behind the mail.ready that belongs      release, system
 *     mail.refused  the library's thread                once, behind the last mail.ready        release, system
 *
 * Reads: a claim reads ready, end, asked and acked by consume: what it writes depends on them, and an acquire would throw the
 * SM's cache away. A thread that waits reads state and then ready by acquire. The poller reads mail.refused and mail.acked
 * before mail.ready, by acquire where they have changed. The library reads the mail by acquire. No word that the host
 * writes is changed by an atomic operation of the device: links without native atomics have none.
 */
#ifndef GVMEM_DEVICE_DETAIL_APPENDER_H
#define GVMEM_DEVICE_DETAIL_APPENDER_H

#include <gvmem/device/appender.h>
#include <gvmem/device/detail/poller.h>

/* ---- positions and limits
 *
 * A position is rows in the upper half of a word and units of the back in the lower. Fields never
 * overflow: rows_max and units_max are at most GVM_APPEND_FIELD_MAX, and what all threads of a
 * device can add past that before they see the end fits in the rest: 2^20 threads with 2^10 each, or
 * 2^15 warps, or 2^14 blocks. More is claimed by compare-and-swap. */
#define GVM_APPEND_FIELD_MAX 0xc0000000u
#define GVM_APPEND_ADD_THREAD (1u << 10)
#define GVM_APPEND_ADD_WARP (1u << 15)
#define GVM_APPEND_ADD_BLOCK (1u << 16)
#define GVM_APPEND_ALIGN_MAX 4096u
#define GVM_APPEND_NO_END (~(uint64_t)0)

enum {
    GVM_APPEND_STATE_OPEN = 0,
    GVM_APPEND_STATE_FULL = 1, /* ready will not rise any more */
    GVM_APPEND_STATE_LATE = 2, /* the same */
};

/* In device memory, a line of 128 bytes for each kind of traffic. */
typedef struct gvm_append_words {
    uint64_t cursor; /* what is claimed; every claim adds */
    uint64_t unused0[15];
    /* Read by every claim, written a few times per commit. The first four, in this order, by four
     * lanes of a warp: gvm_append_look_warp(). */
    uint64_t ready;  /* what is committed; poller's */
    uint64_t end;    /* where the first claim failed */
    uint64_t asked;  /* how far memory has been asked for */
    uint64_t acked;  /* which of that the library has dealt with; poller's */
    uint32_t state;  /* poller's */
    uint32_t poller; /* 1: a thread speaks with the host; the words called poller's are its alone */
    uint64_t reported_asked, reported_need; /* what the host was told last; poller's */
    uint64_t unused1[9];
    uint64_t need; /* the position that the first of the threads that wait waits for */
    uint64_t unused2[15];
    uint64_t published;
    uint64_t unused3[15];
} gvm_append_words;

/* In pinned host memory, a line for each writer. */
typedef struct gvm_append_mail {
    uint64_t asked, need; /* the poller's */
    uint64_t unused0[14];
    uint64_t ready, acked; /* the library's */
    uint32_t refused;      /* 1: ready is final */
    uint32_t unused1;
    uint64_t unused2[13];
} gvm_append_mail;

#ifdef GVM_KERNEL

/* ---- positions */

GVM_DEVICE uint64_t gvm_append_position(uint64_t rows, uint64_t units)
{
    return rows << 32 | units;
}
GVM_DEVICE uint64_t gvm_append_rows_of(uint64_t position)
{
    return position >> 32;
}
GVM_DEVICE uint64_t gvm_append_units_of(uint64_t position)
{
    return position & 0xffffffffu;
}

/* Is a within b, in both fields? */
GVM_DEVICE int gvm_append_within(uint64_t a, uint64_t b)
{
    return gvm_append_rows_of(a) <= gvm_append_rows_of(b) &&
           gvm_append_units_of(a) <= gvm_append_units_of(b);
}

/* Can so much ever be had? rows_max * row_bytes is within the reservation, so nothing overflows. */
GVM_DEVICE int gvm_append_possible(const gvm_append *a, uint64_t rows, uint64_t units)
{
    return rows <= a->rows_max && units <= a->units_max &&
           rows * a->row_bytes + (units << a->unit_shift) <= a->capacity_bytes;
}

/* Could one claim be had in an empty buffer? The budget is of whole chunks, and none serves
 * both ends. */
GVM_DEVICE int gvm_append_askable(const gvm_append *a, uint64_t rows, uint64_t units)
{
    uint64_t front, back;

    if (!gvm_append_possible(a, rows, units))
        return 0;
    if (a->chunk_shift == 0 || rows == 0 || units == 0)
        return 1;
    front = (rows * a->row_bytes + ((uint64_t)1 << a->chunk_shift) - 1) >> a->chunk_shift;
    back = ((units << a->unit_shift) + ((uint64_t)1 << a->chunk_shift) - 1) >> a->chunk_shift;
    return front + back <= a->capacity_bytes >> a->chunk_shift;
}

/* How far one end should be committed when n of it are claimed. */
GVM_DEVICE uint64_t gvm_append_ahead(uint64_t n, uint64_t least, uint64_t most, uint64_t limit)
{
    uint64_t ahead = n < least ? least : n < most ? n : most;

    if (n == 0)
        return 0;
    return ahead < limit - n ? n + ahead : limit;
}

/* The same and a quarter of what is ahead more, so that not every claim asks. */
GVM_DEVICE uint64_t gvm_append_asked(uint64_t n, uint64_t least, uint64_t most, uint64_t limit)
{
    uint64_t ahead = gvm_append_ahead(n, least, most, limit);

    ahead += (ahead - n) / 4;
    return ahead < limit ? ahead : limit;
}

/* ---- the poller: the only thread that speaks with the host */

/* Tells the host what is wanted, and the device what the host has answered. After the state is no
 * longer OPEN, ready is what it is: late stops waiting for the host for all. */
GVM_DEVICE void gvm_append_exchange(const gvm_append *a, gvm_append_words *w, int late)
{
    gvm_append_mail *mail = (gvm_append_mail *)(uintptr_t)a->mail;
    uint64_t asked = gvm_load_consume_u64(&w->asked), need = gvm_load_consume_u64(&w->need);
    uint64_t before = gvm_load_consume_u64(&w->ready), ready, acked;
    uint32_t refused;

    if (gvm_load_consume_u32(&w->state) != GVM_APPEND_STATE_OPEN)
        return;
    if (gvm_load_consume_u64(&w->reported_need) != need) {
        gvm_store_release_u64(&w->reported_need, need);
        gvm_store_release_u64_system(&mail->need, need);
    }
    if (gvm_load_consume_u64(&w->reported_asked) != asked) {
        gvm_store_release_u64(&w->reported_asked, asked);
        gvm_store_release_u64_system(&mail->asked, asked);
    }
    /* Each of these was written after the ready that belongs to it: that is read after them. */
    refused = gvm_load_consume_u32_system(&mail->refused);
    if (refused != 0)
        refused = gvm_load_acquire_u32_system(&mail->refused);
    acked = gvm_load_consume_u64_system(&mail->acked);
    if (acked != gvm_load_consume_u64(&w->acked))
        acked = gvm_load_acquire_u64_system(&mail->acked);
    ready = gvm_load_consume_u64_system(&mail->ready);
    if (ready != before && gvm_append_within(before, ready)) { /* whatever it reads, it never falls */
        gvm_store_release_u64(&w->ready, ready);
        late = 0; /* an answer after all, perhaps the one that was waited for */
    }
    if (gvm_load_consume_u64(&w->acked) != acked)
        gvm_store_release_u64(&w->acked, acked);
    if (refused != 0)
        gvm_store_release_u32(&w->state, GVM_APPEND_STATE_FULL);
    else if (late)
        gvm_store_release_u32(&w->state, GVM_APPEND_STATE_LATE);
}

/* Raises asked in either field. The thread that does tells the host, unless another is about to: then what
 * was asked is told with the next exchange, which later claims bring about as long as asked is
 * not acked. */
GVM_DEVICE void gvm_append_ask(const gvm_append *a, gvm_append_words *w, uint64_t rows, uint64_t units)
{
    uint64_t asked = gvm_load_consume_u64(&w->asked), target, seen;

    for (;;) {
        target = gvm_append_position(
            rows > gvm_append_rows_of(asked) ? rows : gvm_append_rows_of(asked),
            units > gvm_append_units_of(asked) ? units : gvm_append_units_of(asked));
        if (target == asked)
            return;
        seen = gvm_atomic_cas_u64(&w->asked, asked, target);
        if (seen == asked)
            break;
        asked = seen;
    }
    if (gvm_poller_begin(&w->poller)) {
        gvm_append_exchange(a, w, 0);
        gvm_poller_end(&w->poller);
    }
}

/* What a claim reads of the words. */
typedef struct gvm_append_view {
    uint64_t ready, end, asked, acked;
} gvm_append_view;

GVM_DEVICE gvm_append_view gvm_append_look(const gvm_append *a)
{
    gvm_append_words *w = (gvm_append_words *)(uintptr_t)a->words;
    gvm_append_view view;

    view.ready = gvm_load_consume_u64(&w->ready);
    view.end = gvm_load_consume_u64(&w->end);
    view.asked = gvm_load_consume_u64(&w->asked);
    view.acked = gvm_load_consume_u64(&w->acked);
    return view;
}

/* The same by all threads of a warp, a word each: the cache where the words are is asked once instead
 * of four times, and every claim of the device asks it. */
GVM_DEVICE gvm_append_view gvm_append_look_warp(const gvm_append *a)
{
    gvm_append_words *w = (gvm_append_words *)(uintptr_t)a->words;
    gvm_append_view view;
    uint64_t word;

    if (gvm_warp_size() < 4)
        return gvm_append_look(a);
    gvm_warp_sync(); /* what one of them has written before, as the end, another reads */
    word = gvm_load_consume_u64(&w->ready + gvm_lane() % 4);
    view.ready = gvm_warp_get_u64(word, 0);
    view.end = gvm_warp_get_u64(word, 1);
    view.asked = gvm_warp_get_u64(word, 2);
    view.acked = gvm_warp_get_u64(word, 3);
    return view;
}

/* One in 16 of the positions, whatever the steps between them: the halves are mixed, and mixed again. */
GVM_DEVICE int gvm_append_is_turn(uint64_t position)
{
    uint32_t mixed = (uint32_t)(position >> 32) * 0x9e3779b1u ^ (uint32_t)position * 0x85ebca6bu;

    mixed ^= mixed >> 15;
    mixed *= 0x2c1b3c6du;
    mixed ^= mixed >> 13;
    mixed *= 0x297a2d39u;
    return mixed >> 28 == 0;
}

/* Looks after a claim that ends at next: asks ahead where that is due, and reads the host's
 * answer where one is awaited. Nobody waits yet, so one in 16 claims is enough: that all of them
 * look whether they may poll, and try to, would make each of them longer. */
GVM_DEVICE void gvm_append_look_ahead(const gvm_append *a, gvm_append_words *w, uint64_t next,
                                      const gvm_append_view *view)
{
    const uint64_t ready = view->ready, asked = view->asked;
    uint64_t rows = gvm_append_ahead(gvm_append_rows_of(next), a->ahead_rows_min, a->ahead_rows_max,
                                     a->rows_max);
    uint64_t units = gvm_append_ahead(gvm_append_units_of(next), a->ahead_units_min,
                                      a->ahead_units_max, a->units_max);
    int more_rows = rows > gvm_append_rows_of(ready) && rows > gvm_append_rows_of(asked);
    int more_units = units > gvm_append_units_of(ready) && units > gvm_append_units_of(asked);

    if (more_rows || more_units) {
        rows = gvm_append_asked(gvm_append_rows_of(next), a->ahead_rows_min, a->ahead_rows_max,
                                a->rows_max);
        units = gvm_append_asked(gvm_append_units_of(next), a->ahead_units_min, a->ahead_units_max,
                                 a->units_max);
        gvm_append_ask(a, w, more_rows ? rows : 0, more_units ? units : 0);
    } else if (asked != view->acked && gvm_append_is_turn(next) &&
               gvm_load_consume_u32(&w->state) == GVM_APPEND_STATE_OPEN &&
               gvm_poller_begin(&w->poller)) {
        gvm_append_exchange(a, w, 0);
        gvm_poller_end(&w->poller);
    }
}

/* ---- claiming */

/* A claim that began at old has failed: so will every later one. */
GVM_DEVICE uint32_t gvm_append_fail(gvm_append_words *w, uint64_t old)
{
    if (gvm_load_consume_u64(&w->end) > old)
        gvm_atomic_min_u64(&w->end, old);
    return gvm_load_acquire_u32(&w->state) == GVM_APPEND_STATE_LATE ? GVM_APPEND_LATE : GVM_APPEND_FULL;
}

/* Waits until memory reaches as far as next. Most threads watch the device's words, one at a time
 * the host's. Only the first in the order of claims, whose beginning is ready, tells its need:
 * were it the sum of all that wait, what the last of them needs at one end could use up the budget
 * that the first needs at the other, and nobody would get anything. What the others want is
 * asked. */
GVM_DEVICE_RARE uint32_t gvm_append_wait(const gvm_append *a, gvm_append_words *w, uint64_t old,
                                         uint64_t next)
{
    uint64_t since = gvm_clock_ns(), seen = 0, ready, now;
    uint32_t state, pauses = 1;

    for (;;) {
        state = gvm_load_acquire_u32(&w->state); /* before ready: is that final? */
        ready = gvm_load_acquire_u64(&w->ready);
        if (gvm_append_within(next, ready))
            return GVM_APPEND_OK;
        if (state != GVM_APPEND_STATE_OPEN)
            return gvm_append_fail(w, old);
        if (gvm_append_within(old, ready) && gvm_load_consume_u64(&w->need) < next)
            gvm_atomic_max_u64(&w->need, next);
        now = gvm_clock_ns();
        if (ready != seen) { /* the library is at work */
            seen = ready;
            since = now;
        }
        if (gvm_poller_begin(&w->poller)) {
            /* Late only if no other poller has seen more memory meanwhile. */
            gvm_append_exchange(a, w,
                                now > since && now - since > a->wait_ns &&
                                    gvm_load_consume_u64(&w->ready) == ready);
            gvm_poller_end(&w->poller);
            pauses = 1;
        } else {
            gvm_poller_pause(&pauses);
        }
    }
}

/* Moves the cursor by so much if that fits, or past every limit if it does not. */
GVM_DEVICE uint32_t gvm_append_swap(const gvm_append *a, gvm_append_words *w, uint64_t rows,
                                    uint64_t units, uint64_t *old)
{
    uint64_t from = gvm_load_consume_u64(&w->cursor), to, seen;
    int fits;

    for (;;) {
        *old = from;
        if (!gvm_append_possible(a, gvm_append_rows_of(from), gvm_append_units_of(from)))
            return GVM_APPEND_FULL;
        fits = gvm_append_possible(a, gvm_append_rows_of(from) + rows,
                                   gvm_append_units_of(from) + units);
        to = fits ? from + gvm_append_position(rows, units)
                  : gvm_append_position((uint64_t)a->rows_max + 1, (uint64_t)a->units_max + 1);
        seen = gvm_atomic_cas_u64(&w->cursor, from, to);
        if (seen == from)
            return fits ? GVM_APPEND_OK : GVM_APPEND_FULL;
        from = seen;
    }
}

/* One claim, of one thread for itself or for others. */
GVM_DEVICE uint32_t gvm_append_obtain(const gvm_append *a, const gvm_append_view *view,
                                      uint64_t rows, uint64_t units, uint32_t add_max, uint64_t *old)
{
    gvm_append_words *w = (gvm_append_words *)(uintptr_t)a->words;
    uint64_t next;

    *old = 0;
    if (!gvm_append_askable(a, rows, units))
        return GVM_APPEND_INVALID;
    if (rows == 0 && units == 0)
        return GVM_APPEND_OK;
    if (view->end != GVM_APPEND_NO_END)
        return gvm_append_fail(w, GVM_APPEND_NO_END);
    if (rows <= add_max && units <= add_max)
        *old = gvm_atomic_add_u64(&w->cursor, gvm_append_position(rows, units));
    else if (gvm_append_swap(a, w, rows, units, old) != GVM_APPEND_OK)
        return gvm_append_fail(w, *old);
    next = *old + gvm_append_position(rows, units);
    if (!gvm_append_possible(a, gvm_append_rows_of(next), gvm_append_units_of(next)))
        return gvm_append_fail(w, *old);
    gvm_append_look_ahead(a, w, next, view);
    return gvm_append_within(next, view->ready) ? GVM_APPEND_OK : gvm_append_wait(a, w, *old, next);
}

/* ---- from positions to addresses */

/* What a thread wants, in numbers whose sum over a block cannot overflow. More than that can never
 * be had anyway. */
#define GVM_APPEND_WANT_MAX (1ull << 50)

GVM_DEVICE uint64_t gvm_append_want(uint64_t n)
{
    return n < GVM_APPEND_WANT_MAX ? n : GVM_APPEND_WANT_MAX;
}

GVM_DEVICE int gvm_append_align_good(uint32_t align)
{
    return align <= GVM_APPEND_ALIGN_MAX && (align & (align - 1)) == 0;
}

GVM_DEVICE uint64_t gvm_append_round_up(uint64_t n, uint64_t align)
{
    return align > 1 ? (n + align - 1) & ~(align - 1) : n;
}

/* Units that hold so many bytes wherever in them the first aligned byte lies. */
GVM_DEVICE uint64_t gvm_append_units_for(const gvm_append *a, uint64_t bytes, uint64_t align)
{
    uint64_t unit = (uint64_t)1 << a->unit_shift;

    if (bytes == 0)
        return 0;
    return (bytes + (align > unit ? align - unit : 0) + unit - 1) >> a->unit_shift;
}

/* The place of one thread: so many rows and bytes behind the start of its group's claim. */
GVM_DEVICE void gvm_append_set_place(const gvm_append *a, uint64_t old, uint64_t units,
                                     uint64_t align, uint64_t rows_before, uint64_t bytes_before,
                                     gvm_append_place *place)
{
    uint64_t low = a->reserve_bytes - ((gvm_append_units_of(old) + units) << a->unit_shift);

    place->row = gvm_append_rows_of(old) + rows_before;
    place->rows = (unsigned char *)(uintptr_t)(a->address + place->row * a->row_bytes);
    place->bytes_offset = gvm_append_round_up(low, align) + bytes_before;
    place->bytes = (unsigned char *)(uintptr_t)(a->address + place->bytes_offset);
}

/* ---- the calls */

GVM_DEVICE uint32_t gvm_append_claim_as(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                        uint32_t align, uint32_t add_max, gvm_append_place *place)
{
    const gvm_append_view view = gvm_append_look(a);
    uint64_t old, units = gvm_append_units_for(a, gvm_append_want(bytes), align);
    uint32_t answer;

    if (!gvm_append_align_good(align))
        return GVM_APPEND_INVALID;
    answer = gvm_append_obtain(a, &view, rows, units, add_max, &old);
    if (answer == GVM_APPEND_OK) {
        gvm_append_set_place(a, old, units, align, 0, 0, place);
        place->amount = gvm_append_position(rows, units);
    }
    return answer;
}

GVM_DEVICE uint32_t gvm_append_claim(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                     uint32_t align, gvm_append_place *place)
{
    return gvm_append_claim_as(a, rows, bytes, align, GVM_APPEND_ADD_THREAD, place);
}

GVM_DEVICE uint32_t gvm_append_claim_warp(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                          uint32_t align, gvm_append_place *place)
{
    const gvm_append_view view = gvm_append_look_warp(a);
    uint64_t all_rows, all_bytes, old = 0, answer = 0;
    uint64_t rows_before = gvm_warp_before_u64(gvm_append_want(rows), &all_rows);
    uint64_t bytes_before = gvm_warp_before_u64(gvm_append_round_up(gvm_append_want(bytes), align),
                                                &all_bytes);
    uint64_t units = gvm_append_units_for(a, all_bytes, align);

    if (!gvm_append_align_good(align))
        return GVM_APPEND_INVALID;
    if (gvm_lane() == 0)
        answer = gvm_append_obtain(a, &view, all_rows, units, GVM_APPEND_ADD_WARP, &old);
    old = gvm_warp_get_u64(old, 0);
    answer = gvm_warp_get_u64(answer, 0);
    if (answer == GVM_APPEND_OK) {
        gvm_append_set_place(a, old, units, align, rows_before, bytes_before, place);
        place->amount = gvm_lane() == 0 ? gvm_append_position(all_rows, units) : 0;
    }
    return (uint32_t)answer;
}

GVM_DEVICE uint32_t gvm_append_claim_whole_warp(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                                uint32_t align, gvm_append_place *place)
{
    const gvm_append_view view = gvm_append_look_warp(a);
    uint64_t old = 0, units = gvm_append_units_for(a, gvm_append_want(bytes), align);
    uint32_t answer = GVM_APPEND_INVALID;

    if (!gvm_append_align_good(align))
        return GVM_APPEND_INVALID;
    if (gvm_lane() == 0)
        answer = gvm_append_obtain(a, &view, rows, units, GVM_APPEND_ADD_WARP, &old);
    old = gvm_warp_get_u64(old, 0);
    answer = gvm_warp_get_u32(answer, 0);
    if (answer == GVM_APPEND_OK) {
        gvm_append_set_place(a, old, units, align, 0, 0, place);
        place->amount = gvm_lane() == 0 ? gvm_append_position(rows, units) : 0;
    }
    return answer;
}

GVM_DEVICE uint32_t gvm_append_claim_block(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                           uint32_t align, gvm_append_place *place)
{
    GVM_SHARED(uint64_t, warp_rows, 32);
    GVM_SHARED(uint64_t, warp_bytes, 32);
    GVM_SHARED(uint64_t, shared, 4); /* answer, old, units, rows of all */
    uint64_t all_rows, all_bytes, n;
    uint64_t rows_before = gvm_warp_before_u64(gvm_append_want(rows), &all_rows);
    uint64_t bytes_before = gvm_warp_before_u64(gvm_append_round_up(gvm_append_want(bytes), align),
                                                &all_bytes);
    uint32_t i, answer;

    if (!gvm_append_align_good(align))
        return GVM_APPEND_INVALID;
    if (gvm_lane() == 0) {
        warp_rows[gvm_warp()] = all_rows;
        warp_bytes[gvm_warp()] = all_bytes;
    }
    gvm_block_sync();
    if (gvm_thread() == 0) {
        all_rows = 0;
        all_bytes = 0;
        for (i = 0; i < gvm_block_threads() / gvm_warp_size(); i++) {
            n = warp_rows[i];
            warp_rows[i] = all_rows;
            all_rows += n;
            n = warp_bytes[i];
            warp_bytes[i] = all_bytes;
            all_bytes += n;
        }
        const gvm_append_view view = gvm_append_look(a);

        shared[2] = gvm_append_units_for(a, all_bytes, align);
        shared[3] = all_rows;
        shared[0] = gvm_append_obtain(a, &view, all_rows, shared[2], GVM_APPEND_ADD_BLOCK, &shared[1]);
    }
    gvm_block_sync();
    answer = (uint32_t)shared[0];
    if (answer == GVM_APPEND_OK) {
        gvm_append_set_place(a, shared[1], shared[2], align, rows_before + warp_rows[gvm_warp()],
                             bytes_before + warp_bytes[gvm_warp()], place);
        place->amount = gvm_thread() == 0 ? gvm_append_position(shared[3], shared[2]) : 0;
    }
    gvm_block_sync(); /* the shared words are free for the next call */
    return answer;
}

GVM_DEVICE uint32_t gvm_append_claim_whole_block(const gvm_append *a, uint64_t rows, uint64_t bytes,
                                                 uint32_t align, gvm_append_place *place)
{
    GVM_SHARED(uint64_t, shared, 2); /* answer, old */
    uint64_t units = gvm_append_units_for(a, gvm_append_want(bytes), align);
    uint32_t answer;

    if (!gvm_append_align_good(align))
        return GVM_APPEND_INVALID;
    if (gvm_thread() == 0) {
        const gvm_append_view view = gvm_append_look(a);

        shared[0] = gvm_append_obtain(a, &view, rows, units, GVM_APPEND_ADD_BLOCK, &shared[1]);
    }
    gvm_block_sync();
    answer = (uint32_t)shared[0];
    if (answer == GVM_APPEND_OK) {
        gvm_append_set_place(a, shared[1], units, align, 0, 0, place);
        place->amount = gvm_thread() == 0 ? gvm_append_position(rows, units) : 0;
    }
    gvm_block_sync();
    return answer;
}

GVM_DEVICE void gvm_append_publish(const gvm_append *a, uint64_t amount)
{
    if (amount != 0)
        gvm_atomic_add_u64(&((gvm_append_words *)(uintptr_t)a->words)->published, amount);
}

#endif /* GVM_KERNEL */
#endif
