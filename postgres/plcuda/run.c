/*
 * See gpu_worker.h: a call. What lasts from call to call: the device, functions that are loaded, tables that are attached,
 * and a block of device memory for each purpose. What a call leaves behind is never read by the next: blocks are
 * written or cleared before.
 */
#include "postgres/plcuda/driver.h"
#include "postgres/plcuda/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX 64
#define ATTACHED_MAX  32
#define LEASE_MS	  10000

typedef struct function
{
	char		 *text;
	size_t		  text_bytes;
	plcuda_image  image;
	plcuda_module module;
	plcuda_entry  kernels[PLCUDA_KERNELS];
} function;

typedef struct attached
{
	char	   token[PLCUDA_TOKEN_BYTES];
	gvm_table *table;
} attached;

static struct
{
	gvm_device		   *device;
	gvm_device_info		info;
	function			functions[FUNCTIONS_MAX];
	uint32_t			function_count;
	attached			tables[ATTACHED_MAX];
	uint32_t			table_count;
	uint32_t			role;
	plcuda_device_block call, results, workbuf;
} state;

/* Of the call that runs. */
typedef struct leased
{
	gvm_table	  *table; /* NULL: empty */
	uint32_t	   count;
	gvm_table_data data[PLCUDA_COLUMNS_MAX];
} leased;

static leased leases[PLCUDA_TABLES_MAX];

/* ---- the device */

static void
forget_functions(void)
{
	for (uint32_t i = 0; i < state.function_count; i++)
	{
		(void) plcuda_cu.module_unload(state.functions[i].module);
		free(state.functions[i].image.file);
		free(state.functions[i].text);
	}
	state.function_count = 0;
}

static void
close_device(void)
{
	if (state.device == NULL)
		return;
	forget_functions();
	plcuda_release_notes();
	plcuda_release_block(&state.call);
	plcuda_release_block(&state.results);
	plcuda_release_block(&state.workbuf);
	gvm_device_pop_context();
	gvm_device_close(state.device);
	state.device = NULL;
}

static bool
use_device(int32_t ordinal, plcuda_message *answer)
{
	gvm_status status;

	if (state.device != NULL && state.info.ordinal == ordinal)
		return true;
	close_device();
	status = gvm_device_open(ordinal, &state.device);
	if (status != GVM_OK)
	{
		state.device = NULL;
		plcuda_answer_status(answer, status, "cannot open the GPU");
		return false;
	}
	state.info = (gvm_device_info){.struct_size = sizeof state.info};
	status = gvm_device_get_info(state.device, &state.info);
	if (status == GVM_OK)
		status = gvm_device_push_context(state.device);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot use the GPU");
		answer->lost = 1;
		return false;
	}
	if (plcuda_find_calls(answer))
		return true;
	answer->lost = 1;
	return false;
}

/* ---- functions */

/* Kernels that the function has not are left out. */
static bool
load_function(function *f, const plcuda_window *window, plcuda_message *answer)
{
	static const char *const names[PLCUDA_KERNELS] = {"plcuda_prep", "plcuda_main", "plcuda_post"};

	if (!plcuda_check(plcuda_cu.module_load(&f->module, f->image.bytes), "cuModuleLoadData", answer))
		return false;
	for (int i = 0; i < PLCUDA_KERNELS; i++)
		if (window->kernels[i].present &&
			!plcuda_check(plcuda_cu.function_get(&f->kernels[i], f->module, names[i]),
						  "cuModuleGetFunction", answer))
		{
			(void) plcuda_cu.module_unload(f->module);
			return false;
		}
	return true;
}

