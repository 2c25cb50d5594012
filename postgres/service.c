/* The threads that move columns between windows and areas; see service.h.
 *
 * An area is one keeper object, opened on first use and kept open. Commands of one store come from
 * one writer at a time (PostgreSQL's lock sees to that) and any number of readers.
 *
 * I1  an area in the tree has an open object; refs counts the commands that use it now.
 * I2  a dropped area is out of the tree; the last command that uses it closes it.
 *
 * An area begins with small chunks, as many tables are small. Once it needs more than AREA_SMALL_BYTES it
 * moves to an object with large ones, as what a chunk costs does not depend on its size; the object gets
 * the name in the place of the old one, and who has that open keeps it: rows that are there do not change.
 * It also moves before a write when a token has ended by which others have it mapped: what comes is not for them. */
#include "postgres/service.h"

#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "driver/driver.h"
#include "keeper/client/client.h"
#include "memory/device.h"
#include "postgres/copies.h"

#define THREADS_MAX 16u
#define CONNECTIONS_MAX 16u
#define CHUNK_BYTES (2ull << 20)
#define RESERVE_BYTES (256ull << 20) /* with small chunks, also where no memory is left to move */
#define AREA_SMALL_BYTES (64ull << 20)
#define LARGE_CHUNK_BYTES (32ull << 20)
#define LARGE_RESERVE_BYTES (32ull << 30) /* what offsets in 8-byte units reach */
#define GROW_STEP_MAX_BYTES (1ull << 30)
#define LEASE_WAIT_MS 30000 /* while the keeper moves the area */
#define LOOK_S 1            /* how often an idle thread looks whether it is to stop */

/* What of a store may be opened by a token. */
typedef struct linked {
    uint16_t column;
    uint8_t part;
    uint64_t bytes;
} linked;

typedef struct token {
    struct token *next;
    gstore_store_name name;
    uint8_t secret[GSTORE_SECRET_BYTES];
    uint32_t count, places;
    linked *all;
} token;

/* A connection to the keeper: it can have so many objects open. */
typedef struct connection {
    gvm_keeper *keeper;
    uint32_t open;
} connection;

typedef struct area {
    gstore_store_name name;
    uint16_t column;
    uint8_t part;
    bool large;         /* its chunks */
    _Atomic bool ended; /* a token of it */
    connection *connection;
    gvm_object *object;
    uint64_t bytes; /* committed */
    uint32_t refs;
    bool dropped;
    struct area *next_found; /* of a sweep, which needs no memory so: what it did not find would stay for ever */
} area;

/* An area that a command uses, under a lease until the command's copies are through. */
typedef struct hold {
    area *area;
    gvm_lease lease;
} hold;

typedef struct holds {
    hold all[2 * GSTORE_RANGES_MAX]; /* a range that makes its area move takes two */
    uint32_t count;
} holds;

typedef struct worker {
    gstore_service *service;
    pthread_t thread;
    holds holds;
    CUstream streams[GVM_SERVER_DEVICES_MAX];
} worker;

struct gstore_service {
    gstore_service_options options;
    connection connections[CONNECTIONS_MAX]; /* the first one for all that is not an area */
    _Atomic uint32_t connection_count; /* under the lock; gstore_service_sever() looks without it */
    gvm_device *devices[GVM_SERVER_DEVICES_MAX];
    int32_t device_count;
    pthread_mutex_t lock; /* areas, refs, connections; no driver or keeper call but connect and create under it */
    void *areas;                 /* tsearch(3) */
    pthread_mutex_t tokens_lock; /* comes before the lock; the keeper is called under it */
    token *tokens;
    worker workers[THREADS_MAX];
    uint32_t started;
    bool registered;
    _Atomic bool stop, lost;
    gstore_copies *copies;
};

/* ---- areas */

static int compare_stores(const gstore_store_name *a, const gstore_store_name *b)
{
    return (a->store > b->store) - (a->store < b->store);
}

