/* sharing/export.c, import.c and update.c: memory in several processes, and shares that lie.
 *
 * The sockets and the wire have tests of their own (test_socket.c, test_descriptor.c). Each test
 * here runs in children, because a driver is started once a process and does not survive a fork.
 * What only a real driver answers is put into the table of its calls.
 */
#include "base/address.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <gvmem/heap.h>

#include "appender/appender.h"
#include "base/registry.h"
#include "sharing/share.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define CHUNK (2 * MIB)
#define CHUNKS 4
#define TIMEOUT_MS 20000 /* never reached */
#define NOT_OPEN 1000    /* an fd, too high for anything here to have it */

/* ---- buffers whose chunks hold one byte each */

static gvm_status make_buffer(gvm_device *device, gvm_buffer **out)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};

    return gvm_buffer_create(device, CHUNKS * CHUNK, &options, out);
}

/* Other memory than before, if there was some. */
static gvm_status renew(gvm_buffer *buffer, uint64_t chunk, uint8_t byte)
{
    gvm_status status = gvm_buffer_decommit(buffer, chunk * CHUNK, CHUNK);

    if (status == GVM_OK)
        status = gvm_buffer_commit(buffer, chunk * CHUNK, CHUNK);
    return status == GVM_OK ? gvm_buffer_fill(buffer, chunk * CHUNK, CHUNK, &byte, 1) : status;
}

/* The chunk's byte, -1 if its bytes differ, -2 if it is absent. */
static int byte_of(gvm_buffer *buffer, uint64_t chunk)
{
    static uint8_t bytes[CHUNK];

    if (gvm_buffer_copy_out(bytes, buffer, chunk * CHUNK, CHUNK) != GVM_OK)
        return -2;
    return memcmp(bytes, bytes + 1, CHUNK - 1) == 0 ? bytes[0] : -1;
}

static bool fails_with(gvm_status status, gvm_status wanted, const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    if (status == wanted && error.status == wanted && strstr(error.text, text) != NULL)
        return true;
    dprintf(STDERR_FILENO, "%s: %s\n", gvm_status_name(status), error.text);
    return false;
}

/* ---- three processes: the owner tells a, a tells b */

typedef struct line {
    int owner, a_up, a_down, b;
} line;

/* Tells the state {1, 2, -, -}, then {3, 2, 4, -}, and may be gone before anybody has looked. */
static int be_owner(void *arg)
{
    const line *ends = arg;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;

    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK);
    CHILD_EXPECT(renew(buffer, 0, 1) == GVM_OK && renew(buffer, 1, 2) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(gvm_share_send(share, ends->owner, TIMEOUT_MS) == GVM_OK);
    gvm_share_destroy(share);
    CHILD_EXPECT(renew(buffer, 0, 3) == GVM_OK && renew(buffer, 2, 4) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, 0, &share) == GVM_OK);
    CHILD_EXPECT(gvm_share_send(share, ends->owner, TIMEOUT_MS) == GVM_OK);
    return 0;
}

/* Passes on what it gets. It imports the second share alone, and waits for what b writes there. */
static int be_a(void *arg)
{
    const line *ends = arg;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *first, *second, *none = NULL;
    char word;

    CHILD_EXPECT(gvm_share_receive(ends->a_up, TIMEOUT_MS, &first) == GVM_OK);
    CHILD_EXPECT(gvm_share_send(first, ends->a_down, TIMEOUT_MS) == GVM_OK);
    gvm_share_destroy(first);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_share_receive(ends->a_up, TIMEOUT_MS, &second) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(device, second, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(fails_with(gvm_share_export(buffer, 0, 0, &none), GVM_E_IMPORTED, "sending the share"));
    CHILD_EXPECT(none == NULL);
    CHILD_EXPECT(gvm_share_send(second, ends->a_down, TIMEOUT_MS) == GVM_OK);
    gvm_share_destroy(second);
    CHILD_EXPECT(read(ends->a_down, &word, 1) == 1);
    CHILD_EXPECT(byte_of(buffer, 0) == 3 && byte_of(buffer, 1) == 9 && byte_of(buffer, 2) == 4);
    return 0;
}

static int be_b(void *arg)
{
    const line *ends = arg;
    gvm_import_options options = {.struct_size = sizeof options};
    const uint8_t nine = 9;
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *first, *second;

    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_share_receive(ends->b, TIMEOUT_MS, &first) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(device, first, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 2 && byte_of(buffer, 2) == -2);
    CHILD_EXPECT(gvm_share_receive(ends->b, TIMEOUT_MS, &second) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(buffer, second) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 3 && byte_of(buffer, 1) == 2 && byte_of(buffer, 2) == 4);
    CHILD_EXPECT(fails_with(gvm_buffer_update(buffer, first), GVM_E_INVALID, "older"));
    CHILD_EXPECT(gvm_buffer_update(buffer, second) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_fill(buffer, CHUNK, CHUNK, &nine, 1) == GVM_OK);
    CHILD_EXPECT(write(ends->b, "!", 1) == 1);
    return 0;
}

static void share_passed_on_by_an_importer_imports_and_updates(void **state)
{
    static int (*const actors[])(void *) = {be_owner, be_a, be_b};
    int up[2], down[2], status;
    pid_t pids[3];
    line ends;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, up), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, down), 0);
    ends = (line){.owner = up[0], .a_up = up[1], .a_down = down[0], .b = down[1]};
    for (int i = 0; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            end_child_after(2 * TIMEOUT_MS / 1000); /* read() has no time limit of its own */
            _exit(actors[i](&ends));
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < 2; i++) {
        close(up[i]);
        close(down[i]);
    }
}

