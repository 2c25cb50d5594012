/* gvmem/client.h - device memory that processes share and that may be larger than the card.
 *
 * A keeper is a process (the daemon gvmem-keeper), or a thread of one (gvmem/keeper.h), that owns
 * named objects. An object is a range of device memory of one device; every process that opens it
 * maps it once, at an address that never changes there. The keeper decides which chunks of which
 * object are in the memory of their device; the others are in memory that another device lends, or in host memory, which
 * a lease maps at the same address, to be read over a link. So an object may be larger than the device, and all of them
 * together larger still.
 *
 * A process touches an object only while it has a lease:
 *
 *     gvm_object_acquire(object, GVM_LEASE_READ, NULL, GVM_FOREVER, &lease);
 *     kernel<<<..., stream>>>((const float *)lease.address, lease.size_bytes / sizeof(float));
 *     gvm_object_release_async(object, &lease, stream);
 *
 * A leased chunk is never moved. Either any number of read leases or one write lease exist at a
 * time, over all processes. If the object is on the device and nobody wants it otherwise, acquire
 * and release are one atomic operation each on memory shared with the keeper, without a system
 * call. Without a lease nothing need be mapped: what was moved to host memory is unmapped in every process, and
 * a kernel that reads it, or writes it, loses its context. With GVM_OPEN_MAPPED reading without a lease
 * is harmless while no chunk of the object moves (gvm_object_info.moving), but may read old bytes, new bytes or a mixture. A chunk
 * that moves is unmapped for a moment, and a kernel that reads it then loses its context. Writing loses data.
 *
 * An object goes when its creator closes it or ends, unless it was published (gvm_object_publish()),
 * sealed, or created with GVM_OBJECT_KEEP. Nothing outlives the keeper itself. When the keeper ends,
 * memory that is mapped stays readable, leases already taken stay good, and the next call that needs
 * the keeper returns GVM_E_KEEPER.
 *
 * Being cut off. A process that does not map in time what was moved (as it was stopped), keeps a lease
 * too long while others wait, does not read its messages, or breaks the protocol, is cut off: the others
 * go on without it. Every call over its connection then returns GVM_E_KEEPER, the release of a
 * lease too, and the error text has the reason. If it had a write lease (or any lease on an object
 * created with GVM_OBJECT_UNTRACKED that it opened for writing), the object goes on in other memory
 * before anybody else is granted a lease, with what was written so far: what that process writes
 * afterwards reaches nobody. What it may have mapped counts against the budget, and its user's
 * quota, until it has ended; if the object is its user's own, until it has closed the connection. A
 * user whose processes so hold more than its quota opens nothing, and gets no leases for writing.
 *
 * A keeper may be stopped, or under too much load to answer. gvm_object_acquire() and
 * gvm_object_seal() keep their time-outs nevertheless; gvm_client_connect() waits 10 s at most for the connection, as long to
 * send its greeting, and as long for the answer; gvm_object_close() and gvm_client_close() wait one or two seconds. Every other
 * call that asks the keeper waits for its answer as long as the keeper's process lives; but while 1024 requests of the
 * connection that were given up are not answered, each returns GVM_E_TIMEOUT at once.
 *
 * Names begin with "/" and consist of printable characters, at most GVM_NAME_BYTES_MAX - 1 bytes:
 * "/sales/2026/q3". Access is checked as for files: owner, group, others; execute bits are unused. The keeper's own user and
 * root may do what the owner of an object may.
 * Read-only access guards against mistakes, not attacks: the driver's file descriptors carry no
 * rights, so a hostile program that may read an object can also write it.
 *
 * Threads: any thread may call anything; acquire and release of one object scale over threads.
 * Do not close an object or a connection while other threads use it. No call is a cancellation
 * point: a thread that is cancelled while it waits in one ends when the call returns, so bound the wait by
 * timeout_ms. What it had, leases too, stays with the process. In a child made by fork() neither its parent's connections nor, if its parent has used a
 * GPU, a GPU can be used: it should exec a program.
 * Ownership: the caller owns a connection and the objects it opened over it; closing the connection
 * closes them.
 * Every call may also return GVM_E_FOREIGN (closed or unknown), GVM_E_KEEPER (the keeper ended, or cut
 * this process off: close the connection and connect anew), GVM_E_NOMEM, GVM_E_LOST, GVM_E_DRIVER and
 * GVM_E_SYSTEM. For speed gvm_object_acquire() and gvm_object_release() look at the object itself: they know a closed one while fewer
 * than 1024 handles of any kind have been closed since, and must be given no pointer that never was an object.
 *
 * Semantics: shm_overview(7) for names and life, fcntl(2) leases for revocation, CUDA Driver API
 * "Virtual Memory Management" for the memory. docs/design/keeper.md has the protocol.
 */
