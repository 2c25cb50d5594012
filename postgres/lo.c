/*
 * lo_import_gpu and lo_export_gpu: between large objects and memory of other GPU programs, which they
 * name by a CUDA handle.
 *
 * The keeper opens the handle and copies pieces through a window; here they are read from and written
 * to the large object. Both functions are revoked from PUBLIC, since a handle is all it takes to read
 * or overwrite what another program has on the GPU.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_largeobject.h"
#include "fmgr.h"
#include "libpq/be-fsstubs.h"
#include "libpq/libpq-fs.h"
#include "miscadmin.h"
#include "storage/large_object.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "postgres/compat.h"
#include "postgres/directory.h"
#include "postgres/window.h"

#define PIECE_BYTES_MAX ((uint64) 8 << 20)

PG_FUNCTION_INFO_V1(gstore_lo_import_gpu);
PG_FUNCTION_INFO_V1(gstore_lo_export_gpu);

/* A piece of memory of another program. */
typedef struct gpu_memory
{
	gstore_store_name where; /* device and epoch */
	gstore_far		  far;
	uint64			  offset_bytes, length;
} gpu_memory;

static void
take_arguments(int32 device, const bytea *handle, int64 offset, int64 length, gpu_memory *memory)
{
	if (VARSIZE_ANY_EXHDR(handle) != GSTORE_HANDLE_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the handle has %d bytes", (int) VARSIZE_ANY_EXHDR(handle)),
				 errhint("A CUipcMemHandle has %d.", GSTORE_HANDLE_BYTES)));
	if (offset < 0 || length < 0 || offset > PG_INT64_MAX - length)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("offset " INT64_FORMAT " and length " INT64_FORMAT " are no range of memory",
						offset, length)));
	gstore_wait_ready();
	memset(memory, 0, sizeof *memory);
	memory->where.device = device;
	memory->where.epoch = gstore->epoch;
	memory->far.copy = pg_atomic_fetch_add_u64(&gstore->next_store, 1);
	memcpy(memory->far.handle, VARDATA_ANY(handle), GSTORE_HANDLE_BYTES);
	memory->offset_bytes = (uint64) offset;
	memory->length = (uint64) length;
}

/* One byte or none at the range's end says whether all of it is there, before anything is changed. */
static void
check_bounds(gpu_memory *memory)
{
	uint8			   byte;
	const gstore_piece piece = {
		.offset_bytes = memory->offset_bytes + memory->length - 1, .bytes = 1, .local = &byte};

	if (memory->length > 0)
		gstore_transfer_far(GSTORE_FOREIGN_READ, &memory->where, &memory->far, &piece, 1);
}

static void
close_memory(gpu_memory *memory)
{
	gstore_transfer_far(GSTORE_FOREIGN_CLOSE, &memory->where, &memory->far, NULL, 0);
}

static uint64
piece_bytes(void)
{
	return Min(gstore_window_size(), PIECE_BYTES_MAX);
}

/*
 * By the server's own calls on descriptors, which end with the transaction whatever happens. They look
 * at permissions.
 */
static int
open_object(Oid object, int flags)
{
	return DatumGetInt32(
		DirectFunctionCall2(be_lo_open, ObjectIdGetDatum(object), Int32GetDatum(flags)));
}

static void
close_object(int lo)
{
	(void) DirectFunctionCall1(be_lo_close, Int32GetDatum(lo));
}

/* ---- from the GPU */

/* Opened for writing, and empty. */
static int
open_target(Oid *object)
{
	int lo;

	if (!OidIsValid(*object) || !LargeObjectExists(*object))
	{
		*object = DatumGetObjectId(DirectFunctionCall1(be_lo_create, ObjectIdGetDatum(*object)));
		CommandCounterIncrement();
	}
	lo = open_object(*object, INV_WRITE);
	(void) DirectFunctionCall2(be_lo_truncate64, Int32GetDatum(lo), Int64GetDatum(0));
	return lo;
}

static void
import_pieces(gpu_memory *memory, int lo)
{
	uint8 *bytes = palloc(piece_bytes());

	for (uint64 done = 0, part; done < memory->length; done += part)
	{
		gstore_piece piece = {.offset_bytes = memory->offset_bytes + done, .local = bytes};

		CHECK_FOR_INTERRUPTS();
		piece.bytes = part = Min(piece_bytes(), memory->length - done);
		gstore_transfer_far(GSTORE_FOREIGN_READ, &memory->where, &memory->far, &piece, 1);
		for (uint64 written = 0; written < part;)
			written += (uint64) lo_write(lo, (const char *) bytes + written, (int) (part - written));
	}
	pfree(bytes);
}

Datum
gstore_lo_import_gpu(PG_FUNCTION_ARGS)
{
	Oid		   object = PG_GETARG_OID(4);
	gpu_memory memory;
	int		   lo;

	PreventCommandIfReadOnly("lo_import_gpu()");
	take_arguments(PG_GETARG_INT32(0), PG_GETARG_BYTEA_PP(1), PG_GETARG_INT64(2),
				   PG_GETARG_INT64(3), &memory);
	check_bounds(&memory);
	lo = open_target(&object);
	import_pieces(&memory, lo);
	close_object(lo);
	close_memory(&memory);
	PG_RETURN_OID(object);
}

/* ---- to the GPU */

/* Returns how much of the object there was. */
static uint64
export_pieces(gpu_memory *memory, int lo)
{
	uint8 *bytes = palloc(piece_bytes());
	uint64 done = 0;
	int	   part;

	do
	{
		gstore_piece piece = {.offset_bytes = memory->offset_bytes + done, .local = bytes};

		CHECK_FOR_INTERRUPTS();
		part = lo_read(lo, (char *) bytes, (int) Min(piece_bytes(), memory->length - done));
		if (part > 0)
		{
			piece.bytes = (uint64) part;
			gstore_transfer_far(GSTORE_FOREIGN_WRITE, &memory->where, &memory->far, &piece, 1);
			done += (uint64) part;
		}
	} while (part > 0 && done < memory->length);
	pfree(bytes);
	return done;
}

Datum
gstore_lo_export_gpu(PG_FUNCTION_ARGS)
{
	gpu_memory memory;
	int		   lo;
	uint64	   written;

	take_arguments(PG_GETARG_INT32(1), PG_GETARG_BYTEA_PP(2), PG_GETARG_INT64(3),
				   PG_GETARG_INT64(4), &memory);
	lo = open_object(PG_GETARG_OID(0), INV_READ);
	check_bounds(&memory);
	written = memory.length > 0 ? export_pieces(&memory, lo) : 0;
	close_object(lo);
	if (written < memory.length)
	{
		const gstore_piece rest = {.offset_bytes = memory.offset_bytes + written,
								   .bytes = memory.length - written};

		gstore_transfer_far(GSTORE_FOREIGN_WRITE, &memory.where, &memory.far, &rest, 1);
	}
	close_memory(&memory);
	PG_RETURN_INT64((int64) written);
}
