/*
 * gstore_export(): a token with which other processes attach a table's memory.
 *
 * The token leads to a manifest (keeper/table/manifest.h): names, types and links of the columns, and how many
 * rows there are. Manifests of one store share an object beside its columns, a ring; it goes with the
 * store, and so a token is stale when its rows are. A user who exports a table whose rows and columns are as
 * at the latest export gets the same token again (token.h).
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tupdesc.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include <gvmem/kernels.h>
#include <gvmem/table.h>

#include "keeper/table/manifest.h"
#include "postgres/arrow.h"
#include "postgres/fdw.h"
#include "postgres/memory.h"
#include "postgres/pending.h"
#include "postgres/privileges.h"
#include "postgres/reload.h"
#include "postgres/scan.h"
#include "postgres/table.h"
#include "postgres/token.h"

PG_FUNCTION_INFO_V1(gstore_export);

/* ---- what may be exported */

static Relation
open_table(Oid oid)
{
	Relation relation;

	gstore_check_readable(oid);
	relation = try_relation_open(oid, AccessShareLock);
	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", oid)));
	return relation;
}

static uint64
next_revision(Oid oid)
{
	const gstore_table *table;
	uint64				revision;

	LWLockAcquire(gstore->lock, LW_SHARED);
	table = gstore_find_table(oid, false);
	revision = table != NULL ? (uint64) table->revisions + 1 : 1;
	LWLockRelease(gstore->lock);
	return revision;
}

/*
 * Deleted rows would be there for who reads the memory, so the table is written anew without them: a
 * change of this transaction. Until it commits others see the store that was, and the token is good all
 * the same; if it aborts, the token is stale. True: view is of a store that is ours.
 */
static bool
compact_for_export(Relation relation, gstore_view *view)
{
	const Oid		oid = RelationGetRelid(relation);
	gstore_pending *pending;
	uint64			first, limit;

	if (!gstore_is_owner(oid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot export table \"%s\": it has deleted rows among the others",
						RelationGetRelationName(relation)),
				 errhint("Its owner can rewrite it, with gstore_fdw_compact() or by exporting it.")));
	PreventCommandIfReadOnly("gstore_export() of a table with deleted rows");
	(void) gstore_compact(relation);
	gstore_check_newest(relation, GetActiveSnapshot()); /* another transaction may have been first */
	pending = gstore_pending_find(oid);
	gstore_look(oid, NULL, GSTORE_DEAD_NOT_WANTED,
				view); /* the lock is held: nobody changes it from here on */
	if (view->empty || view->live_rows == view->rows)
		return false; /* another transaction was first */
	*view = *gstore_pending_rows(pending, GetCurrentCommandId(false), &first, &limit);
	view->revision = (uint32) next_revision(oid);
	return true;
}

/* What the statement sees of the table. True: of a store that this transaction has made. */
static bool
choose_revision(Relation relation, gstore_view *view)
{
	const Oid oid = RelationGetRelid(relation);

	if (gstore_pending_find(oid) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot export table \"%s\": this transaction has changed it",
						RelationGetRelationName(relation)),
				 errhint("COMMIT first: others read what is committed.")));
	gstore_look_now(oid, GSTORE_DEAD_NOT_WANTED, view);
	if (view->empty)
		return false;
	gstore_check_columns(relation, view);
	return view->live_rows != view->rows && compact_for_export(relation, view);
}

/* ---- the manifest */

static uint32
add_manifest_text(StringInfo text, Size before, const char *what)
{
	const uint32 at = (uint32) (before + (Size) text->len);

	appendBinaryStringInfo(text, what, (int) strlen(what) + 1);
	return at;
}

static void
describe_uniform(gvmi_manifest_column *to, const gstore_column *column)
{
	to->uniform = gstore_uniform_kind(column);
	to->count = column->count;
	to->precision = column->precision;
	to->scale = column->scale;
	if (gstore_has_elements(column)) /* PostgreSQL may not have their type */
		to->element_length = (int16) column->element_width;
}

