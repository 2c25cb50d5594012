/*
 * See gpu_worker.h: a call. What lasts from call to call: the device, functions that are loaded, and a block of device memory
 * for each purpose; tables.c has tables that are attached. What a call leaves behind is never read by the next: blocks are
 * written or cleared before. Memory that functions get from the appender is not: another role's call has a new one.
 */
#include "postgres/plcuda/notes.h"
#include "postgres/plcuda/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS_MAX 64
/* Of a function: its blocks, and those of gather.h. */
#define KERNELS (PLCUDA_KERNELS + 2)

typedef struct function
{
	char		 *text;
	size_t		  text_bytes;
	plcuda_image  image;
	plcuda_module module;
	plcuda_entry  kernels[KERNELS];
} function;

static struct
{
	gvm_device		   *device;
	gvm_device_info		info;
	function			functions[FUNCTIONS_MAX];
	uint32_t			function_count;
	plcuda_device_block call, results, workbuf;
	uint32_t			role; /* of the last call */
} state;

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

/* Buffers, with what earlier calls have left in them. */
static void
release_buffers(void)
{
	plcuda_release_rows();
	plcuda_release_notes();
	plcuda_release_block(&state.call);
	plcuda_release_block(&state.results);
	plcuda_release_block(&state.workbuf);
}

