/* keeper.pml - the keeper's lease protocol (docs/design/keeper.md), for SPIN.
 *
 * Two clients, the keeper and one object of one chunk, which has a frame on the device and one on
 * the host. Threads acquire and release for ever, or stop when they like, so nothing is bounded but
 * the numbers of clients and threads. README.md tells what is modelled, and what is not.
 *
 * table.pml, made by table.c from GVMI_LEASE_TRANSITIONS, has the states, the events and step().
 *
 * -D THREADS=2|3   one thread for each client, or two for client 0
 * -D ROUNDS=n      each thread acquires at most n times; otherwise without end
 * -D MOVES         the keeper moves the chunk between the frames
 * -D KILLS         client 0 dies, at any point
 * -D CUTS          the keeper cuts client 0 off, at any point, while its process lives on
 * -D BREAKS        client 0 may fail to map what the keeper moved, and stay connected
 * -D SLOW          client 0 may answer a MAP late or never; it is cut off then
 * -D TIMEOUTS      acquires may have a timeout
 * -D LIMITS        a thread that may not take a lease may give up instead of asking the keeper
 * -D KEEPS         thread 0 may keep a read lease for ever; writers do not wait for ever
 * -D ENDS          the property that every run ends well (world.pml)
 * -D FAULT_...     one planted fault; run.sh lists them
 */
#include "table.pml"

#ifndef THREADS
#define THREADS 3
#endif
#define CLIENT(t) ((t) == 2)
#define NOBODY 2

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

/* What a thread is told. */
#define WAITS 1
#define GOT 2
#define REFUSED 3

#define DEVICE 0
#define HOST 1

/* Never true: they name the assertion in SPIN's output. */
bit two_leases, lease_while_frozen, lost_update, frame_reused, not_in_table;

/* ---- memory that the client and the keeper share */
byte lease_readers[2], lease_writers[2]; /* the lease words */
byte permit[2];                          /* as clients see them */
byte buffered[2] = EMPTY;                /* the keeper's latest store, not seen by anyone yet */
bool bell[2];

chan up[2] = [4] of {byte, byte, bool}; /* kind, thread, does it wait for ever? */
chan down[2] = [3] of {byte, byte};

/* ---- the world */
bool alive[2] = true;
bool stopped[2]; /* for ever, by a signal; nobody sees it */
bool failed[2];  /* could not map */
bool slow[2];    /* does not answer a MAP in time */
bool calm;       /* no more moves, deaths and cuts: what waits now must get on without them */
bit cuts;
bit mapped[2];   /* the frame at the object's address */
bit fresh[2];    /* does the frame hold what was written last under a lease? */

/* ---- threads */
byte held[3];  /* the lease that a thread believes to have */
byte reply[3]; /* of the slow path */

/* ---- the keeper's memory */
byte state = SHARED;
byte holder = NOBODY; /* of EXCLUSIVE, and of DRAINING that came from there */
chan queue = [3] of {byte, byte, bool};
byte owed_readers[2], owed_writers[2];
bool closed[2]; /* cut off, or its socket closed */
bool voided[2];   /* its lease word does not count any more */
bool gone[2];   /* its process is gone */
bool broken[2]; /* it could not map: nothing is mapped there */
bit place = DEVICE, to;
bool clean;      /* the host frame is a clean copy */
bool copying, mapping;
bool asked[2];   /* MAP sent, MAPPED did not come yet */
byte keeps[2];   /* bits: frames that a client cut off may still have mapped */
bool readers_seen, writers_seen;
byte word; /* of publish() */

#define ANY_LEASE(c) (lease_readers[c] != 0 || lease_writers[c] != 0)
#define OWED(c) (owed_readers[c] != 0 || owed_writers[c] != 0)
#define NOBODY_HAS(f) \
    (!(keeps[0] & (1 << (f))) && !(keeps[1] & (1 << (f))))

/* ---- clients */

/* Whose word counts: the leases of a client that was cut off end by decree. */
#ifdef LIMIT_CUT_BELIEVES
#define COUNTS(c) true
#else
#define COUNTS(c) (!voided[c])
#endif

