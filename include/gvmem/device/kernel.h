/* gvmem/device/kernel.h - the dialect in which kernels are written once and built twice.
 *
 * A kernel file is C that is also CUDA C++. nvcc makes a fatbin of it for a real GPU, or NVRTC a cubin; the C
 * compiler makes a shared object of it for the software GPU. Both are loaded with cuModuleLoadData
 * and launched with cuLaunchKernel, with the same single argument.
 *
 *     typedef struct { const double *values; uint64_t count; double *out; } sum_params;
 *
 *     GVM_KERNEL(sum, sum_params, p)
 *     {
 *         double s = 0;
 *         for (uint64_t i = gvm_thread_global(); i < p.count; i += gvm_thread_count())
 *             s += p.values[i];
 *         s = gvm_block_sum_f64(s);
 *         if (gvm_thread() == 0)
 *             gvm_atomic_add_f64(p.out, s);
 *     }
 *
 * Rules of the dialect:
 *
 * 1. A kernel takes one struct by value, of fixed-width members and pointers.
 *
 * 2. Nothing assumes a warp size or a block size: the software GPU has blocks of one thread and
 *    warps of one lane. Code strides by gvm_thread_count() and asks gvm_warp_size(). Launch with
 *    blocks of at most CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK threads. Blocks of a CUDA kernel of one's
 *    own may have two or three dimensions: gvm_thread() counts their threads x first, then y, then z, as
 *    the warps do. Grids have one dimension.
 *
 * 3. Words that several blocks touch go through the gvm_atomic_ and gvm_load_/gvm_store_ functions
 * below, so that the C compiler and ThreadSanitizer see what the GPU would see. Plain loads and
 * stores are for data that nobody else touches meanwhile.
 *
 * 4. No function pointers, recursion, printf, or static variables other than GVM_GLOBAL.
 *
 * Semantics of the memory orders: C11 (acquire, release, relaxed; consume: what depends on the
 * value, by address or by branch, comes after it, at the cost of a plain load on a GPU); scope: the
 * device, or with the suffix _system also the host and peers. hostNativeAtomicSupported is 0 on
 * PCIe machines: on words that the host writes, use loads and stores only.
 */
#ifndef GVMEM_DEVICE_KERNEL_H
#define GVMEM_DEVICE_KERNEL_H

#include <gvmem/device/detail/types.h>

/* The binary interface between a software image and the software GPU: for every kernel NAME the
 * image exports a constant gvm_soft_kernel_NAME, for every GVM_GLOBAL a constant
 * gvm_soft_global_NAME. */
#define GVM_SOFT_ABI 1u

typedef struct gvm_soft_block {
    uint32_t block[3]; /* index of this block in the grid */
    uint32_t grid[3];  /* size of the grid in blocks */
    void *shared; /* dynamic shared memory of this block, shared_bytes long, 16-byte aligned, contents undefined */
    uint32_t shared_bytes;
} gvm_soft_block;

typedef struct gvm_soft_kernel {
    uint32_t abi;                                                 /* GVM_SOFT_ABI */
    uint32_t params_bytes;                                        /* size of the one argument */
    void (*run)(const void *params, const gvm_soft_block *block); /* runs one block, that is one thread */
} gvm_soft_kernel;

typedef struct gvm_soft_global {
    uint32_t abi;
    void *address;
    uint64_t size_bytes;
} gvm_soft_global;

#if defined(__CUDACC__)
/* ------------------------------------------------------------------ a real GPU */

#define GVM_DEVICE static __device__ __forceinline__
/* A function that is seldom called: its registers are not every caller's. */
#define GVM_DEVICE_RARE static __device__ __noinline__

/* Only so can a function that is not inlined be given a pointer into a kernel's parameters without a
 * copy of all of them in every thread. */
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1107
#define GVM_PARAMETER const __grid_constant__
#else
#define GVM_PARAMETER const
#endif
#define GVM_KERNEL(name, params_type, p) \
    extern "C" __global__ void name(GVM_PARAMETER params_type p)
#define GVM_GLOBAL(type, name) \
    extern "C" { \
    __device__ type name; \
    }
#define GVM_SHARED(type, name, count) __shared__ type name[count]
/* Before a loop of a constant number of rounds, whose arrays shall be registers. */
#define GVM_UNROLL _Pragma("unroll")

