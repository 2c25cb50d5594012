/* Words that kernels and library share; see device.h.
 *
 * They come in slabs, which stay until the device ends, because cuMemFree and cuMemHostUnregister wait for
 * every running kernel: one that waits for memory while another appender is destroyed would wait until
 * it gives up. The host's words are there until then though the context was reset: the library's thread
 * reads those of appenders that have begun at any time. They are pages of the process that the driver has
 * pinned, not memory of the driver's, which a reset takes away.
 *
 * I1  a bit of taken is set iff a caller has those words, or the slab has none of that number.
 * I2  a slab in the list has pinned memory and is counted by slab_count, or nobody has words of it. One that a caller is
 *     filling is neither: who comes meanwhile fills another one, so there may be a slab for each thread beyond the limit.
 * Lock: rank DEVICE; the driver is called outside.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "memory/device.h"
#include "memory/idle.h"

#define SLAB_WORDS_MAX 64u /* as many as taken has bits */

typedef struct pinned_memory {
    void *host;
    CUdeviceptr address; /* for kernels */
    uint64_t bytes;
} pinned_memory;

struct gvmi_word_slab {
    SLIST_ENTRY(gvmi_word_slab) entry;
    CUdeviceptr device;   /* 0: it has none yet */
    pinned_memory pinned; /* host NULL: none yet */
    uint64_t taken;
};

/* ---- pinned memory; the context is current, or for destroy was reset */

static gvm_status fail_pin(CUresult result, const char *call, const char *what)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return gvmi_driver_fail_as(GVM_E_NOMEM, result, call, "no pinned memory for %s", what);
    return gvmi_driver_fail(result, call, "no pinned memory for %s", what);
}

static gvm_status create_pinned(uint64_t bytes, const char *what, pinned_memory *out)
{
    pinned_memory pinned = {.bytes = bytes};
    gvm_status status;
    CUresult result;

    pinned.host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pinned.host == MAP_FAILED)
        return gvmi_fail_system(GVM_E_NOMEM, errno, "mmap", "out of host memory for %s", what);
    /* Or a write after a fork() would move the process to another page than the device has. */
    (void)madvise(pinned.host, bytes, MADV_DONTFORK);
    result = gvmi_cu->cuMemHostRegister(pinned.host, bytes,
                                        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
        status = fail_pin(result, "cuMemHostRegister", what);
        goto fail_unmap;
    }
    result = gvmi_cu->cuMemHostGetDevicePointer(&pinned.address, pinned.host, 0);
    if (result != CUDA_SUCCESS) {
        status = fail_pin(result, "cuMemHostGetDevicePointer", what);
        goto fail_unregister;
    }
    *out = pinned;
    return GVM_OK;

fail_unregister:
    if (gvmi_cu->cuMemHostUnregister(pinned.host) != CUDA_SUCCESS)
        return status;
fail_unmap:
    munmap(pinned.host, bytes);
    return status;
}

static void destroy_pinned(const gvm_device *device, const pinned_memory *pinned)
{
    /* Pages that the driver still has pinned stay: nobody else may get their addresses. */
    if (gvmi_device_was_reset(device) || gvmi_cu->cuMemHostUnregister(pinned->host) == CUDA_SUCCESS)
        munmap(pinned->host, pinned->bytes);
}

/* ---- slabs */

static uint32_t slab_words(const gvmi_words_spec *spec)
{
    return spec->slab_words != 0 ? spec->slab_words : SLAB_WORDS_MAX;
}

/* Goes on where it failed before. */
static gvm_status fill_slab(gvm_device *device, const gvmi_words_spec *spec, gvmi_word_slab *slab)
{
    gvmi_shortage shortage = {0};
    const uint64_t bytes = (uint64_t)slab_words(spec) * spec->device_bytes;
    CUresult result = CUDA_SUCCESS;

    if (slab->device == 0)
        do
            result = gvmi_device_alloc(device, &slab->device, bytes);
        while (result == CUDA_ERROR_OUT_OF_MEMORY && gvmi_idle_retry(device, bytes, &shortage));
    if (result != CUDA_SUCCESS) {
        slab->device = 0;
        return gvmi_driver_fail(result, "cuMemAlloc", "no memory on device %d for %s",
                                device->info.ordinal, spec->what);
    }
    return create_pinned((uint64_t)slab_words(spec) * spec->host_bytes, spec->what, &slab->pinned);
}

