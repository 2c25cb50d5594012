/* examples/must.h - a program that ends with the library's text when a call fails. */
#ifndef EXAMPLES_MUST_H
#define EXAMPLES_MUST_H

#include <stdio.h>
#include <stdlib.h>

#include <gvmem/gvmem.h>

static inline _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Every call returns a status; what exactly went wrong is kept for the thread that called. */
static inline void must(gvm_status status, const char *what)
{
    gvm_error error;

    if (status == GVM_OK)
        return;
    gvm_error_last(&error);
    fprintf(stderr, "%s: %s: %s%s%s\n", what, gvm_status_text(status), error.text,
            error.native_name[0] != '\0' ? ": " : "", error.native_name);
    exit(1);
}

#endif
