/* The state of a model, and its comparison with the library's. */
#include "tests/prop/model_state.h"
#include "base/address.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/driver.h"
#include "memory/buffer.h"
#include "tests/lib/random.h"

bool wrong(model *m, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(m->problem, sizeof m->problem, format, args);
    va_end(args);
    return false;
}

bool judged(model *m, const char *call, gvm_status got, uint64_t must, uint64_t may)
{
    gvm_error error;

    if (must != 0 ? (must >> got & 1) != 0 : got == GVM_OK || (may >> got & 1) != 0)
        return true;
    gvm_error_last(&error);
    return wrong(m, "%s answered %s, which is wrong here (wanted one of %#llx; last error: %s: %s)",
                 call, gvm_status_name(got),
                 (unsigned long long)(must != 0 ? must : may | ONE_OF(GVM_OK)),
                 gvm_status_name(error.status), error.text);
}

/* ---- memory */

memory *memory_new(size_t bytes)
{
    memory *fresh = malloc(sizeof *fresh + bytes);

    if (fresh == NULL)
        abort(); /* the test's own memory */
    fresh->references = 1;
    fresh->bytes = bytes;
    return fresh;
}

memory *memory_share(memory *shared_by)
{
    if (shared_by != NULL)
        shared_by->references++;
    return shared_by;
}

void memory_drop(memory *dropped)
{
    if (dropped != NULL && --dropped->references == 0)
        free(dropped);
}

/* ---- items */

item *pick_item(model *m, uint8_t number, item_kind kind)
{
    item *fitting[ITEMS_MAX];
    unsigned count = 0;

    for (int i = 0; i < ITEMS_MAX; i++)
        if (m->items[i].kind != ITEM_NONE && (kind == ITEM_NONE || m->items[i].kind == kind))
            fitting[count++] = &m->items[i];
    return count > 0 ? fitting[number % count] : NULL;
}

item *empty_item(model *m)
{
    for (int i = 0; i < ITEMS_MAX; i++)
        if (m->items[i].kind == ITEM_NONE)
            return &m->items[i];
    return NULL;
}

uint64_t reserve_bytes(const item *it)
{
    return it->starts[it->chunk_count];
}

uint64_t chunk_of(const item *it, uint64_t offset)
{
    uint64_t i = 0;

    while (i + 1 < it->chunk_count && it->starts[i + 1] <= offset)
        i++;
    return i;
}

uint64_t chunk_len(const item *it, uint64_t chunk)
{
    return it->starts[chunk + 1] - it->starts[chunk];
}

bool all_committed(const item *it, uint64_t offset, uint64_t len)
{
    for (uint64_t i = chunk_of(it, offset); len > 0 && i <= chunk_of(it, offset + len - 1); i++)
        if (it->cells[i].tier == GVM_TIER_ABSENT)
            return false;
    return true;
}

uint64_t read_errors(const item *it, uint64_t offset, uint64_t len)
{
    if (offset > reserve_bytes(it) || len > reserve_bytes(it) - offset)
        return ONE_OF(GVM_E_INVALID);
    return all_committed(it, offset, len) ? 0 : ONE_OF(GVM_E_ABSENT);
}

uint64_t write_errors(const item *it, uint64_t offset, uint64_t len)
{
    uint64_t errors = read_errors(it, offset, len);

    if (len == 0)
        return errors;
    if (it->sealed)
        errors |= ONE_OF(GVM_E_SEALED);
    if (it->access != GVM_ACCESS_READWRITE && it->kind == ITEM_IMPORT)
        errors |= ONE_OF(GVM_E_READONLY);
    return errors;
}

typedef struct part {
    uint8_t *at;
    uint64_t len;
} part;

/* The shadow of the bytes from offset on, up to the chunk's end and at most len. */
static part part_at(const item *it, uint64_t offset, uint64_t len)
{
    const uint64_t chunk = chunk_of(it, offset);
    const cell *c = &it->cells[chunk];
    const uint64_t within = offset - it->starts[chunk], left = chunk_len(it, chunk) - within;

    return (part){c->memory != NULL ? c->memory->at + within : NULL, len < left ? len : left};
}

