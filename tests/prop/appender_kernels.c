/* The kernel of appender_rows: items of random size, each written and logged. */
#include <gvmem/device/appender.h>

#include "tests/prop/appender_kernels.h"

GVM_DEVICE void write_rows(const append_rows_params *p, const gvm_append_place *place,
                           uint64_t item, uint32_t rows, uint32_t first, uint32_t step)
{
    uint64_t w;
    uint32_t r;

    for (r = first; r < rows; r += step) {
        uint64_t *row = (uint64_t *)(void *)(place->rows + r * p->append.row_bytes);

        for (w = 0; w < p->append.row_bytes / 8; w++)
            row[w] = APPEND_ROW_WORD(item, r, w);
    }
}

GVM_DEVICE void write_bytes(const gvm_append_place *place, uint64_t item, uint32_t bytes,
                            uint32_t first, uint32_t step)
{
    uint32_t b;

    for (b = first; b < bytes; b += step)
        place->bytes[b] = APPEND_BYTE(item, b);
}

GVM_DEVICE void write_log(const append_rows_params *p, const gvm_append_place *place, uint64_t i,
                          uint32_t rows, uint32_t bytes)
{
    append_log *log = (append_log *)(uintptr_t)p->logs + i;

    log->row = place->row;
    log->offset = place->bytes_offset;
    log->bytes_at = (uint64_t)(uintptr_t)place->bytes - p->append.address;
    log->amount = place->amount;
    log->rows = rows;
    log->bytes = bytes;
    log->launch_number = p->launch_number;
    log->times++;
}

GVM_DEVICE uint32_t claim_by(uint32_t mode, const gvm_append *append, uint32_t rows, uint32_t bytes,
                             uint32_t align, gvm_append_place *place)
{
    if (mode == APPEND_BY_WARP)
        return gvm_append_claim_warp(append, rows, bytes, align, place);
    if (mode == APPEND_BY_BLOCK)
        return gvm_append_claim_block(append, rows, bytes, align, place);
    if (mode == APPEND_BY_WHOLE_WARP)
        return gvm_append_claim_whole_warp(append, rows, bytes, align, place);
    if (mode == APPEND_BY_WHOLE_BLOCK)
        return gvm_append_claim_whole_block(append, rows, bytes, align, place);
    return gvm_append_claim(append, rows, bytes, align, place);
}

/* How many threads share an item. */
GVM_DEVICE uint32_t team_of(uint32_t mode)
{
    return mode == APPEND_BY_WHOLE_BLOCK  ? gvm_block_threads()
           : mode == APPEND_BY_WHOLE_WARP ? gvm_warp_size()
                                          : 1;
}

/* Of a group that claims together all threads take the same path: they have the same position,
 * and get the same answer. */
GVM_KERNEL(append_rows, append_rows_params, p)
{
    const uint32_t team = team_of(p.mode), member = gvm_thread() % team;
    const uint64_t worker = gvm_thread_global() / team, workers = gvm_thread_count() / team;
    uint32_t rows, bytes, align, answer;
    uint64_t rounds = (p.items + workers - 1) / workers, round, i, item, published = 0;
    uint64_t *position = (uint64_t *)(uintptr_t)p.positions + worker;
    gvm_append_place place = {0};

    for (round = *position; round < rounds; round++) {
        i = round * workers + worker;
        item = p.first + i;
        rows = i < p.items ? APPEND_ITEM_ROWS(p.seed, item, p.rows_max) : 0;
        bytes = i < p.items ? APPEND_ITEM_BYTES(p.seed, item, p.bytes_max) : 0;
        align = APPEND_ITEM_ALIGN(p.seed, p.mode == APPEND_BY_THREAD ? item : round);
        place.amount = 0;
        answer = claim_by(p.mode, &p.append, rows, bytes, align, &place);
        if (answer != GVM_APPEND_OK) {
            gvm_atomic_add_u64((uint64_t *)(uintptr_t)p.answers + answer, 1);
            break;
        }
        if (i < p.items) {
            write_rows(&p, &place, item, rows, member, team);
            write_bytes(&place, item, bytes, member, team);
            if (member == 0)
                write_log(&p, &place, i, rows, bytes);
        }
        if (item == p.crash)
            *(uint64_t *)(uintptr_t)(p.append.address + p.append.reserve_bytes / 2) = 1;
        if (p.gather)
            published += place.amount;
        else
            gvm_append_publish(&p.append, place.amount);
    }
    gvm_append_publish(&p.append, published);
    gvm_block_sync(); /* the others of the team have read it */
    *position = round;
}
