/* Honest processes: the client's side of docs/design/keeper.md, a step at a time.
 *
 * A thread's step is one access to shared memory or one message; a mapping thread's is one of:
 * unmap what a MAP replaces, say UNMAPPED (which it may leave out), and the same of further MAPs;
 * map what the first of them brings, say MAPPED; add to a lease word, say TAKEN. */
#include "tests/prop/keeper_simulation.h"

#include <stdlib.h>
#include <string.h>

#define OPENINGS_MAX 6 /* of one process */

/* ---- openings */

static bool is_whole(const opening *o)
{
    for (uint64_t i = 0; i * o->chunk_bytes < o->bytes; i++)
        if (o->map[i] == NULL)
            return false;
    return true;
}

/* With GVM_OPEN_MAPPED every chunk has been mapped; one may be away while it moves: no lease may be had then. */
static bool is_shown(const opening *o, uint32_t generation)
{
    if (o->empty || o->lost || o->hidden || (int32_t)(generation - o->generation) > 0)
        return false;
    for (uint64_t i = 0; o->keeps_mapped && i * o->chunk_bytes < o->bytes; i++)
        if (o->stamps[i] == 0)
            return false;
    return true;
}

static void unmap_chunk(opening *o, uint32_t chunk)
{
    if (o->map[chunk] != NULL)
        o->map[chunk]->mapped--;
    o->map[chunk] = NULL;
}

static void unmap_all(opening *o)
{
    for (uint32_t i = 0; i < CHUNKS_MAX; i++)
        unmap_chunk(o, i);
}

static void free_opening(process *p, opening *o)
{
    unmap_all(o);
    p->openings[o->slot] = NULL;
    p->opening_count--;
    free(o);
}

void client_drop_openings(simulation *w, process *p)
{
    (void)w;
    for (uint32_t i = 0; i < p->slot_end; i++)
        if (p->openings[i] != NULL)
            free_opening(p, p->openings[i]);
}

static opening *pick_opening(simulation *w, const process *p)
{
    uint32_t ticket;

    if (p->opening_count == 0)
        return NULL;
    ticket = (uint32_t)sim_random(w, p->opening_count);
    for (uint32_t i = 0; i < p->slot_end; i++)
        if (p->openings[i] != NULL && ticket-- == 0)
            return p->openings[i]->closing ? NULL : p->openings[i];
    return NULL;
}

static bool is_leased(const process *p, const opening *o)
{
    for (uint32_t i = 0; i < p->thread_count; i++)
        if (p->threads[i].leased && p->threads[i].opening == o)
            return true;
    return false;
}

static bool is_being_mapped(const process *p, const opening *o)
{
    return p->mapping != NULL && p->mapping->message->head.type == GVMI_WIRE_MAP &&
           p->mapping->message->body.MAP.slot == o->slot;
}

/* ---- leases that were had */

/* No other process, and no other thread, may have a lease that conflicts. */
static void check_alone(simulation *w, const process *p, const thread *t)
{
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *q = w->processes[i];

        for (uint32_t k = 0; k < q->thread_count && sim_lease_counts(w, q); k++) {
            const thread *u = &q->threads[k];

            if (u != t && u->leased && u->opening->object == t->opening->object &&
                (u->mode == GVM_LEASE_WRITE || t->mode == GVM_LEASE_WRITE))
                sim_wrong(w,
                          "object %llu: process %u has a lease of mode %u, and process %u one of mode "
                          "%u (stopped %d, hung up %d, disconnected %d)",
                          (unsigned long long)t->opening->object, p->index, t->mode, q->index,
                          u->mode, q->stopped, q->hung_up, q->disconnected);
        }
    }
}

/* What is mapped has what was written last, all of it. */
static void check_contents(simulation *w, const process *p, const thread *t)
{
    const opening *o = t->opening;
    const object *model = model_find(w, o->object);

    if (o->bytes < t->least_bytes)
        sim_wrong(w, "process %u has a lease on %llu bytes of object %llu, which had %llu before",
                  p->index, (unsigned long long)o->bytes, (unsigned long long)o->object,
                  (unsigned long long)t->least_bytes);
    if (t->mode == GVM_LEASE_WRITE && (o->readonly || model->sealed))
        sim_wrong(w, "process %u may write to object %llu", p->index, (unsigned long long)o->object);
    for (uint32_t i = 0; i * o->chunk_bytes < o->bytes; i++) {
        const frame *f = o->map[i];

        if (f == NULL || f->dropped || !f->made || f->filling > 0)
            sim_wrong(w, "process %u: chunk %u of object %llu is behind no frame", p->index, i,
                      (unsigned long long)o->object);
        else if (f->value != model->values[i])
            sim_wrong(w, "process %u: chunk %u of object %llu in frame %u is version %lld, not %lld",
                      p->index, i, (unsigned long long)o->object, f->spec.frame,
                      (long long)f->value, (long long)model->values[i]);
    }
}