void shadow_write(item *it, uint64_t offset, const void *from, uint64_t len)
{
    while (len > 0) {
        part p = part_at(it, offset, len);

        memcpy(p.at, from, p.len);
        from = (const uint8_t *)from + p.len;
        offset += p.len;
        len -= p.len;
    }
}

void shadow_read(const item *it, uint64_t offset, void *to, uint64_t len)
{
    while (len > 0) {
        part p = part_at(it, offset, len);

        memcpy(to, p.at, p.len);
        to = (uint8_t *)to + p.len;
        offset += p.len;
        len -= p.len;
    }
}

bool adopt(model *m, item *it, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++) {
        cell *c = &it->cells[i];

        if (c->tier != GVM_TIER_ABSENT)
            continue;
        c->tier = GVM_TIER_DEVICE;
        c->memory = memory_new(chunk_len(it, i));
        if (!judged(m, "gvm_buffer_copy_out of fresh memory",
                    gvm_buffer_copy_out(c->memory->at, it->buffer, it->starts[i], chunk_len(it, i)),
                    0, 0))
            return false;
    }
    return true;
}

bool space_verdict(model *m, int device, uint64_t needed, uint64_t *must, uint64_t *may)
{
    gvm_device_info info = {.struct_size = sizeof info};

    if (!judged(m, "gvm_device_get_info", gvm_device_get_info(m->devices[device], &info), 0, 0))
        return false;
    *must = m->exact && needed > info.free_bytes + info.cached_bytes ? ONE_OF(GVM_E_NOSPACE) : 0;
    *may = !m->exact || needed > info.free_bytes ? ONE_OF(GVM_E_NOSPACE) : 0;
    return true;
}

bool item_begin(model *m, item *it, item_kind kind, gvm_buffer *buffer, int device)
{
    gvm_buffer_info info = {.struct_size = sizeof info};

    if (!judged(m, "gvm_buffer_get_info", gvm_buffer_get_info(buffer, &info), 0, 0))
        return false;
    if (info.chunk_bytes == 0 || info.reserve_bytes / info.chunk_bytes > CHUNKS_MAX)
        return wrong(m, "a new buffer has %llu bytes in chunks of %llu",
                     (unsigned long long)info.reserve_bytes, (unsigned long long)info.chunk_bytes);
    *it = (item){
        .kind = kind,
        .buffer = buffer,
        .device = device,
        .address = gvmi_address(info.address),
        .chunk_bytes = info.chunk_bytes,
        .chunk_count = info.reserve_bytes / info.chunk_bytes,
        .access = info.access,
        .generation = info.generation,
        .identity = ++m->identities,
    };
    for (uint64_t i = 0; i <= it->chunk_count; i++)
        it->starts[i] = i * it->chunk_bytes;
    return true;
}

void item_grade(item *it)
{
    const uint64_t all = reserve_bytes(it), inner = all - it->chunk_bytes;
    uint64_t ends[CELLS_MAX], count = 0;

    if (it->chunk_bytes <= 2 * MIB || all < 2 * it->chunk_bytes)
        return;
    for (uint64_t end = 2 * MIB; end < it->chunk_bytes; end *= 4)
        ends[count++] = end;
    it->graded = true;
    it->chunk_count = 0;
    for (uint64_t i = 0; i < count; i++)
        it->starts[++it->chunk_count] = ends[i];
    for (uint64_t end = it->chunk_bytes; end <= inner; end += it->chunk_bytes)
        it->starts[++it->chunk_count] = end;
    for (uint64_t i = count; i > 0; i--)
        it->starts[++it->chunk_count] = all - ends[i - 1];
    it->starts[++it->chunk_count] = all;
}

static void call_destroy(item *it)
{
    switch (it->kind) {
    case ITEM_NONE: break;
    case ITEM_BUFFER:
    case ITEM_IMPORT: gvm_buffer_destroy(it->buffer); break;
    case ITEM_VECTOR: gvm_vector_destroy(it->vector); break;
    case ITEM_PIECE: (void)gvm_free(it->piece); break;
    }
}

void item_end(model *m, item *it)
{
    (void)m;
    call_destroy(it);
    for (uint64_t i = 0; i < it->chunk_count; i++)
        memory_drop(it->cells[i].memory);
    *it = (item){.kind = ITEM_NONE};
}

