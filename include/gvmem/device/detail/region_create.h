/* gvmem/device/detail/region_create.h - how kernels create regions; for gvmem/device/region.h alone.
 *
 * The host gives numbers of regions that do not exist to the device, in a ring. Those between spare_head and spare_tail are
 * there; positions only grow. A sync reads spare_head, and so knows which exist from then on. Who finds the ring empty has the host give the
 * next numbers by a callback, on the page of the space's mail, and copies them to the ring. One thread of the space has the page; the others that find
 * none wait for what it gets, or for the answer that there are no more. A call that was late may be run after the page is another thread's: what was
 * copied counts only if the page has still the turn that the reply says.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_CREATE_H
#define GVMEM_DEVICE_DETAIL_REGION_CREATE_H

#include <gvmem/device/detail/callback.h>
#include <gvmem/region_view.h>

#ifdef GVM_KERNEL

/* One thread. A number in the ring is read before it is taken: if another thread takes it, and the host writes another one
 * there, spare_head is not what it was. */
GVM_DEVICE_RARE uint32_t gvm_region_create_one(uint64_t table)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)table;
    const uint32_t *spares = (const uint32_t *)(uintptr_t)t->spares;
    uint64_t head = gvm_load_acquire_u64(&t->spare_head), seen;
    uint32_t region;

    if (t->layout != GVM_REGION_LAYOUT) {
        gvm_region_report(t, GVM_REGION_OTHER_LAYOUT, 0);
        return GVM_REGION_NONE;
    }
    for (; head < gvm_load_acquire_u64(&t->spare_tail); head = seen) {
        region = gvm_load_acquire_u32(&spares[head % GVM_REGION_SEGMENT]);
        seen = gvm_atomic_cas_acquire_u64(&t->spare_head, head, head + 1);
        if (seen == head) {
            (void)gvm_atomic_or_u32(&gvm_region_record_of(t, region)->flags, GVM_REGION_LIVE);
            return region;
        }
    }
    return GVM_REGION_NONE;
}

#define GVM_REGION_SPARES_THERE (~(uint64_t)0)

GVM_DEVICE int gvm_region_has_spares(gvm_region_table *t)
{
    const uint64_t head = gvm_load_acquire_u64(&t->spare_head);

    return head < gvm_load_acquire_u64(&t->spare_tail);
}

/* How many numbers are on the page, below the turn with which they were written there. */
#define GVM_REGION_GIVEN_COUNT 0xffffu
#define GVM_REGION_GIVEN_SHIFT 16

/* The thread that has the page: what is on it; 0: nothing. */
GVM_DEVICE uint64_t gvm_region_call_for_spares(gvm_region_table *t)
{
    const uint64_t asked = gvm_load_consume_u64(&t->spare_asked);
    uint64_t words[2] = {t->collection, gvm_load_consume_u64(&t->spare_tail)};

    if (GVM_FAR(gvm_callback_call_one)(&t->callbacks, GVM_REGION_GIVE, words, 2, 1) == GVM_CALLBACK_OK &&
        words[0] > 0)
        return (words[0] < GVM_REGION_SEGMENT ? words[0] : GVM_REGION_SEGMENT) |
               words[1] << GVM_REGION_GIVEN_SHIFT;
    gvm_store_release_u64(&t->spare_refused, asked);
    return 0;
}

/* One thread that found the ring empty. Returns what is on the page, which it has then; 0: there are no numbers; SPARES_THERE: look
 * at the ring again. */
GVM_DEVICE uint64_t gvm_region_ask_for_spares(gvm_region_table *t)
{
    uint32_t *page = &gvm_callback_words_of(&t->callbacks)->page;
    const uint64_t request = gvm_atomic_add_u64(&t->spare_asked, 1) + 1, since = gvm_clock_ns();
    uint32_t pauses = 1, has = 0;
    uint64_t count = 0;

    for (;;) {
        if (gvm_region_has_spares(t)) {
            count = GVM_REGION_SPARES_THERE;
            break;
        }
        if (gvm_load_acquire_u64(&t->spare_refused) >= request)
            break;
        if (has) { /* nobody has got any before it had the page */
            count = gvm_region_call_for_spares(t);
            break;
        }
        has = (uint32_t)gvm_poller_begin(page);
        if (!has && (int64_t)(gvm_clock_ns() - since) > (int64_t)t->wait_ns)
            break;
        if (!has)
            gvm_poller_pause(&pauses);
    }
    if (has && (count == 0 || count == GVM_REGION_SPARES_THERE))
        gvm_poller_end(page);
    return count;
}

/* Threads that create together copy what is on the page to the ring, and give the page back. */
GVM_DEVICE void gvm_region_take_given(gvm_region_table *t, uint64_t given, uint32_t by)
{
    gvm_callback_mail *mail = gvm_callback_mail_of(&t->callbacks);
    const uint32_t *numbers = (const uint32_t *)mail->page;
    uint32_t *spares = (uint32_t *)(uintptr_t)t->spares;
    const uint64_t count = given & GVM_REGION_GIVEN_COUNT;
    const uint64_t tail = gvm_load_consume_u64(&t->spare_tail); /* nobody else changes it */
    uint64_t i;

    for (i = gvm_region_rank(by); i < count; i += gvm_region_ranks(by))
        (void)gvm_atomic_exchange_u32(&spares[(tail + i) % GVM_REGION_SEGMENT], numbers[i]);
    gvm_fence_system(); /* the page was read before its turn is */
    gvm_region_join(by);
    if (gvm_region_rank(by) != 0)
        return;
    if (gvm_load_acquire_u64_system(&mail->page_turn) == given >> GVM_REGION_GIVEN_SHIFT)
        gvm_store_release_u64(&t->spare_tail, tail + count);
    gvm_poller_end(&gvm_callback_words_of(&t->callbacks)->page);
}

/* Threads that create together and found the ring empty have it filled; 0: there are no more numbers. */
GVM_DEVICE_RARE uint32_t gvm_region_refill(uint64_t table, uint32_t by)
{
    gvm_region_table *t = (gvm_region_table *)(uintptr_t)table;
    uint64_t given = 0;

    if (gvm_region_rank(by) == 0 && !gvm_region_is_whole(by))
        gvm_region_report(t, GVM_REGION_NOT_WHOLE, 0);
    else if (gvm_region_rank(by) == 0 && t->layout == GVM_REGION_LAYOUT)
        given = gvm_region_ask_for_spares(t);
    given = gvm_region_tell(by, given);
    if (given != 0 && given != GVM_REGION_SPARES_THERE)
        gvm_region_take_given(t, given, by);
    return given != 0;
}

GVM_DEVICE int gvm_region_create_by(const gvm_region_view *view, uint32_t *region, uint32_t by)
{
    uint64_t created = 0;

    for (;;) {
        if (gvm_region_rank(by) == 0)
            created = GVM_FAR(gvm_region_create_one)(view->table);
        *region = (uint32_t)gvm_region_tell(by, created);
        if (*region != GVM_REGION_NONE)
            return 1;
        if (!GVM_FAR(gvm_region_refill)(view->table, by))
            return 0;
    }
}

GVM_DEVICE int gvm_region_create_warp(const gvm_region_view *view, uint32_t *region)
{
    return gvm_region_create_by(view, region, GVM_REGION_BY_WARP);
}

GVM_DEVICE int gvm_region_create_block(const gvm_region_view *view, uint32_t *region)
{
    return gvm_region_create_by(view, region, GVM_REGION_BY_BLOCK);
}

#endif /* GVM_KERNEL */
#endif
