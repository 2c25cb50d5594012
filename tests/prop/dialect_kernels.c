/* What warps tell each other, and stores past the caches; see dialect.c. */
#include <gvmem/device/kernel.h>

#include "tests/prop/dialect_kernels.h"

GVM_KERNEL(dialect, dialect_params, p)
{
    const uint64_t n = ((const uint64_t *)(uintptr_t)p.numbers)[gvm_thread_global()];
    const uint32_t half = gvm_warp_ballot(~0u, (int)(gvm_lane() & 1)) ^
                          (gvm_lane() & 1 ? 0 : gvm_warp_mask());
    dialect_answer *a = &((dialect_answer *)(uintptr_t)p.answers)[gvm_thread_global()];

    a->rank = gvm_warp_rank((int)(n & 1), &a->yes);
    a->before_u32 = gvm_warp_before_u32((uint32_t)n, &a->total_u32);
    a->before_u64 = gvm_warp_before_u64(n, &a->total_u64);
    a->first_u32 = gvm_warp_get_u32((uint32_t)n, 0);
    a->next_u32 = gvm_warp_down_u32((uint32_t)n, 1);
    a->first_u64 = gvm_warp_get_u64(n, 0);
    a->next_u64 = gvm_warp_down_u64(n, 1);
    gvm_stream_u64(&a->streamed, n);
    gvm_stream_u64x2(a->streamed_pair, n, ~n);
    gvm_stream_load_u64x2(a->streamed_pair, &a->loaded_pair[0], &a->loaded_pair[1]);
    a->before[0] = gvm_atomic_add_acquire_u64(&a->changed, n);
    a->before[1] = gvm_atomic_add_release_u64(&a->changed, n);
    a->before[2] = gvm_atomic_cas_acquire_u64(&a->changed, 2 * n, ~n);
    (void)gvm_atomic_cas_acquire_u64(&a->changed, n, 0);
    (void)gvm_atomic_cas_release_u64(&a->changed, ~n, n);
    (void)gvm_atomic_cas_release_u64(&a->changed, ~n, 0);
    a->before[3] = gvm_atomic_or_u64(&a->changed, 0x8000000000000006u);
    gvm_add_release_u64(&a->changed, 3);
    a->flags_before = gvm_atomic_or_u32(&a->flags, (uint32_t)n);
    (void)gvm_atomic_or_u32(&a->flags, 8);
    a->same = gvm_warp_match_u32(~0u, (uint32_t)n & 3);
    a->same_of_half = gvm_warp_match_u32(half, (uint32_t)n & 3);
    a->first_same = gvm_warp_first(a->same);
}
