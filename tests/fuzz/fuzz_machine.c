/* The keeper's machine under libFuzzer: bytes are a list of events, from clients that follow the
 * protocol, break it, or write over their lease words, and from jobs, clocks and budgets.
 *
 * After each event the machine's invariants must hold, and what it orders must make sense: messages
 * that the decoder accepts, to clients that are connected; one reply to a request; frames that are
 * there when they are named, are written by one job at a time and stay within the budgets. At the
 * end everybody behaves for a while: then every request must be answered.
 *
 * clang -fsanitize=fuzzer,address,undefined, or linked with replay.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/buffer.h>

#include "base/clock.h"
#include "keeper/machine/machine.h"
#include "tests/fuzz/machine_events.h"
#include "tests/lib/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVENTS_MAX 2000 /* of one input */
#define DEVICES 2
#define FRAMES_MAX 1024
#define JOBS_MAX 1024
#define REQUESTS_MAX 256 /* of a client, unanswered */
#define TODO_MAX 4096    /* MAPs and grants of a client, unanswered */
#define ACTIONS_MAX 100000
#define CALM_ROUNDS 400
#define ADDRESS 0x7f0000000000ull

/* ---- what the machine is told and asked for */

typedef struct frame {
    gvmi_frame_spec spec;
    bool there, made;
    uint32_t writers, readers; /* jobs */
} frame;

typedef struct job {
    uint64_t id;
    uint32_t to, from; /* frames; from 0: none */
    bool make;
} job;

/* What a client that behaves would answer next. */
typedef struct todo {
    bool grant; /* TAKEN, otherwise MAPPED */
    uint32_t slot;
    uint64_t serial;
} todo;

typedef struct request {
    uint64_t number;
    uint32_t type;
    uint32_t mode; /* of an ACQUIRE, 0 for others */
} request;

typedef struct client {
    bool used, connected;
    uint32_t number;
    uint64_t next_request;
    uint32_t request_count, todo_count;
    request requests[REQUESTS_MAX]; /* unanswered */
    todo todos[TODO_MAX];
    uint32_t slot_end; /* all slots ever opened are below */
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    uint64_t snapshot_bytes; /* that came of one */
    bool snapshot_sent;      /* it came whole, and was not said to be read */
} client;

static struct fixture {
    gvmi_machine *machine;
    gvmi_machine_config config;
    int64_t now_ns;
    client clients[MACHINE_CLIENTS];
    frame frames[FRAMES_MAX];
    job jobs[JOBS_MAX];
    uint32_t job_count;
    uint64_t used_bytes[DEVICES + 1]; /* the last is the host's */
    const uint8_t *at, *end;          /* the input */
} w;

static void fail(const char *what)
{
    gvm_error error;

    (void)gvm_error_last(&error);
    fprintf(stderr, "fuzz_machine: %s (latest error: %s)\n", what, error.text);
    abort();
}

static void want(bool condition, const char *what)
{
    if (!condition)
        fail(what);
}

static uint8_t next_byte(void)
{
    return w.at < w.end ? *w.at++ : 0;
}

/* ---- frames and jobs */

static frame *frame_of(uint32_t number)
{
    want(number > 0 && number < FRAMES_MAX, "a frame's number is out of range");
    return &w.frames[number];
}

static uint64_t *used_by(const gvmi_frame_spec *spec)
{
    return &w.used_bytes[spec->tier == GVM_TIER_HOST ? DEVICES : spec->device];
}

static void make_frame(const gvmi_frame_spec *spec)
{
    frame *f = frame_of(spec->frame);

    want(!f->there, "a frame is made twice");
    want(spec->tier == GVM_TIER_HOST || (spec->tier == GVM_TIER_DEVICE && spec->device < DEVICES),
         "a frame is nowhere");
    *f = (frame){.spec = *spec, .there = true};
    *used_by(spec) += spec->bytes;
    want(*used_by(spec) <= (spec->tier == GVM_TIER_HOST ? w.config.host_budget_bytes
                                                        : w.config.devices[spec->device].budget_bytes),
         "a budget is exceeded");
}

