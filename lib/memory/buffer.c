/* Buffers: creation, questions, end. */
#include "memory/buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "memory/idle.h"

/* The chunk size that is left to us: about CHUNKS_WANTED make up the reservation, so that little is
 * wasted at the ends, but none is larger than the driver gains by: from there on a copy within the
 * device runs at full speed (5 % slower over chunks of 4 MiB, docs/benchmarks.md), and a buffer
 * that reserves far more than it uses should not have to commit a gigabyte at a time. */
#define CHUNKS_WANTED 16
#define CHUNK_BYTES_CHOSEN_MAX (64ull << 20)

/* ---- creation */

static uint64_t choose_buffer_chunk_bytes(uint64_t reserve_bytes)
{
    uint64_t chunk_bytes = gvmi_pow2_up(reserve_bytes / CHUNKS_WANTED);

    return gvmi_min(gvmi_max(chunk_bytes, GVM_CHUNK_BYTES_MIN), CHUNK_BYTES_CHOSEN_MAX);
}

static gvm_status check_spec(const gvm_device *device, const gvmi_buffer_spec *spec,
                             uint64_t *chunk_bytes)
{
    char size[32];

    if (spec->reserve_bytes == 0 || spec->reserve_bytes > GVMI_SPAN_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "a buffer reserves between 1 byte and 128 TiB, not %s",
                             gvmi_size_text(spec->reserve_bytes, size));
    *chunk_bytes = spec->chunk_bytes != 0 ? spec->chunk_bytes
                                          : choose_buffer_chunk_bytes(spec->reserve_bytes);
    if (!gvmi_is_pow2(*chunk_bytes) || *chunk_bytes < GVM_CHUNK_BYTES_MIN ||
        *chunk_bytes > GVM_CHUNK_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "a chunk is a power of two from 2 MiB to 1 GiB, not %s",
                             gvmi_size_text(*chunk_bytes, size));
    if (*chunk_bytes < device->info.granularity_bytes) {
        if (spec->chunk_bytes != 0)
            return gvm_error_set(GVM_E_INVALID, "device %d needs chunks of at least %s",
                                 device->info.ordinal,
                                 gvmi_size_text(device->info.granularity_bytes, size));
        *chunk_bytes = device->info.granularity_bytes;
    }
    if ((spec->reserve_bytes - 1) / *chunk_bytes + 1 > GVMI_CHUNKS_MAX)
        return gvm_error_set(GVM_E_INVALID,
                             "the reservation would be over %llu chunks: use larger chunks",
                             (unsigned long long)GVMI_CHUNKS_MAX);
    if (spec->address % GVM_CHUNK_BYTES_MIN != 0)
        return gvm_error_set(GVM_E_INVALID, "the address wanted, %#llx, is not a multiple of 2 MiB",
                             (unsigned long long)spec->address);
    return GVM_OK;
}

/* NVIDIA's driver has a wanted address at multiples of this alone, for about as much and more; anything else it puts elsewhere. */
#define PLACED_BYTES (32ull << 20)

/* own_bytes: 0 if the wanted addresses are not had. */
static CUresult reserve_own(gvm_buffer *buffer, uint64_t bytes, uint64_t wanted)
{
    const CUresult result = gvmi_cu->cuMemAddressReserve(&buffer->own_address, bytes, 0, wanted, 0);

    buffer->own_bytes = bytes;
    if (result == CUDA_SUCCESS && wanted != 0 && buffer->own_address != wanted) {
        gvmi_cu->cuMemAddressFree(buffer->own_address, bytes);
        buffer->own_bytes = 0;
    }
    return result;
}

static gvm_status reserve_own_addresses(gvm_buffer *buffer, uint64_t wanted)
{
    const uint64_t start = gvmi_round_down(wanted, PLACED_BYTES);
    char size[32];
    CUresult result = reserve_own(buffer, buffer->reserve_bytes, wanted);

    if (result == CUDA_SUCCESS && buffer->own_bytes == 0 && start != 0) /* 0 is any address */
        result = reserve_own(
            buffer, gvmi_round_up(wanted + buffer->reserve_bytes, PLACED_BYTES) - start, start);
    gvmi_size_text(buffer->reserve_bytes, size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY || (wanted != 0 && result == CUDA_ERROR_INVALID_VALUE))
        return gvmi_driver_fail_as(GVM_E_ADDRESS, result, "cuMemAddressReserve",
                                   "cannot reserve %s of addresses%s", size,
                                   wanted != 0 ? " there" : "");
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAddressReserve", "cannot reserve %s of addresses", size);
    if (buffer->own_bytes == 0)
        return gvm_error_set(GVM_E_ADDRESS, "the %s at %#llx are not all free in this process",
                             size, (unsigned long long)wanted);
    buffer->address = wanted != 0 ? wanted : buffer->own_address;
    return GVM_OK;
}