/* ---- a thread that is cancelled */

typedef struct receiver {
    int socket;
    _Atomic bool begun;
    gvm_status status;
} receiver;

static void *receive_and_be_cancelled(void *arg)
{
    receiver *r = arg;
    gvm_share *share;

    atomic_store(&r->begun, true);
    r->status = gvm_share_receive(r->socket, 100, &share);
    pthread_testcancel();
    r->status = GVM_OK;
    return NULL;
}

static void receive_that_is_cancelled_ends_first(void **state)
{
    receiver r = {.status = GVM_OK};
    pthread_t thread;
    void *result;
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    r.socket = ends[0];
    assert_int_equal(pthread_create(&thread, NULL, receive_and_be_cancelled, &r), 0);
    while (!atomic_load(&r.begun))
        sched_yield();
    assert_int_equal(pthread_cancel(thread), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(r.status, GVM_E_TIMEOUT);
    close(ends[0]);
    close(ends[1]);
}

/* ---- shares that lie */

/* A buffer {1, 2, -, -} and a share of it. */
typedef struct fixture {
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;
} fixture;

static int begin(fixture *f)
{
    CHILD_EXPECT(gvm_device_open(0, &f->device) == GVM_OK);
    CHILD_EXPECT(make_buffer(f->device, &f->buffer) == GVM_OK);
    CHILD_EXPECT(renew(f->buffer, 0, 1) == GVM_OK && renew(f->buffer, 1, 2) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(f->buffer, 0, 0, &f->share) == GVM_OK);
    return 0;
}

/* The import fails so, and leaves nothing. */
static bool import_fails(const fixture *f, gvm_status wanted, const char *text)
{
    gvm_buffer *none = NULL;

    return fails_with(gvm_share_import(f->device, f->share, NULL, &none), wanted, text) &&
           none == NULL && gvmi_registry_count(GVMI_KIND_BUFFER) == 1;
}

static int import_wrong_fds(void *arg)
{
    fixture f;
    gvm_buffer *buffer;
    int wrong[4], pipe_ends[2], fd, good;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    CHILD_EXPECT(pipe(pipe_ends) == 0);
    wrong[0] = pipe_ends[0];
    wrong[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
    wrong[2] = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    wrong[3] = memfd_create("test", MFD_CLOEXEC);
    fd = f.share->fds[1];
    good = dup(fd);
    CHILD_EXPECT(good >= 0);
    for (int i = 0; i < 4; i++) {
        CHILD_EXPECT(dup2(wrong[i], fd) == fd);
        CHILD_EXPECT(import_fails(&f, GVM_E_FORMAT, "chunk 1 of 2, at offset 0x200000"));
    }
    f.share->fds[1] = NOT_OPEN;
    CHILD_EXPECT(import_fails(&f, GVM_E_FORMAT, "chunk 1 of 2"));
    f.share->fds[1] = fd;
    CHILD_EXPECT(dup2(good, fd) == fd);
    CHILD_EXPECT(gvm_share_import(f.device, f.share, NULL, &buffer) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 1) == 2);
    return 0;
}

CHILD_TEST(import_of_fds_that_are_no_memory_is_malformed, import_wrong_fds)

static int import_wrong_size(void *arg)
{
    fixture f;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    f.share->chunks[1].offset_bytes = 2 * CHUNK;
    f.share->about.chunk_bytes = 2 * CHUNK;
    CHILD_EXPECT(import_fails(&f, GVM_E_FORMAT, "not of the 4194304 bytes"));
    return 0;
}

CHILD_TEST(import_of_chunks_of_another_size_is_malformed, import_wrong_size)

static int import_wrong_tier(void *arg)
{
    fixture f;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    f.share->chunks[1].tier = GVM_TIER_HOST;
    CHILD_EXPECT(import_fails(&f, GVM_E_FORMAT, "chunk at offset 0x200000"));
    return 0;
}

CHILD_TEST(import_of_chunks_of_another_tier_is_malformed, import_wrong_tier)

/* ---- what drivers answer */

static const gvmi_driver *real;
static gvmi_driver altered;
static CUresult answer;
static int calls_before; /* so many calls pass */

static CUresult import_answers(CUmemGenericAllocationHandle *handle, void *os_handle,
                               CUmemAllocationHandleType type)
{
    return calls_before-- > 0 ? real->cuMemImportFromShareableHandle(handle, os_handle, type) : answer;
}

static CUresult map_answers(CUdeviceptr ptr, size_t size, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return calls_before-- > 0 ? real->cuMemMap(ptr, size, offset, handle, flags) : answer;
}

static void alter(CUresult result, int pass)
{
    answer = result;
    calls_before = pass;
    gvmi_cu = &altered;
}

static int import_answered(void *arg)
{
    static const struct {
        CUresult answer;
        gvm_status status;
        const char *text;
    } imports[] =
        {
            {CUDA_ERROR_UNKNOWN, GVM_E_FORMAT, "chunk 1 of 2"},
            {CUDA_ERROR_INVALID_VALUE, GVM_E_FORMAT, "chunk 1 of 2"},
            {CUDA_ERROR_INVALID_HANDLE, GVM_E_FORMAT, "chunk 1 of 2"},
            {CUDA_ERROR_INVALID_DEVICE, GVM_E_FORMAT, "chunk 1 of 2"},
            {CUDA_ERROR_OPERATING_SYSTEM, GVM_E_FORMAT, "chunk 1 of 2"},
            {CUDA_ERROR_OUT_OF_MEMORY, GVM_E_LIMIT, "larger chunks"},
            {CUDA_ERROR_ILLEGAL_ADDRESS, GVM_E_LOST, "chunk 1 of 2"},
        },
      maps[] = {
          {CUDA_ERROR_NOT_SUPPORTED, GVM_E_FORMAT, "offset 0x200000"},
          {CUDA_ERROR_INVALID_VALUE, GVM_E_FORMAT, "offset 0x200000"},
          {CUDA_ERROR_OUT_OF_MEMORY, GVM_E_LIMIT, "larger chunks"},
          {CUDA_ERROR_UNKNOWN, GVM_E_DRIVER, ""},
          {CUDA_ERROR_ILLEGAL_ADDRESS, GVM_E_LOST, ""},
      };
    fixture f;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    real = gvmi_cu;
    altered = *real;
    altered.cuMemImportFromShareableHandle = import_answers;
    for (size_t i = 0; i < sizeof imports / sizeof imports[0]; i++) {
        alter(imports[i].answer, 1);
        CHILD_EXPECT(import_fails(&f, imports[i].status, imports[i].text));
    }
    altered = *real;
    altered.cuMemMap = map_answers;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        alter(maps[i].answer, 1);
        CHILD_EXPECT(import_fails(&f, maps[i].status, maps[i].text));
    }
    return 0;
}

