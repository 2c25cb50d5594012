/* Windows and commands, the backend's side; see window.h. */
#include "postgres.h"

#include <sched.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/lsyscache.h"

#include <gvmem/status.h>

#include "postgres/clock.h"
#include "postgres/window.h"

#define WAIT_MS		1000 /* between two looks at whether the worker still lives */
#define LEFT_MS		10	 /* between two looks at commands that were left */
#define SOON_US		20	 /* of a command that is short: until then no signal is needed */
#define LINK_RANGES 16u	 /* of one command */
#define ALIGN_BYTES 64	 /* of pieces in a window */

/* The window of the command that this process waits for; -1: none. A backend does one at a time. */
static int waiting = -1;

/* The window of a write that was begun, and where its outcome goes. */
static int			  begun = -1;
static gstore_answer *begun_answer;

uint64
gstore_window_size(void)
{
	return (uint64) gstore_window_kb * 1024;
}

/* ---- taking and giving back */

void
gstore_window_give_back(uint32 window)
{
	SpinLockAcquire(&gstore->windows_lock);
	gstore->free[gstore->free_count++] = (uint16) window;
	SpinLockRelease(&gstore->windows_lock);
	ConditionVariableSignal(&gstore->window_freed);
}

static bool
try_acquire_window(uint32 *window)
{
	bool taken = false;

	SpinLockAcquire(&gstore->windows_lock);
	if (gstore->free_count > 0)
	{
		*window = gstore->free[--gstore->free_count];
		taken = true;
	}
	SpinLockRelease(&gstore->windows_lock);
	return taken;
}

/* May a process keep one for longer than it takes to wait for its command? */
static bool
may_lend(void)
{
	bool lent = false;

	SpinLockAcquire(&gstore->windows_lock);
	if (gstore->lent_count < (uint32) gstore_windows / 2)
	{
		gstore->lent_count++;
		lent = true;
	}
	SpinLockRelease(&gstore->windows_lock);
	return lent;
}

static void
uncount_lent_window(void)
{
	SpinLockAcquire(&gstore->windows_lock);
	gstore->lent_count--;
	SpinLockRelease(&gstore->windows_lock);
}

static void
give_back_lent(uint32 window)
{
	uncount_lent_window();
	gstore_window_give_back(window);
}

static bool
is_done(uint32 window)
{
	return atomic_load_explicit(&gstore->windows[window].state, memory_order_acquire) == GSTORE_DONE;
}

/* ---- commands that were left */

typedef bool (*left_match)(const gstore_window *w, const void *key);

static bool
has_left(left_match is_match, const void *key)
{
	if (atomic_load(&gstore->queue.left_count) == 0)
		return false;
	for (int i = 0; i < gstore_windows; i++)
	{
		const gstore_window *w = &gstore->windows[i];

		/* In this order: a window that is not left any more may have another command by now. */
		if (atomic_load(&w->state) == GSTORE_LEFT && is_match(w, key))
			return true;
	}
	return false;
}

/* It makes areas, writes to them or moves them: what does so next waits for one that was left. */
static bool
changes_areas(gstore_verb verb)
{
	return verb == GSTORE_WRITE || verb == GSTORE_UNPACK || verb == GSTORE_LINK || verb == GSTORE_STAGE;
}

static bool
changes_store(const gstore_window *w, const void *name)
{
	return changes_areas(w->verb) && w->name.store == ((const gstore_store_name *) name)->store;
}

bool
gstore_has_left_change(const gstore_store_name *name)
{
	return has_left(changes_store, name);
}

static bool
makes_links(const gstore_window *w, const void *secret)
{
	return w->verb == GSTORE_LINK && memcmp(w->handle, secret, GSTORE_SECRET_BYTES) == 0;
}

bool
gstore_has_left_link(const uint8 secret[GSTORE_SECRET_BYTES])
{
	return has_left(makes_links, secret);
}

