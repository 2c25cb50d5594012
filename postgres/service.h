/* postgres/service.h - threads of the GPU memory keeper that carry out backends' commands.
 *
 * They are a client of a keeper (gvmem/keeper.h) like any other: every area of a store is an object
 * that they create, grow, read, write and drop. They know nothing of PostgreSQL: no palloc, no ereport,
 * no signals.
 */
#ifndef GSTORE_SERVICE_H
#define GSTORE_SERVICE_H

#include <gvmem/gvmem.h>

#include "postgres/command.h"

typedef struct gstore_service gstore_service;

typedef struct gstore_service_options {
    const char *path; /* of the keeper's socket */
    uint32_t threads;
    gstore_queue *queue;
    gstore_window *windows; /* window_count of them */
    uint32_t window_count;
    uint8_t *bytes; /* window_bytes for each window, in their order; page-aligned */
    uint64_t window_bytes;
    uint32_t epoch;            /* commands of another one are refused */
    void (*wake)(void *latch); /* any thread may call it */
} gstore_service_options;

/* Connects and starts the threads. */
gvm_status gstore_service_start(const gstore_service_options *options, gstore_service **out);

/* Ends the threads after the commands they have begun; closes every object. NULL is ignored. */
void gstore_service_stop(gstore_service *service);

/* The keeper is gone: nothing that was stored exists any more. */
int gstore_service_is_lost(gstore_service *service);

/* Drops a store's objects, by the caller's own thread. */
gvm_status gstore_service_drop(gstore_service *service, const gstore_store_name *name);

#endif
