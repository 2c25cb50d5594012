/* tests/prop/query_draft.h - what query_draw.c draws programs with, and tables, which are query_draw_table.c's.
 *
 * Threads: one. */
#ifndef PROP_QUERY_DRAFT_H
#define PROP_QUERY_DRAFT_H

#include "tests/lib/random.h"
#include "tests/prop/query_evaluate.h"

#define COLUMNS 17u
#define TEXT_MAX 300u

typedef enum type { BOOL, I16, I32, I64, F32, F64, TYPES, TEXT = TYPES } type;

typedef struct draft {
    uint64_t *state;
    gquery_program *program;
    bool is_tame; /* small values */
    bool is_too_long;
    uint32_t nested;
} draft;

static inline uint64_t draw(draft *d, uint64_t bound)
{
    return random_next(d->state) % bound;
}

static inline void emit(draft *d, gquery_op op, uint32_t a, uint32_t b, uint64_t value)
{
    d->is_too_long = d->program->code_count == GQUERY_CODE_MAX;
    if (!d->is_too_long)
        d->program->code[d->program->code_count++] = (gquery_instruction){
            .op = (uint16_t)op, .a = a, .b = (uint16_t)b, .value = value};
}

uint64_t query_draw_value(draft *d, type t);
/* Of UTF-8, where it is written to; how many bytes it has. */
uint32_t query_draw_character(draft *d, uint8_t *to);
/* Up to so many bytes. */
uint32_t query_draw_text(draft *d, uint8_t *to, uint32_t most);
/* What a column of the form has on the stack. */
type query_type_of_form(uint32_t form);
void query_put_column(draft *d, uint32_t form, host_column *column, uint64_t rows);
/* With numbers that ascend, so that groups come one after another. */
void query_put_ascending(draft *d, uint32_t form, host_column *column, uint64_t rows);
/* COLUMNS columns of the program, and what the table has in them. */
void query_draw_table(draft *d, host_table *table);

#endif
