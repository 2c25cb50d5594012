/* keeper/client: connections, opening and leases; see keeper_script.h. Time-outs are in
 * test_client_timeout.c, a keeper that goes or talks nonsense in test_client_gone.c, MAPs and what is
 * left in test_client_map.c, what is mapped for a lease and unmapped by an eviction in test_client_lazy.c. */
#include "tests/unit/keeper_script.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

#include "base/address.h"
#include "keeper/protocol/path.h"

/* ---- connections */

static int script_greet_and_end(fake *f)
{
    TRY_LINE(greet(f));
    return serve_end(f);
}

static int be_connected(void *arg)
{
    gvm_client *keeper;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_greet_and_end, &keeper));
    EXPECT(fcntl(f.client_socket, F_GETFD) == FD_CLOEXEC);
    gvm_client_close(keeper);
    gvm_client_close(keeper); /* unknown now: ignored */
    gvm_client_close(NULL);
    EXPECT(fails_with(gvm_object_drop(keeper, "/data"), GVM_E_FOREIGN, "connection"));
    return end_fake(&f);
}

static void connection_is_greeted_and_ends_with_bye(void **state)
{
    RUN(be_connected);
}

enum {
    BAD_SHORT_PAGE,
    BAD_UNSEALED_PAGE,
    BAD_REFUSED,
    BAD_VERSION,
    BAD_TYPE,
    BAD_CLOSED,
    BAD_COUNT
};

static int script_bad_welcome(fake *f)
{
    void *page;

    switch (f->variant) {
    case BAD_SHORT_PAGE:
        close(f->permit_fd);
        f->permit_fd = make_page(4096, F_SEAL_SHRINK, &page);
        return greet(f);
    case BAD_UNSEALED_PAGE:
        close(f->lease_fd);
        f->lease_fd = make_page(GVMI_LEASE_PAGE_BYTES, F_SEAL_GROW, &page);
        return greet(f);
    case BAD_REFUSED:
        TRY_LINE(receive(f, GVMI_WIRE_HELLO));
        return failed(f, GVM_E_DENIED, "1024 clients are connected");
    case BAD_TYPE: TRY_LINE(receive(f, GVMI_WIRE_HELLO)); return done(f, 0);
    case BAD_CLOSED:
        TRY_LINE(receive(f, GVMI_WIRE_HELLO));
        shutdown(f->socket, SHUT_RDWR);
        return 0;
    default: {
        const int fds[3] = {f->lease_fd, f->permit_fd, f->doorbell};
        gvmi_wire_message message;

        TRY_LINE(receive(f, GVMI_WIRE_HELLO));
        message = reply(f, GVMI_WIRE_WELCOME);
        message.body.WELCOME.magic = GVMI_WIRE_MAGIC;
        message.body.WELCOME.version = GVMI_WIRE_VERSION + 1;
        return send_message(f, &message, fds, 3);
    }
    }
}

static int be_badly_welcomed(void *arg)
{
    static const gvm_status wanted[BAD_COUNT] = {
        [BAD_SHORT_PAGE] = GVM_E_FORMAT, [BAD_UNSEALED_PAGE] = GVM_E_FORMAT,
        [BAD_REFUSED] = GVM_E_DENIED,    [BAD_VERSION] = GVM_E_VERSION,
        [BAD_TYPE] = GVM_E_FORMAT,       [BAD_CLOSED] = GVM_E_PEER,
    };

    (void)arg;
    for (int i = 0; i < BAD_COUNT; i++) {
        gvm_client *keeper = NULL;
        fake f;

        TRY_LINE(start_fake(&f, script_bad_welcome, i));
        EXPECT(fcntl(f.client_socket, F_SETFD, 0) == 0);
        EXPECT(fails_with(gvm_client_adopt(f.client_socket, &keeper), wanted[i], "") && keeper == NULL);
        EXPECT(fcntl(f.client_socket, F_GETFD) == 0); /* still the caller's, as it was */
        EXPECT(close(f.client_socket) == 0);
        TRY_LINE(end_fake(&f));
    }
    return 0;
}

static void connection_with_bad_welcome_is_refused(void **state)
{
    RUN(be_badly_welcomed);
}

