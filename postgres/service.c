/* The threads that move columns between windows and areas; see service.h. */
#include "postgres/service.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "postgres/area.h"
#include "postgres/copies.h"
#include "postgres/cuda.h"

#define THREADS_MAX 16u
#define LOOK_S		1 /* how often an idle thread looks whether it is to stop */

/* The areas that a command uses, until its copies are through. */
typedef struct uses
{
	gstore_use all[GSTORE_RANGES_MAX + 1]; /* and what is staged */
	uint32_t   count;
} uses;

typedef struct service_thread
{
	gstore_service *service;
	pthread_t		thread;
	uses			uses;
	gvm_stream		streams[GVM_KEEPER_DEVICES_MAX];
} service_thread;

struct gstore_service
{
	gstore_service_options options;
	gvm_device			  *devices[GVM_KEEPER_DEVICES_MAX];
	int32_t				   device_count;
	gstore_areas		  *areas;
	service_thread		   threads[THREADS_MAX];
	uint32_t			   started;
	bool				   registered;
	_Atomic bool		   stop, lost;
	gstore_copies		  *copies;
};

/* ---- commands */

/* other: of COPY_TAKE, where the range goes; of what is staged, where it comes from. */
static gvm_status
copy_range(const gstore_window *w, const gstore_range *range, uint64_t address, uint64_t other,
		   uint8_t *bytes, gvm_stream stream)
{
	const uint64_t at = address + range->offset_bytes;
	const char	  *call = "cuMemcpyDtoDAsync";
	int			   result;

	if (w->verb == GSTORE_COPY_TAKE)
		result = gstore_cu.cuMemcpyDtoDAsync(other, at, range->bytes, stream);
	else if (w->verb == GSTORE_READ)
	{
		call = "cuMemcpyDtoHAsync";
		result = gstore_cu.cuMemcpyDtoHAsync(bytes + range->window_bytes, at, range->bytes, stream);
	}
	else if (range->source == GSTORE_FROM_STAGED)
		result = gstore_cu.cuMemcpyDtoDAsync(at, other, range->bytes, stream);
	else if (range->source == GSTORE_FROM_BYTE)
	{
		call = "cuMemsetD8Async";
		result = gstore_cu.cuMemsetD8Async(at, range->byte, range->bytes, stream);
	}
	else
	{
		call = "cuMemcpyHtoDAsync";
		result = gstore_cu.cuMemcpyHtoDAsync(at, bytes + range->window_bytes, range->bytes, stream);
	}
	return result == 0 ? GVM_OK : gvm_driver_error(result, call, "cannot copy a column");
}

/* Of one command, ranges of one area share a lease. */
static gvm_status
find_use(gstore_service *s, const gstore_store_name *store, const gstore_range *range, bool write,
		 uses *used, gstore_use **out)
{
	gvm_status status;

	for (uint32_t i = used->count; i > 0; i--)
		if (gstore_area_is(&used->all[i - 1], range))
		{
			*out = &used->all[i - 1];
			return GVM_OK;
		}
	*out = &used->all[used->count];
	status = gstore_area_use(s->areas, store, range, write, *out);
	used->count += status == GVM_OK;
	return status;
}

/*
 * Where a range of what is staged is. A program may keep a lease on it: it is asked for before the areas, which
 * others wait for.
 */
static gvm_status
find_staged(gstore_service *s, const gstore_window *w, const gstore_range *range, uses *used,
			uint64_t *address)
{
	const gstore_range		staged = {.part = GSTORE_STAGED};
	const gstore_store_name store = {.database = w->name.database,
									 .store = w->copy,
									 .device = w->name.device,
									 .epoch = w->name.epoch};
	gstore_use			   *u;
	const gvm_status		status = find_use(s, &store, &staged, false, used, &u);

	if (status != GVM_OK)
		return status;
	if (range->window_bytes > gstore_area_bytes(u) ||
		range->bytes > gstore_area_bytes(u) - range->window_bytes)
		return gvm_error_set(GVM_E_INVALID, "a range beyond what is staged");
	*address = u->address + range->window_bytes;
	return GVM_OK;
}

