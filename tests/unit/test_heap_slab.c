/* heap/slab.c and alignments: small blocks, call by call, on the software GPU.
 *
 * Random operations are in tests/prop/heap_ops.c; failing drivers in tests/fault.
 */
#include "tests/lib/fixture.h"
#include "tests/unit/heap_fixture.h"

#include <stdlib.h>

#define CELL_MAX (14 * KIB)
#define SLAB (64 * KIB) /* of cells of up to 4 KiB */

static void *alloc_aligned(size_t bytes, size_t alignment)
{
    void *ptr = NULL;

    assert_int_equal(gvm_heap_alloc_aligned(heap, bytes, alignment, NULL, &ptr), GVM_OK);
    assert_int_equal((uintptr_t)ptr % alignment, 0);
    return ptr;
}

static void is_foreign(const void *ptr)
{
    size_t size;

    assert_int_equal(gvm_heap_free(heap, (void *)(uintptr_t)ptr), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_resize(heap, (void *)(uintptr_t)ptr, 1), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_get_size(heap, ptr, &size), GVM_E_FOREIGN);
}

/* ---- sizes */

/* Each lies in a place of its own, and what rounding takes is bounded. */
static void cell_of_every_size_loses_a_fifth_at_most(void **state)
{
    enum { LIVE = 400 };
    static char *at[LIVE];
    static size_t sizes[LIVE];
    size_t size;

    (void)state;
    for (size_t bytes = 1; bytes <= UNIT + 1; bytes++) {
        const size_t i = bytes % LIVE;
        uint64_t before, taken;

        if (at[i] != NULL)
            release(at[i]);
        before = info().block_bytes;
        at[i] = alloc(sizes[i] = bytes);
        taken = info().block_bytes - before;
        assert_int_equal((uintptr_t)at[i] % (bytes <= CELL_MAX ? 256 : UNIT), 0);
        assert_true(taken >= bytes);
        if (bytes <= CELL_MAX)
            assert_true(taken - bytes <= 255 || 5 * (taken - bytes) <= taken);
        else
            assert_int_equal(taken, bytes <= UNIT ? UNIT : 2 * UNIT);
        assert_int_equal(gvm_heap_get_size(heap, at[i], &size), GVM_OK);
        assert_int_equal(size, bytes);
        for (size_t j = 0; j < LIVE; j++)
            assert_true(j == i || at[j] == NULL || at[j] + sizes[j] <= at[i] || at[i] + bytes <= at[j]);
        if (bytes % 1000 == 0)
            check();
    }
    for (size_t i = 0; i < LIVE; i++)
        release(at[i]);
    check();
    assert_int_equal(info().blocks, 0);
    assert_int_equal(info().requested_bytes, 0);
}

static void hundred_thousand_cells_take_little_more_than_their_size(void **state)
{
    enum { COUNT = 100000, BYTES = 512 };
    static void *at[COUNT];

    (void)state;
    for (int i = 0; i < COUNT; i++)
        at[i] = alloc(BYTES);
    assert_int_equal(info().blocks, COUNT);
    assert_int_equal(info().block_bytes, COUNT * BYTES);
    assert_true(10 * info().committed_bytes <= 13ull * COUNT * BYTES);
    check();
    for (int i = 0; i < COUNT; i++)
        release(at[i]);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().slabs, 0);
    assert_int_equal(info().committed_bytes, 0);
    check();
}

static void memory_of_a_cell_is_its_own(void **state)
{
    enum { COUNT = 300, BYTES = 700 };
    uint64_t at[COUNT];
    uint8_t got[BYTES];

    (void)state;
    for (int i = 0; i < COUNT; i++)
        at[i] = (uintptr_t)alloc(BYTES);
    assert_int_equal(gvmi_device_enter(device), GVM_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(gvmi_cu->cuMemsetD8(at[i], (unsigned char)i, BYTES), CUDA_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(gvmi_cu->cuMemcpyDtoH(got, at[i], BYTES), CUDA_SUCCESS);
        for (int j = 0; j < BYTES; j++)
            assert_int_equal(got[j], (uint8_t)i);
    }
    gvmi_device_leave();
}

/* ---- statistics */

static void statistics_count_cells_as_blocks(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .shelf_bytes = GVM_BYTES_NONE};
    void *small, *large;

    (void)state;
    remake(&options);
    small = alloc(500);
    assert_int_equal(info().slabs, 1);
    assert_int_equal(info().slab_bytes, SLAB);
    assert_int_equal(info().slab_free_bytes, SLAB - 512);
    assert_int_equal(info().block_bytes, 512);
    assert_int_equal(info().requested_bytes, 500);
    assert_int_equal(info().orders[0].blocks, 1);
    large = alloc(9 * KIB); /* 12 cells of 10 KiB, and 8 KiB that are in none */
    assert_int_equal(info().slab_bytes, 3 * SLAB);
    assert_int_equal(info().slab_free_bytes, 3 * SLAB - 512 - 10 * KIB);
    assert_int_equal(info().orders[0].blocks, 2);
    check();
    release(small);
    assert_int_equal(info().slab_bytes, 2 * SLAB); /* without a cell in use it is none any more */
    release(large);
    assert_int_equal(info().slabs, 0);
    assert_int_equal(info().slab_free_bytes, 0);
    check();
}

