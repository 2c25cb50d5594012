/* gvmem-keeper - the daemon: a keeper, until it is asked to end. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "tools/tool.h"

#define QUOTAS_MAX 1024
#define LISTEN_FDS_START 3        /* where a service manager puts the sockets it opened */
#define LOOK_SECONDS 1            /* between two looks at whether a device broke */
#define FREE_BYTES_MAX (8u << 20) /* of the C library's, before they go back to the system */

static const char usage[] =
    "usage: gvmem-keeper [OPTION...]\n"
    "\n"
    "Keeps named objects of device memory for other processes, in the foreground, until SIGTERM,\n"
    "SIGINT or SIGHUP comes.\n"
    "\n"
    "  -s, --socket PATH          where to listen; by default GVMEM_KEEPER, see gvmem(7)\n"
    "  -m, --socket-mode MODE     the socket's permission bits, octal; 0600\n"
    "  -d, --device N[,N...]      which devices to serve; all\n"
    "  -b, --device-budget SIZE   device memory to use, of each; 90 % of what is free now\n"
    "  -B, --host-budget SIZE     host memory to use; half of what is available now\n"
    "  -a, --host-ahead SIZE      host memory to make ahead of need; none\n"
    "  -k, --keep-free SIZE       most unused device memory to keep free; 256MiB\n"
    "  -l, --leave-free SIZE      device memory to leave to other programs; not looked at\n"
    "      --lend N[,N...]|none   which devices lend memory to objects of others; all\n"
    "      --restrict-others      other users open links and nothing else; they can make no objects\n"
    "  -q, --quota [USER=]SIZE    what objects of a user (a number), or of each other user, may take\n"
    "      --revoke-timeout SEC   cut off clients that do not answer for so long; 10\n"
    "      --lease-timeout SEC    cut off clients that keep a lease so long while others wait; never\n"
    "      --fence=copy|kill      what becomes of a process cut off while it could write to an object:\n"
    "                             the object is copied away from it, or it is killed, too; copy\n"
    "      --clients N            most clients at a time; 1024\n"
    "      --trace FILE           append every acquire, to replay with gvmem-bench policy\n"
    "      --ready-fd N           write the socket's path and a newline to this descriptor once\n"
    "                             clients can connect\n"
    "  -V, --version              the version\n"
    "  -h, --help                 this text\n"
    "\n"
    "A service manager may pass the listening socket (LISTEN_FDS), without -s and -m, and is notified\n"
    "when the keeper is ready (NOTIFY_SOCKET).\n";

typedef struct settings {
    gvm_keeper_options options;
    int32_t devices[GVM_KEEPER_DEVICES_MAX], lenders[GVM_KEEPER_DEVICES_MAX];
    gvm_quota quotas[QUOTAS_MAX];
    int ready_fd; /* -1: none */
    bool done;    /* --help or --version was all */
} settings;

enum {
    OPTION_REVOKE = 256,
    OPTION_LEASE,
    OPTION_FENCE,
    OPTION_CLIENTS,
    OPTION_LEND,
    OPTION_TRACE,
    OPTION_READY,
    OPTION_RESTRICT
};

static const struct option longs[] = {
    {"socket", required_argument, NULL, 's'},
    {"socket-mode", required_argument, NULL, 'm'},
    {"device", required_argument, NULL, 'd'},
    {"device-budget", required_argument, NULL, 'b'},
    {"host-budget", required_argument, NULL, 'B'},
    {"host-ahead", required_argument, NULL, 'a'},
    {"keep-free", required_argument, NULL, 'k'},
    {"leave-free", required_argument, NULL, 'l'},
    {"lend", required_argument, NULL, OPTION_LEND},
    {"quota", required_argument, NULL, 'q'},
    {"revoke-timeout", required_argument, NULL, OPTION_REVOKE},
    {"lease-timeout", required_argument, NULL, OPTION_LEASE},
    {"fence", required_argument, NULL, OPTION_FENCE},
    {"clients", required_argument, NULL, OPTION_CLIENTS},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"ready-fd", required_argument, NULL, OPTION_READY},
    {"restrict-others", no_argument, NULL, OPTION_RESTRICT},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* ---- options */

