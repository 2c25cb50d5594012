/* The kernels of keeper_ops. Each block has a slice of its own, which its threads stride over. */
#include <gvmem/device/kernel.h>

#include "tests/prop/keeper_ops_kernels.h"

/* Where the slice of a block begins; that of the next one is where it ends. */
GVM_DEVICE uint64_t slice(uint64_t words, uint32_t block)
{
    return words / gvm_block_count() * block + words % gvm_block_count() * block / gvm_block_count();
}

GVM_KERNEL(keeper_ops_fill, keeper_ops_params, p)
{
    uint64_t *words = (uint64_t *)(uintptr_t)p.address;
    const uint64_t end = slice(p.words, gvm_block() + 1);
    uint64_t i;

    for (i = slice(p.words, gvm_block()) + gvm_thread(); i < end; i += gvm_block_threads())
        words[i] = p.first + i * p.step;
}

GVM_KERNEL(keeper_ops_check, keeper_ops_params, p)
{
    const uint64_t *words = (const uint64_t *)(uintptr_t)p.address;
    const uint64_t end = slice(p.words, gvm_block() + 1);
    uint64_t i, others = 0;

    for (i = slice(p.words, gvm_block()) + gvm_thread(); i < end; i += gvm_block_threads())
        others += words[i] != p.first + i * p.step;
    others = gvm_block_sum_u64(others);
    if (gvm_thread() == 0 && others > 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.result, others);
}
