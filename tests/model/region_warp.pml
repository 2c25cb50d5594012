/* The leaders of warps in region.pml, which includes it: map, use, unmap; fetch and evict. Each step is
 * one atomic operation on a word or record, half a copy, or a use. */

byte ended; /* warps that stopped */

/* A program that the host and kernels share does not write a region on both sides between two syncs. */
#define MAY_WRITE(r) (!host_has[r] || !exists[r])

#ifdef ROUNDS
#define MAY_MAP (depth < DEPTH && rounds < ROUNDS)
#else
#define MAY_MAP (depth < DEPTH)
#endif

#ifdef FAULT_HIT_IGNORES_BUSY
#define IS_HIT(w) IN_FRAME(w)
#else
#define IS_HIT(w) (((w) & (RESIDENT | REMOTE | BUSY)) == RESIDENT)
#endif

#ifdef FAULT_UPGRADE_SHARED
#define MAY_UPGRADE true
#elif defined(FAULT_FILL_UPGRADES)
#define MAY_UPGRADE (REFS(r) == 1 || mode == FILL)
#else
#define MAY_UPGRADE (REFS(r) == 1)
#endif

/* The hand passes frames that are taken away. */
#ifdef NO_REMOTE
#define MAY_LOOK_AT(f) (owner[f] == FREE || IS_VICTIM(owner[f], f))
#else
#define MAY_LOOK_AT(f) (!closed[f])
#endif

/* What the copy engine was to bring is not wanted any more. */
#ifdef FAULT_MAP_LEAVES_COMING
#define CAME(r) 0
#else
#define CAME(r) (word[r] & COPYING)
#endif

/* Another warp puts the region into the list: it is waited for, or a sync might not find it there. */
#ifdef FAULT_CHANGED_UNWAITED
#define MAY_GO_ON(r) (listed[r] != NO)
#else
#define MAY_GO_ON(r) (listed[r] == COUNTED)
#endif

/* A map begins: what it is for. */
inline choose_map()
{
    if
    :: r = 0
    :: r = 1
#if REGIONS == 3
    :: r = 2
#endif
    fi;
    if
    :: mode = READ
#ifndef READS
    :: MAY_WRITE(r) -> mode = WRITE
#ifdef WRITE_ONLY
    :: MAY_WRITE(r) -> mode = FILL
#endif
#endif
    fi;
    maps[r]++;
    if
    :: mode != READ ->
       writers[r]++;
       undefined[r] = undefined[r] + (mode == FILL -> 1 : 0)
    :: else
    fi
}

/* A map is over: from now on the warp may use the region at this place. */
inline map_is_over()
{
    region[depth] = r;
    modes[depth] = mode;
    places[depth] = place;
    depth++;
    r = 0;
    mode = 0;
    place = 0
}

/* The map was for nothing: there is no such region. */
inline map_failed()
{
    maps[r]--;
    if
    :: mode != READ ->
       writers[r]--;
       undefined[r] = undefined[r] - (mode == FILL -> 1 : 0)
    :: else
    fi;
    r = 0;
    mode = 0
}

/* What must hold as long as a warp has a region mapped. */
#define IN_PLACE(i) \
    (places[i] == HOME -> (word[region[i]] & (RESIDENT | REMOTE)) == (RESIDENT | REMOTE) : \
                          owner[places[i]] == region[i])
#define READS_NEW(i) \
    (undefined[region[i]] != 0 || pending[region[i]] || IS_NEW(region[i], places[i]))
inline check(i)
{
    assert(IN_PLACE(i) || evicted_while_mapped);
    assert(READS_NEW(i) || lost_update)
}

/* Writes; a warp that has filled a region has it as if it were mapped for writing. */
inline write(i)
{
    assert(IN_PLACE(i) || evicted_while_mapped);
    write_at(region[i], places[i]);
    if
    :: modes[i] == FILL ->
       undefined[region[i]]--;
       modes[i] = WRITE
    :: else
    fi
}

inline claim(x)
{
    dirty = word[x] & (DIRTY | LISTED);
    word[x] = word[x] + BUSY
}

inline leave_last()
{
    if
    :: modes[depth - 1] != READ -> writers[region[depth - 1]]--
    :: else
    fi;
    maps[region[depth - 1]]--;
    word[region[depth - 1]]--
}

inline forget_last()
{
    depth--;
    region[depth] = 0;
    modes[depth] = 0;
    places[depth] = 0
}

