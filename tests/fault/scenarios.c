/* One row per public operation that can fail for a reason outside its caller. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "keeper/table/table.h"
#include "memory/buffer.h"
#include "tests/fault/fault.h"

#define TIMEOUT_MS 2000
#define ELEMS 1000 /* that a fixture's vector holds, of 8 bytes */

static const uint32_t both_columns[] = {0, 1};

const gvm_ipc_handle *foreign_handle;
const char *foreign_token;

/* ---- fixtures */

static uint8_t pattern_of(uint64_t chunk)
{
    return (uint8_t)(0x21 + chunk);
}

static bool holds(gvm_buffer *buffer, uint64_t chunk)
{
    static uint8_t bytes[CHUNK];

    if (gvm_buffer_copy_out(bytes, buffer, chunk * CHUNK, CHUNK) != GVM_OK)
        return false;
    for (size_t i = 0; i < CHUNK; i++)
        if (bytes[i] != pattern_of(chunk))
            return false;
    return true;
}

static bool fill_chunk(gvm_buffer *buffer, uint64_t chunk)
{
    const uint8_t pattern = pattern_of(chunk);

    return gvm_buffer_fill(buffer, chunk * CHUNK, CHUNK, &pattern, 1) == GVM_OK;
}

bool runs_device_functions(fixture *w)
{
    gvm_device_info info = {.struct_size = sizeof info};

    return gvm_device_get_info(w->device, &info) == GVM_OK && info.software;
}

bool fixture_intact(fixture *w)
{
    if (w->heap != NULL && gvm_heap_check(w->heap) != GVM_OK)
        return false;
    for (uint64_t i = 0; w->buffer != NULL && i < COMMITTED; i++)
        if (!holds(w->buffer, i) || (w->imported != NULL && !holds(w->imported, i)))
            return false;
    return (w->buffer == NULL || gvmi_buffer_check(w->buffer)) &&
           (w->target == NULL || gvmi_buffer_check(w->target)) && append_intact(w) &&
           (w->imported == NULL || gvmi_buffer_check(w->imported)) && region_intact(w);
}

static bool make_buffer(fixture *w, unsigned needs)
{
    gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};

    if (gvm_buffer_create(w->device, CHUNKS * CHUNK, &options, &w->buffer) != GVM_OK ||
        gvm_buffer_commit(w->buffer, 0, COMMITTED * CHUNK) != GVM_OK)
        return false;
    for (uint64_t i = 0; i < COMMITTED; i++)
        if (!fill_chunk(w->buffer, i))
            return false;
    return (needs & NEEDS_HOSTED) == 0 ||
           gvm_buffer_move(w->buffer, 0, COMMITTED * CHUNK, GVM_TIER_HOST) == GVM_OK;
}

static bool make_target(fixture *w, unsigned needs)
{
    gvm_buffer_options options = {.struct_size = sizeof options, .chunk_bytes = CHUNK};
    gvm_device *device = needs & NEEDS_FAR_TARGET ? w->peer : w->device;

    if ((needs & NEEDS_FAR_TARGET) != 0 &&
        gvm_buffer_grant(w->buffer, w->peer, GVM_ACCESS_READ) != GVM_OK)
        return false;
    return gvm_buffer_create(device, CHUNKS * CHUNK, &options, &w->target) == GVM_OK &&
           gvm_buffer_commit(w->target, 0, 2 * CHUNK) == GVM_OK &&
           ((needs & NEEDS_MIXED) == 0 ||
            gvm_buffer_move(w->target, CHUNK, CHUNK, GVM_TIER_HOST) == GVM_OK);
}

static bool make_vector(fixture *w)
{
    static const uint64_t zeros[ELEMS];

    return gvm_vector_create(w->device, 8, 4 * CHUNK / 8, NULL, &w->vector) == GVM_OK &&
           gvm_vector_append(w->vector, zeros, ELEMS) == GVM_OK;
}

/* A share of the first chunk, its import with room for all, and a later share of what there is
 * now. */
static bool make_import(fixture *w)
{
    gvm_import_options options = {.struct_size = sizeof options, .reserve_bytes = CHUNKS * CHUNK};

    return gvm_share_import(w->device, w->share, &options, &w->imported) == GVM_OK &&
           gvm_buffer_commit(w->buffer, 3 * CHUNK, CHUNK) == GVM_OK && fill_chunk(w->buffer, 3) &&
           gvm_share_export(w->buffer, 0, 0, &w->later) == GVM_OK;
}

bool fixture_renew_sockets(fixture *w, unsigned needs)
{
    for (int i = 0; i < 2; i++)
        if (w->sockets[i] >= 0)
            close(w->sockets[i]);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, w->sockets) != 0)
        return false;
    return (needs & NEEDS_MESSAGE) == 0 ||
           gvm_share_send(w->share, w->sockets[0], TIMEOUT_MS) == GVM_OK;
}

static bool load_kernels(fixture *w)
{
    return gvm_kernel_checksum(w->device, gvm_buffer_address(w->buffer), 8, NULL, &w->number) == GVM_OK;
}

