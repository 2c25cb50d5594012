/* Traces of acquires: files, and generators of the patterns that memory policies meet. */
#include "bench/traces.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/client.h>

#include "base/size.h"

#define FIRST_LINE "# gvmem-keeper trace 1"

/* Sizes that generators use, in bytes. */
#define MIB(n) ((uint64_t)(n)*GVMI_MIB)

static bool append_event(trace *t, uint32_t object, uint64_t bytes, uint32_t hint)
{
    trace_event *grown;

    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity > 0 ? 2 * t->capacity : 1024;

        if (capacity > TRACE_EVENTS_MAX)
            return false;
        grown = realloc(t->events, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        t->events = grown;
        t->capacity = capacity;
    }
    t->events[t->count++] = (trace_event){.object = object, .bytes = bytes, .count = 1, .hint = hint};
    if (object >= t->object_count)
        t->object_count = object + 1;
    if (t->device_count == 0)
        t->device_count = 1;
    return true;
}

void trace_free(trace *t)
{
    free(t->events);
    memset(t, 0, sizeof *t);
}

/* ---- files */

typedef struct object_name {
    uint64_t device, object;
    uint32_t event;
} object_name;

static int compare_names(const void *a, const void *b)
{
    const object_name *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->object != y->object)
        return x->object < y->object ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event);
}

/* The objects of a file have any numbers; the same one on two devices is two. */
static void number_objects(trace *t, object_name *names)
{
    qsort(names, t->count, sizeof *names, compare_names);
    t->object_count = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        if (i == 0 || names[i].device != names[i - 1].device || names[i].object != names[i - 1].object)
            t->object_count++;
        t->events[names[i].event].object = t->object_count - 1;
    }
}

static bool parse_line(const char *line, uint64_t out[5])
{
    for (int i = 0; i < 5; i++) {
        char *end;

        line += strspn(line, " ");
        if (*line < '0' || *line > '9')
            return false;
        errno = 0;
        out[i] = strtoull(line, &end, 10);
        if (errno != 0)
            return false;
        line = end;
    }
    return line[strspn(line, " \r\n")] == '\0' && out[0] < 1024 && out[2] <= TRACE_BYTES_MAX &&
           out[3] <= UINT32_MAX && out[4] <= GVM_HINT_ONCE;
}

static int read_lines(trace *t, object_name **names, FILE *file, const char *path)
{
    char line[256];
    uint64_t number = 1, value[5];
    uint32_t capacity = 0;

    if (fgets(line, sizeof line, file) == NULL || strncmp(line, FIRST_LINE, strlen(FIRST_LINE)) != 0)
        return tool_error("%s is no trace: its first line is not \"%s\"", path, FIRST_LINE);
    while (fgets(line, sizeof line, file) != NULL) {
        number++;
        if (line[0] == '#' || line[strspn(line, " \r\n")] == '\0')
            continue;
        if (!parse_line(line, value))
            return tool_error("%s:%" PRIu64 ": not device, object, bytes, count and hint", path,
                              number);
        if (value[2] == 0 || value[3] == 0)
            continue;
        if (!append_event(t, 0, value[2], (uint32_t)value[4]))
            return tool_error("%s:%" PRIu64 ": out of memory, or too many lines", path, number);
        if (t->capacity != capacity) {
            object_name *grown = realloc(*names, t->capacity * sizeof *grown);

            if (grown == NULL)
                return tool_error("out of memory");
            *names = grown;
            capacity = t->capacity;
        }
        t->events[t->count - 1].count = (uint32_t)value[3];
        t->events[t->count - 1].device = (uint32_t)value[0];
        if (t->device_count < value[0] + 1)
            t->device_count = (uint32_t)value[0] + 1;
        (*names)[t->count - 1] = (object_name){value[0], value[1], t->count - 1};
    }
    if (ferror(file))
        return tool_error("cannot read %s: %s", path, strerror(errno));
    return t->count > 0 ? TOOL_DONE : tool_error("%s has no acquires", path);
}

int trace_load(trace *t, const char *path)
{
    const char *slash = strrchr(path, '/');
    object_name *names = NULL;
    FILE *file = fopen(path, "re");
    int code;

    memset(t, 0, sizeof *t);
    if (file == NULL)
        return tool_error("cannot read %s: %s", path, strerror(errno));
    snprintf(t->name, sizeof t->name, "%s", slash != NULL ? slash + 1 : path);
    code = read_lines(t, &names, file, path);
    fclose(file);
    if (code == TOOL_DONE)
        number_objects(t, names);
    else
        trace_free(t);
    free(names);
    return code;
}

