/* Random query programs on a device, checked against an evaluation on the CPU a row at a time.
 *
 *     query_programs [CASES [SEED]]
 *
 * Goal: the kernels of query/kernels.c have the same results, groups and errors as the CPU, for any program that gquery_check() accepts; and
 * whatever it accepts reads and writes nothing outside. Method: programs of well-typed expressions over columns of all forms, in launches of any
 * number of blocks and threads over parts of the rows; lists with bounds, beginnings and any room; errors are compared as a set, results where there is no error. Then damaged ones, of
 * which those that are accepted run and have to end well. One column ends where its memory does, and canaries stand around all that is
 * written. Case i of a seed is case 0 of the seed + i.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "query/kernels.h"
#include "query/search.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/query_draw.h"

#ifdef __SANITIZE_THREAD__ /* 5 minutes for as many as below */
#define CASES 1000u
#else
#define CASES 3000u
#endif
#define BLOCKS_MAX 6u
#define SHARED_BYTES (48u << 10) /* of a block, but for programs with large stacks */
#define CANARIES 8u
#define CANARY 0x5ca1ab1e0ddba11u
#define SLOTS_MAX 8192u
#define SLOT_WORDS_MAX (1 + GQUERY_KEYS_MAX + GQUERY_STATE_MAX)
#define LAST_BYTES (2ull << 20)
#define SIZE_SAFE 1e308L /* of doubles; above, the order says which partial sums are infinite */
#define WORDS_MAX (SLOTS_MAX * SLOT_WORDS_MAX) /* of the table; of what is collected */

extern const unsigned char gvmi_image_soft_query_kernels[];
extern const unsigned char *const gvmi_image_cuda_query_kernels;

typedef enum kernel { BEGIN, SCAN, REDUCE, COLLECT, KERNELS } kernel;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;
static CUfunction functions[KERNELS];
static gvm_buffer *memory, *last; /* `last` has a column that ends where it does */
static uint64_t state, seed, accepted, full_tables, raised, grouped, overflows, marked, full_lists,
    narrowed;
static uint64_t local, overflown; /* cases with groups in shared memory; with more than fit there */
static gquery_program program;
static gquery_tests tests;  /* of what is sent */
static gquery_program sent; /* the same as the device has it */
static host_table table;
static host_result expected;
static uint64_t words[WORDS_MAX + 2 * CANARIES];
static char problem[512];

/* What a case has on the device: addresses, one behind another. */
static struct {
    uint64_t next, program, error, groups, collected, out, states, bitmaps[2], marked, list;
    gquery_source sources[GQUERY_COLUMNS_MAX];
} on;

#define WRONG(...) (snprintf(problem, sizeof problem, __VA_ARGS__), false)

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

static bool open_device(void)
{
    static const char *const names[KERNELS] = {"query_begin", "query_scan", "query_reduce",
                                               "query_collect"};
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = LAST_BYTES};

    if (!device_open_with_kernels(gvmi_image_soft_query_kernels, gvmi_image_cuda_query_kernels,
                                  &device, &info, &module))
        return false;
    if (module == NULL)
        return true;
    for (int i = 0; i < KERNELS; i++)
        if (gvmi_cu->cuModuleGetFunction(&functions[i], module, names[i]) != CUDA_SUCCESS)
            return false;
    return gvm_buffer_create(device, 4 * sizeof words, NULL, &memory) == GVM_OK &&
           gvm_buffer_commit(memory, 0, 4 * sizeof words) == GVM_OK &&
           gvm_buffer_create(device, 4 * LAST_BYTES, &options, &last) == GVM_OK &&
           gvm_buffer_commit(last, 0, LAST_BYTES) == GVM_OK;
}

/* ---- memory */

static bool copy_in(uint64_t address, const void *data, uint64_t bytes)
{
    return bytes == 0 || gvmi_cu->cuMemcpyHtoD(address, data, bytes) == CUDA_SUCCESS ||
           WRONG("cuMemcpyHtoD fails");
}

/* Room for so many bytes, of 16 at least between two. */
static uint64_t put(const void *data, uint64_t bytes)
{
    const uint64_t at = on.next;

    on.next += (bytes + 47) / 16 * 16;
    if (data != NULL && !copy_in(at, data, bytes))
        tap_bail_out("%s", problem);
    return at;
}

/* Words that kernels write, between canaries. */
static uint64_t put_words(uint64_t count)
{
    for (uint64_t i = 0; i < CANARIES; i++)
        words[i] = words[CANARIES + count + i] = CANARY + i;
    memset(words + CANARIES, 0, count * 8);
    return put(words, (count + 2 * CANARIES) * 8) + CANARIES * 8;
}

