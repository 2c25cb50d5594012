/* The library of plcuda's kernels (postgres/plcuda/device), checked against plain loops.
 *
 *     plcuda_library [ROUNDS [SEED]]
 *
 * Goal: what the headers say, for any values and blocks of any size: also of a single thread, and with a last warp that is not whole;
 * numerics become the double that strtod() gives, or is known exactly. Method: a launch a round, of several blocks; the host makes the answers again. Values of
 * floating point are integers, whose sums are exact. What SQL has is compared with SQL, in tests/postgres/sql/plcuda_library.sql.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"
#include "postgres/plcuda/device/numeric.h"
#include "postgres/plcuda/device/sort.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/plcuda_library_kernels.h"

#define BLOCKS 3u
#define BLOCK_THREADS_MAX 1024u
#define THREADS_MAX (BLOCKS * BLOCK_THREADS_MAX)
#define PAIRS_MAX 3000u
#define K_MAX 40u
#define MEMORY_BYTES ((uint64_t)8 << 20)
#define TO_AT ((uint64_t)1 << 20) /* of what kernels write, in that memory */
#define NUMERICS_A_ROUND 2000

extern const unsigned char gvmi_image_soft_plcuda_library_kernels[];
extern const unsigned char *const gvmi_image_cuda_plcuda_library_kernels;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUdevice ordinal;
static CUmodule module;
static CUdeviceptr memory;
static uint64_t state;

static uint64_t draw(uint64_t bound)
{
    return random_next(&state) % bound;
}

/* False: the build has no kernels for this device. */
static bool open_gpu(void)
{
    CUcontext context;
    const unsigned char *image;

    if (gvm_device_open(0, &device) != GVM_OK || gvm_device_get_info(device, &info) != GVM_OK)
        tap_bail_out("there is no device");
    image = info.software ? gvmi_image_soft_plcuda_library_kernels
                          : gvmi_image_cuda_plcuda_library_kernels;
    if (image == NULL)
        return false;
    if (gvmi_cu->cuDeviceGet(&ordinal, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuDevicePrimaryCtxRetain(&context, ordinal) != CUDA_SUCCESS ||
        gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS ||
        gvmi_cu->cuModuleLoadData(&module, image) != CUDA_SUCCESS ||
        gvmi_cu->cuMemAlloc(&memory, MEMORY_BYTES) != CUDA_SUCCESS)
        tap_bail_out("the kernels cannot be loaded");
    return true;
}

static void close_gpu(void)
{
    CUcontext context;

    if (memory != 0) {
        gvmi_cu->cuMemFree(memory);
        gvmi_cu->cuModuleUnload(module);
        gvmi_cu->cuCtxPopCurrent(&context);
        gvmi_cu->cuDevicePrimaryCtxRelease(ordinal);
    }
    gvm_device_close(device);
}

static bool launch(const char *kernel, uint32_t blocks, uint32_t block_threads, void *params)
{
    void *arguments[] = {params};
    CUfunction function;

    if (gvmi_cu->cuModuleGetFunction(&function, module, kernel) == CUDA_SUCCESS &&
        gvmi_cu->cuLaunchKernel(function, blocks, 1, 1, block_threads, 1, 1, 0, NULL, arguments,
                                NULL) == CUDA_SUCCESS)
        return true;
    printf("# %s cannot be launched\n", kernel);
    return false;
}

static uint32_t draw_block(void)
{
    const uint32_t most = info.block_threads_max < (int)BLOCK_THREADS_MAX
                              ? (uint32_t)info.block_threads_max
                              : BLOCK_THREADS_MAX;

    return 1 + (uint32_t)draw(most);
}

/* ---- reductions */

/* What each member should be. Values are cast as the kernel casts them. */
#define EXPECT(letters, type) \
    static bool letters##_is_right(const library_answers *all, const int32_t *values, \
                                   uint32_t block_threads, uint32_t thread, uint32_t warp_size) \
    { \
        const uint32_t block = thread - thread % block_threads, \
                       first = thread - thread % block_threads % warp_size; \
        const uint32_t end = block + block_threads; \
        library_##letters a; \
        memset(&a, 0, sizeof a); \
        a.value = (type)values[thread]; \
        a.warp_min = a.warp_max = (type)values[first]; \
        a.block_min = a.block_max = (type)values[block]; \
        for (uint32_t i = block; i < end; i++) { \
            const type v = (type)values[i]; \
            const bool in_warp = i >= first && i < first + warp_size; \
            a.block_min = v < a.block_min ? v : a.block_min; \
            a.block_max = v > a.block_max ? v : a.block_max; \
            a.warp_min = in_warp && v < a.warp_min ? v : a.warp_min; \
            a.warp_max = in_warp && v > a.warp_max ? v : a.warp_max; \
            a.block_sum = (type)(a.block_sum + v); \
            a.warp_sum = (type)(a.warp_sum + (in_warp ? v : 0)); \
            a.warp_exclusive = (type)(a.warp_exclusive + (in_warp && i < thread ? v : 0)); \
            a.block_exclusive = (type)(a.block_exclusive + (i < thread ? v : 0)); \
        } \
        a.warp_inclusive = (type)(a.warp_exclusive + a.value); \
        a.block_inclusive = (type)(a.block_exclusive + a.value); \
        a.total = a.block_sum; \
        return memcmp(&a, &all[thread].letters, sizeof a) == 0; \
    }
