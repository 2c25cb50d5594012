/* Operations of sharing, within one process; and calls with everything that is no handle. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "tests/prop/model_state.h"

void share_end(shared *s)
{
    gvm_share_destroy(s->share);
    for (uint64_t i = 0; i < s->chunk_count; i++)
        memory_drop(s->cells[i].memory);
    *s = (shared){0};
}

static cell share_cell(const cell *from)
{
    return (cell){from->tier, memory_share(from->memory)};
}

static shared *pick_share(model *m, uint8_t number)
{
    shared *fitting[SHARES_MAX];
    unsigned count = 0;

    for (int i = 0; i < SHARES_MAX; i++)
        if (m->shares[i].share != NULL)
            fitting[count++] = &m->shares[i];
    return count > 0 ? fitting[number % count] : NULL;
}

static shared *empty_share(model *m)
{
    for (int i = 0; i < SHARES_MAX; i++)
        if (m->shares[i].share == NULL)
            return &m->shares[i];
    return NULL;
}

/* Where a chunk of the share begins, from the start of the part exported. */
static uint64_t share_start(const shared *s, uint64_t chunk)
{
    return s->starts[s->first + chunk] - s->starts[s->first];
}

/* Does the share say of itself what it should? */
static bool compare_share(model *m, const shared *s)
{
    gvm_share_info info = {.struct_size = sizeof info};
    uint64_t present_bytes = 0;
    uint32_t present = 0;

    for (uint64_t i = 0; i < s->chunk_count; i++)
        if (s->cells[i].tier != GVM_TIER_ABSENT) {
            present++;
            present_bytes += share_start(s, i + 1) - share_start(s, i);
        }
    if (!judged(m, "gvm_share_get_info", gvm_share_get_info(s->share, &info), 0, 0))
        return false;
    if (info.chunk_count != present || info.committed_bytes != present_bytes ||
        info.sealed != s->sealed || info.span_len_bytes != share_start(s, s->chunk_count) ||
        info.chunk_bytes != s->chunk_bytes || info.generation != s->generation)
        return wrong(m, "a share says %u chunks of %llu, generation %llu, sealed %d",
                     (unsigned)info.chunk_count, (unsigned long long)info.chunk_bytes,
                     (unsigned long long)info.generation, info.sealed);
    return true;
}

static bool do_export(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    shared *s = empty_share(m);
    uint64_t offset, len, span, must = 0, first = 0, end = 0;
    gvm_share *share = NULL;
    gvm_status status;
    bool absent = true;

    if (it == NULL || s == NULL)
        return true;
    op_range(it, op, &offset, &len);
    span = len == 0 ? reserve_bytes(it) - offset : len;
    if (span > reserve_bytes(it) - offset) {
        must |= ONE_OF(GVM_E_INVALID);
    } else {
        first = chunk_of(it, offset);
        end = chunk_of(it, offset + span - 1) + 1;
        for (uint64_t i = first; i < end; i++)
            absent = absent && it->cells[i].tier == GVM_TIER_ABSENT;
        must |= absent ? ONE_OF(GVM_E_ABSENT) : 0;
    }
    must |= it->unshared ? ONE_OF(GVM_E_NOTSUP) : 0;
    must |= it->kind == ITEM_IMPORT ? ONE_OF(GVM_E_IMPORTED) : 0;
    status = gvm_share_export(it->buffer, offset, len, &share);
    if (!judged(m, "gvm_share_export", status, must, 0))
        return false;
    if (status != GVM_OK)
        return share == NULL || wrong(m, "a failed export wrote its output");
    *s = (shared){
        .share = share,
        .identity = it->identity,
        .generation = it->generation,
        .first = first,
        .chunk_count = end - first,
        .chunk_bytes = it->chunk_bytes,
        .device = it->device,
        .sealed = it->sealed,
        .graded = it->graded,
        .address = it->address + it->starts[first],
        .owner_chunk_count = it->chunk_count,
    };
    memcpy(s->starts, it->starts, sizeof s->starts);
    for (uint64_t i = first; i < end; i++) {
        s->cells[i - first] = share_cell(&it->cells[i]);
        if (it->cells[i].tier == GVM_TIER_PEER)
            s->cells[i - first].tier = GVM_TIER_DEVICE;
    }
    return compare_share(m, s);
}