/* What is said of a lease the moment a thread believes that it has one. */
inline believe(t, m)
{
    if
    :: COUNTS(CLIENT(t)) ->
       held[t] = m;
       assert(state != FROZEN || lease_while_frozen);
       assert((held[0] != WRITE || (held[1] == 0 && held[2] == 0)) &&
              (held[1] != WRITE || (held[0] == 0 && held[2] == 0)) &&
              (held[2] != WRITE || (held[0] == 0 && held[1] == 0)) || two_leases)
    :: else
    fi;
    use(t, m)
}

/* Reads what is there, and writes: the other frame is then out of date. */
inline use(t, m)
{
    if
    :: COUNTS(CLIENT(t)) ->
       assert((fresh[mapped[CLIENT(t)]] && !broken[CLIENT(t)]) || lost_update);
       if
       :: m == WRITE -> fresh[1 - mapped[CLIENT(t)]] = 0
       :: else
       fi
    :: else
    fi
}

inline add(c, m)
{
    if
    :: m == READ ->
       conflict = lease_writers[c] != 0;
       lease_readers[c]++
    :: else ->
       conflict = ANY_LEASE(c);
       lease_writers[c]++
    fi
}

inline subtract(c, m)
{
    if
    :: m == READ -> lease_readers[c]--
    :: else -> lease_writers[c]--
    fi;
    left = LEFT(c, m)
}

/* A ring that the keeper would ignore is left out, and so is one that is overtaken (permits()): all
 * that it could do later is to make the keeper look once more, and nothing may depend on that. */
inline ring(c)
{
    if
    :: RINGS(seen) && !left && state == DRAINING -> bell[c] = true
    :: else
    fi;
    left = 0
}

/* What a thread makes of the permit it loaded, and where writing is permitted also of its lease
 * word, at which it then looks again: between its addition and its load of the permit, a lease may
 * have been granted to another thread of the process, taken, and the write permit opened. */
#define PERMITS(m) (!conflict && (seen == P_READ_WRITE || (seen == P_READ && m == READ)))
#ifdef FAULT_NO_SECOND_LOOK
#define ALLOWED(m) PERMITS(m)
#else
#define ALONE(m) \
    (lease_writers[CLIENT(t)] == (m == WRITE -> 1 : 0) && \
     (m == READ || lease_readers[CLIENT(t)] == 0))
#define ALLOWED(m) (PERMITS(m) && (seen == P_READ || ALONE(m)))
#endif

/* The addition and the load of the permit are one step each. Without the fence between them the
 * load may come first: the addition is still in the thread's store buffer. */
