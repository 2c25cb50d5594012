/* Hostile neighbours: what a user without rights can do to a keeper that others use, too.
 *
 * Each act is a process of its own that ends after a while or is killed. Nothing of it is checked
 * here; what must hold is checked by the honest clients and when all neighbours are gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/proc/keeper_raw.h"
#include "tests/proc/keeper_soak.h"

#define CALL_WAIT_MS 3000
#define NICE 10 /* the processors' time is no resource of the keeper's: neighbours get less of it */
#define FLOOD_CLIENTS 20u
#define FLOOD_OBJECTS_EACH 4096u /* GVM_OBJECTS_OPEN_MAX */
#define FLOOD_CONNECTIONS_MAX 1100u
#define SNAPSHOT_OBJECTS 300u
#define SNAPSHOTS_KEPT 200u
#define BATCH 64u /* requests sent before their replies are read */
#define GROW_BATCH 1024u
#define STORM_RINGS 10000u
#define OPENING_CLIENTS 200u /* connections, each with objects open as often as it may */
#define OPENING_GROUP 32u    /* of them, that have the same open: as often as a user may */
#define OPENED_OBJECTS 8u
#define OPENED_TIMES 16u
#define SILENT_CONNECTIONS 40u
#define PAUSE_MS 10u

typedef struct hostile {
    uint64_t seed, end_ns;
    raw_client client;
} hostile;

static bool over(const hostile *h)
{
    return atomic_load(&soak->stop) || now_ns() >= h->end_ns;
}

static void hold_on(const hostile *h)
{
    while (!over(h))
        pause_ms(PAUSE_MS);
}

static uint32_t below(hostile *h, uint32_t end)
{
    return (uint32_t)(random_next(&h->seed) % end);
}

/* ---- messages */

static void start_create(gvmi_wire_message *m, uint64_t reserve_bytes, uint64_t bytes)
{
    gvmi_wire_start(m, GVMI_WIRE_CREATE, 0);
    memcpy(m->body.CREATE.device_uuid, soak->device_uuid, sizeof soak->device_uuid);
    m->body.CREATE.reserve_bytes = reserve_bytes;
    m->body.CREATE.chunk_bytes = CHUNK_BYTES;
    m->body.CREATE.bytes = bytes;
    m->body.CREATE.mode = 0600;
}

/* An object of the honest that is there now, or one that cannot be. */
static void any_name(hostile *h, char name[GVM_NAME_BYTES_MAX])
{
    char text[64] = "/nobody";
    const uint64_t serial = atomic_load(&soak->positions[below(h, POSITIONS)]);

    if (serial != 0)
        soak_name(serial, text);
    memset(name, 0, GVM_NAME_BYTES_MAX);
    memcpy(name, text, strlen(text));
}

static bool begin(hostile *h)
{
    return raw_begin(&h->client, soak->path);
}

/* Opens what it may, for writing where it may; the slot, or -1. */
static int open_something(hostile *h)
{
    gvmi_wire_message request, reply;

    for (unsigned i = 0; i < POSITIONS; i++) {
        gvmi_wire_start(&request, GVMI_WIRE_OPEN, 0);
        any_name(h, request.body.OPEN.name);
        request.body.OPEN.flags = (below(h, 2) == 0 ? GVM_OPEN_READONLY : 0u) |
                                  (below(h, 2) == 0 ? GVM_OPEN_MAPPED : 0u);
        if (!raw_call(&h->client, &request, CALL_WAIT_MS, &reply))
            return -1;
        if (reply.head.type == GVMI_WIRE_OPENED)
            return (int)reply.body.OPENED.slot;
    }
    return -1;
}

static unsigned open_some(hostile *h, unsigned count)
{
    unsigned opened = 0;

    for (unsigned i = 0; i < count; i++)
        opened += open_something(h) >= 0;
    return opened;
}

/* But HELLO; seldom RESTRICT, after which the connection can do little. */
static gvmi_wire_type random_type(hostile *h)
{
    const gvmi_wire_type type = raw_types[1 + below(h, raw_type_count - 1)];

    return type == GVMI_WIRE_RESTRICT && below(h, 50) != 0 ? GVMI_WIRE_OPEN : type;
}