static gvm_status run_table_acquire(fixture *w)
{
    return gvm_table_acquire(w->table, both_columns, 2, NULL, TIMEOUT_MS, w->columns);
}

static bool make_all(fixture *w, unsigned needs)
{
    const unsigned buffer = NEEDS_BUFFER | NEEDS_SHARE | NEEDS_IMPORT | NEEDS_MESSAGE |
                            NEEDS_KERNELS | NEEDS_HOSTED | NEEDS_IPC;

    return (gvm_device_open(0, &w->device) == GVM_OK) &&
           (!(needs & NEEDS_PEER) || gvm_device_open(1, &w->peer) == GVM_OK) &&
           (!(needs & buffer) || make_buffer(w, needs)) &&
           (!(needs & NEEDS_TARGET) || make_target(w, needs)) &&
           (!(needs & NEEDS_VECTOR) || make_vector(w)) &&
           (!(needs & NEEDS_PIECE) || gvm_alloc(w->device, CHUNK, &w->piece) == GVM_OK) &&
           (!(needs & (NEEDS_SHARE | NEEDS_IMPORT | NEEDS_MESSAGE)) ||
            gvm_share_export(w->buffer, 0, 0, &w->share) == GVM_OK) &&
           (!(needs & NEEDS_IMPORT) || make_import(w)) &&
           (!(needs & NEEDS_SOCKETS) || fixture_renew_sockets(w, needs)) &&
           (!(needs & NEEDS_KERNELS) || load_kernels(w)) &&
           (!(needs & NEEDS_IPC) || gvm_ipc_export(w->buffer, 0, PART, &w->ipc) == GVM_OK) &&
           (!(needs & (NEEDS_HEAP | NEEDS_HOST_HEAP | NEEDS_MANAGED_HEAP)) || heap_make(w, needs)) &&
           (!(needs & NEEDS_OPENED) || gvm_ipc_open(w->device, foreign_handle, &w->opened) == GVM_OK) &&
           (!(needs & NEEDS_TABLE) || gvm_table_attach(foreign_token, 0, &w->table) == GVM_OK) &&
           (!(needs & NEEDS_LEASES) || run_table_acquire(w) == GVM_OK) &&
           (!(needs & NEEDS_SPACE) || region_make(w, needs)) &&
           (!(needs & NEEDS_COMMON) || region_make_common(w)) &&
           (!(needs & NEEDS_FRESH_APPENDER) || run_appender_create(w) == GVM_OK) &&
           (!(needs & (NEEDS_APPENDER | NEEDS_BEGUN)) || append_make(w, (needs & NEEDS_BEGUN) != 0));
}

bool fixture_reattach(fixture *w, unsigned needs)
{
    gvm_table_detach(w->table);
    w->table = NULL;
    return gvm_table_attach(foreign_token, 0, &w->table) == GVM_OK &&
           (!(needs & NEEDS_LEASES) || run_table_acquire(w) == GVM_OK);
}

bool fixture_begin(fixture *w, unsigned needs)
{
    gvm_error error;

    *w = (fixture){.sockets = {-1, -1}};
    if ((needs & ((1u << 20) - 1)) == 0 || make_all(w, needs))
        return true;
    gvm_error_last(&error);
    printf("# a fixture could not be made: %s: %s\n", gvm_status_name(error.status), error.text);
    fixture_end(w);
    return false;
}

void fixture_end(fixture *w)
{
    /* What was queued uses memory that goes now. */
    if ((w->device != NULL && gvm_device_synchronize(w->device) != GVM_OK) ||
        (w->peer != NULL && gvm_device_synchronize(w->peer) != GVM_OK))
        printf("#   the devices are not idle\n");
    for (int i = 0; i < 2; i++)
        if (w->sockets[i] >= 0)
            close(w->sockets[i]);
    if (w->opened != NULL)
        (void)gvm_ipc_close(w->device, w->opened);
    region_end(w);
    gvm_callback_server_destroy(w->server);
    gvm_buffer_destroy(w->taken);
    gvm_appender_destroy(w->appender);
    gvm_table_detach(w->table);
    gvm_object_close(w->rows);
    gvm_client_close(w->loader);
    heap_end(w);
    gvm_ipc_destroy(w->ipc);
    gvm_share_destroy(w->later);
    gvm_share_destroy(w->share);
    gvm_buffer_destroy(w->imported);
    (void)gvm_free(w->piece);
    gvm_vector_destroy(w->vector);
    gvm_buffer_destroy(w->target);
    gvm_buffer_destroy(w->buffer);
    gvm_device_close(w->peer);
    gvm_device_close(w->device);
}

/* ---- operations */

static gvm_status run_device_count(fixture *w)
{
    return gvm_device_count(&w->count);
}

static bool shows_device_count(fixture *w)
{
    return w->count > 0;
}

static gvm_status run_device_open(fixture *w)
{
    return gvm_device_open(0, &w->device);
}

