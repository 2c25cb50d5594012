/* gvmem/region.h - regions: data larger than device memory, which kernels map and unmap themselves.
 *
 * A region is a piece of data of a size that the program chooses. Its home is host memory. A kernel maps it, uses it through a
 * pointer, and unmaps it; where it is not in device memory the threads that map it bring it there, and evict others to make
 * room. A collection is an array of regions of one size, a space the collections that share a budget of device memory.
 *
 *     gvm_space_create(device, &options, &space);                        // options.budget_bytes = 4 GiB
 *     gvm_collection_create(space, rows, row_bytes, NULL, &collection);  // 100 GiB of rows
 *     gvm_region_map_cpu(collection, 7, GVM_REGION_WRITE, &row);         // write it, then unmap
 *     gvm_region_unmap_cpu(collection, 7);
 *     gvm_space_sync(space, NULL);                                       // kernels see it from here on
 *     gvm_collection_get_view(collection, &params.rows);
 *     cuLaunchKernel(..., stream, ...);                                  // gvmem/device/region.h
 *     gvm_space_sync(space, stream);                                     // the CPU sees what kernels wrote
 *
 * Consistency: what one side writes the other sees after the next gvm_space_sync() that comes after the unmap. A
 * region that both write between two of them has data of either, or of both. Kernels that run at the same time see each other's writes as
 * in plain device memory.
 *
 * Consumers that cannot map: gvm_region_resolve() maps a list of regions and returns their slots. Slot s is at
 * view.address + s * view.stride_bytes, in device memory or in host memory. gvm_region_release() unmaps them. Both can be
 * captured into a CUDA graph.
 *
 * Threads: any thread may call. Calls on one space are serialised inside, but for the waiting of sync for the stream. Creation, destruction, syncs,
 * and maps by the CPU of what kernels have written run short kernels and wait for them, and other calls of the space behind them: a kernel that
 * fills the GPU until one of these calls returns never ends.
 * Ownership: the caller owns a space and its collections, and ends them. The device stays open for both.
 * Errors that any call here may return besides those listed: GVM_E_FOREIGN (the space or collection is unknown or
 * destroyed), GVM_E_NOMEM, GVM_E_LOST, GVM_E_DRIVER.
 *
 * Semantics: RSVM (F. Ji, H. Lin, X. Ma, "RSVM: a Region-based Software Virtual Memory for GPU", PACT 2013).
 */
#ifndef GVMEM_REGION_H
#define GVMEM_REGION_H

#include <stdio.h>

#include <gvmem/device.h>
#include <gvmem/region_view.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_space gvm_space;
typedef struct gvm_collection gvm_collection;

enum {
    /* Wrong use is looked for, at the cost of a pass over frames and a sum over what is fetched, and reported by the next sync: an
     * unmap without a map, which changes nothing then; a write through a map that is to read, unless others have mapped
     * the region to write or it is used at its home; a region that both sides have written. Frames that are free, and those that
     * are mapped with GVM_REGION_WRITE alone, are filled with GVM_REGION_POISON. */
    GVM_SPACE_CHECK = 1u << 0,
};

/* Zero means default in every other member. */
typedef struct gvm_space_options {
    size_t struct_size; /* in: sizeof(gvm_space_options) */
    uint64_t budget_bytes; /* of device memory for the frames of all collections; 0: half of what the device has free */
    uint32_t wait_ms; /* how long a thread of a kernel waits for one that fetches the same region,
                      * and a sync for a keeper (gvmem/region_object.h); 0: 10 s */
    uint32_t flags;   /* GVM_SPACE_... */
} gvm_space_options;

/* gvm_space_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_space_options)

typedef struct gvm_space_info {
    size_t struct_size; /* in: sizeof(gvm_space_info) */
    uint64_t budget_bytes;
    uint64_t frame_bytes;    /* device memory of frames, now */
    uint64_t metadata_bytes; /* device memory of tables besides */
    uint64_t host_bytes;     /* of homes */
    uint64_t region_count;   /* of all collections */
    uint32_t collection_count;
    int32_t ordinal; /* the device */
} gvm_space_info;