/* column: as the store has it, or would have it. */
static void
describe_column(gvmi_manifest_column *to, const gstore_column *column, bool stored,
				const Form_pg_attribute attribute, StringInfo text, Size before)
{
	const Oid base = getBaseType(attribute->atttypid);
	const Oid element = gstore_has_elements(column) ? column->element : get_base_element_type(base);

	*to = (gvmi_manifest_column){
		.name = add_manifest_text(text, before, NameStr(attribute->attname)),
		.type_name = add_manifest_text(text, before,
									   format_type_extended(attribute->atttypid, attribute->atttypmod,
															FORMAT_TYPE_TYPEMOD_GIVEN)),
		.type = attribute->atttypid,
		.base_type = base,
		.typmod = attribute->atttypmod,
		.length = attribute->attlen,
		.number = (uint16) attribute->attnum,
		.align = attribute->attalign,
		.bodies_bytes = stored ? column->bodies_bytes : 0,
	};
	if (OidIsValid(element))
	{
		bool by_value;

		to->element = element;
		get_typlenbyvalalign(element, &to->element_length, &by_value, &to->element_align);
	}
	if (attribute->attbyval)
		to->flags |= GVMI_COLUMN_BY_VALUE;
	if (!stored)
		to->flags |= GVMI_COLUMN_ABSENT;
	else
	{
		if (gstore_part_bytes(column, GSTORE_NULLS, 1) > 0)
			to->flags |= GVMI_COLUMN_NULLS;
		if (column->pglz || column->was_pglz)
			to->flags |= GVMI_COLUMN_PGLZ;
		if (column->has_element_nulls)
			to->flags |= GVMI_COLUMN_ELEMENT_NULLS;
	}
	to->width = gstore_stride(column);
	if (gstore_is_uniform(column))
		describe_uniform(to, column);
}

/* A column that is not stored has Arrow's type of nothing but NULLs, which has no buffers. */
static void
describe_arrow(gvmi_manifest_column *to, const gstore_column *column, bool stored, StringInfo text,
			   Size before)
{
	char format[GSTORE_ARROW_FORMAT_BYTES] = "n", element[GSTORE_ARROW_FORMAT_BYTES] = "";

	if (stored)
	{
		gstore_arrow_format(column, format);
		gstore_arrow_element_format(column, element);
		if (gstore_arrow_is_variable(column))
			to->width = sizeof(int64);
		else if (column->form == GSTORE_FORM_BOOL)
			to->width = 0;
	}
	to->arrow = add_manifest_text(text, before, format);
	to->arrow_element = add_manifest_text(text, before, element);
}

static char *
make_manifest(Relation relation, const gstore_view *view, uint32 *bytes)
{
	const TupleDesc		  desc = RelationGetDescr(relation);
	gvmi_manifest		  head = {.magic = GVMI_MANIFEST_MAGIC,
								  .version = GVMI_TOKEN_VERSION,
								  .header_bytes = sizeof head,
								  .column_bytes = sizeof(gvmi_manifest_column),
								  .layout = view->arrow ? GVMI_LAYOUT_ARROW : GVMI_LAYOUT_PGSTROM,
								  .rows = view->rows,
								  .revision = view->revision};
	gvmi_manifest_column *columns = palloc0(sizeof *columns * (Size) Max(desc->natts, 1));
	StringInfoData		  text;
	Size				  before;
	char				 *all;

	for (int i = 0; i < desc->natts; i++)
		head.columns += !TupleDescAttr(desc, i)->attisdropped;
	before = sizeof head + sizeof *columns * head.columns;
	initStringInfo(&text);
	head.schema = add_manifest_text(&text, before, get_namespace_name(RelationGetNamespace(relation)));
	head.name = add_manifest_text(&text, before, RelationGetRelationName(relation));
	for (int i = 0, n = 0; i < desc->natts; i++)
	{
		const Form_pg_attribute attribute = TupleDescAttr(desc, i);
		const bool				stored = i < view->column_count && !view->columns[i].dropped;
		gstore_column			column;

		if (attribute->attisdropped)
			continue;
		column = stored ? view->columns[i] : gstore_describe_column(relation, i, view->arrow);
		describe_column(&columns[n], &column, stored, attribute, &text, before);
		if (view->arrow)
			describe_arrow(&columns[n], &column, stored, &text, before);
		n++;
	}
	head.bytes = (uint32) (before + (Size) text.len);
	if (head.bytes > GVMI_MANIFEST_BYTES_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the description of table \"%s\" is too long to be exported",
						RelationGetRelationName(relation)),
				 errdetail("It has %u bytes, and may have %u.", head.bytes, GVMI_MANIFEST_BYTES_MAX),
				 errhint("Export a table with fewer columns.")));
	all = palloc(head.bytes);
	memcpy(all, &head, sizeof head);
	memcpy(all + sizeof head, columns, before - sizeof head);
	memcpy(all + before, text.data, (Size) text.len);
	*bytes = head.bytes;
	return all;
}

