/* tests/unit/machine_fixture.h - the keeper's machine without a server: clients are pages of words, the last
 * message that they were sent and the frames that they have mapped. Jobs end when the test says so.
 *
 * A lease that is granted, or that a permit allows, while a chunk is not mapped in the frame where it is fails
 * the test.
 */
#ifndef UNIT_MACHINE_FIXTURE_H
#define UNIT_MACHINE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "keeper/machine/room.h"
#include "tests/lib/units.h"
#include "tests/unit/unit.h"

#define CHUNK (2 * MIB)
#define MS 1000000ll
#define KEEPER_UID 500
#define ACTORS_MAX 128

typedef struct sent_map {
    gvmi_wire_message message;
    uint32_t frames[GVMI_WIRE_CHUNKS_MAX];
} sent_map;

/* An object as its client has it mapped. */
typedef struct mapping {
    bool open;
    uint32_t generation; /* shown to its threads */
    uint64_t bytes, chunk_bytes;
    uint32_t *frames; /* by chunk; 0: not mapped */
    uint32_t frame_count;
} mapping;

typedef struct actor {
    uint32_t number;
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    gvmi_wire_message latest; /* but for MAPs, which are answered */
    unsigned count;           /* of those messages */
    uint32_t slot;            /* of the last OPENED */
    uint8_t *snapshot;        /* what came of one so far, or the last */
    size_t snapshot_len;
    bool snapshot_over; /* the next piece is of another one */
    bool cut, killed, forgotten;
    bool deaf;                   /* answers no MAP */
    gvmi_wire_map maps[4], *map; /* that it did not answer; the latest */
    sent_map *unanswered;        /* the same, whole */
    unsigned unanswered_count;
    sent_map latest_map; /* answered or not */
    unsigned map_count;  /* of all */
    mapping *mappings;   /* by slot */
    uint32_t mapping_count;
    uint32_t create_flags;
    uint64_t create_chunk_bytes; /* 0: CHUNK */
    uint8_t create_device;       /* index */
} actor;

typedef struct fixture {
    gvmi_machine *machine;
    actor actors[ACTORS_MAX];
    unsigned actor_count;
    uint64_t jobs[64];
    unsigned job_count;
    bool hold_jobs;
    bool unchecked; /* the machine is not checked after each action: for thousands of objects */
    uint64_t dropped_bytes;
    unsigned lines; /* logged */
    int64_t now_ns;
} fixture;

static inline actor *find_actor(fixture *w, uint32_t number)
{
    for (unsigned i = 0; i < w->actor_count; i++)
        if (w->actors[i].number == number)
            return &w->actors[i];
    fail_msg("an action for client %u, which there is not", number);
    return NULL;
}

/* ---- what clients have mapped */

static inline void open_mapping(actor *a, const gvmi_wire_opened *opened)
{
    mapping *map;

    if (opened->slot >= a->mapping_count) {
        a->mappings = realloc(a->mappings, (opened->slot + 1) * sizeof *a->mappings);
        assert_non_null(a->mappings);
        memset(a->mappings + a->mapping_count, 0,
               (opened->slot + 1 - a->mapping_count) * sizeof *a->mappings);
        a->mapping_count = opened->slot + 1;
    }
    map = &a->mappings[opened->slot];
    free(map->frames);
    *map = (mapping){.open = true,
                     .generation = opened->generation,
                     .bytes = opened->bytes,
                     .chunk_bytes = opened->chunk_bytes};
}

/* NULL: it was closed. */
static inline mapping *mapping_of(const actor *a, uint32_t slot)
{
    return slot < a->mapping_count && a->mappings[slot].open ? &a->mappings[slot] : NULL;
}

static inline uint32_t mapped_frame(const actor *a, uint32_t slot, uint32_t chunk)
{
    const mapping *map = mapping_of(a, slot);

    return map != NULL && chunk < map->frame_count ? map->frames[chunk] : 0;
}

static inline void map_chunk(mapping *map, uint32_t chunk, uint32_t frame)
{
    if (chunk >= map->frame_count) {
        map->frames = realloc(map->frames, (chunk + 1) * sizeof *map->frames);
        assert_non_null(map->frames);
        memset(map->frames + map->frame_count, 0, (chunk + 1 - map->frame_count) * sizeof *map->frames);
        map->frame_count = chunk + 1;
    }
    map->frames[chunk] = frame;
}

