/* Homes that several processes, or several spaces of one, have in common: who has changed what.
 *
 * Each region has a version in memory that all of them map, and so has each block of regions. A sync writes home what kernels have
 * changed here, adds 1 to the versions of that, and then to those of their blocks. It looks for blocks, and in them for regions, whose
 * versions are not those of its last look: others have changed them, so frames here are stale.
 *
 * I1  a version is raised when the region's data is at home, and not before.
 * I2  a block's version is raised after those of its regions, and looked at before them: a change that a look misses, a later
 *     look finds.
 * I3  seen_versions[r] is the version that frames here had when they were fetched, or an earlier one; while r is UNTOLD or
 *     WRITING it stays, so that raising r's version shows whether others have raised it meanwhile.
 *
 * Nothing here waits for another process: there are no locks in that memory, and a process that ends in the middle leaves it valid. What such
 * a process wrote home without raising versions is not known, so the others drop all that they have in frames.
 */
#include <stdlib.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/registry.h"
#include "base/size.h"
#include "region/region.h"

static uint64_t block_count(uint64_t count)
{
    return (count + GVMI_HOMES_BLOCK - 1) / GVMI_HOMES_BLOCK;
}

uint64_t gvmi_homes_tail_bytes(uint64_t count)
{
    return sizeof(gvmi_homes_head) + (block_count(count) + count) * sizeof(uint32_t);
}

/* ---- begin and end */

/* Blocks first: I2. Nothing is in frames yet, so whatever the versions are, they are new enough. */
static void see_all(gvmi_homes *homes, uint64_t count)
{
    homes->seen_abandoned = atomic_load(&homes->head->abandoned);
    for (uint64_t b = 0; b < block_count(count); b++)
        homes->seen_blocks[b] = atomic_load(&homes->blocks[b]);
    for (uint64_t r = 0; r < count; r++)
        homes->seen_versions[r] = atomic_load(&homes->versions[r]);
}

gvm_status gvmi_homes_map(gvm_collection *c)
{
    gvmi_homes *homes = c->homes;
    const uint64_t first = gvmi_chunk_at(c->buffer, c->front_bytes);
    const uint64_t blocks = block_count(c->table.count);
    uint64_t bytes;
    gvm_status status;

    homes->seen_blocks = calloc(blocks, sizeof *homes->seen_blocks);
    homes->seen_versions = calloc(c->table.count, sizeof *homes->seen_versions);
    if (homes->seen_blocks == NULL || homes->seen_versions == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for versions of %u regions",
                             c->table.count);
    status = gvmi_buffer_alias(c->buffer, first, homes->buffer,
                               (homes->bytes - 1) / c->buffer->layout.chunk_bytes + 1);
    if (status == GVM_OK)
        status = gvmi_buffer_open_to_cpu(c->buffer, &bytes);
    if (status != GVM_OK)
        return status;
    homes->head = gvmi_pointer(gvmi_address(gvm_buffer_address(c->buffer)) + c->front_bytes +
                               homes->head_at);
    homes->blocks = (_Atomic uint32_t *)(homes->head + 1);
    homes->versions = homes->blocks + blocks;
    homes->seen_ended = homes->ended;
    see_all(homes, c->table.count);
    return GVM_OK;
}

/* It is in no list before it is unmapped. */
static bool is_written_by_cpu(const gvm_collection *c)
{
    for (uint32_t r = 0; r < c->table.count; r++)
        if ((c->regions[r].flags & GVMI_REGION_WRITING) != 0)
            return true;
    return false;
}

/* Did kernels or the CPU write anything since the last sync, or was that not exchanged? */
static bool has_untold(gvm_collection *c)
{
    gvm_region_table table;

    return c->untold.count > 0 || is_written_by_cpu(c) ||
           gvmi_region_read_table(c, &table) != GVM_OK || table.change_count != c->collected;
}

void gvmi_homes_leave(gvm_collection *c)
{
    if (has_untold(c))
        atomic_fetch_add(&c->homes->head->abandoned, 1);
}

void gvmi_homes_free(gvmi_homes *homes)
{
    free(homes->seen_blocks);
    free(homes->seen_versions);
    homes->release(homes);
}

/* ---- processes that have ended */

static gvm_collection *find_unasked_locked(gvm_space *space, uint64_t round)
{
    gvm_collection *c;

    LIST_FOREACH(c, &space->collections, entry)
    {
        if (c->homes != NULL && c->homes->asked < round)
            return c;
    }
    return NULL;
}

/* Of two threads that ask at the same time, the answer to the later question stays. */
static void note_answer_locked(gvmi_homes *homes, uint64_t round, gvmi_homes_ended ended,
                               gvm_status status)
{
    if (homes->asked >= round)
        return;
    homes->asked = round;
    homes->ended = ended;
    homes->failure.status = GVM_OK;
    if (status != GVM_OK)
        homes->failure = gvmi_error_save();
}

/* A question that another thread has asked, and that has no answer yet, is asked again: what is known of the ends of processes is not older than
 * this call. */
void gvmi_homes_ask(gvm_space *space)
{
    const int64_t deadline_ns = gvmi_now_ns() + (int64_t)space->wait_ns;
    gvm_collection *c;
    uint64_t round;
    void *held;

    gvmi_lock(&space->lock);
    round = ++space->asked;
    while ((c = find_unasked_locked(space, round)) != NULL) {
        gvmi_homes_ended ended = c->homes->ended;
        gvm_status status;

        if (gvmi_registry_hold(GVMI_KIND_COLLECTION, gvmi_key(c), &held) != GVM_OK) {
            c->homes->asked = round; /* it is being destroyed */
            continue;
        }
        gvmi_unlock(&space->lock);
        status = c->homes->ask(c->homes, deadline_ns, &ended);
        gvmi_lock(&space->lock);
        note_answer_locked(c->homes, round, ended, status);
        gvmi_registry_drop(GVMI_KIND_COLLECTION, gvmi_key(c));
    }
    gvmi_unlock(&space->lock);
}

