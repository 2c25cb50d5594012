/* Keepers and clients that do what the test tells them; see keeper_child.h. */
#include "tests/proc/keeper_child.h"
#include "tools/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROLE "--keeper-child"

typedef struct command {
    uint32_t verb, slot;
    uint64_t a, b;
    char name[PATH_BYTES];
} command;

static const char *const verb_names[] = {
#define NAME(verb_) #verb_,
    KEEPER_VERBS(NAME)
#undef NAME
};

/* ---- in the child */

static struct {
    gvm_device *device;
    gvm_keeper *server;
    gvm_client *keeper;
    gvm_object *objects[SLOTS];
    gvm_lease leases[SLOTS], latest[SLOTS];
} own;

static gvm_status do_serve(const command *c)
{
    const bool lending = getenv(LENDING) != NULL;
    const int32_t both[] = {0, 1};
    const gvm_keeper_options options = {
        .struct_size = sizeof options,
        .path = c->name,
        .devices = both,
        .device_count = lending ? 2 : 1,
        .device_budget_bytes = (lending ? LENDING_BUDGET_CHUNKS : DEVICE_BUDGET_CHUNKS) * CHUNK_BYTES,
        .host_budget_bytes = HOST_BUDGET_CHUNKS * CHUNK_BYTES,
        .revoke_limit_ms = (uint32_t)c->a,
        .lease_limit_ms = (uint32_t)c->b,
    };

    return gvm_keeper_start(&options, &own.server);
}

static gvm_status do_create(const command *c)
{
    const gvm_object_options options = {
        .struct_size = sizeof options, .chunk_bytes = CHUNK_BYTES, .size_bytes = c->b * CHUNK_BYTES};

    return gvm_object_create(own.keeper, c->name[0] != '\0' ? c->name : NULL, c->a * CHUNK_BYTES,
                             &options, &own.objects[c->slot]);
}

static gvm_status do_acquire(const command *c, keeper_answer *out)
{
    gvm_status status = gvm_object_acquire(own.objects[c->slot], (gvm_lease_mode)c->a, NULL,
                                           (int)c->b, &own.leases[c->slot]);

    if (status == GVM_OK) {
        own.latest[c->slot] = own.leases[c->slot];
        out->value = own.leases[c->slot].size_bytes;
    }
    return status;
}

static void do_close(unsigned slot)
{
    gvm_object_close(own.objects[slot]);
    own.objects[slot] = NULL;
    own.leases[slot] = (gvm_lease){0};
}

static gvm_status do_disconnect(void)
{
    for (unsigned i = 0; i < SLOTS; i++)
        do_close(i);
    gvm_client_close(own.keeper);
    own.keeper = NULL;
    return GVM_OK;
}

static gvm_status do_snapshot(keeper_answer *out)
{
    snapshot_copy *snapshot = NULL;
    gvm_status status = snapshot_take(own.keeper, &snapshot);

    if (status != GVM_OK)
        return status;
    out->keeper = snapshot->keeper;
    out->device = snapshot->devices[0];
    if (snapshot->keeper.devices > 1) { /* which lends; it has no objects of its own */
        const gvm_keeper_device_info *lender = &snapshot->devices[1];

        out->device.resident_bytes += lender->resident_bytes;
        out->device.free_bytes += lender->free_bytes;
        out->device.held_bytes += lender->held_bytes;
        out->device.lent_bytes += lender->lent_bytes;
    }
    for (uint32_t i = 0; i < snapshot->keeper.clients; i++)
        out->cut_off += snapshot->clients[i].cut_off;
    snapshot_free(snapshot);
    return GVM_OK;
}

