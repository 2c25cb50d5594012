/* Copies and memsets of rows that lie a pitch apart.
 *
 * As in copy.c the addresses are checked when the call is made, and what the host may do with pageable memory when it
 * returns is the same; here that means waiting for the end. The bytes between the rows are left alone, but must be
 * there as well. */
#include "softgpu/engine.h"

#include <string.h>

typedef struct rows {
    CUdeviceptr at;
    size_t pitch_bytes;
    bool on_host, pageable;
} rows;

typedef struct copy2d_op {
    soft_op op;
    rows dst, src;
    size_t width_bytes, height;
} copy2d_op;

typedef struct set2d_op {
    soft_op op;
    rows dst;
    size_t width, height;
    unsigned unit_bytes; /* 1, 2 or 4 */
    uint32_t value;
} set2d_op;

static void *row_of(const rows *side, size_t i)
{
    return (void *)(uintptr_t)(side->at + i * side->pitch_bytes);
}

/* ---- what runs in stream order */

static void move_rows(void *arg)
{
    const copy2d_op *self = arg;

    for (size_t i = 0; i < self->height; i++)
        memmove(row_of(&self->dst, i), row_of(&self->src, i), self->width_bytes);
}

static void set_rows(void *arg)
{
    const set2d_op *self = arg;

    for (size_t i = 0; i < self->height; i++) {
        unsigned char *at = row_of(&self->dst, i);

        if (self->unit_bytes == 1)
            memset(at, (int)self->value, self->width);
        for (size_t j = 0; self->unit_bytes > 1 && j < self->width; j++)
            memcpy(at + j * self->unit_bytes, &self->value, self->unit_bytes); /* the low bytes come first */
    }
}

static CUresult run_copy2d(soft_op *op)
{
    return soft_fault_guard(move_rows, op, NULL);
}

static CUresult run_set2d(soft_op *op)
{
    return soft_fault_guard(set_rows, op, NULL);
}

static const soft_op_class copy2d_class = {.type = SOFT_OP_WORK, .run = run_copy2d};
static const soft_op_class set2d_class = {.type = SOFT_OP_WORK, .run = run_set2d};

/* ---- checks */

/* From the first byte of the first row to the last of the last one. */
static CUresult check_rows(int device, const rows *side, size_t width_bytes, size_t height, int access)
{
    size_t extent_bytes;

    if ((height > 1 && (side->pitch_bytes > SOFT_PITCH_MAX || side->pitch_bytes < width_bytes)) ||
        __builtin_mul_overflow(side->pitch_bytes, height - 1, &extent_bytes) ||
        __builtin_add_overflow(extent_bytes, width_bytes, &extent_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return side->on_host ? soft_space_check_host(row_of(side, 0), extent_bytes)
                         : soft_space_check(device, side->at, extent_bytes, access);
}

/* The rows that one side of a copy names. A pitch of 0 stands for rows without a gap. */
static CUresult find_rows(rows *side, CUmemorytype type, const void *host, CUdeviceptr device,
                          size_t pitch, size_t x_bytes, size_t y, size_t width_bytes)
{
    CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;
    size_t offset;

    if (type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if (pitch == 0)
        pitch = x_bytes + width_bytes;
    if (x_bytes > pitch || width_bytes > pitch - x_bytes ||
        __builtin_mul_overflow(y, pitch, &offset) || __builtin_add_overflow(offset, x_bytes, &offset) ||
        __builtin_add_overflow(base, offset, &side->at))
        return CUDA_ERROR_INVALID_VALUE;
    side->pitch_bytes = pitch;
    side->pageable = soft_space_kind(side->at) == SOFT_KIND_NONE;
    side->on_host = type == CU_MEMORYTYPE_HOST || (type == CU_MEMORYTYPE_UNIFIED && side->pageable);
    return CUDA_SUCCESS;
}

static CUresult find_sides(const CUDA_MEMCPY2D *copy, copy2d_op *found)
{
    CUresult result = find_rows(&found->src, copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                                copy->srcPitch, copy->srcXInBytes, copy->srcY, copy->WidthInBytes);

    if (result == CUDA_SUCCESS)
        result = find_rows(&found->dst, copy->dstMemoryType, copy->dstHost, copy->dstDevice,
                           copy->dstPitch, copy->dstXInBytes, copy->dstY, copy->WidthInBytes);
    return result;
}

/* ---- copies */

static CUresult copy_rows(const CUDA_MEMCPY2D *copy, CUstream stream, bool wait)
{
    copy2d_op found = {0}, *op;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result == CUDA_SUCCESS)
        result = copy ? find_sides(copy, &found) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || copy->WidthInBytes == 0 || copy->Height == 0)
        return result;
    result = check_rows(device, &found.dst, copy->WidthInBytes, copy->Height, SOFT_ACCESS_READWRITE);
    if (result == CUDA_SUCCESS)
        result = check_rows(device, &found.src, copy->WidthInBytes, copy->Height, SOFT_ACCESS_READ);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &copy2d_class);
    if (op) {
        op->dst = found.dst;
        op->src = found.src;
        op->width_bytes = copy->WidthInBytes;
        op->height = copy->Height;
    }
    return soft_op_submit(op ? &op->op : NULL, stream,
                          wait || found.dst.pageable || found.src.pageable);
}

