/* Operations on objects and connections: making, finding, changing, ending, looking. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/prop/keeper_ops.h"

#include "base/address.h"
#include "base/clock.h"
#include "keeper/client/client.h"
#include "tools/snapshot.h"

#define SEAL_WAIT_MS 10
#define CONNECTION_END_MS 10000 /* until the keeper has seen that one closed */

/* ---- slots */

slot *pick_slot(worker *w)
{
    const unsigned first = (unsigned)(random_next(&w->seed) % SLOTS);

    for (unsigned i = 0; i < SLOTS; i++) {
        slot *s = &w->party->slots[(first + i) % SLOTS];

        if (pthread_rwlock_tryrdlock(&s->lock) != 0)
            continue;
        if (s->object != NULL)
            return s;
        pthread_rwlock_unlock(&s->lock);
    }
    return NULL;
}

void leave_slot(slot *s)
{
    pthread_rwlock_unlock(&s->lock);
}

/* A slot that nobody uses, free or not, its lock held for writing. */
static slot *take_slot(worker *w, bool used)
{
    const unsigned first = (unsigned)(random_next(&w->seed) % SLOTS);

    for (unsigned i = 0; i < SLOTS; i++) {
        slot *s = &w->party->slots[(first + i) % SLOTS];

        if (pthread_rwlock_trywrlock(&s->lock) != 0)
            continue;
        if ((s->object != NULL) == used)
            return s;
        pthread_rwlock_unlock(&s->lock);
    }
    return NULL;
}

static bool fill_slot(slot *s, gvm_object *object, record *r, bool creator, bool readonly)
{
    gvm_object_info info = {.struct_size = sizeof info};

    if (!judged("gvm_object_get_info", gvm_object_get_info(object, &info), 0))
        return false;
    s->object = object;
    s->record = r;
    s->serial = atomic_load(&r->serial);
    s->id = info.id;
    s->address = gvmi_address(info.address);
    s->creator = creator;
    s->readonly = readonly;
    if (info.address == 0 || info.chunk_bytes != CHUNK_BYTES ||
        info.reserve_bytes != r->reserve_chunks * CHUNK_BYTES)
        return wrong("object %llu is at %llx, of %llu bytes in chunks of %llu",
                     (unsigned long long)info.id, (unsigned long long)info.address,
                     (unsigned long long)info.reserve_bytes, (unsigned long long)info.chunk_bytes);
    return true;
}

/* ---- making */

static bool create_named(worker *w, slot *s, int name, record *r, uint32_t chunks)
{
    const uint64_t serial = atomic_load(&r->serial),
                   owner = name >= 0 ? name_owner((unsigned)name) : 0;
    const fullness before = model_fullness();
    const bool keep = random_next(&w->seed) % 4 == 0;
    metadata m;
    gvm_object_options options = {
        .struct_size = sizeof options,
        .chunk_bytes = CHUNK_BYTES,
        .size_bytes = chunks * CHUNK_BYTES,
        .flags = keep ? GVM_OBJECT_KEEP : 0,
        .metadata_bytes = metadata_make(&m, serial, 0),
        .metadata = &m,
    };
    gvm_object *object = NULL;
    uint64_t may = owner != 0 ? ONE_OF(GVM_E_EXISTS) | MUST_FAIL : 0;
    gvm_status status;

    record_ask_chunks(r, chunks);
    r->outlives = keep;
    if (name >= 0 && owner == 0)
        name_ask((unsigned)name, serial);
    status = gvm_object_create(w->party->keeper, name >= 0 ? name_text((unsigned)name) : NULL,
                               r->reserve_chunks * CHUNK_BYTES, &options, &object);
    if (chunks > 0 && model_may_have_been_full(&before))
        may |= ONE_OF(GVM_E_NOSPACE);
    if (status == GVM_OK) {
        record_grown(r, chunks);
        if (name >= 0 && owner == 0)
            name_done((unsigned)name, 0, serial);
    } else if (name >= 0 && owner == 0) {
        name_ask((unsigned)name, 0);
        name_done((unsigned)name, 0, 0);
    }
    if (!judged("gvm_object_create", status, may))
        return false;
    if (status != GVM_OK) {
        record_drop(r);
        return object == NULL || wrong("a failed create wrote its output");
    }
    if (!fill_slot(s, object, r, true, false))
        return false;
    atomic_store(&r->address, s->address);
    return true;
}

