/* Arrays: a typed view of what a lease lends, for others to consume.
 *
 * Who consumes one by DLPack or the buffer protocol holds the lease until the consumer is gone. By
 * __cuda_array_interface__ a consumer holds the array itself: from the first time that is asked for, the array holds the lease.
 */
#include <stdlib.h>

#include "module.h"

#include "dlpack.h"

PyTypeObject *array_type;

typedef struct array {
    PyObject_HEAD;
    hold *lease; /* owned */
    char *address;
    const element *type;
    int ndim;
    bool readonly;
    bool contiguous; /* in C's order */
    bool exported;   /* by __cuda_array_interface__ */
    Py_ssize_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
    uint64_t bytes;
} array;

static const element elements[] = {
    {"|b1", "?", DL_BOOL, 8},
    {"|i1", "b", DL_INT, 8},
    {"<i2", "h", DL_INT, 16},
    {"<i4", "i", DL_INT, 32},
    {"<i8", "q", DL_INT, 64},
    {"|u1", "B", DL_UINT, 8},
    {"<u2", "H", DL_UINT, 16},
    {"<u4", "I", DL_UINT, 32},
    {"<u8", "Q", DL_UINT, 64},
    {"<f2", "e", DL_FLOAT, 16},
    {"<f4", "f", DL_FLOAT, 32},
    {"<f8", "d", DL_FLOAT, 64},
    {"<c8", "Zf", DL_COMPLEX, 64},
    {"<c16", "Zd", DL_COMPLEX, 128},
    {"bfloat16", NULL, DL_BFLOAT, 16},
    {"float8_e4m3fn", NULL, DL_FLOAT8_E4M3FN, 8},
    {"float8_e5m2", NULL, DL_FLOAT8_E5M2, 8},
    {"float8_e8m0fnu", NULL, DL_FLOAT8_E8M0FNU, 8},
};

const element *find_element(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (strcmp(name, elements[i].name) == 0)
            return &elements[i];
    PyErr_Format(PyExc_ValueError, "there is no element type %s", name);
    return NULL;
}

/* ---- making one */

/* One dimension of all there is, without a shape; -1 stands for what is left. Strides are C's. */
static bool set_shape(array *a, PyObject *shape, uint64_t room_bytes)
{
    const uint64_t size = a->type->bits / 8u;
    uint64_t bytes = size,
             step = size; /* bytes: with 1 in the place of 0, so that strides are numbers, too */
    bool empty = false;
    int open = -1;

    if (shape == Py_None) {
        a->ndim = 1;
        a->shape[0] = -1;
    } else {
        const Py_ssize_t ndim = PyTuple_Size(shape);

        if (ndim < 0)
            return false;
        if (ndim > DIMENSIONS_MAX) {
            PyErr_Format(PyExc_ValueError, "%zd dimensions are more than %d", ndim, DIMENSIONS_MAX);
            return false;
        }
        a->ndim = (int)ndim;
        for (int i = 0; i < a->ndim; i++) {
            PyObject *number = PyNumber_Index(PyTuple_GetItem(shape, i));

            a->shape[i] = number == NULL ? -2 : PyLong_AsSsize_t(number);
            Py_XDECREF(number);
            if (PyErr_Occurred() != NULL)
                return false;
        }
    }
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] == -1 && open < 0) {
            open = i;
        } else if (a->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "%zd is no length of a dimension", a->shape[i]);
            return false;
        } else if (a->shape[i] == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(bytes, (uint64_t)a->shape[i], &bytes) ||
                   bytes > PY_SSIZE_T_MAX) {
            PyErr_SetString(PyExc_ValueError, "the shape has too many elements");
            return false;
        }
    }
    if (open >= 0) {
        a->shape[open] = empty ? 0 : (Py_ssize_t)(room_bytes / bytes);
        empty |= a->shape[open] == 0;
        bytes *= empty ? 1 : (uint64_t)a->shape[open];
    }
    a->bytes = empty ? 0 : bytes;
    if (a->bytes > room_bytes) {
        PyErr_Format(PyExc_ValueError, "%llu elements of %s are more than the %llu bytes there",
                     (unsigned long long)(bytes / size), a->type->name,
                     (unsigned long long)room_bytes);
        return false;
    }
    for (int i = a->ndim - 1; i >= 0; i--) {
        a->strides[i] = (Py_ssize_t)step;
        step *= a->shape[i] == 0 ? 1 : (uint64_t)a->shape[i];
    }
    a->contiguous = true;
    return true;
}

