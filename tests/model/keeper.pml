/* keeper.pml - the keeper's lease protocol (docs/design/keeper.md), for SPIN.
 *
 * Two clients (client.pml), the keeper and one object of one chunk, which has a frame on the device
 * and one on the host. Threads acquire and release for ever, or stop when they like, so nothing is
 * bounded but the numbers of clients and threads. README.md tells what is modelled and what is not.
 *
 * table.pml, made by table.c from GVMI_LEASE_TRANSITIONS, has the states, the events and step().
 *
 * -D THREADS=2|3   one thread for each client, or two for client 0
 * -D CLIENTS=3     with THREADS=3: three clients with a thread each
 * -D ROUNDS=n      each thread acquires at most n times; otherwise without end
 * -D MOVES         the keeper moves the chunk between the frames
 * -D KILLS         client 0 dies, at any point
 * -D CUTS[=2]      the keeper cuts client 0 (or 0 and 1) off, at any point, while its process lives
 *                  on and writes
 * -D EXITS         the process of a client that was cut off ends some time
 * -D SPARE         there is a second frame on the device
 * -D LENDS         there is one of a neighbour, too
 * -D NO_ROOM       there is no frame but the one on the device
 * -D ROOM_COMES    likewise at first; the one on the host is there some time
 * -D COPY_FAILS    copies may fail
 * -D LAZY=0|1|2    so many clients map at an acquire, as by default; the others keep all mapped
 *                  (GVM_OPEN_MAPPED). Without it client 0 alone does
 * -D UNTRACKED     the object is untracked: every reader may write
 * -D READS         there are no acquires but for reading
 * -D BREAKS        client 0 may fail to map what the keeper moved, and stay connected
 * -D SLOW          client 0 may answer a MAP late or never; it is cut off then
 * -D TIMEOUTS      acquires may have a timeout
 * -D LIMITS        a thread that may not take a lease may give up instead of asking the keeper
 * -D KEEPS         thread 0 may keep a read lease for ever; writers do not wait for ever
 * -D ENDS          the property that every run ends well (environment.pml)
 * -D FAULT_...     one planted fault; run.sh lists them
 */
#include "table.pml"

#ifndef THREADS
#define THREADS 3
#endif
#if CLIENTS == 3
#define CLIENT(t) (t)
#define FIRST(c) (c) /* threads */
#define LAST(c) (c)
#define EACH(f) f(0); f(1); f(2)
#define ANY(f) (f(0) || f(1) || f(2))
#else
#define CLIENTS 2
#define CLIENT(t) ((t) == 2)
#define FIRST(c) (2 * (c))
#define LAST(c) (1 + (c))
#define EACH(f) f(0); f(1)
#define ANY(f) (f(0) || f(1))
#endif
#if THREADS == 2 || CLIENTS == 3
#define ONE_THREAD_EACH
#endif
#define NOBODY 3
#ifndef LAZY
#define LAZY 1
#endif
#define IS_LAZY(c) (c < LAZY)

/* Lease modes. */
#define READ 1
#define WRITE 2

/* Permits, as far as a client tells them apart. */
#define P_NONE 0
#define P_READ 1
#define P_READ_WRITE 2
#define P_REVOKED 3
#define P_GONE 4
#define EMPTY 7 /* of a store buffer */

#ifdef FAULT_GONE_SILENT
#define RINGS(p) ((p) == P_REVOKED)
#else
#define RINGS(p) ((p) == P_REVOKED || (p) == P_GONE) /* GONE comes with REVOKED */
#endif

/* A release or a backing-out rings when nothing is left; a writer's also when no writer is left, as
 * reads wait for writers only. */
#ifdef FAULT_RING_LAST_ONLY
#define LEFT(c, m) ANY_LEASE(c)
#else
#define LEFT(c, m) (m == WRITE -> lease_writers[c] != 0 : ANY_LEASE(c))
#endif

