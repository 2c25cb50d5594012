/* See executor.h. Locks: `opening` while the device is opened; `lock` for lists, under which the driver is not called. */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "query/executor.h"
#include "query/kernels.h"

#define SHARED_STATIC 4096 /* left for what kernels declare themselves */
#define WAIT_MS 100
/* Of opening the device, after which the executor counts as hanging. Where the build has no kernels for the GPU,
 * the driver compiles them: ptxas of CUDA 13.0 takes 20 s for sm_100 and sm_120, on one core of an EPYC, and 30 s
 * where others use it. Ten times that. */
#define OPEN_NS (INT64_C(300) * 1000000000)
/* A role gets another turn where it has fewer than so many times those that are free: alone 12 of 16, two 7 each.
 * One that has none gets the last one, which no role with more than two gets: queries may take long. */
#define SHARE 3
/* A query has its turn for so long before others that wait may have it; it keeps its lane then. */
#define TURN_NS INT64_C(1000000000)
/* Where so many of a role have paused, no other one of it begins: each has a lane. */
#define PAUSED_MAX GQUERY_RUNNING_MAX

/* Made by lib/kernels/embed.py of kernels.c, joined.c, gather.c, number.c and search.c. NULL: this build has no
 * kernels for real GPUs. */
extern const unsigned char gvmi_image_soft_query_kernels[];
extern const unsigned char *const gvmi_image_cuda_query_kernels;
extern const unsigned char gvmi_image_soft_query_gather[];
extern const unsigned char *const gvmi_image_cuda_query_gather;
extern const unsigned char gvmi_image_soft_query_joined[];
extern const unsigned char *const gvmi_image_cuda_query_joined;
extern const unsigned char gvmi_image_soft_query_number[];
extern const unsigned char *const gvmi_image_cuda_query_number;
extern const unsigned char gvmi_image_soft_query_search[];
extern const unsigned char *const gvmi_image_cuda_query_search;

/* What these are of. */
enum { KERNELS, JOINED, GATHER, NUMBER, SEARCH, MODULES };

typedef struct waiter {
    struct waiter *next;
    uint32_t role;
    bool paused; /* it has a lane, and has had a turn */
    bool given;  /* a turn; it is no longer in the list */
} waiter;

static struct {
    pthread_mutex_t opening;
    gquery_device device;
    _Atomic bool open;
    _Atomic int64_t opening_ns; /* since when; 0: it is not being opened */
    _Atomic int64_t failed_ns;
    gvm_error failure;

    pthread_mutex_t lock;
    pthread_cond_t given; /* a turn */
    gquery_lane *lanes;   /* without a query */
    uint32_t running;
    uint32_t roles[GQUERY_RUNNING_MAX]; /* of those that run */
    waiter *waiters;                    /* in their order */
} state = {.opening = PTHREAD_MUTEX_INITIALIZER,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .given = PTHREAD_COND_INITIALIZER};

/* ---- the device */

static gvm_status find_kernel(CUmodule module, const char *name, CUfunction *kernel, int *threads)
{
    CUresult result = gvmi_cu->cuModuleGetFunction(kernel, module, name);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuFuncGetAttribute(threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *kernel);
    return result == CUDA_SUCCESS ? GVM_OK
                                  : gvm_driver_error((int32_t)result, "cuModuleGetFunction",
                                                     "there is no kernel %s", name);
}

static gvm_status find_kernels(gquery_device *d, const CUmodule *modules)
{
    int most = GQUERY_THREADS, of_lists = INT_MAX, of_tiles = INT_MAX; /* tiles: their side is fixed */
    const struct {
        int module;
        const char *name;
        CUfunction *kernel;
        int *most; /* threads of a block */
    } all[] = {{KERNELS, "query_begin", &d->begin, &most},
               {KERNELS, "query_scan", &d->scan, &most},
               {KERNELS, "query_reduce", &d->reduce, &most},
               {KERNELS, "query_collect", &d->collect, &most},
               {KERNELS, "query_list_groups", &d->list_groups, &most},
               {JOINED, "query_join", &d->join, &most},
               {GATHER, "query_count_marks", &d->count_marks, &most},
               {GATHER, "query_list_marks", &d->list_marks, &most},
               {GATHER, "query_gather", &d->gather, &most},
               {NUMBER, "query_number", &d->number, &most},
               {NUMBER, "query_present", &d->present, &most},
               {NUMBER, "query_put_texts", &d->put_texts, &most},
               {SEARCH, "query_distance", &d->distance, &most},
               {SEARCH, "query_keep", &d->keep, &most},
               {SEARCH, "query_select", &d->select, &of_lists},
               {SEARCH, "query_shorten", &d->shorten, &of_lists},
               {SEARCH, "query_nearest", &d->nearest, &of_tiles},
               {SEARCH, "query_products", &d->products, &of_tiles}};
    const int warp = d->info.warp_size > 0 ? d->info.warp_size : 1;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int threads;
        const gvm_status status = find_kernel(modules[all[i].module], all[i].name, all[i].kernel,
                                              &threads);

        if (status != GVM_OK)
            return status;
        if (threads < *all[i].most)
            *all[i].most = threads;
    }
    d->threads = (uint32_t)(most - most % warp);
    /* On the software GPU threads of a block are not faster together, and these wait for each other. */
    d->select_threads = d->info.software ? 1 : (uint32_t)(of_lists - of_lists % warp);
    return GVM_OK;
}

