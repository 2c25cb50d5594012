/* tools/top_terminal.h - the terminal while gvmem top runs on it: keys without Enter, the screen
 * besides the one that is there, and all as it was at the end, whatever ends the process.
 *
 * One per process. Signals that end the process restore the terminal first; Ctrl-Z does, and takes
 * it again when the process goes on.
 */
#ifndef TOOLS_TOP_TERMINAL_H
#define TOOLS_TOP_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* Standard output is a terminal that understands more than text. */
bool terminal_there(void);

/* Keys come from standard input if that is a terminal; otherwise there are none. Ends by itself at
 * exit(). False, with a message: it is not available. */
bool terminal_enter(void);
void terminal_leave(void);

/* 24 lines of 80 columns where it is not known. */
void terminal_size(unsigned *columns, unsigned *lines);

/* Shows as many lines of text as the terminal has; the last one's end is left out, so that nothing
 * scrolls. False: the terminal is gone. */
bool terminal_draw(const char *text, size_t len);

enum { TERMINAL_TIME = 0, TERMINAL_CHANGED = -1, TERMINAL_GONE = -2 };

/* A key, TERMINAL_TIME when timeout_ms have passed, TERMINAL_CHANGED when the screen is to be drawn
 * again (another size, or the process went on), TERMINAL_GONE. */
int terminal_wait(int timeout_ms);

#endif
