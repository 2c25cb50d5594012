/* One valid message of every type. */
#include "tests/fuzz/wire_samples.h"
#include "tests/lib/units.h"

#include <stdlib.h>
#include <string.h>

#include <gvmem/buffer.h>

static void fill_client(gvmi_wire_message *m)
{
    switch ((gvmi_wire_type)m->head.type) {
    case GVMI_WIRE_HELLO:
        m->body.HELLO = (gvmi_wire_hello){GVMI_WIRE_MAGIC, GVMI_WIRE_VERSION, 0};
        break;
    case GVMI_WIRE_CREATE:
        m->body.CREATE = (gvmi_wire_create){{1, 2, 3}, 64 * MIB,        2 * MIB,  5 * MIB,
                                            0640,      GVM_OBJECT_KEEP, "/a b/c~"};
        m->head.tail_bytes = 5;
        memcpy(m->tail.bytes, "meta", 5);
        break;
    case GVMI_WIRE_OPEN:
        m->body.OPEN = (gvmi_wire_open){GVM_OPEN_READONLY | GVM_OPEN_SAME_ADDRESS, 0, "/prices/2026"};
        break;
    case GVMI_WIRE_GROW: m->body.GROW = (gvmi_wire_grow){GVM_OBJECTS_OPEN_MAX - 1, 0, 7}; break;
    case GVMI_WIRE_SHRINK: m->body.SHRINK = (gvmi_wire_grow){1, 0, UINT64_MAX}; break;
    case GVMI_WIRE_SEAL: m->body.SEAL = (gvmi_wire_seal){3, -1}; break;
    case GVMI_WIRE_PUBLISH:
        m->body.PUBLISH = (gvmi_wire_publish){4, GVM_PUBLISH_REPLACE, "/x"};
        break;
    case GVMI_WIRE_LINK: m->body.LINK = (gvmi_wire_link){4, 0444, 3 * MIB, "/further"}; break;
    case GVMI_WIRE_UNLINK:
    case GVMI_WIRE_DROP: m->body.DROP = (gvmi_wire_name){"/dropped"}; break;
    case GVMI_WIRE_SET_MODE: m->body.SET_MODE = (gvmi_wire_slot_value){5, 0777}; break;
    case GVMI_WIRE_SET_METADATA:
        m->body.SET_METADATA.slot = 6;
        m->head.tail_bytes = GVM_METADATA_BYTES_MAX;
        memset(m->tail.bytes, 0xa5, GVM_METADATA_BYTES_MAX);
        break;
    case GVMI_WIRE_ACQUIRE:
        m->body.ACQUIRE = (gvmi_wire_acquire){7,   GVM_LEASE_WRITE, GVM_HINT_ONCE,
                                              250, GVM_ACQUIRE_CPU, 0};
        break;
    case GVMI_WIRE_TAKEN: m->body.TAKEN = (gvmi_wire_taken){8, GVM_LEASE_READ}; break;
    case GVMI_WIRE_MAPPED:
        m->body.MAPPED = (gvmi_wire_mapped){9, GVM_E_NOMEM, 1ull << 40, 0x7f0000000000};
        break;
    case GVMI_WIRE_UNMAPPED: m->body.UNMAPPED = (gvmi_wire_unmapped){9, 0, 1ull << 40}; break;
    case GVMI_WIRE_EVICT: m->body.EVICT = (gvmi_wire_name_value){UINT64_MAX, "/cold"}; break;
    case GVMI_WIRE_LIST_CHUNKS: m->body.LIST_CHUNKS = (gvmi_wire_name_value){4096, "/cold"}; break;
    case GVMI_WIRE_TRIM: m->body.TRIM = (gvmi_wire_trim){UINT32_MAX, 0, 77}; break;
    case GVMI_WIRE_SET_QUOTA: m->body.SET_QUOTA = (gvmi_wire_quota){1000, 0, UINT64_MAX}; break;
    case GVMI_WIRE_GET_METADATA:
    case GVMI_WIRE_CLOSE:
    case GVMI_WIRE_GET_INFO: m->body.CLOSE.slot = 10; break;
    default: break; /* SNAPSHOT, SNAPSHOT_READ and BYE have nothing to say */
    }
}

