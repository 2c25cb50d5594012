/* A plain program of the driver API: what a program builds on virtual memory management for itself.
 *
 *     grow_array IMAGE
 *
 * Memory of a wrapper beside memory of the driver's own calls; an array that grows in place, whose address and content
 * stay; rows with a pitch; and, where there is a second device, memory that it reads because it was granted access.
 */
#include "tests/foreign/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 5
#define WORDS_AT_ONCE ((size_t)1 << 20)

/* ---- memory by virtual memory management */

static CUmemAllocationProp prop_of(CUdevice device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

static size_t round_to_granules(CUdevice device, size_t size)
{
    const CUmemAllocationProp prop = prop_of(device);
    size_t granule;

    MUST(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return (size + granule - 1) / granule * granule;
}

/* Puts memory of the device behind [at, at + size), which is reserved. On failure nothing has changed. */
static CUresult back_range(CUdeviceptr at, size_t size, CUdevice device)
{
    const CUmemAllocationProp prop = prop_of(device);
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, size, &prop, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemMap(at, size, 0, handle, 0);
    MUST(cuMemRelease(handle)); /* the mapping keeps the memory */
    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemSetAccess(at, size, &access, 1);
    if (result != CUDA_SUCCESS)
        MUST(cuMemUnmap(at, size));
    return result;
}

static CUresult vmm_alloc(CUdeviceptr *out, size_t size, CUdevice device)
{
    CUdeviceptr at;
    CUresult result;

    size = round_to_granules(device, size);
    result = cuMemAddressReserve(&at, size, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = back_range(at, size, device);
    if (result == CUDA_SUCCESS)
        *out = at;
    else
        MUST(cuMemAddressFree(at, size));
    return result;
}

static void vmm_free(CUdeviceptr at, size_t size, CUdevice device)
{
    size = round_to_granules(device, size);
    MUST(cuMemUnmap(at, size));
    MUST(cuMemAddressFree(at, size));
}

/* ---- an array that grows in place */

typedef struct array {
    CUdevice device;
    CUdeviceptr at;
    size_t reserved_bytes, backed_bytes;
} array;

static void array_open(array *a, CUdevice device, size_t most_bytes)
{
    *a = (array){.device = device, .reserved_bytes = round_to_granules(device, most_bytes)};
    MUST(cuMemAddressReserve(&a->at, a->reserved_bytes, 0, 0, 0));
}

static CUresult array_grow(array *a, size_t bytes)
{
    size_t wanted = round_to_granules(a->device, bytes);
    CUresult result;

    if (wanted <= a->backed_bytes)
        return CUDA_SUCCESS;
    if (wanted > a->reserved_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = back_range(a->at + a->backed_bytes, wanted - a->backed_bytes, a->device);
    if (result == CUDA_SUCCESS)
        a->backed_bytes = wanted;
    return result;
}

static void array_close(array *a)
{
    MUST(cuMemUnmap(a->at, a->backed_bytes));
    MUST(cuMemAddressFree(a->at, a->reserved_bytes));
}

/* ---- what is tried */

static size_t free_memory(void)
{
    size_t free_bytes, total;

    MUST(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static void try_wrapper(CUdevice device)
{
    size_t size = 5 * WORDS_AT_ONCE * sizeof(uint32_t) / 2, words = size / sizeof(uint32_t),
           before = free_memory();
    CUdeviceptr at, plain;

    MUST(vmm_alloc(&at, size, device));
    MUST(cuMemAlloc(&plain, size));
    fill_words(at, words, 1);
    fill_words(plain, words, 1);
    HOLDS(sum_words(at, words) == sum_of_fill(words, 1));
    HOLDS(sum_words(at, words) == sum_words(plain, words));
    MUST(cuMemFree(plain));
    vmm_free(at, size, device);
    HOLDS(free_memory() + round_to_granules(device, size) > before);
    printf("memory of the wrapper is as good as the driver's own\n");
}

static void try_growth(CUdevice device)
{
    array a;
    CUdeviceptr at;
    size_t words = 0;

    array_open(&a, device, 2 * STEPS * WORDS_AT_ONCE * sizeof(uint32_t));
    at = a.at;
    for (int step = 0; step < STEPS; step++) {
        MUST(array_grow(&a, (words + WORDS_AT_ONCE) * sizeof(uint32_t)));
        HOLDS(a.at == at);
        fill_words(at + words * sizeof(uint32_t), WORDS_AT_ONCE, (uint32_t)words);
        words += WORDS_AT_ONCE;
        HOLDS(sum_words(at, words) == sum_of_fill(words, 0)); /* what was there before is there still */
    }
    HOLDS(array_grow(&a, a.reserved_bytes + 1) == CUDA_ERROR_OUT_OF_MEMORY);
    HOLDS(sum_words(at, words) == sum_of_fill(words, 0));
    array_close(&a);
    printf("an array grew %d times at one address\n", STEPS);
}

static void try_rows(void)
{
    enum { WIDTH = 300, HEIGHT = 40 };
    static unsigned char out[HEIGHT][WIDTH], in[HEIGHT][WIDTH];
    CUDA_MEMCPY2D copy = {0};
    CUdeviceptr at;
    size_t pitch = 0;

    for (int y = 0; y < HEIGHT; y++)
        memset(out[y], y + 1, WIDTH);
    MUST(cuMemAllocPitch(&at, &pitch, WIDTH, HEIGHT, 4));
    HOLDS(pitch >= WIDTH && pitch % 512 == 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = out;
    copy.srcPitch = WIDTH;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = at;
    copy.dstPitch = pitch;
    copy.WidthInBytes = WIDTH;
    copy.Height = HEIGHT;
    MUST(cuMemcpy2D(&copy));
    for (int y = 0; y < HEIGHT; y++)
        MUST(cuMemcpyDtoH(in[y], at + (size_t)y * pitch, WIDTH));
    HOLDS(memcmp(in, out, sizeof in) == 0);
    MUST(cuMemFree(at));
    printf("rows lie %zu bytes apart\n", pitch);
}

/* The second device reads what is the first one's, once it is granted. */
static void try_peer(CUdevice device, CUdevice peer, const char *image)
{
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const size_t size = round_to_granules(device, WORDS_AT_ONCE * sizeof(uint32_t));
    CUcontext theirs, popped;
    CUdeviceptr at;
    uint64_t sum;
    int can = 0;

    MUST(cuDeviceCanAccessPeer(&can, peer, device));
    if (!can) {
        printf("device %d cannot reach memory of device %d: not tried\n", peer, device);
        return;
    }
    MUST(vmm_alloc(&at, size, device));
    fill_words(at, WORDS_AT_ONCE, 9);
    MUST(cuMemSetAccess(at, size, &access, 1));
    theirs = begin_context(peer, image);
    sum = sum_words(at, WORDS_AT_ONCE);
    HOLDS(sum == sum_of_fill(WORDS_AT_ONCE, 9));
    MUST(cuCtxPopCurrent(&popped));
    HOLDS(popped == theirs);
    vmm_free(at, size, device);
    MUST(cuCtxDestroy(theirs));
    printf("device %d read memory of device %d\n", peer, device);
}

int main(int argc, char **argv)
{
    CUcontext context, current;
    CUdevice device, peer;
    int count;

    if (argc != 2) {
        fprintf(stderr, "usage: grow_array IMAGE\n");
        return 2;
    }
    MUST(cuInit(0));
    MUST(cuDeviceGetCount(&count));
    MUST(cuDeviceGet(&device, 0));
    context = begin_context(device, argv[1]);
    try_wrapper(device);
    try_growth(device);
    try_rows();
    if (count > 1) {
        MUST(cuDeviceGet(&peer, 1));
        try_peer(device, peer, argv[1]);
    } else {
        printf("one device: no peer tried\n");
    }
    MUST(cuCtxGetCurrent(&current));
    HOLDS(current == context);
    MUST(cuCtxDestroy(context));
    MUST(cuCtxGetCurrent(&current));
    HOLDS(current == NULL);
    return 0;
}