static void begin_lease(simulation *w, process *p, thread *t)
{
    t->leased = true;
    t->since_ns = w->tick_ns;
    t->since_step = w->step;
    if (sim_lease_counts(w, p)) /* else it has not noticed yet that it was cut off */
        check_alone(w, p, t);
}

static void show_lease(simulation *w, process *p, thread *t)
{
    sim_log(w, "process %u thread %d has a lease of mode %u on object %llu", p->index,
            (int)(t - p->threads), t->mode, (unsigned long long)t->opening->object);
    t->phase = PHASE_IDLE;
    if (sim_lease_counts(w, p))
        check_contents(w, p, t);
    w->grants_write += t->mode == GVM_LEASE_WRITE;
}

static void finish(thread *t)
{
    t->phase = PHASE_IDLE;
    if (!t->leased && t->opening != NULL) {
        t->opening->users--;
        t->opening = NULL;
    }
}

/* ---- words */

static uint64_t unit(const thread *t)
{
    return t->mode == GVM_LEASE_WRITE ? GVMI_LEASE_WRITER : GVMI_LEASE_READER;
}

static void subtract(process *p, thread *t)
{
    _Atomic uint64_t *word = &p->leases[t->opening->slot].word;

    t->old_word = atomic_fetch_sub(word, unit(t)) - unit(t);
    t->leased = false;
}

static void load_and_ring(process *p, const thread *t)
{
    const uint64_t permit = atomic_load(&p->permits[t->opening->slot].word);

    if ((permit & GVMI_PERMIT_REVOKED) != 0 && !gvmi_lease_any(t->old_word))
        p->rung = true;
}

static bool allows(const thread *t, uint64_t permit)
{
    if ((permit & GVMI_PERMIT_PARTIAL) != 0 && t->hint != GVM_HINT_SCAN && t->hint != GVM_HINT_ONCE)
        return false;
    if (t->mode == GVM_LEASE_WRITE)
        return (permit & GVMI_PERMIT_WRITE) != 0 && !gvmi_lease_any(t->old_word);
    return (permit & GVMI_PERMIT_READ) != 0 && gvmi_lease_writers(t->old_word) == 0 &&
           gvmi_lease_readers(t->old_word) < GVMI_LEASE_READERS_MAX;
}

static void back_out(process *p, thread *t)
{
    subtract(p, t);
    t->phase = PHASE_BACKED;
}

static void after_add(simulation *w, process *p, thread *t)
{
    const uint64_t permit = atomic_load(&p->permits[t->opening->slot].word);

    if (!allows(t, permit) || t->opening->empty || t->opening->lost) {
        back_out(p, t);
        return;
    }
    if (p->cut)
        sim_wrong(w, "process %u was cut off, and its permit allows", p->index);
    t->wanted_generation = gvmi_permit_generation(permit);
    t->phase = PHASE_ALLOWED;
}

/* The lease counts; its memory is there once the generation of the permit is mapped. */
static void await_shown(simulation *w, process *p, thread *t)
{
    begin_lease(w, p, t);
    t->phase = PHASE_GROWING;
    if (is_shown(t->opening, t->wanted_generation))
        show_lease(w, p, t);
}

/* A lease that was granted to another thread here may have come in between: the mapping thread adds
 * without looking at the permit, which its TAKEN then opened. */
static void after_permit(simulation *w, process *p, thread *t)
{
    const uint64_t word = atomic_load(&p->leases[t->opening->slot].word);

    if (gvmi_lease_writers(word) > (t->mode == GVM_LEASE_WRITE ? 1u : 0u) || t->opening->empty) {
        back_out(p, t);
        return;
    }
    w->acquires_fast++;
    await_shown(w, p, t);
}

static bool growing_step(simulation *w, process *p, thread *t)
{
    if (t->opening->empty) {
        subtract(p, t);
        t->phase = PHASE_RELEASED;
        return true;
    }
    if (!is_shown(t->opening, t->wanted_generation))
        return false;
    show_lease(w, p, t);
    return true;
}

/* ---- requests of threads */

static void ask(simulation *w, process *p, thread *t, gvmi_wire_message *message)
{
    t->request = message->head.request;
    t->request_type = message->head.type;
    t->phase = PHASE_WAIT;
    sim_log(w, "process %u thread %d asks: %s %llu", p->index, (int)(t - p->threads),
            gvmi_wire_name_of(message->head.type), (unsigned long long)message->head.request);
    sim_send(w, p, message);
}