CHILD_TEST(import_tells_a_wrong_share_from_a_limit_and_a_broken_driver, import_answered)

/* The second of two new chunks is refused: the buffer shows the first state again. */
static int update_answered(void *arg)
{
    gvm_import_options options = {.struct_size = sizeof options, .reserve_bytes = CHUNKS * CHUNK};
    fixture f;
    gvm_buffer *buffer;
    gvm_share *later;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    CHILD_EXPECT(gvm_share_import(f.device, f.share, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(renew(f.buffer, 0, 3) == GVM_OK && renew(f.buffer, 2, 4) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, 0, &later) == GVM_OK);
    real = gvmi_cu;
    altered = *real;
    altered.cuMemMap = map_answers;
    alter(CUDA_ERROR_NOT_SUPPORTED, 1);
    CHILD_EXPECT(fails_with(gvm_buffer_update(buffer, later), GVM_E_FORMAT, "offset 0x400000"));
    gvmi_cu = real;
    CHILD_EXPECT(gvm_buffer_update(buffer, f.share) == GVM_OK); /* maps what could not be put back */
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 2 && byte_of(buffer, 2) == -2);
    CHILD_EXPECT(gvm_buffer_update(buffer, later) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 3 && byte_of(buffer, 1) == 2 && byte_of(buffer, 2) == 4);
    CHILD_EXPECT(gvmi_buffer_check(buffer));
    return 0;
}

