/* Memory that devices of a keeper lend each other, with processes that read it.
 *
 *     keeper_lending          on a machine whose devices reach each other
 *     keeper_lending apart    on one whose devices do not
 *
 * Goal: processes read lent memory as they read memory of the object's own device, those that do not see the lender, too. When
 * the lender's objects need it, it is recalled and nothing is lost, though processes read it or are killed meanwhile. No request
 * waits for memory that has a lease. The keeper runs in this process, its clients are this one and children. On a machine with one device
 * the test is skipped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gvmem/client.h>
#include <gvmem/keeper.h>
#include <gvmem/kernels.h>

#include "tests/lib/child.h"
#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/fixture.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"
#include "tools/snapshot.h"

#define CHUNK_BYTES (2 * MIB)
#define BUDGET_CHUNKS 8u /* of each device, of which it lends seven */
#define LARGE_CHUNKS 12u /* more than its device has */
#define HOST_CHUNKS 32u
#define SETTLE_MS 20000
#define COME_BACK_MS 120000 /* of which the keeper waits 10 s */
#define CHILD_MS 240000     /* of a child that reads, on a busy machine */
#define READS 12u           /* of a reader, while its chunks come and go */

/* ---- what a child does, and answers */

typedef enum verb { VERB_OPEN, VERB_CHECK, VERB_CHECK_MANY, VERB_HOLD, VERB_RELEASE } verb;

typedef struct command {
    verb verb;
    char socket[80], name[32]; /* OPEN */
    uint64_t checksum;         /* CHECK_MANY: that is right */
} command;

typedef struct answer {
    gvm_status status;
    uint64_t value; /* CHECK: checksum; CHECK_MANY: how many were right; OPEN: devices that it sees */
    char text[sizeof((gvm_error *)0)->text];
} answer;

static gvm_status read_object(gvm_device *device, gvm_object *object, gvm_hint hint, uint64_t *checksum)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = hint};
    gvm_lease lease;
    gvm_status status = gvm_object_acquire(object, GVM_LEASE_READ, &options, GVM_FOREVER, &lease);

    if (status != GVM_OK)
        return status;
    status = gvm_kernel_checksum(device, lease.address, lease.size_bytes, NULL, checksum);
    if (gvm_object_release(object, &lease) != GVM_OK)
        status = GVM_E_DRIVER;
    return status;
}

typedef struct reader {
    gvm_device *device;
    gvm_client *keeper;
    gvm_object *object;
    gvm_lease lease;
} reader;

static gvm_status child_opens(reader *r, const command *c, uint64_t *devices)
{
    int32_t count = 0;
    gvm_status status = gvm_device_count(&count);

    *devices = (uint64_t)count;
    if (status == GVM_OK)
        status = gvm_device_open(0, &r->device);
    if (status == GVM_OK)
        status = gvm_client_connect(c->socket, &r->keeper);
    if (status == GVM_OK)
        status = gvm_object_open(r->keeper, c->name, GVM_OPEN_READONLY, &r->object);
    return status;
}

static gvm_status child_checks_many(const reader *r, const command *c, uint64_t *right)
{
    gvm_status status = GVM_OK;

    for (unsigned i = 0; i < READS && status == GVM_OK; i++) {
        uint64_t checksum = 0;

        status = read_object(r->device, r->object, i % 3 == 0 ? GVM_HINT_HOT : GVM_HINT_NONE,
                             &checksum);
        *right += status == GVM_OK && checksum == c->checksum;
    }
    return status;
}

static gvm_status child_does(reader *r, const command *c, uint64_t *value)
{
    switch (c->verb) {
    case VERB_OPEN: return child_opens(r, c, value);
    case VERB_CHECK: return read_object(r->device, r->object, GVM_HINT_SCAN, value);
    case VERB_CHECK_MANY: return child_checks_many(r, c, value);
    case VERB_HOLD:
        return gvm_object_acquire(r->object, GVM_LEASE_READ, NULL, GVM_FOREVER, &r->lease);
    case VERB_RELEASE: return gvm_object_release(r->object, &r->lease);
    default: return GVM_E_INVALID;
    }
}

