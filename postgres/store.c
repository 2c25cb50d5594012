/* Rows to columns and back; see store.h. */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "access/tupmacs.h"
#include "foreign/foreign.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "postgres/option.h"
#include "postgres/progress.h"
#include "postgres/store.h"

#define STAGE_BYTES (1u << 20) /* staged rows are flushed when they are so large, */
#define STAGE_ROWS 32768u      /* or so many */
#define STAGE_BODIES_KEPT (4u << 20)
#define BATCH_ROWS 65536u /* read at a time, at most */
#define BATCH_ROWS_LEAST 64u
#define BATCH_BYTES (1u << 19) /* about what a processor's cache holds */
#define BODY_UNIT 8u           /* of offsets */
#define BODIES_MAX ((uint64)PG_UINT32_MAX * BODY_UNIT)

uint32 gstore_width(const gstore_column *column)
{
    return column->length < 0 ? sizeof(uint32)
                              : (uint32)att_align_nominal(column->length, column->align);
}

/* ---- columns */

gstore_column *gstore_describe(Relation relation)
{
    const TupleDesc desc = RelationGetDescr(relation);
    gstore_column *columns = palloc0(sizeof(gstore_column) * (Size)desc->natts);

    for (int i = 0; i < desc->natts; i++) {
        const Form_pg_attribute a = TupleDescAttr(desc, i);

        columns[i] = (gstore_column){.type = a->atttypid,
                                     .typmod = a->atttypmod,
                                     .length = a->attlen,
                                     .align = a->attalign,
                                     .by_value = a->attbyval,
                                     .dropped = a->attisdropped,
                                     .bodies_bytes = BODY_UNIT};
        /* Functions of types that are never toasted do not look whether a value is. */
        if (!a->attisdropped && TypeIsToastable(a->atttypid))
            columns[i].pglz = gstore_column_is_compressed(RelationGetRelid(relation), a->attnum);
    }
    return columns;
}

/* Read with the other type, the bytes mean the same. */
static bool is_same_form(const gstore_column *column, const Form_pg_attribute attribute)
{
    return column->length == attribute->attlen && column->by_value == attribute->attbyval &&
           column->align == attribute->attalign &&
           (column->type == attribute->atttypid ||
            IsBinaryCoercible(column->type, attribute->atttypid));
}

void gstore_check_columns(Relation relation, const gstore_view *view)
{
    const TupleDesc desc = RelationGetDescr(relation);

    for (int i = 0; i < Min(desc->natts, view->column_count); i++) {
        const Form_pg_attribute a = TupleDescAttr(desc, i);
        const gstore_column *c = &view->columns[i];

        if (!a->attisdropped && !c->dropped && !is_same_form(c, a))
            ereport(ERROR,
                    (errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
                     errmsg("column \"%s\" has another type now than its data in GPU memory",
                            NameStr(a->attname)),
                     errhint("Undo the change of type, or TRUNCATE the table and load it again.")));
    }
}

/* ---- writing */

typedef enum stage_kind {
    STAGE_NONE, /* dropped */
    STAGE_1,    /* by value, of so many bytes */
    STAGE_2,
    STAGE_4,
    STAGE_8,
    STAGE_FIXED, /* by reference */
    STAGE_VARLENA,
} stage_kind;

typedef struct stage {
    stage_kind kind;
    uint32 width;
    uint32 length;
    bool any_null;
    uint8 *values; /* of writer->capacity rows */
    uint8 *nulls;  /* fixed length: a bit for each of them */
    uint8 *bodies;
    uint64 bodies_used, bodies_room;
} stage;

struct gstore_writer {
    MemoryContext context;
    MemoryContext scratch; /* of values that are unpacked or packed; emptied with every flush */
    TupleDesc desc;
    uint64 first; /* row number of the first one staged */
    uint32 count, capacity;
    uint64 body_bytes;    /* of all stages */
    uint64 *bodies_first; /* by column: the bodies area's end before the first staged row */
    stage *stages;
};

