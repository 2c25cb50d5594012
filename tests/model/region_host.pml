/* The host in region.pml, which includes it: sync and the CPU's maps, with the kernels that do their
 * part on the device. They are one process, as they hold the space's lock. A kernel that finds a
 * region mapped leaves it and reports it; here the host waits then until it can go on, or gives up. */

/* A sync that applies what the host wrote: nothing is left to do for a region that is invalid. */
#ifdef FAULT_SYNC_SKIPS_FETCHING
#define IS_INVALID(r) (!IS(r, RESIDENT))
#elif defined(FAULT_SYNC_SKIPS_COMING)
#define IS_INVALID(r) (!IS(r, RESIDENT | BUSY))
#else
#define IS_INVALID(r) (!IS(r, RESIDENT | BUSY | COPYING))
#endif

#ifndef CLEAN
#define stop_cleaning() skip
#define resume_cleaning() skip
#endif
#ifdef FAULT_SYNC_IGNORES_REFERENCES
#define IS_UNUSED(r) (!IS(r, BUSY))
#else
#define IS_UNUSED(r) (!IS(r, BUSY | REFERENCES))
#endif

#ifdef FAULT_HOST_IGNORES_BUSY
#define MUST_WRITE_HOME(r) (IS(r, DIRTY) && !IS(r, BUSY))
#define CANNOT_WRITE_HOME(r) (IS(r, DIRTY) && !IS(r, BUSY) && REFS(r) != 0)
#else
#define MUST_WRITE_HOME(r) IS(r, DIRTY)
#define CANNOT_WRITE_HOME(r) (IS(r, BUSY) || (IS(r, DIRTY) && REFS(r) != 0))
#endif

inline choose_region()
{
    if
    :: r = 0
    :: r = 1
#if REGIONS == 3
    :: r = 2
#endif
    fi
}

#ifdef FAULT_LIST_RESET
#define IS_STORED(e) true
#else
#define IS_STORED(e) ((e) != FREE)
#endif

#ifdef FAULT_COUNTED_UNWAITED
#define IS_COUNTED(r) true
#else
#define IS_COUNTED(r) (listed[r] == COUNTED)
#endif

/* The list of changes comes to the host. An entry that was claimed and not stored yet is waited for, and so is COUNTED, which
 * would else be said of the next change. What was written before, the host then knows of. */
#define IS_NEWS(r) (home_new[r] != WHOLE && !far[r])
#define IS_KNOWN(r) ((news & BIT(r)) == 0 || !IS_NEWS(r))
#define BIT(r) (1 << (r))
#define NEWS(r) (IS_NEWS(r) -> BIT(r) : 0)
inline collect()
{
    WHOLLY
        STEP
            count = entries;
#if REGIONS == 3
            news = NEWS(0) | NEWS(1) | NEWS(2)
#else
            news = NEWS(0) | NEWS(1)
#endif
        }
        do
        :: STEP
               count > 0 && IS_STORED(entry[first]) ->
               x = entry[first];
               entry[first] = FREE;
               first = (first + 1) % REGIONS;
#ifndef FAULT_LIST_RESET
               entries--;
#endif
               count--
           }
           if
           :: STEP
                  x != FREE ->
                  far[x] = true
              }
              STEP
                  IS_COUNTED(x) ->
                  listed[x] = NO
              }
              STEP
                  !IS(x, BUSY) ->
                  word[x] = word[x] & ~LISTED;
                  x = 0
              }
           :: STEP
                  x == FREE ->
                  x = 0
              }
           fi
        :: STEP
               count == 0 ->
               assert(EVERY_REGION(IS_KNOWN) || host_reads_old);
               news = 0;
#ifdef FAULT_LIST_RESET
               entries = 0;
#endif
#if defined(FAULT_LIST_RESET) || !defined(LIST) /* where an empty ring begins does not matter */
               first = (entries == 0 -> 0 : first);
#endif
               break
           }
        od
    }
}

/* The frame of a region that the host has BUSY is for others, if there is one. The record is changed
 * first: it never names a region that is not there. */
inline free_frame(x)
{
    atomic {
        if
        :: IN_FRAME(word[x]) ->
           f = SLOT_OF(word[x]);
           owner[f] = FREE;
           f = 0
        :: else
        fi
    }
    atomic { word[x] = word[x] - (word[x] & ~REFERENCES) }
}

inline host_copies_home(x)
{
    atomic {
        f = SLOT_OF(word[x]);
        COPY_HOME(f, x, FRONT)
    }
    atomic {
        COPY_HOME(f, x, BACK);
        f = 0
    }
}

