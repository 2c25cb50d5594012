/* heap/: what a heap answers, call by call, on the software GPU.
 *
 * Random operations are in tests/prop/heap_ops.c; failing drivers in tests/fault.
 */
#include "base/address.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/heap_fixture.h"

#include <pthread.h>

/* ---- blocks */

static void alloc_gives_blocks_that_do_not_overlap(void **state)
{
    static const size_t sizes[] = {1,       UNIT,    UNIT + 1, 100000,    MIB,
                                   MIB + 1, 5 * MIB, 20 * MIB, 130 * MIB, 600 * MIB};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    uintptr_t at[COUNT];
    size_t size, total = 0;

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        at[i] = (uintptr_t)alloc(sizes[i]);
        total += sizes[i];
        assert_int_equal(at[i] % UNIT, 0);
        for (size_t j = 0; j < i; j++)
            assert_true(at[j] + sizes[j] <= at[i] || at[i] + sizes[i] <= at[j]);
    }
    check();
    assert_int_equal(info().requested_bytes, total);
    assert_int_equal(info().blocks, COUNT);
    assert_true(info().committed_bytes >= total && info().committed_bytes <= total + total / 16);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(gvm_heap_get_size(heap, (void *)at[i], &size), GVM_OK);
        assert_int_equal(size, sizes[i]);
        release((void *)at[i]);
    }
    check();
    assert_int_equal(info().requested_bytes, 0);
    assert_int_equal(info().blocks, 0);
}

static void memory_of_a_block_can_be_used(void **state)
{
    const size_t bytes = 5 * MIB + 12345;
    uint64_t address = (uint64_t)(uintptr_t)alloc(bytes), last = 77;

    (void)state;
    assert_int_equal(gvmi_device_enter(device), GVM_OK);
    assert_int_equal(gvmi_cu->cuMemsetD8(address, 5, bytes), CUDA_SUCCESS);
    assert_int_equal(gvmi_cu->cuMemcpyDtoH(&last, address + bytes - 8, 8), CUDA_SUCCESS);
    gvmi_device_leave();
    assert_int_equal(last, 0x0505050505050505);
}

static void memory_is_under_what_was_asked_for_alone(void **state)
{
    void *large = alloc(20 * MIB), *odd, *next, *piece;

    (void)state;
    assert_int_equal(info().committed_bytes, 20 * MIB);
    odd = alloc(5 * MIB);
    assert_int_equal(info().committed_bytes, 26 * MIB);
    next = alloc(10 * MIB); /* begins in the chunk that the last one ends in */
    assert_ptr_equal(next, (char *)odd + 5 * MIB);
    assert_int_equal(info().committed_bytes, 36 * MIB);
    piece = alloc(MIB - UNIT); /* and so does a smaller one */
    assert_int_equal(info().committed_bytes, 36 * MIB);
    assert_ptr_equal(piece, (char *)next + 10 * MIB);
    check();
    release(next);
    release(piece);
    assert_int_equal(info().committed_bytes, 36 * MIB); /* 10 MiB are idle, and one on the shelf */
    release(large);
    release(odd);
    check();
}

static void freed_blocks_are_given_again(void **state)
{
    void *small = alloc(3 * UNIT), *large = alloc(40 * MIB);

    (void)state;
    release(small);
    release(large);
    assert_ptr_equal(alloc(3 * UNIT - 5), small);
    assert_ptr_equal(alloc(40 * MIB), large);
    check();
}

static void free_of_what_is_no_block_is_refused(void **state)
{
    char *small = alloc(UNIT), *large = alloc(3 * MIB), *lone = alloc(600 * MIB);
    gvm_heap_info before = info(), after;
    size_t size = 99;
    int mine;

    (void)state;
    assert_int_equal(gvm_heap_free(heap, NULL), GVM_OK);
    fails_with(gvm_heap_free(heap, &mine), GVM_E_FOREIGN, "no live block");
    assert_int_equal(gvm_heap_free(heap, small + 1), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(heap, large + MIB), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(heap, lone + MIB), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(heap, large + 500 * MIB), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_get_size(heap, large + UNIT, &size), GVM_E_FOREIGN);
    assert_int_equal(size, 99);
    after = info();
    assert_memory_equal(&before, &after, sizeof after);
    release(small);
    release(large);
    release(lone);
    assert_int_equal(gvm_heap_free(heap, small), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(heap, large), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(heap, lone), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_resize(heap, small, UNIT), GVM_E_FOREIGN);
    check();
}

static void free_of_another_heaps_block_is_refused(void **state)
{
    gvm_heap *other;
    void *ptr;

    (void)state;
    assert_int_equal(gvm_heap_create(device, NULL, &other), GVM_OK);
    assert_int_equal(gvm_heap_alloc(other, UNIT, &ptr), GVM_OK);
    release(alloc(UNIT));
    assert_int_equal(gvm_heap_free(heap, ptr), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_free(other, ptr), GVM_OK);
    gvm_heap_destroy(other);
    assert_int_equal(gvm_heap_free(other, ptr), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_alloc(other, UNIT, &ptr), GVM_E_FOREIGN);
    gvm_heap_destroy(other); /* ignored */
}