static void take_from_slab_locked(const gvmi_words_spec *spec, gvmi_word_slab *slab, gvmi_words *out)
{
    const uint32_t index = (uint32_t)__builtin_ctzll(~slab->taken);

    slab->taken |= 1ull << index;
    *out = (gvmi_words){
        .device = slab->device + index * spec->device_bytes,
        .host = (char *)slab->pinned.host + index * spec->host_bytes,
        .host_address = slab->pinned.address + index * spec->host_bytes,
        .slab = slab,
        .index = index,
    };
}

/* The context is current, or was reset: then the words of the device went with it. */
static void empty_slab(const gvm_device *device, const gvmi_word_slab *slab)
{
    if (!gvmi_device_was_reset(device))
        gvmi_cu->cuMemFree(slab->device);
    if (slab->pinned.host != NULL)
        destroy_pinned(device, &slab->pinned);
}

/* ---- lists */

void gvmi_words_init(gvmi_words_list *list)
{
    gvmi_mutex_init(&list->lock, GVMI_RANK_DEVICE);
    SLIST_INIT(&list->slabs);
}

/* In a context that cannot be entered the driver may use the memory still: that stays. */
void gvmi_words_destroy(const gvm_device *device, gvmi_words_list *list)
{
    const bool entered = !SLIST_EMPTY(&list->slabs) && gvmi_device_enter(device) == GVM_OK;
    const bool usable = entered || gvmi_device_was_reset(device);
    gvmi_word_slab *slab;

    while ((slab = SLIST_FIRST(&list->slabs)) != NULL) {
        SLIST_REMOVE_HEAD(&list->slabs, entry);
        if (usable)
            empty_slab(device, slab);
        free(slab);
    }
    if (entered)
        gvmi_device_leave();
    gvmi_mutex_destroy(&list->lock);
}

/* The first slab that has free words, else one that is to be filled, which is taken out of the list; NULL: there
 * is neither. */
static gvmi_word_slab *find_slab_locked(gvmi_words_list *list)
{
    gvmi_word_slab *slab, *unfilled = NULL;

    SLIST_FOREACH(slab, &list->slabs, entry)
    {
        if (slab->pinned.host == NULL)
            unfilled = slab;
        else if (slab->taken != UINT64_MAX)
            return slab;
    }
    if (unfilled != NULL)
        SLIST_REMOVE(&list->slabs, unfilled, gvmi_word_slab, entry);
    return unfilled;
}

/* A slab with free words, or one that the caller is to fill. */
static gvm_status get_slab_locked(const gvm_device *device, gvmi_words_list *list,
                                  const gvmi_words_spec *spec, gvmi_word_slab **out)
{
    *out = find_slab_locked(list);
    if (*out != NULL)
        return GVM_OK;
    if (list->slab_count >= spec->slabs_max)
        return gvm_error_set(GVM_E_LIMIT, "device %d has no more %s than %u: %s", device->info.ordinal,
                             spec->what, spec->slabs_max * slab_words(spec), spec->to_do);
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for %s", spec->what);
    if (slab_words(spec) < SLAB_WORDS_MAX) /* those that it does not have */
        (*out)->taken = UINT64_MAX << slab_words(spec);
    return GVM_OK;
}

gvm_status gvmi_words_take(gvm_device *device, gvmi_words_list *list, const gvmi_words_spec *spec,
                           gvmi_words *out)
{
    gvmi_word_slab *slab;
    gvm_status status;

    gvmi_lock(&list->lock);
    status = get_slab_locked(device, list, spec, &slab);
    if (status == GVM_OK && slab->pinned.host == NULL) {
        gvmi_unlock(&list->lock);
        status = fill_slab(device, spec, slab);
        gvmi_lock(&list->lock);
        list->slab_count += status == GVM_OK;
        /* What could not be filled waits in the list for the next try: to free it would wait for kernels. */
        SLIST_INSERT_HEAD(&list->slabs, slab, entry);
    }
    if (status == GVM_OK)
        take_from_slab_locked(spec, slab, out);
    gvmi_unlock(&list->lock);
    return status;
}

void gvmi_words_give(gvmi_words_list *list, const gvmi_words *words)
{
    const uint64_t bit = 1ull << words->index;

    gvmi_lock(&list->lock);
    GVM_ASSERT((words->slab->taken & bit) != 0);
    words->slab->taken &= ~bit;
    gvmi_unlock(&list->lock);
}
