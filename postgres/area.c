/* Areas in use, and the keeper's objects behind them; see area.h and area_state.h.
 *
 * An area that needs little is packed: it has room in an object that small areas of its store share. An area that
 * needs more begins with small chunks, as many tables are small, and grows by an eighth of what it needs. Once it
 * needs more than AREA_SMALL_BYTES it moves to an object with large chunks, as what a chunk costs does not depend
 * on its size; the object gets the name in the place of the old one, and who has that open keeps it: rows that
 * are there do not change. It moves back when little of it is left to be of use, but not to the pack while a token
 * has a link to it, as the driver shares whole chunks. It also moves before a write when a
 * token has ended by which others have it mapped: what comes is not for them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "keeper/client/client.h"
#include "memory/device.h"
#include "postgres/area_state.h"

#define CHUNK_BYTES (2ull << 20)
#define AREA_SMALL_BYTES (256ull << 20)
#define RESERVE_BYTES \
    (1ull << 30) /* with small chunks; where there is no memory to move, it stays */
#define LARGE_CHUNK_BYTES (32ull << 20)
#define LARGE_RESERVE_BYTES (32ull << 30) /* what offsets in 8-byte units reach */
#define AHEAD_PART 8u                     /* an area grows by this part of what it needs, */
#define AHEAD_MAX_BYTES (1ull << 30)      /* at most by so much */
#define ROOM_BYTES (64ull << 10)
#define PACK_RESERVE_BYTES (512ull << 20) /* rooms for four areas of each of 2048 columns */
#define LEASE_WAIT_MS 30000               /* while the keeper moves the area */

/* ---- names and order */

