/* gvmem/keeper.h - running a keeper.
 *
 * The daemon gvmem-keeper is a few lines around this; a program that wants a keeper of its own (a
 * test, a database server) starts one here, as threads of itself, and connects to it like any other
 * client (gvmem/client.h). These functions are in the library libgvmem-keeper: link with "gvmem-keeper" of
 * pkg-config or gvmem::keeper of CMake, in place of "gvmem" or gvmem::gvmem.
 *
 * Threads: any thread may call. A keeper runs one thread for clients and two for each device that
 * move memory; signals are blocked in them. The callback `log` runs in the thread for clients, until
 * gvm_keeper_stop() returns.
 * Ownership: the caller owns the keeper and ends it with gvm_keeper_stop().
 */
#ifndef GVMEM_KEEPER_H
#define GVMEM_KEEPER_H

#include <gvmem/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_keeper gvm_keeper;

#define GVM_KEEPER_DEVICES_MAX 16

/* What becomes of a process that was cut off while it could write to an object (gvmem/client.h, "Being
 * cut off"). Either way others are granted a lease only when the object is in memory that the process
 * has not mapped, or the process has ended. */
typedef enum gvm_keeper_fence {
    GVM_FENCE_COPY = 0, /* nothing: the object is copied, once there is room and a lease is asked for */
    GVM_FENCE_KILL = 1, /* it is sent SIGKILL, if the keeper's user may; until it has ended, as above */
} gvm_keeper_fence;

/* gvm_keeper_options.flags */
enum {
    /* Connections of other users than the keeper's own and root are as after gvm_client_restrict() from the start:
     * for a keeper whose objects are one program's, and others' by links alone. */
    GVM_KEEPER_RESTRICT_OTHERS = 1u << 0,
};

/* What objects of a user may commit (gvm_client_set_quota()). */
typedef struct gvm_quota {
    uint32_t uid;
    uint32_t reserved; /* 0 */
    uint64_t quota_bytes; /* 0: the default, no limit, as GVM_BYTES_UNLIMITED; GVM_BYTES_NONE: nothing */
} gvm_quota;

/* Zero means default in every other member. */
typedef struct gvm_keeper_options {
    size_t struct_size;   /* in: sizeof(gvm_keeper_options) */
    const char *path;     /* of the socket; NULL: as gvm_client_connect(); "": none, adopt alone */
    int32_t listen_fd;    /* a listening unix socket instead of path (socket activation); 0: none */
    uint32_t socket_mode; /* permission bits of path's socket; 0600 if 0. listen_fd keeps its own */
    const int32_t *devices; /* ordinals to serve, device_count of them; NULL: all */
    uint32_t device_count;
    uint32_t clients_max; /* 1024, fewer where RLIMIT_NOFILE is below 10,368; an eighth, at most 64, is for the keeper's user and root.
                                   * Another user gets at most half of the rest */
    /* Of each device; 0: 90 % of what is free at the start, or less (device_leave_bytes). It is 2 MiB at least. GVM_BYTES_NONE and
     * GVM_BYTES_UNLIMITED are GVM_E_INVALID for both budgets. */
    uint64_t device_budget_bytes;
    uint64_t host_budget_bytes; /* 0: half of the machine's memory that is available */
    uint64_t host_ahead_bytes;  /* of it, made ahead of need; 0: none */
    uint64_t device_keep_bytes; /* most device memory that is kept free; 256 MiB if 0 */
    uint64_t driver_free_bytes; /* leave so much free on the card for other programs, giving up
                                     * budget if they take more; 0: do not look */
    uint64_t quota_bytes; /* of each user not in quotas, with 0 and GVM_BYTES_NONE as in gvm_quota */
    const gvm_quota *quotas; /* quota_count of them */
    uint32_t quota_count;
    uint32_t revoke_limit_ms; /* a client that does not map for so long what was moved is cut off; 0:
                               * 10 s. Each MiB of host memory that any process is to map adds 36 us, and
                               * all of it at most three times as much as this */
    uint32_t lease_limit_ms; /* and one that keeps a lease so long while others wait; 0: no limit */
    const char *trace_path;  /* append every acquire that the policy sees; NULL: none */
    /* Called with a line about each thing that the keeper decides by itself: clients refused, cut off or
     * killed, memory that could not be made, budgets changed, a device lost. Lower case, no newline,
     * under 384 bytes, valid during the call. There is a limit for each user, after which one line says
     * how many were left out. The thread that serves clients calls it and waits for it; it must not
     * call the library. NULL: none */
    void (*log)(void *context, const char *line);
    void *log_context;
    uint32_t fence; /* gvm_keeper_fence */
    uint32_t flags; /* GVM_KEEPER_... */
    /* Where device_budget_bytes is 0: how much of each device's free memory the default budget leaves to other programs. It
     * leaves at least a tenth, and at most half of what is free at the start. It is read at the start only; what is to stay
     * free later is driver_free_bytes */
    uint64_t device_leave_bytes;
    /* Ordinals of devices, lender_count of them, that lend memory which their own objects leave of their budgets to objects of
     * other devices, so that those need not go to host memory; NULL: all devices; lender_count 0, and lenders not NULL: none.
     * Devices lend to each other where both reach the other's memory with native atomics, as over NVLink */
    const int32_t *lenders;
    uint32_t lender_count;
    uint32_t reserved; /* 0 */
} gvm_keeper_options;