static int child_main(void)
{
    reader r = {0};
    command c;
    int fd;

    fixture_raise_fd_limit();
    while (child_next(&c, sizeof c, &fd)) {
        answer a = {.value = 0};
        gvm_error error;

        a.status = child_does(&r, &c, &a.value);
        gvm_error_last(&error);
        if (a.status != GVM_OK)
            snprintf(a.text, sizeof a.text, "%s", error.text);
        if (!child_answer(&a, sizeof a, -1))
            break;
    }
    gvm_object_close(r.object);
    gvm_client_close(r.keeper);
    gvm_device_close(r.device);
    return 0;
}

/* ---- the test's side */

typedef struct fixture {
    fixture_folder folder;
    gvm_device *devices[2];
    gvm_keeper *server;
    gvm_client *keeper;
    gvm_object *large; /* on device 0 */
    uint64_t checksum; /* its */
} fixture;

static fixture w;

static void command_child(child *c, verb what)
{
    command said = {.verb = what, .checksum = w.checksum};

    snprintf(said.socket, sizeof said.socket, "%s", w.folder.socket);
    snprintf(said.name, sizeof said.name, "/large");
    if (!child_post(c, &said, sizeof said, -1))
        printf("# a child is dead\n");
}

static bool answers(child *c, uint64_t *value)
{
    answer a = {.status = GVM_E_SYSTEM};
    const char *wrong = child_wait(c, &a, sizeof a, NULL);

    if (wrong != NULL || a.status != GVM_OK)
        printf("# a child: %s %s %s\n", wrong != NULL ? wrong : "", gvm_status_name(a.status), a.text);
    *value = a.value;
    return wrong == NULL && a.status == GVM_OK;
}

static bool child_did(child *c, verb what, uint64_t *value)
{
    command_child(c, what);
    return answers(c, value);
}

/* One process sees one device alone: a real one is told so in the first way, the software GPU in the second. */
static bool start_reader(child *c, bool sees_one, uint64_t *devices)
{
    const char *machine = getenv("GVMEM_SOFTGPU");
    char before[200] = "", after[200];
    char *count;

    if (sees_one) {
        snprintf(before, sizeof before, "%s", machine != NULL ? machine : "");
        snprintf(after, sizeof after, "%s", before);
        setenv("CUDA_VISIBLE_DEVICES", "0", 1);
        count = strstr(after, "devices=2");
        if (count != NULL) {
            count[strlen("devices=")] = '1';
            setenv("GVMEM_SOFTGPU", after, 1);
        }
    }
    *c = child_must_start("reader");
    c->limit_ms = CHILD_MS;
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (before[0] != '\0')
        setenv("GVMEM_SOFTGPU", before, 1);
    return child_did(c, VERB_OPEN, devices);
}

static gvm_status make(const char *name, int32_t device, uint64_t chunks, gvm_object **out)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .size_bytes = chunks * CHUNK_BYTES,
                                        .flags = GVM_OBJECT_KEEP,
                                        .device = device};

    return gvm_object_create(w.keeper, name, chunks * CHUNK_BYTES, &options, out);
}

static bool fill(gvm_object *object, int32_t device, uint64_t seed, uint64_t *checksum)
{
    gvm_lease lease;
    bool good = expect_gvm_ok(gvm_object_acquire(object, GVM_LEASE_WRITE, NULL, GVM_FOREVER, &lease),
                              "acquire to write");

    if (!good)
        return false;
    good = expect_gvm_ok(gvm_kernel_fill_random_f64(w.devices[device], lease.address,
                                                    lease.size_bytes / sizeof(double), 0, seed, NULL),
                         "fill") &&
           expect_gvm_ok(gvm_kernel_checksum(w.devices[device], lease.address, lease.size_bytes,
                                             NULL, checksum),
                         "checksum");
    return expect_gvm_ok(gvm_object_release(object, &lease), "release") && good;
}

static bool begin(uint64_t host_chunks, const int32_t *lenders, uint32_t lender_count)
{
    static const int32_t devices[] = {0, 1}; /* a third would lend as well, and the counts be others */
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = w.folder.socket,
                                        .devices = devices,
                                        .device_count = 2,
                                        .device_budget_bytes = BUDGET_CHUNKS * CHUNK_BYTES,
                                        .host_budget_bytes = host_chunks * CHUNK_BYTES,
                                        .device_keep_bytes = CHUNK_BYTES,
                                        .lenders = lenders,
                                        .lender_count = lender_count};

    return expect_gvm_ok(gvm_keeper_start(&options, &w.server), "starting a keeper") &&
           expect_gvm_ok(gvm_client_connect(w.folder.socket, &w.keeper), "connecting") &&
           expect_gvm_ok(make("/large", 0, LARGE_CHUNKS, &w.large), "an object") &&
           fill(w.large, 0, 7, &w.checksum);
}

