/* Copies that take long: what other calls do meanwhile, and what they leave alone. The driver's streams
 * are held by a wait for a word of the host, so a copy is over when the test says so; what must not
 * wait for it is given PATIENCE_MS, far more than any machine needs.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/lib/fixture.h"
#include "tests/unit/appender_fixture.h"

#define PATIENCE_MS 10000
#define LATER_MS 20 /* after which what has to wait must still be waiting */
#define CHUNKS 8u   /* of the buffer; the first COMMITTED are there */
#define COMMITTED 6u
#define BYTE 0x5au

static gvm_buffer *buffer, *other;
static uint8_t *host;   /* pageable, of a chunk: the driver waits before it returns */
static uint8_t *pinned; /* likewise, but the library waits */
static CUstream stream; /* the program's */
static uint32_t *gate;
static atomic_int submitted, unmaps, accesses; /* driver calls since the gate was shut */

/* ---- the driver, counted */

static CUresult copy_out_counted(void *dst, CUdeviceptr src, size_t bytes, CUstream on)
{
    atomic_fetch_add(&submitted, 1);
    return real->cuMemcpyDtoHAsync(dst, src, bytes, on);
}

static CUresult copy_in_counted(CUdeviceptr dst, const void *src, size_t bytes, CUstream on)
{
    atomic_fetch_add(&submitted, 1);
    return real->cuMemcpyHtoDAsync(dst, src, bytes, on);
}

static CUresult copy_counted(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream on)
{
    atomic_fetch_add(&submitted, 1);
    return real->cuMemcpyDtoDAsync(dst, src, bytes, on);
}

static CUresult set_counted(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream on)
{
    atomic_fetch_add(&submitted, 1);
    return real->cuMemsetD8Async(dst, value, bytes, on);
}

static CUresult unmap_counted(CUdeviceptr address, size_t bytes)
{
    atomic_fetch_add(&unmaps, 1);
    return real->cuMemUnmap(address, bytes);
}

static CUresult access_counted(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
                               size_t count)
{
    atomic_fetch_add(&accesses, 1);
    return real->cuMemSetAccess(address, bytes, desc, count);
}

static bool make_stream(void)
{
    void *word = NULL, *chunk = NULL;
    bool good = gvmi_device_enter(device) == GVM_OK;

    good = good && real->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           real->cuMemHostAlloc(&word, sizeof *gate, 0) == CUDA_SUCCESS &&
           real->cuMemHostAlloc(&chunk, CHUNK, 0) == CUDA_SUCCESS;
    gvmi_device_leave();
    gate = word;
    pinned = chunk;
    return good;
}

static bool make_buffer(gvm_buffer **out)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};

    return gvm_buffer_create(device, CHUNKS * CHUNK, &options, out) == GVM_OK &&
           gvm_buffer_commit(*out, 0, COMMITTED * CHUNK) == GVM_OK &&
           gvm_buffer_fill(*out, 0, COMMITTED * CHUNK, &(uint8_t){BYTE}, 1) == GVM_OK;
}

/* A device with an idle appender and two buffers. */
static bool start_copies(void)
{
    host = malloc(CHUNK);
    if (host == NULL || !start(ROW, 64 * CHUNK, NULL) || !make_stream() || !make_buffer(&buffer) ||
        !make_buffer(&other))
        return false;
    memset(host, 0, CHUNK);
    memset(pinned, BYTE, CHUNK);
    table.cuMemcpyDtoHAsync = copy_out_counted;
    table.cuMemcpyHtoDAsync = copy_in_counted;
    table.cuMemcpyDtoDAsync = copy_counted;
    table.cuMemsetD8Async = set_counted;
    table.cuMemUnmap = unmap_counted;
    table.cuMemSetAccess = access_counted;
    return true;
}

static bool stop_copies(void)
{
    bool good = gvmi_device_enter(device) == GVM_OK;

    good = good && real->cuStreamDestroy(stream) == CUDA_SUCCESS &&
           real->cuMemFreeHost(gate) == CUDA_SUCCESS && real->cuMemFreeHost(pinned) == CUDA_SUCCESS;
    gvmi_device_leave();
    gvm_buffer_destroy(buffer);
    gvm_buffer_destroy(other);
    free(host);
    return good && stop();
}

