/* Copies between host memory and an object, under a lease of their own. */
#include "base/cancel.h"
#include "base/error.h"
#include "base/size.h"
#include "keeper/client/client.h"

/* The bytes say nothing of what is needed next, so they are copied from where they are. */
static gvm_status acquire(gvm_object *object, gvm_lease_mode mode, int timeout_ms, gvm_lease *lease)
{
    gvm_acquire_options once = gvm_acquire_options_init();

    once.hint = GVM_HINT_ONCE;
    return gvm_object_acquire(object, mode, &once, timeout_ms, lease);
}

static gvm_status check_range(const gvm_lease *lease, uint64_t offset_bytes, uint64_t len_bytes)
{
    if (gvmi_range_within(offset_bytes, len_bytes, lease->size_bytes))
        return GVM_OK;
    return gvm_error_set(GVM_E_INVALID,
                         "%llu bytes at offset %llu are beyond the object's size of %llu",
                         (unsigned long long)len_bytes, (unsigned long long)offset_bytes,
                         (unsigned long long)lease->size_bytes);
}

/* The first failure; that of the release, if it is the only one: the keeper has cut this process off. */
static gvm_status release(gvm_object *object, gvm_lease *lease, gvm_status status)
{
    const gvm_error error = gvmi_error_save();
    const gvm_status released = gvm_object_release(object, lease);

    if (status == GVM_OK)
        return released;
    gvm_error_restore(&error);
    return status;
}

gvm_status gvm_object_copy_in(gvm_object *handle, uint64_t dst_offset_bytes, const void *src,
                              uint64_t len_bytes, int timeout_ms)
{
    GVMI_UNCANCELLED;
    gvm_object *dst;
    gvm_lease lease;
    gvm_status status = gvmi_object_enter(handle, &dst);

    if (status != GVM_OK)
        return status;
    status = src == NULL ? gvm_error_set(GVM_E_INVALID, "src is NULL")
                         : acquire(dst, GVM_LEASE_WRITE, timeout_ms, &lease);
    if (status == GVM_OK) {
        status = check_range(&lease, dst_offset_bytes, len_bytes);
        if (status == GVM_OK)
            status = gvm_buffer_copy_in(dst->buffer, dst_offset_bytes, src, len_bytes);
        status = release(dst, &lease, status);
    }
    gvmi_object_leave(dst);
    return status;
}

gvm_status gvm_object_copy_out(void *dst, gvm_object *handle, uint64_t src_offset_bytes,
                               uint64_t len_bytes, int timeout_ms)
{
    GVMI_UNCANCELLED;
    gvm_object *src;
    gvm_lease lease;
    gvm_status status = gvmi_object_enter(handle, &src);

    if (status != GVM_OK)
        return status;
    status = dst == NULL ? gvm_error_set(GVM_E_INVALID, "dst is NULL")
                         : acquire(src, GVM_LEASE_READ, timeout_ms, &lease);
    if (status == GVM_OK) {
        status = check_range(&lease, src_offset_bytes, len_bytes);
        if (status == GVM_OK)
            status = gvm_buffer_copy_out(dst, src->buffer, src_offset_bytes, len_bytes);
        status = release(src, &lease, status);
    }
    gvmi_object_leave(src);
    return status;
}
