/*
 * postgres/plcuda/device/sort.h - sorting pairs of a key and a payload, and the k smallest of many.
 *
 * Keys are those of order.h; ~key sorts downwards. Equal keys are sorted by payload, so that there is one result only; with the
 * number of a row as payload, sorting is stable. Pairs may be in shared memory, in workbuf or anywhere else. Of functions of a block,
 * all its threads call them with the same arguments, and each may read the result.
 */
#ifndef PLCUDA_DEVICE_SORT_H
#define PLCUDA_DEVICE_SORT_H

#include "order.h"
#include "threads.h"

typedef struct plcuda_pair
{
	uint64_t key, payload;
} plcuda_pair;

GVM_DEVICE int
plcuda_pair_is_before(plcuda_pair a, plcuda_pair b)
{
	return a.key < b.key || (a.key == b.key && a.payload < b.payload);
}

/* ---- an array, by a block: a bitonic network, O(n log(n)^2) */

/*
 * Each comparison moves the smaller pair to the lower place. So where the array ends short of a power of two, what is
 * missing would never move: such comparisons are left out.
 */
GVM_DEVICE void
plcuda_compare_all(plcuda_pair *pairs, uint64_t count, uint64_t step, uint64_t flip, uint64_t comparisons)
{
	uint64_t i;

	for (i = gvm_thread(); i < comparisons; i += gvm_block_threads())
	{
		const uint64_t	  low = (i & ~(step - 1)) * 2 + (i & (step - 1));
		const uint64_t	  high = flip != 0 ? low ^ flip : low + step;
		const plcuda_pair a = pairs[low < count ? low : 0];

		if (high < count && plcuda_pair_is_before(pairs[high], a))
		{
			pairs[low] = pairs[high];
			pairs[high] = a;
		}
	}
	gvm_block_sync();
}

GVM_DEVICE_RARE void
plcuda_block_sort(plcuda_pair *pairs, uint64_t count)
{
	uint64_t half = 1, sorted, step;

	while (half * 2 < count)
		half *= 2;
	gvm_block_sync();
	for (sorted = 1; sorted < count; sorted *= 2)
	{
		plcuda_compare_all(pairs, count, sorted, 2 * sorted - 1, half);
		for (step = sorted / 2; step > 0; step /= 2)
			plcuda_compare_all(pairs, count, step, 0, half);
	}
}

/* ---- an array, by all blocks, in two kernels: slices are sorted, then each pair finds its place */

GVM_DEVICE uint64_t
plcuda_slice_length(uint64_t count, uint32_t slices)
{
	return (count + slices - 1) / slices;
}

/* In one kernel. It is fastest with about as many slices as there are blocks. */
GVM_DEVICE void
plcuda_grid_sort_slices(plcuda_pair *pairs, uint64_t count, uint32_t slices)
{
	const uint64_t length = plcuda_slice_length(count, slices);
	uint64_t	   i;

	for (i = gvm_block(); i < slices && i * length < count; i += gvm_block_count())
		plcuda_block_sort(pairs + i * length,
						  count - i * length < length ? count - i * length : length);
}

/* How many of a sorted array are before a pair; or_same: or the same. */
GVM_DEVICE uint64_t
plcuda_count_before(const plcuda_pair *sorted, uint64_t count, plcuda_pair pair, int or_same)
{
	uint64_t low = 0, high = count;

	while (low < high)
	{
		const uint64_t middle = (low + high) / 2;

		if (or_same ? !plcuda_pair_is_before(pair, sorted[middle])
					: plcuda_pair_is_before(sorted[middle], pair))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* In the next kernel, with the same count and slices: the whole, sorted, to another array of count pairs. */
GVM_DEVICE void
plcuda_grid_merge_slices(const plcuda_pair *pairs, uint64_t count, uint32_t slices, plcuda_pair *to)
{
	const uint64_t length = plcuda_slice_length(count, slices);
	uint64_t	   i, at, place;

	for (i = gvm_thread_global(); i < count; i += gvm_thread_count())
	{
		place = i % length;
		for (at = 0; at < count; at += length)
			if (at != i - i % length)
				place += plcuda_count_before(pairs + at, count - at < length ? count - at : length,
											 pairs[i], at < i);
		to[place] = pairs[i];
	}
}

/* ---- the k smallest: lists of k pairs, sorted, at first of pairs that are after all others */

GVM_DEVICE void
plcuda_topk_clear(plcuda_pair *list, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < k; i++)
		list[i].key = list[i].payload = ~(uint64_t) 0;
}

/* By one thread. False: the pair is not among them. */
GVM_DEVICE int
plcuda_topk_add(plcuda_pair *list, uint32_t k, uint64_t key, uint64_t payload)
{
	const plcuda_pair pair = {key, payload};
	uint32_t		  i;

	if (k == 0 || !plcuda_pair_is_before(pair, list[k - 1]))
		return 0;
	for (i = k - 1; i > 0 && plcuda_pair_is_before(pair, list[i - 1]); i--)
		list[i] = list[i - 1];
	list[i] = pair;
	return 1;
}

GVM_DEVICE void
plcuda_topk_add_list(plcuda_pair *list, const plcuda_pair *other, uint32_t k)
{
	uint32_t i;

	for (i = 0; i < k && plcuda_topk_add(list, k, other[i].key, other[i].payload); i++)
		;
}

/* Writes the k smallest of count lists, which follow one another, to another list or to the first of them. The lists are overwritten. */
#define PLCUDA_TOPK(name, number, threads, sync)                                                      \
	GVM_DEVICE_RARE void name(plcuda_pair *lists, uint32_t count, uint32_t k, plcuda_pair *to)        \
	{                                                                                                 \
		uint32_t i, half;                                                                             \
		sync();                                                                                       \
		for (; count > 1; count = half)                                                               \
		{                                                                                             \
			half = (count + 1) / 2;                                                                   \
			for (i = number(); i + half < count; i += threads())                                      \
				plcuda_topk_add_list(lists + (uint64_t) i * k, lists + (uint64_t) (i + half) * k, k); \
			sync();                                                                                   \
		}                                                                                             \
		for (i = number(); to != lists && i < k; i += threads())                                      \
			to[i] = lists[i];                                                                         \
		sync();                                                                                       \
	}
PLCUDA_TOPK(plcuda_block_topk, gvm_thread, gvm_block_threads, gvm_block_sync)
PLCUDA_TOPK(plcuda_warp_topk, gvm_lane, plcuda_lanes, plcuda_warp_sync)
#undef PLCUDA_TOPK

#endif
