/* Homes of regions in objects: making such an object, and attaching it to a space.
 *
 * The object has the homes, and behind them, from a page on, what lib/region/region.h says of homes in common. Its metadata says
 * what the regions are.
 */
#include <stdlib.h>
#include <string.h>

#include <gvmem/region_object.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "base/struct.h"
#include "keeper/client/client.h"
#include "region/region.h"

#define MAGIC 0x6e676572u /* "regn" */
#define VERSION 1u
#define HEAD_ALIGN 4096u
#define OBJECT_CHUNKS_MAX 65536u
#define CHUNKS_ABOUT 64u /* of an object, if it is not too large or small for that */
#define CHUNK_BYTES_LARGE (64 * GVMI_MIB)

/* The metadata. */
typedef struct regions_about {
    uint32_t magic, version;
    uint64_t count, region_bytes;
    gvm_region_shape shape; /* with its defaults */
} regions_about;

_Static_assert(sizeof(regions_about) == 56, "in memory of others");

static uint64_t head_at(uint64_t homes_bytes)
{
    return gvmi_round_up(homes_bytes, HEAD_ALIGN);
}

/* ---- making one */

static uint64_t choose_chunk_bytes(uint64_t bytes)
{
    const uint64_t least = gvmi_pow2_up(bytes / OBJECT_CHUNKS_MAX + 1);
    const uint64_t wanted = gvmi_min(gvmi_pow2_up(bytes / CHUNKS_ABOUT), CHUNK_BYTES_LARGE);

    return gvmi_max(gvmi_max(wanted, least), GVM_CHUNK_BYTES_MIN);
}

gvm_status gvm_region_object_create(gvm_client *client, const char *name, uint64_t count,
                                    uint64_t region_bytes, const gvm_region_shape *shape,
                                    const gvm_object_options *options, gvm_object **out)
{
    GVMI_UNCANCELLED;
    regions_about about = {MAGIC, VERSION, count, region_bytes, {0}};
    gvm_object_options full;
    uint64_t homes_bytes, bytes;
    gvm_status status;

    if (!gvmi_struct_in(&full, sizeof full, options, sizeof full))
        return gvm_error_set(
            GVM_E_INVALID,
            "the options' struct_size is wrong, or they ask for what this version does not know");
    if (shape != NULL)
        about.shape = *shape;
    status = gvmi_collection_measure(count, &about.region_bytes, &about.shape, &homes_bytes);
    if (status != GVM_OK)
        return status;
    bytes = head_at(homes_bytes) + gvmi_homes_tail_bytes(count);
    full.struct_size = sizeof full;
    full.size_bytes = bytes;
    full.metadata = &about;
    full.metadata_bytes = sizeof about;
    full.flags |= GVM_OBJECT_UNTRACKED | GVM_OBJECT_HOST | GVM_OBJECT_REGIONS;
    if (full.chunk_bytes == 0)
        full.chunk_bytes = choose_chunk_bytes(bytes);
    return gvm_object_create(client, name, bytes, &full, out);
}

/* ---- attaching it */

typedef struct object_homes {
    gvmi_homes homes;   /* first */
    gvm_object *object; /* held, with a lease */
} object_homes;

static gvmi_homes_ended ended_by(const gvm_object_info *info)
{
    return (gvmi_homes_ended){.count = info->interrupted, .may_write = info->fenced != 0};
}

static gvm_status ask_keeper(gvmi_homes *homes, int64_t deadline_ns, gvmi_homes_ended *out)
{
    gvm_object_info info;
    gvm_status status = gvmi_client_get_object_info(((object_homes *)homes)->object, deadline_ns,
                                                    &info);

    if (status == GVM_OK)
        *out = ended_by(&info);
    return status;
}

static void release_homes(gvmi_homes *homes)
{
    object_homes *own = (object_homes *)homes;

    gvmi_client_unhold_object(own->object);
    free(own);
}

/* What the object's creator said of it, checked. */
static gvm_status read_about(gvm_object *object, int64_t deadline_ns, regions_about *about,
                             uint64_t *homes_bytes)
{
    uint64_t region_bytes;
    gvm_region_shape shape;
    uint32_t len;
    gvm_status status = gvmi_client_get_metadata(object, deadline_ns, about, sizeof *about, &len);

    if (status != GVM_OK)
        return status;
    if (len < sizeof *about || about->magic != MAGIC)
        return gvm_error_set(GVM_E_FORMAT, "the object was not made by gvm_region_object_create()");
    if (about->version != VERSION)
        return gvm_error_set(GVM_E_VERSION, "the object has regions of version %u, not %u",
                             about->version, VERSION);
    region_bytes = about->region_bytes;
    shape = about->shape;
    status = gvmi_collection_measure(about->count, &region_bytes, &shape, homes_bytes);
    if (status != GVM_OK || region_bytes != about->region_bytes ||
        memcmp(&shape, &about->shape, sizeof shape) != 0)
        return gvm_error_set(GVM_E_FORMAT, "the object's metadata says what regions cannot be");
    return GVM_OK;
}