int trace_save(const trace *t, const char *path)
{
    FILE *file = fopen(path, "we");
    bool good;

    if (file == NULL)
        return tool_error("cannot write %s: %s", path, strerror(errno));
    fprintf(file, "%s\n", FIRST_LINE);
    for (uint32_t i = 0; i < t->count; i++) {
        const trace_event *e = &t->events[i];

        fprintf(file, "%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu32 "\n", e->device,
                e->object, e->bytes, e->count, e->hint);
    }
    good = tool_flush(file, path);
    return fclose(file) == 0 && good ? TOOL_DONE : TOOL_FAILED;
}

/* ---- random numbers: splitmix64 */

static uint64_t next_trace_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint32_t trace_random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_trace_random(state) % n);
}

static double unit_random(uint64_t *state)
{
    return (double)(next_trace_random(state) >> 11) * 0x1p-53;
}

/* The usual value for seed 0, one from [least, most] for others. */
static uint32_t vary_by_seed(uint64_t seed, uint64_t *state, uint32_t usual, uint32_t least,
                             uint32_t most)
{
    uint32_t other = least + trace_random_below(state, most - least + 1);

    return seed == 0 ? usual : other;
}

/* ---- objects with sizes, and which of them is wanted how often */

enum { OBJECTS_MAX = 2048 };

typedef struct world {
    uint32_t count;
    uint64_t bytes[OBJECTS_MAX];
    uint32_t order[OBJECTS_MAX]; /* order[0] is the most popular */
    double share[OBJECTS_MAX];   /* of acquires that go to the first so many, Zipf */
} world;

/* Sizes from 2 MiB to most, their logarithms even. */
static void make_world(world *w, uint32_t count, uint64_t most, double exponent, uint64_t *state)
{
    double sum = 0;

    w->count = count;
    for (uint32_t i = 0; i < count; i++) {
        w->bytes[i] = (uint64_t)((double)MIB(2) *
                                 pow((double)most / (double)MIB(2), unit_random(state)));
        w->order[i] = i;
        sum += pow(i + 1, -exponent);
        w->share[i] = sum;
    }
    for (uint32_t i = 0; i < count; i++)
        w->share[i] /= sum;
}

static void shuffle_order(uint32_t *order, uint32_t count, uint64_t *state)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = trace_random_below(state, i), kept = order[j];

        order[j] = order[i - 1];
        order[i - 1] = kept;
    }
}