static void empty_stages(gstore_writer *writer)
{
    for (int i = 0; i < writer->desc->natts; i++) {
        stage *s = &writer->stages[i];

        s->any_null = false;
        s->bodies_used = 0;
        if (s->bodies_room > STAGE_BODIES_KEPT) {
            pfree(s->bodies);
            s->bodies = NULL;
            s->bodies_room = 0;
        }
    }
    writer->count = 0;
    writer->body_bytes = 0;
    MemoryContextReset(writer->scratch);
}

static stage_kind kind_of(const Form_pg_attribute attribute)
{
    if (attribute->attisdropped)
        return STAGE_NONE;
    if (attribute->attlen < 0)
        return STAGE_VARLENA;
    if (!attribute->attbyval)
        return STAGE_FIXED;
    switch (attribute->attlen) {
    case 1: return STAGE_1;
    case 2: return STAGE_2;
    case 4: return STAGE_4;
    default: return STAGE_8;
    }
}

gstore_writer *gstore_writer_create(TupleDesc desc)
{
    gstore_writer *writer = palloc0(sizeof *writer);
    uint64 width = 1;

    writer->context = CurrentMemoryContext;
    writer->scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore values",
                                            ALLOCSET_DEFAULT_SIZES);
    writer->desc = CreateTupleDescCopy(desc);
    writer->stages = palloc0(sizeof(stage) * (Size)Max(desc->natts, 1));
    writer->bodies_first = palloc0(sizeof(uint64) * (Size)Max(desc->natts, 1));
    for (int i = 0; i < desc->natts; i++) {
        const Form_pg_attribute a = TupleDescAttr(desc, i);
        stage *s = &writer->stages[i];

        s->kind = kind_of(a);
        if (s->kind == STAGE_NONE)
            continue;
        s->length = a->attlen < 0 ? (uint32)sizeof(uint32) : (uint32)a->attlen;
        s->width = a->attlen < 0 ? s->length : (uint32)att_align_nominal(a->attlen, a->attalign);
        width += s->width;
    }
    writer->capacity = (uint32)Max(Min(STAGE_BYTES / width, STAGE_ROWS), 8) / 8 * 8;
    for (int i = 0; i < desc->natts; i++) {
        stage *s = &writer->stages[i];

        if (s->kind == STAGE_NONE)
            continue;
        s->values = MemoryContextAllocHuge(writer->context, (Size)writer->capacity * s->width);
        s->nulls = palloc(writer->capacity / 8);
    }
    return writer;
}

void gstore_writer_free(gstore_writer *writer)
{
    for (int i = 0; i < writer->desc->natts; i++) {
        stage *s = &writer->stages[i];

        if (s->kind == STAGE_NONE)
            continue;
        pfree(s->values);
        pfree(s->nulls);
        if (s->bodies != NULL)
            pfree(s->bodies);
    }
    MemoryContextDelete(writer->scratch);
    pfree(writer->stages);
    pfree(writer->bodies_first);
    FreeTupleDesc(writer->desc);
    pfree(writer);
}

static pg_noinline void make_room(gstore_writer *writer, stage *s, uint64 bytes)
{
    const uint64 room = Max(Max(2 * s->bodies_room, s->bodies_used + bytes), 8192);

    s->bodies = s->bodies == NULL ? MemoryContextAllocHuge(writer->context, room)
                                  : repalloc_huge(s->bodies, room);
    s->bodies_room = room;
}

/* One that is not plainly here: in a TOAST table, expanded, packed, or to be packed. */
static pg_noinline const struct varlena *flatten(gstore_writer *writer, const gstore_column *column,
                                                 struct varlena *value)
{
    MemoryContext old = MemoryContextSwitchTo(writer->scratch);
    struct varlena *body = value;

    if (!column->pglz || !VARATT_IS_COMPRESSED(value) ||
        toast_get_compression_id(value) != TOAST_PGLZ_COMPRESSION_ID) {
        body = detoast_attr(value);
        if (column->pglz) {
            const Datum squeezed = toast_compress_datum(PointerGetDatum(body), TOAST_PGLZ_COMPRESSION);

            if (DatumGetPointer(squeezed) != NULL)
                body = (struct varlena *)DatumGetPointer(squeezed);
        }
    }
    MemoryContextSwitchTo(old);
    return body;
}

