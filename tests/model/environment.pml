/* The environment of keeper.pml, which includes it: memory, and what starts everything. */

#define LETS_OUT(c) \
    :: atomic { \
           buffered[c] != EMPTY -> \
           permit[c] = buffered[c]; \
           buffered[c] = EMPTY \
       }

/* Lets stores out, in any order and at any time. */
proctype Memory()
{
end_idle:
    do
    LETS_OUT(0)
    LETS_OUT(1)
#if CLIENTS == 3
    LETS_OUT(2)
#endif
    od
}

#if defined(KILLS)
#define MAY_DIE(c) (alive[c] && !quiet)
#elif defined(EXITS)
#define MAY_DIE(c) (alive[c] && closed[c])
#else
#define MAY_DIE(c) false
#endif
#define DIES(c) \
    :: atomic { \
           MAY_DIE(c) -> \
           alive[c] = false; \
           stopped[c] = false; \
           slow[c] = false; \
           reply[FIRST(c)] = 0; \
           reply[LAST(c)] = 0 \
       }

proctype Environment()
{
end_idle:
    do
    DIES(0)
#if CUTS == 2
    DIES(1)
#endif
    :: atomic {
           !quiet ->
           quiet = true
       }
    od
}

#define BEGINS(c) \
    follows[c] = !IS_LAZY(c); \
    ready[c] = !IS_LAZY(c); \
    permit[c] = (IS_LAZY(c) -> P_NONE : P_READ); \
    mapped[c] = (IS_LAZY(c) -> NOWHERE : DEVICE)

init
{
    atomic {
        fresh[DEVICE] = 1;
        EACH(BEGINS);
#if CLIENTS == 3
        run Mapper(2);
#endif
        run Memory();
        run Environment();
        run Keeper();
        run Mapper(0);
        run Mapper(1);
        run Thread(0);
#if THREADS == 3
        run Thread(1);
#endif
        run Thread(2)
    }
}

/* With ROUNDS: whatever happens, at last no permit is withdrawn and no thread waits. Weak fairness is
 * assumed, which has every process go on that can, and that moves, deaths and cuts end. Permits stay withdrawn
 * only from an object that is fenced, and while nobody asks. */
#ifdef ENDS
ltl ends
{
    <>[]((state == SHARED || state == EXCLUSIVE || (state == DRAINING && FENCED)) &&
         (reply[0] != WAITS || stopped[0]) && reply[2] != WAITS)
}
#endif
