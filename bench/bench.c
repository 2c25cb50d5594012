/* gvmem-bench: options, samples, figures, the record. */
#include "bench/bench.h"
#include "bench/keeper.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"

static const char usage[] =
    "usage: gvmem-bench vmm [OPTION...]\n"
    "       gvmem-bench keeper [OPTION...]\n"
    "       gvmem-bench table [OPTION...] TOKEN\n"
    "       gvmem-bench heap [OPTION...]\n"
    "       gvmem-bench appender [OPTION...]\n"
    "       gvmem-bench policy [OPTION...] [TRACE...]   (see gvmem-bench policy --help)\n"
    "\n"
    "Measures the driver's virtual memory calls, growing an array, bandwidth, kernels, sharing\n"
    "and, with two devices, reading a peer's memory; or a keeper's leases, moves under pressure,\n"
    "scans, eviction and growth, each beside its floor; or the way from a token of a PostgreSQL\n"
    "table (see gvmem table --help) to the first kernel on it; or a heap's calls and a replayed\n"
    "trace, beside the driver's pool; or kernels that append to a buffer that grows meanwhile. What\n"
    "is compared is measured in turns.\n"
    "\n"
    "  -d, --device N     the device (0)\n"
    "  -m, --max SIZE     how far the array grows (32GiB, or three fifths of what is free); keeper:\n"
    "                     its device budget (8GiB; 64MiB on the software GPU); appender: no result\n"
    "                     is larger (32GiB; 128MiB)\n"
    "  -t, --trace FILE   keeper: append every acquire, to replay with gvmem-bench policy; heap:\n"
    "                     replay what libgvmem-heap-plugin recorded (a made-up training)\n"
    "  -p, --pool FILE    heap: another allocator beside it, a library with the functions of\n"
    "                     bench/pool.h; may be given several times\n"
    "  -q, --quick        smaller sizes and fewer repetitions: to try it out\n"
    "  -j, --json[=FILE]  also as JSON; on standard output the tables then go to standard error\n"
    "  -h, --help         this text\n";

/* ---- samples and figures */

void bench_add(bench_samples *samples, double value)
{
    if (samples->count < BENCH_SAMPLES_MAX)
        samples->value[samples->count++] = value;
}

static int compare_samples(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static bench_samples sort_samples(const bench_samples *samples)
{
    bench_samples copy = *samples;

    qsort(copy.value, copy.count, sizeof copy.value[0], compare_samples);
    return copy;
}

double bench_median(const bench_samples *samples)
{
    bench_samples copy = sort_samples(samples);

    return copy.count > 0 ? copy.value[(copy.count - 1) / 2] : 0;
}

static void add_figure(bench *b, const bench_figure *figure)
{
    if (b->figure_count < BENCH_FIGURES_MAX)
        b->figures[b->figure_count++] = *figure;
}

double bench_record(bench *b, const char *section, const char *name, const char *unit,
                    uint64_t bytes, uint64_t chunk_bytes, const bench_samples *samples)
{
    bench_samples copy = sort_samples(samples);
    bench_figure figure = {
        .section = section, .name = name, .unit = unit, .bytes = bytes, .chunk_bytes = chunk_bytes};

    if (copy.count == 0)
        return 0;
    figure.min = copy.value[0];
    figure.median = bench_median(&copy);
    figure.max = copy.value[copy.count - 1];
    figure.count = copy.count;
    add_figure(b, &figure);
    return figure.median;
}

void bench_record_value(bench *b, const char *section, const char *name, const char *unit,
                        uint64_t bytes, uint64_t chunk_bytes, double value)
{
    add_figure(b, &(bench_figure){section, name, unit, bytes, chunk_bytes, value, value, value, 1});
}

void bench_note(bench *b, const char *format, ...)
{
    char text[sizeof b->notes[0]];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(b->text, "  %s\n", text);
    if (b->note_count < BENCH_NOTES_MAX)
        memcpy(b->notes[b->note_count++], text, sizeof text);
}

void bench_failed_driver(bench *b, CUresult result, const char *call)
{
    gvmi_driver_fail((int32_t)result, call, "%s failed", call);
    bench_failed(b, "not measured");
}

void bench_failed(bench *b, const char *what)
{
    char why[400];

    tool_failure_text(why, sizeof why);
    bench_note(b, "%s: %.300s", what, why);
    tool_error("%s: %s", what, why);
    b->code = TOOL_FAILED;
}

void bench_wait(bench *b)
{
    if (gvm_device_synchronize(b->device) != GVM_OK)
        bench_failed(b, "waiting for the device");
}

void bench_trim(bench *b)
{
    if (gvm_device_trim(b->device, 0) != GVM_OK)
        bench_failed(b, "giving back what is cached");
}

uint64_t bench_free_bytes(bench *b)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (gvm_device_trim(b->device, 0) != GVM_OK || gvm_device_get_info(b->device, &info) != GVM_OK)
        return 0;
    return info.free_bytes;
}

/* ---- timing by the device's own clock */

