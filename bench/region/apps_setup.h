/* bench/region/apps_setup.h - what the ten kernels compute, on the CPU. */
#ifndef BENCH_REGION_APPS_SETUP_H
#define BENCH_REGION_APPS_SETUP_H

#include "bench/region/apps.h"
#include "bench/region/setup.h"

/* Arrays of a small instance, in host memory; small: zeros, and the vector of the sparse matrix. */
typedef struct app_arrays {
    uint32_t *array[BENCH_APP_ARRAYS];
    uint64_t *small;
    uint32_t tiles, words, across;
} app_arrays;

typedef struct region_app {
    const char *name;
    region_kernel plain, regions;
    bool floats;
    uint32_t steps; /* 0: as many as A has rows of tiles */
    int output;     /* an array, or -1: small alone */
    void (*compute)(const app_arrays *x);
} region_app;

extern const region_app region_apps[];
extern const unsigned region_app_count;

#endif
