/* The screen of gvmem top. */
#include "tools/top_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/keeper_fields.h"
#include "tools/models.h"

/* How a part of a bar looks. The characters differ so that bars can be read without colours too. */
static const struct part_look {
    const char *utf8, *ascii, *color;
} looks[TOP_PARTS] = {
    [TOP_LEASED] = {"█", "#", "32"}, [TOP_IDLE] = {"▓", "=", "36"},
    [TOP_DIRTY] = {"▒", "%", "33"},  [TOP_LENT] = {"▞", "+", "96"},
    [TOP_HELD] = {"▚", "!", "31"},   [TOP_BACKED] = {"█", "#", "35"},
    [TOP_OTHER] = {"▓", "=", "37"},  [TOP_READY] = {"░", "-", "34"},
    [TOP_UNUSED] = {"·", ".", "2"},
};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- bars */

/* What is left of a budget after n bytes. */
static uint64_t take_from_budget(uint64_t *left, uint64_t n)
{
    n = min_u64(n, *left);
    *left -= n;
    return n;
}

/* How many of the device's dirty bytes are under a lease, as far as its objects can be seen. */
static uint64_t leased_dirty(const snapshot_copy *s, const gvm_keeper_device_info *device)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < s->keeper.objects; i++) {
        const gvm_object_info *object = &s->objects[i];

        if (object->device == device->ordinal && (object->read_leases | object->write_leases) != 0)
            sum += object->dirty_bytes;
    }
    return min_u64(sum, device->leased_bytes);
}

/* The figures overlap (what is leased may be dirty), and the budget may have shrunk below what is
 * in use; the parts do neither. */
void top_device_parts(const snapshot_copy *s, const gvm_keeper_device_info *device,
                      uint64_t parts[TOP_PARTS])
{
    uint64_t resident = device->resident_bytes, left = device->budget_bytes;
    uint64_t dirty = device->dirty_bytes - min_u64(device->dirty_bytes, leased_dirty(s, device));

    memset(parts, 0, TOP_PARTS * sizeof parts[0]);
    parts[TOP_LENT] = take_from_budget(&resident, device->lent_bytes);
    parts[TOP_LEASED] = take_from_budget(&resident, device->leased_bytes);
    parts[TOP_DIRTY] = take_from_budget(&resident, dirty);
    parts[TOP_IDLE] = resident;
    parts[TOP_HELD] = device->held_bytes;
    left -= min_u64(left, device->resident_bytes + device->held_bytes);
    parts[TOP_READY] = take_from_budget(&left, device->free_bytes);
    parts[TOP_UNUSED] = left;
}

void top_host_parts(const snapshot_copy *s, const gvm_keeper_device_info *device,
                    uint64_t parts[TOP_PARTS])
{
    uint64_t used = s->keeper.host_used_bytes, left = s->keeper.host_budget_bytes;

    memset(parts, 0, TOP_PARTS * sizeof parts[0]);
    parts[TOP_BACKED] = take_from_budget(&used, device->host_backed_bytes);
    parts[TOP_OTHER] = used;
    left -= min_u64(left, s->keeper.host_used_bytes);
    parts[TOP_READY] = take_from_budget(&left, s->keeper.host_free_bytes);
    parts[TOP_UNUSED] = left;
}

static unsigned largest_part(const unsigned cells[TOP_PARTS])
{
    unsigned best = 0;

    for (unsigned i = 1; i < TOP_PARTS; i++)
        if (cells[i] > cells[best])
            best = i;
    return best;
}

void top_cells(const uint64_t parts[TOP_PARTS], unsigned width, unsigned cells[TOP_PARTS])
{
    double total = 0, sum = 0;
    unsigned done = 0;

    for (unsigned i = 0; i < TOP_PARTS; i++)
        total += (double)parts[i];
    /* Each part ends at the cell nearest to its true end, so errors do not add up. */
    for (unsigned i = 0; i < TOP_PARTS; i++) {
        unsigned end;

        sum += (double)parts[i];
        end = total > 0 ? (unsigned)lround(sum / total * width) : 0;
        if (i == TOP_PARTS - 1)
            end = width;
        cells[i] = end > done ? end - done : 0;
        done += cells[i];
    }
    for (unsigned i = 0; i < TOP_PARTS; i++) {
        unsigned giver = largest_part(cells);

        if (parts[i] != 0 && cells[i] == 0 && cells[giver] > 1) {
            cells[giver]--;
            cells[i]++;
        }
    }
}

