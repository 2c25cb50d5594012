/* tests/prop/keeper_simulation.h - a simulation around the keeper's machine: processes that follow
 * the client's side of docs/design/keeper.md, frames with contents, movers, a clock.
 *
 * Everything runs in one thread and is decided by a seed. A frame has one number, its version; a
 * chunk of the model has the number last written to it. Messages in flight keep their order, each
 * direction of a connection by itself; everything else happens in any order.
 *
 *     keeper_machine.c       simulations: their sizes, the choice of the next step, the orderly end
 *     keeper_simulation.c    events into the machine, actions out of it, frames and jobs
 *     keeper_names.c         the model of objects and names: what may be answered, what follows from it
 *     keeper_shown.c         what the keeper shows, compared with the model
 *     keeper_client.c        honest processes
 *     keeper_abuse.c         processes that keep to the format alone
 *     keeper_voided.c        what processes do whose leases the keeper has ended, and where they may write
 */
#ifndef PROP_KEEPER_SIMULATION_H
#define PROP_KEEPER_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gvmem/buffer.h>

#include "keeper/machine/machine.h"
#include "tests/lib/units.h"

#define PROCESSES_MAX 64 /* in the life of a simulation: a bit each */
#define THREADS_MAX 3
#define CHUNKS_MAX 160 /* of an object */
#define NAMES 6
#define DEVICES_MAX 3
#define FRAMES_MAX 8192 /* numbers of frames */
#define OBJECTS_MAX 4096
#define ORPHANS_MAX 64
#define REQUESTS_MAX 96 /* of one process, unanswered */
#define LOG_LINES 30
#define LOG_BYTES 240
#define PROBLEM_BYTES 400

/* A piece of memory. It lives until it is dropped and nobody maps it. */
typedef struct frame {
    gvmi_frame_spec spec;
    uint64_t value;
    bool made, dropped;
    bool disputed;    /* written by a process that was given up, after a copy of it had begun */
    uint32_t jobs;    /* unfinished ones that name it */
    uint32_t filling; /* those of them that write it */
    uint32_t mapped;  /* times, by honest processes that live */
    uint32_t flying;  /* times, in messages that honest processes may still read */
    uint64_t seen;    /* processes that were ever sent it */
    uint64_t object;  /* that it was last mapped for */
    uint32_t chunk;
} frame;

typedef struct job {
    struct job *next;
    gvmi_action_kind kind;
    uint64_t number;
    frame *to, *from;
    bool make, started;
    uint64_t value; /* what was read from from when it started */
} job;

/* A message in flight, or (message NULL) the end of the connection. */
typedef struct packet {
    struct packet *next;
    gvmi_wire_message *message;
    frame *frames[GVMI_WIRE_CHUNKS_MAX]; /* of each chunk; NULL: absent, or let go of before it was mapped */
    uint32_t frame_count;                /* 0 once they do not count as flying any more */
    bool fails;                          /* a MAP that the process will not be able to map */
} packet;

typedef struct queue {
    packet *first, **last;
} queue;

typedef struct object {
    uint64_t id;
    int name;         /* index, -1: none */
    uint32_t creator; /* a process */
    uint32_t uid, gid, mode;
    uint32_t device;
    uint64_t chunk_bytes, reserve_bytes, bytes;
    uint32_t generation;              /* of bytes */
    uint64_t promised_bytes;          /* grown, and the process that grew it knows */
    uint64_t perhaps_bytes;           /* the process that asked for it left before the answer */
    bool shrinks;                     /* a process has asked for that, at some time */
    bool sealed, kept, creator_ended; /* creator_ended: it may have lost its name already */
    bool homed, perhaps_kept; /* its creator has addresses for it; it may not be kept, as that has none */
    bool gone;                /* as far as the model knows, nobody can reach it any more */
    uint32_t openings;        /* those of processes not yet known to be gone */
    uint64_t writers; /* processes that the keeper may have fenced off from it: a bit each */
    uint32_t metadata_version, metadata_bytes;
    bool untracked;
    uint64_t values[CHUNKS_MAX];
    frame *shown[CHUNKS_MAX]; /* behind each chunk, by the latest MAP or copy; may be freed memory */
} object;

