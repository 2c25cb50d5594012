/* keeper/protocol/snapshot.h - the bytes of a snapshot's memfd: a head, then the records, each as large as
 * the head says, so that a client and a keeper of different versions read what both know. A record grows at
 * its end; what one side does not know is zeros, or left out.
 *
 * The memfd cannot be written. It is to be read, not mapped: the keeper truncates it to 0 bytes once the
 * client has sent SNAPSHOT_READ, or when the connection ends. */
#ifndef GVMI_KEEPER_PROTOCOL_SNAPSHOT_H
#define GVMI_KEEPER_PROTOCOL_SNAPSHOT_H

#include <stdint.h>

#define GVMI_SNAPSHOT_MAGIC 0x746f687370616e73ull /* "snapshot" */
#define GVMI_SNAPSHOT_NAME_BYTES 256              /* of an object, with the NUL */
#define GVMI_SNAPSHOT_METADATA_BYTES 64           /* of an object, from the start */

typedef struct gvmi_snapshot_head {
    uint64_t magic;
    uint32_t head_bytes, keeper_bytes, device_bytes, object_bytes, client_bytes;
    uint32_t device_count, object_count, client_count, user_count; /* the records follow in this order */
    uint32_t user_bytes;
} gvmi_snapshot_head;

/* Members mean what those of the same name mean in gvm_keeper_info and the others of gvmem/client.h. */
typedef struct gvmi_snapshot_keeper {
    uint64_t pid, uptime_ms;
    uint64_t host_budget_bytes, host_used_bytes, host_free_bytes;
    uint64_t acquires, slow_acquires, revokes, timeouts, cut_offs, interrupted;
    uint64_t messages, faults;
    uint32_t devices, objects, clients, users;
} gvmi_snapshot_keeper;

typedef struct gvmi_snapshot_device {
    uint8_t uuid[16];
    char name[96];
    int32_t ordinal;
    uint32_t objects;
    uint64_t budget_bytes, resident_bytes, free_bytes;
    uint64_t leased_bytes, dirty_bytes, held_bytes, host_backed_bytes;
    uint64_t evictions, promotions, evicted_bytes, promoted_bytes;
    uint64_t driver_free_bytes, driver_total_bytes;
    uint64_t lent_bytes;
} gvmi_snapshot_device;

/* Also what INFO has. */
typedef struct gvmi_snapshot_object {
    char name[GVMI_SNAPSHOT_NAME_BYTES];
    uint64_t id;
    uint64_t size_bytes, reserve_bytes, chunk_bytes;
    uint64_t device_bytes, host_bytes, duplicate_bytes, dirty_bytes;
    uint64_t generation;
    uint64_t acquires, evicted_bytes, promoted_bytes;
    uint32_t owner_uid, owner_gid, mode;
    uint32_t openings, read_leases, write_leases, waiting, interrupted;
    int32_t device;
    uint32_t metadata_bytes;
    uint8_t sealed, kept, moving, untracked, fenced, foreign;
    uint8_t reserved[2];
    uint8_t metadata_start[GVMI_SNAPSHOT_METADATA_BYTES]; /* zeros behind its end */
    uint64_t lent_bytes;
} gvmi_snapshot_object;

typedef struct gvmi_snapshot_client {
    uint64_t id;
    int32_t pid;
    uint32_t uid, gid;
    uint32_t objects_open;
    uint64_t committed_bytes, acquires, held_bytes;
    uint32_t read_leases, write_leases;
    uint8_t cut_off, reserved[7];
} gvmi_snapshot_client;

typedef struct gvmi_snapshot_user {
    uint32_t uid, reserved;
    uint64_t quota_bytes, committed_bytes, held_bytes;
} gvmi_snapshot_user;

#endif
