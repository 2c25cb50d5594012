/* The kernels of the hash join: build the table, join, check. Written once for real GPUs and the
 * software one; see gvmem/device/kernel.h for the dialect.
 *
 * The table. Rows of the inner side lie bucket by bucket, their texts in the same order:
 *
 *     starts   |0|2|2|5|...      bucket b has entries [starts[b], starts[b + 1])
 *     entries  |a|b|c|d|e|...    key, value, where the text is, number in the inner table
 *     texts    |aa|b|ccc|d|...
 *
 * so a key that many rows have is a run of entries that a warp reads in one piece.
 *
 * The join. A warp takes a tile of as many outer rows as it has lanes. The entries of their
 * buckets are the tile's candidates, numbered through, and the lanes take them in turn, of whichever
 * row they are: a row with a million candidates and 31 without any keep all lanes busy. What matches
 * is gathered in a list in shared memory; when that is full the warp claims room for all of it
 * at once and writes it. Tiles with very many candidates are put aside, and a second launch
 * shares them out in slices.
 *
 * The same code runs four ways, which differ in claim() alone: with the appender; into a fixed
 * buffer; and the two passes, of which the first one only counts.
 */
#include "bench/hashjoin/shared.h"

#define WARPS_MAX 4  /* a block */
#define LANES_MAX 32 /* a warp */
#define MATCHES 128  /* that are written at once */
#define TOGETHER 3   /* loads of a lane that are under way at a time */
#define SLICE 4096u  /* candidates of a heavy tile that a warp takes at a time */
#define HEAVY (2 * SLICE)
#define ROW_WORDS ((uint32_t)(sizeof(result_row) / 8))
#define BANKS_APART 8 /* so that lanes that read words 0 and 1 of the same row do not meet */

/* The tile of a warp: of each outer row what it wants, how many candidates come before its own, and its
 * first entry less that number. */
typedef struct open_rows {
    uint32_t key[LANES_MAX], low[LANES_MAX], high[LANES_MAX];
    uint32_t before[LANES_MAX], entry[LANES_MAX];
} open_rows;

/* The first two words of a result's row. */
typedef struct __attribute__((aligned(8))) row_word {
    uint32_t low, high;
} row_word;

/* A warp's matches: outer and inner, value and text_bytes of the rows to be; where their texts are, and
 * how many units the texts of those before them have. */
typedef struct match_list {
    row_word pair[MATCHES + BANKS_APART], rest[MATCHES];
    uint32_t text[MATCHES], units_before[MATCHES];
} match_list;

/* ---- warps */

/* The last of count, at most limit (a power of two), that have at most i before them: whose number i
 * is. */
GVM_DEVICE uint32_t owner_of(const uint32_t *before, uint32_t count, uint32_t limit, uint32_t i)
{
    uint32_t owner = 0, step;

    for (step = limit / 2; step > 0; step /= 2)
        if (owner + step < count && before[owner + step] <= i)
            owner += step;
    return owner;
}

GVM_DEVICE uint64_t warp_sum(uint64_t v)
{
    uint32_t step;

    for (step = gvm_warp_size() / 2; step > 0; step /= 2)
        v += gvm_warp_down_u64(v, step);
    return gvm_warp_get_u64(v, 0);
}

/* Copies texts one behind the other, units of them in all. The list says how many units come before
 * each text, and where in the source it begins less that number. All lanes together, so that a long
 * one takes no longer than short ones of the same length together. */
GVM_DEVICE void gather_texts(const uint32_t *before, const uint32_t *from, uint32_t count,
                             uint32_t units, const unit *source, unit *target)
{
    const uint32_t width = gvm_warp_size();
    uint32_t limit = 1;

    while (limit < count)
        limit *= 2;
    for (uint32_t first = gvm_lane(); first < units; first += TOGETHER * width) {
        unit u[TOGETHER];

        GVM_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++) {
            const uint32_t i = first + k * width;

            if (i < units)
                u[k] = source[from[owner_of(before, count, limit, i)] + i];
        }
        GVM_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++) {
            const uint32_t i = first + k * width;

            if (i < units)
                gvm_stream_u64x2(&target[i], u[k].low, u[k].high);
        }
    }
}

