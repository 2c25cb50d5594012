/* See hash.h. Lock: `lock` guards the list and, of what is in it, users, bytes and readiness. The keeper is not called under it. */
#include "query/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "query/executor.h"

#define SHARED_MAX 64 /* more are built, and used once */
/* Of those without a user, which were built for other parameters, perhaps; the latest one is kept, however large it is. */
#define UNUSED_BYTES (UINT64_C(1) << 30)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one was built, or not, or has no user any more */
    gvm_client *keeper;
    gquery_hashed *all;
    uint32_t shared_count; /* of these */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void gquery_hash_init(gvm_client *keeper)
{
    state.keeper = keeper;
}

/* ---- the list */

static void free_hashed(gquery_hashed *h)
{
    gvm_object_close(h->object);
    free((void *)(uintptr_t)h->key.program);
    free(h);
}

static gquery_hashed *make_hashed(const gquery_hash_key *key, uint32_t role)
{
    gquery_hashed *h = calloc(1, sizeof *h);
    gquery_program *program = malloc(sizeof *program);

    if (h == NULL || program == NULL) {
        free(h);
        free(program);
        return NULL;
    }
    *program = *key->program;
    h->key = *key;
    h->key.program = program;
    h->role = role;
    h->users = 1;
    return h;
}

/* As far as they mean something. */
static bool are_equal(const gquery_program *one, const gquery_program *other)
{
    return one->column_count == other->column_count && one->code_count == other->code_count &&
           one->value_count == other->value_count &&
           memcmp(one->columns, other->columns, one->column_count * sizeof one->columns[0]) == 0 &&
           memcmp(one->code, other->code, one->code_count * sizeof one->code[0]) == 0 &&
           memcmp(one->values, other->values, one->value_count * sizeof one->values[0]) == 0;
}

static gquery_hashed *find_locked(const gquery_hash_key *key)
{
    for (gquery_hashed *h = state.all; h != NULL; h = h->next)
        if (h->shared && h->key.store == key->store && h->key.version == key->version &&
            h->key.rows == key->rows && are_equal(h->key.program, key->program))
            return h;
    return NULL;
}

static void unlist(gquery_hashed *hashed)
{
    gquery_hashed **at = &state.all;

    while (*at != hashed)
        at = &(*at)->next;
    *at = hashed->next;
    state.shared_count -= hashed->shared;
}

/* That was used first, of a role, or of all; NULL: all have users, or have been used since. */
static gquery_hashed *take_unused(const uint32_t *role, int64_t until_ns)
{
    gquery_hashed *found = NULL;

    for (gquery_hashed *h = state.all; h != NULL; h = h->next)
        if (h->users == 0 && h->used_ns <= until_ns && (role == NULL || h->role == *role) &&
            (found == NULL || h->used_ns < found->used_ns))
            found = h;
    if (found != NULL)
        unlist(found);
    return found;
}

/* As take_unused(), where those that are unused are more than may be. */
static gquery_hashed *take_surplus(void)
{
    uint64_t bytes = 0;
    uint32_t unused = 0;

    for (const gquery_hashed *h = state.all; h != NULL; h = h->next)
        if (h->users == 0) {
            unused++;
            bytes += h->bytes;
        }
    return unused > 1 && bytes > UNUSED_BYTES ? take_unused(NULL, INT64_MAX) : NULL;
}

/* Another one in its place goes, where there are as many as are shared. */
static gquery_hashed *enlist(gquery_hashed *h)
{
    gquery_hashed *unused = NULL;

    if (h->key.store != 0 && state.shared_count == SHARED_MAX)
        unused = take_unused(NULL, INT64_MAX);
    h->shared = h->key.store != 0 && state.shared_count < SHARED_MAX;
    state.shared_count += h->shared;
    h->next = state.all;
    state.all = h;
    return unused;
}

/* One that can be used, by a further user. */
static gquery_hash_found look_locked(const gquery_hash_key *key, gquery_hashed **out)
{
    gquery_hashed *h = key->store == 0 ? NULL : find_locked(key);

    if (h == NULL)
        return GQUERY_HASH_ABSENT;
    if (!h->ready)
        return GQUERY_HASH_BUSY;
    h->users++;
    *out = h;
    return GQUERY_HASH_READY;
}

gquery_hash_found gquery_hash_find(const gquery_hash_key *key, int wait_ms, gquery_hashed **out)
{
    gquery_hash_found found;

    pthread_mutex_lock(&state.lock);
    found = look_locked(key, out);
    if (found == GQUERY_HASH_BUSY) {
        gquery_wait(&state.changed, &state.lock, wait_ms);
        found = look_locked(key, out);
    }
    pthread_mutex_unlock(&state.lock);
    return found;
}

