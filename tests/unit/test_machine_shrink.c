/* Objects that become smaller: chunks go back from the end once nobody has them mapped, and only while nobody
 * has a lease. */
#include "tests/unit/machine_pair.h"

static void ask_size(fixture *w, actor *a, gvmi_wire_type type, uint32_t slot, uint64_t bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, type, 14);
    m.body.GROW = (gvmi_wire_grow){.slot = slot, .bytes = bytes};
    say(w, a, &m);
}

static gvm_status shrink(fixture *w, actor *a, uint32_t slot, uint64_t bytes)
{
    ask_size(w, a, GVMI_WIRE_SHRINK, slot, bytes);
    return reply_status(a);
}

static uint64_t taken_bytes(const fixture *w)
{
    return device(w)->used_bytes - device(w)->free_bytes + w->machine->host.used_bytes -
           w->machine->host.free_bytes;
}

static void shrunk_object_gives_its_chunks_to_others(void **state)
{
    fixture w;
    actor *a;
    uint32_t x = 0, y = 0;

    (void)state;
    start_fixture(&w, 4, 2); /* two chunks of /x are on the host */
    a = join(&w, OWNER);
    assert_int_equal(create(&w, a, "/x", 6, 0, &x), GVM_OK);
    assert_int_equal(create(&w, a, "/y", 1, 0, &y), GVM_E_NOSPACE);
    assert_int_equal(shrink(&w, a, x, CHUNK + 1), GVM_OK);
    assert_int_equal(info(&w, a, x).size_bytes, 2 * CHUNK);
    assert_int_equal(taken_bytes(&w), 2 * CHUNK);
    assert_int_equal(create(&w, a, "/y", 4, 0, &y), GVM_OK);
    acquire(&w, a, x, GVM_LEASE_READ);
    end_fixture(&w);
}

static void shrunk_object_grows_again(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, 0), GVM_OK);
    assert_int_equal(info(&p.w, p.b, p.b_slot).size_bytes, 0);
    ask_size(&p.w, p.b, GVMI_WIRE_GROW, p.b_slot, 3 * CHUNK);
    assert_int_equal(reply_status(p.b), GVM_OK);
    assert_int_equal(info(&p.w, p.a, p.a_slot).size_bytes, 3 * CHUNK);
    assert_int_equal(taken_bytes(&p.w), 3 * CHUNK);
    end_fixture(&p.w);
}

static void size_that_is_not_smaller_changes_nothing(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, CHUNK + 1), GVM_OK);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, UINT64_MAX), GVM_OK);
    assert_int_equal(info(&p.w, p.a, p.a_slot).size_bytes, 2 * CHUNK);
    assert_int_equal(info(&p.w, p.a, p.a_slot).generation, 2);
    end_fixture(&p.w);
}

static void leased_object_does_not_shrink(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    acquire(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, CHUNK), GVM_E_TIMEOUT);
    assert_int_equal(info(&p.w, p.a, p.a_slot).size_bytes, 2 * CHUNK);
    assert_true(permit(p.a, p.a_slot) & GVMI_PERMIT_READ);
    give(&p.w, p.b, p.b_slot, GVM_LEASE_READ);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, CHUNK), GVM_OK);
    end_fixture(&p.w);
}

static void read_only_opening_may_not_shrink(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 4, 4, 0, OTHER, GVM_OPEN_READONLY);
    assert_int_equal(shrink(&p.w, p.b, p.b_slot, CHUNK), GVM_E_DENIED);
    ask_seal(&p.w, p.a, p.a_slot);
    assert_int_equal(shrink(&p.w, p.a, p.a_slot, CHUNK), GVM_E_SEALED);
    end_fixture(&p.w);
}

