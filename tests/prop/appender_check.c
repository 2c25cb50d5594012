/* What kernels wrote, checked against their logs and the items. */
#include "tests/prop/appender_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checker {
    const written *w;
    char *problem;
    uint8_t *row_taken, *byte_taken;
    uint64_t amounts, rows;
} checker;

#define WRONG(c, ...) (snprintf((c)->problem, 256, __VA_ARGS__), false)
#define LLU(n) ((unsigned long long)(n))

uint64_t plan_group(const plan *p)
{
    return p->mode == APPEND_BY_WARP ? p->lanes : p->mode == APPEND_BY_BLOCK ? p->block_threads : 1;
}

uint64_t plan_workers(const plan *p)
{
    const uint64_t threads = (uint64_t)p->blocks * p->block_threads;

    return p->mode == APPEND_BY_WHOLE_BLOCK  ? p->blocks
           : p->mode == APPEND_BY_WHOLE_WARP ? threads / p->lanes
                                             : threads;
}

static bool check_rows(checker *c, uint64_t item, const append_log *log)
{
    const uint64_t row_bytes = c->w->plan->row_bytes;

    for (uint64_t r = 0; r < log->rows; r++) {
        const uint64_t row = log->row + r;

        if (row >= c->w->rows || c->row_taken[row]++ != 0)
            return WRONG(c, "item %llu: row %llu of %llu is another's, or behind the end",
                         LLU(item), LLU(row), LLU(c->w->rows));
        for (uint64_t word = 0; word < row_bytes / 8; word++) {
            uint64_t found;

            memcpy(&found, c->w->front + row * row_bytes + word * 8, 8);
            if (found != APPEND_ROW_WORD(item, r, word))
                return WRONG(c,
                             "item %llu: row %llu, its %llu. of %u, differs at word %llu: %llx and not "
                             "%llx; written %u times, last in launch %u",
                             LLU(item), LLU(row), LLU(r), log->rows, LLU(word), LLU(found),
                             LLU(APPEND_ROW_WORD(item, r, word)), log->times, log->launch_number);
        }
    }
    c->rows += log->rows;
    return true;
}

static bool check_bytes(checker *c, uint64_t item, const append_log *log)
{
    const uint64_t start = c->w->reserve_bytes - c->w->bytes;

    if (log->offset != log->bytes_at)
        return WRONG(c, "item %llu: pointer and offset disagree", LLU(item));
    if (log->bytes > 0 && (log->offset < start || log->offset + log->bytes > c->w->reserve_bytes))
        return WRONG(c, "item %llu: bytes at %llu lie outside [%llu, ...)", LLU(item),
                     LLU(log->offset), LLU(start));
    for (uint64_t b = 0; b < log->bytes; b++) {
        const uint64_t at = log->offset - start + b;

        if (c->byte_taken[at]++ != 0)
            return WRONG(c, "item %llu: byte %llu is another's", LLU(item), LLU(at));
        if (c->w->back[at] != APPEND_BYTE(item, b))
            return WRONG(c,
                         "item %llu: byte %llu of %u, at offset %llu, differs: %02x and not %02x; "
                         "written %u times, last in launch %u",
                         LLU(item), LLU(b), log->bytes, LLU(log->offset + b), c->w->back[at],
                         APPEND_BYTE(item, b), log->times, log->launch_number);
    }
    return true;
}

/* The alignment that the item asked for. Rounds count what one launch's workers do at once. */
static bool check_align(checker *c, uint64_t item, uint64_t round, const append_log *log)
{
    const plan *p = c->w->plan;
    const uint32_t align = APPEND_ITEM_ALIGN(p->seed, p->mode == APPEND_BY_THREAD ? item : round);

    if (log->bytes > 0 && log->offset % align != 0)
        return WRONG(c, "item %llu: offset %llu is not a multiple of %u", LLU(item),
                     LLU(log->offset), align);
    return true;
}

static bool check_item(checker *c, uint64_t item, uint64_t round, const append_log *log)
{
    const plan *p = c->w->plan;

    if (log->rows != APPEND_ITEM_ROWS(p->seed, item, p->rows_max) ||
        log->bytes != APPEND_ITEM_BYTES(p->seed, item, p->bytes_max))
        return WRONG(c,
                     "item %llu: the log is not its own: %u rows and %u bytes at row %llu, written %u "
                     "times",
                     LLU(item), log->rows, log->bytes, LLU(log->row), log->times);
    c->amounts += log->amount;
    return check_rows(c, item, log) && check_bytes(c, item, log) && check_align(c, item, round, log);
}

/* Two items of one group that claim together follow each other; two of one worker rise. */
static bool check_order(checker *c, uint64_t i, uint64_t workers)
{
    const written *w = c->w;
    const plan *p = w->plan;
    const append_log *log = &w->logs[i];
    const uint64_t group = plan_group(p);

    if (i % workers % group != 0 && w->logs[i - 1].launch_number == w->launch_number && log->rows > 0 &&
        w->logs[i - 1].rows > 0 && log->row != w->logs[i - 1].row + w->logs[i - 1].rows)
        return WRONG(c, "item %llu is at row %llu and not %llu, behind the one before it in its group",
                     LLU(w->first + i), LLU(log->row), LLU(w->logs[i - 1].row + w->logs[i - 1].rows));
    if (i >= workers && w->logs[i - workers].launch_number == w->launch_number && log->rows > 0 &&
        w->logs[i - workers].rows > 0 && log->row <= w->logs[i - workers].row)
        return WRONG(c, "item %llu at row %llu lies before what its worker wrote before, at %llu",
                     LLU(w->first + i), LLU(log->row), LLU(w->logs[i - workers].row));
    return true;
}

static bool check_all(checker *c)
{
    const written *w = c->w;
    const plan *p = w->plan;
    const uint64_t workers = plan_workers(p);
    const uint64_t part = (p->items + p->kernels - 1) / p->kernels;

    for (uint64_t k = 0; k < p->kernels; k++) {
        const written own = *w;
        const uint64_t first = k * part, end = first + part < p->items ? first + part : p->items;
        written of_kernel = own;

        of_kernel.logs = own.logs + first;
        of_kernel.first = first;
        c->w = &of_kernel;
        for (uint64_t i = 0; first + i < end; i++)
            if (of_kernel.logs[i].launch_number == w->launch_number && of_kernel.logs[i].times > 0 &&
                (!check_item(c, first + i, i / workers, &of_kernel.logs[i]) ||
                 !check_order(c, i, workers)))
                return false;
        c->w = w;
    }
    return true;
}

bool written_check(const written *w, char problem[256])
{
    const uint64_t unit = w->plan->options.align_bytes != 0 ? w->plan->options.align_bytes : 16;
    checker c = {.w = w,
                 .problem = problem,
                 .row_taken = calloc(w->rows + 1, 1),
                 .byte_taken = calloc(w->bytes + 1, 1)};
    bool good = c.row_taken != NULL && c.byte_taken != NULL && check_all(&c);

    if (good && c.rows != w->rows)
        good = WRONG(&c, "%llu rows are in the logs and %llu in the buffer", LLU(c.rows), LLU(w->rows));
    if (good && (c.amounts >> 32 != w->rows || (c.amounts & 0xffffffffu) * unit != w->bytes))
        good = WRONG(&c, "amounts of %llu rows, %llu units are not the buffer's %llu, %llu bytes",
                     LLU(c.amounts >> 32), LLU(c.amounts & 0xffffffffu), LLU(w->rows), LLU(w->bytes));
    free(c.row_taken);
    free(c.byte_taken);
    return good;
}
