/* base/registry.h - which objects are alive.
 *
 * Public handles are pointers, and callers pass stale ones: freed twice, from another library, used
 * after destroy. Every public function therefore asks here before it looks behind a pointer;
 * nothing unknown is ever dereferenced, but by gvm_object_acquire() and gvm_object_release(), which look at the object itself. The
 * registry also counts who is inside an object, so that destroying it waits for calls that other threads have in it.
 *
 * An entry is (kind, key) -> object. The key is the handle itself, or an address for pieces that
 * are known by address.
 */
#ifndef GVMI_BASE_REGISTRY_H
#define GVMI_BASE_REGISTRY_H

#include <stdint.h>

#include <gvmem/status.h>

#include "base/private.h"

typedef enum gvmi_kind {
    GVMI_KIND_DEVICE,
    GVMI_KIND_BUFFER,
    GVMI_KIND_PIECE, /* key: the address gvm_alloc() returned */
    GVMI_KIND_VECTOR,
    GVMI_KIND_SHARE,
    GVMI_KIND_IPC,
    GVMI_KIND_IPC_OPEN,   /* key: the address gvm_ipc_open() returned */
    GVMI_KIND_CONNECTION, /* gvm_client */
    GVMI_KIND_OBJECT,
    GVMI_KIND_SERVER,
    GVMI_KIND_TABLE,
    GVMI_KIND_HEAP,
    GVMI_KIND_APPENDER,
    GVMI_KIND_SNAPSHOT,
    GVMI_KIND_SPACE,
    GVMI_KIND_COLLECTION,
    GVMI_KIND_CALLBACK_SERVER,
    GVMI_KIND_COUNT,
} gvmi_kind;

/* In a child made by fork() the entries of its parent are unknown, and no call here waits for a thread of the
 * parent. */

/* Makes an entry, held by nobody. GVM_E_NOMEM, or GVM_E_INVALID if there is one of that key. */
GVMI_API gvm_status gvmi_registry_add(gvmi_kind kind, uint64_t key, void *object);

/* Finds the object and counts the caller in; *object is NULL on failure. GVM_E_FOREIGN if there is
 * none, or it is being removed. */
GVMI_API gvm_status gvmi_registry_hold(gvmi_kind kind, uint64_t key, void **object);

/* Counts the caller out again. */
GVMI_API void gvmi_registry_drop(gvmi_kind kind, uint64_t key);

/* Takes the entry out, waits until nobody is inside, and gives the object to the caller to free.
 * GVM_E_FOREIGN if there is none. */
GVMI_API gvm_status gvmi_registry_remove(gvmi_kind kind, uint64_t key, void **object);

/* Frees an object that was removed, later: its address was a handle, and must not become the handle
 * of another object while somebody may still hold the stale one. It is kept until GVMI_RETIRED_MAX
 * others have been retired. NULL is ignored. */
#define GVMI_RETIRED_MAX 1024
GVMI_API void gvmi_registry_retire(void *object);

/* How many entries of a kind there are: for tests and leak checks. */
uint64_t gvmi_registry_count(gvmi_kind kind);

/* The key of a handle that is a pointer. */
static inline uint64_t gvmi_key(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

#endif
