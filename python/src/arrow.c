/* Apache Arrow's C data interface and C stream interface, read: capsules as tuples (gvmem/_load.py). */
#include <stdlib.h>

#include "module.h"

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

static void end_array(PyObject *capsule)
{
    arrow_array *array = PyCapsule_GetPointer(capsule, "arrow_array");
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
