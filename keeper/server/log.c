/* Lines for the program that runs a keeper; see log.h. */
#include "keeper/server/log.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "keeper/server/server.h"

#define NS_PER_S 1000000000ll

static void make_printable(char *line)
{
    for (; *line != '\0'; line++)
        if ((unsigned char)*line < ' ' || *line == 0x7f)
            *line = '?';
}

void gvmi_log_end(gvmi_log *log)
{
    char line[64];

    if (log->left_out == 0)
        return;
    snprintf(line, sizeof line, "%" PRIu64 " lines were left out here", log->left_out);
    log->left_out = 0;
    log->write(log->context, line);
}

void gvmi_log_tick(gvmi_log *log, int64_t now_ns)
{
    if (now_ns - log->since_ns < NS_PER_S)
        return;
    gvmi_log_end(log);
    log->since_ns = now_ns;
    log->count = 0;
}

void gvmi_log_print(gvmi_log *log, int64_t now_ns, const char *format, va_list args)
{
    char line[GVMI_LOG_LINE_BYTES];

    if (log->write == NULL)
        return;
    gvmi_log_tick(log, now_ns);
    if (log->count >= GVMI_LOG_LINES_A_SECOND) {
        log->left_out++;
        return;
    }
    log->count++;
    gvmi_text_vprint(line, sizeof line, format, args);
    make_printable(line);
    log->write(log->context, line);
}

void gvmi_server_log(gvm_server *server, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_log_print(&server->log, server->now_ns, format, args);
    va_end(args);
}
