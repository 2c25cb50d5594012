/* Apache Arrow's C data interface and C stream interface, read: capsules as tuples (gvmem/_load.py); and its C device data interface,
 * written, for columns (gvmem/_table.py). */
#include <stdlib.h>

#include "module.h"

#include "dlpack.h"

#define DEPTH_MAX 4 /* a table, its columns, a list's elements; deeper ones are refused there */
#define CHILDREN_MAX 65536

/* The ABI: https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html */
typedef struct arrow_schema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct arrow_schema **children, *dictionary;
    void (*release)(struct arrow_schema *);
    void *private_data;
} arrow_schema;

typedef struct arrow_array {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct arrow_array **children, *dictionary;
    void (*release)(struct arrow_array *);
    void *private_data;
} arrow_array;

typedef struct arrow_stream {
    int (*get_schema)(struct arrow_stream *, arrow_schema *);
    int (*get_next)(struct arrow_stream *, arrow_array *);
    const char *(*get_last_error)(struct arrow_stream *);
    void (*release)(struct arrow_stream *);
    void *private_data;
} arrow_stream;

static bool check_children(int64_t count, int depth)
{
    if (depth < DEPTH_MAX && count >= 0 && count <= CHILDREN_MAX)
        return true;
    PyErr_SetString(PyExc_ValueError, "values of Arrow are nested too deeply");
    return false;
}

/* (format, name, [children], whether it has a dictionary) */
static PyObject *schema_tuple(const arrow_schema *schema, int depth)
{
    PyObject *children;

    if (!check_children(schema->n_children, depth))
        return NULL;
    children = PyList_New(0);
    for (int64_t i = 0; children != NULL && i < schema->n_children; i++) {
        PyObject *child = schema_tuple(schema->children[i], depth + 1);

        if (child == NULL || PyList_Append(children, child) != 0)
            Py_CLEAR(children);
        Py_XDECREF(child);
    }
    if (children == NULL)
        return NULL;
    return Py_BuildValue("(ssNO)", schema->format, schema->name == NULL ? "" : schema->name,
                         children, schema->dictionary != NULL ? Py_True : Py_False);
}

/* (length, offset, [addresses of buffers], [children]) */
static PyObject *array_tuple(const arrow_array *array, int depth)
{
    PyObject *buffers, *children;

    if (!check_children(array->n_children, depth) || !check_children(array->n_buffers, depth))
        return NULL;
    buffers = PyList_New(0);
    children = PyList_New(0);
    for (int64_t i = 0; buffers != NULL && i < array->n_buffers; i++) {
        PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)array->buffers[i]);

        if (address == NULL || PyList_Append(buffers, address) != 0)
            Py_CLEAR(buffers);
        Py_XDECREF(address);
    }
    for (int64_t i = 0; children != NULL && i < array->n_children; i++) {
        PyObject *child = array_tuple(array->children[i], depth + 1);

        if (child == NULL || PyList_Append(children, child) != 0)
            Py_CLEAR(children);
        Py_XDECREF(child);
    }
    if (buffers == NULL || children == NULL) {
        Py_XDECREF(buffers);
        Py_XDECREF(children);
        return NULL;
    }
    return Py_BuildValue("(LLNN)", (long long)array->length, (long long)array->offset, buffers,
                         children);
}

PyObject *arrow_read_schema(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const arrow_schema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");

    if (schema != NULL && schema->release == NULL)
        return PyErr_Format(PyExc_ValueError, "the schema was consumed before");
    return schema == NULL ? NULL : schema_tuple(schema, 0);
}

PyObject *arrow_read_array(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    const arrow_array *array = PyCapsule_GetPointer(capsule, "arrow_array");

    if (array != NULL && array->release == NULL)
        return PyErr_Format(PyExc_ValueError, "the array was consumed before");
    return array == NULL ? NULL : array_tuple(array, 0);
}

/* ---- streams */

/* Producers may run Python to release something, while an exception is under way here. */
static void end_schema(PyObject *capsule)
{
    arrow_schema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (schema->release != NULL)
        schema->release(schema);
    PyErr_Restore(type, value, trace);
    free(schema);
}

