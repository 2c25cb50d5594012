/* Prices that one process writes and two others read, in GPU memory, more than the GPU has room for.
 *
 * A keeper owns the memory. The producer makes an object, grows and fills it, and gives it the name
 * "/prices" once it is whole. The consumers open the name, map the same memory, and let a kernel
 * sum it. While a process holds a lease, the object stays where it is; in between, the keeper moves
 * what does not fit into host memory, where kernels read it at the same address.
 *
 *     cc keeper_pair.c $(pkg-config --cflags --libs gvmem-keeper) && ./a.out [SOCKET]
 *
 * Without SOCKET this program is the keeper, too. It starts itself again, as "SOCKET ROLE PIPE".
 */
#define _GNU_SOURCE /* pipe2() */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "must.h"

#define MIB (1ull << 20)
#define DEVICE_BUDGET (64 * MIB) /* of the keeper that this program runs */
#define VERSIONS 3
#define STEP (24 * MIB) /* a version grows by so much */
#define STEPS 4         /* so it is 96 MiB large, more than the budget */
#define CONSUMERS 2
#define PATIENCE_MS 60000

/* What the producer attaches to each version. */
typedef struct about {
    uint64_t version;
    double sum;
} about;

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
    for (unsigned long long version = 1; version <= VERSIONS; version++) {
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
               version, info.size_bytes / MIB, info.device_bytes / MIB, info.host_bytes / MIB);

        /* What is published stays. The version before goes when its last reader closes it. */
        gvm_object_close(prices);
        for (int i = 0; i < CONSUMERS; i++)
            if (read(seen, &tick, 1) != 1)
                give_up("a consumer is gone");
    }
    must(gvm_object_drop(keeper, "/prices"), "cannot drop the last one");
}

/* The keeper sends no notice when a name changes to another object: look again. */
static gvm_object *open_next(gvm_client *keeper, uint64_t version, about *said)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    gvm_object *prices;

    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms++, nanosleep(&pause, NULL)) {
        const gvm_status status = gvm_object_open(keeper, "/prices", GVM_OPEN_READONLY, &prices);
        uint32_t len;

        if (status == GVM_E_ABSENT)
            continue;
        must(status, "cannot open the prices");
        must(gvm_object_get_metadata(prices, said, sizeof *said, &len), "cannot read about it");
        if (len == sizeof *said && said->version >= version)
            return prices;
        gvm_object_close(prices);
    }
    give_up("no new version came");
}

static void consume(gvm_client *keeper, gvm_device *device, const char *who, int seen)
{
    /* Read once from end to end: not worth pushing others out for. */
    gvm_acquire_options scan = gvm_acquire_options_init();

    scan.hint = GVM_HINT_SCAN;
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        about said;
        gvm_object *prices = open_next(keeper, version, &said);
        gvm_lease lease;
        double sum;

        must(gvm_object_acquire(prices, GVM_LEASE_READ, &scan, GVM_FOREVER, &lease), "no lease");
        must(gvm_kernel_sum_f64(device, lease.address, lease.size_bytes / 8, NULL, &sum), "cannot sum");
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

static int play(const char *socket, const char *role, int seen)
{
    gvm_client *keeper;
    gvm_device *device;

    must(gvm_device_open(0, &device), "cannot open device 0");
    must(gvm_client_connect(socket, &keeper), "cannot connect to the keeper");
    if (strcmp(role, "producer") == 0)
        produce(keeper, device, seen);
    else
        consume(keeper, device, role, seen);
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
    char folder[] = "/tmp/keeper_pair-XXXXXX", path[sizeof folder + 16];
    gvm_keeper_options options = gvm_keeper_options_init();
    gvm_keeper *keeper;
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
    options.device_budget_bytes = DEVICE_BUDGET;
    options.host_budget_bytes = 512 * MIB;
    must(gvm_keeper_start(&options, &keeper), "cannot start a keeper");
    printf("keeper:     %llu MiB of the device for versions of %llu MiB: the rest is host memory\n",
           DEVICE_BUDGET / MIB, STEPS * STEP / MIB);
    failed = play_all(path);
    gvm_keeper_stop(keeper);
    rmdir(folder);
    return failed;
}
