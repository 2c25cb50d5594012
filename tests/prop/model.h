/* tests/prop/model.h - a shadow of buffers, to hold the library against.
 *
 * A model is a set of a few buffers, vectors, pieces, imports and shares on one or two devices.
 * Each operation is done by the library and, in plain host memory, by the model; status,
 * information, access rights and contents must agree afterwards. What an operation does is decided
 * by the numbers in model_op and the state of the model alone, so that a list of operations can be
 * replayed, and shortened. Invalid calls are operations like any other.
 *
 * Threads: a model belongs to one thread at a time; several models may use the same devices at once
 * if they are not exact. Ownership: the caller owns the devices, and a model until model_end().
 */
#ifndef PROP_MODEL_H
#define PROP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include <gvmem/gvmem.h>

#define MODEL_DEVICES_MAX 2
#define MODEL_PROBLEM_BYTES 512

/* clang-format off */
/* X(kind, weight): what can be done, and how often random lists do it. */
#define MODEL_OPS(X) \
    X(CREATE, 8) X(ALLOC, 4) X(VECTOR, 4) X(DESTROY, 8) \
    X(COMMIT, 30) X(DECOMMIT, 15) X(SEAL, 1) X(MOVE, 14) X(GRANT, 6) \
    X(COPY_IN, 25) X(COPY_OUT, 15) X(COPY, 15) X(FILL, 15) \
    X(APPEND, 12) X(RESIZE, 6) X(VECTOR_COMMIT, 4) X(SHRINK, 3) \
    X(EXPORT, 10) X(UNSHARE, 4) X(SEND, 4) X(IMPORT, 10) X(UPDATE, 8) X(IPC, 2) \
    X(CHECKSUM, 5) X(COMPARE, 4) X(TRIM, 1) X(REOPEN, 1) X(INVALID, 10)
/* clang-format on */

#define MODEL_OP(kind, weight) MODEL_##kind,
typedef enum model_kind { MODEL_OPS(MODEL_OP) MODEL_KIND_COUNT } model_kind;
#undef MODEL_OP

/* Every value of every member means something. */
typedef struct model_op {
    uint8_t kind, item, other, flavour;
    uint32_t offset, len, value;
} model_op;

typedef struct model model;

/* exact: nobody else uses the devices, so that the model can tell when memory must be short and
 * when it must not. */
model *model_create(gvm_device *const devices[], int device_count, bool exact);

/* Does an operation. NULL, or what does not agree; the text belongs to the model, which can then
 * only be freed. */
const char *model_step(model *m, const model_op *op);

/* Compares the contents of everything. NULL, or what does not agree. */
const char *model_compare_all(model *m);

/* Destroys everything that is left and frees the model. */
void model_end(model *m);

/* Some operation, by the weights; *seed moves on. */
model_op model_random(uint64_t *seed);

/* One line about an operation, into a buffer of at least 96 bytes. */
char *model_describe(const model_op *op, char out[96]);

#endif
