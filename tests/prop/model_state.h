/* tests/prop/model_state.h - the inside of a model, for the files that make it up: model_state.c (state and
 * its comparison), ops.c, share_ops.c. */
#ifndef PROP_MODEL_STATE_H
#define PROP_MODEL_STATE_H

#include "tests/lib/units.h"
#include "tests/prop/model.h"

#define CHUNKS_MAX 16 /* of one item, if it is not graded */
#define CELLS_MAX 24
#define ITEMS_MAX 8
#define SHARES_MAX 3

/* Memory as it should be: shared by the chunks of exporter, importers and shares, as the real
 * one is. */
typedef struct memory {
    unsigned references;
    size_t bytes;
    uint8_t at[];
} memory;

typedef struct cell {
    gvm_tier tier;
    memory *memory; /* NULL iff absent */
} cell;

typedef enum item_kind { ITEM_NONE, ITEM_BUFFER, ITEM_PIECE, ITEM_VECTOR, ITEM_IMPORT } item_kind;

typedef struct item {
    item_kind kind;
    gvm_buffer *buffer;
    gvm_vector *vector;
    void *piece;
    int device;
    uint64_t address, chunk_bytes, chunk_count;
    uint64_t starts[CELLS_MAX + 1]; /* of the chunks, and the end */
    cell cells[CELLS_MAX];
    bool sealed, unshared, graded;
    gvm_access access, granted; /* granted: to the other device */
    uint64_t generation;
    uint64_t elem_bytes, count, capacity, max_count; /* vectors */
    uint64_t identity, source_first,
        source_generation; /* which buffer's memory, from which chunk on, as of when */
} item;

typedef struct shared {
    gvm_share *share;
    uint64_t identity, generation, first, chunk_count, chunk_bytes;
    uint64_t starts[CELLS_MAX + 1], owner_chunk_count; /* of all chunks of the owner */
    int device;
    bool sealed, graded;
    uint64_t address; /* the exporter's, of the first chunk */
    cell cells[CELLS_MAX];
} shared;

struct model {
    gvm_device *devices[MODEL_DEVICES_MAX];
    int device_count;
    bool exact;
    uint64_t steps, identities, seed;
    item items[ITEMS_MAX];
    shared shares[SHARES_MAX];
    uint8_t *scratch, *scratch_b; /* as large as the largest item */
    char problem[MODEL_PROBLEM_BYTES];
};

#define SCRATCH_BYTES (CHUNKS_MAX * 4 * MIB)

/* ---- what statuses are right: a set has a bit for each */
#define ONE_OF(status) (1ull << (status))

/* Records what does not agree and returns false. */
bool wrong(model *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The call must answer one of must, or if that is empty, success or one of may. */
bool judged(model *m, const char *call, gvm_status got, uint64_t must, uint64_t may);

/* ---- memory */
memory *memory_new(size_t bytes);
memory *memory_share(memory *shared_by);
void memory_drop(memory *dropped);

/* ---- items */
item *pick_item(model *m, uint8_t number, item_kind kind); /* ITEM_NONE: of any kind; NULL if there is none */
item *empty_item(model *m);
uint64_t reserve_bytes(const item *it);
uint64_t chunk_of(const item *it, uint64_t offset);
uint64_t chunk_len(const item *it, uint64_t chunk);
bool all_committed(const item *it, uint64_t offset, uint64_t len);
/* The statuses that writing to a range must be answered with; empty if it must succeed. */
uint64_t write_errors(const item *it, uint64_t offset, uint64_t len);
uint64_t read_errors(const item *it, uint64_t offset, uint64_t len);

/* Between the shadow and a host buffer. */
void shadow_write(item *it, uint64_t offset, const void *from, uint64_t len);
void shadow_read(const item *it, uint64_t offset, void *to, uint64_t len);

/* Takes what the library says is in fresh chunks as their contents: they are undefined, but must
 * not change from now on. */
bool adopt(model *m, item *it, uint64_t first, uint64_t end);

/* What may be said of an operation that needs so many bytes of the device: the set with NOSPACE
 * in it, or an empty one, in *must and *may. */
bool space_verdict(model *m, int device, uint64_t needed, uint64_t *must, uint64_t *may);

/* Makes an item of a new buffer of the library. */
bool item_begin(model *m, item *it, item_kind kind, gvm_buffer *buffer, int device);
void item_end(model *m, item *it); /* destroys it */

/* Cuts a new item's ends as the library does those of a graded buffer. */
void item_grade(item *it);

/* The item's information, generation and rights, and a sample of contents. changed: the
 * operation changed what generations count. */
bool compare_item(model *m, item *it);
bool compare_range(model *m, const item *it, uint64_t offset, uint64_t len);
bool generation_moved(model *m, item *it, bool changed);

/* ---- operations */
bool do_share_op(model *m, const model_op *op);
bool do_invalid(model *m, const model_op *op);
void share_end(shared *s);

/* A range of the item from an operation's numbers; about one in sixteen leaves the reservation
 * or is empty. */
void op_range(const item *it, const model_op *op, uint64_t *offset, uint64_t *len);

#endif
