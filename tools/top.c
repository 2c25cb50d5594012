/* gvmem top: what the keeper does, as it does it. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/keeper.h"
#include "tools/keeper_fields.h"
#include "tools/top_terminal.h"
#include "tools/top_view.h"

static const char usage[] = "usage: gvmem top [OPTION...]\n"
                            "\n"
                            "Shows, again and again, what the keeper and its objects and clients do; on a terminal as a\n"
                            "screen with keys (h lists them), otherwise as text.\n"
                            "\n"
                            "  -d, --delay SECONDS   between two looks, 0.1 to 3600 (1)\n"
                            "  -n, --count COUNT     end after so many (0: never)\n"
                            "      --once            one, as text\n"
                            "  -o, --sort ORDER      bytes, rate, name or waiting\n"
                            "  -s, --socket PATH     of the keeper\n"
                            "  -j, --json            one JSON object each time\n"
                            "  -p, --prometheus      metrics in the text format of Prometheus, once\n"
                            "  -h, --help            this text\n";

#define PLAIN_WIDTH 100 /* columns, where nothing says how many there are */

typedef enum top_form { FORM_SCREEN, FORM_TEXT, FORM_JSON, FORM_METRICS } top_form;

typedef struct top {
    const char *socket;
    double delay_s;
    int count; /* 0: no end */
    top_form form;
    bool utf8, color;
    gvm_client *keeper; /* NULL: there is none at the moment */
    snapshot_copy *snapshot;
    top_rates rates;
    top_view view;
    char problem[400];
} top;

/* ---- looking */

static void forget_keeper(top *t)
{
    snapshot_free(t->snapshot);
    top_rates_clear(&t->rates);
    gvm_client_close(t->keeper);
    t->snapshot = NULL;
    t->keeper = NULL;
}

/* Takes a snapshot, connecting first if need be. Without a keeper the view says why. */
static bool update_snapshot(top *t)
{
    snapshot_copy *now = NULL;
    gvm_status status = GVM_OK;

    if (t->keeper == NULL)
        status = gvm_client_connect(t->socket, &t->keeper);
    if (status == GVM_OK)
        status = keeper_ask(&t->keeper, false, &now);
    if (status != GVM_OK) {
        tool_failure_text(t->problem, sizeof t->problem);
        forget_keeper(t);
    } else {
        top_rates_clear(&t->rates);
        if (!top_rates_make(t->snapshot, now, &t->rates)) {
            snprintf(t->problem, sizeof t->problem, "out of memory");
            snapshot_free(now);
            forget_keeper(t);
        } else {
            snapshot_free(t->snapshot);
            t->snapshot = now;
        }
    }
    t->view.now = t->snapshot;
    t->view.rates = &t->rates;
    t->view.problem = t->problem;
    return t->snapshot != NULL;
}

/* ---- showing */

static unsigned plain_width(void)
{
    const char *text = getenv("COLUMNS");
    long columns = text != NULL ? strtol(text, NULL, 10) : 0;

    return columns >= 20 && columns <= 1000 ? (unsigned)columns : PLAIN_WIDTH;
}

static bool show_plain(top *t)
{
    text_pen pen = {.out = stdout, .width = plain_width(), .lines_max = TEXT_UNLIMITED, .utf8 = t->utf8};

    if (t->form == FORM_JSON) {
        top_json(stdout, &t->view, (int64_t)time(NULL));
    } else {
        top_render(&pen, &t->view);
        fputc('\n', stdout);
    }
    return tool_flush(stdout, "standard output");
}

/* False: the terminal is gone. */
static bool show_screen(top *t)
{
    text_pen pen = {.utf8 = t->utf8, .color = t->color};
    char *text = NULL;
    size_t len = 0;
    bool good;

    terminal_size(&pen.width, &pen.lines_max);
    pen.out = open_memstream(&text, &len);
    if (pen.out == NULL)
        return true;
    top_render(&pen, &t->view);
    good = fclose(pen.out) != 0 || terminal_draw(text, len);
    free(text);
    return good;
}

static bool show_view(top *t)
{
    char text[16] = "";
    time_t now = time(NULL);
    struct tm local;
    bool good;

    if (localtime_r(&now, &local) != NULL)
        strftime(text, sizeof text, "%H:%M:%S", &local);
    t->view.clock = text;
    good = t->form == FORM_SCREEN ? show_screen(t) : show_plain(t);
    t->view.clock = NULL;
    return good;
}

/* ---- the loop */

typedef enum answer { ANSWER_LOOK, ANSWER_DRAW, ANSWER_NOTHING, ANSWER_QUIT } answer;