static int find_no_keeper(void *arg)
{
    char long_path[200];
    gvm_client *keeper;
    int fds[2];

    (void)arg;
    memset(long_path, 'a', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    EXPECT(fails_with(gvm_client_connect("/tmp/no-such-keeper.sock", &keeper), GVM_E_PEER,
                      "gvmem keeper start"));
    EXPECT(fails_with(gvm_client_connect(long_path, &keeper), GVM_E_INVALID, "path"));
    EXPECT(fails_with(gvm_client_connect("", &keeper), GVM_E_INVALID, "empty"));
    EXPECT(gvm_client_connect(NULL, NULL) == GVM_E_INVALID);
    EXPECT(pipe2(fds, O_CLOEXEC) == 0);
    EXPECT(gvm_client_adopt(fds[0], &keeper) == GVM_E_INVALID);
    EXPECT(gvm_client_adopt(fds[0], NULL) == GVM_E_INVALID);
    EXPECT(close(fds[0]) == 0 && close(fds[1]) == 0);
    EXPECT(gvm_client_adopt(-1, &keeper) == GVM_E_INVALID);
    return 0;
}

static void connect_to_nobody_says_how_to_start_a_keeper(void **state)
{
    RUN(find_no_keeper);
}

/* A process that connects to the path: by the library, or by connect() alone. It ends when its socket is closed. */
static pid_t connect_from_child(const struct sockaddr_un *address, bool by_library)
{
    const pid_t pid = fork();
    gvm_client *keeper;
    char byte;
    int fd;

    if (pid != 0)
        return pid;
    if (by_library)
        _exit(gvm_client_connect(address->sun_path, &keeper) == GVM_OK);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        _exit(1);
    _exit((int)recv(fd, &byte, 1, 0) > 0);
}

/* Until it has slept for a while. */
static int await_sleep(pid_t pid)
{
    char path[40], state = ' ';

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int slept = 0; slept < QUIET_MS; slept = state == 'S' ? slept + 1 : 0) {
        FILE *file = fopen(path, "r");

        EXPECT(file != NULL);
        EXPECT(fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        poll(NULL, 0, 1);
    }
    return 0;
}

static pid_t accepted_pid(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    struct ucred found = {0};
    socklen_t bytes = sizeof found;

    (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &bytes);
    close(fd);
    return found.pid;
}

/* Who calls connect() again and again is overtaken by everybody who waits in it. */
static int wait_in_queue(void *arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t first, second;

    (void)arg;
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/gvmem-test-queue-%d.sock", (int)getpid());
    EXPECT(bind(listener, (const struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(listen(listener, 0) == 0); /* room for one */
    (void)await_sleep(connect_from_child(&address, false));
    first = connect_from_child(&address, true);
    TRY_LINE(await_sleep(first));
    second = connect_from_child(&address, false);
    TRY_LINE(await_sleep(second));
    (void)accepted_pid(listener);
    EXPECT(accepted_pid(listener) == first);
    EXPECT(accepted_pid(listener) == second);
    unlink(address.sun_path);
    for (int i = 0; i < 3; i++) {
        int status = -1;

        EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}

static void connect_to_a_busy_keeper_waits_in_order(void **state)
{
    RUN(wait_in_queue);
}

static int find_paths(void *arg)
{
    char path[GVMI_KEEPER_PATH_BYTES], wanted[64];
    const char *setting = arg;
    bool anybodys;

    if (setting[0] == '/') {
        setenv("GVMEM_KEEPER", setting, 1);
        EXPECT(gvmi_keeper_default_path(path, &anybodys) == GVM_OK);
        EXPECT(strcmp(path, setting) == 0 && !anybodys);
        return 0;
    }
    unsetenv("GVMEM_KEEPER");
    if (geteuid() == 0) {
        EXPECT(gvmi_keeper_default_path(path, &anybodys) == GVM_OK);
        EXPECT(strcmp(path, "/run/gvmem/keeper.sock") == 0 && !anybodys);
        EXPECT(seteuid(12345) == 0);
    }
    setenv("XDG_RUNTIME_DIR", "/run/user/12345", 1);
    EXPECT(gvmi_keeper_default_path(path, &anybodys) == GVM_OK);
    EXPECT(strcmp(path, "/run/user/12345/gvmem.sock") == 0 && !anybodys);
    unsetenv("XDG_RUNTIME_DIR");
    EXPECT(gvmi_keeper_default_path(path, &anybodys) == GVM_OK);
    snprintf(wanted, sizeof wanted, "/tmp/gvmem-%u.sock", (unsigned)geteuid());
    EXPECT(strcmp(path, wanted) == 0 && anybodys);
    return 0;
}

static void default_path_goes_by_setting_user_and_folder(void **state)
{
    (void)state;
    assert_child_succeeds(find_paths, "/some/where.sock");
    assert_child_succeeds(find_paths, "");
}

/* ---- opening */

static int script_create(fake *f)
{
    const gvmi_wire_create *create = &f->in.body.CREATE;
    gvmi_wire_message acquire;

    TRY_LINE(greet(f));
    TRY_LINE(receive(f, GVMI_WIRE_CREATE));
    EXPECT(strcmp(create->name, "/made") == 0 && create->mode == 0640 &&
           create->flags == GVM_OBJECT_KEEP);
    EXPECT(create->reserve_bytes == OBJECT_CHUNKS * CHUNK && create->bytes == CHUNK);
    EXPECT(memcmp(create->device_uuid, f->device->info.uuid, 16) == 0);
    EXPECT(f->in.head.tail_bytes == 5 && memcmp(f->in.tail.bytes, "about", 5) == 0);
    TRY_LINE(send_opened(f, CHUNK, 0));
    TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    acquire = f->in;
    TRY_LINE(map(f, 0, 1, 0, CHUNK, 1));
    TRY_LINE(grant(f, &acquire));
    TRY_LINE(receive(f, GVMI_WIRE_CREATE)); /* nameless, of defaults */
    EXPECT(create->name[0] == '\0' && create->mode == 0600 && create->chunk_bytes == 0);
    TRY_LINE(failed(f, GVM_E_QUOTA, "too much"));
    return serve_close_and_end(f);
}

static int create_objects(void *arg)
{
    const gvm_object_options good = {.struct_size = sizeof good,
                                     .size_bytes = CHUNK,
                                     .mode = 0640,
                                     .flags = GVM_OBJECT_KEEP,
                                     .metadata_bytes = 5,
                                     .metadata = "about"};
    gvm_object_options bad;
    gvm_object *object, *other;
    gvm_client *keeper;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_create, &keeper));
    EXPECT(gvm_object_create(keeper, "/made", OBJECT_CHUNKS * CHUNK, &good, &object) == GVM_OK);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == -2);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    EXPECT(fails_with(gvm_object_create(keeper, NULL, CHUNK, NULL, &other), GVM_E_QUOTA, "too much"));
    /* None of these is sent. */
    EXPECT(gvm_object_create(keeper, "made", CHUNK, NULL, &other) == GVM_E_INVALID);
    EXPECT(gvm_object_create(keeper, NULL, 0, NULL, &other) == GVM_E_INVALID);
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, NULL, NULL) == GVM_E_INVALID);
    bad = good, bad.size_bytes = 2 * CHUNK;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.chunk_bytes = CHUNK + 1;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.mode = 01777;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.flags = 1u << 9;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.metadata_bytes = GVM_METADATA_BYTES_MAX + 1;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.metadata = NULL;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.struct_size = 3;
    EXPECT(gvm_object_create(keeper, NULL, CHUNK, &bad, &other) == GVM_E_INVALID);
    bad = good, bad.device = 99;
    EXPECT(gvm_object_create(keeper, NULL, OBJECT_CHUNKS * CHUNK, &bad, &other) == GVM_E_NODEVICE);
    return close_all(&f, keeper, object);
}

