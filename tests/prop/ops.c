/* Operations on buffers, pieces and vectors; sharing is in share_ops.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "driver/driver.h"
#include "memory/buffer.h"
#include "tests/prop/model_state.h"

/* ---- the numbers of an operation */

void op_range(const item *it, const model_op *op, uint64_t *offset, uint64_t *len)
{
    const uint64_t all = reserve_bytes(it);
    uint64_t first, end;

    *offset = op->offset % all;
    switch (op->len >> 28) {
    case 0: /* empty, or past the end, or round the corner */
        *len = op->len % 3 == 0   ? 0
               : op->len % 3 == 1 ? all - *offset + 1 + op->len % 5000
                                  : UINT64_MAX - op->len % 9;
        return;
    case 1: /* everything */
        *offset = 0;
        *len = all;
        return;
    case 2:
    case 3:
    case 4:
    case 5: /* whole chunks */
        first = chunk_of(it, *offset);
        end = first + 1 + op->len % it->chunk_count;
        *offset = it->starts[first];
        *len = it->starts[end < it->chunk_count ? end : it->chunk_count] - *offset;
        break;
    case 6:
    case 7: /* some chunks, unaligned */ *len = 1 + op->len % (3 * it->chunk_bytes); break;
    default: *len = 1 + op->len % 70000;
    }
    if (*len > all - *offset)
        *len = all - *offset;
}

static void chunk_range(const item *it, uint64_t offset, uint64_t len, uint64_t *first, uint64_t *end)
{
    *first = chunk_of(it, offset);
    *end = chunk_of(it, offset + len - 1) + 1;
}

/* The statuses for a range that must not be empty. */
static uint64_t range_errors(const item *it, uint64_t offset, uint64_t len)
{
    return len == 0 || len > reserve_bytes(it) - offset ? ONE_OF(GVM_E_INVALID) : 0;
}

static uint64_t owner_errors(const item *it)
{
    return (it->kind == ITEM_IMPORT ? ONE_OF(GVM_E_IMPORTED) : 0) |
           (it->sealed ? ONE_OF(GVM_E_SEALED) : 0);
}

/* Fills len bytes of host memory, differently for each value. */
static void make_bytes(uint8_t *at, uint64_t len, uint32_t value)
{
    uint64_t state = value;

    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t word = state += 0x9e3779b97f4a7c15;

        word ^= word >> 29;
        memcpy(at + i, &word, len - i < 8 ? len - i : 8);
    }
}

/* ---- life */

/* As appenders make them: no call of the program does. */
static bool do_create_graded(model *m, const model_op *op, item *it)
{
    const int device = op->other % m->device_count;
    const gvmi_buffer_spec spec = {
        .reserve_bytes = 1 + op->len % (CHUNKS_MAX * 2 * MIB),
        .chunk_bytes = 4 * MIB << op->value % 3,
        .unshared = op->value % 8 == 7,
        .graded = true,
    };
    gvm_buffer *buffer = NULL;

    if (!judged(m, "gvmi_buffer_create", gvmi_buffer_create(m->devices[device], &spec, &buffer), 0, 0) ||
        !item_begin(m, it, ITEM_BUFFER, buffer, device))
        return false;
    item_grade(it);
    it->unshared = spec.unshared;
    return true;
}

static bool do_create(model *m, const model_op *op)
{
    gvm_buffer_options options = {.struct_size = sizeof options};
    item *it = empty_item(m);
    const int device = op->other % m->device_count;
    uint64_t size = 1 + op->len % (CHUNKS_MAX * 2 * MIB), must = 0;
    gvm_buffer *buffer = NULL;
    gvm_status status;

    if (it == NULL)
        return true;
    if (op->flavour < 240 && op->flavour % 8 >= 6)
        return do_create_graded(m, op, it);
    options.flags = op->flavour % 8 == 1 ? GVM_BUFFER_UNSHARED : 0;
    options.chunk_bytes = op->flavour % 8 == 2 ? 4 * MIB : op->flavour % 8 == 3 ? 2 * MIB : 0;
    if (op->flavour >= 240) { /* something invalid */
        must = ONE_OF(GVM_E_INVALID);
        switch (op->flavour % 6) {
        case 0: size = 0; break;
        case 1: size = UINT64_MAX - op->len; break;
        case 2: options.chunk_bytes = 3 * MIB; break;
        case 3: options.chunk_bytes = MIB; break;
        case 4: options.flags = 1u << 31; break;
        default: options.reserved = 1;
        }
    }
    status = gvm_buffer_create(m->devices[device], size, &options, &buffer);
    if (!judged(m, "gvm_buffer_create", status, must, 0))
        return false;
    if (status != GVM_OK)
        return buffer == NULL || wrong(m, "a failed create wrote its output");
    if (!item_begin(m, it, ITEM_BUFFER, buffer, device))
        return false;
    it->unshared = options.flags != 0;
    if (reserve_bytes(it) < size || reserve_bytes(it) - size >= it->chunk_bytes)
        return wrong(m, "%llu bytes wanted, %llu reserved", (unsigned long long)size,
                     (unsigned long long)reserve_bytes(it));
    return true;
}