/* ---- its place */

/* NULL: the store is gone, with its keeper. One that is ours is in no version yet. The lock is held. */
static gstore_store *
find_store(Oid oid, const gstore_view *view, bool own)
{
	const gstore_table *table = gstore_find_table(oid, false);

	if (own)
		return gstore_at(view->store);
	for (const gstore_version *v = table != NULL ? gstore_at(table->newest) : NULL; v != NULL;
		 v = gstore_at(v->older))
		if (v->store == view->store)
			return gstore_at(view->store);
	return NULL;
}

/* The place of the manifest. True: it is there already, from an export before. */
static bool
choose_place(Oid oid, const gstore_view *view, bool own, uint64 sum, uint32 bytes, uint64 *at)
{
	gstore_store *store;
	bool		  known = false;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	store = find_store(oid, view, own);
	if (store != NULL)
	{
		known = store->manifest_bytes == bytes && store->manifest_sum == sum;
		if (!known && store->manifest_end + bytes > GVMI_MANIFEST_RING_BYTES)
			store->manifest_end = 0;
		*at = known ? store->manifest_at : store->manifest_end;
	}
	LWLockRelease(gstore->lock);
	if (store == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("the GPU memory keeper was started anew: the table is empty"),
				 errhint("Repeat the transaction once the table is loaded.")));
	return known;
}

static void
note_place(Oid oid, const gstore_view *view, bool own, uint64 sum, uint32 bytes, uint64 at)
{
	gstore_store *store;

	LWLockAcquire(gstore->lock, LW_EXCLUSIVE);
	store = find_store(oid, view, own);
	if (store != NULL)
	{
		store->manifest_sum = sum;
		store->manifest_at = at;
		store->manifest_bytes = bytes;
		store->manifest_end = at + TYPEALIGN(GVMI_MANIFEST_ALIGN, bytes);
	}
	LWLockRelease(gstore->lock);
}

static char *
write_token(const uint8 secret[GSTORE_SECRET_BYTES], uint64 sum, uint32 bytes, uint64 at)
{
	char path[GSTORE_LINK_PATH_BYTES];

	gstore_link_path(secret, path);
	return gstore_check_token(psprintf(
		"%s%d:%016llx:%llu:%u:%u:%s:%s", GVMI_TOKEN_PREFIX, GVMI_TOKEN_VERSION,
		(unsigned long long) sum, (unsigned long long) at, bytes, gstore->owner, path, gstore->path));
}

/* In format 'pgstrom' they begin at 8. */
static bool
has_bodies(const gstore_column *column)
{
	return column->bodies_bytes > (gstore_is_arrow(column) ? 0 : GSTORE_BODY_ALIGN);
}

/*
 * The areas of an export, palloc'd: first that of the manifests, of which the caller says how far it reaches; then those that
 * the manifest lists, as far as the view's rows reach; last, with_deleted, that of bitmaps of deleted rows. What is behind that
 * in an area's last chunk is not kept back (docs/design/gstore.md).
 */