static void fill_map(gvmi_wire_message *m)
{
    m->body.MAP = (gvmi_wire_map){11, 12, 13, 14 * MIB, 1, 0};
    m->head.tail_bytes = 4 * (uint32_t)sizeof(gvmi_wire_chunk);
    m->head.fd_count = 3; /* an absent chunk has none */
    m->tail.chunks[0] = (gvmi_wire_chunk){0, GVM_TIER_DEVICE, 21};
    m->tail.chunks[1] = (gvmi_wire_chunk){5, GVM_TIER_HOST, 20};
    m->tail.chunks[2] = (gvmi_wire_chunk){6, GVM_TIER_ABSENT, 0};
    m->tail.chunks[3] = (gvmi_wire_chunk){UINT32_MAX, GVM_TIER_DEVICE, UINT64_MAX};
}

static void fill_keeper(gvmi_wire_message *m)
{
    switch ((gvmi_wire_type)m->head.type) {
    case GVMI_WIRE_WELCOME:
        m->body.WELCOME = (gvmi_wire_welcome){
            GVMI_WIRE_MAGIC, GVMI_WIRE_VERSION, 4711, 42, GVM_OBJECTS_OPEN_MAX, 0};
        m->head.fd_count = 3;
        break;
    case GVMI_WIRE_OPENED:
        m->body.OPENED = (gvmi_wire_opened){.slot = 1,
                                            .generation = 2,
                                            .id = 3,
                                            .device_uuid = {4},
                                            .reserve_bytes = 64 * MIB,
                                            .chunk_bytes = 4 * MIB,
                                            .bytes = 64 * MIB,
                                            .home_address = 0x7f0000200000,
                                            .open_flags = GVM_OPEN_READONLY,
                                            .sealed = 1};
        break;
    case GVMI_WIRE_MAP: fill_map(m); break;
    case GVMI_WIRE_GRANTED: m->body.GRANTED.slot = GVM_OBJECTS_OPEN_MAX - 1; break;
    case GVMI_WIRE_DONE: m->body.DONE.value = UINT64_MAX; break;
    case GVMI_WIRE_FAILED:
        m->body.FAILED = (gvmi_wire_failed){GVM_E_QUOTA, "the quota is spent: 1 GiB", 0};
        break;
    case GVMI_WIRE_METADATA:
        m->head.tail_bytes = 3;
        memcpy(m->tail.bytes, "\0\1", 3);
        break;
    case GVMI_WIRE_INFO:
        m->body.INFO.info = (gvmi_snapshot_object){.name = "/sales/q3",
                                                   .id = 9,
                                                   .size_bytes = 8 * MIB,
                                                   .reserve_bytes = 8 * MIB,
                                                   .mode = 0604,
                                                   .device = -1,
                                                   .metadata_bytes = 8,
                                                   .metadata_start = "about it",
                                                   .sealed = 1,
                                                   .moving = 1};
        break;
    case GVMI_WIRE_SNAPSHOT_IS:
        m->body.SNAPSHOT_IS.value = 123456;
        m->head.fd_count = 1;
        break;
    case GVMI_WIRE_CHUNK_STATES:
        m->body.CHUNK_STATES.value = 8;
        m->head.tail_bytes = 3;
        memcpy(m->tail.bytes, "\1\3\6", 3);
        break;
    default: abort(); /* a type without a sample */
    }
}

void wire_sample(gvmi_wire_type type, gvmi_wire_message *out)
{
    const bool unnumbered = type == GVMI_WIRE_TAKEN || type == GVMI_WIRE_MAPPED ||
                            type == GVMI_WIRE_UNMAPPED || type == GVMI_WIRE_BYE ||
                            type == GVMI_WIRE_SNAPSHOT_READ || type == GVMI_WIRE_MAP;

    gvmi_wire_start(out, type, unnumbered ? 0 : 0x1122334455667788);
    if (type < GVMI_WIRE_WELCOME)
        fill_client(out);
    else
        fill_keeper(out);
}
