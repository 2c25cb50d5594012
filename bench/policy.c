/* gvmem-bench policy: the keeper's choice of what to keep on a device, against the best possible
 * and the usual ones, on traces.
 *
 * Every policy gets the same budget and the same acquires. An acquire reads its whole object; the
 * bytes that are on the device when it comes are hits. Bytes move in whole chunks, when an acquire
 * is served and never else.
 *
 *   hits    of the bytes acquired. What an object's first acquire reads is a miss for everybody.
 *   moved   bytes brought in, likewise as a share of the bytes acquired
 *   link    bytes that crossed the link: each miss once, whether it is read from host memory or
 *           brought in, and each byte taken out once more (as if its host copy were always stale)
 *
 *   belady  the optimum for hits: of all bytes at hand, those on the device are the ones that are
 *           wanted again soonest (Belady 1966, with bypass: what is wanted later than everything
 *           there is read over the link). All chunks of an object are wanted at the same moment, so
 *           choosing by object gives the same hits as choosing by chunk. It
 *           counts no cost of moving, so link has no bound in it.
 *   lru     always brings in; takes what was not used for the longest time, chunk by chunk: an
 *           object that is larger than the budget has lost its beginning when its end is read
 *   lfu     counts for ever, brings in what has a larger count than what it takes
 */
#include "bench/bench.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "bench/traces.h"
#include "keeper/machine/policy.h"

#define BUDGETS_MAX 8
#define TRACES_MAX 64
#define PLANS_MAX 64 /* for one acquire: a plan has a bounded number of victims */

typedef enum contender { BELADY, KEEPER, LRU, LFU, CONTENDERS } contender;

static const char *const contender_names[CONTENDERS] = {"belady", "keeper", "lru", "lfu"};

/* In bytes; doubles, as sums over long traces leave 64 bits. */
typedef struct outcome {
    double acquired, hit, moved_in, moved_out;
} outcome;

/* ---- orders: Belady, LRU and LFU differ in what an object is ordered by */

typedef struct ranked {
    double order; /* the least goes first */
    uint64_t resident;
    uint32_t place; /* in the heap, from 1 on; 0: not there */
} ranked;

typedef struct ranking {
    ranked *objects;
    uint32_t *heap; /* from 1 on */
    uint32_t count;
    uint64_t budget, used;
} ranking;

static bool rank_less(const ranking *r, uint32_t a, uint32_t b)
{
    return r->objects[r->heap[a]].order < r->objects[r->heap[b]].order;
}

static void rank_swap(ranking *r, uint32_t a, uint32_t b)
{
    uint32_t kept = r->heap[a];

    r->heap[a] = r->heap[b];
    r->heap[b] = kept;
    r->objects[r->heap[a]].place = a;
    r->objects[r->heap[b]].place = b;
}

static void rank_settle(ranking *r, uint32_t place)
{
    for (; place > 1 && rank_less(r, place, place / 2); place /= 2)
        rank_swap(r, place, place / 2);
    for (;;) {
        uint32_t child = 2 * place;

        if (child < r->count && rank_less(r, child + 1, child))
            child++;
        if (child > r->count || !rank_less(r, child, place))
            return;
        rank_swap(r, child, place);
        place = child;
    }
}

/* Gives an object so many bytes of the device. */
static void rank_hold(ranking *r, uint32_t object, uint64_t bytes)
{
    ranked *o = &r->objects[object];

    r->used = r->used - o->resident + bytes;
    o->resident = bytes;
    if (bytes > 0 && o->place == 0) {
        o->place = ++r->count;
        r->heap[r->count] = object;
    } else if (bytes == 0 && o->place != 0) {
        uint32_t place = o->place;

        rank_swap(r, place, r->count);
        r->count--;
        o->place = 0;
        if (place <= r->count)
            rank_settle(r, place);
    }
    if (o->place != 0)
        rank_settle(r, o->place);
}

/* Fills what is free, then takes from lesser ones. Returns false if the object itself was the least
 * before it had everything. */
