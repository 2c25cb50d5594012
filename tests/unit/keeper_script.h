/* tests/unit/keeper_script.h - a keeper that follows a script, for the tests of its clients.
 *
 * It is a thread at the other end of a socket pair. It speaks wire.h, has the pages of words and
 * real frames: chunks of a buffer of its own, exported as fds. Scripts and tests return 0, or say
 * where they found a fault and return something else. Each test runs in a child, because a driver
 * is started once a process. Nothing sleeps but where the absence of an event is to be seen
 * (QUIET_MS); everything else waits for messages.
 */
#ifndef KEEPER_SCRIPT_H
#define KEEPER_SCRIPT_H

#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/registry.h"
#include "keeper/client/client.h"
#include "sharing/share.h"
#include "sharing/socket.h"

#define CHUNK (2 * MIB)
#define FRAMES 6
#define OBJECT_CHUNKS 4
#define SLOT 7u
#define HOME_ID 77u
#define TIMEOUT_MS 20000 /* never reached */
#define QUIET_MS 50

typedef struct fake {
    int socket;        /* the script's end */
    int client_socket; /* the connection's */
    int lease_fd, permit_fd, doorbell;
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    gvm_device *device;
    gvm_buffer *frames; /* frame i is full of byte i + 1 */
    gvm_share *share;
    int (*script)(struct fake *fake);
    int result; /* 0, or the line that found a fault */
    pthread_t thread;
    int variant; /* of scripts that have some */
    _Atomic bool first_lease_ended;
    bool anew; /* the next MAP is the first since one failed */
    uint64_t serial, home_address;
    uint64_t address;     /* of the object, as the client said */
    gvmi_wire_message in; /* what the script received last */
} fake;

/* In scripts and tests alike. */
#define EXPECT CHILD_EXPECT
#define TRY_LINE(call) \
    do { \
        if ((call) != 0) { \
            dprintf(STDERR_FILENO, "%s:%d: from here\n", __FILE__, __LINE__); \
            return 1; \
        } \
    } while (0)

/* ---- the keeper's side */

static inline int receive_any(fake *f)
{
    char bytes[sizeof f->in];
    gvmi_wire_head head;
    gvmi_socket socket;

    EXPECT(gvmi_socket_begin(f->socket, TIMEOUT_MS, &socket) == GVM_OK);
    EXPECT(gvmi_socket_receive(&socket, bytes, sizeof head, NULL, 0) == GVM_OK);
    memcpy(&head, bytes, sizeof head);
    EXPECT(gvmi_wire_check_head(&head, true) == GVM_OK);
    EXPECT(gvmi_socket_receive(&socket, bytes + sizeof head, head.bytes - sizeof head, NULL, 0) ==
           GVM_OK);
    EXPECT(gvmi_wire_decode(bytes, head.bytes, true, &f->in) == GVM_OK);
    return 0;
}

static inline int receive(fake *f, gvmi_wire_type type)
{
    TRY_LINE(receive_any(f));
    if (f->in.head.type != type)
        dprintf(STDERR_FILENO, "%s came, not %s\n", gvmi_wire_name_of(f->in.head.type),
                gvmi_wire_name_of(type));
    EXPECT(f->in.head.type == type);
    return 0;
}

/* Waits until the client hears nothing more. */
static inline int await_deaf(const fake *f)
{
    while (send(f->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
        sched_yield();
    EXPECT(errno == EPIPE || errno == ECONNRESET);
    return 0;
}

static inline bool nothing_comes(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    return poll(&entry, 1, QUIET_MS) == 0;
}

static inline int send_message(fake *f, gvmi_wire_message *message, const int *fds, uint32_t fd_count)
{
    char bytes[sizeof *message];
    gvmi_socket socket;
    size_t len;

    message->head.fd_count = (uint16_t)fd_count;
    len = gvmi_wire_encode(message, bytes);
    EXPECT(gvmi_socket_begin(f->socket, TIMEOUT_MS, &socket) == GVM_OK);
    EXPECT(gvmi_socket_send(&socket, bytes, len, fds, fd_count) == GVM_OK);
    return 0;
}

/* The reply of a type to what came last. */
static inline gvmi_wire_message reply(const fake *f, gvmi_wire_type type)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, type, f->in.head.request);
    return message;
}

static inline int done(fake *f, uint64_t value)
{
    gvmi_wire_message message = reply(f, GVMI_WIRE_DONE);

    message.body.DONE.value = value;
    return send_message(f, &message, NULL, 0);
}

static inline int failed(fake *f, gvm_status status, const char *text)
{
    gvmi_wire_message message = reply(f, GVMI_WIRE_FAILED);

    message.body.FAILED.status = (uint32_t)status;
    snprintf(message.body.FAILED.text, sizeof message.body.FAILED.text, "%s", text);
    return send_message(f, &message, NULL, 0);
}