/* Blocks may have all shared memory that the device gives one. */
static void allow_shared(gquery_device *d)
{
    int bytes = 0;
    CUdevice device;

    d->shared_bytes = 48 * 1024;
    if (gvmi_cu->cuDeviceGet(&device, d->info.ordinal) == CUDA_SUCCESS &&
        gvmi_cu->cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                      device) == CUDA_SUCCESS &&
        bytes > (int)d->shared_bytes + SHARED_STATIC &&
        gvmi_cu->cuFuncSetAttribute(d->scan, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    bytes - SHARED_STATIC) == CUDA_SUCCESS &&
        gvmi_cu->cuFuncSetAttribute(d->join, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    bytes - SHARED_STATIC) == CUDA_SUCCESS)
        d->shared_bytes = (uint32_t)bytes - SHARED_STATIC;
    if (!d->info.software && gvmi_cu->cuDeviceGet(&device, d->info.ordinal) == CUDA_SUCCESS &&
        gvmi_cu->cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
                                      device) == CUDA_SUCCESS)
        d->multiprocessor_bytes = (uint32_t)bytes;
}

static gvm_status load_module(const unsigned char *image, CUmodule *module)
{
    CUresult result;

    if (image == NULL)
        return gvm_error_set(GVM_E_NOTSUP, "this build has no kernels for real GPUs");
    result = gvmi_cu->cuModuleLoadData(module, image);
    return result == CUDA_SUCCESS ? GVM_OK
                                  : gvm_driver_error((int32_t)result, "cuModuleLoadData",
                                                     "cannot load the kernels of queries");
}

static gvm_status load_kernels(gquery_device *d)
{
    const unsigned char *const images[MODULES][2] = {
        [KERNELS] = {gvmi_image_cuda_query_kernels, gvmi_image_soft_query_kernels},
        [JOINED] = {gvmi_image_cuda_query_joined, gvmi_image_soft_query_joined},
        [GATHER] = {gvmi_image_cuda_query_gather, gvmi_image_soft_query_gather},
        [NUMBER] = {gvmi_image_cuda_query_number, gvmi_image_soft_query_number},
        [SEARCH] = {gvmi_image_cuda_query_search, gvmi_image_soft_query_search}};
    CUmodule modules[MODULES];
    gvm_status status = GVM_OK;

    for (int i = 0; i < MODULES && status == GVM_OK; i++)
        status = load_module(images[i][d->info.software], &modules[i]);
    if (status == GVM_OK)
        status = find_kernels(d, modules);
    if (status == GVM_OK)
        allow_shared(d);
    return status;
}

static gvm_status open_device(int32_t ordinal, gquery_device *d)
{
    gvm_status status = gvm_device_open(ordinal, &d->handle);

    if (status != GVM_OK)
        return status;
    d->info.struct_size = sizeof d->info;
    status = gvm_device_get_info(d->handle, &d->info);
    if (status == GVM_OK)
        status = gvm_device_push_context(d->handle);
    if (status == GVM_OK) {
        status = load_kernels(d);
        gvm_device_pop_context();
    }
    return status;
}

gvm_status gquery_device_open(int32_t ordinal, const gquery_device **out)
{
    gvm_status status = GVM_OK;

    pthread_mutex_lock(&state.opening);
    if (state.failed_ns != 0) {
        gvm_error_restore(&state.failure);
        status = state.failure.status;
    } else if (!state.open) {
        state.opening_ns = gquery_now_ns();
        status = open_device(ordinal, &state.device);
        state.opening_ns = 0;
        state.open = status == GVM_OK;
        if (status != GVM_OK) {
            gvm_error_last(&state.failure);
            state.failed_ns = gquery_now_ns();
        }
    }
    pthread_mutex_unlock(&state.opening);
    *out = &state.device;
    return status;
}

bool gquery_device_is_opening(int64_t now_ns)
{
    const int64_t since_ns = state.opening_ns;

    return since_ns != 0 && now_ns - since_ns < OPEN_NS;
}

int64_t gquery_device_failed_ns(void)
{
    return state.failed_ns;
}