static inline void apply_map(const actor *a, const sent_map *sent)
{
    const gvmi_wire_map *body = &sent->message.body.MAP;
    mapping *map = mapping_of(a, body->slot);
    uint32_t fds = 0;

    if (map == NULL)
        return;
    for (uint32_t i = 0; i < map->frame_count; i++)
        if (body->bytes < map->bytes && i * map->chunk_bytes >= body->bytes)
            map->frames[i] = 0;
    for (uint32_t i = 0; i < sent->message.head.tail_bytes / sizeof(gvmi_wire_chunk); i++) {
        const gvmi_wire_chunk *chunk = &sent->message.tail.chunks[i];

        map_chunk(map, chunk->index, chunk->tier == GVM_TIER_ABSENT ? 0 : sent->frames[fds++]);
    }
    map->bytes = body->bytes;
    map->generation = body->generation;
}

static inline bool has_all_mapped(const fixture *w, const actor *a, uint32_t slot)
{
    const mapping *map = mapping_of(a, slot);
    const keep_client *client = gvmi_keep_client(w->machine, a->number);
    const keep_opening *opening = client != NULL ? client->slots[slot] : NULL;

    if (map == NULL || opening == NULL)
        return true;
    for (uint32_t i = 0; i * map->chunk_bytes < map->bytes; i++)
        if (i >= gvmi_keep_opened_chunks(opening) ||
            mapped_frame(a, slot, i) != gvmi_keep_frame_where(&opening->object->chunks[i]))
            return false;
    return true;
}

/* Permits that threads of the client may use already: those of the size that is shown. */
static inline void check_permits_of(const fixture *w, const actor *a)
{
    for (uint32_t slot = 0; !a->forgotten && slot < a->mapping_count; slot++) {
        const uint64_t word = atomic_load(&a->permits[slot].word);

        if (a->mappings[slot].open && (word & (GVMI_PERMIT_READ | GVMI_PERMIT_WRITE)) != 0 &&
            gvmi_permit_generation(word) == a->mappings[slot].generation)
            assert_true(has_all_mapped(w, a, slot));
    }
}

/* ---- actions */

static inline void answer_map(fixture *w, const actor *a, const gvmi_wire_map *map)
{
    gvmi_wire_message reply;

    gvmi_wire_start(&reply, GVMI_WIRE_UNMAPPED, 0);
    reply.body.UNMAPPED = (gvmi_wire_unmapped){.slot = map->slot, .serial = map->serial};
    gvmi_machine_message(w->machine, a->number, &reply);
    gvmi_wire_start(&reply, GVMI_WIRE_MAPPED, 0);
    reply.body.MAPPED = (gvmi_wire_mapped){.slot = map->slot, .serial = map->serial};
    gvmi_machine_message(w->machine, a->number, &reply);
}

/* It was packed as the rules want it: a file for each chunk that is not absent. */
static inline void check_map(const gvmi_wire_message *map)
{
    gvmi_wire_message out;
    uint8_t bytes[sizeof out];

    assert_int_equal(gvmi_wire_decode(bytes, gvmi_wire_encode(map, bytes), false, &out), GVM_OK);
}

static inline void deliver_map(fixture *w, actor *a, const sent_map *sent)
{
    check_map(&sent->message);
    a->latest_map = *sent;
    a->map_count++;
    if (!a->deaf) {
        apply_map(a, sent);
        answer_map(w, a, &sent->message.body.MAP);
        return;
    }
    a->map = a->map == NULL ? a->maps : a->map + 1;
    assert_true(a->map < a->maps + 4);
    *a->map = sent->message.body.MAP;
    a->unanswered = realloc(a->unanswered, (a->unanswered_count + 1) * sizeof *a->unanswered);
    assert_non_null(a->unanswered);
    a->unanswered[a->unanswered_count++] = *sent;
}

