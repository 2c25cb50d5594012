/* keeper/server/jobs.c: whose job a thread of a mover does next. */
#include "tests/unit/unit.h"

#include "keeper/server/mover.h"

static gvmi_job *take(gvmi_jobs *jobs)
{
    gvmi_job *job = gvmi_jobs_take(jobs);

    assert_non_null(job);
    return job;
}

static void job_of_another_user_waits_for_one(void **state)
{
    enum { MANY = 1000 };
    gvmi_job many[MANY] = {{0}}, other = {.uid = 2};
    gvmi_jobs jobs = {0};

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        many[i].uid = 1;
        gvmi_jobs_add(&jobs, &many[i], false);
    }
    assert_ptr_equal(take(&jobs), &many[0]);
    gvmi_jobs_add(&jobs, &other, false);
    assert_ptr_equal(take(&jobs), &many[1]);
    assert_ptr_equal(take(&jobs), &other);
    for (unsigned i = 2; i < MANY; i++)
        assert_ptr_equal(take(&jobs), &many[i]); /* in their order */
    assert_false(gvmi_jobs_wait(&jobs));
    assert_null(gvmi_jobs_take(&jobs));
}

static void users_take_turns(void **state)
{
    gvmi_job all[9] = {{0}};
    gvmi_jobs jobs = {0};

    (void)state;
    for (unsigned i = 0; i < 9; i++) {
        all[i].uid = i / 3;
        gvmi_jobs_add(&jobs, &all[i], false);
    }
    for (unsigned i = 0; i < 9; i++)
        assert_ptr_equal(take(&jobs), &all[i % 3 * 3 + i / 3]);
    gvmi_jobs_add(&jobs, &all[0], false); /* again, after it was empty */
    assert_ptr_equal(take(&jobs), &all[0]);
}

static void job_of_nobody_goes_first(void **state)
{
    gvmi_job a = {.uid = 1}, own = {0}, next = {0};
    gvmi_jobs jobs = {0};

    (void)state;
    gvmi_jobs_add(&jobs, &a, false);
    gvmi_jobs_add(&jobs, &own, true);
    gvmi_jobs_add(&jobs, &next, true);
    assert_ptr_equal(take(&jobs), &own);
    assert_ptr_equal(take(&jobs), &next);
    assert_ptr_equal(take(&jobs), &a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_of_another_user_waits_for_one),
        cmocka_unit_test(users_take_turns),
        cmocka_unit_test(job_of_nobody_goes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
