/* Streams: who waits for whom, by calls of the driver that the library has not. */
#include "module.h"

typedef struct CUevent_st *event;

enum { EVENT_DISABLE_TIMING = 2, INVALID_HANDLE = 400, CAPTURE_IMPLICIT = 906 };

/* Waits until what the stream has now is done. */
gvm_status stream_wait(gvm_device *device, gvm_stream stream)
{
    int (*synchronize)(gvm_stream), result;
    gvm_status status = driver_find_call("cuStreamSynchronize", &synchronize);

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

/* Whether what would wait for its work, or for an event of it, would end a capture. */
bool stream_is_captured(gvm_device *device, gvm_stream stream)
{
    int (*ask)(gvm_stream, int *state), state = 0, result;

    if (driver_find_call("cuStreamIsCapturing", &ask) != GVM_OK ||
        gvm_device_push_context(device) != GVM_OK)
        return false;
    result = ask(stream, &state);
    gvm_device_pop_context();
    return result == CAPTURE_IMPLICIT || (result == 0 && state != 0);
}

typedef struct event_calls {
    int (*create)(event *made, unsigned flags), (*record)(event on, gvm_stream stream),
        (*wait)(gvm_stream stream, event until, unsigned flags), (*destroy)(event on),
        (*get_context)(gvm_stream stream, void **context), (*push)(void *context),
        (*pop)(void **context);
} event_calls;

static gvm_status find_event_calls(event_calls *c)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuEventCreate", &c->create},       {"cuEventRecord", &c->record},
        {"cuStreamWaitEvent", &c->wait},     {"cuEventDestroy_v2", &c->destroy},
        {"cuStreamGetCtx", &c->get_context}, {"cuCtxPushCurrent_v2", &c->push},
        {"cuCtxPopCurrent_v2", &c->pop},
    };
    gvm_status status = GVM_OK;

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && status == GVM_OK; i++)
        status = driver_find_call(wanted[i].name, wanted[i].function);
    return status;
}

/* Of the current context, as the stream must be. */
static int record_event(const event_calls *c, gvm_stream stream, event *out)
{
    int result = c->create(out, EVENT_DISABLE_TIMING);

    if (result != 0)
        return result;
    result = c->record(*out, stream);
    if (result != 0)
        (void)c->destroy(*out);
    return result;
}

/* In the stream's own context where that is another one: of another GPU, say. */
static int record_event_anywhere(const event_calls *c, gvm_stream stream, event *out)
{
    int result = record_event(c, stream, out);
    void *context;

    if (result != INVALID_HANDLE || c->get_context(stream, &context) != 0 || c->push(context) != 0)
        return result;
    result = record_event(c, stream, out);
    (void)c->pop(&context);
    return result;
}

/* What the second stream, one of the device, is given from now on waits for what the first has now. */
gvm_status stream_order(gvm_device *device, gvm_stream first, gvm_stream second)
{
    const char *call = "cuEventRecord";
    event_calls c;
    event made;
    int result;
    gvm_status status = find_event_calls(&c);

    if (status == GVM_OK)
        status = gvm_device_push_context(device);
    if (status != GVM_OK)
        return status;
    result = record_event_anywhere(&c, first, &made);
    if (result == 0) {
        call = "cuStreamWaitEvent";
        result = c.wait(second, made, 0);
        (void)c.destroy(made); /* the driver keeps it until the streams have passed it */
    }
    if (result != 0)
        status = gvm_driver_error(result, call, "ordering a stream behind another one fails");
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
    gvm_status status = driver_find_call("cuMemcpyAsync", &copy);

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
