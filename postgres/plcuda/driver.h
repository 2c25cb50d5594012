/*
 * postgres/plcuda/driver.h - what the worker's files call of the GPU's driver: its interface, blocks of device memory, launches.
 *
 * One thread, and one device at a time: the one whose context is current.
 */
#ifndef PLCUDA_DRIVER_H
#define PLCUDA_DRIVER_H

#include "postgres/plcuda/gpu_worker.h"

typedef struct CUmod_st	 *plcuda_module;
typedef struct CUfunc_st *plcuda_entry; /* a kernel of a module */

typedef struct plcuda_driver
{
	int (*module_load)(plcuda_module *module, const void *image);
	int (*module_unload)(plcuda_module module);
	int (*function_get)(plcuda_entry *kernel, plcuda_module module, const char *name);
	int (*function_attribute)(int *value, int which, plcuda_entry kernel);
	int (*device_attribute)(int *value, int which, int device);
	int (*function_set)(plcuda_entry kernel, int which, int value);
	int (*launch)(plcuda_entry kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
				  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
				  gvm_stream stream, void **params, void **extra);
	int (*synchronize)(gvm_stream stream);
	int (*alloc)(uint64_t *address, size_t bytes);
	int (*free)(uint64_t address);
	int (*copy_in)(uint64_t to, const void *from, size_t bytes);
	int (*copy_out)(void *to, uint64_t from, size_t bytes);
	int (*clear)(uint64_t to, unsigned char value, size_t bytes);
} plcuda_driver;

extern plcuda_driver plcuda_cu;

/* Fills in plcuda_cu. */
extern bool plcuda_find_calls(plcuda_message *answer);
/* Whether a call has returned 0; if not, answer says which one failed. */
extern bool plcuda_check(int result, const char *call, plcuda_message *answer);

/* Device memory for one purpose, which lasts from call to call and grows as needed. */
typedef struct plcuda_device_block
{
	uint64_t address, bytes;
} plcuda_device_block;

extern void plcuda_release_block(plcuda_device_block *b);
/* Of undefined contents. False: answer says that the GPU has no memory for `what`. */
extern bool plcuda_reserve_block(plcuda_device_block *b, uint64_t bytes, const char *what,
								 plcuda_message *answer);
/* Of zeros. */
extern bool
plcuda_clear_block(plcuda_device_block *b, uint64_t bytes, const char *what, plcuda_message *answer);

/* params: the kernel's only parameter. */
extern bool
plcuda_launch(plcuda_entry entry, const plcuda_kernel *k, const void *params, plcuda_message *answer);
/* The rest of what out says of a device. */
extern bool plcuda_ask_device(int32_t ordinal, plcuda_gpu_info *out, plcuda_message *answer);
extern bool plcuda_ask_kernel(plcuda_entry entry, const plcuda_gpu_info *gpu,
							  plcuda_kernel_info *out, plcuda_message *answer);
/* Waits for what was launched. False: a kernel has faulted, and the worker is lost. */
extern bool plcuda_synchronize(plcuda_message *answer);

#endif
