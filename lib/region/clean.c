/* Dirty regions written home ahead of need: the host's part of gvmem/device/detail/region_clean.h.
 *
 * Kernels make a batch, whose list they write to the host's memory. The library's thread has the copy engine copy it, and write the
 * batch's number to the device's table after that, in the order of a stream. It waits for nothing, and kernels wait for
 * neither: what is not copied in time they write home themselves.
 *
 * What else changes regions or frames comes between stop and resume. Stop waits for the copies under way, which wait for no kernel;
 * a kernel then ends the batch, or gives it up if it was not copied, and no other is made until resume.
 *
 * I1  while a batch is being copied its regions are COPYING, in their frames: seen is its number, and cleaning.copied is not yet.
 * Lock: rank CLEANING, of one collection, while copies are submitted, and from stop to resume.
 */
#include <string.h>

#include "base/address.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/background.h"
#include "region/region.h"

/* The host's words of a collection. */
typedef struct cleaner_words {
    gvm_region_mail mail;
    uint64_t copied; /* for the device */
} cleaner_words;

/* ---- copies */

/* The context is current. */
static gvm_status copy_home(gvm_collection *c, const gvm_region_mail *mail)
{
    gvmi_region_copies copies = {.count = 0};
    const uint64_t count = gvmi_min(mail->count, GVM_REGION_BATCH);

    for (uint64_t i = 0; i < count; i++) {
        const uint32_t region = GVM_REGION_OF_ENTRY(mail->list[i]);
        const uint64_t frame = GVM_REGION_FRAME_OF_ENTRY(mail->list[i]);

        /* A kernel of the program may have overwritten the mail. */
        if (region >= c->table.count || frame >= c->frames_max)
            return gvm_error_set(GVM_E_INVALID, "there is no region %u, or no frame for it", region);
        gvmi_region_copies_add(&copies, gvmi_region_home(c, region),
                               c->table.address + frame * c->table.stride_bytes,
                               c->table.stride_bytes);
    }
    return gvmi_region_copies_submit(&copies, c->cleaner.stream);
}

static gvm_status tell_device(gvm_collection *c, uint64_t batch)
{
    cleaner_words *words = c->cleaner.words.host;
    CUresult result;

    words->copied = batch;
    result = gvmi_cu->cuMemcpyAsync(gvmi_address(gvm_buffer_address(c->meta)) +
                                        offsetof(gvm_region_table, cleaning.copied),
                                    c->cleaner.words.host_address + offsetof(cleaner_words, copied),
                                    sizeof words->copied, c->cleaner.stream);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemcpyAsync", "cannot say that regions are copied");
    return GVM_OK;
}

/* A batch that cannot be copied is given up at the next stop. */
static void copy_batch_locked(gvm_collection *c, uint64_t batch)
{
    const cleaner_words *words = c->cleaner.words.host;
    gvm_status status = gvmi_device_enter(c->space->device);

    c->cleaner.seen = batch;
    if (status != GVM_OK)
        return;
    status = copy_home(c, &words->mail);
    if (status == GVM_OK)
        (void)tell_device(c, batch);
    gvmi_device_leave();
}

static uint64_t latest_batch(const gvm_collection *c)
{
    const cleaner_words *words = c->cleaner.words.host;

    return __atomic_load_n(&words->mail.turn, __ATOMIC_ACQUIRE);
}

/* A step of the library's thread. */
static bool serve_collection(gvmi_served *served)
{
    gvm_collection *c = (gvm_collection *)((char *)served - offsetof(gvm_collection, cleaner.served));
    bool busy = false;

    if (!gvmi_try_lock(&c->cleaner.lock))
        return false;
    if (latest_batch(c) > c->cleaner.seen) { /* not one that was given up */
        copy_batch_locked(c, latest_batch(c));
        busy = true;
    }
    gvmi_unlock(&c->cleaner.lock);
    return busy;
}

/* ---- stop and resume */

static gvm_status wait_for_copies(const gvm_collection *c)
{
    gvm_status status = gvmi_device_enter(c->space->device);
    CUresult result;

    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuStreamSynchronize(c->cleaner.stream);
    if (result != CUDA_SUCCESS)
        status = gvmi_driver_fail(result, "cuStreamSynchronize", "regions cannot be copied home");
    gvmi_device_leave();
    return status;
}

