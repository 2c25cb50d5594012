/* What the views show: versions of tables, the keeper, statements at work. */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "postgres/dense.h"
#include "postgres/directory.h"
#include "postgres/progress.h"
#include "postgres/store.h"

PG_FUNCTION_INFO_V1(gstore_fdw_chunk_info);
PG_FUNCTION_INFO_V1(gstore_fdw_keeper_info);
PG_FUNCTION_INFO_V1(gstore_fdw_progress);

/* One row of a result, filled from left to right. */
typedef struct row
{
	ReturnSetInfo *result;
	Datum		   values[32];
	bool		   nulls[32];
	int			   count;
} row;

static void
begin_result_row(FunctionCallInfo fcinfo, row *r)
{
	InitMaterializedSRF(fcinfo, 0);
	r->result = (ReturnSetInfo *) fcinfo->resultinfo;
	r->count = 0;
}

static void
add_datum(row *r, Datum value)
{
	r->nulls[r->count] = false;
	r->values[r->count++] = value;
}

static void
add_null(row *r)
{
	r->nulls[r->count++] = true;
}

static void
add_text_datum(row *r, const char *text)
{
	add_datum(r, CStringGetTextDatum(text));
}

static void
add_int64(row *r, uint64 number)
{
	add_datum(r, Int64GetDatum((int64) number));
}

static void
finish_result_row(row *r)
{
	tuplestore_putvalues(r->result->setResult, r->result->setDesc, r->values, r->nulls);
	r->count = 0;
}

/* ---- versions */

static bool
may_see_table(Oid database, Oid relation)
{
	bool is_missing = false;

	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS)) /* superusers too */
		return true;
	return database == MyDatabaseId &&
		pg_class_aclcheck_ext(relation, GetUserId(), ACL_SELECT, &is_missing) == ACLCHECK_OK &&
		!is_missing;
}

/*
 * Deleted rows are not looked at. Of a table that is not accessible, as another database's, or one
 * that is being altered, and of a version from before a change of types, the columns by themselves
 * count.
 */
static uint64
raw_size(const gstore_version_info *v)
{
	const gstore_view *view = &v->view;
	Relation		   relation = NULL;
	uint64			   bytes;

	if (view->empty)
		return 0;
	if (v->key.database == MyDatabaseId && ConditionalLockRelationOid(v->key.relation, AccessShareLock))
	{
		relation = try_relation_open(v->key.relation, NoLock);
		if (relation == NULL)
			UnlockRelationOid(v->key.relation, AccessShareLock);
	}
	if (v->copy_bytes > 0 &&
		(relation == NULL || v->copy_definition == gstore_dense_definition(relation)))
		bytes = v->copy_bytes;
	else if (relation == NULL || gstore_find_other_form(relation, view) > 0)
		bytes = gstore_data_bytes(view->live_rows, view->columns, view->column_count);
	else
		bytes = gstore_dense_length(relation, view);
	if (relation != NULL)
		relation_close(relation, AccessShareLock);
	return bytes;
}

static void
add_version(row *r, const gstore_version_info *v)
{
	add_datum(r, ObjectIdGetDatum(v->key.database));
	add_datum(r, ObjectIdGetDatum(v->key.relation));
	add_datum(r, Int32GetDatum((int32) v->revision));
	add_datum(r, TransactionIdGetDatum(v->xmin));
	add_datum(r, TransactionIdGetDatum(v->xmax));
	if (v->view.empty)
		add_null(r);
	else
		add_datum(r, Int32GetDatum(v->device));
	if (v->view.empty)
		add_null(r);
	else
		add_text_datum(r, v->view.arrow ? "arrow" : "pgstrom");
	add_int64(r, raw_size(v));
	add_int64(r, v->view.live_rows);
	/* From here on not in version 1.0 of the extension. */
	add_datum(r, BoolGetDatum(v->view.lost));
	if (v->sized)
		add_int64(r, v->committed_bytes);
	else
		add_null(r);
	finish_result_row(r);
}

