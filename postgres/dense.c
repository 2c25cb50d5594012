/*
 * gstore_export_ipchandle(): a table as one dense piece of device memory, under a CUDA handle that any program
 * opens; in the 'pgstrom' format (gvmem/gstore_kds.h) here, in 'arrow' by dense_arrow.c.
 *
 * A copy is made once for a revision and lives as long as that: it hangs on the version, and goes with
 * it. After an ALTER of columns the next caller gets another copy in its place. Columns of a table without
 * dead rows are copied on the device; of one with dead rows, and offsets of bodies in any case, through
 * windows. One copy of a table is made at a time, so that two sessions that ask for the same one do not
 * make it twice.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_foreign_table.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include <gvmem/gstore_kds.h>

#include "postgres/dense.h"
#include "postgres/privileges.h"
#include "postgres/progress.h"
#include "postgres/reload.h"
#include "postgres/store.h"
#include "postgres/table.h"
#include "postgres/window.h"

PG_FUNCTION_INFO_V1(gstore_export_ipchandle);

#define OFFSETS_AT_A_TIME 65536u
#define BODIES_AT_A_TIME  (1u << 20)

/* ---- what may be copied */

uint64
gstore_dense_definition(Relation relation)
{
	const TupleDesc desc = RelationGetDescr(relation);
	uint64			sum = (uint64) desc->natts;

	for (int i = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);
		const uint32			type[] = {a->attisdropped, a->atttypid, (uint32) a->atttypmod};

		sum = hash_bytes_extended((const unsigned char *) type, sizeof type, sum);
		sum = hash_bytes_extended((const unsigned char *) NameStr(a->attname),
								  (int) strlen(NameStr(a->attname)), sum);
	}
	return sum;
}

bool
gstore_dense_find(Relation relation, const gstore_view *view, gstore_copy *out)
{
	return gstore_get_copy(RelationGetRelid(relation), view, out) &&
		out->definition == gstore_dense_definition(relation);
}

/* By this transaction, and not undone. */
static bool
is_altered(Relation relation, AttrNumber number)
{
	const HeapTuple tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(RelationGetRelid(relation)),
											Int16GetDatum(number));
	bool			altered;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u", number,
			 RelationGetRelid(relation));
	altered = TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
	ReleaseSysCache(tuple);
	return altered;
}

void
gstore_dense_check(Relation relation, const gstore_view *view)
{
	for (int i = 0; i < RelationGetDescr(relation)->natts; i++)
		if (is_altered(relation, (AttrNumber) (i + 1)))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot copy table \"%s\": this transaction has altered its columns",
							RelationGetRelationName(relation)),
					 errhint("COMMIT first: a copy is for others, too.")));
	gstore_check_columns(relation, view);
}

/* ---- sizes */

static uint64
count_items(const gstore_view *view)
{
	uint64 dead = 0;

	if (view->dead == NULL)
		return view->live_rows;
	for (uint64 row = 0; row < view->rows && row / 8 < view->dead_bytes; row++)
		dead += gstore_view_is_dead(view, row);
	return view->rows - dead;
}

static bool
is_there(const gstore_dense *d, int index)
{
	return index < d->view->column_count && !d->view->columns[index].dropped &&
		!TupleDescAttr(RelationGetDescr(d->relation), index)->attisdropped;
}

static void
read_offsets(const gstore_dense *d, int index, uint64 first, uint64 count, uint64 *offsets)
{
	const gstore_piece piece = {.column = (uint16) (index + 1),
								.part = GSTORE_VALUES,
								.offset_bytes = first * sizeof *offsets,
								.bytes = count * sizeof *offsets,
								.local = offsets};

	CHECK_FOR_INTERRUPTS();
	gstore_transfer(GSTORE_READ, &d->view->name, &piece, 1);
}

