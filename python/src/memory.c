/* Memory of others, read in place, and the bits and offsets that loading makes of it (gvmem/_load.py). */
#include <stdlib.h>

#include "module.h"

#include "dlpack.h"

static PyTypeObject *memory_type;

typedef struct memory {
    PyObject_HEAD;
    PyObject *owner; /* whose it is, and as long as that lives */
    char *address;
    Py_ssize_t bytes;
} memory;

static PyObject *make_memory(PyObject *owner, char *address, Py_ssize_t bytes)
{
    memory *m = PyObject_New(memory, memory_type);

    if (m == NULL)
        return NULL;
    m->owner = Py_NewRef(owner);
    m->address = address;
    m->bytes = bytes;
    return (PyObject *)m;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    Py_DECREF(((memory *)self)->owner);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    const memory *m = (memory *)self;

    return PyBuffer_FillInfo(view, self, m->address == NULL ? (void *)"" : m->address, m->bytes, 1,
                             flags);
}

PyObject *memory_new(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *owner, *address;
    Py_ssize_t bytes;
    char *first;

    if (!PyArg_ParseTuple(arguments, "OO!n", &owner, &PyLong_Type, &address, &bytes))
        return NULL;
    first = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() != NULL)
        return NULL;
    if (bytes < 0 || (first == NULL && bytes > 0))
        return PyErr_Format(PyExc_ValueError, "%zd bytes at %p", bytes, first);
    return make_memory(owner, first, bytes);
}

/* ---- a DLPack capsule, which is left as it is: it frees what it has with its last reference */

static bool is_contiguous(const dl_tensor *tensor)
{
    int64_t stride = 1;

    for (int32_t i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] == 0)
            return true;
    for (int32_t i = tensor->ndim - 1; tensor->strides != NULL && i >= 0; i--) {
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

static PyObject *make_numbers(const int64_t *numbers, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);

        if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* (memory, code, bits, shape) */
static PyObject *take_tensor(PyObject *capsule, const dl_tensor *tensor)
{
    uint64_t bytes = tensor->dtype.bits / 8; /* with a length of 0 it may wrap before */
    PyObject *shape, *result = NULL;

    if (tensor->device.type != DL_CPU && tensor->device.type != DL_CUDA_HOST)
        return PyErr_Format(PyExc_BufferError,
                            "the values are on device (%d, %d), not in memory of the CPU",
                            (int)tensor->device.type, (int)tensor->device.id);
    if (tensor->dtype.lanes != 1 || !is_contiguous(tensor))
        return PyErr_Format(PyExc_BufferError, "the values are not next to each other");
    shape = make_numbers(tensor->shape, tensor->ndim);
    for (int32_t i = 0; i < tensor->ndim; i++)
        bytes *= (uint64_t)tensor->shape[i];
    if (shape != NULL)
        result = Py_BuildValue(
            "(NiiO)",
            make_memory(capsule, (char *)tensor->data + tensor->byte_offset, (Py_ssize_t)bytes),
            (int)tensor->dtype.code, (int)tensor->dtype.bits, shape);
    Py_XDECREF(shape);
    return result;
}

static const dl_tensor *find_tensor(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");

        if (managed->version.major == DL_VERSION_MAJOR)
            return &managed->tensor;
        PyErr_Format(PyExc_BufferError, "DLPack's version %lu is unknown",
                     (unsigned long)managed->version.major);
        return NULL;
    }
    if (PyCapsule_IsValid(capsule, "dltensor"))
        return &((const dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    PyErr_Format(PyExc_TypeError, "that is no capsule of DLPack");
    return NULL;
}

PyObject *memory_of_dlpack(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const dl_tensor *tensor = find_tensor(capsule);

    return tensor == NULL ? NULL : take_tensor(capsule, tensor);
}

/* Of memory anywhere: (address, device type, device, code, bits, shape, strides in elements or None). */
PyObject *memory_read_dlpack(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const dl_tensor *tensor = find_tensor(capsule);
    PyObject *shape, *strides;

    if (tensor == NULL)
        return NULL;
    if (tensor->dtype.lanes != 1)
        return PyErr_Format(PyExc_BufferError, "elements of %d lanes are not understood",
                            (int)tensor->dtype.lanes);
    shape = make_numbers(tensor->shape, tensor->ndim);
    strides = tensor->strides == NULL ? Py_NewRef(Py_None)
                                      : make_numbers(tensor->strides, tensor->ndim);
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("(NiiiiNN)", PyLong_FromVoidPtr((char *)tensor->data + tensor->byte_offset),
                         (int)tensor->device.type, (int)tensor->device.id, (int)tensor->dtype.code,
                         (int)tensor->dtype.bits, shape, strides);
}

/* The address of the first element of what has a buffer, which its owner keeps there. */
PyObject *memory_read_buffer(PyObject *Py_UNUSED(module), PyObject *owner)
{
    PyObject *result;
    Py_buffer view;

    if (PyObject_GetBuffer(owner, &view, PyBUF_STRIDES) != 0)
        return NULL;
    result = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return result;
}

/* ---- bits and offsets */

static void copy_bits(uint8_t *into, uint64_t at, const uint8_t *from, uint64_t offset, uint64_t count)
{
    for (uint64_t i = 0; i < count;) {
        if ((at + i) % 8 == 0 && (offset + i) % 8 == 0 && count - i >= 8) {
            const uint64_t bytes = (count - i) / 8;

            memcpy(into + (at + i) / 8, from + (offset + i) / 8, bytes);
            i += 8 * bytes;
        } else {
            const uint8_t bit = (uint8_t)(from[(offset + i) / 8] >> (offset + i) % 8 & 1u);

            into[(at + i) / 8] = (uint8_t)(into[(at + i) / 8] | bit << (at + i) % 8);
            i++;
        }
    }
}

static void set_bits(uint8_t *into, uint64_t at, uint64_t count)
{
    for (uint64_t i = at; i < at + count;) {
        if (i % 8 == 0 && at + count - i >= 8) {
            into[i / 8] = 0xff;
            i += 8;
        } else {
            into[i / 8] = (uint8_t)(into[i / 8] | 1u << i % 8);
            i++;
        }
    }
}

static bool fits(uint64_t first, uint64_t count, Py_ssize_t bytes)
{
    return first <= (uint64_t)bytes * 8 && count <= (uint64_t)bytes * 8 - first;
}

/* put_bits(into, at, from or None, offset, count): into has zeros there; None stands for ones. */
PyObject *memory_put_bits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    uint64_t at, offset, count;
    PyObject *source, *result = NULL;
    Py_buffer into, from = {0};

    if (!PyArg_ParseTuple(arguments, "w*O&OO&O&", &into, get_u64, &at, &source, get_u64, &offset,
                          get_u64, &count))
        return NULL;
    if (source != Py_None && PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) != 0)
        goto end;
    if (!fits(at, count, into.len) || (from.buf != NULL && !fits(offset, count, from.len))) {
        PyErr_Format(PyExc_ValueError, "%llu bits are more than there are", (unsigned long long)count);
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS;
    if (from.buf != NULL)
        copy_bits(into.buf, at, from.buf, offset, count);
    else
        set_bits(into.buf, at, count);
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);

end:
    if (from.obj != NULL)
        PyBuffer_Release(&from);
    PyBuffer_Release(&into);
    return result;
}

