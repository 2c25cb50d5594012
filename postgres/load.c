/*
 * gstore_load_begin(), gstore_load() and gstore_load_file(); see load.h.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/table.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include <gvmem/gstore_arrow.h>
#include <gvmem/table.h>

#include "keeper/table/manifest.h"
#include "postgres/arrow_file.h"
#include "postgres/fdw.h"
#include "postgres/load.h"
#include "postgres/option.h"
#include "postgres/peer.h"
#include "postgres/progress.h"
#include "postgres/table.h"
#include "postgres/token.h"

PG_FUNCTION_INFO_V1(gstore_load_begin);
PG_FUNCTION_INFO_V1(gstore_load);
PG_FUNCTION_INFO_V1(gstore_load_file);

/* ---- the statement */

static void
check_insertable(Oid relation)
{
	AclResult result;

	gstore_check_table(relation);
	result = pg_class_aclcheck(relation, GetUserId(), ACL_INSERT);
	if (result != ACLCHECK_OK)
		result = pg_attribute_aclcheck_all(relation, GetUserId(), ACL_INSERT, ACLMASK_ANY);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FOREIGN_TABLE, get_rel_name(relation));
}

static Relation
begin_load(gstore_loading *load, Oid oid, const gstore_load_source *source, const char *function)
{
	check_insertable(oid);
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	load->relation = table_open(oid, RowExclusiveLock);
	check_insertable(oid); /* as it is now that it is locked */
	load->source = source;
	load->context = CurrentMemoryContext;
	load->scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore load", ALLOCSET_DEFAULT_SIZES);
	return load->relation;
}

static void
write_segment(gstore_loading *load, gstore_load_segment *segment)
{
	uint64 bytes;

	gstore_load_read_segment(load, segment);
	if (load->by_rows || segment->ragged)
		gstore_load_insert(load, segment);
	else
	{
		bytes = gstore_load_append(load, segment, gstore_append_begin(load->pending));
		gstore_progress_add(RelationGetRelid(load->relation), segment->count, bytes);
	}
	gstore_count_changes(load->pending, segment->count);
}

/* Returns how many rows. */
static uint64
write_batch(gstore_loading *load)
{
	const uint64 rows = load->batch->rows, most = gstore_load_segment_rows(load);

	gstore_load_check_batch(load);
	for (uint64 first = 0; first < rows; first += most)
	{
		gstore_load_segment segment = {.first = first, .count = Min(most, rows - first)};
		MemoryContext		old = MemoryContextSwitchTo(load->scratch);

		CHECK_FOR_INTERRUPTS();
		write_segment(load, &segment);
		MemoryContextSwitchTo(old);
		MemoryContextReset(load->scratch);
	}
	return rows;
}

/* Once the columns are known to be the table's. */
static void
begin_writing(gstore_loading *load)
{
	gstore_load_match(load);
	load->pending = gstore_begin_writing(load->relation);
	gstore_progress_begin(GSTORE_LOADING, RelationGetRelid(load->relation), load);
}

static void
end_load(gstore_loading *load)
{
	gstore_load_rows_end(load);
	gstore_await(); /* others want the window */
	gstore_progress_end(load);
	table_close(load->relation, NoLock);
	MemoryContextDelete(load->scratch);
}

/* ---- what is staged */

static char *
write_token(const uint8 secret[GSTORE_SECRET_BYTES])
{
	char path[GSTORE_LINK_PATH_BYTES];

	gstore_link_path(secret, path);
	return gstore_check_token(psprintf("%s%d:%u:%s%s:%s", GVMI_LOAD_TOKEN_PREFIX, GVMI_LOAD_TOKEN_VERSION,
									   gstore->owner, path, GVMI_LOAD_LINK, gstore->path));
}

