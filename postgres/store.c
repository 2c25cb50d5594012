/* Rows to columns and back; see store.h. */
#include "postgres.h"

#include "access/detoast.h"
#include "access/toast_internals.h"
#include "access/tupmacs.h"
#include "foreign/foreign.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "postgres/option.h"
#include "postgres/store.h"

#define STAGE_BYTES (1u << 20) /* staged rows are flushed when they are so large */
#define BATCH_ROWS 65536u      /* read at a time, at most */
#define BATCH_BYTES (8u << 20)
#define BODY_UNIT 8u /* of offsets */
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
        if (!a->attisdropped)
            columns[i].pglz = gstore_column_is_compressed(RelationGetRelid(relation), a->attnum);
    }
    return columns;
}

void gstore_check_columns(Relation relation, const gstore_view *view)
{
    const TupleDesc desc = RelationGetDescr(relation);

    for (int i = 0; i < Min(desc->natts, view->column_count); i++) {
        const Form_pg_attribute a = TupleDescAttr(desc, i);
        const gstore_column *c = &view->columns[i];

        if (!a->attisdropped && !c->dropped &&
            (a->atttypid != c->type || a->attlen != c->length || a->attbyval != c->by_value))
            ereport(ERROR,
                    (errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
                     errmsg("column \"%s\" has another type now than its data in GPU memory",
                            NameStr(a->attname)),
                     errhint("Undo the change of type, or TRUNCATE the table and load it again.")));
    }
}

/* ---- writing */

typedef struct stage {
    StringInfoData values, nulls, bodies;
    bool any_null;
} stage;

struct gstore_writer {
    MemoryContext context;
    TupleDesc desc;
    uint64 first; /* row number of the first one staged */
    uint64 count;
    uint64 bytes;         /* of all stages, about */
    uint64 *bodies_first; /* by column: the bodies area's end before the first staged row */
    stage *stages;
};

static void empty_stages(gstore_writer *writer)
{
    for (int i = 0; i < writer->desc->natts; i++) {
        stage *s = &writer->stages[i];

        resetStringInfo(&s->values);
        resetStringInfo(&s->nulls);
        resetStringInfo(&s->bodies);
        s->any_null = false;
    }
    writer->count = writer->bytes = 0;
}

gstore_writer *gstore_writer_create(TupleDesc desc)
{
    gstore_writer *writer = palloc0(sizeof *writer);

    writer->context = CurrentMemoryContext;
    writer->desc = CreateTupleDescCopy(desc);
    writer->stages = palloc0(sizeof(stage) * (Size)Max(desc->natts, 1));
    writer->bodies_first = palloc0(sizeof(uint64) * (Size)Max(desc->natts, 1));
    for (int i = 0; i < desc->natts; i++) {
        initStringInfo(&writer->stages[i].values);
        initStringInfo(&writer->stages[i].nulls);
        initStringInfo(&writer->stages[i].bodies);
    }
    return writer;
}

static inline void *extend(StringInfo s, uint32 bytes)
{
    char *end;

    enlargeStringInfo(s, (int)bytes);
    end = s->data + s->len;
    s->len += (int)bytes;
    return end;
}

/* Flat, with a 4-byte header, compressed or not as the column wants it. */
static struct varlena *flatten(const gstore_column *column, Datum value)
{
    struct varlena *body = PG_DETOAST_DATUM(value);

    if (column->pglz && !VARATT_IS_COMPRESSED(body)) {
        const Datum squeezed = toast_compress_datum(PointerGetDatum(body), TOAST_PGLZ_COMPRESSION);

        if (DatumGetPointer(squeezed) != NULL)
            return (struct varlena *)DatumGetPointer(squeezed);
    }
    return body;
}

static uint32 stage_body(stage *s, gstore_column *column, const char *name, Datum value)
{
    struct varlena *body = flatten(column, value);
    const uint32 bytes = (uint32)VARSIZE_ANY(body);
    const uint32 room = (uint32)TYPEALIGN(BODY_UNIT, bytes);
    const uint64 at = column->bodies_bytes;
    uint8 *to;

    if (at + room > BODIES_MAX)
        ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
                        errmsg("column \"%s\" is full: its values have %llu GiB", name,
                               (unsigned long long)(BODIES_MAX >> 30))));
    to = extend(&s->bodies, room);
    memcpy(to, body, bytes);
    memset(to + bytes, 0, room - bytes);
    column->bodies_bytes += room;
    return (uint32)(at / BODY_UNIT);
}