/* Any message that a client may send, of the right form. */
static void random_message(hostile *h, gvmi_wire_message *m)
{
    const gvmi_wire_type type = random_type(h);
    const uint32_t slot = below(h, 6);

    gvmi_wire_start(m, type, 0);
    switch (type) {
    case GVMI_WIRE_CREATE:
        start_create(m, (1 + below(h, 64)) * CHUNK_BYTES, below(h, 4) * CHUNK_BYTES);
        m->body.CREATE.flags = below(h, 4);
        break;
    case GVMI_WIRE_OPEN:
        any_name(h, m->body.OPEN.name);
        m->body.OPEN.flags = below(h, 16);
        break;
    case GVMI_WIRE_GROW:
        m->body.GROW.slot = slot;
        m->body.GROW.bytes = random_next(&h->seed) >> below(h, 64);
        break;
    case GVMI_WIRE_SHRINK: /* to more than there is: who may write may shrink, and the honest would find less */
        m->body.SHRINK.slot = slot;
        m->body.SHRINK.bytes = UINT64_MAX >> below(h, 16);
        break;
    case GVMI_WIRE_SEAL:
        m->body.SEAL.slot = slot;
        m->body.SEAL.timeout_ms = (int32_t)below(h, 100) - 1;
        break;
    case GVMI_WIRE_PUBLISH:
        m->body.PUBLISH.slot = slot;
        m->body.PUBLISH.flags = below(h, 4);
        any_name(h, m->body.PUBLISH.name);
        break;
    case GVMI_WIRE_LINK:
        m->body.LINK.slot = slot;
        m->body.LINK.mode = below(h, 01000);
        m->body.LINK.bytes = random_next(&h->seed) >> below(h, 64);
        any_name(h, m->body.LINK.name);
        break;
    case GVMI_WIRE_UNLINK:
    case GVMI_WIRE_DROP: any_name(h, m->body.DROP.name); break;
    case GVMI_WIRE_SET_MODE:
        m->body.SET_MODE.slot = slot;
        m->body.SET_MODE.value = below(h, 01000);
        break;
    case GVMI_WIRE_SET_METADATA:
        m->body.SET_METADATA.slot = slot;
        m->head.tail_bytes = below(h, GVMI_WIRE_TAIL_BYTES_MAX);
        break;
    case GVMI_WIRE_ACQUIRE:
        m->body.ACQUIRE.slot = slot;
        m->body.ACQUIRE.mode = 1 + below(h, 2);
        m->body.ACQUIRE.hint = below(h, 4);
        m->body.ACQUIRE.timeout_ms = (int32_t)below(h, 100) - 1;
        m->body.ACQUIRE.flags = below(h, 3);
        break;
    case GVMI_WIRE_TAKEN:
        m->body.TAKEN.slot = slot;
        m->body.TAKEN.mode = 1 + below(h, 2);
        break;
    case GVMI_WIRE_MAPPED:
        m->body.MAPPED.slot = slot;
        m->body.MAPPED.serial = below(h, 20);
        m->body.MAPPED.status = below(h, 4) == 0 ? GVM_E_ADDRESS : GVM_OK;
        m->body.MAPPED.address = RAW_ADDRESS;
        break;
    case GVMI_WIRE_UNMAPPED:
        m->body.UNMAPPED.slot = slot;
        m->body.UNMAPPED.serial = 1 + below(h, 20);
        break;
    case GVMI_WIRE_LIST_CHUNKS: /* the same layout */
    case GVMI_WIRE_EVICT:
        any_name(h, m->body.EVICT.name);
        m->body.EVICT.value = random_next(&h->seed) >> below(h, 64);
        break;
    case GVMI_WIRE_SET_QUOTA: m->body.SET_QUOTA.uid = UID_HONEST; break;
    case GVMI_WIRE_GET_METADATA:
    case GVMI_WIRE_CLOSE:
    case GVMI_WIRE_GET_INFO: m->body.CLOSE.slot = slot; break; /* the same layout */
    default: break;                                            /* zeros are right */
    }
}

