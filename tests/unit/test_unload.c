/* The library when a program closes it with dlclose(): threads of it may run.
 *
 * usage: test_unload LIBRARY
 */
#include "tests/unit/unit.h"

#include <dlfcn.h>
#include <pthread.h>

#include <gvmem/gvmem.h>

#define CALLS(X) \
    X(gvm_device_open) \
    X(gvm_device_close) \
    X(gvm_heap_create) \
    X(gvm_heap_destroy) \
    X(gvm_heap_alloc) \
    X(gvm_heap_free) \
    X(gvm_appender_create) \
    X(gvm_appender_destroy) \
    X(gvm_appender_begin) \
    X(gvm_appender_finish)

static const char *path;
static void *library;
#define DECLARE(name) static __typeof__(&name) lib_##name;
CALLS(DECLARE)

static bool load(void)
{
    bool all = true;

    library = dlopen(path, RTLD_NOW);
#define FIND(name) \
    *(void **)&lib_##name = library != NULL ? dlsym(library, #name) : NULL; \
    all = all && lib_##name != NULL;
    CALLS(FIND)
    return all;
}

static gvm_heap *heap;

static void *use_heap(void *ready)
{
    void *block = NULL;

    (void)(lib_gvm_heap_alloc(heap, 100000, &block) == GVM_OK &&
           lib_gvm_heap_free(heap, block) == GVM_OK);
    pthread_barrier_wait(ready); /* has a shelf */
    pthread_barrier_wait(ready); /* the library is closed: what runs when a thread ends is the library's */
    return NULL;
}

static int close_library(void *arg)
{
    gvm_append append = {.struct_size = sizeof append};
    gvm_device *device;
    gvm_appender *appender;
    pthread_barrier_t ready;
    pthread_t thread;

    (void)arg;
    CHILD_EXPECT(load());
    CHILD_EXPECT(lib_gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(lib_gvm_heap_create(device, NULL, &heap) == GVM_OK);
    CHILD_EXPECT(lib_gvm_appender_create(device, 8, 64 << 20, NULL, &appender) == GVM_OK);
    CHILD_EXPECT(lib_gvm_appender_begin(appender, &append) == GVM_OK);
    CHILD_EXPECT(pthread_barrier_init(&ready, NULL, 2) == 0);
    CHILD_EXPECT(pthread_create(&thread, NULL, use_heap, &ready) == 0);
    pthread_barrier_wait(&ready);
    CHILD_EXPECT(dlclose(library) == 0);
    pthread_barrier_wait(&ready);
    CHILD_EXPECT(pthread_join(thread, NULL) == 0);
    /* It has stayed, with all that it had. */
    CHILD_EXPECT(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL);
    CHILD_EXPECT(lib_gvm_appender_finish(appender, NULL, NULL) == GVM_OK);
    lib_gvm_appender_destroy(appender);
    lib_gvm_heap_destroy(heap);
    lib_gvm_device_close(device);
    return 0;
}

CHILD_TEST(library_closed_while_its_thread_runs_stays, close_library)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_closed_while_its_thread_runs_stays),
    };

    if (argc != 2)
        return 2;
    path = argv[1];
    setenv("GVMEM_DRIVER", "soft", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
