/* See rows.h. Memory of rows and of what is gathered is kept from call to call, until plcuda_release_rows(). */
#include "postgres/plcuda/rows.h"

#include "postgres/plcuda/notes.h"

#include <string.h>

#define RESERVE_UNIT	   (128u << 20)
#define PIECE_ROWS_BYTES   (4u << 20)
#define PIECE_BYTES		   (32u << 20) /* of what its rows point to, unless a single one has more */
#define GATHER_THREADS_MAX (1u << 16)

static struct
{
	gvm_appender *appender;
	uint64_t	  row_bytes, append_bytes; /* of the appender */
	uint32_t	  flags;
	uint64_t	  appended; /* rows */

	plcuda_device_block copies, bytes;

	/* what is being fetched */
	plcuda_results results;
	uint64_t	   address, row_count, next;
	uint32_t	   piece_row_bytes;
	uint64_t	   step; /* most rows of the next piece */
} rows;

bool
plcuda_read_outcome(uint64_t address, plcuda_outcome *out, plcuda_message *answer)
{
	return plcuda_check(plcuda_cu.copy_out(out, address, sizeof *out), "cuMemcpyDtoH", answer) &&
		plcuda_take_notes(&out->state, answer);
}

/* ---- appending */

static bool
create_appender(const plcuda_window *window, gvm_device *device, plcuda_message *answer)
{
	const uint64_t		 row_bytes = window->returns_set ? window->row_bytes : 0;
	const uint64_t		 most = window->append_bytes;
	gvm_appender_options options = gvm_appender_options_init();
	gvm_status			 status;

	options.budget_bytes = most;
	options.flags = window->appends_bytes ? 0 : GVM_APPENDER_ROWS_ONLY;
	if (rows.appender != NULL && rows.row_bytes == row_bytes && rows.append_bytes == most &&
		rows.flags == options.flags)
		return true;
	gvm_appender_destroy(rows.appender);
	rows.appender = NULL;
	status = gvm_appender_create(device, row_bytes, (2 * most / RESERVE_UNIT + 1) * RESERVE_UNIT,
								 &options, &rows.appender);
	if (status != GVM_OK)
	{
		rows.appender = NULL;
		plcuda_answer_status(answer, status, "cannot make a buffer for a set");
		return false;
	}
	rows.row_bytes = row_bytes;
	rows.append_bytes = most;
	rows.flags = options.flags;
	return true;
}

bool
plcuda_begin_append(const plcuda_window *window, gvm_device *device, gvm_append *append,
					plcuda_message *answer)
{
	gvm_status status;

	if (!create_appender(window, device, answer))
		return false;
	append->struct_size = sizeof *append;
	status = gvm_appender_begin(rows.appender, append);
	if (status != GVM_OK)
		plcuda_answer_status(answer, status, "cannot make a buffer for a set");
	return status == GVM_OK;
}

bool
plcuda_finish_append(plcuda_message *answer)
{
	gvm_appender_result result = {.struct_size = sizeof result};
	const gvm_status	status = gvm_appender_finish(rows.appender, NULL, &result);

	if (status == GVM_OK && result.complete && strcmp(answer->sqlstate, PLCUDA_FULL) != 0)
	{
		rows.appended = result.rows;
		return true;
	}
	if (status != GVM_OK)
		plcuda_answer_status(answer, status, "the function cannot append");
	else if (result.reason == GVM_OK || result.reason == GVM_E_LIMIT)
		plcuda_answer_error(
			answer, "53400",
			"the rows and bytes that the function appends are more than plcuda.buffer_memory allows");
	else
		plcuda_answer_error(
			answer, gvm_status_sqlstate(result.reason),
			"the GPU has no more memory for the rows and bytes that the function appends");
	return false;
}

/* ---- fetching */

void
plcuda_begin_rows(const plcuda_window *window, const plcuda_results *results)
{
	gvm_appender_info info = {.struct_size = sizeof info};

	rows.results = *results;
	rows.address = results->row;
	rows.row_count = 1;
	rows.next = 0;
	rows.piece_row_bytes = window->row_bytes;
	rows.step = PIECE_ROWS_BYTES / window->row_bytes;
	if (!window->returns_set)
		return;
	rows.row_count = rows.appended;
	if (gvm_appender_get_info(rows.appender, &info) == GVM_OK)
		rows.address = (uint64_t) (uintptr_t) info.address;
}

bool
plcuda_has_rows(void)
{
	return rows.next < rows.row_count;
}

void
plcuda_end_rows(void)
{
	rows.next = rows.row_count = 0;
	if (rows.appender != NULL && gvm_appender_reset(rows.appender) != GVM_OK)
	{
		gvm_appender_destroy(rows.appender); /* a call has ended before its finish */
		rows.appender = NULL;
	}
}

void
plcuda_release_rows(void)
{
	gvm_appender_destroy(rows.appender);
	rows.appender = NULL;
	plcuda_release_block(&rows.copies);
	plcuda_release_block(&rows.bytes);
}

