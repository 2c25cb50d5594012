/*
 * See gpu_worker.h: the tables of a call. Those that are attached stay so from call to call, until another role's call, or a
 * time without calls; leases last as long as a call.
 *
 * All are reached over one connection to the keeper, which the spawner has made: it opens what tokens lead to and nothing else
 * (gvm_client_restrict()). The program makes no other.
 */
#include "postgres/plcuda/gpu_worker.h"

#include <stdio.h>
#include <string.h>

#include "postgres/spawner.h"

#define ATTACHED_MAX 16 /* as many may have the same column over one connection */
#define LEASE_MS	 10000

typedef struct attached
{
	char		token[PLCUDA_TOKEN_BYTES];
	gvm_table  *table;
	gvm_object *deleted; /* NULL: not opened */
} attached;

static struct
{
	gvm_client *keeper;
	attached	tables[ATTACHED_MAX];
	uint32_t	count;
} state;

static const gvm_acquire_options no_hint = {.struct_size = sizeof no_hint};

plcuda_leased plcuda_leases[PLCUDA_TABLES_MAX];

/* ---- attaching */

void
plcuda_detach_tables(void)
{
	for (uint32_t i = 0; i < state.count; i++)
	{
		gvm_object_close(state.tables[i].deleted);
		gvm_table_detach(state.tables[i].table);
	}
	state.count = 0;
}

static bool
use_keeper(plcuda_message *answer)
{
	const gvm_status status = state.keeper != NULL
		? GVM_OK
		: gvm_client_adopt(GSTORE_SPAWN_KEEPER, &state.keeper);

	if (status == GVM_OK)
		return true;
	state.keeper = NULL;
	plcuda_answer_status(answer, status, "cannot use the connection to the GPU memory keeper");
	answer->lost = 1;
	return false;
}

static attached *
attach_table(const char *token, plcuda_message *answer)
{
	attached  *a;
	gvm_status status;

	for (uint32_t i = 0; i < state.count; i++)
		if (strcmp(state.tables[i].token, token) == 0)
			return &state.tables[i];
	if (!use_keeper(answer))
		return NULL;
	a = &state.tables[state.count];
	a->deleted = NULL;
	status = gvm_table_attach_over(state.keeper, token, 0, &a->table);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot attach a table");
		return NULL;
	}
	snprintf(a->token, sizeof a->token, "%s", token);
	state.count++;
	return a;
}

/* The version's bitmap. */
static bool
open_deleted(attached *a, plcuda_message *answer)
{
	gvm_table_info info = {.struct_size = sizeof info};
	char		   name[GVM_NAME_BYTES_MAX];
	gvm_status	   status;

	if (a->deleted != NULL)
		return true;
	status = gvm_table_get_info(a->table, &info);
	if (status == GVM_OK)
	{
		snprintf(name, sizeof name, "%s/0.deleted", info.objects);
		status = gvm_object_open(state.keeper, name, GVM_OPEN_READONLY | GVM_OPEN_LINK, &a->deleted);
	}
	if (status == GVM_OK)
		return true;
	a->deleted = NULL;
	plcuda_answer_status(answer, status, "cannot open a table's bitmap of deleted rows");
	return false;
}

static bool
check_table(const plcuda_wanted_table *wanted, gvm_table *table, int32_t *ordinal, plcuda_message *answer)
{
	gvm_table_info	 info = {.struct_size = sizeof info};
	const gvm_status status = gvm_table_get_info(table, &info);

	if (status != GVM_OK)
		plcuda_answer_status(answer, status, "cannot ask about a table");
	else if (info.rows != wanted->rows)
		plcuda_answer_error(answer, "55000", "a table has other rows than its token");
	else if (*ordinal >= 0 && info.device != *ordinal)
		plcuda_answer_error(answer, "0A000", "the tables of one call must be on one GPU");
	else
	{
		*ordinal = info.device;
		return true;
	}
	return false;
}

