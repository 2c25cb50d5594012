/* The module: what is common to its types, and what acts on none of them. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "module.h"

#include <gvmem/gstore_arrow.h>

static PyObject *errors; /* status: exception class; filled by gvmem/errors.py */

static PyObject *make_text(const char *text)
{
    return text == NULL ? Py_NewRef(Py_None)
                        : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

static void set_attribute(PyObject *object, const char *name, PyObject *value)
{
    if (value == NULL || PyObject_SetAttrString(object, name, value) != 0)
        PyErr_Clear(); /* the exception goes without it */
    Py_XDECREF(value);
}

PyObject *raise_status(void)
{
    gvm_error error;
    PyObject *status, *type, *exception;

    gvm_error_last(&error);
    status = PyLong_FromLong((long)error.status);
    if (status == NULL)
        return NULL;
    type = PyDict_GetItemWithError(errors, status);
    if (type == NULL && PyErr_Occurred() == NULL)
        type = PyExc_RuntimeError;
    exception = type == NULL ? NULL : PyObject_CallFunction(type, "N", make_text(error.text));
    if (exception != NULL) {
        set_attribute(exception, "status", Py_NewRef(status));
        set_attribute(exception, "name", PyUnicode_FromString(gvm_status_name(error.status)));
        set_attribute(exception, "native_code", PyLong_FromLong(error.native_code));
        set_attribute(exception, "native_call", PyUnicode_FromString(error.native_call));
        set_attribute(exception, "native_name", PyUnicode_FromString(error.native_name));
        PyErr_SetObject(type, exception);
        Py_DECREF(exception);
    }
    Py_DECREF(status);
    return NULL;
}

/* ---- arguments and results */

int get_u64(PyObject *number, void *out)
{
    PyObject *index = PyNumber_Index(number);
    unsigned long long value;

    if (index == NULL)
        return 0;
    value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (value == (unsigned long long)-1 && PyErr_Occurred() != NULL) {
        PyErr_Format(PyExc_ValueError, "%S is not in [0, 2**64)", number);
        return 0;
    }
    *(uint64_t *)out = value;
    return 1;
}

bool get_part(PyObject *size, const Py_buffer *into, uint64_t *out)
{
    uint64_t len_bytes = (uint64_t)into->len;

    if (size != Py_None && !get_u64(size, &len_bytes))
        return false;
    if (len_bytes > (uint64_t)into->len) {
        PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes has no room for %S", into->len, size);
        return false;
    }
    *out = len_bytes;
    return true;
}

int get_u32(PyObject *number, void *out)
{
    uint64_t value;

    if (!get_u64(number, &value))
        return 0;
    if (value > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%S is not in [0, 2**32)", number);
        return 0;
    }
    *(uint32_t *)out = (uint32_t)value;
    return 1;
}

int get_stream(PyObject *number, void *out)
{
    stream_argument *argument = out;
    uint64_t value;

    if (number == Py_None)
        return 1;
    if (!get_u64(number, &value))
        return 0;
    *argument = (stream_argument){true, (gvm_stream)(uintptr_t)value, NULL};
    return 1;
}

int get_kept_stream(PyObject *number, void *out)
{
    stream_argument *argument = out;
    PyObject *keep = NULL;

    if (PyTuple_Check(number) && PyTuple_Size(number) == 2) {
        keep = PyTuple_GetItem(number, 1);
        number = PyTuple_GetItem(number, 0);
    }
    if (!get_stream(number, out))
        return 0;
    if (keep != NULL)
        argument->keep = keep;
    if (!argument->given || (uintptr_t)argument->stream != 2) /* CU_STREAM_PER_THREAD */
        return 1;
    PyErr_SetString(PyExc_NotImplementedError,
                    "the per-thread default stream is another one in each thread, and another thread may be "
                    "the last to use this memory: use streams that the program makes");
    return 0;
}

void set_stream(stream_argument *noted, stream_argument stream)
{
    PyObject *before = noted->keep;

    Py_XINCREF(stream.keep);
    *noted = stream;
    Py_XDECREF(before); /* may run code of the program */
}

static PyObject *make_hex(const uint8_t *bytes, size_t count)
{
    char text[2 * 16 + 1];

    for (size_t i = 0; i < count && i < 16; i++)
        PyOS_snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return PyUnicode_FromString(text);
}

static PyObject *make_value(const field *f, const char *at)
{
    switch (f->kind) {
    case FIELD_U64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)at);
    case FIELD_U32: return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
    case FIELD_I32: return PyLong_FromLong(*(const int32_t *)(const void *)at);
    case FIELD_I16: return PyLong_FromLong(*(const int16_t *)(const void *)at);
    case FIELD_BOOL: return PyBool_FromLong(*at);
    case FIELD_CHAR: return PyUnicode_FromStringAndSize(at, 1);
    case FIELD_BYTES: return make_hex((const uint8_t *)at, f->bytes);
    case FIELD_RAW: return PyBytes_FromStringAndSize(at, (Py_ssize_t)f->bytes);
    case FIELD_NAME: return make_text(at);
    case FIELD_TEXT: return make_text(*(const char *const *)(const void *)at);
    case FIELD_ADDRESS: return PyLong_FromVoidPtr(*(void *const *)(const void *)at);
    }
    return NULL;
}

