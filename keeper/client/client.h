/* keeper/client/client.h - the client's side inside the library.
 *
 *     user threads                                    the connection's thread ("mapper")
 *     acquire, release: lease and permit words
 *     otherwise:  request -> socket, wait             reads everything that comes:
 *                      ^                                reply   -> its request, wake
 *                      +----------------------------    GRANTED -> lease word, TAKEN, wake
 *                                                       OPENED  -> buffer, MAPPED(0), wake
 *                                                       MAP     -> old chunks away, UNMAPPED;
 *                                                       (idle)  -> new chunks mapped, MAPPED
 *
 * The mapper never waits for user threads beyond the few instructions of a table lock or one send,
 * and calls nothing in the driver that waits for kernels. What it finds out about the connection
 * (it closed, or what came is malformed) is final: lost is set, every request ends with
 * GVM_E_KEEPER, and so does every later one. What is mapped stays.
 *
 *   connect.c   connections: life          mapper.c   the mapper's thread
 *   object.c    objects                    answer.c   replies
 *   lease.c     leases                     map.c      OPENED and MAP
 *   call.c      requests                   handle.c   handles and references
 *   send.c  receive.c   messages           report.c copy.c   figures; copies through the CPU
 *
 * Deadlines are kept here, whatever the keeper does. A request whose thread has stopped waiting is
 * given up: it stays in the table until its reply comes, and the mapper then undoes what the reply
 * brought. So a slot is not used again before the reply to its CLOSE. What gvm_object_close() cannot
 * finish within GVMI_CLIENT_BYE_MS it leaves to the mapper (leaving).
 *
 * The socket's end informs the keeper that nothing is mapped here any more. So as long as anything
 * is, the socket is shut for reading at most: the keeper then cannot send, and no more.
 *
 * Life. A gvm_client lives while it is connected and while any of its objects does; an object while
 * it is open and while a release on a stream is to come. An object that collections hold, and its connection, stay open
 * when the program closes them, until the last of the collections ends: their memory is mapped elsewhere in the process, too. So the pages of words outlast every thread that
 * writes to them. Both are retired, not freed: a stale pointer finds magic to be something else. So
 * does a child made by fork(), in which every magic is taken away: its writing to the words would be
 * in its parent's name.
 *
 * An object's size and generation are shown (shown_generation) when every chunk below that size that is to be
 * mapped is: a growth may come in several MAPs, as may the object if it was opened GVM_OPEN_MAPPED. Until then it is
 * GVMI_NOT_SHOWN, which no permit matches, and again once a MAP has failed. Otherwise an opening begins without chunks,
 * and what a lease needs is mapped before it is granted: its MAPs come before GRANTED.
 *
 * I1  slots[i] is an object whose slot is i, from OPENED until the reply to its CLOSE.
 * I2  a request is in the table from before it is sent until it is done, its reply in place; and if
 *     it is given up, until its reply has come or the connection is lost.
 * I3  wanted_*, chunks and everything about MAPs is the mapper's alone while it runs.
 * I4  once closed is set, nobody but the closing thread touches the object's lease word or buffer.
 * Locks: send_lock (rank KEEPER_SEND) for who sends; lock (rank KEEPER) for requests, slots, the
 * fields marked so. Never both.
 */
#ifndef GVMI_KEEPER_CLIENT_CLIENT_H
#define GVMI_KEEPER_CLIENT_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gvmem/client.h>

#include "base/fds.h"
#include "base/lock.h"
#include "keeper/protocol/wire.h"
#include "keeper/protocol/words.h"
#include "memory/buffer.h"
#include "sharing/share.h"