CHILD_TEST(update_with_a_chunk_of_another_size_changes_nothing, update_answered)

/* ---- states */

/* A share of a part says nothing of the rest; one of the same generation takes nothing away. */
static int update_of_parts(void *arg)
{
    gvm_import_options options = {.struct_size = sizeof options, .reserve_bytes = CHUNKS * CHUNK};
    fixture f;
    gvm_buffer *buffer;
    gvm_share *part;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, CHUNK, &part) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(f.device, part, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == -2);
    CHILD_EXPECT(gvm_buffer_update(buffer, f.share) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(buffer, part) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 2);
    gvm_share_destroy(part);

    CHILD_EXPECT(gvm_buffer_decommit(f.buffer, CHUNK, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, CHUNK, &part) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(buffer, part) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 1) == 2); /* the share does not reach there */
    gvm_share_destroy(part);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, 0, &part) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_update(buffer, part) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == -2);
    return 0;
}

CHILD_TEST(update_speaks_of_the_span_alone, update_of_parts)

/* ---- patches */

static size_t free_bytes(void)
{
    size_t bytes = 0, total;

    return gvmi_cu->cuMemGetInfo(&bytes, &total) == CUDA_SUCCESS ? bytes : 0;
}

/* Between its two steps nothing is held any more of what the patch replaces. */
static int patch_in_two_steps(void *arg)
{
    fixture f;
    gvm_buffer *buffer;
    gvmi_patch patch;
    size_t before;

    (void)arg;
    CHILD_EXPECT(begin(&f) == 0);
    CHILD_EXPECT(gvm_share_import(f.device, f.share, NULL, &buffer) == GVM_OK);
    gvm_share_destroy(f.share);
    CHILD_EXPECT(renew(f.buffer, 1, 7) == GVM_OK); /* the importer alone has the old memory */
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, 0, &f.share) == GVM_OK);
    CHILD_EXPECT(gvmi_device_enter(f.device) == GVM_OK);
    before = free_bytes();
    CHILD_EXPECT(gvmi_share_patch(f.share, buffer, &patch) == GVM_OK);
    CHILD_EXPECT(free_bytes() == before + CHUNK);
    CHILD_EXPECT(patch.replaced && patch.first == 1 && patch.end == 2);
    CHILD_EXPECT((buffer->chunks[1].flags & GVMI_CHUNK_UNMAPPED) != 0);
    CHILD_EXPECT(gvmi_buffer_check(buffer));
    CHILD_EXPECT(gvmi_share_settle_patch(buffer, &patch, UINT64_MAX) == GVM_OK);
    CHILD_EXPECT((buffer->chunks[1].flags & GVMI_CHUNK_UNMAPPED) == 0);
    gvmi_device_leave();
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 7);
    CHILD_EXPECT(gvmi_share_patch(f.share, buffer, &patch) == GVM_OK && !patch.replaced);
    gvm_share_destroy(f.share);
    /* The second step in slices. */
    CHILD_EXPECT(renew(f.buffer, 0, 8) == GVM_OK && renew(f.buffer, 1, 9) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, 0, &f.share) == GVM_OK);
    CHILD_EXPECT(gvmi_share_patch(f.share, buffer, &patch) == GVM_OK);
    CHILD_EXPECT(gvmi_share_settle_patch(buffer, &patch, 1) == GVM_OK);
    CHILD_EXPECT(patch.first == 1 && patch.end == 2);
    CHILD_EXPECT((buffer->chunks[0].flags & GVMI_CHUNK_UNMAPPED) == 0 &&
                 (buffer->chunks[1].flags & GVMI_CHUNK_UNMAPPED) != 0);
    CHILD_EXPECT(gvmi_share_settle_patch(buffer, &patch, 1) == GVM_OK && patch.first == patch.end);
    CHILD_EXPECT(byte_of(buffer, 0) == 8 && byte_of(buffer, 1) == 9);
    return 0;
}

CHILD_TEST(patch_lets_go_of_what_it_replaces_before_it_maps, patch_in_two_steps)

/* CU_MEM_ACCESS_FLAGS_PROT_... of a chunk. */
static int access_of(const gvm_buffer *buffer, uint64_t chunk, int device)
{
    const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 0;

    (void)gvmi_cu->cuMemGetAccess(&flags, &where, buffer->address + chunk * CHUNK);
    return (int)flags;
}

