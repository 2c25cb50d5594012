/* callback.pml - calls of host functions by kernels (docs/design/callback.md), for SPIN.
 *
 * Threads of kernels call as include/gvmem/device/detail/callback.h does, threads of the server look for calls and make them as
 * lib/callback/calls.c and threads.c do; others drain and close it as server.c does. There is one function with parameters
 * and a collective one. README.md tells what is modelled and what is not.
 *
 * Checked:
 *   made_twice             no request is made twice
 *   runs_twice             a function that is not re-entrant runs once at a time
 *   wrong_reply            a caller that gets OK has the reply of its own call
 *   not_served             or of a collective call that began after its request
 *   closed_though_served   a caller that gets CLOSED was not served
 *   not_told               when kernels have ended the host was told of all collective requests
 *   not_made_at_close      what was asked for when the server began to close is made before it has closed
 *   not_drained            a drain that succeeds has waited for the calls of kernels that had ended
 * and nobody waits for ever.
 *
 * -D THREADS=n   of kernels, each of a kernel of its own; default 2
 * -D CALLS=n     of each; default 1
 * -D SLOTS=n     default 1
 * -D SERVERS=n   threads of the server; default 1
 * -D CALL, POST, JOIN, SIGNAL  what kernels call: one or more of these
 * -D REENTRANT   the function with parameters
 * -D LATE        the time limit of a wait may pass at any moment
 * -D STUCK       a function may stay for ever
 * -D DRAINS      the server is drained
 * -D CLOSERS=n   threads that close it, at any time; default 0
 * -D DESTROYS    it is destroyed when kernels have ended; who drains it is waited for
 * -D EACH_KERNEL a drain is to have the signals of each kernel that has ended, though others run
 * -D ENDS        the property that every run ends
 * -D FAULT_...   one planted fault; callback.sh lists them
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef SERVERS
#define SERVERS 1
#endif
#ifndef CLOSERS
#define CLOSERS 0
#endif
#define PLACES (SLOTS + 1) /* where the lookout looks: the last is the collective function's */
#define NO_SLOT SLOTS

/* Never true: they name the assertion in SPIN's output. */
bit made_twice, runs_twice, wrong_reply, not_served, closed_though_served, not_made_at_close, not_drained, not_told;

/* What a call returns, and the state. */
#define OK 0
#define TOO_LATE 1
#define CLOSED 2

/* ---- device memory */
#define FREE 0
#define TAKEN 1
#define LEFT 2
byte slot_state[SLOTS], slot_use[SLOTS];
bit over[SLOTS]; /* done; the poller's, as the next one */
byte served;
byte state;
bool poller;
byte asked, told; /* asked: twice, and 1 while a thread tells the host */

/* ---- the mail */
byte mail_posted[SLOTS], mail_request[SLOTS], mail_reply[SLOTS];
bit mail_done[SLOTS];
byte mail_asked, mail_served;
bool mail_closed;

/* ---- the server */
byte taken[SLOTS], finished[SLOTS];
bool busy, group_busy;
byte begun, group_served;
bool has_lookout, closing, closed;
byte cursor, exited, drainers;
bool lock, sleeps; /* the drainer waits on the condition variable */
bool removed;      /* the handle is unknown */
byte holders;      /* calls that have it */

/* ---- what is so, for the assertions. A call has a number, which its words are. */
#define COUNT (THREADS * CALLS)
byte made[COUNT];
byte request_of[COUNT]; /* of a collective call; 0: it has parameters */
bool was_posted[COUNT];
bool kernel_ended[THREADS];
byte running;
byte begun_functions; /* requests that calls of the collective function, which have begun, serve */
byte posted_before[SLOTS], asked_before; /* when it began to close */

#define IS_DONE(slot, use) (over[slot] == ((use) & 1))
#define ALL_ENDED (ended_count == THREADS)
byte ended_count;

/* ---- kernels: the poller */

/* Of the function with parameters, or the collective one. */
inline exchange(collective)
{
    was_closed = mail_closed;
#ifdef FAULT_CLOSED_BEFORE_DONE
    if
    :: was_closed -> state = CLOSED
    :: else
    fi;
#endif
    i = 0;
    do
    :: i < SLOTS -> d_step { over[i] = mail_done[i]; i++ }
    :: else -> break
    od;
    i = 0;
    if
    :: collective -> served = mail_served
    :: else
    fi;
#ifdef FAULT_CLOSED_READ_LAST
    was_closed = mail_closed;
#endif
    d_step {
        if
        :: was_closed -> state = CLOSED
        :: else
        fi;
        was_closed = false
    }
}