/* Messages: to the keeper, with the thread; to the client, with the thread or the frame. */
#define ACQUIRE_READ 1
#define ACQUIRE_WRITE 2
#define TAKEN_READ 3
#define TAKEN_WRITE 4
#define MAPPED 5
#define NOT_MAPPED 6
#define GRANTED_READ 1
#define GRANTED_WRITE 2
#define FAILED 3
#define MAP 4
#define UNMAP 5

/* What a thread is told. */
#define WAITS 1
#define GOT 2
#define REFUSED 3

/* Frames. */
#define DEVICE 0
#define HOST 1
#define SPARE_DEVICE 2
#ifdef LENDS
#define NEIGHBOUR 3
#define NOWHERE 4
#define IS_AWAY(f) (f == HOST || f == NEIGHBOUR)
#define COPY_AT copy_at
#else
#define NOWHERE 3
#define IS_AWAY(f) (f == HOST)
#define COPY_AT HOST
#endif
#define BIT(f) (1 << (f))

/* Never true: they name the assertion in SPIN's output. */
bit two_leases, lease_while_frozen, lost_update, frame_reused, not_in_table, loss_not_reported;

/* ---- memory that the client and the keeper share */
byte lease_readers[CLIENTS], lease_writers[CLIENTS]; /* the lease words */
byte permit[CLIENTS];                                /* as clients see them */
byte buffered[CLIENTS] = EMPTY;                      /* the keeper's latest store, not seen by anyone yet */
bool bell[CLIENTS];

chan up[CLIENTS] = [4] of {byte, byte, bool}; /* kind, thread, does it wait for ever? */
chan down[CLIENTS] = [4] of {byte, byte};

/* ---- the system */
bool alive[CLIENTS] = true;
bool stopped[CLIENTS]; /* for ever, by a signal; nobody sees it */
bool failed[CLIENTS];  /* could not map */
bool slow[CLIENTS];    /* does not answer a MAP in time */
bool quiet;             /* no more moves, deaths and cuts: what waits now must get on without them */
byte mapped[CLIENTS];  /* the frame at the object's address */
bit fresh[NOWHERE + 1]; /* does the frame hold what was written last under a lease? */
bit later[CLIENTS];    /* leases were given since the client was voided: what it writes is damage */

/* ---- threads */
byte held[3];  /* the lease that a thread has by its own count */
byte reply[3]; /* of the slow path */

/* ---- the keeper's memory */
byte state = SHARED;
byte writer = NOBODY; /* of EXCLUSIVE, and of DRAINING that came from there */
chan queue = [3] of {byte, byte, bool};
byte granted_readers[CLIENTS], granted_writers[CLIENTS];
bool closed[CLIENTS]; /* cut off, or its socket closed */
bool voided[CLIENTS]; /* its lease word does not count any more */
bool gone[CLIENTS];   /* its process is gone */
bool broken[CLIENTS]; /* it could not map: nothing is mapped there */
byte place = DEVICE, to;
bool clean;      /* the frame away from the device is a clean copy */
#ifdef LENDS
byte copy_at = HOST; /* which one it is in */
#endif
bool copy_stays; /* it will be, as what is being copied from there is not written to */
bool room;       /* ROOM_COMES: it came */
bool copying, mapping;
bool asked[CLIENTS];   /* MAP of a move sent, MAPPED did not come yet */
bool follows[CLIENTS]; /* it is sent where the chunk is */
bool ready[CLIENTS];   /* and has mapped that */
byte keeps[CLIENTS];   /* bits: frames that a voided client may still have mapped */
byte writes[CLIENTS];  /* bits: those of them that it may write to */
bool readers_seen, writers_seen;
byte word; /* of publish() */

