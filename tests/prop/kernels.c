/* The kernels of gvmem/kernels.h, checked against the CPU.
 *
 *     kernels [SEED]
 *
 * Goal: each answers what its contract says for every length, either alignment of 8-byte words, and
 * every place of a byte; it touches nothing beyond its range, refuses bad arguments without writing
 * its output, and may be called by many threads on many streams at once. Method: one buffer and a
 * mirror of it in host memory; what a kernel should find there is computed by the plainest loop,
 * after the words of the header and not after the kernel. Lengths are those where the kernels
 * change their ways (pairs, batches, tiles, one round of all blocks), and some random ones.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "kernels/basic.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

#define ARENA_BYTES (64 * MIB) /* two halves, each more than any GPU's blocks take at once */
#define HALF_BYTES (ARENA_BYTES / 2)
#define TILE ((uint64_t)GVMI_TILE_WORDS)
#define GUARD_BYTES 64 /* looked at on either side of a range */
#define GUARD 0x5a
#define RANDOM_COUNTS 24
#define THREADS 8
#define STREAMS 3 /* and the default one */
#define ROUNDS 40

/* In words of 8 bytes: around a pair, a batch of a warp and of a block, and a tile. */
/* clang-format off */
static const uint64_t counts[] = {
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 255, 257, 1023, 1025, TILE / 2 - 1,
    TILE - 2, TILE - 1, TILE, TILE + 1, TILE + 2, 2 * TILE - 1, 2 * TILE, 2 * TILE + 1,
    4 * TILE - 1, 4 * TILE + 3, 49 * TILE + 7,
};
/* clang-format on */
#define FIXED_COUNTS (sizeof counts / sizeof counts[0])

static gvm_device *device;
static gvm_buffer *arena;
static uint64_t address;      /* of the arena; 16-byte aligned */
static unsigned char *mirror; /* what the arena should hold */
static uint64_t seed, state;

/* ---- what is expected */

static uint64_t expected_checksum(const unsigned char *bytes, uint64_t len)
{
    uint64_t sum = random_mix(len);

    for (uint64_t at = 0; at < len; at += 8) {
        uint64_t word = 0;

        for (uint64_t k = 0; k < 8 && at + k < len; k++)
            word |= (uint64_t)bytes[at + k] << (8 * k);
        sum += random_mix(word ^ random_mix(at / 8));
    }
    return sum;
}

static double expected_random(uint64_t fill_seed, uint64_t index)
{
    return (double)(random_mix(fill_seed ^ random_mix(index)) >> 11) / 9007199254740992.0; /* 2^53 */
}

static uint64_t expected_difference(const unsigned char *a, const unsigned char *b, uint64_t len)
{
    for (uint64_t at = 0; at < len; at++)
        if (a[at] != b[at])
            return at;
    return UINT64_MAX;
}

static uint64_t random_below(uint64_t bound)
{
    state += 0x632be59bd9b4e019u;
    return random_mix(state) % bound;
}

/* The fixed lengths first, then random ones of every size. */
static uint64_t count_of(uint64_t i)
{
    return i < FIXED_COUNTS ? counts[i] : random_below(1 + (64 * TILE >> random_below(12)));
}
#define COUNTS (FIXED_COUNTS + RANDOM_COUNTS)

/* ---- what is wrong: gathered over a test and printed at its end */

static char problem[512];
static pthread_mutex_t problem_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static bool wrong(const char *format, ...)
{
    va_list args;
    size_t len;

    pthread_mutex_lock(&problem_lock);
    len = strlen(problem);
    if (len > 0)
        len += (size_t)snprintf(problem + len, sizeof problem - len, "; ");
    va_start(args, format);
    if (len < sizeof problem)
        vsnprintf(problem + len, sizeof problem - len, format, args);
    va_end(args);
    pthread_mutex_unlock(&problem_lock);
    return false;
}

static bool good(gvm_status status, const char *call)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    return wrong("%s: %s: %s", call, gvm_status_name(status), error.text);
}
#define GOOD(call) good(call, #call)

/* ---- arena and mirror */

