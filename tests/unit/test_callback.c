/* Callback servers. The test is its own kernel, as test_region.c: threads of it call as threads of kernels do, on the software GPU's
 * memory.  Each test runs in a child. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include <gvmem/device/callback.h>
#include <gvmem/device/region.h>
#include <gvmem/gvmem.h>

#include "base/registry.h"
#include "callback/callback.h"
#include "tests/lib/fixture.h"
#include "tests/lib/units.h"

enum { ADD, NOTE, COLLECT, STUCK, FAIL, NESTED, NUMBERS };

#define THREADS 8u
#define LIMIT_MS 300u

static gvm_device *device;
static gvm_callback_server *server;
static gvm_callback_view view;
static atomic_bool shut; /* STUCK stays in the function */
static atomic_uint inside, inside_max, notes, collects;
static atomic_ullong requests, noted, latest, seen_last;
static atomic_int nested_code;

/* ---- functions */

static void enter(void)
{
    unsigned now = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&inside_max);

    while (now > most && !atomic_compare_exchange_weak(&inside_max, &most, now))
        ;
}

static gvm_status add(void *context, gvm_callback_args *args)
{
    enter();
    for (uint32_t i = args->word_count; i < GVM_CALLBACK_WORDS; i++)
        if (args->words[i] != 0)
            return GVM_E_FORMAT;
    args->words[1] = args->words[0] + args->words[1] + *(uint64_t *)context;
    atomic_fetch_sub(&inside, 1);
    if (args->function != ADD || args->requests != 1 || !args->is_awaited)
        return GVM_E_FORMAT;
    args->word_count = UINT32_MAX; /* nobody reads that any more */
    args->requests = UINT32_MAX;
    return GVM_OK;
}

static gvm_status note(void *context, gvm_callback_args *args)
{
    (void)context;
    atomic_fetch_add(&noted, args->words[0]);
    atomic_fetch_add(&notes, 1);
    args->words[0] = 77;
    return args->is_awaited ? GVM_E_FORMAT : GVM_OK;
}

static gvm_status collect(void *context, gvm_callback_args *args)
{
    (void)context;
    enter();
    atomic_fetch_add(&requests, args->requests);
    atomic_store(&seen_last, atomic_load(&latest));
    args->words[0] = 1000 + atomic_fetch_add(&collects, 1);
    atomic_fetch_sub(&inside, 1);
    return args->word_count == 0 ? GVM_OK : GVM_E_FORMAT;
}

static gvm_status stay(void *context, gvm_callback_args *args)
{
    (void)context;
    (void)args;
    enter();
    while (atomic_load(&shut))
        pause_ms(1);
    atomic_fetch_sub(&inside, 1);
    return GVM_OK;
}

static gvm_status refuse(void *context, gvm_callback_args *args)
{
    (void)context;
    args->words[0] = 5;
    return args->words[1] != 0
               ? gvm_error_set(GVM_E_QUOTA, "no more of %llu", (unsigned long long)args->words[1])
               : GVM_E_DENIED;
}

static gvm_status call_back(void *context, gvm_callback_args *args)
{
    uint64_t words[2] = {args->words[0], 1};

    (void)context;
    atomic_store(&nested_code, (int)gvm_callback_call(&view, ADD, words, 2));
    args->words[0] = words[1];
    return GVM_OK;
}

/* ---- the server */

static uint64_t base = 100;

static bool start_with(uint32_t threads, uint32_t wait_ms, uint32_t stuck_flags)
{
    gvm_callback_server_options options = gvm_callback_server_options_init();

    fixture_machine("devices=1,memory=64MiB,sms=2");
    options.thread_count = threads;
    options.wait_ms = wait_ms;
    return gvm_device_open(0, &device) == GVM_OK &&
           gvm_callback_server_create(device, &options, &server) == GVM_OK &&
           gvm_callback_register(server, ADD, GVM_CALLBACK_REENTRANT, add, &base) == GVM_OK &&
           gvm_callback_register(server, NOTE, 0, note, NULL) == GVM_OK &&
           gvm_callback_register(server, COLLECT, GVM_CALLBACK_COLLECTIVE, collect, NULL) == GVM_OK &&
           gvm_callback_register(server, STUCK, stuck_flags, stay, NULL) == GVM_OK &&
           gvm_callback_register(server, FAIL, 0, refuse, NULL) == GVM_OK &&
           gvm_callback_register(server, NESTED, 0, call_back, NULL) == GVM_OK &&
           gvm_callback_server_get_view(server, &view) == GVM_OK;
}