static void nonsense_is_refused(void **state)
{
    gvm_heap_options options = {.struct_size = sizeof options};
    gvm_heap_info small = {.struct_size = 8};
    gvm_heap *other = NULL;
    void *ptr = NULL;
    size_t count;

    (void)state;
    assert_int_equal(gvm_heap_alloc(heap, 0, &ptr), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc(heap, SIZE_MAX, &ptr), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc(heap, SIZE_MAX - UNIT + 1, &ptr), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc(heap, 1, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc(NULL, 1, &ptr), GVM_E_FOREIGN);
    assert_null(ptr);
    assert_int_equal(gvm_heap_resize(heap, alloc(1), 0), GVM_E_INVALID);
    assert_int_equal(gvm_heap_resize(heap, alloc(1), SIZE_MAX), GVM_E_INVALID);
    assert_int_equal(gvm_heap_get_size(heap, ptr, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_free_after(heap, NULL, NULL, 1), GVM_E_INVALID);
    assert_int_equal(gvm_heap_free_after(heap, NULL, NULL, 0), GVM_OK);
    assert_int_equal(gvm_heap_get_info(heap, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_get_info(heap, &small), GVM_E_INVALID);
    assert_int_equal(gvm_heap_list(heap, 1, sizeof(gvm_heap_block), NULL, &count), GVM_E_INVALID);
    assert_int_equal(gvm_heap_list(heap, 0, sizeof(gvm_heap_block), NULL, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_get_usage(heap, 1, sizeof(gvm_heap_usage), NULL, &count), GVM_E_INVALID);
    assert_int_equal(gvm_heap_create(device, NULL, NULL), GVM_E_INVALID);
    fails_with(gvm_heap_create(NULL, NULL, &other), GVM_E_FOREIGN, "the device is NULL");
    options.flags = 77;
    assert_int_equal(gvm_heap_create(device, &options, &other), GVM_E_INVALID);
    options = (gvm_heap_options){.struct_size = sizeof options, .flags = GVM_HEAP_KEEP};
    options.keep_bytes = GVM_BYTES_NONE;
    fails_with(gvm_heap_create(device, &options, &other), GVM_E_INVALID, "GVM_HEAP_KEEP");
    options.keep_bytes = 0;
    options.decay_ms = 1;
    fails_with(gvm_heap_create(device, &options, &other), GVM_E_INVALID, "GVM_HEAP_KEEP");
    options = (gvm_heap_options){.struct_size = sizeof options, .kind = (gvm_heap_kind)9};
    assert_int_equal(gvm_heap_create(device, &options, &other), GVM_E_INVALID);
    options = (gvm_heap_options){.struct_size = 3};
    assert_int_equal(gvm_heap_create(device, &options, &other), GVM_E_INVALID);
    assert_null(other);
    gvm_heap_destroy(NULL);
}

/* ---- resizing */

static void resize_into_free_addresses_succeeds(void **state)
{
    char *at = alloc(20 * MIB);
    size_t size;

    (void)state;
    assert_int_equal(gvm_heap_resize(heap, at, 31 * MIB), GVM_OK);
    assert_int_equal(info().committed_bytes, 32 * MIB);
    check();
    assert_int_equal(gvm_heap_resize(heap, at, 5 * MIB), GVM_OK);
    assert_int_equal(gvm_heap_get_size(heap, at, &size), GVM_OK);
    assert_int_equal(size, 5 * MIB);
    assert_int_equal(info().requested_bytes, 5 * MIB);
    check();
    assert_int_equal(gvm_heap_resize(heap, at, 200 * MIB), GVM_OK); /* nobody is behind it */
    check();
    assert_int_equal(gvm_heap_resize(heap, at, 1), GVM_OK);
    check();
    release(at);
    check();
}

static void resize_into_a_neighbour_is_refused(void **state)
{
    char *first = alloc(2 * UNIT), *second = alloc(2 * UNIT);
    size_t size;

    (void)state;
    if (second < first) {
        char *third = first;

        first = second;
        second = third;
    }
    assert_int_equal(gvm_heap_resize(heap, first, (size_t)(second - first) + 1), GVM_E_ADDRESS);
    assert_int_equal(gvm_heap_get_size(heap, first, &size), GVM_OK);
    assert_int_equal(size, 2 * UNIT);
    assert_int_equal(gvm_heap_resize(heap, first, 2 * GIB), GVM_E_ADDRESS);
    check();
}

static void resize_of_a_large_block_stays_within_it(void **state)
{
    char *at = alloc(700 * MIB);

    (void)state;
    assert_int_equal(gvm_heap_resize(heap, at, 650 * MIB), GVM_OK);
    check();
    assert_int_equal(gvm_heap_resize(heap, at, 1024 * MIB), GVM_OK); /* its addresses are a power of two */
    check();
    assert_int_equal(gvm_heap_resize(heap, at, 1025 * MIB), GVM_E_ADDRESS);
    check();
}

/* ---- what is kept, limit, callback */

static void freed_memory_beyond_what_is_kept_goes_back(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = 8 * MIB};
    void *at[4];

    (void)state;
    remake(&options);
    for (int i = 0; i < 4; i++)
        at[i] = alloc(6 * MIB);
    for (int i = 0; i < 4; i++)
        release(at[i]);
    assert_int_equal(info().committed_bytes, 8 * MIB);
    assert_int_equal(info().idle_bytes, 8 * MIB);
    check();
    assert_int_equal(gvm_heap_trim(heap, 3 * MIB), GVM_OK);
    assert_int_equal(info().committed_bytes, 2 * MIB);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, 0);
    assert_int_equal(info().address_bytes, 0);
    check();
    release(alloc(UNIT));
    assert_int_equal(info().committed_peak_bytes, 24 * MIB);
}

static void limit_is_heeded(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 10 * MIB};
    gvm_heap_info before, after;
    void *ptr = NULL, *at;

    (void)state;
    remake(&options);
    at = alloc(7 * MIB);
    before = info();
    fails_with(gvm_heap_alloc(heap, 4 * MIB, &ptr), GVM_E_NOSPACE, "limit of 10 MiB");
    assert_null(ptr);
    after = info();
    before.exhausted = after.exhausted;
    assert_memory_equal(&before, &after, sizeof after);
    assert_int_equal(gvm_heap_resize(heap, at, 11 * MIB), GVM_E_NOSPACE);
    check();
    assert_int_equal(gvm_heap_set_limit(heap, 24 * MIB), GVM_OK);
    assert_int_equal(gvm_heap_alloc(heap, 4 * MIB, &ptr), GVM_OK);
    release(at);
    release(alloc(16 * MIB)); /* takes what is idle back first */
    assert_int_equal(info().exhausted, 3);
    check();
}

/* What nobody uses goes at once, what blocks use once it is free. */
static void limit_lowered_takes_idle_memory_back(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_UNLIMITED};
    void *at, *ptr = NULL;

    (void)state;
    remake(&options);
    at = alloc(20 * MIB);
    release(alloc(40 * MIB));
    assert_int_equal(gvm_heap_set_limit(heap, 24 * MIB), GVM_OK);
    assert_int_equal(info().committed_bytes, 24 * MIB);
    alloc(4 * MIB);
    fails_with(gvm_heap_alloc(heap, 2 * MIB, &ptr), GVM_E_NOSPACE, "limit of 24 MiB");
    assert_int_equal(gvm_heap_set_limit(heap, 10 * MIB), GVM_OK);
    assert_int_equal(info().committed_bytes, 24 * MIB);
    release(at);
    assert_int_equal(info().committed_bytes, 10 * MIB);
    check();
}

