/* Checks of query programs (program.h), and the shared memory that those take which it has accepted (kernels.h).
 *
 * The check goes through the code once and follows the depth of the stack. A branch of GQUERY_IF may change values that were on the stack
 * before it, and may not take them away: so its *floor* is the depth at the GQUERY_IF, and no instruction ends below that.
 */
#include "query/program.h"

#include <stdarg.h>
#include <stdio.h>

#include "query/kernels.h"

#define PROBLEM_BYTES 128
#define BLOCKS_WANTED 4 /* of a scan, in a multiprocessor at a time: as query_scan is bounded */
#define TILES 16        /* between two reviews */
#define SHARED_RESERVED 1024 /* of a block, by CUDA */
#define RATIO_MAX UINT64_C(1000000000000000000)

typedef struct branch {
    uint32_t floor;
    uint32_t depth; /* at the end of the first part, once that is over */
    bool is_else;
} branch;

typedef struct checker {
    const gquery_program *program;
    gquery_shape shape;
    char *problem;
    uint32_t at; /* the instruction's number */
    uint32_t depth;
    uint32_t nested;
    branch branches[GQUERY_NESTED_MAX];
    bool is_reduced;   /* there has been GQUERY_GROUP or GQUERY_AGGREGATE */
    bool is_numbered;  /* the number of a text was loaded */
    bool multiplies;   /* a join may have several matches for a row */
    uint32_t loadable; /* tables whose columns can be loaded: a bit for each */
    uint32_t searched; /* the table whose GQUERY_MATCH is yet to come; 0: there is none */
    uint64_t searched_kind;
    uint64_t words; /* of the state that have an aggregate */
} checker;

_Static_assert(GQUERY_STATE_MAX <= 64, "a bit for each word of the state");

__attribute__((format(printf, 2, 3))) static bool refuse(checker *c, const char *format, ...)
{
    char what[PROBLEM_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(c->problem, PROBLEM_BYTES, "instruction %u: %.100s", (unsigned)c->at, what);
    return false;
}

uint32_t gquery_aggregate_words(uint32_t aggregate)
{
    if (aggregate >= GQUERY_AGGREGATES)
        return 0;
    return aggregate == GQUERY_MOMENTS_F64 ? 4 : aggregate == GQUERY_SUM_I64 ? 2 : 1;
}

/* kernel_partial.h has states, keys, tags, and counts behind these; then there is the stack. */
void gquery_place_local(gquery_scan *scan, uint32_t groups, uint32_t copies)
{
    scan->local_groups = groups;
    scan->local_copies = copies;
    scan->local_keys_at = scan->local_tags_at = scan->stack_at = 0;
    if (groups == 0)
        return;
    scan->local_keys_at = GQUERY_LOCAL_STATES(groups, copies) * scan->state_words;
    scan->local_tags_at = scan->local_keys_at + groups * scan->keys;
    scan->stack_at = scan->local_tags_at + (groups * GQUERY_LOCAL_TAGS + GQUERY_LOCAL_COUNTS) / 2;
}

uint64_t gquery_shared_bytes(const gquery_scan *scan, uint32_t threads)
{
    const uint64_t rows = (uint64_t)(scan->depth + (scan->groups != 0)) * GQUERY_EACH;

    return (scan->stack_at + (rows + (scan->groups == 0 ? scan->state_words : 0)) * threads) *
           sizeof(uint64_t);
}

void gquery_set_local(gquery_scan *scan, uint32_t threads, uint64_t block_bytes,
                      uint64_t multiprocessor_bytes)
{
    static const struct {
        uint32_t groups, copies;
    } sizes[] = {{GQUERY_LOCAL_MAX, 64},  {GQUERY_LOCAL_MAX, 32}, {GQUERY_LOCAL_MAX, 16},
                 {GQUERY_LOCAL_MANY, 16}, {GQUERY_LOCAL_MANY, 8}, {GQUERY_LOCAL_MANY, 4}};
    uint64_t blocks, most;

    gquery_place_local(scan, 0, 0);
    scan->local_tiles = TILES;
    blocks = multiprocessor_bytes / (gquery_shared_bytes(scan, threads) + SHARED_RESERVED);
    if (scan->groups == 0 || blocks == 0)
        return;
    most = multiprocessor_bytes / (blocks < BLOCKS_WANTED ? blocks : BLOCKS_WANTED) - SHARED_RESERVED;
    most = most < block_bytes ? most : block_bytes;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gquery_place_local(scan, sizes[i].groups, sizes[i].copies);
        if (gquery_shared_bytes(scan, threads) <= most)
            return;
    }
    gquery_place_local(scan, 0, 0);
}

