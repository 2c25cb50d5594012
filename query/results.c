/* See executor.h: results that wait to be fetched.
 *
 * They are an object of the keeper, without a lease while nobody fetches them: a cursor may leave them for hours,
 * and the keeper moves them to host memory where others need the room. Blocks that are the driver's, and small, are
 * sent at once and never wait (run.c).
 */
#include "query/executor.h"

#define PIECE_MS 1000 /* between two looks at whether the backend has gone */

_Static_assert(GQUERY_OBJECT_LEAST <= GQUERY_PIECE_MAX, "other blocks fit a piece");

void gquery_results_rest(gquery_connection *c)
{
    gquery_scratch_rest_block(&c->results.block);
}

gvm_status gquery_results_copy(gquery_connection *c, uint64_t bytes, void *to)
{
    const gquery_results *r = &c->results;
    const uint64_t at = r->sent * r->record_words * sizeof(uint64_t);
    gvm_status status;

    do
        status = gvm_object_copy_out(to, r->block.object, at, bytes, PIECE_MS);
    while (status == GVM_E_TIMEOUT && !gquery_is_closed(c));
    return status;
}

void gquery_forget(gquery_connection *c)
{
    gquery_scratch_give(&c->results.block);
    c->results = (gquery_results){0};
}