typedef struct gvm_collection_options {
    size_t struct_size; /* in: sizeof(gvm_collection_options) */
    /* The part of the space's budget that this collection gets; no more than the space has left: where collections' own budgets together
     * are more than that, those that have frames keep them. 0: a share by size of what the others leave. GVM_BYTES_NONE: no frames. */
    uint64_t budget_bytes;
    gvm_region_policy policy;
    uint32_t flags;         /* 0 */
    gvm_region_shape shape; /* of regions that are windows of an array */
    uint64_t unused_count;  /* regions, the last ones, that do not exist until they are created */
    /* Watermarks in percent of the frames: where fewer than clean_low of those that are taken next have been looked at, dirty regions
     * among the next, up to clean_high, are written home ahead of need, by the copy engine. Not with a shape; GVM_REGION_STATIC needs
     * none of it. */
    uint32_t clean_low;  /* 0: no such thing */
    uint32_t clean_high; /* 0: twice clean_low, at most 100 */
} gvm_collection_options;

/* gvm_collection_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_collection_options)

typedef struct gvm_collection_info {
    size_t struct_size; /* in: sizeof(gvm_collection_info) */
    uint64_t region_bytes, stride_bytes;
    uint64_t region_count, frame_count;
    uint64_t fetched, written,
        evicted; /* regions, by kernels so far: from their homes, to their homes, out of frames */
    uint64_t remote; /* maps that found no frame */
    gvm_region_policy policy;
    uint32_t reserved;
    gvm_region_shape shape; /* with its defaults; width_bytes 0: none. Its pitches are those of what the CPU maps */
    uint64_t live_count; /* regions that exist, as of the last sync */
    uint64_t cleaned; /* regions that were written home ahead of need, besides those of written */
} gvm_collection_info;

/* Creates a space without collections. options may be NULL.
 *
 * GVM_E_INVALID  an option is out of its limits, or out is NULL
 * GVM_E_NOTSUP   the device has no virtual memory management or no host tier, or this build has no kernels for it
 * GVM_E_LIMIT    the device has 512 spaces and callback servers (gvmem/callback.h), or as for gvm_buffer_commit()
 * GVM_E_ADDRESS, GVM_E_NOSPACE, GVM_E_SYSTEM  as for gvm_buffer_create() and gvm_buffer_commit() */
GVM_API GVM_CHECKED gvm_status gvm_space_create(gvm_device *device,
                                                const gvm_space_options *options, gvm_space **out);

/* Creates a collection of count regions of region_bytes each, all zeros, and divides the budget anew. They exist for kernels
 * at once, but for the last unused_count. Their homes are made, as pinned host memory, before this returns.
 * With a shape region_bytes is width_bytes * height * depth, or 0.
 *
 * GVM_E_INVALID  count or region_bytes is 0 or too large: a region has at most (2^31 - 1) * 16 bytes, regions and frames
 *                together are less than 2^27, and take at most 128 TiB (32 TiB where frames take 32 MiB or less); an option
 *                is out of its limits, or out is NULL; the shape's widths or pitches are no multiples of 16, too small or
 *                too large for each other, or differ from region_bytes
 * GVM_E_NOMEM    too little host memory that can be pinned
 * GVM_E_NOSPACE  too little device memory for its table. Without room for frames it is created, and its regions are used at
 *                their homes until a sync finds room
 * GVM_E_LIMIT    4096 collections of the device have clean_low, or as for gvm_buffer_commit()
 * GVM_E_ADDRESS, GVM_E_SYSTEM  as for gvm_buffer_create()
 * GVM_E_LIMIT, GVM_E_SYSTEM    with unused_count or clean_low: the library's thread cannot be started */
GVM_API GVM_CHECKED gvm_status gvm_collection_create(gvm_space *space, uint64_t count,
                                                     uint64_t region_bytes,
                                                     const gvm_collection_options *options,
                                                     gvm_collection **out);

/* What kernels need, for as long as the collection exists.
 *
 * GVM_E_INVALID  view is NULL */
GVM_API GVM_CHECKED gvm_status gvm_collection_get_view(gvm_collection *collection,
                                                       gvm_region_view *view);

/* Maps a region for the CPU: *pointer is its home. If kernels have written it before the last sync, what they
 * wrote is brought home first, with all else that they wrote to the collection, by a kernel that this call waits for.
 * GVM_REGION_WRITE alone: the CPU writes all of it. A region may be mapped several times; it is
 * written when the last map that may write is unmapped. Kernels must not use a region that the CPU has mapped, unless both
 * only read.
 *
 * GVM_E_INVALID  there is no such region, access is none of GVM_REGION_READ, WRITE and READWRITE, or pointer is NULL; or something would
 *                have to be brought home in a callback that a kernel waits for (gvmem/callback.h)
 * GVM_E_TIMEOUT  kernels have it mapped, and have written it
 * GVM_E_LIMIT    the CPU has it mapped 65535 times */
