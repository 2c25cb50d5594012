/* tools/peer.h - helper processes of a subcommand, each behind a socket.
 *
 * They are forked before the first driver call, because a driver does not survive fork(2), and end
 * with their parent, however that ends.
 */
#ifndef TOOLS_PEER_H
#define TOOLS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct peer {
    pid_t pid;  /* 0: none */
    int socket; /* the parent's end */
} peer;

/* Forks count processes; each runs run(socket, arg) and exits with what that returns. False, with a
 * complaint and none left, if it fails. */
bool peer_start(peer *peers, int count, int (*run)(int socket, const void *arg), const void *arg);

/* Fixed-size messages, from either end. receive gives up after timeout_ms. */
typedef enum peer_answer { PEER_OK, PEER_CLOSED, PEER_SILENT } peer_answer;
bool peer_send(int socket, const void *message, size_t bytes);
peer_answer peer_receive(int socket, void *message, size_t bytes, int timeout_ms);

/* In a helper, after its last message: waits until the parent has closed, so that nothing it sent
 * is cut off. */
void peer_linger(int socket);

/* Closes the socket and waits for the process, killing it after timeout_ms. True if it exited with
 * 0; otherwise how says how it ended. */
bool peer_finish(peer *p, int timeout_ms, char *how, size_t how_bytes);

#endif