static bool rank_bring(ranking *r, uint32_t object, uint64_t bytes, outcome *sum)
{
    ranked *o = &r->objects[object];
    uint64_t want = bytes - o->resident, room = r->budget - r->used;
    uint64_t bring = want < room ? want : room;

    rank_hold(r, object, o->resident + bring);
    sum->moved_in += (double)bring;
    for (want -= bring; want > 0; want -= bring) {
        uint32_t least = r->heap[1];
        uint64_t held = r->objects[least].resident;

        if (least == object || !(r->objects[least].order < o->order))
            return false;
        bring = held < want ? held : want;
        rank_hold(r, least, held - bring);
        rank_hold(r, object, o->resident + bring);
        sum->moved_in += (double)bring;
        sum->moved_out += (double)bring;
    }
    return true;
}

static void set_order(ranking *r, uint32_t object, double order)
{
    r->objects[object].order = order;
    if (r->objects[object].place != 0)
        rank_settle(r, r->objects[object].place);
}

/* One acquire. LRU's own old chunks are the first to go once nothing older is left, each for the
 * one before it: then none of them is there when its turn comes. */
static void rank_acquire(ranking *r, contender who, uint32_t object, uint64_t bytes, double time,
                         double next, outcome *sum)
{
    uint64_t had = r->objects[object].resident;

    if (had > bytes)
        rank_hold(r, object, had = bytes);
    if (who == LRU) {
        if (!rank_bring(r, object, bytes, sum)) {
            sum->moved_in += (double)had;
            sum->moved_out += (double)had;
            had = 0;
        }
        set_order(r, object, time);
        rank_bring(r, object, bytes, sum);
        sum->moved_in += (double)(bytes - r->objects[object].resident); /* of one that never fits */
        sum->moved_out += (double)(bytes - r->objects[object].resident);
    } else {
        set_order(r, object, who == BELADY ? -next : r->objects[object].order + 1);
        if (!(who == BELADY && isinf(next)))
            rank_bring(r, object, bytes, sum);
    }
    sum->acquired += (double)bytes;
    sum->hit += (double)had;
}

/* When each event's object is wanted again; an event of several acquires is wanted again at once
 * first. */
static double *find_next_uses(const trace *t)
{
    double *next = malloc((t->count + (size_t)t->object_count) * sizeof *next);
    double *seen;

    if (next == NULL)
        return NULL;
    seen = next + t->count;
    for (uint32_t i = 0; i < t->object_count; i++)
        seen[i] = INFINITY;
    for (uint32_t i = t->count; i-- > 0;) {
        next[i] = seen[t->events[i].object];
        seen[t->events[i].object] = i;
    }
    return next;
}

static uint64_t round_to_chunk(uint64_t bytes, uint64_t chunk)
{
    return gvmi_round_up(bytes, chunk);
}

static bool replay_ranked(const trace *t, uint32_t device, contender who, uint64_t budget,
                          uint64_t chunk, const double *next, outcome *sum)
{
    ranking r = {.budget = budget};
    bool good;

    r.objects = calloc(t->object_count, sizeof *r.objects);
    r.heap = calloc((size_t)t->object_count + 1, sizeof *r.heap);
    good = r.objects != NULL && r.heap != NULL;
    for (uint32_t i = 0; good && i < t->count; i++) {
        const trace_event *e = &t->events[i];
        uint64_t bytes = round_to_chunk(e->bytes, chunk);
        uint32_t more = e->count - 1;

        if (e->device != device)
            continue;
        rank_acquire(&r, who, e->object, bytes, i, more > 0 ? i + 0.5 : next[i], sum);
        /* The second of many shows what the rest will do. */
        if (more > 0) {
            outcome again = {0};

            rank_acquire(&r, who, e->object, bytes, i + 0.5, next[i], &again);
            sum->acquired += again.acquired * more;
            sum->hit += again.hit * more;
            sum->moved_in += again.moved_in;
            sum->moved_out += again.moved_out;
            if (who == LFU)
                set_order(&r, e->object, r.objects[e->object].order + more - 1);
        }
    }
    free(r.objects);
    free(r.heap);
    return good;
}

/* ---- the keeper's */

typedef struct keeper_run {
    gvmi_policy *policy;
    gvmi_policy_item *items;
    bool *known;
    uint64_t budget, chunk, used;
    outcome *sum;
} keeper_run;

static void set_resident(keeper_run *k, gvmi_policy_item *item, uint64_t bytes)
{
    k->used = k->used - item->resident_bytes + bytes;
    gvmi_policy_resident(k->policy, item, bytes);
}

