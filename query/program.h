/* query/program.h - a query over the rows of a table, as a backend writes it and the executor's kernels run it.
 *
 * A program is a list of instructions that every row goes through. It works on a stack of 64-bit values, each of which may be NULL:
 *
 *     integers, dates, times, oid, "char", boolean   int64_t, signed or zero-extended as PostgreSQL orders the type
 *     float4, float8                                 double, its bits; -0 and NaNs as they are
 *     uuid                                           two values, the first 8 bytes and the others: each as a number whose
 *                                                    order is that of the bytes
 *     decimals                                       int64_t, the number times a power of ten that is not said here; of
 *                                                    62 bits, or GQUERY_DECIMAL_NAN
 *
 * Texts are not on the stack: GQUERY_TEXT says something of a column's text, as a boolean or a number. As keys of
 * groups, texts have numbers (GQUERY_NUMBERED).
 *
 * A row is *active* until a GQUERY_FILTER or GQUERY_IF takes it out. An instruction changes the values of active
 * rows only, and only these can raise an error, so that what PostgreSQL does not evaluate raises none. Rows that
 * are deleted are never active.
 *
 * The results of comparisons, AND, OR and NOT follow SQL's logic of three values. NULL in gives NULL out, but where
 * it is said otherwise.
 *
 * It comes from another process of the same user: gquery_check() refuses what would read or write outside of what it names.
 */
#ifndef GQUERY_PROGRAM_H
#define GQUERY_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#define GQUERY_TABLES_MAX 9 /* the outer one, and those that it is joined with */
#define GQUERY_JOINS_MAX (GQUERY_TABLES_MAX - 1)
#define GQUERY_COLUMNS_MAX 64
#define GQUERY_CODE_MAX 512
#define GQUERY_VALUES_MAX 1024 /* 64-bit words of lists */
#define GQUERY_DEPTH_MAX 12    /* values on the stack */
#define GQUERY_NESTED_MAX 8    /* GQUERY_IF inside another */
#define GQUERY_KEYS_MAX 8      /* values of GQUERY_GROUP */
#define GQUERY_DISTANCES_MAX 4
/* gquery_column.table of a column that is no table's: a distance that is computed before. */
#define GQUERY_DISTANCE UINT32_MAX
/* The same of groups of the program before, which are this one's rows: keys, then words of the state. */
#define GQUERY_GROUPS (UINT32_MAX - 1)
#define GQUERY_STATE_MAX 64       /* words that a group's aggregates have */
#define GQUERY_NUMBERED_BYTES 256 /* of a text that has a number */

/* How a column's values lie, and what they become on the stack. */
typedef enum gquery_form {
    GQUERY_BIT, /* a bit a row: 0 or 1 */
    GQUERY_U8,
    GQUERY_I16,
    GQUERY_I32,
    GQUERY_U32,
    GQUERY_I64,
    GQUERY_F32,
    GQUERY_F64,
    GQUERY_DECIMAL, /* 128 bits, of which -2^127 is NaN. GQUERY_E_DECIMAL: it does not fit into 62 */
    GQUERY_UUID_HIGH, /* of 16 bytes the first 8, as a number whose order is that of the bytes */
    GQUERY_UUID_LOW,  /* the others */
    /* Texts: bytes of any length, none of them 0. Only GQUERY_TEXT and GQUERY_LOAD_NULL read them, unless they have
     * numbers. */
    GQUERY_TEXT_BODIES, /* layout 'pgstrom': a uint64_t a row: 0 for NULL, or where in the bodies a header of 4 bytes is, then the text */
    GQUERY_TEXT_OFFSETS, /* layout 'arrow': rows + 1 int64_t, between which the bodies have the texts */
    GQUERY_TEXT_FIXED, /* as many bytes of each row */
    GQUERY_FORMS,
} gquery_form;

#define GQUERY_DECIMAL_NAN INT64_MAX /* above all others */

/* What is loaded of a text is a number: the row of one that is the same, which all texts have that are the same,
 * and no others. Only programs with GQUERY_GROUP have such columns, GQUERY_KEYS_MAX at most. Nothing but
 * GQUERY_LOAD reads them, behind all of GQUERY_FILTER and GQUERY_PROBE. GQUERY_E_NUMBERED: a text, with blanks at
 * its end, has more than GQUERY_NUMBERED_BYTES; of the outer table one of a row that passes the filters before the
 * first GQUERY_PROBE. */
