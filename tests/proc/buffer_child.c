/* Children that make, share and use buffers; see buffer_child.h. */
#include "tests/proc/buffer_child.h"
#include "base/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TIMEOUT_MS 20000 /* of sends and receives of shares */
#define ROLE "--buffer-child"

typedef struct command {
    uint32_t verb;
    uint64_t a, b;
    gvm_ipc_handle handle;
} command;

const char *buffer_verb_name(buffer_verb verb)
{
    static const char *const names[] = {
#define NAME(verb_) #verb_,
        BUFFER_VERBS(NAME)
#undef NAME
    };

    return names[verb];
}

/* ---- in the child */

static struct {
    gvm_device *device;
    gvm_buffer *buffer;
    gvm_share *share;
    gvm_ipc *ipc;
    void *opened;
    int wire;
} own = {.wire = -1};

static gvm_status do_create(uint64_t bytes, uint64_t chunk_bytes)
{
    gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = chunk_bytes};

    return gvm_buffer_create(own.device, bytes, &options, &own.buffer);
}

static gvm_status do_import(uint64_t flags, uint64_t reserve_bytes)
{
    gvm_import_options options = {
        .struct_size = sizeof options, .flags = (uint32_t)flags, .reserve_bytes = reserve_bytes};

    return gvm_share_import(own.device, own.share, &options, &own.buffer);
}

static gvm_status do_move(uint64_t tier)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_buffer_get_info(own.buffer, &info);

    return status != GVM_OK ? status
                            : gvm_buffer_move(own.buffer, 0, info.reserve_bytes, (gvm_tier)tier);
}

static gvm_status replace_share(gvm_status status, gvm_share *fresh)
{
    if (status == GVM_OK) {
        gvm_share_destroy(own.share);
        own.share = fresh;
    }
    return status;
}

static gvm_status do_ipc_export(uint64_t bytes, gvm_ipc_handle *handle)
{
    gvm_ipc_info info = {.struct_size = sizeof info};
    gvm_status status = gvm_ipc_export(own.buffer, 0, bytes, &own.ipc);

    if (status == GVM_OK)
        status = gvm_ipc_get_info(own.ipc, &info);
    if (status == GVM_OK)
        *handle = info.handle;
    return status;
}

static gvm_status obey(const command *c, answer *out)
{
    const uint64_t address = gvmi_address(gvm_buffer_address(own.buffer));
    gvm_share *fresh = NULL;
    gvm_status status;

    switch ((buffer_verb)c->verb) {
    case BUFFER_OPEN: return gvm_device_open((int32_t)c->a, &own.device);
    case BUFFER_CREATE: return do_create(c->a, c->b);
    case BUFFER_COMMIT: return gvm_buffer_commit(own.buffer, c->a, c->b);
    case BUFFER_DECOMMIT: return gvm_buffer_decommit(own.buffer, c->a, c->b);
    case BUFFER_SEAL: return gvm_buffer_seal(own.buffer);
    case BUFFER_MOVE: return do_move(c->a);
    case BUFFER_FILL:
        return gvm_kernel_fill_random_f64(own.device, gvmi_pointer(address), c->a / 8, 0, c->b, NULL);
    case BUFFER_SYNC: return gvm_device_synchronize(own.device);
    case BUFFER_CHECKSUM:
        return gvm_kernel_checksum(own.device, gvmi_pointer(address + c->a), c->b, NULL, &out->value);
    case BUFFER_EXPORT:
        status = gvm_share_export(own.buffer, c->a, c->b, &fresh);
        return replace_share(status, fresh);
    case BUFFER_CONNECT: return own.wire >= 0 ? GVM_OK : GVM_E_SYSTEM;
    case BUFFER_SEND: return gvm_share_send(own.share, own.wire, TIMEOUT_MS);
    case BUFFER_RECEIVE:
        status = gvm_share_receive(own.wire, TIMEOUT_MS, &fresh);
        return replace_share(status, fresh);
    case BUFFER_IMPORT: return do_import(c->a, c->b);
    case BUFFER_UPDATE: return gvm_buffer_update(own.buffer, own.share);
    case BUFFER_DESTROY:
        gvm_buffer_destroy(own.buffer);
        own.buffer = NULL;
        return GVM_OK;
    case BUFFER_ADDRESS: out->value = address; return GVM_OK;
    case BUFFER_IPC_EXPORT: return do_ipc_export(c->a, &out->handle);
    case BUFFER_IPC_OPEN: return gvm_ipc_open(own.device, &c->handle, &own.opened);
    case BUFFER_IPC_CHECKSUM:
        return gvm_kernel_checksum(own.device, own.opened, c->a, NULL, &out->value);
    case BUFFER_IPC_CLOSE: return gvm_ipc_close(own.device, own.opened);
    case BUFFER_VERB_COUNT: break;
    }
    return GVM_E_INVALID;
}

