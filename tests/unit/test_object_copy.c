/* gvm_object_copy_in() and gvm_object_copy_out(), with a keeper of this process. Each test runs in a child, since a
 * driver is started once a process. */
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#include <gvmem/client.h>
#include <gvmem/keeper.h>

#define CHUNK (2 * MIB)
#define CHUNKS 3u
#define WAIT_MS 20000 /* never reached */

typedef struct fixture {
    gvm_keeper *keeper;
    gvm_client *owner, *other;
    gvm_object *object, *view; /* of the owner, and the same one of the other */
    uint8_t *bytes, *seen;     /* of the object's size */
} fixture;

static int join(const fixture *w, gvm_client **out)
{
    int fd;

    CHILD_EXPECT(gvm_keeper_open_socket(w->keeper, &fd) == GVM_OK);
    CHILD_EXPECT(gvm_client_adopt(fd, out) == GVM_OK);
    return 0;
}

static int start(fixture *w, uint32_t open_flags)
{
    gvm_object_options object = gvm_object_options_init();
    gvm_keeper_options keeper = gvm_keeper_options_init();
    char machine[80];

    snprintf(machine, sizeof machine, "memory=64MiB,instance=test-copy-%d", (int)getpid());
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv("GVMEM_SOFTGPU", machine, 1);
    keeper.path = "";
    keeper.device_budget_bytes = keeper.host_budget_bytes = 32 * MIB;
    object.chunk_bytes = CHUNK;
    object.size_bytes = CHUNKS * CHUNK;
    CHILD_EXPECT(gvm_keeper_start(&keeper, &w->keeper) == GVM_OK);
    CHILD_EXPECT(join(w, &w->owner) == 0 && join(w, &w->other) == 0);
    CHILD_EXPECT(gvm_object_create(w->owner, "/x", 2 * CHUNKS * CHUNK, &object, &w->object) == GVM_OK);
    CHILD_EXPECT(gvm_object_open(w->other, "/x", open_flags, &w->view) == GVM_OK);
    w->bytes = malloc(CHUNKS * CHUNK);
    w->seen = calloc(CHUNKS, CHUNK);
    CHILD_EXPECT(w->bytes != NULL && w->seen != NULL);
    for (uint64_t i = 0; i < CHUNKS * CHUNK; i++)
        w->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    return 0;
}

/* No call has left a lease. */
static int stop(fixture *w)
{
    gvm_object_info info = {.struct_size = sizeof info};

    CHILD_EXPECT(gvm_object_get_info(w->object, &info) == GVM_OK);
    CHILD_EXPECT(info.read_leases == 0 && info.write_leases == 0);
    gvm_client_close(w->other);
    gvm_client_close(w->owner);
    gvm_keeper_stop(w->keeper);
    free(w->bytes);
    free(w->seen);
    return 0;
}

static int copy_pieces(void *arg)
{
    const uint64_t from = CHUNK - 5, len = CHUNK + 10; /* parts of all three chunks */
    gvm_object_info info = {.struct_size = sizeof info};
    uint64_t evicted;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, w.bytes, CHUNKS * CHUNK, WAIT_MS) == GVM_OK);
    for (int host = 0; host < 2; host++) { /* all on the device; then a part in host memory */
        CHILD_EXPECT(gvm_object_copy_out(w.seen, w.view, 0, CHUNKS * CHUNK, WAIT_MS) == GVM_OK);
        CHILD_EXPECT(memcmp(w.seen, w.bytes, CHUNKS * CHUNK) == 0);
        for (uint64_t i = from; i < from + len; i++)
            w.bytes[i]++;
        CHILD_EXPECT(gvm_object_copy_in(w.view, from, w.bytes + from, len, WAIT_MS) == GVM_OK);
        CHILD_EXPECT(gvm_object_copy_out(w.seen, w.object, from - 1, len + 2, GVM_FOREVER) == GVM_OK);
        CHILD_EXPECT(memcmp(w.seen, w.bytes + from - 1, len + 2) == 0);
        if (host == 0)
            CHILD_EXPECT(gvm_client_evict(w.owner, "/x", CHUNK, &evicted) == GVM_OK && evicted == CHUNK);
    }
    CHILD_EXPECT(gvm_object_get_info(w.object, &info) == GVM_OK);
    CHILD_EXPECT(info.host_bytes == CHUNK && info.device_bytes == (CHUNKS - 1) * CHUNK);
    return stop(&w);
}

