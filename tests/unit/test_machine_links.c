/* Links of the keeper's machine: names that let others in to some bytes of an object, for reading or writing, and clients
 * that can open nothing else.
 */
#include "tests/unit/machine_fixture.h"

static gvm_status unlink_object(fixture *w, actor *a, const char *name)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_UNLINK, 18);
    strcpy(m.body.UNLINK.name, name);
    say(w, a, &m);
    return reply_status(a);
}

enum { BY_LINK = GVM_OPEN_LINK | GVM_OPEN_READONLY };

static void link_lets_in_whom_its_mode_says(void **state)
{
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 2, 0600, &slot), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", BY_LINK, &other), GVM_E_ABSENT);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0400, CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", BY_LINK, &other), GVM_E_DENIED);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0444, CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", BY_LINK, &other), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", GVM_OPEN_LINK, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, b, "/secret", GVM_OPEN_READONLY, &other), GVM_E_ABSENT);
    assert_int_equal(open_object(&w, b, "/x", GVM_OPEN_READONLY, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, b, "/x", BY_LINK, &other), GVM_E_ABSENT);
    end_fixture(&w);
}

static gvm_status ask_slot(fixture *w, actor *a, gvmi_wire_type type, uint32_t slot, uint64_t bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, type, 19);
    m.body.CLOSE.slot = slot; /* every one begins with it */
    if (type == GVMI_WIRE_GROW || type == GVMI_WIRE_SHRINK)
        m.body.GROW.bytes = bytes;
    if (type == GVMI_WIRE_ACQUIRE)
        m.body.ACQUIRE.mode = GVM_LEASE_WRITE;
    if (type == GVMI_WIRE_LINK)
        m.body.LINK = (gvmi_wire_link){slot, 0666, CHUNK, "/mine"};
    if (type == GVMI_WIRE_PUBLISH)
        m.body.PUBLISH = (gvmi_wire_publish){slot, 0, "/mine"};
    say(w, a, &m);
    return reply_status(a);
}

static void link_opened_for_writing_changes_bytes_alone(void **state)
{
    static const gvmi_wire_type denied[] = {
        GVMI_WIRE_GROW,     GVMI_WIRE_SHRINK,       GVMI_WIRE_SEAL, GVMI_WIRE_PUBLISH,
        GVMI_WIRE_SET_MODE, GVMI_WIRE_SET_METADATA, GVMI_WIRE_LINK};
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 2, 0600, &slot), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0622, 2 * CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", GVM_OPEN_LINK, &other), GVM_E_DENIED);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0666, 2 * CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", GVM_OPEN_LINK, &other), GVM_OK);
    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++)
        assert_int_equal(ask_slot(&w, b, denied[i], other, 3 * CHUNK), GVM_E_DENIED);
    assert_int_equal(ask_slot(&w, b, GVMI_WIRE_GET_METADATA, other, 0), GVM_OK);
    (void)ask_slot(&w, b, GVMI_WIRE_ACQUIRE, other, 0);
    assert_int_equal(last(b)->head.type, GVMI_WIRE_GRANTED);
    /* The owner is bound by the way it came, too. */
    assert_int_equal(open_object(&w, a, "/secret", GVM_OPEN_LINK, &other), GVM_OK);
    assert_int_equal(ask_slot(&w, a, GVMI_WIRE_GROW, other, 3 * CHUNK), GVM_E_DENIED);
    assert_int_equal(ask_slot(&w, a, GVMI_WIRE_GROW, slot, 3 * CHUNK), GVM_OK);
    end_fixture(&w);
}

static gvm_status restrict_client(fixture *w, actor *a)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_RESTRICT, 20);
    say(w, a, &m);
    return reply_status(a);
}

