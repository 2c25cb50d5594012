/*
 * postgres/plcuda/device/threads.h - warps of blocks of any size, of which the last one may have fewer lanes than the others; work that
 * blocks share.
 */
#ifndef PLCUDA_DEVICE_THREADS_H
#define PLCUDA_DEVICE_THREADS_H

#include <gvmem/device/kernel.h>

/* How many lanes this warp has. */
GVM_DEVICE uint32_t
plcuda_lanes(void)
{
	const uint32_t size = gvm_warp_size(), rest = gvm_block_threads() - gvm_warp() * size;

	return rest < size ? rest : size;
}

/* The mask that names all of them. */
GVM_DEVICE uint32_t
plcuda_lane_mask(void)
{
	return ~0u >> (32 - plcuda_lanes());
}

/* By all lanes of the warp: each sees then what the others have written. */
GVM_DEVICE void
plcuda_warp_sync(void)
{
	gvm_warp_sync_lanes(plcuda_lane_mask());
}

/*
 * For work that blocks share, by all threads of a block: the next number from 0 on that no other block has. *counter is in device
 * memory, and begins as 0.
 */
GVM_DEVICE uint64_t
plcuda_block_next(uint64_t *counter)
{
	GVM_SHARED(uint64_t, number, 1);

	gvm_block_sync();
	if (gvm_thread() == 0)
		number[0] = gvm_atomic_add_u64(counter, 1);
	gvm_block_sync();
	return number[0];
}

#endif
