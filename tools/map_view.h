/* tools/map_view.h - which chunks of which object lie where, from a snapshot with chunks alone.
 *
 * Chunks of objects without a name are counted, but not listed: those on the device come first.
 */
#ifndef TOOLS_MAP_VIEW_H
#define TOOLS_MAP_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/snapshot.h"
#include "tools/text.h"

/* The objects whose names begin with prefix; all, with nameless ones, if it is "". False, with a complaint: out of
 * memory. */

/* A line each: as many cells as the object's part of the largest one, of which each has the state that most of its
 * chunks have. */
bool map_text(text_pen *pen, const snapshot_copy *snapshot, const char *prefix);

/* A picture, in which chunks side by side that have the same state are one rectangle. */
bool map_svg(FILE *out, const snapshot_copy *snapshot, const char *prefix);

/* Runs of chunks that have the same state. */
bool map_json(FILE *out, const snapshot_copy *snapshot, const char *prefix);

#endif
