#include "tests/lib/tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned planned, results, failures;

void tap_plan(unsigned count)
{
    planned = count;
    printf("1..%u\n", count);
    fflush(stdout);
}

bool tap_result(bool good, const char *name, ...)
{
    va_list args;

    printf("%sok %u - ", good ? "" : "not ", ++results);
    va_start(args, name);
    vprintf(name, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    failures += !good;
    return good;
}

void tap_skip(const char *name, const char *why)
{
    printf("ok %u - %s # SKIP %s\n", ++results, name, why);
    fflush(stdout);
}

int tap_skip_all(const char *why)
{
    printf("1..0 # SKIP %s\n", why);
    return 0;
}

int tap_finish(void)
{
    if (planned == 0)
        tap_plan(results);
    return failures == 0 && results == planned && results > 0 ? 0 : 1;
}

void tap_bail_out(const char *why, ...)
{
    va_list args;

    fputs("Bail out! ", stdout);
    va_start(args, why);
    vprintf(why, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    exit(2);
}