EXPECT(i32, int32_t)
EXPECT(u32, uint32_t)
EXPECT(i64, int64_t)
EXPECT(u64, uint64_t)
EXPECT(f32, float)
EXPECT(f64, double)
#undef EXPECT

static uint32_t count_odd(const int32_t *values, uint32_t from, uint32_t end)
{
    uint32_t n = 0;

    for (; from < end; from++)
        n += (uint32_t)values[from] & 1;
    return n;
}

static bool check_reductions(void)
{
    static int32_t values[THREADS_MAX];
    static library_answers answers[THREADS_MAX];
    const uint32_t warp = (uint32_t)info.warp_size, block_threads = draw_block();
    const uint64_t bytes = sizeof values[0] * BLOCKS * block_threads;
    library_reduce_params params = {memory, memory + TO_AT};

    for (uint32_t i = 0; i < BLOCKS * block_threads; i++)
        values[i] = (int32_t)draw(8000) - 4000; /* sums of floats are below 2^24 */
    memset(answers, 0, sizeof answers);
    if (gvmi_cu->cuMemcpyHtoD(memory, values, bytes) != CUDA_SUCCESS ||
        gvmi_cu->cuMemcpyHtoD(memory + TO_AT, answers, sizeof answers) != CUDA_SUCCESS ||
        !launch("library_reduce", BLOCKS, block_threads, &params) ||
        gvmi_cu->cuMemcpyDtoH(answers, memory + TO_AT, sizeof answers) != CUDA_SUCCESS)
        return false;
    for (uint32_t t = 0; t < BLOCKS * block_threads; t++) {
        const uint32_t block = t - t % block_threads, first = t - t % block_threads % warp;
        const uint32_t end = block + block_threads, warp_end = first + warp < end ? first + warp : end;

        if (!i32_is_right(answers, values, block_threads, t, warp) ||
            !u32_is_right(answers, values, block_threads, t, warp) ||
            !i64_is_right(answers, values, block_threads, t, warp) ||
            !u64_is_right(answers, values, block_threads, t, warp) ||
            !f32_is_right(answers, values, block_threads, t, warp) ||
            !f64_is_right(answers, values, block_threads, t, warp) ||
            answers[t].warp_odd != count_odd(values, first, warp_end) ||
            answers[t].block_odd != count_odd(values, block, end)) {
            printf("# thread %u of blocks of %u: not what plain loops give\n", t, block_threads);
            return false;
        }
    }
    return true;
}

/* ---- sorting */

static int compare_pairs(const void *a, const void *b)
{
    const plcuda_pair *x = a, *y = b;

    return plcuda_pair_is_before(*x, *y) ? -1 : plcuda_pair_is_before(*y, *x);
}

