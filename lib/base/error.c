/* Status names and texts, and the calling thread's latest failure. */
#define _GNU_SOURCE
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/text.h"

static _Thread_local gvm_error latest = {GVM_OK, 0, "", "", ""};

uint32_t gvm_version(void)
{
    return GVM_VERSION_MAJOR * 10000 + GVM_VERSION_MINOR * 100 + GVM_VERSION_PATCH;
}

const char *gvm_status_name(gvm_status status)
{
#define CASE(name, value, sqlstate, text) \
    case name: return #name;
    switch (status) {
        GVM_STATUS_TABLE(CASE)
    }
#undef CASE
    return "GVM_E_UNKNOWN";
}

const char *gvm_status_text(gvm_status status)
{
#define CASE(name, value, sqlstate, text) \
    case name: return text;
    switch (status) {
        GVM_STATUS_TABLE(CASE)
    }
#undef CASE
    return "unknown status";
}

const char *gvm_status_sqlstate(gvm_status status)
{
#define CASE(name, value, sqlstate, text) \
    case name: return sqlstate;
    switch (status) {
        GVM_STATUS_TABLE(CASE)
    }
#undef CASE
    return "XX000";
}

gvm_status gvm_error_last(gvm_error *out)
{
    if (out == NULL)
        return GVM_E_INVALID;
    *out = latest;
    return GVM_OK;
}

static gvm_status record_error(gvm_status status, int code, const char *call, const char *name,
                               const char *format, va_list args)
{
    /* The sentence may quote the error it replaces, so it is made before that one is overwritten.
     */
    char text[sizeof latest.text];

    gvmi_text_vprint(text, sizeof text, format, args);
    latest.status = status;
    latest.native_code = code;
    latest.native_call = call;
    latest.native_name = name;
    memcpy(latest.text, text, sizeof text);
    return status;
}

gvm_status gvm_error_set(gvm_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record_error(status, 0, "", "", format, args);
    va_end(args);
    return status;
}

gvm_status gvmi_check_timeout(int timeout_ms)
{
    if (timeout_ms < GVM_FOREVER)
        return gvm_error_set(
            GVM_E_INVALID,
            "timeout_ms is %d: use GVM_FOREVER to wait without end, GVM_TRY not to wait", timeout_ms);
    return GVM_OK;
}

void gvm_error_restore(const gvm_error *error)
{
    latest = *error;
}

gvm_status gvmi_fail_system(gvm_status status, int errno_code, const char *call, const char *format, ...)
{
    const char *name = strerrorname_np(errno_code);
    va_list args;

    if (errno_code == ENOMEM)
        status = GVM_E_NOMEM;
    else if (errno_code == EMFILE || errno_code == ENFILE)
        status = GVM_E_LIMIT;
    va_start(args, format);
    record_error(status, errno_code, call, name != NULL ? name : "", format, args);
    va_end(args);
    return status;
}

gvm_status gvmi_fail_native(gvm_status status, int code, const char *call, const char *name,
                            const char *format, ...)
{
    va_list args;

    va_start(args, format);
    record_error(status, code, call, name, format, args);
    va_end(args);
    return status;
}

gvm_error gvmi_error_save(void)
{
    return latest;
}
