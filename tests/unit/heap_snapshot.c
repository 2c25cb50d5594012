/* Writes the snapshot of a heap of the last device with blocks of all kinds, and the number of devices and the heap's extents as
 * lines, for heap_snapshot.py.
 *
 *     heap_snapshot FILE
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "driver/driver.h"
#include "memory/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define COUNT 4000 /* blocks: more than a batch of the file's */

static void must(gvm_status status)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "%s\n", error.text);
    exit(1);
}

static void print_extents(gvm_heap *heap)
{
    size_t count, room;
    gvm_heap_extent *extents;

    must(gvm_heap_list_extents(heap, 0, sizeof *extents, NULL, &room));
    extents = calloc(room, sizeof *extents);
    if (extents == NULL)
        exit(1);
    must(gvm_heap_list_extents(heap, room, sizeof *extents, extents, &count));
    for (size_t i = 0; i < count; i++)
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRIu64 " %s\n",
               gvmi_key(extents[i].range), gvmi_key(extents[i].address), extents[i].len_bytes,
               extents[i].size_bytes, (int)extents[i].use, gvmi_key(extents[i].stream),
               extents[i].tag);
    free(extents);
}

static void fill(gvm_heap *heap, gvm_stream stream, gvm_stream other)
{
    static const char *const tags[] = {NULL, "weights", "\xff\xc3\xa4 \"'", ""};
    void *ptr;

    for (size_t i = 0; i < COUNT; i++) {
        if (i % 2 == 0)
            must(gvm_heap_alloc_tagged(heap, 1 + i * 7, tags[i / 2 % 4], &ptr));
        else
            must(gvm_heap_alloc_async(heap, 1 + i * 7, tags[i / 2 % 4], stream, &ptr));
        if (i % 5 == 0)
            must(gvm_heap_free(heap, ptr));
        else if (i % 7 == 0)
            must(gvm_heap_free_async(heap, ptr, other));
    }
    must(gvm_heap_alloc(heap, 700 * MIB, &ptr));
    must(gvm_heap_alloc(heap, 3 * GIB, &ptr)); /* its size has no 32 bits */
}

static void open_gate(void *gate)
{
    while (!__atomic_load_n((bool *)gate, __ATOMIC_ACQUIRE))
        pause_us(100);
}

int main(int argc, char **argv)
{
    static bool gate;
    gvm_device *device;
    gvm_heap *heap;
    int32_t devices;
    CUstream stream, other;

    if (argc != 2)
        return 2;
    fixture_machine_default("devices=2,memory=8GiB,sms=2");
    must(gvm_device_count(&devices));
    must(gvm_device_open(devices - 1, &device));
    must(gvm_heap_create(device, NULL, &heap));
    must(gvmi_device_enter(device));
    if (gvmi_cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        gvmi_cu->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        gvmi_cu->cuLaunchHostFunc(other, open_gate, &gate) != CUDA_SUCCESS)
        return 1;
    fill(heap, stream, other);
    must(gvm_heap_save_snapshot(heap, argv[1]));
    printf("%" PRId32 "\n", devices);
    print_extents(heap);
    __atomic_store_n(&gate, true, __ATOMIC_RELEASE);
    gvm_heap_destroy(heap);
    gvmi_cu->cuStreamDestroy(stream);
    gvmi_cu->cuStreamDestroy(other);
    gvmi_device_leave();
    gvm_device_close(device);
    return 0;
}
