/* Leases: what arrays of them export, and how they end.
 *
 * Before a lease is given back, work on the GPU that uses it must be over: without a stream this waits for all work
 * of this process on the device, with one the lease ends behind the work of that stream.
 */
#include "module.h"

PyTypeObject *hold_type;

hold *hold_new(handle *owner, uint32_t regions_count, unsigned long thread)
{
    hold *h;

    if (!handle_use(owner))
        return NULL;
    h = PyObject_New(hold, hold_type);
    if (h == NULL) {
        handle_unuse(owner);
        return NULL;
    }
    memset((char *)h + sizeof(PyObject), 0, sizeof *h - sizeof(PyObject));
    h->owner = (handle *)Py_NewRef((PyObject *)owner);
    h->next = owner->holds;
    if (h->next != NULL)
        h->next->previous = h;
    owner->holds = h;
    h->released = true; /* until it is acquired */
    h->thread = thread;
    h->regions = PyMem_Calloc(regions_count, sizeof *h->regions);
    h->regions_count = regions_count;
    if (h->regions == NULL) {
        Py_DECREF((PyObject *)h);
        PyErr_NoMemory();
        return NULL;
    }
    return h;
}

/* After a successful acquire with these flags, for reading or writing. */
void hold_acquired(hold *h, uint32_t mode, uint32_t flags, stream_argument stream)
{
    h->released = false;
    h->mode = mode;
    h->cpu = (flags & GVM_ACQUIRE_CPU) != 0;
    set_stream(&h->stream, stream);
}

bool hold_conflicts(const hold *h, uint32_t mode, uint32_t flags, unsigned long thread)
{
    const bool for_cpu = (flags & GVM_ACQUIRE_CPU) !=
                         0; /* it waits until nobody uses the chunks on the device */

    return !h->released && h->thread == thread &&
           (mode == GVM_LEASE_WRITE || h->mode == GVM_LEASE_WRITE || (for_cpu && !h->cpu));
}

PyObject *hold_conflict_text(const hold *h)
{
    return PyUnicode_FromString(h == NULL  ? ""
                                : h->ended ? "what was made of an earlier lease is still in use"
                                           : "this thread has a lease itself");
}

/* Gives it back, once work that uses it is over. */
static gvm_status release_waiting(hold *h)
{
    gvm_status waited = device_wait(h->owner->device);
    gvm_status status;

    if (waited != GVM_OK && waited != GVM_E_LOST) /* in a lost context no kernel runs */
        return waited;
    if (h->data != NULL)
        status = gvm_table_release(h->owner->of.table, h->data, h->count);
    else
        status = gvm_object_release(h->owner->of.object, &h->lease);
    return status != GVM_OK ? status : waited;
}

static gvm_status release_behind_stream(hold *h)
{
    gvm_status status;

    if (h->data != NULL)
        status = gvm_table_release_async(h->owner->of.table, h->data, h->count, h->stream.stream);
    else
        status = gvm_object_release_async(h->owner->of.object, &h->lease, h->stream.stream);
    if (status == GVM_E_NOMEM || status == GVM_E_DRIVER) { /* no callback on the stream: wait here */
        gvm_error error;

        gvm_error_last(&error);
        (void)release_waiting(h);
        gvm_error_restore(&error);
    }
    return status;
}

/* After a failure the lease may be there still. */
static gvm_status release(hold *h)
{
    gvm_status status;

    h->released = true; /* before other threads run */
    if (h->home) {
        WITHOUT_GIL(status = gvm_region_unmap_cpu(h->owner->of.collection, h->number));
        return status;
    }
    h->owner->unwaited &= h->stream.given; /* before the wait: other threads may end leases behind streams meanwhile */
    WITHOUT_GIL(status = h->stream.given ? release_behind_stream(h) : release_waiting(h));
    if (h->stream.given || status != GVM_OK)
        h->owner->unwaited = true;
    if (status != GVM_OK)
        h->released = h->data == NULL ? h->lease.mode == 0 : h->data[0].acquired == 0;
    return status;
}

