/* Processes that search one graph, whose edges none of them has to itself.
 *
 * The edges lie in regions whose homes are an object of a keeper. Each process attaches it to a space of its own: it has frames
 * within its own budget, on a device of its own where there are several. First one process searches, then all at the same time;
 * all find the levels that the CPU finds. Then each writes a part of a second object, and reads what the others have written.
 *
 *     region_processes [SCALE [BUDGET_MIB [PROCESSES]]]
 *
 * This program is the keeper, too. It starts itself again, as "SOCKET SCALE BUDGET_MIB PROCESSES NUMBER", with a socket as
 * descriptor 3.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <gvmem/keeper.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bfs.h"

#define PROCESSES_MAX 16
#define EDGES "/edges"
#define NUMBERS "/numbers"
#define NUMBERS_EACH 1024u /* of a region */
#define CONTROL 3          /* a socket to the keeper's process */
#define SOURCES 3u

/* What a process says of a search: a sum over the levels that it found, for each source. */
typedef struct result {
    uint64_t sums[SOURCES];
    uint64_t looked; /* edges, by the CPU's search */
} result;

typedef struct process {
    pid_t pid;
    int control;
} process;

/* ---- one of the processes */

static gvm_collection *attach(const example *e, gvm_client *client, const char *name)
{
    gvm_collection *collection;
    gvm_object *object;

    must(gvm_object_open(client, name, 0, &object), "cannot open the regions");
    must(gvm_collection_attach(e->space, object, NULL, GVM_FOREVER, &collection),
         "cannot attach the regions");
    return collection;
}

static void say(const void *bytes, size_t len)
{
    if (write(CONTROL, bytes, len) != (ssize_t)len)
        give_up("the keeper's process is gone");
}

static void wait_for_word(void)
{
    char word;

    if (read(CONTROL, &word, 1) != 1)
        exit(0);
}

static uint64_t sum_of(const uint32_t *levels, uint32_t count)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum = draw(sum + levels[i]);
    return sum;
}

/* From some sources, by the kernel or by the CPU. */
static result search(example *e, const graph *g, const kernel *k)
{
    const uint64_t bytes = g->vertices * sizeof(uint32_t);
    uint32_t *levels = malloc(bytes);
    result r = {0};

    if (levels == NULL)
        give_up("out of memory");
    for (uint32_t source = 0; source < SOURCES; source++) {
        memset(levels, 0xff, bytes);
        levels[source] = 0;
        if (k != NULL)
            search_gpu(e, k, g, source, levels);
        else
            r.looked += search_cpu(g, source, levels);
        r.sums[source] = sum_of(levels, g->vertices);
    }
    free(levels);
    return r;
}

/* When it is told to: what others have written before their syncs is seen after this one's. */
static void search_when_told(example *e, const graph *g, const kernel *k)
{
    result r;

    wait_for_word();
    must(gvm_space_sync(e->space, NULL), "the kernel cannot see the edges");
    r = search(e, g, k);
    must(gvm_space_sync(e->space, NULL), "the kernel did something wrong");
    say(&r, sizeof r);
}

/* Region i of the numbers is written by process i % processes. */
static void write_numbers(const example *e, gvm_collection *numbers, uint32_t count,
                          uint32_t processes, uint32_t own)
{
    for (uint32_t i = own; i < count; i += processes) {
        uint32_t *number = map_region(numbers, i, GVM_REGION_WRITE);

        for (uint32_t j = 0; j < NUMBERS_EACH; j++)
            number[j] = i * NUMBERS_EACH + j;
        unmap_region(numbers, i);
    }
    must(gvm_space_sync(e->space, NULL), "others cannot see the numbers");
}

static uint64_t count_wrong(const example *e, gvm_collection *numbers, uint32_t count)
{
    uint64_t wrong = 0;

    must(gvm_space_sync(e->space, NULL), "the numbers of others cannot be seen");
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *number = map_region(numbers, i, GVM_REGION_READ);

        for (uint32_t j = 0; j < NUMBERS_EACH; j++)
            wrong += number[j] != i * NUMBERS_EACH + j;
        unmap_region(numbers, i);
    }
    return wrong;
}