PyObject *make_dict(const field *fields, const void *values)
{
    PyObject *dict = PyDict_New();

    for (; dict != NULL && fields->name != NULL; fields++) {
        PyObject *value = make_value(fields, (const char *)values + fields->offset);

        if (value == NULL || PyDict_SetItemString(dict, fields->name, value) != 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* ---- the module's own functions */

static PyObject *get_driver(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_driver_info, version, FIELD_I32),
        FIELD(gvm_driver_info, software, FIELD_BOOL),
        FIELD(gvm_driver_info, path, FIELD_NAME),
        FIELD(gvm_driver_info, reason, FIELD_NAME),
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_driver_info info = {.struct_size = sizeof info};
    gvm_status status;

    WITHOUT_GIL(status = gvm_driver_get_info(&info));
    return status == GVM_OK ? make_dict(fields, &info) : raise_status();
}

static PyMethodDef functions[] = {
    {"connect", client_connect, METH_O, "connect(path or None): a Client"},
    {"adopt", client_adopt, METH_VARARGS, "adopt(socket's descriptor): a Client, which owns it then"},
    {"attach", table_attach, METH_VARARGS, "attach(token, flags): a Table"},
    {"open_load", client_open_load, METH_VARARGS, "open_load(token): (Client, Object)"},
    {"buffer", buffer_create, METH_VARARGS,
     "buffer(reserve, size, device, chunk, address or None, flags): a Buffer"},
    {"vector", vector_create, METH_VARARGS,
     "vector(size of an element, most elements, device, chunk, flags): a Vector"},
    {"heap", heap_create, METH_VARARGS,
     "heap(device, kind, flags, limit, keep, shelf, decay_ms): a Heap"},
    {"space", space_create, METH_VARARGS, "space(device, budget, wait_ms, flags): a Space"},
    {"arena", arena_create, METH_VARARGS, "arena(object, its address, reserve, chunk): an Arena of it"},
    {"enter_arena", arena_enter, METH_O,
     "enter_arena(Arena or None): what this thread's gvmem_arena_alloc() allocates from; returns what that was"},
    {"setting", pools_setting, METH_O, "setting(name): the value of a setting of the library"},
    {"pools_start", pools_start, METH_VARARGS,
     "pools_start(limit, keep, decay_ms, whether they are chosen): the address of the calls"},
    {"pools_alloc", pools_alloc, METH_VARARGS,
     "pools_alloc(device, bytes, stream, is_ordered): an address"},
    {"pools_free", pools_free, METH_VARARGS, "pools_free(address, stream or None)"},
    {"pools_end_stream", pools_end_stream, METH_VARARGS,
     "pools_end_stream(stream): whether it may be destroyed; one without live blocks and users"},
    {"pools_grant", pools_grant, METH_VARARGS, "pools_grant(device, peer)"},
    {"pools_trim", pools_trim, METH_NOARGS, "pools_trim()"},
    {"order_streams", stream_order_by_number, METH_VARARGS,
     "order_streams(device, first, second): what the second is given from now on waits for the first"},
    {"copy_on_stream", stream_copy, METH_VARARGS, "copy_on_stream(device, to, from, bytes, stream)"},
    {"memory", memory_new, METH_VARARGS, "memory(owner, address, bytes): it, as a buffer"},
    {"of_dlpack", memory_of_dlpack, METH_O, "of_dlpack(capsule): (memory, code, bits, shape)"},
    {"read_dlpack", memory_read_dlpack, METH_O,
     "read_dlpack(capsule): (address, device type, device, code, bits, shape, strides or None)"},
    {"read_buffer", memory_read_buffer, METH_O, "read_buffer(owner): the address"},
    {"put_bits", memory_put_bits, METH_VARARGS, "put_bits(into, at, from or None, offset, count)"},
    {"pack_bits", memory_pack_bits, METH_VARARGS, "pack_bits(bytes): bits"},
    {"move_offsets", memory_move_offsets, METH_VARARGS,
     "move_offsets(offsets, width, more): offsets of 8 bytes"},
    {"arrow_schema", arrow_read_schema, METH_O,
     "arrow_schema(capsule): (format, name, children, dictionary)"},
    {"arrow_array", arrow_read_array, METH_O,
     "arrow_array(capsule): (length, offset, buffers, children)"},
    {"arrow_make_schema", arrow_make_schema, METH_O,
     "arrow_make_schema((format, name, length, null count, buffers, child or None)): a capsule"},
    {"arrow_export", arrow_export, METH_VARARGS,
     "arrow_export(hold, the same, whether with the device): a capsule"},
    {"arrow_stream_schema", arrow_stream_schema, METH_O, "of a stream's capsule: a schema's"},
    {"arrow_stream_next", arrow_stream_next, METH_O, "of a stream's capsule: an array's, or None"},
    {"driver", get_driver, METH_NOARGS, "the driver that is loaded"},
    {NULL, NULL, 0, NULL},
};

/* clang-format off */
#define CONSTANTS(X) \
    X(OBJECT_KEEP) X(OBJECT_UNTRACKED) X(OBJECT_HOST) X(OBJECT_REGIONS) \
    X(OPEN_READONLY) X(OPEN_SAME_ADDRESS) X(OPEN_LINK) X(OPEN_MAPPED) \
    X(PUBLISH_REPLACE) X(PUBLISH_PRIVATE) \
    X(LEASE_READ) X(LEASE_WRITE) \
    X(HINT_NONE) X(HINT_SCAN) X(HINT_HOT) X(HINT_ONCE) \
    X(ACQUIRE_CPU) X(TABLE_WHOLE) X(FOREVER) \
    X(BUFFER_UNSHARED) X(SPACE_CHECK) X(HEAP_UNSHARED) X(HEAP_KEEP) X(HEAP_DEVICE) X(HEAP_HOST) X(HEAP_MANAGED) X(TIER_ABSENT) X(TIER_DEVICE) X(TIER_HOST) X(TIER_PEER) \
    X(ACCESS_NONE) X(ACCESS_READ) X(ACCESS_READWRITE)
/* clang-format on */

static bool add_constants(PyObject *module)
{
#define ADD_CONSTANT(name) \
    if (PyModule_AddIntConstant(module, #name, (long)GVM_##name) != 0) \
        return false;
    CONSTANTS(ADD_CONSTANT)
#undef ADD_CONSTANT
    return PyModule_AddIntConstant(module, "ARROW_VERSION", (long)GSTORE_ARROW_VERSION) == 0;
}

/* The rows of GVM_STATUS_TABLE, for the classes of errors. */
static bool add_statuses(PyObject *module)
{
    PyObject *list = PyList_New(0);

#define ADD_STATUS(name, value, sqlstate, text) \
    { \
        PyObject *row = Py_BuildValue("(siss)", #name, value, sqlstate, text); \
\
        if (row == NULL || PyList_Append(list, row) != 0) { \
            Py_XDECREF(row); \
            Py_DECREF(list); \
            return false; \
        } \
        Py_DECREF(row); \
    }
    if (list == NULL)
        return false;
    GVM_STATUS_TABLE(ADD_STATUS)
#undef ADD_STATUS
    if (PyModule_AddObjectRef(module, "statuses", list) != 0) {
        Py_DECREF(list);
        return false;
    }
    Py_DECREF(list);
    return true;
}

static void format_version(unsigned long version, char text[32])
{
    PyOS_snprintf(text, 32, "%lu.%lu.%lu", version / 10000, version / 100 % 100, version % 100);
}

/* A library of the same minor version, and of the same patch or a later one, has all that this module was compiled with. */
static bool check_version(unsigned long loaded)
{
    const unsigned long own = GVM_VERSION_MAJOR * 10000 + GVM_VERSION_MINOR * 100 + GVM_VERSION_PATCH;
    char own_text[32], loaded_text[32];
    Dl_info place = {0};

    if (loaded / 100 == own / 100 && loaded >= own)
        return true;
    format_version(own, own_text);
    format_version(loaded, loaded_text);
    (void)dladdr((void *)(uintptr_t)gvm_version, &place);
    PyErr_Format(PyExc_ImportError,
                 "the package gvmem is of version %s, and the library that was loaded, %s, of version %s: install both of one "
                 "version, or see what LD_LIBRARY_PATH has",
                 own_text, place.dli_fname == NULL ? "libgvmem" : place.dli_fname, loaded_text);
    return false;
}

static bool fill(PyObject *module)
{
    char text[32];

    format_version(gvm_version(), text);
    errors = PyDict_New();
    return errors != NULL && PyModule_AddObjectRef(module, "errors", errors) == 0 &&
           PyModule_AddStringConstant(module, "version", text) == 0 && add_constants(module) &&
           add_statuses(module) && handle_ready(module) && hold_ready(module) &&
           memory_ready(module) && arena_ready(module) && array_ready(module);
}

/* Types and classes of errors are of the process, so of one interpreter. Imported there a second time, it is what it was. */
static int execute(PyObject *module)
{
    static PyObject *first;

    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "gvmem works in the main interpreter alone: import it there, and use threads or processes "
                        "in the place of other interpreters");
        return -1;
    }
    if (first != NULL)
        return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first));
    if (!fill(module))
        return -1;
    first = Py_NewRef(module);
    return 0;
}

PyMODINIT_FUNC PyInit__gvmem(void);

PyMODINIT_FUNC PyInit__gvmem(void)
{
    static PyModuleDef_Slot slots[] = {
        {Py_mod_exec, execute},
        {0, NULL},
    };
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        .m_name = "gvmem._gvmem",
        .m_doc = "The public C API of gvmem. Use the package gvmem.",
        .m_methods = functions,
        .m_slots = slots,
    };

    return check_version(gvm_version()) ? PyModuleDef_Init(&definition) : NULL;
}
