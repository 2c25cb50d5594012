/* tests/prop/query_draw.h - random query programs and tables.
 *
 * Threads: one. */
#ifndef PROP_QUERY_DRAW_H
#define PROP_QUERY_DRAW_H

#include "tests/prop/query_evaluate.h"

/* A table, and a program over it: well-typed expressions, as a compiler makes them. Values of the table and constants are such that some programs raise errors,
 * most do not. */
void query_draw(uint64_t *state, gquery_program *program, host_table *table);

/* Changes some instructions or counts at random. */
void query_damage(uint64_t *state, gquery_program *program);

/* A column of texts, some of which may be wrong. */
void query_draw_texts(uint64_t *state, uint32_t form, host_column *column, uint64_t rows);

/* gquery_source.bytes of a column, which may have been made for another form. */
uint64_t query_text_bytes(uint32_t form, const host_column *column);
/* Bytes of its values, of so many rows. */
uint64_t query_values_bytes(uint32_t form, const host_column *column, uint64_t rows);

#endif