static bool do_alloc(model *m, const model_op *op)
{
    item *it = empty_item(m);
    const int device = op->other % m->device_count;
    const uint64_t size = op->flavour < 8 ? (op->flavour % 2 ? 0 : UINT64_MAX - op->len)
                                          : 1 + op->len % (8 * MIB);
    uint64_t must, may;
    gvm_buffer *buffer;
    void *piece = NULL;
    gvm_status status;

    if (it == NULL)
        return true;
    if (!space_verdict(m, device, (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB), &must, &may))
        return false;
    status = gvm_alloc(m->devices[device], size, &piece);
    if (!judged(m, "gvm_alloc", status, op->flavour < 8 ? ONE_OF(GVM_E_INVALID) : must, may))
        return false;
    if (status != GVM_OK)
        return piece == NULL || wrong(m, "a failed alloc wrote its output");
    if (!judged(m, "gvm_alloc_buffer", gvm_alloc_buffer(piece, &buffer), 0, 0) ||
        !item_begin(m, it, ITEM_PIECE, buffer, device))
        return false;
    it->piece = piece;
    if ((uintptr_t)piece != it->address)
        return wrong(m, "a piece is not at the start of its buffer");
    return adopt(m, it, 0, it->chunk_count);
}

static bool do_vector(model *m, const model_op *op)
{
    static const uint64_t sizes[] = {1, 4, 8, 12, 24, 4096, 5000, 1 << 20, 3 << 20};
    item *it = empty_item(m);
    const int device = op->other % m->device_count;
    const bool bad = op->flavour >= 248;
    const uint64_t elem_bytes = bad && op->flavour % 2
                                    ? 0
                                    : sizes[op->flavour % (sizeof sizes / sizeof sizes[0])];
    const uint64_t max_count = elem_bytes == 0 ? 1
                               : bad           ? UINT64_MAX / 2
                                               : 1 + op->len % (CHUNKS_MAX * 2 * MIB / elem_bytes);
    gvm_vector *vector = NULL;
    gvm_status status;

    if (it == NULL)
        return true;
    status = gvm_vector_create(m->devices[device], elem_bytes, max_count, NULL, &vector);
    if (!judged(m, "gvm_vector_create", status, bad ? ONE_OF(GVM_E_INVALID) : 0, 0))
        return false;
    if (status != GVM_OK)
        return vector == NULL || wrong(m, "a failed vector_create wrote its output");
    if (!item_begin(m, it, ITEM_VECTOR, gvm_vector_buffer(vector), device))
        return false;
    it->vector = vector;
    it->elem_bytes = elem_bytes;
    it->max_count = max_count;
    return true;
}

static bool do_destroy(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    void *piece;
    gvm_buffer *buffer;

    if (it == NULL)
        return true;
    piece = it->piece;
    buffer = it->buffer;
    item_end(m, it);
    if (!m->exact) /* by now another thread may have been given the same address */
        return true;
    if (piece != NULL && !judged(m, "gvm_free, twice", gvm_free(piece), ONE_OF(GVM_E_FOREIGN), 0))
        return false;
    if (gvm_buffer_address(buffer) != NULL)
        return wrong(m, "a destroyed buffer still has an address");
    gvm_buffer_destroy(buffer); /* twice: ignored */
    return true;
}

/* ---- memory behind addresses */