Datum
gstore_load_begin(PG_FUNCTION_ARGS)
{
	const Oid	oid = PG_GETARG_OID(0);
	const int64 bytes = PG_GETARG_INT64(1);
	int			device;
	uint8		secret[GSTORE_SECRET_BYTES];

	check_insertable(oid);
	if (bytes < (int64) (sizeof(gstore_arrow_head) + sizeof(gstore_arrow_column)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%lld bytes are too few for the rows of one column", (long long) bytes)));
	gstore_wait_ready();
	device = gstore_table_device(oid);
	if (device >= gstore->device_count)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE), errmsg("there is no GPU %d", device),
				 errhint("Set the table's option \"pinning\" to one that "
						 "gstore_fdw_keeper_info shows.")));
	gstore_token_make_load(device, (uint64) bytes, secret);
	PG_RETURN_TEXT_P(cstring_to_text(write_token(secret)));
}

static void
pg_attribute_noreturn() refuse_head(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
			 errmsg("what was written by the token is no table: %s", what),
			 errhint("gvmem/load.h says what is to be there.")));
}

static gstore_load_buffer
buffer_of(const gstore_arrow_buffer *from)
{
	return (gstore_load_buffer){.offset = from->offset, .bytes = from->bytes};
}

static void
copy_text(const char *from, Size bytes, char *to)
{
	if (strnlen(from, bytes) == bytes)
		refuse_head("a name has no end");
	strlcpy(to, from, bytes);
}

/* Formats are part of messages; the name is UTF-8 (load_match.c). */
static void
describe_column(const gstore_arrow_column *from, gstore_load_column *to)
{
	copy_text(from->name, sizeof from->name, to->name);
	copy_text(from->format, sizeof from->format, to->format);
	copy_text(from->element_format, sizeof from->element_format, to->element_format);
	gstore_make_printable(to->format);
	gstore_make_printable(to->element_format);
	to->validity = buffer_of(&from->validity);
	to->offsets = buffer_of(&from->offsets);
	to->values = buffer_of(&from->values);
	to->element_validity = buffer_of(&from->element_validity);
	to->elements = from->elements;
}

/* From copies of the head and the descriptions, made once. */
static gstore_load_batch *
read_head(gstore_load_source *source)
{
	gstore_load_batch	*batch = palloc0(sizeof *batch);
	gstore_arrow_head	 head;
	gstore_arrow_column *columns;

	gstore_load_read(source, 0, &head, sizeof head);
	if (head.format != GSTORE_ARROW_COPY || head.version != GSTORE_ARROW_VERSION ||
		head.head_bytes != sizeof head || head.column_bytes != sizeof *columns)
		refuse_head("its head is another one");
	if (head.ncols == 0 || head.ncols > GSTORE_LOAD_COLUMNS_MAX)
		refuse_head("the number of columns");
	if (head.length > source->bytes || head.length < sizeof head + head.ncols * sizeof *columns)
		refuse_head("its length");
	columns = palloc(head.ncols * sizeof *columns);
	gstore_load_read(source, sizeof head, columns, head.ncols * sizeof *columns);
	source->bytes = head.length;
	batch->rows = head.nitems;
	batch->column_count = head.ncols;
	batch->columns = palloc0(head.ncols * sizeof *batch->columns);
	for (uint32 i = 0; i < head.ncols; i++)
		describe_column(&columns[i], &batch->columns[i]);
	return batch;
}

static void
check_device(const gstore_loading *load)
{
	const int device = gstore_table_device(RelationGetRelid(load->relation));

	if (device != load->source->name.device)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the rows are on GPU %d, and table \"%s\" is on GPU %d",
						load->source->name.device, RelationGetRelationName(load->relation), device),
				 errhint("Call gstore_load_begin() for this table, and write the rows there.")));
}