#define GQUERY_NUMBERED \
    1 /* a column's bias; with flags of GQUERY_TEXT: of what texts the numbers are */
#define GQUERY_NUMBERED_FLAGS \
    (GQUERY_TEXT_TRIMMED | GQUERY_TEXT_LOWER | GQUERY_TEXT_UPPER | GQUERY_TEXT_ASCII)

typedef struct gquery_column {
    uint32_t table; /* 0: the outer one; others are loaded behind their GQUERY_PROBE */
    uint32_t number; /* attribute number in the server; of GQUERY_DISTANCE and GQUERY_GROUPS: which one */
    uint32_t type; /* below any domain: what the token's column must be */
    uint32_t form; /* gquery_form */
    /* Added to values of GQUERY_I32 and GQUERY_I64, other than the least and the greatest one (infinities): layout
     * 'arrow' counts from 1970. Of GQUERY_DECIMAL: 1: NaN raises GQUERY_E_DECIMAL. Of texts: 0, or
     * GQUERY_NUMBERED. */
    int64_t bias;
} gquery_column;

typedef enum gquery_op {
    /* One more value on the stack. */
    GQUERY_LOAD = 1, /* column `a` */
    GQUERY_CONSTANT, /* `value` */
    GQUERY_NULL,
    /* Boolean, never NULL: whether column `a` is NULL. Its values are not read, and it may have any type: with
     * GQUERY_TEXT_BODIES where a 0 in the place of a value is NULL, otherwise with a form that is no text's. */
    GQUERY_LOAD_NULL,
    GQUERY_COPY,    /* of the value `a` places below the top; 0: the top */
    GQUERY_REPLACE, /* takes the one on top: the value below it becomes that, and NULL as that is */

    /* Compare the two on top: one boolean. b: the kind, gquery_order. */
    GQUERY_EQ,
    GQUERY_NE,
    GQUERY_LT,
    GQUERY_LE,
    GQUERY_GT,
    GQUERY_GE,
    GQUERY_DISTINCT, /* IS DISTINCT FROM: never NULL */
    /* The one on top: is it one of `b` words from values[a] on, which ascend as int64_t; of doubles by
     * GQUERY_ORDER_KEY before. */
    GQUERY_IN,

    /* Booleans. */
    GQUERY_AND,
    GQUERY_OR,
    GQUERY_NOT,
    GQUERY_IS_NULL, /* of any value; never NULL. So are these: */
    GQUERY_IS_TRUE,
    GQUERY_IS_FALSE,

    /* Arithmetic of the two on top (one: NEGATE, ABS). b: gquery_arithmetic, which says when it raises an error. */
    GQUERY_ADD,
    GQUERY_SUBTRACT,
    GQUERY_MULTIPLY,
    GQUERY_DIVIDE,
    GQUERY_MODULO, /* of integers */
    GQUERY_NEGATE,
    GQUERY_ABS,

    /* Casts of the one on top, as PostgreSQL's: errors where it does not fit. */
    GQUERY_TO_I16, /* of integers */
    GQUERY_TO_I32,
    GQUERY_F64_TO_I16, /* rounds half to even */
    GQUERY_F64_TO_I32,
    GQUERY_F64_TO_I64,
    GQUERY_I64_TO_F64,
    GQUERY_I64_TO_F32, /* a double that a float has */
    GQUERY_F64_TO_F32,
    /* Of an integer: every bit, which turns its order round; b 1: the highest one alone, so that numbers without a
     * sign are in order. */
    GQUERY_INVERT,
    /* Of a double: the int64_t in the order in which PostgreSQL has it. 0x7ff8000000000000 for all NaNs; for the
     * others their bits, of which negative ones have all but the sign inverted. -0: 0, or, where b is 1, -1. The
     * map is its own inverse, as far as keys are no NaNs: those of -0 and of negative numbers below 2^-1022 are. */
    GQUERY_ORDER_KEY,

    /* Which rows are active. A branch may change values that were on the stack at its GQUERY_IF, and takes none of them. */
    GQUERY_FILTER, /* takes a boolean: rows where it is not true are out for good; not inside of GQUERY_IF */
    GQUERY_IF, /* takes a boolean: the following is for rows where it is true */
    /* For the others that were active at the GQUERY_IF; the stack is as it was after that, so that values replace
     * what is there. */
    GQUERY_ELSE,
    GQUERY_END, /* of both: they have left the same number of values; without GQUERY_ELSE, none */

    /* What becomes of rows; after all of GQUERY_FILTER, not inside of GQUERY_IF but for GQUERY_AGGREGATE. A program
     * has groups and aggregates, or one of GQUERY_MARK, GQUERY_EMIT and GQUERY_APPEND, as its last instruction. */
    GQUERY_MARK, /* the row's bit in a bitmap becomes 1: bit r % 8 of byte r / 8; those of other rows become 0 */
    /* Takes `a` values, at least one, none of them NULL: keys by which the row, or the joined row, has its place in
     * an ordered list (query/search.h). */
    GQUERY_EMIT,
    /* Takes `a` values, which are the group's keys: equal bits, or both NULL. At most once, not inside of
     * GQUERY_IF. Without it all rows are one group. */
    GQUERY_GROUP,
    /* Into the words from `a` on of the group's state, as b, gquery_aggregate, says; takes the value, if there is one. */
    GQUERY_AGGREGATE,
    /* Takes two: are they one of `b` pairs of words from values[a] on, which ascend, the first word of a pair
     * before the second? NULL if one of them is. */
    GQUERY_IN_PAIRS,
    /* Of a date, a timestamp or a time: b has the field, gquery_field, and above its lower 8 bits what the value
     * is, gquery_field_of. `value`: how far local time is from a timestamp, or from the one that is returned, in
     * microseconds. */
    GQUERY_FIELD,
    /* One more value on the stack, number `a` of those that the backend has not evaluated: raises GQUERY_E_UNKNOWN. */
    GQUERY_UNKNOWN,
    /* Joins. Rows of table `a` that have these `b` values as their keys; `value`: gquery_join. The values are all
     * that is on the stack, and are taken; with one of them NULL there is no such row. Where several match, the row
     * goes on once for each, or, of GQUERY_JOIN_SEMI, once. Tables come in the order of their numbers, from 1 on;
     * before GQUERY_GROUP and GQUERY_AGGREGATE, not inside of GQUERY_IF. A program that ends in GQUERY_MARK has
     * GQUERY_JOIN_SEMI and GQUERY_JOIN_ANTI alone, one that ends in GQUERY_BUILD has none. */
    GQUERY_PROBE,
    GQUERY_BUILD, /* the last instruction: takes `a` values. The row goes into a hash table by them, unless one is NULL */
    /* The last instruction, after joins: the numbers of the rows of all tables go behind those of others, in any
     * order. */
    GQUERY_APPEND,
    /* Takes a boolean, which is all that is on the stack: whether the rows of table `a` that have the keys match;
     * `value`: that of its GQUERY_PROBE, which has GQUERY_JOIN_CONDITION. What is between the two is evaluated for
     * each of these rows, until one matches, or, of GQUERY_JOIN_LEFT, for all; columns of `a` can be loaded
     * there. */
    GQUERY_MATCH,
    /* One more value on the stack: what b, gquery_text and flags, says of the text in column `a`. `value`: the
     * place of the first of its *texts* in `values`, and above 32 bits how many there are. Each of these is a word,
     * with the place of its bytes in `values`, and above 32 bits how many bytes it has. They begin at a word, the
     * lowest byte first, and fill the last one up with zeros. */
    GQUERY_TEXT,
    GQUERY_FUNCTION, /* b: gquery_function, of the one on top or the two; `value`: what that says */
    GQUERY_OPS,
} gquery_op;