static bool put(uint64_t offset, const void *bytes, uint64_t len)
{
    memcpy(mirror + offset, bytes, len);
    return len == 0 || GOOD(gvm_buffer_copy_in(arena, offset, bytes, len));
}

static bool put_byte(uint64_t offset, unsigned char byte)
{
    return put(offset, &byte, 1);
}

/* Guards everywhere in [offset, offset + len). */
static bool put_guards(uint64_t offset, uint64_t len)
{
    const unsigned char guard = GUARD;

    memset(mirror + offset, GUARD, len);
    return GOOD(gvm_buffer_fill(arena, offset, len, &guard, 1));
}

/* Random bytes. */
static bool put_noise(uint64_t offset, uint64_t len)
{
    for (uint64_t at = 0; at < len; at++)
        mirror[offset + at] = (unsigned char)random_below(256);
    return len == 0 || GOOD(gvm_buffer_copy_in(arena, offset, mirror + offset, len));
}

/* Is the arena what the mirror says there? */
static bool agrees(uint64_t offset, uint64_t len, const char *what)
{
    unsigned char *found = malloc(len > 0 ? len : 1);
    bool same;

    if (found == NULL)
        return wrong("out of memory");
    same = GOOD(gvm_device_synchronize(device)) &&
           (len == 0 || GOOD(gvm_buffer_copy_out(found, arena, offset, len)));
    for (uint64_t at = 0; same && at < len; at++)
        if (found[at] != mirror[offset + at])
            same = wrong("%s: the byte at offset %llu is %#x instead of %#x", what,
                         (unsigned long long)(offset + at), found[at], mirror[offset + at]);
    free(found);
    return same;
}

/* ---- fill */

static void mirror_fill(uint64_t offset, uint64_t count, uint64_t first_index, uint64_t fill_seed)
{
    for (uint64_t i = 0; i < count; i++) {
        double value = expected_random(fill_seed, first_index + i);

        memcpy(mirror + offset + 8 * i, &value, 8);
    }
}

static bool fill_writes_its_range_and_nothing_else(void)
{
    for (uint64_t i = 0; i < COUNTS; i++)
        for (uint64_t shift = 0; shift < 16; shift += 8) {
            uint64_t count = count_of(i), offset = GUARD_BYTES + shift;
            uint64_t whole = offset + count * 8 + GUARD_BYTES;
            uint64_t first_index = random_below(1ull << 40), fill_seed = random_mix(state);

            if (!put_guards(0, whole) ||
                !GOOD(gvm_kernel_fill_random_f64(device, gvmi_pointer(address + offset), count,
                                                 first_index, fill_seed, NULL)))
                return false;
            mirror_fill(offset, count, first_index, fill_seed);
            if (!agrees(0, whole, "fill"))
                return wrong("count %llu, shift %llu", (unsigned long long)count,
                             (unsigned long long)shift);
        }
    return true;
}

static bool fill_of_many_tiles_writes_all_of_them(void)
{
    uint64_t count = (HALF_BYTES - 16) / 8;

    if (!GOOD(gvm_kernel_fill_random_f64(device, gvmi_pointer(address + 8), count, 0, seed, NULL)))
        return false;
    mirror_fill(8, count, 0, seed);
    return agrees(8, count * 8, "fill");
}

static bool fill_in_parts_equals_fill_at_once(void)
{
    uint64_t count = 9 * TILE + 5, part;

    for (uint64_t done = 0; done < count; done += part) {
        part = 1 + random_below(count - done < 3 * TILE ? count - done : 3 * TILE);
        if (!GOOD(gvm_kernel_fill_random_f64(device, gvmi_pointer(address + done * 8), part,
                                             77 + done, seed, NULL)))
            return false;
    }
    mirror_fill(0, count, 77, seed);
    return agrees(0, count * 8, "fill");
}

/* Indices wrap around as any uint64_t does. */
static bool fill_past_the_last_index_wraps(void)
{
    if (!GOOD(gvm_kernel_fill_random_f64(device, gvmi_pointer(address), 100, UINT64_MAX - 49, seed,
                                         NULL)))
        return false;
    mirror_fill(0, 100, UINT64_MAX - 49, seed);
    return agrees(0, 800, "fill");
}

