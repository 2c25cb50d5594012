/* One memory in several processes.
 *
 *     share [SIZE_MIB]
 *
 * Goal: what the exporter wrote is what every importer reads, through growth, sealing and passing
 * on, also after the exporter has gone; who may only read breaks nobody but himself; and the memory
 * is free when the last has let go. Method: children.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/proc/buffer_child.h"

#define IMPORTERS 3
#define SEED 42

static uint64_t size;

/* An exporter with a filled buffer of size bytes, reserving twice as much, and importers
 * connected to it. */
typedef struct group {
    child exporter, importers[IMPORTERS];
    uint64_t checksum;
} group;

static bool export_filled(group *g, uint64_t chunk_bytes)
{
    child *p = &g->exporter;
    answer out;

    *p = buffer_child_start();
    if (!EXPECT_OK(p, OPEN, 0, 0) || !EXPECT_OK(p, CREATE, 2 * size, chunk_bytes) ||
        !EXPECT_OK(p, COMMIT, 0, size) || !EXPECT_OK(p, FILL, size, SEED))
        return false;
    out = buffer_do(p, BUFFER_CHECKSUM, 0, size);
    g->checksum = out.value;
    return EXPECT(out.status == GVM_OK) && EXPECT_OK(p, EXPORT, 0, 0);
}

/* From one child to another, which runs at the same time. */
static bool hand_over(child *from, child *to)
{
    answer sent, received;

    buffer_connect(from, to);
    buffer_post(from, BUFFER_SEND, 0, 0);
    buffer_post(to, BUFFER_RECEIVE, 0, 0);
    (void)buffer_wait(from, &sent);
    (void)buffer_wait(to, &received);
    if (sent.status != GVM_OK || received.status != GVM_OK)
        printf("# sent: %s, received: %s\n", sent.text, received.text);
    return EXPECT(sent.status == GVM_OK) && EXPECT(received.status == GVM_OK);
}

static bool import_by(child *from, child *to, uint64_t flags)
{
    *to = buffer_child_start();
    return EXPECT_OK(to, OPEN, 0, 0) && hand_over(from, to) && EXPECT_OK(to, IMPORT, flags, 2 * size);
}

static bool has(child *p, uint64_t len, uint64_t checksum)
{
    answer out = buffer_do(p, BUFFER_CHECKSUM, 0, len);

    if (out.status != GVM_OK)
        printf("# checksum: %s\n", out.text);
    return EXPECT(out.status == GVM_OK) && EXPECT(out.value == checksum);
}

static bool start_group(group *g, uint64_t flags)
{
    bool good;

    *g = (group){0};
    good = export_filled(g, 0);
    for (int i = 0; i < IMPORTERS && good; i++)
        good = import_by(&g->exporter, &g->importers[i], flags);
    return good;
}

static bool end_group(group *g)
{
    bool good = g->exporter.pid == 0 || EXPECT(child_end(&g->exporter) == 0);

    for (int i = 0; i < IMPORTERS; i++)
        if (g->importers[i].pid != 0)
            good = EXPECT(child_end(&g->importers[i]) == 0) && good;
    return EXPECT(memory_is_back()) && good;
}

static bool processes_see_one_memory(void)
{
    group g;
    bool good = start_group(&g, 0);

    for (int i = 0; i < IMPORTERS && good; i++)
        good = has(&g.importers[i], size, g.checksum);
    /* What one importer writes, all see. */
    good = good && EXPECT_OK(&g.importers[0], FILL, size, SEED + 1) &&
           EXPECT_OK(&g.importers[0], SYNC, 0, 0);
    if (good)
        g.checksum = buffer_do(&g.importers[0], BUFFER_CHECKSUM, 0, size).value;
    for (int i = 1; i < IMPORTERS && good; i++)
        good = has(&g.importers[i], size, g.checksum);
    good = good && has(&g.exporter, size, g.checksum);
    return end_group(&g) && good;
}

