/* keeper/server/server.h - the inside of a running keeper: what is around the machine.
 *
 *   server.c          life: options, devices, threads; the public calls
 *   loop.c            the server thread: waits for events, time
 *   visit.c           what is done for a client in a visit: reading, messages
 *   act.c             actions of the machine, jobs that are over
 *   connection.c      connections: coming, leaving, the end of clients' processes, sending
 *   watch.c           what epoll watches
 *   passing.c         descriptors on their way to clients
 *   incoming.c        what clients send, where descriptors may be among it
 *   process.c         the processes of clients
 *   page.c            the two pages that a client and the keeper share
 *   socket.c          where the keeper listens
 *
 * With a header of their own:
 *
 *   schedule.c        which client is served next
 *   outbox.c fd.c     what is to be sent to a client; descriptors that several places have
 *   identity.c        who a client is
 *   frame.c           memory: pools and frames
 *   mover.c jobs.c    the threads that make and copy it, and what waits for them
 *   budget.c          how much memory the machine lets a keeper have
 *   log.c             lines for the program that runs the keeper
 *
 * Only the server thread touches the machine, the connections and what hangs on them. Movers reach it
 * through the queue of finished jobs, other threads through `lock`.
 *
 * A connection is what the server has of a client:
 *
 *     OPEN ----- machine refuses: REFUSED -- answered ----> gone
 *      |--- BYE, socket ends, or it is cut off ---> LEAVING --- its process ends, or FORGET ---> gone
 *
 * A connection that is LEAVING is watched for the close of its end of the socket, which its library does
 * last. The process is the one that sends HELLO, which need not be the one that connected (gvm_client_adopt()). A process that cannot be watched (the keeper's own, as socket pairs have its credentials, or one
 * of another PID namespace) counts as gone then.
 *
 * Time, as the machine counts it, passes while this thread runs or waits, not while it is stopped or
 * late: nobody is cut off for the keeper's own delays.
 */
#ifndef GVMI_KEEPER_SERVER_SERVER_H
#define GVMI_KEEPER_SERVER_SERVER_H

#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gvmem/keeper.h>

#include "base/lock.h"
#include "keeper/machine/machine.h"
#include "keeper/server/identity.h"
#include "keeper/server/log.h"
#include "keeper/server/mover.h"
#include "keeper/server/outbox.h"
#include "keeper/server/schedule.h"

#define GVMI_CLIENTS_MAX 1024u
#define GVMI_OBJECTS_MAX 65536u
#define GVMI_CONNECTION_FDS \
    5u /* of a client, at most: socket, process, doorbell and, at first, two pages; then a snapshot */

/* ---- where it listens */

typedef struct gvmi_listener {
    int fd;                     /* -1: nowhere */
    int lock;                   /* the lock file; -1: none */
    struct sockaddr_un address; /* sun_path "": none that is ours */
    char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
    dev_t device; /* the socket file's, so that it is removed only if it is still ours */
    ino_t inode;
} gvmi_listener;

/* Listens at a path, replacing an abandoned socket there. folder: make the folder it is in, if it is
 * missing.
 *
 * GVM_E_INVALID, GVM_E_EXISTS, GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_listener_open(const char *path, mode_t mode, bool folder, gvmi_listener *out);

/* Takes a listening socket; the caller keeps its own fd. GVM_E_INVALID, GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_listener_adopt(int fd, gvmi_listener *out);

/* Stops listening and removes what open() made. */
void gvmi_listener_close(gvmi_listener *listener);

/* ---- shared pages */

/* Memory of zeros, mapped here, and its fd, which cannot change its size. readonly: a process that gets the
 * fd can map it for reading only.
 *
 * GVM_E_NOMEM, GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_page_create(const char *name, size_t bytes, bool readonly, void **address,
                            gvmi_fd **fd);

/* A memfd that is written bit by bit. end() takes it over, on failure, too, and seals it: nobody writes
 * it or makes it larger. empty() frees its memory, even where it is still open or mapped.
 *
 * GVM_E_NOMEM, GVM_E_LIMIT, GVM_E_SYSTEM */
gvm_status gvmi_page_begin(const char *name, int *fd);
gvm_status gvmi_page_write(int fd, uint64_t offset_bytes, const void *bytes, size_t len);
gvm_status gvmi_page_end(int fd, gvmi_fd **out);
void gvmi_page_empty(gvmi_fd *fd);

/* ---- processes of clients */

/* A pidfd of the process that connected; -1: of this process or another PID namespace, or it is gone. pidfd_open() may meet another
 * process of the same number, if the one that connected has passed its socket on and is gone (certain: no).
 *
 * GVM_E_SYSTEM  out of descriptors or memory. The connection is to be refused: its leases would end with the socket, not with the process */