/* gvm_keeper_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_keeper_options)

/* Starts a keeper: opens its devices, listens, and returns when clients can connect. An abandoned
 * socket file is replaced, one of a keeper that runs is not.
 *
 * GVM_E_INVALID   options out of range, host_ahead_bytes beyond the host budget, out is NULL
 * GVM_E_EXISTS    a keeper listens at the path already
 * GVM_E_NODEVICE  there is no such device
 * GVM_E_NOTSUP    a device has no virtual memory management or cannot export memory
 * GVM_E_NOSPACE   the device budget is under 2 MiB or larger than the device, the host budget than the machine's memory
 *                 or the limit of the process's control group, or driver_free_bytes leaves nothing
 * GVM_E_DENIED    the socket at the path, in a folder that all may write to, is another user's
 * GVM_E_LIMIT     more than 65536 quotas, or the process has too many open files
 * GVM_E_SYSTEM    the socket could not be made
 * and the errors of gvm_device_open() */
GVM_API GVM_CHECKED gvm_status gvm_keeper_start(const gvm_keeper_options *options, gvm_keeper **out);

/* A connected socket to the keeper, for gvm_client_adopt() here or in another process. The caller owns it.
 *
 * The socket carries the rights of the keeper's own process: its credentials are those of the process that created
 * it (unix(7), SO_PEERCRED), whichever process adopts it later. Do not pass it to a process of another user: that
 * process could open and drop every object and set quotas. It should connect to the keeper's path with
 * gvm_client_connect() (socket_mode says who may), so that its own user counts.
 *
 * GVM_E_INVALID  socket_fd is NULL
 * GVM_E_FOREIGN  the keeper is unknown or was stopped
 * GVM_E_LIMIT, GVM_E_NOMEM, GVM_E_SYSTEM */
GVM_API GVM_CHECKED gvm_status gvm_keeper_open_socket(gvm_keeper *keeper, int *socket_fd);

/* What a keeper may use, as settled when it started. */
typedef struct gvm_keeper_budget {
    size_t struct_size; /* in: sizeof(gvm_keeper_budget) */
    char name[96];      /* of the device */
    uint8_t uuid[16];
    int32_t ordinal;
    int32_t reserved;
    uint64_t device_bytes;
    uint64_t host_bytes; /* for all devices */
} gvm_keeper_budget;

/* The budget of the keeper's devices, index from 0.
 *
 * GVM_E_INVALID  there is no device of that index; budget is NULL or its struct_size is too small
 * GVM_E_FOREIGN  the keeper is unknown or was stopped */
GVM_API GVM_CHECKED gvm_status gvm_keeper_get_budget(gvm_keeper *keeper, uint32_t index,
                                                     gvm_keeper_budget *budget);

/* Does it still serve? A device whose context breaks does not come back in this process: stop the keeper, and
 * start one in a new process.
 *
 * GVM_E_LOST     a device is broken
 * GVM_E_FOREIGN  the keeper is unknown or was stopped */
GVM_API GVM_CHECKED gvm_status gvm_keeper_check(gvm_keeper *keeper);

/* Where it listens; "" if nowhere. Lives as long as the keeper. */
GVM_API const char *gvm_keeper_path(const gvm_keeper *keeper);

/* Stops: clients see the connection end, as if the keeper's process had ended; objects go, memory is
 * given back once no client has it mapped. NULL and unknown pointers are ignored. */
GVM_API void gvm_keeper_stop(gvm_keeper *keeper);

#ifdef __cplusplus
}
#endif
#endif
