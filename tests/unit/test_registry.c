/* base/registry.c: only live objects are found, and removing one waits for those inside. */
#include "tests/unit/unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/registry.h"

static void registry_entry_is_found_until_removed(void **state)
{
    int object;
    void *found;

    (void)state;
    assert_int_equal(gvmi_registry_count(GVMI_KIND_BUFFER), 0);
    assert_int_equal(gvmi_registry_add(GVMI_KIND_BUFFER, 5, &object), GVM_OK);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_BUFFER), 1);
    assert_int_equal(gvmi_registry_hold(GVMI_KIND_BUFFER, 5, &found), GVM_OK);
    assert_ptr_equal(found, &object);
    gvmi_registry_drop(GVMI_KIND_BUFFER, 5);
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_BUFFER, 5, &found), GVM_OK);
    assert_ptr_equal(found, &object);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_BUFFER), 0);
    assert_int_equal(gvmi_registry_hold(GVMI_KIND_BUFFER, 5, &found), GVM_E_FOREIGN);
    assert_null(found);
}

static void registry_unknown_key_is_foreign(void **state)
{
    void *found = state;
    gvm_error error;

    (void)state;
    assert_int_equal(gvmi_registry_hold(GVMI_KIND_VECTOR, 0, &found), GVM_E_FOREIGN);
    assert_null(found);
    gvm_error_last(&error);
    assert_string_equal(error.text, "the vector is NULL");
    found = state;
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_VECTOR, 0xdead, &found), GVM_E_FOREIGN);
    assert_null(found);
    gvm_error_last(&error);
    assert_non_null(strstr(error.text, "0xdead"));
}

static void registry_kinds_do_not_mix(void **state)
{
    int object;
    void *found;

    (void)state;
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++) {
        assert_int_equal(gvmi_registry_add((gvmi_kind)kind, 9, &object), GVM_OK);
        for (int other = kind + 1; other < GVMI_KIND_COUNT; other++)
            assert_int_equal(gvmi_registry_hold((gvmi_kind)other, 9, &found), GVM_E_FOREIGN);
    }
    for (int kind = 0; kind < GVMI_KIND_COUNT; kind++)
        assert_int_equal(gvmi_registry_remove((gvmi_kind)kind, 9, &found), GVM_OK);
}

static void registry_second_entry_of_a_key_is_refused(void **state)
{
    int first, second;
    void *found;

    (void)state;
    assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, 1, &first), GVM_OK);
    assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, 1, &second), GVM_E_INVALID);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_PIECE), 1);
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_PIECE, 1, &found), GVM_OK);
    assert_ptr_equal(found, &first);
}

static void registry_many_entries_are_all_found(void **state)
{
    static int objects[5000];
    void *found;

    (void)state;
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, i * 0x9e3779b97f4a7c15, &objects[i]),
                         GVM_OK);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_PIECE), 5000);
    for (uint64_t i = 0; i < 5000; i++) {
        assert_int_equal(gvmi_registry_remove(GVMI_KIND_PIECE, i * 0x9e3779b97f4a7c15, &found), GVM_OK);
        assert_ptr_equal(found, &objects[i]);
    }
    assert_int_equal(gvmi_registry_count(GVMI_KIND_PIECE), 0);
}

static atomic_bool removed;

static void *remover(void *arg)
{
    void *found;

    (void)arg;
    gvmi_registry_remove(GVMI_KIND_SHARE, 1, &found);
    atomic_store(&removed, true);
    return NULL;
}

static void registry_remove_waits_for_holders_and_lets_nobody_in(void **state)
{
    int object;
    void *found;
    pthread_t thread;

    (void)state;
    assert_int_equal(gvmi_registry_add(GVMI_KIND_SHARE, 1, &object), GVM_OK);
    assert_int_equal(gvmi_registry_hold(GVMI_KIND_SHARE, 1, &found), GVM_OK);
    assert_int_equal(pthread_create(&thread, NULL, remover, NULL), 0);
    while (gvmi_registry_hold(GVMI_KIND_SHARE, 1, &found) == GVM_OK) { /* until the remover has begun */
        gvmi_registry_drop(GVMI_KIND_SHARE, 1);
        sched_yield();
    }
    assert_false(atomic_load(&removed));
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_SHARE, 1, &found), GVM_E_FOREIGN); /* only one may */
    gvmi_registry_drop(GVMI_KIND_SHARE, 1);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&removed));
    assert_int_equal(gvmi_registry_count(GVMI_KIND_SHARE), 0);
}

/* Another thread removes a key just after the lock was let go. In the tree 10 is above 5 and 15: taking it out
 * moves 15 to its node and frees that of 15. */
static uint64_t remove_at_unlock;

void __real_gvmi_unlock(gvmi_mutex *mutex);
void __wrap_gvmi_unlock(gvmi_mutex *mutex);
void __wrap_gvmi_unlock(gvmi_mutex *mutex)
{
    const uint64_t key = remove_at_unlock;
    void *found;

    remove_at_unlock = 0;
    __real_gvmi_unlock(mutex);
    if (key != 0)
        (void)gvmi_registry_remove(GVMI_KIND_PIECE, key, &found);
}