static gvm_status reserve_addresses(gvm_buffer *buffer, const gvmi_buffer_spec *spec)
{
    bool taken = false;
    gvm_status status = GVM_OK;

    if (spec->range != NULL && spec->address != 0)
        status = gvmi_range_take(spec->range, buffer, spec->address, &taken);
    return taken || status != GVM_OK ? status : reserve_own_addresses(buffer, spec->address);
}

static void release_addresses(gvm_buffer *buffer)
{
    if (buffer->range != NULL)
        gvmi_range_give(buffer);
    else
        gvmi_cu->cuMemAddressFree(buffer->own_address, buffer->own_bytes);
}

/* cuMemAlloc may give what this process has freed, as it was. In the device's context; on failure the
 * memory is freed. */
static gvm_status zero_whole(const gvm_buffer *buffer, CUdeviceptr address)
{
    const char *call = "cuMemsetD8Async";
    gvm_status status;
    CUresult result;

    if (buffer->owner == GVMI_OWNER_ANY)
        return GVM_OK;
    result = gvmi_cu->cuMemsetD8Async(address, 0, buffer->reserve_bytes, buffer->device->stream);
    if (result == CUDA_SUCCESS) {
        call = "cuStreamSynchronize";
        result = gvmi_cu->cuStreamSynchronize(buffer->device->stream);
    }
    if (result == CUDA_SUCCESS)
        return GVM_OK;
    status = gvmi_driver_fail(result, call, "cannot fill a buffer on device %d with zeros",
                              buffer->device->info.ordinal);
    gvmi_cu->cuMemFree(address);
    return status;
}

/* Without virtual memory management: one allocation of the whole, as one chunk without a handle. */
static gvm_status allocate_whole(gvm_buffer *buffer, uint64_t wanted)
{
    CUdeviceptr address;
    CUresult result;
    char size[32];
    gvm_status status;

    if (wanted != 0)
        return gvm_error_set(GVM_E_ADDRESS,
                             "device %d has no virtual memory management: addresses cannot be chosen",
                             buffer->device->info.ordinal);
    status = gvmi_device_enter(buffer->device);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemAlloc(&address, buffer->reserve_bytes);
    status = result == CUDA_SUCCESS ? zero_whole(buffer, address) : GVM_OK;
    gvmi_device_leave();
    if (status != GVM_OK)
        return status;
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemAlloc",
                                "cannot allocate %s on device %d (without virtual memory "
                                "management a buffer is allocated whole)",
                                gvmi_size_text(buffer->reserve_bytes, size),
                                buffer->device->info.ordinal);
    buffer->address = address;
    buffer->chunks[0].tier = GVM_TIER_DEVICE;
    buffer->device_bytes = buffer->reserve_bytes;
    return GVM_OK;
}

/* What is imported is as the owner says: it was judged with the share. */
static bool can_grade(const gvm_device *device, const gvmi_buffer_spec *spec, uint64_t whole_bytes,
                      uint64_t chunk_bytes)
{
    return spec->graded && device->info.vmm && gvmi_layout_can_grade(whole_bytes, chunk_bytes) &&
           (spec->owner_reserve_bytes != 0 || device->info.granularity_bytes <= GVMI_GRADE_BYTES);
}

/* Sets what the buffer reserves and how that is cut. Without virtual memory management it is one chunk. */
static void cut_buffer_chunks(gvm_buffer *buffer, const gvm_device *device,
                              const gvmi_buffer_spec *spec, uint64_t chunk_bytes)
{
    const uint64_t bytes = gvmi_round_up(spec->reserve_bytes, chunk_bytes);
    const bool owner = spec->owner_reserve_bytes == 0;
    const uint64_t whole = owner ? bytes : spec->owner_reserve_bytes;
    gvmi_layout *layout = &buffer->layout;

    layout->chunk_bytes = buffer->vmm ? chunk_bytes : bytes;
    if (can_grade(device, spec, whole, chunk_bytes)) {
        layout->graded_bytes = whole;
        layout->skip_chunks = gvmi_layout_at(layout, spec->skip_bytes);
        layout->skip_bytes = spec->skip_bytes;
        buffer->chunk_count = gvmi_layout_touched(layout, owner ? bytes : spec->reserve_bytes);
    } else {
        buffer->chunk_count = bytes / layout->chunk_bytes;
    }
    buffer->reserve_bytes = gvmi_layout_start(layout, buffer->chunk_count);
}

