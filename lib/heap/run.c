/* The lowest run of so many free units of one segment, without a walk through the map.
 *
 * A tree is built over the words of the map. Each node has, of its units, how many are free at the
 * lower end, at the upper end, and in the longest run. A search goes down from the root: into the
 * lower half if its longest run is long enough, else to the run across the middle if that is, else
 * into the upper half. That is the lowest run: one across the middle begins no lower than any run
 * inside of the lower half.
 *
 * Taking and freeing only mark the words that they change; the next search brings the nodes above them up
 * to date, each once. So small requests, which search in the buddy, update no node.
 *
 * R1  a node that is not above, or at, a marked word agrees with the map.
 */
#include <string.h>

#include "base/assert.h"
#include "heap/heap.h"

#define WORD 64u

/* The bits from which a run of so many set bits begins; 1 to 64. */
static uint64_t run_starts(uint64_t word, uint32_t units)
{
    uint32_t have = 1;

    while (have < units) {
        const uint32_t step = have < units - have ? have : units - have;

        word &= word >> step;
        have += step;
    }
    return word;
}

static uint32_t longest_in(uint64_t word)
{
    uint64_t starts[6]; /* of runs of 2^i */
    uint64_t found = ~0ull;
    uint32_t longest = 0;

    if (word == 0 || word == ~0ull)
        return word != 0 ? WORD : 0;
    starts[0] = word;
    for (unsigned i = 1; i < 6; i++)
        starts[i] = starts[i - 1] & starts[i - 1] >> (1u << (i - 1));
    for (unsigned i = 6; i-- > 0;) {
        const uint64_t longer = found & starts[i] >> longest;

        if (longer != 0) {
            found = longer;
            longest += 1u << i;
        }
    }
    return longest;
}

static gvmi_run_node run_node_of_word(uint64_t word)
{
    if (word == ~0ull)
        return (gvmi_run_node){WORD, WORD, WORD};
    return (gvmi_run_node){
        .low = (uint32_t)__builtin_ctzll(~word),
        .high = (uint32_t)__builtin_clzll(~word),
        .longest = longest_in(word),
    };
}

/* units: of each half. */
static gvmi_run_node join_run_nodes(const gvmi_run_node *lower, const gvmi_run_node *upper,
                                    uint32_t units)
{
    gvmi_run_node node = {
        .low = lower->low == units ? units + upper->low : lower->low,
        .high = upper->high == units ? units + lower->high : upper->high,
        .longest = lower->high + upper->low,
    };

    if (lower->longest > node.longest)
        node.longest = lower->longest;
    if (upper->longest > node.longest)
        node.longest = upper->longest;
    return node;
}

static gvmi_run_node compute_run_node(const gvmi_runs *runs, const uint64_t *map, uint32_t node)
{
    if (node >= runs->leaves)
        return run_node_of_word(map[node - runs->leaves]);
    return join_run_nodes(&runs->nodes[2 * node], &runs->nodes[2 * node + 1],
                          runs->leaves * WORD >> (32 - (unsigned)__builtin_clz(node)));
}

void gvmi_runs_init(gvmi_runs *runs, const uint64_t *map, uint32_t units)
{
    const uint32_t words = (units + WORD - 1) / WORD;

    memset(runs, 0, sizeof *runs);
    runs->leaves = 1;
    while (runs->leaves < words)
        runs->leaves *= 2;
    for (uint32_t node = 2 * runs->leaves; node-- > 1;)
        runs->nodes[node] = compute_run_node(runs, map, node);
}

/* One level of the tree, which begins at a node of that number; marks the parents of what has changed in the same
 * bitmap: a parent's bit lies in no later word than its children's. False: nothing has changed. */
static bool refresh_runs_level(gvmi_runs *runs, const uint64_t *map, uint32_t first)
{
    bool changed = false;

    for (uint32_t word = 0; word < (first + WORD - 1) / WORD; word++) {
        uint64_t bits = runs->stale[word];

        runs->stale[word] = 0;
        for (; bits != 0; bits &= bits - 1) {
            const uint32_t at = word * WORD + (uint32_t)__builtin_ctzll(bits);
            const gvmi_run_node node = compute_run_node(runs, map, first + at);

            if (memcmp(&runs->nodes[first + at], &node, sizeof node) == 0)
                continue;
            runs->nodes[first + at] = node;
            runs->stale[at / 2 / WORD] |= 1ull << at / 2 % WORD;
            changed = true;
        }
    }
    return changed;
}

static void refresh_runs(gvmi_runs *runs, const uint64_t *map)
{
    uint32_t first = runs->leaves;

    if (!runs->any_stale)
        return;
    while (refresh_runs_level(runs, map, first) && first > 1)
        first /= 2;
    runs->stale[0] = 0; /* the root has no parent */
    runs->any_stale = false;
}

bool gvmi_runs_lowest(gvmi_runs *runs, const uint64_t *map, uint32_t units, uint32_t *first)
{
    uint32_t node = 1, at = 0, half = runs->leaves * WORD / 2;

    refresh_runs(runs, map);
    if (runs->nodes[1].longest < units)
        return false;
    for (; node < runs->leaves; half /= 2) {
        const gvmi_run_node *lower = &runs->nodes[2 * node], *upper = lower + 1;

        if (lower->longest >= units) {
            node = 2 * node;
        } else if (lower->high + upper->low >= units) {
            *first = at + half - lower->high;
            return true;
        } else {
            node = 2 * node + 1;
            at += half;
        }
    }
    *first = at + (uint32_t)__builtin_ctzll(run_starts(map[node - runs->leaves], units));
    return true;
}

bool gvmi_runs_check(gvmi_runs *runs, const uint64_t *map)
{
    refresh_runs(runs, map);
    for (uint32_t node = 1; node < 2 * runs->leaves; node++) {
        const gvmi_run_node made = compute_run_node(runs, map, node);

        if (memcmp(&runs->nodes[node], &made, sizeof made) != 0)
            return false;
    }
    return true;
}