Datum
gstore_load(PG_FUNCTION_ARGS)
{
	gstore_loading	   load = {0};
	gstore_load_source source = {.staged = true};
	gstore_token	   token;
	uint64			   rows;

	(void) begin_load(&load, PG_GETARG_OID(0), &source, "gstore_load()");
	gstore_wait_ready();
	if (!gstore_token_claim_load(text_to_cstring(PG_GETARG_TEXT_PP(1)), &token))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("the token has ended"),
				 errdetail("Its rows were loaded, it was revoked or expired, or the session that made it has "
						   "ended."),
				 errhint("Call gstore_load_begin() anew.")));
	source.name = token.name;
	source.bytes = token.staged_bytes;
	check_device(&load);
	load.batch = read_head(&source);
	begin_writing(&load);
	rows = write_batch(&load);
	end_load(&load);
	gstore_token_end_reading(&token);
	PG_RETURN_INT64((int64) rows);
}

/* ---- files */

static void
check_may_read_files(void)
{
	if (!has_privs_of_role(GetUserId(), ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser or a member of the pg_read_server_files role to load a file"),
				 errhint("Programs of others load rows from memory: see gstore_load_begin().")));
}

static void
open_source_file(const char *path, gstore_load_source *source)
{
	struct stat found;

	source->path = path;
	/* Of a FIFO, the open would wait for a writer, and no interrupt ends that. */
	source->file = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (source->file < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open file \"%s\": %m", path)));
	if (fstat(source->file, &found) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not stat file \"%s\": %m", path)));
	if (!S_ISREG(found.st_mode))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is no regular file", path)));
	source->bytes = (uint64) found.st_size;
}

static bool
read_input(void *argument, uint64_t offset, void *to, uint64_t bytes)
{
	return gstore_load_try_file(argument, offset, to, bytes);
}

static void
fail_unless_ok(gstore_arrow_result result, const gstore_load_source *source, char *why)
{
	if (result == GSTORE_ARROW_UNSUPPORTED || result == GSTORE_ARROW_MALFORMED)
		gstore_make_printable(why); /* it names columns as the file has them */
	switch (result)
	{
		case GSTORE_ARROW_OK:
		case GSTORE_ARROW_END:
			return;
		case GSTORE_ARROW_UNREADABLE:
			gstore_load_fail_file(source);
			break;
		case GSTORE_ARROW_NO_MEMORY:
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
			break;
		case GSTORE_ARROW_UNSUPPORTED:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("file \"%s\" cannot be loaded: %s", source->path, why),
					 errhint("Write it without compression and dictionaries, with columns of types that "
							 "the documentation lists.")));
			break;
		case GSTORE_ARROW_MALFORMED:
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
					 errmsg("file \"%s\" is no file of Arrow's: %s", source->path, why)));
	}
}

static uint64
write_file(gstore_loading *load, gstore_arrow_file *file)
{
	gstore_load_batch	batch;
	char				why[GSTORE_ARROW_TEXT_BYTES];
	gstore_arrow_result result;
	uint64				rows = 0;

	load->batch = &batch;
	for (;;)
	{
		result = gstore_arrow_file_next(file, &batch, why);
		fail_unless_ok(result, load->source, why);
		if (result == GSTORE_ARROW_END)
			return rows;
		if (load->pending == NULL)
			begin_writing(load);
		rows += write_batch(load);
	}
}

Datum
gstore_load_file(PG_FUNCTION_ARGS)
{
	gstore_loading	   load = {0};
	gstore_load_source source = {0};
	gstore_arrow_input input = {.read = read_input, .argument = &source};
	gstore_arrow_file *file;
	char			  *path = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char			   why[GSTORE_ARROW_TEXT_BYTES];
	volatile uint64	   rows = 0;

	canonicalize_path(path);
	check_may_read_files();
	(void) begin_load(&load, PG_GETARG_OID(0), &source, "gstore_load_file()");
	open_source_file(path, &source);
	input.bytes = source.bytes;
	fail_unless_ok(gstore_arrow_file_open(&input, &file, why), &source, why);
	PG_TRY();
	{
		rows = write_file(&load, file);
	}
	PG_FINALLY();
	{
		gstore_arrow_file_close(file);
	}
	PG_END_TRY();
	end_load(&load);
	CloseTransientFile(source.file);
	PG_RETURN_INT64((int64) rows);
}
