/* memory/layout.h - how a buffer's range is cut into chunks.
 *
 * All chunks have one size, chunk_bytes, unless the layout is graded. Then the first chunk_bytes and the
 * last chunk_bytes of the owner's reservation are cut into smaller chunks, which grow away from the end:
 * the first of them ends GVMI_GRADE_BYTES from it, and each of the others four times as far as the one
 * before, the last at chunk_bytes. For chunks of 512 MiB, in MiB:
 *
 *     2, 6, 24, 96, 384, 512, 512, ... 512, 384, 96, 24, 6, 2
 *
 * So both ends are cut alike: what is true of the first n chunks from one end is true of the last n. A
 * layout is cut by division (ungraded) or by the position of the highest bit (graded); nothing is stored
 * per chunk, and two numbers tell another process of it: chunk_bytes and the owner's reservation.
 *
 * Buffers that were imported show a part of the owner's: skip_bytes lie before it, in skip_chunks chunks.
 * What they reserve beyond the owner's end is cut into chunks of chunk_bytes, and stays empty.
 *
 * Only here and in what calls these functions is it known where a chunk lies.
 */
#ifndef GVMI_MEMORY_LAYOUT_H
#define GVMI_MEMORY_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"

#define GVMI_GRADE_SHIFT 21 /* log2(GVM_CHUNK_BYTES_MIN) */
#define GVMI_GRADE_BYTES (1ull << GVMI_GRADE_SHIFT)

typedef struct gvmi_layout {
    uint64_t chunk_bytes;  /* graded: a power of two above GVMI_GRADE_BYTES */
    uint64_t graded_bytes; /* the owner's reservation, at least two chunk_bytes; 0: ungraded */
    uint64_t skip_bytes, skip_chunks;
} gvmi_layout;

/* Can a reservation be graded? Its ends must not overlap. */
static inline bool gvmi_layout_can_grade(uint64_t reserve_bytes, uint64_t chunk_bytes)
{
    return chunk_bytes > GVMI_GRADE_BYTES && reserve_bytes >= 2 * chunk_bytes;
}

/* Chunks in one graded end. */
static inline uint64_t gvmi_grade_count(uint64_t chunk_bytes)
{
    return 1 + ((uint64_t)__builtin_ctzll(chunk_bytes) - GVMI_GRADE_SHIFT + 1) / 2;
}

/* Bytes of the outermost count chunks of a graded end, which has that many. */
static inline uint64_t gvmi_grade_bytes(uint64_t chunk_bytes, uint64_t count)
{
    const uint64_t bytes = count > 0 ? GVMI_GRADE_BYTES << 2 * (count - 1) : 0;

    return gvmi_min(bytes, chunk_bytes);
}

/* The chunk, counted from the end, of the byte at that distance from it. */
static inline uint64_t gvmi_grade_at(uint64_t bytes)
{
    if (bytes < GVMI_GRADE_BYTES)
        return 0;
    return (63 - (uint64_t)__builtin_clzll(bytes) - GVMI_GRADE_SHIFT) / 2 + 1;
}

/* The chunk that an offset lies in; of the reservation's end, the number of chunks. */
static inline uint64_t gvmi_layout_at(const gvmi_layout *l, uint64_t offset_bytes)
{
    const uint64_t size = l->chunk_bytes, whole = l->graded_bytes, at = l->skip_bytes + offset_bytes;
    uint64_t count, index;

    if (whole == 0)
        return at / size - l->skip_chunks;
    count = gvmi_grade_count(size);
    if (at < size)
        index = gvmi_grade_at(at);
    else if (at < whole - size)
        index = count + at / size - 1;
    else if (at < whole)
        index = count + whole / size - 2 + count - 1 - gvmi_grade_at(whole - 1 - at);
    else
        index = count + whole / size - 2 + count + (at - whole) / size;
    return index - l->skip_chunks;
}

/* Where a chunk begins; of the number of chunks, the reservation's end. */
static inline uint64_t gvmi_layout_start(const gvmi_layout *l, uint64_t index)
{
    const uint64_t size = l->chunk_bytes, whole = l->graded_bytes, i = l->skip_chunks + index;
    uint64_t count, inner, start;

    if (whole == 0)
        return i * size - l->skip_bytes;
    count = gvmi_grade_count(size);
    inner = whole / size - 2;
    if (i < count)
        start = gvmi_grade_bytes(size, i);
    else if (i < count + inner)
        start = (i - count + 1) * size;
    else if (i < count + inner + count)
        start = whole - gvmi_grade_bytes(size, count + inner + count - i);
    else
        start = whole + (i - count - inner - count) * size;
    return start - l->skip_bytes;
}

static inline uint64_t gvmi_layout_size(const gvmi_layout *l, uint64_t index)
{
    return gvmi_layout_start(l, index + 1) - gvmi_layout_start(l, index);
}

/* How many chunks the first bytes of the range touch. */
static inline uint64_t gvmi_layout_touched(const gvmi_layout *l, uint64_t bytes)
{
    return bytes > 0 ? gvmi_layout_at(l, bytes - 1) + 1 : 0;
}

/* Does a chunk begin there, or the range end? */
static inline bool gvmi_layout_is_edge(const gvmi_layout *l, uint64_t offset_bytes)
{
    return gvmi_layout_start(l, gvmi_layout_at(l, offset_bytes)) == offset_bytes;
}

#endif
