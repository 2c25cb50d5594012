/* gvmem/rsvm.h - regions by the names and numbers of the RSVM paper's authors.
 *
 * A thin layer over gvmem/region.h: one space, and numbers for the regions of all its collections. Kernels are given
 * numbers, by gvmem/device/rsvm.h.
 *
 *     rgn_id a = rgn_create_cpu(bytes);                              // one region
 *     rgn_coll_id b = rgn_coll_create(bytes, count, row_length, width, rows); // strips of a matrix
 *     float *p = rgn_map_cpu(a, rgn_op_writeonly, NULL, NULL);       // NULL: gvm_error_last() says why
 *     ...
 *     must(rgn_unmap_cpu(a));     // must(): the program's, for a status that is not GVM_OK
 *     must(rsvm_bind(module));    // each module with kernels that use regions
 *     must(rsvm_sync());          // kernels see it from here on
 *     cuLaunchKernel(...);        // in the legacy default stream
 *     must(rsvm_sync());          // the CPU sees what kernels wrote
 *
 * Bind each module once, and again after rsvm_stop(): kernels know the regions by a variable of their module. A program that launches by <<<>>>
 * gets the module (CUmodule) of a kernel by
 *
 *     cudaGetFuncBySymbol(&function, (const void *)kernel);
 *     cuFuncGetModule(&module, function);
 *
 * or loads it as a cudaLibrary_t, of which cuLibraryGetModule() has it. Files that nvcc compiles with -rdc=true and links are one module: only one of
 * them may include gvmem/device/rsvm.h, as each that does defines the variable.
 *
 * The names and arguments are those of F. Ji, H. Lin, X. Ma, "RSVM: a Region-based Software Virtual Memory for GPU", PACT
 * 2013, as their slides have them. What these leave out: rsvm_start(), which chooses device and budget, rsvm_bind(), the pitches, and
 * rgn_coll_delete(). A map by the CPU is always complete: its last two arguments may be NULL.
 *
 * Each rgn_create_cpu() makes a collection of one region, which takes at least 2 MiB of device memory for its table, 2 MiB of pinned host
 * memory, and a chunk of frames of 2 MiB; rgn_coll_create() makes two, one of them for the metadata. So many small regions belong in a
 * collection.
 *
 * Threads: maps, unmaps and rsvm_sync() from any; creation, deletion, start and stop from one at a time.
 * Ownership: the process has one space, which all its files that include this header share, and which owns all.
 * Errors: RGN_NONE or NULL in place of a number or a pointer; the others return a status; gvm_error_last() has the
 * text. Besides GVM_E_INVALID, for numbers that are wrong, there are those of the calls of gvmem/region.h.
 */
#ifndef GVMEM_RSVM_H
#define GVMEM_RSVM_H

#include <stdlib.h>
#include <string.h>

#include <gvmem/buffer.h>
#include <gvmem/region.h>
#include <gvmem/rsvm_view.h>

#define RSVM_CALL static inline __attribute__((unused))
#define RSVM_PART RSVM_CALL /* a function that the calls below use; programs do not */