#ifndef GVMEM_CLIENT_H
#define GVMEM_CLIENT_H

#include <gvmem/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gvm_client gvm_client;     /* a connection */
typedef struct gvm_object gvm_object;     /* an object opened over one */
typedef struct gvm_snapshot gvm_snapshot; /* of all that a keeper has */

#define GVM_NAME_BYTES_MAX 256      /* with the NUL */
#define GVM_METADATA_BYTES_MAX 4096 /* what a creator attaches to an object */
#define GVM_METADATA_START_BYTES 64 /* so many of them are in gvm_object_info */
#define GVM_OBJECTS_OPEN_MAX 4096   /* of one connection */

/* ---- connections */

/* Connects to the keeper that listens at a socket path; NULL: the setting GVMEM_KEEPER, whose
 * default is /run/gvmem/keeper.sock for root, and $XDG_RUNTIME_DIR/gvmem.sock for other users, or
 * /tmp/gvmem-UID.sock where that variable is not set. Starts one thread, which maps what the keeper moves.
 *
 * GVM_E_INVALID  out is NULL, or the path is too long for a socket
 * GVM_E_PEER     nobody listens there; the error text says how to start a keeper
 * GVM_E_DENIED   the socket's permissions; or the keeper's limit of connections, of which a user has an
 *                allowance (docs/design/keeper.md, "What bounds what"); or the user is not mapped in the
 *                keeper's user namespace
 * GVM_E_LIMIT    the process has too many open files
 * GVM_E_TIMEOUT  no answer within 10 s
 * GVM_E_SETTING  GVMEM_RANGE is malformed
 * GVM_E_FORMAT, GVM_E_VERSION  no keeper, or one of another version */
GVM_API GVM_CHECKED gvm_status gvm_client_connect(const char *path, gvm_client **out);

/* As gvm_client_connect(), over a connected unix stream socket, which becomes the connection's. On every failure
 * it stays the caller's, open, to be closed: part of the greeting may have gone over it. Rights are those of the user whose process
 * connected the socket. That process may be another than the caller's, and may end. A socket that gvm_keeper_open_socket() made, or the
 * keeper's own process connected, has the rights of that process, and the caller's process is not watched: its leases and mappings count
 * as ended with the socket.
 *
 * GVM_E_INVALID  out is NULL, or the descriptor is no unix stream socket
 * GVM_E_PEER     the other side closed it
 * GVM_E_DENIED, GVM_E_LIMIT, GVM_E_TIMEOUT, GVM_E_SETTING, GVM_E_FORMAT, GVM_E_VERSION  as for gvm_client_connect() */
GVM_API GVM_CHECKED gvm_status gvm_client_adopt(int socket_fd, gvm_client **out);

/* Restricts a connected unix stream socket to a keeper, for good. The process that adopts it (gvm_client_adopt()), this one or
 * another that it is passed to, can open links (GVM_OPEN_LINK) and use those objects. All other requests fail with
 * GVM_E_DENIED: to open names, to create, list, link or change objects. The user whose rights the socket carries has no
 * others over it. After a failure the socket is open, and of no use but to be closed.
 *
 * GVM_E_INVALID  the descriptor is no unix stream socket
 * GVM_E_PEER     the other side closed it
 * GVM_E_DENIED   the keeper refuses the connection, as for gvm_client_connect()
 * GVM_E_TIMEOUT  the request was not taken within 10 s, or not answered within 10 s
 * GVM_E_FORMAT   no keeper, or one of an older version */
GVM_API GVM_CHECKED gvm_status gvm_client_restrict(int socket_fd);

/* Closes its objects, gives their addresses back and ends the connection; where collections have some of them
 * (gvmem/region_object.h), it ends with the last of these collections. Leases that are left end: work that uses
 * them must be over. NULL and unknown pointers are ignored. Waits one or two seconds for a keeper that does not
 * answer. */
GVM_API void gvm_client_close(gvm_client *client);

/* Breaks the connection, without a message to the keeper and without waiting for it: what waits for an
 * answer ends with GVM_E_KEEPER, as does all that is asked later. For a program that must end though the keeper may not
 * answer; closing what is open does not wait after this. Unknown pointers are ignored. */
GVM_API void gvm_client_abort(gvm_client *client);

/* ---- objects: making, finding, ending */

enum {
    /* The object stays when its creator ends, though not yet published or sealed. */
    GVM_OBJECT_KEEP = 1u << 0,
    /* Read leases allow writing, too: for programs that agree among themselves who writes what when,
     * as behind a mark up to which others read. The keeper keeps no clean copies of it, until it is
     * sealed, so that moving it costs a copy each way. */
    GVM_OBJECT_UNTRACKED = 1u << 1,
    /* New memory is made in host memory where that has room, and displaces nothing on the device: for what processors use
     * first, or alone. Leases without GVM_ACQUIRE_CPU move it as that of other objects. */
    GVM_OBJECT_HOST = 1u << 2,
    /* Its read leases are those of collections (gvmem/region_object.h), and last as long as these. So no request to write or to seal
     * waits for them: it fails while there are any. The keeper's limit for leases (lease_limit_ms of gvmem/keeper.h) is
     * not for them. */
    GVM_OBJECT_REGIONS = 1u << 3,
};