static void draw_part(text_pen *pen, unsigned part, unsigned count)
{
    if (count == 0)
        return;
    text_style(pen, looks[part].color);
    text_repeat(pen, pen->utf8 ? looks[part].utf8 : looks[part].ascii, count);
    text_style(pen, "0");
}

/* title [bar] 100%, in so many columns. */
static void draw_bar(text_pen *pen, const char *title, const uint64_t parts[TOP_PARTS], unsigned columns)
{
    const unsigned around = (unsigned)strlen(title) + (unsigned)strlen("[] 100%");
    unsigned cells[TOP_PARTS], width = columns > around ? columns - around : 1;
    double total = 0, unused = (double)parts[TOP_READY] + (double)parts[TOP_UNUSED];

    for (unsigned i = 0; i < TOP_PARTS; i++)
        total += (double)parts[i];
    top_cells(parts, width, cells);
    text_put(pen, title);
    text_put(pen, "[");
    for (unsigned i = 0; i < TOP_PARTS; i++)
        draw_part(pen, i, cells[i]);
    text_print(pen, "] %3.0f%%", total > 0 ? floor((total - unused) / total * 100) : 0.0);
}

static void draw_legend(text_pen *pen)
{
    static const struct {
        const char *before;
        top_part part;
        const char *text;
    } entries[] = {
        {"  device: ", TOP_LEASED, " leased "},
        {"", TOP_IDLE, " idle "},
        {"", TOP_DIRTY, " idle, dirty "},
        {"", TOP_LENT, " lent to other devices "},
        {"", TOP_HELD, " held by clients that were cut off"},
        {"\n    host: ", TOP_BACKED, " of the device "},
        {"", TOP_OTHER, " other "},
        {"", TOP_READY, " ready "},
        {"", TOP_UNUSED, " unused"},
    };

    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const char *before = entries[i].before;

        if (*before == '\n') {
            text_end(pen);
            before++;
        }
        text_put(pen, before);
        draw_part(pen, entries[i].part, 1);
        text_put(pen, entries[i].text);
    }
    text_end(pen);
}

/* ---- the head */

static void draw_title(text_pen *pen, const top_view *view)
{
    char up[32];

    text_style(pen, "1");
    text_put(pen, "gvmem top");
    text_style(pen, "0");
    if (view->now != NULL) {
        const gvm_keeper_info *k = &view->now->keeper;

        text_print(pen, " - up %s, %u client%s, %u object%s, pid %" PRIu64,
                   text_duration(k->uptime_ms, up), k->clients, k->clients == 1 ? "" : "s",
                   k->objects, k->objects == 1 ? "" : "s", k->pid);
    }
    if (view->clock != NULL && strlen(view->clock) < pen->width) {
        text_column(pen, pen->width - (unsigned)strlen(view->clock));
        text_put(pen, view->clock);
    }
    text_end(pen);
}

static void draw_rates(text_pen *pen, const top_view *view)
{
    const gvm_keeper_info *k = &view->now->keeper;
    const top_rates *r = view->rates;
    char a[16], b[16], c[16], d[16], e[16];

    text_print(pen, "acquires %s/s, slow %s/s   evictions %s/s   moved %s/s out, %s/s in",
               text_short(r->acquires, false, a), text_short(r->slow_acquires, false, b),
               text_short(r->evictions, false, c), text_short(r->evicted_bytes, true, d),
               text_short(r->promoted_bytes, true, e));
    text_end(pen);
    if (k->faults != 0)
        text_style(pen, "1;31");
    text_print(pen, "faults %s", text_short((double)k->faults, false, a));
    text_style(pen, "0");
    text_print(pen, "   cut off %s   interrupted %s   timeouts %s   revokes %s/s",
               text_short((double)k->cut_offs, false, a), text_short((double)k->interrupted, false, b),
               text_short((double)k->timeouts, false, c), text_short(r->revokes, false, d));
    text_end(pen);
}

#define STACKED_BELOW 72 /* columns; bars stand below each other in less */

