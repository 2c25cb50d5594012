/* Processes that keep to the format of messages, and to nothing else. They ask for what they may
 * not, answer what was not asked, and scribble over their own lease words. None of it may hurt
 * anybody else; what they ask for by the rules counts as anybody's. */
#include "tests/prop/keeper_simulation.h"

#include <string.h>

#define PENDING_MAX 40

static uint32_t any_slot(simulation *w, const process *p)
{
    if (sim_chance(w, 8))
        return (uint32_t)sim_random(w, GVM_OBJECTS_OPEN_MAX);
    return (uint32_t)sim_random(w, p->slot_end + 1);
}

static void say_unmapped(simulation *w, process *p, uint32_t slot, uint64_t serial)
{
    gvmi_wire_message *m = sim_message(w, p, GVMI_WIRE_UNMAPPED);

    m->body.UNMAPPED = (gvmi_wire_unmapped){.slot = slot, .serial = serial};
    sim_send(w, p, m);
}

static void answer(simulation *w, process *p, const gvmi_wire_message *m)
{
    gvmi_wire_message *reply;
    const uint32_t slot = m->body.CLOSE.slot;

    if (m->head.type == GVMI_WIRE_MAP)
        for (uint64_t times = sim_random(w, 3); times > 0; times--)
            say_unmapped(w, p, slot, m->body.MAP.serial);
    if (sim_chance(w, 10))
        return;
    if (m->head.type == GVMI_WIRE_GRANTED) {
        if (sim_chance(w, 70))
            atomic_fetch_add(&p->leases[slot].word, GVMI_LEASE_READER + GVMI_LEASE_COUNTED);
        reply = sim_message(w, p, GVMI_WIRE_TAKEN);
        reply->body.TAKEN = (gvmi_wire_taken){.slot = slot, .mode = 1 + (uint32_t)sim_random(w, 2)};
    } else {
        reply = sim_message(w, p, GVMI_WIRE_MAPPED);
        reply->body.MAPPED.slot = slot;
        reply->body.MAPPED.serial = m->head.type == GVMI_WIRE_MAP ? m->body.MAP.serial : 0;
        reply->body.MAPPED.status = sim_chance(w, 90) ? GVM_OK : GVM_E_LIMIT;
        reply->body.MAPPED.address = 4096;
    }
    sim_send(w, p, reply);
}

static const gvmi_wire_type types[] = {
    GVMI_WIRE_HELLO,        GVMI_WIRE_CREATE,        GVMI_WIRE_CREATE,   GVMI_WIRE_OPEN,
    GVMI_WIRE_OPEN,         GVMI_WIRE_GROW,          GVMI_WIRE_GROW,     GVMI_WIRE_SEAL,
    GVMI_WIRE_PUBLISH,      GVMI_WIRE_DROP,          GVMI_WIRE_SET_MODE, GVMI_WIRE_ACQUIRE,
    GVMI_WIRE_ACQUIRE,      GVMI_WIRE_ACQUIRE,       GVMI_WIRE_TAKEN,    GVMI_WIRE_MAPPED,
    GVMI_WIRE_CLOSE,        GVMI_WIRE_CLOSE,         GVMI_WIRE_SNAPSHOT, GVMI_WIRE_GET_INFO,
    GVMI_WIRE_GET_METADATA, GVMI_WIRE_EVICT,         GVMI_WIRE_TRIM,     GVMI_WIRE_SET_QUOTA,
    GVMI_WIRE_UNMAPPED,     GVMI_WIRE_SNAPSHOT_READ, GVMI_WIRE_SHRINK,   GVMI_WIRE_LIST_CHUNKS};

static void fill_named(simulation *w, gvmi_wire_message *m)
{
    const char *name = keeper_names[sim_random(w, NAMES)];

    switch (m->head.type) {
    case GVMI_WIRE_HELLO:
        m->body.HELLO = (gvmi_wire_hello){.magic = GVMI_WIRE_MAGIC, .version = GVMI_WIRE_VERSION};
        break;
    case GVMI_WIRE_CREATE:
        memcpy(m->body.CREATE.device_uuid, w->config.devices[0].uuid, 16);
        m->body.CREATE.chunk_bytes = 2 * MIB;
        m->body.CREATE.reserve_bytes = (1 + sim_random(w, 8)) * 2 * MIB;
        m->body.CREATE.bytes = sim_random(w, m->body.CREATE.reserve_bytes + 2);
        m->body.CREATE.mode = (uint32_t)sim_random(w, 01000);
        if (sim_chance(w, 70))
            strcpy(m->body.CREATE.name, name);
        break;
    case GVMI_WIRE_OPEN:
        m->body.OPEN.flags = (uint32_t)sim_random(w, 4);
        strcpy(m->body.OPEN.name, name);
        break;
    case GVMI_WIRE_PUBLISH:
        m->body.PUBLISH.flags = (uint32_t)sim_random(w, 2);
        strcpy(m->body.PUBLISH.name, name);
        break;
    case GVMI_WIRE_DROP: strcpy(m->body.DROP.name, name); break;
    case GVMI_WIRE_LIST_CHUNKS: /* the same layout */
    case GVMI_WIRE_EVICT:
        m->body.EVICT.value = sim_random(w, 20 * MIB);
        strcpy(m->body.EVICT.name, name);
        break;
    default: break;
    }
}