typedef enum gquery_join {
    GQUERY_JOIN_INNER, /* a row without a match is out */
    GQUERY_JOIN_LEFT,  /* columns of `a` are NULL in it */
    GQUERY_JOIN_SEMI,  /* a row without a match is out; columns of `a` cannot be loaded */
    GQUERY_JOIN_ANTI,  /* a row with a match is out; likewise */
    GQUERY_JOIN_KINDS,
} gquery_join;
/* Beside a kind other than GQUERY_JOIN_INNER: there is a GQUERY_MATCH. */
#define GQUERY_JOIN_CONDITION 0x100u

/* Fields as PostgreSQL's extract() has them. GQUERY_E_FIELD: an infinite value has none, or a timestamp is out of range. */
typedef enum gquery_field {
    GQUERY_YEAR,
    GQUERY_QUARTER,
    GQUERY_MONTH,
    GQUERY_WEEK,
    GQUERY_ISO_YEAR,
    GQUERY_DAY,
    GQUERY_DAY_OF_YEAR,
    GQUERY_DAY_OF_WEEK,
    GQUERY_ISO_DAY_OF_WEEK,
    GQUERY_HOUR, /* not of dates, as the next two */
    GQUERY_MINUTE,
    GQUERY_SECOND,  /* in microseconds */
    GQUERY_EPOCH,   /* since 1970: of a date in seconds, of others in microseconds */
    GQUERY_TO_DATE, /* not of times, as what follows; infinite values stay that */
    GQUERY_TO_TIMESTAMP,
    GQUERY_TO_YEAR, /* the beginning of the year in which a timestamp is, and so on */
    GQUERY_TO_QUARTER,
    GQUERY_TO_MONTH,
    GQUERY_TO_WEEK,
    GQUERY_TO_DAY,
    GQUERY_TO_HOUR,
    GQUERY_TO_MINUTE,
    GQUERY_TO_SECOND,
    GQUERY_FIELDS,
} gquery_field;