static bool shows_device_open(fixture *w)
{
    return w->device != NULL && gvm_device_synchronize(w->device) == GVM_OK;
}

static gvm_status run_device_get_info(fixture *w)
{
    w->device_info.struct_size = sizeof w->device_info;
    return gvm_device_get_info(w->device, &w->device_info);
}

static bool shows_device_get_info(fixture *w)
{
    return w->device_info.total_bytes > 0 && w->device_info.free_bytes <= w->device_info.total_bytes;
}

static gvm_status run_device_synchronize(fixture *w)
{
    return gvm_device_synchronize(w->device);
}

static gvm_status run_buffer_create(fixture *w)
{
    return gvm_buffer_create(w->device, 5 * CHUNK, NULL, &w->target);
}

static bool shows_buffer_create(fixture *w)
{
    return gvm_buffer_address(w->target) != NULL;
}

static gvm_status run_buffer_commit(fixture *w)
{
    return gvm_buffer_commit(w->buffer, CHUNK, 5 * CHUNK); /* one is there already */
}

static bool shows_buffer_commit(fixture *w)
{
    for (uint64_t i = COMMITTED; i < 6; i++)
        if (!fill_chunk(w->buffer, i) || !holds(w->buffer, i))
            return false;
    return true;
}

static gvm_status run_buffer_decommit(fixture *w)
{
    return gvm_buffer_decommit(w->target, 0, CHUNKS * CHUNK);
}

static bool shows_buffer_decommit(fixture *w)
{
    gvm_buffer_info info = {.struct_size = sizeof info};

    return gvm_buffer_get_info(w->target, &info) == GVM_OK && info.device_bytes == 0;
}

static gvm_status run_buffer_seal(fixture *w)
{
    return gvm_buffer_seal(w->buffer);
}

static bool shows_buffer_seal(fixture *w)
{
    return gvm_buffer_copy_in(w->buffer, 0, w->bytes, 1) == GVM_E_SEALED;
}

static gvm_status run_move_out(fixture *w)
{
    return gvm_buffer_move(w->buffer, 0, CHUNKS * CHUNK, GVM_TIER_HOST);
}

static bool all_in(fixture *w, gvm_tier wanted)
{
    gvm_tier tier;

    for (uint64_t i = 0; i < COMMITTED; i++)
        if (gvm_buffer_get_tier(w->buffer, i * CHUNK, &tier) != GVM_OK || tier != wanted)
            return false;
    return true;
}

static bool shows_move_out(fixture *w)
{
    return all_in(w, GVM_TIER_HOST);
}

static gvm_status run_move_in(fixture *w)
{
    return gvm_buffer_move(w->buffer, 0, CHUNKS * CHUNK, GVM_TIER_DEVICE);
}

static bool shows_move_in(fixture *w)
{
    return all_in(w, GVM_TIER_DEVICE);
}

static gvm_status run_move_to_peer(fixture *w)
{
    return gvm_buffer_move_to_peer(w->buffer, 0, CHUNKS * CHUNK, w->peer);
}

static bool shows_move_to_peer(fixture *w)
{
    return all_in(w, GVM_TIER_PEER);
}

static gvm_status run_buffer_grant(fixture *w)
{
    return gvm_buffer_grant(w->buffer, w->peer, GVM_ACCESS_READWRITE);
}

static bool shows_buffer_grant(fixture *w)
{
    const CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    unsigned long long flags = 0;

    return gvmi_cu->cuMemGetAccess(
               &flags, &where, gvmi_address(gvm_buffer_address(w->buffer)) + CHUNK) == CUDA_SUCCESS &&
           flags == GVM_ACCESS_READWRITE;
}

/* Copies cross the end of a chunk. */
#define CROSSING (CHUNK - PART / 2)

static gvm_status run_copy_in(fixture *w)
{
    memset(w->bytes, 0x77, PART);
    return gvm_buffer_copy_in(w->target, CROSSING, w->bytes, PART);
}

static gvm_status run_copy_in_async(fixture *w)
{
    memset(w->bytes, 0x77, PART);
    return gvm_buffer_copy_in_async(w->target, CROSSING, w->bytes, PART, NULL);
}

static bool target_holds(fixture *w, uint8_t first, uint8_t second)
{
    uint8_t *bytes = w->bytes;

    if (gvm_device_synchronize(w->device) != GVM_OK ||
        gvm_buffer_copy_out(bytes, w->target, CROSSING, PART) != GVM_OK)
        return false;
    for (size_t i = 0; i < PART; i++)
        if (bytes[i] != (i < PART / 2 ? first : second))
            return false;
    return true;
}

static bool shows_copy_in(fixture *w)
{
    return target_holds(w, 0x77, 0x77);
}

static gvm_status run_copy_out(fixture *w)
{
    return gvm_buffer_copy_out(w->bytes, w->buffer, CROSSING, PART);
}

static gvm_status run_copy_out_async(fixture *w)
{
    return gvm_buffer_copy_out_async(w->bytes, w->buffer, CROSSING, PART, NULL);
}

