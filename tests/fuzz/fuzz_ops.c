/* Fuzzer of operations: bytes are a list of operations of the model (tests/prop/model.h), done on
 * the software GPU.
 *
 * Anything that does not agree with the model, any violation of the driver's contract, and anything
 * left held at the end is a crash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"
#include "tests/prop/model.h"

#define OPS_MAX 300 /* of one input */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static gvm_device *devices[MODEL_DEVICES_MAX];
static gvmi_check_holdings held_before;

static void die(const char *what)
{
    fprintf(stderr, "fuzz_ops: %s\n", what);
    abort();
}

/* The caches are emptied, so that what is held is what objects hold. What kernels need stays
 * loaded. */
static gvmi_check_holdings settle(void)
{
    for (int i = 0; i < MODEL_DEVICES_MAX; i++)
        if (gvm_device_trim(devices[i], 0) != GVM_OK)
            die("cannot trim a device");
    return gvmi_check_held();
}

/* Loads the kernels, as the first operation that runs one would. */
static void warm_up(gvm_device *device)
{
    uint64_t checksum;
    void *piece;

    if (gvm_alloc(device, 8, &piece) != GVM_OK)
        die("cannot allocate");
    (void)gvm_kernel_checksum(device, piece, 8, NULL, &checksum);
    (void)gvm_free(piece);
}

static void close_devices(void)
{
    for (int i = 0; i < MODEL_DEVICES_MAX; i++)
        gvm_device_close(devices[i]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    fixture_machine("devices=2,memory=64MiB,host=64MiB,sms=2");
    setenv("GVMEM_CHECK", "1", 1);
    for (int i = 0; i < MODEL_DEVICES_MAX; i++) {
        if (gvm_device_open(i, &devices[i]) != GVM_OK)
            die("no device");
        warm_up(devices[i]);
    }
    held_before = settle();
    atexit(close_devices);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const size_t count = size / sizeof(model_op) < OPS_MAX ? size / sizeof(model_op) : OPS_MAX;
    model *m = model_create(devices, MODEL_DEVICES_MAX, true);
    const char *problem = NULL;
    gvmi_check_holdings held;

    for (size_t i = 0; i < count && problem == NULL; i++) {
        model_op op;

        memcpy(&op, bytes + i * sizeof op, sizeof op);
        problem = model_step(m, &op);
    }
    if (problem == NULL)
        problem = model_compare_all(m);
    if (problem != NULL)
        die(problem);
    model_end(m);
    held = settle();
    if (memcmp(&held, &held_before, sizeof held) != 0)
        die("something is still held");
    return 0;
}
