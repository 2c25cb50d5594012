/* keeper/server/frame.c and mover.c: frames are memory with an fd that is the same memory elsewhere; what
 * is dropped comes back; jobs do what they say, in order, and a failure leaves nothing behind.
 *
 * Each test runs in a child, because a driver is started once a process. The machine is one device
 * of 64 MiB with as much pinned host memory.
 */
#include "tests/unit/unit.h"

#include <poll.h>

#include "keeper/server/mover.h"
#include "memory/device.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define FRAME (2 * MIB)
#define TIMEOUT_MS 20000 /* never reached */
#define WORDS (FRAME / sizeof(uint32_t))

typedef struct fixture {
    gvm_device *device;
    gvmi_frames *frames;
    gvmi_done_queue *done;
    gvmi_mover *mover;
    uint64_t free_bytes;
    int fds;
} fixture;

static int start_without_mover(fixture *w, int fd_limit)
{
    memset(w, 0, sizeof *w);
    /* Of its own, with memory that nobody else uses. */
    fixture_machine("memory=64MiB,host=64MiB");
    CHILD_EXPECT(gvm_device_open(0, &w->device) == GVM_OK);
    w->free_bytes = memory_free_bytes(w->device);
    w->fds = count_fds();
    CHILD_EXPECT(gvmi_frames_create(&w->device, &(uint32_t){0}, 1, fd_limit, &w->frames) == GVM_OK);
    CHILD_EXPECT(gvmi_done_create(&w->done) == GVM_OK);
    return 0;
}

static int start(fixture *w, int fd_limit)
{
    CHILD_EXPECT(start_without_mover(w, fd_limit) == 0);
    CHILD_EXPECT(gvmi_mover_start(w->device, 0, w->frames, w->done, &w->mover) == GVM_OK);
    return 0;
}

static int stop(fixture *w)
{
    gvmi_mover_stop(w->mover);
    gvmi_frames_destroy(w->frames);
    gvmi_done_destroy(w->done);
    CHILD_EXPECT(memory_free_bytes(w->device) == w->free_bytes);
    CHILD_EXPECT(count_fds() == w->fds);
    gvm_device_close(w->device);
    return 0;
}

static gvmi_frame_spec spec(uint32_t number, uint32_t tier)
{
    return (gvmi_frame_spec){.frame = number, .tier = tier, .bytes = FRAME};
}

/* What frames take of the device; UINT64_MAX: the driver does not say. */
static uint64_t frame_bytes(fixture *w)
{
    gvmi_device_memory memory = {.frame_bytes = UINT64_MAX};

    if (gvmi_device_enter(w->device) != GVM_OK)
        return UINT64_MAX;
    (void)gvmi_frames_query(w->frames, 0, &memory);
    gvmi_device_leave();
    return memory.frame_bytes;
}

/* ---- contents */

static int fill(fixture *w, uint32_t number, uint32_t word)
{
    const uint64_t address = gvmi_frames_address(w->frames, number);

    CHILD_EXPECT(address != 0);
    CHILD_EXPECT(gvmi_device_enter(w->device) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemsetD32Async(address, word, WORDS, w->device->stream) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuStreamSynchronize(w->device->stream) == CUDA_SUCCESS);
    gvmi_device_leave();
    return 0;
}

static bool all_are(const uint32_t *words, uint32_t word)
{
    for (size_t i = 0; i < WORDS; i++)
        if (words[i] != word)
            return false;
    return true;
}

static bool holds(fixture *w, uint64_t address, uint32_t word)
{
    static uint32_t words[WORDS];
    bool good = gvmi_device_enter(w->device) == GVM_OK;

    good = good && gvmi_cu->cuMemcpyDtoH(words, address, FRAME) == CUDA_SUCCESS;
    gvmi_device_leave();
    return good && all_are(words, word);
}

static bool frame_holds(fixture *w, uint32_t number, uint32_t word)
{
    const uint64_t address = gvmi_frames_address(w->frames, number);

    return address != 0 && holds(w, address, word);
}

/* ---- jobs */

static gvm_status order(fixture *w, uint64_t number, gvmi_action_kind kind, bool make,
                        gvmi_frame_spec to, gvmi_frame_spec from)
{
    const gvmi_action action = {.kind = kind, .job = number, .make = make, .to = to, .from = from};

    return gvmi_mover_submit(w->mover, &action);
}

