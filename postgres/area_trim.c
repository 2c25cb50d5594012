/* Memory that areas do not need goes back to the keeper; see area.h. */
#include <stdlib.h>

#include "base/size.h"
#include "postgres/area_state.h"

/* ---- giving back */

/* Where it would be if it were made now, with some way to go before it moves again. */
static area_kind kind_wanted(const area *a)
{
    return gstore_area_kind_for(a, 2 * a->needed_bytes);
}

static bool has_chunks_ahead(const area *a)
{
    return gvmi_round_up(a->needed_bytes, gstore_area_chunk_bytes(a)) < a->bytes;
}

/* Manifests are a ring, packs have rooms: all of it is of use. */
static bool has_slack(const area *a)
{
    return a->part != GSTORE_MANIFEST && a->part != GSTORE_PACK && a->kind != PACKED &&
           (has_chunks_ahead(a) || kind_wanted(a) < a->kind);
}

/* The first area behind `after` in the tree's order that may give something back. */
typedef struct search {
    const area *after;
    bool trimmed; /* only of those that are to be trimmed */
    bool in_use;  /* such a one is, just now */
    area *found;
} search;

static void look_for_slack(const void *node, VISIT visit, void *closure)
{
    area *a = *(area *const *)node;
    search *look = closure;

    if (!gstore_is_in_order(visit) || !has_slack(a) || (look->trimmed && !a->trim))
        return;
    if (a->refs > 0)
        look->in_use |= a->trim;
    else if (gstore_areas_compare(a, look->after) > 0 &&
             (look->found == NULL || gstore_areas_compare(a, look->found) < 0))
        look->found = a;
}

/* Of an area that is busy for this thread. Somebody outside may have a lease on it, or the keeper be moving it:
 * then it keeps all. To small chunks again, or to its room, it goes where there is memory for that. Returns how many bytes
 * went. */
static uint64_t shrink_area(gstore_areas *s, area *a)
{
    const uint64_t before = a->bytes;

    if (has_chunks_ahead(a)) {
        const uint64_t bytes = gvmi_round_up(a->needed_bytes, gstore_area_chunk_bytes(a));

        if (gvm_object_shrink(a->object, bytes) != GVM_OK)
            return 0;
        gstore_area_set_bytes(s, a, bytes);
    }
    if (kind_wanted(a) < a->kind && gstore_area_move_busy(s, a, kind_wanted(a)) == GVM_OK)
        return before;
    return before - a->bytes;
}

static uint64_t give_back(gstore_areas *s, bool trimmed)
{
    area after = {.name.store = 0};
    uint64_t bytes = 0;
    bool left = false;

    for (;;) {
        search look = {.after = &after, .trimmed = trimmed};
        area *a;

        pthread_mutex_lock(&s->lock);
        twalk_r(s->tree, look_for_slack, &look);
        a = look.found;
        if (a != NULL) {
            after = *a;
            a->busy = true;
            a->refs++;
        }
        pthread_mutex_unlock(&s->lock);
        left |= look.in_use;
        if (a == NULL)
            break;
        bytes += shrink_area(s, a);
        pthread_mutex_lock(&s->lock);
        a->busy = false;
        a->trim = a->trim && has_chunks_ahead(a);
        left |= a->trim && !a->dropped;
        pthread_cond_broadcast(&s->not_busy);
        pthread_mutex_unlock(&s->lock);
        gstore_area_let_go(s, a);
    }
    if (left)
        atomic_store(&s->trims_left, true);
    return bytes;
}

uint64_t gstore_areas_give_back(gstore_areas *s)
{
    return give_back(s, false);
}

void gstore_areas_trim_again(gstore_areas *s)
{
    if (atomic_exchange(&s->trims_left, false))
        (void)give_back(s, true);
}

typedef struct trim {
    const gstore_store_name *name;
    const gstore_extent *extents;
    uint32_t count;
} trim;

static int compare_extents(const void *left, const void *right)
{
    const gstore_extent *a = left, *b = right;
    const int order = (a->column > b->column) - (a->column < b->column);

    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static void note_needed(const void *node, VISIT visit, void *closure)
{
    area *a = *(area *const *)node;
    const trim *to = closure;
    const gstore_extent key = {.column = a->column, .part = a->part}, *extent;

    if (!gstore_is_in_order(visit) || gstore_compare_stores(to->name, &a->name) != 0 ||
        a->name.turn > to->name->turn || a->part == GSTORE_MANIFEST)
        return;
    extent = bsearch(&key, to->extents, to->count, sizeof key, compare_extents);
    a->needed_bytes = extent != NULL ? extent->bytes : 0;
    a->trim = has_slack(a);
}

void gstore_areas_trim(gstore_areas *s, const gstore_store_name *name, const gstore_extent *extents,
                       uint32_t count)
{
    trim to = {.name = name, .extents = extents, .count = count};

    pthread_mutex_lock(&s->lock);
    twalk_r(s->tree, note_needed, &to);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->trims_left, true);
    gstore_areas_trim_again(s);
}