/* What a process asked and was not answered yet. */
typedef struct request {
    uint64_t number;
    uint16_t type;
    gvmi_wire_message *message;
    object *object; /* of the slot named, when it came */
    int64_t tick_ns;
    uint32_t uid, gid, process;
    bool renamed;      /* CREATE: the name was taken or dropped before the answer */
    bool unhindered;   /* ACQUIRE: nothing was in the way when it came */
    uint64_t accepted; /* a bit for each status that was right at some time since then */
} request;

/* What the keeper must know of an opening. */
typedef struct known_opening {
    object *object;
    bool readonly, failed;
    bool anew;           /* since a MAP of it failed it was sent all again */
    uint32_t maps;       /* sent and not answered; the answer to OPENED is one */
    int64_t maps_ns;     /* the tick since which there were some */
    uint64_t sent_bytes; /* by OPENED, or by the latest MAP */
    uint32_t untaken;    /* leases granted, not taken */
    int64_t untaken_ns;
    uint32_t births, births_seen; /* OPENED of this slot: sent, and read by the process */
} known_opening;

/* An opening as an honest process sees it. */
typedef struct opening {
    uint32_t slot;
    uint64_t object;
    uint32_t generation;
    uint64_t chunk_bytes, reserve_bytes, bytes;
    uint64_t taken_bytes; /* of the latest MAP that was begun */
    uint64_t serial;
    bool readonly, sealed, closing;
    bool keeps_mapped; /* GVM_OPEN_MAPPED */
    bool lost;         /* no addresses for it: nothing can be mapped */
    bool empty;        /* a MAP failed: all was unmapped */
    bool hidden;       /* and no other one was mapped since */
    uint32_t users;    /* threads that do something with it */
    frame *map[CHUNKS_MAX];
    uint64_t stamps[CHUNKS_MAX];
} opening;

typedef enum phase {
    PHASE_IDLE,     /* or holding a lease and doing nothing */
    PHASE_ADDED,    /* to the lease word; next: load the permit */
    PHASE_ALLOWED,  /* by the permit; next: look at the lease word once more */
    PHASE_BACKED,   /* subtracted again; next: load the permit, ring, then ask */
    PHASE_ASK,      /* next: send ACQUIRE */
    PHASE_WAIT,     /* for a reply */
    PHASE_GROWING,  /* has a lease, waits for the mapping thread to come so far */
    PHASE_RELEASED, /* subtracted; next: load the permit, ring */
} phase;

typedef struct thread {
    phase phase;
    opening *opening; /* that it uses: of its lease, or of what it does */
    bool leased;
    bool for_cpu; /* its ACQUIRE */
    uint32_t mode, hint;
    int32_t timeout_ms;
    uint64_t old_word;
    uint32_t wanted_generation;
    uint64_t least_bytes; /* that the lease must cover */
    int64_t since_ns;     /* of its lease */
    uint64_t since_step;
    uint64_t request;
    uint16_t request_type;
    uint64_t request_bytes;
} thread;

typedef enum mapper_phase {
    MAPPER_IDLE,
    MAPPER_UNMAPPED,
    MAPPER_DUE, /* the keeper has the answer, or not; now it is to be mapped */
    MAPPER_MAPPED,
    MAPPER_ADDED
} mapper_phase;

