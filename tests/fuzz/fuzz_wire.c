/* The keeper's message decoder under libFuzzer: any bytes at all must be refused, which leaves the
 * output as it was, or be a message that keeps the rules and packs into the same bytes again.
 *
 * Bytes are judged as one message, and as a stream that a receiver cuts into messages by their
 * heads. clang -fsanitize=fuzzer,address,undefined, or linked with replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <gvmem/buffer.h>

#include "keeper/protocol/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void want(bool condition)
{
    if (!condition)
        abort();
}

/* Rules that others build on, written down once more. */
static void check_rules(const gvmi_wire_message *m)
{
    const size_t count = m->head.tail_bytes / sizeof(gvmi_wire_chunk);
    size_t fds = 0;

    want(m->head.tail_bytes <= GVMI_WIRE_TAIL_BYTES_MAX && m->head.reserved == 0);
    switch ((gvmi_wire_type)m->head.type) {
    case GVMI_WIRE_CREATE:
        want(m->body.CREATE.name[0] == '\0' || gvmi_wire_check_name(m->body.CREATE.name) == GVM_OK);
        break;
    case GVMI_WIRE_OPEN: want(gvmi_wire_check_name(m->body.OPEN.name) == GVM_OK); break;
    case GVMI_WIRE_PUBLISH: want(gvmi_wire_check_name(m->body.PUBLISH.name) == GVM_OK); break;
    case GVMI_WIRE_DROP: want(gvmi_wire_check_name(m->body.DROP.name) == GVM_OK); break;
    case GVMI_WIRE_EVICT: want(gvmi_wire_check_name(m->body.EVICT.name) == GVM_OK); break;
    case GVMI_WIRE_ACQUIRE:
        want(m->body.ACQUIRE.slot < GVM_OBJECTS_OPEN_MAX && m->body.ACQUIRE.timeout_ms >= -1);
        break;
    case GVMI_WIRE_FAILED:
        want(memchr(m->body.FAILED.text, '\0', sizeof m->body.FAILED.text) != NULL);
        break;
    case GVMI_WIRE_MAP:
        want(count <= GVMI_WIRE_CHUNKS_MAX);
        for (size_t i = 0; i < count; i++) {
            want(i == 0 || m->tail.chunks[i].index > m->tail.chunks[i - 1].index);
            want(m->tail.chunks[i].tier <= GVM_TIER_HOST);
            fds += m->tail.chunks[i].tier != GVM_TIER_ABSENT;
        }
        want(m->head.fd_count == fds);
        break;
    default: break;
    }
}

/* True if it is a message. */
static bool judge(const uint8_t *data, size_t size, bool from_client)
{
    static gvmi_wire_message out, untouched;
    static uint8_t again[sizeof(gvmi_wire_message)];
    gvm_status status;

    memset(&out, 0xa7, sizeof out);
    memset(&untouched, 0xa7, sizeof untouched);
    status = gvmi_wire_decode(data, size, from_client, &out);
    if (status != GVM_OK) {
        want(status == GVM_E_FORMAT || status == GVM_E_VERSION);
        want(memcmp(&out, &untouched, sizeof out) == 0);
        return false;
    }
    want(gvmi_wire_check_head(&out.head, from_client) == GVM_OK);
    want(gvmi_wire_encode(&out, again) == size);
    want(memcmp(again, data, size) == 0);
    check_rules(&out);
    return true;
}

/* As a receiver reads: a head, then as many bytes as it says. */
static void judge_stream(const uint8_t *data, size_t size, bool from_client)
{
    gvmi_wire_head head;

    while (size >= sizeof head) {
        memcpy(&head, data, sizeof head);
        if (gvmi_wire_check_head(&head, from_client) != GVM_OK)
            return;
        want(head.bytes >= sizeof head && head.bytes <= sizeof(gvmi_wire_message));
        want(head.fd_count <= GVMI_WIRE_CHUNKS_MAX);
        if (head.bytes > size || !judge(data, head.bytes, from_client))
            return;
        data += head.bytes;
        size -= head.bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bool client = judge(data, size, true), keeper = judge(data, size, false);

    want(!client || !keeper); /* every type goes one way */
    judge_stream(data, size, true);
    judge_stream(data, size, false);
    return 0;
}