static bool do_unshare(model *m, const model_op *op)
{
    shared *s = pick_share(m, op->item);
    gvm_share_info info = {.struct_size = sizeof info};
    gvm_share *share;

    if (s == NULL)
        return true;
    share = s->share;
    share_end(s);
    gvm_share_destroy(share); /* twice: ignored */
    return judged(m, "gvm_share_get_info, destroyed", gvm_share_get_info(share, &info),
                  ONE_OF(GVM_E_FOREIGN), 0);
}

/* Over a socket and back: what arrives takes the place of what was sent. */
static bool do_send(model *m, const model_op *op)
{
    shared *s = pick_share(m, op->item);
    gvm_share *arrived = NULL;
    gvm_status sent, received = GVM_OK;
    int ends[2];

    if (s == NULL)
        return true;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return wrong(m, "socketpair failed");
    sent = gvm_share_send(s->share, ends[0], 1000);
    if (sent == GVM_OK)
        received = gvm_share_receive(ends[1], 1000, &arrived);
    close(ends[0]);
    close(ends[1]);
    if (!judged(m, "gvm_share_send", sent, 0, 0) || !judged(m, "gvm_share_receive", received, 0, 0))
        return false;
    gvm_share_destroy(s->share);
    s->share = arrived;
    return compare_share(m, s);
}

/* Its chunks are the owner's from the share's first on, and beyond the owner's end some of the usual size. */
static void grade_import(item *it, const shared *s, uint64_t wanted_bytes)
{
    uint64_t count = 0;

    if (wanted_bytes == 0)
        wanted_bytes = share_start(s, s->chunk_count);
    for (; it->starts[count] < wanted_bytes; count++)
        it->starts[count + 1] = s->first + count < s->owner_chunk_count
                                    ? share_start(s, count + 1)
                                    : it->starts[count] + s->chunk_bytes;
    it->chunk_count = count;
    it->graded = true;
}

static bool do_import(model *m, const model_op *op)
{
    gvm_import_options options = {.struct_size = sizeof options};
    shared *s = pick_share(m, op->item);
    item *it = empty_item(m);
    const int device = op->flavour % 32 == 9 ? m->device_count - 1 : s != NULL ? s->device : 0;
    uint64_t must = 0, may = 0;
    gvm_buffer *buffer = NULL;
    gvm_status status;

    if (it == NULL || s == NULL)
        return true;
    options.flags = op->flavour & 1 ? GVM_IMPORT_READONLY : 0;
    if (op->flavour % 16 == 2) { /* taken, unless the exporter has gone */
        options.flags |= GVM_IMPORT_SAME_ADDRESS;
        may |= ONE_OF(GVM_E_ADDRESS);
    }
    if (op->flavour % 4 == 3)
        options.reserve_bytes = s->graded ? s->starts[s->owner_chunk_count] + s->chunk_bytes
                                          : CHUNKS_MAX * s->chunk_bytes;
    if (op->flavour % 32 == 6 && s->chunk_count > 1) {
        options.reserve_bytes = share_start(s, s->chunk_count - 1);
        must |= ONE_OF(GVM_E_INVALID);
    }
    if (op->flavour % 32 == 8) {
        options.flags |= 1u << 20;
        must |= ONE_OF(GVM_E_INVALID);
    }
    if (device != s->device)
        must |= ONE_OF(GVM_E_OTHERDEVICE);
    status = gvm_share_import(m->devices[device], s->share, &options, &buffer);
    if (!judged(m, "gvm_share_import", status, must, may))
        return false;
    if (status != GVM_OK)
        return buffer == NULL || wrong(m, "a failed import wrote its output");
    if (!item_begin(m, it, ITEM_IMPORT, buffer, device))
        return false;
    if ((options.flags & GVM_IMPORT_SAME_ADDRESS) != 0 && it->address != s->address)
        return wrong(m, "imported to another address than the exporter's");
    if (s->graded)
        grade_import(it, s, options.reserve_bytes);
    it->identity = s->identity;
    it->source_first = s->first;
    it->source_generation = s->generation;
    it->sealed = s->sealed;
    it->access = s->sealed || (options.flags & GVM_IMPORT_READONLY) ? GVM_ACCESS_READ
                                                                    : GVM_ACCESS_READWRITE;
    for (uint64_t i = 0; i < s->chunk_count; i++)
        it->cells[i] = share_cell(&s->cells[i]);
    return true;
}

