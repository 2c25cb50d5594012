/* The trace decorator: one line per driver call.
 *
 *     4711 5036.272504 cuMemCreate(&0x302000000, 2097152, 0x7ffc61e0, 0) = CUDA_SUCCESS 12.3 us
 *
 * Thread id, when the call began (seconds of CLOCK_MONOTONIC, which all processes share), call, arguments, result,
 * duration. Numbers are decimal, handles, addresses and pointers hexadecimal; what a call wrote through a pointer to one value is shown as &value once it
 * succeeded. Each line is one write(2) to a file opened for appending, so that lines of threads and
 * of processes never mix. A line that cannot be written is lost: tracing never changes what the
 * program does.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "driver/driver.h"

#define LINE_BYTES 1024
#define TEXT_ARGUMENT_MAX 80 /* characters of a text argument that are shown */

static const gvmi_driver *trace_below;
static int trace_fd = -1;

/* ---- arguments: how each type is shown, and where the value is */

typedef enum form {
    FORM_HEX,      /* handles, addresses, pointers, and what has no better form */
    FORM_SIGNED,   /* int */
    FORM_UNSIGNED, /* sizes, counts, flags */
    FORM_TEXT,     /* a string the caller passes */
    FORM_OUT_HEX,  /* a pointer to one value that the call writes */
    FORM_OUT_SIGNED,
    FORM_OUT_UNSIGNED,
} form;

typedef struct argument {
    form form;
    size_t bytes;
    const void *value;
} argument;

/* clang-format off */
#define FORM(x) _Generic((x), \
    int: FORM_SIGNED, \
    unsigned char: FORM_UNSIGNED, unsigned short: FORM_UNSIGNED, unsigned int: FORM_UNSIGNED, unsigned long: FORM_UNSIGNED, \
    const char *: FORM_TEXT, \
    int *: FORM_OUT_SIGNED, unsigned long *: FORM_OUT_UNSIGNED, \
    unsigned long long *: FORM_OUT_HEX, CUcontext *: FORM_OUT_HEX, CUstream *: FORM_OUT_HEX, CUevent *: FORM_OUT_HEX, \
    CUmodule *: FORM_OUT_HEX, CUfunction *: FORM_OUT_HEX, CUmemoryPool *: FORM_OUT_HEX, \
    CUgraph *: FORM_OUT_HEX, CUgraphExec *: FORM_OUT_HEX, \
    default: FORM_HEX)

/* EACH(a, b) is ", {a as an argument}, {b as an argument}"; nothing for nothing, and no more
 * than 11. */
