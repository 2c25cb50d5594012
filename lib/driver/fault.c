/* The fault decorator: returns an error for chosen calls instead of passing them on (waits: after
 * passing them on; cuCtxPushCurrent: after a wait for the context).
 *
 * One fault can be armed at a time: the nth call of a name (or of any), once or for ever from there
 * on. Counting is lock-free, so that the decorator orders nothing between threads that the driver
 * would not. Arming while other threads make calls is safe; which of their calls count is then
 * open.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "driver/driver.h"

static const gvmi_driver *fault_below;
static struct {
    atomic_int call;      /* gvmi_call, GVMI_CALL_COUNT: any */
    _Atomic uint64_t nth; /* 0: disarmed; written last when arming, and first to 0 */
    atomic_bool for_ever, struck;
    atomic_int result;      /* CUDA_SUCCESS: what usual_result() says */
    _Atomic uint64_t count; /* calls since arming that could have been failed */
} fault = {.call = GVMI_CALL_COUNT};

/* Calls that are never failed: those that give something back, because a driver that cannot take
 * back cannot be survived without leaking, and those that only name an error, because they are
 * part of reporting one. */
static bool never_fails(gvmi_call call)
{
    switch (call) {
    case gvmi_call_cuMemFree:
    case gvmi_call_cuMemFreeAsync:
    case gvmi_call_cuMemFreeHost:
    case gvmi_call_cuMemHostUnregister:
    case gvmi_call_cuMemAddressFree:
    case gvmi_call_cuMemRelease:
    case gvmi_call_cuMemUnmap:
    case gvmi_call_cuMemPoolDestroy:
    case gvmi_call_cuIpcCloseMemHandle:
    case gvmi_call_cuStreamDestroy:
    case gvmi_call_cuEventDestroy:
    case gvmi_call_cuModuleUnload:
    case gvmi_call_cuStreamEndCapture:
    case gvmi_call_cuGraphDestroy:
    case gvmi_call_cuGraphExecDestroy:
    case gvmi_call_cuCtxPopCurrent: /* undoes a push */
    case gvmi_call_cuCtxDisablePeerAccess:
    case gvmi_call_cuCtxDestroy:
    case gvmi_call_cuDevicePrimaryCtxRelease:
    case gvmi_call_cuDevicePrimaryCtxReset:
    case gvmi_call_cuGetErrorName:
    case gvmi_call_cuGetErrorString: return true;
    default: return false;
    }
}

/* What a call returns most often when it fails: those that make something run out of memory. */
static CUresult usual_result(gvmi_call call)
{
    switch (call) {
    case gvmi_call_cuMemAlloc:
    case gvmi_call_cuMemAllocPitch:
    case gvmi_call_cuMemAllocManaged:
    case gvmi_call_cuMemAllocAsync:
    case gvmi_call_cuMemAllocFromPoolAsync:
    case gvmi_call_cuMemHostAlloc:
    case gvmi_call_cuMemHostRegister:
    case gvmi_call_cuMemAddressReserve:
    case gvmi_call_cuMemCreate:
    case gvmi_call_cuMemMap:
    case gvmi_call_cuMemImportFromShareableHandle:
    case gvmi_call_cuMemPoolCreate:
    case gvmi_call_cuIpcOpenMemHandle:
    case gvmi_call_cuStreamCreate:
    case gvmi_call_cuStreamCreateWithPriority:
    case gvmi_call_cuEventCreate:
    case gvmi_call_cuModuleLoad:
    case gvmi_call_cuModuleLoadData:
    case gvmi_call_cuModuleLoadDataEx:
    case gvmi_call_cuCtxCreate:
    case gvmi_call_cuCtxCreate_v3:
    case gvmi_call_cuCtxCreate_v2:
    case gvmi_call_cuGraphCreate:
    case gvmi_call_cuGraphInstantiate:
    case gvmi_call_cuGraphInstantiateWithParams:
    case gvmi_call_cuDevicePrimaryCtxRetain: return CUDA_ERROR_OUT_OF_MEMORY;
    default: return CUDA_ERROR_UNKNOWN;
    }
}

/* Waits fail after waiting: a driver whose wait fails has stopped, so what was waited for goes
 * on no longer. A wait that did not happen would make programs free what is in use, which is no
 * fault of theirs. */
static bool is_wait_call(gvmi_call call)
{
    return call == gvmi_call_cuStreamSynchronize || call == gvmi_call_cuCtxSynchronize ||
           call == gvmi_call_cuEventSynchronize;
}

/* Counts a call; returns what it must fail with, or CUDA_SUCCESS to pass it on. */
static CUresult count_call(gvmi_call call)
{
    uint64_t nth = atomic_load_explicit(&fault.nth, memory_order_acquire);
    int wanted = atomic_load_explicit(&fault.call, memory_order_relaxed);
    CUresult result;
    uint64_t count;

    if (never_fails(call) || (wanted != GVMI_CALL_COUNT && wanted != (int)call))
        return CUDA_SUCCESS;
    count = atomic_fetch_add_explicit(&fault.count, 1, memory_order_relaxed) + 1;
    if (nth == 0 || count < nth ||
        (count > nth && !atomic_load_explicit(&fault.for_ever, memory_order_relaxed)))
        return CUDA_SUCCESS;
    atomic_store_explicit(&fault.struck, true, memory_order_relaxed);
    result = (CUresult)atomic_load_explicit(&fault.result, memory_order_relaxed);
    return result != CUDA_SUCCESS ? result : usual_result(call);
}