typedef enum gquery_field_of {
    GQUERY_OF_TIMESTAMP,
    GQUERY_OF_DATE,
    GQUERY_OF_TIME,
    GQUERY_FIELD_OFS,
} gquery_field_of;

/* Functions of values that are asked for seldom. Of NULL they are NULL, but for the last ones. */
typedef enum gquery_function {
    /* Of one double; a result of 0 has its sign, but that of SIGN. */
    GQUERY_ROUND_F64, /* half to even */
    GQUERY_FLOOR_F64,
    GQUERY_CEILING_F64,
    GQUERY_TRUNCATE_F64,
    GQUERY_SIGN_F64, /* of NaN 0 */
    GQUERY_SQRT_F64, /* GQUERY_E_FIELD: it is below 0 */
    /* Of one integer. The first three: its quotient by `value`, from 1 on, as an integer. */
    GQUERY_ROUND_I64, /* half away from 0 */
    GQUERY_FLOOR_I64,
    GQUERY_CEILING_I64,
    GQUERY_SIGN_I64,
    GQUERY_WITHIN_I64, /* the integer. GQUERY_E_DECIMAL: its size is not below `value`, from 1 on */
    /* The word that has the integer's lower 32 bits, of some whose lower 32 bits ascend as numbers without a sign; `value`: the place of the first in `values`, and above 32
     * bits how many. GQUERY_E_FIELD: there is none */
    GQUERY_FIND_I64,
    GQUERY_RATIO_F64, /* that quotient as a double; `value`: up to 10^18. GQUERY_E_DECIMAL: the integer has more than 53 bits */
    /* Of two values, as all that follow. Of integers: */
    GQUERY_BITS_AND,
    GQUERY_BITS_OR,
    GQUERY_BITS_XOR,
    GQUERY_SHIFT_LEFT, /* of `value` bits, 16, 32 or 64, by the second one, which is less, or GQUERY_E_FIELD */
    GQUERY_SHIFT_RIGHT,
    /* Of dates and timestamps, of which infinite ones stay that. GQUERY_E_FIELD: the result is out of range, or
     * there is none of infinite ones. */
    GQUERY_ADD_DAYS, /* to a date; likewise the next one: subtracts them */
    GQUERY_SUBTRACT_DAYS,
    GQUERY_DAYS_BETWEEN, /* two dates */
    GQUERY_ADD_TIME,     /* microseconds to a timestamp */
    GQUERY_TIME_BETWEEN, /* two timestamps; GQUERY_E_I64_RANGE: they are too far from each other */
    /* To a timestamp; the day is the month's last one, if it has no such day. `value`: how far local time is from
     * it, in microseconds. */
    GQUERY_ADD_MONTHS,
    /* A value that is NULL is none of the two. Of equal ones it is the first. */
    GQUERY_LEAST_I64,
    GQUERY_GREATEST_I64,
    GQUERY_LEAST_F64,
    GQUERY_GREATEST_F64,
    GQUERY_FUNCTIONS,
} gquery_function;

