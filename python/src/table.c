/* A table of a PostgreSQL server, attached by token. */
#include "module.h"

#include <gvmem/gstore_kds.h>

#define PARTS 4u /* of a column: values, nulls, bodies, element_nulls */

PyObject *table_attach(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    gvm_table_info info = {.struct_size = sizeof info};
    gvm_status status;
    const char *token;
    uint32_t flags;
    handle *h;

    if (!PyArg_ParseTuple(arguments, "sO&", &token, get_u32, &flags))
        return NULL;
    h = (handle *)handle_new(KIND_TABLE, NULL);
    if (h == NULL)
        return NULL;
    WITHOUT_GIL(status = gvm_table_attach(token, flags, &h->of.table));
    if (status == GVM_OK) {
        h->ended = false;
        h->readonly = true;
        status = gvm_table_get_info(h->of.table, &info);
    }
    if (status != GVM_OK)
        raise_status();
    if (status != GVM_OK || !handle_find_device(h, info.device)) {
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    return (PyObject *)h;
}

static PyObject *get_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_table_info, schema, FIELD_TEXT),
        FIELD(gvm_table_info, name, FIELD_TEXT),
        FIELD(gvm_table_info, layout, FIELD_TEXT),
        FIELD(gvm_table_info, socket, FIELD_TEXT),
        FIELD(gvm_table_info, rows, FIELD_U64),
        FIELD(gvm_table_info, revision, FIELD_U64),
        FIELD(gvm_table_info, columns, FIELD_U32),
        FIELD(gvm_table_info, device, FIELD_I32),
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_table_info info = {.struct_size = sizeof info};
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_table_get_info(h->of.table, &info), make_dict(fields, &info));
    return result;
}

