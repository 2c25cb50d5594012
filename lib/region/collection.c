/* Collections: what they consist of, creation, questions, end. */
#include <stdlib.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "base/struct.h"
#include "region/region.h"

#define SLOTS_MAX (1ull << GVM_REGION_SLOT_BITS)
#define STRIDE_UNIT 16u
#define REGION_BYTES_MAX \
    (((1ull << 31) - 1) * STRIDE_UNIT) /* kernels count units in 32 bits with a sign */
#define CHUNKS_WANTED 16u              /* of the frames: what the budget is divided by */

/* ---- options */

/* And sets the default of the higher one. */
static gvm_status check_watermarks(gvm_collection_options *options)
{
    if (options->clean_high == 0)
        options->clean_high = options->clean_low > 50 ? 100 : 2 * options->clean_low;
    if (options->clean_low > options->clean_high || options->clean_high > 100 ||
        (options->clean_low == 0 && options->clean_high != 0))
        return gvm_error_set(GVM_E_INVALID,
                             "clean_low %u and clean_high %u are no watermarks in percent, the lower one "
                             "first, or 0 and 0",
                             (unsigned)options->clean_low, (unsigned)options->clean_high);
    if (options->clean_low != 0 && options->shape.width_bytes != 0)
        return gvm_error_set(GVM_E_INVALID, "regions with a shape are not cleaned: clean_low is %u",
                             (unsigned)options->clean_low);
    return GVM_OK;
}

static gvm_status check_policy(gvm_region_policy policy)
{
    return (uint32_t)policy <= GVM_REGION_STATIC
               ? GVM_OK
               : gvm_error_set(GVM_E_INVALID, "there is no policy %d for regions", (int)policy);
}

