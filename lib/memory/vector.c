/* Arrays that grow in place: a buffer and a count.
 *
 * I1  count <= capacity <= max_count.   I2  the elements [0, capacity) are committed; capacity is
 *     what whole committed chunks hold. Growing commits exactly the chunks that are missing: an
 *     address that stays needs no spare room to save copies, as realloc would.
 *
 * Lock: held by what changes the vector, the copy of what is appended included, since what comes later is
 * behind it. Questions are answered without: count and capacity are atomic, the rest is constant.
 */
#include <gvmem/vector.h>

#include <stdlib.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/registry.h"
#include "base/size.h"
#include "memory/buffer.h"
#include "memory/idle.h"

struct gvm_vector {
    gvmi_mutex lock;
    gvm_buffer *buffer;
    uint64_t address, elem_bytes, chunk_bytes, max_count;
    uint64_t count, capacity; /* atomic; changed under the lock */
};

/* Asked before there is a buffer: without virtual memory management that would be allocated
 * whole. */
static gvm_status check_vector_device(const gvm_device *handle)
{
    gvm_device *device;
    gvm_status status = gvmi_device_hold(handle, &device);

    if (status != GVM_OK)
        return status;
    if (!device->info.vmm)
        status = gvm_error_set(GVM_E_NOTSUP,
                               "device %d has no virtual memory management: vectors cannot grow there",
                               device->info.ordinal);
    gvmi_device_release(device);
    return status;
}

gvm_status gvm_vector_create(gvm_device *device, size_t elem_bytes, uint64_t max_count,
                             const gvm_buffer_options *options, gvm_vector **out)
{
    GVMI_UNCANCELLED;
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_vector *vector;
    gvm_status status;

    if (out == NULL || elem_bytes == 0 || max_count == 0 || max_count > GVMI_SPAN_BYTES_MAX / elem_bytes)
        return gvm_error_set(GVM_E_INVALID,
                             "cannot make a vector of at most %llu elements of %zu bytes: one number is 0, "
                             "they are more than 128 TiB together, or out is NULL",
                             (unsigned long long)max_count, elem_bytes);
    status = check_vector_device(device);
    if (status != GVM_OK)
        return status;
    vector = calloc(1, sizeof *vector);
    if (vector == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a vector");
    status = gvm_buffer_create(device, max_count * elem_bytes, options, &vector->buffer);
    if (status != GVM_OK)
        goto fail_free;
    status = gvm_buffer_get_info(vector->buffer, &info);
    if (status != GVM_OK)
        goto fail_destroy;
    vector->address = gvmi_address(info.address);
    vector->chunk_bytes = info.chunk_bytes;
    vector->elem_bytes = elem_bytes;
    vector->max_count = max_count;
    gvmi_mutex_init(&vector->lock, GVMI_RANK_VECTOR);
    status = gvmi_registry_add(GVMI_KIND_VECTOR, gvmi_key(vector), vector);
    if (status != GVM_OK)
        goto fail_destroy;
    *out = vector;
    return GVM_OK;

fail_destroy:
    gvm_buffer_destroy(vector->buffer);
fail_free:
    free(vector);
    return status;
}

static gvm_status hold_vector(const gvm_vector *handle, gvm_vector **out)
{
    void *object;
    gvm_status status = gvmi_registry_hold(GVMI_KIND_VECTOR, gvmi_key(handle), &object);

    *out = object;
    if (status == GVM_OK)
        gvmi_lock(&(*out)->lock);
    return status;
}

static void drop_vector(gvm_vector *vector)
{
    gvmi_unlock(&vector->lock);
    gvmi_registry_drop(GVMI_KIND_VECTOR, gvmi_key(vector));
}

static void set_capacity_locked(gvm_vector *vector, uint64_t committed_bytes)
{
    const uint64_t held = committed_bytes / vector->elem_bytes;

    __atomic_store_n(&vector->capacity, gvmi_min(held, vector->max_count), __ATOMIC_RELEASE);
}

static void set_count_locked(gvm_vector *vector, uint64_t count)
{
    __atomic_store_n(&vector->count, count, __ATOMIC_RELEASE);
}

static gvm_status reserve_locked(gvm_vector *vector, uint64_t capacity)
{
    uint64_t from, to;
    gvm_status status;

    if (capacity > vector->max_count)
        return gvm_error_set(GVM_E_LIMIT,
                             "%llu elements are more than the %llu the vector was created for",
                             (unsigned long long)capacity, (unsigned long long)vector->max_count);
    if (capacity <= vector->capacity)
        return GVM_OK;
    from = gvmi_round_down(vector->capacity * vector->elem_bytes, vector->chunk_bytes);
    to = gvmi_round_up(capacity * vector->elem_bytes, vector->chunk_bytes);
    status = gvmi_buffer_commit(vector->buffer, from, to - from);
    if (status != GVM_OK)
        return status;
    set_capacity_locked(vector, to);
    return GVM_OK;
}

/* What makes a vector larger. */
typedef gvm_status grow_step(gvm_vector *vector, const void *elems, uint64_t count);

/* Takes the step, again where memory of the process can be reclaimed meanwhile, without the
 * lock. */
static gvm_status grow_with_reclaim(gvm_vector *handle, grow_step *step, const void *elems,
                                    uint64_t count)
{
    gvmi_shortage shortage = {0};
    gvm_vector *vector;
    gvm_status status = hold_vector(handle, &vector);
    bool again = status == GVM_OK;

    while (again) {
        status = step(vector, elems, count);
        again = status == GVM_E_NOSPACE;
        if (again) {
            gvmi_unlock(&vector->lock);
            again = gvmi_idle_retry(vector->buffer->device,
                                    count * vector->elem_bytes + vector->chunk_bytes, &shortage);
            gvmi_lock(&vector->lock);
        }
    }
    if (vector != NULL)
        drop_vector(vector);
    return status;
}

static gvm_status append_locked(gvm_vector *vector, const void *elems, uint64_t count)
{
    gvm_status status;

    if (count > vector->max_count - vector->count)
        return gvm_error_set(GVM_E_LIMIT,
                             "%llu more elements would pass the %llu the vector was created for",
                             (unsigned long long)count, (unsigned long long)vector->max_count);
    status = reserve_locked(vector, vector->count + count);
    if (status == GVM_OK)
        status = gvm_buffer_copy_in(vector->buffer, vector->count * vector->elem_bytes, elems,
                                    count * vector->elem_bytes);
    if (status == GVM_OK)
        set_count_locked(vector, vector->count + count);
    return status;
}

gvm_status gvm_vector_append(gvm_vector *vector, const void *elems, uint64_t count)
{
    GVMI_UNCANCELLED;

    if (elems == NULL && count > 0)
        return gvm_error_set(GVM_E_INVALID, "elems is NULL");
    return grow_with_reclaim(vector, append_locked, elems, count);
}

/* Also on a sealed vector a length that needs no new memory would be a lie to those who read it. */
static gvm_status check_unsealed(gvm_vector *vector)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_buffer_get_info(vector->buffer, &info);

    if (status == GVM_OK && info.sealed)
        status = gvm_error_set(GVM_E_SEALED, "the vector's buffer is sealed");
    return status;
}