/* As an argument and in an info 0 is no bytes, as an option it is no limit. */
static void limit_of_no_bytes_is_no_memory(void **state)
{
    const gvm_heap_options none = {.struct_size = sizeof none, .limit_bytes = GVM_BYTES_NONE};
    void *at, *ptr = NULL;

    (void)state;
    assert_true(info().limit_bytes == GVM_BYTES_UNLIMITED);
    at = alloc(20 * MIB);
    assert_int_equal(gvm_heap_set_limit(heap, 0), GVM_OK);
    assert_int_equal(info().limit_bytes, 0);
    fails_with(gvm_heap_alloc(heap, 20 * MIB, &ptr), GVM_E_NOSPACE, "limit of 0 B");
    assert_int_equal(gvm_heap_set_limit(heap, GVM_BYTES_UNLIMITED), GVM_OK);
    release(alloc(20 * MIB));
    release(at);
    remake(&none);
    fails_with(gvm_heap_alloc(heap, 1, &ptr), GVM_E_NOSPACE, "limit of 0 B");
    check();
}

/* A heap that gives nothing back keeps what is beyond the limit, and no block has it. */
static void limit_lowered_leaves_idle_memory_unused(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .flags = GVM_HEAP_KEEP};
    void *at, *ptr = NULL;

    (void)state;
    remake(&options);
    release(alloc(40 * MIB));
    assert_int_equal(gvm_heap_set_limit(heap, 10 * MIB), GVM_OK);
    fails_with(gvm_heap_alloc(heap, 20 * MIB, &ptr), GVM_E_NOSPACE, "limit of 10 MiB");
    at = alloc(6 * MIB);
    assert_int_equal(gvm_heap_resize(heap, at, 12 * MIB), GVM_E_NOSPACE);
    assert_int_equal(gvm_heap_resize(heap, at, 10 * MIB), GVM_OK);
    assert_int_equal(info().committed_bytes, 40 * MIB);
    check();
}

