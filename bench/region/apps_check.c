/* The ten kernels on the CPU, word by word. */
#include "bench/region/apps_setup.h"

#define ALL(x) ((uint64_t)(x)->tiles * (x)->words)

static const float *floats_of(const app_arrays *x, int array)
{
    return (const float *)(const void *)x->array[array];
}

static void compute_triad(const app_arrays *x)
{
    float *c = (float *)(void *)x->array[BENCH_APP_C];

    for (uint64_t i = 0; i < ALL(x); i++)
        c[i] = floats_of(x, BENCH_APP_A)[i] + 3 * floats_of(x, BENCH_APP_B)[i];
}

static void compute_reduction(const app_arrays *x)
{
    for (uint64_t i = 0; i < ALL(x); i++)
        x->small[0] += x->array[BENCH_APP_A][i];
}

static void compute_scan(const app_arrays *x)
{
    uint32_t sum = 0;

    for (uint64_t i = 0; i < ALL(x); i++) {
        if (i % x->words == 0)
            ((uint32_t *)(void *)x->small)[i / x->words] = sum;
        x->array[BENCH_APP_C][i] = sum;
        sum += x->array[BENCH_APP_A][i];
    }
}

static void compute_histogram(const app_arrays *x)
{
    for (uint64_t i = 0; i < 4 * ALL(x); i++)
        x->small[x->array[BENCH_APP_A][i / 4] >> 8 * (i % 4) & 0xff]++;
}

static void compute_transpose(const app_arrays *x)
{
    uint32_t side = 1;

    while (side * side < x->words)
        side *= 2;
    for (uint64_t i = 0; i < ALL(x); i++) {
        const uint64_t tile = i / x->words, at = i % x->words;
        const uint64_t to = tile % x->across * x->across + tile / x->across;

        x->array[BENCH_APP_C][to * x->words + at % side * side + at / side] = x->array[BENCH_APP_A][i];
    }
}

static void compute_hotspot(const app_arrays *x)
{
    const float *a = floats_of(x, BENCH_APP_A);
    float *c = (float *)(void *)x->array[BENCH_APP_C];

    for (uint64_t i = 0; i < ALL(x); i++) {
        const uint64_t column = i % BENCH_APP_STRIP;
        const float up = i >= BENCH_APP_STRIP ? a[i - BENCH_APP_STRIP] : a[i];
        const float down = i + BENCH_APP_STRIP < ALL(x) ? a[i + BENCH_APP_STRIP] : a[i];
        const float left = column > 0 ? a[i - 1] : a[i];
        const float right = column + 1 < BENCH_APP_STRIP ? a[i + 1] : a[i];

        c[i] = (up + down + left + right) * 0.25f + floats_of(x, BENCH_APP_B)[i];
    }
}

static void compute_pathfinder(const app_arrays *x)
{
    const uint64_t width = (uint64_t)x->across * x->words;

    for (uint64_t i = 0; i < ALL(x); i++) {
        const uint64_t row = i / width, column = i % width;
        const uint32_t *from = x->array[row % 2 == 0 ? BENCH_APP_B : BENCH_APP_C];
        uint32_t least = from[column];

        if (column > 0 && from[column - 1] < least)
            least = from[column - 1];
        if (column + 1 < width && from[column + 1] < least)
            least = from[column + 1];
        x->array[row % 2 == 0 ? BENCH_APP_C : BENCH_APP_B][column] = x->array[BENCH_APP_A][i] % 16 +
                                                                     least;
    }
}

static void compute_nearest(const app_arrays *x)
{
    for (uint64_t i = 0; i < ALL(x); i++) {
        const uint64_t distance = bench_app_distance(x->array[BENCH_APP_A][i],
                                                     x->array[BENCH_APP_B][i]);

        if (~(distance << 32 | i) > x->small[0])
            x->small[0] = ~(distance << 32 | i);
    }
}

static void compute_kmeans(const app_arrays *x)
{
    for (uint64_t i = 0; i < ALL(x); i++) {
        const uint32_t a = x->array[BENCH_APP_A][i] % 256, b = x->array[BENCH_APP_B][i] % 256;
        const uint32_t at = bench_app_centre_of(a, b);

        x->array[BENCH_APP_C][i] = at;
        x->small[3 * at]++;
        x->small[3 * at + 1] += a;
        x->small[3 * at + 2] += b;
    }
}

static void compute_sparse(const app_arrays *x)
{
    const uint32_t rows = (uint32_t)(ALL(x) / BENCH_APP_ROW);
    float *product = (float *)(void *)x->small;

    for (uint64_t i = 0; i < ALL(x); i++) {
        if (i % BENCH_APP_ROW == 0)
            product[i / BENCH_APP_ROW] = 0;
        product[i / BENCH_APP_ROW] += (float)(x->array[BENCH_APP_B][i] % 64) *
                                      product[rows + x->array[BENCH_APP_A][i] % rows];
    }
}

#define APP(name) #name, KERNEL_##name##_plain, KERNEL_##name##_regions
const region_app region_apps[] = {
    {APP(transpose), false, 1, BENCH_APP_C, compute_transpose},
    {APP(scan), false, 3, BENCH_APP_C, compute_scan},
    {APP(reduction), false, 1, -1, compute_reduction},
    {APP(histogram), false, 1, -1, compute_histogram},
    {APP(hotspot), true, 1, BENCH_APP_C, compute_hotspot},
    {APP(pathfinder), false, 0, BENCH_APP_B, compute_pathfinder},
    {APP(nearest), false, 1, -1, compute_nearest},
    {APP(kmeans), false, 1, BENCH_APP_C, compute_kmeans},
    {APP(sparse), false, 1, -1, compute_sparse},
    {APP(triad), true, 1, BENCH_APP_C, compute_triad},
};
const unsigned region_app_count = sizeof region_apps / sizeof region_apps[0];