static int play(char **argv)
{
    gvm_space_options options = gvm_space_options_init();
    const uint32_t processes = (uint32_t)atoi(argv[4]), own = (uint32_t)atoi(argv[5]);
    example e = {.name = argv[0], .scale = strtoull(argv[2], NULL, 10)};
    graph g = plan_graph(e.scale);
    const uint32_t number_regions = g.vertices / NUMBERS_EACH;
    gvm_collection *numbers;
    gvm_client *client;
    int32_t devices;
    uint64_t wrong;
    result r;
    kernel k;

    options.budget_bytes = e.budget_bytes = strtoull(argv[3], NULL, 10) << 20;
    must(gvm_device_count(&devices), "cannot count the devices");
    must(gvm_device_open((int)own % devices, &e.device), "cannot open a device");
    must(gvm_space_create(e.device, &options, &e.space), "cannot make a space for regions");
    must(gvm_client_connect(argv[1], &client), "cannot connect to the keeper");
    use_device(e.device);
    g.collection = attach(&e, client, EDGES);
    numbers = attach(&e, client, NUMBERS);
    k = load_kernel(e.device, "region_bfs_kernel", "bfs");
    if (own == 0) {
        fill_graph(&g);
        must(gvm_space_sync(e.space, NULL), "others cannot see the edges");
    }
    say("", 1);
    search_when_told(&e, &g, &k); /* with all others, and empty frames */
    if (own == 0)
        search_when_told(&e, &g, &k); /* alone */
    search_when_told(&e, &g, &k);     /* with all others */

    wait_for_word();
    write_numbers(&e, numbers, number_regions, processes, own);
    say("", 1);
    wait_for_word();
    wrong = count_wrong(&e, numbers, number_regions);
    say(&wrong, sizeof wrong);

    if (own == 0) {
        r = search(&e, &g, NULL);
        say(&r, sizeof r);
        print_regions("edges", g.collection);
    }
    unload_kernel(&k);
    gvm_space_destroy(e.space);
    gvm_client_close(client);
    gvm_device_pop_context();
    gvm_device_close(e.device);
    free_graph(&g);
    return 0;
}

/* ---- the keeper's process */

static process start(const char *socket, char **arguments, int number)
{
    char text[16];
    int ends[2];
    process p;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        give_up("cannot make a socket");
    snprintf(text, sizeof text, "%d", number);
    p = (process){fork(), ends[0]};
    if (p.pid == 0) {
        dup2(ends[1], CONTROL);
        fcntl(CONTROL, F_SETFD, 0); /* also where it was that one */
        execl("/proc/self/exe", "region_processes", socket, arguments[0], arguments[1],
              arguments[2], text, (char *)NULL);
        _exit(127);
    }
    if (p.pid < 0)
        give_up("cannot start a process");
    close(ends[1]);
    return p;
}

static void tell(const process *p, int count)
{
    for (int i = 0; i < count; i++)
        if (write(p[i].control, "", 1) != 1)
            give_up("a process is gone");
}

static void hear(const process *p, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t got = read(p->control, (char *)bytes + done, len - done);

        if (got <= 0)
            give_up("a process is gone");
        done += (size_t)got;
    }
}

static void hear_all(const process *p, int count)
{
    char word;

    for (int i = 0; i < count; i++)
        hear(&p[i], &word, 1);
}