/* Do they end a connection at once if nothing is wrong with them? */
static bool is_end(uint32_t type)
{
    return type == GVMI_WIRE_BYE;
}

static bool has_reply(uint32_t type)
{
    return type != GVMI_WIRE_BYE && type != GVMI_WIRE_TAKEN && type != GVMI_WIRE_MAPPED &&
           type != GVMI_WIRE_UNMAPPED && type != GVMI_WIRE_SNAPSHOT_READ;
}

/* ---- floods */

/* Nameless objects without memory until no more are to be had, then snapshots of them all. */
static bool flood_objects_of(hostile *h, raw_client *c)
{
    gvmi_wire_message m;
    unsigned made = 0;

    if (!raw_begin(c, soak->path))
        return false;
    while (made < FLOOD_OBJECTS_EACH && !over(h)) {
        for (unsigned i = 0; i < BATCH; i++) {
            start_create(&m, CHUNK_BYTES, 0);
            m.head.request = ++c->requests;
            if (!raw_say_message(c->fd, &m))
                return false;
        }
        for (unsigned i = 0; i < BATCH; i++) {
            if (!raw_receive(c, CALL_WAIT_MS, &m))
                return false;
            if (m.head.type == GVMI_WIRE_FAILED)
                return true;
        }
        made += BATCH;
    }
    return true;
}

static void flood_objects(hostile *h)
{
    static raw_client clients[FLOOD_CLIENTS];
    gvmi_wire_message m;

    for (unsigned i = 0; i < FLOOD_CLIENTS && !over(h); i++)
        if (!flood_objects_of(h, &clients[i]))
            break;
    while (!over(h)) {
        for (unsigned i = 0; i < BATCH; i++) {
            gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT, ++clients[0].requests);
            if (!raw_say_message(clients[0].fd, &m))
                break;
        }
        (void)raw_drain(&clients[0]);
        pause_ms(PAUSE_MS);
    }
}

/* Snapshots that it never reads. */
static void flood_snapshots(hostile *h)
{
    gvmi_wire_message m, reply;

    while (!over(h)) {
        if (begin(h)) {
            for (unsigned i = 0; i < SNAPSHOT_OBJECTS && !over(h); i++) {
                start_create(&m, CHUNK_BYTES, 0);
                if (!raw_call(&h->client, &m, CALL_WAIT_MS, &reply) ||
                    reply.head.type == GVMI_WIRE_FAILED)
                    break;
            }
            do
                gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT, ++h->client.requests);
            while (!over(h) && raw_say_message(h->client.fd, &m));
        }
        while (!over(h) && !raw_is_closed(&h->client))
            pause_ms(PAUSE_MS);
        raw_end(&h->client);
        pause_ms(PAUSE_MS);
    }
}

/* Snapshots whose descriptors it keeps. */
static void keep_snapshots(hostile *h)
{
    gvmi_wire_message m, reply;
    bool open = begin(h);

    h->client.keeps = true;
    for (unsigned i = 0; i < SNAPSHOT_OBJECTS && open && !over(h); i++) {
        start_create(&m, CHUNK_BYTES, 0);
        open = raw_call(&h->client, &m, CALL_WAIT_MS, &reply) && reply.head.type == GVMI_WIRE_OPENED;
    }
    for (unsigned i = 0; i < SNAPSHOTS_KEPT && open && !over(h); i++) {
        gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT, 0);
        open = raw_call(&h->client, &m, CALL_WAIT_MS, &reply);
    }
    hold_on(h);
}