/* Versions may be many, and wide: those of one table are copied at a time. */
Datum
gstore_fdw_chunk_info(PG_FUNCTION_ARGS)
{
	gstore_table_key *tables;
	const int		  count = gstore_list_tables(NULL, &tables);
	MemoryContext	  context = AllocSetContextCreate(CurrentMemoryContext, "gstore versions",
													  ALLOCSET_DEFAULT_SIZES);
	row				  r;

	begin_result_row(fcinfo, &r);
	for (int i = 0; i < count; i++)
	{
		MemoryContext		 old;
		gstore_version_info *all;
		int					 versions;

		if (!may_see_table(tables[i].database, tables[i].relation))
			continue;
		old = MemoryContextSwitchTo(context);
		versions = gstore_list_versions(tables[i], &all);
		for (int v = 0; v < versions; v++)
			add_version(&r, &all[v]);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return (Datum) 0;
}

/* ---- the keeper */

/* Where the socket is and what went wrong is for who administers the server. */
static void
add_keeper(row *r, const gstore_report *report, bool trusted)
{
	add_datum(r, BoolGetDatum(gstore->ready));
	add_datum(r, Int32GetDatum((int32) gstore->epoch));
	add_datum(r, Int32GetDatum((int32) gstore->worker_pid));
	add_datum(r, Int64GetDatum((int64) report->keeper_pid));
	if (trusted)
		add_text_datum(r, gstore->path);
	else
		add_null(r);
	if (trusted && gstore->problem[0] != '\0')
		add_text_datum(r, gstore->problem);
	else
		add_null(r);
	add_int64(r, report->host_budget_bytes);
	add_int64(r, report->host_used_bytes);
	add_int64(r, report->clients);
	add_datum(r, Int32GetDatum(gstore_windows));
	add_datum(r, Int32GetDatum(gstore_windows - (int32) gstore->free_count));
}

static void
add_device(row *r, const gstore_device_report *device)
{
	add_datum(r, Int32GetDatum(device->ordinal));
	add_text_datum(r, device->name);
	add_datum(r, BoolGetDatum(gstore->software));
	add_int64(r, device->budget_bytes);
	add_int64(r, device->resident_bytes);
	add_int64(r, device->host_bytes);
	add_int64(r, device->copies_bytes);
	add_int64(r, device->objects);
	add_int64(r, device->evicted_bytes);
	add_int64(r, device->promoted_bytes);
}

Datum
gstore_fdw_keeper_info(PG_FUNCTION_ARGS)
{
	const bool	  trusted = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	gstore_report report;
	row			  r;

	begin_result_row(fcinfo, &r);
	if (gstore == NULL)
		return (Datum) 0; /* not loaded at server start: there is no keeper */
	LWLockAcquire(gstore->lock, LW_SHARED);
	report = gstore->report;
	LWLockRelease(gstore->lock);
	for (uint32 i = 0; i < report.device_count; i++)
	{
		add_keeper(&r, &report, trusted);
		add_device(&r, &report.devices[i]);
		finish_result_row(&r);
	}
	if (report.device_count == 0)
	{
		add_keeper(&r, &report, trusted);
		while (r.count < r.result->setDesc->natts)
			add_null(&r);
		finish_result_row(&r);
	}
	return (Datum) 0;
}

/* ---- statements */

static const char *
command_name(gstore_progress_command command)
{
	switch (command)
	{
		case GSTORE_NOTHING:
			break;
		case GSTORE_INSERTING:
			return "INSERT";
		case GSTORE_COPYING:
			return "COPY";
		case GSTORE_LOADING:
			return "LOAD";
		case GSTORE_UPDATING:
			return "UPDATE";
		case GSTORE_COMPACTING:
			return "COMPACT";
		case GSTORE_EXPORTING:
			return "EXPORT";
		case GSTORE_ALTERING:
			return "ALTER";
	}
	return "";
}

/* As in pg_stat_progress_...: that a statement runs is everybody's, what it does its user's. */
Datum
gstore_fdw_progress(PG_FUNCTION_ARGS)
{
	gstore_progress_info *all;
	const int			  count = gstore_list_progress(&all);
	row					  r;

	begin_result_row(fcinfo, &r);
	for (int i = 0; i < count; i++)
	{
		const gstore_progress_info *p = &all[i];

		add_datum(&r, Int32GetDatum(p->pid));
		add_datum(&r, ObjectIdGetDatum(p->database));
		if (has_privs_of_role(GetUserId(), p->user) ||
			has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		{
			add_datum(&r, ObjectIdGetDatum(p->relation));
			add_text_datum(&r, command_name(p->command));
			add_datum(&r, TimestampTzGetDatum(p->started));
			add_int64(&r, p->rows);
			add_int64(&r, p->bytes);
		}
		else
			while (r.count < r.result->setDesc->natts)
				add_null(&r);
		finish_result_row(&r);
	}
	return (Datum) 0;
}