/* A store's manifest comes last, and so is dropped last: who finds its token stale finds no column any more. */
static int compare_areas(const void *left, const void *right)
{
    const area *a = left, *b = right;
    int order = compare_stores(&a->name, &b->name);

    if (order == 0)
        order = (a->part == GSTORE_MANIFEST) - (b->part == GSTORE_MANIFEST);
    if (order == 0)
        order = (a->column > b->column) - (a->column < b->column);
    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static const char *const parts[] = {"values", "nulls", "bodies", "manifest", "element_nulls"};

static void name_area(const area *a, char text[GVM_NAME_BYTES_MAX])
{
    char path[GSTORE_STORE_PATH_BYTES];

    gstore_store_path(&a->name, path);
    snprintf(text, GVM_NAME_BYTES_MAX, "%s/%u.%s", path, a->column, parts[a->part]);
}

static void free_area(gstore_service *s, area *a)
{
    gvm_object_close(a->object);
    if (a->connection != NULL) {
        pthread_mutex_lock(&s->lock);
        a->connection->open--;
        pthread_mutex_unlock(&s->lock);
    }
    free(a);
}

/* One that has a place for one more object. The lock is held. */
static gvm_status find_connection(gstore_service *s, connection **out)
{
    gvm_status status;

    for (uint32_t i = 0; i < s->connection_count; i++)
        if (s->connections[i].open < GVM_OBJECTS_OPEN_MAX) {
            *out = &s->connections[i];
            return GVM_OK;
        }
    if (s->connection_count == CONNECTIONS_MAX)
        return gvmi_fail(GVM_E_LIMIT, "there are %u columns in GPU memory",
                         (unsigned)(CONNECTIONS_MAX * GVM_OBJECTS_OPEN_MAX));
    status = gvm_keeper_connect(s->options.path, &s->connections[s->connection_count].keeper);
    if (status != GVM_OK)
        return status;
    *out = &s->connections[s->connection_count++];
    if (atomic_load(&s->stop)) /* the thread that stores it reads the count afterwards */
        gvmi_keeper_sever((*out)->keeper);
    return GVM_OK;
}

/* step: ahead of need. */
static uint64_t grown_bytes(const area *a, uint64_t needed, uint64_t step)
{
    const uint64_t chunk = a->large ? LARGE_CHUNK_BYTES : CHUNK_BYTES;
    const uint64_t most = a->large                     ? LARGE_RESERVE_BYTES
                          : needed <= AREA_SMALL_BYTES ? AREA_SMALL_BYTES
                                                       : RESERVE_BYTES;
    const uint64_t wanted = needed > a->bytes + step ? needed : a->bytes + step;
    const uint64_t rounded = (wanted + chunk - 1) / chunk * chunk;

    return rounded <= most ? rounded : most;
}

/* Of a->bytes. named: readers find it. The lock is held. */
static gvm_status create_object(gstore_service *s, area *a, bool named)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = a->large ? LARGE_CHUNK_BYTES : CHUNK_BYTES,
                                        .bytes = a->bytes,
                                        .device = a->name.device,
                                        .mode = 0600,
                                        .flags = GVM_OBJECT_UNTRACKED};
    char name[GVM_NAME_BYTES_MAX];
    gvm_status status = find_connection(s, &a->connection);

    if (status != GVM_OK)
        return status;
    name_area(a, name);
    status = gvm_object_create(a->connection->keeper, named ? name : NULL,
                               a->large ? LARGE_RESERVE_BYTES : RESERVE_BYTES, &options, &a->object);
    if (status == GVM_OK)
        a->connection->open++;
    else
        a->connection = NULL;
    return status;
}

/* The area, with a reference. create: made if there is none yet, with chunks for the range. */
static gvm_status hold_area(gstore_service *s, const gstore_store_name *store,
                            const gstore_range *range, bool create, area **out)
{
    const area key = {.name = *store, .column = range->column, .part = range->part};
    const uint64_t end = range->offset_bytes + range->bytes;
    gvm_status status = GVM_OK;
    area **found, *made = NULL;

    pthread_mutex_lock(&s->lock);
    found = tfind(&key, &s->areas, compare_areas);
    if (found != NULL) {
        *out = *found;
        (*out)->refs++;
        goto unlock;
    }
    if (!create) {
        status = gvmi_fail(GVM_E_ABSENT, "the table has no such data");
        goto unlock;
    }
    made = calloc(1, sizeof *made);
    if (made == NULL) {
        status = gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
        goto unlock;
    }
    *made = key;
    made->large = end > AREA_SMALL_BYTES;
    made->bytes = end <= LARGE_RESERVE_BYTES ? grown_bytes(made, end, 0) : 0;
    made->refs = 1;
    status = create_object(s, made, true);
    if (status == GVM_OK && tsearch(made, &s->areas, compare_areas) == NULL)
        status = gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    if (status == GVM_OK)
        *out = made;
unlock:
    pthread_mutex_unlock(&s->lock);
    if (status != GVM_OK && made != NULL)
        free_area(s, made);
    return status;
}

