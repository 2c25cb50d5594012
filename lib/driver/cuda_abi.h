/* driver/cuda_abi.h - the part of the CUDA driver's binary interface that the project uses, in our
 * own words.
 *
 * Building needs no CUDA toolkit because of this file: types, constants and struct layouts of the
 * CUDA driver API 13.0, under NVIDIA's names, so that code reads like any CUDA program. Only what
 * the calls of driver/calls.h need is here.
 *
 * The constants and layouts are in X-macro tables. driver/abi_check.c includes the real <cuda.h>,
 * where one is found, and asserts every row of those tables, and every signature of driver/calls.h,
 * against it at compile time.
 *
 * Never include this file and <cuda.h> in one translation unit (abi_check.c defines
 * GVMI_ABI_TABLES_ONLY to get the tables alone).
 */
#ifndef GVMI_DRIVER_CUDA_ABI_H
#define GVMI_DRIVER_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */

/* X(name, value, text): what a call can answer. The text is ours; the real driver has its own
 * (cuGetErrorString). */
#define GVMI_CUDA_RESULTS(X) \
    X(CUDA_SUCCESS, 0, "no error") \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument") \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory") \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "cuInit has not been called") \
    X(CUDA_ERROR_DEINITIALIZED, 4, "driver is shutting down") \
    X(CUDA_ERROR_STUB_LIBRARY, 34, "the library loaded is a stub, not a driver") \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46, "device is busy or unavailable") \
    X(CUDA_ERROR_NO_DEVICE, 100, "no device is present") \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal") \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "device code image is invalid") \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context") \
    X(CUDA_ERROR_MAP_FAILED, 205, "mapping failed") \
    X(CUDA_ERROR_UNMAP_FAILED, 206, "unmapping failed") \
    X(CUDA_ERROR_ALREADY_MAPPED, 208, "resource is mapped already") \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "image holds no code for this device") \
    X(CUDA_ERROR_NOT_MAPPED, 211, "resource is not mapped") \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214, "uncorrectable memory error") \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access is not supported between the devices") \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220, "uncorrectable link error") \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, 224, "a share of the device's SMs is not supported") \
    X(CUDA_ERROR_CONTAINED, 226, "an error was contained on the device") \
    X(CUDA_ERROR_FILE_NOT_FOUND, 301, "file not found") \
    X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302, "symbol not found in a shared object") \
    X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, 303, "shared object failed to load") \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304, "operating system call failed") \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle") \
    X(CUDA_ERROR_ILLEGAL_STATE, 401, "operation does not fit the state of the resource") \
    X(CUDA_ERROR_NOT_FOUND, 500, "symbol not found") \
    X(CUDA_ERROR_NOT_READY, 600, "work has not finished") \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel touched memory that is not mapped for it") \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701, "launch needs more resources than the device has") \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "kernel ran too long") \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is enabled already") \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access is not enabled") \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed") \
    X(CUDA_ERROR_ASSERT, 710, "a kernel's assertion failed") \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "host memory is registered already") \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "host memory is not registered") \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714, "a kernel's call stack is corrupt or too deep") \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715, "a kernel executed an illegal instruction") \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716, "a kernel used a misaligned address") \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717, "a kernel used an address of the wrong kind of memory") \
    X(CUDA_ERROR_INVALID_PC, 718, "a kernel's program counter left its code") \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed while it ran") \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720, "cooperative launch is larger than the device holds at once") \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721, "a kernel left tensor memory allocated") \
    X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted") \
    X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported") \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802, "system is not ready") \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "driver library and kernel module do not match") \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810, "the MPS server ended this client") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation is not permitted while a stream is captured into a graph") \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "an earlier error has made the capture invalid") \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902, "two captures would become one") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903, "the capture did not begin in this stream") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904, "the capture has work of a stream that did not come back to its first one") \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905, "captured work would wait for work outside the capture") \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906, "the legacy stream waits for a stream that is captured into a graph") \
    X(CUDA_ERROR_CAPTURED_EVENT, 907, "the event was recorded in a capture") \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, "the capture began in another thread") \
    X(CUDA_ERROR_TIMEOUT, 909, "timed out") \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910, "the executable graph cannot be updated so") \
    X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

