/* The shelves of the calling thread: found, made, and dropped when the thread ends.
 *
 * The thread finds its shelves through a thread-local list, the heap through its own. When the
 * heap (or the stream) ends first, the shelf is left owned and unused, and the thread frees it
 * when it next meets it, or ends. When the thread ends first, it empties the shelf and frees it; if
 * the heap is just ending, it leaves the shelf to it, as an orphan.
 */
#include <pthread.h>
#include <stdlib.h>

#include "heap/heap.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor runs when a thread ends */
static bool key_made;

/* ---- the end */

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
            gvmi_shelf_own_locked(shelf);
            gvmi_shelf_empty_locked(shelf, 0);
            LIST_REMOVE(shelf, entry);
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
        if (gvmi_shelf_own(shelf)) {
            shelf->orphan = true;
            gvmi_shelf_leave(shelf);
            return;
        }
        gvmi_shelf_wait(&waits);
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

gvmi_shelf *gvmi_shelf_get_locked(gvm_heap *heap, gvmi_arena *arena)
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
    };
    LIST_INSERT_HEAD(&heap->shelves, shelf, entry);
    gvmi_shelf_mine = shelf;
    return shelf;
}
