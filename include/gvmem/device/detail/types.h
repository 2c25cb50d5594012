/* gvmem/device/detail/types.h - types of fixed width, for device code too.
 *
 * NVRTC has no standard headers. What it is given here are the types that the headers of CUDA programs declare for it, so
 * that a program may declare them as well.
 */
#ifndef GVMEM_DEVICE_DETAIL_TYPES_H
#define GVMEM_DEVICE_DETAIL_TYPES_H

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long uintptr_t;
#define UINT32_MAX 0xffffffffu
#define UINT64_MAX 0xffffffffffffffffull
#else
#include <stddef.h>
#include <stdint.h>
#endif

#endif
