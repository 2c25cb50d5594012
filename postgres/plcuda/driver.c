/* See driver.h. */
#include "postgres/plcuda/driver.h"

#include <string.h>
#include <unistd.h>

#define BLOCK_THREADS  256 /* of a kernel that does not say */
#define ALLOC_TRIES	   20
#define ALLOC_PAUSE_US 50000
/* Of the driver's interface. */
#define MAX_THREADS		 0	/* CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK */
#define STATIC_SHARED	 1	/* CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES */
#define CONSTANT		 2	/* CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES */
#define LOCAL			 3	/* CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
#define REGISTERS		 4	/* CU_FUNC_ATTRIBUTE_NUM_REGS */
#define MAX_SHARED		 8	/* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
#define MAX_CONSTANT	 9	/* CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY */
#define MAX_REGISTERS	 12 /* CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK */
#define MAX_SHARED_OPTIN 97 /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
#define INVALID_VALUE	 1
#define OUT_OF_RESOURCES 701

plcuda_driver plcuda_cu;

bool
plcuda_check(int result, const char *call, plcuda_message *answer)
{
	if (result != 0)
		plcuda_answer_status(answer, gvm_driver_error(result, call, "it failed"), call);
	return result == 0;
}

bool
plcuda_find_calls(plcuda_message *answer)
{
	const struct
	{
		const char *name;
		void	   *call;
	} calls[] = {
		{"cuModuleLoadData", &plcuda_cu.module_load},
		{"cuModuleUnload", &plcuda_cu.module_unload},
		{"cuModuleGetFunction", &plcuda_cu.function_get},
		{"cuFuncGetAttribute", &plcuda_cu.function_attribute},
		{"cuDeviceGetAttribute", &plcuda_cu.device_attribute},
		{"cuFuncSetAttribute", &plcuda_cu.function_set},
		{"cuLaunchKernel", &plcuda_cu.launch},
		{"cuStreamSynchronize", &plcuda_cu.synchronize},
		{"cuMemAlloc_v2", &plcuda_cu.alloc},
		{"cuMemFree_v2", &plcuda_cu.free},
		{"cuMemcpyHtoD_v2", &plcuda_cu.copy_in},
		{"cuMemcpyDtoH_v2", &plcuda_cu.copy_out},
		{"cuMemsetD8_v2", &plcuda_cu.clear},
	};
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
	{
		void (*found)(void);
		const gvm_status status = gvm_driver_get_call(calls[i].name, &found);

		if (status != GVM_OK)
		{
			plcuda_answer_status(answer, status, calls[i].name);
			return false;
		}
		memcpy(calls[i].call, &found, sizeof found);
	}
	return true;
}

/* ---- blocks */

void
plcuda_release_block(plcuda_device_block *b)
{
	if (b->bytes > 0)
	{
		/* The driver may give it to this process again as it is. */
		(void) plcuda_cu.clear(b->address, 0, b->bytes);
		(void) plcuda_cu.free(b->address);
	}
	*b = (plcuda_device_block){0, 0};
}

bool
plcuda_reserve_block(plcuda_device_block *b, uint64_t bytes, const char *what, plcuda_message *answer)
{
	bool failed;

	if (b->bytes >= bytes)
		return true;
	plcuda_release_block(b);
	/* What a process that was killed has had is free a moment later. */
	for (int tries = 0; (failed = plcuda_cu.alloc(&b->address, bytes) != 0) && tries < ALLOC_TRIES;
		 tries++)
		usleep(ALLOC_PAUSE_US);
	if (failed)
	{
		plcuda_answer_error(answer, "53200", "the GPU has no %llu bytes for %s",
							(unsigned long long) bytes, what);
		return false;
	}
	b->bytes = bytes;
	return true;
}

bool
plcuda_clear_block(plcuda_device_block *b, uint64_t bytes, const char *what, plcuda_message *answer)
{
	return bytes == 0 ||
		(plcuda_reserve_block(b, bytes, what, answer) &&
		 plcuda_check(plcuda_cu.clear(b->address, 0, bytes), "cuMemsetD8", answer));
}

/* ---- launches */

bool
plcuda_launch(plcuda_entry entry, const plcuda_kernel *k, const void *params, plcuda_message *answer)
{
	void	*arguments[] = {(void *) (uintptr_t) params};
	int		 most, result;
	uint64_t threads, blocks, shared;

	if (!plcuda_check(plcuda_cu.function_attribute(&most, MAX_THREADS, entry), "cuFuncGetAttribute",
					  answer))
		return false;
	threads = k->block_threads > 0 ? k->block_threads : BLOCK_THREADS;
	if (threads > (uint64_t) most)
		threads = (uint64_t) most;
	if (k->threads < threads)
		threads = k->threads; /* one block of exactly so many */
	blocks = (k->threads + threads - 1) / threads;
	shared = k->shared_block_bytes + k->shared_thread_bytes * threads;
	if (blocks > INT32_MAX || shared > INT32_MAX)
	{
		plcuda_answer_error(answer, "22023",
							"a kernel of %llu threads and %llu bytes of shared memory is too large",
							(unsigned long long) k->threads, (unsigned long long) shared);
		return false;
	}
	/* More than 48 KiB must be asked for; where there is not so much the launch says so. */
	if (shared > 48 * 1024)
		(void) plcuda_cu.function_set(entry, MAX_SHARED, (int) shared);
	result = plcuda_cu.launch(entry, (unsigned) blocks, 1, 1, (unsigned) threads, 1, 1,
							  (unsigned) shared, NULL, arguments, NULL);
	if (result != INVALID_VALUE && result != OUT_OF_RESOURCES)
		return plcuda_check(result, "cuLaunchKernel", answer);
	plcuda_answer_error(answer, "22023",
						"the GPU has no room for a block of %llu threads with %llu bytes of shared memory",
						(unsigned long long) threads, (unsigned long long) shared);
	return false;
}

bool
plcuda_synchronize(plcuda_message *answer)
{
	const int result = plcuda_cu.synchronize(NULL);
	gvm_error error;

	if (result == 0)
		return true;
	(void) gvm_driver_error(result, "cuStreamSynchronize", "it failed");
	gvm_error_last(&error);
	plcuda_answer_error(answer, "38000", "the function has broken its GPU context: %s",
						error.native_name);
	answer->lost = 1;
	return false;
}

/* ---- questions */

typedef struct question
{
	int		 which; /* as the driver numbers attributes */
	int32_t *answer;
} question;

bool
plcuda_ask_device(int32_t ordinal, plcuda_gpu_info *out, plcuda_message *answer)
{
	const question questions[] = {{MAX_CONSTANT, &out->constant},
								  {MAX_REGISTERS, &out->block_registers},
								  {MAX_SHARED_OPTIN, &out->block_shared}};

	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
		if (!plcuda_check(plcuda_cu.device_attribute(questions[i].answer, questions[i].which, ordinal),
						  "cuDeviceGetAttribute", answer))
			return false;
	return true;
}

bool
plcuda_ask_kernel(plcuda_entry entry, const plcuda_gpu_info *gpu, plcuda_kernel_info *out,
				  plcuda_message *answer)
{
	const question questions[] = {{MAX_THREADS, &out->block_threads},
								  {STATIC_SHARED, &out->static_shared},
								  {CONSTANT, &out->constant},
								  {LOCAL, &out->local},
								  {REGISTERS, &out->registers}};

	for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
		if (!plcuda_check(plcuda_cu.function_attribute(questions[i].answer, questions[i].which, entry),
						  "cuFuncGetAttribute", answer))
			return false;
	out->dynamic_shared = gpu->block_shared - out->static_shared;
	return true;
}