static inline int granted(fake *f, uint32_t slot)
{
    gvmi_wire_message message = reply(f, GVMI_WIRE_GRANTED);

    message.body.GRANTED.slot = slot;
    return send_message(f, &message, NULL, 0);
}

static inline void permit(fake *f, uint32_t generation, uint32_t flags)
{
    atomic_store(&f->permits[SLOT].word, gvmi_permit(generation, flags));
}

static inline uint64_t word(const fake *f)
{
    return atomic_load(&f->leases[SLOT].word);
}

static inline int welcome(fake *f)
{
    const int fds[3] = {f->lease_fd, f->permit_fd, f->doorbell};
    gvmi_wire_message message = reply(f, GVMI_WIRE_WELCOME);

    message.body.WELCOME = (gvmi_wire_welcome){
        .magic = GVMI_WIRE_MAGIC,
        .version = GVMI_WIRE_VERSION,
        .keeper_pid = (uint32_t)getpid(),
        .client = 1,
        .slots = GVM_OBJECTS_OPEN_MAX,
    };
    return send_message(f, &message, fds, 3);
}

static inline int greet(fake *f)
{
    TRY_LINE(receive(f, GVMI_WIRE_HELLO));
    return welcome(f);
}

#define NO_FRAME UINT32_MAX

/* A MAP of chunks [first, first + count): those with NO_FRAME are absent, the stamps of others are the numbers
 * of their frames. fd >= 0: in place of all of these. */
static inline int send_map_of(fake *f, uint32_t first, uint32_t count, const uint32_t *frames,
                              uint64_t bytes, uint32_t generation, int fd)
{
    int fds[GVMI_WIRE_CHUNKS_MAX];
    gvmi_wire_message message;
    uint32_t sent = 0;

    gvmi_wire_start(&message, GVMI_WIRE_MAP, 0);
    message.body.MAP = (gvmi_wire_map){
        .slot = SLOT,
        .generation = generation,
        .serial = ++f->serial,
        .bytes = bytes,
        .anew = f->anew,
    };
    f->anew = false;
    message.head.tail_bytes = count * (uint32_t)sizeof(gvmi_wire_chunk);
    for (uint32_t i = 0; i < count; i++) {
        message.tail.chunks[i] = (gvmi_wire_chunk){.index = first + i, .tier = GVM_TIER_ABSENT};
        if (frames[i] == NO_FRAME)
            continue;
        message.tail.chunks[i].tier = GVM_TIER_DEVICE;
        message.tail.chunks[i].stamp = frames[i] + 1;
        fds[sent++] = fd >= 0 ? fd : f->share->fds[frames[i]];
    }
    return send_message(f, &message, fds, sent);
}

/* To frames [frame, frame + count). */
static inline int send_map(fake *f, uint32_t first, uint32_t count, uint32_t frame, uint64_t bytes,
                           uint32_t generation, int fd)
{
    uint32_t frames[GVMI_WIRE_CHUNKS_MAX];

    for (uint32_t i = 0; i < count; i++)
        frames[i] = frame + i;
    return send_map_of(f, first, count, frames, bytes, generation, fd);
}

static inline int mapped(fake *f, gvm_status status)
{
    TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
    EXPECT(f->in.body.MAPPED.slot == SLOT && f->in.body.MAPPED.serial == f->serial);
    if (f->in.body.MAPPED.status != (uint32_t)status)
        dprintf(STDERR_FILENO, "MAPPED with %s\n",
                gvm_status_name((gvm_status)f->in.body.MAPPED.status));
    EXPECT(f->in.body.MAPPED.status == (uint32_t)status);
    return 0;
}

static inline int unmapped(fake *f)
{
    TRY_LINE(receive(f, GVMI_WIRE_UNMAPPED));
    EXPECT(f->in.body.UNMAPPED.slot == SLOT && f->in.body.UNMAPPED.serial == f->serial);
    return 0;
}

/* Of chunks that are new, or there already. */
static inline int map(fake *f, uint32_t first, uint32_t count, uint32_t frame, uint64_t bytes,
                      uint32_t generation)
{
    TRY_LINE(send_map(f, first, count, frame, bytes, generation, -1));
    return mapped(f, GVM_OK);
}

/* A lease on an object of which a MAP failed: chunks [0, count) come anew. */
static inline int serve_retry(fake *f, uint32_t count, uint32_t generation)
{
    gvmi_wire_message acquire;

    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    f->anew = true;
    TRY_LINE(send_map(f, 0, count, 0, count * CHUNK, generation, -1));
    f->in = acquire;
    TRY_LINE(granted(f, SLOT));
    TRY_LINE(mapped(f, GVM_OK));
    return receive(f, GVMI_WIRE_TAKEN);
}