#define ANY_LEASE(c) (lease_readers[c] != 0 || lease_writers[c] != 0)
#define READS_GRANTED(c) (granted_readers[c] != 0)
#define WRITES_GRANTED(c) (granted_writers[c] != 0)
#define HAS_GRANT(c) (READS_GRANTED(c) || WRITES_GRANTED(c))
#if CLIENTS == 3
#define NOBODY_HAS(f) (((keeps[0] | keeps[1] | keeps[2]) & BIT(f)) == 0)
#define WRITTEN_TO(f) (((writes[0] | writes[1] | writes[2]) & BIT(f)) != 0)
#else
#define NOBODY_HAS(f) (((keeps[0] | keeps[1]) & BIT(f)) == 0)
#define WRITTEN_TO(f) (((writes[0] | writes[1]) & BIT(f)) != 0)
#endif

/* A client that was voided may still write to the object. */
#ifdef FAULT_CUT_WRITER_KEEPS_FRAME
#define FENCED false
#else
#define FENCED WRITTEN_TO(place)
#endif

#include "client.pml"

/* ---- the keeper */

/* What is evicted is unmapped by clients that map at an acquire. */
#define IS_UNMAPPED(c, f) (IS_LAZY(c) && IS_AWAY(f) && !IS_AWAY(place))

#ifdef FAULT_READY_EARLY
#define IS_READY(c) follows[c]
#else
#define IS_READY(c) (follows[c] && ready[c])
#endif

#ifdef FAULT_PERMIT_EARLY
#define MAY_WRITE(c) (writer == c)
#else
#define MAY_WRITE(c) (writer == c && !HAS_GRANT(c))
#endif

/* From here on, a process that gets a lease is a later writer than those who were voided. */
#define IS_LATER(c) later[c] = voided[c]
inline let_others_in()
{
    EACH(IS_LATER)
}

/* Stores the permit that the state asks for. It lies in the buffer until Memory lets it out. */
inline publish(c)
{
    if
    :: closed[c] || broken[c] -> word = P_GONE
    :: !closed[c] && !broken[c] && state == SHARED -> word = (IS_READY(c) -> P_READ : P_NONE)
    :: !closed[c] && !broken[c] && state == EXCLUSIVE && MAY_WRITE(c) ->
#ifdef FAULT_DIRTY_LATE
       clean = false;
#endif
       word = P_READ_WRITE
    :: !closed[c] && !broken[c] && state == EXCLUSIVE && !MAY_WRITE(c) -> word = P_NONE
    :: else -> word = P_REVOKED
    fi;
    if
    :: word == P_READ || word == P_READ_WRITE -> let_others_in()
    :: else
    fi;
    if
    :: buffered[c] == EMPTY && permit[c] != word -> buffered[c] = word
    :: buffered[c] != EMPTY && buffered[c] != word ->
       permit[c] = buffered[c];
       buffered[c] = word
    :: else
    fi;
    word = 0
}

#define SILENCE(c) bell[c] = false
inline permits()
{
    if
    :: state != DRAINING ->
       EACH(SILENCE)
    :: else
    fi;
    EACH(publish)
}

inline load(c)
{
    if
    :: !voided[c] ->
       readers_seen = readers_seen || lease_readers[c] != 0;
       writers_seen = writers_seen || lease_writers[c] != 0
    :: else
    fi
}

/* Looks at the first lease words, once the permits are seen to be withdrawn. The last is looked at
 * in the step after it. */
#define NOT_SEEN(c) (buffered[c] != EMPTY)
inline look()
{
    atomic {
#ifndef FAULT_NO_BARRIER_REVOKE
        !ANY(NOT_SEEN);
#endif
        load(0)
    }
#if CLIENTS == 3
    ;
    atomic {
        load(1)
    }
#endif
}

inline forget_seen()
{
    readers_seen = false;
    writers_seen = false
}

