/* gvmem-bench: its options, and which benchmark they start. */
#include "bench/bench.h"
#include "base/size.h"
#include "bench/keeper.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gvmem-bench vmm [OPTION...]\n"
    "       gvmem-bench keeper [OPTION...]\n"
    "       gvmem-bench models [OPTION...]\n"
    "       gvmem-bench table [OPTION...] TOKEN\n"
    "       gvmem-bench heap [OPTION...]\n"
    "       gvmem-bench appender [OPTION...]\n"
    "       gvmem-bench pglz [OPTION...]\n"
    "       gvmem-bench search [OPTION...]\n"
    "       gvmem-bench query [OPTION...]\n"
    "       gvmem-bench region [OPTION...] [PART...]\n"
    "       gvmem-bench policy [OPTION...] [TRACE...]   (see gvmem-bench policy --help)\n"
    "\n"
    "Measures the driver's virtual memory calls, growing an array, bandwidth, copies of 4 KiB to\n"
    "1 GiB to and from pageable and pinned memory in one and several streams, kernels, sharing\n"
    "and, with two devices, reading a peer's memory; or a keeper's leases, moves under pressure,\n"
    "scans, eviction and growth, each beside its floor; or two objects, of which one fits on the\n"
    "device, that 1 to 8 processes share and swap; or the way from a token of a PostgreSQL table\n"
    "(see gvmem table --help) to the first kernel on it; or a heap's calls and a replayed trace,\n"
    "beside the driver's pool; or kernels that append to a buffer that grows meanwhile; or values\n"
    "that PostgreSQL has compressed, beside its own decompression on the CPU; or filters, sums and\n"
    "groups of queries, and distances of rows from a query, beside a plain read of as many bytes; or\n"
    "regions that kernels map, with\n"
    "the parts maps, fetch, faults, resolve, experts, policies, clean, bfs, pagerank, callbacks,\n"
    "matmul and kernels, beside the same without regions. What is compared is measured in turns.\n"
    "\n"
    "  -d, --device N     the device (0)\n"
    "  -m, --max SIZE     how far the array grows (32GiB, or three fifths of what is free); keeper\n"
    "                     and models: the device budget (8GiB and 16GiB; 64MiB on the software GPU);\n"
    "                     appender: no result is larger (32GiB; 128MiB)\n"
    "  -l, --lender N     keeper: its scans alone, and device N lends memory for what the other has no\n"
    "                     room for; the other itself: none does\n"
    "  -t, --trace FILE   keeper: append every acquire, to replay with gvmem-bench policy; heap:\n"
    "                     replay what GVMEM_HEAP_TRACE recorded (a made-up training)\n"
    "  -p, --pool FILE    heap: another allocator beside it, a library with the functions of\n"
    "                     bench/pool.h; may be given several times\n"
    "  -b, --budget SIZE  region: device memory for fetch and policies (256MiB; 2MiB)\n"
    "  -x, --extent SIZE  region: host memory that fetch reads; may be given several times (1GiB and\n"
    "                     8GiB; 8MiB and 16MiB)\n"
    "  -s, --scale N      region: an expert has so many times fewer bytes (1; 256)\n"
    "  -n, --devices N    region: bfs alone, over so many devices from --device on, which have the edges\n"
    "                     in common; --budget is then of all of them together (half of the edges)\n"
    "  -P, --processes    region: each of these devices is driven by a process of its own\n"
    "  -g, --graph FILE   region: bfs and pagerank are of that graph, METIS or Matrix Market (drawn\n"
    "                     ones)\n"
    "  -q, --quick        smaller sizes and fewer repetitions: to try it out\n"
    "  -j, --json[=FILE]  also as JSON; on standard output the tables then go to standard error\n"
    "  -h, --help         this text\n";

/* ---- the benchmarks */

typedef struct benchmark {
    const char *name;
    bool (*start)(bench *b); /* before the driver is, for processes to fork; NULL: nothing */
    void (*measure)(bench *b);
    int (*finish)(bench *b); /* also of a run that failed; NULL: nothing */
    int operands_min, operands_max;
    bool (*has_part)(const char *part); /* operands are among these; NULL: anything */
} benchmark;

static bool start_importer(bench *b)
{
    return peer_start(&b->importer, 1, bench_importer, &b->ordinal);
}