static void object_is_created_as_asked(void **state)
{
    RUN(create_objects);
}

static int script_no_device(fake *f)
{
    gvmi_wire_message message;

    TRY_LINE(greet(f));
    TRY_LINE(receive(f, GVMI_WIRE_OPEN));
    message = reply(f, GVMI_WIRE_OPENED);
    message.body.OPENED = (gvmi_wire_opened){
        .slot = SLOT, .reserve_bytes = CHUNK, .chunk_bytes = CHUNK, .bytes = CHUNK, .device_uuid = {9}};
    TRY_LINE(send_message(f, &message, NULL, 0));
    TRY_LINE(send_map(f, 0, 1, 0, CHUNK, 1, -1));
    TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
    EXPECT(f->in.body.MAPPED.serial == 0 && f->in.body.MAPPED.status == GVM_E_NODEVICE);
    TRY_LINE(receive_any(f));
    if (f->in.head.type == GVMI_WIRE_MAPPED) { /* otherwise the CLOSE answers the MAP, too */
        EXPECT(f->in.body.MAPPED.serial == 1 && f->in.body.MAPPED.status == GVM_E_NODEVICE);
        TRY_LINE(receive_any(f));
    }
    EXPECT(f->in.head.type == GVMI_WIRE_CLOSE);
    TRY_LINE(done(f, 0));
    return serve_end(f);
}