/* What is on no slot. */
static void expect_restricted(fixture *w, actor *a)
{
    static const gvmi_wire_type denied[] = {
        GVMI_WIRE_CREATE, GVMI_WIRE_DROP,      GVMI_WIRE_SNAPSHOT, GVMI_WIRE_EVICT,
        GVMI_WIRE_TRIM,   GVMI_WIRE_SET_QUOTA, GVMI_WIRE_UNLINK,   GVMI_WIRE_LIST_CHUNKS};
    gvmi_wire_message m;

    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++) {
        gvmi_wire_start(&m, denied[i], 21);
        if (denied[i] == GVMI_WIRE_DROP || denied[i] == GVMI_WIRE_UNLINK)
            strcpy(m.body.DROP.name, "/x");
        if (denied[i] == GVMI_WIRE_EVICT || denied[i] == GVMI_WIRE_LIST_CHUNKS)
            strcpy(m.body.EVICT.name, "/x");
        say(w, a, &m);
        assert_int_equal(reply_status(a), GVM_E_DENIED);
    }
}

static void client_restricted_opens_links_alone(void **state)
{
    static const gvmi_wire_type denied[] = {
        GVMI_WIRE_GROW,     GVMI_WIRE_SHRINK,       GVMI_WIRE_SEAL, GVMI_WIRE_PUBLISH,
        GVMI_WIRE_SET_MODE, GVMI_WIRE_SET_METADATA, GVMI_WIRE_LINK};
    fixture w;
    actor *a;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, KEEPER_UID); /* who may do everything else */
    assert_int_equal(create(&w, a, "/x", 2, 0600, &slot), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0600, CHUNK), GVM_OK);
    assert_int_equal(restrict_client(&w, a), GVM_OK);
    assert_int_equal(restrict_client(&w, a), GVM_OK);
    expect_restricted(&w, a);
    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++)
        assert_int_equal(ask_slot(&w, a, denied[i], slot, CHUNK), GVM_E_DENIED);
    assert_int_equal(open_object(&w, a, "/x", 0, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, a, "/x", GVM_OPEN_READONLY, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, a, "/secret", GVM_OPEN_LINK, &other), GVM_OK);
    assert_int_equal(ask_slot(&w, a, GVMI_WIRE_GET_INFO, other, 0), GVM_OK);
    (void)ask_slot(&w, a, GVMI_WIRE_ACQUIRE, other, 0);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_GRANTED);
    close_slot(&w, a, slot);
    end_fixture(&w);
}

static void client_of_another_user_is_restricted_if_that_is_wanted(void **state)
{
    gvmi_machine_config config = small_config(8, 8);
    fixture w;
    actor *a;
    uint32_t slot = 0, other = 0;

    (void)state;
    config.restrict_others = true;
    start_fixture_as(&w, &config);
    a = join(&w, KEEPER_UID);
    assert_int_equal(create(&w, a, "/x", 2, 0666, &slot), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0644, CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, join(&w, 0), "/x", 0, &other), GVM_OK);
    a = join(&w, 2);
    expect_restricted(&w, a);
    assert_int_equal(open_object(&w, a, "/x", 0, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, a, "/secret", GVM_OPEN_LINK, &other), GVM_E_DENIED);
    assert_int_equal(open_object(&w, a, "/secret", BY_LINK, &other), GVM_OK);
    end_fixture(&w);
}

static void link_shows_its_chunks_alone_also_of_an_object_that_grows(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 3, 0600, &slot), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0444, CHUNK + 1), GVM_OK);
    b->deaf = true;
    assert_int_equal(open_object(&w, b, "/secret", BY_LINK, &b->slot), GVM_OK);
    assert_int_equal(last(b)->body.OPENED.bytes, 2 * CHUNK);
    assert_int_equal(last(b)->body.OPENED.reserve_bytes, 2 * CHUNK);
    ask(&w, b, b->slot, GVM_LEASE_READ, -1);
    assert_non_null(b->map);
    assert_int_equal(b->map->bytes, 2 * CHUNK);
    for (unsigned i = 0; i < 2; i++) { /* I14 is true of the MAPs, which nobody has answered */
        gvmi_wire_start(&m, GVMI_WIRE_GROW, 19);
        m.body.GROW = (gvmi_wire_grow){.slot = slot, .bytes = (4 + i) * CHUNK};
        say(&w, a, &m);
        assert_int_equal(b->map->bytes, 2 * CHUNK);
    }
    gvmi_wire_start(&m, GVMI_WIRE_GET_INFO, 20);
    m.body.GET_INFO.slot = b->slot;
    say(&w, b, &m);
    assert_int_equal(last(b)->body.INFO.info.size_bytes, 2 * CHUNK);
    assert_int_equal(last(b)->body.INFO.info.device_bytes + last(b)->body.INFO.info.host_bytes,
                     2 * CHUNK);
    assert_string_equal(last(b)->body.INFO.info.name, "");
    assert_true(last(b)->body.INFO.info.foreign);
    end_fixture(&w);
}