/* What updating the item from the share must answer. */
static uint64_t update_errors(const item *it, const shared *s)
{
    uint64_t errors = 0;

    if (it->kind != ITEM_IMPORT || it->identity != s->identity || it->source_first != s->first ||
        it->chunk_bytes != s->chunk_bytes || s->generation < it->source_generation)
        errors |= ONE_OF(GVM_E_INVALID);
    if (s->chunk_count > it->chunk_count)
        errors |= ONE_OF(GVM_E_ADDRESS);
    return errors;
}

static bool do_update(model *m, const model_op *op)
{
    item *it = pick_item(m, op->other, op->flavour % 16 == 0 ? ITEM_NONE : ITEM_IMPORT);
    shared *s = pick_share(m, op->item);
    gvm_status status;

    if (it == NULL || s == NULL)
        return true;
    status = gvm_buffer_update(it->buffer, s->share);
    if (!judged(m, "gvm_buffer_update", status, update_errors(it, s), 0) ||
        !generation_moved(m, it, false))
        return false;
    if (status != GVM_OK)
        return true;
    for (uint64_t i = 0; i < s->chunk_count; i++) { /* the share says nothing of what lies behind */
        memory_drop(it->cells[i].memory);
        it->cells[i] = share_cell(&s->cells[i]);
    }
    it->source_generation = s->generation;
    it->sealed = it->sealed || s->sealed;
    if (it->sealed)
        it->access = GVM_ACCESS_READ;
    return true;
}

/* An IPC copy of part of a buffer holds the same bytes. */
static bool do_ipc(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    uint64_t offset, len, span, checksum = 0, must = 0, may;
    gvm_ipc_info info = {.struct_size = sizeof info};
    gvm_ipc *ipc = NULL;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    span = len == 0 ? reserve_bytes(it) - offset : len;
    if (!space_verdict(m, it->device, span > 1ull << 40 ? 1ull << 40 : span + 4 * MIB, &must, &may))
        return false;
    may |= must; /* how far the driver rounds up is its own affair */
    must = read_errors(it, offset, span);
    if (it->unshared && must == 0)
        must = ONE_OF(GVM_E_NOTSUP);
    status = gvm_ipc_export(it->buffer, offset, len, &ipc);
    if (!judged(m, "gvm_ipc_export", status, must, may))
        return false;
    if (status != GVM_OK)
        return ipc == NULL || wrong(m, "a failed export wrote its output");
    if (!judged(m, "gvm_ipc_get_info", gvm_ipc_get_info(ipc, &info), 0, 0))
        return false;
    if (info.size_bytes != span)
        return wrong(m, "an IPC copy has %llu bytes, not %llu", (unsigned long long)info.size_bytes,
                     (unsigned long long)span);
    status = gvm_kernel_checksum(m->devices[it->device], info.address, span, NULL, &checksum);
    shadow_read(it, offset, m->scratch_b, span);
    gvm_ipc_destroy(ipc);
    gvm_ipc_destroy(ipc); /* twice: ignored */
    if (!judged(m, "gvm_kernel_checksum", status, 0,
                ONE_OF(GVM_E_NOTSUP) | ONE_OF(GVM_E_NOSPACE) | ONE_OF(GVM_E_NOMEM)))
        return false;
    return status != GVM_OK || checksum == gvm_kernel_checksum_host(m->scratch_b, span) ||
           wrong(m, "an IPC copy holds other bytes");
}

bool do_share_op(model *m, const model_op *op)
{
    switch (op->kind % MODEL_KIND_COUNT) {
    case MODEL_EXPORT: return do_export(m, op);
    case MODEL_UNSHARE: return do_unshare(m, op);
    case MODEL_SEND: return do_send(m, op);
    case MODEL_IMPORT: return do_import(m, op);
    case MODEL_UPDATE: return do_update(m, op);
    default: return do_ipc(m, op);
    }
}