static int pass_wrong_arguments(void *arg)
{
    const uint64_t size = CHUNKS * CHUNK;
    uint8_t byte = 7;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0);
    CHILD_EXPECT(gvm_object_copy_in(w.object, size - 1, &byte, 1, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.object, size, &byte, 0, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.object, size, &byte, 1, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_in(w.object, size - 1, w.bytes, 2, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 1, &byte, UINT64_MAX, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, NULL, 1, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, &byte, 1, -2) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_in(NULL, 0, &byte, 1, GVM_TRY) == GVM_E_FOREIGN);
    byte = 0;
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.object, size, 1, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.object, UINT64_MAX, 2, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_out(NULL, w.object, 0, 1, GVM_TRY) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.object, 0, 1, -2) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_copy_out(&byte, NULL, 0, 1, GVM_TRY) == GVM_E_FOREIGN && byte == 0);
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.object, size - 1, 1, WAIT_MS) == GVM_OK && byte == 7);
    return stop(&w);
}

static int copy_read_only(void *arg)
{
    uint8_t byte = 7;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, GVM_OPEN_READONLY) == 0);
    CHILD_EXPECT(gvm_object_copy_in(w.view, 0, &byte, 1, GVM_TRY) == GVM_E_READONLY);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, &byte, 1, GVM_TRY) == GVM_OK);
    CHILD_EXPECT(gvm_object_seal(w.object, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, &byte, 1, GVM_TRY) == GVM_E_SEALED);
    byte = 0;
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.object, 0, 1, WAIT_MS) == GVM_OK && byte == 7);
    byte = 0;
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.view, 0, 1, WAIT_MS) == GVM_OK && byte == 7);
    return stop(&w);
}

static int meet_leases(void *arg)
{
    uint8_t byte = 7;
    gvm_lease lease;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0);
    CHILD_EXPECT(gvm_object_acquire(w.object, GVM_LEASE_WRITE, NULL, WAIT_MS, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.view, 0, &byte, 1, GVM_TRY) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.view, 0, 1, 20) == GVM_E_TIMEOUT && byte == 7);
    CHILD_EXPECT(gvm_object_release(w.object, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.object, GVM_LEASE_READ, NULL, WAIT_MS, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.view, 0, &byte, 1, GVM_TRY) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_copy_out(&byte, w.view, 0, 1, WAIT_MS) == GVM_OK && byte == 0);
    CHILD_EXPECT(gvm_object_release(w.object, &lease) == GVM_OK);
    return stop(&w);
}

#define CHILD_TEST(name, fn) \
    static void name(void **state) \
    { \
        (void)state; \
        assert_child_succeeds(fn, NULL); \
    }

CHILD_TEST(copy_over_chunks_of_both_tiers_carries_each_byte, copy_pieces)
CHILD_TEST(copy_with_wrong_arguments_is_refused, pass_wrong_arguments)
CHILD_TEST(copy_into_what_is_read_only_is_refused, copy_read_only)
CHILD_TEST(copy_waits_for_leases_of_others, meet_leases)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_over_chunks_of_both_tiers_carries_each_byte),
        cmocka_unit_test(copy_with_wrong_arguments_is_refused),
        cmocka_unit_test(copy_into_what_is_read_only_is_refused),
        cmocka_unit_test(copy_waits_for_leases_of_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
