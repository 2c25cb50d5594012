/* What region_processes.c and its kernels have in common: what a region holds, and who writes it when. */
#ifndef PROC_REGION_PROCESS_KERNELS_H
#define PROC_REGION_PROCESS_KERNELS_H

#include <gvmem/region_view.h>

/* A region consists of units of 16 bytes: the round in which it was written, then its number and the unit's. */
#define UNIT_BYTES 16u
#define UNIT_PLACE(region, i) ((uint64_t)(region) << 32 | (uint32_t)(i))

#ifdef GVM_DEVICE
#define PROCESS_FUNCTION GVM_DEVICE
#else
#define PROCESS_FUNCTION static inline
#endif

PROCESS_FUNCTION uint32_t mix_round(uint64_t round, uint32_t region)
{
    uint64_t z = round * 0x9e3779b97f4a7c15u + region;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z ^ z >> 31);
}

/* Who writes a region in a round, of so many parties; nobody: some other number. Owned: always the same one. */
PROCESS_FUNCTION uint32_t writer_of(uint64_t round, uint32_t region, uint32_t parties, uint32_t owned)
{
    const uint32_t drawn = mix_round(round, region);

    if (!owned)
        return drawn % (parties + 1);
    return drawn % 2 == 0 ? region % parties : parties;
}

typedef struct process_params {
    gvm_region_view view;
    uint64_t round;
    uint64_t low, high; /* uint32_t for each region: of which rounds its units may be */
    uint64_t digests;   /* uint64_t for each region: out, a sum over its units */
    uint64_t wrong; /* uint64_t[4]: how many units were not so, and the first: region, unit, round */
    uint32_t self, parties, owned;
    uint32_t all;      /* process_write: every region, its own or not */
    uint32_t backward; /* process_check: the last region first */
    uint32_t reserved;
} process_params;

#endif