/* NULL: answer says why, also that it is to be compiled first. */
static function *
find_function(const plcuda_window *window, plcuda_message *answer)
{
	const char	 *text = plcuda_at(window->text);
	function	  f = {.text_bytes = window->text.bytes};
	plcuda_target target;

	for (uint32_t i = 0; i < state.function_count; i++)
		if (state.functions[i].text_bytes == f.text_bytes &&
			memcmp(state.functions[i].text, text, f.text_bytes) == 0)
			return &state.functions[i];
	answer->architecture = state.info.software
		? 0
		: (uint32_t) (state.info.compute_major * 10 + state.info.compute_minor);
	if (!plcuda_choose_target(window, answer->architecture, &target, answer))
		return NULL;
	if (!plcuda_load_image(window, &target, text, f.text_bytes, &f.image))
	{
		answer->verb = PLCUDA_NEED_IMAGE;
		return NULL;
	}
	if (state.function_count == FUNCTIONS_MAX)
		forget_functions();
	f.text = malloc(f.text_bytes + 1);
	if (f.text == NULL)
		plcuda_answer_error(answer, "53200", "out of memory for a function");
	else if (load_function(&f, window, answer))
	{
		memcpy(f.text, text, f.text_bytes);
		state.functions[state.function_count] = f;
		return &state.functions[state.function_count++];
	}
	free(f.text);
	free(f.image.file);
	return NULL;
}

/* ---- tables */

static void
detach_tables(void)
{
	for (uint32_t i = 0; i < state.table_count; i++)
		gvm_table_detach(state.tables[i].table);
	state.table_count = 0;
}

static gvm_table *
attach_table(const char *token, plcuda_message *answer)
{
	attached  *a;
	gvm_status status;

	for (uint32_t i = 0; i < state.table_count; i++)
		if (strcmp(state.tables[i].token, token) == 0)
			return state.tables[i].table;
	a = &state.tables[state.table_count];
	status = gvm_table_attach(token, 0, &a->table);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot attach a table");
		return NULL;
	}
	snprintf(a->token, sizeof a->token, "%s", token);
	state.table_count++;
	return a->table;
}

/* Those of the call, without leases. *ordinal: the device of all. */
static bool
attach_tables(plcuda_window *window, int32_t *ordinal, plcuda_message *answer)
{
	if (window->role != state.role || state.table_count + window->table_count > ATTACHED_MAX)
		detach_tables();
	state.role = window->role;
	*ordinal = -1;
	for (uint32_t i = 0; i < window->table_count; i++)
	{
		gvm_table_info info = {.struct_size = sizeof info};
		gvm_status	   status;

		leases[i].table = NULL;
		leases[i].count = 0;
		window->tables[i].token[PLCUDA_TOKEN_BYTES - 1] = '\0';
		if (window->tables[i].token[0] == '\0')
			continue;
		leases[i].table = attach_table(window->tables[i].token, answer);
		if (leases[i].table == NULL)
			return false;
		status = gvm_table_get_info(leases[i].table, &info);
		if (status != GVM_OK)
		{
			plcuda_answer_status(answer, status, "cannot ask about a table");
			return false;
		}
		if (info.rows != window->tables[i].rows)
		{
			plcuda_answer_error(answer, "55000", "a table has other rows than its token");
			return false;
		}
		if (*ordinal >= 0 && info.device != *ordinal)
		{
			plcuda_answer_error(answer, "0A000", "the tables of one call must be on one GPU");
			return false;
		}
		*ordinal = info.device;
	}
	if (*ordinal < 0)
		*ordinal = state.device != NULL ? state.info.ordinal : 0;
	return true;
}

static bool
acquire_table(leased *l, plcuda_message *answer)
{
	static uint32_t			  columns[PLCUDA_COLUMNS_MAX];
	const gvm_acquire_options options = gvm_acquire_options_init();
	gvm_table_info			  info = {.struct_size = sizeof info};
	gvm_status				  status = gvm_table_get_info(l->table, &info);

	for (uint32_t i = 0; i < PLCUDA_COLUMNS_MAX; i++)
		columns[i] = i;
	if (status == GVM_OK && info.columns > 0)
		status = gvm_table_acquire(l->table, columns, info.columns, &options, LEASE_MS, l->data);
	if (status != GVM_OK)
	{
		plcuda_answer_status(answer, status, "cannot read a table");
		return false;
	}
	l->count = info.columns;
	return true;
}

static void
release_tables(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
	{
		if (leases[i].count > 0)
			(void) gvm_table_release(leases[i].table, leases[i].data, leases[i].count);
		leases[i].count = 0;
	}
}

/* ---- what the kernels are given: one block, made here and copied */

