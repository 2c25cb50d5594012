/* Which objects get device memory: decayed frequency, with the decay chosen by trial.
 *
 * An acquire reads all bytes of its item, so the bytes of an item are worth the same, and filling
 * the device greedily by worth a byte is the fractional knapsack's optimum; one item is partly in.
 * What is worth most is what will be acquired soonest and most often; Belady's rule (1966; with
 * bypass, as a miss can be read over the link) knows, and a policy guesses from the past.
 *
 * Score. Every acquire adds 1 to an item's score, and all scores halve while half_life budgets'
 * worth of bytes are touched (LRFU, Lee et al. 2001). That clock has no scale: the same pattern on
 * a card and budget ten times larger gives the same plans. Scores are kept as
 * log2(score) + time / half_life, which does not change as time passes, so heaps stay in order by
 * themselves and an acquire costs O(log n). Scores outlive residence: items that are off the device
 * serve as the ghost entries (as in LIRS, Jiang and Zhang 2002, and S3-FIFO, Yang et al. 2023).
 *
 * Price. Displacing costs about one reading of the bytes moved, and an item should earn it (ski
 * rental): its score has to be above that of the victim by price. With price 1 the acquire that asks
 * does not count for itself, so in a cyclic scan, where the object that is acquired is the one that
 * waited longest, nothing moves once the budget is full, and a scan over new items displaces
 * nothing (the doorkeeper of TinyLFU, Einziger et al. 2017). A factor BETTER on top keeps noise
 * from moving equal items. Free budget is filled without asking the price.
 *
 * Trials. With a short half-life and no price what was acquired latest stays, as in LRU: that suits
 * programs that make objects, read them and replace them. With a long half-life and a price what is
 * acquired most often stays: that suits scans, and popularity under noise. So both are tried side by
 * side on all acquires against imaginary devices (no bytes behind them, the same budget). What each
 * rule would have hit, less MOVE_COST of what it would have displaced, is its gain. The plans use the
 * scores and the price of the leader. LRU leads first; another takes the lead when its gain is above
 * the leader's by LEAD_MARGIN, and none is counted as more than LAG_MAX behind. So a rule that suits
 * leads before it has hit more than LEAD_MARGIN + LAG_MAX budgets that the leader missed. This is
 * set duelling (Qureshi et al. 2007), with all objects in each set, as a keeper has too few for
 * samples.
 *
 * Cost. An acquire takes a few heap operations a trial, and more for what it displaces; a change of
 * the leader orders all items again. An item has 200 bytes, however many chunks it has.
 *
 * Hints. HOT counts for several acquires. SCAN counts, but displaces nothing. ONCE does not count,
 * displaces nothing, does not move the clock, and brings nothing back. Growth counts for the acquire after it in advance,
 * and asks at most GROWTH_PRICE, as there is nothing to be copied yet.
 *
 * Invariants, checked by gvmi_policy_check():
 * I1  an entry is used by the item whose index it is, or is on the list of free entries.
 * I2  a heap is ordered, each entry in it has its place, and its order there is the entry's key.
 * I3  a trial has of an item at most its bytes, of all at most the budget; it has in its heap
 *     those of which it has any; used is their sum.
 * I4  resident has the items with bytes on the device; wanted those that are not wholly there and
 *     were acquired (ONCE aside) or grew since they last lost bytes, so that what was taken out by
 *     force, or on request, stays out until somebody wants it. Neither has pinned ones. Both are ordered by the leader's keys.
 * I5  resident_bytes <= bytes; advance is within [0, 1]; the frontier is empty between calls.
 * I6  no key is NaN; the clock is within [0, TIME_MAX], a gain within [-LAG_MAX, LEAD_MARGIN].
 */
#include "keeper/machine/policy.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"

#define NONE UINT32_MAX

/* What a trial does. half_life: of scores, in budgets touched. price: by how many acquires a score
 * must be above that of what it displaces. */
