/* What DLPack's ABI lays down (https://dmlc.github.io/dlpack/latest/), versions 0.x and 1.x. */
#ifndef GVMEM_PYTHON_DLPACK_H
#define GVMEM_PYTHON_DLPACK_H

#include <stdint.h>

#define DL_VERSION_MAJOR 1u
#define DL_VERSION_MINOR 1u

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };
enum { DL_FLOAT8_E4M3FN = 10, DL_FLOAT8_E5M2 = 12, DL_FLOAT8_E8M0FNU = 14 }; /* from 1.1 on */
#define DL_FLAG_READ_ONLY ((uint64_t)1)

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_managed_versioned;

#endif
