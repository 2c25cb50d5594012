/*
 * postgres/area.h - the memory of stores: areas, and the keeper's objects behind them.
 *
 * An area is opened on first use and kept open. Commands of one store come from one writer at a time
 * (PostgreSQL's lock sees to that) and any number of readers.
 *
 * Threads: any thread may call anything. Nothing here depends on PostgreSQL, as in service.h.
 */
#ifndef GSTORE_AREA_H
#define GSTORE_AREA_H

#include <stdbool.h>

#include <gvmem/gvmem.h>

#include "postgres/command.h"

typedef struct gstore_areas gstore_areas;

/* unit is a power of two. */
static inline uint64_t
gstore_round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) & ~(unit - 1);
}

/* The thread's latest failure, to be put back by gvm_error_restore() after clean-up. */
static inline gvm_error
gstore_last_error(void)
{
	gvm_error error;

	(void) gvm_error_last(&error);
	return error;
}

/*
 * Connects to the keeper at a socket path. link_mode: permission bits of tokens' links; the objects themselves have
 * 0600.
 */
gvm_status gstore_areas_create(const char *path, uint32_t link_mode, gstore_areas **out);

/* As gstore_service_sever(). */
void gstore_areas_sever(gstore_areas *areas);

/* Closes everything. No command is under way. NULL is ignored. */
void gstore_areas_destroy(gstore_areas *areas);

/* A connection, for what is not an area. It lives as long as the areas. */
gvm_client *gstore_areas_keeper(gstore_areas *areas);

/* ---- for commands */

/* An area that a command uses, under a lease. All zeros: none. */
typedef struct gstore_use
{
	struct gstore_area *area;
	gvm_lease			lease;
	uint64_t			address; /* of the area's first byte */
} gstore_use;

/* The area of a range. write: made if there is none yet, and it will be written up to the range's end. */
gvm_status gstore_area_use(gstore_areas *areas, const gstore_store_name *store,
						   const gstore_range *range, bool write, gstore_use *out);
bool	   gstore_area_is(const gstore_use *use, const gstore_range *range);
uint64_t   gstore_area_bytes(const gstore_use *use);

/*
 * Memory for a range that is written, by the only writer of the store. The address may change: then what the
 * area has is copied behind what is on the stream, and that is over when this returns.
 */
gvm_status gstore_area_provide(gstore_areas *areas, gstore_use *use, const gstore_range *range,
							   gvm_stream stream);

/* What used it is over. */
gvm_status gstore_area_release(gstore_areas *areas, gstore_use *use);

/*
 * Makes the part STAGED of a store, with so many bytes of zeros.
 *
 * GVM_E_LIMIT  they are more than an area can have
 * and the errors of gvm_object_create()
 */
gvm_status gstore_area_stage(gstore_areas *areas, const gstore_store_name *store, uint64_t bytes);

/* ---- tokens */

/* How much more memory these areas of the store take once they have objects of their own. */
uint64_t gstore_areas_unpack_bytes(gstore_areas *areas, const gstore_store_name *store,
								   const gstore_range *ranges, uint32_t count);

/*
 * Gives them such objects, which gstore_areas_link() does otherwise: it takes long. Memory that is short takes them away. For
 * one store at a time, too.
 */
gvm_status gstore_areas_unpack(gstore_areas *areas, const gstore_store_name *store,
							   const gstore_range *ranges, uint32_t count);

/*
 * Others who know the secret may open the first bytes of these areas of the store, and nothing of other areas. For one
 * store at a time (export.c sees to that, and window.c where a command was left). *owner: of the manifest, if that is
 * among them, a user id as the keeper has it.
 *
 * GVM_E_ABSENT  there is no such area
 */
gvm_status gstore_areas_link(gstore_areas *areas, const gstore_store_name *store,
							 const uint8_t secret[GSTORE_SECRET_BYTES], const gstore_range *ranges,
							 uint32_t count, uint32_t *owner);

/* No area of the store may be opened by it any more. */
gvm_status gstore_areas_unlink(gstore_areas *areas, const uint8_t secret[GSTORE_SECRET_BYTES]);

/* ---- ends, and memory that is not needed */

/*
 * Drops a store's objects and its tokens' links; NULL: all. False: a program keeps a lease on memory that was staged for it, and
 * the store is as it was.
 */
bool gstore_areas_drop(gstore_areas *areas, const gstore_store_name *name);

/* How much of an area rows take. */
typedef struct gstore_extent
{
	uint16_t column;
	uint8_t	 part;
	uint64_t bytes;
} gstore_extent;

/*
 * Of a store's areas only these bytes are of use, unless a later writer than name->writer_number has been
 * there: the memory behind them goes back to the keeper, as soon as nobody uses them.
 */
void gstore_areas_trim(gstore_areas *areas, const gstore_store_name *name,
					   const gstore_extent *extents, uint32_t count);

/* Trims what could not be trimmed when it was to be. */
void gstore_areas_trim_again(gstore_areas *areas);

/* Memory is short: gives back what all areas that nobody uses have ahead of need. Returns how many bytes. */
uint64_t gstore_areas_give_back(gstore_areas *areas);

/* What stores have of the keeper. */
typedef struct gstore_store_size
{
	uint64_t store; /* number */
	uint64_t bytes;
} gstore_store_size;

/*
 * Of all stores, by number; the caller frees *out.
 *
 * GVM_E_NOMEM
 */
gvm_status gstore_areas_sizes(gstore_areas *areas, gstore_store_size **out, uint32_t *count);

#endif