/* gvm_callback_wait(): was is the state of before the last look. */
inline wait(collective)
{
    if
    :: was == CLOSED -> code = CLOSED
    :: else ->
        if
        :: d_step { !poller -> poller = true };
            exchange(collective);
            poller = false
        :: d_step { poller -> skip }
        fi;
#ifdef LATE
        if
        :: code = TOO_LATE
        :: true
        fi
#endif
    fi
}

/* ---- kernels: calls with parameters */

#define IS_FREE(slot) (slot_state[slot] == FREE || (slot_state[slot] == LEFT && LEFT_IS_OVER(slot)))
#ifdef FAULT_LEFT_IS_FREE
#define LEFT_IS_OVER(slot) true
#else
#define LEFT_IS_OVER(slot) IS_DONE(slot, slot_use[slot])
#endif
#define TAKE(s) d_step { IS_FREE(s) -> slot_state[s] = TAKEN; slot_use[s]++; slot = s; use = slot_use[s] }

inline await_slot()
{
    do
    :: was = state;
        if
        :: TAKE(0); break
#if SLOTS == 2
        :: TAKE(1); break
        :: d_step { !IS_FREE(0) && !IS_FREE(1) -> skip }
#else
        :: d_step { !IS_FREE(0) -> skip }
#endif
        fi;
        if
        :: code != OK -> break
        :: else -> wait(false)
        fi
    od;
    was = 0
}

inline await_done()
{
    do
    :: was = state;
        if
        :: IS_DONE(slot, use) -> code = OK; break
        :: else
        fi;
        if
        :: code != OK -> break
        :: else -> wait(false)
        fi
    od;
    was = 0
}

#ifdef FAULT_LATE_IS_FREE
#define FAULTY_LEFT || true
#else
#define FAULTY_LEFT
#endif

inline call_function(waits)
{
    await_slot();
    if
    :: slot == NO_SLOT
    :: else ->
#ifdef FAULT_POSTED_BEFORE_WORDS
        d_step { mail_posted[slot] = use; was_posted[id] = true };
        mail_request[slot] = id;
#else
        mail_request[slot] = id;
        d_step { mail_posted[slot] = use; was_posted[id] = true };
#endif
        if
        :: waits ->
            await_done();
            if
            :: code == OK -> assert((made[id] == 1 && mail_reply[slot] == id) || wrong_reply)
            :: code == CLOSED -> assert(made[id] == 0 || closed_though_served)
            :: else
            fi
        :: else
        fi;
        d_step { slot_state[slot] = ((waits && (code == OK FAULTY_LEFT)) -> FREE : LEFT); slot = NO_SLOT; use = 0 }
    fi
}
/* ---- kernels: collective calls */

inline tell()
{
    seen = asked;
    do
    :: (seen & 1) != 0 -> seen = 0; break
    :: else ->
        if
        :: d_step { asked == seen -> asked = asked | 1; seen = asked }; tell_host(); break
        :: d_step { asked != seen -> seen = asked }
        fi
    od
}

inline tell_host()
{
    do
    :: if
        :: told != seen / 2 -> told = seen / 2; mail_asked = seen / 2
        :: else
        fi;
#ifdef FAULT_TELLER_STOPS
        d_step { asked = asked & 254; seen = 0 };
        break
#else
        if
        :: d_step { asked == seen -> asked = asked & 254; seen = 0 }; break
        :: d_step { asked != seen -> seen = asked }
        fi
#endif
    od
}

inline join_function(waits)
{
    d_step { asked = asked + 2; request = asked / 2; request_of[id] = request };
    tell();
    if
    :: waits ->
        do
        :: was = state;
            now_served = served;
#ifndef FAULT_CLOSED_NOT_LOOKED
            /* The poller that saw it close may have copied what was served of another function. */
            if
            :: was == CLOSED -> now_served = mail_served
            :: else
            fi;
#endif
            if
            :: now_served >= request -> code = OK; assert(begun_functions >= request || not_served); break
            :: else
            fi;
            if
            :: code != OK -> break
            :: else -> wait(true)
            fi
        od;
        if
        :: code == CLOSED -> assert(mail_served < request || closed_though_served)
        :: else
        fi;
        d_step { now_served = 0; was = 0 }
    :: else
    fi;
    request = 0
}