static inline void deliver(fixture *w, gvmi_action *action)
{
    actor *a = find_actor(w, action->client);
    sent_map sent = {.message = *action->message};

    free(action->message);
    if (sent.message.head.type == GVMI_WIRE_MAP) {
        memcpy(sent.frames, action->frames, sizeof sent.frames);
        deliver_map(w, a, &sent);
        return;
    }
    a->latest = sent.message;
    a->count++;
    if (sent.message.head.type == GVMI_WIRE_OPENED) {
        a->slot = sent.message.body.OPENED.slot;
        open_mapping(a, &sent.message.body.OPENED);
    } else if (sent.message.head.type == GVMI_WIRE_GRANTED && a->unanswered_count == 0) {
        assert_true(has_all_mapped(w, a, sent.message.body.GRANTED.slot));
    }
}

static inline void take_piece(fixture *w, gvmi_action *action)
{
    actor *a = find_actor(w, action->client);
    const size_t end = action->offset_bytes + action->len;

    if (a->snapshot_over)
        a->snapshot_len = 0;
    a->snapshot_over = action->message != NULL;
    if (end > a->snapshot_len) {
        a->snapshot = realloc(a->snapshot, end);
        assert_non_null(a->snapshot);
        a->snapshot_len = end;
    }
    if (action->len > 0)
        memcpy(a->snapshot + action->offset_bytes, action->bytes, action->len);
    free(action->bytes);
    if (action->message != NULL)
        deliver(w, action);
}

static inline void forget(fixture *w, actor *a)
{
    a->forgotten = true;
    gvmi_machine_exited(w->machine, a->number);
    a->number = 0;
}

static inline void run(fixture *w)
{
    gvmi_action action;

    while (gvmi_machine_next(w->machine, &action)) {
        assert_true(w->unchecked || gvmi_machine_check(w->machine));
        switch (action.kind) {
        case GVMI_ACTION_SEND: deliver(w, &action); break;
        case GVMI_ACTION_SNAPSHOT: take_piece(w, &action); break;
        case GVMI_ACTION_DROP: w->dropped_bytes += action.to.bytes; break;
        case GVMI_ACTION_CUT: find_actor(w, action.client)->cut = true; break;
        case GVMI_ACTION_KILL: find_actor(w, action.client)->killed = true; break;
        case GVMI_ACTION_FORGET: forget(w, find_actor(w, action.client)); break;
        case GVMI_ACTION_LOG: w->lines++; break;
        default: /* a device has its own host memory mapped, no other one's */
            assert_true(action.to.tier == GVM_TIER_DEVICE ||
                        action.to.device == gvmi_action_device(&action));
            assert_true(w->job_count < sizeof w->jobs / sizeof w->jobs[0]);
            w->jobs[w->job_count++] = action.job;
            if (!w->hold_jobs)
                gvmi_machine_job_done(w->machine, w->jobs[--w->job_count], GVM_OK);
        }
    }
    assert_true(w->unchecked || gvmi_machine_check(w->machine));
    for (unsigned i = 0; i < w->actor_count && !w->unchecked; i++)
        check_permits_of(w, &w->actors[i]);
}

static inline void tick(fixture *w, int64_t ms)
{
    w->now_ns += ms * MS;
    gvmi_machine_tick(w->machine, w->now_ns);
    run(w);
}

static inline gvmi_machine_config small_config(uint64_t device_chunks, uint64_t host_chunks)
{
    return (gvmi_machine_config){
        .device_count = 1,
        .devices = {{.uuid = {7}, .budget_bytes = device_chunks * CHUNK}},
        .host_budget_bytes = host_chunks * CHUNK,
        .device_keep_bytes = UINT64_MAX,
        .quota_bytes = UINT64_MAX,
        .clients_max = 8,
        .objects_max = 64,
        .revoke_limit_ms = 1000,
        .lend_after_ms = 10000,
        .uid = KEEPER_UID,
    };
}

static inline void start_fixture_as(fixture *w, const gvmi_machine_config *config)
{
    memset(w, 0, sizeof *w);
    assert_int_equal(gvmi_machine_create(config, &w->machine), GVM_OK);
    tick(w, 1);
}

static inline void start_fixture(fixture *w, uint64_t device_chunks, uint64_t host_chunks)
{
    const gvmi_machine_config config = small_config(device_chunks, host_chunks);

    start_fixture_as(w, &config);
}

