/* Processes that do what the test tells them; see buffer_child.h. */
#include "tests/proc/buffer_child.h"
#include "base/address.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEDGER_LOCK_BYTE (1ll << 40) /* softgpu/ledger.c */
#define LEDGER_WAIT_MS 50 /* sections take microseconds; a stopped holder's does not end */
#define STOP_TRIES 100
#define CONTROL_FD 3
#define TIMEOUT_MS 20000 /* of sends and receives of shares */
#define ROLE "--buffer-child"

typedef struct command {
    uint32_t verb;
    uint64_t a, b;
    gvm_ipc_handle handle;
} command;

const char *buffer_verb_name(buffer_verb verb)
{
    static const char *const names[] = {
#define NAME(verb_) #verb_,
        BUFFER_VERBS(NAME)
#undef NAME
    };

    return names[verb];
}

/* ---- messages: whole packets, with a socket alongside if fd is not -1 */

static bool send_packet(int control, const void *bytes, size_t len, int fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } aside = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = &aside;
        message.msg_controllen = sizeof aside;
        aside.header = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&aside.header), &fd, sizeof fd);
    }
    return sendmsg(control, &message, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool receive_packet(int control, void *bytes, size_t len, int *fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } aside = {0};
    struct iovec part = {bytes, len};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &aside, .msg_controllen = sizeof aside};
    ssize_t received;

    do
        received = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (fd != NULL) {
        *fd = -1;
        if (message.msg_controllen >= CMSG_LEN(sizeof *fd) && aside.header.cmsg_type == SCM_RIGHTS)
            memcpy(fd, CMSG_DATA(&aside.header), sizeof *fd);
    }
    return received == (ssize_t)len;
}

/* ---- in the child */

static struct {
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;
    gvm_ipc *ipc;
    void *opened;
    int wire;
} own = {.wire = -1};

static gvm_status do_create(uint64_t bytes, uint64_t chunk_bytes)
{
    gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = chunk_bytes};

    return gvm_buffer_create(own.device, bytes, &options, &own.buffer);
}

static gvm_status do_import(uint64_t flags, uint64_t reserve_bytes)
{
    gvm_import_options options = {
        .struct_size = sizeof options, .flags = (uint32_t)flags, .reserve_bytes = reserve_bytes};

    return gvm_share_import(own.device, own.share, &options, &own.buffer);
}

static gvm_status do_move(uint64_t tier)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_buffer_get_info(own.buffer, &info);

    return status != GVM_OK ? status
                            : gvm_buffer_move(own.buffer, 0, info.reserve_bytes, (gvm_tier)tier);
}

static gvm_status replace_share(gvm_status status, gvm_share *fresh)
{
    if (status == GVM_OK) {
        gvm_share_destroy(own.share);
        own.share = fresh;
    }
    return status;
}

static gvm_status do_ipc_export(uint64_t bytes, gvm_ipc_handle *handle)
{
    gvm_ipc_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_ipc_export(own.buffer, 0, bytes, &own.ipc);

    if (status == GVM_OK)
        status = gvm_ipc_get_info(own.ipc, &info);
    if (status == GVM_OK)
        *handle = info.handle;
    return status;
}

static gvm_status obey(const command *c, answer *out)
{
    const uint64_t address = gvmi_address(gvm_buffer_address(own.buffer));
    gvm_share *fresh = NULL;
    gvm_status status;

    switch ((buffer_verb)c->verb) {
    case BUFFER_OPEN: return gvm_device_open((int32_t)c->a, &own.device);
    case BUFFER_CREATE: return do_create(c->a, c->b);
    case BUFFER_COMMIT: return gvm_buffer_commit(own.buffer, c->a, c->b);
    case BUFFER_DECOMMIT: return gvm_buffer_decommit(own.buffer, c->a, c->b);
    case BUFFER_SEAL: return gvm_buffer_seal(own.buffer);
    case BUFFER_MOVE: return do_move(c->a);
    case BUFFER_FILL:
        return gvm_kernel_fill_random_f64(own.device, gvmi_pointer(address), c->a / 8, 0, c->b, NULL);
    case BUFFER_SYNC: return gvm_device_synchronize(own.device);
    case BUFFER_CHECKSUM:
        return gvm_kernel_checksum(own.device, gvmi_pointer(address + c->a), c->b, NULL, &out->value);
    case BUFFER_EXPORT:
        status = gvm_share_export(own.buffer, c->a, c->b, &fresh);
        return replace_share(status, fresh);
    case BUFFER_CONNECT: return own.wire >= 0 ? GVM_OK : GVM_E_SYSTEM;
    case BUFFER_SEND: return gvm_share_send(own.share, own.wire, TIMEOUT_MS);
    case BUFFER_RECEIVE:
        status = gvm_share_receive(own.wire, TIMEOUT_MS, &fresh);
        return replace_share(status, fresh);
    case BUFFER_IMPORT: return do_import(c->a, c->b);
    case BUFFER_UPDATE: return gvm_buffer_update(own.buffer, own.share);
    case BUFFER_DESTROY:
        gvm_buffer_destroy(own.buffer);
        own.buffer = NULL;
        return GVM_OK;
    case BUFFER_ADDRESS: out->value = address; return GVM_OK;
    case BUFFER_IPC_EXPORT: return do_ipc_export(c->a, &out->handle);
    case BUFFER_IPC_OPEN: return gvm_ipc_open(own.device, &c->handle, &own.opened);
    case BUFFER_IPC_CHECKSUM:
        return gvm_kernel_checksum(own.device, own.opened, c->a, NULL, &out->value);
    case BUFFER_IPC_CLOSE: return gvm_ipc_close(own.device, own.opened);
    case BUFFER_VERB_COUNT: break;
    }
    return GVM_E_INVALID;
}

