/* A hash join on the GPU whose result has no size until it is there.
 *
 * Two tables are joined: keys equal, and a value within a range. How many rows that gives nobody
 * knows beforehand, and planners are wrong by orders of magnitude where keys are skewed. The
 * usual ways out are to join twice, counting first, or to allocate generously and do it again
 * when that was too little. Here the result goes through an appender (gvmem/appender.h): rows
 * from the front of a buffer, their texts from the back, and memory comes while the kernel
 * writes.
 *
 *     hashjoin --rows 1M --zipf 0.7 --method all --check
 *     apt-cache dumpavail | hashjoin --check -
 *     hashjoin --budget 8MiB --check /var/lib/dpkg/status
 *
 * Where to read on: shared.h (what lies where), kernels.c (the join), table.c (the hash table in
 * a heap), methods.c (appender, two passes, fixed buffer); then generate.c and packages.c
 * (input), reference.c and check.c (is it right?), report.c. gpu.c loads and launches.
 */
#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/hashjoin/hashjoin.h"

#define WHOLE_ROWS_MAX 2000000u /* of results that are compared row by row */
#define CASES_MAX 16

static const char usage[] =
    "usage: hashjoin [OPTION...]            generated tables\n"
    "       hashjoin [OPTION...] FILE       Debian packages with their dependencies; -: standard input\n"
    "       hashjoin --sweep [OPTION...]    generated tables, results from 1 to 100 times the estimate\n"
    "       hashjoin --cross [OPTION...]    each of 200K rows with each of 10K: 2 billion rows, part by part\n"
    "\n"
    "Joins two tables on the GPU, keys equal and a value within a range; result rows have fixed columns\n"
    "and a text. FILE is a Packages file, /var/lib/dpkg/status, or what `apt-cache dumpavail` prints.\n"
    "\n"
    "  -n, --rows N         rows of the outer table (1M; with --sweep up to 40M, as there is memory)\n"
    "      --inner N        rows of the inner table (a quarter)\n"
    "      --keys N         different keys (as many as inner rows)\n"
    "  -z, --zipf S         key i is as frequent as 1 / i^S, on both sides (0: all alike)\n"
    "  -e, --explode N      N rows of each table have one more key in common: N * N result rows (0)\n"
    "  -f, --fraction F     of the pairs with equal keys whose value is in the range (1)\n"
    "      --guess F        what the planner takes that fraction for (the fraction)\n"
    "  -t, --text MIN-MAX   lengths of texts in bytes (8-72)\n"
    "      --disjoint       no key of one table is in the other\n"
    "      --seed N         another drawing (1)\n"
    "  -m, --method NAME    appender, two-pass, fixed or all (appender; with --sweep all)\n"
    "  -b, --budget SIZE    most memory of a result buffer: when it is spent, the kernel is resumed with\n"
    "                       another (no limit)\n"
    "      --chunk SIZE     that the appender commits at a time (its own choice)\n"
    "      --part N         outer rows that are joined at once: what one part gives is taken before the next (all;\n"
    "                       with --cross 40K)\n"
    "  -x, --factor F       the fixed buffer is made for F times the estimate (8)\n"
    "  -r, --repeat N       measure N times after one to warm up, and tell medians (1, and none to warm up;\n"
    "                       with --sweep 7)\n"
    "  -c, --check          against a join on the CPU: rows and their sum; each row up to 2 million\n"
    "  -p, --print          the result's rows, sorted\n"
    "  -j, --json[=FILE]    figures as JSON; on standard output, the rest then goes to standard error\n"
    "  -d, --device N       the device (0)\n"
    "      --sweep          measures many results, as above; no FILE, and no rows are printed\n"
    "      --cross          one key, no texts, a budget of 4GiB, all methods, checked: each of them may be\n"
    "                       given otherwise; on the software GPU 4K rows with 500, 1K at once, 4MiB\n"
    "  -h, --help           this text\n";

typedef struct options {
    generated made;
    settings settings;
    const char *path;
    bool methods[METHODS];
    bool sweep, cross, check, print, json;
    const char *json_path;
    unsigned repeat;
    char command[1000];
} options;

/* ---- options */

static _Noreturn void wrong_usage(const char *what, const char *text)
{
    fprintf(stderr, "hashjoin: %s: %s; see hashjoin --help\n", what, text);
    exit(2);
}