/* Does what the policy plans. Returns whether its list of victims was full, so that asking again
 * may bring more. */
static bool follow_plan(keeper_run *k, gvmi_policy_item *item)
{
    gvmi_policy_plan plan;

    gvmi_policy_plan_for(k->policy, item, k->budget - k->used, item->last_hint == GVM_HINT_HOT, &plan);
    for (uint32_t i = 0; i < plan.victim_count; i++) {
        gvmi_policy_item *victim = plan.victims[i].item;

        k->sum->moved_out += (double)plan.victims[i].bytes;
        set_resident(k, victim, victim->resident_bytes - plan.victims[i].bytes);
    }
    k->sum->moved_in += (double)plan.bring_bytes;
    set_resident(k, item, item->resident_bytes + plan.bring_bytes);
    return plan.victim_count == GVMI_POLICY_VICTIMS_MAX;
}

static gvm_status keeper_acquire(keeper_run *k, const trace_event *e)
{
    gvmi_policy_item *item = &k->items[e->object];
    uint64_t bytes = round_to_chunk(e->bytes, k->chunk), had;

    if (!k->known[e->object]) {
        item->unit_bytes = k->chunk;
        item->bytes = bytes; /* what a trace shows for the first time was there before */
        if (gvmi_policy_add(k->policy, item) != GVM_OK)
            return GVM_E_NOMEM;
        k->known[e->object] = true;
    }
    if (bytes < item->resident_bytes)
        k->used -= item->resident_bytes - bytes;
    had = item->resident_bytes < bytes ? item->resident_bytes : bytes;
    if (bytes != item->bytes) {
        bool grew = bytes > item->bytes;

        gvmi_policy_resize(k->policy, item, bytes);
        if (grew)
            follow_plan(k, item);
    }
    gvmi_policy_acquired(k->policy, item, e->count, (gvm_hint)e->hint);
    for (unsigned i = 0; i < PLANS_MAX && item->resident_bytes < bytes && follow_plan(k, item); i++) {}
    k->sum->acquired += (double)bytes * e->count;
    k->sum->hit += (double)had + (double)item->resident_bytes * (e->count - 1);
    return GVM_OK;
}

static bool replay_keeper(const trace *t, uint32_t device, uint64_t budget, uint64_t chunk, outcome *sum)
{
    keeper_run k = {.budget = budget, .chunk = chunk, .sum = sum};
    bool good;

    k.items = calloc(t->object_count, sizeof *k.items);
    k.known = calloc(t->object_count, sizeof *k.known);
    good = k.items != NULL && k.known != NULL && gvmi_policy_create(budget, &k.policy) == GVM_OK;
    for (uint32_t i = 0; good && i < t->count; i++)
        if (t->events[i].device == device)
            good = keeper_acquire(&k, &t->events[i]) == GVM_OK;
    gvmi_policy_destroy(k.policy);
    free(k.items);
    free(k.known);
    return good;
}

/* ---- rows: a trace, one of its devices, a budget */

typedef struct row {
    const trace *t;
    uint32_t device, objects;
    uint64_t footprint_bytes, budget_bytes;
    outcome outcomes[CONTENDERS];
} row;

typedef struct job {
    uint64_t budgets[BUDGETS_MAX];
    double shares[BUDGETS_MAX];
    unsigned budget_count, share_count;
    uint64_t chunk_bytes;
    int seed;
    trace traces[TRACES_MAX];
    unsigned trace_count;
    row *rows;
    unsigned row_count;
    FILE *text;
    const char *command;
} job;

/* Of the largest sizes that the device's objects had. */
static bool find_footprint(const trace *t, uint64_t chunk, row *r)
{
    uint64_t *peak = calloc(t->object_count, sizeof *peak);

    if (peak == NULL)
        return false;
    r->footprint_bytes = 0;
    r->objects = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const trace_event *e = &t->events[i];
        uint64_t bytes = round_to_chunk(e->bytes, chunk);

        if (e->device != r->device || bytes <= peak[e->object])
            continue;
        r->objects += peak[e->object] == 0;
        r->footprint_bytes += bytes - peak[e->object];
        peak[e->object] = bytes;
    }
    free(peak);
    return true;
}

