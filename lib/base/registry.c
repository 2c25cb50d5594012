/* The table of live objects: one balanced tree (tsearch) per kind, under one lock.
 *
 * I1  an entry in a tree has removing == false, or a thread inside gvmi_registry_remove() waiting
 *     for holders == 0.
 * I2  holders counts the threads between hold and drop.
 *
 * A child made by fork() starts with no entries and a lock that nobody holds: objects of the parent have locks
 * that may be held for ever by threads that the child does not have, and no driver that works.
 */
#define _GNU_SOURCE
#include "base/registry.h"

#include <search.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/lock.h"

typedef struct item {
    uint64_t key; /* first: a lone key is a valid thing to search with */
    void *object;
    uint32_t holders;
    bool removing;
} item;

static gvmi_mutex lock = GVMI_MUTEX_INIT(GVMI_RANK_REGISTRY);
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* some entry being removed has lost its last holder */
static void *trees[GVMI_KIND_COUNT];
static uint64_t counts[GVMI_KIND_COUNT];

static const char *const kind_names[GVMI_KIND_COUNT] = {
    "device",
    "buffer",
    "piece of gvm_alloc()",
    "vector",
    "share",
    "copy for CUDA IPC",
    "mapping by CUDA IPC",
    "connection to a keeper",
    "object",
    "keeper",
    "attached table",
    "heap",
    "appender",
    "snapshot",
    "space",
    "collection",
    "callback server",
};

static void *parents[GVMI_KIND_COUNT]; /* the trees of the parent process: never looked into */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void reset_registry_in_child(void)
{
    gvmi_mutex_init(&lock, GVMI_RANK_REGISTRY);
    left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++) {
        parents[kind] = trees[kind];
        trees[kind] = NULL;
        counts[kind] = 0;
    }
}

static void watch_registry_forks(void)
{
    /* Without memory for it a child is not protected from itself. */
    (void)pthread_atfork(NULL, NULL, reset_registry_in_child);
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static item *find_object_locked(gvmi_kind kind, uint64_t key)
{
    item **node = (item **)tfind(&key, &trees[kind], compare_keys);

    return node == NULL || (*node)->removing ? NULL : *node;
}

static gvm_status fail_foreign(gvmi_kind kind, uint64_t key)
{
    if (key == 0)
        return gvm_error_set(GVM_E_FOREIGN, "the %s is NULL", kind_names[kind]);
    return gvm_error_set(
        GVM_E_FOREIGN, "no such %s: %#llx (destroyed already, or not made by gvmem%s)",
        kind_names[kind], (unsigned long long)key,
        parents[kind] == NULL ? ""
                              : ", or the parent process's: a child made by fork() must exec "
                                "a program to use a GPU");
}

gvm_status gvmi_registry_add(gvmi_kind kind, uint64_t key, void *object)
{
    item *fresh = malloc(sizeof *fresh);
    item **node;
    bool out_of_memory, added;

    if (fresh == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a %s", kind_names[kind]);
    pthread_once(&fork_once, watch_registry_forks);
    *fresh = (item){.key = key, .object = object};
    gvmi_lock(&lock);
    node = (item **)tsearch(fresh, &trees[kind], compare_keys);
    /* Under the lock: removing another entry moves nodes of the tree, and frees one. */
    out_of_memory = node == NULL;
    added = !out_of_memory && *node == fresh;
    counts[kind] += added;
    gvmi_unlock(&lock);
    if (added)
        return GVM_OK;
    free(fresh);
    return out_of_memory ? gvm_error_set(GVM_E_NOMEM, "out of host memory for a %s", kind_names[kind])
                         : gvm_error_set(GVM_E_INVALID, "%s %#llx exists already", kind_names[kind],
                                         (unsigned long long)key);
}

gvm_status gvmi_registry_hold(gvmi_kind kind, uint64_t key, void **object)
{
    item *found;

    gvmi_lock(&lock);
    found = find_object_locked(kind, key);
    if (found != NULL)
        found->holders++;
    *object = found != NULL ? found->object : NULL;
    gvmi_unlock(&lock);
    return found != NULL ? GVM_OK : fail_foreign(kind, key);
}

void gvmi_registry_drop(gvmi_kind kind, uint64_t key)
{
    item **node;

    gvmi_lock(&lock);
    node = (item **)tfind(&key, &trees[kind], compare_keys);
    GVM_ASSERT(node != NULL && (*node)->holders > 0);
    if (--(*node)->holders == 0 && (*node)->removing)
        pthread_cond_broadcast(&left);
    gvmi_unlock(&lock);
}

gvm_status gvmi_registry_remove(gvmi_kind kind, uint64_t key, void **object)
{
    item *found;

    *object = NULL;
    gvmi_lock(&lock);
    found = find_object_locked(kind, key);
    if (found != NULL) {
        found->removing = true;
        while (found->holders > 0)
            pthread_cond_wait(&left, &lock.mutex);
        tdelete(&key, &trees[kind], compare_keys);
        counts[kind]--;
    }
    gvmi_unlock(&lock);
    if (found == NULL)
        return fail_foreign(kind, key);
    *object = found->object;
    free(found);
    return GVM_OK;
}

void gvmi_registry_retire(void *object)
{
    static void *retired[GVMI_RETIRED_MAX]; /* a ring; the oldest is where the next one goes */
    static unsigned next;
    void *oldest;

    if (object == NULL)
        return;
    gvmi_lock(&lock);
    oldest = retired[next];
    retired[next] = object;
    next = (next + 1) % GVMI_RETIRED_MAX;
    gvmi_unlock(&lock);
    free(oldest);
}

uint64_t gvmi_registry_count(gvmi_kind kind)
{
    uint64_t count;

    gvmi_lock(&lock);
    count = counts[kind];
    gvmi_unlock(&lock);
    return count;
}