static void ask_acquire(simulation *w, process *p, thread *t)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_ACQUIRE);

    t->for_cpu = t->hint == GVM_HINT_ONCE && sim_chance(w, 40);
    m->body.ACQUIRE = (gvmi_wire_acquire){.slot = t->opening->slot,
                                          .mode = t->mode,
                                          .hint = t->hint,
                                          .timeout_ms = t->timeout_ms,
                                          .flags = t->for_cpu ? GVM_ACQUIRE_CPU : 0};
    w->acquires_slow++;
    ask(w, p, t, m);
}

static void begin_acquire(simulation *w, process *p, thread *t, opening *o)
{
    static const uint32_t hints[] = {GVM_HINT_NONE, GVM_HINT_NONE, GVM_HINT_SCAN, GVM_HINT_HOT,
                                     GVM_HINT_ONCE};
    const object *model = model_find(w, o->object);

    t->opening = o;
    o->users++;
    t->mode = sim_chance(w, o->readonly ? 3 : 40) ? GVM_LEASE_WRITE : GVM_LEASE_READ;
    t->hint = hints[sim_random(w, 5)];
    t->timeout_ms = sim_chance(w, 35) ? -1 : sim_chance(w, 45) ? 0 : (int32_t)sim_random(w, 30);
    t->least_bytes = model->promised_bytes;
    atomic_store(&p->leases[o->slot].hint, t->hint);
    t->old_word = atomic_fetch_add(&p->leases[o->slot].word, unit(t) + GVMI_LEASE_COUNTED);
    w->acquires_counted++;
    t->phase = PHASE_ADDED;
}

static uint32_t random_mode(simulation *w)
{
    static const uint32_t modes[] = {0600, 0600, 0644, 0666, 0660, 0640, 0444};

    return modes[sim_random(w, 7)];
}

/* Mostly one that is taken, or mostly one that is free. */
static const char *pick_name(simulation *w, bool taken)
{
    size_t name = sim_random(w, NAMES);

    for (int i = 0; i < NAMES && (w->names[name] != NULL) != taken && sim_chance(w, 85); i++)
        name = (name + 1) % NAMES;
    return keeper_names[name];
}

static void put_metadata(simulation *w, gvmi_wire_message *m)
{
    const uint32_t version = (uint32_t)++w->version;

    m->head.tail_bytes = sim_chance(w, 20) ? 0 : 4 + (uint32_t)sim_random(w, 60);
    memset(m->tail.bytes, 7, sizeof m->tail.bytes);
    memcpy(m->tail.bytes, &version, sizeof version);
}

static void begin_create(simulation *w, process *p, thread *t)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_CREATE);
    gvmi_wire_create *c = &m->body.CREATE;
    const uint64_t chunk = sim_chance(w, 85) ? 2 * MIB : 4 * MIB;
    const uint64_t chunks = w->wide && sim_chance(w, 50) ? 60 + sim_random(w, 90)
                                                         : 1 + sim_random(w, 10);

    memcpy(c->device_uuid, w->config.devices[sim_random(w, w->config.device_count)].uuid, 16);
    if (sim_chance(w, 1))
        c->device_uuid[3] = 99;
    c->chunk_bytes = chunk;
    c->reserve_bytes = chunks * chunk;
    c->bytes = sim_random(w, (sim_chance(w, 50) ? chunks : chunks / 2) + 1) * chunk;
    if (c->bytes > 0 && sim_chance(w, 10))
        c->bytes -= 4096;
    if (sim_chance(w, 1))
        c->bytes = c->reserve_bytes + 1;
    c->mode = random_mode(w);
    c->flags = (sim_chance(w, 15) ? GVM_OBJECT_KEEP : 0u) |
               (sim_chance(w, 20) ? GVM_OBJECT_UNTRACKED : 0u) |
               (sim_chance(w, 15) ? GVM_OBJECT_HOST : 0u);
    if (sim_chance(w, 70))
        strcpy(c->name, pick_name(w, false));
    put_metadata(w, m);
    ask(w, p, t, m);
}

static void begin_open(simulation *w, process *p, thread *t)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_OPEN);

    m->body.OPEN.flags = (sim_chance(w, 30) ? GVM_OPEN_READONLY : 0u) |
                         (sim_chance(w, 25) ? GVM_OPEN_MAPPED : 0u);
    strcpy(m->body.OPEN.name, pick_name(w, true));
    ask(w, p, t, m);
}

static void land_maps(const queue *q, uint32_t slot)
{
    for (packet *at = q->first; at != NULL; at = at->next)
        if (at->message != NULL && at->message->head.type == GVMI_WIRE_MAP &&
            at->message->body.MAP.slot == slot)
            sim_land(at);
}

/* What is on its way to an opening, or pending to it, will not be mapped any more. */
static void let_go(process *p, const opening *o)
{
    land_maps(&p->in, o->slot);
    land_maps(&p->pending, o->slot);
}