gvm_status gvmi_buffer_new(gvm_device *device, const gvmi_buffer_spec *spec, gvm_buffer **out)
{
    gvm_buffer *buffer;
    uint64_t chunk_bytes = 0;
    gvm_status status = check_spec(device, spec, &chunk_bytes);

    if (status != GVM_OK)
        return status;
    buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a buffer");
    buffer->vmm = device->info.vmm;
    cut_buffer_chunks(buffer, device, spec, chunk_bytes);
    buffer->access = GVM_ACCESS_READWRITE;
    buffer->shareable = device->info.share_fd && !spec->unshared;
    buffer->own_owner = !spec->unshared && spec->owner == GVMI_OWNER_ANY;
    if (!spec->unshared)
        buffer->owner = buffer->own_owner ? gvmi_chunk_owner_new() : spec->owner;
    buffer->device = device;
    buffer->chunks = calloc(buffer->chunk_count, sizeof *buffer->chunks);
    if (buffer->chunks == NULL) {
        status = gvm_error_set(GVM_E_NOMEM, "out of host memory for a table of %llu chunks",
                               (unsigned long long)buffer->chunk_count);
        goto fail_free;
    }
    status = buffer->vmm ? reserve_addresses(buffer, spec) : allocate_whole(buffer, spec->address);
    if (status != GVM_OK)
        goto fail_free_chunks;
    gvmi_mutex_init(&buffer->lock, GVMI_RANK_BUFFER);
    TAILQ_INIT(&buffer->uses);
    pthread_cond_init(&buffer->use_ended, NULL);
    gvmi_device_retain(device);
    *out = buffer;
    return GVM_OK;

fail_free_chunks:
    free(buffer->chunks);
fail_free:
    free(buffer);
    return status;
}

gvm_status gvmi_buffer_publish(gvm_buffer *buffer)
{
    return gvmi_registry_add(GVMI_KIND_BUFFER, gvmi_key(buffer), buffer);
}

