/* The check decorator: a book of what the program holds, and of what it does wrong.
 *
 * It is nearest to the driver, so the record shows what really reached it. Only calls that make,
 * use up or give back something are wrapped; the others go straight on. A violation is reported and
 * the call passed on all the same: the driver's answer is what the program must meet.
 *
 * I1  A call that makes something books room for its entry before the driver is asked, and returns
 *     CUDA_ERROR_OUT_OF_MEMORY itself if there is none: an entry is never missing.
 * I2  What is given back leaves the book before the driver is asked, and returns if the driver
 *     refuses: the driver may give the same address or handle to another thread at once. Mappings
 *     leave afterwards: their addresses stay reserved until then.
 * I3  Each list is sorted by key, holds a key once, and counts how often the program holds it.
 *
 * Lock: the book's, of rank DRIVER; the driver is never called under it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/lock.h"
#include "driver/driver.h"

typedef struct entry {
    uint64_t key; /* address or handle */
    uint64_t size_bytes;
    uint64_t times; /* how often held: the driver may answer one key twice, for a retained handle for example */
} entry;

typedef struct list {
    const char *noun;
    entry *entries;
    size_t count, booked, room; /* booked: entries that calls under way may still add */
    uint64_t held;              /* the sum of times */
} list;

static gvmi_mutex book_lock = GVMI_MUTEX_INIT(GVMI_RANK_DRIVER);
static list reservations = {.noun = "reservation"}, handles = {.noun = "handle"},
            mappings = {.noun = "mapping"};
static list allocations = {.noun = "allocation"}, host_allocations = {.noun = "host allocation"};
static list contexts = {.noun = "context"};
static list streams = {.noun = "stream"}, events = {.noun = "event"}, modules = {.noun = "module"};
static list graphs = {.noun = "graph"}, execs = {.noun = "executable graph"};

static const gvmi_driver *check_below;
static _Atomic uint64_t violations;

__attribute__((format(printf, 2, 3))) static void report_violation(const char *call,
                                                                   const char *format, ...)
{
    char text[160];
    int error = errno;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    atomic_fetch_add_explicit(&violations, 1, memory_order_relaxed);
    dprintf(STDERR_FILENO, "gvmem check: %s: %s\n", call, text);
    errno = error;
}

/* ---- lists, under the lock */