/* Strides in elements, in the place of C's; room_bytes are there from the first element on. */
static bool set_strides(array *a, PyObject *strides, uint64_t room_bytes)
{
    const uint64_t size = a->type->bits / 8u;
    uint64_t last = 0; /* element, from the first one */

    if (strides == Py_None || a->bytes == 0)
        return true;
    if (!PyTuple_Check(strides) || PyTuple_Size(strides) != a->ndim) {
        PyErr_Format(PyExc_ValueError, "strides are a tuple of %d numbers, one for each dimension",
                     a->ndim);
        return false;
    }
    for (int i = 0; i < a->ndim; i++) {
        uint64_t stride, bytes, step;

        if (!get_u64(PyTuple_GetItem(strides, i), &stride))
            return false;
        if (__builtin_mul_overflow(stride, size, &bytes) || bytes > PY_SSIZE_T_MAX ||
            __builtin_mul_overflow(stride, (uint64_t)a->shape[i] - 1, &step) ||
            __builtin_add_overflow(last, step, &last)) {
            PyErr_SetString(PyExc_ValueError, "the strides lead out of all memory");
            return false;
        }
        if (a->shape[i] > 1 && (Py_ssize_t)bytes != a->strides[i])
            a->contiguous = false;
        a->strides[i] = (Py_ssize_t)bytes;
    }
    if (last < room_bytes / size)
        return true;
    PyErr_Format(PyExc_ValueError, "element %llu of %s lies behind the %llu bytes there",
                 (unsigned long long)last, a->type->name, (unsigned long long)room_bytes);
    return false;
}

PyObject *array_new(hold *h, uint32_t index, uint64_t offset, const element *type, PyObject *shape,
                    PyObject *strides)
{
    uint64_t room_bytes;
    array *a;

    if (!hold_check_live(h))
        return NULL;
    if (index >= h->regions_count || offset > h->regions[index].bytes)
        return PyErr_Format(PyExc_ValueError, "offset %llu is behind the end",
                            (unsigned long long)offset);
    if (((uintptr_t)h->regions[index].address + offset) % (type->bits > 64 ? 8u : type->bits / 8u) != 0)
        return PyErr_Format(PyExc_ValueError, "offset %llu is not aligned for %s",
                            (unsigned long long)offset, type->name);
    a = PyObject_New(array, array_type);
    if (a == NULL)
        return NULL;
    memset((char *)a + sizeof(PyObject), 0, sizeof *a - sizeof(PyObject));
    a->lease = (hold *)Py_NewRef((PyObject *)h);
    a->type = type;
    a->readonly = h->mode != GVM_LEASE_WRITE;
    a->address = h->regions[index].address + offset;
    room_bytes = h->regions[index].bytes - offset;
    if (!set_shape(a, shape, strides == Py_None ? room_bytes : PY_SSIZE_T_MAX) || /* elements may have the same bytes */
        !set_strides(a, strides, room_bytes)) {
        Py_DECREF((PyObject *)a);
        return NULL;
    }
    return (PyObject *)a;
}

uint64_t array_bytes(PyObject *self)
{
    return ((array *)self)->bytes;
}

