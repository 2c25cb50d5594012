/*
 * postgres/plcuda/set.h - appending rows of a set. Included where a function returns one, behind the declarations of
 * plcuda_row and plcuda_clear_row(), which makes a row of NULLs.
 *
 * docs/plcuda.md describes each function.
 */
#ifndef PLCUDA_SET_H
#define PLCUDA_SET_H

#include "append.h"

/* Publishes a claim of count rows, which become NULLs. 0 (NULL): it has failed, which is an error of the call. */
GVM_DEVICE plcuda_row *
plcuda_publish_rows(const plcuda_call *call, uint32_t answer, const gvm_append_place *place,
					uint64_t count)
{
	plcuda_row *first;
	uint64_t	i;

	if (!plcuda_publish(call, answer, place))
		return 0;
	first = (plcuda_row *) (void *) place->rows;
	for (i = 0; i < count; i++)
		plcuda_clear_row(&first[i]);
	return first;
}

/*
 * A row of NULLs; 0 (NULL): there are no more, which is an error. Threads of a warp that call it together take their rows
 * by one claim.
 */
GVM_DEVICE plcuda_row *
plcuda_append(const plcuda_call *call)
{
	const uint32_t	 together = gvm_warp_active();
	const uint32_t	 before = gvm_count_ones(together & ((1u << gvm_lane()) - 1));
	const uint32_t	 first = gvm_count_ones((together & -together) - 1);
	uint64_t		 rows = 0;
	plcuda_row		*row;
	gvm_append_place place;

	if (before == 0 &&
		plcuda_publish(call, gvm_append_claim(call->append, gvm_count_ones(together), 0, 1, &place),
					   &place))
		rows = (uint64_t) (uintptr_t) place.rows;
	if (together != 1u << gvm_lane())
		rows = gvm_warp_shuffle_u64(together, rows, first, 32);
	if (rows == 0)
		return 0;
	row = (plcuda_row *) (uintptr_t) rows + before;
	plcuda_clear_row(row);
	return row;
}

/* So many rows, one behind the other, by one thread. */
GVM_DEVICE plcuda_row *
plcuda_append_rows(const plcuda_call *call, uint64_t count)
{
	gvm_append_place place;
	const uint32_t	 answer = gvm_append_claim(call->append, count, 0, 1, &place);

	return plcuda_publish_rows(call, answer, &place, count);
}

/* Lanes ask each other, so none may be missing: else 0 (false), and an error. */
GVM_DEVICE int
plcuda_has_whole_warps(const plcuda_call *call)
{
	if (gvm_block_threads() % gvm_warp_size() == 0)
		return 1;
	plcuda_raise_in(call->state, "22023",
					"rows are appended by whole warps in blocks of a multiple of % threads, not of %",
					gvm_warp_size(), gvm_block_threads());
	return 0;
}

/* The same by all threads of a warp, each of which gets the rows that it asks for itself. */
GVM_DEVICE plcuda_row *
plcuda_append_warp(const plcuda_call *call, uint64_t count)
{
	gvm_append_place place;

	if (!plcuda_has_whole_warps(call))
		return 0;
	return plcuda_publish_rows(call, gvm_append_claim_warp(call->append, count, 0, 1, &place),
							   &place, count);
}

/* The same by all threads of a block. */
GVM_DEVICE plcuda_row *
plcuda_append_block(const plcuda_call *call, uint64_t count)
{
	gvm_append_place place;

	if (!plcuda_has_whole_warps(call))
		return 0;
	return plcuda_publish_rows(call, gvm_append_claim_block(call->append, count, 0, 1, &place),
							   &place, count);
}

#endif