uint64_t gquery_double_sums(const gquery_program *program)
{
    uint64_t words = 0;

    for (uint32_t at = 0; at < program->code_count; at++) {
        const gquery_instruction *i = &program->code[at];

        if ((i->op & GQUERY_OPERATION) == GQUERY_AGGREGATE && i->b == GQUERY_SUM_F64)
            words |= 1ull << i->a;
        else if ((i->op & GQUERY_OPERATION) == GQUERY_AGGREGATE && i->b == GQUERY_MOMENTS_F64)
            words |= 1ull << (i->a + 3); /* not finite if the sum is not */
    }
    return words;
}

static uint32_t floor_of(const checker *c)
{
    return c->nested > 0 ? c->branches[c->nested - 1].floor : 0;
}

/* The instruction takes values and puts others there, the first of them where the first that it takes was. */
static bool move(checker *c, uint32_t takes, uint32_t gives)
{
    if (c->depth < takes || c->depth - takes + gives < floor_of(c))
        return refuse(c, "too few values on the stack");
    c->depth = c->depth - takes + gives;
    if (c->depth > GQUERY_DEPTH_MAX)
        return refuse(c, "more than %d values on the stack", GQUERY_DEPTH_MAX);
    if (c->depth > c->shape.depth)
        c->shape.depth = c->depth;
    return true;
}

static bool check_column(checker *c, uint32_t column)
{
    uint32_t table;

    if (column >= c->program->column_count)
        return refuse(c, "there is no column %u", (unsigned)column);
    table = c->program->columns[column].table;
    return table == GQUERY_DISTANCE || table == GQUERY_GROUPS || (c->loadable >> table & 1) != 0 ||
           refuse(c, "no row of table %u has been found", (unsigned)table);
}

static bool check_load(checker *c, uint32_t column)
{
    const gquery_column *loaded;

    if (!check_column(c, column))
        return false;
    loaded = &c->program->columns[column];
    if (gquery_is_text(loaded->form) && !gquery_is_numbered(loaded))
        return refuse(c, "a text is not loaded");
    c->is_numbered |= gquery_is_numbered(loaded);
    return true;
}

static bool check_load_null(checker *c, uint32_t column)
{
    return check_column(c, column) && (!gquery_is_numbered(&c->program->columns[column]) ||
                                       refuse(c, "a number of a text is loaded"));
}

static bool check_compare(checker *c, uint32_t order)
{
    if (order >= GQUERY_ORDERS)
        return refuse(c, "there is no order %u", (unsigned)order);
    return move(c, 2, 1);
}

static bool check_list(checker *c, uint32_t first, uint32_t count)
{
    const int64_t *values = c->program->values;

    if (first > c->program->value_count || count > c->program->value_count - first)
        return refuse(c, "the list is not within the values");
    for (uint32_t i = first + 1; i < first + count; i++)
        if (values[i - 1] > values[i])
            return refuse(c, "the list does not ascend");
    return move(c, 1, 1);
}

static bool check_pairs(checker *c, uint32_t first, uint32_t count)
{
    const int64_t *v = c->program->values;

    if (first > c->program->value_count || 2 * count > c->program->value_count - first)
        return refuse(c, "the list is not within the values");
    for (uint32_t i = first + 2; i < first + 2 * count; i += 2)
        if (v[i - 2] > v[i] || (v[i - 2] == v[i] && v[i - 1] > v[i + 1]))
            return refuse(c, "the list does not ascend");
    return move(c, 2, 1);
}

/* ---- texts */

