/*
 * postgres/load_batch.h - rows by columns, as a program or a file describes them: Arrow's buffers, and where they are.
 *
 * Plain C, as arrow_file.c fills it in, too. Nothing here is sure to be so before load_match.c has checked it.
 */
#ifndef GSTORE_LOAD_BATCH_H
#define GSTORE_LOAD_BATCH_H

#include <stdint.h>

#define GSTORE_LOAD_NAME_BYTES	 64 /* with the NUL */
#define GSTORE_LOAD_FORMAT_BYTES 16
#define GSTORE_LOAD_COLUMNS_MAX	 1664

/* Of the source of the bytes. Without bytes there is none. */
typedef struct gstore_load_buffer
{
	uint64_t offset, bytes;
} gstore_load_buffer;

typedef struct gstore_load_column
{
	char			   name[GSTORE_LOAD_NAME_BYTES];
	char			   format[GSTORE_LOAD_FORMAT_BYTES]; /* of Arrow's C data interface */
	char			   element_format[GSTORE_LOAD_FORMAT_BYTES];
	gstore_load_buffer validity; /* none: no row is NULL */
	gstore_load_buffer offsets;
	gstore_load_buffer values; /* of a list: the child's, */
	gstore_load_buffer element_validity;
	uint64_t		   elements; /* and how many there are */
} gstore_load_column;

typedef struct gstore_load_batch
{
	uint64_t			rows;
	uint32_t			column_count;
	gstore_load_column *columns;
} gstore_load_batch;

#endif
