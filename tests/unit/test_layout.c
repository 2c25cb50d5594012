/* memory/layout.h: where chunks lie, checked against a list of them that is written out.
 *
 * The list of a reservation is made by adding up sizes, from the smallest chunk on. Every question is then
 * asked at each edge and beside it, of the whole reservation and of every part that an importer may see.
 */
#include "tests/unit/unit.h"

#include "memory/buffer.h"
#include "tests/lib/units.h"

#define LIST_MAX 64

/* Edges of the chunks: edges[0] is 0, edges[count] the end. */
typedef struct list {
    uint64_t edges[LIST_MAX + 1];
    uint64_t count;
} list;

static void add(list *l, uint64_t bytes)
{
    assert_true(l->count < LIST_MAX);
    l->edges[l->count + 1] = l->edges[l->count] + bytes;
    l->count++;
}

/* The sizes of a graded end of chunks of so many MiB, from the end on. */
static const unsigned ends_mib[][8] = {
    {2, 2},                  /* 4 */
    {2, 6},                  /* 8 */
    {2, 6, 8},               /* 16 */
    {2, 6, 24},              /* 32 */
    {2, 6, 24, 32},          /* 64 */
    {2, 6, 24, 96},          /* 128 */
    {2, 6, 24, 96, 128},     /* 256 */
    {2, 6, 24, 96, 384},     /* 512 */
    {2, 6, 24, 96, 384, 512} /* 1024 */
};
#define ENDS (sizeof ends_mib / sizeof ends_mib[0])

static list make_list(size_t which, uint64_t inner)
{
    list l = {.count = 0};
    unsigned n = 0;

    for (; ends_mib[which][n] != 0; n++)
        add(&l, ends_mib[which][n] * MIB);
    for (uint64_t i = 0; i < inner; i++)
        add(&l, 4 * MIB << which);
    while (n-- > 0)
        add(&l, ends_mib[which][n] * MIB);
    return l;
}

static void check_at(const gvmi_layout *layout, const list *l, uint64_t first, uint64_t i)
{
    const uint64_t start = l->edges[i] - l->edges[first];

    assert_int_equal(gvmi_layout_start(layout, i - first), start);
    assert_int_equal(gvmi_layout_at(layout, start), i - first);
    assert_true(gvmi_layout_is_edge(layout, start));
    assert_int_equal(gvmi_layout_touched(layout, start), i - first);
    assert_int_equal(gvmi_layout_touched(layout, start + 1), i - first + 1);
    if (i == l->count)
        return;
    assert_int_equal(gvmi_layout_size(layout, i - first), l->edges[i + 1] - l->edges[i]);
    assert_int_equal(gvmi_layout_at(layout, start + 1), i - first);
    assert_int_equal(gvmi_layout_at(layout, l->edges[i + 1] - l->edges[first] - 1), i - first);
    assert_false(gvmi_layout_is_edge(layout, start + 1));
    assert_false(gvmi_layout_is_edge(layout, start + MIB));
}

static void layout_graded_is_as_listed(void **state)
{
    (void)state;
    for (size_t which = 0; which < ENDS; which++)
        for (uint64_t inner = 0; inner < 4; inner++) {
            const list l = make_list(which, inner);
            const gvmi_layout layout = {.chunk_bytes = 4 * MIB << which,
                                        .graded_bytes = l.edges[l.count]};

            assert_int_equal(l.edges[l.count], (inner + 2) * layout.chunk_bytes);
            for (uint64_t i = 0; i <= l.count; i++)
                check_at(&layout, &l, 0, i);
        }
}

/* An importer sees the owner's chunks from one on, and may reserve beyond the owner's end. */
static void layout_of_a_part_is_the_owners(void **state)
{
    (void)state;
    for (size_t which = 0; which < ENDS; which++) {
        list l = make_list(which, 2);
        gvmi_layout layout = {.chunk_bytes = 4 * MIB << which, .graded_bytes = l.edges[l.count]};

        add(&l, layout.chunk_bytes);
        add(&l, layout.chunk_bytes);
        for (uint64_t first = 0; first < l.count; first++) {
            layout.skip_chunks = first;
            layout.skip_bytes = l.edges[first];
            for (uint64_t i = first; i <= l.count; i++)
                check_at(&layout, &l, first, i);
        }
    }
}

/* What is true of the first chunks is true of the last. */
static void layout_ends_are_alike(void **state)
{
    (void)state;
    for (size_t which = 0; which < ENDS; which++) {
        const list l = make_list(which, 3);

        for (uint64_t i = 0; i <= l.count; i++)
            assert_int_equal(l.edges[i], l.edges[l.count] - l.edges[l.count - i]);
    }
}

static void layout_ungraded_is_division(void **state)
{
    const gvmi_layout layout = {.chunk_bytes = 3 * MIB}; /* as without virtual memory management */

    (void)state;
    assert_int_equal(gvmi_layout_at(&layout, 0), 0);
    assert_int_equal(gvmi_layout_at(&layout, 3 * MIB - 1), 0);
    assert_int_equal(gvmi_layout_at(&layout, 9 * MIB), 3);
    assert_int_equal(gvmi_layout_start(&layout, 5), 15 * MIB);
    assert_int_equal(gvmi_layout_size(&layout, 5), 3 * MIB);
    assert_int_equal(gvmi_layout_touched(&layout, 0), 0);
    assert_int_equal(gvmi_layout_touched(&layout, 3 * MIB + 1), 2);
}

/* Two ends that overlapped, or chunks that are as small as can be, are not graded. */
static void layout_without_room_is_not_graded(void **state)
{
    (void)state;
    assert_false(gvmi_layout_can_grade(64 * MIB, 2 * MIB));
    assert_false(gvmi_layout_can_grade(64 * MIB, 64 * MIB));
    assert_true(gvmi_layout_can_grade(128 * MIB, 64 * MIB));
    assert_true(gvmi_layout_can_grade(8 * MIB, 4 * MIB));
}

/* The largest offsets and the smallest chunks: nothing overflows. */
static void layout_of_the_largest_reservation_holds(void **state)
{
    const gvmi_layout layout = {.chunk_bytes = 8 * MIB, .graded_bytes = GVMI_SPAN_BYTES_MAX};
    const uint64_t count = gvmi_layout_at(&layout, GVMI_SPAN_BYTES_MAX);

    (void)state;
    assert_int_equal(count, GVMI_SPAN_BYTES_MAX / (8 * MIB) + 2);
    assert_int_equal(gvmi_layout_start(&layout, count), GVMI_SPAN_BYTES_MAX);
    assert_int_equal(gvmi_layout_size(&layout, count - 1), 2 * MIB);
    assert_int_equal(gvmi_layout_size(&layout, count - 2), 6 * MIB);
    assert_int_equal(gvmi_layout_size(&layout, count - 3), 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_graded_is_as_listed),
        cmocka_unit_test(layout_of_a_part_is_the_owners),
        cmocka_unit_test(layout_ends_are_alike),
        cmocka_unit_test(layout_ungraded_is_division),
        cmocka_unit_test(layout_without_room_is_not_graded),
        cmocka_unit_test(layout_of_the_largest_reservation_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