/* Of one of the texts of an instruction, whose bytes are within the values. */
static const int64_t *text_words(const gquery_program *p, uint32_t at)
{
    return p->values + (uint32_t)p->values[at];
}

static uint32_t text_bytes(const gquery_program *p, uint32_t at)
{
    return (uint32_t)((uint64_t)p->values[at] >> 32);
}

static bool is_within(const gquery_program *p, uint32_t at)
{
    const uint32_t first = (uint32_t)p->values[at];

    return first <= p->value_count && ((uint64_t)text_bytes(p, at) + 7) / 8 <= p->value_count - first;
}

/* The order of GQUERY_TEXT_IN. */
static bool is_before(const gquery_program *p, uint32_t at, uint32_t other)
{
    const int64_t *one = text_words(p, at), *two = text_words(p, other);
    const uint32_t words = (text_bytes(p, at) + 7) / 8;

    if (text_bytes(p, at) != text_bytes(p, other))
        return text_bytes(p, at) < text_bytes(p, other);
    for (uint32_t i = 0; i < words; i++)
        if (one[i] != two[i])
            return (uint64_t)one[i] < (uint64_t)two[i];
    return false;
}

static bool check_texts(checker *c, uint32_t kind, uint32_t first, uint32_t count)
{
    const gquery_program *p = c->program;

    if (first > p->value_count || count > p->value_count - first)
        return refuse(c, "the texts are not within the values");
    for (uint32_t i = first; i < first + count; i++) {
        if (!is_within(p, i))
            return refuse(c, "a text is not within the values");
        if (kind == GQUERY_TEXT_LIKE && text_bytes(p, i) == 0)
            return refuse(c, "a piece of a pattern is empty");
        if (kind == GQUERY_TEXT_IN && i > first && is_before(p, i, i - 1))
            return refuse(c, "the texts do not ascend");
    }
    return true;
}

static bool check_text(checker *c, const gquery_instruction *i)
{
    const uint32_t kind = i->b & GQUERY_TEXT_KIND, flags = i->b & ~GQUERY_TEXT_KIND,
                   count = (uint32_t)(i->value >> 32);
    const uint32_t anchors = flags & (GQUERY_TEXT_FROM_START | GQUERY_TEXT_TO_END),
                   letters = flags & (GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER);

    if (!check_column(c, i->a))
        return false;
    if (!gquery_is_text(c->program->columns[i->a].form) ||
        gquery_is_numbered(&c->program->columns[i->a]))
        return refuse(c, "column %u has no texts", (unsigned)i->a);
    if (kind >= GQUERY_TEXT_KINDS || flags >= 2 * GQUERY_TEXT_ASCII)
        return refuse(c, "there is no question %u of a text", (unsigned)i->b);
    if ((kind != GQUERY_TEXT_LIKE || count == 0) && anchors != 0)
        return refuse(c, "only a pattern with pieces begins or ends with one");
    if (letters == (GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER) ||
        (letters == 0 && (flags & GQUERY_TEXT_ASCII) != 0) ||
        (letters != 0 && kind > GQUERY_TEXT_LIKE && kind != GQUERY_TEXT_WORD))
        return refuse(c, "letters of a text are of both cases, or are not asked for");
    if (kind == GQUERY_TEXT_WORD)
        return i->value <= UINT32_MAX ? move(c, 0, 1) : refuse(c, "no text has so many bytes");
    if (kind > GQUERY_TEXT_LIKE && i->value != 0)
        return refuse(c, "the length has no texts");
    return check_texts(c, kind, (uint32_t)i->value, count) && move(c, 0, 1);
}

static bool check_field(checker *c, uint32_t field, uint32_t of)
{
    if (field >= GQUERY_FIELDS || of >= GQUERY_FIELD_OFS ||
        (of == GQUERY_OF_DATE && field >= GQUERY_HOUR && field <= GQUERY_SECOND) ||
        (of == GQUERY_OF_DATE && field > GQUERY_TO_TIMESTAMP) ||
        (of == GQUERY_OF_TIME && (field < GQUERY_HOUR || field > GQUERY_EPOCH)))
        return refuse(c, "there is no field %u of %u", (unsigned)field, (unsigned)of);
    return move(c, 1, 1);
}