static bool do_commit(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    uint64_t offset, len, must, may = 0, missing = 0, first = 0, end = 0;
    gvm_status status;

    if (it == NULL || it->kind == ITEM_VECTOR)
        return true;
    op_range(it, op, &offset, &len);
    must = range_errors(it, offset, len) | owner_errors(it);
    if (must == 0) {
        chunk_range(it, offset, len, &first, &end);
        for (uint64_t i = first; i < end; i++)
            missing += it->cells[i].tier == GVM_TIER_ABSENT ? chunk_len(it, i) : 0;
        if (!space_verdict(m, it->device, missing, &must, &may))
            return false;
    }
    status = gvm_buffer_commit(it->buffer, offset, len);
    if (!judged(m, "gvm_buffer_commit", status, must, may))
        return false;
    return generation_moved(m, it, status == GVM_OK && missing > 0) &&
           (status != GVM_OK || adopt(m, it, first, end));
}

static bool do_decommit(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    bool changed = false;
    uint64_t offset, len, must;
    gvm_status status;

    if (it == NULL || it->kind == ITEM_VECTOR)
        return true;
    op_range(it, op, &offset, &len);
    must = range_errors(it, offset, len) | owner_errors(it);
    status = gvm_buffer_decommit(it->buffer, offset, len);
    if (!judged(m, "gvm_buffer_decommit", status, must, 0))
        return false;
    for (uint64_t i = 0; status == GVM_OK && i < it->chunk_count; i++) {
        cell *c = &it->cells[i];

        if (c->tier == GVM_TIER_ABSENT || it->starts[i] < offset || it->starts[i + 1] > offset + len)
            continue;
        memory_drop(c->memory);
        *c = (cell){.tier = GVM_TIER_ABSENT};
        changed = true;
    }
    return generation_moved(m, it, changed);
}

static bool do_seal(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    gvm_status status;
    bool changed;

    if (it == NULL)
        return true;
    status = gvm_buffer_seal(it->buffer);
    if (!judged(m, "gvm_buffer_seal", status, it->kind == ITEM_IMPORT ? ONE_OF(GVM_E_IMPORTED) : 0, 0))
        return false;
    changed = status == GVM_OK && !it->sealed;
    if (status == GVM_OK) {
        it->sealed = true;
        it->access = GVM_ACCESS_READ;
    }
    return generation_moved(m, it, changed);
}

/* Takes over where the library says the chunks of a range are now. */
static bool follow_move(model *m, item *it, uint64_t first, uint64_t end, gvm_tier tier, bool all,
                        bool *changed)
{
    for (uint64_t i = first; i < end; i++) {
        cell *c = &it->cells[i];
        memory *copy;
        gvm_tier now;

        if (c->tier == GVM_TIER_ABSENT || c->tier == tier)
            continue;
        if (!judged(m, "gvm_buffer_get_tier", gvm_buffer_get_tier(it->buffer, it->starts[i], &now),
                    0, 0))
            return false;
        if (now != tier && (all || now != c->tier))
            return wrong(m, "chunk %d moved to tier %d, not %d", (int)i, (int)now, (int)tier);
        if (now == c->tier)
            continue;
        copy = memory_new(chunk_len(it, i)); /* importers keep the old memory */
        memcpy(copy->at, c->memory->at, chunk_len(it, i));
        memory_drop(c->memory);
        *c = (cell){tier, copy};
        *changed = true;
    }
    return true;
}

static bool do_move(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    const bool to_peer = op->flavour % 4 == 3 && m->device_count == 2;
    const bool bad = op->flavour >= 250;
    gvm_tier tier = to_peer           ? GVM_TIER_PEER
                    : bad             ? (gvm_tier)(op->flavour % 2 * 3)
                    : op->flavour % 2 ? GVM_TIER_HOST
                                      : GVM_TIER_DEVICE;
    int device;
    uint64_t offset, len, must, may = 0, first = 0, end = 0;
    bool changed = false;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    must = range_errors(it, offset, len) | (it->kind == ITEM_IMPORT ? ONE_OF(GVM_E_IMPORTED) : 0);
    device = to_peer && !bad ? 1 - it->device : it->device;
    if (bad)
        must |= ONE_OF(GVM_E_INVALID);
    if (must == 0) {
        uint64_t moving = 0;

        chunk_range(it, offset, len, &first, &end);
        for (uint64_t i = first; i < end; i++)
            moving += it->cells[i].tier != GVM_TIER_ABSENT && it->cells[i].tier != tier
                          ? chunk_len(it, i)
                          : 0;
        if (tier == GVM_TIER_HOST)
            may = ONE_OF(GVM_E_NOMEM);
        else if (!space_verdict(m, device, moving, &must, &may))
            return false;
    }
    status = to_peer ? gvm_buffer_move_to_peer(it->buffer, offset, len, m->devices[device])
                     : gvm_buffer_move(it->buffer, offset, len, tier);
    if (!judged(m, "gvm_buffer_move", status, must, may))
        return false;
    if (status != GVM_OK && (must & ~ONE_OF(GVM_E_NOSPACE)) != 0)
        return generation_moved(m, it, false);
    return follow_move(m, it, first, end, tier, status == GVM_OK, &changed) &&
           generation_moved(m, it, changed);
}

