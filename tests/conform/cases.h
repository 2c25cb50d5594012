/* tests/conform/cases.h - the table of conformance cases: X(name, flags), in the order in which
 * they run.
 *
 * Each name is defined once, as CASE(name), in one of the case_*.c files. A name reads
 * <thing>_<condition>_<result>. cases.c makes the declarations and the table from here; adding a
 * case is adding its row.
 */
#ifndef CONFORM_CASES_H
#define CONFORM_CASES_H

#include "tests/conform/cases_execution.h"
#include "tests/conform/cases_memory.h"

#define CONFORM_CASES(X) \
    CONFORM_CASES_EXECUTION(X) \
    CONFORM_CASES_MEMORY(X)

/* What the files that define cases need: -Wmissing-prototypes. */
#define CONFORM_DECLARE(name, flags) CASE(name);
CONFORM_CASES(CONFORM_DECLARE)
#undef CONFORM_DECLARE

#endif
