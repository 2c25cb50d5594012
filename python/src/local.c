/* Memory of this process alone: its arrays, and what may not be taken away from under them.
 *
 * An array has a hold, which says which bytes it has. What takes memory or the right to write away first looks for such holds, and
 * while it runs no array is made.
 */
#include "module.h"

/* A handle that has its device, but is not ready yet; NULL, with the exception set. */
handle *local_new(handle_kind kind, int32_t ordinal)
{
    handle *h;

    if (ordinal < 0) {
        PyErr_Format(PyExc_ValueError, "%d is no ordinal of a device", (int)ordinal);
        return NULL;
    }
    h = (handle *)handle_new(kind, NULL);
    if (h != NULL && !handle_find_device(h, ordinal))
        Py_CLEAR(h);
    return h;
}

static bool check_unchanged(const handle *h)
{
    if (h->changing == 0)
        return true;
    PyErr_SetString(PyExc_BufferError, "another thread takes memory or rights away just now");
    return false;
}

/* Before a copy or fill, which is queued if it has a stream. Those are not made while something is taken away, which may have
 * waited for queued work already. The library itself has others before it or behind it. */
bool local_begin_work(handle *h, bool queued)
{
    if ((queued && !check_unchanged(h)) || !handle_use(h))
        return false;
    h->queueing += queued;
    return true;
}

void local_end_work(handle *h, bool queued)
{
    h->queueing -= queued;
    handle_unuse(h);
}

/* arguments: (offset, element type, shape or None, stream or None, whether it is to be read-only). None stands for the stream of
 * a block, if it has one. find says how many bytes there are from the offset on. */
PyObject *local_array(handle *h, PyObject *arguments, local_room *find)
{
    stream_argument stream = h->stream;
    uint64_t offset, room = 0;
    const element *type;
    PyObject *shape, *result = NULL;
    const char *name;
    gvm_status status;
    bool sealed = false;
    int readonly;
    hold *lease;

    if (!PyArg_ParseTuple(arguments, "O&sOO&p", get_u64, &offset, &name, &shape, get_kept_stream,
                          &stream, &readonly))
        return NULL;
    type = find_element(name);
    if (type == NULL)
        return NULL;
    lease = hold_new(h, 1, 0);
    if (lease == NULL)
        return NULL;
    if (!check_unchanged(h))
        goto end;
    if (offset > h->bytes) {
        PyErr_Format(PyExc_ValueError, "offset %llu is behind the end", (unsigned long long)offset);
        goto end;
    }
    lease->mode = readonly ? GVM_LEASE_READ : GVM_LEASE_WRITE;
    lease->cpu = h->cpu;
    lease->ordered = stream.given;
    set_stream(&lease->stream, stream);
    lease->regions[0] = (region){h->address + offset,
                                 h->bytes - offset}; /* none of it is taken away meanwhile */
    WITHOUT_GIL(status = find(h, offset, &room, &sealed));
    if (status != GVM_OK) {
        raise_status();
        goto end;
    }
    if (sealed)
        lease->mode = GVM_LEASE_READ;
    lease->regions[0] = (region){h->address, offset + room};
    result = array_new(lease, 0, offset, type, shape, Py_None);
    if (result != NULL)
        lease->regions[0] = (region){h->address + offset, array_bytes(result)};

end:
    Py_DECREF((PyObject *)lease);
    return result;
}

/* Before [first, end) loses its memory (mode GVM_LEASE_READ) or is only read from then on (GVM_LEASE_WRITE): false, with the
 * exception set, if an array has some of it, or work is being queued. Changes of a buffer may run side by side, as the library
 * has them one after the other; those of a vector or a block may not, as what they take away depends on its length. */
bool local_begin_change(handle *h, uint64_t first, uint64_t end, uint32_t mode)
{
    if (h->queueing > 0) {
        PyErr_SetString(PyExc_BufferError, "another thread queues a copy or fill just now");
        return false;
    }
    if ((h->kind != KIND_BUFFER && !check_unchanged(h)) || !handle_use(h))
        return false;
    for (const hold *lease = h->holds; lease != NULL; lease = lease->next) {
        uint64_t at, past;

        if (lease->regions == NULL || lease->regions[0].bytes == 0 ||
            (mode == GVM_LEASE_WRITE && lease->mode != mode))
            continue;
        at = (uint64_t)(lease->regions[0].address - h->address);
        past = at + lease->regions[0].bytes;
        if (at < end && first < past) {
            PyErr_Format(PyExc_BufferError,
                         "an array of [%llu, %llu) is still there, or what has consumed it",
                         (unsigned long long)at, (unsigned long long)past);
            handle_unuse(h);
            return false;
        }
    }
    h->changing++;
    return true;
}

static gvm_status open_and_grant(handle *h, int32_t ordinal, gvm_access access, local_granter *grant)
{
    gvm_device *peer;
    gvm_status status = gvm_device_open(ordinal, &peer);

    if (status == GVM_OK) {
        status = grant(h, peer, access);
        gvm_device_close(peer); /* what was granted keeps it */
    }
    return status;
}

static PyObject *note_grant(handle *h, int ordinal, gvm_access access)
{
    const uint64_t bit = ordinal >= 0 && ordinal < 64 ? 1ull << ordinal : 0;

    h->granted = access == GVM_ACCESS_NONE ? h->granted & ~bit : h->granted | bit;
    Py_RETURN_NONE;
}

/* arguments: (ordinal of a device, access). */
PyObject *local_grant(handle *h, PyObject *arguments, local_granter *grant)
{
    PyObject *result;
    uint32_t access;
    int ordinal;

    if (!PyArg_ParseTuple(arguments, "iO&", &ordinal, get_u32, &access))
        return NULL;
    CALL_HANDLE(result, h, open_and_grant(h, ordinal, (gvm_access)access, grant),
                note_grant(h, ordinal, (gvm_access)access));
    return result;
}