/* ---- sum */

/* Whole numbers, small enough that every order of additions gives the same sum. */
static bool put_whole_numbers(uint64_t offset, uint64_t count, double *sum)
{
    *sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        double value = (double)(int64_t)(random_below(1u << 21) - (1u << 20));

        memcpy(mirror + offset + 8 * i, &value, 8);
        *sum += value;
    }
    return count == 0 || GOOD(gvm_buffer_copy_in(arena, offset, mirror + offset, count * 8));
}

static bool sum_is(uint64_t offset, uint64_t count, double expected)
{
    double sum = -1;

    if (!GOOD(gvm_kernel_sum_f64(device, gvmi_pointer(address + offset), count, NULL, &sum)))
        return false;
    if (sum >= expected && sum <= expected) /* false for a NaN */
        return true;
    return wrong("the sum of %llu at offset %llu is %.17g instead of %.17g",
                 (unsigned long long)count, (unsigned long long)offset, sum, expected);
}

/* Around the range lie guards, which as doubles are large: taking in one of them would show. */
static bool sum_adds_its_range_and_nothing_else(void)
{
    for (uint64_t i = 0; i < COUNTS; i++)
        for (uint64_t shift = 0; shift < 16; shift += 8) {
            uint64_t count = count_of(i), offset = GUARD_BYTES + shift;
            double expected;

            if (!put_guards(0, offset) || !put_guards(offset + count * 8, GUARD_BYTES) ||
                !put_whole_numbers(offset, count, &expected) || !sum_is(offset, count, expected))
                return false;
        }
    return true;
}

static bool sum_of_many_tiles_adds_all_of_them(void)
{
    uint64_t count = (HALF_BYTES - 16) / 8;
    double expected;

    return put_whole_numbers(8, count, &expected) && sum_is(8, count, expected);
}

static bool sum_of_a_nan_is_none(void)
{
    const uint64_t nan = 0x7ff8000000000000u;
    double sum = 0, whole;

    if (!put_whole_numbers(0, TILE, &whole) || !put(8 * random_below(TILE), &nan, 8) ||
        !GOOD(gvm_kernel_sum_f64(device, gvmi_pointer(address), TILE, NULL, &sum)))
        return false;
    return sum != sum || wrong("the sum is %.17g", sum);
}

/* ---- checksum */

static bool checksum_is(uint64_t offset, uint64_t len, uint64_t expected)
{
    uint64_t sum = 0;

    if (!GOOD(gvm_kernel_checksum(device, gvmi_pointer(address + offset), len, NULL, &sum)))
        return false;
    return sum == expected ||
           wrong("the checksum of %llu bytes at offset %llu is %#llx instead of %#llx",
                 (unsigned long long)len, (unsigned long long)offset, (unsigned long long)sum,
                 (unsigned long long)expected);
}

static bool checksum_of_any_length_is_what_the_header_says(void)
{
    for (uint64_t i = 0; i < COUNTS; i++)
        for (uint64_t shift = 0; shift < 16; shift += 8) {
            uint64_t count = count_of(i);

            if (!put_noise(shift, count * 8 + 8))
                return false;
            for (uint64_t tail = 0; tail < 8; tail++)
                if (!checksum_is(shift, count * 8 + tail,
                                 expected_checksum(mirror + shift, count * 8 + tail)))
                    return false;
        }
    return true;
}

static bool checksum_of_many_tiles_is_what_the_header_says(void)
{
    uint64_t len = HALF_BYTES - 13;

    return put_noise(8, len) && checksum_is(8, len, expected_checksum(mirror + 8, len));
}

static bool checksum_of_host_memory_is_the_same_at_any_address(void)
{
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t at = random_below(64), len = random_below(3000);
        uint64_t expected = expected_checksum(mirror + at, len);

        if (gvm_kernel_checksum_host(mirror + at, len) != expected)
            return wrong("%llu bytes at offset %llu", (unsigned long long)len, (unsigned long long)at);
    }
    return gvm_kernel_checksum_host(NULL, 0) == random_mix(0) || wrong("nothing, at NULL");
}