#define WRAP(name, symbol, since, need, params, args) \
    static CUresult fault_##name params \
    { \
        CUresult struck = count_call(gvmi_call_##name), passed; \
\
        if (struck != CUDA_SUCCESS && !is_wait_call(gvmi_call_##name)) \
            return struck; \
        passed = fault_below->name args; \
        return struck != CUDA_SUCCESS ? struck : passed; \
    }
GVMI_CUDA_CALLS(WRAP)
#undef WRAP

/* As for waits: a driver that refuses a context is taken to have ended its work, for which the caller cannot wait any more. */
static CUresult push_or_stop(CUcontext context)
{
    const CUresult struck = count_call(gvmi_call_cuCtxPushCurrent);
    const CUresult passed = fault_below->cuCtxPushCurrent(context);

    if (struck == CUDA_SUCCESS || passed != CUDA_SUCCESS)
        return struck != CUDA_SUCCESS ? struck : passed;
    (void)fault_below->cuCtxSynchronize();
    (void)fault_below->cuCtxPopCurrent(&context);
    return struck;
}

void gvmi_fault_arm(gvmi_call call, uint64_t nth, bool for_ever, CUresult result)
{
    atomic_store_explicit(&fault.nth, 0, memory_order_relaxed);
    atomic_store_explicit(&fault.call, (int)call, memory_order_relaxed);
    atomic_store_explicit(&fault.for_ever, for_ever, memory_order_relaxed);
    atomic_store_explicit(&fault.result, (int)result, memory_order_relaxed);
    atomic_store_explicit(&fault.struck, false, memory_order_relaxed);
    atomic_store_explicit(&fault.count, 0, memory_order_relaxed);
    atomic_store_explicit(&fault.nth, nth, memory_order_release);
}

uint64_t gvmi_fault_calls(void)
{
    return atomic_load_explicit(&fault.count, memory_order_relaxed);
}

bool gvmi_fault_struck(void)
{
    return atomic_load_explicit(&fault.struck, memory_order_relaxed);
}

/* ---- the plan: NAME:N or NAME:N+, NAME a call or * */

static bool find_call(const char *name, size_t len, gvmi_call *call)
{
    if (len == 1 && name[0] == '*') {
        *call = GVMI_CALL_COUNT;
        return true;
    }
    for (int i = 0; i < GVMI_CALL_COUNT; i++) {
        if (strlen(gvmi_call_names[i]) == len && memcmp(gvmi_call_names[i], name, len) == 0) {
            *call = (gvmi_call)i;
            return true;
        }
    }
    return false;
}

/* What is behind the colon. */
static bool parse_nth(const char *text, uint64_t *nth, bool *for_ever)
{
    char *end;

    if (text[0] < '1' || text[0] > '9') /* strtoull would take blanks and signs */
        return false;
    errno = 0;
    *nth = strtoull(text, &end, 10);
    *for_ever = *end == '+';
    return errno == 0 && end[*for_ever] == '\0';
}

static bool arm_plan(const char *plan)
{
    const char *colon = strchr(plan, ':');
    gvmi_call call;
    uint64_t nth;
    bool for_ever;

    if (colon == NULL || !parse_nth(colon + 1, &nth, &for_ever)) {
        gvm_error_set(
            GVM_E_SETTING,
            "GVMEM_FAULT must be NAME:N or NAME:N+ with N from 1, such as cuMemCreate:3 or *:17+, not \"%s\"",
            GVMI_TEXT_NAME(plan));
        return false;
    }
    if (!find_call(plan, (size_t)(colon - plan), &call)) {
        gvm_error_set(GVM_E_SETTING, "GVMEM_FAULT names no driver call that gvmem makes: \"%s\"",
                      GVMI_TEXT_NAME(plan));
        return false;
    }
    if (call != GVMI_CALL_COUNT && never_fails(call)) {
        gvm_error_set(GVM_E_SETTING,
                      "GVMEM_FAULT cannot fail %s: calls that give something back always pass",
                      gvmi_call_names[call]);
        return false;
    }
    gvmi_fault_arm(call, nth, for_ever, CUDA_SUCCESS);
    return true;
}

const gvmi_driver *gvmi_fault_wrap(const gvmi_driver *next, const char *plan)
{
    static gvmi_driver table = {
#define MEMBER(name, symbol, since, need, params, args) .name = fault_##name,
        GVMI_CUDA_CALLS(MEMBER)
#undef MEMBER
    };

    if (plan[0] == '\0')
        gvmi_fault_arm(GVMI_CALL_COUNT, 0, false, CUDA_SUCCESS);
    else if (!arm_plan(plan))
        return NULL;
    table.cuCtxPushCurrent = push_or_stop;
    fault_below = next;
    return &table;
}