static void device_that_is_full_is_said_so(void **state)
{
    gvm_error error = {0};
    void *ptr = NULL;

    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_ADDRESSES);
    release(alloc(UNIT));
    fails_with(gvm_heap_alloc(heap, 512 * GIB, &ptr),
               GVM_E_NOSPACE, /* ThreadSanitizer leaves 1.5 TiB of addresses */
               "block of 512 GiB: the heap has committed 0 B for 0 B requested; ");
    gvm_error_last(&error);
    assert_non_null(strstr(error.text, on_software_gpu() ? "; 4 GiB are free on device 0: "
                                                         : " are free on device 0: "));
    assert_null(strstr(error.text, "chunk"));
    assert_null(ptr);
    fails_with(gvm_heap_alloc(heap, (32ull << 40) + 1, &ptr), GVM_E_INVALID, "1 byte to 32 TiB");
    fails_with(gvm_heap_alloc(heap, UNIT, NULL), GVM_E_INVALID, "out is NULL");
    assert_int_equal(info().committed_bytes, 0); /* what was kept and the shelf went first */
    assert_int_equal(info().segments, 1);
    check();
}

static void *kept[4];
static int asked, kept_count;

static int free_one(gvm_heap *which, uint64_t wanted_bytes, void *arg)
{
    assert_ptr_equal(arg, kept);
    assert_true(wanted_bytes >= 8 * MIB);
    asked++;
    if (kept_count == 0)
        return 0;
    assert_int_equal(gvm_heap_free(which, kept[--kept_count]), GVM_OK);
    return 1;
}

static void callback_makes_room(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options,
                                      .limit_bytes = 16 * MIB,
                                      .exhausted = free_one,
                                      .exhausted_arg = kept};
    void *ptr = NULL;

    (void)state;
    remake(&options);
    asked = 0;
    for (kept_count = 0; kept_count < 4; kept_count++)
        kept[kept_count] = alloc(4 * MIB);
    assert_int_equal(gvm_heap_alloc(heap, 8 * MIB, &ptr), GVM_OK);
    assert_int_equal(asked, 2);
    kept_count = 0;
    assert_int_equal(gvm_heap_alloc(heap, 16 * MIB, &ptr), GVM_E_NOSPACE);
    assert_int_equal(asked, 3);
    check();
}

static int say_again(gvm_heap *which, uint64_t wanted_bytes, void *arg)
{
    (void)which, (void)wanted_bytes, (void)arg;
    asked++;
    return 1;
}

static void callback_that_never_helps_is_left_alone_in_the_end(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .limit_bytes = 2 * MIB, .exhausted = say_again};
    void *ptr = NULL;

    (void)state;
    remake(&options);
    asked = 0;
    assert_int_equal(gvm_heap_alloc(heap, 8 * MIB, &ptr), GVM_E_NOSPACE);
    assert_int_equal(asked, 64);
}

static int waits_begun, waits_ended;

static void count_waits(gvm_heap *which, int begins, void *arg)
{
    gvm_heap_info now = {.struct_size = sizeof now};

    assert_ptr_equal(arg, &waits_begun);
    assert_int_equal(gvm_heap_get_info(which, &now), GVM_OK); /* no lock is held */
    assert_int_equal(waits_begun, waits_ended + !begins);
    if (begins)
        waits_begun++;
    else
        waits_ended++;
    if (!begins && waits_ended == 1)
        assert_int_equal(gvm_heap_set_limit(which, 8 * MIB), GVM_OK);
}

static void request_that_makes_room_says_when(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options,
                                      .limit_bytes = 2 * MIB,
                                      .waits = count_waits,
                                      .waits_arg = &waits_begun};
    void *ptr = NULL;

    (void)state;
    remake(&options);
    waits_begun = waits_ended = 0;
    release(alloc(1 * MIB));
    assert_int_equal(waits_begun, 0);
    assert_int_equal(gvm_heap_alloc(heap, 8 * MIB, &ptr), GVM_OK); /* under the limit that is set then */
    assert_int_equal(waits_ended, 1);
    assert_int_equal(gvm_heap_alloc(heap, 8 * MIB, &ptr), GVM_E_NOSPACE);
    assert_true(waits_begun > 1 && waits_begun == waits_ended);
    check();
}

/* ---- streams */

static void stream_takes_again_what_it_freed_though_it_is_busy(void **state)
{
    static const size_t sizes[] = {3 * UNIT, 30 * MIB};
    CUstream stream = make_stream();

    (void)state;
    for (int i = 0; i < 2; i++) {
        void *ptr = alloc_on(stream, sizes[i]), *plain;

        hold_stream(stream);
        assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
        assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_E_FOREIGN);
        plain = alloc(sizes[i]);
        assert_ptr_not_equal(plain, ptr); /* others do not get it */
        assert_ptr_equal(alloc_on(stream, sizes[i]), ptr);
        let_go(stream);
        release(plain);
        check();
    }
    assert_int_equal(info().streams, 1);
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    assert_int_equal(info().streams, 0);
    check();
    gvmi_cu->cuStreamDestroy(stream);
}