static gvm_status
begin_range(gstore_service *s, const gstore_window *w, const gstore_range *range, uint8_t *bytes,
			gvm_stream stream, uses *used)
{
	const uint64_t end = range->offset_bytes + range->bytes;
	const bool	   take = w->verb == GSTORE_COPY_TAKE;
	const bool	   write = w->verb == GSTORE_WRITE;
	uint64_t	   other = 0;
	gvm_status	   status = GVM_OK;
	gstore_use	  *u;

	if (end < range->bytes ||
		(range->source == GSTORE_FROM_WINDOW && !take &&
		 (range->window_bytes > s->options.window_bytes ||
		  range->bytes > s->options.window_bytes - range->window_bytes)))
		return gvm_error_set(GVM_E_INVALID, "a range beyond the window");
	if (write && range->source == GSTORE_FROM_STAGED)
		status = find_staged(s, w, range, used, &other);
	if (status == GVM_OK)
		status = find_use(s, &w->name, range, write, used, &u);
	if (status == GVM_OK && write)
		status = gstore_area_provide(s->areas, u, range, stream);
	else if (status == GVM_OK && end > gstore_area_bytes(u))
		status = gvm_error_set(GVM_E_INVALID, "a range beyond the column's data");
	if (status == GVM_OK && take)
		status = gstore_copies_find(s->copies, w->copy, w->name.device, range->window_bytes,
									range->bytes, &other);
	return status == GVM_OK ? copy_range(w, range, u->address, other, bytes, stream) : status;
}

/* Also after a failure: what was begun must be over before the leases end. */
static gvm_status
end_ranges(gstore_service *s, uses *used, gvm_stream stream)
{
	const int  result = gstore_cu.cuStreamSynchronize(stream);
	gvm_status status = result == 0
		? GVM_OK
		: gvm_driver_error(result, "cuStreamSynchronize", "cannot copy columns");

	for (uint32_t i = 0; i < used->count; i++)
	{
		const gvm_status released = gstore_area_release(s->areas, &used->all[i]);

		status = status != GVM_OK ? status : released;
	}
	return status;
}

static gvm_status
move_ranges(service_thread *me, gstore_window *w, uint8_t *bytes)
{
	const gvm_stream stream = me->streams[w->name.device];
	uses			*used = &me->uses;
	gvm_status		 status = GVM_OK;

	used->count = 0;
	for (uint32_t i = 0; i < w->range_count && i < GSTORE_RANGES_MAX && status == GVM_OK; i++)
	{
		const gstore_range *range = &w->ranges[i];

		status = begin_range(me->service, w, range, bytes, stream, used);
		if (status == GVM_E_NOSPACE)
		{
			w->short_column = range->column;
			w->short_bytes = range->offset_bytes + range->bytes;
		}
	}
	if (status == GVM_OK)
	{
		status = end_ranges(me->service, used, stream);
	}
	else
	{
		const gvm_error error = gstore_last_error();

		(void) end_ranges(me->service, used, stream);
		gvm_error_restore(&error);
	}
	return status;
}

/*
 * Before memory is short for anybody, what all tables have ahead of need goes back: also those that this command
 * writes to, whose leases it has given back by then. True: the command may find some now.
 */
static bool
has_released_memory(gstore_service *s, gvm_status status)
{
	gvm_error error;

	if (status != GVM_E_NOSPACE)
		return false;
	error = gstore_last_error();
	if (gstore_areas_give_back(s->areas) > 0)
		return true;
	gvm_error_restore(&error);
	return false;
}

static gvm_status
link_areas(gstore_service *s, gstore_window *w)
{
	return gstore_areas_link(s->areas, &w->name, w->handle, w->ranges, w->range_count, &w->owner);
}

