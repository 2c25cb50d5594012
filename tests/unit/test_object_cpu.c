/* Objects and the processor: gvm_object_copy_in() and gvm_object_copy_out(), and leases with GVM_ACQUIRE_CPU, with a
 * keeper of this process. Each test runs in a child, since a driver is started once a process. */
#include "driver/driver.h"
#include "memory/buffer.h"
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

static int start_with(fixture *w, uint32_t open_flags, uint64_t host_bytes)
{
    gvm_object_options object = gvm_object_options_init();
    gvm_keeper_options keeper = gvm_keeper_options_init();
    char machine[80];

    snprintf(machine, sizeof machine, "memory=64MiB,instance=test-copy-%d", (int)getpid());
    setenv("GVMEM_DRIVER", "soft", 1);
    setenv("GVMEM_SOFTGPU", machine, 1);
    keeper.path = "";
    keeper.device_budget_bytes = 32 * MIB;
    keeper.host_budget_bytes = host_bytes;
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

static int start(fixture *w, uint32_t open_flags)
{
    return start_with(w, open_flags, 32 * MIB);
}

/* No call has left a lease. Each connection is asked, since what another one has sent about its leases may reach the
 * keeper later: one that it granted counts until the client has said that it took it. */
static int stop(fixture *w)
{
    gvm_object_info info = {.struct_size = sizeof info};

    CHILD_EXPECT(gvm_object_get_info(w->view, &info) == GVM_OK);
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

static int ask_what_is_on_the_host(void *arg)
{
    const gvm_acquire_options once = {.struct_size = sizeof once, .hint = GVM_HINT_ONCE};
    uint64_t evicted, bytes, before = 0;
    gvm_lease lease;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &once, WAIT_MS, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.view, &lease, CHUNKS * CHUNK, &bytes) == GVM_OK &&
                 bytes == 0);
    CHILD_EXPECT(gvm_object_release(w.view, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.view, &lease, 0, &bytes) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_client_evict(w.owner, "/x", CHUNK, &evicted) == GVM_OK && evicted == CHUNK);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &once, WAIT_MS, &lease) == GVM_OK);
    for (uint64_t len = 0; len <= CHUNKS * CHUNK; len += CHUNK / 4) { /* of one whole chunk */
        CHILD_EXPECT(gvm_object_get_host_bytes(w.view, &lease, len, &bytes) == GVM_OK);
        CHILD_EXPECT(bytes == before || bytes == before + CHUNK / 4);
        before = bytes;
    }
    CHILD_EXPECT(before == CHUNK);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.view, &lease, CHUNKS * CHUNK + 1, &bytes) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.view, NULL, 0, &bytes) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.object, &lease, CHUNK, &bytes) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_get_host_bytes(w.view, &lease, 0, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_release(w.view, &lease) == GVM_OK);
    return stop(&w);
}

static int copy_read_only(void *arg)
{
    uint8_t byte = 7;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, GVM_OPEN_READONLY) == 0);
    CHILD_EXPECT(gvm_object_copy_in(w.view, 0, &byte, 1, WAIT_MS) == GVM_E_READONLY);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, &byte, 1, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_seal(w.object, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, &byte, 1, WAIT_MS) == GVM_E_SEALED);
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

/* ---- GVM_ACQUIRE_CPU */

static const gvm_acquire_options for_cpu = {.struct_size = sizeof for_cpu, .flags = GVM_ACQUIRE_CPU};

static uint64_t device_bytes(const fixture *w)
{
    gvm_object_info info = {.struct_size = sizeof info};

    return gvm_object_get_info(w->object, &info) == GVM_OK ? info.device_bytes : UINT64_MAX;
}

/* What the driver says of the processor's access: CU_MEM_ACCESS_FLAGS_PROT_... */
static unsigned long long access_at(const void *address)
{
    const CUmemLocation cpu = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    unsigned long long flags = 99;

    return gvmi_cu->cuMemGetAccess(&flags, &cpu, (CUdeviceptr)(uintptr_t)address) == CUDA_SUCCESS
               ? flags
               : 99;
}