/* Zero means default in every other member. */
typedef struct gvm_object_options {
    size_t struct_size;   /* in: sizeof(gvm_object_options) */
    uint64_t chunk_bytes; /* a power of two, 2 MiB to 1 GiB; 0: chosen by the sizes */
    uint64_t size_bytes;  /* committed from the start; 0: none, gvm_object_grow() follows */
    int32_t device;       /* ordinal in this process */
    uint32_t mode;        /* permission bits, 0600 if 0 */
    uint32_t flags;       /* GVM_OBJECT_... */
    uint32_t metadata_bytes;
    const void *metadata;
} gvm_object_options;

/* gvm_object_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_object_options)

/* Makes an object. name NULL or "": nameless until published. reserve_bytes is the most it can grow
 * to; addresses are cheap. New memory reads as zeros. options may be NULL.
 *
 * GVM_E_INVALID   reserve_bytes or chunk_bytes out of range, more than 65536 chunks, size_bytes beyond
 *                 reserve_bytes, a malformed name, too much metadata, unknown flags or mode bits
 * GVM_E_EXISTS    the name is taken
 * GVM_E_NODEVICE  there is no such device here
 * GVM_E_OTHERDEVICE  the keeper does not serve that device
 * GVM_E_NOSPACE   size_bytes fit neither the device budget nor the host budget, or other programs use what
 *                 the budgets promise
 * GVM_E_QUOTA     the user's quota is spent
 * GVM_E_LIMIT     GVM_OBJECTS_OPEN_MAX objects are open over this connection; or the user's allowance of
 *                 objects, openings or growths is spent (docs/design/keeper.md, "What bounds what"); or
 *                 the keeper has no file descriptors left for more memory
 * GVM_E_ADDRESS   no such range of addresses is free
 * GVM_E_NOTSUP    the device has no virtual memory management
 * and the errors of gvm_device_count() */
GVM_API GVM_CHECKED gvm_status gvm_object_create(gvm_client *client, const char *name,
                                                 uint64_t reserve_bytes,
                                                 const gvm_object_options *options, gvm_object **out);

enum {
    /* Map read-only, and ask for read permission only. */
    GVM_OPEN_READONLY = 1u << 0,
    /* Fail with GVM_E_ADDRESS rather than map it at another address than the creator's: pointers inside the data
     * stay right. */
    GVM_OPEN_SAME_ADDRESS = 1u << 1,
    /* The name is that of a link (gvm_object_link()). */
    GVM_OPEN_LINK = 1u << 2,
    /* Keep all of it mapped, what is in host memory too, for kernels that read without a lease while nothing of it
     * moves. Opening and every move then map host memory in this process, which takes the driver about 9 us a MiB. */
    GVM_OPEN_MAPPED = 1u << 3,
};

/* Opens an object by name. The object stays whole while it is open anywhere, also if dropped. Nothing is mapped
 * before the first lease, unless by GVM_OPEN_MAPPED. It has one address in all processes, but where another opening or
 * the program has taken that. While a process is connected, addresses between 32 and 80 TiB are kept free for objects, unless
 * something was there before.
 *
 * GVM_E_INVALID   a malformed name, unknown flags
 * GVM_E_ABSENT    there is no object, or no link, of that name
 * GVM_E_DENIED    its owner and mode do not allow it; or the connection is restricted, and that is no link
 * GVM_E_NODEVICE  its device is not visible to this process
 * GVM_E_ADDRESS   no such range of addresses is free, or that one is taken
 * GVM_E_NOSPACE   the device has no memory left for the little that mapping takes
 * GVM_E_QUOTA     the user's processes that were cut off, or could not map an object of another user, hold more
 *                 memory than its quota
 * GVM_E_LIMIT     as for gvm_object_create(), or the process has too many mappings; or 16 openings of this
 *                 object over this connection, or 512 by this user (but for root and the keeper's own)
 * GVM_E_NOTSUP    the device has no virtual memory management
 * and the errors of gvm_device_count() */
GVM_API GVM_CHECKED gvm_status gvm_object_open(gvm_client *client, const char *name, uint32_t flags,
                                               gvm_object **out);

/* Ends one opening; leases on it end, and work that uses them must be over. One that collections have
 * (gvmem/region_object.h) is not the program's any more, and ends with the last of them. NULL and unknown
 * pointers are ignored. Waits one or two seconds for a keeper that does not answer; the connection's
 * thread then does the rest once it answers. */