static frame *existing(const gvmi_frame_spec *spec)
{
    frame *f = frame_of(spec->frame);

    want(f->there, "a frame is named that is not there");
    want(f->spec.tier == spec->tier && f->spec.device == spec->device && f->spec.bytes == spec->bytes,
         "a frame changed what it is");
    return f;
}

static void drop_frame(frame *f)
{
    *used_by(&f->spec) -= f->spec.bytes;
    f->there = false;
}

static void start_job(const gvmi_action *action)
{
    const bool make = action->kind == GVMI_ACTION_MAKE || action->make;
    job *j = &w.jobs[w.job_count];
    frame *to;

    want(w.job_count < JOBS_MAX, "there are too many jobs");
    if (make)
        make_frame(&action->to);
    to = existing(&action->to);
    want(to->writers == 0 && to->readers == 0, "a frame is written while another job has it");
    to->writers++;
    *j = (job){.id = action->job, .to = action->to.frame, .make = make};
    if (action->kind == GVMI_ACTION_COPY) {
        frame *from = existing(&action->from);

        want(from->made && from->writers == 0, "a frame is copied that is not ready");
        from->readers++;
        j->from = action->from.frame;
    }
    w.job_count++;
}

static void end_job(uint32_t index, gvm_status status)
{
    const job j = w.jobs[index];
    frame *to = frame_of(j.to);

    w.jobs[index] = w.jobs[--w.job_count];
    to->writers--;
    if (j.from != 0)
        frame_of(j.from)->readers--;
    if (status == GVM_OK)
        to->made = true;
    else if (j.make)
        drop_frame(to);
    gvmi_machine_job_done(w.machine, j.id, status);
}

/* ---- messages from the machine */

static client *client_of(uint32_t number)
{
    for (client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++)
        if (c->used && c->number == number)
            return c;
    fail("an action is for a client that does not exist");
    return NULL;
}

/* The mode of the ACQUIRE that is answered, 0 for other requests. */
static uint32_t answered(client *c, uint64_t number)
{
    for (uint32_t i = 0; i < c->request_count; i++) {
        if (c->requests[i].number == number) {
            const uint32_t mode = c->requests[i].mode;

            c->requests[i] = c->requests[--c->request_count];
            return mode;
        }
    }
    fail("a reply to nothing");
    return 0;
}

static void remember(client *c, bool grant, uint32_t slot, uint64_t value)
{
    want(c->todo_count < TODO_MAX, "a client is sent too much");
    c->todos[c->todo_count++] = (todo){grant, slot, value};
}

static void receive_map(client *c, const gvmi_wire_message *m, const uint32_t *frames)
{
    for (uint32_t i = 0; i < m->head.tail_bytes / sizeof m->tail.chunks[0]; i++) {
        const frame *f;

        if (m->tail.chunks[i].tier == GVM_TIER_ABSENT)
            continue;
        f = frame_of(*frames++);
        want(f->there && f->made && f->writers == 0, "a frame is mapped that is not ready");
        want(f->spec.tier == m->tail.chunks[i].tier, "a chunk is not where it is said to be");
    }
    remember(c, false, m->body.MAP.slot, m->body.MAP.serial);
}

static void receive(const gvmi_action *action)
{
    static uint8_t bytes[sizeof(gvmi_wire_message)];
    static gvmi_wire_message m;
    client *c = client_of(action->client);
    const size_t len = gvmi_wire_encode(action->message, bytes);
    uint32_t mode = 0;

    want(c->connected, "a message is for a client that is not connected");
    want(gvmi_wire_decode(bytes, len, false, &m) == GVM_OK, "a message is malformed");
    if (m.head.request != 0)
        mode = answered(c, m.head.request);
    switch ((gvmi_wire_type)m.head.type) {
    case GVMI_WIRE_MAP: receive_map(c, &m, action->frames); break;
    case GVMI_WIRE_GRANTED:
        want(mode != 0, "a lease is granted that nobody asked for");
        remember(c, true, m.body.GRANTED.slot, mode);
        break;
    case GVMI_WIRE_OPENED:
        if (m.body.OPENED.slot >= c->slot_end)
            c->slot_end = m.body.OPENED.slot + 1;
        remember(c, false, m.body.OPENED.slot, 0);
        break;
    case GVMI_WIRE_SNAPSHOT_IS:
        want(action->kind == GVMI_ACTION_SNAPSHOT && m.body.SNAPSHOT_IS.value == c->snapshot_bytes,
             "a snapshot is not what it is said to be");
        break;
    default: break;
    }
}