#define GVMI_CLIENT_WAITING_MAX 1024 /* acquires of one connection that wait */
#define GVMI_CLIENT_BUCKETS 256      /* of the table of requests */
#define GVMI_CLIENT_CONNECT_MS 10000 /* from connect() to WELCOME */
#define GVMI_CLIENT_BYE_MS 1000      /* closing waits so long for a keeper that does not answer */
#define GVMI_CLIENT_TRY_MS 100       /* GVM_TRY waits so long for the keeper's answer */
#define GVMI_CLIENT_GRACE_MS 50 /* behind the keeper's own time-out, whose answer has the cause */
#define GVMI_CLIENT_REASON_MS 1000     /* so long the mapper is given to learn why it was cut off */
#define GVMI_CLIENT_GIVEN_UP_MAX 1024  /* requests that are given up and not answered yet */
#define GVMI_CLIENT_LAST_MESSAGES 4096 /* looked through for the reason of a cut-off */
#define GVMI_CLIENT_RETRY_MS 5         /* between two looks at leases that delay a vacating */
#define GVMI_CLIENT_PENDING_MAX \
    32 /* MAPs whose old chunks are gone and whose new ones are not there */
#define GVMI_CLIENT_UNANSWERED_MAX 4096 /* MAPs for one object, put off by those leases */

#define GVMI_CLIENT_MAGIC 0x6b656570u
#define GVMI_OBJECT_MAGIC 0x6f626a65u
#define GVMI_DEAD_MAGIC 0xdeadu

#define GVMI_NOT_SHOWN (-1)

/* A message as it came, with its fds, which are the receiver's to close. */
typedef struct gvmi_client_message {
    gvmi_wire_message wire;
    gvmi_fds came; /* into fds */
    int fds[GVMI_WIRE_CHUNKS_MAX];
} gvmi_client_message;

/* Somebody who waits for a reply. On that thread's stack, unless it has a deadline. */
typedef struct gvmi_client_request gvmi_client_request;
struct gvmi_client_request {
    gvmi_client_request *next;
    uint64_t number;
    gvmi_wire_type type;
    gvm_object *object;       /* ACQUIRE, CLOSE: whose; CREATE, OPEN: to be filled in */
    uint32_t mode;            /* ACQUIRE: gvm_lease_mode */
    gvmi_wire_message *reply; /* where to; NULL: nobody needs what it says */
    int fd;                   /* that came with the reply, the waiter's; -1: none */
    bool answering;           /* the mapper works on its reply */
    bool given_up;            /* nobody waits: who takes it out of the table frees it */
    bool done;
    gvm_error error; /* status GVM_OK: the reply is good */
    pthread_cond_t ended;
};

struct gvm_object {
    /* What the fast path reads. */
    _Atomic uint32_t magic;
    bool readonly;
    _Atomic bool sealed;
    gvm_client *client;
    gvmi_lease_slot *lease;
    const gvmi_permit_slot *permit;
    _Atomic int64_t shown_generation; /* or GVMI_NOT_SHOWN */
    _Atomic uint64_t shown_bytes;     /* written before it; falls only while nobody has a lease */
    uint64_t address;

    _Atomic uint32_t references;
    uint32_t slot;
    uint64_t id;
    gvm_buffer *buffer; /* published; NULL if it could not be made */
    uint64_t reserve_bytes, chunk_bytes, chunk_count;

    bool closed; /* under lock */
    uint32_t holders; /* under lock: collections that have it, each with a read lease in the lease word */
    bool left;        /* under lock: the program has closed it, and it is the holders' alone */
    gvm_error failure; /* under lock; status not GVM_OK: a MAP failed, no lease is available */
    bool retriable; /* under lock: nothing is mapped, and the keeper has that: it maps anew for a lease */

    uint64_t taken_bytes;                     /* the latest that the keeper named */
    uint64_t wanted_bytes, wanted_generation; /* the same, once what it names is mapped */
    bool keeps_mapped;                        /* GVM_OPEN_MAPPED */
    uint64_t mapped_chunks;                   /* if so: [0, so many) have been mapped */
    uint64_t serial;                          /* of the latest MAP */
    bool vacated;                             /* nothing is mapped since a MAP failed */
    uint64_t *unanswered;                     /* serials of MAPs that wait for leases to end */
    uint32_t unanswered_count;
    gvm_object *next_failing; /* in the mapper's list of those */

