/*
 * postgres/plcuda/rows.h - what a call's kernels have made, on its way to the backend: the row of a result, the rows of a set.
 *
 * A set stays on the device until the backend has fetched all of it, piece by piece.
 */
#ifndef PLCUDA_ROWS_H
#define PLCUDA_ROWS_H

#include "postgres/plcuda/driver.h"

#include <gvmem/append.h>

/* Where a call's results are, on the device. */
typedef struct plcuda_results
{
	uint64_t	 state;	   /* plcuda_outcome */
	uint64_t	 row;	   /* if it is no set */
	uint64_t	 pointers; /* plcuda_pointer, pointer_count of them */
	uint32_t	 pointer_count;
	plcuda_entry measure, gather; /* gather.h; if there are pointers */
} plcuda_results;

/* What is read back from there. */
typedef struct plcuda_outcome
{
	plcuda_state state;
	uint64_t	 total;
} plcuda_outcome;

/* After a kernel. False: it has raised an error. */
extern bool plcuda_read_outcome(uint64_t address, plcuda_outcome *out, plcuda_message *answer);

/* Before the kernels of a function that appends. False: answer says why. */
extern bool plcuda_begin_append(const plcuda_window *window, gvm_device *device, gvm_append *append,
								plcuda_message *answer);
/* After them. False: answer says why, where a kernel could append no more. */
extern bool plcuda_finish_append(plcuda_message *answer);
/* After all kernels; then the first piece can be fetched. */
extern void plcuda_begin_rows(const plcuda_window *window, const plcuda_results *results);
/* The next piece, into the memory file, which may become longer. */
extern bool plcuda_fetch_piece(plcuda_message *answer);
/* The rest of the rows is not wanted. */
extern void plcuda_end_rows(void);
/* Frees what is kept for the next call. */
extern void plcuda_release_rows(void);

#endif
