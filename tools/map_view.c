/* Maps of chunks: as text, as a picture, as JSON. */
#include "tools/map_view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tools/json.h"
#include "tools/keeper.h"

enum { MAP_DEVICE, MAP_BOTH, MAP_LENT, MAP_HOST, MAP_MOVING, MAP_STATES };

static const struct {
    const char *ascii, *utf8, *style, *color; /* color: of the picture */
    const char *name, *text;
} states[MAP_STATES] = {
    {"#", "\xe2\x96\x88", "33", "#d97706", "device", "on the device alone"},
    {"=", "\xe2\x96\x93", "32", "#15803d", "both", "on the device, with a copy in host memory"},
    {"+", "\xe2\x96\x92", "36", "#0891b2", "lent", "in memory that another device lends"},
    {".", "\xe2\x96\x91", "34", "#93c5fd", "host", "in host memory"},
    {"~", "~", "35", "#a21caf", "moving", "being moved"},
};

static unsigned state_of_bits(uint8_t bits)
{
    return (bits & GVM_CHUNK_MOVING) != 0   ? MAP_MOVING
           : (bits & GVM_CHUNK_LENT) != 0   ? MAP_LENT
           : (bits & GVM_CHUNK_HOST) == 0   ? MAP_DEVICE
           : (bits & GVM_CHUNK_DEVICE) != 0 ? MAP_BOTH
                                            : MAP_HOST;
}

/* ---- runs of chunks */

typedef struct run {
    uint64_t first, count;
    unsigned state;
} run;

/* Of a listed object. */
static const uint8_t *chunks_of(const snapshot_copy *s, const gvm_object_info *object)
{
    return s->chunks != NULL ? s->chunks[object - s->objects] : NULL;
}

static unsigned state_at(const snapshot_copy *s, const gvm_object_info *object, uint64_t chunk)
{
    const uint8_t *chunks = chunks_of(s, object);

    if (chunks != NULL && chunks[chunk] != 0)
        return state_of_bits(chunks[chunk]);
    if (chunk * object->chunk_bytes < object->dirty_bytes)
        return MAP_DEVICE;
    if (chunk * object->chunk_bytes < object->device_bytes)
        return MAP_BOTH;
    return chunk * object->chunk_bytes < object->device_bytes + object->lent_bytes ? MAP_LENT
                                                                                   : MAP_HOST;
}

/* Begins with a run of count 0. False: there is no further one. */
static bool next_run(const snapshot_copy *s, const gvm_object_info *object, run *r)
{
    const uint64_t chunks = snapshot_chunks(object);

    r->first += r->count;
    if (r->first >= chunks)
        return false;
    r->state = state_at(s, object, r->first);
    r->count = 1;
    while (r->first + r->count < chunks && state_at(s, object, r->first + r->count) == r->state)
        r->count++;
    return true;
}

static uint64_t largest_of(const gvm_object_info *const *list, size_t count)
{
    uint64_t bytes = 1;

    for (size_t i = 0; i < count; i++)
        bytes = gvmi_max(bytes, list[i]->size_bytes);
    return bytes;
}

/* "W", "R3", "R16 " or "-". */
static void lease_text(const gvm_object_info *object, char out[16])
{
    if (object->write_leases > 0)
        strcpy(out, "W");
    else if (object->read_leases > 0)
        snprintf(out, 16, "R%" PRIu32, object->read_leases);
    else
        strcpy(out, "-");
}

/* ---- text */

#define NAME_COLUMNS 28
#define BAR_COLUMN (NAME_COLUMNS + 17)
#define BAR_CELLS_MIN 8u
#define BAR_CELLS_USUAL 64u /* where there is no width to be kept to */

/* What most chunks of a cell have, of `cells` that the object's chunks are divided into. */
static unsigned state_of_cell(const snapshot_copy *s, const gvm_object_info *object, unsigned cell,
                              unsigned cells)
{
    const uint64_t chunks = snapshot_chunks(object), first = cell * chunks / cells;
    const uint64_t end = gvmi_max((cell + 1) * chunks / cells, first + 1);
    uint64_t counts[MAP_STATES] = {0};
    unsigned most = 0;

    for (uint64_t i = first; i < end; i++)
        counts[state_at(s, object, i)]++;
    for (unsigned state = 1; state < MAP_STATES; state++)
        if (counts[state] > counts[most])
            most = state;
    return most;
}

static void put_bar(text_pen *pen, const snapshot_copy *s, const gvm_object_info *object, unsigned cells)
{
    unsigned styled = MAP_STATES;

    for (unsigned cell = 0; cell < cells && snapshot_chunks(object) > 0; cell++) {
        const unsigned state = state_of_cell(s, object, cell, cells);

        if (state != styled)
            text_style(pen, states[state].style);
        styled = state;
        text_repeat(pen, pen->utf8 ? states[state].utf8 : states[state].ascii, 1);
    }
    if (styled != MAP_STATES)
        text_style(pen, "0");
}