/* Only this thread uses it, and nothing of it is being mapped: gvm_object_close()'s rule. */
static bool begin_close(simulation *w, process *p, thread *t, opening *o)
{
    gvmi_wire_message *m;

    if (o->users > (t->opening == o ? 1u : 0u) || is_being_mapped(p, o))
        return false;
    if (t->leased) {
        subtract(p, t);
        t->opening->users--;
    }
    t->opening = o;
    o->users++;
    o->closing = true;
    unmap_all(o);
    let_go(p, o);
    m = sim_message(w, p, GVMI_WIRE_CLOSE);
    m->body.CLOSE.slot = o->slot;
    ask(w, p, t, m);
    return true;
}

static void begin_slot_request(simulation *w, process *p, thread *t, opening *o)
{
    static const gvmi_wire_type types[] = {
        GVMI_WIRE_GROW,     GVMI_WIRE_GROW,         GVMI_WIRE_GROW,         GVMI_WIRE_GROW,
        GVMI_WIRE_GROW,     GVMI_WIRE_SHRINK,       GVMI_WIRE_SHRINK,       GVMI_WIRE_SET_MODE,
        GVMI_WIRE_GET_INFO, GVMI_WIRE_SET_METADATA, GVMI_WIRE_GET_METADATA, GVMI_WIRE_GET_METADATA,
        GVMI_WIRE_GET_INFO, GVMI_WIRE_PUBLISH,      GVMI_WIRE_PUBLISH,      GVMI_WIRE_SEAL};
    gvmi_wire_message *m = sim_message(w, p, types[sim_random(w, sim_chance(w, 30) ? 16 : 15)]);

    m->body.CLOSE.slot = o->slot; /* every one begins with it */
    switch (m->head.type) {
    case GVMI_WIRE_GROW:
        m->body.GROW.bytes = sim_chance(w, 3) ? o->reserve_bytes + 1
                                              : sim_random(w, o->reserve_bytes / o->chunk_bytes + 1) *
                                                    o->chunk_bytes;
        t->request_bytes = m->body.GROW.bytes;
        break;
    case GVMI_WIRE_SHRINK:
        m->body.SHRINK.bytes = sim_random(w, o->reserve_bytes / o->chunk_bytes) * o->chunk_bytes;
        break;
    case GVMI_WIRE_SET_MODE: m->body.SET_MODE.value = random_mode(w); break;
    case GVMI_WIRE_SET_METADATA: put_metadata(w, m); break;
    case GVMI_WIRE_PUBLISH:
        m->body.PUBLISH.flags = (sim_chance(w, 50) ? GVM_PUBLISH_REPLACE : 0) |
                                (sim_chance(w, 20) ? GVM_PUBLISH_PRIVATE : 0);
        strcpy(m->body.PUBLISH.name, pick_name(w, sim_chance(w, 50)));
        break;
    case GVMI_WIRE_SEAL: m->body.SEAL.timeout_ms = (int32_t)sim_random(w, 20); break;
    default: break;
    }
    if (t->opening == NULL) {
        t->opening = o;
        o->users++;
    }
    ask(w, p, t, m);
}

static void begin_other_request(simulation *w, process *p, thread *t)
{
    static const gvmi_wire_type types[] = {
        GVMI_WIRE_EVICT,     GVMI_WIRE_EVICT,    GVMI_WIRE_EVICT,      GVMI_WIRE_EVICT,
        GVMI_WIRE_EVICT,     GVMI_WIRE_EVICT,    GVMI_WIRE_DROP,       GVMI_WIRE_TRIM,
        GVMI_WIRE_SET_QUOTA, GVMI_WIRE_SNAPSHOT, GVMI_WIRE_LIST_CHUNKS};
    gvmi_wire_message *m = sim_message(w, p, types[sim_random(w, sizeof types / sizeof types[0])]);

    switch (m->head.type) {
    case GVMI_WIRE_EVICT:
        m->body.EVICT.value = sim_chance(w, 50) ? UINT64_MAX : sim_random(w, 6) * 2 * MIB;
        strcpy(m->body.EVICT.name, pick_name(w, true));
        break;
    case GVMI_WIRE_LIST_CHUNKS:
        m->body.LIST_CHUNKS.value = sim_random(w, 3);
        strcpy(m->body.LIST_CHUNKS.name, pick_name(w, true));
        break;
    case GVMI_WIRE_DROP: strcpy(m->body.DROP.name, pick_name(w, true)); break;
    case GVMI_WIRE_TRIM:
        m->body.TRIM.device = (uint32_t)sim_random(w, w->config.device_count + 1);
        m->body.TRIM.keep_bytes = sim_random(w, 4) * 2 * MIB;
        break;
    case GVMI_WIRE_SET_QUOTA:
        m->body.SET_QUOTA.uid = 1001 + (uint32_t)sim_random(w, 3);
        m->body.SET_QUOTA.bytes = sim_chance(w, 80) ? UINT64_MAX : sim_random(w, 16) * 2 * MIB;
        break;
    default: break;
    }
    ask(w, p, t, m);
}

