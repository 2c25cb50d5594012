/* Handles: what their users are, and how they end. */
#include "module.h"

PyTypeObject *handle_types[KIND_COUNT];

static const char *const kind_names[KIND_COUNT] = {
    "connection", "object", "table", "buffer", "vector", "heap", "block", "space", "collection"};

PyObject *raise_closed(const handle *h)
{
    return PyErr_Format(PyExc_ValueError, "the %s is closed", kind_names[h->kind]);
}

PyObject *handle_new(handle_kind kind, handle *parent)
{
    handle *h = PyObject_New(handle, handle_types[kind]);

    if (h == NULL)
        return NULL;
    memset((char *)h + sizeof(PyObject), 0, sizeof *h - sizeof(PyObject));
    h->kind = kind;
    h->ended = true; /* until there is something to end */
    if (parent != NULL) {
        h->parent = (handle *)Py_NewRef((PyObject *)parent);
        parent->users++;
        h->next = parent->first;
        if (h->next != NULL)
            h->next->previous = h;
        parent->first = h;
    }
    return (PyObject *)h;
}

bool handle_use(handle *h)
{
    if (h->closed || h->ended) {
        raise_closed(h);
        return false;
    }
    h->users++;
    return true;
}

static void leave_parent(handle *h)
{
    handle *parent = h->parent;

    if (parent == NULL)
        return;
    if (h->previous != NULL)
        h->previous->next = h->next;
    else
        parent->first = h->next;
    if (h->next != NULL)
        h->next->previous = h->previous;
    h->parent = NULL;
    handle_unuse(parent);
    Py_DECREF((PyObject *)parent);
}

uint64_t handle_granted(const handle *h)
{
    return h->kind == KIND_BLOCK ? h->parent->granted : h->granted;
}

/* In a context that is lost no work runs: of another GPU that is no error. */
gvm_status handle_wait(gvm_device *device, uint64_t granted)
{
    gvm_status first = device_wait(device);

    for (int32_t i = 0; i < 64 && granted >> i != 0; i++) {
        gvm_device *peer;
        gvm_status status;

        if ((granted >> i & 1) == 0)
            continue;
        status = gvm_device_open(i, &peer);
        if (status == GVM_OK) {
            status = device_wait(peer);
            gvm_device_close(peer);
        }
        if (first == GVM_OK && status != GVM_E_LOST)
            first = status;
    }
    return first;
}

static bool is_used_on_device(const handle *h)
{
    return h->kind == KIND_BUFFER || h->kind == KIND_VECTOR || h->unwaited || h->viewed;
}

/* What kernels may use still, as a wait for them has failed, stays until the process ends. In a context that is lost none runs. */
static void close_in_library(handle *h, gvm_device *device, uint64_t granted)
{
    if (is_used_on_device(h) && handle_wait(device, granted) == GVM_E_DRIVER)
        h->kept = true;
    if (h->kept) {
        if (h->parent != NULL)
            h->parent->kept = true;
        return;
    }
    switch (h->kind) {
    case KIND_CLIENT: gvm_client_close(h->of.client); break;
    case KIND_OBJECT: gvm_object_close(h->of.object); break;
    case KIND_TABLE: gvm_table_detach(h->of.table); break;
    case KIND_BUFFER: gvm_buffer_destroy(h->of.buffer); break;
    case KIND_VECTOR: gvm_vector_destroy(h->of.vector); break;
    case KIND_HEAP: gvm_heap_destroy(h->of.heap); break;
    case KIND_BLOCK: heap_free_block(h, device, granted); break;
    case KIND_SPACE: gvm_space_destroy(h->of.space); break;
    case KIND_COLLECTION: gvm_collection_destroy(h->of.collection); break;
    case KIND_COUNT: break;
    }
}

/* Closes it in the library. Waits a second or two at most for a keeper that does not answer, and for the GPU where work may use
 * what ends. */
