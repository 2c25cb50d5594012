/* Processes that search one graph, whose edges none of them has to itself.
 *
 * The edges lie in regions whose homes are an object of a keeper. Each process attaches it to a space of its own: it has frames
 * within its own budget, on a device of its own where there are several. First one process searches, then all at the same time;
 * all find the levels that the CPU finds.
 *
 *     region_processes [SCALE [BUDGET_MIB [PROCESSES]]]
 *
 * This program is the keeper, too. It starts itself again, as "SOCKET SCALE BUDGET_MIB PROCESSES NUMBER", with a socket as
 * descriptor 3.
 */

#include "processes.h" /* first */

#include "bfs.h"

#define PROCESSES_MAX 16
#define EDGES "/edges"
#define SOURCES 3u

/* What a process says of a search: a sum over the levels that it found, for each source. */
typedef struct result {
    uint64_t sums[SOURCES];
    uint64_t looked; /* edges, by the CPU's search */
} result;

/* ---- one of the processes */

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

static int play(char **argv)
{
    gvm_space_options options = gvm_space_options_init();
    const int own = atoi(argv[5]);
    example e = {.name = argv[0], .scale = strtoull(argv[2], NULL, 10)};
    graph g = plan_graph(e.scale);
    gvm_object *edges;
    gvm_client *client;
    int32_t devices;
    result r;
    kernel k;

    options.budget_bytes = e.budget_bytes = strtoull(argv[3], NULL, 10) << 20;
    must(gvm_device_count(&devices), "cannot count the devices");
    must(gvm_device_open(own % devices, &e.device), "cannot open a device");
    must(gvm_space_create(e.device, &options, &e.space), "cannot make a space for regions");
    must(gvm_client_connect(argv[1], &client), "cannot connect to the keeper");
    use_device(e.device);
    must(gvm_object_open(client, EDGES, 0, &edges), "cannot open the edges");
    must(gvm_collection_attach(e.space, edges, NULL, GVM_FOREVER, &g.collection),
         "cannot attach the edges");
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

/* Has the processes search; returns whether one of them found other levels than the CPU. */
static int direct(const process *p, int count)
{
    result found[2 * PROCESSES_MAX + 1], expected;
    const int searches = 2 * count + 1;
    double alone_s, all_s;
    int different = 0;

    hear_all(p, count);
    (void)search_with(p, count, found);
    alone_s = search_with(p, 1, found + count);
    all_s = search_with(p, count, found + count + 1);
    hear(&p[0], &expected, sizeof expected);
    for (int i = 0; i < searches; i++)
        different += memcmp(found[i].sums, expected.sums, sizeof expected.sums) != 0;
    printf("1 process: %.3g edges a second; %d at the same time: %.3g together, %.2f times as much\n",
           (double)expected.looked / alone_s, count, (double)expected.looked * count / all_s,
           alone_s * count / all_s);
    printf("%d of %d searches found other levels than the CPU\n", different, searches);
    return different != 0;
}

static int play_all(const char *socket, char **arguments)
{
    const int count = atoi(arguments[2]);
    static process p[PROCESSES_MAX];
    gvm_object *edges;
    gvm_client *client;
    int failed;

    if (count < 1 || count > PROCESSES_MAX)
        give_up("usage: region_processes [SCALE [BUDGET_MIB [PROCESSES]]], at most 16 processes");
    must(gvm_client_connect(socket, &client), "cannot connect to the keeper");
    must(gvm_region_object_create(client, EDGES, (32ull << (14 + atoi(arguments[0]))) / EDGES_EACH,
                                  EDGES_EACH * sizeof(uint32_t), NULL, NULL, &edges),
         "cannot make regions for edges");
    for (int i = 0; i < count; i++)
        p[i] = start_process((char *[]){(char *)socket, arguments[0], arguments[1], arguments[2]}, i);
    failed = direct(p, count) | end_processes(p, count);
    gvm_object_close(edges);
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
    options.host_budget_bytes = options.host_ahead_bytes = edge_bytes + (64 << 20);
    must(gvm_keeper_start(&options, &keeper), "cannot start a keeper");
    failed = play_all(path, arguments);
    gvm_keeper_stop(keeper);
    rmdir(folder);
    return failed;
}
