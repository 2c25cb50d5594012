/* driver/calls.h - every CUDA driver call the project makes, in one table.
 *
 * X(name, symbol, since, need, params, args)
 *   name    the call as NVIDIA documents it, and the member of gvmi_driver
 *   symbol  the entry point libcuda.so.1 exports for the signature given here
 *   since   first driver version (as cuDriverGetVersion counts: 12080 is 12.8) that exports that
 *           symbol
 *   need    REQUIRED: a driver without it is refused; OPTIONAL: the member then
 *           returns CUDA_ERROR_NOT_SUPPORTED
 *   params  parameter list with NVIDIA's types;  args  the same names, to pass them on
 *
 * The loader, the decorators (trace, fault, check), the software GPU's export list and the check
 * against the real cuda.h are all made from this table. Order: the life of a program (start,
 * device, context, memory, copy, stream, graph, module). Every call returns CUresult. Adding a call is
 * adding a row.
 */
#ifndef GVMI_DRIVER_CALLS_H
#define GVMI_DRIVER_CALLS_H

/* clang-format off */
#define GVMI_CUDA_CALLS(X) \
    /* start, errors */ \
    X(cuInit, cuInit, 2000, REQUIRED, (unsigned int flags), (flags)) \
    X(cuDriverGetVersion, cuDriverGetVersion, 2020, REQUIRED, (int *version), (version)) \
    X(cuGetErrorName, cuGetErrorName, 6000, REQUIRED, (CUresult error, const char **text), (error, text)) \
    X(cuGetErrorString, cuGetErrorString, 6000, REQUIRED, (CUresult error, const char **text), (error, text)) \
    /* devices */ \
    X(cuDeviceGetCount, cuDeviceGetCount, 2000, REQUIRED, (int *count), (count)) \
    X(cuDeviceGet, cuDeviceGet, 2000, REQUIRED, (CUdevice *device, int ordinal), (device, ordinal)) \
    X(cuDeviceGetName, cuDeviceGetName, 2000, REQUIRED, (char *name, int len, CUdevice dev), (name, len, dev)) \
    X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, REQUIRED, (CUuuid *uuid, CUdevice dev), (uuid, dev)) \
    X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, REQUIRED, (char *bus_id, int len, CUdevice dev), (bus_id, len, dev)) \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, REQUIRED, (size_t *bytes, CUdevice dev), (bytes, dev)) \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, REQUIRED, (int *value, CUdevice_attribute attribute, CUdevice dev), (value, attribute, dev)) \
    X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, REQUIRED, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer)) \
    X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, OPTIONAL, (int *value, CUdevice_P2PAttribute attribute, CUdevice src, CUdevice dst), (value, attribute, src, dst)) \
    /* contexts: the primary one of each device, as the CUDA runtime uses it; and those that programs create */ \
    X(cuCtxCreate, cuCtxCreate_v4, 12050, OPTIONAL, (CUcontext *ctx, CUctxCreateParams *create, unsigned int flags, CUdevice dev), (ctx, create, flags, dev)) \
    X(cuCtxCreate_v3, cuCtxCreate_v3, 11040, OPTIONAL, (CUcontext *ctx, CUexecAffinityParam *affinities, int count, unsigned int flags, CUdevice dev), (ctx, affinities, count, flags, dev)) \
    X(cuCtxCreate_v2, cuCtxCreate_v2, 3020, OPTIONAL, (CUcontext *ctx, unsigned int flags, CUdevice dev), (ctx, flags, dev)) \
    X(cuCtxDestroy, cuCtxDestroy_v2, 4000, OPTIONAL, (CUcontext ctx), (ctx)) \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, REQUIRED, (CUcontext *ctx, CUdevice dev), (ctx, dev)) \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, REQUIRED, (CUdevice dev), (dev)) \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, REQUIRED, (CUdevice dev), (dev)) \
    X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000, OPTIONAL, (CUdevice dev, unsigned int flags), (dev, flags)) \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, REQUIRED, (CUdevice dev, unsigned int *flags, int *active), (dev, flags, active)) \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, REQUIRED, (CUcontext ctx), (ctx)) \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, REQUIRED, (CUcontext *ctx), (ctx)) \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, REQUIRED, (CUcontext ctx), (ctx)) \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, REQUIRED, (CUcontext *ctx), (ctx)) \
    X(cuCtxGetDevice, cuCtxGetDevice, 2000, REQUIRED, (CUdevice *dev), (dev)) \
    X(cuCtxGetFlags, cuCtxGetFlags, 7000, OPTIONAL, (unsigned int *flags), (flags)) \
    X(cuCtxSetFlags, cuCtxSetFlags, 12010, OPTIONAL, (unsigned int flags), (flags)) \
    X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, OPTIONAL, (CUcontext ctx, unsigned int *version), (ctx, version)) \
    X(cuCtxGetId, cuCtxGetId, 12000, OPTIONAL, (CUcontext ctx, unsigned long long *id), (ctx, id)) \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, REQUIRED, (void), ()) \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, OPTIONAL, (CUcontext peer, unsigned int flags), (peer, flags)) \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, OPTIONAL, (CUcontext peer), (peer)) \
    /* memory with an address of its own */ \
    X(cuMemGetInfo, cuMemGetInfo_v2, 3020, REQUIRED, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes)) \
    X(cuMemAlloc, cuMemAlloc_v2, 3020, REQUIRED, (CUdeviceptr *ptr, size_t size), (ptr, size)) \
    X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, OPTIONAL, (CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element), (ptr, pitch, width, height, element)) \
    X(cuMemFree, cuMemFree_v2, 3020, REQUIRED, (CUdeviceptr ptr), (ptr)) \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, OPTIONAL, (CUdeviceptr *ptr, size_t size, unsigned int flags), (ptr, size, flags)) \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, OPTIONAL, (CUdeviceptr *ptr, size_t size, CUstream stream), (ptr, size, stream)) \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, OPTIONAL, (CUdeviceptr ptr, CUstream stream), (ptr, stream)) \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, REQUIRED, (void **ptr, size_t size, unsigned int flags), (ptr, size, flags)) \
    X(cuMemFreeHost, cuMemFreeHost, 2000, REQUIRED, (void *ptr), (ptr)) \
    X(cuMemHostRegister, cuMemHostRegister_v2, 6050, REQUIRED, (void *ptr, size_t size, unsigned int flags), (ptr, size, flags)) \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, REQUIRED, (void *ptr), (ptr)) \
    X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, REQUIRED, (CUdeviceptr *dptr, void *ptr, unsigned int flags), (dptr, ptr, flags)) \
    X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, REQUIRED, (CUdeviceptr *base, size_t *size, CUdeviceptr ptr), (base, size, ptr)) \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, REQUIRED, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr), (data, attribute, ptr)) \
    /* virtual memory management */ \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, OPTIONAL, (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option), (granularity, prop, option)) \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020, OPTIONAL, (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags), (ptr, size, alignment, addr, flags)) \
    X(cuMemAddressFree, cuMemAddressFree, 10020, OPTIONAL, (CUdeviceptr ptr, size_t size), (ptr, size)) \
    X(cuMemCreate, cuMemCreate, 10020, OPTIONAL, (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags), (handle, size, prop, flags)) \
    X(cuMemRelease, cuMemRelease, 10020, OPTIONAL, (CUmemGenericAllocationHandle handle), (handle)) \
    X(cuMemMap, cuMemMap, 10020, OPTIONAL, (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags), (ptr, size, offset, handle, flags)) \
    X(cuMemUnmap, cuMemUnmap, 10020, OPTIONAL, (CUdeviceptr ptr, size_t size), (ptr, size)) \
    X(cuMemSetAccess, cuMemSetAccess, 10020, OPTIONAL, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count), (ptr, size, desc, count)) \
    X(cuMemGetAccess, cuMemGetAccess, 10020, OPTIONAL, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr), (flags, location, ptr)) \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, OPTIONAL, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags), (shareable, handle, type, flags)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, OPTIONAL, (CUmemGenericAllocationHandle *handle, void *os_handle, CUmemAllocationHandleType type), (handle, os_handle, type)) \
    X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, OPTIONAL, (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle), (prop, handle)) \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, OPTIONAL, (CUmemGenericAllocationHandle *handle, void *addr), (handle, addr)) \
    /* memory pools */ \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, OPTIONAL, (CUmemoryPool *pool, const CUmemPoolProps *props), (pool, props)) \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, OPTIONAL, (CUmemoryPool pool), (pool)) \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, OPTIONAL, (CUmemoryPool *pool, CUdevice dev), (pool, dev)) \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, OPTIONAL, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, OPTIONAL, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, OPTIONAL, (CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count), (pool, desc, count)) \
    X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, OPTIONAL, (CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location), (flags, pool, location)) \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, OPTIONAL, (CUmemoryPool *pool, CUdevice dev), (pool, dev)) \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, OPTIONAL, (CUdevice dev, CUmemoryPool pool), (dev, pool)) \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, OPTIONAL, (CUdeviceptr *ptr, size_t size, CUmemoryPool pool, CUstream stream), (ptr, size, pool, stream)) \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, OPTIONAL, (CUmemoryPool pool, size_t keep), (pool, keep)) \
    /* sharing of cuMemAlloc memory */ \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, OPTIONAL, (CUipcMemHandle *handle, CUdeviceptr ptr), (handle, ptr)) \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, OPTIONAL, (CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags), (ptr, handle, flags)) \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, OPTIONAL, (CUdeviceptr ptr), (ptr)) \
    /* copy and set */ \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, REQUIRED, (CUdeviceptr dst, const void *src, size_t size), (dst, src, size)) \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, REQUIRED, (void *dst, CUdeviceptr src, size_t size), (dst, src, size)) \
    X(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, REQUIRED, (CUdeviceptr dst, CUdeviceptr src, size_t size), (dst, src, size)) \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, REQUIRED, (CUdeviceptr dst, const void *src, size_t size, CUstream stream), (dst, src, size, stream)) \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, REQUIRED, (void *dst, CUdeviceptr src, size_t size, CUstream stream), (dst, src, size, stream)) \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, REQUIRED, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream), (dst, src, size, stream)) \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000, REQUIRED, (CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream), (dst, src, size, stream)) \
    X(cuMemcpy2D, cuMemcpy2D_v2, 3020, OPTIONAL, (const CUDA_MEMCPY2D *copy), (copy)) \
    X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, 3020, OPTIONAL, (const CUDA_MEMCPY2D *copy), (copy)) \
    X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, OPTIONAL, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream)) \
    X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, 13000, OPTIONAL, (CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, size_t *attrs_first, size_t attrs_count, CUstream stream), (dsts, srcs, sizes, count, attrs, attrs_first, attrs_count, stream)) \
    X(cuMemsetD8, cuMemsetD8_v2, 3020, REQUIRED, (CUdeviceptr dst, unsigned char value, size_t count), (dst, value, count)) \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020, REQUIRED, (CUdeviceptr dst, unsigned char value, size_t count, CUstream stream), (dst, value, count, stream)) \
    X(cuMemsetD16Async, cuMemsetD16Async, 3020, REQUIRED, (CUdeviceptr dst, unsigned short value, size_t count, CUstream stream), (dst, value, count, stream)) \
    X(cuMemsetD32Async, cuMemsetD32Async, 3020, REQUIRED, (CUdeviceptr dst, unsigned int value, size_t count, CUstream stream), (dst, value, count, stream)) \
    X(cuMemsetD16, cuMemsetD16_v2, 3020, OPTIONAL, (CUdeviceptr dst, unsigned short value, size_t count), (dst, value, count)) \
    X(cuMemsetD32, cuMemsetD32_v2, 3020, OPTIONAL, (CUdeviceptr dst, unsigned int value, size_t count), (dst, value, count)) \
    X(cuMemsetD2D8, cuMemsetD2D8_v2, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height), (dst, pitch, value, width, height)) \
    X(cuMemsetD2D16, cuMemsetD2D16_v2, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height), (dst, pitch, value, width, height)) \
    X(cuMemsetD2D32, cuMemsetD2D32_v2, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height), (dst, pitch, value, width, height)) \
    X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream)) \
    X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream)) \
    X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, OPTIONAL, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream)) \
    /* streams and events */ \
    X(cuStreamCreate, cuStreamCreate, 2000, REQUIRED, (CUstream *stream, unsigned int flags), (stream, flags)) \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, OPTIONAL, (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority)) \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000, REQUIRED, (CUstream stream), (stream)) \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, REQUIRED, (CUstream stream), (stream)) \
    X(cuStreamQuery, cuStreamQuery, 2000, REQUIRED, (CUstream stream), (stream)) \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, OPTIONAL, (CUstream stream, CUcontext *ctx), (stream, ctx)) \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, OPTIONAL, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, OPTIONAL, (CUstream stream, CUgraph *graph), (stream, graph)) \
    X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, OPTIONAL, (CUstream stream, CUstreamCaptureStatus *status), (stream, status)) \
    X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, 12030, OPTIONAL, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count), (stream, status, id, graph, dependencies, edges, count)) \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, OPTIONAL, (CUstreamCaptureMode *mode), (mode)) \
    X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, REQUIRED, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags)) \
    X(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, OPTIONAL, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
    X(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070, OPTIONAL, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
    X(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, OPTIONAL, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
    X(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070, OPTIONAL, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, OPTIONAL, (CUstream stream, CUhostFn fn, void *data), (stream, fn, data)) \
    X(cuEventCreate, cuEventCreate, 2000, REQUIRED, (CUevent *event, unsigned int flags), (event, flags)) \
    X(cuEventDestroy, cuEventDestroy_v2, 4000, REQUIRED, (CUevent event), (event)) \
    X(cuEventRecord, cuEventRecord, 2000, REQUIRED, (CUevent event, CUstream stream), (event, stream)) \
    X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, OPTIONAL, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags)) \
    X(cuEventQuery, cuEventQuery, 2000, REQUIRED, (CUevent event), (event)) \
    X(cuEventSynchronize, cuEventSynchronize, 2000, REQUIRED, (CUevent event), (event)) \
    X(cuEventElapsedTime, cuEventElapsedTime, 2000, REQUIRED, (float *ms, CUevent start, CUevent end), (ms, start, end)) \
    X(cuEventElapsedTime_v2, cuEventElapsedTime_v2, 12080, OPTIONAL, (float *ms, CUevent start, CUevent end), (ms, start, end)) \
    /* graphs */ \
    X(cuGraphCreate, cuGraphCreate, 10000, OPTIONAL, (CUgraph *graph, unsigned int flags), (graph, flags)) \
    X(cuGraphDestroy, cuGraphDestroy, 10000, OPTIONAL, (CUgraph graph), (graph)) \
    X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_KERNEL_NODE_PARAMS *params), (node, graph, dependencies, count, params)) \
    X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_MEMCPY3D *params, CUcontext ctx), (node, graph, dependencies, count, params, ctx)) \
    X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx), (node, graph, dependencies, count, params, ctx)) \
    X(cuGraphAddHostNode, cuGraphAddHostNode, 10000, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, const CUDA_HOST_NODE_PARAMS *params), (node, graph, dependencies, count, params)) \
    X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count), (node, graph, dependencies, count)) \
    X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event), (node, graph, dependencies, count, event)) \
    X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010, OPTIONAL, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event), (node, graph, dependencies, count, event)) \
    X(cuGraphGetNodes, cuGraphGetNodes, 10000, OPTIONAL, (CUgraph graph, CUgraphNode *nodes, size_t *count), (graph, nodes, count)) \
    X(cuGraphGetEdges, cuGraphGetEdges_v2, 12030, OPTIONAL, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count), (graph, from, to, data, count)) \
    X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, OPTIONAL, (CUgraphNode node, CUgraphNodeType *type), (node, type)) \
    X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000, OPTIONAL, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params), (node, params)) \
    X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000, OPTIONAL, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (node, params)) \
    X(cuGraphInstantiate, cuGraphInstantiateWithFlags, 11040, OPTIONAL, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags)) \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, OPTIONAL, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params)) \
    X(cuGraphUpload, cuGraphUpload, 11010, OPTIONAL, (CUgraphExec exec, CUstream stream), (exec, stream)) \
    X(cuGraphLaunch, cuGraphLaunch, 10000, OPTIONAL, (CUgraphExec exec, CUstream stream), (exec, stream)) \
    X(cuGraphExecUpdate, cuGraphExecUpdate_v2, 12000, OPTIONAL, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info)) \
    X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000, OPTIONAL, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (exec, node, params)) \
    X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, OPTIONAL, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx), (exec, node, params, ctx)) \
    X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, OPTIONAL, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx), (exec, node, params, ctx)) \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, OPTIONAL, (CUgraphExec exec), (exec)) \
    /* code */ \
    X(cuModuleLoad, cuModuleLoad, 2000, OPTIONAL, (CUmodule *module, const char *fname), (module, fname)) \
    X(cuModuleLoadData, cuModuleLoadData, 2000, REQUIRED, (CUmodule *module, const void *image), (module, image)) \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, OPTIONAL, (CUmodule *module, const void *image, unsigned int count, CUjit_option *jit_options, void **values), (module, image, count, jit_options, values)) \
    X(cuModuleUnload, cuModuleUnload, 2000, REQUIRED, (CUmodule module), (module)) \
    X(cuModuleGetFunction, cuModuleGetFunction, 2000, REQUIRED, (CUfunction *function, CUmodule module, const char *name), (function, module, name)) \
    X(cuModuleGetGlobal, cuModuleGetGlobal_v2, 3020, REQUIRED, (CUdeviceptr *ptr, size_t *size, CUmodule module, const char *name), (ptr, size, module, name)) \
    X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, REQUIRED, (int *value, CUfunction_attribute attribute, CUfunction function), (value, attribute, function)) \
    X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, REQUIRED, (CUfunction function, CUfunction_attribute attribute, int value), (function, attribute, value)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, REQUIRED, (int *blocks, CUfunction function, int block_threads, size_t shared_bytes), (blocks, function, block_threads, shared_bytes)) \
    X(cuLaunchKernel, cuLaunchKernel, 4000, REQUIRED, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params, void **extra), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra)) \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, OPTIONAL, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra), (config, function, params, extra)) \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, OPTIONAL, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params), (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params))
/* clang-format on */

#endif
