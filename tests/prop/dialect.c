/* What the dialect of gvmem/device/kernel.h says that warps tell each other, checked against plain loops.
 *
 *     dialect [SEED]
 *
 * Goal: in every lane of every warp the answers are those that the header's words give, for any
 * numbers; so are words that a thread changes by operations with an order. Method: one launch of several blocks, of one to three dimensions where the device has more than one
 * thread a block; the host makes the answers again.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/gvmem.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/prop/dialect_kernels.h"

#define BLOCKS 7u
#define BLOCK_THREADS_MAX 96u /* three warps */
#define THREADS_MAX (BLOCKS * BLOCK_THREADS_MAX)
#define ROUNDS 50
#define BLOCK_Z_MAX 64u
#define ANSWERS_AT ((THREADS_MAX * sizeof(uint64_t) + 15) / 16 * 16)

extern const unsigned char gvmi_image_soft_dialect_kernels[];
extern const unsigned char *const gvmi_image_cuda_dialect_kernels;

static gvm_device *device;
static gvm_device_info info = {.struct_size = sizeof info};
static CUmodule module;
static CUfunction function;
static CUdeviceptr memory;
static uint64_t state;
static uint32_t threads, block_threads;
static uint32_t shape[3]; /* of the block */
static CUdevice cu_device;
static bool retained, pushed;

static uint64_t draw(void)
{
    return random_next(&state);
}

/* The answer of a thread; of next_ only what the header promises: a lane behind it must be there. */
static dialect_answer expected(const uint64_t *numbers, uint32_t thread)
{
    const uint32_t lanes = (uint32_t)info.warp_size;
    const uint32_t lane = thread % block_threads % lanes, first = thread - lane;
    const uint64_t n = numbers[thread];
    dialect_answer a = {.first_u32 = (uint32_t)numbers[first],
                        .first_u64 = numbers[first],
                        .streamed = n,
                        .streamed_pair = {n, ~n},
                        .loaded_pair = {n, ~n},
                        .changed = (n | 0x8000000000000006u) + 3,
                        .before = {0, n, 2 * n, n},
                        .flags = (uint32_t)n | 8};

    for (uint32_t i = first; i < first + lanes; i++) {
        if ((numbers[i] & 3) == (n & 3)) {
            a.first_same = a.same == 0 ? i - first : a.first_same;
            a.same |= 1u << (i - first);
            a.same_of_half |= (i - first - lane) % 2 == 0 ? 1u << (i - first) : 0;
        }
        if (i < thread) {
            a.rank += (uint32_t)(numbers[i] & 1);
            a.before_u32 += (uint32_t)numbers[i];
            a.before_u64 += numbers[i];
        }
        a.yes += (uint32_t)(numbers[i] & 1);
        a.total_u32 += (uint32_t)numbers[i];
        a.total_u64 += numbers[i];
    }
    if (lane + 1 < lanes) {
        a.next_u32 = (uint32_t)numbers[thread + 1];
        a.next_u64 = numbers[thread + 1];
    }
    return a;
}

static bool open_device(void)
{
    return gvm_device_open(0, &device) == GVM_OK && gvm_device_get_info(device, &info) == GVM_OK;
}

static bool has_kernels(void)
{
    return info.software || gvmi_image_cuda_dialect_kernels != NULL;
}