GVM_API GVM_CHECKED gvm_status gvm_region_map_cpu(gvm_collection *collection, uint32_t region,
                                                  uint32_t access, void **pointer);

/* GVM_E_INVALID  the CPU has not mapped it */
GVM_API GVM_CHECKED gvm_status gvm_region_unmap_cpu(gvm_collection *collection, uint32_t region);

/* Creates a region, all zeros, with a number that no region has. Kernels may map it from the next sync on.
 *
 * GVM_E_INVALID  region is NULL
 * GVM_E_LIMIT    there is no such number. Those of deleted regions are used again after a sync. Kernels that create take up to 4096 at
 *                once, and up to half of what is left (gvm_region_create_warp()) */
GVM_API GVM_CHECKED gvm_status gvm_region_create(gvm_collection *collection, uint32_t *region);

/* Deletes a region. To kernels it exists until the next sync, which returns GVM_E_TIMEOUT as long as one has it mapped.
 *
 * GVM_E_INVALID  there is no such region, or the CPU has it mapped
 * GVM_E_LIMIT, GVM_E_SYSTEM  the library's thread cannot be started: kernels may ask it for the number */
GVM_API GVM_CHECKED gvm_status gvm_region_delete(gvm_collection *collection, uint32_t region);

/* Maps a region for the statement that follows, in which `type name` is its address, and unmaps it however that is
 * left. It is not run if the map fails, which the program sees only by that; gvm_error_last() says why.
 *
 *     int written = 0;
 *
 *     GVM_REGION_SCOPE_CPU(float *, row, rows, 7, GVM_REGION_WRITE) {
 *         row[0] = 1;
 *         written = 1;
 *     }
 *     if (!written)
 *         gvm_error_last(&error);
 */
