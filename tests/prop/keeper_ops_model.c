/* What every object should be; see keeper_ops.h. */
#include "tests/prop/keeper_ops.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/basic.h"

#define METADATA_MAGIC 0x6f70735f6d657461ull

shared_page *page;

/* ---- the page */

shared_page *model_page_create(void)
{
    shared_page *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t attributes;

    if (p == MAP_FAILED)
        return NULL;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&p->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return p;
}

bool wrong(const char *format, ...)
{
    va_list args;

    if (!atomic_flag_test_and_set(&page->problem_taken)) {
        va_start(args, format);
        vsnprintf(page->problem, sizeof page->problem, format, args);
        va_end(args);
    }
    atomic_store(&page->stop, true);
    return false;
}

bool judged(const char *call, gvm_status status, uint64_t may)
{
    gvm_error error;

    atomic_fetch_add(&page->answered[status % 64], 1);
    if (status == GVM_OK)
        return (may & MUST_FAIL) == 0 || wrong("%s answered GVM_OK", call);
    if (status < 63 && (may & ONE_OF(status)) != 0)
        return true;
    gvm_error_last(&error);
    return wrong("%s answered %s: %s [%s %s]", call, gvm_status_name(status), error.text,
                 error.native_call, error.native_name);
}

/* ---- names */

void names_lock(void)
{
    int result = pthread_mutex_lock(&page->mutex);

    if (result == EOWNERDEAD) { /* its holder died, which is a failure that the parent tells of */
        pthread_mutex_consistent(&page->mutex);
        atomic_store(&page->stop, true);
    }
}

void names_unlock(void)
{
    pthread_mutex_unlock(&page->mutex);
}

uint64_t name_owner(unsigned name)
{
    const name_log *log = &page->names[name];

    return atomic_load(&log->history[atomic_load(&log->asked) % HISTORY]);
}

void name_ask(unsigned name, uint64_t serial)
{
    name_log *log = &page->names[name];
    const uint64_t at = atomic_load(&log->asked) + 1;

    atomic_store(&log->history[at % HISTORY], serial);
    atomic_store(&log->asked, at);
}

/* The object has no name any more, or has one for the first time. */
static void set_name(uint64_t serial, int name)
{
    record *r = record_find(serial);
    const int before = r != NULL ? r->name : -1;

    if (r == NULL || before == name)
        return;
    r->name = name;
    if (before < 0)
        record_hold(r);
    if (name < 0)
        record_drop(r);
}

void name_done(unsigned name, uint64_t before, uint64_t after)
{
    name_log *log = &page->names[name];

    if (before != after) {
        set_name(before, -1);
        set_name(after, (int)name);
    }
    atomic_store(&log->done, atomic_load(&log->asked));
}

const char *name_text(unsigned name)
{
    static const char *const texts[NAMES] = {"/a", "/b/with/parts", "/c", "/d and blanks", "/e~",
                                             "/f"};

    return texts[name % NAMES];
}

bool name_was(unsigned name, uint64_t done, uint64_t serial)
{
    const name_log *log = &page->names[name];
    const uint64_t asked = atomic_load(&log->asked);

    if (asked - done >= HISTORY) /* too much has happened to tell */
        return true;
    for (uint64_t at = done; at <= asked; at++)
        if (atomic_load(&log->history[at % HISTORY]) == serial)
            return true;
    return false;
}

/* ---- objects */

record *record_create(uint32_t reserve_chunks)
{
    const uint64_t serial = atomic_fetch_add(&page->serials, 1) + 1;
    record *r = &page->records[serial % RECORDS];

    memset(r, 0, sizeof *r);
    r->reserve_chunks = reserve_chunks;
    r->name = -1;
    atomic_store(&r->references, 1);
    atomic_store(&r->serial, serial);
    return r;
}

record *record_find(uint64_t serial)
{
    record *r = &page->records[serial % RECORDS];