#define NO_PEER 77 /* a child's exit status */

/* A seal that a patch brings leaves chunks writable, since kernels may be reading there, which a change
 * of their rights breaks on a real device. So does a grant that follows. */
static int grant_after_a_seal(void *arg)
{
    fixture f;
    gvm_device *peer;
    gvm_buffer *buffer;
    gvmi_patch patch;
    int32_t count;

    (void)arg;
    unsetenv("GVMEM_SOFTGPU");
    fixture_machine_default("devices=2,memory=64MiB,sms=1");
    CHILD_EXPECT(begin(&f) == 0);
    if (gvm_device_count(&count) == GVM_OK && count < 2)
        return NO_PEER;
    CHILD_EXPECT(gvm_device_open(1, &peer) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(f.device, f.share, NULL, &buffer) == GVM_OK);
    gvm_share_destroy(f.share);
    CHILD_EXPECT(renew(f.buffer, 1, 7) == GVM_OK && gvm_buffer_seal(f.buffer) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(f.buffer, 0, 0, &f.share) == GVM_OK);
    CHILD_EXPECT(gvmi_share_patch(f.share, buffer, &patch) == GVM_OK);
    /* One chunk is not in place yet: it comes read-only. */
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_READWRITE) == GVM_E_SEALED);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_READ) == GVM_OK);
    CHILD_EXPECT(access_of(buffer, 0, 0) == GVM_ACCESS_READWRITE);
    CHILD_EXPECT(access_of(buffer, 1, 0) == GVM_ACCESS_READ);
    CHILD_EXPECT(access_of(buffer, 0, 1) == GVM_ACCESS_READ &&
                 access_of(buffer, 1, 1) == GVM_ACCESS_READ);
    CHILD_EXPECT(gvm_buffer_grant(buffer, peer, GVM_ACCESS_NONE) == GVM_OK);
    CHILD_EXPECT(access_of(buffer, 0, 0) == GVM_ACCESS_READWRITE);
    CHILD_EXPECT(access_of(buffer, 0, 1) == GVM_ACCESS_NONE &&
                 access_of(buffer, 1, 1) == GVM_ACCESS_NONE);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 7 && gvmi_buffer_check(buffer));
    return 0;
}

static void grant_leaves_alone_what_a_patch_has_sealed(void **state)
{
    const int status = run_in_child(grant_after_a_seal, NULL, false);

    (void)state;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PEER)
        skip();
    assert_int_equal(status, 0);
}

/* ---- what was another buffer's is not shown */

/* Does an importer find a byte that is not 0 in the range? */
static bool shows_old_bytes(gvm_device *device, gvm_buffer *buffer, uint64_t chunks)
{
    gvm_buffer *imported = NULL;
    gvm_share *share = NULL;
    bool found = gvm_share_export(buffer, 0, chunks * CHUNK, &share) != GVM_OK ||
                 gvm_share_import(device, share, NULL, &imported) != GVM_OK;

    for (uint64_t i = 0; i < chunks && !found; i++)
        found = byte_of(imported, i) != 0;
    gvm_buffer_destroy(imported);
    gvm_share_destroy(share);
    return found;
}

/* A buffer whose chunks were written and freed in every way that the cache of free chunks is filled. */
static bool leave_bytes(gvm_device *device, uint32_t flags)
{
    const gvm_buffer_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .flags = flags};
    const uint8_t byte = 0xAB;
    gvm_buffer *buffer;
    bool done = gvm_buffer_create(device, CHUNKS * CHUNK, &options, &buffer) == GVM_OK &&
                gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK) == GVM_OK &&
                gvm_buffer_fill(buffer, 0, CHUNKS * CHUNK, &byte, 1) == GVM_OK &&
                gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST) == GVM_OK &&
                gvm_buffer_decommit(buffer, CHUNK, CHUNK) == GVM_OK;

    gvm_buffer_destroy(buffer);
    return done;
}

static int export_after_others(void *arg)
{
    gvm_device *device;
    gvm_buffer *buffer, *moved;
    const uint8_t byte = 0x5A;

    (void)arg;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(make_buffer(device, &moved) == GVM_OK && renew(moved, 0, 0xCD) == GVM_OK);
    CHILD_EXPECT(leave_bytes(device, 0) && leave_bytes(device, GVM_BUFFER_UNSHARED));
    CHILD_EXPECT(gvm_buffer_move(moved, 0, CHUNK, GVM_TIER_HOST) == GVM_OK); /* lets a chunk go */
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK) == GVM_OK);
    CHILD_EXPECT(!shows_old_bytes(device, buffer, CHUNKS));
    /* What the owner has written stays, and its own chunk is used again. */
    CHILD_EXPECT(gvm_buffer_fill(buffer, CHUNK, CHUNK, &byte, 1) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 0 && byte_of(buffer, 1) == byte && byte_of(moved, 0) == 0xCD);
    return 0;
}

