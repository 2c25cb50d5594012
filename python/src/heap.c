/* A heap and its blocks, which are handles whose parent it is. */
#include <stdlib.h>

#include "module.h"

static PyObject *tags; /* {text: itself}: a tag lives for ever, as blocks have it by its address */

PyObject *heap_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    gvm_heap_options options = gvm_heap_options_init();
    gvm_status status;
    uint32_t kind;
    int ordinal;
    handle *h;

    if (!PyArg_ParseTuple(arguments, "iO&O&O&O&O&O&", &ordinal, get_u32, &kind, get_u32,
                          &options.flags, get_u64, &options.limit_bytes, get_u64, &options.keep_bytes,
                          get_u64, &options.shelf_bytes, get_u32, &options.decay_ms))
        return NULL;
    options.kind = (gvm_heap_kind)kind;
    h = local_new(KIND_HEAP, ordinal);
    if (h == NULL)
        return NULL;
    WITHOUT_GIL(status = gvm_heap_create(h->device, &options, &h->of.heap));
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)h);
        return NULL;
    }
    h->ended = false;
    h->cpu = options.kind != GVM_HEAP_DEVICE;
    return (PyObject *)h;
}

/* ---- blocks */

/* The text as the library keeps it; NULL without one, or with an exception. */
static const char *find_tag(PyObject *tag)
{
    const char *text;
    PyObject *kept;
    Py_ssize_t length;

    if (tag == Py_None)
        return NULL;
    if (!PyUnicode_Check(tag)) {
        PyErr_Format(PyExc_TypeError, "%R is no text for a tag", tag);
        return NULL;
    }
    text = PyUnicode_AsUTF8AndSize(tag, &length);
    if (text == NULL)
        return NULL;
    if ((size_t)length != strlen(text)) {
        PyErr_Format(PyExc_ValueError, "the tag %R has a character NUL", tag);
        return NULL;
    }
    if (tags == NULL && (tags = PyDict_New()) == NULL)
        return NULL;
    kept = PyDict_GetItemWithError(tags, tag);
    if (kept == NULL && PyErr_Occurred() == NULL) {
        if (PyDict_SetItem(tags, tag, tag) != 0)
            return NULL;
        kept = tag;
    }
    return kept == NULL ? NULL : PyUnicode_AsUTF8AndSize(kept, NULL);
}

static PyObject *alloc(PyObject *self, PyObject *arguments)
{
    handle *heap = (handle *)self, *block;
    stream_argument stream = {false, NULL, NULL};
    uint64_t size_bytes, align_bytes;
    const char *tag;
    PyObject *text;
    gvm_status status;
    void *address = NULL;

    if (!PyArg_ParseTuple(arguments, "O&O&OO&", get_u64, &size_bytes, get_u64, &align_bytes, &text,
                          get_kept_stream, &stream))
        return NULL;
    tag = find_tag(text);
    if (PyErr_Occurred() != NULL || !handle_use(heap))
        return NULL;
    block = (handle *)handle_new(KIND_BLOCK, heap);
    if (block == NULL)
        goto end;
    Py_BEGIN_ALLOW_THREADS;
    if (stream.given)
        status = gvm_heap_alloc_aligned_async(heap->of.heap, size_bytes, align_bytes, tag,
                                              stream.stream, &address);
    else
        status = gvm_heap_alloc_aligned(heap->of.heap, size_bytes, align_bytes, tag, &address);
    Py_END_ALLOW_THREADS;
    if (status != GVM_OK) {
        raise_status();
        Py_DECREF((PyObject *)block);
        block = NULL;
        goto end;
    }
    block->ended = false;
    block->device = heap->device; /* the heap's */
    block->ordinal = heap->ordinal;
    block->software = heap->software;
    block->cpu = heap->cpu;
    block->address = address;
    block->bytes = size_bytes;
    set_stream(&block->stream, stream);

end:
    handle_unuse(heap);
    return (PyObject *)block;
}

/* Frees a block, in a thread without the GIL. Only work of its stream, or ordered behind it, uses the block; but what has consumed
 * an array of it may have used other streams. Without a stream all work of this process on the GPU is over before, and on those that were
 * granted access. Where the stream is captured, waits would end that: the memory stays until the heap's end. */
void heap_free_block(handle *block, gvm_device *device, uint64_t granted)
{
    const stream_argument stream = block->ending.given || block->consumed ? block->ending
                                                                          : block->stream;
    gvm_heap *heap = block->parent->of.heap;
    gvm_status status;

    if (stream.given) {
        status = gvm_heap_free_async(heap, block->address, stream.stream);
        if (status == GVM_OK || status == GVM_E_INVALID)
            return;
        status = stream_wait(device, stream.stream); /* which may be another GPU's */
    }
    if (handle_wait(device, granted) == GVM_E_DRIVER) { /* work may use it still */
        block->parent->kept = true;
        return;
    }
    status = gvm_heap_free(heap, block->address); /* in a child by fork it is unknown */
    (void)status;
}

