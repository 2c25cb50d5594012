/*
 * See tasks.h. Trims only give memory back, and there may be one for every change that is undone: what ends memory or tokens
 * comes before them, a store has one that waits, and the look at the keeper is taken when it is due.
 */
#include "postgres/tasks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "postgres/clock.h"
#include "postgres/thread.h"

#define LOOK_MS 1000

typedef enum task_kind
{
	DROP_STORE,
	TRIM_STORE,
	DROP_COPY,
	UNLINK
} task_kind;

typedef struct task
{
	struct task		 *next;
	task_kind		  kind;
	gstore_store_name name;
	uint64_t		  copy;
	uint8_t			  secret[GSTORE_SECRET_BYTES];
	uint32_t		  count; /* TRIM_STORE */
	gstore_extent	  extents[];
} task;

typedef struct task_list
{
	task *first, **end;
} task_list;

struct gstore_tasks
{
	gstore_service *service;
	void (*wake)(void *latch);
	void		   *latch;
	pthread_t		thread;
	pthread_mutex_t lock;
	pthread_cond_t	given;
	/* Under the lock: */
	task_list		   ends, trims;
	task			  *dropped; /* done: what has dropped a store of no table */
	bool			   stop;
	bool			   reported; /* and not taken */
	gstore_report	   report;
	gstore_store_size *sizes;
	uint32_t		   size_count;
};

static task *
remove_first(task_list *list)
{
	task *taken = list->first;

	if (taken == NULL)
		return NULL;
	list->first = taken->next;
	if (list->first == NULL)
		list->end = &list->first;
	return taken;
}

/* NULL: there was none until then; or *stop. */
static task *
next_task(gstore_tasks *c, int64_t until_ns, bool *stop)
{
	const struct timespec until = {.tv_sec = until_ns / (1000 * GSTORE_NS_PER_MS),
								   .tv_nsec = until_ns % (1000 * GSTORE_NS_PER_MS)};
	task				 *taken;

	pthread_mutex_lock(&c->lock);
	while (c->ends.first == NULL && c->trims.first == NULL && !c->stop &&
		   pthread_cond_clockwait(&c->given, &c->lock, CLOCK_MONOTONIC, &until) == 0)
	{
	}
	taken = remove_first(&c->ends);
	if (taken == NULL)
		taken = remove_first(&c->trims);
	*stop = taken == NULL && c->stop;
	pthread_mutex_unlock(&c->lock);
	return taken;
}

static void
read_store_sizes(gstore_tasks *c)
{
	gstore_store_size *sizes, *old;
	gstore_report	   report;
	uint32_t		   size_count;
	const bool good = gstore_service_report(c->service, &report, &sizes, &size_count) == GVM_OK;

	if (good)
	{
		pthread_mutex_lock(&c->lock);
		c->report = report;
		old = c->sizes;
		c->sizes = sizes;
		c->size_count = size_count;
		c->reported = true;
		pthread_mutex_unlock(&c->lock);
		free(old);
	}
	if (good || gstore_service_is_lost(c->service))
		c->wake(c->latch);
}

/* Keeps the task, as there may be no memory to note the store elsewhere. */
static void
note_dropped(gstore_tasks *c, task *done)
{
	pthread_mutex_lock(&c->lock);
	done->next = c->dropped;
	c->dropped = done;
	pthread_mutex_unlock(&c->lock);
	c->wake(c->latch);
}

/* The task is the callee's from here on. */
static void
execute_task(gstore_tasks *c, task *what)
{
	switch (what->kind)
	{
		case DROP_STORE:
			if (gstore_service_drop(c->service, &what->name) && what->name.table == 0)
			{
				note_dropped(c, what);
				return;
			}
			break;
		case TRIM_STORE:
			gstore_service_trim(c->service, &what->name, what->extents, what->count);
			break;
		case DROP_COPY:
			gstore_service_drop_copy(c->service, what->copy);
			break;
		case UNLINK:
			gstore_service_unlink(c->service, what->secret);
			break;
	}
	free(what);
}

static void *
tasks_thread_main(void *arg)
{
	gstore_tasks *c = arg;
	int64_t		  look_ns = 0;
	bool		  stop = false;

	while (!stop)
	{
		task *taken;

		if (gstore_now_ns() >= look_ns)
		{
			read_store_sizes(c);
			look_ns = gstore_deadline_ns(LOOK_MS);
		}
		taken = next_task(c, look_ns, &stop);
		if (taken != NULL)
			execute_task(c, taken);
	}
	return NULL;
}

