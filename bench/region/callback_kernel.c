/* Device code of `gvmem-bench region callbacks`: the first thread of each warp calls the host. */
#include <gvmem/device/callback.h>

#include "bench/region/region.h"

GVM_DEVICE void keep_time(const bench_callback_params *p, uint32_t i, uint64_t since)
{
    if (p->times != 0)
        ((uint64_t *)(uintptr_t)p->times)[i] = gvm_clock_ns() - since;
}

GVM_DEVICE uint32_t call_host(const bench_callback_params *p, uint32_t i)
{
    uint64_t word = i;
    uint32_t code;

    switch (p->kind) {
    case BENCH_POST: return gvm_callback_post(&p->server, p->function, &word, 1);
    case BENCH_JOIN: code = gvm_callback_join(&p->server, p->function, &word); break;
    case BENCH_SIGNAL: return gvm_callback_signal(&p->server, p->function);
    default:
        code = gvm_callback_call(&p->server, p->function, &word, 1);
        word -= i;
        break;
    }
    return code == GVM_CALLBACK_OK && word == 1 ? GVM_CALLBACK_OK : GVM_CALLBACK_FAILED;
}

GVM_KERNEL(callback_calls, bench_callback_params, p)
{
    uint64_t since;
    uint32_t i, wrong = 0;

    if (gvm_lane() != 0)
        return;
    for (i = 0; i < p.rounds; i++) {
        since = gvm_clock_ns();
        wrong += call_host(&p, i) != GVM_CALLBACK_OK;
        keep_time(&p, i, since);
    }
    if (wrong > 0)
        gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.out + BENCH_OUT_WRONG, wrong);
}

/* The least that any call could be: a word to the host, and one back. */
GVM_KERNEL(callback_mailbox, bench_callback_params, p)
{
    uint64_t *mailbox = (uint64_t *)(uintptr_t)p.mailbox, since;
    uint32_t i;

    if (gvm_thread_global() != 0)
        return;
    for (i = 0; i < p.rounds; i++) {
        since = gvm_clock_ns();
        gvm_store_release_u64_system(&mailbox[0], i + 1ull);
        while (gvm_load_consume_u64_system(&mailbox[BENCH_MAILBOX_ANSWER]) != i + 1ull)
            ;
        keep_time(&p, i, since);
    }
}
