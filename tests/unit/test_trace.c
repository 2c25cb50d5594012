/* driver/trace.c: one whole line per call, with arguments, outputs and result; and the call
 * passes on unchanged. */
#include "tests/unit/fake.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"

static char path[] = "/tmp/gvmem-test-trace-XXXXXX";
static const gvmi_driver *traced;

/* What was traced since the last call of this function; valid until the next. */
static char *lines(void)
{
    static char text[1 << 20];
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);

    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(fd);
    assert_int_equal(truncate(path, 0), 0);
    return text;
}

static void expect_line(const char *wanted)
{
    char *line = lines();
    int tid, end = 0;
    double began;

    assert_int_equal(sscanf(line, "%d %lf %n", &tid, &began, &end), 2);
    assert_int_equal(tid, gettid());
    assert_in_range((double)gvmi_now_ns() / 1e9 - began, 0, 10);
    if (strncmp(line + end, wanted, strlen(wanted)) != 0)
        fail_msg("traced \"%s\", wanted \"%s\"", line + end, wanted);
    assert_string_equal(line + strlen(line) - 4, " us\n");
}

static void trace_shows_call_arguments_outputs_and_result(void **state)
{
    CUmemGenericAllocationHandle handle;
    char wanted[128];

    (void)state;
    assert_int_equal(traced->cuMemCreate(&handle, 2097152, NULL, 0), CUDA_SUCCESS);
    snprintf(wanted, sizeof wanted, "cuMemCreate(&%#llx, 2097152, 0, 0) = CUDA_SUCCESS ", handle);
    expect_line(wanted);
}

static void trace_of_a_failure_names_the_error(void **state)
{
    int value = 5;

    (void)state;
    fake_result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(traced->cuMemRelease(0x77), CUDA_ERROR_OUT_OF_MEMORY);
    expect_line("cuMemRelease(0x77) = CUDA_ERROR_OUT_OF_MEMORY ");
    fake_result = (CUresult)12345;
    traced->cuMemRelease(0x77);
    expect_line("cuMemRelease(0x77) = 12345 ");
    traced->cuDeviceGetCount(&value); /* not written by the call: the address is shown, not the value */
    assert_null(strstr(lines(), "&5"));
    fake_result = CUDA_SUCCESS;
}

static void trace_shows_calls_without_arguments_and_with_eleven(void **state)
{
    (void)state;
    traced->cuCtxSynchronize();
    expect_line("cuCtxSynchronize() = CUDA_SUCCESS ");
    traced->cuLaunchKernel((CUfunction)0x10, 1, 2, 3, 4, 5, 6, 7, (CUstream)0x20, (void **)0x30,
                           (void **)0x40);
    expect_line("cuLaunchKernel(0x10, 1, 2, 3, 4, 5, 6, 7, 0x20, 0x30, 0x40) = CUDA_SUCCESS ");
}

static void trace_shows_texts_signs_and_null(void **state)
{
    CUfunction function = NULL;
    int value = -3;

    (void)state;
    traced->cuModuleGetFunction(&function, (CUmodule)0x10, "sum_f64");
    expect_line("cuModuleGetFunction(&0, 0x10, \"sum_f64\") = CUDA_SUCCESS ");
    traced->cuModuleGetFunction(NULL, NULL, NULL);
    expect_line("cuModuleGetFunction(0, 0, 0) = CUDA_SUCCESS ");
    traced->cuDeviceGetCount(&value);
    expect_line("cuDeviceGetCount(&-3) = CUDA_SUCCESS ");
}

static void trace_takes_structs_by_value(void **state)
{
    CUipcMemHandle handle = {{1}};
    CUdeviceptr ptr = 0x50;

    (void)state;
    traced->cuIpcOpenMemHandle(&ptr, handle, 1);
    expect_line("cuIpcOpenMemHandle(&0x50, 0x1, 1) = CUDA_SUCCESS ");
}

static void trace_passes_every_call_on_once(void **state)
{
    (void)state;
    memset(fake_calls, 0, sizeof fake_calls);
    traced->cuMemUnmap(1, 2);
    traced->cuStreamSynchronize(NULL);
    for (int i = 0; i < GVMI_CALL_COUNT; i++)
        assert_int_equal(fake_calls[i],
                         i == gvmi_call_cuMemUnmap || i == gvmi_call_cuStreamSynchronize);
    lines();
}

enum { THREADS = 4, ROUNDS = 500 };

static void *call_much(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++)
        traced->cuMemMap(0x200000, 4096, 0, 0x30, 0);
    return NULL;
}

static void trace_of_many_threads_never_mixes_lines(void **state)
{
    pthread_t threads[THREADS];
    int count = 0;

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_much, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (char *line = strtok(lines(), "\n"); line != NULL; line = strtok(NULL, "\n"), count++) {
        double began, us;
        int tid, end = 0;

        assert_int_equal(
            sscanf(line, "%d %lf cuMemMap(0x200000, 4096, 0, 0x30, 0) = CUDA_SUCCESS %lf us%n",
                   &tid, &began, &us, &end),
            3);
        assert_int_equal(end, strlen(line));
    }
    assert_int_equal(count, THREADS * ROUNDS);
}

static void trace_to_a_bad_path_is_a_bad_setting(void **state)
{
    gvm_error error;

    (void)state;
    assert_null(gvmi_trace_wrap(fake_driver(), "/nonexistent/folder/trace"));
    gvm_error_last(&error);
    assert_int_equal(error.status, GVM_E_SETTING);
    assert_string_equal(error.native_call, "open");
    assert_non_null(strstr(error.text, "GVMEM_TRACE"));
}

static int start(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    if (fd < 0)
        return -1;
    close(fd);
    traced = gvmi_trace_wrap(fake_driver(), path);
    return traced != NULL ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_shows_call_arguments_outputs_and_result),
        cmocka_unit_test(trace_of_a_failure_names_the_error),
        cmocka_unit_test(trace_shows_calls_without_arguments_and_with_eleven),
        cmocka_unit_test(trace_shows_texts_signs_and_null),
        cmocka_unit_test(trace_takes_structs_by_value),
        cmocka_unit_test(trace_passes_every_call_on_once),
        cmocka_unit_test(trace_of_many_threads_never_mixes_lines),
        cmocka_unit_test(trace_to_a_bad_path_is_a_bad_setting),
    };

    return cmocka_run_group_tests(tests, start, end);
}
