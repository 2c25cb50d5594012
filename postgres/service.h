/*
 * postgres/service.h - threads of the GPU memory keeper that carry out backends' commands.
 *
 * They are a client of a keeper (gvmem/client.h) like any other: every area of a store (area.h) is an
 * object that they create, grow, read, write and drop. They know nothing of PostgreSQL: no palloc, no ereport,
 * no signals.
 */
#ifndef GSTORE_SERVICE_H
#define GSTORE_SERVICE_H

#include <gvmem/gvmem.h>

#include "postgres/area.h"
#include "postgres/command.h"

typedef struct gstore_service gstore_service;

typedef struct gstore_service_options
{
	const char	  *path; /* of the keeper's socket */
	uint32_t	   threads;
	gstore_queue  *queue;
	gstore_window *windows; /* window_count of them */
	uint32_t	   window_count;
	uint8_t		  *bytes; /* window_bytes for each window, in their order; page-aligned */
	uint64_t	   window_bytes;
	uint32_t	   epoch; /* commands of another one are refused */
	uint32_t link_mode;	  /* permission bits of tokens' links; the objects themselves have 0600 */
	/* Any thread may call these: */
	void (*wake)(void *latch);
	void (*give_back)(uint32_t window); /* whose backend has left it */
} gstore_service_options;

/* Connects and starts the threads. */
gvm_status gstore_service_start(const gstore_service_options *options, gstore_service **out);

/*
 * Breaks the connections: no call on the keeper waits for it any more, those under way neither. For
 * a caller that is about to stop the service and first ends what else uses it. NULL is ignored.
 */
void gstore_service_sever(gstore_service *service);

/*
 * Ends the threads after the commands they have begun, and everything that the keeper has of the
 * service. Does not wait for the keeper, but for a connection that a command is making, which may take seconds. NULL is ignored.
 */
void gstore_service_stop(gstore_service *service);

/* How many GPUs there are; tables name one by its number. */
int32_t gstore_service_device_count(const gstore_service *service);

/* The keeper is gone, as the latest call on it has found: nothing that was stored exists any more. */
int gstore_service_is_lost(gstore_service *service);

/* What the keeper has at this moment. */
typedef struct gstore_device_report
{
	char	 name[96];
	int32_t	 ordinal; /* the keeper's */
	uint32_t objects;
	uint64_t budget_bytes, resident_bytes;
	uint64_t host_bytes; /* of its objects, in host memory */
	uint64_t evicted_bytes, promoted_bytes;
	uint64_t copies_bytes; /* under CUDA handles, beside the budget */
} gstore_device_report;

typedef struct gstore_report
{
	uint64_t			 keeper_pid;
	uint64_t			 host_budget_bytes, host_used_bytes;
	uint32_t			 objects, clients;
	uint32_t			 device_count;
	gstore_device_report devices[GVM_KEEPER_DEVICES_MAX];
} gstore_report;

/*
 * Also closes what ended backends left open, and trims what could not be trimmed before: to be
 * called once a second or so. *sizes, which the caller frees, is of the same moment.
 */
gvm_status gstore_service_report(gstore_service *service, gstore_report *out,
								 gstore_store_size **sizes, uint32_t *size_count);

/* Frees a copy (copies.h). */
void gstore_service_drop_copy(gstore_service *service, uint64_t copy);

/* Carries out GSTORE_UNLINK, by the caller's own thread. */
void gstore_service_unlink(gstore_service *service, const uint8_t secret[GSTORE_SECRET_BYTES]);

/* gstore_areas_drop(), by the caller's own thread. */
bool gstore_service_drop(gstore_service *service, const gstore_store_name *name);

/* gstore_areas_trim(), likewise. */
void gstore_service_trim(gstore_service *service, const gstore_store_name *name,
						 const gstore_extent *extents, uint32_t count);

#endif
