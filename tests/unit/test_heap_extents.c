/* heap/extent.c and what is refused by heap/snapshot.c, on the software GPU. What a snapshot holds: heap_snapshot.py. */
#include "tests/lib/fixture.h"
#include "tests/unit/heap_fixture.h"

#include <stdlib.h>

enum { EXTENTS_MAX = 8000 };
static gvm_heap_extent extents[EXTENTS_MAX];

static size_t list_extents(void)
{
    size_t count;

    assert_int_equal(gvm_heap_list_extents(heap, EXTENTS_MAX, sizeof extents[0], extents, &count),
                     GVM_OK);
    assert_true(count <= EXTENTS_MAX);
    return count;
}

/* Extents follow each other within a range, and lie apart from the one before where another begins. */
static void check_order(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const gvm_heap_extent *e = &extents[i], *before = e - 1;
        const uintptr_t at = (uintptr_t)e->address;

        assert_true(e->len_bytes > 0 && e->size_bytes <= e->len_bytes);
        if (i == 0 || e->range != before->range)
            assert_ptr_equal(e->address, e->range);
        else
            assert_int_equal(at, (uintptr_t)before->address + before->len_bytes);
        assert_true(i == 0 || at >= (uintptr_t)before->address + before->len_bytes);
    }
}

static uint64_t sum_of(size_t count, gvm_heap_use use)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++)
        bytes += extents[i].use == use ? extents[i].len_bytes : 0;
    return bytes;
}

static void extents_are_all_of_the_memory(void **state)
{
    enum { COUNT = 2000 };
    static gvm_heap_block blocks[COUNT];
    CUstream stream = make_stream(), other = make_stream();
    size_t count, live_count, live = 0;
    void *ptr;

    (void)state;
    hold_stream(other);
    for (int i = 0; i < COUNT; i++) {
        const size_t bytes = 1 + (size_t)i * 37 % 40000;

        assert_int_equal(i % 2 == 0 ? gvm_heap_alloc_tagged(heap, bytes, "plain", &ptr)
                                    : gvm_heap_alloc_async(heap, bytes, "stream", stream, &ptr),
                         GVM_OK);
        if (i % 3 == 0)
            release(ptr);
        else if (i % 7 == 0)
            assert_int_equal(gvm_heap_free_async(heap, ptr, other), GVM_OK);
    }
    release(alloc(40 * MIB)); /* idle memory, and addresses that have none beside it */
    ptr = alloc(600 * MIB);
    count = list_extents();
    check_order(count);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_LIVE), info().block_bytes);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_SHELVED), info().shelf_bytes);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_PENDING), info().pending_bytes);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_FREE), info().committed_bytes - info().block_bytes -
                                                           info().shelf_bytes - info().pending_bytes);
    assert_true(info().shelf_bytes > 0 && info().pending_bytes > 0 && info().idle_bytes > 0);
    assert_int_equal(gvm_heap_list(heap, COUNT, sizeof blocks[0], blocks, &live_count), GVM_OK);
    for (size_t i = 0; i < count; i++) {
        const gvm_heap_extent *e = &extents[i];

        if (e->use != GVM_HEAP_USE_LIVE) {
            assert_string_equal(e->tag, "");
            assert_int_equal(e->size_bytes > 0, e->use == GVM_HEAP_USE_PENDING);
            continue;
        }
        assert_ptr_equal(e->address, blocks[live].address);
        assert_int_equal(e->size_bytes, blocks[live].size_bytes);
        assert_string_equal(e->tag, blocks[live].tag);
        assert_int_equal(e->ordered, strcmp(e->tag, "stream") == 0);
        assert_ptr_equal(e->stream, e->ordered ? stream : NULL);
        live++;
    }
    assert_int_equal(live, live_count);
    check();
    let_go(other);
    assert_int_equal(gvm_heap_reset(heap), GVM_OK);
    assert_int_equal(gvm_heap_trim(heap, 0), GVM_OK);
    assert_int_equal(list_extents(), 0);
    assert_int_equal(gvm_heap_stream_end(heap, stream), GVM_OK);
    assert_int_equal(gvm_heap_stream_end(heap, other), GVM_OK);
    gvmi_cu->cuStreamDestroy(stream);
    gvmi_cu->cuStreamDestroy(other);
}

/* Memory of other kinds comes with its segment. */
static void extents_of_pinned_memory_are_listed(void **state)
{
    const gvm_heap_options options = {.struct_size = sizeof options, .kind = GVM_HEAP_HOST};
    void *small, *large;
    size_t count;

    (void)state;
    remake(&options);
    small = alloc(300);
    large = alloc(9 * MIB);
    count = list_extents();
    check_order(count);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_LIVE), 512 + 9 * MIB);
    assert_int_equal(sum_of(count, GVM_HEAP_USE_LIVE) + sum_of(count, GVM_HEAP_USE_SHELVED) +
                         sum_of(count, GVM_HEAP_USE_FREE),
                     info().committed_bytes);
    release(small);
    release(large);
}

static void list_of_extents_keeps_to_its_room(void **state)
{
    union {
        gvm_heap_extent extent;
        char bytes[sizeof(gvm_heap_extent) + 8];
    } wide[2];
    size_t count = 99;

    (void)state;
    alloc(100);
    memset(wide, 0x55, sizeof wide);
    assert_int_equal(gvm_heap_list_extents(heap, 1, sizeof wide[0], &wide[0].extent, &count), GVM_OK);
    assert_true(count > 1);
    assert_int_equal(wide[0].bytes[sizeof wide[0] - 1], 0);
    assert_int_equal(wide[1].bytes[0], 0x55);
    count = 99;
    assert_int_equal(gvm_heap_list_extents(heap, 1, 8, extents, &count), GVM_E_INVALID);
    assert_int_equal(gvm_heap_list_extents(heap, 1, sizeof extents[0], NULL, &count), GVM_E_INVALID);
    assert_int_equal(gvm_heap_list_extents(heap, 0, sizeof extents[0], NULL, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_list_extents(NULL, 0, sizeof extents[0], NULL, &count), GVM_E_FOREIGN);
    assert_int_equal(count, 99);
}

static void snapshot_that_cannot_be_written_is_said_so(void **state)
{
    (void)state;
    alloc(100);
    fails_with(gvm_heap_save_snapshot(heap, "/no/such/folder/heap.pickle"), GVM_E_SYSTEM,
               "/no/such/folder/heap.pickle");
    fails_with(gvm_heap_save_snapshot(heap, "/dev/full"), GVM_E_SYSTEM, "/dev/full");
    assert_int_equal(gvm_heap_save_snapshot(heap, NULL), GVM_E_INVALID);
    assert_int_equal(gvm_heap_save_snapshot(NULL, "/dev/null"), GVM_E_FOREIGN);
    assert_int_equal(gvm_heap_save_snapshot(heap, "/dev/null"), GVM_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(extents_are_all_of_the_memory),
        TEST(extents_of_pinned_memory_are_listed),
        TEST(list_of_extents_keeps_to_its_room),
        TEST(snapshot_that_cannot_be_written_is_said_so),
    };

    fixture_machine_default("devices=1,memory=4GiB,sms=2");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