static inline const gvmi_wire_message *last(const actor *a)
{
    assert_true(a->count > 0);
    return &a->latest;
}

static inline void say(fixture *w, actor *a, const gvmi_wire_message *message)
{
    gvmi_machine_message(w->machine, a->number, message);
    run(w);
}

static inline void free_actor(actor *a)
{
    for (uint32_t slot = 0; slot < a->mapping_count; slot++)
        free(a->mappings[slot].frames);
    free(a->mappings);
    free(a->unanswered);
    free(a->leases);
    free(a->permits);
    free(a->snapshot);
}

/* NULL: the user's allowance of connections is spent. */
static inline actor *try_join(fixture *w, uint32_t uid)
{
    actor *a = &w->actors[w->actor_count];
    const gvmi_credentials who = {.uid = uid, .gid = uid, .pid = 1};
    gvmi_wire_message hello;
    gvm_status status;

    assert_true(w->actor_count < ACTORS_MAX);
    *a = (actor){0};
    a->leases = aligned_alloc(64, GVMI_LEASE_PAGE_BYTES);
    a->permits = calloc(1, GVMI_PERMIT_PAGE_BYTES);
    memset(a->leases, 0, GVMI_LEASE_PAGE_BYTES);
    status = gvmi_machine_connect(w->machine, &who, a->leases, a->permits, &a->number);
    if (status != GVM_OK) {
        assert_int_equal(status, GVM_E_LIMIT);
        free_actor(a);
        return NULL;
    }
    w->actor_count++;
    gvmi_wire_start(&hello, GVMI_WIRE_HELLO, 1);
    say(w, a, &hello);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_WELCOME);
    return a;
}

static inline actor *join(fixture *w, uint32_t uid)
{
    actor *a = try_join(w, uid);

    assert_non_null(a);
    return a;
}

static inline void end_jobs(fixture *w)
{
    w->hold_jobs = false;
    while (w->job_count > 0) {
        gvmi_machine_job_done(w->machine, w->jobs[--w->job_count], GVM_OK);
        run(w);
    }
}

static inline void end_fixture(fixture *w)
{
    end_jobs(w);
    assert_true(gvmi_machine_check(w->machine));
    for (unsigned i = 0; i < w->actor_count; i++)
        if (!w->actors[i].forgotten)
            gvmi_machine_exited(w->machine, w->actors[i].number);
    run(w);
    assert_true(gvmi_machine_check(w->machine));
    gvmi_machine_destroy(w->machine);
    for (unsigned i = 0; i < w->actor_count; i++)
        free_actor(&w->actors[i]);
}

static inline gvm_status reply_status(const actor *a)
{
    return last(a)->head.type == GVMI_WIRE_FAILED ? (gvm_status)last(a)->body.FAILED.status : GVM_OK;
}

static inline gvm_status create_of(fixture *w, actor *a, const char *name, uint64_t reserve_chunks,
                                   uint64_t chunks, uint32_t mode, uint32_t flags)
{
    const uint64_t chunk_bytes = a->create_chunk_bytes != 0 ? a->create_chunk_bytes : CHUNK;
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_CREATE, 10);
    strcpy(m.body.CREATE.name, name);
    m.body.CREATE.device_uuid[0] = (uint8_t)(7 + a->create_device);
    m.body.CREATE.reserve_bytes = reserve_chunks * chunk_bytes;
    m.body.CREATE.chunk_bytes = chunk_bytes;
    m.body.CREATE.bytes = chunks * chunk_bytes;
    m.body.CREATE.mode = mode;
    m.body.CREATE.flags = flags;
    say(w, a, &m);
    return reply_status(a);
}

static inline gvm_status create(fixture *w, actor *a, const char *name, uint64_t chunks,
                                uint32_t mode, uint32_t *slot)
{
    const gvm_status status = create_of(w, a, name, 64, chunks, mode,
                                        GVM_OBJECT_KEEP | a->create_flags);

    if (status == GVM_OK)
        *slot = a->slot;
    return status;
}