void buffer_child_main(int argc, char **argv)
{
    command c;
    int fd;

    if (argc < 2 || strcmp(argv[1], ROLE) != 0)
        return;
    while (receive_packet(CONTROL_FD, &c, sizeof c, &fd)) {
        answer out;
        gvm_error error;

        if (fd >= 0) {
            if (own.wire >= 0)
                close(own.wire);
            own.wire = fd;
        }
        memset(&out, 0, sizeof out);
        out.status = obey(&c, &out);
        gvm_error_last(&error);
        if (out.status != GVM_OK)
            snprintf(out.text, sizeof out.text, "%.199s", error.text);
        if (!send_packet(CONTROL_FD, &out, sizeof out, -1))
            break;
    }
    gvm_share_destroy(own.share);
    gvm_buffer_destroy(own.buffer);
    gvm_ipc_destroy(own.ipc);
    gvm_device_close(own.device);
    exit(0);
}

/* ---- in the test */

static void fatal(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    exit(2);
}

child buffer_child_start(void)
{
    int ends[2];
    child p = {0};

    fflush(stdout);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 || (p.pid = fork()) < 0)
        fatal("cannot start a child");
    if (p.pid == 0) {
        if (ends[1] == CONTROL_FD || dup2(ends[1], CONTROL_FD) < 0)
            _exit(126);
        execl("/proc/self/exe", "child", ROLE, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    p.control = ends[0];
    return p;
}

bool buffer_post(child *p, buffer_verb verb, uint64_t a, uint64_t b)
{
    const command c = {.verb = verb, .a = a, .b = b};

    if (p->pid == 0 || !send_packet(p->control, &c, sizeof c, -1))
        return false;
    p->waiting++;
    return true;
}

bool buffer_wait(child *p, answer *out)
{
    struct pollfd entry = {.events = POLLIN};

    memset(out, 0, sizeof *out);
    out->status = GVM_E_SYSTEM;
    snprintf(out->text, sizeof out->text, "the process is dead");
    if (p->pid == 0 || p->waiting == 0)
        return false;
    p->waiting--;
    entry.fd = p->control;
    while (poll(&entry, 1, ANSWER_LIMIT_MS) < 0)
        if (errno != EINTR)
            return false;
    if (entry.revents == 0) {
        snprintf(out->text, sizeof out->text, "the process hangs");
        child_kill(p);
        return false;
    }
    if (receive_packet(p->control, out, sizeof *out, NULL))
        return true;
    out->status = GVM_E_SYSTEM;
    return false;
}

answer buffer_do(child *p, buffer_verb verb, uint64_t a, uint64_t b)
{
    answer out = {.status = GVM_E_SYSTEM};

    if (buffer_post(p, verb, a, b))
        (void)buffer_wait(p, &out);
    return out;
}

answer puppet_open_ipc(child *p, const gvm_ipc_handle *handle)
{
    const command c = {.verb = BUFFER_IPC_OPEN, .handle = *handle};
    answer out = {.status = GVM_E_SYSTEM};

    if (p->pid != 0 && send_packet(p->control, &c, sizeof c, -1)) {
        p->waiting++;
        (void)buffer_wait(p, &out);
    }
    return out;
}

void buffer_connect(child *a, child *b)
{
    const command c = {.verb = BUFFER_CONNECT};
    child *both[2] = {a, b};
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        fatal("socketpair");
    for (int i = 0; i < 2; i++) {
        answer out;

        if (both[i]->pid != 0 && send_packet(both[i]->control, &c, sizeof c, ends[i])) {
            both[i]->waiting++;
            (void)buffer_wait(both[i], &out);
        }
        close(ends[i]);
    }
}

static int reap(child *p)
{
    int status = -1;

    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(p->control);
    *p = (child){0};
    return status;
}

void child_kill(child *p)
{
    if (p->pid == 0)
        return;
    kill(p->pid, SIGKILL);
    (void)reap(p);
}

int child_end(child *p)
{
    if (p->pid == 0)
        return -1;
    shutdown(p->control, SHUT_WR); /* answers that nobody reads do not keep it: the socket takes them */
    return reap(p);
}

/* ---- what tests of processes share */

gvm_device *proc_device;
bool proc_software;

#define MEMORY_BACK_MS 5000
#define GPU_SLACK_BYTES (32 * MIB) /* what a real driver keeps for itself, once */

static uint64_t free_before;
static unsigned results, failures;

static uint64_t free_bytes(void)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (gvm_device_get_info(proc_device, &info) != GVM_OK)
        fatal("cannot read the device's free memory");
    return info.free_bytes;
}