/* pack_bits(bytes that are 0 or not): a bit for each */
PyObject *memory_pack_bits(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *result;
    Py_buffer from;
    Py_ssize_t bytes;
    uint8_t *bits;

    if (!PyArg_ParseTuple(arguments, "y*", &from))
        return NULL;
    bytes = (from.len + 7) / 8;
    bits = calloc((size_t)bytes + 1, 1);
    if (bits == NULL) {
        PyBuffer_Release(&from);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < from.len; i++)
        if (((const uint8_t *)from.buf)[i] != 0)
            bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << i % 8);
    Py_END_ALLOW_THREADS;
    result = PyBytes_FromStringAndSize((char *)bits, bytes);
    free(bits);
    PyBuffer_Release(&from);
    return result;
}

/* move_offsets(offsets of 4 or 8 bytes, width, more): each of them plus more, of 8 bytes. Sums may wrap: the server checks. */
PyObject *memory_move_offsets(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *result;
    Py_ssize_t count;
    long long more;
    Py_buffer from;
    int64_t *moved;
    int width;

    if (!PyArg_ParseTuple(arguments, "y*iL", &from, &width, &more))
        return NULL;
    if (width != 4 && width != 8) {
        PyBuffer_Release(&from);
        return PyErr_Format(PyExc_ValueError, "offsets of %d bytes", width);
    }
    count = from.len / width;
    moved = calloc((size_t)count + 1, sizeof *moved);
    if (moved == NULL) {
        PyBuffer_Release(&from);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t narrow;
        int64_t wide;

        if (width == 4) {
            memcpy(&narrow, (const char *)from.buf + 4 * i, sizeof narrow);
            wide = narrow;
        } else {
            memcpy(&wide, (const char *)from.buf + 8 * i, sizeof wide);
        }
        moved[i] = (int64_t)((uint64_t)wide + (uint64_t)more);
    }
    Py_END_ALLOW_THREADS;
    result = PyBytes_FromStringAndSize((char *)moved, count * (Py_ssize_t)sizeof *moved);
    free(moved);
    PyBuffer_Release(&from);
    return result;
}

bool memory_ready(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, dealloc},
        {Py_bf_getbuffer, get_buffer},
        {0, NULL},
    };
    PyType_Spec spec = {"gvmem._gvmem.Memory", sizeof(memory), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return memory_type != NULL && PyModule_AddObjectRef(module, "Memory", (PyObject *)memory_type) == 0;
}
