/* The device is full, and another part of the process keeps memory that it does not use: each call that allocates gets
 * that, without a lock held. What it gets it from is a hoard, a holder of the test's own.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/appender_fixture.h"

#define MEMORY_CHUNKS 32
#define PATIENCE 10000 /* ms */

/* ---- the hoard: a buffer a chunk, and the rest */

static struct {
    gvmi_idle idle; /* first */
    gvm_buffer *chunks[MEMORY_CHUNKS];
    int count;
    CUdeviceptr rest;
    bool slow;  /* it has to wait before it gives */
    int stolen; /* times that another thread has at once what it gives */
    atomic_int asked, asked_to_wait;
    atomic_bool shut; /* who asks stays inside while it is */
} hoard;

static uint64_t give(gvmi_idle *idle, uint64_t wanted_bytes, bool may_wait)
{
    uint64_t given_bytes = 0;

    (void)idle;
    atomic_fetch_add(may_wait ? &hoard.asked_to_wait : &hoard.asked, 1);
    for (int waited = 0; atomic_load(&hoard.shut) && waited < PATIENCE; waited++)
        pause_ms(1);
    if (hoard.stolen > 0) {
        hoard.stolen--;
        return wanted_bytes;
    }
    while (hoard.count > 0 && given_bytes < wanted_bytes && (may_wait || !hoard.slow)) {
        gvm_buffer_destroy(hoard.chunks[--hoard.count]);
        given_bytes += CHUNK;
    }
    return given_bytes;
}

/* Takes all that is free. */
static bool hoard_all(bool slow)
{
    static const gvmi_idle_calls calls = {.reclaim = give};
    const gvmi_buffer_spec spec = {.reserve_bytes = CHUNK, .chunk_bytes = CHUNK, .unshared = true};
    CUresult code = CUDA_SUCCESS;

    memset(&hoard, 0, sizeof hoard);
    hoard.slow = slow;
    while (memory_free_bytes(device) >= CHUNK) {
        gvm_buffer **chunk = &hoard.chunks[hoard.count];

        if (hoard.count == MEMORY_CHUNKS || gvmi_buffer_create(device, &spec, chunk) != GVM_OK ||
            gvmi_buffer_commit(*chunk, 0, CHUNK) != GVM_OK)
            return false;
        hoard.count++;
    }
    if (memory_free_bytes(device) > 0) {
        if (gvmi_device_enter(device) != GVM_OK)
            return false;
        code = real->cuMemAlloc(&hoard.rest, memory_free_bytes(device));
        gvmi_device_leave();
    }
    gvmi_idle_join(device, &hoard.idle, &calls);
    return code == CUDA_SUCCESS && memory_free_bytes(device) == 0;
}

static void end_hoard(void)
{
    gvmi_idle_leave(&hoard.idle);
    while (hoard.count > 0)
        gvm_buffer_destroy(hoard.chunks[--hoard.count]);
    if (hoard.rest != 0 && gvmi_device_enter(device) == GVM_OK) {
        real->cuMemFree(hoard.rest);
        gvmi_device_leave();
    }
}

/* ---- calls that allocate; what they need besides is made before the device is full */

typedef struct user {
    const char *name;
    bool (*prepare)(void);
    gvm_status (*allocate)(void);
    void (*end)(void);
} user;

static gvm_buffer *buffer;
static gvm_vector *vector;
static gvm_appender *more[MEMORY_CHUNKS * 64];
static gvm_ipc *ipc;
static gvm_heap *pieces;
static void *piece;
static int count;
static const uint64_t zeros[16];

static bool make_buffer(void)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};

    return gvm_buffer_create(device, 4 * CHUNK, &options, &buffer) == GVM_OK;
}

static bool make_full_buffer(void)
{
    return make_buffer() && gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_OK;
}

static bool make_host_buffer(void)
{
    return make_full_buffer() && gvm_buffer_move(buffer, 0, 4 * CHUNK, GVM_TIER_HOST) == GVM_OK &&
           gvm_device_trim(device, 0) == GVM_OK;
}

static void end_buffer(void)
{
    gvm_buffer_destroy(buffer);
}

static gvm_status commit(void)
{
    return gvm_buffer_commit(buffer, CHUNK, 2 * CHUNK);
}