/* Growths of a large object, while what it owns already is more than there is room for. */
static void flood_growths(hostile *h)
{
    static uint8_t batch[GROW_BATCH * (sizeof(gvmi_wire_head) + sizeof(gvmi_wire_grow))];
    gvmi_wire_message m, reply;
    size_t len = 0;

    while (!over(h)) {
        uint32_t slot = 0;

        if (begin(h)) {
            for (unsigned i = 0; i < 16; i++) { /* up to its quota */
                start_create(&m, 4 * CHUNK_BYTES, 4 * CHUNK_BYTES);
                if (!raw_call(&h->client, &m, CALL_WAIT_MS, &reply) ||
                    reply.head.type == GVMI_WIRE_FAILED)
                    break;
            }
            h->client.silent = true;
            start_create(&m, 1ull << 40, 0);
            if (raw_call(&h->client, &m, CALL_WAIT_MS, &reply) && reply.head.type == GVMI_WIRE_OPENED)
                slot = reply.body.OPENED.slot;
            for (unsigned i = 0; i < GROW_BATCH; i++) {
                gvmi_wire_start(&m, GVMI_WIRE_GROW, ++h->client.requests);
                m.body.GROW.slot = slot;
                m.body.GROW.bytes = (1 + below(h, 1000)) * CHUNK_BYTES;
                if (i == 0)
                    len = 0;
                len += gvmi_wire_encode(&m, batch + len);
            }
            while (!over(h) && raw_say(h->client.fd, batch, len))
                (void)raw_drain(&h->client);
        }
        raw_end(&h->client);
        pause_ms(PAUSE_MS);
    }
}

/* All the connections that it can have, for a while; then again. */
static void flood_connections(hostile *h)
{
    static int fds[FLOOD_CONNECTIONS_MAX];

    while (!over(h)) {
        unsigned count = 0;

        for (; count < FLOOD_CONNECTIONS_MAX && !over(h); count++) {
            fds[count] = raw_connect(soak->path);
            if (fds[count] < 0)
                break;
            (void)raw_say_hello(fds[count]);
        }
        for (unsigned i = 0; i < 100 && !over(h); i++)
            pause_ms(PAUSE_MS);
        while (count > 0)
            close(fds[--count]);
    }
}

/* What is open very often is dear to withdraw, and to ring for. */
static void name_of_group(unsigned group, unsigned object, char name[GVM_NAME_BYTES_MAX])
{
    memset(name, 0, GVM_NAME_BYTES_MAX);
    snprintf(name, GVM_NAME_BYTES_MAX, "/often/%d/%u/%u", (int)getpid(), group, object);
}

static bool open_often(raw_client *c, unsigned group)
{
    gvmi_wire_message m;

    for (unsigned object = 0; object < OPENED_OBJECTS; object++) {
        for (unsigned i = 0; i < OPENED_TIMES; i++) {
            gvmi_wire_start(&m, GVMI_WIRE_OPEN, ++c->requests);
            name_of_group(group, object, m.body.OPEN.name);
            if (!raw_say_message(c->fd, &m))
                return false;
        }
        for (unsigned i = 0; i < OPENED_TIMES; i++) /* OPENED or FAILED: nothing is mapped */
            if (!raw_receive(c, CALL_WAIT_MS, &m))
                return false;
    }
    return true;
}

static bool create_for_group(raw_client *c, unsigned group)
{
    gvmi_wire_message m, reply;

    for (unsigned object = 0; object < OPENED_OBJECTS; object++) {
        start_create(&m, CHUNK_BYTES, 0);
        name_of_group(group, object, m.body.CREATE.name);
        if (!raw_call(c, &m, CALL_WAIT_MS, &reply))
            return false;
    }
    return true;
}

static unsigned begin_many(hostile *h, raw_client *clients)
{
    unsigned count = 0;

    for (; count < OPENING_CLIENTS && !over(h); count++) {
        raw_client *c = &clients[count];
        const unsigned group = count / OPENING_GROUP;

        if (!raw_begin(c, soak->path) ||
            (count % OPENING_GROUP == 0 && !create_for_group(c, group)) || !open_often(c, group)) {
            raw_end(c);
            break;
        }
    }
    return count;
}

