/* Ranges of an object that grows: memory for what is allocated one by one, also by other libraries' threads.
 *
 * PyTorch allocates and frees without the interpreter's lock (GIL), and with locks of its own that threads with the GIL wait for. So
 * what it calls takes no GIL, and no thread waits for an arena's lock with the GIL. An arena is in a list until its Python object goes:
 * what is freed later belongs to none, and is ignored.
 *
 * Ranges are in order, without gaps, up to `end`; neighbours that are both free are one. Lock: arenas_lock guards the list; an arena's own
 * lock, which guards what is in it, may be held for long while its object grows, so nobody waits for that with the list's.
 */
#include "module.h"

#include <pthread.h>
#include <stdlib.h>

#define ALIGN_BYTES 512 /* PyTorch's own */

typedef struct range {
    uint64_t offset, bytes;
    bool used;
} range;

typedef struct arena {
    PyObject_HEAD;
    struct arena *next;
    uint64_t serial; /* no other arena has or had it: addresses are used again */
    handle *owner;   /* an object; owned, and used */
    char *address;
    uint64_t reserve_bytes, chunk_bytes;
    pthread_mutex_t lock;
    range *ranges;
    size_t count, capacity;
    uint64_t end;
    uint64_t committed_bytes; /* of the object, which has no others */
    bool paused;              /* nothing can be allocated */
    unsigned frees;           /* calls that wait for its lock, without the list's: under that */
} arena;

static PyTypeObject *arena_type;
static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t free_ended = PTHREAD_COND_INITIALIZER;
static arena *arenas;
static uint64_t last_serial;
static _Thread_local arena *current; /* for gvmem_arena_alloc(); owned */

/* ---- ranges; the caller has the lock */

static bool insert(arena *a, size_t at, range r)
{
    if (a->count == a->capacity) {
        const size_t more = a->capacity == 0 ? 16 : 2 * a->capacity;
        range *ranges = realloc(a->ranges, more * sizeof *ranges);

        if (ranges == NULL)
            return false;
        a->ranges = ranges;
        a->capacity = more;
    }
    memmove(&a->ranges[at + 1], &a->ranges[at], (a->count - at) * sizeof r);
    a->ranges[at] = r;
    a->count++;
    return true;
}

static void take_away(arena *a, size_t at)
{
    a->count--;
    memmove(&a->ranges[at], &a->ranges[at + 1], (a->count - at) * sizeof a->ranges[0]);
}

/* The first free range that has room; count: none. */
static size_t find_room(const arena *a, uint64_t bytes)
{
    size_t at = 0;

    while (at < a->count && (a->ranges[at].used || a->ranges[at].bytes < bytes))
        at++;
    return at;
}

static gvm_status refuse_beyond_reservation(const arena *a, uint64_t bytes)
{
    return gvm_error_set(GVM_E_NOSPACE, "%llu bytes do not fit the %llu bytes that are reserved",
                         (unsigned long long)bytes, (unsigned long long)a->reserve_bytes);
}

static gvm_status refuse_range(void)
{
    return gvm_error_set(GVM_E_NOMEM, "out of host memory for the record of a range");
}

/* Makes the last range free, and large enough. */
static gvm_status extend(arena *a, uint64_t bytes)
{
    const bool last_is_free = a->count > 0 && !a->ranges[a->count - 1].used;
    const uint64_t there = last_is_free ? a->ranges[a->count - 1].bytes : 0;
    uint64_t wanted;
    gvm_status status;

    if (bytes - there > a->reserve_bytes - a->end)
        return refuse_beyond_reservation(a, bytes);
    wanted = a->end + bytes - there;
    if (wanted > a->committed_bytes) {
        uint64_t whole = (wanted + a->chunk_bytes - 1) / a->chunk_bytes * a->chunk_bytes;

        whole = whole < a->reserve_bytes ? whole : a->reserve_bytes;
        status = gvm_object_grow(a->owner->of.object, whole);
        if (status != GVM_OK)
            return status;
        a->committed_bytes = whole;
    }
    if (last_is_free)
        a->ranges[a->count - 1].bytes = bytes;
    else if (!insert(a, a->count, (range){a->end, bytes, false}))
        return refuse_range();
    a->end = wanted;
    return GVM_OK;
}

