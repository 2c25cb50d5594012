/* gvmem-bench region: what maps, faults and fetches of regions cost, and what a cache of them is worth, beside the same without
 * regions: bare atomics, plain reads of host memory, kernels and hosts that manage a cache themselves.
 *
 * Homes hold a pattern, and kernels check what they map. What is compared is measured in turns, with the same data, the
 * same budget and the same launches, unless its name says otherwise.
 */
#include "bench/region/setup.h"

#include <string.h>

static bool measure_bfs(region_bench *r)
{
    return r->b->devices > 0 ? region_measure_devices(r) : region_measure_bfs(r);
}

static const struct {
    const char *name;
    bool (*measure)(region_bench *r);
} parts[] = {
    {"maps", region_measure_maps},         {"fetch", region_measure_fetch},
    {"faults", region_measure_faults},     {"resolve", region_measure_resolve},
    {"experts", region_measure_experts},   {"policies", region_measure_policies},
    {"clean", region_measure_clean},       {"bfs", measure_bfs},
    {"pagerank", region_measure_pagerank}, {"callbacks", region_measure_callbacks},
    {"matmul", region_measure_matmul},     {"kernels", region_measure_kernels},
};

bool bench_region_has(const char *part)
{
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strcmp(parts[i].name, part) == 0)
            return true;
    return false;
}

static bool is_wanted(const bench *b, const char *part)
{
    for (int i = 0; i < b->operand_count; i++)
        if (strcmp(b->operands[i], part) == 0)
            return true;
    return b->operand_count == 0;
}

void bench_region(bench *b)
{
    region_bench r = {.b = b};
    const bool good = region_load(&r);

    for (size_t i = 0; good && i < sizeof parts / sizeof parts[0]; i++)
        if (is_wanted(b, parts[i].name)) {
            if (!parts[i].measure(&r)) /* the others are measured all the same */
                b->code = TOOL_FAILED;
            region_close(&r);
        }
    region_unload(&r);
}