/* The result of a kernel: wanted, and the next bytes as they were. */
static bool check_pairs(const char *what, uint64_t at, const plcuda_pair *wanted, uint64_t count)
{
    static plcuda_pair got[PAIRS_MAX];

    if (gvmi_cu->cuMemcpyDtoH(got, memory + at, count * sizeof got[0]) == CUDA_SUCCESS &&
        memcmp(got, wanted, count * sizeof got[0]) == 0)
        return true;
    printf("# %s of %" PRIu64 " pairs: not what qsort() gives\n", what, count);
    return false;
}

static bool send_pairs(const plcuda_pair *pairs)
{
    return gvmi_cu->cuMemcpyHtoD(memory, pairs, PAIRS_MAX * sizeof *pairs) == CUDA_SUCCESS;
}

static bool check_sorting(void)
{
    static plcuda_pair pairs[PAIRS_MAX], sorted[PAIRS_MAX + K_MAX];
    const uint64_t keys = draw(2) == 0 ? 10 : UINT64_MAX;
    library_sort_params params = {.pairs = memory,
                                  .to = memory + TO_AT,
                                  .count = draw(draw(4) == 0 ? PAIRS_MAX : 70),
                                  .slices = 1 + (uint32_t)draw(9),
                                  .k = 1 + (uint32_t)draw(K_MAX)};

    for (uint64_t i = 0; i < PAIRS_MAX; i++) /* those behind the count are the smallest: they must stay */
        pairs[i] = i < params.count ? (plcuda_pair){draw(keys), draw(keys)} : (plcuda_pair){0, 0};
    memcpy(sorted, pairs, sizeof pairs);
    qsort(sorted, params.count, sizeof *sorted, compare_pairs);
    if (!send_pairs(pairs) || !launch("library_block_sort", 1, draw_block(), &params) ||
        !check_pairs("block sort", 0, sorted, PAIRS_MAX))
        return false;
    if (!send_pairs(pairs) ||
        !launch("library_sort_slices", 1 + (uint32_t)draw(5), draw_block(), &params) ||
        !launch("library_merge_slices", 1 + (uint32_t)draw(5), draw_block(), &params) ||
        !check_pairs("sort in slices", TO_AT, sorted, params.count))
        return false;
    for (uint64_t i = params.count; i < params.count + params.k; i++)
        sorted[i] = (plcuda_pair){UINT64_MAX, UINT64_MAX};
    return send_pairs(pairs) && launch("library_block_topk", 1, draw_block(), &params) &&
           check_pairs("smallest, by a block,", TO_AT, sorted, params.k) &&
           launch("library_warp_topk", 1, draw_block(), &params) &&
           check_pairs("smallest, by a warp,", TO_AT, sorted, params.k);
}

/* ---- numeric */

/* A numeric as PostgreSQL has it and as text, and the double nearest to it. */
static struct {
    char value[2000], text[4000];
    uint32_t length; /* of the value */
    double nearest;
} drawn;

/* Digits of base 10000, the first of a random power. */
static void draw_varlena(void)
{
    char *const value = drawn.value, *const text = drawn.text;
    const bool negative = draw(2) == 0;
    const uint32_t count = 1 + (uint32_t)draw(draw(20) == 0 ? 300 : 12);
    const int32_t range = draw(3) == 0 ? 85 : 6, power = (int32_t)draw(2 * (uint64_t)range) - range;
    const bool is_short = power >= -64 && power < 64 && draw(2) == 0;
    uint32_t at = is_short ? 2 : 4;
    unsigned head;
    int n;

    head = is_short ? 0x8000u | (negative ? 0x2000u : 0) | ((unsigned)power & 0x7f)
                    : (negative ? 0x4000u : 0);
    value[0] = (char)head;
    value[1] = (char)(head >> 8);
    if (!is_short) {
        value[2] = (char)power;
        value[3] = (char)(power >> 8);
    }
    n = sprintf(text, "%s0.", negative ? "-" : "");
    for (uint32_t i = 0; i < count; i++, at += 2) {
        const unsigned digit = draw(4) == 0 ? (i == 0)
                                            : (unsigned)(draw(8) == 0 ? 9999 : draw(9999) + 1);

        value[at] = (char)digit;
        value[at + 1] = (char)(digit >> 8);
        n += sprintf(text + n, "%04u", digit);
    }
    sprintf(text + n, "e%d", 4 * (power + 1));
    drawn.nearest = strtod(text, NULL);
    drawn.length = at;
}