static void put_name(text_pen *pen, const gvm_object_info *object, unsigned columns)
{
    const unsigned width = pen->width;

    pen->width = columns < width ? columns : width;
    if (object->name[0] != '\0')
        text_put(pen, object->name);
    else
        text_print(pen, "(nameless %" PRIu64 ")", object->id);
    pen->width = width;
    text_column(pen, columns);
}

static void put_object(text_pen *pen, const snapshot_copy *s, const gvm_object_info *object,
                       uint64_t largest, unsigned cells)
{
    char size[16], leases[16];
    double part = (double)object->size_bytes / (double)largest;

    lease_text(object, leases);
    put_name(pen, object, NAME_COLUMNS);
    text_print(pen, " %6s %7s  ", text_short((double)object->size_bytes, true, size), leases);
    put_bar(pen, s, object, (unsigned)gvmi_max((uint64_t)(part * cells + 0.5), 1));
    text_end(pen);
}

static void put_legend(text_pen *pen)
{
    for (unsigned state = 0; state < MAP_STATES; state++) {
        if (pen->column > 0 && pen->width - pen->column < strlen(states[state].text) + 2)
            text_end(pen);
        text_style(pen, states[state].style);
        text_repeat(pen, pen->utf8 ? states[state].utf8 : states[state].ascii, 1);
        text_style(pen, "0");
        text_print(pen, " %s%s", states[state].text, state + 1 < MAP_STATES ? "   " : "");
    }
    text_end(pen);
}

bool map_text(text_pen *pen, const snapshot_copy *s, const char *prefix)
{
    size_t count;
    const gvm_object_info **list = keeper_select(s, prefix, true, &count);
    unsigned cells = pen->width == TEXT_UNLIMITED ? BAR_CELLS_USUAL : BAR_CELLS_MIN;
    uint64_t largest;

    if (list == NULL)
        return false;
    largest = largest_of(list, count);
    if (pen->width != TEXT_UNLIMITED && pen->width > BAR_COLUMN + BAR_CELLS_MIN)
        cells = pen->width - BAR_COLUMN;
    for (uint32_t d = 0; d < s->keeper.devices; d++) {
        const gvm_keeper_device_info *device = &s->devices[d];
        char used[32], budget[32];

        text_print(pen, "device %d: %s of %s in use, %s", (int)device->ordinal,
                   gvmi_size_text(device->resident_bytes, used),
                   gvmi_size_text(device->budget_bytes, budget), device->name);
        text_end(pen);
        for (size_t i = 0; i < count; i++)
            if (list[i]->device == device->ordinal)
                put_object(pen, s, list[i], largest, cells);
    }
    put_legend(pen);
    free(list);
    return true;
}

/* ---- a picture */

#define ROW_HEIGHT 22
#define NAME_WIDTH 300.0
#define FIGURES_WIDTH 110.0
#define BAR_WIDTH 640.0
#define PICTURE_WIDTH (NAME_WIDTH + FIGURES_WIDTH + BAR_WIDTH + 20.0)
#define NAME_CHARACTERS_MAX 40u

/* Text of others in XML: what is no text is '?'. */
static void put_xml(FILE *out, const char *text, unsigned characters)
{
    for (unsigned len; *text != '\0' && characters > 0; text += len > 0 ? len : 1, characters--) {
        len = text_utf8_len(text);
        if (len == 0 || (len == 1 && ((unsigned char)*text < ' ' || *text == 0x7f)) ||
            (len == 3 && memcmp(text, "\xef\xbf\xbe", 3) >= 0 && memcmp(text, "\xef\xbf\xbf", 3) <= 0))
            fputc('?', out);
        else if (strchr("<>&\"'", *text) != NULL)
            fprintf(out, "&#%d;", *text);
        else
            fwrite(text, 1, len, out);
    }
}

static void draw_text(FILE *out, double x, double y, const char *text, unsigned characters)
{
    fprintf(out, "<text x=\"%.0f\" y=\"%.0f\">", x, y + 15);
    put_xml(out, text, characters);
    fputs("</text>\n", out);
}

static void draw_bar(FILE *out, const snapshot_copy *s, const gvm_object_info *object, double x,
                     double y, double width)
{
    const double chunk = width / (double)gvmi_max(snapshot_chunks(object), 1);
    const bool leased = object->read_leases + object->write_leases > 0;

    for (run r = {0}; next_run(s, object, &r);)
        fprintf(out,
                "<rect class=\"%s\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"14\">"
                "<title>chunks %" PRIu64 " to %" PRIu64 ": %s</title></rect>\n",
                states[r.state].name, x + (double)r.first * chunk, y + 4, (double)r.count * chunk,
                r.first, r.first + r.count - 1, states[r.state].text);
    if (leased)
        fprintf(out, "<rect class=\"leased\" x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"14\"/>\n",
                x, y + 4, width);
}

