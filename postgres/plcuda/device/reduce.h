/*
 * postgres/plcuda/device/reduce.h - sums, minima, maxima and counts over a warp, a block and all blocks; prefix sums over a warp and a block.
 *
 * All lanes of the warp, or all threads of the block, call a function, and each has the result. Blocks may have any size. Results do not
 * depend on which thread is faster, those of floating point neither: their order is by the number of the thread.
 * Sums of integers wrap around.
 */
#ifndef PLCUDA_DEVICE_REDUCE_H
#define PLCUDA_DEVICE_REDUCE_H

#include "order.h"
#include "threads.h"

#define PLCUDA_WARPS_MAX 32

GVM_DEVICE uint32_t
plcuda_warps(void)
{
	return (gvm_block_threads() + gvm_warp_size() - 1) / gvm_warp_size();
}

/* As PostgreSQL sorts: NaN is the greatest. */
#define PLCUDA_IS_LESS(a, b)		((a) < (b) || ((b) != (b) && (a) == (a)))
#define PLCUDA_SMALLER(type, a, b)	(PLCUDA_IS_LESS(b, a) ? (b) : (a))
#define PLCUDA_LARGER(type, a, b)	(PLCUDA_IS_LESS(a, b) ? (b) : (a))
#define PLCUDA_PLUS(type, a, b)		((type) ((a) + (b)))
#define PLCUDA_PLUS_I32(type, a, b) ((type) ((uint32_t) (a) + (uint32_t) (b)))
#define PLCUDA_PLUS_I64(type, a, b) ((type) ((uint64_t) (a) + (uint64_t) (b)))

/* A type, its letters, and the type and letters with which it goes from lane to lane. */
#define PLCUDA_REDUCTION(name, type, letters, carrier, carried, combine)                              \
	GVM_DEVICE type plcuda_warp_##name##_##letters(type v)                                            \
	{                                                                                                 \
		const uint32_t mask = plcuda_lane_mask(), lanes = plcuda_lanes(), size = gvm_warp_size();     \
		uint32_t	   step;                                                                          \
		for (step = size / 2; step > 0; step /= 2)                                                    \
		{                                                                                             \
			const type other = (type) gvm_warp_shuffle_down_##carried(mask, (carrier) v, step, size); \
			if (gvm_lane() + step < lanes)                                                            \
				v = combine(type, v, other);                                                          \
		}                                                                                             \
		return (type) gvm_warp_shuffle_##carried(mask, (carrier) v, 0, size);                         \
	}                                                                                                 \
	GVM_DEVICE type plcuda_block_##name##_##letters(type v)                                           \
	{                                                                                                 \
		GVM_SHARED(type, of_warps, PLCUDA_WARPS_MAX);                                                 \
		uint32_t i;                                                                                   \
		v = plcuda_warp_##name##_##letters(v);                                                        \
		if (gvm_lane() == 0)                                                                          \
			of_warps[gvm_warp()] = v;                                                                 \
		gvm_block_sync();                                                                             \
		v = of_warps[0];                                                                              \
		for (i = 1; i < plcuda_warps(); i++)                                                          \
			v = combine(type, v, of_warps[i]);                                                        \
		gvm_block_sync();                                                                             \
		return v;                                                                                     \
	}

/* The sum over this thread and those before it; exclusive: over those before it. */
#define PLCUDA_SCAN(type, letters, carrier, carried, plus)                                             \
	GVM_DEVICE type plcuda_warp_inclusive_sum_##letters(type v)                                        \
	{                                                                                                  \
		const uint32_t mask = plcuda_lane_mask(), size = gvm_warp_size();                              \
		uint32_t	   step;                                                                           \
		for (step = 1; step < size; step *= 2)                                                         \
		{                                                                                              \
			const type other = (type) gvm_warp_shuffle_up_##carried(mask, (carrier) v, step, size);    \
			if (gvm_lane() >= step)                                                                    \
				v = plus(type, other, v);                                                              \
		}                                                                                              \
		return v;                                                                                      \
	}                                                                                                  \
	GVM_DEVICE type plcuda_warp_exclusive_sum_##letters(type v)                                        \
	{                                                                                                  \
		v = plcuda_warp_inclusive_sum_##letters(v);                                                    \
		v = (type) gvm_warp_shuffle_up_##carried(plcuda_lane_mask(), (carrier) v, 1, gvm_warp_size()); \
		return gvm_lane() == 0 ? 0 : v;                                                                \
	}                                                                                                  \
	/* Both, and in *total the sum over the block. */                                                  \
	GVM_DEVICE type plcuda_block_scan_##letters(type v, type *exclusive, type *total)                  \
	{                                                                                                  \
		GVM_SHARED(type, of_warps, PLCUDA_WARPS_MAX);                                                  \
		const type inclusive = plcuda_warp_inclusive_sum_##letters(v);                                 \
		type	   before = 0, all = 0;                                                                \
		uint32_t   i;                                                                                  \
		*exclusive = (type) gvm_warp_shuffle_up_##carried(plcuda_lane_mask(), (carrier) inclusive,     \
														  1, gvm_warp_size());                         \
		if (gvm_lane() == 0)                                                                           \
			*exclusive = 0;                                                                            \
		if (gvm_lane() == plcuda_lanes() - 1)                                                          \
			of_warps[gvm_warp()] = inclusive;                                                          \
		gvm_block_sync();                                                                              \
		for (i = 0; i < plcuda_warps(); i++)                                                           \
		{                                                                                              \
			before = i == gvm_warp() ? all : before;                                                   \
			all = plus(type, all, of_warps[i]);                                                        \
		}                                                                                              \
		gvm_block_sync();                                                                              \
		*exclusive = plus(type, before, *exclusive);                                                   \
		*total = all;                                                                                  \
		return plus(type, before, inclusive);                                                          \
	}                                                                                                  \
	GVM_DEVICE type plcuda_block_inclusive_sum_##letters(type v, type *total)                          \
	{                                                                                                  \
		type exclusive;                                                                                \
		return plcuda_block_scan_##letters(v, &exclusive, total);                                      \
	}                                                                                                  \
	GVM_DEVICE type plcuda_block_exclusive_sum_##letters(type v, type *total)                          \
	{                                                                                                  \
		type exclusive;                                                                                \
		(void) plcuda_block_scan_##letters(v, &exclusive, total);                                      \
		return exclusive;                                                                              \
	}