#define ARGUMENT(x) , {FORM(x), sizeof(x), &(x)}
#define EACH_0(...)
#define EACH_1(x) ARGUMENT(x)
#define EACH_2(x, ...) ARGUMENT(x) EACH_1(__VA_ARGS__)
#define EACH_3(x, ...) ARGUMENT(x) EACH_2(__VA_ARGS__)
#define EACH_4(x, ...) ARGUMENT(x) EACH_3(__VA_ARGS__)
#define EACH_5(x, ...) ARGUMENT(x) EACH_4(__VA_ARGS__)
#define EACH_6(x, ...) ARGUMENT(x) EACH_5(__VA_ARGS__)
#define EACH_7(x, ...) ARGUMENT(x) EACH_6(__VA_ARGS__)
#define EACH_8(x, ...) ARGUMENT(x) EACH_7(__VA_ARGS__)
#define EACH_9(x, ...) ARGUMENT(x) EACH_8(__VA_ARGS__)
#define EACH_10(x, ...) ARGUMENT(x) EACH_9(__VA_ARGS__)
#define EACH_11(x, ...) ARGUMENT(x) EACH_10(__VA_ARGS__)
#define PICK(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, picked, ...) picked
#define EACH(...) \
    PICK(0, ##__VA_ARGS__, EACH_11, EACH_10, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, EACH_2, EACH_1, EACH_0, ) \
    (__VA_ARGS__)
/* clang-format on */

/* ---- one line */

typedef struct line {
    size_t len;
    char text[LINE_BYTES];
} line;

__attribute__((format(printf, 2, 3))) static void append_text(line *to, const char *format, ...)
{
    size_t room = sizeof to->text - to->len;
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(to->text + to->len, room, format, args);
    va_end(args);
    if (len > 0)
        to->len += (size_t)len < room ? (size_t)len : room - 1;
}

static uint64_t unsigned_at(const void *at, size_t bytes)
{
    uint64_t value = 0; /* x86-64 and arm64 are little-endian, so that a shorter value fills the low bytes */

    memcpy(&value, at, bytes < sizeof value ? bytes : sizeof value);
    return value;
}

static int int_at(const void *at)
{
    int value;

    memcpy(&value, at, sizeof value);
    return value;
}

static void add_argument(line *to, const argument *arg, bool succeeded)
{
    const void *pointer = (const void *)(uintptr_t)unsigned_at(arg->value, arg->bytes);
    form shown = arg->form;

    if (shown >= FORM_TEXT && (pointer == NULL || (shown != FORM_TEXT && !succeeded)))
        shown = FORM_HEX;
    switch (shown) {
    case FORM_HEX: append_text(to, "%#" PRIx64, unsigned_at(arg->value, arg->bytes)); break;
    case FORM_SIGNED: append_text(to, "%d", int_at(arg->value)); break;
    case FORM_UNSIGNED: append_text(to, "%" PRIu64, unsigned_at(arg->value, arg->bytes)); break;
    case FORM_TEXT: append_text(to, "\"%.*s\"", TEXT_ARGUMENT_MAX, (const char *)pointer); break;
    case FORM_OUT_HEX: append_text(to, "&%#" PRIx64, unsigned_at(pointer, sizeof(uint64_t))); break;
    case FORM_OUT_SIGNED: append_text(to, "&%d", int_at(pointer)); break;
    case FORM_OUT_UNSIGNED:
        append_text(to, "&%" PRIu64, unsigned_at(pointer, sizeof(uint64_t)));
        break;
    }
}

static void write_line(const char *call, const argument *args, size_t arg_count, CUresult result,
                       int64_t begin_ns)
{
    double us = (double)(gvmi_now_ns() - begin_ns) / 1000;
    const char *text = NULL;
    int error = errno;
    line out = {.len = 0};

    append_text(&out, "%d %lld.%06lld %s(", (int)gettid(), (long long)(begin_ns / 1000000000),
                (long long)(begin_ns / 1000 % 1000000), call);
    for (size_t i = 0; i < arg_count; i++) {
        if (i > 0)
            append_text(&out, ", ");
        add_argument(&out, &args[i], result == CUDA_SUCCESS);
    }
    if (trace_below->cuGetErrorName(result, &text) == CUDA_SUCCESS && text != NULL)
        append_text(&out, ") = %s %.1f us", text, us);
    else
        append_text(&out, ") = %d %.1f us", (int)result, us);
    out.text[out.len++] = '\n'; /* in place of the end of the string, which write() does not want */
    while (write(trace_fd, out.text, out.len) < 0 && errno == EINTR)
        ;
    errno = error;
}

/* The first element stands for the arguments that a call without any does not have. */
#define WRAP(name, symbol, since, need, params, args) \
    static CUresult trace_##name params \
    { \
        int64_t begin_ns = gvmi_now_ns(); \
        CUresult result = trace_below->name args; \
        const argument list[] = {{FORM_HEX, 0, NULL} EACH args}; \
\
        write_line(#name, list + 1, sizeof list / sizeof list[0] - 1, result, begin_ns); \
        return result; \
    }
GVMI_CUDA_CALLS(WRAP)
#undef WRAP

const gvmi_driver *gvmi_trace_wrap(const gvmi_driver *next, const char *target)
{
    static const gvmi_driver table = {
#define MEMBER(name, symbol, since, need, params, args) .name = trace_##name,
        GVMI_CUDA_CALLS(MEMBER)
#undef MEMBER
    };

    if (strcmp(target, "stderr") == 0) {
        trace_fd = STDERR_FILENO;
    } else {
        int fd = open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);

        if (fd < 0) {
            gvmi_fail_system(
                GVM_E_SETTING, errno, "open",
                "GVMEM_TRACE=%s cannot be opened: give stderr or the path of a file to append to",
                GVMI_TEXT_NAME(target));
            return NULL;
        }
        if (trace_fd > STDERR_FILENO) /* an earlier start failed behind this point */
            close(trace_fd);
        trace_fd = fd;
    }
    trace_below = next;
    return &table;
}