gvm_status gvmi_region_cleaner_stop(gvm_collection *c, CUstream stream)
{
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_stop_cleaning,
        .count = 1,
        .by_warp = true,
    };
    uint64_t batch;
    gvm_status status;

    if (!c->cleaner.is_on)
        return GVM_OK;
    gvmi_lock(&c->cleaner.lock);
    status = wait_for_copies(c);
    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, stream, &batch);
    if (status == GVM_OK) {
        c->cleaner.seen = batch;
        c->cleaner.is_stopped = true;
    }
    return status;
}

gvm_status gvmi_region_cleaner_resume(gvm_collection *c, gvm_status status)
{
    const uint64_t turn = c->cleaner.seen << GVM_REGION_TURN_SHIFT | GVM_REGION_CLEAN_IDLE;
    gvm_status resumed = GVM_OK;
    gvm_error error;

    if (!c->cleaner.is_on)
        return status;
    error = gvmi_error_save();
    if (c->cleaner.is_stopped)
        resumed = gvm_buffer_copy_in(c->meta, offsetof(gvm_region_table, cleaning.turn), &turn,
                                     sizeof turn);
    c->cleaner.is_stopped = false;
    gvmi_unlock(&c->cleaner.lock);
    if (status == GVM_OK)
        return resumed;
    gvm_error_restore(&error);
    return status;
}

/* ---- beginning and end */

/* The context is current. */
static gvm_status take_cleaner_words(gvm_collection *c)
{
    static const gvmi_words_spec spec = {
        .what = "lists of regions to be written home",
        .to_do = "destroy some collections",
        .device_bytes = GVM_REGION_BATCH * sizeof(uint64_t),
        .host_bytes = (sizeof(cleaner_words) + 63) / 64 * 64,
        .slabs_max = 64,
    };
    gvm_device *device = c->space->device;
    CUresult result = gvmi_cu->cuStreamCreate(&c->cleaner.stream, CU_STREAM_NON_BLOCKING);
    gvm_status status;

    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuStreamCreate", "no stream for copies of regions");
    status = gvmi_words_take(device, &device->cleanings, &spec, &c->cleaner.words);
    if (status != GVM_OK)
        gvmi_cu->cuStreamDestroy(c->cleaner.stream);
    return status;
}

gvm_status gvmi_region_cleaner_begin(gvm_collection *c)
{
    gvm_status status;

    if (c->table.clean_low == 0)
        return GVM_OK;
    status = gvmi_device_enter(c->space->device);
    if (status != GVM_OK)
        return status;
    status = take_cleaner_words(c);
    gvmi_device_leave();
    if (status != GVM_OK)
        return status;
    memset(c->cleaner.words.host, 0, sizeof(cleaner_words));
    gvmi_mutex_init(&c->cleaner.lock, GVMI_RANK_CLEANING);
    c->cleaner.is_on = true;
    c->table.cleaning.mail = c->cleaner.words.host_address + offsetof(cleaner_words, mail);
    c->table.cleaning.list = c->cleaner.words.device;
    return gvmi_background_start();
}

void gvmi_region_cleaner_join(gvm_collection *c)
{
    if (!c->cleaner.is_on)
        return;
    c->cleaner.served.step = serve_collection;
    c->cleaner.is_served = true;
    gvmi_serve_join(&c->cleaner.served);
    gvmi_background_call();
}

void gvmi_region_cleaner_end(gvm_collection *c)
{
    gvm_device *device = c->space->device;
    bool entered;

    if (!c->cleaner.is_on)
        return;
    if (c->cleaner.is_served)
        gvmi_serve_leave(&c->cleaner.served);
    if (gvmi_device_enter_to_free(device, &entered)) {
        (void)gvmi_cu->cuStreamSynchronize(c->cleaner.stream);
        gvmi_cu->cuStreamDestroy(c->cleaner.stream);
        if (entered)
            gvmi_device_leave();
    }
    gvmi_words_give(&device->cleanings, &c->cleaner.words);
    gvmi_mutex_destroy(&c->cleaner.lock);
    c->cleaner.is_on = false;
}
