/* The kernels of test_softgpu_access, test_softgpu_graph and test_capture. */
#include <gvmem/device/appender.h>

#include "tests/unit/softgpu_kernels.h"

#define WORD32(address) ((uint32_t *)(uintptr_t)(address))
#define WORDS64(address) ((const uint64_t *)(uintptr_t)(address))

GVM_KERNEL(softgpu_watch, softgpu_watch_params, p)
{
    const uint64_t start = gvm_clock_ns();
    uint64_t i = 0, sum = 0; /* used, or valgrind would leave the loads out */

    if (gvm_thread_global() != 0)
        return;
    while (gvm_load_acquire_u32_system(WORD32(p.stop)) == 0 && gvm_clock_ns() - start < p.limit_ns) {
        sum += gvm_load_acquire_u64(WORDS64(p.address) + i);
        gvm_store_release_u32_system(WORD32(p.out), 1);
        i = (i + 512) % p.words;
    }
    gvm_store_release_u32_system(WORD32(p.out), sum == 1 ? 3 : 2);
}

GVM_KERNEL(softgpu_append, softgpu_append_params, p)
{
    gvm_append_place place;
    uint64_t i;

    if (gvm_thread_global() != 0)
        return;
    for (i = 0; i < p.rows && gvm_append_claim(&p.append, 1, 0, 0, &place) == GVM_APPEND_OK; i++) {
        *(uint64_t *)(void *)place.rows = place.row;
        gvm_append_publish(&p.append, place.amount);
    }
}