typedef struct trial_rule {
    double half_life, price;
} trial_rule;

static const trial_rule rules[] = {
    {1.0 / 64, 0}, /* the latest acquired, as LRU; leads at first */
    {2, 1},
    {16, 1},
};

#define TRIALS ((uint32_t)(sizeof rules / sizeof rules[0]))

/* Found with `gvmem-bench policy`, and checked with other seeds of its patterns: half or twice of
 * any of them, or of a half-life above, changes the hits on no pattern by more than four parts in a
 * hundred, and on the recorded traces none, but for a half-life of 1 instead of 2 (five parts on
 * one). HOT_WEIGHT and GROWTH_PRICE are judgements; the patterns do not exercise them. */
#define BETTER 1.25      /* a score must be larger by this factor, too */
#define GROWTH_PRICE 0.5 /* at most, for bytes that were never anywhere */
#define HOT_WEIGHT 4.0   /* of an acquire with GVM_HINT_HOT */
#define MOVE_COST 0.1    /* of displacing a byte, in readings: of equals that which moves less */
#define LEAD_MARGIN 0.1  /* of a gain above the leader's to take the lead, in budgets */
#define LAG_MAX 2.0      /* of a gain below the leader's, in budgets */

#define TIME_MAX 0x1p30
#define VISITS_MAX 4096u /* of items, for one plan */
#define CANDIDATES_MAX 16u

typedef struct node {
    double order;
    uint32_t entry;
} node;

/* A binary heap of entries, least order first, that has the place of each entry. */
typedef struct heap {
    node *nodes;
    uint32_t *places; /* of an entry in nodes; NONE: not there */
    uint32_t count;
} heap;

typedef struct entry {
    gvmi_policy_item *item; /* NULL: free */
    uint32_t next_free;
    bool renewed;          /* acquired (ONCE aside) or grown since it last lost bytes */
    double advance;        /* of the next acquire's weight, by growth */
    double keys[TRIALS];   /* log2(score at time t) + t / half_life, the same for every t */
    uint64_t kept[TRIALS]; /* bytes that the trial has on its device */
} entry;

struct gvmi_policy {
    uint64_t budget_bytes;
    double now; /* budgets touched */
    uint32_t capacity, first_free, item_count;
    entry *entries;
    uint32_t leader;
    double gains[TRIALS]; /* in budgets, since the leader had 0 */
    uint64_t used[TRIALS];
    heap kept[TRIALS];
    heap resident; /* least score of the leader first */
    heap wanted;   /* largest score of the leader first */
    heap frontier; /* of a walk; empty between calls */
};

/* ---- heaps */

static void heap_put(heap *h, uint32_t place, node n)
{
    h->nodes[place] = n;
    h->places[n.entry] = place;
}

