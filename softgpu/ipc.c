/* CUDA IPC: cuMemAlloc memory of another process, by a handle of 64 bytes that may travel by any
 * means.
 *
 * A handle cannot carry a file descriptor, so the exporter serves them: the first cuIpcGetMemHandle
 * starts a thread on a datagram socket with an abstract name that the handle contains. A datagram
 * is one question and one answer, so a process that stalls, ends or sends false data delays nobody,
 * and nothing is left behind when the exporter ends. The kernel attaches the sender's identity:
 * only root and the exporter's own user are answered.
 *
 * What the opener gets is the whole allocation, at its base address, wherever in it the exporter's
 * pointer was, as with the real driver. The memory stays until it is closed, even if the exporter
 * frees it or ends.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "softgpu/space.h"

#define MAGIC 0x31637069u /* "ipc1" */
#define ANSWER_TIMEOUT_MS 5000

/* What the 64 bytes hold. */
typedef struct ipc_handle {
    uint32_t magic;
    uint32_t reserved;
    uint64_t server; /* who to ask: names the exporter's socket */
    uint64_t id;     /* of the charge */
    uint64_t size_bytes;
    uint8_t zero[32];
} ipc_handle;

_Static_assert(sizeof(ipc_handle) == CU_IPC_HANDLE_SIZE, "an IPC handle has 64 bytes");

typedef struct ipc_question {
    uint32_t magic;
    uint32_t reserved;
    uint64_t id;
} ipc_question;

/* Comes with the file descriptor if found. */
typedef struct ipc_answer {
    uint32_t magic;
    uint32_t found;
    uint64_t id;
} ipc_answer;

/* Room for the ancillary data of a message. */
typedef union ipc_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(4 * sizeof(int))];
} ipc_control;

static pthread_mutex_t server_lock = PTHREAD_MUTEX_INITIALIZER;
static int server_fd = -1;
static uint64_t server_name; /* 0: no server yet */

/* ---- sockets */

static socklen_t server_address(uint64_t name, struct sockaddr_un *address)
{
    const soft_config *config;
    int len;
    soft_config_get(&config, NULL);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    len = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                   "gvmem-softgpu:%s:%016" PRIx64, config->instance, name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* Sending gives up too: the queue of a stopped exporter may be full. */
static int open_socket(void)
{
    const int on = 1;
    const struct timeval send_limit = {.tv_sec = ANSWER_TIMEOUT_MS / 1000};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
                    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_limit, sizeof send_limit) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Descriptors are not passed by base/fds.h, as libgvmem passes them: this is a library of its own, which
 * takes the place of the driver, and messages here have an address and credentials. */

/* Receives one message: its bytes, who sent it, and at most one file descriptor (-1 if none; more
 * than one are closed). Returns the number of bytes, -1 on failure. */
static ssize_t receive_fd_message(int fd, void *data, size_t data_bytes, struct sockaddr_un *from,
                                  socklen_t *from_bytes, struct ucred *sender, int *passed_fd)
{
    ipc_control control;
    struct iovec part = {data, data_bytes};
    struct msghdr message = {
        .msg_name = from,
        .msg_namelen = from ? sizeof *from : 0,
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof control,
    };
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    *passed_fd = -1;
    *sender = (struct ucred){.uid = (uid_t)-1};
    if (got < 0)
        return -1;
    if (from_bytes)
        *from_bytes = message.msg_namelen;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS)
            memcpy(sender, CMSG_DATA(c), sizeof *sender);
        for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
            if (*passed_fd < 0)
                *passed_fd = one;
            else
                close(one);
        }
    }
    return got;
}

/* Sends an answer, with a file descriptor if it is not -1. Never waits. */
static void send_answer(int fd, const ipc_answer *answer, int passed_fd,
                        const struct sockaddr_un *to, socklen_t to_bytes)
{
    ipc_control control = {0};
    struct iovec part = {(void *)(uintptr_t)answer, sizeof *answer};
    struct msghdr message = {
        .msg_name = (void *)(uintptr_t)to,
        .msg_namelen = to_bytes,
        .msg_iov = &part,
        .msg_iovlen = 1,
    };
    if (passed_fd >= 0) {
        struct cmsghdr *c;
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof passed_fd);
        c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof passed_fd);
        memcpy(CMSG_DATA(c), &passed_fd, sizeof passed_fd);
    }
    (void)!sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- the exporter */