static void dealloc(PyObject *self)
{
    array *a = (array *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (a->exported)
        hold_unexport(a->lease);
    Py_DECREF((PyObject *)a->lease);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- the buffer protocol: NumPy, memoryview */

/* Before the CPU uses the bytes. */
static bool wait_for_stream(const array *a)
{
    gvm_status status;

    if (!a->lease->ordered)
        return true;
    WITHOUT_GIL(status = stream_wait(a->lease->owner->device, a->lease->stream.stream));
    if (status != GVM_OK)
        raise_status();
    return status == GVM_OK;
}

static bool check_on_cpu(const array *a)
{
    if (!hold_check_live(a->lease))
        return false;
    if (hold_is_on_cpu(a->lease))
        return true;
    PyErr_SetString(PyExc_BufferError,
                    "the memory is a GPU's: consume it there, by __dlpack__ or __cuda_array_interface__; "
                    "copy it, by copy_out(); or acquire it with cpu=True");
    return false;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    array *a = (array *)self;

    view->obj = NULL;
    if (!check_on_cpu(a))
        return -1;
    if (a->type->format == NULL && (flags & PyBUF_FORMAT) != 0) {
        PyErr_Format(PyExc_BufferError, "the buffer protocol has no %s", a->type->name);
        return -1;
    }
    if (a->readonly && (flags & PyBUF_WRITABLE) != 0) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only, as one of a lease for reading");
        return -1;
    }
    if (a->contiguous && (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && a->ndim > 1) {
        PyErr_SetString(PyExc_BufferError, "the array is C-contiguous");
        return -1;
    }
    if (!a->contiguous && ((flags & PyBUF_STRIDES) != PyBUF_STRIDES ||
                           (flags & (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) &
                            ~PyBUF_STRIDES) != 0)) {
        PyErr_SetString(PyExc_BufferError, "the array is not contiguous in C's order: it has strides");
        return -1;
    }
    if (!wait_for_stream(a) || !hold_check_live(a->lease))
        return -1;
    memset(view, 0, sizeof *view);
    view->buf = a->address == NULL ? (void *)a : a->address; /* of no bytes */
    view->obj = Py_NewRef(self);
    view->len = (Py_ssize_t)a->bytes;
    view->itemsize = a->type->bits / 8;
    view->readonly = a->readonly;
    view->format = (flags & PyBUF_FORMAT) != 0 ? (char *)a->type->format : NULL;
    view->ndim = (flags & PyBUF_ND) != 0 ? a->ndim : 1;
    view->shape = (flags & PyBUF_ND) != 0 ? a->shape : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? a->strides : NULL;
    hold_export(a->lease);
    return 0;
}

static void release_buffer(PyObject *self, Py_buffer *Py_UNUSED(view))
{
    hold_unexport(((array *)self)->lease);
}

/* NumPy comes here where the buffer protocol has failed, and would tell nothing of why. */
static PyObject *to_numpy(PyObject *self, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords))
{
    Py_buffer view;

    if (PyObject_GetBuffer(self, &view, PyBUF_FULL_RO) == 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_BufferError, "numpy.asarray() takes the array by the buffer protocol");
    }
    return NULL;
}

/* ---- DLPack */

typedef struct dl_export {
    union {
        dl_managed old;
        dl_managed_versioned versioned;
    } of;
    hold *lease;
    int64_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
} dl_export;

static void end_export(dl_export *e)
{
    hold_unexport_outside(e->lease);
    free(e);
}

static void end_old(dl_managed *managed)
{
    end_export(managed->context);
}

static void end_versioned(dl_managed_versioned *managed)
{
    end_export(managed->context);
}

/* A consumer renames the capsule, and calls the deleter itself. */
static void end_capsule(PyObject *capsule)
{
    dl_managed_versioned *versioned;
    dl_managed *old;

    if (PyCapsule_IsValid(capsule, "dltensor")) {
        old = PyCapsule_GetPointer(capsule, "dltensor");
        old->deleter(old);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        versioned->deleter(versioned);
    }
}

static dl_tensor make_tensor(const array *a, dl_export *e, int32_t device_type, int32_t device_id)
{
    const int bytes = a->type->bits / 8;

    for (int i = 0; i < a->ndim; i++) {
        e->shape[i] = a->shape[i];
        e->strides[i] = a->strides[i] / bytes;
    }
    return (dl_tensor){
        .data = a->bytes == 0 ? NULL : a->address, /* as DLPack has it */
        .device = {device_type, device_id},
        .ndim = a->ndim,
        .dtype = {a->type->code, a->type->bits, 1},
        .shape = e->shape,
        .strides = e->strides,
    };
}

