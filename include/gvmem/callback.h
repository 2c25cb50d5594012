/* gvmem/callback.h - functions of the host that kernels call while they run.
 *
 * A server has threads that check whether a kernel has called, and up to 32 functions with numbers, which they run. A kernel passes up to
 * eight words of 64 bits and gets as many back, or it joins others in one call. It waits for the answer or goes on.
 *
 *     gvm_callback_server_create(device, NULL, &server);
 *     gvm_callback_register(server, LOOK_UP, 0, look_up, &index);         // gvm_status look_up(void *index, gvm_callback_args *args)
 *     gvm_callback_server_get_view(server, &params.server);
 *     cuLaunchKernel(..., stream, ...);                                   // gvmem/device/callback.h
 *     cuStreamSynchronize(stream);
 *     gvm_callback_server_drain(server);                                  // what kernels did not wait for is done as well
 *
 * What a function may do: it runs on a thread of the server, with the device's context current, and may call the library and the
 * driver, launch work, and use memory that the kernel can reach through the host. A kernel may wait for it, and perhaps occupies the whole
 * device: so a function for which a kernel waits must not wait for that kernel, nor for work that needs room beside it. That is
 * cuCtxSynchronize(), a stream that waits for the kernel, the legacy default stream, cuMemFree(), cuMemHostUnregister(), the first launch of a kernel whose
 * module is loaded lazily. gvm_space_sync() and what else waits for the library's own kernels of regions return GVM_E_INVALID there. To commit memory, to copy on a
 * stream of one's own, to map regions whose newest data is at home, and to launch without waiting are all right. A function may launch a kernel that
 * calls back, and wait for it, if the server has another thread to serve that, and the device room.
 *
 * The other way round a kernel waits for a function at most wait_ms, then its call fails, whatever has become of the host.
 *
 * Threads: any thread may call.
 * Ownership: the caller owns a server and ends it. The device stays open for it.
 * Errors that any call here may return besides those listed: GVM_E_FOREIGN (the server is unknown or destroyed), GVM_E_NOMEM.
 *
 * Semantics: the callbacks of RSVM (F. Ji, H. Lin, X. Ma, PACT 2013), after J. Stuart, M. Cox, J. Owens, "GPU-to-CPU Callbacks", 2010.
 */
#ifndef GVMEM_CALLBACK_H
#define GVMEM_CALLBACK_H

#include <gvmem/callback_view.h>
#include <gvmem/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_callback_server gvm_callback_server;

#define GVM_CALLBACK_THREADS_MAX 16u

/* Zero means default in every member. */
typedef struct gvm_callback_server_options {
    size_t struct_size;    /* in: sizeof(gvm_callback_server_options) */
    uint32_t thread_count; /* that run functions; 0: 1. One of them at a time looks for calls */
    uint32_t wait_ms;      /* how long a kernel waits for one call; 0: 10 s */
    uint32_t flags;        /* 0 */
    uint32_t reserved;
} gvm_callback_server_options;

/* gvm_callback_server_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_callback_server_options)

/* One call of a function. */
typedef struct gvm_callback_args {
    /* In: what the kernel has passed, and 0 behind. Out: what it gets back, as many as it has passed, if it waits; of a collective
     * function words[0] for all. What is written to the other members is ignored. */
    uint64_t words[GVM_CALLBACK_WORDS];
    uint64_t requests; /* that this call serves: 1, or of a collective function all that came since the call before began */
    uint32_t function; /* its number */
    uint32_t word_count;
    uint8_t is_awaited; /* a kernel waits, or may wait: of a collective function always 1 */
    uint8_t reserved[7];
} gvm_callback_args;

/* Returns GVM_OK, or what the next drain is to return; the kernel, if it waits, gets GVM_CALLBACK_FAILED and no words. A text is recorded with
 * gvm_error_set(). */
typedef gvm_status (*gvm_callback_function)(void *context, gvm_callback_args *args);

/* Kinds of functions. Without flags: with parameters, one call of the function after the other. */
enum {
    GVM_CALLBACK_COLLECTIVE = 1u << 0, /* without parameters; one call for all that ask before it begins */
    GVM_CALLBACK_REENTRANT = 1u << 1, /* with parameters; several threads of the server may run it at once */
};

typedef struct gvm_callback_server_info {
    size_t struct_size; /* in: sizeof(gvm_callback_server_info) */
    uint64_t calls;     /* of functions, so far */
    uint64_t requests;  /* of kernels that these served */
    uint64_t failures;  /* calls that returned an error, or named no function of that kind */
    uint32_t running;   /* functions at this moment */
    uint32_t thread_count;
    uint32_t wait_ms;
    int32_t ordinal; /* the device */
    uint8_t closed;
    uint8_t reserved[7];
} gvm_callback_server_info;

/* Creates a server and starts its threads. options may be NULL. A thread looks all the time while kernels call, every 50 us when none
 * has called for 2 ms, and every millisecond after 0.2 s.
 *
 * GVM_E_INVALID  an option is out of its limits, or out is NULL
 * GVM_E_LIMIT    the device has 512 servers and spaces (gvmem/region.h), or no more threads can be started
 * GVM_E_NOSPACE  too little device memory for its words
 * GVM_E_SYSTEM   a thread cannot be started
 * GVM_E_LOST, GVM_E_DRIVER */
GVM_API GVM_CHECKED gvm_status gvm_callback_server_create(gvm_device *device,
                                                          const gvm_callback_server_options *options,
                                                          gvm_callback_server **out);

/* Gives a function a number below GVM_CALLBACK_FUNCTIONS, for as long as the server exists. context is passed to it.
 *
 * GVM_E_INVALID  the number or flags are wrong, both flags are given, or function is NULL
 * GVM_E_EXISTS   the number is taken */
GVM_API GVM_CHECKED gvm_status gvm_callback_register(gvm_callback_server *server, uint32_t number,
                                                     uint32_t flags, gvm_callback_function function,
                                                     void *context);

/* What kernels need, for as long as the server exists.
 *
 * GVM_E_INVALID  view is NULL */
GVM_API GVM_CHECKED gvm_status gvm_callback_server_get_view(gvm_callback_server *server,
                                                            gvm_callback_view *view);

/* Waits until all calls have been made that kernels had asked for before: those of kernels that have ended, and of others what the host
 * can see. A kernel that has signalled a collective function counts as ended when the others that signal or join it have ended, too, as one
 * of their threads may be the one that passes the call on to the host. Then returns the first error since the drain before: that of a function, with its text, or of a call that named none.
 *
 * GVM_E_INVALID  a kernel has called what is no function of that kind; or the caller is itself a function of this server
 * GVM_E_TIMEOUT  no call has ended for wait_ms; or the server was closed, and calls that came later are not made
 * what functions return */
GVM_API GVM_CHECKED gvm_status gvm_callback_server_drain(gvm_callback_server *server);

/* Makes the calls that kernels have asked for by now, and no more: waits for functions under way, and ends the threads. Kernels that
 * wait, or call from now on and wait, get GVM_CALLBACK_CLOSED. A second time it does nothing.
 *
 * GVM_E_INVALID  the caller is itself a function of this server */
GVM_API gvm_status gvm_callback_server_close(gvm_callback_server *server);

/* GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_callback_server_get_info(gvm_callback_server *server,
                                                            gvm_callback_server_info *info);

/* Closes it and gives its words back. End the kernels that use it first. NULL, unknown pointers, and calls by a function of
 * this server are ignored. */
GVM_API void gvm_callback_server_destroy(gvm_callback_server *server);

#ifdef __cplusplus
}
#endif
#endif