static void frame_shown_by_a_link_is_not_used_again(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a, *b;
    uint32_t slot = 0, other = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 2, 0600, &slot), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/secret", 0444, CHUNK), GVM_OK);
    assert_int_equal(open_object(&w, b, "/secret", BY_LINK, &other), GVM_OK);
    map_object(&w, a, slot);
    map_object(&w, b, other);
    gvmi_wire_start(&m, GVMI_WIRE_EVICT, 21);
    strcpy(m.body.EVICT.name, "/x");
    m.body.EVICT.value = UINT64_MAX;
    say(&w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
    assert_int_equal(w.dropped_bytes, CHUNK); /* the other one was shown to the owner alone */
    end_fixture(&w);
}

static void link_ends_with_its_word_its_object_and_its_creator(void **state)
{
    gvmi_wire_message m;
    fixture w;
    actor *a, *b, *c;
    uint32_t slot = 0, next = 0, other = 0;

    (void)state;
    start_fixture(&w, 8, 8);
    a = join(&w, 1);
    b = join(&w, 2);
    assert_int_equal(create(&w, a, "/x", 1, 0600, &slot), GVM_OK);
    assert_int_equal(create(&w, a, "/y", 1, 0600, &next), GVM_OK);
    assert_int_equal(link_object(&w, a, slot, "/one", 0444, CHUNK), GVM_OK);
    assert_int_equal(unlink_object(&w, b, "/one"), GVM_E_DENIED);
    assert_int_equal(unlink_object(&w, a, "/two"), GVM_E_ABSENT);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_OK);
    assert_int_equal(unlink_object(&w, a, "/one"), GVM_OK);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_E_ABSENT);
    ask(&w, b, other, GVM_LEASE_READ, -1); /* what is open stays */
    assert_true(granted(b));

    /* In one step to another object, but not to one of another user. */
    assert_int_equal(link_object(&w, a, slot, "/one", 0444, CHUNK), GVM_OK);
    assert_int_equal(create(&w, b, "/z", 1, 0600, &other), GVM_OK);
    assert_int_equal(link_object(&w, b, other, "/one", 0444, CHUNK), GVM_E_EXISTS);
    assert_int_equal(link_object(&w, a, next, "/one", 0444, CHUNK), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_DROP, 21);
    strcpy(m.body.DROP.name, "/x");
    say(&w, a, &m);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_OK);
    strcpy(m.body.DROP.name, "/y");
    say(&w, a, &m);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_E_ABSENT);

    c = join(&w, 1);
    c->create_flags = 0;
    assert_int_equal(create_of(&w, c, "/v", 64, 1, 0600, 0), GVM_OK); /* not kept */
    slot = c->slot;
    assert_int_equal(link_object(&w, c, slot, "/one", 0444, CHUNK), GVM_OK);
    assert_int_equal(create_of(&w, c, "", 64, 1, 0600, 0), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_PUBLISH, 23); /* the name goes, the link does not */
    m.body.PUBLISH = (gvmi_wire_publish){
        .slot = c->slot, .flags = GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE, .name = "/v"};
    say(&w, c, &m);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_OK);
    gvmi_wire_start(&m, GVMI_WIRE_CLOSE, 22);
    m.body.CLOSE.slot = slot;
    say(&w, c, &m);
    assert_int_equal(open_object(&w, b, "/one", BY_LINK, &other), GVM_E_ABSENT);
    end_fixture(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_lets_in_whom_its_mode_says),
        cmocka_unit_test(link_opened_for_writing_changes_bytes_alone),
        cmocka_unit_test(client_restricted_opens_links_alone),
        cmocka_unit_test(client_of_another_user_is_restricted_if_that_is_wanted),
        cmocka_unit_test(link_shows_its_chunks_alone_also_of_an_object_that_grows),
        cmocka_unit_test(frame_shown_by_a_link_is_not_used_again),
        cmocka_unit_test(link_ends_with_its_word_its_object_and_its_creator),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
