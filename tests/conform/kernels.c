/* Kernels of the conformance cases, in the dialect of gvmem/device/kernel.h. */
#include <gvmem/device/kernel.h>

#include "tests/conform/kernels.h"

#define WORDS32(address) ((uint32_t *)(uintptr_t)(address))
#define WORDS64(address) ((uint64_t *)(uintptr_t)(address))

GVM_GLOBAL(uint64_t, conform_word)

GVM_KERNEL(conform_touch_kernel, conform_touch, p)
{
    if (gvm_thread_global() == 0)
        gvm_store_release_u32_system(WORDS32(p.address), p.value);
}

GVM_KERNEL(conform_peek_kernel, conform_range, p)
{
    if (gvm_thread_global() == 0)
        *WORDS32(p.out) = gvm_load_acquire_u32_system(WORDS32(p.address));
}

GVM_KERNEL(conform_copy_kernel, conform_range, p)
{
    uint64_t i;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        WORDS32(p.out)[i] = WORDS32(p.address)[i];
}

GVM_KERNEL(conform_sum_kernel, conform_range, p)
{
    uint64_t i, sum = 0;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        sum += WORDS32(p.address)[i];
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(WORDS64(p.out), sum);
}

GVM_KERNEL(conform_fill_kernel, conform_fill, p)
{
    uint64_t i;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        WORDS32(p.address)[i] = p.first + (uint32_t)i;
}

GVM_KERNEL(conform_count_kernel, conform_count, p)
{
    gvm_atomic_add_u64(WORDS64(p.out), 1);
}

GVM_KERNEL(conform_record_kernel, conform_count, p)
{
    if (gvm_thread() == 0 && gvm_block() < p.words)
        WORDS32(p.out)[gvm_block()] = gvm_block() + 1;
}

GVM_KERNEL(conform_reverse_kernel, conform_count, p)
{
    uint32_t *shared = (uint32_t *)gvm_shared();
    uint64_t i, sum = 0;
    for (i = gvm_thread(); i < p.words; i += gvm_block_threads())
        shared[p.words - 1 - i] = (uint32_t)i;
    gvm_block_sync();
    for (i = gvm_thread(); i < p.words; i += gvm_block_threads())
        sum += shared[i] * (i + 1);
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(WORDS64(p.out), sum);
}

GVM_KERNEL(conform_slow_kernel, conform_slow, p)
{
    uint64_t start = gvm_clock_ns();
    if (gvm_thread_global() != 0)
        return;
    while (gvm_clock_ns() - start < p.nanoseconds)
        gvm_pause();
    gvm_store_release_u32_system(WORDS32(p.out), 1);
}

GVM_KERNEL(conform_global_kernel, conform_count, p)
{
    if (gvm_thread_global() == 0)
        *WORDS64(p.out) = conform_word + p.words;
}

GVM_KERNEL(conform_meet_kernel, conform_meet, p)
{
    uint64_t start = gvm_clock_ns();
    uint32_t round;
    if (gvm_thread() != 0)
        return;
    for (round = 1; round <= p.rounds; round++) {
        gvm_atomic_add_u64(WORDS64(p.counter), 1);
        while (gvm_load_acquire_u64(WORDS64(p.counter)) < (uint64_t)round * p.parties) {
            if (gvm_clock_ns() - start > p.limit_ns)
                return;
            gvm_pause();
        }
    }
    gvm_atomic_add_u64(WORDS64(p.out), 1);
}

GVM_KERNEL(conform_serve_kernel, conform_serve, p)
{
    conform_mailbox *box = (conform_mailbox *)(uintptr_t)p.mailbox;
    uint64_t start = gvm_clock_ns();
    uint32_t done = 1, request, what;
    if (gvm_thread_global() != 0)
        return;
    gvm_store_release_u32_system(&box->answer, done);
    while (gvm_clock_ns() - start < p.limit_ns) {
        request = gvm_load_acquire_u32_system(&box->request);
        if (request <= done) {
            gvm_pause();
            continue;
        }
        what = gvm_load_acquire_u32_system(&box->what);
        if (what == CONFORM_ASK_READ)
            box->result = gvm_load_acquire_u32_system(WORDS32(box->address));
        else if (what == CONFORM_ASK_WRITE)
            gvm_store_release_u32_system(WORDS32(box->address), box->value);
        done = request;
        gvm_store_release_u32_system(&box->answer, done);
        if (what == CONFORM_ASK_STOP)
            return;
    }
}
