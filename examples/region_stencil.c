/* Heat that spreads over a grid: a kernel that writes more data than the device memory that it may use can hold.
 *
 * Two grids take turns, one of a step before and one of the step after. A region is a strip of rows; a block of
 * the kernel maps one, its neighbours, and the one that it writes. The CPU does the same with plain arrays: every
 * cell is to be equal.
 *
 *     region_stencil [SCALE [BUDGET_MIB]]
 */
#include "regions.h"

#define ROWS 16u /* of a strip */
#define STEPS 6u

/* The same in region_stencil_kernel.c. */
typedef struct stencil_params {
    gvm_region_view from, to;
    uint32_t rows, width;
} stencil_params;

/* A grid of width * width cells, on the CPU. */
typedef struct grid {
    float *cells;
    uint32_t width;
} grid;

static grid make_grid(uint32_t width)
{
    grid g = {calloc((size_t)width * width, sizeof(float)), width};

    if (g.cells == NULL)
        give_up("out of memory");
    for (uint32_t x = 0; x < width; x++) {
        g.cells[x] = 100;                                          /* a hot border */
        g.cells[(size_t)x * width + width / 2] = (float)(x % 100); /* and a wire across */
    }
    return g;
}

static void step(const grid *from, const grid *to)
{
    const uint32_t width = from->width;

    for (uint32_t y = 0; y < width; y++)
        for (uint32_t x = 0; x < width; x++) {
            const float *at = from->cells + (size_t)y * width + x;
            const int border = x == 0 || y == 0 || x + 1 == width || y + 1 == width;

            to->cells[(size_t)y * width + x] =
                border ? *at : ((at[-(ptrdiff_t)width] + at[width]) + (at[-1] + at[1])) * 0.25f;
        }
}

static gvm_collection *make_strips(const example *e, uint32_t width)
{
    gvm_collection *strips;

    must(gvm_collection_create(e->space, width / ROWS, (uint64_t)ROWS * width * sizeof(float), NULL,
                               &strips),
         "cannot make a grid");
    return strips;
}

static void write_strips(gvm_collection *strips, const grid *g)
{
    const size_t cells = (size_t)ROWS * g->width;

    for (uint32_t i = 0; i < g->width / ROWS; i++) {
        memcpy(map_region(strips, i, GVM_REGION_WRITE), g->cells + i * cells, cells * sizeof(float));
        unmap_region(strips, i);
    }
}

static int strips_differ(gvm_collection *strips, const grid *g)
{
    const size_t cells = (size_t)ROWS * g->width;
    int differ = 0;

    for (uint32_t i = 0; i < g->width / ROWS && !differ; i++) {
        differ = memcmp(map_region(strips, i, GVM_REGION_READ), g->cells + i * cells,
                        cells * sizeof(float)) != 0;
        unmap_region(strips, i);
    }
    return differ;
}

int main(int argc, char **argv)
{
    example e = start_example(argc, argv, "region_stencil", 1, 4);
    const uint32_t width = (uint32_t)(1024 * e.scale);
    gvm_collection *strips[2] = {make_strips(&e, width), make_strips(&e, width)};
    grid grids[2] = {make_grid(width), make_grid(width)};
    kernel k = load_kernel(e.device, "region_stencil_kernel", "stencil");
    stencil_params params = {.rows = ROWS, .width = width};
    int wrong;

    write_strips(strips[0], &grids[0]);
    must(gvm_space_sync(e.space, NULL), "the kernel cannot see the grid");
    for (uint32_t i = 0; i < STEPS; i++) {
        must(gvm_collection_get_view(strips[i % 2], &params.from), "cannot pass a grid");
        must(gvm_collection_get_view(strips[(i + 1) % 2], &params.to), "cannot pass a grid");
        run_timed(&e, &k, &params);
        step(&grids[i % 2], &grids[(i + 1) % 2]);
    }
    must(gvm_space_sync(e.space, NULL), "the CPU cannot see the grid");
    wrong = strips_differ(strips[STEPS % 2], &grids[STEPS % 2]);
    if (wrong)
        fputs("region_stencil: the kernel's grid differs from the CPU's\n", stderr);
    print_regions("even steps", strips[0]);
    print_regions("odd steps", strips[1]);
    end_example(&e, &k);
    free(grids[0].cells);
    free(grids[1].cells);
    return wrong;
}