static gvm_status move_back(void)
{
    return gvm_buffer_move(buffer, 0, 4 * CHUNK, GVM_TIER_DEVICE);
}

static gvm_status alloc(void)
{
    return gvm_alloc(device, 3 * CHUNK, &piece);
}

static gvm_status alloc_rows(void)
{
    uint64_t pitch_bytes;

    return gvm_alloc_pitch(device, 1000, 3 * CHUNK / 1024, &piece, &pitch_bytes);
}

static void end_piece(void)
{
    (void)gvm_free(piece);
}

static bool make_heap(void)
{
    return gvm_heap_create(device, NULL, &pieces) == GVM_OK;
}

static gvm_status alloc_of_heap(void)
{
    return gvm_heap_alloc(pieces, 3 * CHUNK, &piece);
}

static void end_heap(void)
{
    gvm_heap_destroy(pieces);
}

static bool make_vector(void)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};

    return gvm_vector_create(device, 8, 8 * CHUNK, &options, &vector) == GVM_OK;
}

static gvm_status append_to_vector(void)
{
    return gvm_vector_append(vector, zeros, 16);
}

static gvm_status commit_vector(void)
{
    return gvm_vector_commit(vector, CHUNK / 4);
}

static gvm_status resize_vector(void)
{
    return gvm_vector_resize(vector, CHUNK / 4);
}

static void end_vector(void)
{
    gvm_vector_destroy(vector);
}

/* As many as there are words for in one slab. */
static bool make_appenders(void)
{
    for (count = 0; count < 63; count++) /* and the fixture's */
        if (gvm_appender_create(device, 8, CHUNK, NULL, &more[count]) != GVM_OK)
            return false;
    return true;
}

static gvm_status create_appender(void)
{
    const gvm_status status = gvm_appender_create(device, 8, CHUNK, NULL, &more[count]);

    count += status == GVM_OK;
    return status;
}

static void end_appenders(void)
{
    while (count > 0)
        gvm_appender_destroy(more[--count]);
}

static gvm_status sum(void)
{
    double value;

    return gvm_kernel_sum_f64(device, gvm_buffer_address(buffer), 16, NULL, &value);
}

static gvm_status export_copy(void)
{
    return gvm_ipc_export(buffer, 0, CHUNK, &ipc);
}

static void end_copy(void)
{
    gvm_ipc_destroy(ipc);
    gvm_buffer_destroy(buffer);
}

static gvm_status create_ipc(void)
{
    return gvm_ipc_create(device, CHUNK, &ipc);
}

static void end_ipc(void)
{
    gvm_ipc_destroy(ipc);
}

static const user users[] = {
    {"gvm_buffer_commit", make_buffer, commit, end_buffer},
    {"gvm_buffer_move", make_host_buffer, move_back, end_buffer},
    {"gvm_alloc", NULL, alloc, end_piece},
    {"gvm_alloc_pitch", NULL, alloc_rows, end_piece},
    {"gvm_heap_alloc", make_heap, alloc_of_heap, end_heap},
    {"gvm_vector_append", make_vector, append_to_vector, end_vector},
    {"gvm_vector_commit", make_vector, commit_vector, end_vector},
    {"gvm_vector_resize", make_vector, resize_vector, end_vector},
    {"gvm_appender_create", make_appenders, create_appender, end_appenders},
    {"gvm_kernel_sum_f64", make_full_buffer, sum, end_buffer},
    {"gvm_ipc_export", make_full_buffer, export_copy, end_copy},
    {"gvm_ipc_create", NULL, create_ipc, end_ipc},
};
#define USERS ((int)(sizeof users / sizeof users[0]))

typedef struct case_ {
    const user *user;
    bool slow;
    int stolen;
} case_;

static int be_user(void *arg)
{
    const case_ *c = arg;

    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(c->user->prepare == NULL || c->user->prepare());
    CHILD_EXPECT(hoard_all(c->slow));
    hoard.stolen = c->stolen;
    CHILD_EXPECT(c->user->allocate() == GVM_OK);
    CHILD_EXPECT(atomic_load(&hoard.asked) > 0);
    CHILD_EXPECT((atomic_load(&hoard.asked_to_wait) > 0) == (c->slow || c->stolen > 0));
    CHILD_EXPECT(hoard.count > 0); /* no more was taken than was wanted */
    c->user->end();
    end_hoard();
    CHILD_EXPECT(stop());
    return 0;
}

