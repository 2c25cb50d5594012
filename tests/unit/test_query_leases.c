/* query/columns.c: a query's lane and leases, on hash tables that are moved and on others. Everything else of a query, and the clock, are the
 * test's own. */
#include "query/run.h"
#include "tests/unit/unit.h"

#define NS_PER_S INT64_C(1000000000)

/* What leases on hash tables wait for. */
typedef enum obstacle {
    NOTHING,
    OTHERS_MOVE, /* all the time: with GVM_HINT_HOT there is no end of it */
    LEASED,      /* by others, all the time */
} obstacle;

static struct {
    obstacle obstacle;
    int64_t now_ns, lane_ns; /* for which a query waits for a lane */
    unsigned hot, plain;     /* requests */
    int held;                /* lanes, and leases on hash tables */
    int lanes;
} is;

static gquery_lane lane;

int64_t gquery_now_ns(void)
{
    return is.now_ns;
}

bool gquery_is_closed(gquery_connection *c)
{
    (void)c;
    return false;
}

gvm_status gquery_lane_take(gquery_connection *c, gquery_lane **out)
{
    (void)c;
    assert_int_equal(is.held, 0);
    is.now_ns += is.lane_ns;
    is.lanes++;
    *out = &lane;
    return GVM_OK;
}

void gquery_lane_give(gquery_lane *given)
{
    assert_ptr_equal(given, &lane);
    is.lanes--;
}

gvm_status gquery_inner_take_leases(gquery_query *q, gvm_hint hint, int wait_ms)
{
    (void)q;
    is.hot += hint == GVM_HINT_HOT;
    is.plain += hint == GVM_HINT_NONE;
    if (is.obstacle == LEASED || (is.obstacle == OTHERS_MOVE && hint == GVM_HINT_HOT)) {
        is.now_ns += wait_ms * INT64_C(1000000);
        return gvm_error_set(GVM_E_TIMEOUT, "not yet");
    }
    is.held++;
    return GVM_OK;
}

void gquery_inner_release_leases(gquery_query *q)
{
    (void)q;
    is.held--;
}

bool gquery_succeed(gquery_query *q, gvm_status status, const char *what)
{
    (void)q;
    (void)what;
    return status == GVM_OK;
}

/* ---- what a query without a table has no use for */

void gquery_inner_set_sources(gquery_query *q)
{
    (void)q;
}

bool gquery_refuse(gquery_query *q, const char *what)
{
    (void)q;
    (void)what;
    return false;
}

void gquery_answer(gquery_message *answer, gquery_verb verb, const char *sqlstate,
                   const char *format, ...)
{
    (void)answer;
    (void)verb;
    (void)sqlstate;
    (void)format;
}

gquery_source gquery_source_at(const gquery_column *column, uint64_t values, uint64_t nulls)
{
    (void)column;
    return (gquery_source){.values = values, .nulls = nulls};
}

bool gquery_distance_fits(const gquery_query *q, const gquery_wanted_distance *wanted,
                          const gvm_table_column *column)
{
    (void)q;
    (void)wanted;
    (void)column;
    return false;
}

/* ---- tests */

static bool begin(obstacle what, int64_t lane_ns)
{
    static gquery_connection c;
    gquery_query q = {.c = &c};
    bool begun;

    memset(&is, 0, sizeof is);
    is.obstacle = what;
    is.lane_ns = lane_ns;
    begun = gquery_begin_reading(&q);
    assert_int_equal(is.lanes, begun);
    assert_int_equal(is.held, begun);
    return begun;
}

static void hash_table_is_wanted_on_the_device(void **state)
{
    (void)state;
    assert_true(begin(NOTHING, 0));
    assert_int_equal(is.hot, 1);
    assert_int_equal(is.plain, 0);
}

static void hash_table_is_read_where_it_is_if_others_move_all_the_time(void **state)
{
    (void)state;
    assert_true(begin(OTHERS_MOVE, 0));
    assert_true(is.hot > 1);
    assert_true(is.now_ns < 2 * NS_PER_S);
}

static void lease_that_others_keep_is_waited_for_as_long_as_one_may_take(void **state)
{
    (void)state;
    assert_false(begin(LEASED, 0));
    assert_true(is.now_ns >= GQUERY_LEASE_MS * INT64_C(1000000));
    assert_true(is.now_ns < GQUERY_LEASE_MS * INT64_C(2000000));
}

static void time_in_which_there_is_no_lane_is_none_of_waiting_for_leases(void **state)
{
    (void)state;
    assert_true(begin(OTHERS_MOVE, 60 * NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_table_is_wanted_on_the_device),
        cmocka_unit_test(hash_table_is_read_where_it_is_if_others_move_all_the_time),
        cmocka_unit_test(lease_that_others_keep_is_waited_for_as_long_as_one_may_take),
        cmocka_unit_test(time_in_which_there_is_no_lane_is_none_of_waiting_for_leases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
