/* region_common.pml - homes of regions in common by several processes (docs/design/region.md, "Homes in common"), for SPIN.
 *
 * Each process has a host's side, which syncs as lib/region/homes.c and sync.c do, and kernels that fetch regions to its frames
 * and write them home as they evict (or the copy engine ahead of need). A home has two halves, which are copied one after the
 * other. Processes take turns to write a region, and sync before and after; who has no turn may sync and fetch at any time.
 *
 * Checked:
 *   stale             in a turn, after the sync, frames and homes have what was synced last, whole
 *   differ            after the last turn and one sync of each, what frames have is what the homes have
 *   torn_wrongly      nobody is told of two writers where there were none
 *   torn_unreported   with RACE, of two writers one has written what the other had written before, or there is a report
 * and all processes that live get to their end. README.md tells what is modelled and what is not.
 *
 * -D PROCESSES=n  default 2
 * -D REGIONS=1|2  of one block, default 1
 * -D TURNS=n      writes, default 2
 * -D CPU          a turn may write by the CPU, or only read by it
 * -D EVICTS       kernels evict clean frames, too
 * -D MAPS         kernels may have regions mapped to read during syncs
 * -D DEATH        process 0 may be killed at any step: its kernels go on until it is gone, then the keeper counts it
 * -D CUT_OFF      with DEATH: the keeper takes it for gone while it may still write
 * -D LEAVES       process 0 may destroy its collection at any time, and end
 * -D THREADS      the last process has two threads that sync
 * -D RACE         there are no turns: each process writes once, when it wants to, and of two regions its own
 * -D WRAP=n       versions are modulo n, a power of 2; default 256. All begin with n - 1
 * -D ENDS         the property that every run ends
 * -D FAULT_...    one planted fault; region_common.sh lists them
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef REGIONS
#define REGIONS 1
#endif
#ifndef TURNS
#define TURNS 2
#endif
#ifndef WRAP
#define WRAP 256
#endif
#define NOBODY PROCESSES
#define FRAMES (PROCESSES * REGIONS)

/* Never true: they name the assertion in SPIN's output. */
bit stale, differ, torn_wrongly, torn_unreported;

/* ---- common memory */
byte home_front[REGIONS], home_back[REGIONS];
byte version[REGIONS] = WRAP - 1;
byte block = WRAP - 1;
byte abandoned;

/* ---- the keeper's */
byte interrupted;
bool fenced;

/* ---- a process's: of a region it is [me * REGIONS + region] */
#define NONE 0
#define CLEAN 1
#define DIRTY 2
byte frame[FRAMES], frame_front[FRAMES], frame_back[FRAMES];
bool busy[FRAMES];     /* it is fetched, or copied home */
bool mapped[FRAMES];   /* to read */
bool wanted[FRAMES];   /* a map waits, or has it: it is not evicted */
bool listed[FRAMES];   /* in the device's list of changes */
bool far[FRAMES], untold[FRAMES], changed[FRAMES], writing[FRAMES]; /* the flags of the host's table */
byte seen_version[FRAMES] = WRAP - 1;
byte seen_block[PROCESSES] = WRAP - 1;
byte seen_abandoned[PROCESSES];
byte ended[PROCESSES], seen_ended[PROCESSES];          /* by the latest answer of the keeper; as of the last look */
bool may_write[PROCESSES], seen_may_write[PROCESSES];
#ifdef THREADS
byte rounds, asked;       /* of the last process: of questions; of the latest answer */
bool locked[PROCESSES];   /* the space's lock */
#endif

/* ---- what is so, for the assertions */
byte turn = NOBODY, turns, turn_region;
bool written;            /* in this turn, and not synced yet */
byte synced[REGIONS];    /* what was written in the last turn that was synced */
bool unknown[REGIONS];   /* a process has ended in its turn: the region may be anything, but the same for all */
bool killed, gone;       /* process 0 */
bool leaving;            /* its kernels have ended, and it destroys its collection */
bool torn;               /* it was reported */
bool ordered;            /* RACE: one has written what another had written before */
byte done;               /* processes at their end */

