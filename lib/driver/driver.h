/* driver/driver.h - the CUDA driver, as a table of calls.
 *
 * The library calls the GPU only through gvmi_cu, a table with one member per row of driver/calls.h
 * and NVIDIA's own signatures. It is loaded from libcuda.so.1 or from the software GPU; decorators
 * (trace, fault, check) are tables of the same shape that pass calls on to the next. There is no
 * other layer between the library and the driver.
 */
#ifndef GVMI_DRIVER_DRIVER_H
#define GVMI_DRIVER_DRIVER_H

#include <stdbool.h>

#include <gvmem/device.h>

#include "base/private.h"
#include "driver/calls.h"
#include "driver/cuda_abi.h"

typedef struct gvmi_driver {
#define GVMI_MEMBER(name, symbol, since, need, params, args) CUresult(*name) params;
    GVMI_CUDA_CALLS(GVMI_MEMBER)
#undef GVMI_MEMBER
} gvmi_driver;

/* One number per call, for tables beside the driver's: gvmi_call_cuMemCreate, ... */
typedef enum gvmi_call {
#define GVMI_ENUMERATOR(name, symbol, since, need, params, args) gvmi_call_##name,
    GVMI_CUDA_CALLS(GVMI_ENUMERATOR)
#undef GVMI_ENUMERATOR
        GVMI_CALL_COUNT
} gvmi_call;

extern const char *const gvmi_call_names[GVMI_CALL_COUNT];

/* The top of the table stack; NULL until gvmi_driver_start() has succeeded once, constant
 * afterwards. */
extern GVMI_API const gvmi_driver *gvmi_cu;

/* Loads and starts the driver that GVMEM_DRIVER asks for, stacks the decorators that the settings
 * ask for, and sets gvmi_cu. Does nothing if that is done; after a failure the next call tries
 * again.
 *
 * GVM_E_SETTING, GVM_E_NODRIVER, GVM_E_DRIVER, GVM_E_NOMEM */
gvm_status gvmi_driver_start(void);

/* "CUDA_ERROR_OUT_OF_MEMORY", by a table that may be NULL. Never NULL. */
const char *gvmi_driver_result_name(const gvmi_driver *table, CUresult result);

/* Records the failure of a driver call and returns its status: CUDA_ERROR_OUT_OF_MEMORY is
 * GVM_E_NOSPACE, CUDA_ERROR_NOT_SUPPORTED is GVM_E_NOTSUP, CUDA_ERROR_NO_DEVICE and INVALID_DEVICE
 * are GVM_E_NODEVICE, the errors that break a context are GVM_E_LOST, the others GVM_E_DRIVER. call
 * is a string constant. */
#define gvmi_driver_fail(result, ...) gvm_driver_error((int32_t)(result), __VA_ARGS__)

/* The same with a status of the caller's choosing, where the call makes clear what the code means
 * there. */
GVMI_API gvm_status gvmi_driver_fail_as(gvm_status status, CUresult result, const char *call,
                                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Is it one of the errors after which every call on the context fails? */
bool gvmi_driver_is_sticky(CUresult result);

/* ---- decorators: each returns a table that passes calls on to next. They keep static state, so
 * each can be stacked once. */

/* Writes one line per call: thread, name, arguments, result, microseconds. target is "stderr" or a
 * file to append to. NULL with the error recorded on failure. */
const gvmi_driver *gvmi_trace_wrap(const gvmi_driver *next, const char *target);

/* Fails calls on command. plan is what GVMEM_FAULT holds ("cuMemCreate:3", "*:17+"), "" for none
 * yet. */
const gvmi_driver *gvmi_fault_wrap(const gvmi_driver *next, const char *plan);

/* Arms the fault decorator from a test: the nth (from 1) call from now on of the call named, or of
 * any call if call is GVMI_CALL_COUNT, returns result without reaching the driver; once, or for
 * ever. A call that waits does its waiting first: otherwise memory in use would be taken away. nth
 * 0 disarms. CUDA_SUCCESS stands for the error that is usual for the call. Calls that give things
 * back (release, unmap, free, close, destroy) and cuGetError... are never failed: a driver that
 * cannot give back cannot be survived without leaking. */
void gvmi_fault_arm(gvmi_call call, uint64_t nth, bool for_ever, CUresult result);

/* How many calls that can be failed have been made since arming, and whether the fault has been
 * injected.
 */
uint64_t gvmi_fault_calls(void);
bool gvmi_fault_struck(void);

/* Watches for contract violations: releasing what is not held, mapping over a mapping, freeing a
 * reservation that is in use, setting access on what is not mapped, calls without a context, leaks.
 * Each is one line on stderr and one in gvmi_check_violations(). */
const gvmi_driver *gvmi_check_wrap(const gvmi_driver *next);
uint64_t gvmi_check_violations(void);
/* What the program holds through the table right now. */
typedef struct gvmi_check_holdings {
    uint64_t reservations, handles, mappings, allocations, host_allocations, contexts, streams,
        events, modules;
    uint64_t graphs; /* and executable ones */
} gvmi_check_holdings;
gvmi_check_holdings gvmi_check_held(void);

/* For tests: makes table the driver, instead of loading one. NULL undoes it. Not while any device
 * is open. */
void gvmi_driver_install(const gvmi_driver *table);

#endif
