/* The tables that are joined, on the host. */
#include <stdlib.h>
#include <string.h>

#include "bench/hashjoin/hashjoin.h"

static void *resize_array(void *array, size_t count, size_t bytes)
{
    array = realloc(array, count * bytes);
    if (array == NULL)
        give_up("out of memory for %zu rows", count);
    return array;
}

static uint32_t more_rows(uint32_t room)
{
    if (room >= ROWS_MAX)
        give_up("a table has more than %u rows", ROWS_MAX);
    return room < 500 ? 1000 : room < ROWS_MAX / 2 ? 2 * room : ROWS_MAX;
}

void tables_add_outer(tables *t, uint32_t key, uint32_t low, uint32_t high, const char *label)
{
    if (t->outer_rows == t->outer_room) {
        t->outer_room = more_rows(t->outer_room);
        t->outer_keys = resize_array(t->outer_keys, t->outer_room, sizeof *t->outer_keys);
        t->outer_lows = resize_array(t->outer_lows, t->outer_room, sizeof *t->outer_lows);
        t->outer_highs = resize_array(t->outer_highs, t->outer_room, sizeof *t->outer_highs);
        if (label != NULL)
            t->outer_labels = resize_array(t->outer_labels, t->outer_room, sizeof *t->outer_labels);
    }
    t->outer_keys[t->outer_rows] = key;
    t->outer_lows[t->outer_rows] = low;
    t->outer_highs[t->outer_rows] = high;
    if (label != NULL) {
        t->outer_labels[t->outer_rows] = strdup(label);
        if (t->outer_labels[t->outer_rows] == NULL)
            give_up("out of memory for labels");
    }
    t->outer_rows++;
    if (key >= t->keys)
        t->keys = key + 1;
}

void tables_add_inner(tables *t, uint32_t key, uint32_t value, const char *text, size_t bytes)
{
    const uint64_t units = (bytes + UNIT_BYTES - 1) / UNIT_BYTES;

    if (bytes > TEXT_BYTES_MAX)
        give_up("a text of %zu bytes is longer than %u", bytes, TEXT_BYTES_MAX);
    if (t->inner_rows == t->inner_room) {
        t->inner_room = more_rows(t->inner_room);
        t->inner_keys = resize_array(t->inner_keys, t->inner_room, sizeof *t->inner_keys);
        t->inner_values = resize_array(t->inner_values, t->inner_room, sizeof *t->inner_values);
        t->inner_texts = resize_array(t->inner_texts, t->inner_room, sizeof *t->inner_texts);
        t->inner_text_bytes = resize_array(t->inner_text_bytes, t->inner_room,
                                           sizeof *t->inner_text_bytes);
    }
    if (t->text_units + units > t->text_units_room) {
        t->text_units_room = 2 * t->text_units + units + 1000;
        t->texts = resize_array(t->texts, t->text_units_room, sizeof *t->texts);
    }
    if (t->text_units + units > UINT32_MAX)
        give_up("the inner texts are longer than 64 GiB");
    t->inner_keys[t->inner_rows] = key;
    t->inner_values[t->inner_rows] = value;
    t->inner_texts[t->inner_rows] = (uint32_t)t->text_units;
    t->inner_text_bytes[t->inner_rows] = (uint32_t)bytes;
    t->inner_rows++;
    if (units > 0) {
        t->texts[t->text_units + units - 1] = (unit){0, 0};
        memcpy(&t->texts[t->text_units], text, bytes);
        t->text_units += units;
    }
    if (key >= t->keys)
        t->keys = key + 1;
}

static uint32_t count_different(const uint32_t *values, uint32_t count, uint32_t limit)
{
    unsigned char *seen = must_have(limit / 8 + 1, 1);
    uint32_t different = 0;

    for (uint32_t i = 0; i < count; i++) {
        different += (seen[values[i] / 8] >> values[i] % 8 & 1) == 0;
        seen[values[i] / 8] |= (unsigned char)(1 << values[i] % 8);
    }
    free(seen);
    return different;
}

uint64_t tables_estimate(const tables *t, double fraction)
{
    const uint32_t outer = count_different(t->outer_keys, t->outer_rows, t->keys);
    const uint32_t inner = count_different(t->inner_keys, t->inner_rows, t->keys);
    const uint32_t most = outer > inner ? outer : inner;
    const double rows = most > 0 ? (double)t->outer_rows * t->inner_rows / most * fraction : 0;

    return rows < 1 ? 1 : (uint64_t)rows; /* as PostgreSQL: never nothing */
}

void tables_free(tables *t)
{
    for (uint32_t i = 0; t->outer_labels != NULL && i < t->outer_rows; i++)
        free(t->outer_labels[i]);
    free(t->outer_labels);
    free(t->outer_keys);
    free(t->outer_lows);
    free(t->outer_highs);
    free(t->inner_keys);
    free(t->inner_values);
    free(t->inner_texts);
    free(t->inner_text_bytes);
    free(t->texts);
    *t = (tables){0};
}