static bool shows_copy_out(fixture *w)
{
    return gvm_device_synchronize(w->device) == GVM_OK && w->bytes[0] == pattern_of(0) &&
           w->bytes[PART - 1] == pattern_of(1);
}

static gvm_status run_copy(fixture *w)
{
    return gvm_buffer_copy(w->target, CROSSING, w->buffer, CROSSING, PART);
}

static gvm_status run_copy_async(fixture *w)
{
    return gvm_buffer_copy_async(w->target, CROSSING, w->buffer, CROSSING, PART, NULL);
}

static bool shows_copy(fixture *w)
{
    return target_holds(w, pattern_of(0), pattern_of(1));
}

static gvm_status run_fill(fixture *w)
{
    return gvm_buffer_fill(w->target, CROSSING, PART, "\x55\x55", 2);
}

static gvm_status run_fill_async(fixture *w)
{
    return gvm_buffer_fill_async(w->target, CROSSING, PART, "\x55\x55\x55\x55", 4, NULL);
}

static bool shows_fill(fixture *w)
{
    return target_holds(w, 0x55, 0x55);
}

static gvm_status run_buffer_get_info(fixture *w)
{
    w->buffer_info.struct_size = sizeof w->buffer_info;
    return gvm_buffer_get_info(w->buffer, &w->buffer_info);
}

static gvm_status run_vector_create(fixture *w)
{
    return gvm_vector_create(w->device, 12, 1000000, NULL, &w->vector);
}

static bool shows_vector_create(fixture *w)
{
    return gvm_vector_address(w->vector) != NULL;
}

static gvm_status run_vector_append(fixture *w)
{
    static const uint64_t elems[2 * CHUNK / 8] = {1}; /* over the end of what is committed */

    return gvm_vector_append(w->vector, elems, 2 * CHUNK / 8);
}

static bool shows_vector_append(fixture *w)
{
    uint64_t element = 0;

    return gvm_vector_count(w->vector) == ELEMS + 2 * CHUNK / 8 &&
           gvm_buffer_copy_out(&element, gvm_vector_buffer(w->vector), ELEMS * 8, 8) == GVM_OK &&
           element == 1;
}

static gvm_status run_vector_resize(fixture *w)
{
    return gvm_vector_resize(w->vector, 3 * CHUNK / 8);
}

static bool shows_vector_resize(fixture *w)
{
    return gvm_vector_count(w->vector) == 3 * CHUNK / 8;
}

static gvm_status run_vector_commit(fixture *w)
{
    return gvm_vector_commit(w->vector, 3 * CHUNK / 8);
}

static bool shows_vector_commit(fixture *w)
{
    return gvm_vector_capacity(w->vector) == 3 * CHUNK / 8 && gvm_vector_count(w->vector) == ELEMS;
}

static gvm_status run_vector_shrink(fixture *w)
{
    gvm_status status = gvm_vector_resize(w->vector, 0);

    return status != GVM_OK ? status : gvm_vector_shrink(w->vector);
}

static gvm_status run_alloc(fixture *w)
{
    return gvm_alloc(w->device, 3 * CHUNK + 5, &w->piece);
}

static bool shows_alloc(fixture *w)
{
    gvm_buffer *buffer;

    return gvm_alloc_buffer(w->piece, &buffer) == GVM_OK &&
           gvm_buffer_fill(buffer, 0, 3 * CHUNK + 5, "x", 1) == GVM_OK;
}

static gvm_status run_alloc_pitch(fixture *w)
{
    uint64_t pitch_bytes;

    return gvm_alloc_pitch(w->device, 1000, 3 * CHUNK / 1024, &w->piece, &pitch_bytes);
}

static bool shows_alloc_pitch(fixture *w)
{
    gvm_buffer *buffer;

    return gvm_alloc_buffer(w->piece, &buffer) == GVM_OK &&
           gvm_buffer_fill(buffer, 0, 3 * CHUNK, "x", 1) == GVM_OK;
}

static gvm_status run_free(fixture *w)
{
    gvm_status status = gvm_free(w->piece);

    if (status == GVM_OK)
        w->piece = NULL;
    return status;
}

static gvm_status run_share_export(fixture *w)
{
    return gvm_share_export(w->buffer, 0, 0, &w->share);
}

static bool shows_share(fixture *w)
{
    gvm_share_info info = {.struct_size = sizeof info};

    return gvm_share_get_info(w->share, &info) == GVM_OK && info.chunk_count == COMMITTED;
}

static gvm_status run_share_send(fixture *w)
{
    return gvm_share_send(w->share, w->sockets[0], TIMEOUT_MS);
}

static bool shows_share_send(fixture *w)
{
    return gvm_share_receive(w->sockets[1], TIMEOUT_MS, &w->later) == GVM_OK;
}

static gvm_status run_share_receive(fixture *w)
{
    return gvm_share_receive(w->sockets[1], TIMEOUT_MS, &w->later);
}

