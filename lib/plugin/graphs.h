/* lib/plugin/graphs.h - blocks of work that is captured into a graph, and blocks of several streams.
 *
 * A graph uses the addresses of its capture whenever it is launched, also those of blocks that were
 * freed meanwhile. So what is allocated while a stream is captured comes from a heap that belongs to
 * this one capture. Within the capture a freed block serves again, on the same stream: the graph keeps
 * that order. When the capture has ended nothing is allocated there any more; the heap stays until its
 * pool is released and no block of it lives, or until the process ends.
 *
 * A block that the framework says another stream uses waits, when it is freed, for that stream too.
 *
 * Threads: any thread may call.
 */
#ifndef GVMI_PLUGIN_GRAPHS_H
#define GVMI_PLUGIN_GRAPHS_H

#include <stdbool.h>

#include "lib/plugin/plugin.h"

/* A block that other streams have used, besides its own. */
typedef struct gvmi_plugin_use {
    struct gvmi_plugin_use *next;
    void *ptr;
    int device;
    uint64_t capture_id; /* that the free waits for */
    gvm_stream captured; /* by it */
    struct gvmi_plugin_use *next_capture;
    size_t count;
    gvm_stream streams[];
} gvmi_plugin_use;

/* Grants a heap of a device to the others that have one. Called with the lock held. */
typedef void gvmi_plugin_grant(gvm_heap *heap, int ordinal);

/* The heap of a capture, made and granted if there is none; NULL, with the thread's error, if there can be none. */
gvm_heap *gvmi_plugin_capture_heap(gvm_device *device, int ordinal, uint64_t capture_id,
                                   gvmi_plugin_grant *grant);

/* Grants the heaps of captures: one more device has a heap. */
void gvmi_plugin_captures_grant(gvmi_plugin_grant *grant);

/* Frees a block of some capture's heap; keep: it must not serve again. False: it is in none. */
bool gvmi_plugin_capture_free(int ordinal, void *ptr, bool keep);

/* PyTorch begins to allocate to a pool, and ends; releases a pool. */
void gvmi_plugin_pool_begin(int ordinal, gvm_torch_pool pool);
void gvmi_plugin_pool_end(int ordinal, gvm_torch_pool pool);
void gvmi_plugin_pool_release(int ordinal, gvm_torch_pool pool);

/* Notes that a stream uses a block; false: out of host memory. */
bool gvmi_plugin_use_add(void *ptr, gvm_stream stream);

/* What is noted of a block, which is the caller's to free() then; NULL: nothing. */
gvmi_plugin_use *gvmi_plugin_use_take(const void *ptr);

/* Frees that must wait for the end of the capture that they name: one more; and all those of captures that have
 * ended. has_ended is asked once a capture, with the lock held. */
void gvmi_plugin_late_add(gvmi_plugin_use *use);
gvmi_plugin_use *gvmi_plugin_late_take(bool (*has_ended)(const gvmi_plugin_use *use));

/* In a child made by fork(): forgets all. */
void gvmi_plugin_graphs_forget(void);

#endif
