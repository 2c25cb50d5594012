/* tests/proc/buffer_child.h - children (tests/lib/child.h) that make, share and use buffers. */
#ifndef PROC_BUFFER_CHILD_H
#define PROC_BUFFER_CHILD_H

#include <gvmem/gvmem.h>

#include "tests/lib/child.h"
#include "tests/lib/device.h"
#include "tests/lib/expect.h"
#include "tests/lib/fixture.h"
#include "tests/lib/random.h"
#include "tests/lib/tap.h"
#include "tests/lib/units.h"

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

/* The program's main() must begin with the first, which does not return in a child. */
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
answer buffer_open_ipc(child *p, const gvm_ipc_handle *handle);

/* A command that must answer the status. */
#define EXPECT_STATUS(p, verb, a, b, wanted) \
    buffer_expect(__FILE__, __LINE__, p, BUFFER_##verb, a, b, wanted)
#define EXPECT_OK(p, verb, a, b) EXPECT_STATUS(p, verb, a, b, GVM_OK)
bool buffer_expect(const char *file, int line, child *p, buffer_verb verb, uint64_t a, uint64_t b,
                   gvm_status wanted);

const char *buffer_verb_name(buffer_verb verb);

/* The machine of the test and its children: two devices, unless the caller chose one. Watches the first. */
void buffer_test_begin(uint64_t memory_bytes);

#endif