gvm_status gvmi_collection_read_options(const gvm_collection_options *options,
                                        gvm_collection_options *full)
{
    gvm_status status;

    if (!gvmi_struct_in(full, sizeof *full, options, sizeof *full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if (full->flags != 0)
        return gvm_error_set(GVM_E_INVALID, "unknown collection flags %#x", (unsigned)full->flags);
    status = check_policy(full->policy);
    return status == GVM_OK ? check_watermarks(full) : status;
}

static gvm_status check_region_count(uint64_t count)
{
    if (count == 0 || count >= SLOTS_MAX)
        return gvm_error_set(GVM_E_INVALID, "a collection has between 1 and %llu regions, not %llu",
                             (unsigned long long)SLOTS_MAX - 1, (unsigned long long)count);
    return GVM_OK;
}

static gvm_status check_region_bytes(uint64_t count, uint64_t region_bytes)
{
    if (region_bytes > REGION_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "a region has at most %llu bytes, not %llu",
                             REGION_BYTES_MAX, (unsigned long long)region_bytes);
    if (region_bytes == 0 || region_bytes > GVMI_SPAN_BYTES_MAX / count)
        return gvm_error_set(GVM_E_INVALID, "%llu regions of %llu bytes are none, or more than 128 TiB",
                             (unsigned long long)count, (unsigned long long)region_bytes);
    return GVM_OK;
}

static gvm_status measure(gvm_collection *c, const gvm_region_shape *shape, uint64_t count,
                          uint64_t *region_bytes)
{
    gvm_status status = gvmi_region_set_shape(c, shape, count, region_bytes);

    if (status == GVM_OK)
        status = check_region_bytes(count, *region_bytes);
    if (status == GVM_OK && c->homes_bytes == 0)
        c->homes_bytes = count * gvmi_round_up(*region_bytes, STRIDE_UNIT);
    return status;
}

gvm_status gvmi_collection_measure(uint64_t count, uint64_t *region_bytes, gvm_region_shape *shape,
                                   uint64_t *homes_bytes)
{
    gvm_status status = check_region_count(count);
    gvm_collection *c;

    if (status != GVM_OK)
        return status;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a collection");
    status = measure(c, shape, count, region_bytes);
    *shape = c->table.shape;
    *homes_bytes = c->homes_bytes;
    free(c);
    return status;
}

/* ---- layout */

static uint64_t choose_region_chunk_bytes(const gvm_device *device, uint64_t frame_bytes)
{
    uint64_t bytes = gvmi_pow2_up(frame_bytes / CHUNKS_WANTED);

    bytes = gvmi_min(gvmi_max(bytes, GVM_CHUNK_BYTES_MIN), 64 * GVMI_MIB);
    return gvmi_max(bytes, device->info.granularity_bytes);
}

/* Where frames and homes lie: the table's fields that say so, and the buffer. Homes of others begin with a chunk, so that it is
 * the frames that may begin within one. */
static gvm_status make_layout(gvm_collection *c, uint64_t count, uint64_t region_bytes)
{
    const gvm_space *space = c->space;
    const uint64_t stride = gvmi_round_up(region_bytes, STRIDE_UNIT);
    const uint64_t budget = c->budget_bytes != 0 ? c->budget_bytes : space->budget_bytes;
    const uint64_t frames = gvmi_min(count, budget / stride);
    gvmi_buffer_spec spec = {
        .chunk_bytes = c->homes != NULL ? c->homes->buffer->layout.chunk_bytes
                                        : choose_region_chunk_bytes(space->device, frames * stride)};
    uint64_t home;

    c->front_bytes = gvmi_round_up(frames * stride, spec.chunk_bytes);
    c->front_at = c->homes != NULL ? c->front_bytes % stride : 0;
    c->frames_max = frames;
    home = (c->front_bytes - c->front_at + stride - 1) / stride;
    if (home + count >= SLOTS_MAX)
        return gvm_error_set(
            GVM_E_INVALID,
            "%llu regions and %llu frames are more than %llu: give the collection a smaller budget",
            (unsigned long long)count, (unsigned long long)frames, (unsigned long long)SLOTS_MAX - 1);
    c->table.stride_bytes = stride;
    c->table.region_bytes = region_bytes;
    c->table.count = (uint32_t)count;
    c->table.home = (uint32_t)home;
    c->table.layout = GVM_REGION_LAYOUT;
    c->table.wait_ns = space->wait_ns;
    c->table.change_shift = (uint32_t)__builtin_ctzll(gvmi_pow2_up(2 * count));
    spec.reserve_bytes = c->front_at + home * stride +
                         (c->homes != NULL ? c->homes->bytes : c->homes_bytes);
    return gvmi_buffer_create(space->device, &spec, &c->buffer);
}

/* Homes: chunks of the host, open to the CPU as well. */
static gvm_status make_homes(gvm_collection *c)
{
    gvm_buffer *buffer = c->buffer;
    const uint64_t first = gvmi_chunk_at(buffer, c->front_bytes);
    uint64_t bytes;
    gvm_status status;

    if (c->homes != NULL)
        return gvmi_homes_map(c);
    gvmi_lock(&buffer->lock);
    status = gvmi_buffer_commit_tier_locked(buffer, first, buffer->chunk_count, GVM_TIER_HOST);
    gvmi_unlock(&buffer->lock);
    return status == GVM_OK ? gvmi_buffer_open_to_cpu(buffer, &bytes) : status;
}

/* ---- the table */

static uint64_t place_array(uint64_t *at, uint64_t base, uint64_t count, uint64_t bytes_each)
{
    const uint64_t offset = gvmi_round_up(*at, 256);

    *at = offset + count * bytes_each;
    return base + offset;
}

/* Where the arrays lie, from an address on; returns how many bytes they take. */
static uint64_t place_arrays(gvm_collection *c, uint64_t base)
{
    gvm_region_table *t = &c->table;
    uint64_t at = sizeof *t;

    t->words = place_array(&at, base, t->count, sizeof(uint64_t));
    t->records = place_array(&at, base, t->count, sizeof(gvm_region_record));
    t->frames = place_array(&at, base, c->frames_max, sizeof(gvm_region_frame));
    t->sums = (c->space->flags & GVM_SPACE_CHECK) != 0
                  ? place_array(&at, base, c->frames_max, sizeof(gvm_region_sum))
                  : 0;
    t->changes = place_array(&at, base, 1ull << t->change_shift, sizeof(uint32_t));
    t->spares = place_array(&at, base, GVM_REGION_SEGMENT, sizeof(uint32_t));
    c->coming_at = place_array(&at, 0, c->frames_max, sizeof(uint64_t));
    t->shares = t->sums == 0 && t->columns == 0 && t->stride_bytes >= 2 * (uint64_t)GVM_REGION_PIECE
                    ? place_array(&at, base, t->count, sizeof(gvm_region_share))
                    : 0;
    return at;
}

/* All regions but the last exist, and no frame has memory. No kernel has seen the table yet. */
static gvm_status fill_table(gvm_collection *c, uint64_t unused_count)
{
    enum { AT_ONCE = 4096 };
    static const gvm_region_record records[AT_ONCE] = {[0 ... AT_ONCE - 1] = {0, GVM_REGION_LIVE}};
    const uint64_t base = gvmi_address(gvm_buffer_address(c->meta));
    const uint8_t zero = 0, retired = 0xff;
    const uint64_t live_count = c->table.count - unused_count;
    const uint32_t *numbers;
    gvm_status status = gvmi_region_give_first(c, &numbers, &c->table.spare_tail);

    if (status == GVM_OK && c->table.spare_tail > 0)
        status = gvm_buffer_copy_in(c->meta, c->table.spares - base, numbers,
                                    c->table.spare_tail * sizeof *numbers);
    if (status == GVM_OK)
        status = gvm_buffer_fill(c->meta, c->table.words - base, c->table.count * sizeof(uint64_t),
                                 &zero, 1);
    if (status == GVM_OK)
        status = gvm_buffer_fill(c->meta, c->table.records - base + live_count * sizeof *records,
                                 unused_count * sizeof *records, &zero, 1);
    for (uint64_t i = 0; i < live_count && status == GVM_OK; i += AT_ONCE)
        status = gvm_buffer_copy_in(c->meta, c->table.records - base + i * sizeof *records, records,
                                    gvmi_min(AT_ONCE, live_count - i) * sizeof *records);
    if (status == GVM_OK)
        status = gvm_buffer_fill(c->meta, c->table.changes - base,
                                 sizeof(uint32_t) << c->table.change_shift, &zero, 1);
    if (status == GVM_OK)
        status = gvm_buffer_fill(c->meta, c->table.frames - base,
                                 c->frames_max * sizeof(gvm_region_frame), &retired, 1);
    if (status == GVM_OK && c->table.shares != 0)
        status = gvm_buffer_fill(c->meta, c->table.shares - base,
                                 c->table.count * sizeof(gvm_region_share), &zero, 1);
    if (status == GVM_OK)
        status = gvm_buffer_copy_in(c->meta, 0, &c->table, sizeof c->table);
    return status;
}

static gvm_status make_table(gvm_collection *c, uint64_t unused_count)
{
    const gvmi_buffer_spec spec = {.reserve_bytes = place_arrays(c, 0)};
    gvm_status status = gvmi_buffer_create(c->space->device, &spec, &c->meta);

    if (status == GVM_OK)
        status = gvm_buffer_commit(c->meta, 0, spec.reserve_bytes);
    if (status != GVM_OK)
        return status;
    c->table.address = gvmi_address(gvm_buffer_address(c->buffer)) + c->front_at;
    c->table.collection = gvmi_key(c);
    c->table.callbacks = gvmi_callback_view(c->space->callbacks);
    (void)place_arrays(c, gvmi_address(gvm_buffer_address(c->meta)));
    return fill_table(c, unused_count);
}

/* ---- creation and end */

static void free_parts(gvm_collection *c)
{
    gvmi_region_cleaner_end(c);
    gvmi_region_brought_end(c);
    gvm_buffer_destroy(c->meta);
    gvm_buffer_destroy(c->buffer);
    gvmi_mutex_destroy(&c->numbers);
    free(c->given.numbers);
    free(c->regions);
    free(c->unused.numbers);
    free(c->changed.numbers);
    free(c->far.numbers);
    free(c->untold.numbers);
}

void gvmi_collection_free_locked(gvm_collection *c)
{
    gvm_space *space = c->space;

    gvmi_region_cleaner_end(c); /* first: what its last copies wrote home, too, others learn of */
    if (c->homes != NULL)
        gvmi_homes_leave(c);
    LIST_REMOVE(c, entry);
    space->collection_count--;
    space->has_changed = true;
    space->committed_bytes -= c->committed_bytes;
    free_parts(c);
}

void gvmi_collection_end(gvm_collection *c)
{
    if (c->homes != NULL)
        gvmi_homes_free(c->homes);
    gvmi_registry_retire(c);
}

static gvm_status serve_callbacks(gvm_space *space)
{
    gvm_status status;

    gvmi_lock(&space->lock);
    status = gvmi_region_serve_callbacks_locked(space);
    gvmi_unlock(&space->lock);
    return status;
}

/* The space is held, and no lock: memory that others keep idle may be had. */
static gvm_status make_collection(gvm_space *space, uint64_t count, uint64_t region_bytes,
                                  const gvm_collection_options *options, gvmi_homes *homes,
                                  gvm_collection **out)
{
    gvm_collection *c = calloc(1, sizeof *c);
    gvm_status status;

    if (c == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a collection");
    c->space = space;
    gvmi_mutex_init(&c->numbers, GVMI_RANK_NUMBERS);
    c->homes = homes;
    c->budget_bytes = options->budget_bytes == GVM_BYTES_NONE
                          ? 1 /* no frame, and not 0, which is no budget of its own */
                          : gvmi_min(options->budget_bytes, space->budget_bytes);
    c->table.policy = (uint32_t)options->policy;
    c->table.clean_low = options->clean_low;
    c->table.clean_high = options->clean_high;
    status = measure(c, &options->shape, count, &region_bytes);
    if (status == GVM_OK)
        status = make_layout(c, count, region_bytes);
    if (status == GVM_OK)
        status = make_homes(c);
    if (status == GVM_OK)
        status = gvmi_region_brought_begin(c);
    if (status == GVM_OK)
        status = gvmi_region_cleaner_begin(c);
    if (status == GVM_OK)
        status = gvmi_region_numbers_make(c, options->unused_count);
    if (status == GVM_OK)
        status = make_table(c, options->unused_count);
    if (status == GVM_OK && options->unused_count > 0)
        status = serve_callbacks(space);
    if (status == GVM_OK)
        status = gvmi_registry_add(GVMI_KIND_COLLECTION, gvmi_key(c), c);
    if (status != GVM_OK) {
        const gvm_error error = gvmi_error_save();

        free_parts(c);
        free(c);
        gvm_error_restore(&error);
        return status;
    }
    gvmi_lock(&space->lock);
    LIST_INSERT_HEAD(&space->collections, c, entry);
    space->collection_count++;
    space->has_changed = true;
    gvmi_unlock(&space->lock);
    gvmi_region_cleaner_join(c);
    *out = c;
    return GVM_OK;
}

gvm_status gvmi_collection_create(gvm_space *handle, uint64_t count, uint64_t region_bytes,
                                  const gvm_collection_options *full, gvmi_homes *homes,
                                  gvm_collection **out)
{
    gvm_space *space;
    gvm_status status = check_region_count(count);

    if (status == GVM_OK && full->unused_count > count)
        status = gvm_error_set(GVM_E_INVALID, "%llu regions of %llu cannot be unused",
                               (unsigned long long)full->unused_count, (unsigned long long)count);
    if (status == GVM_OK)
        status = gvmi_space_hold(handle, &space);
    if (status != GVM_OK)
        return status;
    gvmi_unlock(&space->lock);
    status = make_collection(space, count, region_bytes, full, homes, out);
    if (status == GVM_OK) /* without frames it is as good; the next sync tries again */
        (void)gvmi_space_divide(space, space->device->stream);
    gvmi_registry_drop(GVMI_KIND_SPACE, gvmi_key(space));
    return status;
}

gvm_status gvm_collection_create(gvm_space *space, uint64_t count, uint64_t region_bytes,
                                 const gvm_collection_options *options, gvm_collection **out)
{
    GVMI_UNCANCELLED;
    gvm_collection_options full;
    gvm_status status = gvmi_collection_read_options(options, &full);

    if (status == GVM_OK && out == NULL)
        status = gvm_error_set(GVM_E_INVALID, "out is NULL");
    return status == GVM_OK ? gvmi_collection_create(space, count, region_bytes, &full, NULL, out)
                            : status;
}

void gvm_collection_destroy(gvm_collection *handle)
{
    GVMI_UNCANCELLED;
    gvm_space *space;
    void *removed;
    gvm_error error;

    if (handle == NULL ||
        gvmi_registry_remove(GVMI_KIND_COLLECTION, gvmi_key(handle), &removed) != GVM_OK)
        return;
    error = gvmi_error_save();
    space = ((gvm_collection *)removed)->space;
    gvmi_device_drain(space->device); /* prefetches and lists that were launched use it */
    gvmi_lock(&space->lock);
    gvmi_collection_free_locked(removed);
    gvmi_unlock(&space->lock);
    gvmi_collection_end(removed);
    gvm_error_restore(&error);
}

/* ---- policy */

gvm_status gvm_collection_set_policy(gvm_collection *handle, gvm_region_policy policy)
{
    GVMI_UNCANCELLED;
    gvmi_region_task task = {.kernel = GVMI_KERNEL_region_set_policy, .first = policy};
    gvm_collection *c;
    uint64_t left;
    gvm_status status = check_policy(policy);

    if (status == GVM_OK)
        status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    task.count = c->table.frame_count;
    status = gvmi_region_run(c, &task, c->space->device->stream, &left);
    if (status == GVM_OK)
        c->table.policy = (uint32_t)policy;
    gvmi_collection_drop(c);
    return status;
}

/* ---- questions */

gvm_status gvm_collection_get_view(gvm_collection *handle, gvm_region_view *view)
{
    GVMI_UNCANCELLED;
    gvm_collection *c;
    gvm_status status;

    if (view == NULL)
        return gvm_error_set(GVM_E_INVALID, "view is NULL");
    status = gvmi_collection_hold(handle, &c);
    if (status != GVM_OK)
        return status;
    *view = (gvm_region_view){
        .address = c->table.address,
        .stride_bytes = c->table.stride_bytes,
        .region_bytes = c->table.region_bytes,
        .count = c->table.count,
        .home = c->table.home,
        .flags = ((c->space->flags & GVM_SPACE_CHECK) != 0 ? GVM_REGION_VIEW_CHECKED : 0u) |
                 (c->table.columns != 0 ? GVM_REGION_VIEW_SHAPED : 0u),
        .words = c->table.words,
        .table = gvmi_address(gvm_buffer_address(c->meta)),
    };
    gvmi_collection_drop(c);
    return GVM_OK;
}

gvm_status gvm_collection_get_info(gvm_collection *handle, gvm_collection_info *info)
{
    GVMI_UNCANCELLED;
    gvm_collection_info full = {0};
    gvm_region_table table;
    gvm_collection *c;
    gvm_status status = gvmi_collection_hold(handle, &c);

    if (status != GVM_OK)
        return status;
    status = gvmi_region_read_table(c, &table);
    if (status == GVM_OK)
        full = (gvm_collection_info){
            .region_bytes = table.region_bytes,
            .stride_bytes = table.stride_bytes,
            .region_count = table.count,
            .frame_count = table.frame_count,
            .fetched = table.fetched,
            .written = table.written,
            .evicted = table.evicted,
            .remote = table.remote,
            .cleaned = table.cleaning.written,
            .policy = (gvm_region_policy)table.policy,
            .live_count = c->live_count,
            .shape = table.shape,
        };
    gvmi_collection_drop(c);
    if (status == GVM_OK && !gvmi_struct_out(info, &full, sizeof full, sizeof full))
        return gvm_error_set(GVM_E_INVALID, "info is NULL or its struct_size is too small");
    return status;
}