static uint64_t
budget_left(uint64_t budget, uint64_t used)
{
	return used < budget ? budget - used : 0;
}

/* Of a device, and for what does not fit there. */
static gvm_status
read_budgets(gstore_service *s, int32_t device, gstore_budgets *out)
{
	gvm_keeper_info		   keeper = {.struct_size = sizeof keeper};
	gvm_keeper_device_info here = {.struct_size = sizeof here};
	gvm_snapshot		  *now = NULL;
	gvm_status			   status = gvm_client_get_snapshot(gstore_areas_keeper(s->areas), &now);

	memset(out, 0, sizeof *out);
	if (status != GVM_OK)
		return status;
	status = gvm_snapshot_get_keeper(now, &keeper);
	if (status == GVM_OK)
		status = gstore_find_keeper_device(now, s->devices[device], &here);
	gvm_snapshot_destroy(now);
	if (status != GVM_OK)
		return status;
	out->host_bytes = keeper.host_budget_bytes;
	out->host_used_bytes = keeper.host_used_bytes;
	out->device_bytes = here.budget_bytes;
	out->device_used_bytes = here.resident_bytes;
	return GVM_OK;
}

/* Before anything moves: areas of many columns may need more than there is. */
static gvm_status
check_unpack(gstore_service *s, gstore_window *w)
{
	const uint64_t bytes = gstore_areas_unpack_bytes(s->areas, &w->name, w->ranges, w->range_count);
	const uint64_t sum = w->copy_bytes + bytes;
	gstore_budgets now;
	uint64_t	   left;
	gvm_status	   status;

	if (bytes == 0)
		return GVM_OK;
	status = read_budgets(s, w->name.device, &now);
	left = budget_left(now.device_bytes, now.device_used_bytes) +
		budget_left(now.host_bytes, now.host_used_bytes);
	if (status == GVM_OK && left < sum)
		status = gvm_error_set(
			GVM_E_NOSPACE, "columns that are exported need at least %llu MiB more, and %llu are left",
			(unsigned long long) sum >> 20, (unsigned long long) left >> 20);
	if (status == GVM_OK)
		w->copy_bytes = sum;
	return status;
}

static gvm_status
execute_link_command(gstore_service *s, gstore_window *w)
{
	switch (w->verb)
	{
		case GSTORE_UNPACK_BYTES:
			return check_unpack(s, w);
		case GSTORE_STAGE:
			return gstore_area_stage(s->areas, &w->name, w->ranges[0].bytes);
		case GSTORE_UNPACK:
			return gstore_areas_unpack(s->areas, &w->name, w->ranges, w->range_count);
		default:
			return link_areas(s, w);
	}
}

static gvm_status
transfer_ranges(service_thread *me, gstore_window *w, uint8_t *bytes)
{
	gstore_service *s = me->service;
	gvm_status		status;

	if (w->name.epoch != s->options.epoch)
		return gvm_error_set(GVM_E_KEEPER,
							 "the GPU memory keeper was started anew: the table is empty");
	if (w->name.device < 0 || w->name.device >= s->device_count)
		return gvm_error_set(GVM_E_NODEVICE, "there is no device %d; there are %d", w->name.device,
							 s->device_count);
	if (w->verb == GSTORE_LINK || w->verb == GSTORE_UNPACK || w->verb == GSTORE_UNPACK_BYTES ||
		w->verb == GSTORE_STAGE)
	{
		status = execute_link_command(s, w);
		return has_released_memory(s, status) ? execute_link_command(s, w) : status;
	}
	if (w->verb == GSTORE_UNLINK)
		return gstore_areas_unlink(s->areas, w->handle);
	status = gvm_device_push_context(s->devices[w->name.device]);
	if (status != GVM_OK)
		return status;
	if (w->verb > GSTORE_WRITE && w->verb != GSTORE_COPY_TAKE)
		status = gstore_copies_carry_out(s->copies, w, bytes, s->options.window_bytes,
										 me->streams[w->name.device]);
	else
	{
		status = move_ranges(me, w, bytes);
		if (w->verb == GSTORE_WRITE && has_released_memory(s, status))
			status = move_ranges(me, w, bytes);
	}
	gvm_device_pop_context();
	return status;
}

