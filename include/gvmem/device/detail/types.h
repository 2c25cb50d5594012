/* gvmem/device/detail/types.h - types of fixed width, for device code too.
 *
 * NVRTC has no standard headers. It is given the types here that <cuda/std/cstdint> declares for it, so that a program may
 * include that as well.
 */
#ifndef GVMEM_DEVICE_DETAIL_TYPES_H
#define GVMEM_DEVICE_DETAIL_TYPES_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

#endif
