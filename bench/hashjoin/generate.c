/* Made-up tables: keys by Zipf's law on both sides, and one key that explodes. */
#include <math.h>
#include <stdlib.h>

#include "bench/hashjoin/hashjoin.h"

static uint64_t next_splitmix(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix(*state);
}

/* Below limit; limit is not 0. */
static uint32_t random_below(uint64_t *state, uint64_t limit)
{
    return (uint32_t)((next_splitmix(state) >> 32) * limit >> 32);
}

/* Draws from any distribution in the same time (Walker's alias method): a draw hits one of as
 * many boxes as there are keys, all alike; the part of a box below its mark is its own key's,
 * the rest that of another key which has more than a box. */
typedef struct dice {
    uint32_t keys;
    uint32_t *mark; /* of 2^32 */
    uint32_t *other;
} dice;

static void alias_make(dice *d, uint32_t keys, double zipf)
{
    double *share = must_have(keys, sizeof *share), sum = 0;
    uint32_t *small = must_have(keys, sizeof *small), *large = must_have(keys, sizeof *large);
    uint32_t smalls = 0, larges = 0;

    d->keys = keys;
    d->mark = must_have(keys, sizeof *d->mark);
    d->other = must_have(keys, sizeof *d->other);
    for (uint32_t i = 0; i < keys; i++)
        sum += share[i] = pow(i + 1.0, -zipf);
    for (uint32_t i = 0; i < keys; i++) {
        share[i] *= keys / sum;
        d->mark[i] = UINT32_MAX;
        d->other[i] = i;
        if (share[i] < 1)
            small[smalls++] = i;
        else
            large[larges++] = i;
    }
    while (smalls > 0 && larges > 0) {
        const uint32_t s = small[--smalls], l = large[larges - 1];

        d->mark[s] = (uint32_t)(share[s] * 4294967295.0);
        d->other[s] = l;
        share[l] -= 1 - share[s];
        if (share[l] < 1) {
            larges--;
            small[smalls++] = l;
        }
    }
    free(share);
    free(small);
    free(large);
}

static uint32_t alias_draw(const dice *d, uint64_t *state)
{
    const uint32_t box = random_below(state, d->keys);

    return (uint32_t)(next_splitmix(state) >> 32) <= d->mark[box] ? box : d->other[box];
}

static void alias_free(dice *d)
{
    free(d->mark);
    free(d->other);
}

/* The exploding rows lie among the others, evenly. */
static bool is_exploding(uint32_t row, uint32_t rows, uint32_t explode)
{
    return (uint64_t)(row + 1) * explode / rows != (uint64_t)row * explode / rows;
}

double generated_guess(const generated *g)
{
    return g->guess > 0 ? g->guess : g->fraction;
}

void generate(const generated *g, tables *out)
{
    const uint32_t exploding = g->keys; /* the first number that is no key */
    const uint32_t apart = g->disjoint ? g->keys + 1 : 0;
    const uint32_t width = (uint32_t)(g->fraction * 4294967295.0);
    char *text = must_have(g->text_max + 8, 1);
    uint64_t state = mix(g->seed);
    dice d;

    *out = (tables){0};
    alias_make(&d, g->keys, g->zipf);
    for (uint32_t i = 0; i < g->outer_rows; i++) {
        const bool explodes = is_exploding(i, g->outer_rows, g->explode);
        const uint32_t key = explodes ? exploding : alias_draw(&d, &state);
        const uint32_t low = random_below(&state, (uint64_t)UINT32_MAX - width + 1);

        tables_add_outer(out, key + apart, low, low + width, NULL);
    }
    for (uint32_t i = 0; i < g->inner_rows; i++) {
        const bool explodes = is_exploding(i, g->inner_rows, g->explode);
        const uint32_t key = explodes ? exploding : alias_draw(&d, &state);
        const uint32_t value = (uint32_t)(next_splitmix(&state) >> 32);
        const uint32_t bytes = g->text_min +
                               random_below(&state, (uint64_t)(g->text_max - g->text_min) + 1);

        for (uint32_t at = 0; at < bytes; at += 8) {
            const uint64_t random = next_splitmix(&state);

            for (int k = 0; k < 8; k++) /* text_max + 8 bytes of room */
                text[at + (uint32_t)k] = (char)('a' + (random >> 8 * k) % 26);
        }
        tables_add_inner(out, key, value, text, bytes);
    }
    alias_free(&d);
    free(text);
}

/* So many keys from key i on are about equally frequent. */
static uint32_t keys_alike(uint32_t i, uint32_t keys)
{
    const uint32_t alike = i / 1000 + 1;

    return alike < keys - i ? alike : keys - i;
}

/* With keys of the frequencies p on both sides the result has the sum of p^2 of all pairs, and is
 * expected to have one of them for each key that occurs: of rows drawn some have rare keys and some
 * have not. */
static double times_of(uint32_t keys, uint32_t rows, double zipf)
{
    double sum = 0, squares = 0, seen = 0;
    uint32_t alike;

    for (uint32_t i = 0; i < keys; i += alike) {
        alike = keys_alike(i, keys);
        sum += alike * pow(i + (alike + 1) / 2.0, -zipf);
    }
    for (uint32_t i = 0; i < keys; i += alike) {
        double p;

        alike = keys_alike(i, keys);
        p = pow(i + (alike + 1) / 2.0, -zipf) / sum;
        squares += alike * p * p;
        seen += alike * (1 - exp(-p * rows));
    }
    return squares * seen;
}

double zipf_for(uint32_t keys, uint32_t rows, double times)
{
    double low = 0, high = 1.5; /* beyond, so few keys are seen that times fall again */

    for (int step = 0; step < 16 && times > 1; step++) {
        const double zipf = (low + high) / 2;

        if (times_of(keys, rows, zipf) < times)
            low = zipf;
        else
            high = zipf;
    }
    return low;
}