proctype Warp()
{
    byte depth, region[DEPTH], modes[DEPTH], places[DEPTH]; /* what it has mapped */
    byte r, mode, place;                                    /* what it maps */
    byte f, v;                                              /* a frame, and the region that has it */
    byte dirty;                                             /* what v was when it was made BUSY: DIRTY, LISTED */
    short seen;
    byte at;
#ifdef ROUNDS
    byte rounds;
#endif
#ifdef ENDS
    byte looks;
#endif

begin:
    if
    :: atomic { depth == 0 -> goto stops }
    :: atomic {
           MAY_MAP ->
#ifdef ROUNDS
           rounds++;
#endif
           choose_map();
           seen = word[r]; /* the addition: its question and its claim */
           word[r] = seen + 1;
           if
           :: IS_HIT(seen) ->
              place = SLOT_OF(seen);
#ifndef FAULT_HIT_LEAVES_CLEAN
              if
              :: mode != READ && (seen & LISTED) == 0 ->
                 seen = 0;
                 goto lists
              :: else
              fi;
#endif
              seen = 0;
              map_is_over();
              goto begin
           :: else -> seen = 0
           fi
       };
       goto misses
#ifndef ENDS
    :: atomic { depth > 0 -> check(depth - 1) };
       goto begin
    :: atomic { depth > 0 && modes[depth - 1] == WRITE -> write(depth - 1) };
       goto begin
#if DEPTH == 2
    :: atomic { depth == 2 -> check(0) };
       goto begin
    :: atomic { depth == 2 && modes[0] != READ -> write(0) };
       goto begin
#endif
#endif
    :: atomic { depth > 0 && modes[depth - 1] == FILL -> write(depth - 1) };
       goto begin
    :: atomic {
           depth > 0 && modes[depth - 1] != FILL ->
#ifdef FAULT_UNMAP_EARLY
           leave_last()
       }
       atomic {
           check(depth - 1);
#else
           check(depth - 1);
           leave_last();
#endif
           forget_last()
       };
       goto begin
    fi;

misses:
#ifdef FAULT_RECORD_READ_EARLY
    atomic {
        seen = exists[r]
    }
#endif
#ifdef FAULT_DIRTY_WHILE_BUSY
    atomic {
        if
        :: mode != READ && IS(r, RESIDENT) && !IS(r, REMOTE) -> word[r] = word[r] | DIRTY | LISTED
        :: else
        fi
    }
#endif
    atomic { /* waits with its reference until nobody has it BUSY */
        !IS(r, BUSY) ->
#ifndef FAULT_RECORD_READ_EARLY
        seen = exists[r];
#endif
        if
        :: IN_FRAME(word[r]) ->
           seen = 0;
           place = SLOT_OF(word[r]);
           if
#ifndef FAULT_DIRTY_WHILE_BUSY
           :: mode != READ && !IS(r, LISTED) -> goto lists
#endif
           :: else ->
              map_is_over();
              goto begin
           fi
        :: IS(r, REMOTE) && !MAY_UPGRADE ->
           seen = 0;
           place = HOME;
           goto lists
        :: IS(r, REMOTE) && MAY_UPGRADE ->
           seen = 0;
           word[r] = word[r] - RESIDENT - REMOTE + BUSY
        :: !IS(r, RESIDENT) && seen ->
           seen = 0;
           word[r] = word[r] + BUSY
        :: !IS(r, RESIDENT) && !seen ->
           word[r]--;
           map_failed();
           goto begin
        fi
    }

finds_frame:
    if
    :: atomic {
#ifdef ENDS
           looks < 2 * FRAMES ->
           looks++;
#endif
           if
           :: MAY_LOOK_AT(0) -> f = 0
#if FRAMES == 2
           :: MAY_LOOK_AT(1) -> f = 1
#endif
           fi;
           v = owner[f];
           if
           :: v == FREE -> goto takes_frame
           :: v >= CLOSED -> goto looks_on
           :: else
           fi
       };
       goto evicts
#ifndef NO_REMOTE
    :: atomic { /* two passes of the hand: the region is remote */
#ifdef ENDS
           looks == 2 * FRAMES ->
           looks = 0;
#endif
           word[r] = word[r] + RESIDENT + REMOTE - BUSY - CAME(r);
           place = HOME
       };
       goto lists
#endif
    fi;

takes_frame:
    atomic {
        v = 0;
        if
#ifdef FAULT_TAKE_BY_STORE
        :: true ->
#else
        :: owner[f] == FREE ->
#endif
           owner[f] = r
        :: owner[f] != FREE -> goto looks_on
        fi
    };
    goto fetches;

looks_on:
    atomic {
        v = 0;
        f = 0
    };
    goto finds_frame;

evicts:
#ifdef FAULT_EVICT_BY_STORE
    atomic {
        if
        :: IS_VICTIM(v, f) -> seen = word[v]
        :: else -> goto looks_on
        fi
    }
    atomic {
        dirty = seen & (DIRTY | LISTED);
        word[v] = seen + BUSY;
        seen = 0
    }
#else
    atomic {
        if
#ifdef FAULT_EVICT_REFERENCED
        :: IN_FRAME(word[v]) && !IS(v, BUSY) && SLOT_OF(word[v]) == f -> claim(v)
#else
        :: IS_VICTIM(v, f) -> claim(v)
#endif
#ifdef FAULT_LEAVES_DIRTY
        :: IS_VICTIM(v, f) ->
#else
        :: IS_VICTIM(v, f) && !IS(v, DIRTY) -> /* a clean one leaves in one step; its record is late */
#endif
           word[v] = word[v] & REFERENCES;
           leaving[f] = true;
           goto leaves
#ifdef FAULT_WRITE_BACK_UNCLAIMED
        :: IS_VICTIM(v, f) && IS(v, DIRTY) -> goto writes_unclaimed
#endif
        :: else -> goto looks_on
        fi
    }
#endif
#ifndef FAULT_DIRTY_DROPPED
    if
    :: atomic { dirty != 0 -> COPY_HOME(f, v, FRONT) }
       atomic { COPY_HOME(f, v, BACK) }
    :: atomic { dirty == 0 }
    fi;
#endif
    if
    :: atomic { /* references came, or this was write-back ahead: it stays, clean */
           true ->
#ifdef FAULT_CLEAN_LATE
           word[v] = word[v] - BUSY
       }
       atomic {
           word[v] = word[v] - dirty;
#else
           word[v] = word[v] - BUSY - dirty;
#endif
           dirty = 0
       };
       goto looks_on
    :: atomic {
           REFS(v) == 0 ->
#ifndef FAULT_RECORD_LATE
           owner[f] = r
#endif
       }
       atomic { /* references may have come since: they find it invalid */
           word[v] = word[v] - RESIDENT - dirty - BUSY - SLOT(f);
           dirty = 0;
#ifndef FAULT_RECORD_LATE
           v = 0
#endif
       }
#ifdef FAULT_RECORD_LATE
       atomic {
           v = 0;
           owner[f] = r
       }
#endif
    fi;

    goto fetches;

leaves:
    atomic {
        owner[f] = r;
        leaving[f] = false;
        v = 0
    };

fetches: /* f's record names r */
#ifdef FAULT_PUBLISH_EARLY
    atomic {
        frame_has[f] = r;
        frame_new[f] = home_new[r] & FRONT
    }
    atomic {
        word[r] = word[r] + RESIDENT + SLOT(f) - BUSY
    }
    atomic {
        frame_new[f] = frame_new[f] | (home_new[r] & BACK);
        place = f;
        f = 0;
        goto lists
    }
#endif
    if
    :: atomic {
           mode != FILL ->
           assert(!gone[f] || closed_frame_used);
           frame_has[f] = r;
           frame_new[f] = home_new[r] & FRONT
       }
       atomic { frame_new[f] = frame_new[f] | (home_new[r] & BACK) }
    :: atomic {
           mode == FILL ->
           assert(!gone[f] || closed_frame_used);
           frame_has[f] = r;
           frame_new[f] = 0
       }
    fi;
    atomic {
        word[r] = word[r] + RESIDENT + SLOT(f) - BUSY - CAME(r);
        place = f;
        f = 0;
#ifdef ENDS
        looks = 0;
#endif
    };
    goto lists;

lists: /* in the list of changes, before anything is written */
    if
    :: atomic { mode == READ -> goto is_mapped }
#if defined(SYNC) && !defined(FAULT_NOT_LISTED)
    :: atomic {
           mode != READ && MAY_GO_ON(r)
       }
    :: WHOLLY
           STEP
               mode != READ && listed[r] == NO ->
               listed[r] = CHANGED
           }
           STEP
               at = (first + entries) % REGIONS;
               entries++
           }
           STEP
               entry[at] = r;
               at = 0
           }
           STEP
               listed[r] = COUNTED
           }
       }
#else
    :: atomic { mode != READ }
#endif
    fi;
    atomic {
        if
        :: place != HOME -> word[r] = word[r] | DIRTY | LISTED
        :: else
        fi
    }

is_mapped:
    atomic {
        map_is_over();
        goto begin
    }

#ifdef FAULT_WRITE_BACK_UNCLAIMED
writes_unclaimed:
    atomic { COPY_HOME(f, v, FRONT) }
    atomic { COPY_HOME(f, v, BACK) }
    atomic {
        word[v] = word[v] - (word[v] & (DIRTY | LISTED));
        goto looks_on
    }
#endif

stops:
    ended++
}