static bool do_create(worker *w)
{
    const uint64_t random = random_next(&w->seed);
    const uint32_t reserve = 1 + (uint32_t)(random % CHUNKS_MAX);
    slot *s = take_slot(w, false);
    bool good;

    if (s == NULL)
        return true;
    names_lock();
    good = create_named(w, s, random >> 8 & 1 ? (int)((random >> 16 & 0xff) % NAMES) : -1,
                        record_create(reserve), (uint32_t)(random >> 32) % (reserve + 1));
    names_unlock();
    pthread_rwlock_unlock(&s->lock);
    return good;
}

/* ---- finding */

/* Which object was opened? Its metadata tells. */
static bool identify(slot *s, gvm_object *object, unsigned name, uint64_t done, uint32_t flags)
{
    metadata m;
    uint32_t len = 0;
    record *r;

    memset(&m, 0, sizeof m);
    if (!judged("gvm_object_get_metadata", gvm_object_get_metadata(object, &m, sizeof m, &len), 0))
        return false;
    if (!metadata_good(&m, len))
        return wrong("the metadata of what %s opened are not what anybody set", name_text(name));
    r = record_find(m.serial);
    if (r == NULL || !name_was(name, done, m.serial))
        return wrong("%s opened the object of serial %llu, which did not have that name then",
                     name_text(name), (unsigned long long)m.serial);
    record_hold(r);
    if (!fill_slot(s, object, r, false, (flags & GVM_OPEN_READONLY) != 0))
        return false;
    if ((flags & GVM_OPEN_SAME_ADDRESS) != 0 && atomic_load(&r->address) != 0 &&
        s->address != atomic_load(&r->address))
        return wrong("opened at %llx and not at its creator's %llx", (unsigned long long)s->address,
                     (unsigned long long)atomic_load(&r->address));
    return true;
}

static bool do_open(worker *w)
{
    const uint64_t random = random_next(&w->seed);
    const unsigned name = (unsigned)(random % NAMES);
    const uint32_t flags = (random >> 8 & 7) == 0   ? GVM_OPEN_READONLY
                           : (random >> 8 & 7) == 1 ? GVM_OPEN_SAME_ADDRESS
                                                    : 0;
    slot *s = take_slot(w, false);
    gvm_object *object = NULL;
    uint64_t may = (flags & GVM_OPEN_SAME_ADDRESS) != 0 ? ONE_OF(GVM_E_ADDRESS) : 0, done;
    gvm_status status;
    bool good;

    if (s == NULL)
        return true;
    pthread_rwlock_rdlock(&w->party->opening);
    model_open_begins();
    done = atomic_load(&page->names[name].done);
    status = gvm_object_open(w->party->keeper, name_text(name), flags, &object);
    if (name_was(name, done, 0))
        may |= ONE_OF(GVM_E_ABSENT);
    good = judged("gvm_object_open", status, may) &&
           (status != GVM_OK || identify(s, object, name, done, flags));
    model_open_ends();
    pthread_rwlock_unlock(&w->party->opening);
    pthread_rwlock_unlock(&s->lock);
    return good;
}

/* ---- ending */

/* Does a name end with this opening? One that must not outlive its creator goes with the last
 * opening that the creator's connection has, which the slot it was created in is: do_close() and
 * disconnect() close the others before. Under the mutex, as all that follows. */
static bool bears_name(const slot *s)
{
    return s->object != NULL && s->creator && !s->record->outlives && s->record->name >= 0;
}