/* ---- what a thread does when it may choose */

static bool may_write(simulation *w, const thread *t)
{
    const object *model = model_find(w, t->opening->object);

    return t->mode == GVM_LEASE_WRITE ||
           (model->untracked && !t->opening->readonly && !model->sealed && !t->opening->sealed);
}

static void write_chunk(simulation *w, process *p, thread *t)
{
    const opening *o = t->opening;
    const uint64_t chunks = (o->bytes + o->chunk_bytes - 1) / o->chunk_bytes;
    object *model = model_find(w, o->object);
    uint64_t chunk;

    if (chunks == 0)
        return;
    chunk = sim_random(w, chunks);
    if (o->map[chunk] == NULL) {
        sim_wrong(w, "process %u: chunk %llu is not mapped under a lease", p->index,
                  (unsigned long long)chunk);
        return;
    }
    model->values[chunk] = o->map[chunk]->value = ++w->version;
    sim_log(w, "process %u writes version %llu to chunk %llu of object %llu, frame %u", p->index,
            (unsigned long long)w->version, (unsigned long long)chunk,
            (unsigned long long)o->object, o->map[chunk]->spec.frame);
}

static bool leased_step(simulation *w, process *p, thread *t)
{
    const uint64_t ticket = sim_random(w, 100);

    if (p->cut && !w->quiet && ticket < 90)
        return voided_write(w, p, t); /* it has not noticed yet, or its kernel runs on */
    if (w->quiet || p->cut || ticket < 30) {
        subtract(p, t);
        t->phase = PHASE_RELEASED;
    } else if (ticket < 75) {
        if (may_write(w, t))
            write_chunk(w, p, t);
    } else if (ticket < 80) {
        begin_slot_request(w, p, t, t->opening);
    } else if (ticket < 82) {
        return begin_close(w, p, t, t->opening);
    }
    return true;
}

static bool free_step(simulation *w, process *p, thread *t)
{
    opening *o = pick_opening(w, p);
    const uint64_t ticket = sim_random(w, 100);

    if (w->quiet || p->cut || !p->welcome)
        return false;
    if ((ticket < 8 || o == NULL) && p->opening_count < OPENINGS_MAX && sim_chance(w, 40)) {
        begin_create(w, p, t);
        return true;
    }
    if ((ticket < 22 || o == NULL) && p->opening_count < OPENINGS_MAX) {
        begin_open(w, p, t);
        return true;
    }
    if (ticket < 26) {
        begin_other_request(w, p, t);
        return true;
    }
    if (o == NULL)
        return false;
    if (ticket < 31 || (o->lost && ticket < 60) || (o->empty && ticket < 40))
        return begin_close(w, p, t, o);
    if (ticket < 45)
        begin_slot_request(w, p, t, o);
    else
        begin_acquire(w, p, t, o);
    return true;
}

/* A process whose socket is closed may still write, as a kernel of it does. */
static bool voided_step(simulation *w, process *p, thread *t)
{
    if (!t->leased || t->phase != PHASE_IDLE || !may_write(w, t) || w->quiet)
        return false;
    if (!sim_lease_counts(w, p))
        return voided_write(w, p, t);
    write_chunk(w, p, t);
    return true;
}

bool client_thread_step(simulation *w, process *p, uint32_t number)
{
    thread *t = &p->threads[number];

    if (p->gone)
        return false;
    if (p->hung_up)
        return voided_step(w, p, t);
    switch (t->phase) {
    case PHASE_IDLE: return t->leased ? leased_step(w, p, t) : free_step(w, p, t);
    case PHASE_ADDED: after_add(w, p, t); return true;
    case PHASE_ALLOWED: after_permit(w, p, t); return true;
    case PHASE_BACKED:
        load_and_ring(p, t);
        t->phase = PHASE_ASK;
        return true;
    case PHASE_ASK: ask_acquire(w, p, t); return true;
    case PHASE_WAIT: return false;
    case PHASE_GROWING: return growing_step(w, p, t);
    case PHASE_RELEASED:
        load_and_ring(p, t);
        finish(t);
        return true;
    }
    return false;
}

/* ---- the mapping thread */

static thread *thread_waiting(process *p, uint64_t number)
{
    for (uint32_t i = 0; i < p->thread_count; i++)
        if (p->threads[i].phase == PHASE_WAIT && p->threads[i].request == number)
            return &p->threads[i];
    return NULL;
}

static void say_mapped(simulation *w, process *p, const opening *o, uint64_t serial, gvm_status status)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_MAPPED);

    m->body.MAPPED = (gvmi_wire_mapped){.slot = o->slot,
                                        .status = (uint32_t)status,
                                        .serial = serial,
                                        .address = status == GVM_OK ? (o->object + 1) << 40 : 0};
    sim_send(w, p, m);
}