/* close(stream or None): it is freed behind the stream's work, when nothing uses it any more */
static PyObject *close_block(PyObject *self, PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    handle *block = (handle *)self;

    if (!PyArg_ParseTuple(arguments, "O&", get_kept_stream, &stream))
        return NULL;
    if (stream.given && !block->closed) {
        if ((!block->stream.given || block->stream.stream != stream.stream) &&
            stream_is_captured(block->device, stream.stream)) {
            (void)gvm_error_set(
                GVM_E_INVALID,
                "stream %p is being captured into a graph: the block cannot be freed behind it",
                (void *)stream.stream);
            return raise_status();
        }
        set_stream(&block->ending, stream);
    }
    return handle_close(self, NULL);
}

static PyObject *resize(PyObject *self, PyObject *arguments)
{
    handle *block = (handle *)self;
    uint64_t size_bytes;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &size_bytes))
        return NULL;
    CHANGE_HANDLE(result, block, size_bytes, UINT64_MAX, GVM_LEASE_READ, size_bytes < block->bytes,
                  gvm_heap_resize(block->parent->of.heap, block->address, (size_t)size_bytes),
                  (block->bytes = size_bytes, Py_NewRef(Py_None)));
    return result;
}

static gvm_status find_room(handle *block, uint64_t offset, uint64_t *bytes, bool *Py_UNUSED(readonly))
{
    size_t size_bytes = 0;
    const gvm_status status = gvm_heap_get_size(block->parent->of.heap, block->address, &size_bytes);

    *bytes = size_bytes < offset ? 0 : size_bytes - offset;
    return status;
}

static PyObject *make_array(PyObject *self, PyObject *arguments)
{
    return local_array((handle *)self, arguments, find_room);
}

PyMethodDef block_methods[] = {
    {"resize", resize, METH_VARARGS, "resize(size)"},
    {"array", make_array, METH_VARARGS,
     "array(offset, element type, shape or None, stream or None, whether it is read-only)"},
    {"close", close_block, METH_VARARGS, "close(stream or None)"},
    {NULL, NULL, 0, NULL},
};

/* ---- what there is */

static PyObject *get_info(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_heap_info, requested_bytes, FIELD_U64),
        FIELD(gvm_heap_info, requested_peak_bytes, FIELD_U64),
        FIELD(gvm_heap_info, block_bytes, FIELD_U64),
        FIELD(gvm_heap_info, shelf_bytes, FIELD_U64),
        FIELD(gvm_heap_info, pending_bytes, FIELD_U64),
        FIELD(gvm_heap_info, committed_bytes, FIELD_U64),
        FIELD(gvm_heap_info, committed_peak_bytes, FIELD_U64),
        FIELD(gvm_heap_info, idle_bytes, FIELD_U64),
        FIELD(gvm_heap_info, address_bytes, FIELD_U64),
        FIELD(gvm_heap_info, limit_bytes, FIELD_U64),
        FIELD(gvm_heap_info, blocks, FIELD_U64),
        FIELD(gvm_heap_info, commits, FIELD_U64),
        FIELD(gvm_heap_info, decommits, FIELD_U64),
        FIELD(gvm_heap_info, exhausted, FIELD_U64),
        FIELD(gvm_heap_info, slab_bytes, FIELD_U64),
        FIELD(gvm_heap_info, slab_free_bytes, FIELD_U64),
        FIELD(gvm_heap_info, slabs, FIELD_U64),
        FIELD(gvm_heap_info, segments, FIELD_U32),
        FIELD(gvm_heap_info, streams, FIELD_U32),
        FIELD(gvm_heap_info, ordinal, FIELD_I32),
        {NULL, 0, 0, FIELD_U64},
    };
    gvm_heap_info info = {.struct_size = sizeof info};
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_heap_get_info(h->of.heap, &info), make_dict(fields, &info));
    return result;
}

/* All records, which may have become more meanwhile: *out is the caller's. */
static gvm_status list_records(gvm_heap *heap, bool by_tag, size_t bytes, void **out, size_t *count)
{
    size_t capacity = 0;
    gvm_status status;

    for (*out = NULL, *count = 0;; capacity = *count) {
        void *larger = realloc(*out, (capacity + 1) * bytes);

        if (larger == NULL)
            return gvm_error_set(GVM_E_NOMEM, "there is no memory for %zu records", capacity);
        *out = larger;
        status = by_tag
                     ? gvm_heap_get_usage(heap, capacity, bytes, capacity == 0 ? NULL : *out, count)
                     : gvm_heap_list(heap, capacity, bytes, capacity == 0 ? NULL : *out, count);
        if (status != GVM_OK || *count <= capacity)
            return status;
    }
}

static PyObject *make_list(const field *fields, const char *records, size_t count, size_t bytes)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *record = make_dict(fields, records + i * bytes);

        if (record == NULL || PyList_Append(list, record) != 0)
            Py_CLEAR(list);
        Py_XDECREF(record);
    }
    return list;
}

