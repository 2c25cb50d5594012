/* Spaces and collections of regions. A region that the CPU has mapped is a hold on its collection. */
#include "module.h"

PyObject *space_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_status status;
    int ordinal;
    handle *h;

    if (!PyArg_ParseTuple(arguments, "iO&O&O&", &ordinal, get_u64, &options.budget_bytes, get_u32,
                          &options.wait_ms, get_u32, &options.flags))
        return NULL;
    h = local_new(KIND_SPACE, ordinal);
    if (h == NULL)
        return NULL;
    WITHOUT_GIL(status = gvm_space_create(h->device, &options, &h->of.space));
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    h->ended = false;
    return (PyObject *)h;
}

static PyObject *create_collection(PyObject *self, PyObject *arguments)
{
    gvm_collection_options options = gvm_collection_options_init();
    handle *space = (handle *)self, *h;
    uint64_t count, region_bytes;
    gvm_status status;
    uint32_t policy;

    if (!PyArg_ParseTuple(arguments, "O&O&O&O&O&O&O&(O&O&O&)", get_u64, &count, get_u64,
                          &region_bytes, get_u64, &options.budget_bytes, get_u32, &policy, get_u64,
                          &options.unused_count, get_u32, &options.clean_low, get_u32,
                          &options.clean_high, get_u64, &options.shape.width_bytes, get_u32,
                          &options.shape.height, get_u32, &options.shape.depth))
        return NULL;
    options.policy = (gvm_region_policy)policy;
    if (!handle_use(space))
        return NULL;
    h = (handle *)handle_new(KIND_COLLECTION, space);
    if (h != NULL) {
        h->ordinal = space->ordinal;
        h->software = space->software;
        h->device = space->device; /* the space's */
        WITHOUT_GIL(status = gvm_collection_create(space->of.space, count, region_bytes, &options,
                                                   &h->of.collection));
        if (status == GVM_OK) {
            h->ended = false;
        } else {
            raise_status();
            Py_CLEAR(h);
        }
    }
    handle_unuse(space);
    return (PyObject *)h;
}

static PyObject *sync_space(PyObject *self, PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    handle *h = (handle *)self;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&", get_stream, &stream))
        return NULL;
    CALL_HANDLE(result, h, gvm_space_sync(h->of.space, stream.stream), Py_NewRef(Py_None));
    return result;
}

static PyObject *get_space_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_space_info, budget_bytes, FIELD_U64),
        FIELD(gvm_space_info, frame_bytes, FIELD_U64),
        FIELD(gvm_space_info, metadata_bytes, FIELD_U64),
        FIELD(gvm_space_info, host_bytes, FIELD_U64),
        FIELD(gvm_space_info, region_count, FIELD_U64),
        FIELD(gvm_space_info, collection_count, FIELD_U32),
        FIELD(gvm_space_info, ordinal, FIELD_I32),
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_space_info info = {.struct_size = sizeof info};
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_space_get_info(h->of.space, &info), make_dict(fields, &info));
    return result;
}

PyMethodDef space_methods[] = {
    {"collection", create_collection, METH_VARARGS,
     "collection(count, size, budget, policy, unused, clean_low, clean_high, (width, height, depth))"},
    {"sync", sync_space, METH_VARARGS, "sync(stream or None)"},
    {"info", get_space_info, METH_NOARGS, NULL},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- collections */

static PyObject *get_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_collection_info, region_bytes, FIELD_U64),
        FIELD(gvm_collection_info, stride_bytes, FIELD_U64),
        FIELD(gvm_collection_info, region_count, FIELD_U64),
        FIELD(gvm_collection_info, frame_count, FIELD_U64),
        FIELD(gvm_collection_info, fetched, FIELD_U64),
        FIELD(gvm_collection_info, written, FIELD_U64),
        FIELD(gvm_collection_info, evicted, FIELD_U64),
        FIELD(gvm_collection_info, remote, FIELD_U64),
        FIELD(gvm_collection_info, policy, FIELD_U32),
        FIELD(gvm_collection_info, live_count, FIELD_U64),
        FIELD(gvm_collection_info, cleaned, FIELD_U64),
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_collection_info info = {.struct_size = sizeof info};
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_collection_get_info(h->of.collection, &info), make_dict(fields, &info));
    return result;
}

static PyObject *get_view(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    gvm_region_view view;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_collection_get_view(h->of.collection, &view),
                PyBytes_FromStringAndSize((char *)&view, (Py_ssize_t)sizeof view));
    return result;
}

static PyObject *set_policy(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t policy;

    if (!PyArg_ParseTuple(arguments, "O&", get_u32, &policy))
        return NULL;
    CALL_HANDLE(result, h, gvm_collection_set_policy(h->of.collection, (gvm_region_policy)policy),
                Py_NewRef(Py_None));
    return result;
}