/* Of chunks some of which are in other frames. */
static inline int move(fake *f, uint32_t first, uint32_t count, uint32_t frame, uint64_t bytes)
{
    TRY_LINE(send_map(f, first, count, frame, bytes, 1, -1));
    TRY_LINE(unmapped(f));
    return mapped(f, GVM_OK);
}

static inline int send_opened(fake *f, uint64_t bytes, uint32_t flags)
{
    gvmi_wire_message message = reply(f, GVMI_WIRE_OPENED);

    message.body.OPENED = (gvmi_wire_opened){
        .slot = SLOT,
        .generation = 1,
        .id = HOME_ID,
        .reserve_bytes = OBJECT_CHUNKS * CHUNK,
        .chunk_bytes = CHUNK,
        .bytes = bytes,
        .open_flags = flags,
        .home_address = f->home_address,
    };
    memcpy(message.body.OPENED.device_uuid, f->device->info.uuid, sizeof f->device->info.uuid);
    return send_message(f, &message, NULL, 0);
}

/* Serves gvm_object_open(), without memory. */
static inline int serve_bare_open(fake *f, uint32_t chunks, uint32_t flags)
{
    TRY_LINE(receive(f, GVMI_WIRE_OPEN));
    EXPECT(f->in.body.OPEN.flags == flags);
    TRY_LINE(send_opened(f, chunks * CHUNK, flags));
    TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
    EXPECT(f->in.body.MAPPED.serial == 0 && f->in.body.MAPPED.slot == SLOT);
    EXPECT(f->in.body.MAPPED.status == GVM_OK && f->in.body.MAPPED.address != 0);
    f->address = f->in.body.MAPPED.address;
    return 0;
}

/* Grants what an ACQUIRE asked for. */
static inline int grant(fake *f, const gvmi_wire_message *acquire)
{
    f->in = *acquire;
    TRY_LINE(granted(f, SLOT));
    return receive(f, GVMI_WIRE_TAKEN);
}

/* Serves open_and_lease(): chunks of the object are frames 0 and following. */
static inline int serve_open(fake *f, uint32_t chunks, uint32_t flags)
{
    gvmi_wire_message acquire;

    TRY_LINE(serve_bare_open(f, chunks, flags));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    TRY_LINE(map(f, 0, chunks, 0, chunks * CHUNK, 1));
    TRY_LINE(grant(f, &acquire));
    while (!atomic_exchange(&f->first_lease_ended, false))
        sched_yield();
    return 0;
}

static inline int serve_close(fake *f)
{
    TRY_LINE(receive(f, GVMI_WIRE_CLOSE));
    EXPECT(f->in.body.CLOSE.slot == SLOT && !gvmi_lease_any(word(f)));
    return done(f, 0);
}

static inline int serve_end(fake *f)
{
    char byte;

    TRY_LINE(receive(f, GVMI_WIRE_BYE));
    EXPECT(recv(f->socket, &byte, 1, 0) <= 0);
    return 0;
}

static inline int serve_close_and_end(fake *f)
{
    TRY_LINE(serve_close(f));
    return serve_end(f);
}

static inline int greet_and_open(fake *f, uint32_t chunks)
{
    TRY_LINE(greet(f));
    return serve_open(f, chunks, 0);
}

/* ---- both */

static inline int make_page(size_t bytes, int seals, void **page)
{
    int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
        return -1;
    *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return *page != MAP_FAILED ? fd : -1;
}

static inline void *run_script(void *arg)
{
    fake *f = arg;

    f->result = f->script(f);
    if (f->result != 0) /* the test must not wait for the rest */
        shutdown(f->socket, SHUT_RDWR);
    return NULL;
}

/* A software GPU of the test's own: the memory of the one that all programs share may be taken by others. */
__attribute__((constructor)) static void take_own_machine(void)
{
    char machine[40];

    snprintf(machine, sizeof machine, "instance=script-%d", (int)getpid());
    setenv("GVMEM_SOFTGPU", machine, 0);
}