    gvmi_client_request closing; /* CLOSE: closing must not want memory */
    gvm_object *next_leaving;    /* under lock */
    bool tell;                   /* whether CLOSE is to be sent */
};

/* A MAP of which the old chunks are gone and the new ones are still to be mapped. */
typedef struct gvmi_client_pending {
    gvm_object *object;
    gvmi_wire_map map;
    gvmi_patch patch;
} gvmi_client_pending;

struct gvm_client {
    _Atomic uint32_t magic;
    _Atomic uint32_t references;
    gvm_client *next, *prev; /* in the list of connections, under its lock */
    int socket;
    int doorbell;
    gvmi_lease_slot *leases;
    const gvmi_permit_slot *permits;
    uint32_t keeper_pid;
    pthread_t mapper;
    /* The mapper's: objects that wait to be vacated, and a ring of MAPs; both with references. */
    gvm_object *failing;
    gvmi_client_pending pending[GVMI_CLIENT_PENDING_MAX];
    uint32_t first_pending, pending_count;

    gvmi_mutex send_lock;
    pthread_cond_t sent; /* sending was cleared */
    bool sending;        /* under send_lock: a thread is in the middle of a message */
    gvmi_mutex lock;
    _Atomic bool severed;   /* sending is given up as well */
    pthread_cond_t changed; /* an object was shown or failed, busy was cleared, lost was set */
    _Atomic uint64_t next_number;
    gvmi_client_request *requests[GVMI_CLIENT_BUCKETS];
    uint32_t acquires_waiting; /* given up ones, too */
    uint32_t given_up;
    gvm_object *slots[GVM_OBJECTS_OPEN_MAX];
    const gvm_object *busy; /* whose MAP or GRANTED the mapper works on */
    gvm_object *leaving;    /* closed, and the mapper's to end; with references */
    bool lost;
    bool ending; /* its objects are being closed, and BYE alone may report them to the keeper */
    bool left;   /* under lock: the program has closed it, and the last of left_objects ends it */
    uint32_t left_objects; /* under lock */
    gvm_error loss;
    bool holds_range;
    char reason[GVMI_WIRE_TEXT_BYTES]; /* the mapper's: why the keeper cut this process off, or "" */
};

/* ---- handle.c */

/* Checks a handle and counts the caller in; leave counts it out. GVM_E_FOREIGN */
gvm_status gvmi_object_enter(const gvm_object *handle, gvm_object **out);
void gvmi_object_leave(gvm_object *object);
gvm_status gvmi_client_enter(const gvm_client *handle, gvm_client **out);
void gvmi_client_leave(gvm_client *client);

/* One reference less; the last gives back pages and fds. Also within a host function of a stream, so it does not call the
 * driver. */
void gvmi_client_drop(gvm_client *client);

/* Sets the lease word to the leases of the object's holders alone: the program's own end with its close. */
void gvmi_client_end_other_leases_locked(const gvm_object *object);

/* Keeps the addresses free that keepers propose for objects, until gvmi_client_release_range(); GVM_E_SETTING. */
gvm_status gvmi_client_hold_range(gvm_client *client);
/* Once the mapper has ended. It may call the driver, so not within a host function of a stream. */
void gvmi_client_release_range(const gvm_client *client);
/* In a child made by fork(). */
void gvmi_client_reset_range_in_child(void);
/* The range for the connection's objects. NULL: the setting GVMEM_RANGE says that there is none. */
gvmi_range *gvmi_client_range(const gvm_client *client);

/* An object with one reference, and none in its keeper's table; a reference less. */
gvm_status gvmi_client_new_object(gvm_client *client, gvm_object **out);
void gvmi_client_drop_object(gvm_object *object);