#define ZOMBIE (killed && !gone)
#define NEXT(v) (((v) + 1) & (WRAP - 1))

#if REGIONS == 2
#define EACH_REGION(do_it) do_it(0); do_it(1)
#else
#define EACH_REGION(do_it) do_it(0)
#endif
#define MINE(r) (me * REGIONS + (r))

/* ---- kernels, and the copy engine */

proctype Kernels(byte me; byte region)
{
    byte x = me * REGIONS + region;

    {
end:    do
        :: d_step { frame[x] == NONE && !busy[x] && !(me == 0 && leaving) -> busy[x] = true };
            frame_front[x] = home_front[region];
            frame_back[x] = home_back[region];
            d_step { frame[x] = CLEAN; busy[x] = false }
        :: d_step { frame[x] == DIRTY && !busy[x] && !wanted[x] && !mapped[x] && !(me == 0 && leaving) -> busy[x] = true };
            home_front[region] = frame_front[x];
            home_back[region] = frame_back[x];
            if
            :: d_step { true -> frame[x] = NONE; busy[x] = false }
            :: d_step { true -> frame[x] = CLEAN; busy[x] = false } /* by the copy engine, ahead of need */
            fi
#ifdef EVICTS
        :: d_step { frame[x] == CLEAN && !busy[x] && !mapped[x] && !wanted[x] -> frame[x] = NONE }
#endif
#ifdef MAPS
        :: d_step { frame[x] != NONE && !busy[x] && !mapped[x] && done == 0 -> mapped[x] = true }
        :: d_step { mapped[x] -> mapped[x] = false }
#endif
        od
    }
#ifdef DEATH
    unless { me == 0 && gone }
#endif
}

/* ---- sync */

#define FORGET_ANSWER now_ended = 0; now_fenced = false

/* The thread's question to the keeper, before it has the space's lock. */
inline ask()
{
#ifdef THREADS
    if
    :: me == PROCESSES - 1 ->
        d_step { rounds++; my_round = rounds };
        if
#ifdef FAULT_ANSWER_UNWAITED
        :: d_step { asked < my_round -> asked = my_round };
            d_step { now_ended = interrupted; now_fenced = fenced };
            d_step { ended[me] = now_ended; may_write[me] = now_fenced; FORGET_ANSWER }
#else
        :: d_step { asked < my_round -> now_ended = interrupted; now_fenced = fenced };
            d_step {
                if
                :: asked < my_round -> asked = my_round; ended[me] = now_ended; may_write[me] = now_fenced
                :: else
                fi;
                FORGET_ANSWER
            }
#endif
        :: asked >= my_round
        fi;
        my_round = 0
    :: else -> d_step { ended[me] = interrupted; may_write[me] = fenced }
    fi
#else
    d_step { ended[me] = interrupted; may_write[me] = fenced }
#endif
}
/* What kernels have written: fetch_changes(). */
#define COLLECT(r) \
    if \
    :: listed[MINE(r)] -> \
        listed[MINE(r)] = false; \
        if \
        :: changed[MINE(r)] || writing[MINE(r)] -> torn = true; TELL_TORN(r); CHECK_TORN(r) \
        :: else -> far[MINE(r)] = true; untold[MINE(r)] = true \
        fi \
    :: else \
    fi
#ifdef FAULT_TORN_UNTOLD
#define TELL_TORN(r) skip
#else
#define TELL_TORN(r) untold[MINE(r)] = true
#endif

/* gvmi_region_bring_home(). */
#define BRING_HOME(r) \
    if \
    :: far[MINE(r)] -> \
        if \
        :: d_step { frame[MINE(r)] == DIRTY && !busy[MINE(r)] && !mapped[MINE(r)] -> busy[MINE(r)] = true }; \
            home_front[r] = frame_front[MINE(r)]; \
            home_back[r] = frame_back[MINE(r)]; \
            d_step { frame[MINE(r)] = CLEAN; busy[MINE(r)] = false; far[MINE(r)] = false } \
        :: d_step { frame[MINE(r)] == DIRTY && !busy[MINE(r)] && mapped[MINE(r)] -> undone = true } \
        :: d_step { frame[MINE(r)] != DIRTY && !busy[MINE(r)] -> far[MINE(r)] = false } \
        fi \
    :: else \
    fi