static void memory_of_a_busy_stream_does_not_go_back(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE};
    CUstream stream = make_stream();
    void *ptr;

    (void)state;
    remake(&options);
    ptr = alloc_on(stream, 8 * MIB);
    hold_stream(stream);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    release(alloc(4 * MIB)); /* looks at the stream mark */
    assert_int_equal(info().committed_bytes, 8 * MIB);
    check();
    let_go(stream);
    release(alloc(4 * MIB));
    release(alloc(4 * MIB));
    assert_int_equal(info().committed_bytes, 0);
    check();
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
}

static void stream_with_work_is_not_ended_within_a_time(void **state)
{
    CUstream stream = make_stream();
    void *ptr = alloc_on(stream, 8 * MIB);

    (void)state;
    hold_stream(stream);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end_within(heap, stream, GVM_TRY), GVM_E_TIMEOUT);
    assert_int_equal(gvm_heap_stream_end_within(heap, stream, 1), GVM_E_TIMEOUT);
    assert_int_equal(gvm_heap_stream_end_within(heap, stream, -2), GVM_E_INVALID);
    assert_int_equal(info().streams, 1);
    assert_ptr_equal(alloc_on(stream, 8 * MIB), ptr); /* it is the stream's still */
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    check();
    let_go(stream);
    assert_int_equal(gvm_heap_stream_end_within(heap, stream, 60000), GVM_OK);
    assert_int_equal(info().streams, 0);
    assert_int_equal(gvm_heap_stream_end_within(heap, stream, GVM_TRY), GVM_OK); /* unknown */
    check();
    gvmi_cu->cuStreamDestroy(stream);
}

static void block_freed_on_another_stream_waits_for_it(void **state)
{
    CUstream own = make_stream(), other = make_stream();
    void *streams = alloc_on(own, 3 * UNIT), *plain = alloc(3 * MIB);

    (void)state;
    hold_stream(other);
    assert_int_equal(gvm_heap_free_async(heap, streams, other), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, plain, other), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, plain, other), GVM_E_FOREIGN);
    assert_int_equal(info().pending_bytes, 3 * UNIT + 3 * MIB);
    assert_int_equal(info().blocks, 0);
    assert_ptr_not_equal(alloc(3 * MIB), plain);
    check();
    let_go(other);
    assert_int_equal(gvm_heap_trim(heap, UINT64_MAX), GVM_OK);
    assert_int_equal(info().pending_bytes, 0);
    check();
    assert_int_equal(gvm_heap_stream_end(heap, own), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, other), GVM_OK);
    gvmi_cu->cuStreamDestroy(own);
    gvmi_cu->cuStreamDestroy(other);
}

static void shortage_waits_for_streams(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 16 * MIB};
    CUstream stream = make_stream();
    void *ptr;

    (void)state;
    remake(&options);
    ptr = alloc_on(stream, 12 * MIB);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    release(alloc(10 * MIB));
    check();
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
}

static int creates_left;

static CUresult create_few(CUmemGenericAllocationHandle *handle, size_t bytes,
                           const CUmemAllocationProp *prop, unsigned long long flags)
{
    return creates_left-- > 0 ? real->cuMemCreate(handle, bytes, prop, flags) : CUDA_ERROR_UNKNOWN;
}

/* A request over three chunks, of which the one in the middle has memory: two runs to commit. */
static void commit_that_fails_half_way_is_undone(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE};
    CUstream stream = make_stream();
    void *at[3], *ptr = NULL;

    (void)state;
    remake(&options);
    for (int i = 0; i < 3; i++)
        at[i] = alloc_on(stream, CHUNK);
    assert_int_equal(gvm_heap_free_async(heap, at[0], stream), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, at[2], stream), GVM_OK);
    assert_int_equal(gvmi_cu->cuStreamSynchronize(stream), CUDA_SUCCESS);
    release(alloc(CHUNK)); /* they go, and so does this */
    assert_int_equal(info().committed_bytes, CHUNK);
    hold_stream(stream);
    assert_int_equal(gvm_heap_free_async(heap, at[1], stream), GVM_OK);
    let_go(stream);
    assert_int_equal(info().idle_bytes, CHUNK);
    assert_int_equal(gvm_device_trim(device, 0), GVM_OK);
    table.cuMemCreate = create_few;
    creates_left = 1;
    assert_int_equal(gvm_heap_alloc_async(heap, 3 * CHUNK, NULL, stream, &ptr), GVM_E_DRIVER);
    table.cuMemCreate = real->cuMemCreate;
    assert_int_equal(info().committed_bytes, CHUNK);
    check();
    assert_ptr_equal(alloc_on(stream, 3 * CHUNK), at[0]);
    check();
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
}

