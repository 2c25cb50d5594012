/* Copies and memsets.
 *
 * The ranges are checked when the call is made, as the real driver does; a mapping that goes away
 * between then and the copy breaks the context. What the host may do with its memory when a call
 * returns:
 *   pinned memory         the copy may still be going on
 *   pageable source       it has been read: up to STAGED_BYTES_MAX set aside, more by waiting
 *   pageable destination  it has been written
 * (A copy that is captured into a graph reads and writes at each launch.)
 * Copies from device to device, and memsets of device memory, are asynchronous even where the call
 * has no stream, but in a context that was made with CU_CTX_SYNC_MEMOPS. */
#include "softgpu/engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STAGED_BYTES_MAX (64u << 10)
#define SHORT_BYTES_MAX (4u << 10) /* copied in less time than it takes to wake a worker */

typedef struct copy_piece {
    CUdeviceptr dst, src;
    size_t size_bytes;
    bool early;  /* the source must have been read when the call returns */
    bool beside; /* kernels may write to the source meanwhile: the copy may be of parts of both */
} copy_piece;

typedef struct copy_op {
    soft_op op;
    unsigned char *staged; /* what pieces that were read early are copied from; or NULL */
    size_t count;
    copy_piece pieces[];
} copy_op;

typedef struct set_op {
    soft_op op;
    CUdeviceptr dst;
    size_t count;         /* units in a row */
    unsigned width_bytes; /* 1, 2 or 4 */
    uint32_t value;
    size_t rows, pitch_bytes; /* one row: 0 and 0 will do */
} set_op;

/* What a side of a copy may be: by the name of the call, or whatever the address is. */
typedef enum copy_side { SIDE_DEVICE, SIDE_HOST, SIDE_ANY } copy_side;

/* Unified addressing: one pointer for host and device. */
static void *host_pointer(CUdeviceptr addr)
{
    return (void *)(uintptr_t)addr;
}