static PyObject *get_column(PyObject *self, PyObject *arguments)
{
    static const field fields[] = {
        FIELD(gvm_table_column, name, FIELD_TEXT),
        FIELD(gvm_table_column, type_name, FIELD_TEXT),
        FIELD(gvm_table_column, number, FIELD_U32),
        FIELD(gvm_table_column, type, FIELD_U32),
        FIELD(gvm_table_column, base_type, FIELD_U32),
        FIELD(gvm_table_column, element, FIELD_U32),
        FIELD(gvm_table_column, typmod, FIELD_I32),
        FIELD(gvm_table_column, length, FIELD_I16),
        FIELD(gvm_table_column, element_length, FIELD_I16),
        FIELD(gvm_table_column, width, FIELD_U32),
        FIELD(gvm_table_column, align, FIELD_CHAR),
        FIELD(gvm_table_column, element_align, FIELD_CHAR),
        FIELD(gvm_table_column, by_value, FIELD_BOOL),
        FIELD(gvm_table_column, has_nulls, FIELD_BOOL),
        FIELD(gvm_table_column, compressed, FIELD_BOOL),
        FIELD(gvm_table_column, absent, FIELD_BOOL),
        FIELD(gvm_table_column, values_bytes, FIELD_U64),
        FIELD(gvm_table_column, nulls_bytes, FIELD_U64),
        FIELD(gvm_table_column, bodies_bytes, FIELD_U64),
        FIELD(gvm_table_column, arrow, FIELD_TEXT),
        FIELD(gvm_table_column, arrow_element, FIELD_TEXT),
        FIELD(gvm_table_column, element_nulls_bytes, FIELD_U64),
#ifdef GSTORE_KDS_VERSION /* columns of one length came with it */
        FIELD(gvm_table_column, uniform, FIELD_U32),
        FIELD(gvm_table_column, count, FIELD_U32),
        FIELD(gvm_table_column, precision, FIELD_I32),
        FIELD(gvm_table_column, scale, FIELD_I32),
#endif
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_table_column column = {.struct_size = sizeof column};
    handle *h = (handle *)self;
    PyObject *result;
    uint32_t index;

    if (!PyArg_ParseTuple(arguments, "O&", get_u32, &index))
        return NULL;
    CALL_HANDLE(result, h, gvm_table_get_column(h->of.table, index, &column),
                make_dict(fields, &column));
    return result;
}

/* ---- reading */

/* What a lease lends of each column. */
static gvm_status find_regions(gvm_table *table, hold *lease)
{
    gvm_status status = GVM_OK;

    for (uint32_t i = 0; i < lease->count && status == GVM_OK; i++) {
        gvm_table_column column = {.struct_size = sizeof column};
        const gvm_table_data *data = &lease->data[i];
        region *parts = &lease->regions[PARTS * i];

        status = gvm_table_get_column(table, data->column, &column);
        parts[0] = (region){data->values, data->values == NULL ? 0 : column.values_bytes};
        parts[1] = (region){data->nulls, data->nulls == NULL ? 0 : column.nulls_bytes};
        parts[2] = (region){data->bodies, data->bodies == NULL ? 0 : column.bodies_bytes};
        parts[3] = (region){data->element_nulls,
                            data->element_nulls == NULL ? 0 : column.element_nulls_bytes};
    }
    return status;
}

static uint32_t *get_indexes(PyObject *tuple, uint32_t *count)
{
    const Py_ssize_t length = PyTuple_Size(tuple);
    uint32_t *indexes;

    if (length < 0)
        return NULL;
    if (length == 0 || length > GVM_TABLE_COLUMNS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd columns", length);
        return NULL;
    }
    indexes = PyMem_Calloc((size_t)length, sizeof *indexes);
    if (indexes == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; indexes != NULL && i < length; i++) {
        if (!get_u32(PyTuple_GetItem(tuple, i), &indexes[i])) {
            PyMem_Free(indexes);
            indexes = NULL;
        }
    }
    *count = (uint32_t)length;
    return indexes;
}

static PyObject *open_columns(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *tuple, *result;
    uint32_t *indexes, count;

    if (!PyArg_ParseTuple(arguments, "O", &tuple))
        return NULL;
    indexes = get_indexes(tuple, &count);
    if (indexes == NULL)
        return NULL;
    CALL_HANDLE(result, h, gvm_table_open_columns(h->of.table, indexes, count), Py_NewRef(Py_None));
    PyMem_Free(indexes);
    return result;
}

static PyObject *acquire(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    gvm_acquire_options options = gvm_acquire_options_init();
    stream_argument stream = {false, NULL, NULL};
    uint32_t *indexes, count, hint;
    unsigned long thread;
    gvm_status status;
    PyObject *tuple;
    int timeout_ms;
    hold *lease;

    if (!PyArg_ParseTuple(arguments, "OO&O&iO&k", &tuple, get_u32, &hint, get_u32, &options.flags,
                          &timeout_ms, get_kept_stream, &stream, &thread))
        return NULL;
    options.hint = (gvm_hint)hint;
    indexes = get_indexes(tuple, &count);
    if (indexes == NULL)
        return NULL;
    lease = hold_new(h, PARTS * count, thread);
    if (lease == NULL)
        goto fail_indexes;
    lease->data = PyMem_Calloc(count, sizeof *lease->data);
    if (lease->data == NULL) {
        PyErr_NoMemory();
        goto fail_lease;
    }
    lease->count = count;
    WITHOUT_GIL(
        status = gvm_table_acquire(h->of.table, indexes, count, &options, timeout_ms, lease->data));
    if (status == GVM_OK) {
        hold_acquired(lease, GVM_LEASE_READ, options.flags, stream);
        status = find_regions(h->of.table, lease);
    }
    if (status != GVM_OK) {
        raise_status();
        goto fail_lease;
    }
    PyMem_Free(indexes);
    return (PyObject *)lease;

fail_lease:
    Py_DECREF((PyObject *)lease);
fail_indexes:
    PyMem_Free(indexes);
    return NULL;
}

static bool lends_any(const hold *lease, const uint32_t *indexes, uint32_t count)
{
    for (uint32_t i = 0; i < lease->count; i++)
        for (uint32_t k = 0; k < count; k++)
            if (lease->data[i].column == indexes[k])
                return true;
    return false;
}

/* As that of an object, of a lease on any of the columns. */
static PyObject *find_own_conflict(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    const hold *conflict = NULL;
    uint32_t *indexes, count, flags;
    unsigned long thread;
    PyObject *tuple;

    if (!PyArg_ParseTuple(arguments, "OO&k", &tuple, get_u32, &flags, &thread))
        return NULL;
    indexes = get_indexes(tuple, &count);
    if (indexes == NULL)
        return NULL;
    for (const hold *lease = h->holds; lease != NULL && conflict == NULL; lease = lease->next)
        if (hold_conflicts(lease, GVM_LEASE_READ, flags, thread) && lends_any(lease, indexes, count))
            conflict = lease;
    PyMem_Free(indexes);
    return hold_conflict_text(conflict);
}

PyMethodDef table_methods[] = {
    {"info", get_info, METH_NOARGS, NULL},
    {"column", get_column, METH_VARARGS, "column(index)"},
    {"open", open_columns, METH_VARARGS, "open(indexes)"},
    {"acquire", acquire, METH_VARARGS,
     "acquire(indexes, hint, flags, timeout_ms, stream or None, thread): a Hold"},
    {"own_conflict", find_own_conflict, METH_VARARGS, "own_conflict(indexes, flags, thread): text"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