/* X(type, name, value): the other constants, each with its enum. */
#define GVMI_CUDA_CONSTANTS(X) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 11) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 14) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 19) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 78) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 86) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 106) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134) \
    X(CUdevice_attribute, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 141) \
    X(CUdevice_P2PAttribute, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1) \
    X(CUdevice_P2PAttribute, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2) \
    X(CUdevice_P2PAttribute, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3) \
    X(CUdevice_P2PAttribute, CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED, 4) \
    X(CUctx_flags, CU_CTX_SCHED_AUTO, 0) \
    X(CUctx_flags, CU_CTX_SCHED_SPIN, 1) \
    X(CUctx_flags, CU_CTX_SCHED_YIELD, 2) \
    X(CUctx_flags, CU_CTX_SCHED_BLOCKING_SYNC, 4) \
    X(CUctx_flags, CU_CTX_SCHED_MASK, 7) \
    X(CUctx_flags, CU_CTX_MAP_HOST, 8) \
    X(CUctx_flags, CU_CTX_LMEM_RESIZE_TO_MAX, 16) \
    X(CUctx_flags, CU_CTX_SYNC_MEMOPS, 128) \
    X(CUctx_flags, CU_CTX_FLAGS_MASK, 255) \
    X(CUstreamCaptureStatus, CU_STREAM_CAPTURE_STATUS_NONE, 0) \
    X(CUstreamCaptureStatus, CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) \
    X(CUstreamCaptureStatus, CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2) \
    X(CUstreamCaptureMode, CU_STREAM_CAPTURE_MODE_GLOBAL, 0) \
    X(CUstreamCaptureMode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) \
    X(CUstreamCaptureMode, CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_KERNEL, 0) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_MEMCPY, 1) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_MEMSET, 2) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_HOST, 3) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_EMPTY, 5) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_WAIT_EVENT, 6) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_EVENT_RECORD, 7) \
    X(CUgraphNodeType, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, 12) \
    X(CUgraphInstantiate_flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, 1) \
    X(CUgraphInstantiate_flags, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, 2) \
    X(CUgraphInstantiate_flags, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, 4) \
    X(CUgraphInstantiate_flags, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, 8) \
    X(CUgraphInstantiateResult, CUDA_GRAPH_INSTANTIATE_SUCCESS, 0) \
    X(CUgraphInstantiateResult, CUDA_GRAPH_INSTANTIATE_ERROR, 1) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_SUCCESS, 0) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR, 1) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 2) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, 3) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, 5) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, 7) \
    X(CUgraphExecUpdateResult, CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, 8) \
    X(CUmemLocationType, CU_MEM_LOCATION_TYPE_INVALID, 0) \
    X(CUmemLocationType, CU_MEM_LOCATION_TYPE_DEVICE, 1) \
    X(CUmemLocationType, CU_MEM_LOCATION_TYPE_HOST, 2) \
    X(CUmemLocationType, CU_MEM_LOCATION_TYPE_HOST_NUMA, 3) \
    X(CUmemLocationType, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 4) \
    X(CUmemAllocationType, CU_MEM_ALLOCATION_TYPE_INVALID, 0) \
    X(CUmemAllocationType, CU_MEM_ALLOCATION_TYPE_PINNED, 1) \
    X(CUmemAllocationType, CU_MEM_ALLOCATION_TYPE_MANAGED, 2) \
    X(CUmemAllocationHandleType, CU_MEM_HANDLE_TYPE_NONE, 0) \
    X(CUmemAllocationHandleType, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1) \
    X(CUmemAllocationHandleType, CU_MEM_HANDLE_TYPE_WIN32, 2) \
    X(CUmemAllocationHandleType, CU_MEM_HANDLE_TYPE_FABRIC, 8) \
    X(CUmemAccess_flags, CU_MEM_ACCESS_FLAGS_PROT_NONE, 0) \
    X(CUmemAccess_flags, CU_MEM_ACCESS_FLAGS_PROT_READ, 1) \
    X(CUmemAccess_flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
    X(CUmemAllocationGranularity_flags, CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) \
    X(CUmemAllocationGranularity_flags, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 6) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7) \
    X(CUmemPool_attribute, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_CONTEXT, 1) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_HOST_POINTER, 4) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_BUFFER_ID, 7) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12) \
    X(CUpointer_attribute, CU_POINTER_ATTRIBUTE_MAPPED, 13) \
    X(CUmemorytype, CU_MEMORYTYPE_HOST, 1) \
    X(CUmemorytype, CU_MEMORYTYPE_DEVICE, 2) \
    X(CUmemorytype, CU_MEMORYTYPE_ARRAY, 3) \
    X(CUmemorytype, CU_MEMORYTYPE_UNIFIED, 4) \
    X(CUfunction_attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0) \
    X(CUfunction_attribute, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1) \
    X(CUfunction_attribute, CU_FUNC_ATTRIBUTE_NUM_REGS, 4) \
    X(CUfunction_attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) \
    X(CUjit_option, CU_JIT_MAX_REGISTERS, 0) \
    X(CUjit_option, CU_JIT_WALL_TIME, 2) \
    X(CUjit_option, CU_JIT_INFO_LOG_BUFFER, 3) \
    X(CUjit_option, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 4) \
    X(CUjit_option, CU_JIT_ERROR_LOG_BUFFER, 5) \
    X(CUjit_option, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6) \
    X(CUjit_option, CU_JIT_OPTIMIZATION_LEVEL, 7) \
    X(CUjit_option, CU_JIT_LOG_VERBOSE, 12) \
    X(CUlaunchAttributeID, CU_LAUNCH_ATTRIBUTE_IGNORE, 0) \
    X(CUlaunchAttributeID, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2) \
    X(CUlaunchAttributeID, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 4) \
    X(CUstream_flags, CU_STREAM_DEFAULT, 0) \
    X(CUstream_flags, CU_STREAM_NON_BLOCKING, 1) \
    X(CUevent_flags, CU_EVENT_DEFAULT, 0) \
    X(CUevent_flags, CU_EVENT_BLOCKING_SYNC, 1) \
    X(CUevent_flags, CU_EVENT_DISABLE_TIMING, 2) \
    X(CUevent_record_flags, CU_EVENT_RECORD_DEFAULT, 0) \
    X(CUevent_record_flags, CU_EVENT_RECORD_EXTERNAL, 1) \
    X(CUevent_wait_flags, CU_EVENT_WAIT_DEFAULT, 0) \
    X(CUevent_wait_flags, CU_EVENT_WAIT_EXTERNAL, 1) \
    X(CUstreamWaitValue_flags, CU_STREAM_WAIT_VALUE_GEQ, 0) \
    X(CUstreamWaitValue_flags, CU_STREAM_WAIT_VALUE_EQ, 1) \
    X(CUstreamWaitValue_flags, CU_STREAM_WAIT_VALUE_AND, 2) \
    X(CUstreamWaitValue_flags, CU_STREAM_WAIT_VALUE_NOR, 3) \
    X(CUstreamWriteValue_flags, CU_STREAM_WRITE_VALUE_DEFAULT, 0) \
    X(CUipcMem_flags, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1) \
    X(CUmemcpySrcAccessOrder, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 1) \
    X(CUmemcpySrcAccessOrder, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, 2) \
    X(CUmemcpySrcAccessOrder, CU_MEMCPY_SRC_ACCESS_ORDER_ANY, 3) \
    X(CUmemcpyFlags, CU_MEMCPY_FLAG_DEFAULT, 0) \
    X(CUmemcpyFlags, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE, 1) \
    X(CUmemAttach_flags, CU_MEM_ATTACH_GLOBAL, 1)

