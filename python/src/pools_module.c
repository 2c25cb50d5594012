/* What Python calls of pools.c: blocks by number, for frameworks whose allocators are written in Python, and the calls' address for the
 * one of PyTorch, which is not. */
#include "module.h"

#include "pools.h"
#include "pools_trace.h"

static const char *find_setting(const char *name)
{
    gvm_setting_info row = {.struct_size = sizeof row};

    for (uint32_t i = 0; gvm_setting_get_info(i, &row) == GVM_OK; i++)
        if (strcmp(row.name, name) == 0)
            return row.value;
    return NULL;
}

PyObject *pools_setting(PyObject *Py_UNUSED(module), PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL), *value;

    if (text == NULL)
        return NULL;
    value = find_setting(text);
    if (value == NULL)
        return PyErr_Format(PyExc_KeyError, "%s", text);
    return PyUnicode_DecodeFSDefault(value);
}

/* (limit, keep, decay_ms) as pools_options has them, and whether they are chosen: the address of the calls. */
PyObject *pools_start(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    pools_options options = {.limit_bytes = 0};
    int is_chosen;

    if (!PyArg_ParseTuple(arguments, "O&O&O&p", get_u64, &options.limit_bytes, get_u64,
                          &options.keep_bytes, get_u32, &options.decay_ms, &is_chosen))
        return NULL;
    if (is_chosen) {
        pools_choose(&options);
        pools_trace_open(find_setting("GVMEM_HEAP_TRACE"));
    }
    return PyLong_FromVoidPtr((void *)(uintptr_t)&pools);
}

PyObject *pools_alloc(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    uint64_t bytes;
    void *address;
    int status, device, is_ordered;

    if (!PyArg_ParseTuple(arguments, "iO&O&p", &device, get_u64, &bytes, get_stream, &stream,
                          &is_ordered))
        return NULL;
    WITHOUT_GIL(status = (is_ordered ? pools.alloc : pools_alloc_unordered)(device, bytes,
                                                                            stream.stream, &address));
    return status == 0 ? PyLong_FromVoidPtr(address) : raise_status();
}

/* (an address, a stream that has used it besides its own, or None) */
PyObject *pools_free(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    uint64_t address;
    int status = 0;

    if (!PyArg_ParseTuple(arguments, "O&O&", get_u64, &address, get_stream, &stream))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (stream.given)
        status = pools.use((void *)(uintptr_t)address, stream.stream);
    if (status == 0)
        status = pools.free((void *)(uintptr_t)address);
    Py_END_ALLOW_THREADS;
    if (status != 0)
        return raise_status();
    Py_RETURN_NONE;
}

PyObject *pools_grant(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int device, peer, status;

    if (!PyArg_ParseTuple(arguments, "ii", &device, &peer))
        return NULL;
    WITHOUT_GIL(status = pools.grant(device, peer));
    if (status != 0)
        return raise_status();
    Py_RETURN_NONE;
}

PyObject *pools_end_stream(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    int status;

    if (!PyArg_ParseTuple(arguments, "O&", get_stream, &stream))
        return NULL;
    WITHOUT_GIL(status = pools_stream_end(stream.stream));
    return PyBool_FromLong(status == 0);
}

PyObject *pools_trim(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    int status;

    WITHOUT_GIL(status = pools.trim(-1, (pool_id){0, 0}));
    if (status != 0)
        return raise_status();
    Py_RETURN_NONE;
}