static void registry_removal_after_an_addition_does_not_disturb_it(void **state)
{
    int objects[3];
    void *found;

    (void)state;
    assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, 10, &objects[0]), GVM_OK);
    assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, 5, &objects[1]), GVM_OK);
    remove_at_unlock = 10;
    assert_int_equal(gvmi_registry_add(GVMI_KIND_PIECE, 15, &objects[2]), GVM_OK);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_PIECE), 2);
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_PIECE, 15, &found), GVM_OK);
    assert_ptr_equal(found, &objects[2]);
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_PIECE, 5, &found), GVM_OK);
}

enum { RACERS = 4, RACE_KEYS = 8, RACE_ROUNDS = 4000, ALIVE = 0x600d };

/* The keys are added and removed by one thread while others enter and leave: nobody inside may
 * see the object dead. */
static atomic_bool race_over;
static atomic_uint dead_seen;

static void *race_user(void *arg)
{
    uint64_t key = (uint64_t)(uintptr_t)arg;
    void *found;

    while (!atomic_load(&race_over)) {
        key = (key + 1) % RACE_KEYS;
        if (gvmi_registry_hold(GVMI_KIND_BUFFER, key, &found) != GVM_OK)
            continue;
        if (*(int *)found != ALIVE)
            atomic_fetch_add(&dead_seen, 1);
        gvmi_registry_drop(GVMI_KIND_BUFFER, key);
    }
    return NULL;
}

static void registry_race_of_hold_and_remove_shows_no_dead_object(void **state)
{
    pthread_t threads[RACERS];
    unsigned failures = 0;

    (void)state;
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race_user, (void *)(uintptr_t)i), 0);
    for (int round = 0; round < RACE_ROUNDS; round++) {
        int *object = malloc(sizeof *object);
        void *found;

        *object = ALIVE;
        failures += gvmi_registry_add(GVMI_KIND_BUFFER, (uint64_t)round % RACE_KEYS, object) != GVM_OK;
        failures += gvmi_registry_remove(GVMI_KIND_BUFFER, (uint64_t)round % RACE_KEYS, &found) !=
                    GVM_OK;
        *object = 0;
        free(object);
    }
    atomic_store(&race_over, true);
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
    assert_int_equal(atomic_load(&dead_seen), 0);
    assert_int_equal(gvmi_registry_count(GVMI_KIND_BUFFER), 0);
}

/* ---- fork */

static atomic_bool forks_over;

static void *hold_and_drop(void *key)
{
    void *found;

    while (!atomic_load(&forks_over))
        if (gvmi_registry_hold(GVMI_KIND_BUFFER, gvmi_key(key), &found) == GVM_OK)
            gvmi_registry_drop(GVMI_KIND_BUFFER, gvmi_key(key));
    return NULL;
}

/* In most of so many children the lock is held by a thread of the parent. */
static void registry_in_a_child_of_fork_is_empty_and_waits_for_nobody(void **state)
{
    enum { CHILDREN = 50, BUSY = 3 };
    pthread_t threads[BUSY];
    int object, failed = 0;
    void *found;

    (void)state;
    assert_int_equal(gvmi_registry_add(GVMI_KIND_BUFFER, gvmi_key(&object), &object), GVM_OK);
    atomic_store(&forks_over, false);
    for (int i = 0; i < BUSY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_drop, &object), 0);
    for (int i = 0; i < CHILDREN && failed == 0; i++) {
        int status = -1;
        const pid_t child = fork();

        if (child == 0) {
            end_child_after(20);
            _exit(gvmi_registry_hold(GVMI_KIND_BUFFER, gvmi_key(&object), &found) == GVM_E_FOREIGN &&
                          gvmi_registry_count(GVMI_KIND_BUFFER) == 0 &&
                          gvmi_registry_add(GVMI_KIND_BUFFER, gvmi_key(&object), &object) == GVM_OK &&
                          gvmi_registry_remove(GVMI_KIND_BUFFER, gvmi_key(&object), &found) == GVM_OK
                      ? 0
                      : 1);
        }
        failed += waitpid(child, &status, 0) != child || status != 0;
    }
    atomic_store(&forks_over, true);
    for (int i = 0; i < BUSY; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failed, 0);
    assert_int_equal(gvmi_registry_remove(GVMI_KIND_BUFFER, gvmi_key(&object), &found), GVM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registry_entry_is_found_until_removed),
        cmocka_unit_test(registry_unknown_key_is_foreign),
        cmocka_unit_test(registry_kinds_do_not_mix),
        cmocka_unit_test(registry_second_entry_of_a_key_is_refused),
        cmocka_unit_test(registry_many_entries_are_all_found),
        cmocka_unit_test(registry_remove_waits_for_holders_and_lets_nobody_in),
        cmocka_unit_test(registry_removal_after_an_addition_does_not_disturb_it),
        cmocka_unit_test(registry_race_of_hold_and_remove_shows_no_dead_object),
        cmocka_unit_test(registry_in_a_child_of_fork_is_empty_and_waits_for_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