/* Sends GRANTED, behind what the client lacks: from now on the lease counts. */
inline grant(t, m)
{
    let_others_in();
#ifndef FAULT_GRANT_UNMAPPED
    if
    :: !follows[CLIENT(t)] && !broken[CLIENT(t)] ->
       follows[CLIENT(t)] = true;
       down[CLIENT(t)]!MAP,place
    :: else
    fi;
#endif
    if
    :: m == READ ->
       granted_readers[CLIENT(t)]++;
       down[CLIENT(t)]!GRANTED_READ,t
    :: else ->
       granted_writers[CLIENT(t)]++;
       down[CLIENT(t)]!GRANTED_WRITE,t
    fi
}

#ifdef FAULT_SHARED_WHILE_FENCED
#define KEEPS_FENCE false
#else
#define KEEPS_FENCE FENCED
#endif

/* The queue is empty: back to where it came from, but not while the object is fenced. */
inline end_draining()
{
    if
    :: KEEPS_FENCE
    :: !KEEPS_FENCE && writer == NOBODY -> step(REOPEN, SHARED)
    :: !KEEPS_FENCE && writer != NOBODY -> step(RESUME, EXCLUSIVE)
    fi;
    permits()
}

/* What one client no longer waits for, or never will. */
inline unqueue(t)
{
    if
    :: queue??[eval(t),_,_] -> queue??eval(t),_,_
    :: !(queue??[eval(t),_,_])
    fi
}

#define FORGET_WRITES(c) writes[c] = 0

/* The away frame stays as a copy when its chunk goes to the device; of no use is one that somebody
 * may write to, or under leases that the keeper does not know to write. That is asked when the copy
 * begins: who writes while it is made, or after it, may be gone when it is mapped. */
#if defined(UNTRACKED)
#define STAYS_CLEAN false
#elif defined(FAULT_WRITTEN_COPY_IS_CLEAN)
#define STAYS_CLEAN (IS_AWAY(place) && !IS_AWAY(to))
#else
#define STAYS_CLEAN (IS_AWAY(place) && !IS_AWAY(to) && !WRITTEN_TO(place))
#endif

inline freeze(frame)
{
    assert((held[0] == 0 && held[1] == 0 && held[2] == 0) || lease_while_frozen);
    step(FREEZE, FROZEN);
    writer = NOBODY;
    to = frame;
    copying = true;
    copy_stays = STAYS_CLEAN;
#ifdef FAULT_FENCE_ENDS_EARLY
    EACH(FORGET_WRITES);
#endif
    permits()
}

/* A client whose socket is closed answers by being voided. */
inline send_map(c)
{
    if
    :: !voided[c] && !broken[c] && follows[c] ->
       asked[c] = true;
       if
       :: !closed[c] && IS_UNMAPPED(c, to) -> down[c]!UNMAP,0
       :: !closed[c] && !IS_UNMAPPED(c, to) -> down[c]!MAP,to
       :: else
       fi;
#ifndef FAULT_EVICTED_FOLLOWS
       if
       :: IS_UNMAPPED(c, to) ->
          follows[c] = false;
          ready[c] = false
       :: else
       fi
#endif
    :: else
    fi
}

inline empty_socket(c)
{
    do
    :: nempty(up[c]) -> up[c]?_,_,_
    :: empty(up[c]) -> break
    od
}

/* The socket of a client is closed; what it holds counts on. */
inline close_socket(c)
{
    closed[c] = true;
    empty_socket(c);
    unqueue(FIRST(c));
    unqueue(LAST(c));
    permits()
}

/* What the process of a voided client may have mapped: nothing where it could not map; else where
 * the object is, and where it was if MAPPED did not come. */
#define MAY_HAVE(c) \
    (gone[c] || broken[c] -> 0 : \
     (mapping && asked[c] -> BIT(place) : 0) | \
     (follows[c] -> (mapping -> BIT(to) : BIT(place)) : 0))

#ifdef FAULT_GRANTED_CANNOT_WRITE
#define ABLE_GRANTED(c) false
#else
#define ABLE_GRANTED(c) WRITES_GRANTED(c)
#endif

/* Whether a client that is about to be voided can write under a lease. What its lease word says
 * while the object is FROZEN is an addition in passing: it is backed out of. */