/* They are in words[CANARIES...] then. */
static bool take_words(const char *what, uint64_t address, uint64_t count)
{
    const CUresult result = gvmi_cu->cuMemcpyDtoH(words, address - CANARIES * 8,
                                                  (count + 2 * CANARIES) * 8);

    if (result != CUDA_SUCCESS)
        return WRONG("a kernel before %s is read has failed: CUresult %d", what, (int)result);
    for (uint64_t i = 0; i < CANARIES; i++)
        if (words[i] != CANARY + i || words[CANARIES + count + i] != CANARY + i)
            return WRONG("words beside %s have changed", what);
    return true;
}

/* at_end: so that it ends where `last` does, rounded up. */
static uint64_t put_column(const void *data, uint64_t bytes, bool at_end, uint64_t align)
{
    const uint64_t end = gvmi_address(gvm_buffer_address(last)) + LAST_BYTES;
    const uint64_t at = end - (bytes + align - 1) / align * align;

    if (!at_end)
        return put(data, bytes);
    if (!copy_in(at, data, bytes))
        tap_bail_out("%s", problem);
    return at;
}

static void put_columns(void)
{
    const uint32_t at_end = (uint32_t)draw(program.column_count + 1ull);

    memset(on.sources, 0, sizeof on.sources);
    for (uint32_t i = 0; i < program.column_count; i++) {
        const host_column *c = &table.columns[i];
        const uint32_t form = program.columns[i].form;
        const uint64_t bytes = query_values_bytes(form, c, table.rows);
        const bool has_bodies = gquery_is_text(form) && form != GQUERY_TEXT_FIXED;
        const bool bodies_end = has_bodies && draw(2) == 0;

        const uint64_t nulls = c->has_nulls ? put(c->nulls, (table.rows + 7) / 8) : 0;
        const uint64_t values = c->has_values
                                    ? put_column(c->values, bytes, i == at_end && !bodies_end, 1)
                                    : 0;

        on.sources[i] = gquery_source_at(&program.columns[i], values, nulls);
        on.sources[i].bytes = query_text_bytes(form, c);
        if (gquery_is_numbered(&program.columns[i])) { /* any numbers: such a program is not compared */
            on.sources[i].values = put(table.columns[0].values, table.rows * sizeof(uint32_t));
            on.sources[i].form = GQUERY_U32;
            continue;
        }
        if (c->has_values && has_bodies) /* they begin at a word */
            on.sources[i].bodies = put_column(c->bodies, c->bytes, i == at_end && bodies_end,
                                              form == GQUERY_TEXT_BODIES ? 8 : 1);
    }
    for (int i = 0; i < 2; i++)
        on.bitmaps[i] = table.dead_rows[i] > 0 ? put(table.dead[i], (table.dead_rows[i] + 7) / 8) : 0;
}

/* ---- kernels */

static bool launch(kernel which, uint32_t blocks, uint32_t threads, uint64_t shared_bytes, void *params)
{
    void *arguments[] = {params};
    CUresult result = CUDA_SUCCESS;

    if (shared_bytes > SHARED_BYTES)
        result = gvmi_cu->cuFuncSetAttribute(
            functions[which], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared_bytes);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuLaunchKernel(functions[which], blocks, 1, 1, threads, 1, 1,
                                         (unsigned)shared_bytes, NULL, arguments, NULL);
    return result == CUDA_SUCCESS || WRONG("cuLaunchKernel: CUresult %d", (int)result);
}

static uint32_t draw_threads(const gquery_scan *scan)
{
    const uint32_t warp = (uint32_t)info.warp_size;
    uint32_t most = (uint32_t)info.block_threads_max < GQUERY_THREADS ? (uint32_t)info.block_threads_max
                                                                      : GQUERY_THREADS;

    while (most > warp && scan != NULL && gquery_shared_bytes(scan, most) > SHARED_BYTES)
        most -= warp;
    return draw(3) == 0 ? warp : warp * (1 + (uint32_t)draw(most / warp));
}

/* Groups in shared memory, as the executor sets them or fewer, or none. */
static void draw_local(gquery_scan *scan)
{
    static const uint32_t sizes[][2] = {{8, 1},    {8, 4},    {8, 16},  {16, 16},
                                        {128, 16}, {128, 32}, {128, 64}};
    const uint64_t which = draw(sizeof sizes / sizeof sizes[0] + 3);

    if (which < sizeof sizes / sizeof sizes[0]) {
        gquery_place_local(scan, sizes[which][0], sizes[which][1]);
    } else {
        gquery_set_local(scan, (uint32_t)info.warp_size, SHARED_BYTES,
                         draw(2) == 0 ? 0 : 2 * SHARED_BYTES);
    }
    if (gquery_shared_bytes(scan, (uint32_t)info.warp_size) > SHARED_BYTES && scan->local_groups > 0) {
        if (which >= sizeof sizes / sizeof sizes[0])
            tap_bail_out("gquery_set_local() gives a block more than it may have");
        gquery_place_local(scan, 0, 0);
    }
    scan->local_tiles = 1 + (uint32_t)draw(draw(2) == 0 ? 3 : 20);
    local += scan->local_groups > 0;
    overflown += scan->local_groups > 0 && expected.group_count > scan->local_groups;
}