static bool start(void)
{
    return start_with(1, 10000, 0);
}

static bool stop(void)
{
    gvm_callback_server_destroy(server);
    gvm_device_close(device);
    return gvmi_registry_count(GVMI_KIND_CALLBACK_SERVER) == 0 &&
           gvmi_registry_count(GVMI_KIND_DEVICE) == 0;
}

static gvm_callback_server_info info(void)
{
    gvm_callback_server_info i = {.struct_size = sizeof i};

    if (gvm_callback_server_get_info(server, &i) != GVM_OK)
        abort();
    return i;
}

static bool last_error_has(const char *text)
{
    gvm_error error;

    gvm_error_last(&error);
    return strstr(error.text, text) != NULL;
}

/* ---- threads of a kernel */

typedef struct caller {
    pthread_t thread;
    uint32_t function, count; /* of calls */
    uint32_t codes[5];        /* how often each was returned */
    uint64_t wrong;
} caller;

static void *make_calls(void *arg)
{
    caller *c = arg;

    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t words[2] = {i, 3}, result = 0;
        uint32_t code;

        switch (c->function) {
        case COLLECT: code = gvm_callback_join(&view, COLLECT, &result); break;
        case ADD:
        case STUCK: code = gvm_callback_call(&view, c->function, words, 2); break;
        default: code = gvm_callback_post(&view, c->function, words, 2); break;
        }
        c->codes[code]++;
        if (code == GVM_CALLBACK_OK && c->function == ADD)
            c->wrong += words[1] != i + 3 + base;
        if (code == GVM_CALLBACK_OK && c->function == COLLECT)
            c->wrong += result < 1000 || result >= 1000 + atomic_load(&collects);
    }
    return NULL;
}

static bool start_callers(caller *callers, uint32_t n, uint32_t function, uint32_t count)
{
    for (uint32_t i = 0; i < n; i++) {
        callers[i] = (caller){.function = function, .count = count};
        if (pthread_create(&callers[i].thread, NULL, make_calls, &callers[i]) != 0)
            return false;
    }
    return true;
}

/* What all got of a code; wrong answers count as no code. */
static uint64_t join_callers(caller *callers, uint32_t n, uint32_t code)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        pthread_join(callers[i].thread, NULL);
        count += callers[i].codes[code];
        if (callers[i].wrong > 0)
            return UINT64_MAX;
    }
    return count;
}

static bool comes_true(bool (*is_true)(void))
{
    for (int i = 0; i < 5000 && !is_true(); i++)
        pause_ms(1);
    return is_true();
}

static bool is_one_inside(void)
{
    return atomic_load(&inside) == 1;
}

static bool was_one_inside(void)
{
    return atomic_load(&inside_max) > 0;
}

static bool are_two_inside(void)
{
    return atomic_load(&inside) == 2;
}

/* ---- each kind */

static int call_and_wait(void *arg)
{
    uint64_t words[GVM_CALLBACK_WORDS] = {0, 1, 2, 3, 4, 5, 6, 7};
    uint32_t i;

    (void)arg;
    CHILD_EXPECT(start());
    for (i = 0; i < 1000; i++) { /* each slot is used again */
        words[0] = i;
        words[1] = 1;
        CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2 + i % 7) == GVM_CALLBACK_OK);
        CHILD_EXPECT(words[0] == i && words[1] == i + 1 + base && words[7] == 7);
    }
    words[1] = 1;
    CHILD_EXPECT(gvm_callback_call_warp(&view, ADD, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_call_block(&view, ADD, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(words[1] == 2 * (words[0] + base) + 1);
    words[1] = 1;
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 1) == GVM_CALLBACK_OK && words[1] == 1);
    CHILD_EXPECT(info().calls == 1003 && info().requests == 1003 && info().failures == 0);
    CHILD_EXPECT(info().thread_count == 1 && info().wait_ms == 10000 && !info().closed);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    return stop() ? 0 : 1;
}