static bool parse_mode(const char *text, uint32_t *mode)
{
    char *end;
    const unsigned long value = strtoul(text, &end, 8);

    if (*text < '0' || *text > '7' || *end != '\0' || value == 0 || value > 0777) {
        tool_usage("", "--socket-mode takes an octal number from 1 to 777, not \"%s\"", text);
        return false;
    }
    *mode = (uint32_t)value;
    return true;
}

static bool parse_fence(const char *text, uint32_t *fence)
{
    if (strcmp(text, "copy") != 0 && strcmp(text, "kill") != 0) {
        tool_usage("", "--fence takes copy or kill, not \"%s\"", text);
        return false;
    }
    *fence = text[0] == 'k' ? GVM_FENCE_KILL : GVM_FENCE_COPY;
    return true;
}

/* others: what else the option takes, for the message. */
static bool parse_devices(const char *option, const char *others, const char *text,
                          int32_t devices[GVM_KEEPER_DEVICES_MAX], uint32_t *count)
{
    char *end;

    for (*count = 0;; text = end + 1) {
        const unsigned long value = strtoul(text, &end, 10);

        if (*text < '0' || *text > '9' || (*end != '\0' && *end != ',') || value > INT32_MAX ||
            *count == GVM_KEEPER_DEVICES_MAX) {
            tool_usage("", "%s takes %sup to %d numbers separated by commas, not \"%s\"", option,
                       others, GVM_KEEPER_DEVICES_MAX, optarg);
            return false;
        }
        devices[(*count)++] = (int32_t)value;
        if (*end == '\0')
            return true;
    }
}

static bool parse_lenders(const char *text, settings *s)
{
    s->options.lenders = s->lenders;
    s->options.lender_count = 0;
    return strcmp(text, "none") == 0 ||
           parse_devices("--lend", "none or ", text, s->lenders, &s->options.lender_count);
}

static bool parse_quota(const char *text, settings *s)
{
    const char *equals = strchr(text, '=');
    gvm_quota *quota = &s->quotas[s->options.quota_count];
    unsigned long uid;
    char *end;

    if (equals == NULL)
        return tool_parse_size("", "--quota", text, GVM_CHUNK_BYTES_MIN, &s->options.quota_bytes);
    uid = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || end != equals || uid >= UINT32_MAX) {
        tool_usage("", "--quota takes SIZE or USER=SIZE, with a user's number, not \"%s\"", text);
        return false;
    }
    if (s->options.quota_count == QUOTAS_MAX) {
        tool_usage("", "there are more than %d quotas", QUOTAS_MAX);
        return false;
    }
    quota->uid = (uint32_t)uid;
    s->options.quotas = s->quotas;
    s->options.quota_count++;
    if (!tool_parse_size("", "--quota", equals + 1, 0, &quota->quota_bytes))
        return false;
    if (quota->quota_bytes == 0)
        quota->quota_bytes = GVM_BYTES_NONE;
    return true;
}

static bool parse_seconds(const char *option, const char *text, uint32_t *out_ms)
{
    int seconds;

    if (!tool_parse_number("", option, text, 1, 1000000, &seconds))
        return false;
    *out_ms = (uint32_t)seconds * 1000;
    return true;
}

