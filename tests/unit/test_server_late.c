/* keeper/server/loop.c: who is late is judged after what has arrived was read.
 *
 * The server thread is stopped in the log's callback, with the answer of a client in its socket. The
 * clock of this program stands still and is moved by the tests alone (-Wl,--wrap=clock_gettime), so that
 * nothing here depends on the speed of the machine. */
#include "tests/lib/units.h"
#include "tests/unit/server_fixture.h"

#include <semaphore.h>

#define CHUNK (2 * MIB)
#define CLOCK_STEP_MS 40 /* less than what a turn of the server counts at most */
#define HELD_UP_MS 50    /* as much */
#define REQUESTS 100     /* more than the server takes of a client in a turn */

static _Atomic int64_t clock_ns; /* 0: the system's */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    const int64_t ns = atomic_load(&clock_ns);

    if (id != CLOCK_MONOTONIC || ns == 0)
        return __real_clock_gettime(id, out);
    *out = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

static void stop_clock(void)
{
    struct timespec now;

    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&clock_ns, now.tv_sec * 1000000000 + now.tv_nsec);
}

static void move_clock(int64_t ms)
{
    atomic_fetch_add(&clock_ns, ms * 1000000);
}

/* ---- a log whose next line stops the server */

static atomic_bool hold_next;
static sem_t stopped, go_on;

static void take_and_hold(void *context, const char *line)
{
    take_line(context, line);
    if (atomic_exchange(&hold_next, false)) {
        sem_post(&stopped);
        sem_wait(&go_on);
    }
}

static int start_watched(fixture *w, uint32_t revoke_limit_ms)
{
    gvm_keeper_options options = {.struct_size = sizeof options,
                                  .path = w->path,
                                  .device_budget_bytes = 16 * MIB,
                                  .host_budget_bytes = 16 * MIB,
                                  .revoke_limit_ms = revoke_limit_ms,
                                  .log = take_and_hold,
                                  .log_context = w};

    use_small_device();
    atomic_init(&w->line_count, 0);
    CHILD_EXPECT(sem_init(&stopped, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    snprintf(w->path, sizeof w->path, "/tmp/gvmem-test-server-%d.sock", (int)getpid());
    stop_clock();
    CHILD_EXPECT(gvm_keeper_start(&options, &w->server) == GVM_OK);
    return 0;
}

/* ---- a client that has an object open */

static int make_object(const fixture *w)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK,
                                        .size_bytes = CHUNK,
                                        .flags = GVM_OBJECT_KEEP};
    gvm_client *keeper;
    gvm_object *object;
    int fd;

    CHILD_EXPECT(gvm_keeper_open_socket(w->server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &keeper) == GVM_OK);
    CHILD_EXPECT(gvm_object_create(keeper, "/x", CHUNK, &options, &object) == GVM_OK);
    gvm_client_close(keeper);
    return 0;
}

static bool ask_to_evict(const client *c)
{
    gvmi_wire_message message;

    gvmi_wire_start(&message, GVMI_WIRE_EVICT, 4);
    strcpy(message.body.EVICT.name, "/x");
    message.body.EVICT.value = UINT64_MAX;
    return tell(c->socket, &message);
}

/* ---- tests */

/* Before the server's next look at who is late, which comes every 100 ms, is no more than HELD_UP_MS left. */
static bool near_next_look(const client *c)
{
    bool good = true;

    for (int i = 0; i < 2; i++) {
        move_clock(CLOCK_STEP_MS);
        good = count_clients(c) > 0 && good; /* the server has seen that */
    }
    return good;
}

/* A client has a MAP to answer. Its answer comes while the server is stopped, behind other messages. */
static int answer_a_busy_server(uint32_t revoke_limit_ms, int requests)
{
    fixture w;
    client a, b, c;
    gvmi_wire_message map, reply;

    CHILD_EXPECT(start_watched(&w, revoke_limit_ms) == 0 && make_object(&w) == 0);
    CHILD_EXPECT(greet(dial(&w), &a) && greet(dial(&w), &b) && greet(dial(&w), &c));
    CHILD_EXPECT(open_object(&b) && near_next_look(&a));
    CHILD_EXPECT(ask_to_evict(&a) && hear_type(&b, GVMI_WIRE_MAP, &map));
    atomic_store(&hold_next, true);
    CHILD_EXPECT(tell_plain(c.socket, GVMI_WIRE_OPENED, 3)); /* it is cut off, and the log has a line */
    sem_wait(&stopped);
    for (int i = 0; i < requests; i++)
        CHILD_EXPECT(tell_plain(b.socket, GVMI_WIRE_DROP, 10 + (uint64_t)i));
    CHILD_EXPECT(say_mapped(&b, map.body.MAP.slot, map.body.MAP.serial));
    move_clock(HELD_UP_MS);
    sem_post(&go_on);
    CHILD_EXPECT(hear_type(&a, GVMI_WIRE_DONE, &reply) && count_clients(&a) > 0);
    CHILD_EXPECT(count_lines(&w, "was cut off") == 1);
    for (int i = 0; i < requests; i++)
        CHILD_EXPECT(hear_type(&b, GVMI_WIRE_FAILED, &reply));
    CHILD_EXPECT(count_clients(&b) > 0);
    hang_up(&a);
    hang_up(&b);
    hang_up(&c);
    gvm_keeper_stop(w.server);
    return 0;
}

/* The time that passed is more than twice what the client has. */
static int answer_in_time(void *arg)
{
    (void)arg;
    return answer_a_busy_server(HELD_UP_MS / 2 - 5, 0);
}

CHILD_TEST(answer_that_has_come_is_read_before_its_client_is_late, answer_in_time)

/* It is not read in the turn in which the time is over. */
static int answer_behind_requests(void *arg)
{
    (void)arg;
    return answer_a_busy_server(HELD_UP_MS - 10, REQUESTS);
}

CHILD_TEST(client_of_which_something_is_not_read_has_twice_the_time, answer_behind_requests)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_that_has_come_is_read_before_its_client_is_late),
        cmocka_unit_test(client_of_which_something_is_not_read_has_twice_the_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
