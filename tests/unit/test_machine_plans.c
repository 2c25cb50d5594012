/* The keeper's machine: when it asks the policy what to bring to a device, and what comes of it. */
#include "tests/unit/machine_fixture.h"

/* What of the object is on its device, in chunks. */
static uint64_t chunks_there(fixture *w, actor *a, uint32_t slot)
{
    return info(w, a, slot).device_bytes / CHUNK;
}

static void request_that_waited_for_a_lease_has_chunks_brought_in_then(void **state)
{
    static const gvm_lease_mode held[] = {GVM_LEASE_READ, GVM_LEASE_WRITE, GVM_LEASE_WRITE};
    static const gvm_lease_mode asked[] = {GVM_LEASE_WRITE, GVM_LEASE_WRITE, GVM_LEASE_READ};

    (void)state;
    for (int i = 0; i < 3; i++) {
        fixture w;
        actor *a, *b;
        uint32_t a_slot = 0, b_slot = 0;

        start_fixture(&w, 2, 4);
        a = join(&w, 1);
        b = join(&w, 1);
        assert_int_equal(create(&w, a, "/x", 2, 0666, &a_slot), GVM_OK);
        assert_int_equal(open_object(&w, b, "/x", 0, &b_slot), GVM_OK);
        assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
        ask(&w, a, a_slot, held[i], 0); /* takes it where it is */
        assert_true(granted(a));
        take(&w, a, a_slot, held[i]);
        ask_with_hint(&w, b, b_slot, asked[i], GVM_HINT_HOT, -1);
        assert_false(granted(b));
        assert_int_equal(chunks_there(&w, a, a_slot), 0);
        give(&w, a, a_slot, held[i]);
        assert_true(granted(b));
        take(&w, b, b_slot, asked[i]);
        assert_int_equal(chunks_there(&w, b, b_slot), 2);
        end_fixture(&w);
    }
}

static bool no_rooms; /* no memory for chunks that wait for a frame */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return no_rooms && bytes == sizeof(keep_room) ? NULL : __real_malloc(bytes);
}

static void request_is_granted_where_chunks_cannot_be_brought_in(void **state)
{
    static const gvm_lease_mode modes[] = {GVM_LEASE_READ, GVM_LEASE_WRITE};

    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture w;
        actor *a;
        uint32_t slot = 0;

        start_fixture(&w, 2, 4);
        a = join(&w, 1);
        assert_int_equal(create(&w, a, "/x", 2, 0, &slot), GVM_OK);
        assert_int_equal(evict(&w, a, "/x"), 2 * CHUNK);
        no_rooms = true;
        ask_with_hint(&w, a, slot, modes[i], GVM_HINT_HOT, -1);
        no_rooms = false;
        assert_true(granted(a));
        take(&w, a, slot, modes[i]);
        assert_int_equal(chunks_there(&w, a, slot), 0);
        end_fixture(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_that_waited_for_a_lease_has_chunks_brought_in_then),
        cmocka_unit_test(request_is_granted_where_chunks_cannot_be_brought_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
