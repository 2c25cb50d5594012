/* A vector: an array that grows in place. */
#include "module.h"

PyObject *vector_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    gvm_buffer_options options = gvm_buffer_options_init();
    gvm_buffer_info info = {.struct_size = sizeof info};
    uint64_t elem_bytes, max_count;
    gvm_status status;
    int ordinal;
    handle *h;

    if (!PyArg_ParseTuple(arguments, "O&O&iO&O&", get_u64, &elem_bytes, get_u64, &max_count,
                          &ordinal, get_u64, &options.chunk_bytes, get_u32, &options.flags))
        return NULL;
    h = local_new(KIND_VECTOR, ordinal);
    if (h == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = gvm_vector_create(h->device, (size_t)elem_bytes, max_count, &options, &h->of.vector);
    if (status == GVM_OK) {
        h->ended = false;
        status = gvm_buffer_get_info(gvm_vector_buffer(h->of.vector), &info);
    }
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    h->address = info.address;
    h->bytes = info.reserve_bytes;
    h->elem_bytes = elem_bytes;
    return (PyObject *)h;
}

/* ---- its length */

static PyObject *append(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result = NULL;
    Py_buffer elems;

    if (!PyArg_ParseTuple(arguments, "y*", &elems))
        return NULL;
    if ((uint64_t)elems.len % h->elem_bytes != 0)
        PyErr_Format(PyExc_ValueError, "%zd bytes are no multiple of %llu, the size of an element",
                     elems.len, (unsigned long long)h->elem_bytes);
    else
        CALL_HANDLE(result, h,
                    gvm_vector_append(h->of.vector, elems.buf, (uint64_t)elems.len / h->elem_bytes),
                    Py_NewRef(Py_None));
    PyBuffer_Release(&elems);
    return result;
}

static PyObject *commit(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t capacity;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &capacity))
        return NULL;
    CALL_HANDLE(result, h, gvm_vector_commit(h->of.vector, capacity), Py_NewRef(Py_None));
    return result;
}

/* Elements that are dropped keep their memory, and so do arrays. Not beside shrink(), which would take it. */
static PyObject *resize(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t count;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &count))
        return NULL;
    CHANGE_HANDLE(result, h, UINT64_MAX, UINT64_MAX, GVM_LEASE_READ, false,
                  gvm_vector_resize(h->of.vector, count), Py_NewRef(Py_None));
    return result;
}

static PyObject *shrink(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    PyObject *result;
    uint64_t used;

    if (!handle_use(h))
        return NULL;
    used = gvm_vector_count(h->of.vector) * h->elem_bytes;
    handle_unuse(h);
    CHANGE_HANDLE(result, h, used, UINT64_MAX, GVM_LEASE_READ, true,
                  gvm_vector_shrink(h->of.vector), Py_NewRef(Py_None));
    return result;
}

/* (elements, capacity): 0 for both in a child by fork */
static PyObject *get_counts(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, GVM_OK,
                Py_BuildValue("(KK)", (unsigned long long)gvm_vector_count(h->of.vector),
                              (unsigned long long)gvm_vector_capacity(h->of.vector)));
    return result;
}

/* ---- arrays */

static gvm_status find_room(handle *h, uint64_t offset, uint64_t *bytes, bool *readonly)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    const gvm_status status = gvm_buffer_get_info(gvm_vector_buffer(h->of.vector), &info);
    const uint64_t used = gvm_vector_count(h->of.vector) * h->elem_bytes;

    if (status == GVM_OK && offset > used)
        return gvm_error_set(GVM_E_INVALID, "element %llu is behind the %llu there are",
                             (unsigned long long)(offset / h->elem_bytes),
                             (unsigned long long)(used / h->elem_bytes));
    *bytes = used - offset;
    *readonly = info.sealed != 0;
    return status;
}

static PyObject *make_array(PyObject *self, PyObject *arguments)
{
    return local_array((handle *)self, arguments, find_room);
}

PyMethodDef vector_methods[] = {
    {"append", append, METH_VARARGS, "append(bytes of elements)"},
    {"commit", commit, METH_VARARGS, "commit(capacity)"},
    {"resize", resize, METH_VARARGS, "resize(count)"},
    {"shrink", shrink, METH_NOARGS, NULL},
    {"counts", get_counts, METH_NOARGS, "(elements, capacity)"},
    {"array", make_array, METH_VARARGS,
     "array(offset, element type, shape or None, stream or None, whether it is read-only)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
