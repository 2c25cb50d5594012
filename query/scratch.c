/* See executor.h: scratch memory, in blocks of few sizes, so that one query's are of use to the next.
 *
 * Large blocks are objects of the keeper: they count to its budget for the device, and it moves tables to host
 * memory to make room for them. A block is leased as long as a query has it. Where other leases leave no room on
 * the device, the keeper makes an object in host memory, where no query would be fast: then there is no room. Small
 * blocks are the driver's.
 *
 * What is kept beyond a bound, a thread of its own frees (gquery_scratch_await()): unmapping takes milliseconds,
 * for which no query waits.
 *
 * Lock: `lock` is for what is kept; neither the driver nor the keeper is called under it. */
#include <pthread.h>
#include <time.h>

#include "query/executor.h"

#define KEPT_BLOCKS 64
#define KEPT_DRIVERS_BYTES (UINT64_C(256) << 20) /* which are beside the keeper's budget */
#define KEPT_OBJECTS_BYTES (UINT64_C(1) << 30)   /* a query may have so much by default */
#define BLOCK_STEP UINT64_C(4096)                /* sizes of blocks are multiples of it */
#define DEVICE_PAGE (UINT64_C(2) << 20) /* above half of it cuMemAlloc() gives whole ones */
#define CHUNK_MAX (UINT64_C(1) << 30)   /* of an object */
#define NS_PER_S INT64_C(1000000000)

typedef struct kept_block {
    gquery_block block;
    int64_t used_ns;
} kept_block;

static struct {
    gvm_client *keeper;
    int32_t ordinal;
    pthread_mutex_t lock;
    kept_block kept[KEPT_BLOCKS];
    uint32_t kept_count;
    uint64_t drivers_bytes, objects_bytes; /* of these */
    bool surplus;                          /* there has been more than is kept */
    pthread_cond_t surplus_came;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .surplus_came = PTHREAD_COND_INITIALIZER};

void gquery_scratch_init(gvm_client *keeper, int32_t ordinal)
{
    state.keeper = keeper;
    state.ordinal = ordinal;
}

/* ---- sizes */

/* Between the sizes near to so many bytes, of which there are 8 up to the double. */
static uint64_t step_of(uint64_t bytes)
{
    uint64_t step = BLOCK_STEP;

    while (bytes > 16 * step)
        step *= 2;
    return bytes > DEVICE_PAGE / 2 && step < DEVICE_PAGE ? DEVICE_PAGE : step;
}

uint64_t gquery_scratch_size(uint64_t bytes)
{
    const uint64_t step = bytes <= GQUERY_SCRATCH_MAX ? step_of(bytes) : 0;

    if (step == 0)
        return UINT64_MAX;
    return bytes > 0 ? (bytes + step - 1) / step * step : BLOCK_STEP;
}

uint64_t gquery_scratch_fitting(uint64_t room)
{
    const uint64_t most = room < GQUERY_SCRATCH_MAX ? room : GQUERY_SCRATCH_MAX;
    const uint64_t step = step_of(most), size = most / step * step;

    return size == 0 && most > DEVICE_PAGE / 2 ? DEVICE_PAGE / 2 : size;
}

/* ---- objects of the keeper */

static gvm_status check_place(gvm_object *object, uint64_t bytes)
{
    gvm_object_info info = {.struct_size = sizeof info};
    const gvm_status status = gvm_object_get_info(object, &info);

    if (status != GVM_OK || info.device_bytes >= bytes)
        return status;
    return gvm_error_set(GVM_E_NOSPACE,
                         "the GPU memory keeper has no %llu bytes on the GPU for a query",
                         (unsigned long long)bytes);
}

/* A lease on an object that has none: all of it is on the device then. On failure the object is closed. */
static gvm_status lease_object(gquery_block *block)
{
    const gvm_acquire_options hot = {.struct_size = sizeof hot, .hint = GVM_HINT_HOT};
    gvm_status status = gvm_object_acquire(block->object, GVM_LEASE_WRITE, &hot, GQUERY_LEASE_MS,
                                           &block->lease);
    gvm_error error;

    if (status == GVM_OK) {
        block->address = (uint64_t)(uintptr_t)block->lease.address;
        status = check_place(block->object, block->bytes);
    }
    if (status == GVM_OK)
        return GVM_OK;
    gvm_error_last(&error);
    gvm_object_close(block->object);
    gvm_error_restore(&error);
    *block = (gquery_block){0};
    return status;
}

static gvm_status make_object(uint64_t bytes, gquery_block *out)
{
    const uint64_t step = step_of(bytes);
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = step < CHUNK_MAX ? step : CHUNK_MAX,
                                        .size_bytes = bytes,
                                        .device = state.ordinal};
    gquery_block block = {.bytes = bytes};
    gvm_status status = gvm_object_create(state.keeper, NULL, bytes, &options, &block.object);

    if (status == GVM_OK)
        status = lease_object(&block);
    if (status == GVM_OK)
        *out = block;
    return status;
}

/* ---- the driver's memory */