static void receive_piece(const gvmi_action *action)
{
    client *c = client_of(action->client);

    if (action->offset_bytes + action->len > c->snapshot_bytes)
        c->snapshot_bytes = action->offset_bytes + action->len;
    if (action->message != NULL) {
        receive(action);
        c->snapshot_bytes = 0;
        c->snapshot_sent = action->message->head.type == GVMI_WIRE_SNAPSHOT_IS;
    }
    free(action->message);
    free(action->bytes);
}

static void leave(client *c)
{
    c->connected = c->snapshot_sent = false;
    c->snapshot_bytes = 0;
    c->request_count = c->todo_count = 0;
}

static void forget(client *c)
{
    want(!c->connected, "a client is forgotten that is connected");
    c->used = false;
    gvmi_machine_exited(w.machine, c->number);
}

static void act(const gvmi_action *action)
{
    switch (action->kind) {
    case GVMI_ACTION_SNAPSHOT: receive_piece(action); break;
    case GVMI_ACTION_SEND:
        receive(action);
        free(action->message);
        break;
    case GVMI_ACTION_MAKE:
    case GVMI_ACTION_COPY:
    case GVMI_ACTION_ZERO: start_job(action); break;
    case GVMI_ACTION_DROP: {
        frame *f = existing(&action->to);

        want(f->writers == 0 && f->readers == 0, "a frame is dropped that a job has");
        drop_frame(f);
        break;
    }
    case GVMI_ACTION_CUT:
        want(client_of(action->client)->connected, "a client is cut off that is not connected");
        leave(client_of(action->client));
        break;
    case GVMI_ACTION_KILL:
        want(w.config.fence_kills, "a process is killed that need not be");
        break;
    case GVMI_ACTION_FORGET: forget(client_of(action->client)); break;
    case GVMI_ACTION_LOG: break;
    default: fail("an unknown action");
    }
}

/* Does what the machine ordered; comes after every event. */
static void settle(void)
{
    static gvmi_action action;

    for (uint32_t i = 0; gvmi_machine_next(w.machine, &action); i++) {
        want(i < ACTIONS_MAX, "actions without end");
        act(&action);
    }
    want(gvmi_machine_check(w.machine), "an invariant is broken");
}

/* ---- messages to the machine */

static void depart(client *c)
{
    if (c->connected) {
        leave(c);
        gvmi_machine_disconnect(w.machine, c->number);
        settle();
    }
}

static void exit_client(client *c)
{
    depart(c);
    if (!c->used) /* forgotten */
        return;
    gvmi_machine_exited(w.machine, c->number);
    c->used = false;
    settle();
}

/* As the server: what the decoder refuses is a violation, and BYE ends the connection. */
static void deliver(client *c, const uint8_t *bytes, size_t len)
{
    static gvmi_wire_message m;

    if (gvmi_wire_decode(bytes, len, true, &m) != GVM_OK) {
        gvmi_machine_violation(w.machine, c->number, "what came is no message");
    } else {
        if (m.head.request != 0) {
            if (c->request_count == REQUESTS_MAX)
                return;
            c->requests[c->request_count++] = (request){
                m.head.request, m.head.type,
                m.head.type == GVMI_WIRE_ACQUIRE ? m.body.ACQUIRE.mode : 0};
        }
        if (m.head.type == GVMI_WIRE_BYE) {
            leave(c);
            gvmi_machine_bye(w.machine, c->number);
        } else {
            gvmi_machine_message(w.machine, c->number, &m);
        }
    }
    settle();
}

static void send_message(client *c, gvmi_wire_message *m)
{
    static uint8_t bytes[sizeof(gvmi_wire_message)];

    deliver(c, bytes, gvmi_wire_encode(m, bytes));
}

static const char *const names[] = {"/a", "/b", "/c", ""};

