/* keeper/client: what calls that are no leases send, and make of the answers; see keeper_script.h. */
#include "tests/unit/keeper_script.h"

#include "base/address.h"
#include "keeper/protocol/snapshot.h"

static int script_calls(fake *f)
{
    gvmi_wire_message message;

    TRY_LINE(greet_and_open(f, 1));
    TRY_LINE(receive(f, GVMI_WIRE_GROW));
    EXPECT(f->in.body.GROW.slot == SLOT && f->in.body.GROW.bytes == 3 * CHUNK);
    message = f->in;
    TRY_LINE(map(f, 1, 2, 1, 3 * CHUNK, 2));
    f->in = message;
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_SHRINK));
    EXPECT(f->in.body.SHRINK.slot == SLOT && f->in.body.SHRINK.bytes == CHUNK + 1);
    message = f->in;
    TRY_LINE(map(f, 0, 0, 0, 2 * CHUNK, 3));
    f->in = message;
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_GROW));
    message = f->in;
    TRY_LINE(map(f, 2, 1, 5, 3 * CHUNK, 4));
    f->in = message;
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_PUBLISH));
    EXPECT(strcmp(f->in.body.PUBLISH.name, "/new") == 0 &&
           f->in.body.PUBLISH.flags == GVM_PUBLISH_REPLACE);
    TRY_LINE(failed(f, GVM_E_EXISTS, "taken"));
    TRY_LINE(receive(f, GVMI_WIRE_SET_MODE));
    EXPECT(f->in.body.SET_MODE.slot == SLOT && f->in.body.SET_MODE.value == 0644);
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_SET_METADATA));
    EXPECT(f->in.head.tail_bytes == 4 && memcmp(f->in.tail.bytes, "four", 4) == 0);
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_GET_METADATA));
    message = reply(f, GVMI_WIRE_METADATA);
    message.head.tail_bytes = 6;
    memcpy(message.tail.bytes, "sixsix", 6);
    TRY_LINE(send_message(f, &message, NULL, 0));
    TRY_LINE(receive(f, GVMI_WIRE_GET_INFO));
    message = reply(f, GVMI_WIRE_INFO);
    message.body.INFO.info = (gvmi_snapshot_object){
        .name = "/new", .id = HOME_ID, .size_bytes = 3 * CHUNK, .reserve_bytes = OBJECT_CHUNKS * CHUNK};
    TRY_LINE(send_message(f, &message, NULL, 0));
    for (uint64_t first = 0; first < 3; first += 2) { /* states of five chunks, which take two replies */
        TRY_LINE(receive(f, GVMI_WIRE_LIST_CHUNKS));
        EXPECT(strcmp(f->in.body.LIST_CHUNKS.name, "/new") == 0 &&
               f->in.body.LIST_CHUNKS.value == 1 + first);
        message = reply(f, GVMI_WIRE_CHUNK_STATES);
        message.body.CHUNK_STATES.value = 6;
        message.head.tail_bytes = 2 + (uint32_t)first / 2;
        memcpy(message.tail.bytes, &"abcde"[first], message.head.tail_bytes);
        TRY_LINE(send_message(f, &message, NULL, 0));
    }
    TRY_LINE(receive(f, GVMI_WIRE_EVICT));
    EXPECT(strcmp(f->in.body.EVICT.name, "/new") == 0 && f->in.body.EVICT.value == 5);
    TRY_LINE(done(f, 4));
    TRY_LINE(receive(f, GVMI_WIRE_TRIM));
    EXPECT(f->in.body.TRIM.device == 1 && f->in.body.TRIM.keep_bytes == 6);
    TRY_LINE(done(f, 7));
    TRY_LINE(receive(f, GVMI_WIRE_SET_QUOTA));
    EXPECT(f->in.body.SET_QUOTA.uid == 1000 && f->in.body.SET_QUOTA.bytes == UINT64_MAX);
    TRY_LINE(done(f, 0));
    TRY_LINE(receive(f, GVMI_WIRE_DROP));
    EXPECT(strcmp(f->in.body.DROP.name, "/new") == 0);
    TRY_LINE(done(f, 0));
    return serve_close_and_end(f);
}

