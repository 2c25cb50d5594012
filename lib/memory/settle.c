/* Chunks at their addresses: the only code that maps, sets access and unmaps for good. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/size.h"
#include "memory/buffer.h"

/* CUDA_ERROR_OUT_OF_MEMORY from mapping is not the device's memory but a table in the driver
 * (memory-managers: about 520 000 mappings a process) or the kernel's vm.max_map_count. */
gvm_status gvmi_buffer_fail_mapping(CUresult result, const char *call)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return gvmi_driver_fail_as(GVM_E_LIMIT, result, call,
                                   "the process has too many mappings: use larger chunks");
    return gvmi_driver_fail(result, call, "cannot put a chunk at its address");
}

/* ---- settling */

static gvm_status map_unmapped_chunks(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        gvmi_chunk *chunk = &buffer->chunks[i];
        CUresult result;

        if ((chunk->flags & GVMI_CHUNK_UNMAPPED) == 0)
            continue;
        result = gvmi_cu->cuMemMap(gvmi_chunk_address(buffer, i), gvmi_chunk_bytes(buffer, i), 0,
                                   chunk->handle, 0);
        if (result != CUDA_SUCCESS)
            return gvmi_buffer_fail_mapping(result, "cuMemMap");
        chunk->flags = (uint8_t)((chunk->flags & ~GVMI_CHUNK_UNMAPPED) | GVMI_CHUNK_STALE);
    }
    return GVM_OK;
}

/* The rights of every device that has some, or had: the driver keeps what it is not asked to
 * change. Behind them, beyond the count, those of the processor.
 */
static size_t describe_access(const gvm_buffer *buffer, CUmemAccessDesc desc[2 + GVMI_GRANTS_MAX])
{
    size_t count = 0;

    desc[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, buffer->device->info.ordinal},
                                      (int)buffer->access};
    for (uint32_t i = 0; i < buffer->grant_count; i++) {
        /* No peer may do more than the owner. */
        const int flags = (int)buffer->grants[i].access & (int)buffer->access;

        desc[count++] = (CUmemAccessDesc){
            {CU_MEM_LOCATION_TYPE_DEVICE, buffer->grants[i].peer->info.ordinal}, flags};
    }
    desc[count] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_HOST_NUMA, buffer->device->host_numa_id},
                                    (int)buffer->access};
    return count;
}

/* The processor has no access to memory of a device. */
static bool is_open_to_cpu(const gvm_buffer *buffer, uint64_t index)
{
    return buffer->open_to_cpu && buffer->chunks[index].tier == GVM_TIER_HOST;
}

/* What of a chunk's access is behind: GVMI_CHUNK_STALE, all of it, or PEERS; 0: nothing. */
static uint8_t stale_access_of(const gvmi_chunk *chunk)
{
    if ((chunk->flags & GVMI_CHUNK_STALE) != 0)
        return GVMI_CHUNK_STALE;
    return chunk->flags & GVMI_CHUNK_PEERS;
}

static gvm_status set_stale_access(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    CUmemAccessDesc desc[2 + GVMI_GRANTS_MAX];
    const size_t others = describe_access(buffer, desc);

    for (uint64_t i = first, run_end; i < end; i = run_end) {
        const uint8_t what = stale_access_of(&buffer->chunks[i]);
        const size_t own = what == GVMI_CHUNK_PEERS ? 1 : 0; /* the first is left out */
        const bool cpu = is_open_to_cpu(buffer, i);          /* the last is not */
        const size_t count = others + cpu;
        CUresult result = CUDA_SUCCESS;

        for (run_end = i + 1; run_end < end && stale_access_of(&buffer->chunks[run_end]) == what &&
                              is_open_to_cpu(buffer, run_end) == cpu;
             run_end++)
            ;
        if (what == 0)
            continue;
        if (count > own)
            result = gvmi_cu->cuMemSetAccess(gvmi_chunk_address(buffer, i),
                                             gvmi_chunks_bytes(buffer, i, run_end), desc + own,
                                             count - own);
        if (result != CUDA_SUCCESS)
            return gvmi_buffer_fail_mapping(result, "cuMemSetAccess");
        for (uint64_t j = i; j < run_end; j++)
            buffer->chunks[j].flags &= (uint8_t) ~(GVMI_CHUNK_STALE | GVMI_CHUNK_PEERS);
    }
    return GVM_OK;
}

gvm_status gvmi_buffer_settle_locked(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    gvm_status status;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_BUFFER));
    status = map_unmapped_chunks(buffer, first, end);
    return status != GVM_OK ? status : set_stale_access(buffer, first, end);
}

/* ---- placing and vacating */

void gvmi_buffer_place_locked(gvm_buffer *buffer, uint64_t index, gvm_tier tier,
                              CUmemGenericAllocationHandle handle, uint8_t flags)
{
    gvmi_chunk *chunk = &buffer->chunks[index];

    GVM_ASSERT(chunk->tier == GVM_TIER_ABSENT);
    *chunk = (gvmi_chunk){
        .handle = handle,
        .tier = (uint8_t)tier,
        .flags = (uint8_t)(flags | GVMI_CHUNK_UNMAPPED | GVMI_CHUNK_STALE | GVMI_CHUNK_FRESH),
    };
    *gvmi_buffer_count_of(buffer, chunk) += gvmi_chunk_bytes(buffer, index);
}

gvmi_chunk_spec gvmi_buffer_chunk_spec(const gvm_buffer *buffer, uint64_t index, gvm_tier tier)
{
    return (gvmi_chunk_spec){
        .bytes = gvmi_chunk_bytes(buffer, index),
        .owner = buffer->owner,
        .tier = tier == GVM_TIER_PEER ? GVM_TIER_DEVICE : (uint8_t)tier,
        .shareable = buffer->shareable,
    };
}