/* The first entry whose key is at least key. */
static size_t lower_bound(const list *s, uint64_t key)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->entries[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static entry *find_entry(const list *s, uint64_t key)
{
    size_t i = lower_bound(s, key);

    return i < s->count && s->entries[i].key == key ? &s->entries[i] : NULL;
}

/* The entry of ranges that covers addr, if any does. */
static entry *find_around(const list *s, uint64_t addr)
{
    size_t i = lower_bound(s, addr);

    if (i < s->count && s->entries[i].key == addr)
        return &s->entries[i];
    if (i > 0 && addr - s->entries[i - 1].key < s->entries[i - 1].size_bytes)
        return &s->entries[i - 1];
    return NULL;
}

/* Does any entry of ranges touch [addr, addr + size)? */
static bool touches_entry(const list *s, uint64_t addr, uint64_t size_bytes)
{
    size_t i = lower_bound(s, addr);

    return find_around(s, addr) != NULL || (i < s->count && s->entries[i].key - addr < size_bytes);
}

/* Is [addr, addr + size) exactly a row of entries without a gap? With open_ends it may begin and
 * end within entries. */
static bool is_tiled(const list *s, uint64_t addr, uint64_t size_bytes, bool open_ends)
{
    const entry *first = find_around(s, addr);
    uint64_t at = addr, end = addr + size_bytes;

    if (first == NULL || (!open_ends && first->key != addr))
        return false;
    for (const entry *e = first; at < end; e++) {
        if (e == s->entries + s->count || e->key > at)
            return false;
        at = e->key + e->size_bytes;
    }
    return open_ends || at == end;
}

static void add_locked(list *s, uint64_t key, uint64_t size_bytes)
{
    size_t i = lower_bound(s, key);

    s->held++;
    if (i < s->count && s->entries[i].key == key) {
        s->entries[i].times++;
        return;
    }
    GVM_ASSERT(s->count < s->room);
    memmove(&s->entries[i + 1], &s->entries[i], (s->count - i) * sizeof(entry));
    s->entries[i] = (entry){key, size_bytes, 1};
    s->count++;
}

static void remove_locked(list *s, entry *e)
{
    s->held--;
    if (--e->times > 0)
        return;
    s->count--;
    memmove(e, e + 1, (size_t)(s->entries + s->count - e) * sizeof(entry));
}

/* ---- what calls do with a list */

/* Books room for one entry; false if there is no memory. Ended by note_created(). */
static bool book_entry(list *s)
{
    bool fits = true;

    gvmi_lock(&book_lock);
    if (s->count + s->booked == s->room) {
        size_t room = s->room == 0 ? 64 : 2 * s->room;
        entry *entries = realloc(s->entries, room * sizeof(entry));

        fits = entries != NULL;
        if (fits) {
            s->entries = entries;
            s->room = room;
        }
    }
    if (fits)
        s->booked++;
    gvmi_unlock(&book_lock);
    return fits;
}

/* Enters what a call made, if it did. */
static CUresult note_created(list *s, CUresult result, uint64_t key, uint64_t size_bytes)
{
    gvmi_lock(&book_lock);
    s->booked--;
    if (result == CUDA_SUCCESS)
        add_locked(s, key, size_bytes);
    gvmi_unlock(&book_lock);
    return result;
}

/* Takes the key out before it is given back, and keeps its room. The result is an argument of
 * restore_entry(). */
static entry take_entry(list *s, const char *call, uint64_t key)
{
    entry taken = {0}, *found;

    gvmi_lock(&book_lock);
    found = find_entry(s, key);
    if (found != NULL) {
        taken = (entry){key, found->size_bytes, 1};
        remove_locked(s, found);
        s->booked++;
    }
    gvmi_unlock(&book_lock);
    if (found == NULL)
        report_violation(call, "%s %#" PRIx64 " is not held", s->noun, key);
    return taken;
}

/* Enters it again if the driver refused to take it. What it refuses because the context broke is
 * gone with the context. */
static CUresult restore_entry(list *s, CUresult result, entry taken)
{
    if (taken.times == 0)
        return result;
    gvmi_lock(&book_lock);
    s->booked--;
    if (result != CUDA_SUCCESS && !gvmi_driver_is_sticky(result))
        add_locked(s, taken.key, taken.size_bytes);
    gvmi_unlock(&book_lock);
    return result;
}

/* For calls that work in the current context. */
static void require_context(const char *call)
{
    CUcontext current = NULL;

    if (check_below->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL)
        report_violation(call, "no context is current");
}

/* ---- calls that make one thing, and their opposites */

/* clang-format off */
/* X(call, params, args, list, key, size): the call gives key, of size bytes where that matters;
 * context: it works in the current one. */
#define MAKERS(X) \
    X(cuMemAddressReserve, (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), (ptr, size, alignment, addr, flags), reservations, *ptr, size, false) \
    X(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags), (handle, size, prop, flags), handles, *handle, size, false) \
    X(cuMemImportFromShareableHandle, (CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type), (handle, os_handle, type), handles, *handle, 0, false) \
    X(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *addr), (handle, addr), handles, *handle, 0, false) \
    X(cuCtxCreate, (CUcontext *ctx, CUctxCreateParams *create, unsigned int flags, CUdevice dev), (ctx, create, flags, dev), contexts, (uintptr_t)*ctx, 0, false) \
    X(cuCtxCreate_v3, (CUcontext *ctx, CUexecAffinityParam *affinities, int count, unsigned int flags, CUdevice dev), (ctx, affinities, count, flags, dev), contexts, (uintptr_t)*ctx, 0, false) \
    X(cuCtxCreate_v2, (CUcontext *ctx, unsigned int flags, CUdevice dev), (ctx, flags, dev), contexts, (uintptr_t)*ctx, 0, false) \
    X(cuMemAlloc, (CUdeviceptr *ptr, size_t size), (ptr, size), allocations, *ptr, size, true) \
    X(cuMemAllocPitch, (CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element), (ptr, pitch, width, height, element), allocations, *ptr, *pitch *height, true) \
    X(cuMemAllocManaged, (CUdeviceptr *ptr, size_t size, unsigned int flags), (ptr, size, flags), allocations, *ptr, size, true) \
    X(cuMemAllocAsync, (CUdeviceptr *ptr, size_t size, CUstream stream), (ptr, size, stream), allocations, *ptr, size, true) \
    X(cuMemAllocFromPoolAsync, (CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream), (ptr, size, pool, stream), allocations, *ptr, size, true) \
    X(cuIpcOpenMemHandle, (CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags), (ptr, handle, flags), allocations, *ptr, 0, true) \
    X(cuMemHostAlloc, (void **ptr, size_t size, unsigned int flags), (ptr, size, flags), host_allocations, (uintptr_t)*ptr, size, true) \
    X(cuMemHostRegister, (void *ptr, size_t size, unsigned int flags), (ptr, size, flags), host_allocations, (uintptr_t)ptr, size, true) \
    X(cuStreamCreate, (CUstream *stream, unsigned int flags), (stream, flags), streams, (uintptr_t)*stream, 0, true) \
    X(cuStreamCreateWithPriority, (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority), streams, (uintptr_t)*stream, 0, true) \
    X(cuEventCreate, (CUevent *event, unsigned int flags), (event, flags), events, (uintptr_t)*event, 0, true) \
    X(cuModuleLoad, (CUmodule *module, const char *fname), (module, fname), modules, (uintptr_t)*module, 0, true) \
    X(cuModuleLoadData, (CUmodule *module, const void *image), (module, image), modules, (uintptr_t)*module, 0, true) \
    X(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned int count, CUjit_option *jit_options, void **values), (module, image, count, jit_options, values), modules, (uintptr_t)*module, 0, true) \
    X(cuGraphCreate, (CUgraph *graph, unsigned int flags), (graph, flags), graphs, (uintptr_t)*graph, 0, false) \
    X(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph), graphs, (uintptr_t)*graph, 0, false) \
    X(cuGraphInstantiate, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags), execs, (uintptr_t)*exec, 0, false) \
    X(cuGraphInstantiateWithParams, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params), execs, (uintptr_t)*exec, 0, false)