static PyObject *make_capsule(const array *a, bool versioned, int32_t device_type, int32_t device_id)
{
    dl_export *e = calloc(1, sizeof *e);
    PyObject *capsule;

    if (e == NULL)
        return PyErr_NoMemory();
    if (versioned)
        e->of.versioned = (dl_managed_versioned){
            .version = {DL_VERSION_MAJOR, DL_VERSION_MINOR},
            .context = e,
            .deleter = end_versioned,
            .flags = a->readonly ? DL_FLAG_READ_ONLY : 0,
            .tensor = make_tensor(a, e, device_type, device_id),
        };
    else
        e->of.old = (dl_managed){
            .tensor = make_tensor(a, e, device_type, device_id),
            .context = e,
            .deleter = end_old,
        };
    capsule = PyCapsule_New(&e->of, versioned ? "dltensor_versioned" : "dltensor", end_capsule);
    if (capsule == NULL) {
        free(e);
        return NULL;
    }
    e->lease = a->lease;
    hold_export(a->lease);
    if (!hold_check_live(a->lease)) /* arguments and the garbage collector ran code of the user, which may have ended it */
        Py_CLEAR(capsule);
    return capsule;
}

static int32_t device_type_of(const array *a)
{
    return hold_is_on_cpu(a->lease) ? DL_CPU : DL_CUDA;
}

static int32_t device_id_of(const array *a)
{
    return hold_is_on_cpu(a->lease) ? 0 : a->lease->owner->ordinal;
}

/* The stream of a consumer; *wanted: whether it has to wait. None stands for the legacy default stream. */
static bool find_stream(PyObject *stream, int32_t device_type, uint64_t *out, bool *wanted)
{
    uint64_t number;

    *wanted = true;
    *out = 0;
    if (stream == Py_None)
        return true;
    if (device_type == DL_CPU) {
        PyErr_SetString(PyExc_BufferError, "memory of the CPU has no streams: stream must be None");
        return false;
    }
    if (PyLong_Check(stream) && PyLong_AsLong(stream) == -1) {
        if (PyErr_Occurred() == NULL) {
            *wanted = false;
            return true;
        }
        PyErr_Clear();
    }
    if (!get_u64(stream, &number))
        return false;
    if (number == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "stream 0 is ambiguous: 1 is the legacy default stream, 2 the thread's");
        return false;
    }
    *out = number;
    return true;
}

/* A lease makes the bytes valid on every stream: then nothing waits. Other memory is ordered behind its own stream. */
static bool order_consumer(const array *a, PyObject *stream, int32_t device_type)
{
    gvm_status status;
    uint64_t number;
    bool wanted;

    if (!find_stream(stream, device_type, &number, &wanted))
        return false;
    if (device_type == DL_CPU)
        return wait_for_stream(a);
    if (!a->lease->ordered || !wanted)
        return true;
    WITHOUT_GIL(status = stream_order(a->lease->owner->device, a->lease->stream.stream,
                                      (gvm_stream)(uintptr_t)number));
    if (status != GVM_OK)
        raise_status();
    return status == GVM_OK;
}