static bool parse_count(const char *option, const char *text, long least, long most, uint32_t *out)
{
    int value;

    if (!tool_parse_number("", option, text, least, most, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool show_text(const char *text, settings *s)
{
    s->done = true;
    fputs(text, stdout);
    return true;
}

static bool show_version(settings *s)
{
    const uint32_t version = gvm_version();
    char text[64];

    snprintf(text, sizeof text, "gvmem-keeper %u.%u.%u\n", version / 10000, version / 100 % 100,
             version % 100);
    return show_text(text, s);
}

static bool parse_option(int option, settings *s)
{
    gvm_keeper_options *o = &s->options;

    switch (option) {
    case 's': return o->path = optarg, true;
    case 'm': return parse_mode(optarg, &o->socket_mode);
    case 'd':
        o->devices = s->devices;
        return parse_devices("--device", "", optarg, s->devices, &o->device_count);
    case 'b':
        return tool_parse_size("", "--device-budget", optarg, GVM_CHUNK_BYTES_MIN,
                               &o->device_budget_bytes);
    case 'B':
        return tool_parse_size("", "--host-budget", optarg, GVM_CHUNK_BYTES_MIN, &o->host_budget_bytes);
    case 'a': return tool_parse_size("", "--host-ahead", optarg, 0, &o->host_ahead_bytes);
    case 'k': return tool_parse_size("", "--keep-free", optarg, 1, &o->device_keep_bytes);
    case 'l': return tool_parse_size("", "--leave-free", optarg, 0, &o->driver_free_bytes);
    case 'q': return parse_quota(optarg, s);
    case OPTION_REVOKE: return parse_seconds("--revoke-timeout", optarg, &o->revoke_limit_ms);
    case OPTION_LEASE: return parse_seconds("--lease-timeout", optarg, &o->lease_limit_ms);
    case OPTION_FENCE: return parse_fence(optarg, &o->fence);
    case OPTION_LEND: return parse_lenders(optarg, s);
    case OPTION_CLIENTS: return parse_count("--clients", optarg, 1, 1024, &o->clients_max);
    case OPTION_RESTRICT: return o->flags |= GVM_KEEPER_RESTRICT_OTHERS, true;
    case OPTION_TRACE: return o->trace_path = optarg, true;
    case OPTION_READY:
        return tool_parse_number("", "--ready-fd", optarg, 0, INT32_MAX, &s->ready_fd);
    case 'V': return show_version(s);
    case 'h': return show_text(usage, s);
    default: return false;
    }
}

static bool parse_options(int argc, char **argv, settings *s)
{
    int option;

    while (!s->done && (option = getopt_long(argc, argv, ":s:m:d:b:B:a:k:l:q:Vh", longs, NULL)) != -1) {
        if (option == '?' || option == ':')
            return tool_bad_option("", option, argv), false;
        if (!parse_option(option, s))
            return false;
    }
    if (!s->done && optind < argc)
        return tool_usage("", "\"%s\" is one argument too many", argv[optind]), false;
    if (s->options.path != NULL && s->options.path[0] == '\0')
        return tool_usage("", "--socket takes a path"), false;
    return true;
}

/* ---- service managers: sd_listen_fds(3), sd_notify(3) */

/* A listening socket that was opened for us, if there is one. */
static bool take_listen_fd(settings *s)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");

    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid())
        return true;
    if (strcmp(count, "1") != 0) {
        tool_error("LISTEN_FDS is %s: one socket is all that a keeper listens at", count);
        return false;
    }
    if (s->options.path != NULL) {
        tool_error("--socket and a socket from the service manager cannot go together");
        return false;
    }
    if (s->options.socket_mode != 0) {
        tool_error("--socket-mode and a socket from the service manager cannot go together: set "
                   "SocketMode= of the socket's unit");
        return false;
    }
    (void)fcntl(LISTEN_FDS_START, F_SETFD, FD_CLOEXEC);
    s->options.listen_fd = LISTEN_FDS_START;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    return true;
}

/* Notifies the service manager, if there is one: sd_notify(3). */
static void notify_service_manager(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t len = path != NULL ? strlen(path) : 0;
    int fd;

    if (len == 0 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') /* the abstract name space */
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

static bool write_all_bytes(int fd, const char *text, size_t len)
{
    while (len > 0) {
        const ssize_t written = write(fd, text, len);

        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            text += written;
            len -= (size_t)written;
        }
    }
    return true;
}

/* For scripts: where it listens, on a line of its own, and then the end of the file. */
static bool print_ready(int fd, const char *path)
{
    bool good;

    if (fd < 0)
        return true;
    good = write_all_bytes(fd, path, strlen(path)) && write_all_bytes(fd, "\n", 1);
    if (!good)
        tool_error("cannot write to descriptor %d: %s", fd, strerror(errno));
    if (fd > STDERR_FILENO)
        close(fd);
    return good;
}

/* ---- running */

static void print_start(gvm_keeper *server)
{
    gvm_driver_info driver = {.struct_size = sizeof driver};
    gvm_keeper_budget budget = {.struct_size = sizeof budget};
    char uuid[48], size[32];

    /* Where GVMEM_DRIVER does not ask for it. */
    if (gvm_driver_get_info(&driver) == GVM_OK && driver.software &&
        strncmp(driver.reason, "no GPU", 6) == 0)
        tool_error("the software GPU is used: %s", driver.reason);

    for (uint32_t i = 0; gvm_keeper_get_budget(server, i, &budget) == GVM_OK; i++)
        printf("device %d: %s, %s, budget %s\n", (int)budget.ordinal, budget.name,
               tool_uuid_text(budget.uuid, uuid), gvmi_size_text(budget.device_bytes, size));
    printf("host: budget %s\n", gvmi_size_text(budget.host_bytes, size));
    printf("listening at %s\n", gvm_keeper_path(server));
    (void)fflush(stdout); /* nobody may be reading: that is no reason not to serve */
}

/* A flood of objects or connections takes memory, which the C library keeps when it is over. */
static void trim_malloc(void)
{
    if (mallinfo2().fordblks > FREE_BYTES_MAX)
        (void)malloc_trim(FREE_BYTES_MAX / 2);
}

/* Until one of the signals comes, or a device breaks. */
static int wait_for_signal(gvm_keeper *server, const sigset_t *signals)
{
    const struct timespec pause = {.tv_sec = LOOK_SECONDS};

    for (;;) {
        if (sigtimedwait(signals, NULL, &pause) > 0)
            return TOOL_DONE;
        if (errno != EAGAIN && errno != EINTR)
            return tool_error("cannot wait for signals: %s", strerror(errno));
        if (gvm_keeper_check(server) != GVM_OK)
            return tool_fail("ending");
        trim_malloc();
    }
}

/* As the daemon's own messages, but never waiting for who reads them: clients would wait, too. */
static void print_line(void *context, const char *line)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    (void)context;
    if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0)
        tool_error("%s", line);
}