static int open_elsewhere(void *arg)
{
    gvm_object *object = NULL;
    gvm_client *keeper;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_no_device, &keeper));
    EXPECT(fails_with(gvm_object_open(keeper, "/data", 0, &object), GVM_E_NODEVICE, "GPU-09"));
    EXPECT(object == NULL);
    EXPECT(gvm_object_open(keeper, "/data", 1u << 9, &object) == GVM_E_INVALID);
    EXPECT(gvm_object_open(keeper, "data", 0, &object) == GVM_E_INVALID);
    EXPECT(gvm_object_open(keeper, "/data", 0, NULL) == GVM_E_INVALID);
    return close_all(&f, keeper, NULL);
}

static void object_on_unseen_device_is_closed_again(void **state)
{
    RUN(open_elsewhere);
}

/* Where an object fits; 0 on failure. */
static uint64_t free_address(const fake *f)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_buffer *buffer;
    uint64_t address;

    if (gvm_buffer_create(f->device, OBJECT_CHUNKS * CHUNK, &options, &buffer) != GVM_OK)
        return 0;
    address = gvmi_address(gvm_buffer_address(buffer));
    gvm_buffer_destroy(buffer);
    return address;
}

/* Names in turn no address, one that is taken here, one that is free. */
static int script_same_address(fake *f)
{
    TRY_LINE(greet(f));
    for (int i = 0; i < 3; i++) {
        TRY_LINE(receive(f, GVMI_WIRE_OPEN));
        EXPECT(f->in.body.OPEN.flags == GVM_OPEN_SAME_ADDRESS);
        f->home_address = i == 0 ? 0 : i == 1 ? f->frames->address : free_address(f);
        EXPECT(i != 2 || f->home_address != 0);
        TRY_LINE(send_opened(f, 0, GVM_OPEN_SAME_ADDRESS));
        TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
        if (i < 2) {
            EXPECT(f->in.body.MAPPED.status == GVM_E_ADDRESS);
            TRY_LINE(serve_close(f));
        } else {
            EXPECT(f->in.body.MAPPED.status == GVM_OK && f->in.body.MAPPED.address == f->home_address);
        }
    }
    return serve_close_and_end(f);
}

static int open_at_same_address(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_same_address, &keeper));
    EXPECT(fails_with(gvm_object_open(keeper, "/data", GVM_OPEN_SAME_ADDRESS, &object),
                      GVM_E_ADDRESS, "no address"));
    EXPECT(gvm_object_open(keeper, "/data", GVM_OPEN_SAME_ADDRESS, &object) == GVM_E_ADDRESS);
    EXPECT(gvm_object_open(keeper, "/data", GVM_OPEN_SAME_ADDRESS, &object) == GVM_OK);
    EXPECT(object->address == f.home_address);
    return close_all(&f, keeper, object);
}

static void object_opened_at_its_creators_address_is_there_or_nowhere(void **state)
{
    RUN(open_at_same_address);
}

/* The same, where anywhere will do. */
static int script_usual_address(fake *f)
{
    TRY_LINE(greet(f));
    for (int i = 0; i < 3; i++) {
        TRY_LINE(receive(f, GVMI_WIRE_OPEN));
        f->home_address = i == 0 ? 0 : i == 1 ? f->frames->address : free_address(f);
        TRY_LINE(send_opened(f, 0, 0));
        TRY_LINE(receive(f, GVMI_WIRE_MAPPED));
        EXPECT(f->in.body.MAPPED.status == GVM_OK && f->in.body.MAPPED.address != 0);
        EXPECT((f->in.body.MAPPED.address == f->home_address) == (i == 2));
        if (i < 2)
            TRY_LINE(serve_close(f));
    }
    return serve_close_and_end(f);
}

static int open_usually(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_usual_address, &keeper));
    for (int i = 0; i < 2; i++) {
        EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
        gvm_object_close(object);
    }
    EXPECT(gvm_object_open(keeper, "/data", 0, &object) == GVM_OK);
    EXPECT(object->address == f.home_address);
    return close_all(&f, keeper, object);
}

static void object_opened_has_its_usual_address_if_that_is_free(void **state)
{
    RUN(open_usually);
}

/* From the connect on, the addresses that keepers propose are for objects alone. */
static int script_range_address(fake *f)
{
    f->home_address = GVMI_OBJECT_RANGE_ADDRESS + 4 * CHUNK;
    TRY_LINE(greet(f));
    TRY_LINE(serve_bare_open(f, 0, GVM_OPEN_SAME_ADDRESS));
    EXPECT(f->address == f->home_address);
    return serve_close_and_end(f);
}

static bool is_free(void *address)
{
    void *there = mmap(address, CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                       -1, 0);

    if (there != MAP_FAILED)
        munmap(there, CHUNK);
    return there == address;
}