static int
list_areas(Relation relation, const gstore_view *view, bool with_deleted, gstore_piece **out)
{
	const TupleDesc desc = RelationGetDescr(relation);
	gstore_piece   *all = palloc0(sizeof *all *
								  (2 + (Size) view->column_count * (GSTORE_ELEMENT_NULLS + 1)));
	int				count = 0;

	all[count++] = (gstore_piece){.column = 0, .part = GSTORE_MANIFEST};
	for (int i = 0; i < Min(desc->natts, view->column_count); i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped || view->columns[i].dropped)
			continue;
		for (int part = GSTORE_VALUES; part <= GSTORE_ELEMENT_NULLS; part++)
		{
			const uint64 bytes = gstore_part_bytes(&view->columns[i], (gstore_part) part, view->rows);

			if (bytes > 0 && (part != GSTORE_BODIES || has_bodies(&view->columns[i])))
				all[count++] = (gstore_piece){
					.column = (uint16) (i + 1), .part = (uint8) part, .bytes = bytes};
		}
	}
	if (with_deleted)
		all[count++] = (gstore_piece){
			.column = 0, .part = GSTORE_DELETED, .bytes = view->deleted_at + view->deleted_bytes};
	*out = all;
	return count;
}

/* ---- what was unpacked for an export that fails goes back */

static Oid unpacked = InvalidOid;

static void
request_repacking(void)
{
	if (OidIsValid(unpacked))
		gstore_ask_trim(unpacked, GSTORE_NO_WRITER);
	unpacked = InvalidOid;
}

static void
export_xact_callback(XactEvent event, void *argument)
{
	if (event == XACT_EVENT_ABORT)
		request_repacking();
}

static void
export_subxact_callback(SubXactEvent event, SubTransactionId mine, SubTransactionId parent,
						void *argument)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		request_repacking();
}

void
gstore_export_init(void)
{
	RegisterXactCallback(export_xact_callback, NULL);
	RegisterSubXactCallback(export_subxact_callback, NULL);
}

/* An export: what its token is of. */
typedef struct exported
{
	Relation		   relation;
	const gstore_view *view;
	bool			   own;
	gstore_export_kind kind;
	char			  *manifest;
	uint32			   bytes; /* of it */
	gstore_piece	  *areas;
	int				   count;
	gstore_token_key   key;
	uint64			   at;		/* where the manifest is, or is to be */
	gstore_answer	  *refused; /* NULL: ERROR */
} exported;

static bool
is_for_query(gstore_export_kind kind)
{
	return kind == GSTORE_EXPORT_QUERY || kind == GSTORE_EXPORT_FURTHER;
}

static bool
transfer(const exported *e, gstore_verb verb, gstore_far *far, const gstore_piece *pieces, int count)
{
	return gstore_try_transfer(verb, &e->view->name, far, pieces, count, e->refused);
}

/* What takes long of an export, before changes of privileges have to wait for it. */
static bool
unpack_store(const exported *e)
{
	gstore_far far = {0};

	unpacked = RelationGetRelid(e->relation);
	return transfer(e, GSTORE_UNPACK_BYTES, &far, e->areas, e->count) &&
		(far.copy_bytes == 0 || transfer(e, GSTORE_UNPACK, NULL, e->areas, e->count));
}

/* Against changes of privileges until gstore_unlock_privileges(). *known: the manifest is at its place. */
static bool
begin_token(exported *e, bool waits, bool *known)
{
	const Oid oid = RelationGetRelid(e->relation);

	if (!gstore_share_privileges(oid, waits, e->refused))
		return false;
	if (!is_for_query(e->kind))
		gstore_check_readable(oid);
	if (!gstore_privileges(oid, &e->key.privileges))
		elog(ERROR, "cache lookup failed for relation %u", oid);
	*known = choose_place(oid, e->view, e->own, e->key.sum, e->bytes, &e->at);
	e->areas[0].bytes = e->at + e->bytes;
	return true;
}

