/* memory/device.h - the device inside the library: its context, its streams, its free chunks.
 *
 * A gvm_device exists once per GPU and process. Openings by the program and references by buffers
 * are counted apart: a program may close the device and go on using its buffers.
 */
#ifndef GVMI_MEMORY_DEVICE_H
#define GVMI_MEMORY_DEVICE_H

#include <sys/queue.h>

#include <gvmem/buffer.h>
#include <gvmem/device.h>

#include "base/lock.h"
#include "base/private.h"
#include "driver/driver.h"

typedef struct gvmi_chunk_cache gvmi_chunk_cache;
struct gvmi_kernel_set;

typedef struct gvmi_word_slab gvmi_word_slab;
typedef struct gvmi_words_list {
    gvmi_mutex lock;
    uint32_t slab_count;
    SLIST_HEAD(, gvmi_word_slab) slabs;
} gvmi_words_list;

struct gvm_device {
    CUdevice cu;
    CUcontext context;   /* primary, retained */
    uint64_t context_id; /* by cuCtxGetId(); 0: the driver is older than that call */
    /* Non-blocking; for work that the library waits for itself. What goes to words_stream, a few KiB
     * between host and device, is not behind the copies and fills of any size that stream has; those
     * may be kernels to the driver, for which a device that is occupied has no room. */
    CUstream stream, words_stream;
    gvm_device_info info; /* what never changes; free_bytes and cached_bytes are 0 here */
    bool rdma;            /* network cards reach chunks that are made for that */
    uint64_t row_bytes;   /* rows of a piece begin at multiples of this */
    int host_numa_id;     /* where HOST_NUMA handles are made */
    gvmi_chunk_cache *cache;
    struct gvmi_kernel_set *kernels; /* loaded by kernels/ on first use */
    gvmi_words_list results, appends, callbacks,
        cleanings;          /* of kernels/, appender/, callback/, region/ */
    uint64_t managed_bytes; /* of all managed heaps; atomic */
    uint32_t openings;      /* by the program; under the START lock */
    uint32_t references; /* openings, buffers, calls under way; atomic, the last one goes under the START lock */
};

/* Checks a handle from the program and keeps the device alive until gvmi_device_release(). */
gvm_status gvmi_device_hold(const gvm_device *device, gvm_device **out);

/* One more reference to a device that is alive; and one less: the last frees it. */
void gvmi_device_retain(gvm_device *device);
void gvmi_device_release(gvm_device *device);

/* Was a context destroyed or reset that had this number by cuCtxGetId()? False if that is 0: the driver has no numbers. */
bool gvmi_context_is_gone(CUcontext context, uint64_t id);

/* Was the context reset, by the program or by CUDA's runtime? Then what it owned is gone; virtual memory is not. A
 * context that was retained again has the same handle and another number. Never true before CUDA 12.0. */
bool gvmi_device_was_reset(const gvm_device *device);

/* The error for that. */
gvm_status gvmi_device_fail_reset(const gvm_device *device);

/* The driver refuses calls such as cuMemAlloc while any stream is being captured in the global mode, and ends the
 * capture: the library's calls have nothing to do with it. Between the two the calling thread's mode is relaxed; they
 * nest. */
void gvmi_capture_relax(void);
void gvmi_capture_restore(void);
/* Is the stream, or one that it waits for where it is the legacy one, being captured into a graph? Its context is current.
 * An event of it would then be part of the graph, and to wait for it would spoil the capture. */
bool gvmi_stream_is_captured(CUstream stream);
/* Records that its work cannot be waited for: GVM_E_INVALID. */
gvm_status gvmi_stream_fail_captured(CUstream stream);

/* Makes the device's context current for this thread, with captures relaxed, around driver calls that want one; leave()
 * puts back what was. GVM_E_LOST: it was reset; streams, modules and memory of cuMemAlloc that were in it are
 * gone, and must not be given to the driver any more. */
GVMI_API gvm_status gvmi_device_enter(const gvm_device *device);
GVMI_API void gvmi_device_leave(void);

/* The same around giving back streams and events. Those know their context and may go without its
 * being current: *entered says whether it is, and so whether leave() is to follow. False: the
 * context is gone, and they went with it. */
GVMI_API bool gvmi_device_enter_to_free(const gvm_device *device, bool *entered);

/* Waits for all work of the context, whatever becomes of it. Captures of streams into graphs end. */
void gvmi_device_drain(const gvm_device *device);

/* What the driver has free at this moment; 0: it is not known. */
uint64_t gvmi_device_free_bytes(const gvm_device *device);

/* ---- memory/words.c: words on the device, each with pinned words of the host beside them */

