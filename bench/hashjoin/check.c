/* A result against the reference: the number of rows, the sum of their hashes with texts and
 * all, which the GPU makes where the rows are; and, if that is wanted, every row. */
#include <stdlib.h>
#include <string.h>

#include "bench/hashjoin/hashjoin.h"

void checker_start(checker *c, gpu *g, const tables *t, const reference *wanted, bool whole, FILE *print)
{
    *c = (checker){.g = g, .t = t, .wanted = wanted, .whole = whole, .print = print};
    c->sums = gpu_block(g, sizeof(check_sums), "sums of the check");
}

/* Appends a piece to what is kept on the host. */
static void append_checked_rows(checker *c, const piece *p)
{
    const uint64_t text_bytes = p->text_high - p->text_low;

    c->kept = realloc(c->kept, (c->rows + p->rows + 1) * sizeof *c->kept);
    c->texts = realloc(c->texts, c->text_bytes + text_bytes + 1);
    if (c->kept == NULL || c->texts == NULL)
        give_up("out of memory for the result");
    gpu_copy_out(c->kept + c->rows, p->address, p->rows * sizeof *c->kept);
    gpu_copy_out(c->texts + c->text_bytes, p->address + p->text_low, text_bytes);
    for (uint64_t i = c->rows; i < c->rows + p->rows; i++)
        c->kept[i].text_offset += c->text_bytes - p->text_low;
    c->text_bytes += text_bytes;
}

void checker_take(const piece *p, void *arg)
{
    checker *c = arg;
    const check_params params = {.result = p->address,
                                 .rows = p->rows,
                                 .text_low = p->text_low,
                                 .text_high = p->text_high,
                                 .sums = c->sums};
    check_sums sums;

    gpu_zero(c->sums, sizeof sums);
    gpu_launch(c->g, CHECK_ROWS, &params);
    gpu_copy_out(&sums, c->sums, sizeof sums);
    /* Rows whose texts lie elsewhere are not to be followed. */
    if (c->whole && sums.bad == 0 && c->bad == 0)
        append_checked_rows(c, p);
    c->rows += p->rows;
    c->checksum += sums.checksum;
    c->bad += sums.bad;
}

static int compare_rows(const void *left, const void *right)
{
    const result_row *a = left, *b = right;

    if (a->outer != b->outer)
        return a->outer < b->outer ? -1 : 1;
    return (a->inner > b->inner) - (a->inner < b->inner);
}

static void print_rows(const checker *c)
{
    for (uint64_t i = 0; i < c->rows; i++) {
        const result_row *row = &c->kept[i];

        if (c->t->outer_labels != NULL)
            fprintf(c->print, "%s\t", c->t->outer_labels[row->outer]);
        else
            fprintf(c->print, "%u\t%u\t%u\t", row->outer, row->inner, row->value);
        fwrite(c->texts + row->text_offset, 1, row->text_bytes, c->print);
        fputc('\n', c->print);
    }
}

/* Both sides sorted, so that rows that are missing, twice there, or wrong meet another one. */
static const char *compare_all(const checker *c)
{
    result_row *wanted = reference_rows(c->t, c->wanted);
    const unsigned char *texts = (const unsigned char *)c->t->texts;
    const char *wrong = NULL;

    qsort(wanted, c->rows, sizeof *wanted, compare_rows);
    for (uint64_t i = 0; i < c->rows && wrong == NULL; i++) {
        const result_row *a = &c->kept[i], *b = &wanted[i];

        if (a->outer != b->outer || a->inner != b->inner)
            wrong = "rows are missing, or there more than once";
        else if (a->value != b->value)
            wrong = "a value is wrong";
        else if (a->text_bytes != b->text_bytes ||
                 (a->text_bytes > 0 &&
                  memcmp(c->texts + a->text_offset, texts + b->text_offset, a->text_bytes) != 0))
            wrong = "a text is wrong";
    }
    free(wanted);
    return wrong;
}

const char *checker_end(checker *c)
{
    const char *wrong = NULL;

    if (c->bad > 0)
        wrong = "texts lie outside of what was written";
    else if (c->wanted != NULL && c->rows != c->wanted->rows)
        wrong = "the number of rows is wrong";
    else if (c->wanted != NULL && c->checksum != c->wanted->checksum)
        wrong = "the sum over all rows is wrong";
    if (c->whole && c->bad == 0)
        qsort(c->kept, c->rows, sizeof *c->kept, compare_rows);
    if (c->whole && c->wanted != NULL && wrong == NULL)
        wrong = compare_all(c);
    if (c->print != NULL && c->whole && c->bad == 0)
        print_rows(c);
    gpu_free(c->g, c->sums);
    free(c->kept);
    free(c->texts);
    c->kept = NULL;
    c->texts = NULL;
    return wrong;
}