static void fill_numbers(simulation *w, const process *p, gvmi_wire_message *m)
{
    const uint32_t slot = any_slot(w, p);

    switch (m->head.type) {
    case GVMI_WIRE_GROW:
    case GVMI_WIRE_SHRINK:
        m->body.GROW = (gvmi_wire_grow){.slot = slot, .bytes = sim_random(w, 24 * MIB)};
        break;
    case GVMI_WIRE_SEAL:
        m->body.SEAL = (gvmi_wire_seal){slot, (int32_t)sim_random(w, 20) - 1};
        break;
    case GVMI_WIRE_SET_MODE:
        m->body.SET_MODE = (gvmi_wire_slot_value){slot, (uint32_t)sim_random(w, 01000)};
        break;
    case GVMI_WIRE_ACQUIRE:
        m->body.ACQUIRE = (gvmi_wire_acquire){slot,
                                              1 + (uint32_t)sim_random(w, 2),
                                              (uint32_t)sim_random(w, 4),
                                              (int32_t)sim_random(w, 20) - 1,
                                              (uint32_t)sim_random(w, 3),
                                              0};
        break;
    case GVMI_WIRE_TAKEN:
        m->body.TAKEN = (gvmi_wire_taken){slot, 1 + (uint32_t)sim_random(w, 2)};
        break;
    case GVMI_WIRE_MAPPED:
        m->body.MAPPED = (gvmi_wire_mapped){slot, sim_chance(w, 70) ? GVM_OK : GVM_E_LIMIT,
                                            sim_random(w, 8), 4096};
        break;
    case GVMI_WIRE_UNMAPPED:
        m->body.UNMAPPED = (gvmi_wire_unmapped){.slot = slot, .serial = 1 + sim_random(w, 8)};
        break;
    case GVMI_WIRE_CLOSE:
    case GVMI_WIRE_GET_INFO:
    case GVMI_WIRE_GET_METADATA: m->body.CLOSE.slot = slot; break;
    case GVMI_WIRE_PUBLISH: m->body.PUBLISH.slot = slot; break;
    case GVMI_WIRE_TRIM:
        m->body.TRIM = (gvmi_wire_trim){.device = (uint32_t)sim_random(w, 5),
                                        .keep_bytes = sim_random(w, 8 * MIB)};
        break;
    case GVMI_WIRE_SET_QUOTA:
        m->body.SET_QUOTA = (gvmi_wire_quota){.uid = 1003, .bytes = 4 * MIB};
        break;
    default: break;
    }
}

bool abuse_step(simulation *w, process *p)
{
    const uint64_t ticket = sim_random(w, 100);
    packet *came;
    gvmi_wire_message *m;

    if (p->hung_up || p->gone || w->quiet)
        return false;
    if ((came = sim_receive(w, p)) != NULL) {
        if (came->message != NULL && (came->message->head.type == GVMI_WIRE_MAP ||
                                      came->message->head.type == GVMI_WIRE_OPENED ||
                                      came->message->head.type == GVMI_WIRE_GRANTED))
            answer(w, p, came->message);
        sim_packet_free(w, came);
        return true;
    }
    if (p->request_count > PENDING_MAX || p->cut)
        return false;
    if (ticket < 15) {
        atomic_store(&p->leases[any_slot(w, p)].word,
                     sim_chance(w, 50) ? 0 : sim_random(w, UINT64_MAX));
        atomic_store(&p->leases[any_slot(w, p)].hint, (uint32_t)sim_random(w, 9));
        return true;
    }
    if (ticket < 25) {
        p->rung = true;
        return true;
    }
    if (p->out.first != NULL) /* what was sent is read first, so that requests do not pile up */
        return false;
    m = sim_message(w, p, types[sim_random(w, p->welcome ? sizeof types / sizeof types[0] : 1)]);
    if (p->welcome && m->head.type == GVMI_WIRE_HELLO && sim_chance(w, 90)) {
        memset(&m->body, 0, sizeof m->body);
        m->head.type = GVMI_WIRE_SNAPSHOT;
    }
    fill_named(w, m);
    fill_numbers(w, p, m);
    if (sim_chance(w, 1))
        m->head.type = 0;
    sim_send(w, p, m);
    return true;
}