gvm_status
gstore_tasks_start(gstore_service *service, void (*wake)(void *latch), void *latch, gstore_tasks **out)
{
	gstore_tasks *c = calloc(1, sizeof *c);
	int			  code;

	if (c == NULL)
		return gvm_error_set(GVM_E_NOMEM, "out of host memory for the keeper's tasks");
	c->service = service;
	c->wake = wake;
	c->latch = latch;
	c->ends.end = &c->ends.first;
	c->trims.end = &c->trims.first;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->given, NULL);
	code = gstore_thread_start(&c->thread, tasks_thread_main, c);
	if (code != 0)
	{
		pthread_cond_destroy(&c->given);
		pthread_mutex_destroy(&c->lock);
		free(c);
		return gvm_error_set(GVM_E_SYSTEM, "cannot start a thread: %s", strerror(code));
	}
	*out = c;
	return GVM_OK;
}

void
gstore_tasks_stop(gstore_tasks *c)
{
	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->given);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	for (task *next; c->dropped != NULL; c->dropped = next)
	{
		next = c->dropped->next;
		free(c->dropped);
	}
	pthread_cond_destroy(&c->given);
	pthread_mutex_destroy(&c->lock);
	free(c->sizes);
	free(c);
}

static task *
copy_task(task what, const gstore_extent *extents)
{
	task *copy = malloc(sizeof *copy + what.count * sizeof *extents);

	if (copy == NULL)
		return NULL;
	*copy = what;
	if (what.count > 0)
		memcpy(copy->extents, extents, what.count * sizeof *extents);
	return copy;
}

/* The place of the store's trim in the list, or its end. The lock is held. */
static task **
find_trim(gstore_tasks *c, const gstore_store_name *name)
{
	task **place = &c->trims.first;

	while (*place != NULL && (*place)->name.store != name->store)
		place = &(*place)->next;
	return place;
}

/* place: the list's end, or of a task that the given one replaces. The lock is held. */
static void
link_task(gstore_tasks *c, task_list *list, task **place, task *given)
{
	task *old = *place;

	given->next = old != NULL ? old->next : NULL;
	*place = given;
	if (given->next == NULL)
		list->end = &given->next;
	free(old);
	pthread_cond_signal(&c->given);
}

static bool
add_task(gstore_tasks *c, task what)
{
	task *given = copy_task(what, NULL);

	if (given == NULL)
		return false;
	pthread_mutex_lock(&c->lock);
	link_task(c, &c->ends, c->ends.end, given);
	pthread_mutex_unlock(&c->lock);
	return true;
}

bool
gstore_tasks_drop_store(gstore_tasks *c, const gstore_store_name *name)
{
	return add_task(c, (task){.kind = DROP_STORE, .name = *name});
}

bool
gstore_tasks_take_dropped(gstore_tasks *c, gstore_store_name *name)
{
	task *taken;

	pthread_mutex_lock(&c->lock);
	taken = c->dropped;
	if (taken != NULL)
	{
		c->dropped = taken->next;
		*name = taken->name;
	}
	pthread_mutex_unlock(&c->lock);
	free(taken);
	return taken != NULL;
}

void
gstore_tasks_trim_store(gstore_tasks *c, const gstore_store_name *name,
						const gstore_extent *extents, uint32_t count)
{
	task *given = copy_task((task){.kind = TRIM_STORE, .name = *name, .count = count}, extents);

	if (given == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	link_task(c, &c->trims, find_trim(c, name), given);
	pthread_mutex_unlock(&c->lock);
}

bool
gstore_tasks_drop_copy(gstore_tasks *c, uint64_t copy)
{
	return add_task(c, (task){.kind = DROP_COPY, .copy = copy});
}

bool
gstore_tasks_unlink(gstore_tasks *c, const uint8_t secret[GSTORE_SECRET_BYTES])
{
	task what = {.kind = UNLINK};

	memcpy(what.secret, secret, sizeof what.secret);
	return add_task(c, what);
}

bool
gstore_tasks_take_report(gstore_tasks *c, gstore_report *out, gstore_store_size **sizes,
						 uint32_t *size_count)
{
	bool reported;

	pthread_mutex_lock(&c->lock);
	reported = c->reported;
	if (reported)
	{
		*out = c->report;
		*sizes = c->sizes;
		*size_count = c->size_count;
		c->sizes = NULL;
	}
	c->reported = false;
	pthread_mutex_unlock(&c->lock);
	return reported;
}
