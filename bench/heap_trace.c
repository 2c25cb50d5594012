/* Traces of allocations: reading them, and making one up. */
#define _GNU_SOURCE
#include "bench/heap_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tool.h"

#define LINE_BYTES 256
#define EVENTS_MAX 100000000u

/* ---- traces */

typedef struct live { /* a block that is live while a trace is read */
    uint64_t id;      /* first: a lone id is searched for */
    uint32_t block;
    uint64_t bytes;
    uint16_t stream;
} live;

typedef struct reader {
    heap_trace *trace;
    void *tree;
    uint32_t *spare; /* numbers of blocks that are free again */
    size_t spare_count, spare_capacity;
    uint64_t bytes;
} reader;

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static bool grow_array(void **array, size_t count, size_t *capacity, size_t each)
{
    void *grown;

    if (count < *capacity)
        return true;
    grown = realloc(*array, (*capacity > 0 ? 2 * *capacity : 1024) * each);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = *capacity > 0 ? 2 * *capacity : 1024;
    return true;
}

static int stream_number(heap_trace *trace, uint64_t handle)
{
    for (unsigned i = 0; i < trace->streams; i++)
        if (trace->stream_handles[i] == handle)
            return (int)i;
    if (trace->streams == HEAP_TRACE_STREAMS_MAX)
        return -1;
    trace->stream_handles[trace->streams] = handle;
    return (int)trace->streams++;
}

/* NULL, or what is wrong. */
static const char *add_event(reader *r, bool is_free, uint64_t id, uint64_t bytes, uint64_t stream)
{
    heap_trace *trace = r->trace;
    live **node, *block;
    const int number = stream_number(trace, stream);

    if (number < 0)
        return "too many streams";
    if (trace->count == EVENTS_MAX ||
        !grow_array((void **)&trace->events, trace->count, &trace->capacity, sizeof *trace->events) ||
        !grow_array((void **)&r->spare, r->spare_count, &r->spare_capacity, sizeof *r->spare))
        return "out of memory";
    node = tfind(&id, &r->tree, compare_ids);
    if (is_free) {
        if (node == NULL)
            return NULL; /* of before the recording began */
        block = *node;
        tdelete(&id, &r->tree, compare_ids);
        r->spare[r->spare_count++] = block->block;
        r->bytes -= block->bytes;
        trace->events[trace->count++] = (heap_event){block->bytes, block->block, (uint16_t)number,
                                                     true};
        free(block);
        return NULL;
    }
    if (node != NULL)
        return "a block is allocated that is live already";
    if (bytes == 0)
        return NULL;
    block = malloc(sizeof *block);
    if (block == NULL)
        return "out of memory";
    *block = (live){.id = id, .bytes = bytes};
    block->block = r->spare_count > 0 ? r->spare[--r->spare_count] : trace->blocks_max++;
    if (tsearch(block, &r->tree, compare_ids) == NULL) {
        free(block);
        return "out of memory";
    }
    r->bytes += bytes;
    if (r->bytes > trace->peak_bytes)
        trace->peak_bytes = r->bytes;
    trace->events[trace->count++] = (heap_event){bytes, block->block, (uint16_t)number, false};
    return NULL;
}

static void end_reader(reader *r)
{
    tdestroy(r->tree, free);
    free(r->spare);
}

void heap_trace_free(heap_trace *trace)
{
    free(trace->events);
    *trace = (heap_trace){0};
}

/* ---- the file */

typedef struct source {
    FILE *file;
    pid_t child; /* gzip, or 0 */
} source;

static bool has_suffix(const char *text, const char *suffix)
{
    const size_t len = strlen(text), end = strlen(suffix);

    return len > end && strcmp(text + len - end, suffix) == 0;
}