static void slab_lasts_while_cells_live(void **state)
{
    enum { COUNT = 1000 };
    static void *at[COUNT];

    (void)state;
    for (int i = 0; i < COUNT; i++)
        at[i] = alloc(3000);
    for (int i = 0; i < COUNT; i++)
        if (i != COUNT / 2)
            release(at[i]);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().slabs, 1);
    assert_int_equal(info().committed_bytes, CHUNK);
    assert_int_equal(info().shelf_bytes, 0);
    check();
    release(at[COUNT / 2]);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(info().committed_bytes, 0);
    check();
}

static void lists_hold_cells_by_address(void **state)
{
    enum { COUNT = 100 };
    gvm_heap_block blocks[COUNT];
    gvm_heap_usage usage;
    size_t count;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        alloc(i % 3 == 0 ? 300 : i % 3 == 1 ? 5000 : 50000);
    assert_int_equal(gvm_heap_list(heap, COUNT, sizeof blocks[0], blocks, &count), GVM_OK);
    assert_int_equal(count, COUNT);
    for (int i = 1; i < COUNT; i++)
        assert_true((uintptr_t)blocks[i - 1].address + blocks[i - 1].size_bytes <=
                    (uintptr_t)blocks[i].address);
    assert_int_equal(gvm_heap_get_usage(heap, 1, sizeof usage, &usage, &count), GVM_OK);
    assert_int_equal(count, 1);
    assert_int_equal(usage.blocks, COUNT);
    assert_int_equal(usage.size_bytes, info().requested_bytes);
    assert_int_equal(gvm_heap_reset(heap), GVM_OK);
    assert_int_equal(info().blocks, 0);
    assert_int_equal(info().slabs, 0);
    check();
    alloc(300);
    check();
}

/* ---- what is refused */

static void free_of_what_is_no_cell_is_refused(void **state)
{
    char *first = alloc(512), *other;
    gvm_heap_info before = info(), after;
    gvm_heap *second;
    void *ptr;

    (void)state;
    for (int i = -256; i < 65536 + 256; i++) /* all but the cell itself: inside of it, free ones, the rest */
        if (i != 0 && (i % 97 == 0 || i % 256 == 0))
            assert_int_equal(gvm_heap_free(heap, first + i), GVM_E_FOREIGN);
    for (int i = 1; i < 512; i++)
        is_foreign(first + i);
    after = info();
    assert_memory_equal(&before, &after, sizeof after);
    assert_int_equal(gvm_heap_create(device, NULL, &second), GVM_OK);
    assert_int_equal(gvm_heap_alloc(second, 512, &ptr), GVM_OK);
    is_foreign(ptr);
    gvm_heap_destroy(second);
    other = alloc(512);
    release(first);
    is_foreign(first);
    release(other);
    is_foreign(other);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK); /* the slab is no more */
    is_foreign(first);
    is_foreign(other);
    check();
}

/* Of a slab that is closed, and whose struct is another slab's now. */
static void stale_pointer_to_a_cell_is_refused(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .shelf_bytes = GVM_BYTES_NONE};
    char *hole, *stale, *live;

    (void)state;
    remake(&options);
    hole = alloc(512);
    stale = hole + 4 * 512;
    release(hole);
    hole = alloc(SLAB); /* where the slab was */
    live = alloc(512);
    assert_ptr_not_equal(live, hole);
    is_foreign(stale);
    check();
    release(live);
    is_foreign(live);
    release(hole);
    check();
}

static void cells_end_with_an_error_where_memory_does(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 2 * CHUNK};
    enum { COUNT = 2 * CHUNK / 512 };
    static void *at[COUNT + 1];
    void *ptr = NULL;
    int count = 0;

    (void)state;
    remake(&options);
    while (count <= COUNT && gvm_heap_alloc(heap, 512, &at[count]) == GVM_OK)
        count++;
    assert_int_equal(count, COUNT); /* nothing is lost */
    fails_with(gvm_heap_alloc(heap, 1, &ptr), GVM_E_NOSPACE, "limit of 4 MiB");
    assert_null(ptr);
    check();
    release(at[7]);
    assert_ptr_equal(alloc(400), at[7]);
    for (int i = 0; i < COUNT; i++)
        release(at[i]);
    release(alloc(3 * MIB)); /* what cells had serves all */
    check();
}

