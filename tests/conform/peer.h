/* tests/conform/peer.h - another process with the same driver, told what to do over a socket.
 *
 * A peer knows nothing of the case: it makes the calls it is asked for and answers with their
 * results, so that a case reads from top to bottom with both processes in it. It starts after
 * cuInit, without a context. It dies when its socket closes.
 */
#ifndef CONFORM_PEER_H
#define CONFORM_PEER_H

#include "tests/conform/conform.h"

struct peer {
    struct child process;
};

/* Started, and owned by the case. The two differ in whether it has a current primary context and
 * the kernels. */
struct peer *peer_start_bare(void);
struct peer *peer_start(void);
void peer_stop(struct peer *peer);                      /* in good order: waits for its end */
void peer_kill(struct peer *peer);                      /* SIGKILL, and waits for its end */
void conform_peer_end(struct peer *peer, bool kill_it); /* for own.c */

/* Each is the driver call of that name in the peer and gives its result. */
CUresult peer_import(struct peer *peer, int fd, uint64_t *handle);
CUresult peer_create(struct peer *peer, size_t size, uint64_t *handle);
CUresult peer_export(struct peer *peer, uint64_t handle, int *fd); /* the case owns the fd */
CUresult peer_release(struct peer *peer, uint64_t handle);
/* Reserves (at wanted if not 0 and possible), maps and sets access. */
CUresult peer_map(struct peer *peer, uint64_t handle, size_t size, int access, CUdeviceptr wanted,
                  CUdeviceptr *at);
CUresult peer_map_host(struct peer *peer, uint64_t handle, size_t size, CUdeviceptr *at);
CUresult peer_unmap(struct peer *peer, CUdeviceptr at, size_t size);
CUresult peer_alloc(struct peer *peer, size_t size, CUdeviceptr *at);
CUresult peer_free(struct peer *peer, CUdeviceptr at);
CUresult peer_ipc_get(struct peer *peer, CUdeviceptr at, CUipcMemHandle *handle);
CUresult peer_ipc_open(struct peer *peer, const CUipcMemHandle *handle, CUdeviceptr *at);
CUresult peer_ipc_close(struct peer *peer, CUdeviceptr at);
CUresult peer_fill(struct peer *peer, CUdeviceptr at, size_t words, uint32_t first);
CUresult peer_sum(struct peer *peer, CUdeviceptr at, size_t words, uint64_t *sum);
/* One word written by a kernel, and waited for. */
CUresult peer_write(struct peer *peer, CUdeviceptr at, uint32_t value);
CUresult peer_read(struct peer *peer, CUdeviceptr at, uint32_t *value);
/* Reads and writes by the peer's CPU, without a driver call. */
CUresult peer_cpu_read(struct peer *peer, CUdeviceptr at, uint32_t *value);
CUresult peer_cpu_write(struct peer *peer, CUdeviceptr at, uint32_t value);

#endif