static bool checksum_changes_with_any_byte_and_with_its_place(void)
{
    uint64_t len = 3 * TILE * 8 + 5, before, after;

    if (!put_noise(0, len) ||
        !GOOD(gvm_kernel_checksum(device, gvmi_pointer(address), len, NULL, &before)))
        return false;
    for (int round = 0; round < 100; round++) {
        uint64_t at = round == 0 ? len - 1 : random_below(len);
        unsigned char old = mirror[at];

        if (!put_byte(at, old ^ (unsigned char)(1u << random_below(8))) ||
            !GOOD(gvm_kernel_checksum(device, gvmi_pointer(address), len, NULL, &after)) ||
            !put_byte(at, old))
            return false;
        if (after == before)
            return wrong("a byte changed at offset %llu, the checksum did not", (unsigned long long)at);
    }
    for (uint64_t k = 0; k < 8; k++) { /* two words change places */
        unsigned char byte = mirror[k];

        if (!put_byte(k, mirror[8 + k]) || !put_byte(8 + k, byte))
            return false;
    }
    return (GOOD(gvm_kernel_checksum(device, gvmi_pointer(address), len, NULL, &after)) &&
            after != before) ||
           wrong("two words changed places, the checksum did not");
}

/* ---- compare */

static bool difference_is(uint64_t a, uint64_t b, uint64_t len, uint64_t expected)
{
    uint64_t difference = 0;

    if (!GOOD(gvm_kernel_compare(device, gvmi_pointer(address + a), gvmi_pointer(address + b), len,
                                 NULL, &difference)))
        return false;
    return difference == expected ||
           wrong("%llu bytes at offsets %llu and %llu differ first at %lld instead of %lld",
                 (unsigned long long)len, (unsigned long long)a, (unsigned long long)b,
                 (long long)difference, (long long)expected);
}

/* The ranges are one, with bytes around that differ. */
static bool make_equal(uint64_t a, uint64_t b, uint64_t len)
{
    memcpy(mirror + b, mirror + a, len);
    return (len == 0 || GOOD(gvm_buffer_copy(arena, b, arena, a, len))) &&
           put_byte(b - 1, mirror[a - 1] ^ 1) && put_byte(b + len, mirror[a + len] ^ 1);
}

/* Some bytes of the second range are made to differ; which is the first? */
static bool finds_differences(uint64_t a, uint64_t b, uint64_t len)
{
    for (int round = 0; round < 4; round++) {
        uint64_t first = round == 0 ? len - 1 : random_below(len);
        uint64_t later[3];

        if (!put_byte(b + first, mirror[a + first] ^ (unsigned char)(1u << random_below(8))))
            return false;
        for (int i = 0; i < 3; i++) {
            later[i] = first + random_below(len - first);
            if (!put_byte(b + later[i], mirror[a + later[i]] ^ 0x80))
                return false;
        }
        if (!difference_is(a, b, len, first))
            return false;
        for (int i = 0; i < 3; i++)
            if (!put_byte(b + later[i], mirror[a + later[i]]))
                return false;
        if (!put_byte(b + first, mirror[a + first]))
            return false;
    }
    return true;
}

static bool compare_finds_the_first_difference_of_its_ranges(void)
{
    for (uint64_t i = 0; i < COUNTS; i++)
        for (uint64_t shifts = 0; shifts < 4; shifts++) {
            uint64_t a = GUARD_BYTES + (shifts & 1) * 8;
            uint64_t b = HALF_BYTES + GUARD_BYTES + (shifts >> 1) * 8;
            uint64_t len = count_of(i) * 8 + random_below(8);

            if (!put_noise(0, a + len + 1) || !make_equal(a, b, len) ||
                !difference_is(a, b, len, UINT64_MAX) || (len > 0 && !finds_differences(a, b, len)))
                return false;
        }
    return true;
}

static bool compare_of_many_tiles_looks_at_all_of_them(void)
{
    uint64_t a = 8, b = HALF_BYTES + 16, len = HALF_BYTES - 27;

    return put_noise(0, a + len + 1) && make_equal(a, b, len) &&
           difference_is(a, b, len, UINT64_MAX) && finds_differences(a, b, len);
}