/* Has somebody ended, or left, who may have written regions without raising versions? */
static bool is_damaged(const gvmi_homes *homes, uint32_t abandoned)
{
    return homes->ended.count != homes->seen_ended.count || homes->ended.may_write ||
           homes->seen_ended.may_write || abandoned != homes->seen_abandoned;
}

/* ---- what was changed here */

/* What frames have of it is not to be used any more; there is room in the list. */
static void drop_frame_of(gvm_collection *c, uint32_t region)
{
    if ((c->regions[region].flags & GVMI_REGION_CHANGED) == 0)
        gvmi_region_note_change(c, region);
}

static void raise_version(gvm_collection *c, uint32_t region)
{
    gvmi_homes *homes = c->homes;
    const uint32_t before = atomic_fetch_add(&homes->versions[region], 1);

    if (before != homes->seen_versions[region]) { /* others did so, and did not see this */
        drop_frame_of(c, region);
        if (c->torn == 0) {
            c->torn = region + 1;
            c->torn_by = "here and by another process or space";
        }
    }
    homes->seen_versions[region] = before + 1;
    atomic_fetch_add(&homes->blocks[region / GVMI_HOMES_BLOCK], 1);
    homes->seen_blocks[region / GVMI_HOMES_BLOCK]++; /* still behind if others raised it */
}

/* Those that are not home yet stay in the list. */
static gvm_status raise_versions(gvm_collection *c)
{
    gvm_status status = gvmi_region_numbers_make_room(&c->changed, c->untold.count);
    uint64_t kept = 0;

    if (status != GVM_OK)
        return status;
    for (uint64_t i = 0; i < c->untold.count; i++) {
        const uint32_t region = c->untold.numbers[i];

        if ((c->regions[region].flags & (GVMI_REGION_FAR | GVMI_REGION_WRITING)) != 0) {
            c->untold.numbers[kept++] = region;
            continue;
        }
        c->regions[region].flags &= (uint16_t)~GVMI_REGION_UNTOLD;
        raise_version(c, region);
    }
    c->untold.count = kept;
    return GVM_OK;
}

/* ---- what was changed elsewhere */

static void look_at_region(gvm_collection *c, uint32_t region)
{
    const uint32_t version = atomic_load(&c->homes->versions[region]);

    if ((c->regions[region].flags & (GVMI_REGION_UNTOLD | GVMI_REGION_WRITING)) != 0 ||
        version == c->homes->seen_versions[region])
        return;
    c->homes->seen_versions[region] = version;
    drop_frame_of(c, region);
}

/* all: also in blocks whose versions are those seen: who died between the two additions has raised the region's alone. */
static gvm_status look_at_blocks(gvm_collection *c, bool all)
{
    gvmi_homes *homes = c->homes;
    const uint32_t count = c->table.count;
    gvm_status status = GVM_OK;

    for (uint64_t b = 0; b < block_count(count) && status == GVM_OK; b++) {
        const uint32_t first = (uint32_t)b * GVMI_HOMES_BLOCK;
        const uint32_t end = (uint32_t)gvmi_min(count, (uint64_t)first + GVMI_HOMES_BLOCK);
        const uint32_t seen = atomic_load(&homes->blocks[b]);

        if (seen == homes->seen_blocks[b] && !all)
            continue;
        status = gvmi_region_numbers_make_room(&c->changed, end - first);
        if (status != GVM_OK)
            break;
        homes->seen_blocks[b] = seen;
        for (uint32_t r = first; r < end; r++)
            look_at_region(c, r);
    }
    return status;
}

/* Any home may have changed: all frames whose regions are not changed here are dropped. *mapped: those that kernels have mapped
 * stay, and the next sync tries again. */
static gvm_status drop_clean_frames(gvm_collection *c, CUstream stream, uint64_t *mapped)
{
    const gvmi_region_task task = {
        .kernel = GVMI_KERNEL_region_drop,
        .count = c->table.count,
        .by_warp = c->table.sums != 0,
    };

    gvm_status status = gvmi_region_cleaner_stop(c, stream);

    if (status == GVM_OK)
        status = gvmi_region_run(c, &task, stream, mapped);
    return gvmi_region_cleaner_resume(c, status);
}

static gvm_status look(gvm_collection *c, CUstream stream, uint64_t *mapped)
{
    gvmi_homes *homes = c->homes;
    const uint32_t abandoned = atomic_load(&homes->head->abandoned);
    const bool damaged = is_damaged(homes, abandoned);
    uint64_t left = 0;
    gvm_status status = GVM_OK;

    if (damaged)
        status = drop_clean_frames(c, stream, &left);
    if (status == GVM_OK && left == 0) {
        homes->seen_abandoned = abandoned;
        homes->seen_ended = homes->ended;
    }
    *mapped += left;
    return status == GVM_OK ? look_at_blocks(c, damaged) : status;
}

gvm_status gvmi_homes_exchange(gvm_collection *c, CUstream stream, uint64_t *mapped)
{
    gvm_status status = GVM_OK;

    *mapped = 0;
    if (c->far.count > 0)
        status = gvmi_region_bring_home(c, stream, mapped);
    if (status == GVM_OK)
        status = raise_versions(c);
    return status == GVM_OK ? look(c, stream, mapped) : status;
}

gvm_status gvmi_homes_failure(const gvm_collection *c)
{
    if (c->homes == NULL || c->homes->failure.status == GVM_OK)
        return GVM_OK;
    gvm_error_restore(&c->homes->failure);
    return c->homes->failure.status;
}