void gvmi_buffer_release_chunk_locked(gvm_buffer *buffer, uint64_t index, gvmi_release how)
{
    gvmi_chunk *chunk = &buffer->chunks[index];
    const gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(buffer, index, (gvm_tier)chunk->tier);
    gvm_device *device = chunk->tier == GVM_TIER_PEER ? buffer->peers[chunk->peer].device
                                                      : buffer->device;

    *gvmi_buffer_count_of(buffer, chunk) -= spec.bytes;
    gvmi_chunk_release(device, &spec, (chunk->flags & GVMI_CHUNK_SEEN) == 0 ? how : GVMI_RELEASE_NOW,
                       chunk->handle);
    memset(chunk, 0, sizeof *chunk);
}

static bool is_chunk_mapped(const gvmi_chunk *chunk)
{
    return chunk->tier != GVM_TIER_ABSENT && (chunk->flags & GVMI_CHUNK_UNMAPPED) == 0;
}

gvm_status gvmi_buffer_vacate_as_locked(gvm_buffer *buffer, uint64_t first, uint64_t end,
                                        gvmi_release how)
{
    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_BUFFER));
    for (uint64_t i = first, run_end; i < end; i = run_end) {
        for (run_end = i; run_end < end && is_chunk_mapped(&buffer->chunks[run_end]); run_end++)
            ;
        if (run_end > i) { /* one unmap for the run: the driver charges by the call and by the handle */
            CUresult result = gvmi_cu->cuMemUnmap(gvmi_chunk_address(buffer, i),
                                                  gvmi_chunks_bytes(buffer, i, run_end));

            if (result != CUDA_SUCCESS)
                return gvmi_driver_fail(result, "cuMemUnmap",
                                        "cannot take chunks from their addresses");
        } else {
            run_end++;
        }
        for (uint64_t j = i; j < run_end; j++)
            if (buffer->chunks[j].tier != GVM_TIER_ABSENT)
                gvmi_buffer_release_chunk_locked(buffer, j, how);
    }
    return GVM_OK;
}

gvm_status gvmi_buffer_vacate_locked(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    return gvmi_buffer_vacate_as_locked(buffer, first, end, GVMI_RELEASE_KEEP);
}

void gvmi_buffer_undo_fresh_locked(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    gvm_error error = gvmi_error_save();

    for (uint64_t i = first, run_end; i < end; i = run_end) {
        for (run_end = i; run_end < end && (buffer->chunks[run_end].flags & GVMI_CHUNK_FRESH) != 0;
             run_end++)
            ;
        if (run_end == i)
            run_end++;
        else
            (void)gvmi_buffer_vacate_locked(buffer, i, run_end);
    }
    gvmi_buffer_keep_fresh_locked(buffer, first, end); /* those that a broken driver did not release */
    gvm_error_restore(&error);
}

void gvmi_buffer_keep_fresh_locked(gvm_buffer *buffer, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        buffer->chunks[i].flags &= (uint8_t)~GVMI_CHUNK_FRESH;
}

/* ---- committing */

/* Adds to the failure that memory ran out how much of the range had been made until then: the figure of free memory
 * is of that moment. */
static void add_progress(const gvm_buffer *buffer, uint64_t first, uint64_t end, uint64_t made_bytes)
{
    gvm_error error = gvmi_error_save();
    const size_t len = strlen(error.text);
    char made[32], range[32];

    snprintf(error.text + len, sizeof error.text - len,
             " (%s of %s had been made, and is given back)", gvmi_size_text(made_bytes, made),
             gvmi_size_text(gvmi_chunk_start(buffer, end) - gvmi_chunk_start(buffer, first), range));
    gvm_error_restore(&error);
}

static gvm_status create_absent(gvm_buffer *buffer, uint64_t first, uint64_t end, gvm_tier tier)
{
    uint64_t made_bytes = 0;

    for (uint64_t i = first; i < end; i++) {
        const gvmi_chunk_spec spec = gvmi_buffer_chunk_spec(buffer, i, tier);
        CUmemGenericAllocationHandle handle;
        gvm_status status;

        if (buffer->chunks[i].tier != GVM_TIER_ABSENT)
            continue;
        status = gvmi_chunk_create(buffer->device, &spec, &handle);
        if (status != GVM_OK) {
            if ((status == GVM_E_NOSPACE || status == GVM_E_NOMEM) && end - first > 1)
                add_progress(buffer, first, end, made_bytes);
            return status;
        }
        made_bytes += spec.bytes;
        gvmi_buffer_place_locked(buffer, i, tier, handle, 0);
    }
    return GVM_OK;
}

gvm_status gvmi_buffer_commit_tier_locked(gvm_buffer *buffer, uint64_t first, uint64_t end, gvm_tier tier)
{
    const uint64_t before_bytes = gvmi_buffer_committed_bytes(buffer);
    gvm_status status;

    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_BUFFER));
    status = create_absent(buffer, first, end, tier);
    if (status == GVM_OK)
        status = gvmi_buffer_settle_locked(buffer, first, end);
    if (status == GVM_OK)
        gvmi_buffer_keep_fresh_locked(buffer, first, end);
    else
        gvmi_buffer_undo_fresh_locked(buffer, first, end);
    /* Also what a broken driver did not release. */
    if (gvmi_buffer_committed_bytes(buffer) != before_bytes)
        buffer->generation++;
    return status;
}