static void measure_vmm(bench *b)
{
    bench_calls(b);
    bench_growth(b);
    bench_copies(b);
    bench_transfers(b);
    bench_kernels(b);
    bench_sharing(b);
    bench_peers(b);
}

static int finish_importer(bench *b)
{
    char how[80];

    if (peer_finish(&b->importer, 10000, how, sizeof how))
        return TOOL_DONE;
    return b->code == TOOL_DONE ? tool_error("the importer process %s", how) : b->code;
}

static bool start_keeper(bench *b)
{
    return master_start(b, 8 * GVMI_GIB);
}

static bool start_models(bench *b)
{
    return master_start(b, 16 * GVMI_GIB);
}

static int finish_keeper(bench *b)
{
    (void)b;
    return master_finish();
}

#ifndef BENCH_PGLZ
void bench_pglz(bench *b)
{
    bench_note(b, "pglz is not measured: this build has not found PostgreSQL's libpgcommon");
}
#endif

static const benchmark benchmarks[] = {
    {"vmm", start_importer, measure_vmm, finish_importer, 0, 0, NULL},
    {"keeper", start_keeper, bench_keeper, finish_keeper, 0, 0, NULL},
    {"models", start_models, bench_models, finish_keeper, 0, 0, NULL},
    {"table", NULL, bench_table, NULL, 1, 1, NULL},
    {"heap", NULL, bench_heap, NULL, 0, 0, NULL},
    {"appender", NULL, bench_appender, NULL, 0, 0, NULL},
    {"pglz", NULL, bench_pglz, NULL, 0, 0, NULL},
    {"search", NULL, bench_search, NULL, 0, 0, NULL},
    {"query", NULL, bench_query, NULL, 0, 0, NULL},
    {"region", bench_region_start, bench_region, bench_region_finish, 0, 16, bench_region_has},
};

static const benchmark *find_benchmark(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof benchmarks / sizeof benchmarks[0]; i++)
        if (strcmp(benchmarks[i].name, name) == 0)
            return &benchmarks[i];
    return NULL;
}

/* ---- the run */

bool bench_open_device(bench *b)
{
    if (gvm_device_open(b->ordinal, &b->device) != GVM_OK)
        return tool_fail("cannot open device %d", b->ordinal) == TOOL_DONE;
    b->info.struct_size = sizeof b->info;
    if (gvm_device_get_info(b->device, &b->info) == GVM_OK && gvmi_device_enter(b->device) == GVM_OK)
        return true;
    (void)tool_fail("cannot use device %d", b->ordinal);
    gvm_device_close(b->device);
    return false;
}

void bench_close_device(bench *b)
{
    gvmi_device_leave();
    gvm_device_close(b->device);
}

static int run_on_device(bench *b, const benchmark *what)
{
    if (!bench_open_device(b))
        return TOOL_FAILED;
    fprintf(b->text, "device %d, %s\n", b->ordinal, b->info.name);
    if (b->info.vmm) {
        what->measure(b);
    } else {
        tool_error("device %d has no virtual memory management", b->ordinal);
        b->code = TOOL_FAILED;
    }
    bench_close_device(b);
    return b->code;
}

static int run_benchmark(bench *b, const benchmark *what, const char *json_path)
{
    tool_raise_descriptor_limit();
    if (what->start != NULL && !what->start(b))
        return TOOL_FAILED;
    b->code = run_on_device(b, what);
    if (what->finish != NULL && what->finish(b) != TOOL_DONE)
        b->code = TOOL_FAILED;
    if (!tool_flush(b->text, "standard output"))
        b->code = TOOL_FAILED;
    if (json_path != NULL && b->figure_count > 0 && bench_save_figures(json_path, b) != TOOL_DONE)
        b->code = TOOL_FAILED;
    return b->code;
}

static void join_arguments(int argc, char **argv, char *out, size_t out_bytes)
{
    size_t len = (size_t)snprintf(out, out_bytes, "gvmem-bench");

    for (int i = 1; i < argc && len < out_bytes; i++)
        len += (size_t)snprintf(out + len, out_bytes - len, " %s", argv[i]);
}

