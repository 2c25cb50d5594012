/* Children that have regions in common; see region_child.h. */
#include "tests/proc/region_child.h"

#include <gvmem/gvmem.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/driver.h"
#include "tests/proc/keeper_child.h"
#include "tests/proc/region_process_kernels.h"

#define ROLE "--region-child"
#define BLOCKS 4u
#define SYNCS_MAX 1000u
#define DIGESTS_AT (2 * REGION_COUNT * sizeof(uint32_t))
#define WRONG_AT (DIGESTS_AT + REGION_COUNT * sizeof(uint64_t))
#define MEMORY_BYTES (WRONG_AT + 4 * sizeof(uint64_t))

typedef struct command {
    uint32_t verb, has_board;
    uint64_t a, b;
} command;

extern const unsigned char gvmi_image_soft_region_process_kernels[];
extern const unsigned char *const gvmi_image_cuda_region_process_kernels;

/* ---- in the child */

static struct {
    board *board;
    uint32_t self;
    gvm_device *device;
    gvm_client *client;
    gvm_object *object;
    gvm_space *space;
    gvm_collection *regions;
    gvm_buffer *memory; /* low, high, digests, wrong */
    CUfunction write, check;
    uint32_t threads;
} own;

static gvm_status load_kernels(void)
{
    gvm_device_info info = {.struct_size = sizeof info};
    CUmodule module;
    gvm_status status = gvm_device_get_info(own.device, &info);

    if (status != GVM_OK)
        return status;
    own.threads = info.block_threads_max < 64 ? (uint32_t)info.block_threads_max : 64;
    if (gvmi_cu->cuModuleLoadData(&module, info.software ? gvmi_image_soft_region_process_kernels
                                                         : gvmi_image_cuda_region_process_kernels) !=
            CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&own.write, module, "process_write") != CUDA_SUCCESS ||
        gvmi_cu->cuModuleGetFunction(&own.check, module, "process_check") != CUDA_SUCCESS)
        return gvm_error_set(GVM_E_DRIVER, "cannot load the kernels");
    return GVM_OK;
}

static gvm_status open_device(int ordinal)
{
    int32_t count = 0;
    gvm_status status = gvm_device_count(&count);

    if (status == GVM_OK)
        status = gvm_device_open(count > 0 ? ordinal % count : 0, &own.device);
    if (status == GVM_OK)
        status = gvm_device_push_context(own.device);
    step_watch_driver();
    if (status == GVM_OK)
        status = load_kernels();
    if (status == GVM_OK)
        status = gvm_buffer_create(own.device, MEMORY_BYTES, NULL, &own.memory);
    return status == GVM_OK ? gvm_buffer_commit(own.memory, 0, MEMORY_BYTES) : status;
}

static gvm_status attach(uint32_t self, int ordinal)
{
    gvm_space_options options = gvm_space_options_init();
    gvm_status status = own.device == NULL ? open_device(ordinal) : GVM_OK;

    own.self = self;
    options.budget_bytes = BUDGET_BYTES;
    options.flags = GVM_SPACE_CHECK;
    options.wait_ms = 60000;
    if (status == GVM_OK && own.client == NULL)
        status = gvm_client_connect(own.board->socket, &own.client);
    if (status == GVM_OK)
        status = gvm_object_open(own.client, REGIONS_NAME, 0, &own.object);
    if (status == GVM_OK)
        status = gvm_space_create(own.device, &options, &own.space);
    return status == GVM_OK
               ? gvm_collection_attach(own.space, own.object, NULL, GVM_FOREVER, &own.regions)
               : status;
}

static gvm_status detach(void)
{
    gvm_space_destroy(own.space);
    gvm_object_close(own.object);
    own.space = NULL;
    own.object = NULL;
    own.regions = NULL;
    return GVM_OK;
}

