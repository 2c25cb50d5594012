/* query/kernel_text.h - GQUERY_TEXT: what a program says of the texts of a column. Device code.
 *
 * Whatever there is in place of offsets and lengths, nothing is read outside of the column: a text that is not
 * within its bytes raises GQUERY_E_TEXT, and so does one that is compressed, unless its length decides.
 *
 * Bytes are compared as words of 8: those of a text are taken from the aligned words that they are in, which may
 * have other bytes beside them.
 *
 * The answer for a text that ends within a character of UTF-8 is not specified.
 *
 * Threads: any.
 */
#ifndef GQUERY_KERNEL_TEXT_H
#define GQUERY_KERNEL_TEXT_H

#include "query/kernel_join.h"
#include "query/kernel_machine.h"
#include "query/kernel_values.h"

#define HEADER_BYTES 4u
#define COMPRESSED 2u
#define BLANK 0x20u
#define LETTER_A 0x41u
#define LETTER_SMALL_A 0x61u
#define NOWHERE (~0ull) /* no place in a text */
#define UNREADABLE (~0ull)
#define BAD_TEXT (~0ull)
#define EACH_BYTE 0x0101010101010101u
#define HALT_TRIES 1024u /* places where a piece may be, between two reads of the scan's halt */
#define HALT_BYTES 4096u /* of a text before which it is read */

typedef struct text {
    uint64_t at; /* an address; UNREADABLE: it is compressed */
    uint64_t bytes;
    uint32_t letters; /* the first of 26 that are taken as those of the other case; 0: none are */
} text;

/* ---- where it is */

GVM_DEVICE int is_in_bodies(const gquery_source *source, uint64_t at, uint64_t bytes)
{
    return at <= source->bytes && bytes <= source->bytes - at;
}

/* Behind a header, in which lengths are those of the whole; of what is compressed, with the text's behind it. */
GVM_DEVICE int find_body(const gquery_source *source, uint64_t at, text *out)
{
    const uint32_t *header = (const uint32_t *)(uintptr_t)(source->bodies + at);
    uint32_t first, kind, least;
    uint64_t whole;

    if (at % sizeof(uint64_t) != 0 || !is_in_bodies(source, at, HEADER_BYTES))
        return 0;
    first = header[0];
    kind = first & 3;
    whole = first >> 2;
    least = kind == COMPRESSED ? 2 * HEADER_BYTES : HEADER_BYTES;
    if ((kind != 0 && kind != COMPRESSED) || whole < least || !is_in_bodies(source, at, whole))
        return 0;
    out->at = kind == COMPRESSED ? UNREADABLE : source->bodies + at + HEADER_BYTES;
    out->bytes = kind == COMPRESSED ? header[1] & 0x3fffffffu : whole - HEADER_BYTES;
    return 1;
}

/* Of a row that is not NULL; out->letters stays. False: it is not within the column. */
GVM_DEVICE int find_text(const gquery_source *source, uint32_t form, uint64_t row, text *out)
{
    const uint64_t *values = (const uint64_t *)(uintptr_t)source->values;
    uint64_t from, to; /* read once: what is checked is what is used */

    if (form == GQUERY_TEXT_BODIES)
        return find_body(source, values[row], out);
    if (form == GQUERY_TEXT_FIXED) {
        out->at = source->values + row * source->bytes;
        out->bytes = source->bytes;
        return 1;
    }
    from = values[row];
    to = values[row + 1];
    out->at = source->bodies + from;
    out->bytes = to - from;
    return from <= to && to <= source->bytes;
}

/* ---- bytes */

/* Of 8 bytes, those that are letters from `first` on become those of the other case. */
GVM_DEVICE uint64_t other_case(uint64_t v, uint32_t first)
{
    const uint64_t low = v & EACH_BYTE * 0x7f;
    const uint64_t from = low + EACH_BYTE * (0x80 - first),
                   behind = low + EACH_BYTE * (0x80 - 26 - first);

    return v ^ ((from & ~behind & ~v & EACH_BYTE << 7) >> 2);
}

/* Up to 8 bytes from the place on, the first one lowest; 0 in place of those behind so many. */
GVM_DEVICE uint64_t word_at(text t, uint64_t place, uint64_t bytes)
{
    const uint64_t at = t.at + place;
    const uint64_t *word = (const uint64_t *)(uintptr_t)(at & ~7ull);
    const uint32_t shift = (uint32_t)(at & 7) * 8;
    uint64_t v = word[0] >> shift;

    if (shift != 0 && bytes > 8 - shift / 8)
        v |= word[1] << (64 - shift);
    if (t.letters != 0)
        v = other_case(v, t.letters);
    return bytes < 8 ? v & ~(~0ull << bytes * 8) : v;
}

GVM_DEVICE uint32_t byte_at(text t, uint64_t place)
{
    const uint32_t v = ((const uint8_t *)(uintptr_t)t.at)[place];

    return v - t.letters < 26 && t.letters != 0 ? v ^ 0x20 : v;
}