static void default_streams_have_two_names(void **state)
{
    void *ptr = alloc_on(NULL, UNIT), *plain = alloc_on(CU_STREAM_PER_THREAD, UNIT);

    (void)state;
    assert_int_equal(gvm_heap_free_async(heap, ptr, CU_STREAM_LEGACY), GVM_OK);
    assert_ptr_equal(alloc_on(NULL, UNIT), ptr);
    assert_int_equal(info().streams, 1);
    assert_int_equal(gvm_heap_free_async(heap, plain, CU_STREAM_PER_THREAD), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, NULL), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, (gvm_stream)(uintptr_t)0x77), GVM_OK);
    release(ptr);
    check();
}

/* A GPU's driver need not know that there is no such stream. */
static void capture_of_no_stream_is_refused(void **state)
{
    uint64_t id = 5;

    (void)state;
    if (!on_software_gpu())
        skip();
    fails_with(gvm_device_get_capture(device, (gvm_stream)(uintptr_t)0x77, &id), GVM_E_INVALID,
               "no stream");
    assert_int_equal(id, 5);
}

/* ---- tags and lists */

static void usage_sums_by_tag(void **state)
{
    char same[] = "weights";
    gvm_heap_usage usages[3];
    gvm_heap_block blocks[2];
    void *ptr;
    size_t count;

    (void)state;
    assert_int_equal(gvm_heap_alloc_tagged(heap, 100, "weights", &ptr), GVM_OK);
    assert_int_equal(gvm_heap_alloc_tagged(heap, 5 * MIB, "cache", &ptr), GVM_OK);
    assert_int_equal(gvm_heap_alloc_tagged(heap, 200, same, &ptr), GVM_OK);
    alloc(7);
    assert_int_equal(gvm_heap_get_usage(heap, 3, sizeof(gvm_heap_usage), usages, &count), GVM_OK);
    assert_int_equal(count, 3);
    assert_string_equal(usages[0].tag, "cache");
    assert_string_equal(usages[1].tag, "weights");
    assert_int_equal(usages[1].blocks, 2);
    assert_int_equal(usages[1].size_bytes, 300);
    assert_string_equal(usages[2].tag, "");
    assert_int_equal(gvm_heap_list(heap, 2, sizeof(gvm_heap_block), blocks, &count), GVM_OK);
    assert_int_equal(count, 4);
    assert_true(blocks[0].address < blocks[1].address);
    release(ptr);
    assert_int_equal(gvm_heap_get_usage(heap, 0, sizeof(gvm_heap_usage), NULL, &count), GVM_OK);
    assert_int_equal(count, 3);
    assert_int_equal(gvm_heap_reset(heap), GVM_OK);
    assert_int_equal(gvm_heap_list(heap, 0, sizeof(gvm_heap_block), NULL, &count), GVM_OK);
    assert_int_equal(count, 0);
    assert_int_equal(info().requested_bytes, 0);
    check();
}

/* A program that was compiled with a newer header, whose records are longer. */
static void lists_keep_to_the_stride(void **state)
{
    struct {
        gvm_heap_block block;
        uint64_t later;
    } blocks[3];
    struct {
        gvm_heap_usage usage;
        uint64_t later;
    } usages[2];
    size_t count;
    void *a = alloc(100), *b;

    (void)state;
    assert_int_equal(gvm_heap_alloc_tagged(heap, 300, "cache", &b), GVM_OK);
    memset(blocks, 9, sizeof blocks);
    memset(usages, 9, sizeof usages);
    assert_int_equal(gvm_heap_list(heap, 3, sizeof blocks[0], &blocks[0].block, &count), GVM_OK);
    assert_int_equal(count, 2);
    for (int i = 0; i < 2; i++)
        assert_true((blocks[i].block.address == a || blocks[i].block.address == b) &&
                    blocks[i].later == 0);
    assert_true(blocks[2].later != 0); /* not written */
    assert_int_equal(gvm_heap_get_usage(heap, 2, sizeof usages[0], &usages[0].usage, &count), GVM_OK);
    assert_int_equal(count, 2);
    assert_string_equal(usages[0].usage.tag, "cache");
    assert_true(usages[0].later == 0 && usages[1].usage.size_bytes == 100 && usages[1].later == 0);
    assert_int_equal(gvm_heap_list(heap, 3, sizeof(gvm_heap_block) - 8, &blocks[0].block, &count),
                     GVM_E_INVALID);
    assert_int_equal(gvm_heap_get_usage(heap, 2, 8, &usages[0].usage, &count), GVM_E_INVALID);
}

/* ---- sharing */