GVM_API void gvm_object_close(gvm_object *object);

/* Takes the name away, as unlink(2): processes that have the object open keep it, and its memory is freed when
 * the last of them closes it. Only the owner, the keeper's own user and root may.
 *
 * GVM_E_ABSENT, GVM_E_DENIED, GVM_E_INVALID */
GVM_API gvm_status gvm_object_drop(gvm_client *client, const char *name);

/* ---- objects: changing */

/* Makes the object at least size_bytes large. Contents and address stay; what is new reads as zeros.
 * A program that has a lease may use the new memory when this returns; leases taken later have it too. It needs no lease
 * and disturbs nobody.
 *
 * GVM_E_INVALID   beyond the reservation
 * GVM_E_SEALED    the object is sealed
 * GVM_E_DENIED    opened GVM_OPEN_READONLY, or by a link
 * GVM_E_LIMIT     1024 growths of this connection are under way, or as for gvm_object_create()
 * GVM_E_NOSPACE, GVM_E_QUOTA  as for gvm_object_create(); the object is as it was */
GVM_API GVM_CHECKED gvm_status gvm_object_grow(gvm_object *object, uint64_t size_bytes);

/* Gives back the chunks that lie wholly beyond size_bytes, so that others can have their memory: no process
 * has them mapped any more when this returns. What it grows by later reads as zeros. It changes nothing if the
 * object is as small already.
 *
 * GVM_E_SEALED   the object is sealed
 * GVM_E_DENIED   opened GVM_OPEN_READONLY, or by a link
 * GVM_E_TIMEOUT  somebody has a lease on the object, or it is growing: as it was
 * GVM_E_LIMIT    too many requests wait, as for gvm_object_acquire() */
GVM_API GVM_CHECKED gvm_status gvm_object_shrink(gvm_object *object, uint64_t size_bytes);

/* Makes the object read-only for good, for everyone, after waiting for a write lease elsewhere to
 * end: write leases are not available any more, and what is mapped from then on is mapped
 * read-only. Kernels that read go on; but of an object with GVM_OBJECT_UNTRACKED, whose readers may
 * write, it waits for all leases; with GVM_OBJECT_REGIONS, too, it fails while there are any to read. A sealed
 * object outlives its creator. timeout_ms as for gvm_object_acquire().
 *
 * GVM_E_INVALID  timeout_ms is below GVM_FOREVER
 * GVM_E_DENIED   not its owner, or opened GVM_OPEN_READONLY
 * GVM_E_TIMEOUT  as for gvm_object_acquire(); if the keeper does not answer, it may seal the object
 *                later
 * GVM_E_LIMIT    too many requests wait, as for gvm_object_acquire() */
GVM_API GVM_CHECKED gvm_status gvm_object_seal(gvm_object *object, int timeout_ms);

enum {
    GVM_PUBLISH_REPLACE = 1u << 0, /* take the name from whichever object has it (rename(2)) */
    GVM_PUBLISH_PRIVATE = 1u << 1, /* the name alone: the object still goes with its creator */
};

/* Gives the object a name in one step, in the place of the one it had; from then on it outlives its
 * creator, without GVM_PUBLISH_PRIVATE. A client that opens the name sees the old object or the new one, never none.
 *
 * GVM_E_INVALID  a malformed name, unknown flags
 * GVM_E_EXISTS   the name is taken, without GVM_PUBLISH_REPLACE
 * GVM_E_DENIED   not the owner of this object, or of the one replaced; GVM_PUBLISH_PRIVATE: not its
 *                creator's connection, or closed by it since */
GVM_API GVM_CHECKED gvm_status gvm_object_publish(gvm_object *object, const char *name, uint32_t flags);

/* Gives the object one more name, a link, by which others open its first bytes, whatever its own mode is. mode
 * says who may read them, and who may write them. Links are names of their own kind: they are opened with GVM_OPEN_LINK, listed
 * nowhere, and a link and an object may have the same one. So a link with a name that cannot be guessed admits those
 * who have it.
 *
 * A program that opens it has the chunks that [0, size_bytes) touches, also those that are made later, and no others: what
 * is behind size_bytes in the last of them can be read, too, and so can the object's metadata. One that opens it for writing
 * can take write leases, which are on the whole object, but can change neither its size nor its metadata (GVM_E_DENIED). A
 * link ends with gvm_object_unlink(), when the object is dropped, or when an object that is not kept loses its creator; it stays when
 * another object takes the name (GVM_PUBLISH_REPLACE), as long as the object does. Openings stay. A link of the same name that
 * the caller owns goes to this object in one step: a program that opens it finds the old object or the new one.
 *
 * GVM_E_INVALID  a malformed name, unknown mode bits, size_bytes is 0
 * GVM_E_EXISTS   an object of another user has a link of that name
 * GVM_E_DENIED   not the owner of the object
 * GVM_E_LIMIT    the user's allowance of links is spent (docs/design/keeper.md, "What bounds what") */