void proc_begin(uint64_t memory_bytes)
{
    gvm_driver_info info = {.struct_size = sizeof info};
    struct rlimit files;
    char machine[160];
    gvm_error error;

    snprintf(machine, sizeof machine, "devices=2,memory=%lluMiB,sms=2,instance=proc-%d",
             (unsigned long long)(memory_bytes / MIB), (int)getpid());
    setenv("GVMEM_SOFTGPU", machine, 0);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* hundreds of chunks are hundreds of fds */
        files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (gvm_device_open(0, &proc_device) != GVM_OK || gvm_driver_get_info(&info) != GVM_OK) {
        gvm_error_last(&error);
        printf("Bail out! no device: %s\n", error.text);
        exit(2);
    }
    proc_software = info.software;
}

void proc_note_memory(void)
{
    free_before = free_bytes();
}

bool proc_memory_is_back(void)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const uint64_t slack = proc_software ? 0 : GPU_SLACK_BYTES;
    uint64_t now = free_bytes();

    for (int ms = 0; ms < MEMORY_BACK_MS && now + slack < free_before; ms += 5) {
        nanosleep(&pause, NULL);
        now = free_bytes();
    }
    if (now + slack >= free_before)
        return true;
    printf("# %llu bytes of the device have not come back\n", (unsigned long long)(free_before - now));
    return false;
}

void proc_result(bool good, const char *name)
{
    printf("%sok %u - %s\n", good ? "" : "not ", ++results, name);
    fflush(stdout);
    failures += !good;
}

int proc_finish(void)
{
    printf("1..%u\n", results);
    gvm_device_close(proc_device);
    return failures == 0 ? 0 : 1;
}

bool proc_complain(const char *file, int line, const char *text)
{
    printf("# %s:%d: not so: %s\n", file, line, text);
    return false;
}

bool proc_expect(const char *file, int line, child *p, buffer_verb verb, uint64_t a, uint64_t b,
                 gvm_status wanted)
{
    answer out = buffer_do(p, verb, a, b);

    if (out.status == wanted)
        return true;
    printf("# %s:%d: %s answered %s, not %s: %s\n", file, line, buffer_verb_name(verb),
           gvm_status_name(out.status), gvm_status_name(wanted), out.text);
    return false;
}

uint64_t proc_random(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15; /* splitmix64 */

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t proc_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void proc_pause_us(uint64_t us)
{
    struct timespec pause = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

    while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
        ;
}

void proc_pause_ms(uint64_t ms)
{
    proc_pause_us(ms * 1000);
}

bool proc_become(uid_t uid, gid_t gid)
{
    return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0;
}

fd_counts proc_count_fds(pid_t pid, bool print)
{
    char path[64], what[300];
    fd_counts counts = {0, 0};
    struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const ssize_t len = readlinkat(dirfd(folder), entry->d_name, what, sizeof what - 1);
        bool memory;

        if (len < 0)
            continue;
        what[len] = '\0';
        memory = strncmp(what, "/memfd:gvmem-softgpu:", 21) == 0 ||
                 strncmp(what, "/dev/nvidia", 11) == 0;
        counts.memory += memory;
        counts.others += !memory;
        if (print)
            printf("#   %s %s\n", entry->d_name, what);
    }
    if (folder != NULL)
        closedir(folder);
    return counts;
}

/* Of the instance that GVMEM_SOFTGPU names; -1: there is none. */
static int open_ledger(void)
{
    const char *machine = getenv("GVMEM_SOFTGPU");
    const char *instance = machine != NULL ? strstr(machine, "instance=") : NULL;
    char path[200];

    if (instance == NULL)
        return -1;
    instance += strlen("instance=");
    snprintf(path, sizeof path, "/dev/shm/gvmem-softgpu-%.*s", (int)strcspn(instance, ","), instance);
    return open(path, O_RDWR | O_CLOEXEC);
}

bool proc_may_stay_stopped(void)
{
    const int fd = open_ledger();
    bool free_now = fd < 0;

    for (int ms = 0; ms < LEDGER_WAIT_MS && !free_now; ms++) {
        struct flock range = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LEDGER_LOCK_BYTE, .l_len = 1};

        free_now = fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK;
        if (!free_now)
            proc_pause_ms(1);
    }
    if (fd >= 0)
        close(fd);
    return free_now;
}

bool proc_stop(pid_t pid)
{
    siginfo_t info;

    for (int i = 0; i < STOP_TRIES; i++) {
        if (kill(pid, SIGSTOP) != 0)
            return false;
        while (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR)
            ;
        if (proc_may_stay_stopped())
            return true;
        kill(pid, SIGCONT);
        proc_pause_ms(1);
    }
    return false;
}