static PyObject *create_region(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t number;

    CALL_HANDLE(result, h, gvm_region_create(h->of.collection, &number),
                PyLong_FromUnsignedLong(number));
    return result;
}

static PyObject *delete_region(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t number;

    if (!PyArg_ParseTuple(arguments, "O&", get_u32, &number))
        return NULL;
    CALL_HANDLE(result, h, gvm_region_delete(h->of.collection, number), Py_NewRef(Py_None));
    return result;
}

/* A hold on it: what the CPU sees is its home. */
static PyObject *map_region(PyObject *self, PyObject *arguments)
{
    gvm_collection_info info = {.struct_size = sizeof info};
    handle *h = (handle *)self;
    uint32_t number, access;
    void *address = NULL;
    gvm_status status;
    hold *lease;

    if (!PyArg_ParseTuple(arguments, "O&O&", get_u32, &number, get_u32, &access))
        return NULL;
    lease = hold_new(h, 1, 0);
    if (lease == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = gvm_collection_get_info(h->of.collection, &info);
    if (status == GVM_OK)
        status = gvm_region_map_cpu(h->of.collection, number, access, &address);
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)lease);
        return NULL;
    }
    hold_acquired(lease, access == GVM_REGION_READ ? GVM_LEASE_READ : GVM_LEASE_WRITE,
                  GVM_ACQUIRE_CPU, (stream_argument){false, NULL, NULL});
    lease->home = true;
    lease->number = number;
    lease->regions[0] = (region){address, info.region_bytes};
    return (PyObject *)lease;
}

typedef gvm_status range_call(gvm_collection *, uint32_t, uint64_t, gvm_stream);

static PyObject *call_range(PyObject *self, PyObject *arguments, range_call *call)
{
    stream_argument stream = {false, NULL, NULL};
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t first;
    uint64_t count;

    if (!PyArg_ParseTuple(arguments, "O&O&O&", get_u32, &first, get_u64, &count, get_stream, &stream))
        return NULL;
    CALL_HANDLE(result, h, call(h->of.collection, first, count, stream.stream), Py_NewRef(Py_None));
    return result;
}

static PyObject *prefetch(PyObject *self, PyObject *arguments)
{
    return call_range(self, arguments, gvm_region_prefetch);
}

static PyObject *prefetch_by_engine(PyObject *self, PyObject *arguments)
{
    return call_range(self, arguments, gvm_region_prefetch_by_engine);
}

static PyObject *evict(PyObject *self, PyObject *arguments)
{
    return call_range(self, arguments, gvm_region_evict);
}

/* Addresses of arrays that the caller has checked; 0 is none. */
static PyObject *resolve(PyObject *self, PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    handle *h = (handle *)self;
    uint64_t regions, count, slots, addresses;
    uint32_t access;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&O&O&O&O&O&", get_u64, &regions, get_u64, &count, get_u32,
                          &access, get_u64, &slots, get_u64, &addresses, get_stream, &stream))
        return NULL;
    CALL_HANDLE(result, h,
                gvm_region_resolve(h->of.collection, (const uint32_t *)(uintptr_t)regions, count,
                                   access, (uint32_t *)(uintptr_t)slots,
                                   (void **)(uintptr_t)addresses, stream.stream),
                Py_NewRef(Py_None));
    return result;
}

static PyObject *release(PyObject *self, PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    handle *h = (handle *)self;
    uint64_t regions, count, slots;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&O&O&O&", get_u64, &regions, get_u64, &count, get_u64,
                          &slots, get_stream, &stream))
        return NULL;
    CALL_HANDLE(result, h,
                gvm_region_release(h->of.collection, (const uint32_t *)(uintptr_t)regions, count,
                                   (const uint32_t *)(uintptr_t)slots, stream.stream),
                Py_NewRef(Py_None));
    return result;
}

PyMethodDef collection_methods[] = {
    {"info", get_info, METH_NOARGS, NULL},
    {"view", get_view, METH_NOARGS, "the bytes of a gvm_region_view"},
    {"set_policy", set_policy, METH_VARARGS, "set_policy(number)"},
    {"create", create_region, METH_NOARGS, "create(): the region's number"},
    {"delete", delete_region, METH_VARARGS, "delete(number)"},
    {"map", map_region, METH_VARARGS, "map(number, access): a Hold"},
    {"prefetch", prefetch, METH_VARARGS, "prefetch(first, count, stream or None)"},
    {"prefetch_by_engine", prefetch_by_engine, METH_VARARGS,
     "prefetch_by_engine(first, count, stream or None)"},
    {"evict", evict, METH_VARARGS, "evict(first, count, stream or None)"},
    {"resolve", resolve, METH_VARARGS,
     "resolve(regions, count, access, slots, addresses, stream or None)"},
    {"release", release, METH_VARARGS, "release(regions, count, slots, stream or None)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
