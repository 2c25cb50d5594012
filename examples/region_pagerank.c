/* PageRank of a graph whose edges do not fit in the device memory that they may use: each iteration reads all of them.
 *
 * Edges lie in regions (graph.h); what there is of each vertex is in device memory. Of what a scan in a circle needs again, only that
 * stays which is not evicted before: so the policy is the one that keeps what came first, and uses the rest at its home.
 * The CPU computes the same, and finds the same ranks.
 *
 *     region_pagerank [SCALE [BUDGET_MIB]]
 */
#include "graph.h"

#define ITERATIONS 2u
#define DAMPING 0.85

/* The same in region_pagerank_kernel.c. */
typedef struct pagerank_params {
    gvm_region_view edges;
    uint64_t offsets, given;
    uint64_t next;
    double damping;
    uint32_t vertices, reserved;
} pagerank_params;

/* What each vertex gives each of its neighbours at first: its part of one. */
static void begin(const graph *g, double *given)
{
    for (uint32_t v = 0; v < g->vertices; v++)
        given[v] = g->offsets[v + 1] > g->offsets[v]
                       ? 1.0 / g->vertices / (double)(g->offsets[v + 1] - g->offsets[v])
                       : 0;
}

static void iterate_cpu(const graph *g, const double *given, double *next)
{
    for (uint32_t v = 0; v < g->vertices; v++) {
        double sum = 0;

        for (uint64_t i = g->offsets[v]; i < g->offsets[v + 1]; i++)
            sum += given[*edge_at(g, i)];
        if (g->offsets[v + 1] > g->offsets[v])
            next[v] = ((1 - DAMPING) / g->vertices + DAMPING * sum) /
                      (double)(g->offsets[v + 1] - g->offsets[v]);
    }
}

/* ITERATIONS is even: the result is where it began. */
static void rank_cpu(const graph *g, double *given)
{
    double *next = calloc(g->vertices, sizeof *next);

    if (next == NULL)
        give_up("out of memory");
    begin(g, given);
    map_edges(g, GVM_REGION_READ);
    for (uint32_t i = 0; i < ITERATIONS; i += 2) {
        iterate_cpu(g, given, next);
        iterate_cpu(g, next, given);
    }
    unmap_edges(g);
    free(next);
}

static void rank_gpu(example *e, const kernel *k, const graph *g, double *given)
{
    const uint64_t bytes = g->vertices * sizeof *given;
    gvm_buffer *buffers[3];
    pagerank_params p = {.damping = DAMPING, .vertices = g->vertices};

    begin(g, given);
    must(gvm_collection_get_view(g->collection, &p.edges), "cannot pass the edges");
    p.offsets = to_device(e, g->offsets, (g->vertices + 1) * sizeof *g->offsets, &buffers[0]);
    p.given = to_device(e, given, bytes, &buffers[1]);
    p.next = to_device(e, given, bytes, &buffers[2]);
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        const uint64_t given_before = p.given;

        run_timed(e, k, &p);
        p.given = p.next;
        p.next = given_before;
    }
    must(gvm_buffer_copy_out(given, buffers[1], 0, bytes), "cannot read the ranks");
    for (int i = 0; i < 3; i++)
        gvm_buffer_destroy(buffers[i]);
}

/* Sums are of another order: equal but for what rounding makes of that. */
static int ranks_differ(const graph *g, const double *found, const double *expected)
{
    for (uint32_t v = 0; v < g->vertices; v++) {
        const double off = found[v] - expected[v];

        if (!(off <= 1e-9 * expected[v] && -off <= 1e-9 * expected[v])) {
            fprintf(stderr, "region_pagerank: vertex %u gives %g, and should give %g\n", v,
                    found[v], expected[v]);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    example e = start_example(argc, argv, "region_pagerank", 1, 4);
    graph g = make_graph(&e, GVM_REGION_STATIC);
    double *expected = calloc(g.vertices, sizeof *expected),
           *given = calloc(g.vertices, sizeof *given);
    kernel k = load_kernel(e.device, "region_pagerank_kernel", "pagerank");
    int wrong;

    if (expected == NULL || given == NULL)
        give_up("out of memory");
    rank_cpu(&g, expected);
    must(gvm_space_sync(e.space, NULL), "the kernel cannot see the edges");
    rank_gpu(&e, &k, &g, given);
    must(gvm_space_sync(e.space, NULL), "the kernel did something wrong");
    wrong = ranks_differ(&g, given, expected);
    printf("%u vertices, %llu edges, %.4f s an iteration\n", g.vertices,
           (unsigned long long)g.offsets[g.vertices], e.seconds / ITERATIONS);
    print_regions("edges", g.collection);
    end_example(&e, &k);
    free_graph(&g);
    free(expected);
    free(given);
    return wrong;
}
