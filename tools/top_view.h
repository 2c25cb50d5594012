/* tools/top_view.h - what gvmem top shows, made from snapshots alone: no terminal, no clock.
 */
#ifndef TOOLS_TOP_VIEW_H
#define TOOLS_TOP_VIEW_H

#include "tools/snapshot.h"
#include "tools/text.h"

/* What happened each second between two snapshots. */
typedef struct top_rates {
    double seconds; /* between them; 0: there is nothing to compare with, and all is NaN */
    double acquires, slow_acquires, revokes, faults;
    double evictions, promotions, evicted_bytes, promoted_bytes; /* of all devices */
    double *objects, *clients; /* acquires, as the later snapshot's records; NaN: not in both */
} top_rates;

/* before may be NULL, or of another keeper. False: out of memory. */
bool top_rates_make(const snapshot_copy *before, const snapshot_copy *now, top_rates *out);
void top_rates_clear(top_rates *rates);

/* The parts of a bar, in the order in which they stand. The device's: its budget; the host's: the
 * host budget as one device's objects use it. */
typedef enum top_part {
    TOP_LEASED,
    TOP_IDLE,
    TOP_DIRTY,
    TOP_LENT,
    TOP_HELD,
    TOP_BACKED,
    TOP_OTHER,
    TOP_READY,
    TOP_UNUSED,
    TOP_PARTS
} top_part;

void top_device_parts(const snapshot_copy *s, const gvm_keeper_device_info *device,
                      uint64_t parts[TOP_PARTS]);
void top_host_parts(const snapshot_copy *s, const gvm_keeper_device_info *device,
                    uint64_t parts[TOP_PARTS]);

/* Shares width cells among the parts; the sum is width. Parts that are not zero have a cell each if
 * there are so many. */
void top_cells(const uint64_t parts[TOP_PARTS], unsigned width, unsigned cells[TOP_PARTS]);

typedef enum top_sort {
    TOP_BY_BYTES,
    TOP_BY_RATE,
    TOP_BY_NAME,
    TOP_BY_WAITING,
    TOP_SORTS
} top_sort;

typedef struct top_view {
    const snapshot_copy *now; /* NULL: there is no keeper */
    const top_rates *rates;   /* of now */
    const char *problem;      /* why there is no keeper */
    const char *clock;        /* time of day; NULL: not shown */
    double delay_s;           /* between snapshots */
    top_sort sort;
    bool help, keys; /* show the keys in full, or the most important */
} top_view;

/* Writes at most pen->lines_max lines; with TEXT_UNLIMITED, all objects and clients. */
void top_render(text_pen *pen, const top_view *view);

/* The same as a JSON object. time_s: since 1970. */
void top_json(FILE *out, const top_view *view, int64_t time_s);

#endif