#ifdef UNTRACKED
#define ABLE(c) (state != FROZEN && (ANY_LEASE(c) || READS_GRANTED(c) || ABLE_GRANTED(c)))
#elif defined(FAULT_GONE_LATE) /* who sees GONE later is fenced, but not told */
#define ABLE(c) (writer == c)
#else
#define ABLE(c) (writer == c && (lease_writers[c] != 0 || ABLE_GRANTED(c)))
#endif

/* What a client has ends. Permits are withdrawn before the writer is forgotten: in between, nobody
 * may read. */
inline void_client(c)
{
    if
    :: voided[c]
    :: !voided[c] ->
       keeps[c] = MAY_HAVE(c);
       writes[c] = (ABLE(c) -> keeps[c] : 0);
       voided[c] = true;
       later[c] = 0;
       asked[c] = false;
       granted_readers[c] = 0;
       granted_writers[c] = 0;
#ifndef FAULT_GONE_OPENS_FENCED
       withdraw_if_fenced();
#endif
       if
       :: writer == c ->
          writer = NOBODY;
          if
          :: state == EXCLUSIVE ->
             step(GONE, SHARED);
             permits()
          :: state == DRAINING -> step(GONE, DRAINING)
          :: else
          fi
       :: else
       fi
    fi
}

inline withdraw_if_fenced()
{
    if
    :: FENCED && (state == SHARED || state == EXCLUSIVE) ->
       step(WAIT, DRAINING);
       permits()
    :: else
    fi
}

#ifdef FAULT_IGNORE_GRANTED
#define NOTHING_GRANTED true
#else
#define NOTHING_GRANTED (!ANY(HAS_GRANT))
#endif

#define EVENTS_OF(c) \
    :: atomic { \
           up[c]?kind,t,endless -> \
           client = c; \
           goto message \
       } \
    :: atomic { \
           bell[c] -> \
           bell[c] = false; \
           goto look_again \
       } \
    :: atomic { /* MAPPED does not come in time */ \
           (asked[c] || (follows[c] && !ready[c])) && slow[c] && !closed[c] -> \
           close_socket(c); \
           client = c; \
           goto ends_leases \
       } \
    :: atomic { \
           !alive[c] && !closed[c] -> \
           close_socket(c); \
           VOIDED_EARLY(c); \
           goto left_queue \
       } \
    :: atomic { \
           !alive[c] && closed[c] && !gone[c] -> \
           gone[c] = true; \
           void_client(c); \
           lease_readers[c] = 0; \
           lease_writers[c] = 0; \
           bell[c] = false; \
           keeps[c] = 0; \
           NO_WRITES_OF(c); \
           held[FIRST(c)] = 0; \
           held[LAST(c)] = 0; \
           goto EXIT_HEARD \
       }

#ifdef FAULT_EXIT_ENDS_FENCE
#define NO_WRITES_OF(c) EACH(FORGET_WRITES)
#else
#define NO_WRITES_OF(c) FORGET_WRITES(c)
#endif

#ifdef FAULT_EXIT_UNHEARD
#define EXIT_HEARD end_idle
#else
#define EXIT_HEARD left_queue
#endif

#ifdef FAULT_VOID_EARLY
#define VOIDED_EARLY(c) void_client(c); keeps[c] = 0
#else
#define VOIDED_EARLY(c) skip
#endif

/* A socket closes first, by whomever; while the process lives on, what it holds counts until its
 * leases end by decree. To cut off is both at once. */
#if defined(CUTS) && defined(FAULT_CUT_COUNTS)
#define CUT_OF(c) CLOSE_OF(c)
#elif defined(CUTS)
#define CUT_OF(c) \
    CLOSE_OF(c) \
    :: atomic { \
           closed[c] && !voided[c] && alive[c] -> \
           client = c; \
           goto ends_leases \
       }
