/* Device code of `gvmem-bench appender`: every block appends records of 64 KiB until all are
 * written. A record is its number, as a double, over and over: the sum of all shows whether each
 * is there once. */
#include <gvmem/device/appender.h>

#include "bench/append.h"

typedef struct __attribute__((aligned(16))) doubles2 {
    double x, y;
} doubles2;

/* Where the block's next record goes; 0: nowhere. */
GVM_DEVICE uint64_t next_place(const bench_append_params *p, bench_append_words *words,
                               uint64_t *published)
{
    GVM_SHARED(uint64_t, place, 1);
    gvm_append_place claimed;
    uint64_t at;

    if (p->base == 0) {
        if (gvm_append_claim_whole_block(&p->append, BENCH_APPEND_RECORD_BYTES / BENCH_APPEND_ROW_BYTES,
                                         0, 0, &claimed) != GVM_APPEND_OK)
            return 0;
        *published += claimed.amount;
        return (uint64_t)(uintptr_t)claimed.rows;
    }
    if (gvm_thread() == 0)
        place[0] = p->base + gvm_atomic_add_u64(&words->cursor, BENCH_APPEND_RECORD_BYTES);
    gvm_block_sync();
    at = place[0];
    gvm_block_sync();
    return at;
}

GVM_KERNEL(append_records, bench_append_params, p)
{
    bench_append_words *words = (bench_append_words *)(uintptr_t)p.words;
    uint64_t record, place, published = 0;
    uint32_t i, first = 1;

    if (gvm_thread() == 0)
        gvm_atomic_min_u64(&words->begun, gvm_clock_ns());
    for (record = gvm_block(); record < p.records; record += gvm_block_count()) {
        doubles2 value;

        place = next_place(&p, words, &published);
        if (gvm_thread() == 0 && first)
            gvm_atomic_min_u64(&words->first, gvm_clock_ns());
        if (gvm_thread() == 0 && place == 0)
            gvm_atomic_add_u64(&words->failed, 1);
        if (place == 0)
            break;
        first = 0;
        value.x = value.y = (double)record;
        for (i = gvm_thread(); i < BENCH_APPEND_RECORD_BYTES / BENCH_APPEND_LANE_BYTES;
             i += gvm_block_threads())
            ((doubles2 *)(uintptr_t)place)[i] = value;
    }
    if (p.base == 0)
        gvm_append_publish(&p.append, published);
}
