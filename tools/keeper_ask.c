/* Connecting to a keeper, and asking one that may not answer: its process can be stopped, or its
 * machine overloaded. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tools/keeper.h"

gvm_client *keeper_connect(const char *socket)
{
    gvm_client *keeper = NULL;

    if (gvm_client_connect(socket, &keeper) == GVM_OK)
        return keeper;
    tool_fail("no connection to a keeper");
    return NULL;
}

/* Shared by the thread that asks and the one that waits for it; the last of them frees it. */
typedef struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    gvm_client *keeper;
    snapshot_copy *snapshot;
    gvm_status status;
    gvm_error error;
    bool chunks; /* where they are, too */
    bool done, given_up;
} question;

static void question_free(question *q)
{
    pthread_cond_destroy(&q->answered);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

static void *question_thread_main(void *arg)
{
    question *q = arg;
    bool given_up;

    q->status = snapshot_take(q->keeper, &q->snapshot);
    if (q->status == GVM_OK && q->chunks)
        q->status = snapshot_take_chunks(q->keeper, q->snapshot);
    (void)gvm_error_last(&q->error);
    pthread_mutex_lock(&q->lock);
    q->done = true;
    given_up = q->given_up;
    pthread_cond_signal(&q->answered);
    pthread_mutex_unlock(&q->lock);
    if (given_up) { /* an answer came too late, or the connection ended */
        snapshot_free(q->snapshot);
        gvm_client_close(q->keeper);
        question_free(q);
    }
    return NULL;
}

static bool await_answer(question *q)
{
    struct timespec until;
    bool done;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += KEEPER_ANSWER_S;
    pthread_mutex_lock(&q->lock);
    while (!q->done && pthread_cond_clockwait(&q->answered, &q->lock, CLOCK_MONOTONIC, &until) == 0) {}
    done = q->done;
    q->given_up = !done;
    pthread_mutex_unlock(&q->lock);
    return done;
}

static question *question_new(gvm_client *keeper, bool chunks)
{
    question *q = calloc(1, sizeof *q);

    if (q == NULL)
        return NULL;
    pthread_cond_init(&q->answered, NULL);
    pthread_mutex_init(&q->lock, NULL);
    q->keeper = keeper;
    q->chunks = chunks;
    return q;
}

gvm_status keeper_ask(gvm_client **keeper, bool chunks, snapshot_copy **out)
{
    question *q = question_new(*keeper, chunks);
    pthread_t thread;
    gvm_status status;

    if (q == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of memory");
    if (pthread_create(&thread, NULL, question_thread_main, q) != 0) {
        question_free(q);
        return gvm_error_set(GVM_E_LIMIT, "cannot start a thread");
    }
    if (!await_answer(q)) {
        pthread_detach(thread);
        *keeper = NULL;
        return gvm_error_set(GVM_E_TIMEOUT, "the keeper does not answer within %d s", KEEPER_ANSWER_S);
    }
    pthread_join(thread, NULL);
    status = q->status;
    if (status == GVM_OK) {
        *out = q->snapshot;
    } else {
        snapshot_free(q->snapshot);
        gvm_error_restore(&q->error);
    }
    question_free(q);
    return status;
}
