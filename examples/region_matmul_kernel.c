/* The kernel of region_matmul.c: C = A * B, a strip of columns at a time. */
#include <gvmem/device/region.h>

/* The same in region_matmul.c. */
typedef struct matmul_params {
    gvm_region_view a, b, c; /* one region; strips of columns */
    uint32_t rows, inner, width, reserved;
} matmul_params;

/* The rows of a strip are so many bytes apart: in a frame and at home it is not the same. */
GVM_DEVICE const float *row_of(const float *strip, uint64_t pitch, uint32_t row)
{
    return (const float *)((const char *)strip + row * pitch);
}

GVM_DEVICE void multiply(const matmul_params *p, float *c, const float *a, const float *b)
{
    const uint64_t b_pitch = gvm_region_pitch(&p->b, b), c_pitch = gvm_region_pitch(&p->c, c);
    uint32_t i, k;

    for (i = gvm_thread(); i < p->rows * p->width; i += gvm_block_threads()) {
        const uint32_t row = i / p->width, column = i % p->width;
        float sum = 0;

        for (k = 0; k < p->inner; k++)
            sum += a[row * p->inner + k] * row_of(b, b_pitch, k)[column];
        *(float *)((char *)c + row * c_pitch + column * sizeof sum) = sum;
    }
}

GVM_KERNEL(matmul, matmul_params, p)
{
    uint32_t strip;

    GVM_REGION_SCOPE_BLOCK(const float *, a, &p.a, 0, GVM_REGION_READ)
        for (strip = gvm_block(); strip < p.c.count; strip += gvm_block_count())
            GVM_REGION_SCOPE_BLOCK(const float *, b, &p.b, strip, GVM_REGION_READ)
                GVM_REGION_SCOPE_BLOCK(float *, c, &p.c, strip, GVM_REGION_WRITE)
                    multiply(&p, c, a, b);
}