/* Of the bodies of rows that are not dead. They are in the order of their rows, one behind the other. */
static uint64
dense_body_bytes(const gstore_dense *d, int index)
{
	const uint64 end = d->view->columns[index].bodies_bytes;
	uint64		*offsets;
	uint64		 sum = 0, previous = 0;
	bool		 live = false;

	if (d->view->dead == NULL)
		return d->view->columns[index].bodies_bytes - GSTORE_BODY_ALIGN;
	offsets = MemoryContextAlloc(d->scratch, sizeof *offsets * OFFSETS_AT_A_TIME);
	for (uint64 first = 0; first < d->view->rows; first += OFFSETS_AT_A_TIME)
	{
		const uint64 count = Min(OFFSETS_AT_A_TIME, d->view->rows - first);

		read_offsets(d, index, first, count, offsets);
		for (uint64 i = 0; i < count; i++)
		{
			if (offsets[i] == 0)
				continue;
			if (live)
				sum += offsets[i] - previous;
			previous = offsets[i];
			live = !gstore_view_is_dead(d->view, first + i);
		}
	}
	if (live)
		sum += end - previous;
	pfree(offsets);
	return sum;
}

static void
describe_uniform(const gstore_column *column, gstore_kds_column *to)
{
	to->uniform = gstore_uniform_kind(column);
	to->count = column->form == GSTORE_FORM_DECIMAL ? column->precision : column->count;
	to->scale = column->scale;
	to->element = column->element;
}

/* Lays the columns out behind the head. */
static void
lay_out_columns(gstore_dense *d)
{
	gstore_kds_head *head = d->head;
	const TupleDesc	 desc = RelationGetDescr(d->relation);

	d->end = d->head_bytes;
	for (int i = 0; i < desc->natts; i++)
	{
		gstore_kds_column	*to = &gstore_kds_columns(head)[i];
		const gstore_column *column = &d->view->columns[i];
		uint64				 extra = 0;

		if (!is_there(d, i))
			continue;
		to->width = gstore_stride(column);
		if (gstore_is_uniform(column))
			describe_uniform(column, to);
		if (gstore_is_variable(column))
			extra = dense_body_bytes(d, i);
		else if (column->has_nulls)
			extra = gstore_kds_round((d->items + 7) / 8, GSTORE_KDS_EXTRA_ALIGN);
		d->end = gstore_kds_round(d->end, GSTORE_KDS_ALIGN);
		to->va_offset = d->end;
		to->extra_sz = extra;
		d->end += gstore_kds_round(to->width * d->items, GSTORE_KDS_EXTRA_ALIGN) + extra;
	}
	head->length = d->end;
}

static int8
align_bytes(char align)
{
	switch (align)
	{
		case TYPALIGN_CHAR:
			return 1;
		case TYPALIGN_SHORT:
			return 2;
		case TYPALIGN_INT:
			return 4;
		default:
			return 8;
	}
}

static void
write_kds_head(gstore_dense *d)
{
	const TupleDesc	 desc = RelationGetDescr(d->relation);
	gstore_kds_head *head;
	char			*names;

	d->head_bytes = gstore_kds_head_bytes((uint32) desc->natts);
	d->head = head = palloc0(d->head_bytes);
	head->nitems = d->items;
	head->version = GSTORE_KDS_VERSION;
	head->ncols = (uint32) desc->natts;
	head->format = GSTORE_KDS_COLUMN;
	head->has_attnames = 1;
	head->tdtypeid = desc->tdtypeid;
	head->tdtypmod = desc->tdtypmod;
	head->table_oid = RelationGetRelid(d->relation);
	head->head_bytes = sizeof *head;
	head->column_bytes = sizeof gstore_kds_columns(head)[0];
	names = (char *) &gstore_kds_columns(head)[desc->natts];
	for (int i = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute a = TupleDescAttr(desc, i);

		gstore_kds_columns(head)[i] = (gstore_kds_column){.attbyval = a->attbyval,
														  .attalign = align_bytes(a->attalign),
														  .attlen = a->attlen,
														  .attnum = a->attnum,
														  .attcacheoff = -1,
														  .atttypid = a->attisdropped ? InvalidOid
																					  : a->atttypid,
														  .atttypmod = a->atttypmod};
		if (a->attisdropped)
			continue;
		if (!a->attbyval)
			head->has_notbyval = 1;
		strlcpy(names + (Size) i * GSTORE_KDS_NAME_BYTES, NameStr(a->attname), GSTORE_KDS_NAME_BYTES);
	}
}

