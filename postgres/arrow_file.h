/*
 * postgres/arrow_file.h - reads Arrow's IPC formats, of files and of streams: what columns there are, and where the
 * buffers of each batch of rows are.
 *
 * Plain C, without PostgreSQL. The bytes may be anything: metadata is copied and looked at within bounds, and every buffer
 * that is returned lies within the input. What is in the buffers is not looked at.
 *
 * https://arrow.apache.org/docs/format/Columnar.html, "Serialization and Interprocess Communication"; Schema.fbs,
 * Message.fbs and File.fbs say what the metadata has.
 */
#ifndef GSTORE_ARROW_FILE_H
#define GSTORE_ARROW_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "postgres/load_batch.h"

#define GSTORE_ARROW_TEXT_BYTES 256

typedef struct gstore_arrow_input
{
	bool (*read)(void *argument, uint64_t offset, void *to, uint64_t bytes);
	void	*argument;
	uint64_t bytes;
} gstore_arrow_input;

typedef enum gstore_arrow_result
{
	GSTORE_ARROW_OK,
	GSTORE_ARROW_END,		  /* there are no more batches */
	GSTORE_ARROW_MALFORMED,	  /* it is no such file */
	GSTORE_ARROW_UNSUPPORTED, /* it is one, with something that cannot be read here */
	GSTORE_ARROW_UNREADABLE,  /* the input failed */
	GSTORE_ARROW_NO_MEMORY,
} gstore_arrow_result;

typedef struct gstore_arrow_file gstore_arrow_file;

/*
 * Reads what columns there are. text, of GSTORE_ARROW_TEXT_BYTES: what is wrong, if something is. The input stays the
 * caller's, and as long as the file is open.
 */
gstore_arrow_result
gstore_arrow_file_open(const gstore_arrow_input *input, gstore_arrow_file **out, char *text);

/* The next batch. Its columns are the same memory each time, and the file's. */
gstore_arrow_result
gstore_arrow_file_next(gstore_arrow_file *file, gstore_load_batch *out, char *text);

/* NULL is ignored. */
void gstore_arrow_file_close(gstore_arrow_file *file);

#endif