static void on_opened(simulation *w, process *p, const gvmi_wire_message *m)
{
    opening *o = calloc(1, sizeof *o);

    if (o == NULL)
        abort();
    *o = (opening){.slot = m->body.OPENED.slot,
                   .object = m->body.OPENED.id,
                   .generation = m->body.OPENED.generation,
                   .bytes = m->body.OPENED.bytes,
                   .taken_bytes = m->body.OPENED.bytes,
                   .chunk_bytes = m->body.OPENED.chunk_bytes,
                   .reserve_bytes = m->body.OPENED.reserve_bytes,
                   .sealed = m->body.OPENED.sealed != 0,
                   .readonly = (m->body.OPENED.open_flags & GVM_OPEN_READONLY) != 0,
                   .keeps_mapped = (m->body.OPENED.open_flags & GVM_OPEN_MAPPED) != 0};
    p->known[o->slot].births_seen++;
    if (p->openings[o->slot] != NULL) {
        sim_wrong(w, "process %u: slot %u is opened while it is open", p->index, o->slot);
        free(o);
        return;
    }
    if (m->body.OPENED.bytes > CHUNKS_MAX * o->chunk_bytes)
        sim_wrong(w, "an object is larger than its reservation");
    p->openings[o->slot] = o;
    p->opening_count++;
    o->lost = w->maps_fail && sim_chance(w, 5);
    if (o->lost)
        let_go(p, o);
    say_mapped(w, p, o, 0, o->lost ? GVM_E_ADDRESS : GVM_OK);
}

static void on_done(simulation *w, process *p, thread *t)
{
    opening *o = t->opening;
    object *model;

    switch (t->request_type) {
    case GVMI_WIRE_GROW:
        model = model_find(w, o->object);
        if (!o->empty && !o->lost &&
            (o->bytes < t->request_bytes || ((o->keeps_mapped || is_leased(p, o)) && !is_whole(o))))
            sim_wrong(w, "process %u grew object %llu to %llu bytes, but has %llu", p->index,
                      (unsigned long long)o->object, (unsigned long long)t->request_bytes,
                      (unsigned long long)o->bytes);
        if (model->promised_bytes < t->request_bytes && model->bytes >= t->request_bytes)
            model->promised_bytes = t->request_bytes;
        break;
    case GVMI_WIRE_SEAL:
        if (!o->empty && !o->lost && !o->sealed)
            sim_wrong(w, "process %u sealed object %llu, but got no message of it", p->index,
                      (unsigned long long)o->object);
        break;
    case GVMI_WIRE_CLOSE:
        t->opening = NULL;
        t->phase = PHASE_IDLE;
        free_opening(p, o);
        return;
    default: break;
    }
    finish(t);
}

/* Any reply but GRANTED. */
static void on_reply(simulation *w, process *p, const gvmi_wire_message *m)
{
    thread *t = thread_waiting(p, m->head.request);
    const object *o;

    switch (m->head.type) {
    case GVMI_WIRE_WELCOME: return;
    case GVMI_WIRE_OPENED:
        on_opened(w, p, m); /* as the keeper says it was asked */
        if (t != NULL && t->request_type == GVMI_WIRE_CREATE &&
            p->openings[m->body.OPENED.slot] != NULL) {
            o = model_find(w, m->body.OPENED.id);
            if (o != NULL && o->promised_bytes < m->body.OPENED.bytes && o->bytes >= m->body.OPENED.bytes)
                ((object *)model_find(w, o->id))->promised_bytes = m->body.OPENED.bytes;
        }
        break;
    case GVMI_WIRE_FAILED:
        w->acquires_failed += t != NULL && t->request_type == GVMI_WIRE_ACQUIRE;
        break;
    default: break;
    }
    if (t == NULL)
        sim_wrong(w, "process %u: no thread waits for the reply to %llu", p->index,
                  (unsigned long long)m->head.request);
    else if (m->head.type == GVMI_WIRE_DONE)
        on_done(w, p, t);
    else
        finish(t);
}

/* Lets go of a chunk's frame that an earlier MAP brought and that is not mapped yet. */
static void supersede(process *p, uint32_t slot, uint32_t chunk)
{
    for (packet *q = p->pending.first; q != NULL; q = q->next)
        for (uint32_t i = 0; i < q->frame_count && q->message->body.MAP.slot == slot; i++)
            if (q->frames[i] != NULL && q->message->tail.chunks[i].index == chunk) {
                q->frames[i]->flying--;
                q->frames[i] = NULL;
            }
}