/* All rows, a part at a time: of whole words, if they are marked. */
static bool scan_rows(gquery_scan *scan, uint32_t blocks)
{
    const uint64_t unit = scan->marked != 0 ? 32 : 1;
    bool good = true;

    for (scan->first = 0; good && scan->first < table.rows; scan->first = scan->limit) {
        const uint32_t threads = draw_threads(scan);
        const uint64_t left = table.rows - scan->first;

        scan->limit = scan->first + (draw(2) == 0 ? left : unit * (1 + draw(left) / unit));
        scan->limit = scan->limit < table.rows ? scan->limit : table.rows;
        good = launch(SCAN, blocks, threads, gquery_shared_bytes(scan, threads), scan);
    }
    return good;
}

static gquery_scan scan_of(const gquery_shape *shape)
{
    gquery_scan scan = {
        .program = on.program,
        .dead = on.bitmaps[0],
        .dead_rows = table.dead_rows[0],
        .deleted = on.bitmaps[1],
        .deleted_rows = table.dead_rows[1],
        .error = on.error,
        .depth = shape->depth,
        .state_words = program.state_words,
        .keys = shape->keys,
        .tests = tests,
    };

    memcpy(scan.sources, on.sources, sizeof scan.sources);
    return scan;
}

static bool run_in_one_group(const gquery_shape *shape, uint32_t blocks)
{
    gquery_scan scan = scan_of(shape);
    gquery_begin begin = {.program = on.program,
                          .partial = on.states,
                          .count = blocks,
                          .state_words = program.state_words};
    gquery_reduce reduce = {.program = on.program,
                            .partial = on.states,
                            .error = on.error,
                            .blocks = blocks,
                            .state_words = program.state_words};

    scan.partial = on.states;
    return launch(BEGIN, 2, draw_threads(NULL), 0, &begin) && scan_rows(&scan, blocks) &&
           launch(REDUCE, 1, draw_threads(NULL), 0, &reduce);
}

static bool run_in_groups(const gquery_shape *shape, uint32_t blocks, const gquery_groups *groups)
{
    gquery_scan scan = scan_of(shape);
    gquery_begin begin = {.program = on.program,
                          .groups = on.groups,
                          .keys = shape->keys,
                          .state_words = program.state_words};
    gquery_collect collect = {.groups = on.groups,
                              .out = on.out,
                              .collected = on.collected,
                              .group_pitch = groups->slot_words,
                              .word_pitch = 1,
                              .sums = gquery_double_sums(&program),
                              .error = on.error,
                              .slot_words = groups->slot_words,
                              .keys = shape->keys};

    scan.groups = on.groups;
    draw_local(&scan);
    return copy_in(on.groups, groups, sizeof *groups) &&
           launch(BEGIN, 3, draw_threads(NULL), 0, &begin) && scan_rows(&scan, blocks) &&
           launch(COLLECT, blocks, draw_threads(NULL), 0, &collect);
}

/* ---- results */

static bool sum_is_right(const double_sum *s, double got)
{
    const long double bound = (long double)s->count * 0x1p-52L * s->size;

    if (s->size > SIZE_SAFE)
        return true;
    if (s->has_nan || (s->has_up && s->has_down))
        return isnan(got);
    if (s->has_up || s->has_down)
        return isinf(got) && (got > 0) == s->has_up;
    if (s->size == 0) /* of zeros, as of no number at all: -0 unless one is 0 */
        return got == 0 && (signbit(got) == 0) == s->has_zero;
    return fabsl(s->sum - (long double)got) <= bound;
}

/* Squares of differences do, as those of the numbers do. */
static bool have_room(const double_sum *s)
{
    return s[1].size <= SIZE_SAFE / (4 * ((long double)s->count + 1));
}

/* Of the words, by sums and squares: of numbers whose squares have room. */
static bool moments_are_right(const double_sum *s, uint64_t count, const uint64_t *got)
{
    const long double k = (long double)double_of(got[1]), n = (long double)count;
    const long double sum = s[0].sum - n * k, squares = s[1].sum - 2 * k * s[0].sum + n * k * k;
    const long double sum_bound = (n + 8) * 0x1p-50L * (s[0].size + n * fabsl(k));
    /* The squares of small numbers are 0, or have few bits. */
    const long double squares_bound = (n + 8) * (0x1p-50L * (s[1].size + n * k * k) + 0x1p-1074L);

    if (got[0] != count || (count == 0 && (got[1] | got[2] | got[3]) != 0) ||
        (count > 0 && got[1] == 0))
        return false;
    if (count == 0 || s->has_nan || s->has_up || s->has_down || !have_room(s))
        return true;
    return fabsl(sum - (long double)double_of(got[2])) <= sum_bound &&
           fabsl(squares - (long double)double_of(got[3])) <= squares_bound;
}