static gvm_keeper_device_info device_info(uint32_t index)
{
    gvm_keeper_device_info info = {0};
    snapshot_copy *s = NULL;

    if (expect_gvm_ok(snapshot_take(w.keeper, &s), "snapshot"))
        info = s->devices[index];
    snapshot_free(s);
    return info;
}

static gvm_object_info object_info(gvm_object *object)
{
    gvm_object_info info = {.struct_size = sizeof info};

    (void)expect_gvm_ok(gvm_object_get_info(object, &info), "info");
    return info;
}

static bool places_are(uint64_t device, uint64_t lent, uint64_t host)
{
    const gvm_object_info info = object_info(w.large);

    if (info.device_bytes == device * CHUNK_BYTES && info.lent_bytes == lent * CHUNK_BYTES &&
        info.host_bytes == host * CHUNK_BYTES)
        return true;
    printf("# %llu on the device, %llu lent, %llu on the host\n",
           (unsigned long long)(info.device_bytes / CHUNK_BYTES),
           (unsigned long long)(info.lent_bytes / CHUNK_BYTES),
           (unsigned long long)(info.host_bytes / CHUNK_BYTES));
    return false;
}

static bool reads_right(void)
{
    uint64_t checksum = 0;

    return expect_gvm_ok(read_object(w.devices[0], w.large, GVM_HINT_SCAN, &checksum), "reading") &&
           EXPECT(checksum == w.checksum);
}

/* Nothing is left at the keeper. */
static bool end(void)
{
    const uint64_t until = now_ms() + SETTLE_MS;
    gvm_keeper_device_info first, second;
    bool good = true;

    gvm_object_close(w.large);
    w.large = NULL;
    (void)gvm_object_drop(w.keeper, "/large");
    do {
        first = device_info(0);
        second = device_info(1);
        good = first.resident_bytes + first.held_bytes + second.resident_bytes + second.held_bytes +
                   first.lent_bytes + second.lent_bytes ==
               0;
        pause_ms(good ? 0 : 10);
    } while (!good && now_ms() < until);
    gvm_client_close(w.keeper);
    gvm_keeper_stop(w.server);
    w.keeper = NULL;
    w.server = NULL;
    return EXPECT(good);
}

/* ---- the cases */

static bool object_larger_than_its_device_is_partly_lent_and_read(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    uint8_t states[LARGE_CHUNKS] = {0};
    uint64_t count = 0;
    unsigned lent = 0;

    good = good && EXPECT(places_are(8, 4, 0)) && reads_right();
    good = good && EXPECT(device_info(1).lent_bytes == 4 * CHUNK_BYTES) &&
           EXPECT(device_info(0).lent_bytes == 0) &&
           expect_gvm_ok(gvm_client_list_chunks(w.keeper, "/large", 0, LARGE_CHUNKS, states, &count),
                         "chunks");
    for (unsigned i = 0; i < LARGE_CHUNKS; i++)
        lent += states[i] == GVM_CHUNK_LENT;
    return end() && good && EXPECT(lent == 4);
}

static bool process_that_does_not_see_the_lender_reads_what_it_lends(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    uint64_t devices = 0, checksum = 0;
    child c;

    good = good && start_reader(&c, true, &devices) && EXPECT(devices == 1) &&
           child_did(&c, VERB_CHECK, &checksum) && EXPECT(checksum == w.checksum) &&
           EXPECT(places_are(8, 4, 0));
    if (devices != 0)
        good = EXPECT(child_end(&c) == 0) && good;
    return end() && good;
}

static bool lender_that_grows_has_its_memory_back_and_nothing_is_lost(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    gvm_object *own = NULL;
    uint64_t checksum = 0, found = 0;

    good = good && expect_gvm_ok(make("/own", 1, BUDGET_CHUNKS, &own), "the lender's own object") &&
           EXPECT(object_info(own).device_bytes == BUDGET_CHUNKS * CHUNK_BYTES) &&
           EXPECT(places_are(8, 0, 4)) && fill(own, 1, 8, &checksum) && reads_right() &&
           expect_gvm_ok(read_object(w.devices[1], own, GVM_HINT_SCAN, &found), "reading it") &&
           EXPECT(found == checksum);
    gvm_object_close(own);
    (void)gvm_object_drop(w.keeper, "/own");
    return end() && good;
}