static bool
uses_copy(const gstore_window *w, const void *copy)
{
	return (w->verb == GSTORE_COPY_MAKE || w->verb == GSTORE_COPY_WRITE || w->verb == GSTORE_COPY_TAKE) &&
		w->copy == *(const uint64 *) copy;
}

bool
gstore_has_left_copy(uint64 copy)
{
	return has_left(uses_copy, &copy);
}

/* ---- ends of commands */

/* From one state to the next, where the service may have been there before. */
static bool
change_window_state(uint32 window, uint32 from, uint32 to)
{
	return atomic_compare_exchange_strong(&gstore->windows[window].state, &from, to);
}

static void
pause_for_service(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, WAIT_MS,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
}

/* Leaves a command that a thread has taken to it; the thread gives the window back. False: it is done. */
static bool
abandon_window(uint32 window)
{
	atomic_fetch_add(&gstore->queue.left_count, 1);
	if (change_window_state(window, GSTORE_TAKEN, GSTORE_LEFT))
		return true;
	atomic_fetch_sub(&gstore->queue.left_count, 1);
	return false;
}

/*
 * Ends the command that this process waits for, whatever becomes of it. What no thread has taken, none will. What one
 * is at work on is left, as a keeper that is stopped may hold it up without end: what comes next to the same store, token
 * or copy waits for it. A FOREIGN_WRITE, for which no keeper is asked, is waited for without interrupts: the memory is
 * a program's, which may do with it what it likes once it has seen the end.
 */
static void
end_waiting(void)
{
	const int window = waiting;

	if (window < 0)
		return;
	waiting = -1;
	if (!change_window_state((uint32) window, GSTORE_POSTED, GSTORE_IDLE))
	{
		if (gstore->windows[window].verb != GSTORE_FOREIGN_WRITE && abandon_window((uint32) window))
			return;
		while (!is_done((uint32) window))
			pause_for_service();
		atomic_store(&gstore->windows[window].state, GSTORE_IDLE);
	}
	gstore_window_give_back((uint32) window);
}

static void
read_window_answer(const gstore_window *w, gstore_answer *answer)
{
	answer->status = w->status;
	strlcpy(answer->text, w->text, sizeof answer->text);
	answer->short_column = w->short_column;
	answer->short_bytes = w->short_bytes;
	answer->budgets = w->budgets;
}

/* Given up only once the worker is going or gone, and no thread has taken it. */
static void
end_begun(void)
{
	gstore_window *w;
	bool		   given_up = false;

	if (begun < 0)
		return;
	w = &gstore->windows[begun];
	while (!is_done((uint32) begun))
	{
		given_up = !gstore->ready && change_window_state((uint32) begun, GSTORE_POSTED, GSTORE_IDLE);
		if (given_up)
			break;
		pause_for_service();
		CHECK_FOR_INTERRUPTS();
	}
	if (given_up)
	{
		begun_answer->status = GVM_E_KEEPER;
		strlcpy(begun_answer->text, "the keeper was lost", sizeof begun_answer->text);
	}
	else
	{
		read_window_answer(w, begun_answer);
		atomic_store(&w->state, GSTORE_IDLE);
	}
	give_back_lent((uint32) begun);
	begun = -1;
	begun_answer = NULL;
}

void
gstore_await(void)
{
	end_begun();
}

void
gstore_leave_begun(const gstore_answer *answer)
{
	const int window = begun;

	if (window < 0 || (answer != NULL && begun_answer != answer))
		return;
	begun = -1;
	begun_answer->status = GVM_E_KEEPER;
	strlcpy(begun_answer->text, "the rows were given up", sizeof begun_answer->text);
	begun_answer = NULL;
	if (!change_window_state((uint32) window, GSTORE_POSTED, GSTORE_IDLE))
	{
		if (abandon_window((uint32) window))
		{
			uncount_lent_window();
			return;
		}
		atomic_store(&gstore->windows[window].state, GSTORE_IDLE);
	}
	give_back_lent((uint32) window);
}