static gvm_status launch(CUfunction function, process_params *params)
{
    void *arguments[] = {params};
    gvm_status status = gvm_collection_get_view(own.regions, &params->view);

    if (status != GVM_OK)
        return status;
    params->self = own.self;
    params->parties = PARTIES;
    if (gvmi_cu->cuLaunchKernel(function, BLOCKS, 1, 1, own.threads, 1, 1, 0, NULL, arguments,
                                NULL) != CUDA_SUCCESS ||
        gvmi_cu->cuStreamSynchronize(NULL) != CUDA_SUCCESS)
        return gvm_error_set(GVM_E_DRIVER, "a kernel failed");
    return GVM_OK;
}

static gvm_status sync_space(void)
{
    gvm_status status = GVM_E_TIMEOUT;

    for (uint32_t i = 0; i < SYNCS_MAX && status == GVM_E_TIMEOUT; i++)
        status = gvm_space_sync(own.space, NULL);
    return status;
}

static gvm_status write_by_cpu(uint64_t round)
{
    gvm_status status = GVM_OK;

    for (uint32_t r = 0; r < REGION_COUNT && status == GVM_OK; r++) {
        uint64_t *units;
        void *pointer;

        if (writer_of(round, r, PARTIES, 0) != own.self)
            continue;
        status = gvm_region_map_cpu(own.regions, r, GVM_REGION_WRITE, &pointer);
        if (status != GVM_OK)
            break;
        units = pointer;
        for (uint64_t i = 0; i < REGION_BYTES / UNIT_BYTES; i++) {
            units[2 * i] = round;
            units[2 * i + 1] = UNIT_PLACE(r, i);
        }
        status = gvm_region_unmap_cpu(own.regions, r);
    }
    return status;
}

static gvm_status fail_unit(uint64_t region, uint64_t i, uint64_t round)
{
    return gvm_error_set(GVM_E_FORMAT, "unit %llu of region %llu is of round %llu, not %u to %u",
                         (unsigned long long)i, (unsigned long long)region,
                         (unsigned long long)round, own.board->low[region], own.board->high[region]);
}

static gvm_status check_by_cpu(void)
{
    gvm_status status = GVM_OK;

    for (uint32_t r = 0; r < REGION_COUNT && status == GVM_OK; r++) {
        uint64_t *digest = &own.board->parties[own.self].at_home[r];
        const uint64_t *units;
        void *pointer;

        status = gvm_region_map_cpu(own.regions, r, GVM_REGION_READ, &pointer);
        if (status != GVM_OK)
            break;
        units = pointer;
        *digest = 0;
        for (uint64_t i = 0; i < REGION_BYTES / UNIT_BYTES; i++)
            *digest += mix_round(units[2 * i], (uint32_t)i);
        for (uint64_t i = 0; i < REGION_BYTES / UNIT_BYTES && status == GVM_OK; i++)
            if (units[2 * i] < own.board->low[r] || units[2 * i] > own.board->high[r] ||
                units[2 * i + 1] != UNIT_PLACE(r, i))
                status = fail_unit(r, i, units[2 * i]);
        if (gvm_region_unmap_cpu(own.regions, r) != GVM_OK)
            status = GVM_E_INVALID;
    }
    return status;
}

/* There and back, so that what was left in frames is read before others need these. */
static gvm_status check_by_kernel(void)
{
    static uint32_t backward;
    const uint64_t base = (uint64_t)(uintptr_t)gvm_buffer_address(own.memory);
    const uint64_t bytes = REGION_COUNT * sizeof(uint32_t);
    process_params params = {.low = base,
                             .high = base + bytes,
                             .digests = base + DIGESTS_AT,
                             .wrong = base + WRONG_AT,
                             .backward = backward ^= 1};
    const uint8_t zero = 0;
    uint64_t wrong[4];
    gvm_status status = gvm_buffer_fill(own.memory, 0, MEMORY_BYTES, &zero, 1);

    if (status == GVM_OK)
        status = gvm_buffer_copy_in(own.memory, 0, own.board->low, bytes);
    if (status == GVM_OK)
        status = gvm_buffer_copy_in(own.memory, bytes, own.board->high, bytes);
    if (status == GVM_OK)
        status = launch(own.check, &params);
    if (status == GVM_OK)
        status = gvm_buffer_copy_out(own.board->parties[own.self].digests, own.memory, DIGESTS_AT,
                                     sizeof own.board->parties[own.self].digests);
    if (status == GVM_OK)
        status = gvm_buffer_copy_out(wrong, own.memory, WRONG_AT, sizeof wrong);
    return status == GVM_OK && wrong[0] != 0 ? fail_unit(wrong[1], wrong[2], wrong[3]) : status;
}