static gvm_status reserve_unsealed_locked(gvm_vector *vector, const void *none, uint64_t capacity)
{
    const gvm_status status = check_unsealed(vector);

    (void)none;
    return status == GVM_OK ? reserve_locked(vector, capacity) : status;
}

static gvm_status resize_vector_locked(gvm_vector *vector, const void *none, uint64_t count)
{
    const gvm_status status = reserve_unsealed_locked(vector, none, count);

    if (status == GVM_OK)
        set_count_locked(vector, count);
    return status;
}

gvm_status gvm_vector_resize(gvm_vector *vector, uint64_t count)
{
    GVMI_UNCANCELLED;

    return grow_with_reclaim(vector, resize_vector_locked, NULL, count);
}

gvm_status gvm_vector_commit(gvm_vector *vector, uint64_t capacity)
{
    GVMI_UNCANCELLED;

    return grow_with_reclaim(vector, reserve_unsealed_locked, NULL, capacity);
}

gvm_status gvm_vector_shrink(gvm_vector *handle)
{
    GVMI_UNCANCELLED;
    gvm_vector *vector;
    uint64_t used, held;
    gvm_status status = hold_vector(handle, &vector);

    if (status != GVM_OK)
        return status;
    used = gvmi_round_up(vector->count * vector->elem_bytes, vector->chunk_bytes);
    held = gvmi_round_up(vector->capacity * vector->elem_bytes, vector->chunk_bytes);
    status = check_unsealed(vector);
    if (status == GVM_OK && held > used) {
        set_capacity_locked(vector, used);
        /* If this fails some chunks stay, which growing again finds there. */
        status = gvm_buffer_decommit(vector->buffer, used, held - used);
    }
    drop_vector(vector);
    return status;
}

/* ---- questions */

static uint64_t query_vector(const gvm_vector *handle, uint64_t (*answer)(const gvm_vector *vector))
{
    void *vector;
    uint64_t value;

    if (gvmi_registry_hold(GVMI_KIND_VECTOR, gvmi_key(handle), &vector) != GVM_OK)
        return 0;
    value = answer(vector);
    gvmi_registry_drop(GVMI_KIND_VECTOR, gvmi_key(handle));
    return value;
}

static uint64_t vector_address(const gvm_vector *vector)
{
    return vector->address;
}

static uint64_t vector_count(const gvm_vector *vector)
{
    return __atomic_load_n(&vector->count, __ATOMIC_ACQUIRE);
}

static uint64_t vector_capacity(const gvm_vector *vector)
{
    return __atomic_load_n(&vector->capacity, __ATOMIC_ACQUIRE);
}

static uint64_t vector_buffer(const gvm_vector *vector)
{
    return gvmi_key(vector->buffer);
}

void *gvm_vector_address(const gvm_vector *vector)
{
    return gvmi_pointer(query_vector(vector, vector_address));
}

uint64_t gvm_vector_count(const gvm_vector *vector)
{
    return query_vector(vector, vector_count);
}

uint64_t gvm_vector_capacity(const gvm_vector *vector)
{
    return query_vector(vector, vector_capacity);
}

gvm_buffer *gvm_vector_buffer(gvm_vector *vector)
{
    return (gvm_buffer *)(uintptr_t)query_vector(vector, vector_buffer);
}

void gvm_vector_destroy(gvm_vector *handle)
{
    GVMI_UNCANCELLED;
    void *object;
    gvm_vector *vector;

    if (handle == NULL || gvmi_registry_remove(GVMI_KIND_VECTOR, gvmi_key(handle), &object) != GVM_OK)
        return;
    vector = object;
    gvm_buffer_destroy(vector->buffer);
    gvmi_mutex_destroy(&vector->lock);
    gvmi_registry_retire(vector);
}