/* The next jobs that are over: true if they are exactly these numbers, in this order, all with one
 * status. */
static bool await(fixture *w, uint64_t first, uint64_t count, gvm_status status)
{
    struct pollfd ring = {.fd = gvmi_done_fd(w->done), .events = POLLIN};
    bool good = true;

    for (uint64_t seen = 0; seen < count;) {
        gvmi_job *job, *next;

        if (poll(&ring, 1, TIMEOUT_MS) != 1)
            return false;
        for (job = gvmi_done_take(w->done); job != NULL; job = next, seen++) {
            next = job->next;
            good = good && job->number == first + seen && job->status == status;
            gvmi_done_release(job);
        }
    }
    return good;
}

/* ---- tests */

static int be_made_and_dropped(void *arg)
{
    fixture w;
    gvmi_frame_spec device = spec(1, GVM_TIER_DEVICE), host = spec(500, GVM_TIER_HOST);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    const CUmemAccessDesc rights = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    gvmi_fd *fd;

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    CHILD_EXPECT(gvmi_frames_make(w.frames, &device) == GVM_OK);
    CHILD_EXPECT(gvmi_frames_make(w.frames, &host) == GVM_OK);
    CHILD_EXPECT(gvmi_frames_make(w.frames, &host) == GVM_E_INVALID);
    CHILD_EXPECT(frame_bytes(&w) == FRAME);
    CHILD_EXPECT(fill(&w, 1, 0x11) == 0 && fill(&w, 500, 0x22) == 0);

    /* The fd is the same memory. */
    fd = gvmi_frames_fd(w.frames, 1);
    CHILD_EXPECT(fd != NULL && (fcntl(fd->fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHILD_EXPECT(gvmi_cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd->fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
                 CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressReserve(&address, FRAME, 0, 0, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemMap(address, FRAME, 0, handle, 0) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemSetAccess(address, FRAME, &rights, 1) == CUDA_SUCCESS);
    CHILD_EXPECT(holds(&w, address, 0x11));
    CHILD_EXPECT(gvmi_cu->cuMemUnmap(address, FRAME) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemRelease(handle) == CUDA_SUCCESS);
    CHILD_EXPECT(gvmi_cu->cuMemAddressFree(address, FRAME) == CUDA_SUCCESS);

    /* Dropped, it is gone at once, its memory after reaping, its fd with the last who has it. */
    CHILD_EXPECT(gvmi_frames_drop(w.frames, 1) && !gvmi_frames_drop(w.frames, 1));
    CHILD_EXPECT(!gvmi_frames_drop(w.frames, 2) && !gvmi_frames_drop(w.frames, 1u << 30));
    CHILD_EXPECT(gvmi_frames_address(w.frames, 1) == 0 && gvmi_frames_fd(w.frames, 1) == NULL);
    CHILD_EXPECT(gvmi_frames_dropped(w.frames));
    gvmi_frames_reap(w.frames, GVM_TIER_DEVICE);
    CHILD_EXPECT(!gvmi_frames_dropped(w.frames));
    CHILD_EXPECT(frame_bytes(&w) == 0);
    CHILD_EXPECT(fcntl(fd->fd, F_GETFD) >= 0);
    gvmi_fd_release(fd);
    CHILD_EXPECT(frame_holds(&w, 500, 0x22));
    return stop(&w);
}

CHILD_TEST(frame_made_is_shared_memory_until_dropped, be_made_and_dropped)

static int fill_the_device(void *arg)
{
    fixture w;
    uint32_t count = 0;
    gvmi_frame_spec more = spec(1000, GVM_TIER_DEVICE);

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    for (gvm_status status = GVM_OK; status == GVM_OK && count < 64;) {
        gvmi_frame_spec next = spec(count + 1, GVM_TIER_DEVICE);

        status = gvmi_frames_make(w.frames, &next);
        CHILD_EXPECT(status == GVM_OK || status == GVM_E_NOSPACE);
        count += status == GVM_OK;
    }
    CHILD_EXPECT(count > 0 && count == w.free_bytes / FRAME);
    CHILD_EXPECT(gvmi_frames_address(w.frames, count + 1) == 0);
    CHILD_EXPECT(frame_bytes(&w) == count * FRAME);
    /* What was dropped is there for what is made next, whichever thread reaps. */
    CHILD_EXPECT(gvmi_frames_drop(w.frames, 1));
    CHILD_EXPECT(gvmi_frames_make(w.frames, &more) == GVM_OK);
    CHILD_EXPECT(frame_bytes(&w) == count * FRAME);
    return stop(&w);
}

CHILD_TEST(frame_without_memory_left_is_refused, fill_the_device)

static int run_out_of_fds(void *arg)
{
    fixture w;
    gvmi_frame_spec device = spec(1, GVM_TIER_DEVICE), host = spec(2, GVM_TIER_HOST);

    (void)arg;
    if (start(&w, 3) != 0) /* they are all for clients */
        return 1;
    CHILD_EXPECT(gvmi_frames_make(w.frames, &device) == GVM_E_LIMIT);
    CHILD_EXPECT(gvmi_frames_make(w.frames, &host) == GVM_E_LIMIT);
    CHILD_EXPECT(frame_bytes(&w) == 0);
    return stop(&w);
}

CHILD_TEST(frame_without_fds_left_is_refused, run_out_of_fds)

static int move_there_and_back(void *arg)
{
    fixture w;
    const uint32_t pairs = 10; /* more than are under way at a time in one lane, twice over */

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    for (uint32_t i = 1; i <= pairs; i++) {
        gvmi_frame_spec made = spec(i, GVM_TIER_DEVICE);

        CHILD_EXPECT(gvmi_frames_make(w.frames, &made) == GVM_OK && fill(&w, i, i) == 0);
    }
    for (uint32_t i = 1; i <= pairs; i++) /* out, making the frames */
        CHILD_EXPECT(order(&w, i, GVMI_ACTION_COPY, true, spec(100 + i, GVM_TIER_HOST),
                           spec(i, GVM_TIER_DEVICE)) == GVM_OK);
    CHILD_EXPECT(await(&w, 1, pairs, GVM_OK));
    for (uint32_t i = 1; i <= pairs; i++) /* what is on the device is wiped */
        CHILD_EXPECT(order(&w, i, GVMI_ACTION_ZERO, false, spec(i, GVM_TIER_DEVICE),
                           (gvmi_frame_spec){0}) == GVM_OK);
    CHILD_EXPECT(await(&w, 1, pairs, GVM_OK));
    for (uint32_t i = 1; i <= pairs; i++)
        CHILD_EXPECT(frame_holds(&w, i, 0) && frame_holds(&w, 100 + i, i));
    for (uint32_t round = 0; round < 3; round++) /* and back, the other way round, again and again */
        for (uint32_t i = 1; i <= pairs; i++)
            CHILD_EXPECT(order(&w, round * pairs + i, GVMI_ACTION_COPY, false,
                               spec(pairs + 1 - i, GVM_TIER_DEVICE),
                               spec(100 + i, GVM_TIER_HOST)) == GVM_OK);
    CHILD_EXPECT(await(&w, 1, 3 * pairs, GVM_OK));
    for (uint32_t i = 1; i <= pairs; i++)
        CHILD_EXPECT(frame_holds(&w, pairs + 1 - i, i));
    return stop(&w);
}

CHILD_TEST(chunks_moved_there_and_back_are_the_same, move_there_and_back)

/* Each kind of job that cannot be done is reported, in its turn, and what was there before stays. */
static int fail_jobs(void *arg)
{
    fixture w;
    gvmi_frame_spec source = spec(1, GVM_TIER_DEVICE), none = spec(9, GVM_TIER_DEVICE);

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    CHILD_EXPECT(gvmi_frames_make(w.frames, &source) == GVM_OK && fill(&w, 1, 7) == 0);
    CHILD_EXPECT(order(&w, 1, GVMI_ACTION_ZERO, false, none, none) == GVM_OK);
    CHILD_EXPECT(order(&w, 2, GVMI_ACTION_COPY, false, source, none) == GVM_OK);
    CHILD_EXPECT(order(&w, 3, GVMI_ACTION_MAKE, false, source, none) == GVM_OK); /* exists */
    CHILD_EXPECT(order(&w, 4, GVMI_ACTION_COPY, true, spec(2, GVM_TIER_DEVICE), none) == GVM_OK);
    CHILD_EXPECT(await(&w, 1, 4, GVM_E_INVALID));
    CHILD_EXPECT(frame_holds(&w, 1, 7));
    CHILD_EXPECT(gvmi_frames_address(w.frames, 2) == 0); /* made, and undone */
    CHILD_EXPECT(frame_bytes(&w) == FRAME);
    /* The lanes go on. */
    CHILD_EXPECT(order(&w, 5, GVMI_ACTION_MAKE, false, spec(2, GVM_TIER_DEVICE), none) == GVM_OK);
    CHILD_EXPECT(await(&w, 5, 1, GVM_OK) && frame_holds(&w, 2, 0));
    return stop(&w);
}

CHILD_TEST(job_that_fails_leaves_nothing_behind, fail_jobs)

/* So many of the machine's jobs are done well; reapings, which come in between, do not count. */
static bool await_made(fixture *w, uint32_t count)
{
    struct pollfd ring = {.fd = gvmi_done_fd(w->done), .events = POLLIN};
    bool good = true;

    while (count > 0) {
        gvmi_job *job, *next;

        if (poll(&ring, 1, TIMEOUT_MS) != 1)
            return false;
        for (job = gvmi_done_take(w->done); job != NULL; job = next) {
            next = job->next;
            good = good && job->status == GVM_OK;
            count -= job->kind == GVMI_JOB_ACTION;
            gvmi_done_release(job);
        }
    }
    return good;
}

/* Frames are dropped and made anew while the other lane works: nothing is short of memory, though
 * all of the device is in use. */
static int churn(void *arg)
{
    fixture w;
    const uint32_t count = 30;
    uint32_t number = 1;

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    for (; number <= count; number++)
        CHILD_EXPECT(order(&w, number, GVMI_ACTION_MAKE, false, spec(number, GVM_TIER_DEVICE),
                           (gvmi_frame_spec){0}) == GVM_OK);
    CHILD_EXPECT(await(&w, 1, count, GVM_OK));
    for (uint32_t round = 0; round < 20; round++) {
        const uint32_t first = 1 + round * count;

        for (uint32_t i = 0; i < count; i++) {
            CHILD_EXPECT(gvmi_frames_drop(w.frames, first + i));
            gvmi_mover_reap(w.mover, GVM_TIER_DEVICE);
        }
        for (uint32_t i = 0; i < count; i++, number++)
            CHILD_EXPECT(order(&w, i + 1, GVMI_ACTION_MAKE, false, spec(number, GVM_TIER_DEVICE),
                               (gvmi_frame_spec){0}) == GVM_OK);
        CHILD_EXPECT(await_made(&w, count));
    }
    return stop(&w);
}

CHILD_TEST(frames_dropped_and_made_at_once_fit, churn)

static int ask_memory(void *arg)
{
    fixture w;
    struct pollfd ring;
    gvmi_frame_spec made = spec(1, GVM_TIER_DEVICE);
    gvmi_job *job;

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    ring = (struct pollfd){.fd = gvmi_done_fd(w.done), .events = POLLIN};
    CHILD_EXPECT(gvmi_frames_make(w.frames, &made) == GVM_OK);
    for (int round = 0; round < 3; round++) {
        gvmi_mover_query(w.mover, 0);
        gvmi_mover_query(w.mover, 0); /* once is enough */
        CHILD_EXPECT(poll(&ring, 1, TIMEOUT_MS) == 1);
        job = gvmi_done_take(w.done);
        CHILD_EXPECT(job != NULL && job->next == NULL && job->kind == GVMI_JOB_QUERY);
        CHILD_EXPECT(job->status == GVM_OK && job->memory.total_bytes == 64 * MIB);
        CHILD_EXPECT(job->memory.frame_bytes == FRAME && job->memory.free_bytes == w.free_bytes - FRAME);
        gvmi_done_release(job);
    }
    gvmi_mover_query(w.mover, 0); /* and is not waited for at the end */
    return stop(&w);
}

CHILD_TEST(memory_asked_for_is_reported_once, ask_memory)

/* The free memory, and what frames take of it, are of one moment though another thread makes a frame: between the two, or
 * before, and has not done so yet. */
static struct {
    fixture *w;
    bool once; /* what is altered is still to be done */
    gvmi_driver altered;
    const gvmi_driver *real;
} meanwhile;

static CUresult make_frame_meanwhile(size_t *free_bytes, size_t *total_bytes)
{
    const CUresult result = meanwhile.real->cuMemGetInfo(free_bytes, total_bytes);
    const gvmi_frame_spec made = spec(2, GVM_TIER_DEVICE);

    if (meanwhile.once) {
        meanwhile.once = false;
        if (gvmi_frames_make(meanwhile.w->frames, &made) != GVM_OK)
            return CUDA_ERROR_UNKNOWN;
    }
    return result;
}

static CUresult query_meanwhile(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct pollfd ring = {.fd = gvmi_done_fd(meanwhile.w->done), .events = POLLIN};

    if (meanwhile.once) {
        meanwhile.once = false;
        gvmi_mover_query(meanwhile.w->mover, 0);
        (void)poll(&ring, 1, 200); /* it is to wait for this call; how long it is let do so does not matter */
    }
    return meanwhile.real->cuMemCreate(handle, bytes, prop, flags);
}

static bool query_fits(fixture *w, uint64_t frame_bytes)
{
    struct pollfd ring = {.fd = gvmi_done_fd(w->done), .events = POLLIN};
    gvmi_job *job = poll(&ring, 1, TIMEOUT_MS) == 1 ? gvmi_done_take(w->done) : NULL;
    const bool fits = job != NULL && job->status == GVM_OK && job->memory.frame_bytes == frame_bytes &&
                      job->memory.free_bytes == w->free_bytes - frame_bytes;

    if (job != NULL)
        gvmi_done_release(job);
    return fits;
}

static int ask_memory_that_changes(void *arg)
{
    const gvmi_frame_spec first = spec(1, GVM_TIER_DEVICE), third = spec(3, GVM_TIER_DEVICE);
    fixture w;

    (void)arg;
    if (start_without_mover(&w, INT32_MAX) != 0)
        return 1;
    meanwhile.w = &w;
    meanwhile.real = gvmi_cu;
    meanwhile.altered = *gvmi_cu;
    meanwhile.altered.cuMemGetInfo = make_frame_meanwhile;
    meanwhile.altered.cuMemCreate = query_meanwhile;
    gvmi_cu = &meanwhile.altered; /* before the mover has threads that read it */
    CHILD_EXPECT(gvmi_mover_start(w.device, 0, w.frames, w.done, &w.mover) == GVM_OK);
    CHILD_EXPECT(gvmi_frames_make(w.frames, &first) == GVM_OK);
    meanwhile.once = true;
    gvmi_mover_query(w.mover, 0);
    CHILD_EXPECT(query_fits(&w, 2 * FRAME));
    meanwhile.altered.cuMemGetInfo = meanwhile.real->cuMemGetInfo;
    meanwhile.once = true;
    CHILD_EXPECT(gvmi_frames_make(w.frames, &third) == GVM_OK);
    CHILD_EXPECT(query_fits(&w, 3 * FRAME));
    return stop(&w);
}

CHILD_TEST(memory_asked_for_fits_what_is_made_meanwhile, ask_memory_that_changes)

/* A client may hold it: then it is counted as held, and nowhere else. */
static int ask_memory_after_a_drop(void *arg)
{
    const gvmi_frame_spec made[] = {spec(1, GVM_TIER_DEVICE), spec(2, GVM_TIER_DEVICE)};
    fixture w;

    (void)arg;
    if (start(&w, INT32_MAX) != 0)
        return 1;
    for (unsigned i = 0; i < 2; i++)
        CHILD_EXPECT(gvmi_frames_make(w.frames, &made[i]) == GVM_OK);
    CHILD_EXPECT(gvmi_frames_drop(w.frames, 1));
    gvmi_mover_query(w.mover, 0);
    CHILD_EXPECT(query_fits(&w, FRAME));
    return stop(&w);
}

CHILD_TEST(memory_asked_for_has_no_frames_that_were_dropped, ask_memory_after_a_drop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_made_is_shared_memory_until_dropped),
        cmocka_unit_test(frame_without_memory_left_is_refused),
        cmocka_unit_test(frame_without_fds_left_is_refused),
        cmocka_unit_test(chunks_moved_there_and_back_are_the_same),
        cmocka_unit_test(job_that_fails_leaves_nothing_behind),
        cmocka_unit_test(frames_dropped_and_made_at_once_fit),
        cmocka_unit_test(memory_asked_for_is_reported_once),
        cmocka_unit_test(memory_asked_for_fits_what_is_made_meanwhile),
        cmocka_unit_test(memory_asked_for_has_no_frames_that_were_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
