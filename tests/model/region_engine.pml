/* The copy engine in region.pml, which includes it, and who has it copy: a batch of one region that is cleaned, and
 * one that is brought. Threads of any kernel make a batch and end it, so that is a process of its own. */

/* ---- written home ahead of need */
#ifdef CLEAN

/* Whose turn it is. */
#define NOTHING 0
#define BATCH 1  /* the engine may begin */
#define UNDER_WAY 2
#define COPIED 3
#define STOPPED 4 /* the host has stopped it */

byte turn, batch_region, batch_frame;

#ifdef FAULT_CLEAN_REFERENCED
#define MAY_CLEAN(r, f) (IN_FRAME(word[r]) && !IS(r, BUSY | COPYING) && SLOT_OF(word[r]) == f && IS(r, DIRTY))
#else
#define MAY_CLEAN(r, f) (IS_VICTIM(r, f) && IS(r, DIRTY))
#endif

/* What goes when a region comes to the batch, and when that ends. */
#if defined(FAULT_CLEAN_AT_THE_END)
#define GOES_FIRST 0
#define GOES_LAST (COPYING | DIRTY | LISTED)
#elif defined(FAULT_CLEAN_STAYS_LISTED)
#define GOES_FIRST DIRTY
#define GOES_LAST COPYING
#else
#define GOES_FIRST (DIRTY | LISTED)
#define GOES_LAST COPYING
#endif

#define HAS_REGION(f) (owner[f] < FREE)

proctype Cleaner()
{
    byte f, r;

end_idle:
    if
    :: atomic {
           turn == NOTHING && HAS_REGION(0) ->
           r = owner[0]
       }
       goto looks
#if FRAMES == 2
    :: atomic {
           turn == NOTHING && HAS_REGION(1) ->
           f = 1;
           r = owner[1]
       }
       goto looks
#endif
    :: atomic {
           turn == COPIED ->
           word[batch_region] = word[batch_region] & ~GOES_LAST;
           batch_region = 0;
           batch_frame = 0;
           turn = NOTHING;
           goto end_idle
       }
    fi;
looks:
    atomic {
        if
        :: turn == NOTHING && MAY_CLEAN(r, f) ->
           word[r] = (word[r] & ~GOES_FIRST) | COPYING;
           batch_region = r;
           batch_frame = f;
           turn = BATCH
        :: else
        fi;
        f = 0;
        r = 0
    }
    goto end_idle
}

proctype Engine()
{
end_idle:
    atomic {
        turn == BATCH ->
        turn = UNDER_WAY
    }
    atomic {
        assert(!gone[batch_frame] || closed_frame_used);
        COPY_HOME(batch_frame, batch_region, FRONT)
    }
    atomic {
        COPY_HOME(batch_frame, batch_region, BACK);
        turn = COPIED
    }
    goto end_idle
}

/* Of the host: no copy is under way from then on. A batch that is not copied is given up. */
inline stop_cleaning()
{
    atomic {
#ifndef FAULT_COPIES_UNWAITED
        turn != UNDER_WAY ->
#endif
        if
        :: turn == BATCH -> word[batch_region] = (word[batch_region] | DIRTY) & ~COPYING
        :: turn == COPIED -> word[batch_region] = word[batch_region] & ~COPYING
        :: else
        fi;
#ifdef FAULT_GIVEN_UP_AND_COPIED
        turn = (turn == BATCH -> BATCH : STOPPED)
#else
#ifdef FAULT_COPIES_UNWAITED
        turn = (turn == UNDER_WAY -> UNDER_WAY : STOPPED)
#else
        turn = STOPPED
#endif
#endif
    }
}

inline resume_cleaning()
{
    turn = (turn == STOPPED -> NOTHING : turn)
}
#else
#define stop_cleaning() skip
#define resume_cleaning() skip
#endif

/* ---- brought by the engine */
#ifdef BRING

#define MAY_BRING(r) \
    (exists[r] && !IS(r, BUSY) && REFS(r) == 0 && !IN_FRAME(word[r]))

#ifdef FAULT_BRING_BLINDLY
#define IS_WANTED(r) (!IS(r, BUSY | RESIDENT))
#else
#define IS_WANTED(r) ((word[r] & (COPYING | BUSY | RESIDENT)) == COPYING)
#endif

proctype Bringer()
{
    byte r, f, v;

end_idle:
    atomic {
        if
        :: MAY_BRING(0)
        :: MAY_BRING(1) -> r = 1
#if REGIONS == 3
        :: MAY_BRING(2) -> r = 2
#endif
        fi;
        word[r] = BUSY
    }
    if /* the hand, or it gives up */
    :: atomic {
           owner[0] == FREE || (owner[0] < FREE && IS_VICTIM(owner[0], 0) && !IS(owner[0], DIRTY)) ->
           f = 0
       }
#if FRAMES == 2
    :: atomic {
           owner[1] == FREE || (owner[1] < FREE && IS_VICTIM(owner[1], 1) && !IS(owner[1], DIRTY)) ->
           f = 1
       }
#endif
    :: atomic {
           word[r] = word[r] - BUSY;
           r = 0;
           goto end_idle
       }
    fi;
    atomic { /* a clean region leaves it */
        v = owner[f];
        if
        :: v == FREE -> owner[f] = COMING
        :: v < FREE && IS_VICTIM(v, f) && !IS(v, DIRTY) ->
           word[v] = word[v] & REFERENCES;
           owner[f] = COMING
        :: else ->
           word[r] = word[r] - BUSY;
           v = 0;
           f = 0;
           r = 0;
           goto end_idle
        fi;
        v = 0
    }
    atomic { word[r] = word[r] - BUSY + COPYING }
    atomic { /* the engine */
        assert(!gone[f] || closed_frame_used);
        frame_has[f] = r;
        frame_new[f] = home_new[r] & FRONT
    }
    atomic { frame_new[f] = frame_new[f] | (home_new[r] & BACK) }
    atomic { /* a kernel after it */
        if
        :: IS_WANTED(r) -> word[r] = word[r] + BUSY
        :: else ->
           owner[f] = FREE;
           f = 0;
           r = 0;
           goto end_idle
        fi
    }
    atomic { owner[f] = r }
    atomic {
        word[r] = word[r] + RESIDENT + SLOT(f) - BUSY - (word[r] & COPYING);
        f = 0;
        r = 0
    }
    goto end_idle
}
#endif