/* X(name, value): constants that cuda.h has as macros. */
#define GVMI_CUDA_MACROS(X) \
    X(CU_IPC_HANDLE_SIZE, 64) \
    X(CU_MEMHOSTALLOC_PORTABLE, 1) \
    X(CU_MEMHOSTALLOC_DEVICEMAP, 2) \
    X(CU_MEMHOSTALLOC_WRITECOMBINED, 4) \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1) \
    X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)

/* X(type, bytes) and X(type, member, byte offset): layouts. */
#define GVMI_CUDA_SIZES(X) \
    X(CUdevice, 4) X(CUdeviceptr, 8) X(CUcontext, 8) X(CUstream, 8) X(CUmemGenericAllocationHandle, 8) \
    X(CUresult, 4) X(CUuuid, 16) X(CUipcMemHandle, 64) X(CUmemLocation, 8) X(CUmemAccessDesc, 12) \
    X(CUmemAllocationProp, 32) X(CUmemcpyAttributes, 24) X(CUmemPoolProps, 88) \
    X(CUctxCreateParams, 24) X(CUDA_MEMCPY2D, 128) \
    X(CUgraph, 8) X(CUgraphNode, 8) X(CUgraphExec, 8) X(CUgraphEdgeData, 8) X(CUDA_KERNEL_NODE_PARAMS, 72) \
    X(CUDA_MEMCPY3D, 200) X(CUDA_MEMSET_NODE_PARAMS, 40) X(CUDA_HOST_NODE_PARAMS, 16) \
    X(CUDA_GRAPH_INSTANTIATE_PARAMS, 32) X(CUgraphExecUpdateResultInfo, 24) \
    X(CUlaunchAttributeValue, 64) X(CUlaunchAttribute, 72) X(CUlaunchConfig, 56)
