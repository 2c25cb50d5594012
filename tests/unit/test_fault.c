/* driver/fault.c: exactly the calls asked for fail, without reaching the driver; those that give
 * back never do. */
#include "tests/unit/fake.h"
#include "tests/unit/unit.h"

static const gvmi_driver *faulty;

static CUresult create(void)
{
    CUmemGenericAllocationHandle handle;

    return faulty->cuMemCreate(&handle, 2097152, NULL, 0);
}

static void fault_strikes_the_nth_call_once(void **state)
{
    (void)state;
    memset(fake_calls, 0, sizeof fake_calls);
    gvmi_fault_arm(gvmi_call_cuMemCreate, 3, false, CUDA_ERROR_UNKNOWN);
    for (int i = 1; i <= 6; i++) {
        assert_int_equal(gvmi_fault_struck(), i > 3);
        assert_int_equal(create(), i == 3 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
    }
    assert_int_equal(gvmi_fault_calls(), 6);
    assert_int_equal(fake_calls[gvmi_call_cuMemCreate], 5);
}

static void fault_for_ever_strikes_from_the_nth_on(void **state)
{
    (void)state;
    gvmi_fault_arm(gvmi_call_cuMemCreate, 2, true, CUDA_ERROR_NOT_SUPPORTED);
    for (int i = 1; i <= 5; i++)
        assert_int_equal(create(), i >= 2 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
    gvmi_fault_arm(GVMI_CALL_COUNT, 0, false, CUDA_SUCCESS);
    assert_int_equal(create(), CUDA_SUCCESS);
}

static void fault_of_one_name_leaves_others_alone(void **state)
{
    (void)state;
    gvmi_fault_arm(gvmi_call_cuMemCreate, 1, true, CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(gvmi_fault_calls(), 0);
    assert_false(gvmi_fault_struck());
}

static void fault_of_any_name_counts_all_that_can_fail(void **state)
{
    (void)state;
    gvmi_fault_arm(GVMI_CALL_COUNT, 3, false, CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemRelease(1), CUDA_SUCCESS); /* cannot fail, does not count */
    assert_int_equal(create(), CUDA_SUCCESS);
    assert_int_equal(faulty->cuStreamSynchronize(NULL), CUDA_ERROR_UNKNOWN);
    assert_int_equal(gvmi_fault_calls(), 3);
}

static void fault_disarmed_counts_and_strikes_nothing(void **state)
{
    (void)state;
    gvmi_fault_arm(GVMI_CALL_COUNT, 0, true, CUDA_ERROR_UNKNOWN);
    for (int i = 0; i < 10; i++)
        assert_int_equal(create(), CUDA_SUCCESS);
    assert_int_equal(gvmi_fault_calls(), 10);
    assert_false(gvmi_fault_struck());
}

static void fault_never_fails_what_gives_back(void **state)
{
    CUcontext context;
    const char *text;

    (void)state;
    gvmi_fault_arm(GVMI_CALL_COUNT, 1, true, CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuMemUnmap(1, 1), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemRelease(1), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemAddressFree(1, 1), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemFree(1), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemFreeAsync(1, NULL), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemFreeHost(&text), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemHostUnregister(&text), CUDA_SUCCESS);
    assert_int_equal(faulty->cuIpcCloseMemHandle(1), CUDA_SUCCESS);
    assert_int_equal(faulty->cuMemPoolDestroy(NULL), CUDA_SUCCESS);
    assert_int_equal(faulty->cuStreamDestroy(NULL), CUDA_SUCCESS);
    assert_int_equal(faulty->cuEventDestroy(NULL), CUDA_SUCCESS);
    assert_int_equal(faulty->cuModuleUnload(NULL), CUDA_SUCCESS);
    assert_int_equal(faulty->cuCtxPopCurrent(&context), CUDA_SUCCESS);
    assert_int_equal(faulty->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(faulty->cuGetErrorName(CUDA_SUCCESS, &text), CUDA_SUCCESS);
    assert_int_equal(gvmi_fault_calls(), 0);
}

static void fault_of_a_wait_comes_after_the_wait(void **state)
{
    (void)state;
    memset(fake_calls, 0, sizeof fake_calls);
    gvmi_fault_arm(GVMI_CALL_COUNT, 1, true, CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuStreamSynchronize(NULL), CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuEventSynchronize(NULL), CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
    assert_int_equal(fake_calls[gvmi_call_cuStreamSynchronize], 1);
    assert_int_equal(fake_calls[gvmi_call_cuEventSynchronize], 1);
    assert_int_equal(fake_calls[gvmi_call_cuCtxSynchronize], 1);
}

static void fault_of_a_push_comes_after_a_wait_for_the_context(void **state)
{
    (void)state;
    memset(fake_calls, 0, sizeof fake_calls);
    gvmi_fault_arm(gvmi_call_cuCtxPushCurrent, 2, false, CUDA_ERROR_UNKNOWN);
    assert_int_equal(faulty->cuCtxPushCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(fake_calls[gvmi_call_cuCtxSynchronize], 0);
    assert_int_equal(faulty->cuCtxPushCurrent(NULL), CUDA_ERROR_UNKNOWN);
    assert_int_equal(gvmi_fault_calls(), 2);
    assert_int_equal(fake_calls[gvmi_call_cuCtxSynchronize], 1);
    assert_int_equal(fake_calls[gvmi_call_cuCtxPopCurrent], 1);
}

static void fault_without_a_result_answers_the_usual_one(void **state)
{
    (void)state;
    gvmi_fault_arm(GVMI_CALL_COUNT, 1, true, CUDA_SUCCESS);
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(faulty->cuMemMap(1, 1, 0, 1, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(faulty->cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
}

static void fault_plan_well_formed_is_armed(void **state)
{
    (void)state;
    assert_non_null(gvmi_fault_wrap(fake_driver(), "cuMemCreate:2"));
    assert_int_equal(create(), CUDA_SUCCESS);
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(create(), CUDA_SUCCESS);
    assert_non_null(gvmi_fault_wrap(fake_driver(), "*:2+"));
    assert_int_equal(create(), CUDA_SUCCESS);
    assert_int_equal(create(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(faulty->cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
    assert_non_null(gvmi_fault_wrap(fake_driver(), ""));
    assert_int_equal(create(), CUDA_SUCCESS);
}

static void fault_plan_malformed_is_a_bad_setting(void **state)
{
    const char *const plans[] = {"cuMemCreate",
                                 "cuMemCreate:",
                                 "cuMemCreate:0",
                                 "cuMemCreate:-1",
                                 "cuMemCreate: 1",
                                 "cuMemCreate:1x",
                                 "cuMemCreate:1++",
                                 ":1",
                                 "cuMem:1",
                                 "cumemcreate:1",
                                 "**:1",
                                 "cuMemUnmap:1",
                                 "cuGetErrorName:1",
                                 "*:99999999999999999999999"};
    gvm_error error;

    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        if (gvmi_fault_wrap(fake_driver(), plans[i]) != NULL)
            fail_msg("the plan \"%s\" was taken", plans[i]);
        gvm_error_last(&error);
        assert_int_equal(error.status, GVM_E_SETTING);
        assert_non_null(strstr(error.text, "GVMEM_FAULT"));
        assert_int_equal(create(), CUDA_SUCCESS); /* and nothing is armed */
    }
}

static int start(void **state)
{
    (void)state;
    faulty = gvmi_fault_wrap(fake_driver(), "");
    return faulty != NULL ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_strikes_the_nth_call_once),
        cmocka_unit_test(fault_for_ever_strikes_from_the_nth_on),
        cmocka_unit_test(fault_of_one_name_leaves_others_alone),
        cmocka_unit_test(fault_of_any_name_counts_all_that_can_fail),
        cmocka_unit_test(fault_disarmed_counts_and_strikes_nothing),
        cmocka_unit_test(fault_never_fails_what_gives_back),
        cmocka_unit_test(fault_of_a_wait_comes_after_the_wait),
        cmocka_unit_test(fault_of_a_push_comes_after_a_wait_for_the_context),
        cmocka_unit_test(fault_without_a_result_answers_the_usual_one),
        cmocka_unit_test(fault_plan_well_formed_is_armed),
        cmocka_unit_test(fault_plan_malformed_is_a_bad_setting),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