/* ---- lanes */

static void free_lane(gquery_lane *lane)
{
    if (lane->stream != NULL)
        (void)gvmi_cu->cuStreamDestroy(lane->stream);
    if (lane->start != NULL)
        (void)gvmi_cu->cuEventDestroy(lane->start);
    if (lane->stop != NULL)
        (void)gvmi_cu->cuEventDestroy(lane->stop);
    if (lane->host != NULL)
        (void)gvmi_cu->cuMemFreeHost(lane->host);
    if (lane->device != 0)
        (void)gvmi_cu->cuMemFree(lane->device);
    free(lane);
}

static gvm_status make_lane(gquery_lane **out)
{
    gquery_lane *lane = calloc(1, sizeof *lane);
    CUdeviceptr address;
    void *host = NULL;
    CUresult result;
    const char *call = "cuStreamCreate";

    if (lane == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a query");
    result = gvmi_cu->cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS && (result = gvmi_cu->cuEventCreate(&lane->start, 0)) == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&lane->stop, 0);
    if (result == CUDA_SUCCESS) {
        call = "cuMemHostAlloc";
        result = gvmi_cu->cuMemHostAlloc(&host, GQUERY_LANE_BYTES, CU_MEMHOSTALLOC_DEVICEMAP);
        lane->host = result == CUDA_SUCCESS ? host : NULL;
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemHostGetDevicePointer";
        result = gvmi_cu->cuMemHostGetDevicePointer(&address, lane->host, 0);
    }
    if (result == CUDA_SUCCESS) {
        lane->halt = (_Atomic uint32_t *)(void *)(lane->host + GQUERY_HALT_AT);
        lane->halt_address = address + GQUERY_HALT_AT;
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemAlloc";
        result = gvmi_cu->cuMemAlloc(&address, GQUERY_LANE_BYTES);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) {
            gquery_scratch_rest(INT64_MAX);
            result = gvmi_cu->cuMemAlloc(&address, GQUERY_LANE_BYTES);
        }
        lane->device = result == CUDA_SUCCESS ? address : 0;
    }
    if (result != CUDA_SUCCESS) {
        free_lane(lane);
        return gvm_driver_error((int32_t)result, call, "the GPU has no memory for another query");
    }
    *out = lane;
    return GVM_OK;
}

static uint32_t role_of(const gquery_connection *c)
{
    return c->whole != NULL ? c->whole->query.role : c->query.role;
}

static uint32_t count_running(uint32_t role)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < state.running; i++)
        count += state.roles[i] == role;
    return count;
}

static bool has_share(uint32_t role)
{
    return count_running(role) < SHARE * (GQUERY_RUNNING_MAX - state.running);
}

static bool may_begin(uint32_t role)
{
    uint32_t paused = 0;

    for (const waiter *w = state.waiters; w != NULL; w = w->next)
        paused += w->paused && w->role == role;
    return paused < PAUSED_MAX;
}

/* The first one that may have a turn by its role's share; NULL: there is none. */
static waiter *find_next(void)
{
    waiter *w = state.waiters;

    while (w != NULL && (!has_share(w->role) || (!w->paused && !may_begin(w->role))))
        w = w->next;
    return w;
}

/* The first one of the role, whatever that has. */
static waiter *find_of_role(uint32_t role)
{
    waiter *w = state.waiters;

    while (w != NULL && (w->role != role || (!w->paused && !may_begin(role))))
        w = w->next;
    return w;
}

static void append_waiter(waiter *w)
{
    waiter **at = &state.waiters;

    while (*at != NULL)
        at = &(*at)->next;
    *at = w;
}

static void remove_waiter(waiter *w)
{
    waiter **at = &state.waiters;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
}

static void give_turn(waiter *w)
{
    remove_waiter(w);
    w->given = true;
    state.roles[state.running++] = w->role;
    pthread_cond_broadcast(&state.given);
}

/* In the order of arrival, within the roles' shares. */
static void give_turns(void)
{
    for (waiter *w; (w = find_next()) != NULL;)
        give_turn(w);
}

static void remove_turn(uint32_t role)
{
    uint32_t i = 0;

    while (state.roles[i] != role)
        i++;
    state.roles[i] = state.roles[--state.running];
}

static void end_turn(uint32_t role)
{
    remove_turn(role);
    give_turns();
}

/* The lock is held, but while it waits.
 *
 * GVM_E_PEER     the connection is closed
 * GVM_E_TIMEOUT  until_ns has passed */