/* The slot's lock is held for writing, and the GPU is at rest. A close that has taken so long may not have reached
 * the keeper yet: what the object has counts for ever. */
static void close_locked(slot *s)
{
    const int64_t late_ns = gvmi_deadline_ns(GVMI_CLIENT_BYE_MS);
    record *r = s->record;
    const int name = bears_name(s) ? r->name : -1;

    if (name >= 0)
        name_ask((unsigned)name, 0);
    gvm_object_close(s->object);
    if (name >= 0)
        name_done((unsigned)name, s->serial, 0);
    if (gvmi_now_ns() < late_ns)
        record_drop(r);
    s->object = NULL;
    s->record = NULL;
}

/* Another opening of the same object by this process. */
static bool opened_twice(const party *p, const slot *s)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (&p->slots[i] != s && p->slots[i].object != NULL && p->slots[i].serial == s->serial)
            return true;
    return false;
}

static bool gpu_rests(worker *w)
{
    return judged("gvm_device_synchronize", gvm_device_synchronize(w->party->device), 0);
}

static bool do_close(worker *w)
{
    slot *s = take_slot(w, true);
    bool good = true, bears;

    if (s == NULL)
        return true;
    names_lock();
    bears = bears_name(s);
    if (bears) /* an open under way, even one that fails in the end, would keep the name */
        pthread_rwlock_wrlock(&w->party->opening);
    if (!bears || !opened_twice(w->party, s)) {
        good = gpu_rests(w);
        close_locked(s);
    }
    if (bears)
        pthread_rwlock_unlock(&w->party->opening);
    names_unlock();
    pthread_rwlock_unlock(&s->lock);
    return good;
}

static bool do_drop(worker *w)
{
    const unsigned name = (unsigned)(random_next(&w->seed) % NAMES);
    uint64_t owner;
    gvm_status status;

    names_lock();
    owner = name_owner(name);
    name_ask(name, 0);
    status = gvm_object_drop(w->party->keeper, name_text(name));
    name_done(name, owner, 0);
    names_unlock();
    return judged("gvm_object_drop", status, owner == 0 ? ONE_OF(GVM_E_ABSENT) | MUST_FAIL : 0);
}

/* ---- changing */

static bool do_grow(worker *w)
{
    slot *s = pick_slot(w);
    const uint64_t random = random_next(&w->seed);
    const fullness before = model_fullness();
    uint32_t chunks;
    uint64_t may = 0;
    gvm_status status;
    bool sealed;

    if (s == NULL)
        return true;
    chunks = 1 + (uint32_t)(random % (s->record->reserve_chunks + (random >> 32 & 7 ? 0u : 1u)));
    sealed = atomic_load(&s->record->seal_done);
    if (chunks > s->record->reserve_chunks)
        may |= ONE_OF(GVM_E_INVALID) | MUST_FAIL;
    else
        record_ask_chunks(s->record, chunks);
    status = gvm_object_grow(s->object, chunks * CHUNK_BYTES);
    if (s->readonly)
        may |= ONE_OF(GVM_E_DENIED) | MUST_FAIL;
    if (atomic_load(&s->record->seal_asked))
        may |= ONE_OF(GVM_E_SEALED);
    if (sealed && chunks > atomic_load(&s->record->chunks_done))
        may |= MUST_FAIL;
    if (model_may_have_been_full(&before))
        may |= ONE_OF(GVM_E_NOSPACE);
    if (status == GVM_OK)
        record_grown(s->record, chunks);
    leave_slot(s);
    return judged("gvm_object_grow", status, may);
}

