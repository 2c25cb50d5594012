/* Holds driver/cuda_abi.h and driver/calls.h against the real <cuda.h>, at compile time.
 *
 * Compiled only where meson finds a CUDA 13 toolkit; there is nothing to run. A row that disagrees
 * with NVIDIA's header stops the build. The names in the tables are macros in cuda.h (cuMemAlloc ->
 * cuMemAlloc_v2), so a row's signature is checked against the entry point that programs built today
 * call. */
#include <cuda.h>

#include <stddef.h>

#define GVMI_ABI_TABLES_ONLY
#include "driver/calls.h"
#include "driver/cuda_abi.h"

#if CUDA_VERSION >= 13000

#define CHECK_RESULT(name, value, text) _Static_assert((int)name == (value), #name);
GVMI_CUDA_RESULTS(CHECK_RESULT)

#define CHECK_CONSTANT(type, name, value) _Static_assert((int)(type)name == (value), #name);
GVMI_CUDA_CONSTANTS(CHECK_CONSTANT)

#define CHECK_MACRO(name, value) _Static_assert(name == (value), #name);
GVMI_CUDA_MACROS(CHECK_MACRO)

#define CHECK_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type);
GVMI_CUDA_SIZES(CHECK_SIZE)

#define CHECK_OFFSET(type, member, bytes) \
    _Static_assert(offsetof(type, member) == (bytes), #type "." #member);
GVMI_CUDA_OFFSETS(CHECK_OFFSET)

/* Entry points of older versions that cuda.h keeps for programs built then, and that those of CUDA 12 call. */
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *affinities, int count,
                        unsigned int flags, CUdevice dev);

/* cuEventElapsedTime: 13.0 renames it to a _v2 with the same signature. gvmem calls the entry point that old drivers have
 * too; programs that were built with that header call the other one of the software GPU. */
#define CHECK_SIGNATURE(name, symbol, since, need, params, args) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) params), #name);
GVMI_CUDA_CALLS(CHECK_SIGNATURE)

#endif
