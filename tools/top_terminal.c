/* The terminal while gvmem top runs on it.
 *
 * What signal handlers use is set before they are installed; tcsetattr() and write() may be called
 * there (signal-safety(7)). The handlers run in whichever thread the signal meets, so they wake the
 * reader through an eventfd instead of counting on EINTR.
 */
#include "tools/top_terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/tool.h"

#define ENTER "\033[?1049h\033[?25l\033[2J" /* other screen, no cursor, clear */
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static struct termios before, raw;
static bool has_keys;               /* standard input is a terminal; before and raw are valid */
static volatile sig_atomic_t taken; /* the terminal is ours at the moment */
static int wake_fd = -1;

static const int ending_signals[] = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGABRT,
                                     SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGALRM};

bool terminal_there(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term != NULL && *term != '\0' && strcmp(term, "dumb") != 0;
}

/* False: it is gone. */
static bool write_terminal(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDOUT_FILENO, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT};

            poll(&room, 1, 1000);
            continue;
        }
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

static void take_screen(void)
{
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    taken = 1;
    write_terminal(ENTER, sizeof ENTER - 1);
}

static void restore_screen(void)
{
    if (!taken)
        return;
    taken = 0;
    write_terminal(LEAVE, sizeof LEAVE - 1);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void write_wake(void)
{
    const uint64_t one = 1;
    ssize_t n = write(wake_fd, &one, sizeof one);

    (void)n; /* full: it is awake already */
}

static void on_end(int signal_number)
{
    restore_screen();
    /* SA_RESETHAND has put the default back: the process ends of the signal, as its parent expects */
    raise(signal_number);
}

static void on_change(int signal_number)
{
    const int errno_before = errno;

    (void)signal_number;
    write_wake();
    errno = errno_before;
}

static void on_stop(int signal_number)
{
    const int errno_before = errno;

    (void)signal_number;
    restore_screen();
    raise(SIGSTOP);
    take_screen();
    write_wake();
    errno = errno_before;
}

static void set_handler(int signal_number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    sigfillset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

static void handle_signals(void)
{
    struct sigaction now;

    /* One that is ignored (nohup) stays so. */
    for (size_t i = 0; i < sizeof ending_signals / sizeof ending_signals[0]; i++)
        if (sigaction(ending_signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            set_handler(ending_signals[i], on_end, (int)SA_RESETHAND);
    set_handler(SIGWINCH, on_change, SA_RESTART);
    if (sigaction(SIGTSTP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        set_handler(SIGTSTP, on_stop, SA_RESTART);
}

bool terminal_enter(void)
{
    if (wake_fd < 0) {
        wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (wake_fd < 0)
            return tool_error("cannot make an eventfd: %s", strerror(errno)), false;
        has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO); /* ISIG stays: Ctrl-C and Ctrl-Z are signals */
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        atexit(terminal_leave);
        handle_signals();
    }
    take_screen();
    return true;
}

void terminal_leave(void)
{
    restore_screen();
}

void terminal_size(unsigned *columns, unsigned *lines)
{
    struct winsize size;
    bool told = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;

    *columns = told && size.ws_col > 0 ? size.ws_col : 80;
    *lines = told && size.ws_row > 0 ? size.ws_row : 24;
}

bool terminal_draw(const char *text, size_t len)
{
    char *buffer = NULL;
    size_t buffer_len = 0;
    FILE *out = open_memstream(&buffer, &buffer_len);
    bool good;

    if (out == NULL)
        return true; /* out of memory: the screen stays as it is */
    /* Each line is cleared before it is written: behind a full line, clearing would take away its
     * last character. */
    fputs("\033[H\033[2K", out);
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\n')
            fputc(text[i], out);
        else if (i + 1 < len)
            fputs("\r\n\033[2K", out);
    }
    fputs("\033[0m", out);
    good = fclose(out) != 0 || write_terminal(buffer, buffer_len);
    free(buffer);
    return good;
}

int terminal_wait(int timeout_ms)
{
    struct pollfd fds[] = {{.fd = wake_fd, .events = POLLIN},
                           {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    int ready = poll(fds, 2, timeout_ms);
    unsigned char key;
    uint64_t count;

    if (ready < 0)
        return errno == EINTR ? TERMINAL_CHANGED : TERMINAL_GONE;
    if (ready == 0)
        return TERMINAL_TIME;
    if (fds[0].revents != 0 && read(wake_fd, &count, sizeof count) == sizeof count)
        return TERMINAL_CHANGED;
    if (fds[1].revents != 0) {
        ssize_t n = read(STDIN_FILENO, &key, 1);

        return n == 1 ? key : n < 0 && errno == EINTR ? TERMINAL_CHANGED : TERMINAL_GONE;
    }
    return TERMINAL_CHANGED;
}
