/* gvmem/gvmem.h - virtual memory for GPUs: everything at once.
 *
 * What mmap, shm_open and malloc are for a CPU program, for device memory. Start with
 * gvmem/buffer.h, the one idea: a range of device addresses and the memory behind it.
 * gvmem/vector.h grows on it, gvmem/appender.h lets kernels grow it while they run, gvmem/heap.h
 * is malloc on it, gvmem/region.h has kernels use more than fits, gvmem/callback.h has them call the host, gvmem/share.h passes it to other processes, gvmem/client.h shares more of it
 * than the device has, gvmem/table.h reads PostgreSQL's tables that live there. gvmem/keeper.h alone needs
 * another library, libgvmem-keeper. gvmem/rsvm.h is not included, as its names for regions do not begin with gvm_.
 */
#ifndef GVMEM_GVMEM_H
#define GVMEM_GVMEM_H

#include <gvmem/appender.h>
#include <gvmem/buffer.h>
#include <gvmem/callback.h>
#include <gvmem/client.h>
#include <gvmem/device.h>
#include <gvmem/heap.h>
#include <gvmem/keeper.h>
#include <gvmem/kernels.h>
#include <gvmem/load.h>
#include <gvmem/region.h>
#include <gvmem/region_object.h>
#include <gvmem/share.h>
#include <gvmem/status.h>
#include <gvmem/table.h>
#include <gvmem/vector.h>

#endif
