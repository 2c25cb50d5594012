/* tests/proc/buffer_child.h - processes that do what the test tells them.
 *
 * A child is this very program, executed again, that reads commands from a socket, does each with
 * gvmem, and answers with its status. The test decides step by step who does what, posts commands
 * without waiting where processes are to run at once, and kills whom it likes. Nothing sleeps: an
 * answer is the sign that a step is done.
 *
 * Threads: one. Ownership: buffer_child_start() gives a child to the caller; child_end() or
 * child_kill() ends it.
 */
#ifndef PROC_BUFFER_CHILD_H
#define PROC_BUFFER_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <gvmem/gvmem.h>

#define MIB (1ull << 20)
#define ANSWER_LIMIT_MS 60000 /* a child that says nothing for so long hangs */

/* How much more time programs need that are checked while they run: for time-outs that must not be met. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PROC_SLOWNESS 5u
#else
#define PROC_SLOWNESS 1u
#endif

/* clang-format off */
/* X(verb): what children can do; a and b are the command's numbers. */
#define BUFFER_VERBS(X) \
    X(OPEN)      /* device a */ \
    X(CREATE)    /* a buffer of a bytes in chunks of b (0: chosen) */ \
    X(COMMIT)    /* [a, a + b) */ \
    X(DECOMMIT)  /* [a, a + b) */ \
    X(SEAL) \
    X(MOVE)      /* all to tier a */ \
    X(FILL)      /* [0, a) by a kernel, with numbers of seed b */ \
    X(SYNC)      /* waits for the device */ \
    X(CHECKSUM)  /* of [a, a + b), by a kernel */ \
    X(EXPORT)    /* [a, a + b), b 0: to the end */ \
    X(CONNECT)   /* takes the socket that comes along */ \
    X(SEND)      /* the share, over the socket taken last */ \
    X(RECEIVE)   /* a share from there */ \
    X(IMPORT)    /* flags a, reserving b bytes */ \
    X(UPDATE)    /* the buffer from the share */ \
    X(DESTROY)   /* the buffer */ \
    X(ADDRESS)   /* of the buffer */ \
    X(IPC_EXPORT) /* [0, a); the answer's bytes are the handle */ \
    X(IPC_OPEN)   /* the handle in the command's bytes */ \
    X(IPC_CHECKSUM) /* of a bytes of what was opened */ \
    X(IPC_CLOSE)
/* clang-format on */

#define BUFFER_VERB(verb) BUFFER_##verb,
typedef enum buffer_verb { BUFFER_VERBS(BUFFER_VERB) BUFFER_VERB_COUNT } buffer_verb;
#undef BUFFER_VERB

typedef struct answer {
    gvm_status status;
    uint64_t value;
    gvm_ipc_handle handle;
    char text[200]; /* the error's */
} answer;

typedef struct child {
    pid_t pid; /* 0: none */
    int control;
    unsigned waiting; /* commands without an answer */
} child;

/* Starts a child. The program's main() must begin with buffer_child_main(), which does not return in
 * a child. */
void buffer_child_main(int argc, char **argv);
child buffer_child_start(void);

/* Gives two children a connection. */
void buffer_connect(child *a, child *b);

/* A command without waiting for its answer; then the answer to the oldest one without. False if
 * the child is dead. */
bool buffer_post(child *p, buffer_verb verb, uint64_t a, uint64_t b);
bool buffer_wait(child *p, answer *out);

/* Both; the answer has GVM_E_SYSTEM if the child died. */
answer buffer_do(child *p, buffer_verb verb, uint64_t a, uint64_t b);
answer puppet_open_ipc(child *p, const gvm_ipc_handle *handle);

void child_kill(child *p); /* SIGKILL, and waits until it is gone */
int child_end(child *p);   /* lets it finish what it has, and exit; its wait status */

const char *buffer_verb_name(buffer_verb verb);

/* ---- what tests of processes share */

/* Sets GVMEM_SOFTGPU for this program and its children unless it is set; then opens a device to
 * watch memory with. */
void proc_begin(uint64_t memory_bytes);
extern gvm_device *proc_device;
extern bool proc_software;

/* Remembers the free memory; and waits, up to 5 s, until it is back. False if it does not come. */
void proc_note_memory(void);
bool proc_memory_is_back(void);

/* TAP: one line; counts. */
void proc_result(bool good, const char *name);
int proc_finish(void); /* the exit status */

/* Says where and returns false. */
#define EXPECT(condition) ((condition) || proc_complain(__FILE__, __LINE__, #condition))
/* Something else than this has happened. False. */
#define UNEXPECTED(text) proc_complain(__FILE__, __LINE__, text)
bool proc_complain(const char *file, int line, const char *text);
/* A command that must answer the status. */
#define EXPECT_STATUS(p, verb, a, b, wanted) \
    proc_expect(__FILE__, __LINE__, p, BUFFER_##verb, a, b, wanted)
#define EXPECT_OK(p, verb, a, b) EXPECT_STATUS(p, verb, a, b, GVM_OK)
bool proc_expect(const char *file, int line, child *p, buffer_verb verb, uint64_t a, uint64_t b,
                 gvm_status wanted);

uint64_t proc_random(uint64_t *seed);
uint64_t proc_now_ns(void); /* CLOCK_MONOTONIC */
void proc_pause_us(uint64_t us);
void proc_pause_ms(uint64_t ms);

/* Another user, with one group. What needs the first user's rights (the device) is opened before. */
bool proc_become(uid_t uid, gid_t gid);

/* A process's descriptors: those of memory, by what the two drivers' look like, and all others. */
typedef struct fd_counts {
    long memory, others;
} fd_counts;

/* print: one line for each, too. */
fd_counts proc_count_fds(pid_t pid, bool print);

/* Stops a process, and waits until it is stopped; false if it is gone. It is not stopped where it
 * holds the lock of the software GPU's ledger, which would stop everybody: see softgpu/ledger.c.
 * Processes that are no child of the caller are not waited for. */
bool proc_stop(pid_t pid);

/* May a process that has just stopped stay so? False: it holds that lock. */
bool proc_may_stay_stopped(void);

#endif