static void located_block_is_found_in_an_import(void **state)
{
    const uint64_t pattern = 0x1122334455667788;
    gvm_buffer *buffer, *imported;
    gvm_share *share;
    uint64_t offset, word = 0;
    void *first = alloc(3 * MIB), *ptr = alloc(50000);

    (void)state;
    assert_int_equal(gvm_heap_locate(heap, first, &buffer, &offset), GVM_OK);
    assert_int_equal(gvm_heap_locate(heap, ptr, &buffer, &offset), GVM_OK);
    assert_int_equal(gvmi_address(gvm_buffer_address(buffer)) + offset, (uintptr_t)ptr);
    assert_int_equal(gvm_buffer_copy_in(buffer, offset, &pattern, sizeof pattern), GVM_OK);
    assert_int_equal(gvm_share_export(buffer, offset, 50000, &share), GVM_OK);
    assert_int_equal(gvm_share_import(device, share, NULL, &imported), GVM_OK);
    /* The span begins with the chunk that the block is in. */
    assert_int_equal(gvm_buffer_copy_out(&word, imported, offset % CHUNK, sizeof word), GVM_OK);
    assert_int_equal(word, pattern);
    gvm_buffer_destroy(imported);
    gvm_share_destroy(share);
    assert_int_equal(gvm_heap_locate(heap, (char *)ptr + UNIT, &buffer, &offset), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_locate(heap, ptr, NULL, &offset), GVM_E_INVALID);
}

/* ---- kinds */

static void host_heap_gives_pinned_memory(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .kind = GVM_HEAP_HOST, .keep_bytes = GVM_BYTES_NONE};
    gvm_buffer *buffer;
    uint64_t offset, seen = 0;
    char *at, *large;

    (void)state;
    remake(&options);
    at = alloc(3 * MIB);
    large = alloc(700 * MIB);
    memset(at, 7, 3 * MIB);
    large[700 * MIB - 1] = 1;
    assert_int_equal(gvmi_device_enter(device), GVM_OK);
    assert_int_equal(gvmi_cu->cuMemcpyDtoH(&seen, (uintptr_t)at + 3 * MIB - 8, 8), CUDA_SUCCESS);
    /* each block as one range */
    assert_int_equal(gvmi_cu->cuMemsetD8((uintptr_t)large, 5, 700 * MIB), CUDA_SUCCESS);
    assert_int_equal(gvmi_cu->cuMemcpyDtoD((uintptr_t)large, (uintptr_t)at, 3 * MIB), CUDA_SUCCESS);
    assert_int_equal(gvmi_cu->cuCtxSynchronize(), CUDA_SUCCESS);
    gvmi_device_leave();
    assert_int_equal(seen, 0x0707070707070707);
    assert_true(large[3 * MIB - 1] == 7 && large[3 * MIB] == 5 && large[700 * MIB - 1] == 5);
    assert_int_equal(gvm_heap_locate(heap, at, &buffer, &offset), GVM_E_NOTSUP);
    check();
    release(large);
    release(at);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, 0);
    check();
    at = alloc(2 * MIB);
    assert_int_equal(at[100], 0); /* new pages */
}

static void managed_heap_stays_within_free_memory(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .kind = GVM_HEAP_MANAGED, .keep_bytes = GVM_BYTES_NONE};
    gvm_device_info device_info = {.struct_size = sizeof device_info};
    void *ptr = NULL;
    char *at;

    (void)state;
    remake(&options);
    at = alloc(3 * MIB);
    at[3 * MIB - 1] = 9;
    check();
    assert_int_equal(info().committed_bytes, 64 * MIB);
    assert_int_equal(gvm_device_get_info(device, &device_info), GVM_OK);
    fails_with(gvm_heap_alloc(heap, device_info.free_bytes - 4 * MIB, &ptr), GVM_E_NOSPACE, "managed");
    check();
    release(at);
    release(alloc(40 * MIB)); /* alone in its segment */
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, 0);
    check();
}

static int be_without_vmm(void *arg)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 200 * MIB};
    gvm_heap_info i = {.struct_size = sizeof i};
    void *ptr[3];

    (void)arg;
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_heap_create(device, &options, &heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 100, &ptr[0]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 30 * MIB, &ptr[1]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 100 * MIB, &ptr[2]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_get_info(heap, &i) == GVM_OK && i.committed_bytes == 164 * MIB);
    CHILD_EXPECT(gvm_heap_alloc(heap, 100 * MIB, &ptr[2]) == GVM_E_NOSPACE);
    CHILD_EXPECT(gvm_heap_free(heap, ptr[2]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_alloc(heap, 110 * MIB, &ptr[2]) == GVM_OK);
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    CHILD_EXPECT(gvm_heap_reset(heap) == GVM_OK && gvm_heap_trim(heap, 0) == GVM_OK);
    CHILD_EXPECT(gvm_heap_get_info(heap, &i) == GVM_OK && i.committed_bytes == 0 && i.segments == 0);
    CHILD_EXPECT(gvm_heap_check(heap) == GVM_OK);
    gvm_heap_destroy(heap);
    gvm_device_close(device);
    CHILD_EXPECT(gvmi_registry_count(GVMI_KIND_BUFFER) == 0);
    return 0;
}

CHILD_TEST(device_without_vmm_works_too, be_without_vmm)

/* ---- many segments, threads */