gvm_status gvmi_process_open(int socket, int32_t pid, int *fd, bool *certain);

/* Is the process about to end? Then its work on the GPU may go on until it has. Where its threads are not
 * to be looked at, as of another PID namespace, its end is waited for. To be asked again: the
 * descriptors for looking may have been missing. */
bool gvmi_process_is_ending(pid_t pid);

/* ---- descriptors on their way */

typedef struct gvmi_connection gvmi_connection;

/* Finds out how many there may be. The limit of open files is set. */
void gvmi_passing_start(gvm_keeper *server);

/* How many more the connection may be sent now; that it was sent so many. */
uint32_t gvmi_passing_left(gvm_keeper *server, gvmi_connection *connection);
void gvmi_passing_add(gvm_keeper *server, gvmi_connection *connection, uint32_t count);

/* Looks whether it has received all: they count no more then. True: none is on its way. */
bool gvmi_passing_settle(gvm_keeper *server, gvmi_connection *connection);

/* May its user connect? GVM_E_LIMIT */
gvm_status gvmi_passing_admits(const gvmi_connection *connection);

/* ---- what clients send */

typedef struct gvmi_closing gvmi_closing;

/* Of a new socket, before it is read or closed; of a listening one, too, as those that connect to it are alike from the
 * start. */
void gvmi_incoming_begin(int socket);

/* The process that has sent what was received, where it is another than the one that is known. */
typedef struct gvmi_sender {
    bool other; /* there is such a process; else only pid is set */
    pid_t pid;  /* 0: of another PID namespace */
    uint32_t uid;
    int process;  /* pidfd; -1: it is this process, it is gone, or the system opens none */
    bool certain; /* the pidfd is of the sender, whatever happened since */
} gvmi_sender;

/* As recv(2), without waiting. Bytes beside which descriptors come, and all behind them, are never received:
 * -1, EBADMSG. Bytes of two processes are never received together. sender: NULL, or with the pid of the process that is known (0:
 * none); where another one has sent the bytes, it is that, also if they cannot be received then. Its pidfd is for the caller to
 * close. EMFILE: there is no descriptor, or memory, for that. */
ssize_t gvmi_incoming_receive(int socket, void *bytes, size_t len, gvmi_sender *sender);

/* Fills in *sender: a process with these credentials. received: NULL, or what SCM_PIDFD brought, a pidfd, which is taken over,
 * or a negative error number. False: out of descriptors, or memory; *sender is as it was. */
bool gvmi_process_open_sender(pid_t pid, uint32_t uid, const int *received, gvmi_sender *sender);

/* Closes a socket, if it is one, and makes it -1. False: it is still open, as descriptors are unread in it: to be called
 * again with the same *closing (NULL at first), until a thread has taken it. */
bool gvmi_incoming_close(int *socket, gvmi_closing **closing);

/* Likewise, but waits for that thread. */
void gvmi_incoming_close_now(int *socket, gvmi_closing **closing);

/* Likewise, a listening one, in which there may be connections. It is not shut down: the service manager may have it. */
void gvmi_incoming_close_listener(int *socket);

/* ---- connections */

typedef enum gvmi_source_kind {
    GVMI_SOURCE_LISTEN,
    GVMI_SOURCE_WAKE,
    GVMI_SOURCE_DONE,
    GVMI_SOURCE_SOCKET,
    GVMI_SOURCE_DOORBELL,
    GVMI_SOURCE_PROCESS,
} gvmi_source_kind;

/* What an epoll event points to. */
typedef struct gvmi_source {
    gvmi_source_kind kind;
    gvmi_connection *connection;
} gvmi_source;

typedef enum gvmi_connection_state {
    CONNECTION_OPEN,
    CONNECTION_REFUSED,
    CONNECTION_LEAVING,
    CONNECTION_GONE
} gvmi_connection_state;

