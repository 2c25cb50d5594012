/* The share object: life and questions; see share.h. */
#include "sharing/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/struct.h"

gvm_status gvmi_share_new(gvm_share **out)
{
    gvm_share *share = calloc(1, sizeof *share);

    if (share == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a share");
    *out = share;
    return GVM_OK;
}

gvm_status gvmi_share_grow(gvm_share *share, uint32_t capacity)
{
    gvmi_descriptor_chunk *chunks = realloc(share->chunks, capacity * sizeof *chunks);
    int *fds;

    if (chunks != NULL)
        share->chunks = chunks;
    fds = chunks != NULL ? realloc(share->fds, capacity * sizeof *fds) : NULL;
    if (fds == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a share of %u chunks", capacity);
    share->fds = fds;
    share->capacity = capacity;
    return GVM_OK;
}

void gvmi_share_free(gvm_share *share)
{
    for (uint32_t i = 0; i < share->count; i++)
        close(share->fds[i]);
    free(share->fds);
    free(share->chunks);
    gvmi_registry_retire(share);
}

gvm_status gvmi_share_publish(gvm_share *share, gvm_share **out)
{
    gvm_status status = gvmi_registry_add(GVMI_KIND_SHARE, gvmi_key(share), share);

    GVM_ASSERT(share->count == share->about.chunk_count);
    if (status == GVM_OK)
        *out = share;
    else
        gvmi_share_free(share);
    return status;
}

gvm_status gvmi_share_hold(const gvm_share *handle, gvm_share **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_SHARE, gvmi_key(handle), &object);

    *out = object;
    return status;
}

void gvmi_share_drop(gvm_share *share)
{
    gvmi_registry_drop(GVMI_KIND_SHARE, gvmi_key(share));
}

void gvm_share_destroy(gvm_share *share)
{
    GVMI_UNCANCELLED;
    void *object;

    if (share != NULL && gvmi_registry_remove(GVMI_KIND_SHARE, gvmi_key(share), &object) == GVM_OK)
        gvmi_share_free(object);
}

static uint64_t committed_bytes(const gvm_share *share)
{
    const gvmi_layout layout = gvmi_descriptor_layout(&share->about);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < share->count; i++)
        bytes += gvmi_layout_size(&layout, gvmi_layout_at(&layout, share->about.span_offset_bytes +
                                                                       share->chunks[i].offset_bytes));
    return bytes;
}

gvm_status gvm_share_get_info(const gvm_share *handle, gvm_share_info *info)
{
    GVMI_UNCANCELLED;
    gvm_share *share;
    gvm_status status = gvmi_share_hold(handle, &share);
    const gvmi_descriptor *about;
    gvm_share_info full;

    if (status != GVM_OK)
        return status;
    about = &share->about;
    full = (gvm_share_info){
        .generation = about->generation,
        .exporter_address = gvmi_pointer(about->exporter_address),
        .reserve_bytes = about->reserve_bytes,
        .chunk_bytes = about->chunk_bytes,
        .span_offset_bytes = about->span_offset_bytes,
        .span_len_bytes = about->span_len_bytes,
        .committed_bytes = committed_bytes(share),
        .chunk_count = about->chunk_count,
        .sealed = (about->flags & GVMI_DESCRIPTOR_SEALED) != 0,
    };
    memcpy(full.device_uuid, about->device_uuid, sizeof full.device_uuid);
    memcpy(full.buffer_id, about->buffer_id, sizeof full.buffer_id);
    gvmi_share_drop(share);
    if (!gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

gvm_status gvmi_share_fail_fds(CUresult result, const char *call, uint32_t fds_wanted)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_NOFILE, &limit);
    return gvmi_driver_fail_as(
        GVM_E_LIMIT, result, call,
        "the share needs %u fds and this process may have %llu in all: raise ulimit -n, share parts, or "
        "use larger chunks",
        fds_wanted, (unsigned long long)limit.rlim_cur);
}

char *gvmi_uuid_text(const uint8_t uuid[16], char out[GVMI_UUID_TEXT_BYTES])
{
    size_t len = (size_t)snprintf(out, GVMI_UUID_TEXT_BYTES, "GPU");

    for (int i = 0; i < 16; i++) {
        const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;

        len += (size_t)snprintf(out + len, GVMI_UUID_TEXT_BYTES - len, dash ? "-%02x" : "%02x",
                                uuid[i]);
    }
    return out;
}