/* "4M", "8MiB", "0.5": K, M and G are steps of 1000, or of 1024 with "iB" behind them. */
static double parse_scaled_number(const char *text, const char *what, double most)
{
    char *end;
    double value = strtod(text, &end);

    if (end != text && *end != '\0') {
        const char *letters = "KMGT", *letter = strchr(letters, toupper((unsigned char)*end));
        const double step = strcmp(end + (*end != '\0'), "iB") == 0 ? 1024 : 1000;

        if (letter == NULL || (end[1] != '\0' && step < 1024))
            wrong_usage(what, text);
        for (; letter >= letters; letter--)
            value *= step;
    }
    if (end == text || !(value >= 0 && value <= most))
        wrong_usage(what, text);
    return value;
}

static uint32_t read_rows(const char *text, const char *what, uint32_t least)
{
    const double value = parse_scaled_number(text, what, ROWS_MAX);

    if (value < least)
        wrong_usage(what, text);
    return (uint32_t)value;
}

static void read_lengths(generated *made, char *text)
{
    char *dash = strchr(text, '-');

    if (dash != NULL)
        *dash = '\0';
    made->text_min = (uint32_t)parse_scaled_number(text, "--text", TEXT_BYTES_MAX);
    made->text_max = dash != NULL ? (uint32_t)parse_scaled_number(dash + 1, "--text", TEXT_BYTES_MAX)
                                  : made->text_min;
    if (made->text_min > made->text_max)
        wrong_usage("--text", "the least is larger than the most");
}

static void read_method(options *o, const char *name)
{
    bool found = false;

    for (int m = 0; m < METHODS; m++) {
        o->methods[m] = strcmp(name, "all") == 0 || strcmp(name, method_names[m]) == 0;
        found = found || o->methods[m];
    }
    if (!found)
        wrong_usage("--method", name);
}

enum {
    OPTION_INNER = 256,
    OPTION_KEYS,
    OPTION_GUESS,
    OPTION_DISJOINT,
    OPTION_SEED,
    OPTION_CHUNK,
    OPTION_SWEEP,
    OPTION_CROSS,
    OPTION_PART,
};

static void read_option(options *o, gpu *g, int option, char *text)
{
    switch (option) {
    case 'n': o->made.outer_rows = read_rows(text, "--rows", 0); break;
    case OPTION_INNER: o->made.inner_rows = read_rows(text, "--inner", 0); break;
    case OPTION_KEYS: o->made.keys = read_rows(text, "--keys", 1); break;
    case 'z': o->made.zipf = parse_scaled_number(text, "--zipf", 10); break;
    case 'e': o->made.explode = read_rows(text, "--explode", 0); break;
    case 'f': o->made.fraction = parse_scaled_number(text, "--fraction", 1); break;
    case OPTION_GUESS: o->made.guess = parse_scaled_number(text, "--guess", 1); break;
    case 't': read_lengths(&o->made, text); break;
    case OPTION_DISJOINT: o->made.disjoint = true; break;
    case OPTION_SEED: o->made.seed = (uint64_t)parse_scaled_number(text, "--seed", 1e15); break;
    case 'm': read_method(o, text); break;
    case 'b':
        o->settings.budget_bytes = (uint64_t)parse_scaled_number(text, "--budget", 1e15);
        break;
    case OPTION_CHUNK:
        o->settings.chunk_bytes = (uint64_t)parse_scaled_number(text, "--chunk", 1e15);
        break;
    case 'x': o->settings.factor = parse_scaled_number(text, "--factor", 1e6); break;
    case 'r': o->repeat = (unsigned)parse_scaled_number(text, "--repeat", REPETITIONS_MAX); break;
    case 'c': o->check = true; break;
    case 'p': o->print = true; break;
    case 'j':
        o->json = true;
        o->json_path = text;
        break;
    case 'd': g->info.ordinal = (int32_t)parse_scaled_number(text, "--device", 1000); break;
    case OPTION_SWEEP: o->sweep = true; break;
    case OPTION_CROSS: o->cross = true; break;
    case OPTION_PART: o->settings.part_rows = read_rows(text, "--part", 1); break;
    case 'h': fputs(usage, stdout); exit(0);
    default: exit(2); /* getopt has said why */
    }
}