static gvm_status make_small(uint64_t bytes, gquery_block *out)
{
    CUdeviceptr address;
    CUresult result = gvmi_cu->cuMemAlloc(&address, bytes);

    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        gquery_scratch_rest(INT64_MAX);
        result = gvmi_cu->cuMemAlloc(&address, bytes);
    }
    if (result != CUDA_SUCCESS)
        return gvm_driver_error((int32_t)result, "cuMemAlloc",
                                "the GPU has no %llu bytes for a query", (unsigned long long)bytes);
    *out = (gquery_block){.address = address, .bytes = bytes};
    return GVM_OK;
}

/* Without a lease. */
static void free_block(const gquery_block *block)
{
    if (block->object != NULL)
        gvm_object_close(block->object);
    else
        (void)gvmi_cu->cuMemFree(block->address);
}

/* ---- what is kept */

static uint64_t *kept_bytes_of(const gquery_block *block)
{
    return block->object != NULL ? &state.objects_bytes : &state.drivers_bytes;
}

static gquery_block take_kept(uint32_t i)
{
    const gquery_block block = state.kept[i].block;

    state.kept[i] = state.kept[--state.kept_count];
    *kept_bytes_of(&block) -= block.bytes;
    return block;
}

static bool is_surplus(const gquery_block *block)
{
    return *kept_bytes_of(block) > (block->object != NULL ? KEPT_OBJECTS_BYTES : KEPT_DRIVERS_BYTES);
}

/* The oldest one that has not been used since, or is of more than is kept; no bytes: there is none. */
static gquery_block take_old(int64_t until_ns)
{
    gquery_block block = {0};
    uint32_t oldest = KEPT_BLOCKS;

    pthread_mutex_lock(&state.lock);
    for (uint32_t i = 0; i < state.kept_count; i++)
        if ((state.kept[i].used_ns <= until_ns || is_surplus(&state.kept[i].block)) &&
            (oldest == KEPT_BLOCKS || state.kept[i].used_ns < state.kept[oldest].used_ns))
            oldest = i;
    if (oldest < KEPT_BLOCKS)
        block = take_kept(oldest);
    pthread_mutex_unlock(&state.lock);
    return block;
}

void gquery_scratch_rest(int64_t until_ns)
{
    for (gquery_block block; (block = take_old(until_ns)).bytes > 0;)
        free_block(&block);
}

void gquery_scratch_await(int64_t limit_ns)
{
    const int64_t until_ns = gquery_now_ns() + limit_ns;
    const struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    int error = 0;

    pthread_mutex_lock(&state.lock);
    while (!state.surplus && error == 0)
        error = pthread_cond_clockwait(&state.surplus_came, &state.lock, CLOCK_MONOTONIC, &until);
    state.surplus = false;
    pthread_mutex_unlock(&state.lock);
}

static gquery_block find_kept(uint64_t bytes)
{
    gquery_block block = {0};

    pthread_mutex_lock(&state.lock);
    for (uint32_t i = 0; i < state.kept_count; i++)
        if (state.kept[i].block.bytes == bytes) {
            block = take_kept(i);
            break;
        }
    pthread_mutex_unlock(&state.lock);
    return block;
}

/* One that is kept, or a new one. */
static gvm_status take_object(uint64_t bytes, gquery_block *out)
{
    *out = find_kept(bytes);
    return out->bytes > 0 ? lease_object(out) : make_object(bytes, out);
}

static gvm_status take_small(uint64_t bytes, gquery_block *out)
{
    *out = find_kept(bytes);
    return out->bytes > 0 ? GVM_OK : make_small(bytes, out);
}

gvm_status gquery_scratch_take(uint64_t bytes, gquery_block *out)
{
    const uint64_t size = gquery_scratch_size(bytes);
    gvm_status status;

    if (size == UINT64_MAX)
        return gvm_error_set(GVM_E_NOSPACE, "no device has %llu bytes", (unsigned long long)bytes);
    if (size < GQUERY_OBJECT_LEAST)
        return take_small(size, out);
    status = take_object(size, out);
    if (status != GVM_E_NOSPACE)
        return status;
    gquery_scratch_rest(INT64_MAX);
    return make_object(size, out); /* with as much time again: before, there may have been no room to wait for */
}

void gquery_scratch_rest_block(gquery_block *block)
{
    if (block->object != NULL && block->lease.mode != 0)
        (void)gvm_object_release(block->object, &block->lease);
}

void gquery_scratch_give(gquery_block *block)
{
    bool kept;

    if (block->bytes == 0)
        return;
    gquery_scratch_rest_block(block);
    pthread_mutex_lock(&state.lock);
    kept = state.kept_count < KEPT_BLOCKS;
    if (kept) {
        state.kept[state.kept_count++] = (kept_block){*block, gquery_now_ns()};
        *kept_bytes_of(block) += block->bytes;
    }
    if (is_surplus(block)) {
        state.surplus = true;
        pthread_cond_signal(&state.surplus_came);
    }
    pthread_mutex_unlock(&state.lock);
    if (!kept)
        free_block(block);
    *block = (gquery_block){0};
}