/* Of words whose lower halves ascend. */
static bool check_words(checker *c, uint32_t first, uint32_t count)
{
    const int64_t *values = c->program->values;

    if (first > c->program->value_count || count > c->program->value_count - first)
        return refuse(c, "the words are not within the values");
    for (uint32_t i = first + 1; i < first + count; i++)
        if ((uint32_t)values[i - 1] >= (uint32_t)values[i])
            return refuse(c, "the words do not ascend");
    return true;
}

static bool check_function(checker *c, uint32_t function, uint64_t value)
{
    if (function >= GQUERY_FUNCTIONS)
        return refuse(c, "there is no function %u", (unsigned)function);
    if ((((function >= GQUERY_ROUND_I64 && function <= GQUERY_CEILING_I64) ||
          function == GQUERY_WITHIN_I64) &&
         (int64_t)value < 1) ||
        (function == GQUERY_RATIO_F64 && (value < 1 || value > RATIO_MAX)) ||
        ((function == GQUERY_SHIFT_LEFT || function == GQUERY_SHIFT_RIGHT) && value != 16 &&
         value != 32 && value != 64))
        return refuse(c, "function %u with another value than it takes", (unsigned)function);
    if (function == GQUERY_FIND_I64 && !check_words(c, (uint32_t)value, (uint32_t)(value >> 32)))
        return false;
    return move(c, function >= GQUERY_BITS_AND ? 2 : 1, 1);
}

static bool check_arithmetic(checker *c, uint32_t op, uint32_t kind)
{
    if (kind >= GQUERY_ARITHMETICS)
        return refuse(c, "there is no arithmetic %u", (unsigned)kind);
    if (op == GQUERY_MODULO && kind >= GQUERY_ARITHMETIC_F32)
        return refuse(c, "the remainder is one of integers");
    if (kind == GQUERY_ARITHMETIC_DECIMAL && op >= GQUERY_DIVIDE)
        return refuse(c, "not of decimals");
    return op == GQUERY_NEGATE || op == GQUERY_ABS ? move(c, 1, 1) : move(c, 2, 1);
}

/* ---- which rows are active */

static bool check_filter(checker *c)
{
    if (c->nested > 0)
        return refuse(c, "a filter within IF");
    if (c->is_reduced)
        return refuse(c, "a filter after GROUP or AGGREGATE");
    if (c->is_numbered)
        return refuse(c, "a filter after numbers of texts");
    return move(c, 1, 0);
}

static bool check_if(checker *c)
{
    if (c->nested == GQUERY_NESTED_MAX)
        return refuse(c, "more than %d IF within each other", GQUERY_NESTED_MAX);
    if (!move(c, 1, 0))
        return false;
    c->branches[c->nested++] = (branch){.floor = c->depth};
    if (c->nested > c->shape.nested)
        c->shape.nested = c->nested;
    return true;
}

static bool check_else(checker *c)
{
    branch *b = &c->branches[c->nested > 0 ? c->nested - 1 : 0];

    if (c->nested == 0 || b->is_else)
        return refuse(c, "ELSE without IF");
    b->is_else = true;
    b->depth = c->depth;
    c->depth = b->floor;
    return true;
}

/* Every row has the same number of values afterwards. */
static bool check_end(checker *c)
{
    const branch *b = &c->branches[c->nested > 0 ? c->nested - 1 : 0];

    if (c->nested == 0)
        return refuse(c, "END without IF");
    if (c->depth != (b->is_else ? b->depth : b->floor))
        return refuse(c, "the branches leave different numbers of values");
    c->nested--;
    return true;
}

/* ---- what becomes of rows */

static bool check_group(checker *c, uint32_t keys)
{
    if (c->nested > 0)
        return refuse(c, "GROUP within IF");
    if (c->is_reduced)
        return refuse(c, "GROUP after GROUP or AGGREGATE");
    if (keys == 0 || keys > GQUERY_KEYS_MAX)
        return refuse(c, "GROUP by %u values, not 1 to %d", (unsigned)keys, GQUERY_KEYS_MAX);
    c->is_reduced = c->shape.grouped = true;
    c->shape.keys = keys;
    return move(c, keys, 0);
}