static gvm_status fail_sealed(void)
{
    return gvm_error_set(GVM_E_SEALED, "the object is sealed: regions cannot be written");
}

/* What is known here: before a lease is waited for. */
static gvm_status check_opening(const gvm_object *object)
{
    if (object->readonly)
        return gvm_error_set(GVM_E_READONLY, "the object was opened GVM_OPEN_READONLY");
    return atomic_load(&object->sealed) ? fail_sealed() : GVM_OK;
}

/* Under the lease, for which a seal waits: what is found stays so. */
static gvm_status check_object(object_homes *own, int64_t deadline_ns)
{
    gvm_object_info info;
    gvm_status status = gvmi_client_get_object_info(own->object, deadline_ns, &info);

    if (status != GVM_OK)
        return status;
    if (info.sealed != 0)
        return fail_sealed();
    if (info.untracked == 0)
        return gvm_error_set(GVM_E_FORMAT, "the object was not made by gvm_region_object_create()");
    own->homes.ended = ended_by(&info);
    return GVM_OK;
}

static gvm_status acquire_for_cpu(gvm_object *object, uint64_t bytes, int timeout_ms)
{
    const gvm_acquire_options options = {.struct_size = sizeof options, .flags = GVM_ACQUIRE_CPU};
    gvm_lease lease;
    gvm_status status = gvm_object_acquire(object, GVM_LEASE_READ, &options, timeout_ms, &lease);

    if (status == GVM_OK && lease.size_bytes < bytes) {
        (void)gvm_object_release(object, &lease);
        return gvm_error_set(GVM_E_FORMAT, "the object is too small for its regions");
    }
    return status;
}

/* What is left of a time-out; a wait that was begun in time has a millisecond at least. */
static int left_ms(int timeout_ms, int64_t deadline_ns)
{
    const int64_t left = (deadline_ns - gvmi_now_ns()) / GVMI_NS_PER_MS;

    if (timeout_ms <= GVM_TRY)
        return timeout_ms;
    return left > 1 ? (int)left : 1;
}

/* The object is entered, and cannot be closed meanwhile. */
static gvm_status attach_object(gvm_space *space, gvm_object *object, gvm_collection_options *full,
                                int timeout_ms, gvm_collection **out)
{
    const int64_t deadline_ns = gvmi_deadline_ns(timeout_ms);
    object_homes *own;
    regions_about about;
    uint64_t homes_bytes;
    gvm_status status = check_opening(object);
    gvm_error error;

    if (status == GVM_OK)
        status = read_about(object, gvmi_client_limit_ns(timeout_ms), &about, &homes_bytes);
    if (status != GVM_OK)
        return status;
    own = calloc(1, sizeof *own);
    if (own == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a collection");
    own->object = object;
    own->homes = (gvmi_homes){
        .buffer = object->buffer,
        .head_at = head_at(homes_bytes),
        .bytes = head_at(homes_bytes) + gvmi_homes_tail_bytes(about.count),
        .ask = ask_keeper,
        .release = release_homes,
    };
    status = acquire_for_cpu(object, own->homes.bytes, left_ms(timeout_ms, deadline_ns));
    if (status != GVM_OK) {
        free(own);
        return status;
    }
    gvmi_client_hold_object(object);
    full->shape = about.shape;
    status = check_object(own, gvmi_client_limit_ns(left_ms(timeout_ms, deadline_ns)));
    if (status == GVM_OK)
        status = gvmi_collection_create(space, about.count, about.region_bytes, full, &own->homes, out);
    if (status != GVM_OK) {
        error = gvmi_error_save();
        gvmi_homes_free(&own->homes);
        gvm_error_restore(&error);
    }
    return status;
}

gvm_status gvm_collection_attach(gvm_space *space, gvm_object *handle,
                                 const gvm_collection_options *options, int timeout_ms,
                                 gvm_collection **out)
{
    GVMI_UNCANCELLED;
    static const gvm_region_shape none;
    gvm_collection_options full;
    gvm_object *object;
    gvm_status status = gvmi_collection_read_options(options, &full);

    if (status == GVM_OK && out == NULL)
        status = gvm_error_set(GVM_E_INVALID, "out is NULL");
    if (status == GVM_OK && (full.unused_count != 0 || memcmp(&full.shape, &none, sizeof none) != 0))
        status = gvm_error_set(GVM_E_INVALID,
                               "shape and unused_count are 0 where regions are those of an object");
    if (status == GVM_OK)
        status = gvmi_check_timeout(timeout_ms);
    if (status == GVM_OK)
        status = gvmi_object_enter(handle, &object);
    if (status != GVM_OK)
        return status;
    status = attach_object(space, object, &full, timeout_ms, out);
    gvmi_object_leave(object);
    return status;
}
