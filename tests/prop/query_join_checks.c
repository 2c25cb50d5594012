/* See query_join_checks.h. */
#include <stdio.h>
#include <string.h>

#include "query/program.h"
#include "tests/prop/query_join_checks.h"

#define VALUE \
    { \
        GQUERY_CONSTANT, 0, 0, 0 \
    }
#define PROBE(t, n, kind) \
    { \
        GQUERY_PROBE, n, t, kind \
    }
#define MATCH(t, kind) \
    { \
        GQUERY_MATCH, 0, t, kind \
    }
#define LEFT_IF (GQUERY_JOIN_CONDITION + GQUERY_JOIN_LEFT)
#define SEMI_IF (GQUERY_JOIN_CONDITION + GQUERY_JOIN_SEMI)
#define COUNT \
    { \
        GQUERY_AGGREGATE, GQUERY_COUNT_ROWS, 0, 0 \
    }
#define LOAD \
    { \
        GQUERY_LOAD, 0, 0, 0 \
    } /* of table 1 */
#define LOAD_NUMBER \
    { \
        GQUERY_LOAD, 0, 1, 0 \
    } /* of a text of table 0 */

static const struct check_case {
    const char *what;
    bool is_accepted;
    gquery_instruction code[12];
} check_cases[] = {
    {"a join", true, {VALUE, PROBE(1, 1, 0), COUNT}},
    {"a join of another table", false, {VALUE, PROBE(2, 1, 0), COUNT}},
    {"the same table twice", false, {VALUE, PROBE(1, 1, 0), VALUE, PROBE(1, 1, 0), COUNT}},
    {"two tables", true, {VALUE, PROBE(1, 1, 0), VALUE, PROBE(2, 1, 0), COUNT}},
    {"no key", false, {PROBE(1, 0, 0), COUNT}},
    {"too few keys", false, {VALUE, PROBE(1, 2, 0), COUNT}},
    {"something below the keys", false, {VALUE, VALUE, PROBE(1, 1, 0), COUNT}},
    {"a kind that there is not", false, {VALUE, PROBE(1, 1, GQUERY_JOIN_KINDS), COUNT}},
    {"a column before its join", false, {LOAD, PROBE(1, 1, 0), COUNT}},
    {"a column after its join",
     true,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_LEFT), LOAD, {GQUERY_AGGREGATE, GQUERY_COUNT, 0, 0}}},
    {"a column of a semi-join",
     false,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_SEMI), LOAD, {GQUERY_AGGREGATE, GQUERY_COUNT, 0, 0}}},
    {"a column of an anti-join",
     false,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_ANTI), LOAD, {GQUERY_AGGREGATE, GQUERY_COUNT, 0, 0}}},
    {"a join after an aggregate", false, {COUNT, VALUE, PROBE(1, 1, 0)}},
    {"a join within IF",
     false,
     {VALUE, {GQUERY_IF, 0, 0, 0}, VALUE, PROBE(1, 1, 0), {GQUERY_END, 0, 0, 0}, COUNT}},
    {"marks of a semi-join", true, {VALUE, PROBE(1, 1, GQUERY_JOIN_SEMI), {GQUERY_MARK, 0, 0, 0}}},
    {"marks of an inner join", false, {VALUE, PROBE(1, 1, 0), {GQUERY_MARK, 0, 0, 0}}},
    {"a list of joined rows", true, {VALUE, PROBE(1, 1, 0), VALUE, {GQUERY_EMIT, 0, 1, 0}}},
    {"a list by a column of an anti-join",
     false,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_ANTI), LOAD, {GQUERY_EMIT, 0, 1, 0}}},
    {"a list before something", false, {VALUE, PROBE(1, 1, 0), VALUE, {GQUERY_EMIT, 0, 1, 0}, COUNT}},
    {"a condition on the pair", true, {VALUE, PROBE(1, 1, LEFT_IF), LOAD, MATCH(1, LEFT_IF), COUNT}},
    {"a condition on the pair of a semi-join",
     true,
     {VALUE, PROBE(1, 1, SEMI_IF), LOAD, MATCH(1, SEMI_IF), {GQUERY_MARK, 0, 0, 0}}},
    {"a column after such a join",
     false,
     {VALUE, PROBE(1, 1, SEMI_IF), LOAD, MATCH(1, SEMI_IF), LOAD, {GQUERY_AGGREGATE, GQUERY_COUNT, 0, 0}}},
    {"a condition of an inner join",
     false,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_CONDITION), VALUE, MATCH(1, GQUERY_JOIN_CONDITION), COUNT}},
    {"a condition of an unknown kind",
     false,
     {VALUE, PROBE(1, 1, GQUERY_JOIN_CONDITION + 4), VALUE, MATCH(1, GQUERY_JOIN_CONDITION + 4), COUNT}},
    {"MATCH of another kind", false, {VALUE, PROBE(1, 1, LEFT_IF), VALUE, MATCH(1, SEMI_IF), COUNT}},
    {"MATCH of another table",
     false,
     {VALUE, PROBE(1, 1, 0), VALUE, PROBE(2, 1, LEFT_IF), VALUE, MATCH(1, LEFT_IF), COUNT}},
    {"MATCH of nothing", false, {VALUE, PROBE(1, 1, 1), VALUE, MATCH(1, 1), COUNT}},
    {"MATCH of no value", false, {VALUE, PROBE(1, 1, LEFT_IF), MATCH(1, LEFT_IF), COUNT}},
    {"MATCH of two values", false, {VALUE, PROBE(1, 1, LEFT_IF), VALUE, VALUE, MATCH(1, LEFT_IF), COUNT}},
    {"no MATCH", false, {VALUE, PROBE(1, 1, LEFT_IF), VALUE}},
    {"another join before MATCH",
     false,
     {VALUE, PROBE(1, 1, LEFT_IF), VALUE, PROBE(2, 1, 0), VALUE, MATCH(1, LEFT_IF), COUNT}},
    {"a filter before MATCH",
     false,
     {VALUE, PROBE(1, 1, LEFT_IF), VALUE, {GQUERY_FILTER, 0, 0, 0}, VALUE, MATCH(1, LEFT_IF), COUNT}},
    {"MATCH within IF",
     false,
     {VALUE,
      PROBE(1, 1, LEFT_IF),
      VALUE,
      VALUE,
      {GQUERY_IF, 0, 0, 0},
      MATCH(1, LEFT_IF),
      {GQUERY_END, 0, 0, 0},
      COUNT}},
    {"a number of a text behind MATCH",
     true,
     {VALUE, PROBE(1, 1, LEFT_IF), LOAD, MATCH(1, LEFT_IF), LOAD_NUMBER, {GQUERY_GROUP, 0, 1, 0}, COUNT}},
    {"a number of a text before MATCH",
     false,
     {VALUE, PROBE(1, 1, LEFT_IF), LOAD_NUMBER, MATCH(1, LEFT_IF), LOAD, {GQUERY_GROUP, 0, 1, 0}, COUNT}},
    {"rows of a join", true, {VALUE, PROBE(1, 1, 0), {GQUERY_APPEND, 0, 0, 0}}},
    {"rows without a join", false, {VALUE, {GQUERY_FILTER, 0, 0, 0}, {GQUERY_APPEND, 0, 0, 0}}},
    {"rows before something", false, {VALUE, PROBE(1, 1, 0), {GQUERY_APPEND, 0, 0, 0}, COUNT}},
    {"BUILD", true, {VALUE, VALUE, {GQUERY_BUILD, 0, 2, 0}}},
    {"BUILD of no value", false, {{GQUERY_BUILD, 0, 0, 0}}},
    {"BUILD before something", false, {VALUE, {GQUERY_BUILD, 0, 1, 0}, VALUE}},
    {"BUILD of joined rows", false, {VALUE, PROBE(1, 1, 0), VALUE, {GQUERY_BUILD, 0, 1, 0}}},
};

bool query_joins_are_checked(void)
{
    static gquery_program program;
    gquery_shape shape;
    char text[128];

    for (size_t i = 0; i < sizeof check_cases / sizeof check_cases[0]; i++) {
        const struct check_case *c = &check_cases[i];

        memset(&program, 0, sizeof program);
        program.column_count = 1;
        program.columns[0] = (gquery_column){.table = 1, .form = GQUERY_I64};
        program.columns[1] = (gquery_column){.form = GQUERY_TEXT_OFFSETS, .bias = 1};
        memcpy(program.code, c->code, sizeof c->code);
        while (program.code[program.code_count].op != 0) {
            program.state_words |= program.code[program.code_count].op == GQUERY_AGGREGATE;
            if (program.code[program.code_count].op == GQUERY_LOAD &&
                program.code[program.code_count].a == 1)
                program.column_count = 2;
            program.code_count++;
        }
        if (gquery_check(&program, &shape, text) != c->is_accepted) {
            printf("# %s is %s\n", c->what, c->is_accepted ? text : "accepted");
            return false;
        }
    }
    return true;
}