/* Leases that nobody takes, of all slots, without a pause. */
static void flood_acquires(hostile *h)
{
    static raw_client clients[OPENING_CLIENTS];
    static uint8_t batch[BATCH * (sizeof(gvmi_wire_head) + sizeof(gvmi_wire_acquire))];
    const unsigned count = begin_many(h, clients);
    gvmi_wire_message m;
    size_t len = 0;

    for (unsigned i = 0; i < BATCH; i++) {
        gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, 1000000 + i);
        m.body.ACQUIRE.slot = i * 7 % (OPENED_OBJECTS * OPENED_TIMES);
        m.body.ACQUIRE.mode = i % 3 == 0 ? GVM_LEASE_READ : GVM_LEASE_WRITE;
        len += gvmi_wire_encode(&m, batch + len);
    }
    while (!over(h))
        for (unsigned i = 0; i < count; i++) {
            (void)send(clients[i].fd, batch, len, MSG_DONTWAIT | MSG_NOSIGNAL);
            (void)raw_drain(&clients[i]);
        }
}

/* Of clients that have very much open, which one of them holds and another waits for. */
static void flood_doorbells(hostile *h)
{
    static raw_client clients[OPENING_CLIENTS];
    const unsigned count = begin_many(h, clients);
    const uint64_t one = 1;
    gvmi_wire_message m;

    for (unsigned slot = 0; slot < OPENED_OBJECTS * OPENED_TIMES && count > 1; slot++) {
        atomic_store(&clients[0].leases[slot].word, GVMI_LEASE_READER);
        gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, 1000000 + slot);
        m.body.ACQUIRE.slot = slot;
        m.body.ACQUIRE.mode = GVM_LEASE_WRITE;
        m.body.ACQUIRE.timeout_ms = -1;
        (void)raw_say_message(clients[1].fd, &m);
    }
    while (!over(h)) {
        for (unsigned i = 0; i < count; i++)
            (void)!write(clients[i].doorbell, &one, sizeof one);
        for (unsigned i = 0; i < 2 && i < count; i++)
            (void)raw_drain(&clients[i]);
    }
}

/* ---- other acts */

static void connect_and_close(hostile *h)
{
    while (!over(h)) {
        const int fd = raw_connect(soak->path);

        if (fd >= 0 && below(h, 2) == 0)
            (void)raw_say_hello(fd);
        if (fd >= 0)
            close(fd);
        if (below(h, 16) == 0)
            pause_us(200);
    }
}

static void say_half(hostile *h, int fd)
{
    gvmi_wire_message m;
    uint8_t bytes[sizeof m];
    size_t len;

    random_message(h, &m);
    m.head.request = has_reply(m.head.type) ? 2 : 0;
    len = gvmi_wire_encode(&m, bytes);
    (void)raw_say(fd, bytes, 1 + below(h, (uint32_t)len - 1));
}

static void stay_silent(hostile *h)
{
    int fds[SILENT_CONNECTIONS];

    for (unsigned i = 0; i < SILENT_CONNECTIONS; i++) {
        fds[i] = raw_connect(soak->path);
        if (fds[i] < 0)
            continue;
        if (i % 3 > 0)
            (void)raw_say_hello(fds[i]);
        if (i % 3 > 1)
            say_half(h, fds[i]);
    }
    hold_on(h);
}

static void say_random_bytes(hostile *h)
{
    while (!over(h)) {
        const int fd = raw_connect(soak->path);
        uint8_t bytes[3000];

        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)random_next(&h->seed);
        if (fd >= 0 && below(h, 2) == 0)
            (void)raw_say_hello(fd);
        if (fd >= 0)
            (void)raw_say(fd, bytes, 1 + below(h, sizeof bytes));
        pause_ms(1);
        if (fd >= 0)
            close(fd);
    }
}

static void say_random_messages(hostile *h)
{
    while (!over(h)) {
        bool open = begin(h) && open_some(h, 3) > 0;

        h->client.silent = below(h, 2) == 0;
        while (open && !over(h)) {
            gvmi_wire_message m;

            random_message(h, &m);
            if (is_end(m.head.type) && below(h, 50) > 0)
                continue;
            m.head.request = has_reply(m.head.type) ? ++h->client.requests : 0;
            open = raw_say_message(h->client.fd, &m) && raw_drain(&h->client);
        }
        raw_end(&h->client);
        pause_ms(PAUSE_MS);
    }
}

static uint64_t forged_word(hostile *h)
{
    switch (below(h, 5)) {
    case 0: return random_next(&h->seed);
    case 1: return GVMI_LEASE_WRITER;
    case 2: return GVMI_LEASE_READER * (1 + below(h, 40000));
    case 3: return UINT64_MAX;
    default: return 0;
    }
}