proctype Thread(byte t)
{
    byte mode, seen;
    bool conflict, left, endless;
#ifdef ROUNDS
    byte rounds;
#endif

    {
end_idle:
        do
        :: atomic {
#ifdef ROUNDS
               rounds < ROUNDS ->
               rounds++;
#else
               true ->
#endif
               if
               :: mode = READ
               :: mode = WRITE
               fi;
#ifdef FAULT_NO_FENCE_ACQUIRE
               if
               :: seen = permit[CLIENT(t)];
                  goto late_add
               :: true
               fi;
#endif
               add(CLIENT(t), mode)
           }
           atomic {
               seen = permit[CLIENT(t)]
#if THREADS == 2 && !defined(FAULT_NO_FENCE_ACQUIRE) /* nobody else is there to change the word */
               ;
#else
           }
judge:
           atomic {
#endif
               if
               :: ALLOWED(mode) ->
                  seen = 0;
                  believe(t, mode);
                  goto has
               :: !ALLOWED(mode) || (place == HOST && mode == READ) /* PARTIAL: ask the keeper */
               fi
           }
           atomic {
               conflict = false;
               subtract(CLIENT(t), mode)
           }
           atomic { /* a GONE seen before is seen again */
               seen = permit[CLIENT(t)];
#ifdef FAULT_SILENT_BACKOUT
               left = false;
#else
               ring(CLIENT(t));
#endif
               if
               :: closed[CLIENT(t)] || seen == P_GONE ->
                  seen = 0;
                  mode = 0;
                  goto end_idle
#ifdef LIMITS
               :: true -> /* too many requests wait already */
                  seen = 0;
                  mode = 0;
                  goto end_idle
#endif
               :: !closed[CLIENT(t)] && seen != P_GONE
               fi;
               seen = 0;
               if
#ifdef KEEPS
               :: endless = (mode == READ)
#else
               :: endless = true
#ifdef TIMEOUTS
               :: endless = false
#endif
#endif
               fi;
               reply[t] = WAITS;
               if
               :: mode == READ -> up[CLIENT(t)]!ACQUIRE_READ,t,endless
               :: else -> up[CLIENT(t)]!ACQUIRE_WRITE,t,endless
               fi;
               endless = false
           }
           atomic {
               reply[t] > WAITS;
               if
               :: reply[t] == GOT && !failed[CLIENT(t)] ->
                  reply[t] = 0;
                  believe(t, mode);
                  goto has
               :: reply[t] == GOT && failed[CLIENT(t)] -> /* it has a lease, but no memory */
                  reply[t] = 0;
                  goto gives_back
               :: else ->
                  reply[t] = 0;
                  mode = 0;
                  goto end_idle
               fi
           }
has:
#ifdef KEEPS
           if
           :: t == 0 && mode == READ ->
end_keeps:    false
           :: true
           fi;
#endif
           atomic {
               use(t, mode);
#ifdef FAULT_NO_FENCE_RELEASE
               if
               :: seen = permit[CLIENT(t)];
                  goto late_subtract
               :: true
               fi;
#endif
               held[t] = 0;
gives_back:
               subtract(CLIENT(t), mode)
           }
           atomic {
               seen = permit[CLIENT(t)];
rings:
               ring(CLIENT(t));
               seen = 0;
               mode = 0;
               goto end_idle
           }
#ifdef FAULT_NO_FENCE_ACQUIRE
late_add:
           atomic {
               add(CLIENT(t), mode);
               goto judge
           }
#endif
#ifdef FAULT_NO_FENCE_RELEASE
late_subtract:
           atomic {
               held[t] = 0;
               subtract(CLIENT(t), mode);
               goto rings
           }
#endif
        :: break
        od
    } unless {
        atomic {
            !alive[CLIENT(t)] || stopped[CLIENT(t)];
            mode = 0;
            seen = 0;
            conflict = false;
            left = false
        }
    }
}

inline tell_refused(t)
{
    if
    :: reply[t] == WAITS -> reply[t] = REFUSED
    :: else
    fi
}

/* A closed socket takes nothing more. */
inline send_up(c, k, t)
{
    if
    :: closed[c]
    :: else -> up[c]!k,t,false
    fi
}

inline add_granted(c, k)
{
    if
    :: k == GRANTED_READ -> lease_readers[c]++
    :: k == GRANTED_WRITE -> lease_writers[c]++
    fi
}

/* The mapping thread. What was sent before the socket closed is still read. */
proctype Mapper(bit c)
{
    byte kind, what;

    {
end_idle:
        do
        :: atomic {
               down[c]?kind,what ->
               if
               :: kind == FAILED ->
                  reply[what] = REFUSED;
                  kind = 0;
                  what = 0;
                  goto end_idle
               :: kind == MAP ->
                  if
                  :: true
#ifdef SLOW
                  :: c == 0 -> slow[c] = true
                  :: c == 0 && !calm ->
                     slow[c] = true;
                     stopped[c] = true
#endif
                  fi
               :: else ->
#ifdef FAULT_TAKEN_EARLY
                  send_up(c, kind + 2, what)
#else
                  add_granted(c, kind)
#endif
               fi
           }
           atomic {
               if
               :: kind == MAP ->
                  slow[c] = false;
                  if
                  :: mapped[c] = what;
                     send_up(c, MAPPED, 0)
#ifdef BREAKS
                  :: c == 0 && !calm ->
                     failed[c] = true;
                     send_up(c, NOT_MAPPED, 0)
#endif
                  fi
               :: else ->
#ifdef FAULT_TAKEN_EARLY
                  add_granted(c, kind);
#else
                  send_up(c, kind + 2, what);
#endif
                  reply[what] = GOT
               fi;
               kind = 0;
               what = 0
           }
        :: atomic {
               closed[c] && empty(down[c]) ->
               if
               :: c == 0 ->
                  tell_refused(0);
                  tell_refused(1)
               :: else -> tell_refused(2)
               fi;
               break
           }
        od
    } unless {
        atomic {
            !alive[c] || stopped[c];
            kind = 0;
            what = 0
        }
    }
}

/* ---- the keeper */

