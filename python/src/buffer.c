/* A buffer: addresses, and memory behind them. */
#include "module.h"

static const field fields[] = {
    FIELD(gvm_buffer_info, address, FIELD_ADDRESS),
    FIELD(gvm_buffer_info, reserve_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, chunk_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, device_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, host_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, peer_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, generation, FIELD_U64),
    FIELD(gvm_buffer_info, moved_bytes, FIELD_U64),
    FIELD(gvm_buffer_info, ordinal, FIELD_I32),
    FIELD(gvm_buffer_info, sealed, FIELD_BOOL),
    FIELD(gvm_buffer_info, imported, FIELD_BOOL),
    FIELD(gvm_buffer_info, vmm, FIELD_BOOL),
    {NULL, 0, 0, FIELD_U64},
};

PyObject *buffer_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    gvm_buffer_options options = gvm_buffer_options_init();
    gvm_buffer_info info = {.struct_size = sizeof info};
    uint64_t reserve_bytes, size_bytes, address;
    gvm_status status;
    int ordinal;
    handle *h;

    if (!PyArg_ParseTuple(arguments, "O&O&iO&O&O&", get_u64, &reserve_bytes, get_u64, &size_bytes,
                          &ordinal, get_u64, &options.chunk_bytes, get_u64, &address, get_u32,
                          &options.flags))
        return NULL;
    options.address = (void *)(uintptr_t)address;
    h = local_new(KIND_BUFFER, ordinal);
    if (h == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = gvm_buffer_create(h->device, reserve_bytes, &options, &h->of.buffer);
    if (status == GVM_OK) {
        h->ended = false;
        status = gvm_buffer_get_info(h->of.buffer, &info);
    }
    if (status == GVM_OK && size_bytes > 0)
        status = gvm_buffer_commit(h->of.buffer, 0, size_bytes);
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    h->address = info.address;
    h->bytes = info.reserve_bytes;
    return (PyObject *)h;
}

static PyObject *get_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    gvm_buffer_info info = {.struct_size = sizeof info};
    PyObject *result;

    CALL_HANDLE(result, h, gvm_buffer_get_info(h->of.buffer, &info), make_dict(fields, &info));
    return result;
}

static PyObject *get_tier(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes;
    PyObject *result;
    gvm_tier tier;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &offset_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_buffer_get_tier(h->of.buffer, offset_bytes, &tier),
                PyLong_FromLong((long)tier));
    return result;
}

/* ---- memory behind it */

static PyObject *commit(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&O&", get_u64, &offset_bytes, get_u64, &len_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_buffer_commit(h->of.buffer, offset_bytes, len_bytes),
                Py_NewRef(Py_None));
    return result;
}

static PyObject *decommit(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes, end_bytes;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&O&", get_u64, &offset_bytes, get_u64, &len_bytes))
        return NULL;
    if (__builtin_add_overflow(offset_bytes, len_bytes, &end_bytes))
        end_bytes = UINT64_MAX;
    CHANGE_HANDLE(result, h, offset_bytes, end_bytes, GVM_LEASE_READ, true,
                  gvm_buffer_decommit(h->of.buffer, offset_bytes, len_bytes), Py_NewRef(Py_None));
    return result;
}

static PyObject *seal(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    PyObject *result;

    CHANGE_HANDLE(result, h, 0, UINT64_MAX, GVM_LEASE_WRITE, true, gvm_buffer_seal(h->of.buffer),
                  Py_NewRef(Py_None));
    return result;
}

static PyObject *move(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes;
    PyObject *result;
    uint32_t tier;

    if (!PyArg_ParseTuple(arguments, "O&O&O&", get_u64, &offset_bytes, get_u64, &len_bytes, get_u32,
                          &tier))
        return NULL;
    /* arrays stay */
    CHANGE_HANDLE(result, h, UINT64_MAX, UINT64_MAX, GVM_LEASE_READ, true,
                  gvm_buffer_move(h->of.buffer, offset_bytes, len_bytes, (gvm_tier)tier),
                  Py_NewRef(Py_None));
    return result;
}

/* The buffer keeps the peer. */
static gvm_status open_and_move(handle *h, uint64_t offset_bytes, uint64_t len_bytes, int32_t ordinal)
{
    gvm_device *peer;
    gvm_status status = gvm_device_open(ordinal, &peer);

    if (status == GVM_OK) {
        status = gvm_buffer_move_to_peer(h->of.buffer, offset_bytes, len_bytes, peer);
        gvm_device_close(peer);
    }
    return status;
}

static PyObject *move_to_peer(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes;
    PyObject *result;
    int ordinal;

    if (!PyArg_ParseTuple(arguments, "O&O&i", get_u64, &offset_bytes, get_u64, &len_bytes, &ordinal))
        return NULL;
    CHANGE_HANDLE(result, h, UINT64_MAX, UINT64_MAX, GVM_LEASE_READ, true,
                  open_and_move(h, offset_bytes, len_bytes, ordinal), Py_NewRef(Py_None));
    return result;
}

static gvm_status grant_to(handle *h, gvm_device *peer, gvm_access access)
{
    return gvm_buffer_grant(h->of.buffer, peer, access);
}

static PyObject *grant(PyObject *self, PyObject *arguments)
{
    return local_grant((handle *)self, arguments, grant_to);
}

/* ---- copies and fills */

