/* region.pml - the protocol of regions (docs/design/region.md), for SPIN.
 *
 * Leaders of warps that map and unmap (region_warp.pml), the copy engine (region_engine.pml), and the host with the kernels of a
 * sync (region_host.pml). Warps go on for ever, or stop when they have nothing mapped. README.md
 * tells what is modelled and what is not.
 *
 * -D WARPS=n       default 2
 * -D REGIONS=2|3   default 2
 * -D FRAMES=1|2    default 1
 * -D DEPTH=1|2     regions that a warp has mapped at once, default 1
 * -D ROUNDS=n      each warp maps at most n times; otherwise without end
 * -D READS         there are no maps but for reading
 * -D WRITE_ONLY    there are maps that fetch nothing, too
 * -D NO_REMOTE     who finds no frame waits for one
 * -D SYNC          the host maps regions, and writes them; the next sync tells the device
 * -D LIST          with SYNC: the list of changes is not changed in one step
 * -D DELETES       with SYNC: the host deletes regions and uses their numbers again
 * -D CLEAN         dirty regions are written home ahead of need by the copy engine
 * -D BRING         the copy engine brings regions to frames
 * -D CHUNKS        the host takes frames away, and gives them back
 * -D ENDS          the property that every run ends (below); searches for a frame are bounded
 * -D FAULT_...     one planted fault; region.sh lists them
 */
#ifndef WARPS
#define WARPS 2
#endif
#ifndef REGIONS
#define REGIONS 2
#endif
#ifndef FRAMES
#define FRAMES 1
#endif
#ifndef DEPTH
#define DEPTH 1
#endif

/* Modes of a map. A write-only map is one for writing as soon as something was written. */
#define READ 1
#define WRITE 2
#define FILL 3

/* The word of a region. Uses are left out: they only make compare-and-swaps fail. */
#define REFERENCES 7
#define RESIDENT 8
#define DIRTY 16
#define BUSY 32
#define REMOTE 64
#define LISTED 128
#define COPYING 256
#define SLOT(f) (512 * (f))
#define SLOT_OF(w) ((w) >> 9) /* of a word that is not REMOTE */
#define HOME 3                /* the slot of a word that is REMOTE */
#define FLAG(is, flag) ((is) -> (flag) : 0)
#define REFS(r) (word[r] & REFERENCES)
#define IS(r, flag) ((word[r] & (flag)) != 0)
#define IN_FRAME(w) (((w) & (RESIDENT | REMOTE)) == RESIDENT)

/* The record of a frame: a region, or one of these. */
#define FREE 6
#define CLOSED 7 /* taken away */
#define COMING 8 /* the copy engine brings a region */

#define NO 0
#define CHANGED 1
#define COUNTED 2

/* The list of changes in its steps, or each change and each look at it in one. */
#ifdef LIST
#define WHOLLY {
#define STEP atomic {
#else
#define WHOLLY atomic {
#define STEP {
#endif

/* Contents: a copy goes in two steps, and each half is as it was written last or is not. */
#define FRONT 1
#define BACK 2
#define WHOLE 3

/* Never true: they name the assertion in SPIN's output. */
bit reference_lost, word_wrong, record_wrong, dropped, evicted_while_mapped, lost_update, host_reads_old, closed_frame_used;

/* ---- device memory */
short word[REGIONS];
byte owner[FRAMES] = FREE; /* the frames' records */
byte listed[REGIONS];      /* in the region's record: NO, CHANGED: its number will be in the list of changes, or COUNTED: it is there */
byte entry[REGIONS] = FREE; /* the list, a ring; FREE: not stored yet, or taken */
byte first, entries;        /* of the ring: where it begins, and how many were claimed */
bool exists[REGIONS] = true;
bool leaving[FRAMES]; /* the region that its record names was evicted, and the record will be changed; for the assertions */
bool closed[FRAMES];  /* the hand does not come there any more */

/* ---- the host's memory */
bool far[REGIONS]; /* its table says that the newest data is on the device */

/* ---- what is there, for the assertions */
byte home_new[REGIONS] = WHOLE;
byte frame_has[FRAMES] = FREE; /* the region whose data it has */
byte frame_new[FRAMES];
byte maps[REGIONS];      /* that were not unmapped, and leaders that wait */
byte writers[REGIONS];   /* those of them that are for writing */
byte undefined[REGIONS]; /* write-only maps whose warp did not write yet */
bool host_has[REGIONS];  /* the host has it mapped, or wrote it since the last sync: no kernel writes it */
bool pending[REGIONS];   /* the host wrote it: kernels may find the old data until the sync */
bool gone[FRAMES];       /* there is no memory behind it */

