/* query/fuse.c - programs and columns as kernels take them.
 *
 * Threads: any.
 */
#include <string.h>

#include "query/kernels.h"

static bool takes_operand(const gquery_instruction *i)
{
    return (i->op >= GQUERY_EQ && i->op <= GQUERY_DISTINCT) || i->op == GQUERY_ADD ||
           i->op == GQUERY_SUBTRACT || i->op == GQUERY_MULTIPLY;
}

/* An operation takes what comes just before it, a constant or a column, as its right operand. */
static void fuse_operands(gquery_program *program)
{
    uint32_t count = 0;

    for (uint32_t at = 0; at < program->code_count; at++) {
        gquery_instruction i = program->code[at];
        const gquery_instruction *before = count > 0 ? &program->code[count - 1] : NULL;

        if (before != NULL && takes_operand(&i) && before->op == GQUERY_CONSTANT) {
            i.b |= GQUERY_OPERAND_VALUE;
            i.value = before->value;
            count--;
        } else if (before != NULL && takes_operand(&i) && before->op == GQUERY_LOAD) {
            i.b |= GQUERY_OPERAND_COLUMN;
            i.a = before->a;
            count--;
        }
        program->code[count++] = i;
    }
    program->code_count = count;
}

/* A load goes to the instruction behind it, a filter to the one before it. */
static void fuse_loads(gquery_program *program)
{
    uint32_t count = 0, loaded = 0;

    for (uint32_t at = 0; at < program->code_count; at++) {
        gquery_instruction i = program->code[at];
        const bool is_last = at + 1 == program->code_count || program->code[at + 1].op == GQUERY_LOAD;

        if (i.op == GQUERY_LOAD && !is_last) {
            loaded = i.a + 1;
            continue;
        }
        if (i.op == GQUERY_LOAD)
            loaded = i.a + 1;
        if (i.op == GQUERY_FILTER && loaded == 0 && count > 0 &&
            (program->code[count - 1].op & GQUERY_THEN_FILTER) == 0) {
            program->code[count - 1].op |= GQUERY_THEN_FILTER;
            continue;
        }
        i.op = (uint16_t)(i.op | (i.op == GQUERY_FILTER ? GQUERY_THEN_FILTER : 0) |
                          loaded << GQUERY_LOADED_SHIFT);
        loaded = 0;
        program->code[count++] = i;
    }
    program->code_count = count;
}

static uint16_t outcomes_of(uint16_t op)
{
    switch (op) {
    case GQUERY_EQ: return 2;
    case GQUERY_LT: return 1;
    case GQUERY_LE: return 3;
    case GQUERY_GT: return 4;
    case GQUERY_GE: return 6;
    default: return 5; /* GQUERY_NE, GQUERY_DISTINCT */
    }
}

static bool is_test(const gquery_instruction *i)
{
    const uint32_t op = i->op & GQUERY_OPERATION;

    return op >= GQUERY_EQ && op < GQUERY_DISTINCT && i->op >> GQUERY_LOADED_SHIFT != 0 &&
           (i->op & GQUERY_THEN_FILTER) != 0 && (i->b & GQUERY_OPERAND) == GQUERY_OPERAND_VALUE;
}

/* The numbers from least to most for which a comparison with c is true, or, of GQUERY_NE, is not. None: low is above high. */
static void set_range(gquery_test *test, uint32_t op, int64_t c, int64_t least, int64_t most)
{
    const bool below = op == GQUERY_LT || op == GQUERY_LE, above = op == GQUERY_GT || op == GQUERY_GE;
    const bool is_none = c < least         ? !above
                         : c > most        ? !below
                         : op == GQUERY_LT ? c == least
                                           : op == GQUERY_GT && c == most;

    test->is_outside = op == GQUERY_NE;
    test->low = is_none ? 1 : below || c < least ? least : c + (op == GQUERY_GT);
    test->high = is_none ? 0 : above || c > most ? most : c - (op == GQUERY_LT);
}

static gquery_test test_of(const gquery_program *program, uint32_t at)
{
    const gquery_instruction *i = &program->code[at];
    const uint32_t number = (i->op >> GQUERY_LOADED_SHIFT) - 1u;
    const gquery_column *column = &program->columns[number];
    gquery_test test = {.column = number, .kind = GQUERY_TEST_CODE, .at = at};

    if ((i->b & GQUERY_KIND) != GQUERY_ORDER_I64 || column->bias != 0)
        return test;
    if (column->form == GQUERY_I32) {
        test.kind = GQUERY_TEST_I32;
        set_range(&test, i->op & GQUERY_OPERATION, (int64_t)i->value, INT32_MIN, INT32_MAX);
    } else if (column->form == GQUERY_I64) {
        test.kind = GQUERY_TEST_I64;
        set_range(&test, i->op & GQUERY_OPERATION, (int64_t)i->value, INT64_MIN, INT64_MAX);
    }
    return test;
}

/* Whether the test is part of one before it now. */
static bool merge_test(gquery_tests *tests, const gquery_test *test)
{
    for (uint32_t t = 0; t < tests->count; t++) {
        gquery_test *other = &tests->each[t];

        if (test->kind == GQUERY_TEST_CODE || test->is_outside || other->kind != test->kind ||
            other->column != test->column || other->is_outside)
            continue;
        other->low = other->low > test->low ? other->low : test->low;
        other->high = other->high < test->high ? other->high : test->high;
        return true;
    }
    return false;
}

gquery_source gquery_source_at(const gquery_column *column, uint64_t values, uint64_t nulls)
{
    return (gquery_source){
        .values = values,
        .nulls = nulls,
        .form = (uint16_t)column->form,
        .has = (uint16_t)((values == 0 || nulls != 0 ? GQUERY_HAS_NULLS : 0) |
                          (column->form == GQUERY_DECIMAL || column->bias != 0 ? GQUERY_HAS_BIAS : 0))};
}

gquery_tests gquery_fuse(gquery_program *program)
{
    gquery_tests tests = {0};

    fuse_operands(program);
    for (uint32_t at = 0; at < program->code_count; at++) {
        gquery_instruction *i = &program->code[at];

        if (i->op >= GQUERY_EQ && i->op <= GQUERY_DISTINCT)
            i->b = (uint16_t)(i->b | outcomes_of(i->op) << GQUERY_OUTCOMES_SHIFT);
    }
    fuse_loads(program);
    while (tests.end < program->code_count && tests.count < GQUERY_TESTS_MAX &&
           is_test(&program->code[tests.end])) {
        const gquery_test test = test_of(program, tests.end++);

        if (!merge_test(&tests, &test))
            tests.each[tests.count++] = test;
    }
    tests.code_count = program->code_count;
    return tests;
}

void gquery_set_resumes(const gquery_program *program, gquery_hash *hashes)
{
    for (uint32_t at = 0; at < program->code_count; at++) {
        const uint32_t op = program->code[at].op & GQUERY_OPERATION;

        if (op == GQUERY_PROBE)
            hashes[program->code[at].a - 1].resume = at + 1;
        if (op == GQUERY_MATCH)
            hashes[program->code[at].a - 1].matched = at + 1;
    }
}
