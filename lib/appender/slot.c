/* Words that kernels and library share.
 *
 * They come from a pool of the device and go back there, because cuMemFree and cuMemHostUnregister wait
 * for every running kernel: one that waits for memory while another appender is destroyed would
 * wait until it gives up. The host's words are there until the device ends, though its context was reset: the
 * library's thread reads those of appenders that have begun at any time.
 *
 * I1  a slot's bit in taken is set iff an appender has it.
 * Lock: rank APPENDER_LIST; the driver is called outside.
 */
#include "appender/appender.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"

#define SLAB_SLOTS 64u
#define SLABS_MAX 64u

/* Pinned memory of one slot. */
typedef struct host_slot {
    gvm_append_mail mail;
    gvm_append_words staging;
} host_slot;

typedef struct slab {
    CUdeviceptr words;
    gvmi_pinned host; /* SLAB_SLOTS of host_slot */
    uint64_t taken;   /* a bit a slot */
} slab;

struct gvmi_append_pool {
    gvmi_mutex lock;
    uint32_t slab_count;
    slab slabs[SLABS_MAX];
};

/* The context is current, or was reset: then the words of the device went with it. */
static void free_slab(const gvm_device *device, const slab *s)
{
    if (!gvmi_device_was_reset(device))
        gvmi_cu->cuMemFree(s->words);
    gvmi_pinned_destroy(device, &s->host);
}

static void unload_append_pool(gvm_device *device)
{
    struct gvmi_append_pool *pool = device->appends;

    const bool entered = gvmi_device_enter(device) == GVM_OK;

    device->appends = NULL;
    for (uint32_t i = 0; i < pool->slab_count && (entered || gvmi_device_was_reset(device)); i++)
        free_slab(device, &pool->slabs[i]);
    if (entered)
        gvmi_device_leave();
    gvmi_mutex_destroy(&pool->lock);
    free(pool);
}

static gvm_status get_pool(gvm_device *device, struct gvmi_append_pool **out)
{
    static gvmi_mutex make_lock = GVMI_MUTEX_INIT(GVMI_RANK_APPENDER_LIST);
    struct gvmi_append_pool *pool;

    gvmi_lock(&make_lock);
    pool = device->appends;
    if (pool == NULL && (pool = calloc(1, sizeof *pool)) != NULL) {
        gvmi_mutex_init(&pool->lock, GVMI_RANK_APPENDER_LIST);
        gvmi_appends_unload = unload_append_pool; /* always the same, before there is a pool to unload */
        device->appends = pool;
    }
    gvmi_unlock(&make_lock);
    if (pool == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for the appenders of device %d",
                         device->info.ordinal);
    *out = pool;
    return GVM_OK;
}

static bool take_free_slot(struct gvmi_append_pool *pool, gvmi_append_slot *out)
{
    bool found = false;

    gvmi_lock(&pool->lock);
    for (uint32_t i = 0; i < pool->slab_count && !found; i++) {
        slab *s = &pool->slabs[i];

        if (s->taken != UINT64_MAX) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(~s->taken);
            host_slot *host = (host_slot *)s->host.host + bit;

            s->taken |= 1ull << bit;
            *out = (gvmi_append_slot){
                .words = s->words + bit * sizeof(gvm_append_words),
                .mail = &host->mail,
                .mail_address = s->host.address + bit * sizeof *host + offsetof(host_slot, mail),
                .staging = &host->staging,
                .index = i * SLAB_SLOTS + bit,
            };
            found = true;
        }
    }
    gvmi_unlock(&pool->lock);
    return found;
}

static gvm_status make_slab(const gvm_device *device, slab *s)
{
    gvm_status status;
    CUresult result = gvmi_device_alloc(device, &s->words, SLAB_SLOTS * sizeof(gvm_append_words));

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAlloc", "no memory on device %d for appenders' words",
                                device->info.ordinal);
    s->taken = 0;
    status = gvmi_pinned_create(SLAB_SLOTS * sizeof(host_slot), "appenders' words", &s->host);
    if (status != GVM_OK)
        gvmi_cu->cuMemFree(s->words);
    return status;
}

gvm_status gvmi_append_slot_take(gvm_device *device, gvmi_append_slot *out)
{
    struct gvmi_append_pool *pool = NULL;
    gvm_status status = get_pool(device, &pool);

    /* Another thread may take all that a new slab holds, but not for ever: the number of slabs is
     * bounded. */
    while (status == GVM_OK && !take_free_slot(pool, out)) {
        gvmi_shortage shortage = {0};
        slab fresh;
        bool fits;

        do
            status = make_slab(device, &fresh);
        while (status == GVM_E_NOSPACE &&
               gvmi_idle_retry(device, SLAB_SLOTS * sizeof(gvm_append_words), &shortage));
        if (status != GVM_OK)
            break;
        gvmi_lock(&pool->lock);
        fits = pool->slab_count < SLABS_MAX;
        if (fits)
            pool->slabs[pool->slab_count++] = fresh;
        gvmi_unlock(&pool->lock);
        if (!fits) {
            free_slab(device, &fresh);
            status = gvmi_fail(GVM_E_LIMIT, "device %d has %u appenders: destroy some",
                               device->info.ordinal, SLABS_MAX * SLAB_SLOTS);
        }
    }
    return status;
}

void gvmi_append_slot_give(gvm_device *device, const gvmi_append_slot *slot)
{
    struct gvmi_append_pool *pool = device->appends;
    slab *s = &pool->slabs[slot->index / SLAB_SLOTS];

    gvmi_lock(&pool->lock);
    GVM_ASSERT((s->taken >> slot->index % SLAB_SLOTS & 1) != 0);
    s->taken &= ~(1ull << slot->index % SLAB_SLOTS);
    gvmi_unlock(&pool->lock);
}
