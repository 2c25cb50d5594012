/*
 * See gpu_worker.h: the tables of a call. Those that are attached stay so from call to call, until another role's call, or a
 * time without calls; leases last as long as a call. query/tables.c does that for the executor of queries, too.
 *
 * All are reached over one connection to the keeper, which the spawner has made. The program makes no other.
 */
#include "postgres/plcuda/gpu_worker.h"

#include <string.h>

#include "postgres/spawner.h"

static gquery_tables *tables;

plcuda_leased plcuda_leases[PLCUDA_TABLES_MAX];

/* ---- attaching */

void
plcuda_detach_tables(void)
{
	plcuda_release_tables();
	if (tables != NULL)
		gquery_tables_detach_unused(tables, 0);
}

static bool
use_keeper(plcuda_message *answer)
{
	const gvm_status status = tables != NULL ? GVM_OK
											 : gquery_tables_create(GSTORE_SPAWN_KEEPER, &tables);

	if (status == GVM_OK)
		return true;
	plcuda_answer_status(answer, status, "cannot use the connection to the GPU memory keeper");
	answer->lost = 1;
	return false;
}

/* As many objects are open as can be: those of tables that no call uses now are closed, and there may be places. */
static bool
close_unused(gvm_status status)
{
	if (status == GVM_E_LIMIT)
		gquery_tables_detach_unused(tables, 0);
	return status == GVM_E_LIMIT;
}

static bool
attach_table(const char *token, plcuda_leased *l, plcuda_message *answer)
{
	gvm_status status;

	if (!use_keeper(answer))
		return false;
	status = gquery_tables_attach(tables, token, &l->attached);
	if (close_unused(status))
		status = gquery_tables_attach(tables, token, &l->attached);
	if (status == GVM_OK)
		return true;
	l->attached = NULL;
	plcuda_answer_status(answer, status, "cannot attach a table");
	return false;
}

static bool
check_table(const plcuda_wanted_table *wanted, const gvm_table_info *info, int32_t *ordinal,
			plcuda_message *answer)
{
	if (info->rows != wanted->rows)
		plcuda_answer_error(answer, "55000", "a table has other rows than its token");
	else if (*ordinal >= 0 && info->device != *ordinal)
		plcuda_answer_error(answer, "0A000", "the tables of one call must be on one GPU");
	else
	{
		*ordinal = info->device;
		return true;
	}
	return false;
}

bool
plcuda_attach_tables(plcuda_window *window, int32_t *ordinal, plcuda_message *answer)
{
	plcuda_release_tables();
	*ordinal = -1;
	for (uint32_t i = 0; i < window->table_count; i++)
	{
		plcuda_wanted_table *wanted = &window->tables[i];
		plcuda_leased		*l = &plcuda_leases[i];

		wanted->token[PLCUDA_TOKEN_BYTES - 1] = '\0';
		if (wanted->token[0] != '\0' &&
			(!attach_table(wanted->token, l, answer) ||
			 !check_table(wanted, &l->attached->info, ordinal, answer)))
			return false;
	}
	return true;
}

/* ---- leases */

/* Those of the table that the function may read, by their index; a column that has been altered since is not one of them. */
static uint32_t
list_columns(const gquery_attached *a, const plcuda_wanted_table *wanted, uint32_t *columns)
{
	const plcuda_wanted_column *all = plcuda_at(wanted->columns);
	const uint64_t				all_count = wanted->columns.bytes / sizeof *all;
	uint32_t					count = 0;

	for (uint32_t i = 0; i < a->info.columns && all != NULL; i++)
	{
		const gvm_table_column *c = &a->columns[i];

		if (c->number >= 1 && c->number <= all_count && all[c->number - 1].type == c->base_type)
			columns[count++] = i;
	}
	return count;
}

static bool
acquire_table(plcuda_leased *l, const plcuda_wanted_table *wanted, plcuda_message *answer)
{
	static uint32_t columns[PLCUDA_COLUMNS_MAX];
	const uint64_t	bytes = wanted->deleted_bytes;
	const uint32_t	count = list_columns(l->attached, wanted, columns);
	gvm_status		status = gquery_leases_take(tables, l->attached, columns, count, bytes > 0,
												GQUERY_LEASE_MS, l->data, &l->leases);

	if (close_unused(status))
		status = gquery_leases_take(tables, l->attached, columns, count, bytes > 0, GQUERY_LEASE_MS,
									l->data, &l->leases);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot read a table");
		return false;
	}
	if (bytes == 0)
		return true;
	if (bytes > l->leases.deleted.size_bytes || wanted->deleted_at > l->leases.deleted.size_bytes - bytes)
	{
		plcuda_answer_error(answer, "XX000", "a table's bitmap of deleted rows is not where it was");
		return false;
	}
	l->deleted = (uint64_t) (uintptr_t) l->leases.deleted.address + wanted->deleted_at;
	return true;
}

bool
plcuda_acquire_tables(const plcuda_window *window, plcuda_message *answer)
{
	for (uint32_t i = 0; i < window->table_count && i < PLCUDA_TABLES_MAX; i++)
		if (plcuda_leases[i].attached != NULL &&
			!acquire_table(&plcuda_leases[i], &window->tables[i], answer))
			return false;
	return true;
}

void
plcuda_release_tables(void)
{
	for (uint32_t i = 0; i < PLCUDA_TABLES_MAX; i++)
	{
		plcuda_leased *l = &plcuda_leases[i];

		gquery_leases_release(&l->leases);
		gquery_tables_release(tables, l->attached);
		memset(l, 0, offsetof(plcuda_leased, data));
	}
}