/* The keeper waits for ten seconds in which the lender wants nothing back. */
static bool what_is_used_on_the_host_is_lent_memory_once_there_is_room(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    gvm_object *own = NULL;
    uint64_t until;

    good = good && expect_gvm_ok(make("/own", 1, BUDGET_CHUNKS, &own), "the lender's own object") &&
           EXPECT(places_are(8, 0, 4)) && reads_right();
    gvm_object_close(own);
    (void)gvm_object_drop(w.keeper, "/own");
    until = now_ms() + COME_BACK_MS;
    while (good && object_info(w.large).host_bytes > 0 && now_ms() < until) {
        good = reads_right();
        pause_ms(100);
    }
    good = good && EXPECT(places_are(8, 4, 0)) && reads_right();
    return end() && good;
}

static bool lease_on_lent_memory_keeps_nobody_waiting(void)
{
    bool good = begin(1, NULL, 0);
    gvm_object *own = NULL;
    gvm_lease lease;

    if (!good)
        return false;
    good = expect_gvm_ok(gvm_object_acquire(w.large, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease),
                         "acquire");
    good = EXPECT(make("/own", 1, BUDGET_CHUNKS, &own) == GVM_E_NOSPACE) && good;
    good = EXPECT(places_are(8, 4, 0)) && good;
    good = expect_gvm_ok(make("/half", 1, 4, &own), "what fits beside") && good;
    gvm_object_close(own);
    good = expect_gvm_ok(gvm_object_release(w.large, &lease), "release") && good;
    (void)gvm_object_drop(w.keeper, "/half");
    return end() && good;
}

/* The lender's objects come and go while others read the chunks that it lends. */
static bool readers_find_all_while_the_lender_takes_memory_and_gives_it(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    uint64_t right[2] = {0};
    uint64_t devices;
    child readers[2];
    unsigned started = 0;

    for (; started < 2 && good; started++)
        good = start_reader(&readers[started], started == 0, &devices);
    for (unsigned i = 0; i < started && good; i++)
        command_child(&readers[i], VERB_CHECK_MANY);
    for (unsigned round = 0; round < 5 && good; round++) {
        gvm_object *own = NULL;
        uint64_t checksum = 0;

        good = expect_gvm_ok(make("/own", 1, BUDGET_CHUNKS - round % 3, &own), "an object") &&
               fill(own, 1, round, &checksum);
        gvm_object_close(own);
        (void)gvm_object_drop(w.keeper, "/own");
    }
    for (unsigned i = 0; i < started; i++) {
        good = answers(&readers[i], &right[i]) && EXPECT(right[i] == READS) && good;
        good = EXPECT(child_end(&readers[i]) == 0) && good;
    }
    good = good && reads_right();
    return end() && good;
}

/* Two objects do not fit their device together: what leaves it goes to the other one, and nothing to the host. */
static bool objects_change_places_without_the_host(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    gvm_object *small = NULL;
    uint64_t checksum = 0, found = 0;

    gvm_object_close(w.large);
    (void)gvm_object_drop(w.keeper, "/large");
    w.large = NULL;
    good = good && expect_gvm_ok(make("/large", 0, 6, &w.large), "an object") &&
           fill(w.large, 0, 9, &w.checksum) &&
           expect_gvm_ok(make("/small", 0, 4, &small), "another") && fill(small, 0, 10, &checksum);
    for (unsigned i = 0; i < 6 && good; i++)
        good = expect_gvm_ok(read_object(w.devices[0], small, GVM_HINT_HOT, &found), "reading") &&
               EXPECT(found == checksum) &&
               expect_gvm_ok(read_object(w.devices[0], w.large, GVM_HINT_HOT, &found), "reading") &&
               EXPECT(found == w.checksum) && EXPECT(object_info(small).host_bytes == 0) &&
               EXPECT(object_info(w.large).host_bytes == 0);
    good = good && EXPECT(device_info(0).evictions > 0) && EXPECT(device_info(0).promotions > 0);
    gvm_object_close(small);
    (void)gvm_object_drop(w.keeper, "/small");
    return end() && good;
}

