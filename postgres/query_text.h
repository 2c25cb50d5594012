/*
 * postgres/query_text.h - conditions on texts, and their lengths, as GQUERY_TEXT (query/program.h).
 *
 * A column of text, varchar or character is compared with what depends on no row: by = and <>, IS DISTINCT FROM, IN, = ANY and <> ALL, LIKE and
 * starts_with(), under collations that are deterministic: equal texts have equal bytes then. So are lower() and upper() of it, by ILIKE as well, as far as texts are of ASCII or the
 * collation is C, its first characters, and COALESCE of these.
 */
#ifndef GSTORE_QUERY_TEXT_H
#define GSTORE_QUERY_TEXT_H

#include "postgres.h"

#include "postgres/query_expr.h"

/* False: it is no such expression, or there is no room for what it compares with; then there are no instructions of it. */
extern bool gstore_emit_text(gstore_emitter *emitter, Node *node, gstore_emitted *out);

/*
 * A text by which rows are grouped, as its number: the place of its column; trimmed: blanks at the end of the column's text are none of it. False: it is no
 * column of texts, nor lower() or upper() of one, or texts that are equal may have different bytes.
 */
extern bool gstore_emit_text_key(gstore_emitter *emitter, Node *key, uint32 *column, bool *trimmed);

/*
 * A text as a key of an order: its 8 bytes of that number, as a word in their order; -1: whether it is NULL, if it may be. False: it is no column of texts, nor lower() or upper() of one, or
 * its collation has another order than that of bytes.
 */
extern bool gstore_emit_text_word(gstore_emitter *emitter, Node *key, int which, bool *nullable);

#endif
