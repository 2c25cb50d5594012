/* driver/load.c: what GVMEM_DRIVER and the decorators' settings may hold, and what a driver's
 * answers become.
 *
 * Each loading happens in a child, because a process loads a driver once. GVMEM_DRIVER of the
 * environment is not used.
 */
#include "tests/unit/fake.h"
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>

typedef struct setting {
    const char *name, *value;
    gvm_status expected;
    const char *mentions; /* in the error's text */
} setting;

static int load_with(void *arg)
{
    const setting *one = arg;
    gvm_driver_info info = {.struct_size = sizeof info};
    gvm_error error;

    unsetenv("GVMEM_TRACE");
    unsetenv("GVMEM_FAULT");
    unsetenv("GVMEM_CHECK");
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv(one->name, one->value, 1);
    CHILD_EXPECT(gvmi_driver_start() == one->expected);
    CHILD_EXPECT((gvmi_cu != NULL) == (one->expected == GVM_OK));
    CHILD_EXPECT(gvm_driver_get_info(&info) == one->expected); /* tries again, with the same outcome */
    if (one->expected == GVM_OK) {
        CHILD_EXPECT(info.path[0] != '\0' && info.reason[0] != '\0' && info.version >= 10000);
        CHILD_EXPECT(gvm_driver_get_info(NULL) == GVM_E_INVALID);
        return 0;
    }
    gvm_error_last(&error);
    CHILD_EXPECT(error.status == one->expected);
    CHILD_EXPECT(one->mentions == NULL || strstr(error.text, one->mentions) != NULL);
    return 0;
}

static void expect_load(const char *name, const char *value, gvm_status expected, const char *mentions)
{
    setting one = {name, value, expected, mentions};

    if (run_in_child(load_with, &one, false) != 0)
        fail_msg("%s=%s", name, value);
}

static void driver_soft_is_loaded(void **state)
{
    (void)state;
    expect_load("GVMEM_DRIVER", "soft", GVM_OK, NULL);
}

static void driver_of_unknown_name_is_a_bad_setting(void **state)
{
    (void)state;
    expect_load("GVMEM_DRIVER", "hardware", GVM_E_SETTING, "hardware");
    expect_load("GVMEM_DRIVER", "SOFT", GVM_E_SETTING, "SOFT");
    expect_load("GVMEM_DRIVER", "libcuda.so.1", GVM_E_SETTING, "slash");
}

static void driver_of_a_missing_file_is_no_driver(void **state)
{
    (void)state;
    expect_load("GVMEM_DRIVER", "/nonexistent/libdriver.so", GVM_E_NODRIVER,
                "/nonexistent/libdriver.so");
}

static void driver_of_another_library_is_no_driver(void **state)
{
    Dl_info maths;
    char path[PATH_MAX];

    (void)state;
    assert_int_not_equal(dladdr((void *)(uintptr_t)cbrt, &maths), 0);
    assert_non_null(realpath(maths.dli_fname, path));
    expect_load("GVMEM_DRIVER", path, GVM_E_NODRIVER, "lacks cuInit");
}

static void decorator_settings_malformed_are_reported(void **state)
{
    (void)state;
    expect_load("GVMEM_CHECK", "yes", GVM_E_SETTING, "GVMEM_CHECK");
    expect_load("GVMEM_FAULT", "cuMemCreate", GVM_E_SETTING, "GVMEM_FAULT");
    expect_load("GVMEM_TRACE", "/nonexistent/trace", GVM_E_SETTING, "GVMEM_TRACE");
}

static void decorator_settings_well_formed_are_stacked(void **state)
{
    (void)state;
    expect_load("GVMEM_CHECK", "1", GVM_OK, NULL);
    expect_load("GVMEM_FAULT", "cuMemCreate:1", GVM_OK, NULL);
    expect_load("GVMEM_TRACE", "/dev/null", GVM_OK, NULL);
}

static void software_gpu_of_a_bad_machine_is_a_bad_setting(void **state)
{
    (void)state;
    expect_load("GVMEM_SOFTGPU", "devices=0", GVM_E_SETTING, "GVMEM_SOFTGPU");
    expect_load("GVMEM_SOFTGPU", "memory=lots", GVM_E_SETTING, "GVMEM_SOFTGPU");
}

static void driver_failure_has_its_status(void **state)
{
    const struct {
        CUresult result;
        gvm_status status;
    } cases[] = {
        {CUDA_ERROR_OUT_OF_MEMORY, GVM_E_NOSPACE},   {CUDA_ERROR_NOT_SUPPORTED, GVM_E_NOTSUP},
        {CUDA_ERROR_ILLEGAL_ADDRESS, GVM_E_LOST},    {CUDA_ERROR_LAUNCH_FAILED, GVM_E_LOST},
        {CUDA_ERROR_INVALID_VALUE, GVM_E_DRIVER},    {CUDA_ERROR_UNKNOWN, GVM_E_DRIVER},
        {CUDA_ERROR_MISALIGNED_ADDRESS, GVM_E_LOST}, {CUDA_ERROR_CONTEXT_IS_DESTROYED, GVM_E_LOST},
        {CUDA_ERROR_INVALID_DEVICE, GVM_E_NODEVICE}, {CUDA_ERROR_HARDWARE_STACK_ERROR, GVM_E_LOST},
        {CUDA_ERROR_INVALID_PC, GVM_E_LOST},         {CUDA_ERROR_ECC_UNCORRECTABLE, GVM_E_LOST},
    };
    gvm_error error;

    (void)state;
    gvmi_driver_install(fake_driver());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(gvmi_driver_fail((int32_t)cases[i].result, "cuMemCreate", "of %d", 5),
                         cases[i].status);
        assert_int_equal(gvmi_driver_is_sticky(cases[i].result), cases[i].status == GVM_E_LOST);
        gvm_error_last(&error);
        assert_int_equal(error.native_code, cases[i].result);
        assert_string_equal(error.native_call, "cuMemCreate");
        assert_memory_equal(error.native_name, "CUDA_ERROR_", 11);
        assert_string_equal(error.text, "of 5");
    }
    gvmi_driver_install(NULL);
}

static void call_names_are_those_of_the_table(void **state)
{
    (void)state;
    assert_string_equal(gvmi_call_names[gvmi_call_cuInit], "cuInit");
    assert_string_equal(gvmi_call_names[gvmi_call_cuLaunchCooperativeKernel],
                        "cuLaunchCooperativeKernel");
    for (int i = 0; i < GVMI_CALL_COUNT; i++)
        assert_memory_equal(gvmi_call_names[i], "cu", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driver_soft_is_loaded),
        cmocka_unit_test(driver_of_unknown_name_is_a_bad_setting),
        cmocka_unit_test(driver_of_a_missing_file_is_no_driver),
        cmocka_unit_test(driver_of_another_library_is_no_driver),
        cmocka_unit_test(decorator_settings_malformed_are_reported),
        cmocka_unit_test(decorator_settings_well_formed_are_stacked),
        cmocka_unit_test(software_gpu_of_a_bad_machine_is_a_bad_setting),
        cmocka_unit_test(driver_failure_has_its_status),
        cmocka_unit_test(call_names_are_those_of_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