static void draw_device(text_pen *pen, const snapshot_copy *s, const gvm_keeper_device_info *device)
{
    const unsigned width = pen->width == TEXT_UNLIMITED ? 100 : pen->width;
    uint64_t card[TOP_PARTS], host[TOP_PARTS];
    char a[16], b[16], c[16], d[16];

    text_style(pen, "1");
    text_print(pen, "device %d  %s", (int)device->ordinal, device->name);
    text_style(pen, "0");
    text_print(pen, "  %s of %s, host %s of %s, card %s of %s free",
               text_short((double)device->resident_bytes, true, a),
               text_short((double)device->budget_bytes, true, b),
               text_short((double)device->host_backed_bytes, true, c),
               text_short((double)s->keeper.host_budget_bytes, true, d),
               text_short((double)device->driver_free_bytes, true, (char[16]){0}),
               text_short((double)device->driver_total_bytes, true, (char[16]){0}));
    text_end(pen);
    top_device_parts(s, device, card);
    top_host_parts(s, device, host);
    if (width < STACKED_BELOW) {
        draw_bar(pen, "  device ", card, width);
        text_end(pen);
        draw_bar(pen, "    host ", host, width);
    } else {
        draw_bar(pen, "  device ", card, width * 3 / 5);
        draw_bar(pen, "  host ", host, width - width * 3 / 5);
    }
    text_end(pen);
}

/* Whether there are so many lines, and six more for the tables. */
static bool has_room(const text_pen *pen, unsigned lines)
{
    return pen->lines_max == TEXT_UNLIMITED || pen->line + lines + 6 <= pen->lines_max;
}

static void draw_devices(text_pen *pen, const snapshot_copy *s)
{
    const unsigned lines = pen->width < STACKED_BELOW ? 3 : 2, count = s->keeper.devices;

    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && !has_room(pen, lines)) {
            text_print(pen, "(%u more devices)", count - i);
            text_end(pen);
            break;
        }
        draw_device(pen, s, &s->devices[i]);
    }
    if (count > 0 && has_room(pen, 3))
        draw_legend(pen);
    if (has_room(pen, 1))
        text_end(pen);
}

/* ---- the tables */

typedef struct order {
    const top_view *view;
    top_sort sort;
} order;

static int compare_descending(double a, double b) /* the larger first; NaN last */
{
    a = isnan(a) ? -1 : a;
    b = isnan(b) ? -1 : b;
    return a > b ? -1 : a < b;
}

/* Of equals the larger comes first, and then the older, so that lines do not jump about. */
static int compare_objects(const void *a, const void *b, void *context)
{
    const order *o = context;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const gvm_object_info *x = &o->view->now->objects[i], *y = &o->view->now->objects[k];
    int result = 0;

    if (o->sort == TOP_BY_RATE)
        result = compare_descending(o->view->rates->objects[i], o->view->rates->objects[k]);
    else if (o->sort == TOP_BY_NAME)
        result = strcmp(x->name, y->name);
    else if (o->sort == TOP_BY_WAITING)
        result = compare_descending(x->waiting, y->waiting);
    if (result == 0)
        result = compare_descending((double)x->device_bytes, (double)y->device_bytes);
    if (result == 0)
        result = compare_descending((double)x->size_bytes, (double)y->size_bytes);
    return result != 0 ? result : x->id < y->id ? -1 : x->id > y->id;
}

static int compare_clients(const void *a, const void *b, void *context)
{
    const order *o = context;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const gvm_client_info *x = &o->view->now->clients[i], *y = &o->view->now->clients[k];
    int result = 0;

    if (o->sort == TOP_BY_RATE)
        result = compare_descending(o->view->rates->clients[i], o->view->rates->clients[k]);
    if (result == 0)
        result = compare_descending((double)x->held_bytes, (double)y->held_bytes);
    if (result == 0)
        result = compare_descending((double)x->committed_bytes, (double)y->committed_bytes);
    return result != 0 ? result : x->id < y->id ? -1 : x->id > y->id;
}

/* The numbers below count in order; NULL: out of memory. */
static uint32_t *sort_numbers(const top_view *view, uint32_t count,
                              int (*compare)(const void *a, const void *b, void *context))
{
    uint32_t *index = malloc((count + 1) * sizeof *index);
    order o = {view, view->sort};

    if (index == NULL)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        index[i] = i;
    qsort_r(index, count, sizeof *index, compare, &o);
    return index;
}

static void draw_heading(text_pen *pen, const char *text)
{
    text_style(pen, "7");
    text_put(pen, text);
    if (pen->color && pen->width != TEXT_UNLIMITED)
        text_column(pen, pen->width);
    text_style(pen, "0");
    text_end(pen);
}

