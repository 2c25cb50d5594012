/* The extension module gvmem._gvmem: handles of the public C API, leases, and arrays of what they lend.
 *
 * It blocks: the Python layer (gvmem/_wait.py) sees to Ctrl-C. Each call is made without the interpreter lock
 * (GIL); everything else here is guarded by it.
 *
 * A handle is a connection, an object or a table, or memory of this process alone: a buffer, a vector, a heap or a block of one, or regions. Calls under way, leases and,
 * for a connection, its objects are its users, for a heap its blocks: closing marks it, and the last user ends it. So nothing is closed under a
 * thread, or under an array.
 */
#ifndef GVMEM_PYTHON_MODULE_H
#define GVMEM_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <gvmem/buffer.h>
#include <gvmem/client.h>
#include <gvmem/heap.h>
#include <gvmem/region.h>
#include <gvmem/table.h>
#include <gvmem/vector.h>

#include "wait.h"

#define DIMENSIONS_MAX 16

typedef enum handle_kind {
    KIND_CLIENT,
    KIND_OBJECT,
    KIND_TABLE,
    KIND_BUFFER,
    KIND_VECTOR,
    KIND_HEAP,
    KIND_BLOCK,
    KIND_SPACE,
    KIND_COLLECTION,
    KIND_COUNT
} handle_kind;

typedef struct hold hold;
typedef struct handle handle;

typedef struct stream_argument {
    bool given;
    gvm_stream stream;
    PyObject *keep; /* whose end destroys the stream: who notes the stream has a reference; NULL: that is others' business */
} stream_argument;

struct handle {
    PyObject_HEAD;
    handle_kind kind;
    union {
        gvm_client *client;
        gvm_object *object;
        gvm_table *table;
        gvm_buffer *buffer;
        gvm_vector *vector;
        gvm_heap *heap;
        gvm_space *space;
        gvm_collection *collection;
    } of;
    handle *parent; /* the connection of an object, the heap of a block, the space of a collection; owned */
    handle *first; /* of a connection: its objects, of others what has them as its parent, linked by next and previous; not owned */
    handle *next, *previous;
    hold *holds;        /* linked likewise */
    gvm_device *device; /* open, for waiting; NULL in a connection */
    int32_t ordinal;
    uint64_t granted;    /* bit i: GPU i has access, too; of a buffer or a heap */
    char *address;       /* of memory of this process alone: its first byte */
    uint64_t bytes;      /* behind which there are none */
    uint64_t elem_bytes; /* of a vector */
    stream_argument stream; /* of a block: that it was allocated for, behind whose work its arrays are */
    stream_argument ending; /* of a block: that close() had, behind whose work it is freed */
    unsigned changing; /* calls under way that take memory or rights away: no arrays are made, and no work is queued */
    unsigned queueing; /* calls under way that queue work: nothing is taken away */
    bool consumed;     /* an array of it was given to a consumer, who may use it on any stream */
    bool kept;         /* work may use it, or a child, still: it is not ended in the library */
    bool viewed;       /* there were arrays without a lease: of an object */
    bool unwaited; /* a lease ended behind the work of a stream, and no wait for the GPU has begun since: likewise, or of a table */
    bool cpu;      /* the CPU may use its memory, wherever that is */
    bool software; /* a software GPU's: the CPU may use what a lease lends */
    bool readonly; /* it was opened so */
    bool closed;   /* no new users */
    bool ended;    /* and closed in the library */
    size_t users;
};

/* A lease. It ends when it was ended by hold_end() and nothing exported is left, or with the last reference. Of memory of this
 * process alone there is nothing to give back: a hold there says which bytes an array has. */
typedef struct region {
    char *address;
    uint64_t bytes;
} region;

struct hold {
    PyObject_HEAD;
    handle *owner; /* owned, and used */
    hold *next, *previous;
    gvm_lease lease;      /* of an object */
    gvm_table_data *data; /* of a table: count of them */
    uint32_t count;
    region *regions; /* what it lends: one of an object, four for each column of a table */
    uint32_t regions_count;
    uint32_t mode;
    bool cpu;               /* the CPU may use it by GVM_ACQUIRE_CPU */
    bool ended;             /* arrays may not be made or exported any more */
    bool released;          /* in the library */
    stream_argument stream; /* behind whose work it is released; or, if it is ordered, consumed */
    bool ordered; /* consumers have to wait for the stream: no lease has made the bytes valid on all */
    bool home; /* of a collection: the region that the CPU has mapped, which is not the GPU's meanwhile */
    uint32_t number;
    size_t exports;
    unsigned long thread; /* for which it was taken */
    PyObject *keep;       /* what lives as long; owned, may be NULL */
};