/* Room for a piece in the memory file; the window gets its spans. NULL: answer says why. */
static uint8_t *
append_piece(uint64_t count, uint64_t bytes, plcuda_message *answer)
{
	const uint64_t row_bytes = PLCUDA_ROUND_UP(count * rows.piece_row_bytes);
	plcuda_span	   span;
	uint8_t		  *to = plcuda_append(row_bytes + bytes, &span);
	plcuda_window *window = plcuda_map_window();

	if (to == NULL || window == NULL)
	{
		plcuda_answer_error(answer, "53200", "out of memory for a result of %llu bytes",
							(unsigned long long) (row_bytes + bytes));
		return NULL;
	}
	window->row_count = rows.row_count;
	window->rows = (plcuda_span){span.at, count * rows.piece_row_bytes};
	window->bytes = (plcuda_span){span.at + row_bytes, bytes};
	return to;
}

/* Copies rows and makes room for what they point to. *bytes: how much that is. */
static bool
measure_rows(plcuda_gather *gather, uint64_t *bytes, plcuda_message *answer)
{
	const plcuda_kernel kernel = {
		.threads = gather->row_count < GATHER_THREADS_MAX ? gather->row_count : GATHER_THREADS_MAX};
	plcuda_outcome outcome;

	if (!plcuda_check(plcuda_cu.clear((uint64_t) (uintptr_t) gather->total, 0, sizeof *gather->total),
					  "cuMemsetD8", answer) ||
		!plcuda_launch(rows.results.measure, &kernel, gather, answer) ||
		!plcuda_synchronize(answer) || !plcuda_read_outcome(rows.results.state, &outcome, answer))
		return false;
	*bytes = PLCUDA_GATHERED_AT + outcome.total * 8;
	return true;
}

static bool
gather_rows(plcuda_gather *gather, uint64_t bytes, plcuda_message *answer)
{
	const uint64_t words = bytes / 8 - 1, each = words / gather->row_count;
	plcuda_kernel  kernel = {.threads = words < GATHER_THREADS_MAX ? words : GATHER_THREADS_MAX};

	if (bytes == PLCUDA_GATHERED_AT)
		return true;
	if (!plcuda_reserve_block(&rows.bytes, bytes, "a result", answer))
		return false;
	gather->bytes = (char *) (uintptr_t) rows.bytes.address;
	for (gather->group = 1; gather->group * 2 <= each && gather->group * 2 <= kernel.threads;)
		gather->group *= 2;
	return plcuda_launch(rows.results.gather, &kernel, gather, answer) && plcuda_synchronize(answer);
}

/* Of rows that point to values. */
static bool
fetch_gathered(uint64_t count, plcuda_message *answer)
{
	plcuda_gather gather = {
		.rows = (const char *) (uintptr_t) (rows.address + rows.next * rows.piece_row_bytes),
		.pointers = (const plcuda_pointer *) (uintptr_t) rows.results.pointers,
		.pointer_count = rows.results.pointer_count,
		.row_bytes = rows.piece_row_bytes,
		.row_count = count,
		.total = (uint64_t *) (uintptr_t) (rows.results.state + offsetof(plcuda_outcome, total)),
		.state = (plcuda_state *) (uintptr_t) rows.results.state};
	uint64_t bytes;
	uint8_t *to;

	if (!plcuda_reserve_block(&rows.copies, count * rows.piece_row_bytes, "a result", answer))
		return false;
	gather.copies = (char *) (uintptr_t) rows.copies.address;
	while (measure_rows(&gather, &bytes, answer))
	{
		if (bytes > PIECE_BYTES && gather.row_count > 1)
		{
			gather.row_count = (gather.row_count + 1) / 2;
			continue;
		}
		if (!gather_rows(&gather, bytes, answer))
			return false;
		to = append_piece(gather.row_count, bytes, answer);
		if (to == NULL)
			return false;
		count = gather.row_count * rows.piece_row_bytes;
		rows.next += gather.row_count;
		/* More than this one had, where it had little. */
		rows.step = bytes > PIECE_BYTES / 4 ? gather.row_count : 2 * gather.row_count;
		return plcuda_check(plcuda_cu.copy_out(to, rows.copies.address, count), "cuMemcpyDtoH", answer) &&
			(bytes == PLCUDA_GATHERED_AT ||
			 plcuda_check(plcuda_cu.copy_out(to + PLCUDA_ROUND_UP(count), rows.bytes.address, bytes),
						  "cuMemcpyDtoH", answer));
	}
	return false;
}

bool
plcuda_fetch_piece(plcuda_message *answer)
{
	const uint64_t most = PIECE_ROWS_BYTES / rows.piece_row_bytes, left = rows.row_count - rows.next;
	uint64_t	   count = rows.step < most ? rows.step : most;
	uint8_t		  *to;

	if (count > left)
		count = left;
	if (rows.results.pointer_count > 0 && count > 0)
		return fetch_gathered(count, answer);
	to = append_piece(count, 0, answer);
	if (to == NULL)
		return false;
	if (count > 0 &&
		!plcuda_check(plcuda_cu.copy_out(to, rows.address + rows.next * rows.piece_row_bytes,
										 count * rows.piece_row_bytes),
					  "cuMemcpyDtoH", answer))
		return false;
	rows.next += count;
	return true;
}