static void draw_object(text_pen *pen, const top_view *view, uint32_t i)
{
    const gvm_object_info *o = &view->now->objects[i];
    char device[16], host[16], size[16], dirty[16], rate[16];
    models_mark mark;

    if (o->waiting != 0)
        text_style(pen, "33");
    text_print(pen, "%3d %6s %6s %6s %6s %7s %5u %3u %5u %5u %c%c%c%c ", (int)o->device,
               text_short((double)o->device_bytes, true, device),
               text_short((double)o->host_bytes, true, host),
               text_short((double)o->size_bytes, true, size),
               text_short((double)o->dirty_bytes, true, dirty),
               text_short(view->rates->objects[i], false, rate), o->read_leases, o->write_leases,
               o->waiting, o->openings, o->sealed ? 's' : '-', o->kept ? 'k' : '-',
               o->moving ? 'm' : '-', o->interrupted != 0 ? 'i' : '-');
    if (o->name[0] != '\0')
        text_put(pen, o->name);
    else
        text_print(pen, "(nameless %" PRIu64 ")", o->id);
    if (models_read_mark(o, &mark))
        text_print(pen, "  model of %" PRIu64 " tensors%s%s", mark.tensors,
                   mark.version[0] != '\0' ? ", version " : "", mark.version);
    text_style(pen, "0");
    text_end(pen);
}

static void draw_client(text_pen *pen, const top_view *view, uint32_t i)
{
    const gvm_client_info *c = &view->now->clients[i];
    char committed[16], held[16], rate[16];

    if (c->cut_off || c->held_bytes != 0)
        text_style(pen, "31");
    text_print(pen, "%8d %8u %6u %9s %7s %5u %5u %6s%s", (int)c->pid, c->uid, c->objects_open,
               text_short((double)c->committed_bytes, true, committed),
               text_short(view->rates->clients[i], false, rate), c->read_leases, c->write_leases,
               text_short((double)c->held_bytes, true, held),
               c->cut_off           ? " cut off"
               : c->held_bytes != 0 ? " disconnected"
                                    : "");
    text_style(pen, "0");
    text_end(pen);
}

/* A heading and as many rows as fit in lines; the last line counts the others. */
static void draw_table(text_pen *pen, const top_view *view, const char *heading, uint32_t count,
                       unsigned lines, int (*compare)(const void *a, const void *b, void *context),
                       void (*draw)(text_pen *pen, const top_view *view, uint32_t i))
{
    uint32_t *index, shown = count;

    if (lines == 0)
        return;
    draw_heading(pen, heading);
    if (lines <= count)
        shown = lines > 2 ? lines - 2 : 0;
    index = sort_numbers(view, count, compare);
    for (uint32_t i = 0; i < shown && index != NULL; i++)
        draw(pen, view, index[i]);
    free(index);
    if (shown < count && lines > 1) {
        text_print(pen, "(%u more)", count - shown);
        text_end(pen);
    }
}

/* Clients leave at least two thirds of the lines to objects if these need them, and the other way
 * round. */
static void draw_tables(text_pen *pen, const top_view *view)
{
    const gvm_keeper_info *k = &view->now->keeper;
    unsigned objects = k->objects + 1, clients = k->clients + 1;

    if (pen->lines_max != TEXT_UNLIMITED) {
        unsigned used = pen->line + 1, left; /* a blank line between the tables */

        left = pen->lines_max > used ? pen->lines_max - used : 0;
        if (objects > left || clients > left - objects) {
            unsigned third = left / 3;

            if (clients > third)
                clients = objects < left - third ? left - objects : third;
            objects = left - clients;
        }
    }
    draw_table(pen, view, "DEV DEVICE   HOST  BYTES  DIRTY   ACQ/S READ WRI WAIT  OPEN FLAG OBJECT",
               k->objects, objects, compare_objects, draw_object);
    if (clients > 0)
        text_end(pen);
    draw_table(pen, view, "     PID      UID   OPEN COMMITTED   ACQ/S  READ WRITE   HELD CLIENT",
               k->clients, clients, compare_clients, draw_client);
}

static void draw_help(text_pen *pen)
{
    static const char *const lines[] = {
        "  d  sort by bytes on the device      a  by acquires a second",
        "  n  by name                          w  by acquires that wait",
        "  s  next order                       space  look now",
        "  h  this help, or not                q  quit",
        "",
        "flags: s sealed, k outlives its creator, m moving, i a writer was interrupted",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        text_put(pen, lines[i]);
        text_end(pen);
    }
}

static void draw_footer(text_pen *pen, const top_view *view)
{
    static const char *const orders[TOP_SORTS] = {"device bytes", "acquires/s", "name", "waiting"};

    /* At the bottom, wherever the tables end. */
    while (pen->line + 1 < pen->lines_max)
        text_end(pen);
    text_style(pen, "2");
    text_print(pen, "q quit  h help  sort: d a n w (%s)  every %g s", orders[view->sort],
               view->delay_s);
    text_style(pen, "0");
    text_end(pen);
}

