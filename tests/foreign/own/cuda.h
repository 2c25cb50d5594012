/* cuda.h - in place of NVIDIA's, where there is none: what the programs of this folder use of it.
 *
 * The types and entry points are the project's own description of the driver (driver/cuda_abi.h, driver/calls.h), under
 * the names that NVIDIA's header gives to programs. Where that header is found, the programs are built with it as well.
 */
#ifndef FOREIGN_OWN_CUDA_H
#define FOREIGN_OWN_CUDA_H

#include "driver/calls.h"
#include "driver/cuda_abi.h"

#define CUDA_VERSION 13000

#define DECLARE(name, symbol, since, need, params, args) CUresult symbol params;
GVMI_CUDA_CALLS(DECLARE)
#undef DECLARE

#define cuCtxCreate cuCtxCreate_v4
#define cuCtxDestroy cuCtxDestroy_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2
#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuEventElapsedTime cuEventElapsedTime_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuMemFree cuMemFree_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemcpy2D cuMemcpy2D_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuMemsetD32 cuMemsetD32_v2

#endif