static bool compare_of_a_range_with_itself_finds_nothing(void)
{
    return difference_is(0, 0, HALF_BYTES, UINT64_MAX);
}

/* ---- arguments */

#define UNTOUCHED 0x0123456789abcdefu

/* The call is refused and its 8 bytes of output are as before. */
static bool refused(gvm_status status, gvm_status expected, const void *output, const char *what)
{
    const uint64_t untouched = UNTOUCHED;

    if (status != expected)
        return wrong("%s is answered with %s instead of %s", what, gvm_status_name(status),
                     gvm_status_name(expected));
    return output == NULL || memcmp(output, &untouched, 8) == 0 ||
           wrong("%s: the output was written", what);
}

/* All four, of count words or bytes. */
static bool all_refused(gvm_device *where, uint64_t at, uint64_t count, gvm_status expected)
{
    uint64_t word = UNTOUCHED;
    double sum;

    memcpy(&sum, &word, 8);
    return (refused(gvm_kernel_fill_random_f64(where, gvmi_pointer(at), count, 0, 0, NULL),
                    expected, NULL, "fill") &&
            refused(gvm_kernel_sum_f64(where, gvmi_pointer(at), count, NULL, &sum), expected, &sum,
                    "sum") &&
            refused(gvm_kernel_checksum(where, gvmi_pointer(at), count, NULL, &word), expected,
                    &word, "checksum") &&
            refused(gvm_kernel_compare(where, gvmi_pointer(at), gvmi_pointer(address), count, NULL, &word),
                    expected, &word, "compare") &&
            refused(gvm_kernel_compare(where, gvmi_pointer(address), gvmi_pointer(at), count, NULL, &word),
                    expected, &word, "compare")) ||
           wrong("%llu words or bytes at %#llx", (unsigned long long)count, (unsigned long long)at);
}

static bool address_that_is_no_array_is_refused(void)
{
    const uint64_t bad[] = {0, 1, 4, address + 1, address + 4, address + 7, UINT64_MAX};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (uint64_t count = 0; count < 2; count++)
            if (!all_refused(device, bad[i], count, GVM_E_INVALID))
                return false;
    return true;
}

static bool range_past_the_last_address_is_refused(void)
{
    return all_refused(device, address, UINT64_MAX, GVM_E_INVALID) &&
           all_refused(device, address, UINT64_MAX - address + 1, GVM_E_INVALID);
}

/* The words' bytes are more than the address space, or than a uint64_t can tell. */
static bool array_past_the_last_address_is_refused(void)
{
    const uint64_t bad[] = {UINT64_MAX / 8 + 1, UINT64_MAX / 8 + 2, UINT64_MAX / 8};
    uint64_t word = UNTOUCHED;
    double sum;

    memcpy(&sum, &word, 8);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!refused(gvm_kernel_fill_random_f64(device, gvmi_pointer(address), bad[i], 0, 0, NULL),
                     GVM_E_INVALID, NULL, "fill") ||
            !refused(gvm_kernel_sum_f64(device, gvmi_pointer(address), bad[i], NULL, &sum),
                     GVM_E_INVALID, &sum, "sum"))
            return false;
    return true;
}

static bool output_of_null_is_refused(void)
{
    return refused(gvm_kernel_sum_f64(device, gvmi_pointer(address), 1, NULL, NULL), GVM_E_INVALID,
                   NULL, "sum") &&
           refused(gvm_kernel_checksum(device, gvmi_pointer(address), 1, NULL, NULL), GVM_E_INVALID,
                   NULL, "checksum") &&
           refused(gvm_kernel_compare(device, gvmi_pointer(address), gvmi_pointer(address), 1, NULL,
                                      NULL),
                   GVM_E_INVALID, NULL, "compare");
}

static bool device_that_is_none_is_refused(void)
{
    return all_refused(NULL, address, 1, GVM_E_FOREIGN) &&
           all_refused((gvm_device *)(void *)mirror, address, 1, GVM_E_FOREIGN) &&
           all_refused((gvm_device *)(void *)arena, address, 1, GVM_E_FOREIGN);
}

/* ---- threads and streams */

