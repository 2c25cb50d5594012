/* gvmem/device/kernel.h: a thread's index in blocks of one to three dimensions, in what nvcc compiles: it is compiled
 * here with the names that CUDA gives to threads and blocks.
 */
#include "tests/unit/unit.h"

typedef struct ulonglong2 {
    unsigned long long x, y;
} ulonglong2;

static struct {
    uint32_t x, y, z;
} threadIdx, blockDim, blockIdx, gridDim;

/* clang-format off */
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __device__
#define __forceinline__ inline
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __syncthreads() ((void)0)
#define __syncwarp(...) ((void)(__VA_ARGS__ + 0))
#define __threadfence() ((void)0)
#define __threadfence_system() ((void)0)
#define __nanosleep(ns) ((void)(ns))
#define __shfl_down_sync(mask, v, lanes, width) ((void)(mask), (void)(lanes), (void)(width), (v))
#define __shfl_up_sync(mask, v, lanes, width) ((void)(mask), (void)(lanes), (void)(width), (v))
#define __shfl_xor_sync(mask, v, lanes, width) ((void)(mask), (void)(lanes), (void)(width), (v))
#define __shfl_sync(mask, v, lane, width) ((void)(mask), (void)(lane), (void)(width), (v))
#define __ballot_sync(mask, yes) ((mask) & (uint32_t)(yes))
#define __any_sync(mask, yes) ((void)(mask), (yes))
#define __all_sync(mask, yes) ((void)(mask), (yes))
#define __match_any_sync(mask, v) ((mask) & (v))
#define __activemask() 1u
#define __popc(bits) __builtin_popcount(bits)
#define __stcs(p, v) ((void)(*(p) = (v)))
#define __ldcs(p) (*(p))
#define __cvta_generic_to_global(p) ((uintptr_t)(p))
#define __cvta_generic_to_shared(p) ((uintptr_t)(p))
#define __isGlobal(p) ((p) != 0)
#define __builtin_assume(yes) ((void)(yes))
#define make_ulonglong2(x, y) ((ulonglong2){(x), (y)})
#define atomicAdd(p, v) (*(p) += (v))
#define atomicMin(p, v) (*(p) = (v))
#define atomicMax(p, v) (*(p) = (v))
#define atomicOr(p, v) (*(p) |= (v))
#define atomicExch(p, v) (*(p) = (v))
#define atomicCAS(p, expected, desired) ((void)(expected), *(p) = (desired))
/* clang-format on */

#include <gvmem/device/kernel.h>

/* Every index below the number of threads, in the order in which CUDA makes warps of them: x, y, z. */
static void thread_in_a_block_of_any_shape_has_the_index_of_its_warp_order(void **state)
{
    static const uint32_t shapes[][3] = {{96, 1, 1}, {16, 16, 1}, {1, 32, 1}, {4, 3, 8}, {1, 1, 64}};

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t next = 0;

        blockDim.x = shapes[i][0];
        blockDim.y = shapes[i][1];
        blockDim.z = shapes[i][2];
        for (threadIdx.z = 0; threadIdx.z < blockDim.z; threadIdx.z++)
            for (threadIdx.y = 0; threadIdx.y < blockDim.y; threadIdx.y++)
                for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) {
                    assert_int_equal(gvm_thread(), next);
                    assert_int_equal(gvm_warp(), next / 32);
                    next++;
                }
        assert_int_equal(gvm_block_threads(), next);
    }
}

static void thread_of_a_launch_has_an_index_of_its_own(void **state)
{
    (void)state;
    gridDim.x = 7;
    blockIdx.x = 5;
    blockDim.x = blockDim.y = 8;
    blockDim.z = 2;
    threadIdx.x = 1;
    threadIdx.y = 2;
    threadIdx.z = 1;
    assert_int_equal(gvm_thread_count(), 7 * 128);
    assert_int_equal(gvm_thread_global(), 5 * 128 + 64 + 16 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_in_a_block_of_any_shape_has_the_index_of_its_warp_order),
        cmocka_unit_test(thread_of_a_launch_has_an_index_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