/* ---- receive.c */

/* Receives and judges one whole message of a keeper's. timeout_ms -1: waits for ever. Of a failure
 * nothing is left to close.
 *
 * GVM_E_PEER (closed), GVM_E_TIMEOUT, GVM_E_FORMAT, GVM_E_VERSION, GVM_E_SYSTEM */
gvm_status gvmi_client_receive(int socket_fd, int timeout_ms, gvmi_client_message *out);

/* ---- send.c */

/* Sends a whole message, up to a deadline.
 *
 * GVM_E_TIMEOUT (nothing was sent), GVM_E_PEER, GVM_E_SYSTEM */
gvm_status gvmi_client_send_bytes(gvm_client *client, const void *bytes, size_t len,
                                  int64_t deadline_ns);

/* Sends a message that has no reply. */
gvm_status gvmi_client_send(gvm_client *client, const gvmi_wire_message *message, int64_t deadline_ns);

/* Has the mapper end the connection, once it has read what came. Any thread may call it. */
void gvmi_client_break(gvm_client *client);

/* ---- call.c */

/* Sends a request and waits for its reply, which takes the message's place. request->object and
 * mode are set where the type needs them.
 *
 * What the keeper answers, and GVM_E_KEEPER; GVM_E_LIMIT if too many acquires wait */
gvm_status gvmi_client_call(gvm_client *client, gvmi_wire_message *message,
                            gvmi_client_request *request);

/* As gvmi_client_call() of a request about an object, but up to a deadline.
 *
 * GVM_E_TIMEOUT (also if too many requests are given up), GVM_E_NOMEM */
gvm_status gvmi_client_call_until(gvm_client *client, gvmi_wire_message *message,
                                  gvm_object *object, uint32_t mode, int64_t deadline_ns);

/* Sends CLOSE and waits for the reply; once sent, the slot is left when the reply comes.
 *
 * GVM_E_KEEPER (the slot may be left at once), GVM_E_TIMEOUT */
gvm_status gvmi_client_call_close(gvm_object *object, int64_t deadline_ns, bool *sent);

/* The mapper's way: sends CLOSE and does not wait. */
void gvmi_client_post_close(gvm_object *object);

/* Waits for the connection's loss, at most GVMI_CLIENT_REASON_MS: for a thread that saw in a permit that
 * the keeper has cut this process off. Records and returns GVM_E_KEEPER. */
gvm_status gvmi_client_fail_cut_off(gvm_client *client);

/* For answer.c: the list that a request is in, if it is in the table. */
gvmi_client_request **gvmi_client_bucket_of(gvm_client *client, uint64_t number);

/* Takes the request out and wakes its thread; after the lock is gone, so may be the request. True:
 * it is given up, and the caller's to free. */
bool gvmi_client_end_request_locked(gvm_client *client, gvmi_client_request *request);
void gvmi_client_free_request(gvmi_client_request *request);

/* The slot is another object's from now on. */
void gvmi_client_leave_slot_locked(const gvm_object *object);

/* ---- answer.c, for the mapper alone: it is the one that ends requests that were sent */

/* Is it the reply to a request that is not about what this process has mapped? Then MAPs that came
 * before it may be pending still. */
bool gvmi_client_may_overtake(gvm_client *client, const gvmi_wire_head *head);

/* A reply came: gives it to its request. GVM_E_FORMAT if nobody asked for it; what sending says. */
gvm_status gvmi_client_answer(gvm_client *client, gvmi_client_message *message);

/* The connection is of no use any more, for the reason in the thread's error. */
void gvmi_client_lose(gvm_client *client);

/* ---- map.c */

/* A MAP of the object failed, and the next lease has all of it mapped anew. */
bool gvmi_client_may_retry(gvm_object *object);

/* Waits until the generation shown is at least the one given.
 *
 * The status with which a MAP failed, or GVM_E_KEEPER; GVM_E_TIMEOUT */