/* Of one store. Its manifest comes last, and so is dropped last: who finds its token stale finds no column any more. */
static int compare_areas(const void *left, const void *right)
{
    const area *a = left, *b = right;
    int order = (a->part == GSTORE_MANIFEST) - (b->part == GSTORE_MANIFEST);

    if (order == 0)
        order = (a->column > b->column) - (a->column < b->column);
    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

static int compare_stores(const void *left, const void *right)
{
    return gstore_compare_stores(&((const store_areas *)left)->name,
                                 &((const store_areas *)right)->name);
}

const char *const gstore_part_names[] = {"values",   "nulls",         "bodies",
                                         "manifest", "element_nulls", "pack"};

static void name_area(const area *a, char text[GVM_NAME_BYTES_MAX])
{
    char path[GSTORE_STORE_PATH_BYTES];

    gstore_store_path(&a->name, path);
    snprintf(text, GVM_NAME_BYTES_MAX, "%s/%u.%s", path, a->column, gstore_part_names[a->part]);
}

/* ---- connections */

/* One that has a place for one more object. The lock is held. */
static gvm_status find_connection(gstore_areas *s, connection **out)
{
    gvm_status status;

    for (uint32_t i = 0; i < s->connection_count; i++)
        if (s->connections[i].open < GVM_OBJECTS_OPEN_MAX) {
            *out = &s->connections[i];
            return GVM_OK;
        }
    if (s->connection_count == GSTORE_CONNECTIONS_MAX)
        return gvmi_fail(GVM_E_LIMIT, "there are %u columns in GPU memory",
                         (unsigned)(GSTORE_CONNECTIONS_MAX * GVM_OBJECTS_OPEN_MAX));
    status = gvm_keeper_connect(s->path, &s->connections[s->connection_count].keeper);
    if (status != GVM_OK)
        return status;
    *out = &s->connections[s->connection_count++];
    if (atomic_load(&s->stop)) /* the thread that stores it reads the count afterwards */
        gvmi_keeper_sever((*out)->keeper);
    return GVM_OK;
}

gvm_status gstore_areas_create(const char *path, uint32_t link_mode, gstore_areas **out)
{
    gstore_areas *s = calloc(1, sizeof *s);
    connection *first;
    gvm_status status;

    if (s == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for the service");
    snprintf(s->path, sizeof s->path, "%s", path);
    s->link_mode = link_mode;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->sweeps_lock, NULL);
    pthread_mutex_init(&s->tokens_lock, NULL);
    pthread_cond_init(&s->not_busy, NULL);
    status = find_connection(s, &first);
    if (status == GVM_OK)
        *out = s;
    else
        gstore_areas_destroy(s);
    return status;
}

void gstore_areas_sever(gstore_areas *s)
{
    atomic_store(&s->stop, true);
    for (uint32_t i = 0; i < s->connection_count; i++)
        gvmi_keeper_sever(s->connections[i].keeper);
}

void gstore_areas_destroy(gstore_areas *s)
{
    const gvm_error error = gvmi_error_save();

    if (s == NULL)
        return;
    gstore_areas_drop(s, NULL);
    for (uint32_t i = 0; i < s->connection_count; i++)
        gvm_keeper_close(s->connections[i].keeper);
    pthread_cond_destroy(&s->not_busy);
    pthread_mutex_destroy(&s->tokens_lock);
    pthread_mutex_destroy(&s->sweeps_lock);
    pthread_mutex_destroy(&s->lock);
    free(s);
    gvmi_error_restore(&error);
}

gvm_keeper *gstore_areas_keeper(gstore_areas *s)
{
    return s->connections[0].keeper;
}

/* ---- objects */

uint64_t gstore_area_chunk_bytes(const area *a)
{
    return a->kind == LARGE ? LARGE_CHUNK_BYTES : CHUNK_BYTES;
}

area_kind gstore_area_kind_for(const area *a, uint64_t needed)
{
    if (needed <= ROOM_BYTES && a->part != GSTORE_MANIFEST && a->part != GSTORE_PACK && a->links == 0)
        return PACKED;
    return needed <= AREA_SMALL_BYTES ? SMALL : LARGE;
}

static uint64_t reserve_bytes(const area *a)
{
    if (a->part == GSTORE_PACK)
        return PACK_RESERVE_BYTES;
    return a->kind == LARGE ? LARGE_RESERVE_BYTES : RESERVE_BYTES;
}

/* ahead: of need, by a part of it. */
static uint64_t grown_bytes(const area *a, uint64_t needed, bool ahead)
{
    const uint64_t most = a->kind == LARGE             ? LARGE_RESERVE_BYTES
                          : needed <= AREA_SMALL_BYTES ? AREA_SMALL_BYTES
                                                       : RESERVE_BYTES;
    const uint64_t part = needed / AHEAD_PART < AHEAD_MAX_BYTES ? needed / AHEAD_PART : AHEAD_MAX_BYTES;
    const uint64_t bytes = gvmi_round_up(needed + (ahead ? part : 0), gstore_area_chunk_bytes(a));

    return bytes <= most ? bytes : most;
}

static void free_area(gstore_areas *s, area *a)
{
    if (a->pack != NULL)
        gstore_area_let_go(s, a->pack);
    gvm_object_close(a->object);
    if (a->connection != NULL) {
        pthread_mutex_lock(&s->lock);
        a->connection->open--;
        pthread_mutex_unlock(&s->lock);
    }
    free(a->rooms);
    free(a);
}

/* Of a->bytes. named: readers find it. The lock is held. */
static gvm_status create_object(gstore_areas *s, area *a, bool named)
{
    const gvm_object_options options = {.struct_size = sizeof options,
                                        .chunk_bytes = gstore_area_chunk_bytes(a),
                                        .bytes = a->bytes,
                                        .device = a->name.device,
                                        .mode = 0600,
                                        .flags = GVM_OBJECT_UNTRACKED};
    char name[GVM_NAME_BYTES_MAX];
    gvm_status status = find_connection(s, &a->connection);

    if (status != GVM_OK)
        return status;
    name_area(a, name);
    status = gvm_object_create(a->connection->keeper, named ? name : NULL, reserve_bytes(a),
                               &options, &a->object);
    if (status == GVM_OK)
        a->connection->open++;
    else
        a->connection = NULL;
    return status;
}

void gstore_area_set_bytes(gstore_areas *s, area *a, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    a->bytes = bytes;
    pthread_mutex_unlock(&s->lock);
}

/* Ahead of need where there is memory, as much as is needed where there is not. */
static gvm_status grow_area(gstore_areas *s, area *a, uint64_t needed)
{
    uint64_t bytes = grown_bytes(a, needed, true);
    gvm_status status = gvm_object_grow(a->object, bytes);

    if (status == GVM_E_NOSPACE) {
        bytes = grown_bytes(a, needed, false);
        status = gvm_object_grow(a->object, bytes);
    }
    if (status == GVM_OK)
        gstore_area_set_bytes(s, a, bytes);
    return status;
}

static gvm_object *object_of(const area *a)
{
    return a->pack != NULL ? a->pack->object : a->object;
}

gvm_status gstore_area_acquire(gstore_hold *hold)
{
    const gvm_acquire_options options = {
        .struct_size = sizeof options, .timeout_ms = LEASE_WAIT_MS, .hint = GVM_HINT_SCAN};
    /* For writing, too: rows come behind those that others read (GVM_OBJECT_UNTRACKED). */
    const gvm_status status = gvm_object_acquire(object_of(hold->area), GVM_LEASE_READ, &options,
                                                 &hold->lease);

    hold->address = status == GVM_OK ? hold->lease.address + hold->area->offset_bytes : 0;
    return status;
}

gvm_status gstore_area_end_lease(gstore_hold *hold)
{
    return gvm_object_release(object_of(hold->area), &hold->lease);
}

/* ---- areas in use */

void gstore_area_let_go(gstore_areas *s, area *a)
{
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --a->refs == 0 && a->dropped;
    if (a->busy)
        pthread_cond_broadcast(&s->not_busy);
    pthread_mutex_unlock(&s->lock);
    if (last)
        free_area(s, a);
}

/* Rows come one behind the other: where a new writer begins, what lies behind is of one that was undone. The
 * lock is held. */
static void note_written(area *a, uint64_t turn, const gstore_range *range)
{
    const uint64_t end = range->offset_bytes + range->bytes;

    if (turn > a->name.turn && a->part != GSTORE_MANIFEST) {
        a->name.turn = turn;
        a->needed_bytes = range->offset_bytes;
        a->trim = false;
    }
    if (end > a->needed_bytes)
        a->needed_bytes = end;
}

store_areas *gstore_areas_find_store(gstore_areas *s, const gstore_store_name *name)
{
    const store_areas key = {.name = *name};
    store_areas **found = tfind(&key, &s->stores, compare_stores);

    return found != NULL ? *found : NULL;
}

area **gstore_area_find(gstore_areas *s, const area *key)
{
    const store_areas *of = gstore_areas_find_store(s, &key->name);

    return of != NULL ? tfind(key, &of->areas, compare_areas) : NULL;
}

/* NULL: out of memory. The lock is held. */
static store_areas *make_store(gstore_areas *s, const gstore_store_name *name)
{
    store_areas *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->name = *name;
    if (tsearch(made, &s->stores, compare_stores) == NULL) {
        free(made);
        return NULL;
    }
    s->store_count++;
    return made;
}

/* Into the tree of its store; one without areas stays until it is dropped. The lock is held. */
static gvm_status add_area(gstore_areas *s, area *a)
{
    store_areas *of = gstore_areas_find_store(s, &a->name);

    if (of == NULL)
        of = make_store(s, &a->name);
    if (of == NULL || tsearch(a, &of->areas, compare_areas) == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    return GVM_OK;
}

/* ---- packs. The lock is held. */

/* The store's. *failed: see take_room(). */
static gvm_status find_pack(gstore_areas *s, const gstore_store_name *store, area **out, area **failed)
{
    const area key = {.name = *store, .part = GSTORE_PACK, .kind = SMALL, .bytes = CHUNK_BYTES};
    area **found = gstore_area_find(s, &key), *made;
    gvm_status status;

    if (found != NULL) {
        *out = *found;
        return GVM_OK;
    }
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a table");
    *made = key;
    status = create_object(s, made, true);
    if (status == GVM_OK)
        status = add_area(s, made);
    if (status == GVM_OK)
        *out = made;
    else
        *failed = made;
    return status;
}

static gvm_status add_room(area *pack, const area *a)
{
    const uint64_t end = (pack->room_count + 1) * ROOM_BYTES;
    room *rooms = realloc(pack->rooms, (pack->room_count + 1) * sizeof *rooms);

    if (rooms == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    pack->rooms = rooms;
    if (end > pack->bytes) {
        const gvm_status status = gvm_object_grow(pack->object, gvmi_round_up(end, CHUNK_BYTES));

        if (status != GVM_OK)
            return status;
        pack->bytes = gvmi_round_up(end, CHUNK_BYTES);
    }
    rooms[pack->room_count++] = (room){.column = a->column, .part = a->part};
    return GVM_OK;
}

/* The area's room in its store's pack, always the same. *failed: a pack that could not be made, for the caller to free
 * without the lock. */
static gvm_status take_room(gstore_areas *s, area *a, area **failed)
{
    area *pack = NULL;
    gvm_status status = find_pack(s, &a->name, &pack, failed);
    uint32_t i = 0;

    if (status != GVM_OK)
        return status;
    while (i < pack->room_count &&
           (pack->rooms[i].column != a->column || pack->rooms[i].part != a->part))
        i++;
    if (i == pack->room_count)
        status = add_room(pack, a);
    if (status != GVM_OK)
        return status;
    a->pack = pack;
    pack->refs++;
    a->offset_bytes = i * ROOM_BYTES;
    a->bytes = ROOM_BYTES;
    return GVM_OK;
}

/* Its kind says where. */
static gvm_status make_place(gstore_areas *s, area *a, bool named, area **failed)
{
    return a->kind == PACKED ? take_room(s, a, failed) : create_object(s, a, named);
}

/* ---- areas for commands */

/* With chunks for the range, or room. The lock is held. */
static gvm_status make_area(gstore_areas *s, const area *key, uint64_t end, area **out, area **failed)
{
    area *made = calloc(1, sizeof *made);
    gvm_status status;

    if (made == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    *made = *key;
    made->kind = gstore_area_kind_for(made, end);
    made->bytes = end <= LARGE_RESERVE_BYTES ? grown_bytes(made, end, false) : 0;
    status = make_place(s, made, true, failed);
    if (status == GVM_OK)
        status = add_area(s, made);
    *out = made;
    return status;
}

/* What could not be made. */
static void free_failed(gstore_areas *s, area *a)
{
    const gvm_error error = gvmi_error_save();

    if (a != NULL)
        free_area(s, a);
    gvmi_error_restore(&error);
}

gvm_status gstore_area_hold(gstore_areas *s, const gstore_store_name *store,
                            const gstore_range *range, bool write, gstore_hold *out)
{
    const area key = {.name = *store, .column = range->column, .part = range->part};
    gvm_status status = GVM_OK;
    area **found, *a = NULL, *failed = NULL, *failed_pack = NULL;

    pthread_mutex_lock(&s->lock);
    while ((found = gstore_area_find(s, &key)) != NULL && (*found)->busy)
        pthread_cond_wait(&s->not_busy, &s->lock);
    if (found != NULL)
        a = *found;
    else if (write)
        status = make_area(s, &key, range->offset_bytes + range->bytes, &a, &failed_pack);
    else
        status = gvmi_fail(GVM_E_ABSENT, "the table has no such data");
    if (status != GVM_OK)
        failed = a;
    else
        a->refs++;
    if (status == GVM_OK && write)
        note_written(a, store->turn, range);
    pthread_mutex_unlock(&s->lock);
    free_failed(s, failed);
    free_failed(s, failed_pack);
    if (status != GVM_OK)
        return status;
    *out = (gstore_hold){.area = a};
    status = gstore_area_acquire(out);
    if (status != GVM_OK) {
        gstore_area_let_go(s, a);
        *out = (gstore_hold){0};
    }
    return status;
}

bool gstore_area_is(const gstore_hold *hold, const gstore_range *range)
{
    return hold->area->column == range->column && hold->area->part == range->part;
}

uint64_t gstore_area_bytes(const gstore_hold *hold)
{
    return hold->area->bytes;
}

gvm_status gstore_area_release(gstore_areas *s, gstore_hold *hold)
{
    const bool held = hold->lease.mode != 0;
    const gvm_status status = held ? gstore_area_end_lease(hold) : GVM_OK;

    gstore_area_let_go(s, hold->area);
    *hold = (gstore_hold){0};
    return status;
}

/* ---- moving */

/* Gives it what the other has of use, and then, if it has an object of its own, the name. */
static gvm_status fill_area(gstore_areas *s, area *a, const gstore_hold *from, uint64_t needed,
                            CUstream stream)
{
    gstore_hold to = {.area = a};
    char name[GVM_NAME_BYTES_MAX];
    CUresult result;
    gvm_status status = a->kind == PACKED ? GVM_OK : grow_area(s, a, needed);

    if (status == GVM_OK)
        status = gstore_area_acquire(&to);
    if (status != GVM_OK)
        return status;
    result = gvmi_cu->cuMemcpyDtoDAsync(to.address, from->address,
                                        from->area->bytes < a->bytes ? from->area->bytes : a->bytes,
                                        stream);
    if (result == CUDA_SUCCESS)
        result = gvmi_cu->cuStreamSynchronize(stream); /* a command that finds the area finds the rows */
    status = gstore_area_end_lease(&to);
    if (result != CUDA_SUCCESS)
        return gvmi_driver_fail(result, "cuMemcpyDtoDAsync", "cannot copy a column");
    if (status != GVM_OK || a->kind == PACKED)
        return status;
    name_area(a, name);
    return gvm_object_publish(a->object, name, GVM_PUBLISH_REPLACE | GVM_PUBLISH_PRIVATE);
}

gvm_status gstore_area_move(gstore_areas *s, const gstore_hold *from, area_kind kind,
                            uint64_t needed, CUstream stream, area **out)
{
    area *old = from->area, *made = calloc(1, sizeof *made), *failed = NULL, **place;
    gvm_status status;

    if (made == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for a column");
    *made = (area){.name = old->name, .column = old->column, .part = old->part, .kind = kind, .refs = 1};
    pthread_mutex_lock(&s->lock);
    status = old->dropped ? gvmi_fail(GVM_E_ABSENT, "the table was dropped")
                          : make_place(s, made, false, &failed);
    pthread_mutex_unlock(&s->lock);
    free_failed(s, failed);
    if (status == GVM_OK)
        status = fill_area(s, made, from, needed, stream);
    if (status != GVM_OK) {
        free_failed(s, made);
        return status;
    }
    pthread_mutex_lock(&s->tokens_lock);
    if (kind == PACKED && old->links > 0) {
        pthread_mutex_unlock(&s->tokens_lock);
        free_area(s, made);
        return gvmi_fail(GVM_E_TIMEOUT, "a token has a link to the column");
    }
    gstore_areas_relink(s, made);
    pthread_mutex_lock(&s->lock);
    made->needed_bytes = old->needed_bytes;
    made->links = old->links;
    place = gstore_area_find(s, old);
    if (place != NULL && *place == old)
        *place = made; /* it compares the same */
    else
        made->dropped = true;
    old->dropped = true;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->tokens_lock);
    *out = made;
    return GVM_OK;
}

gvm_status gstore_area_move_busy(gstore_areas *s, area *a, area_kind kind)
{
    gstore_hold hold = {.area = a};
    gvm_device *device;
    area *made;
    gvm_status status = gstore_area_acquire(&hold), ended;

    if (status != GVM_OK)
        return status;
    status = gvm_device_open(a->name.device, &device);
    if (status == GVM_OK) {
        status = gvmi_device_enter(device);
        if (status == GVM_OK) {
            status = gstore_area_move(s, &hold, kind, a->needed_bytes, NULL, &made);
            gvmi_device_leave();
            if (status == GVM_OK)
                gstore_area_let_go(s, made);
        }
        gvm_device_close(device);
    }
    ended = gstore_area_end_lease(&hold);
    return status != GVM_OK ? status : ended;
}

/* Until an area has an object of its own, or is gone; with the lock. *out: NULL, or one that is packed, busy for the
 * caller. Another one may take its place while the commands end that use it. */
static void find_packed(gstore_areas *s, const area *key, area **out)
{
    area **found;

    *out = NULL;
    while ((found = gstore_area_find(s, key)) != NULL) {
        area *a = *found;

        if (a->busy) {
            pthread_cond_wait(&s->not_busy, &s->lock);
            continue;
        }
        if (a->kind != PACKED)
            return;
        a->busy = true;
        a->refs++;
        while (a->refs > 1)
            pthread_cond_wait(&s->not_busy, &s->lock);
        if (!a->dropped) {
            *out = a;
            return;
        }
        pthread_mutex_unlock(&s->lock);
        gstore_area_let_go(s, a);
        pthread_mutex_lock(&s->lock);
    }
}

gvm_status gstore_area_unpack(gstore_areas *s, const gstore_store_name *store, const gstore_range *range)
{
    const area key = {.name = *store, .column = range->column, .part = range->part};
    gvm_status status;
    area *a;

    pthread_mutex_lock(&s->lock);
    find_packed(s, &key, &a);
    pthread_mutex_unlock(&s->lock);
    if (a == NULL)
        return GVM_OK;
    status = gstore_area_move_busy(s, a, SMALL);
    pthread_mutex_lock(&s->lock);
    a->busy = false;
    pthread_cond_broadcast(&s->not_busy);
    pthread_mutex_unlock(&s->lock);
    gstore_area_let_go(s, a);
    return status;
}

static gvm_status move_hold(gstore_areas *s, gstore_hold *hold, area_kind kind, uint64_t needed,
                            CUstream stream)
{
    gstore_hold to = {0};
    gvm_status status = gstore_area_move(s, hold, kind, needed, stream, &to.area);

    if (status != GVM_OK)
        return status;
    (void)gstore_area_release(s, hold); /* nothing on the stream uses it any more */
    *hold = to;
    return gstore_area_acquire(hold);
}

bool gstore_area_is_shown(area *a)
{
    gvm_object_info info = {.struct_size = sizeof info};

    if (!atomic_load(&a->ended))
        return false;
    if (gvm_object_get_info(a->object, &info) != GVM_OK || info.foreign)
        return true;
    atomic_store(&a->ended, false);
    return false;
}

gvm_status gstore_area_reserve(gstore_areas *s, gstore_hold *hold, const gstore_range *range,
                               CUstream stream)
{
    const uint64_t end = range->offset_bytes + range->bytes;
    area_kind kind;
    uint64_t needed;

    if (end > LARGE_RESERVE_BYTES)
        return gvmi_fail(GVM_E_LIMIT, "a column can have %llu GiB",
                         (unsigned long long)(LARGE_RESERVE_BYTES >> 30));
    pthread_mutex_lock(&s->lock);
    note_written(hold->area, 0, range);
    needed = hold->area->needed_bytes;
    kind = gstore_area_kind_for(hold->area, needed);
    pthread_mutex_unlock(&s->lock);
    if (kind < hold->area->kind)
        kind = hold->area->kind;
    if (gstore_area_is_shown(hold->area))
        return move_hold(s, hold, kind, needed, stream);
    if (end <= hold->area->bytes)
        return GVM_OK;
    if (kind > hold->area->kind) {
        const gvm_status status = move_hold(s, hold, kind, end, stream);

        if (status == GVM_OK || hold->lease.mode == 0 || hold->area->kind == PACKED ||
            end > RESERVE_BYTES)
            return status;
    }
    return grow_area(s, hold->area, end);
}

/* ---- walks over all areas */

/* Areas to free, in order; and the stores they were of. */
typedef struct found {
    area *first, **end;
    store_areas *stores;
} found;

/* What somebody uses, its last command closes. */
static void drop_area(const void *node, VISIT visit, void *closure)
{
    area *a = *(area *const *)node;
    found *all = closure;

    if (!gstore_is_in_order(visit))
        return;
    a->dropped = true;
    if (a->refs > 0)
        return;
    a->next_found = NULL;
    *all->end = a;
    all->end = &a->next_found;
}

static void drop_areas(store_areas *of, found *all)
{
    twalk_r(of->areas, drop_area, all);
    of->next_found = all->stores;
    all->stores = of;
}

static void drop_store(const void *node, VISIT visit, void *closure)
{
    if (gstore_is_in_order(visit))
        drop_areas(*(store_areas *const *)node, closure);
}

static void keep(void *node)
{
    (void)node;
}

/* Takes it out of the tree of stores. The lock is held. */
static void free_store(gstore_areas *s, store_areas *of)
{
    tdelete(of, &s->stores, compare_stores);
    s->store_count--;
    tdestroy(of->areas, keep);
    free(of);
}

void gstore_areas_drop(gstore_areas *s, const gstore_store_name *name)
{
    found all = {.end = &all.first};

    pthread_mutex_lock(&s->lock);
    if (name == NULL) {
        twalk_r(s->stores, drop_store, &all);
    } else {
        store_areas *of = gstore_areas_find_store(s, name);

        if (of != NULL)
            drop_areas(of, &all);
    }
    for (store_areas *of = all.stores, *next; of != NULL; of = next) {
        next = of->next_found;
        free_store(s, of);
    }
    pthread_mutex_unlock(&s->lock);
    for (area *a = all.first, *next; a != NULL; a = next) {
        next = a->next_found;
        free_area(s, a);
    }
    gstore_areas_forget_tokens(s, name);
}

static void add_area_size(const void *node, VISIT visit, void *closure)
{
    const area *a = *(area *const *)node;

    if (gstore_is_in_order(visit) && a->kind != PACKED)
        *(uint64_t *)closure += a->bytes;
}

/* closure: the place for the next one. */
static void add_store_size(const void *node, VISIT visit, void *closure)
{
    const store_areas *of = *(store_areas *const *)node;
    gstore_store_size **next = closure;

    if (!gstore_is_in_order(visit))
        return;
    **next = (gstore_store_size){.store = of->name.store};
    twalk_r(of->areas, add_area_size, &(*next)->bytes);
    ++*next;
}

gvm_status gstore_areas_sizes(gstore_areas *s, gstore_store_size **out, uint32_t *count)
{
    gstore_store_size *all, *next;

    pthread_mutex_lock(&s->lock);
    next = all = calloc((size_t)s->store_count + 1, sizeof *all);
    if (all != NULL)
        twalk_r(s->stores, add_store_size, &next);
    pthread_mutex_unlock(&s->lock);
    if (all == NULL)
        return gvmi_fail(GVM_E_NOMEM, "out of host memory for sizes of tables");
    *out = all;
    *count = (uint32_t)(next - all);
    return GVM_OK;
}