#define GVM_REGION_SCOPE_CPU(type, name, collection, region, access) \
    for (gvm_region_scope name##_scope __attribute__((cleanup(gvm_region_scope_end))) = \
             gvm_region_scope_begin(collection, region, access); \
         name##_scope.address != NULL; gvm_region_scope_end(&name##_scope)) \
        for (type name = (type)name##_scope.address; name != NULL; name = NULL)

typedef struct gvm_region_scope {
    gvm_collection *collection;
    void *address; /* NULL: not mapped */
    uint32_t region;
} gvm_region_scope;

static inline gvm_region_scope gvm_region_scope_begin(gvm_collection *collection, uint32_t region,
                                                      uint32_t access)
{
    gvm_region_scope scope = {collection, NULL, region};

    if (gvm_region_map_cpu(collection, region, access, &scope.address) != GVM_OK)
        scope.address = NULL;
    return scope;
}

static inline void gvm_region_scope_end(gvm_region_scope *scope)
{
    const gvm_status status = scope->address != NULL
                                  ? gvm_region_unmap_cpu(scope->collection, scope->region)
                                  : GVM_OK;

    (void)status; /* if the statement has unmapped it, gvm_error_last() says so */
    scope->address = NULL;
}

/* Waits for the stream (NULL: the legacy default stream) and exchanges what both sides have done since the last sync.
 * What that costs depends on the number of regions that were changed.
 *
 * GVM_E_INVALID  a kernel has used a region in a wrong way, which the text names; or the stream is being captured; or the caller is a callback
 *                that a kernel waits for (gvmem/callback.h)
 * GVM_E_TORN     in check mode: the CPU and kernels have both written a region, which the text names, or another process or
 *                space has
 * GVM_E_TIMEOUT  kernels have regions mapped that the CPU has changed, or a kernel's threads waited for each
 *                other in vain. All else is done; sync again when they have unmapped them
 * GVM_E_VERSION  kernels were compiled with headers of another version
 * GVM_E_LIMIT    frames that were to be made have no room in the process: mappings, or descriptors
 * A collection of gvmem/region_object.h adds errors of its own. */
GVM_API GVM_CHECKED gvm_status gvm_space_sync(gvm_space *space, gvm_stream stream);

/* Maps a list of count regions for kernels, in the order of the stream: regions is an array of uint32_t in memory of the device
 * or of the host that the device reads. Entries that are GVM_REGION_NONE are passed over. Each of the others counts as
 * mapped once, duplicates too. slots (uint32_t) and addresses (void *) are written for each, and may be NULL; they are GVM_REGION_NONE and
 * NULL where there is no such region. Of a collection with a shape, slots from view.home on are windows of the array: the slot
 * is home and the region's number, and only addresses says where it is.
 *
 * GVM_E_INVALID  regions is NULL and count is not 0, or access is wrong */
GVM_API GVM_CHECKED gvm_status gvm_region_resolve(gvm_collection *collection, const uint32_t *regions,
                                                  uint64_t count, uint32_t access, uint32_t *slots,
                                                  void **addresses, gvm_stream stream);

/* Unmaps what a resolve of the same list has mapped, in the order of the stream. slots is what that wrote; NULL: all that are
 * not GVM_REGION_NONE were mapped.
 *
 * GVM_E_INVALID  as for resolve */
GVM_API GVM_CHECKED gvm_status gvm_region_release(gvm_collection *collection,
                                                  const uint32_t *regions, uint64_t count,
                                                  const uint32_t *slots, gvm_stream stream);

/* Brings a range of regions to frames, in the order of the stream.
 *
 * GVM_E_INVALID  the range leaves the collection */
GVM_API GVM_CHECKED gvm_status gvm_region_prefetch(gvm_collection *collection, uint32_t first,
                                                   uint64_t count, gvm_stream stream);

/* The same by the device's copy engine, beside kernels that need the multiprocessors, or all of them: it copies nothing with these. It
 * waits for what the stream has to do, claims frames by a kernel that it waits for as well, and leaves the copies in the stream, and a
 * short kernel behind them that says where the regions are. A region that is mapped before that is fetched by those who
 * map it. Frames whose regions are dirty are not taken (clean_low among a collection's options sees to it that there are others).
 * Regions of 256 KiB and more come as fast as by gvm_region_prefetch(), smaller ones slower. Where regions have a shape, it is
 * that call; in check mode only frames without a region are taken. At most one at a time for each collection: a call waits for the copies of the one before.
 *
 * GVM_E_INVALID  the range leaves the collection, or the stream is being captured */
GVM_API GVM_CHECKED gvm_status gvm_region_prefetch_by_engine(gvm_collection *collection, uint32_t first,
                                                             uint64_t count, gvm_stream stream);

/* Takes a range of regions out of their frames, in the order of the stream, for data that will not be used again soon: their
 * frames are free, and what kernels have written there comes home. Regions that are mapped then, or that the copy engine
 * copies, stay where they are.
 *
 * GVM_E_INVALID  the range leaves the collection */
GVM_API GVM_CHECKED gvm_status gvm_region_evict(gvm_collection *collection, uint32_t first,
                                                uint64_t count, gvm_stream stream);

/* Changes the policy. It holds at once, for kernels that run, too: each search for a frame that begins after this call follows it.
 * What is in frames stays there, and counts as used when the hand of the policy before came by last. Waits for a kernel
 * over all frames; must not be called while a kernel that does not end by itself has all of the device.
 *
 * GVM_E_INVALID  there is no such policy */
GVM_API GVM_CHECKED gvm_status gvm_collection_set_policy(gvm_collection *collection,
                                                         gvm_region_policy policy);

/* Snapshots; kernels may run.
 *
 * GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_space_get_info(gvm_space *space, gvm_space_info *info);
GVM_API GVM_CHECKED gvm_status gvm_collection_get_info(gvm_collection *collection,
                                                       gvm_collection_info *info);

/* Prints a line for each region that is in a frame, mapped or changed: its number, and what each side says of it: state, version,
 * place.
 *
 * GVM_E_INVALID  file is NULL
 * GVM_E_SYSTEM   it cannot be written */
GVM_API GVM_CHECKED gvm_status gvm_space_dump(gvm_space *space, FILE *file);

/* Gives memory and addresses back, after the work that the device has been given: kernels that are launched later must not use
 * it. NULL and unknown pointers are ignored. A space takes its collections along. */
GVM_API void gvm_collection_destroy(gvm_collection *collection);
GVM_API void gvm_space_destroy(gvm_space *space);

#ifdef __cplusplus
}
#endif
#endif