/* Returns the offset of the body. */
static inline uint32 stage_body(gstore_writer *writer, stage *s, gstore_column *column, int index,
                                Datum value)
{
    const struct varlena *body = (const struct varlena *)DatumGetPointer(value);
    const uint64 at = column->bodies_bytes;
    const bool is_short = VARATT_IS_SHORT(body) && !VARATT_IS_EXTERNAL(body) && !column->pglz;
    uint64 bytes, room;
    uint8 *to;

    if (!is_short && (!VARATT_IS_4B_U(body) || column->pglz))
        body = flatten(writer, column, (struct varlena *)DatumGetPointer(value));
    bytes = is_short ? VARSIZE_SHORT(body) - VARHDRSZ_SHORT + VARHDRSZ : VARSIZE(body);
    room = TYPEALIGN(BODY_UNIT, bytes);
    if (at + room > BODIES_MAX)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("column \"%s\" is full: its values have %llu GiB",
                               NameStr(TupleDescAttr(writer->desc, index)->attname),
                               (unsigned long long)(BODIES_MAX >> 30))));
    if (s->bodies_used + room > s->bodies_room)
        make_room(writer, s, room);
    to = s->bodies + s->bodies_used;
    *(uint64 *)(to + room - BODY_UNIT) = 0; /* what aligns the next one */
    if (is_short) {
        SET_VARSIZE(to, bytes);
        memcpy(to + VARHDRSZ, VARDATA_SHORT(body), bytes - VARHDRSZ);
    } else
        memcpy(to, body, bytes);
    s->bodies_used += room;
    writer->body_bytes += room;
    column->bodies_bytes += room;
    return (uint32)(at / BODY_UNIT);
}

static void begin_stages(gstore_writer *writer, const gstore_view *state)
{
    writer->first = state->rows;
    for (int i = 0; i < writer->desc->natts; i++)
        writer->bodies_first[i] = state->columns[i].bodies_bytes;
}

void gstore_write_row(gstore_writer *writer, gstore_view *state, TupleTableSlot *slot)
{
    const int natts = writer->desc->natts;
    const uint32 at = writer->count;

    slot_getallattrs(slot);
    if (at == 0)
        begin_stages(writer, state);
    for (int i = 0; i < natts; i++) {
        stage *s = &writer->stages[i];
        const bool null = slot->tts_isnull[i];
        const Datum value = null ? (Datum)0 : slot->tts_values[i];

        switch (s->kind) {
        case STAGE_NONE: continue;
        case STAGE_1: s->values[at] = DatumGetUInt8(value); break;
        case STAGE_2: ((uint16 *)s->values)[at] = DatumGetUInt16(value); break;
        case STAGE_4: ((uint32 *)s->values)[at] = DatumGetUInt32(value); break;
        case STAGE_8: ((uint64 *)s->values)[at] = DatumGetUInt64(value); break;
        case STAGE_FIXED:
            memset(s->values + (Size)at * s->width, 0, s->width);
            if (!null)
                memcpy(s->values + (Size)at * s->width, DatumGetPointer(value), s->length);
            break;
        case STAGE_VARLENA:
            ((uint32 *)s->values)[at] = null ? 0 : stage_body(writer, s, &state->columns[i], i, value);
            continue; /* offset 0 is NULL enough */
        }
        if (at % 8 == 0)
            s->nulls[at / 8] = 0xff;
        if (null) {
            s->nulls[at / 8] &= (uint8) ~(1u << (at % 8));
            s->any_null = true;
        }
    }
    writer->count++;
    state->rows++;
    state->live_rows++;
    if (writer->count == writer->capacity || writer->body_bytes >= STAGE_BYTES)
        gstore_flush(writer, state);
}

