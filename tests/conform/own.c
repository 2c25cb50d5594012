/* What a case took and must give back: a stack, undone last first.
 *
 * The stack is emptied entry by entry, so that an undo which fails (and ends the undoing of that
 * case) leaves nothing twice undone.
 */
#include <unistd.h>

#include "tests/conform/conform.h"
#include "tests/conform/graphs.h"
#include "tests/conform/peer.h"

#define OWNED_MAX 4096

struct owned {
    enum conform_kind kind;
    uint64_t value;
    uint64_t size;
};

static struct owned stack[OWNED_MAX];
static unsigned used;

void own(enum conform_kind kind, uint64_t value, uint64_t size)
{
    REQUIRE_TRUE(used < OWNED_MAX);
    stack[used++] = (struct owned){kind, value, size};
}

static struct owned take_out(enum conform_kind kind, uint64_t value)
{
    struct owned found = {kind, value, 0};
    unsigned i = used;
    while (i > 0 && !(stack[i - 1].kind == kind && stack[i - 1].value == value))
        i--;
    REQUIRE_TRUE(i > 0); /* the case owns it */
    found = stack[i - 1];
    for (used--; i <= used; i++)
        stack[i - 1] = stack[i];
    return found;
}

static void undo(struct owned one)
{
    void *pointer = (void *)(uintptr_t)one.value;
    switch (one.kind) {
    case OWN_RANGE: EXPECT_OK(cu->cuMemAddressFree(one.value, one.size)); break;
    case OWN_HANDLE: EXPECT_OK(cu->cuMemRelease(one.value)); break;
    case OWN_MAPPING: EXPECT_OK(cu->cuMemUnmap(one.value, one.size)); break;
    case OWN_ALLOC: EXPECT_OK(cu->cuMemFree(one.value)); break;
    case OWN_HOST: EXPECT_OK(cu->cuMemFreeHost(pointer)); break;
    case OWN_REGISTERED: EXPECT_OK(cu->cuMemHostUnregister(pointer)); break;
    case OWN_STREAM: EXPECT_OK(cu->cuStreamDestroy(pointer)); break;
    case OWN_EVENT: EXPECT_OK(cu->cuEventDestroy(pointer)); break;
    case OWN_FD: EXPECT_TRUE(close((int)one.value) == 0); break;
    case OWN_CONTEXT: EXPECT_OK(cu->cuCtxDestroy(pointer)); break;
    case OWN_MODULE: EXPECT_OK(cu->cuModuleUnload(pointer)); break;
    case OWN_PEER: conform_peer_end(pointer, false); break;
    case OWN_SERVER: conform_serve_end(); break;
    case OWN_CAPTURE: conform_capture_end(pointer); break;
    case OWN_GRAPH: EXPECT_OK(cu->cuGraphDestroy(pointer)); break;
    case OWN_EXEC: EXPECT_OK(cu->cuGraphExecDestroy(pointer)); break;
    }
}

void disown(enum conform_kind kind, uint64_t value)
{
    (void)take_out(kind, value);
}

void drop(enum conform_kind kind, uint64_t value)
{
    undo(take_out(kind, value));
}

void drop_all(void)
{
    while (used > 0)
        undo(stack[--used]);
}

void abandon_all(void)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < used; i++)
        if (stack[i].kind == OWN_PEER)
            stack[kept++] = stack[i];
    used = kept;
}