static bool memory_outlives_its_exporter(void)
{
    group g;
    bool good = start_group(&g, 0);

    good = EXPECT(child_end(&g.exporter) == 0) && good;
    for (int i = 0; i < IMPORTERS && good; i++)
        good = has(&g.importers[i], size, g.checksum);
    return end_group(&g) && good;
}

static bool write_to_readonly_import_breaks_the_offender_alone(void)
{
    group g;
    bool good = start_group(&g, GVM_IMPORT_READONLY);
    child *offender = &g.importers[1];
    answer out;

    if (good) {
        out = buffer_do(offender, BUFFER_FILL, size, SEED + 1); /* the driver may tell at once or later */
        good = EXPECT(out.status == GVM_OK || out.status == GVM_E_LOST) &&
               EXPECT_STATUS(offender, SYNC, 0, 0, GVM_E_LOST);
    }
    good = good && has(&g.exporter, size, g.checksum) && has(&g.importers[0], size, g.checksum) &&
           has(&g.importers[2], size, g.checksum);
    return end_group(&g) && good;
}

static bool growth_reaches_importers_by_update(void)
{
    group g;
    bool good = start_group(&g, 0);
    uint64_t checksum = 0;

    good = good && EXPECT_OK(&g.exporter, COMMIT, size, size) &&
           EXPECT_OK(&g.exporter, FILL, 2 * size, SEED + 2) && EXPECT_OK(&g.exporter, SYNC, 0, 0) &&
           EXPECT_OK(&g.exporter, EXPORT, 0, 0);
    if (good)
        checksum = buffer_do(&g.exporter, BUFFER_CHECKSUM, 0, 2 * size).value;
    for (int i = 0; i < IMPORTERS && good; i++)
        good = hand_over(&g.exporter, &g.importers[i]) &&
               EXPECT_OK(&g.importers[i], UPDATE, 0, 0) && has(&g.importers[i], 2 * size, checksum);
    return end_group(&g) && good;
}

static bool seal_reaches_importers_by_update(void)
{
    group g;
    bool good = start_group(&g, 0);
    answer out = {0};

    good = good && EXPECT_OK(&g.exporter, SEAL, 0, 0) && EXPECT_OK(&g.exporter, EXPORT, 0, 0) &&
           hand_over(&g.exporter, &g.importers[0]) && EXPECT_OK(&g.importers[0], UPDATE, 0, 0);
    if (good) {
        out = buffer_do(&g.importers[0], BUFFER_FILL, size, SEED + 1);
        good = EXPECT(out.status == GVM_OK || out.status == GVM_E_LOST) &&
               EXPECT_STATUS(&g.importers[0], SYNC, 0, 0, GVM_E_LOST);
    }
    good = good && has(&g.importers[1], size, g.checksum);
    return end_group(&g) && good;
}

static bool importer_passes_memory_on(void)
{
    group g = {0};
    bool good = export_filled(&g, 0);
    child *first = &g.importers[0], *second = &g.importers[1];

    good = good && import_by(&g.exporter, first, 0) &&
           EXPECT_STATUS(first, EXPORT, 0, 0, GVM_E_IMPORTED) && import_by(first, second, 0);
    if (good) {
        child_kill(&g.exporter);
        child_kill(first);
    }
    good = good && has(second, size, g.checksum);
    return end_group(&g) && good;
}

static bool import_at_the_exporters_address(void)
{
    group g = {0};
    bool good = export_filled(&g, 0);

    *&g.importers[0] = buffer_child_start();
    good = good && EXPECT_OK(&g.importers[0], OPEN, 0, 0) && hand_over(&g.exporter, &g.importers[0]);
    if (good) {
        answer out = buffer_do(&g.importers[0], BUFFER_IMPORT, GVM_IMPORT_SAME_ADDRESS, 0);

        /* The addresses may be taken in that process; then it must say so. */
        if (out.status == GVM_E_ADDRESS)
            printf("# the exporter's addresses are taken in the importer: %s\n", out.text);
        else
            good = EXPECT(out.status == GVM_OK) &&
                   EXPECT(buffer_do(&g.importers[0], BUFFER_ADDRESS, 0, 0).value ==
                          buffer_do(&g.exporter, BUFFER_ADDRESS, 0, 0).value);
    }
    return end_group(&g) && good;
}