static bool states_are_same(const host_group *g, const uint64_t *got)
{
    for (uint32_t i = 0; i < program.code_count; i++) {
        const gquery_instruction *in = &program.code[i];

        if (in->op != GQUERY_AGGREGATE)
            continue;
        if (in->b == GQUERY_MOMENTS_F64
                ? !moments_are_right(&g->sums[in->a], g->state[in->a], &got[in->a])
            : in->b == GQUERY_SUM_F64
                ? !sum_is_right(&g->sums[in->a], double_of(got[in->a]))
                : memcmp(&g->state[in->a], &got[in->a], 8 * gquery_aggregate_words(in->b)) != 0)
            return WRONG("aggregate %u at %u is %#llx and not %#llx", (unsigned)in->b, (unsigned)in->a,
                         (unsigned long long)got[in->a], (unsigned long long)g->state[in->a]);
    }
    return true;
}

static const host_group *find_expected(const uint64_t *slot, uint32_t keys)
{
    for (uint32_t i = 0; i < expected.group_count; i++)
        if (expected.groups[i].nulls == slot[0] &&
            memcmp(expected.groups[i].keys, slot + 1, keys * sizeof *slot) == 0)
            return &expected.groups[i];
    return NULL;
}

/* Those that came out are in words[CANARIES...]. As many are expected, and are different ones: so the same. */
static bool groups_are_same(uint32_t keys, uint64_t count)
{
    static bool seen[ROWS_MAX];
    const uint32_t slot_words = 1 + keys + program.state_words;

    memset(seen, 0, sizeof seen);
    if (count != expected.group_count)
        return WRONG("%llu groups and not %u", (unsigned long long)count,
                     (unsigned)expected.group_count);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t *slot = words + CANARIES + i * slot_words;
        const host_group *g = find_expected(slot, keys);

        if (g == NULL || seen[g - expected.groups])
            return WRONG("group %llu is %s", (unsigned long long)i, g == NULL ? "none" : "there twice");
        seen[g - expected.groups] = true;
        if (!states_are_same(g, slot + 1 + keys))
            return false;
    }
    return true;
}

/* Of a group's sums: an overflow may be raised; is certain, in any order. By groups it is one, too, that a sum is not finite. Of a row with an error
 * kernels may add values that the CPU does not come to. */
static bool may_overflow(const host_group *g, bool in_one_group, bool *is_certain)
{
    bool may = false;

    for (uint32_t i = 0; i < program.code_count; i++) {
        const double_sum *s = &g->sums[program.code[i].a % GQUERY_STATE_MAX];
        const bool is_finite = !s->has_nan && !s->has_up && !s->has_down;

        if (program.code[i].op == GQUERY_AGGREGATE && program.code[i].b == GQUERY_MOMENTS_F64 &&
            !in_one_group) {
            may = may || expected.errors != 0 || !is_finite || !have_room(s);
            *is_certain = *is_certain || !is_finite;
        }
        if (program.code[i].op != GQUERY_AGGREGATE || program.code[i].b != GQUERY_SUM_F64)
            continue;
        may = may || expected.errors != 0 || s->size > SIZE_SAFE || (!in_one_group && !is_finite);
        *is_certain = *is_certain ||
                      (is_finite ? fabsl(s->sum) > 1.001L * (long double)DBL_MAX : !in_one_group);
    }
    return may;
}

/* Of the latest launch. After an error its results are not used and may be incomplete, as a thread reads no more texts. */
static uint32_t raised_error;

static bool read_error(void)
{
    if (!take_words("the error", on.error, 1))
        return false;
    raised_error = (uint32_t)words[CANARIES];
    return true;
}

static bool error_is_right(bool in_one_group)
{
    const uint32_t groups = in_one_group ? 1 : expected.group_count;
    bool is_certain = false, may = false;
    uint32_t error;

    for (uint32_t i = 0; i < groups; i++)
        may = may_overflow(&expected.groups[i], in_one_group, &is_certain) || may;
    if (!read_error())
        return false;
    error = raised_error;
    raised += error != GQUERY_E_NONE;
    overflows += is_certain && expected.errors == 0;
    if (may && error == GQUERY_E_OVERFLOW)
        return true;
    if (is_certain && error == GQUERY_E_NONE)
        return WRONG("a sum overflows, and no error is raised");
    if (expected.errors == 0 ? error != GQUERY_E_NONE
                             : error >= 32 || (expected.errors & 1u << error) == 0)
        return WRONG("error %u, and the CPU has the set %#x", (unsigned)error,
                     (unsigned)expected.errors);
    return true;
}

/* ---- cases */

static bool check_in_one_group(const gquery_shape *shape, bool is_compared)
{
    const uint32_t blocks = 1 + (uint32_t)draw(BLOCKS_MAX);

    on.states = put_words((uint64_t)blocks * program.state_words);
    return run_in_one_group(shape, blocks) && (!is_compared || error_is_right(true)) &&
           take_words("the states", on.states, (uint64_t)blocks * program.state_words) &&
           (!is_compared || raised_error != GQUERY_E_NONE ||
            states_are_same(&expected.groups[0], words + CANARIES));
}

