/* Device code of `gvmem-bench pglz` and of tests/prop/pglz.c: values are decompressed, one by each thread or one by each warp. */
#include <gvmem/device/kernel.h>

#include "bench/pglz.h"
#include "postgres/plcuda/device/pglz.h"

GVM_DEVICE const bench_pglz_value *value_at(const bench_pglz_params *p, uint64_t i)
{
    return &((const bench_pglz_value *)(uintptr_t)p->values)[i];
}

GVM_KERNEL(pglz_threads, bench_pglz_params, p)
{
    uint64_t i;

    for (i = gvm_thread_global(); i < p.count; i += gvm_thread_count()) {
        const bench_pglz_value *v = value_at(&p, i);

        ((int32_t *)(uintptr_t)p.results)[i] = pglz_decompress(
            (const char *)(uintptr_t)p.sources + v->source_at, v->source_bytes,
            (char *)(uintptr_t)p.dests + v->dest_at, v->raw_bytes);
    }
}

GVM_KERNEL(pglz_warps, bench_pglz_params, p)
{
    uint64_t i;

    for (i = gvm_thread_global() / gvm_warp_size(); i < p.count;
         i += gvm_thread_count() / gvm_warp_size()) {
        const bench_pglz_value *v = value_at(&p, i);
        const int32_t n = pglz_decompress_warp((const char *)(uintptr_t)p.sources + v->source_at,
                                               v->source_bytes,
                                               (char *)(uintptr_t)p.dests + v->dest_at, v->raw_bytes);

        if (gvm_lane() == 0)
            ((int32_t *)(uintptr_t)p.results)[i] = n;
    }
}