static int open_in_object_range(void *arg)
{
    const gvm_buffer_options there = {
        .struct_size = sizeof there,
        .chunk_bytes = CHUNK,
        .address = gvmi_pointer(GVMI_OBJECT_RANGE_ADDRESS + GVMI_OBJECT_RANGE_BYTES / 2),
    };
    gvm_buffer *buffer;
    gvm_client *keeper;
    gvm_device *device;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_to_fake(&f, script_range_address, &keeper));
    EXPECT(is_free(there.address) == (getenv("GVMEM_RANGE") != NULL));
    EXPECT(gvm_object_open(keeper, "/data", GVM_OPEN_SAME_ADDRESS, &object) == GVM_OK);
    if (getenv("GVMEM_RANGE") == NULL) {
        EXPECT(gvm_buffer_create(f.device, CHUNK, &there, &buffer) == GVM_E_ADDRESS);
    } else {
        EXPECT(gvm_buffer_create(f.device, CHUNK, &there, &buffer) == GVM_OK);
        gvm_buffer_destroy(buffer);
    }
    TRY_LINE(close_all(&f, keeper, object));
    EXPECT(gvm_device_open(0, &device) == GVM_OK);
    EXPECT(gvm_buffer_create(device, CHUNK, &there, &buffer) == GVM_OK);
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    return 0;
}

static int open_without_range(void *arg)
{
    setenv("GVMEM_RANGE", "0", 1);
    return open_in_object_range(arg);
}

static void addresses_for_objects_are_kept_free_while_connected(void **state)
{
    SKIP_UNDER_VALGRIND(VALGRIND_ADDRESSES);
    SKIP_UNDER_TSAN("it has no addresses free there");
    RUN(open_in_object_range);
    RUN(open_without_range);
}

/* ---- the fast path */

static int lease_quietly(void *arg)
{
    const gvm_acquire_options hot = {.struct_size = sizeof hot, .hint = GVM_HINT_HOT};
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease a, b;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &a) == GVM_OK);
    EXPECT(a.address == gvmi_pointer(object->address) && a.size_bytes == 2 * CHUNK &&
           a.generation == 1);
    EXPECT(a.mode == GVM_LEASE_READ && a.hint == GVM_HINT_NONE);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &hot, GVM_FOREVER, &b) == GVM_OK);
    EXPECT(b.hint == GVM_HINT_HOT && f.leases[SLOT].hint == GVM_HINT_HOT);
    EXPECT(gvmi_lease_readers(word(&f)) == 2 && gvmi_lease_acquires(word(&f)) == 3);
    EXPECT(byte_of(object, 0) == 1 && byte_of(object, 1) == 2);
    EXPECT(gvm_object_release(object, &a) == GVM_OK && a.mode == 0 && a.address == 0);
    EXPECT(fails_with(gvm_object_release(object, &a), GVM_E_INVALID, "already"));
    EXPECT(gvm_object_release(object, &b) == GVM_OK);
    permit(&f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_WRITE);
    for (int i = 0; i < 1000; i++) {
        EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &a) == GVM_OK);
        EXPECT(gvmi_lease_writers(word(&f)) == 1);
        EXPECT(gvm_object_release(object, &a) == GVM_OK);
    }
    EXPECT(!gvmi_lease_any(word(&f)) && gvmi_lease_acquires(word(&f)) == 1003 && rings(&f) == 0);
    return close_all(&f, keeper, object);
}

static void lease_that_nobody_minds_sends_nothing(void **state)
{
    RUN(lease_quietly);
}

static int refuse_arguments(void *arg)
{
    gvm_acquire_options options = {.struct_size = sizeof options, .hint = (gvm_hint)4};
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease = {0}, copy;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, NULL) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, (gvm_lease_mode)3, NULL, GVM_FOREVER, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, (gvm_lease_mode)0, NULL, GVM_FOREVER, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, -2, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, INT_MIN, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease) == GVM_E_INVALID);
    options.hint = GVM_HINT_NONE, options.flags = 2;
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease) == GVM_E_INVALID);
    options.flags = 0, options.struct_size = 2;
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(NULL, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_E_FOREIGN);
    EXPECT(gvm_object_release(NULL, &lease) == GVM_E_FOREIGN);
    EXPECT(gvm_object_release(object, NULL) == GVM_E_INVALID);
    EXPECT(gvm_object_release(object, &lease) == GVM_E_INVALID);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    copy = lease;
    copy.address = gvmi_pointer(object->address + 1);
    EXPECT(fails_with(gvm_object_release(object, &copy), GVM_E_INVALID, "another object"));
    copy = lease;
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    EXPECT(fails_with(gvm_object_release(object, &copy), GVM_E_INVALID, "copy"));
    EXPECT(!gvmi_lease_any(word(&f)) && gvmi_lease_acquires(word(&f)) == 2);
    return close_all(&f, keeper, object);
}

