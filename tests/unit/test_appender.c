/* appender/: positions, limits, kernels that do not behave, calls out of turn, the library's thread.
 * The test is the kernel (appender_fixture.h). */
#include <pthread.h>
#include <signal.h>

#include "tests/lib/fixture.h"
#include "tests/lib/units.h"
#include "tests/unit/appender_fixture.h"

/* ---- where things lie */

static int be_places(void *arg)
{
    static const uint32_t aligns[] = {0, 1, 2, 8, 16, 32, 256, 4096};
    gvm_append_place place;
    uint64_t rows = 0, lowest;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    lowest = append.address + append.reserve_bytes;
    for (int round = 0; round < 100; round++)
        for (size_t i = 0; i < sizeof aligns / sizeof aligns[0]; i++) {
            const uint64_t n = (uint64_t)round % 3, bytes = (uint64_t)round * 37 % 5000;

            CHILD_EXPECT(write_place(n, bytes, aligns[i], &place) == GVM_APPEND_OK);
            if (n + bytes == 0) {
                CHILD_EXPECT(place.amount == 0);
                continue;
            }
            CHILD_EXPECT(place.row == rows);
            CHILD_EXPECT((uint64_t)(uintptr_t)place.rows == append.address + rows * ROW);
            CHILD_EXPECT(aligns[i] == 0 || (uintptr_t)place.bytes % aligns[i] == 0);
            CHILD_EXPECT((uint64_t)(uintptr_t)place.bytes == append.address + place.bytes_offset);
            CHILD_EXPECT((uint64_t)(uintptr_t)place.bytes + bytes <= lowest);
            rows += n;
            lowest -= 16 * gvm_append_units_of(place.amount);
            CHILD_EXPECT((uint64_t)(uintptr_t)place.bytes >= lowest);
            CHILD_EXPECT(gvm_append_units_of(place.amount) * 16 < bytes + 4096 + 16);
        }
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(result.complete == 1 && result.reason == GVM_OK && result.rows == rows);
    CHILD_EXPECT(result.data_bytes == append.address + append.reserve_bytes - lowest);
    CHILD_EXPECT(result.commits > 0 && result.first_us > 0);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_aligned_unit(void *arg)
{
    const gvm_appender_options options = {.align_bytes = 4096};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(0, 64 * CHUNK, &options));
    CHILD_EXPECT(info().align_bytes == 4096);
    CHILD_EXPECT(begin() == GVM_OK);
    for (int i = 0; i < 100; i++) {
        CHILD_EXPECT(write_place(1, 1 + (uint64_t)i * 100, 4096, &place) == GVM_APPEND_OK);
        CHILD_EXPECT((uintptr_t)place.bytes % 4096 == 0);
        CHILD_EXPECT(gvm_append_units_of(place.amount) == ((uint64_t)i * 100) / 4096 + 1);
    }
    /* Rows of no size are counted. */
    CHILD_EXPECT(write_place(1000000, 0, 0, &place) == GVM_APPEND_OK && place.row == 100);
    CHILD_EXPECT(finish() == GVM_OK && result.rows == 1000100 && info().front_bytes == 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* A reservation of one chunk, filled to its last byte from both ends. */
static int be_meeting(void *arg)
{
    const uint64_t *cursor;
    gvm_append_place place;
    uint64_t last;

    (void)arg;
    CHILD_EXPECT(start(ROW, CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    cursor = &((const gvm_append_words *)(uintptr_t)append.words)->cursor;
    for (int i = 0; i < 1024; i++)
        CHILD_EXPECT(write_place(16, 1024, 16, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
    last = *cursor; /* behind the end nothing is added any more: the fields must not overflow */
    CHILD_EXPECT(write_place(0, 1, 0, &place) == GVM_APPEND_FULL && *cursor == last);
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(result.complete == 0 && result.reason == GVM_E_LIMIT);
    CHILD_EXPECT(result.rows == 16 * 1024 && result.data_bytes == 1024 * 1024);
    CHILD_EXPECT(stop());
    return 0;
}

/* More than an addition may take, more than a chunk, rows larger than chunks. */
static int be_large(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(5 * MIB, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 5 * MIB, 4096, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(write_place(2, 1, 1, &place) == GVM_APPEND_OK && place.row == 1);
    CHILD_EXPECT(write_place(0, 20 * MIB, 1, &place) == GVM_APPEND_OK);
    /* What does not fit closes it for all that come later, whichever way it was tried. */
    CHILD_EXPECT(write_place(0, 120 * MIB, 1, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(write_place(0, 1, 1, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0);
    CHILD_EXPECT(result.rows == 3 && result.data_bytes >= 25 * MIB);
    CHILD_EXPECT(stop());
    return 0;
}

/* Between a swap that does not fit and the end that it sets nobody else gets anything. */
static int be_closing(void *arg)
{
    gvm_append_place place;
    gvm_append_words *words;
    uint64_t old;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(10, 0, 0, &place) == GVM_APPEND_OK);
    words = (gvm_append_words *)(uintptr_t)append.words;
    CHILD_EXPECT(gvm_append_swap(&append, words, 64 * CHUNK / ROW, 0, &old) == GVM_APPEND_FULL);
    CHILD_EXPECT(words->end == GVM_APPEND_NO_END && old == gvm_append_position(10, 0));
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(gvm_append_fail(words, old) == GVM_APPEND_FULL);
    CHILD_EXPECT(finish() == GVM_OK && result.rows == 10 && result.complete == 0);
    CHILD_EXPECT(stop());
    return 0;
}

/* What could never be had disturbs nobody. */
static int be_impossible(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 8 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(gvm_append_claim(&append, 8 * CHUNK / ROW + 1, 0, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, UINT64_MAX, 0, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 0, UINT64_MAX, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 0, UINT64_MAX, 4096, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 0, 8 * CHUNK + 1, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 1ull << 32, 1ull << 36, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 1, 8 * CHUNK, 0, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 1, 1, 3, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim(&append, 1, 1, 8192, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim_warp(&append, UINT64_MAX, 1, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim_block(&append, 1, UINT64_MAX, 1, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(gvm_append_claim_whole_block(&append, 1, 1, 5, &place) == GVM_APPEND_INVALID);
    CHILD_EXPECT(write_place(8 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == 8 * CHUNK / ROW);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- budget */

static int be_budget(void *arg)
{
    const gvm_appender_options options = {.budget_bytes = 4 * CHUNK + 5};
    gvm_append_place place;
    gvm_buffer *buffer;
    uint64_t rows = 0;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    for (int round = 0; round < 2; round++) {
        CHILD_EXPECT(begin() == GVM_OK && append.capacity_bytes == 4 * CHUNK);
        for (rows = 0; write_place(8, 100, 1, &place) == GVM_APPEND_OK; rows += 8)
            CHILD_EXPECT(rows < 1u << 20);
        CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
        CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.reason == GVM_E_LIMIT);
        CHILD_EXPECT(result.rows == rows && rows * ROW + result.data_bytes > 2 * CHUNK);
        CHILD_EXPECT(info().front_bytes + info().back_bytes == 4 * CHUNK);
        CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK);
        gvm_buffer_destroy(buffer);
    }
    CHILD_EXPECT(stop());
    return 0;
}

/* Looking ahead at one end leaves the other its first chunk. */
static int be_small_budget(void *arg)
{
    const gvm_appender_options options = {.budget_bytes = 2 * CHUNK};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    for (int i = 0; i < 1000; i++)
        CHILD_EXPECT(write_place(32, 0, 0, &place) == GVM_APPEND_OK); /* nearly the whole first chunk */
    CHILD_EXPECT(write_place(0, CHUNK, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(write_place(CHUNK / ROW, 0, 0, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(finish() == GVM_OK && result.rows == 32000 && result.data_bytes == CHUNK);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_lowered_budget(void *arg)
{
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(gvm_appender_set_budget(appender, CHUNK) == GVM_E_INVALID);
    CHILD_EXPECT(write_place(3 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(gvm_appender_set_budget(appender, CHUNK - 1) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_set_budget(appender, 2 * CHUNK) == GVM_OK);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_FULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0 && result.rows == 3 * CHUNK / ROW);
    CHILD_EXPECT(begin() == GVM_OK); /* nothing tried */
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1 && result.rows == 3 * CHUNK / ROW);
    CHILD_EXPECT(gvm_appender_set_budget(appender, 0) == GVM_E_INVALID); /* is no bytes, not the default */
    CHILD_EXPECT(gvm_appender_set_budget(appender, GVM_BYTES_UNLIMITED) == GVM_OK);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 0, 0, &place) == GVM_APPEND_OK && place.row == 3 * CHUNK / ROW);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- kernels that do not behave */

static int be_torn(void *arg)
{
    gvm_append_place place;
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(5, 5, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(gvm_append_claim(&append, 1, 0, 0, &place) == GVM_APPEND_OK); /* never published */
    CHILD_EXPECT(finish() == GVM_E_TORN && info().torn && !info().begun);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_E_TORN);
    CHILD_EXPECT(begin() == GVM_E_TORN);
    CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK && !info().torn);
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(5, 5, 1, &place) == GVM_APPEND_OK && place.row == 0);
    CHILD_EXPECT(finish() == GVM_OK && result.rows == 5);
    CHILD_EXPECT(stop());
    return 0;
}

/* Over every word that a wild pointer could reach. */
static int be_wild(void *arg)
{
    static const uint64_t values[] = {UINT64_MAX,          1ull << 63,
                                      0xffffffff00000000u, 0x00000000ffffffffu,
                                      0x8000000080000000u, 0x0123456789abcdefu};
    gvm_append_place place;

    (void)arg;
    CHILD_EXPECT(start(ROW, 8 * CHUNK, NULL));
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (size_t at = 0; at < sizeof(gvm_append_words) + sizeof(gvm_append_mail); at += 8) {
            gvm_status status;
            char *base;

            CHILD_EXPECT(begin() == GVM_OK);
            base = (char *)(uintptr_t)(at < sizeof(gvm_append_words) ? append.words : append.mail);
            CHILD_EXPECT(write_place(3, 3, 1, &place) == GVM_APPEND_OK);
            __atomic_store_n((uint64_t *)(void *)(base + at % sizeof(gvm_append_words)), values[i],
                             __ATOMIC_RELAXED);
            status = finish();
            CHILD_EXPECT(status == GVM_OK || status == GVM_E_TORN || status == GVM_E_TIMEOUT);
            CHILD_EXPECT(status != GVM_OK || (result.rows == 3 && result.data_bytes == 16));
            CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK);
        }
    CHILD_EXPECT(begin() == GVM_OK);
    CHILD_EXPECT(write_place(8 * CHUNK / ROW, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 1);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- the calls */

static int be_misused(void *arg)
{
    gvm_append small = {.struct_size = sizeof small - 8};
    gvm_appender_result tiny = {.struct_size = 8};
    gvm_appender_info none = {.struct_size = 8};
    gvm_append_place place;
    gvm_buffer *buffer;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(finish() == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_begin(appender, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_begin(appender, &small) == GVM_E_INVALID);
    CHILD_EXPECT(begin() == GVM_OK && info().begun);
    CHILD_EXPECT(begin() == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_reset(appender) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_finish(appender, NULL, &tiny) == GVM_E_INVALID && info().begun);
    CHILD_EXPECT(gvm_appender_get_info(appender, &none) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_get_info(appender, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(write_place(2, 2, 2, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(gvm_appender_finish(appender, NULL, NULL) == GVM_OK && info().rows == 2);
    CHILD_EXPECT(gvm_appender_take(appender, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_begin((gvm_appender *)(void *)&place, &append) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_appender_buffer((gvm_appender *)(void *)&place) == NULL);
    gvm_appender_destroy(NULL);
    gvm_appender_destroy((gvm_appender *)(void *)&place);
    CHILD_EXPECT(stop());
    CHILD_EXPECT(gvm_appender_finish(appender, NULL, NULL) == GVM_E_FOREIGN);
    return 0;
}

static bool refused(uint64_t row_bytes, uint64_t reserve_bytes, gvm_appender_options options)
{
    gvm_appender *out = (gvm_appender *)(void *)&table;

    options.struct_size = sizeof options;
    return gvm_appender_create(device, row_bytes, reserve_bytes, &options, &out) == GVM_E_INVALID &&
           out == (gvm_appender *)(void *)&table;
}

static bool says(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

static int be_refused(void *arg)
{
    gvm_appender_options options = {.struct_size = 8};
    gvm_appender *out;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(refused(ROW, 0, (gvm_appender_options){0}));
    CHILD_EXPECT(refused(ROW, UINT64_MAX, (gvm_appender_options){0}));
    CHILD_EXPECT(refused(UINT64_MAX, CHUNK, (gvm_appender_options){0}));
    CHILD_EXPECT(refused(CHUNK + 1, CHUNK, (gvm_appender_options){0}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.chunk_bytes = 3 * MIB}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.budget_bytes = CHUNK - 1}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.budget_bytes = GVM_BYTES_NONE}));
    CHILD_EXPECT(says("less than a chunk of 2 MiB"));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.align_bytes = 24}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.align_bytes = 8192}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.flags = 0x80}));
    CHILD_EXPECT(refused(ROW, CHUNK, (gvm_appender_options){.reserved = 1}));
    CHILD_EXPECT(gvm_appender_create(device, ROW, CHUNK, &options, &out) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_create(device, ROW, CHUNK, NULL, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_appender_create((gvm_device *)(void *)&out, ROW, CHUNK, NULL, &out) ==
                 GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_appender_create(device, ROW, 1ull << 38, NULL, &out) == GVM_OK);
    gvm_appender_destroy(out);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_without_vmm(void *arg)
{
    gvm_appender *out;
    int32_t count;

    (void)arg;
    setenv("GVMEM_VMM", "0", 1);
    CHILD_EXPECT(gvm_device_count(&count) == GVM_OK && gvm_device_open(0, &device) == GVM_OK);
    CHILD_EXPECT(gvm_appender_create(device, ROW, CHUNK, NULL, &out) == GVM_E_NOTSUP);
    gvm_device_close(device);
    return 0;
}

/* What take gives is the caller's: whole, trimmed, alive after all else has gone. */
static int be_taken(void *arg)
{
    static uint8_t bytes[CHUNK];
    gvm_append_place place;
    gvm_buffer *buffer, *before;
    gvm_buffer_info have = {.struct_size = sizeof have};

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    for (uint64_t i = 0; i < 40; i++) /* several chunks, so that memory comes ahead of need */
        CHILD_EXPECT(write_place(CHUNK / ROW / 8, 0, 0, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(write_place(0, 100, 1, &place) == GVM_APPEND_OK);
    CHILD_EXPECT(finish() == GVM_OK);
    before = gvm_appender_buffer(appender);
    gvm_device_close(device); /* buffers and appenders keep it */
    CHILD_EXPECT(gvm_appender_take(appender, &buffer) == GVM_OK && buffer == before);
    CHILD_EXPECT(gvm_appender_buffer(appender) != before);
    CHILD_EXPECT(gvm_buffer_get_info(buffer, &have) == GVM_OK && have.device_bytes == 6 * CHUNK);
    CHILD_EXPECT(info().rows == 0 && info().data_bytes == 0 && info().front_bytes == 0);
    CHILD_EXPECT(begin() == GVM_OK && write_place(1, 0, 0, &place) == GVM_APPEND_OK && place.row == 0);
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(gvmi_appender_check(appender));
    gvm_appender_destroy(appender);
    CHILD_EXPECT(gvm_buffer_copy_out(bytes, buffer, 4 * CHUNK, CHUNK) == GVM_OK);
    for (size_t i = 0; i < CHUNK; i++)
        CHILD_EXPECT(bytes[i] == 0x11);
    CHILD_EXPECT(gvm_buffer_copy_out(bytes, buffer, 1024 * CHUNK - 112, 100) == GVM_OK);
    for (size_t i = 0; i < 100; i++)
        CHILD_EXPECT(bytes[i] == 0x22);
    gvm_buffer_destroy(buffer);
    gvmi_driver_install(real);
    CHILD_EXPECT(gvmi_check_held().handles == 0 && gvmi_check_held().reservations == 0);
    CHILD_EXPECT(gvmi_check_held().allocations == 0 && gvmi_check_held().host_allocations == 0);
    return 0;
}

/* ---- the library's thread */

/* More appenders than a slab has words for, all begun; one thread for all, and none after the device. */
static int be_many(void *arg)
{
    enum { MANY = 150 };
    static gvm_appender *many[MANY];
    static gvm_append appends[MANY];
    gvm_append_place place;
    bool sleeps;

    (void)arg;
    CHILD_EXPECT(start_on("4GiB", ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(service_threads(&sleeps) == 0);
    for (int i = 0; i < MANY; i++) {
        appends[i].struct_size = sizeof appends[i];
        CHILD_EXPECT(gvm_appender_create(device, ROW, 8 * CHUNK, NULL, &many[i]) == GVM_OK);
        CHILD_EXPECT(gvm_appender_begin(many[i], &appends[i]) == GVM_OK);
    }
    CHILD_EXPECT(service_threads(&sleeps) == 1);
    for (uint64_t i = 0; i < MANY; i++) {
        append = appends[i];
        CHILD_EXPECT(write_place(i + 1, i, 1, &place) == GVM_APPEND_OK && place.row == 0);
    }
    for (uint64_t i = 0; i < MANY; i++) {
        CHILD_EXPECT(gvm_appender_finish(many[i], NULL, &result) == GVM_OK);
        CHILD_EXPECT(result.rows == i + 1 && result.complete == 1);
        CHILD_EXPECT(gvmi_appender_check(many[i]));
        gvm_appender_destroy(many[i]);
    }
    append = (gvm_append){.struct_size = sizeof append};
    CHILD_EXPECT(stop());
    CHILD_EXPECT(service_threads(&sleeps) == 0);
    return 0;
}

/* A process made by fork() has no thread of the library's: it gets an error, and waits for nothing. */
static int be_forked(void *arg)
{
    int status = -1;
    pid_t pid;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK && finish() == GVM_OK);
    pid = fork();
    if (pid == 0) {
        end_child_after(20);
        CHILD_EXPECT(begin() == GVM_E_FOREIGN);
        gvm_device_close(device); /* unknown here, too */
        _exit(0);
    }
    CHILD_EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    CHILD_EXPECT(begin() == GVM_OK && finish() == GVM_OK);
    CHILD_EXPECT(stop());
    return 0;
}

/* More, one after the other, than there are words for. */
static int be_recycled(void *arg)
{
    gvm_appender *one;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    for (int i = 0; i < 5000; i++) {
        CHILD_EXPECT(gvm_appender_create(device, ROW, CHUNK, NULL, &one) == GVM_OK);
        gvm_appender_destroy(one);
    }
    CHILD_EXPECT(stop());
    return 0;
}

/* Looked at now and then, it sleeps more often than not; runnable and waiting for a processor counts
 * as awake, so few such looks are enough. What it costs cannot be seen by the clock: on a
 * machine with much to do it would get little of it anyway. */
static int be_idle(void *arg)
{
    enum { LOOKS = 40, ASLEEP = 8 };
    int asleep = 0;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL));
    CHILD_EXPECT(begin() == GVM_OK);
    pause_ms(10);
    for (int i = 0; i < LOOKS; i++) {
        bool sleeps = false;

        pause_ms(10);
        CHILD_EXPECT(service_threads(&sleeps) == 1);
        asleep += sleeps;
    }
    dprintf(STDERR_FILENO, "# asleep at %d of %d looks\n", asleep, LOOKS);
    CHILD_EXPECT(asleep >= ASLEEP);
    CHILD_EXPECT(finish() == GVM_OK);
    CHILD_EXPECT(stop());
    return 0;
}

/* A signal that the program's threads block stays theirs to take. */
static int be_signalled(void *arg)
{
    sigset_t blocked, pending;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL) && begin() == GVM_OK); /* the thread runs */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    CHILD_EXPECT(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    CHILD_EXPECT(kill(getpid(), SIGUSR1) == 0);
    CHILD_EXPECT(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
    CHILD_EXPECT(finish() == GVM_OK && stop());
    return 0;
}

/* ---- a finish that another thread overtakes */

static bool overtaken;

static void *finish_and_begin(void *arg)
{
    *(bool *)arg = finish() == GVM_OK && begin() == GVM_OK;
    return NULL;
}

/* While the first call waits, another thread finishes, and begins again. */
static CUresult synchronize_overtaken(CUstream stream)
{
    pthread_t thread;

    table.cuStreamSynchronize = real->cuStreamSynchronize;
    if (pthread_create(&thread, NULL, finish_and_begin, &overtaken) == 0)
        pthread_join(thread, NULL);
    return real->cuStreamSynchronize(stream);
}

static int be_overtaken(void *arg)
{
    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL) && begin() == GVM_OK);
    table.cuStreamSynchronize = synchronize_overtaken;
    CHILD_EXPECT(finish() == GVM_E_INVALID && says("by another call") && overtaken);
    CHILD_EXPECT(finish() == GVM_OK && finish() == GVM_E_INVALID && says("has not begun"));
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- threads that claim at once: no two get the same, and all that fails lies behind. */

#define THREADS 8
#define EACH 4000

typedef struct claim {
    uint64_t row, rows;
} claim;

static void *claim_many(void *arg)
{
    claim *claims = arg;
    gvm_append_place place;

    for (uint64_t i = 0; i < EACH; i++) {
        const uint64_t rows = 1 + (i * 7 + (uint64_t)(uintptr_t)arg) % (i % 64 == 0 ? 3000 : 40);

        if (write_place(rows, i % 3 == 0 ? i % 500 : 0, 1, &place) != GVM_APPEND_OK)
            break;
        claims[i] = (claim){place.row, rows};
    }
    return NULL;
}

static int be_crowd(void *arg)
{
    static claim claims[THREADS][EACH];
    static uint8_t seen[1u << 21];
    const gvm_appender_options options = {.budget_bytes = 20 * CHUNK};
    pthread_t threads[THREADS];
    uint64_t rows = 0, high = 0;

    (void)arg;
    CHILD_EXPECT(start(ROW, 1024 * CHUNK, &options));
    CHILD_EXPECT(begin() == GVM_OK);
    for (int i = 0; i < THREADS; i++)
        CHILD_EXPECT(pthread_create(&threads[i], NULL, claim_many, claims[i]) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHILD_EXPECT(finish() == GVM_OK && result.complete == 0);
    for (int i = 0; i < THREADS; i++)
        for (uint64_t j = 0; j < EACH; j++) {
            const claim *c = &claims[i][j];

            CHILD_EXPECT(j == 0 || c->rows == 0 || c->row > claims[i][j - 1].row);
            for (uint64_t k = 0; k < c->rows; k++)
                CHILD_EXPECT(c->row + k < sizeof seen && seen[c->row + k]++ == 0);
            rows += c->rows;
            high = c->rows > 0 && c->row + c->rows > high ? c->row + c->rows : high;
        }
    CHILD_EXPECT(result.rows == rows && high == rows);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- the buffer, between finish and begin */

static bool decommit_chunks(uint64_t first, uint64_t end)
{
    return gvm_buffer_decommit(gvm_appender_buffer(appender), first * CHUNK, (end - first) * CHUNK) ==
           GVM_OK;
}

/* What was taken from it is committed anew before a kernel is granted it, and the other rows are as they were. What
 * is behind the chunks that went, and not written, goes too. */
static int be_decommitted(void *arg)
{
    gvm_append_place place, later;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL) && begin() == GVM_OK);
    CHILD_EXPECT(write_place(4 * CHUNK / ROW, CHUNK, 1, &place) == GVM_APPEND_OK && finish() == GVM_OK);
    CHILD_EXPECT(decommit_chunks(1, 2) && begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 1, 1, &later) == GVM_APPEND_OK && finish() == GVM_OK);
    CHILD_EXPECT(result.complete && result.rows == 4 * CHUNK / ROW + 1);
    memset((char *)place.rows + CHUNK, 0x33, CHUNK);
    CHILD_EXPECT(((uint8_t *)place.rows)[0] == 0x11 && ((uint8_t *)place.rows)[4 * CHUNK - 1] == 0x11);
    CHILD_EXPECT(gvmi_appender_check(appender));

    CHILD_EXPECT(decommit_chunks(0, 64) && begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 1, 1, &later) == GVM_APPEND_OK && finish() == GVM_OK);
    CHILD_EXPECT(result.complete && gvmi_appender_check(appender));

    CHILD_EXPECT(gvm_appender_reset(appender) == GVM_OK && decommit_chunks(0, 1) && begin() == GVM_OK);
    CHILD_EXPECT(write_place(1, 1, 1, &later) == GVM_APPEND_OK && later.row == 0 && finish() == GVM_OK);
    CHILD_EXPECT(stop());
    return 0;
}

static int be_sealed(void *arg)
{
    gvm_append_place place;
    gvm_buffer *sealed;

    (void)arg;
    CHILD_EXPECT(start(ROW, 64 * CHUNK, NULL) && begin() == GVM_OK);
    CHILD_EXPECT(write_place(10, 1, 1, &place) == GVM_APPEND_OK && finish() == GVM_OK);
    CHILD_EXPECT(gvm_buffer_seal(gvm_appender_buffer(appender)) == GVM_OK);
    CHILD_EXPECT(begin() == GVM_E_SEALED && !info().begun);
    CHILD_EXPECT(gvm_appender_take(appender, &sealed) == GVM_OK && begin() == GVM_OK);
    CHILD_EXPECT(write_place(10, 1, 1, &place) == GVM_APPEND_OK && finish() == GVM_OK);
    gvm_buffer_destroy(sealed);
    CHILD_EXPECT(stop());
    return 0;
}

/* ---- */

CHILD_TEST(slot_of_any_alignment_lies_where_it_says, be_places)
CHILD_TEST(slot_of_large_units_is_aligned_without_waste, be_aligned_unit)
CHILD_TEST(ends_that_meet_in_a_chunk_fill_it_to_the_last_byte, be_meeting)
CHILD_TEST(claim_larger_than_an_addition_is_swapped, be_large)
CHILD_TEST(claim_too_large_closes_before_it_says_so, be_closing)
CHILD_TEST(claim_that_is_impossible_disturbs_nobody, be_impossible)
CHILD_TEST(budget_spent_ends_it_for_all_and_again_after_take, be_budget)
CHILD_TEST(budget_of_two_chunks_serves_both_ends, be_small_budget)
CHILD_TEST(budget_lowered_below_what_is_written_is_full, be_lowered_budget)
CHILD_TEST(claim_not_published_tears, be_torn)
CHILD_TEST(words_written_over_are_not_believed, be_wild)
CHILD_TEST(call_out_of_turn_is_refused, be_misused)
CHILD_TEST(device_without_vmm_has_no_appenders, be_without_vmm)
CHILD_TEST(buffer_taken_is_trimmed_and_the_callers, be_taken)
CHILD_TEST(appenders_beyond_a_slab_share_one_thread, be_many)
CHILD_TEST(appenders_that_are_gone_leave_room_for_others, be_recycled)
CHILD_TEST(child_of_fork_gets_the_error_that_it_has_no_thread, be_forked)
CHILD_TEST(appender_that_idles_burns_no_core, be_idle)
CHILD_TEST(signal_is_not_delivered_to_the_library_thread, be_signalled)
CHILD_TEST(finish_ends_no_begin_that_came_after_it, be_overtaken)
CHILD_TEST(threads_get_rows_of_their_own, be_crowd)
CHILD_TEST(chunks_decommitted_before_begin_come_back, be_decommitted)
CHILD_TEST(begin_on_a_sealed_buffer_is_refused, be_sealed)

static void options_out_of_limits_are_refused(void **state)
{
    (void)state;
    SKIP_UNDER_VALGRIND(VALGRIND_ADDRESSES);
    assert_child_succeeds(be_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slot_of_any_alignment_lies_where_it_says),
        cmocka_unit_test(slot_of_large_units_is_aligned_without_waste),
        cmocka_unit_test(ends_that_meet_in_a_chunk_fill_it_to_the_last_byte),
        cmocka_unit_test(claim_larger_than_an_addition_is_swapped),
        cmocka_unit_test(claim_too_large_closes_before_it_says_so),
        cmocka_unit_test(claim_that_is_impossible_disturbs_nobody),
        cmocka_unit_test(budget_spent_ends_it_for_all_and_again_after_take),
        cmocka_unit_test(budget_of_two_chunks_serves_both_ends),
        cmocka_unit_test(budget_lowered_below_what_is_written_is_full),
        cmocka_unit_test(claim_not_published_tears),
        cmocka_unit_test(words_written_over_are_not_believed),
        cmocka_unit_test(call_out_of_turn_is_refused),
        cmocka_unit_test(options_out_of_limits_are_refused),
        cmocka_unit_test(device_without_vmm_has_no_appenders),
        cmocka_unit_test(buffer_taken_is_trimmed_and_the_callers),
        cmocka_unit_test(appenders_beyond_a_slab_share_one_thread),
        cmocka_unit_test(appenders_that_are_gone_leave_room_for_others),
        cmocka_unit_test(child_of_fork_gets_the_error_that_it_has_no_thread),
        cmocka_unit_test(appender_that_idles_burns_no_core),
        cmocka_unit_test(signal_is_not_delivered_to_the_library_thread),
        cmocka_unit_test(finish_ends_no_begin_that_came_after_it),
        cmocka_unit_test(threads_get_rows_of_their_own),
        cmocka_unit_test(chunks_decommitted_before_begin_come_back),
        cmocka_unit_test(begin_on_a_sealed_buffer_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