/* What gzip -dc writes; it says itself why it cannot. */
static bool open_unpacked(const char *path, source *out)
{
    char *arguments[] = {"gzip", "-dc", "--", (char *)path, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], error;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return tool_error("cannot make a pipe: %s", strerror(errno)) == TOOL_DONE;
    error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        if (error == 0)
            error = posix_spawnp(&out->child, "gzip", &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (error == 0) {
        out->file = fdopen(ends[0], "r");
        if (out->file != NULL)
            return true;
        error = errno;
        close(ends[0]);
        waitpid(out->child, NULL, 0);
    } else {
        close(ends[0]);
    }
    return tool_error("cannot run gzip to unpack %s: %s", path, strerror(error)) == TOOL_DONE;
}

static bool open_source(const char *path, source *out)
{
    *out = (source){0};
    if (has_suffix(path, ".gz"))
        return open_unpacked(path, out);
    out->file = fopen(path, "re");
    if (out->file == NULL)
        return tool_error("cannot read %s: %s", path, strerror(errno)) == TOOL_DONE;
    return true;
}

/* False if the file ended before all of it was read. */
static bool close_source(source *s)
{
    const bool good = ferror(s->file) == 0;
    int status = 0;

    fclose(s->file);
    if (s->child != 0)
        while (waitpid(s->child, &status, 0) < 0 && errno == EINTR)
            ;
    return good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool heap_trace_read(const char *path, heap_trace *out)
{
    reader r = {.trace = out};
    const char *wrong = NULL;
    unsigned long number = 0;
    char line[LINE_BYTES];
    bool whole;
    source from;

    *out = (heap_trace){0};
    if (!open_source(path, &from))
        return false;
    while (wrong == NULL && fgets(line, sizeof line, from.file) != NULL) {
        unsigned long long id, bytes, stream;
        char kind;

        if (number++ == 0 && strcmp(line, "# gvmem heap trace 1\n") != 0)
            wrong = "not a heap trace: the first line should be \"# gvmem heap trace 1\"";
        else if (line[0] == '#')
            continue;
        else if (sscanf(line, "%c %llx %llu %llx", &kind, &id, &bytes, &stream) != 4 ||
                 (kind != 'a' && kind != 'f'))
            wrong = "not an event: a line is \"a|f ID BYTES STREAM [NS]\"";
        else
            wrong = add_event(&r, kind == 'f', id, bytes, stream);
    }
    whole = close_source(&from); /* of a file that is wrong, gzip may not have been let finish */
    if (wrong == NULL && !whole)
        wrong = "the file cannot be read to its end";
    if (wrong == NULL && out->count == 0)
        wrong = "no events";
    end_reader(&r);
    if (wrong == NULL)
        return true;
    tool_error("%s, line %lu: %s", path, number, wrong);
    heap_trace_free(out);
    return false;
}

/* ---- a made-up one */

#define LAYERS 24
#define SMALL_KEPT 256 /* small tensors that outlive steps */

typedef struct maker {
    reader r;
    uint64_t random, next_id;
    bool failed;
} maker;

static uint64_t random_below_end(maker *m, uint64_t end)
{
    uint64_t x = m->random += 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (x ^ x >> 31) % end;
}

static uint64_t make_block(maker *m, uint64_t bytes)
{
    m->failed = m->failed || add_event(&m->r, false, ++m->next_id, bytes, 0) != NULL;
    return m->next_id;
}

static void end_block(maker *m, uint64_t id)
{
    if (id != 0)
        m->failed = m->failed || add_event(&m->r, true, id, 0, 0) != NULL;
}

/* 512 B to 64 KiB, as many of each order of size. */
static uint64_t small_bytes(maker *m)
{
    const uint64_t order = 9 + random_below_end(m, 7);

    return ((1ull << order) + random_below_end(m, 1ull << order) + 511) / 512 * 512;
}

/* Temporaries of one operation: live while it runs. */
static void use_workspace(maker *m, uint64_t bytes)
{
    uint64_t small[4], large = make_block(m, bytes);

    for (int i = 0; i < 4; i++)
        small[i] = make_block(m, small_bytes(m));
    for (int i = 4; i-- > 0;)
        end_block(m, small[i]);
    end_block(m, large);
}

/* hidden: the width of the network, on which the sizes of everything depend. */
static void make_steps(maker *m, uint64_t hidden, unsigned steps)
{
    enum { PARTS = 6, SAVED = 9 };
    static const unsigned widths[PARTS] = {3, 1, 4, 4,
                                           0, 0}; /* matrices of hidden x widths * hidden; biases */
    static const unsigned saved_widths[SAVED] = {1, 3, 2, 1, 1, 4, 4, 1, 0};
    uint64_t activations[LAYERS][SAVED], gradients[LAYERS][PARTS], kept[SMALL_KEPT] = {0};
    unsigned next_kept = 0;

    for (int layer = 0; layer < LAYERS; layer++) /* parameters, and two moments of each */
        for (int part = 0; part < 3 * PARTS; part++)
            make_block(m, widths[part % PARTS] > 0 ? hidden * hidden * widths[part % PARTS] * 4
                                                   : hidden * 4);
    make_block(m, hidden * 50000 * 2); /* the embedding */
    for (unsigned step = 0; step < steps; step++) {
        /* Sequences differ from batch to batch. */
        const uint64_t tokens = 8 * (384 + random_below_end(m, 640));

        for (int layer = 0; layer < LAYERS; layer++) {
            for (int i = 0; i < SAVED; i++)
                activations[layer][i] = make_block(
                    m, saved_widths[i] > 0 ? tokens * hidden * saved_widths[i] * 2 : tokens * 8);
            use_workspace(m, tokens * hidden * (1 + random_below_end(m, 3)));
            for (int i = 0; i < 8; i++)
                end_block(m, make_block(m, small_bytes(m)));
        }
        const uint64_t logits = make_block(m, tokens * 12800);

        for (int layer = LAYERS; layer-- > 0;) {
            for (int i = SAVED; i-- > 0;) {
                use_workspace(m, tokens * hidden * 2);
                end_block(m, activations[layer][i]);
            }
            for (int part = 0; part < PARTS; part++)
                gradients[layer][part] = make_block(
                    m, widths[part] > 0 ? hidden * hidden * widths[part] * 2 : hidden * 2);
        }
        end_block(m, logits);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int part = 0; part < PARTS; part++) {
                use_workspace(m, small_bytes(m));
                end_block(m, gradients[layer][part]);
            }
        for (int i = 0; i < 16; i++) { /* metrics */
            end_block(m, kept[next_kept % SMALL_KEPT]);
            kept[next_kept++ % SMALL_KEPT] = make_block(m, small_bytes(m));
        }
    }
}

bool heap_trace_make(uint64_t peak_bytes, unsigned steps, heap_trace *out)
{
    uint64_t hidden = 2048;
    bool failed;

    /* Parameters take about 12 * 4 * 3 * LAYERS bytes of hidden^2; find the width that fits. */
    for (;; hidden = hidden * 7 / 8 / 64 * 64) {
        maker m = {.r = {.trace = out}, .random = 1};

        *out = (heap_trace){0};
        make_steps(&m, hidden, steps);
        failed = m.failed;
        end_reader(&m.r);
        if (failed || out->peak_bytes <= peak_bytes || hidden <= 64)
            break;
        heap_trace_free(out);
    }
    if (failed)
        heap_trace_free(out);
    return !failed;
}
