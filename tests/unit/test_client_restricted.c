/* gvm_client_restrict() and GVM_KEEPER_RESTRICT_OTHERS: what a connection that opens links alone can do, and what it
 * cannot.
 *
 * Each test runs in a child, since a driver is started once a process.
 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

#define CHUNK (2 * MIB)

typedef struct fixture {
    gvm_keeper *server;
    gvm_client *keeper;
    char path[64];
} fixture;

/* A keeper of this process, and a connection to it; an object /x of two chunks. */
static int start(fixture *w, gvm_keeper_options o, gvm_object **object)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK, .size_bytes = 2 * CHUNK};
    int fd;

    o.struct_size = sizeof o;
    o.device_budget_bytes = 16 * MIB;
    o.host_budget_bytes = 64 * MIB;
    CHILD_EXPECT(gvm_keeper_start(&o, &w->server) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_open_socket(w->server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &w->keeper) == GVM_OK);
    CHILD_EXPECT(gvm_object_create(w->keeper, "/x", 4 * CHUNK, &options, object) == GVM_OK);
    return 0;
}

static int stop(fixture *w)
{
    gvm_client_close(w->keeper);
    gvm_keeper_stop(w->server);
    return 0;
}

static const gvm_acquire_options for_cpu = {.struct_size = sizeof for_cpu, .flags = GVM_ACQUIRE_CPU};

/* Kernels and copies write by a link; all other requests over the connection fail. */
static int use_restricted(gvm_client *keeper)
{
    const uint32_t word = 0x12345678;
    gvm_object *object;
    gvm_snapshot *snapshot = NULL;
    gvm_lease lease;

    CHILD_EXPECT(gvm_object_open(keeper, "/x", 0, &object) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_create(keeper, NULL, CHUNK, NULL, &object) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_client_get_snapshot(keeper, &snapshot) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_drop(keeper, "/x") == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_open(keeper, "/secret", GVM_OPEN_LINK, &object) == GVM_OK);
    CHILD_EXPECT(gvm_object_grow(object, 2 * CHUNK) == GVM_E_INVALID); /* beyond what it sees */
    CHILD_EXPECT(gvm_object_shrink(object, 0) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease) == GVM_OK &&
                 lease.size_bytes == CHUNK);
    CHILD_EXPECT(gvm_object_release(object, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(object, 64, &word, sizeof word, GVM_FOREVER) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(object, CHUNK - 2, &word, sizeof word, GVM_FOREVER) ==
                 GVM_E_INVALID);
    gvm_object_close(object);
    gvm_client_close(keeper);
    return 0;
}

static int restrict_socket(void *arg)
{
    fixture w;
    gvm_object *object;
    gvm_client *keeper;
    uint32_t word = 0;
    int fd, pair[2];

    (void)arg;
    fixture_machine("devices=1,memory=64MiB");
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.path = ""}, &object) == 0);
    CHILD_EXPECT(gvm_object_link(object, "/secret", 0600, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_restrict(fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &keeper) == GVM_OK && use_restricted(keeper) == 0);
    CHILD_EXPECT(gvm_object_copy_out(&word, object, 64, sizeof word, GVM_FOREVER) == GVM_OK &&
                 word == 0x12345678);
    CHILD_EXPECT(gvm_client_restrict(-1) == GVM_E_INVALID);
    CHILD_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    close(pair[1]);
    CHILD_EXPECT(gvm_client_restrict(pair[0]) == GVM_E_PEER);
    close(pair[0]);
    return stop(&w);
}

CHILD_TEST(client_restricted_opens_links_alone, restrict_socket)

/* Where it waited for all readers all later requests would wait for it. */
static int wait_for_no_lease(void *arg)
{
    fixture w;
    gvm_object *object, *link;
    gvm_client *keeper;
    gvm_lease own, read;
    int fd;

    (void)arg;
    fixture_machine("devices=1,memory=64MiB");
    CHILD_EXPECT(start(&w, (gvm_keeper_options){.path = ""}, &object) == 0);
    CHILD_EXPECT(gvm_object_link(object, "/secret", 0400, CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_keeper_open_socket(w.server, &fd) == GVM_OK && gvm_client_restrict(fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, &keeper) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(keeper, "/secret", GVM_OPEN_LINK | GVM_OPEN_READONLY, &link) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &own) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(link, GVM_LEASE_READ, &for_cpu, GVM_FOREVER, &read) ==
                 GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_release(object, &own) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(link, GVM_LEASE_READ, &for_cpu, GVM_FOREVER, &read) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &own) == GVM_OK);
    CHILD_EXPECT(gvm_object_release(link, &read) == GVM_OK &&
                 gvm_object_release(object, &own) == GVM_OK);
    gvm_object_close(link);
    gvm_client_close(keeper);
    return stop(&w);
}

CHILD_TEST(client_restricted_waits_for_no_lease, wait_for_no_lease)

/* In a child of another user: what it is refused does not reach the driver. */
static int ask_as_another(const char *path, int go)
{
    gvm_client *keeper;
    gvm_object *object;
    gvm_snapshot *snapshot = NULL;
    char byte;

    CHILD_EXPECT(read(go, &byte, 1) == 1 && setgid(65534) == 0 && setuid(65534) == 0);
    CHILD_EXPECT(gvm_client_connect(path, &keeper) == GVM_OK);
    CHILD_EXPECT(gvm_client_get_snapshot(keeper, &snapshot) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_open(keeper, "/x", 0, &object) == GVM_E_DENIED);
    CHILD_EXPECT(gvm_object_open(keeper, "/secret", GVM_OPEN_LINK, &object) == GVM_E_ABSENT);
    gvm_client_close(keeper);
    return 0;
}

/* Only root can be another user. The child is made before a driver is loaded. */
static int restrict_others(void *arg)
{
    fixture w;
    gvm_object *object;
    int go[2], status;
    pid_t pid;

    (void)arg;
    fixture_machine("devices=1,memory=64MiB");
    snprintf(w.path, sizeof w.path, "/tmp/gvmem-test-restricted-%d", (int)getpid());
    CHILD_EXPECT(gvm_keeper_start(&(gvm_keeper_options){.struct_size = sizeof(gvm_keeper_options),
                                                        .path = w.path,
                                                        .flags = 2},
                                  &w.server) == GVM_E_INVALID);
    if (geteuid() != 0)
        return 0;
    CHILD_EXPECT(pipe2(go, O_CLOEXEC) == 0);
    pid = fork();
    CHILD_EXPECT(pid >= 0);
    if (pid == 0)
        _exit(ask_as_another(w.path, go[0]));
    CHILD_EXPECT(start(&w,
                       (gvm_keeper_options){
                           .path = w.path, .socket_mode = 0666, .flags = GVM_KEEPER_RESTRICT_OTHERS},
                       &object) == 0);
    CHILD_EXPECT(write(go[1], "", 1) == 1);
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return stop(&w);
}

CHILD_TEST(client_of_another_user_is_restricted_with_the_flag, restrict_others)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_restricted_opens_links_alone),
        cmocka_unit_test(client_restricted_waits_for_no_lease),
        cmocka_unit_test(client_of_another_user_is_restricted_with_the_flag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