static uint32_t draw_object(const world *w, uint64_t *state)
{
    double x = unit_random(state);
    uint32_t low = 0, high = w->count - 1;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (w->share[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return w->order[low];
}

/* ---- the kinds */

/* One object, and again; every reader reads all of it. */
static bool make_single(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t rounds = vary_by_seed(seed, &state, 200, 100, 400);
    uint64_t bytes = MIB(vary_by_seed(seed, &state, 4096, 256, 8192));

    for (uint32_t i = 0; i < rounds; i++)
        if (!append_event(t, 0, bytes, GVM_HINT_NONE))
            return false;
    return true;
}

/* Many objects, round and round. */
static bool make_cyclic(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t count = vary_by_seed(seed, &state, 64, 12, 200),
             rounds = vary_by_seed(seed, &state, 60, 40, 80);
    uint64_t bytes = MIB(vary_by_seed(seed, &state, 64, 2, 100));

    for (uint32_t i = 0; i < rounds * count; i++)
        if (!append_event(t, i % count, bytes, GVM_HINT_NONE))
            return false;
    return true;
}

/* Every object is read once, a few twice shortly after, and never again. */
static bool make_scan(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t count = vary_by_seed(seed, &state, 1024, 400, 2000),
             back = vary_by_seed(seed, &state, 8, 3, 20);

    for (uint32_t i = 0; i < count; i++) {
        if (!append_event(t, i, MIB(32), GVM_HINT_NONE))
            return false;
        if (i >= back && trace_random_below(&state, 4) == 0 &&
            !append_event(t, i - back, MIB(32), GVM_HINT_NONE))
            return false;
    }
    return true;
}

/* Two programs take turns; each reads its objects several times a turn. */
static bool make_alternate(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t count = vary_by_seed(seed, &state, 24, 4, 60),
             passes = vary_by_seed(seed, &state, 8, 4, 20);
    uint32_t turns = 60, order[60];

    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t pass = 0; pass < passes; pass++) {
            if (seed % 2 == 1) /* each pass in another order */
                shuffle_order(order, count, &state);
            for (uint32_t i = 0; i < count; i++)
                if (!append_event(t, turn % 2 * count + order[i], MIB(64), GVM_HINT_NONE))
                    return false;
        }
    return true;
}

static bool make_zipf(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    world *w = malloc(sizeof *w);
    bool good = w != NULL;

    if (good)
        make_world(w, vary_by_seed(seed, &state, 500, 100, 1500),
                   MIB(vary_by_seed(seed, &state, 256, 32, 1024)),
                   vary_by_seed(seed, &state, 90, 60, 120) / 100.0, &state);
    for (uint32_t i = 0; good && i < 20000; i++) {
        uint32_t object = draw_object(w, &state);

        good = append_event(t, object, w->bytes[object], GVM_HINT_NONE);
    }
    free(w);
    return good;
}

/* The same, but every so often a tenth of the objects change their ranks, and halfway all of them. */
static bool make_shift(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t often = vary_by_seed(seed, &state, 2000, 1000, 4000);
    world *w = malloc(sizeof *w);
    bool good = w != NULL;

    if (good)
        make_world(w, vary_by_seed(seed, &state, 500, 100, 1500),
                   MIB(vary_by_seed(seed, &state, 256, 32, 1024)),
                   vary_by_seed(seed, &state, 90, 70, 120) / 100.0, &state);
    for (uint32_t i = 0; good && i < 20000; i++) {
        uint32_t object = draw_object(w, &state);

        if (i == 10000)
            shuffle_order(w->order, w->count, &state);
        else if (i % often == often - 1)
            for (uint32_t j = 0; j < w->count / 20; j++) {
                uint32_t a = trace_random_below(&state, w->count),
                         b = trace_random_below(&state, w->count), kept = w->order[a];

                w->order[a] = w->order[b];
                w->order[b] = kept;
            }
        good = append_event(t, object, w->bytes[object], GVM_HINT_NONE);
    }
    free(w);
    return good;
}

/* A working set, and now and then a scan over other objects: new ones, or always the same. */
static bool make_mixed(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t count = vary_by_seed(seed, &state, 300, 40, 400),
             run = vary_by_seed(seed, &state, 60, 20, 150);
    uint32_t often = vary_by_seed(seed, &state, 800, 100, 1000),
             repeats = vary_by_seed(seed, &state, 0, 0, 1);
    uint32_t fresh = count;

    for (uint32_t i = 0; i < 8000; i++) {
        if (!append_event(t, trace_random_below(&state, count), MIB(32), GVM_HINT_NONE))
            return false;
        if (i % often != often - 1)
            continue;
        for (uint32_t j = 0; j < run; j++, fresh++)
            if (!append_event(t, fresh, MIB(32), GVM_HINT_NONE))
                return false;
        if (repeats == 1)
            fresh = count;
    }
    return true;
}

/* Tables that grow while they are read, the latest ones mostly; old ones are looked at rarely. */
static bool make_growth(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t tables = vary_by_seed(seed, &state, 60, 20, 120),
             steps = vary_by_seed(seed, &state, 32, 8, 64);
    uint32_t reads = vary_by_seed(seed, &state, 4, 1, 8);

    for (uint32_t table = 0; table < tables; table++)
        for (uint32_t step = 1; step <= steps; step++) {
            if (!append_event(t, table, MIB(4) * step, GVM_HINT_NONE))
                return false;
            for (uint32_t i = 0; i < reads; i++) {
                uint32_t back = (uint32_t)(pow(unit_random(&state), 4) * (table + 1));
                uint32_t read = table - (back < table ? back : table);

                if (!append_event(t, read, MIB(4) * (read == table ? step : steps), GVM_HINT_NONE))
                    return false;
            }
        }
    return true;
}

/* Two programs in turns, over a Zipf background and scans. */
static bool make_everything(trace *t, uint64_t seed)
{
    uint64_t state = seed;
    uint32_t count = vary_by_seed(seed, &state, 20, 8, 40),
             passes = vary_by_seed(seed, &state, 10, 4, 20);
    uint32_t fresh = 1000;
    world *w = malloc(sizeof *w);
    bool good = w != NULL;

    if (good)
        make_world(w, 200, MIB(128), 1.0, &state);
    for (uint32_t turn = 0; good && turn < 40; turn++) {
        for (uint32_t i = 0; good && i < passes * count; i++) {
            uint32_t other = draw_object(w, &state);

            good = append_event(t, 500 + turn % 2 * 100 + i % count, MIB(32), GVM_HINT_NONE) &&
                   append_event(t, other, w->bytes[other], GVM_HINT_NONE);
        }
        for (uint32_t i = 0; good && turn % 4 == 3 && i < 50; i++)
            good = append_event(t, fresh++, MIB(32), GVM_HINT_NONE);
    }
    free(w);
    return good;
}

const trace_kind trace_kinds[] = {
    {"single", "one object, read again and again", make_single},
    {"cyclic", "many equal objects, round and round", make_cyclic},
    {"scan", "objects read once, a few of them twice", make_scan},
    {"alternate", "two programs in turns, several passes a turn", make_alternate},
    {"zipf", "few objects wanted often, many rarely", make_zipf},
    {"shift", "the same while popularity changes", make_shift},
    {"mixed", "a working set, and scans over new objects", make_mixed},
    {"growth", "tables that grow; recent ones are read most", make_growth},
    {"everything", "turns, few wanted often, and scans together", make_everything},
};
const unsigned trace_kind_count = sizeof trace_kinds / sizeof trace_kinds[0];
