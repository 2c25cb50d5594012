/* Builds the hash table of the inner side, in blocks of a heap.
 *
 * What is needed on the way (the inner table's columns, the places of buckets) is freed at the
 * end, and the heap's memory is there for what comes next.
 */
#include "bench/hashjoin/hashjoin.h"

#define BUCKET_BITS_MIN 4

void scan(gpu *g, uint64_t values, uint64_t count, uint64_t sums)
{
    const scan_params p = {.values = values, .count = count, .sums = sums};

    gpu_launch(g, SCAN_SUMS, &p);
    gpu_launch(g, SCAN_WRITE, &p);
}

static uint64_t upload_array(gpu *g, const void *from, uint64_t bytes, const char *tag)
{
    const uint64_t block = gpu_block(g, bytes, tag);

    gpu_copy_in(block, from, bytes);
    return block;
}

static uint64_t add_block(gpu *g, built *b, uint64_t bytes, const char *tag)
{
    return b->blocks[b->block_count++] = gpu_block(g, bytes, tag);
}

/* One to two buckets a row. */
static uint32_t bucket_bits(uint32_t rows)
{
    uint32_t bits = BUCKET_BITS_MIN;

    while (bits < 31 && (1u << bits) < rows)
        bits++;
    return bits;
}

static void build_inner(gpu *g, const tables *t, built *b)
{
    const uint64_t column = (uint64_t)t->inner_rows * sizeof(uint32_t);
    const uint32_t bits = bucket_bits(t->inner_rows);
    build_params p = {.rows = t->inner_rows, .hash_shift = 32 - bits, .buckets = 1ull << bits};

    b->sums = add_block(g, b, g->blocks * sizeof(uint64_t), "sums of blocks");
    p.keys = upload_array(g, t->inner_keys, column, "inner keys");
    p.values = upload_array(g, t->inner_values, column, "inner values");
    p.texts = upload_array(g, t->inner_texts, column, "inner texts' places");
    p.text_bytes = upload_array(g, t->inner_text_bytes, column, "inner texts' lengths");
    p.source = upload_array(g, t->texts, t->text_units * UNIT_BYTES, "inner texts");
    p.places = gpu_block(g, (p.buckets + 1) * sizeof(uint64_t), "places of buckets");
    p.starts = add_block(g, b, (p.buckets + 1) * sizeof(uint32_t), "starts of buckets");
    p.entries = add_block(g, b, t->inner_rows * sizeof(inner_entry), "entries");
    p.target = add_block(g, b, t->text_units * UNIT_BYTES, "texts in the order of entries");

    gpu_zero(p.places, (p.buckets + 1) * sizeof(uint64_t));
    gpu_launch(g, BUILD_COUNT, &p);
    scan(g, p.places, p.buckets + 1, b->sums);
    gpu_launch(g, BUILD_STARTS, &p);
    gpu_launch(g, BUILD_FILL, &p);
    gpu_synchronize();

    gpu_free(g, p.places);
    gpu_free(g, p.source);
    gpu_free(g, p.text_bytes);
    gpu_free(g, p.texts);
    gpu_free(g, p.values);
    gpu_free(g, p.keys);
    b->params.starts = p.starts;
    b->params.entries = p.entries;
    b->params.texts = p.target;
    b->params.hash_shift = p.hash_shift;
}

static uint64_t upload_column(gpu *g, built *b, const uint32_t *from, uint32_t rows, const char *tag)
{
    const uint64_t block = add_block(g, b, rows * sizeof *from, tag);

    gpu_copy_in(block, from, rows * sizeof *from);
    return block;
}

void build(gpu *g, const tables *t, built *out)
{
    const uint32_t lanes = (uint32_t)g->info.warp_size;

    *out = (built){.tiles = ((uint64_t)t->outer_rows + lanes - 1) / lanes};
    build_inner(g, t, out);
    out->params.outer_rows = t->outer_rows;
    out->params.outer_keys = upload_column(g, out, t->outer_keys, t->outer_rows, "outer keys");
    out->params.outer_lows = upload_column(g, out, t->outer_lows, t->outer_rows, "outer lows");
    out->params.outer_highs = upload_column(g, out, t->outer_highs, t->outer_rows, "outer highs");
    out->params.state = add_block(g, out, sizeof(join_state), "state of the join");
    out->params.saved = add_block(g, out, g->warps * sizeof(join_range), "positions of warps");
    out->params.heavy = add_block(g, out, out->tiles * sizeof(heavy_tile), "heavy tiles");
    out->params.tiles = add_block(g, out, out->tiles * sizeof(uint64_t), "sizes of tiles");
}

void build_free(gpu *g, built *b)
{
    while (b->block_count > 0)
        gpu_free(g, b->blocks[--b->block_count]);
}