static gvm_status allocate_locked(arena *a, uint64_t bytes, uint64_t *offset)
{
    size_t at;

    if (a->paused)
        return gvm_error_set(GVM_E_NOSPACE,
                             "%llu bytes cannot be allocated while the region is paused or closed",
                             (unsigned long long)bytes);
    if (bytes > a->reserve_bytes)
        return refuse_beyond_reservation(a, bytes);
    bytes = bytes == 0 ? ALIGN_BYTES : (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    at = find_room(a, bytes);
    if (at == a->count) {
        const gvm_status status = extend(a, bytes);

        if (status != GVM_OK)
            return status;
        at = a->count - 1;
    }
    *offset = a->ranges[at].offset;
    if (a->ranges[at].bytes > bytes) {
        const range rest = {*offset + bytes, a->ranges[at].bytes - bytes, false};

        if (!insert(a, at + 1, rest))
            return refuse_range();
        a->ranges[at].bytes = bytes;
    }
    a->ranges[at].used = true;
    return GVM_OK;
}

static void free_locked(arena *a, uint64_t offset)
{
    size_t at = 0;

    while (at < a->count && a->ranges[at].offset != offset)
        at++;
    if (at == a->count || !a->ranges[at].used)
        return;
    a->ranges[at].used = false;
    if (at + 1 < a->count && !a->ranges[at + 1].used) {
        a->ranges[at].bytes += a->ranges[at + 1].bytes;
        take_away(a, at + 1);
    }
    if (at > 0 && !a->ranges[at - 1].used) {
        a->ranges[at - 1].bytes += a->ranges[at].bytes;
        take_away(a, at);
    }
}

static gvm_status allocate(arena *a, uint64_t bytes, uint64_t *offset)
{
    gvm_status status;

    pthread_mutex_lock(&a->lock);
    status = allocate_locked(a, bytes, offset);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- what PyTorch calls, without the GIL */

__attribute__((visibility("default"))) void *gvmem_arena_alloc(ssize_t bytes, int ordinal,
                                                               void *stream);
__attribute__((visibility("default"))) void gvmem_arena_free(void *address, ssize_t bytes,
                                                             int ordinal, void *stream);

/* Of the arena that the thread has entered. NULL: there is none, it is of another device, or has no room. */
void *gvmem_arena_alloc(ssize_t bytes, int ordinal, void *stream)
{
    uint64_t offset;

    (void)stream;
    if (current == NULL || ordinal != current->owner->ordinal || bytes < 0 ||
        allocate(current, (uint64_t)bytes, &offset) != GVM_OK)
        return NULL;
    return current->address + offset;
}

static arena *find_arena_locked(const char *address, uint64_t *offset)
{
    arena *a = arenas;

    while (a != NULL && (address < a->address || address >= a->address + a->reserve_bytes))
        a = a->next;
    *offset = a == NULL ? 0 : (uint64_t)(address - a->address);
    return a;
}

/* False: work may go on. In a context that is lost none runs. */
static bool wait_for_device(int32_t ordinal)
{
    gvm_device *device;
    gvm_status waited;

    if (gvm_device_open(ordinal, &device) != GVM_OK)
        return true;
    waited = device_wait(device);
    gvm_device_close(device);
    return waited != GVM_E_DRIVER;
}

/* Waits for the work of this process on the GPU, as cudaFree() does, on which callers rely; without the locks. Where that fails the
 * memory stays until the arena ends. */
void gvmem_arena_free(void *address, ssize_t bytes, int ordinal, void *stream)
{
    int32_t own_ordinal = 0;
    uint64_t offset, serial = 0;
    arena *a;

    (void)bytes;
    (void)ordinal;
    (void)stream;
    pthread_mutex_lock(&arenas_lock);
    a = find_arena_locked(address, &offset);
    if (a != NULL) {
        own_ordinal = a->owner->ordinal;
        serial = a->serial;
    }
    pthread_mutex_unlock(&arenas_lock);
    if (a == NULL || !wait_for_device(own_ordinal))
        return;
    pthread_mutex_lock(&arenas_lock);
    a = find_arena_locked(address, &offset);
    if (a != NULL && a->serial != serial) /* the one that had the address has ended */
        a = NULL;
    if (a != NULL)
        a->frees++;
    pthread_mutex_unlock(&arenas_lock);
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    free_locked(a, offset);
    pthread_mutex_unlock(&a->lock);
    pthread_mutex_lock(&arenas_lock);
    a->frees--;
    pthread_cond_broadcast(&free_ended);
    pthread_mutex_unlock(&arenas_lock);
}

/* In a child made by fork(): threads that are not there may have the locks, and its parent's memory is not its own. */
static void forget_all(void)
{
    pthread_mutex_init(&arenas_lock, NULL);
    pthread_cond_init(&free_ended, NULL);
    for (arena *a = arenas; a != NULL; a = a->next) {
        pthread_mutex_init(&a->lock, NULL);
        a->frees = 0;
    }
    arenas = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

/* ---- in Python */

PyObject *arena_create(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    uint64_t reserve_bytes, chunk_bytes;
    PyObject *address;
    handle *owner;
    char *first;
    arena *a;

    if (!PyArg_ParseTuple(arguments, "O!O!O&O&", handle_types[KIND_OBJECT], &owner, &PyLong_Type,
                          &address, get_u64, &reserve_bytes, get_u64, &chunk_bytes))
        return NULL;
    first = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred() != NULL || !handle_use(owner))
        return NULL;
    a = PyObject_New(arena, arena_type);
    if (a == NULL) {
        handle_unuse(owner);
        return NULL;
    }
    memset((char *)a + sizeof(PyObject), 0, sizeof *a - sizeof(PyObject));
    a->owner = (handle *)Py_NewRef((PyObject *)owner);
    a->address = first;
    a->reserve_bytes = reserve_bytes;
    a->chunk_bytes = chunk_bytes;
    pthread_mutex_init(&a->lock, NULL);
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&arenas_lock);
    a->serial = ++last_serial;
    a->next = arenas;
    arenas = a;
    pthread_mutex_unlock(&arenas_lock);
    Py_END_ALLOW_THREADS;
    return (PyObject *)a;
}

static void dealloc(PyObject *self)
{
    arena *a = (arena *)self;
    PyTypeObject *type = Py_TYPE(self);
    arena **place = &arenas;

    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&arenas_lock);
    while (*place != NULL && *place != a)
        place = &(*place)->next;
    if (*place != NULL) /* not in a child made by fork() */
        *place = a->next;
    while (a->frees > 0)
        pthread_cond_wait(&free_ended, &arenas_lock);
    pthread_mutex_unlock(&arenas_lock);
    Py_END_ALLOW_THREADS;
    pthread_mutex_destroy(&a->lock);
    free(a->ranges);
    handle_unuse(a->owner);
    Py_DECREF((PyObject *)a->owner);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *alloc(PyObject *self, PyObject *arguments)
{
    arena *a = (arena *)self;
    uint64_t bytes, offset;
    gvm_status status;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &bytes))
        return NULL;
    WITHOUT_GIL(status = allocate(a, bytes, &offset));
    return status == GVM_OK ? PyLong_FromUnsignedLongLong(offset) : raise_status();
}

