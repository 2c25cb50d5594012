/* gvmem/status.h - what a call returns, and the rules that all calls keep.
 *
 * Every function that can fail returns a gvm_status and writes its outputs only on GVM_OK. What
 * happened beyond the code (the driver call or system call that failed, its own code, and a
 * sentence that says what to do) is kept per thread until the next failure there. The library never
 * prints, exits or aborts because of what a driver, another process or an argument did.
 *
 * In all headers:
 *
 * 1. The first argument is the object that the call acts on, or the device that it makes one on. Copies name the
 *    destination first, as memcpy. Outputs are last; gvm_region_resolve() alone has its stream behind them.
 * 2. A result must be used; the compiler says where it is not. Excepted are calls that end something (free, release,
 *    close) and those for errors themselves, such as gvm_error_last().
 * 3. Device addresses are void *, and NULL is none; in structs for kernels (gvm_append, gvm_region_view) they are uint64_t.
 *    Sizes are in bytes and have names in _bytes; a range is [offset_bytes, offset_bytes + len_bytes).
 * 4. Options are made by the _init() function of their type, which sets struct_size and leaves all else at 0, the default.
 *    NULL in place of options is all defaults.
 * 5. An amount of bytes among options is the default that its member names if it is 0, none at all if it is
 *    GVM_BYTES_NONE, and without bound if it is GVM_BYTES_UNLIMITED. As an argument and in an info 0 is 0 bytes.
 * 6. An info is filled in by a call that ends in _get_info() or begins with gvm_snapshot_get_; gvm_keeper_get_budget() and
 *    gvm_table_get_column() do the same. Its caller sets struct_size before, to the struct's sizeof:
 *    "gvm_heap_info info = {.struct_size = sizeof info};" in C, in C++17 "gvm_heap_info info = {}; info.struct_size =
 *    sizeof info;". In a program that is newer than the library what the library does not know is 0. Lists take the sizeof
 *    of a record.
 * 7. flags are constants that are added by |. Unknown ones, and members called reserved that are not 0, are GVM_E_INVALID.
 * 8. Calls that wait for a lease, or for what another process sends or receives, have an argument timeout_ms: so many
 *    milliseconds, GVM_TRY, or GVM_FOREVER. GVM_E_TIMEOUT says that it has passed. gvmem/client.h says how long other calls
 *    wait for a keeper's answer; gvm_space_sync() waits as long as an option says, wait_ms.
 *    gvm_heap_stream_end_within() has timeout_ms for a stream's work.
 * 9. Calls that destroy, close, stop or detach return nothing, cannot fail, and ignore NULL and unknown pointers. Excepted
 *    are gvm_ipc_close() and gvm_callback_server_close().
 *
 * Threads: any thread may call anything here; gvm_error_last() is about the calling thread alone.
 * No call of the library is a cancellation point: pthread_cancel(3) takes effect when it has returned, also where the
 * library has called the program back. A thread whose cancelability is asynchronous must not call the library.
 * Ownership: all texts returned are constants.
 */
#ifndef GVMEM_STATUS_H
#define GVMEM_STATUS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define GVM_API __attribute__((visibility("default")))
#define GVM_CHECKED __attribute__((warn_unused_result)) /* the caller must look at the result */
#else
#define GVM_API
#define GVM_CHECKED
#endif
#if defined(__GNUC__)
#define GVM_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define GVM_PRINTF(text, first)
#endif

/* Defines type_init(), which returns options that are all defaults. */
#define GVM_OPTIONS_INIT(type) \
    static inline type type##_init(void) \
    { \
        type options; \
\
        memset(&options, 0, sizeof options); \
        options.struct_size = sizeof options; \
        return options; \
    }

/* No bytes, as an option, where 0 is the default; and no bound. */
#define GVM_BYTES_NONE (UINT64_MAX - 1)
#define GVM_BYTES_UNLIMITED UINT64_MAX

/* Time-outs. An argument timeout_ms above 0 is so many milliseconds; any other value is GVM_E_INVALID. */
#define GVM_TRY 0        /* do not wait */
#define GVM_FOREVER (-1) /* wait without end, as poll(2) */

