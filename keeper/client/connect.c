/* Connections: from a socket's path to a mapper at work, and back. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "keeper/client/client.h"
#include "keeper/protocol/path.h"
#include "sharing/socket.h"

/* ---- pages and greetings */

/* Maps one of the keeper's pages. It must be large enough, and stay so: an access beyond the end of
 * a file is fatal. */
static gvm_status map_page(int fd, size_t bytes, int protection, void **out)
{
    struct stat found;
    const int seals = fcntl(fd, F_GET_SEALS);
    void *page;

    if (fstat(fd, &found) != 0 || found.st_size < (off_t)bytes || seals < 0 ||
        (seals & F_SEAL_SHRINK) == 0)
        return gvm_error_set(GVM_E_FORMAT, "what the keeper sent is no sealed page of %zu bytes",
                             bytes);
    page = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "mmap", "cannot map a page of the keeper's");
    *out = page;
    return GVM_OK;
}

static gvm_status take_welcome(gvm_client *client, gvmi_client_message *message)
{
    const gvmi_wire_welcome *welcome = &message->wire.body.WELCOME;
    void *page;
    gvm_status status;

    if (message->wire.head.type == GVMI_WIRE_FAILED)
        return gvm_error_set((gvm_status)message->wire.body.FAILED.status, "%.*s",
                             GVMI_WIRE_TEXT_BYTES, message->wire.body.FAILED.text);
    if (message->wire.head.type != GVMI_WIRE_WELCOME || welcome->slots != GVM_OBJECTS_OPEN_MAX)
        return gvm_error_set(GVM_E_FORMAT, "the keeper answered HELLO with %s",
                             gvmi_wire_name_of(message->wire.head.type));
    if (message->came.lost)
        return gvm_error_set(GVM_E_LIMIT,
                             "the process has too many open files to connect: raise ulimit -n");
    status = map_page(message->fds[0], GVMI_LEASE_PAGE_BYTES, PROT_READ | PROT_WRITE, &page);
    if (status != GVM_OK)
        return status;
    client->leases = page;
    status = map_page(message->fds[1], GVMI_PERMIT_PAGE_BYTES, PROT_READ, &page);
    if (status != GVM_OK)
        return status;
    client->permits = page;
    client->doorbell = message->fds[2];
    message->came.count = 2;
    client->keeper_pid = welcome->keeper_pid;
    return GVM_OK;
}

static gvm_status send_hello(gvm_client *client)
{
    gvmi_client_message answer;
    gvmi_wire_message hello;
    gvm_status status;

    gvmi_wire_start(&hello, GVMI_WIRE_HELLO, atomic_fetch_add(&client->next_number, 1));
    hello.body.HELLO.magic = GVMI_WIRE_MAGIC;
    hello.body.HELLO.version = GVMI_WIRE_VERSION;
    status = gvmi_client_send(client, &hello, gvmi_deadline_ns(GVMI_CLIENT_CONNECT_MS));
    if (status == GVM_OK)
        status = gvmi_client_receive(client->socket, GVMI_CLIENT_CONNECT_MS, &answer);
    if (status != GVM_OK)
        return status;
    status = take_welcome(client, &answer);
    gvmi_fds_close(&answer.came);
    return status;
}

/* ---- connections in a child made by fork()
 *
 * It has the pages, but neither the mapper nor a driver that works. */

static gvmi_mutex list_lock = GVMI_MUTEX_INIT(GVMI_RANK_KEEPER);
static gvm_client *connections;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    gvmi_lock(&list_lock);
}

static void after_fork_in_parent(void)
{
    gvmi_unlock(&list_lock);
}

/* Other threads may have been at work on a connection when the process forked: nothing of it is
 * looked at but the slots, whose objects are in memory, alive or retired. */
static void after_fork_in_child(void)
{
    for (gvm_client *client = connections; client != NULL; client = client->next) {
        atomic_store(&client->magic, GVMI_DEAD_MAGIC);
        for (uint32_t i = 0; i < GVM_OBJECTS_OPEN_MAX; i++)
            if (client->slots[i] != NULL)
                atomic_store(&client->slots[i]->magic, GVMI_DEAD_MAGIC);
    }
    connections = NULL;
    gvmi_client_reset_range_in_child();
    gvmi_unlock(&list_lock);
}