#define GVMI_CUDA_OFFSETS(X) \
    X(CUmemLocation, type, 0) X(CUmemLocation, id, 4) \
    X(CUmemAccessDesc, location, 0) X(CUmemAccessDesc, flags, 8) \
    X(CUmemAllocationProp, type, 0) X(CUmemAllocationProp, requestedHandleTypes, 4) X(CUmemAllocationProp, location, 8) \
    X(CUmemAllocationProp, win32HandleMetaData, 16) X(CUmemAllocationProp, allocFlags, 24) \
    X(CUmemcpyAttributes, srcAccessOrder, 0) X(CUmemcpyAttributes, srcLocHint, 4) \
    X(CUmemcpyAttributes, dstLocHint, 12) X(CUmemcpyAttributes, flags, 20) \
    X(CUmemPoolProps, allocType, 0) X(CUmemPoolProps, handleTypes, 4) X(CUmemPoolProps, location, 8) \
    X(CUmemPoolProps, maxSize, 24) X(CUmemPoolProps, usage, 32) \
    X(CUctxCreateParams, numExecAffinityParams, 8) X(CUctxCreateParams, cigParams, 16) \
    X(CUDA_MEMCPY2D, srcMemoryType, 16) X(CUDA_MEMCPY2D, srcHost, 24) X(CUDA_MEMCPY2D, srcDevice, 32) \
    X(CUDA_MEMCPY2D, srcPitch, 48) X(CUDA_MEMCPY2D, dstXInBytes, 56) X(CUDA_MEMCPY2D, dstMemoryType, 72) \
    X(CUDA_MEMCPY2D, dstHost, 80) X(CUDA_MEMCPY2D, dstDevice, 88) X(CUDA_MEMCPY2D, dstPitch, 104) \
    X(CUDA_MEMCPY2D, WidthInBytes, 112) X(CUDA_MEMCPY2D, Height, 120) \
    X(CUgraphEdgeData, from_port, 0) X(CUgraphEdgeData, to_port, 1) X(CUgraphEdgeData, type, 2) \
    X(CUDA_KERNEL_NODE_PARAMS, func, 0) X(CUDA_KERNEL_NODE_PARAMS, gridDimX, 8) \
    X(CUDA_KERNEL_NODE_PARAMS, blockDimX, 20) X(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes, 32) \
    X(CUDA_KERNEL_NODE_PARAMS, kernelParams, 40) X(CUDA_KERNEL_NODE_PARAMS, extra, 48) \
    X(CUDA_KERNEL_NODE_PARAMS, kern, 56) X(CUDA_KERNEL_NODE_PARAMS, ctx, 64) \
    X(CUDA_MEMCPY3D, srcXInBytes, 0) X(CUDA_MEMCPY3D, srcY, 8) X(CUDA_MEMCPY3D, srcZ, 16) \
    X(CUDA_MEMCPY3D, srcMemoryType, 32) X(CUDA_MEMCPY3D, srcHost, 40) X(CUDA_MEMCPY3D, srcDevice, 48) \
    X(CUDA_MEMCPY3D, srcPitch, 72) X(CUDA_MEMCPY3D, srcHeight, 80) X(CUDA_MEMCPY3D, dstXInBytes, 88) \
    X(CUDA_MEMCPY3D, dstY, 96) X(CUDA_MEMCPY3D, dstZ, 104) X(CUDA_MEMCPY3D, dstMemoryType, 120) \
    X(CUDA_MEMCPY3D, dstHost, 128) X(CUDA_MEMCPY3D, dstDevice, 136) X(CUDA_MEMCPY3D, dstPitch, 160) \
    X(CUDA_MEMCPY3D, dstHeight, 168) X(CUDA_MEMCPY3D, WidthInBytes, 176) X(CUDA_MEMCPY3D, Height, 184) \
    X(CUDA_MEMCPY3D, Depth, 192) \
    X(CUDA_MEMSET_NODE_PARAMS, pitch, 8) X(CUDA_MEMSET_NODE_PARAMS, value, 16) \
    X(CUDA_MEMSET_NODE_PARAMS, elementSize, 20) X(CUDA_MEMSET_NODE_PARAMS, width, 24) \
    X(CUDA_MEMSET_NODE_PARAMS, height, 32) X(CUDA_HOST_NODE_PARAMS, userData, 8) \
    X(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream, 8) X(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out, 16) \
    X(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out, 24) \
    X(CUgraphExecUpdateResultInfo, errorNode, 8) X(CUgraphExecUpdateResultInfo, errorFromNode, 16) \
    X(CUlaunchAttributeValue, cooperative, 0) X(CUlaunchAttribute, value, 8) \
    X(CUlaunchConfig, gridDimX, 0) X(CUlaunchConfig, blockDimX, 12) X(CUlaunchConfig, sharedMemBytes, 24) \
    X(CUlaunchConfig, hStream, 32) X(CUlaunchConfig, attrs, 40) X(CUlaunchConfig, numAttrs, 48)