static int make_calls(void *arg)
{
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_client *keeper;
    gvm_object *object;
    uint64_t bytes = 0;
    uint32_t len = 0;
    char text[8] = "-------";
    uint8_t states[8] = "-------";
    fake f;

    (void)arg;
    TRY_LINE(connect_and_open(&f, script_calls, &keeper, &object));
    EXPECT(gvm_object_grow(object, OBJECT_CHUNKS * CHUNK + 1) == GVM_E_INVALID);
    EXPECT(gvm_object_grow(object, 3 * CHUNK) == GVM_OK && byte_of(object, 2) == 3);
    EXPECT(gvm_object_shrink(object, CHUNK + 1) == GVM_OK);
    EXPECT(object->buffer->device_bytes == 2 * CHUNK && atomic_load(&object->shown_bytes) == 2 * CHUNK);
    EXPECT(gvm_object_grow(object, 3 * CHUNK) == GVM_OK && byte_of(object, 2) == 6);
    EXPECT(gvm_object_publish(object, "/new", 1u << 5) == GVM_E_INVALID);
    EXPECT(gvm_object_publish(object, "new", 0) == GVM_E_INVALID);
    EXPECT(fails_with(gvm_object_publish(object, "/new", GVM_PUBLISH_REPLACE), GVM_E_EXISTS, "taken"));
    EXPECT(gvm_object_set_mode(object, 010000) == GVM_E_INVALID);
    EXPECT(gvm_object_set_mode(object, 0644) == GVM_OK);
    EXPECT(gvm_object_set_metadata(object, NULL, 4) == GVM_E_INVALID);
    EXPECT(gvm_object_set_metadata(object, "four", 4) == GVM_OK);
    EXPECT(gvm_object_get_metadata(object, NULL, 4, &len) == GVM_E_INVALID);
    EXPECT(gvm_object_get_metadata(object, text, 4, NULL) == GVM_E_INVALID);
    EXPECT(gvm_object_get_metadata(object, text, 4, &len) == GVM_OK && len == 6);
    EXPECT(memcmp(text, "sixs---", 7) == 0);
    EXPECT(gvm_object_get_info(object, &info) == GVM_OK);
    EXPECT(strcmp(info.name, "/new") == 0 && info.address == gvmi_pointer(object->address) &&
           info.size_bytes == 3 * CHUNK);
    EXPECT(gvm_client_list_chunks(keeper, "new", 1, 4, states, &bytes) == GVM_E_INVALID);
    EXPECT(gvm_client_list_chunks(keeper, "/new", 1, 4, NULL, &bytes) == GVM_E_INVALID);
    EXPECT(gvm_client_list_chunks(keeper, "/new", 1, 4, states, NULL) == GVM_E_INVALID);
    EXPECT(gvm_client_list_chunks(keeper, "/new", 1, 4, states, &bytes) == GVM_OK && bytes == 5);
    EXPECT(memcmp(states, "abcd---", 7) == 0);
    EXPECT(gvm_client_evict(keeper, "/new", 5, &bytes) == GVM_OK && bytes == 4);
    EXPECT(gvm_client_trim(keeper, 1, 6, &bytes) == GVM_OK && bytes == 7);
    EXPECT(gvm_client_set_quota(keeper, 1000, GVM_BYTES_UNLIMITED) == GVM_OK);
    EXPECT(gvm_object_drop(keeper, "bad") == GVM_E_INVALID);
    EXPECT(gvm_object_drop(keeper, "/new") == GVM_OK);
    EXPECT(gvm_object_grant(object, f.device, GVM_ACCESS_READ) == GVM_E_INVALID); /* its own */
    EXPECT(gvm_object_grant(object, NULL, GVM_ACCESS_READ) == GVM_E_FOREIGN);
    return close_all(&f, keeper, object);
}

static void calls_carry_their_arguments_and_answers(void **state)
{
    RUN(make_calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_carry_their_arguments_and_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
