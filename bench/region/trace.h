/* bench/region/trace.h - sequences of region numbers: made, and replayed in caches of the host: the best possible, LRU, S3-FIFO. */
#ifndef BENCH_REGION_TRACE_H
#define BENCH_REGION_TRACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct region_sequence {
    uint32_t *numbers;
    uint32_t count, regions;
} region_sequence;

/* A number of a sequence that depends on the state alone, which it changes (splitmix64). */
uint64_t region_random(uint64_t *state);

bool region_sequence_alloc(region_sequence *s, uint32_t count, uint32_t regions);
void region_sequence_free(region_sequence *s);

/* Rounds over all regions in their order. */
void region_sequence_cyclic(region_sequence *s);

/* Every other map is of one of a few hot regions at random, the others pass over the rest in order, round after round. */
void region_sequence_scan(region_sequence *s, uint32_t hot);

/* The experts of tokens, layer by layer, as many as are chosen in each: layer * experts + the expert's number in it. What is chosen
 * depends on how many others of the layer were used since: half of the reuses are within two tokens, and 5.3 % miss in an LRU of 40 % of
 * the experts. */
void region_sequence_experts(region_sequence *s, uint32_t layers, uint32_t experts, uint32_t chosen);

/* The median of how many steps lie between two uses of a region, a step being so many numbers. Negative: out of memory. */
double region_sequence_reuse(const region_sequence *s, uint32_t step);

/* Patterns by which policies differ, for a cache of so many frames, 512 at least. make: false if out of memory. */
typedef struct region_pattern {
    const char *name, *column;
    bool (*make)(region_sequence *s, uint32_t frames);
} region_pattern;
#define REGION_PATTERNS 9
extern const region_pattern region_patterns[REGION_PATTERNS];

/* How many of the maps from first on hit, in a cache of frames: with the best choice (Belady 1966, which may leave a region out of
 * the cache), with LRU, and with S3-FIFO (Yang et al., SOSP 2023). Negative: out of memory. */
double region_belady_hits(const region_sequence *s, uint32_t first, uint32_t frames);
double region_lru_hits(const region_sequence *s, uint32_t first, uint32_t frames);
double region_s3fifo_hits(const region_sequence *s, uint32_t first, uint32_t frames);

#endif
