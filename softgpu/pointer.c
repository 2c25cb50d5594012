/* Questions about a pointer. What a pointer is was decided when it was made; here it is only looked
 * up. */
#include <string.h>

#include "softgpu/space.h"

/* What the attributes are made from: a copy, so that no other file is called under the
 * space lock. */
typedef struct pointer_facts {
    soft_span part;  /* the allocation or the mapping that holds the pointer */
    soft_span whole; /* the allocation or the reservation */
    soft_kind kind;
    soft_origin origin;
    int device;
    uint64_t context_id;
    bool on_host, cpu_touches, exportable;
    uint64_t buffer_id;
    uint8_t access[SOFT_DEVICES_MAX];
} pointer_facts;

static void range_facts_locked(const soft_range *range, pointer_facts *facts)
{
    *facts = (pointer_facts){
        .part = range->span,
        .whole = range->span,
        .kind = range->kind,
        .origin = range->origin,
        .device = range->device,
        .context_id = range->context_id,
        .on_host = range->kind == SOFT_KIND_HOST,
        .cpu_touches = range->kind == SOFT_KIND_HOST || range->kind == SOFT_KIND_MANAGED,
        .exportable = range->origin == SOFT_ORIGIN_ALLOC && range->kind == SOFT_KIND_DEVICE,
        .buffer_id = range->buffer_id,
    };
    if (range->pool)
        memcpy(facts->access, range->pool->access, sizeof facts->access);
    else
        memset(facts->access, SOFT_ACCESS_READWRITE, sizeof facts->access);
}

/* False if the pointer is none of ours, or to addresses without memory. */
static bool facts_locked(CUdeviceptr ptr, pointer_facts *facts)
{
    const soft_range *range = soft_range_at_locked(ptr);
    const soft_mapping *mapping = soft_mapping_at_locked(ptr);
    const soft_backing *backing;
    if (!range || (range->kind == SOFT_KIND_RESERVED && !mapping))
        return false;
    range_facts_locked(range, facts);
    if (!mapping)
        return true;
    backing = &mapping->handle->backing;
    facts->part = mapping->span;
    facts->kind = SOFT_KIND_MAPPED;
    facts->on_host = backing->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    facts->device = facts->on_host ? 0 : backing->location.id; /* 0: what the real driver says */
    facts->cpu_touches = mapping->access[SOFT_ACCESSOR_CPU] != SOFT_ACCESS_NONE;
    facts->buffer_id = mapping->handle->buffer_id;
    memcpy(facts->access, mapping->access, sizeof facts->access);
    return true;
}

static bool facts_of(CUdeviceptr ptr, pointer_facts *facts)
{
    bool known;
    soft_space_lock_read();
    known = facts_locked(ptr, facts);
    soft_space_unlock();
    return known;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
    pointer_facts facts;
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!facts_of(ptr, &facts))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = facts.part.addr;
    if (size)
        *size = facts.part.size_bytes;
    return CUDA_SUCCESS;
}

/* Writes a value of the type that an attribute is documented to have. */
#define ANSWER(type, value) \
    do { \
        *(type *)data = (value); \
        return CUDA_SUCCESS; \
    } while (0)

static CUresult answer_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr ptr,
                               const pointer_facts *facts)
{
    int device;
    CUresult rc;
    if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
        if (!facts->cpu_touches)
            return CUDA_ERROR_INVALID_VALUE;
        ANSWER(void *, soft_pages_pointer(ptr));
    }
    rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (facts->access[device] == SOFT_ACCESS_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    ANSWER(CUdeviceptr, ptr);
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    pointer_facts facts;
    CUresult rc = soft_enter();
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!data || !facts_of(ptr, &facts))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* Virtual memory management knows no contexts. */
        ANSWER(CUcontext,
               facts.kind == SOFT_KIND_MAPPED ? NULL : soft_context_handle(facts.context_id));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        ANSWER(unsigned int, facts.on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return answer_pointer(data, attribute, ptr, &facts);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: ANSWER(unsigned long long, facts.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: ANSWER(int, facts.kind == SOFT_KIND_MANAGED);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: ANSWER(int, facts.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: ANSWER(int, facts.exportable);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: ANSWER(CUdeviceptr, facts.whole.addr);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: ANSWER(size_t, facts.whole.size_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: ANSWER(int, 1); /* or it would not be known */
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}