/* ---- building */

GVM_DEVICE uint64_t place(uint64_t rows, uint64_t units)
{
    return rows << 32 | units;
}

GVM_KERNEL(build_count, build_params, p)
{
    const uint32_t *keys = (const uint32_t *)(uintptr_t)p.keys;
    const uint32_t *text_bytes = (const uint32_t *)(uintptr_t)p.text_bytes;
    uint64_t *places = (uint64_t *)(uintptr_t)p.places;

    for (uint64_t row = gvm_thread_global(); row < p.rows; row += gvm_thread_count())
        gvm_atomic_add_u64(&places[bucket_of(keys[row], p.hash_shift)],
                           place(1, units_of(text_bytes[row])));
}

/* The buckets' places have become those of their first rows. */
GVM_KERNEL(build_starts, build_params, p)
{
    const uint64_t *places = (const uint64_t *)(uintptr_t)p.places;
    uint32_t *starts = (uint32_t *)(uintptr_t)p.starts;

    for (uint64_t b = gvm_thread_global(); b <= p.buckets; b += gvm_thread_count())
        starts[b] = (uint32_t)(places[b] >> 32);
}

/* Puts rows and texts in their places: one addition gives a row its entry and its text's place. The
 * warp copies the texts of its rows together. */
GVM_KERNEL(build_fill, build_params, p)
{
    GVM_SHARED(uint32_t, befores, WARPS_MAX * LANES_MAX);
    GVM_SHARED(uint32_t, froms, WARPS_MAX * LANES_MAX);
    GVM_SHARED(uint32_t, tos, WARPS_MAX * LANES_MAX);
    const uint32_t *keys = (const uint32_t *)(uintptr_t)p.keys;
    const uint32_t *values = (const uint32_t *)(uintptr_t)p.values;
    const uint32_t *texts = (const uint32_t *)(uintptr_t)p.texts;
    const uint32_t *text_bytes = (const uint32_t *)(uintptr_t)p.text_bytes;
    const unit *source = (const unit *)(uintptr_t)p.source;
    uint64_t *places = (uint64_t *)(uintptr_t)p.places;
    inner_entry *entries = (inner_entry *)(uintptr_t)p.entries;
    unit *target = (unit *)(uintptr_t)p.target;
    uint32_t *units_before = &befores[gvm_warp() * LANES_MAX];
    uint32_t *text_from = &froms[gvm_warp() * LANES_MAX], *text_to = &tos[gvm_warp() * LANES_MAX];

    for (uint64_t first = gvm_thread_global() - gvm_lane(); first < p.rows;
         first += gvm_thread_count()) {
        const uint64_t row = first + gvm_lane();
        uint32_t from = 0, units = 0, total, before;
        inner_entry e = {{0, 0, 0, 0}, 0, {0, 0, 0}};

        if (row < p.rows) {
            uint64_t at;

            e.probe.key = keys[row];
            e.probe.value = values[row];
            e.probe.text_bytes = text_bytes[row];
            e.row = (uint32_t)row;
            from = texts[row];
            units = units_of(e.probe.text_bytes);
            at = gvm_atomic_add_u64(&places[bucket_of(e.probe.key, p.hash_shift)], place(1, units));
            e.probe.text = (uint32_t)at;
            entries[at >> 32] = e;
        }
        before = gvm_warp_before_u32(units, &total);
        units_before[gvm_lane()] = before;
        text_from[gvm_lane()] = from - before;
        text_to[gvm_lane()] = e.probe.text - before;
        gvm_warp_sync();
        for (uint32_t i = gvm_lane(); i < total; i += gvm_warp_size()) {
            const uint32_t owner = owner_of(units_before, gvm_warp_size(), gvm_warp_size(), i);

            target[text_to[owner] + i] = source[text_from[owner] + i];
        }
        gvm_warp_sync();
    }
}

/* ---- sums of everything before, in two launches of the same grid */

/* Each block has so many values, one after the other. */
GVM_DEVICE uint64_t scan_span(const scan_params *p)
{
    return (p->count + gvm_block_count() - 1) / gvm_block_count();
}