static bool shows_share_receive(fixture *w)
{
    gvm_share_info info = {.struct_size = sizeof info};

    return gvm_share_get_info(w->later, &info) == GVM_OK && info.chunk_count == COMMITTED;
}

static gvm_status run_share_import(fixture *w)
{
    return gvm_share_import(w->device, w->share, NULL, &w->imported);
}

static bool shows_share_import(fixture *w)
{
    return w->imported != NULL && holds(w->imported, 0) && holds(w->imported, 1);
}

static gvm_status run_share_update(fixture *w)
{
    return gvm_buffer_update(w->imported, w->later);
}

static bool shows_share_update(fixture *w)
{
    return holds(w->imported, 0) && holds(w->imported, 3);
}

static gvm_status run_ipc_export(fixture *w)
{
    return gvm_ipc_export(w->buffer, 0, PART, &w->ipc);
}

static bool shows_ipc_export(fixture *w)
{
    gvm_ipc_info info = {.struct_size = sizeof info};

    return gvm_ipc_get_info(w->ipc, &info) == GVM_OK && info.address != NULL && info.size_bytes == PART;
}

static gvm_status run_ipc_open(fixture *w)
{
    return gvm_ipc_open(w->device, foreign_handle, &w->opened);
}

static bool shows_ipc_open(fixture *w)
{
    return w->opened != NULL;
}

static gvm_status run_ipc_close(fixture *w)
{
    gvm_status status = gvm_ipc_close(w->device, w->opened);

    if (status == GVM_OK)
        w->opened = NULL;
    return status;
}

static gvm_status run_fill_random(fixture *w)
{
    return gvm_kernel_fill_random_f64(w->device, gvm_buffer_address(w->target), 1000, 0, 7, NULL);
}

static gvm_status run_sum(fixture *w)
{
    return gvm_kernel_sum_f64(w->device, gvm_buffer_address(w->buffer), 1000, NULL, &w->real);
}

static bool shows_sum(fixture *w)
{
    double one;

    memset(&one, pattern_of(0), sizeof one);
    return w->real > 999.9 * one && w->real < 1000.1 * one;
}

static gvm_status run_checksum(fixture *w)
{
    return gvm_kernel_checksum(w->device, gvm_buffer_address(w->buffer), CHUNK, NULL, &w->number);
}

static bool shows_checksum(fixture *w)
{
    static uint8_t bytes[CHUNK];

    memset(bytes, pattern_of(0), CHUNK);
    return w->number == gvm_kernel_checksum_host(bytes, CHUNK);
}

static gvm_status run_compare(fixture *w)
{
    return gvm_kernel_compare(w->device, gvm_buffer_address(w->buffer),
                              (char *)gvm_buffer_address(w->buffer) + CHUNK - 64, 1000, NULL,
                              &w->number);
}

static bool shows_compare(fixture *w)
{
    return w->number == 64;
}

static gvm_status run_table_attach(fixture *w)
{
    return gvm_table_attach(foreign_token, 0, &w->table);
}

static gvm_status run_load_open(fixture *w)
{
    char token[2 * GVM_TABLE_TOKEN_BYTES_MAX + 32];
    gvmi_token table;

    if (gvmi_token_parse(foreign_token, &table) != GVM_OK)
        return GVM_E_INVALID;
    snprintf(token, sizeof token, "%s%d:%u:%s%s:%s", GVMI_LOAD_TOKEN_PREFIX, GVMI_LOAD_TOKEN_VERSION,
             (unsigned)table.owner, table.links, GVMI_LOAD_LINK, table.socket);
    return gvm_load_open(token, &w->loader, &w->rows);
}

static bool shows_load_open(fixture *w)
{
    const uint32_t word = 7;

    return gvm_object_copy_in(w->rows, 64, &word, sizeof word, TIMEOUT_MS) == GVM_OK;
}

static gvm_status run_table_attach_whole(fixture *w)
{
    return gvm_table_attach(foreign_token, GVM_TABLE_WHOLE, &w->table);
}

static bool shows_table_attach(fixture *w)
{
    gvm_table_info info = {.struct_size = sizeof info};
    uint32_t index;

    return gvm_table_get_info(w->table, &info) == GVM_OK && info.rows == FAULT_TABLE_ROWS &&
           gvm_table_find_column(w->table, "body", &index) == GVM_OK && index == 1;
}

static gvm_status run_table_open(fixture *w)
{
    return gvm_table_open_columns(w->table, both_columns, 2);
}

static bool shows_table_acquire(fixture *w)
{
    return table_reads_well(w->device, w->columns);
}

static gvm_status run_table_release(fixture *w)
{
    return gvm_table_release(w->table, w->columns, 2);
}

static bool shows_table_release_async(fixture *w)
{
    return !w->columns[0].acquired && !w->columns[1].acquired;
}