static void end_handle(handle *h)
{
    const bool ended = h->ended;
    const uint64_t granted = ended ? 0 : handle_granted(h);
    gvm_device *device = h->device;

    h->closed = h->ended = true;
    h->device = NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (!ended)
        close_in_library(h, device, granted);
    if (h->kind != KIND_BLOCK && h->kind != KIND_COLLECTION) /* whose device is the parent's */
        gvm_device_close(device);
    Py_END_ALLOW_THREADS;
    leave_parent(h);
}

void handle_unuse(handle *h)
{
    if (--h->users == 0 && h->closed && !h->ended)
        end_handle(h);
}

PyObject *handle_close(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    handle *child;

    for (child = h->first; child != NULL; child = child->next)
        child->closed = true;
    h->closed = true;
    h->users++; /* the list may change while one is closed */
    do {
        for (child = h->first; child != NULL && (child->users > 0 || child->ended); child = child->next)
            ;
        if (child != NULL) {
            Py_INCREF((PyObject *)child);
            end_handle(child);
            Py_DECREF((PyObject *)child);
        }
    } while (child != NULL);
    handle_unuse(h);
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    handle *h = (handle *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject *raised, *value, *trace;

    PyErr_Fetch(&raised, &value, &trace);
    end_handle(h);
    Py_XDECREF(h->stream.keep);
    Py_XDECREF(h->ending.keep);
    PyErr_Restore(raised, value, trace);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

bool handle_find_device(handle *h, int32_t ordinal)
{
    gvm_device_info info = {.struct_size = sizeof info};
    gvm_device *device = NULL;
    gvm_status status;

    Py_BEGIN_ALLOW_THREADS;
    status = gvm_device_open(ordinal, &device);
    if (status == GVM_OK)
        status = gvm_device_get_info(device, &info);
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK) {
        raise_status();
        gvm_device_close(device);
        return false;
    }
    h->device = device;
    h->ordinal = ordinal;
    h->software = info.software != 0;
    return true;
}

static PyObject *get_closed(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((handle *)self)->closed);
}

static PyObject *get_device(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromLong(((handle *)self)->ordinal);
}

static PyObject *get_software(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((handle *)self)->software);
}

static PyObject *get_readonly(PyObject *self, void *Py_UNUSED(unused))
{
    return PyBool_FromLong(((handle *)self)->readonly);
}

static PyObject *get_address(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr(((handle *)self)->address);
}

static PyObject *get_size(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((handle *)self)->bytes);
}

static PyObject *get_users(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromSize_t(((handle *)self)->users);
}

static PyGetSetDef properties[] = {
    {"closed", get_closed, NULL, "whether it was closed", NULL},
    {"device", get_device, NULL, "the device's ordinal in this process", NULL},
    {"software", get_software, NULL, "whether that is a software GPU", NULL},
    {"readonly", get_readonly, NULL, "whether it was opened so", NULL},
    {"address", get_address, NULL, "of memory of this process alone", NULL},
    {"size", get_size, NULL, "likewise, in bytes", NULL},
    {"users", get_users, NULL, "calls under way, leases, objects", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool handle_ready(PyObject *module)
{
    static const char *const names[] = {
        "gvmem._gvmem.Client", "gvmem._gvmem.Object", "gvmem._gvmem.Table",
        "gvmem._gvmem.Buffer", "gvmem._gvmem.Vector", "gvmem._gvmem.Heap",
        "gvmem._gvmem.Block",  "gvmem._gvmem.Space",  "gvmem._gvmem.Collection"};
    PyMethodDef *methods[] = {client_methods, object_methods, table_methods,
                              buffer_methods, vector_methods, heap_methods,
                              block_methods,  space_methods,  collection_methods};

    for (int i = 0; i < KIND_COUNT; i++) {
        PyType_Slot slots[] = {
            {Py_tp_dealloc, dealloc},
            {Py_tp_methods, methods[i]},
            {Py_tp_getset, properties},
            {0, NULL},
        };
        PyType_Spec spec = {names[i], sizeof(handle), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

        handle_types[i] = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
        if (handle_types[i] == NULL || PyModule_AddObjectRef(module, strrchr(names[i], '.') + 1,
                                                             (PyObject *)handle_types[i]) != 0)
            return false;
    }
    return true;
}