static void watch_forks(void)
{
    /* Without memory for it a child is not protected from itself. */
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void list_connection(gvm_client *client)
{
    gvmi_lock(&list_lock);
    client->next = connections;
    if (connections != NULL)
        connections->prev = client;
    connections = client;
    gvmi_unlock(&list_lock);
}

static void unlist_connection(gvm_client *client)
{
    gvmi_lock(&list_lock);
    if (client->prev != NULL)
        client->prev->next = client->next;
    else
        connections = client->next;
    if (client->next != NULL)
        client->next->prev = client->prev;
    gvmi_unlock(&list_lock);
}

/* ---- life */

static gvm_status new_client(int socket_fd, gvm_client **out)
{
    gvm_client *client = calloc(1, sizeof *client);

    if (client == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a connection");
    client->references = 1;
    client->socket = socket_fd;
    client->doorbell = -1;
    client->next_number = 1;
    gvmi_mutex_init(&client->send_lock, GVMI_RANK_KEEPER_SEND);
    gvmi_mutex_init(&client->lock, GVMI_RANK_KEEPER);
    gvmi_cond_init(&client->changed);
    gvmi_cond_init(&client->sent);
    *out = client;
    return GVM_OK;
}

/* Signals are the program's: none is delivered to the mapper. */
static gvm_status start_mapper(gvm_client *client)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&client->mapper, NULL, gvmi_client_run_mapper, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread");
    (void)pthread_setname_np(client->mapper, "gvmem-mapper");
    return GVM_OK;
}

/* Asks a mapper to end, and waits for it. Then nothing is mapped any more, and the keeper may see the
 * socket's end, though releases that are still to come keep it open. */
static void stop_mapper(gvm_client *client)
{
    gvmi_client_break(client);
    pthread_join(client->mapper, NULL);
    shutdown(client->socket, SHUT_RDWR);
}

/* On failure the socket stays the caller's. */
static gvm_status begin_client(int socket_fd, gvm_client **out)
{
    gvm_client *client = NULL;
    gvm_status status = new_client(socket_fd, &client);

    if (status != GVM_OK)
        return status;
    pthread_once(&fork_once, watch_forks);
    status = gvmi_client_hold_range(client);
    if (status != GVM_OK)
        goto fail_drop;
    status = send_hello(client);
    if (status != GVM_OK)
        goto fail_release;
    status = start_mapper(client);
    if (status != GVM_OK)
        goto fail_release;
    status = gvmi_registry_add(GVMI_KIND_CONNECTION, gvmi_key(client), client);
    if (status != GVM_OK)
        goto fail_stop;
    atomic_store(&client->magic, GVMI_CLIENT_MAGIC);
    list_connection(client);
    *out = client;
    return GVM_OK;

fail_stop:
    stop_mapper(client);
fail_release:
    gvmi_client_release_range(client);
fail_drop:
    client->socket = -1;
    gvmi_client_drop(client);
    return status;
}

gvm_status gvm_client_adopt(int socket_fd, gvm_client **out)
{
    GVMI_UNCANCELLED;
    gvmi_socket checked;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = gvmi_socket_begin(socket_fd, GVMI_CLIENT_CONNECT_MS, &checked);
    if (status != GVM_OK)
        return status;
    status = begin_client(socket_fd, out);
    if (status == GVM_OK)
        (void)fcntl(socket_fd, F_SETFD, FD_CLOEXEC); /* a program that is executed must not keep it open */
    return status;
}

/* ---- restricting */

static gvm_status call_restrict(gvm_client *client)
{
    gvmi_client_message answer;
    gvmi_wire_message message;
    gvm_status status;

    gvmi_wire_start(&message, GVMI_WIRE_RESTRICT, 1);
    status = gvmi_client_send(client, &message, gvmi_deadline_ns(GVMI_CLIENT_CONNECT_MS));
    if (status == GVM_OK)
        status = gvmi_client_receive(client->socket, GVMI_CLIENT_CONNECT_MS, &answer);
    if (status != GVM_OK)
        return status;
    gvmi_fds_close(&answer.came);
    if (answer.wire.head.type == GVMI_WIRE_FAILED)
        return gvm_error_set((gvm_status)answer.wire.body.FAILED.status, "%.*s",
                             GVMI_WIRE_TEXT_BYTES, answer.wire.body.FAILED.text);
    if (answer.wire.head.type != GVMI_WIRE_DONE)
        return gvm_error_set(GVM_E_FORMAT, "the keeper answered RESTRICT with %s",
                             gvmi_wire_name_of(answer.wire.head.type));
    return GVM_OK;
}

gvm_status gvm_client_restrict(int socket_fd)
{
    GVMI_UNCANCELLED;
    gvmi_socket checked;
    gvm_client *client = NULL;
    gvm_status status = gvmi_socket_begin(socket_fd, GVMI_CLIENT_CONNECT_MS, &checked);

    if (status == GVM_OK)
        status = new_client(socket_fd, &client);
    if (status != GVM_OK)
        return status;
    status = call_restrict(client);
    client->socket = -1;
    gvmi_client_drop(client);
    return status;
}

/* ---- connecting by path */

static gvm_status fail_connect(int code, const char *path)
{
    switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
        return gvmi_fail_system(
            GVM_E_PEER, code, "connect",
            "no keeper listens at %s: start one (gvmem keeper start --socket PATH), or set GVMEM_KEEPER to "
            "the socket of one that runs",
            path);
    case EACCES:
    case EPERM:
        return gvmi_fail_system(GVM_E_DENIED, code, "connect", "connecting to %s is not permitted",
                                path);
    case EAGAIN:
        return gvmi_fail_system(GVM_E_TIMEOUT, code, "connect",
                                "the keeper at %s takes no connections within %d ms", path,
                                GVMI_CLIENT_CONNECT_MS);
    default:
        return gvmi_fail_system(GVM_E_SYSTEM, code, "connect", "connecting to %s failed", path);
    }
}

