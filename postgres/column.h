/* postgres/column.h - what a store has of one column, and how large that is. */
#ifndef GSTORE_COLUMN_H
#define GSTORE_COLUMN_H

#include "postgres.h"

#include "postgres/command.h"

/* What a store has of one column. */
typedef struct gstore_column
{
	Oid	   type;
	int32  typmod;
	int16  length;	  /* attlen */
	char   align;	  /* attalign */
	bool   by_value;  /* attbyval */
	bool   pglz;	  /* bodies are compressed where that helps, */
	bool   was_pglz;  /* or were before an ALTER, some that are there among them */
	bool   has_nulls; /* there is a null bitmap */
	bool   dropped;
	bool   left_over;	 /* dropped, and the store has what rows had of it */
	uint64 bodies_bytes; /* used in the bodies area; of format 'pgstrom' 8 if empty */
	bool   arrow;		 /* the format is 'arrow' */
	uint8  form;		 /* gstore_form (form.h) */
	/* Of lists, and of uniform columns that consist of elements: */
	uint8  element_form;
	bool   has_element_nulls; /* there is a null bitmap of the elements */
	uint32 element_width;	  /* bytes */
	Oid	   element;			  /* their type; 0: PostgreSQL has none */
	/* Of uniform columns: */
	uint32 stride;	  /* bytes of a row in its area */
	uint32 count;	  /* elements, bits or bytes of each value */
	uint8  precision; /* of decimals, as the type is now */
	int16  scale;
} gstore_column;

/* The size of a value in a batch, where those of variable length are offsets of 8 bytes. */
extern uint32 gstore_width(const gstore_column *column);
/* The same in an area. In format 'arrow' booleans are bits there. */
extern uint32 gstore_stride(const gstore_column *column);

/* What a column's rows take in one of its areas; 0: there is none. */
extern uint64 gstore_part_bytes(const gstore_column *column, gstore_part part, uint64 rows);
/* What rows of a view take in the store. */
extern uint64 gstore_data_bytes(uint64 rows, const gstore_column *columns, int column_count);

#endif