#define IS_NEW(r, place) \
    ((place) == HOME -> home_new[r] == WHOLE : (frame_has[place] == r && frame_new[place] == WHOLE))

#define MAKE_OLD(f, r, place) frame_new[f] = (frame_has[f] == r && f != place -> 0 : frame_new[f])

/* The region's data is written at a place. All other copies are out of date. */
inline write_at(r, place)
{
    home_new[r] = 0;
    MAKE_OLD(0, r, place);
#if FRAMES == 2
    MAKE_OLD(1, r, place);
#endif
    if
    :: place == HOME -> home_new[r] = WHOLE
    :: else -> frame_new[place] = WHOLE
    fi
}

/* A step of copying: half of a frame goes home. */
#define COPY_HOME(f, r, half) \
    home_new[r] = (home_new[r] & (WHOLE - half)) | (frame_has[f] == r -> frame_new[f] & half : 0)

/* ---- what the leader of a warp does, and a kernel of sync likewise */

/* The compare-and-swap that sets BUSY to evict: the word that was read has no references and says that
 * the region is in this frame, and the word is still the same. That both are one step here loses nothing:
 * one that fails goes on. */
#ifdef FAULT_SLOT_NOT_COMPARED
#define SAYS_FRAME(w, f) true
#else
#define SAYS_FRAME(w, f) (SLOT_OF(w) == f)
#endif
#ifdef FAULT_EVICT_COPYING
#define STAYS 0
#else
#define STAYS COPYING
#endif
#define IS_VICTIM(v, f) \
    ((word[v] & (RESIDENT | BUSY | REMOTE | STAYS | REFERENCES)) == RESIDENT && SAYS_FRAME(word[v], f))

#if FRAMES == 2
#define EVERY_FRAME(f) (f(0) && f(1))
#else
#define EVERY_FRAME(f) f(0)
#endif
#if REGIONS == 3
#define EVERY_REGION(f) (f(0) && f(1) && f(2))
#else
#define EVERY_REGION(f) (f(0) && f(1))
#endif

#include "region_warp.pml"
#if defined(CLEAN) || defined(BRING)
#include "region_engine.pml"
#endif
#if defined(SYNC) || defined(CHUNKS)
#define HOST
#include "region_host.pml"
#endif

/* ---- invariants, looked at in every state */

/* The table of states. With BUSY alone it is fetched, or deleted. Invalid, the copy engine may bring it. */
#define ALONE(r, flag) ((word[r] & ~REFERENCES) == (flag))
#define WORD_IS_RIGHT(r) \
    (ALONE(r, 0) || ALONE(r, BUSY) || ALONE(r, COPYING) || ALONE(r, COPYING | BUSY) || ALONE(r, RESIDENT | REMOTE) || (IN_FRAME(word[r]) && SLOT_OF(word[r]) < FRAMES))

/* R1, and so R2 of those that nobody changes: a record names a region that is in the frame, BUSY, or has just left; a region that is not BUSY
 * is named by its frame. R4: without DIRTY, and not on its way home, the home is as it was written last. R6. */
#define RECORD_IS_RIGHT(f) \
    (owner[f] >= FREE || leaving[f] || IS(owner[f], BUSY) || (IN_FRAME(word[owner[f]]) && SLOT_OF(word[owner[f]]) == f))
#define IS_NAMED(r) (IS(r, BUSY) || !IN_FRAME(word[r]) || owner[SLOT_OF(word[r])] == r)
#define IS_CLEANED(r) (IS(r, COPYING) && IN_FRAME(word[r]))
#define IS_SAVED(r) (IS(r, DIRTY) || IS_CLEANED(r) || home_new[r] == WHOLE || !exists[r])
#define IS_COUNTED(r) (REFS(r) == maps[r])

active proctype Invariants()
{
end_idle:
    if
    :: atomic { !EVERY_REGION(IS_COUNTED) -> assert(reference_lost) }
    :: atomic { !EVERY_REGION(WORD_IS_RIGHT) -> assert(word_wrong) }
    :: atomic { !EVERY_FRAME(RECORD_IS_RIGHT) || !EVERY_REGION(IS_NAMED) -> assert(record_wrong) }
    :: atomic { !EVERY_REGION(IS_SAVED) -> assert(dropped) }
    fi
}

init
{
    atomic {
        run Warp();
        run Warp();
#if WARPS == 3
        run Warp();
#endif
#ifdef CLEAN
        run Cleaner();
        run Engine();
#endif
#ifdef BRING
        run Bringer();
#endif
#ifdef HOST
        run Host()
#endif
    }
}

/* With ROUNDS, and weak fairness, by which each process goes on that can. */
#ifdef ENDS
ltl ends
{
    <>[](ended == WARPS)
}
#endif