/* The object has become smaller. */
static void unmap_beyond(simulation *w, process *p, opening *o, uint64_t bytes)
{
    for (uint64_t i = (bytes + o->chunk_bytes - 1) / o->chunk_bytes; i < CHUNKS_MAX; i++) {
        supersede(p, o->slot, (uint32_t)i);
        if (o->map[i] != NULL && is_leased(p, o))
            sim_wrong(w, "process %u: object %llu shrinks under a lease", p->index,
                      (unsigned long long)o->object);
        unmap_chunk(o, (uint32_t)i);
        o->stamps[i] = 0;
    }
}

static void unmap_step(simulation *w, process *p, opening *o)
{
    const gvmi_wire_message *m = p->mapping->message;
    const bool leased = is_leased(p, o);

    if (m->body.MAP.serial <= o->serial)
        sim_wrong(w, "process %u: serial %llu after %llu", p->index,
                  (unsigned long long)m->body.MAP.serial, (unsigned long long)o->serial);
    o->serial = m->body.MAP.serial;
    if (m->body.MAP.bytes < o->taken_bytes)
        unmap_beyond(w, p, o, m->body.MAP.bytes);
    o->taken_bytes = m->body.MAP.bytes;
    o->empty = o->empty && !m->body.MAP.anew;
    if (m->body.MAP.anew)
        o->bytes = o->generation = 0;
    p->mapping->fails = o->lost || o->empty || (w->maps_fail && !leased && sim_chance(w, 3));
    for (uint32_t i = 0; i < m->head.tail_bytes / sizeof(gvmi_wire_chunk); i++) {
        const uint32_t chunk = m->tail.chunks[i].index;

        supersede(p, o->slot, chunk);
        if (o->map[chunk] == NULL)
            continue;
        if (leased)
            sim_wrong(w, "process %u: chunk %u of object %llu moves under a lease", p->index, chunk,
                      (unsigned long long)o->object);
        if (p->mapping->frames[i] != NULL && o->stamps[chunk] == m->tail.chunks[i].stamp &&
            o->map[chunk] != p->mapping->frames[i])
            sim_wrong(w, "chunk %u of object %llu: other memory has the same stamp", chunk,
                      (unsigned long long)o->object);
        unmap_chunk(o, chunk);
    }
    p->mapper = MAPPER_UNMAPPED;
}

static void tell_step(simulation *w, process *p, const opening *o)
{
    gvmi_wire_message *m;

    if (sim_chance(w, 90)) {
        m = sim_message(w, p, GVMI_WIRE_UNMAPPED);
        m->body.UNMAPPED = (gvmi_wire_unmapped){.slot = o->slot, .serial = o->serial};
        sim_send(w, p, m);
    }
    sim_queue_add(&p->pending, p->mapping);
    p->mapping = NULL;
}

static void map_step(simulation *w, process *p, opening *o)
{
    packet *mapping = p->mapping;
    const gvmi_wire_message *m = mapping->message;

    /* A client that cannot map what an object grew by leaves what it has to leases that began meanwhile (keeper/client/map.c). */
    mapping->fails = o->empty || o->lost || (mapping->fails && !is_leased(p, o));
    if (mapping->fails && !o->empty) {
        unmap_all(o);
        o->empty = o->hidden = true;
        p->known[o->slot].anew = false;
        let_go(p, o);
    }
    for (uint32_t i = 0; i < mapping->frame_count && !mapping->fails; i++) {
        const uint32_t chunk = m->tail.chunks[i].index;

        if (mapping->frames[i] == NULL)
            continue;
        o->map[chunk] = mapping->frames[i];
        o->map[chunk]->mapped++;
        o->stamps[chunk] = m->tail.chunks[i].stamp;
    }
    (void)w;
    o->hidden = o->hidden && mapping->fails;
    sim_land(mapping);
    p->mapper = MAPPER_MAPPED;
}

static void answer_map(simulation *w, process *p, opening *o)
{
    const gvmi_wire_map *map = &p->mapping->message->body.MAP;

    if ((map->bytes < o->bytes && !model_find(w, o->object)->shrinks) ||
        (int32_t)(map->generation - o->generation) < 0)
        sim_wrong(w, "process %u: object %llu shrinks or grows younger: %llu bytes, generation %u after %llu, %u",
                  p->index, (unsigned long long)o->object, (unsigned long long)map->bytes,
                  map->generation, (unsigned long long)o->bytes, o->generation);
    o->bytes = map->bytes;
    o->generation = map->generation;
    o->sealed = map->sealed != 0;
    sim_log(w, "process %u has mapped serial %llu of slot %u%s", p->index,
            (unsigned long long)map->serial, map->slot, p->mapping->fails ? ": failed" : "");
    say_mapped(w, p, o, map->serial, p->mapping->fails ? GVM_E_LIMIT : GVM_OK);
}

static void end_mapping(simulation *w, process *p)
{
    sim_packet_free(w, p->mapping);
    p->mapping = NULL;
    p->mapper = MAPPER_IDLE;
}

