/* What the driver says of a function's kernels and of the GPU, asked by this session's worker. */
#include "postgres/plcuda/plcuda.h"

#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "postgres/compat.h"

PG_FUNCTION_INFO_V1(plcuda_kernel_info_of);
PG_FUNCTION_INFO_V1(plcuda_gpu_info_of);

#define KERNEL_COLUMNS 7
#define GPU_COLUMNS	   9

const plcuda_evaluated *plcuda_evaluated_now = NULL;

/* f: NULL with an empty text. kernels: PLCUDA_KERNELS, of which those count that f has. */
static void
ask(const plcuda_function *f, const char *text, plcuda_kernel_info *kernels, plcuda_gpu_info *gpu)
{
	const Size	   bytes = PLCUDA_TEXT_AT + PLCUDA_ROUND_UP(strlen(text) + 1);
	plcuda_window *window;

	plcuda_gstore()->wait_ready();
	window = plcuda_begin_call(bytes);
	memset(window, 0, sizeof *window);
	window->used = bytes;
	for (int i = 0; f != NULL && i < PLCUDA_KERNELS; i++)
		window->kernels[i].present = f->blocks[i].present;
	/* The worker keeps the function for calls: it loads all of its kernels now. */
	if (f != NULL)
		window->pointers.bytes = sizeof(plcuda_pointer) * (Size) f->row.pointer_count;
	window = plcuda_run_call(PLCUDA_INSPECT, text);
	if (window == NULL)
		elog(ERROR, "the GPU worker has given no answer");
	memcpy(kernels, window->kernel_info, sizeof window->kernel_info);
	memcpy(gpu, &window->gpu, sizeof *gpu);
	plcuda_end_call(true);
}

static plcuda_evaluated
find_evaluated(Oid function)
{
	plcuda_evaluated e = {NULL, NULL, -1};

	if (!OidIsValid(function))
	{
		if (plcuda_evaluated_now == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("no plcuda function is being called whose kernel could be asked about"),
					 errdetail("Only functions that a directive names can leave out the argument."),
					 errhint("Name the plcuda function.")));
		return *plcuda_evaluated_now;
	}
	plcuda_check_execute(function);
	e.function = plcuda_read_function(function);
	e.text = plcuda_call_text(e.function, NULL);
	if (e.text == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the kernels of function \"%s\" depend on its arguments", e.function->name),
				 errdetail("A function of #plcuda_include has arguments."),
				 errhint("In a call, functions that other directives name can ask about its kernels.")));
	return e;
}

Datum
plcuda_kernel_info_of(PG_FUNCTION_ARGS)
{
	static const char *const names[PLCUDA_KERNELS] = {"prep", "main", "post"};
	const plcuda_evaluated	 e = find_evaluated(PG_GETARG_OID(0));
	ReturnSetInfo			*result = (ReturnSetInfo *) fcinfo->resultinfo;
	plcuda_kernel_info		 info[PLCUDA_KERNELS];
	plcuda_gpu_info			 gpu;
	bool					 nulls[KERNEL_COLUMNS] = {false};

	InitMaterializedSRF(fcinfo, 0);
	ask(e.function, e.text, info, &gpu);
	for (int i = 0; i < PLCUDA_KERNELS; i++)
	{
		Datum values[KERNEL_COLUMNS] = {
			CStringGetTextDatum(names[i]),		   Int32GetDatum(info[i].block_threads),
			Int32GetDatum(info[i].registers),	   Int32GetDatum(info[i].static_shared),
			Int32GetDatum(info[i].dynamic_shared), Int32GetDatum(info[i].constant),
			Int32GetDatum(info[i].local)};

		if (e.function->blocks[i].present && (e.kernel < 0 || e.kernel == i))
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

Datum
plcuda_gpu_info_of(PG_FUNCTION_ARGS)
{
	plcuda_kernel_info none[PLCUDA_KERNELS];
	plcuda_gpu_info	   gpu;
	TupleDesc		   desc;
	bool			   nulls[GPU_COLUMNS] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	ask(NULL, "", none, &gpu);
	gpu.name[sizeof gpu.name - 1] = '\0';
	(void) pg_verifymbstr(gpu.name, (int) strlen(gpu.name), false);
	nulls[1] = gpu.architecture == 0;
	{
		Datum values[GPU_COLUMNS] = {CStringGetTextDatum(gpu.name),
									 CStringGetTextDatum(psprintf("sm_%u", gpu.architecture)),
									 Int32GetDatum(gpu.multiprocessors),
									 Int32GetDatum(gpu.warp_threads),
									 Int32GetDatum(gpu.block_threads),
									 Int32GetDatum(gpu.block_registers),
									 Int32GetDatum(gpu.block_shared),
									 Int32GetDatum(gpu.constant),
									 Int64GetDatum((int64) gpu.memory)};

		return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
	}
}