/* Its status and text are there. The backend's from here on, or everybody's. */
static void
end_command(const gstore_service_options *options, uint32_t index)
{
	gstore_window *w = &options->windows[index];
	void		  *latch = w->latch;
	uint32_t	   taken = GSTORE_TAKEN;

	if (atomic_compare_exchange_strong(&w->state, &taken, GSTORE_DONE))
	{
		options->wake(latch);
		return;
	}
	atomic_store(&w->state, GSTORE_IDLE); /* its backend has left it */
	atomic_fetch_sub(&options->queue->left_count, 1);
	options->give_back(index);
}

static void
execute_command(service_thread *me, uint32_t index)
{
	gstore_service *s = me->service;
	gstore_window  *w = &s->options.windows[index];
	gvm_status		status;
	gvm_error		error;

	w->short_bytes = 0;
	status = transfer_ranges(me, w, s->options.bytes + index * s->options.window_bytes);
	w->status = (int32_t) status;
	w->text[0] = '\0';
	if (status != GVM_OK)
	{
		gvm_error_last(&error);
		snprintf(w->text, sizeof w->text, "%.*s", (int) sizeof w->text - 1, error.text);
		if (status == GVM_E_NOSPACE)
			(void) read_budgets(s, w->name.device, &w->budgets); /* without the keeper all are 0 */
		if (w->name.epoch == s->options.epoch && (status == GVM_E_KEEPER || status == GVM_E_LOST))
			atomic_store(&s->lost, true);
	}
	end_command(&s->options, index);
}

/* ---- threads */

/* The window that was posted first of those that are; options->window_count: none is. */
static uint32_t
find_posted_window(const gstore_service_options *options)
{
	uint64_t first = UINT64_MAX;
	uint32_t found = options->window_count;

	for (uint32_t i = 0; i < options->window_count; i++)
	{
		gstore_window *w = &options->windows[i];

		if (atomic_load(&w->state) == GSTORE_POSTED && atomic_load(&w->number) < first)
		{
			first = atomic_load(&w->number);
			found = i;
		}
	}
	return found;
}

/* Takes the command that comes next in the queue. False: there is none. */
static bool
take_command(const gstore_service_options *options, uint32_t *index)
{
	while ((*index = find_posted_window(options)) < options->window_count)
	{
		uint32_t posted = GSTORE_POSTED;

		if (atomic_compare_exchange_strong(&options->windows[*index].state, &posted, GSTORE_TAKEN))
			return true; /* else its backend has given it up, or another thread has it */
	}
	return false;
}

/*
 * What a keeper that ended left in the queue: its backends are informed, and no command is executed
 * twice.
 */
static void
refuse_left_over(const gstore_service_options *options)
{
	uint32_t index;

	while (take_command(options, &index))
	{
		gstore_window *w = &options->windows[index];

		w->status = GVM_E_KEEPER;
		snprintf(w->text, sizeof w->text, "the GPU memory keeper was started anew");
		end_command(options, index);
	}
}

static void *
service_thread_main(void *argument)
{
	service_thread *me = argument;
	gstore_service *s = me->service;

	while (!atomic_load(&s->stop))
	{
		struct timespec until;
		uint32_t		index;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += LOOK_S;
		(void) sem_clockwait(&s->options.queue->posted, CLOCK_MONOTONIC, &until);
		while (!atomic_load(&s->stop) && take_command(&s->options, &index))
			execute_command(me, index);
	}
	return NULL;
}

