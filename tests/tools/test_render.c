/* Shows that what gvmem top and gvmem keeper make of a snapshot keeps to its width and height, lets
 * no control character through, and counts right; on made-up snapshots.
 *
 * usage: test_render          the checks, as TAP
 *        test_render FORM     one rendering to standard output: json, top-json, list-json, metrics,
 *                             no-metrics, top, screen, status, list, stat, map, map-svg or map-json
 */
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/tools/test_sample.h"
#include "tools/keeper.h"
#include "tools/keeper_fields.h"
#include "tools/map_view.h"
#include "tools/top_view.h"

static bool good;

static void print_test_result(const char *name)
{
    tap_result(good, "%s", name);
    good = true;
}

static void expect_true(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void expect_true(bool condition, const char *format, ...)
{
    va_list args;

    if (condition || !good) /* the first fault of a test says most */
        return;
    good = false;
    fputs("# not so: ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

static uint64_t random_state = 20261121;

/* ---- a rendering in memory, and what is allowed in it */

typedef struct picture {
    sample_data before, now;
    top_rates rates;
    top_view view;
} picture;

static void make_picture(picture *p, unsigned objects, unsigned clients)
{
    sample_make(&p->before, 0, objects, clients);
    sample_make(&p->now, 2, objects, clients);
    if (!top_rates_make(&p->before.snapshot, &p->now.snapshot, &p->rates))
        exit(1);
    p->view = (top_view){
        .now = &p->now.snapshot, .rates = &p->rates, .clock = "12:03:11", .delay_s = 1, .keys = true};
}

static void render_view(const top_view *view, text_pen *pen, char **text)
{
    size_t len;

    pen->out = open_memstream(text, &len);
    if (pen->out == NULL)
        exit(1);
    top_render(pen, view);
    fclose(pen->out);
    pen->out = NULL;
}

/* The length of a colour sequence at s; 0: it is none. */
static size_t style_len(const char *s)
{
    size_t len = 2 + strspn(s[0] != '\0' && s[1] == '[' ? s + 2 : "", "0123456789;");

    return s[0] == '\033' && s[1] == '[' && s[len] == 'm' ? len + 1 : 0;
}

/* Every line within its width, styles ended where the line ends, nothing but text. */
static void check_text(const char *text, const text_pen *pen, const char *what)
{
    unsigned lines = 0, column = 0;
    bool styled = false;
    size_t len;

    for (const char *s = text; *s != '\0'; s += len) {
        wchar_t c;
        int columns;

        len = style_len(s);
        if (len > 0) {
            expect_true(pen->color, "%s: colour", what);
            styled = strncmp(s, "\033[0m", 4) != 0;
            continue;
        }
        len = 1;
        if (*s == '\n') {
            expect_true(!styled, "%s: style open at the end of line %u", what, lines);
            lines++;
            column = 0;
            continue;
        }
        len = text_utf8_len(s);
        if (len == 0) {
            expect_true(false, "%s: no UTF-8 in line %u", what, lines);
            return;
        }
        expect_true(len == 1 || pen->utf8, "%s: more than ASCII in line %u", what, lines);
        columns = mbtowc(&c, s, len) > 0 ? wcwidth(c) : -1;
        expect_true(columns > 0, "%s: control character %#x in line %u", what, (unsigned char)*s,
                    lines);
        column += columns > 0 ? (unsigned)columns : 0;
        expect_true(column <= pen->width, "%s: line %u is longer than %u columns", what, lines,
                    pen->width);
    }
    expect_true(column == 0, "%s: the last line has no end", what);
    expect_true(lines <= pen->lines_max, "%s: %u lines", what, lines);
}

/* ---- tests */

static void test_bars(void)
{
    for (unsigned round = 0; round < 20000; round++) {
        const unsigned width = 1 + (unsigned)(random_next(&random_state) % 300);
        uint64_t parts[TOP_PARTS];
        unsigned cells[TOP_PARTS], sum = 0;

        for (unsigned i = 0; i < TOP_PARTS; i++)
            parts[i] = random_next(&random_state) % 3 == 0
                           ? 0
                           : random_next(&random_state) >> random_next(&random_state) % 64;
        top_cells(parts, width, cells);
        for (unsigned i = 0; i < TOP_PARTS; i++) {
            sum += cells[i];
            expect_true(width < TOP_PARTS || parts[i] == 0 || cells[i] > 0,
                        "part %u of %u cells is lost", i, width);
        }
        expect_true(sum == width, "cells of %u sum to %u", width, sum);
    }
    print_test_result("bar_of_any_parts_fills_its_width");
}

static void test_parts(void)
{
    picture p;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    for (unsigned round = 0; round < 20000; round++) {
        gvm_keeper_device_info d = p.now.devices[round % 2];
        uint64_t parts[TOP_PARTS], sum = 0, used;

        if (round >= 2) {
            uint64_t *const figures[] = {&d.budget_bytes, &d.resident_bytes, &d.free_bytes,
                                         &d.leased_bytes, &d.dirty_bytes,    &d.held_bytes,
                                         &d.lent_bytes};

            for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
                *figures[i] = random_next(&random_state) >> (8 + random_next(&random_state) % 50);
        }
        top_device_parts(&p.now.snapshot, &d, parts);
        used = d.resident_bytes + d.held_bytes;
        for (unsigned i = 0; i < TOP_PARTS; i++) {
            sum += parts[i];
            expect_true(parts[i] <= used || parts[i] <= d.budget_bytes,
                        "part %u is larger than all", i);
        }
        expect_true(sum == (used > d.budget_bytes ? used : d.budget_bytes), "parts sum to %llu",
                    (unsigned long long)sum);
        expect_true(parts[TOP_LEASED] + parts[TOP_IDLE] + parts[TOP_DIRTY] + parts[TOP_LENT] ==
                        d.resident_bytes,
                    "resident parts");
    }
    top_rates_clear(&p.rates);
    print_test_result("device_parts_of_any_figures_make_up_the_budget");
}

/* What is leased and dirty counts once; other devices' objects do not count. */
static void test_overlap(void)
{
    const gvm_object_info objects[] = {
        {.device = 0, .read_leases = 1, .dirty_bytes = 7},
        {.device = 0, .write_leases = 1, .dirty_bytes = 5},
        {.device = 0, .dirty_bytes = 18},
        {.device = 1, .read_leases = 1, .dirty_bytes = 9},
    };
    const gvm_keeper_device_info device = {.budget_bytes = 100,
                                           .resident_bytes = 60,
                                           .leased_bytes = 20,
                                           .dirty_bytes = 30,
                                           .held_bytes = 5,
                                           .lent_bytes = 4,
                                           .free_bytes = 10,
                                           .host_backed_bytes = 25};
    const snapshot_copy s = {.keeper = {.devices = 1,
                                        .objects = 4,
                                        .host_budget_bytes = 100,
                                        .host_used_bytes = 40,
                                        .host_free_bytes = 10},
                             .devices = &device,
                             .objects = objects};
    static const uint64_t device_parts[TOP_PARTS] = {
        [TOP_LEASED] = 20, [TOP_IDLE] = 18,  [TOP_DIRTY] = 18, [TOP_LENT] = 4,
        [TOP_HELD] = 5,    [TOP_READY] = 10, [TOP_UNUSED] = 25};
    static const uint64_t host_parts[TOP_PARTS] = {
        [TOP_BACKED] = 25, [TOP_OTHER] = 15, [TOP_READY] = 10, [TOP_UNUSED] = 50};
    uint64_t parts[TOP_PARTS];

    top_device_parts(&s, &device, parts);
    expect_true(memcmp(parts, device_parts, sizeof parts) == 0, "the device's parts");
    top_host_parts(&s, &device, parts);
    expect_true(memcmp(parts, host_parts, sizeof parts) == 0, "the host's parts");
    print_test_result("parts_that_overlap_count_once");
}

/* What is drawn in a bar is what top_cells() says. */
static void test_drawn_bar(void)
{
    picture p;
    text_pen pen = {.width = 80, .lines_max = TEXT_UNLIMITED};
    uint64_t parts[TOP_PARTS];
    unsigned cells[TOP_PARTS];
    char *text, *bar, *end;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    render_view(&p.view, &pen, &text);
    bar = strstr(text, "  device [");
    expect_true(bar != NULL, "no bar");
    bar = bar != NULL ? bar + strlen("  device [") : text;
    end = strchr(bar, ']');
    expect_true(end != NULL, "no end of the bar");
    top_device_parts(&p.now.snapshot, &p.now.devices[0], parts);
    top_cells(parts, end != NULL ? (unsigned)(end - bar) : 1, cells);
    expect_true(strspn(bar, "#") == cells[TOP_LEASED], "leased cells");
    bar += strspn(bar, "#");
    expect_true(strspn(bar, "=") == cells[TOP_IDLE], "idle cells");
    bar += strspn(bar, "=");
    expect_true(strspn(bar, "%") == cells[TOP_DIRTY], "dirty cells");
    bar += strspn(bar, "%");
    expect_true(strspn(bar, "!") == cells[TOP_HELD], "held cells");
    free(text);
    top_rates_clear(&p.rates);
    print_test_result("bar_drawn_shows_the_parts");
}

static void test_limits(void)
{
    static const unsigned widths[] = {1, 2, 9, 10, 20, 40, 71, 72, 80, 132, 200, 500};
    static const unsigned counts[][2] = {
        {0, 0}, {1, 0}, {0, 3}, {5, 2}, {SAMPLE_OBJECTS, SAMPLE_CLIENTS}};

    for (unsigned k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        picture p;

        make_picture(&p, counts[k][0], counts[k][1]);
        for (unsigned w = 0; w < sizeof widths / sizeof widths[0]; w++) {
            for (unsigned height = 0; height <= 61; height++) {
                for (unsigned flags = 0; flags < 16; flags++) {
                    text_pen pen = {.width = widths[w],
                                    .lines_max = height == 61 ? TEXT_UNLIMITED : height,
                                    .color = flags & 1,
                                    .utf8 = flags & 2};
                    char what[64], *text;

                    p.view.help = flags & 4;
                    p.view.now = flags & 8 ? NULL : &p.now.snapshot;
                    p.view.problem = "nobody listens at /run/\033[31m";
                    p.view.sort = (top_sort)(height % TOP_SORTS);
                    render_view(&p.view, &pen, &text);
                    snprintf(what, sizeof what, "%u x %u, flags %u", widths[w], height, flags);
                    check_text(text, &pen, what);
                    expect_true(height == 61 || height < 2 || pen.line == height, "%s: %u lines",
                                what, pen.line);
                    expect_true(height == 61 || height < 2 || widths[w] < 6 ||
                                    strstr(text, "q quit") != NULL,
                                "%s: no footer", what);
                    free(text);
                }
            }
        }
        top_rates_clear(&p.rates);
    }
    print_test_result("screen_of_any_size_is_kept_to");
}

static void test_room(void)
{
    picture p;
    text_pen pen = {.width = 100, .lines_max = 24};
    char *text, *at;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    render_view(&p.view, &pen, &text);
    expect_true(strstr(text, "more)") != NULL, "the rest is not told");
    expect_true(strstr(text, " CLIENT\n") != NULL && strstr(text, " OBJECT\n") != NULL,
                "a table is missing");
    expect_true(strstr(text, "q quit") != NULL, "no footer");
    free(text);
    pen = (text_pen){.width = 300, .lines_max = TEXT_UNLIMITED};
    render_view(&p.view, &pen, &text);
    expect_true(strstr(text, "more)") == NULL, "something is left out without a limit");
    for (unsigned i = 8; i < SAMPLE_OBJECTS; i++)
        expect_true(strstr(text, p.now.objects[i].name) != NULL || i == 20, "object %u is missing", i);
    at = strstr(text, "/sales/2026/q11  model of 290 tensors, version 2?[2J\n");
    expect_true(at != NULL, "a model is not told");
    expect_true(strstr(text, "model of") == strstr(at, "model of") &&
                    strstr(strstr(at, "model of") + 1, "model of") == NULL,
                "another object is said to be a model");
    free(text);
    top_rates_clear(&p.rates);
    print_test_result("tables_share_the_lines_and_tell_the_rest");
}

static void test_order(void)
{
    static const struct {
        top_sort sort;
        const char *first, *second; /* of two that are listed */
    } cases[] = {
        {TOP_BY_BYTES, "q17\n", "q9\n"}, /* 39 * 64 MiB, 23 * 64 MiB */
        {TOP_BY_RATE, "q39\n", "q17\n"},
        {TOP_BY_NAME, "q10\n", "q9\n"},
        {TOP_BY_WAITING, "q35\n", "q9\n"}, /* 8, 0 */
    };
    text_pen pen = {.width = 300, .lines_max = TEXT_UNLIMITED};
    char *text, *first, *second;
    picture p;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        p.view.sort = cases[i].sort;
        render_view(&p.view, &pen, &text);
        first = strstr(text, cases[i].first);
        second = strstr(text, cases[i].second);
        expect_true(first != NULL && second != NULL && first < second, "order %zu", i);
        free(text);
    }
    top_rates_clear(&p.rates);
    print_test_result("objects_stand_in_the_order_wanted");
}

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-6 * (1 + fabs(b));
}

static void test_rates(void)
{
    picture p;
    top_rates r;

    make_picture(&p, 10, 5);
    expect_true(is_near(p.rates.seconds, 2) && is_near(p.rates.acquires, 1000) &&
                    is_near(p.rates.slow_acquires, 5) && is_near(p.rates.faults, 1),
                "the keeper's rates");
    expect_true(is_near(p.rates.evictions, 6) && is_near(p.rates.promoted_bytes, 40 << 20),
                "devices' rates");
    for (unsigned i = 0; i < 10; i++)
        expect_true(is_near(p.rates.objects[i], 10.0 * (i + 1)), "object %u", i);
    top_rates_clear(&p.rates);

    /* One object has gone, one is new, and the orders are others. */
    p.before.objects[3].id = 7;
    for (unsigned i = 0; i < 5; i++) {
        gvm_object_info object = p.before.objects[i];

        p.before.objects[i] = p.before.objects[9 - i];
        p.before.objects[9 - i] = object;
    }
    p.now.snapshot.keeper.objects = 9;
    p.now.objects[0] = p.now.objects[9];
    p.now.clients[2].acquires = 1; /* a counter that fell */
    top_rates_make(&p.before.snapshot, &p.now.snapshot, &r);
    expect_true(is_near(r.objects[0], 100), "the moved object");
    expect_true(isnan(r.objects[3]), "the new object");
    expect_true(r.clients[2] == 0, "the fallen counter");
    top_rates_clear(&r);

    p.now.snapshot.keeper.pid++;
    top_rates_make(&p.before.snapshot, &p.now.snapshot, &r);
    expect_true(r.seconds == 0 && isnan(r.acquires) && isnan(r.objects[1]), "another keeper");
    top_rates_clear(&r);
    top_rates_make(NULL, &p.now.snapshot, &r);
    expect_true(isnan(r.evictions) && isnan(r.clients[0]), "the first snapshot");
    top_rates_clear(&r);
    print_test_result("rates_compare_what_is_in_both_snapshots");
}

static void test_numbers(void)
{
    static const struct {
        double value;
        bool binary;
        const char *text;
    } cases[] = {
        {0, true, "0"},
        {0.25, false, "0.2"},
        {9.96, false, "10"},
        {999, false, "999"},
        {999.6, false, "1.00K"},
        {1000, false, "1.00K"},
        {1000, true, "1000"},
        {1023.4, true, "1023"},
        {1024, true, "1.00K"},
        {1.5e9, false, "1.50G"},
        {9.996e3, false, "10.0K"},
        {99.96e3, false, "100K"},
        {67108864, true, "64.0M"},
        {1023.7 * 1048576, true, "1.00G"},
        {NAN, false, "-"},
        {18446744073709551615.0, true, "16.0E"},
    };
    static const struct {
        uint64_t ms;
        const char *text;
    } times[] = {{999, "0 s"},
                 {59999, "59 s"},
                 {60000, "1:00"},
                 {3599999, "59:59"},
                 {3600000, "1:00:00"},
                 {86399999, "23:59:59"},
                 {86400000, "1 d 00:00"},
                 {100007123, "1 d 03:46"}};
    char out[32];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_true(strcmp(text_short(cases[i].value, cases[i].binary, out), cases[i].text) == 0,
                    "%g is written %s, not %s", cases[i].value, out, cases[i].text);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        expect_true(strcmp(text_duration(times[i].ms, out), times[i].text) == 0,
                    "%llu ms are written %s", (unsigned long long)times[i].ms, out);
    print_test_result("numbers_are_written_short");
}

static void test_tables(void)
{
    picture p;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    for (unsigned form = 0; form < 8; form++) {
        text_pen pen = {.width = TEXT_UNLIMITED, .lines_max = TEXT_UNLIMITED, .utf8 = form & 1};
        char *text = NULL;
        size_t len;

        pen.out = open_memstream(&text, &len);
        if (pen.out == NULL)
            exit(1);
        if (form / 2 == 0)
            keeper_text_status(&pen, &p.now.snapshot);
        else if (form / 2 == 1)
            keeper_text_list(&pen, &p.now.snapshot, "", false);
        else if (form / 2 == 2)
            keeper_text_list(&pen, &p.now.snapshot, "", true);
        else
            keeper_text_object(&pen, &p.now.objects[3]);
        fclose(pen.out);
        check_text(text, &pen, "text");
        if (form / 2 == 1)
            expect_true(pen.line == SAMPLE_OBJECTS - 2, "%u names", pen.line); /* two have none */
        if (form / 2 == 2)
            expect_true(pen.line == SAMPLE_OBJECTS + 1, "%u lines of objects", pen.line);
        free(text);
    }
    expect_true(keeper_find(&p.now.snapshot, "") == NULL, "a nameless object was found");
    expect_true(keeper_find(&p.now.snapshot, "/sales/2026/q9") == &p.now.objects[9],
                "q9 was not found");
    top_rates_clear(&p.rates);
    print_test_result("lists_let_no_control_character_through");
}

/* Objects of all sizes, with and without names and lists of chunks, at any width. */
static void test_map_limits(void)
{
    static const unsigned widths[] = {1, 10, 28, 44, 45, 46, 53, 54, 80, 200, TEXT_UNLIMITED};
    picture p;

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    p.now.objects[9].size_bytes = p.now.objects[9].dirty_bytes = p.now.objects[9].device_bytes = 0;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
        for (unsigned flags = 0; flags < 4; flags++) {
            text_pen pen = {
                .width = widths[w], .lines_max = TEXT_UNLIMITED, .color = flags & 1, .utf8 = flags & 2};
            char what[64], *text = NULL;
            size_t len;

            pen.out = open_memstream(&text, &len);
            if (pen.out == NULL)
                exit(1);
            expect_true(map_text(&pen, &p.now.snapshot, ""), "no map");
            fclose(pen.out);
            snprintf(what, sizeof what, "map of width %u, flags %u", widths[w], flags);
            check_text(text, &pen, what);
            expect_true(pen.line > SAMPLE_OBJECTS + SAMPLE_DEVICES &&
                            (widths[w] < 50 || strstr(text, "being moved") != NULL),
                        "%s: %u lines", what, pen.line);
            free(text);
        }
    top_rates_clear(&p.rates);
    print_test_result("map_of_any_width_is_kept_to");
}

static void expect_line(const snapshot_copy *s, const text_pen *form, const char *wanted)
{
    text_pen pen = *form;
    char *text = NULL;
    size_t len;

    pen.out = open_memstream(&text, &len);
    if (pen.out == NULL)
        exit(1);
    expect_true(map_text(&pen, s, ""), "no map");
    fclose(pen.out);
    expect_true(strstr(text, wanted) != NULL, "no line \"%s\" in\n%s", wanted, text);
    free(text);
}

/* Each cell has what most of its chunks have; the bars' lengths are to each other as the objects' sizes. */
static void test_map_cells(void)
{
    enum {
        D = GVM_CHUNK_DEVICE,
        B = GVM_CHUNK_DEVICE | GVM_CHUNK_HOST,
        H = GVM_CHUNK_HOST,
        M = GVM_CHUNK_MOVING,
        L = GVM_CHUNK_LENT
    };

    static const uint8_t first[16] = {D, D, D, H, L, H, B, B, B, B, L, B, D | M, B | M, H, H | M};
    static const uint8_t second[4] = {H, D, B, 0}; /* the last one has gone meanwhile */
    static const uint8_t *const chunks[] = {first, second, NULL};
    const gvm_object_info objects[] = {
        {.name = "/a", .size_bytes = 16 * 4096, .chunk_bytes = 4096, .read_leases = 2},
        {.name = "/b", .size_bytes = 4 * 4096 - 1, .chunk_bytes = 4096, .host_bytes = 4096, .write_leases = 1},
        {.id = 7,
         .size_bytes = 8 * 4096,
         .chunk_bytes = 4096,
         .dirty_bytes = 4 * 4096,
         .device_bytes = 6 * 4096},
    };
    const gvm_keeper_device_info device = {.budget_bytes = 1 << 20, .name = "a GPU"};
    const snapshot_copy s = {.keeper = {.devices = 1, .objects = 3},
                             .devices = &device,
                             .objects = objects,
                             .chunks = chunks};
    text_pen pen = {.width = 45 + 16, .lines_max = TEXT_UNLIMITED};

    expect_line(&s, &pen, "/a                            64.0K      R2  ###.+.====+=~~.~\n");
    expect_line(&s, &pen, "/b                            16.0K       W  .#=.\n");
    expect_line(&s, &pen, "(nameless 7)                  32.0K       -  ####==..\n");
    pen.width = 45 + 8;
    expect_line(&s, &pen, "R2  ##+===~.\n"); /* of two states, that which the legend has first */
    print_test_result("map_has_in_each_cell_what_most_chunks_have");
}

/* ---- renderings for other programs to check */

static int print_form(const char *form)
{
    picture p;
    text_pen pen = {.out = stdout, .width = 100, .lines_max = TEXT_UNLIMITED, .utf8 = true};

    make_picture(&p, SAMPLE_OBJECTS, SAMPLE_CLIENTS);
    if (strcmp(form, "json") == 0) {
        keeper_json(stdout, &p.now.snapshot);
    } else if (strcmp(form, "top-json") == 0) {
        p.rates.objects[0] = NAN;
        top_json(stdout, &p.view, 1795262591);
    } else if (strcmp(form, "list-json") == 0) {
        keeper_json_list(stdout, &p.now.snapshot, "/s");
    } else if (strcmp(form, "metrics") == 0) {
        keeper_metrics(stdout, &p.now.snapshot);
    } else if (strcmp(form, "no-metrics") == 0) {
        keeper_metrics(stdout, NULL);
    } else if (strcmp(form, "top") == 0) {
        top_render(&pen, &p.view);
    } else if (strcmp(form, "screen") == 0) {
        pen.color = true;
        pen.lines_max = 40;
        top_render(&pen, &p.view);
    } else if (strcmp(form, "status") == 0) {
        keeper_text_status(&pen, &p.now.snapshot);
    } else if (strcmp(form, "list") == 0) {
        keeper_text_list(&pen, &p.now.snapshot, "", true);
    } else if (strcmp(form, "stat") == 0) {
        keeper_text_object(&pen, &p.now.objects[9]);
    } else if (strcmp(form, "map") == 0) {
        pen.color = true;
        map_text(&pen, &p.now.snapshot, "");
    } else if (strcmp(form, "map-svg") == 0) {
        map_svg(stdout, &p.now.snapshot, "");
    } else if (strcmp(form, "map-json") == 0) {
        map_json(stdout, &p.now.snapshot, "/s");
    } else {
        return tool_error("no form \"%s\"", form);
    }
    top_rates_clear(&p.rates);
    return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
}

int main(int argc, char **argv)
{
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return tool_error("no locale C.UTF-8");
    if (argc > 1)
        return print_form(argv[1]);
    good = true;
    test_bars();
    test_parts();
    test_overlap();
    test_drawn_bar();
    test_limits();
    test_room();
    test_order();
    test_rates();
    test_numbers();
    test_tables();
    test_map_limits();
    test_map_cells();
    return tap_finish();
}
