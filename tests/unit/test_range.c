/* memory/range.h: buffers that lie in a range which the process reserves as a whole. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <gvmem/gvmem.h>

#include "memory/buffer.h"
#include "tests/lib/device.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#define CHUNK (2 * MIB)
#define RANGE (1024 * CHUNK) /* so small that valgrind has it, too */
#define APART \
    (16 * CHUNK) /* so far from each other any driver has them reserve addresses of their own */
#define FAR_AWAY (32ull << 40) /* a keeper's objects begin there, too */

static gvmi_range range = GVMI_RANGE_INIT(0, RANGE);

/* Where it is free and, with a real driver, far from the addresses that the system chooses: it chooses the highest gap, so what
 * the driver maps for itself could come to lie in the range as soon as that is free. Sanitizers and valgrind have no such place. */
static void place_range(void)
{
    gvm_buffer *buffer;

    if (!watched_software) {
        range.address = FAR_AWAY;
        return;
    }
    assert_int_equal(gvm_buffer_create(watched_device, RANGE, NULL, &buffer), GVM_OK);
    range.address = (uint64_t)(uintptr_t)gvm_buffer_address(buffer);
    gvm_buffer_destroy(buffer);
}

/* A buffer at an offset of the range; in: from which it is to take its addresses, or NULL. */
static gvm_status make(uint64_t offset_bytes, uint64_t chunks, gvmi_range *in, gvm_buffer **out)
{
    const gvmi_buffer_spec spec = {
        .reserve_bytes = chunks * CHUNK,
        .chunk_bytes = CHUNK,
        .address = range.address + offset_bytes,
        .range = in,
        .unshared = true,
    };
    gvm_status status = gvmi_buffer_new(watched_device, &spec, out);

    if (status == GVM_OK)
        assert_int_equal((*out)->address, spec.address);
    return status;
}

static bool is_free(uint64_t offset_bytes)
{
    gvm_buffer *buffer;
    const gvm_status status = make(offset_bytes, 1, NULL, &buffer);

    assert_true(status == GVM_OK || status == GVM_E_ADDRESS);
    if (status == GVM_OK)
        gvmi_buffer_free(buffer);
    return status == GVM_OK;
}

static const gvmi_driver *real;
static gvmi_driver table;
static atomic_bool is_slow, is_reserving;

static CUresult reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                        unsigned long long flags)
{
    const CUresult result = real->cuMemAddressReserve(ptr, size, alignment, addr, flags);

    if (atomic_load(&is_slow)) {
        atomic_store(&is_reserving, true);
        pause_ms(200);
    }
    return result;
}

static int start(void **state)
{
    (void)state;
    memory_watch();
    real = gvmi_cu;
    table = *real;
    table.cuMemAddressReserve = reserve;
    gvmi_driver_install(&table); /* before there are other threads */
    place_range();
    return 0;
}

static int end(void **state)
{
    (void)state;
    memory_watch_end();
    return 0;
}

static void range_is_reserved_whole_while_a_buffer_lies_in_it(void **state)
{
    gvm_buffer *first, *last;

    (void)state;
    assert_true(is_free(0));
    assert_int_equal(make(7 * CHUNK, 2, &range, &first), GVM_OK);
    assert_int_equal(make(RANGE - CHUNK, 1, &range, &last), GVM_OK);
    assert_ptr_equal(first->range, &range);
    for (uint64_t at = 0; at < RANGE; at += RANGE / 8)
        assert_false(is_free(at));
    gvmi_buffer_free(first);
    assert_false(is_free(0));
    assert_false(is_free(7 * CHUNK));
    gvmi_buffer_free(last);
    assert_true(is_free(0));
    assert_true(is_free(RANGE - CHUNK));
}

/* Nobody maps anything there without being asked to. */
static bool is_free_for_the_system(uint64_t offset_bytes)
{
    void *wanted = (void *)(uintptr_t)(range.address + offset_bytes);
    void *there = mmap(wanted, CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                       -1, 0);

    if (there != MAP_FAILED)
        munmap(there, CHUNK);
    return there == wanted;
}

static void range_that_is_held_is_free_for_its_buffers_alone(void **state)
{
    gvm_buffer *buffer;

    (void)state;
    assert_true(is_free_for_the_system(RANGE / 2));
    gvmi_range_hold(&range);
    gvmi_range_hold(&range);
    assert_false(is_free_for_the_system(RANGE / 2));
    assert_false(is_free(RANGE - CHUNK));
    assert_int_equal(make(7 * CHUNK, 2, &range, &buffer), GVM_OK);
    assert_ptr_equal(buffer->range, &range);
    assert_false(is_free(0));
    gvmi_range_release(&range);
    gvmi_buffer_free(buffer);
    assert_false(is_free(0));
    gvmi_range_release(&range);
    assert_true(is_free(0));
    assert_true(is_free_for_the_system(RANGE / 2));

    gvmi_range_hold(&range);
    assert_int_equal(make(0, 1, &range, &buffer), GVM_OK);
    gvmi_range_release(&range);
    assert_false(is_free(RANGE / 2));
    gvmi_buffer_free(buffer);
    assert_true(is_free(0));
}

