/* base/address.h - device addresses at the border of the library.
 *
 * Programs have them as pointers, which they pass to kernels and to calls as malloc's result; inside they are numbers, as
 * the driver's CUdeviceptr is.
 */
#ifndef GVMI_BASE_ADDRESS_H
#define GVMI_BASE_ADDRESS_H

#include <stdint.h>

static inline uint64_t gvmi_address(const void *pointer)
{
    return (uintptr_t)pointer;
}

static inline void *gvmi_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