/* What comes to the stream from now on waits until the gate is opened. */
static bool shut_gate(CUstream on)
{
    bool good = gvmi_device_enter(device) == GVM_OK;

    __atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
    good = good && real->cuStreamWaitValue32(on, (CUdeviceptr)(uintptr_t)gate, 1,
                                             CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    gvmi_device_leave();
    atomic_store(&submitted, 0);
    atomic_store(&unmaps, 0);
    atomic_store(&accesses, 0);
    return good;
}

static void open_gate(void)
{
    __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
}

/* ---- calls by other threads */

typedef gvm_status (*operation)(void);

typedef struct call {
    operation fn;
    pthread_t thread;
    atomic_bool returned;
    gvm_status status;
} call;

static void *run_call(void *arg)
{
    call *self = arg;

    self->status = self->fn();
    atomic_store(&self->returned, true);
    return NULL;
}

static bool start_call(call *c, operation fn)
{
    c->fn = fn;
    atomic_store(&c->returned, false);
    return pthread_create(&c->thread, NULL, run_call, c) == 0;
}

static gvm_status end_call(call *c)
{
    pthread_join(c->thread, NULL);
    return c->status;
}

/* Does a call come back while the gate is shut? If not, it is opened. */
static bool passes(operation fn)
{
    call c;
    bool passed;

    if (!start_call(&c, fn))
        return false;
    for (int waited = 0; !atomic_load(&c.returned) && waited < PATIENCE_MS; waited++)
        pause_ms(1);
    passed = atomic_load(&c.returned);
    if (!passed)
        open_gate();
    return end_call(&c) == GVM_OK && passed;
}

/* Starts a call that copies, and is in the driver when this returns. */
static bool start_copy(call *c, operation fn)
{
    if (!start_call(c, fn))
        return false;
    for (int waited = 0; atomic_load(&submitted) == 0 && waited < PATIENCE_MS; waited++)
        pause_ms(1);
    return atomic_load(&submitted) > 0;
}

/* 0 where the buffer's lock is not free. */
static uint32_t count_uses(void)
{
    const gvmi_use *use;
    uint32_t count = 0;

    if (!gvmi_try_lock(&buffer->lock))
        return 0;
    TAILQ_FOREACH(use, &buffer->uses, entry)
    count++;
    gvmi_unlock(&buffer->lock);
    return count;
}

/* Starts a call that has to wait for the one that copies, and does when this returns. */
static bool start_waiting(call *c, operation fn)
{
    if (!start_call(c, fn))
        return false;
    for (int waited = 0; count_uses() < 2 && waited < PATIENCE_MS; waited++)
        pause_ms(1);
    pause_ms(LATER_MS);
    return count_uses() == 2 && !atomic_load(&c->returned) && atomic_load(&unmaps) == 0 &&
           atomic_load(&accesses) == 0;
}

/* ---- what is copied: chunk 0 */

static gvm_status copy_out_on_stream(void)
{
    return gvm_buffer_copy_out_async(host, buffer, 0, CHUNK, stream);
}

static gvm_status copy_in(void)
{
    return gvm_buffer_copy_in(buffer, 0, host, CHUNK);
}

static gvm_status copy_out(void)
{
    return gvm_buffer_copy_out(host, buffer, 0, CHUNK);
}

static gvm_status copy_in_pinned(void)
{
    return gvm_buffer_copy_in(buffer, 0, pinned, CHUNK);
}

static gvm_status copy_out_pinned(void)
{
    return gvm_buffer_copy_out(pinned, buffer, 0, CHUNK);
}

static gvm_status copy_to_other(void)
{
    return gvm_buffer_copy(other, CHUNK, buffer, 0, CHUNK);
}

static gvm_status fill(void)
{
    return gvm_buffer_fill(buffer, 0, CHUNK, &(uint8_t){BYTE}, 1);
}

static gvm_status move_out(void)
{
    return gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST);
}

static gvm_status export_ipc(void)
{
    gvm_ipc *ipc;
    gvm_status status = gvm_ipc_export(buffer, 0, CHUNK, &ipc);

    if (status == GVM_OK)
        gvm_ipc_destroy(ipc);
    return status;
}

/* ---- what goes on elsewhere: chunks from 2 on, of which COMMITTED is not there */

