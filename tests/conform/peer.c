/* Peers: the case's end, which asks, and the peer's end, which does. One request and one answer at
 * a time, as packets, each with at most one fd. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/conform/peer.h"
#include "tests/conform/wire.h"

#define PEERS_MAX 8
#define PEER_LIMIT_MS 20000 /* of an answer, and of its end; a case has CONFORM_TIMEOUT_S */

enum request {
    DO_CONTEXT,
    DO_IMPORT,
    DO_CREATE,
    DO_EXPORT,
    DO_RELEASE,
    DO_MAP,
    DO_MAP_HOST,
    DO_UNMAP,
    DO_ALLOC,
    DO_FREE,
    DO_IPC_GET,
    DO_IPC_OPEN,
    DO_IPC_CLOSE,
    DO_FILL,
    DO_SUM,
    DO_WRITE,
    DO_READ,
    DO_CPU_READ,
    DO_CPU_WRITE,
};

/* Both ways. In an answer, result says how it went and value holds what came out. */
struct packet {
    uint32_t request;
    int32_t result;
    uint64_t address; /* or a handle */
    uint64_t size;    /* or a number of words */
    uint64_t value;   /* or an access right */
    uint64_t wanted;
    CUipcMemHandle ipc;
};

/* ---- the peer's end */

static CUresult do_map(struct packet *p, CUmemAccessDesc second, size_t access_count)
{
    CUmemAccessDesc access[2] = {device_access((CUmemAccess_flags)p->value), second};
    CUdeviceptr at = 0;
    CUresult result = cu->cuMemAddressReserve(&at, p->size, 0, p->wanted, 0);
    if (result == CUDA_SUCCESS)
        result = cu->cuMemMap(at, p->size, 0, p->address, 0);
    if (result == CUDA_SUCCESS)
        result = cu->cuMemSetAccess(at, p->size, access, access_count);
    p->value = at;
    return result;
}

static CUresult do_unmap(const struct packet *p)
{
    CUresult result = cu->cuMemUnmap(p->address, p->size);
    return result ? result : cu->cuMemAddressFree(p->address, p->size);
}

static CUresult do_fill(const struct packet *p)
{
    conform_fill params = {p->address, p->size, (uint32_t)p->value, 0};
    CUresult result = try_launch("fill", 64, &params, NULL);
    return result ? result : cu->cuCtxSynchronize();
}

static CUresult do_sum(struct packet *p)
{
    conform_range params = {p->address, scratch(), p->size};
    CUresult result;
    p->value = 0;
    result = cu->cuMemcpyHtoD(scratch(), &p->value, sizeof p->value);
    if (result == CUDA_SUCCESS)
        result = try_launch("sum", 64, &params, NULL);
    return result ? result : cu->cuMemcpyDtoH(&p->value, scratch(), sizeof p->value);
}