static void chunks_are_free_when_all_have_unmapped_them(void **state)
{
    pair p;
    actor *c;
    uint32_t slot = 0;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    c = join(&p.w, OWNER);
    p.b->deaf = true;
    ask_size(&p.w, p.a, GVMI_WIRE_SHRINK, p.a_slot, CHUNK);
    assert_int_not_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(p.b->map->bytes, CHUNK);
    assert_int_equal(taken_bytes(&p.w), 2 * CHUNK);
    assert_true(permit(p.a, p.a_slot) & GVMI_PERMIT_REVOKED);
    /* Who comes meanwhile is not sent the chunk; growth and other requests wait. */
    assert_int_equal(open_object(&p.w, c, "/x", 0, &slot), GVM_OK);
    assert_int_equal(last(c)->body.OPENED.bytes, CHUNK);
    ask_size(&p.w, c, GVMI_WIRE_GROW, slot, 2 * CHUNK);
    assert_int_not_equal(last(c)->head.type, GVMI_WIRE_DONE);
    say_mapped(&p.w, p.b, p.b->map);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(last(c)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(info(&p.w, c, slot).size_bytes, 2 * CHUNK);
    assert_int_equal(taken_bytes(&p.w), 2 * CHUNK);
    end_fixture(&p.w);
}

/* When /x is opened again all have unmapped chunk 1, and all but the opening of a link chunk 0. */
static void chunk_that_all_have_unmapped_is_not_sent_to_who_comes_before_the_others_are(void **state)
{
    pair p;
    actor *c;
    uint32_t link_slot = 0, slot = 0;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    c = join(&p.w, OWNER);
    assert_int_equal(link_object(&p.w, p.a, p.a_slot, "/l", 0600, CHUNK), GVM_OK);
    assert_int_equal(open_object(&p.w, c, "/l", GVM_OPEN_LINK, &link_slot), GVM_OK);
    c->deaf = true;
    ask_size(&p.w, p.a, GVMI_WIRE_SHRINK, p.a_slot, 0);
    assert_int_equal(c->unanswered_count, 1);
    p.b->deaf = true;
    assert_int_equal(open_object(&p.w, p.b, "/x", GVM_OPEN_MAPPED, &slot), GVM_OK);
    assert_int_equal(p.b->unanswered_count, 0);
    say_mapped(&p.w, c, c->map);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(taken_bytes(&p.w), 0);
    end_fixture(&p.w);
}

static void cut_off_client_holds_chunks_that_it_has_not_unmapped(void **state)
{
    pair p;
    uint32_t frames[2];

    (void)state;
    start_pair(&p, 4, 4, 0, OTHER, GVM_OPEN_READONLY);
    note_frames(&p.w, frames);
    p.b->deaf = true;
    ask_size(&p.w, p.a, GVMI_WIRE_SHRINK, p.a_slot, CHUNK);
    tick(&p.w, 1200);
    assert_true(p.b->cut);
    assert_int_equal(last(p.a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(device(&p.w)->held_bytes, CHUNK);
    assert_int_equal(p.w.machine->frames[frames[1] - 1].state, KEEP_FRAME_HELD);
    gvmi_machine_exited(p.w.machine, p.b->number);
    p.b->forgotten = true;
    run(&p.w);
    assert_int_equal(device(&p.w)->held_bytes, 0);
    end_fixture(&p.w);
}

/* In all of them: a client takes a smaller size for a shrink. */
static void object_of_several_maps_is_sent_with_one_size(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    for (uint32_t flags = 0; flags <= GVM_OPEN_MAPPED; flags += GVM_OPEN_MAPPED) {
        start_fixture(&w, 80, 0);
        a = join(&w, OWNER);
        b = join(&w, OWNER);
        assert_int_equal(create_of(&w, a, "/x", 80, GVMI_MAP_ALL_CHUNKS_MAX + 1, 0, GVM_OBJECT_KEEP),
                         GVM_OK);
        b->deaf = true;
        assert_int_equal(open_object(&w, b, "/x", flags, &slot), GVM_OK);
        if (flags == 0)
            ask(&w, b, slot, GVM_LEASE_READ, -1);
        assert_ptr_equal(b->map, &b->maps[1]);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(b->maps[i].bytes, (GVMI_MAP_ALL_CHUNKS_MAX + 1) * CHUNK);
            assert_int_equal(b->maps[i].generation, only_object(&w)->generation);
        }
        end_fixture(&w);
    }
}

static void shrinker_that_leaves_is_not_answered(void **state)
{
    pair p;

    (void)state;
    start_pair(&p, 4, 4, 0, OWNER, 0);
    p.b->deaf = true;
    ask_size(&p.w, p.a, GVMI_WIRE_SHRINK, p.a_slot, 0);
    gvmi_machine_exited(p.w.machine, p.a->number);
    p.a->forgotten = true;
    run(&p.w);
    say_mapped(&p.w, p.b, p.b->map);
    assert_int_equal(info(&p.w, p.b, p.b_slot).size_bytes, 0);
    assert_int_equal(taken_bytes(&p.w), 0);
    end_fixture(&p.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrunk_object_gives_its_chunks_to_others),
        cmocka_unit_test(shrunk_object_grows_again),
        cmocka_unit_test(size_that_is_not_smaller_changes_nothing),
        cmocka_unit_test(leased_object_does_not_shrink),
        cmocka_unit_test(read_only_opening_may_not_shrink),
        cmocka_unit_test(chunks_are_free_when_all_have_unmapped_them),
        cmocka_unit_test(chunk_that_all_have_unmapped_is_not_sent_to_who_comes_before_the_others_are),
        cmocka_unit_test(cut_off_client_holds_chunks_that_it_has_not_unmapped),
        cmocka_unit_test(object_of_several_maps_is_sent_with_one_size),
        cmocka_unit_test(shrinker_that_leaves_is_not_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
