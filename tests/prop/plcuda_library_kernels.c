/* The kernels of plcuda_library.c. */
#include <gvmem/device/kernel.h>

#include "postgres/plcuda/device/reduce.h"
#include "postgres/plcuda/device/sort.h"
#include "tests/prop/plcuda_library_kernels.h"

#define ASK(letters, type) \
    do { \
        library_##letters *a = &((library_answers *)(uintptr_t)p.answers)[gvm_thread_global()].letters; \
        const type v = (type)value; \
        type total = 0; \
        a->value = v; \
        a->warp_sum = plcuda_warp_sum_##letters(v); \
        a->warp_min = plcuda_warp_min_##letters(v); \
        a->warp_max = plcuda_warp_max_##letters(v); \
        a->block_sum = plcuda_block_sum_##letters(v); \
        a->block_min = plcuda_block_min_##letters(v); \
        a->block_max = plcuda_block_max_##letters(v); \
        a->warp_inclusive = plcuda_warp_inclusive_sum_##letters(v); \
        a->warp_exclusive = plcuda_warp_exclusive_sum_##letters(v); \
        a->block_inclusive = plcuda_block_inclusive_sum_##letters(v, &total); \
        a->block_exclusive = plcuda_block_exclusive_sum_##letters(v, &total); \
        a->total = total; \
    } while (0)

GVM_KERNEL(library_reduce, library_reduce_params, p)
{
    const int32_t value = ((const int32_t *)(uintptr_t)p.values)[gvm_thread_global()];
    library_answers *all = &((library_answers *)(uintptr_t)p.answers)[gvm_thread_global()];

    ASK(i32, int32_t);
    ASK(u32, uint32_t);
    ASK(i64, int64_t);
    ASK(u64, uint64_t);
    ASK(f32, float);
    ASK(f64, double);
    all->warp_odd = plcuda_warp_count(value & 1);
    all->block_odd = plcuda_block_count(value & 1);
}

GVM_KERNEL(library_block_sort, library_sort_params, p)
{
    plcuda_block_sort((plcuda_pair *)(uintptr_t)p.pairs, p.count);
}

GVM_KERNEL(library_sort_slices, library_sort_params, p)
{
    plcuda_grid_sort_slices((plcuda_pair *)(uintptr_t)p.pairs, p.count, p.slices);
}

GVM_KERNEL(library_merge_slices, library_sort_params, p)
{
    plcuda_grid_merge_slices((const plcuda_pair *)(uintptr_t)p.pairs, p.count, p.slices,
                             (plcuda_pair *)(uintptr_t)p.to);
}

/* One block. Lists are behind the result: of threads, or of the lanes of the first warp, which has all pairs then. */
GVM_DEVICE plcuda_pair *fill_list(const library_sort_params *p, uint32_t threads)
{
    plcuda_pair *lists = (plcuda_pair *)(uintptr_t)p->to + p->k, *mine = lists + gvm_thread() * p->k;
    const plcuda_pair *pairs = (const plcuda_pair *)(uintptr_t)p->pairs;
    uint64_t i;

    plcuda_topk_clear(mine, p->k);
    for (i = gvm_thread(); i < p->count; i += threads)
        plcuda_topk_add(mine, p->k, pairs[i].key, pairs[i].payload);
    return lists;
}

GVM_KERNEL(library_block_topk, library_sort_params, p)
{
    plcuda_pair *lists = fill_list(&p, gvm_block_threads());

    plcuda_block_topk(lists, gvm_block_threads(), p.k, (plcuda_pair *)(uintptr_t)p.to);
}

GVM_KERNEL(library_warp_topk, library_sort_params, p)
{
    plcuda_pair *lists;

    if (gvm_warp() > 0)
        return;
    lists = fill_list(&p, plcuda_lanes());
    plcuda_warp_topk(lists, plcuda_lanes(), p.k, (plcuda_pair *)(uintptr_t)p.to);
}