static CUresult do_memory(struct packet *p, int fd, int *answer_fd)
{
    CUmemAllocationProp prop = device_prop();
    CUmemAccessDesc by_host = host_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUmemAllocationHandleType as_fd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = p->address;
    CUdeviceptr at = p->address;
    CUresult result;
    switch ((enum request)p->request) {
    case DO_IMPORT:
        result = cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, as_fd);
        p->value = handle;
        return result;
    case DO_CREATE:
        result = cu->cuMemCreate(&handle, p->size, &prop, 0);
        p->value = handle;
        return result;
    case DO_EXPORT: return cu->cuMemExportToShareableHandle(answer_fd, handle, as_fd, 0);
    case DO_RELEASE: return cu->cuMemRelease(handle);
    case DO_MAP: return do_map(p, by_host, 1);
    case DO_MAP_HOST: return do_map(p, by_host, 2);
    case DO_UNMAP: return do_unmap(p);
    case DO_ALLOC:
        result = cu->cuMemAlloc(&at, p->size);
        p->value = at;
        return result;
    case DO_FREE: return cu->cuMemFree(at);
    case DO_IPC_GET: return cu->cuIpcGetMemHandle(&p->ipc, at);
    case DO_IPC_OPEN:
        result = cu->cuIpcOpenMemHandle(&at, p->ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        p->value = at;
        return result;
    case DO_IPC_CLOSE: return cu->cuIpcCloseMemHandle(at);
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/* What needs the context; DO_CONTEXT makes it. False: not such a request. */
static bool do_use(struct packet *p, CUresult *result)
{
    volatile uint32_t *word = (volatile uint32_t *)(uintptr_t)p->address;
    uint32_t value = (uint32_t)p->value;
    *result = CUDA_SUCCESS;
    switch ((enum request)p->request) {
    case DO_CONTEXT: conform_setup(0); return true;
    case DO_FILL: *result = do_fill(p); return true;
    case DO_SUM: *result = do_sum(p); return true;
    case DO_WRITE: *result = kernel_try_write(p->address, value); return true;
    case DO_READ:
        *result = cu->cuMemcpyDtoH(&value, p->address, sizeof value);
        p->value = value;
        return true;
    case DO_CPU_READ: p->value = *word; return true;
    case DO_CPU_WRITE: *word = value; return true;
    default: return false;
    }
}

static void serve_case(void)
{
    struct packet packet;
    int fd, answer_fd;
    conform_setup(BARE);
    while (child_next(&packet, sizeof packet, &fd)) {
        CUresult result;
        answer_fd = -1;
        if (!do_use(&packet, &result))
            result = do_memory(&packet, fd, &answer_fd);
        packet.result = (int32_t)result;
        if (fd >= 0)
            close(fd);
        (void)child_answer(&packet, sizeof packet, answer_fd);
        if (answer_fd >= 0)
            close(answer_fd);
    }
}

int conform_peer(void)
{
    signal(SIGPIPE, SIG_IGN);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    if (conform_driver_load(options.driver))
        return 1;
    return conform_try(serve_case) == OUTCOME_PASSED ? 0 : 1;
}

/* ---- the case's end */

static struct peer peers[PEERS_MAX];

static CUresult ask_with_fd(struct peer *peer, struct packet *packet, int fd, int *answer_fd)
{
    int received;
    REQUIRE_TRUE(child_post(&peer->process, packet, sizeof *packet, fd));
    /* It lives and answers. */
    REQUIRE_TRUE(child_wait(&peer->process, packet, sizeof *packet, &received) == NULL);
    if (answer_fd)
        *answer_fd = received;
    else if (received >= 0)
        close(received);
    return (CUresult)packet->result;
}

static CUresult ask(struct peer *peer, struct packet packet, uint64_t *value)
{
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    if (value)
        *value = packet.value;
    return result;
}

struct peer *peer_start_bare(void)
{
    struct peer *peer = NULL;
    for (int i = 0; i < PEERS_MAX && !peer; i++)
        if (peers[i].process.pid == 0)
            peer = &peers[i];
    REQUIRE_TRUE(peer != NULL);
    REQUIRE_U64(conform_start(&peer->process, CONFORM_PEER), 0);
    peer->process.limit_ms = PEER_LIMIT_MS;
    own(OWN_PEER, (uintptr_t)peer, 0);
    return peer;
}

struct peer *peer_start(void)
{
    struct peer *peer = peer_start_bare();
    REQUIRE_OK(ask(peer, (struct packet){.request = DO_CONTEXT}, NULL));
    return peer;
}

void conform_peer_end(struct peer *peer, bool kill_it)
{
    if (kill_it)
        child_kill(&peer->process);
    else
        EXPECT_U64(child_end(&peer->process), 0); /* a peer that is told to end does so by itself */
}

void peer_stop(struct peer *peer)
{
    drop(OWN_PEER, (uintptr_t)peer);
}

void peer_kill(struct peer *peer)
{
    disown(OWN_PEER, (uintptr_t)peer);
    conform_peer_end(peer, true);
}

CUresult peer_import(struct peer *peer, int fd, uint64_t *handle)
{
    struct packet packet = {.request = DO_IMPORT};
    CUresult result = ask_with_fd(peer, &packet, fd, NULL);
    *handle = packet.value;
    return result;
}

CUresult peer_create(struct peer *peer, size_t size, uint64_t *handle)
{
    return ask(peer, (struct packet){.request = DO_CREATE, .size = size}, handle);
}

CUresult peer_export(struct peer *peer, uint64_t handle, int *fd)
{
    struct packet packet = {.request = DO_EXPORT, .address = handle};
    CUresult result = ask_with_fd(peer, &packet, -1, fd);
    if (*fd >= 0)
        own(OWN_FD, (uint64_t)*fd, 0);
    return result;
}

CUresult peer_release(struct peer *peer, uint64_t handle)
{
    return ask(peer, (struct packet){.request = DO_RELEASE, .address = handle}, NULL);
}

CUresult peer_map(struct peer *peer, uint64_t handle, size_t size, int access, CUdeviceptr wanted,
                  CUdeviceptr *at)
{
    struct packet packet = {
        .request = DO_MAP, .address = handle, .size = size, .value = (uint64_t)access, .wanted = wanted};
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    *at = packet.value;
    return result;
}

CUresult peer_map_host(struct peer *peer, uint64_t handle, size_t size, CUdeviceptr *at)
{
    struct packet packet = {.request = DO_MAP_HOST,
                            .address = handle,
                            .size = size,
                            .value = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    *at = packet.value;
    return result;
}

CUresult peer_unmap(struct peer *peer, CUdeviceptr at, size_t size)
{
    return ask(peer, (struct packet){.request = DO_UNMAP, .address = at, .size = size}, NULL);
}

CUresult peer_alloc(struct peer *peer, size_t size, CUdeviceptr *at)
{
    struct packet packet = {.request = DO_ALLOC, .size = size};
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    *at = packet.value;
    return result;
}

CUresult peer_free(struct peer *peer, CUdeviceptr at)
{
    return ask(peer, (struct packet){.request = DO_FREE, .address = at}, NULL);
}

CUresult peer_ipc_get(struct peer *peer, CUdeviceptr at, CUipcMemHandle *handle)
{
    struct packet packet = {.request = DO_IPC_GET, .address = at};
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    *handle = packet.ipc;
    return result;
}

CUresult peer_ipc_open(struct peer *peer, const CUipcMemHandle *handle, CUdeviceptr *at)
{
    struct packet packet = {.request = DO_IPC_OPEN, .ipc = *handle};
    CUresult result = ask_with_fd(peer, &packet, -1, NULL);
    *at = packet.value;
    return result;
}

CUresult peer_ipc_close(struct peer *peer, CUdeviceptr at)
{
    return ask(peer, (struct packet){.request = DO_IPC_CLOSE, .address = at}, NULL);
}

CUresult peer_fill(struct peer *peer, CUdeviceptr at, size_t words, uint32_t first)
{
    return ask(peer, (struct packet){.request = DO_FILL, .address = at, .size = words, .value = first},
               NULL);
}

CUresult peer_sum(struct peer *peer, CUdeviceptr at, size_t words, uint64_t *sum)
{
    return ask(peer, (struct packet){.request = DO_SUM, .address = at, .size = words}, sum);
}

CUresult peer_write(struct peer *peer, CUdeviceptr at, uint32_t value)
{
    return ask(peer, (struct packet){.request = DO_WRITE, .address = at, .value = value}, NULL);
}

CUresult peer_read(struct peer *peer, CUdeviceptr at, uint32_t *value)
{
    uint64_t wide = 0;
    CUresult result = ask(peer, (struct packet){.request = DO_READ, .address = at}, &wide);
    *value = (uint32_t)wide;
    return result;
}

CUresult peer_cpu_read(struct peer *peer, CUdeviceptr at, uint32_t *value)
{
    uint64_t wide = 0;
    CUresult result = ask(peer, (struct packet){.request = DO_CPU_READ, .address = at}, &wide);
    *value = (uint32_t)wide;
    return result;
}

CUresult peer_cpu_write(struct peer *peer, CUdeviceptr at, uint32_t value)
{
    return ask(peer, (struct packet){.request = DO_CPU_WRITE, .address = at, .value = value}, NULL);
}