struct gvmi_connection {
    gvmi_connection *prev, *next; /* among all, or those that ended */
    gvmi_place place;             /* queued while something is to be done for it */
    gvmi_connection_state state;
    gvmi_source on_socket, on_doorbell, on_process;
    int socket;            /* -1: closed */
    gvmi_closing *closing; /* of the socket; NULL: not begun, or over */
    int process;           /* pidfd; -1: not to be watched */
    uint32_t client;       /* the machine's number; 0: the machine does not know it */
    uint32_t uid;          /* of the process that connected; 0 as long as that is not known */
    bool certain; /* `process` is the one that connected, or said HELLO, whatever happened since */
    bool foreign; /* it is a process of another user than uid */
    bool adoptable; /* another process than the keeper's connected, and none has sent HELLO: the one that sends it is to be watched */
    pid_t pid;
    gvm_status reason; /* REFUSED: why, and in words */
    char refusal[GVMI_WIRE_TEXT_BYTES];
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    gvmi_fd *fds[3]; /* as WELCOME brings them; the pages' are released once it is on its way */
    gvmi_outbox outbox;
    uint32_t passing;       /* descriptors sent and perhaps not received, where they are limited */
    size_t counted_bytes;   /* of the outbox, as the machine knows them */
    int snapshot;           /* a memfd that is being written; -1 */
    bool snapshot_lost;     /* part of it could not be written */
    gvmi_fd *snapshot_sent; /* until SNAPSHOT_READ; NULL: none */
    int64_t since_ns;
    uint32_t events;     /* of the socket, that it is to be visited for */
    bool rang;           /* its doorbell, likewise */
    bool process_ended;  /* likewise */
    bool hung_up;        /* its socket is closed, and its process seemed about to end */
    bool ending;         /* what it sent is read to its end; then it is silent, or gone */
    uint32_t last_reads; /* while it is ending */
    bool greeted;        /* a message has come */
    bool more;           /* there may be a whole message in `in` */
    bool dirty;          /* the outbox is to be flushed */
    bool stalled;        /* it is to be flushed again after a while */
    bool unread_kept;    /* it has ended, and its socket is kept: something in it was not read */
    bool writing;        /* epoll reports when it can be written */
    bool mute;           /* nobody reads what it is sent */
    bool incomplete;     /* a message is missing: nothing may follow but the reason */
    bool held_back;      /* nothing is sent before dropped memory is given back */
    uint32_t in_len;
    uint32_t unheard_bytes; /* read after it was cut off */
    _Alignas(8) uint8_t in[2 * sizeof(gvmi_wire_message)];
};

struct gvm_keeper {
    /* constant while the thread runs */
    gvmi_machine_config config;
    gvm_device *devices[GVMI_DEVICES_MAX];
    gvmi_mover *movers[GVMI_DEVICES_MAX];
    uint64_t driver_free_bytes;
    uint32_t passing_max; /* descriptors that may be on their way; 0: no limit */
    gvmi_identity identity;
    gvmi_frames *frames;
    gvmi_done_queue *done;
    gvmi_listener listener;
    int epoll, wake;
    FILE *trace;
    pthread_t thread;
    /* between threads */
    gvmi_mutex lock;
    struct gvmi_handed *handed; /* sockets for new clients */
    atomic_bool stop, lost;
    /* the server thread's */
    gvmi_machine *machine;
    gvmi_source on_listen, on_wake, on_done;
    gvmi_schedule schedule;
    gvmi_place newcomers; /* whose owner is the server: connections wait to be accepted */
    gvmi_connection *connections, *ended; /* ended: to be freed when they are visited next */
    gvmi_connection **by_client;          /* client_capacity of them, by number */
    uint32_t client_capacity, refused_count, held_back_count;
    uint64_t passing;  /* of all connections */
    bool paused;       /* no fds: nobody is accepted until the next tick */
    bool short_of_fds; /* that was logged, and nobody was accepted since */
    gvm_status make_failure[GVMI_DEVICES_MAX][GVM_TIER_HOST + 1]; /* the latest, while none succeeds */
    bool lowered[GVMI_DEVICES_MAX]; /* the device's budget, for other programs */
    gvmi_log log;
    int64_t now_ns, query_ns; /* query_ns: when memory is to be looked at next */
    int64_t clock_ns;         /* CLOCK_MONOTONIC when now_ns was set */
    int64_t stall_ns;         /* when to try again what is stalled; 0: nothing is */
    bool working;             /* the machine has more to do that nobody waits for */
};

/* A socket of a client, made in this process. */
typedef struct gvmi_handed {
    struct gvmi_handed *next;
    int socket;
} gvmi_handed;

/* A line for the program that runs the keeper (gvm_keeper_options.log), lower case, without newline.
 * The server thread's. */
void gvmi_server_log(gvm_keeper *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Likewise, about what a user's client did. */
void gvmi_server_log_user(gvm_keeper *server, gvmi_log_kind kind, uint32_t uid, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));

/* ---- watch.c */

/* Has an fd watched, or watched for other events. */
gvm_status gvmi_server_watch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source);
void gvmi_server_rewatch(gvm_keeper *server, int fd, uint32_t events, gvmi_source *source);

/* Closes an fd, if it is one, and makes it -1; the second: one that is watched. */
void gvmi_server_close(int *fd);
void gvmi_server_close_watched(const gvm_keeper *server, int *fd);

/* ---- connection.c */