/* While the keeper's queue is full, connect() waits in the order of the callers, and returns EAGAIN
 * after SO_SNDTIMEO. */
static gvm_status connect_socket(int fd, const struct sockaddr_un *address)
{
    const int64_t deadline_ns = gvmi_deadline_ns(GVMI_CLIENT_CONNECT_MS);

    for (;;) {
        const int64_t left_ns = deadline_ns - gvmi_now_ns();
        const struct timeval left = {.tv_sec = left_ns / 1000000000,
                                     .tv_usec = left_ns / 1000 % 1000000};

        if (left_ns < 1000)
            return fail_connect(EAGAIN, address->sun_path);
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof left) != 0)
            return gvmi_fail_system(GVM_E_SYSTEM, errno, "setsockopt",
                                    "cannot limit the time of a connect");
        if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0)
            return GVM_OK;
        if (errno != EINTR)
            return fail_connect(errno, address->sun_path);
    }
}

/* In a folder where anybody may make files, the keeper must be the user's own or root's. */
static gvm_status check_listener(int fd, const char *path)
{
    struct ucred found = {.uid = (uid_t)-1};
    socklen_t bytes = sizeof found;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "getsockopt", "cannot tell who listens at %s",
                                path);
    if (found.uid != geteuid() && found.uid != 0)
        return gvm_error_set(GVM_E_DENIED,
                             "the keeper at %s is user %u's: name it in GVMEM_KEEPER to use it",
                             path, (unsigned)found.uid);
    return GVM_OK;
}

static gvm_status connect_to_path(const char *path, bool anybodys, bool restricted, gvm_client **out)
{
    struct sockaddr_un address;
    int fd;
    gvm_status status = gvmi_keeper_address(path, &address);

    if (status != GVM_OK)
        return status;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "socket", "cannot make a socket");
    status = connect_socket(fd, &address);
    if (status == GVM_OK && anybodys)
        status = check_listener(fd, path);
    if (status == GVM_OK && restricted)
        status = gvm_client_restrict(fd);
    if (status == GVM_OK)
        status = begin_client(fd, out);
    if (status != GVM_OK)
        close(fd);
    return status;
}

