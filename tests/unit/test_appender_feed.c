/* appender/feed.c: what is committed before a kernel runs and while it does; drivers that are poor,
 * slow, or stuck; kernels that are launched again. The test is the kernel (appender_fixture.h).
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/lib/fixture.h"
#include "tests/unit/appender_fixture.h"

/* ---- the driver: poor, and slow */

static atomic_int creates_left, accesses; /* before the driver is poor; set-access calls seen */
static atomic_bool narrow;                /* set access fails for more than one chunk */

static CUresult create_some(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (atomic_fetch_sub(&creates_left, 1) <= 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static CUresult set_access_narrow(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                                  size_t count)
{
    atomic_fetch_add(&accesses, 1);
    if (atomic_load(&narrow) && bytes > CHUNK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return real->cuMemSetAccess(address, bytes, desc, count);
}

static int be_poor(void *arg)
{
    gvm_append_place place;
    uint64_t rows = 0;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    atomic_store(&creates_left, 5);
    table.cuMemCreate = create_some;
    CHILD_EXPECT(begin() == GVM_OK);
    while (write_place(16, 16, 1, &place) == GVM_APPEND_OK)
        rows += 16;
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_NOSPACE);
    CHILD_EXPECT(result.rows == rows && rows > 0);
    CHILD_EXPECT(info().front_bytes + info().back_bytes <= 5 * CHUNK);
    CHILD_EXPECT(gvmi_appender_check(appender));
    atomic_store(&creates_left, 1000); /* rich again: rows go on behind those that are there */
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(3 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK && place.row == rows);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_narrow(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    atomic_store(&narrow, true);
    table.cuMemSetAccess = set_access_narrow;
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(16 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* Steps double: far fewer calls than chunks. */
static int be_steps(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start_on("4GiB", ROW, 1024 * CHUNK, NULL));
    table.cuMemSetAccess = set_access_narrow;
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(64 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.commits <= 9);
    CHILD_EXPECT(atomic_load(&accesses) <= 9);
    CHILD_EXPECT(stop());
    return 0;
}

/* None of more than what is given, though without it they would be larger. */
static int be_small_steps(void *arg)
{
    const gvm_appender_options options = {.step_bytes = 2 * CHUNK};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start_on("4GiB", ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(64 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.commits >= 32);
    CHILD_EXPECT(stop());
    return 0;
}

static bool is_acked(void)
{
    const gvm_append_mail *mail = (const gvm_append_mail *)(uintptr_t)append.mail;
    const uint64_t asked = __atomic_load_n(&mail->asked, __ATOMIC_ACQUIRE);

    return asked != 0 && __atomic_load_n(&mail->acked, __ATOMIC_ACQUIRE) == asked;
}

/* The driver refuses what is asked ahead, once; then there is memory again: what is asked later is committed before
 * it is needed. */
static int be_poor_for_a_moment(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    atomic_store(&creates_left, 0);
    table.cuMemCreate = create_some;
    CHILD_EXPECT(write_place(CHUNK / 8 / ROW + 1, 0, 1, &place) == GVM_APPEND_OK);
    /* What was asked is answered, with nothing. */
    for (int waited = 0; !is_acked() && waited < 10000; waited++)
        pause_ms(1);
    CHILD_EXPECT(atomic_load(&creates_left) < 0 && info().front_bytes == CHUNK);
    atomic_store(&creates_left, 1000);
    while (place.row < 4 * CHUNK / ROW)
        CHILD_EXPECT(write_place(CHUNK / 16 / ROW, 0, 1, &place) == GVM_APPEND_OK);
    for (int waited = 0; info().front_bytes <= 5 * CHUNK && waited < 10000; waited++)
        pause_ms(1);
    CHILD_EXPECT(info().front_bytes > 5 * CHUNK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* A door before which the library's thread waits while it is shut, but not with a begin's first chunks. */
static atomic_bool door_shut;
static atomic_int at_door;
static pthread_t first_by;  /* who committed the first chunks */
static atomic_int first_ms; /* how long that takes, besides */

static CUresult create_behind_door(CUmemGenericAllocationHandle *handle, size_t bytes,
                                   const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (__atomic_load_n(&appender->feed.starting, __ATOMIC_RELAXED)) {
        first_by = pthread_self();
        for (int i = 0; i < atomic_load(&first_ms); i++)
            pause_ms(1);
        return real->cuMemCreate(handle, bytes, prop, flags);
    }
    atomic_fetch_add(&at_door, 1);
    while (atomic_load(&door_shut))
        pause_ms(1);
    return real->cuMemCreate(handle, bytes, prop, flags);
}

static void shut_door(void)
{
    atomic_store(&door_shut, true);
    table.cuMemCreate = create_behind_door;
}

static void *open_door(void *arg)
{
    (void)arg;
    pause_ms(300);
    atomic_store(&door_shut, false);
    return NULL;
}

/* The library's thread does not answer: the kernel gives up, then everything works again. */
static int be_slow(void *arg)
{
    const gvm_appender_options options = {.wait_ms = 50};
    gvm_append_place place;
    gvm_append_words *words;
    const gvm_append_mail *mail;
    pthread_t opener;
    gvm_error error;
    uint64_t ready;
    uint64_t since_ms;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK);
    shut_door();
    CHILD_EXPECT(begin() == GVM_OK);
    since_ms = now_ms();
    CHILD_EXPECT(write_place(100 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_LATE);
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_LATE);
    CHILD_EXPECT(now_ms() - since_ms >= 49 && now_ms() - since_ms < 8000); /* the default is 10 s */
    CHILD_EXPECT(pthread_create(&opener, NULL, open_door, NULL) == 0);
    /* An answer that comes too late does not make ready rise again. */
    words = (gvm_append_words *)(uintptr_t)append.words;
    mail = (const gvm_append_mail *)(uintptr_t)append.mail;
    ready = words->ready;
    while (__atomic_load_n(&mail->ready, __ATOMIC_ACQUIRE) == ready)
        sched_yield();
    gvm_append_exchange(&append, words, 0);
    CHILD_EXPECT(words->ready == ready && words->state == GVM_APPEND_STATE_LATE);
    result.rows = 77;
    CHILD_EXPECT(finish() == GVM_E_TIMEOUT && result.rows == 77);
    pthread_join(opener, NULL);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && error.status == GVM_E_TIMEOUT);
    CHILD_EXPECT(info().rows == CHUNK / ROW && !info().begun);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(50 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK &&
                 place.row == CHUNK / ROW);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* The answer comes just when the kernel gives up: nothing has failed, and nothing is late. */
static int be_just_in_time(void *arg)
{
    const gvm_appender_options options = {.ahead_bytes = GVM_BYTES_NONE};
    gvm_append_place place;
    gvm_append_words *words;
    const gvm_append_mail *mail;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    words = (gvm_append_words *)(uintptr_t)append.words;
    mail = (const gvm_append_mail *)(uintptr_t)append.mail;
    words->need = gvm_append_position(2 * CHUNK / ROW, 0); /* as a thread does that waits */
    gvm_append_exchange(&append, words, 0);
    while (__atomic_load_n(&mail->ready, __ATOMIC_ACQUIRE) == words->ready)
        sched_yield();
    gvm_append_exchange(&append, words, 1);
    CHILD_EXPECT(words->state == GVM_APPEND_STATE_OPEN);
    CHILD_EXPECT(write_place(10 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    gvm_append_exchange(&append, words, 1);
    gvm_append_exchange(&append, words, 1);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* Nothing is committed before it is needed; be_small sees that without the option more is. */
static int be_needed_alone(void *arg)
{
    const gvm_appender_options options = {.ahead_bytes = GVM_BYTES_NONE};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK && append.ahead_rows_max <= 1 && append.ahead_units_max <= 1);
    CHILD_EXPECT(write_place(CHUNK / ROW, CHUNK / 2, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.commits == 2);
    CHILD_EXPECT(info().front_bytes == CHUNK && info().back_bytes == CHUNK);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_destroyed_while_served(void *arg)
{
    gvm_append_place place;
    pthread_t opener;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    shut_door();
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(CHUNK / 2 / ROW, 0, 1, &place) == GVM_APPEND_OK);
    while (atomic_load(&at_door) == 0) /* what comes after the first chunks is stuck */
        sched_yield();
    CHILD_EXPECT(pthread_create(&opener, NULL, open_door, NULL) == 0);
    gvm_appender_destroy(appender);
    pthread_join(opener, NULL);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_APPENDER) == 0);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_BUFFER) == 0);
    gvm_device_close(device);
    gvmi_driver_install(real);
    CHILD_EXPECT(gvmi_check_held().handles == 0 && gvmi_check_held().host_allocations == 0);
    return 0;
}

/* A kernel on a thread of its own. */
static void *write_rows(void *answer)
{
    gvm_append_place place;

    *(uint32_t *)answer = write_place(4 * CHUNK / ROW, 0, 1, &place);
    return NULL;
}

static atomic_int locked; /* 1: the buffer is, 2: it is to be unlocked */

/* Has a buffer locked until the test lets it go on, or 5 s: kernels wait for 10. */
static void *lock_buffer(void *arg)
{
    gvm_buffer *buffer = arg;
    bool asked;

    gvmi_lock(&buffer->lock);
    atomic_store(&locked, 1);
    for (int waited = 0; atomic_load(&locked) != 2 && waited < 5000; waited++)
        pause_ms(1);
    asked = atomic_load(&locked) == 2;
    gvmi_unlock(&buffer->lock);
    return asked ? NULL : arg;
}

/* Another thread has the buffer of one appender locked: the kernels of others get their memory, and begin,
 * meanwhile. */
static int be_locked_out(void *arg)
{
    const gvm_appender_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    const gvm_append_mail *mail;
    gvm_append other = {.struct_size = sizeof other};
    uint32_t answer = 99;
    gvm_append_place place;
    gvm_appender *another;
    pthread_t kernel, locker;
    void *too_long;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL) && begin() == GVM_OK);
    CHILD_EXPECT(gvm_appender_create(device, ROW, 1024 * CHUNK, &options, &another) == GVM_OK);
    CHILD_EXPECT(pthread_create(&locker, NULL, lock_buffer, gvm_appender_buffer(appender)) == 0);
    while (atomic_load(&locked) == 0)
        sched_yield();
    CHILD_EXPECT(pthread_create(&kernel, NULL, write_rows, &answer) == 0);
    mail = (const gvm_append_mail *)(uintptr_t)append.mail;
    while (__atomic_load_n(&mail->need, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    for (int i = 0; i < 8; i++) { /* each is a round of the library's thread at least */
        CHILD_EXPECT(gvm_appender_begin(another, &other) == GVM_OK);
        CHILD_EXPECT(gvm_append_claim(&other, 2 * CHUNK / ROW, 0, 1, &place) == GVM_APPEND_OK);
        gvm_append_publish(&other, place.amount);
        CHILD_EXPECT(gvm_appender_finish(another, NULL, NULL) == GVM_OK);
    }
    atomic_store(&locked, 2);
    pthread_join(locker, &too_long);
    pthread_join(kernel, NULL);
    CHILD_EXPECT(too_long == NULL);
    CHILD_EXPECT(answer == GVM_APPEND_OK && finish() == GVM_OK && result.complete == 1);
    gvm_appender_destroy(another);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- the first chunks */

/* Both ends can be written although the library's thread commits nothing more; and it was that thread that
 * committed the first, since the next one is quick then. */
static int be_first(void *arg)
{
    gvm_append_place place;
    pthread_t opener;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    shut_door();
    atomic_store(&first_ms, 10); /* the driver is slow */
    CHILD_EXPECT(begin() == GVM_OK && !pthread_equal(first_by, pthread_self()));
    CHILD_EXPECT(info().front_bytes == CHUNK && info().back_bytes == CHUNK);
    CHILD_EXPECT(write_place(CHUNK / ROW, CHUNK, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(pthread_create(&opener, NULL, open_door, NULL) == 0);
    CHILD_EXPECT(write_place(1, 1, 1, &place) == GVM_APPEND_OK);
    pthread_join(opener, NULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == CHUNK / ROW + 1);
    CHILD_EXPECT(result.commits >= 4 && result.first_us > 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* What ends in an eighth of the first chunks has those and no more; one row on, the next is asked for. */
static int be_small(void *arg)
{
    const uint64_t rows = CHUNK / 8 / ROW;
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(rows - 1, CHUNK / 8, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.commits == 2);
    CHILD_EXPECT(info().front_bytes == CHUNK && info().back_bytes == CHUNK);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(2, 0, 1, &place) == GVM_APPEND_OK);
    while (info().front_bytes == CHUNK)
        sched_yield();
    CHILD_EXPECT(finish() == GVM_OK && result.rows == rows + 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* An end that cannot be written gets nothing, and another that can be is not limited by it. */
static int be_one_end(void *arg)
{
    const gvm_appender_options rows_only = {.flags = GVM_APPENDER_ROWS_ONLY,
                                            .budget_bytes = 16 * CHUNK};
    const gvm_appender_options bytes_only = {
        .struct_size = sizeof bytes_only, .chunk_bytes = CHUNK, .budget_bytes = CHUNK};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &rows_only));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 1, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim_warp(&append, 1, 1, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(write_place(16 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && info().back_bytes == 0);
    gvm_appender_destroy(appender);
    CHILD_EXPECT(gvm_appender_create(device, 0, 1024 * CHUNK, &bytes_only, &appender) == GVM_OK);
    CHILD_EXPECT(begin() == GVM_OK && info().front_bytes == 0 && info().back_bytes == CHUNK);
    CHILD_EXPECT(write_place(100, CHUNK, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.data_bytes == CHUNK);
    CHILD_EXPECT(stop());
    return 0;
}

/* The last chunk of a budget goes to the end that needs it. */
static int be_last_chunk(void *arg)
{
    const gvm_appender_options options = {.budget_bytes = CHUNK};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    for (int at_back = 0; at_back < 2; at_back++) {
        gvm_buffer *buffer;

        CHILD_EXPECT(begin() == GVM_OK && info().front_bytes + info().back_bytes == 0);
        CHILD_EXPECT(write_place(at_back ? 0 : CHUNK / ROW, at_back ? CHUNK : 0, 1, &place) ==
                     GVM_APPEND_OK);
        CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
        CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_LIMIT);
        CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
        gvm_buffer_destroy(buffer);
    }
    CHILD_EXPECT(stop());
    return 0;
}

/* No memory for a first chunk: begin succeeds, the first claim tries again. */
static int be_first_not_had(void *arg)
{
    gvm_append_place place;
    gvm_error error;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(gvm_appender_set_budget(appender, 1) == GVM_E_INVALID); /* the thread's last error */
    atomic_store(&creates_left, 0);
    table.cuMemCreate = create_some;
    CHILD_EXPECT(begin() == GVM_OK && info().front_bytes + info().back_bytes == 0);
    CHILD_EXPECT(gvm_error_last(&error) == GVM_OK && error.status == GVM_E_INVALID);
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(write_place(0, 1, 0, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_NOSPACE);
    CHILD_EXPECT(result.rows == 0 && result.data_bytes == 0 && result.commits == 0);
    CHILD_EXPECT(gvmi_appender_check(appender));
    CHILD_EXPECT(begin() == GVM_OK); /* a kernel that claims nothing needs nothing */
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.reason == GVM_OK);
    CHILD_EXPECT(begin() == GVM_OK);
    atomic_store(&creates_left, 1000);
    CHILD_EXPECT(write_place(1, 1, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == 1);
    CHILD_EXPECT(stop());
    return 0;
}

static atomic_bool copies_fail;

static CUresult copy_or_not(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return atomic_load(&copies_fail) ? CUDA_ERROR_OUT_OF_MEMORY
                                     : real->cuMemcpyHtoDAsync(to, from, bytes, stream);
}

/* A begin that fails keeps nothing of what it has committed, and all that was there. */
static int be_failed_begin(void *arg)
{
    gvm_append_place place;
    uint64_t held;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    table.cuMemcpyHtoDAsync = copy_or_not;
    atomic_store(&copies_fail, true);
    CHILD_EXPECT(begin() == GVM_E_NOSPACE && !info().begun);
    CHILD_EXPECT(info().front_bytes == 0 && info().back_bytes == 0);
    CHILD_EXPECT(gvmi_appender_check(appender));
    atomic_store(&copies_fail, false);
    CHILD_EXPECT(begin() == GVM_OK && write_place(1, 1, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && gvm_appender_reset(appender) == GVM_OK);
    held = info().front_bytes + info().back_bytes;
    atomic_store(&copies_fail, true);
    CHILD_EXPECT(begin() == GVM_E_NOSPACE && info().front_bytes + info().back_bytes == held);
    atomic_store(&copies_fail, false);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- a kernel that is launched again gets on */

#define WAITERS 8
#define ITEM_ROWS (CHUNK / ROW * 9 / 10)

static void *claim_item(void *granted)
{
    gvm_append_place place;

    if (write_place(ITEM_ROWS, 100, 1, &place) == GVM_APPEND_OK)
        atomic_fetch_add((atomic_int *)granted, 1);
    return NULL;
}

/* Together they need more chunks than the budget has, though not more bytes, before the first is
 * served: those who came first are. */
static int be_first_come(void *arg)
{
    const gvm_appender_options options = {.budget_bytes = WAITERS * CHUNK,
                                          .ahead_bytes = GVM_BYTES_NONE};
    pthread_t threads[WAITERS], opener;
    atomic_int granted = 0;
    gvm_append_words *words;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    shut_door();
    CHILD_EXPECT(begin() == GVM_OK);
    words = (gvm_append_words *)(uintptr_t)append.words;
    for (int i = 0; i < WAITERS; i++)
        CHILD_EXPECT(pthread_create(&threads[i], NULL, claim_item, &granted) == 0);
    while (gvm_append_rows_of(__atomic_load_n(&words->cursor, __ATOMIC_RELAXED)) < WAITERS * ITEM_ROWS)
        sched_yield();
    CHILD_EXPECT(pthread_create(&opener, NULL, open_door, NULL) == 0);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(opener, NULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_LIMIT);
    CHILD_EXPECT(atomic_load(&granted) == WAITERS - 1);
    CHILD_EXPECT(result.rows == (WAITERS - 1) * ITEM_ROWS);
    CHILD_EXPECT(stop());
    return 0;
}

/* What was committed ahead at one end keeps a large claim from the other once, not for ever. */
static int be_relaunched(void *arg)
{
    const gvm_appender_options options = {.budget_bytes = 4 * CHUNK};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    for (int round = 0; round < 2; round++) {
        CHILD_EXPECT(begin() == GVM_OK);
        CHILD_EXPECT(write_place(0, 7 * CHUNK / 2, 1, &place) == GVM_APPEND_FULL);
        CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.rows == 0);
        CHILD_EXPECT(info().front_bytes > 0);
        CHILD_EXPECT(begin() == GVM_OK && info().front_bytes == 0);
        CHILD_EXPECT(write_place(0, 7 * CHUNK / 2, 1, &place) == GVM_APPEND_OK);
        CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
        /* Its memory is kept, at the back; rows that want nearly all get on all the same. */
        CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK && begin() == GVM_OK);
        CHILD_EXPECT(write_place(3 * CHUNK / ROW, 1, 1, &place) == GVM_APPEND_FULL);
        CHILD_EXPECT(finish() == GVM_OK && begin() == GVM_OK);
        CHILD_EXPECT(write_place(3 * CHUNK / ROW, 1, 1, &place) == GVM_APPEND_OK);
        CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
        CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK);
        CHILD_EXPECT(gvmi_appender_check(appender));
    }
    /* What needs a chunk too many with no other there at all is the caller's error. */
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 7 * CHUNK / 2, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(write_place(7 * CHUNK / 2 / ROW, 1, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* Whatever the steps, every so often one of them is a turn to poll. */
static void turns_come_with_any_steps(void **state)
{
    static const struct {
        uint64_t rows, units;
    } steps[] = {{1, 0},    {0, 1},    {128, 0}, {0, 4096}, {1024, 4096}, {181, 0},
                 {51, 213}, {3791, 0}, {1, 1},   {64, 64},  {65536, 0},   {0, 1 << 20}};

    (void)state;
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        uint32_t rows = 0, units = 0, turns = 0, without = 0, longest = 0;

        for (int i = 0; i < 16000; i++) {
            rows += (uint32_t)steps[s].rows;
            units += (uint32_t)steps[s].units;
            without++;
            if (gvm_append_is_turn(gvm_append_position(rows, units))) {
                turns++;
                longest = without > longest ? without : longest;
                without = 0;
            }
        }
        assert_in_range(turns, 16000 / 20, 16000 / 13);
        assert_in_range(longest, 1, 400);
        assert_in_range(without, 0, 400);
    }
}

/* ---- */

CHILD_TEST(driver_out_of_memory_ends_it_and_more_resumes_it, be_poor)
CHILD_TEST(driver_that_refuses_once_ends_no_look_ahead, be_poor_for_a_moment)
CHILD_TEST(driver_that_refuses_large_steps_is_asked_for_small_ones, be_narrow)
CHILD_TEST(steps_grow, be_steps)
CHILD_TEST(steps_stay_within_the_bytes_given, be_small_steps)
CHILD_TEST(service_that_does_not_answer_is_an_error, be_slow)
CHILD_TEST(answer_just_in_time_is_not_late, be_just_in_time)
CHILD_TEST(ahead_of_none_commits_what_is_needed_alone, be_needed_alone)
CHILD_TEST(appender_destroyed_while_served_leaves_nothing, be_destroyed_while_served)
CHILD_TEST(buffer_locked_by_another_thread_stops_no_other_appender, be_locked_out)
CHILD_TEST(first_chunks_are_there_before_a_kernel_runs, be_first)
CHILD_TEST(end_that_is_not_written_gets_nothing, be_one_end)
CHILD_TEST(last_chunk_of_a_budget_goes_where_it_is_needed, be_last_chunk)
CHILD_TEST(small_result_has_no_more_than_its_first_chunks, be_small)
CHILD_TEST(first_chunk_that_cannot_be_had_is_tried_again, be_first_not_had)
CHILD_TEST(begin_that_fails_changes_nothing, be_failed_begin)
CHILD_TEST(claims_that_came_first_are_served_first, be_first_come)
CHILD_TEST(kernel_launched_again_gets_on, be_relaunched)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driver_out_of_memory_ends_it_and_more_resumes_it),
        cmocka_unit_test(driver_that_refuses_once_ends_no_look_ahead),
        cmocka_unit_test(driver_that_refuses_large_steps_is_asked_for_small_ones),
        cmocka_unit_test(steps_grow),
        cmocka_unit_test(steps_stay_within_the_bytes_given),
        cmocka_unit_test(service_that_does_not_answer_is_an_error),
        cmocka_unit_test(answer_just_in_time_is_not_late),
        cmocka_unit_test(ahead_of_none_commits_what_is_needed_alone),
        cmocka_unit_test(appender_destroyed_while_served_leaves_nothing),
        cmocka_unit_test(buffer_locked_by_another_thread_stops_no_other_appender),
        cmocka_unit_test(first_chunks_are_there_before_a_kernel_runs),
        cmocka_unit_test(small_result_has_no_more_than_its_first_chunks),
        cmocka_unit_test(end_that_is_not_written_gets_nothing),
        cmocka_unit_test(last_chunk_of_a_budget_goes_where_it_is_needed),
        cmocka_unit_test(first_chunk_that_cannot_be_had_is_tried_again),
        cmocka_unit_test(begin_that_fails_changes_nothing),
        cmocka_unit_test(claims_that_came_first_are_served_first),
        cmocka_unit_test(kernel_launched_again_gets_on),
        cmocka_unit_test(turns_come_with_any_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