static double percent_of(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static double link_bytes(const outcome *o)
{
    return o->acquired - o->hit + o->moved_out;
}

static void print_policy_head(FILE *text)
{
    fprintf(text, "%-16s %9s %5s |%30s |%30s |%30s\n", "", "", "", "hits, % of bytes acquired",
            "moved in, %", "link, %");
    fprintf(text, "%-16s %9s %5s", "trace", "budget", "share");
    for (int column = 0; column < 3; column++) {
        fputs(" |", text);
        for (int who = 0; who < CONTENDERS; who++)
            fprintf(text, " %6s%s", contender_names[who], who == 0 ? "  " : "");
    }
    fputc('\n', text);
}

static void print_row(FILE *text, const row *r)
{
    char size[32];

    fprintf(text, "%-16.16s %9s %4.0f%%", r->t->name, gvmi_size_text(r->budget_bytes, size),
            percent_of((double)r->budget_bytes, (double)r->footprint_bytes));
    for (int column = 0; column < 3; column++) {
        fputs(" |", text);
        for (int who = 0; who < CONTENDERS; who++) {
            const outcome *o = &r->outcomes[who];
            double part = column == 0 ? o->hit : column == 1 ? o->moved_in : link_bytes(o);

            fprintf(text, " %6.1f%s", percent_of(part, o->acquired), who == 0 ? "  " : "");
        }
    }
    fputc('\n', text);
}

static bool measure_budget(const job *j, const double *next, row *r)
{
    memset(r->outcomes, 0, sizeof r->outcomes);
    for (int who = 0; who < CONTENDERS; who++) {
        outcome *o = &r->outcomes[who];

        if (who == KEEPER ? !replay_keeper(r->t, r->device, r->budget_bytes, j->chunk_bytes, o)
                          : !replay_ranked(r->t, r->device, (contender)who, r->budget_bytes,
                                           j->chunk_bytes, next, o))
            return false;
    }
    return true;
}

static bool run_budget(job *j, const double *next, row *r, uint64_t budget_bytes)
{
    row *grown = realloc(j->rows, (j->row_count + 1) * sizeof *grown);

    if (grown == NULL)
        return false;
    j->rows = grown;
    r->budget_bytes = gvmi_round_down(budget_bytes, j->chunk_bytes);
    if (r->budget_bytes == 0)
        r->budget_bytes = j->chunk_bytes;
    if (!measure_budget(j, next, r))
        return false;
    j->rows[j->row_count++] = *r;
    print_row(j->text, r);
    return true;
}

static bool run_trace(job *j, const trace *t)
{
    double *next = find_next_uses(t);
    bool good = next != NULL;

    for (uint32_t device = 0; good && device < t->device_count; device++) {
        row r = {.t = t, .device = device};

        good = find_footprint(t, j->chunk_bytes, &r);
        if (!good || r.footprint_bytes == 0)
            continue;
        for (unsigned i = 0; good && i < j->budget_count; i++)
            good = run_budget(j, next, &r, j->budgets[i]);
        for (unsigned i = 0; good && i < j->share_count; i++)
            good = run_budget(j, next, &r, (uint64_t)((double)r.footprint_bytes * j->shares[i]));
    }
    free(next);
    return good;
}

/* Of each contender, what it hits of what the optimum hits, as the mean of all rows where that hits
 * anything. */
static void print_summary(const job *j)
{
    double sums[CONTENDERS] = {0};
    unsigned count = 0;

    for (unsigned i = 0; i < j->row_count; i++) {
        const row *r = &j->rows[i];

        if (r->outcomes[BELADY].hit == 0)
            continue;
        count++;
        for (int who = 0; who < CONTENDERS; who++)
            sums[who] += r->outcomes[who].hit / r->outcomes[BELADY].hit;
    }
    fprintf(j->text, "\nhits of those of the optimum, mean of %u:", count);
    for (int who = 0; who < CONTENDERS; who++)
        if (who != BELADY)
            fprintf(j->text, " %s %.1f%%", contender_names[who], percent_of(sums[who], count));
    fputc('\n', j->text);
}

/* ---- the record */

static void write_row(json *out, const row *r)
{
    json_object(out, NULL);
    json_string(out, "trace", r->t->name);
    json_unsigned(out, "device", r->device);
    json_unsigned(out, "objects", r->objects);
    json_unsigned(out, "footprint_bytes", r->footprint_bytes);
    json_unsigned(out, "budget_bytes", r->budget_bytes);
    json_number(out, "acquired_bytes", r->outcomes[BELADY].acquired);
    for (int who = 0; who < CONTENDERS; who++) {
        const outcome *o = &r->outcomes[who];

        json_object(out, contender_names[who]);
        json_number(out, "hit_ratio", o->acquired > 0 ? o->hit / o->acquired : 0);
        json_number(out, "moved_in_bytes", o->moved_in);
        json_number(out, "moved_out_bytes", o->moved_out);
        json_number(out, "link_bytes", link_bytes(o));
        json_end(out);
    }
    json_end(out);
}

static void write_policy_record(FILE *file, const void *arg)
{
    const job *j = arg;
    json out;

    json_start(&out, file);
    json_object(&out, NULL);
    bench_write_head(&out, "policy", j->command);
    json_unsigned(&out, "chunk_bytes", j->chunk_bytes);
    json_integer(&out, "seed", j->seed);
    json_array(&out, "rows");
    for (unsigned i = 0; i < j->row_count; i++)
        write_row(&out, &j->rows[i]);
    json_end(&out);
    json_end(&out);
}

/* ---- the command */

static bool parse_share(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    if (end != text && *end == '%' && end[1] == '\0') {
        *out /= 100;
        end++;
    }
    if (end != text && *end == '\0' && *out > 0 && *out <= 16)
        return true;
    tool_usage("policy", "--budget-share takes a share such as 0.25 or 25%%, not \"%s\"", text);
    return false;
}

static const trace_kind *find_kind(const char *name)
{
    for (unsigned i = 0; i < trace_kind_count; i++)
        if (strcmp(trace_kinds[i].name, name) == 0)
            return &trace_kinds[i];
    return NULL;
}

static bool make_trace(job *j, const trace_kind *kind)
{
    trace *t = &j->traces[j->trace_count++];

    snprintf(t->name, sizeof t->name, "%s", kind->name);
    return kind->make(t, (uint64_t)j->seed);
}

/* Traces from files, or else one of the kinds, or all. */
static int collect_traces(job *j, const trace_kind *kind, int count, char **paths)
{
    bool good = true;

    if (count > TRACES_MAX)
        return tool_usage("policy", "at most %d traces", TRACES_MAX);
    for (int i = 0; i < count; i++)
        if (trace_load(&j->traces[j->trace_count++], paths[i]) != TOOL_DONE)
            return TOOL_FAILED;
    for (unsigned i = 0; good && count == 0 && i < trace_kind_count; i++)
        if (kind == NULL || kind == &trace_kinds[i])
            good = make_trace(j, &trace_kinds[i]);
    return good ? TOOL_DONE : tool_error("out of memory");
}

static int run_job(job *j, const char *json_path)
{
    bool good = true;

    j->text = json_path != NULL && strcmp(json_path, "-") == 0 ? stderr : stdout;
    print_policy_head(j->text);
    for (unsigned i = 0; good && i < j->trace_count; i++)
        good = run_trace(j, &j->traces[i]);
    if (!good)
        return tool_error("out of memory");
    print_summary(j);
    if (!tool_flush(j->text, "standard output"))
        return TOOL_FAILED;
    return json_path != NULL ? bench_save(json_path, write_policy_record, j) : TOOL_DONE;
}

static void print_usage(void)
{
    puts("usage: gvmem-bench policy [OPTION...] [TRACE...]\n"
         "\n"
         "Replays what clients acquired (gvmem-keeper --trace) through the keeper's policy, and\n"
         "through Belady's optimum, LRU and LFU. Without a trace, built-in patterns are used.\n"
         "\n"
         "  -b, --budget SIZE       device memory to choose for; up to 8 times\n"
         "  -s, --budget-share F    the same as a share of all objects together (10%, 25%, 50%, 67%)\n"
         "  -c, --chunk SIZE        what moves at once, a power of two (2MiB)\n"
         "  -g, --generate PATTERN  one of the patterns below alone\n"
         "  -S, --seed N            other sizes, orders and mixes of the patterns (0)\n"
         "  -w, --write FILE        write the pattern as a trace instead of measuring\n"
         "  -j, --json[=FILE]       also as JSON; on standard output the table then goes to\n"
         "                          standard error\n"
         "  -h, --help              this text\n");
    for (unsigned i = 0; i < trace_kind_count; i++)
        printf("  %-11s%s\n", trace_kinds[i].name, trace_kinds[i].text);
}

typedef struct choice {
    const trace_kind *kind;
    const char *json_path, *write_path;
    bool help;
} choice;

static bool take_option(job *j, choice *c, int option)
{
    if (option == 'b' && j->budget_count < BUDGETS_MAX)
        return tool_parse_size("policy", "--budget", optarg, 1, &j->budgets[j->budget_count++]);
    if (option == 's' && j->share_count < BUDGETS_MAX)
        return parse_share(optarg, &j->shares[j->share_count++]);
    if (option == 'c')
        return tool_parse_size("policy", "--chunk", optarg, 4096, &j->chunk_bytes);
    if (option == 'S')
        return tool_parse_number("policy", "--seed", optarg, 0, 1000000, &j->seed);
    if (option == 'g') {
        c->kind = find_kind(optarg);
        if (c->kind == NULL)
            tool_usage("policy", "there is no pattern \"%s\"", optarg);
        return c->kind != NULL;
    }
    if (option == 'w' || option == 'j' || option == 'h') {
        c->write_path = option == 'w' ? optarg : c->write_path;
        c->json_path = option != 'j' ? c->json_path : optarg != NULL ? optarg : "-";
        c->help = option == 'h';
        return true;
    }
    tool_usage("policy", option == 'b' || option == 's' ? "more than 8 budgets"
                                                        : "unknown option, or its value is missing");
    return false;
}

static int check_choice(const job *j, const choice *c, int paths)
{
    if (!gvmi_is_pow2(j->chunk_bytes) || j->chunk_bytes > GVM_CHUNK_BYTES_MAX)
        return tool_usage("policy", "--chunk takes a power of two, at most 1GiB");
    if (c->kind != NULL && paths > 0)
        return tool_usage("policy", "--generate and traces do not go together");
    if (c->write_path != NULL && c->kind == NULL)
        return tool_usage("policy", "--write needs --generate");
    return TOOL_DONE;
}

static void use_default_budgets(job *j)
{
    static const double shares[] = {0.1, 0.25, 0.5, 2.0 / 3};

    if (j->budget_count > 0 || j->share_count > 0)
        return;
    memcpy(j->shares, shares, sizeof shares);
    j->share_count = sizeof shares / sizeof shares[0];
}

static int run_command(job *j, int argc, char **argv)
{
    static const struct option longs[] = {{"budget", required_argument, NULL, 'b'},
                                          {"budget-share", required_argument, NULL, 's'},
                                          {"chunk", required_argument, NULL, 'c'},
                                          {"generate", required_argument, NULL, 'g'},
                                          {"seed", required_argument, NULL, 'S'},
                                          {"write", required_argument, NULL, 'w'},
                                          {"json", optional_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    choice c = {0};
    int option, code;

    while ((option = getopt_long(argc, argv, "b:s:c:g:S:w:j::h", longs, NULL)) != -1) {
        if (!take_option(j, &c, option))
            return TOOL_USAGE;
        if (c.help) {
            print_usage();
            return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
        }
    }
    code = check_choice(j, &c, argc - optind);
    use_default_budgets(j);
    if (code == TOOL_DONE)
        code = collect_traces(j, c.kind, argc - optind, argv + optind);
    if (code == TOOL_DONE)
        code = c.write_path != NULL ? trace_save(&j->traces[0], c.write_path)
                                    : run_job(j, c.json_path);
    return code;
}

int bench_policy(int argc, char **argv, const char *command)
{
    job *j = calloc(1, sizeof *j);
    int code;

    if (j == NULL)
        return tool_error("out of memory");
    j->chunk_bytes = 2 * GVMI_MIB;
    j->command = command;
    code = run_command(j, argc, argv);
    for (unsigned i = 0; i < j->trace_count; i++)
        trace_free(&j->traces[i]);
    free(j->rows);
    free(j);
    return code;
}