#define PLCUDA_REDUCTIONS(type, letters, carrier, carried, plus)           \
	PLCUDA_REDUCTION(sum, type, letters, carrier, carried, plus)           \
	PLCUDA_REDUCTION(min, type, letters, carrier, carried, PLCUDA_SMALLER) \
	PLCUDA_REDUCTION(max, type, letters, carrier, carried, PLCUDA_LARGER)  \
	PLCUDA_SCAN(type, letters, carrier, carried, plus)
PLCUDA_REDUCTIONS(int32_t, i32, int32_t, i32, PLCUDA_PLUS_I32)
PLCUDA_REDUCTIONS(uint32_t, u32, uint32_t, u32, PLCUDA_PLUS)
PLCUDA_REDUCTIONS(int64_t, i64, uint64_t, u64, PLCUDA_PLUS_I64)
PLCUDA_REDUCTIONS(uint64_t, u64, uint64_t, u64, PLCUDA_PLUS)
PLCUDA_REDUCTIONS(float, f32, float, f32, PLCUDA_PLUS)
PLCUDA_REDUCTIONS(double, f64, double, f64, PLCUDA_PLUS)
#undef PLCUDA_REDUCTIONS
#undef PLCUDA_SCAN
#undef PLCUDA_REDUCTION

/* In how many threads yes is not 0. */
GVM_DEVICE uint32_t
plcuda_warp_count(int yes)
{
	return gvm_count_ones(gvm_warp_ballot(plcuda_lane_mask(), yes));
}
GVM_DEVICE uint32_t
plcuda_block_count(int yes)
{
	return plcuda_block_sum_u32(yes != 0);
}

/* ---- all blocks: a word that begins as 0, and may be read by the next kernel */

GVM_DEVICE void
plcuda_grid_sum_i64(int64_t *sum, int64_t v)
{
	v = plcuda_block_sum_i64(v);
	if (gvm_thread() == 0)
		gvm_atomic_add_u64((uint64_t *) sum, (uint64_t) v);
}
GVM_DEVICE void
plcuda_grid_count(uint64_t *count, int yes)
{
	const uint32_t n = plcuda_block_count(yes);

	if (gvm_thread() == 0)
		gvm_atomic_add_u64(count, n);
}

/* The largest key, see order.h; 0: there was none, or 0. Of the smallest one the word has ~key: there was none if it is 0. */
GVM_DEVICE void
plcuda_grid_max_key(uint64_t *largest, uint64_t key)
{
	key = plcuda_block_max_u64(key);
	if (gvm_thread() == 0)
		gvm_atomic_max_u64(largest, key);
}
GVM_DEVICE void
plcuda_grid_min_key(uint64_t *not_smallest, uint64_t key)
{
	plcuda_grid_max_key(not_smallest, ~key);
}

/* Sums of blocks, for a sum in a fixed order: words for 1 + the number of blocks, of which there are at most as many as threads. */
GVM_DEVICE void
plcuda_grid_store_f64(double *partials, double v)
{
	v = plcuda_block_sum_f64(v);
	if (gvm_thread() == 0)
		partials[1 + gvm_block()] = v;
	if (gvm_thread_global() == 0)
		partials[0] = gvm_block_count();
}

/* In a later kernel: their sum, by all threads of a block. */
GVM_DEVICE double
plcuda_block_sum_stored_f64(const double *partials)
{
	const uint32_t count = (uint32_t) partials[0];
	double		   v = 0;
	uint32_t	   i;

	for (i = gvm_thread(); i < count; i += gvm_block_threads())
		v += partials[1 + i];
	return plcuda_block_sum_f64(v);
}

#endif