static void put_name(char *to, uint8_t which)
{
    snprintf(to, GVM_NAME_BYTES_MAX, "%s", names[which % 4]);
}

/* Fills in what is not the slot. */
static void fill_body(gvmi_wire_message *m, uint8_t a, uint8_t b)
{
    switch ((gvmi_wire_type)m->head.type) {
    case GVMI_WIRE_HELLO:
        m->body.HELLO = (gvmi_wire_hello){GVMI_WIRE_MAGIC, GVMI_WIRE_VERSION, 0};
        break;
    case GVMI_WIRE_CREATE:
        memset(&m->body.CREATE, 0, sizeof m->body.CREATE);
        m->body.CREATE.device_uuid[0] = (uint8_t)(1 + a % (DEVICES + (b == 255)));
        m->body.CREATE.reserve_bytes = (b == 254 ? 3 : 32) * MIB;
        m->body.CREATE.chunk_bytes = (a & 32) != 0 ? 4 * MIB : 2 * MIB;
        m->body.CREATE.bytes = (uint64_t)(b % 40) * MIB;
        m->body.CREATE.mode = (a & 64) != 0 ? 0666 : 0600;
        m->body.CREATE.flags = ((a & 128) != 0 ? GVM_OBJECT_KEEP : 0u) |
                               ((a & 64) != 0 ? GVM_OBJECT_UNTRACKED : 0u) |
                               ((a & 16) != 0 ? GVM_OBJECT_HOST : 0u);
        put_name(m->body.CREATE.name, a >> 1);
        m->head.tail_bytes = b % 8;
        break;
    case GVMI_WIRE_OPEN:
        memset(&m->body.OPEN, 0, sizeof m->body.OPEN);
        m->body.OPEN.flags = b % 16;
        put_name(m->body.OPEN.name, a);
        break;
    case GVMI_WIRE_GROW: m->body.GROW.bytes = (uint64_t)a * MIB / 2; break;
    case GVMI_WIRE_SHRINK: m->body.SHRINK.bytes = (uint64_t)a * MIB / 2; break;
    case GVMI_WIRE_SEAL: m->body.SEAL.timeout_ms = a - 1; break;
    case GVMI_WIRE_PUBLISH:
        m->body.PUBLISH.flags = b % 2;
        put_name(m->body.PUBLISH.name, a);
        break;
    case GVMI_WIRE_LINK:
        m->body.LINK.mode = (a & 64) != 0 ? 0444 : b;
        m->body.LINK.bytes = (b % 32) * MIB / 2;
        put_name(m->body.LINK.name, a);
        break;
    case GVMI_WIRE_UNLINK:
    case GVMI_WIRE_DROP:
        memset(&m->body.DROP, 0, sizeof m->body.DROP);
        put_name(m->body.DROP.name, a);
        break;
    case GVMI_WIRE_SET_MODE: m->body.SET_MODE.value = (uint32_t)a << 1 | b % 2; break;
    case GVMI_WIRE_SET_METADATA: m->head.tail_bytes = a; break;
    case GVMI_WIRE_ACQUIRE:
        m->body.ACQUIRE.mode = 1 + a % 2;
        m->body.ACQUIRE.hint = a / 2 % 4;
        m->body.ACQUIRE.timeout_ms = b - 1;
        break;
    case GVMI_WIRE_TAKEN: m->body.TAKEN.mode = 1 + a % 2; break;
    case GVMI_WIRE_MAPPED:
        m->body.MAPPED.status = b % 8 == 7 ? GVM_E_LIMIT : GVM_OK;
        m->body.MAPPED.serial = a;
        m->body.MAPPED.address = ADDRESS;
        break;
    case GVMI_WIRE_UNMAPPED: m->body.UNMAPPED.serial = 1 + a; break;
    case GVMI_WIRE_EVICT:
        memset(&m->body.EVICT, 0, sizeof m->body.EVICT);
        m->body.EVICT.value = b != 0 ? (uint64_t)b * MIB / 2 : UINT64_MAX;
        put_name(m->body.EVICT.name, a);
        break;
    case GVMI_WIRE_LIST_CHUNKS:
        memset(&m->body.LIST_CHUNKS, 0, sizeof m->body.LIST_CHUNKS);
        m->body.LIST_CHUNKS.value = b != 255 ? b : UINT64_MAX;
        put_name(m->body.LIST_CHUNKS.name, a);
        break;
    case GVMI_WIRE_TRIM: m->body.TRIM = (gvmi_wire_trim){a % 3, 0, b * MIB}; break;
    case GVMI_WIRE_SET_QUOTA:
        m->body.SET_QUOTA = (gvmi_wire_quota){a % 3, 0, b == 255 ? UINT64_MAX : b * MIB};
        break;
    case GVMI_WIRE_SNAPSHOT:
    case GVMI_WIRE_SNAPSHOT_READ:
    case GVMI_WIRE_RESTRICT:
    case GVMI_WIRE_BYE: m->body.SNAPSHOT.reserved = 0; break;
    default: break;
    }
}

