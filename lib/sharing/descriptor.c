/* Judging what another process says of its memory; see descriptor.h. */
#include "sharing/descriptor.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/buffer.h"

void gvmi_descriptor_init(gvmi_descriptor *out)
{
    *out = (gvmi_descriptor){
        .version = GVMI_DESCRIPTOR_VERSION,
        .fixed_bytes = sizeof(gvmi_descriptor),
        .chunk_entry_bytes = sizeof(gvmi_descriptor_chunk),
    };
    memcpy(out->magic, GVMI_DESCRIPTOR_MAGIC, sizeof out->magic);
}

gvm_status gvmi_descriptor_decode_start(const void *bytes, size_t len)
{
    gvmi_descriptor start;

    if (!GVM_CHECK(len >= GVMI_DESCRIPTOR_START_BYTES))
        return gvm_error_set(GVM_E_FORMAT, "the share is cut short: %zu bytes of %d", len,
                             GVMI_DESCRIPTOR_START_BYTES);
    memcpy(&start, bytes, GVMI_DESCRIPTOR_START_BYTES);
    if (!GVM_CHECK(memcmp(start.magic, GVMI_DESCRIPTOR_MAGIC, sizeof start.magic) == 0))
        return gvm_error_set(
            GVM_E_FORMAT,
            "what came is no share: check that both sides send and receive in the same order");
    if (!GVM_CHECK(start.version == GVMI_DESCRIPTOR_VERSION ||
                   start.version == GVMI_DESCRIPTOR_VERSION_GRADED))
        return gvm_error_set(
            GVM_E_VERSION,
            "the share is of version %u, this library knows versions up to %u: update the older",
            start.version, GVMI_DESCRIPTOR_VERSION_GRADED);
    if (!GVM_CHECK(start.fixed_bytes == sizeof(gvmi_descriptor) &&
                   start.chunk_entry_bytes == sizeof(gvmi_descriptor_chunk)))
        return gvm_error_set(GVM_E_FORMAT,
                             "the share is malformed: its parts are of %u and %u bytes, not %zu and %zu",
                             start.fixed_bytes, start.chunk_entry_bytes, sizeof(gvmi_descriptor),
                             sizeof(gvmi_descriptor_chunk));
    return GVM_OK;
}

static gvm_status fail_malformed_share(const char *member, uint64_t value)
{
    return gvm_error_set(GVM_E_FORMAT, "the share is malformed: %s is %#" PRIx64, member, value);
}

/* Returns from the function around it. */
#define WANT(object, member, condition) \
    do { \
        if (!GVM_CHECK(condition)) \
            return fail_malformed_share(#member, (object)->member); \
    } while (0)

gvmi_layout gvmi_descriptor_layout(const gvmi_descriptor *about)
{
    return (gvmi_layout){
        .chunk_bytes = about->chunk_bytes,
        .graded_bytes = (about->flags & GVMI_DESCRIPTOR_GRADED) != 0 ? about->reserve_bytes : 0,
    };
}

/* After the first two groups no sum or product of members overflows: each is far below 2^63. */
static gvm_status check_descriptor_sizes(const gvmi_descriptor *d)
{
    const gvmi_layout layout = gvmi_descriptor_layout(d);
    uint64_t span_end;

    WANT(d, chunk_bytes, gvmi_is_pow2(d->chunk_bytes));
    WANT(d, chunk_bytes,
         d->chunk_bytes >= GVM_CHUNK_BYTES_MIN && d->chunk_bytes <= GVM_CHUNK_BYTES_MAX);
    WANT(d, reserve_bytes, d->reserve_bytes > 0 && d->reserve_bytes <= GVMI_SPAN_BYTES_MAX);
    WANT(d, reserve_bytes, d->reserve_bytes % d->chunk_bytes == 0);
    WANT(d, reserve_bytes,
         layout.graded_bytes == 0 || gvmi_layout_can_grade(d->reserve_bytes, d->chunk_bytes));
    WANT(d, exporter_address,
         d->exporter_address > 0 && d->exporter_address % GVM_CHUNK_BYTES_MIN == 0);
    WANT(d, exporter_address, d->exporter_address <= UINT64_MAX - d->reserve_bytes);

    WANT(d, span_len_bytes, d->span_len_bytes > 0);
    WANT(d, span_offset_bytes,
         gvmi_range_within(d->span_offset_bytes, d->span_len_bytes, d->reserve_bytes));
    span_end = d->span_offset_bytes + d->span_len_bytes;
    WANT(d, span_offset_bytes, gvmi_layout_is_edge(&layout, d->span_offset_bytes));
    WANT(d, span_len_bytes, gvmi_layout_is_edge(&layout, span_end));
    WANT(d, chunk_count, d->chunk_count > 0 && d->chunk_count <= GVMI_SHARE_CHUNKS_MAX);
    WANT(d, chunk_count,
         d->chunk_count <=
             gvmi_layout_at(&layout, span_end) - gvmi_layout_at(&layout, d->span_offset_bytes));
    return GVM_OK;
}

gvm_status gvmi_descriptor_decode(const void *bytes, size_t len, gvmi_descriptor *out)
{
    gvm_status status = gvmi_descriptor_decode_start(bytes, len);
    gvmi_descriptor copy;
    const gvmi_descriptor *d = &copy;

    if (status != GVM_OK)
        return status;
    if (!GVM_CHECK(len == sizeof copy))
        return gvm_error_set(GVM_E_FORMAT, "the share is cut short: %zu bytes of %zu", len,
                             sizeof copy);
    memcpy(&copy, bytes, sizeof copy);
    WANT(d, flags, (d->flags & ~(uint32_t)(GVMI_DESCRIPTOR_SEALED | GVMI_DESCRIPTOR_GRADED)) == 0);
    WANT(d, flags,
         ((d->flags & GVMI_DESCRIPTOR_GRADED) != 0) == (d->version == GVMI_DESCRIPTOR_VERSION_GRADED));
    status = check_descriptor_sizes(d);
    if (status == GVM_OK)
        *out = copy;
    return status;
}

gvm_status gvmi_descriptor_check_chunks(const gvmi_descriptor *about,
                                        const gvmi_descriptor_chunk *chunks, uint32_t count,
                                        uint64_t *floor_bytes)
{
    const gvmi_layout layout = gvmi_descriptor_layout(about);

    for (const gvmi_descriptor_chunk *c = chunks; c < chunks + count; c++) {
        const uint64_t at = about->span_offset_bytes + c->offset_bytes;

        WANT(c, offset_bytes, c->offset_bytes >= *floor_bytes);
        WANT(c, offset_bytes, c->offset_bytes < about->span_len_bytes);
        WANT(c, offset_bytes, gvmi_layout_is_edge(&layout, at));
        WANT(c, stamp, c->stamp <= about->generation);
        WANT(c, tier, c->tier == GVM_TIER_DEVICE || c->tier == GVM_TIER_HOST);
        WANT(c, reserved, c->reserved == 0);
        *floor_bytes = c->offset_bytes + gvmi_layout_size(&layout, gvmi_layout_at(&layout, at));
    }
    return GVM_OK;
}
