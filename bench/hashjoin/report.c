/* The report of the joins: lines for people, JSON for records. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bench/hashjoin/hashjoin.h"

/* ---- figures */

static int compare_figures(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Of a member of the outcomes, sorted. */
typedef struct figures {
    double of[REPETITIONS_MAX];
    unsigned count;
} figures;

static figures sorted_figures(const measured *m, size_t member)
{
    figures f = {.count = m->count};

    for (unsigned i = 0; i < m->count; i++)
        memcpy(&f.of[i], (const char *)&m->runs[i] + member, sizeof f.of[i]);
    qsort(f.of, f.count, sizeof f.of[0], compare_figures);
    return f;
}

static double median_of_member(const measured *m, size_t member)
{
    const figures f = sorted_figures(m, member);

    return f.count > 0 ? f.of[(f.count - 1) / 2] : 0;
}

static double median_ms(const measured *m)
{
    return median_of_member(m, offsetof(outcome, ms));
}

/* How many times as fast as the two passes; 0: not known. */
static double speed_up(const join_case *c, method m)
{
    const double other = median_ms(&c->of[TWO_PASS]), own = median_ms(&c->of[m]);

    return other > 0 && own > 0 ? other / own : 0;
}

static uint64_t result_bytes(const outcome *o)
{
    return o->rows * sizeof(result_row) + o->text_bytes;
}

static const outcome *any_outcome(const join_case *c)
{
    for (int m = 0; m < METHODS; m++)
        if (c->of[m].count > 0)
            return &c->of[m].runs[0];
    return NULL;
}

/* ---- for people */

void report_text(FILE *out, const join_case *c, const settings *s)
{
    const outcome *any = any_outcome(c);

    if (any == NULL)
        return;
    fprintf(out,
            "%s: %u rows with %u; estimate %llu, result %llu rows (%.2f times), %.1f MiB; table built in %.1f ms\n",
            c->input, c->outer_rows, c->inner_rows, (unsigned long long)c->estimate,
            (unsigned long long)any->rows, (double)any->rows / (double)c->estimate,
            (double)result_bytes(any) / 1048576, c->build_ms);
    for (method m = 0; m < METHODS; m++) {
        const measured *all = &c->of[m];
        const outcome *o = &all->runs[0];

        if (all->count == 0)
            continue;
        fprintf(out, "  %-8s %10.3f ms", method_names[m], median_ms(all));
        if (o->count_ms > 0)
            fprintf(out, ", counted in %.3f", median_of_member(all, offsetof(outcome, count_ms)));
        fprintf(out, ", memory in %.3f, written in %.3f",
                median_of_member(all, offsetof(outcome, allocate_ms)),
                median_of_member(all, offsetof(outcome, write_ms)));
        if (m == APPENDER)
            fprintf(out, ", taken in %.3f", median_of_member(all, offsetof(outcome, take_ms)));
        if (m != TWO_PASS && speed_up(c, m) > 0)
            fprintf(out, ", %.2f times as fast as two-pass", speed_up(c, m));
        if (m == APPENDER)
            fprintf(out, "; %llu commits, the first after %.3f ms", (unsigned long long)o->commits,
                    median_of_member(all, offsetof(outcome, first_ms)));
        if (o->parts > 1)
            fprintf(out, "; %u parts of the outer side, no buffer of more than %.1f MiB", o->parts,
                    (double)o->piece_bytes_max / 1048576);
        if (o->pieces > o->parts)
            fprintf(out, "; the budget was spent %llu times: %llu buffers, no row written twice",
                    (unsigned long long)o->pieces - o->parts, (unsigned long long)o->pieces);
        if (o->lost_rows > 0)
            fprintf(out,
                    "; %llu rows did not fit into %.3g times the estimate: all of it again (the first try took %.3f ms)",
                    (unsigned long long)o->lost_rows, s->factor,
                    median_of_member(all, offsetof(outcome, first_try_ms)));
        fputc('\n', out);
    }
    if (c->checked)
        fprintf(out, "  %s\n", c->correct ? "the same as on the CPU" : "NOT the same as on the CPU");
}

/* ---- for records: one level of objects a function, commas before all but the first */

typedef struct json {
    FILE *out;
    unsigned depth;
    bool filled;
} json;

static void next_member(json *j, const char *key)
{
    fprintf(j->out, "%s\n%*s", j->filled ? "," : "", (int)j->depth, "");
    if (key != NULL)
        fprintf(j->out, "\"%s\": ", key);
    j->filled = true;
}

static void put_open(json *j, const char *key, char bracket)
{
    if (j->depth > 0)
        next_member(j, key);
    fputc(bracket, j->out);
    j->depth++;
    j->filled = false;
}

static void put_close(json *j, char bracket)
{
    j->depth--;
    fprintf(j->out, "\n%*s%c", (int)j->depth, "", bracket);
    j->filled = true;
}

static void put_text(json *j, const char *key, const char *text)
{
    next_member(j, key);
    fputc('"', j->out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(j->out, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(j->out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, j->out);
    }
    fputc('"', j->out);
}

static void put_whole(json *j, const char *key, uint64_t value)
{
    next_member(j, key);
    fprintf(j->out, "%llu", (unsigned long long)value);
}

static void put_number(json *j, const char *key, double value)
{
    next_member(j, key);
    fprintf(j->out, "%.6g", value);
}

static void put_flag(json *j, const char *key, bool value)
{
    next_member(j, key);
    fputs(value ? "true" : "false", j->out);
}

static void put_figures(json *j, const char *key, const measured *m, size_t member)
{
    const figures f = sorted_figures(m, member);

    put_open(j, key, '{');
    put_number(j, "min", f.of[0]);
    put_number(j, "median", f.of[(f.count - 1) / 2]);
    put_number(j, "max", f.of[f.count - 1]);
    put_whole(j, "samples", f.count);
    put_close(j, '}');
}

/* What follows key in a file of the system; "" if nothing does. */
static void read_system_line(const char *path, const char *key, char *out, size_t room)
{
    char line[512];
    FILE *file = fopen(path, "re");

    out[0] = '\0';
    while (file != NULL && out[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, room, "%s", line + strlen(key) + strspn(line + strlen(key), " \t:"));
    }
    if (file != NULL)
        fclose(file);
}

static void put_machine(json *j, const gpu *g)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    char text[256];
    struct utsname name;

    put_open(j, "host", '{');
    read_system_line("/proc/cpuinfo", "model name", text, sizeof text);
    put_text(j, "cpu", text);
    put_whole(j, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    put_text(j, "kernel", uname(&name) == 0 ? name.release : "");
    read_system_line("/proc/driver/nvidia/version", "NVRM version", text, sizeof text);
    put_text(j, "kernel_driver", text);
    put_close(j, '}');
    put_open(j, "device", '{');
    put_text(j, "name", g->info.name);
    put_flag(j, "software", g->info.software != 0);
    put_whole(j, "total_bytes", g->info.total_bytes);
    put_whole(j, "sm_count", (uint64_t)g->info.sm_count);
    if (gvm_driver_get_info(&driver) == GVM_OK)
        put_whole(j, "cuda_version", (uint64_t)driver.version);
    put_close(j, '}');
}

static void put_method(json *j, const join_case *c, method m)
{
    const measured *all = &c->of[m];
    const outcome *o = &all->runs[0];

    put_open(j, NULL, '{');
    put_text(j, "method", method_names[m]);
    put_figures(j, "ms", all, offsetof(outcome, ms));
    if (o->count_ms > 0)
        put_figures(j, "count_ms", all, offsetof(outcome, count_ms));
    put_figures(j, "allocate_ms", all, offsetof(outcome, allocate_ms));
    put_figures(j, "write_ms", all, offsetof(outcome, write_ms));
    if (m == APPENDER)
        put_figures(j, "take_ms", all, offsetof(outcome, take_ms));
    put_figures(j, "free_ms", all, offsetof(outcome, free_ms));
    put_number(j, "gb_per_s", median_ms(all) > 0 ? (double)result_bytes(o) / median_ms(all) / 1e6 : 0);
    if (m != TWO_PASS && speed_up(c, m) > 0)
        put_number(j, "times_as_fast_as_two_pass", speed_up(c, m));
    put_whole(j, "launches", o->launches);
    put_whole(j, "parts", o->parts);
    put_whole(j, "largest_buffer_bytes", o->piece_bytes_max);
    if (m == APPENDER) {
        put_whole(j, "commits", o->commits);
        put_figures(j, "commit_ms", all, offsetof(outcome, commit_ms));
        put_figures(j, "first_commit_ms", all, offsetof(outcome, first_ms));
        put_whole(j, "buffers", o->pieces);
    }
    if (m == FIXED) {
        put_flag(j, "overflowed", o->lost_rows > 0);
        put_whole(j, "lost_rows", o->lost_rows);
        if (o->lost_rows > 0)
            put_figures(j, "first_try_ms", all, offsetof(outcome, first_try_ms));
    }
    put_close(j, '}');
}

static void put_case(json *j, const join_case *c)
{
    const outcome *any = any_outcome(c);

    if (any == NULL)
        return;
    put_open(j, NULL, '{');
    put_text(j, "input", c->input);
    put_whole(j, "outer_rows", c->outer_rows);
    put_whole(j, "inner_rows", c->inner_rows);
    if (c->made.keys > 0) {
        put_whole(j, "keys", c->made.keys);
        put_number(j, "zipf", c->made.zipf);
        put_whole(j, "explode", c->made.explode);
        put_number(j, "fraction", c->made.fraction);
        put_number(j, "guess", generated_guess(&c->made));
        put_whole(j, "text_bytes_min", c->made.text_min);
        put_whole(j, "text_bytes_max", c->made.text_max);
        put_whole(j, "seed", c->made.seed);
    }
    put_whole(j, "estimate_rows", c->estimate);
    put_whole(j, "result_rows", any->rows);
    put_whole(j, "result_bytes", result_bytes(any));
    put_number(j, "times_the_estimate", (double)any->rows / (double)c->estimate);
    put_number(j, "build_ms", c->build_ms);
    if (c->checked)
        put_flag(j, "same_as_on_the_cpu", c->correct);
    put_open(j, "methods", '[');
    for (int m = 0; m < METHODS; m++)
        if (c->of[m].count > 0)
            put_method(j, c, (method)m);
    put_close(j, ']');
    put_close(j, '}');
}

static void write_json(FILE *out, const gpu *g, const char *command, const settings *s,
                       const join_case *cases, unsigned count)
{
    json j = {.out = out};
    time_t now = time(NULL);
    char date[32];
    struct tm utc;

    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    put_open(&j, NULL, '{');
    put_text(&j, "benchmark", "hashjoin");
    put_text(&j, "command", command);
    put_text(&j, "date", date);
    put_whole(&j, "gvmem_version", gvm_version());
    put_machine(&j, g);
    put_number(&j, "fixed_factor", s->factor);
    put_whole(&j, "budget_bytes", s->budget_bytes);
    put_whole(&j, "chunk_bytes", s->chunk_bytes);
    put_whole(&j, "part_rows", s->part_rows);
    put_open(&j, "cases", '[');
    for (unsigned i = 0; i < count; i++)
        put_case(&j, &cases[i]);
    put_close(&j, ']');
    put_close(&j, '}');
    fputc('\n', out);
}

bool report_json(const char *path, const gpu *g, const char *command, const settings *s,
                 const join_case *cases, unsigned count)
{
    FILE *out = path != NULL ? fopen(path, "we") : stdout;
    bool good;

    if (out == NULL) {
        fprintf(stderr, "hashjoin: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    write_json(out, g, command, s, cases, count);
    good = fflush(out) == 0 && ferror(out) == 0;
    if (path != NULL)
        good = fclose(out) == 0 && good;
    if (!good)
        fprintf(stderr, "hashjoin: cannot write %s\n", path != NULL ? path : "standard output");
    return good;
}