/* What is left of a call that failed is given back by the next. */
static gvm_status run_table_release_async(fixture *w)
{
    const bool first = w->columns[0].acquired;

    if (shows_table_release_async(w)) /* GVM_E_LOST has released them, too */
        return GVM_OK;
    return gvm_table_release_async(w->table, &w->columns[first ? 0 : 1],
                                   first && w->columns[1].acquired ? 2 : 1, NULL);
}

/* ---- the table */

#define ONE_OF(status) (1ull << (status))
#define OBJECT \
    (ONE_OF(GVM_E_FOREIGN) | ONE_OF(GVM_E_NOMEM) | ONE_OF(GVM_E_LOST) | ONE_OF(GVM_E_DRIVER))
#define SPACE ONE_OF(GVM_E_NOSPACE)
#define LIMIT ONE_OF(GVM_E_LIMIT)
#define ADDRESS ONE_OF(GVM_E_ADDRESS)
#define NOTSUP ONE_OF(GVM_E_NOTSUP)
#define SYSTEM ONE_OF(GVM_E_SYSTEM)
#define FORMAT ONE_OF(GVM_E_FORMAT)
#define START (ONE_OF(GVM_E_DRIVER) | ONE_OF(GVM_E_NODRIVER) | ONE_OF(GVM_E_SETTING))
#define SOCKET (ONE_OF(GVM_E_INVALID) | ONE_OF(GVM_E_PEER) | ONE_OF(GVM_E_TIMEOUT) | SYSTEM)
#define KERNEL (OBJECT | NOTSUP | SPACE | LIMIT)
#define TABLE (OBJECT | SYSTEM | ONE_OF(GVM_E_KEEPER))
#define OPENING (TABLE | SPACE | ADDRESS | LIMIT | FORMAT)

