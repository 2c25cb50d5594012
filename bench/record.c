/* The record of a run, as JSON. */
#include "bench/bench.h"

#include <errno.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

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

int bench_save_figures(const char *path, const bench *b)
{
    return bench_save(path, write_bench_record, b);
}