static void
lay_out(gstore_dense *d)
{
	if (d->view->arrow)
		gstore_dense_lay_out_arrow(d);
	else
	{
		write_kds_head(d);
		lay_out_columns(d);
	}
}

uint64
gstore_dense_length(Relation relation, const gstore_view *view)
{
	gstore_dense  d = {.relation = relation, .view = view, .items = count_items(view)};
	MemoryContext old;

	if (view->empty || d.items == 0)
		return 0;
	d.scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore length", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(d.scratch);
	lay_out(&d);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(d.scratch);
	return d.end;
}

/* ---- contents */

void
gstore_dense_put(gstore_dense *d, uint64 offset, const void *bytes, uint64 count)
{
	const gstore_piece piece = {.offset_bytes = offset, .bytes = count, .local = (void *) bytes};

	if (count > 0)
		gstore_transfer_far(GSTORE_COPY_WRITE, &d->view->name, &d->far, &piece, 1);
	gstore_progress_add(RelationGetRelid(d->relation), 0, count);
}

void
gstore_dense_put_area(gstore_dense *d, int index, gstore_part part, uint64 from, uint64 to, uint64 count)
{
	const gstore_piece piece = {
		.column = (uint16) (index + 1), .part = part, .offset_bytes = from, .bytes = count, .to = to};

	if (count > 0)
		gstore_transfer_far(GSTORE_COPY_TAKE, &d->view->name, &d->far, &piece, 1);
	gstore_progress_add(RelationGetRelid(d->relation), 0, count);
}

/* Nothing is dead: as the store has it, but for offsets, which are relative to the values here. */
static void
put_whole_column(gstore_dense *d, int index)
{
	const gstore_column		*column = &d->view->columns[index];
	const gstore_kds_column *to = &gstore_kds_columns(d->head)[index];
	const uint64			 values = to->va_offset;
	const uint64			 extra = gstore_kds_extra_offset(to, d->items);
	uint64					*offsets, shift;

	if (!gstore_is_variable(column))
	{
		gstore_dense_put_area(d, index, GSTORE_VALUES, 0, values, d->items * to->width);
		if (column->has_nulls)
			gstore_dense_put_area(d, index, GSTORE_NULLS, 0, extra, (d->items + 7) / 8);
		return;
	}
	gstore_dense_put_area(d, index, GSTORE_BODIES, GSTORE_BODY_ALIGN, extra,
						  column->bodies_bytes - GSTORE_BODY_ALIGN);
	shift = extra - values - GSTORE_BODY_ALIGN;
	offsets = MemoryContextAlloc(d->scratch, sizeof *offsets * OFFSETS_AT_A_TIME);
	for (uint64 first = 0; first < d->items; first += OFFSETS_AT_A_TIME)
	{
		const uint64 count = Min(OFFSETS_AT_A_TIME, d->items - first);

		read_offsets(d, index, first, count, offsets);
		for (uint64 i = 0; i < count; i++)
			if (offsets[i] != 0)
				offsets[i] += shift;
		gstore_dense_put(d, values + first * sizeof *offsets, offsets, count * sizeof *offsets);
	}
	pfree(offsets);
}

/* Where the rows of a column that are not dead have got to. */
typedef struct gathered
{
	uint64		   items;		   /* in the copy so far */
	uint64		   start, body_at; /* of the values, and where the next body goes; in the copy */
	uint8		  *nulls;		   /* of all items; NULL: none is NULL */
	uint8		  *values;		   /* of one batch */
	StringInfoData bodies;		   /* that end at body_at and are not in the copy yet */
} gathered;

static void
put_bodies(gstore_dense *d, gathered *p)
{
	gstore_dense_put(d, p->body_at - (uint64) p->bodies.len, p->bodies.data, (uint64) p->bodies.len);
	resetStringInfo(&p->bodies);
}

