/* See cuda.h. */
#include "postgres/cuda.h"

#include <string.h>

gstore_cuda gstore_cu;

static gvm_status
find_call(const char *name, void *call)
{
	void (*found)(void);
	gvm_status status = gvm_driver_get_call(name, &found);

	if (status == GVM_OK)
		memcpy(call, &found, sizeof found);
	return status;
}

gvm_status
gstore_cuda_load(void)
{
	const struct
	{
		const char *name;
		void	   *call;
	} calls[] = {
		{"cuMemcpyHtoDAsync_v2", &gstore_cu.cuMemcpyHtoDAsync},
		{"cuMemcpyDtoHAsync_v2", &gstore_cu.cuMemcpyDtoHAsync},
		{"cuMemcpyDtoDAsync_v2", &gstore_cu.cuMemcpyDtoDAsync},
		{"cuMemsetD8Async", &gstore_cu.cuMemsetD8Async},
		{"cuMemGetAddressRange_v2", &gstore_cu.cuMemGetAddressRange},
		{"cuMemHostRegister_v2", &gstore_cu.cuMemHostRegister},
		{"cuMemHostUnregister", &gstore_cu.cuMemHostUnregister},
		{"cuStreamCreate", &gstore_cu.cuStreamCreate},
		{"cuStreamSynchronize", &gstore_cu.cuStreamSynchronize},
		{"cuStreamDestroy_v2", &gstore_cu.cuStreamDestroy},
	};
	gvm_status status = GVM_OK;

	for (size_t i = 0; i < sizeof calls / sizeof calls[0] && status == GVM_OK; i++)
		status = find_call(calls[i].name, calls[i].call);
	return status;
}