#ifdef __cplusplus
extern "C" {
#endif

/* Library version; gvm_version() returns the one that is loaded, as major * 10000 + minor * 100 +
 * patch. The build, the packages and the sonames take theirs from here (scripts/version.sh). */
#define GVM_VERSION_MAJOR 0
#define GVM_VERSION_MINOR 3
#define GVM_VERSION_PATCH 0

/* X(name, value, sqlstate, text), by how much is broken: 10.. the call, 20.. resources, 30.. the
 * machine, 40.. another process, 50.. the system beneath. SQLSTATEs are PostgreSQL's (Appendix A of
 * its manual). */
/* clang-format off */
#define GVM_STATUS_TABLE(X) \
    X(GVM_OK, 0, "00000", "success") \
    X(GVM_E_INVALID, 10, "22023", "an argument is invalid") \
    X(GVM_E_FOREIGN, 11, "22023", "the pointer or object is not known to gvmem, or was destroyed") \
    X(GVM_E_ABSENT, 12, "55000", "no memory is committed behind part of the range") \
    X(GVM_E_SEALED, 13, "25006", "the buffer is sealed") \
    X(GVM_E_READONLY, 14, "25006", "the buffer was imported read-only") \
    X(GVM_E_IMPORTED, 15, "55000", "only the owner of the memory can do this") \
    X(GVM_E_EXISTS, 16, "42710", "the name is taken") \
    X(GVM_E_DENIED, 17, "42501", "permission denied") \
    X(GVM_E_TORN, 18, "55000", "what is there may be in parts: a change was not finished, or two sides have written") \
    X(GVM_E_NOMEM, 20, "53200", "out of host memory") \
    X(GVM_E_NOSPACE, 21, "53200", "out of device memory") \
    X(GVM_E_ADDRESS, 22, "53000", "the addresses wanted are not free") \
    X(GVM_E_LIMIT, 23, "53400", "a limit of the process or the driver is reached") \
    X(GVM_E_QUOTA, 24, "53400", "the user's quota is spent") \
    X(GVM_E_NODRIVER, 30, "58000", "no CUDA driver and no software GPU could be loaded") \
    X(GVM_E_NODEVICE, 31, "58000", "there is no such device") \
    X(GVM_E_NOTSUP, 32, "0A000", "the device or the driver does not support this") \
    X(GVM_E_SETTING, 33, "F0000", "a setting is malformed") \
    X(GVM_E_PEER, 40, "08006", "the other process is not there, or closed the connection") \
    X(GVM_E_TIMEOUT, 41, "57014", "the other side did not answer in time") \
    X(GVM_E_FORMAT, 42, "08P01", "what the other process sent is malformed") \
    X(GVM_E_VERSION, 43, "08P01", "the other side is of another version") \
    X(GVM_E_OTHERDEVICE, 44, "22023", "the memory belongs to another device") \
    X(GVM_E_KEEPER, 45, "08006", "the keeper is gone, or has cut this process off") \
    X(GVM_E_SYSTEM, 50, "58000", "a system call failed") \
    X(GVM_E_DRIVER, 51, "58000", "a driver call failed") \
    X(GVM_E_LOST, 52, "58000", "the device context is broken; work on it must start in a new process or after a reset")
/* clang-format on */

#define GVM_STATUS_ENUMERATOR(name, value, sqlstate, text) name = value,
typedef enum gvm_status { GVM_STATUS_TABLE(GVM_STATUS_ENUMERATOR) } gvm_status;
#undef GVM_STATUS_ENUMERATOR

/* The calling thread's latest failure. */
typedef struct gvm_error {
    gvm_status status;
    /* CUresult of native_call, or errno if native_call is no cu... function; 0: decided here. */
    int32_t native_code;
    /* "cuMemCreate", "sendmsg"; "" if the failure was decided in the library. */
    const char *native_call;
    const char *native_name; /* "CUDA_ERROR_OUT_OF_MEMORY", "EPIPE"; "" likewise */
    char text[256];          /* what failed, with the values, and what can be done */
} gvm_error;

/* The version of the library that is loaded. */
GVM_API uint32_t gvm_version(void);

/* "GVM_E_NOSPACE" and "out of device memory" for a status, "GVM_E_UNKNOWN" and "unknown status" for
 * a number that is none. The SQLSTATE is five characters. Never NULL. */
GVM_API const char *gvm_status_name(gvm_status status);
GVM_API const char *gvm_status_text(gvm_status status);
GVM_API const char *gvm_status_sqlstate(gvm_status status);

/* Copies the calling thread's latest failure; status is GVM_OK and the texts are empty if there was
 * none. A success does not clear it.
 *
 * GVM_E_INVALID  out is NULL; that is not recorded as a failure */
GVM_API gvm_status gvm_error_last(gvm_error *out);

/* For programs that make calls of their own with these codes, as a library upon this one: records a failure
 * of the calling thread as if a call here had failed. Returns status. The sentence is as for printf(3), and is
 * cut off at the end of gvm_error.text. restore puts back what gvm_error_last() gave, after clean-up that
 * may have failed itself. */
GVM_API GVM_PRINTF(2, 3) gvm_status gvm_error_set(gvm_status status, const char *format, ...);
GVM_API void gvm_error_restore(const gvm_error *error);

#ifdef __cplusplus
}
#endif
#endif