typedef struct gvmi_words {
    CUdeviceptr device;
    void *host;
    CUdeviceptr host_address; /* the host's, for kernels */
    gvmi_word_slab *slab;
    uint32_t index; /* in the slab */
} gvmi_words;

/* Of one list, always the same. */
typedef struct gvmi_words_spec {
    const char *what;  /* for messages: "appenders' words" */
    const char *to_do; /* where all are taken: "destroy some appenders" */
    uint32_t device_bytes, host_bytes;
    uint32_t slabs_max;
    uint32_t slab_words; /* of each slab; 0: 64 */
} gvmi_words_spec;

/* Takes words that nobody has; what they hold is undefined. The context is current, and no lock is held.
 * GVM_E_NOSPACE, GVM_E_NOMEM, GVM_E_LIMIT (all are taken), GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_words_take(gvm_device *device, gvmi_words_list *list, const gvmi_words_spec *spec,
                           gvmi_words *out);
void gvmi_words_give(gvmi_words_list *list, const gvmi_words *words);

/* With the device. Destroy waits for kernels that run. */
void gvmi_words_init(gvmi_words_list *list);
void gvmi_words_destroy(const gvm_device *device, gvmi_words_list *list);

/* ---- memory/chunk.c: handles, new or from the cache */

/* Whose bytes a chunk may hold besides zeros: a number that no two owners have. An owner is a buffer,
 * or a heap with all its segments; what other processes are shown is always of one owner. ANY: of
 * several owners, or unknown. NONE: zeros alone. */
#define GVMI_OWNER_ANY 0
#define GVMI_OWNER_NONE UINT64_MAX
uint64_t gvmi_chunk_owner_new(void);

/* What a handle is, and what its memory may hold. */
typedef struct gvmi_chunk_spec {
    uint64_t bytes; /* a multiple of the device's granularity */
    uint64_t owner;
    uint8_t tier;   /* gvm_tier */
    bool shareable; /* the driver is asked for fd export */
} gvmi_chunk_spec;

/* A handle of memory. What it holds is zeros or bytes of spec->owner; for GVMI_OWNER_ANY it is
 * undefined, which suits memory that is never exported, or is written whole before it can be.
 * Free handles of the device are given back to the driver and the call repeated before
 * GVM_E_NOSPACE is answered.
 *
 * GVM_E_NOSPACE, GVM_E_NOMEM (host tier), GVM_E_NOTSUP, GVM_E_LOST, GVM_E_DRIVER */
gvm_status gvmi_chunk_create(gvm_device *device, const gvmi_chunk_spec *spec,
                             CUmemGenericAllocationHandle *out);

/* What becomes of a handle that is released. */
typedef enum gvmi_release {
    GVMI_RELEASE_NOW, /* the driver has it at once: it was exported or imported, others may see it */
    GVMI_RELEASE_KEEP,   /* kept for reuse if the cache has room, else the same */
    GVMI_RELEASE_LATER,  /* kept for a moment, beyond the limit, too */
    GVMI_RELEASE_UNUSED, /* as LATER, of chunks that nothing was written to since they were new */
} gvmi_release;

/* Gives a handle back, that is mapped nowhere in this process. Cannot fail. */
void gvmi_chunk_release(gvm_device *device, const gvmi_chunk_spec *spec, gvmi_release how,
                        CUmemGenericAllocationHandle handle);

/* An owner has ended, or wants to have nothing back: the driver gets its free chunks of the device, which nobody else
 * can be given. Those of host memory are kept for moves. */
void gvmi_chunk_owner_end(gvm_device *device, uint64_t owner);

/* The cache of a device; it is a holder of idle memory (idle.h). */
gvm_status gvmi_chunk_cache_create(gvm_device *device, gvmi_chunk_cache **out);

/* Gives handles to the driver until the cache keeps no more than that, and waits for those that
 * other threads were giving it when this was called. */
void gvmi_chunk_cache_trim(gvmi_chunk_cache *cache, uint64_t keep_bytes);

/* Bytes of free handles, those on their way to the driver included. */
uint64_t gvmi_chunk_cache_bytes(gvmi_chunk_cache *cache);
void gvmi_chunk_cache_destroy(gvmi_chunk_cache *cache);

/* cuMemAlloc; the device's free chunks go back to the driver before it returns
 * CUDA_ERROR_OUT_OF_MEMORY. The context is current. */
CUresult gvmi_device_alloc(const gvm_device *device, CUdeviceptr *out, size_t bytes);

/* ---- kernels/ unloads what it loaded on the device. Set before there is something to unload, called before
 * the context goes. */
extern void (*gvmi_kernels_unload)(gvm_device *device);

#endif
