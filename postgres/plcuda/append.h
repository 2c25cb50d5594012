/*
 * postgres/plcuda/append.h - memory that a kernel takes while it runs. Included where a function appends, before its text.
 *
 * A claim is published at once, before it is written: what kernels append is read only when all of them have ended. docs/plcuda.md describes each function.
 */
#ifndef PLCUDA_APPEND_H
#define PLCUDA_APPEND_H

#include <gvmem/device/appender.h>

#include "device.h"

/* False: there is no more, which is an error of the call. */
GVM_DEVICE int
plcuda_publish(const plcuda_call *call, uint32_t answer, const gvm_append_place *place)
{
	if (answer == GVM_APPEND_OK)
		gvm_append_publish(call->append, place->amount);
	else
		plcuda_raise_in(call->state, PLCUDA_FULL, "");
	return answer == GVM_APPEND_OK;
}

/* The thread's own bytes, of undefined contents, aligned to 16. 0 (NULL): there are no more, which is an error. */
GVM_DEVICE_RARE char *
plcuda_append_bytes(const plcuda_call *call, uint64_t bytes)
{
	gvm_append_place place;
	const uint32_t	 answer = gvm_append_claim(call->append, 0, bytes, 16, &place);

	return plcuda_publish(call, answer, &place) ? (char *) place.bytes : 0;
}

#endif