static answer handle_key(top_view *view, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
    case 4: return ANSWER_QUIT; /* Ctrl-D */
    case 'd': view->sort = TOP_BY_BYTES; break;
    case 'a': view->sort = TOP_BY_RATE; break;
    case 'n': view->sort = TOP_BY_NAME; break;
    case 'w': view->sort = TOP_BY_WAITING; break;
    case 's': view->sort = (top_sort)((view->sort + 1) % TOP_SORTS); break;
    case 'h':
    case '?': view->help = !view->help; break;
    case ' ': return ANSWER_LOOK;
    case TERMINAL_CHANGED: break;
    case TERMINAL_GONE: return ANSWER_QUIT;
    default: return ANSWER_NOTHING;
    }
    return ANSWER_DRAW;
}

static int left_ms(double until_us)
{
    double left = ceil((until_us - tool_now_us()) / 1e3);

    return left > 0 ? (int)left : 0;
}

/* Until the next look is due. False: it is time to end. */
static bool wait_for_keys(top *t, double until_us)
{
    for (;;) {
        int key = terminal_wait(left_ms(until_us));

        if (key == TERMINAL_TIME)
            return true;
        switch (handle_key(&t->view, key)) {
        case ANSWER_LOOK: return true;
        case ANSWER_QUIT: return false;
        case ANSWER_DRAW:
            if (!show_view(t))
                return false;
            break;
        case ANSWER_NOTHING: break;
        }
    }
}

static bool sleep_until(double until_us)
{
    int ms;

    while ((ms = left_ms(until_us)) > 0) {
        struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};

        nanosleep(&pause, NULL); /* a signal that does not end the process: the rest again */
    }
    return true;
}

static int run_top(top *t)
{
    bool there, going = true;

    if (!update_snapshot(t))
        return tool_error("%s", t->problem);
    if (t->form == FORM_SCREEN && !terminal_enter())
        return TOOL_FAILED;
    if (t->form == FORM_SCREEN)
        going = show_view(t);
    there = true;
    for (int n = 0; going && (t->count == 0 || n < t->count); n++) {
        double until_us = tool_now_us() + t->delay_s * 1e6;

        going = t->form == FORM_SCREEN ? wait_for_keys(t, until_us) : sleep_until(until_us);
        if (!going)
            break;
        there = update_snapshot(t);
        going = show_view(t);
    }
    terminal_leave();
    if (t->form != FORM_SCREEN && (!there || !going))
        return TOOL_FAILED;
    return TOOL_DONE;
}

static int print_metrics(top *t)
{
    bool there = update_snapshot(t);

    keeper_metrics(stdout, t->snapshot);
    if (!tool_flush(stdout, "standard output"))
        return TOOL_FAILED;
    return there ? TOOL_DONE : tool_error("%s", t->problem);
}

/* ---- options */

static bool parse_delay(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);

    if (end != text && *end == '\0' && value >= 0.1 && value <= 3600) {
        *out = value;
        return true;
    }
    tool_usage("top", "--delay takes seconds from 0.1 to 3600, not \"%s\"", text);
    return false;
}

static bool parse_sort(const char *text, top_sort *out)
{
    static const char *const names[TOP_SORTS] = {"bytes", "rate", "name", "waiting"};

    for (unsigned i = 0; i < TOP_SORTS; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (top_sort)i;
            return true;
        }
    }
    tool_usage("top", "--sort takes bytes, rate, name or waiting, not \"%s\"", text);
    return false;
}

static bool set_top_option(top *t, int option)
{
    switch (option) {
    case 'd': return parse_delay(optarg, &t->delay_s);
    case 'n': return tool_parse_number("top", "--count", optarg, 0, 1000000000, &t->count);
    case 'o': return parse_sort(optarg, &t->view.sort);
    case 's': t->socket = optarg; return true;
    case 'j': t->form = FORM_JSON; return true;
    case 'p': t->form = FORM_METRICS; return true;
    default: return false;
    }
}

int tool_top(int argc, char **argv)
{
    static const struct option longs[] = {{"delay", required_argument, NULL, 'd'},
                                          {"count", required_argument, NULL, 'n'},
                                          {"once", no_argument, NULL, '1'},
                                          {"sort", required_argument, NULL, 'o'},
                                          {"socket", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"prometheus", no_argument, NULL, 'p'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    top t = {.delay_s = 1, .form = terminal_there() ? FORM_SCREEN : FORM_TEXT};
    text_pen pen;
    int option, code;

    while ((option = getopt_long(argc, argv, ":d:n:o:s:jph", longs, NULL)) != -1) {
        if (option == 'h')
            return tool_help(usage);
        if (option == '?' || option == ':')
            return tool_bad_option("top", option, argv);
        if (option == '1') {
            t.count = 1;
            if (t.form == FORM_SCREEN)
                t.form = FORM_TEXT;
        } else if (!set_top_option(&t, option)) {
            return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_usage("top", "\"%s\" is one argument too many", argv[optind]);
    pen = keeper_pen();
    t.utf8 = pen.utf8;
    t.color = getenv("NO_COLOR") == NULL; /* see no-color.org */
    t.view.delay_s = t.delay_s;
    t.view.keys = t.form == FORM_SCREEN;
    code = t.form == FORM_METRICS ? print_metrics(&t) : run_top(&t);
    forget_keeper(&t);
    return code;
}
