/* tests/lib/shadow.h - which addresses are whose: finds two blocks that share a byte.
 *
 * A block covers units of 16 KiB or, if it may share these with others of its kind, grains of 256 bytes. A unit's byte says
 * how many of its grains are covered, or who has all of it. Pages of the shadow come as they are touched.
 *
 * Threads: any, at once. */
#ifndef LIB_SHADOW_H
#define LIB_SHADOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#define SHADOW_GRAIN_SHIFT 8
#define SHADOW_UNIT_SHIFT 14
#define SHADOW_ADDRESS_BITS 47
#define SHADOW_WHOLE 200 /* the bytes from here on: a unit is one block's */

typedef struct shadow {
    _Atomic uint8_t *units, *grains;
} shadow;

static inline _Atomic uint8_t *shadow_map(unsigned shift)
{
    void *at = mmap(NULL, 1ull << (SHADOW_ADDRESS_BITS - shift), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at != MAP_FAILED ? at : NULL;
}

static inline bool shadow_make(shadow *s)
{
    s->units = shadow_map(SHADOW_UNIT_SHIFT);
    s->grains = shadow_map(SHADOW_GRAIN_SHIFT);
    return s->units != NULL && s->grains != NULL;
}

static inline bool shadow_count_grain(shadow *s, uint64_t grain, int more)
{
    _Atomic uint8_t *unit = &s->units[grain >> (SHADOW_UNIT_SHIFT - SHADOW_GRAIN_SHIFT)];
    uint8_t count = atomic_load(unit);

    do
        if (count >= SHADOW_WHOLE || (more < 0 && count == 0))
            return false;
    while (!atomic_compare_exchange_weak(unit, &count, (uint8_t)(count + more)));
    return true;
}

/* Takes [address, address + bytes), rounded outwards, for a number below 50, or gives it back. False: some of it was taken
 * already, or was not. bytes may be 0. */
static inline bool shadow_claim(shadow *s, uint64_t address, uint64_t bytes, bool shares, uint8_t number)
{
    const unsigned shift = shares ? SHADOW_GRAIN_SHIFT : SHADOW_UNIT_SHIFT;
    bool good = true;

    for (uint64_t at = address >> shift; at < (address + bytes + (1u << shift) - 1) >> shift; at++)
        if (shares)
            good = atomic_exchange(&s->grains[at], 1) == 0 && shadow_count_grain(s, at, 1) && good;
        else
            good = atomic_exchange(&s->units[at], (uint8_t)(SHADOW_WHOLE + number)) == 0 && good;
    return good;
}

static inline bool shadow_give(shadow *s, uint64_t address, uint64_t bytes, bool shares)
{
    const unsigned shift = shares ? SHADOW_GRAIN_SHIFT : SHADOW_UNIT_SHIFT;
    bool good = true;

    for (uint64_t at = address >> shift; at < (address + bytes + (1u << shift) - 1) >> shift; at++)
        if (shares)
            good = shadow_count_grain(s, at, -1) && atomic_exchange(&s->grains[at], 0) == 1 && good;
        else
            good = atomic_exchange(&s->units[at], 0) >= SHADOW_WHOLE && good;
    return good;
}

#endif