/* GQUERY_MARK, GQUERY_EMIT, GQUERY_BUILD or GQUERY_APPEND: the whole result. */
static bool check_last(checker *c, const char *name)
{
    if (c->nested > 0)
        return refuse(c, "%s within IF", name);
    if (c->is_reduced)
        return refuse(c, "%s after GROUP or AGGREGATE", name);
    return c->at == c->program->code_count - 1 || refuse(c, "%s before other instructions", name);
}

static bool check_mark(checker *c)
{
    c->shape.marked = true;
    if (c->multiplies)
        return refuse(c, "MARK of joined rows");
    return check_last(c, "MARK");
}

static bool check_emit(checker *c, uint32_t keys)
{
    if (keys == 0 || keys > GQUERY_KEYS_MAX)
        return refuse(c, "EMIT of %u values, not 1 to %d", (unsigned)keys, GQUERY_KEYS_MAX);
    c->shape.emitted = true;
    c->shape.keys = keys;
    return check_last(c, "EMIT") && move(c, keys, 0);
}

static bool check_aggregate(checker *c, uint32_t first, uint32_t aggregate)
{
    const uint32_t count = gquery_aggregate_words(aggregate);
    uint64_t words;

    if (count == 0)
        return refuse(c, "there is no aggregate %u", (unsigned)aggregate);
    if (first >= c->program->state_words || count > c->program->state_words - first)
        return refuse(c, "the aggregate is not within the state");
    words = ((1ull << count) - 1) << first;
    if ((c->words & words) != 0)
        return refuse(c, "two aggregates have the same words of the state");
    c->words |= words;
    c->is_reduced = true;
    return aggregate == GQUERY_COUNT_ROWS || move(c, 1, 0);
}

/* ---- joins */

static bool is_join_kind(uint64_t value)
{
    return value < GQUERY_JOIN_KINDS || (value > GQUERY_JOIN_CONDITION + GQUERY_JOIN_INNER &&
                                         value < GQUERY_JOIN_CONDITION + GQUERY_JOIN_KINDS);
}

static void begin_search(checker *c, const gquery_instruction *probe)
{
    c->searched = probe->a;
    c->searched_kind = probe->value;
    c->loadable |= 1u << probe->a;
}

static bool check_probe(checker *c, const gquery_instruction *i)
{
    if (c->nested > 0)
        return refuse(c, "PROBE within IF");
    if (c->is_reduced)
        return refuse(c, "PROBE after GROUP or AGGREGATE");
    if (c->is_numbered)
        return refuse(c, "PROBE after numbers of texts");
    if (i->a != c->shape.joins + 1 || i->a >= GQUERY_TABLES_MAX)
        return refuse(c, "PROBE of table %u after %u joins", (unsigned)i->a, (unsigned)c->shape.joins);
    if (i->b == 0 || i->b > GQUERY_KEYS_MAX || !is_join_kind(i->value))
        return refuse(c, "PROBE with %u values, or of an unknown kind", (unsigned)i->b);
    if (c->depth != i->b)
        return refuse(c, "PROBE with other values on the stack than its keys");
    c->shape.join_keys[c->shape.joins++] = i->b;
    c->multiplies |= i->value % GQUERY_JOIN_CONDITION <= GQUERY_JOIN_LEFT;
    c->loadable |= (uint32_t)(i->value % GQUERY_JOIN_CONDITION <= GQUERY_JOIN_LEFT) << i->a;
    if (i->value >= GQUERY_JOIN_CONDITION)
        begin_search(c, i);
    return move(c, i->b, 0);
}

