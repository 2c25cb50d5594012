/* tests/conform/report.h - what the runner knows of a case's run, printed as TAP and written as
 * JSON. For main.c. */
#ifndef CONFORM_REPORT_H
#define CONFORM_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/conform/wire.h"

#define CONFORM_LINES_BYTES 4096

struct conform_report {
    bool ran;
    enum conform_outcome outcome;
    uint64_t ms;
    char skipped[CONFORM_TEXT_BYTES];   /* why */
    char failures[CONFORM_LINES_BYTES]; /* one a line; a line that no longer fits is left out */
    char observed[CONFORM_LINES_BYTES]; /* likewise: what the case saw */
};

void conform_report_failure(struct conform_report *report, const char *text);
void conform_report_observed(struct conform_report *report, const char *text);
void conform_report_skipped(struct conform_report *report, const char *text);
void conform_report_device(const char *name);
void conform_report_version(const char *version);

void conform_report_print(const char *name, const struct conform_report *report);
/* Prints the counts; gives that of failures. The array has conform_case_count reports. */
unsigned conform_report_end(const struct conform_report *reports);
/* False: errno says why the file could not be written. */
bool conform_report_json(const char *path, const struct conform_report *reports);

#endif