static void heap_up(heap *h, uint32_t place, node n)
{
    while (place > 0 && n.order < h->nodes[(place - 1) / 2].order) {
        heap_put(h, place, h->nodes[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_put(h, place, n);
}

static void heap_down(heap *h, uint32_t place, node n)
{
    for (;;) {
        uint32_t child = 2 * place + 1;

        if (child >= h->count)
            break;
        if (child + 1 < h->count && h->nodes[child + 1].order < h->nodes[child].order)
            child++;
        if (!(h->nodes[child].order < n.order))
            break;
        heap_put(h, place, h->nodes[child]);
        place = child;
    }
    heap_put(h, place, n);
}

/* Puts an entry in, or moves it where its order now belongs. */
static void heap_set(heap *h, uint32_t index, double order)
{
    uint32_t place = h->places[index];
    node n = {order, index};

    if (place == NONE)
        heap_up(h, h->count++, n);
    else if (order < h->nodes[place].order)
        heap_up(h, place, n);
    else
        heap_down(h, place, n);
}

static void heap_remove(heap *h, uint32_t index)
{
    uint32_t place = h->places[index];
    node last;

    if (place == NONE)
        return;
    h->places[index] = NONE;
    last = h->nodes[--h->count];
    if (last.entry == index)
        return;
    if (place > 0 && last.order < h->nodes[(place - 1) / 2].order)
        heap_up(h, place, last);
    else
        heap_down(h, place, last);
}

static void heap_clear(heap *h)
{
    while (h->count > 0)
        h->places[h->nodes[--h->count].entry] = NONE;
}

static void heap_shift(heap *h, double by)
{
    for (uint32_t i = 0; i < h->count; i++)
        h->nodes[i].order += by;
}

/* Walks a heap in order without changing it: the frontier has places of it whose parents were
 * visited. NONE at the end. */
static void frontier_start(heap *frontier, const heap *h)
{
    heap_clear(frontier);
    if (h->count > 0)
        heap_set(frontier, 0, h->nodes[0].order);
}

static uint32_t frontier_pop(heap *frontier, const heap *h)
{
    uint32_t place;

    if (frontier->count == 0)
        return NONE;
    place = frontier->nodes[0].entry;
    heap_remove(frontier, place);
    for (uint32_t child = 2 * place + 1; child <= 2 * place + 2 && child < h->count; child++)
        heap_set(frontier, child, h->nodes[child].order);
    return h->nodes[place].entry;
}

/* ---- time and scores */

static double score_of(const gvmi_policy *policy, uint32_t trial, double key)
{
    return exp2(key - policy->now / rules[trial].half_life);
}

static double entry_score(const gvmi_policy *policy, uint32_t trial, const entry *s)
{
    return score_of(policy, trial, s->keys[trial]);
}

static double bytes_in_budgets(const gvmi_policy *policy, uint64_t bytes)
{
    return (double)bytes / (double)policy->budget_bytes;
}

/* Only differences of times count, so all may be moved together. Adding the same number to all
 * orders leaves a heap in order. */
static void move_origin(gvmi_policy *policy)
{
    for (uint32_t t = 0; t < TRIALS; t++) {
        double by = policy->now / rules[t].half_life;

        for (uint32_t i = 0; i < policy->capacity; i++)
            if (policy->entries[i].item != NULL)
                policy->entries[i].keys[t] -= by;
        heap_shift(&policy->kept[t], -by);
        if (t == policy->leader) {
            heap_shift(&policy->resident, -by);
            heap_shift(&policy->wanted, by);
        }
    }
    policy->now = 0;
}

static void advance_clock(gvmi_policy *policy, double by)
{
    if (by > TIME_MAX)
        by = TIME_MAX;
    policy->now += by;
    if (policy->now > TIME_MAX)
        move_origin(policy);
}

static bool is_resident(const entry *s)
{
    return !s->item->pinned && s->item->resident_bytes > 0;
}

static bool is_wanted(const entry *s)
{
    return !s->item->pinned && s->renewed && s->item->resident_bytes < s->item->bytes;
}

/* Into or out of the heaps of what is really there. */
static void place_item(gvmi_policy *policy, uint32_t index)
{
    const entry *s = &policy->entries[index];
    double key = s->keys[policy->leader];

    if (is_resident(s))
        heap_set(&policy->resident, index, key);
    else
        heap_remove(&policy->resident, index);
    if (is_wanted(s))
        heap_set(&policy->wanted, index, -key);
    else
        heap_remove(&policy->wanted, index);
}

/* The keys of the leader change with the others; place_item() follows. */
static void add_score(gvmi_policy *policy, uint32_t index, double weight)
{
    entry *s = &policy->entries[index];

    if (!(weight > 0))
        return;
    for (uint32_t t = 0; t < TRIALS; t++) {
        double age = policy->now / rules[t].half_life;

        s->keys[t] = log2(exp2(s->keys[t] - age) + weight) + age;
        if (s->kept[t] > 0)
            heap_set(&policy->kept[t], index, s->keys[t]);
    }
}

static bool is_better_score(double mine, double price, double other)
{
    return mine - price > other * BETTER;
}

/* ---- trials */

static void trial_set_kept(gvmi_policy *policy, uint32_t trial, uint32_t index, uint64_t bytes)
{
    entry *s = &policy->entries[index];

    policy->used[trial] = policy->used[trial] - s->kept[trial] + bytes;
    s->kept[trial] = bytes;
    if (bytes > 0)
        heap_set(&policy->kept[trial], index, s->keys[trial]);
    else
        heap_remove(&policy->kept[trial], index);
}

/* What the trial would do with an item that was just touched. Every round but the last takes an
 * item out wholly that an earlier call had brought in. */
static void try_admit(gvmi_policy *policy, uint32_t trial, uint32_t index, double price, bool displace)
{
    entry *s = &policy->entries[index];
    uint64_t want = s->item->bytes - s->kept[trial];
    uint64_t room = policy->budget_bytes - policy->used[trial];
    uint64_t bring = want < room ? want : room;
    double mine = entry_score(policy, trial, s);
    uint64_t displaced = 0;

    if (bring > 0)
        trial_set_kept(policy, trial, index, s->kept[trial] + bring);
    want -= bring;
    while (displace && want > 0 && policy->kept[trial].count > 0) {
        uint32_t other = policy->kept[trial].nodes[0].entry;
        entry *o = &policy->entries[other];
        uint64_t take = o->kept[trial] < want ? o->kept[trial] : want;

        if (other == index || !is_better_score(mine, price, entry_score(policy, trial, o)))
            break;
        trial_set_kept(policy, trial, other, o->kept[trial] - take);
        trial_set_kept(policy, trial, index, s->kept[trial] + take);
        want -= take;
        displaced += take;
    }
    policy->gains[trial] -= MOVE_COST * bytes_in_budgets(policy, displaced);
}

/* Gains are differences only: the leader's is 0 afterwards. */
static void choose_leader(gvmi_policy *policy)
{
    double gain = policy->gains[policy->leader], most = LEAD_MARGIN;
    uint32_t best = policy->leader;

    for (uint32_t t = 0; t < TRIALS; t++)
        if (policy->gains[t] - gain > most) {
            most = policy->gains[t] - gain;
            best = t;
        }
    gain = policy->gains[best];
    for (uint32_t t = 0; t < TRIALS; t++)
        policy->gains[t] = fmax(policy->gains[t] - gain, -LAG_MAX);
    if (best == policy->leader)
        return;
    policy->leader = best;
    heap_clear(&policy->resident);
    heap_clear(&policy->wanted);
    for (uint32_t i = 0; i < policy->capacity; i++)
        if (policy->entries[i].item != NULL)
            place_item(policy, i);
}

/* ---- life */

gvm_status gvmi_policy_create(uint64_t budget_bytes, gvmi_policy **out)
{
    gvmi_policy *policy = calloc(1, sizeof *policy);

    if (policy == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a policy");
    policy->budget_bytes = budget_bytes > 0 ? budget_bytes : 1;
    policy->first_free = NONE;
    *out = policy;
    return GVM_OK;
}

static void heap_free(heap *h)
{
    free(h->nodes);
    free(h->places);
}

void gvmi_policy_destroy(gvmi_policy *policy)
{
    if (policy == NULL)
        return;
    for (uint32_t t = 0; t < TRIALS; t++)
        heap_free(&policy->kept[t]);
    heap_free(&policy->resident);
    heap_free(&policy->wanted);
    heap_free(&policy->frontier);
    free(policy->entries);
    free(policy);
}

void gvmi_policy_set_budget(gvmi_policy *policy, uint64_t budget_bytes)
{
    policy->budget_bytes = budget_bytes > 0 ? budget_bytes : 1;
    for (uint32_t t = 0; t < TRIALS; t++)
        while (policy->used[t] > policy->budget_bytes) {
            uint32_t least = policy->kept[t].nodes[0].entry;
            uint64_t over = policy->used[t] - policy->budget_bytes;
            uint64_t kept = policy->entries[least].kept[t];

            trial_set_kept(policy, t, least, kept > over ? kept - over : 0);
        }
}

static bool heap_grow(heap *h, uint32_t old, uint32_t capacity)
{
    node *nodes = realloc(h->nodes, capacity * sizeof *nodes);
    uint32_t *places;

    if (nodes == NULL)
        return false;
    h->nodes = nodes;
    places = realloc(h->places, capacity * sizeof *places);
    if (places == NULL)
        return false;
    h->places = places;
    for (uint32_t i = old; i < capacity; i++)
        places[i] = NONE;
    return true;
}

/* On failure some arrays are larger than they need be, which is harmless. */
static gvm_status grow_slots(gvmi_policy *policy)
{
    uint32_t old = policy->capacity, capacity = old > 0 ? 2 * old : 64;
    entry *entries = NULL;
    bool good = capacity > old && capacity < NONE / 2;

    for (uint32_t t = 0; good && t < TRIALS; t++)
        good = heap_grow(&policy->kept[t], old, capacity);
    good = good && heap_grow(&policy->resident, old, capacity) &&
           heap_grow(&policy->wanted, old, capacity) && heap_grow(&policy->frontier, old, capacity);
    if (good)
        entries = realloc(policy->entries, capacity * sizeof *entries);
    if (entries == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for the policy's item %u", old + 1);
    policy->entries = entries;
    for (uint32_t i = capacity; i-- > old;) {
        entries[i] = (entry){.next_free = policy->first_free};
        policy->first_free = i;
    }
    policy->capacity = capacity;
    return GVM_OK;
}

gvm_status gvmi_policy_add(gvmi_policy *policy, gvmi_policy_item *item)
{
    entry *s;

    if (policy->first_free == NONE && grow_slots(policy) != GVM_OK)
        return GVM_E_NOMEM;
    item->index = policy->first_free;
    s = &policy->entries[item->index];
    policy->first_free = s->next_free;
    policy->item_count++;
    *s = (entry){.item = item, .next_free = NONE};
    for (uint32_t t = 0; t < TRIALS; t++)
        s->keys[t] = -INFINITY;
    return GVM_OK;
}

void gvmi_policy_remove(gvmi_policy *policy, gvmi_policy_item *item)
{
    uint32_t index = item->index;
    entry *s = &policy->entries[index];

    GVM_ASSERT(s->item == item);
    for (uint32_t t = 0; t < TRIALS; t++)
        trial_set_kept(policy, t, index, 0);
    heap_remove(&policy->resident, index);
    heap_remove(&policy->wanted, index);
    *s = (entry){.next_free = policy->first_free};
    policy->first_free = index;
    policy->item_count--;
}

static double growth_price(uint32_t trial)
{
    return rules[trial].price < GROWTH_PRICE ? rules[trial].price : GROWTH_PRICE;
}

void gvmi_policy_resize(gvmi_policy *policy, gvmi_policy_item *item, uint64_t bytes)
{
    entry *s = &policy->entries[item->index];
    uint64_t old = item->bytes;
    double weight;

    GVM_ASSERT(s->item == item);
    item->bytes = bytes;
    if (bytes > old) {
        double by = bytes_in_budgets(policy, bytes - old);

        advance_clock(policy, by < 1 ? by : 1);
        weight = (double)(bytes - old) / (double)bytes;
        weight = weight < 1 - s->advance ? weight : 1 - s->advance;
        s->advance += weight;
        add_score(policy, item->index, weight);
        for (uint32_t t = 0; t < TRIALS; t++)
            try_admit(policy, t, item->index, growth_price(t), true);
        item->fresh = true;
        s->renewed = true;
    }
    if (item->resident_bytes > bytes)
        item->resident_bytes = bytes;
    for (uint32_t t = 0; t < TRIALS; t++)
        if (s->kept[t] > bytes)
            trial_set_kept(policy, t, item->index, bytes);
    choose_leader(policy);
    place_item(policy, item->index);
}

void gvmi_policy_resident(gvmi_policy *policy, gvmi_policy_item *item, uint64_t resident_bytes)
{
    entry *s = &policy->entries[item->index];

    GVM_ASSERT(s->item == item);
    if (resident_bytes > item->bytes)
        resident_bytes = item->bytes;
    if (resident_bytes < item->resident_bytes)
        s->renewed = false;
    item->resident_bytes = resident_bytes;
    place_item(policy, item->index);
}

void gvmi_policy_pin(gvmi_policy *policy, gvmi_policy_item *item, bool pinned)
{
    GVM_ASSERT(policy->entries[item->index].item == item);
    item->pinned = pinned;
    place_item(policy, item->index);
}

void gvmi_policy_acquired(gvmi_policy *policy, gvmi_policy_item *item, uint32_t count, gvm_hint hint)
{
    entry *s = &policy->entries[item->index];
    double part = bytes_in_budgets(policy, item->bytes);
    double weight = hint == GVM_HINT_ONCE ? 0 : hint == GVM_HINT_HOT ? HOT_WEIGHT * count : count;
    bool displace = hint != GVM_HINT_SCAN && hint != GVM_HINT_ONCE;

    GVM_ASSERT(s->item == item);
    if (count == 0)
        return;
    item->last_hint = (uint8_t)hint;
    item->acquires += count;
    item->fresh = false;
    s->renewed |= hint != GVM_HINT_ONCE;
    if (weight > 0)
        advance_clock(policy, (part < 1 ? part : 1) * count);
    add_score(policy, item->index, weight - s->advance);
    s->advance = 0;
    for (uint32_t t = 0; t < TRIALS; t++) {
        policy->gains[t] += bytes_in_budgets(policy, s->kept[t]);
        try_admit(policy, t, item->index, rules[t].price, displace);
        policy->gains[t] += bytes_in_budgets(policy, s->kept[t]) * (count - 1);
    }
    choose_leader(policy);
    place_item(policy, item->index);
}

/* ---- plans */

/* x in whole units, downwards or upwards, or all there is. */
static uint64_t units_down(uint64_t x, uint64_t unit, uint64_t all)
{
    return x >= all ? all : unit > 1 ? x - x % unit : x;
}

static uint64_t units_up(uint64_t x, uint64_t unit, uint64_t all)
{
    uint64_t over = unit > 1 ? x % unit : 0;

    if (x >= all)
        return all;
    return over == 0 ? x : all - x < unit - over ? all : x + (unit - over);
}

static uint64_t add_sat(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

typedef enum will { WILL_FILL, WILL_DISPLACE, WILL_FORCE } will;

/* May o be taken for an item of score mine? By force, whatever is not leased may: who asks says that
 * it will read the bytes many times, so that moving them is worth its cost. Victims come by rising score. */
static bool may_evict_entry(const gvmi_policy *policy, const entry *o, double mine, double price,
                            will how)
{
    return how == WILL_FORCE || is_better_score(mine, price, entry_score(policy, policy->leader, o));
}

/* Drops what the last victims give beyond what the plan brings. */
static void trim_plan(gvmi_policy_plan *plan, uint64_t free_bytes, uint64_t sum)
{
    while (plan->victim_count > 0) {
        gvmi_policy_victim *last = &plan->victims[plan->victim_count - 1];
        uint64_t before = add_sat(free_bytes, sum - last->bytes);

        if (before < plan->bring_bytes) {
            last->bytes = units_up(plan->bring_bytes - before, last->item->unit_bytes,
                                   last->item->resident_bytes);
            return;
        }
        sum -= last->bytes;
        plan->victim_count--;
    }
}

static void find_victims(gvmi_policy *policy, const gvmi_policy_item *item, uint64_t free_bytes,
                         double price, will how, gvmi_policy_plan *plan)
{
    const entry *s = &policy->entries[item->index];
    uint64_t want = item->bytes - item->resident_bytes, sum = 0;
    double mine = entry_score(policy, policy->leader, s);
    uint32_t at;

    frontier_start(&policy->frontier, &policy->resident);
    for (uint32_t visits = 0; visits < VISITS_MAX && plan->victim_count < GVMI_POLICY_VICTIMS_MAX &&
                              add_sat(free_bytes, sum) < want;
         visits++) {
        uint64_t need = want - free_bytes - sum, take;
        const entry *o;

        at = frontier_pop(&policy->frontier, &policy->resident);
        if (at == NONE)
            break;
        plan->visits++;
        o = &policy->entries[at];
        plan->passed_moving |= o->item != item && o->item->moving;
        if (o->item == item || o->item->moving)
            continue;
        if (!may_evict_entry(policy, o, mine, price, how))
            break;
        take = units_up(need, o->item->unit_bytes, o->item->resident_bytes);
        /* A unit much larger than what is needed costs more than it brings. */
        if (how != WILL_FORCE && take > need &&
            (double)need * (mine - price) <= (double)take * entry_score(policy, policy->leader, o))
            continue;
        plan->victims[plan->victim_count++] = (gvmi_policy_victim){o->item, take};
        sum = add_sat(sum, take);
    }
    heap_clear(&policy->frontier);
    plan->bring_bytes = units_down(add_sat(free_bytes, sum), item->unit_bytes, want);
    trim_plan(plan, free_bytes, sum);
}

static void make_plan(gvmi_policy *policy, const gvmi_policy_item *item, uint64_t free_bytes,
                      double price, will how, gvmi_policy_plan *plan)
{
    uint64_t want = item->bytes - item->resident_bytes;

    plan->victim_count = 0;
    plan->passed_moving = false;
    plan->bring_bytes = units_down(free_bytes, item->unit_bytes, want);
    if (plan->bring_bytes < want && how != WILL_FILL)
        find_victims(policy, item, free_bytes, price, how, plan);
}

static will expected_use(const gvmi_policy_item *item)
{
    return item->last_hint == GVM_HINT_SCAN || item->last_hint == GVM_HINT_ONCE ? WILL_FILL
                                                                                : WILL_DISPLACE;
}

void gvmi_policy_plan_for(gvmi_policy *policy, gvmi_policy_item *item, uint64_t free_bytes,
                          bool forced, gvmi_policy_plan *plan)
{
    GVM_ASSERT(policy->entries[item->index].item == item);
    plan->visits = 0;
    make_plan(policy, item, free_bytes,
              item->fresh ? growth_price(policy->leader) : rules[policy->leader].price,
              forced ? WILL_FORCE : expected_use(item), plan);
}

gvmi_policy_item *gvmi_policy_plan_next(gvmi_policy *policy, uint64_t free_bytes, gvmi_policy_plan *plan)
{
    gvmi_policy_item *candidates[CANDIDATES_MAX];
    uint32_t count = 0, at;

    plan->visits = 0;
    frontier_start(&policy->frontier, &policy->wanted);
    while (plan->visits < VISITS_MAX && count < CANDIDATES_MAX) {
        at = frontier_pop(&policy->frontier, &policy->wanted);
        if (at == NONE)
            break;
        plan->visits++;
        if (!policy->entries[at].item->moving)
            candidates[count++] = policy->entries[at].item;
    }
    heap_clear(&policy->frontier);
    for (uint32_t i = 0; i < count; i++) {
        double price = rules[policy->leader].price;

        make_plan(policy, candidates[i], free_bytes, price > 1 ? price : 1,
                  expected_use(candidates[i]), plan);
        if (plan->bring_bytes > 0)
            return candidates[i];
    }
    plan->bring_bytes = 0;
    plan->victim_count = 0;
    plan->passed_moving = false;
    return NULL;
}

uint64_t gvmi_policy_plan_shrink(gvmi_policy *policy, uint64_t bytes, gvmi_policy_plan *plan)
{
    uint64_t sum = 0;

    *plan = (gvmi_policy_plan){.bring_bytes = 0};
    frontier_start(&policy->frontier, &policy->resident);
    while (sum < bytes && plan->victim_count < GVMI_POLICY_VICTIMS_MAX) {
        uint32_t at = frontier_pop(&policy->frontier, &policy->resident);
        gvmi_policy_item *item;
        uint64_t take;

        if (at == NONE)
            break;
        plan->visits++;
        item = policy->entries[at].item;
        if (item->moving)
            continue;
        take = units_up(bytes - sum, item->unit_bytes, item->resident_bytes);
        plan->victims[plan->victim_count++] = (gvmi_policy_victim){item, take};
        sum = add_sat(sum, take);
    }
    heap_clear(&policy->frontier);
    return sum;
}

/* ---- the invariants */

static bool check_heap(const gvmi_policy *policy, const heap *h)
{
    uint32_t there = 0;

    for (uint32_t i = 0; i < h->count; i++) {
        const node *n = &h->nodes[i];

        if (n->entry >= policy->capacity || h->places[n->entry] != i ||
            policy->entries[n->entry].item == NULL ||
            (i > 0 && !(h->nodes[(i - 1) / 2].order <= n->order)))
            return false;
    }
    for (uint32_t i = 0; i < policy->capacity; i++)
        there += h->places[i] != NONE;
    return there == h->count;
}

/* The entry is in the heap iff it should be, with the order it should have. */
static bool check_member(const heap *h, uint32_t index, bool wanted, double order)
{
    return (h->places[index] != NONE) == wanted &&
           (!wanted || !(h->nodes[h->places[index]].order != order));
}

static bool check_policy_slot(const gvmi_policy *policy, uint32_t index)
{
    const entry *s = &policy->entries[index];
    const gvmi_policy_item *item = s->item;
    double key = s->keys[policy->leader];

    if (item->index != index || item->resident_bytes > item->bytes ||
        !(s->advance >= 0 && s->advance <= 1))
        return false;
    if (!check_member(&policy->resident, index, is_resident(s), key) ||
        !check_member(&policy->wanted, index, is_wanted(s), -key))
        return false;
    for (uint32_t t = 0; t < TRIALS; t++)
        if (isnan(s->keys[t]) || s->kept[t] > item->bytes ||
            !check_member(&policy->kept[t], index, s->kept[t] > 0, s->keys[t]))
            return false;
    return true;
}

static bool check_trial(const gvmi_policy *policy, uint32_t trial)
{
    uint64_t left = policy->used[trial];

    if (left > policy->budget_bytes ||
        !(policy->gains[trial] >= -LAG_MAX && policy->gains[trial] <= LEAD_MARGIN) ||
        !check_heap(policy, &policy->kept[trial]))
        return false;
    for (uint32_t i = 0; i < policy->capacity; i++) {
        if (policy->entries[i].kept[trial] > left)
            return false;
        left -= policy->entries[i].kept[trial];
    }
    return left == 0;
}

bool gvmi_policy_check(const gvmi_policy *policy)
{
    uint32_t used = 0, unused = 0;

    if (!(policy->now >= 0 && policy->now <= TIME_MAX) || policy->leader >= TRIALS ||
        policy->frontier.count != 0)
        return false;
    for (uint32_t t = 0; t < TRIALS; t++)
        if (!check_trial(policy, t))
            return false;
    for (uint32_t i = 0; i < policy->capacity; i++)
        if (policy->entries[i].item != NULL && (++used, !check_policy_slot(policy, i)))
            return false;
    for (uint32_t i = policy->first_free; i != NONE; i = policy->entries[i].next_free)
        if (i >= policy->capacity || policy->entries[i].item != NULL || ++unused > policy->capacity)
            return false;
    return used == policy->item_count && used + unused == policy->capacity &&
           check_heap(policy, &policy->resident) && check_heap(policy, &policy->wanted);
}
