/* See executor.h: the memory file and messages of a connection. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "postgres/clock.h"
#include "query/executor.h"

int64_t gquery_now_ns(void)
{
    return gstore_now_ns();
}

void gquery_wait(pthread_cond_t *changed, pthread_mutex_t *lock, int wait_ms)
{
    const int64_t until_ns = gquery_now_ns() + wait_ms * INT64_C(1000000);
    const struct timespec until = {until_ns / INT64_C(1000000000), until_ns % INT64_C(1000000000)};

    (void)pthread_cond_clockwait(changed, lock, CLOCK_MONOTONIC, &until);
}

/* ---- the memory file, which cannot shrink: executor.c has seen its seal */

void gquery_unmap_window(gquery_connection *c)
{
    if (c->file != NULL)
        munmap(c->file, c->file_bytes);
    c->file = NULL;
    c->file_bytes = 0;
}

static bool map_file(gquery_connection *c)
{
    struct stat found;
    void *bytes;

    if (fstat(c->memory, &found) != 0 || (uint64_t)found.st_size < sizeof(gquery_window))
        return false;
    if ((uint64_t)found.st_size == c->file_bytes)
        return true;
    bytes = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->memory, 0);
    if (bytes == MAP_FAILED)
        return false;
    gquery_unmap_window(c);
    c->file = bytes;
    c->file_bytes = (uint64_t)found.st_size;
    return true;
}

bool gquery_read_window(gquery_connection *c)
{
    if (!map_file(c))
        return false;
    /* Before anything is looked at: a query that ends this process is not sent to the next one. */
    __atomic_store_n(&((gquery_window *)(void *)c->file)->begun, 1, __ATOMIC_SEQ_CST);
    /* What is checked is the copy: the backend can still write to the file. */
    memcpy(&c->query, c->file, sizeof c->query);
    for (uint32_t i = 0; i < GQUERY_TABLES_MAX; i++)
        c->query.tables[i].token[GQUERY_TOKEN_BYTES - 1] = '\0';
    return c->query.magic == GQUERY_MAGIC && c->query.version == GQUERY_VERSION &&
           c->query.used >= sizeof(gquery_window) && c->query.used <= c->file_bytes;
}

void *gquery_at(const gquery_connection *c, gquery_span span)
{
    return span.at <= c->file_bytes && span.bytes <= c->file_bytes - span.at ? c->file + span.at : NULL;
}

/* With memory: where there is none, writing to the file would end the process. */
static bool extend_file(const gquery_connection *c, uint64_t bytes)
{
    int error;

    do
        error = posix_fallocate(c->memory, (off_t)c->file_bytes, (off_t)(bytes - c->file_bytes));
    while (error == EINTR);
    return error == 0;
}

void *gquery_append(gquery_connection *c, uint64_t bytes, gquery_span *span)
{
    const uint64_t at = (c->query.used + GQUERY_ALIGN - 1) / GQUERY_ALIGN * GQUERY_ALIGN;

    if (at + bytes > c->file_bytes && (!extend_file(c, at + bytes) || !map_file(c)))
        return NULL;
    *span = (gquery_span){at, bytes};
    return gquery_at(c, *span);
}

/* ---- messages */

bool gquery_is_gone(const gquery_connection *c)
{
    struct pollfd p = {c->socket, POLLRDHUP, 0};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool gquery_is_closed(gquery_connection *c)
{
    gquery_connection *moved = c->whole != NULL ? c->whole : c;

    atomic_store_explicit(&moved->moved_ns, gquery_now_ns(), memory_order_relaxed);
    return gquery_is_gone(c);
}

void gquery_answer(gquery_message *answer, gquery_verb verb, const char *sqlstate,
                   const char *format, ...)
{
    va_list arguments;

    answer->verb = verb;
    snprintf(answer->sqlstate, sizeof answer->sqlstate, "%s", sqlstate);
    va_start(arguments, format);
    vsnprintf(answer->text, sizeof answer->text, format, arguments);
    va_end(arguments);
}

/* Where the same query may succeed without the device, as it mostly does, other than GQUERY_ERROR. */
static gquery_verb verb_of(gvm_status status)
{
    switch (status) {
    case GVM_E_ABSENT:
    case GVM_E_NOMEM:
    case GVM_E_NOSPACE:
    case GVM_E_ADDRESS:
    case GVM_E_LIMIT:
    case GVM_E_QUOTA:
    case GVM_E_NODRIVER:
    case GVM_E_NODEVICE:
    case GVM_E_NOTSUP:
    case GVM_E_PEER:
    case GVM_E_TIMEOUT:
    case GVM_E_KEEPER:
    case GVM_E_LOST: return GQUERY_NO_ROOM;
    case GVM_E_SYSTEM:
    case GVM_E_DRIVER: return GQUERY_FAULT;
    default: return GQUERY_ERROR;
    }
}

void gquery_answer_status(gquery_message *answer, gvm_status status, const char *what)
{
    gvm_error error;

    gvm_error_last(&error);
    gquery_answer(answer, verb_of(status), gvm_status_sqlstate(status), "%s: %s%s%s", what,
                  error.text, error.native_name[0] != '\0' ? " " : "", error.native_name);
    /* The context, or the connection to the keeper, is gone for good. */
    answer->lost = status == GVM_E_LOST || status == GVM_E_KEEPER;
}