GVM_KERNEL(scan_sums, scan_params, p)
{
    const uint64_t *values = (const uint64_t *)(uintptr_t)p.values;
    const uint64_t begin = gvm_block() * scan_span(&p);
    const uint64_t end = begin + scan_span(&p) < p.count ? begin + scan_span(&p) : p.count;
    uint64_t sum = 0;

    for (uint64_t i = begin + gvm_thread(); i < end; i += gvm_block_threads())
        sum += values[i];
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        ((uint64_t *)(uintptr_t)p.sums)[gvm_block()] = sum;
}

GVM_KERNEL(scan_write, scan_params, p)
{
    GVM_SHARED(uint64_t, shared, WARPS_MAX + 1);
    uint64_t *values = (uint64_t *)(uintptr_t)p.values;
    const uint64_t *sums = (const uint64_t *)(uintptr_t)p.sums;
    const uint64_t begin = gvm_block() * scan_span(&p);
    const uint64_t end = begin + scan_span(&p) < p.count ? begin + scan_span(&p) : p.count;
    const uint32_t warps = gvm_block_threads() / gvm_warp_size();
    uint64_t base = 0, before, all;

    for (uint32_t i = gvm_thread(); i < gvm_block(); i += gvm_block_threads())
        base += sums[i];
    base = gvm_block_sum_u64(base);
    if (gvm_thread() == 0)
        shared[WARPS_MAX] = base;
    gvm_block_sync();
    base = shared[WARPS_MAX];
    for (uint64_t first = begin; first < end; first += gvm_block_threads()) {
        const uint64_t i = first + gvm_thread();
        const uint64_t value = i < end ? values[i] : 0;

        before = base + gvm_warp_before_u64(value, &all);
        if (gvm_lane() == 0)
            shared[gvm_warp()] = all;
        gvm_block_sync();
        for (uint32_t w = 0; w < warps; w++) {
            if (w < gvm_warp())
                before += shared[w];
            base += shared[w];
        }
        if (i < end)
            values[i] = before;
        gvm_block_sync();
    }
}

/* ---- joining: places in the result */

/* Where a warp may write: row number, and offset of the texts from the buffer's start. */
typedef struct room {
    uint64_t row, text_offset;
} room;

/* What a launch keeps of a warp. */
typedef struct progress {
    uint64_t published; /* to report to the appender at the end */
    uint64_t rows, units;
} progress;

/* A fixed buffer: once something does not fit, nothing does, and the rest is counted as lost. */
GVM_DEVICE int claim_fixed(const join_params *p, join_state *state, uint64_t rows, uint64_t units,
                           uint64_t *at)
{
    uint64_t seen, to;

    if (gvm_load_consume_u64(&state->refused) == 0) {
        if (units <= 1u << 15) {
            *at = gvm_atomic_add_u64(&state->cursor, place(rows, units));
        } else { /* additions of that size could make the lower half run over */
            seen = gvm_load_consume_u64(&state->cursor);
            do {
                *at = seen;
                to = (uint32_t)seen + units <= p->units_max
                         ? seen + place(rows, units)
                         : place(p->rows_max + 1, p->units_max + 1);
                seen = gvm_atomic_cas_u64(&state->cursor, *at, to);
            } while (seen != *at);
        }
        if ((*at >> 32) + rows <= p->rows_max && (uint32_t)*at + units <= p->units_max)
            return 1;
        gvm_atomic_max_u64(&state->refused, ~*at);
    }
    gvm_atomic_add_u64(&state->lost_rows, rows);
    gvm_atomic_add_u64(&state->lost_units, units);
    return 0;
}

/* Room for so many rows and units, which all lanes know; one atomic operation. All lanes get the
 * same. Answers as gvm_append_claim_whole_warp(). */