#ifdef __cplusplus
struct rsvm_pointer_cpu { /* C converts void pointers to others, C++ does not */
    void *address;
    template <typename type> operator type *() const
    {
        return static_cast<type *>(address);
    }
};
#define RSVM_POINTER_CPU(address) (rsvm_pointer_cpu{address})
extern "C" {
#else
typedef void *rsvm_pointer_cpu;
#define RSVM_POINTER_CPU(address) (address)
#endif

/* ---- the one space */

typedef struct rsvm_member {
    gvm_collection *collection; /* NULL: the number is free */
    rgn_coll_id id;             /* if it is free: of the last one that had it */
    rgn_id meta;                /* of a collection; RGN_NONE: a region of its own, or metadata */
    int is_meta;
} rsvm_member;

typedef struct rsvm_space {
    gvm_device *device;
    gvm_space *space;     /* NULL: not started */
    gvm_buffer *table;    /* rsvm_table, for kernels */
    rsvm_member *members; /* RSVM_COLLECTIONS_MAX */
    int owns_device;
    int has_module; /* one is bound */
} rsvm_space;

extern rsvm_space rsvm_the_space;
__attribute__((weak)) rsvm_space rsvm_the_space; /* one, in however many files */

/* Destroys all regions and the space. */
RSVM_CALL void rsvm_stop(void)
{
    rsvm_space *s = &rsvm_the_space;

    gvm_space_destroy(s->space);
    gvm_buffer_destroy(s->table);
    if (s->owns_device)
        gvm_device_close(s->device);
    free(s->members);
    memset(s, 0, sizeof *s);
}

RSVM_PART gvm_status rsvm_make_space(rsvm_space *s, gvm_device *device, const gvm_space_options *options)
{
    const unsigned char zero = 0;
    gvm_status status = GVM_OK;

    s->device = device;
    if (device == NULL) {
        status = gvm_device_open(0, &s->device);
        s->owns_device = status == GVM_OK;
    }
    s->members = (rsvm_member *)calloc(RSVM_COLLECTIONS_MAX, sizeof *s->members);
    if (status == GVM_OK && s->members == NULL)
        status = gvm_error_set(GVM_E_NOMEM, "out of host memory for %u collections",
                               RSVM_COLLECTIONS_MAX);
    if (status == GVM_OK)
        status = gvm_buffer_create(s->device, sizeof(rsvm_table), NULL, &s->table);
    if (status == GVM_OK)
        status = gvm_buffer_commit(s->table, 0, sizeof(rsvm_table));
    if (status == GVM_OK)
        status = gvm_buffer_fill(s->table, 0, sizeof(rsvm_table), &zero, 1);
    return status == GVM_OK ? gvm_space_create(s->device, options, &s->space) : status;
}

/* Makes the space: on a device, which stays open until rsvm_stop() (NULL: device 0), with a budget and a time to wait (NULL:
 * defaults). Without this call the first region does, with defaults. */
RSVM_CALL GVM_CHECKED gvm_status rsvm_start(gvm_device *device, const gvm_space_options *options)
{
    gvm_error error;
    gvm_status status;

    if (rsvm_the_space.space != NULL)
        return gvm_error_set(GVM_E_INVALID, "the process has a space already: call rsvm_stop() first");
    status = rsvm_make_space(&rsvm_the_space, device, options);
    if (status == GVM_OK)
        return GVM_OK;
    (void)gvm_error_last(&error);
    rsvm_stop();
    gvm_error_restore(&error);
    return status;
}

RSVM_PART gvm_status rsvm_need_space(void)
{
    return rsvm_the_space.space != NULL ? GVM_OK : rsvm_start(NULL, NULL);
}

/* Stores in a module (CUmodule) where the table of regions is, for its kernels.
 *
 * GVM_E_DRIVER  also: no kernel of the module includes gvmem/device/rsvm.h */
RSVM_CALL GVM_CHECKED gvm_status rsvm_bind(void *module)
{
    static const char *const names[] = {"cuModuleGetGlobal_v2", "cuMemcpyHtoD_v2"};
    int (*get_global)(uint64_t * address, size_t * size, void *module, const char *name);
    int (*copy_in)(uint64_t to, const void *from, size_t size);
    void (*calls[2])(void);
    uint64_t address, variable;
    gvm_status status = rsvm_need_space();
    int result;

    if (status == GVM_OK)
        status = gvm_device_push_context(rsvm_the_space.device);
    if (status != GVM_OK)
        return status;
    status = gvm_driver_get_call(names[0], &calls[0]);
    if (status == GVM_OK)
        status = gvm_driver_get_call(names[1], &calls[1]);
    if (status == GVM_OK) {
        memcpy(&get_global, &calls[0], sizeof get_global);
        memcpy(&copy_in, &calls[1], sizeof copy_in);
        address = (uint64_t)(uintptr_t)gvm_buffer_address(rsvm_the_space.table);
        result = get_global(&variable, NULL, module, "rsvm_address");
        if (result != 0)
            status = gvm_driver_error(
                result, names[0],
                "a module without gvmem/device/rsvm.h has no use of regions by number");
        else if ((result = copy_in(variable, &address, sizeof address)) != 0)
            status = gvm_driver_error(result, names[1], "cannot tell a module where regions are");
        else
            rsvm_the_space.has_module = 1;
    }
    gvm_device_pop_context();
    return status;
}

/* ---- numbers */

/* The collection of an id, or NULL. */
RSVM_PART rsvm_member *rsvm_find_member(rgn_id id)
{
    const uint32_t at = RSVM_COLLECTION(id);
    rsvm_member *member = NULL;

    if (rsvm_the_space.space != NULL && at < RSVM_COLLECTIONS_MAX)
        member = &rsvm_the_space.members[at];
    if (id != RGN_NONE && member != NULL && member->collection != NULL && member->id == RSVM_FIRST(id))
        return member;
    (void)gvm_error_set(GVM_E_INVALID, "no region or collection has the number 0x%llx",
                        (unsigned long long)id);
    return NULL;
}

/* A number that is free, and was not given away too often. */
RSVM_PART rsvm_member *rsvm_free_member(void)
{
    for (uint32_t i = 0; i < RSVM_COLLECTIONS_MAX; i++) {
        rsvm_member *member = &rsvm_the_space.members[i];

        if (member->collection == NULL && member->id >> 48 < 0xffff)
            return member;
    }
    (void)gvm_error_set(GVM_E_LIMIT, "there are %u collections and regions of their own",
                        RSVM_COLLECTIONS_MAX);
    return NULL;
}

RSVM_PART gvm_status rsvm_tell_kernels(const rsvm_member *member, const rsvm_entry *entry)
{
    const uint64_t at = (uint64_t)(member - rsvm_the_space.members);

    return gvm_buffer_copy_in(rsvm_the_space.table, offsetof(rsvm_table, entries) + at * sizeof *entry,
                              entry, sizeof *entry);
}

RSVM_PART void rsvm_remove(rsvm_member *member)
{
    rsvm_entry none;

    memset(&none, 0, sizeof none);
    (void)rsvm_tell_kernels(member, &none);
    gvm_collection_destroy(member->collection);
    member->collection = NULL;
}

/* Gives a collection a number, or destroys it. meta: its metadata, or RGN_NONE. */
RSVM_PART rgn_coll_id rsvm_add(gvm_collection *collection, rgn_id meta)
{
    rsvm_member *member = rsvm_free_member();
    rsvm_entry entry;
    gvm_error error;

    memset(&entry, 0, sizeof entry);
    if (member != NULL && gvm_collection_get_view(collection, &entry.view) == GVM_OK) {
        entry.id = ((member->id >> 48) + 1) << 48 | (uint64_t)(member - rsvm_the_space.members) << 32;
        entry.meta = meta;
        if (rsvm_tell_kernels(member, &entry) == GVM_OK) {
            member->collection = collection;
            member->id = entry.id;
            member->meta = meta;
            member->is_meta = 0;
            return member->id;
        }
    }
    (void)gvm_error_last(&error);
    gvm_collection_destroy(collection);
    gvm_error_restore(&error);
    return RGN_NONE;
}

/* ---- regions */

/* A region of its own, all zeros. RGN_NONE: it cannot be made. */
RSVM_CALL rgn_id rgn_create_cpu(uint64_t size_bytes)
{
    gvm_collection *collection;

    if (rsvm_need_space() != GVM_OK ||
        gvm_collection_create(rsvm_the_space.space, 1, size_bytes, NULL, &collection) != GVM_OK)
        return RGN_NONE;
    return rsvm_add(collection, RGN_NONE);
}

/* Maps a region for the CPU. NULL: it cannot be mapped. */
RSVM_CALL rsvm_pointer_cpu rgn_map_cpu(rgn_id id, rgn_op op, int *complete, int *req)
{
    const rsvm_member *member = rsvm_find_member(id);
    void *pointer = NULL;

    if (complete != NULL)
        *complete = 1;
    if (req != NULL)
        *req = 0;
    if (member == NULL ||
        gvm_region_map_cpu(member->collection, RSVM_REGION(id), (uint32_t)op, &pointer) != GVM_OK)
        pointer = NULL;
    return RSVM_POINTER_CPU(pointer);
}

/* GVM_E_INVALID  there is no such region, or the CPU has not mapped it */
RSVM_CALL GVM_CHECKED gvm_status rgn_unmap_cpu(rgn_id id)
{
    const rsvm_member *member = rsvm_find_member(id);

    return member != NULL ? gvm_region_unmap_cpu(member->collection, RSVM_REGION(id)) : GVM_E_INVALID;
}

/* Bytes from one row of a region to the next, as the CPU maps it. 0: there is no such region. */
RSVM_CALL uint64_t rgn_pitch_cpu(rgn_id id)
{
    const rsvm_member *member = rsvm_find_member(id);
    gvm_collection_info info;

    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    if (member == NULL || gvm_collection_get_info(member->collection, &info) != GVM_OK)
        return 0;
    return info.shape.width_bytes != 0 ? info.shape.row_pitch_bytes : info.region_bytes;
}

/* Deletes a region. One of a collection stays in its metadata, and kernels may use it until the next sync; the number of one that
 * rgn_create_cpu() has made ends at once. */
RSVM_CALL gvm_status rgn_delete(rgn_id id)
{
    rsvm_member *member = rsvm_find_member(id);

    if (member == NULL)
        return GVM_E_INVALID;
    if (member->is_meta)
        return gvm_error_set(GVM_E_INVALID,
                             "region 0x%llx is metadata, and deleted with its collection",
                             (unsigned long long)id);
    if (member->meta != RGN_NONE || RSVM_REGION(id) != 0)
        return gvm_region_delete(member->collection, RSVM_REGION(id));
    rsvm_remove(member);
    return GVM_OK;
}

/* ---- collections */

/* What an array of size_bytes that has height rows of stride elements is cut into: regions of width elements of each row. The
 * size of an element follows from that. One row: regions without a shape. */
RSVM_PART gvm_status rsvm_read_shape(uint64_t size_bytes, uint64_t num_rgns, uint64_t stride,
                                     uint64_t width, uint64_t height, gvm_region_shape *shape,
                                     uint64_t *rgn_bytes)
{
    uint64_t element_bytes;

    if (num_rgns == 0 || width == 0 || height == 0 || height > UINT32_MAX ||
        stride / width < num_rgns || size_bytes % height != 0 || size_bytes / height < stride ||
        size_bytes / height % stride != 0)
        return gvm_error_set(
            GVM_E_INVALID,
            "%llu bytes are not %llu rows of %llu elements, with room for %llu regions %llu wide",
            (unsigned long long)size_bytes, (unsigned long long)height, (unsigned long long)stride,
            (unsigned long long)num_rgns, (unsigned long long)width);
    element_bytes = size_bytes / height / stride;
    *rgn_bytes = width * element_bytes * height;
    memset(shape, 0, sizeof *shape);
    if (height > 1) {
        shape->width_bytes = width * element_bytes;
        shape->height = (uint32_t)height;
        shape->row_pitch_bytes = stride * element_bytes;
    }
    return GVM_OK;
}

/* A region for metadata. It is never evicted, for which it has a budget of its own: so kernels need not keep it mapped. */
RSVM_PART rgn_id rsvm_create_meta(uint64_t num_rgns)
{
    const uint64_t size_bytes = offsetof(struct rgn_coll_data, rgns) + num_rgns * sizeof(rgn_id);
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *collection;

    options.policy = GVM_REGION_STATIC;
    options.budget_bytes = (size_bytes + 15) & ~(uint64_t)15; /* as much as its frame takes */
    if (gvm_collection_create(rsvm_the_space.space, 1, size_bytes, &options, &collection) != GVM_OK)
        return RGN_NONE;
    return rsvm_add(collection, RGN_NONE);
}

RSVM_PART gvm_status rsvm_fill_meta(rgn_id meta_id, rgn_coll_id id, uint64_t num_rgns, uint64_t rgn_bytes)
{
    rsvm_member *member = rsvm_find_member(meta_id);
    struct rgn_coll_data *meta;
    void *pointer;
    gvm_status status = gvm_region_map_cpu(member->collection, 0, GVM_REGION_WRITE, &pointer);

    if (status != GVM_OK)
        return status;
    member->is_meta = 1;
    meta = (struct rgn_coll_data *)pointer;
    meta->num_rgns = num_rgns;
    meta->rgn_bytes = rgn_bytes;
    for (uint64_t i = 0; i < num_rgns; i++)
        meta->rgns[i] = id + i;
    return gvm_region_unmap_cpu(member->collection, 0);
}

/* Deletes a collection with all its regions, and its metadata. */
RSVM_CALL gvm_status rgn_coll_delete(rgn_coll_id id)
{
    rsvm_member *member = rsvm_find_member(id);

    if (member == NULL)
        return GVM_E_INVALID;
    if (member->meta == RGN_NONE || member->id != id)
        return gvm_error_set(GVM_E_INVALID, "0x%llx is a region, no collection",
                             (unsigned long long)id);
    rsvm_remove(&rsvm_the_space.members[RSVM_COLLECTION(member->meta)]);
    rsvm_remove(member);
    return GVM_OK;
}

/* A collection of num_rgns regions, all zeros: an array of size_bytes that has height rows of stride elements; region i is
 * the width elements of each row from i * width on. Where height is more than 1, width and stride are multiples of 16
 * bytes. RGN_NONE: it cannot be made. */
RSVM_CALL rgn_coll_id rgn_coll_create(uint64_t size_bytes, uint64_t num_rgns, uint64_t stride,
                                      uint64_t width, uint64_t height)
{
    gvm_collection_options options = gvm_collection_options_init();
    gvm_collection *collection;
    rgn_coll_id id = RGN_NONE;
    rgn_id meta;
    uint64_t rgn_bytes = 0;
    gvm_error error;

    if (rsvm_need_space() != GVM_OK || rsvm_read_shape(size_bytes, num_rgns, stride, width, height,
                                                       &options.shape, &rgn_bytes) != GVM_OK)
        return RGN_NONE;
    meta = rsvm_create_meta(num_rgns);
    if (meta == RGN_NONE)
        return RGN_NONE;
    if (gvm_collection_create(rsvm_the_space.space, num_rgns, rgn_bytes, &options, &collection) == GVM_OK)
        id = rsvm_add(collection, meta);
    if (id != RGN_NONE && rsvm_fill_meta(meta, id, num_rgns, rgn_bytes) == GVM_OK)
        return id;
    (void)gvm_error_last(&error);
    if (id != RGN_NONE)
        rsvm_remove(rsvm_find_member(id));
    rsvm_remove(rsvm_find_member(meta));
    gvm_error_restore(&error);
    return RGN_NONE;
}

/* The metadata of a collection, for as long as it exists. NULL: there is no such collection. */
RSVM_CALL rgn_coll_meta rgn_coll_get_meta_cpu(rgn_coll_id id)
{
    const rsvm_member *member = rsvm_find_member(id);
    void *pointer = NULL;

    if (member == NULL)
        return NULL;
    pointer = (void *)rgn_map_cpu(member->meta, rgn_op_readonly, NULL, NULL);
    return pointer != NULL && rgn_unmap_cpu(member->meta) == GVM_OK ? (rgn_coll_meta)pointer : NULL;
}

/* ---- exchange */

/* Waits for kernels in the legacy default stream; from then on they and the CPU see what the other side has written.
 *
 * GVM_E_INVALID  also: a kernel has used a number that no region has; no module was bound, so that kernels find no region */
RSVM_CALL GVM_CHECKED gvm_status rsvm_sync(void)
{
    const uint64_t none = 0;
    uint64_t wrong = 0;
    gvm_status status = rsvm_need_space();

    if (status != GVM_OK)
        return status;
    if (!rsvm_the_space.has_module)
        return gvm_error_set(GVM_E_INVALID, "no module was bound since the space was made: kernels find no "
                                            "region by its number; call rsvm_bind()");
    status = gvm_space_sync(rsvm_the_space.space, NULL);
    if (status != GVM_OK)
        return status;
    status = gvm_buffer_copy_out(&wrong, rsvm_the_space.table, offsetof(rsvm_table, error),
                                 sizeof wrong);
    if (status != GVM_OK || wrong == 0)
        return status;
    status = gvm_buffer_copy_in(rsvm_the_space.table, offsetof(rsvm_table, error), &none, sizeof none);
    if (status != GVM_OK)
        return status;
    return gvm_error_set(GVM_E_INVALID, "a kernel has used the number 0x%llx, which no region has",
                         (unsigned long long)wrong);
}

#ifdef __cplusplus
}
#endif
#endif