static void
close_device(void)
{
	if (state.device == NULL)
		return;
	forget_functions();
	release_buffers();
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

static int32_t
current_device(void)
{
	return state.device != NULL ? state.info.ordinal : 0;
}

/* ---- functions */

/* Kernels that the function has not are left out. */
static bool
load_function(function *f, const plcuda_window *window, plcuda_message *answer)
{
	static const char *const names[KERNELS] = {"plcuda_prep", "plcuda_main", "plcuda_post",
											   "plcuda_measure", "plcuda_gather_rows"};

	if (!plcuda_check(plcuda_cu.module_load(&f->module, f->image.bytes), "cuModuleLoadData", answer))
		return false;
	for (int i = 0; i < KERNELS; i++)
		if ((i < PLCUDA_KERNELS ? window->kernels[i].present : window->pointers.bytes > 0) &&
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

static void
describe_columns(const plcuda_leased *l, const plcuda_wanted_column *wanted, uint32_t count,
				 plcuda_column *out)
{
	for (uint32_t i = 0; i < count; i++)
	{
		memcpy(out[i].name, wanted[i].name, sizeof out[i].name);
		out[i].name[sizeof out[i].name - 1] = '\0';
		out[i].type = wanted[i].code;
	}
	for (uint32_t i = 0; i < l->leases.count; i++)
	{
		const gvm_table_data   *d = &l->data[i];
		const gvm_table_column *c = &l->attached->columns[d->column];
		plcuda_column		   *o;

		/* The table may have been changed since: its catalog entry decides. */
		if (c->number < 1 || c->number > count || wanted[c->number - 1].type != c->base_type ||
			d->values == NULL)
			continue;
		o = &out[c->number - 1];
		o->stored = 1;
		o->values = d->values;
		o->nulls = d->nulls;
		o->bodies = d->bodies;
		o->bodies_bytes = c->bodies_bytes;
		o->element_nulls = d->element_nulls;
		o->varying = c->arrow != NULL ? strcmp(c->arrow, "U") == 0 || strcmp(c->arrow, "Z") == 0
									  : c->length < 0 && c->uniform == 0;
		if (c->uniform != 0)
		{
			o->uniform_bytes = c->width;
			o->count = c->count;
			o->scale = c->scale;
		}
	}
}

static bool
place_table(layout *l, const plcuda_wanted_table *wanted, const plcuda_leased *lease,
			uint64_t state_address, plcuda_table *out)
{
	const uint32_t count = (uint32_t) (wanted->columns.bytes / sizeof(plcuda_wanted_column));
	const plcuda_wanted_column *columns = plcuda_at(wanted->columns);
	uint64_t					address, dead = 0;
	plcuda_column *described = place(l, sizeof(plcuda_column) * (uint64_t) count, &address);

	if (columns == NULL || count > PLCUDA_COLUMNS_MAX ||
		(wanted->dead.bytes > 0 && !place_span(l, wanted->dead, &dead)))
		return false;
	if (l->bytes == NULL)
		return true;
	describe_columns(lease, columns, count, described);
	*out = (plcuda_table){.rows = wanted->rows,
						  .dead = pointer(dead),
						  .dead_bytes = wanted->dead.bytes,
						  .deleted = pointer(lease->deleted),
						  .deleted_bytes = lease->deleted != 0 ? wanted->deleted_bytes : 0,
						  .columns = pointer(address),
						  .column_count = count,
						  .state = (plcuda_state *) pointer(state_address)};
	if (lease->attached != NULL)
		out->arrow = strcmp(lease->attached->info.layout, "arrow") == 0;
	return true;
}

static void
move_address(uint8_t *slot, const plcuda_pointer *p, uint64_t by)
{
	uint64_t address;

	memcpy(&address, slot + p->value, sizeof address);
	if (address == 0 && p->optional)
		return;
	address += by;
	memcpy(slot + p->value, &address, sizeof address);
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
	if (argument->kind == PLCUDA_ARGUMENT_TABLE)
		memcpy(slot, &address, sizeof address);
	if (argument->kind == PLCUDA_ARGUMENT_BYTES)
		for (uint32_t i = 0; i < argument->pointer_count; i++)
			move_address(slot, &argument->pointers[i], address);
	return true;
}

/* The addresses are filled in; the entries of *results are not its. */
static bool
place_all(layout *l, const plcuda_window *window, const gvm_append *append, uint64_t *call_address,
		  plcuda_results *results)
{
	uint64_t	 arguments, tables, append_address;
	void		*outcome = place(l, sizeof(plcuda_outcome), &results->state);
	plcuda_call *call = place(l, sizeof *call, call_address);
	gvm_append	*appends = place(l, sizeof *appends, &append_address);
	uint8_t		*slots = place(l, PLCUDA_ARGUMENTS_MAX * PLCUDA_SLOT_BYTES, &arguments);
	uint8_t *described = place(l, PLCUDA_TABLES_MAX * PLCUDA_ROUND_UP(sizeof(plcuda_table)), &tables);

	if (!place_span(l, window->row, &results->row) ||
		!place_span(l, window->pointers, &results->pointers))
		return false;
	for (uint32_t i = 0; i < window->table_count; i++)
		if (!place_table(l, &window->tables[i], &plcuda_leases[i], results->state,
						 described != NULL
							 ? (plcuda_table *) (void *) (described +
														  i * PLCUDA_ROUND_UP(sizeof(plcuda_table)))
							 : NULL))
			return false;
	for (uint32_t i = 0; i < window->argument_count; i++)
		if (!place_argument(l, &window->arguments[i], tables,
							slots != NULL ? slots + i * PLCUDA_SLOT_BYTES : NULL))
			return false;
	if (outcome == NULL)
		return true;
	*appends = *append;
	*call = (plcuda_call){
		.arguments = pointer(arguments),
		.result = (char *) pointer(window->returns_set ? 0 : results->row),
		.results = (char *) pointer(window->results_bytes > 0 ? state.results.address : 0),
		.workbuf = (char *) pointer(window->workbuf_bytes > 0 ? state.workbuf.address : 0),
		.results_bytes = window->results_bytes,
		.workbuf_bytes = window->workbuf_bytes,
		.state = (plcuda_state *) pointer(results->state),
		.notes = (plcuda_note *) pointer(plcuda_notes_address()),
		.append = pointer(window->append_bytes > 0 ? append_address : 0)};
	return true;
}

/* On the device; *call: there. */
static bool
send_call(const plcuda_window *window, const gvm_append *append, uint64_t *call,
		  plcuda_results *results, plcuda_message *answer)
{
	layout	 l = {NULL, 0, 0};
	uint64_t bytes;
	bool	 sent = false;

	if (!place_all(&l, window, append, call, results))
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
	if (!place_all(&l, window, append, call, results))
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
run_kernels(const function *f, const plcuda_window *window, uint64_t call, uint64_t outcome_address,
			plcuda_message *answer)
{
	const plcuda_params params = {pointer(call)};
	plcuda_outcome		outcome;

	for (int i = 0; i < PLCUDA_KERNELS; i++)
		if (window->kernels[i].present &&
			(!plcuda_launch(f->kernels[i], &window->kernels[i], &params, answer) ||
			 !plcuda_synchronize(answer) || !plcuda_read_outcome(outcome_address, &outcome, answer)))
			return false;
	return true;
}

/* The function's own kernels. What they have made can be fetched then. */
static bool
run_blocks(const plcuda_window *window, const function *f, plcuda_message *answer)
{
	const bool	   appends = window->append_bytes > 0;
	gvm_append	   append = {0};
	plcuda_results results = {
		.pointer_count = (uint32_t) (window->pointers.bytes / sizeof(plcuda_pointer)),
		.measure = f->kernels[PLCUDA_KERNELS],
		.gather = f->kernels[PLCUDA_KERNELS + 1]};
	uint64_t call;
	bool	 done;

	if (!plcuda_acquire_tables(window, answer) ||
		!plcuda_clear_block(&state.results, window->results_bytes, "results", answer) ||
		!plcuda_clear_block(&state.workbuf, window->workbuf_bytes, "the work buffer", answer) ||
		(appends && !plcuda_begin_append(window, state.device, &append, answer)))
		return false;
	done = send_call(window, &append, &call, &results, answer) &&
		run_kernels(f, window, call, results.state, answer);
	if (appends && (done || strcmp(answer->sqlstate, PLCUDA_FULL) == 0))
		done = plcuda_finish_append(answer);
	if (done)
		plcuda_begin_rows(window, &results);
	return done;
}

/* Gives up what was held for the rows of a call. */
static void
end_call(void)
{
	plcuda_end_rows();
	plcuda_release_tables();
}

/* What the calls of another role have left is not there for this one. */
static void
use_role(uint32_t role)
{
	if (role == state.role)
		return;
	plcuda_detach_tables();
	release_buffers();
	state.role = role;
}

static bool
check_call(const plcuda_window *window, plcuda_message *answer)
{
	const bool good = plcuda_at(window->text) != NULL && window->table_count <= PLCUDA_TABLES_MAX &&
		window->argument_count <= PLCUDA_ARGUMENTS_MAX && window->row_bytes > 0 &&
		window->row_bytes <= PLCUDA_ROW_BYTES_MAX && window->row.bytes == window->row_bytes;

	if (!good)
		plcuda_answer_error(answer, "XX000", "the call is malformed");
	return good;
}

void
plcuda_run(plcuda_window *window, plcuda_message *answer)
{
	const function *f;
	int32_t			ordinal;

	end_call(); /* of which the backend has not fetched everything */
	use_role(window->role);
	if (!check_call(window, answer) || !plcuda_attach_tables(window, &ordinal, answer) ||
		!use_device(ordinal >= 0 ? ordinal : current_device(), answer) ||
		(f = find_function(window, answer)) == NULL)
		return;
	if (!run_blocks(window, f, answer) || !plcuda_fetch_piece(answer) || !plcuda_has_rows())
		end_call();
}

void
plcuda_fetch(plcuda_message *answer)
{
	if (!plcuda_has_rows())
		plcuda_answer_error(answer, "XX000", "there are no rows to be fetched");
	else if (!plcuda_fetch_piece(answer) || !plcuda_has_rows())
		end_call();
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

	end_call();
	if (plcuda_at(window->text) == NULL)
		plcuda_answer_error(answer, "XX000", "the call is malformed");
	if (answer->verb == PLCUDA_ERROR || !use_device(current_device(), answer) ||
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
	plcuda_detach_tables();
	if (state.device != NULL)
		release_buffers();
}