static int call_and_go_on(void *arg)
{
    const uint64_t words[2] = {3, 4};

    (void)arg;
    CHILD_EXPECT(start());
    for (uint32_t i = 0; i < 1000; i++) /* more than there are slots */
        CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_post_warp(&view, NOTE, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_post_block(&view, NOTE, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&notes) == 1002 && atomic_load(&noted) == 3006 && words[0] == 3);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    return stop() ? 0 : 1;
}

static int join_others(void *arg)
{
    caller callers[THREADS];
    uint64_t result = 0;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_callback_join(&view, COLLECT, &result) == GVM_CALLBACK_OK && result == 1000);
    CHILD_EXPECT(gvm_callback_join_warp(&view, COLLECT, &result) == GVM_CALLBACK_OK && result == 1001);
    CHILD_EXPECT(gvm_callback_join_block(&view, COLLECT, NULL) == GVM_CALLBACK_OK);
    CHILD_EXPECT(start_callers(callers, THREADS, COLLECT, 500));
    CHILD_EXPECT(join_callers(callers, THREADS, GVM_CALLBACK_OK) == 500 * THREADS);
    CHILD_EXPECT(atomic_load(&requests) == 500 * THREADS + 3);
    CHILD_EXPECT(atomic_load(&collects) < 500 * THREADS && atomic_load(&inside_max) == 1);
    return stop() ? 0 : 1;
}

/* One call of a function that is slow serves all that came meanwhile. */
static int join_a_slow_one(void *arg)
{
    caller callers[THREADS], stuck;

    (void)arg;
    CHILD_EXPECT(start());
    atomic_store(&shut, true);
    CHILD_EXPECT(start_callers(&stuck, 1, STUCK, 1) && comes_true(is_one_inside));
    CHILD_EXPECT(start_callers(callers, THREADS, COLLECT, 1));
    pause_ms(50); /* the one thread of the server is in the other function */
    CHILD_EXPECT(atomic_load(&collects) == 0);
    atomic_store(&shut, false);
    CHILD_EXPECT(join_callers(callers, THREADS, GVM_CALLBACK_OK) == THREADS);
    CHILD_EXPECT(join_callers(&stuck, 1, GVM_CALLBACK_OK) == 1);
    CHILD_EXPECT(atomic_load(&requests) == THREADS && atomic_load(&collects) <= 2);
    return stop() ? 0 : 1;
}

static void *signal_often(void *arg)
{
    uint32_t *codes = arg;

    for (uint32_t i = 0; i < 2000; i++) {
        atomic_fetch_add(&latest, 1);
        *codes += gvm_callback_signal(&view, COLLECT);
    }
    return NULL;
}

static int signal_host(void *arg)
{
    pthread_t threads[THREADS];
    uint32_t codes[THREADS] = {0};

    (void)arg;
    CHILD_EXPECT(start());
    for (uint32_t i = 0; i < THREADS; i++)
        CHILD_EXPECT(pthread_create(&threads[i], NULL, signal_often, &codes[i]) == 0);
    for (uint32_t i = 0; i < THREADS; i++)
        CHILD_EXPECT(pthread_join(threads[i], NULL) == 0 && codes[i] == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&requests) == 2000 * THREADS);
    CHILD_EXPECT(atomic_load(&seen_last) == 2000 * THREADS); /* the last call began after the last signal */
    CHILD_EXPECT(atomic_load(&collects) < 2000 * THREADS);
    return stop() ? 0 : 1;
}

static int call_by_many(void *arg)
{
    caller adders[THREADS], noters[THREADS], joiners[THREADS];

    (void)arg;
    CHILD_EXPECT(start_with(3, 10000, 0));
    CHILD_EXPECT(start_callers(adders, THREADS, ADD, 500) && start_callers(noters, THREADS, NOTE, 500) &&
                 start_callers(joiners, THREADS, COLLECT, 500));
    CHILD_EXPECT(join_callers(adders, THREADS, GVM_CALLBACK_OK) == 500 * THREADS);
    CHILD_EXPECT(join_callers(noters, THREADS, GVM_CALLBACK_OK) == 500 * THREADS);
    CHILD_EXPECT(join_callers(joiners, THREADS, GVM_CALLBACK_OK) == 500 * THREADS);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&notes) == 500 * THREADS && atomic_load(&requests) == 500 * THREADS);
    CHILD_EXPECT(info().requests == 3 * 500 * THREADS && info().running == 0);
    return stop() ? 0 : 1;
}