/* X(call, params, args, list, key): the call gives key back. */
#define TAKERS(X) \
    X(cuCtxDestroy, (CUcontext ctx), (ctx), contexts, (uintptr_t)ctx) \
    X(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle), handles, handle) \
    X(cuMemFree, (CUdeviceptr ptr), (ptr), allocations, ptr) \
    X(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream), (ptr, stream), allocations, ptr) \
    X(cuIpcCloseMemHandle, (CUdeviceptr ptr), (ptr), allocations, ptr) \
    X(cuMemFreeHost, (void *ptr), (ptr), host_allocations, (uintptr_t)ptr) \
    X(cuMemHostUnregister, (void *ptr), (ptr), host_allocations, (uintptr_t)ptr) \
    X(cuStreamDestroy, (CUstream stream), (stream), streams, (uintptr_t)stream) \
    X(cuEventDestroy, (CUevent event), (event), events, (uintptr_t)event) \
    X(cuModuleUnload, (CUmodule module), (module), modules, (uintptr_t)module) \
    X(cuGraphDestroy, (CUgraph graph), (graph), graphs, (uintptr_t)graph) \
    X(cuGraphExecDestroy, (CUgraphExec exec), (exec), execs, (uintptr_t)exec)

/* X(call, params, args): the call uses the current context and holds nothing. */
#define USERS(X) \
    X(cuMemGetInfo, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes)) \
    X(cuCtxSynchronize, (void), ()) \
    X(cuMemcpyHtoD, (CUdeviceptr dst, const void *src, size_t size), (dst, src, size)) \
    X(cuMemcpyDtoH, (void *dst, CUdeviceptr src, size_t size), (dst, src, size)) \
    X(cuMemcpyDtoD, (CUdeviceptr dst, CUdeviceptr src, size_t size), (dst, src, size)) \
    X(cuMemcpy2D, (const CUDA_MEMCPY2D *copy), (copy)) \
    X(cuMemsetD8, (CUdeviceptr dst, unsigned char value, size_t count), (dst, value, count)) \
    X(cuMemsetD16, (CUdeviceptr dst, unsigned short value, size_t count), (dst, value, count)) \
    X(cuMemsetD32, (CUdeviceptr dst, unsigned int value, size_t count), (dst, value, count)) \
    X(cuMemsetD2D8, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height), (dst, pitch, value, width, height)) \
    X(cuMemsetD2D16, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height), (dst, pitch, value, width, height)) \
    X(cuMemsetD2D32, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height), (dst, pitch, value, width, height))
/* clang-format on */