static bool is_on_device(CUmemorytype type, CUdeviceptr at)
{
    return type == CU_MEMORYTYPE_DEVICE ||
           (type == CU_MEMORYTYPE_UNIFIED && soft_space_kind(at) != SOFT_KIND_NONE);
}

/* Within the device it is asynchronous, as other copies without a stream are. */
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_rows(copy, NULL,
                     soft_current_syncs() || !copy ||
                         !(is_on_device(copy->dstMemoryType, copy->dstDevice) &&
                           is_on_device(copy->srcMemoryType, copy->srcDevice)));
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
    return cuMemcpy2D_v2(copy);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_rows(copy, stream, false);
}

/* ---- memsets. Those of one row are in copy.c, but for the widths that have no asynchronous sister there. */

static CUresult submit_set2d(const set2d_op *what, CUstream stream, bool wait)
{
    set2d_op *op;
    size_t width_bytes;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result == CUDA_SUCCESS &&
        (__builtin_mul_overflow(what->width, what->unit_bytes, &width_bytes) ||
         what->dst.at % what->unit_bytes != 0 ||
         (what->height > 1 && what->dst.pitch_bytes % what->unit_bytes != 0)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || what->width == 0 || what->height == 0)
        return result;
    result = check_rows(device, &what->dst, width_bytes, what->height, SOFT_ACCESS_READWRITE);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &set2d_class);
    if (op) {
        op->dst = what->dst;
        op->width = what->width;
        op->height = what->height;
        op->unit_bytes = what->unit_bytes;
        op->value = what->value;
    }
    return soft_op_submit(op ? &op->op : NULL, stream, wait);
}

static CUresult set2d(CUdeviceptr dst, size_t pitch, unsigned unit_bytes, uint32_t value,
                      size_t width, size_t height, CUstream stream, bool wait)
{
    const set2d_op what = {
        .dst = {.at = dst, .pitch_bytes = pitch},
        .width = width,
        .height = height,
        .unit_bytes = unit_bytes,
        .value = value,
    };

    return submit_set2d(&what, stream, wait);
}

/* Does a memset without a stream wait? For nothing but what the host reads itself, unless the context says so. */
static bool waits_for(CUdeviceptr dst)
{
    return soft_space_kind(dst) == SOFT_KIND_HOST || soft_current_syncs();
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height)
{
    return set2d(dst, pitch, 1, value, width, height, NULL, waits_for(dst));
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream)
{
    return set2d(dst, pitch, 1, value, width, height, stream, false);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                          size_t height)
{
    return set2d(dst, pitch, 2, value, width, height, NULL, waits_for(dst));
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream)
{
    return set2d(dst, pitch, 2, value, width, height, stream, false);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height)
{
    return set2d(dst, pitch, 4, value, width, height, NULL, waits_for(dst));
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream)
{
    return set2d(dst, pitch, 4, value, width, height, stream, false);
}

CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count)
{
    return waits_for(dst) ? set2d(dst, 0, 2, value, count, 1, NULL, true)
                          : cuMemsetD16Async(dst, value, count, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count)
{
    return waits_for(dst) ? set2d(dst, 0, 4, value, count, 1, NULL, true)
                          : cuMemsetD32Async(dst, value, count, NULL);
}