/* ---- several threads of the server */

static int run_at_once(void *arg)
{
    caller callers[2];

    (void)arg;
    CHILD_EXPECT(start_with(2, 10000, GVM_CALLBACK_REENTRANT));
    atomic_store(&shut, true);
    CHILD_EXPECT(start_callers(callers, 2, STUCK, 1) && comes_true(are_two_inside));
    atomic_store(&shut, false);
    CHILD_EXPECT(join_callers(callers, 2, GVM_CALLBACK_OK) == 2 && atomic_load(&inside_max) == 2);
    return stop() ? 0 : 1;
}

static int run_one_after_the_other(void *arg)
{
    caller callers[4];
    uint64_t words[2] = {1, 1};

    (void)arg;
    CHILD_EXPECT(start_with(4, 10000, 0));
    atomic_store(&shut, true);
    CHILD_EXPECT(start_callers(callers, 4, STUCK, 1) && comes_true(is_one_inside));
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2) == GVM_CALLBACK_OK); /* others go on */
    pause_ms(20);
    CHILD_EXPECT(is_one_inside());
    atomic_store(&shut, false);
    CHILD_EXPECT(join_callers(callers, 4, GVM_CALLBACK_OK) == 4);
    return stop() ? 0 : 1;
}

static int call_from_a_function(void *arg)
{
    uint64_t words[1] = {7};

    (void)arg;
    CHILD_EXPECT(start_with(2, 10000, 0));
    CHILD_EXPECT(gvm_callback_call(&view, NESTED, words, 1) == GVM_CALLBACK_OK);
    CHILD_EXPECT(atomic_load(&nested_code) == GVM_CALLBACK_OK && words[0] == 7 + 1 + base);
    return stop() ? 0 : 1;
}

/* Nobody can serve it: the inner call is late, and nothing hangs. */
static int call_from_the_only_thread(void *arg)
{
    uint64_t words[1] = {7};
    uint32_t code;

    (void)arg;
    CHILD_EXPECT(start_with(1, LIMIT_MS, 0));
    code = gvm_callback_call(&view, NESTED, words, 1);
    CHILD_EXPECT(code == GVM_CALLBACK_OK || code == GVM_CALLBACK_LATE);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&nested_code) == GVM_CALLBACK_LATE);
    return stop() ? 0 : 1;
}

/* ---- errors */

static int fail_in_a_function(void *arg)
{
    uint64_t words[2] = {1, 9};

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_callback_call(&view, FAIL, words, 2) == GVM_CALLBACK_FAILED && words[0] == 1);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_QUOTA && last_error_has("no more of 9"));
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    words[1] = 0;
    CHILD_EXPECT(gvm_callback_post(&view, FAIL, words, 2) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_DENIED && last_error_has("callback 4 "));
    CHILD_EXPECT(info().failures == 2);
    return stop() ? 0 : 1;
}

static int call_wrongly(void *arg)
{
    uint64_t words[9] = {1};

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 9) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_call(&view, GVM_CALLBACK_FUNCTIONS, words, 1) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_join(&view, GVM_CALLBACK_FUNCTIONS, words) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(gvm_callback_call(&view, NUMBERS, words, 1) == GVM_CALLBACK_INVALID && words[0] == 1);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_INVALID && last_error_has("callback 6 "));
    CHILD_EXPECT(gvm_callback_call(&view, COLLECT, words, 1) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_INVALID && last_error_has("parameters"));
    CHILD_EXPECT(gvm_callback_join(&view, ADD, words) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_join(&view, 31, words) == GVM_CALLBACK_INVALID);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_INVALID && last_error_has("collective"));
    CHILD_EXPECT(gvm_callback_post(&view, COLLECT, words, 1) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_signal(&view, NOTE) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2) == GVM_CALLBACK_OK && info().calls == 1);
    return stop() ? 0 : 1;
}