#define MAKER(name, params, args, on, key, size_bytes, context) \
    static CUresult check_##name params \
    { \
        CUresult result; \
\
        if (context) \
            require_context(#name); \
        if (!book_entry(&on)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        result = check_below->name args; \
        return note_created(&on, result, result == CUDA_SUCCESS ? (uint64_t)(key) : 0, \
                            result == CUDA_SUCCESS ? (size_bytes) : 0); \
    }
MAKERS(MAKER)
#undef MAKER

#define TAKER(name, params, args, from, key) \
    static CUresult check_##name params \
    { \
        entry taken = take_entry(&from, #name, (uint64_t)(key)); \
\
        return restore_entry(&from, check_below->name args, taken); \
    }
TAKERS(TAKER)
#undef TAKER

#define USER(name, params, args) \
    static CUresult check_##name params \
    { \
        require_context(#name); \
        return check_below->name args; \
    }
USERS(USER)
#undef USER

/* ---- addresses and what is mapped at them */

static CUresult check_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    entry taken = take_entry(&reservations, "cuMemAddressFree", ptr);
    bool used;

    gvmi_lock(&book_lock);
    used = touches_entry(&mappings, ptr, size);
    gvmi_unlock(&book_lock);
    if (used)
        report_violation("cuMemAddressFree", "memory is mapped within [%#llx, + %zu)", ptr, size);
    if (taken.times > 0 && taken.size_bytes != size)
        report_violation("cuMemAddressFree", "the reservation %#llx is of %" PRIu64 " bytes, not %zu",
                         ptr, taken.size_bytes, size);
    return restore_entry(&reservations, check_below->cuMemAddressFree(ptr, size), taken);
}

static CUresult check_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    const entry *around;
    bool reserved, held, taken;

    if (!book_entry(&mappings))
        return CUDA_ERROR_OUT_OF_MEMORY;
    gvmi_lock(&book_lock);
    around = find_around(&reservations, ptr);
    reserved = around != NULL && size <= around->size_bytes - (ptr - around->key);
    held = find_entry(&handles, handle) != NULL;
    taken = touches_entry(&mappings, ptr, size);
    gvmi_unlock(&book_lock);
    if (!reserved)
        report_violation("cuMemMap", "[%#llx, + %zu) is not reserved", ptr, size);
    if (!held)
        report_violation("cuMemMap", "handle %#llx is not held", handle);
    if (taken)
        report_violation("cuMemMap", "there is a mapping within [%#llx, + %zu) already", ptr, size);
    return note_created(&mappings, check_below->cuMemMap(ptr, size, offset, handle, flags), ptr, size);
}

static CUresult check_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result;
    bool whole;

    gvmi_lock(&book_lock);
    whole = is_tiled(&mappings, ptr, size, false);
    gvmi_unlock(&book_lock);
    if (!whole)
        report_violation("cuMemUnmap", "[%#llx, + %zu) is not a row of whole mappings", ptr, size);
    result = check_below->cuMemUnmap(ptr, size);
    if (result != CUDA_SUCCESS && !gvmi_driver_is_sticky(result))
        return result;
    gvmi_lock(&book_lock);
    for (size_t i = lower_bound(&mappings, ptr);
         i < mappings.count && mappings.entries[i].key - ptr < size;)
        remove_locked(&mappings, &mappings.entries[i]);
    gvmi_unlock(&book_lock);
    return result;
}

static CUresult check_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                     size_t count)
{
    bool mapped;

    gvmi_lock(&book_lock);
    mapped = is_tiled(&mappings, ptr, size, true);
    gvmi_unlock(&book_lock);
    if (!mapped)
        report_violation("cuMemSetAccess", "part of [%#llx, + %zu) is not mapped", ptr, size);
    return check_below->cuMemSetAccess(ptr, size, desc, count);
}

/* ---- queries */

uint64_t gvmi_check_violations(void)
{
    return atomic_load_explicit(&violations, memory_order_relaxed);
}

gvmi_check_holdings gvmi_check_held(void)
{
    gvmi_check_holdings held;

    gvmi_lock(&book_lock);
    held = (gvmi_check_holdings){
        .reservations = reservations.held,
        .handles = handles.held,
        .mappings = mappings.held,
        .allocations = allocations.held,
        .host_allocations = host_allocations.held,
        .contexts = contexts.held,
        .streams = streams.held,
        .events = events.held,
        .modules = modules.held,
        .graphs = graphs.held + execs.held,
    };
    gvmi_unlock(&book_lock);
    return held;
}

static pid_t owner; /* the process whose book this is: a fork inherits the report, not the memory */

static void report_leaks(void)
{
    const list *const all[] = {&reservations,     &handles,  &mappings, &allocations,
                               &host_allocations, &contexts, &streams,  &events,
                               &modules,          &graphs,   &execs};

    for (size_t i = 0; i < sizeof all / sizeof all[0] && getpid() == owner; i++)
        if (all[i]->held > 0)
            report_violation("exit", "%" PRIu64 " %s%s still held", all[i]->held, all[i]->noun,
                             all[i]->held == 1 ? " is" : "s are");
}

const gvmi_driver *gvmi_check_wrap(const gvmi_driver *next)
{
    static gvmi_driver table;

    if (owner == 0 && atexit(report_leaks) != 0) {
        gvm_error_set(GVM_E_NOMEM, "out of host memory for GVMEM_CHECK");
        return NULL;
    }
    owner = getpid();
    check_below = next;
    table = *next;
#define MEMBER(name, ...) table.name = check_##name;
    MAKERS(MEMBER)
    TAKERS(MEMBER)
    USERS(MEMBER)
    MEMBER(cuMemAddressFree)
    MEMBER(cuMemMap)
    MEMBER(cuMemUnmap)
    MEMBER(cuMemSetAccess)
#undef MEMBER
    return &table;
}
