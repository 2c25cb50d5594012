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

uint64_t region_random(uint64_t *state)
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
        s->numbers[i] = i % 2 == 0 ? (uint32_t)(region_random(&state) % hot)
                                   : hot + i / 2 % (s->regions - hot);
}

/* ---- experts */

/* How many others were used since the one that is chosen: most are few, some are any. */
static uint32_t draw_distance(uint64_t *state, uint32_t experts, uint32_t chosen)
{
    const double u = ((double)(region_random(state) >> 11) + 0.5) / 9007199254740992.0;

    if (region_random(state) % 1000 < EXPERTS_ANY_PER_MILLE)
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

/* ---- S3-FIFO: a small queue for what is new, a main one, and the numbers of those that left the small one */

/* What leaves a queue first is at head. Queues are rings of as many places as there are frames, and one. */
typedef struct queue {
    uint32_t *numbers, head, count, places;
} queue;

typedef struct s3fifo {
    queue small, main;
    uint8_t *used;  /* hits of a region since it is there, up to 3, + 1; 0: not there */
    uint64_t *left; /* how many had left the small queue when the region did; 0: it did not */
    uint64_t left_count;
    uint32_t frames;
} s3fifo;

static void put_last(queue *q, uint32_t region)
{
    q->numbers[(q->head + q->count++) % q->places] = region;
}

static uint32_t take_first(queue *q)
{
    const uint32_t region = q->numbers[q->head];

    q->head = (q->head + 1) % q->places;
    q->count--;
    return region;
}

/* What was used twice goes to the main queue. Returns whether a region is gone. */
static bool evict_small(s3fifo *c)
{
    const uint32_t region = take_first(&c->small);

    if (c->used[region] > 2) {
        c->used[region] = 1;
        put_last(&c->main, region);
        return false;
    }
    c->used[region] = 0;
    c->left[region] = ++c->left_count;
    return true;
}

static bool evict_main(s3fifo *c)
{
    const uint32_t region = take_first(&c->main);

    if (--c->used[region] == 0)
        return true;
    put_last(&c->main, region);
    return false;
}

static bool replay_s3fifo_map(s3fifo *c, uint32_t region)
{
    const uint32_t small_max = c->frames / 10 > 0 ? c->frames / 10 : 1;
    bool full = c->small.count + c->main.count == c->frames;

    if (c->used[region] != 0) {
        c->used[region] = (uint8_t)(c->used[region] < 4 ? c->used[region] + 1 : 4);
        return true;
    }
    while (full)
        full = !(c->small.count >= small_max || c->main.count == 0 ? evict_small(c) : evict_main(c));
    c->used[region] = 1;
    put_last(c->left[region] != 0 && c->left_count - c->left[region] < c->frames - small_max
                 ? &c->main
                 : &c->small,
             region);
    return false;
}

double region_s3fifo_hits(const region_sequence *s, uint32_t first, uint32_t frames)
{
    s3fifo c = {
        .small = {.numbers = malloc((frames + 1) * sizeof(uint32_t)), .places = frames + 1},
        .main = {.numbers = malloc((frames + 1) * sizeof(uint32_t)), .places = frames + 1},
        .used = calloc(s->regions, sizeof *c.used),
        .left = calloc(s->regions, sizeof *c.left),
        .frames = frames,
    };
    const bool good = c.small.numbers != NULL && c.main.numbers != NULL && c.used != NULL &&
                      c.left != NULL;
    double hits = good ? 0 : -1;

    for (uint32_t i = 0; good && i < s->count; i++) {
        const bool hit = replay_s3fifo_map(&c, s->numbers[i]);

        hits += hit && i >= first;
    }
    free(c.small.numbers);
    free(c.main.numbers);
    free(c.used);
    free(c.left);
    return hits;
}