/* Every second unit is free, so that there is no room for a slab. */
static void cells_are_units_where_there_is_no_room_for_a_slab(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .limit_bytes = 2 * CHUNK};
    enum { COUNT = 2 * CHUNK / (16 << 10) };
    void *at[COUNT], *ptr = NULL;

    (void)state;
    remake(&options);
    for (int i = 0; i < COUNT; i++)
        at[i] = alloc(16 << 10);
    for (int i = 0; i < COUNT; i += 2)
        release(at[i]);
    for (int i = 0; i < COUNT; i += 2)
        at[i] = alloc(300);
    check();
    fails_with(gvm_heap_alloc(heap, 300, &ptr), GVM_E_NOSPACE, "limit of 4 MiB");
    for (int i = 0; i < COUNT; i++)
        release(at[i]);
    check();
    release(alloc(3 * MIB));
}

static void cell_grows_within_what_it_takes(void **state)
{
    char *at = alloc(2100); /* takes 2560 */
    size_t size;

    (void)state;
    assert_int_equal(gvm_heap_resize(heap, at, 2560), GVM_OK);
    fails_with(gvm_heap_resize(heap, at, 2561), GVM_E_ADDRESS, "2560 bytes");
    assert_int_equal(gvm_heap_get_size(heap, at, &size), GVM_OK);
    assert_int_equal(size, 2560);
    assert_int_equal(gvm_heap_resize(heap, at, 1), GVM_OK);
    assert_int_equal(info().requested_bytes, 1);
    assert_int_equal(info().block_bytes, 2560);
    check();
    release(at);
    check();
}

/* ---- streams */

static void cell_freed_on_a_busy_stream_is_that_streams_alone(void **state)
{
    CUstream stream = make_stream(), other = make_stream();
    char *own = alloc_on(stream, 512), *plain = alloc(512), *others = alloc_on(other, 512);

    (void)state;
    hold_stream(stream);
    assert_int_equal(gvm_heap_free_async(heap, own, stream), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, own, stream), GVM_E_FOREIGN);
    for (int i = 0; i < 1000; i++) { /* of its slab nobody else gets a cell */
        const uint64_t slab = (uintptr_t)own / SLAB;

        assert_int_not_equal((uintptr_t)alloc(512) / SLAB, slab);
        assert_int_not_equal((uintptr_t)alloc_on(other, 512) / SLAB, slab);
    }
    assert_ptr_equal(alloc_on(stream, 512), own);
    assert_int_equal(gvm_heap_free_async(heap, plain, stream), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, others, stream), GVM_OK);
    assert_int_equal(gvm_heap_free_async(heap, others, stream), GVM_E_FOREIGN);
    assert_int_equal(info().pending_bytes, 1024);
    assert_ptr_not_equal(alloc(512), plain);
    check();
    let_go(stream);
    assert_int_equal(gvm_heap_trim(heap, UINT64_MAX), GVM_OK);
    assert_int_equal(info().pending_bytes, 0);
    check();
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, other), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
    gvmi_cu->cuStreamDestroy(other);
}

/* The memory of a slab that a stream's cells were in stays until the stream has passed it. */
static void memory_of_cells_of_a_busy_stream_does_not_go_back(void **state)
{
    const gvm_heap_options options = {
        .struct_size = sizeof options, .keep_bytes = GVM_BYTES_NONE, .shelf_bytes = GVM_BYTES_NONE};
    CUstream stream = make_stream();
    void *ptr;

    (void)state;
    remake(&options);
    ptr = alloc_on(stream, 512);
    hold_stream(stream);
    assert_int_equal(gvm_heap_free_async(heap, ptr, stream), GVM_OK);
    release(alloc(4 * MIB)); /* looks at the stream mark */
    assert_int_equal(info().slabs, 0);
    assert_int_equal(info().committed_bytes, CHUNK);
    let_go(stream);
    release(alloc(4 * MIB));
    release(alloc(4 * MIB));
    assert_int_equal(info().committed_bytes, 0);
    check();
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
}

