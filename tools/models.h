/* tools/models.h - which objects are models: their metadata begins with a mark, which gvmem.models of the package for Python
 * writes: "gvmem-model 1", how many tensors there are, and the version, with a blank between them.
 */
#ifndef TOOLS_MODELS_H
#define TOOLS_MODELS_H

#include <stdlib.h>
#include <string.h>

#include <gvmem/client.h>

#define MODELS_MARK "gvmem-model 1 "

typedef struct models_mark {
    uint64_t tensors;
    char version[GVM_METADATA_START_BYTES]; /* "": none was given */
} models_mark;

/* False: it is no model. */
static inline bool models_read_mark(const gvm_object_info *object, models_mark *out)
{
    char text[GVM_METADATA_START_BYTES + 1] = "", *end;
    const char *count = text + strlen(MODELS_MARK);

    memcpy(text, object->metadata_start, GVM_METADATA_START_BYTES);
    if (!object->sealed || strncmp(text, MODELS_MARK, strlen(MODELS_MARK)) != 0 || *count < '0' ||
        *count > '9')
        return false;
    out->tensors = strtoull(count, &end, 10);
    if (*end != ' ')
        return false;
    memcpy(out->version, end + 1, strlen(end + 1) + 1); /* shorter by the mark */
    return true;
}

#endif
