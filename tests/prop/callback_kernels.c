/* The kernels of callback_calls: threads, warps or blocks call the host at random, and create regions until there are no more. */
#include <gvmem/device/callback.h>
#include <gvmem/device/region.h>

#include "tests/prop/callback_kernels.h"

GVM_DEVICE uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

GVM_DEVICE uint64_t *out_of(const callback_params *p)
{
    return (uint64_t *)(uintptr_t)p->out;
}

GVM_DEVICE void count_wrong(const callback_params *p, uint64_t what)
{
    if (gvm_atomic_add_u64(&out_of(p)[OUT_WRONG], 1) == 0)
        gvm_atomic_exchange_u32((uint32_t *)&out_of(p)[OUT_FIRST_WRONG], (uint32_t)what);
}

/* All threads of the group check what they got. */
GVM_DEVICE void call_and_check(const callback_params *p, uint64_t drawn)
{
    const uint32_t count = (uint32_t)(drawn >> 8) % (GVM_CALLBACK_WORDS + 1);
    uint64_t words[GVM_CALLBACK_WORDS];
    uint32_t i, code;

    for (i = 0; i < GVM_CALLBACK_WORDS; i++)
        words[i] = drawn + i;
    code = p->by == GVM_REGION_BY_THREAD ? gvm_callback_call(&p->server, CALL_MIX, words, count)
           : p->by == GVM_REGION_BY_WARP
               ? gvm_callback_call_warp(&p->server, CALL_MIX, words, count)
               : gvm_callback_call_block(&p->server, CALL_MIX, words, count);
    if (code != GVM_CALLBACK_OK)
        count_wrong(p, 100 + code);
    for (i = 0; i < GVM_CALLBACK_WORDS; i++)
        if (words[i] != (i < count ? CALL_MIXED(drawn + i, i) : drawn + i))
            count_wrong(p, 110 + i);
}

GVM_DEVICE void post_and_count(const callback_params *p, uint64_t drawn, int leads)
{
    const uint64_t words[2] = {drawn & 0xffff, ~(drawn & 0xffff)};
    const uint32_t code = p->by == GVM_REGION_BY_THREAD
                              ? gvm_callback_post(&p->server, CALL_NOTE, words, 2)
                          : p->by == GVM_REGION_BY_WARP
                              ? gvm_callback_post_warp(&p->server, CALL_NOTE, words, 2)
                              : gvm_callback_post_block(&p->server, CALL_NOTE, words, 2);

    if (code != GVM_CALLBACK_OK)
        count_wrong(p, 200 + code);
    if (!leads)
        return;
    gvm_atomic_add_u64(&out_of(p)[OUT_NOTES], 1);
    gvm_atomic_add_u64(&out_of(p)[OUT_NOTED], words[0]);
}

/* The result is the number of the call: for this thread it only rises. */
GVM_DEVICE void join_and_count(const callback_params *p, uint64_t *latest, int leads)
{
    uint64_t result = 0;
    const uint32_t code = p->by == GVM_REGION_BY_THREAD
                              ? gvm_callback_join(&p->server, CALL_COLLECT, &result)
                          : p->by == GVM_REGION_BY_WARP
                              ? gvm_callback_join_warp(&p->server, CALL_COLLECT, &result)
                              : gvm_callback_join_block(&p->server, CALL_COLLECT, &result);

    if (code != GVM_CALLBACK_OK)
        count_wrong(p, 300 + code);
    if (result <= *latest) /* a call that began after the one before had ended */
        count_wrong(p, 310);
    *latest = result;
    if (leads)
        gvm_atomic_add_u64(&out_of(p)[OUT_REQUESTS], 1);
}

GVM_DEVICE void signal_and_count(const callback_params *p, int leads)
{
    uint32_t code;

    if (!leads)
        return;
    code = gvm_callback_signal(&p->server, CALL_COLLECT);
    if (code != GVM_CALLBACK_OK)
        count_wrong(p, 400 + code);
    gvm_atomic_add_u64(&out_of(p)[OUT_REQUESTS], 1);
}

GVM_KERNEL(callback_calls, callback_params, p)
{
    const uint64_t group = gvm_thread_global() / gvm_region_ranks(p.by);
    const int leads = gvm_region_rank(p.by) == 0;
    uint64_t latest = 0, drawn;
    uint32_t i;

    for (i = 0; i < p.rounds; i++) {
        drawn = mix(p.seed + group * p.rounds + i);
        switch (drawn >> 60) {
        case 0: join_and_count(&p, &latest, leads); break;
        case 1: signal_and_count(&p, leads); break;
        case 2:
        case 3:
        case 4:
        case 5: post_and_count(&p, drawn, leads); break;
        default:
            call_and_check(&p, drawn);
            if (leads)
                gvm_atomic_add_u64(&out_of(&p)[OUT_CALLS], 1);
            break;
        }
    }
}

/* Each region that is created is written, too. */
GVM_KERNEL(callback_create, create_params, p)
{
    uint32_t *owners = (uint32_t *)(uintptr_t)p.owners, region;
    uint64_t *word;

    while (p.by == GVM_REGION_BY_WARP ? gvm_region_create_warp(&p.regions, &region)
                                      : gvm_region_create_block(&p.regions, &region)) {
        word = (uint64_t *)(p.by == GVM_REGION_BY_WARP
                                ? gvm_region_map_warp(&p.regions, region, GVM_REGION_READWRITE)
                                : gvm_region_map_block(&p.regions, region, GVM_REGION_READWRITE));
        if (gvm_region_rank(p.by) == 0) {
            gvm_atomic_add_u32(&owners[region], word != (uint64_t *)0 && *word == 0 ? 1u : 1000u);
            gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.out, 1);
            if (word != (uint64_t *)0)
                *word = region + 1ull;
        }
        if (p.by == GVM_REGION_BY_WARP)
            gvm_region_unmap_warp(&p.regions, region);
        else
            gvm_region_unmap_block(&p.regions, region);
    }
}