/* ---- comparison */

bool generation_moved(model *m, item *it, bool changed)
{
    gvm_buffer_info info = {.struct_size = sizeof info};

    if (!judged(m, "gvm_buffer_get_info", gvm_buffer_get_info(it->buffer, &info), 0, 0))
        return false;
    if (info.generation < it->generation || (changed && info.generation == it->generation))
        return wrong(m, "the generation went from %llu to %llu", (unsigned long long)it->generation,
                     (unsigned long long)info.generation);
    it->generation = info.generation;
    return true;
}

static bool compare_info(model *m, item *it)
{
    gvm_buffer_info info = {.struct_size = sizeof info};
    uint64_t bytes[4] = {0};

    if (!judged(m, "gvm_buffer_get_info", gvm_buffer_get_info(it->buffer, &info), 0, 0))
        return false;
    for (uint64_t i = 0; i < it->chunk_count; i++) {
        gvm_tier tier = (gvm_tier)77;

        if (!judged(m, "gvm_buffer_get_tier", gvm_buffer_get_tier(it->buffer, it->starts[i], &tier),
                    0, 0))
            return false;
        if (tier != it->cells[i].tier)
            return wrong(m, "chunk %d is in tier %d, not %d", (int)i, (int)tier,
                         (int)it->cells[i].tier);
        bytes[tier] += chunk_len(it, i);
    }
    if (gvmi_address(info.address) != it->address ||
        gvmi_address(gvm_buffer_address(it->buffer)) != it->address)
        return wrong(m, "the address has changed");
    if (info.device_bytes != bytes[GVM_TIER_DEVICE] || info.host_bytes != bytes[GVM_TIER_HOST] ||
        info.peer_bytes != bytes[GVM_TIER_PEER])
        return wrong(
            m, "%llu, %llu and %llu bytes are said to be on the device, the host and a peer, not %llu, %llu and %llu",
            (unsigned long long)info.device_bytes, (unsigned long long)info.host_bytes,
            (unsigned long long)info.peer_bytes, (unsigned long long)bytes[GVM_TIER_DEVICE],
            (unsigned long long)bytes[GVM_TIER_HOST], (unsigned long long)bytes[GVM_TIER_PEER]);
    if (info.sealed != it->sealed || info.access != it->access ||
        info.imported != (it->kind == ITEM_IMPORT) || info.reserve_bytes != reserve_bytes(it) ||
        info.generation != it->generation)
        return wrong(m, "sealed %d, access %d, imported %d, generation %llu are not what they were",
                     info.sealed, (int)info.access, info.imported,
                     (unsigned long long)info.generation);
    return true;
}

static bool compare_vector(model *m, const item *it)
{
    if (it->kind != ITEM_VECTOR)
        return true;
    if (gvm_vector_count(it->vector) != it->count || gvm_vector_capacity(it->vector) != it->capacity ||
        gvmi_address(gvm_vector_address(it->vector)) != it->address)
        return wrong(m, "a vector has %llu elements of %llu, not %llu of %llu",
                     (unsigned long long)gvm_vector_count(it->vector),
                     (unsigned long long)gvm_vector_capacity(it->vector),
                     (unsigned long long)it->count, (unsigned long long)it->capacity);
    return true;
}

/* What the driver says that a device may do there. */
static bool compare_rights(model *m, const item *it, uint64_t chunk)
{
    for (int d = 0; d < m->device_count; d++) {
        CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, d};
        gvm_access granted = d == it->device ? it->access : (gvm_access)(it->granted & it->access);
        unsigned long long flags = 77;
        CUresult result = gvmi_cu->cuMemGetAccess(&flags, &where, it->address + it->starts[chunk]);

        if (result != CUDA_SUCCESS || (int)flags != (int)granted)
            return wrong(m, "device %d has rights %d (result %d) to chunk %d of device %d, not %d",
                         d, (int)flags, (int)result, (int)chunk, it->device, (int)granted);
    }
    return true;
}