static bool start(void)
{
    CUcontext context;

    if (gvmi_cu->cuDeviceGet(&cu_device, 0) != CUDA_SUCCESS ||
        gvmi_cu->cuDevicePrimaryCtxRetain(&context, cu_device) != CUDA_SUCCESS)
        return false;
    retained = true;
    if (gvmi_cu->cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return false;
    pushed = true;
    block_threads = (uint32_t)info.block_threads_max < BLOCK_THREADS_MAX
                        ? (uint32_t)info.block_threads_max
                        : BLOCK_THREADS_MAX;
    threads = BLOCKS * block_threads;
    return gvmi_cu->cuModuleLoadData(&module, info.software ? gvmi_image_soft_dialect_kernels
                                                            : gvmi_image_cuda_dialect_kernels) ==
               CUDA_SUCCESS &&
           gvmi_cu->cuModuleGetFunction(&function, module, "dialect") == CUDA_SUCCESS &&
           gvmi_cu->cuMemAlloc(&memory, ANSWERS_AT + THREADS_MAX * sizeof(dialect_answer)) ==
               CUDA_SUCCESS;
}

static void end(void)
{
    CUcontext context;

    if (memory != 0)
        gvmi_cu->cuMemFree(memory);
    if (module != NULL)
        gvmi_cu->cuModuleUnload(module);
    if (pushed)
        gvmi_cu->cuCtxPopCurrent(&context);
    if (retained)
        gvmi_cu->cuDevicePrimaryCtxRelease(cu_device);
    gvm_device_close(device);
}

static uint32_t *axis_that_takes(uint32_t factor, bool first)
{
    uint32_t *axis = &shape[first ? 0 : draw() % 3];

    return axis == &shape[2] && *axis * factor > BLOCK_Z_MAX ? &shape[0] : axis;
}

/* Any block of that many threads: of one, two or three dimensions. */
static void draw_shape(unsigned round)
{
    uint32_t left = block_threads;

    shape[0] = shape[1] = shape[2] = 1;
    for (uint32_t factor = 2; left > 1; factor++)
        for (; left % factor == 0; left /= factor)
            (*axis_that_takes(factor, round == 0)) *= factor;
}

static bool launch(const uint64_t *numbers, dialect_answer *answers)
{
    dialect_params params = {.numbers = memory, .answers = memory + ANSWERS_AT};
    void *arguments[] = {&params};

    return gvmi_cu->cuMemcpyHtoD(params.numbers, numbers, threads * sizeof *numbers) == CUDA_SUCCESS &&
           gvmi_cu->cuMemsetD8Async(params.answers, 0, threads * sizeof *answers, NULL) ==
               CUDA_SUCCESS &&
           gvmi_cu->cuLaunchKernel(function, BLOCKS, 1, 1, shape[0], shape[1], shape[2], 0, NULL,
                                   arguments, NULL) == CUDA_SUCCESS &&
           gvmi_cu->cuMemcpyDtoH(answers, params.answers, threads * sizeof *answers) == CUDA_SUCCESS;
}

/* From no odd numbers to all of them odd; small ones and any. */
static bool round_of(unsigned round)
{
    static uint64_t numbers[THREADS_MAX];
    static dialect_answer answers[THREADS_MAX];

    for (uint32_t i = 0; i < threads; i++) {
        numbers[i] = round % 2 == 0 ? draw() : draw() % 5;
        numbers[i] = (numbers[i] & ~1ull) | (draw() % 8 < round % 9);
    }
    draw_shape(round);
    if (!launch(numbers, answers)) {
        printf("# round %u: a call of the driver failed\n", round);
        return false;
    }
    for (uint32_t i = 0; i < threads; i++) {
        const dialect_answer wanted = expected(numbers, i);

        if (i % block_threads % (uint32_t)info.warp_size + 1 == (uint32_t)info.warp_size)
            answers[i].next_u32 = 0, answers[i].next_u64 = 0;
        if (memcmp(&wanted, &answers[i], sizeof wanted) != 0) {
            printf("# round %u, thread %u of %u, blocks of %u x %u x %u, warps of %d: not what plain "
                   "loops give\n",
                   round, i, threads, shape[0], shape[1], shape[2], (int)info.warp_size);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    bool fine = true;

    if (argc > 2)
        return 2;
    state = random_seed(argc == 2 ? argv[1] : NULL);
    fixture_machine_default("memory=64MiB,sms=3");
    setenv("GVMEM_CHECK", "1", 1);
    if (!open_device())
        tap_bail_out("there is no device");
    if (!has_kernels()) {
        end();
        return tap_skip_all("built without nvcc");
    }
    tap_plan(1);
    printf("# seed %llu\n", (unsigned long long)state);
    fine = start();
    if (!fine)
        printf("# the kernel cannot be loaded\n");
    for (unsigned round = 0; round < ROUNDS && fine; round++)
        fine = round_of(round);
    end();
    fine = fine && gvmi_check_violations() == 0;
    tap_result(fine, "lanes_know_of_each_other_what_the_header_says");
    return tap_finish();
}