static void let_go_area(gstore_service *s, area *a)
{
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --a->refs == 0 && a->dropped;
    pthread_mutex_unlock(&s->lock);
    if (last)
        free_area(s, a);
}

/* ---- tokens. tokens_lock is held. */

static void name_link(const token *t, const linked *l, char text[GVM_NAME_BYTES_MAX])
{
    char path[GSTORE_LINK_PATH_BYTES];

    gstore_link_path(t->secret, path);
    snprintf(text, GVM_NAME_BYTES_MAX, "%s/%u.%s", path, l->column, parts[l->part]);
}

static token *find_token(gstore_service *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
    token *t = s->tokens;

    while (t != NULL && memcmp(t->secret, secret, sizeof t->secret) != 0)
        t = t->next;
    return t;
}

static token *make_token(gstore_service *s, const gstore_window *w)
{
    token *t = calloc(1, sizeof *t);

    if (t == NULL)
        return NULL;
    t->name = w->name;
    memcpy(t->secret, w->handle, sizeof t->secret);
    t->next = s->tokens;
    s->tokens = t;
    return t;
}

static gvm_status add_linked(token *t, const linked *l)
{
    if (t->count == t->places) {
        const uint32_t places = t->places + GSTORE_RANGES_MAX;
        linked *all = realloc(t->all, places * sizeof *all);

        if (all == NULL)
            return gvmi_fail(GVM_E_NOMEM, "out of host memory for a token");
        t->all = all;
        t->places = places;
    }
    t->all[t->count++] = *l;
    return GVM_OK;
}

static gvm_status link_area(gstore_service *s, const token *t, const linked *l, gvm_object *object)
{
    char name[GVM_NAME_BYTES_MAX];

    name_link(t, l, name);
    return gvm_object_link(object, name, s->options.link_mode, l->bytes);
}

static gvm_status link_range(gstore_service *s, token *t, const gstore_range *range, uint32_t *owner)
{
    gvm_object_info info = {.struct_size = sizeof info};
    const linked l = {.column = range->column, .part = range->part, .bytes = range->bytes};
    area *a;
    gvm_status status = hold_area(s, &t->name, range, false, &a);

    if (status != GVM_OK)
        return status;
    status = add_linked(t, &l); /* first: what is in the list may be missing at the keeper */
    if (status == GVM_OK)
        status = link_area(s, t, &l, a->object);
    if (status == GVM_OK && l.part == GSTORE_MANIFEST) { /* each token has one; *owner as others see it */
        status = gvm_object_get_info(a->object, &info);
        *owner = info.owner_uid;
    }
    let_go_area(s, a);
    return status;
}

static gvm_status link_ranges(gstore_service *s, gstore_window *w)
{
    gvm_status status = GVM_OK;
    token *t;

    pthread_mutex_lock(&s->tokens_lock);
    t = find_token(s, w->handle);
    if (t == NULL)
        t = make_token(s, w);
    if (t == NULL)
        status = gvmi_fail(GVM_E_NOMEM, "out of host memory for a token");
    for (uint32_t i = 0; i < w->range_count && i < GSTORE_RANGES_MAX && status == GVM_OK; i++)
        status = link_range(s, t, &w->ranges[i], &w->owner);
    pthread_mutex_unlock(&s->tokens_lock);
    return status;
}

/* An area has another object: its links go there, and so do those who open it by a token from now on. One that
 * cannot be linked is gone for them. */
static void relink(gstore_service *s, const area *a)
{
    for (token *t = s->tokens; t != NULL; t = t->next)
        for (uint32_t i = 0; compare_stores(&t->name, &a->name) == 0 && i < t->count; i++)
            if (t->all[i].column == a->column && t->all[i].part == a->part)
                (void)link_area(s, t, &t->all[i], a->object);
}

static void free_token(gstore_service *s, token *t)
{
    token **place = &s->tokens;

    while (*place != t)
        place = &(*place)->next;
    *place = t->next;
    free(t->all);
    free(t);
}

static void note_ended(gstore_service *s, const token *t, const linked *l)
{
    const area key = {.name = t->name, .column = l->column, .part = l->part};
    area **found;

    pthread_mutex_lock(&s->lock);
    found = tfind(&key, &s->areas, compare_areas);
    if (found != NULL)
        atomic_store(&(*found)->ended, true);
    pthread_mutex_unlock(&s->lock);
}