GVM_DEVICE uint32_t gvm_thread(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
GVM_DEVICE uint32_t gvm_block_threads(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}
GVM_DEVICE uint32_t gvm_block(void)
{
    return blockIdx.x;
}
GVM_DEVICE uint32_t gvm_block_count(void)
{
    return gridDim.x;
}
GVM_DEVICE uint32_t gvm_warp_size(void)
{
    return 32;
}
/* The same as gvm_thread() % 32, without the three indices. */
GVM_DEVICE uint32_t gvm_lane(void)
{
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
GVM_DEVICE void *gvm_shared(void)
{
    extern __shared__ __align__(16) unsigned char gvm_shared_bytes[];
    return gvm_shared_bytes;
}

GVM_DEVICE void gvm_block_sync(void)
{
    __syncthreads();
}
GVM_DEVICE void gvm_warp_sync(void)
{
    __syncwarp();
}
GVM_DEVICE void gvm_fence(void)
{
    __threadfence();
}
GVM_DEVICE void gvm_fence_system(void)
{
    __threadfence_system();
}
GVM_DEVICE void gvm_pause(void)
{
    __nanosleep(100);
}

GVM_DEVICE double gvm_warp_down_f64(double v, uint32_t lanes)
{
    return __shfl_down_sync(0xffffffffu, v, lanes);
}
GVM_DEVICE uint64_t gvm_warp_down_u64(uint64_t v, uint32_t lanes)
{
    return (uint64_t)__shfl_down_sync(0xffffffffu, (unsigned long long)v, lanes);
}

GVM_DEVICE uint32_t gvm_warp_down_u32(uint32_t v, uint32_t lanes)
{
    return __shfl_down_sync(0xffffffffu, v, lanes);
}

GVM_DEVICE uint64_t gvm_warp_get_u64(uint64_t v, uint32_t lane)
{
    return (uint64_t)__shfl_sync(0xffffffffu, (unsigned long long)v, (int)lane);
}
GVM_DEVICE uint32_t gvm_warp_get_u32(uint32_t v, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, v, (int)lane);
}

/* How many lanes before this one say yes; *total: how many of all. Every lane of the warp must call
 * it. */
GVM_DEVICE uint32_t gvm_warp_rank(int yes, uint32_t *total)
{
    const uint32_t all = __ballot_sync(0xffffffffu, yes);

    *total = (uint32_t)__popc(all);
    return (uint32_t)__popc(all & ((1u << gvm_lane()) - 1));
}

/* Stores what this kernel does not read again, so that it drives nothing else from the caches. The
 * second is for 16 bytes at a multiple of 16. */
GVM_DEVICE void gvm_stream_u64(void *p, uint64_t v)
{
    __stcs((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE void gvm_stream_u64x2(void *p, uint64_t first, uint64_t second)
{
    __stcs((ulonglong2 *)p, make_ulonglong2(first, second));
}

GVM_DEVICE uint32_t gvm_atomic_add_u32(uint32_t *p, uint32_t v)
{
    return atomicAdd(p, v);
}
GVM_DEVICE uint64_t gvm_atomic_add_u64(uint64_t *p, uint64_t v)
{
    return atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE double gvm_atomic_add_f64(double *p, double v)
{
    return atomicAdd(p, v);
}
GVM_DEVICE uint64_t gvm_atomic_min_u64(uint64_t *p, uint64_t v)
{
    return atomicMin((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE uint64_t gvm_atomic_max_u64(uint64_t *p, uint64_t v)
{
    return atomicMax((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE uint32_t gvm_atomic_exchange_u32(uint32_t *p, uint32_t v)
{
    return atomicExch(p, v);
}
GVM_DEVICE uint32_t gvm_atomic_cas_u32(uint32_t *p, uint32_t expected, uint32_t desired)
{
    return atomicCAS(p, expected, desired);
}
GVM_DEVICE uint64_t gvm_atomic_cas_u64(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return atomicCAS((unsigned long long *)p, (unsigned long long)expected,
                     (unsigned long long)desired);
}

#define GVM_DEVICE_LOAD_STORE(bits, letter, suffix, scope) \
    GVM_DEVICE uint##bits##_t gvm_load_acquire_u##bits##suffix(const uint##bits##_t *p) \
    { \
        uint##bits##_t v; \
        asm volatile("ld.acquire." scope ".u" #bits " %0, [%1];" \
                     : "=" letter(v) \
                     : "l"(p) \
                     : "memory"); \
        return v; \
    } \
    GVM_DEVICE void gvm_store_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        asm volatile("st.release." scope ".u" #bits " [%0], %1;" ::"l"(p), letter(v) : "memory"); \
    } \
    GVM_DEVICE uint##bits##_t gvm_load_consume_u##bits##suffix(const uint##bits##_t *p) \
    { \
        uint##bits##_t v; \
        asm volatile("ld.relaxed." scope ".u" #bits " %0, [%1];" \
                     : "=" letter(v) \
                     : "l"(p) \
                     : "memory"); \
        return v; \
    }
GVM_DEVICE_LOAD_STORE(32, "r", , "gpu")
GVM_DEVICE_LOAD_STORE(64, "l", , "gpu")
GVM_DEVICE_LOAD_STORE(32, "r", _system, "sys")
GVM_DEVICE_LOAD_STORE(64, "l", _system, "sys")
#undef GVM_DEVICE_LOAD_STORE

/* Nanoseconds since some start; for differences. */
GVM_DEVICE uint64_t gvm_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

#elif !defined(__cplusplus)
/* ------------------------------------------------------------------ the software GPU: one thread a
 * block, one lane a warp */

#include <string.h>
#include <threads.h>
#include <time.h>

#define GVM_DEVICE static inline __attribute__((unused))
#define GVM_DEVICE_RARE static __attribute__((unused))
#define GVM_EXPORT __attribute__((visibility("default")))

/* The block that the calling thread runs; set by the entry of each kernel. */
static _Thread_local const gvm_soft_block *gvm_soft_self;

#define GVM_KERNEL(name, params_type, p) \
    static void name(const params_type p); \
    static void name##_run(const void *params, const gvm_soft_block *block) \
    { \
        params_type copy; \
        memcpy(&copy, params, sizeof copy); \
        gvm_soft_self = block; \
        name(copy); \
    } \
    extern const gvm_soft_kernel gvm_soft_kernel_##name; \
    GVM_EXPORT const gvm_soft_kernel gvm_soft_kernel_##name = { \
        GVM_SOFT_ABI, (uint32_t)sizeof(params_type), name##_run}; \
    static void name(const params_type p)

#define GVM_GLOBAL(type, name) \
    static type name; \
    extern const gvm_soft_global gvm_soft_global_##name; \
    GVM_EXPORT const gvm_soft_global gvm_soft_global_##name = {GVM_SOFT_ABI, &name, sizeof(type)};

#define GVM_SHARED(type, name, count) type name[count]
#define GVM_UNROLL

GVM_DEVICE uint32_t gvm_thread(void)
{
    return 0;
}
GVM_DEVICE uint32_t gvm_block_threads(void)
{
    return 1;
}
GVM_DEVICE uint32_t gvm_block(void)
{
    return gvm_soft_self->block[0];
}
GVM_DEVICE uint32_t gvm_block_count(void)
{
    return gvm_soft_self->grid[0];
}
GVM_DEVICE uint32_t gvm_warp_size(void)
{
    return 1;
}
GVM_DEVICE uint32_t gvm_lane(void)
{
    return 0;
}
GVM_DEVICE void *gvm_shared(void)
{
    return gvm_soft_self->shared;
}

GVM_DEVICE void gvm_block_sync(void) {}
GVM_DEVICE void gvm_warp_sync(void) {}
GVM_DEVICE void gvm_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
GVM_DEVICE void gvm_fence_system(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
GVM_DEVICE void gvm_pause(void)
{
    const struct timespec wait = {0, 1000};
    thrd_sleep(&wait, NULL);
}

GVM_DEVICE double gvm_warp_down_f64(double v, uint32_t lanes)
{
    (void)lanes;
    return v;
}
GVM_DEVICE uint64_t gvm_warp_down_u64(uint64_t v, uint32_t lanes)
{
    (void)lanes;
    return v;
}

GVM_DEVICE uint32_t gvm_warp_down_u32(uint32_t v, uint32_t lanes)
{
    (void)lanes;
    return v;
}

GVM_DEVICE uint64_t gvm_warp_get_u64(uint64_t v, uint32_t lane)
{
    (void)lane;
    return v;
}
GVM_DEVICE uint32_t gvm_warp_get_u32(uint32_t v, uint32_t lane)
{
    (void)lane;
    return v;
}

GVM_DEVICE uint32_t gvm_warp_rank(int yes, uint32_t *total)
{
    *total = yes != 0;
    return 0;
}

GVM_DEVICE void gvm_stream_u64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}
GVM_DEVICE void gvm_stream_u64x2(void *p, uint64_t first, uint64_t second)
{
    memcpy(p, &first, sizeof first);
    memcpy((char *)p + sizeof first, &second, sizeof second);
}

GVM_DEVICE uint32_t gvm_atomic_add_u32(uint32_t *p, uint32_t v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
GVM_DEVICE uint64_t gvm_atomic_add_u64(uint64_t *p, uint64_t v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
GVM_DEVICE uint64_t gvm_atomic_cas_u64(uint64_t *p, uint64_t expected, uint64_t desired)
{
    __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
GVM_DEVICE uint32_t gvm_atomic_cas_u32(uint32_t *p, uint32_t expected, uint32_t desired)
{
    __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
GVM_DEVICE uint32_t gvm_atomic_exchange_u32(uint32_t *p, uint32_t v)
{
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
GVM_DEVICE uint64_t gvm_atomic_min_u64(uint64_t *p, uint64_t v)
{
    uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
GVM_DEVICE uint64_t gvm_atomic_max_u64(uint64_t *p, uint64_t v)
{
    uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v > old && !__atomic_compare_exchange_n(p, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
GVM_DEVICE double gvm_atomic_add_f64(double *p, double v)
{
    uint64_t *word = (uint64_t *)(void *)p;
    uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    double value;
    do {
        memcpy(&value, &old, sizeof value);
        value += v;
        memcpy(&next, &value, sizeof next);
    } while (!__atomic_compare_exchange_n(word, &old, next, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    memcpy(&value, &old, sizeof value);
    return value;
}

#define GVM_SOFT_LOAD_STORE(bits, suffix) \
    GVM_DEVICE uint##bits##_t gvm_load_acquire_u##bits##suffix(const uint##bits##_t *p) \
    { \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE); \
    } \
    GVM_DEVICE void gvm_store_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        __atomic_store_n(p, v, __ATOMIC_RELEASE); \
    } \
    GVM_DEVICE uint##bits##_t gvm_load_consume_u##bits##suffix(const uint##bits##_t *p) \
    { \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE); \
    }
GVM_SOFT_LOAD_STORE(32, )
GVM_SOFT_LOAD_STORE(64, )
GVM_SOFT_LOAD_STORE(32, _system)
GVM_SOFT_LOAD_STORE(64, _system)
#undef GVM_SOFT_LOAD_STORE

#ifndef CLOCK_MONOTONIC /* <time.h> declares it for POSIX only, and C11 has no clock that cannot be set back */
int clock_gettime(int clock, struct timespec *t);
#define CLOCK_MONOTONIC 1
#endif

GVM_DEVICE uint64_t gvm_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif

#ifdef GVM_KERNEL /* a compiler that can build kernels: nvcc or a C compiler, but not plain C++ */
/* ------------------------------------------------------------------ both */

/* This thread's index among all threads of the launch (grids of one dimension), and how many there
 * are. */
GVM_DEVICE uint64_t gvm_thread_global(void)
{
    return (uint64_t)gvm_block() * gvm_block_threads() + gvm_thread();
}
GVM_DEVICE uint64_t gvm_thread_count(void)
{
    return (uint64_t)gvm_block_count() * gvm_block_threads();
}
GVM_DEVICE uint32_t gvm_warp(void)
{
    return gvm_thread() / gvm_warp_size();
}

/* The sum of v over the lanes before this one; *total over all lanes. Every lane of the warp must call
 * it. */
#define GVM_WARP_BEFORE(bits) \
    GVM_DEVICE uint##bits##_t gvm_warp_before_u##bits(uint##bits##_t v, uint##bits##_t *total) \
    { \
        uint##bits##_t sum = v, other; /* over this lane and those behind it */ \
        uint32_t step; \
        for (step = 1; step < gvm_warp_size(); step *= 2) { \
            other = gvm_warp_down_u##bits(sum, step); \
            if (gvm_lane() + step < gvm_warp_size()) \
                sum += other; \
        } \
        *total = gvm_warp_get_u##bits(sum, 0); \
        return *total - sum; \
    }
GVM_WARP_BEFORE(32)
GVM_WARP_BEFORE(64)
#undef GVM_WARP_BEFORE

/* The sum of v over the threads of the block, in thread 0; elsewhere undefined. Every thread of the
 * block must call it, and the block size must be a multiple of the warp size. */
#define GVM_BLOCK_SUM(type, letter) \
    GVM_DEVICE type gvm_block_sum_##letter(type v) \
    { \
        GVM_SHARED(type, warps, 32); \
        uint32_t step, i; \
        for (step = gvm_warp_size() / 2; step > 0; step /= 2) \
            v += gvm_warp_down_##letter(v, step); \
        if (gvm_lane() == 0) \
            warps[gvm_warp()] = v; \
        gvm_block_sync(); \
        if (gvm_thread() == 0) \
            for (i = 1; i < gvm_block_threads() / gvm_warp_size(); i++) \
                v += warps[i]; \
        gvm_block_sync(); \
        return v; \
    }
GVM_BLOCK_SUM(double, f64)
GVM_BLOCK_SUM(uint64_t, u64)
#undef GVM_BLOCK_SUM

#endif /* GVM_KERNEL */
#endif
