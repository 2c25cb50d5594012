/* gvmem keeper start and stop: the daemon's process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/keeper.h"

#define DAEMON "gvmem-keeper"
#define READY_MS 60000 /* a driver with many devices takes seconds to start */
#define CONNECT_S 10   /* as gvm_client_connect() waits */

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0u);
}

/* The daemon beside this program; otherwise its bare name, which is looked up in PATH. */
static const char *find_daemon(void)
{
    static char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash;

    if (len <= 0)
        return DAEMON;
    path[len] = '\0';
    slash = strrchr(path, '/');
    if (slash == NULL || (size_t)(slash + 1 - path) + sizeof DAEMON > sizeof path)
        return DAEMON;
    strcpy(slash + 1, DAEMON);
    return access(path, X_OK) == 0 ? path : DAEMON;
}

/* ---- start */

typedef struct launch {
    pid_t pid;
    int ready_fd;   /* read end; the daemon writes where it listens when clients can connect */
    int stderr_fd;  /* read end: what it says until then */
    char said[256]; /* what came over ready_fd */
    size_t said_len;
} launch;

/* The daemon's arguments: its own name, --ready-fd N, --socket PATH, what the user gave. NULL: out
 * of memory. */
static char **daemon_arguments(int ready_fd, const char *socket, int argc, char **argv,
                               char ready_text[16])
{
    char **list = calloc((size_t)argc + 6, sizeof *list);
    size_t n = 0;

    if (list == NULL)
        return NULL;
    snprintf(ready_text, 16, "%d", ready_fd);
    list[n++] = (char *)DAEMON;
    if (ready_fd >= 0) {
        list[n++] = (char *)"--ready-fd";
        list[n++] = ready_text;
    }
    if (socket != NULL) {
        list[n++] = (char *)"--socket";
        list[n++] = (char *)socket;
    }
    for (int i = 0; i < argc; i++)
        list[n++] = argv[i];
    return list;
}

/* In the child. Its own session, so that the terminal's end is not its end. */
static void become_daemon(int ready_fd, int stderr_fd, char **arguments)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    setsid();
    /* Inherited: nobody reads its stderr once it is ready. */
    signal(SIGPIPE, SIG_IGN);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0 ||
        dup2(stderr_fd, STDERR_FILENO) < 0 || fcntl(ready_fd, F_SETFD, 0) != 0)
        _exit(127);
    /* A process that waits for the end of a pipe that the caller has open must not wait for the keeper. On
     * kernels before 5.9 the daemon keeps them. */
    if (ready_fd > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)ready_fd - 1, 0);
    close_range((unsigned)ready_fd + 1, ~0u, 0);
    execvp(find_daemon(), arguments);
    dprintf(STDERR_FILENO, "gvmem: cannot run %s: %s\n", DAEMON, strerror(errno));
    _exit(127);
}

static bool launch_daemon(launch *l, const char *socket, int argc, char **argv)
{
    int ready[2] = {-1, -1}, said[2] = {-1, -1};
    char ready_text[16], **arguments = NULL;
    bool good = false;

    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0) {
        tool_error("cannot make a pipe: %s", strerror(errno));
        goto done;
    }
    arguments = daemon_arguments(ready[1], socket, argc, argv, ready_text);
    if (arguments == NULL) {
        tool_error("out of memory");
        goto done;
    }
    l->pid = fork();
    if (l->pid == 0)
        become_daemon(ready[1], said[1], arguments);
    if (l->pid < 0) {
        tool_error("cannot start a process: %s", strerror(errno));
        goto done;
    }
    l->ready_fd = ready[0];
    l->stderr_fd = said[0];
    ready[0] = said[0] = -1;
    good = true;
done:
    for (int i = 0; i < 2; i++) {
        if (ready[i] >= 0)
            close(ready[i]);
        if (said[i] >= 0)
            close(said[i]);
    }
    free(arguments);
    return good;
}