GVM_API GVM_CHECKED gvm_status gvm_object_link(gvm_object *object, const char *name, uint32_t mode,
                                               uint64_t size_bytes);

/* Ends a link. Only the owner of the object, the keeper's own user and root may.
 *
 * GVM_E_ABSENT, GVM_E_DENIED, GVM_E_INVALID */
GVM_API gvm_status gvm_object_unlink(gvm_client *client, const char *name);

/* Changes the permission bits. Openings that exist stay. GVM_E_DENIED, GVM_E_INVALID */
GVM_API GVM_CHECKED gvm_status gvm_object_set_mode(gvm_object *object, uint32_t mode);

/* The metadata: bytes that describe the object, uninterpreted. set replaces it in one step; get
 * copies at most capacity bytes and returns how many there are.
 *
 * GVM_E_INVALID  more than GVM_METADATA_BYTES_MAX, or a NULL pointer
 * GVM_E_DENIED   opened GVM_OPEN_READONLY, or by a link
 * GVM_E_SEALED   the object is sealed (its metadata is, too) */
GVM_API GVM_CHECKED gvm_status gvm_object_set_metadata(gvm_object *object, const void *metadata,
                                                       uint32_t len_bytes);
GVM_API GVM_CHECKED gvm_status gvm_object_get_metadata(gvm_object *object, void *metadata,
                                                       uint32_t capacity_bytes, uint32_t *len_bytes);

/* Gives another device of this process access to the object's memory as it is mapped here, or takes
 * it away; as gvm_buffer_grant(). It follows the object through its moves. */
GVM_API GVM_CHECKED gvm_status gvm_object_grant(gvm_object *object, gvm_device *peer,
                                                gvm_access access);

/* ---- leases */

typedef enum gvm_lease_mode {
    GVM_LEASE_READ = 1,
    GVM_LEASE_WRITE = 2, /* and read; alone */
} gvm_lease_mode;

typedef enum gvm_hint {
    GVM_HINT_NONE = 0,
    GVM_HINT_SCAN = 1, /* read once from end to end: do not displace others for it */
    GVM_HINT_HOT = 2,  /* read many times under this lease: bring it in first, in the place of
                        * whatever is not leased; waits for what is being moved, but for GVM_TRY,
                        * which gets what is there */
    GVM_HINT_ONCE = 3, /* this access predicts nothing: what is on the host stays there */
} gvm_hint;

/* gvm_acquire_options.flags */
enum {
    /* The processor may read the bytes at lease->address, and write them under a write lease; so may the GPU. The acquire waits
     * until no other lease holds chunks on the device, and then moves the whole object to host memory, where it stays
     * while it is leased. hint must be GVM_HINT_NONE; the lease counts as GVM_HINT_ONCE. lease->size_bytes is
     * what the processor may access: the object may have grown since. Without such a lease, an access by
     * the processor may end the program (SIGSEGV). Synchronise streams that use the bytes first. */
    GVM_ACQUIRE_CPU = 1u << 0,
};

/* Zero means default in every other member; NULL: no hint. */
typedef struct gvm_acquire_options {
    size_t struct_size; /* in: sizeof(gvm_acquire_options) */
    gvm_hint hint;
    uint32_t flags; /* GVM_ACQUIRE_… */
} gvm_acquire_options;

/* gvm_acquire_options_init(): all defaults. */
GVM_OPTIONS_INIT(gvm_acquire_options)

typedef struct gvm_lease {
    void *address;       /* of the first byte, on the object's device and granted peers */
    uint64_t size_bytes; /* committed from there on; more may come while the lease lasts */
    uint64_t generation; /* counts growth and seal */
    uint32_t mode;       /* gvm_lease_mode; 0: released */
    uint32_t hint;
} gvm_lease;