static void slabs_of_a_stream_that_ended_serve_all(void **state)
{
    enum { COUNT = SLAB / 512 };
    CUstream stream = make_stream();
    char *at[COUNT];
    bool found = false;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        at[i] = alloc_on(stream, 512);
    assert_int_equal(gvm_heap_free_async(heap, at[9], stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    check();
    for (int i = 0; i < 2 * COUNT && !found; i++)
        found = alloc(512) == at[9];
    assert_true(found);
    for (int i = 0; i < COUNT; i++)
        release(at[i]);
    check();
    gvmi_cu->cuStreamDestroy(stream);
}

/* ---- alignment */

static void blocks_begin_at_the_multiple_asked_for(void **state)
{
    static const size_t sizes[] = {1,       256,      700,       2049,     8192,   8193,
                                   14336,   14337,    UNIT + 1,  5 * UNIT, 300000, 1000000,
                                   3 * MIB, 40 * MIB, 130 * MIB, 600 * MIB};
    static const gvm_heap_kind kinds[] = {GVM_HEAP_DEVICE, GVM_HEAP_HOST, GVM_HEAP_MANAGED};
    CUstream stream = make_stream();

    (void)state;
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        const gvm_heap_options options = {.struct_size = sizeof options, .kind = kinds[kind]};

        remake(&options);
        alloc(UNIT); /* so that what follows is not aligned by itself */
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t alignment = 1; alignment <= GVM_HEAP_ALIGNMENT_MAX; alignment *= 2) {
                void *plain = alloc_aligned(sizes[i], alignment), *ordered;

                assert_int_equal(gvm_heap_alloc_aligned_async(heap, sizes[i] % (51 * MIB),
                                                              alignment, "tag", stream, &ordered),
                                 GVM_OK);
                assert_int_equal((uintptr_t)ordered % alignment, 0);
                release(plain);
                release(ordered);
                check();
            }
        check();
        assert_int_equal(info().blocks, 1);
        assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    }
    gvmi_cu->cuStreamDestroy(stream);
}

static void alignment_takes_no_more_memory(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .shelf_bytes = GVM_BYTES_NONE};
    char *first, *second, *between;

    (void)state;
    remake(&options);
    first = alloc_aligned(UNIT, MIB);
    second = alloc_aligned(UNIT, MIB);
    assert_ptr_equal(second, first + MIB);
    assert_int_equal(info().block_bytes, 2 * UNIT);
    between = alloc(MIB - UNIT); /* what lies between is free */
    assert_ptr_equal(between, first + UNIT);
    assert_int_equal(info().committed_bytes, CHUNK);
    check();
    alloc_aligned(300, 4096);
    assert_int_equal(info().block_bytes, MIB + UNIT + 4096);
    alloc_aligned(8193, 8192);
    assert_int_equal(info().block_bytes, MIB + 2 * UNIT + 4096);
    check();
}

static void alignment_that_is_none_is_refused(void **state)
{
    static const size_t wrong[] = {0, 3, 257, 384, UNIT + 1, 3 * MIB, 4 * MIB, SIZE_MAX};
    void *ptr = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        fails_with(gvm_heap_alloc_aligned(heap, 100, wrong[i], NULL, &ptr), GVM_E_INVALID, "alignment");
        fails_with(gvm_heap_alloc_aligned_async(heap, 100, wrong[i], NULL, NULL, &ptr),
                   GVM_E_INVALID, "alignment");
    }
    assert_int_equal(gvm_heap_alloc_aligned(heap, 0, 256, NULL, &ptr), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc_aligned(heap, SIZE_MAX, MIB, NULL, &ptr), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc_aligned(heap, 100, 256, NULL, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_alloc_aligned(NULL, 100, MIB, NULL, &ptr), GVM_E_FOREIGN);
    assert_null(ptr);
    assert_int_equal(info().blocks, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(cell_of_every_size_loses_a_fifth_at_most),
        TEST(hundred_thousand_cells_take_little_more_than_their_size),
        TEST(memory_of_a_cell_is_its_own),
        TEST(statistics_count_cells_as_blocks),
        TEST(slab_lasts_while_cells_live),
        TEST(lists_hold_cells_by_address),
        TEST(free_of_what_is_no_cell_is_refused),
        TEST(stale_pointer_to_a_cell_is_refused),
        TEST(cells_end_with_an_error_where_memory_does),
        TEST(cells_are_units_where_there_is_no_room_for_a_slab),
        TEST(cell_grows_within_what_it_takes),
        TEST(cell_freed_on_a_busy_stream_is_that_streams_alone),
        TEST(memory_of_cells_of_a_busy_stream_does_not_go_back),
        TEST(slabs_of_a_stream_that_ended_serve_all),
        TEST(blocks_begin_at_the_multiple_asked_for),
        TEST(alignment_takes_no_more_memory),
        TEST(alignment_that_is_none_is_refused),
    };

    fixture_machine_default("devices=1,memory=4GiB,sms=2");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
