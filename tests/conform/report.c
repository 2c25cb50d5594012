/* The report of a run: TAP for people and test runners, JSON so that a recorded run is data. */
#include <stdio.h>
#include <string.h>

#include "tests/conform/conform.h"
#include "tests/conform/report.h"
#include "tests/lib/tap.h"

static char device_name[CONFORM_TEXT_BYTES], driver_version[CONFORM_TEXT_BYTES];

/* ---- gathering */

static void add_line(char lines[CONFORM_LINES_BYTES], const char *text)
{
    size_t used = strlen(lines);
    if (used + strlen(text) + 2 <= CONFORM_LINES_BYTES)
        snprintf(lines + used, CONFORM_LINES_BYTES - used, "%s\n", text);
}

void conform_report_failure(struct conform_report *report, const char *text)
{
    report->outcome = OUTCOME_FAILED;
    add_line(report->failures, text);
}

void conform_report_observed(struct conform_report *report, const char *text)
{
    add_line(report->observed, text);
}

void conform_report_skipped(struct conform_report *report, const char *text)
{
    if (report->outcome != OUTCOME_PASSED)
        return;
    report->outcome = OUTCOME_SKIPPED;
    snprintf(report->skipped, sizeof report->skipped, "%s", text);
}

void conform_report_device(const char *name)
{
    snprintf(device_name, sizeof device_name, "%s", name);
}

void conform_report_version(const char *version)
{
    snprintf(driver_version, sizeof driver_version, "%s", version);
}

/* ---- TAP */

static void print_lines(const char *what, const char *lines)
{
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        printf("# %s: %.*s\n", what, (int)length, lines);
        lines += length + (lines[length] == '\n');
    }
}

void conform_report_print(const char *name, const struct conform_report *report)
{
    if (report->outcome == OUTCOME_SKIPPED)
        tap_skip(name, report->skipped);
    else
        tap_result(report->outcome == OUTCOME_PASSED, "%s", name);
    print_lines("failed", report->failures);
    print_lines("observed", report->observed);
    fflush(stdout);
}

static void count(const struct conform_report *reports, unsigned counts[3])
{
    for (unsigned i = 0; i < conform_case_count; i++)
        if (reports[i].ran)
            counts[reports[i].outcome]++;
}

unsigned conform_report_end(const struct conform_report *reports)
{
    unsigned counts[3] = {0, 0, 0};
    count(reports, counts);
    printf("# %u passed, %u failed, %u skipped\n", counts[OUTCOME_PASSED], counts[OUTCOME_FAILED],
           counts[OUTCOME_SKIPPED]);
    fflush(stdout);
    return counts[OUTCOME_FAILED];
}

/* ---- JSON */

static void json_text(FILE *file, const char *text, size_t length)
{
    fputc('"', file);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", (unsigned)c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void json_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": ", name);
    json_text(file, text, strlen(text));
    fputs(",\n", file);
}

static void json_lines(FILE *file, const char *name, const char *lines)
{
    const char *between = "";
    if (*lines == '\0')
        return;
    fprintf(file, ", \"%s\": [", name);
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        fputs(between, file);
        json_text(file, lines, length);
        between = ", ";
        lines += length + (lines[length] == '\n');
    }
    fputc(']', file);
}

static void json_case(FILE *file, const char *name, const struct conform_report *report)
{
    static const char *const outcomes[] = {
        [OUTCOME_PASSED] = "passed",
        [OUTCOME_SKIPPED] = "skipped",
        [OUTCOME_FAILED] = "failed",
    };
    fprintf(file, "    {\"name\": \"%s\", \"result\": \"%s\", \"ms\": %llu", name,
            outcomes[report->outcome], (unsigned long long)report->ms);
    json_lines(file, "skipped", report->skipped);
    json_lines(file, "failed", report->failures);
    json_lines(file, "observed", report->observed);
    fputc('}', file);
}

bool conform_report_json(const char *path, const struct conform_report *reports)
{
    unsigned counts[3] = {0, 0, 0};
    const char *between = "";
    FILE *file = fopen(path, "we");
    bool written;
    if (!file)
        return false;
    count(reports, counts);
    fputs("{\n", file);
    json_member(file, "device", device_name);
    json_member(file, "driver", options.driver);
    json_member(file, "driver_version", driver_version);
    fprintf(file, "  \"passed\": %u,\n  \"failed\": %u,\n  \"skipped\": %u,\n  \"cases\": [\n",
            counts[OUTCOME_PASSED], counts[OUTCOME_FAILED], counts[OUTCOME_SKIPPED]);
    for (unsigned i = 0; i < conform_case_count; i++) {
        if (!reports[i].ran)
            continue;
        fputs(between, file);
        json_case(file, conform_cases[i].name, &reports[i]);
        between = ",\n";
    }
    fputs("\n  ]\n}\n", file);
    written = !ferror(file);
    return fclose(file) == 0 && written;
}
