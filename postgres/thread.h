/* postgres/thread.h - threads of the GPU memory keeper's process. Nothing of PostgreSQL. */
#ifndef GSTORE_THREAD_H
#define GSTORE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Returns what pthread_create() does. All signals are blocked in the thread: the main thread handles them. */
static inline int
gstore_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
	sigset_t all, before;
	int		 error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

#endif