/* The file of an allocation that a handle was given out for, -1 if there is none (any more). */
static int exported_fd(uint64_t id)
{
    const soft_range *range;
    int fd = -1;
    soft_space_lock_read();
    for (size_t i = 0; (range = soft_range_nth_locked(i)); i++)
        if (range->exported && !range->ending && range->backing.charge.id == id) {
            if (soft_backing_dup(&range->backing, &fd) != CUDA_SUCCESS)
                fd = -1;
            break;
        }
    soft_space_unlock();
    return fd;
}

static void *ipc_server_main(void *arg)
{
    int fd = *(const int *)arg;
    for (;;) {
        struct sockaddr_un from;
        socklen_t from_bytes;
        struct ucred sender;
        ipc_question question;
        ipc_answer answer = {.magic = MAGIC};
        int passed_fd;
        ssize_t got = receive_fd_message(fd, &question, sizeof question, &from, &from_bytes,
                                         &sender, &passed_fd);
        if (passed_fd >= 0)
            close(passed_fd);
        if (got < 0 && errno != EINTR && errno != ENOBUFS && errno != ENOMEM)
            return NULL;
        if (got != (ssize_t)sizeof question || question.magic != MAGIC)
            continue;
        passed_fd = sender.uid == 0 || sender.uid == geteuid() ? exported_fd(question.id) : -1;
        answer.found = passed_fd >= 0;
        answer.id = question.id;
        send_answer(fd, &answer, passed_fd, &from, from_bytes);
        if (passed_fd >= 0)
            close(passed_fd);
    }
}

/* A child has no thread to answer with, so it must not keep the exporter's name alive either. */
static void reset_ipc_in_child(void)
{
    if (server_fd >= 0)
        close(server_fd);
    server_fd = -1;
}

static int bind_server(uint64_t *name)
{
    struct sockaddr_un address;
    socklen_t address_bytes;
    int fd = open_socket();
    if (fd < 0)
        return -1;
    if (getrandom(name, sizeof *name, 0) != (ssize_t)sizeof *name)
        goto fail;
    *name |= 1;
    address_bytes = server_address(*name, &address);
    if (bind(fd, (struct sockaddr *)&address, address_bytes) == 0)
        return fd;
fail:
    close(fd);
    return -1;
}

/* The program's signals are not for a thread it does not know of. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int rc;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attributes, ipc_server_main, &server_fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc == 0;
}

/* The name of this process's server, started if there is none. */
static CUresult ensure_server(uint64_t *name)
{
    static bool fork_watched;
    CUresult rc = CUDA_SUCCESS;
    soft_cancel_hold();
    pthread_mutex_lock(&server_lock);
    if (server_name == 0) {
        rc = CUDA_ERROR_OPERATING_SYSTEM;
        if (fork_watched || pthread_atfork(NULL, NULL, reset_ipc_in_child) == 0)
            fork_watched = true;
        else
            goto done;
        server_fd = bind_server(name);
        if (server_fd < 0)
            goto done;
        if (!start_thread()) {
            close(server_fd);
            server_fd = -1;
            goto done;
        }
        server_name = *name;
        rc = CUDA_SUCCESS;
    }
    *name = server_name;
done:
    pthread_mutex_unlock(&server_lock);
    soft_cancel_release();
    return rc;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    ipc_handle out = {.magic = MAGIC};
    soft_range *range;
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    rc = ensure_server(&out.server);
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_write();
    range = soft_range_at_locked(ptr);
    if (range && range->origin == SOFT_ORIGIN_ALLOC && range->kind == SOFT_KIND_DEVICE &&
        !range->ending) {
        range->exported = true;
        out.id = range->backing.charge.id;
        out.size_bytes = range->span.size_bytes;
        memcpy(handle, &out, sizeof out);
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    soft_space_unlock();
    return rc;
}

/* ---- the opener */

static int64_t now_ms(void)
{
    return (int64_t)(soft_now_ns() / 1000000);
}

/* Waits for the answer to the question. CUDA_ERROR_INVALID_HANDLE if there is none,
 * CUDA_ERROR_INVALID_VALUE if the exporter has the memory no more; else the file descriptor is the
 * caller's. */
static CUresult await_answer(int fd, uint64_t id, int *passed_fd)
{
    const int64_t end_ms = now_ms() + ANSWER_TIMEOUT_MS;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        struct ucred sender;
        ipc_answer answer;
        int64_t left_ms = end_ms - now_ms();
        int ready = left_ms > 0 ? poll(&wait, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return CUDA_ERROR_INVALID_HANDLE;
        if (receive_fd_message(fd, &answer, sizeof answer, NULL, NULL, &sender, passed_fd) ==
                (ssize_t)sizeof answer &&
            answer.magic == MAGIC && answer.id == id)
            return *passed_fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        if (*passed_fd >= 0)
            close(*passed_fd);
    }
}

/* Asks the exporter for the file of its allocation. Results as of await_answer(). */
static CUresult fetch_fd(const ipc_handle *handle, int *passed_fd)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    const ipc_question question = {.magic = MAGIC, .id = handle->id};
    struct sockaddr_un address;
    socklen_t address_bytes = server_address(handle->server, &address);
    CUresult rc = CUDA_ERROR_INVALID_HANDLE;
    int fd = open_socket();
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    /* An address of the kernel's choice to answer to; connected, so that only the exporter can. */
    if (bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
        connect(fd, (const struct sockaddr *)&address, address_bytes) == 0 &&
        send(fd, &question, sizeof question, MSG_NOSIGNAL) == (ssize_t)sizeof question)
        rc = await_answer(fd, handle->id, passed_fd);
    close(fd);
    return rc;
}