typedef struct worker {
    pthread_t thread;
    uint64_t number;
    gvm_stream stream;
    uint64_t own;        /* where in the arena it writes */
    uint64_t shared_len; /* what all read: from the arena's start */
    uint64_t checksum;   /* of the shared */
    double sum;          /* of the shared */
} worker;

/* Reads what all read, and fills what is its own and reads that, in the stream's order. */
static void *work(void *arg)
{
    const worker *w = arg;
    uint64_t count = 3 * TILE + w->number, word = 0;
    unsigned char *own = mirror + w->own;
    double sum = -1;
    bool fine = true;

    for (uint64_t round = 0; round < ROUNDS && fine; round++) {
        fine = GOOD(gvm_kernel_fill_random_f64(device, gvmi_pointer(address + w->own), count, round,
                                               seed, w->stream)) &&
               GOOD(gvm_kernel_checksum(device, gvmi_pointer(address + w->own), count * 8,
                                        w->stream, &word));
        mirror_fill(w->own, count, round, seed);
        if (fine && word != expected_checksum(own, count * 8))
            fine = wrong("thread %llu, round %llu: checksum of its own",
                         (unsigned long long)w->number, (unsigned long long)round);
        fine = fine &&
               GOOD(gvm_kernel_checksum(device, gvmi_pointer(address), w->shared_len, w->stream,
                                        &word)) &&
               GOOD(gvm_kernel_sum_f64(device, gvmi_pointer(address), w->shared_len / 8, w->stream,
                                       &sum));
        if (fine && (word != w->checksum || sum < w->sum || sum > w->sum))
            fine = wrong("thread %llu, round %llu: checksum or sum of what all read",
                         (unsigned long long)w->number, (unsigned long long)round);
        fine = fine && GOOD(gvm_kernel_compare(device, gvmi_pointer(address),
                                               gvmi_pointer(address + w->own), 8, w->stream, &word));
        if (fine && word != expected_difference(mirror, own, 8))
            fine = wrong("thread %llu, round %llu: compare", (unsigned long long)w->number,
                         (unsigned long long)round);
    }
    return NULL;
}

static bool on_streams(const gvm_stream streams[STREAMS + 1])
{
    static worker workers[THREADS];
    worker common = {.shared_len = 21 * TILE * 8 + 24};
    uint64_t started = 0;

    if (!put_whole_numbers(0, common.shared_len / 8, &common.sum))
        return false;
    common.checksum = expected_checksum(mirror, common.shared_len);
    for (; started < THREADS; started++) {
        worker *w = &workers[started];

        *w = common;
        w->number = started;
        w->stream = streams[started % (STREAMS + 1)];
        w->own = HALF_BYTES + started * MIB + 8 * (started % 2);
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            wrong("cannot start a thread");
            break;
        }
    }
    for (uint64_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return problem[0] == '\0';
}

