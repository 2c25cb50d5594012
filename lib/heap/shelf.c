/* Threads' shelves: free blocks that their thread takes and puts without a lock.
 *
 * A shelf belongs to one thread, one heap and one arena, and has a bin for each size in units. Its
 * owner claims it by an exchange on the shelf's own cache line, which nobody else touches but to
 * count, check, trim or end; these hold the heap's lock. So a thread waits for no lock at its own shelf,
 * and while one holds the heap's lock and has claimed all shelves, nothing in the heap changes.
 *
 * Life: the thread finds its shelves through a thread-local list, the heap through its own. When the
 * heap (or the stream) ends first, the shelf is left claimed and unused, and the thread frees it
 * when it next meets it, or ends. When the thread ends first, it empties the shelf and frees it; if
 * the heap is just ending, it leaves the shelf to it, as an orphan.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/registry.h"
#include "heap/heap.h"

#define YIELDS 16
#define PAUSE_NS 50000

_Thread_local gvmi_shelf *gvmi_shelf_mine __attribute__((tls_model("initial-exec")));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor runs when a thread ends */
static bool key_made;

/* ---- claiming */

/* One wait for the owner, which holds its claim for less than a microsecond while it runs. Sleeps after a few:
 * sched_yield() lets no thread of a lower priority run, as the owner may be. */
static void wait_for_owner(unsigned *waits)
{
    const struct timespec pause = {0, PAUSE_NS};

    if ((*waits)++ < YIELDS)
        sched_yield();
    else
        nanosleep(&pause, NULL);
}

void gvmi_shelf_claim_locked(gvmi_shelf *shelf)
{
    unsigned waits = 0;

    while (!gvmi_shelf_claim(shelf))
        wait_for_owner(&waits);
}

void gvmi_shelves_claim_locked(gvm_heap *heap)
{
    GVM_ASSERT(gvmi_lock_held(GVMI_RANK_HEAP));
    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next)
        gvmi_shelf_claim_locked(shelf);
}

void gvmi_shelves_release_locked(gvm_heap *heap)
{
    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next)
        gvmi_shelf_release(shelf);
}

/* The thread's own claim, if it has it, is that of the call that waits here. */
void gvmi_shelves_pass_locked(gvm_heap *heap)
{
    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = shelf->next) {
        const gvmi_shelf *mine = gvmi_shelf_mine;

        while (mine != NULL && mine != shelf)
            mine = mine->mine;
        if (mine == NULL) {
            gvmi_shelf_claim_locked(shelf);
            gvmi_shelf_release(shelf);
        }
    }
}

/* ---- emptying */

void gvmi_shelf_tell(gvmi_shelf *shelf)
{
    gvmi_heap_note_requested(shelf->heap, shelf->requested);
    shelf->requested = 0;
}

static void give_from_bin(gvmi_shelf *shelf, uint32_t units, unsigned count)
{
    for (; count > 0; count--) {
        gvmi_block *block = shelf->bins[units];

        shelf->bins[units] = block->next;
        shelf->counts[units]--;
        shelf->bytes -= (uint64_t)units << GVMI_HEAP_UNIT_SHIFT;
        gvmi_heap_give_locked(shelf->heap, block);
    }
}

/* From every bin the same share, so that each size finds something the next time. */
void gvmi_shelf_empty_locked(gvmi_shelf *shelf, uint64_t keep_bytes)
{
    gvmi_shelf_tell(shelf);
    while (shelf->bytes > keep_bytes)
        for (uint32_t units = GVMI_HEAP_SHELF_UNITS; units > 0 && shelf->bytes > keep_bytes; units--)
            give_from_bin(shelf, units, (shelf->counts[units] + 1u) / 2);
}

/* ---- the end */

static void unlink_locked(gvmi_shelf *shelf)
{
    *shelf->link = shelf->next;
    if (shelf->next != NULL)
        shelf->next->link = shelf->link;
}