static int use_handles_wrongly(void *arg)
{
    gvm_callback_server_options options = gvm_callback_server_options_init();
    gvm_callback_server_info small = {.struct_size = 8};
    gvm_callback_server *other = NULL;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_callback_server_create(device, NULL, NULL) == GVM_E_INVALID);
    options.thread_count = GVM_CALLBACK_THREADS_MAX + 1;
    CHILD_EXPECT(gvm_callback_server_create(device, &options, &other) == GVM_E_INVALID);
    options.thread_count = 0;
    options.flags = 1;
    CHILD_EXPECT(gvm_callback_server_create(device, &options, &other) == GVM_E_INVALID && other == NULL);
    CHILD_EXPECT(gvm_callback_server_create((gvm_device *)&options, NULL, &other) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_callback_register(server, ADD, 0, add, &base) == GVM_E_EXISTS);
    CHILD_EXPECT(gvm_callback_register(server, GVM_CALLBACK_FUNCTIONS, 0, add, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_register(server, 9, 4, add, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_register(server, 9, 3, add, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_register(server, 9, 0, NULL, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_server_get_view(server, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_server_get_info(server, &small) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_server_get_info(server, NULL) == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_server_create(device, NULL, &other) == GVM_OK);
    gvm_callback_server_destroy(other);
    gvm_callback_server_destroy(other);
    gvm_callback_server_destroy(NULL);
    CHILD_EXPECT(gvm_callback_server_drain(other) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_callback_server_close(other) == GVM_E_FOREIGN);
    CHILD_EXPECT(gvm_callback_register(other, 9, 0, add, NULL) == GVM_E_FOREIGN);
    return stop() ? 0 : 1;
}

/* What a function may not do returns an error in place of waiting for itself. */
static gvm_status wait_for_itself(void *context, gvm_callback_args *args)
{
    args->words[0] = gvm_callback_server_drain(server);
    args->words[1] = gvm_callback_server_close(server);
    gvm_callback_server_destroy(server);
    (void)context;
    return GVM_OK;
}

static int wait_in_a_function(void *arg)
{
    uint64_t words[3] = {0};

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_callback_register(server, NUMBERS, 0, wait_for_itself, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_callback_call(&view, NUMBERS, words, 3) == GVM_CALLBACK_OK);
    CHILD_EXPECT(words[0] == GVM_E_INVALID && words[1] == GVM_E_INVALID && !info().closed);
    return stop() ? 0 : 1;
}

/* A space is used as far as that waits for no kernel. */
static gvm_space *space;
static gvm_collection *collection;

static gvm_status use_a_space(void *context, gvm_callback_args *args)
{
    void *row = NULL;

    (void)context;
    args->words[0] = gvm_region_map_cpu(collection, 0, GVM_REGION_READWRITE, &row);
    if (args->words[0] == GVM_OK) {
        ++*(uint32_t *)row;
        args->words[1] = gvm_region_unmap_cpu(collection, 0);
    }
    args->words[2] = gvm_space_sync(space, NULL);
    args->words[3] = gvm_region_prefetch_by_engine(collection, 0, 0, NULL);
    return args->is_awaited || args->words[2] == GVM_OK ? GVM_OK : GVM_E_FORMAT;
}

static int use_regions_in_a_function(void *arg)
{
    uint64_t words[4] = {9, 9, 9, 9};
    gvm_region_view rows;
    uint32_t *row;

    (void)arg;
    CHILD_EXPECT(start());
    CHILD_EXPECT(gvm_space_create(device, NULL, &space) == GVM_OK);
    CHILD_EXPECT(gvm_collection_create(space, 4, 4096, NULL, &collection) == GVM_OK);
    CHILD_EXPECT(gvm_collection_get_view(collection, &rows) == GVM_OK);
    CHILD_EXPECT(gvm_callback_register(server, NUMBERS, 0, use_a_space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_callback_call(&view, NUMBERS, words, 4) == GVM_CALLBACK_OK);
    CHILD_EXPECT(words[0] == GVM_OK && words[1] == GVM_OK && words[2] == GVM_E_INVALID &&
                 words[3] == GVM_E_INVALID);
    CHILD_EXPECT(gvm_callback_post(&view, NUMBERS, words, 4) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    row = gvm_region_map(&rows, 0, GVM_REGION_READWRITE);
    CHILD_EXPECT(row != NULL && *row == 2);
    gvm_region_unmap(&rows, 0);
    CHILD_EXPECT(gvm_space_sync(space, NULL) == GVM_OK);
    CHILD_EXPECT(gvm_callback_call(&view, NUMBERS, words, 4) == GVM_CALLBACK_OK); /* its newest data is far */
    CHILD_EXPECT(words[0] == GVM_E_INVALID && words[2] == GVM_E_INVALID && words[3] == GVM_E_INVALID);
    gvm_space_destroy(space);
    return stop() ? 0 : 1;
}

/* ---- a host that does nothing */

static int wait_for_a_stuck_host(void *arg)
{
    caller stuck;
    uint64_t words[2] = {1, 1}, since;

    (void)arg;
    CHILD_EXPECT(start_with(1, LIMIT_MS, 0));
    atomic_store(&shut, true);
    since = now_ms();
    CHILD_EXPECT(start_callers(&stuck, 1, STUCK, 1) && comes_true(is_one_inside));
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2) == GVM_CALLBACK_LATE && words[1] == 1);
    CHILD_EXPECT(now_ms() - since >= LIMIT_MS && join_callers(&stuck, 1, GVM_CALLBACK_LATE) == 1);
    since = now_ms();
    for (uint32_t i = 0; i < 100; i++) { /* none of these waits */
        CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2) == GVM_CALLBACK_LATE);
        CHILD_EXPECT(gvm_callback_join(&view, COLLECT, words) == GVM_CALLBACK_LATE);
        CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 2) == GVM_CALLBACK_LATE);
    }
    CHILD_EXPECT(now_ms() - since < 20 * LIMIT_MS);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_TIMEOUT &&
                 last_error_has("calls of kernels are not made"));
    atomic_store(&shut, false);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(gvm_callback_call(&view, ADD, words, 2) == GVM_CALLBACK_OK && words[1] == 2 + base);
    return stop() ? 0 : 1;
}

