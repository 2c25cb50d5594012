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
 * 2. Nothing assumes a warp size or a block size: the software GPU has those that GVMEM_SOFTGPU says. Code
 *    strides by gvm_thread_count() and asks gvm_warp_size(). Launch with blocks of whole warps, of at most
 *    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK threads, which are at most 32 warps. Blocks and grids have one to three
 *    dimensions: gvm_thread() counts the threads of a block x first, then y, then z, as the warps do.
 *
 * 3. Words that several threads touch go through the gvm_atomic_ and gvm_load_/gvm_store_ functions
 * below, so that the C compiler and ThreadSanitizer see what the GPU would see. Plain loads and
 * stores are for data that nobody else touches meanwhile, that is for threads of a block: until the next
 * gvm_block_sync(), for lanes of a warp: until the next gvm_warp_sync(). A loop that waits for another thread calls
 * one of these functions, or gvm_pause().
 *
 * 4. No function pointers, recursion, printf, or static variables other than GVM_GLOBAL and GVM_SHARED.
 *
 * 5. Every thread has a program counter of its own. An operation of a warp waits for the lanes that its mask names (without
 *    a mask: for all), except those that have returned; each of them calls the same operation with the same mask. Where one
 *    reads the value of a lane that has returned, is not there or not in the mask, it reads nonsense.
 *
 * Semantics of the memory orders: C11 (acquire, release, relaxed; consume: what depends on the
 * value, by address or by branch, comes after it, at the cost of a plain load on a GPU); scope: the
 * device, or with the suffix _system also the host and peers. hostNativeAtomicSupported is 0 on
 * PCIe machines: on words that the host writes, use loads and stores only.
 *
 * docs/kernels.md lists the functions with their counterparts in CUDA.
 */
#ifndef GVMEM_DEVICE_KERNEL_H
#define GVMEM_DEVICE_KERNEL_H

#include <gvmem/device/detail/types.h>

/* The binary interface between a software image and the software GPU: for every kernel NAME the
 * image exports a constant gvm_soft_kernel_NAME, for every GVM_GLOBAL a constant
 * gvm_soft_global_NAME. */
#define GVM_SOFT_ABI 2u

typedef struct gvm_soft_thread gvm_soft_thread;

/* An operation of a warp, as one lane calls it. */
typedef struct gvm_soft_exchange {
    uint32_t mask;  /* the lanes that take part; the caller is one of them */
    uint32_t kind;  /* which operation: it waits for those that call the same */
    uint32_t from;  /* the lane whose value is the answer */
    uint32_t set;   /* answer: the lanes whose value is not 0 */
    uint64_t value; /* the caller's; answer: that of lane from */
} gvm_soft_exchange;

/* Each may run other threads of the block before it returns. */
typedef struct gvm_soft_calls {
    void (*step)(gvm_soft_thread *self); /* when steps has become 0 */
    void (*pause)(gvm_soft_thread *self);
    void (*barrier)(gvm_soft_thread *self);
    void (*exchange)(gvm_soft_thread *self, gvm_soft_exchange *exchange);
} gvm_soft_calls;

/* A thread of a block. */
struct gvm_soft_thread {
    const gvm_soft_calls *calls; /* NULL: the block has no other */
    uint32_t steps;              /* how often it touches shared words until it calls step */
    uint32_t thread, threads;    /* number in the block, and of how many */
    uint32_t lane, warp_size;
    uint32_t index[3], size[3]; /* of the thread in the block, of the block */
    uint32_t block[3], grid[3]; /* of the block in the grid, of the grid */
    void *shared; /* dynamic shared memory of the block, shared_bytes long, 16-byte aligned, contents undefined */
    uint32_t shared_bytes;
};

typedef struct gvm_soft_kernel {
    uint32_t abi;                    /* GVM_SOFT_ABI */
    uint32_t params_bytes;           /* size of the one argument */
    void (*run)(const void *params); /* runs one thread */
    gvm_soft_thread **(*self)(void); /* where the image has the thread that runs on this system thread */
} gvm_soft_kernel;

typedef struct gvm_soft_global {
    uint32_t abi;
    void *address;
    uint64_t size_bytes;
} gvm_soft_global;

#if defined(__CUDACC__)
/* ------------------------------------------------------------------ a real GPU */

/* The pointer is one to global memory: code for other spaces is left out. */
#define GVM_ASSUME_GLOBAL(p) __builtin_assume(__isGlobal(p))