static void draw_object(FILE *out, const snapshot_copy *s, const gvm_object_info *object,
                        uint64_t largest, double y)
{
    const double part = (double)object->size_bytes / (double)largest;
    char figures[64], size[16], leases[16], nameless[40];

    lease_text(object, leases);
    snprintf(nameless, sizeof nameless, "(nameless %" PRIu64 ")", object->id);
    snprintf(figures, sizeof figures, "%6s %6s", text_short((double)object->size_bytes, true, size),
             leases);
    draw_text(out, 10, y, object->name[0] != '\0' ? object->name : nameless, NAME_CHARACTERS_MAX);
    draw_text(out, 10 + NAME_WIDTH, y, figures, TEXT_UNLIMITED);
    draw_bar(out, s, object, 10 + NAME_WIDTH + FIGURES_WIDTH, y, part * BAR_WIDTH);
}

static void draw_legend(FILE *out, double y)
{
    double x = 10;

    for (unsigned state = 0; state < MAP_STATES; state++) {
        fprintf(out, "<rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>\n",
                states[state].name, x, y + 4);
        draw_text(out, x + 20, y, states[state].text, TEXT_UNLIMITED);
        x += 50 + 7.3 * (double)strlen(states[state].text);
    }
    fprintf(out, "<rect class=\"leased\" x=\"%.0f\" y=\"%.0f\" width=\"14\" height=\"14\"/>\n", x,
            y + 4);
    draw_text(out, x + 20, y, "leased", TEXT_UNLIMITED);
}

static void begin_picture(FILE *out, size_t rows)
{
    const double height = (double)rows * ROW_HEIGHT + 10;

    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n"
            "<style>text { font: 12px monospace; white-space: pre; fill: #111827 } .leased { fill: none; stroke: #111827; "
            "stroke-width: 2 }",
            PICTURE_WIDTH, height, PICTURE_WIDTH, height);
    for (unsigned state = 0; state < MAP_STATES; state++)
        fprintf(out, " .%s { fill: %s }", states[state].name, states[state].color);
    fprintf(out, "</style>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n",
            PICTURE_WIDTH, height);
}

bool map_svg(FILE *out, const snapshot_copy *s, const char *prefix)
{
    size_t count;
    const gvm_object_info **list = keeper_select(s, prefix, true, &count);
    uint64_t largest;
    double y = 0;

    if (list == NULL)
        return false;
    largest = largest_of(list, count);
    begin_picture(out, count + s->keeper.devices + 1);
    for (uint32_t d = 0; d < s->keeper.devices; d++) {
        const gvm_keeper_device_info *device = &s->devices[d];
        char line[200], used[32], budget[32];

        snprintf(line, sizeof line, "device %d: %s of %s in use, %s", (int)device->ordinal,
                 gvmi_size_text(device->resident_bytes, used),
                 gvmi_size_text(device->budget_bytes, budget), device->name);
        draw_text(out, 10, y, line, TEXT_UNLIMITED);
        y += ROW_HEIGHT;
        for (size_t i = 0; i < count; i++)
            if (list[i]->device == device->ordinal) {
                draw_object(out, s, list[i], largest, y);
                y += ROW_HEIGHT;
            }
    }
    draw_legend(out, y);
    fputs("</svg>\n", out);
    free(list);
    return true;
}

/* ---- JSON */

bool map_json(FILE *out, const snapshot_copy *s, const char *prefix)
{
    size_t count;
    const gvm_object_info **list = keeper_select(s, prefix, true, &count);
    json j;

    if (list == NULL)
        return false;
    json_start(&j, out);
    json_array(&j, NULL);
    for (size_t i = 0; i < count; i++) {
        json_object(&j, NULL);
        json_string(&j, "name", list[i]->name);
        json_unsigned(&j, "id", list[i]->id);
        json_integer(&j, "device", list[i]->device);
        json_unsigned(&j, "chunk_bytes", list[i]->chunk_bytes);
        json_unsigned(&j, "read_leases", list[i]->read_leases);
        json_unsigned(&j, "write_leases", list[i]->write_leases);
        json_bool(&j, "in_order", chunks_of(s, list[i]) != NULL);
        json_array(&j, "runs");
        for (run r = {0}; next_run(s, list[i], &r);) {
            json_object(&j, NULL);
            json_unsigned(&j, "first", r.first);
            json_unsigned(&j, "chunks", r.count);
            json_string(&j, "state", states[r.state].name);
            json_end(&j);
        }
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    free(list);
    return true;
}