    return serial != 0 && atomic_load(&r->serial) == serial ? r : NULL;
}

static void add_chunks(uint32_t chunks)
{
    atomic_fetch_add(&page->chunks_in_use, chunks);
    atomic_fetch_add(&page->chunks_added, chunks);
}

/* A process that opened an object by name is counted here only when it has read which one it is, so references
 * may rise from 0. */
void record_hold(record *r)
{
    if (atomic_fetch_add(&r->references, 1) == 0)
        add_chunks(atomic_load(&r->chunks_asked));
}

void record_drop(record *r)
{
    if (atomic_fetch_sub(&r->references, 1) == 1)
        atomic_fetch_sub(&page->chunks_in_use, atomic_load(&r->chunks_asked));
}

void record_ask_chunks(record *r, uint32_t chunks)
{
    uint32_t asked = atomic_load(&r->chunks_asked);

    while (asked < chunks) /* bounded: it only rises, to CHUNKS_MAX */
        if (atomic_compare_exchange_weak(&r->chunks_asked, &asked, chunks)) {
            add_chunks(chunks - asked);
            return;
        }
}

void record_grown(record *r, uint32_t chunks)
{
    uint32_t done = atomic_load(&r->chunks_done);

    while (done < chunks)
        if (atomic_compare_exchange_weak(&r->chunks_done, &done, chunks))
            return;
}

/* The sums that only rise are read first here, and written last: what is missing in one of a pair
 * is then in the difference of the other. */
fullness model_fullness(void)
{
    fullness now;

    now.chunks_added = atomic_load(&page->chunks_added);
    now.opens_begun = atomic_load(&page->opens_begun);
    now.chunks_in_use = atomic_load(&page->chunks_in_use);
    now.opens_under_way = atomic_load(&page->opens_under_way);
    return now;
}

/* An open under way keeps an object that is in nobody's count. What moves under way hold twice does
 * not count: growth waits for it. */
bool model_may_have_been_full(const fullness *before)
{
    const uint64_t chunks = before->chunks_in_use + atomic_load(&page->chunks_added) -
                            before->chunks_added;
    const uint64_t opens = before->opens_under_way + atomic_load(&page->opens_begun) -
                           before->opens_begun;

    return chunks + opens * CHUNKS_MAX > page->budget_chunks;
}

void model_open_begins(void)
{
    atomic_fetch_add(&page->opens_under_way, 1);
    atomic_fetch_add(&page->opens_begun, 1);
}

void model_open_ends(void)
{
    atomic_fetch_sub(&page->opens_under_way, 1);
}

/* ---- metadata */

static uint8_t filler_byte(uint64_t serial, uint64_t version, uint32_t i)
{
    return (uint8_t)gvmi_splitmix64(serial * 1000003 + version * 257 + i);
}

static uint32_t filler_bytes(uint64_t serial, uint64_t version)
{
    return (uint32_t)(gvmi_splitmix64(serial ^ version << 32) % (METADATA_FILLER_MAX + 1));
}

uint32_t metadata_make(metadata *out, uint64_t serial, uint64_t version)
{
    const uint32_t filler = filler_bytes(serial, version);

    memset(out, 0, sizeof *out);
    out->magic = METADATA_MAGIC;
    out->serial = serial;
    out->version = version;
    for (uint32_t i = 0; i < filler; i++)
        out->filler[i] = filler_byte(serial, version, i);
    return (uint32_t)offsetof(metadata, filler) + filler;
}

bool metadata_good(const metadata *m, uint32_t len_bytes)
{
    const uint32_t head = (uint32_t)offsetof(metadata, filler);

    if (len_bytes < head || m->magic != METADATA_MAGIC ||
        len_bytes != head + filler_bytes(m->serial, m->version))
        return false;
    for (uint32_t i = 0; i < len_bytes - head; i++)
        if (m->filler[i] != filler_byte(m->serial, m->version, i))
            return false;
    return true;
}