static gvm_status wait_for_turn(gquery_connection *c, waiter *self, int64_t until_ns)
{
    gvm_status status = GVM_OK;

    append_waiter(self);
    give_turns();
    while (!self->given && status == GVM_OK) {
        gquery_wait(&state.given, &state.lock, WAIT_MS);
        if (gquery_is_closed(c))
            status = GVM_E_PEER;
        else if (gquery_now_ns() >= until_ns)
            status = GVM_E_TIMEOUT;
    }
    if (self->given)
        return GVM_OK;
    remove_waiter(self);
    give_turns(); /* a paused one keeps others of its role from beginning */
    return status;
}

static void set_owner(gquery_lane *lane, gquery_connection *owner)
{
    pthread_mutex_lock(&state.lock);
    lane->owner = owner;
    owner->lane = lane;
    pthread_mutex_unlock(&state.lock);
}

gvm_status gquery_lane_take(gquery_connection *c, gquery_lane **out)
{
    const int64_t until_ns = gquery_goes_on(c)
                                 ? INT64_MAX
                                 : gquery_now_ns() + GQUERY_TURN_WAIT_MS * INT64_C(1000000);
    waiter self = {.role = role_of(c)};
    gquery_lane *lane = NULL;
    gvm_status status;

    pthread_mutex_lock(&state.lock);
    status = wait_for_turn(c, &self, until_ns);
    if (status == GVM_OK) {
        lane = state.lanes;
        if (lane != NULL)
            state.lanes = lane->next;
    }
    pthread_mutex_unlock(&state.lock);
    if (status == GVM_E_PEER)
        return gvm_error_set(GVM_E_PEER, "the backend has closed the connection");
    if (status != GVM_OK)
        return gvm_error_set(GVM_E_NOSPACE,
                             "for %d ms the GPU has had no turn for another query: %d run at a time, of "
                             "one role %d",
                             GQUERY_TURN_WAIT_MS, GQUERY_RUNNING_MAX, GQUERY_RUNNING_MAX * 3 / 4);
    if (lane == NULL)
        status = make_lane(&lane);
    if (status == GVM_OK) {
        set_owner(lane, c->whole != NULL ? c->whole : c);
        lane->has_turn = true;
        lane->turn_ns = gquery_now_ns();
        *out = lane;
        return GVM_OK;
    }
    pthread_mutex_lock(&state.lock);
    end_turn(self.role);
    pthread_mutex_unlock(&state.lock);
    return status;
}

/* A turn of the role to another query, by its role's share, or else to one of the same role. False: none waits for it. */
static bool pass_turn(uint32_t role)
{
    waiter *w;

    remove_turn(role);
    w = find_next();
    if (w == NULL)
        w = find_of_role(role);
    if (w != NULL)
        give_turn(w);
    else
        state.roles[state.running++] = role;
    return w != NULL;
}

bool gquery_lane_pause(gquery_connection *c, gquery_lane *lane)
{
    waiter self = {.role = role_of(c), .paused = true};
    gvm_status status = GVM_OK;

    if (gquery_now_ns() - lane->turn_ns < TURN_NS)
        return true;
    pthread_mutex_lock(&state.lock);
    if (pass_turn(self.role)) {
        status = wait_for_turn(c, &self, INT64_MAX);
        lane->has_turn = status == GVM_OK;
        lane->turn_ns = gquery_now_ns();
    }
    pthread_mutex_unlock(&state.lock);
    return status == GVM_OK;
}

void gquery_lane_give(gquery_lane *lane)
{
    pthread_mutex_lock(&state.lock);
    if (lane->has_turn)
        end_turn(role_of(lane->owner));
    lane->owner->lane = NULL;
    lane->used_ns = gquery_now_ns();
    lane->next = state.lanes;
    state.lanes = lane;
    pthread_mutex_unlock(&state.lock);
}

void gquery_lane_halt(const gquery_connection *c)
{
    pthread_mutex_lock(&state.lock);
    if (c->lane != NULL)
        atomic_store(c->lane->halt, 1);
    pthread_mutex_unlock(&state.lock);
}

/* ---- rest */

/* The one that was given first, if it has not been used since. */
static gquery_lane *take_old_lane(int64_t until_ns)
{
    gquery_lane **last = &state.lanes, *lane;

    pthread_mutex_lock(&state.lock);
    while (*last != NULL && (*last)->next != NULL)
        last = &(*last)->next;
    lane = *last != NULL && (*last)->used_ns <= until_ns ? *last : NULL;
    if (lane != NULL)
        *last = NULL;
    pthread_mutex_unlock(&state.lock);
    return lane;
}

void gquery_device_rest(void)
{
    const int64_t until_ns = gquery_now_ns() - GQUERY_REST_NS;

    if (!state.open || gvm_device_push_context(state.device.handle) != GVM_OK)
        return;
    gquery_scratch_rest(until_ns);
    for (gquery_lane *lane; (lane = take_old_lane(until_ns)) != NULL;)
        free_lane(lane);
    gvm_device_pop_context();
}
