/* tests/lib/random.h - random numbers that a seed makes again.
 *
 * Threads: any; a state belongs to one of them. */
#ifndef LIB_RANDOM_H
#define LIB_RANDOM_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* A word of one value that depends on all bits of another: the step of splitmix64. */
static inline uint64_t random_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* The next number of splitmix64. */
static inline uint64_t random_next(uint64_t *state)
{
    const uint64_t number = random_mix(*state);

    *state += 0x9e3779b97f4a7c15;
    return number;
}

/* The seed that a program's argument gives; another one in each run where it is NULL. */
static inline uint64_t random_seed(const char *argument)
{
    uint64_t seed;

    if (argument != NULL)
        return strtoull(argument, NULL, 0);
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        abort();
    return seed % 1000000000;
}

#endif