static gvm_status read_buffer_options(const gvm_buffer_options *options, uint64_t reserve_bytes,
                                      gvmi_buffer_spec *spec)
{
    gvm_buffer_options full;

    if (!gvmi_struct_in(&full, sizeof full, options, sizeof full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if ((full.flags & ~(uint32_t)GVM_BUFFER_UNSHARED) != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown buffer flags %#x", (unsigned)full.flags);
    if (full.reserved != 0)
        return gvm_error_set(GVM_E_INVALID, "reserved is %u among the buffer options, not 0",
                             (unsigned)full.reserved);
    *spec = (gvmi_buffer_spec){
        .reserve_bytes = reserve_bytes,
        .chunk_bytes = full.chunk_bytes,
        .address = gvmi_address(full.address),
        .unshared = (full.flags & GVM_BUFFER_UNSHARED) != 0,
    };
    return GVM_OK;
}

static gvm_status make_id(uint8_t id[16])
{
    if (getrandom(id, 16, 0) == 16)
        return GVM_OK;
    return gvmi_fail_system(GVM_E_SYSTEM, errno, "getrandom", "cannot make an identity for the buffer");
}

gvm_status gvmi_buffer_create(gvm_device *device, const gvmi_buffer_spec *spec, gvm_buffer **out)
{
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_new(device, spec, &buffer);

    if (status != GVM_OK)
        return status;
    status = make_id(buffer->id);
    if (status == GVM_OK)
        status = gvmi_buffer_publish(buffer);
    if (status == GVM_OK)
        *out = buffer;
    else
        gvmi_buffer_free(buffer);
    return status;
}

gvm_status gvm_buffer_create(gvm_device *handle, uint64_t reserve_bytes,
                             const gvm_buffer_options *options, gvm_buffer **out)
{
    GVMI_UNCANCELLED;
    gvmi_shortage shortage = {0};
    gvmi_buffer_spec spec;
    gvm_device *device;
    gvm_status status;

    if (out == NULL)
        return gvm_error_set(GVM_E_INVALID, "out is NULL");
    status = read_buffer_options(options, reserve_bytes, &spec);
    if (status != GVM_OK)
        return status;
    status = gvmi_device_hold(handle, &device);
    if (status != GVM_OK)
        return status;
    do
        status = gvmi_buffer_create(device, &spec, out);
    while (status == GVM_E_NOSPACE && gvmi_idle_retry(device, reserve_bytes, &shortage));
    gvmi_device_release(device);
    return status;
}

/* ---- end */

void gvmi_buffer_free(gvm_buffer *buffer)
{
    gvm_error error = gvmi_error_save();

    if (buffer->vmm) {
        gvmi_lock(&buffer->lock);
        /* A driver that refuses to unmap (its context is broken) keeps the chunk; the process's end
         * frees it. */
        (void)gvmi_buffer_vacate_locked(buffer, 0, buffer->chunk_count);
        gvmi_unlock(&buffer->lock);
        if (buffer->own_owner)
            gvmi_chunk_owner_end(buffer->device, buffer->owner);
        release_addresses(buffer);
    } else if (gvmi_device_enter(buffer->device) == GVM_OK) {
        gvmi_cu->cuMemFree(buffer->address);
        gvmi_device_leave();
    }
    for (uint32_t i = 0; i < buffer->grant_count; i++)
        gvmi_device_release(buffer->grants[i].peer);
    for (uint32_t i = 0; i < buffer->peer_count; i++) {
        if (buffer->own_owner)
            gvmi_chunk_owner_end(buffer->peers[i].device, buffer->owner);
        gvmi_device_release(buffer->peers[i].device);
    }
    gvmi_device_release(buffer->device);
    pthread_cond_destroy(&buffer->use_ended);
    gvmi_mutex_destroy(&buffer->lock);
    free(buffer->chunks);
    gvmi_registry_retire(buffer);
    gvm_error_restore(&error);
}

void gvm_buffer_destroy(gvm_buffer *handle)
{
    GVMI_UNCANCELLED;
    void *buffer;

    if (handle != NULL && gvmi_registry_remove(GVMI_KIND_BUFFER, gvmi_key(handle), &buffer) == GVM_OK)
        gvmi_buffer_free(buffer);
}

/* ---- handles and ranges */

gvm_status gvmi_buffer_hold(const gvm_buffer *handle, gvm_buffer **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_BUFFER, gvmi_key(handle), &object);

    *out = object;
    return status;
}

void gvmi_buffer_drop(gvm_buffer *buffer)
{
    gvmi_registry_drop(GVMI_KIND_BUFFER, gvmi_key(buffer));
}

gvm_status gvmi_buffer_chunk_range(const gvm_buffer *buffer, uint64_t offset_bytes,
                                   uint64_t len_bytes, uint64_t *first, uint64_t *end)
{
    if (len_bytes == 0 || !gvmi_range_within(offset_bytes, len_bytes, buffer->reserve_bytes))
        return gvm_error_set(
            GVM_E_INVALID,
            "the range of %llu bytes at offset %llu is empty or leaves the reservation of %llu",
            (unsigned long long)len_bytes, (unsigned long long)offset_bytes,
            (unsigned long long)buffer->reserve_bytes);
    *first = gvmi_chunk_at(buffer, offset_bytes);
    *end = gvmi_chunk_at(buffer, offset_bytes + len_bytes - 1) + 1;
    return GVM_OK;
}

gvm_status gvmi_buffer_writable_locked(const gvm_buffer *buffer)
{
    if (buffer->sealed)
        return gvm_error_set(GVM_E_SEALED, "the buffer is sealed");
    if (buffer->access != GVM_ACCESS_READWRITE)
        return gvm_error_set(GVM_E_READONLY, "the buffer was imported read-only");
    return GVM_OK;
}

/* ---- questions */

void *gvm_buffer_address(const gvm_buffer *handle)
{
    gvm_buffer *buffer;
    uint64_t address;

    if (gvmi_buffer_hold(handle, &buffer) != GVM_OK)
        return NULL;
    address = buffer->address;
    gvmi_buffer_drop(buffer);
    return gvmi_pointer(address);
}

gvm_status gvm_buffer_get_info(gvm_buffer *handle, gvm_buffer_info *info)
{
    GVMI_UNCANCELLED;
    gvm_buffer_info full;
    gvm_buffer *buffer;
    gvm_status status = gvmi_buffer_hold(handle, &buffer);

    if (status != GVM_OK)
        return status;
    gvmi_lock(&buffer->lock);
    full = (gvm_buffer_info){
        .address = gvmi_pointer(buffer->address),
        .reserve_bytes = buffer->reserve_bytes,
        .chunk_bytes = buffer->layout.chunk_bytes,
        .device_bytes = buffer->device_bytes,
        .host_bytes = buffer->host_bytes,
        .generation = buffer->generation,
        .moved_bytes = buffer->moved_bytes,
        .ordinal = buffer->device->info.ordinal,
        .access = buffer->access,
        .sealed = buffer->sealed,
        .imported = buffer->imported,
        .vmm = buffer->vmm,
        .peer_bytes = gvmi_buffer_peer_bytes(buffer),
    };
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    if (!gvmi_struct_out(info, &full, sizeof full, offsetof(gvm_buffer_info, peer_bytes)))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return GVM_OK;
}

uint64_t gvmi_buffer_host_bytes(gvm_buffer *buffer, uint64_t len_bytes)
{
    uint64_t start, bytes = 0;

    gvmi_lock(&buffer->lock);
    for (uint64_t i = 0;
         buffer->host_bytes > 0 && (start = gvmi_chunk_start(buffer, i)) < len_bytes; i++)
        if (buffer->chunks[i].tier == GVM_TIER_HOST)
            bytes += gvmi_min(gvmi_chunk_start(buffer, i + 1), len_bytes) - start;
    gvmi_unlock(&buffer->lock);
    return bytes;
}

gvm_status gvm_buffer_get_tier(gvm_buffer *handle, uint64_t offset_bytes, gvm_tier *tier)
{
    GVMI_UNCANCELLED;
    gvm_buffer *buffer;
    gvm_status status;

    if (tier == NULL)
        return gvm_error_set(GVM_E_INVALID, "tier is NULL");
    status = gvmi_buffer_hold(handle, &buffer);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&buffer->lock);
    if (offset_bytes < buffer->reserve_bytes)
        *tier = (gvm_tier)buffer->chunks[gvmi_chunk_at(buffer, offset_bytes)].tier;
    else
        status = gvm_error_set(GVM_E_INVALID, "offset %llu is past the reservation of %llu",
                               (unsigned long long)offset_bytes,
                               (unsigned long long)buffer->reserve_bytes);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    return status;
}

static bool check_chunk(const gvm_buffer *buffer, const gvmi_chunk *chunk)
{
    if (chunk->tier > GVM_TIER_PEER || (chunk->flags & GVMI_CHUNK_FRESH) != 0 ||
        (chunk->tier == GVM_TIER_PEER && chunk->peer >= buffer->peer_count))
        return false;
    if (!buffer->vmm)
        return chunk->handle == 0 && chunk->flags == 0;
    if (chunk->tier == GVM_TIER_ABSENT)
        return chunk->handle == 0 && chunk->flags == 0;
    return chunk->handle != 0;
}

static bool check_peers(const gvm_buffer *buffer, const uint64_t bytes[GVMI_PEERS_MAX])
{
    for (uint32_t i = 0; i < buffer->peer_count; i++) {
        if (buffer->peers[i].device == buffer->device || buffer->peers[i].bytes != bytes[i])
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (buffer->peers[j].device == buffer->peers[i].device)
                return false;
    }
    return true;
}

static bool check_buffer_locked(const gvm_buffer *buffer)
{
    uint64_t bytes[GVM_TIER_HOST + 1] = {0}, on_peers[GVMI_PEERS_MAX] = {0};

    for (uint64_t i = 0; i < buffer->chunk_count; i++) {
        const gvmi_chunk *chunk = &buffer->chunks[i];

        if (!check_chunk(buffer, chunk))
            return false;
        *(chunk->tier == GVM_TIER_PEER ? &on_peers[chunk->peer]
                                       : &bytes[chunk->tier]) += gvmi_chunk_bytes(buffer, i);
    }
    for (uint32_t i = 0; i < buffer->grant_count; i++) {
        if (buffer->grants[i].peer == buffer->device)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (buffer->grants[j].peer == buffer->grants[i].peer)
                return false;
    }
    return check_peers(buffer, on_peers) && bytes[GVM_TIER_DEVICE] == buffer->device_bytes &&
           bytes[GVM_TIER_HOST] == buffer->host_bytes &&
           (!buffer->sealed || buffer->access == GVM_ACCESS_READ) &&
           gvmi_chunk_start(buffer, buffer->chunk_count) == buffer->reserve_bytes;
}

bool gvmi_buffer_check(gvm_buffer *handle)
{
    gvm_buffer *buffer;
    bool good;

    if (gvmi_buffer_hold(handle, &buffer) != GVM_OK)
        return false;
    gvmi_lock(&buffer->lock);
    good = check_buffer_locked(buffer);
    gvmi_unlock(&buffer->lock);
    gvmi_buffer_drop(buffer);
    return good;
}
