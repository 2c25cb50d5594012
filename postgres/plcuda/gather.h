/*
 * postgres/plcuda/gather.h - kernels that follow those of a function whose result has values of variable length: they are anywhere
 * on the device, and are gathered into one block.
 */
#ifndef PLCUDA_GATHER_H
#define PLCUDA_GATHER_H

#include "device.h"

#define PLCUDA_WORDS(bytes) (((uint64_t) (bytes) + 7) / 8)

typedef struct plcuda_found
{
	const char *value;
	uint64_t	bytes;
} plcuda_found;

/* What a pointer of a row leads to. NULL has no bytes; neither has what is not there, whose address is 0. */
GVM_DEVICE plcuda_found
plcuda_find_bytes(const char *row, const plcuda_pointer *at)
{
	plcuda_found found = {0, 0};
	int64_t		 units;

	if (row[at->isnull] != 0)
		return found;
	found.value = *(const char *const *) (const void *) (row + at->value);
	if (found.value == 0 && at->optional)
		return found;
	units = *(const uint32_t *) (const void *) (row + at->length);
	if (at->more != 0)
		units += *(const int32_t *) (const void *) (row + at->more);
	found.bytes = units < 0 ? ~(uint64_t) 0 : ((uint64_t) units * at->bits + 7) / 8;
	return found;
}

/* Words of a row's values; each begins with a new one. */
GVM_DEVICE uint64_t
plcuda_count_words(const plcuda_gather *g, const char *row)
{
	uint64_t words = 0;
	uint32_t i;

	for (i = 0; i < g->pointer_count; i++)
	{
		const plcuda_found found = plcuda_find_bytes(row, &g->pointers[i]);

		if (found.value == 0 && found.bytes > 0)
			plcuda_raise_in(g->state, "39004", "a value of the result has no address");
		if (found.bytes > PLCUDA_RESULT_BYTES_MAX)
			words = PLCUDA_RESULT_BYTES_MAX;
		words += PLCUDA_WORDS(found.bytes);
	}
	if (words > PLCUDA_RESULT_BYTES_MAX / 8)
		plcuda_raise_in(g->state, "54000", "a row of the result has more than 1 GB");
	return words;
}

/* Copies rows; in place of addresses they have offsets in the block. *total becomes how many words it has. */
GVM_KERNEL(plcuda_measure, plcuda_gather, p)
{
	for (uint64_t n = gvm_thread_global(); n < p.row_count; n += gvm_thread_count())
	{
		const char *row = p.rows + n * p.row_bytes;
		char	   *copy = p.copies + n * p.row_bytes;
		uint64_t	at = gvm_atomic_add_u64(p.total, plcuda_count_words(&p, row));

		for (uint32_t i = 0; i < p.row_bytes / 8; i++)
			((uint64_t *) (void *) copy)[i] = ((const uint64_t *) (const void *) row)[i];
		for (uint32_t i = 0; i < p.pointer_count; i++)
		{
			const plcuda_found found = plcuda_find_bytes(row, &p.pointers[i]);

			*(uint64_t *) (void *) (copy + p.pointers[i].value) = found.value == 0
				? 0
				: PLCUDA_GATHERED_AT + at * 8;
			at += PLCUDA_WORDS(found.bytes);
		}
	}
}

/* As thread number `thread` of so many. */
GVM_DEVICE void
plcuda_copy_bytes(char *to, plcuda_found from, uint64_t thread, uint64_t threads)
{
	uint64_t done = 0;

	if (((uint64_t) (uintptr_t) from.value & 7) == 0)
	{
		done = from.bytes / 8;
		for (uint64_t i = thread; i < done; i += threads)
			((uint64_t *) (void *) to)[i] = ((const uint64_t *) (const void *) from.value)[i];
		done *= 8;
	}
	for (uint64_t i = done + thread; i < from.bytes; i += threads)
		to[i] = from.value[i];
}

/* Copies the values of each row, by p.group threads. */
GVM_KERNEL(plcuda_gather_rows, plcuda_gather, p)
{
	const uint64_t groups = gvm_thread_count() / p.group, group = gvm_thread_global() / p.group;

	if (group >= groups)
		return;
	for (uint64_t n = group; n < p.row_count; n += groups)
		for (uint32_t i = 0; i < p.pointer_count; i++)
		{
			const char *copy = p.copies + n * p.row_bytes + p.pointers[i].value;

			plcuda_copy_bytes(p.bytes + *(const uint64_t *) (const void *) copy,
							  plcuda_find_bytes(p.rows + n * p.row_bytes, &p.pointers[i]),
							  gvm_thread_global() % p.group, p.group);
		}
}

#endif