/* One thread of the server is stuck, the other is not: only the call of that function is late. */
static int wait_for_a_stuck_thread(void *arg)
{
    caller stuck, callers[THREADS];

    (void)arg;
    CHILD_EXPECT(start_with(2, LIMIT_MS, 0));
    atomic_store(&shut, true);
    CHILD_EXPECT(start_callers(&stuck, 1, STUCK, 1) && comes_true(is_one_inside));
    CHILD_EXPECT(join_callers(&stuck, 1, GVM_CALLBACK_LATE) == 1);
    CHILD_EXPECT(start_callers(callers, THREADS, ADD, 100));
    CHILD_EXPECT(join_callers(callers, THREADS, GVM_CALLBACK_OK) == 100 * THREADS);
    atomic_store(&shut, false);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    return stop() ? 0 : 1;
}

static int fill_all_slots(void *arg)
{
    const uint64_t words[1] = {1};
    uint64_t two[2] = {1, 1};
    uint32_t i;

    (void)arg;
    CHILD_EXPECT(start_with(1, LIMIT_MS, 0));
    atomic_store(&shut, true);
    CHILD_EXPECT(gvm_callback_post(&view, STUCK, words, 1) == GVM_CALLBACK_OK &&
                 comes_true(is_one_inside));
    for (i = 1; i < GVM_CALLBACK_SLOTS; i++)
        CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_LATE);
    CHILD_EXPECT(gvm_callback_call(&view, ADD, two, 2) == GVM_CALLBACK_LATE);
    atomic_store(&shut, false);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&notes) == GVM_CALLBACK_SLOTS - 1);
    CHILD_EXPECT(gvm_callback_call(&view, ADD, two, 2) == GVM_CALLBACK_OK && two[1] == 2 + base);
    return stop() ? 0 : 1;
}

/* ---- the end of a server */

