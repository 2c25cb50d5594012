/* Honest clients: they write whole versions under write leases, and find whole versions under leases.
 *
 * A version fills the object's committed bytes at the time of its write. Every word of it follows from
 * the object's serial, the version and the word's place, so whatever else is found there is a
 * difference. Under any lease the version is the one committed last, as it changes under write
 * leases alone. Growth adds zeros behind it.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/proc/keeper_soak.h"

#define OPENINGS 3u
#define SHORT_WAIT_MS 200u
#define HOLD_MS_MAX 20u
#define METER_PAUSE_MS 5u

typedef struct opening {
    gvm_object *object; /* NULL: none */
    soak_record *record;
    uint64_t serial;
    bool readonly;
} opening;

typedef struct worker {
    gvm_client *keeper;
    unsigned process, index;
    uint64_t seed;
    opening openings[OPENINGS];
} worker;

/* ---- what an object holds */

static uint64_t word_of(uint64_t serial, uint64_t version, uint64_t word)
{
    return version == 0 ? 0 : (serial << 40 ^ version << 20 ^ 1) * 0x9e3779b97f4a7c15 + word * 3;
}

static void stamp(const gvm_lease *lease, uint64_t serial, uint64_t version)
{
    volatile uint64_t *words = (volatile uint64_t *)(uintptr_t)lease->address;

    for (uint64_t i = 0; i < lease->size_bytes / 8; i++)
        words[i] = word_of(serial, version, i);
}

/* Every word of the lease. */
static bool verify(const opening *o, const gvm_lease *lease)
{
    const volatile uint64_t *words = (const volatile uint64_t *)(uintptr_t)lease->address;
    const uint64_t version = atomic_load(&o->record->committed);
    const uint64_t stamped = atomic_load(&o->record->bytes) / 8;

    for (uint64_t i = 0; i < lease->size_bytes / 8; i++) {
        const uint64_t wanted = word_of(o->serial, i < stamped ? version : 0, i), found = words[i];

        if (found != wanted)
            return soak_problem("object %llu, version %llu: word %llu of %llu is %llx, not %llx",
                                (unsigned long long)o->serial, (unsigned long long)version,
                                (unsigned long long)i, (unsigned long long)lease->size_bytes / 8,
                                (unsigned long long)found, (unsigned long long)wanted);
    }
    return lease->size_bytes / 8 >= stamped ||
           soak_problem("object %llu: a lease of %llu bytes, though %llu were written",
                        (unsigned long long)o->serial, (unsigned long long)lease->size_bytes,
                        (unsigned long long)stamped * 8);
}

static bool enter(const opening *o, gvm_lease_mode mode)
{
    soak_record *r = o->record;
    const bool alone = mode == GVM_LEASE_WRITE
                           ? (atomic_fetch_add(&r->writers, 1) | atomic_load(&r->readers)) == 0
                           : (atomic_fetch_add(&r->readers, 1), atomic_load(&r->writers) == 0);

    return alone ||
           soak_problem("object %llu: a %s lease beside %d readers and %d writers",
                        (unsigned long long)o->serial, mode == GVM_LEASE_WRITE ? "write" : "read",
                        atomic_load(&r->readers), atomic_load(&r->writers));
}

static void leave(const opening *o, gvm_lease_mode mode)
{
    atomic_fetch_sub(mode == GVM_LEASE_WRITE ? &o->record->writers : &o->record->readers, 1);
}

/* ---- operations; each returns false after a problem */

static bool close_opening(opening *o)
{
    gvm_object_close(o->object);
    *o = (opening){0};
    return true;
}

static bool open_any(worker *w, opening *o)
{
    const uint64_t random = random_next(&w->seed);
    const unsigned position = (unsigned)(random % POSITIONS);
    const uint64_t serial = atomic_load(&soak->positions[position]);
    char name[64];
    gvm_status status;

    if (o->object != NULL || serial == 0)
        return close_opening(o);
    soak_name(serial, name);
    o->readonly = (random >> 32) % 4 == 0;
    status = gvm_object_open(w->keeper, name, o->readonly ? GVM_OPEN_READONLY : 0, &o->object);
    if (status != GVM_OK) {
        const bool gone = atomic_load(&soak->positions[position]) != serial;

        *o = (opening){0};
        return soak_judge("gvm_object_open", status, MAY(GVM_E_LIMIT) | (gone ? MAY(GVM_E_ABSENT) : 0));
    }
    o->record = &soak->records[serial % RECORDS];
    o->serial = serial;
    return true;
}

