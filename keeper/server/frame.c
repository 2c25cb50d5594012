/* Frames and the pools they are made in; see frame.h.
 *
 * I1  table[n] is NULL or a frame with number n; no two frames have the same place in a pool.
 * I2  a pool's free list names the places that no frame has, dropped and unreaped ones included.
 * I3  bytes[d] is what device d's frames of device memory take, dropped and unreaped ones included; while changing[d] > 0
 *     threads are making memory of some, or giving it back, and bytes[d] has that, too.
 * Lock: rank FRAMES for the table, the lists and the figures; the driver is called outside.
 */
#include "keeper/server/frame.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/fds.h"

#define POOL_BYTES (64ull << 30) /* of addresses; memory comes frame by frame */
#define POOL_FRAMES_MIN 64u
#define POOL_FRAMES_MAX 4096u
#define NUMBER_MAX (1u << 24)
#define TIERS (GVM_TIER_HOST + 1)
#define QUERIES_MAX 8 /* of the driver's free memory, for figures that fit */

typedef struct pool {
    struct pool *next;
    gvm_buffer *buffer;
    uint32_t device, tier;
    uint64_t frame_bytes;
    uint32_t free_count, *free; /* places */
} pool;

typedef struct frame {
    struct frame *next; /* in a list of dropped ones */
    pool *pool;
    uint32_t place;
    uint32_t number;
    uint64_t address;
    gvmi_fd *fd;
} frame;

struct gvmi_frames {
    gvmi_mutex lock;
    pthread_cond_t reaped;  /* reapers[t] has become 0 */
    pthread_cond_t changed; /* changing[d] has become 0 */
    gvm_device *devices[GVMI_DEVICES_MAX];
    uint32_t peers[GVMI_DEVICES_MAX];
    int fd_limit;
    frame **table;
    uint32_t capacity;
    pool *pools;
    frame *dropped[TIERS];
    uint32_t reapers[TIERS]; /* threads that give memory of the tier back just now */
    uint64_t bytes[GVMI_DEVICES_MAX];
    uint32_t changing[GVMI_DEVICES_MAX]; /* threads that make, or give back, memory on the device just now */
    uint64_t changes[GVMI_DEVICES_MAX]; /* that they have begun */
};