static int close_during_calls(void *arg)
{
    caller adders[THREADS], joiners[THREADS], noters[THREADS];
    const uint64_t words[1] = {1};
    uint64_t two[2] = {1, 1}, good;

    (void)arg;
    CHILD_EXPECT(start_with(2, 10000, 0));
    CHILD_EXPECT(start_callers(adders, THREADS, ADD, 20000) && comes_true(was_one_inside) &&
                 start_callers(joiners, THREADS, COLLECT, 20000) &&
                 start_callers(noters, THREADS, NOTE, 20000));
    pause_ms(20);
    CHILD_EXPECT(gvm_callback_server_close(server) == GVM_OK && info().closed &&
                 info().thread_count == 0);
    good = join_callers(adders, THREADS, GVM_CALLBACK_OK);
    CHILD_EXPECT(good > 0 && good <= info().calls);
    for (uint32_t i = 0; i < THREADS; i++)
        CHILD_EXPECT(adders[i].codes[GVM_CALLBACK_OK] + adders[i].codes[GVM_CALLBACK_CLOSED] == 20000);
    (void)join_callers(joiners, THREADS, GVM_CALLBACK_OK);
    (void)join_callers(noters, THREADS, GVM_CALLBACK_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        CHILD_EXPECT(joiners[i].codes[GVM_CALLBACK_OK] + joiners[i].codes[GVM_CALLBACK_CLOSED] == 20000);
        CHILD_EXPECT(noters[i].codes[GVM_CALLBACK_OK] + noters[i].codes[GVM_CALLBACK_CLOSED] == 20000);
    }
    CHILD_EXPECT(gvm_callback_call(&view, ADD, two, 2) == GVM_CALLBACK_CLOSED && two[1] == 1);
    CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_CLOSED);
    CHILD_EXPECT(gvm_callback_server_close(server) == GVM_OK);
    return stop() ? 0 : 1;
}

/* What was asked for before is made; what comes later is said not to be. */
static int close_with_calls_left(void *arg)
{
    const uint64_t words[1] = {1};
    caller stuck;

    (void)arg;
    CHILD_EXPECT(start());
    for (uint32_t i = 0; i < 100; i++)
        CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_signal(&view, COLLECT) == GVM_CALLBACK_OK);
    CHILD_EXPECT(gvm_callback_server_close(server) == GVM_OK);
    CHILD_EXPECT(atomic_load(&notes) == 100 && atomic_load(&collects) == 1);
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_OK);
    CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_OK); /* it does not know yet */
    CHILD_EXPECT(gvm_callback_server_drain(server) == GVM_E_TIMEOUT &&
                 last_error_has("closed before 1 "));
    CHILD_EXPECT(start_callers(&stuck, 1, STUCK, 1));
    CHILD_EXPECT(join_callers(&stuck, 1, GVM_CALLBACK_CLOSED) == 1);
    return stop() ? 0 : 1;
}

static atomic_uint delay;

/* Returns when the server closes, after more steps each time: at some time another thread looks for calls just then. */
static gvm_status return_at_close(void *context, gvm_callback_args *args)
{
    const unsigned steps = atomic_load(&delay);

    (void)context;
    (void)args;
    enter();
    while (!__atomic_load_n(&server->closing, __ATOMIC_ACQUIRE))
        ;
    for (unsigned i = 0; i < steps; i++)
        (void)atomic_load(&delay);
    atomic_fetch_sub(&inside, 1);
    return GVM_OK;
}

/* A thread of the server that looks for calls passes by the function while another thread is in it. */
static int close_as_functions_end(void *arg)
{
    enum { ROUNDS = 4000, POSTS = 2 };
    gvm_callback_server_options options = gvm_callback_server_options_init();
    const uint64_t words[1] = {1};

    (void)arg;
    CHILD_EXPECT(start());
    options.thread_count = 2;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        gvm_callback_server_destroy(server);
        atomic_store(&delay, round % 1000);
        CHILD_EXPECT(gvm_callback_server_create(device, &options, &server) == GVM_OK);
        CHILD_EXPECT(gvm_callback_register(server, NOTE, 0, return_at_close, NULL) == GVM_OK);
        CHILD_EXPECT(gvm_callback_server_get_view(server, &view) == GVM_OK);
        for (uint32_t i = 0; i < POSTS; i++)
            CHILD_EXPECT(gvm_callback_post(&view, NOTE, words, 1) == GVM_CALLBACK_OK);
        CHILD_EXPECT(comes_true(is_one_inside) && gvm_callback_server_close(server) == GVM_OK);
        CHILD_EXPECT(info().calls == POSTS);
    }
    return stop() ? 0 : 1;
}

static bool has_collected_once(void)
{
    return atomic_load(&collects) == 1;
}

