/* keeper/server/log.h - lines for the program that runs a keeper.
 *
 * What a keeper decides by itself, and reports to no client, is one line. Clients decide how often
 * there is something to log, so lines are limited by kind and by user: whatever one user does,
 * lines about others are written. The number left out is logged once a second.
 *
 * Threads: one at a time.
 */
#ifndef GVMI_KEEPER_SERVER_LOG_H
#define GVMI_KEEPER_SERVER_LOG_H

#include <stdarg.h>
#include <stdint.h>

#define GVMI_LOG_LINES_A_SECOND 20u /* of those that are limited, but for REFUSED */
#define GVMI_LOG_USERS 256u /* logged one by one in a second; further ones together are like one */
#define GVMI_LOG_LINE_BYTES 384 /* with the NUL; longer ones are shortened */

typedef enum gvmi_log_kind {
    GVMI_LOG_REFUSED, /* a connection: one line a second for each user */
    GVMI_LOG_CUT,     /* a client was cut off: so many a second for each user */
    GVMI_LOG_KEEPER,  /* the keeper's own: so many a second */
    GVMI_LOG_ALWAYS,  /* what only an administrator can put right: all */
} gvmi_log_kind;

/* Lines of this second about a user, by kind; KEEPER: nobody's. */
typedef struct gvmi_log_user {
    uint32_t uid;
    uint32_t counts[GVMI_LOG_ALWAYS];
    uint64_t left_out[GVMI_LOG_ALWAYS];
} gvmi_log_user;

typedef struct gvmi_log {
    void (*write)(void *context, const char *line); /* NULL: nobody reads */
    void *context;
    int64_t since_ns; /* when this second began */
    uint32_t user_count;
    gvmi_log_user users[GVMI_LOG_USERS], others;
} gvmi_log;

/* A line about what a user's client did, at a time of the monotonic clock. What is not printable in it
 * becomes '?': parts of it may come from clients. */
void gvmi_log_print(gvmi_log *log, int64_t now_ns, gvmi_log_kind kind, uint32_t uid,
                    const char *format, va_list args) __attribute__((format(printf, 5, 0)));

/* Tells how many lines were left out, once the second in which that was is over. */
void gvmi_log_tick(gvmi_log *log, int64_t now_ns);

/* Likewise, at once: nothing more will come. */
void gvmi_log_end(gvmi_log *log);

#endif
