/* Expectations: what a case states, and how its failure reaches the runner.
 *
 * A worker sends one message per event over its socket; the runner prints. A required expectation
 * that fails leaves the case by longjmp to conform_try(), which then undoes what the case took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/conform/conform.h"
#include "tests/conform/wire.h"

static jmp_buf case_end;
static enum conform_outcome outcome;

enum conform_outcome conform_try(void (*run)(void))
{
    outcome = OUTCOME_PASSED;
    if (setjmp(case_end) == 0)
        run();
    for (;;) /* what fails to be undone is off the stack, so this ends */
        if (setjmp(case_end) == 0) {
            drop_all();
            return outcome;
        }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

__attribute__((format(printf, 4, 5))) static void fail(const char *file, int line, bool end,
                                                       const char *format, ...)
{
    char text[CONFORM_TEXT_BYTES];
    int used = snprintf(text, sizeof text, "%s:%d ", base_name(file), line);
    va_list args;
    va_start(args, format);
    if (used > 0 && (size_t)used < sizeof text)
        vsnprintf(text + used, sizeof text - (size_t)used, format, args);
    va_end(args);
    outcome = OUTCOME_FAILED;
    conform_wire_send(WIRE_FAILURE, text);
    if (end)
        longjmp(case_end, 1);
}

int conform_result(const char *file, int line, const char *call, int got, int want, bool end)
{
    if (got != want)
        fail(file, line, end, "%s: expected %s (%d), got %s (%d)", call, conform_result_name(want),
             want, conform_result_name(got), got);
    return got;
}

int conform_result_any(const char *file, int line, const char *call, int got, const int *wants)
{
    char list[256] = "";
    size_t used = 0;
    observe("%s:%d %s: %s (%d)", base_name(file), line, call, conform_result_name(got), got);
    for (const int *want = wants; *want >= 0; want++) {
        int n;
        if (got == *want)
            return got;
        n = snprintf(list + used, sizeof list - used, "%s%s", used ? " or " : "",
                     conform_result_name(*want));
        used += n > 0 && (size_t)n < sizeof list - used ? (size_t)n : 0;
    }
    fail(file, line, false, "%s: expected %s, got %s (%d)", call, list, conform_result_name(got), got);
    return got;
}

bool conform_u64(const char *file, int line, const char *what, uint64_t got, uint64_t want, bool end)
{
    if (got != want)
        fail(file, line, end, "%s: expected %llu, got %llu", what, (unsigned long long)want,
             (unsigned long long)got);
    return got == want;
}

bool conform_true(const char *file, int line, const char *what, bool holds, bool end)
{
    if (!holds)
        fail(file, line, end, "%s: expected true, got false", what);
    return holds;
}

void observe(const char *format, ...)
{
    char text[CONFORM_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    conform_wire_send(WIRE_OBSERVED, text);
}

void skip(const char *why)
{
    conform_wire_send(WIRE_SKIPPED, why);
    if (outcome == OUTCOME_PASSED)
        outcome = OUTCOME_SKIPPED;
    longjmp(case_end, 1);
}
