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
	bool   pglz;	  /* bodies are compressed where that helps */
	bool   has_nulls; /* there is a null bitmap */
	bool   dropped;
	bool   left_over;	 /* dropped, and the store has what rows had of it */
	uint64 bodies_bytes; /* used in the bodies area; of format 'pgstrom' 8 if empty */
	/* Of format 'arrow' (arrow.h): */
	uint8  form; /* gstore_form; 0: the format is 'pgstrom' */
	uint8  element_form;
	bool   has_element_nulls; /* there is a null bitmap of the elements */
	uint32 element_width;	  /* of a list: bytes */
	Oid	   element;			  /* and type of its elements */
} gstore_column;

/* The size of a fixed-length value in a batch, and in an area of format 'pgstrom'; 8 for variable length. */
extern uint32 gstore_width(const gstore_column *column);

/* What a column's rows take in one of its areas; 0: there is none. */
extern uint64 gstore_part_bytes(const gstore_column *column, gstore_part part, uint64 rows);
/* What rows of a view take in the store. */
extern uint64 gstore_data_bytes(uint64 rows, const gstore_column *columns, int column_count);

#endif