static CUdeviceptr address_of(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

static bool is_pageable(CUdeviceptr addr)
{
    return soft_space_kind(addr) == SOFT_KIND_NONE;
}

/* ---- what runs in stream order */

#define WORDS_BYTES_MAX 1024 /* of which each word is copied at once */

/* A race that the caller has asked for, of which ThreadSanitizer does not hear. */
__attribute__((no_sanitize("thread"))) static void move_beside(const copy_piece *p)
{
    const volatile unsigned char *src = host_pointer(p->src);
    unsigned char *dst = host_pointer(p->dst);
    size_t at = 0;

    if ((p->dst | p->src) % 8 == 0)
        for (; at + 8 <= p->size_bytes; at += 8)
            *(volatile uint64_t *)(dst + at) = *(const volatile uint64_t *)(src + at);
    for (; at < p->size_bytes; at++)
        ((volatile unsigned char *)dst)[at] = src[at];
}

/* Each word of a few is copied by one load and one store: a stream may wait for its value (value.c), or a kernel change it. */
static void move_piece(void *arg)
{
    const copy_piece *p = arg;
    const uint64_t ends = p->dst | p->src;

    if (p->beside)
        move_beside(p);
    else if (p->size_bytes == 4 && ends % 4 == 0)
        __atomic_store_n((uint32_t *)host_pointer(p->dst),
                         __atomic_load_n((uint32_t *)host_pointer(p->src), __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
    else if (p->size_bytes <= WORDS_BYTES_MAX && (p->size_bytes | ends) % 8 == 0)
        for (uint64_t at = 0; at < p->size_bytes; at += 8)
            __atomic_store_n((uint64_t *)host_pointer(p->dst + at),
                             __atomic_load_n((uint64_t *)host_pointer(p->src + at), __ATOMIC_ACQUIRE),
                             __ATOMIC_RELEASE);
    else
        memmove(host_pointer(p->dst), host_pointer(p->src), p->size_bytes);
}

static void move_pieces(void *arg)
{
    copy_op *self = arg;

    for (size_t i = 0; i < self->count; i++)
        move_piece(&self->pieces[i]);
}

/* What the copies between a device and the host take of the link. */
static void wait_for_link(const copy_op *self)
{
    const soft_config *config;
    uint64_t bytes = 0, ns;
    struct timespec pause;

    (void)soft_config_get(&config, NULL);
    for (size_t i = 0; i < self->count && config->link_bytes > 0; i++)
        if (soft_space_on_host(self->pieces[i].dst) != soft_space_on_host(self->pieces[i].src))
            bytes += self->pieces[i].size_bytes;
    if (bytes <= SHORT_BYTES_MAX)
        return;
    ns = (uint64_t)((double)bytes * 1e9 / (double)config->link_bytes);
    pause = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&pause, NULL);
}

static CUresult run_copy(soft_op *op)
{
    CUresult rc = soft_fault_guard(move_pieces, op, NULL);

    wait_for_link((const copy_op *)op);
    return rc;
}

static void destroy_copy(soft_op *op)
{
    free(((copy_op *)op)->staged);
}

static void set_row(const set_op *self, CUdeviceptr dst)
{
    const uint32_t byte = self->value & 0xff;
    uint16_t *halves = host_pointer(dst);
    uint32_t *words = host_pointer(dst);

    /* Units whose bytes are all the same, as zeros are, go at the speed of the memory. */
    if (self->width_bytes == 1 || self->value == byte * (self->width_bytes == 2 ? 0x101u : 0x1010101u)) {
        memset(host_pointer(dst), (int)byte, self->count * self->width_bytes);
        return;
    }
    for (size_t i = 0; self->width_bytes == 2 && i < self->count; i++)
        halves[i] = (uint16_t)self->value;
    for (size_t i = 0; self->width_bytes == 4 && i < self->count; i++)
        words[i] = self->value;
}

static void set_units(void *arg)
{
    const set_op *self = arg;

    set_row(self, self->dst);
    for (size_t i = 1; i < self->rows; i++)
        set_row(self, self->dst + i * self->pitch_bytes);
}

static CUresult run_set(soft_op *op)
{
    return soft_fault_guard(set_units, op, NULL);
}

static const soft_op_class copy_class = {
    .type = SOFT_OP_WORK,
    .run = run_copy,
    .destroy = destroy_copy,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_MEMCPY,
};
static const soft_op_class set_class = {
    .type = SOFT_OP_WORK,
    .run = run_set,
    .repeatable = true,
    .node = CU_GRAPH_NODE_TYPE_MEMSET,
};

/* ---- copies */

static CUresult check_side(int device, copy_side side, CUdeviceptr addr, size_t size_bytes, int access)
{
    if (side == SIDE_HOST || (side == SIDE_ANY && is_pageable(addr)))
        return soft_space_check_host(host_pointer(addr), size_bytes);
    return soft_space_check(device, addr, size_bytes, access);
}

static CUresult check_piece(int device, const copy_piece *piece, copy_side dst, copy_side src)
{
    CUresult result = check_side(device, dst, piece->dst, piece->size_bytes, SOFT_ACCESS_READWRITE);

    if (result == CUDA_SUCCESS)
        result = check_side(device, src, piece->src, piece->size_bytes, SOFT_ACCESS_READ);
    return result;
}

static copy_op *new_copy(size_t count)
{
    copy_op *op;

    if (count > (SIZE_MAX - sizeof *op) / sizeof op->pieces[0])
        return NULL;
    op = soft_op_new(sizeof *op + count * sizeof op->pieces[0], &copy_class);
    if (op)
        op->count = count;
    return op;
}

/* Bytes to be read early; anything beyond the limit is as good as the limit. */
static size_t early_bytes(const copy_op *op)
{
    size_t total = 0;

    for (size_t i = 0; i < op->count && total <= STAGED_BYTES_MAX; i++)
        if (op->pieces[i].early)
            total = op->pieces[i].size_bytes > STAGED_BYTES_MAX ? SIZE_MAX
                                                                : total + op->pieces[i].size_bytes;
    return total;
}

/* Anything beyond the limit is as good as the limit. */
static size_t copied_bytes(const copy_op *op)
{
    size_t total = 0;

    for (size_t i = 0; i < op->count && total <= SHORT_BYTES_MAX; i++)
        total = op->pieces[i].size_bytes > SHORT_BYTES_MAX ? SIZE_MAX
                                                           : total + op->pieces[i].size_bytes;
    return total;
}

/* Sets aside what must be read early: a bad pointer of the user's is the call's error, not the
 * context's. */
static CUresult stage_early_bytes(copy_op *op, size_t total_bytes)
{
    size_t offset = 0;
    CUresult result = CUDA_SUCCESS;

    op->staged = malloc(total_bytes);
    if (!op->staged)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->op.once = true;
    for (size_t i = 0; i < op->count && result == CUDA_SUCCESS; i++) {
        copy_piece *piece = &op->pieces[i];
        copy_piece reading = *piece;

        if (!piece->early)
            continue;
        reading.dst = address_of(op->staged + offset);
        result = soft_fault_guard(move_piece, &reading, NULL);
        piece->src = reading.dst;
        offset += piece->size_bytes;
    }
    return result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In a captured stream nothing is read or written now: each launch of the graph does both. */
static CUresult submit_copy(copy_op *op, CUstream stream, bool wait)
{
    size_t early = soft_stream_is_captured(stream) ? 0 : early_bytes(op);
    CUresult result = CUDA_SUCCESS;

    if (early > STAGED_BYTES_MAX)
        wait = true;
    else if (early > 0 && !wait)
        result = stage_early_bytes(op, early);
    op->op.by_caller = copied_bytes(op) <= SHORT_BYTES_MAX;
    if (result == CUDA_SUCCESS)
        return soft_op_submit(&op->op, stream, wait);
    soft_op_discard(&op->op);
    return result;
}

static CUresult copy_one(copy_piece piece, copy_side dst, copy_side src, CUstream stream, bool wait)
{
    copy_op *op;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result != CUDA_SUCCESS || piece.size_bytes == 0)
        return result;
    result = check_piece(device, &piece, dst, src);
    if (result != CUDA_SUCCESS)
        return result;
    op = new_copy(1);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    piece.early = is_pageable(piece.src);
    op->pieces[0] = piece;
    return submit_copy(op, stream, wait || is_pageable(piece.dst));
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t size)
{
    return copy_one((copy_piece){dst, address_of(src), size, false, false}, SIDE_DEVICE, SIDE_HOST,
                    NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t size)
{
    return copy_one((copy_piece){address_of(dst), src, size, false, false}, SIDE_HOST, SIDE_DEVICE,
                    NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t size)
{
    return copy_one((copy_piece){dst, src, size, false, false}, SIDE_DEVICE, SIDE_DEVICE, NULL,
                    soft_current_syncs());
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
    return copy_one((copy_piece){dst, address_of(src), size, false, false}, SIDE_DEVICE, SIDE_HOST,
                    stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
    return copy_one((copy_piece){address_of(dst), src, size, false, false}, SIDE_HOST, SIDE_DEVICE,
                    stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    return copy_one((copy_piece){dst, src, size, false, false}, SIDE_DEVICE, SIDE_DEVICE, stream,
                    false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    return copy_one((copy_piece){dst, src, size, false, false}, SIDE_ANY, SIDE_ANY, stream, false);
}

/* ---- several copies in one call */

static CUresult check_attributes(const CUmemcpyAttributes *attrs, const size_t *first,
                                 size_t attrs_count, size_t count)
{
    if (!attrs || !first || attrs_count == 0 || attrs_count > count || first[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < attrs_count; i++) {
        if (i > 0 && (first[i] <= first[i - 1] || first[i] >= count))
            return CUDA_ERROR_INVALID_VALUE;
        if (attrs[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
            attrs[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
            attrs[i].flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* The attributes say when a source is read, so nothing is staged or waited for but what they want
 * read during the call. */
CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrs_first, size_t attrs_count,
                               CUstream stream)
{
    copy_op *op;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS &&
        (!dsts || !srcs || !sizes || count == 0 || !stream || stream == CU_STREAM_LEGACY))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = check_attributes(attrs, attrs_first, attrs_count, count);
    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result != CUDA_SUCCESS)
        return result;
    op = new_copy(count);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0, a = 0; i < count && result == CUDA_SUCCESS; i++) {
        if (a + 1 < attrs_count && attrs_first[a + 1] == i)
            a++;
        op->pieces[i] = (copy_piece){
            dsts[i], srcs[i], sizes[i],
            attrs[a].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
            (attrs[a].flags & CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) != 0};
        result = sizes[i] > 0 ? check_piece(device, &op->pieces[i], SIDE_ANY, SIDE_ANY)
                              : CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS)
        return submit_copy(op, stream, false);
    soft_op_discard(&op->op);
    return result;
}

/* ---- copies of graphs */

/* One side of a copy of rows; arrays there are none. */
typedef struct box_side {
    CUdeviceptr addr;
    size_t pitch_bytes, rows; /* of a plane */
    copy_side kind;
} box_side;

static bool find_offset(const box_side *side, size_t x_bytes, size_t y, size_t z, size_t *out)
{
    return !__builtin_mul_overflow(z, side->rows, out) && !__builtin_add_overflow(*out, y, out) &&
           !__builtin_mul_overflow(*out, side->pitch_bytes, out) &&
           !__builtin_add_overflow(*out, x_bytes, out);
}

/* Of the box no dimension is 0. */
static CUresult find_side(box_side *side, CUmemorytype type, const void *host, CUdeviceptr device,
                          size_t x_bytes, size_t y, size_t z, const CUDA_MEMCPY3D *box)
{
    size_t offset, end;

    switch (type) {
    case CU_MEMORYTYPE_HOST: side->addr = address_of(host), side->kind = SIDE_HOST; break;
    case CU_MEMORYTYPE_DEVICE: side->addr = device, side->kind = SIDE_DEVICE; break;
    case CU_MEMORYTYPE_UNIFIED: side->addr = device, side->kind = SIDE_ANY; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    if (box->Height > 1 || box->Depth > 1)
        if (x_bytes > side->pitch_bytes || box->WidthInBytes > side->pitch_bytes - x_bytes)
            return CUDA_ERROR_INVALID_VALUE;
    if (box->Depth > 1 && (y > side->rows || box->Height > side->rows - y))
        return CUDA_ERROR_INVALID_VALUE;
    if (!find_offset(side, x_bytes, y, z, &offset) ||
        __builtin_add_overflow(side->addr, offset, &side->addr) ||
        !find_offset(side, box->WidthInBytes, box->Height - 1, box->Depth - 1, &end) ||
        __builtin_add_overflow(side->addr, end, &end))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult soft_copy_new(int device, const CUDA_MEMCPY3D *p, soft_op **out)
{
    box_side src = {.pitch_bytes = p->srcPitch, .rows = p->srcHeight};
    box_side dst = {.pitch_bytes = p->dstPitch, .rows = p->dstHeight};
    copy_op *op;
    CUresult result;

    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0 ||
        p->Height > SIZE_MAX / sizeof(copy_piece) / p->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    result = find_side(&src, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY,
                       p->srcZ, p);
    if (result == CUDA_SUCCESS)
        result = find_side(&dst, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes,
                           p->dstY, p->dstZ, p);
    if (result != CUDA_SUCCESS)
        return result;
    op = new_copy(p->Height * p->Depth);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < op->count && result == CUDA_SUCCESS; i++) {
        const size_t y = i % p->Height, z = i / p->Height;

        op->pieces[i] = (copy_piece){dst.addr + (z * dst.rows + y) * dst.pitch_bytes,
                                     src.addr + (z * src.rows + y) * src.pitch_bytes,
                                     p->WidthInBytes, false, false};
        result = check_piece(device, &op->pieces[i], dst.kind, src.kind);
    }
    if (result == CUDA_SUCCESS)
        *out = &op->op;
    else
        soft_op_discard(&op->op);
    return result;
}

/* ---- memsets */

static CUresult submit_set(set_op what, CUstream stream, bool wait)
{
    set_op *op;
    int device;
    CUresult result = soft_enter_context(&device);

    if (result == CUDA_SUCCESS)
        result = soft_stream_device(stream, &device);
    if (result == CUDA_SUCCESS &&
        (what.dst % what.width_bytes || what.count > SIZE_MAX / what.width_bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || what.count == 0)
        return result;
    result = soft_space_check(device, what.dst, what.count * what.width_bytes, SOFT_ACCESS_READWRITE);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &set_class);
    if (op) {
        op->dst = what.dst;
        op->count = what.count;
        op->width_bytes = what.width_bytes;
        op->value = what.value;
        op->op.by_caller = what.count * what.width_bytes <= SHORT_BYTES_MAX;
    }
    return soft_op_submit(op ? &op->op : NULL, stream, wait);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count)
{
    set_op what = {.dst = dst, .count = count, .width_bytes = 1, .value = value};

    return submit_set(what, NULL, soft_space_kind(dst) == SOFT_KIND_HOST || soft_current_syncs());
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    return submit_set((set_op){.dst = dst, .count = count, .width_bytes = 1, .value = value},
                      stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
    return submit_set((set_op){.dst = dst, .count = count, .width_bytes = 2, .value = value},
                      stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
    return submit_set((set_op){.dst = dst, .count = count, .width_bytes = 4, .value = value},
                      stream, false);
}

CUresult soft_set_new(int device, const CUDA_MEMSET_NODE_PARAMS *p, soft_op **out)
{
    set_op *op;
    CUresult result = CUDA_SUCCESS;

    if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || p->dst % p->elementSize ||
        p->width == 0 || p->width > SIZE_MAX / p->elementSize || p->height == 0 ||
        (p->height > 1 && (p->pitch < p->width * p->elementSize || p->pitch % p->elementSize)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < p->height && result == CUDA_SUCCESS; i++)
        result = soft_space_check(device, p->dst + i * p->pitch, p->width * p->elementSize,
                                  SOFT_ACCESS_READWRITE);
    if (result != CUDA_SUCCESS)
        return result;
    op = soft_op_new(sizeof *op, &set_class);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dst = p->dst;
    op->count = p->width;
    op->width_bytes = p->elementSize;
    op->value = p->value;
    op->rows = p->height;
    op->pitch_bytes = p->pitch;
    *out = &op->op;
    return CUDA_SUCCESS;
}