proctype Kernel(byte me)
{
    byte id, calls, code, was, slot, use, i, seen, request, now_served;
    bool was_closed;

    slot = NO_SLOT;
    do
    :: calls < CALLS ->
        d_step { id = me * CALLS + calls; calls++ };
        if
        :: state == CLOSED /* gvm_callback_begin() */
#ifdef LATE
        :: true /* the state is LATE */
#endif
        :: state != CLOSED ->
            if
#ifdef CALL
            :: call_function(true)
#endif
#ifdef POST
            :: call_function(false)
#endif
#ifdef JOIN
            :: join_function(true)
#endif
#ifdef SIGNAL
            :: join_function(false)
#endif
            fi
        fi;
        code = OK
    :: else -> break
    od;
    calls = 0;
    d_step {
        kernel_ended[me] = true;
        ended_count++;
        assert(ended_count < THREADS || mail_asked == asked / 2 || not_told)
    }
}

/* ---- the server: finding and making calls */

#ifdef REENTRANT
#define IS_REENTRANT true
#else
#define IS_REENTRANT false
#endif
#ifdef FAULT_NOT_TAKEN
#define TAKE_USE(s) skip
#else
#define TAKE_USE(s) taken[s] = mail_posted[s]
#endif
#define NOTHING PLACES

#define IS_ASKED(s) (mail_posted[s] != taken[s] && (IS_REENTRANT || !busy))
#if SLOTS == 2
#define HAS_WORK (IS_ASKED(0) || IS_ASKED(1) || (mail_asked > begun && !group_busy))
#else
#define HAS_WORK (IS_ASKED(0) || (mail_asked > begun && !group_busy))
#endif

/* gvmi_callback_find(): one look at each place. A function that is busy is passed by. */
inline find()
{
    d_step { place = cursor; looks = 0; found = NOTHING };
    do
    :: looks < PLACES && found == NOTHING ->
        d_step {
            if
            :: place < SLOTS && IS_ASKED(place % SLOTS) ->
                busy = !IS_REENTRANT;
                use = mail_posted[place];
                TAKE_USE(place);
                found = place;
                cursor = (place + 1) % PLACES
            :: place == SLOTS && mail_asked > begun && !group_busy ->
                group_busy = true;
                use = mail_asked;
                begun = use;
                found = place;
                cursor = 0
            :: else
            fi;
            looks++;
            place = (place + 1) % PLACES
        }
    :: else -> break
    od;
    looks = 0;
    place = 0
}

inline run_slot()
{
    d_step {
        number = mail_request[found];
        made[number]++;
        assert(made[number] == 1 || made_twice);
        running++;
        assert(IS_REENTRANT || running == 1 || runs_twice)
    };
    stay();
    d_step { running--; busy = false };
    mail_reply[found] = number;
#ifdef FAULT_DONE_BEFORE_FINISHED
    mail_done[found] = 1 - mail_done[found];
    finished[found] = use
#else
    finished[found] = use;
    mail_done[found] = 1 - mail_done[found]
#endif
}

inline run_group()
{
    begun_functions = use;
    stay();
#ifdef FAULT_SERVED_READ_LATE
    d_step { begun = mail_asked; use = begun };
#endif
    mail_served = use;
    d_step { group_served = use; group_busy = false }
}

/* In the function. */
inline stay()
{
#ifdef STUCK
    if
    :: true -> end_stuck: false
    :: true
    fi
#else
    skip
#endif
}

inline run_found()
{
    if
    :: found < SLOTS -> run_slot()
    :: else -> run_group()
    fi;
    d_step { found = 0; use = 0; number = 0 };
    if
    :: drainers > 0 ->
        d_step { !lock -> lock = true };
        d_step { sleeps = false; lock = false }
    :: else
    fi
}

