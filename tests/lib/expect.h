/* tests/lib/expect.h - what a test program states of a value: true, or false and a line that says where not.
 *
 * Threads: any. */
#ifndef LIB_EXPECT_H
#define LIB_EXPECT_H

#include <stdbool.h>
#include <stdio.h>

#include <gvmem/status.h>

#define EXPECT(condition) ((condition) || expect_failed(__FILE__, __LINE__, #condition))
/* Something that must not happen has happened. */
#define UNEXPECTED(text) expect_failed(__FILE__, __LINE__, text)

static inline bool expect_failed(const char *file, int line, const char *text)
{
    printf("# %s:%d: not so: %s\n", file, line, text);
    return false;
}

/* A call that must answer GVM_OK. */
#define EXPECT_GVM_OK(call) expect_gvm_ok(call, #call)

static inline bool expect_gvm_ok(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return true;
    gvm_error_last(&error);
    printf("# %s: %s: %s\n", what, gvm_status_name(status), error.text);
    return false;
}

#endif