static bool do_seal(worker *w)
{
    slot *s = pick_slot(w);
    uint64_t may = ONE_OF(GVM_E_TIMEOUT);
    gvm_status status;

    if (s == NULL)
        return true;
    names_lock();
    if (s->readonly)
        may |= ONE_OF(GVM_E_DENIED) | MUST_FAIL;
    else
        atomic_store(&s->record->seal_asked, true);
    status = gvm_object_seal(s->object, SEAL_WAIT_MS);
    if (status == GVM_OK && !s->readonly) {
        atomic_store(&s->record->seal_done, true);
        s->record->outlives = true;
    }
    names_unlock();
    leave_slot(s);
    return judged("gvm_object_seal", status, may);
}

/* Under the mutex. */
static bool publish(slot *s, unsigned name, uint32_t flags)
{
    const uint64_t owner = name_owner(name);
    const int before = s->record->name;
    const bool taken = owner != 0 && owner != s->serial && (flags & GVM_PUBLISH_REPLACE) == 0;
    uint64_t may = taken ? ONE_OF(GVM_E_EXISTS) | MUST_FAIL : 0;
    gvm_status status;

    if (owner == s->serial) /* its own name again: whether that is taken is left open */
        may |= ONE_OF(GVM_E_EXISTS);
    if (s->readonly)
        may |= ONE_OF(GVM_E_DENIED);
    if (!taken) {
        name_ask(name, s->serial);
        if (before >= 0 && before != (int)name)
            name_ask((unsigned)before, 0);
    }
    status = gvm_object_publish(s->object, name_text(name), flags);
    if (taken)
        return judged("gvm_object_publish", status, may);
    if (status == GVM_OK) {
        s->record->outlives = true;
        name_done(name, owner, s->serial);
        if (before >= 0 && before != (int)name)
            atomic_store(&page->names[before].done, atomic_load(&page->names[before].asked));
    } else {
        name_ask(name, owner);
        name_done(name, owner, owner);
        if (before >= 0 && before != (int)name) {
            name_ask((unsigned)before, s->serial);
            name_done((unsigned)before, s->serial, s->serial);
        }
    }
    return judged("gvm_object_publish", status, may);
}

static bool do_publish(worker *w)
{
    slot *s = pick_slot(w);
    const uint64_t random = random_next(&w->seed);
    bool good;

    if (s == NULL)
        return true;
    names_lock();
    good = publish(s, (unsigned)(random % NAMES), random >> 32 & 3 ? GVM_PUBLISH_REPLACE : 0);
    names_unlock();
    leave_slot(s);
    return good;
}

static bool do_set_mode(worker *w)
{
    static const uint32_t modes[] = {0600, 0644, 0666};
    slot *s = pick_slot(w);
    bool good;

    if (s == NULL)
        return true;
    good = judged("gvm_object_set_mode",
                  gvm_object_set_mode(s->object, modes[random_next(&w->seed) % 3]),
                  s->readonly ? ONE_OF(GVM_E_DENIED) : 0);
    leave_slot(s);
    return good;
}

static bool do_set_metadata(worker *w)
{
    slot *s = pick_slot(w);
    record *r;
    metadata m;
    uint64_t may = 0, version;
    uint32_t len;
    bool sealed, good = true;

    if (s == NULL)
        return true;
    r = s->record;
    if (!atomic_flag_test_and_set(&r->metadata_busy)) {
        sealed = atomic_load(&r->seal_done);
        version = atomic_load(&r->metadata_asked) + 1;
        len = metadata_make(&m, s->serial, version);
        atomic_store(&r->metadata_asked, version);
        const gvm_status status = gvm_object_set_metadata(s->object, &m, len);

        if (s->readonly)
            may |= ONE_OF(GVM_E_DENIED) | MUST_FAIL;
        if (atomic_load(&r->seal_asked))
            may |= ONE_OF(GVM_E_SEALED) | (sealed ? MUST_FAIL : 0);
        if (status == GVM_OK)
            atomic_store(&r->metadata_done, version);
        good = judged("gvm_object_set_metadata", status, may);
        atomic_flag_clear(&r->metadata_busy);
    }
    leave_slot(s);
    return good;
}