/* The memory of the id, opened in the context before: counts one more opening. Another context has it at addresses of
 * its own, which end with it. */
static bool open_known_memory(uint64_t id, uint64_t context_id, CUdeviceptr *ptr)
{
    soft_range *range;
    bool found = false;
    soft_space_lock_write();
    for (size_t i = 0; !found && (range = soft_range_nth_locked(i)); i++)
        if (range->origin == SOFT_ORIGIN_IPC && !range->ending && range->backing.charge.id == id &&
            range->context_id == context_id) {
            range->open_count++;
            *ptr = range->span.addr;
            found = true;
        }
    soft_space_unlock();
    return found;
}

/* Maps the file and makes it a range. The file descriptor stays the caller's. */
static CUresult open_fd(int fd, const ipc_handle *handle, uint64_t context_id, CUdeviceptr *ptr)
{
    soft_range model = {
        .kind = SOFT_KIND_DEVICE, .origin = SOFT_ORIGIN_IPC, .context_id = context_id, .open_count = 1};
    CUresult rc = soft_backing_adopt(&model.backing, SOFT_USE_PLAIN, fd);
    if (rc != CUDA_SUCCESS)
        return rc;
    model.device = model.backing.location.id;
    model.page_bytes = model.backing.size_bytes;
    model.span.size_bytes = handle->size_bytes;
    if (model.backing.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        model.backing.charge.id != handle->id || handle->size_bytes == 0 ||
        handle->size_bytes > model.page_bytes) {
        soft_backing_destroy(&model.backing);
        return CUDA_ERROR_INVALID_VALUE;
    }
    rc = soft_range_place(&model, SOFT_GRANULARITY_BYTES);
    if (rc == CUDA_SUCCESS)
        *ptr = model.span.addr;
    return rc;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* two openings of one handle in a context map it once */
    static const uint8_t zero[sizeof((ipc_handle *)0)->zero];
    ipc_handle in;
    bool own;
    uint64_t context_id;
    int device, fd;
    CUresult rc = soft_enter_owner(&device, &context_id);
    if (rc != CUDA_SUCCESS)
        return rc;
    memcpy(&in, &handle, sizeof in);
    if (!ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || in.magic != MAGIC ||
        in.reserved != 0 || in.id == 0 || memcmp(in.zero, zero, sizeof zero) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&server_lock);
    own = in.server == server_name;
    pthread_mutex_unlock(&server_lock);
    if (own) /* the real driver's answer to a process that opens its own handle */
        return CUDA_ERROR_INVALID_CONTEXT;

    soft_cancel_hold();
    pthread_mutex_lock(&opening);
    if (!open_known_memory(in.id, context_id, ptr)) {
        rc = fetch_fd(&in, &fd);
        if (rc == CUDA_SUCCESS) {
            rc = open_fd(fd, &in, context_id, ptr);
            close(fd);
        }
    }
    pthread_mutex_unlock(&opening);
    soft_cancel_release();
    return rc;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    soft_range *range;
    bool last = false;
    int device;
    CUresult rc = soft_enter_context(&device);
    if (rc != CUDA_SUCCESS)
        return rc;
    soft_space_lock_write();
    range = soft_range_at_locked(ptr);
    if (!range || range->span.addr != ptr || range->origin != SOFT_ORIGIN_IPC || range->ending)
        rc = CUDA_ERROR_INVALID_VALUE;
    else if (--range->open_count == 0)
        range->ending = last = true;
    soft_space_unlock();
    if (!last)
        return rc;

    rc = soft_device_drain(range->device);
    soft_space_lock_write();
    if (rc == CUDA_SUCCESS)
        rc = soft_range_end_locked(range);
    if (rc != CUDA_SUCCESS) {
        range->open_count++;
        range->ending = false;
    }
    soft_space_unlock();
    return rc;
}