bool compare_range(model *m, const item *it, uint64_t offset, uint64_t len)
{
    if (!judged(m, "gvm_buffer_copy_out", gvm_buffer_copy_out(m->scratch, it->buffer, offset, len),
                0, 0))
        return false;
    for (uint64_t done = 0; done < len;) {
        part p = part_at(it, offset + done, len - done);

        if (memcmp(p.at, m->scratch + done, p.len) != 0) {
            uint64_t i = 0;

            while (p.at[i] == m->scratch[done + i])
                i++;
            return wrong(m, "the byte at offset %llu is %#x, not %#x",
                         (unsigned long long)(offset + done + i), m->scratch[done + i], p.at[i]);
        }
        done += p.len;
    }
    return true;
}

bool compare_item(model *m, item *it)
{
    enum { SAMPLE_BYTES = 4096 };
    uint64_t chunk = random_next(&m->seed) % it->chunk_count;
    uint64_t at = random_next(&m->seed) % (chunk_len(it, chunk) - SAMPLE_BYTES);

    if (!gvmi_buffer_check(it->buffer))
        return wrong(m, "gvmi_buffer_check() failed");
    if (!compare_info(m, it) || !compare_vector(m, it))
        return false;
    if (it->cells[chunk].tier == GVM_TIER_ABSENT)
        return true;
    return compare_rights(m, it, chunk) && compare_range(m, it, it->starts[chunk] + at, SAMPLE_BYTES);
}

const char *model_compare_all(model *m)
{
    for (int i = 0; i < ITEMS_MAX; i++) {
        item *it = &m->items[i];

        for (uint64_t c = 0; it->kind != ITEM_NONE && c < it->chunk_count; c++)
            if (it->cells[c].tier != GVM_TIER_ABSENT &&
                !compare_range(m, it, it->starts[c], chunk_len(it, c)))
                return m->problem;
    }
    return NULL;
}

/* ---- life */

/* Large, hardly used in full, and made for each input of a fuzzer: mapped, so that no allocator
 * looks at all of it. */
static uint8_t *map_scratch(void)
{
    void *at = mmap(NULL, SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        abort();
    return at;
}

model *model_create(gvm_device *const devices[], int device_count, bool exact)
{
    model *m = calloc(1, sizeof *m);

    if (m == NULL)
        abort();
    m->scratch = map_scratch();
    m->scratch_b = map_scratch();
    for (int i = 0; i < device_count; i++)
        m->devices[i] = devices[i];
    m->device_count = device_count;
    m->exact = exact;
    m->seed = 1;
    return m;
}

void model_end(model *m)
{
    for (int i = 0; i < ITEMS_MAX; i++)
        item_end(m, &m->items[i]);
    for (int i = 0; i < SHARES_MAX; i++)
        share_end(&m->shares[i]);
    munmap(m->scratch, SCRATCH_BYTES);
    munmap(m->scratch_b, SCRATCH_BYTES);
    free(m);
}

/* ---- random operations */

static const unsigned weights[MODEL_KIND_COUNT] = {
#define WEIGHT(kind, weight) weight,
    MODEL_OPS(WEIGHT)
#undef WEIGHT
};

model_op model_random(uint64_t *seed)
{
    unsigned total = 0, ticket;
    uint8_t kind = 0;
    uint64_t a, b;

    for (int i = 0; i < MODEL_KIND_COUNT; i++)
        total += weights[i];
    ticket = (unsigned)(random_next(seed) % total);
    while (ticket >= weights[kind])
        ticket -= weights[kind++];
    a = random_next(seed);
    b = random_next(seed);
    return (model_op){
        .kind = kind,
        .item = (uint8_t)a,
        .other = (uint8_t)(a >> 8),
        .flavour = (uint8_t)(a >> 16),
        .value = (uint32_t)(a >> 32),
        .offset = (uint32_t)b,
        .len = (uint32_t)(b >> 32),
    };
}

char *model_describe(const model_op *op, char out[96])
{
    static const char *const names[] = {
#define NAME(kind, weight) #kind,
        MODEL_OPS(NAME)
#undef NAME
    };

    snprintf(out, 96, "{MODEL_%s, %u, %u, %u, 0x%x, 0x%x, 0x%x},",
             names[op->kind % MODEL_KIND_COUNT], op->item, op->other, op->flavour,
             (unsigned)op->offset, (unsigned)op->len, (unsigned)op->value);
    return out;
}