static gvm_status commit_elsewhere(void)
{
    return gvm_buffer_commit(buffer, COMMITTED * CHUNK, CHUNK);
}

static gvm_status decommit_elsewhere(void)
{
    return gvm_buffer_decommit(buffer, COMMITTED * CHUNK, CHUNK);
}

static gvm_status commit_over_all(void)
{
    gvm_status status = gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK);

    return status != GVM_OK ? status : gvm_buffer_decommit(buffer, COMMITTED * CHUNK, 2 * CHUNK);
}

static gvm_status ask(void)
{
    gvm_buffer_info i = {.struct_size = sizeof i};
    gvm_status status = gvm_buffer_get_info(buffer, &i);

    return status == GVM_OK ? gvm_buffer_get_info(other, &i) : status;
}

/* Few bytes, there and back. */
static gvm_status copy_word_elsewhere(void)
{
    uint64_t word = 7, back = 0;
    gvm_status status = gvm_buffer_copy_in(buffer, 2 * CHUNK, &word, sizeof word);

    if (status == GVM_OK)
        status = gvm_buffer_copy_out(&back, buffer, 2 * CHUNK, sizeof back);
    return status == GVM_OK && back != word ? GVM_E_INVALID : status;
}

static gvm_status move_elsewhere(void)
{
    return gvm_buffer_move(buffer, 3 * CHUNK, CHUNK, GVM_TIER_HOST);
}

static gvm_status begin_and_finish(void)
{
    gvm_append_place place;
    gvm_status status = begin();

    if (status == GVM_OK && write_place(1, 0, 1, &place) != GVM_APPEND_OK)
        return GVM_E_TORN;
    return status == GVM_OK ? gvm_appender_finish(appender, stream, &result) : status;
}

/* A copy that the driver makes wait, for the work before it on the program's stream. */
static int be_behind_a_stream(void *arg)
{
    static const operation elsewhere[] = {commit_elsewhere,    decommit_elsewhere,
                                          commit_over_all,     ask,
                                          copy_word_elsewhere, move_elsewhere};
    call copier;

    (void)arg;
    CHILD_EXPECT(start_copies());
    CHILD_EXPECT(shut_gate(stream) && start_copy(&copier, copy_out_on_stream));
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        CHILD_EXPECT(passes(elsewhere[i]));
    CHILD_EXPECT(!atomic_load(&copier.returned));
    open_gate();
    CHILD_EXPECT(end_call(&copier) == GVM_OK && host[0] == BYTE && host[CHUNK - 1] == BYTE);
    CHILD_EXPECT(gvmi_buffer_check(buffer) && stop_copies());
    return 0;
}

/* Copies that the library waits for, on a stream of its own. */
static int be_on_own_stream(void *arg)
{
    static const operation copies[] = {copy_in, copy_out,      copy_in_pinned, copy_out_pinned,
                                       fill,    copy_to_other, export_ipc,     move_out};
    static const operation elsewhere[] = {commit_elsewhere,    decommit_elsewhere,
                                          commit_over_all,     ask,
                                          copy_word_elsewhere, begin_and_finish};
    call copier;

    (void)arg;
    CHILD_EXPECT(start_copies());
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        CHILD_EXPECT(shut_gate(device->stream) && start_copy(&copier, copies[i]));
        for (size_t j = 0; j < sizeof elsewhere / sizeof elsewhere[0]; j++)
            CHILD_EXPECT(passes(elsewhere[j]));
        CHILD_EXPECT(!atomic_load(&copier.returned));
        open_gate();
        CHILD_EXPECT(end_call(&copier) == GVM_OK && gvmi_buffer_check(buffer));
        memset(host, BYTE, CHUNK); /* for the next, and the end */
        CHILD_EXPECT(gvm_buffer_fill(buffer, 0, CHUNK, &(uint8_t){BYTE}, 1) == GVM_OK);
    }
    CHILD_EXPECT(stop_copies());
    return 0;
}

/* ---- what has to wait */

static gvm_status decommit_copied(void)
{
    return gvm_buffer_decommit(buffer, 0, 2 * CHUNK);
}

static gvm_status move_copied(void)
{
    return gvm_buffer_move(buffer, 0, 2 * CHUNK, GVM_TIER_HOST);
}

