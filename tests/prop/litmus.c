/* What regions rely on of a GPU's memory, tried often: data that is written in place between two sets of readers.
 *
 *     litmus [ROUNDS]
 *
 * Goal: who counts itself in with acquire sees by plain loads, through whatever caches, what was published with release before, and
 * nothing of what came earlier at the same addresses; who claims the data with acquire after the last reader left with release
 * writes nothing that those still read. In device memory (a frame) and in host memory (a home). Method: one warp writes versions, all
 * other blocks read; each word that is not the version is counted.
 */
#include <stdio.h>
#include <stdlib.h>

#include <gvmem/gvmem.h>

#include "base/address.h"
#include "driver/driver.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tests/prop/litmus_kernels.h"

#define ROUNDS 20000u
#define DATA_AT 4096u /* of the memory: behind the words that are counted */

extern const unsigned char gvmi_image_soft_litmus_kernels[];
extern const unsigned char *const gvmi_image_cuda_litmus_kernels;

static gvm_device *device;
static CUmodule module;
static gvm_device_info info = {.struct_size = sizeof info};
static CUfunction function;

static bool open_device(void)
{
    return device_open_with_kernels(gvmi_image_soft_litmus_kernels, gvmi_image_cuda_litmus_kernels,
                                    &device, &info, &module) &&
           (module == NULL ||
            gvmi_cu->cuModuleGetFunction(&function, module, "litmus") == CUDA_SUCCESS);
}

/* One launch; the counts that it left. */
static bool launch(gvm_buffer *memory, gvm_buffer *data, uint32_t rounds, uint64_t counts[2])
{
    const uint64_t base = gvmi_address(gvm_buffer_address(memory));
    const unsigned threads = info.block_threads_max < 64 ? (unsigned)info.block_threads_max : 64;
    litmus_params params = {
        .word = base,
        .data = gvmi_address(gvm_buffer_address(data)) + DATA_AT,
        .done = base + 64,
        .reads = base + 128,
        .wrong = base + 136,
        .rounds = rounds,
    };
    void *arguments[] = {&params};
    const uint8_t zero = 0;

    return gvm_buffer_fill(memory, 0, DATA_AT, &zero, 1) == GVM_OK &&
           gvm_buffer_fill(data, DATA_AT, LITMUS_WORDS * sizeof(uint32_t), &zero, 1) == GVM_OK &&
           gvmi_cu->cuLaunchKernel(function, (unsigned)info.sm_count, 1, 1, threads, 1, 1, 0, NULL,
                                   arguments, NULL) == CUDA_SUCCESS &&
           gvmi_cu->cuCtxSynchronize() == CUDA_SUCCESS &&
           gvm_buffer_copy_out(counts, memory, 128, 2 * sizeof *counts) == GVM_OK;
}

static bool try_tier(gvm_tier tier, uint32_t rounds)
{
    gvm_buffer *memory = NULL, *data = NULL;
    uint64_t counts[2] = {0, 1};
    bool good = gvm_buffer_create(device, 2 * MIB, NULL, &memory) == GVM_OK &&
                gvm_buffer_commit(memory, 0, 2 * MIB) == GVM_OK &&
                gvm_buffer_create(device, 2 * MIB, NULL, &data) == GVM_OK &&
                gvm_buffer_commit(data, 0, 2 * MIB) == GVM_OK;

    if (good && tier == GVM_TIER_HOST)
        good = gvm_buffer_move(data, 0, 2 * MIB, tier) == GVM_OK;
    good = good && launch(memory, data, rounds, counts);
    gvm_buffer_destroy(data);
    gvm_buffer_destroy(memory);
    return tap_result(
        good && counts[1] == 0 && counts[0] > 0,
        "readers_see_the_version_that_was_published in %s (%u versions, %llu reads, %llu words wrong)",
        tier == GVM_TIER_HOST ? "host memory" : "device memory", rounds,
        (unsigned long long)counts[0], (unsigned long long)counts[1]);
}

int main(int argc, char **argv)
{
    const uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : ROUNDS;

    fixture_machine_default("memory=64MiB,sms=8");
    if (!open_device())
        tap_bail_out("there is no device");
    if (module == NULL)
        return tap_skip_all("this build has no kernels for real GPUs");
    (void)try_tier(GVM_TIER_DEVICE, rounds);
    (void)try_tier(GVM_TIER_HOST, rounds);
    gvm_device_close(device);
    return tap_finish();
}
