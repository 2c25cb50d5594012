/* An object of a keeper. */
#include "module.h"

extern const field object_fields[];

static PyObject *grow(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t size_bytes;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &size_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_grow(h->of.object, size_bytes), Py_NewRef(Py_None));
    return result;
}

static PyObject *shrink(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t size_bytes;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &size_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_shrink(h->of.object, size_bytes), Py_NewRef(Py_None));
    return result;
}

static PyObject *seal(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    int timeout_ms;

    if (!PyArg_ParseTuple(arguments, "i", &timeout_ms))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_seal(h->of.object, timeout_ms), Py_NewRef(Py_None));
    return result;
}

static PyObject *publish(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    const char *name;
    uint32_t flags;

    if (!PyArg_ParseTuple(arguments, "sO&", &name, get_u32, &flags))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_publish(h->of.object, name, flags), Py_NewRef(Py_None));
    return result;
}

static PyObject *link_name(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t size_bytes;
    const char *name;
    uint32_t mode;

    if (!PyArg_ParseTuple(arguments, "sO&O&", &name, get_u32, &mode, get_u64, &size_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_link(h->of.object, name, mode, size_bytes), Py_NewRef(Py_None));
    return result;
}

static PyObject *set_mode(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t mode;

    if (!PyArg_ParseTuple(arguments, "O&", get_u32, &mode))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_set_mode(h->of.object, mode), Py_NewRef(Py_None));
    return result;
}

static PyObject *get_metadata(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    char bytes[GVM_METADATA_BYTES_MAX];
    uint32_t len_bytes;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_object_get_metadata(h->of.object, bytes, sizeof bytes, &len_bytes),
                PyBytes_FromStringAndSize(bytes, (Py_ssize_t)len_bytes));
    return result;
}

static PyObject *set_metadata(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t len_bytes;
    Py_buffer bytes;

    if (!PyArg_ParseTuple(arguments, "y*", &bytes))
        return NULL;
    len_bytes = bytes.len < UINT32_MAX ? (uint32_t)bytes.len : UINT32_MAX;
    CALL_HANDLE(result, h, gvm_object_set_metadata(h->of.object, bytes.buf, len_bytes),
                Py_NewRef(Py_None));
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *get_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    gvm_object_info info = {.struct_size = sizeof info};
    PyObject *result;

    CALL_HANDLE(result, h, gvm_object_get_info(h->of.object, &info), make_dict(object_fields, &info));
    return result;
}

/* ---- leases and copies */

static PyObject *acquire(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    gvm_acquire_options options = gvm_acquire_options_init();
    stream_argument stream = {false, NULL, NULL};
    gvm_status status;
    uint32_t mode, hint;
    unsigned long thread;
    int timeout_ms;
    hold *lease;

    if (!PyArg_ParseTuple(arguments, "O&O&O&iO&k", get_u32, &mode, get_u32, &hint, get_u32,
                          &options.flags, &timeout_ms, get_kept_stream, &stream, &thread))
        return NULL;
    options.hint = (gvm_hint)hint;
    lease = hold_new(h, 1, thread);
    if (lease == NULL)
        return NULL;
    WITHOUT_GIL(status = gvm_object_acquire(h->of.object, (gvm_lease_mode)mode, &options,
                                            timeout_ms, &lease->lease));
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)lease);
        return NULL;
    }
    hold_acquired(lease, mode, options.flags, stream);
    lease->regions[0] = (region){lease->lease.address, lease->lease.size_bytes};
    return (PyObject *)lease;
}

/* A hold with addresses and without a lease, for arrays that outlive leases. There must be a lease when such an array is used.
 * `keep` lives as long as the hold, and the hold as long as what has consumed the array. */
static PyObject *view(PyObject *self, PyObject *arguments)
{
    PyObject *address, *keep;
    uint64_t size_bytes;
    hold *addresses;
    int writable;
    char *first;

    if (!PyArg_ParseTuple(arguments, "O!O&pO", &PyLong_Type, &address, get_u64, &size_bytes,
                          &writable, &keep))
        return NULL;
    first = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() != NULL)
        return NULL;
    addresses = hold_new((handle *)self, 1, 0);
    if (addresses == NULL)
        return NULL;
    addresses->regions[0] = (region){first, size_bytes};
    addresses->mode = writable ? GVM_LEASE_WRITE : GVM_LEASE_READ;
    addresses->keep = Py_NewRef(keep);
    addresses->owner->viewed = true;
    return (PyObject *)addresses;
}

static PyObject *copy_in(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t offset_bytes;
    Py_buffer bytes;
    int timeout_ms;

    if (!PyArg_ParseTuple(arguments, "O&y*i", get_u64, &offset_bytes, &bytes, &timeout_ms))
        return NULL;
    CALL_HANDLE(
        result, h,
        gvm_object_copy_in(h->of.object, offset_bytes, bytes.buf, (uint64_t)bytes.len, timeout_ms),
        Py_NewRef(Py_None));
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *copy_out(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *size, *result = NULL;
    uint64_t offset_bytes, len_bytes;
    Py_buffer bytes;
    int timeout_ms;

    if (!PyArg_ParseTuple(arguments, "w*OO&i", &bytes, &size, get_u64, &offset_bytes, &timeout_ms))
        return NULL;
    if (get_part(size, &bytes, &len_bytes))
        CALL_HANDLE(result, h,
                    gvm_object_copy_out(bytes.buf, h->of.object, offset_bytes, len_bytes, timeout_ms),
                    Py_NewRef(Py_None));
    PyBuffer_Release(&bytes);
    return result;
}

/* Why an acquire would wait for a lease of this process that only the caller can end; "" if it would not. */
static PyObject *find_own_conflict(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    unsigned long thread;
    uint32_t mode, flags;

    if (!PyArg_ParseTuple(arguments, "O&O&k", get_u32, &mode, get_u32, &flags, &thread))
        return NULL;
    for (const hold *lease = h->holds; lease != NULL; lease = lease->next)
        if (hold_conflicts(lease, mode, flags, thread))
            return hold_conflict_text(lease);
    return hold_conflict_text(NULL);
}

PyMethodDef object_methods[] = {
    {"grow", grow, METH_VARARGS, "grow(size)"},
    {"shrink", shrink, METH_VARARGS, "shrink(size)"},
    {"seal", seal, METH_VARARGS, "seal(timeout_ms)"},
    {"publish", publish, METH_VARARGS, "publish(name, flags)"},
    {"link", link_name, METH_VARARGS, "link(name, mode, size)"},
    {"set_mode", set_mode, METH_VARARGS, "set_mode(mode)"},
    {"get_metadata", get_metadata, METH_NOARGS, NULL},
    {"set_metadata", set_metadata, METH_VARARGS, "set_metadata(bytes)"},
    {"info", get_info, METH_NOARGS, NULL},
    {"acquire", acquire, METH_VARARGS,
     "acquire(mode, hint, flags, timeout_ms, stream or None, thread): a Hold"},
    {"view", view, METH_VARARGS,
     "view(address, size, whether arrays are to be written, what to keep): a Hold without a lease"},
    {"copy_in", copy_in, METH_VARARGS, "copy_in(offset, bytes, timeout_ms)"},
    {"copy_out", copy_out, METH_VARARGS, "copy_out(buffer, size or None, offset, timeout_ms)"},
    {"own_conflict", find_own_conflict, METH_VARARGS, "own_conflict(mode, flags, thread): text"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
