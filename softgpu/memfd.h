/* softgpu/memfd.h - the names of the memfds that hold memory.
 *
 * A memfd's name starts with the instance and the id of the charge, and so informs a reader of
 * the name, in this process or through /proc in another, which allocation it is. backing.c adds the
 * rest.
 */
#ifndef SOFTGPU_MEMFD_H
#define SOFTGPU_MEMFD_H

#include <sys/types.h>

#include "softgpu/soft.h"

/* Room for the start of a name, for a whole one, and for what /proc shows; each with its end. */
enum { SOFT_MEMFD_START_BYTES = 96, SOFT_MEMFD_NAME_BYTES = 160, SOFT_MEMFD_LINK_BYTES = 192 };

/* Writes the start of the name. */
void soft_memfd_start(uint64_t id, char start[SOFT_MEMFD_START_BYTES]);

/* Takes the start off a name: *rest is what follows. False if it is no memory of any instance. */
bool soft_memfd_parse(const char *name, uint64_t *id, const char **rest);

/* The name behind a link of /proc/PID/fd, given as readlink() filled it; shortens it in place. NULL
 * if it is no memfd. */
const char *soft_memfd_name_of_link(char link[SOFT_MEMFD_LINK_BYTES], ssize_t len);

/* One allocation that may live on in file descriptors alone. */
typedef struct soft_orphan {
    uint64_t id;
    uint64_t size_bytes;
    uint32_t account;
    uint32_t entry;
    bool seen;
} soft_orphan;

/* Sorts the orphans by id and marks those that some process has a file descriptor of, all of them
 * if /proc cannot be read. ignored_pid: a process that does not count, 0: none. Processes that this
 * user may not look into are not seen. */
void soft_memfd_look(soft_orphan *orphans, size_t count, pid_t ignored_pid);

#endif