/* Releases where no exception can be raised: a failure is reported as unraisable. A forked child has nothing to release. */
static void release_last(hold *h)
{
    PyObject *type, *value, *trace;
    gvm_status status;

    PyErr_Fetch(&type, &value, &trace);
    status = release(h);
    if (status != GVM_OK && status != GVM_E_FOREIGN) {
        raise_status();
        PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(type, value, trace);
}

static PyObject *end(PyObject *self, PyObject *arguments)
{
    hold *h = (hold *)self;
    stream_argument stream = {false, NULL, NULL}, before;
    const bool ended = h->ended;
    gvm_status status = GVM_OK;

    if (!PyArg_ParseTuple(arguments, "O&", get_kept_stream, &stream))
        return NULL;
    before = h->stream;
    Py_XINCREF(before.keep);
    if (stream.given && !ended)
        set_stream(&h->stream, stream);
    h->ended = true;
    if (!h->released && h->exports == 0)
        status = release(h);
    if (status == GVM_E_FOREIGN) /* a forked child has nothing to release */
        status = GVM_OK;
    if (status != GVM_OK)
        (void)raise_status();
    if (status != GVM_OK && !h->released && !ended) { /* refused: it is as it was */
        h->ended = false;
        set_stream(&h->stream, before);
    }
    Py_XDECREF(before.keep);
    return status == GVM_OK ? PyBool_FromLong(h->released) : NULL;
}

bool hold_check_live(const hold *h)
{
    if (!h->ended)
        return true;
    PyErr_SetString(PyExc_BufferError, "the lease has ended");
    return false;
}

void hold_export(hold *h)
{
    Py_INCREF((PyObject *)h);
    h->exports++;
    h->owner->consumed = true;
}

/* Called when a consumer ends; an exception may be set. */
void hold_unexport(hold *h)
{
    if (--h->exports == 0 && h->ended && !h->released)
        release_last(h);
    Py_DECREF((PyObject *)h);
}

/* The same for consumers that call in any thread, with or without the GIL, and after the interpreter's end. */
void hold_unexport_outside(hold *h)
{
    PyGILState_STATE state;

    if (!Py_IsInitialized())
        return;
    state = PyGILState_Ensure();
    hold_unexport(h);
    PyGILState_Release(state);
}

bool hold_is_on_cpu(const hold *h)
{
    return h->cpu || h->owner->software;
}

static void dealloc(PyObject *self)
{
    hold *h = (hold *)self;
    handle *owner = h->owner;
    PyTypeObject *type = Py_TYPE(self);

    if (!h->released)
        release_last(h); /* after a failure the lease ends when its object is closed */
    if (h->previous != NULL)
        h->previous->next = h->next;
    else
        owner->holds = h->next;
    if (h->next != NULL)
        h->next->previous = h->previous;
    PyMem_Free(h->regions);
    PyMem_Free(h->data);
    Py_XDECREF(h->keep);
    Py_XDECREF(h->stream.keep); /* what was released behind its work is queued */
    handle_unuse(owner);
    Py_DECREF((PyObject *)owner);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *make_array(PyObject *self, PyObject *arguments)
{
    hold *h = (hold *)self;
    uint32_t index;
    uint64_t offset;
    const char *name;
    PyObject *shape, *strides = Py_None;
    const element *type;

    if (!PyArg_ParseTuple(arguments, "O&O&sO|O", get_u32, &index, get_u64, &offset, &name, &shape,
                          &strides))
        return NULL;
    type = find_element(name);
    return type == NULL ? NULL : array_new(h, index, offset, type, shape, strides);
}

static PyObject *get_region(PyObject *self, PyObject *arguments)
{
    const hold *h = (hold *)self;
    uint32_t index;

    if (!PyArg_ParseTuple(arguments, "O&", get_u32, &index))
        return NULL;
    if (index >= h->regions_count)
        return PyErr_Format(PyExc_IndexError, "there is no region %lu", (unsigned long)index);
    return Py_BuildValue("(NK)", PyLong_FromVoidPtr(h->regions[index].address),
                         (unsigned long long)h->regions[index].bytes);
}

static PyMethodDef methods[] = {
    {"end", end, METH_VARARGS,
     "end(stream or None): whether it was released, or else something exported is left"},
    {"array", make_array, METH_VARARGS,
     "array(region, offset, element type, shape or None, strides in elements or None)"},
    {"region", get_region, METH_VARARGS, "region(index): (address, bytes)"},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_ended(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((hold *)self)->ended);
}

static PyObject *get_released(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((hold *)self)->released);
}

static PyObject *get_exports(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromSize_t(((hold *)self)->exports);
}

static PyObject *get_generation(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((hold *)self)->lease.generation);
}

static PyGetSetDef properties[] = {
    {"ended", get_ended, NULL, NULL, NULL},
    {"released", get_released, NULL, NULL, NULL},
    {"exports", get_exports, NULL, NULL, NULL},
    {"generation", get_generation, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool hold_ready(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {0, NULL},
    };
    PyType_Spec spec = {"gvmem._gvmem.Hold", sizeof(hold), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    hold_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return hold_type != NULL && PyModule_AddObjectRef(module, "Hold", (PyObject *)hold_type) == 0;
}
