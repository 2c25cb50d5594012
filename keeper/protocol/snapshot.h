/* keeper/protocol/snapshot.h - the bytes of a snapshot's memfd: a head, then the records, each as large as
 * the head says, so that a client and a keeper of different versions read what both know.
 *
 * The memfd cannot be written. It is to be read, not mapped: the keeper truncates it to 0 bytes once the
 * client has sent SNAPSHOT_READ, or when the connection ends. */
#ifndef GVMI_KEEPER_PROTOCOL_SNAPSHOT_H
#define GVMI_KEEPER_PROTOCOL_SNAPSHOT_H

#include <gvmem/client.h>

#define GVMI_SNAPSHOT_MAGIC 0x746f687370616e73ull /* "snapshot" */

typedef struct gvmi_snapshot_head {
    uint64_t magic;
    uint32_t head_bytes, keeper_bytes, device_bytes, object_bytes, client_bytes;
    uint32_t device_count, object_count, client_count; /* the records follow in this order */
    uint32_t reserved;
} gvmi_snapshot_head;

#endif