/* Waits for work that may use it. */
static PyObject *release(PyObject *self, PyObject *arguments)
{
    arena *a = (arena *)self;
    uint64_t offset;

    if (!PyArg_ParseTuple(arguments, "O&", get_u64, &offset))
        return NULL;
    WITHOUT_GIL(gvmem_arena_free(a->address + offset, 0, 0, NULL));
    Py_RETURN_NONE;
}

static PyObject *set_paused(PyObject *self, PyObject *whether)
{
    arena *a = (arena *)self;
    const int paused = PyObject_IsTrue(whether);

    if (paused < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&a->lock);
    a->paused = paused != 0;
    pthread_mutex_unlock(&a->lock);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* What this thread's calls of gvmem_arena_alloc() are served from, from now on. Returns what it was before. */
PyObject *arena_enter(PyObject *Py_UNUSED(module), PyObject *entered)
{
    PyObject *before = current == NULL ? Py_None : (PyObject *)current;

    if (entered != Py_None && !Py_IS_TYPE(entered, arena_type))
        return PyErr_Format(PyExc_TypeError, "it is neither an Arena nor None");
    if (before == Py_None)
        Py_INCREF(before);
    current = entered == Py_None ? NULL : (arena *)Py_NewRef(entered);
    return before;
}

static PyObject *get_committed(PyObject *self, void *Py_UNUSED(unused))
{
    return PyLong_FromUnsignedLongLong(((arena *)self)->committed_bytes);
}

static PyObject *get_used(PyObject *self, void *Py_UNUSED(unused))
{
    arena *a = (arena *)self;
    uint64_t used = 0;

    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < a->count; i++)
        used += a->ranges[i].used ? a->ranges[i].bytes : 0;
    pthread_mutex_unlock(&a->lock);
    Py_END_ALLOW_THREADS;
    return PyLong_FromUnsignedLongLong(used);
}

static PyMethodDef methods[] = {
    {"alloc", alloc, METH_VARARGS, "alloc(bytes): the offset"},
    {"free", release, METH_VARARGS, "free(offset)"},
    {"pause", set_paused, METH_O, "pause(whether): until pause(False) nothing can be allocated"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"committed", get_committed, NULL, "bytes of the object", NULL},
    {"used", get_used, NULL, "bytes that are allocated", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool arena_ready(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {0, NULL},
    };
    PyType_Spec spec = {"gvmem._gvmem.Arena", sizeof(arena), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

    arena_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    return arena_type != NULL && PyModule_AddObjectRef(module, "Arena", (PyObject *)arena_type) == 0;
}
