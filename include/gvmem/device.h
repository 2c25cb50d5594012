/* gvmem/device.h - GPUs: how many, what they can do, and the handle through which everything else
 * is made.
 *
 * A gvm_device stands for one GPU in this process. It holds the device's primary context, the one
 * that the CUDA runtime uses, so addresses and streams are common to gvmem, CUDA programs and
 * Python frameworks of the process. Where no GPU is found, or with GVMEM_DRIVER=soft, the devices
 * are those of the software GPU.
 *
 * The driver is loaded once, by the first call that needs it: GVMEM_DRIVER=cuda, soft or a path
 * decides which; unset, libcuda.so.1 if it reports at least one device, otherwise the software
 * GPU.
 *
 * Threads: any thread may call. As with CUDA itself, a child made by fork() must not use devices
 * that its parent opened: in the child, calls on any object of the parent (devices, buffers, vectors,
 * heaps, appenders, shares) return GVM_E_FOREIGN and wait for nothing, and gvm_device_open() returns
 * GVM_E_DRIVER. Fork before the first call that loads the driver, or let the child exec a program.
 * Ownership: each gvm_device_open() is ended by one gvm_device_close(); buffers keep their device
 * alive by themselves.
 */
#ifndef GVMEM_DEVICE_H
#define GVMEM_DEVICE_H

#include <gvmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_device gvm_device;

/* A CUDA stream: CUstream and cudaStream_t are this very type. NULL is the legacy default stream.
 */
typedef struct CUstream_st *gvm_stream;

/* Rights of a device to memory. */
typedef enum gvm_access {
    GVM_ACCESS_NONE = 0,
    GVM_ACCESS_READ = 1,
    GVM_ACCESS_READWRITE = 3,
} gvm_access;

/* What a device is and can do. */
typedef struct gvm_device_info {
    size_t struct_size; /* in: sizeof(gvm_device_info) */
    int32_t ordinal;
    uint8_t software;  /* 1: the software GPU */
    uint8_t vmm;       /* buffers can grow, move and be shared; 0: see gvmem/buffer.h */
    uint8_t share_fd;  /* memory can be exported as a file descriptor */
    uint8_t host_tier; /* chunks can live in host memory at the same address */
    uint8_t fabric;    /* the device supports fabric handles (not used by gvmem) */
    uint8_t share_ipc; /* 64-byte cuIpc handles work */
    uint8_t reserved[6];
    char name[96];
    uint8_t uuid[16];
    char pci_bus_id[16];
    int32_t compute_major, compute_minor;
    int32_t sm_count;
    int32_t warp_size;
    int32_t block_threads_max;
    int32_t copy_engines;
    uint64_t total_bytes;
    uint64_t free_bytes;        /* at this moment, for all processes */
    uint64_t granularity_bytes; /* smallest chunk; 0 without vmm */
    uint64_t cached_bytes; /* free chunks of both tiers that this process keeps for reuse, or is
                            * about to give back (gvm_appender_take()) */
} gvm_device_info;

/* The driver behind the devices. */
typedef struct gvm_driver_info {
    size_t struct_size; /* in: sizeof(gvm_driver_info) */
    int32_t version;    /* as cuDriverGetVersion counts: 13000 is CUDA 13.0 */
    uint8_t software;   /* 1: the software GPU */
    uint8_t reserved[3];
    char path[256];   /* the library that was loaded */
    char reason[160]; /* why this one: "GVMEM_DRIVER=soft", "libcuda.so.1 not found", ... */
} gvm_driver_info;

/* A setting of the library and where its value came from. */
typedef struct gvm_setting_info {
    size_t struct_size; /* in: sizeof(gvm_setting_info) */
    const char *name;   /* the environment variable */
    const char *value;  /* in force */
    const char *default_value;
    const char *origin; /* "default" or "environment" */
    const char *text;   /* what it does, with its unit */
} gvm_setting_info;

/* How many devices there are. Loads the driver.
 *
 * GVM_E_INVALID   count is NULL
 * GVM_E_SETTING   a setting is malformed; the error text names it
 * GVM_E_NODRIVER  nothing could be loaded and started; the error text names every library tried
 * GVM_E_DRIVER    the driver refused */
GVM_API GVM_CHECKED gvm_status gvm_device_count(int32_t *count);

