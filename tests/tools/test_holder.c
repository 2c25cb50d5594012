/* A client for the tests of gvmem keeper and gvmem top.
 *
 * usage: test_holder SOCKET     Makes /test/one (32 MiB, published), /test/two (8 MiB, sealed, under
 *                               a read lease) and a nameless object of 4 MiB, says "ready", and keeps
 *                               them until standard input ends.
 *        test_holder SOCKET write   Takes a write lease on /test/one, says "ready", and keeps it likewise.
 */
#include <gvmem/client.h>

#include "tests/lib/child.h"
#include "tests/lib/units.h"
#include "tools/tool.h"

static bool create_object(gvm_client *keeper, const char *name, uint64_t bytes, gvm_object **out)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = 2 * MIB, .size_bytes = bytes};

    if (gvm_object_create(keeper, name, 2 * bytes, &options, out) == GVM_OK)
        return true;
    tool_fail("cannot make %s", name != NULL ? name : "a nameless object");
    return false;
}

static bool acquire_lease(gvm_object *object, gvm_lease_mode mode, gvm_lease *lease)
{
    if (gvm_object_acquire(object, mode, NULL, 20000, lease) == GVM_OK)
        return true;
    tool_fail("no lease");
    return false;
}

static int hold_until_end(void)
{
    return child_hold("ready") ? TOOL_DONE : tool_error("cannot write to standard output");
}

static int hold_leases(gvm_client *keeper)
{
    gvm_object *one, *two, *nameless;
    gvm_lease lease;

    if (!create_object(keeper, NULL, 32 * MIB, &one) ||
        !create_object(keeper, "/test/two", 8 * MIB, &two) ||
        !create_object(keeper, NULL, 4 * MIB, &nameless))
        return TOOL_FAILED;
    if (!acquire_lease(one, GVM_LEASE_WRITE, &lease) || gvm_object_release(one, &lease) != GVM_OK)
        return TOOL_FAILED;
    if (gvm_object_publish(one, "/test/one", 0) != GVM_OK)
        return tool_fail("cannot publish");
    if (gvm_object_seal(two, 20000) != GVM_OK)
        return tool_fail("cannot seal");
    return acquire_lease(two, GVM_LEASE_READ, &lease) ? hold_until_end() : TOOL_FAILED;
}

static int hold_lease(gvm_client *keeper)
{
    gvm_object *one;
    gvm_lease lease;

    if (gvm_object_open(keeper, "/test/one", 0, &one) != GVM_OK)
        return tool_fail("cannot open");
    return acquire_lease(one, GVM_LEASE_WRITE, &lease) ? hold_until_end() : TOOL_FAILED;
}

int main(int argc, char **argv)
{
    gvm_client *keeper;
    int code;

    if (argc != 2 && argc != 3)
        return tool_error("usage: test_holder SOCKET [write]");
    if (gvm_client_connect(argv[1], &keeper) != GVM_OK)
        return tool_fail("cannot connect");
    code = argc == 3 ? hold_lease(keeper) : hold_leases(keeper);
    gvm_client_close(keeper);
    return code;
}
