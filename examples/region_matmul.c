/* C = A * B, with matrices that do not fit in the device memory that they may use.
 *
 * A is one region, B a collection of strips of columns, C one of tiles, so that a block of the kernel needs one of each. The
 * CPU sees each as one matrix. It checks the product by multiplying both sides with a vector.
 *
 *     region_matmul [SCALE [BUDGET_MIB]]
 */
#include "regions.h"

#define WIDTH 64u  /* columns of a strip, and of a tile */
#define HEIGHT 64u /* rows of a tile */

/* The same in region_matmul_kernel.c. */
typedef struct matmul_params {
    gvm_region_view a, b, c;
    uint32_t rows, inner, width, height;
} matmul_params;

/* A matrix in windows that are so many rows high. */
static gvm_collection *make_matrix(const example *e, uint32_t rows, uint32_t columns, uint32_t height)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *matrix;

    options.shape.width_bytes = WIDTH * sizeof(float);
    options.shape.height = height;
    options.shape.row_pitch_bytes = columns * sizeof(float);
    must(gvm_collection_create(e->space, columns / WIDTH * (rows / height), 0, &options, &matrix),
         "cannot make a matrix");
    return matrix;
}

/* One region for all of it, which has room in the budget before the others share that. */
static gvm_collection *make_whole_matrix(const example *e, uint32_t rows, uint32_t columns)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *matrix;

    options.budget_bytes = (uint64_t)rows * columns * sizeof(float);
    must(gvm_collection_create(e->space, 1, options.budget_bytes, &options, &matrix),
         "cannot make a matrix");
    return matrix;
}

/* Small whole numbers: sums of their products are exact. */
static float element(uint32_t row, uint32_t column)
{
    return (float)((row * 31 + column * 17 + (row ^ column)) % 11) - 5;
}

static double factor(uint32_t i)
{
    return (i * 2654435761u >> 16 & 1) != 0 ? 1 : -1;
}

/* Writes a matrix strip by strip. */
static void fill(gvm_collection *matrix, uint32_t rows, uint32_t columns)
{
    gvm_collection_info info = {.struct_size = sizeof info};

    must(gvm_collection_get_info(matrix, &info), "cannot ask about a matrix");
    for (uint32_t i = 0; i < info.region_count; i++) {
        const uint32_t width = columns / (uint32_t)info.region_count;
        const uint64_t pitch = info.region_count > 1 ? info.shape.row_pitch_bytes
                                                     : columns * sizeof(float);
        char *strip = map_region(matrix, i, GVM_REGION_WRITE);

        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t x = 0; x < width; x++)
                ((float *)(strip + row * pitch))[x] = element(row, i * width + x);
        unmap_region(matrix, i);
    }
}

/* A row of a matrix that kernels have written, times the vector. */
static double multiply_row(gvm_collection *matrix, uint32_t row, uint32_t columns)
{
    double sum = 0;

    for (uint32_t i = 0; i < columns / WIDTH; i++) {
        const uint32_t tile = row / HEIGHT * (columns / WIDTH) + i;
        const float *at = map_region(matrix, tile, GVM_REGION_READ);

        for (uint32_t x = 0; x < WIDTH; x++)
            sum += (double)at[(uint64_t)(row % HEIGHT) * columns + x] * factor(i * WIDTH + x);
        unmap_region(matrix, tile);
    }
    return sum;
}

/* C times the vector is A times (B times the vector). */
static int check(gvm_collection *c, uint32_t rows, uint32_t inner, uint32_t columns)
{
    double *product = calloc(inner, sizeof *product);

    if (product == NULL)
        give_up("out of memory");
    for (uint32_t k = 0; k < inner; k++)
        for (uint32_t column = 0; column < columns; column++)
            product[k] += (double)element(k, column) * factor(column);
    for (uint32_t row = 0; row < rows; row++) {
        const double found = multiply_row(c, row, columns);
        double expected = 0;

        for (uint32_t k = 0; k < inner; k++)
            expected += (double)element(row, k) * product[k];
        if (found != expected) {
            fprintf(stderr, "region_matmul: row %u times the vector is %.0f, and should be %.0f\n",
                    row, found, expected);
            return 1;
        }
    }
    free(product);
    return 0;
}

int main(int argc, char **argv)
{
    example e = start_example(argc, argv, "region_matmul", 1, 6);
    const uint32_t rows = (uint32_t)(320 * e.scale), inner = (uint32_t)(1024 * e.scale);
    const uint32_t columns = 2 * inner;
    gvm_collection *a = make_whole_matrix(&e, rows, inner),
                   *b = make_matrix(&e, inner, columns, inner);
    gvm_collection *c = make_matrix(&e, rows, columns, HEIGHT);
    kernel k = load_kernel(e.device, "region_matmul_kernel", "matmul");
    matmul_params params = {.rows = rows, .inner = inner, .width = WIDTH, .height = HEIGHT};
    int wrong;

    must(gvm_collection_get_view(a, &params.a), "cannot pass A");
    must(gvm_collection_get_view(b, &params.b), "cannot pass B");
    must(gvm_collection_get_view(c, &params.c), "cannot pass C");
    fill(a, rows, inner);
    fill(b, inner, columns);
    must(gvm_space_sync(e.space, NULL), "the kernel cannot see the matrices");
    run_timed(&e, &k, &params);
    must(gvm_space_sync(e.space, NULL), "the CPU cannot see the product");
    print_regions("A", a);
    print_regions("B", b);
    print_regions("C", c);
    wrong = check(c, rows, inner, columns);
    end_example(&e, &k);
    return wrong;
}
