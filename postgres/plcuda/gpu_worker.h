/*
 * postgres/plcuda/gpu_worker.h - what the files of the program gstore-gpu-worker share.
 *
 * It is started by the spawner (postgres/spawner.h) and serves one connection: `session` runs functions (run.c), `compile`
 * compiles one text (compile.c). It links no PostgreSQL. It may be killed at any moment: files are complete when they get
 * their names, and it owns no memory but its own.
 */
#ifndef PLCUDA_GPU_WORKER_H
#define PLCUDA_GPU_WORKER_H

#include <stdbool.h>
#include <stddef.h>

#include <gvmem/gvmem.h>

#include "postgres/plcuda/wire.h"
#include "query/tables.h"

/* ---- gpu_worker.c */

/* The memory file, as it is now. Addresses are good until the next call. NULL: it is malformed. */
extern plcuda_window *plcuda_map_window(void);
/* The bytes of a span; NULL: it leaves the file. */
extern void *plcuda_at(plcuda_span span);
/* Room behind what is used, for one answer. NULL: there is no memory. */
extern void *plcuda_append(uint64_t bytes, plcuda_span *span);

extern void plcuda_answer_error(plcuda_message *answer, const char *sqlstate, const char *format, ...)
	GVM_PRINTF(3, 4);
/* For a failed call of the library, the thread's latest. */
extern void plcuda_answer_status(plcuda_message *answer, gvm_status status, const char *what);

/* ---- image.c */

/*
 * Names of temporary files and folders in the cache begin so; the process number follows. PostgreSQL's base backups
 * leave out what is called so.
 */
#define PLCUDA_TEMPORARY "pgsql_tmp."

/* What decides about an image, beside the function's text. */
typedef struct plcuda_target
{
	uint32_t architecture; /* 0: the software GPU */
	char	 text[PLCUDA_PATH_BYTES + 256];
} plcuda_target;

typedef struct plcuda_image
{
	void  *file;  /* to be freed */
	void  *bytes; /* aligned to 64 */
	size_t len;
} plcuda_image;

/* A file's bytes to the end, at most `most`, to be freed; aligned as an image is. NULL: it cannot be read. */
extern void *plcuda_read_file(const char *path, size_t most, size_t *len);
/* The folder of the headers. */
extern const char *plcuda_include_folder(void);
/* architecture 0: of the software GPU. False: answer says why. */
extern bool plcuda_choose_target(const plcuda_window *window, uint32_t architecture,
								 plcuda_target *out, plcuda_message *answer);
/* From the cache. False: it is not there. */
extern bool plcuda_load_image(const plcuda_window *window, const plcuda_target *target,
							  const char *text, size_t text_bytes, plcuda_image *out);
/* Stores an image in the cache, and removes older ones while the cache is too large. False: errno says why. */
extern bool plcuda_store_image(const plcuda_window *window, const plcuda_target *target,
							   const char *text, size_t text_bytes, const void *image, size_t len);

/* ---- nvrtc.c */

/* "12.8 of PATH". False: there is none. */
extern bool plcuda_nvrtc_version(const char *library, char *text, size_t size);
/* The program's mode `nvrtc`: compiles one file to another; messages go to the standard output. */
extern int
plcuda_nvrtc_main(const char *library, const char *architecture, const char *from, const char *to);

/* ---- tables.c */

/* A table of the call that runs. */
typedef struct plcuda_leased
{
	gquery_attached *attached; /* NULL: empty */
	gquery_leases	 leases;
	uint64_t		 deleted; /* address of the bitmap; 0: there is none */
	gvm_table_data	 data[PLCUDA_COLUMNS_MAX];
} plcuda_leased;

extern plcuda_leased plcuda_leases[PLCUDA_TABLES_MAX];

/* Those of the call, without leases. *ordinal: the device of all; -1: there is none. False: answer says why. */
extern bool plcuda_attach_tables(plcuda_window *window, int32_t *ordinal, plcuda_message *answer);
/* Leases on all of them, to be released also after a failure. */
extern bool plcuda_acquire_tables(const plcuda_window *window, plcuda_message *answer);
extern void plcuda_release_tables(void);
extern void plcuda_detach_tables(void);

/* ---- compile.c, run.c */

extern void plcuda_compile(plcuda_window *window, plcuda_message *answer);
extern void plcuda_run(plcuda_window *window, plcuda_message *answer);
extern void plcuda_inspect(plcuda_window *window, plcuda_message *answer);
/* More rows of the set that the last call returns. */
extern void plcuda_fetch(plcuda_message *answer);
/* Whether there are more. */
extern bool plcuda_has_rows(void);
/* After a time without calls: detaches tables, which may have been dropped, and frees buffers on the GPU. */
extern void plcuda_rest(void);

#endif
