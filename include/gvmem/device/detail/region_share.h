/* gvmem/device/detail/region_share.h - copies of large regions in pieces; for gvmem/device/detail/region.h alone.
 *
 * Who has a region BUSY and has to copy much opens the copy: others that wait for the region take pieces of it. Nobody is waited for
 * but threads that copy a piece, so it is done by one group of threads as well as by many.
 */
#ifndef GVMEM_DEVICE_DETAIL_REGION_SHARE_H
#define GVMEM_DEVICE_DETAIL_REGION_SHARE_H

#include <gvmem/device/detail/region_table.h>

#ifdef GVM_KERNEL

GVM_DEVICE gvm_region_share *gvm_region_share_of(const gvm_region_table *t, uint32_t region)
{
    gvm_region_share *share = (gvm_region_share *)(uintptr_t)t->shares + region;

    GVM_ASSUME_GLOBAL(share);
    return share;
}

GVM_DEVICE uint32_t gvm_region_piece_count(const gvm_region_table *t)
{
    return (uint32_t)((t->stride_bytes + GVM_REGION_PIECE - 1) / GVM_REGION_PIECE);
}

/* A piece of the copy that is open for a region, or 0. What the copy is may be read by who has a piece: it is not closed before. */
GVM_DEVICE uint64_t gvm_region_take_piece(const gvm_region_table *t, gvm_region_search *s)
{
    gvm_region_share *share = gvm_region_share_of(t, s->region);
    uint32_t left = gvm_load_consume_u32(&share->left);

    if ((int32_t)left > 0)
        left = gvm_atomic_add_acquire_u32(&share->left, 0 - 1u);
    if ((int32_t)left <= 0)
        return 0;
    s->has_piece = 1;
    return GVM_REGION_PIECE_OF | (uint64_t)(left - 1) << GVM_REGION_SLOT_BITS | s->region;
}

/* If there was a piece: it is copied. */
GVM_DEVICE void gvm_region_finish_piece(const gvm_region_table *t, gvm_region_search *s)
{
    if (s->has_piece)
        gvm_add_release_u32(&gvm_region_share_of(t, s->region)->done, 1);
    s->has_piece = 0;
}

/* The copy of a region that this thread has BUSY is open. */
GVM_DEVICE_RARE void gvm_region_open_copy(const gvm_region_table *t, gvm_region_search *s, uint64_t job)
{
    gvm_region_share *share = gvm_region_share_of(t, s->region);

    share->job = job;
    share->done = 0;
    s->next = s->stage;
    s->stage = GVM_REGION_SHARE;
    gvm_store_release_u32(&share->left, gvm_region_piece_count(t));
}

/* Another piece, or 0: all are taken, and others may still be at some. */
GVM_DEVICE_RARE uint64_t gvm_region_copy_more(const gvm_region_table *t, gvm_region_search *s)
{
    uint64_t job;

    gvm_region_finish_piece(t, s);
    job = gvm_region_take_piece(t, s);
    if (job == 0 &&
        gvm_load_acquire_u32(&gvm_region_share_of(t, s->region)->done) == gvm_region_piece_count(t))
        s->stage = s->next;
    else if (job == 0)
        gvm_pause();
    return job;
}

GVM_DEVICE_RARE void gvm_region_do_piece(const gvm_region_table *t, uint64_t piece, uint32_t by)
{
    const uint64_t job = gvm_region_share_of(t, gvm_region_job_from(piece))->job;
    const uint64_t at = (uint64_t)gvm_region_job_to(piece) * GVM_REGION_PIECE;
    const uint64_t bytes = t->stride_bytes - at < GVM_REGION_PIECE ? t->stride_bytes - at
                                                                   : GVM_REGION_PIECE;

    gvm_region_copy_piece(t->address + gvm_region_job_to(job) * t->stride_bytes + at,
                          t->address + gvm_region_job_from(job) * t->stride_bytes + at,
                          (uint32_t)(bytes / 16), gvm_region_rank(by), gvm_region_ranks(by));
}

#endif /* GVM_KERNEL */
#endif