/* ---- calls with what is no handle */

#define INVALID(call, wanted) \
    if (!judged(m, #call, call, ONE_OF(wanted), 0)) \
    return false
#define FOREIGN(call) INVALID(call, GVM_E_FOREIGN)

static bool foreign_buffer(model *m, gvm_buffer *stray)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    gvm_share *share = NULL;
    gvm_ipc *ipc = NULL;
    gvm_tier tier;
    char byte = 0;

    FOREIGN(gvm_buffer_commit(stray, 0, 1));
    FOREIGN(gvm_buffer_decommit(stray, 0, 1));
    FOREIGN(gvm_buffer_seal(stray));
    FOREIGN(gvm_buffer_move(stray, 0, 1, GVM_TIER_HOST));
    FOREIGN(gvm_buffer_grant(stray, m->devices[0], GVM_ACCESS_READ));
    FOREIGN(gvm_buffer_copy_in(stray, 0, &byte, 1));
    FOREIGN(gvm_buffer_copy_out(&byte, stray, 0, 1));
    FOREIGN(gvm_buffer_copy(stray, 0, stray, 0, 1));
    FOREIGN(gvm_buffer_fill(stray, 0, 1, &byte, 1));
    FOREIGN(gvm_buffer_get_info(stray, &info));
    FOREIGN(gvm_buffer_get_tier(stray, 0, &tier));
    FOREIGN(gvm_share_export(stray, 0, 0, &share));
    FOREIGN(gvm_ipc_export(stray, 0, 0, &ipc));
    gvm_buffer_destroy(stray);
    return gvm_buffer_address(stray) == NULL || wrong(m, "a stray pointer has an address");
}

static bool foreign_vector(model *m, gvm_vector *stray)
{
    int element = 0;

    FOREIGN(gvm_vector_append(stray, &element, 1));
    FOREIGN(gvm_vector_resize(stray, 1));
    FOREIGN(gvm_vector_commit(stray, 1));
    FOREIGN(gvm_vector_shrink(stray));
    gvm_vector_destroy(stray);
    if (gvm_vector_address(stray) != NULL || gvm_vector_count(stray) != 0 ||
        gvm_vector_capacity(stray) != 0 || gvm_vector_buffer(stray) != NULL)
        return wrong(m, "a stray pointer is a vector");
    return true;
}

static bool foreign_share(model *m, gvm_share *stray)
{
    gvm_share_info info = {.struct_size = sizeof info};
    gvm_buffer *buffer = NULL;
    gvm_ipc_info ipc = {.struct_size = sizeof ipc};

    FOREIGN(gvm_share_get_info(stray, &info));
    FOREIGN(gvm_share_import(m->devices[0], stray, NULL, &buffer));
    FOREIGN(gvm_ipc_get_info((gvm_ipc *)stray, &ipc));
    FOREIGN(gvm_ipc_close(m->devices[0], gvmi_pointer(4096)));
    gvm_share_destroy(stray);
    gvm_ipc_destroy((gvm_ipc *)stray);
    return true;
}

static bool foreign_device(model *m, gvm_device *stray)
{
    gvm_device_info info = {.struct_size = sizeof info};
    gvm_buffer *buffer = NULL;
    gvm_vector *vector = NULL;
    double sum = 0;
    void *piece = NULL;
    uint64_t value;

    FOREIGN(gvm_device_get_info(stray, &info));
    FOREIGN(gvm_device_synchronize(stray));
    FOREIGN(gvm_device_trim(stray, 0));
    FOREIGN(gvm_buffer_create(stray, 1, NULL, &buffer));
    FOREIGN(gvm_vector_create(stray, 1, 1, NULL, &vector));
    FOREIGN(gvm_alloc(stray, 1, &piece));
    FOREIGN(gvm_alloc_pitch(stray, 1, 1, &piece, &value));
    FOREIGN(gvm_kernel_fill_random_f64(stray, gvmi_pointer(4096), 1, 0, 0, NULL));
    FOREIGN(gvm_kernel_sum_f64(stray, gvmi_pointer(4096), 1, NULL, &sum));
    FOREIGN(gvm_kernel_checksum(stray, gvmi_pointer(4096), 1, NULL, &value));
    FOREIGN(gvm_kernel_compare(stray, gvmi_pointer(4096), gvmi_pointer(4096), 1, NULL, &value));
    gvm_device_close(stray);
    return true;
}

/* NULL where an output is wanted, and other things that no state makes right. */
static bool invalid_arguments(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_BUFFER);
    gvm_device *device = m->devices[0];
    gvm_device_info small = {.struct_size = 16};
    gvm_ipc_handle handle = {{0}};
    gvm_device *none = NULL;
    uint64_t value;
    void *address;
    double sum;

    INVALID(gvm_device_count(NULL), GVM_E_INVALID);
    INVALID(gvm_device_open(0, NULL), GVM_E_INVALID);
    INVALID(gvm_device_open(-1, &none), GVM_E_NODEVICE);
    INVALID(gvm_device_open(INT32_MAX, &none), GVM_E_NODEVICE);
    INVALID(gvm_device_get_info(device, NULL), GVM_E_INVALID);
    INVALID(gvm_device_get_info(device, &small), GVM_E_INVALID);
    INVALID(gvm_buffer_create(device, 1, NULL, NULL), GVM_E_INVALID);
    INVALID(gvm_vector_create(device, 1, 1, NULL, NULL), GVM_E_INVALID);
    INVALID(gvm_alloc(device, 1, NULL), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, 1, 1, NULL, &value), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, 1, 1, &address, NULL), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, 0, 1, &address, &value), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, 1, 0, &address, &value), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, UINT64_MAX, 1, &address, &value), GVM_E_INVALID);
    INVALID(gvm_alloc_pitch(device, 1, UINT64_MAX, &address, &value), GVM_E_INVALID);
    INVALID(gvm_alloc_buffer(&value, NULL), GVM_E_INVALID);
    INVALID(gvm_free(&value), GVM_E_FOREIGN);
    INVALID(gvm_share_receive(0, 0, NULL), GVM_E_INVALID);
    INVALID(gvm_kernel_sum_f64(device, NULL, 1, NULL, &sum), GVM_E_INVALID);
    INVALID(gvm_kernel_sum_f64(device, gvmi_pointer(4100), 1, NULL, &sum), GVM_E_INVALID);
    INVALID(gvm_kernel_sum_f64(device, gvmi_pointer(4096), 1, NULL, NULL), GVM_E_INVALID);
    INVALID(gvm_kernel_checksum(device, gvmi_pointer(4096), 1, NULL, NULL), GVM_E_INVALID);
    INVALID(gvm_kernel_compare(device, gvmi_pointer(4096), gvmi_pointer(4100), 1, NULL, &value),
            GVM_E_INVALID);
    INVALID(gvm_kernel_fill_random_f64(device, gvmi_pointer(4), 1, 0, 0, NULL), GVM_E_INVALID);
    INVALID(gvm_ipc_open(device, NULL, &address), GVM_E_INVALID);
    INVALID(gvm_ipc_open(device, &handle, NULL), GVM_E_INVALID);
    if (it == NULL)
        return true;
    INVALID(gvm_buffer_get_info(it->buffer, NULL), GVM_E_INVALID);
    INVALID(gvm_buffer_get_tier(it->buffer, 0, NULL), GVM_E_INVALID);
    INVALID(gvm_buffer_get_tier(it->buffer, reserve_bytes(it), &(gvm_tier){0}), GVM_E_INVALID);
    INVALID(gvm_share_export(it->buffer, 0, 0, NULL), GVM_E_INVALID);
    INVALID(gvm_ipc_export(it->buffer, 0, 0, NULL), GVM_E_INVALID);
    return true;
}

bool do_invalid(model *m, const model_op *op)
{
    static const max_align_t dummy; /* readable, and no object of gvmem */
    void *stray = op->other % 2 ? NULL : (void *)(uintptr_t)&dummy;

    switch (op->flavour % 5) {
    case 0: return foreign_buffer(m, stray);
    case 1: return foreign_vector(m, stray);
    case 2: return foreign_share(m, stray);
    case 3: return foreign_device(m, stray);
    default: return invalid_arguments(m, op);
    }
}