/* As GQUERY_TEXT_LOWER and GQUERY_TEXT_UPPER have it. */
GVM_DEVICE uint32_t letters_of(uint32_t flags)
{
    return (flags & GQUERY_TEXT_LOWER) != 0   ? LETTER_A
           : (flags & GQUERY_TEXT_UPPER) != 0 ? LETTER_SMALL_A
                                              : 0;
}

GVM_DEVICE void trim(text *t)
{
    while (t->bytes >= 8 && word_at(*t, t->bytes - 8, 8) == EACH_BYTE * BLANK)
        t->bytes -= 8;
    while (t->bytes > 0 && byte_at(*t, t->bytes - 1) == BLANK)
        t->bytes--;
}

/* It is not the first byte of a character. */
GVM_DEVICE int is_inner(uint32_t byte)
{
    return (byte & 0xc0u) == 0x80u;
}

/* The first place from `at` on with the byte, which is not 0. */
GVM_DEVICE uint64_t find_byte(text t, uint64_t at, uint64_t end, uint32_t byte)
{
    for (; at < end; at += 8) {
        const uint64_t v = word_at(t, at, end - at) ^ EACH_BYTE * byte;
        const uint64_t zeros = (v - EACH_BYTE) & ~v & EACH_BYTE << 7; /* right up to the first one */
        const uint64_t below = (zeros & (0 - zeros)) - 1;

        if (zeros != 0)
            return at + (gvm_count_ones((uint32_t)below) + gvm_count_ones((uint32_t)(below >> 32))) / 8;
    }
    return NOWHERE;
}

/* ---- GQUERY_TEXT_IN */

GVM_DEVICE int compare_text(const int64_t *values, int64_t with, text t)
{
    const int64_t *words = values + (uint32_t)with;
    const uint64_t bytes = (uint64_t)with >> 32;
    uint64_t at;

    if (t.bytes != bytes)
        return t.bytes < bytes ? -1 : 1;
    for (at = 0; at < bytes; at += 8) {
        const uint64_t v = word_at(t, at, bytes - at), w = (uint64_t)words[at / 8];

        if (v != w)
            return v < w ? -1 : 1;
    }
    return 0;
}