/* raise_version(). */
#define RAISE(r) \
    if \
    :: untold[MINE(r)] && !far[MINE(r)] && !writing[MINE(r)] -> \
        FIRST_ADDITION(r); \
        SECOND_ADDITION(r) \
    :: else \
    fi
#define RAISE_VERSION(r) \
    d_step { \
        untold[MINE(r)] = false; \
        if \
        :: version[r] != seen_version[MINE(r)] -> \
            changed[MINE(r)] = true; \
            torn = true; \
            CHECK_TORN(r) \
        :: else \
        fi; \
        version[r] = NEXT(version[r]); \
        seen_version[MINE(r)] = version[r] \
    }
#define RAISE_BLOCK(r) d_step { block = NEXT(block); seen_block[me] = NEXT(seen_block[me]) }
#ifdef FAULT_BLOCK_RAISED_FIRST
#define FIRST_ADDITION RAISE_BLOCK
#define SECOND_ADDITION RAISE_VERSION
#else
#define FIRST_ADDITION RAISE_VERSION
#ifdef FAULT_BLOCK_NOT_BEHIND
#define SECOND_ADDITION(r) d_step { block = NEXT(block); seen_block[me] = block }
#else
#define SECOND_ADDITION RAISE_BLOCK
#endif
#endif
#if defined(RACE) && REGIONS == 1
#define CHECK_TORN(r) skip
#else
#define CHECK_TORN(r) assert(unknown[r] || torn_wrongly)
#endif

/* look_at_region(). The version is loaded, then compared. */
#ifdef FAULT_VERSIONS_ORDERED
#define IS_NEWS(now, seen) ((now) > (seen))
#else
#define IS_NEWS(now, seen) ((now) != (seen))
#endif
#ifdef FAULT_UNTOLD_SEEN
#define KEEPS_SEEN(r) false
#else
#define KEEPS_SEEN(r) (untold[MINE(r)] || writing[MINE(r)])
#endif
#define LOOK_AT(r) \
    d_step { \
        if \
        :: !KEEPS_SEEN(r) && IS_NEWS(version[r], seen_version[MINE(r)]) -> \
            seen_version[MINE(r)] = version[r]; \
            changed[MINE(r)] = true \
        :: else \
        fi \
    }

/* drop_clean_frames(): those that are mapped stay. */
#define DROP(r) \
    d_step { \
        !busy[MINE(r)] -> \
        if \
        :: frame[MINE(r)] == CLEAN && !mapped[MINE(r)] -> frame[MINE(r)] = NONE \
        :: frame[MINE(r)] == CLEAN && mapped[MINE(r)] -> left = true \
        :: else \
        fi \
    }
#ifdef FAULT_DEATH_UNSEEN
#define IS_DAMAGED (now_abandoned != seen_abandoned[me])
#elif defined(FAULT_FENCED_UNSEEN)
#define IS_DAMAGED (now_abandoned != seen_abandoned[me] || ended[me] != seen_ended[me])
#else
#define IS_DAMAGED \
    (now_abandoned != seen_abandoned[me] || ended[me] != seen_ended[me] || may_write[me] || seen_may_write[me])
#endif