static gvm_status obey(const command *c, keeper_answer *out)
{
    gvm_object *object = own.objects[c->slot];
    gvm_lease *lease = &own.leases[c->slot];

    switch ((keeper_verb)c->verb) {
    case KEEPER_SERVE: return do_serve(c);
    case KEEPER_STOP:
        gvm_keeper_stop(own.server);
        own.server = NULL;
        return GVM_OK;
    case KEEPER_CONNECT: return gvm_client_connect(c->name, &own.keeper);
    case KEEPER_DISCONNECT: return do_disconnect();
    case KEEPER_CREATE: return do_create(c);
    case KEEPER_OPEN:
        return gvm_object_open(own.keeper, c->name, (uint32_t)c->a, &own.objects[c->slot]);
    case KEEPER_CLOSE: do_close(c->slot); return GVM_OK;
    case KEEPER_DROP: return gvm_object_drop(own.keeper, c->name);
    case KEEPER_ACQUIRE: return do_acquire(c, out);
    case KEEPER_RELEASE: return gvm_object_release(object, lease);
    case KEEPER_FILL: return life_fill(own.device, lease, c->a);
    case KEEPER_CHECK: return life_check(own.device, &own.latest[c->slot], &out->value);
    case KEEPER_GROW: return gvm_object_grow(object, c->a * CHUNK_BYTES);
    case KEEPER_SEAL: return gvm_object_seal(object, (int)c->a);
    case KEEPER_PUBLISH: return gvm_object_publish(object, c->name, (uint32_t)c->a);
    case KEEPER_EVICT:
        return gvm_client_evict(own.keeper, c->name, GVM_BYTES_UNLIMITED, &out->value);
    case KEEPER_TRIM: return gvm_client_trim(own.keeper, 0, 0, &out->value);
    case KEEPER_INFO: return gvm_object_get_info(object, &out->object);
    case KEEPER_SNAPSHOT: return do_snapshot(out);
    case KEEPER_SCENARIO: return life_scenario(own.device, c->name);
    case KEEPER_RANDOM: return life_random(own.device, c->name, c->a);
    case KEEPER_ARM: out->value = step_arm(c->a, (int)c->b); return GVM_OK;
    case KEEPER_WRITTEN:
        out->value = life_wrote_from;
        out->until = life_wrote_until;
        return GVM_OK;
    case KEEPER_SET_MODE: return gvm_object_set_mode(object, (uint32_t)c->a);
    case KEEPER_BECOME: return process_become((uid_t)c->a, (gid_t)c->b) ? GVM_OK : GVM_E_SYSTEM;
    case KEEPER_EXEC: execlp("sleep", "sleep", "600", (char *)NULL); return GVM_E_SYSTEM;
    case KEEPER_VERB_COUNT: break;
    }
    return GVM_E_INVALID;
}

void keeper_child_main(int argc, char **argv)
{
    command c;

    if (!child_is(argc, argv, ROLE))
        return;
    if (gvm_device_open(0, &own.device) != GVM_OK)
        exit(1);
    step_watch_driver();
    while (child_next(&c, sizeof c, NULL)) {
        keeper_answer out;
        gvm_error error;

        memset(&out, 0, sizeof out);
        out.object.struct_size = sizeof out.object;
        out.status = c.slot < SLOTS ? obey(&c, &out) : GVM_E_INVALID;
        gvm_error_last(&error);
        if (out.status != GVM_OK)
            snprintf(out.text, sizeof out.text, "%.199s", error.text);
        if (!child_answer(&out, sizeof out, -1))
            break;
    }
    (void)do_disconnect();
    gvm_keeper_stop(own.server);
    gvm_device_close(own.device);
    exit(0);
}

/* ---- in the test */

child keeper_child_start(void)
{
    return child_must_start(ROLE);
}

bool keeper_post(child *p, keeper_verb verb, unsigned slot, const char *name, uint64_t a, uint64_t b)
{
    command c = {.verb = verb, .slot = slot, .a = a, .b = b};

    snprintf(c.name, sizeof c.name, "%s", name != NULL ? name : "");
    return child_post(p, &c, sizeof c, -1);
}

static keeper_answer no_answer(const char *why)
{
    keeper_answer out = {.status = GVM_E_SYSTEM};

    snprintf(out.text, sizeof out.text, "%s", why);
    return out;
}

bool keeper_wait(child *p, keeper_answer *out)
{
    const char *wrong = child_wait(p, out, sizeof *out, NULL);

    if (wrong != NULL)
        *out = no_answer(wrong);
    return wrong == NULL;
}

keeper_answer keeper_do(child *p, keeper_verb verb, unsigned slot, const char *name, uint64_t a,
                        uint64_t b)
{
    keeper_answer out = no_answer("the process is dead");

    if (keeper_post(p, verb, slot, name, a, b))
        (void)keeper_wait(p, &out);
    return out;
}

bool keeper_expect(const char *file, int line, child *p, keeper_verb verb, unsigned slot,
                   const char *name, uint64_t a, uint64_t b, gvm_status wanted)
{
    keeper_answer out = keeper_do(p, verb, slot, name, a, b);

    if (out.status == wanted)
        return true;
    printf("# %s:%d: %s %s answered %s, not %s: %s\n", file, line, verb_names[verb],
           name != NULL ? name : "", gvm_status_name(out.status), gvm_status_name(wanted), out.text);
    return false;
}
