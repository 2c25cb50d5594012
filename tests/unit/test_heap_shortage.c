/* heap/: idle memory and addresses of streams that ended are used again. On the software GPU. */
#include "heap/heap.h"
#include "tests/unit/heap_stand.h"

/* ---- addresses */

static void use_stream(CUstream stream)
{
    void *ptr = NULL;

    assert_int_equal(gvm_heap_alloc_async(heap, GVMI_MIB, NULL, stream, &ptr), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
}

static void streams_one_after_the_other_use_the_same_segment(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        CUstream stream = make_stream();

        use_stream(stream);
        assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
        gvmi_cu->cuStreamDestroy(stream);
        assert_int_equal(info().address_bytes, GVMI_GIB);
        assert_int_equal(info().committed_bytes, CHUNK);
        check();
    }
    assert_int_equal(info().commits, 1);
}

/* What the stream has taken over leaves as what was its own does: after it. */
static void memory_taken_over_by_a_stream_goes_back(void **state)
{
    void *ptr = NULL;
    CUstream stream;

    (void)state;
    release(alloc(40 * GVMI_MIB));
    stream = make_stream();
    assert_int_equal(gvm_heap_alloc_async(heap, GVMI_MIB, NULL, stream, &ptr), GVM_OK);
    assert_int_equal(info().segments, 1);
    assert_int_equal(info().committed_bytes, 40 * GVMI_MIB);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, CHUNK);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
    check();
}

static void streams_beside_each_other_leave_one_segment(void **state)
{
    enum { COUNT = 5 };
    const gvm_heap_options options = {.struct_size = sizeof options, .reserve_bytes = 1};
    CUstream streams[COUNT];

    (void)state;
    remake(&options);
    for (int i = 0; i < COUNT; i++)
        use_stream(streams[i] = make_stream());
    assert_int_equal(info().segments, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(gvm_heap_stream_end(heap, streams[i]), GVM_OK);
        gvmi_cu->cuStreamDestroy(streams[i]);
    }
    assert_int_equal(info().committed_bytes, 0);
    assert_int_equal(info().segments, 1);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().segments, 0);
    check();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(streams_one_after_the_other_use_the_same_segment),
        TEST(memory_taken_over_by_a_stream_goes_back),
        TEST(streams_beside_each_other_leave_one_segment),
    };
    char machine[96];

    snprintf(machine, sizeof machine, "memory=4GiB,sms=2,instance=heap-shortage-%d", (int)getpid());
    setenv("GVMEM_SOFTGPU", machine, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