static int run_keeper(const settings *s, const sigset_t *signals)
{
    gvm_keeper *server;
    int code;

    if (gvm_keeper_start(&s->options, &server) != GVM_OK)
        return tool_fail("cannot start");
    print_start(server);
    notify_service_manager("READY=1\nSTATUS=serving");
    code = print_ready(s->ready_fd, gvm_keeper_path(server)) ? wait_for_signal(server, signals)
                                                             : TOOL_FAILED;
    notify_service_manager("STOPPING=1");
    gvm_keeper_stop(server);
    return code;
}

/* nohup has it ignored, which a blocked signal would not be. */
static bool is_ignored(int signal)
{
    struct sigaction action;

    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int main(int argc, char **argv)
{
    static settings s;
    sigset_t signals;

    tool_program = "gvmem-keeper";
    if (!tool_fill_standard_files())
        return TOOL_FAILED;
    s.options = gvm_keeper_options_init();
    s.options.log = print_line;
    s.ready_fd = -1;
    if (!parse_options(argc, argv, &s))
        return TOOL_USAGE;
    if (s.done)
        return tool_flush(stdout, "standard output") ? TOOL_DONE : TOOL_FAILED;
    if (!take_listen_fd(&s))
        return TOOL_FAILED;
    if (s.ready_fd >= 0 && fcntl(s.ready_fd, F_GETFD) < 0)
        return tool_usage("", "--ready-fd: descriptor %d is not open", s.ready_fd);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (!is_ignored(SIGHUP))
        sigaddset(&signals, SIGHUP);        /* nothing can be read anew: it ends, in order */
    sigprocmask(SIG_BLOCK, &signals, NULL); /* from before the keeper's threads on */
    return run_keeper(&s, &signals);
}