proctype Host()
{
    byte r, f, x, count, news;

end_idle:
    do
#ifdef SYNC
    :: entries > 0 -> /* a sync while kernels write */
       collect()
    :: atomic { /* a sync, then a map by the CPU: no kernel has mapped the region for writing, nor will */
           choose_region();
           if
           :: writers[r] == 0 ->
              host_has[r] = true
           :: else ->
              r = 0;
              goto end_idle
           fi
       }
       collect();
#ifdef CLEAN
       if
       :: far[r] -> stop_cleaning()
       :: else
       fi;
#endif
       if
#ifdef FAULT_CPU_FILL_LEAVES_DIRTY
       :: atomic {
              write_at(r, HOME);
              pending[r] = true;
              goto syncs
          }
#endif
       :: atomic {
              far[r] && CANNOT_WRITE_HOME(r) ->
#ifdef FAULT_FAR_FORGOTTEN
              far[r] = false;
#endif
              host_has[r] = false;
              r = 0;
              resume_cleaning();
              goto end_idle
          }
       :: atomic {
              far[r] && !CANNOT_WRITE_HOME(r) && MUST_WRITE_HOME(r) ->
              word[r] = word[r] + BUSY
          }
          host_copies_home(r);
          atomic {
              word[r] = word[r] - BUSY - (word[r] & (DIRTY | LISTED));
              far[r] = false
          }
       :: atomic {
              far[r] && !CANNOT_WRITE_HOME(r) && !MUST_WRITE_HOME(r) ->
              far[r] = false
          }
       :: atomic { !far[r] }
       fi;
       atomic {
           resume_cleaning();
           assert(home_new[r] == WHOLE || host_reads_old);
           if
           :: true -> /* the map was for reading */
              host_has[r] = false;
              r = 0;
              goto end_idle
           :: write_at(r, HOME);
              pending[r] = true
#ifdef DELETES
           :: goto deletes
#endif
           fi
       }
syncs:
       stop_cleaning();
       if /* the next syncs, until the region is invalid */
       :: atomic { IS_INVALID(r) }
       :: atomic {
              IS(r, REMOTE) && IS_UNUSED(r) ->
              word[r] = word[r] - RESIDENT - REMOTE
          }
       :: atomic {
              !IS_INVALID(r) && !IS(r, REMOTE) && IS_UNUSED(r) ->
              word[r] = word[r] + BUSY
          }
          free_frame(r)
       fi;
       atomic {
           resume_cleaning();
           pending[r] = false;
           host_has[r] = false;
           r = 0
       };
       goto end_idle;
#ifdef DELETES
deletes:
       stop_cleaning();
       if
#ifdef FAULT_DELETE_UNCLAIMED
       :: atomic { IS_INVALID(r) };
          atomic { exists[r] = false }
       :: atomic {
              !IS_INVALID(r) && IS_UNUSED(r) ->
#else
       :: atomic {
              IS_UNUSED(r) ->
#endif
              word[r] = word[r] + BUSY - FLAG(IS(r, REMOTE), RESIDENT | REMOTE)
          }
          atomic { exists[r] = false }
          free_frame(r)
       fi;
       resume_cleaning();
       atomic { write_at(r, HOME) } /* the number is given to a new region: its first data */
       atomic {
           exists[r] = true;
           host_has[r] = false;
           r = 0
       }
#endif
#endif
#ifdef CHUNKS
    :: atomic { /* a sync takes a frame away */
           if
           :: f = 0
#if FRAMES == 2
           :: f = 1
#endif
           fi;
           closed[f] = true
       }
       stop_cleaning();
       if
       :: atomic { owner[f] == COMING -> goto opens } /* it is waited for */
       :: atomic {
              owner[f] == FREE ->
#ifndef FAULT_CLOSED_IS_FREE
              owner[f] = CLOSED
#endif
          }
       :: atomic { owner[f] < FREE -> r = owner[f] }
          atomic {
              if
              :: IS_VICTIM(r, f) -> word[r] = word[r] + BUSY
              :: else -> goto opens /* it is mapped */
              fi
          }
          if
          :: atomic { IS(r, DIRTY) -> COPY_HOME(f, r, FRONT) }
             atomic { COPY_HOME(f, r, BACK) }
          :: atomic { !IS(r, DIRTY) }
          fi;
#ifdef FAULT_CLOSED_IS_FREE
          atomic { owner[f] = FREE }
#else
          atomic { owner[f] = CLOSED }
#endif
          atomic { word[r] = word[r] - (word[r] & ~REFERENCES) }
       fi;
       atomic {
           gone[f] = true;
           frame_has[f] = FREE;
           frame_new[f] = 0
       }
       atomic { /* and gives it back */
           gone[f] = false;
           owner[f] = (owner[f] == CLOSED -> FREE : owner[f])
       }
opens:
       atomic {
           resume_cleaning();
           closed[f] = false;
           r = 0;
           f = 0
       }
#endif
    :: break
    od
}
