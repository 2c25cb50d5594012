/* A connection to a keeper. */
#include "module.h"

#include <gvmem/load.h>

/* ---- connecting */

static PyObject *connect_by(const char *path, int socket_fd)
{
    handle *h = (handle *)handle_new(KIND_CLIENT, NULL);
    gvm_status status;

    if (h == NULL)
        return NULL;
    WITHOUT_GIL(status = socket_fd < 0 ? gvm_client_connect(path, &h->of.client)
                                       : gvm_client_adopt(socket_fd, &h->of.client));
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    h->ended = false;
    return (PyObject *)h;
}

PyObject *client_connect(PyObject *Py_UNUSED(module), PyObject *path)
{
    PyObject *bytes = NULL, *result;

    if (path != Py_None && !PyUnicode_FSConverter(path, &bytes))
        return NULL;
    result = connect_by(bytes == NULL ? NULL : PyBytes_AsString(bytes), -1);
    Py_XDECREF(bytes);
    return result;
}

PyObject *client_adopt(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int socket_fd;

    if (!PyArg_ParseTuple(arguments, "i", &socket_fd))
        return NULL;
    if (socket_fd < 0)
        return PyErr_Format(PyExc_ValueError, "%d is no descriptor", socket_fd);
    return connect_by(NULL, socket_fd);
}

/* The memory of a token of gstore_load_begin(), to be copied into: its device is not looked for. */
PyObject *client_open_load(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *token;
    handle *client, *object;
    gvm_status status;

    if (!PyArg_ParseTuple(arguments, "s", &token))
        return NULL;
    client = (handle *)handle_new(KIND_CLIENT, NULL);
    object = client == NULL ? NULL : (handle *)handle_new(KIND_OBJECT, client);
    if (object == NULL)
        goto fail_client;
    WITHOUT_GIL(status = gvm_load_open(token, &client->of.client, &object->of.object));
    if (status != GVM_OK) {
        raise_status();
        goto fail_object;
    }
    client->ended = object->ended = false;
    return Py_BuildValue("(NN)", client, object);

fail_object:
    Py_DECREF((PyObject *)object);
fail_client:
    Py_XDECREF((PyObject *)client);
    return NULL;
}

static PyObject *abort_connection(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;

    if (!h->ended)
        WITHOUT_GIL(gvm_client_abort(h->of.client));
    Py_RETURN_NONE;
}

/* ---- objects */

