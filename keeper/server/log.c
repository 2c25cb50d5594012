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

static void log_left_out_lines(gvmi_log *log, const gvmi_log_user *user, const char *who)
{
    char line[96];

    if (user->left_out[GVMI_LOG_REFUSED] > 0) {
        snprintf(line, sizeof line, "%" PRIu64 " more clients of %s were refused",
                 user->left_out[GVMI_LOG_REFUSED], who);
        log->write(log->context, line);
    }
    if (user->left_out[GVMI_LOG_CUT] > 0) {
        snprintf(line, sizeof line, "%" PRIu64 " more clients of %s were cut off",
                 user->left_out[GVMI_LOG_CUT], who);
        log->write(log->context, line);
    }
    if (user->left_out[GVMI_LOG_KEEPER] > 0) {
        snprintf(line, sizeof line, "%" PRIu64 " lines were left out here",
                 user->left_out[GVMI_LOG_KEEPER]);
        log->write(log->context, line);
    }
}

void gvmi_log_end(gvmi_log *log)
{
    char who[32];

    for (uint32_t i = 0; i < log->user_count; i++) {
        snprintf(who, sizeof who, "user %" PRIu32, log->users[i].uid);
        log_left_out_lines(log, &log->users[i], who);
    }
    log_left_out_lines(log, &log->others, "other users");
    log->user_count = 0;
    log->others = (gvmi_log_user){0};
}

void gvmi_log_tick(gvmi_log *log, int64_t now_ns)
{
    if (now_ns - log->since_ns < NS_PER_S)
        return;
    gvmi_log_end(log);
    log->since_ns = now_ns;
}

static gvmi_log_user *user_of(gvmi_log *log, uint32_t uid)
{
    for (uint32_t i = 0; i < log->user_count; i++)
        if (log->users[i].uid == uid)
            return &log->users[i];
    if (log->user_count == GVMI_LOG_USERS)
        return &log->others;
    log->users[log->user_count] = (gvmi_log_user){.uid = uid};
    return &log->users[log->user_count++];
}

/* Whether one more line of that kind is to be written. */
static bool is_wanted(gvmi_log *log, gvmi_log_kind kind, uint32_t uid)
{
    const uint32_t most = kind == GVMI_LOG_REFUSED ? 1 : GVMI_LOG_LINES_A_SECOND;
    gvmi_log_user *user = kind == GVMI_LOG_KEEPER ? &log->others : NULL;

    if (kind == GVMI_LOG_ALWAYS)
        return true;
    if (user == NULL)
        user = user_of(log, uid);
    if (user->counts[kind] >= most) {
        user->left_out[kind]++;
        return false;
    }
    user->counts[kind]++;
    return true;
}

void gvmi_log_print(gvmi_log *log, int64_t now_ns, gvmi_log_kind kind, uint32_t uid,
                    const char *format, va_list args)
{
    char line[GVMI_LOG_LINE_BYTES];

    if (log->write == NULL)
        return;
    gvmi_log_tick(log, now_ns);
    if (!is_wanted(log, kind, uid))
        return;
    gvmi_text_vprint(line, sizeof line, format, args);
    make_printable(line);
    log->write(log->context, line);
}

void gvmi_server_log(gvm_keeper *server, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_log_print(&server->log, server->now_ns, GVMI_LOG_KEEPER, 0, format, args);
    va_end(args);
}

void gvmi_server_log_user(gvm_keeper *server, gvmi_log_kind kind, uint32_t uid, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    gvmi_log_print(&server->log, server->now_ns, kind, uid, format, args);
    va_end(args);
}