/* *renewed: a token that the user has for the same; its links keep the areas as they are. */
static bool
renew_export(exported *e, uint8 secret[GSTORE_SECRET_BYTES], bool *renewed)
{
	bool known;

	if (!begin_token(e, e->kind == GSTORE_EXPORT_FURTHER, &known))
		return false;
	*renewed = known && gstore_token_renew(e->view, &e->key, e->areas, e->count, secret);
	gstore_unlock_privileges(ShareLock);
	return true;
}

static bool
write_manifest(exported *e)
{
	const gstore_piece piece = {.column = 0,
								.part = GSTORE_MANIFEST,
								.local = e->manifest,
								.bytes = e->bytes,
								.offset_bytes = e->at};

	if (!transfer(e, GSTORE_WRITE, NULL, &piece, 1))
		return false;
	note_place(RelationGetRelid(e->relation), e->view, e->own, e->key.sum, e->bytes, e->at);
	return true;
}

/* *changing: changes of privileges have taken longer than others can be kept from the table's exports. */
static bool
make_token(exported *e, uint8 secret[GSTORE_SECRET_BYTES], bool *changing)
{
	bool known, done;

	if (!unpack_store(e))
		return false;
	*changing = !begin_token(e, false, &known);
	if (*changing)
		return false;
	done = (known || write_manifest(e)) &&
		gstore_token_make(RelationGetRelid(e->relation), e->view, &e->key, e->areas, e->count,
						  secret, e->refused);
	gstore_unlock_privileges(ShareLock);
	return done;
}

/* One export of a table at a time; they wait for nobody else. An ERROR ends it, too. */
static bool
make_token_alone(exported *e, uint8 secret[GSTORE_SECRET_BYTES], bool *changing)
{
	const Oid oid = RelationGetRelid(e->relation);
	bool	  done;

	LockDatabaseObject(ForeignTableRelationId, oid, 0, ExclusiveLock);
	done = make_token(e, secret, changing);
	if (done)
		unpacked = InvalidOid;
	else
		request_repacking();
	UnlockDatabaseObject(ForeignTableRelationId, oid, 0, ExclusiveLock);
	return done;
}

/* A query that has to go on waits for changes of privileges where that keeps nobody else waiting: in renew_export(). */
static bool
find_or_make_token(exported *e, uint8 secret[GSTORE_SECRET_BYTES])
{
	bool changing, renewed;

	do
	{
		changing = false;
		if (!renew_export(e, secret, &renewed))
			return false;
		if (renewed || make_token_alone(e, secret, &changing))
			return true;
	} while (changing && e->kind == GSTORE_EXPORT_FURTHER);
	return false;
}

char *
gstore_export_rows(Relation relation, const gstore_view *view, bool own, gstore_export_kind kind,
				   gstore_answer *refused)
{
	const bool for_call = kind != GSTORE_EXPORT_USER;
	exported e = {.relation = relation, .view = view, .own = own, .kind = kind, .refused = refused};
	uint8	 secret[GSTORE_SECRET_BYTES];

	e.manifest = make_manifest(relation, view, &e.bytes);
	e.key = (gstore_token_key){.sum = gvm_kernel_checksum_host(e.manifest, e.bytes),
							   .for_call = for_call,
							   .for_query = is_for_query(kind),
							   .writer_number = for_call ? view->name.writer_number : 0};
	e.count = list_areas(relation, view, for_call && gstore_links_deleted(view), &e.areas);
	if (!find_or_make_token(&e, secret))
		return NULL;
	return write_token(secret, e.key.sum, e.bytes, e.at);
}

Datum
gstore_export(PG_FUNCTION_ARGS)
{
	Relation	relation = open_table(PG_GETARG_OID(0));
	gstore_view view;
	char	   *token = NULL;
	bool		own;

	gstore_wait_ready();
	own = choose_revision(relation, &view);
	if (!view.empty)
		token = gstore_export_rows(relation, &view, own, GSTORE_EXPORT_USER, NULL);
	relation_close(relation, NoLock); /* the lock stays: no DROP before the caller has the token */
	if (token == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(token));
}