/* Takes over the object, with its device. */
static PyObject *wrap_object(handle *client, gvm_object *object, bool readonly, int32_t ordinal)
{
    gvm_object_info info = {.struct_size = sizeof info};
    handle *h = (handle *)handle_new(KIND_OBJECT, client);
    gvm_status status = GVM_OK;

    if (h == NULL) {
        WITHOUT_GIL(gvm_object_close(object));
        return NULL;
    }
    h->of.object = object;
    h->ended = false;
    h->readonly = readonly;
    if (ordinal < 0) {
        WITHOUT_GIL(status = gvm_object_get_info(object, &info));
        ordinal = info.local_device;
    }
    if (status != GVM_OK)
        raise_status();
    if (status != GVM_OK || !handle_find_device(h, ordinal)) {
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    return (PyObject *)h;
}

static PyObject *create(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    gvm_object_options options = gvm_object_options_init();
    gvm_object *object;
    PyObject *result;
    Py_buffer metadata;
    uint64_t reserve_bytes;
    const char *name;

    if (!PyArg_ParseTuple(arguments, "zO&O&O&iO&O&y*", &name, get_u64, &reserve_bytes, get_u64,
                          &options.size_bytes, get_u64, &options.chunk_bytes, &options.device,
                          get_u32, &options.mode, get_u32, &options.flags, &metadata))
        return NULL;
    options.metadata = metadata.len == 0 ? NULL : metadata.buf;
    options.metadata_bytes = metadata.len < UINT32_MAX ? (uint32_t)metadata.len : UINT32_MAX;
    CALL_HANDLE(result, h, gvm_object_create(h->of.client, name, reserve_bytes, &options, &object),
                wrap_object(h, object, false, options.device));
    PyBuffer_Release(&metadata);
    return result;
}

static PyObject *open_object(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    gvm_object *object;
    const char *name;
    uint32_t flags;

    if (!PyArg_ParseTuple(arguments, "sO&", &name, get_u32, &flags))
        return NULL;
    CALL_HANDLE(result, h, gvm_object_open(h->of.client, name, flags, &object),
                wrap_object(h, object, (flags & GVM_OPEN_READONLY) != 0, -1));
    return result;
}

static PyObject *end_name(PyObject *self, PyObject *arguments,
                          gvm_status (*call)(gvm_client *, const char *))
{
    handle *h = (handle *)self;
    PyObject *result;
    const char *name;

    if (!PyArg_ParseTuple(arguments, "s", &name))
        return NULL;
    CALL_HANDLE(result, h, call(h->of.client, name), Py_NewRef(Py_None));
    return result;
}

static PyObject *drop(PyObject *self, PyObject *arguments)
{
    return end_name(self, arguments, gvm_object_drop);
}

static PyObject *unlink_name(PyObject *self, PyObject *arguments)
{
    return end_name(self, arguments, gvm_object_unlink);
}

static PyObject *evict(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t size_bytes, evicted_bytes = 0;
    PyObject *result;
    const char *name;

    if (!PyArg_ParseTuple(arguments, "sO&", &name, get_u64, &size_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_client_evict(h->of.client, name, size_bytes, &evicted_bytes),
                PyLong_FromUnsignedLongLong(evicted_bytes));
    return result;
}

/* ---- what there is */

const field object_fields[] = {
    FIELD(gvm_object_info, name, FIELD_NAME),
    FIELD(gvm_object_info, id, FIELD_U64),
    FIELD(gvm_object_info, address, FIELD_ADDRESS),
    FIELD(gvm_object_info, size_bytes, FIELD_U64),
    FIELD(gvm_object_info, reserve_bytes, FIELD_U64),
    FIELD(gvm_object_info, chunk_bytes, FIELD_U64),
    FIELD(gvm_object_info, device_bytes, FIELD_U64),
    FIELD(gvm_object_info, host_bytes, FIELD_U64),
    FIELD(gvm_object_info, lent_bytes, FIELD_U64),
    FIELD(gvm_object_info, duplicate_bytes, FIELD_U64),
    FIELD(gvm_object_info, dirty_bytes, FIELD_U64),
    FIELD(gvm_object_info, generation, FIELD_U64),
    FIELD(gvm_object_info, acquires, FIELD_U64),
    FIELD(gvm_object_info, evicted_bytes, FIELD_U64),
    FIELD(gvm_object_info, promoted_bytes, FIELD_U64),
    FIELD(gvm_object_info, owner_uid, FIELD_U32),
    FIELD(gvm_object_info, owner_gid, FIELD_U32),
    FIELD(gvm_object_info, mode, FIELD_U32),
    FIELD(gvm_object_info, openings, FIELD_U32),
    FIELD(gvm_object_info, read_leases, FIELD_U32),
    FIELD(gvm_object_info, write_leases, FIELD_U32),
    FIELD(gvm_object_info, waiting, FIELD_U32),
    FIELD(gvm_object_info, interrupted, FIELD_U32),
    FIELD(gvm_object_info, device, FIELD_I32),
    FIELD(gvm_object_info, local_device, FIELD_I32),
    FIELD(gvm_object_info, metadata_bytes, FIELD_U32),
    FIELD(gvm_object_info, metadata_start, FIELD_RAW),
    FIELD(gvm_object_info, sealed, FIELD_BOOL),
    FIELD(gvm_object_info, kept, FIELD_BOOL),
    FIELD(gvm_object_info, moving, FIELD_BOOL),
    FIELD(gvm_object_info, untracked, FIELD_BOOL),
    FIELD(gvm_object_info, fenced, FIELD_BOOL),
    FIELD(gvm_object_info, foreign, FIELD_BOOL),
    {NULL, 0, 0, FIELD_U64},
};

static const field device_fields[] = {
    FIELD(gvm_keeper_device_info, uuid, FIELD_BYTES),
    FIELD(gvm_keeper_device_info, name, FIELD_NAME),
    FIELD(gvm_keeper_device_info, ordinal, FIELD_I32),
    FIELD(gvm_keeper_device_info, objects, FIELD_U32),
    FIELD(gvm_keeper_device_info, budget_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, resident_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, free_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, leased_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, dirty_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, held_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, lent_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, host_backed_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, evictions, FIELD_U64),
    FIELD(gvm_keeper_device_info, promotions, FIELD_U64),
    FIELD(gvm_keeper_device_info, evicted_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, promoted_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, driver_free_bytes, FIELD_U64),
    FIELD(gvm_keeper_device_info, driver_total_bytes, FIELD_U64),
    {NULL, 0, 0, FIELD_U64},
};

static const field client_fields[] = {
    FIELD(gvm_client_info, id, FIELD_U64),
    FIELD(gvm_client_info, pid, FIELD_I32),
    FIELD(gvm_client_info, uid, FIELD_U32),
    FIELD(gvm_client_info, gid, FIELD_U32),
    FIELD(gvm_client_info, objects_open, FIELD_U32),
    FIELD(gvm_client_info, committed_bytes, FIELD_U64),
    FIELD(gvm_client_info, acquires, FIELD_U64),
    FIELD(gvm_client_info, held_bytes, FIELD_U64),
    FIELD(gvm_client_info, read_leases, FIELD_U32),
    FIELD(gvm_client_info, write_leases, FIELD_U32),
    FIELD(gvm_client_info, cut_off, FIELD_BOOL),
    {NULL, 0, 0, FIELD_U64},
};

static const field keeper_fields[] = {
    FIELD(gvm_keeper_info, pid, FIELD_U64),
    FIELD(gvm_keeper_info, uptime_ms, FIELD_U64),
    FIELD(gvm_keeper_info, host_budget_bytes, FIELD_U64),
    FIELD(gvm_keeper_info, host_used_bytes, FIELD_U64),
    FIELD(gvm_keeper_info, host_free_bytes, FIELD_U64),
    FIELD(gvm_keeper_info, acquires, FIELD_U64),
    FIELD(gvm_keeper_info, slow_acquires, FIELD_U64),
    FIELD(gvm_keeper_info, revokes, FIELD_U64),
    FIELD(gvm_keeper_info, timeouts, FIELD_U64),
    FIELD(gvm_keeper_info, cut_offs, FIELD_U64),
    FIELD(gvm_keeper_info, interrupted, FIELD_U64),
    FIELD(gvm_keeper_info, messages, FIELD_U64),
    FIELD(gvm_keeper_info, faults, FIELD_U64),
    FIELD(gvm_keeper_info, devices, FIELD_U32),
    FIELD(gvm_keeper_info, objects, FIELD_U32),
    FIELD(gvm_keeper_info, clients, FIELD_U32),
    FIELD(gvm_keeper_info, users, FIELD_U32),
    {NULL, 0, 0, FIELD_U64},
};

static PyObject *make_record(const gvm_snapshot *snapshot, int which, uint32_t i)
{
    gvm_keeper_device_info device = {.struct_size = sizeof device};
    gvm_object_info object = {.struct_size = sizeof object};
    gvm_client_info client = {.struct_size = sizeof client};
    gvm_status status;

    if (which == 0)
        status = gvm_snapshot_get_device(snapshot, i, &device);
    else if (which == 1)
        status = gvm_snapshot_get_object(snapshot, i, &object);
    else
        status = gvm_snapshot_get_client(snapshot, i, &client);
    if (status != GVM_OK)
        return raise_status();
    if (which == 0)
        return make_dict(device_fields, &device);
    return which == 1 ? make_dict(object_fields, &object) : make_dict(client_fields, &client);
}

static PyObject *make_records(const gvm_snapshot *snapshot, int which, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *record = make_record(snapshot, which, i);

        if (record == NULL || PyList_Append(list, record) != 0)
            Py_CLEAR(list);
        Py_XDECREF(record);
    }
    return list;
}

/* ({of the keeper}, [{of a device}], [{of an object}], [{of a connection}]) */
static PyObject *get_snapshot(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    gvm_keeper_info keeper = {.struct_size = sizeof keeper};
    gvm_snapshot *snapshot = NULL;
    PyObject *result = NULL;
    gvm_status status;

    if (!handle_use(h))
        return NULL;
    WITHOUT_GIL(status = gvm_client_get_snapshot(h->of.client, &snapshot));
    if (status == GVM_OK)
        status = gvm_snapshot_get_keeper(snapshot, &keeper);
    if (status != GVM_OK) {
        raise_status();
    } else {
        PyObject *parts[] = {
            make_dict(keeper_fields, &keeper), make_records(snapshot, 0, keeper.devices),
            make_records(snapshot, 1, keeper.objects), make_records(snapshot, 2, keeper.clients)};

        if (parts[0] != NULL && parts[1] != NULL && parts[2] != NULL && parts[3] != NULL)
            result = PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3]);
        for (int i = 0; i < 4; i++)
            Py_XDECREF(parts[i]);
    }
    gvm_snapshot_destroy(snapshot);
    handle_unuse(h);
    return result;
}

PyMethodDef client_methods[] = {
    {"create", create, METH_VARARGS,
     "create(name or None, reserve, size, chunk, device, mode, flags, metadata)"},
    {"open", open_object, METH_VARARGS, "open(name, flags)"},
    {"drop", drop, METH_VARARGS, "drop(name)"},
    {"unlink", unlink_name, METH_VARARGS, "unlink(name)"},
    {"evict", evict, METH_VARARGS, "evict(name, size): bytes"},
    {"snapshot", get_snapshot, METH_NOARGS, "(keeper, devices, objects, clients)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {"abort", abort_connection, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