/* Takes a lease. Needs no device memory: what is not there is read over the link. But where a process
 * that was cut off may still write to the object, it waits until there is room for a copy in either
 * budget, or that process has ended. With GVM_TRY it waits for no lease, but up to 100 ms for the keeper's
 * answer.
 *
 * It maps what is not mapped in this process: all of the object by its first lease, and by the first one after chunks
 * were evicted these. Host memory takes the driver about 9 us a MiB. That time counts: an acquire that it
 * makes late fails, and what is mapped stays so. If mapping fails, so does this acquire, and all of the object
 * is unmapped in this process when its last lease here has ended; the next acquire maps it anew.
 *
 * GVM_E_INVALID   lease is NULL, an unknown mode, hint or flag, a hint with GVM_ACQUIRE_CPU, timeout_ms is below
 *                 GVM_FOREVER
 * GVM_E_NOMEM     GVM_ACQUIRE_CPU: the host budget has no room for what is on the device
 * GVM_E_TIMEOUT   others kept a conflicting lease, or were being moved (GVM_HINT_HOT); or, at once, a write lease on an object with GVM_OBJECT_REGIONS that has
 *                 read leases; or there was no room for that copy, or the keeper does
 *                 not answer; or GVM_ACQUIRE_CPU with GVM_TRY, and a part is on a device; or GVM_ACQUIRE_CPU over a restricted
 *                 connection (gvm_client_restrict()), and a part is on a device while others have leases (at once)
 * GVM_E_SEALED    a write lease on a sealed object
 * GVM_E_READONLY  a write lease on an object opened GVM_OPEN_READONLY
 * GVM_E_QUOTA     as for gvm_object_open(): a write lease, any lease on an object with
 *                 GVM_OBJECT_UNTRACKED, or one after mapping failed
 * GVM_E_LIMIT     the process has 32767 leases on the object, or too many mappings to map it; or 1024
 *                 threads wait over this connection, or the user's allowance of such requests is
 *                 spent */
GVM_API GVM_CHECKED gvm_status gvm_object_acquire(gvm_object *object, gvm_lease_mode mode,
                                                  const gvm_acquire_options *options,
                                                  int timeout_ms, gvm_lease *lease);

/* Gives a lease back and clears it. Work on the GPU that uses it must be over.
 *
 * GVM_E_INVALID  the lease is NULL, or was released already
 * GVM_E_KEEPER   the lease has ended, but the keeper had cut this process off before: what was written
 *                under it may be lost, what was read may be out of date. The only error after which
 *                this waits: a second at most, for the reason */
GVM_API gvm_status gvm_object_release(gvm_object *object, gvm_lease *lease);

/* Gives a lease back when the work submitted to the stream so far is done, and clears it at once.
 * If the stream's context breaks before that, the lease stays until the object is closed.
 *
 * GVM_E_INVALID  as for gvm_object_release(); or the stream is being captured into a graph, which would give the lease
 *                back at every launch, or is the legacy default stream while one that waits for it is: the lease stays, and the capture goes on
 * GVM_E_KEEPER   as for gvm_object_release(), at this moment; the lease ends behind the stream's work nevertheless
 * GVM_E_LOST     the stream's context is broken: the lease is released, as nothing runs there */
GVM_API gvm_status gvm_object_release_async(gvm_object *object, gvm_lease *lease, gvm_stream stream);

/* How many of the first len_bytes bytes under a lease are in host memory now, where a GPU reads them over the link.
 * What is on the device stays there while it is leased; what is on the host may come to the device meanwhile.
 *
 * GVM_E_INVALID  lease or host_bytes is NULL, the lease was released already, or it has fewer bytes */
GVM_API GVM_CHECKED gvm_status gvm_object_get_host_bytes(gvm_object *object, const gvm_lease *lease,
                                                         uint64_t len_bytes, uint64_t *host_bytes);

/* ---- copies of host memory, under a lease of their own */

/* Copy host memory into an object, or part of it into host memory: they take a lease, to write and to read, wait
 * for the copy and give the lease back. timeout_ms bounds the wait for the lease alone. Bytes on the device and in
 * host memory are copied from and to where they are. The copy is ordered after nothing on the program's streams: work
 * of this process that writes what is read here must be over. After a failure part of the range, or of dst, may be
 * written.
 *
 * GVM_E_INVALID   the range leaves [0, size_bytes) of the object, src or dst is NULL, timeout_ms is below
 *                 GVM_FOREVER
 * GVM_E_TIMEOUT, GVM_E_QUOTA, GVM_E_LIMIT  as for gvm_object_acquire()
 * GVM_E_SEALED    copy_in: the object is sealed
 * GVM_E_READONLY  copy_in: it was opened GVM_OPEN_READONLY
 * GVM_E_NOSPACE   the driver has no memory for the copy itself
 * GVM_E_KEEPER    also as for gvm_object_release() */
GVM_API GVM_CHECKED gvm_status gvm_object_copy_in(gvm_object *dst, uint64_t dst_offset_bytes,
                                                  const void *src, uint64_t len_bytes, int timeout_ms);
GVM_API GVM_CHECKED gvm_status gvm_object_copy_out(void *dst, gvm_object *src,
                                                   uint64_t src_offset_bytes, uint64_t len_bytes,
                                                   int timeout_ms);

/* ---- what there is */

