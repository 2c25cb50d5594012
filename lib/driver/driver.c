/* The driver in use: its table, the names of its calls, and what its errors mean. */
#include "driver/driver.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/fds.h"

const gvmi_driver *gvmi_cu;

const char *const gvmi_call_names[GVMI_CALL_COUNT] = {
#define NAME(name, symbol, since, need, params, args) #name,
    GVMI_CUDA_CALLS(NAME)
#undef NAME
};

void gvmi_driver_install(const gvmi_driver *table)
{
    __atomic_store_n(&gvmi_cu, table, __ATOMIC_RELEASE);
}

/* ---- errors */

const char *gvmi_driver_result_name(const gvmi_driver *table, CUresult result)
{
    const char *name = NULL;

    if (table == NULL || table->cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "unknown CUresult";
    return name;
}

bool gvmi_driver_is_sticky(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED: return true;
    default: return false;
    }
}

static gvm_status status_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS: return GVM_OK;
    case CUDA_ERROR_OUT_OF_MEMORY: return GVM_E_NOSPACE;
    case CUDA_ERROR_NOT_SUPPORTED: return GVM_E_NOTSUP;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE: return GVM_E_NODEVICE;
    default: return gvmi_driver_is_sticky(result) ? GVM_E_LOST : GVM_E_DRIVER;
    }
}

static gvm_status fail_with(gvm_status status, CUresult result, const char *call,
                            const char *advice, const char *format, va_list args)
{
    char text[sizeof((gvm_error *)NULL)->text];

    vsnprintf(text, sizeof text, format, args);
    return gvmi_fail_native(status, (int)result, call, gvmi_driver_result_name(gvmi_cu, result),
                            "%s%s", text, advice);
}

gvm_status gvm_driver_error(int32_t result, const char *call, const char *format, ...)
{
    GVMI_UNCANCELLED;
    const bool no_fds = (CUresult)result == CUDA_ERROR_OPERATING_SYSTEM &&
                        gvmi_fds_lack(GVMI_FDS_LACK_MAX);
    const gvm_status status = no_fds ? GVM_E_LIMIT : status_of((CUresult)result);
    va_list args;

    va_start(args, format);
    fail_with(status, (CUresult)result, call,
              no_fds ? ": the process has no room for more open files; raise ulimit -n" : "",
              format, args);
    va_end(args);
    return status;
}

gvm_status gvmi_driver_fail_as(gvm_status status, CUresult result, const char *call,
                               const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail_with(status, result, call, "", format, args);
    va_end(args);
    return status;
}