typedef struct layout
{
	uint8_t *bytes; /* here; NULL while sizes are counted */
	uint64_t at;
	uint64_t address; /* there */
} layout;

/* Where the next piece is; *address is that on the device. */
static void *
place(layout *l, uint64_t bytes, uint64_t *address)
{
	const uint64_t at = l->at;

	l->at += PLCUDA_ROUND_UP(bytes);
	*address = l->address + at;
	return l->bytes != NULL ? l->bytes + at : NULL;
}

static bool
place_span(layout *l, plcuda_span span, uint64_t *address)
{
	const void *from = plcuda_at(span);
	void	   *to = place(l, span.bytes + 1, address);

	if (from == NULL)
		return false;
	if (to != NULL)
		memcpy(to, from, span.bytes);
	return true;
}

static const void *
pointer(uint64_t address)
{
	return (const void *) (uintptr_t) address;
}

static bool
describe_columns(const leased *l, const plcuda_wanted_column *wanted, uint32_t count, plcuda_column *out)
{
	for (uint32_t i = 0; i < count; i++)
	{
		memcpy(out[i].name, wanted[i].name, sizeof out[i].name);
		out[i].name[sizeof out[i].name - 1] = '\0';
		out[i].type = wanted[i].type;
	}
	for (uint32_t i = 0; i < l->count; i++)
	{
		gvm_table_column	  c = {.struct_size = sizeof c};
		const gvm_table_data *d = &l->data[i];

		if (gvm_table_get_column(l->table, i, &c) != GVM_OK)
			return false;
		/* The table may have been changed since: its catalog entry decides. */
		if (c.number < 1 || c.number > count || out[c.number - 1].type != c.base_type ||
			d->values == NULL)
			continue;
		out[c.number - 1].stored = 1;
		out[c.number - 1].values = d->values;
		out[c.number - 1].nulls = d->nulls;
		out[c.number - 1].bodies = d->bodies;
		out[c.number - 1].bodies_bytes = c.bodies_bytes;
		if (c.uniform == GVM_TABLE_BYTES)
			out[c.number - 1].uniform_bytes = c.width;
	}
	return true;
}

static bool
place_table(layout *l, const plcuda_wanted_table *wanted, const leased *lease,
			uint64_t state_address, plcuda_table *out)
{
	const uint32_t count = (uint32_t) (wanted->columns.bytes / sizeof(plcuda_wanted_column));
	const plcuda_wanted_column *columns = plcuda_at(wanted->columns);
	gvm_table_info				info = {.struct_size = sizeof info};
	uint64_t					address, dead = 0;
	plcuda_column *described = place(l, sizeof(plcuda_column) * (uint64_t) count, &address);

	if (columns == NULL || count > PLCUDA_COLUMNS_MAX ||
		(wanted->dead.bytes > 0 && !place_span(l, wanted->dead, &dead)))
		return false;
	if (l->bytes == NULL)
		return true;
	if (!describe_columns(lease, columns, count, described))
		return false;
	*out = (plcuda_table){.rows = wanted->rows,
						  .dead = pointer(dead),
						  .dead_bytes = wanted->dead.bytes,
						  .columns = pointer(address),
						  .column_count = count,
						  .state = (plcuda_state *) pointer(state_address)};
	if (lease->table != NULL)
	{
		if (gvm_table_get_info(lease->table, &info) != GVM_OK)
			return false;
		out->arrow = strcmp(info.layout, "arrow") == 0;
	}
	return true;
}

static bool
place_argument(layout *l, const plcuda_argument *argument, uint64_t tables, uint8_t *slot)
{
	uint64_t address = 0;

	if (argument->kind == PLCUDA_ARGUMENT_BYTES && !place_span(l, argument->bytes, &address))
		return false;
	if (argument->kind == PLCUDA_ARGUMENT_TABLE)
		address = tables + argument->table * PLCUDA_ROUND_UP(sizeof(plcuda_table));
	if (slot == NULL)
		return true;
	memcpy(slot, argument->slot, PLCUDA_SLOT_BYTES);
	if (argument->kind != PLCUDA_ARGUMENT_PLAIN)
		memcpy(slot, &address, sizeof address);
	return true;
}