#ifdef FAULT_MAPPED_FORGOTTEN
#define FAULTY_DROP || true
#else
#define FAULTY_DROP
#endif
inline look()
{
    d_step { now_abandoned = abandoned; left = false; damaged = IS_DAMAGED };
    if
    :: damaged ->
        EACH_REGION(DROP);
        d_step {
            if
            :: !left FAULTY_DROP ->
                seen_abandoned[me] = now_abandoned;
                seen_ended[me] = ended[me];
                seen_may_write[me] = may_write[me]
            :: else -> undone = true
            fi;
            left = false
        };
#ifdef FAULT_DEATH_LOOKS_AT_BLOCKS
        damaged = false
#endif
    :: else
    fi;
#ifdef FAULT_BLOCK_SEEN_LAST
    d_step { news = (block != seen_block[me] || damaged); now_abandoned = 0; damaged = false };
    if
    :: news -> EACH_REGION(LOOK_AT); seen_block[me] = block
    :: else
    fi
#else
    d_step {
        news = (block != seen_block[me] || damaged);
        seen_block[me] = block;
        now_abandoned = 0;
        damaged = false
    };
    if
    :: news -> EACH_REGION(LOOK_AT); news = false
    :: else
    fi
#endif
}

/* send_changes(): a region that is BUSY is waited for, one that is mapped stays on the list. */
#define APPLY(r) \
    if \
    :: changed[MINE(r)] -> \
        d_step { \
            !busy[MINE(r)] -> \
            if \
            :: mapped[MINE(r)] -> undone = true KEEP_CHANGED(r) \
            :: else -> frame[MINE(r)] = NONE; changed[MINE(r)] = false \
            fi \
        } \
    :: else \
    fi
#ifdef FAULT_MAPPED_FORGOTTEN
#define KEEP_CHANGED(r) ; changed[MINE(r)] = false
#else
#define KEEP_CHANGED(r)
#endif

#define HAS_WORK(r) work = work || far[MINE(r)] || untold[MINE(r)]

inline sync()
{
    ask();
#ifdef THREADS
    d_step { !locked[me] -> locked[me] = true };
#endif
    d_step { EACH_REGION(COLLECT); work = false; EACH_REGION(HAS_WORK); undone = false };
    if
    :: work ->
#ifdef FAULT_RAISED_EARLY
        d_step { far_before = far[MINE(0)]; far[MINE(0)] = false };
        EACH_REGION(RAISE);
        d_step { far[MINE(0)] = far_before; far_before = false };
#endif
        EACH_REGION(BRING_HOME);
        EACH_REGION(RAISE);
        work = false
    :: else
    fi;
    look();
    EACH_REGION(APPLY);
#ifdef THREADS
    locked[me] = false
#endif
}

/* ---- what a process does in its turn */

#define FRAME_IS(x, value) (frame_front[x] == (value) && frame_back[x] == (value))
#define HOME_IS(r, value) (home_front[r] == (value) && home_back[r] == (value))
#ifdef RACE
#define IS_KNOWN(r) false
#define MAY_RACE true
#else
#define IS_KNOWN(r) (!unknown[r])
#define MAY_RACE false
#endif

/* From when the region is mapped on it stays in its frame. */
inline map()
{
    wanted[x] = true;
    d_step {
        frame[x] != NONE && !busy[x] ->
        assert(!IS_KNOWN(region) || FRAME_IS(x, synced[region]) || stale)
    }
}

#define NOTE_WRITTEN(before) \
    written = true; \
    ordered = ordered || before != 0; \
    if \
    :: !ZOMBIE -> unknown[region] = false \
    :: else \
    fi

inline write_by_kernel()
{
    map();
    d_step {
        NOTE_WRITTEN(frame_front[x]);
        frame_front[x] = value; frame_back[x] = value;
        frame[x] = DIRTY; listed[x] = true; mapped[x] = false; wanted[x] = false
    }
}

inline write_by_cpu()
{
    d_step {
        assert(!IS_KNOWN(region) || HOME_IS(region, synced[region]) || stale);
        writing[x] = true;
        NOTE_WRITTEN(home_front[region])
    };
    home_front[region] = value;
    home_back[region] = value;
    d_step { writing[x] = false; changed[x] = true; untold[x] = true }
}

/* With THREADS the last process only reads, and its threads sync once each before the end. */
#ifdef THREADS
#define HAS_THREADS (me == PROCESSES - 1)
#else
#define HAS_THREADS false
#endif