static int use_cpu(void *arg)
{
    const uint64_t size = CHUNKS * CHUNK;
    gvm_lease lease, other;
    gvm_device *device;
    uint64_t evicted;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0 && gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, w.bytes, size, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(device_bytes(&w) == size);
    for (int round = 0; round < 3; round++) { /* on the device; on the host; in both */
        CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_WRITE, &for_cpu, WAIT_MS, &lease) == GVM_OK);
        CHILD_EXPECT(lease.hint == GVM_HINT_ONCE && lease.size_bytes == size && device_bytes(&w) == 0);
        for (unsigned i = 0; i < CHUNKS; i++)
            CHILD_EXPECT(access_at((char *)lease.address + i * CHUNK) ==
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CHILD_EXPECT(memcmp(lease.address, w.bytes, size) == 0);
        for (uint64_t i = 0; i < size; i += 4096)
            ((uint8_t *)lease.address)[i] = ++w.bytes[i];
        CHILD_EXPECT(gvm_object_release(w.view, &lease) == GVM_OK);

        CHILD_EXPECT(gvm_object_acquire(w.object, GVM_LEASE_READ, &for_cpu, WAIT_MS, &lease) == GVM_OK);
        CHILD_EXPECT(memcmp(lease.address, w.bytes, size) == 0);
        /* Others read it there meanwhile, and nothing comes to the device, whatever they say. */
        CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ,
                                        &(gvm_acquire_options){.struct_size = sizeof for_cpu,
                                                               .hint = GVM_HINT_HOT},
                                        WAIT_MS, &other) == GVM_OK);
        CHILD_EXPECT(device_bytes(&w) == 0);
        CHILD_EXPECT(gvm_object_release(w.view, &other) == GVM_OK);
        CHILD_EXPECT(gvm_object_release(w.object, &lease) == GVM_OK);

        CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ,
                                        &(gvm_acquire_options){.struct_size = sizeof for_cpu,
                                                               .hint = GVM_HINT_HOT},
                                        WAIT_MS, &other) == GVM_OK);
        CHILD_EXPECT(device_bytes(&w) == size); /* it comes back for others */
        CHILD_EXPECT(gvm_object_release(w.view, &other) == GVM_OK);
        CHILD_EXPECT(gvm_object_copy_out(w.seen, w.view, 0, size, WAIT_MS) == GVM_OK);
        CHILD_EXPECT(memcmp(w.seen, w.bytes, size) == 0);
        if (round == 0)
            CHILD_EXPECT(gvm_client_evict(w.owner, "/x", GVM_BYTES_UNLIMITED, &evicted) == GVM_OK);
        else
            CHILD_EXPECT(gvm_client_evict(w.owner, "/x", CHUNK, &evicted) == GVM_OK);
    }
    gvm_device_close(device);
    return stop(&w);
}

/* What an object has grown by under a lease for the CPU is on the device. */
static int open_a_part(void *arg)
{
    const gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_device *device;
    gvm_buffer *buffer;
    uint64_t bytes = 7;

    (void)arg;
    setenv("GVMEM_DRIVER", "soft", 1);
    CHILD_EXPECT(gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_create(device, 4 * CHUNK, &options, &buffer) == GVM_OK);
    CHILD_EXPECT(gvmi_buffer_open_to_cpu(buffer, &bytes) == GVM_OK && bytes == 0);
    CHILD_EXPECT(gvm_buffer_commit(buffer, 0, 4 * CHUNK) == GVM_OK);
    CHILD_EXPECT(gvm_buffer_move(buffer, 0, 4 * CHUNK, GVM_TIER_HOST) == GVM_OK);
    CHILD_EXPECT(gvmi_buffer_open_to_cpu(buffer, &bytes) == GVM_OK && bytes == 4 * CHUNK);
    CHILD_EXPECT(gvm_buffer_move(buffer, 2 * CHUNK, CHUNK, GVM_TIER_DEVICE) == GVM_OK);
    CHILD_EXPECT(gvmi_buffer_open_to_cpu(buffer, &bytes) == GVM_OK && bytes == 2 * CHUNK);
    for (unsigned i = 0; i < 4; i++)
        CHILD_EXPECT(access_at((char *)gvm_buffer_address(buffer) + i * CHUNK) ==
                     (i == 2 ? CU_MEM_ACCESS_FLAGS_PROT_NONE : CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    gvm_buffer_destroy(buffer);
    gvm_device_close(device);
    return 0;
}

static int meet_leases_for_cpu(void *arg)
{
    gvm_lease lease, cpu;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, 0) == 0);
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, w.bytes, CHUNKS * CHUNK, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &for_cpu, GVM_TRY, &cpu) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_acquire(w.object, GVM_LEASE_READ, NULL, WAIT_MS, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &for_cpu, 50, &cpu) == GVM_E_TIMEOUT);
    CHILD_EXPECT(device_bytes(&w) == CHUNKS * CHUNK);
    CHILD_EXPECT(gvm_object_release(w.object, &lease) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &for_cpu, WAIT_MS, &cpu) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.object, GVM_LEASE_WRITE, NULL, 50, &lease) == GVM_E_TIMEOUT);
    CHILD_EXPECT(gvm_object_release(w.view, &cpu) == GVM_OK);
    return stop(&w);
}