/* Of an arrow_device_array too, whose first member is the array. */
static void end_array(PyObject *capsule)
{
    arrow_array *array = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    PyObject *type, *value, *trace;

    PyErr_Fetch(&type, &value, &trace);
    if (array->release != NULL)
        array->release(array);
    PyErr_Restore(type, value, trace);
    free(array);
}

static PyObject *raise_stream(arrow_stream *stream, int code)
{
    const char *text = stream->get_last_error(stream);

    return PyErr_Format(PyExc_ValueError, "the stream of Arrow fails: %s (error %d)",
                        text == NULL ? "" : text, code);
}

static arrow_stream *get_stream_of(PyObject *capsule)
{
    arrow_stream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");

    if (stream == NULL || stream->release != NULL)
        return stream;
    PyErr_SetString(PyExc_ValueError, "the stream was consumed before");
    return NULL;
}

/* The schema of a stream, as a capsule. */
PyObject *arrow_stream_schema(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    arrow_stream *stream = get_stream_of(capsule);
    arrow_schema *schema;
    PyObject *result;
    int code;

    if (stream == NULL)
        return NULL;
    schema = calloc(1, sizeof *schema);
    if (schema == NULL)
        return PyErr_NoMemory();
    WITHOUT_GIL(code = stream->get_schema(stream, schema));
    if (code != 0) {
        free(schema);
        return raise_stream(stream, code);
    }
    result = PyCapsule_New(schema, "arrow_schema", end_schema);
    if (result == NULL) {
        schema->release(schema);
        free(schema);
    }
    return result;
}

/* The next array of a stream, as a capsule; None at the end. */
PyObject *arrow_stream_next(PyObject *Py_UNUSED(module), PyObject *capsule)
{
    arrow_stream *stream = get_stream_of(capsule);
    arrow_array *array;
    PyObject *result;
    int code;

    if (stream == NULL)
        return NULL;
    array = calloc(1, sizeof *array);
    if (array == NULL)
        return PyErr_NoMemory();
    WITHOUT_GIL(code = stream->get_next(stream, array));
    if (code != 0 || array->release == NULL) {
        free(array);
        return code != 0 ? raise_stream(stream, code) : Py_NewRef(Py_None);
    }
    result = PyCapsule_New(array, "arrow_array", end_array);
    if (result == NULL) {
        array->release(array);
        free(array);
    }
    return result;
}

/* ---- columns, written: what they lend is kept until the consumer releases it */

typedef struct arrow_device_array {
    arrow_array array;
    int64_t device_id;
    int32_t device_type;
    void *sync_event;
    int64_t reserved[3];
} arrow_device_array;

enum { BUFFERS_MAX = 3 };

/* Of each schema and each array, as a consumer may take children away from their parent. */
typedef struct arrow_schema_export {
    arrow_schema child, *children[1];
    char *format, *name;
} arrow_schema_export;

typedef struct arrow_array_export {
    arrow_array child, *children[1];
    const void *buffers[BUFFERS_MAX];
    hold *lease;
} arrow_array_export;

static void release_schema(arrow_schema *schema)
{
    arrow_schema_export *e = schema->private_data;

    if (schema->n_children > 0 && schema->children[0]->release != NULL)
        schema->children[0]->release(schema->children[0]);
    free(e->format);
    free(e->name);
    free(e);
    schema->release = NULL;
}

static void release_array(arrow_array *array)
{
    arrow_array_export *e = array->private_data;

    if (array->n_children > 0 && array->children[0]->release != NULL)
        array->children[0]->release(array->children[0]);
    hold_unexport_outside(e->lease);
    free(e);
    array->release = NULL;
}

/* A tuple (format, name, length, null count, (address of each buffer), node of the child or None) */
typedef struct arrow_node {
    const char *format, *name;
    long long length, nulls;
    PyObject *buffers, *child;
} arrow_node;

static bool read_node(PyObject *tuple, arrow_node *node)
{
    if (PyTuple_Check(tuple))
        return PyArg_ParseTuple(tuple, "ssLLO!O", &node->format, &node->name, &node->length,
                                &node->nulls, &PyTuple_Type, &node->buffers, &node->child);
    PyErr_Format(PyExc_TypeError, "%R is no tuple that describes an array of Arrow", tuple);
    return false;
}