typedef struct outcome /* begins the block, and is read back */
{
	plcuda_state state;
	uint8_t		 pad[PLCUDA_ALIGN - sizeof(plcuda_state) % PLCUDA_ALIGN];
	uint8_t		 result[PLCUDA_SLOT_BYTES];
} outcome;

static bool
place_all(layout *l, const plcuda_window *window, uint64_t *call_address)
{
	uint64_t	 outcome_address, arguments, tables;
	outcome		*o = place(l, sizeof *o, &outcome_address);
	plcuda_call *call = place(l, sizeof *call, call_address);
	uint8_t		*slots = place(l, PLCUDA_ARGUMENTS_MAX * PLCUDA_SLOT_BYTES, &arguments);
	uint8_t *described = place(l, PLCUDA_TABLES_MAX * PLCUDA_ROUND_UP(sizeof(plcuda_table)), &tables);

	for (uint32_t i = 0; i < window->table_count; i++)
		if (!place_table(l, &window->tables[i], &leases[i], outcome_address,
						 described != NULL
							 ? (plcuda_table *) (void *) (described +
														  i * PLCUDA_ROUND_UP(sizeof(plcuda_table)))
							 : NULL))
			return false;
	for (uint32_t i = 0; i < window->argument_count; i++)
		if (!place_argument(l, &window->arguments[i], tables,
							slots != NULL ? slots + i * PLCUDA_SLOT_BYTES : NULL))
			return false;
	if (l->bytes == NULL)
		return true;
	memcpy(o->result, window->result, sizeof o->result);
	*call = (plcuda_call){
		.arguments = pointer(arguments),
		.result = (char *) pointer(outcome_address + offsetof(outcome, result)),
		.results = (char *) pointer(window->results_bytes > 0 ? state.results.address : 0),
		.workbuf = (char *) pointer(window->workbuf_bytes > 0 ? state.workbuf.address : 0),
		.results_bytes = window->results_bytes,
		.workbuf_bytes = window->workbuf_bytes,
		.state = (plcuda_state *) pointer(outcome_address),
		.notes = (plcuda_note *) pointer(plcuda_notes_address())};
	return true;
}

/* On the device; *call: there. */
static bool
send_call(const plcuda_window *window, uint64_t *call, plcuda_message *answer)
{
	layout	 l = {NULL, 0, 0};
	uint64_t bytes;
	bool	 sent = false;

	if (!place_all(&l, window, call))
		goto malformed;
	bytes = l.at;
	if (!plcuda_reserve_block(&state.call, bytes, "arguments", answer))
		return false;
	l = (layout){calloc(1, bytes), 0, state.call.address};
	if (l.bytes == NULL)
	{
		plcuda_answer_error(answer, "53200", "out of memory for arguments");
		return false;
	}
	if (!place_all(&l, window, call))
	{
		free(l.bytes);
		goto malformed;
	}
	sent = plcuda_check(plcuda_cu.copy_in(state.call.address, l.bytes, bytes), "cuMemcpyHtoD", answer);
	free(l.bytes);
	return sent;
malformed:
	plcuda_answer_error(answer, "XX000", "the call is malformed");
	return false;
}

/* ---- running */

static bool
run_kernels(const function *f, const plcuda_window *window, uint64_t call, outcome *out,
			plcuda_message *answer)
{
	const plcuda_params params = {pointer(call)};

	for (int i = 0; i < PLCUDA_KERNELS; i++)
	{
		if (!window->kernels[i].present)
			continue;
		if (!plcuda_launch(f->kernels[i], &window->kernels[i], &params, answer) ||
			!plcuda_synchronize(answer))
			return false;
		if (!plcuda_check(plcuda_cu.copy_out(out, state.call.address, sizeof *out), "cuMemcpyDtoH",
						  answer))
			return false;
		if (!plcuda_take_notes(&out->state, answer))
			return false;
	}
	return true;
}

