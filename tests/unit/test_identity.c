/* keeper/server/identity.c: users without a number are refused. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "keeper/machine/state.h"
#include "keeper/server/identity.h"

#define OVERFLOW 65534u
#define SELF 100
#define OTHER 200

static const gvmi_identity whole = {OVERFLOW, OVERFLOW, true, true};
static const gvmi_identity part = {OVERFLOW, OVERFLOW, false, false};

static void map_of_all_ids_is_whole(void **state)
{
    (void)state;
    assert_true(gvmi_identity_is_whole("         0          0 4294967295\n"));
    assert_true(gvmi_identity_is_whole("0 0 1000\n1000 5000 4294962295\n4294963295 1000 4000\n"));
}

static void map_of_some_ids_is_not_whole(void **state)
{
    static const char *const maps[] = {
        "",
        "\n",
        "nonsense",
        "0 1000 1\n",
        "0 0 65536\n",
        "0 0 4294967294\n",
        "0 0 4294967296\n",           /* more than there are: it is no map */
        "0 0 1\n1 x 4294967294\n",    /* read up to there */
        "0 0 18446744073709551615\n", /* sums do not wrap */
        "0 100000 65536\n65536 0 1\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        assert_false(gvmi_identity_is_whole(maps[i]));
}

static void user_without_number_is_refused(void **state)
{
    gvmi_credentials who = {.uid = OVERFLOW, .gid = 5, .pid = OTHER};
    gvm_error error;

    (void)state;
    assert_int_equal(gvmi_identity_judge(&part, SELF, &who), GVM_E_DENIED);
    assert_int_equal(gvm_error_last(&error), GVM_OK);
    assert_non_null(strstr(error.text, "user namespace"));
    assert_non_null(strstr(error.text, "map the user there"));
    who.pid = SELF; /* the keeper's own process is itself, whatever its number */
    assert_int_equal(gvmi_identity_judge(&part, SELF, &who), GVM_OK);
    who = (gvmi_credentials){.uid = 1000, .gid = 5, .pid = OTHER};
    assert_int_equal(gvmi_identity_judge(&part, SELF, &who), GVM_OK);
}

static void user_nobody_is_a_user_where_all_are_mapped(void **state)
{
    gvmi_credentials who = {
        .uid = OVERFLOW, .gid = OVERFLOW, .pid = OTHER, .group_count = 1, .groups = {OVERFLOW}};

    (void)state;
    assert_int_equal(gvmi_identity_judge(&whole, SELF, &who), GVM_OK);
    assert_int_equal(who.gid, OVERFLOW);
    assert_int_equal(who.group_count, 1);
}

static void group_without_number_is_no_group(void **state)
{
    gvmi_credentials who = {.uid = 1000,
                            .gid = OVERFLOW,
                            .pid = OTHER,
                            .group_count = 4,
                            .groups = {7, OVERFLOW, 8, OVERFLOW}};

    (void)state;
    assert_int_equal(gvmi_identity_judge(&part, SELF, &who), GVM_OK);
    assert_int_equal(who.gid, GVMI_GROUP_NONE);
    assert_int_equal(who.group_count, 2);
    assert_int_equal(who.groups[0], 7);
    assert_int_equal(who.groups[1], 8);
}

static void group_none_has_no_members(void **state)
{
    static const gvmi_machine machine = {.config.uid = 500};
    const keep_client client = {.who = {.uid = 2, .gid = GVMI_GROUP_NONE}};
    keep_object object = {.domain = {.uid = 1, .gid = GVMI_GROUP_NONE, .mode = 0660}};

    (void)state;
    assert_false(gvmi_keep_may_read(&machine, &client, &object));
    object.domain.mode = 0604; /* those without the group are others */
    assert_true(gvmi_keep_may_read(&machine, &client, &object));
}

static void identity_of_this_process_is_read(void **state)
{
    gvmi_identity identity = {0};

    (void)state;
    gvmi_identity_read(&identity);
    assert_true(identity.overflow_uid > 0 && identity.overflow_gid > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map_of_all_ids_is_whole),
        cmocka_unit_test(map_of_some_ids_is_not_whole),
        cmocka_unit_test(user_without_number_is_refused),
        cmocka_unit_test(user_nobody_is_a_user_where_all_are_mapped),
        cmocka_unit_test(group_without_number_is_no_group),
        cmocka_unit_test(group_none_has_no_members),
        cmocka_unit_test(identity_of_this_process_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