/* Links of an object that is gone are gone with it. */
static gvm_status unlink_token(gstore_service *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
    gvm_status status = GVM_OK;
    token *t;

    pthread_mutex_lock(&s->tokens_lock);
    t = find_token(s, secret);
    while (t != NULL && t->count > 0 && status == GVM_OK) {
        char name[GVM_NAME_BYTES_MAX];

        name_link(t, &t->all[t->count - 1], name);
        status = gvm_object_unlink(s->connections[0].keeper, name);
        if (status == GVM_E_ABSENT)
            status = GVM_OK;
        if (status == GVM_OK)
            note_ended(s, t, &t->all[--t->count]);
    }
    if (t != NULL && status == GVM_OK)
        free_token(s, t);
    pthread_mutex_unlock(&s->tokens_lock);
    return status;
}

void gstore_service_unlink(gstore_service *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
    (void)unlink_token(s, secret); /* it fails only with the keeper */
}

/* Of a store that goes; NULL: of all. */
static void forget_tokens(gstore_service *s, const gstore_store_name *name)
{
    pthread_mutex_lock(&s->tokens_lock);
    for (token *t = s->tokens, *next; t != NULL; t = next) {
        next = t->next;
        if (name == NULL || compare_stores(&t->name, name) == 0)
            free_token(s, t);
    }
    pthread_mutex_unlock(&s->tokens_lock);
}

typedef struct sweep {
    const gstore_store_name *name; /* NULL: all */
    area *first, **end;
} sweep;

static void collect(const void *node, VISIT visit, void *closure)
{
    area *a = *(area *const *)node;
    sweep *all = closure;

    if ((visit != postorder && visit != leaf) ||
        (all->name != NULL && compare_stores(all->name, &a->name) != 0))
        return;
    a->next_found = NULL;
    *all->end = a;
    all->end = &a->next_found;
}

void gstore_service_drop(gstore_service *s, const gstore_store_name *name)
{
    sweep all = {.name = name, .end = &all.first};

    pthread_mutex_lock(&s->lock);
    twalk_r(s->areas, collect, &all);
    for (area **place = &all.first, *a; (a = *place) != NULL;) {
        tdelete(a, &s->areas, compare_areas);
        a->dropped = true;
        if (a->refs > 0)
            *place = a->next_found; /* its last command closes it */
        else
            place = &a->next_found;
    }
    pthread_mutex_unlock(&s->lock);
    for (area *a = all.first, *next; a != NULL; a = next) {
        next = a->next_found;
        free_area(s, a);
    }
    forget_tokens(s, name);
}

/* ---- commands */

/* Ahead of need where there is memory, as much as is needed where there is not. */
static gvm_status grow_area(area *a, uint64_t needed)
{
    uint64_t bytes = grown_bytes(a, needed,
                                 a->bytes < GROW_STEP_MAX_BYTES ? a->bytes : GROW_STEP_MAX_BYTES);
    gvm_status status = gvm_object_grow(a->object, bytes);

    if (status == GVM_E_NOSPACE) {
        bytes = grown_bytes(a, needed, 0);
        status = gvm_object_grow(a->object, bytes);
    }
    if (status == GVM_OK)
        a->bytes = bytes;
    return status;
}

/* copy_address: of COPY_TAKE, where the range goes. */
static gvm_status copy_range(const gstore_window *w, const gstore_range *range, uint64_t address,
                             uint64_t copy_address, uint8_t *bytes, CUstream stream)
{
    const CUdeviceptr at = address + range->offset_bytes;
    CUresult result;

    if (w->verb == GSTORE_COPY_TAKE)
        result = gvmi_cu->cuMemcpyDtoDAsync(copy_address, at, range->bytes, stream);
    else if (w->verb == GSTORE_READ)
        result = gvmi_cu->cuMemcpyDtoHAsync(bytes + range->window_bytes, at, range->bytes, stream);
    else if (range->fill)
        result = gvmi_cu->cuMemsetD8Async(at, range->byte, range->bytes, stream);
    else
        result = gvmi_cu->cuMemcpyHtoDAsync(at, bytes + range->window_bytes, range->bytes, stream);
    return result == CUDA_SUCCESS
               ? GVM_OK
               : gvmi_driver_fail(result,
                                  w->verb == GSTORE_READ ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync",
                                  "cannot copy a column");
}

