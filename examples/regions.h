/* examples/regions.h - what the examples of regions share: a space with a budget, and what a run has cost.
 *
 * Each is called NAME [SCALE [BUDGET_MIB]]. SCALE is how much data there is, the budget how much device memory it may
 * use: whatever they are, the code is the same.
 */
#ifndef EXAMPLES_REGIONS_H
#define EXAMPLES_REGIONS_H

#include <time.h>

#include "launch.h"

#define MIB (1024.0 * 1024.0)

typedef struct example {
    const char *name;
    uint64_t scale, budget_bytes;
    gvm_device *device;
    gvm_space *space;
    double seconds;
} example;

static inline example start_example(int argc, char **argv, const char *name, uint64_t scale,
                                    uint64_t budget_mib)
{
    gvm_space_options options = gvm_space_options_init();
    example e = {.name = name};

    e.scale = argc > 1 ? strtoull(argv[1], NULL, 10) : scale;
    e.budget_bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : budget_mib) << 20;
    if (e.scale == 0 || e.budget_bytes == 0) {
        fprintf(stderr, "usage: %s [SCALE [BUDGET_MIB]]\n", name);
        exit(2);
    }
    options.budget_bytes = e.budget_bytes;
    must(gvm_device_open(0, &e.device), "cannot open device 0");
    must(gvm_space_create(e.device, &options, &e.space), "cannot make a space for regions");
    use_device(e.device);
    return e;
}

static inline void *map_region(gvm_collection *regions, uint32_t number, uint32_t access)
{
    void *pointer;

    must(gvm_region_map_cpu(regions, number, access, &pointer), "cannot map a region");
    return pointer;
}

static inline void unmap_region(gvm_collection *regions, uint32_t number)
{
    must(gvm_region_unmap_cpu(regions, number), "cannot unmap a region");
}

/* Runs the kernel, and waits. What the CPU has written before a sync the kernel sees, and the other way round. */
static inline void run_timed(example *e, const kernel *k, void *params)
{
    struct timespec t;
    double begin;

    clock_gettime(CLOCK_MONOTONIC, &t);
    begin = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    run_kernel(e->device, k, params);
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->seconds += (double)t.tv_sec + (double)t.tv_nsec / 1e9 - begin;
}

/* Prints what a collection is, and what kernels have moved of it. */
static inline void print_regions(const char *what, gvm_collection *regions)
{
    gvm_collection_info info = {.struct_size = sizeof info};
    double mib;

    must(gvm_collection_get_info(regions, &info), "cannot ask about regions");
    mib = (double)info.region_bytes / MIB;
    printf("%-10s %6llu regions of %.3f MiB, %llu frames: fetched %.1f MiB, written %.1f MiB, %llu maps "
           "without a frame\n",
           what, (unsigned long long)info.region_count, mib, (unsigned long long)info.frame_count,
           (double)info.fetched * mib, (double)info.written * mib, (unsigned long long)info.remote);
}

static inline void end_example(example *e, kernel *k)
{
    gvm_space_info info = {.struct_size = sizeof info};

    must(gvm_space_get_info(e->space, &info), "cannot ask about the space");
    printf("%s: %.1f MiB of data, budget %.1f MiB, %.3f s in kernels\n", e->name,
           (double)info.host_bytes / MIB, (double)e->budget_bytes / MIB, e->seconds);
    unload_kernel(k);
    gvm_space_destroy(e->space);
    gvm_device_pop_context();
    gvm_device_close(e->device);
}

#endif
