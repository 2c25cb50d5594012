/* What programs of others are linked with, as -lcuda: a library of the driver's name whose calls all fail. CUDA's toolkit
 * has one like it; the driver itself is found when the program starts. */
#include "driver/calls.h"
#include "driver/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define STUB(name, symbol, since, need, params, args) \
    __attribute__((visibility("default"))) CUresult symbol params; \
    CUresult symbol params \
    { \
        return CUDA_ERROR_STUB_LIBRARY; \
    }
GVMI_CUDA_CALLS(STUB)
#undef STUB
