/* softgpu/module.c, launch.c: what the conformance table cannot hold. Files that are cut off or no images, options of the
 * compiler that a real driver answers by what it compiles, and launches that the software GPU refuses.
 *
 * Each test is a child with a machine of its own.
 */
#include "tests/unit/unit.h"

#include <elf.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "driver/driver.h"
#include "tests/lib/fixture.h"

extern const unsigned char gvmi_image_soft_softgpu_kernels[];

static char file_name[100];

static bool start(void)
{
    CUcontext context;

    fixture_machine("devices=1,memory=64MiB");
    setenv("GVMEM_DRIVER", "soft", 1);
    snprintf(file_name, sizeof file_name, "/tmp/gvmem-image-%d", (int)getpid());
    return gvmi_driver_start() == GVM_OK &&
           gvmi_cu->cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           gvmi_cu->cuCtxSetCurrent(context) == CUDA_SUCCESS;
}

static size_t image_bytes(void)
{
    Elf64_Ehdr head;

    memcpy(&head, gvmi_image_soft_softgpu_kernels, sizeof head);
    return head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
}

/* Loads a file of these bytes. */
static CUresult load_file(const void *bytes, size_t size)
{
    FILE *file = fopen(file_name, "w");
    CUmodule module = NULL;
    CUresult result;

    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        return CUDA_ERROR_UNKNOWN;
    result = gvmi_cu->cuModuleLoad(&module, file_name);
    unlink(file_name);
    return result == CUDA_SUCCESS ? gvmi_cu->cuModuleUnload(module) : result;
}

static int load_files(void *arg)
{
    const unsigned char *image = gvmi_image_soft_softgpu_kernels;
    CUmodule module = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(load_file(image, image_bytes()) == CUDA_SUCCESS);
    CHILD_EXPECT(load_file(image, image_bytes() - 1) == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(load_file(image, sizeof(Elf64_Ehdr)) == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(load_file(image, 10) == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(load_file(image, 0) == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(gvmi_cu->cuModuleLoad(&module, "/") == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(gvmi_cu->cuModuleLoad(&module, file_name) == CUDA_ERROR_FILE_NOT_FOUND);
    CHILD_EXPECT(mkfifo(file_name, 0600) == 0);
    CHILD_EXPECT(gvmi_cu->cuModuleLoad(&module, file_name) == CUDA_ERROR_INVALID_IMAGE);
    CHILD_EXPECT(unlink(file_name) == 0 && module == NULL);
    return 0;
}

static int load_with_options(void *arg)
{
    CUjit_option options[] = {CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER,
                              CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    char info[4] = "xyz", errors[4] = "xyz";
    void *values[] = {(void *)7, info, (void *)sizeof info, errors, (void *)0};
    CUmodule module = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuModuleLoadDataEx(&module, gvmi_image_soft_softgpu_kernels, 5, options,
                                             values) == CUDA_SUCCESS);
    CHILD_EXPECT(values[0] == NULL && values[2] == NULL && values[4] == NULL);
    CHILD_EXPECT(info[0] == 0 && info[1] == 'y' && errors[0] == 'x'); /* of 0 bytes */
    CHILD_EXPECT(gvmi_cu->cuModuleUnload(module) == CUDA_SUCCESS);
    module = NULL;
    for (options[0] = -1; options[0] <= 1000; options[0] += 1001)
        CHILD_EXPECT(gvmi_cu->cuModuleLoadDataEx(&module, gvmi_image_soft_softgpu_kernels, 5,
                                                 options, values) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuModuleLoadDataEx(&module, gvmi_image_soft_softgpu_kernels, 1, NULL,
                                             values) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuModuleLoadDataEx(&module, gvmi_image_soft_softgpu_kernels, 1, options,
                                             NULL) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(module == NULL);
    return 0;
}

static int launch_with_attributes(void *arg)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, &attribute, 1};

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvmi_cu->cuLaunchKernelEx(&config, NULL, NULL, NULL) == CUDA_ERROR_NOT_SUPPORTED);
    attribute.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    CHILD_EXPECT(gvmi_cu->cuLaunchKernelEx(&config, NULL, NULL, NULL) == CUDA_ERROR_INVALID_HANDLE);
    config.attrs = NULL;
    CHILD_EXPECT(gvmi_cu->cuLaunchKernelEx(&config, NULL, NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
    CHILD_EXPECT(gvmi_cu->cuLaunchKernelEx(NULL, NULL, NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
    return 0;
}

/* With room for so many more files. */
static gvm_status load_with_fds(int count)
{
    const int next = dup(STDERR_FILENO);
    struct rlimit before, few;
    CUmodule module;
    gvm_status status;
    CUresult result;

    if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &before) != 0)
        return GVM_E_SYSTEM;
    few = (struct rlimit){(rlim_t)(next + count), before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        return GVM_E_SYSTEM;
    result = gvmi_cu->cuModuleLoadData(&module, gvmi_image_soft_softgpu_kernels);
    status = result == CUDA_SUCCESS ? GVM_OK
                                    : gvmi_driver_fail(result, "cuModuleLoadData", "no kernels");
    if (setrlimit(RLIMIT_NOFILE, &before) != 0 ||
        (result == CUDA_SUCCESS && gvmi_cu->cuModuleUnload(module) != CUDA_SUCCESS))
        return GVM_E_SYSTEM;
    return status;
}

/* One for the image, one for the loader. */
static int load_without_fds(void *arg)
{
    gvm_error error;

    (void)arg;
    CHILD_EXPECT(start());
    for (int count = 0; count < 2; count++) {
        CHILD_EXPECT(load_with_fds(count) == GVM_E_LIMIT);
        gvm_error_last(&error);
        CHILD_EXPECT(strstr(error.text, "no kernels: ") != NULL &&
                     strstr(error.text, "ulimit -n") != NULL);
    }
    CHILD_EXPECT(load_with_fds(2) == GVM_OK);
    CHILD_EXPECT(gvmi_driver_fail(CUDA_ERROR_OPERATING_SYSTEM, "cuInit", "no") == GVM_E_DRIVER);
    return 0;
}

CHILD_TEST(file_that_is_no_whole_image_is_refused, load_files)
CHILD_TEST(image_without_room_for_files_says_so, load_without_fds)
CHILD_TEST(options_of_the_compiler_have_no_effect, load_with_options)
CHILD_TEST(attributes_that_are_not_supported_are_refused, launch_with_attributes)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_that_is_no_whole_image_is_refused),
        cmocka_unit_test(image_without_room_for_files_says_so),
        cmocka_unit_test(options_of_the_compiler_have_no_effect),
        cmocka_unit_test(attributes_that_are_not_supported_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