/* May neighbours keep others from such a lease for as long as they like? */
static bool may_be_kept_out(const opening *o, gvm_lease_mode mode)
{
    const soak_class class = o->record->class;

    return class == SOAK_WRITE || (class == SOAK_READ && mode == GVM_LEASE_WRITE);
}

/* By one of the honest, or by a neighbour who may write. */
static bool may_be_sealed(const opening *o)
{
    return o->record->class == SOAK_WRITE || atomic_load(&o->record->seal_asked);
}

static gvm_status acquire(worker *w, const opening *o, gvm_lease_mode mode, gvm_lease *lease,
                          bool *patient)
{
    const uint64_t random = random_next(&w->seed), since = now_ns();
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = (gvm_hint)(random & 3)};
    gvm_status status;

    *patient = !may_be_kept_out(o, mode) && (random >> 8) % 2 == 0;
    status = gvm_object_acquire(
        o->object, mode, &options,
        *patient ? (int)soak->patience_ms : (int)(1 + (random >> 16) % SHORT_WAIT_MS), lease);
    if (!may_be_kept_out(o, mode))
        soak_time(&soak->acquire, now_ns() - since);
    return status;
}

static bool use(worker *w, opening *o, gvm_lease_mode mode)
{
    const uint64_t random = random_next(&w->seed);
    gvm_lease lease = {0};
    bool patient, good;
    gvm_status status = acquire(w, o, mode, &lease, &patient);
    const uint64_t may = (patient ? 0 : MAY(GVM_E_TIMEOUT)) | (o->readonly ? MAY(GVM_E_READONLY) : 0) |
                         (may_be_sealed(o) ? MAY(GVM_E_SEALED) : 0);

    atomic_fetch_add(&soak->timeouts, status == GVM_E_TIMEOUT);
    if (status != GVM_OK)
        return soak_judge("gvm_object_acquire", status, may);
    good = enter(o, mode) && verify(o, &lease);
    if (random % 16 == 0)
        pause_ms((random >> 8) % HOLD_MS_MAX);
    if (good && mode == GVM_LEASE_WRITE) {
        const uint64_t version = atomic_load(&o->record->committed) + 1;

        stamp(&lease, o->serial, version);
        atomic_store(&o->record->bytes, lease.size_bytes);
        atomic_store(&o->record->committed, version);
    } else if (good && random % 32 == 1) {
        good = verify(o, &lease); /* nothing has changed meanwhile */
    }
    atomic_fetch_add(mode == GVM_LEASE_WRITE ? &soak->writes : &soak->reads, 1);
    leave(o, mode);
    return soak_judge("gvm_object_release", gvm_object_release(o->object, &lease), 0) && good;
}

static bool grow(opening *o)
{
    const uint32_t chunks = 1 + atomic_load(&o->record->chunks_asked);
    gvm_status status;

    if (chunks > OBJECT_CHUNKS_MAX || o->readonly)
        return true;
    atomic_store(&o->record->chunks_asked, chunks);
    status = gvm_object_grow(o->object, chunks * CHUNK_BYTES);
    atomic_fetch_add(&soak->refusals, status != GVM_OK);
    return soak_judge("gvm_object_grow", status,
                      MAY(GVM_E_NOSPACE) | MAY(GVM_E_QUOTA) | MAY(GVM_E_LIMIT) |
                          (may_be_sealed(o) ? MAY(GVM_E_SEALED) : 0));
}

static bool seal(opening *o)
{
    if (o->readonly)
        return true;
    atomic_store(&o->record->seal_asked, true);
    return soak_judge("gvm_object_seal", gvm_object_seal(o->object, SHORT_WAIT_MS),
                      MAY(GVM_E_TIMEOUT) | MAY(GVM_E_DENIED)); /* only its owner may */
}

static bool ask(const opening *o)
{
    gvm_object_info info = {.struct_size = sizeof info};

    return soak_judge("gvm_object_get_info", gvm_object_get_info(o->object, &info), 0);
}

