/* A snapshot of a heap as PyTorch's memory_viz reads it.
 *
 * That is a pickle of what torch.cuda.memory._snapshot() returns: a dictionary of "segments", each with its "blocks" end to
 * end, and of "device_traces", a list of events for each device, here without events. A segment is memory without a
 * gap. Written with the operations of protocol 2 that memory_viz's own reader knows, which are fewer than Python's:
 * lists by batches, since it passes each as arguments of one call, and no number of more than 8 bytes but streams.
 *
 * It is put together in memory, with the heap's lock held, and written without.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/text.h"
#include "heap/heap.h"

#define BATCH 1000 /* items of a list that are appended at once */
#define TAG_BYTES_MAX 4096

typedef struct pickle {
    uint8_t *bytes;
    size_t count, capacity;
    bool failed;    /* out of host memory */
    uint32_t known; /* words, as bits */
} pickle;

static void put_bytes(pickle *p, const void *bytes, size_t count)
{
    if (p->count + count > p->capacity) {
        const size_t capacity = 2 * p->capacity + count + 4096;
        uint8_t *grown = p->failed ? NULL : realloc(p->bytes, capacity);

        if (grown == NULL) {
            p->failed = true;
            return;
        }
        p->bytes = grown;
        p->capacity = capacity;
    }
    memcpy(p->bytes + p->count, bytes, count);
    p->count += count;
}

static void put_byte(pickle *p, int byte)
{
    put_bytes(p, &(uint8_t){(uint8_t)byte}, 1);
}

static void put_little_endian(pickle *p, uint64_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put_byte(p, (int)(value >> 8 * i & 0xff));
}

/* The shortest of BININT1, BININT2, BININT and LONG1, which all but the first two are signed. */
static void put_number(pickle *p, uint64_t value)
{
    if (value < 1u << 8) {
        put_byte(p, 'K');
        put_little_endian(p, value, 1);
    } else if (value < 1u << 16) {
        put_byte(p, 'M');
        put_little_endian(p, value, 2);
    } else if (value < 1u << 31) {
        put_byte(p, 'J');
        put_little_endian(p, value, 4);
    } else {
        const unsigned count = value >> 63 != 0 ? 9 : 8;

        put_byte(p, 0x8a);
        put_byte(p, (int)count);
        put_little_endian(p, value, 8);
        if (count == 9)
            put_byte(p, 0);
    }
}

/* What is no ASCII may be no UTF-8 either, which readers refuse. */
static void put_text(pickle *p, const char *text)
{
    const size_t count = strnlen(text, TAG_BYTES_MAX);

    put_byte(p, 'X');
    put_little_endian(p, count, 4);
    for (size_t i = 0; i < count; i++)
        put_byte(p, (unsigned char)text[i] < 0x80 ? text[i] : '?');
}

/* Keys and other words that come again, in the order of their numbers in the reader's memory. */
#define WORDS(X) \
    X(address) \
    X(size) \
    X(requested_size) \
    X(state) \
    X(frames) \
    X(active_allocated) \
    X(active_pending_free) \
    X(inactive) \
    X(name) \
    X(filename) \
    X(line) \
    X(gvmem) \
    X(device) \
    X(total_size) \
    X(allocated_size) \
    X(active_size) \
    X(stream) \
    X(segment_type) \
    X(large) \
    X(segment_pool_id) \
    X(is_expandable) \
    X(blocks) \
    X(segments) \
    X(device_traces)

#define WORD_NUMBER(word) WORD_##word,
#define WORD_TEXT(word) #word,
enum { WORDS(WORD_NUMBER) WORD_COUNT };
static const char *const words[WORD_COUNT] = {WORDS(WORD_TEXT)};
_Static_assert(WORD_COUNT <= 32, "a bit each");

/* At first as a text, which the reader remembers by its number. */
static void put_word(pickle *p, int word)
{
    if ((p->known & 1u << word) == 0)
        put_text(p, words[word]);
    put_byte(p, (p->known & 1u << word) == 0 ? 'q' : 'h');
    put_byte(p, word);
    p->known |= 1u << word;
}

static void put_entry(pickle *p, int word, uint64_t value)
{
    put_word(p, word);
    put_number(p, value);
}

/* A list is "](" items "e"; after each batch "e(" goes on with it. */
typedef struct items {
    unsigned count;
} items;

static void begin_list(pickle *p, items *list)
{
    list->count = 0;
    put_bytes(p, "](", 2);
}

static void next_item(pickle *p, items *list)
{
    if (++list->count % BATCH == 0)
        put_bytes(p, "e(", 2);
}

/* ---- the heap */

typedef struct snapshot {
    pickle out;
    int32_t ordinal;
    items segments, blocks;
    gvm_heap_extent first; /* of the segment that is open; range NULL: none is */
    uint64_t total_bytes, live_bytes, active_bytes, requested_bytes;
} snapshot;

static void put_frames(pickle *p, const char *tag)
{
    put_word(p, WORD_frames);
    put_byte(p, ']');
    if (tag == NULL || tag[0] == '\0')
        return;
    put_bytes(p, "}(", 2);
    put_word(p, WORD_name);
    put_text(p, tag);
    put_word(p, WORD_filename);
    put_word(p, WORD_gvmem);
    put_entry(p, WORD_line, 0);
    put_bytes(p, "ua", 2);
}

