/* base/option.c: settings come from the environment, once, and a malformed one is told. */
#include "tests/unit/unit.h"

#include <gvmem/device.h>

#include "base/options.h"

static void clear_environment(void)
{
#define CLEAR(name, fallback, text) unsetenv(#name);
    GVMI_OPTIONS(CLEAR)
#undef CLEAR
}

static int defaults(void *arg)
{
    uint64_t bytes;
    bool on;

    (void)arg;
    clear_environment();
#define EXPECT(name, fallback, text) \
    CHILD_EXPECT(strcmp(gvmi_option_text(GVMI_OPTION_##name), fallback) == 0);
    GVMI_OPTIONS(EXPECT)
#undef EXPECT
    CHILD_EXPECT(gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &bytes) == GVM_OK && bytes == 256 << 20);
    CHILD_EXPECT(gvmi_option_bool(GVMI_OPTION_GVMEM_VMM, &on) == GVM_OK && on);
    CHILD_EXPECT(gvmi_option_bool(GVMI_OPTION_GVMEM_CHECK, &on) == GVM_OK && !on);
    return 0;
}

CHILD_TEST(option_unset_has_its_default, defaults)

static int from_environment(void *arg)
{
    gvm_setting_info setting = {.struct_size = sizeof setting};
    uint64_t bytes;

    (void)arg;
    clear_environment();
    setenv("GVMEM_CACHE", "3MiB", 1);
    CHILD_EXPECT(gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &bytes) == GVM_OK && bytes == 3 << 20);
    setenv("GVMEM_CACHE", "5MiB", 1); /* too late */
    CHILD_EXPECT(gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &bytes) == GVM_OK && bytes == 3 << 20);
    CHILD_EXPECT(gvm_setting_get_info(GVMI_OPTION_GVMEM_CACHE, &setting) == GVM_OK);
    CHILD_EXPECT(strcmp(setting.name, "GVMEM_CACHE") == 0 && strcmp(setting.value, "3MiB") == 0);
    CHILD_EXPECT(strcmp(setting.origin, "environment") == 0 &&
                 strcmp(setting.default_value, "256MiB") == 0);
    CHILD_EXPECT(gvm_setting_get_info(GVMI_OPTION_GVMEM_DRIVER, &setting) == GVM_OK);
    CHILD_EXPECT(strcmp(setting.origin, "default") == 0);
    return 0;
}

CHILD_TEST(option_is_read_once_from_the_environment, from_environment)

static int bad_truth(void *value)
{
    bool on = true;
    gvm_error error;

    clear_environment();
    setenv("GVMEM_VMM", value, 1);
    CHILD_EXPECT(gvmi_option_bool(GVMI_OPTION_GVMEM_VMM, &on) == GVM_E_SETTING);
    CHILD_EXPECT(on); /* outputs are written on success only */
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "GVMEM_VMM") != NULL && strstr(error.text, value) != NULL);
    return 0;
}

static void option_malformed_truth_is_reported(void **state)
{
    const char *const values[] = {"", "yes", "2", "01", "1 ", "true"};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_child_succeeds(bad_truth, (void *)(uintptr_t)values[i]);
}

static int bad_size(void *value)
{
    uint64_t bytes = 7;
    gvm_error error;

    clear_environment();
    setenv("GVMEM_CACHE", value, 1);
    CHILD_EXPECT(gvmi_option_size(GVMI_OPTION_GVMEM_CACHE, &bytes) == GVM_E_SETTING);
    CHILD_EXPECT(bytes == 7);
    gvm_error_last(&error);
    CHILD_EXPECT(strstr(error.text, "GVMEM_CACHE") != NULL);
    return 0;
}

static void option_malformed_size_is_reported(void **state)
{
    const char *const values[] = {"", "much", "-1", "1.5", "2MiBs", "99999999999999999999"};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_child_succeeds(bad_size, (void *)(uintptr_t)values[i]);
}

static void setting_list_ends_and_is_complete(void **state)
{
    gvm_setting_info setting = {.struct_size = sizeof setting};
    uint32_t count = 0;

    (void)state;
    while (gvm_setting_get_info(count, &setting) == GVM_OK) {
        assert_memory_equal(setting.name, "GVMEM_", 6);
        assert_true(strlen(setting.text) > 10);
        assert_non_null(setting.value);
        assert_non_null(setting.default_value);
        count++;
    }
    assert_int_equal(count, GVMI_OPTION_COUNT);
    assert_int_equal(gvm_setting_get_info(UINT32_MAX, &setting), GVM_E_INVALID);
    assert_int_equal(gvm_setting_get_info(0, NULL), GVM_E_INVALID);
    setting.struct_size = 8;
    assert_int_equal(gvm_setting_get_info(0, &setting), GVM_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(option_unset_has_its_default),
        cmocka_unit_test(option_is_read_once_from_the_environment),
        cmocka_unit_test(option_malformed_truth_is_reported),
        cmocka_unit_test(option_malformed_size_is_reported),
        cmocka_unit_test(setting_list_ends_and_is_complete),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