static void lease_calls_refuse_what_is_no_lease(void **state)
{
    RUN(refuse_arguments);
}

static int hold_too_many(void *arg)
{
    static gvm_lease leases[GVMI_LEASE_READERS_MAX];
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease one_more;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    for (uint32_t i = 0; i < GVMI_LEASE_READERS_MAX; i++)
        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &leases[i]) == GVM_OK);
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &one_more),
                      GVM_E_LIMIT, "32767"));
    EXPECT(gvmi_lease_readers(word(&f)) == GVMI_LEASE_READERS_MAX);
    for (uint32_t i = 0; i < GVMI_LEASE_READERS_MAX; i++)
        EXPECT(gvm_object_release(object, &leases[i]) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void lease_beyond_the_limit_is_refused(void **state)
{
    RUN(hold_too_many);
}

static int wait_too_many(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    keeper->acquires_waiting = GVMI_CLIENT_WAITING_MAX; /* as if so many threads did */
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                      GVM_E_LIMIT, "1024"));
    EXPECT(keeper->acquires_waiting == GVMI_CLIENT_WAITING_MAX && !gvmi_lease_any(word(&f)));
    keeper->acquires_waiting = 0;
    return close_all(&f, keeper, object);
}

static void acquire_that_would_be_one_too_many_to_wait_is_refused(void **state)
{
    RUN(wait_too_many);
}

static int use_stale_pointers(void *arg)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    gvm_object_close(object); /* ends the lease; the script looks at the word */
    EXPECT(fails_with(gvm_object_release(object, &lease), GVM_E_FOREIGN, "no such object"));
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_E_FOREIGN);
    EXPECT(gvm_object_release_async(object, &lease, NULL) == GVM_E_FOREIGN);
    EXPECT(gvm_object_grow(object, CHUNK) == GVM_E_FOREIGN);
    EXPECT(gvm_object_get_info(object, &info) == GVM_E_FOREIGN);
    gvm_object_close(object);
    gvm_object_close(NULL);
    return close_all(&f, keeper, NULL);
}

static void stale_pointer_is_foreign(void **state)
{
    RUN(use_stale_pointers);
}

static int fork_and_use(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    int code = -1;
    pid_t pid;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease) == GVM_OK);
    EXPECT((pid = fork()) >= 0);
    if (pid == 0) { /* what destructors would do there */
        const char *const what_to_do = "must exec a program";
        const bool refused = fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL,
                                                           GVM_FOREVER, &lease),
                                        GVM_E_FOREIGN, what_to_do) &&
                             fails_with(gvm_object_release(object, &lease), GVM_E_FOREIGN, what_to_do) &&
                             fails_with(gvm_object_grow(object, CHUNK), GVM_E_FOREIGN, what_to_do) &&
                             fails_with(gvm_object_drop(keeper, "/data"), GVM_E_FOREIGN, what_to_do);

        gvm_object_close(object);
        gvm_client_close(keeper);
        _exit(refused ? 0 : 1);
    }
    EXPECT(waitpid(pid, &code, 0) == pid && code == 0);
    EXPECT(gvmi_lease_readers(word(&f)) == 1 && gvmi_lease_acquires(word(&f)) == 2);
    EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void child_of_a_fork_cannot_touch_its_parents_leases(void **state)
{
    RUN(fork_and_use);
}

/* ---- the doorbell */

static int script_back_out(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    permit(f, 1, GVMI_PERMIT_REVOKED);
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(rings(f) == 1 && !gvmi_lease_any(word(f)) && gvmi_lease_acquires(word(f)) == 2);
    EXPECT(f->in.body.ACQUIRE.timeout_ms == 0 && f->in.body.ACQUIRE.mode == GVM_LEASE_READ);
    TRY_LINE(failed(f, GVM_E_TIMEOUT, "others have it"));
    permit(f, 1, 0); /* not revoked: no reason to ring */
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(rings(f) == 0 && f->in.body.ACQUIRE.timeout_ms == 250);
    EXPECT(f->in.body.ACQUIRE.hint == GVM_HINT_SCAN && f->in.body.ACQUIRE.mode == GVM_LEASE_WRITE);
    TRY_LINE(failed(f, GVM_E_TIMEOUT, "others have it"));
    return serve_close_and_end(f);
}

