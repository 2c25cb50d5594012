/* Breadth-first search of a graph whose edges do not fit in the device memory that they may use.
 *
 * Edges lie in regions (graph.h); what there is of each vertex is in device memory. The CPU searches as well, and
 * finds the same levels.
 *
 *     region_bfs [SCALE [BUDGET_MIB]]
 */
#include "bfs.h"

int main(int argc, char **argv)
{
    example e = start_example(argc, argv, "region_bfs", 1, 2);
    graph g = make_graph(&e, GVM_REGION_CLOCK);
    const uint32_t source = 0;
    uint32_t *expected = malloc(g.vertices * sizeof *expected),
             *levels = malloc(g.vertices * sizeof *levels);
    kernel k = load_kernel(e.device, "region_bfs_kernel", "bfs");
    uint64_t looked;
    int wrong;

    if (expected == NULL || levels == NULL)
        give_up("out of memory");
    looked = search_cpu(&g, source, expected);
    memset(levels, 0xff, g.vertices * sizeof *levels);
    levels[source] = 0;
    must(gvm_space_sync(e.space, NULL), "the kernel cannot see the edges");
    search_gpu(&e, &k, &g, source, levels);
    must(gvm_space_sync(e.space, NULL), "the kernel did something wrong");
    wrong = memcmp(levels, expected, g.vertices * sizeof *levels) != 0;
    if (wrong)
        fputs("region_bfs: the kernel's levels differ from the CPU's\n", stderr);
    printf("%u vertices, %llu edges looked at, %.3g a second\n", g.vertices,
           (unsigned long long)looked, (double)looked / e.seconds);
    print_regions("edges", g.collection);
    end_example(&e, &k);
    free_graph(&g);
    free(expected);
    free(levels);
    return wrong;
}