static bool do_grant(model *m, const model_op *op)
{
    static const gvm_access wishes[] = {GVM_ACCESS_NONE, GVM_ACCESS_READ, GVM_ACCESS_READWRITE,
                                        GVM_ACCESS_READWRITE, (gvm_access)2};
    item *it = pick_item(m, op->item, ITEM_NONE);
    const gvm_access access = wishes[op->flavour % 5];
    uint64_t must = 0;
    int peer;
    gvm_status status;

    if (it == NULL)
        return true;
    peer = op->other % 8 == 0 || m->device_count == 1 ? it->device : 1 - it->device;
    if (peer == it->device || access == (gvm_access)2)
        must |= ONE_OF(GVM_E_INVALID);
    if (access == GVM_ACCESS_READWRITE && it->sealed)
        must |= ONE_OF(GVM_E_SEALED);
    if (access == GVM_ACCESS_READWRITE && it->kind == ITEM_IMPORT && it->access != GVM_ACCESS_READWRITE)
        must |= ONE_OF(GVM_E_READONLY);
    status = gvm_buffer_grant(it->buffer, m->devices[peer], access);
    if (!judged(m, "gvm_buffer_grant", status, must, 0))
        return false;
    if (status == GVM_OK)
        it->granted = access;
    return generation_moved(m, it, false);
}

/* ---- bytes */

static bool synchronized(model *m, const item *it, gvm_status *status)
{
    if (*status != GVM_OK)
        return true;
    return judged(m, "gvm_device_synchronize", gvm_device_synchronize(m->devices[it->device]), 0, 0);
}

static bool do_copy_in(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    uint64_t offset, len, must;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    must = write_errors(it, offset, len);
    if (must == 0)
        make_bytes(m->scratch, len, op->value);
    if (op->flavour % 2) {
        status = gvm_buffer_copy_in_async(it->buffer, offset, m->scratch, len, NULL);
        if (!synchronized(m, it, &status))
            return false;
    } else {
        status = gvm_buffer_copy_in(it->buffer, offset, m->scratch, len);
    }
    if (!judged(m, "gvm_buffer_copy_in", status, must, 0))
        return false;
    if (status == GVM_OK)
        shadow_write(it, offset, m->scratch, len);
    return status != GVM_OK || len == 0 || compare_range(m, it, offset, len);
}

static bool do_copy_out(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    uint64_t offset, len, must;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    must = read_errors(it, offset, len);
    if (op->flavour % 2) {
        status = gvm_buffer_copy_out_async(m->scratch, it->buffer, offset, len, NULL);
        if (!synchronized(m, it, &status))
            return false;
    } else {
        status = gvm_buffer_copy_out(m->scratch, it->buffer, offset, len);
    }
    if (!judged(m, "gvm_buffer_copy_out", status, must, 0) || status != GVM_OK || len == 0)
        return m->problem[0] == '\0';
    shadow_read(it, offset, m->scratch_b, len);
    return memcmp(m->scratch, m->scratch_b, len) == 0 ||
           wrong(m, "copy_out gave other bytes than there should be");
}

/* Do the ranges have memory in common, if only by way of an import? */
static bool alias(const item *a, uint64_t a_offset, const item *b, uint64_t b_offset, uint64_t len)
{
    for (uint64_t i = chunk_of(a, a_offset); i <= chunk_of(a, a_offset + len - 1); i++)
        for (uint64_t j = chunk_of(b, b_offset); j <= chunk_of(b, b_offset + len - 1); j++)
            if (a->cells[i].memory == b->cells[j].memory)
                return true;
    return false;
}