CHILD_TEST(export_after_other_buffers_shows_zeros, export_after_others)

/* What an appender gives back that kernels have written, though it is not part of a result. */

#define ROW 64u

typedef enum launch { RESET, INCOMPLETE, TORN } launch;

/* Writes to all that the appender has, which it gives back then. On the software GPU, whose memory the processor reaches. */
static bool leave_appended_bytes(gvm_device *device, launch kind)
{
    const gvm_appender_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    const uint64_t chunks = kind == INCOMPLETE ? 40 : 1; /* the device has 32 */
    gvm_appender_info info = {.struct_size = sizeof info};
    gvm_append append = {.struct_size = sizeof append};
    gvm_append_place place = {0};
    gvm_buffer *taken = NULL;
    gvm_appender *appender;
    bool done = gvm_appender_create(device, ROW, 64 * CHUNK, &options, &appender) == GVM_OK &&
                gvm_appender_begin(appender, &append) == GVM_OK;

    done = done && gvm_append_claim(&append, chunks * CHUNK / ROW, 0, 0, &place) ==
                       (kind == INCOMPLETE ? GVM_APPEND_FULL : GVM_APPEND_OK);
    done = done && gvm_appender_get_info(appender, &info) == GVM_OK && info.front_bytes >= CHUNK;
    if (done) /* as a kernel would: asking for the buffer says that it is written to */
        memset((void *)(uintptr_t)append.address, 0x77, info.front_bytes);
    if (kind == RESET)
        gvm_append_publish(&append, place.amount);
    done = done && gvm_appender_finish(appender, NULL, NULL) == (kind == TORN ? GVM_E_TORN : GVM_OK);
    if (kind == RESET)
        done = done && gvm_appender_reset(appender) == GVM_OK;
    if (kind == TORN) /* as another thread would that is short of memory */
        done = done && appender->idle.calls->reclaim(&appender->idle, UINT64_MAX, true) > 0;
    else
        done = done && gvm_appender_take(appender, &taken) == GVM_OK;
    gvm_buffer_destroy(taken);
    gvm_appender_destroy(appender);
    return done;
}

static int export_after_appender(void *kind)
{
    gvm_device *device;
    gvm_buffer *buffer;

    fixture_machine("memory=64MiB,sms=1");
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(leave_appended_bytes(device, *(launch *)kind));
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK) == GVM_OK);
    CHILD_EXPECT(!shows_old_bytes(device, buffer, CHUNKS));
    return 0;
}

static void export_after_an_appender_shows_zeros(void **state)
{
    launch kinds[] = {RESET, INCOMPLETE, TORN};

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        assert_child_succeeds(export_after_appender, &kinds[i]);
}

static const gvmi_driver *real;

static CUresult attribute_without_fds(int *value, CUdevice_attribute attribute, CUdevice dev)
{
    if (attribute != CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
        return real->cuDeviceGetAttribute(value, attribute, dev);
    *value = 0;
    return CUDA_SUCCESS;
}

/* Where no chunk can be exported as it is, chunks go from buffers that are never exported to others (whose
 * bytes may be exported as a copy), unless they hold bytes. */
static int commit_after_unshared(void *arg)
{
    const gvm_appender_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .flags = GVM_BUFFER_UNSHARED};
    gvm_append append = {.struct_size = sizeof append};
    gvmi_driver table;
    gvm_device *device;
    gvm_buffer *buffer, *taken;
    gvm_appender *appender;
    int32_t count;

    (void)arg;
    CHILD_EXPECT(gvm_device_count(&count) == GVM_OK);
    real = gvmi_cu;
    table = *real;
    table.cuDeviceGetAttribute = attribute_without_fds;
    gvmi_driver_install(&table);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK && leave_bytes(device, GVM_BUFFER_UNSHARED));
    CHILD_EXPECT(gvm_appender_create(device, ROW, 64 * CHUNK, &options, &appender) == GVM_OK);
    CHILD_EXPECT(gvm_appender_begin(appender, &append) == GVM_OK); /* has some of these chunks */
    CHILD_EXPECT(gvm_appender_finish(appender, NULL, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_appender_take(appender, &taken) == GVM_OK); /* and has used none */
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNKS * CHUNK) == GVM_OK);
    for (uint64_t i = 0; i < CHUNKS; i++)
        CHILD_EXPECT(byte_of(buffer, i) == 0);
    gvm_buffer_destroy(taken);
    gvm_appender_destroy(appender);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    gvmi_driver_install(real);
    return 0;
}