GVM_DEVICE uint32_t claim(const join_params *p, int way, uint32_t tile, uint32_t rows,
                          uint64_t units, progress *done, room *out)
{
    join_state *state = (join_state *)(uintptr_t)p->state;
    uint64_t at = 0, good = 1;
    uint32_t answer = GVM_APPEND_OK;

    if (way == WAY_APPEND) {
        gvm_append_place claimed;

        claimed.row = claimed.bytes_offset = claimed.amount = 0;
        answer = gvm_append_claim_whole_warp(&p->append, rows, units * UNIT_BYTES, UNIT_BYTES,
                                             &claimed);
        if (answer == GVM_APPEND_OK)
            done->published += claimed.amount;
        out->row = claimed.row;
        out->text_offset = claimed.bytes_offset;
        return answer;
    }
    if (gvm_lane() == 0) {
        if (way == WAY_FIXED)
            good = (uint64_t)claim_fixed(p, state, rows, units, &at);
        else /* the first pass has left room for exactly this tile */
            at = gvm_atomic_add_u64(&((uint64_t *)(uintptr_t)p->tiles)[tile], place(rows, units));
    }
    at = gvm_warp_get_u64(at, 0);
    good = gvm_warp_get_u64(good, 0);
    out->row = at >> 32;
    out->text_offset = p->text_offset + (uint64_t)(uint32_t)at * UNIT_BYTES;
    return good ? GVM_APPEND_OK : GVM_APPEND_FULL;
}

/* ---- joining: a warp's work */

/* Reads the tile's outer rows and finds their candidates; returns how many there are. */
GVM_DEVICE uint32_t open_tile(const join_params *p, open_rows *s, uint32_t tile)
{
    const uint32_t *starts = (const uint32_t *)(uintptr_t)p->starts;
    const uint64_t row = (uint64_t)tile * gvm_warp_size() + gvm_lane();
    uint32_t first = 0, count = 0, key = 0, low = 0, high = 0, bucket, total, before;

    if (row < p->outer_rows) {
        key = ((const uint32_t *)(uintptr_t)p->outer_keys)[row];
        low = ((const uint32_t *)(uintptr_t)p->outer_lows)[row];
        high = ((const uint32_t *)(uintptr_t)p->outer_highs)[row];
        bucket = bucket_of(key, p->hash_shift);
        first = starts[bucket];
        count = starts[bucket + 1] - first;
    }
    before = gvm_warp_before_u32(count, &total);
    gvm_warp_sync(); /* nobody is still at the tile before */
    s->key[gvm_lane()] = key;
    s->low[gvm_lane()] = low;
    s->high[gvm_lane()] = high;
    s->before[gvm_lane()] = before;
    s->entry[gvm_lane()] = first - before;
    gvm_warp_sync();
    return total;
}

/* A candidate as a lane holds it. */
typedef struct candidate {
    probe probe;
    uint32_t row, outer; /* the inner row's number; the outer one's place in the tile */
    int there;           /* there are as many */
} candidate;

/* Reads candidates number first to end - 1, or as many of them as the lanes can hold: lane by lane, and
 * all that a lane can at a time. */
GVM_DEVICE void read_candidates(const join_params *p, const open_rows *s, uint32_t first,
                                uint32_t end, candidate c[TOGETHER])
{
    const inner_entry *entries = (const inner_entry *)(uintptr_t)p->entries;

    GVM_UNROLL
    for (uint32_t k = 0; k < TOGETHER; k++) {
        const uint32_t i = first + k * gvm_warp_size() + gvm_lane();

        c[k] = (candidate){.there = i < end};
        if (c[k].there) {
            const inner_entry *entry;

            c[k].outer = owner_of(s->before, gvm_warp_size(), gvm_warp_size(), i);
            entry = &entries[s->entry[c[k].outer] + i];
            c[k].probe = entry->probe;
            c[k].row = entry->row;
        }
    }
}

GVM_DEVICE int matches(const open_rows *s, const candidate *c)
{
    return c->there && c->probe.key == s->key[c->outer] && s->low[c->outer] <= c->probe.value &&
           c->probe.value <= s->high[c->outer];
}

/* Adds those of candidates first to end - 1 that match to the count matches of the list; returns how many
 * there are then. No more candidates than the lanes can hold. */