/* The null bits of the staged rows, shifted so that they begin in the middle of a byte as the area
 * has it; *bytes of them. The bits before the first row are what they are in the store. */
static uint8 *shifted_nulls(const gstore_writer *writer, const gstore_view *state, int index,
                            bool had_nulls, uint64 *bytes)
{
    const uint32 shift = (uint32)(writer->first % 8);
    uint8 *from = writer->stages[index].nulls;
    uint8 *to;
    uint8 head = 0xff;

    *bytes = (shift + writer->count + 7) / 8;
    to = palloc0(*bytes + 1);
    if (shift > 0 && had_nulls) {
        const gstore_piece piece = {.column = (uint16)(index + 1),
                                    .part = GSTORE_NULLS,
                                    .offset_bytes = writer->first / 8,
                                    .bytes = 1,
                                    .local = &head};

        gstore_transfer(GSTORE_READ, &state->name, &piece, 1);
    }
    if (writer->count % 8 != 0)
        from[writer->count / 8] &= (uint8)((1u << (writer->count % 8)) - 1);
    for (uint64 i = 0; i < (writer->count + 7) / 8; i++) {
        to[i] |= (uint8)(from[i] << shift);
        to[i + 1] |= (uint8)(from[i] >> (8 - shift));
    }
    if (shift > 0)
        to[0] |= (uint8)(head & ((1 << shift) - 1));
    return to;
}

void gstore_flush(gstore_writer *writer, gstore_view *state)
{
    const int natts = writer->desc->natts;
    gstore_piece *pieces;
    uint64 bytes_written = 0;
    int count = 0;
    MemoryContext scratch, old;

    if (writer->count == 0)
        return;
    scratch = AllocSetContextCreate(CurrentMemoryContext, "gstore flush", ALLOCSET_DEFAULT_SIZES);
    old = MemoryContextSwitchTo(scratch);
    pieces = palloc(sizeof(gstore_piece) * 4 * (Size)Max(natts, 1));
    for (int i = 0; i < natts; i++) {
        const uint16 number = (uint16)(i + 1);
        gstore_column *column = &state->columns[i];
        stage *s = &writer->stages[i];

        if (s->kind == STAGE_NONE)
            continue;
        pieces[count++] = (gstore_piece){.column = number,
                                         .part = GSTORE_VALUES,
                                         .offset_bytes = writer->first * s->width,
                                         .bytes = (uint64)writer->count * s->width,
                                         .local = s->values};
        if (s->bodies_used > 0)
            pieces[count++] = (gstore_piece){.column = number,
                                             .part = GSTORE_BODIES,
                                             .offset_bytes = writer->bodies_first[i],
                                             .bytes = s->bodies_used,
                                             .local = s->bodies};
        if (s->kind != STAGE_VARLENA && (column->has_nulls || s->any_null)) {
            uint64 bytes;
            uint8 *bits = shifted_nulls(writer, state, i, column->has_nulls, &bytes);

            if (!column->has_nulls && writer->first >= 8) /* nobody before was NULL */
                pieces[count++] = (gstore_piece){
                    .column = number, .part = GSTORE_NULLS, .bytes = writer->first / 8, .byte = 0xff};
            pieces[count++] = (gstore_piece){.column = number,
                                             .part = GSTORE_NULLS,
                                             .offset_bytes = writer->first / 8,
                                             .bytes = bytes,
                                             .local = bits};
            column->has_nulls = true;
        }
    }
    gstore_transfer(GSTORE_WRITE, &state->name, pieces, count);
    for (int i = 0; i < count; i++)
        bytes_written += pieces[i].bytes;
    gstore_progress_add(state->name.table, writer->count, bytes_written);
    MemoryContextSwitchTo(old);
    MemoryContextDelete(scratch);
    empty_stages(writer);
}

void gstore_writer_back_to(gstore_writer *writer, uint64 rows)
{
    Assert(rows <= writer->first || writer->count == 0);
    empty_stages(writer);
}

