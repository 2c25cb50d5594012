/* The pools of a device: which there are, which is asked, who has them, and their end. */
#include <stdlib.h>

#include "pools_state.h"

/* Of all devices; under the lock. */
static unsigned open_pools;
static uint64_t last_begun;

static bool same_id(pool_id a, pool_id b)
{
    return a.first == b.first && a.second == b.second;
}

static bool is_first(pool_id id)
{
    return id.first == 0 && id.second == 0;
}

static pool *find_pool_locked(device_state *d, pool_id id, bool own)
{
    pool *p = d->others;

    if (is_first(id) && !own)
        return &d->first;
    while (p != NULL && (!same_id(p->id, id) || p->own != own))
        p = p->next;
    return p;
}

static pool *add_pool_locked(device_state *d, pool_id id, bool own)
{
    pool *p = calloc(1, sizeof *p);

    if (p == NULL) {
        (void)gvm_error_set(GVM_E_NOMEM, "out of host memory for a pool");
        return NULL;
    }
    p->id = id;
    p->device = (int)(d - pools_devices);
    p->own = own;
    p->users = own;
    p->next = d->others;
    d->others = p;
    return p;
}

/* Which pool: of those that are begun the latest whose filter takes the stream. */
pool *pools_choose_locked(device_state *d, gvm_stream stream, uint64_t capture_id)
{
    const pool_id own = {capture_id, 0};
    pool *latest = NULL;

    for (pool *p = d->others; p != NULL && open_pools > 0; p = p->next)
        if (p->open && (latest == NULL || p->begun > latest->begun) &&
            p->filter.takes(p->filter.arg, stream))
            latest = p;
    if (latest != NULL)
        return latest;
    if (capture_id == 0)
        return &d->first;
    latest = find_pool_locked(d, own, true);
    return latest != NULL ? latest : add_pool_locked(d, own, true);
}

/* A pool that nobody has, which is the caller's then. The end of a heap waits for the device, which would end a capture:
 * while a pool is open there may be one. */
static pool *unlink_dead_locked(device_state *d)
{
    for (pool **link = &d->others; *link != NULL && open_pools == 0; link = &(*link)->next) {
        pool *p = *link;

        if (p->users > 0 || p->blocks > 0)
            continue;
        *link = p->next;
        return p;
    }
    return NULL;
}

void pools_reap(int device)
{
    pool *dead;

    do {
        pthread_mutex_lock(&pools_lock);
        dead = unlink_dead_locked(&pools_devices[device]);
        pthread_mutex_unlock(&pools_lock);
        if (dead != NULL) {
            gvm_heap_destroy(dead->heap);
            gvm_heap_destroy(dead->captured);
            free(dead);
        }
    } while (dead != NULL);
}

/* What an open pool of any device has kept. */
static void reap_all(void)
{
    for (int i = 0; i < DEVICES_MAX; i++)
        if (pools_devices[i].device != NULL)
            pools_reap(i);
}

/* ---- users */

static gvm_status unknown_pool(pool_id id)
{
    return gvm_error_set(GVM_E_INVALID, "there is no memory pool (%llu, %llu)", id.first, id.second);
}

/* Finds or makes it, with one more user. */
static gvm_status retain_locked(int device, pool_id id, pool **out)
{
    device_state *d = &pools_devices[device];
    gvm_status status = pools_open_device_locked(device);

    if (status != GVM_OK)
        return status;
    *out = find_pool_locked(d, id, false);
    if (*out == NULL)
        *out = add_pool_locked(d, id, false);
    if (*out == NULL)
        return GVM_E_NOMEM;
    (*out)->users++;
    return GVM_OK;
}

int pools_retain(int device, pool_id id)
{
    gvm_status status = pools_check_device(device);
    pool *unused;

    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    status = retain_locked(device, id, &unused);
    pthread_mutex_unlock(&pools_lock);
    return (int)status;
}

int pools_begin(int device, pool_id id, pool_filter filter)
{
    gvm_status status = pools_check_device(device);
    pool *p = NULL;

    if (status == GVM_OK) {
        pthread_mutex_lock(&pools_lock);
        status = retain_locked(device, id, &p);
        if (status == GVM_OK && (p->open || is_first(id))) {
            p->users--;
            status = gvm_error_set(GVM_E_INVALID, "the memory pool (%llu, %llu) is in use already",
                                   id.first, id.second);
        }
        if (status == GVM_OK) {
            p->open = true;
            p->begun = ++last_begun;
            p->filter = filter;
            open_pools++;
        }
        pthread_mutex_unlock(&pools_lock);
    }
    if (status != GVM_OK)
        filter.drop(filter.arg);
    return (int)status;
}

int pools_end(int device, pool_id id)
{
    gvm_status status = pools_check_device(device);
    pool_filter filter;
    pool *p;

    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    p = find_pool_locked(&pools_devices[device], id, false);
    if (p != NULL && p->open) {
        filter = p->filter;
        p->open = false;
        open_pools--;
    } else {
        p = NULL;
    }
    pthread_mutex_unlock(&pools_lock);
    if (p == NULL)
        return (int)unknown_pool(id);
    filter.drop(filter.arg);
    pools_give_late();
    reap_all();
    return 0;
}

int pools_release(int device, pool_id id)
{
    gvm_status status = pools_check_device(device);
    pool *p;

    if (status != GVM_OK)
        return (int)status;
    pthread_mutex_lock(&pools_lock);
    p = find_pool_locked(&pools_devices[device], id, false);
    if (p == NULL || p->users == 0)
        status = unknown_pool(id);
    else
        p->users--;
    pthread_mutex_unlock(&pools_lock);
    if (status == GVM_OK)
        pools_reap(device);
    return (int)status;
}

int pools_users(int device, pool_id id)
{
    pool *p;
    int users;

    if (pools_check_device(device) != GVM_OK)
        return 0;
    pthread_mutex_lock(&pools_lock);
    p = find_pool_locked(&pools_devices[device], id, false);
    users = p != NULL ? p->users : 0;
    pthread_mutex_unlock(&pools_lock);
    return users;
}

gvm_status pools_for_heaps(int device, pool_id id, bool captured,
                           gvm_status (*call)(const pool *p, gvm_heap *heap, void *arg), void *arg)
{
    device_state *d = &pools_devices[device];
    gvm_status status = GVM_OK;
    bool dead = false;
    pool *p;

    pthread_mutex_lock(&pools_lock);
    for (p = &d->first; p != NULL && status == GVM_OK; p = p == &d->first ? d->others : p->next) {
        gvm_heap *const heap = p->heap, *const graphs = captured ? p->captured : NULL;

        if (!is_first(id) && (p->own || !same_id(p->id, id)))
            continue;
        p->blocks++;
        pthread_mutex_unlock(&pools_lock);
        if (heap != NULL)
            status = call(p, heap, arg);
        if (graphs != NULL && status == GVM_OK)
            status = call(p, graphs, arg);
        pthread_mutex_lock(&pools_lock);
        dead |= --p->blocks == 0 && p->users == 0; /* since others found it in use by this */
    }
    pthread_mutex_unlock(&pools_lock);
    if (dead)
        pools_reap(device);
    return status;
}
