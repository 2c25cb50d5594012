/* The hash join on the CPU, to check results by another method: inner rows sorted by key, found by index. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/hashjoin/hashjoin.h"

#define THREADS_MAX 64

typedef struct sorted {
    const tables *t;
    uint32_t *first; /* of each key, and one behind the last key */
    uint32_t *rows;
} sorted;

static void sort_inner(const tables *t, sorted *s)
{
    s->t = t;
    s->first = must_have(t->keys + 2ul, sizeof *s->first);
    s->rows = must_have(t->inner_rows + 1ul, sizeof *s->rows);
    for (uint32_t i = 0; i < t->inner_rows; i++)
        s->first[t->inner_keys[i] + 2]++;
    for (uint32_t key = 0; key < t->keys; key++)
        s->first[key + 1] += s->first[key];
    for (uint32_t i = 0; i < t->inner_rows; i++)
        s->rows[s->first[t->inner_keys[i] + 1]++] = i;
}

static void sorted_free(sorted *s)
{
    free(s->first);
    free(s->rows);
}

static bool values_match(const tables *t, uint32_t outer, uint32_t inner)
{
    return t->outer_lows[outer] <= t->inner_values[inner] &&
           t->inner_values[inner] <= t->outer_highs[outer];
}

static uint64_t hash_of_text(const tables *t, uint32_t inner)
{
    const uint32_t bytes = t->inner_text_bytes[inner];

    return hash_text(bytes > 0 ? &t->texts[t->inner_texts[inner]].low : NULL, bytes);
}

typedef struct share {
    const sorted *s;
    const uint64_t *hashes; /* of the inner texts */
    uint32_t begin, end;    /* outer rows */
    reference sums;
} share;

static void *join_share(void *arg)
{
    share *mine = arg;
    const sorted *s = mine->s;
    const tables *t = s->t;
    reference sums = {0};

    for (uint32_t o = mine->begin; o < mine->end; o++) {
        const uint32_t key = t->outer_keys[o];

        for (uint32_t i = s->first[key]; i < s->first[key + 1]; i++) {
            const uint32_t inner = s->rows[i];

            if (!values_match(t, o, inner))
                continue;
            sums.rows++;
            sums.text_bytes += t->inner_text_bytes[inner];
            sums.checksum += hash_row(o, inner, t->inner_values[inner], mine->hashes[inner]);
        }
    }
    mine->sums = sums;
    return NULL;
}

void reference_join(const tables *t, reference *out)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t threads = cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (uint32_t)cpus;
    uint64_t *hashes = must_have(t->inner_rows + 1ul, sizeof *hashes);
    share shares[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    sorted s;

    sort_inner(t, &s);
    for (uint32_t i = 0; i < t->inner_rows; i++)
        hashes[i] = hash_of_text(t, i);
    *out = (reference){0};
    for (uint32_t i = 0; i < threads; i++) {
        shares[i] = (share){.s = &s,
                            .hashes = hashes,
                            .begin = (uint32_t)((uint64_t)t->outer_rows * i / threads),
                            .end = (uint32_t)((uint64_t)t->outer_rows * (i + 1) / threads)};
        if (pthread_create(&ids[i], NULL, join_share, &shares[i]) != 0)
            give_up("cannot start a thread");
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        out->rows += shares[i].sums.rows;
        out->text_bytes += shares[i].sums.text_bytes;
        out->checksum += shares[i].sums.checksum;
    }
    sorted_free(&s);
    free(hashes);
}

result_row *reference_rows(const tables *t, const reference *sums)
{
    result_row *rows = must_have(sums->rows + 1, sizeof *rows);
    uint64_t count = 0;
    sorted s;

    sort_inner(t, &s); /* which keeps rows of one key in their order */
    for (uint32_t o = 0; o < t->outer_rows; o++) {
        const uint32_t key = t->outer_keys[o];

        for (uint32_t i = s.first[key]; i < s.first[key + 1]; i++) {
            const uint32_t inner = s.rows[i];

            if (values_match(t, o, inner) && count < sums->rows)
                rows[count++] = (result_row){.outer = o,
                                             .inner = inner,
                                             .value = t->inner_values[inner],
                                             .text_bytes = t->inner_text_bytes[inner],
                                             .text_offset = (uint64_t)t->inner_texts[inner] *
                                                            UNIT_BYTES};
        }
    }
    sorted_free(&s);
    return rows;
}
