/* sharing/descriptor.h - what a share looks like on the wire.
 *
 * A message is one gvmi_descriptor and, behind it, chunk_count gvmi_descriptor_chunk in rising
 * order of offset. Both are sent as they lie in memory: fixed widths, no padding, the machine's
 * byte order (fds do not leave the machine). The fds travel beside the chunks they belong to; see
 * message.c.
 *
 * A library that changes anything here raises the version. Magic, version and sizes stay first for
 * ever, so that every version can tell any other from garbage. A share has the lowest version that can say
 * what it says, so that older libraries take all that they understand:
 *
 *     1  chunks of one size
 *     2  the same bytes, of a buffer with graded ends (memory/layout.h): the flag GRADED is set
 *
 * The exporter is always the owner of the memory, whichever process passes the share on: the driver does not
 * export what was imported. So the shares of a buffer are its states at rising generations, and of
 * two shares of one generation both show the same.
 *
 * Offsets. The span is in the owner's buffer, the chunks are relative to the span.
 *
 * Stamps. The same offset may be backed by other memory later (decommit and commit, or a move there
 * and back). A chunk is stamped at its first export with the generation of that moment, so other
 * memory at an offset has another stamp.
 *
 * The functions here are pure: bytes in, verdict out. All of it comes from another process, so all
 * of it is checked before use.
 */
#ifndef GVMI_SHARING_DESCRIPTOR_H
#define GVMI_SHARING_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>

#include <gvmem/status.h>

#include "memory/layout.h"

#define GVMI_DESCRIPTOR_MAGIC "gvmshare" /* 8 bytes on the wire, without the NUL */
#define GVMI_DESCRIPTOR_VERSION 1u
#define GVMI_DESCRIPTOR_VERSION_GRADED 2u /* the highest that is known */
#define GVMI_DESCRIPTOR_START_BYTES 16   /* magic, version, sizes: what every version begins with */
#define GVMI_SHARE_CHUNKS_MAX (1u << 20) /* of one share; a process can map about half of that */

enum {
    GVMI_DESCRIPTOR_SEALED = 1 << 0,
    GVMI_DESCRIPTOR_GRADED = 1 << 1, /* in version 2, and always there */
};

typedef struct gvmi_descriptor {
    char magic[8];
    uint32_t version;
    uint16_t fixed_bytes;       /* sizeof(gvmi_descriptor) */
    uint16_t chunk_entry_bytes; /* sizeof(gvmi_descriptor_chunk) */
    uint32_t chunk_count;       /* and so many fds */
    uint32_t flags;             /* GVMI_DESCRIPTOR_... */
    uint8_t device_uuid[16];
    uint8_t buffer_id[16];
    uint64_t generation;
    uint64_t exporter_address;
    uint64_t reserve_bytes;
    uint64_t chunk_bytes;
    uint64_t span_offset_bytes;
    uint64_t span_len_bytes;
} gvmi_descriptor;

typedef struct gvmi_descriptor_chunk {
    uint64_t offset_bytes; /* from the start of the span */
    uint64_t stamp;        /* at most the share's generation */
    uint32_t tier;         /* gvm_tier, never absent */
    uint32_t reserved;     /* 0 */
} gvmi_descriptor_chunk;

_Static_assert(sizeof(gvmi_descriptor) == 104, "layout of the wire");
_Static_assert(offsetof(gvmi_descriptor, chunk_count) == GVMI_DESCRIPTOR_START_BYTES,
               "layout of the wire");
_Static_assert(offsetof(gvmi_descriptor, generation) == 56, "layout of the wire");
_Static_assert(sizeof(gvmi_descriptor_chunk) == 24, "layout of the wire");

/* All zeros but for magic, version and sizes. */
void gvmi_descriptor_init(gvmi_descriptor *out);

/* How the owner's buffer is cut into chunks. */
gvmi_layout gvmi_descriptor_layout(const gvmi_descriptor *about);

/* Judges the first GVMI_DESCRIPTOR_START_BYTES of a message, so that a receiver knows how much more
 * to read.
 *
 * GVM_E_FORMAT, GVM_E_VERSION */
gvm_status gvmi_descriptor_decode_start(const void *bytes, size_t len);

/* Copies the fixed part out of a message and judges it; len must be that of the fixed part. out is
 * written on success only.
 *
 * GVM_E_FORMAT, GVM_E_VERSION */
gvm_status gvmi_descriptor_decode(const void *bytes, size_t len, gvmi_descriptor *out);

/* Judges count chunks against the fixed part, which was decoded before. Chunks may be judged in
 * pieces: floor_bytes is the lowest offset that the next chunk may have, 0 at first.
 *
 * GVM_E_FORMAT */
gvm_status gvmi_descriptor_check_chunks(const gvmi_descriptor *about,
                                        const gvmi_descriptor_chunk *chunks, uint32_t count,
                                        uint64_t *floor_bytes);

#endif