static PyObject *dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    const array *a = (array *)self;
    int32_t type = device_type_of(a), id = device_id_of(a);
    int wanted_type, wanted_id, major = 0, minor;

    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$OOO:__dlpack__", names, &stream,
                                     &version, &device, &copy))
        return NULL;
    if (!hold_check_live(a->lease))
        return NULL;
    if (version != Py_None && !PyArg_Parse(version, "(ii)", &major, &minor))
        return NULL;
    if (device != Py_None) {
        if (!PyArg_Parse(device, "(ii)", &wanted_type, &wanted_id))
            return NULL;
        if (a->lease->cpu && !a->lease->home && !a->lease->owner->software && wanted_type == DL_CUDA) {
            type = DL_CUDA; /* both may use it, at the same address */
            id = a->lease->owner->ordinal;
        }
        if (wanted_type != type || wanted_id != id)
            return PyErr_Format(PyExc_BufferError,
                                "the array is on device (%d, %d), not (%d, %d); it is not copied",
                                (int)type, (int)id, wanted_type, wanted_id);
    }
    if (!order_consumer(a, stream, type))
        return NULL;
    if (copy != Py_None) {
        const int wanted = PyObject_IsTrue(copy);

        if (wanted < 0)
            return NULL;
        if (wanted)
            return PyErr_Format(PyExc_BufferError,
                                "it is not copied: let the consumer copy what it takes");
    }
    if (major < 1 && a->readonly)
        return PyErr_Format(
            PyExc_BufferError,
            "the array is read-only, and the consumer does not understand DLPack's read-only "
            "flag: take a later one, or another protocol, or an array that can be written");
    return make_capsule(a, major >= 1, type, id);
}

static PyObject *dlpack_device(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const array *a = (array *)self;

    return Py_BuildValue("(ii)", (int)device_type_of(a), (int)device_id_of(a));
}

/* ---- __cuda_array_interface__, and what is said of an array */

static PyObject *make_tuple(const Py_ssize_t *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);

    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);

        if (number == NULL || PyTuple_SetItem(tuple, i, number) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_cuda_interface(PyObject *self, void *Py_UNUSED(unused))
{
    array *a = (array *)self;
    PyObject *stream, *strides, *result;

    if (a->lease->owner->software)
        return PyErr_Format(PyExc_AttributeError,
                            "memory of a software GPU is no CUDA memory: use NumPy, or __dlpack__");
    if (a->lease->home)
        return PyErr_Format(PyExc_AttributeError,
                            "the CPU has mapped the region: kernels map it themselves");
    if (!hold_check_live(a->lease))
        return NULL;
    if (a->type->format == NULL)
        return PyErr_Format(PyExc_AttributeError,
                            "__cuda_array_interface__ has no %s: use __dlpack__", a->type->name);
    stream = !a->lease->stream.given ? Py_NewRef(Py_None)
                                     : PyLong_FromVoidPtr(a->lease->stream.stream == NULL
                                                              ? (void *)1
                                                              : (void *)a->lease->stream.stream);
    strides = a->contiguous ? Py_NewRef(Py_None) : make_tuple(a->strides, a->ndim);
    result = Py_BuildValue(
        "{s:N,s:s,s:(NO),s:i,s:N,s:N}", "shape", make_tuple(a->shape, a->ndim), "typestr",
        a->type->name, "data", PyLong_FromVoidPtr(a->bytes == 0 ? NULL : a->address),
        a->readonly ? Py_True : Py_False, "version", 3, "strides", strides, "stream", stream);
    if (result != NULL && !hold_check_live(a->lease)) /* the garbage collector ran code of the user */
        Py_CLEAR(result);
    if (result != NULL && !a->exported) {
        a->exported = true;
        hold_export(a->lease);
    }
    return result;
}

static PyObject *get_shape(PyObject *self, void *Py_UNUSED(unused))
{
    return make_tuple(((array *)self)->shape, ((array *)self)->ndim);
}

static PyObject *get_strides(PyObject *self, void *Py_UNUSED(unused))
{
    return make_tuple(((array *)self)->strides, ((array *)self)->ndim);
}

static PyObject *get_dtype(PyObject *self, void *Py_UNUSED(unused))
{
    return PyUnicode_FromString(((array *)self)->type->name);
}

static PyObject *get_nbytes(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((array *)self)->bytes);
}

static PyObject *get_readonly(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((array *)self)->readonly);
}

static PyObject *get_address(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr(((array *)self)->address);
}

static PyObject *get_ended(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((array *)self)->lease->ended);
}

static Py_ssize_t get_length(PyObject *self)
{
    const array *a = (array *)self;

    if (a->ndim > 0)
        return a->shape[0];
    PyErr_SetString(PyExc_TypeError, "an array without dimensions has no length");
    return -1;
}