CHILD_TEST(unused_chunk_of_an_unshared_appender_is_not_taken_for_zeros, commit_after_unshared)

/* Who has imported a chunk may write to it also after the owner has moved its bytes. */
static int move_exported(void *arg)
{
    gvm_device *device;
    gvm_buffer *buffer, *imported;
    gvm_share *share;
    const uint8_t byte = 0xEE;

    (void)arg;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK && renew(buffer, 0, 1) == GVM_OK);
    CHILD_EXPECT(gvm_share_export(buffer, 0, CHUNK, &share) == GVM_OK);
    CHILD_EXPECT(gvm_share_import(device, share, NULL, &imported) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, CHUNK, GVM_TIER_HOST) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, CHUNK, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_fill(imported, 0, CHUNK, &byte, 1) == GVM_OK);
    CHILD_EXPECT(byte_of(buffer, 0) == 1 && byte_of(buffer, 1) == 0);
    gvm_share_destroy(share);
    return 0;
}

CHILD_TEST(exported_chunk_that_has_moved_is_not_used_again, move_exported)

static int export_block_after_others(void *arg)
{
    gvm_device *device;
    gvm_heap *first, *second;
    gvm_buffer *buffer;
    uint64_t offset;
    const uint8_t byte = 0xAB;
    void *ptr;

    (void)arg;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_heap_create(device, NULL, &first) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(first, CHUNKS * CHUNK, &ptr) == GVM_OK);
    CHILD_EXPECT(gvm_heap_locate(first, ptr, &buffer, &offset) == GVM_OK && offset == 0);
    CHILD_EXPECT(gvm_buffer_fill(buffer, 0, CHUNKS * CHUNK, &byte, 1) == GVM_OK);
    CHILD_EXPECT(gvm_heap_free(first, ptr) == GVM_OK && gvm_heap_trim(first, 0) == GVM_OK);
    CHILD_EXPECT(gvm_heap_create(device, NULL, &second) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(second, CHUNKS * CHUNK, &ptr) == GVM_OK);
    CHILD_EXPECT(gvm_heap_locate(second, ptr, &buffer, &offset) == GVM_OK && offset == 0);
    CHILD_EXPECT(!shows_old_bytes(device, buffer, CHUNKS));
    gvm_heap_destroy(second);
    gvm_heap_destroy(first);
    return 0;
}

CHILD_TEST(block_after_another_heap_shows_zeros, export_block_after_others)

/* The allocation behind a CUDA IPC handle: all that the driver shows to who opens it. */
static int export_small_copy(void *arg)
{
    const gvm_buffer_options unshared = {
        .struct_size = sizeof unshared, .chunk_bytes = CHUNK, .flags = GVM_BUFFER_UNSHARED};
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_ipc *ipc = NULL;
    gvm_ipc_info info = {.struct_size = sizeof info};
    uint64_t address;
    uint8_t byte = 1;
    CUdeviceptr base;
    size_t size;

    (void)arg;
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(make_buffer(device, &buffer) == GVM_OK && renew(buffer, 0, 7) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_export(buffer, 0, 1000, &ipc) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_get_info(ipc, &info) == GVM_OK && info.size_bytes == 1000);
    address = gvmi_address(info.address);
    CHILD_EXPECT(gvmi_device_enter(device) == GVM_OK);
    CHILD_EXPECT(gvmi_cu->cuMemGetAddressRange(&base, &size, address) == CUDA_SUCCESS);
    CHILD_EXPECT(base == address && size % CHUNK == 0);
    CHILD_EXPECT(gvmi_cu->cuMemcpyDtoH(&byte, address + 1000, 1) == CUDA_SUCCESS && byte == 0);
    gvmi_device_leave();
    gvm_ipc_destroy(ipc);
    gvm_buffer_destroy(buffer);
    ipc = NULL;
    CHILD_EXPECT(gvm_buffer_create(device, CHUNK, &unshared, &buffer) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, CHUNK) == GVM_OK);
    CHILD_EXPECT(fails_with(gvm_ipc_export(buffer, 0, 1000, &ipc), GVM_E_NOTSUP, "UNSHARED"));
    CHILD_EXPECT(ipc == NULL);
    return 0;
}

CHILD_TEST(ipc_copy_has_its_blocks_to_itself, export_small_copy)