static int find_no_host_memory(void *arg)
{
    gvm_lease lease;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start_with(&w, 0, CHUNK) == 0); /* of three chunks */
    CHILD_EXPECT(gvm_object_copy_in(w.object, 0, w.bytes, CHUNKS * CHUNK, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_WRITE, &for_cpu, WAIT_MS, &lease) == GVM_E_NOMEM);
    CHILD_EXPECT(gvm_object_copy_out(w.seen, w.view, 0, CHUNKS * CHUNK, WAIT_MS) == GVM_OK);
    CHILD_EXPECT(memcmp(w.seen, w.bytes, CHUNKS * CHUNK) == 0);
    return stop(&w);
}

static int ask_wrongly_for_cpu(void *arg)
{
    gvm_acquire_options options = for_cpu;
    gvm_lease lease;
    fixture w;

    (void)arg;
    CHILD_EXPECT(start(&w, GVM_OPEN_READONLY) == 0);
    options.hint = GVM_HINT_SCAN;
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &options, WAIT_MS, &lease) == GVM_E_INVALID);
    options.hint = GVM_HINT_NONE;
    options.flags = 2 * GVM_ACQUIRE_CPU;
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &options, WAIT_MS, &lease) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_WRITE, &for_cpu, WAIT_MS, &lease) ==
                 GVM_E_READONLY);
    CHILD_EXPECT(gvm_object_acquire(w.view, GVM_LEASE_READ, &for_cpu, WAIT_MS, &lease) == GVM_OK);
    CHILD_EXPECT(access_at(lease.address) == CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHILD_EXPECT(gvm_object_release(w.view, &lease) == GVM_OK);
    return stop(&w);
}

CHILD_TEST(copy_over_chunks_of_both_tiers_carries_each_byte, copy_pieces)
CHILD_TEST(bytes_on_the_host_are_known_under_a_lease, ask_what_is_on_the_host)
CHILD_TEST(copy_with_wrong_arguments_is_refused, pass_wrong_arguments)
CHILD_TEST(copy_into_what_is_read_only_is_refused, copy_read_only)
CHILD_TEST(copy_waits_for_leases_of_others, meet_leases)
CHILD_TEST(lease_for_the_cpu_has_all_on_the_host_and_open_to_it, use_cpu)
CHILD_TEST(part_on_the_device_is_not_open_to_the_cpu, open_a_part)
CHILD_TEST(lease_for_the_cpu_waits_for_leases_on_the_device, meet_leases_for_cpu)
CHILD_TEST(lease_for_the_cpu_without_host_memory_is_refused, find_no_host_memory)
CHILD_TEST(lease_for_the_cpu_with_wrong_options_is_refused, ask_wrongly_for_cpu)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copy_over_chunks_of_both_tiers_carries_each_byte),
        cmocka_unit_test(bytes_on_the_host_are_known_under_a_lease),
        cmocka_unit_test(copy_with_wrong_arguments_is_refused),
        cmocka_unit_test(copy_into_what_is_read_only_is_refused),
        cmocka_unit_test(copy_waits_for_leases_of_others),
        cmocka_unit_test(lease_for_the_cpu_has_all_on_the_host_and_open_to_it),
        cmocka_unit_test(part_on_the_device_is_not_open_to_the_cpu),
        cmocka_unit_test(lease_for_the_cpu_waits_for_leases_on_the_device),
        cmocka_unit_test(lease_for_the_cpu_without_host_memory_is_refused),
        cmocka_unit_test(lease_for_the_cpu_with_wrong_options_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
