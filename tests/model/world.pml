/* The rest of the world of keeper.pml, which includes it: memory, and what starts everything. */

/* Lets stores out, in any order and at any time. */
proctype Memory()
{
end_idle:
    do
    :: atomic {
           buffered[0] != EMPTY ->
           permit[0] = buffered[0];
           buffered[0] = EMPTY
       }
    :: atomic {
           buffered[1] != EMPTY ->
           permit[1] = buffered[1];
           buffered[1] = EMPTY
       }
    od
}

#ifdef KILLS
#define MAY_DIE (alive[0] && !calm)
#else
#define MAY_DIE false
#endif

proctype World()
{
end_idle:
    do
    :: atomic {
           MAY_DIE ->
           alive[0] = false;
           stopped[0] = false;
           slow[0] = false;
           reply[0] = 0;
           reply[1] = 0
       }
    :: atomic {
           !calm ->
           calm = true
       }
    od
}

init
{
    atomic {
        fresh[DEVICE] = 1;
        permit[0] = P_READ;
        permit[1] = P_READ;
        run Memory();
        run World();
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
 * assumed, which has every process go on that can, and the world calm down. */
#ifdef ENDS
ltl ends
{
    <>[]((state == SHARED || state == EXCLUSIVE) && (reply[0] != WAITS || stopped[0]) &&
         reply[2] != WAITS)
}
#endif
