/* tests/prop/keeper_ops_kernels.h - the arguments of keeper_ops' kernels.
 *
 * What a chunk holds is a row of numbers, word i being first + i * step: as telling as random ones,
 * since no two seeds or chunks share their first and step, and as fast to make and to check as
 * memory is, so that a test of millions of operations spends its time on these. */
#ifndef KEEPER_OPS_KERNELS_H
#define KEEPER_OPS_KERNELS_H

#include <stdint.h>

/* fill: writes the words. check: adds to the u64 at result how many words are others. */
typedef struct keeper_ops_params {
    uint64_t address;
    uint64_t words;
    uint64_t first, step;
    uint64_t result;
} keeper_ops_params;

#endif