#else
#define CUT_OF(c)
#endif
#define CLOSE_OF(c) \
    :: atomic { \
           !quiet && !closed[c] && alive[c] -> \
           close_socket(c); \
           goto left_queue \
       }

#define TIMEOUT_OF(t) \
    :: atomic { \
           queue??[eval(t),_,false] -> \
           queue??eval(t),_,_; \
           down[CLIENT(t)]!FAILED,t; \
           goto left_queue \
       }

#define SEEN (readers_seen || writers_seen)
#ifdef FAULT_FENCE_IGNORES_READERS
#define FREE_FOR_FENCE !(mode == READ -> writers_seen : SEEN)
#else
#define FREE_FOR_FENCE !SEEN
#endif

#ifdef FAULT_COPY_UNLOOKED
#define NOTHING_HELD true
#else
#define NOTHING_HELD (!readers_seen && !writers_seen && NOTHING_GRANTED)
#endif

/* Is there such a frame, which nobody has? */
#if defined(ROOM_COMES)
#define THERE_IS(f) (f == DEVICE || (f == HOST && room))
#elif defined(NO_ROOM)
#define THERE_IS(f) (f == DEVICE)
#elif defined(SPARE)
#define THERE_IS(f) true
#else
#define THERE_IS(f) (f != SPARE_DEVICE)
#endif
#ifdef FAULT_REUSE_HELD
#define IS_FREE(f) (f != place && THERE_IS(f))
#else
#define IS_FREE(f) (f != place && THERE_IS(f) && NOBODY_HAS(f))
#endif
/* What leaves the device goes to its clean copy, if it has one. */
#define MAY_MOVE(f) (clean && IS_AWAY(f) && !IS_AWAY(place) -> f == COPY_AT : IS_FREE(f))
#ifdef LENDS
#define MAY_LEND MAY_MOVE(NEIGHBOUR)
#define MAY_GO_AWAY (MAY_MOVE(HOST) || MAY_LEND)
#else
#define MAY_LEND false
#define MAY_GO_AWAY MAY_MOVE(HOST)
#endif
#define MAY_COME (IS_AWAY(place) && (MAY_MOVE(DEVICE) || MAY_MOVE(SPARE_DEVICE)))

/* The neighbour has its frame back: nobody else may have it. */
#define HAS_LENT(c) (!gone[c] && !broken[c] && mapped[c] == NEIGHBOUR && (keeps[c] & BIT(NEIGHBOUR)) == 0)
inline give_back()
{
    assert(!ANY(HAS_LENT) || frame_reused);
    fresh[NEIGHBOUR] = 0
}

#define MAPS_IT(c) (!gone[c] && !broken[c] && mapped[c] == to)
#define WAS_ASKED(c) asked[c]
#define ASK_NO_MORE(c) asked[c] = false

