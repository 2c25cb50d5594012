/* Prices that one process writes and two others read, all of them in GPU memory, and more of them
 * than the GPU has room for.
 *
 * A keeper owns the memory. The producer makes an object, grows and fills it, and gives it the name
 * "/prices" once it is whole; the next version takes the name over in one step. The consumers open
 * the name, map the very same memory, and let a kernel sum it. While a process holds a lease, the
 * object stays where it is; in between, the keeper moves what does not fit into host memory, where
 * kernels read it at the same address.
 *
 *     cc keeper_pair.c $(pkg-config --cflags --libs gvmem-keeper) && ./a.out [SOCKET]
 *
 * Without SOCKET, where a keeper listens, this program is the keeper, too. It starts itself again
 * for each role, as "SOCKET ROLE PIPE".
 */
#define _GNU_SOURCE /* pipe2() */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gvmem/client.h>
#include <gvmem/gvmem.h>
#include <gvmem/keeper.h>

#define MIB (1ull << 20)
#define DEVICE_BUDGET (64 * MIB) /* of the keeper that this program runs */
#define HOST_BUDGET (512 * MIB)
#define VERSIONS 3
#define STEP (24 * MIB) /* a version grows by so much */
#define STEPS 4         /* so it is 96 MiB large, more than the budget */
#define CONSUMERS 2
#define PATIENCE_MS 60000

static const char *who = "keeper";

/* Every call returns a status; what exactly went wrong is kept for the thread that called. */
static void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "keeper_pair, %s: %s: %s: %s\n", who, what, gvm_status_text(status), error.text);
    exit(1);
}

static void give_up(const char *what)
{
    fprintf(stderr, "keeper_pair, %s: %s\n", who, what);
    exit(1);
}

/* What the producer attaches to each version: bytes that mean nothing to the keeper. */
typedef struct about {
    uint64_t version;
    double sum;
} about;

/* ---- the producer */

/* Makes the object larger and writes what is new. Returns the sum of that. */
static double append(gvm_object *prices, gvm_device *device, uint64_t version, uint64_t step)
{
    const uint64_t count = STEP / sizeof(double), first = step * count;
    gvm_lease lease;
    double *address, sum;

    must(gvm_object_grow(prices, (step + 1) * STEP), "cannot grow the object");
    must(gvm_object_acquire(prices, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease), "no lease to write");
    address = (double *)lease.address + first; /* the object begins where it always did */
    must(gvm_kernel_fill_random_f64(device, address, count, first, version, NULL), "cannot fill");
    must(gvm_kernel_sum_f64(device, address, count, NULL, &sum), "cannot sum"); /* and wait */
    must(gvm_object_release(prices, &lease), "cannot give the lease back");
    return sum;
}

static void produce(gvm_client *keeper, gvm_device *device, int seen)
{
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        gvm_object_info info = {.struct_size = sizeof info};
        about said = {.version = version};
        gvm_object *prices;
        char tick;

        must(gvm_object_create(keeper, NULL, STEPS * STEP, NULL, &prices), "cannot make an object");
        for (uint64_t step = 0; step < STEPS; step++)
            said.sum += append(prices, device, version, step);
        must(gvm_object_set_metadata(prices, &said, sizeof said), "cannot describe it");

        must(gvm_object_publish(prices, "/prices", GVM_PUBLISH_REPLACE), "cannot publish");
        must(gvm_object_get_info(prices, &info), "cannot ask about it");
        printf("producer:   version %llu, %llu MiB: %llu MiB on the device, %llu MiB in host memory\n",
               (unsigned long long)version, (unsigned long long)(info.size_bytes / MIB),
               (unsigned long long)(info.device_bytes / MIB),
               (unsigned long long)(info.host_bytes / MIB));

        /* What is published stays. The version before goes when its last reader closes it. */
        gvm_object_close(prices);
        for (int i = 0; i < CONSUMERS; i++)
            if (read(seen, &tick, 1) != 1)
                give_up("a consumer is gone");
    }
    must(gvm_object_drop(keeper, "/prices"), "cannot drop the last one");
}

/* ---- a consumer */

/* The keeper sends no notice when a name changes to another object: who follows one looks at it
 * again. */
