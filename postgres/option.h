/* postgres/option.h - options of tables and columns, and the parser for texts within statements. */
#ifndef GSTORE_OPTION_H
#define GSTORE_OPTION_H

#include "postgres.h"

#include "access/attnum.h"
#include "parser/parser.h"

/* The device of OPTIONS (pinning 'N'); 0 without. */
extern int gstore_table_device(Oid relation);
/* OPTIONS (format 'arrow'); otherwise it is 'pgstrom'. */
extern bool gstore_table_is_arrow(Oid relation);
/* OPTIONS (source 'SELECT ...'); NULL without. */
extern const char *gstore_table_source(Oid relation);
/* OPTIONS (compression 'pglz'). */
extern bool gstore_column_is_compressed(Oid relation, AttrNumber column);
/* OPTIONS (length 'N'); 0 without. */
extern uint32 gstore_column_length(Oid relation, AttrNumber column);

/*
 * raw_parser() of a text that a statement has as a value. An error has its position in this text, not in the statement, and says
 * what it is: name.
 */
extern List *gstore_parse(const char *text, RawParseMode mode, const char *name);

#endif
