/* gvmem/region_object.h - collections of regions that several processes and devices have in common.
 *
 * The homes of a collection (gvmem/region.h) may be an object of a keeper (gvmem/client.h). Each process opens it, and attaches it
 * to a space of its own: the budget, the frames and the table are that space's, the homes are all processes'. Several devices of
 * one process are as several processes: a space for each, and the object is attached to each of them.
 *
 *     one process:   gvm_region_object_create(client, "/edges", count, bytes, NULL, NULL, &object);
 *     each process:  gvm_object_open(client, "/edges", 0, &object);
 *                    gvm_collection_attach(space, object, NULL, GVM_FOREVER, &edges);
 *                    … kernels map regions; gvm_space_sync(space, stream); …
 *                    gvm_collection_destroy(edges);
 *                    gvm_object_close(object);
 *
 * Who sees what. gvm_space_sync() of the process that has written a region brings it home and raises its version; a
 * gvm_space_sync() of another one after that drops what its frames have of it. Regions that nobody has changed stay in
 * frames. Processes agree among themselves who syncs when, as by a pipe. A region is written by one space between its
 * sync before and its sync after; what two have written may be parts of both, and is GVM_E_TORN, for the second of them to sync,
 * if that has GVM_SPACE_CHECK. What is written and not synced yet, others may see in part, or not.
 *
 * Regions that kernels have mapped to write when the process syncs are left: sync returns GVM_E_TIMEOUT after all else is done, and the
 * next one brings them home.
 *
 * A process that ends, at any moment, leaves nothing behind but what it has written: frames and leases are free again. What it
 * had written since its last sync is at home in part or not at all, in units of 16 bytes. The others drop all of their
 * frames at their first sync after the keeper has seen the process's end, so that all find the same bytes. The same is
 * done when a collection is destroyed that was written and not synced.
 *
 * The object keeps its chunks in host memory as long as the collection exists: attaching takes a lease for the CPU (GVM_ACQUIRE_CPU).
 * The object and its connection may be closed before, as a file that is mapped may be: the collection goes on as it was, and
 * both stay open at the keeper until the last collection of that object is destroyed. All regions exist; they are neither created nor deleted.
 * Whether memory of the host is made ahead of need is the keeper's to say (host_ahead_bytes of gvmem/keeper.h).
 *
 * Threads: any thread may call anything.
 * Ownership: the caller owns objects and collections, and ends them in any order.
 */
#ifndef GVMEM_REGION_OBJECT_H
#define GVMEM_REGION_OBJECT_H

#include <gvmem/client.h>
#include <gvmem/region.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an object for the homes of count regions of region_bytes each, all zeros: as gvm_object_create(), with what a collection of
 * them is in its metadata. shape, which may be NULL, is as in gvm_collection_options. Of the options, which may be NULL, size_bytes and metadata
 * are not used; GVM_OBJECT_UNTRACKED, GVM_OBJECT_HOST and GVM_OBJECT_REGIONS are set. The memory is made before this returns.
 *
 * GVM_E_INVALID  as for gvm_collection_create() of such regions; an option is out of its limits
 * and the errors of gvm_object_create() */
GVM_API GVM_CHECKED gvm_status gvm_region_object_create(gvm_client *client, const char *name,
                                                        uint64_t count, uint64_t region_bytes,
                                                        const gvm_region_shape *shape,
                                                        const gvm_object_options *options,
                                                        gvm_object **out);

/* Creates a collection whose homes are the object's. Number, size and shape of its regions are those that the object was made with: of
 * the options, which may be NULL, shape and unused_count must be 0. timeout_ms is for the lease, as in gvm_object_acquire(),
 * and for a keeper that does not answer.
 *
 * Its frames come in chunks of the size of the object's. gvm_region_delete() on it returns GVM_E_NOTSUP. gvm_space_sync() returns also
 * GVM_E_KEEPER, after all else is done, if the keeper has ended or cut this process off, and GVM_E_TIMEOUT likewise if
 * the keeper has not answered within the space's wait_ms: the next one finds processes that have ended meanwhile.
 *
 * GVM_E_INVALID   an option is out of its limits, or out is NULL
 * GVM_E_FORMAT    gvm_region_object_create() did not make the object
 * GVM_E_VERSION   a newer version did
 * GVM_E_READONLY, GVM_E_SEALED  the object was opened GVM_OPEN_READONLY, or is sealed
 * GVM_E_TIMEOUT, GVM_E_QUOTA, GVM_E_LIMIT  as for gvm_object_acquire(); as long as others have it attached, GVM_E_TIMEOUT also
 *                 while a process that was cut off may still write to it, which the text names
 * GVM_E_NOMEM     also: the keeper's host budget has no room for what is on the device
 * and the errors of gvm_collection_create(), gvm_object_get_info() */
GVM_API GVM_CHECKED gvm_status gvm_collection_attach(gvm_space *space, gvm_object *object,
                                                     const gvm_collection_options *options,
                                                     int timeout_ms, gvm_collection **out);

#ifdef __cplusplus
}
#endif
#endif
