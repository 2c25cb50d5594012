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
    gvmi_log_print(log, now_ns, GVMI_LOG_KEEPER, 0, format, args);
    va_end(args);
}

__attribute__((format(printf, 4, 5))) static void print_about(gvmi_log *log, gvmi_log_kind kind,
                                                              uint32_t uid, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_log_print(log, 7 * SECOND_NS, kind, uid, format, args);
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

/* Whatever one user's clients do, lines about another's are written. */
static void lines_about_a_user_leave_those_about_others(void **state)
{
    gvmi_log log = open_log();

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        print_about(&log, GVMI_LOG_REFUSED, 1001, "refused");
        print_about(&log, GVMI_LOG_CUT, 1001, "cut off");
    }
    assert_int_equal(line_count, 1 + GVMI_LOG_LINES_A_SECOND);
    print_about(&log, GVMI_LOG_CUT, 2000, "user 2000");
    assert_string_equal(latest, "user 2000");
    print_about(&log, GVMI_LOG_ALWAYS, 1001, "an object is fenced");
    assert_string_equal(latest, "an object is fenced");
    print(&log, 7 * SECOND_NS, "a device is lost");
    assert_string_equal(latest, "a device is lost");
    line_count = 0;
    gvmi_log_tick(&log, 8 * SECOND_NS);
    assert_int_equal(line_count, 2);
    assert_string_equal(latest, "980 more clients of user 1001 were cut off");
}

static void lines_about_very_many_users_are_bounded(void **state)
{
    gvmi_log log = open_log();

    (void)state;
    for (uint32_t uid = 0; uid < 10000; uid++)
        print_about(&log, GVMI_LOG_REFUSED, uid, "refused");
    assert_int_equal(line_count, GVMI_LOG_USERS + 1);
    gvmi_log_end(&log);
    assert_int_equal(line_count, GVMI_LOG_USERS + 2);
    assert_string_equal(latest, "9743 more clients of other users were refused");
}

static void lines_left_out_are_counted_at_the_end(void **state)
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
        cmocka_unit_test(lines_about_a_user_leave_those_about_others),
        cmocka_unit_test(lines_about_very_many_users_are_bounded),
        cmocka_unit_test(lines_left_out_are_counted_at_the_end),
        cmocka_unit_test(line_from_outside_stays_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
