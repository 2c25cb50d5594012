/* heap/plugin/: what PyTorch and CuPy call, found as they find it, and the trace that it leaves.
 *
 * usage: test_heap_plugin LIBRARY
 */
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <sys/types.h>

static const char *library;

typedef void *torch_alloc_fn(ssize_t size, int device, void *stream);
typedef void torch_free_fn(void *ptr, ssize_t size, int device, void *stream);
typedef void *cupy_alloc_fn(void *param, size_t size, int device);
typedef void cupy_free_fn(void *param, void *ptr, int device);

/* A child that asks for memory is refused; and one that exits, with all that exit() does, has nothing
 * to add to the trace. */
static bool children_leave(torch_alloc_fn *torch_alloc)
{
    int status = -1;
    pid_t pid;

    fflush(stdout); /* the test's own, and nothing else: what the plug-in has stays where it is */
    pid = fork();
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        exit(torch_alloc(100000, 0, NULL) == NULL ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static int use_plugin(void *arg)
{
    void *handle = dlopen(library, RTLD_NOW), *ptr, *other;
    torch_alloc_fn *torch_alloc;
    torch_free_fn *torch_free;
    cupy_alloc_fn *cupy_alloc;
    cupy_free_fn *cupy_free;

    (void)arg;
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    *(void **)&torch_free = dlsym(handle, "gvm_torch_free");
    *(void **)&cupy_alloc = dlsym(handle, "gvm_cupy_alloc");
    *(void **)&cupy_free = dlsym(handle, "gvm_cupy_free");
    CHILD_EXPECT(torch_alloc && torch_free && cupy_alloc && cupy_free);
    CHILD_EXPECT((ptr = torch_alloc(100000, 0, NULL)) != NULL);
    CHILD_EXPECT((other = cupy_alloc(NULL, 5 << 20, 0)) != NULL);
    CHILD_EXPECT(children_leave(torch_alloc));
    torch_free(ptr, 100000, 0, NULL);
    CHILD_EXPECT(torch_alloc(100000, 0, NULL) == ptr); /* of the same stream, at once */
    torch_free(ptr, 100000, 0, NULL);
    cupy_free(NULL, other, 0);
    torch_free(NULL, 0, 0, NULL);
    CHILD_EXPECT(torch_alloc(0, 0, NULL) == NULL);
    CHILD_EXPECT(cupy_alloc(NULL, 0, 0) == NULL);
    CHILD_EXPECT(torch_alloc(5, -1, NULL) == NULL);
    CHILD_EXPECT(torch_alloc(5, 1000, NULL) == NULL);
    fflush(NULL);
    CHILD_EXPECT(dlclose(handle) == 0);
    return 0;
}

static void plugin_serves_torch_and_cupy(void **state)
{
    (void)state;
    assert_child_succeeds(use_plugin, NULL);
}

static int record_trace(void *arg)
{
    setenv("GVMEM_HEAP_TRACE", arg, 1);
    return use_plugin(NULL);
}

static void trace_has_a_line_for_each_event(void **state)
{
    static const char kinds[] = "aafaff";
    static const unsigned long long sizes[] = {100000, 5 << 20, 100000, 100000, 100000, 5 << 20};
    char path[] = "/tmp/gvmem-heap-trace-XXXXXX", line[128];
    unsigned long long ids[6], bytes, stream, ns, last = 0;
    int fd = mkstemp(path);
    FILE *file;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_child_succeeds(record_trace, path);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "# gvmem heap trace 1\n");
    for (int i = 0; i < 6; i++) {
        char kind;

        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(sscanf(line, "%c %llx %llu %llx %llu", &kind, &ids[i], &bytes, &stream, &ns),
                         5);
        assert_int_equal(kind, kinds[i]);
        assert_int_equal(bytes, sizes[i]);
        assert_int_equal(stream, 0);
        assert_true(ns >= last);
        last = ns;
    }
    assert_null(fgets(line, sizeof line, file));
    assert_true(ids[0] == ids[2] && ids[2] == ids[3] && ids[3] == ids[4] && ids[1] == ids[5] &&
                ids[0] != ids[1]);
    fclose(file);
    unlink(path);
}

static int be_limited(void *arg)
{
    torch_alloc_fn *torch_alloc;
    void *handle;

    (void)arg;
    setenv("GVMEM_HEAP_LIMIT", "4MiB", 1);
    handle = dlopen(library, RTLD_NOW);
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) != NULL);
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) == NULL);
    return 0;
}

static int be_misset(void *arg)
{
    torch_alloc_fn *torch_alloc;
    void *handle;

    (void)arg;
    setenv("GVMEM_HEAP_RESERVE", "much", 1);
    handle = dlopen(library, RTLD_NOW);
    CHILD_EXPECT(handle != NULL);
    *(void **)&torch_alloc = dlsym(handle, "gvm_torch_alloc");
    CHILD_EXPECT(torch_alloc(3 << 20, 0, NULL) == NULL);
    return 0;
}

static void settings_are_heeded(void **state)
{
    (void)state;
    assert_int_equal(run_in_child(be_limited, NULL, true), 0);
    assert_int_equal(run_in_child(be_misset, NULL, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plugin_serves_torch_and_cupy),
        cmocka_unit_test(trace_has_a_line_for_each_event),
        cmocka_unit_test(settings_are_heeded),
    };

    if (argc != 2)
        return 2;
    library = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