static uint64_t draw_slots(void)
{
    uint64_t slots = 2;

    while (slots < 2 * (expected.group_count + 1ull) && slots < SLOTS_MAX)
        slots *= 2;
    if (draw(5) == 0 && slots > 2) /* too few */
        slots /= 2;
    return slots < SLOTS_MAX && draw(2) == 0 ? slots * 2 : slots;
}

static bool check_in_groups(const gquery_shape *shape, bool is_compared)
{
    const uint64_t slots = draw_slots(), slot_words = 1 + shape->keys + program.state_words;
    gquery_groups groups = {.mask = slots - 1, .max = slots / 2, .slot_words = (uint32_t)slot_words};
    uint64_t count;
    bool may_be_full;

    grouped++;
    groups.slots = put_words(slots * slot_words);
    on.out = put_words(slots / 2 * slot_words);
    on.collected = put_words(1);
    on.groups = put_words(sizeof groups / 8);
    if (!run_in_groups(shape, draw(3) == 0 ? 1 : 1 + (uint32_t)draw(BLOCKS_MAX), &groups) ||
        !take_words("the table", groups.slots, slots * slot_words) ||
        !take_words("the description", on.groups, sizeof groups / 8))
        return false;
    memcpy(&groups, words + CANARIES, sizeof groups);
    full_tables += groups.full;
    if (!take_words("the counter", on.collected, 1))
        return false;
    count = words[CANARIES];
    if (count > groups.max || (groups.full == 0 && count != groups.count))
        return WRONG("%llu groups collected of %llu, where %llu may be", (unsigned long long)count,
                     (unsigned long long)groups.count, (unsigned long long)groups.max);
    may_be_full = expected.errors != 0 || expected.group_count > groups.max;
    if (is_compared && !(groups.full != 0 && may_be_full) && !error_is_right(false))
        return false;
    if (!read_error() || !take_words("what is collected", on.out, slots / 2 * slot_words))
        return false;
    if (!is_compared || raised_error != GQUERY_E_NONE)
        return true;
    if (expected.errors == 0 && groups.full != (expected.group_count > groups.max))
        return WRONG("full is %u, for %u groups of %llu", (unsigned)groups.full,
                     (unsigned)expected.group_count, (unsigned long long)groups.max);
    return expected.errors != 0 || groups.full != 0 || groups_are_same(shape->keys, count);
}

static bool check_marks(const gquery_shape *shape, bool is_compared)
{
    const uint64_t bytes = (table.rows + 31) / 32 * 4, count = (bytes + 7) / 8;
    gquery_scan scan = scan_of(shape);
    uint8_t *found = (uint8_t *)(words + CANARIES);

    marked++;
    on.marked = put_words(count);
    memset(found, 0x5a, count * 8);
    scan.marked = on.marked;
    if (!copy_in(on.marked, found, count * 8) || !scan_rows(&scan, 1 + (uint32_t)draw(BLOCKS_MAX)) ||
        !take_words("the bitmap", on.marked, count))
        return false;
    for (uint64_t i = bytes; i < count * 8; i++)
        if (found[i] != 0x5a)
            return WRONG("a word behind the bitmap has changed");
    for (uint64_t i = 0; i < bytes && is_compared && expected.errors == 0; i++)
        if (found[i] != expected.marked[i])
            return WRONG("byte %llu of the bitmap is %#x and not %#x", (unsigned long long)i,
                         found[i], expected.marked[i]);
    return !is_compared || error_is_right(false);
}

/* ---- lists */

static uint32_t entry_words;

static int compare_entries(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;

    for (uint32_t w = 0; w < entry_words; w++)
        if (a[w] != b[w])
            return a[w] < b[w] ? -1 : 1;
    return 0;
}

/* One of the entries, or beside one. */
static bool draw_edge(int64_t *edge)
{
    if (expected.entry_count == 0 || draw(2) == 0)
        return false;
    memcpy(edge, expected.entries[draw(expected.entry_count)], entry_words * sizeof *edge);
    if (draw(3) == 0) {
        int64_t *word = &edge[draw(entry_words)];

        *word = (int64_t)((uint64_t)*word + draw(3) - 1);
    }
    return true;
}

static void swap_edges(gquery_list *list)
{
    int64_t edge[GQUERY_ENTRY_WORDS_MAX];

    memcpy(edge, list->bound, sizeof edge);
    memcpy(list->bound, list->after, sizeof edge);
    memcpy(list->after, edge, sizeof edge);
}

static gquery_list draw_list(uint32_t count)
{
    gquery_list list = {.words = entry_words,
                        .max = draw(3) == 0 ? draw(count + 1ull) : count + draw(3)};

    for (uint32_t w = 0; w < GQUERY_ENTRY_WORDS_MAX; w++) {
        list.bound[w] = (int64_t)draw(9) - 4;
        list.after[w] = (int64_t)draw(9) - 4;
    }
    list.bounded = draw_edge(list.bound);
    list.continued = draw_edge(list.after);
    if (list.bounded && list.continued && compare_entries(list.bound, list.after) < 0 && draw(9) > 0)
        swap_edges(&list);
    list.entries = put_words(list.max * list.words);
    return list;
}