/* So many search at the same time; returns the seconds until the last of them has. */
static double search_with(const process *p, int count, result *found)
{
    struct timespec begin, end;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    tell(p, count);
    for (int i = 0; i < count; i++)
        hear(&p[i], &found[i], sizeof found[i]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
}

static int count_different(const result *found, int count, const result *expected)
{
    int different = 0;

    for (int i = 0; i < count; i++)
        different += memcmp(found[i].sums, expected->sums, sizeof expected->sums) != 0;
    return different;
}

/* Has the processes search, and write; returns how much was wrong. */
static int direct(const process *p, int count)
{
    result first[PROCESSES_MAX], alone, all[PROCESSES_MAX], expected;
    double alone_s, all_s;
    uint64_t wrong, sum = 0;
    int different;

    hear_all(p, count);
    (void)search_with(p, count, first);
    alone_s = search_with(p, 1, &alone);
    all_s = search_with(p, count, all);
    tell(p, count);
    hear_all(p, count);
    tell(p, count);
    for (int i = 0; i < count; i++) {
        hear(&p[i], &wrong, sizeof wrong);
        sum += wrong;
    }
    hear(&p[0], &expected, sizeof expected);
    different = count_different(first, count, &expected) + count_different(&alone, 1, &expected) +
                count_different(all, count, &expected);
    printf("1 process: %.3g edges a second; %d at the same time: %.3g together, %.2f times as much\n",
           (double)expected.looked / alone_s, count, (double)expected.looked * count / all_s,
           alone_s * count / all_s);
    printf("%d of %d searches found other levels than the CPU, %llu of the numbers that others wrote are wrong\n",
           different, 2 * count + 1, (unsigned long long)sum);
    return different != 0 || sum != 0;
}

static gvm_object *make_regions(gvm_client *client, const char *name, uint64_t count, uint64_t each)
{
    gvm_object *object;

    must(gvm_region_object_create(client, name, count, each * sizeof(uint32_t), NULL, NULL, &object),
         "cannot make regions");
    return object;
}

static int play_all(const char *socket, char **arguments)
{
    const int count = atoi(arguments[2]);
    graph g = {.bits = (uint32_t)(14 + strtoull(arguments[0], NULL, 10))};
    static process p[PROCESSES_MAX];
    gvm_object *edges, *numbers;
    gvm_client *client;
    int failed, status;

    if (count < 1 || count > PROCESSES_MAX)
        give_up("usage: region_processes [SCALE [BUDGET_MIB [PROCESSES]]], at most 16 processes");
    must(gvm_client_connect(socket, &client), "cannot connect to the keeper");
    edges = make_regions(client, EDGES, (32ull << g.bits) / EDGES_EACH, EDGES_EACH);
    numbers = make_regions(client, NUMBERS, (1ull << g.bits) / NUMBERS_EACH, NUMBERS_EACH);
    for (int i = 0; i < count; i++)
        p[i] = start(socket, arguments, i);
    failed = direct(p, count);
    for (int i = 0; i < count; i++)
        failed |= waitpid(p[i].pid, &status, 0) < 0 || status != 0;
    gvm_object_close(edges);
    gvm_object_close(numbers);
    gvm_client_close(client);
    return failed;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/region_processes-XXXXXX", path[sizeof folder + 16];
    char *arguments[] = {argc > 1 ? argv[1] : "1", argc > 2 ? argv[2] : "2", argc > 3 ? argv[3] : "4"};
    gvm_keeper_options options = gvm_keeper_options_init();
    const uint64_t edge_bytes = (32ull * sizeof(uint32_t)) << (14 + strtoull(arguments[0], NULL, 10));
    gvm_keeper *keeper;
    int failed;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 6)
        return play(argv);
    if (mkdtemp(folder) == NULL)
        give_up("cannot make a folder in /tmp");
    snprintf(path, sizeof path, "%s/socket", folder);
    options.path = path;
    options.device_budget_bytes = 64 << 20; /* of which the homes take nothing */
    options.host_budget_bytes = options.host_ahead_bytes = 2 * edge_bytes + (64 << 20);
    must(gvm_keeper_start(&options, &keeper), "cannot start a keeper");
    failed = play_all(path, arguments);
    gvm_keeper_stop(keeper);
    rmdir(folder);
    return failed;
}
