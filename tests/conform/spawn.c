/* Starts this program again as a worker or a peer: CUDA works only in a process that executed
 * anew. */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/conform/conform.h"

#define CHILD_FD 3

extern char **environ;

static int spawn_with(const char *role, int socket, int *pid)
{
    char *args[8];
    int count = 0, error;
    pid_t child = 0;
    posix_spawn_file_actions_t actions;
    args[count++] = (char *)(uintptr_t)options.self;
    args[count++] = (char *)(uintptr_t)role;
    args[count++] = (char *)(uintptr_t) "--driver";
    args[count++] = (char *)(uintptr_t)options.driver;
    if (options.image) {
        args[count++] = (char *)(uintptr_t) "--image";
        args[count++] = (char *)(uintptr_t)options.image;
    }
    args[count] = NULL;
    error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_adddup2(&actions, socket, CHILD_FD);
    if (!error) /* an exported fd that slipped into a child would keep its memory alive there */
        error = posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_FD + 1);
    if (!error)
        error = posix_spawn(&child, options.self, &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    *pid = child;
    return error;
}

int conform_spawn(const char *role, int *pid, int *fd)
{
    int ends[2], error;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return errno;
    error = spawn_with(role, ends[1], pid);
    close(ends[1]);
    if (error)
        close(ends[0]);
    else
        *fd = ends[0];
    return error;
}