void top_render(text_pen *pen, const top_view *view)
{
    const bool footer = view->keys && pen->lines_max != TEXT_UNLIMITED && pen->lines_max > 1;

    pen->lines_max -= footer; /* its line is not the others' */
    draw_title(pen, view);
    if (view->now == NULL) {
        text_style(pen, "1;31");
        text_print(pen, "no keeper: %s", view->problem != NULL ? view->problem : "it is gone");
        text_style(pen, "0");
        text_end(pen);
        text_put(pen, "trying again");
        text_end(pen);
    } else {
        draw_rates(pen, view);
        draw_devices(pen, view->now);
    }
    if (view->help)
        draw_help(pen);
    else if (view->now != NULL)
        draw_tables(pen, view);
    pen->lines_max += footer;
    if (footer)
        draw_footer(pen, view);
}

/* ---- JSON */

static void json_rates(json *j, const top_rates *r)
{
    json_object(j, "rates");
    json_number(j, "seconds", r->seconds);
    json_number(j, "acquires_per_s", r->acquires);
    json_number(j, "slow_acquires_per_s", r->slow_acquires);
    json_number(j, "revokes_per_s", r->revokes);
    json_number(j, "faults_per_s", r->faults);
    json_number(j, "evictions_per_s", r->evictions);
    json_number(j, "promotions_per_s", r->promotions);
    json_number(j, "evicted_bytes_per_s", r->evicted_bytes);
    json_number(j, "promoted_bytes_per_s", r->promoted_bytes);
    json_end(j);
}

static void json_bar(json *j, const char *key, const uint64_t parts[TOP_PARTS])
{
    static const char *const names[TOP_PARTS] = {
        [TOP_LEASED] = "leased", [TOP_IDLE] = "idle",   [TOP_DIRTY] = "dirty",
        [TOP_LENT] = "lent",     [TOP_HELD] = "held",   [TOP_BACKED] = "backed",
        [TOP_OTHER] = "other",   [TOP_READY] = "ready", [TOP_UNUSED] = "unused",
    };

    json_object(j, key);
    for (unsigned i = 0; i < TOP_PARTS; i++)
        json_unsigned(j, names[i], parts[i]);
    json_end(j);
}

static void json_devices(json *j, const snapshot_copy *s)
{
    uint64_t parts[TOP_PARTS];

    json_array(j, "devices");
    for (uint32_t i = 0; i < s->keeper.devices; i++) {
        json_object(j, NULL);
        keeper_json_fields(j, &keeper_of_device, &s->devices[i]);
        top_device_parts(s, &s->devices[i], parts);
        json_bar(j, "device_parts", parts);
        top_host_parts(s, &s->devices[i], parts);
        json_bar(j, "host_parts", parts);
        json_end(j);
    }
    json_end(j);
}

static void json_table(json *j, const char *key, const keeper_table *table, const void *records,
                       const double *rates, const uint32_t *index, uint32_t count)
{
    json_array(j, key);
    for (uint32_t i = 0; i < count && index != NULL; i++) {
        json_object(j, NULL);
        keeper_json_fields(j, table, (const char *)records + index[i] * table->record_bytes);
        json_number(j, "acquires_per_s", rates[index[i]]);
        json_end(j);
    }
    json_end(j);
}

void top_json(FILE *out, const top_view *view, int64_t time_s)
{
    const snapshot_copy *s = view->now;
    uint32_t *objects, *clients;
    json j;

    json_start(&j, out);
    json_object(&j, NULL);
    json_integer(&j, "time", time_s);
    if (s == NULL) {
        json_null(&j, "keeper");
        json_string(&j, "error", view->problem);
        json_end(&j);
        return;
    }
    objects = sort_numbers(view, s->keeper.objects, compare_objects);
    clients = sort_numbers(view, s->keeper.clients, compare_clients);
    json_object(&j, "keeper");
    keeper_json_fields(&j, &keeper_of_keeper, &s->keeper);
    json_end(&j);
    json_rates(&j, view->rates);
    json_devices(&j, s);
    json_table(&j, "objects", &keeper_of_object, s->objects, view->rates->objects, objects,
               s->keeper.objects);
    json_table(&j, "clients", &keeper_of_client, s->clients, view->rates->clients, clients,
               s->keeper.clients);
    json_end(&j);
    free(objects);
    free(clients);
}