#ifdef FAULT_PERMIT_EARLY
#define MAY_WRITE(c) (holder == c)
#else
#define MAY_WRITE(c) (holder == c && !OWED(c))
#endif

/* Stores the permit that the state asks for. It lies in the buffer until Memory lets it out. */
inline publish(c)
{
    if
    :: closed[c] || broken[c] -> word = P_GONE
    :: !closed[c] && !broken[c] && state == SHARED -> word = P_READ
    :: !closed[c] && !broken[c] && state == EXCLUSIVE && MAY_WRITE(c) ->
#ifdef FAULT_DIRTY_LATE
       clean = false;
#endif
       word = P_READ_WRITE
    :: !closed[c] && !broken[c] && state == EXCLUSIVE && !MAY_WRITE(c) -> word = P_NONE
    :: else -> word = P_REVOKED
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

inline permits()
{
    if
    :: state != DRAINING ->
       bell[0] = false;
       bell[1] = false
    :: else
    fi;
    publish(0);
    publish(1)
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

/* Looks at the first lease word, once the permits are seen to be withdrawn. The second is looked at
 * in the step after it. */
inline look()
{
    atomic {
#ifndef FAULT_NO_FENCE_REVOKE
        buffered[0] == EMPTY && buffered[1] == EMPTY;
#endif
        load(0)
    }
}

inline forget_seen()
{
    readers_seen = false;
    writers_seen = false
}

/* Sends GRANTED: from now on the lease counts. */
inline grant(t, m)
{
    if
    :: m == READ ->
       owed_readers[CLIENT(t)]++;
       down[CLIENT(t)]!GRANTED_READ,t
    :: else ->
       owed_writers[CLIENT(t)]++;
       down[CLIENT(t)]!GRANTED_WRITE,t
    fi
}

/* The queue is empty: back to where it came from. */
inline calm_down()
{
    if
    :: holder == NOBODY -> step(CALM, SHARED)
    :: else -> step(RESUME, EXCLUSIVE)
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

inline freeze()
{
    assert((held[0] == 0 && held[1] == 0 && held[2] == 0) || lease_while_frozen);
    step(FREEZE, FROZEN);
    holder = NOBODY;
    to = 1 - place;
    copying = true;
    permits()
}

/* A client whose socket is closed answers by being voided. */
inline send_map(c)
{
    if
    :: !voided[c] && !broken[c] ->
       asked[c] = true;
       if
       :: !closed[c] -> down[c]!MAP,to
       :: else
       fi
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
    if
    :: c == 0 ->
       unqueue(0);
       unqueue(1)
    :: else -> unqueue(2)
    fi;
    permits()
}

/* What a client has ends. */
inline void_client(c)
{
    voided[c] = true;
    asked[c] = false;
    owed_readers[c] = 0;
    owed_writers[c] = 0;
    if
    :: holder == c ->
       holder = NOBODY;
       if
       :: state == EXCLUSIVE ->
          step(GONE, SHARED);
          permits()
       :: state == DRAINING -> step(GONE, DRAINING)
       :: else
       fi
    :: else
    fi
}

/* The keeper cuts a client off. Its process lives on, with what it mapped. */
inline cut_off(c, first, last)
{
    keeps[c] = 1 << place;
    if
    :: copying || mapping || clean -> keeps[c] = 3
    :: else
    fi;
    close_socket(c);
#ifndef FAULT_CUT_COUNTS
    void_client(c)
#else
    asked[c] = false
#endif
#ifndef LIMIT_CUT_BELIEVES
    ;
    held[first] = 0;
    held[last] = 0
#endif
}

#ifdef FAULT_IGNORE_OWED
#define NOTHING_OWED true
#else
#define NOTHING_OWED (!OWED(0) && !OWED(1))
#endif

#define EVENTS_OF(c, first, last) \
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
           asked[c] && slow[c] && !closed[c] -> \
           cut_off(c, first, last); \
           goto map_step \
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
           held[first] = 0; \
           held[last] = 0; \
           goto left_queue \
       }

#ifdef FAULT_VOID_EARLY
#define VOIDED_EARLY(c) void_client(c)
#else
#define VOIDED_EARLY(c) skip
#endif

#ifdef CUTS
#define CUT_OF(c, first, last) \
    :: atomic { \
           !calm && cuts == 0 && !closed[c] && alive[c] -> \
           cuts = 1; \
           cut_off(c, first, last); \
           goto left_queue \
       }
#else
#define CUT_OF(c, first, last)
#endif

#define TIMEOUT_OF(t) \
    :: atomic { \
           queue??[eval(t),_,false] -> \
           queue??eval(t),_,_; \
           down[CLIENT(t)]!FAILED,t; \
           goto left_queue \
       }

#ifdef FAULT_COPY_UNLOOKED
#define NOTHING_HELD true
#else
#define NOTHING_HELD (!readers_seen && !writers_seen && NOTHING_OWED)
#endif

#ifdef FAULT_REUSE_HELD
#define MAY_MOVE true
#else
#define MAY_MOVE (NOBODY_HAS(1 - place) || (place == DEVICE && clean))
#endif

proctype Keeper()
{
    byte kind, t, mode;
    bool endless;
    bit client;

end_idle:
    do
    EVENTS_OF(0, 0, 1)
    EVENTS_OF(1, 2, 2)
    TIMEOUT_OF(0)
#if THREADS == 3
    TIMEOUT_OF(1)
#endif
    TIMEOUT_OF(2)
    CUT_OF(0, 0, 1)
#ifdef MOVES
    :: atomic {
           !calm && (state == SHARED || state == EXCLUSIVE) && MAY_MOVE ->
           step(WAIT, DRAINING);
           permits()
       }
       look();
       atomic {
           load(1);
           if
           :: NOTHING_HELD -> freeze()
           :: else -> calm_down() /* given up */
           fi;
           forget_seen()
       }
    :: atomic { /* the copy is done */
           copying ->
           copying = false;
           mapping = true;
           if
           :: place == DEVICE && clean
           :: else ->
              assert(((gone[0] || broken[0] || mapped[0] != to) &&
                      (gone[1] || broken[1] || mapped[1] != to)) || frame_reused);
              fresh[to] = fresh[place]
           fi;
           send_map(0);
           send_map(1);
           goto map_step
       }
#endif
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
           :: state == EXCLUSIVE && holder == client && mode == READ &&
              lease_writers[client] == 0 && owed_writers[client] == 0 -> grant(t, READ)
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
           :: kind == TAKEN_READ -> owed_readers[client]--
           :: else -> owed_writers[client]--
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
           asked[client] = false;
           if
           :: kind == NOT_MAPPED ->
              broken[client] = true;
              permits()
           :: else
           fi;
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
        :: mapping && (!asked[0] || !asked[1]) ->
#else
        :: mapping && !asked[0] && !asked[1] ->
#endif
           asked[0] = false;
           asked[1] = false;
           mapping = false;
           clean = place == HOST; /* the host frame stays, the device frame is free */
           if
           :: place == DEVICE -> fresh[DEVICE] = 0
           :: else
           fi;
           place = to;
           to = 0;
           step(THAW, SHARED);
           if
           :: nempty(queue) ->
              step(WAIT, DRAINING);
              goto look_again
           :: empty(queue) -> permits()
           fi
        :: else
        fi;
        goto end_idle
    }

left_queue: /* somebody waits no more, or is no more */
    atomic {
        if
        :: state == FROZEN -> goto map_step
        :: state == DRAINING && empty(queue) -> calm_down()
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
        load(1);
        if
        :: owed_readers[0] != 0 || owed_readers[1] != 0 -> readers_seen = true
        :: else
        fi;
        if
        :: owed_writers[0] != 0 || owed_writers[1] != 0 -> writers_seen = true
        :: else
        fi;
        if
        :: nempty(queue) -> queue?<t,mode,_>
        :: empty(queue)
        fi;
        if
#ifdef MOVES
        :: !calm && !readers_seen && !writers_seen && place == HOST && MAY_MOVE -> freeze()
#endif
        :: mode == READ && !writers_seen ->
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
           holder = NOBODY;
           step(GRANT_READ, SHARED);
           if
           :: nempty(queue) -> step(WAIT, DRAINING)
           :: empty(queue)
           fi;
           permits()
        :: mode == WRITE && !readers_seen && !writers_seen ->
           queue?_,_,_;
           grant(t, WRITE);
           holder = CLIENT(t);
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

#include "world.pml"