inline take_turn()
{
    d_step {
        (turn == NOBODY || MAY_RACE) && turns < TURNS && !HAS_THREADS -> turns++; turn = me; value = turns; written = false;
        region = 0
    };
#if REGIONS == 2
#ifdef RACE
    region = me; /* each its own */
#else
    if
    :: region = 0
    :: region = 1
    fi;
#endif
#endif
    d_step { turn_region = region; x = MINE(region) };
    sync_wholly();
#ifdef CPU
    if
    :: write_by_kernel()
    :: write_by_cpu()
    fi;
#else
    write_by_kernel();
#endif
#ifdef LEAVES
    if
    :: me == 0 -> goto leave
    :: true
    fi;
#endif
    sync_wholly();
    d_step { synced[region] = value; written = false; turn = NOBODY; value = 0; x = 0; region = 0; turn_region = 0 }
}

/* Until nothing was mapped meanwhile that was to be exchanged. */
inline sync_wholly()
{
    do
    :: sync();
        if
        :: undone
        :: else -> break
        fi
    od;
    skip
}

#define CHECK_SAME(r) \
    d_step { \
        !busy[MINE(r)] -> \
        assert(frame[MINE(r)] == NONE || (frame_front[MINE(r)] == home_front[r] && frame_back[MINE(r)] == home_back[r]) || differ) \
    }

proctype Host(byte me)
{
    byte region, x, value, now_abandoned, now_ended, my_round;
    bool now_fenced, left, damaged, undone, far_before, work, news;
#ifdef RACE
    bool has_written;
#endif

    {
        do
#ifdef RACE
        :: d_step { !has_written -> has_written = true }; take_turn()
        :: has_written && turns == TURNS -> break
#else
        :: take_turn()
        :: turn != me && turns < TURNS && !HAS_THREADS -> sync()
        :: turn == NOBODY && (turns == TURNS || (HAS_THREADS && gone)) -> break
#endif
        od;
        sync_wholly();
        done++;
        done >= PROCESSES - (killed || leaving) && (!killed || gone);
        sync_wholly();
        EACH_REGION(CHECK_SAME);
#ifdef RACE
        assert(REGIONS == 2 || torn || ordered || torn_unreported);
#endif
        goto over;
#ifdef LEAVES
leave:  /* gvm_collection_destroy(), of which kernels have ended */
        leaving = true;
#ifndef FAULT_LEFT_BEFORE_COPIES
        !busy[x];
#endif
        d_step {
            if
            :: untold[x] || listed[x] -> abandoned++
            :: else
            fi;
            unknown[region] = true;
            turn = NOBODY
        };
#endif
over:   skip
    }
#ifdef DEATH
    unless { me == 0 && killed }
#endif
}

#ifdef THREADS
/* The other thread of the last process. */
proctype Syncer(byte me)
{
    byte now_abandoned, now_ended, my_round;
    bool now_fenced, left, damaged, undone, far_before, work, news;

    sync()
}
#endif

/* ---- the end of process 0 */

#define FREE_ITS_TURN \
    if \
    :: turn == 0 -> turn = NOBODY \
    :: else \
    fi

proctype Death()
{
    d_step {
        killed = true;
        if
        :: turn == 0 && written -> unknown[turn_region] = true
        :: else
        fi;
#ifdef CUT_OFF
        fenced = true;
        interrupted++;
        FREE_ITS_TURN
#endif
    };
#ifdef FAULT_COUNTED_EARLY
    interrupted++;
#endif
    d_step {
        gone = true;
        fenced = false;
#if !defined(FAULT_COUNTED_EARLY) && !defined(CUT_OFF)
        interrupted++;
#endif
        FREE_ITS_TURN
    }
}

init
{
    byte i;

    atomic {
        for (i : 0 .. PROCESSES - 1) {
            run Kernels(i, 0);
#if REGIONS == 2
            run Kernels(i, 1);
#endif
            run Host(i)
        }
#ifdef THREADS
        run Syncer(PROCESSES - 1);
#endif
#ifdef DEATH
        run Death()
#endif
    }
}

#ifdef ENDS
ltl ends
{
    <>[](done >= PROCESSES - (killed || leaving))
}
#endif