static bool check_match(checker *c, const gquery_instruction *i)
{
    if (c->nested > 0)
        return refuse(c, "MATCH within IF");
    if (c->searched == 0 || c->searched != i->a || c->searched_kind != i->value)
        return refuse(c, "MATCH without its PROBE");
    if (c->is_numbered)
        return refuse(c, "MATCH after numbers of texts");
    if (c->depth != 1)
        return refuse(c, "MATCH with other values on the stack than a boolean");
    c->searched = 0;
    if (i->value % GQUERY_JOIN_CONDITION > GQUERY_JOIN_LEFT)
        c->loadable &= ~(1u << i->a);
    return move(c, 1, 0);
}

/* Between PROBE and MATCH rows are looked for: they neither end there nor go on to other tables. */
static bool is_of_whole_rows(uint32_t op)
{
    switch (op) {
    case GQUERY_FILTER:
    case GQUERY_MARK:
    case GQUERY_EMIT:
    case GQUERY_GROUP:
    case GQUERY_AGGREGATE:
    case GQUERY_PROBE:
    case GQUERY_BUILD:
    case GQUERY_APPEND: return true;
    default: return false;
    }
}

static bool check_build(checker *c, uint32_t keys)
{
    if (keys == 0 || keys > GQUERY_KEYS_MAX)
        return refuse(c, "BUILD by %u values, not 1 to %d", (unsigned)keys, GQUERY_KEYS_MAX);
    c->shape.built = true;
    c->shape.keys = keys;
    if (c->shape.joins > 0)
        return refuse(c, "BUILD of joined rows");
    return check_last(c, "BUILD") && move(c, keys, 0);
}

static bool check_append(checker *c)
{
    c->shape.appended = true;
    if (c->shape.joins == 0)
        return refuse(c, "APPEND without joins");
    return check_last(c, "APPEND");
}

/* ---- the whole */

static bool check_instruction(checker *c)
{
    const gquery_instruction *i = &c->program->code[c->at];

    if (c->searched > 0 && is_of_whole_rows(i->op))
        return refuse(c, "operation %u before MATCH", (unsigned)i->op);
    switch (i->op) {
    case GQUERY_LOAD: return check_load(c, i->a) && move(c, 0, 1);
    case GQUERY_LOAD_NULL: return check_load_null(c, i->a) && move(c, 0, 1);
    case GQUERY_TEXT: return check_text(c, i);
    case GQUERY_FUNCTION: return check_function(c, i->b, i->value);
    case GQUERY_CONSTANT:
    case GQUERY_UNKNOWN:
    case GQUERY_NULL: return move(c, 0, 1);
    case GQUERY_COPY:
        return i->a < c->depth ? move(c, 0, 1)
                               : refuse(c, "no value %u places below the top", (unsigned)i->a);
    case GQUERY_REPLACE: return move(c, 2, 1);
    case GQUERY_EQ:
    case GQUERY_NE:
    case GQUERY_LT:
    case GQUERY_LE:
    case GQUERY_GT:
    case GQUERY_GE:
    case GQUERY_DISTINCT: return check_compare(c, i->b);
    case GQUERY_IN: return check_list(c, i->a, i->b);
    case GQUERY_IN_PAIRS: return check_pairs(c, i->a, i->b);
    case GQUERY_AND:
    case GQUERY_OR: return move(c, 2, 1);
    case GQUERY_NOT:
    case GQUERY_IS_NULL:
    case GQUERY_IS_TRUE:
    case GQUERY_IS_FALSE: return move(c, 1, 1);
    case GQUERY_ADD:
    case GQUERY_SUBTRACT:
    case GQUERY_MULTIPLY:
    case GQUERY_DIVIDE:
    case GQUERY_MODULO:
    case GQUERY_NEGATE:
    case GQUERY_ABS: return check_arithmetic(c, i->op, i->b);
    case GQUERY_TO_I16:
    case GQUERY_TO_I32:
    case GQUERY_F64_TO_I16:
    case GQUERY_F64_TO_I32:
    case GQUERY_F64_TO_I64:
    case GQUERY_I64_TO_F64:
    case GQUERY_I64_TO_F32:
    case GQUERY_F64_TO_F32: return move(c, 1, 1);
    case GQUERY_INVERT:
        return i->b <= 1 ? move(c, 1, 1) : refuse(c, "there is no inversion %u", (unsigned)i->b);
    case GQUERY_FIELD: return check_field(c, i->b & 0xff, i->b >> 8);
    case GQUERY_ORDER_KEY:
        return i->b <= 1 ? move(c, 1, 1) : refuse(c, "there is no order key %u", (unsigned)i->b);
    case GQUERY_FILTER: return check_filter(c);
    case GQUERY_IF: return check_if(c);
    case GQUERY_ELSE: return check_else(c);
    case GQUERY_END: return check_end(c);
    case GQUERY_MARK: return check_mark(c);
    case GQUERY_EMIT: return check_emit(c, i->a);
    case GQUERY_GROUP: return check_group(c, i->a);
    case GQUERY_AGGREGATE: return check_aggregate(c, i->a, i->b);
    case GQUERY_PROBE: return check_probe(c, i);
    case GQUERY_BUILD: return check_build(c, i->a);
    case GQUERY_APPEND: return check_append(c);
    case GQUERY_MATCH: return check_match(c, i);
    default: return refuse(c, "there is no operation %u", (unsigned)i->op);
    }
}