proctype Keeper()
{
    byte kind, t, mode;
    bool endless;
    byte client;

end_idle:
    do
    EVENTS_OF(0)
    EVENTS_OF(1)
#if CLIENTS == 3
    EVENTS_OF(2)
#endif
    TIMEOUT_OF(0)
#if THREADS == 3
    TIMEOUT_OF(1)
#endif
    TIMEOUT_OF(2)
    CUT_OF(0)
#if CUTS == 2
    CUT_OF(1)
#endif
#ifdef ROOM_COMES
    :: atomic {
           !room ->
           room = true;
#ifdef FAULT_ROOM_UNHEARD
           goto end_idle
#else
           goto left_queue
#endif
       }
#endif
#ifdef MOVES
    :: atomic {
           !quiet && state != FROZEN && (state != DRAINING || FENCED) &&
           (MAY_GO_AWAY || MAY_COME) ->
           if
           :: state != DRAINING ->
              step(WAIT, DRAINING);
              permits()
           :: else
           fi
       }
       look();
       atomic {
           load(CLIENTS - 1);
           if
           :: NOTHING_HELD && MAY_MOVE(HOST) -> freeze(HOST)
#ifdef LENDS
           :: NOTHING_HELD && MAY_LEND -> freeze(NEIGHBOUR)
#endif
           :: NOTHING_HELD && IS_AWAY(place) && MAY_MOVE(DEVICE) -> freeze(DEVICE)
           :: NOTHING_HELD && IS_AWAY(place) && MAY_MOVE(SPARE_DEVICE) -> freeze(SPARE_DEVICE)
           :: !NOTHING_HELD && empty(queue) -> end_draining() /* given up */
           :: !NOTHING_HELD && nempty(queue)
           fi;
           forget_seen()
       }
#endif
#ifdef LENDS
    :: atomic { /* the neighbour wants the frame of a copy */
           !quiet && clean && copy_at == NEIGHBOUR && state != FROZEN ->
           clean = false;
           give_back()
       }
#endif
#ifdef COPY_FAILS
    :: atomic {
           copying && !quiet ->
           copying = false;
           copy_stays = false;
           to = 0;
           goto thaw
       }
#endif
    :: atomic { /* the copy is done */
           copying ->
           copying = false;
           mapping = true;
           if
           :: clean && to == COPY_AT && !IS_AWAY(place)
           :: else ->
              assert(!ANY(MAPS_IT) || frame_reused);
              fresh[to] = fresh[place]
           fi;
           EACH(send_map);
#ifdef FAULT_RECALL_EARLY
           if
           :: place == NEIGHBOUR && to == HOST -> give_back()
           :: else
           fi;
#endif
           goto map_step
       }
    od;

message:
    atomic {
        if
        :: kind == ACQUIRE_READ || kind == ACQUIRE_WRITE ->
           mode = (kind == ACQUIRE_READ -> READ : WRITE);
           kind = 0;
           if
           :: broken[client] -> down[client]!FAILED,t
           :: !broken[client] && state == SHARED && mode == READ ->
              step(GRANT_READ, SHARED);
              grant(t, READ)
#ifdef FAULT_HOLDER_READ
           :: state == EXCLUSIVE && writer == client && mode == READ &&
              lease_writers[client] == 0 && granted_writers[client] == 0 -> grant(t, READ)
#endif
           :: !broken[client] ->
              queue!t,mode,endless;
              endless = false;
              mode = 0;
              t = 0;
              client = 0;
              if
              :: state == SHARED || state == EXCLUSIVE ->
                 step(WAIT, DRAINING);
                 permits()
              :: else
              fi;
              goto look_again
           fi
        :: kind == TAKEN_READ || kind == TAKEN_WRITE ->
           if
           :: kind == TAKEN_READ -> granted_readers[client]--
           :: else -> granted_writers[client]--
           fi;
           kind = 0;
           t = 0;
           client = 0;
           permits();
#ifndef FAULT_TAKEN_UNHEARD
           goto look_again
#else
           goto end_idle
#endif
        :: kind == MAPPED || kind == NOT_MAPPED ->
           if
           :: kind == NOT_MAPPED ->
              broken[client] = true;
              permits()
           :: kind == MAPPED && !asked[client] -> /* of a grant */
              ready[client] = true;
              permits()
           :: else
           fi;
           asked[client] = false;
           kind = 0;
           client = 0;
           goto map_step
        fi;
        endless = false;
        mode = 0;
        t = 0;
        client = 0;
        goto end_idle
    }

map_step: /* do all have the new mapping? */
    atomic {
        if
#ifdef FAULT_THAW_EARLY
        :: mapping && (!asked[0] || !asked[1]) -> /* not all have answered */
#else
        :: mapping && !ANY(WAS_ASKED) ->
#endif
           EACH(ASK_NO_MORE);
           mapping = false;
#ifdef FAULT_COPY_JUDGED_LATE
           clean = STAYS_CLEAN;
#else
           clean = copy_stays;
#endif
           copy_stays = false;
           fresh[place] = fresh[place] && clean; /* others get the frame if it does not stay */
#ifdef LENDS
           if
           :: clean -> copy_at = place
           :: !clean && place == NEIGHBOUR -> give_back()
           :: !clean && place != NEIGHBOUR && copy_at == NEIGHBOUR && to != NEIGHBOUR -> fresh[NEIGHBOUR] = 0
           :: else
           fi;
#endif
           place = to;
           to = 0;
           goto thaw
        :: else
        fi;
        goto end_idle
    }

thaw: /* no permit is published before it is known that nobody waits, and that there is no fence */
    atomic {
        step(THAW, SHARED);
#ifdef FAULT_THAW_OPENS_FENCED
        permits()
    }
    atomic {
#endif
        if
        :: nempty(queue) || FENCED ->
           step(WAIT, DRAINING);
           permits();
           goto look_again
        :: empty(queue) && !FENCED -> permits()
        fi;
        goto end_idle
    }

ends_leases: /* of client, whose socket is closed: what it holds is looked at once it sees GONE */
#if defined(FAULT_CUT_UNLOOKED) || defined(FAULT_GONE_LATE)
    atomic {
#else
    look();
    atomic {
        forget_seen();
#endif
        void_client(client);
#ifdef FAULT_GONE_OPENS_FENCED
    }
    atomic {
        withdraw_if_fenced();
#endif
        held[FIRST(client)] = 0;
        held[LAST(client)] = 0;
        client = 0;
        goto left_queue
    }

left_queue: /* somebody waits no more, or is no more */
    atomic {
        if
        :: state == FROZEN -> goto map_step
        :: state == DRAINING && empty(queue) -> end_draining()
        :: state == DRAINING && nempty(queue) -> goto look_again
        :: state != FROZEN && state != DRAINING
        fi;
        goto end_idle
    }

look_again: /* is there something to grant? */
    atomic {
        if
        :: state != DRAINING -> goto end_idle
        :: else
        fi
    }
    look();
    atomic {
        load(CLIENTS - 1);
        if
        :: ANY(READS_GRANTED) -> readers_seen = true
        :: else
        fi;
        if
        :: ANY(WRITES_GRANTED) -> writers_seen = true
        :: else
        fi;
        if
        :: nempty(queue) -> queue?<t,mode,_>
        :: empty(queue)
        fi;
        if
#ifdef MOVES
        :: !quiet && mode != 0 && !SEEN && IS_AWAY(place) && MAY_MOVE(DEVICE) -> freeze(DEVICE)
#endif
        :: FENCED && mode != 0 && FREE_FOR_FENCE && IS_FREE(DEVICE) -> freeze(DEVICE)
        :: FENCED && mode != 0 && FREE_FOR_FENCE && IS_FREE(HOST) -> freeze(HOST)
        :: FENCED && mode != 0 && FREE_FOR_FENCE && IS_FREE(SPARE_DEVICE) -> freeze(SPARE_DEVICE)
        :: !FENCED && mode == READ && !writers_seen ->
           do
           :: mode == READ ->
              queue?_,_,_;
              grant(t, READ);
              mode = 0;
              if
              :: nempty(queue) -> queue?<t,mode,_>
              :: empty(queue)
              fi
           :: else -> break
           od;
           writer = NOBODY;
           step(GRANT_READ, SHARED);
           if
           :: nempty(queue) -> step(WAIT, DRAINING)
           :: empty(queue)
           fi;
           permits()
        :: !FENCED && mode == WRITE && !SEEN ->
           queue?_,_,_;
           grant(t, WRITE);
           writer = CLIENT(t);
#ifndef FAULT_DIRTY_LATE
           clean = false; /* whether the write permit ever opens or not */
#endif
           step(GRANT_WRITE, EXCLUSIVE);
           if
           :: nempty(queue) -> step(WAIT, DRAINING)
           :: empty(queue)
           fi;
           permits()
        :: else
        fi;
        t = 0;
        mode = 0;
        forget_seen();
        goto end_idle
    }
}

#include "environment.pml"