static int back_out(void *arg)
{
    const gvm_acquire_options scan = {.struct_size = sizeof scan, .hint = GVM_HINT_SCAN};
    gvm_lease lease = {.mode = 99};
    gvm_client *keeper;
    gvm_object *object;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_back_out, &keeper, &object));
    while (atomic_load(&f.permits[SLOT].word) != gvmi_permit(1, GVMI_PERMIT_REVOKED))
        sched_yield();
    EXPECT(fails_with(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_TRY, &lease),
                      GVM_E_TIMEOUT, "others"));
    while (atomic_load(&f.permits[SLOT].word) != gvmi_permit(1, 0))
        sched_yield();
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, &scan, 250, &lease) == GVM_E_TIMEOUT);
    EXPECT(lease.mode == 99); /* written on success only */
    return close_all(&f, keeper, object);
}

static void acquire_that_backs_out_of_a_revoked_object_rings(void **state)
{
    RUN(back_out);
}

static int release_revoked(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease a, b;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &a) == GVM_OK);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &b) == GVM_OK);
    permit(&f, 1, GVMI_PERMIT_REVOKED);
    EXPECT(gvm_object_release(object, &a) == GVM_OK && rings(&f) == 0);
    EXPECT(gvm_object_release(object, &b) == GVM_OK && rings(&f) == 1);
    return close_all(&f, keeper, object);
}

static void last_release_of_a_revoked_object_rings(void **state)
{
    RUN(release_revoked);
}

/* What comes beside the lease is another thread's attempt that is still to be taken back. */
static int release_before_others(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_quiet, &keeper, &object));
    for (uint32_t mode = GVM_LEASE_READ; mode <= GVM_LEASE_WRITE; mode++)
        for (int writers = 0; writers < 2; writers++) {
            const uint64_t other = writers > 0 ? GVMI_LEASE_WRITER : GVMI_LEASE_READER;
            const bool last_writer = mode == GVM_LEASE_WRITE && writers == 0;

            permit(&f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_WRITE);
            EXPECT(gvm_object_acquire(object, (gvm_lease_mode)mode, NULL, GVM_FOREVER, &lease) ==
                   GVM_OK);
            permit(&f, 1, GVMI_PERMIT_REVOKED);
            atomic_fetch_add(&f.leases[SLOT].word, other);
            EXPECT(gvm_object_release(object, &lease) == GVM_OK && rings(&f) == last_writer);
            EXPECT((uint32_t)word(&f) == other);
            atomic_fetch_sub(&f.leases[SLOT].word, other);
        }
    return close_all(&f, keeper, object);
}

static void last_writer_of_a_revoked_object_rings_though_a_reader_stays(void **state)
{
    RUN(release_before_others);
}

/* ---- the slow path */

static int script_pending(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    for (uint32_t mode = GVM_LEASE_READ; mode <= GVM_LEASE_WRITE; mode++) {
        TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
        EXPECT(f->in.body.ACQUIRE.mode == mode && f->in.body.ACQUIRE.timeout_ms == -1);
        EXPECT(!gvmi_lease_any(word(f)));
        TRY_LINE(granted(f, SLOT)); /* the permit allows nothing */
        TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
        EXPECT(f->in.body.TAKEN.slot == SLOT && f->in.body.TAKEN.mode == mode);
        if (mode == GVM_LEASE_READ)
            EXPECT((uint32_t)word(f) == GVMI_LEASE_READER);
        else
            EXPECT((uint32_t)word(f) == GVMI_LEASE_WRITER);
        EXPECT(gvmi_lease_acquires(word(f)) == 1 + mode); /* each counted once */
        permit(f, 1, GVMI_PERMIT_REVOKED);                /* lets the test release */
        while (gvmi_lease_any(word(f)))
            sched_yield();
        permit(f, 1, 0);
    }
    return serve_close_and_end(f);
}

static int have_maps_pending(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_pending, &keeper, &object));
    for (uint32_t mode = GVM_LEASE_READ; mode <= GVM_LEASE_WRITE; mode++) {
        EXPECT(gvm_object_acquire(object, (gvm_lease_mode)mode, NULL, GVM_FOREVER, &lease) == GVM_OK);
        EXPECT(lease.mode == mode && lease.size_bytes == CHUNK &&
               lease.address == gvmi_pointer(object->address));
        while ((atomic_load(&f.permits[SLOT].word) & GVMI_PERMIT_REVOKED) == 0)
            sched_yield();
        EXPECT(gvm_object_release(object, &lease) == GVM_OK);
        while ((atomic_load(&f.permits[SLOT].word) & GVMI_PERMIT_REVOKED) != 0)
            sched_yield();
    }
    return close_all(&f, keeper, object);
}

