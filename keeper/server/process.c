/* Processes of clients: which one it is that connected, or greets, and whether it is about to end. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "keeper/server/server.h"

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

#define THREAD_EXITING 0x4u /* of flags in proc(5) stat: PF_EXITING */
#define THREADS_MAX 256 /* that one look reads: the server's thread does nothing else meanwhile */

static bool is_shortage(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOMEM;
}

/* False: out of descriptors. *fd is -1 where there is no such process (any more). */
static bool open_by_number(pid_t pid, int *fd)
{
    *fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return *fd >= 0 || !is_shortage(errno);
}

gvm_status gvmi_process_open(int socket, int32_t pid, int *fd, bool *certain)
{
    socklen_t bytes = sizeof *fd;

    *fd = -1;
    *certain = false;
    if (pid == getpid())
        return GVM_OK;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, fd, &bytes) == 0 && *fd >= 0)
        *certain = true; /* close-on-exec, as all pidfds */
    else if (is_shortage(errno))
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "getsockopt", "cannot watch the client's process");
    else if (pid > 0 && !open_by_number(pid, fd)) /* 0: of another PID namespace */
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "pidfd_open", "cannot watch the client's process");
    return GVM_OK;
}

bool gvmi_process_open_sender(pid_t pid, uint32_t uid, const int *received, gvmi_sender *sender)
{
    int fd = -1;

    if (received == NULL && pid == 0) /* nothing is known of it */
        return true;
    if (received != NULL)
        fd = *received; /* negative: an error number, of a process that is gone, or a shortage */
    else if (pid != getpid() && !open_by_number(pid, &fd))
        return false;
    if (received != NULL && fd < 0 && is_shortage(-fd))
        return false;
    if (pid == getpid())
        gvmi_server_close(&fd);
    *sender = (gvmi_sender){
        .other = true, .pid = pid, .uid = uid, .process = fd < 0 ? -1 : fd, .certain = received != NULL};
    return true;
}

/* False: it has ended, is about to, or cannot be looked at. */
static bool goes_on(pid_t pid, const char *thread)
{
    char path[64], line[512];
    const char *rest = NULL;
    unsigned flags = 0;
    char state = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", (int)pid, thread);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    if (fgets(line, sizeof line, file) != NULL)
        rest = strrchr(line, ')'); /* behind the name, which may be anything */
    fclose(file);
    return rest != NULL && sscanf(rest, ") %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2 &&
           state != 'Z' && state != 'X' && (flags & THREAD_EXITING) == 0;
}

/* The first thread alone says nothing: it may have ended by pthread_exit(3), while the others go on. So many that end
 * at once are those of a process that does. */
bool gvmi_process_is_ending(pid_t pid)
{
    char path[32];
    const struct dirent *entry;
    bool ending = true;
    int looks = 0;
    DIR *threads;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    threads = pid > 0 ? opendir(path) : NULL;
    if (threads == NULL)
        return true;
    while (ending && looks < THREADS_MAX && (entry = readdir(threads)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0])) {
            ending = !goes_on(pid, entry->d_name);
            looks++;
        }
    closedir(threads);
    return ending;
}