static bool do_get_metadata(worker *w)
{
    slot *s = pick_slot(w);
    uint64_t oldest;
    uint32_t len = 0, wanted;
    metadata m;
    bool good;

    if (s == NULL)
        return true;
    memset(&m, 0, sizeof m);
    oldest = atomic_load(&s->record->metadata_done);
    wanted = random_next(&w->seed) % 8 == 0 ? (uint32_t)offsetof(metadata, filler)
                                            : (uint32_t)sizeof m;
    good = judged("gvm_object_get_metadata", gvm_object_get_metadata(s->object, &m, wanted, &len), 0);
    if (good && wanted == sizeof m && !metadata_good(&m, len))
        good = wrong("metadata of object %llu are not what anybody set", (unsigned long long)s->id);
    if (good && (m.serial != s->serial || m.version < oldest ||
                 m.version > atomic_load(&s->record->metadata_asked)))
        good = wrong("metadata of version %llu, where the latest was %llu",
                     (unsigned long long)m.version, (unsigned long long)oldest);
    leave_slot(s);
    return good;
}

/* ---- looking */

static bool check_info(const gvm_object_info *info, const slot *s, uint32_t chunks_before,
                       bool sealed_before)
{
    record *r = s->record;
    const uint64_t most = atomic_load(&r->chunks_asked) * CHUNK_BYTES;

    if (info->id != s->id || gvmi_address(info->address) != s->address)
        return wrong("object %llu at %llx says %llu at %llx", (unsigned long long)s->id,
                     (unsigned long long)s->address, (unsigned long long)info->id,
                     (unsigned long long)gvmi_address(info->address));
    if (info->size_bytes < chunks_before * CHUNK_BYTES || info->size_bytes > most)
        return wrong("object %llu says it has %llu bytes, not %llu to %llu",
                     (unsigned long long)s->id, (unsigned long long)info->size_bytes,
                     (unsigned long long)(chunks_before * CHUNK_BYTES), (unsigned long long)most);
    if (info->device_bytes + info->host_bytes != info->size_bytes ||
        info->duplicate_bytes > info->device_bytes || info->dirty_bytes > info->device_bytes)
        return wrong("object %llu: %llu bytes on the device, %llu on the host, of %llu",
                     (unsigned long long)s->id, (unsigned long long)info->device_bytes,
                     (unsigned long long)info->host_bytes, (unsigned long long)info->size_bytes);
    if (info->openings == 0 || (sealed_before && !info->sealed) ||
        (info->sealed && !atomic_load(&r->seal_asked)) || info->interrupted != 0)
        return wrong("object %llu: %u openings, sealed %u, interrupted %u",
                     (unsigned long long)s->id, info->openings, info->sealed, info->interrupted);
    return true;
}

static bool do_info(worker *w)
{
    slot *s = pick_slot(w);
    gvm_object_info info = {.struct_size = sizeof info};
    uint32_t chunks;
    bool sealed, good, leased = false;

    if (s == NULL)
        return true;
    chunks = atomic_load(&s->record->chunks_done);
    sealed = atomic_load(&s->record->seal_done);
    good = judged("gvm_object_get_info", gvm_object_get_info(s->object, &info), 0) &&
           check_info(&info, s, chunks, sealed);
    for (unsigned i = 0; i < w->lease_count; i++)
        leased |= w->leases[i].slot == s;
    if (good && leased && info.read_leases + info.write_leases == 0)
        good = wrong("object %llu has a lease and says it has none", (unsigned long long)s->id);
    leave_slot(s);
    return good;
}