static void stage_value(stage *s, gstore_column *column, const char *name, Datum value, bool null)
{
    const uint32 width = gstore_width(column);
    uint8 *to;

    if (column->length < 0) {
        const uint32 offset = null ? 0 : stage_body(s, column, name, value);

        memcpy(extend(&s->values, width), &offset, sizeof offset);
        return;
    }
    to = extend(&s->values, width);
    if (null)
        memset(to, 0, width);
    else if (column->by_value)
        store_att_byval(to, value, column->length);
    else {
        memcpy(to, DatumGetPointer(value), (Size)column->length);
        memset(to + column->length, 0, width - (uint32)column->length);
    }
}

/* Of every row, so that a NULL that comes later finds those before it. */
static void stage_null(stage *s, uint64 index, bool null)
{
    if (index % 8 == 0)
        *(uint8 *)extend(&s->nulls, 1) = 0;
    if (null)
        s->any_null = true;
    else
        s->nulls.data[index / 8] |= (char)(1 << (index % 8));
}

void gstore_write_row(gstore_writer *writer, gstore_view *state, TupleTableSlot *slot)
{
    uint64 bytes = 0;

    slot_getallattrs(slot);
    if (writer->count == 0) {
        writer->first = state->rows;
        for (int i = 0; i < writer->desc->natts; i++)
            writer->bodies_first[i] = state->columns[i].bodies_bytes;
    }
    for (int i = 0; i < writer->desc->natts; i++) {
        const Form_pg_attribute a = TupleDescAttr(writer->desc, i);
        gstore_column *column = &state->columns[i];
        stage *s = &writer->stages[i];

        if (a->attisdropped)
            continue;
        stage_value(s, column, NameStr(a->attname), slot->tts_values[i], slot->tts_isnull[i]);
        if (column->length >= 0)
            stage_null(s, writer->count, slot->tts_isnull[i]);
        bytes += (uint64)s->values.len + (uint64)s->bodies.len;
    }
    writer->bytes = bytes;
    writer->count++;
    state->rows++;
    state->live_rows++;
    if (writer->bytes >= STAGE_BYTES)
        gstore_flush(writer, state);
}

/* The null bits of the staged rows, shifted so that they begin in the middle of a byte as the area
 * has it; *bytes of them. The bits before the first row are what they are in the store. */
