/* tests/lib/fixture.h - what tests make before they begin: a machine, a folder, room for descriptors; and
 * what they count afterwards.
 *
 * Threads: any, but for what changes the environment. Ownership: a folder is the caller's, until
 * fixture_folder_end(). */
#ifndef LIB_FIXTURE_H
#define LIB_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

/* The machine that the software GPU is, in the words of GVMEM_SOFTGPU, and of this process alone: another
 * test takes no memory of it. The second keeps the machine that the caller of the program chose, who may
 * as well have chosen a real one. */
__attribute__((format(printf, 1, 2))) void fixture_machine(const char *settings, ...);
__attribute__((format(printf, 1, 2))) void fixture_machine_default(const char *settings, ...);

/* One whose warps, blocks and way of switching between threads the seed draws; unless the caller of the program chose one. */
void fixture_machine_drawn(uint64_t seed);

/* The path of this program, to execute it again: /proc/self/exe would be valgrind under valgrind. */
const char *own_path(void);

/* As many descriptors as the process may have, up to 65536: hundreds of chunks are hundreds of them. */
void fixture_raise_fd_limit(void);

/* A folder under /tmp, and the path of a keeper's socket in it. */
typedef struct fixture_folder {
    char path[64];
    char socket[80];
} fixture_folder;

bool fixture_folder_make(fixture_folder *f);
void fixture_folder_end(fixture_folder *f); /* with what a keeper may have left in it */

/* Entries of a folder; -1 if it cannot be read. Descriptors of this process. */
int count_entries(const char *path);
int count_fds(void);

uint64_t now_ns(void); /* CLOCK_MONOTONIC */
uint64_t now_ms(void);
void pause_us(uint64_t us);
void pause_ms(uint64_t ms);

#endif