static bool do_copy(model *m, const model_op *op)
{
    item *to = pick_item(m, op->item, ITEM_NONE), *from = pick_item(m, op->other, ITEM_NONE);
    uint64_t offset, len, source, must;
    gvm_status status;

    if (to == NULL)
        return true;
    op_range(to, op, &offset, &len);
    source = op->value % reserve_bytes(from);
    if (len <= reserve_bytes(from) && source > reserve_bytes(from) - len && op->flavour % 16 != 0)
        source = reserve_bytes(from) - len;
    must = write_errors(to, offset, len) | read_errors(from, source, len);
    if (to == from && len > 0 && offset < source + len && source < offset + len)
        must |= ONE_OF(GVM_E_INVALID);
    if (len > 0 && to->device != from->device && from->granted == GVM_ACCESS_NONE)
        must |= ONE_OF(GVM_E_INVALID); /* the destination's device cannot read it */
    if (must == 0 && len > 0 && alias(to, offset, from, source, len) && !(to == from))
        return true; /* the outcome of a copy onto itself by another name is open */
    if (op->flavour % 2) {
        status = gvm_buffer_copy_async(to->buffer, offset, from->buffer, source, len, NULL);
        if (!synchronized(m, to, &status))
            return false;
    } else {
        status = gvm_buffer_copy(to->buffer, offset, from->buffer, source, len);
    }
    if (!judged(m, "gvm_buffer_copy", status, must, 0))
        return false;
    if (status != GVM_OK || len == 0)
        return true;
    shadow_read(from, source, m->scratch_b, len);
    shadow_write(to, offset, m->scratch_b, len);
    return compare_range(m, to, offset, len);
}

static bool do_fill(model *m, const model_op *op)
{
    static const size_t sizes[] = {1, 2, 4, 4, 2, 1, 3, 0, 8};
    item *it = pick_item(m, op->item, ITEM_NONE);
    const size_t pattern_bytes = sizes[op->other % (sizeof sizes / sizeof sizes[0])];
    const bool bad_size = pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4;
    uint64_t offset, len, must;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    if (!bad_size && op->flavour % 16 != 0) {
        offset -= offset % pattern_bytes;
        len -= len % pattern_bytes;
    }
    must = write_errors(it, offset, len);
    if (bad_size || offset % pattern_bytes != 0 || len % pattern_bytes != 0)
        must |= ONE_OF(GVM_E_INVALID);
    if (op->flavour % 2) {
        status = gvm_buffer_fill_async(it->buffer, offset, len, &op->value, pattern_bytes, NULL);
        if (!synchronized(m, it, &status))
            return false;
    } else {
        status = gvm_buffer_fill(it->buffer, offset, len, &op->value, pattern_bytes);
    }
    if (!judged(m, "gvm_buffer_fill", status, must, 0))
        return false;
    if (status != GVM_OK || len == 0)
        return true;
    for (uint64_t i = 0; i < len; i += pattern_bytes)
        memcpy(m->scratch_b + i, &op->value, pattern_bytes);
    shadow_write(it, offset, m->scratch_b, len);
    return compare_range(m, it, offset, len);
}

/* ---- vectors */

/* Holds the model's vector to what it must have after growing to so many elements. */
static bool vector_grown(model *m, item *it, uint64_t wanted)
{
    const uint64_t end = (wanted * it->elem_bytes + it->chunk_bytes - 1) / it->chunk_bytes;
    const uint64_t held = end * it->chunk_bytes / it->elem_bytes;

    if (wanted <= it->capacity)
        return true;
    it->capacity = held < it->max_count ? held : it->max_count;
    return adopt(m, it, 0, end);
}

/* What growing to so many elements must answer. */
static bool vector_verdict(model *m, const item *it, uint64_t wanted, uint64_t *must, uint64_t *may)
{
    uint64_t missing = 0;

    *may = 0;
    *must = it->sealed ? ONE_OF(GVM_E_SEALED) : 0;
    if (wanted > it->max_count)
        *must |= ONE_OF(GVM_E_LIMIT);
    if (*must != 0)
        return true;
    for (uint64_t i = 0; i * it->chunk_bytes < wanted * it->elem_bytes; i++)
        missing += it->cells[i].tier == GVM_TIER_ABSENT ? it->chunk_bytes : 0;
    return space_verdict(m, it->device, missing, must, may);
}

static uint64_t wanted_count(const item *it, const model_op *op)
{
    if (op->flavour < 16)
        return it->max_count + 1 + op->len % 7;
    return op->flavour < 128 ? op->len % (it->max_count + 1) : op->len % (it->max_count / 4 + 1);
}