gvm_status gvm_client_connect(const char *path, gvm_client **out)
{
    GVMI_UNCANCELLED;
    char fallback[GVMI_KEEPER_PATH_BYTES];
    bool anybodys = false;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (path == NULL) {
        status = gvmi_keeper_default_path(fallback, &anybodys);
        if (status != GVM_OK)
            return status;
        path = fallback;
    }
    return connect_to_path(path, anybodys, false, out);
}

gvm_status gvmi_client_connect_restricted(const char *path, gvm_client **out)
{
    return connect_to_path(path, false, true, out);
}

/* ---- end */

/* CLOSE is sent for each, since BYE alone is not enough for objects of other users. If the keeper does not
 * answer in time, the rest is left to BYE. False: collections hold some, and the last of these ends the connection. */
static bool close_objects(gvm_client *client)
{
    const int64_t deadline_ns = gvmi_deadline_ns(GVMI_CLIENT_BYE_MS);
    bool all;

    gvmi_lock(&client->lock);
    client->ending = true;
    gvmi_unlock(&client->lock);
    for (uint32_t i = 0; i < GVM_OBJECTS_OPEN_MAX; i++) {
        const gvm_object *handle;
        void *object;

        gvmi_lock(&client->lock);
        handle = client->slots[i];
        gvmi_unlock(&client->lock);
        if (handle != NULL && gvmi_registry_remove(GVMI_KIND_OBJECT, gvmi_key(handle), &object) == GVM_OK)
            gvmi_client_close_object(object, gvmi_now_ns() < deadline_ns);
    }
    gvmi_lock(&client->lock);
    all = client->left_objects == 0;
    client->left = true;
    gvmi_unlock(&client->lock);
    return all;
}

static void send_bye(gvm_client *client)
{
    gvmi_wire_message bye;

    gvmi_wire_start(&bye, GVMI_WIRE_BYE, 0);
    /* It sees the socket close, too. */
    (void)gvmi_client_send(client, &bye, gvmi_deadline_ns(GVMI_CLIENT_BYE_MS));
}

void gvm_client_abort(gvm_client *handle)
{
    GVMI_UNCANCELLED;
    const gvm_error error = gvmi_error_save();
    gvm_client *client;

    if (gvmi_client_enter(handle, &client) == GVM_OK) {
        gvmi_client_break(client); /* the mapper sees that, and ends the requests */
        gvmi_client_leave(client);
    }
    gvm_error_restore(&error);
}

/* False: the mapper has still to end one, so that not all is unmapped. */
static bool is_all_unmapped(gvm_client *client)
{
    bool all;

    gvmi_lock(&client->lock);
    all = client->leaving == NULL;
    gvmi_unlock(&client->lock);
    return all;
}

static void end_connection(gvm_client *client)
{
    unlist_connection(client);
    if (is_all_unmapped(client)) /* BYE says that nothing is mapped */
        send_bye(client);
    stop_mapper(client);
    gvmi_client_release_range(client);
    atomic_store(&client->magic, GVMI_DEAD_MAGIC);
    gvmi_client_drop(client);
}

void gvmi_client_unhold_object(gvm_object *object)
{
    gvm_client *client = object->client;
    bool last, last_of_all;
    uint64_t permit;

    gvmi_lock(&client->lock);
    (void)gvmi_client_give_back(object, GVM_LEASE_READ, &permit);
    last = --object->holders == 0 && object->left;
    gvmi_unlock(&client->lock);
    if (!last)
        return;
    gvmi_client_end_object(object, true);
    gvmi_lock(&client->lock);
    last_of_all = --client->left_objects == 0 && client->left;
    gvmi_unlock(&client->lock);
    if (last_of_all)
        end_connection(client);
}

void gvm_client_close(gvm_client *handle)
{
    GVMI_UNCANCELLED;
    const gvm_error error = gvmi_error_save();
    gvm_client *client;
    void *object;

    if (handle != NULL && gvmi_client_enter(handle, &client) == GVM_OK) { /* and not the parent's */
        gvmi_client_leave(client);
        if (gvmi_registry_remove(GVMI_KIND_CONNECTION, gvmi_key(handle), &object) == GVM_OK &&
            close_objects(client))
            end_connection(client);
    }
    gvm_error_restore(&error);
}
