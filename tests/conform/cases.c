/* The table of cases. */
#include "tests/conform/conform.h"

#include "tests/conform/cases.h"

#define ROW(name, flags) {#name, conform_case_##name, flags},
const struct conform_case conform_cases[] = {CONFORM_CASES(ROW)};
#undef ROW

const unsigned conform_case_count = sizeof conform_cases / sizeof conform_cases[0];