static bool do_append(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_VECTOR);
    uint64_t count, must, may;
    gvm_status status;

    if (it == NULL)
        return true;
    count = wanted_count(it, op);
    if (count > it->max_count - it->count && op->flavour >= 32)
        count = it->max_count - it->count;
    if (!vector_verdict(m, it, it->count + count, &must, &may))
        return false;
    if (count == 0) /* nothing to do is not worth an error, sealed or not */
        may |= must, must = 0;
    if (must == 0)
        make_bytes(m->scratch, count * it->elem_bytes, op->value);
    status = gvm_vector_append(it->vector, m->scratch, count);
    if (!judged(m, "gvm_vector_append", status, must, may) || !generation_moved(m, it, false))
        return false;
    if (status != GVM_OK)
        return true;
    if (!vector_grown(m, it, it->count + count))
        return false;
    shadow_write(it, it->count * it->elem_bytes, m->scratch, count * it->elem_bytes);
    it->count += count;
    return count == 0 ||
           compare_range(m, it, (it->count - count) * it->elem_bytes, count * it->elem_bytes);
}

static bool resize_or_commit(model *m, const model_op *op, bool resize)
{
    item *it = pick_item(m, op->item, ITEM_VECTOR);
    uint64_t wanted, must, may;
    gvm_status status;

    if (it == NULL)
        return true;
    wanted = wanted_count(it, op);
    if (!vector_verdict(m, it, wanted, &must, &may))
        return false;
    status = resize ? gvm_vector_resize(it->vector, wanted) : gvm_vector_commit(it->vector, wanted);
    if (!judged(m, resize ? "gvm_vector_resize" : "gvm_vector_commit", status, must, may) ||
        !generation_moved(m, it, false))
        return false;
    if (status != GVM_OK)
        return true;
    if (!vector_grown(m, it, wanted))
        return false;
    if (resize)
        it->count = wanted;
    return true;
}

static bool do_shrink(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_VECTOR);
    uint64_t used, held;
    gvm_status status;

    if (it == NULL)
        return true;
    status = gvm_vector_shrink(it->vector);
    if (!judged(m, "gvm_vector_shrink", status, it->sealed ? ONE_OF(GVM_E_SEALED) : 0, 0) ||
        !generation_moved(m, it, false))
        return false;
    if (status != GVM_OK)
        return true;
    used = (it->count * it->elem_bytes + it->chunk_bytes - 1) / it->chunk_bytes;
    for (uint64_t i = used; i < it->chunk_count; i++) {
        memory_drop(it->cells[i].memory);
        it->cells[i] = (cell){.tier = GVM_TIER_ABSENT};
    }
    held = used * it->chunk_bytes / it->elem_bytes;
    if (held < it->capacity)
        it->capacity = held;
    return true;
}

/* ---- kernels */

/* False in a build without code for this device, and where there is no room for a result. */
static bool kernels_run(gvm_status status)
{
    return status != GVM_E_NOTSUP && status != GVM_E_NOSPACE && status != GVM_E_NOMEM;
}

static bool do_checksum(model *m, const model_op *op)
{
    item *it = pick_item(m, op->item, ITEM_NONE);
    uint64_t offset, len, got = 0;
    gvm_status status;

    if (it == NULL)
        return true;
    op_range(it, op, &offset, &len);
    offset -= offset % 8;
    if (len > reserve_bytes(it) - offset || !all_committed(it, offset, len))
        return true; /* as wild as any wild pointer in a kernel */
    status = gvm_kernel_checksum(m->devices[it->device], gvmi_pointer(it->address + offset), len,
                                 NULL, &got);
    if (!kernels_run(status))
        return true;
    if (!judged(m, "gvm_kernel_checksum", status, 0, 0))
        return false;
    shadow_read(it, offset, m->scratch_b, len);
    return got == gvm_kernel_checksum_host(m->scratch_b, len) ||
           wrong(m, "the checksum of %llu bytes is wrong", (unsigned long long)len);
}