static void full_device_has_what_others_keep(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * USERS; i++) {
        case_ c = {&users[i / 2], i % 2 == 1, 0};

        print_message("# %s%s\n", c.user->name, c.slow ? ", of a holder that has to wait" : "");
        assert_child_succeeds(be_user, &c);
    }
}

/* It goes on as long as something comes. */
static void full_device_has_what_others_keep_in_the_end(void **state)
{
    (void)state;
    for (int i = 0; i < USERS; i++) {
        case_ c = {&users[i], false, 5};

        print_message("# %s\n", c.user->name);
        assert_child_succeeds(be_user, &c);
    }
}

/* Without virtual memory management a buffer is allocated as it is created. */
static int be_whole(void *arg)
{
    int32_t devices;

    (void)arg;
    choose_machine("64MiB");
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_count(&devices) == GVM_OK);
    real = gvmi_cu;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK && hoard_all(false));
    CHILD_EXPECT(gvm_buffer_create(device, 4 * CHUNK, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(atomic_load(&hoard.asked) > 0 && hoard.count > 0);
    gvm_buffer_destroy(buffer);
    end_hoard();
    gvm_device_close(device);
    return 0;
}

/* Without virtual memory management a heap waits for kernels to give back: what others give without comes first. */
static int be_slow(void *arg)
{
    gvm_heap_info i = {.struct_size = sizeof i};
    gvm_heap *heap;
    int32_t devices;

    (void)arg;
    choose_machine("96MiB");
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_count(&devices) == GVM_OK);
    real = gvmi_cu;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_heap_create(device, NULL, &heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 34 * MIB, &piece) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free(heap, piece) == GVM_OK && hoard_all(false));
    CHILD_EXPECT(gvm_heap_alloc(heap, 40 * MIB, &piece) == GVM_OK);
    CHILD_EXPECT(gvm_heap_get_info(heap, &i) == GVM_OK && i.decommits == 0 && i.segments == 2);
    CHILD_EXPECT(atomic_load(&hoard.asked_to_wait) == 0);
    gvm_heap_destroy(heap);
    end_hoard();
    gvm_device_close(device);
    return 0;
}

/* The error is that of the allocation. */
static int be_refused(void *arg)
{
    gvm_error error = {0};

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(make_buffer() && hoard_all(true));
    while (hoard.count > 1)
        CHILD_EXPECT(gvm_buffer_commit(hoard.chunks[--hoard.count], 0, CHUNK) ==
                     GVM_OK); /* out of the hoard's reach */
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_E_NOSPACE);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && error.status == GVM_E_NOSPACE);
    CHILD_EXPECT(strcmp(error.native_call, "cuMemCreate") == 0);
    CHILD_EXPECT(atomic_load(&hoard.asked) == 1 && atomic_load(&hoard.asked_to_wait) == 3); /* the first gave */
    CHILD_EXPECT(gvmi_buffer_check(buffer));
    _exit(0); /* the chunks that were taken out are nobody's */
}

/* ---- chunks that round up less */