static bool write_schema(arrow_schema *schema, PyObject *tuple)
{
    arrow_schema_export *e;
    arrow_node node;

    if (!read_node(tuple, &node))
        return false;
    e = calloc(1, sizeof *e);
    if (e == NULL || (e->format = strdup(node.format)) == NULL ||
        (e->name = strdup(node.name)) == NULL) {
        if (e != NULL)
            free(e->format);
        free(e);
        PyErr_NoMemory();
        return false;
    }
    e->children[0] = &e->child;
    *schema = (arrow_schema){
        .format = e->format,
        .name = e->name,
        .flags = 2, /* ARROW_FLAG_NULLABLE */
        .children = e->children,
        .release = release_schema,
        .private_data = e,
    };
    if (node.child == Py_None)
        return true;
    if (!write_schema(&e->child, node.child)) {
        schema->release(schema);
        return false;
    }
    schema->n_children = 1;
    return true;
}

static bool write_array(arrow_array *array, PyObject *tuple, hold *lease)
{
    arrow_array_export *e;
    arrow_node node;
    Py_ssize_t count;

    if (!read_node(tuple, &node))
        return false;
    count = PyTuple_Size(node.buffers);
    if (count > BUFFERS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd buffers are more than an array of Arrow has", count);
        return false;
    }
    e = calloc(1, sizeof *e);
    if (e == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        e->buffers[i] = PyLong_AsVoidPtr(PyTuple_GetItem(node.buffers, i));
    if (PyErr_Occurred() != NULL) {
        free(e);
        return false;
    }
    e->children[0] = &e->child;
    e->lease = lease;
    hold_export(lease);
    *array = (arrow_array){
        .length = node.length,
        .null_count = node.nulls,
        .n_buffers = count,
        .buffers = e->buffers,
        .children = e->children,
        .release = release_array,
        .private_data = e,
    };
    if (node.child == Py_None)
        return true;
    if (!write_array(&e->child, node.child, lease)) {
        array->release(array);
        return false;
    }
    array->n_children = 1;
    return true;
}

/* arrow_make_schema(node): its schema, as a capsule */
PyObject *arrow_make_schema(PyObject *Py_UNUSED(module), PyObject *node)
{
    arrow_schema *schema = calloc(1, sizeof *schema);
    PyObject *result = NULL;

    if (schema == NULL)
        return PyErr_NoMemory();
    if (write_schema(schema, node)) {
        result = PyCapsule_New(schema, "arrow_schema", end_schema);
        if (result == NULL)
            schema->release(schema);
    }
    if (result == NULL)
        free(schema);
    return result;
}

/* arrow_export(hold, node, whether with the device): the array, as a capsule. Without, only what the CPU may use. A lease makes
 * the bytes valid on every stream, so there is no event. */
PyObject *arrow_export(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    arrow_device_array *device;
    PyObject *node, *result = NULL;
    hold *lease;
    int with_device;

    if (!PyArg_ParseTuple(arguments, "O!Op", hold_type, &lease, &node, &with_device) ||
        !hold_check_live(lease))
        return NULL;
    if (!with_device && !hold_is_on_cpu(lease))
        return PyErr_Format(PyExc_BufferError,
                            "the memory is a GPU's: consume it by __arrow_c_device_array__");
    device = calloc(1, sizeof *device); /* whose first member is the array */
    if (device == NULL)
        return PyErr_NoMemory();
    device->device_type = hold_is_on_cpu(lease) ? DL_CPU : DL_CUDA; /* as Arrow numbers them, too */
    device->device_id = hold_is_on_cpu(lease) ? -1 : lease->owner->ordinal;
    if (write_array(&device->array, node, lease)) {
        result = with_device ? PyCapsule_New(device, "arrow_device_array", end_array)
                             : PyCapsule_New(&device->array, "arrow_array", end_array);
        if (result == NULL)
            device->array.release(&device->array);
    }
    if (result == NULL)
        free(device);
    return result;
}