GVM_DEVICE uint32_t find_matches(const join_params *p, const open_rows *s, match_list *list,
                                 uint32_t tile, uint32_t first, uint32_t end, uint32_t count)
{
    candidate c[TOGETHER];
    uint32_t found;

    read_candidates(p, s, first, end, c);
    GVM_UNROLL
    for (uint32_t k = 0; k < TOGETHER; k++) {
        const int hit = matches(s, &c[k]);
        const uint32_t at = count + gvm_warp_rank(hit, &found);

        if (hit) {
            list->pair[at].low = p->outer_first + tile * gvm_warp_size() + c[k].outer;
            list->pair[at].high = c[k].row;
            list->rest[at].low = c[k].probe.value;
            list->rest[at].high = c[k].probe.text_bytes;
            list->text[at] = c[k].probe.text;
        }
        count += found;
    }
    return count;
}

/* Puts the texts of the list one behind the other; returns how many units they have. */
GVM_DEVICE uint32_t place_texts(match_list *list, uint32_t count)
{
    uint32_t units = 0;

    gvm_warp_sync(); /* the list is seen by all */
    for (uint32_t first = 0; first < count; first += gvm_warp_size()) {
        const uint32_t i = first + gvm_lane();
        uint32_t total, before;

        before = units + gvm_warp_before_u32(i < count ? units_of(list->rest[i].high) : 0, &total);
        if (i < count) {
            list->units_before[i] = before;
            list->text[i] -= before;
        }
        units += total;
    }
    gvm_warp_sync();
    return units;
}

/* Writes the matches of the list: their rows word by word, so that lanes next to each other write words
 * next to each other; then their texts in the same manner. */
GVM_DEVICE void write_matches(const join_params *p, int way, const match_list *list, uint32_t count,
                              uint32_t units, room to)
{
    const uint64_t base = way == WAY_APPEND ? p->append.address : p->result;
    uint64_t *rows = (uint64_t *)(uintptr_t)(base + to.row * sizeof(result_row));

    for (uint32_t w = gvm_lane(); w < count * ROW_WORDS; w += gvm_warp_size()) {
        const uint32_t row = w / ROW_WORDS, part = w % ROW_WORDS;
        uint64_t word;

        if (part == 2) {
            word = to.text_offset + (uint64_t)list->units_before[row] * UNIT_BYTES;
        } else {
            const row_word half = part == 0 ? list->pair[row] : list->rest[row];

            word = (uint64_t)half.high << 32 | half.low;
        }
        gvm_stream_u64(&rows[w], word);
    }
    gather_texts(list->units_before, list->text, count, units, (const unit *)(uintptr_t)p->texts,
                 (unit *)(uintptr_t)(base + to.text_offset));
    gvm_warp_sync(); /* the list is free again */
}

/* Joins a range of a tile that is open. Returns STOP_NONE, or why not; the range then begins at the
 * first candidate that is not in the result. */
GVM_DEVICE uint32_t join_candidates(const join_params *p, int way, const open_rows *s,
                                    match_list *list, join_range *range, progress *done)
{
    uint32_t i = range->begin, count = 0, width, units, answer;
    room to;

    while (i < range->end) {
        /* No more than the list has room for, should all of them match. */
        width = range->most - count < TOGETHER * gvm_warp_size() ? range->most - count
                                                                 : TOGETHER * gvm_warp_size();
        width = range->end - i < width ? range->end - i : width;
        count = find_matches(p, s, list, range->tile, i, i + width, count);
        i += width;
        if (i < range->end && count + gvm_warp_size() <= range->most)
            continue;
        if (count > 0) {
            units = place_texts(list, count);
            answer = claim(p, way, range->tile, count, units, done, &to);
            if (answer == GVM_APPEND_OK) {
                write_matches(p, way, list, count, units, to);
            } else if (way == WAY_APPEND) {
                const int last = range->most == 1;

                /* From where this list began, in smaller ones: so much can never be reserved at
                 * once, or could not be reserved this time, and perhaps in no buffer of that
                 * size. */
                range->most = count > 1 ? count / 2 : 1;
                if (answer != GVM_APPEND_INVALID)
                    return STOP_REFUSED;
                if (last)
                    return STOP_TOO_LARGE;
                i = range->begin;
            }
        }
        range->begin = i;
        count = 0;
    }
    return STOP_NONE;
}