typedef struct gvm_object_info {
    size_t struct_size;            /* in: sizeof(gvm_object_info) */
    char name[GVM_NAME_BYTES_MAX]; /* "": nameless */
    uint64_t id;                   /* unique in the life of the keeper */
    void *address;                 /* here; NULL in a snapshot */
    uint64_t size_bytes, reserve_bytes, chunk_bytes;
    uint64_t device_bytes; /* of its chunks, on the device */
    uint64_t host_bytes; /* of its chunks, in host memory alone; lent_bytes are those in neither */
    uint64_t duplicate_bytes; /* on the device, with a clean copy in host memory */
    uint64_t dirty_bytes;     /* on the device, host copy stale or none */
    uint64_t generation;
    uint64_t acquires; /* seen by the keeper so far */
    uint64_t evicted_bytes, promoted_bytes;
    uint32_t owner_uid, owner_gid, mode;
    uint32_t openings; /* by all connections */
    uint32_t read_leases,
        write_leases; /* one just granted to another connection may count until shortly after its release */
    uint32_t waiting; /* acquires that wait */
    /* Writers that ended, or were cut off, under a lease: one to write, or any on an object with GVM_OBJECT_UNTRACKED that
     * was opened for writing */
    uint32_t interrupted;
    int32_t device; /* the keeper's ordinal */
    uint32_t metadata_bytes;
    uint8_t sealed, kept, moving, untracked;
    uint8_t fenced; /* no lease before a copy is made: a process that was cut off may write to it */
    uint8_t foreign; /* processes of other users were sent memory of it, and may have that mapped still */
    uint8_t reserved[2];
    uint8_t metadata_start[GVM_METADATA_START_BYTES]; /* the first bytes of the metadata; zeros behind its end */
    uint64_t lent_bytes; /* of its chunks, in memory that other devices lend (gvm_keeper_options.lenders) */
    int32_t local_device; /* the device's ordinal in this process; -1 in a snapshot */
} gvm_object_info;

typedef struct gvm_client_info {
    size_t struct_size; /* in: sizeof(gvm_client_info) */
    uint64_t id;
    int32_t pid; /* of the process that uses the connection; uid is of the one that connected */
    uint32_t uid, gid;
    uint32_t objects_open;
    uint64_t committed_bytes; /* of objects it created that live; counts against quotas by user */
    uint64_t acquires;
    uint64_t held_bytes; /* that it may have mapped, as it was cut off or could not map, and no object uses */
    uint32_t read_leases, write_leases;
    uint8_t cut_off, reserved[7];
} gvm_client_info;

typedef struct gvm_keeper_device_info {
    size_t struct_size; /* in: sizeof(gvm_keeper_device_info) */
    uint8_t uuid[16];
    char name[96];
    int32_t ordinal; /* the keeper's */
    uint32_t objects;
    uint64_t budget_bytes;
    uint64_t resident_bytes; /* of objects */
    uint64_t free_bytes;     /* of the budget, that is kept free */
    uint64_t leased_bytes, dirty_bytes;
    uint64_t held_bytes;            /* by clients, and by no object */
    uint64_t host_backed_bytes;     /* of this device's objects */
    uint64_t evictions, promotions; /* chunks */
    uint64_t evicted_bytes, promoted_bytes;
    uint64_t driver_free_bytes, driver_total_bytes; /* for all programs */
    uint64_t lent_bytes; /* of resident_bytes, those of other devices' objects */
} gvm_keeper_device_info;

typedef struct gvm_keeper_info {
    size_t struct_size; /* in: sizeof(gvm_keeper_info) */
    uint64_t pid, uptime_ms;
    uint64_t host_budget_bytes, host_used_bytes, host_free_bytes;
    uint64_t acquires, slow_acquires, revokes, timeouts, cut_offs, interrupted;
    uint64_t messages, faults; /* faults: protocol violations */
    uint32_t devices, objects, clients, users;
} gvm_keeper_info;

/* A user who has a connection, objects or a quota of its own. */
typedef struct gvm_user_info {
    size_t struct_size; /* in: sizeof(gvm_user_info) */
    uint32_t uid, reserved;
    uint64_t quota_bytes;     /* GVM_BYTES_UNLIMITED: no limit */
    uint64_t committed_bytes; /* of the user's objects */
    uint64_t held_bytes;      /* of its clients, as in gvm_client_info */
} gvm_user_info;

/* Everything the caller may see. Each record is of one moment. A snapshot of more than some hundred
 * records, or of fewer with many openings, is made while the keeper serves others: objects made meanwhile may be
 * missing, and sums may differ a little. The caller ends it with gvm_snapshot_destroy(). It is the caller's alone:
 * the connection may be closed before.
 *
 * GVM_E_INVALID  out is NULL
 * GVM_E_LIMIT    16 threads wait for one over this connection already, or the user's allowance of snapshots,
 *                or of bytes that it has not read, is spent */
GVM_API GVM_CHECKED gvm_status gvm_client_get_snapshot(gvm_client *client, gvm_snapshot **out);