/* Those of the CPU that belong to the list, in their order. */
static uint32_t keep_expected(const gquery_list *list)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < expected.entry_count; i++) {
        const int64_t *entry = expected.entries[i];

        if ((list->bounded && compare_entries(entry, list->bound) > 0) ||
            (list->continued && compare_entries(entry, list->after) <= 0))
            continue;
        memmove(expected.entries[kept++], entry, sizeof expected.entries[0]);
    }
    qsort(expected.entries, kept, sizeof expected.entries[0], compare_entries);
    return kept;
}

/* `count` of the device are in words[CANARIES...]: different ones, each of them expected. */
static bool entries_are_expected(uint64_t count, uint32_t kept)
{
    static bool seen[ROWS_MAX];

    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < count; i++) {
        const int64_t(*at)[GQUERY_ENTRY_WORDS_MAX] = bsearch(
            words + CANARIES + i * entry_words, expected.entries, kept, sizeof expected.entries[0],
            compare_entries);

        if (at == NULL || seen[at - expected.entries])
            return WRONG("entry %llu is %s", (unsigned long long)i,
                         at == NULL ? "none" : "there twice");
        seen[at - expected.entries] = true;
    }
    return true;
}

static bool check_list(const gquery_shape *shape, bool is_compared)
{
    gquery_scan scan = scan_of(shape);
    gquery_list list, after;
    uint32_t kept;

    entry_words = shape->keys + 1;
    list = draw_list(is_compared ? expected.entry_count : 100);
    on.list = put_words(sizeof list / 8);
    scan.list = on.list;
    if (!copy_in(on.list, &list, sizeof list) || !scan_rows(&scan, 1 + (uint32_t)draw(BLOCKS_MAX)) ||
        !take_words("the list", on.list, sizeof list / 8))
        return false;
    memcpy(&after, words + CANARIES, sizeof after);
    list.count = after.count;
    if (memcmp(&list, &after, sizeof list) != 0)
        return WRONG("more of the list than its count has changed");
    full_lists += after.count > list.max;
    narrowed += after.count > 0 && list.bounded && list.continued;
    if (!take_words("the entries", list.entries, list.max * list.words))
        return false;
    if (!is_compared || expected.errors != 0)
        return !is_compared || error_is_right(false);
    kept = keep_expected(&list);
    if (after.count != kept)
        return WRONG("%llu entries and not %u", (unsigned long long)after.count, (unsigned)kept);
    return entries_are_expected(kept < list.max ? kept : list.max, kept) && error_is_right(false);
}

/* The program over the table, if it is accepted. */
static bool run_program(bool is_damaged)
{
    gquery_shape shape;
    char text[128];

    if (!gquery_check(&program, &shape, text))
        return is_damaged || WRONG("the program is refused: %s", text);
    accepted += is_damaged;
    if (is_damaged)
        expected.group_count = 100, expected.entry_count = 0;
    else
        query_evaluate(&program, &table, shape.keys, &expected);
    on.next = gvmi_address(gvm_buffer_address(memory));
    sent = program;
    tests = gquery_fuse(&sent);
    if (draw(4) == 0) /* the interpreter runs them as well */
        tests.count = tests.end = 0;
    on.program = put(&sent, sizeof sent);
    on.error = put_words(1);
    put_columns();
    return shape.grouped   ? check_in_groups(&shape, !is_damaged)
           : shape.marked  ? check_marks(&shape, !is_damaged)
           : shape.emitted ? check_list(&shape, !is_damaged)
                           : check_in_one_group(&shape, !is_damaged);
}

static bool run_case(uint64_t number)
{
    static gquery_program whole;

    state = number;
    query_draw(&state, &program, &table);
    whole = program;
    if (!run_program(false))
        return false;
    for (int i = 0; i < 6; i++) {
        program = whole;
        query_damage(&state, &program);
        if (!run_program(true))
            return false;
    }
    return true;
}

static bool run_cases(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!run_case(seed + i)) {
            printf("# case of the seed %llu, %llu rows: %s\n", (unsigned long long)(seed + i),
                   (unsigned long long)table.rows, problem);
            return false;
        }
    printf("# %llu in groups, %llu of these in shared memory, %llu in part; %llu with errors, %llu full tables; %llu sums that overflow; "
           "%llu bitmaps; %llu full lists, %llu with two ends; %llu damaged ones accepted\n",
           (unsigned long long)grouped, (unsigned long long)local, (unsigned long long)overflown,
           (unsigned long long)raised, (unsigned long long)full_tables,
           (unsigned long long)overflows, (unsigned long long)marked, (unsigned long long)full_lists,
           (unsigned long long)narrowed, (unsigned long long)accepted);
    return true;
}

/* ---- what is refused */