static int be_halved(void *arg)
{
    gvm_buffer_info i = {.struct_size = sizeof i};
    uint64_t bytes;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(hoard_all(false));
    while (hoard.count > 2)
        gvm_buffer_destroy(hoard.chunks[--hoard.count]);
    CHILD_EXPECT(gvm_device_trim(device, 0) == GVM_OK);
    bytes = memory_free_bytes(
        device); /* with chunks of 4 MiB, a sixteenth of it, it would be rounded up beyond */
    CHILD_EXPECT(bytes % (2 * CHUNK) == CHUNK);
    CHILD_EXPECT(gvm_alloc(device, bytes - 1, &piece) == GVM_OK);
    CHILD_EXPECT(gvm_alloc_buffer(piece, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_get_info(buffer, &i) == GVM_OK && i.chunk_bytes == CHUNK);
    CHILD_EXPECT(atomic_load(&hoard.asked) == 0); /* it fits without */
    CHILD_EXPECT(gvm_free(piece) == GVM_OK);
    end_hoard();
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- a buffer that another thread uses */

static atomic_bool copying, door;

static CUresult wait_at_door(CUstream stream)
{
    atomic_store(&copying, true);
    for (int waited = 0; !atomic_load(&door) && waited < PATIENCE; waited++)
        pause_ms(1);
    return real->cuStreamSynchronize(stream);
}

static void *copy_in(void *unused)
{
    (void)unused;
    return gvm_buffer_copy_in(buffer, 0, zeros, sizeof zeros) == GVM_OK ? &copying : NULL;
}

static int be_used(void *arg)
{
    pthread_t copier;
    void *good;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(make_full_buffer());
    table.cuStreamSynchronize = wait_at_door;
    CHILD_EXPECT(pthread_create(&copier, NULL, copy_in, NULL) == 0);
    while (!atomic_load(&copying))
        pause_ms(1);
    CHILD_EXPECT(gvmi_buffer_decommit(buffer, 0, CHUNK, GVMI_RELEASE_KEEP, false) == GVM_E_TIMEOUT);
    gvmi_lock(&buffer->lock);
    CHILD_EXPECT(gvmi_buffer_decommit(buffer, 0, CHUNK, GVMI_RELEASE_KEEP, false) == GVM_E_TIMEOUT);
    gvmi_unlock(&buffer->lock);
    CHILD_EXPECT(gvmi_buffer_check(buffer));
    atomic_store(&door, true);
    CHILD_EXPECT(pthread_join(copier, &good) == 0 && good != NULL);
    CHILD_EXPECT(gvmi_buffer_decommit(buffer, 0, CHUNK, GVMI_RELEASE_KEEP, false) == GVM_OK);
    gvm_buffer_destroy(buffer);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- appenders */

static atomic_int frees; /* calls that wait for all kernels */

static CUresult free_counted(CUdeviceptr address)
{
    atomic_fetch_add(&frees, 1);
    return real->cuMemFree(address);
}

/* What a kernel needs comes from others, without waiting for what waits. */
static int be_needed(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .kind = GVM_HEAP_MANAGED};
    gvm_append_place place;
    gvm_heap *managed;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(gvm_heap_create(device, &options, &managed) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(managed, 34 * MIB, &piece) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free(managed, piece) == GVM_OK);
    table.cuMemFree = free_counted;
    CHILD_EXPECT(hoard_all(false));
    CHILD_EXPECT(begin() == GVM_OK && atomic_load(&hoard.asked) == 0); /* nothing is needed yet */
    for (int i = 0; i < 10; i++)
        CHILD_EXPECT(write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(atomic_load(&hoard.asked) > 0 && atomic_load(&hoard.asked_to_wait) == 0);
    CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK && begin() == GVM_OK);
    hoard.slow = true;
    while (write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK)
        ;
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_NOSPACE);
    CHILD_EXPECT(atomic_load(&hoard.asked_to_wait) == 0 && atomic_load(&frees) == 0);
    gvm_heap_destroy(managed);
    CHILD_EXPECT(atomic_load(&frees) == 1);
    end_hoard();
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- host memory */

static bool host_is_full;

static CUresult pin(void *at, size_t bytes, unsigned flags)
{
    return host_is_full ? CUDA_ERROR_OUT_OF_MEMORY : real->cuMemHostRegister(at, bytes, flags);
}

/* What there is already stays for the next try: to free it would wait for all kernels. */
static int be_without_host_memory(void *arg)
{
    uint64_t sum;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(make_buffer() && gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    table.cuMemHostRegister = pin;
    table.cuMemFree = free_counted;
    host_is_full = true;
    for (int i = 0; i < 2; i++)
        CHILD_EXPECT(gvm_kernel_checksum(device, gvm_buffer_address(buffer), CHUNK, NULL, &sum) ==
                     GVM_E_NOMEM);
    host_is_full = false;
    CHILD_EXPECT(gvm_kernel_checksum(device, gvm_buffer_address(buffer), CHUNK, NULL, &sum) == GVM_OK);
    CHILD_EXPECT(atomic_load(&frees) == 0);
    host_is_full = true;
    end_buffer();
    CHILD_EXPECT(stop());
    return 0;
}

/* Words that are taken while another thread fills the last slab; here the driver's call does it. */
static gvmi_words_list filled;
static const gvmi_words_spec one_slab = {.what = "words of a test",
                                         .to_do = "give some back",
                                         .device_bytes = 64,
                                         .host_bytes = 8,
                                         .slabs_max = 1};
static gvm_status taken_meanwhile;

static CUresult pin_and_take(void *at, size_t bytes, unsigned flags)
{
    gvmi_words words;

    table.cuMemHostRegister = pin;
    taken_meanwhile = gvmi_words_take(device, &filled, &one_slab, &words);
    return pin(at, bytes, flags);
}

static int take_words_while_filling(void *arg)
{
    gvmi_words words;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    gvmi_words_init(&filled);
    table.cuMemHostRegister = pin_and_take;
    CHILD_EXPECT(gvmi_words_take(device, &filled, &one_slab, &words) == GVM_OK);
    CHILD_EXPECT(taken_meanwhile == GVM_OK);
    for (int i = 2; i < 128; i++)
        CHILD_EXPECT(gvmi_words_take(device, &filled, &one_slab, &words) == GVM_OK);
    CHILD_EXPECT(gvmi_words_take(device, &filled, &one_slab, &words) == GVM_E_LIMIT);
    gvmi_words_destroy(device, &filled);
    gvmi_device_leave();
    CHILD_EXPECT(stop());
    return 0;
}

/* Words that are given back are taken again, and a try that failed is not counted twice. */
static int take_all_words(void *arg)
{
    const gvmi_words_spec spec = {.what = "words of a test",
                                  .to_do = "give some back",
                                  .device_bytes = 64,
                                  .host_bytes = 8,
                                  .slabs_max = 2};
    gvmi_words words[128], last;
    gvmi_words_list list = {0};
    gvm_error error;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    gvmi_words_init(&list);
    table.cuMemHostRegister = pin;
    for (int i = 0; i < 128; i++) {
        if (i % 64 == 0) {
            host_is_full = true;
            CHILD_EXPECT(gvmi_words_take(device, &list, &spec, &words[i]) == GVM_E_NOMEM);
            host_is_full = false;
        }
        CHILD_EXPECT(gvmi_words_take(device, &list, &spec, &words[i]) == GVM_OK);
        *(uint64_t *)words[i].host = (uint64_t)i;
    }
    CHILD_EXPECT(gvmi_words_take(device, &list, &spec, &last) == GVM_E_LIMIT);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK);
    CHILD_EXPECT(strstr(error.text, "no more words of a test than 128: give some back") != NULL);
    for (int i = 0; i < 128; i++) {
        CHILD_EXPECT(*(uint64_t *)words[i].host == (uint64_t)i);
        gvmi_words_give(&list, &words[i]);
        CHILD_EXPECT(gvmi_words_take(device, &list, &spec, &last) == GVM_OK);
        CHILD_EXPECT(last.device == words[i].device && last.host == words[i].host);
    }
    gvmi_words_destroy(device, &list);
    gvmi_device_leave();
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- what is ahead */

/* An appender that has finished gives what is ahead of what it has written; one that has begun keeps it. */
static int be_ahead(void *arg)
{
    gvm_append_place place;
    uint64_t ahead;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    for (int i = 0; i < 6; i++)
        CHILD_EXPECT(write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    for (int waited = 0; info().front_bytes < 10 * CHUNK && waited < PATIENCE; waited++)
        pause_ms(1);
    CHILD_EXPECT(make_buffer() && hoard_all(true));
    CHILD_EXPECT(gvmi_idle_reclaim(device, 4 * CHUNK, false) == 0);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    ahead = info().front_bytes + info().back_bytes - 6 * CHUNK;
    CHILD_EXPECT(ahead >= 4 * CHUNK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_OK);
    CHILD_EXPECT(atomic_load(&hoard.asked_to_wait) == 0); /* that was enough */
    CHILD_EXPECT(info().front_bytes == 6 * CHUNK && info().back_bytes == 0 && info().rows > 0);
    CHILD_EXPECT(gvmi_appender_check(appender) && memory_free_bytes(device) == ahead - 4 * CHUNK);
    CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK);
    CHILD_EXPECT(gvmi_idle_reclaim(device, 6 * CHUNK, false) == 6 * CHUNK);
    CHILD_EXPECT(info().front_bytes == 0 && gvmi_appender_check(appender));
    CHILD_EXPECT(begin() == GVM_OK && write_place(1, 0, 0, &place) == GVM_APPEND_OK && place.row == 0);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == 1);
    end_buffer();
    end_hoard();
    CHILD_EXPECT(stop());
    return 0;
}

static gvm_append second_append = {.struct_size = sizeof second_append};

static void *begin_second(void *unused)
{
    (void)unused;
    return gvm_appender_begin(more[0], &second_append) == GVM_OK ? &second_append : NULL;
}

static void *write_row(void *unused)
{
    gvm_append_place place;

    (void)unused;
    return write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK ? &hoard : NULL;
}

/* While the thread asks others for what one appender needs, another one's begin waits for it, with its
 * lock. */
static int be_begun_meanwhile(void *arg)
{
    pthread_t writer, beginner;
    void *good;

    (void)arg;
    CHILD_EXPECT(start_on("64MiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(hoard_all(false));
    CHILD_EXPECT(gvm_appender_create(device, ROW, 64 * CHUNK, NULL, &more[0]) == GVM_OK);
    atomic_store(&hoard.shut, true);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(pthread_create(&writer, NULL, write_row, NULL) == 0);
    while (atomic_load(&hoard.asked) == 0)
        pause_ms(1);
    CHILD_EXPECT(pthread_create(&beginner, NULL, begin_second, NULL) == 0);
    while (!__atomic_load_n(&more[0]->feed.starting, __ATOMIC_RELAXED))
        pause_ms(1);
    hoard.slow = true; /* so that the others are asked as well */
    atomic_store(&hoard.shut, false);
    CHILD_EXPECT(pthread_join(beginner, &good) == 0 && good != NULL);
    CHILD_EXPECT(pthread_join(writer, &good) == 0); /* it may have been refused */
    CHILD_EXPECT(finish() == GVM_OK && gvm_appender_finish(more[0], NULL, NULL) == GVM_OK);
    gvm_appender_destroy(more[0]);
    end_hoard();
    CHILD_EXPECT(stop());
    return 0;
}

CHILD_TEST(buffer_without_vmm_has_what_others_keep, be_whole)
CHILD_TEST(heap_has_what_others_give_at_once_before_it_waits, be_slow)
CHILD_TEST(device_that_stays_full_says_so_itself, be_refused)
CHILD_TEST(piece_that_fits_with_smaller_chunks_gets_them, be_halved)
CHILD_TEST(buffer_that_is_used_is_not_waited_for, be_used)
CHILD_TEST(kernel_has_what_others_keep_without_waiting, be_needed)
CHILD_TEST(appender_that_has_not_begun_gives_what_is_ahead, be_ahead)
CHILD_TEST(appender_that_begins_is_not_waited_for, be_begun_meanwhile)
CHILD_TEST(result_without_host_memory_frees_nothing, be_without_host_memory)
CHILD_TEST(words_given_back_are_taken_again, take_all_words)
CHILD_TEST(words_taken_while_the_last_slab_is_filled_are_no_limit, take_words_while_filling)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_device_has_what_others_keep),
        cmocka_unit_test(full_device_has_what_others_keep_in_the_end),
        cmocka_unit_test(buffer_without_vmm_has_what_others_keep),
        cmocka_unit_test(heap_has_what_others_give_at_once_before_it_waits),
        cmocka_unit_test(device_that_stays_full_says_so_itself),
        cmocka_unit_test(piece_that_fits_with_smaller_chunks_gets_them),
        cmocka_unit_test(buffer_that_is_used_is_not_waited_for),
        cmocka_unit_test(kernel_has_what_others_keep_without_waiting),
        cmocka_unit_test(appender_that_has_not_begun_gives_what_is_ahead),
        cmocka_unit_test(appender_that_begins_is_not_waited_for),
        cmocka_unit_test(result_without_host_memory_frees_nothing),
        cmocka_unit_test(words_given_back_are_taken_again),
        cmocka_unit_test(words_taken_while_the_last_slab_is_filled_are_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
