/* base/error.c: every status has a name, a text and an SQLSTATE; the latest failure is kept
 * whole, per thread. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <pthread.h>

#include "base/error.h"

static const gvm_status all[] = {
#define ROW(name, value, sqlstate, text) name,
    GVM_STATUS_TABLE(ROW)
#undef ROW
};
#define ALL_COUNT (sizeof all / sizeof all[0])

static void status_each_has_name_text_and_sqlstate(void **state)
{
    (void)state;
    for (size_t i = 0; i < ALL_COUNT; i++) {
        assert_memory_equal(gvm_status_name(all[i]), "GVM_", 4);
        assert_true(strlen(gvm_status_text(all[i])) > 5);
        assert_int_equal(strlen(gvm_status_sqlstate(all[i])), 5);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i], all[j]);
            assert_string_not_equal(gvm_status_text(all[i]), gvm_status_text(all[j]));
        }
    }
}

static void status_unknown_has_texts_too(void **state)
{
    (void)state;
    assert_string_equal(gvm_status_name((gvm_status)4711), "GVM_E_UNKNOWN");
    assert_string_equal(gvm_status_text((gvm_status)4711), "unknown status");
    assert_int_equal(strlen(gvm_status_sqlstate((gvm_status)4711)), 5);
}

static void version_is_that_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(gvm_version(),
                     GVM_VERSION_MAJOR * 10000 + GVM_VERSION_MINOR * 100 + GVM_VERSION_PATCH);
}

static void error_that_a_program_sets_is_kept_as_the_librarys(void **state)
{
    gvm_error before, error;

    (void)state;
    assert_int_equal(gvm_error_set(GVM_E_QUOTA, "%d rows", 7), GVM_E_QUOTA);
    assert_int_equal(gvm_error_last(&before), GVM_OK);
    assert_int_equal(before.status, GVM_E_QUOTA);
    assert_string_equal(before.text, "7 rows");
    assert_string_equal(before.native_call, "");
    gvm_error_set(GVM_E_NOMEM, "clean-up");
    gvm_error_restore(&before);
    assert_int_equal(gvm_error_last(&error), GVM_OK);
    assert_int_equal(error.status, GVM_E_QUOTA);
    assert_string_equal(error.text, "7 rows");
}

static void error_of_a_fresh_thread_is_empty(void **state)
{
    gvm_error error;

    (void)state; /* runs first, in the main thread; error_is_kept_per_thread shows other ones */
    assert_int_equal(gvm_error_last(&error), GVM_OK);
    assert_int_equal(error.status, GVM_OK);
    assert_int_equal(error.native_code, 0);
    assert_string_equal(error.native_call, "");
    assert_string_equal(error.native_name, "");
    assert_string_equal(error.text, "");
}

static void error_null_is_refused(void **state)
{
    (void)state;
    assert_int_equal(gvm_error_last(NULL), GVM_E_INVALID);
}

static void error_decided_here_is_recorded(void **state)
{
    gvm_error error;

    (void)state;
    assert_int_equal(gvm_error_set(GVM_E_ABSENT, "chunk %d of %s", 7, "it"), GVM_E_ABSENT);
    gvm_error_last(&error);
    assert_int_equal(error.status, GVM_E_ABSENT);
    assert_int_equal(error.native_code, 0);
    assert_string_equal(error.native_call, "");
    assert_string_equal(error.text, "chunk 7 of it");
}

static void error_of_a_system_call_is_recorded(void **state)
{
    gvm_error error;

    (void)state;
    assert_int_equal(gvmi_fail_system(GVM_E_PEER, EPIPE, "sendmsg", "socket %d", 3), GVM_E_PEER);
    gvm_error_last(&error);
    assert_int_equal(error.status, GVM_E_PEER);
    assert_int_equal(error.native_code, EPIPE);
    assert_string_equal(error.native_call, "sendmsg");
    assert_string_equal(error.native_name, "EPIPE");
    assert_string_equal(error.text, "socket 3");
}

static void error_of_exhaustion_has_its_own_status(void **state)
{
    (void)state;
    assert_int_equal(gvmi_fail_system(GVM_E_SYSTEM, ENOMEM, "mmap", "x"), GVM_E_NOMEM);
    assert_int_equal(gvmi_fail_system(GVM_E_SYSTEM, EMFILE, "open", "x"), GVM_E_LIMIT);
    assert_int_equal(gvmi_fail_system(GVM_E_SYSTEM, ENFILE, "open", "x"), GVM_E_LIMIT);
    assert_int_equal(gvmi_fail_system(GVM_E_SYSTEM, 4711, "open", "x"), GVM_E_SYSTEM);
}

static void error_of_the_driver_is_recorded(void **state)
{
    gvm_error error;

    (void)state;
    assert_int_equal(
        gvmi_fail_native(GVM_E_NOSPACE, 2, "cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "%s", "full"),
        GVM_E_NOSPACE);
    gvm_error_last(&error);
    assert_int_equal(error.native_code, 2);
    assert_string_equal(error.native_call, "cuMemCreate");
    assert_string_equal(error.native_name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(error.text, "full");
}

static void error_text_too_long_is_cut(void **state)
{
    char text[2000];
    gvm_error error;

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gvm_error_set(GVM_E_INVALID, "%s", text);
    gvm_error_last(&error);
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
}

static void error_saved_is_restored(void **state)
{
    gvm_error error, saved;

    (void)state;
    gvm_error_set(GVM_E_SEALED, "first");
    saved = gvmi_error_save();
    gvm_error_set(GVM_E_DRIVER, "second");
    gvm_error_restore(&saved);
    gvm_error_last(&error);
    assert_int_equal(error.status, GVM_E_SEALED);
    assert_string_equal(error.text, "first");
}

static void *other_thread(void *arg)
{
    gvm_error *error = arg;

    gvm_error_last(error);
    gvm_error_set(GVM_E_DRIVER, "elsewhere");
    return NULL;
}

static void error_is_kept_per_thread(void **state)
{
    gvm_error theirs, ours;
    pthread_t thread;

    (void)state;
    gvm_error_set(GVM_E_SEALED, "here");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &theirs), 0);
    pthread_join(thread, NULL);
    gvm_error_last(&ours);
    assert_int_equal(theirs.status, GVM_OK);
    assert_string_equal(ours.text, "here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_of_a_fresh_thread_is_empty),
        cmocka_unit_test(status_each_has_name_text_and_sqlstate),
        cmocka_unit_test(status_unknown_has_texts_too),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(error_null_is_refused),
        cmocka_unit_test(error_decided_here_is_recorded),
        cmocka_unit_test(error_of_a_system_call_is_recorded),
        cmocka_unit_test(error_of_exhaustion_has_its_own_status),
        cmocka_unit_test(error_of_the_driver_is_recorded),
        cmocka_unit_test(error_text_too_long_is_cut),
        cmocka_unit_test(error_saved_is_restored),
        cmocka_unit_test(error_is_kept_per_thread),
        cmocka_unit_test(error_that_a_program_sets_is_kept_as_the_librarys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
