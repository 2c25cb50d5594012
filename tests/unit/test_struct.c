/* base/struct.c: callers of older and newer headers get and give what both sides know. */
#include "tests/unit/unit.h"

#include "base/struct.h"

typedef struct version_1 {
    size_t struct_size;
    uint64_t a;
} version_1;

typedef struct version_2 {
    size_t struct_size;
    uint64_t a, b;
} version_2;

typedef struct version_3 {
    size_t struct_size;
    uint64_t a, b, c;
} version_3;

static const version_2 ours = {0, 1, 2};

static void struct_out_of_an_older_caller_is_cut(void **state)
{
    struct {
        version_1 out;
        uint64_t behind;
    } caller = {{sizeof caller.out, 9}, 77};

    (void)state;
    assert_true(gvmi_struct_out(&caller.out, &ours, sizeof ours, sizeof(version_1)));
    assert_true(caller.out.a == 1 && caller.behind == 77);
    assert_int_equal(caller.out.struct_size, sizeof(version_1));
}

static void struct_out_of_a_newer_caller_is_zeroed_behind(void **state)
{
    version_3 out = {sizeof out, 9, 9, 9};

    (void)state;
    assert_true(gvmi_struct_out(&out, &ours, sizeof ours, sizeof(version_1)));
    assert_true(out.a == 1 && out.b == 2 && out.c == 0);
    assert_int_equal(out.struct_size, sizeof(version_3));
}

static void struct_out_too_small_or_null_is_refused(void **state)
{
    version_2 out = {0, 9, 9};

    (void)state;
    assert_false(gvmi_struct_out(NULL, &ours, sizeof ours, sizeof(version_1)));
    for (size_t bytes = 0; bytes < sizeof(version_1); bytes++) {
        out.struct_size = bytes;
        assert_false(gvmi_struct_out(&out, &ours, sizeof ours, sizeof(version_1)));
        assert_true(out.a == 9 && out.b == 9);
    }
}

static void struct_of_garbage_size_is_refused(void **state)
{
    version_2 garbage = {SIZE_MAX, 9, 9}, full;

    (void)state;
    assert_false(gvmi_struct_out(&garbage, &ours, sizeof ours, sizeof(version_1)));
    assert_true(garbage.a == 9 && garbage.b == 9);
    assert_false(gvmi_struct_in(&full, sizeof full, &garbage, sizeof(version_1)));
}

static void struct_in_null_is_all_default(void **state)
{
    version_2 full = {9, 9, 9};

    (void)state;
    assert_true(gvmi_struct_in(&full, sizeof full, NULL, sizeof(version_1)));
    assert_true(full.struct_size == 0 && full.a == 0 && full.b == 0);
}

static void struct_in_of_an_older_caller_is_zeroed_behind(void **state)
{
    const version_1 in = {sizeof in, 5};
    version_2 full = {9, 9, 9};

    (void)state;
    assert_true(gvmi_struct_in(&full, sizeof full, &in, sizeof(version_1)));
    assert_true(full.a == 5 && full.b == 0);
}

static void struct_in_of_a_newer_caller_must_be_zero_behind(void **state)
{
    version_3 in = {sizeof in, 5, 6, 0};
    version_2 full = {9, 9, 9};

    (void)state;
    assert_true(gvmi_struct_in(&full, sizeof full, &in, sizeof(version_1)));
    assert_true(full.a == 5 && full.b == 6);
    in.c = 1ull << 56; /* the last byte alone */
    assert_false(gvmi_struct_in(&full, sizeof full, &in, sizeof(version_1)));
}

static void struct_in_too_small_is_refused(void **state)
{
    version_1 in = {0, 5};
    version_2 full;

    (void)state;
    for (in.struct_size = 0; in.struct_size < sizeof in; in.struct_size++)
        assert_false(gvmi_struct_in(&full, sizeof full, &in, sizeof(version_1)));
}

/* A caller of a newer header has longer records: what this library does not know is zero there. */
static void records_of_a_newer_caller_lie_as_far_apart_as_it_says(void **state)
{
    version_3 out[3];

    (void)state;
    memset(out, 9, sizeof out);
    for (size_t i = 0; i < 2; i++)
        gvmi_record_out(out, i, sizeof out[0], &ours, sizeof ours);
    assert_true(out[0].b == 2 && out[0].c == 0 && out[1].b == 2 && out[1].c == 0);
    assert_true(out[2].struct_size == 0x0909090909090909);
}

static void records_of_an_older_caller_are_cut(void **state)
{
    version_1 out[2] = {{9, 9}, {9, 9}};

    (void)state;
    gvmi_record_out(out, 0, sizeof out[0], &ours, sizeof ours);
    assert_true(out[0].a == 1 && out[1].a == 9);
}

static void stride_that_is_no_size_of_a_record_is_refused(void **state)
{
    (void)state;
    assert_false(gvmi_stride_is_good(sizeof(version_2) - 8, sizeof(version_2)));
    assert_true(gvmi_stride_is_good(sizeof(version_2), sizeof(version_2)));
    assert_false(gvmi_stride_is_good(sizeof(version_2) + 4, sizeof(version_2)));
    assert_true(gvmi_stride_is_good(sizeof(version_3), sizeof(version_2)));
    assert_true(gvmi_stride_is_good(GVMI_STRUCT_BYTES_MAX, sizeof(version_2)));
    assert_false(gvmi_stride_is_good(GVMI_STRUCT_BYTES_MAX + 8, sizeof(version_2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(struct_out_of_an_older_caller_is_cut),
        cmocka_unit_test(struct_out_of_a_newer_caller_is_zeroed_behind),
        cmocka_unit_test(struct_out_too_small_or_null_is_refused),
        cmocka_unit_test(struct_of_garbage_size_is_refused),
        cmocka_unit_test(struct_in_null_is_all_default),
        cmocka_unit_test(struct_in_of_an_older_caller_is_zeroed_behind),
        cmocka_unit_test(struct_in_of_a_newer_caller_must_be_zero_behind),
        cmocka_unit_test(struct_in_too_small_is_refused),
        cmocka_unit_test(records_of_a_newer_caller_lie_as_far_apart_as_it_says),
        cmocka_unit_test(records_of_an_older_caller_are_cut),
        cmocka_unit_test(stride_that_is_no_size_of_a_record_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