static void range_that_is_not_free_cannot_be_held(void **state)
{
    gvm_buffer *stranger, *buffer;

    (void)state;
    assert_int_equal(make(RANGE / 2, 1, NULL, &stranger), GVM_OK);
    gvmi_range_hold(&range);
    assert_true(is_free(0));
    assert_int_equal(make(0, 1, &range, &buffer), GVM_OK);
    assert_null(buffer->range);
    gvmi_buffer_free(buffer);
    gvmi_buffer_free(stranger);
    assert_int_equal(make(0, 1, &range, &buffer), GVM_OK); /* it is free by now */
    assert_ptr_equal(buffer->range, &range);
    gvmi_buffer_free(buffer);
    assert_false(is_free(RANGE / 2));
    gvmi_range_release(&range);
    assert_true(is_free(RANGE / 2));
}

static void buffers_in_a_range_do_not_overlap(void **state)
{
    gvm_buffer *middle, *other;

    (void)state;
    assert_int_equal(make(4 * CHUNK, 4, &range, &middle), GVM_OK);
    for (uint64_t at = 1; at < 8; at++)
        assert_int_equal(make(at * CHUNK, 4, &range, &other), GVM_E_ADDRESS);
    assert_int_equal(make(0, 4, &range, &other), GVM_OK);
    gvmi_buffer_free(other);
    assert_int_equal(make(8 * CHUNK, 4, &range, &other), GVM_OK);
    gvmi_buffer_free(middle);
    assert_int_equal(make(2 * CHUNK, 6, &range, &middle), GVM_OK);
    gvmi_buffer_free(other);
    gvmi_buffer_free(middle);
}

static void buffer_in_a_range_holds_memory_as_any(void **state)
{
    gvm_buffer *buffer;
    uint32_t in = 0x12345678, out = 0;

    (void)state;
    assert_int_equal(make(RANGE / 2, 4, &range, &buffer), GVM_OK);
    assert_int_equal(gvmi_buffer_publish(buffer), GVM_OK);
    assert_int_equal(gvm_buffer_commit(buffer, CHUNK, 2 * CHUNK), GVM_OK);
    assert_int_equal(gvm_buffer_copy_in(buffer, 2 * CHUNK - 2, &in, sizeof in), GVM_OK);
    assert_int_equal(gvm_buffer_copy_out(&out, buffer, 2 * CHUNK - 2, sizeof out), GVM_OK);
    assert_int_equal(out, in);
    gvm_buffer_destroy(buffer);
    assert_true(is_free(RANGE / 2 + CHUNK));
}

/* Something else lay in it before, or the addresses are not in it. */
static void buffer_that_the_range_does_not_take_reserves_for_itself(void **state)
{
    gvm_buffer *stranger, *buffer, *beyond;

    (void)state;
    assert_int_equal(make(RANGE / 2, 1, NULL, &stranger), GVM_OK);
    assert_int_equal(make(0, 4, &range, &buffer), GVM_OK);
    assert_null(buffer->range);
    assert_true(is_free(APART));
    assert_int_equal(make(RANGE / 2, 1, &range, &beyond), GVM_E_ADDRESS);
    gvmi_buffer_free(stranger);
    gvmi_buffer_free(buffer);
    assert_int_equal(make(RANGE - CHUNK, 2, &range, &beyond), GVM_OK);
    assert_null(beyond->range);
    gvmi_buffer_free(beyond);
    assert_int_equal(make(0, RANGE / CHUNK + 1, &range, &beyond), GVM_OK);
    assert_null(beyond->range);
    gvmi_buffer_free(beyond);
    assert_int_equal(make(0, RANGE / CHUNK, &range, &buffer), GVM_OK);
    assert_ptr_equal(buffer->range, &range);
    gvmi_buffer_free(buffer);
}

static void *make_and_free(void *unused)
{
    gvm_buffer *buffer;

    (void)unused;
    if (make(0, 4, &range, &buffer) == GVM_OK)
        gvmi_buffer_free(buffer);
    return NULL;
}

static void reset_in_child(void)
{
    gvmi_range_reset_in_child(&range);
}

static int hold_in_child(void *unused)
{
    (void)unused;
    end_child_after(5);
    CHILD_EXPECT(range.holds == 0 && !range.reserved && LIST_EMPTY(&range.buffers));
    gvmi_range_hold(&range);
    gvmi_range_release(&range);
    return 0;
}

/* As the connections of keepers have it. */
static void child_by_fork_waits_for_no_thread_of_its_parent(void **state)
{
    pthread_t maker;

    (void)state;
    SKIP_UNDER_VALGRIND("memory of a thread that its child does not have counts as lost there");
    assert_int_equal(pthread_atfork(NULL, NULL, reset_in_child), 0);
    atomic_store(&is_slow, true);
    gvmi_range_hold(&range);
    assert_int_equal(pthread_create(&maker, NULL, make_and_free, NULL), 0);
    while (!atomic_load(&is_reserving))
        pause_ms(1);
    assert_int_equal(run_in_child(hold_in_child, NULL, false), 0);
    pthread_join(maker, NULL);
    gvmi_range_release(&range);
    atomic_store(&is_slow, false);
    assert_true(is_free(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(range_is_reserved_whole_while_a_buffer_lies_in_it),
        cmocka_unit_test(range_that_is_held_is_free_for_its_buffers_alone),
        cmocka_unit_test(range_that_is_not_free_cannot_be_held),
        cmocka_unit_test(buffers_in_a_range_do_not_overlap),
        cmocka_unit_test(buffer_in_a_range_holds_memory_as_any),
        cmocka_unit_test(buffer_that_the_range_does_not_take_reserves_for_itself),
        cmocka_unit_test(child_by_fork_waits_for_no_thread_of_its_parent), /* the last: all forks from then on do */
    };

    return cmocka_run_group_tests(tests, start, end);
}