/* In its own page: writers where it may only read, leases in slots that are not open, anything. */
static void forge_words(hostile *h)
{
    const uint64_t one = 1;

    while (!over(h)) {
        bool open = begin(h) && open_some(h, 4) > 0;

        while (open && !over(h)) {
            gvmi_wire_message m;
            gvmi_lease_slot *slot =
                &h->client.leases[below(h, below(h, 8) == 0 ? GVM_OBJECTS_OPEN_MAX : 6)];

            atomic_store(&slot->word, forged_word(h));
            atomic_store(&slot->hint, (uint32_t)random_next(&h->seed));
            if (below(h, 4) == 0)
                (void)!write(h->client.doorbell, &one, sizeof one);
            gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, ++h->client.requests);
            m.body.ACQUIRE.slot = below(h, 4);
            m.body.ACQUIRE.mode = 1 + below(h, 2);
            m.body.ACQUIRE.timeout_ms = 10;
            open = (below(h, 4) > 0 || raw_say_message(h->client.fd, &m)) && raw_drain(&h->client);
            if (below(h, 20) == 0)
                pause_ms(below(h, 100));
        }
        raw_end(&h->client);
        pause_ms(PAUSE_MS);
    }
}

/* A writer in the words of objects that it opened read-only, for all of its time: it answers what it
 * is asked, so nothing else is wrong with it. */
static void forge_writer(hostile *h)
{
    bool open = begin(h) && open_some(h, POSITIONS) > 0;

    while (open && !over(h)) {
        for (unsigned i = 0; i < POSITIONS; i++)
            atomic_store(&h->client.leases[i].word, GVMI_LEASE_WRITER);
        open = raw_drain(&h->client);
        pause_ms(PAUSE_MS);
    }
    hold_on(h);
}

/* Opens, asks for a lease, and answers nothing from then on. */
static void answer_nothing(hostile *h)
{
    gvmi_wire_message m;

    if (!begin(h))
        return;
    h->client.silent = below(h, 2) == 0;
    (void)open_some(h, 4);
    h->client.silent = true;
    gvmi_wire_start(&m, GVMI_WIRE_ACQUIRE, ++h->client.requests);
    m.body.ACQUIRE.mode = GVM_LEASE_READ;
    m.body.ACQUIRE.timeout_ms = -1;
    (void)raw_say_message(h->client.fd, &m);
    if (below(h, 2) == 0) {
        hold_on(h);
        return;
    }
    while (!over(h) && raw_drain(&h->client)) /* it reads, at least */
        pause_ms(PAUSE_MS);
    hold_on(h);
}

/* Answers that nobody asked for, and ends while things are mapped. */
static void answer_in_disorder(hostile *h)
{
    static const gvmi_wire_type types[] = {GVMI_WIRE_MAPPED, GVMI_WIRE_UNMAPPED, GVMI_WIRE_TAKEN,
                                           GVMI_WIRE_CLOSE, GVMI_WIRE_BYE};

    while (!over(h)) {
        bool open = begin(h) && open_some(h, 2) > 0;

        h->client.silent = true;
        for (unsigned i = 0; i < 20 && open; i++) {
            const gvmi_wire_type type = types[below(h, i < 15 ? 4 : 5)];
            gvmi_wire_message m;

            do
                random_message(h, &m);
            while (m.head.type != type);
            if (has_reply(type))
                m.head.request = ++h->client.requests;
            open = raw_say_message(h->client.fd, &m) && raw_drain(&h->client);
            pause_ms(below(h, 3));
        }
        raw_end(&h->client);
    }
}

static void ring_doorbells(hostile *h)
{
    const uint64_t most = UINT64_MAX - 1;
    bool open = begin(h) && open_some(h, 4) > 0;

    while (open && !over(h)) {
        for (unsigned i = 0; i < STORM_RINGS; i++) {
            const uint64_t rings = i % 64 == 0 ? most : 1;
            uint64_t count;

            (void)fcntl(h->client.doorbell, F_SETFL, O_NONBLOCK);
            (void)!write(h->client.doorbell, &rings, sizeof rings);
            if (i % 16 == 0) /* and take what is the keeper's to read */
                (void)!read(h->client.doorbell, &count, sizeof count);
        }
        open = raw_drain(&h->client);
    }
}