static inline gvm_status open_object(fixture *w, actor *a, const char *name, uint32_t flags,
                                     uint32_t *slot)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_OPEN, 11);
    strcpy(m.body.OPEN.name, name);
    m.body.OPEN.flags = flags;
    say(w, a, &m);
    if (last(a)->head.type == GVMI_WIRE_OPENED)
        *slot = last(a)->body.OPENED.slot;
    return reply_status(a);
}

static inline void ask_with_hint(fixture *w, actor *a, uint32_t slot, gvm_lease_mode mode,
                                 gvm_hint hint, int timeout_ms)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, 12);
    m.body.ACQUIRE = (gvmi_wire_acquire){
        .slot = slot, .mode = mode, .hint = hint, .timeout_ms = timeout_ms};
    a->latest.head.type = 0; /* the answer may come later */
    say(w, a, &m);
}

static inline void ask(fixture *w, actor *a, uint32_t slot, gvm_lease_mode mode, int timeout_ms)
{
    ask_with_hint(w, a, slot, mode, GVM_HINT_NONE, timeout_ms);
}

static inline void take(fixture *w, actor *a, uint32_t slot, gvm_lease_mode mode)
{
    gvmi_wire_message m;

    assert_true(has_all_mapped(w, a, slot));
    atomic_fetch_add(&a->leases[slot].word,
                     GVMI_LEASE_COUNTED +
                         (mode == GVM_LEASE_WRITE ? GVMI_LEASE_WRITER : GVMI_LEASE_READER));
    gvmi_wire_start(&m, GVMI_WIRE_TAKEN, 0);
    m.body.TAKEN = (gvmi_wire_taken){.slot = slot, .mode = mode};
    say(w, a, &m);
}

static inline void give(fixture *w, actor *a, uint32_t slot, gvm_lease_mode mode)
{
    atomic_fetch_sub(&a->leases[slot].word,
                     mode == GVM_LEASE_WRITE ? GVMI_LEASE_WRITER : GVMI_LEASE_READER);
    gvmi_machine_doorbell(w->machine, a->number);
    run(w);
}

static inline bool granted(const actor *a)
{
    return last(a)->head.type == GVMI_WIRE_GRANTED;
}

/* A lease that is granted at once. */
static inline void acquire(fixture *w, actor *a, uint32_t slot, gvm_lease_mode mode)
{
    ask(w, a, slot, mode, -1);
    assert_true(granted(a));
    take(w, a, slot, mode);
}

/* Takes and gives back a lease, which moves nothing: the client has the object mapped where it is. */
static inline void map_object(fixture *w, actor *a, uint32_t slot)
{
    ask(w, a, slot, GVM_LEASE_READ, 0);
    assert_true(granted(a));
    take(w, a, slot, GVM_LEASE_READ);
    give(w, a, slot, GVM_LEASE_READ);
}

static inline uint64_t permit(const actor *a, uint32_t slot)
{
    return atomic_load(&a->permits[slot].word);
}

static inline void begin_evict_bytes(fixture *w, actor *a, const char *name, uint64_t bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_EVICT, 13);
    strcpy(m.body.EVICT.name, name);
    m.body.EVICT.value = bytes;
    say(w, a, &m);
}

static inline void begin_evict(fixture *w, actor *a, const char *name)
{
    begin_evict_bytes(w, a, name, UINT64_MAX);
}

/* One that is answered at once. */
static inline uint64_t evict(fixture *w, actor *a, const char *name)
{
    begin_evict(w, a, name);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
    return last(a)->body.DONE.value;
}

/* The answer may come later. */
static inline void ask_seal(fixture *w, actor *a, uint32_t slot)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_SEAL, 15);
    m.body.SEAL = (gvmi_wire_seal){.slot = slot, .timeout_ms = -1};
    say(w, a, &m);
}

static inline void drop_object(fixture *w, actor *a, const char *name)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_DROP, 16);
    strcpy(m.body.DROP.name, name);
    say(w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
}

static inline void close_slot(fixture *w, actor *a, uint32_t slot)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_CLOSE, 17);
    m.body.CLOSE.slot = slot;
    if (mapping_of(a, slot) != NULL)
        mapping_of(a, slot)->open = false;
    say(w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_DONE);
}