gvm_status gvmi_frames_create(gvm_device *const *devices, const uint32_t *peers,
                              uint32_t device_count, int fd_limit, gvmi_frames **out)
{
    gvmi_frames *frames = calloc(1, sizeof *frames);

    if (frames == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for the table of frames");
    GVM_ASSERT(device_count <= GVMI_DEVICES_MAX);
    gvmi_mutex_init(&frames->lock, GVMI_RANK_FRAMES);
    pthread_cond_init(&frames->reaped, NULL);
    pthread_cond_init(&frames->changed, NULL);
    memcpy(frames->devices, devices, device_count * sizeof(gvm_device *));
    memcpy(frames->peers, peers, device_count * sizeof *peers);
    frames->fd_limit = fd_limit;
    *out = frames;
    return GVM_OK;
}

/* ---- pools */

static void pool_free(pool *p)
{
    gvmi_buffer_free(p->buffer);
    free(p->free);
    free(p);
}

static gvm_status pool_create(const gvmi_frames *frames, const gvmi_frame_spec *spec, pool **out)
{
    uint64_t count = POOL_BYTES / spec->bytes;
    gvmi_buffer_spec buffer_spec = {.chunk_bytes = spec->bytes};
    pool *p = calloc(1, sizeof *p);
    gvm_status status;

    count = count < POOL_FRAMES_MIN ? POOL_FRAMES_MIN : count;
    count = count > POOL_FRAMES_MAX ? POOL_FRAMES_MAX : count;
    if (p != NULL)
        p->free = calloc(count, sizeof *p->free);
    if (p == NULL || p->free == NULL) {
        status = gvm_error_set(GVM_E_NOMEM, "out of host memory for a pool of frames");
        goto fail_free;
    }
    buffer_spec.reserve_bytes = count * spec->bytes;
    status = gvmi_buffer_new(frames->devices[spec->device], &buffer_spec, &p->buffer);
    if (status != GVM_OK)
        goto fail_free;
    for (uint32_t d = 0; d < GVMI_DEVICES_MAX && spec->tier == GVM_TIER_DEVICE; d++)
        if ((frames->peers[spec->device] >> d & 1) != 0)
            gvmi_buffer_add_peer(p->buffer, frames->devices[d]);
    p->device = spec->device;
    p->tier = spec->tier;
    p->frame_bytes = spec->bytes;
    while (count-- > 0) /* so that the lowest place is taken first */
        p->free[p->free_count++] = (uint32_t)count;
    *out = p;
    return GVM_OK;

fail_free:
    if (p != NULL)
        free(p->free);
    free(p);
    return status;
}

static pool *find_frame_pool_locked(const gvmi_frames *frames, const gvmi_frame_spec *spec)
{
    pool *p = frames->pools;

    while (p != NULL && (p->device != spec->device || p->tier != spec->tier ||
                         p->frame_bytes != spec->bytes || p->free_count == 0))
        p = p->next;
    return p;
}

static void count_bytes_locked(gvmi_frames *frames, const pool *p, bool more)
{
    uint64_t *bytes = &frames->bytes[p->device];

    if (p->tier == GVM_TIER_DEVICE)
        *bytes = more ? *bytes + p->frame_bytes : *bytes - p->frame_bytes;
}

/* What the device has free, and bytes, fit again when it ends. */
static void begin_change_locked(gvmi_frames *frames, const pool *p)
{
    if (p->tier != GVM_TIER_DEVICE)
        return;
    frames->changing[p->device]++;
    frames->changes[p->device]++;
}

static void end_change_locked(gvmi_frames *frames, const pool *p)
{
    if (p->tier == GVM_TIER_DEVICE && --frames->changing[p->device] == 0)
        pthread_cond_broadcast(&frames->changed);
}

/* A place for a frame, in an old pool or a new one. A change begins. */
static gvm_status take_place(gvmi_frames *frames, const gvmi_frame_spec *spec, frame *f)
{
    pool *p;

    gvmi_lock(&frames->lock);
    p = find_frame_pool_locked(frames, spec);
    if (p == NULL) {
        gvm_status status;

        gvmi_unlock(&frames->lock);
        status = pool_create(frames, spec, &p);
        if (status != GVM_OK)
            return status;
        gvmi_lock(&frames->lock);
        p->next = frames->pools;
        frames->pools = p;
    }
    f->pool = p;
    f->place = p->free[--p->free_count];
    f->address = p->buffer->address + f->place * p->frame_bytes;
    count_bytes_locked(frames, p, true);
    begin_change_locked(frames, p);
    gvmi_unlock(&frames->lock);
    return GVM_OK;
}

static void release_frame_place_locked(gvmi_frames *frames, const frame *f)
{
    pool *p = f->pool;

    p->free[p->free_count++] = f->place;
    count_bytes_locked(frames, p, false);
}

/* ---- memory */

static gvm_status export_chunk(const gvmi_frames *frames, gvm_buffer *buffer, gvmi_chunk *chunk,
                               gvmi_fd **out)
{
    int fd = -1;
    CUresult result = gvmi_cu->cuMemExportToShareableHandle(
        &fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);

    if (result != CUDA_SUCCESS && gvmi_fds_lack(1))
        return gvmi_driver_fail_as(GVM_E_LIMIT, result, "cuMemExportToShareableHandle",
                                   "the process has no file descriptors left for frames");
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemExportToShareableHandle", "cannot export a frame");
    /* From here on somebody may have it: it must not go back to the cache of free chunks. */
    chunk->flags |= GVMI_CHUNK_SEEN;
    chunk->stamp = buffer->generation;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* drivers differ in what they give */
    if (fd >= frames->fd_limit) {
        close(fd);
        return gvm_error_set(GVM_E_LIMIT,
                             "the process's file descriptors are needed for clients: raise ulimit -n, or use "
                             "larger chunks");
    }
    return gvmi_fd_own(fd, out);
}

static gvm_status commit_and_export(const gvmi_frames *frames, frame *f)
{
    gvm_buffer *buffer = f->pool->buffer;
    gvm_status status;

    gvmi_lock(&buffer->lock);
    status = gvmi_buffer_commit_tier_locked(buffer, f->place, f->place + 1, (gvm_tier)f->pool->tier);
    if (status == GVM_OK) {
        status = export_chunk(frames, buffer, &buffer->chunks[f->place], &f->fd);
        if (status != GVM_OK) {
            gvm_error error = gvmi_error_save();

            (void)gvmi_buffer_vacate_locked(buffer, f->place, f->place + 1);
            gvm_error_restore(&error);
        }
    }
    gvmi_unlock(&buffer->lock);
    return status;
}

/* False: the driver does not release it (its context is broken), so the place must not be used
 * again. */
static bool release_memory(frame *f)
{
    gvm_buffer *buffer = f->pool->buffer;
    gvm_status status;

    gvmi_fd_release(f->fd);
    f->fd = NULL;
    gvmi_lock(&buffer->lock);
    status = gvmi_buffer_vacate_locked(buffer, f->place, f->place + 1);
    gvmi_unlock(&buffer->lock);
    return status == GVM_OK;
}

/* ---- making */

static gvm_status grow_frame_table_locked(gvmi_frames *frames, uint32_t number)
{
    uint32_t capacity = frames->capacity > 0 ? frames->capacity : 256;
    frame **table;

    if (number == 0 || number >= NUMBER_MAX)
        return gvm_error_set(GVM_E_INVALID, "%u is no number of a frame", number);
    while (capacity <= number)
        capacity *= 2;
    if (capacity > frames->capacity) {
        table = realloc(frames->table, capacity * sizeof(frame *));
        if (table == NULL)
            return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table of %u frames", capacity);
        memset(table + frames->capacity, 0, (capacity - frames->capacity) * sizeof(frame *));
        frames->table = table;
        frames->capacity = capacity;
    }
    if (frames->table[number] != NULL)
        return gvm_error_set(GVM_E_INVALID, "frame %u exists already", number);
    return GVM_OK;
}

static gvm_status make_frame(gvmi_frames *frames, const gvmi_frame_spec *spec)
{
    frame *f = calloc(1, sizeof *f);
    gvm_status status;

    if (f == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a frame");
    f->number = spec->frame;
    status = take_place(frames, spec, f);
    if (status != GVM_OK)
        goto fail_free;
    status = commit_and_export(frames, f);
    if (status != GVM_OK)
        goto fail_give;
    gvmi_lock(&frames->lock);
    status = grow_frame_table_locked(frames, spec->frame);
    if (status == GVM_OK) {
        frames->table[spec->frame] = f;
        end_change_locked(frames, f->pool);
    }
    gvmi_unlock(&frames->lock);
    if (status == GVM_OK)
        return GVM_OK;
    (void)release_memory(f);

fail_give:
    gvmi_lock(&frames->lock);
    if (f->pool->buffer->chunks[f->place].tier == GVM_TIER_ABSENT)
        release_frame_place_locked(frames, f);
    end_change_locked(frames, f->pool);
    gvmi_unlock(&frames->lock);
fail_free:
    free(f);
    return status;
}

gvm_status gvmi_frames_make(gvmi_frames *frames, const gvmi_frame_spec *spec)
{
    gvm_status status;

    GVM_ASSERT(spec->device < GVMI_DEVICES_MAX && frames->devices[spec->device] != NULL);
    GVM_ASSERT(spec->tier == GVM_TIER_DEVICE || spec->tier == GVM_TIER_HOST);
    gvmi_frames_reap(frames, spec->tier);
    status = make_frame(frames, spec);
    if (status == GVM_E_NOSPACE || status == GVM_E_NOMEM || status == GVM_E_LIMIT) {
        gvmi_frames_reap(frames, spec->tier); /* what was dropped meanwhile */
        status = make_frame(frames, spec);
    }
    /* Addresses in this process are one of its limits; they mean nothing to who asked for memory. */
    return status == GVM_E_ADDRESS ? GVM_E_LIMIT : status;
}

/* ---- dropping */

static frame *find_frame_locked(const gvmi_frames *frames, uint32_t number)
{
    return number < frames->capacity ? frames->table[number] : NULL;
}

bool gvmi_frames_drop(gvmi_frames *frames, uint32_t number)
{
    frame *f;

    gvmi_lock(&frames->lock);
    f = find_frame_locked(frames, number);
    if (f != NULL) {
        frames->table[number] = NULL;
        f->next = frames->dropped[f->pool->tier];
        frames->dropped[f->pool->tier] = f;
    }
    gvmi_unlock(&frames->lock);
    return f != NULL;
}

static frame *pop_dropped_frame_locked(gvmi_frames *frames, uint32_t tier)
{
    frame *f = frames->dropped[tier];

    if (f != NULL)
        frames->dropped[tier] = f->next;
    return f;
}

void gvmi_frames_reap(gvmi_frames *frames, uint32_t tier)
{
    frame *f;

    gvmi_lock(&frames->lock);
    frames->reapers[tier]++;
    while ((f = pop_dropped_frame_locked(frames, tier)) != NULL) {
        bool released;

        begin_change_locked(frames, f->pool);
        gvmi_unlock(&frames->lock);
        released = release_memory(f);
        gvmi_lock(&frames->lock);
        if (released)
            release_frame_place_locked(frames, f);
        end_change_locked(frames, f->pool);
        free(f);
    }
    if (--frames->reapers[tier] == 0)
        pthread_cond_broadcast(&frames->reaped);
    while (frames->reapers[tier] > 0)
        pthread_cond_wait(&frames->reaped, &frames->lock.mutex);
    gvmi_unlock(&frames->lock);
}

/* ---- questions */

bool gvmi_frames_dropped(gvmi_frames *frames)
{
    bool some = false;

    gvmi_lock(&frames->lock);
    for (uint32_t tier = 0; tier < TIERS; tier++)
        some |= frames->dropped[tier] != NULL || frames->reapers[tier] > 0;
    gvmi_unlock(&frames->lock);
    return some;
}

uint64_t gvmi_frames_address(gvmi_frames *frames, uint32_t number)
{
    const frame *f;
    uint64_t address;

    gvmi_lock(&frames->lock);
    f = find_frame_locked(frames, number);
    address = f != NULL ? f->address : 0;
    gvmi_unlock(&frames->lock);
    return address;
}

gvmi_fd *gvmi_frames_fd(gvmi_frames *frames, uint32_t number)
{
    const frame *f;
    gvmi_fd *fd;

    gvmi_lock(&frames->lock);
    f = find_frame_locked(frames, number);
    fd = f != NULL ? gvmi_fd_retain(f->fd) : NULL;
    gvmi_unlock(&frames->lock);
    return fd;
}

/* Waits until no thread makes memory on the device, or gives some back. Returns how often one has begun to. */
static uint64_t await_unchanging(gvmi_frames *frames, uint32_t device)
{
    uint64_t changes;

    gvmi_lock(&frames->lock);
    while (frames->changing[device] > 0)
        pthread_cond_wait(&frames->changed, &frames->lock.mutex);
    changes = frames->changes[device];
    gvmi_unlock(&frames->lock);
    return changes;
}

gvm_status gvmi_frames_query(gvmi_frames *frames, uint32_t device, gvmi_device_memory *out)
{
    bool fits = false;

    gvmi_frames_reap(frames, GVM_TIER_DEVICE);
    for (unsigned i = 0; i < QUERIES_MAX && !fits; i++) {
        const uint64_t changes = await_unchanging(frames, device);
        size_t free_bytes = 0, total_bytes = 0;
        const CUresult result = gvmi_cu->cuMemGetInfo(&free_bytes, &total_bytes);

        if (result != CUDA_SUCCESS)
            return gvmi_driver_fail(result, "cuMemGetInfo", "cannot read the free memory of device %d",
                                    frames->devices[device]->info.ordinal);
        *out = (gvmi_device_memory){.free_bytes = free_bytes, .total_bytes = total_bytes};
        gvmi_lock(&frames->lock);
        out->frame_bytes = frames->bytes[device];
        fits = frames->changes[device] == changes;
        gvmi_unlock(&frames->lock);
    }
    return GVM_OK;
}

/* ---- end */

void gvmi_frames_destroy(gvmi_frames *frames)
{
    if (frames == NULL)
        return;
    for (uint32_t i = 0; i < frames->capacity; i++)
        (void)gvmi_frames_drop(frames, i);
    gvmi_frames_reap(frames, GVM_TIER_DEVICE);
    gvmi_frames_reap(frames, GVM_TIER_HOST);
    for (pool *p = frames->pools, *next; p != NULL; p = next) {
        next = p->next;
        pool_free(p);
    }
    pthread_cond_destroy(&frames->reaped);
    pthread_cond_destroy(&frames->changed);
    gvmi_mutex_destroy(&frames->lock);
    free(frames->table);
    free(frames);
}