void
gstore_leave_begun_to(uint64 store)
{
	if (begun >= 0 && gstore->windows[begun].name.store == store)
		gstore_leave_begun(NULL);
}

void
gstore_settle(void)
{
	end_waiting();
}

/* After a FATAL nothing catches what it leaves. */
static void
end_windows_at_exit(int code, Datum argument)
{
	gstore_leave_begun(NULL);
	gstore_settle();
}

static uint32
acquire_window(void)
{
	uint32 window;

	end_begun();
	ConditionVariablePrepareToSleep(&gstore->window_freed);
	while (!try_acquire_window(&window)) /* a cancelled process may take the signal of a free one along */
		(void) ConditionVariableTimedSleep(&gstore->window_freed, WAIT_MS, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
	return window;
}

/* ---- the keeper's readiness */

void
gstore_check_loaded(void)
{
	if (gstore == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gstore_fdw has not been loaded at server start"),
				 errhint("Add gstore_fdw to shared_preload_libraries and restart the server.")));
}

/* A keeper that others run may come later: a statement waits for it. The server's own does not start if a try fails. */
static bool
has_failed_to_start(uint32 failed_before)
{
	return gstore_keeper_path[0] != '/' && gstore->failed_starts != failed_before;
}

void
gstore_wait_ready(void)
{
	static bool registered = false;
	const int64 end_ns = gstore_deadline_ns((int64) gstore_start_timeout_s * 1000);
	uint32		failed_before;

	gstore_check_loaded();
	if (!registered)
	{ /* here, so that callers' own clean-ups are registered after it */
		before_shmem_exit(end_windows_at_exit, (Datum) 0);
		registered = true;
	}
	if (gstore->ready)
		return;
	failed_before = gstore->failed_starts;
	ConditionVariablePrepareToSleep(&gstore->ready_changed);
	while (!gstore->ready)
	{
		if (has_failed_to_start(failed_before) || gstore_now_ns() >= end_ns)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
					 errmsg("the GPU memory keeper is not ready"),
					 gstore->problem[0] != '\0' ? errdetail("%s", gstore->problem) : 0,
					 errhint("%s", gstore_keeper_hint())));
		gstore_wake_worker(); /* it may be resting from tries that failed */
		(void) ConditionVariableTimedSleep(&gstore->ready_changed, 100, PG_WAIT_EXTENSION);
	}
	ConditionVariableCancelSleep();
}

/* ---- commands */

static void
enqueue_window(uint32 window)
{
	gstore->windows[window].latch = MyLatch;
	gstore_queue_put(&gstore->queue, &gstore->windows[window]);
}

/* A short command is done in less time than it takes to send this process a signal and to wake it. */
static bool
is_done_soon(uint32 window)
{
	instr_time begin, passed;

	INSTR_TIME_SET_CURRENT(begin);
	do
	{
		if (is_done(window))
			return true;
		sched_yield();
		INSTR_TIME_SET_CURRENT(passed);
		INSTR_TIME_SUBTRACT(passed, begin);
	} while (INSTR_TIME_GET_MICROSEC(passed) < SOON_US);
	return false;
}

static void
wait_done(uint32 window)
{
	if (is_done_soon(window))
		return;
	while (!is_done(window))
	{
		pause_for_service();
		CHECK_FOR_INTERRUPTS();
		if (!gstore->ready && !is_done(window))
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE), errmsg("the GPU memory keeper was lost"),
					 errdetail("Tables in GPU memory are empty now.")));
	}
}

/*
 * A write that was left would come over the rows that are written next. And of two commands that unpack areas of a store at
 * the same time each might wait for one that waits for the other (area_state.h, I3).
 */