static gvm_status seal(void)
{
    return gvm_buffer_seal(buffer);
}

static gvm_status copy_out_word(void)
{
    uint8_t byte;

    return gvm_buffer_copy_out(&byte, buffer, CHUNK, sizeof byte);
}

/* Memory and rights are not taken from a copy; and a copy that comes later, of memory that is just being
 * waited for, does not hold that up. */
static int be_waited_for(void *waits)
{
    static const struct {
        operation fn;
        gvm_status later; /* of a copy of chunk 1, which the call has, too */
    } takers[] = {{move_copied, GVM_OK}, {decommit_copied, GVM_E_ABSENT}, {seal, GVM_OK}};
    gvm_buffer_info about = {.struct_size = sizeof about};
    call copier, taker, later;

    CHILD_EXPECT(start_copies());
    for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++) {
        CHILD_EXPECT(shut_gate(waits != NULL ? device->stream : stream));
        CHILD_EXPECT(start_copy(&copier, waits != NULL ? copy_out : copy_out_on_stream));
        CHILD_EXPECT(start_waiting(&taker, takers[i].fn));
        CHILD_EXPECT(start_call(&later, copy_out_word));
        CHILD_EXPECT(passes(ask));
        CHILD_EXPECT(!atomic_load(&copier.returned));
        open_gate();
        CHILD_EXPECT(end_call(&copier) == GVM_OK && end_call(&taker) == GVM_OK);
        CHILD_EXPECT(end_call(&later) == takers[i].later && gvmi_buffer_check(buffer));
        CHILD_EXPECT(gvm_buffer_get_info(buffer, &about) == GVM_OK);
        CHILD_EXPECT(about.sealed || gvm_buffer_commit(buffer, 0, 2 * CHUNK) == GVM_OK);
    }
    CHILD_EXPECT(stop_copies());
    return 0;
}

/* The end of a buffer waits for the copy, too, and the copy is whole. */
static gvm_status destroy(void)
{
    gvm_buffer_destroy(buffer);
    return GVM_OK;
}

static int be_destroyed(void *arg)
{
    call copier, destroyer;

    (void)arg;
    CHILD_EXPECT(start_copies());
    CHILD_EXPECT(shut_gate(stream) && start_copy(&copier, copy_out_on_stream));
    CHILD_EXPECT(start_call(&destroyer, destroy));
    while (gvm_buffer_address(buffer) != NULL) /* until others know it no more */
        pause_ms(1);
    pause_ms(LATER_MS);
    CHILD_EXPECT(!atomic_load(&destroyer.returned) && atomic_load(&unmaps) == 0);
    open_gate();
    CHILD_EXPECT(end_call(&copier) == GVM_OK && end_call(&destroyer) == GVM_OK);
    CHILD_EXPECT(host[0] == BYTE && host[CHUNK - 1] == BYTE && atomic_load(&unmaps) > 0);
    CHILD_EXPECT(stop_copies());
    return 0;
}

/* A chunk that is being moved is copied when it has moved. */
static int be_moved(void *arg)
{
    call mover, copier;

    (void)arg;
    CHILD_EXPECT(start_copies());
    CHILD_EXPECT(shut_gate(device->stream) && start_copy(&mover, move_out));
    CHILD_EXPECT(start_call(&copier, copy_out_on_stream));
    CHILD_EXPECT(passes(commit_elsewhere));
    CHILD_EXPECT(atomic_load(&submitted) == 1 && !atomic_load(&copier.returned));
    open_gate();
    CHILD_EXPECT(end_call(&mover) == GVM_OK && end_call(&copier) == GVM_OK);
    CHILD_EXPECT(host[0] == BYTE && host[CHUNK - 1] == BYTE && stop_copies());
    return 0;
}

/* ---- vectors */

static gvm_vector *vector;

static gvm_status append_to_vector(void)
{
    return gvm_vector_append(vector, host, CHUNK);
}

static gvm_status ask_vector(void)
{
    return gvm_vector_count(vector) == 0 && gvm_vector_capacity(vector) >= CHUNK &&
                   gvm_vector_address(vector) != NULL && gvm_vector_buffer(vector) != NULL
               ? GVM_OK
               : GVM_E_INVALID;
}

