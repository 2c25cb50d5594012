/* keeper/server/log.h - lines for the program that runs a keeper.
 *
 * What a keeper decides by itself, and nobody else learns of, is one line. At most GVMI_LOG_LINES_A_SECOND
 * lines a second are written, and then one that tells how many were left out, as clients decide how
 * often there is something to tell.
 *
 * Threads: one at a time.
 */
#ifndef GVMI_KEEPER_LOG_H
#define GVMI_KEEPER_LOG_H

#include <stdarg.h>
#include <stdint.h>

#define GVMI_LOG_LINES_A_SECOND 20u
#define GVMI_LOG_LINE_BYTES 384 /* with the NUL; longer ones are shortened */

typedef struct gvmi_log {
    void (*write)(void *context, const char *line); /* NULL: nobody reads */
    void *context;
    int64_t since_ns; /* when the second began in which `count` lines were written */
    uint32_t count;
    uint64_t left_out;
} gvmi_log;

/* A line, at a time of the monotonic clock. What is not printable in it becomes '?': parts of it may
 * come from clients. */
void gvmi_log_print(gvmi_log *log, int64_t now_ns, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Tells how many lines were left out, once the second in which that was is over. */
void gvmi_log_tick(gvmi_log *log, int64_t now_ns);

/* Likewise, at once: nothing more will come. */
void gvmi_log_end(gvmi_log *log);

#endif