static inline int start_fake(fake *f, int (*script)(fake *f), int variant)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    void *page;
    int ends[2];

    memset(f, 0, sizeof *f);
    EXPECT(gvm_device_open(0, &f->device) == GVM_OK);
    EXPECT(gvm_buffer_create(f->device, FRAMES * CHUNK, &options, &f->frames) == GVM_OK);
    EXPECT(gvm_buffer_commit(f->frames, 0, FRAMES * CHUNK) == GVM_OK);
    for (uint8_t i = 0; i < FRAMES; i++) {
        const uint8_t byte = (uint8_t)(i + 1);

        EXPECT(gvm_buffer_fill(f->frames, i * CHUNK, CHUNK, &byte, 1) == GVM_OK);
    }
    EXPECT(gvm_share_export(f->frames, 0, 0, &f->share) == GVM_OK);
    EXPECT((f->lease_fd = make_page(GVMI_LEASE_PAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, &page)) >= 0);
    f->leases = page;
    EXPECT((f->permit_fd = make_page(GVMI_PERMIT_PAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW, &page)) >= 0);
    f->permits = page;
    EXPECT((f->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    f->socket = ends[0];
    f->client_socket = ends[1];
    f->script = script;
    f->variant = variant;
    EXPECT(pthread_create(&f->thread, NULL, run_script, f) == 0);
    return 0;
}

/* Ends the fake, and looks whether the library left anything. */
static inline int end_fake(fake *f)
{
    pthread_join(f->thread, NULL);
    EXPECT(f->result == 0);
    gvm_share_destroy(f->share);
    gvm_buffer_destroy(f->frames);
    gvm_device_close(f->device);
    EXPECT(gvmi_registry_count(GVMI_KIND_OBJECT) == 0);
    EXPECT(gvmi_registry_count(GVMI_KIND_CONNECTION) == 0);
    EXPECT(gvmi_registry_count(GVMI_KIND_BUFFER) == 0);
    EXPECT(gvmi_registry_count(GVMI_KIND_DEVICE) == 0);
    return 0;
}

static inline int connect_to_fake(fake *f, int (*script)(fake *f), gvm_client **keeper)
{
    TRY_LINE(start_fake(f, script, 0));
    EXPECT(gvm_client_adopt(f->client_socket, keeper) == GVM_OK);
    return 0;
}

/* Opens the object; a first lease, which ends here, has all of it mapped. */
static inline int open_and_lease(fake *f, gvm_client *keeper, uint32_t flags, gvm_object **object)
{
    gvm_lease lease;

    EXPECT(gvm_object_open(keeper, "/data", flags, object) == GVM_OK);
    EXPECT(gvm_object_acquire(*object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(gvm_object_release(*object, &lease) == GVM_OK);
    atomic_store(&f->first_lease_ended, true);
    return 0;
}

static inline int connect_and_open(fake *f, int (*script)(fake *f), gvm_client **keeper,
                                   gvm_object **object)
{
    TRY_LINE(connect_to_fake(f, script, keeper));
    return open_and_lease(f, *keeper, 0, object);
}

static inline int close_all(fake *f, gvm_client *keeper, gvm_object *object)
{
    if (object != NULL)
        EXPECT(gvmi_buffer_check(object->buffer) || object->buffer == NULL);
    gvm_object_close(object);
    gvm_client_close(keeper);
    return end_fake(f);
}

/* The byte that a chunk of the object is full of. */
static inline int byte_of(const gvm_object *object, uint32_t chunk)
{
    static uint8_t bytes[CHUNK];

    if (gvm_buffer_copy_out(bytes, object->buffer, chunk * CHUNK, CHUNK) != GVM_OK)
        return -2;
    return memcmp(bytes, bytes + 1, CHUNK - 1) == 0 ? bytes[0] : -1;
}

/* CU_MEM_ACCESS_FLAGS_PROT_... of a chunk's place; 0: nothing is mapped there. */
static inline unsigned long long access_of(uint64_t address, uint64_t chunk)
{
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    unsigned long long flags = 0;

    (void)gvmi_cu->cuMemGetAccess(&flags, &here, address + chunk * CHUNK);
    return flags;
}

/* How often the doorbell rang since it was last asked. */
static inline uint64_t rings(const fake *f)
{
    uint64_t count = 0;

    return read(f->doorbell, &count, sizeof count) == sizeof count ? count : 0;
}

static inline bool fails_with(gvm_status status, gvm_status wanted, const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    if (status == wanted && error.status == wanted && strstr(error.text, text) != NULL)
        return true;
    dprintf(STDERR_FILENO, "%s: %s\n", gvm_status_name(status), error.text);
    return false;
}

/* Opens an object of two chunks and hears nothing until it is closed. */
static inline int script_quiet(fake *f)
{
    f->home_address = GVMI_OBJECT_RANGE_ADDRESS; /* where keepers propose */
    TRY_LINE(greet_and_open(f, 2));
    return serve_close_and_end(f); /* so nothing else came */
}

#define RUN(body) \
    do { \
        (void)state; \
        setenv("GVMEM_DRIVER", "soft", 1); \
        setenv("GVMEM_CHECK", "1", 1); \
        assert_child_succeeds(body, NULL); \
    } while (0)

#endif