static void end_segment(snapshot *s)
{
    pickle *p = &s->out;

    if (s->first.range == NULL)
        return;
    put_byte(p, 'e');
    put_entry(p, WORD_device, (uint64_t)s->ordinal);
    put_entry(p, WORD_address, gvmi_key(s->first.range));
    put_entry(p, WORD_total_size, s->total_bytes);
    put_entry(p, WORD_allocated_size, s->live_bytes);
    put_entry(p, WORD_active_size, s->active_bytes);
    put_entry(p, WORD_requested_size, s->requested_bytes);
    put_entry(p, WORD_stream, s->first.ordered ? gvmi_key(s->first.stream) : 0);
    put_word(p, WORD_segment_type);
    put_word(p, WORD_large);
    put_word(p, WORD_segment_pool_id);
    put_bytes(p, "K\0K\0\x86", 5); /* (0, 0) */
    put_word(p, WORD_is_expandable);
    put_byte(p, 0x88); /* True */
    put_frames(p, NULL);
    put_byte(p, 'u');
    next_item(p, &s->segments);
    s->first.range = NULL;
}

static void begin_segment(snapshot *s, const gvm_heap_extent *first)
{
    end_segment(s);
    s->first = *first;
    s->total_bytes = s->live_bytes = s->active_bytes = s->requested_bytes = 0;
    put_bytes(&s->out, "}(", 2);
    put_word(&s->out, WORD_blocks);
    begin_list(&s->out, &s->blocks);
}

static void put_extent(const gvm_heap_extent *e, void *arg)
{
    snapshot *s = arg;
    pickle *p = &s->out;
    const bool live = e->use == GVM_HEAP_USE_LIVE, active = live || e->use == GVM_HEAP_USE_PENDING;

    if (s->first.range != e->range)
        begin_segment(s, e);
    s->total_bytes += e->len_bytes;
    s->live_bytes += live ? e->len_bytes : 0;
    s->active_bytes += active ? e->len_bytes : 0;
    s->requested_bytes += e->size_bytes;
    put_bytes(p, "}(", 2);
    put_entry(p, WORD_address, gvmi_key(e->address));
    put_entry(p, WORD_size, e->len_bytes);
    put_entry(p, WORD_requested_size, e->size_bytes);
    put_word(p, WORD_state);
    put_word(p, live ? WORD_active_allocated : active ? WORD_active_pending_free : WORD_inactive);
    put_frames(p, e->tag);
    put_byte(p, 'u');
    next_item(p, &s->blocks);
}

static void put_heap_locked(gvm_heap *heap, snapshot *s)
{
    pickle *p = &s->out;

    s->ordinal = heap->device->info.ordinal;
    put_bytes(p, "\x80\x02", 2); /* protocol 2 */
    put_bytes(p, "}(", 2);
    put_word(p, WORD_segments);
    begin_list(p, &s->segments);
    gvmi_heap_visit_extents_locked(heap, put_extent, s);
    end_segment(s);
    put_byte(p, 'e');
    put_word(p, WORD_device_traces);
    put_bytes(p, "](", 2);
    for (int32_t i = 0; i <= s->ordinal; i++)
        put_byte(p, ']');
    put_bytes(p, "eu.", 3);
}

static gvm_status write_file(const char *path, const pickle *p)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    size_t done = 0;
    gvm_status status = GVM_OK;

    if (fd < 0)
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "open", "cannot write a snapshot to \"%s\"",
                                GVMI_TEXT_NAME(path));
    while (done < p->count && status == GVM_OK) {
        const ssize_t wrote = write(fd, p->bytes + done, p->count - done);

        if (wrote > 0)
            done += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            status = gvmi_fail_system(GVM_E_SYSTEM, wrote == 0 ? ENOSPC : errno, "write",
                                      "cannot write a snapshot of %zu bytes to \"%s\"", p->count,
                                      GVMI_TEXT_NAME(path));
    }
    if (close(fd) != 0 && status == GVM_OK)
        status = gvmi_fail_system(GVM_E_SYSTEM, errno, "close", "cannot write a snapshot to \"%s\"",
                                  GVMI_TEXT_NAME(path));
    return status;
}

gvm_status gvm_heap_save_snapshot(gvm_heap *handle, const char *path)
{
    GVMI_UNCANCELLED;
    snapshot s = {.ordinal = 0};
    gvm_heap *heap;
    gvm_status status;

    if (path == NULL)
        return gvm_error_set(GVM_E_INVALID, "path is NULL");
    status = gvmi_heap_hold(handle, &heap);
    if (status != GVM_OK)
        return status;
    gvmi_lock(&heap->lock);
    gvmi_shelves_own_locked(heap);
    put_heap_locked(heap, &s);
    gvmi_shelves_leave_locked(heap);
    gvmi_unlock(&heap->lock);
    gvmi_heap_drop(heap);
    status = s.out.failed ? gvm_error_set(GVM_E_NOMEM, "out of host memory for a heap's snapshot")
                          : write_file(path, &s.out);
    free(s.out.bytes);
    return status;
}