static gvm_status
open_devices(gstore_service *s)
{
	gvm_status status = gvm_device_count(&s->device_count);

	if (status == GVM_OK && s->device_count > GVM_KEEPER_DEVICES_MAX)
		s->device_count = GVM_KEEPER_DEVICES_MAX;
	for (int32_t i = 0; i < s->device_count && status == GVM_OK; i++)
		status = gvm_device_open(i, &s->devices[i]);
	return status;
}

/* Copies are several times as fast to memory that the driver has pinned; without, they still work. */
static void
register_windows(gstore_service *s)
{
	if (gvm_device_push_context(s->devices[0]) != GVM_OK)
		return;
	s->registered = gstore_cu.cuMemHostRegister(s->options.bytes,
												s->options.window_count * s->options.window_bytes,
												GSTORE_REGISTER_PORTABLE) == 0;
	gvm_device_pop_context();
}

static gvm_status
make_streams(gstore_service *s, service_thread *t)
{
	gvm_status status = GVM_OK;

	for (int32_t d = 0; d < s->device_count && status == GVM_OK; d++)
	{
		int result;

		status = gvm_device_push_context(s->devices[d]);
		if (status != GVM_OK)
			break;
		result = gstore_cu.cuStreamCreate(&t->streams[d], GSTORE_STREAM_NON_BLOCKING);
		gvm_device_pop_context();
		if (result != 0)
			status = gvm_driver_error(result, "cuStreamCreate", "cannot make a stream");
	}
	return status;
}

