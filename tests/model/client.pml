/* The clients of keeper.pml, which includes it: threads that acquire and release, and the thread of
 * their process that maps. */

#ifdef UNTRACKED
#define MAY_WRITE_UNDER(m) true
#else
#define MAY_WRITE_UNDER(m) ((m) == WRITE)
#endif

/* What must hold when a thread has taken a lease by the words it sees. The keeper has ended the leases
 * of a client that was voided: nothing must hold for those. */
inline count_lease(t, m)
{
    if
    :: !voided[CLIENT(t)] ->
       held[t] = m;
       assert(state != FROZEN || lease_while_frozen);
       assert((held[0] != WRITE || (held[1] == 0 && held[2] == 0)) &&
              (held[1] != WRITE || (held[0] == 0 && held[2] == 0)) &&
              (held[2] != WRITE || (held[0] == 0 && held[1] == 0)) || two_leases)
    :: else
    fi;
    use(t, m)
}

inline only_frame(f)
{
    fresh[DEVICE] = (f == DEVICE -> fresh[DEVICE] : 0);
    fresh[HOST] = (f == HOST -> fresh[HOST] : 0);
    fresh[SPARE_DEVICE] = (f == SPARE_DEVICE -> fresh[SPARE_DEVICE] : 0);
#ifdef LENDS
    fresh[NEIGHBOUR] = (f == NEIGHBOUR -> fresh[NEIGHBOUR] : 0);
#endif
    fresh[NOWHERE] = 0
}

/* Reads what is there, and writes: the other frames are then out of date. */
inline use(t, m)
{
    if
    :: !voided[CLIENT(t)] ->
       assert((fresh[mapped[CLIENT(t)]] && !broken[CLIENT(t)]) || lost_update);
       if
       :: MAY_WRITE_UNDER(m) -> only_frame(mapped[CLIENT(t)])
       :: else
       fi
    :: else -> write_late(CLIENT(t), m)
    fi
}

/* A client that was voided writes on. As long as nobody was given a lease since, and no copy is
 * made, what it writes is part of what its interrupted lease left behind; then it is damage. */
inline write_late(c, m)
{
    if
    :: !MAY_WRITE_UNDER(m)
    :: MAY_WRITE_UNDER(m) && mapped[c] == place && !mapping && !later[c] -> only_frame(mapped[c])
    :: else -> fresh[mapped[c]] = 0
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

/* The addition and the load of the permit are one step each. Without the barrier between them the
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
#ifndef READS
               :: mode = WRITE
#endif
               fi;
#ifdef FAULT_NO_BARRIER_ACQUIRE
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
#if defined(ONE_THREAD_EACH) && !defined(FAULT_NO_BARRIER_ACQUIRE) /* nobody else is there to change the word */
               ;
#else
           }
judge:
           atomic {
#endif
               if
               :: ALLOWED(mode) ->
                  seen = 0;
                  count_lease(t, mode);
                  goto has
               :: !ALLOWED(mode) || (IS_AWAY(place) && mode == READ) /* PARTIAL: ask the keeper */
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
                  count_lease(t, mode);
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
writes_on:
           if
           :: atomic {
                  voided[CLIENT(t)] && MAY_WRITE_UNDER(mode) ->
                  write_late(CLIENT(t), mode);
                  goto writes_on
              }
           :: atomic {
                  true -> /* or the `else` in use() would exclude the option above, too */
                  use(t, mode);
                  seen = (voided[CLIENT(t)] && MAY_WRITE_UNDER(mode) -> P_GONE : 0);
#ifdef FAULT_NO_BARRIER_RELEASE
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
           fi;
           atomic { /* a permit that says GONE makes the release fail */
#ifndef FAULT_CUT_UNLOOKED /* which is to show what is lost */
               assert(seen != P_GONE || permit[CLIENT(t)] == P_GONE || loss_not_reported);
#endif
               seen = permit[CLIENT(t)];
rings:
               ring(CLIENT(t));
               seen = 0;
               mode = 0;
               goto end_idle
           }
#ifdef FAULT_NO_BARRIER_ACQUIRE
late_add:
           atomic {
               add(CLIENT(t), mode);
               goto judge
           }
#endif
#ifdef FAULT_NO_BARRIER_RELEASE
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
proctype Mapper(byte c)
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
               :: kind == MAP || kind == UNMAP ->
                  if
                  :: true
#ifdef SLOW
                  :: c == 0 -> slow[c] = true
                  :: c == 0 && !quiet ->
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
               :: kind == UNMAP ->
                  slow[c] = false;
                  mapped[c] = NOWHERE;
                  send_up(c, MAPPED, 0)
               :: kind == MAP ->
                  slow[c] = false;
                  if
                  :: mapped[c] = what;
                     send_up(c, MAPPED, 0)
#ifdef BREAKS
                  :: c == 0 && !quiet ->
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
               tell_refused(FIRST(c));
               tell_refused(LAST(c));
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