/* Memory for what is written there: as a program that has no buffer makes it, with calls of the driver that it finds
 * through the library. */
static int create_ipc(void *arg)
{
    int (*copy_out)(void *to, uint64_t from, size_t bytes);
    int (*range)(uint64_t * base, size_t * bytes, uint64_t address);
    const uint64_t last = CHUNK + 4;
    gvm_ipc_info info = {.struct_size = sizeof info};
    uint64_t address, base, word = 1;
    void (*call)(void) = NULL;
    gvm_device *device;
    gvm_ipc *ipc = NULL;
    size_t size;

    (void)arg;
    CHILD_EXPECT(gvm_ipc_create(NULL, 8, &ipc) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_driver_get_call("cuMemcpyDtoH_v2", &call) == GVM_OK);
    memcpy(&copy_out, &call, sizeof call);
    CHILD_EXPECT(gvm_driver_get_call("cuMemGetAddressRange_v2", &call) == GVM_OK);
    memcpy(&range, &call, sizeof call);
    call = NULL;
    CHILD_EXPECT(fails_with(gvm_driver_get_call("cuNoSuchCall", &call), GVM_E_NOTSUP, "cuNoSuchCall"));
    CHILD_EXPECT(gvm_driver_get_call(NULL, &call) == GVM_E_INVALID && call == NULL);
    CHILD_EXPECT(gvm_driver_get_call("cuInit", NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_device_push_context(NULL) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_create(device, 0, &ipc) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_ipc_create(device, UINT64_MAX, &ipc) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_ipc_create(device, 8, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_ipc_create(device, 1ull << 50, &ipc) == GVM_E_NOSPACE && ipc == NULL);
    CHILD_EXPECT(gvm_ipc_create(device, CHUNK + 12, &ipc) == GVM_OK);
    CHILD_EXPECT(gvm_ipc_get_info(ipc, &info) == GVM_OK && info.size_bytes == CHUNK + 12);
    address = gvmi_address(info.address);
    CHILD_EXPECT(copy_out(&word, address, sizeof word) == CUDA_ERROR_INVALID_CONTEXT);
    CHILD_EXPECT(gvm_device_push_context(device) == GVM_OK);
    CHILD_EXPECT(range(&base, &size, address) == 0 && base == address && size == 2 * CHUNK);
    CHILD_EXPECT(copy_out(&word, address + last, sizeof word) == 0 && word == 0);
    CHILD_EXPECT(fails_with(gvm_driver_error(copy_out(&word, 0, 8), "cuMemcpyDtoH", "from %d", 0),
                            GVM_E_DRIVER, "from 0"));
    gvm_device_pop_context();
    CHILD_EXPECT(copy_out(&word, address, sizeof word) == CUDA_ERROR_INVALID_CONTEXT);
    gvm_ipc_destroy(ipc);
    CHILD_EXPECT(gvm_ipc_get_info(ipc, &info) == GVM_E_FOREIGN);
    gvm_device_close(device);
    return 0;
}

CHILD_TEST(ipc_memory_is_zeros_and_whole_blocks, create_ipc)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(export_after_other_buffers_shows_zeros),
        cmocka_unit_test(export_after_an_appender_shows_zeros),
        cmocka_unit_test(unused_chunk_of_an_unshared_appender_is_not_taken_for_zeros),
        cmocka_unit_test(exported_chunk_that_has_moved_is_not_used_again),
        cmocka_unit_test(block_after_another_heap_shows_zeros),
        cmocka_unit_test(ipc_copy_has_its_blocks_to_itself),
        cmocka_unit_test(ipc_memory_is_zeros_and_whole_blocks),
        cmocka_unit_test(share_passed_on_by_an_importer_imports_and_updates),
        cmocka_unit_test(receive_that_is_cancelled_ends_first),
        cmocka_unit_test(import_of_fds_that_are_no_memory_is_malformed),
        cmocka_unit_test(import_of_chunks_of_another_size_is_malformed),
        cmocka_unit_test(import_of_chunks_of_another_tier_is_malformed),
        cmocka_unit_test(import_tells_a_wrong_share_from_a_limit_and_a_broken_driver),
        cmocka_unit_test(update_with_a_chunk_of_another_size_changes_nothing),
        cmocka_unit_test(update_speaks_of_the_span_alone),
        cmocka_unit_test(patch_lets_go_of_what_it_replaces_before_it_maps),
        cmocka_unit_test(grant_leaves_alone_what_a_patch_has_sealed),
    };

    fixture_machine_default("memory=64MiB,sms=1");
    setenv("GVMEM_CHECK", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