/* clang-format on */

#ifndef GVMI_ABI_TABLES_ONLY

#define GVMI_ENUMERATOR(name, value, text) name = value,
typedef enum cudaError_enum { GVMI_CUDA_RESULTS(GVMI_ENUMERATOR) } CUresult;
#undef GVMI_ENUMERATOR

/* The remaining constants are plain ints; each enum type is an int of its own name. What the driver
 * passes on one side and code here compares on the other is then never narrowed to the enumerators
 * that this file happens to list. */
#define GVMI_ENUMERATOR(type, name, value) name = value,
enum gvmi_cuda_constant { GVMI_CUDA_CONSTANTS(GVMI_ENUMERATOR) };
#undef GVMI_ENUMERATOR
#define GVMI_ENUMERATOR(name, value) name = value,
enum gvmi_cuda_macro { GVMI_CUDA_MACROS(GVMI_ENUMERATOR) };
#undef GVMI_ENUMERATOR

typedef int CUdevice_attribute;
typedef int CUdevice_P2PAttribute;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef int CUmemLocationType;
typedef int CUmemAllocationType;
typedef int CUmemAllocationHandleType;
typedef int CUmemAccess_flags;
typedef int CUmemAllocationGranularity_flags;
typedef int CUpointer_attribute;
typedef int CUmemPool_attribute;
typedef int CUmemorytype;
typedef int CUfunction_attribute;
typedef int CUjit_option;
typedef int CUlaunchAttributeID;
typedef int CUmemcpySrcAccessOrder;
typedef int CUgraphNodeType;
typedef int CUgraphInstantiateResult;
typedef int CUgraphExecUpdateResult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCigParam_st CUctxCigParam;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef void (*CUhostFn)(void *data);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_LAUNCH_PARAM_END ((void *)0x0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x2)

typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;

typedef struct CUipcMemHandle_st {
    char reserved[64];
} CUipcMemHandle;

typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;
} CUmemLocation;

typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemcpyAttributes_st {
    CUmemcpySrcAccessOrder srcAccessOrder;
    CUmemLocation srcLocHint;
    CUmemLocation dstLocHint;
    unsigned int flags;
} CUmemcpyAttributes;

typedef struct CUmemPoolProps_st {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUctxCreateParams_st {
    CUexecAffinityParam *execAffinityParams;
    int numExecAffinityParams;
    CUctxCigParam *cigParams;
} CUctxCreateParams;

typedef struct CUDA_MEMCPY2D_st {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUgraphEdgeData_st {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} CUgraphEdgeData;

typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
    CUfunction func;
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMCPY3D_st {
    size_t srcXInBytes;
    size_t srcY;
    size_t srcZ;
    size_t srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch;
    size_t srcHeight;
    size_t dstXInBytes;
    size_t dstY;
    size_t dstZ;
    size_t dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch;
    size_t dstHeight;
    size_t WidthInBytes;
    size_t Height;
    size_t Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
    CUdeviceptr dst;
    size_t pitch;
    unsigned int value;
    unsigned int elementSize;
    size_t width;
    size_t height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_HOST_NODE_PARAMS_st {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
    cuuint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct CUgraphExecUpdateResultInfo_st {
    CUgraphExecUpdateResult result;
    CUgraphNode errorNode;
    CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef union CUlaunchAttributeValue_union {
    char pad[64];
    int cooperative;
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute_st {
    CUlaunchAttributeID id;
    char pad[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
    unsigned int gridDimX, gridDimY, gridDimZ;
    unsigned int blockDimX, blockDimY, blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

#ifdef __cplusplus
#define GVMI_STATIC_ASSERT static_assert
#else
#define GVMI_STATIC_ASSERT _Static_assert
#endif
#define GVMI_ASSERT_SIZE(type, bytes) GVMI_STATIC_ASSERT(sizeof(type) == (bytes), "size of " #type);
#define GVMI_ASSERT_OFFSET(type, member, bytes) \
    GVMI_STATIC_ASSERT(offsetof(type, member) == (bytes), "offset of " #type "." #member);
GVMI_CUDA_SIZES(GVMI_ASSERT_SIZE)
GVMI_CUDA_OFFSETS(GVMI_ASSERT_OFFSET)
#undef GVMI_ASSERT_SIZE
#undef GVMI_ASSERT_OFFSET

#endif /* GVMI_ABI_TABLES_ONLY */
#endif