static int be_vector(void *arg)
{
    call appending;

    (void)arg;
    CHILD_EXPECT(start_copies() && gvm_vector_create(device, 1, 8 * CHUNK, NULL, &vector) == GVM_OK);
    CHILD_EXPECT(shut_gate(device->stream) && start_copy(&appending, append_to_vector));
    CHILD_EXPECT(passes(ask_vector) && !atomic_load(&appending.returned));
    open_gate();
    CHILD_EXPECT(end_call(&appending) == GVM_OK && gvm_vector_count(vector) == CHUNK);
    gvm_vector_destroy(vector);
    CHILD_EXPECT(stop_copies());
    return 0;
}

/* ---- everything at once */

#define ROUNDS 30

static gvm_status copy_there(void)
{
    return gvm_buffer_copy(other, 0, buffer, 0, 2 * CHUNK);
}

static gvm_status copy_back(void)
{
    return gvm_buffer_copy(buffer, CHUNK, other, CHUNK, 2 * CHUNK);
}

static gvm_status renew(gvm_buffer *b)
{
    gvm_status status = gvm_buffer_decommit(b, CHUNK, CHUNK);

    return status == GVM_OK ? gvm_buffer_commit(b, CHUNK, CHUNK) : status;
}

static gvm_status renew_here(void)
{
    return renew(buffer);
}

static gvm_status renew_there(void)
{
    return renew(other);
}

static gvm_status move_to_and_fro(void)
{
    gvm_status status = gvm_buffer_move(other, 0, 3 * CHUNK, GVM_TIER_HOST);

    return status == GVM_OK ? gvm_buffer_move(other, 0, 3 * CHUNK, GVM_TIER_DEVICE) : status;
}

/* What is not there at the moment is no error of who copies. */
static void *repeat(void *arg)
{
    call *self = arg;

    self->status = GVM_OK;
    for (int i = 0; i < ROUNDS && self->status == GVM_OK; i++) {
        self->status = self->fn();
        if (self->status == GVM_E_ABSENT)
            self->status = GVM_OK;
    }
    return NULL;
}

/* Copies both ways between two buffers, whose chunks others take away and move: all come to an end. */
static int be_crossing(void *arg)
{
    static const operation operations[] = {copy_there,  copy_back,       renew_here,
                                           renew_there, move_to_and_fro, copy_out_word};
    call calls[sizeof operations / sizeof operations[0]];

    (void)arg;
    CHILD_EXPECT(start_copies());
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        calls[i].fn = operations[i];
        CHILD_EXPECT(pthread_create(&calls[i].thread, NULL, repeat, &calls[i]) == 0);
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        CHILD_EXPECT(end_call(&calls[i]) == GVM_OK);
    CHILD_EXPECT(count_uses() == 0 && gvmi_buffer_check(buffer) && gvmi_buffer_check(other));
    CHILD_EXPECT(stop_copies());
    return 0;
}

CHILD_TEST(copy_behind_a_stream_lets_other_chunks_be, be_behind_a_stream)
CHILD_TEST(copy_that_is_waited_for_lets_other_chunks_and_words_be, be_on_own_stream)
CHILD_TEST(copied_chunks_keep_memory_and_rights, be_waited_for)

static void chunks_of_a_copy_that_waits_keep_memory_and_rights(void **state)
{
    (void)state;
    assert_child_succeeds(be_waited_for, "waits");
}

CHILD_TEST(destroy_waits_for_the_copy, be_destroyed)
CHILD_TEST(copy_of_a_chunk_that_moves_waits_for_the_move, be_moved)
CHILD_TEST(vector_answers_while_it_is_appended_to, be_vector)
CHILD_TEST(crossing_copies_and_what_takes_their_chunks_end, be_crossing)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_behind_a_stream_lets_other_chunks_be),
        cmocka_unit_test(copy_that_is_waited_for_lets_other_chunks_and_words_be),
        cmocka_unit_test(copied_chunks_keep_memory_and_rights),
        cmocka_unit_test(chunks_of_a_copy_that_waits_keep_memory_and_rights),
        cmocka_unit_test(destroy_waits_for_the_copy),
        cmocka_unit_test(copy_of_a_chunk_that_moves_waits_for_the_move),
        cmocka_unit_test(vector_answers_while_it_is_appended_to),
        cmocka_unit_test(crossing_copies_and_what_takes_their_chunks_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
