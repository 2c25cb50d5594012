/* Captures, their heaps and pools, and blocks of several streams; see graphs.h. */
#include "lib/plugin/graphs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define POOLS_OPEN_MAX 64
#define USE_BUCKETS 1024u

typedef struct capture {
    struct capture *next;
    gvm_heap *heap;
    uint64_t id;
    int ordinal;
    uint64_t kept; /* blocks that are free, and must not serve again */
    bool pooled;   /* pool is known */
    bool released;
    gvm_torch_pool pool;
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all that follows */
static capture *captures;
static struct {
    gvm_torch_pool pool;
    int ordinal;
} open_pools[POOLS_OPEN_MAX];
static size_t open_count;
static bool pools_lost; /* more were open at once than there is room for: nothing is known of pools */
static gvmi_plugin_use *uses[USE_BUCKETS];
static gvmi_plugin_use *late; /* of each capture one, by next_capture; behind it the others, by next */

/* Looked at without the lock: most programs have none of these. */
static atomic_size_t capture_count, use_count, late_count;

/* ---- captures */

static bool same_pool(gvm_torch_pool a, gvm_torch_pool b)
{
    return a.first == b.first && a.second == b.second;
}

/* The pool of a capture that has just begun is the only one that is open on the device. If there are
 * several, the capture is of none, and its memory stays. */
static void find_pool_locked(capture *c)
{
    size_t found = 0;

    for (size_t i = 0; i < open_count; i++)
        if (open_pools[i].ordinal == c->ordinal) {
            c->pool = open_pools[i].pool;
            found++;
        }
    c->pooled = found == 1 && !pools_lost;
}

static capture *make_capture_locked(gvm_device *device, int ordinal, uint64_t id,
                                    gvmi_plugin_grant *grant)
{
    /* What a graph uses must stay where it is, so nothing that is free goes back to the driver. */
    const gvm_heap_options options = {.struct_size = sizeof options, .flags = GVM_HEAP_KEEP};
    capture *c = calloc(1, sizeof *c);

    if (c == NULL)
        return NULL;
    if (gvm_heap_create(device, &options, &c->heap) != GVM_OK) {
        free(c);
        return NULL;
    }
    grant(c->heap, ordinal);
    c->ordinal = ordinal;
    c->id = id;
    find_pool_locked(c);
    c->next = captures;
    captures = c;
    atomic_fetch_add(&capture_count, 1);
    return c;
}

gvm_heap *gvmi_plugin_capture_heap(gvm_device *device, int ordinal, uint64_t capture_id,
                                   gvmi_plugin_grant *grant)
{
    gvm_heap *heap;
    capture *c;

    pthread_mutex_lock(&lock);
    for (c = captures; c != NULL && (c->id != capture_id || c->ordinal != ordinal);)
        c = c->next;
    if (c == NULL)
        c = make_capture_locked(device, ordinal, capture_id, grant);
    heap = c != NULL ? c->heap : NULL;
    pthread_mutex_unlock(&lock);
    return heap;
}

void gvmi_plugin_captures_grant(gvmi_plugin_grant *grant)
{
    pthread_mutex_lock(&lock);
    for (capture *c = captures; c != NULL; c = c->next)
        grant(c->heap, c->ordinal);
    pthread_mutex_unlock(&lock);
}

/* Ends the heaps of released pools in which nothing lives. Their end waits for the device, which would
 * spoil a capture: while a pool is open there may be one. */
static void reap_locked(void)
{
    if (open_count > 0)
        return;
    for (capture **link = &captures; *link != NULL;) {
        gvm_heap_info info = {.struct_size = sizeof info};
        capture *c = *link;

        if (!c->released || gvm_heap_get_info(c->heap, &info) != GVM_OK || info.blocks > c->kept) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        gvm_heap_destroy(c->heap);
        free(c);
        atomic_fetch_sub(&capture_count, 1);
    }
}

bool gvmi_plugin_capture_free(int ordinal, void *ptr, bool keep)
{
    size_t bytes;
    capture *c;

    if (atomic_load(&capture_count) == 0)
        return false;
    pthread_mutex_lock(&lock);
    for (c = captures; c != NULL; c = c->next)
        if (c->ordinal == ordinal && gvm_heap_get_size(c->heap, ptr, &bytes) == GVM_OK)
            break;
    if (c != NULL && keep)
        c->kept++;
    else if (c != NULL)
        (void)gvm_heap_free(c->heap, ptr); /* it is of one stream, and stays its own */
    if (c != NULL && c->released)
        reap_locked();
    pthread_mutex_unlock(&lock);
    return c != NULL;
}

/* ---- pools */

void gvmi_plugin_pool_begin(int ordinal, gvm_torch_pool pool)
{
    pthread_mutex_lock(&lock);
    if (open_count < POOLS_OPEN_MAX) {
        open_pools[open_count].pool = pool;
        open_pools[open_count++].ordinal = ordinal;
    } else {
        pools_lost = true;
    }
    pthread_mutex_unlock(&lock);
}

void gvmi_plugin_pool_end(int ordinal, gvm_torch_pool pool)
{
    size_t i = 0;

    pthread_mutex_lock(&lock);
    while (i < open_count && (open_pools[i].ordinal != ordinal || !same_pool(open_pools[i].pool, pool)))
        i++;
    if (i < open_count)
        open_pools[i] = open_pools[--open_count];
    reap_locked();
    pthread_mutex_unlock(&lock);
}

void gvmi_plugin_pool_release(int ordinal, gvm_torch_pool pool)
{
    pthread_mutex_lock(&lock);
    for (capture *c = captures; c != NULL; c = c->next)
        if (c->ordinal == ordinal && c->pooled && same_pool(c->pool, pool))
            c->released = true;
    reap_locked();
    pthread_mutex_unlock(&lock);
}

/* ---- blocks of several streams */

static gvmi_plugin_use **bucket_of(const void *ptr)
{
    const uint64_t grain = (uint64_t)(uintptr_t)ptr / 256; /* what all blocks begin at multiples of */

    return &uses[(grain * 0x9E3779B97F4A7C15ull) >> 54];
}

bool gvmi_plugin_use_add(void *ptr, gvm_stream stream)
{
    gvmi_plugin_use **link, *use, *grown;
    size_t count;

    pthread_mutex_lock(&lock);
    for (link = bucket_of(ptr); *link != NULL && (*link)->ptr != ptr;)
        link = &(*link)->next;
    use = *link;
    count = use != NULL ? use->count : 0;
    for (size_t i = 0; i < count; i++)
        if (use->streams[i] == stream) {
            pthread_mutex_unlock(&lock);
            return true;
        }
    grown = realloc(use, sizeof *use + (count + 1) * sizeof(gvm_stream));
    if (grown != NULL) {
        if (use == NULL) {
            grown->next = NULL;
            grown->ptr = ptr;
            atomic_fetch_add(&use_count, 1);
        }
        grown->streams[count] = stream;
        grown->count = count + 1;
        *link = grown;
    }
    pthread_mutex_unlock(&lock);
    return grown != NULL;
}

gvmi_plugin_use *gvmi_plugin_use_take(const void *ptr)
{
    gvmi_plugin_use **link, *use;

    if (atomic_load(&use_count) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    for (link = bucket_of(ptr); *link != NULL && (*link)->ptr != ptr;)
        link = &(*link)->next;
    use = *link;
    if (use != NULL) {
        *link = use->next;
        atomic_fetch_sub(&use_count, 1);
    }
    pthread_mutex_unlock(&lock);
    return use;
}

/* ---- frees that wait for a capture */

void gvmi_plugin_late_add(gvmi_plugin_use *use)
{
    gvmi_plugin_use *first;

    pthread_mutex_lock(&lock);
    for (first = late;
         first != NULL && (first->capture_id != use->capture_id || first->device != use->device);)
        first = first->next_capture;
    if (first != NULL) {
        use->next = first->next;
        first->next = use;
    } else {
        use->next = NULL;
        use->next_capture = late;
        late = use;
        atomic_fetch_add(&late_count, 1);
    }
    pthread_mutex_unlock(&lock);
}

gvmi_plugin_use *gvmi_plugin_late_take(bool (*has_ended)(const gvmi_plugin_use *use))
{
    gvmi_plugin_use *taken = NULL, **end = &taken;

    if (atomic_load(&late_count) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    for (gvmi_plugin_use **link = &late; *link != NULL;) {
        if (!has_ended(*link)) {
            link = &(*link)->next_capture;
            continue;
        }
        *end = *link;
        *link = (*link)->next_capture;
        atomic_fetch_sub(&late_count, 1);
        while (*end != NULL)
            end = &(*end)->next;
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

void gvmi_plugin_graphs_forget(void)
{
    pthread_mutex_init(&lock, NULL); /* its owner may be a thread that is not here */
    captures = NULL;
    late = NULL;
    memset(uses, 0, sizeof uses);
    open_count = 0;
    atomic_store(&capture_count, 0);
    atomic_store(&use_count, 0);
    atomic_store(&late_count, 0);
}