static gvm_status
start_threads(gstore_service *s)
{
	gvm_status status = GVM_OK;
	sigset_t   all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (s->started < s->options.threads && s->started < THREADS_MAX && status == GVM_OK)
	{
		service_thread *t = &s->threads[s->started];
		int				code;

		t->service = s;
		status = make_streams(s, t);
		if (status != GVM_OK)
			break;
		code = pthread_create(&t->thread, NULL, service_thread_main, t);
		if (code != 0)
			status = gvm_error_set(GVM_E_SYSTEM, "cannot start a thread: %s", strerror(code));
		else
			s->started++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

gvm_status
gstore_service_start(const gstore_service_options *options, gstore_service **out)
{
	gstore_service *s = calloc(1, sizeof *s);
	gvm_status		status;

	if (s == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for the service");
	s->options = *options;
	refuse_left_over(options);
	status = open_devices(s);
	if (status == GVM_OK)
		status = gstore_cuda_load();
	if (status == GVM_OK)
		status = gstore_areas_create(options->path, options->link_mode, &s->areas);
	if (status == GVM_OK)
		status = gstore_copies_create(s->devices, gstore_areas_keeper(s->areas), &s->copies);
	if (status == GVM_OK)
	{
		register_windows(s);
		status = start_threads(s);
	}
	if (status != GVM_OK)
	{
		const gvm_error error = gstore_last_error();

		gstore_service_stop(s);
		gvm_error_restore(&error);
		return status;
	}
	*out = s;
	return GVM_OK;
}

void
gstore_service_sever(gstore_service *s)
{
	if (s == NULL)
		return;
	atomic_store(&s->stop, true);
	if (s->areas != NULL)
		gstore_areas_sever(s->areas);
}

void
gstore_service_stop(gstore_service *s)
{
	if (s == NULL)
		return;
	gstore_service_sever(s);
	for (uint32_t i = 0; i < s->started; i++)
		pthread_join(s->threads[i].thread, NULL);
	gstore_copies_destroy(s->copies);
	gstore_areas_destroy(s->areas);
	for (int32_t d = 0; d < s->device_count; d++)
	{
		if (s->devices[d] == NULL || gvm_device_push_context(s->devices[d]) != GVM_OK)
			continue;
		for (uint32_t i = 0; i < THREADS_MAX; i++)
			if (s->threads[i].streams[d] != NULL)
				gstore_cu.cuStreamDestroy(s->threads[i].streams[d]);
		if (d == 0 && s->registered)
			gstore_cu.cuMemHostUnregister(s->options.bytes);
		gvm_device_pop_context();
		gvm_device_close(s->devices[d]);
	}
	free(s);
}

bool
gstore_service_drop(gstore_service *s, const gstore_store_name *name)
{
	return gstore_areas_drop(s->areas, name);
}

void
gstore_service_unlink(gstore_service *s, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	(void) gstore_areas_unlink(s->areas, secret); /* it fails only with the keeper */
}

void
gstore_service_trim(gstore_service *s, const gstore_store_name *name, const gstore_extent *extents,
					uint32_t count)
{
	gstore_areas_trim(s->areas, name, extents, count);
}

void
gstore_service_drop_copy(gstore_service *s, uint64_t copy)
{
	gstore_copies_drop(s->copies, copy);
}

static gvm_status
report_keeper(const gvm_snapshot *snapshot, gstore_report *out)
{
	gvm_keeper_info keeper = {.struct_size = sizeof keeper};
	gvm_status		status = gvm_snapshot_get_keeper(snapshot, &keeper);

	out->keeper_pid = keeper.pid;
	out->host_budget_bytes = keeper.host_budget_bytes;
	out->host_used_bytes = keeper.host_used_bytes;
	out->objects = keeper.objects;
	out->clients = keeper.clients;
	for (uint32_t i = 0; i < keeper.devices && i < GVM_KEEPER_DEVICES_MAX && status == GVM_OK; i++)
	{
		gvm_keeper_device_info from = {.struct_size = sizeof from};
		gstore_device_report  *to = &out->devices[out->device_count++];

		status = gvm_snapshot_get_device(snapshot, i, &from);
		snprintf(to->name, sizeof to->name, "%s", from.name);
		to->ordinal = from.ordinal;
		to->objects = from.objects;
		to->budget_bytes = from.budget_bytes;
		to->resident_bytes = from.resident_bytes;
		to->host_bytes = from.host_backed_bytes;
		to->evicted_bytes = from.evicted_bytes;
		to->promoted_bytes = from.promoted_bytes;
	}
	return status;
}

/* Copies are listed by the ordinals here, the report by the keeper's. */
static void
report_copies(gstore_service *s, const gvm_snapshot *snapshot, gstore_report *out)
{
	for (int32_t d = 0; d < s->device_count; d++)
	{
		gvm_keeper_device_info there;

		if (gstore_find_keeper_device(snapshot, s->devices[d], &there) != GVM_OK)
			continue;
		for (uint32_t i = 0; i < out->device_count; i++)
			if (out->devices[i].ordinal == there.ordinal)
				out->devices[i].copies_bytes = gstore_copies_bytes(s->copies, d);
	}
}

gvm_status
gstore_service_report(gstore_service *s, gstore_report *out, gstore_store_size **sizes,
					  uint32_t *size_count)
{
	gvm_snapshot *snapshot = NULL;
	gvm_status	  status;

	gstore_copies_tidy(s->copies);
	gstore_areas_trim_again(s->areas);
	status = gvm_client_get_snapshot(gstore_areas_keeper(s->areas), &snapshot);
	if (status == GVM_E_KEEPER)
		atomic_store(&s->lost, true);
	if (status == GVM_OK)
	{
		memset(out, 0, sizeof *out);
		status = report_keeper(snapshot, out);
		report_copies(s, snapshot, out);
	}
	gvm_snapshot_destroy(snapshot);
	if (status == GVM_OK) /* last: the caller frees them after success alone */
		status = gstore_areas_sizes(s->areas, sizes, size_count);
	return status;
}

int32_t
gstore_service_device_count(const gstore_service *s)
{
	return s->device_count;
}

int
gstore_service_is_lost(gstore_service *s)
{
	return atomic_load(&s->lost);
}