/* Those of a pg_text_t, into the memory file. */
static bool
fetch_bytes(plcuda_window **window, const pg_text_t *result, plcuda_message *answer)
{
	const uint64_t at = (uint64_t) (uintptr_t) result->value - state.results.address;
	plcuda_span	   span;
	void		  *to;

	if (result->isnull)
		return true;
	if (result->length > 0 &&
		((*window)->results_bytes == 0 || at > (*window)->results_bytes ||
		 result->length > (*window)->results_bytes - at))
	{
		plcuda_answer_error(answer, "39000", "the value of the result is not in the results buffer");
		return false;
	}
	to = plcuda_append(result->length, &span);
	if (to == NULL)
	{
		plcuda_answer_error(answer, "53200", "out of memory for a result of %u bytes", result->length);
		return false;
	}
	*window = plcuda_map_window();
	(*window)->bytes = span;
	return result->length == 0 ||
		plcuda_check(plcuda_cu.copy_out(to, state.results.address + at, result->length),
					 "cuMemcpyDtoH", answer);
}

static void
run_call(plcuda_window *window, const function *f, plcuda_message *answer)
{
	outcome	  out;
	pg_text_t text;
	uint64_t  call;

	for (uint32_t i = 0; i < window->table_count; i++)
		if (leases[i].table != NULL && !acquire_table(&leases[i], answer))
			return;
	if (!plcuda_clear_block(&state.results, window->results_bytes, "results", answer) ||
		!plcuda_clear_block(&state.workbuf, window->workbuf_bytes, "the work buffer", answer) ||
		!send_call(window, &call, answer) || !run_kernels(f, window, call, &out, answer))
		return;
	memcpy(&text, out.result, sizeof text);
	if (window->returns_bytes && !fetch_bytes(&window, &text, answer))
		return;
	memcpy(window->result, out.result, sizeof window->result);
}

static bool
check_window(plcuda_window *window, plcuda_message *answer)
{
	window->cache[sizeof window->cache - 1] = window->compiler[sizeof window->compiler - 1] = '\0';
	window->nvrtc[sizeof window->nvrtc - 1] = '\0';
	if (plcuda_at(window->text) != NULL && window->table_count <= PLCUDA_TABLES_MAX &&
		window->argument_count <= PLCUDA_ARGUMENTS_MAX)
		return true;
	plcuda_answer_error(answer, "XX000", "the call is malformed");
	return false;
}

void
plcuda_run(plcuda_window *window, plcuda_message *answer)
{
	const uint32_t	tables = window->table_count;
	const function *f;
	int32_t			ordinal;

	if (check_window(window, answer) && attach_tables(window, &ordinal, answer) &&
		use_device(ordinal, answer) && (f = find_function(window, answer)) != NULL)
	{
		run_call(window, f, answer);
		release_tables(tables);
	}
}

/* ---- what the driver says */

static bool
inspect_gpu(plcuda_gpu_info *out, plcuda_message *answer)
{
	const gvm_device_info *info = &state.info;

	*out = (plcuda_gpu_info){.ordinal = info->ordinal,
							 .multiprocessors = info->sm_count,
							 .warp_threads = info->warp_size,
							 .block_threads = info->block_threads_max,
							 .memory = info->total_bytes};
	snprintf(out->name, sizeof out->name, "%s", info->name);
	if (!info->software)
		out->architecture = (uint32_t) (info->compute_major * 10 + info->compute_minor);
	return plcuda_ask_device(info->ordinal, out, answer);
}

void
plcuda_inspect(plcuda_window *window, plcuda_message *answer)
{
	const function *f;

	if (!check_window(window, answer) ||
		!use_device(state.device != NULL ? state.info.ordinal : 0, answer) ||
		!inspect_gpu(&window->gpu, answer) || window->text.bytes == 0 ||
		(f = find_function(window, answer)) == NULL)
		return;
	for (int i = 0; i < PLCUDA_KERNELS; i++)
		if (window->kernels[i].present &&
			!plcuda_ask_kernel(f->kernels[i], &window->gpu, &window->kernel_info[i], answer))
			return;
}

void
plcuda_rest(void)
{
	detach_tables();
	if (state.device == NULL)
		return;
	plcuda_release_block(&state.results);
	plcuda_release_block(&state.workbuf);
}
