/* base/error.h - recording a failure where it is decided.
 *
 * A failure is decided once, by the function that knows what was wanted; it records status, native
 * code and a sentence for the calling thread and returns the status. Functions above pass the
 * status on unchanged. Where the library itself decides, by a wrong argument or a limit of its own, it calls
 * gvm_error_set().
 */
#ifndef GVMI_BASE_ERROR_H
#define GVMI_BASE_ERROR_H

#include <gvmem/status.h>

#include "base/private.h"

/* A system or C library call failed with errno_code (ENOMEM becomes GVM_E_NOMEM, EMFILE and ENFILE
 * GVM_E_LIMIT, others status). */
GVMI_API gvm_status gvmi_fail_system(gvm_status status, int errno_code, const char *call,
                                     const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A driver call failed; driver/driver.h maps the code. name is the code's own name and must be a
 * constant. */
gvm_status gvmi_fail_native(gvm_status status, int code, const char *call, const char *name,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Judges a public time-out: GVM_E_INVALID below GVM_FOREVER. */
gvm_status gvmi_check_timeout(int timeout_ms);

/* Keeps the thread's error across clean-up that may fail itself; gvm_error_restore() puts it back. */
GVMI_API gvm_error gvmi_error_save(void);

#endif