/* Large ones go by themselves. The copy is zero between bodies. */
static void
add_body(gstore_dense *d, gathered *p, const char *body)
{
	const uint64 bytes = VARSIZE_ANY(body), aligned = TYPEALIGN64(GSTORE_BODY_ALIGN, bytes);

	if ((uint64) p->bodies.len + aligned > BODIES_AT_A_TIME)
		put_bodies(d, p);
	if (aligned > BODIES_AT_A_TIME)
		gstore_dense_put(d, p->body_at, body, bytes);
	else
	{
		enlargeStringInfo(&p->bodies, (int) aligned);
		memset(p->bodies.data + p->bodies.len, 0, aligned);
		memcpy(p->bodies.data + p->bodies.len, body, bytes);
		p->bodies.len += (int) aligned;
	}
	p->body_at += aligned;
}

static void
add_dense_row(gstore_dense *d, const gstore_column *column, const gstore_batch *batch, int index,
			  uint64 row, gathered *p, uint64 at)
{
	const bool	 null = gstore_is_null(batch, column, index, row);
	const uint32 width = gstore_stride(column);

	if (!gstore_is_variable(column))
	{
		const gstore_batch_column *c = &batch->columns[index];

		memcpy(p->values + at * width,
			   (c->uniform != NULL ? c->uniform : c->values) + (row - batch->first) * width, width);
		if (p->nulls != NULL && !null)
			p->nulls[(p->items + at) / 8] |= (uint8) (1 << ((p->items + at) % 8));
	}
	else if (null)
		((uint64 *) p->values)[at] = 0;
	else
	{
		((uint64 *) p->values)[at] = p->body_at - p->start;
		add_body(d, p, DatumGetPointer(gstore_value(batch, column, index, row)));
	}
}

static void
put_live_rows(gstore_dense *d, int index)
{
	const gstore_column		*column = &d->view->columns[index];
	const gstore_kds_column *to = &gstore_kds_columns(d->head)[index];
	const uint32			 width = to->width;
	const uint64			 values = to->va_offset;
	const uint64			 extra = gstore_kds_extra_offset(to, d->items);
	Bitmapset				*wanted = bms_make_singleton(index + 1);
	gstore_batch			*batch = gstore_batch_create(RelationGetDescr(d->relation)->natts);
	gathered				 p = {.start = values, .body_at = extra};

	if (!gstore_is_variable(column) && column->has_nulls)
		p.nulls = MemoryContextAllocExtended(d->scratch, (d->items + 7) / 8,
											 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	initStringInfo(&p.bodies);
	for (uint64 row = 0; row < d->view->rows;)
	{
		uint64 taken = 0, limit;

		CHECK_FOR_INTERRUPTS();
		(void) gstore_read(batch, d->view, wanted, row, d->view->rows - row);
		limit = batch->first + batch->count;
		p.values = MemoryContextAllocHuge(d->scratch, batch->count * width);
		for (; row < limit; row++)
			if (!gstore_view_is_dead(d->view, row))
				add_dense_row(d, column, batch, index, row, &p, taken++);
		gstore_dense_put(d, values + p.items * width, p.values, taken * width);
		p.items += taken;
		pfree(p.values);
	}
	put_bodies(d, &p);
	if (p.nulls != NULL)
		gstore_dense_put(d, extra, p.nulls, (d->items + 7) / 8);
}

static void
write_kds_columns(gstore_dense *d)
{
	for (int i = 0; i < RelationGetDescr(d->relation)->natts; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(d->scratch);

		if (is_there(d, i))
		{
			if (d->view->dead == NULL)
				put_whole_column(d, i);
			else
				put_live_rows(d, i);
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(d->scratch);
	}
}

/* ---- life */

/*
 * After an ERROR, and at exit. A command that is still under way is ended or left first: the worker frees the copy after
 * one that was left (memory.c).
 */
static void
abort_dense_copy(int code, Datum argument)
{
	const gstore_dense *d = (const gstore_dense *) DatumGetPointer(argument);

	gstore_settle();
	gstore_release_copy(d->record);
}

/* Its copy is of another definition: then those of all versions end, and one that is not outdated is made again. */
static bool
has_outdated_copy(Relation relation, const gstore_view *view)
{
	gstore_copy copy;

	return gstore_get_copy(RelationGetRelid(relation), view, &copy) &&
		copy.definition != gstore_dense_definition(relation);
}

/* Against changes of privileges from here on, until gstore_unlock_privileges(). */
static void
hang_copy(const gstore_dense *d)
{
	const Oid oid = RelationGetRelid(d->relation);
	uint32	  privileges;

	(void) gstore_share_privileges(oid, false, NULL);
	gstore_check_readable(oid);
	if (!gstore_privileges(oid, &privileges))
		elog(ERROR, "cache lookup failed for relation %u", oid);
	if (!gstore_hang_copy(oid, d->view, d->record, privileges, d->far.handle))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("table \"%s\" was emptied by a new start of the GPU memory keeper",
						RelationGetRelationName(d->relation)),
				 errhint("Repeat the transaction once the table is loaded.")));
}