/* Passes on what the daemon says. False: it says nothing more. */
static bool relay_output(int fd)
{
    char text[1024];
    ssize_t n = read(fd, text, sizeof text);

    if (n > 0)
        fwrite(text, 1, (size_t)n, stderr);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* False: the pipe is closed. */
static bool read_daemon_output(launch *l)
{
    ssize_t n;

    if (l->said_len >= sizeof l->said - 1)
        return false;
    n = read(l->ready_fd, l->said + l->said_len, sizeof l->said - 1 - l->said_len);
    if (n > 0)
        l->said_len += (size_t)n;
    l->said[l->said_len] = '\0';
    return n > 0 || (n < 0 && errno == EINTR);
}

typedef enum outcome { OUTCOME_READY, OUTCOME_ENDED, OUTCOME_SILENT } outcome;

/* Until the daemon is ready, both pipes are closed, or it takes too long. */
static outcome await_ready(launch *l)
{
    const double until_us = tool_now_us() + READY_MS * 1e3;
    struct pollfd fds[] = {{.fd = l->ready_fd, .events = POLLIN},
                           {.fd = l->stderr_fd, .events = POLLIN}};

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        double left = (until_us - tool_now_us()) / 1e3;

        if (left <= 0)
            return OUTCOME_SILENT;
        if (poll(fds, 2, (int)left + 1) < 0 && errno != EINTR)
            return OUTCOME_SILENT;
        if (fds[1].revents != 0 && !relay_output(l->stderr_fd))
            fds[1].fd = -1;
        if (fds[0].revents != 0 && !read_daemon_output(l))
            fds[0].fd = -1;
        fds[0].revents = fds[1].revents = 0;
        if (memchr(l->said, '\n', l->said_len) != NULL)
            return OUTCOME_READY;
    }
    return OUTCOME_ENDED;
}

#define END_MS 5000 /* from closing its pipes to its end */

static int print_daemon_end(const launch *l)
{
    struct pollfd gone = {.fd = open_pidfd(l->pid), .events = POLLIN};
    int status = 0;
    pid_t ended;

    poll(&gone, 1, END_MS);
    if (gone.fd >= 0)
        close(gone.fd);
    ended = waitpid(l->pid, &status, WNOHANG);
    if (ended != l->pid)
        return tool_error("%s runs as process %d, but does not say that it is ready", DAEMON,
                          (int)l->pid);
    if (WIFSIGNALED(status))
        return tool_error("%s was ended by signal %d", DAEMON, WTERMSIG(status));
    if (WEXITSTATUS(status) == 0)
        return tool_error("%s ended before it was ready", DAEMON);
    /* It has said why. A wrong command line of it is one of this program, too. */
    return WEXITSTATUS(status) == TOOL_USAGE ? TOOL_USAGE : TOOL_FAILED;
}

static bool is_question(const char *argument)
{
    static const char *const questions[] = {"-h", "--help", "-V", "--version"};

    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++)
        if (strcmp(argument, questions[i]) == 0)
            return true;
    return false;
}

/* The daemon in place of this program, to print its options or version. */
static int exec_question(int argc, char **argv)
{
    char ready_text[16], **arguments = daemon_arguments(-1, NULL, argc, argv, ready_text);

    if (arguments == NULL)
        return tool_error("out of memory");
    execvp(find_daemon(), arguments);
    free(arguments);
    return tool_error("cannot run %s: %s", DAEMON, strerror(errno));
}

int keeper_start(const char *socket, int argc, char **argv)
{
    launch l = {.ready_fd = -1, .stderr_fd = -1};
    int code = TOOL_FAILED;

    for (int i = 0; i < argc; i++)
        if (is_question(argv[i]))
            return exec_question(argc, argv);
    if (!tool_fill_standard_files() || !launch_daemon(&l, socket, argc, argv))
        return TOOL_FAILED;
    switch (await_ready(&l)) {
    case OUTCOME_READY:
        fputs(l.said, stdout);
        code = tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
        break;
    case OUTCOME_ENDED: code = print_daemon_end(&l); break;
    case OUTCOME_SILENT:
        kill(l.pid, SIGTERM);
        code = tool_error("%s was not ready within %d seconds and was asked to end", DAEMON,
                          READY_MS / 1000);
        break;
    }
    close(l.ready_fd);
    close(l.stderr_fd);
    return code;
}

/* ---- stop */

/* One that does not answer, or of another release, cannot be asked which process it is. */
static int fail_to_connect(const struct ucred *listener)
{
    gvm_error error;

    gvm_error_last(&error);
    (void)tool_fail("no connection to a keeper");
    if ((error.status != GVM_E_VERSION && error.status != GVM_E_TIMEOUT) || listener->pid <= 0)
        return TOOL_FAILED; /* 0: it is in another container */
    if (listener->pid == 1)
        return tool_error(
            "the service manager listens there: systemctl stop gvmem-keeper.socket gvmem-keeper.service");
    return tool_error("process %d of user %u listens there: end it with kill if it is the keeper",
                      (int)listener->pid, (unsigned)listener->uid);
}

