/* What happened between two snapshots. */
#include <math.h>
#include <stdlib.h>

#include "tools/top_view.h"

/* A record's number and its count of acquires, so that objects and clients are matched alike. */
typedef struct sample {
    uint64_t id, acquires;
} sample;

static int compare_samples(const void *a, const void *b)
{
    const sample *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* A counter that fell started anew. */
static double rate_of(uint64_t before, uint64_t now, double seconds)
{
    return seconds <= 0 ? NAN : now < before ? 0 : (double)(now - before) / seconds;
}

/* The rate of each record in now, NaN where before does not have it. before is sorted. NULL: out of
 * memory. */
static double *match_records(sample *before, size_t before_count, const sample *now,
                             size_t now_count, double seconds)
{
    double *rates = malloc((now_count + 1) * sizeof *rates);

    if (rates == NULL)
        return NULL;
    qsort(before, before_count, sizeof *before, compare_samples);
    for (size_t i = 0; i < now_count; i++) {
        const sample *found = before_count == 0 ? NULL
                                                : bsearch(&now[i], before, before_count,
                                                          sizeof *before, compare_samples);

        rates[i] = found == NULL ? NAN : rate_of(found->acquires, now[i].acquires, seconds);
    }
    return rates;
}

static double *object_rates(const snapshot_copy *before, const snapshot_copy *now, double seconds)
{
    const size_t before_count = before != NULL ? before->keeper.objects : 0;
    sample *samples = malloc((before_count + now->keeper.objects + 1) * sizeof *samples);
    double *rates = NULL;

    if (samples != NULL) {
        for (size_t i = 0; i < before_count; i++)
            samples[i] = (sample){before->objects[i].id, before->objects[i].acquires};
        for (size_t i = 0; i < now->keeper.objects; i++)
            samples[before_count + i] = (sample){now->objects[i].id, now->objects[i].acquires};
        rates = match_records(samples, before_count, samples + before_count, now->keeper.objects,
                              seconds);
    }
    free(samples);
    return rates;
}

static double *client_rates(const snapshot_copy *before, const snapshot_copy *now, double seconds)
{
    const size_t before_count = before != NULL ? before->keeper.clients : 0;
    sample *samples = malloc((before_count + now->keeper.clients + 1) * sizeof *samples);
    double *rates = NULL;

    if (samples != NULL) {
        for (size_t i = 0; i < before_count; i++)
            samples[i] = (sample){before->clients[i].id, before->clients[i].acquires};
        for (size_t i = 0; i < now->keeper.clients; i++)
            samples[before_count + i] = (sample){now->clients[i].id, now->clients[i].acquires};
        rates = match_records(samples, before_count, samples + before_count, now->keeper.clients,
                              seconds);
    }
    free(samples);
    return rates;
}

/* Sums over the devices. */
static gvm_keeper_device_info sum_moved_bytes(const snapshot_copy *s)
{
    gvm_keeper_device_info sum = {0};

    for (uint32_t i = 0; s != NULL && i < s->keeper.devices; i++) {
        sum.evictions += s->devices[i].evictions;
        sum.promotions += s->devices[i].promotions;
        sum.evicted_bytes += s->devices[i].evicted_bytes;
        sum.promoted_bytes += s->devices[i].promoted_bytes;
    }
    return sum;
}

bool top_rates_make(const snapshot_copy *before, const snapshot_copy *now, top_rates *out)
{
    const gvm_keeper_info none = {0}, *k = &now->keeper, *was;
    gvm_keeper_device_info then, here = sum_moved_bytes(now);
    double seconds = 0;

    /* The keeper's own clock says when it looked, whatever the way here took. */
    if (before != NULL && before->keeper.pid == k->pid && before->keeper.uptime_ms < k->uptime_ms)
        seconds = (double)(k->uptime_ms - before->keeper.uptime_ms) / 1e3;
    else
        before = NULL;
    was = before != NULL ? &before->keeper : &none;
    then = sum_moved_bytes(before);
    *out = (top_rates){
        .seconds = seconds,
        .acquires = rate_of(was->acquires, k->acquires, seconds),
        .slow_acquires = rate_of(was->slow_acquires, k->slow_acquires, seconds),
        .revokes = rate_of(was->revokes, k->revokes, seconds),
        .faults = rate_of(was->faults, k->faults, seconds),
        .evictions = rate_of(then.evictions, here.evictions, seconds),
        .promotions = rate_of(then.promotions, here.promotions, seconds),
        .evicted_bytes = rate_of(then.evicted_bytes, here.evicted_bytes, seconds),
        .promoted_bytes = rate_of(then.promoted_bytes, here.promoted_bytes, seconds),
        .objects = object_rates(before, now, seconds),
        .clients = client_rates(before, now, seconds),
    };
    if (out->objects != NULL && out->clients != NULL)
        return true;
    top_rates_clear(out);
    return false;
}

void top_rates_clear(top_rates *rates)
{
    free(rates->objects);
    free(rates->clients);
    *rates = (top_rates){0};
}