static bool is_column(const gquery_column *c)
{
    if (c->table == GQUERY_DISTANCE)
        return c->form == GQUERY_F64 && c->number < GQUERY_DISTANCES_MAX;
    if (c->table == GQUERY_GROUPS)
        return (c->form == GQUERY_I64 || c->form == GQUERY_F64) && c->bias == 0;
    if (gquery_is_text(c->form) && c->bias != 0 && (c->bias & ~GQUERY_NUMBERED_FLAGS) != GQUERY_NUMBERED)
        return false;
    return c->form < GQUERY_FORMS && c->table < GQUERY_TABLES_MAX;
}

static bool check_numbered(checker *c)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->program->column_count; i++)
        count += gquery_is_numbered(&c->program->columns[i]);
    if (count > (c->shape.grouped ? GQUERY_KEYS_MAX : 0))
        return refuse(c, "too many numbers of texts, or without GROUP");
    return true;
}

static bool check_counts(checker *c)
{
    const gquery_program *p = c->program;

    if (p->column_count > GQUERY_COLUMNS_MAX || p->code_count > GQUERY_CODE_MAX ||
        p->value_count > GQUERY_VALUES_MAX || p->state_words > GQUERY_STATE_MAX) {
        snprintf(c->problem, PROBLEM_BYTES, "too many columns, instructions, values or words");
        return false;
    }
    for (uint32_t i = 0; i < p->column_count; i++)
        if (!is_column(&p->columns[i])) {
            snprintf(c->problem, PROBLEM_BYTES, "column %u: no such form, table or distance",
                     (unsigned)i);
            return false;
        }
    return true;
}

bool gquery_check(const gquery_program *program, gquery_shape *shape, char *problem)
{
    checker c = {.program = program, .problem = problem, .loadable = 1};

    if (!check_counts(&c))
        return false;
    for (; c.at < program->code_count; c.at++)
        if (!check_instruction(&c))
            return false;
    if (c.nested > 0)
        return refuse(&c, "IF without END");
    if (c.searched > 0)
        return refuse(&c, "PROBE without its MATCH");
    if (c.words != (program->state_words == 64 ? ~0ull : (1ull << program->state_words) - 1))
        return refuse(&c, "a word of the state has no aggregate");
    if (!check_numbered(&c))
        return false;
    *shape = c.shape;
    shape->loadable = c.loadable;
    return true;
}

bool gquery_may_raise(const gquery_program *program)
{
    for (uint32_t at = 0; at < program->code_count; at++) {
        const gquery_instruction *i = &program->code[at];

        if ((i->op >= GQUERY_ADD && i->op <= GQUERY_F64_TO_F32) || i->op == GQUERY_FIELD ||
            i->op == GQUERY_TEXT || i->op == GQUERY_UNKNOWN ||
            (i->op == GQUERY_FUNCTION && gquery_function_may_raise(i->b)) ||
            (i->op == GQUERY_LOAD && program->columns[i->a].form == GQUERY_DECIMAL))
            return true;
    }
    return false;
}
