/* See chores.h. Trims only make room, and there may be one for every change that is undone: what ends memory or tokens
 * comes before them, a store has one that waits, and the look at the keeper is taken when it is due. */
#include "postgres/chores.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/lock.h"

#define LOOK_MS 1000

typedef enum chore_kind { DROP_STORE, TRIM_STORE, DROP_COPY, UNLINK } chore_kind;

typedef struct chore {
    struct chore *next;
    chore_kind kind;
    gstore_store_name name;
    uint64_t copy;
    uint8_t secret[GSTORE_SECRET_BYTES];
    uint32_t count; /* TRIM_STORE */
    gstore_extent extents[];
} chore;

typedef struct chore_list {
    chore *first, **end;
} chore_list;

struct gstore_chores {
    gstore_service *service;
    void (*wake)(void *latch);
    void *latch;
    pthread_t thread;
    gvmi_mutex lock;
    pthread_cond_t given;
    /* Under the lock: */
    chore_list ends, trims;
    bool stop;
    bool reported; /* and not taken */
    gstore_report report;
    gstore_store_size *sizes;
    uint32_t size_count;
};

static chore *take_first(chore_list *list)
{
    chore *taken = list->first;

    if (taken == NULL)
        return NULL;
    list->first = taken->next;
    if (list->first == NULL)
        list->end = &list->first;
    return taken;
}

/* NULL: there was none until then; or *stop. */
static chore *next_chore(gstore_chores *c, int64_t until_ns, bool *stop)
{
    chore *taken;

    gvmi_lock(&c->lock);
    while (c->ends.first == NULL && c->trims.first == NULL && !c->stop &&
           gvmi_wait_until(&c->given, &c->lock, until_ns))
        ;
    taken = take_first(&c->ends);
    if (taken == NULL)
        taken = take_first(&c->trims);
    *stop = taken == NULL && c->stop;
    gvmi_unlock(&c->lock);
    return taken;
}

static void look(gstore_chores *c)
{
    gstore_store_size *sizes, *old;
    gstore_report report;
    uint32_t size_count;
    const bool good = gstore_service_report(c->service, &report, &sizes, &size_count) == GVM_OK;

    if (good) {
        gvmi_lock(&c->lock);
        c->report = report;
        old = c->sizes;
        c->sizes = sizes;
        c->size_count = size_count;
        c->reported = true;
        gvmi_unlock(&c->lock);
        free(old);
    }
    if (good || gstore_service_is_lost(c->service))
        c->wake(c->latch);
}

static void carry_out(gstore_chores *c, const chore *what)
{
    switch (what->kind) {
    case DROP_STORE: gstore_service_drop(c->service, &what->name); break;
    case TRIM_STORE:
        gstore_service_trim(c->service, &what->name, what->extents, what->count);
        break;
    case DROP_COPY: gstore_service_drop_copy(c->service, what->copy); break;
    case UNLINK: gstore_service_unlink(c->service, what->secret); break;
    }
}

static void *run(void *arg)
{
    gstore_chores *c = arg;
    int64_t look_ns = 0;
    bool stop = false;

    while (!stop) {
        chore *taken;

        if (gvmi_now_ns() >= look_ns) {
            look(c);
            look_ns = gvmi_deadline_ns(LOOK_MS);
        }
        taken = next_chore(c, look_ns, &stop);
        if (taken != NULL)
            carry_out(c, taken);
        free(taken);
    }
    return NULL;
}

gvm_status gstore_chores_start(gstore_service *service, void (*wake)(void *latch), void *latch,
                               gstore_chores **out)
{
    gstore_chores *c = calloc(1, sizeof *c);
    sigset_t all, before;
    int code;

    if (c == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for the keeper's chores");
    c->service = service;
    c->wake = wake;
    c->latch = latch;
    c->ends.end = &c->ends.first;
    c->trims.end = &c->trims.first;
    gvmi_mutex_init(&c->lock, GVMI_RANK_QUEUE);
    gvmi_cond_init(&c->given);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) {
        pthread_cond_destroy(&c->given);
        gvmi_mutex_destroy(&c->lock);
        free(c);
        return gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread");
    }
    *out = c;
    return GVM_OK;
}

void gstore_chores_stop(gstore_chores *c)
{
    if (c == NULL)
        return;
    gvmi_lock(&c->lock);
    c->stop = true;
    pthread_cond_signal(&c->given);
    gvmi_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->given);
    gvmi_mutex_destroy(&c->lock);
    free(c->sizes);
    free(c);
}

static chore *copy_chore(chore what, const gstore_extent *extents)
{
    chore *copy = malloc(sizeof *copy + what.count * sizeof *extents);

    if (copy == NULL)
        return NULL;
    *copy = what;
    if (what.count > 0)
        memcpy(copy->extents, extents, what.count * sizeof *extents);
    return copy;
}

/* The place of the store's trim in the list, or its end. The lock is held. */
static chore **find_trim(gstore_chores *c, const gstore_store_name *name)
{
    chore **place = &c->trims.first;

    while (*place != NULL && (*place)->name.store != name->store)
        place = &(*place)->next;
    return place;
}

/* place: the list's end, or of a chore that the given one replaces. The lock is held. */
static void put(gstore_chores *c, chore_list *list, chore **place, chore *given)
{
    chore *old = *place;

    given->next = old != NULL ? old->next : NULL;
    *place = given;
    if (given->next == NULL)
        list->end = &given->next;
    free(old);
    pthread_cond_signal(&c->given);
}

static bool give(gstore_chores *c, chore what)
{
    chore *given = copy_chore(what, NULL);

    if (given == NULL)
        return false;
    gvmi_lock(&c->lock);
    put(c, &c->ends, c->ends.end, given);
    gvmi_unlock(&c->lock);
    return true;
}

bool gstore_chores_drop_store(gstore_chores *c, const gstore_store_name *name)
{
    return give(c, (chore){.kind = DROP_STORE, .name = *name});
}

void gstore_chores_trim_store(gstore_chores *c, const gstore_store_name *name,
                              const gstore_extent *extents, uint32_t count)
{
    chore *given = copy_chore((chore){.kind = TRIM_STORE, .name = *name, .count = count}, extents);

    if (given == NULL)
        return;
    gvmi_lock(&c->lock);
    put(c, &c->trims, find_trim(c, name), given);
    gvmi_unlock(&c->lock);
}

bool gstore_chores_drop_copy(gstore_chores *c, uint64_t copy)
{
    return give(c, (chore){.kind = DROP_COPY, .copy = copy});
}

bool gstore_chores_unlink(gstore_chores *c, const uint8_t secret[GSTORE_SECRET_BYTES])
{
    chore what = {.kind = UNLINK};

    memcpy(what.secret, secret, sizeof what.secret);
    return give(c, what);
}

bool gstore_chores_take_report(gstore_chores *c, gstore_report *out, gstore_store_size **sizes,
                               uint32_t *size_count)
{
    bool news;

    gvmi_lock(&c->lock);
    news = c->reported;
    if (news) {
        *out = c->report;
        *sizes = c->sizes;
        *size_count = c->size_count;
        c->sizes = NULL;
    }
    c->reported = false;
    gvmi_unlock(&c->lock);
    return news;
}