static bool evict(worker *w)
{
    const uint64_t serial = atomic_load(&soak->positions[random_next(&w->seed) % POSITIONS]);
    char name[64];

    soak_name(serial, name);
    return serial == 0 || soak_judge("gvm_client_evict",
                                     gvm_client_evict(w->keeper, name, GVM_BYTES_UNLIMITED, NULL),
                                     MAY(GVM_E_ABSENT) | MAY(GVM_E_DENIED) | MAY(GVM_E_NOMEM));
}

/* work: NULL, or for what the server thread worked meanwhile. */
static bool reconnect(soak_times *times, soak_times *work)
{
    const uint64_t since = now_ns(), work_since = soak_keeper_work_ns();
    gvm_client *keeper = NULL;
    gvm_status status = gvm_client_connect(soak->path, &keeper);

    soak_time(times, now_ns() - since);
    if (work != NULL)
        soak_time(work, soak_keeper_work_ns() - work_since);
    gvm_client_close(keeper);
    return soak_judge("gvm_client_connect", status, 0);
}

/* ---- objects come and go; each position is filled by one thread */

static bool drop(worker *w, unsigned position)
{
    const uint64_t serial = atomic_exchange(&soak->positions[position], 0);
    char name[64];

    soak_name(serial, name);
    return serial == 0 || soak_judge("gvm_object_drop", gvm_object_drop(w->keeper, name), 0);
}

static soak_record *record_begin(uint64_t serial, soak_class class, uint32_t chunks)
{
    soak_record *r = &soak->records[serial % RECORDS];

    atomic_store(&r->committed, 0);
    atomic_store(&r->bytes, 0);
    atomic_store(&r->chunks_asked, chunks);
    atomic_store(&r->readers, 0);
    atomic_store(&r->writers, 0);
    atomic_store(&r->seal_asked, false);
    atomic_store(&r->serial, serial);
    r->class = class;
    return r;
}

/* Under its name from the start, or nameless and then published. */
static bool create(worker *w, unsigned position)
{
    static const uint32_t modes[SOAK_CLASSES] = {0660, 0664, 0666};
    const uint64_t random = random_next(&w->seed),
                   serial = atomic_fetch_add(&soak->next_serial, 1) + 1;
    const uint32_t chunks = (uint32_t)(random % OBJECT_CHUNKS_MAX);
    const soak_class class = (soak_class)(position % SOAK_CLASSES);
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = CHUNK_BYTES,
                                        .size_bytes = chunks * CHUNK_BYTES,
                                        .mode = modes[class],
                                        .flags = GVM_OBJECT_KEEP};
    const bool publish = random >> 8 & 1;
    gvm_object *object = NULL;
    char name[64];
    gvm_status status;

    soak_name(serial, name);
    (void)record_begin(serial, class, chunks);
    status = gvm_object_create(w->keeper, publish ? NULL : name, OBJECT_CHUNKS_MAX * CHUNK_BYTES,
                               &options, &object);
    if (status != GVM_OK) {
        atomic_fetch_add(&soak->refusals, 1);
        return soak_judge("gvm_object_create", status,
                          MAY(GVM_E_NOSPACE) | MAY(GVM_E_QUOTA) | MAY(GVM_E_LIMIT));
    }
    if (publish)
        status = gvm_object_publish(object, name, GVM_PUBLISH_REPLACE);
    if (status == GVM_OK)
        atomic_store(&soak->positions[position], serial);
    gvm_object_close(object); /* its name keeps it */
    return soak_judge("gvm_object_publish", status, 0);
}

static bool owns(const worker *w, unsigned position)
{
    return position / HONEST % HONEST_THREADS == w->index && position % HONEST == w->process;
}

static bool replace_any(worker *w)
{
    const unsigned position = (unsigned)(random_next(&w->seed) % POSITIONS);

    return !owns(w, position) || (drop(w, position) && create(w, position));
}

static bool act(worker *w)
{
    const uint64_t random = random_next(&w->seed);
    opening *o = &w->openings[random % OPENINGS];
    const unsigned what = (unsigned)(random >> 8) % 100;

    if (what < 4)
        return replace_any(w);
    if (what < 8)
        return evict(w);
    if (what < 9)
        return reconnect(&soak->connect, NULL);
    if (o->object == NULL || what < 20)
        return open_any(w, o);
    if (what < 26)
        return grow(o);
    if (what < 27)
        return seal(o);
    if (what < 30)
        return ask(o);
    return use(w, o, what < 60 && !o->readonly ? GVM_LEASE_WRITE : GVM_LEASE_READ);
}