void gvmi_shelves_end_locked(gvm_heap *heap, const gvmi_arena *arena)
{
    gvmi_shelf *next;

    for (gvmi_shelf *shelf = heap->shelves; shelf != NULL; shelf = next) {
        next = shelf->next;
        if (arena != NULL && shelf->arena != arena)
            continue;
        gvmi_shelf_empty_locked(shelf, 0);
        unlink_locked(shelf);
        if (shelf->orphan)
            free(shelf);
        else
            atomic_store_explicit(&shelf->dead, true, memory_order_release);
    }
}

/* Drops the thread's reference to a shelf of its own that is no longer in its list. */
static void drop_own_shelf(gvmi_shelf *shelf)
{
    unsigned waits = 0;
    gvm_heap *heap;

    if (gvmi_heap_hold(shelf->handle, &heap) == GVM_OK) {
        bool dead;

        gvmi_lock(&heap->lock);
        dead = atomic_load_explicit(&shelf->dead, memory_order_acquire);
        if (!dead) {
            gvmi_shelf_claim_locked(shelf);
            gvmi_shelf_empty_locked(shelf, 0);
            unlink_locked(shelf);
            gvmi_heap_settle(heap);
        }
        gvmi_unlock(&heap->lock);
        gvmi_heap_drop(heap);
        free(shelf);
        return;
    }
    /* The heap is ending: either it has dropped its reference, or it frees the shelf. */
    for (;;) {
        if (atomic_load_explicit(&shelf->dead, memory_order_acquire)) {
            free(shelf);
            return;
        }
        if (gvmi_shelf_claim(shelf)) {
            shelf->orphan = true;
            gvmi_shelf_release(shelf);
            return;
        }
        wait_for_owner(&waits);
    }
}

static void drop_own_shelves(void *unused)
{
    (void)unused;
    while (gvmi_shelf_mine != NULL) {
        gvmi_shelf *shelf = gvmi_shelf_mine;

        gvmi_shelf_mine = shelf->mine;
        drop_own_shelf(shelf);
    }
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, drop_own_shelves) == 0;
}

/* ---- finding */

gvmi_shelf *gvmi_shelf_seek(const gvm_heap *handle, uint64_t wanted)
{
    gvmi_shelf **link = &gvmi_shelf_mine, *shelf;

    while ((shelf = *link) != NULL) {
        if (atomic_load_explicit(&shelf->dead, memory_order_acquire)) {
            *link = shelf->mine;
            free(shelf);
        } else if (shelf->handle == handle && shelf->key == wanted) {
            *link = shelf->mine; /* the latest first */
            shelf->mine = gvmi_shelf_mine;
            gvmi_shelf_mine = shelf;
            return shelf;
        } else {
            link = &shelf->mine;
        }
    }
    return NULL;
}

gvmi_shelf *gvmi_shelf_own_locked(gvm_heap *heap, gvmi_arena *arena)
{
    gvmi_shelf *shelf = gvmi_shelf_seek(heap, arena->key);

    if (shelf != NULL || heap->shelf_bytes < GVM_HEAP_UNIT_BYTES)
        return shelf;
    pthread_once(&once, make_key);
    if (!key_made || pthread_setspecific(key, heap) != 0)
        return NULL;
    shelf = gvmi_heap_calloc_line(sizeof *shelf);
    if (shelf == NULL)
        return NULL;
    *shelf = (gvmi_shelf){
        .handle = heap,
        .key = arena->key,
        .heap = heap,
        .arena = arena,
        .mine = gvmi_shelf_mine,
        .limit_bytes = heap->shelf_bytes,
        .next = heap->shelves,
        .link = &heap->shelves,
    };
    if (heap->shelves != NULL)
        heap->shelves->link = &shelf->next;
    heap->shelves = shelf;
    gvmi_shelf_mine = shelf;
    return shelf;
}