#define VALUE \
    { \
        .op = GQUERY_CONSTANT \
    }
#define COUNT \
    { \
        .op = GQUERY_AGGREGATE, .b = GQUERY_COUNT_ROWS \
    }
#define FUNCTION(function, parameter) \
    { \
        .op = GQUERY_FUNCTION, .b = function, .value = parameter \
    }

static const struct check_case {
    const char *what;
    bool is_accepted;
    uint32_t state_words;
    gquery_column column;
    gquery_instruction code[12]; /* up to one of operation 0 */
} check_cases[] = {
    {"MARK", true, 0, {0}, {{.op = GQUERY_MARK}}},
    {"MARK twice", false, 0, {0}, {{.op = GQUERY_MARK}, {.op = GQUERY_MARK}}},
    {"MARK before a value", false, 0, {0}, {{.op = GQUERY_MARK}, VALUE}},
    {"MARK after GROUP", false, 0, {0}, {VALUE, {.op = GQUERY_GROUP, .a = 1}, {.op = GQUERY_MARK}}},
    {"MARK after an aggregate", false, 1, {0}, {COUNT, {.op = GQUERY_MARK}}},
    {"MARK before an aggregate", false, 1, {0}, {{.op = GQUERY_MARK}, COUNT}},
    {"MARK within IF", false, 0, {0}, {VALUE, {.op = GQUERY_IF}, {.op = GQUERY_MARK}, {.op = GQUERY_END}}},
    {"EMIT", true, 0, {0}, {VALUE, VALUE, {.op = GQUERY_EMIT, .a = 1}}},
    {"EMIT of no value", false, 0, {0}, {VALUE, {.op = GQUERY_EMIT}}},
    {"EMIT of more than there are", false, 0, {0}, {VALUE, {.op = GQUERY_EMIT, .a = 2}}},
    {"EMIT of eight",
     true,
     0,
     {0},
     {VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, {.op = GQUERY_EMIT, .a = 8}}},
    {"EMIT of nine",
     false,
     0,
     {0},
     {VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, VALUE, {.op = GQUERY_EMIT, .a = 9}}},
    {"EMIT before a mark", false, 0, {0}, {VALUE, {.op = GQUERY_EMIT, .a = 1}, {.op = GQUERY_MARK}}},
    {"EMIT after an aggregate", false, 1, {0}, {VALUE, COUNT, {.op = GQUERY_EMIT, .a = 1}}},
    {"a shift", true, 0, {0}, {VALUE, VALUE, FUNCTION(GQUERY_SHIFT_LEFT, 32), {.op = GQUERY_EMIT, .a = 1}}},
    {"a shift by one value", false, 0, {0}, {VALUE, FUNCTION(GQUERY_SHIFT_LEFT, 32)}},
    {"a shift of 8 bits", false, 0, {0}, {VALUE, VALUE, FUNCTION(GQUERY_SHIFT_RIGHT, 8)}},
    {"a quotient by 0", false, 0, {0}, {VALUE, FUNCTION(GQUERY_FLOOR_I64, 0)}},
    {"a quotient by 10^18",
     true,
     0,
     {0},
     {VALUE, FUNCTION(GQUERY_RATIO_F64, 1000000000000000000), {.op = GQUERY_EMIT, .a = 1}}},
    {"a quotient by too much", false, 0, {0}, {VALUE, FUNCTION(GQUERY_RATIO_F64, 1000000000000000001)}},
    {"one of no words", true, 0, {0}, {VALUE, FUNCTION(GQUERY_FIND_I64, 0), {.op = GQUERY_EMIT, .a = 1}}},
    {"one of words that are not there", false, 0, {0}, {VALUE, FUNCTION(GQUERY_FIND_I64, UINT64_C(1) << 32)}},
    {"no function", false, 0, {0}, {VALUE, VALUE, FUNCTION(GQUERY_FUNCTIONS, 1)}},
    {"EMIT within IF",
     false,
     0,
     {0},
     {VALUE, {.op = GQUERY_IF}, VALUE, {.op = GQUERY_EMIT, .a = 1}, {.op = GQUERY_END}}},
    {"a key with -0", true, 0, {0}, {VALUE, {.op = GQUERY_ORDER_KEY, .b = 1}}},
    {"a key of a third kind", false, 0, {0}, {VALUE, {.op = GQUERY_ORDER_KEY, .b = 2}}},
    {"a product of decimals",
     true,
     0,
     {.form = GQUERY_DECIMAL},
     {VALUE, VALUE, {.op = GQUERY_MULTIPLY, .b = GQUERY_ARITHMETIC_DECIMAL}}},
    {"a quotient of decimals",
     false,
     0,
     {.form = GQUERY_DECIMAL},
     {VALUE, VALUE, {.op = GQUERY_DIVIDE, .b = GQUERY_ARITHMETIC_DECIMAL}}},
    {"a distance", true, 0, {.table = GQUERY_DISTANCE, .number = 3, .form = GQUERY_F64}, {VALUE}},
    {"a fifth distance", false, 0, {.table = GQUERY_DISTANCE, .number = 4, .form = GQUERY_F64}, {VALUE}},
    {"a distance of integers", false, 0, {.table = GQUERY_DISTANCE, .form = GQUERY_I64}, {VALUE}},
    {"a number of a text as a key",
     true,
     0,
     {.form = GQUERY_TEXT_BODIES, .bias = GQUERY_NUMBERED | GQUERY_NUMBERED_FLAGS},
     {{.op = GQUERY_LOAD}, {.op = GQUERY_GROUP, .a = 1}}},
    {"a filter after a number of a text",
     false,
     0,
     {.form = GQUERY_TEXT_BODIES, .bias = GQUERY_NUMBERED},
     {{.op = GQUERY_LOAD}, VALUE, {.op = GQUERY_FILTER}, {.op = GQUERY_GROUP, .a = 1}}},
    {"a join after a number of a text",
     false,
     0,
     {.form = GQUERY_TEXT_BODIES, .bias = GQUERY_NUMBERED},
     {{.op = GQUERY_LOAD}, {.op = GQUERY_PROBE, .a = 1, .b = 1}, VALUE, {.op = GQUERY_GROUP, .a = 1}}},
    {"a text as a key",
     false,
     0,
     {.form = GQUERY_TEXT_BODIES},
     {{.op = GQUERY_LOAD}, {.op = GQUERY_GROUP, .a = 1}}},
    {"a number of a text of a third kind",
     false,
     0,
     {.form = GQUERY_TEXT_FIXED, .bias = GQUERY_NUMBERED | GQUERY_TEXT_UTF8},
     {{.op = GQUERY_LOAD}, {.op = GQUERY_GROUP, .a = 1}}},
    {"a number of a text without groups",
     false,
     0,
     {.form = GQUERY_TEXT_OFFSETS, .bias = GQUERY_NUMBERED},
     {{.op = GQUERY_LOAD}, {.op = GQUERY_EMIT, .a = 1}}},
    {"whether the number of a text is NULL",
     false,
     0,
     {.form = GQUERY_TEXT_OFFSETS, .bias = GQUERY_NUMBERED},
     {{.op = GQUERY_LOAD_NULL}, {.op = GQUERY_GROUP, .a = 1}}},
    {"the length of a number of a text",
     false,
     0,
     {.form = GQUERY_TEXT_OFFSETS, .bias = GQUERY_NUMBERED},
     {{.op = GQUERY_TEXT, .b = GQUERY_TEXT_LENGTH}, {.op = GQUERY_GROUP, .a = 1}}},
    {"8 bytes of a text",
     true,
     0,
     {.form = GQUERY_TEXT_OFFSETS},
     {{.op = GQUERY_TEXT, .b = GQUERY_TEXT_WORD | GQUERY_TEXT_UPPER, .value = UINT32_MAX},
      {.op = GQUERY_EMIT, .a = 1}}},
    {"8 bytes of a text behind all",
     false,
     0,
     {.form = GQUERY_TEXT_OFFSETS},
     {{.op = GQUERY_TEXT, .b = GQUERY_TEXT_WORD, .value = UINT64_C(1) << 32}}},
    {"a tenth table", false, 0, {.table = GQUERY_TABLES_MAX, .form = GQUERY_F64}, {VALUE}},
};