bool
plcuda_attach_tables(plcuda_window *window, int32_t *ordinal, plcuda_message *answer)
{
	if (state.count + window->table_count > ATTACHED_MAX)
		plcuda_detach_tables();
	*ordinal = -1;
	for (uint32_t i = 0; i < window->table_count; i++)
	{
		plcuda_wanted_table *wanted = &window->tables[i];
		attached			*a;

		memset(&plcuda_leases[i], 0, offsetof(plcuda_leased, data));
		wanted->token[PLCUDA_TOKEN_BYTES - 1] = '\0';
		if (wanted->token[0] == '\0')
			continue;
		a = attach_table(wanted->token, answer);
		if (a == NULL || !check_table(wanted, a->table, ordinal, answer) ||
			(wanted->deleted_bytes > 0 && !open_deleted(a, answer)))
			return false;
		plcuda_leases[i].table = a->table;
		plcuda_leases[i].deleted_object = wanted->deleted_bytes > 0 ? a->deleted : NULL;
	}
	return true;
}

/* ---- leases */

/* Those of the table that the function may read, by their index; a column that has been altered since is not one of them. */
static gvm_status
list_columns(gvm_table *table, const plcuda_wanted_table *wanted, uint32_t *columns, uint32_t *count)
{
	const plcuda_wanted_column *all = plcuda_at(wanted->columns);
	const uint64_t				all_count = wanted->columns.bytes / sizeof *all;
	gvm_table_info				info = {.struct_size = sizeof info};
	gvm_status					status = gvm_table_get_info(table, &info);

	*count = 0;
	for (uint32_t i = 0; i < info.columns && status == GVM_OK && all != NULL; i++)
	{
		gvm_table_column c = {.struct_size = sizeof c};

		status = gvm_table_get_column(table, i, &c);
		if (status == GVM_OK && c.number >= 1 && c.number <= all_count &&
			all[c.number - 1].type == c.base_type)
			columns[(*count)++] = i;
	}
	return status;
}

static bool
acquire_columns(plcuda_leased *l, const plcuda_wanted_table *wanted, plcuda_message *answer)
{
	static uint32_t columns[PLCUDA_COLUMNS_MAX];
	uint32_t		count;
	gvm_status		status = list_columns(l->table, wanted, columns, &count);

	if (status == GVM_OK && count > 0)
		status = gvm_table_acquire(l->table, columns, count, &no_hint, LEASE_MS, l->data);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot read a table");
		return false;
	}
	l->count = count;
	return true;
}

static bool
acquire_deleted(plcuda_leased *l, const plcuda_wanted_table *wanted, plcuda_message *answer)
{
	const gvm_status status = gvm_object_acquire(l->deleted_object, GVM_LEASE_READ, &no_hint,
												 LEASE_MS, &l->deleted_lease);

	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot read a table's bitmap of deleted rows");
		return false;
	}
	l->has_deleted_lease = true;
	if (wanted->deleted_bytes > l->deleted_lease.size_bytes ||
		wanted->deleted_at > l->deleted_lease.size_bytes - wanted->deleted_bytes)
	{
		plcuda_answer_error(answer, "XX000", "a table's bitmap of deleted rows is not where it was");
		return false;
	}
	l->deleted = (uint64_t) (uintptr_t) l->deleted_lease.address + wanted->deleted_at;
	return true;
}

bool
plcuda_acquire_tables(const plcuda_window *window, plcuda_message *answer)
{
	for (uint32_t i = 0; i < window->table_count && i < PLCUDA_TABLES_MAX; i++)
	{
		plcuda_leased *l = &plcuda_leases[i];

		if (l->table != NULL &&
			(!acquire_columns(l, &window->tables[i], answer) ||
			 (l->deleted_object != NULL && !acquire_deleted(l, &window->tables[i], answer))))
			return false;
	}
	return true;
}

void
plcuda_release_tables(void)
{
	for (uint32_t i = 0; i < PLCUDA_TABLES_MAX; i++)
	{
		plcuda_leased *l = &plcuda_leases[i];

		if (l->count > 0)
			(void) gvm_table_release(l->table, l->data, l->count);
		if (l->has_deleted_lease)
			(void) gvm_object_release(l->deleted_object, &l->deleted_lease);
		memset(l, 0, offsetof(plcuda_leased, data));
	}
}
