/* softgpu/soft.h - what the files of the software GPU share. Nothing outside softgpu/ includes it.
 *
 * The software GPU is a CUDA driver without a GPU: it exports the entry points of driver/calls.h
 * and runs kernels on CPU threads. It is as strict as the real driver, because it is what the
 * project's tests run on.
 *
 * README.md lists the files, and the locks in the order in which they are taken. Calls flow down: launch and copy
 * -> stream -> context -> space -> charge -> config.
 */
#ifndef SOFTGPU_SOFT_H
#define SOFTGPU_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "driver/calls.h"
#include "driver/cuda_abi.h"

/* Every entry point, declared under its exported name so that each definition is checked against
 * the table. */
#define SOFT_EXPORT __attribute__((visibility("default")))
#define SOFT_DECLARE(name, symbol, since, need, params, args) SOFT_EXPORT CUresult symbol params;
GVMI_CUDA_CALLS(SOFT_DECLARE)
#undef SOFT_DECLARE

/* The one export that is not CUDA's: what is wrong with GVMEM_SOFTGPU, or NULL. A library that has
 * it is the software GPU. */
SOFT_EXPORT const char *gvm_softgpu_problem(void);

#define SOFT_DEVICES_MAX 16
#define SOFT_CONTEXTS_MAX 64 /* of a process, primary ones included */
#define SOFT_GRANULARITY_BYTES (2ull << 20)
#define SOFT_PITCH_BYTES 512ull
#define SOFT_PITCH_MAX ((size_t)INT32_MAX)
#define SOFT_DRIVER_VERSION 13000

static inline uint64_t soft_now_ns(void) /* CLOCK_MONOTONIC */
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- config.c */
typedef struct soft_config {
    int device_count;
    uint64_t memory_bytes; /* of each device */
    uint64_t link_bytes; /* a second, of a copy between a device and the host, but of rows; 0: what memory does */
    uint64_t host_bytes; /* limit of pinned and HOST_NUMA memory, 0: none but the machine's own */
    int sm_count;        /* SM threads of each device */
    int warp_size;       /* lanes of a warp */
    int threads_max;     /* of a block: whole warps, at most 32 of them */
    uint64_t switches; /* seed by which threads of a block are switched at random, 0: they are not */
    int peers_group; /* devices that reach each other's memory: the first so many, the next, ... */
    uint32_t gap_us; /* how long memory is closed whose access changes, 0: not at all */
    char instance[48]; /* processes with the same instance share the devices' memory */
} soft_config;

/* The settings of this process, read once. Malformed settings make cuInit answer
 * CUDA_ERROR_INVALID_VALUE; text says what is wrong. */
CUresult soft_config_get(const soft_config **out, const char **text);
/* May the device reach memory of another? of may be one that this process does not see. */
bool soft_is_peer(int device, int of);
/* The most that a block may have in its third dimension. */
static inline int soft_block_z_max(const soft_config *config)
{
    return config->threads_max < 64 ? config->threads_max : 64;
}

/* ---- init.c */
/* The checks every entry point starts with: cuInit done, and not within a host function;
 * soft_enter_device() also wants a device that there is. */
CUresult soft_enter(void);
CUresult soft_enter_device(CUdevice dev, const soft_config **config);
/* Calls a function of the user's for cuLaunchHostFunc. */
CUresult soft_call_host_function(CUhostFn fn, void *data);

/* ---- lock.c */
/* A thread of the program's may be cancelled where it opens, closes, reads, writes or sleeps. Who takes a lock and then does
 * one of these calls the first before and the second after: a cancellation waits until then. They nest. */
void soft_cancel_hold(void);
void soft_cancel_release(void);

/* ---- context.c, primary.c */
/* soft_enter(), and wants a current context and gives its device; returns that context's sticky error if it has
 * one. */
CUresult soft_enter_context(int *device);
/* The same, and the number of the context: what is allocated now is its own. */
CUresult soft_enter_owner(int *device, uint64_t *context_id);
/* Waits until everything submitted to the device by this process before the call is done: what
 * cuMemFree does on the real driver. The caller holds no lock. Answers with the device's sticky
 * error. */
CUresult soft_device_drain(int device);
/* The handle of the context with this number, NULL if it is gone. */
CUcontext soft_context_handle(uint64_t context_id);

/* ---- stream.c */
/* Puts fn(arg) behind what the stream holds (any handle that cuda calls take, NULL and the special
 * ones too; stream handles of another context work). A thread of the driver calls it, with no lock
 * held, exactly once and even if the context breaks meanwhile, so that it can always release arg; a
 * result other than success breaks the context. On failure nothing was queued and arg is still the
 * caller's. */
CUresult soft_stream_submit(CUstream stream, CUresult (*fn)(void *arg), void *arg);

/* ---- capture.c */
/* soft_enter_context() for calls that do what a graph would not repeat, as cuMemAlloc: refused while a capture forbids it
 * to the thread, and the capture is invalid then. */
CUresult soft_enter_unsafe(int *device);
CUresult soft_enter_owner_unsafe(int *device, uint64_t *context_id);
/* The same for calls that wait for the current context, which no capture of a stream there survives. */
CUresult soft_enter_wait(int *device);

/* ---- charge.c (charge.h, backing.h and space.h hold what only the memory calls need) */
/* Makes this process known to the instance's ledger: the last step of cuInit, so that the files it
 * needs are opened there and nowhere later. */
CUresult soft_charge_open(void);

/* ---- space.c */
typedef enum soft_kind {
    SOFT_KIND_NONE,     /* not ours: plain host memory or nothing */
    SOFT_KIND_RESERVED, /* reserved, nothing mapped */
    SOFT_KIND_MAPPED,   /* a VMM handle, device or HOST_NUMA */
    SOFT_KIND_DEVICE,   /* cuMemAlloc, cuMemAllocAsync, an opened IPC handle */
    SOFT_KIND_HOST,     /* cuMemHostAlloc or registered */
    SOFT_KIND_MANAGED,
} soft_kind;

enum { SOFT_ACCESS_NONE = 0, SOFT_ACCESS_READ = 1, SOFT_ACCESS_READWRITE = 3 };

/* May the device do this to every byte of [addr, addr + size)? Success, or what the real driver
 * returns for a copy there. */
CUresult soft_space_check(int device, CUdeviceptr addr, uint64_t size_bytes, int access);
/* Like it for a host-side pointer of a copy: plain host memory is fine, device memory that the CPU
 * could not touch is not. */
CUresult soft_space_check_host(const void *addr, uint64_t size_bytes);
soft_kind soft_space_kind(CUdeviceptr addr);
/* Host memory, ours or not. */
bool soft_space_on_host(CUdeviceptr addr);
/* A global of a loaded image: memory of the device (SOFT_KIND_DEVICE to copies and queries, but
 * nothing that cuMemFree takes) at an address that the loader chose. module.c adds it when its
 * address is first asked for and removes it before the image goes. */
CUresult soft_space_add_global(void *addr, uint64_t size_bytes, int device);
void soft_space_remove_global(void *addr);
/* The context is gone (destroyed, last release, or reset) and nothing runs on it any more: frees what
 * belonged to the context, that is cuMemAlloc, managed and pinned memory, opened IPC handles and
 * host registrations. VMM handles, mappings and reservations belong to the process and stay. */
void soft_space_drop_context(uint64_t context_id);
/* The device has no context any more: frees its stream-ordered memory. */
void soft_space_drop_pools(int device);

#endif