bool bench_timer_create(bench *b, bench_timer *timer)
{
    CUresult result;

    memset(timer, 0, sizeof *timer);
    result = gvmi_cu->cuStreamCreate(&timer->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&timer->start, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventCreate(&timer->end, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        return true;
    bench_failed_driver(b, result, "cuEventCreate");
    bench_timer_destroy(timer);
    return false;
}

void bench_timer_destroy(bench_timer *timer)
{
    if (timer->start != NULL)
        gvmi_cu->cuEventDestroy(timer->start);
    if (timer->end != NULL)
        gvmi_cu->cuEventDestroy(timer->end);
    if (timer->stream != NULL)
        gvmi_cu->cuStreamDestroy(timer->stream);
    memset(timer, 0, sizeof *timer);
}

bool bench_timer_start(bench *b, bench_timer *timer)
{
    CUresult result = gvmi_cu->cuEventRecord(timer->start, timer->stream);

    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "cuEventRecord");
    return result == CUDA_SUCCESS;
}

bool bench_timer_stop(bench *b, bench_timer *timer, double *us)
{
    float ms = 0;
    CUresult result = gvmi_cu->cuEventRecord(timer->end, timer->stream);

    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventSynchronize(timer->end);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuEventElapsedTime(&ms, timer->start, timer->end);
    *us = (double)ms * 1e3;
    if (result != CUDA_SUCCESS)
        bench_failed_driver(b, result, "cuEventElapsedTime");
    return result == CUDA_SUCCESS;
}

/* ---- the record */

/* The rest of the first line of a file that begins with key, behind key and punctuation; "" if
 * there is none. */
static void read_proc_line(const char *path, const char *key, char *out, size_t out_bytes)
{
    char line[512];
    FILE *file = fopen(path, "re");

    out[0] = '\0';
    if (file == NULL)
        return;
    while (out[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, out_bytes, "%s", line + strlen(key) + strspn(line + strlen(key), " \t:"));
    }
    fclose(file);
}

static void write_host(json *j)
{
    char cpu[128], kernel_driver[256];
    struct utsname name;

    read_proc_line("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    read_proc_line("/proc/driver/nvidia/version", "NVRM version", kernel_driver, sizeof kernel_driver);
    json_object(j, "host");
    json_string(j, "cpu", cpu[0] != '\0' ? cpu : NULL);
    json_integer(j, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
    json_string(j, "kernel", uname(&name) == 0 ? name.release : NULL);
    json_string(j, "machine", uname(&name) == 0 ? name.machine : NULL);
    json_string(j, "kernel_driver", kernel_driver[0] != '\0' ? kernel_driver : NULL);
    json_end(j);
}

static void write_device(json *j, const bench *b)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};

    json_object(j, "device");
    json_string(j, "name", b->info.name);
    json_bool(j, "software", b->info.software);
    json_unsigned(j, "total_bytes", b->info.total_bytes);
    json_integer(j, "sm_count", b->info.sm_count);
    if (gvm_driver_get_info(&driver) == GVM_OK)
        json_integer(j, "cuda_version", driver.version);
    json_end(j);
}

static void write_figures(json *j, const bench *b)
{
    json_array(j, "figures");
    for (unsigned i = 0; i < b->figure_count; i++) {
        const bench_figure *f = &b->figures[i];

        json_object(j, NULL);
        json_string(j, "section", f->section);
        json_string(j, "name", f->name);
        if (f->bytes > 0)
            json_unsigned(j, "bytes", f->bytes);
        if (f->chunk_bytes > 0)
            json_unsigned(j, "chunk_bytes", f->chunk_bytes);
        json_string(j, "unit", f->unit);
        json_number(j, "min", f->min);
        json_number(j, "median", f->median);
        json_number(j, "max", f->max);
        json_unsigned(j, "samples", f->count);
        json_end(j);
    }
    json_end(j);
}

void bench_write_head(json *j, const char *benchmark, const char *command)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;

    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_string(j, "benchmark", benchmark);
    json_string(j, "command", command);
    json_string(j, "date", date);
    json_unsigned(j, "gvmem_version", gvm_version());
    write_host(j);
}

static void write_bench_record(FILE *out, const void *arg)
{
    const bench *b = arg;
    json j;

    json_start(&j, out);
    json_object(&j, NULL);
    bench_write_head(&j, b->benchmark, b->command);
    write_device(&j, b);
    write_figures(&j, b);
    json_array(&j, "notes");
    for (unsigned i = 0; i < b->note_count; i++)
        json_string(&j, NULL, b->notes[i]);
    json_end(&j);
    json_end(&j);
}

int bench_save(const char *path, void (*write)(FILE *out, const void *arg), const void *arg)
{
    char part[4096];
    FILE *out;
    bool good;

    if (strcmp(path, "-") == 0) {
        write(stdout, arg);
        return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
    }
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        return tool_error("the name %.60s... is too long", path);
    out = fopen(part, "we");
    if (out == NULL)
        return tool_error("cannot write %s: %s", part, strerror(errno));
    write(out, arg);
    good = tool_flush(out, part);
    fclose(out);
    if (good && rename(part, path) == 0)
        return TOOL_DONE;
    if (good)
        tool_error("cannot name %s: %s", path, strerror(errno));
    unlink(part);
    return TOOL_FAILED;
}