static void read_options(options *o, gpu *g, int argc, char **argv)
{
    static const struct option table[] = {
        {"rows", 1, NULL, 'n'},
        {"inner", 1, NULL, OPTION_INNER},
        {"keys", 1, NULL, OPTION_KEYS},
        {"zipf", 1, NULL, 'z'},
        {"explode", 1, NULL, 'e'},
        {"fraction", 1, NULL, 'f'},
        {"guess", 1, NULL, OPTION_GUESS},
        {"text", 1, NULL, 't'},
        {"disjoint", 0, NULL, OPTION_DISJOINT},
        {"seed", 1, NULL, OPTION_SEED},
        {"method", 1, NULL, 'm'},
        {"budget", 1, NULL, 'b'},
        {"chunk", 1, NULL, OPTION_CHUNK},
        {"factor", 1, NULL, 'x'},
        {"repeat", 1, NULL, 'r'},
        {"check", 0, NULL, 'c'},
        {"print", 0, NULL, 'p'},
        {"json", 2, NULL, 'j'},
        {"device", 1, NULL, 'd'},
        {"sweep", 0, NULL, OPTION_SWEEP},
        {"cross", 0, NULL, OPTION_CROSS},
        {"part", 1, NULL, OPTION_PART},
        {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    size_t at = 0;
    int option;

    for (int i = 0; i < argc && at + 2 < sizeof o->command; i++)
        at += (size_t)snprintf(o->command + at, sizeof o->command - at, "%s%s", i > 0 ? " " : "",
                               i > 0 ? argv[i] : "hashjoin");
    while ((option = getopt_long(argc, argv, "n:z:e:f:t:m:b:x:r:cpj::d:h", table, NULL)) != -1)
        read_option(o, g, option, optarg);
    if (optind < argc)
        o->path = argv[optind++];
    if (optind < argc)
        wrong_usage("one file at a time", argv[optind]);
    if ((o->sweep || o->cross) && (o->path != NULL || o->print || (o->sweep && o->cross)))
        wrong_usage(o->sweep ? "--sweep" : "--cross",
                    "is for generated tables, alone, and prints no rows");
    if (o->print && o->json && o->json_path == NULL)
        wrong_usage("--print and --json", "cannot both go to standard output");
}

static void complete_options(options *o)
{
    generated *made = &o->made;
    bool any = false;

    if (made->outer_rows == UINT32_MAX)
        made->outer_rows = o->sweep ? 0 : 1000000;
    if (made->text_max == UINT32_MAX) {
        made->text_min = 8;
        made->text_max = 72;
    }
    for (int m = 0; m < METHODS; m++)
        any = any || o->methods[m];
    if (!any)
        read_method(o, o->sweep || o->cross ? "all" : "appender");
    if (made->inner_rows == UINT32_MAX)
        made->inner_rows = made->outer_rows / 4;
    if (made->keys == 0)
        made->keys = made->inner_rows > 0 ? made->inner_rows : 1;
    if (!o->sweep && (made->explode > made->outer_rows || made->explode > made->inner_rows))
        wrong_usage("--explode", "a table has fewer rows than that");
    if (o->repeat == 0)
        o->repeat = o->sweep ? 7 : o->cross ? 3 : 1;
}

/* Every row meets every other one: the largest result that two tables have. What is given stays. */
static void choose_cross(options *o, bool software)
{
    generated *made = &o->made;

    if (made->outer_rows == UINT32_MAX)
        made->outer_rows = software ? 4000 : 200000;
    if (made->inner_rows == UINT32_MAX)
        made->inner_rows = software ? 500 : 10000;
    if (o->settings.part_rows == 0)
        o->settings.part_rows = software ? 1000 : 40000;
    if (o->settings.budget_bytes == 0)
        o->settings.budget_bytes = (uint64_t)4 << (software ? 20 : 30);
    if (o->settings.chunk_bytes == 0 && software)
        o->settings.chunk_bytes = 2 << 20;
    if (made->keys == 0)
        made->keys = 1;
    if (made->text_max == UINT32_MAX)
        made->text_min = made->text_max = 0;
    o->check = true;
}

/* ---- one case */

/* Memory that a run has given back is not there for the next one, and what giving it back cost is not
 * left to it: a GPU's driver clears it meanwhile, and does the accounts with the next allocation. */
static void wait_for_freed_memory(const gpu *g)
{
    const struct timespec pause = {0, g->info.software ? 0 : 20 * 1000000};
    void *small;

    must(gvm_device_trim(g->device, 0), "cannot trim");
    nanosleep(&pause, NULL);
    must(gvm_alloc(g->device, 1, &small), "no memory");
    must(gvm_free(small), "cannot free memory");
    must(gvm_device_trim(g->device, 0), "cannot trim");
}

static uint64_t average_units(const tables *t)
{
    return t->inner_rows > 0 ? (t->text_units + t->inner_rows - 1) / t->inner_rows : 0;
}

/* Runs each method once, its result not looked at in the runs that are measured. */
static void run_checked(gpu *g, const options *o, const tables *t, const built *b,
                        const settings *s, join_case *c)
{
    const bool whole = o->print || (o->check && c->wanted.rows <= WHOLE_ROWS_MAX);
    bool print = o->print;

    for (int m = 0; m < METHODS; m++) {
        checker check;
        const char *wrong;
        outcome ignored;

        if (!o->methods[m])
            continue;
        checker_start(&check, g, t, o->check ? &c->wanted : NULL, whole, print ? stdout : NULL);
        join_with(g, (method)m, b, s, checker_take, &check, &ignored);
        wrong = checker_end(&check);
        print = false; /* once is enough */
        if (wrong != NULL) {
            fprintf(stderr, "hashjoin: %s, %s: %s\n", c->input, method_names[m], wrong);
            c->correct = false;
        }
        wait_for_freed_memory(g);
    }
}

/* In turns, each time beginning with another, so that whatever drifts does so for all. */
static void run_measured(gpu *g, const options *o, const built *b, const settings *s, join_case *c)
{
    const unsigned warm_up = o->repeat > 1 ? 1 : 0;

    for (unsigned i = 0; i < warm_up + o->repeat; i++)
        for (unsigned k = 0; k < METHODS; k++) {
            const method m = (method)((i + k) % METHODS);
            measured *to = &c->of[m];

            if (!o->methods[m])
                continue;
            to->count = i < warm_up ? 0 : i - warm_up;
            join_with(g, m, b, s, NULL, NULL, &to->runs[to->count]);
            to->count++;
            wait_for_freed_memory(g);
        }
}

static void run_case(gpu *g, const options *o, const tables *t, double guess, join_case *c)
{
    settings s = o->settings;
    double start;
    built b;

    c->outer_rows = t->outer_rows;
    c->inner_rows = t->inner_rows;
    c->estimate = s.estimate = tables_estimate(t, guess);
    s.average_units = average_units(t);
    c->checked = o->check;
    c->correct = true;
    if (o->check)
        reference_join(t, &c->wanted);
    start = now_ms();
    build(g, t, &b);
    c->build_ms = now_ms() - start;
    wait_for_freed_memory(g);
    if (o->check || o->print)
        run_checked(g, o, t, &b, &s, c);
    run_measured(g, o, &b, &s, c);
    build_free(g, &b);
}

static bool run_generated(gpu *g, const options *o, const generated *made, const char *input,
                          FILE *text, join_case *c)
{
    tables t;

    c->input = input;
    c->made = *made;
    generate(made, &t);
    run_case(g, o, &t, generated_guess(made), c);
    report_text(text, c, &o->settings);
    fflush(text);
    tables_free(&t);
    return c->correct;
}

/* ---- the sweep */

/* What PostgreSQL takes the fraction of a range for that it has no statistics for. */
#define RANGE_GUESS 0.005
#define SWEEP_ROWS_MAX 40e6 /* the hash table then is many times as large as a GPU's caches */
#define SWEEP_ROWS_SOFTWARE 2e4

typedef struct swept {
    gpu *g;
    const options *o;
    FILE *text;
    join_case *cases;
    unsigned count;
    bool good;
} swept;

/* As many rows as can be, if results of that many times the estimate are to fill two fifths of the memory at
 * most. The estimate is up to twice the outer rows: half of the keys do not occur. */
static void choose_rows(const swept *w, generated *made, double times)
{
    const double row_bytes = sizeof(result_row) + (made->text_min + made->text_max) / 2.0 +
                             UNIT_BYTES / 2;
    const double rows = (double)w->g->info.free_bytes * 0.4 / (2 * times) / row_bytes;
    const double most = w->g->info.software ? SWEEP_ROWS_SOFTWARE : SWEEP_ROWS_MAX;

    if (w->o->made.outer_rows != 0)
        return;
    made->outer_rows = (uint32_t)(rows < most ? rows : most);
    made->inner_rows = made->keys = made->outer_rows / 4;
}

/* One more case, recorded with those before it: nothing is lost if the sweep is not let to its end. */
static void sweep_case(swept *w, const generated *made, const char *input)
{
    const options *o = w->o;

    w->good = run_generated(w->g, o, made, input, w->text, &w->cases[w->count++]) && w->good;
    if (o->json && o->json_path != NULL)
        w->good = report_json(o->json_path, w->g, o->command, &o->settings, w->cases, w->count) &&
                  w->good;
}

/* How many of the pairs are in the range, the planner has guessed. Keys all alike, and skewed, so that
 * they meet skew times as often as it assumes. */
static void sweep_range(swept *w)
{
    static const double times[] = {1, 10, 100}, skews[] = {1, 3};
    generated made = w->o->made;

    made.guess = RANGE_GUESS;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            made.fraction = RANGE_GUESS * times[i] / skews[k];
            choose_rows(w, &made, made.fraction * skews[k]);
            made.zipf = zipf_for(made.keys, made.outer_rows, skews[k]);
            sweep_case(w, &made, "range");
        }
}

/* The planner knows everything but that some keys are frequent on both sides. */
static void sweep_zipf(swept *w)
{
    static const double times[] = {1, 3, 10, 30, 100}, fractions[] = {1, 0.25};
    generated made = w->o->made;

    for (int f = 0; f < 2; f++) {
        made.fraction = fractions[f];
        for (int i = 0; i < 5; i += 1 + f) { /* with a fraction 1, 10 and 100 times */
            choose_rows(w, &made, times[i]);
            made.zipf = zipf_for(made.keys, made.outer_rows, times[i]);
            sweep_case(w, &made, "zipf");
        }
    }
}

/* But for one key, rows that meet are about as many as outer rows. */
static void sweep_explode(swept *w)
{
    static const double times[] = {10, 100};
    generated made = w->o->made;

    for (int i = 0; i < 2; i++) {
        choose_rows(w, &made, times[i]);
        for (made.explode = 1; (double)made.explode * made.explode < (times[i] - 1) * made.outer_rows &&
                               made.explode < made.inner_rows;)
            made.explode++;
        sweep_case(w, &made, "explode");
    }
}

int main(int argc, char **argv)
{
    options o = {
        .made = {.outer_rows = 0, .inner_rows = UINT32_MAX, .fraction = 1, .text_max = UINT32_MAX, .seed = 1},
        .settings = {.factor = 8}};
    join_case *cases = must_have(CASES_MAX, sizeof *cases);
    unsigned count = 0;
    bool good = true;
    FILE *text;
    gpu g = {0};

    o.made.outer_rows = UINT32_MAX; /* not given */
    read_options(&o, &g, argc, argv);
    text = (o.json && o.json_path == NULL) || o.print ? stderr : stdout;
    if (!o.cross)
        complete_options(&o);
    gpu_open(&g);
    if (o.cross) {
        choose_cross(&o, g.info.software != 0);
        complete_options(&o);
        good = run_generated(&g, &o, &o.made, "cross", text, &cases[count++]);
    } else if (o.sweep) {
        swept w = {.g = &g, .o = &o, .text = text, .cases = cases, .good = true};

        o.check = true;
        sweep_range(&w);
        sweep_zipf(&w);
        sweep_explode(&w);
        count = w.count;
        good = w.good;
    } else if (o.path != NULL) {
        tables t;

        cases[count].input = "packages";
        read_packages(o.path, &t);
        run_case(&g, &o, &t, 1, &cases[count++]);
        report_text(text, &cases[0], &o.settings);
        good = cases[0].correct;
        tables_free(&t);
    } else {
        good = run_generated(&g, &o, &o.made, o.made.explode > 0 ? "explode" : "zipf", text,
                             &cases[count++]);
    }
    if (o.json)
        good = report_json(o.json_path, &g, o.command, &o.settings, cases, count) && good;
    gpu_close(&g);
    free(cases);
    return good ? 0 : 1;
}