proctype Server()
{
    byte place, looks, found, use, number;

    /* run_thread(), and look_out() */
end_lookout:
    do
    :: closing -> break
    :: d_step { !closing && !has_lookout -> has_lookout = true };
end_idle:
        do
        :: closing -> found = NOTHING; break
        :: !closing && HAS_WORK -> /* looks that find nothing change nothing */
            find();
            if
            :: found != NOTHING -> break
            :: else
            fi
        od;
        has_lookout = false;
        if
        :: found != NOTHING -> run_found()
        :: else -> found = 0
        fi
    od;
    skip;
    do
#ifdef FAULT_CLOSING_TURNED_AWAY
    :: has_lookout -> break
#endif
    :: d_step { !has_lookout -> has_lookout = true };
        find();
        has_lookout = false;
        if
        :: found != NOTHING -> run_found()
        :: else -> found = 0; break
        fi
    od;
    exited++
}

/* ---- drain */

#define UNMADE (lag || group_served < requests)

inline count_unmade()
{
    d_step {
        lag = uses[0] > finished[0];
#if SLOTS == 2
        lag = lag || uses[1] > finished[1];
#endif
    }
}

#ifdef EACH_KERNEL
#define SIGNALS_OF_EACH true
#else
#define SIGNALS_OF_EACH false
#endif

proctype Drainer()
{
    byte uses[SLOTS], requests, i;
    bool lag, has_ended[THREADS], all_ended, late;

    if
    :: removed -> goto ended
    :: d_step { !removed -> holders++; all_ended = ALL_ENDED }
    fi;
    do
    :: i < THREADS -> d_step { has_ended[i] = kernel_ended[i]; i++ }
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> d_step { uses[i] = mail_posted[i]; i++ }
    :: else -> break
    od;
    i = 0;
    requests = mail_asked;
#ifndef FAULT_DRAINER_COUNTED_LATE
    drainers++;
#endif
    d_step { !lock -> lock = true };
    count_unmade();
    do
    :: !UNMADE || closed || late -> break
    :: else ->
#ifdef FAULT_DRAINER_COUNTED_LATE
        drainers = 1;
#endif
        d_step { sleeps = true; lock = false };
        if
        :: !sleeps
#ifdef LATE
        :: late = true
#endif
        fi;
        d_step { !lock -> lock = true };
        sleeps = false;
        count_unmade()
    od;
    if
    :: !UNMADE ->
        do
        :: i < COUNT ->
            if
            :: has_ended[i / CALLS] && was_posted[i] -> assert(made[i] == 1 || not_drained)
            :: (all_ended || (SIGNALS_OF_EACH && has_ended[i / CALLS])) && request_of[i] > 0 ->
                assert(group_served >= request_of[i] || not_drained)
            :: else
            fi;
            i++
        :: else -> break
        od
    :: else
    fi;
    lock = false;
    drainers = 0;
    holders--;
ended:
    skip
}

/* ---- close and destroy */

proctype Closer()
{
    bool first;

#ifdef DESTROYS
    ALL_ENDED;
    d_step { removed = true };
    holders == 0;
#endif
    d_step { !lock -> lock = true };
    d_step {
        first = !closing;
        if
        :: first ->
            asked_before = mail_asked;
            posted_before[0] = mail_posted[0];
#if SLOTS == 2
            posted_before[1] = mail_posted[1]
#endif
        :: else
        fi;
        closing = true;
        lock = false
    };
    if
    :: first ->
        exited == SERVERS;
        mail_closed = true;
        d_step {
            assert((posted_before[0] <= finished[0] && asked_before <= group_served) || not_made_at_close);
#if SLOTS == 2
            assert(posted_before[1] <= finished[1] || not_made_at_close)
#endif
        };
        d_step { !lock -> lock = true };
        d_step { closed = true; sleeps = false; lock = false }
    :: else -> closed
    fi
}

init
{
    byte i;

    atomic {
        for (i : 0 .. THREADS - 1) {
            run Kernel(i)
        }
        for (i : 0 .. SERVERS - 1) {
            run Server()
        }
#ifdef DRAINS
        run Drainer();
#endif
#if CLOSERS > 0
        for (i : 1 .. CLOSERS) {
            run Closer()
        }
#endif
    }
}

#ifdef ENDS
ltl ends
{
    <>[](ALL_ENDED && (CLOSERS == 0 || closed))
}
#endif