/* The first pass: how many rows and units the range gives. */
GVM_DEVICE void count_candidates(const join_params *p, const open_rows *s, const join_range *range,
                                 progress *done)
{
    uint64_t *tile = &((uint64_t *)(uintptr_t)p->tiles)[range->tile];
    uint64_t rows = 0, units = 0;

    for (uint32_t i = range->begin; i < range->end; i += TOGETHER * gvm_warp_size()) {
        candidate c[TOGETHER];

        read_candidates(p, s, i, range->end, c);
        GVM_UNROLL
        for (uint32_t k = 0; k < TOGETHER; k++)
            if (matches(s, &c[k])) {
                rows++;
                units += units_of(c[k].probe.text_bytes);
            }
    }
    rows = warp_sum(rows);
    units = warp_sum(units);
    if (gvm_lane() == 0) {
        if (range->heavy)
            gvm_atomic_add_u64(tile, place(rows, units));
        else
            *tile = place(rows, units);
        done->rows += rows;
        done->units += units;
    }
}

/* ---- joining: who does what */

/* The next number of a counter, the same for all lanes. */
GVM_DEVICE uint64_t take_number(uint64_t *counter)
{
    uint64_t number = 0;

    if (gvm_lane() == 0)
        number = gvm_atomic_add_u64(counter, 1);
    return gvm_warp_get_u64(number, 0);
}

/* Lane 0 puts a tile on the list of heavy ones. One addition gives it its place there and the
 * numbers of its slices, so the list is in the order of these. */
GVM_DEVICE void put_aside(const join_params *p, join_state *state, uint32_t tile, uint32_t candidates)
{
    const uint64_t slices = candidates / SLICE + (candidates % SLICE != 0);
    const uint64_t old = gvm_atomic_add_u64(&state->heavy, (1ull << HEAVY_SHIFT) + slices);
    heavy_tile *h = &((heavy_tile *)(uintptr_t)p->heavy)[old >> HEAVY_SHIFT];

    h->first_slice = old & ((1ull << HEAVY_SHIFT) - 1);
    h->tile = tile;
    h->candidates = candidates;
}

/* Opens the next tile and returns which of its candidates to join; 0: there is none left. */
GVM_DEVICE int take_tile(const join_params *p, open_rows *s, join_range *range)
{
    join_state *state = (join_state *)(uintptr_t)p->state;
    const uint64_t tiles = (p->outer_rows + gvm_warp_size() - 1ull) / gvm_warp_size();

    for (;;) {
        const uint64_t tile = take_number(&state->next_tile);

        if (tile >= tiles)
            return 0;
        range->tile = (uint32_t)tile;
        range->begin = 0;
        range->end = open_tile(p, s, range->tile);
        range->heavy = 0;
        range->most = MATCHES;
        if (range->end <= HEAVY)
            return 1;
        if (gvm_lane() == 0)
            put_aside(p, state, range->tile, range->end);
    }
}

/* The same for the next slice of the heavy tiles. */
GVM_DEVICE int take_slice(const join_params *p, open_rows *s, join_range *range)
{
    join_state *state = (join_state *)(uintptr_t)p->state;
    const heavy_tile *list = (const heavy_tile *)(uintptr_t)p->heavy;
    const uint64_t heavy = state->heavy; /* the launch before has written it */
    uint64_t slice, low = 0, high = heavy >> HEAVY_SHIFT, middle;

    if (heavy == 0)
        return 0;
    slice = take_number(&state->next_slice);
    if (slice >= (heavy & ((1ull << HEAVY_SHIFT) - 1)))
        return 0;
    while (high - low > 1) { /* the last tile that begins at or before the slice */
        middle = (low + high) / 2;
        if (list[middle].first_slice <= slice)
            low = middle;
        else
            high = middle;
    }
    range->tile = list[low].tile;
    range->begin = (uint32_t)(slice - list[low].first_slice) * SLICE;
    range->end = list[low].candidates - range->begin < SLICE ? list[low].candidates
                                                             : range->begin + SLICE;
    range->heavy = 1;
    range->most = MATCHES;
    open_tile(p, s, range->tile);
    return 1;
}