static void lease_granted_is_in_the_word_before_taken(void **state)
{
    RUN(have_maps_pending);
}

static int script_conflict(fake *f)
{
    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(f->in.body.ACQUIRE.mode == GVM_LEASE_WRITE && (uint32_t)word(f) == GVMI_LEASE_READER);
    TRY_LINE(failed(f, GVM_E_TIMEOUT, ""));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(f->in.body.ACQUIRE.mode == GVM_LEASE_READ && (uint32_t)word(f) == GVMI_LEASE_WRITER);
    TRY_LINE(failed(f, GVM_E_TIMEOUT, ""));
    TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
    EXPECT(f->in.body.ACQUIRE.mode == GVM_LEASE_WRITE && (uint32_t)word(f) == GVMI_LEASE_WRITER);
    TRY_LINE(failed(f, GVM_E_TIMEOUT, ""));
    return serve_close_and_end(f);
}

static int conflict_here(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease a, b;
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_conflict, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_WRITE);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &a) == GVM_OK);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &b) == GVM_E_TIMEOUT);
    EXPECT(gvm_object_release(object, &a) == GVM_OK);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &a) == GVM_OK);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &b) == GVM_E_TIMEOUT);
    EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &b) == GVM_E_TIMEOUT);
    EXPECT(gvm_object_release(object, &a) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void conflict_within_the_process_goes_to_the_keeper(void **state)
{
    RUN(conflict_here);
}

static int script_partial(fake *f)
{
    static const uint32_t hints[] = {GVM_HINT_NONE, GVM_HINT_HOT};

    TRY_LINE(greet_and_open(f, 1));
    for (int i = 0; i < 2; i++) {
        TRY_LINE(receive(f, GVMI_WIRE_ACQUIRE));
        EXPECT(f->in.body.ACQUIRE.hint == hints[i]);
        TRY_LINE(granted(f, SLOT));
        TRY_LINE(receive(f, GVMI_WIRE_TAKEN));
    }
    return serve_close_and_end(f);
}

static int lease_partial(void *arg)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease leases[4];
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_partial, &keeper, &object));
    permit(&f, 1, GVMI_PERMIT_READ | GVMI_PERMIT_PARTIAL);
    for (uint32_t hint = GVM_HINT_NONE; hint <= GVM_HINT_ONCE; hint++) {
        const gvm_acquire_options options = {.struct_size = sizeof options, .hint = (gvm_hint)hint};

        EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &leases[hint]) ==
               GVM_OK);
    }
    EXPECT(gvmi_lease_readers(word(&f)) == 4);
    for (int i = 0; i < 4; i++)
        EXPECT(gvm_object_release(object, &leases[i]) == GVM_OK);
    return close_all(&f, keeper, object);
}

static void lease_on_a_partial_object_asks_unless_for_a_scan(void **state)
{
    RUN(lease_partial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connection_is_greeted_and_ends_with_bye),
        cmocka_unit_test(connection_with_bad_welcome_is_refused),
        cmocka_unit_test(connect_to_nobody_says_how_to_start_a_keeper),
        cmocka_unit_test(connect_to_a_busy_keeper_waits_in_order),
        cmocka_unit_test(default_path_goes_by_setting_user_and_folder),
        cmocka_unit_test(object_is_created_as_asked),
        cmocka_unit_test(object_on_unseen_device_is_closed_again),
        cmocka_unit_test(object_opened_at_its_creators_address_is_there_or_nowhere),
        cmocka_unit_test(object_opened_has_its_usual_address_if_that_is_free),
        cmocka_unit_test(addresses_for_objects_are_kept_free_while_connected),
        cmocka_unit_test(lease_that_nobody_minds_sends_nothing),
        cmocka_unit_test(lease_calls_refuse_what_is_no_lease),
        cmocka_unit_test(lease_beyond_the_limit_is_refused),
        cmocka_unit_test(acquire_that_would_be_one_too_many_to_wait_is_refused),
        cmocka_unit_test(stale_pointer_is_foreign),
        cmocka_unit_test(child_of_a_fork_cannot_touch_its_parents_leases),
        cmocka_unit_test(acquire_that_backs_out_of_a_revoked_object_rings),
        cmocka_unit_test(last_release_of_a_revoked_object_rings),
        cmocka_unit_test(last_writer_of_a_revoked_object_rings_though_a_reader_stays),
        cmocka_unit_test(lease_granted_is_in_the_word_before_taken),
        cmocka_unit_test(conflict_within_the_process_goes_to_the_keeper),
        cmocka_unit_test(lease_on_a_partial_object_asks_unless_for_a_scan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
