/* The kernel of litmus: one warp writes data again and again in place, those of all other blocks read it by plain loads. */
#include <gvmem/device/kernel.h>

#include "tests/prop/litmus_kernels.h"

/* A version: readers that are there leave, others wait, all lanes write it, and it is published. */
GVM_DEVICE void write_version(uint64_t *word, uint32_t *data, uint32_t version)
{
    uint32_t i;

    if (gvm_lane() == 0) {
        (void)gvm_atomic_or_u64(word, LITMUS_BUSY);
        while ((gvm_load_acquire_u64(word) & LITMUS_READERS) != 0)
            gvm_pause();
    }
    gvm_warp_sync();
    for (i = gvm_lane(); i < LITMUS_WORDS; i += gvm_warp_size())
        data[i] = version;
    gvm_warp_sync();
    if (gvm_lane() == 0)
        gvm_add_release_u64(word, (1ull << LITMUS_VERSION_SHIFT) - LITMUS_BUSY);
}

/* As a map, plain loads, and an unmap. */
GVM_DEVICE uint32_t read_version(uint64_t *word, const uint32_t *data, uint32_t *read)
{
    uint64_t seen = 0;
    uint32_t i, wrong = 0;

    if (gvm_lane() == 0) {
        while ((gvm_load_consume_u64(word) & LITMUS_BUSY) != 0)
            gvm_pause();
        seen = gvm_atomic_add_acquire_u64(word, 1);
    }
    seen = gvm_warp_get_u64(seen, 0);
    gvm_warp_sync();
    *read = (seen & LITMUS_BUSY) == 0;
    for (i = gvm_lane(); *read && i < LITMUS_WORDS; i += gvm_warp_size())
        wrong += data[i] != (uint32_t)(seen >> LITMUS_VERSION_SHIFT);
    gvm_warp_sync();
    if (gvm_lane() == 0)
        gvm_add_release_u64(word, 0 - 1ull);
    return wrong;
}

GVM_KERNEL(litmus, litmus_params, p)
{
    uint64_t *word = (uint64_t *)(uintptr_t)p.word, reads = 0, wrong = 0;
    uint32_t *data = (uint32_t *)(uintptr_t)p.data, *done = (uint32_t *)(uintptr_t)p.done;
    uint32_t round, read, more = 1;

    if (gvm_block() == 0 && gvm_warp() == 0) {
        for (round = 1; round <= p.rounds; round++)
            write_version(word, data, round);
        if (gvm_lane() == 0)
            gvm_store_release_u32(done, 1);
        return;
    }
    while (gvm_block() != 0 && more != 0) {
        wrong += read_version(word, data, &read);
        reads += read;
        more = gvm_warp_get_u32(gvm_load_acquire_u32(done) == 0, 0);
    }
    if (gvm_lane() == 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.reads, reads);
    if (wrong > 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.wrong, wrong);
}