typedef struct process {
    uint32_t index;    /* its bit */
    uint32_t client;   /* the machine's number */
    uint8_t *snapshot; /* what came of one */
    size_t snapshot_len;
    gvmi_credentials who;
    bool honest, stopped;
    bool hung_up;      /* it closed its socket */
    bool gone;         /* it maps nothing and holds nothing any more */
    bool cut;          /* by the keeper */
    bool disconnected; /* the machine was told */
    bool exited;       /* the machine was told */
    bool closed;       /* the machine was told that its socket is closed */
    bool bye, welcome;
    bool holds; /* it could not map, or closed under a lease: the keeper may count frames for it */
    uint64_t cut_step;
    int64_t disconnected_ns;
    gvmi_lease_slot *leases;
    gvmi_permit_slot *permits;
    known_opening *known; /* by slot */
    opening **openings;   /* by slot */
    uint32_t opening_count;
    uint32_t slot_end; /* slots used so far are below */
    queue in, out;     /* to the process, to the keeper */
    bool rung;
    thread threads[THREADS_MAX];
    uint32_t thread_count;
    packet *mapping; /* what the mapping thread is busy with */
    mapper_phase mapper;
    queue pending; /* MAPs whose old chunks are unmapped */
    uint64_t next_request;
    request requests[REQUESTS_MAX];
    uint32_t request_count;
} process;

typedef struct simulation {
    uint64_t seed, random, number, step;
    gvmi_machine_config config;
    gvmi_machine *machine;
    int64_t now_ns, tick_ns;                      /* of the clock; of the latest tick */
    int64_t pace_ns;                              /* of a step, on average */
    uint64_t budget_bytes[DEVICES_MAX];           /* as the machine was told last */
    uint64_t least_budget_bytes[DEVICES_MAX];     /* ever */
    uint64_t used_bytes[DEVICES_MAX], host_bytes; /* by frames not dropped */
    bool jobs_fail, maps_fail, abuse, wide;
    bool quiet; /* nothing new is begun */
    bool empty; /* at the very end: nothing may be there but free frames */
    uint32_t process_count, check_every;
    process *processes[PROCESSES_MAX];
    uint32_t object_count;
    object *objects[OBJECTS_MAX];
    frame *frames[FRAMES_MAX]; /* by number */
    frame *left[FRAMES_MAX];   /* dropped, but mapped, or about to be */
    uint32_t left_count;
    frame **all; /* for the end */
    uint32_t all_count, all_room;
    job *movers[DEVICES_MAX][2]; /* jobs in order, a list for each */
    uint32_t job_count;
    uint32_t quota_uids[8];
    uint64_t quotas[8];
    uint32_t quota_count;
    object *names[NAMES];
    request orphans[ORPHANS_MAX]; /* CREATEs to be kept, whose process left before the answer */
    uint32_t orphan_count;
    bool loose_ends; /* a process left before the answer to what takes memory */
    uint64_t version, actions;
    uint64_t acquires_fast, acquires_slow, acquires_for_cpu, acquires_failed, copies, cuts,
        grants_write;
    uint64_t acquires_counted, acquires_traced; /* in lease words; by the machine */
    uint64_t voided_writes, shown_lent, recalls, lent_later;
    uint64_t answered[80][64]; /* by type of request and status: what was met */
    char log[LOG_LINES][LOG_BYTES];
    uint64_t log_count;
    char problem[PROBLEM_BYTES];
} simulation;

extern const char *const keeper_names[NAMES];