/* A client's socket, taken over. On failure it is closed. */
void gvmi_connection_come(gvm_keeper *server, int socket);

/* It is visited when the schedule comes to it. */
void gvmi_connection_queue(gvm_keeper *server, gvmi_connection *connection);

/* Another process has sent something over a connection that is adoptable: it is the one to watch. False: it cannot be watched. errno
 * stays. */
bool gvmi_connection_adopted(gvm_keeper *server, gvmi_connection *connection,
                             const gvmi_sender *sender);

/* If it only seemed that its process is about to end: it is visited for that. */
void gvmi_connection_judge_again(gvm_keeper *server, gvmi_connection *connection);

/* Visits again those that have ended and of which sockets are kept (passing.c). */
void gvmi_connection_look_again(gvm_keeper *server);

/* Tries again to send what the system had no room for, or its user was not to be sent. */
void gvmi_connection_retry(gvm_keeper *server, gvmi_connection *connection);

/* Dropped memory was given back. */
void gvmi_connection_send_held_back(gvm_keeper *server, gvmi_connection *connection);

/* Queues a message, with as many fds as its head says. */
void gvmi_connection_send(gvm_keeper *server, gvmi_connection *connection,
                          const gvmi_wire_message *message, gvmi_fd *const *fds);

/* Sends as much as goes now. */
void gvmi_connection_flush(gvm_keeper *server, gvmi_connection *connection);

/* A piece of a snapshot; see GVMI_ACTION_SNAPSHOT. */
void gvmi_connection_send_snapshot(gvm_keeper *server, gvmi_connection *connection,
                                   const gvmi_action *action);

/* Frees the memory of the snapshot that it was sent, though it may keep the fd. */
void gvmi_connection_take_snapshot_back(gvmi_connection *connection);

/* Actions of the machine on a client. */
void gvmi_connection_cut(gvm_keeper *server, gvmi_connection *connection, const char *reason);
void gvmi_connection_kill(gvm_keeper *server, gvmi_connection *connection);
void gvmi_connection_forget(gvm_keeper *server, gvmi_connection *connection);

/* For the machine: there is something of the client that was not read yet. */
bool gvmi_connection_has_input(void *server, uint32_t client);

/* Says why a client is refused, and ends it. request 0: it has not asked anything yet. */
void gvmi_connection_answer_refused(gvm_keeper *server, gvmi_connection *connection, uint64_t request);

/* Nothing more is read from it or sent to it; its process may go on. */
void gvmi_connection_leave(gvmi_connection *connection);

/* It sends or receives nothing more. It may have everything mapped, with kernels that use it, until its
 * end of the socket is closed; epoll reports that (EPOLLHUP) without being asked to. */
void gvmi_connection_silence(gvm_keeper *server, gvmi_connection *connection);

/* Of one that is LEAVING: its end of the socket is closed. */
void gvmi_connection_closed(gvm_keeper *server, gvmi_connection *connection);

/* Likewise: if the process is about to end, that is waited for. */
void gvmi_connection_judge_closed(gvm_keeper *server, gvmi_connection *connection);

/* BYE says that nothing is mapped any more, which the machine checks. The process may go on. */
void gvmi_connection_bye(gvm_keeper *server, gvmi_connection *connection);

/* Its process maps nothing any more. */
void gvmi_connection_gone(gvm_keeper *server, gvmi_connection *connection);

/* Its memory is freed when it is visited next: callers may still use it. */
void gvmi_connection_end(gvm_keeper *server, gvmi_connection *connection);

/* The visit of one that has ended: frees it, unless its socket is to be kept. */
void gvmi_connection_free_ended(gvm_keeper *server, gvmi_connection *connection);

/* All it had is given back, when it has ended or when the server ends. */
void gvmi_connection_free(gvm_keeper *server, gvmi_connection *connection);

/* ---- act.c */

/* Performs the machine's actions until there are none. After every event. */
void gvmi_server_act(gvm_keeper *server);

/* Reports to the machine what movers have done. */
void gvmi_server_finish_jobs(gvm_keeper *server);

/* ---- visit.c */

/* What epoll reported of a connection: it is visited for that when the schedule comes to it. */
void gvmi_connection_note(gvm_keeper *server, gvmi_source *source, uint32_t events);

/* Does for it what there is to be done, for a bounded time: up to the end of the visit, and one
 * message more. What is left over waits for the next visit. A connection that has ended is freed. */
void gvmi_connection_visit(gvm_keeper *server, gvmi_connection *connection);

/* It has sent nothing since it connected. */
void gvmi_connection_not_greeted(gvm_keeper *server, gvmi_connection *connection);

/* ---- loop.c */

/* The server thread. */
void *gvmi_server_run(void *server);

#endif