static PyObject *copy_in(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes;
    PyObject *result;
    Py_buffer bytes;

    if (!PyArg_ParseTuple(arguments, "O&y*", get_u64, &offset_bytes, &bytes))
        return NULL;
    CALL_HANDLE(result, h,
                gvm_buffer_copy_in(h->of.buffer, offset_bytes, bytes.buf, (uint64_t)bytes.len),
                Py_NewRef(Py_None));
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *copy_out(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes;
    PyObject *size, *result = NULL;
    Py_buffer bytes;

    if (!PyArg_ParseTuple(arguments, "w*OO&", &bytes, &size, get_u64, &offset_bytes))
        return NULL;
    if (get_part(size, &bytes, &len_bytes))
        CALL_HANDLE(result, h, gvm_buffer_copy_out(bytes.buf, h->of.buffer, offset_bytes, len_bytes),
                    Py_NewRef(Py_None));
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *copy(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self, *source;
    uint64_t offset_bytes, source_bytes, len_bytes;
    stream_argument stream = {false, NULL, NULL};
    PyObject *result = NULL;
    gvm_status status;

    if (!PyArg_ParseTuple(arguments, "O&O!O&O&O&", get_u64, &offset_bytes, handle_types[KIND_BUFFER],
                          &source, get_u64, &source_bytes, get_u64, &len_bytes, get_stream, &stream))
        return NULL;
    if (!local_begin_work(source, stream.given))
        return NULL;
    if (local_begin_work(h, stream.given)) {
        WITHOUT_GIL(status = stream.given
                                 ? gvm_buffer_copy_async(h->of.buffer, offset_bytes, source->of.buffer,
                                                         source_bytes, len_bytes, stream.stream)
                                 : gvm_buffer_copy(h->of.buffer, offset_bytes, source->of.buffer,
                                                   source_bytes, len_bytes));
        result = status == GVM_OK ? Py_NewRef(Py_None) : raise_status();
        local_end_work(h, stream.given);
    }
    local_end_work(source, stream.given);
    return result;
}

static PyObject *fill(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, len_bytes;
    stream_argument stream = {false, NULL, NULL};
    PyObject *result = NULL;
    Py_buffer pattern;
    gvm_status status;

    if (!PyArg_ParseTuple(arguments, "O&O&y*O&", get_u64, &offset_bytes, get_u64, &len_bytes,
                          &pattern, get_stream, &stream))
        return NULL;
    if (local_begin_work(h, stream.given)) {
        WITHOUT_GIL(status = stream.given ? gvm_buffer_fill_async(h->of.buffer, offset_bytes,
                                                                  len_bytes, pattern.buf,
                                                                  (size_t)pattern.len, stream.stream)
                                          : gvm_buffer_fill(h->of.buffer, offset_bytes, len_bytes,
                                                            pattern.buf, (size_t)pattern.len));
        result = status == GVM_OK ? Py_NewRef(Py_None) : raise_status();
        local_end_work(h, stream.given);
    }
    PyBuffer_Release(&pattern);
    return result;
}

/* ---- arrays */

/* What is committed from an offset on, without a gap. */
static gvm_status find_room(handle *h, uint64_t offset, uint64_t *bytes, bool *readonly)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_buffer_get_info(h->of.buffer, &info);
    uint64_t end = offset;
    gvm_tier tier;

    while (status == GVM_OK && end < info.reserve_bytes) {
        status = gvm_buffer_get_tier(h->of.buffer, end, &tier);
        if (status != GVM_OK || tier == GVM_TIER_ABSENT)
            break;
        end = (end / info.chunk_bytes + 1) * info.chunk_bytes;
    }
    end = end < info.reserve_bytes ? end : info.reserve_bytes;
    *bytes = end < offset ? 0 : end - offset;
    *readonly = info.sealed != 0;
    return status;
}

static PyObject *get_room(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t offset_bytes, bytes;
    PyObject *result;
    bool sealed;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &offset_bytes))
        return NULL;
    CALL_HANDLE(result, h, find_room(h, offset_bytes, &bytes, &sealed),
                PyLong_FromUnsignedLongLong(bytes));
    return result;
}

static PyObject *make_array(PyObject *self, PyObject *arguments)
{
    return local_array((handle *)self, arguments, find_room);
}

PyMethodDef buffer_methods[] = {
    {"info", get_info, METH_NOARGS, NULL},
    {"tier", get_tier, METH_VARARGS, "tier(offset)"},
    {"commit", commit, METH_VARARGS, "commit(offset, size)"},
    {"decommit", decommit, METH_VARARGS, "decommit(offset, size)"},
    {"seal", seal, METH_NOARGS, NULL},
    {"move", move, METH_VARARGS, "move(offset, size, tier)"},
    {"move_to_peer", move_to_peer, METH_VARARGS, "move_to_peer(offset, size, device)"},
    {"grant", grant, METH_VARARGS, "grant(device, access)"},
    {"copy_in", copy_in, METH_VARARGS, "copy_in(offset, bytes)"},
    {"copy_out", copy_out, METH_VARARGS, "copy_out(buffer, size or None, offset)"},
    {"copy", copy, METH_VARARGS, "copy(offset, source, its offset, size, stream or None)"},
    {"fill", fill, METH_VARARGS, "fill(offset, size, pattern, stream or None)"},
    {"room", get_room, METH_VARARGS, "room(offset): bytes that have memory from there on"},
    {"array", make_array, METH_VARARGS,
     "array(offset, element type, shape or None, stream or None, whether it is read-only)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
