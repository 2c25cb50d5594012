/* keeper/server/log.c: lines of a keeper, and what keeps them few. */
#include "tests/unit/unit.h"

#include "keeper/server/log.h"

#define SECOND_NS 1000000000ll

static char latest[GVMI_LOG_LINE_BYTES * 2];
static unsigned line_count;

static void take_line(void *context, const char *line)
{
    assert_ptr_equal(context, &line_count);
    snprintf(latest, sizeof latest, "%s", line);
    line_count++;
}

static gvmi_log open_log(void)
{
    line_count = 0;
    return (gvmi_log){.write = take_line, .context = &line_count};
}

__attribute__((format(printf, 3, 4))) static void print(gvmi_log *log, int64_t now_ns,
                                                        const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_log_print(log, now_ns, format, args);
    va_end(args);
}

static void line_is_given_to_the_callback(void **state)
{
    gvmi_log log = open_log();

    (void)state;
    print(&log, 5, "client %d was cut off", 17);
    assert_int_equal(line_count, 1);
    assert_string_equal(latest, "client 17 was cut off");
}

static void line_without_callback_is_dropped(void **state)
{
    gvmi_log log = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        print(&log, i, "line");
    gvmi_log_tick(&log, 2 * SECOND_NS);
    gvmi_log_end(&log);
}

static void lines_too_many_are_counted(void **state)
{
    gvmi_log log = open_log();

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        print(&log, 7 * SECOND_NS + i, "line %u", i);
    assert_int_equal(line_count, GVMI_LOG_LINES_A_SECOND);
    gvmi_log_tick(&log, 8 * SECOND_NS - 1); /* the second is not over */
    assert_int_equal(line_count, GVMI_LOG_LINES_A_SECOND);
    gvmi_log_tick(&log, 8 * SECOND_NS + 1);
    assert_int_equal(line_count, GVMI_LOG_LINES_A_SECOND + 1);
    assert_string_equal(latest, "980 lines were left out here");
    print(&log, 8 * SECOND_NS + 2, "next");
    assert_string_equal(latest, "next");
}

static void lines_left_out_are_told_at_the_end(void **state)
{
    gvmi_log log = open_log();

    (void)state;
    for (unsigned i = 0; i < GVMI_LOG_LINES_A_SECOND + 3; i++)
        print(&log, 7 * SECOND_NS, "line");
    gvmi_log_end(&log);
    assert_string_equal(latest, "3 lines were left out here");
    gvmi_log_end(&log);
    assert_int_equal(line_count, GVMI_LOG_LINES_A_SECOND + 1);
}

static void line_from_outside_stays_one_line(void **state)
{
    gvmi_log log = open_log();
    char longest[2 * GVMI_LOG_LINE_BYTES];

    (void)state;
    print(&log, 0, "name \"%s\"", "a\nb\x1b[2J\x7f");
    assert_string_equal(latest, "name \"a?b?[2J?\"");
    memset(longest, 'a', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    print(&log, 0, "%s", longest);
    assert_int_equal(strlen(latest), GVMI_LOG_LINE_BYTES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line_is_given_to_the_callback),
        cmocka_unit_test(line_without_callback_is_dropped),
        cmocka_unit_test(lines_too_many_are_counted),
        cmocka_unit_test(lines_left_out_are_told_at_the_end),
        cmocka_unit_test(line_from_outside_stays_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