static bool do_compare(model *m, const model_op *op)
{
    item *a = pick_item(m, op->item, ITEM_NONE), *b = pick_item(m, op->other, ITEM_NONE);
    uint64_t offset, len, source, want = UINT64_MAX, got = 0;
    gvm_status status;

    if (a == NULL || a->device != b->device)
        return true;
    op_range(a, op, &offset, &len);
    offset -= offset % 8;
    source = op->value % reserve_bytes(b) / 8 * 8;
    if (len > reserve_bytes(a) - offset || len > reserve_bytes(b) - source ||
        !all_committed(a, offset, len) || !all_committed(b, source, len))
        return true;
    status = gvm_kernel_compare(m->devices[a->device], gvmi_pointer(a->address + offset),
                                gvmi_pointer(b->address + source), len, NULL, &got);
    if (!kernels_run(status))
        return true;
    if (!judged(m, "gvm_kernel_compare", status, 0, 0))
        return false;
    shadow_read(a, offset, m->scratch, len);
    shadow_read(b, source, m->scratch_b, len);
    for (uint64_t i = 0; i < len && want == UINT64_MAX; i++)
        if (m->scratch[i] != m->scratch_b[i])
            want = i;
    return got == want ||
           wrong(m, "the first difference is at %lld, not %lld", (long long)want, (long long)got);
}

/* ---- devices */

static bool do_trim(model *m, const model_op *op)
{
    gvm_device_info info = {.struct_size = sizeof info};
    gvm_device *device = m->devices[op->other % m->device_count];
    const uint64_t keep = op->len % (16 * MIB);

    /* The library's thread may give back idle memory between the two calls, to the cache: not again and again. */
    for (int i = 0; i == 0 || (i < 10 && info.cached_bytes > keep); i++)
        if (!judged(m, "gvm_device_trim", gvm_device_trim(device, keep), 0, 0) ||
            !judged(m, "gvm_device_get_info", gvm_device_get_info(device, &info), 0, 0))
            return false;
    return !m->exact || info.cached_bytes <= keep ||
           wrong(m, "trimmed, and still %llu cached", (unsigned long long)info.cached_bytes);
}

/* One more opening and its end: the handle is the same. */
static bool do_reopen(model *m, const model_op *op)
{
    const int ordinal = op->other % m->device_count;
    gvm_device *again = NULL;

    if (!judged(m, "gvm_device_open", gvm_device_open(ordinal, &again), 0, 0))
        return false;
    if (again != m->devices[ordinal])
        return wrong(m, "a device opened twice has two handles");
    gvm_device_close(again);
    return true;
}

/* ---- one step */

static bool do_op(model *m, const model_op *op)
{
    switch ((model_kind)(op->kind % MODEL_KIND_COUNT)) {
    case MODEL_CREATE: return do_create(m, op);
    case MODEL_ALLOC: return do_alloc(m, op);
    case MODEL_VECTOR: return do_vector(m, op);
    case MODEL_DESTROY: return do_destroy(m, op);
    case MODEL_COMMIT: return do_commit(m, op);
    case MODEL_DECOMMIT: return do_decommit(m, op);
    case MODEL_SEAL: return do_seal(m, op);
    case MODEL_MOVE: return do_move(m, op);
    case MODEL_GRANT: return do_grant(m, op);
    case MODEL_COPY_IN: return do_copy_in(m, op);
    case MODEL_COPY_OUT: return do_copy_out(m, op);
    case MODEL_COPY: return do_copy(m, op);
    case MODEL_FILL: return do_fill(m, op);
    case MODEL_APPEND: return do_append(m, op);
    case MODEL_RESIZE: return resize_or_commit(m, op, true);
    case MODEL_VECTOR_COMMIT: return resize_or_commit(m, op, false);
    case MODEL_SHRINK: return do_shrink(m, op);
    case MODEL_CHECKSUM: return do_checksum(m, op);
    case MODEL_COMPARE: return do_compare(m, op);
    case MODEL_TRIM: return do_trim(m, op);
    case MODEL_REOPEN: return do_reopen(m, op);
    case MODEL_INVALID: return do_invalid(m, op);
    default: return do_share_op(m, op);
    }
}

const char *model_step(model *m, const model_op *op)
{
    bool good = do_op(m, op);

    for (int i = 0; i < ITEMS_MAX && good; i++)
        if (m->items[i].kind != ITEM_NONE)
            good = compare_item(m, &m->items[i]);
    if (good && gvmi_check_violations() != 0)
        good = wrong(m, "the check decorator saw %llu violations",
                     (unsigned long long)gvmi_check_violations());
    m->steps++;
    return good ? NULL : m->problem;
}
