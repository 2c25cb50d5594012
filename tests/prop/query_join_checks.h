/* tests/prop/query_join_checks.h - programs with joins that gquery_check() accepts, and such that it does not.
 *
 * Threads: one. */
#ifndef PROP_QUERY_JOIN_CHECKS_H
#define PROP_QUERY_JOIN_CHECKS_H

#include <stdbool.h>

/* False, with a line of output: it is wrong about one of them. */
bool query_joins_are_checked(void);

#endif
