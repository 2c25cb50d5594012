/* See executor.h: life. The main thread receives connections from the spawner and sends it signs of life: it calls
 * neither the driver nor the keeper, which may take long. Another one gives up what has not been used for a while.
 * Each connection has a thread.
 *
 * Nothing is cleaned up at the end: the driver takes everything back, and does not wait for work that is under way. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "postgres/spawned.h"
#include "postgres/spawner.h"
#include "query/executor.h"
#include "query/hash.h"

#define SPIN_NS 50000
#define IDLE_MS 60000 /* without connections; then it ends */
#define FAILED_MS \
    10000 /* likewise, where the device could not be opened: the next executor tries again */
#define LOOK_MS 1000 /* at deadlines */
#define LONG_MS \
    (GSTORE_SPAWN_HANG_MS / 3) /* of a launch: well before the executor counts as hanging */
#define NS_PER_MS INT64_C(1000000)
#define BEAT_NS (GSTORE_SPAWN_BEAT_MS / 2 * NS_PER_MS)

static struct {
    int32_t ordinal;
    gquery_tables *tables;
    pthread_mutex_t lock; /* of connections */
    gquery_connection *connections;
    int64_t idle_ns; /* since when there are none */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- a connection */

static void add_connection(gquery_connection *c)
{
    pthread_mutex_lock(&state.lock);
    c->next = state.connections;
    if (c->next != NULL)
        c->next->before = c;
    state.connections = c;
    pthread_mutex_unlock(&state.lock);
}

static void remove_connection(gquery_connection *c)
{
    pthread_mutex_lock(&state.lock);
    if (c->next != NULL)
        c->next->before = c->before;
    if (c->before != NULL)
        c->before->next = c->next;
    else
        state.connections = c->next;
    state.idle_ns = gquery_now_ns();
    pthread_mutex_unlock(&state.lock);
}

static void free_connection(gquery_connection *c)
{
    gquery_unmap_window(c);
    close(c->socket);
    close(c->memory);
    free(c);
}

static bool is_nothing(ssize_t bytes)
{
    return bytes < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Soon after a query often comes another one: it does not wait for this thread to wake up. False: the backend has
 * closed the connection, or that is no message. */
static bool receive(gquery_connection *c, gquery_message *message)
{
    const int64_t until_ns = gquery_now_ns() + SPIN_NS;
    ssize_t bytes;

    do
        bytes = recv(c->socket, message, sizeof *message, MSG_DONTWAIT);
    while (is_nothing(bytes) && gquery_now_ns() < until_ns);
    while (is_nothing(bytes))
        bytes = recv(c->socket, message, sizeof *message, 0);
    return bytes == (ssize_t)sizeof *message && message->magic == GQUERY_MAGIC;
}

/* False: there is no such verb. */
static bool carry_out(gquery_connection *c, uint32_t verb, gquery_message *answer)
{
    if (verb == GQUERY_RUN)
        gquery_forget(c); /* what the backend has not fetched of the query before */
    if (verb == GQUERY_RUN && !gquery_read_window(c))
        gquery_answer(answer, GQUERY_ERROR, "XX000",
                      "the query for the GPU is malformed: its memory file");
    else if (verb == GQUERY_RUN)
        gquery_run(state.tables, state.ordinal, c, answer);
    else if (verb == GQUERY_FETCH)
        gquery_fetch(c, answer);
    else if (verb == GQUERY_FORGET)
        gquery_forget(c);
    else
        return false;
    return true;
}

static void serve(gquery_connection *c)
{
    gquery_message message;

    while (receive(c, &message)) {
        gquery_message answer = {.magic = GQUERY_MAGIC, .verb = GQUERY_DONE};
        bool known, sent;

        atomic_store(&c->moved_ns, gquery_now_ns());
        known = carry_out(c, message.verb, &answer);
        atomic_store(&c->moved_ns, 0);
        if (!known)
            return;
        sent = message.verb == GQUERY_FORGET ||
               send(c->socket, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
        if (answer.lost != 0) { /* also where the backend is gone: others would meet the broken context */
            fprintf(stderr, "gstore-executor: the executor of queries on GPU %d ends: %s\n",
                    (int)state.ordinal, answer.text);
            _exit(1);
        }
        if (!sent)
            return;
    }
}

static void *connection_main(void *argument)
{
    gquery_connection *c = argument;

    serve(c);
    if (c->has_context) {
        gquery_forget(c);
        gvm_device_pop_context();
    }
    remove_connection(c);
    free_connection(c);
    return NULL;
}

/* The file must keep what is mapped of it: a process that reads behind its end is killed. */
static bool is_sealed(int memory)
{
    const int seals = fcntl(memory, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

static int start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int error;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

static void start_connection(int socket, int memory)
{
    gquery_connection *c = calloc(1, sizeof *c);

    if (c == NULL || !is_sealed(memory) || fcntl(socket, F_SETFL, 0) != 0) {
        close(socket);
        close(memory);
        free(c);
        return;
    }
    c->socket = socket;
    c->memory = memory;
    add_connection(c);
    if (start_thread(connection_main, c) != 0) {
        remove_connection(c);
        free_connection(c);
    }
}

/* ---- the spawner */

/* False: the spawner is gone. */
static bool receive_connection(void)
{
    gstore_spawn_request request;
    int fds[2], count;
    const ssize_t bytes = gstore_spawn_receive(GSTORE_SPAWN_CONTROL, &request, fds, 2, &count);

    if (bytes < 0)
        return errno == EAGAIN || errno == EINTR || errno == ENOMEM || errno == ENOBUFS;
    if (bytes == 0)
        return false;
    if (bytes == (ssize_t)sizeof request && request.magic == GSTORE_SPAWN_MAGIC && count == 2) {
        start_connection(fds[0], fds[1]);
        return true;
    }
    for (int i = 0; i < count && i < 2; i++)
        close(fds[i]);
    return true;
}

/* For how long the query that went on before all others has not. */
static int64_t longest_still_ns(int64_t now_ns)
{
    int64_t longest_ns = 0;

    pthread_mutex_lock(&state.lock);
    for (gquery_connection *c = state.connections; c != NULL; c = c->next) {
        const int64_t moved_ns = atomic_load(&c->moved_ns);

        if (moved_ns != 0 && now_ns - moved_ns > longest_ns)
            longest_ns = now_ns - moved_ns;
    }
    pthread_mutex_unlock(&state.lock);
    return longest_ns;
}

/* Launches that take long: a row may have more matches in a join than anybody waits for. */
static void halt_long(int64_t now_ns)
{
    pthread_mutex_lock(&state.lock);
    for (gquery_connection *c = state.connections; c != NULL; c = c->next) {
        const int64_t moved_ns = atomic_load(&c->moved_ns);
        const int64_t still_ns = moved_ns != 0 ? now_ns - moved_ns : 0;

        if (still_ns >= LONG_MS * NS_PER_MS || (still_ns >= LOOK_MS * NS_PER_MS && gquery_is_gone(c)))
            gquery_lane_halt(c);
    }
    pthread_mutex_unlock(&state.lock);
}

/* Whether it has been of no use for so long that it ends. */
static bool is_over(int64_t now_ns)
{
    const int64_t failed_ns = gquery_device_failed_ns();
    bool over;

    pthread_mutex_lock(&state.lock);
    over = state.connections == NULL && now_ns - state.idle_ns >= IDLE_MS * NS_PER_MS;
    pthread_mutex_unlock(&state.lock);
    return over || (failed_ns != 0 && now_ns - failed_ns >= FAILED_MS * NS_PER_MS);
}

static void send_beat(int64_t still_ns)
{
    const int64_t still_ms = still_ns / NS_PER_MS;
    const gstore_spawn_beat beat = {still_ms < GSTORE_SPAWN_HANG_MS ? (int32_t)still_ms
                                                                    : GSTORE_SPAWN_HANG_MS};

    (void)send(GSTORE_SPAWN_CONTROL, &beat, sizeof beat, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void watch(void)
{
    int64_t beat_ns = 0;

    for (;;) {
        struct pollfd control = {GSTORE_SPAWN_CONTROL, POLLIN, 0};
        const int ready = poll(&control, 1, LOOK_MS);
        const int64_t now_ns = gquery_now_ns();

        if (ready > 0 && !receive_connection())
            return;
        if (now_ns >= beat_ns) {
            send_beat(gquery_device_is_opening(now_ns) ? 0 : longest_still_ns(now_ns));
            beat_ns = now_ns + BEAT_NS;
        }
        halt_long(now_ns);
        if (is_over(now_ns))
            return;
    }
}

/* ---- what has not been used for a while */

static void *rest_main(void *argument)
{
    (void)argument;
    for (;;) {
        gquery_scratch_await(GQUERY_REST_NS);
        gquery_tables_detach_unused(state.tables, GQUERY_REST_NS);
        gquery_hash_rest(GQUERY_HASH_REST_NS);
        gquery_device_rest();
    }
    return NULL;
}

/* ---- start */

/* Each connection has two. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    gvm_client *objects;
    gvm_error error;

    if (argc != 4) {
        fputs("gstore-executor is started by gstore_fdw, for queries on a GPU\n", stderr);
        return 2;
    }
    if (!gstore_spawned_begin(GSTORE_SPAWN_EXECUTOR_OBJECTS, argv[3]))
        return 1;
    allow_descriptors();
    state.ordinal = (int32_t)atol(argv[1]);
    state.idle_ns = gquery_now_ns();
    if (gquery_tables_create(GSTORE_SPAWN_EXECUTOR_KEEPER, &state.tables) != GVM_OK ||
        gvm_client_adopt(GSTORE_SPAWN_EXECUTOR_OBJECTS, &objects) != GVM_OK) {
        gvm_error_last(&error);
        fprintf(stderr, "gstore-executor: cannot use the connections to the GPU memory keeper: %s\n",
                error.text);
        return 1;
    }
    gquery_hash_init(objects);
    gquery_scratch_init(objects, state.ordinal);
    if (start_thread(rest_main, NULL) != 0) {
        fputs("gstore-executor: cannot start a thread\n", stderr);
        return 1;
    }
    watch();
    _exit(0);
}