typedef enum gquery_order {
    GQUERY_ORDER_I64,
    GQUERY_ORDER_F64, /* NaNs are equal and above all others; -0 is 0 */
    GQUERY_ORDERS,
} gquery_order;

/* The texts of GQUERY_TEXT_IN ascend: by their lengths, then by their words as numbers without a sign. Those of
 * GQUERY_TEXT_LIKE are pieces of a pattern, none of them empty, in whose place a byte of 0 is any one character;
 * other characters may be between them, before the first and behind the last one. */
typedef enum gquery_text {
    GQUERY_TEXT_IN,         /* boolean: is it one of the texts */
    GQUERY_TEXT_LIKE,       /* boolean: does it have all of the pieces, in their order */
    GQUERY_TEXT_LENGTH,     /* its bytes; has no texts, as the next one */
    GQUERY_TEXT_CHARACTERS, /* its characters */
    /* 8 bytes of it from byte `value` on, zeros behind its end, as a number whose order is that of the bytes; of NULL 0, and never NULL. Has no texts. GQUERY_E_TEXT, too: they are 0x7f and seven times
     * 0xff */
    GQUERY_TEXT_WORD,
    GQUERY_TEXT_KINDS,
} gquery_text;

#define GQUERY_TEXT_KIND 0xffu
#define GQUERY_TEXT_TRIMMED 0x100u /* blanks at its end are none of it */
#define GQUERY_TEXT_UTF8 0x200u    /* characters are those of UTF-8; otherwise bytes */
/* Of a pattern: it begins with the first piece, ends with the last one; it has one then. */
#define GQUERY_TEXT_FROM_START 0x400u
#define GQUERY_TEXT_TO_END 0x800u
/* One of both at most, of GQUERY_TEXT_IN, GQUERY_TEXT_LIKE, GQUERY_TEXT_WORD and GQUERY_NUMBERED: A to Z are taken as a to z, or the other way round. */
#define GQUERY_TEXT_LOWER 0x1000u
#define GQUERY_TEXT_UPPER 0x2000u
#define GQUERY_TEXT_ASCII \
    0x4000u /* a text with a byte above 127 raises GQUERY_E_TEXT; beside one of these */

/* Integers raise the error of their width's range, decimals GQUERY_E_DECIMAL, floats overflow and underflow; all
 * GQUERY_E_DIVISION by 0. */
typedef enum gquery_arithmetic {
    GQUERY_ARITHMETIC_I16,
    GQUERY_ARITHMETIC_I32,
    GQUERY_ARITHMETIC_I64,
    GQUERY_ARITHMETIC_F32, /* doubles that floats have, rounded to a float */
    GQUERY_ARITHMETIC_F64,
    GQUERY_ARITHMETIC_DECIMAL, /* of decimals that are not NaN: + - * */
    GQUERY_ARITHMETICS,
} gquery_arithmetic;

/* The words of a group's state, and what they are before the first row. NULL changes none of them. */
typedef enum gquery_aggregate {
    GQUERY_COUNT_ROWS, /* takes no value; 1 word, 0 */
    GQUERY_COUNT,      /* takes a value: those that are not NULL; 1 word, 0 */
    GQUERY_SUM_I64,    /* a 128-bit integer: 2 words, low half first, 0 */
    /* 1 word, -0.0, which changes no number. Without GQUERY_GROUP: GQUERY_E_OVERFLOW where a sum of finite numbers,
     * in the order in which they are added up, is not; with it, where a group's sum is not finite. */
    GQUERY_SUM_F64,
    GQUERY_MIN_I64, /* 1 word, INT64_MAX */
    GQUERY_MAX_I64, /* 1 word, INT64_MIN. Of doubles by GQUERY_ORDER_KEY */
    GQUERY_AND_I64, /* 1 word, -1 */
    GQUERY_OR_I64,  /* 1 word, 0 */
    GQUERY_XOR_I64, /* 1 word, 0 */
    /* Of doubles x: 4 words, 0: how many, as an integer; one of them, k, with -0 for 0; the sum of x - k, and of
     * its squares. k is any of the values, so that the squares' sum is at most n times that of differences from the
     * mean: rounding costs as much as in a sum.
     * With GQUERY_GROUP: GQUERY_E_OVERFLOW where a group's squares are not finite. */
    GQUERY_MOMENTS_F64,
    GQUERY_AGGREGATES,
} gquery_aggregate;