static inline gvm_status link_object(fixture *w, actor *a, uint32_t slot, const char *name,
                                     uint32_t mode, uint64_t bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_LINK, 18);
    m.body.LINK = (gvmi_wire_link){.slot = slot, .mode = mode, .bytes = bytes};
    strcpy(m.body.LINK.name, name);
    say(w, a, &m);
    return reply_status(a);
}

static inline void say_unmapped(fixture *w, actor *a, const gvmi_wire_map *map)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_UNMAPPED, 0);
    m.body.UNMAPPED = (gvmi_wire_unmapped){.slot = map->slot, .serial = map->serial};
    say(w, a, &m);
}

static inline void say_mapped(fixture *w, actor *a, const gvmi_wire_map *map)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){.slot = map->slot, .serial = map->serial};
    if (a->unanswered_count > 0 && a->unanswered[0].message.body.MAP.serial == map->serial) {
        apply_map(a, &a->unanswered[0]);
        memmove(a->unanswered, a->unanswered + 1, --a->unanswered_count * sizeof *a->unanswered);
    }
    say(w, a, &m);
}

static inline const keep_place *device(const fixture *w)
{
    return &w->machine->devices[0].place;
}

static inline gvmi_snapshot_object info(fixture *w, actor *a, uint32_t slot)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_GET_INFO, 14);
    m.body.GET_INFO.slot = slot;
    say(w, a, &m);
    assert_int_equal(last(a)->head.type, GVMI_WIRE_INFO);
    return last(a)->body.INFO.info;
}

/* As the whole of a machine is long in checking, tests do so where it counts. */
static inline void start_users(fixture *w, uint32_t clients_max, uint32_t objects_max)
{
    gvmi_machine_config config = small_config(64, 64);

    config.clients_max = clients_max;
    config.objects_max = objects_max;
    start_fixture_as(w, &config);
    w->unchecked = true;
}

/* Its place is that of the last one then. */
static inline void leave(fixture *w, actor *a)
{
    gvmi_machine_disconnect(w->machine, a->number);
    run(w);
    if (!a->forgotten)
        gvmi_machine_exited(w->machine, a->number);
    run(w);
    free_actor(a);
    *a = w->actors[--w->actor_count];
}

static inline gvm_status grow(fixture *w, actor *a, uint32_t slot, uint64_t bytes)
{
    gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_GROW, 11);
    m.body.GROW = (gvmi_wire_grow){.slot = slot, .bytes = bytes};
    a->latest.head.type = 0; /* the answer may come later */
    say(w, a, &m);
    return reply_status(a);
}

/* The object grows by a chunk, which a client cannot map; what it had mapped it unmaps. */
static inline void fail_to_map(fixture *w, actor *grower, uint32_t grower_slot, uint64_t bytes,
                               actor *a, uint32_t slot)
{
    gvmi_wire_message m;
    mapping *map = mapping_of(a, slot);

    a->deaf = true;
    (void)grow(w, grower, grower_slot, bytes);
    assert_int_equal(a->unanswered_count, 1);
    a->deaf = false;
    a->unanswered_count = 0;
    for (uint32_t i = 0; i < map->frame_count; i++)
        map->frames[i] = 0;
    gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
    m.body.MAPPED = (gvmi_wire_mapped){
        .slot = slot, .serial = a->latest_map.message.body.MAP.serial, .status = GVM_E_LIMIT};
    say(w, a, &m);
}

/* Object "/x" of one chunk, which is being copied to the device: the test has the job. */
static inline void begin_arrival(fixture *w, actor *a, uint32_t *slot)
{
    assert_int_equal(create(w, a, "/x", 1, 0, slot), GVM_OK);
    assert_int_equal(evict(w, a, "/x"), CHUNK);
    w->hold_jobs = true;
    atomic_fetch_add(&a->leases[*slot].word, GVMI_LEASE_COUNTED + GVMI_LEASE_READER);
    give(w, a, *slot, GVM_LEASE_READ);
    tick(w, 200);
    assert_int_equal(w->job_count, 1);
}

/* A slice of what is too long for one event. True: there is more. */
static inline bool work(fixture *w)
{
    const bool more = gvmi_machine_work(w->machine);

    run(w);
    assert_true(gvmi_machine_check(w->machine));
    return more;
}

#endif
