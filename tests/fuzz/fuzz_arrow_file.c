/* The reader of Arrow's IPC formats under libFuzzer: any bytes at all must be refused, or be batches whose buffers lie
 * within the bytes, and of the same columns each time.
 *
 * clang -fsanitize=fuzzer,address,undefined, or linked with replay.c.
 */
#include <stdlib.h>
#include <string.h>

#include "postgres/arrow_file.h"

#define BATCHES_MAX 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void want(bool condition)
{
    if (!condition)
        abort();
}

typedef struct input {
    const uint8_t *data;
    size_t size;
} input;

static bool read_bytes(void *argument, uint64_t offset, void *to, uint64_t bytes)
{
    const input *in = argument;

    want(offset <= in->size && bytes <= in->size - offset);
    if (bytes > 0)
        memcpy(to, in->data + offset, bytes);
    return true;
}

static void check_buffer(const input *in, const gstore_load_buffer *buffer)
{
    want(buffer->offset <= in->size && buffer->bytes <= in->size - buffer->offset);
}

static void check_batch(const input *in, const gstore_load_batch *batch)
{
    want(batch->column_count > 0 && batch->column_count <= GSTORE_LOAD_COLUMNS_MAX);
    for (uint32_t i = 0; i < batch->column_count; i++) {
        const gstore_load_column *c = &batch->columns[i];

        want(memchr(c->name, '\0', sizeof c->name) != NULL);
        want(c->format[0] != '\0' && memchr(c->format, '\0', sizeof c->format) != NULL);
        want(memchr(c->element_format, '\0', sizeof c->element_format) != NULL);
        check_buffer(in, &c->validity);
        check_buffer(in, &c->offsets);
        check_buffer(in, &c->values);
        check_buffer(in, &c->element_validity);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    const gstore_arrow_input given = {.read = read_bytes, .argument = &in, .bytes = size};
    char text[GSTORE_ARROW_TEXT_BYTES] = "";
    gstore_arrow_file *file = NULL;
    gstore_load_batch batch;

    if (gstore_arrow_file_open(&given, &file, text) != GSTORE_ARROW_OK) {
        want(file == NULL && text[0] != '\0');
        return 0;
    }
    for (int i = 0; i < BATCHES_MAX; i++) {
        const gstore_arrow_result result = gstore_arrow_file_next(file, &batch, text);

        if (result != GSTORE_ARROW_OK)
            break;
        check_batch(&in, &batch);
    }
    gstore_arrow_file_close(file);
    return 0;
}