static bool check_refuses(void)
{
    gquery_shape shape;
    char text[128];

    for (size_t i = 0; i < sizeof check_cases / sizeof check_cases[0]; i++) {
        const struct check_case *c = &check_cases[i];

        memset(&program, 0, sizeof program);
        program.column_count = 1;
        program.columns[0] = c->column;
        program.state_words = c->state_words;
        memcpy(program.code, c->code, sizeof c->code);
        while (program.code[program.code_count].op != 0)
            program.code_count++;
        if (gquery_check(&program, &shape, text) != c->is_accepted) {
            printf("# %s is %s\n", c->what, c->is_accepted ? text : "accepted");
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    const uint64_t cases = argc > 1 ? strtoull(argv[1], NULL, 0) : CASES;

    seed = random_seed(argc > 2 ? argv[2] : NULL);
    printf("# seed %llu\n", (unsigned long long)seed);
    fixture_machine_drawn(seed);
    if (!open_device())
        tap_bail_out("the device cannot be used");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for this device");
    tap_result(check_refuses(), "results_are_accepted_one_at_a_time_and_in_their_place");
    tap_result(run_cases(cases), "programs_of_random_expressions_give_what_the_cpu_gives");
    tap_result(cases < 1000 ||
                   (grouped > 0 && local > 0 && overflown > 0 && raised > 0 && full_tables > 0 &&
                    accepted > 0 && overflows > 0 && marked > 0 && full_lists > 0 && narrowed > 0),
               "programs_of_all_kinds_have_run");
    gvm_buffer_destroy(last);
    gvm_buffer_destroy(memory);
    gvm_device_close(device);
    return tap_finish();
}