/* Opens a device; opening one again gives the same handle, counted. The first opening makes or
 * retains the primary context (0.2 s on an H100 when nobody made it before).
 *
 * After cuDevicePrimaryCtxReset() or cudaDeviceReset() what was made on the device can only be destroyed: calls on it
 * that need the context return GVM_E_LOST. Opening then gives a new handle, of a device that works; the old one is still closed once for each
 * time it was opened.
 *
 * GVM_E_INVALID   out is NULL
 * GVM_E_NODEVICE  ordinal is not in [0, count)
 * GVM_E_NOMEM     out of host memory
 * GVM_E_NOSPACE   the device has no room for a context
 * GVM_E_LOST      the context that is there is broken by an error
 * and the errors of gvm_device_count() */
GVM_API GVM_CHECKED gvm_status gvm_device_open(int32_t ordinal, gvm_device **out);

/* Fills in info; asks the driver for what changes.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_LOST     the context is broken
 * GVM_E_DRIVER   the driver refused */
GVM_API GVM_CHECKED gvm_status gvm_device_get_info(gvm_device *device, gvm_device_info *info);

/* Waits until all work submitted to the device by this process is done.
 *
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_LOST     a kernel failed (an address that is not mapped, a write to read-only memory): the
 *                context is broken
 * GVM_E_DRIVER   the driver refused */
GVM_API GVM_CHECKED gvm_status gvm_device_synchronize(gvm_device *device);

/* Whether work that is submitted to a stream is captured into a graph now: *capture_id is a number that
 * no other capture of the process has, or 0; the legacy default stream cannot be captured. Memory that captured work
 * uses is used again whenever the graph is launched, and must be kept for it.
 *
 * GVM_E_INVALID  capture_id is NULL, or the driver knows no such stream
 * GVM_E_NOTSUP   the driver is older than CUDA 12.3
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_LOST     the context was reset
 * GVM_E_DRIVER   the driver refused */
GVM_API GVM_CHECKED gvm_status gvm_device_get_capture(gvm_device *device, gvm_stream stream,
                                                      uint64_t *capture_id);

/* Gives cached chunks back to the driver until at most keep_bytes of them are left.
 *
 * GVM_E_FOREIGN  the device is not open */
GVM_API GVM_CHECKED gvm_status gvm_device_trim(gvm_device *device, uint64_t keep_bytes);

/* Which driver is loaded, and why that one. Loads it if need be.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small
 * and the errors of gvm_device_count() */
GVM_API GVM_CHECKED gvm_status gvm_driver_get_info(gvm_driver_info *info);

/* An entry point of the driver that is loaded, by the name it has there ("cuMemcpyDtoHAsync_v2"), for calls
 * that gvmem has not: with its decorators (GVMEM_TRACE, GVMEM_FAULT, GVMEM_CHECK) where the library makes
 * that call itself. *call is a function pointer of the type that cuda.h declares. Loads the driver if need be.
 *
 * GVM_E_INVALID  name or call is NULL
 * GVM_E_NOTSUP   the driver has no entry point of that name
 * and the errors of gvm_device_count() */
GVM_API GVM_CHECKED gvm_status gvm_driver_get_call(const char *name, void (**call)(void));

/* Records the failure of such a call (a CUresult other than 0) as the library's own are (gvm_error_set()),
 * and returns the status for it: GVM_E_LIMIT if it is CUDA_ERROR_OPERATING_SYSTEM and the process cannot open four more
 * files, which the sentence then says. call is its name, and must be a constant. The name of the driver's error is gvm_error.native_name, not part
 * of the sentence. */
GVM_API GVM_PRINTF(3, 4) gvm_status
    gvm_driver_error(int32_t result, const char *call, const char *format, ...);

/* The device's context is made current for the calling thread, around calls of the driver that want one; pop
 * puts back what was. In between, the thread's calls do not end captures of other streams
 * (cuThreadExchangeStreamCaptureMode(), relaxed). They nest, up to 64 deep.
 *
 * GVM_E_FOREIGN  the device is not open
 * GVM_E_LOST     the context was reset, or is broken
 * GVM_E_DRIVER   the driver refused */
GVM_API GVM_CHECKED gvm_status gvm_device_push_context(gvm_device *device);
GVM_API void gvm_device_pop_context(void);

/* One of the settings, index from 0. The texts live as long as the library.
 *
 * GVM_E_INVALID  index is past the last one, info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_setting_get_info(uint32_t index, gvm_setting_info *info);

/* Ends one opening. The last one gives back the cache and the primary context. NULL and unknown
 * pointers are ignored. */
GVM_API void gvm_device_close(gvm_device *device);

#ifdef __cplusplus
}
#endif
#endif