/* An element type: its names here and elsewhere. */
typedef struct element {
    const char *name;   /* as NumPy and __cuda_array_interface__ have it */
    const char *format; /* of the buffer protocol; NULL: it has none */
    uint8_t code, bits; /* of DLPack */
} element;

extern PyTypeObject *handle_types[KIND_COUNT], *hold_type, *array_type;

/* module.c */
PyObject *raise_status(void); /* from gvm_error_last(), always NULL */
PyObject *raise_closed(const handle *h);
int get_u64(PyObject *number, void *out); /* for PyArg_Parse's O& */
int get_u32(PyObject *number, void *out);
/* How much of a buffer is filled: a size that it has room for, or all of it if that is None. */
bool get_part(PyObject *size, const Py_buffer *into, uint64_t *out);
int get_stream(PyObject *number, void *out); /* a stream_argument */
/* Likewise, for use later, by any thread: or a tuple of the number and what keeps the stream, without a reference of its own. */
int get_kept_stream(PyObject *number, void *out);
/* Notes a stream in the place of what was noted, with a reference to what keeps it. */
void set_stream(stream_argument *noted, stream_argument stream);

typedef enum field_kind {
    FIELD_U64,
    FIELD_U32,
    FIELD_I32,
    FIELD_I16,
    FIELD_BOOL,
    FIELD_BYTES, /* shown in hexadecimal; at most 16 */
    FIELD_RAW,
    FIELD_CHAR,
    FIELD_NAME,
    FIELD_TEXT,
    FIELD_ADDRESS
} field_kind;

typedef struct field {
    const char *name;
    size_t offset, bytes;
    field_kind kind;
} field;

#define FIELD(type, member, kind) \
    { \
#member, offsetof(type, member), sizeof((type *)0)->member, kind \
    }
PyObject *make_dict(const field *fields, const void *values);

/* handle.c */
PyObject *handle_new(handle_kind kind, handle *parent);
bool handle_use(handle *h); /* false: closed, and the exception is set */
void handle_unuse(handle *h);
bool handle_find_device(handle *h, int32_t ordinal);
uint64_t handle_granted(const handle *h);
/* Waits for all work of this process on a GPU, and on those of a set, whose bits are ordinals: without the GIL. */
gvm_status handle_wait(gvm_device *device, uint64_t granted);
PyObject *handle_close(PyObject *self, PyObject *unused);
bool handle_ready(PyObject *module);

/* client.c, object.c, table.c */
extern PyMethodDef client_methods[], object_methods[], table_methods[];
PyObject *client_connect(PyObject *module, PyObject *path);
PyObject *client_adopt(PyObject *module, PyObject *arguments);
PyObject *client_open_load(PyObject *module, PyObject *arguments);
PyObject *table_attach(PyObject *module, PyObject *arguments);

/* local.c */
typedef gvm_status local_room(handle *h, uint64_t offset, uint64_t *bytes, bool *readonly);
PyObject *local_array(handle *h, PyObject *arguments, local_room *find);
bool local_begin_work(handle *h, bool queued);
void local_end_work(handle *h, bool queued);
bool local_begin_change(handle *h, uint64_t first, uint64_t end, uint32_t mode);
typedef gvm_status local_granter(handle *h, gvm_device *peer, gvm_access access);
PyObject *local_grant(handle *h, PyObject *arguments, local_granter *grant);
handle *local_new(handle_kind kind, int32_t ordinal);

/* buffer.c, vector.c, heap.c */
extern PyMethodDef buffer_methods[], vector_methods[], heap_methods[], block_methods[];
PyObject *buffer_create(PyObject *module, PyObject *arguments);
PyObject *vector_create(PyObject *module, PyObject *arguments);
PyObject *heap_create(PyObject *module, PyObject *arguments);
void heap_free_block(handle *block, gvm_device *device, uint64_t granted);

/* region.c */
extern PyMethodDef space_methods[], collection_methods[];
PyObject *space_create(PyObject *module, PyObject *arguments);

/* arena.c */
PyObject *arena_create(PyObject *module, PyObject *arguments);
PyObject *arena_enter(PyObject *module, PyObject *entered);
bool arena_ready(PyObject *module);