static void *work(void *arg)
{
    worker *w = arg;
    bool good = true;

    for (unsigned i = 0; i < POSITIONS && good; i++)
        good = !owns(w, i) || create(w, i);
    while (good && !atomic_load(&soak->stop))
        good = act(w);
    for (unsigned i = 0; i < OPENINGS; i++)
        close_opening(&w->openings[i]);
    for (unsigned i = 0; i < POSITIONS; i++)
        if (owns(w, i))
            (void)drop(w, i);
    return NULL;
}

int honest_run(unsigned index, uint64_t seed)
{
    worker workers[HONEST_THREADS];
    pthread_t threads[HONEST_THREADS];
    gvm_client *keeper = NULL;
    gvm_device *device = NULL;
    bool good = soak_judge("gvm_device_open", gvm_device_open(0, &device), 0) &&
                (!soak->many_users || process_become(UID_HONEST + index, GID_HONEST)) &&
                soak_judge("gvm_client_connect", gvm_client_connect(soak->path, &keeper), 0);

    for (unsigned i = 0; i < HONEST_THREADS && good; i++) {
        workers[i] = (worker){
            .keeper = keeper, .process = index, .index = i, .seed = random_next(&seed)};
        good = pthread_create(&threads[i], NULL, work, &workers[i]) == 0;
    }
    for (unsigned i = 0; i < HONEST_THREADS && good; i++)
        pthread_join(threads[i], NULL);
    gvm_client_close(keeper);
    gvm_device_close(device);
    return good ? 0 : 1;
}

/* ---- the meter */

/* Takes the lease away from its own other connection, so that every acquire asks the keeper; and takes the
 * memory where it is, as copies take as long as the machine lets them. */
static bool measure_acquire(gvm_object *object, uint64_t *counter)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .hint = GVM_HINT_ONCE};
    const uint64_t since = now_ns(), work = soak_keeper_work_ns();
    gvm_lease lease;
    gvm_status status = gvm_object_acquire(object, GVM_LEASE_WRITE, &options,
                                           (int)soak->patience_ms, &lease);
    volatile uint64_t *first;

    soak_time(&soak->meter_acquire, now_ns() - since);
    soak_time(&soak->acquire_work, soak_keeper_work_ns() - work);
    if (status != GVM_OK)
        return soak_judge("gvm_object_acquire of the meter", status, 0);
    first = (volatile uint64_t *)(uintptr_t)lease.address;
    if (*first != *counter)
        return soak_problem("the meter finds %llu, not %llu", (unsigned long long)*first,
                            (unsigned long long)*counter);
    *first = ++*counter;
    return soak_judge("gvm_object_release of the meter", gvm_object_release(object, &lease), 0);
}

int meter_run(void)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK_BYTES, .size_bytes = CHUNK_BYTES};
    gvm_client *keepers[2] = {NULL, NULL};
    gvm_object *objects[2] = {NULL, NULL};
    gvm_device *device = NULL;
    uint64_t counter = 0;
    bool good = soak_judge("gvm_device_open", gvm_device_open(0, &device), 0) &&
                (!soak->many_users || process_become(UID_METER, UID_METER));

    for (int i = 0; i < 2 && good; i++)
        good = soak_judge("gvm_client_connect", gvm_client_connect(soak->path, &keepers[i]), 0);
    good = good &&
           soak_judge("gvm_object_create",
                      gvm_object_create(keepers[0], "/soak/meter", CHUNK_BYTES, &options, &objects[0]),
                      0) &&
           soak_judge("gvm_object_open", gvm_object_open(keepers[1], "/soak/meter", 0, &objects[1]), 0);
    for (unsigned i = 0; good && !atomic_load(&soak->stop); i++) {
        good = measure_acquire(objects[i % 2], &counter) &&
               (i % 8 != 0 || reconnect(&soak->meter_connect, &soak->connect_work));
        pause_ms(METER_PAUSE_MS);
    }
    for (int i = 1; i >= 0; i--) {
        gvm_object_close(objects[i]);
        gvm_client_close(keepers[i]);
    }
    gvm_device_close(device);
    return good ? 0 : 1;
}