GVM_DEVICE uint64_t is_in_texts(const int64_t *values, uint32_t first, uint32_t count, text t)
{
    uint32_t low = first, high = first + count;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        int compared;

        if (t.at == UNREADABLE && t.bytes == (uint64_t)values[middle] >> 32)
            return BAD_TEXT;
        compared = compare_text(values, values[middle], t);
        if (compared == 0)
            return 1;
        if (compared > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* ---- GQUERY_TEXT_LIKE */

typedef struct piece {
    const int64_t *words;
    uint32_t bytes;
} piece;

GVM_DEVICE piece piece_of(const int64_t *values, uint32_t at)
{
    const piece found = {values + (uint32_t)values[at], (uint32_t)((uint64_t)values[at] >> 32)};

    return found;
}

GVM_DEVICE uint32_t piece_byte(piece p, uint32_t i)
{
    return (uint32_t)((uint64_t)p.words[i / 8] >> i % 8 * 8) & 0xff;
}

/* The place behind it, if it is at this one. */
GVM_DEVICE uint64_t match_at(text t, uint64_t at, piece p, uint32_t flags)
{
    uint32_t i;

    for (i = 0; i < p.bytes; i++) {
        const uint32_t wanted = piece_byte(p, i);

        if (at == t.bytes || (wanted != 0 && byte_at(t, at) != wanted))
            return NOWHERE;
        at++;
        if (wanted == 0 && (flags & GQUERY_TEXT_UTF8) != 0)
            while (at < t.bytes && is_inner(byte_at(t, at)))
                at++;
    }
    return at;
}

/* The place where it begins that ends with the text, not before `least`. */
GVM_DEVICE uint64_t match_end(text t, uint64_t least, piece p, uint32_t flags)
{
    uint64_t at = t.bytes;
    uint32_t i;

    for (i = p.bytes; i-- > 0;) {
        const uint32_t wanted = piece_byte(p, i);

        if (at == least)
            return NOWHERE;
        at--;
        if (wanted != 0 && byte_at(t, at) != wanted)
            return NOWHERE;
        if (wanted == 0 && (flags & GQUERY_TEXT_UTF8) != 0)
            while (at > least && is_inner(byte_at(t, at)))
                at--;
    }
    return at;
}

/* The place behind the first one from `at` on. It may take as many steps as both have bytes, multiplied. */
GVM_DEVICE uint64_t match_next(const gquery_scan *scan, machine *m, text t, uint64_t at, piece p,
                               uint32_t flags)
{
    const uint32_t first = piece_byte(p, 0);
    uint64_t behind = NOWHERE;
    uint32_t tries = 0;

    while (at < t.bytes && behind == NOWHERE) {
        if (first != 0)
            at = find_byte(t, at, t.bytes, first);
        if (at == NOWHERE || (++tries % HALT_TRIES == 0 && end_if_halted(scan, m)))
            return NOWHERE;
        behind = match_at(t, at, p, flags);
        at++; /* in the midst of a character there is no other match of a piece that begins with any one */
    }
    return behind;
}

/* Each piece is taken where it comes first: that leaves most to those behind it. */
GVM_DEVICE int is_like(const gquery_scan *p, machine *m, uint32_t first, uint32_t count,
                       uint32_t flags, text t)
{
    const int64_t *values = m->program->values;
    uint64_t at = 0;
    uint32_t left = count;

    if ((flags & GQUERY_TEXT_FROM_START) != 0) {
        at = match_at(t, 0, piece_of(values, first++), flags);
        left--;
    }
    if (at != NOWHERE && (flags & GQUERY_TEXT_TO_END) != 0) {
        if (left == 0)
            return at == t.bytes;
        left--;
        t.bytes = match_end(t, at, piece_of(values, first + left), flags);
        if (t.bytes == NOWHERE)
            return 0;
    }
    for (; at != NOWHERE && left > 0; left--)
        at = match_next(p, m, t, at, piece_of(values, first++), flags);
    return at != NOWHERE;
}

/* ---- the answer */

GVM_DEVICE uint64_t count_characters(text t, uint32_t flags)
{
    uint64_t at, count = t.bytes;

    for (at = 0; at < t.bytes && (flags & GQUERY_TEXT_UTF8) != 0; at += 8) {
        const uint64_t v = word_at(t, at, t.bytes - at);
        const uint64_t inner = v & ~(v << 1) & EACH_BYTE << 7; /* as is_inner() has it */

        count -= gvm_count_ones((uint32_t)inner) + gvm_count_ones((uint32_t)(inner >> 32));
    }
    return count;
}

GVM_DEVICE int is_ascii(text t)
{
    uint64_t at;

    for (at = 0; at < t.bytes; at += 8)
        if ((word_at(t, at, t.bytes - at) & EACH_BYTE << 7) != 0)
            return 0;
    return 1;
}

GVM_DEVICE uint64_t bytes_from(text t, uint64_t at)
{
    return word_of_bytes(at < t.bytes ? word_at(t, at, t.bytes - at) : 0);
}

/* BAD_TEXT: there is none. */
GVM_DEVICE uint64_t answer(const gquery_scan *p, machine *m, const gquery_instruction *i, text t)
{
    const uint32_t kind = i->b & GQUERY_TEXT_KIND, first = (uint32_t)i->value,
                   count = (uint32_t)(i->value >> 32);

    if (t.bytes >= HALT_BYTES && end_if_halted(p, m))
        return 0;
    if ((i->b & GQUERY_TEXT_TRIMMED) != 0 && t.at != UNREADABLE)
        trim(&t);
    if (t.at == UNREADABLE &&
        ((i->b & GQUERY_TEXT_TRIMMED) != 0 || (kind != GQUERY_TEXT_IN && kind != GQUERY_TEXT_LENGTH)))
        return BAD_TEXT;
    if ((i->b & GQUERY_TEXT_ASCII) != 0 && (t.at == UNREADABLE || !is_ascii(t)))
        return BAD_TEXT;
    t.letters = letters_of(i->b);
    switch (kind) {
    case GQUERY_TEXT_IN: return is_in_texts(m->program->values, first, count, t);
    case GQUERY_TEXT_LIKE: return (uint64_t)is_like(p, m, first, count, i->b, t);
    case GQUERY_TEXT_LENGTH: return t.bytes;
    case GQUERY_TEXT_WORD: return bytes_from(t, i->value);
    default: return count_characters(t, i->b);
    }
}

/* Not every column that has NULLs has a bitmap of them. */
GVM_DEVICE uint32_t text_nulls(const machine *m, const gquery_source *source, uint32_t form,
                               uint32_t nulls)
{
    const uint32_t rows = form == GQUERY_TEXT_BODIES ? m->active & ~nulls : 0;
    uint32_t r;

    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++)
        if (has(rows, r) && ((const uint64_t *)(uintptr_t)source->values)[row_of(m, source, r)] == 0)
            nulls |= 1u << r;
    return nulls;
}

/* Row by row, in few registers. nulls: as the bitmap has them. After an error, which drops all results, texts are
 * not looked at: a run that is halted ends soon. */
GVM_DEVICE void test_texts(const gquery_scan *p, machine *m, const gquery_instruction *i, uint32_t nulls)
{
    const gquery_source *source = &p->sources[i->a];
    const uint32_t form = m->program->columns[i->a].form;
    uint32_t r;

    nulls = text_nulls(m, source, form, nulls);
    begin_push(m);
    GVM_NO_UNROLL
    for (r = 0; r < EACH; r++) {
        uint64_t v = 0;
        text t = {0, 0, 0};

        if (!has(m->active, r))
            continue;
        if (!has(nulls, r) && m->error == 0)
            v = find_text(source, form, row_of(m, source, r), &t) ? answer(p, m, i, t) : BAD_TEXT;
        if (v == BAD_TEXT && m->error == 0)
            m->error = GQUERY_E_TEXT;
        *place(m, m->depth - 1, r) = v;
    }
    load_top(m);
    set_nulls(m, (i->b & GQUERY_TEXT_KIND) == GQUERY_TEXT_WORD ? 0 : nulls);
}

#endif
