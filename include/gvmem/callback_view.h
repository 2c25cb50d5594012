/* gvmem/callback_view.h - what a kernel needs to call functions of the host.
 *
 * gvm_callback_server_get_view() (gvmem/callback.h) fills in a view. It is passed by value inside the kernel's argument, to the
 * functions of gvmem/device/callback.h, and is good until the server is destroyed.
 *
 * Host code and device code include this header; it needs no other, so that NVRTC takes it.
 */
#ifndef GVMEM_CALLBACK_VIEW_H
#define GVMEM_CALLBACK_VIEW_H

#include <gvmem/device/detail/types.h>

#define GVM_CALLBACK_FUNCTIONS 32u /* of a server, numbered from 0 */
#define GVM_CALLBACK_WORDS 8u      /* most that a call passes, and gets back */

/* What a call of a kernel returns. */
enum {
    GVM_CALLBACK_OK = 0,
    GVM_CALLBACK_LATE = 1,   /* the host did not answer in time */
    GVM_CALLBACK_CLOSED = 2, /* the host has closed the server */
    GVM_CALLBACK_INVALID = 3, /* there is no such function, or it is of another kind, words are too many, or the kernel was
                               * compiled with headers of another version than the library's */
    GVM_CALLBACK_FAILED = 4, /* the function has returned an error */
};

typedef struct gvm_callback_view {
    /* For gvmem/device/detail/callback.h. */
    uint64_t words, mail;
    uint64_t wait_ns;
    uint64_t layout; /* GVM_CALLBACK_LAYOUT */
} gvm_callback_view;

#endif