static bool check_snapshot(const snapshot_copy *n)
{
    uint64_t device = 0, host = 0, duplicate = 0;

    for (uint32_t i = 0; i < n->keeper.objects; i++) {
        device += n->objects[i].device_bytes;
        host += n->objects[i].host_bytes;
        duplicate += n->objects[i].duplicate_bytes;
    }
    if (n->keeper.devices != 1 || n->keeper.clients == 0)
        return wrong("a snapshot of %u devices and %u clients", n->keeper.devices, n->keeper.clients);
    if (device > n->devices[0].resident_bytes ||
        n->devices[0].resident_bytes + n->devices[0].free_bytes > page->device_budget_bytes)
        return wrong("%llu bytes of objects, %llu resident and %llu free, in a budget of %llu",
                     (unsigned long long)device, (unsigned long long)n->devices[0].resident_bytes,
                     (unsigned long long)n->devices[0].free_bytes,
                     (unsigned long long)page->device_budget_bytes);
    if (host + duplicate > n->keeper.host_used_bytes ||
        n->keeper.host_used_bytes + n->keeper.host_free_bytes > page->host_budget_bytes)
        return wrong(
            "%llu bytes of objects on the host and %llu duplicates, %llu used, in a budget of %llu",
            (unsigned long long)host, (unsigned long long)duplicate,
            (unsigned long long)n->keeper.host_used_bytes,
            (unsigned long long)page->host_budget_bytes);
    if (n->keeper.faults != 0 || n->keeper.cut_offs != 0 || n->devices[0].held_bytes != 0)
        return wrong("%llu faults, %llu cut off, %llu bytes held",
                     (unsigned long long)n->keeper.faults, (unsigned long long)n->keeper.cut_offs,
                     (unsigned long long)n->devices[0].held_bytes);
    return true;
}

static bool do_snapshot(worker *w)
{
    snapshot_copy *n = NULL;
    bool good;

    if (!judged("gvm_client_get_snapshot", snapshot_take(w->party->keeper, &n), 0))
        return false;
    good = check_snapshot(n);
    snapshot_free(n);
    return good;
}

/* ---- running the machine */

static bool do_evict(worker *w)
{
    const uint64_t random = random_next(&w->seed),
                   done = atomic_load(&page->names[random % NAMES].done);
    const unsigned name = (unsigned)(random % NAMES);
    uint64_t evicted = 0, may = ONE_OF(GVM_E_NOMEM), bytes = (random >> 32 & 3) * CHUNK_BYTES;
    const bool all = (random >> 34 & 3) == 0;
    gvm_status status = gvm_client_evict(w->party->keeper, name_text(name),
                                         all ? GVM_BYTES_UNLIMITED : bytes, &evicted);

    if (name_was(name, done, 0))
        may |= ONE_OF(GVM_E_ABSENT);
    if (evicted > (all ? CHUNKS_MAX * CHUNK_BYTES : bytes))
        return wrong("evicted %llu bytes where %llu were asked for", (unsigned long long)evicted,
                     (unsigned long long)bytes);
    return judged("gvm_client_evict", status, may);
}

static bool do_trim(worker *w)
{
    uint64_t freed = 0;

    return judged(
        "gvm_client_trim",
        gvm_client_trim(w->party->keeper, 0, random_next(&w->seed) % 3 * CHUNK_BYTES, &freed), 0);
}

/* ---- connections */

/* Does the keeper know of one connection of this process alone? */
static bool one_connection_is_left(gvm_client *keeper)
{
    snapshot_copy *n = NULL;
    unsigned mine = 0;

    if (!judged("gvm_client_get_snapshot", snapshot_take(keeper, &n), 0))
        return true;
    for (uint32_t i = 0; i < n->keeper.clients; i++)
        mine += n->clients[i].pid == getpid();
    snapshot_free(n);
    return mine == 1;
}

/* Has the slot an object whose name ends with this connection? */
static bool shares_name(const party *p, const slot *s)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (p->slots[i].serial == s->serial && bears_name(&p->slots[i]))
            return true;
    return false;
}

/* Closes the connection with what is open over it. Private objects that have names are closed one
 * by one before, as when the keeper sees that a connection ended is its own affair; and where the
 * creator opened his own by name, the opening that bears the name goes last. */