/* clang-format off */
const scenario scenarios[] = {
    {"device_count", 0, START, run_device_count, shows_device_count},
    {"device_open", 0, START | ONE_OF(GVM_E_NODEVICE) | ONE_OF(GVM_E_NOMEM) | SPACE | ONE_OF(GVM_E_LOST), run_device_open, shows_device_open},
    {"device_get_info", NEEDS_DEVICE, OBJECT, run_device_get_info, shows_device_get_info},
    {"device_synchronize", NEEDS_DEVICE, OBJECT, run_device_synchronize, NULL},
    {"buffer_create", NEEDS_DEVICE, OBJECT | ADDRESS | SYSTEM, run_buffer_create, shows_buffer_create},
    {"buffer_commit", NEEDS_BUFFER, OBJECT | SPACE | LIMIT, run_buffer_commit, shows_buffer_commit},
    {"buffer_decommit", NEEDS_TARGET, OBJECT, run_buffer_decommit, shows_buffer_decommit},
    {"buffer_seal", NEEDS_BUFFER, OBJECT | LIMIT, run_buffer_seal, shows_buffer_seal},
    {"buffer_move to the host", NEEDS_BUFFER | LEAVES_PARTLY_MOVED, OBJECT | SPACE | LIMIT | ADDRESS, run_move_out, shows_move_out},
    {"buffer_move to the device", NEEDS_BUFFER | NEEDS_HOSTED | LEAVES_PARTLY_MOVED, OBJECT | SPACE | LIMIT | ADDRESS, run_move_in, shows_move_in},
    {"buffer_move_to_peer", NEEDS_BUFFER | NEEDS_PEER | LEAVES_PARTLY_MOVED, OBJECT | SPACE | LIMIT | ADDRESS | NOTSUP, run_move_to_peer, shows_move_to_peer},
    {"buffer_grant", NEEDS_BUFFER | NEEDS_PEER, OBJECT | NOTSUP | LIMIT, run_buffer_grant, shows_buffer_grant},
    {"buffer_copy_in", NEEDS_TARGET, OBJECT | SPACE, run_copy_in, shows_copy_in},
    {"buffer_copy_in_async", NEEDS_TARGET, OBJECT | SPACE, run_copy_in_async, shows_copy_in},
    {"buffer_copy_out", NEEDS_BUFFER, OBJECT | SPACE, run_copy_out, shows_copy_out},
    {"buffer_copy_out_async", NEEDS_BUFFER, OBJECT | SPACE, run_copy_out_async, shows_copy_out},
    {"buffer_copy", NEEDS_BUFFER | NEEDS_TARGET, OBJECT | SPACE, run_copy, shows_copy},
    {"buffer_copy_async", NEEDS_BUFFER | NEEDS_TARGET, OBJECT | SPACE, run_copy_async, shows_copy},
    {"buffer_copy between devices", NEEDS_BUFFER | NEEDS_TARGET | NEEDS_PEER | NEEDS_FAR_TARGET, OBJECT | SPACE, run_copy, shows_copy},
    {"buffer_copy_in across tiers", NEEDS_TARGET | NEEDS_MIXED, OBJECT | SPACE, run_copy_in, shows_copy_in},
    {"buffer_copy across tiers", NEEDS_BUFFER | NEEDS_TARGET | NEEDS_MIXED, OBJECT | SPACE, run_copy, shows_copy},
    {"buffer_fill across tiers", NEEDS_TARGET | NEEDS_MIXED, OBJECT | SPACE, run_fill, shows_fill},
    {"buffer_fill", NEEDS_TARGET, OBJECT | SPACE, run_fill, shows_fill},
    {"buffer_fill_async", NEEDS_TARGET, OBJECT | SPACE, run_fill_async, shows_fill},
    {"buffer_get_info", NEEDS_BUFFER, OBJECT, run_buffer_get_info, NULL},
    {"vector_create", NEEDS_DEVICE, OBJECT | ADDRESS | SYSTEM, run_vector_create, shows_vector_create},
    {"vector_append", NEEDS_VECTOR | LEAVES_CAPACITY, OBJECT | SPACE | LIMIT, run_vector_append, shows_vector_append},
    {"vector_resize", NEEDS_VECTOR, OBJECT | SPACE | LIMIT, run_vector_resize, shows_vector_resize},
    {"vector_commit", NEEDS_VECTOR, OBJECT | SPACE | LIMIT, run_vector_commit, shows_vector_commit},
    {"vector_shrink", NEEDS_VECTOR, OBJECT, run_vector_shrink, NULL},
    {"alloc", NEEDS_DEVICE, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_alloc, shows_alloc},
    {"alloc_pitch", NEEDS_DEVICE, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_alloc_pitch, shows_alloc_pitch},
    {"free", NEEDS_PIECE, OBJECT, run_free, NULL},
    {"share_export", NEEDS_BUFFER, OBJECT | LIMIT, run_share_export, shows_share},
    {"share_send", NEEDS_SHARE | NEEDS_SOCKETS | LEAVES_STREAM, OBJECT | SOCKET, run_share_send, shows_share_send},
    {"share_receive", NEEDS_MESSAGE | NEEDS_SOCKETS | LEAVES_STREAM, OBJECT | SOCKET | LIMIT, run_share_receive, shows_share_receive},
    {"share_import", NEEDS_SHARE, OBJECT | LIMIT | ADDRESS | FORMAT, run_share_import, shows_share_import},
    {"share_update", NEEDS_IMPORT, OBJECT | LIMIT | FORMAT, run_share_update, shows_share_update},
    {"ipc_export", NEEDS_BUFFER, OBJECT | SPACE, run_ipc_export, shows_ipc_export},
    {"ipc_open", NEEDS_DEVICE, OBJECT | SPACE, run_ipc_open, shows_ipc_open},
    {"ipc_close", NEEDS_OPENED, OBJECT, run_ipc_close, NULL},
    {"heap_create", NEEDS_DEVICE, OBJECT, run_heap_create, NULL},
    {"heap_create of managed memory", NEEDS_DEVICE, OBJECT | NOTSUP, run_heap_create_managed, NULL},
    {"heap_alloc of a cell", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_heap_alloc_cell, shows_heap_alloc_cell},
    {"heap_alloc_aligned", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_heap_alloc_aligned, shows_heap_alloc},
    {"heap_alloc of a small block", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_heap_alloc_small, shows_heap_alloc},
    {"heap_alloc", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_heap_alloc, shows_heap_alloc},
    {"heap_alloc of pinned memory", NEEDS_DEVICE | NEEDS_HOST_HEAP, OBJECT | SPACE | ADDRESS | SYSTEM | NOTSUP, run_heap_alloc, shows_heap_alloc},
    {"heap_alloc of managed memory", NEEDS_DEVICE | NEEDS_MANAGED_HEAP, OBJECT | SPACE, run_heap_alloc, shows_heap_alloc},
    {"heap_alloc of a large block", NEEDS_DEVICE | NEEDS_MANAGED_HEAP, OBJECT | SPACE, run_heap_alloc_lone, shows_heap_alloc},
    {"heap_alloc_async", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT | ADDRESS | SYSTEM, run_heap_alloc_async, shows_heap_alloc},
    {"heap_free", NEEDS_DEVICE | NEEDS_HEAP, OBJECT, run_heap_free, shows_heap_free},
    {"heap_free_async", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE, run_heap_free_stream, shows_heap_free},
    {"heap_free_async on another stream", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE, run_heap_free_elsewhere, shows_heap_free},
    {"heap_resize", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE | LIMIT, run_heap_resize, shows_heap_resize},
    {"heap_stream_end", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SPACE, run_heap_stream_end, shows_heap_stream_end},
    {"heap_trim", NEEDS_DEVICE | NEEDS_HEAP, OBJECT, run_heap_trim, NULL},
    {"heap_grant", NEEDS_DEVICE | NEEDS_HEAP | NEEDS_PEER, OBJECT | NOTSUP | LIMIT, run_heap_grant, shows_heap_grant},
    {"heap_get_usage", NEEDS_DEVICE | NEEDS_HEAP, OBJECT, run_heap_get_usage, shows_heap_get_usage},
    {"heap_save_snapshot", NEEDS_DEVICE | NEEDS_HEAP, OBJECT | SYSTEM, run_heap_save_snapshot, NULL},
    {"fill_random_f64", NEEDS_KERNELS | NEEDS_TARGET, KERNEL, run_fill_random, NULL},
    {"sum_f64", NEEDS_KERNELS, KERNEL, run_sum, shows_sum},
    {"checksum", NEEDS_KERNELS, KERNEL, run_checksum, shows_checksum},
    {"checksum, the first kernel", NEEDS_BUFFER | LEAVES_KERNELS, KERNEL, run_checksum, shows_checksum},
    {"compare", NEEDS_KERNELS, KERNEL, run_compare, shows_compare},
    {"appender_create", NEEDS_DEVICE | LEAVES_KERNELS, OBJECT | SPACE | ADDRESS | SYSTEM, run_appender_create, shows_appender_create},
    {"appender_begin", NEEDS_APPENDER, OBJECT | SPACE | LIMIT | SYSTEM, run_appender_begin, shows_appender_begin},
    {"appender_begin, starting the thread", NEEDS_DEVICE | NEEDS_FRESH_APPENDER, OBJECT | SPACE | LIMIT | SYSTEM, run_appender_begin, shows_appender_begin},
    {"appender_finish", NEEDS_BEGUN, OBJECT | SPACE, run_appender_finish, shows_appender_finish},
    {"appender_take", NEEDS_APPENDER, OBJECT | ADDRESS | SYSTEM, run_appender_take, shows_appender_take},
    {"space_create", NEEDS_DEVICE | LEAVES_KERNELS, OBJECT | SPACE | ADDRESS | LIMIT | SYSTEM, run_space_create, NULL},
    {"collection_create", NEEDS_DEVICE | NEEDS_SPACE, OBJECT | SPACE | ADDRESS | LIMIT | SYSTEM, run_collection_create, shows_collection_create},
    {"collection_create, with numbers for kernels", NEEDS_DEVICE | NEEDS_SPACE, OBJECT | SPACE | ADDRESS | LIMIT | SYSTEM, run_collection_create_unused, shows_collection_create_unused},
    {"region_delete", NEEDS_DEVICE | NEEDS_SPACE, OBJECT | LIMIT | SYSTEM, run_region_delete, shows_region_delete},
    {"callback_server_create", NEEDS_DEVICE | LEAVES_KERNELS, OBJECT | SPACE | LIMIT | SYSTEM, run_callback_server_create, shows_callback_server_create},
    {"collection_get_info", NEEDS_DEVICE | NEEDS_SPACE, OBJECT, run_collection_get_info, NULL},
    {"space_sync", NEEDS_DEVICE | NEEDS_SPACE, OBJECT, run_space_sync, shows_space_sync},
    {"collection_attach", NEEDS_DEVICE | NEEDS_SPACE, OPENING | ONE_OF(GVM_E_PEER) | ONE_OF(GVM_E_TIMEOUT), run_collection_attach, shows_collection_create},
    {"space_sync in common", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_COMMON, TABLE, run_sync_in_common, shows_sync_in_common},
    {"region_map_cpu", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_SYNCED, OBJECT, run_region_map_cpu, shows_region_map_cpu},
    {"region_unmap_cpu", NEEDS_DEVICE | NEEDS_SPACE, OBJECT, run_region_unmap_cpu, shows_region_unmap_cpu},
    {"region_resolve", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_SYNCED, OBJECT, run_region_resolve, shows_region_resolve},
    {"region_release", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_SYNCED, OBJECT, run_region_release, shows_space_sync},
    {"region_prefetch", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_SYNCED, OBJECT, run_region_prefetch, shows_space_sync},
    {"region_prefetch_by_engine", NEEDS_DEVICE | NEEDS_SPACE | NEEDS_SYNCED, OBJECT, run_region_prefetch_by_engine, shows_region_prefetch_by_engine},
    {"table_attach", NEEDS_DEVICE, OPENING | ONE_OF(GVM_E_PEER) | ONE_OF(GVM_E_TIMEOUT), run_table_attach, shows_table_attach},
    {"table_attach, whole", NEEDS_DEVICE, OPENING | ONE_OF(GVM_E_PEER) | ONE_OF(GVM_E_TIMEOUT), run_table_attach_whole, shows_table_attach},
    {"load_open", NEEDS_DEVICE, OPENING | ONE_OF(GVM_E_PEER) | ONE_OF(GVM_E_TIMEOUT), run_load_open, shows_load_open},
    {"table_open_columns", NEEDS_TABLE | LEAVES_COLUMNS, OPENING, run_table_open, NULL},
    {"table_acquire", NEEDS_TABLE | LEAVES_COLUMNS, OPENING, run_table_acquire, shows_table_acquire},
    {"table_release", NEEDS_TABLE | NEEDS_LEASES | LEAVES_COLUMNS, TABLE, run_table_release, NULL},
    {"table_release_async", NEEDS_TABLE | NEEDS_LEASES | LEAVES_COLUMNS, TABLE, run_table_release_async, shows_table_release_async},
};
/* clang-format on */
const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];