/* Rounds of writes and syncs. */
static gvm_status run(uint64_t round, uint64_t count)
{
    party *p = &own.board->parties[own.self];
    gvm_status status = GVM_OK;
    gvm_error error;

    for (uint64_t i = 0; (count == 0 || i < count) && status == GVM_OK; i++) {
        process_params params = {.round = round + i, .owned = 1};

        atomic_store(&p->started, round + i);
        status = launch(own.write, &params);
        if (status == GVM_OK)
            status = sync_space();
        if (status == GVM_OK)
            atomic_store(&p->synced, round + i);
    }
    if (status != GVM_OK) {
        gvm_error_last(&error);
        snprintf(p->problem, sizeof p->problem, "round %llu: %s: %.150s", (unsigned long long)round,
                 gvm_status_name(status), error.text);
    }
    return status;
}

static gvm_status obey(const command *c, region_answer *out)
{
    process_params params = {.round = c->a, .owned = c->b != 0};

    switch ((region_verb)c->verb) {
    case REGION_ATTACH: return attach((uint32_t)c->a, (int)c->b);
    case REGION_DETACH: return detach();
    case REGION_WRITE: return launch(own.write, &params);
    case REGION_WRITE_ALL: params.all = 1; return launch(own.write, &params);
    case REGION_CPU_WRITE: return write_by_cpu(c->a);
    case REGION_SYNC: return sync_space();
    case REGION_CHECK: return check_by_kernel();
    case REGION_CHECK_BY_CPU: return check_by_cpu();
    case REGION_RUN: {
        const gvm_status status = run(c->a, c->b);

        out->value = step_count();
        return status;
    }
    case REGION_ARM: step_arm(c->a, SIGKILL); return GVM_OK;
    }
    return GVM_E_INVALID;
}

void region_child_main(int argc, char **argv)
{
    command c;
    int fd;

    if (!child_is(argc, argv, ROLE))
        return;
    while (child_next(&c, sizeof c, &fd)) {
        region_answer out;
        gvm_error error;

        memset(&out, 0, sizeof out);
        if (c.has_board) {
            own.board = mmap(NULL, sizeof *own.board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            out.status = own.board != MAP_FAILED ? GVM_OK : GVM_E_SYSTEM;
        } else {
            out.status = obey(&c, &out);
        }
        if (fd >= 0)
            close(fd);
        gvm_error_last(&error);
        if (out.status != GVM_OK)
            snprintf(out.text, sizeof out.text, "%.199s", error.text);
        if (!child_answer(&out, sizeof out, -1))
            break;
    }
    (void)detach();
    gvm_client_close(own.client);
    gvm_buffer_destroy(own.memory);
    gvm_device_close(own.device);
    exit(0);
}

/* ---- in the test */

child region_child_start(int board_fd)
{
    const command c = {.has_board = 1};
    child started = child_must_start(ROLE);

    if (!child_post(&started, &c, sizeof c, board_fd) || region_wait(&started).status != GVM_OK)
        tap_bail_out("a child has no board");
    return started;
}

bool region_post(child *c, region_verb verb, uint64_t a, uint64_t b)
{
    const command what = {.verb = (uint32_t)verb, .a = a, .b = b};

    return child_post(c, &what, sizeof what, -1);
}

region_answer region_wait(child *c)
{
    region_answer out = {0};
    const char *wrong = child_wait(c, &out, sizeof out, NULL);

    if (wrong != NULL) {
        out = (region_answer){.status = GVM_E_SYSTEM};
        snprintf(out.text, sizeof out.text, "%s", wrong);
    }
    return out;
}

region_answer region_do(child *c, region_verb verb, uint64_t a, uint64_t b)
{
    return region_post(c, verb, a, b) ? region_wait(c)
                                      : (region_answer){GVM_E_SYSTEM, 0, "the process is dead"};
}