gvm_status gvmi_client_wait_shown(gvm_object *object, uint32_t generation, int64_t deadline_ns);

/* Work on an object by the mapper, which closing waits for; false: it is closed. If it is left to collections meanwhile, its other
 * leases end with the work. */
bool gvmi_client_begin_work(gvm_object *object);
void gvmi_client_end_work(gvm_client *client);

/* So much is mapped before the next look for a MAP, and one chunk at least. Tests make it smaller. */
extern uint64_t gvmi_client_slice_bytes;

/* A MAP came: takes away what it replaces. What sending says; GVM_E_FORMAT */
gvm_status gvmi_client_handle_map(gvm_client *client, gvmi_client_message *message);

/* Maps a slice of the MAP that is pending longest; answer: unless the connection is lost. */
gvm_status gvmi_client_continue_oldest_map(gvm_client *client, bool answer);

/* Until at most so many are pending. */
gvm_status gvmi_client_finish_pending_maps(gvm_client *client, uint32_t left);

/* Looks after the objects that wait to be vacated. */
gvm_status gvmi_client_answer_failing_maps(gvm_client *client);

/* For gvmi_client_answer(): makes the buffer of a new opening and sends its place to the keeper. A
 * failure that is the object's is left in it, one of the message is returned.
 *
 * GVM_E_FORMAT */
gvm_status gvmi_client_opened(gvm_object *object, const gvmi_wire_opened *opened);

/* ---- report.c */

/* What the keeper says of an object that the caller has entered, or holds. GVM_E_TIMEOUT */
gvm_status gvmi_client_get_object_info(gvm_object *object, int64_t deadline_ns, gvm_object_info *info);

/* ---- mapper.c */

/* The mapper; arg is the client. */
void *gvmi_client_run_mapper(void *arg);

/* ---- lease.c */

/* For gvmi_client_answer(): a lease was granted to a request. */
void gvmi_client_granted(gvm_object *object, uint32_t mode);

/* The deadline here of a request whose time-out the keeper has. */
int64_t gvmi_client_limit_ns(int timeout_ms);

/* Takes a lease out of the word again, and rings if the keeper waits for that. False: there was none
 * of that kind. *permit is what the permit then said. */
bool gvmi_client_give_back(const gvm_object *object, uint32_t mode, uint64_t *permit);

/* ---- connect.c */

/* The collection's lease ends, and what the program has closed meanwhile if this was the last that held it. Waits
 * as gvmi_client_end_object() and gvm_client_close() do. */
void gvmi_client_unhold_object(gvm_object *object);

/* gvm_client_connect() to a path, with gvm_client_restrict() before the greeting. */
gvm_status gvmi_client_connect_restricted(const char *path, gvm_client **out);

/* ---- object.c */

/* Ends an opening that no other thread is in: nothing is mapped any more, the words are clear.
 * Informs the keeper if tell; the caller's reference is used up. Waits for the mapper and the
 * keeper GVMI_CLIENT_BYE_MS at most, and leaves to the mapper what is then still to be done. */
void gvmi_client_end_object(gvm_object *object, bool tell);

/* A read lease was taken for a collection: from now on the collection holds the opening, which the program may close. The caller has
 * entered it. */
void gvmi_client_hold_object(gvm_object *object);

/* The program closes an opening that no thread is in: ends it, or leaves it to those who hold it, with their leases alone. Uses up the
 * caller's reference. tell: as for gvmi_client_end_object(). */
void gvmi_client_close_object(gvm_object *object, bool tell);

/* gvm_object_get_metadata() of an object that the caller has entered. GVM_E_TIMEOUT */
gvm_status gvmi_client_get_metadata(gvm_object *object, int64_t deadline_ns, void *bytes,
                                    uint32_t capacity_bytes, uint32_t *len_bytes);

/* The mapper ends what was left to it. */
void gvmi_client_end_leaving(gvm_client *client);

#endif