static bool set_option(bench *b, int option, const char **json_path)
{
    switch (option) {
    case 'd': return tool_parse_number("", "--device", optarg, 0, 1000, &b->ordinal);
    case 'm': return tool_parse_size("", "--max", optarg, GVM_CHUNK_BYTES_MIN, &b->max_bytes);
    case 'l': return tool_parse_number("", "--lender", optarg, 0, 1000, &b->lender);
    case 't': b->trace_path = optarg; return true;
    case 'p':
        if (b->pool_count == BENCH_POOLS_MAX)
            return tool_usage("", "no more than %u pools", BENCH_POOLS_MAX), false;
        b->pool_paths[b->pool_count++] = optarg;
        return true;
    case 'b': return tool_parse_size("", "--budget", optarg, GVM_CHUNK_BYTES_MIN, &b->budget_bytes);
    case 's': return tool_parse_number("", "--scale", optarg, 1, 1 << 16, &b->scale);
    case 'x':
        if (b->extent_count == BENCH_EXTENTS_MAX)
            return tool_usage("", "no more than %u extents", BENCH_EXTENTS_MAX), false;
        return tool_parse_size("", "--extent", optarg, GVM_CHUNK_BYTES_MIN,
                               &b->extent_bytes[b->extent_count++]);
    case 'g': b->graph_path = optarg; return true;
    case 'n':
        return tool_parse_number("", "--devices", optarg, 2, GVM_KEEPER_DEVICES_MAX, &b->devices);
    case 'P': b->processes = true; return true;
    case 'q': b->quick = true; return true;
    case 'j': *json_path = optarg != NULL ? optarg : "-"; return true;
    default: return tool_usage("", "unknown option, or its value is missing"), false;
    }
}

static bool check_operands(const bench *b, const benchmark *what)
{
    if (b->operand_count < what->operands_min)
        return tool_usage("", "say what to attach: a token"), false;
    if (b->operand_count > what->operands_max)
        return tool_usage("", "too many arguments"), false;
    for (int i = 0; what->has_part != NULL && i < b->operand_count; i++)
        if (!what->has_part(b->operands[i]))
            return tool_usage("", "%s has no part %s", what->name, b->operands[i]), false;
    if (b->devices > 0 && (b->operand_count != 1 || strcmp(b->operands[0], "bfs") != 0))
        return tool_usage("", "--devices is of region bfs alone"), false;
    if (b->processes && b->devices == 0)
        return tool_usage("", "--processes is of --devices"), false;
    return true;
}

/* The benchmark of a command line, measured. */
static int run(bench *b, int argc, char **argv)
{
    static const struct option longs[] = {{"device", required_argument, NULL, 'd'},
                                          {"max", required_argument, NULL, 'm'},
                                          {"lender", required_argument, NULL, 'l'},
                                          {"trace", required_argument, NULL, 't'},
                                          {"pool", required_argument, NULL, 'p'},
                                          {"budget", required_argument, NULL, 'b'},
                                          {"extent", required_argument, NULL, 'x'},
                                          {"scale", required_argument, NULL, 's'},
                                          {"graph", required_argument, NULL, 'g'},
                                          {"devices", required_argument, NULL, 'n'},
                                          {"processes", no_argument, NULL, 'P'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"json", optional_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    const char *json_path = NULL;
    const benchmark *what;
    int option;

    while ((option = getopt_long(argc, argv, "d:m:l:t:p:b:x:s:g:n:Pqj::h", longs, NULL)) != -1) {
        if (option == 'h')
            return fputs(usage, stdout), TOOL_DONE;
        if (!set_option(b, option, &json_path))
            return TOOL_USAGE;
    }
    what = find_benchmark(argv[optind]);
    if (what == NULL)
        return tool_usage(
            "",
            "say what to measure: vmm, keeper, models, table, heap, appender, pglz, query, search, region or policy");
    b->operands = argv + optind + 1;
    b->operand_count = argc - optind - 1;
    if (!check_operands(b, what))
        return TOOL_USAGE;
    b->text = json_path != NULL && strcmp(json_path, "-") == 0 ? stderr : stdout;
    b->benchmark = what->name;
    return run_benchmark(b, what, json_path);
}

int main(int argc, char **argv)
{
    char command[512];
    bench *b;
    int code;

    tool_program = "gvmem-bench";
    join_arguments(argc, argv, command, sizeof command);
    if (argc > 1 && strcmp(argv[1], "policy") == 0)
        return bench_policy(argc - 1, argv + 1, command);
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return tool_error("out of memory");
    b->command = command;
    b->lender = -1;
    code = run(b, argc, argv);
    free(b);
    return code;
}