/* The poller that sees the server closed does not copy what was served of functions that others wait for. */
static int close_seen_by_another(void *arg)
{
    gvm_callback_words *words;
    caller joiner;

    (void)arg;
    CHILD_EXPECT(start());
    words = gvm_callback_words_of(&view);
    CHILD_EXPECT(gvm_poller_begin(&words->poller)); /* this thread is it */
    CHILD_EXPECT(start_callers(&joiner, 1, COLLECT, 1) && comes_true(has_collected_once));
    CHILD_EXPECT(gvm_callback_server_close(server) == GVM_OK);
    (void)gvm_callback_exchange(&view, GVM_CALLBACK_FUNCTIONS);
    CHILD_EXPECT(join_callers(&joiner, 1, GVM_CALLBACK_OK) == 1);
    gvm_poller_end(&words->poller);
    return stop() ? 0 : 1;
}

CHILD_TEST(call_that_waits_gets_the_reply, call_and_wait)
CHILD_TEST(call_that_goes_on_is_made_before_drain_returns, call_and_go_on)
CHILD_TEST(collective_call_serves_all_that_ask, join_others)
CHILD_TEST(collective_call_serves_what_came_meanwhile_at_once, join_a_slow_one)
CHILD_TEST(signal_is_followed_by_a_call, signal_host)
CHILD_TEST(calls_of_many_threads_are_all_made, call_by_many)
CHILD_TEST(reentrant_function_runs_on_several_threads, run_at_once)
CHILD_TEST(function_runs_once_at_a_time, run_one_after_the_other)
CHILD_TEST(function_that_calls_back_is_served_by_another_thread, call_from_a_function)
CHILD_TEST(function_that_calls_back_on_the_only_thread_is_late, call_from_the_only_thread)
CHILD_TEST(function_that_fails_is_reported, fail_in_a_function)
CHILD_TEST(call_of_no_such_function_is_invalid, call_wrongly)
CHILD_TEST(handles_and_options_are_checked, use_handles_wrongly)
CHILD_TEST(function_cannot_wait_for_its_server, wait_in_a_function)
CHILD_TEST(function_uses_a_space_without_waiting, use_regions_in_a_function)
CHILD_TEST(host_that_is_stuck_makes_calls_late, wait_for_a_stuck_host)
CHILD_TEST(thread_that_is_stuck_does_not_delay_others, wait_for_a_stuck_thread)
CHILD_TEST(slots_that_are_all_taken_make_calls_late, fill_all_slots)
CHILD_TEST(close_ends_calls_under_way, close_during_calls)
CHILD_TEST(close_makes_calls_that_were_asked_for, close_with_calls_left)
CHILD_TEST(close_makes_calls_that_a_busy_function_had_delayed, close_as_functions_end)
CHILD_TEST(collective_call_made_before_close_is_not_closed, close_seen_by_another)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_that_waits_gets_the_reply),
        cmocka_unit_test(call_that_goes_on_is_made_before_drain_returns),
        cmocka_unit_test(collective_call_serves_all_that_ask),
        cmocka_unit_test(collective_call_serves_what_came_meanwhile_at_once),
        cmocka_unit_test(signal_is_followed_by_a_call),
        cmocka_unit_test(calls_of_many_threads_are_all_made),
        cmocka_unit_test(reentrant_function_runs_on_several_threads),
        cmocka_unit_test(function_runs_once_at_a_time),
        cmocka_unit_test(function_that_calls_back_is_served_by_another_thread),
        cmocka_unit_test(function_that_calls_back_on_the_only_thread_is_late),
        cmocka_unit_test(function_that_fails_is_reported),
        cmocka_unit_test(call_of_no_such_function_is_invalid),
        cmocka_unit_test(handles_and_options_are_checked),
        cmocka_unit_test(function_cannot_wait_for_its_server),
        cmocka_unit_test(function_uses_a_space_without_waiting),
        cmocka_unit_test(host_that_is_stuck_makes_calls_late),
        cmocka_unit_test(thread_that_is_stuck_does_not_delay_others),
        cmocka_unit_test(slots_that_are_all_taken_make_calls_late),
        cmocka_unit_test(close_ends_calls_under_way),
        cmocka_unit_test(close_makes_calls_that_were_asked_for),
        cmocka_unit_test(close_makes_calls_that_a_busy_function_had_delayed),
        cmocka_unit_test(collective_call_made_before_close_is_not_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