/* array[first:end]: rows of it, under the same lease */
static PyObject *get_slice(PyObject *self, PyObject *key)
{
    const array *a = (array *)self;
    Py_ssize_t first, end, step, count;
    array *part;

    if (!PySlice_Check(key))
        return PyErr_Format(
            PyExc_TypeError,
            "arrays are cut by slices of the first dimension; what consumes one has its elements");
    if (a->ndim == 0)
        return PyErr_Format(PyExc_TypeError, "an array without dimensions has no slices");
    if (PySlice_Unpack(key, &first, &end, &step) != 0)
        return NULL;
    if (step != 1)
        return PyErr_Format(PyExc_ValueError, "slices have step 1, not %zd", step);
    count = PySlice_AdjustIndices(a->shape[0], &first, &end, step);
    if (!hold_check_live(a->lease))
        return NULL;
    part = PyObject_New(array, array_type);
    if (part == NULL)
        return NULL;
    memcpy((char *)part + sizeof(PyObject), (const char *)a + sizeof(PyObject),
           sizeof *a - sizeof(PyObject));
    Py_INCREF((PyObject *)part->lease);
    part->exported = false;
    part->address += first * a->strides[0];
    part->shape[0] = count;
    part->bytes = a->shape[0] == 0 ? 0 : a->bytes / (uint64_t)a->shape[0] * (uint64_t)count;
    return (PyObject *)part;
}

static PyObject *represent(PyObject *self)
{
    const array *a = (array *)self;
    PyObject *shape = make_tuple(a->shape, a->ndim);
    PyObject *text;

    if (shape == NULL)
        return NULL;
    text = PyUnicode_FromFormat("<gvmem.Array %R of %s on %s %d%s%s>", shape, a->type->name,
                                hold_is_on_cpu(a->lease) ? "CPU" : "GPU", (int)device_id_of(a),
                                a->readonly ? ", read-only" : "", a->lease->ended ? ", ended" : "");
    Py_DECREF(shape);
    return text;
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n\nThe array as a DLPack capsule, which keeps the "
     "lease until the consumer is gone.\nA lease makes the bytes valid on all streams; an array of other memory that was made with a stream has the consumer's\n"
     "stream wait for that one."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "(2, ordinal) on a GPU; (1, 0) on a software GPU and under cpu=True"},
    {"__array__", (PyCFunction)(void (*)(void))to_numpy, METH_VARARGS | METH_KEYWORDS,
     "Raises BufferError: where NumPy can use the memory it does so by the buffer protocol."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"shape", get_shape, NULL, "lengths of the dimensions", NULL},
    {"strides", get_strides, NULL,
     "in bytes; arrays are C-contiguous, but for tensors of models that were not", NULL},
    {"dtype", get_dtype, NULL, "the element type, as NumPy writes it: \"<f4\"; and \"bfloat16\"", NULL},
    {"nbytes", get_nbytes, NULL, "size in bytes", NULL},
    {"readonly", get_readonly, NULL,
     "whether it is of a lease for reading, or of memory that is sealed", NULL},
    {"address", get_address, NULL, "of the first byte", NULL},
    {"ended", get_ended, NULL, "whether the lease has ended: then it cannot be consumed any more", NULL},
    {"__cuda_array_interface__", get_cuda_interface, NULL,
     "Version 3, on a GPU. From now on the lease stays as long as this array does.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool array_ready(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {Py_tp_repr, represent},
        {Py_sq_length, get_length},
        {Py_mp_length, get_length},
        {Py_mp_subscript, get_slice},
        {Py_bf_getbuffer, get_buffer},
        {Py_bf_releasebuffer, release_buffer},
        {Py_tp_doc,
         "Memory of an object, a column or a buffer, for NumPy, CuPy, PyTorch and others to consume. array[a:b] is a part of it."},
        {0, NULL},
    };
    PyType_Spec spec = {"gvmem.Array", sizeof(array), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    array_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return array_type != NULL && PyModule_AddObjectRef(module, "Array", (PyObject *)array_type) == 0;
}
