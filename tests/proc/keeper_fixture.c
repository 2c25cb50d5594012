/* A keeper and a bystander; see keeper_fixture.h. */
#include "tests/proc/keeper_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/driver.h"
#include "memory/device.h"

#define PINNED_PIECES_MAX 256u

uint64_t still_checksum, other_checksum;
static unsigned pinned_pieces;

/* How many pieces of 2 MiB of pinned memory can be had: on the software GPU, what nobody holds. */
static unsigned count_pinned_pieces(void)
{
    void *pieces[PINNED_PIECES_MAX];
    unsigned count = 0;

    if (!watched_software || gvmi_device_enter(watched_device) != GVM_OK)
        return 0;
    while (count < PINNED_PIECES_MAX &&
           gvmi_cu->cuMemHostAlloc(&pieces[count], 2 * MIB, 0) == CUDA_SUCCESS)
        count++;
    for (unsigned i = 0; i < count; i++)
        gvmi_cu->cuMemFreeHost(pieces[i]);
    gvmi_device_leave();
    return count;
}

bool fixture_learn(void)
{
    const uint64_t bytes = STILL_CHUNKS * CHUNK_BYTES;
    gvm_buffer *buffer = NULL;
    gvm_lease lease;
    bool good = gvm_buffer_create(watched_device, bytes, NULL, &buffer) == GVM_OK &&
                gvm_buffer_commit(buffer, 0, bytes) == GVM_OK;

    lease = (gvm_lease){.address = gvm_buffer_address(buffer), .size_bytes = bytes};
    good = good && life_fill(watched_device, &lease, STILL_SEED) == GVM_OK &&
           life_check(watched_device, &lease, &still_checksum) == GVM_OK &&
           life_fill(watched_device, &lease, OTHER_SEED) == GVM_OK &&
           life_check(watched_device, &lease, &other_checksum) == GVM_OK;
    gvm_buffer_destroy(buffer);
    good = gvm_device_trim(watched_device, 0) == GVM_OK && good;
    pinned_pieces = count_pinned_pieces();
    return EXPECT(good);
}

/* Every frame is a descriptor or two: one that was exported, and on the software GPU the driver's
 * own. */
static bool fds_are_right(const fixture *s, const keeper_answer *now)
{
    const uint64_t bytes = now->device.resident_bytes + now->device.free_bytes +
                           now->keeper.host_used_bytes + now->keeper.host_free_bytes;
    const fd_counts counts = process_count_fds(s->keeper.pid, false);

    return counts.others == s->fds.others &&
           (!watched_software || counts.memory <= s->fds.memory + 2 * (long)(bytes / CHUNK_BYTES));
}

bool fixture_snapshot(fixture *s, keeper_answer *out)
{
    *out = keeper_do(&s->bystander, KEEPER_SNAPSHOT, 0, NULL, 0, 0);
    if (out->status != GVM_OK)
        printf("# a snapshot: %s: %s\n", gvm_status_name(out->status), out->text);
    return EXPECT(out->status == GVM_OK);
}

bool fixture_begin_bystander(fixture *s)
{
    child *b = &s->bystander;

    return KEEPER_OK(b, CONNECT, 0, s->folder.socket, 0, 0) &&
           KEEPER_OK(b, CREATE, 0, STILL_NAME, STILL_CHUNKS, STILL_CHUNKS) &&
           KEEPER_OK(b, PUBLISH, 0, STILL_NAME, GVM_PUBLISH_REPLACE, 0) &&
           KEEPER_OK(b, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS) &&
           KEEPER_OK(b, FILL, 0, NULL, STILL_SEED, 0) && KEEPER_OK(b, RELEASE, 0, NULL, 0, 0);
}

bool fixture_begin(fixture *s, uint32_t lease_limit_ms)
{
    return fixture_begin_timed(s, REVOKE_MS, lease_limit_ms);
}

bool fixture_begin_timed(fixture *s, uint32_t revoke_limit_ms, uint32_t lease_limit_ms)
{
    keeper_answer now;

    memset(s, 0, sizeof *s);
    if (!fixture_folder_make(&s->folder))
        return UNEXPECTED("no folder");
    s->keeper = keeper_child_start();
    s->bystander = keeper_child_start();
    if (!KEEPER_OK(&s->keeper, SERVE, 0, s->folder.socket, revoke_limit_ms, lease_limit_ms) ||
        !fixture_begin_bystander(s))
        return false;
    if (!fixture_snapshot(s, &now))
        return false;
    s->fds = process_count_fds(s->keeper.pid, false);
    s->fds.memory -= 2 * (long)(now.device.resident_bytes / CHUNK_BYTES);
    return true;
}