/* ---- the benchmarks */

typedef struct benchmark {
    const char *name;
    bool (*start)(bench *b); /* before the driver is, for processes to fork; NULL: nothing */
    void (*measure)(bench *b);
    int (*finish)(bench *b); /* also of a run that failed; NULL: nothing */
    bool operand;            /* it has one: b->operand */
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

static int finish_keeper(bench *b)
{
    (void)b;
    return bench_keeper_finish();
}

static const benchmark benchmarks[] = {
    {"vmm", start_importer, measure_vmm, finish_importer, false},
    {"keeper", bench_keeper_start, bench_keeper, finish_keeper, false},
    {"table", NULL, bench_table, NULL, true},
    {"heap", NULL, bench_heap, NULL, false},
    {"appender", NULL, bench_appender, NULL, false},
};

static const benchmark *find_benchmark(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof benchmarks / sizeof benchmarks[0]; i++)
        if (strcmp(benchmarks[i].name, name) == 0)
            return &benchmarks[i];
    return NULL;
}

/* ---- the run */

static int run_on_device(bench *b, const benchmark *what)
{
    if (gvm_device_open(b->ordinal, &b->device) != GVM_OK)
        return tool_fail("cannot open device %d", b->ordinal);
    b->info.struct_size = sizeof b->info;
    if (gvm_device_get_info(b->device, &b->info) != GVM_OK || gvmi_device_enter(b->device) != GVM_OK) {
        gvm_device_close(b->device);
        return tool_fail("cannot use device %d", b->ordinal);
    }
    fprintf(b->text, "device %d, %s\n", b->ordinal, b->info.name);
    if (b->info.vmm) {
        what->measure(b);
    } else {
        tool_error("device %d has no virtual memory management", b->ordinal);
        b->code = TOOL_FAILED;
    }
    gvmi_device_leave();
    gvm_device_close(b->device);
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
    if (json_path != NULL && b->figure_count > 0 &&
        bench_save(json_path, write_bench_record, b) != TOOL_DONE)
        b->code = TOOL_FAILED;
    return b->code;
}

static void join_arguments(int argc, char **argv, char *out, size_t out_bytes)
{
    size_t len = (size_t)snprintf(out, out_bytes, "gvmem-bench");

    for (int i = 1; i < argc && len < out_bytes; i++)
        len += (size_t)snprintf(out + len, out_bytes - len, " %s", argv[i]);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"device", required_argument, NULL, 'd'}, {"max", required_argument, NULL, 'm'},
        {"trace", required_argument, NULL, 't'},  {"pool", required_argument, NULL, 'p'},
        {"quick", no_argument, NULL, 'q'},        {"json", optional_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},         {0}};
    const char *json_path = NULL;
    const benchmark *what;
    char command[512];
    bench *b;
    int option, code;

    tool_program = "gvmem-bench";
    join_arguments(argc, argv, command, sizeof command);
    if (argc > 1 && strcmp(argv[1], "policy") == 0)
        return bench_policy(argc - 1, argv + 1, command);
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return tool_error("out of memory");
    while ((option = getopt_long(argc, argv, "d:m:t:p:qj::h", longs, NULL)) != -1) {
        bool good = true;

        if (option == 'd')
            good = tool_parse_number("", "--device", optarg, 0, 1000, &b->ordinal);
        else if (option == 'm')
            good = tool_parse_size("", "--max", optarg, GVM_CHUNK_BYTES_MIN, &b->max_bytes);
        else if (option == 't')
            b->trace_path = optarg;
        else if (option == 'p' && b->pool_count < BENCH_POOLS_MAX)
            b->pool_paths[b->pool_count++] = optarg;
        else if (option == 'p')
            good = tool_usage("", "no more than %u pools", BENCH_POOLS_MAX) != TOOL_USAGE;
        else if (option == 'q')
            b->quick = true;
        else if (option == 'j')
            json_path = optarg != NULL ? optarg : "-";
        else if (option == 'h')
            fputs(usage, stdout);
        else
            good = tool_usage("", "unknown option, or its value is missing") != TOOL_USAGE;
        if (!good || option == 'h') {
            free(b);
            return good ? TOOL_DONE : TOOL_USAGE;
        }
    }
    what = find_benchmark(argv[optind]);
    if (what == NULL)
        code = tool_usage("", "say what to measure: vmm, keeper, table, heap, appender or policy");
    else if (optind + (what->operand ? 2 : 1) != argc)
        code = tool_usage("", what->operand ? "say what to attach: a token" : "too many arguments");
    else {
        b->text = json_path != NULL && strcmp(json_path, "-") == 0 ? stderr : stdout;
        b->benchmark = what->name;
        b->operand = argv[optind + 1];
        b->command = command;
        code = run_benchmark(b, what, json_path);
    }
    free(b);
    return code;
}