static bool reader_that_is_killed_leaves_nothing(void)
{
    bool good = begin(HOST_CHUNKS, NULL, 0);
    gvm_object *own = NULL;
    uint64_t value = 0;
    child c;

    if (!good || !start_reader(&c, false, &value))
        return false;
    good = child_did(&c, VERB_HOLD, &value);
    child_kill(&c);
    /* Its lease ends with it, shortly. */
    for (const uint64_t until = now_ms() + SETTLE_MS; good && now_ms() < until;) {
        if (own == NULL)
            good = expect_gvm_ok(make("/own", 1, BUDGET_CHUNKS, &own), "the lender's object");
        if (good && device_info(1).lent_bytes == 0)
            break;
        gvm_object_close(own);
        own = NULL;
        (void)gvm_object_drop(w.keeper, "/own");
        pause_ms(20);
    }
    good = EXPECT(device_info(1).lent_bytes == 0) && reads_right() && good;
    gvm_object_close(own);
    (void)gvm_object_drop(w.keeper, "/own");
    return end() && good;
}

static bool devices_that_are_not_named_lend_nothing(void)
{
    const int32_t other[] = {0};
    bool good = begin(HOST_CHUNKS, other, 1) && EXPECT(places_are(8, 0, 4)) && reads_right();

    good = end() && good;
    good = begin(HOST_CHUNKS, other, 0) && EXPECT(places_are(8, 0, 4)) && good;
    return end() && good;
}

static bool lender_that_is_not_served_is_refused(void)
{
    const int32_t wrong[] = {5};
    const gvm_keeper_options options = {.struct_size = sizeof options,
                                        .path = w.folder.socket,
                                        .device_budget_bytes = BUDGET_CHUNKS * CHUNK_BYTES,
                                        .lenders = wrong,
                                        .lender_count = 1};
    gvm_keeper *server = NULL;

    return EXPECT(gvm_keeper_start(&options, &server) == GVM_E_INVALID);
}

static bool devices_that_do_not_reach_each_other_lend_nothing(void)
{
    const bool good = begin(HOST_CHUNKS, NULL, 0) && EXPECT(places_are(8, 0, 4)) && reads_right();

    return end() && good;
}

#define TEST(name) tap_result(name(), #name)

int main(int argc, char **argv)
{
    const bool apart = argc == 2 && strcmp(argv[1], "apart") == 0;
    int32_t count = 0;

    if (child_is(argc, argv, "reader"))
        return child_main();
    fixture_machine_default("devices=2,memory=256MiB,sms=2,peers=%d", apart ? 1 : 2);
    fixture_raise_fd_limit();
    memory_watch();
    if (!expect_gvm_ok(gvm_device_count(&count), "counting devices"))
        return 2;
    if (count < 2) {
        printf("1..0 # SKIP there is one device\n");
        return 0;
    }
    if (!fixture_folder_make(&w.folder) ||
        !expect_gvm_ok(gvm_device_open(0, &w.devices[0]), "opening a device") ||
        !expect_gvm_ok(gvm_device_open(1, &w.devices[1]), "opening the other")) {
        printf("Bail out! no devices\n");
        return 2;
    }
    if (apart) {
        TEST(devices_that_do_not_reach_each_other_lend_nothing);
    } else {
        TEST(object_larger_than_its_device_is_partly_lent_and_read);
        TEST(process_that_does_not_see_the_lender_reads_what_it_lends);
        TEST(lender_that_grows_has_its_memory_back_and_nothing_is_lost);
        TEST(what_is_used_on_the_host_is_lent_memory_once_there_is_room);
        TEST(lease_on_lent_memory_keeps_nobody_waiting);
        TEST(readers_find_all_while_the_lender_takes_memory_and_gives_it);
        TEST(objects_change_places_without_the_host);
        TEST(reader_that_is_killed_leaves_nothing);
        TEST(devices_that_are_not_named_lend_nothing);
        TEST(lender_that_is_not_served_is_refused);
    }
    gvm_device_close(w.devices[0]);
    gvm_device_close(w.devices[1]);
    fixture_folder_end(&w.folder);
    memory_watch_end();
    return tap_finish();
}