/* The records of a snapshot, in any order: get_keeper says how many devices, objects, clients and users there are, the
 * others count them from 0. Objects are those that the caller may read; users are all for the keeper's own user and root, and
 * only itself for another one. What an older keeper does not send is 0.
 *
 * GVM_E_INVALID  there is no such record, info is NULL, or its struct_size is too small
 * GVM_E_FOREIGN  the snapshot is unknown or destroyed */
GVM_API GVM_CHECKED gvm_status gvm_snapshot_get_keeper(const gvm_snapshot *snapshot,
                                                       gvm_keeper_info *info);
GVM_API GVM_CHECKED gvm_status gvm_snapshot_get_device(const gvm_snapshot *snapshot, uint32_t index,
                                                       gvm_keeper_device_info *info);
GVM_API GVM_CHECKED gvm_status gvm_snapshot_get_object(const gvm_snapshot *snapshot, uint32_t index,
                                                       gvm_object_info *info);
GVM_API GVM_CHECKED gvm_status gvm_snapshot_get_client(const gvm_snapshot *snapshot, uint32_t index,
                                                       gvm_client_info *info);
GVM_API GVM_CHECKED gvm_status gvm_snapshot_get_user(const gvm_snapshot *snapshot, uint32_t index,
                                                     gvm_user_info *info);

/* NULL and unknown pointers are ignored. */
GVM_API void gvm_snapshot_destroy(gvm_snapshot *snapshot);

/* One object. GVM_E_INVALID  info is NULL or its struct_size is too small */
GVM_API GVM_CHECKED gvm_status gvm_object_get_info(gvm_object *object, gvm_object_info *info);

/* Where a chunk of an object is. On the device and on the host: with the same bytes. LENT: in memory of another
 * device, which lends it. */
enum { GVM_CHUNK_DEVICE = 1, GVM_CHUNK_HOST = 2, GVM_CHUNK_MOVING = 4, GVM_CHUNK_LENT = 8 };

/* Where the chunks of a named object are, from the first one on, a byte with GVM_CHUNK_… each: capacity of them at most. *count is
 * how many chunks there are from there on. The caller may read the object. Of more than some thousand chunks the parts of the list
 * are of several moments, and a failure may leave some of them in states.
 *
 * GVM_E_INVALID  name is malformed, count is NULL, or states is NULL and capacity is not 0
 * GVM_E_ABSENT   there is no object of that name
 * GVM_E_DENIED   it may not be read */
GVM_API GVM_CHECKED gvm_status gvm_client_list_chunks(gvm_client *client, const char *name,
                                                      uint64_t first, uint64_t capacity,
                                                      uint8_t *states, uint64_t *count);

/* ---- for the machine's administrator */

/* Moves chunks of an object from its device to host memory, at most size_bytes of them, in whole chunks
 * (GVM_BYTES_UNLIMITED: all); leased ones stay, and so do those in memory that other devices lend. *evicted_bytes, which may be NULL, is what moved. It stays
 * there until the object grows, or is acquired with another hint than GVM_HINT_ONCE (the copies above use that one). The memory
 * becomes the keeper's reserve; gvm_client_trim() gives it to other programs.
 *
 * GVM_E_INVALID  a malformed name, size_bytes is GVM_BYTES_NONE
 * GVM_E_ABSENT   there is no object of that name
 * GVM_E_DENIED   neither its owner, nor the keeper's own user, nor root
 * GVM_E_NOMEM    the host budget is spent, or the machine has less memory
 * GVM_E_LIMIT    the keeper has no file descriptors left for host memory; or as for
 *                gvm_object_acquire() */
GVM_API GVM_CHECKED gvm_status gvm_client_evict(gvm_client *client, const char *name,
                                                uint64_t size_bytes, uint64_t *evicted_bytes);

/* Gives free device memory of the keeper's back to the driver until at most keep_bytes are left.
 * keeper_device is the device's ordinal at the keeper (gvm_keeper_device_info). *freed_bytes may be NULL.
 *
 * GVM_E_INVALID  the keeper serves no such device
 * GVM_E_DENIED   neither the keeper's own user nor root */
GVM_API GVM_CHECKED gvm_status gvm_client_trim(gvm_client *client, int32_t keeper_device,
                                               uint64_t keep_bytes, uint64_t *freed_bytes);

/* Limits what objects owned by a user may commit, together with what the user's processes hold that were
 * cut off, or could not map; 0: nothing; GVM_BYTES_UNLIMITED: no limit. Objects that exist stay.
 *
 * GVM_E_INVALID  quota_bytes is GVM_BYTES_NONE, which is for options
 * GVM_E_DENIED   neither the keeper's own user nor root
 * GVM_E_LIMIT    65536 users have a quota of their own */
GVM_API GVM_CHECKED gvm_status gvm_client_set_quota(gvm_client *client, uint32_t uid,
                                                    uint64_t quota_bytes);

#ifdef __cplusplus
}
#endif
#endif
