/* Sequences of region numbers. Each time the same, as they are made from fixed seeds. */
#include "bench/region/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Of the generated experts: chosen by these, half of the reuses are within two tokens, and one of 19 finds that more than 40 % of its
 * layer were used since. */
#define EXPERTS_NEAR 1.65         /* mean of the near distances, in tokens */
#define EXPERTS_ANY_PER_MILLE 55u /* that are of any distance */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

bool region_sequence_alloc(region_sequence *s, uint32_t count, uint32_t regions)
{
    *s = (region_sequence){malloc(count * sizeof *s->numbers), count, regions};
    return s->numbers != NULL;
}

void region_sequence_free(region_sequence *s)
{
    free(s->numbers);
    *s = (region_sequence){0};
}

void region_sequence_cyclic(region_sequence *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        s->numbers[i] = i % s->regions;
}

void region_sequence_scan(region_sequence *s, uint32_t hot)
{
    uint64_t state = 1;

    for (uint32_t i = 0; i < s->count; i++)
        s->numbers[i] = i % 2 == 0 ? (uint32_t)(next_random(&state) % hot)
                                   : hot + i / 2 % (s->regions - hot);
}

/* ---- experts */

/* How many others were used since the one that is chosen: most are few, some are any. */
static uint32_t draw_distance(uint64_t *state, uint32_t experts, uint32_t chosen)
{
    const double u = ((double)(next_random(state) >> 11) + 0.5) / 9007199254740992.0;

    if (next_random(state) % 1000 < EXPERTS_ANY_PER_MILLE)
        return (uint32_t)(u * experts);
    return (uint32_t)fmin(-log(u) * EXPERTS_NEAR * chosen, experts - 1.0);
}

/* Moves the number at a place of the stack to its top. */
static uint32_t raise_number(uint32_t *stack, uint32_t at)
{
    const uint32_t number = stack[at];

    memmove(stack + 1, stack, at * sizeof *stack);
    stack[0] = number;
    return number;
}

void region_sequence_experts(region_sequence *s, uint32_t layers, uint32_t experts, uint32_t chosen)
{
    uint32_t *stacks = malloc((size_t)layers * experts * sizeof *stacks);
    uint64_t state = 7;

    for (uint32_t i = 0; stacks != NULL && i < layers * experts; i++)
        stacks[i] = i % experts;
    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t layer = i / chosen % layers, done = i % chosen;
        uint32_t at = draw_distance(&state, experts, chosen);

        if (at < done) /* those of this token are at the top */
            at = done + at % (experts - done);
        s->numbers[i] = layer * experts +
                        (stacks != NULL ? raise_number(stacks + (size_t)layer * experts, at) : 0);
    }
    free(stacks);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

double region_sequence_reuse(const region_sequence *s, uint32_t step)
{
    uint32_t *seen = malloc(s->regions * sizeof *seen), *found = malloc(s->count * sizeof *found);
    uint32_t count = 0;
    double median = -1;

    for (uint32_t i = 0; seen != NULL && i < s->regions; i++)
        seen[i] = NONE;
    for (uint32_t i = 0; seen != NULL && found != NULL && i < s->count; i++) {
        if (seen[s->numbers[i]] != NONE)
            found[count++] = i / step - seen[s->numbers[i]] / step;
        seen[s->numbers[i]] = i;
    }
    if (count > 0) {
        qsort(found, count, sizeof *found, compare_numbers);
        median = found[(count - 1) / 2];
    }
    free(seen);
    free(found);
    return median;
}

/* ---- replays */

/* Regions in a cache, ordered by when they leave it: a heap of which the largest key is on top. */
typedef struct cache {
    uint32_t *heap, *place; /* place[region]: in the heap, from 1 on; 0: not there */
    uint64_t *key;          /* of regions */
    uint32_t count;
} cache;

static void swap_places(cache *c, uint32_t a, uint32_t b)
{
    const uint32_t kept = c->heap[a];

    c->heap[a] = c->heap[b];
    c->heap[b] = kept;
    c->place[c->heap[a]] = a;
    c->place[c->heap[b]] = b;
}

static bool is_larger(const cache *c, uint32_t a, uint32_t b)
{
    return c->key[c->heap[a]] > c->key[c->heap[b]];
}

static void settle_place(cache *c, uint32_t at)
{
    for (; at > 1 && is_larger(c, at, at / 2); at /= 2)
        swap_places(c, at, at / 2);
    for (;;) {
        uint32_t child = 2 * at;

        if (child < c->count && is_larger(c, child + 1, child))
            child++;
        if (child > c->count || !is_larger(c, child, at))
            return;
        swap_places(c, at, child);
        at = child;
    }
}

static void insert_region(cache *c, uint32_t region)
{
    c->heap[++c->count] = region;
    c->place[region] = c->count;
    settle_place(c, c->count);
}

static void remove_top(cache *c)
{
    const uint32_t region = c->heap[1];

    swap_places(c, 1, c->count--);
    c->place[region] = 0;
    if (c->count > 0)
        settle_place(c, 1);
}

/* Keys: of Belady's the time of the next use, of LRU's how long ago the last was. */
static double replay(const region_sequence *s, uint32_t first, uint32_t frames,
                     const uint32_t *next, cache *c)
{
    double hits = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        const uint32_t region = s->numbers[i];

        c->key[region] = next != NULL ? next[i] : UINT64_MAX - i;
        if (c->place[region] != 0) {
            hits += i >= first;
            settle_place(c, c->place[region]);
            continue;
        }
        if (c->count == frames && next != NULL && c->key[c->heap[1]] <= c->key[region])
            continue;
        if (c->count == frames)
            remove_top(c);
        insert_region(c, region);
    }
    return hits;
}

static uint32_t *find_next_uses(const region_sequence *s)
{
    uint32_t *next = malloc(s->count * sizeof *next), *seen = malloc(s->regions * sizeof *seen);

    for (uint32_t i = 0; seen != NULL && i < s->regions; i++)
        seen[i] = NONE;
    for (uint32_t i = s->count; next != NULL && seen != NULL && i-- > 0;) {
        next[i] = seen[s->numbers[i]];
        seen[s->numbers[i]] = i;
    }
    if (seen == NULL) {
        free(next);
        next = NULL;
    }
    free(seen);
    return next;
}

static double replay_with(const region_sequence *s, uint32_t first, uint32_t frames,
                          const uint32_t *next)
{
    cache c = {
        .heap = malloc((frames + 1) * sizeof *c.heap),
        .place = calloc(s->regions, sizeof *c.place),
        .key = calloc(s->regions, sizeof *c.key),
    };
    const double hits = c.heap != NULL && c.place != NULL && c.key != NULL
                            ? replay(s, first, frames, next, &c)
                            : -1;

    free(c.heap);
    free(c.place);
    free(c.key);
    return hits;
}

double region_belady_hits(const region_sequence *s, uint32_t first, uint32_t frames)
{
    uint32_t *next = find_next_uses(s);
    const double hits = next != NULL ? replay_with(s, first, frames, next) : -1;

    free(next);
    return hits;
}

double region_lru_hits(const region_sequence *s, uint32_t first, uint32_t frames)
{
    return replay_with(s, first, frames, NULL);
}
