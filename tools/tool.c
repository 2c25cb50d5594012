/* Complaints, option values, and the clock. */
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"

const char *tool_program = "gvmem";

int tool_error(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", tool_program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

gvm_status tool_failure_status(void)
{
    gvm_error error;

    (void)gvm_error_last(&error);
    return error.status;
}

char *tool_failure_text(char *out, size_t out_bytes)
{
    gvm_error error;

    gvm_error_last(&error);
    if (error.native_call[0] != '\0')
        snprintf(out, out_bytes, "%s (%s: %s answered %s)", error.text,
                 gvm_status_name(error.status), error.native_call, error.native_name);
    else
        snprintf(out, out_bytes, "%s (%s)", error.text, gvm_status_name(error.status));
    /* Of others' names a terminal would obey control characters, U+0080 to U+009F, too. */
    for (unsigned char *c = (unsigned char *)out; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
    return out;
}

int tool_fail(const char *format, ...)
{
    char what[160], why[400];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return tool_error("%s: %s", what, tool_failure_text(why, sizeof why));
}

int tool_usage(const char *command, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", tool_program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\ntry: %s %s%s--help\n", tool_program, command, command[0] != '\0' ? " " : "");
    return TOOL_USAGE;
}

static bool has_short(const char *argument, int option)
{
    return argument != NULL && argument[0] == '-' && argument[1] != '-' &&
           strchr(argument + 1, option) != NULL;
}

int tool_bad_option(const char *command, int option, char *const argv[])
{
    if (option == ':')
        return tool_usage(command, "%s needs a value", argv[optind - 1]);
    /* Of a long one that is known, with a value that it does not take, optopt is what getopt_long() returns. */
    if (optopt != 0 && strncmp(argv[optind - 1], "--", 2) == 0 &&
        strchr(argv[optind - 1], '=') != NULL && !has_short(argv[optind], optopt))
        return tool_usage(command, "%.*s takes no value", (int)strcspn(argv[optind - 1], "="),
                          argv[optind - 1]);
    if (optopt != 0) /* a short one, which may be in the middle of an argument */
        return tool_usage(command, "unknown option -%c", optopt);
    return tool_usage(command, "unknown option %s", argv[optind - 1]);
}

bool tool_parse_number(const char *command, const char *option, const char *text, long least,
                       long most, int *out)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        tool_usage(command, "%s takes a number from %ld to %ld, not \"%s\"", option, least, most, text);
        return false;
    }
    *out = (int)value;
    return true;
}

bool tool_parse_size(const char *command, const char *option, const char *text, uint64_t least,
                     uint64_t *out)
{
    char least_text[32];

    if (gvmi_size_parse(text, out) && *out >= least)
        return true;
    tool_usage(command, "%s takes a size such as 64MiB or 2G, at least %s, not \"%s\"", option,
               gvmi_size_text(least, least_text), text);
    return false;
}

bool tool_flush(FILE *file, const char *name)
{
    if (fflush(file) == 0 && !ferror(file))
        return true;
    tool_error("cannot write to %s: %s", name, strerror(errno));
    return false;
}

bool tool_fill_standard_files(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return tool_error("cannot open /dev/null: %s", strerror(errno)), false;
    close(fd);
    return true;
}

int tool_help(const char *text)
{
    fputs(text, stdout);
    return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
}

void tool_raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* if refused, the library says which limit was met */
}

double tool_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

char *tool_uuid_text(const uint8_t uuid[16], char out[48])
{
    size_t len = (size_t)sprintf(out, "GPU-");

    for (int i = 0; i < 16; i++)
        len += (size_t)sprintf(out + len, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    return out;
}