static gvm_object *open_next(gvm_client *keeper, uint64_t version, about *said)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms++) {
        gvm_object *prices;
        uint32_t len;
        const gvm_status status = gvm_object_open(keeper, "/prices", GVM_OPEN_READONLY, &prices);

        if (status == GVM_OK) {
            must(gvm_object_get_metadata(prices, said, sizeof *said, &len), "cannot read about it");
            if (len == sizeof *said && said->version >= version)
                return prices;
            gvm_object_close(prices);
        } else if (status != GVM_E_ABSENT) {
            must(status, "cannot open the prices");
        }
        nanosleep(&pause, NULL);
    }
    give_up("no new version came");
    return NULL;
}

static void consume(gvm_client *keeper, gvm_device *device, int seen)
{
    /* Read once from end to end: not worth pushing others out for. */
    gvm_acquire_options scan = gvm_acquire_options_init();

    scan.hint = GVM_HINT_SCAN;
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        about said;
        gvm_object *prices = open_next(keeper, version, &said);
        gvm_lease lease;
        double sum;

        must(gvm_object_acquire(prices, GVM_LEASE_READ, &scan, GVM_FOREVER, &lease),
             "no lease to read");
        must(gvm_kernel_sum_f64(device, lease.address, lease.size_bytes / sizeof(double), NULL, &sum),
             "cannot sum");
        printf("%s: version %llu at %p, sum %.3f\n", who, (unsigned long long)said.version,
               lease.address, sum);
        must(gvm_object_release(prices, &lease), "cannot give the lease back");
        gvm_object_close(prices);

        sum /= said.sum; /* kernels add in any order: the last digits differ */
        if (sum < 1 - 1e-9 || sum > 1 + 1e-9 || said.version != version)
            give_up("that is not what the producer wrote");
        if (write(seen, "", 1) != 1)
            give_up("the producer is gone");
    }
}

/* ---- processes */

static int play(const char *socket, const char *role, int seen)
{
    gvm_client *keeper;
    gvm_device *device;

    who = role;
    must(gvm_device_open(0, &device), "cannot open device 0");
    must(gvm_client_connect(socket, &keeper), "cannot connect to the keeper");
    if (strcmp(role, "producer") == 0)
        produce(keeper, device, seen);
    else
        consume(keeper, device, seen);
    gvm_client_close(keeper);
    gvm_device_close(device);
    return 0;
}

/* A program started anew, and not just a fork: a CUDA driver does not survive a fork. */
static void start(const char *socket, const char *role, int seen)
{
    char number[16];
    const pid_t child = fork();

    if (child < 0)
        give_up("cannot start a process");
    if (child > 0)
        return;
    snprintf(number, sizeof number, "%d", seen);
    fcntl(seen, F_SETFD, 0); /* the one end of the pipe that goes along */
    execl("/proc/self/exe", "keeper_pair", socket, role, number, (char *)NULL);
    _exit(127);
}

static int play_all(const char *socket)
{
    int pipe_ends[2], status, failed = 0;

    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        give_up("cannot make a pipe");
    start(socket, "consumer 1", pipe_ends[1]);
    start(socket, "consumer 2", pipe_ends[1]);
    start(socket, "producer", pipe_ends[0]);
    close(pipe_ends[0]); /* so that who waits for the other side sees it end */
    close(pipe_ends[1]);
    for (int i = 0; i < 1 + CONSUMERS; i++)
        failed |= wait(&status) < 0 || status != 0;
    return failed;
}

int main(int argc, char **argv)
{
    static const int32_t device = 0;
    char folder[] = "/tmp/keeper_pair-XXXXXX", path[sizeof folder + 16];
    gvm_keeper_options options = gvm_keeper_options_init();
    gvm_keeper *keeper;
    gvm_status status;
    int failed;

    setvbuf(stdout, NULL, _IOLBF, 0); /* lines of all processes in the order they happen */
    if (argc == 4)
        return play(argv[1], argv[2], atoi(argv[3]));
    if (argc == 2)
        return play_all(argv[1]);

    if (mkdtemp(folder) == NULL)
        give_up("cannot make a folder in /tmp");
    snprintf(path, sizeof path, "%s/socket", folder);
    options.path = path;
    options.devices = &device;
    options.device_count = 1;
    options.device_budget_bytes = DEVICE_BUDGET;
    options.host_budget_bytes = HOST_BUDGET;
    status = gvm_keeper_start(&options, &keeper);
    if (status != GVM_OK)
        rmdir(folder);
    must(status, "cannot start a keeper");
    printf("keeper:     %llu MiB of the device for versions of %llu MiB: the rest is host memory\n",
           (unsigned long long)(DEVICE_BUDGET / MIB), (unsigned long long)(STEPS * STEP / MIB));
    failed = play_all(path);
    gvm_keeper_stop(keeper);
    rmdir(folder);
    return failed;
}