/* Clients' messages are numbered from 1 on, without gaps: so many there are. */
#define FROM_C +1
#define FROM_K +0
#define COUNT(name, value, from, body, tail, fds) FROM_##from
enum { CLIENT_TYPES = 0 GVMI_WIRE_TABLE(COUNT) };
#undef COUNT

static void event_message(client *c)
{
    static gvmi_wire_message m;
    const uint8_t type = (uint8_t)(1 + next_byte() % CLIENT_TYPES), slot = next_byte() % 8,
                  a = next_byte(), b = next_byte();
    const bool numbered = type != GVMI_WIRE_TAKEN && type != GVMI_WIRE_MAPPED &&
                          type != GVMI_WIRE_UNMAPPED && type != GVMI_WIRE_BYE &&
                          type != GVMI_WIRE_SNAPSHOT_READ;

    gvmi_wire_start(&m, (gvmi_wire_type)type, numbered ? ++c->next_request : 0);
    m.body.CLOSE.slot = slot; /* first in all bodies that have one */
    fill_body(&m, a, b);
    if (type == GVMI_WIRE_SNAPSHOT_READ)
        c->snapshot_sent = false;
    send_message(c, &m);
}

/* Bytes of the input as they are. */
static void event_bytes(client *c)
{
    const size_t wanted = (size_t)next_byte() * 2, left = (size_t)(w.end - w.at);
    const size_t len = wanted < left ? wanted : left;
    const uint8_t *bytes = w.at;

    w.at += len;
    deliver(c, bytes, len);
}

/* What a client that behaves does next: answers the oldest that waits. */
static void answer(client *c)
{
    static gvmi_wire_message m;
    todo first;

    if (c->todo_count == 0)
        return;
    first = c->todos[0];
    memmove(c->todos, c->todos + 1, --c->todo_count * sizeof first);
    if (first.grant) {
        const bool write = first.serial == GVM_LEASE_WRITE;

        atomic_fetch_add(&c->leases[first.slot].word, write ? GVMI_LEASE_WRITER : GVMI_LEASE_READER);
        gvmi_wire_start(&m, GVMI_WIRE_TAKEN, 0);
        m.body.TAKEN = (gvmi_wire_taken){first.slot, (uint32_t)first.serial};
    } else {
        gvmi_wire_start(&m, GVMI_WIRE_MAPPED, 0);
        m.body.MAPPED = (gvmi_wire_mapped){first.slot, GVM_OK, first.serial, ADDRESS};
    }
    send_message(c, &m);
}

/* Lets go of what the oldest MAP replaces, which is not answered by that. */
static void unmap(client *c)
{
    static gvmi_wire_message m;

    if (c->todo_count == 0 || c->todos[0].grant || c->todos[0].serial == 0)
        return;
    gvmi_wire_start(&m, GVMI_WIRE_UNMAPPED, 0);
    m.body.UNMAPPED = (gvmi_wire_unmapped){c->todos[0].slot, 0, c->todos[0].serial};
    send_message(c, &m);
}