/* *uid: the user who listens there. It says which process its keeper is, and can name any. */
static gvm_client *connect_to(const char *path, uid_t *uid)
{
    const struct timeval patience = {.tv_sec = CONNECT_S};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred listener = {0};
    socklen_t bytes = sizeof listener;
    gvm_client *keeper = NULL;
    int fd;

    if (strlen(path) >= sizeof address.sun_path)
        return tool_error("the path of the keeper's socket is too long: %s", path), NULL;
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes) != 0)
        tool_error("no connection to a keeper at %s: %s", path, strerror(errno));
    else if (gvm_client_adopt(fd, &keeper) != GVM_OK)
        (void)fail_to_connect(&listener);
    if (keeper == NULL && fd >= 0)
        close(fd);
    *uid = listener.uid;
    return keeper;
}

/* At the default path, without -s and GVMEM_KEEPER, the library takes root's keepers and the user's own alone. */
static gvm_client *connect_to_stop(const char *path, uid_t *uid)
{
    if (path == NULL)
        path = getenv("GVMEM_KEEPER");
    *uid = 0;
    return path == NULL || path[0] == '\0' ? keeper_connect(path) : connect_to(path, uid);
}

/* Whether the user may end it: as root, who listens for service managers, too, or as its own. */
static bool may_end(uid_t uid, pid_t pid)
{
    char path[64];
    struct stat found;

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return uid == 0 || (stat(path, &found) == 0 && found.st_uid == uid);
}

/* The process that answers, or 0 with a complaint. */
static pid_t keeper_pid(gvm_client **keeper)
{
    snapshot_copy *snapshot;
    uint64_t pid;

    if (keeper_ask(keeper, false, &snapshot) != GVM_OK)
        return tool_fail("cannot ask the keeper"), 0;
    pid = snapshot->keeper.pid;
    snapshot_free(snapshot);
    if (pid == 0 || pid > INT_MAX)
        return tool_error("the keeper's process cannot be identified"), 0;
    return (pid_t)pid;
}

/* Whether the process is the daemon: not a program that runs a keeper among other things, and not
 * one that has that number here, while the keeper lives in another container. */
static bool is_daemon(pid_t pid, char name[32])
{
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    strcpy(name, "?");
    file = fopen(path, "re");
    if (file != NULL && fgets(name, 32, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    for (char *c = name; *c != '\0'; c++) /* it is another's, and goes to a terminal */
        if (*c < ' ' || *c > '~')
            *c = '?';
    if (file != NULL)
        fclose(file);
    return strcmp(name, DAEMON) == 0;
}

static int end_process(const keeper_options *o, pid_t pid, int pidfd)
{
    const double until_us = tool_now_us() + o->timeout_s * 1e6;
    struct pollfd gone = {.fd = pidfd, .events = POLLIN};

    if (syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0u) != 0)
        return errno == ESRCH ? TOOL_DONE
                              : tool_error("cannot end process %d: %s", (int)pid, strerror(errno));
    for (;;) {
        double left = (until_us - tool_now_us()) / 1e3;
        int ready = poll(&gone, 1, left > 0 ? (int)left + 1 : 0);

        if (ready > 0)
            return TOOL_DONE;
        if (ready == 0 && left <= 0)
            return tool_error("process %d did not end within %d seconds", (int)pid, o->timeout_s);
        if (ready < 0 && errno != EINTR)
            return tool_error("cannot wait for process %d: %s", (int)pid, strerror(errno));
    }
}

int keeper_stop(const keeper_options *o)
{
    uid_t uid;
    gvm_client *keeper = connect_to_stop(o->socket, &uid);
    pid_t pid = keeper != NULL ? keeper_pid(&keeper) : 0;
    int code = TOOL_FAILED, pidfd = -1;
    char name[32];

    if (pid == 0)
        goto done;
    pidfd = open_pidfd(pid);
    if (pidfd < 0) {
        tool_error("cannot reach process %d, the keeper: %s", (int)pid, strerror(errno));
        goto done;
    }
    /* It answers still: so the number was the keeper's when the pidfd was made, and no other's. */
    if (keeper_pid(&keeper) != pid)
        goto done;
    if (!may_end(uid, pid)) {
        tool_error("user %u listens there, and says that process %d is the keeper, which is another user's: end it "
                   "yourself if it is",
                   (unsigned)uid, (int)pid);
        goto done;
    }
    if (!o->forced && !is_daemon(pid, name)) {
        tool_error("the keeper is part of process %d (%s), not of " DAEMON
                   "; end that program, or use --force",
                   (int)pid, name);
        goto done;
    }
    /* A connection would keep it waiting until it is closed. */
    gvm_client_close(keeper);
    keeper = NULL;
    code = end_process(o, pid, pidfd);
done:
    if (pidfd >= 0)
        close(pidfd);
    gvm_client_close(keeper);
    return code;
}