typedef struct gquery_instruction {
    uint16_t op; /* gquery_op */
    uint16_t b;
    uint32_t a;
    uint64_t value;
} gquery_instruction;

typedef struct gquery_program {
    uint32_t column_count, code_count, value_count;
    uint32_t state_words; /* of a group */
    gquery_column columns[GQUERY_COLUMNS_MAX];
    gquery_instruction code[GQUERY_CODE_MAX];
    int64_t values[GQUERY_VALUES_MAX];
} gquery_program;

/* The first one raised by any row; which, if rows raise several, is not said. */
typedef enum gquery_error {
    GQUERY_E_NONE,
    GQUERY_E_I16_RANGE, /* 22003 smallint out of range */
    GQUERY_E_I32_RANGE, /* 22003 integer out of range */
    GQUERY_E_I64_RANGE, /* 22003 bigint out of range */
    GQUERY_E_OVERFLOW,  /* 22003 value out of range: overflow */
    GQUERY_E_UNDERFLOW, /* 22003 value out of range: underflow */
    GQUERY_E_DIVISION,  /* 22012 division by zero */
    GQUERY_E_DECIMAL, /* none of PostgreSQL: a decimal has more than 62 bits, or is NaN where that is not computed with */
    GQUERY_E_FIELD, /* none of PostgreSQL */
    /* The backend evaluates what GQUERY_UNKNOWN stands for, and the query runs again. From bit GQUERY_UNKNOWN_SHIFT
     * on: its number. */
    GQUERY_E_UNKNOWN,
    /* None of PostgreSQL: rows would take a kernel too long: very many keys have the same place in a hash table, or
     * a row has very many matches. */
    GQUERY_E_LONG,
    GQUERY_E_TEXT, /* none of PostgreSQL: a text is compressed, not within its column, or not of ASCII where it has to be */
    GQUERY_E_NUMBERED, /* none of PostgreSQL: a text is too long for a key */
    GQUERY_ERRORS,
} gquery_error;

#define GQUERY_UNKNOWN_SHIFT 8

/* What is known of a program that gquery_check() accepts. */
typedef struct gquery_shape {
    uint32_t depth;  /* values on the stack, at most */
    uint32_t nested; /* GQUERY_IF in each other, at most */
    uint32_t keys; /* values of GQUERY_GROUP, GQUERY_EMIT or GQUERY_BUILD; 0: there is none of them */
    /* At most one is true; none: the rows are one group. */
    bool grouped, marked, emitted, built, appended;
    uint32_t loadable; /* behind the last instruction: tables whose columns can be loaded, a bit for each */
    uint32_t joins;                       /* tables that are probed: 1 to joins */
    uint32_t join_keys[GQUERY_JOINS_MAX]; /* values that each of them is probed with */
} gquery_shape;

static inline bool gquery_is_text(uint32_t form)
{
    return form >= GQUERY_TEXT_BODIES && form <= GQUERY_TEXT_FIXED;
}

static inline bool gquery_is_numbered(const gquery_column *column)
{
    return gquery_is_text(column->form) && column->bias != 0;
}

/* How many words of the state an aggregate has; 0: there is no such aggregate. */
uint32_t gquery_aggregate_words(uint32_t aggregate);

/* Counts, numbers and the stack's depth at every instruction are what kernels can do, and each word of the state
 * belongs to one aggregate.
 * False: problem, which has room for 128 bytes, says what is not. */
bool gquery_check(const gquery_program *program, gquery_shape *shape, char *problem);

static inline bool gquery_function_may_raise(uint32_t function)
{
    return function == GQUERY_SQRT_F64 || function == GQUERY_RATIO_F64 ||
           function == GQUERY_WITHIN_I64 || function == GQUERY_FIND_I64 ||
           (function >= GQUERY_SHIFT_LEFT && function <= GQUERY_ADD_MONTHS);
}

/* Whether a row may raise an error, of a program that gquery_check() accepts. */
bool gquery_may_raise(const gquery_program *program);

#endif