static uint8 *shifted_nulls(const gstore_writer *writer, const gstore_view *state, int index,
                            bool had_nulls, uint64 *bytes)
{
    const uint32 shift = (uint32)(writer->first % 8);
    const uint8 *from = (const uint8 *)writer->stages[index].nulls.data;
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

        if (TupleDescAttr(writer->desc, i)->attisdropped)
            continue;
        pieces[count++] = (gstore_piece){.column = number,
                                         .part = GSTORE_VALUES,
                                         .offset_bytes = writer->first * gstore_width(column),
                                         .bytes = (uint64)s->values.len,
                                         .local = s->values.data};
        if (s->bodies.len > 0)
            pieces[count++] = (gstore_piece){.column = number,
                                             .part = GSTORE_BODIES,
                                             .offset_bytes = writer->bodies_first[i],
                                             .bytes = (uint64)s->bodies.len,
                                             .local = s->bodies.data};
        if (column->has_nulls || s->any_null) {
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
    MemoryContextSwitchTo(old);
    MemoryContextDelete(scratch);
    empty_stages(writer);
}

void gstore_writer_back_to(gstore_writer *writer, uint64 rows)
{
    Assert(rows <= writer->first || writer->count == 0);
    empty_stages(writer);
}

/* ---- reading */

gstore_batch *gstore_batch_create(int columns)
{
    gstore_batch *batch = palloc0(sizeof *batch);

    batch->columns = palloc0(sizeof(gstore_batch_column) * (Size)Max(columns, 1));
    batch->context = AllocSetContextCreate(CurrentMemoryContext, "gstore batch",
                                           ALLOCSET_DEFAULT_SIZES);
    return batch;
}

static uint64 rows_at_a_time(const gstore_view *view, const Bitmapset *wanted)
{
    uint64 width = 1;
    int number = -1;

    while ((number = bms_next_member(wanted, number)) >= 0)
        if (number <= view->column_count)
            width += gstore_width(&view->columns[number - 1]);
    return Max(Min(BATCH_ROWS, BATCH_BYTES / width), 64);
}

/* Bodies are in the order of their rows, so those of a run of rows are one run of bytes: from the first
 * offset of the batch to the one that ends it, if a further row has one, or else to the end. */
static void find_bodies(const gstore_batch *batch, int index, const gstore_view *view, uint64 *from,
                        uint64 *to)
{
    const uint32 *offsets = (const uint32 *)batch->columns[index].values;
    uint32 first = 0, last = 0;

    for (uint64 i = 0; i < batch->count; i++)
        if (offsets[i] != 0) {
            if (first == 0)
                first = offsets[i];
            last = offsets[i];
        }
    *from = (uint64)first * BODY_UNIT;
    *to = (uint64)last * BODY_UNIT; /* where the last one begins: its length is not known yet */
}

static uint64 read_bodies(gstore_batch *batch, int index, const gstore_view *view)
{
    gstore_batch_column *c = &batch->columns[index];
    gstore_piece piece = {.column = (uint16)(index + 1), .part = GSTORE_BODIES};
    uint64 from, last, bytes;
    union {
        struct varlena body;
        uint8 bytes[BODY_UNIT];
    } head; /* of the last body: no shorter one is stored */
    uint8 *local;

    find_bodies(batch, index, view, &from, &last);
    c->bodies_from = from;
    c->bodies = NULL;
    if (from == 0)
        return 0;
    piece.offset_bytes = last;
    piece.bytes = sizeof head.bytes;
    piece.local = head.bytes;
    gstore_transfer(GSTORE_READ, &view->name, &piece, 1);
    bytes = last - from + TYPEALIGN(BODY_UNIT, VARSIZE_ANY(&head.body));
    local = MemoryContextAllocHuge(batch->context, bytes);
    piece.offset_bytes = from;
    piece.bytes = bytes;
    piece.local = local;
    gstore_transfer(GSTORE_READ, &view->name, &piece, 1);
    c->bodies = local;
    return bytes;
}

uint64 gstore_read(gstore_batch *batch, const gstore_view *view, const Bitmapset *wanted,
                   uint64 first, uint64 count)
{
    gstore_piece *pieces;
    int used = 0, number = -1;
    uint64 moved = 0;

    MemoryContextReset(batch->context);
    batch->first = first;
    batch->nulls_from = first / 8 * 8;
    batch->count = Min(count, rows_at_a_time(view, wanted));
    pieces = MemoryContextAlloc(batch->context,
                                sizeof(gstore_piece) * 2 * (Size)(bms_num_members(wanted) + 1));
    while ((number = bms_next_member(wanted, number)) >= 0) {
        const gstore_column *column = &view->columns[number - 1];
        gstore_batch_column *c = &batch->columns[number - 1];
        const uint32 width = gstore_width(column);

        memset(c, 0, sizeof *c);
        if (number > view->column_count || column->dropped)
            continue;
        c->values = MemoryContextAllocHuge(batch->context, batch->count * width);
        pieces[used++] = (gstore_piece){.column = (uint16)number,
                                        .part = GSTORE_VALUES,
                                        .offset_bytes = first * width,
                                        .bytes = batch->count * width,
                                        .local = (void *)c->values};
        if (column->has_nulls && column->length >= 0) {
            const uint64 bytes = (first + batch->count + 7) / 8 - first / 8;

            c->nulls = MemoryContextAllocHuge(batch->context, bytes);
            pieces[used++] = (gstore_piece){.column = (uint16)number,
                                            .part = GSTORE_NULLS,
                                            .offset_bytes = first / 8,
                                            .bytes = bytes,
                                            .local = (void *)c->nulls};
        }
    }
    gstore_transfer(GSTORE_READ, &view->name, pieces, used);
    for (int i = 0; i < used; i++)
        moved += pieces[i].bytes;
    number = -1;
    while ((number = bms_next_member(wanted, number)) >= 0)
        if (number <= view->column_count && !view->columns[number - 1].dropped &&
            view->columns[number - 1].length < 0)
            moved += read_bodies(batch, number - 1, view);
    return moved;
}