/* A number as text with a point and digits behind it, so many that their number is a multiple of 4, to PostgreSQL's form. */
static uint32_t encode_text(const char *text, char *value)
{
    const size_t whole = strcspn(text, "."), skip = (4 - whole % 4) % 4, length = strlen(text);
    uint32_t at = 4;

    memset(value, 0, 4);
    value[2] = (char)((whole + 3) / 4 - 1);
    for (size_t i = 0, in_digit = skip, digit = 0; i < length; i++) {
        if (text[i] == '.')
            continue;
        digit = digit * 10 + (size_t)(text[i] - '0');
        if (++in_digit == 4) {
            value[at++] = (char)digit;
            value[at++] = (char)(digit >> 8);
            in_digit = digit = 0;
        }
    }
    return at;
}

/* Exactly between two doubles, or a little beside: what rounds half to even. A long double has bits enough to be rounded in hardware. */
static void draw_half(void)
{
    char *const text = drawn.text;
    const uint64_t odd = draw((uint64_t)1 << 54) >> (draw(3) == 0 ? draw(54) : 0) |
                         (draw(3) > 0 ? (uint64_t)1 << 53 : 0) | 1;
    const long double number = ldexpl((long double)odd, (int)draw(2050) - 1078);
    int n = sprintf(text, "%.1152Lf", number);

    drawn.nearest = (double)number;
    if (draw(3) > 0) { /* a 1 far behind */
        sprintf(text + n, "%0*d", 4 * (1 + (int)draw(20)), 1);
        drawn.nearest = (double)nextafterl(number, HUGE_VALL);
    }
    drawn.length = encode_text(text, drawn.value);
}

/* Of subnormal numbers strtod() of glibc before 2.41 may return a neighbour. */
static bool is_same_double(const char *text, double wanted, double got, bool exact)
{
    if (memcmp(&wanted, &got, sizeof got) == 0 ||
        (!exact && fabs(wanted) < DBL_MIN && fabs(got - wanted) <= nextafter(0, 1)))
        return true;
    printf("# %s is %.17g, not %.17g\n", text, wanted, got);
    return false;
}

/* A decimal of up to 38 digits, by long division of its text. */
static bool check_decimal(void)
{
    const int32_t scale = (int32_t)draw(50) - 5;
    char text[100];
    plcuda_digits d;
    plcuda_u128 v = {0, 0};
    uint64_t low = 0;
    int64_t high = 0;
    const uint32_t count = 1 + (uint32_t)draw(38);
    const bool negative = draw(2) == 0;
    int n = sprintf(text, "%s", negative ? "-" : "");

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t digit = (uint32_t)draw(draw(2) == 0 ? 10 : 1);

        text[n++] = (char)('0' + digit);
        if (!plcuda_u128_multiply_add(&v, 10, digit))
            return false;
    }
    sprintf(text + n, "e%d", -scale);
    if (v.low == 0 && v.high == 0)
        memmove(text, text + negative, strlen(text)); /* there is no -0 */
    if (negative) {
        v.low = ~v.low + 1;
        v.high = ~v.high + (v.low == 0);
    }
    plcuda_decimal_to_digits(v.low, (int64_t)v.high, scale, &d);
    if (scale == 0 && (plcuda_digits_to_i128(&d, &low, &high) != PLCUDA_EXACT || low != v.low ||
                       (uint64_t)high != v.high)) {
        printf("# %s is another integer\n", text);
        return false;
    }
    return is_same_double(text, strtod(text, NULL), plcuda_digits_to_f64(&d), false);
}

static bool check_varlena(void (*draw_one)(void), bool exact)
{
    plcuda_digits d;

    draw_one();
    return plcuda_varlena_to_digits(drawn.value, drawn.length, &d) &&
           is_same_double(drawn.text, drawn.nearest, plcuda_digits_to_f64(&d), exact);
}