/* ---- chance and failure */
uint64_t sim_random(simulation *w, uint64_t below);
bool sim_chance(simulation *w, uint32_t percent);
/* Records the first thing that does not agree. */
void sim_wrong(simulation *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_log(simulation *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* acquires: so many the machine shows. */
void sim_check_traced(simulation *w, uint64_t acquires);

/* ---- events into the machine; all actions are taken out again */
/* Whether the rule of allowances lets a user that has `own` of `all` take one more. */
bool sim_share(const simulation *w, uint32_t limit, uint32_t reserve, uint32_t uid, uint32_t all,
               uint32_t own);
process *sim_connect(simulation *w, const gvmi_credentials *who, bool honest); /* NULL: refused */
void sim_deliver(simulation *w, process *p); /* the next message, or the end */
void sim_ring(simulation *w, process *p);
void sim_tick(simulation *w);
void sim_exited(simulation *w, process *p);
void sim_closed(simulation *w, process *p);
void sim_budget(simulation *w, uint32_t device, uint64_t bytes);
bool sim_job_step(simulation *w); /* starts or ends a job; false: there is none */

/* ---- processes, from outside */
void sim_send(simulation *w, process *p, gvmi_wire_message *message); /* takes the message over */
gvmi_wire_message *sim_message(simulation *w, process *p, gvmi_wire_type type);
packet *sim_receive(simulation *w, process *p); /* NULL: nothing; the caller frees it */
void sim_queue_add(queue *q, packet *p);
packet *sim_queue_take(queue *q); /* NULL: it is empty */
void sim_hang_up(simulation *w, process *p);
void sim_gone(simulation *w, process *p); /* hangs up, and ends */
bool sim_lease_counts(const simulation *w, const process *p);
void sim_packet_free(simulation *w, packet *freed);
void sim_land(packet *landed);                    /* its frames do not fly any more */
bool sim_let_go(const process *p, uint32_t slot); /* the process has let go of what is known there */

/* ---- the model (keeper_names.c) */
object *model_find(simulation *w, uint64_t id);
bool model_privileged(const simulation *w, const process *p);
bool model_may(const simulation *w, const process *p, const object *o, uint32_t bits);
void model_request(simulation *w, process *p, const gvmi_wire_message *message); /* before it is delivered */
void model_reply(simulation *w, process *p, const gvmi_wire_message *message, const void *bytes,
                 size_t len);
void model_refresh(simulation *w);                          /* after every event */
void model_ended(simulation *w, process *p, bool for_good); /* its connection is over, or its process */
/* The keeper says that the object has so many bytes. */
void model_resize(simulation *w, object *o, uint64_t bytes);
/* It is about to send a MAP, which may have an earlier generation and size. */
void model_map(simulation *w, object *o, const gvmi_wire_map *map);
uint32_t model_chunks(const object *o);
int model_name_index(const char *name);

/* ---- honest processes (keeper_client.c); false: nothing to do there */
bool client_mapper_step(simulation *w, process *p);
bool client_thread_step(simulation *w, process *p, uint32_t thread);
bool client_idle(const process *p); /* no lease, and nothing awaited */
void client_hello(simulation *w, process *p);
void client_bye(simulation *w, process *p);
void client_drop_openings(simulation *w, process *p);

/* ---- dishonest ones (keeper_abuse.c) */
bool abuse_step(simulation *w, process *p);

/* ---- keeper_voided.c */
/* A process whose lease counts no more, or may soon not, writes through what it has mapped. */
bool voided_write(simulation *w, process *p, thread *t);
/* A MAP of the slot has failed, or the process is about to be voided: writes down if it can write there. */
void voided_slot(const process *p, uint32_t slot);
/* The process is about to be voided: all its slots. */
void voided_begin(const process *p);
/* Is there a process that was written down for the object, and is not gone? */
bool voided_may_write(const simulation *w, const object *o);
/* After an event: nobody has frames that were dropped but voided processes. */
void voided_check_dropped(simulation *w);
/* The bytes of frames like this one that are there, though dropped. */
uint64_t voided_bytes(simulation *w, const frame *like);
/* The machine says that nothing of the process is mapped. */
void voided_check_forgotten(simulation *w, const process *p);

/* ---- keeper_shown.c, for keeper_names.c */
void model_compare_info(simulation *w, const request *r, const gvmi_snapshot_object *i);
void model_compare_snapshot(simulation *w, const process *p, const void *bytes, size_t len);
void model_compare_metadata(simulation *w, const request *r, const gvmi_wire_message *m);

/* ---- keeper_memory.c, for keeper_names.c */

static inline uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t rounded(uint64_t bytes, uint64_t chunk_bytes)
{
    return chunk_bytes == 0 ? bytes : (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
}

/* Is some process gone whose requests or memory may linger? */
bool some_linger(const simulation *w);

/* May processes of the user hold more than its quota? Then a status more. */
uint64_t judge_held(const simulation *w, uint32_t uid);
/* A request to shrink an object is not answered. */
bool model_some_shrink(const simulation *w);
/* The statuses that a request for memory may be answered with, as far as memory goes. */
uint64_t judge_memory(const simulation *w, const request *r, uint32_t uid, uint32_t device);

#endif
