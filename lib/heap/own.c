/* Shelves: free blocks that their thread takes and puts without a lock.
 *
 * A shelf belongs to one thread, one heap and one arena, and has a bin for each size in units. Its
 * thread owns it, while it takes or puts, by an exchange on the shelf's own cache line, which nobody else
 * touches but to count, check, trim or end; these hold the heap's lock. So a thread waits for no lock
 * at its own shelf, and while one holds the heap's lock and owns all shelves, nothing in the heap changes.
 */
#include <sched.h>
#include <time.h>

#include "base/assert.h"
#include "heap/heap.h"

#define YIELDS 16
#define PAUSE_NS 50000

_Thread_local gvmi_shelf *gvmi_shelf_mine __attribute__((tls_model("initial-exec")));

/* Once, for a thread that owns a shelf less than a microsecond while it runs. Sleeps after a few:
 * sched_yield() lets no thread of a lower priority run, as that one may be. */
void gvmi_shelf_wait(unsigned *waits)
{
    const struct timespec pause = {0, PAUSE_NS};

    if ((*waits)++ < YIELDS)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

void gvmi_shelf_own_locked(gvmi_shelf *shelf)
{
    unsigned waits = 0;

    while (!gvmi_shelf_own(shelf))
        gvmi_shelf_wait(&waits);
}

void gvmi_shelves_own_locked(gvm_heap *heap)
{
    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_HEAP));
    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = LIST_NEXT(shelf, entry))
        gvmi_shelf_own_locked(shelf);
}

void gvmi_shelves_leave_locked(gvm_heap *heap)
{
    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL; shelf = LIST_NEXT(shelf, entry))
        gvmi_shelf_leave(shelf);
}

/* A shelf of this thread, if it owns it, is owned by the call that waits here. */
void gvmi_shelves_pass_locked(gvm_heap *heap)
{
    for (gvmi_shelf *shelf = LIST_FIRST(&heap->shelves); shelf != NULL;
         shelf = LIST_NEXT(shelf, entry)) {
        const gvmi_shelf *mine = gvmi_shelf_mine;

        while (mine != NULL && mine != shelf)
            mine = mine->mine;
        if (mine == NULL) {
            gvmi_shelf_own_locked(shelf);
            gvmi_shelf_leave(shelf);
        }
    }
}