#define GVM_DEVICE static __device__ __forceinline__
/* A function that is seldom called: its registers are not every caller's. */
#define GVM_DEVICE_RARE static __device__ __noinline__
/* GVM_FAR(f)(...) calls it with the registers of whichever needs more, not of both: the compiler does not see which function
 * that is, and makes the call by the rules of the platform's binary interface. */
#define GVM_FAR(function) ((decltype(&function))gvm_hide_u64((uint64_t)(function)))

/* Only so can a function that is not inlined be given a pointer into a kernel's parameters without a
 * copy of all of them in every thread. */
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1107
#define GVM_PARAMETER const __grid_constant__
#else
#define GVM_PARAMETER const
#endif
#define GVM_KERNEL(name, params_type, p) \
    extern "C" __global__ void name(GVM_PARAMETER params_type p)
/* For blocks of so many threads at most, so many of which are to fit into an SM: CUDA's __launch_bounds__. */
#define GVM_KERNEL_BOUNDED(name, params_type, p, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(GVM_PARAMETER params_type p)
#define GVM_GLOBAL(type, name) \
    extern "C" { \
    __device__ type name; \
    }
#define GVM_SHARED(type, name, count) __shared__ type name[count]
/* Before a loop of a constant number of rounds, whose arrays are to be in registers. */
#define GVM_UNROLL _Pragma("unroll")
/* Before a loop that is not to be unrolled, for the registers that this takes. */
#define GVM_NO_UNROLL _Pragma("unroll 1")

GVM_DEVICE uint64_t gvm_hide_u64(uint64_t v)
{
    asm("mov.u64 %0, %0;" : "+l"(v));
    return v;
}

