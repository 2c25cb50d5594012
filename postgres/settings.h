/* postgres/settings.h - the settings gstore_fdw.*: docs/gstore_fdw.md says what they do. */
#ifndef GSTORE_SETTINGS_H
#define GSTORE_SETTINGS_H

#include "postgres.h"

/* Whose programs may attach tables by token. */
typedef enum gstore_reader_group
{
	GSTORE_READERS_OWNER, /* of the user that runs the server, and root's */
	GSTORE_READERS_GROUP, /* and of members of that user's group */
	GSTORE_READERS_ALL,	  /* everybody's */
} gstore_reader_group;

typedef enum gstore_lost_choice
{
	GSTORE_LOST_EMPTY, /* the table is empty */
	GSTORE_LOST_ERROR, /* it is not to be used before TRUNCATE */
} gstore_lost_choice;

extern int	 gstore_windows;		  /* how many */
extern int	 gstore_window_kb;		  /* of each */
extern int	 gstore_max_relations;	  /* tables with rows */
extern int	 gstore_device_memory_mb; /* budget of each device; 0: chosen by the keeper */
extern int	 gstore_host_memory_mb;	  /* the same for the host */
extern int	 gstore_service_threads;
extern int	 gstore_start_timeout_s;
extern char *gstore_keeper_path; /* of a keeper that others run; "": one of our own */
extern int	 gstore_readers;	 /* gstore_reader_group */
extern int	 gstore_token_lifetime_s;
extern int	 gstore_gpu_workers; /* of sessions, at most: plcuda.max_workers */
extern int	 gstore_load_memory_mb;
extern int	 gstore_copy_memory_mb;	   /* of a role, under CUDA handles; -1: no limit */
extern int	 gstore_version_memory_mb; /* of an owner, old versions; -1: no limit */
extern int	 gstore_lost_tables;	   /* gstore_lost_choice */
extern bool	 gstore_wait_for_source;
/* Of queries on the GPU: */
extern bool	  gstore_gpu_queries;
extern bool	  gstore_gpu_aggregates;
extern bool	  gstore_gpu_joins;
extern bool	  gstore_gpu_filters;
extern bool	  gstore_gpu_order;
extern bool	  gstore_gpu_search;
extern double gstore_gpu_startup_cost;	   /* -1: by the device, as the next ones */
extern double gstore_gpu_instruction_cost; /* of a row, and where they are -1 of groups and probes */
extern double gstore_gpu_group_cost;
extern double gstore_gpu_probe_cost;
extern double gstore_gpu_page_cost;
extern int	  gstore_gpu_query_memory_mb;
extern int	  gstore_gpu_join_memory_mb; /* of a role; -1: gstore_join_memory() chooses */

/* Defines them; at server start. */
extern void gstore_settings_init(void);

#endif