/* What the launch before has left to this warp. */
GVM_DEVICE int take_saved(const join_params *p, open_rows *s, join_range *saved, join_range *range)
{
    *range = *saved;
    gvm_warp_sync(); /* all have read it */
    if (range->begin == range->end)
        return 0;
    if (gvm_lane() == 0)
        saved->begin = saved->end = 0;
    open_tile(p, s, range->tile);
    return 1;
}

GVM_DEVICE void join(const join_params *p, int way)
{
    GVM_SHARED(open_rows, tiles, WARPS_MAX);
    GVM_SHARED(match_list, lists, WARPS_MAX);
    open_rows *s = &tiles[gvm_warp()];
    join_state *state = (join_state *)(uintptr_t)p->state;
    const uint32_t warps = gvm_block_threads() / gvm_warp_size();
    join_range *saved = &((join_range *)(uintptr_t)p->saved)[gvm_block() * warps + gvm_warp()];
    progress done = {0, 0, 0};
    join_range range;
    uint32_t stop = STOP_NONE;
    int more;

    /* Heavy tiles wait until the launch that lists them has come to its end. */
    if (p->heavy_phase && gvm_warp_get_u64(gvm_load_consume_u32(&state->stop), 0) != STOP_NONE)
        return;
    more = way == WAY_APPEND && take_saved(p, s, saved, &range);
    for (;;) {
        if (!more)
            more = p->heavy_phase ? take_slice(p, s, &range) : take_tile(p, s, &range);
        if (!more)
            break;
        more = 0;
        if (way == WAY_COUNT)
            count_candidates(p, s, &range, &done);
        else
            stop = join_candidates(p, way, s, &lists[gvm_warp()], &range, &done);
        if (stop != STOP_NONE) { /* the buffer is full, for everybody: to be continued */
            if (gvm_lane() == 0) {
                *saved = range;
                if (stop == STOP_REFUSED) /* the other answer is not to be written over */
                    gvm_atomic_cas_u32(&state->stop, STOP_NONE, stop);
                else
                    gvm_atomic_exchange_u32(&state->stop, stop);
            }
            break;
        }
    }
    if (way == WAY_APPEND)
        gvm_append_publish(&p->append, done.published);
    if (way == WAY_COUNT && gvm_lane() == 0 && done.rows > 0) {
        gvm_atomic_add_u64(&state->all_rows, done.rows);
        gvm_atomic_add_u64(&state->all_units, done.units);
    }
}

GVM_KERNEL(join_append, join_params, p)
{
    join(&p, WAY_APPEND);
}
GVM_KERNEL(join_count, join_params, p)
{
    join(&p, WAY_COUNT);
}
GVM_KERNEL(join_two_pass, join_params, p)
{
    join(&p, WAY_TWO_PASS);
}
GVM_KERNEL(join_fixed, join_params, p)
{
    join(&p, WAY_FIXED);
}

/* ---- checking */

GVM_KERNEL(check_rows, check_params, p)
{
    const result_row *rows = (const result_row *)(uintptr_t)p.result;
    check_sums *sums = (check_sums *)(uintptr_t)p.sums;
    uint64_t checksum = 0, bad = 0;

    for (uint64_t i = gvm_thread_global(); i < p.rows; i += gvm_thread_count()) {
        const result_row row = rows[i];
        const uint64_t end = row.text_offset + row.text_bytes;

        if (row.text_offset % UNIT_BYTES != 0 || (row.text_bytes > 0 && row.text_offset < p.text_low) ||
            end < row.text_offset || (row.text_bytes > 0 && end > p.text_high)) {
            bad++;
            continue;
        }
        checksum += hash_row(
            row.outer, row.inner, row.value,
            hash_text((const uint64_t *)(uintptr_t)(p.result + row.text_offset), row.text_bytes));
    }
    checksum = gvm_block_sum_u64(checksum);
    bad = gvm_block_sum_u64(bad);
    if (gvm_thread() == 0) {
        gvm_atomic_add_u64(&sums->checksum, checksum);
        gvm_atomic_add_u64(&sums->bad, bad);
    }
}