gquery_hash_found gquery_hash_add(const gquery_hash_key *key, uint32_t role, gquery_hashed **out)
{
    gquery_hashed *made = make_hashed(key, role), *unused = NULL;
    gquery_hash_found found;

    if (made == NULL)
        return GQUERY_HASH_NO_MEMORY;
    pthread_mutex_lock(&state.lock);
    found = look_locked(key, out);
    if (found == GQUERY_HASH_ABSENT) {
        found = GQUERY_HASH_TO_BUILD;
        *out = made;
        made = NULL;
        unused = enlist(*out);
    }
    pthread_mutex_unlock(&state.lock);
    if (made != NULL)
        free_hashed(made);
    if (unused != NULL)
        free_hashed(unused);
    return found;
}

void gquery_hash_ready(gquery_hashed *h)
{
    pthread_mutex_lock(&state.lock);
    h->ready = true;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

void gquery_hash_release(gquery_hashed *h)
{
    gquery_hashed *surplus;
    bool over;

    pthread_mutex_lock(&state.lock);
    h->users--;
    h->used_ns = gquery_now_ns();
    over = !h->ready || !h->shared;
    if (over)
        unlist(h);
    if (h->users == 0)
        pthread_cond_broadcast(&state.changed);
    surplus = take_surplus();
    pthread_mutex_unlock(&state.lock);
    if (over)
        free_hashed(h);
    while (surplus != NULL) {
        free_hashed(surplus);
        pthread_mutex_lock(&state.lock);
        surplus = take_surplus();
        pthread_mutex_unlock(&state.lock);
    }
}

void gquery_hash_rest(int64_t unused_ns)
{
    gquery_hashed *h;

    do {
        pthread_mutex_lock(&state.lock);
        h = take_unused(NULL, gquery_now_ns() - unused_ns);
        pthread_mutex_unlock(&state.lock);
        if (h != NULL)
            free_hashed(h);
    } while (h != NULL);
}

/* ---- memory */

static uint64_t slots_size(const gquery_hashed *h, uint64_t slots)
{
    return slots * (1 + h->keys) * sizeof(uint64_t);
}

uint64_t gquery_hash_size(const gquery_hashed *h, uint64_t slots)
{
    return slots_size(h, slots) + h->key.rows * sizeof(uint32_t);
}

/* Of the role. */
static uint64_t sum_charged(uint32_t role, bool used)
{
    uint64_t bytes = 0;

    for (const gquery_hashed *h = state.all; h != NULL; h = h->next)
        if (h->role == role && (!used || h->users > 0))
            bytes += h->bytes;
    return bytes;
}

bool gquery_hash_charge(gquery_hashed *h, uint64_t slots, uint64_t bytes_max)
{
    const uint64_t bytes = gquery_hash_size(h, slots);
    gquery_hashed *unused;
    bool fits;

    do {
        unused = NULL;
        pthread_mutex_lock(&state.lock);
        fits = sum_charged(h->role, true) + bytes <= bytes_max;
        if (fits && sum_charged(h->role, false) + bytes > bytes_max)
            unused = take_unused(&h->role, INT64_MAX);
        else if (fits)
            h->bytes = bytes;
        pthread_mutex_unlock(&state.lock);
        if (unused != NULL)
            free_hashed(unused);
    } while (unused != NULL);
    return fits;
}

void gquery_hash_await(int wait_ms)
{
    pthread_mutex_lock(&state.lock);
    gquery_wait(&state.changed, &state.lock, wait_ms);
    pthread_mutex_unlock(&state.lock);
}

gvm_status gquery_hash_create(gquery_hashed *h, int32_t device, uint64_t slots)
{
    const uint64_t bytes = gquery_hash_size(h, slots);
    const gvm_object_options options = {
        .struct_size = sizeof options, .size_bytes = bytes, .device = device};
    gvm_status status = gvm_object_create(state.keeper, NULL, bytes, &options, &h->object);

    if (status == GVM_E_NOSPACE) { /* others may have what it needs without a use for it */
        gquery_hash_rest(0);
        status = gvm_object_create(state.keeper, NULL, bytes, &options, &h->object);
    }
    if (status != GVM_OK) {
        h->object = NULL;
        return status;
    }
    h->slots = slots;
    h->next_at = slots_size(h, slots);
    return GVM_OK;
}