GVM_DEVICE uint32_t gvm_thread_x(void)
{
    return threadIdx.x;
}
GVM_DEVICE uint32_t gvm_thread_y(void)
{
    return threadIdx.y;
}
GVM_DEVICE uint32_t gvm_thread_z(void)
{
    return threadIdx.z;
}
GVM_DEVICE uint32_t gvm_threads_x(void)
{
    return blockDim.x;
}
GVM_DEVICE uint32_t gvm_threads_y(void)
{
    return blockDim.y;
}
GVM_DEVICE uint32_t gvm_threads_z(void)
{
    return blockDim.z;
}
GVM_DEVICE uint32_t gvm_block_x(void)
{
    return blockIdx.x;
}
GVM_DEVICE uint32_t gvm_block_y(void)
{
    return blockIdx.y;
}
GVM_DEVICE uint32_t gvm_block_z(void)
{
    return blockIdx.z;
}
GVM_DEVICE uint32_t gvm_blocks_x(void)
{
    return gridDim.x;
}
GVM_DEVICE uint32_t gvm_blocks_y(void)
{
    return gridDim.y;
}
GVM_DEVICE uint32_t gvm_blocks_z(void)
{
    return gridDim.z;
}
GVM_DEVICE uint32_t gvm_thread(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
GVM_DEVICE uint32_t gvm_block_threads(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
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
GVM_DEVICE void gvm_warp_sync_lanes(uint32_t mask)
{
    __syncwarp(mask);
}
GVM_DEVICE uint32_t gvm_warp_ballot(uint32_t mask, int yes)
{
    return __ballot_sync(mask, yes);
}
GVM_DEVICE int gvm_warp_any(uint32_t mask, int yes)
{
    return __any_sync(mask, yes);
}
GVM_DEVICE int gvm_warp_all(uint32_t mask, int yes)
{
    return __all_sync(mask, yes);
}
GVM_DEVICE uint32_t gvm_warp_match_u32(uint32_t mask, uint32_t v)
{
    return __match_any_sync(mask, v);
}
GVM_DEVICE uint32_t gvm_warp_active(void)
{
    return __activemask();
}
GVM_DEVICE uint32_t gvm_count_ones(uint32_t bits)
{
    return (uint32_t)__popc(bits);
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

#define GVM_DEVICE_SHUFFLE(type, letter, cuda_type) \
    GVM_DEVICE type gvm_warp_shuffle_##letter(uint32_t mask, type v, uint32_t lane, uint32_t width) \
    { \
        return (type)__shfl_sync(mask, (cuda_type)v, (int)lane, (int)width); \
    } \
    GVM_DEVICE type gvm_warp_shuffle_up_##letter(uint32_t mask, type v, uint32_t lanes, uint32_t width) \
    { \
        return (type)__shfl_up_sync(mask, (cuda_type)v, lanes, (int)width); \
    } \
    GVM_DEVICE type gvm_warp_shuffle_down_##letter(uint32_t mask, type v, uint32_t lanes, \
                                                   uint32_t width) \
    { \
        return (type)__shfl_down_sync(mask, (cuda_type)v, lanes, (int)width); \
    } \
    GVM_DEVICE type gvm_warp_shuffle_xor_##letter(uint32_t mask, type v, uint32_t lanes, uint32_t width) \
    { \
        return (type)__shfl_xor_sync(mask, (cuda_type)v, (int)lanes, (int)width); \
    }
GVM_DEVICE_SHUFFLE(uint32_t, u32, uint32_t)
GVM_DEVICE_SHUFFLE(uint64_t, u64, unsigned long long)
GVM_DEVICE_SHUFFLE(int32_t, i32, int)
GVM_DEVICE_SHUFFLE(float, f32, float)
GVM_DEVICE_SHUFFLE(double, f64, double)
#undef GVM_DEVICE_SHUFFLE

/* Stores, or loads, what this kernel does not read again, so that it drives nothing else from the caches. Those of
 * _u64x2 are for 16 bytes at a multiple of 16. */
GVM_DEVICE void gvm_stream_u64(void *p, uint64_t v)
{
    __stcs((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE void gvm_stream_u64x2(void *p, uint64_t first, uint64_t second)
{
    __stcs((ulonglong2 *)p, make_ulonglong2(first, second));
}
GVM_DEVICE void gvm_stream_load_u64x2(const void *p, uint64_t *first, uint64_t *second)
{
    const ulonglong2 v = __ldcs((const ulonglong2 *)p);
    *first = v.x;
    *second = v.y;
}

GVM_DEVICE uint32_t gvm_atomic_add_u32(uint32_t *p, uint32_t v)
{
    return atomicAdd(p, v);
}
GVM_DEVICE uint64_t gvm_atomic_add_u64(uint64_t *p, uint64_t v)
{
    return atomicAdd((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE float gvm_atomic_add_f32(float *p, float v)
{
    return atomicAdd(p, v);
}
GVM_DEVICE double gvm_atomic_add_f64(double *p, double v)
{
    return atomicAdd(p, v);
}
GVM_DEVICE uint32_t gvm_atomic_min_u32(uint32_t *p, uint32_t v)
{
    return atomicMin(p, v);
}
GVM_DEVICE uint32_t gvm_atomic_max_u32(uint32_t *p, uint32_t v)
{
    return atomicMax(p, v);
}
GVM_DEVICE uint64_t gvm_atomic_min_u64(uint64_t *p, uint64_t v)
{
    return atomicMin((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE uint64_t gvm_atomic_max_u64(uint64_t *p, uint64_t v)
{
    return atomicMax((unsigned long long *)p, (unsigned long long)v);
}
GVM_DEVICE uint32_t gvm_atomic_or_u32(uint32_t *p, uint32_t v)
{
    return atomicOr(p, v);
}
GVM_DEVICE uint64_t gvm_atomic_or_u64(uint64_t *p, uint64_t v)
{
    return atomicOr((unsigned long long *)p, (unsigned long long)v);
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

/* The same with an order: what comes after one that acquires is not done before it, what comes before one that releases
 * is not done after it. For words in global memory; those of _block order what a block's threads do to words in its shared memory.
 * gvm_add_release_ adds, and does not return what was there. */
#define GVM_DEVICE_ORDERED(bits, letter, suffix, scope, space, address) \
    GVM_DEVICE uint##bits##_t gvm_atomic_add_acquire_u##bits##suffix(uint##bits##_t *p, \
                                                                     uint##bits##_t v) \
    { \
        uint##bits##_t old; \
        asm volatile("atom.acquire." scope space ".add.u" #bits " %0, [%1], %2;" \
                     : "=" letter(old) \
                     : "l"(address(p)), letter(v) \
                     : "memory"); \
        return old; \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_add_release_u##bits##suffix(uint##bits##_t *p, \
                                                                     uint##bits##_t v) \
    { \
        uint##bits##_t old; \
        asm volatile("atom.release." scope space ".add.u" #bits " %0, [%1], %2;" \
                     : "=" letter(old) \
                     : "l"(address(p)), letter(v) \
                     : "memory"); \
        return old; \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_cas_acquire_u##bits##suffix( \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t desired) \
    { \
        uint##bits##_t old; \
        asm volatile("atom.acquire." scope space ".cas.b" #bits " %0, [%1], %2, %3;" \
                     : "=" letter(old) \
                     : "l"(address(p)), letter(expected), letter(desired) \
                     : "memory"); \
        return old; \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_cas_release_u##bits##suffix( \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t desired) \
    { \
        uint##bits##_t old; \
        asm volatile("atom.release." scope space ".cas.b" #bits " %0, [%1], %2, %3;" \
                     : "=" letter(old) \
                     : "l"(address(p)), letter(expected), letter(desired) \
                     : "memory"); \
        return old; \
    } \
    GVM_DEVICE void gvm_add_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        asm volatile("red.release." scope space ".add.u" #bits " [%0], %1;" ::"l"(address(p)), \
                     letter(v) \
                     : "memory"); \
    }
GVM_DEVICE_ORDERED(32, "r", , "gpu", ".global", __cvta_generic_to_global)
GVM_DEVICE_ORDERED(64, "l", , "gpu", ".global", __cvta_generic_to_global)
GVM_DEVICE_ORDERED(64, "l", _block, "cta", ".shared", __cvta_generic_to_shared)
#undef GVM_DEVICE_ORDERED

#define GVM_DEVICE_LOAD(bits, letter, name, order, at) \
    GVM_DEVICE uint##bits##_t gvm_load_##name(const uint##bits##_t *p) \
    { \
        uint##bits##_t v; \
        asm volatile("ld." order ".u" #bits " %0, [%1];" : "=" letter(v) : "l"(at(p)) : "memory"); \
        return v; \
    }
#define GVM_DEVICE_LOAD_STORE(bits, letter, suffix, scope, at) \
    GVM_DEVICE_LOAD(bits, letter, acquire_u##bits##suffix, "acquire." scope, at) \
    GVM_DEVICE_LOAD(bits, letter, consume_u##bits##suffix, "relaxed." scope, at) \
    GVM_DEVICE void gvm_store_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        asm volatile("st.release." scope ".u" #bits " [%0], %1;" ::"l"(at(p)), letter(v) \
                     : "memory"); \
    }
GVM_DEVICE_LOAD_STORE(32, "r", , "gpu", )
GVM_DEVICE_LOAD_STORE(64, "l", , "gpu", )
GVM_DEVICE_LOAD_STORE(32, "r", _system, "sys", )
GVM_DEVICE_LOAD_STORE(64, "l", _system, "sys", )
GVM_DEVICE_LOAD_STORE(32, "r", _block, "cta.shared", __cvta_generic_to_shared)
#undef GVM_DEVICE_LOAD_STORE
#undef GVM_DEVICE_LOAD

/* Nanoseconds since some start; for differences. */
GVM_DEVICE uint64_t gvm_clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

#elif !defined(__cplusplus)
/* ------------------------------------------------------------------ the software GPU */

#include <string.h>
#include <threads.h>
#include <time.h>

#define GVM_DEVICE static inline __attribute__((unused))
#define GVM_DEVICE_RARE static __attribute__((unused))
#define GVM_FAR(function) (function)
#define GVM_ASSUME_GLOBAL(p) ((void)(p))
#define GVM_EXPORT __attribute__((visibility("default")))

/* The thread of a block that runs on this system thread; set by the software GPU. NULL: a function of the dialect is called
 * outside a kernel, as in a block of one thread and a warp of one lane. */
static _Thread_local gvm_soft_thread *gvm_soft_current __attribute__((unused));

static inline __attribute__((unused)) gvm_soft_thread **gvm_soft_slot(void)
{
    return &gvm_soft_current;
}

/* To a running function the answer is always the same, whatever threads run meanwhile: the compiler may ask once. */
static __attribute__((unused, noinline, const)) gvm_soft_thread *gvm_soft_self(void)
{
    static gvm_soft_thread alone = {.threads = 1, .warp_size = 1, .size = {1, 1, 1}, .grid = {1, 1, 1}};

    return gvm_soft_current ? gvm_soft_current : &alone;
}

#define GVM_KERNEL(name, params_type, p) \
    static void name(const params_type p); \
    static void name##_run(const void *gvm_soft_params) \
    { \
        params_type gvm_soft_copy; \
        memcpy(&gvm_soft_copy, gvm_soft_params, sizeof gvm_soft_copy); \
        name(gvm_soft_copy); \
    } \
    extern const gvm_soft_kernel gvm_soft_kernel_##name; \
    GVM_EXPORT const gvm_soft_kernel gvm_soft_kernel_##name = { \
        GVM_SOFT_ABI, (uint32_t)sizeof(params_type), name##_run, gvm_soft_slot}; \
    static void name(const params_type p)
#define GVM_KERNEL_BOUNDED(name, params_type, p, threads, blocks) GVM_KERNEL(name, params_type, p)

#define GVM_GLOBAL(type, name) \
    static type name; \
    extern const gvm_soft_global gvm_soft_global_##name; \
    GVM_EXPORT const gvm_soft_global gvm_soft_global_##name = {GVM_SOFT_ABI, &name, sizeof(type)};

/* The blocks of a system thread run one after the other, and all threads of a block on one. */
#define GVM_SHARED(type, name, count) static _Thread_local type name[count]
#define GVM_UNROLL
#define GVM_NO_UNROLL

GVM_DEVICE uint32_t gvm_thread_x(void)
{
    return gvm_soft_self()->index[0];
}
GVM_DEVICE uint32_t gvm_thread_y(void)
{
    return gvm_soft_self()->index[1];
}
GVM_DEVICE uint32_t gvm_thread_z(void)
{
    return gvm_soft_self()->index[2];
}
GVM_DEVICE uint32_t gvm_threads_x(void)
{
    return gvm_soft_self()->size[0];
}
GVM_DEVICE uint32_t gvm_threads_y(void)
{
    return gvm_soft_self()->size[1];
}
GVM_DEVICE uint32_t gvm_threads_z(void)
{
    return gvm_soft_self()->size[2];
}
GVM_DEVICE uint32_t gvm_block_x(void)
{
    return gvm_soft_self()->block[0];
}
GVM_DEVICE uint32_t gvm_block_y(void)
{
    return gvm_soft_self()->block[1];
}
GVM_DEVICE uint32_t gvm_block_z(void)
{
    return gvm_soft_self()->block[2];
}
GVM_DEVICE uint32_t gvm_blocks_x(void)
{
    return gvm_soft_self()->grid[0];
}
GVM_DEVICE uint32_t gvm_blocks_y(void)
{
    return gvm_soft_self()->grid[1];
}
GVM_DEVICE uint32_t gvm_blocks_z(void)
{
    return gvm_soft_self()->grid[2];
}
GVM_DEVICE uint32_t gvm_thread(void)
{
    return gvm_soft_self()->thread;
}
GVM_DEVICE uint32_t gvm_block_threads(void)
{
    return gvm_soft_self()->threads;
}
GVM_DEVICE uint32_t gvm_warp_size(void)
{
    return gvm_soft_self()->warp_size;
}
GVM_DEVICE uint32_t gvm_lane(void)
{
    return gvm_soft_self()->lane;
}

GVM_DEVICE void *gvm_shared(void)
{
    return gvm_soft_self()->shared;
}

/* Where another thread of the block may run: at everything that others see or change. */
GVM_DEVICE void gvm_soft_step(void)
{
    gvm_soft_thread *self = gvm_soft_self();

    if (self->calls != NULL && --self->steps == 0)
        self->calls->step(self);
}

GVM_DEVICE void gvm_block_sync(void)
{
    gvm_soft_thread *self = gvm_soft_self();

    if (self->calls != NULL)
        self->calls->barrier(self);
}
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
    gvm_soft_thread *self = gvm_soft_self();

    if (self->calls != NULL)
        self->calls->pause(self);
    else
        thrd_sleep(&wait, NULL);
}

/* Kinds of exchanges: lanes wait for those in the same one. */
#define GVM_SOFT_SHUFFLES(letter) \
    GVM_SOFT_SHUFFLE_##letter, GVM_SOFT_SHUFFLE_up_##letter, GVM_SOFT_SHUFFLE_down_##letter, \
        GVM_SOFT_SHUFFLE_xor_##letter
enum {
    GVM_SOFT_SYNC,
    GVM_SOFT_BALLOT,
    GVM_SOFT_ANY,
    GVM_SOFT_ALL,
    GVM_SOFT_SHUFFLES(u32),
    GVM_SOFT_SHUFFLES(u64),
    GVM_SOFT_SHUFFLES(f64),
    GVM_SOFT_SHUFFLES(i32),
    GVM_SOFT_SHUFFLES(f32)
};
#undef GVM_SOFT_SHUFFLES
#define GVM_SOFT_NONSENSE 0xbadbadbadbadbad1u /* what a lane reads that has no value */

GVM_DEVICE gvm_soft_exchange gvm_soft_exchanged(uint32_t kind, uint32_t mask, uint32_t from,
                                                uint64_t value)
{
    gvm_soft_thread *self = gvm_soft_self();
    gvm_soft_exchange e = {mask, kind, from, 0, value};

    if (self->calls != NULL) {
        self->calls->exchange(self, &e);
    } else {
        e.set = (uint32_t)(value != 0) << self->lane;
        if (from != self->lane)
            e.value = GVM_SOFT_NONSENSE;
    }
    return e;
}

GVM_DEVICE void gvm_warp_sync_lanes(uint32_t mask)
{
    (void)gvm_soft_exchanged(GVM_SOFT_SYNC, mask, gvm_lane(), 0);
}
GVM_DEVICE uint32_t gvm_warp_ballot(uint32_t mask, int yes)
{
    return gvm_soft_exchanged(GVM_SOFT_BALLOT, mask, gvm_lane(), yes != 0).set;
}
GVM_DEVICE int gvm_warp_any(uint32_t mask, int yes)
{
    return gvm_soft_exchanged(GVM_SOFT_ANY, mask, gvm_lane(), yes != 0).set != 0;
}
GVM_DEVICE int gvm_warp_all(uint32_t mask, int yes)
{
    return gvm_soft_exchanged(GVM_SOFT_ALL, mask, gvm_lane(), !yes).set == 0;
}
/* No two lanes ever run at the same instruction here. */
GVM_DEVICE uint32_t gvm_warp_active(void)
{
    return 1u << gvm_lane();
}
GVM_DEVICE void gvm_warp_sync(void)
{
    gvm_warp_sync_lanes(~0u);
}
GVM_DEVICE uint32_t gvm_count_ones(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}

/* Lanes are counted within parts of the warp that are width wide: the lane that is lanes before or behind this one, or this
 * one where that part has none. */
GVM_DEVICE uint32_t gvm_soft_lane_of(uint32_t lane, uint32_t width)
{
    return (gvm_lane() & ~(width - 1)) + (lane & (width - 1));
}
GVM_DEVICE uint32_t gvm_soft_lane_up(uint32_t lanes, uint32_t width)
{
    return (gvm_lane() & (width - 1)) < lanes ? gvm_lane() : gvm_lane() - lanes;
}
GVM_DEVICE uint32_t gvm_soft_lane_down(uint32_t lanes, uint32_t width)
{
    return (gvm_lane() & (width - 1)) + lanes < width ? gvm_lane() + lanes : gvm_lane();
}
/* Of a part before this one it is given the value, of one behind it is not. */
GVM_DEVICE uint32_t gvm_soft_lane_xor(uint32_t lanes, uint32_t width)
{
    const uint32_t lane = gvm_lane() ^ lanes;

    return lane <= (gvm_lane() | (width - 1)) ? lane : gvm_lane();
}

#define GVM_SOFT_SHUFFLE_BY(type, letter, name, lane_of) \
    GVM_DEVICE type gvm_warp_shuffle##name##letter(uint32_t mask, type v, uint32_t lane, uint32_t width) \
    { \
        gvm_soft_exchange e; \
        uint64_t bits = 0; \
        memcpy(&bits, &v, sizeof v); \
        e = gvm_soft_exchanged(GVM_SOFT_SHUFFLE##name##letter, mask, lane_of(lane, width), bits); \
        memcpy(&v, &e.value, sizeof v); \
        return v; \
    }
#define GVM_SOFT_SHUFFLE_OF(type, letter) \
    GVM_SOFT_SHUFFLE_BY(type, letter, _, gvm_soft_lane_of) \
    GVM_SOFT_SHUFFLE_BY(type, letter, _up_, gvm_soft_lane_up) \
    GVM_SOFT_SHUFFLE_BY(type, letter, _down_, gvm_soft_lane_down) \
    GVM_SOFT_SHUFFLE_BY(type, letter, _xor_, gvm_soft_lane_xor)
GVM_SOFT_SHUFFLE_OF(uint32_t, u32)
GVM_SOFT_SHUFFLE_OF(uint64_t, u64)
GVM_SOFT_SHUFFLE_OF(int32_t, i32)
GVM_SOFT_SHUFFLE_OF(float, f32)
GVM_SOFT_SHUFFLE_OF(double, f64)
#undef GVM_SOFT_SHUFFLE_OF
#undef GVM_SOFT_SHUFFLE_BY

/* Value by value: that of the first lane whose value is not known yet. */
GVM_DEVICE uint32_t gvm_warp_match_u32(uint32_t mask, uint32_t v)
{
    uint32_t left = gvm_warp_ballot(mask, 1), same = 0, equal, value;

    for (; left != 0; left &= ~equal) {
        value = gvm_warp_shuffle_u32(mask, v, (uint32_t)__builtin_ctz(left), gvm_warp_size());
        equal = gvm_warp_ballot(mask, v == value);
        if (v == value)
            same = equal;
    }
    return same;
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

GVM_DEVICE void gvm_stream_load_u64x2(const void *p, uint64_t *first, uint64_t *second)
{
    memcpy(first, p, sizeof *first);
    memcpy(second, (const char *)p + sizeof *first, sizeof *second);
}

#define GVM_SOFT_ATOMIC(bits) \
    GVM_DEVICE uint##bits##_t gvm_atomic_add_u##bits(uint##bits##_t *p, uint##bits##_t v) \
    { \
        gvm_soft_step(); \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_or_u##bits(uint##bits##_t *p, uint##bits##_t v) \
    { \
        gvm_soft_step(); \
        return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_cas_u##bits(uint##bits##_t *p, uint##bits##_t expected, \
                                                     uint##bits##_t desired) \
    { \
        gvm_soft_step(); \
        __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return expected; \
    }
GVM_SOFT_ATOMIC(32)
GVM_SOFT_ATOMIC(64)
#undef GVM_SOFT_ATOMIC
#define GVM_SOFT_ORDERED(bits, suffix) \
    GVM_DEVICE uint##bits##_t gvm_atomic_add_acquire_u##bits##suffix(uint##bits##_t *p, \
                                                                     uint##bits##_t v) \
    { \
        gvm_soft_step(); \
        return __atomic_fetch_add(p, v, __ATOMIC_ACQUIRE); \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_add_release_u##bits##suffix(uint##bits##_t *p, \
                                                                     uint##bits##_t v) \
    { \
        gvm_soft_step(); \
        return __atomic_fetch_add(p, v, __ATOMIC_RELEASE); \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_cas_acquire_u##bits##suffix( \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t desired) \
    { \
        gvm_soft_step(); \
        __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE); \
        return expected; \
    } \
    GVM_DEVICE uint##bits##_t gvm_atomic_cas_release_u##bits##suffix( \
        uint##bits##_t *p, uint##bits##_t expected, uint##bits##_t desired) \
    { \
        gvm_soft_step(); \
        __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED); \
        return expected; \
    } \
    GVM_DEVICE void gvm_add_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        (void)gvm_atomic_add_release_u##bits##suffix(p, v); \
    }
GVM_SOFT_ORDERED(32, )
GVM_SOFT_ORDERED(64, )
GVM_SOFT_ORDERED(64, _block)
#undef GVM_SOFT_ORDERED
GVM_DEVICE uint32_t gvm_atomic_exchange_u32(uint32_t *p, uint32_t v)
{
    gvm_soft_step();
    return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
#define GVM_SOFT_ATOMIC_EXTREME(bits, name, is_beyond) \
    GVM_DEVICE uint##bits##_t gvm_atomic_##name##_u##bits(uint##bits##_t *p, uint##bits##_t v) \
    { \
        uint##bits##_t old; \
        gvm_soft_step(); \
        old = __atomic_load_n(p, __ATOMIC_RELAXED); \
        while (v is_beyond old && \
               !__atomic_compare_exchange_n(p, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
            ; \
        return old; \
    }
GVM_SOFT_ATOMIC_EXTREME(32, min, <)
GVM_SOFT_ATOMIC_EXTREME(64, min, <)
GVM_SOFT_ATOMIC_EXTREME(32, max, >)
GVM_SOFT_ATOMIC_EXTREME(64, max, >)
#undef GVM_SOFT_ATOMIC_EXTREME

#define GVM_SOFT_ATOMIC_ADD(type, bits) \
    GVM_DEVICE type gvm_atomic_add_f##bits(type *p, type v) \
    { \
        uint##bits##_t *word = (uint##bits##_t *)(void *)p; \
        uint##bits##_t old, next; \
        type value; \
        gvm_soft_step(); \
        old = __atomic_load_n(word, __ATOMIC_RELAXED); \
        do { \
            memcpy(&value, &old, sizeof value); \
            value += v; \
            memcpy(&next, &value, sizeof next); \
        } while (!__atomic_compare_exchange_n(word, &old, next, 1, __ATOMIC_RELAXED, \
                                              __ATOMIC_RELAXED)); \
        memcpy(&value, &old, sizeof value); \
        return value; \
    }
GVM_SOFT_ATOMIC_ADD(float, 32)
GVM_SOFT_ATOMIC_ADD(double, 64)
#undef GVM_SOFT_ATOMIC_ADD

#define GVM_SOFT_LOAD_STORE(bits, suffix) \
    GVM_DEVICE uint##bits##_t gvm_load_acquire_u##bits##suffix(const uint##bits##_t *p) \
    { \
        gvm_soft_step(); \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE); \
    } \
    GVM_DEVICE void gvm_store_release_u##bits##suffix(uint##bits##_t *p, uint##bits##_t v) \
    { \
        gvm_soft_step(); \
        __atomic_store_n(p, v, __ATOMIC_RELEASE); \
    } \
    GVM_DEVICE uint##bits##_t gvm_load_consume_u##bits##suffix(const uint##bits##_t *p) \
    { \
        gvm_soft_step(); \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE); \
    }
GVM_SOFT_LOAD_STORE(32, )
GVM_SOFT_LOAD_STORE(64, )
GVM_SOFT_LOAD_STORE(32, _system)
GVM_SOFT_LOAD_STORE(64, _system)
GVM_SOFT_LOAD_STORE(32, _block)
#undef GVM_SOFT_LOAD_STORE

#ifndef CLOCK_MONOTONIC /* <time.h> declares it for POSIX only, and C11 has no clock that cannot be set back */
int clock_gettime(int clock, struct timespec *t);
#define CLOCK_MONOTONIC 1
#endif

GVM_DEVICE uint64_t gvm_clock_ns(void)
{
    struct timespec t;
    gvm_soft_step(); /* a loop may wait for a time */
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif

#ifdef GVM_KERNEL /* a compiler that can build kernels: nvcc or a C compiler, but not plain C++ */
/* ------------------------------------------------------------------ both
 *
 * Of those above: gvm_thread_x() is the thread's index in its block, gvm_threads_x() the block's size, gvm_block_x() the
 * block's index in the grid, gvm_blocks_x() the grid's size; so too _y and _z. */

GVM_DEVICE uint32_t gvm_block(void)
{
    return gvm_block_x();
}
GVM_DEVICE uint32_t gvm_block_count(void)
{
    return gvm_blocks_x();
}

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

/* The mask that names all lanes. */
GVM_DEVICE uint32_t gvm_warp_mask(void)
{
    return ~0u >> (32 - gvm_warp_size());
}

/* The lowest lane of a mask that is not 0. */
GVM_DEVICE uint32_t gvm_warp_first(uint32_t mask)
{
    return gvm_count_ones((mask & (0 - mask)) - 1);
}

/* All lanes of the warp call these: the value of a lane, and of the lane that is so many behind this one (its own, where
 * there is none).
 *
 * Those of parts of a warp have the mask of the lanes that call them, and the width, a power of two, of the parts into which
 * they cut the warp: gvm_warp_shuffle_u32(mask, v, lane, width) gives the value of that lane of the caller's part, and
 * _up_, _down_ and _xor_ that of the lane whose number is less by lanes, more by it, or differs in these bits. */
#define GVM_WARP_GET(type, letter) \
    GVM_DEVICE type gvm_warp_get_##letter(type v, uint32_t lane) \
    { \
        return gvm_warp_shuffle_##letter(~0u, v, lane, gvm_warp_size()); \
    } \
    GVM_DEVICE type gvm_warp_down_##letter(type v, uint32_t lanes) \
    { \
        return gvm_warp_shuffle_down_##letter(~0u, v, lanes, gvm_warp_size()); \
    }
GVM_WARP_GET(uint32_t, u32)
GVM_WARP_GET(uint64_t, u64)
GVM_WARP_GET(int32_t, i32)
GVM_WARP_GET(float, f32)
GVM_WARP_GET(double, f64)
#undef GVM_WARP_GET

/* How many lanes before this one say yes; *total: how many of all. Every lane of the warp must call
 * it. */
GVM_DEVICE uint32_t gvm_warp_rank(int yes, uint32_t *total)
{
    const uint32_t all = gvm_warp_ballot(~0u, yes);

    *total = gvm_count_ones(all);
    return gvm_count_ones(all & ((1u << gvm_lane()) - 1));
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