static void many_segments_are_found_again(void **state)
{
    enum { COUNT = 40 }; /* of more than half a segment and of less: the table grows */
    void *at[2 * COUNT];

    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_BYTES);
    for (int i = 0; i < COUNT; i++) {
        at[2 * i] = alloc(513 * MIB);
        assert_int_equal(gvm_heap_resize(heap, at[2 * i], 1), GVM_OK); /* addresses alone */
        at[2 * i + 1] = alloc(300 * MIB);
        assert_int_equal(gvm_heap_resize(heap, at[2 * i + 1], 2 * MIB), GVM_OK);
        assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    }
    check();
    for (int i = 0; i < 2 * COUNT; i += 3)
        release(at[i]);
    check();
    for (int i = 0; i < 2 * COUNT; i++)
        assert_int_equal(gvm_heap_free(heap, at[i]), i % 3 == 0 ? GVM_E_FOREIGN : GVM_OK);
    check();
}

static void *fill_shelf(void *arg)
{
    void *at[50];

    (void)arg;
    for (int i = 0; i < 50; i++)
        if (gvm_heap_alloc(heap, 100000, &at[i]) != GVM_OK)
            return NULL;
    for (int i = 0; i < 50; i++)
        if (gvm_heap_free(heap, at[i]) != GVM_OK)
            return NULL;
    return heap;
}

static void thread_that_ends_gives_its_shelf_back(void **state)
{
    pthread_t thread;
    void *good;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, fill_shelf, NULL), 0);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_ptr_equal(good, heap);
    assert_int_equal(info().shelf_bytes, 0);
    check();
    fill_shelf(NULL);
    assert_true(info().shelf_bytes > 0 && info().shelf_bytes <= 8 * MIB);
    check();
}

static pthread_barrier_t meeting;

static void *outlive_heap(void *arg)
{
    gvm_heap *which = arg;
    void *ptr;
    bool good = gvm_heap_alloc(which, UNIT, &ptr) == GVM_OK && gvm_heap_free(which, ptr) == GVM_OK;

    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting); /* the heap is gone */
    good = good && gvm_heap_alloc(which, UNIT, &ptr) == GVM_E_FOREIGN &&
           gvm_heap_free(which, ptr) == GVM_E_FOREIGN;
    return good ? which : NULL;
}

static void heap_may_end_before_the_threads_that_used_it(void **state)
{
    gvm_heap *other;
    pthread_t thread;
    void *good;

    (void)state;
    assert_int_equal(gvm_heap_create(device, NULL, &other), GVM_OK);
    pthread_barrier_init(&meeting, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, outlive_heap, other), 0);
    pthread_barrier_wait(&meeting);
    gvm_heap_destroy(other);
    pthread_barrier_wait(&meeting);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_ptr_equal(good, other);
    pthread_barrier_destroy(&meeting);
}

static void heap_keeps_its_device(void **state)
{
    gvm_device *same;

    (void)state;
    gvm_device_close(device);
    release(alloc(3 * MIB)); /* a new segment */
    check();
    assert_int_equal(gvm_device_open(0, &same), GVM_OK);
    assert_ptr_equal(same, device);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_without_vmm_works_too), /* first: a driver is started once */
        TEST(alloc_gives_blocks_that_do_not_overlap),
        TEST(memory_of_a_block_can_be_used),
        TEST(memory_is_under_what_was_asked_for_alone),
        TEST(freed_blocks_are_given_again),
        TEST(free_of_what_is_no_block_is_refused),
        TEST(free_of_another_heaps_block_is_refused),
        TEST(nonsense_is_refused),
        TEST(resize_into_free_addresses_succeeds),
        TEST(resize_into_a_neighbour_is_refused),
        TEST(resize_of_a_large_block_stays_within_it),
        TEST(freed_memory_beyond_what_is_kept_goes_back),
        TEST(limit_is_heeded),
        TEST(limit_lowered_takes_idle_memory_back),
        TEST(limit_of_no_bytes_is_no_memory),
        TEST(limit_lowered_leaves_idle_memory_unused),
        TEST(device_that_is_full_is_said_so),
        TEST(callback_makes_room),
        TEST(callback_that_never_helps_is_left_alone_in_the_end),
        TEST(request_that_makes_room_says_when),
        TEST(stream_takes_again_what_it_freed_though_it_is_busy),
        TEST(memory_of_a_busy_stream_does_not_go_back),
        TEST(stream_with_work_is_not_ended_within_a_time),
        TEST(block_freed_on_another_stream_waits_for_it),
        TEST(shortage_waits_for_streams),
        TEST(lists_keep_to_the_stride),
        TEST(commit_that_fails_half_way_is_undone),
        TEST(default_streams_have_two_names),
        TEST(capture_of_no_stream_is_refused),
        TEST(usage_sums_by_tag),
        TEST(located_block_is_found_in_an_import),
        TEST(host_heap_gives_pinned_memory),
        TEST(managed_heap_stays_within_free_memory),
        TEST(many_segments_are_found_again),
        TEST(thread_that_ends_gives_its_shelf_back),
        TEST(heap_may_end_before_the_threads_that_used_it),
        TEST(heap_keeps_its_device),
    };

    fixture_machine_default("devices=1,memory=4GiB,sms=2");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