static bool disconnect(worker *w)
{
    party *p = w->party;
    const bool tidy = random_next(&w->seed) & 1;
    bool good;

    names_lock();
    good = gpu_rests(w);
    for (int bears = 0; bears < 2; bears++)
        for (unsigned i = 0; i < SLOTS; i++) {
            slot *s = &p->slots[i];

            if (s->object != NULL && bears_name(s) == bears && (tidy || shares_name(p, s)))
                close_locked(s);
        }
    gvm_client_close(p->keeper);
    names_unlock();
    return good;
}

static bool connect_again(party *p)
{
    bool good = judged("gvm_client_connect", gvm_client_connect(page->path, &p->keeper), 0);

    for (int ms = 0; good && !one_connection_is_left(p->keeper); ms += 2) {
        if (ms > CONNECTION_END_MS)
            good = wrong("a connection that was closed is still there after %d ms", ms);
        pause_ms(2);
    }
    for (unsigned i = 0; i < SLOTS; i++) { /* what closing the connection has closed */
        slot *s = &p->slots[i];

        if (s->object != NULL)
            record_drop(s->record);
        s->object = NULL;
        s->record = NULL;
    }
    return good;
}

static bool do_reconnect(worker *w)
{
    party *p = w->party;
    bool good = release_all(w);

    if (atomic_exchange(&p->reconnecting, true))
        return good;
    pthread_rwlock_wrlock(&p->connection);
    good = good && disconnect(w) && connect_again(p);
    atomic_store(&p->reconnecting, false);
    pthread_rwlock_unlock(&p->connection);
    return good;
}

/* ---- calls that are wrong in any state */

