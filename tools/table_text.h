/* tools/table_text.h - values of a table's columns as PostgreSQL writes them.
 *
 * Bytes come from another process: nothing is read beyond len_bytes, whatever they say.
 */
#ifndef TOOLS_TABLE_TEXT_H
#define TOOLS_TABLE_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include <gvmem/table.h>

/* How JSON has it. */
typedef enum table_kind {
    TABLE_KIND_TEXT,
    TABLE_KIND_NUMBER, /* but for NaN and infinities, which are no JSON */
    TABLE_KIND_BOOL,
} table_kind;

table_kind table_text_kind(uint32_t type);

/* Writes a value: of fixed length, or what a varlena has behind its header. Types that it does not know are
 * written as bytes, "\x...". False: the bytes make no sense for the type; then what was written is
 * of no use. */
bool table_text_write(FILE *out, const gvm_table_column *column, const uint8_t *bytes,
                      uint64_t len_bytes);

/* Values of layout 'arrow' count days and microseconds from 1970 on: to PostgreSQL's, in place. format: of the
 * value; of others than dates and timestamps nothing is changed. */
void table_text_from_1970(const char *format, uint8_t *value);

/* Writes an Arrow list as PostgreSQL writes arrays: count elements of the column's. valid: NULL, or a bitmap of
 * which the bit `skip` is the first element's. */
bool table_text_write_list(FILE *out, const gvm_table_column *column, const uint8_t *elements,
                           uint64_t count, const uint8_t *valid, unsigned skip);

/* Writes a value of a uniform column, of `width` bytes. */
bool table_text_write_uniform(FILE *out, const gvm_table_column *column, const uint8_t *bytes);

/* Decompresses pglz to raw, which has raw_bytes. False: it is malformed. */
bool table_text_unsqueeze(const uint8_t *from, uint64_t from_bytes, uint8_t *raw, uint64_t raw_bytes);

#endif