/* Takes, gives back or scribbles over a lease word. */
static void event_lease(client *c)
{
    const uint8_t slot = next_byte() % 8, how = next_byte();
    _Atomic uint64_t *word = &c->leases[slot].word;

    if (slot >= c->slot_end)
        c->slot_end = slot + 1u;
    atomic_store(&c->leases[slot].hint, how); /* of any value */
    switch (how % 8) {
    case LEASE_READ: atomic_fetch_add(word, GVMI_LEASE_READER + GVMI_LEASE_COUNTED); break;
    case LEASE_WRITE: atomic_fetch_add(word, GVMI_LEASE_WRITER + GVMI_LEASE_COUNTED); break;
    case LEASE_UNREAD: atomic_fetch_sub(word, GVMI_LEASE_READER); break;
    case LEASE_UNWRITE: atomic_fetch_sub(word, GVMI_LEASE_WRITER); break;
    case LEASE_SCRIBBLE: atomic_store(word, UINT64_MAX); break;
    default: atomic_store(word, 0); break;
    }
    if ((how & LEASE_RING) != 0) {
        gvmi_machine_doorbell(w.machine, c->number);
        settle();
    }
}

/* ---- events */

static void connect_client(client *c, uint32_t uid)
{
    const gvmi_credentials who = {.uid = uid, .gid = uid, .pid = 100};

    memset(c->leases, 0, c->slot_end * sizeof *c->leases);
    memset(c->permits, 0, c->slot_end * sizeof *c->permits);
    if (gvmi_machine_connect(w.machine, &who, c->leases, c->permits, &c->number) == GVM_OK) {
        c->used = c->connected = true;
        c->next_request = c->request_count = c->todo_count = 0;
        c->slot_end = 0;
    }
    settle();
}

static void greet(client *c)
{
    static gvmi_wire_message m;

    gvmi_wire_start(&m, GVMI_WIRE_HELLO, ++c->next_request);
    fill_body(&m, 0, 0);
    send_message(c, &m);
}

/* Every client reads what it was sent, sooner or later. */
static void read_snapshots(void)
{
    static gvmi_wire_message m;

    for (uint32_t i = 0; i < MACHINE_CLIENTS; i++)
        if (w.clients[i].snapshot_sent) {
            w.clients[i].snapshot_sent = false;
            gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT_READ, 0);
            send_message(&w.clients[i], &m);
        }
}

static void tick(int64_t ms)
{
    read_snapshots();
    w.now_ns += ms * GVMI_NS_PER_MS;
    gvmi_machine_tick(w.machine, w.now_ns);
    settle();
}

static void event_job(void)
{
    const uint8_t which = next_byte(), how = next_byte();

    if (w.job_count == 0)
        return;
    end_job(which % w.job_count, how < JOB_FAILS        ? GVM_OK
                                 : how < JOB_FAILS + 16 ? GVM_E_NOSPACE
                                                        : GVM_E_DRIVER);
    settle();
}

static void event_budget(void)
{
    const uint8_t a = next_byte(), b = next_byte();

    if ((a & SET_QUOTA) == 0)
        gvmi_machine_driver_memory(w.machine, a % 3, 0, 64 * MIB, b * MIB / 8);
    else
        gvmi_machine_set_quota(w.machine, a % 3, b * MIB);
    settle();
}

static void event_coming_and_going(client *c)
{
    const uint8_t how = next_byte();

    if (!c->used) {
        connect_client(c, how % 3);
        if (c->used && (how & PEER_SILENT) == 0)
            greet(c);
    } else if (how % 4 == PEER_LEAVES) {
        depart(c);
    } else if (how % 4 == PEER_EXITS) {
        exit_client(c);
    } else if (how % 4 == PEER_CLOSES) {
        leave(c);
        gvmi_machine_closed(w.machine, c->number);
        settle();
    }
}

static void event(void)
{
    const uint8_t op = next_byte();
    client *c = &w.clients[op / 16 % MACHINE_CLIENTS];

    (void)gvmi_machine_work(w.machine); /* a slice between any two events */
    settle();
    switch (op % 16) {
    case EVENT_JOB: event_job(); return;
    case EVENT_TICK: tick(next_byte()); return;
    case EVENT_BUDGET: event_budget(); return;
    case EVENT_PEER: event_coming_and_going(c); return;
    default: break;
    }
    if (!c->connected)
        return;
    switch (op % 16) {
    case EVENT_BYTES: event_bytes(c); break;
    case EVENT_LEASE:
    case EVENT_LEASE + 1: event_lease(c); break;
    case EVENT_BELL:
        gvmi_machine_doorbell(w.machine, c->number);
        settle();
        break;
    case EVENT_ANSWER: answer(c); break;
    case EVENT_UNMAPPED: unmap(c); break;
    default: event_message(c); break;
    }
}