/* Streams are the program's business, so they are made as a CUDA program makes them. */
static bool threads_on_several_streams_get_their_own_answers(void)
{
    gvm_stream streams[STREAMS + 1] = {NULL};
    CUcontext context;
    bool fine;

    if (gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return wrong("no context");
    fine = true;
    for (int i = 1; i <= STREAMS && fine; i++)
        fine = gvmi_cu->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    fine = fine ? on_streams(streams) : wrong("no streams");
    for (int i = 1; i <= STREAMS; i++)
        if (streams[i] != NULL)
            gvmi_cu->cuStreamDestroy(streams[i]);
    gvmi_cu->cuCtxPopCurrent(&context);
    gvmi_cu->cuDevicePrimaryCtxRelease(0);
    return fine;
}

/* ---- a range without memory: the context is lost, so this runs in a child, and first, because a
 * child of a process that has opened a device cannot use it */

static bool arena_begin(void)
{
    mirror = calloc(1, ARENA_BYTES);
    if (mirror == NULL)
        return wrong("out of memory");
    if (!GOOD(gvm_device_open(0, &device)) ||
        !GOOD(gvm_buffer_create(device, ARENA_BYTES, NULL, &arena)))
        return false;
    address = gvmi_address(gvm_buffer_address(arena));
    return GOOD(gvm_buffer_commit(arena, 0, ARENA_BYTES));
}

static void arena_end(void)
{
    gvm_buffer_destroy(arena);
    gvm_device_close(device);
    free(mirror);
}

static bool lose_context(void)
{
    uint64_t word = UNTOUCHED;
    double sum;

    memcpy(&sum, &word, 8);
    if (!arena_begin() || !GOOD(gvm_buffer_decommit(arena, HALF_BYTES, HALF_BYTES)))
        return false;
    if (!refused(gvm_kernel_checksum(device, gvmi_pointer(address + HALF_BYTES - 4096), 8192, NULL, &word),
                 GVM_E_LOST, &word, "checksum of memory that is not there"))
        return false;
    return refused(gvm_kernel_sum_f64(device, gvmi_pointer(address), 1, NULL, &sum), GVM_E_LOST,
                   &sum, "sum afterwards") &&
           refused(gvm_kernel_compare(device, gvmi_pointer(address), gvmi_pointer(address), 8, NULL,
                                      &word),
                   GVM_E_LOST, &word, "compare afterwards") &&
           refused(gvm_kernel_fill_random_f64(device, gvmi_pointer(address), 1, 0, 0, NULL),
                   GVM_E_LOST, NULL, "fill afterwards");
}

static bool range_without_memory_loses_the_context(void)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        return wrong("cannot fork");
    if (pid == 0) {
        if (!lose_context())
            printf("# in the child: %s\n", problem);
        arena_end();
        fflush(stdout);
        _exit(problem[0] == '\0' ? 0 : 1);
    }
    return (waitpid(pid, &status, 0) == pid && status == 0) ||
           wrong("child's status %#x", (unsigned)status);
}

/* ---- */

typedef struct test {
    const char *name;
    bool (*run)(void);
} test;

static const test tests[] = {
#define TEST(name) \
    { \
#name, name \
    }
    TEST(fill_writes_its_range_and_nothing_else),
    TEST(fill_of_many_tiles_writes_all_of_them),
    TEST(fill_in_parts_equals_fill_at_once),
    TEST(fill_past_the_last_index_wraps),
    TEST(sum_adds_its_range_and_nothing_else),
    TEST(sum_of_many_tiles_adds_all_of_them),
    TEST(sum_of_a_nan_is_none),
    TEST(checksum_of_any_length_is_what_the_header_says),
    TEST(checksum_of_many_tiles_is_what_the_header_says),
    TEST(checksum_of_host_memory_is_the_same_at_any_address),
    TEST(checksum_changes_with_any_byte_and_with_its_place),
    TEST(compare_finds_the_first_difference_of_its_ranges),
    TEST(compare_of_many_tiles_looks_at_all_of_them),
    TEST(compare_of_a_range_with_itself_finds_nothing),
    TEST(address_that_is_no_array_is_refused),
    TEST(range_past_the_last_address_is_refused),
    TEST(array_past_the_last_address_is_refused),
    TEST(output_of_null_is_refused),
    TEST(device_that_is_none_is_refused),
    TEST(threads_on_several_streams_get_their_own_answers),
#undef TEST
};
#define TESTS (unsigned)(sizeof tests / sizeof tests[0])

static void report(const char *name, bool fine)
{
    if (!tap_result(fine, "%s", name))
        printf("# seed %llu: %s\n", (unsigned long long)seed, problem);
    problem[0] = '\0';
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        fprintf(stderr, "usage: kernels [SEED]\n");
        return 2;
    }
    seed = random_seed(argc == 2 ? argv[1] : NULL);
    state = seed;
    /* The machine, unless the caller chose one. SMs enough that blocks run at once. */
    fixture_machine_default("memory=96MiB,sms=3");
    setenv("GVMEM_CHECK", "1", 1);

    tap_plan(TESTS + 1);
    printf("# seed %llu\n", (unsigned long long)seed);
    report("range_without_memory_loses_the_context", range_without_memory_loses_the_context());
    if (!arena_begin())
        tap_bail_out("%s", problem);
    for (unsigned i = 0; i < TESTS; i++)
        report(tests[i].name, tests[i].run());
    arena_end();
    return gvmi_check_violations() == 0 ? tap_finish() : 1;
}