static PyObject *get_list(PyObject *self, bool by_tag, const field *fields, size_t bytes)
{
    handle *h = (handle *)self;
    void *records = NULL;
    size_t count;
    PyObject *result;

    CALL_HANDLE(result, h, list_records(h->of.heap, by_tag, bytes, &records, &count),
                make_list(fields, records, count, bytes));
    free(records);
    return result;
}

static PyObject *get_blocks(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_heap_block, address, FIELD_ADDRESS),
        FIELD(gvm_heap_block, size_bytes, FIELD_U64),
        FIELD(gvm_heap_block, tag, FIELD_TEXT),
        {NULL, 0, 0, FIELD_U64},
    };

    return get_list(self, false, fields, sizeof(gvm_heap_block));
}

static PyObject *get_usage(PyObject *self, PyObject *Py_UNUSED(unused))
{
    static const field fields[] = {
        FIELD(gvm_heap_usage, tag, FIELD_TEXT),
        FIELD(gvm_heap_usage, blocks, FIELD_U64),
        FIELD(gvm_heap_usage, size_bytes, FIELD_U64),
        {NULL, 0, 0, FIELD_U64},
    };

    return get_list(self, true, fields, sizeof(gvm_heap_usage));
}

/* ---- its memory */

static PyObject *trim(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t keep_bytes;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &keep_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_heap_trim(h->of.heap, keep_bytes), Py_NewRef(Py_None));
    return result;
}

static PyObject *set_limit(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    uint64_t limit_bytes;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &limit_bytes))
        return NULL;
    CALL_HANDLE(result, h, gvm_heap_set_limit(h->of.heap, limit_bytes), Py_NewRef(Py_None));
    return result;
}

/* Its work is over, and it may be destroyed: no block, and no array of one, is ordered behind it any more. */
static PyObject *forget_stream(handle *heap, gvm_stream stream)
{
    for (handle *block = heap->first; block != NULL; block = block->next) {
        if (block->ending.stream == stream)
            block->ending.given = false;
        if (block->stream.stream == stream)
            block->stream.given = false;
        for (hold *lease = block->holds; lease != NULL; lease = lease->next)
            if (lease->stream.stream == stream)
                lease->ordered = lease->stream.given = false;
    }
    Py_RETURN_NONE;
}

/* The library waits for a stream alone that has blocks of the heap; arrays may be ordered behind one that has none. */
static gvm_status wait_and_end(const handle *heap, gvm_stream stream)
{
    const gvm_status status = stream_wait(heap->device, stream);

    return status == GVM_OK ? gvm_heap_stream_end(heap->of.heap, stream) : status;
}

static PyObject *end_stream(PyObject *self, PyObject *arguments)
{
    stream_argument stream = {false, NULL, NULL};
    handle *h = (handle *)self;
    PyObject *result;

    if (!PyArg_ParseTuple(arguments, "O&", get_stream, &stream))
        return NULL;
    CALL_HANDLE(result, h, wait_and_end(h, stream.stream), forget_stream(h, stream.stream));
    return result;
}

static PyObject *check(PyObject *self, PyObject *Py_UNUSED(unused))
{
    handle *h = (handle *)self;
    PyObject *result;

    CALL_HANDLE(result, h, gvm_heap_check(h->of.heap), Py_NewRef(Py_None));
    return result;
}

/* save_snapshot(path as bytes) */
static PyObject *save_snapshot(PyObject *self, PyObject *arguments)
{
    handle *h = (handle *)self;
    PyObject *result;
    const char *path;

    if (!PyArg_ParseTuple(arguments, "y", &path))
        return NULL;
    CALL_HANDLE(result, h, gvm_heap_save_snapshot(h->of.heap, path), Py_NewRef(Py_None));
    return result;
}

static gvm_status grant_to(handle *h, gvm_device *peer, gvm_access access)
{
    return gvm_heap_grant(h->of.heap, peer, access);
}

static PyObject *grant(PyObject *self, PyObject *arguments)
{
    return local_grant((handle *)self, arguments, grant_to);
}

PyMethodDef heap_methods[] = {
    {"alloc", alloc, METH_VARARGS, "alloc(size, alignment, tag or None, stream or None): a Block"},
    {"info", get_info, METH_NOARGS, NULL},
    {"blocks", get_blocks, METH_NOARGS, NULL},
    {"usage", get_usage, METH_NOARGS, NULL},
    {"trim", trim, METH_VARARGS, "trim(keep)"},
    {"set_limit", set_limit, METH_VARARGS, "set_limit(bytes)"},
    {"end_stream", end_stream, METH_VARARGS, "end_stream(stream)"},
    {"check", check, METH_NOARGS, NULL},
    {"save_snapshot", save_snapshot, METH_VARARGS, "save_snapshot(path, in bytes)"},
    {"grant", grant, METH_VARARGS, "grant(device, access)"},
    {"close", handle_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
