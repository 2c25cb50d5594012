/* base/size.h and size.c: sizes and ranges at their edges. */
#include "tests/unit/unit.h"

#include "base/size.h"

static void size_well_formed_is_read(void **state)
{
    const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"1B", 1},
        {"64K", 64 << 10},
        {"64k", 64 << 10},
        {"64KiB", 64 << 10},
        {"64kb", 64 << 10},
        {"2MiB", 2 << 20},
        {"1.5G", 3ull << 29},
        {"0.5KiB", 512},
        {"4TiB", 4ull << 40},
        {"8388607TiB", 8388607ull << 40},
        {"9223372036854775807", 9223372036854775807ull},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 1;

        assert_true(gvmi_size_parse(cases[i].text, &bytes));
        assert_true(bytes == cases[i].bytes);
    }
}

static void size_malformed_is_refused(void **state)
{
    const char *const cases[] = {"",           " ",
                                 "x",          "K",
                                 "-1",         "+1",
                                 " 1",         "1 ",
                                 "1 K",        "0x10",
                                 "inf",        "nan",
                                 "1.5B",       "1.K",
                                 "1KK",        "1iB",
                                 "0.3K",       "1e30",
                                 "8EiB",       "1PiB",
                                 "8388608TiB", "18446744073709551616",
                                 "1K\n"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 7;

        if (gvmi_size_parse(cases[i], &bytes))
            fail_msg("\"%s\" was read as %llu", cases[i], (unsigned long long)bytes);
        assert_true(bytes == 7);
    }
}

static void size_text_is_readable(void **state)
{
    char text[32];

    (void)state;
    assert_string_equal(gvmi_size_text(0, text), "0 B");
    assert_string_equal(gvmi_size_text(1023, text), "1023 B");
    assert_string_equal(gvmi_size_text(64 << 10, text), "64 KiB");
    assert_string_equal(gvmi_size_text(3ull << 29, text), "1.5 GiB");
    assert_ptr_equal(gvmi_size_text(UINT64_MAX, text), text);
    assert_true(strlen(text) < sizeof text);
}

static void power_of_two_is_known_at_the_edges(void **state)
{
    (void)state;
    assert_false(gvmi_is_pow2(0));
    assert_true(gvmi_is_pow2(1));
    assert_false(gvmi_is_pow2(3));
    assert_true(gvmi_is_pow2(1ull << 63));
    assert_false(gvmi_is_pow2(UINT64_MAX));
    assert_true(gvmi_pow2_up(0) == 1);
    assert_true(gvmi_pow2_up(1) == 1);
    assert_true(gvmi_pow2_up(2) == 2);
    assert_true(gvmi_pow2_up(3) == 4);
    assert_true(gvmi_pow2_up((1ull << 62) + 1) == 1ull << 63);
    assert_true(gvmi_pow2_up(1ull << 63) == 1ull << 63);
}

static void rounding_keeps_multiples(void **state)
{
    (void)state;
    for (uint64_t unit = 1; unit <= 1ull << 40; unit <<= 4) {
        assert_true(gvmi_round_up(0, unit) == 0 && gvmi_round_down(0, unit) == 0);
        assert_true(gvmi_round_up(unit, unit) == unit && gvmi_round_down(unit, unit) == unit);
        assert_true(gvmi_round_up(unit + 1, unit) == unit + (unit > 1 ? unit : 1));
        assert_true(gvmi_round_down(2 * unit - 1, unit) == unit);
    }
}

static void range_is_held_against_its_limit_without_overflow(void **state)
{
    (void)state;
    assert_true(gvmi_range_within(0, 0, 0));
    assert_true(gvmi_range_within(10, 0, 10));
    assert_true(gvmi_range_within(0, 10, 10));
    assert_false(gvmi_range_within(11, 0, 10));
    assert_false(gvmi_range_within(1, 10, 10));
    assert_false(gvmi_range_within(UINT64_MAX, 2, 10));
    assert_false(gvmi_range_within(2, UINT64_MAX, 10));
    assert_true(gvmi_range_within(UINT64_MAX - 1, 1, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_well_formed_is_read),
        cmocka_unit_test(size_malformed_is_refused),
        cmocka_unit_test(size_text_is_readable),
        cmocka_unit_test(power_of_two_is_known_at_the_edges),
        cmocka_unit_test(rounding_keeps_multiples),
        cmocka_unit_test(range_is_held_against_its_limit_without_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
