/* Streams: who waits for whom, by calls of the driver that the library has not. */
#include "module.h"

typedef struct CUevent_st *event;

enum { EVENT_DISABLE_TIMING = 2 };

static gvm_status find_call(const char *name, void *function)
{
    void (*call)(void);
    gvm_status status = gvm_driver_get_call(name, &call);

    if (status == GVM_OK)
        memcpy(function, &call, sizeof call);
    return status;
}

/* Waits until what the stream has now is done. */
gvm_status stream_wait(gvm_device *device, gvm_stream stream)
{
    int (*synchronize)(gvm_stream), result;
    gvm_status status = find_call("cuStreamSynchronize", &synchronize);

    if (status == GVM_OK)
        status = gvm_device_push_context(device);
    if (status != GVM_OK)
        return status;
    result = synchronize(stream);
    gvm_device_pop_context();
    return result == 0
               ? GVM_OK
               : gvm_driver_error(result, "cuStreamSynchronize", "waiting for a stream fails");
}

/* What the second stream is given from now on waits for what the first has now. */
gvm_status stream_order(gvm_device *device, gvm_stream first, gvm_stream second)
{
    int (*create)(event *, unsigned), (*record)(event, gvm_stream),
        (*wait)(gvm_stream, event, unsigned), (*destroy)(event);
    const char *call = "cuEventCreate";
    event made = NULL;
    int result;
    gvm_status status = find_call(call, &create);

    if (status == GVM_OK)
        status = find_call("cuEventRecord", &record);
    if (status == GVM_OK)
        status = find_call("cuStreamWaitEvent", &wait);
    if (status == GVM_OK)
        status = find_call("cuEventDestroy_v2", &destroy);
    if (status == GVM_OK)
        status = gvm_device_push_context(device);
    if (status != GVM_OK)
        return status;
    result = create(&made, EVENT_DISABLE_TIMING);
    if (result == 0) {
        call = "cuEventRecord";
        result = record(made, first);
    }
    if (result == 0) {
        call = "cuStreamWaitEvent";
        result = wait(second, made, 0);
    }
    if (result != 0)
        status = gvm_driver_error(result, call, "ordering a stream behind another one fails");
    if (made != NULL)
        (void)destroy(made); /* the driver keeps it until the streams have passed it */
    gvm_device_pop_context();
    return status;
}

PyObject *stream_order_by_number(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    stream_argument first = {false, NULL, NULL}, second = {false, NULL, NULL};
    gvm_device *device;
    gvm_status status;
    int ordinal;

    if (!PyArg_ParseTuple(arguments, "iO&O&", &ordinal, get_stream, &first, get_stream, &second))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = gvm_device_open(ordinal, &device);
    if (status == GVM_OK) {
        status = stream_order(device, first.stream, second.stream);
        gvm_device_close(device);
    }
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK)
        return raise_status();
    Py_RETURN_NONE;
}

static gvm_status copy_and_wait(gvm_device *device, uint64_t dst, uint64_t src, uint64_t bytes,
                                gvm_stream stream)
{
    int (*copy)(uint64_t, uint64_t, size_t, gvm_stream), result;
    gvm_status status = find_call("cuMemcpyAsync", &copy);

    if (status == GVM_OK)
        status = gvm_device_push_context(device);
    if (status != GVM_OK)
        return status;
    result = copy(dst, src, bytes, stream);
    gvm_device_pop_context();
    if (result != 0)
        return gvm_driver_error(result, "cuMemcpyAsync", "copying from a GPU's memory fails");
    return stream_wait(device, stream);
}

/* (ordinal of a device, where to, where from, bytes, a stream of the device): between any memory of GPUs, and done when it returns. */
PyObject *stream_copy(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    uint64_t dst, src, bytes;
    gvm_device *device;
    gvm_status status;
    int ordinal;

    if (!PyArg_ParseTuple(arguments, "iO&O&O&O&", &ordinal, get_u64, &dst, get_u64, &src, get_u64,
                          &bytes, get_stream, &stream))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = gvm_device_open(ordinal, &device);
    if (status == GVM_OK) {
        status = copy_and_wait(device, dst, src, bytes, stream.stream);
        gvm_device_close(device);
    }
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK)
        return raise_status();
    Py_RETURN_NONE;
}