bool fixture_reads(fixture *s)
{
    keeper_answer out;

    if (!KEEPER_OK(&s->bystander, ACQUIRE, 0, NULL, GVM_LEASE_READ, LEASE_WAIT_MS))
        return false;
    out = keeper_do(&s->bystander, KEEPER_CHECK, 0, NULL, 0, 0);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == still_checksum) &&
           KEEPER_OK(&s->bystander, RELEASE, 0, NULL, 0, 0);
}

bool fixture_writes(fixture *s, uint64_t content)
{
    return KEEPER_OK(&s->bystander, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS) &&
           KEEPER_OK(&s->bystander, FILL, 0, NULL, content, 0) &&
           KEEPER_OK(&s->bystander, RELEASE, 0, NULL, 0, 0);
}

/* Names that clients which were killed may have left behind in their own right. */
static bool drop_leftovers(fixture *s)
{
    static const char *const names[] = {"/victim/public", "/random/0", "/random/1", "/random/2"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        keeper_answer out = keeper_do(&s->bystander, KEEPER_DROP, 0, names[i], 0, 0);

        if (out.status != GVM_OK && out.status != GVM_E_ABSENT) {
            printf("# dropping %s: %s: %s\n", names[i], gvm_status_name(out.status), out.text);
            return false;
        }
    }
    return true;
}

static bool is_settled(const fixture *s, const keeper_answer *now)
{
    return now->keeper.clients == 1 && now->keeper.objects == 1 && now->device.held_bytes == 0 &&
           now->device.leased_bytes == 0 && fds_are_right(s, now);
}

/* A name that the dead had is free, and an object can be made under it. */
static bool names_are_free(fixture *s)
{
    return KEEPER_OK(&s->bystander, CREATE, 1, "/victim", 1, 1) &&
           KEEPER_OK(&s->bystander, ACQUIRE, 1, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS) &&
           KEEPER_OK(&s->bystander, FILL, 1, NULL, 5, 0) &&
           KEEPER_OK(&s->bystander, RELEASE, 1, NULL, 0, 0) &&
           KEEPER_OK(&s->bystander, CLOSE, 1, NULL, 0, 0);
}

bool fixture_is_whole(fixture *s)
{
    keeper_answer now, held;

    /* A write lease needs every other lease to be gone, that of a dead client too. */
    if (!KEEPER_OK(&s->bystander, ACQUIRE, 0, NULL, GVM_LEASE_WRITE, LEASE_WAIT_MS))
        return false;
    held = keeper_do(&s->bystander, KEEPER_CHECK, 0, NULL, 0, 0);
    if (!EXPECT(held.status == GVM_OK) || !EXPECT(held.value == still_checksum) ||
        !KEEPER_OK(&s->bystander, RELEASE, 0, NULL, 0, 0) || !drop_leftovers(s))
        return false;
    for (int ms = 0;; ms += 5) {
        if (!fixture_snapshot(s, &now))
            return false;
        if (is_settled(s, &now))
            return names_are_free(s);
        if (ms >= SETTLE_MS)
            break;
        pause_ms(5);
    }
    printf("# left: %u clients, %u objects, %llu bytes held, %llu leased, %llu resident, %llu free, %llu on the host, %llu free there; fds other than memory's were %ld, memory's %ld:\n",
           now.keeper.clients, now.keeper.objects, (unsigned long long)now.device.held_bytes,
           (unsigned long long)now.device.leased_bytes, (unsigned long long)now.device.resident_bytes,
           (unsigned long long)now.device.free_bytes, (unsigned long long)now.keeper.host_used_bytes,
           (unsigned long long)now.keeper.host_free_bytes, s->fds.others, s->fds.memory);
    (void)process_count_fds(s->keeper.pid, true);
    return false;
}

static bool pinned_memory_is_back(void)
{
    unsigned now = count_pinned_pieces();

    for (int ms = 0; ms < SETTLE_MS / 2 && now < pinned_pieces; ms += 5) {
        pause_ms(5);
        now = count_pinned_pieces();
    }
    if (now >= pinned_pieces)
        return true;
    printf("# %u pieces of 2 MiB of the host's memory have not come back\n", pinned_pieces - now);
    return false;
}

bool fixture_end(fixture *s)
{
    bool good = s->bystander.pid == 0 || EXPECT(child_end(&s->bystander) == 0);

    good = (s->keeper.pid == 0 || EXPECT(child_end(&s->keeper) == 0)) && good;
    fixture_folder_end(&s->folder);
    return EXPECT(memory_is_back()) && EXPECT(pinned_memory_is_back()) && good;
}