static void
await_left_changes(const gstore_store_name *store)
{
	while (gstore_has_left_change(store))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, LEFT_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static int
sqlstate_of(int32 status)
{
	switch (status)
	{
		case GVM_E_NOSPACE:
			return ERRCODE_OUT_OF_MEMORY;
		case GVM_E_NOMEM:
			return ERRCODE_OUT_OF_MEMORY;
		case GVM_E_QUOTA:
		case GVM_E_ADDRESS:
		case GVM_E_LIMIT:
			return ERRCODE_PROGRAM_LIMIT_EXCEEDED;
		case GVM_E_TIMEOUT:
			return ERRCODE_LOCK_NOT_AVAILABLE;
		case GVM_E_KEEPER:
			return ERRCODE_CONNECTION_FAILURE;
		case GVM_E_INVALID:
		case GVM_E_NODEVICE:
			return ERRCODE_INVALID_PARAMETER_VALUE;
		case GVM_E_READONLY:
			return ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
		case GVM_E_NOTSUP:
			return ERRCODE_FEATURE_NOT_SUPPORTED;
		default:
			return ERRCODE_FDW_ERROR;
	}
}

static const char *
hint_of(gstore_verb verb, int32 status)
{
	switch (status)
	{
		case GVM_E_NOSPACE:
			if (verb == GSTORE_COPY_MAKE)
				return "Copies are beside gstore_fdw.device_memory: lower that, or use gstore_export().";
			if (gstore_keeper_path[0] != '\0')
				return "Delete rows or tables, or raise the budgets of the keeper that gstore_fdw.keeper names.";
			return "Delete rows or tables, or raise gstore_fdw.device_memory or gstore_fdw.host_memory and "
				   "restart the server, which empties all tables.";
		case GVM_E_ADDRESS:
		case GVM_E_LIMIT:
			if (verb == GSTORE_LINK)
				return "Each column of a token takes up to four of them: end tokens by gstore_revoke_all().";
			return "A column takes up to four objects of the keeper, of at most 1 TiB each: use fewer "
				   "columns, or drop tables.";
		case GVM_E_TIMEOUT:
			return "The keeper could not move the column in time; see gvmem top.";
		default:
			return NULL;
	}
}

/* What was wanted, and what there was then. */
static char *
describe_shortage(const gstore_store_name *store, const gstore_answer *answer, uint64 copy_bytes)
{
	const char			 *column = answer->short_bytes > 0
				  ? get_attname(store->table, (AttrNumber) answer->short_column, true)
				  : NULL;
	const gstore_budgets *budgets = &answer->budgets;
	StringInfoData		  text;

	initStringInfo(&text);
	if (column != NULL)
		appendStringInfo(&text, "Column \"%s\" needs %llu KiB in one piece", column,
						 (unsigned long long) (answer->short_bytes + 1023) / 1024);
	else if (copy_bytes > 0)
		appendStringInfo(&text, "A copy takes %llu KiB",
						 (unsigned long long) (copy_bytes + 1023) / 1024);
	appendStringInfo(&text, "%s%s.", text.len > 0 ? ": " : "The keeper: ", answer->text);
	if (budgets->device_bytes > 0)
		appendStringInfo(&text,
						 " GPU %d has a budget of %llu MiB, of which tables use %llu; for what does not fit "
						 "there are %llu MiB in host memory, of which %llu are used.",
						 store->device, (unsigned long long) budgets->device_bytes >> 20,
						 (unsigned long long) budgets->device_used_bytes >> 20,
						 (unsigned long long) budgets->host_bytes >> 20,
						 (unsigned long long) budgets->host_used_bytes >> 20);
	return text.data;
}

static void
pg_attribute_noreturn() fail(gstore_verb verb, const gstore_store_name *store,
							 const gstore_answer *answer, uint64 copy_bytes)
{
	const int32 status = answer->status;
	const char *hint = hint_of(verb, status);
	const char *table = status == GVM_E_NOSPACE ? get_rel_name(store->table) : NULL;

	if (status == GVM_E_KEEPER)
		CHECK_FOR_INTERRUPTS(); /* at the end of the server, the keeper's is but a part of it */
	if (table != NULL)
		ereport(ERROR,
				(errcode(sqlstate_of(status)), errmsg("out of GPU memory for table \"%s\"", table),
				 errdetail("%s", describe_shortage(store, answer, copy_bytes)), errhint("%s", hint)));
	ereport(ERROR,
			(errcode(sqlstate_of(status)), errmsg("GPU memory: %s", answer->text),
			 hint != NULL ? errhint("%s", hint) : 0));
}

void
gstore_answer_fail(const gstore_store_name *store, const gstore_answer *answer)
{
	fail(GSTORE_WRITE, store, answer, 0);
}

/* The window's command, to its end: its outcome is in the window. */
static void
run_window(uint32 window)
{
	waiting = (int) window;
	enqueue_window(window);
	PG_TRY();
	{
		wait_done(window);
	}
	PG_CATCH();
	{
		end_waiting();
		PG_RE_THROW();
	}
	PG_END_TRY();
	waiting = -1;
	atomic_store(&gstore->windows[window].state, GSTORE_IDLE);
}

/* The same. False: it was refused, and the answer says why. */
static bool
execute_window(uint32 window, gstore_answer *answer)
{
	run_window(window);
	read_window_answer(&gstore->windows[window], answer);
	return answer->status == GVM_OK;
}

static bool
is_read_verb(gstore_verb verb)
{
	return verb == GSTORE_READ || verb == GSTORE_FOREIGN_READ;
}

static bool
is_write_verb(gstore_verb verb)
{
	return verb == GSTORE_WRITE || verb == GSTORE_COPY_WRITE || verb == GSTORE_FOREIGN_WRITE;
}

/* Of what gives areas objects, or links: it takes memory, and goes on to its end if its backend leaves it. */
static uint32
most_ranges(gstore_verb verb)
{
	return verb == GSTORE_UNPACK || verb == GSTORE_LINK ? LINK_RANGES : GSTORE_RANGES_MAX;
}

/* How much of the pieces from *piece on, the first of them from *done on, fits one command. */
static void
fill_window(gstore_window *w, uint32 window, gstore_verb verb, const gstore_piece *pieces,
			int count, int *piece, uint64 *done)
{
	uint8 *bytes = gstore_window_bytes(window);
	uint64 used = 0;

	w->range_count = 0;
	while (*piece < count && w->range_count < most_ranges(verb))
	{
		const gstore_piece *p = &pieces[*piece];
		const gstore_source source = p->staged		  ? GSTORE_FROM_STAGED
			: is_write_verb(verb) && p->local == NULL ? GSTORE_FROM_BYTE
													  : GSTORE_FROM_WINDOW;
		const bool			windowless = source != GSTORE_FROM_WINDOW || verb == GSTORE_COPY_TAKE ||
			verb >= GSTORE_UNPACK_BYTES;
		uint64		  part = p->bytes - *done;
		gstore_range *range;

		if (!windowless)
		{
			if (used >= gstore_window_size())
				break;
			part = Min(part, gstore_window_size() - used);
		}
		if (part > 0)
		{
			range = &w->ranges[w->range_count++];
			*range = (gstore_range){.column = p->column,
									.part = p->part,
									.source = (uint8) source,
									.byte = p->byte,
									.offset_bytes = p->offset_bytes + *done,
									.window_bytes = verb == GSTORE_COPY_TAKE ? p->to + *done
										: p->staged							 ? p->from + *done
										: windowless						 ? 0
																			 : used,
									.bytes = part};
			if (is_write_verb(verb) && !windowless)
				memcpy(bytes + used, (const uint8 *) p->local + *done, part);
			if (!windowless)
				used = TYPEALIGN(ALIGN_BYTES, used + part);
		}
		*done += part;
		if (*done < p->bytes)
			break;
		(*piece)++;
		*done = 0;
	}
}

static void
read_window_bytes(const gstore_window *w, uint32 window, const gstore_piece *pieces, int first,
				  uint64 done)
{
	const uint8 *bytes = gstore_window_bytes(window);

	for (uint32 i = 0; i < w->range_count; i++)
	{
		const gstore_piece *p;

		while (pieces[first].bytes == done) /* empty, or filled by the range before */
		{
			first++;
			done = 0;
		}
		p = &pieces[first];
		memcpy((uint8 *) p->local + done, bytes + w->ranges[i].window_bytes, w->ranges[i].bytes);
		done += w->ranges[i].bytes;
	}
}

bool
gstore_try_transfer(gstore_verb verb, const gstore_store_name *store, gstore_far *far,
					const gstore_piece *pieces, int count, gstore_answer *refused)
{
	gstore_answer  own;
	gstore_answer *answer = refused != NULL ? refused : &own;
	int			   piece = 0;
	uint64		   done = 0;

	gstore_wait_ready();
	if (changes_areas(verb))
		await_left_changes(store);
	answer->status = GVM_OK;
	do
	{
		const int	   first = piece;
		const uint64   first_done = done;
		const uint32   window = acquire_window();
		gstore_window *w = &gstore->windows[window];

		w->verb = verb;
		w->name = *store;
		if (far != NULL)
		{
			w->copy = far->copy;
			w->copy_bytes = far->copy_bytes;
			memcpy(w->handle, far->handle, sizeof w->handle);
			w->owner = far->owner;
		}
		fill_window(w, window, verb, pieces, count, &piece, &done);
		if ((w->range_count > 0 || count == 0) && execute_window(window, answer))
		{
			if (is_read_verb(verb))
				read_window_bytes(w, window, pieces, first, first_done);
			if (verb == GSTORE_COPY_MAKE)
				memcpy(far->handle, w->handle, sizeof far->handle);
			if (verb == GSTORE_LINK)
				far->owner = w->owner;
			if (verb == GSTORE_UNPACK_BYTES)
				far->copy_bytes = w->copy_bytes;
		}
		gstore_window_give_back(window);
		if (piece < count && answer->status == GVM_OK)
			CHECK_FOR_INTERRUPTS();
	} while (piece < count && answer->status == GVM_OK);
	if (answer->status != GVM_OK && refused == NULL)
		fail(verb, store, answer, verb == GSTORE_COPY_MAKE ? far->copy_bytes : 0);
	return answer->status == GVM_OK;
}

void
gstore_transfer_far(gstore_verb verb, const gstore_store_name *store, gstore_far *far,
					const gstore_piece *pieces, int count)
{
	(void) gstore_try_transfer(verb, store, far, pieces, count, NULL);
}

void
gstore_write_begin(const gstore_store_name *store, const gstore_piece *pieces, int count,
				   gstore_answer *answer)
{
	int	   piece = 0;
	uint64 done = 0;

	gstore_wait_ready();
	await_left_changes(store);
	while (piece < count)
	{
		const uint32   window = acquire_window();
		gstore_window *w = &gstore->windows[window];
		bool		   executed;

		w->verb = GSTORE_WRITE;
		w->name = *store;
		fill_window(w, window, GSTORE_WRITE, pieces, count, &piece, &done);
		if (piece == count && w->range_count > 0 && may_lend())
		{
			begun = (int) window;
			begun_answer = answer;
			enqueue_window(window);
			return;
		}
		executed = w->range_count == 0 || execute_window(window, answer);
		gstore_window_give_back(window);
		if (!executed)
			gstore_answer_fail(store, answer);
	}
}

void
gstore_transfer(gstore_verb verb, const gstore_store_name *store, const gstore_piece *pieces, int count)
{
	gstore_wait_ready();
	if (count > 0)
		gstore_transfer_far(verb, store, NULL, pieces, count);
}