/* Of one command, ranges of one area share a lease. */
static gvm_status find_hold(gstore_service *s, const gstore_window *w, const gstore_range *range,
                            holds *held, hold **out)
{
    const bool write = w->verb == GSTORE_WRITE;
    const gvm_acquire_options options = {
        .struct_size = sizeof options, .timeout_ms = LEASE_WAIT_MS, .hint = GVM_HINT_SCAN};
    gvm_status status;
    hold *h;

    for (uint32_t i = held->count; i > 0; i--) {
        h = &held->all[i - 1];
        if (h->area->column == range->column && h->area->part == range->part) {
            *out = h;
            return GVM_OK;
        }
    }
    h = &held->all[held->count];
    h->lease = (gvm_lease){0};
    status = hold_area(s, &w->name, range, write, &h->area);
    if (status != GVM_OK)
        return status;
    held->count++;
    *out = h;
    /* For writing, too: rows come behind those that others read (GVM_OBJECT_UNTRACKED). */
    return gvm_object_acquire(h->area->object, GVM_LEASE_READ, &options, &h->lease);
}

/* Fills the object that an area moves to, and gives it the name. Its area is nobody else's yet. */
static gvm_status fill_moved(const area *from, hold *to, uint64_t from_address, uint64_t needed,
                             CUstream stream)
{
    const gvm_acquire_options options = {
        .struct_size = sizeof options, .timeout_ms = LEASE_WAIT_MS, .hint = GVM_HINT_SCAN};
    area *a = to->area;
    char name[GVM_NAME_BYTES_MAX];
    CUresult result;
    const uint64_t ahead = a->large == from->large ? from->bytes : 2 * from->bytes;
    gvm_status status = grow_area(a, needed > ahead ? needed : ahead);

    if (status == GVM_E_NOSPACE)
        status = grow_area(a, needed);
    if (status == GVM_OK)
        status = gvm_object_acquire(a->object, GVM_LEASE_READ, &options, &to->lease);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemcpyDtoDAsync(to->lease.address, from_address, from->bytes, stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(stream); /* a client that finds the name finds the rows */
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemcpyDtoDAsync", "cannot copy a column");
    name_area(a, name);
    return gvm_object_publish(a->object, name, GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE);
}

/* Puts another area, with large chunks or not, in the place of *h, which stays held for what is on the stream. The
 * only writer of the store is here. needed: at least what it has. */
static gvm_status move_area(gstore_service *s, holds *held, hold **h, bool large, uint64_t needed,
                            CUstream stream)
{
    area *old = (*h)->area;
    area *made = calloc(1, sizeof *made);
    hold *to = &held->all[held->count];
    gvm_status status;
    area **place;

    if (made == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    *made = (area){
        .name = old->name, .column = old->column, .part = old->part, .large = large, .refs = 1};
    *to = (hold){.area = made};
    pthread_mutex_lock(&s->lock);
    status = create_object(s, made, false);
    pthread_mutex_unlock(&s->lock);
    if (status == GVM_OK)
        status = fill_moved(old, to, (*h)->lease.address, needed, stream);
    if (status != GVM_OK) {
        const gvm_error error = gvmi_error_save();

        free_area(s, made); /* and the lease ends */
        gvmi_error_restore(&error);
        return status;
    }
    pthread_mutex_lock(&s->tokens_lock);
    relink(s, made);
    pthread_mutex_lock(&s->lock);
    place = tfind(old, &s->areas, compare_areas);
    if (place != NULL && *place == old)
        *place = made; /* it compares the same */
    else
        made->dropped = true;
    old->dropped = true;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->tokens_lock);
    held->count++;
    *h = to;
    return GVM_OK;
}

/* May a process have it mapped that is not to see what is written from now on? */
static bool is_shown(area *a)
{
    gvm_object_info info = {.struct_size = sizeof info};

    if (!atomic_load(&a->ended))
        return false;
    if (gvm_object_get_info(a->object, &info) != GVM_OK || info.foreign)
        return true;
    atomic_store(&a->ended, false);
    return false;
}

/* Room for a range that is written, under the lease, too: addresses do not change. */
static gvm_status make_room(gstore_service *s, holds *held, hold **h, uint64_t end, CUstream stream)
{
    if (is_shown((*h)->area)) {
        const area *a = (*h)->area;
        const uint64_t needed = end > a->bytes ? end : a->bytes;

        if (end <= LARGE_RESERVE_BYTES)
            return move_area(s, held, h, a->large || needed > AREA_SMALL_BYTES, needed, stream);
    }
    if (end <= (*h)->area->bytes)
        return GVM_OK;
    if (end > LARGE_RESERVE_BYTES)
        return gvmi_fail(GVM_E_LIMIT, "a column can have %llu GiB",
                         (unsigned long long)(LARGE_RESERVE_BYTES >> 30));
    if (!(*h)->area->large && end > AREA_SMALL_BYTES) {
        const gvm_status status = move_area(s, held, h, true, end, stream);

        if (status == GVM_OK || end > RESERVE_BYTES)
            return status;
    }
    return grow_area((*h)->area, end);
}

static gvm_status begin_range(gstore_service *s, const gstore_window *w, const gstore_range *range,
                              uint8_t *bytes, CUstream stream, holds *held)
{
    const uint64_t end = range->offset_bytes + range->bytes;
    const bool take = w->verb == GSTORE_COPY_TAKE;
    uint64_t copy_address = 0;
    gvm_status status;
    hold *h;

    if (end < range->bytes || (!range->fill && !take &&
                               (range->window_bytes > s->options.window_bytes ||
                                range->bytes > s->options.window_bytes - range->window_bytes)))
        return gvmi_fail(GVM_E_INVALID, "a range beyond the window");
    status = find_hold(s, w, range, held, &h);
    if (status == GVM_OK && w->verb == GSTORE_WRITE)
        status = make_room(s, held, &h, end, stream);
    else if (status == GVM_OK && end > h->area->bytes)
        status = gvmi_fail(GVM_E_INVALID, "a range beyond the column's data");
    if (status == GVM_OK && take)
        status = gstore_copies_find(s->copies, w->copy, w->name.device, range->window_bytes,
                                    range->bytes, &copy_address);
    return status == GVM_OK ? copy_range(w, range, h->lease.address, copy_address, bytes, stream)
                            : status;
}

/* Also after a failure: what was begun must be over before the leases end. */
static gvm_status end_ranges(gstore_service *s, holds *held, CUstream stream)
{
    const CUresult result = gvmi_cu->cuStreamSynchronize(stream);
    gvm_status status = result == CUDA_SUCCESS
                            ? GVM_OK
                            : gvmi_driver_fail(result, "cuStreamSynchronize", "cannot copy columns");

    for (uint32_t i = 0; i < held->count; i++) {
        hold *h = &held->all[i];

        if (h->lease.mode != 0 && gvm_object_release(h->area->object, &h->lease) != GVM_OK)
            status = status != GVM_OK ? status : GVM_E_FOREIGN;
        let_go_area(s, h->area);
    }
    return status;
}

static gvm_status transfer(worker *me, gstore_window *w, uint8_t *bytes)
{
    gstore_service *s = me->service;
    holds *held = &me->holds;
    gvm_status status;
    CUstream stream;

    if (w->name.epoch != s->options.epoch)
        return gvmi_fail(GVM_E_KEEPER, "the GPU memory keeper was started anew: the table is empty");
    if (w->name.device < 0 || w->name.device >= s->device_count)
        return gvmi_fail(GVM_E_NODEVICE, "there is no device %d; there are %d", w->name.device,
                         s->device_count);
    if (w->verb == GSTORE_LINK)
        return link_ranges(s, w);
    if (w->verb == GSTORE_UNLINK)
        return unlink_token(s, w->handle);
    status = gvmi_device_enter(s->devices[w->name.device]);
    if (status != GVM_OK)
        return status;
    stream = me->streams[w->name.device];
    if (w->verb > GSTORE_WRITE && w->verb != GSTORE_COPY_TAKE) {
        status = gstore_copies_carry_out(s->copies, w, bytes, s->options.window_bytes, stream);
        gvmi_device_leave();
        return status;
    }
    held->count = 0;
    for (uint32_t i = 0; i < w->range_count && i < GSTORE_RANGES_MAX && status == GVM_OK; i++)
        status = begin_range(s, w, &w->ranges[i], bytes, stream, held);
    if (status == GVM_OK) {
        status = end_ranges(s, held, stream);
    } else {
        const gvm_error error = gvmi_error_save();

        (void)end_ranges(s, held, stream);
        gvmi_error_restore(&error);
    }
    gvmi_device_leave();
    return status;
}

/* Its status and text are there. The backend's from here on, or everybody's. */
static void end_command(const gstore_service_options *options, uint32_t index)
{
    gstore_window *w = &options->windows[index];
    void *latch = w->latch;
    uint32_t taken = GSTORE_TAKEN;

    if (atomic_compare_exchange_strong(&w->state, &taken, GSTORE_DONE)) {
        options->wake(latch);
        return;
    }
    atomic_store(&w->state, GSTORE_IDLE); /* its backend has left it */
    if (w->verb == GSTORE_WRITE)
        atomic_fetch_sub(&options->queue->left_writes, 1);
    options->give_back(index);
}

static void carry_out(worker *me, uint32_t index)
{
    gstore_service *s = me->service;
    gstore_window *w = &s->options.windows[index];
    gvm_status status;
    gvm_error error;

    status = transfer(me, w, s->options.bytes + index * s->options.window_bytes);
    w->status = status;
    w->text[0] = '\0';
    if (status != GVM_OK) {
        gvm_error_last(&error);
        snprintf(w->text, sizeof w->text, "%s", error.text);
        if (w->name.epoch == s->options.epoch && (status == GVM_E_KEEPER || status == GVM_E_LOST))
            atomic_store(&s->lost, true);
    }
    end_command(&s->options, index);
}

/* ---- threads */

/* The window that comes next in the queue. False: its command was given up. */
static bool take(const gstore_service_options *options, uint32_t *index)
{
    gstore_queue *queue = options->queue;
    const uint32_t place = atomic_fetch_add(&queue->head, 1) % GSTORE_WINDOWS_MAX;
    uint32_t window, posted = GSTORE_POSTED;
    gstore_window *w;

    while ((window = atomic_exchange(&queue->places[place], 0)) == 0)
        ; /* its backend is between taking the place and filling it */
    *index = window - 1;
    w = &options->windows[*index];
    /* Before the look at the state: a backend that finds it set after it has posted relies on that look. */
    atomic_store(&w->queued, 0);
    return atomic_compare_exchange_strong(&w->state, &posted, GSTORE_TAKEN);
}

/* What a keeper that ended left in the queue: its backends are told, and no command is carried out
 * twice. */
static void refuse_left_over(const gstore_service_options *options)
{
    while (sem_trywait(&options->queue->posted) == 0) {
        uint32_t index;
        gstore_window *w;

        if (!take(options, &index))
            continue;
        w = &options->windows[index];
        w->status = GVM_E_KEEPER;
        snprintf(w->text, sizeof w->text, "the GPU memory keeper was started anew");
        end_command(options, index);
    }
}

static void *serve(void *argument)
{
    worker *me = argument;
    gstore_service *s = me->service;

    while (!atomic_load(&s->stop)) {
        struct timespec until;
        uint32_t index;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_S;
        if (sem_clockwait(&s->options.queue->posted, CLOCK_MONOTONIC, &until) == 0 &&
            take(&s->options, &index))
            carry_out(me, index);
    }
    return NULL;
}

static gvm_status open_devices(gstore_service *s)
{
    gvm_status status = gvm_device_count(&s->device_count);

    if (status == GVM_OK && s->device_count > GVM_SERVER_DEVICES_MAX)
        s->device_count = GVM_SERVER_DEVICES_MAX;
    for (int32_t i = 0; i < s->device_count && status == GVM_OK; i++)
        status = gvm_device_open(i, &s->devices[i]);
    return status;
}

/* Copies are several times as fast to memory that the driver has pinned; without, they still work. */
static void register_windows(gstore_service *s)
{
    if (gvmi_device_enter(s->devices[0]) != GVM_OK)
        return;
    s->registered = gvmi_cu->cuMemHostRegister(s->options.bytes,
                                               s->options.window_count * s->options.window_bytes,
                                               CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
    gvmi_device_leave();
}

static gvm_status make_streams(gstore_service *s, worker *w)
{
    gvm_status status = GVM_OK;

    for (int32_t d = 0; d < s->device_count && status == GVM_OK; d++) {
        CUresult result;

        status = gvmi_device_enter(s->devices[d]);
        if (status != GVM_OK)
            break;
        result = gvmi_cu->cuStreamCreate(&w->streams[d], CU_STREAM_NON_BLOCKING);
        gvmi_device_leave();
        if (result != CUDA_SUCCESS)
            status = gvmi_driver_fail(result, "cuStreamCreate", "cannot make a stream");
    }
    return status;
}

static gvm_status start_threads(gstore_service *s)
{
    gvm_status status = GVM_OK;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (s->started < s->options.threads && s->started < THREADS_MAX && status == GVM_OK) {
        worker *w = &s->workers[s->started];
        int code;

        w->service = s;
        status = make_streams(s, w);
        if (status != GVM_OK)
            break;
        code = pthread_create(&w->thread, NULL, serve, w);
        if (code != 0)
            status = gvmi_fail_system(GVM_E_SYSTEM, code, "pthread_create", "cannot start a thread");
        else
            s->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

gvm_status gstore_service_start(const gstore_service_options *options, gstore_service **out)
{
    gstore_service *s = calloc(1, sizeof *s);
    connection *first;
    gvm_status status;

    if (s == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for the service");
    s->options = *options;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->tokens_lock, NULL);
    refuse_left_over(options);
    status = open_devices(s);
    if (status == GVM_OK)
        status = find_connection(s, &first);
    if (status == GVM_OK)
        status = gstore_copies_create(s->devices, first->keeper, &s->copies);
    if (status == GVM_OK) {
        register_windows(s);
        status = start_threads(s);
    }
    if (status != GVM_OK) {
        const gvm_error error = gvmi_error_save();

        gstore_service_stop(s);
        gvmi_error_restore(&error);
        return status;
    }
    *out = s;
    return GVM_OK;
}

void gstore_service_sever(gstore_service *s)
{
    if (s == NULL)
        return;
    atomic_store(&s->stop, true);
    for (uint32_t i = 0; i < s->connection_count; i++)
        gvmi_keeper_sever(s->connections[i].keeper);
}

void gstore_service_stop(gstore_service *s)
{
    if (s == NULL)
        return;
    gstore_service_sever(s);
    for (uint32_t i = 0; i < s->started; i++)
        pthread_join(s->workers[i].thread, NULL);
    gstore_service_drop(s, NULL);
    gstore_copies_destroy(s->copies);
    for (uint32_t i = 0; i < s->connection_count; i++)
        gvm_keeper_close(s->connections[i].keeper);
    for (int32_t d = 0; d < s->device_count; d++) {
        if (s->devices[d] == NULL || gvmi_device_enter(s->devices[d]) != GVM_OK)
            continue;
        for (uint32_t i = 0; i < THREADS_MAX; i++)
            if (s->workers[i].streams[d] != NULL)
                gvmi_cu->cuStreamDestroy(s->workers[i].streams[d]);
        if (d == 0 && s->registered)
            gvmi_cu->cuMemHostUnregister(s->options.bytes);
        gvmi_device_leave();
        gvm_device_close(s->devices[d]);
    }
    pthread_mutex_destroy(&s->tokens_lock);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void gstore_service_drop_copy(gstore_service *s, uint64_t copy)
{
    gstore_copies_drop(s->copies, copy);
}

gvm_status gstore_service_report(gstore_service *s, gstore_report *out)
{
    gvm_keeper_snapshot *snapshot = NULL;
    gvm_status status = gvm_keeper_get_snapshot(s->connections[0].keeper, &snapshot);

    gstore_copies_tidy(s->copies);
    if (status == GVM_E_KEEPER)
        atomic_store(&s->lost, true);
    if (status != GVM_OK)
        return status;
    memset(out, 0, sizeof *out);
    out->keeper_pid = snapshot->keeper.pid;
    out->host_budget_bytes = snapshot->keeper.host_budget_bytes;
    out->host_used_bytes = snapshot->keeper.host_used_bytes;
    out->objects = snapshot->keeper.objects;
    out->clients = snapshot->keeper.clients;
    for (uint32_t i = 0; i < snapshot->keeper.devices && i < GVM_SERVER_DEVICES_MAX; i++) {
        const gvm_keeper_device_info *from = &snapshot->devices[i];
        gstore_device_report *to = &out->devices[out->device_count++];

        snprintf(to->name, sizeof to->name, "%s", from->name);
        to->ordinal = from->ordinal;
        to->objects = from->objects;
        to->budget_bytes = from->budget_bytes;
        to->resident_bytes = from->resident_bytes;
        to->host_bytes = from->host_backed_bytes;
        to->evicted_bytes = from->evicted_bytes;
        to->promoted_bytes = from->promoted_bytes;
        to->copies_bytes = gstore_copies_bytes(s->copies, from->ordinal);
    }
    gvm_keeper_snapshot_destroy(snapshot);
    return GVM_OK;
}

int32_t gstore_service_device_count(const gstore_service *s)
{
    return s->device_count;
}

int gstore_service_is_lost(gstore_service *s)
{
    return atomic_load(&s->lost);
}