static bool check_numerics(void)
{
    for (int i = 0; i < NUMERICS_A_ROUND; i++)
        if (!check_decimal() || !check_varlena(draw_varlena, false) || !check_varlena(draw_half, true))
            return false;
    return true;
}

/* Halves away from 0; what does not fit is refused. */
static bool check_integers(void)
{
    static const struct {
        uint64_t low;
        int64_t high;
        int32_t scale;
        plcuda_rounding rounding;
        uint64_t wanted_low;
        int64_t wanted_high;
    } cases[] = {
        {25, 0, 1, PLCUDA_ROUNDED, 3, 0},
        {(uint64_t)-25, -1, 1, PLCUDA_ROUNDED, (uint64_t)-3, -1},
        {2499999, 0, 6, PLCUDA_ROUNDED, 2, 0},
        {2500000, 0, 6, PLCUDA_ROUNDED, 3, 0},
        {(uint64_t)-49, -1, 2, PLCUDA_ROUNDED, 0, 0},
        {3000, 0, 3, PLCUDA_EXACT, 3, 0},
        {7, 0, -3, PLCUDA_EXACT, 7000, 0},
        {0, INT64_MIN, 0, PLCUDA_EXACT, 0, INT64_MIN},
        {UINT64_MAX, INT64_MAX, 0, PLCUDA_EXACT, UINT64_MAX, INT64_MAX},
        {UINT64_MAX, INT64_MAX, -1, PLCUDA_OUT_OF_RANGE, 9, 9},
        {0, INT64_MIN, -1, PLCUDA_OUT_OF_RANGE, 9, 9},
        {1, 0, -400, PLCUDA_OUT_OF_RANGE, 9, 9},
        {1, 0, 400, PLCUDA_ROUNDED, 0, 0},
        {0, 0, 5, PLCUDA_EXACT, 0, 0},
    };
    char beyond[100]; /* 2^127 */
    const uint32_t length = encode_text("170141183460469231731687303715884105728.", beyond);
    plcuda_digits digits;
    uint64_t low_beyond;
    int64_t high_beyond;
    bool good = plcuda_varlena_to_digits(beyond, length, &digits) &&
                plcuda_digits_to_i128(&digits, &low_beyond, &high_beyond) == PLCUDA_OUT_OF_RANGE;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t low = 9;
        int64_t high = 9;
        plcuda_digits d;

        plcuda_decimal_to_digits(cases[i].low, cases[i].high, cases[i].scale, &d);
        if (plcuda_digits_to_i128(&d, &low, &high) != cases[i].rounding ||
            low != cases[i].wanted_low || high != cases[i].wanted_high) {
            printf("# case %zu: another integer\n", i);
            good = false;
        }
    }
    return good;
}

static bool repeat(unsigned rounds, bool (*check)(void))
{
    for (unsigned i = 0; i < rounds; i++)
        if (!check())
            return false;
    return true;
}

int main(int argc, char **argv)
{
    const unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 30;
    bool on_device;

    if (argc > 3 || rounds == 0)
        return 2;
    state = random_seed(argc > 2 ? argv[2] : NULL);
    fixture_machine_default("memory=64MiB,sms=2");
    on_device = open_gpu();
    tap_plan(4);
    printf("# seed %" PRIu64 "\n", state);
    if (on_device) {
        tap_result(repeat(rounds, check_reductions),
                   "reductions_of_any_block_are_those_of_plain_loops");
        tap_result(repeat(rounds, check_sorting), "sorted_pairs_are_those_of_qsort");
    } else {
        tap_skip("reductions_of_any_block_are_those_of_plain_loops", "built without nvcc");
        tap_skip("sorted_pairs_are_those_of_qsort", "built without nvcc");
    }
    close_gpu();
    tap_result(repeat(rounds, check_numerics), "numeric_to_double_is_that_of_strtod");
    tap_result(check_integers(), "numeric_to_integer_is_rounded_and_refused_as_in_sql");
    return tap_finish();
}
