/* See executor.h: results that wait to be fetched.
 *
 * They are on the device. A cursor may leave them there for hours: those that nobody has asked for in a while are moved to host memory, of which
 * there is a bound for all connections. Above it they stay where they are, each query's within its bound of scratch memory.
 */
#include <stdlib.h>

#include "query/executor.h"

#define HOST_BYTES_MAX (UINT64_C(1) << 30)

static _Atomic uint64_t host_bytes;

static uint64_t bytes_behind(const gquery_results *r, uint64_t record)
{
    return (r->count - record) * r->record_words * sizeof(uint64_t);
}

static bool reserve_host(uint64_t bytes)
{
    if (atomic_fetch_add(&host_bytes, bytes) + bytes <= HOST_BYTES_MAX)
        return true;
    atomic_fetch_sub(&host_bytes, bytes);
    return false;
}

/* NULL: there is no room, or they cannot be read, which the next fetch reports. */
static uint8_t *copy_to_host(const gquery_results *r, uint64_t bytes)
{
    const uint64_t from = r->block.address + r->sent * r->record_words * sizeof(uint64_t);
    uint8_t *host = malloc(bytes);

    if (host != NULL && gvmi_cu->cuMemcpyDtoH(host, from, bytes) == CUDA_SUCCESS)
        return host;
    free(host);
    return NULL;
}

void gquery_results_rest(gquery_connection *c)
{
    gquery_results *r = &c->results;
    const uint64_t bytes = bytes_behind(r, r->sent);

    if (r->block.bytes == 0 || !reserve_host(bytes))
        return;
    r->host = copy_to_host(r, bytes);
    if (r->host == NULL) {
        atomic_fetch_sub(&host_bytes, bytes);
        return;
    }
    r->host_first = r->sent;
    gquery_scratch_give(&r->block);
}

void gquery_forget(gquery_connection *c)
{
    gquery_results *r = &c->results;

    gquery_scratch_give(&r->block);
    if (r->host != NULL)
        atomic_fetch_sub(&host_bytes, bytes_behind(r, r->host_first));
    free(r->host);
    *r = (gquery_results){0};
}