/* ---- an input from beginning to end */

static void begin(const uint8_t *data, size_t size)
{
    w.at = data;
    w.end = data + size;
    w.now_ns = GVMI_NS_PER_MS;
    w.job_count = 0;
    memset(w.frames, 0, sizeof w.frames);
    memset(w.used_bytes, 0, sizeof w.used_bytes);
    w.config = (gvmi_machine_config){
        .device_count = DEVICES,
        .host_budget_bytes = (next_byte() % 32) * MIB,
        .host_ahead_bytes = (next_byte() % 8) * MIB,
        .device_keep_bytes = (next_byte() % 8) * MIB,
        .quota_bytes = UINT64_MAX,
        .clients_max = MACHINE_CLIENTS - 1, /* so that one is refused */
        .objects_max = 8,
        .revoke_limit_ms = 1000,
        .lease_limit_ms = next_byte() % 2 * 500u,
        .uid = 1,
        .pid = 1,
    };
    for (uint32_t d = 0; d < DEVICES; d++)
        w.config.devices[d] = (gvmi_machine_device){
            .uuid = {(uint8_t)(d + 1)}, .ordinal = (int32_t)d, .budget_bytes = (8 + 8 * d) * MIB};
    for (client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++) {
        c->used = c->connected = false;
        if (c->leases == NULL) {
            c->leases = aligned_alloc(64, GVMI_LEASE_PAGE_BYTES);
            c->permits = calloc(GVM_OBJECTS_OPEN_MAX, sizeof *c->permits);
            want(c->leases != NULL && c->permits != NULL, "out of memory");
            memset(c->leases, 0, GVMI_LEASE_PAGE_BYTES);
        }
    }
    want(gvmi_machine_create(&w.config, &w.machine) == GVM_OK, "out of memory");
    tick(0);
}

static bool all_is_answered(void)
{
    for (const client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++)
        if (c->connected && (c->request_count > 0 || c->todo_count > 0))
            return false;
    return w.job_count == 0;
}

/* Processes that were cut off end. */
static void exit_cut_off(void)
{
    for (client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++)
        if (c->used && !c->connected)
            exit_client(c);
}

/* Everybody answers and nobody keeps a lease. Processes that were cut off live on for half of the rounds: where
 * there is no room to copy what they may still write to, requests wait for their end. */
static void calm_down(void)
{
    for (uint32_t round = 0; round < CALM_ROUNDS && !all_is_answered(); round++) {
        if (round == CALM_ROUNDS / 2)
            exit_cut_off();
        while (w.job_count > 0) {
            end_job(0, GVM_OK);
            settle();
        }
        while (gvmi_machine_work(w.machine))
            settle();
        settle();
        read_snapshots();
        for (client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++) {
            while (c->connected && c->todo_count > 0)
                answer(c);
            for (uint32_t slot = 0; slot < c->slot_end; slot++)
                atomic_fetch_and(&c->leases[slot].word, ~0xffffffffull);
            if (c->connected) {
                gvmi_machine_doorbell(w.machine, c->number);
                settle();
            }
        }
        tick(20);
    }
    for (const client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++)
        for (uint32_t i = 0; i < (c->connected ? c->request_count : 0); i++)
            fprintf(stderr, "client %u waits for the answer to %s\n", c->number,
                    gvmi_wire_name_of(c->requests[i].type));
    want(all_is_answered(), "a request was never answered");
}

static void end(void)
{
    calm_down();
    for (client *c = w.clients; c < w.clients + MACHINE_CLIENTS; c++)
        if (c->used)
            exit_client(c);
    tick(2000);
    gvmi_machine_destroy(w.machine);
    w.machine = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin(data, size);
    for (uint32_t i = 0; i < EVENTS_MAX && w.at < w.end; i++)
        event();
    end();
    return 0;
}