void gstore_fill_new_columns(gstore_view *state, int first)
{
    gstore_piece *pieces;
    int count = 0;

    if (state->rows == 0 || first >= state->column_count)
        return;
    pieces = palloc(sizeof(gstore_piece) * 2 * (Size)(state->column_count - first));
    for (int i = first; i < state->column_count; i++) {
        gstore_column *column = &state->columns[i];

        if (column->dropped)
            continue;
        pieces[count++] = (gstore_piece){.column = (uint16)(i + 1),
                                         .part = GSTORE_VALUES,
                                         .bytes = state->rows * gstore_width(column)};
        if (column->length < 0)
            continue;
        pieces[count++] = (gstore_piece){
            .column = (uint16)(i + 1), .part = GSTORE_NULLS, .bytes = (state->rows + 7) / 8};
        column->has_nulls = true;
    }
    gstore_transfer(GSTORE_WRITE, &state->name, pieces, count);
    pfree(pieces);
}

/* ---- reading */

typedef enum buffer_kind {
    BUFFER_VALUES,
    BUFFER_NULLS,
    BUFFER_BODIES,
    BUFFER_KINDS,
} buffer_kind;

/* Kept from batch to batch: fresh memory for each would cost more than filling it. */
typedef struct gstore_buffer {
    uint8 *bytes;
    uint64 room;
} gstore_buffer;

gstore_batch *gstore_batch_create(int columns)
{
    gstore_batch *batch = palloc0(sizeof *batch);
    const Size count = (Size)Max(columns, 1);

    batch->columns = palloc0(sizeof(gstore_batch_column) * count);
    batch->buffers = palloc0(sizeof(gstore_buffer) * count * BUFFER_KINDS);
    batch->context = AllocSetContextCreate(CurrentMemoryContext, "gstore batch",
                                           ALLOCSET_DEFAULT_SIZES);
    return batch;
}

static uint8 *buffer_of(gstore_batch *batch, int index, buffer_kind kind, uint64 bytes)
{
    gstore_buffer *b = &batch->buffers[index * BUFFER_KINDS + (int)kind];

    if (b->room < bytes) {
        if (b->bytes != NULL)
            pfree(b->bytes);
        b->bytes = NULL;
        b->room = 0;
        b->bytes = MemoryContextAllocHuge(batch->context, bytes + bytes / 8);
        b->room = bytes + bytes / 8;
    }
    return b->bytes;
}

static bool has_column(const gstore_view *view, int number)
{
    return number <= view->column_count && !view->columns[number - 1].dropped;
}

uint64 gstore_rows_at_a_time(const gstore_view *view, const Bitmapset *wanted)
{
    uint64 width = 1;
    int number = -1;

    while ((number = bms_next_member(wanted, number)) >= 0)
        if (has_column(view, number)) {
            const gstore_column *column = &view->columns[number - 1];

            width += gstore_width(column);
            if (column->length < 0 && view->rows > 0)
                width += column->bodies_bytes / view->rows;
        }
    return Max(Min(BATCH_ROWS, BATCH_BYTES / width), BATCH_ROWS_LEAST);
}

/* Bodies are in the order of their rows, so those of a run of rows are one run of bytes: from the
 * first offset of the batch to that of the row behind it, or to the end of all. Only where that row is
 * NULL, the length of the last body must be asked for. next: that row's offset; NULL: no such row. */
static uint64 end_of_bodies(const gstore_view *view, int index, uint32 last, const uint32 *next)
{
    union {
        struct varlena body;
        uint8 bytes[BODY_UNIT]; /* no shorter one is stored */
    } head;
    const gstore_piece piece = {.column = (uint16)(index + 1),
                                .part = GSTORE_BODIES,
                                .offset_bytes = (uint64)last * BODY_UNIT,
                                .bytes = sizeof head.bytes,
                                .local = head.bytes};

    if (next == NULL)
        return view->columns[index].bodies_bytes;
    if (*next != 0)
        return (uint64)*next * BODY_UNIT;
    gstore_transfer(GSTORE_READ, &view->name, &piece, 1);
    return piece.offset_bytes + TYPEALIGN(BODY_UNIT, VARSIZE_ANY(&head.body));
}