/* 300 chunks do not fit into one message of 253 fds. */
static bool share_of_many_chunks_arrives(void)
{
    const uint64_t kept = size;
    group g = {0};
    bool good;

    size = 600 * MIB;
    good = export_filled(&g, 2 * MIB) && import_by(&g.exporter, &g.importers[0], 0) &&
           has(&g.importers[0], size, g.checksum);
    good = end_group(&g) && good;
    size = kept;
    return good;
}

static bool moved_chunks_reach_importers_by_update(void)
{
    group g = {0};
    bool good = export_filled(&g, 0) && import_by(&g.exporter, &g.importers[0], 0);

    /* The importer keeps the old memory until it is sent the change. */
    good = good && EXPECT_OK(&g.exporter, MOVE, GVM_TIER_HOST, 0) &&
           has(&g.importers[0], size, g.checksum) && EXPECT_OK(&g.exporter, EXPORT, 0, 0) &&
           hand_over(&g.exporter, &g.importers[0]) && EXPECT_OK(&g.importers[0], UPDATE, 0, 0) &&
           has(&g.importers[0], size, g.checksum);
    return end_group(&g) && good;
}

static bool ipc_handle_opens_elsewhere(void)
{
    group g = {0};
    bool good = export_filled(&g, 0);
    child *p = &g.importers[0];
    answer out, sum;

    *p = buffer_child_start();
    out = buffer_do(&g.exporter, BUFFER_IPC_EXPORT, size, 0);
    good = good && EXPECT(out.status == GVM_OK) && EXPECT_OK(p, OPEN, 0, 0);
    good = good && EXPECT(buffer_open_ipc(p, &out.handle).status == GVM_OK);
    if (good) {
        sum = buffer_do(p, BUFFER_IPC_CHECKSUM, size, 0);
        good = EXPECT(sum.status == GVM_OK) && EXPECT(sum.value == g.checksum);
    }
    good = good && EXPECT_OK(p, IPC_CLOSE, 0, 0) && EXPECT_STATUS(p, IPC_CLOSE, 0, 0, GVM_E_FOREIGN);
    return end_group(&g) && good;
}

static bool share_of_another_device_is_refused(void)
{
    group g = {0};
    int32_t count = 0;
    bool good;

    if (gvm_device_count(&count) != GVM_OK || count < 2)
        return true;
    good = export_filled(&g, 0);
    g.importers[0] = buffer_child_start();
    good = good && EXPECT_OK(&g.importers[0], OPEN, 1, 0) && hand_over(&g.exporter, &g.importers[0]) &&
           EXPECT_STATUS(&g.importers[0], IMPORT, 0, 0, GVM_E_OTHERDEVICE);
    return end_group(&g) && good;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } tests[] = {
#define TEST(name) {#name, name}
        TEST(processes_see_one_memory),
        TEST(memory_outlives_its_exporter),
        TEST(write_to_readonly_import_breaks_the_offender_alone),
        TEST(growth_reaches_importers_by_update),
        TEST(seal_reaches_importers_by_update),
        TEST(importer_passes_memory_on),
        TEST(import_at_the_exporters_address),
        TEST(share_of_many_chunks_arrives),
        TEST(moved_chunks_reach_importers_by_update),
        TEST(ipc_handle_opens_elsewhere),
        TEST(share_of_another_device_is_refused),
#undef TEST
    };

    buffer_child_main(argc, argv);
    size = (argc > 1 ? strtoull(argv[1], NULL, 0) : 64) * MIB;
    if (argc > 2 || size == 0) {
        fprintf(stderr, "usage: share [SIZE_MIB]\n");
        return 2;
    }
    buffer_test_begin(3 * size > 1024 * MIB ? 3 * size : 1024 * MIB);
    memory_note();
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tap_result(tests[i].run(), "%s", tests[i].name);
    memory_watch_end();
    return tap_finish();
}