void buffer_child_main(int argc, char **argv)
{
    command c;
    int fd;

    if (!child_is(argc, argv, ROLE))
        return;
    while (child_next(&c, sizeof c, &fd)) {
        answer out;
        gvm_error error;

        if (fd >= 0) {
            if (own.wire >= 0)
                close(own.wire);
            own.wire = fd;
        }
        memset(&out, 0, sizeof out);
        out.status = obey(&c, &out);
        gvm_error_last(&error);
        if (out.status != GVM_OK)
            snprintf(out.text, sizeof out.text, "%.199s", error.text);
        if (!child_answer(&out, sizeof out, -1))
            break;
    }
    gvm_share_destroy(own.share);
    gvm_buffer_destroy(own.buffer);
    gvm_ipc_destroy(own.ipc);
    gvm_device_close(own.device);
    exit(0);
}

/* ---- in the test */

child buffer_child_start(void)
{
    return child_must_start(ROLE);
}

bool buffer_post(child *p, buffer_verb verb, uint64_t a, uint64_t b)
{
    const command c = {.verb = verb, .a = a, .b = b};

    return child_post(p, &c, sizeof c, -1);
}

bool buffer_wait(child *p, answer *out)
{
    const char *wrong = child_wait(p, out, sizeof *out, NULL);

    if (wrong == NULL)
        return true;
    *out = (answer){.status = GVM_E_SYSTEM};
    snprintf(out->text, sizeof out->text, "%s", wrong);
    return false;
}

static answer do_command(child *p, const command *c, int fd)
{
    answer out = {.status = GVM_E_SYSTEM};

    if (child_post(p, c, sizeof *c, fd))
        (void)buffer_wait(p, &out);
    return out;
}

answer buffer_do(child *p, buffer_verb verb, uint64_t a, uint64_t b)
{
    return do_command(p, &(command){.verb = verb, .a = a, .b = b}, -1);
}

answer buffer_open_ipc(child *p, const gvm_ipc_handle *handle)
{
    return do_command(p, &(command){.verb = BUFFER_IPC_OPEN, .handle = *handle}, -1);
}

void buffer_connect(child *a, child *b)
{
    child *both[2] = {a, b};
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        tap_bail_out("socketpair() failed");
    for (int i = 0; i < 2; i++) {
        (void)do_command(both[i], &(command){.verb = BUFFER_CONNECT}, ends[i]);
        close(ends[i]);
    }
}

bool buffer_expect(const char *file, int line, child *p, buffer_verb verb, uint64_t a, uint64_t b,
                   gvm_status wanted)
{
    answer out = buffer_do(p, verb, a, b);

    if (out.status == wanted)
        return true;
    printf("# %s:%d: %s answered %s, not %s: %s\n", file, line, buffer_verb_name(verb),
           gvm_status_name(out.status), gvm_status_name(wanted), out.text);
    return false;
}

void buffer_test_begin(uint64_t memory_bytes)
{
    fixture_machine_default("devices=2,memory=%lluMiB,sms=2", (unsigned long long)(memory_bytes / MIB));
    fixture_raise_fd_limit();
    memory_watch();
}