/* Changes of privileges wait only for the end of it: nobody knows a copy that hangs on no version. */
static void
make_copy(Relation relation, const gstore_view *view, uint8 handle[GSTORE_HANDLE_BYTES])
{
	gstore_dense d = {.relation = relation, .view = view, .items = count_items(view)};
	const Oid replaced = has_outdated_copy(relation, view) ? RelationGetRelid(relation) : InvalidOid;

	gstore_wait_ready();
	d.scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore copy", ALLOCSET_DEFAULT_SIZES);
	lay_out(&d);
	d.far.copy_bytes = d.end;
	d.record = gstore_new_copy(replaced, &d.far.copy, gstore_dense_definition(relation), d.end);
	PG_ENSURE_ERROR_CLEANUP(abort_dense_copy, PointerGetDatum(&d));
	{
		gstore_progress_begin(GSTORE_EXPORTING, RelationGetRelid(relation), &d);
		gstore_transfer_far(GSTORE_COPY_MAKE, &d.view->name, &d.far, NULL, 0);
		if (view->arrow)
			gstore_dense_fill_arrow(&d);
		else
			write_kds_columns(&d);
		gstore_dense_put(&d, 0, d.head, d.head_bytes);
		gstore_progress_end(&d);
		hang_copy(&d);
	}
	PG_END_ENSURE_ERROR_CLEANUP(abort_dense_copy, PointerGetDatum(&d));
	gstore_unlock_privileges(ShareLock);
	memcpy(handle, d.far.handle, GSTORE_HANDLE_BYTES);
	MemoryContextDelete(d.scratch);
}

static bool
find_handle(Relation relation, const gstore_view *view, uint8 handle[GSTORE_HANDLE_BYTES])
{
	gstore_copy copy;

	if (!gstore_dense_find(relation, view, &copy))
		return false;
	memcpy(handle, copy.handle, GSTORE_HANDLE_BYTES);
	return true;
}

static bool
find_or_make(Relation relation, uint8 handle[GSTORE_HANDLE_BYTES])
{
	const Oid	oid = RelationGetRelid(relation);
	gstore_view view;

	gstore_look_now(oid, GSTORE_DEAD_NOT_WANTED, &view);
	if (view.empty || view.live_rows == 0)
		return false;
	gstore_dense_check(relation, &view);
	if (find_handle(relation, &view, handle))
		return true;
	LockDatabaseObject(ForeignTableRelationId, oid, 1, ExclusiveLock);
	/* The same one, unless its rows were lost and loaded meanwhile. */
	gstore_look_now(oid, GSTORE_DEAD_HERE, &view);
	gstore_check_columns(relation, &view);
	if (!view.empty && !find_handle(relation, &view, handle))
		make_copy(relation, &view, handle);
	UnlockDatabaseObject(ForeignTableRelationId, oid, 1, ExclusiveLock);
	return !view.empty;
}

Datum
gstore_export_ipchandle(PG_FUNCTION_ARGS)
{
	const Oid oid = PG_GETARG_OID(0);
	bytea	 *result = palloc(VARHDRSZ + GSTORE_HANDLE_BYTES);
	Relation  relation;
	bool	  found;

	gstore_check_readable(oid);
	relation = relation_open(oid, AccessShareLock);
	found = find_or_make(relation, (uint8 *) VARDATA(result));
	relation_close(relation, AccessShareLock);
	if (!found)
		PG_RETURN_NULL();
	SET_VARSIZE(result, VARHDRSZ + GSTORE_HANDLE_BYTES);
	PG_RETURN_BYTEA_P(result);
}