#define REFUSED(call, wanted) \
    if (!judged(#call, call, ONE_OF(wanted) | MUST_FAIL)) \
    return false

static bool invalid_with_object(slot *s)
{
    const gvm_acquire_options hint = {.struct_size = sizeof hint, .hint = (gvm_hint)17};
    gvm_object_info small = {.struct_size = 8};
    gvm_lease lease = {0};
    uint8_t byte = 0;

    REFUSED(gvm_object_acquire(s->object, GVM_LEASE_READ, NULL, GVM_FOREVER, NULL), GVM_E_INVALID);
    REFUSED(gvm_object_acquire(s->object, (gvm_lease_mode)9, NULL, GVM_FOREVER, &lease), GVM_E_INVALID);
    REFUSED(gvm_object_acquire(s->object, GVM_LEASE_READ, &hint, GVM_FOREVER, &lease), GVM_E_INVALID);
    REFUSED(gvm_object_acquire(s->object, GVM_LEASE_READ, NULL, -2, &lease), GVM_E_INVALID);
    REFUSED(gvm_object_seal(s->object, -2), GVM_E_INVALID);
    REFUSED(gvm_object_release(s->object, &lease), GVM_E_INVALID);
    REFUSED(gvm_object_release(s->object, NULL), GVM_E_INVALID);
    REFUSED(gvm_object_release_async(s->object, &lease, NULL), GVM_E_INVALID);
    REFUSED(gvm_object_get_info(s->object, &small), GVM_E_INVALID);
    REFUSED(gvm_object_get_info(s->object, NULL), GVM_E_INVALID);
    if (!s->readonly) {
        REFUSED(gvm_object_publish(s->object, "/a", 1u << 20), GVM_E_INVALID);
        REFUSED(gvm_object_publish(s->object, "", 0), GVM_E_INVALID);
        REFUSED(gvm_object_set_mode(s->object, 01777), GVM_E_INVALID);
        REFUSED(gvm_object_set_metadata(s->object, &byte, GVM_METADATA_BYTES_MAX + 1), GVM_E_INVALID);
    }
    return true;
}

static bool do_invalid(worker *w)
{
    gvm_client *keeper = w->party->keeper;
    const gvm_object_options chunk = {.struct_size = sizeof chunk, .chunk_bytes = 3 * MIB};
    const gvm_object_options large = {.struct_size = sizeof large, .size_bytes = 3 * CHUNK_BYTES};
    const gvm_object_options flags = {.struct_size = sizeof flags, .flags = 1u << 20};
    gvm_object_info info = {.struct_size = sizeof info};
    gvm_object *object = NULL;
    char name[GVM_NAME_BYTES_MAX + 1], stray[64] = {0};
    slot *s = pick_slot(w);
    bool good = s == NULL || invalid_with_object(s);

    if (s != NULL)
        leave_slot(s);
    if (!good)
        return false;
    memset(name, 'x', sizeof name);
    name[0] = '/';
    name[sizeof name - 1] = '\0';
    REFUSED(gvm_object_open(keeper, "/a", 1u << 20, &object), GVM_E_INVALID);
    REFUSED(gvm_object_open(keeper, "a", 0, &object), GVM_E_INVALID);
    REFUSED(gvm_object_open(keeper, "/a\n", 0, &object), GVM_E_INVALID);
    REFUSED(gvm_object_open(keeper, name, 0, &object), GVM_E_INVALID);
    REFUSED(gvm_object_open(keeper, NULL, 0, &object), GVM_E_INVALID);
    REFUSED(gvm_object_open(keeper, "/nobody", 0, &object), GVM_E_ABSENT);
    REFUSED(gvm_object_create(keeper, NULL, 0, NULL, &object), GVM_E_INVALID);
    REFUSED(gvm_object_create(keeper, NULL, CHUNK_BYTES, NULL, NULL), GVM_E_INVALID);
    REFUSED(gvm_object_create(keeper, NULL, CHUNK_BYTES, &chunk, &object), GVM_E_INVALID);
    REFUSED(gvm_object_create(keeper, NULL, CHUNK_BYTES, &large, &object), GVM_E_INVALID);
    REFUSED(gvm_object_create(keeper, NULL, CHUNK_BYTES, &flags, &object), GVM_E_INVALID);
    REFUSED(gvm_object_drop(keeper, "/nobody"), GVM_E_ABSENT);
    REFUSED(gvm_client_evict(keeper, "/nobody", 0, NULL), GVM_E_ABSENT);
    REFUSED(gvm_client_evict(keeper, "/nobody", GVM_BYTES_NONE, NULL), GVM_E_INVALID);
    REFUSED(gvm_client_set_quota(keeper, 1, GVM_BYTES_NONE), GVM_E_INVALID);
    REFUSED(gvm_client_trim(keeper, 7, 0, NULL), GVM_E_INVALID);
    REFUSED(gvm_client_get_snapshot(keeper, NULL), GVM_E_INVALID);
    REFUSED(gvm_object_get_info((gvm_object *)stray, &info), GVM_E_FOREIGN);
    REFUSED(gvm_object_grow((gvm_object *)stray, 1), GVM_E_FOREIGN);
    REFUSED(gvm_object_drop((gvm_client *)stray, "/a"), GVM_E_FOREIGN);
    gvm_object_close((gvm_object *)stray);
    gvm_object_close(NULL);
    gvm_client_close(NULL);
    return true;
}

bool do_object_op(worker *w, op_kind kind)
{
    switch (kind) {
    case OP_CREATE: return do_create(w);
    case OP_OPEN: return do_open(w);
    case OP_CLOSE: return do_close(w);
    case OP_GROW: return do_grow(w);
    case OP_SEAL: return do_seal(w);
    case OP_PUBLISH: return do_publish(w);
    case OP_DROP: return do_drop(w);
    case OP_SET_METADATA: return do_set_metadata(w);
    case OP_GET_METADATA: return do_get_metadata(w);
    case OP_SET_MODE: return do_set_mode(w);
    case OP_EVICT: return do_evict(w);
    case OP_INFO: return do_info(w);
    case OP_SNAPSHOT: return do_snapshot(w);
    case OP_TRIM: return do_trim(w);
    case OP_RECONNECT: return do_reconnect(w);
    default: return do_invalid(w);
    }
}