static void keep_across_exec(const raw_client *c)
{
    const int fds[] = {c->fd, c->doorbell};

    for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++)
        (void)fcntl(fds[i], F_SETFD, 0);
    execlp("sleep", "sleep", "5", (char *)NULL);
    _exit(127);
}

/* Children that have the connection, too, by fork alone or by exec. They are killed with the group. */
static void fork_and_exec(hostile *h)
{
    while (!over(h)) {
        const bool open = begin(h) && open_some(h, 3) > 0;
        const pid_t pid = open && below(h, 3) > 0 ? fork() : -1;

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (below(h, 2) == 0)
                keep_across_exec(&h->client);
            (void)raw_drain(&h->client);
            pause_ms(below(h, 500));
            _exit(0);
        }
        if (pid < 0 && open && below(h, 4) == 0)
            keep_across_exec(&h->client); /* this very process: the act ends here */
        raw_end(&h->client);
        pause_ms(below(h, 300));
        if (pid > 0) {
            kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        }
    }
}

/* Descriptors beside messages that want none: a file's, the connection's own, the doorbell. */
static void send_descriptors(hostile *h)
{
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    while (!over(h)) {
        bool open = begin(h);

        for (unsigned i = 0; i < 50 && open; i++) {
            const int all[] = {null, h->client.fd, h->client.doorbell};
            gvmi_wire_message m;
            uint8_t bytes[sizeof m];

            random_message(h, &m);
            m.head.request = has_reply(m.head.type) ? ++h->client.requests : 0;
            open = raw_say_with_fds(h->client.fd, bytes, gvmi_wire_encode(&m, bytes),
                                    all[below(h, 3)], 1 + below(h, 200)) &&
                   raw_drain(&h->client);
        }
        raw_end(&h->client);
        pause_ms(PAUSE_MS);
    }
    close(null);
}

/* Objects with memory up to its quota, which move, grow and go: no offence, but a neighbour. */
static void use_memory(hostile *h)
{
    while (!over(h)) {
        bool open = begin(h);

        for (unsigned i = 0; i < 100 && open && !over(h); i++) {
            gvmi_wire_message m, reply;

            switch (below(h, 5)) {
            case 0: start_create(&m, 8 * CHUNK_BYTES, (1 + below(h, 4)) * CHUNK_BYTES); break;
            case 1:
                gvmi_wire_start(&m, GVMI_WIRE_GROW, 0);
                m.body.GROW.slot = below(h, 4);
                m.body.GROW.bytes = below(h, 9) * CHUNK_BYTES;
                break;
            case 2:
                gvmi_wire_start(&m, GVMI_WIRE_CLOSE, 0);
                m.body.CLOSE.slot = below(h, 4);
                break;
            case 3:
                gvmi_wire_start(&m, GVMI_WIRE_GET_INFO, 0);
                m.body.GET_INFO.slot = below(h, 4);
                break;
            default: gvmi_wire_start(&m, GVMI_WIRE_SNAPSHOT, 0); break;
            }
            open = raw_call(&h->client, &m, CALL_WAIT_MS, &reply);
            pause_ms(below(h, 5));
        }
        raw_end(&h->client);
    }
}

/* ---- */

#define NAME(name) #name,
const char *const hostile_act_names[ACT_COUNT] = {HOSTILE_ACTS(NAME)};
#undef NAME

int hostile_run(hostile_act act, uint64_t seed, uint64_t end_ns)
{
#define FUNCTION(name) name,
    static void (*const acts[])(hostile *) = {HOSTILE_ACTS(FUNCTION)};
#undef FUNCTION
    hostile h = {.seed = seed, .end_ns = end_ns};

    (void)setpriority(PRIO_PROCESS, 0, NICE);
    h.client.fd = h.client.doorbell = -1;
    acts[act](&h);
    return 0;
}