/* pools_module.c */
PyObject *pools_setting(PyObject *module, PyObject *name);
PyObject *pools_start(PyObject *module, PyObject *arguments);
PyObject *pools_alloc(PyObject *module, PyObject *arguments);
PyObject *pools_free(PyObject *module, PyObject *arguments);
PyObject *pools_end_stream(PyObject *module, PyObject *arguments);
PyObject *pools_grant(PyObject *module, PyObject *arguments);
PyObject *pools_trim(PyObject *module, PyObject *unused);

/* stream.c */
gvm_status stream_wait(gvm_device *device, gvm_stream stream);
bool stream_is_captured(gvm_device *device, gvm_stream stream);
gvm_status stream_order(gvm_device *device, gvm_stream first, gvm_stream second);
PyObject *stream_order_by_number(PyObject *module, PyObject *arguments);
PyObject *stream_copy(PyObject *module, PyObject *arguments);

/* hold.c */
hold *hold_new(handle *owner, uint32_t regions_count, unsigned long thread);
void hold_acquired(hold *h, uint32_t mode, uint32_t flags, stream_argument stream);
/* Would the thread wait for the lease, which it alone can end, if it took another one of that mode on the same memory? */
bool hold_conflicts(const hold *h, uint32_t mode, uint32_t flags, unsigned long thread);
PyObject *hold_conflict_text(const hold *h); /* why; "" of NULL */
bool hold_check_live(const hold *h);         /* false, and BufferError: it has ended */
void hold_export(hold *h);
void hold_unexport(hold *h);
void hold_unexport_outside(hold *h);
bool hold_is_on_cpu(const hold *h);
bool hold_ready(PyObject *module);

/* array.c */
PyObject *array_new(hold *h, uint32_t region, uint64_t offset, const element *type, PyObject *shape,
                    PyObject *strides);
uint64_t array_bytes(PyObject *self);
const element *find_element(const char *name); /* NULL, and ValueError */
bool array_ready(PyObject *module);

/* memory.c, arrow.c */
PyObject *memory_new(PyObject *module, PyObject *arguments);
PyObject *memory_of_dlpack(PyObject *module, PyObject *capsule);
PyObject *memory_read_dlpack(PyObject *module, PyObject *capsule);
PyObject *memory_read_buffer(PyObject *module, PyObject *view);
PyObject *memory_put_bits(PyObject *module, PyObject *arguments);
PyObject *memory_pack_bits(PyObject *module, PyObject *arguments);
PyObject *memory_move_offsets(PyObject *module, PyObject *arguments);
bool memory_ready(PyObject *module);
PyObject *arrow_read_schema(PyObject *module, PyObject *capsule);
PyObject *arrow_read_array(PyObject *module, PyObject *capsule);
PyObject *arrow_stream_schema(PyObject *module, PyObject *capsule);
PyObject *arrow_make_schema(PyObject *module, PyObject *node);
PyObject *arrow_export(PyObject *module, PyObject *arguments);
PyObject *arrow_stream_next(PyObject *module, PyObject *capsule);

/* Makes a call of the library, which may wait. */
#define WITHOUT_GIL(call) \
    do { \
        Py_BEGIN_ALLOW_THREADS; \
        call; \
        Py_END_ALLOW_THREADS; \
    } while (0)

/* Makes a call of the library on a handle; result: the value if it succeeds, or else NULL, with the exception set. The handle
 * is not closed before the value is made. */
#define CALL_HANDLE(result, h, call, value) \
    do { \
        gvm_status call_status; \
\
        (result) = NULL; \
        if (handle_use(h)) { \
            WITHOUT_GIL(call_status = (call)); \
            (result) = call_status == GVM_OK ? (value) : raise_status(); \
            handle_unuse(h); \
        } \
    } while (0)

/* The same for a call that takes memory or rights away: local_begin_change() has the range and the mode. wait: whether work of
 * this process that may use what is changed has to be over before. */
#define CHANGE_HANDLE(result, h, first, end, mode, wait, call, value) \
    do { \
        gvm_status call_status = GVM_OK; \
\
        (result) = NULL; \
        if (local_begin_change(h, first, end, mode)) { \
            const uint64_t call_granted = handle_granted(h); \
\
            Py_BEGIN_ALLOW_THREADS; \
            if (wait) \
                call_status = handle_wait((h)->device, call_granted); \
            if (call_status == GVM_OK) \
                call_status = (call); \
            Py_END_ALLOW_THREADS; \
            (result) = call_status == GVM_OK ? (value) : raise_status(); \
            (h)->changing--; \
            handle_unuse(h); \
        } \
    } while (0)

#endif