/* Adds the piece that holds the bodies of the rows that have been read; false: they are all NULL. */
static bool add_bodies(gstore_batch *batch, int index, const gstore_view *view, gstore_piece *piece)
{
    gstore_batch_column *c = &batch->columns[index];
    const uint32 *offsets = (const uint32 *)c->values;
    uint64 first = 0, last = batch->count, end;

    while (first < batch->count && offsets[first] == 0)
        first++;
    if (first == batch->count)
        return false;
    while (offsets[last - 1] == 0)
        last--;
    end = end_of_bodies(view, index, offsets[last - 1],
                        batch->first + batch->count < view->rows ? &offsets[batch->count] : NULL);
    c->bodies_from = (uint64)offsets[first] * BODY_UNIT;
    if (end <= c->bodies_from)
        ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
                        errmsg("offsets of a column in GPU memory are out of order")));
    c->bodies = buffer_of(batch, index, BUFFER_BODIES, end - c->bodies_from);
    *piece = (gstore_piece){.column = (uint16)(index + 1),
                            .part = GSTORE_BODIES,
                            .offset_bytes = c->bodies_from,
                            .bytes = end - c->bodies_from,
                            .local = (void *)c->bodies};
    return true;
}

static uint64 fetch(const gstore_view *view, const gstore_piece *pieces, int count)
{
    uint64 moved = 0;

    if (count == 0)
        return 0;
    gstore_transfer(GSTORE_READ, &view->name, pieces, count);
    for (int i = 0; i < count; i++)
        moved += pieces[i].bytes;
    return moved;
}

uint64 gstore_read_columns(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted)
{
    const uint64 first = batch->first, count = batch->count;
    gstore_piece *pieces = palloc(sizeof(gstore_piece) * 2 * (Size)(bms_num_members(wanted) + 1));
    int used = 0, number = -1;
    uint64 moved;

    while ((number = bms_next_member(wanted, number)) >= 0) {
        gstore_batch_column *c = &batch->columns[number - 1];
        const gstore_column *column = &view->columns[number - 1];
        uint64 rows = count;
        uint32 width;

        memset(c, 0, sizeof *c);
        if (!has_column(view, number))
            continue;
        width = gstore_width(column);
        if (column->length < 0 && first + count < view->rows)
            rows++; /* where the last body ends */
        c->values = buffer_of(batch, number - 1, BUFFER_VALUES, rows * width);
        pieces[used++] = (gstore_piece){.column = (uint16)number,
                                        .part = GSTORE_VALUES,
                                        .offset_bytes = first * width,
                                        .bytes = rows * width,
                                        .local = (void *)c->values};
        if (column->has_nulls && column->length >= 0) {
            const uint64 bytes = (first + count + 7) / 8 - first / 8;

            c->nulls = buffer_of(batch, number - 1, BUFFER_NULLS, bytes);
            pieces[used++] = (gstore_piece){.column = (uint16)number,
                                            .part = GSTORE_NULLS,
                                            .offset_bytes = first / 8,
                                            .bytes = bytes,
                                            .local = (void *)c->nulls};
        }
    }
    moved = fetch(view, pieces, used);
    used = 0;
    number = -1;
    while ((number = bms_next_member(wanted, number)) >= 0)
        if (has_column(view, number) && view->columns[number - 1].length < 0 &&
            add_bodies(batch, number - 1, view, &pieces[used]))
            used++;
    moved += fetch(view, pieces, used);
    pfree(pieces);
    return moved;
}

void gstore_batch_move(gstore_batch *batch, uint64 first, uint64 count)
{
    batch->first = first;
    batch->nulls_from = first / 8 * 8;
    batch->count = count;
}

uint64 gstore_read(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted,
                   uint64 first, uint64 count)
{
    gstore_batch_move(batch, first, Min(count, gstore_rows_at_a_time(view, wanted)));
    return gstore_read_columns(batch, view, wanted);
}