static void check_for_cpu(simulation *w, const process *p, const opening *o)
{
    w->acquires_for_cpu++;
    for (uint32_t i = 0; i < CHUNKS_MAX; i++)
        if (o->map[i] != NULL && o->map[i]->spec.tier != GVM_TIER_HOST)
            sim_wrong(w, "process %u was granted object %llu for the CPU with chunk %u on the device",
                      p->index, (unsigned long long)o->object, i);
}

static void granted_step(simulation *w, process *p, thread *t)
{
    gvmi_wire_message *m;

    if (p->mapper == MAPPER_IDLE) {
        atomic_fetch_add(&p->leases[t->opening->slot].word, unit(t));
        p->mapper = MAPPER_ADDED;
        return;
    }
    if (t->for_cpu)
        check_for_cpu(w, p, t->opening);
    m = sim_message(w, p, GVMI_WIRE_TAKEN);
    m->body.TAKEN = (gvmi_wire_taken){.slot = t->opening->slot, .mode = t->mode};
    sim_send(w, p, m);
    t->wanted_generation = gvmi_permit_generation(atomic_load(&p->permits[t->opening->slot].word));
    await_shown(w, p, t);
    end_mapping(w, p);
}

/* The keeper closed the connection: what is mapped stays, and every call fails. */
static void notice_end(simulation *w, process *p)
{
    sim_log(w, "process %u notices that it was cut off", p->index);
    for (uint32_t i = 0; i < p->thread_count; i++) {
        thread *t = &p->threads[i];

        if (t->leased && t->phase == PHASE_IDLE && sim_chance(w, 70))
            continue; /* what runs under the lease goes on */
        t->leased = false;
        finish(t);
    }
}

static void map_packet_step(simulation *w, process *p)
{
    const uint32_t slot = p->mapping->message->body.MAP.slot;
    opening *o = p->openings[slot];

    if (o == NULL || o->closing) {
        end_mapping(w, p);
        return;
    }
    if (p->mapper == MAPPER_IDLE) {
        unmap_step(w, p, o);
    } else if (p->mapper == MAPPER_UNMAPPED) {
        tell_step(w, p, o);
    } else if (p->mapper == MAPPER_DUE) {
        if (sim_chance(w, 30)) /* mapping takes long */
            map_step(w, p, o);
    } else {
        answer_map(w, p, o);
        end_mapping(w, p);
    }
}

/* The next message, or the first MAP that is pending: at any time, and before any other message. */
static void take_packet(simulation *w, process *p)
{
    const packet *next = p->in.first;
    const bool map = next != NULL && next->message != NULL &&
                     next->message->head.type == GVMI_WIRE_MAP && !next->message->body.MAP.anew;

    if (p->pending.first != NULL && (!map || sim_chance(w, 30))) {
        p->mapping = sim_queue_take(&p->pending);
        p->mapper = MAPPER_DUE;
    } else {
        p->mapping = sim_receive(w, p);
        p->mapper = MAPPER_IDLE;
    }
}

bool client_mapper_step(simulation *w, process *p)
{
    thread *t;

    if (p->hung_up || p->gone)
        return false;
    if (p->mapping == NULL)
        take_packet(w, p);
    if (p->mapping == NULL)
        return false;
    if (p->mapping->message == NULL) {
        notice_end(w, p);
        end_mapping(w, p);
        return true;
    }
    switch (p->mapping->message->head.type) {
    case GVMI_WIRE_MAP: map_packet_step(w, p); return true;
    case GVMI_WIRE_GRANTED:
        t = thread_waiting(p, p->mapping->message->head.request);
        if (t != NULL && t->opening->slot == p->mapping->message->body.GRANTED.slot) {
            granted_step(w, p, t);
        } else {
            sim_wrong(w, "process %u: no request waits for what is granted", p->index);
            end_mapping(w, p);
        }
        return true;
    default:
        on_reply(w, p, p->mapping->message);
        end_mapping(w, p);
        return true;
    }
}

/* ---- life */

void client_hello(simulation *w, process *p)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_HELLO);

    m->body.HELLO = (gvmi_wire_hello){.magic = GVMI_WIRE_MAGIC, .version = GVMI_WIRE_VERSION};
    sim_send(w, p, m);
}

bool client_idle(const process *p)
{
    for (uint32_t i = 0; i < p->thread_count; i++)
        if (p->threads[i].leased || p->threads[i].phase != PHASE_IDLE)
            return false;
    return p->in.first == NULL && p->mapping == NULL && p->pending.first == NULL;
}

void client_bye(simulation *w, process *p)
{
    sim_log(w, "process %u says BYE", p->index);
    client_drop_openings(w, p);
    sim_send(w, p, sim_message(w, p, GVMI_WIRE_BYE));
    sim_hang_up(w, p);
    p->gone = true;
}
