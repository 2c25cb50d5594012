/* The kernel of region_matmul.c: C = A * B, a tile of C at a time.
 *
 * Blocks go down the columns of tiles: those that run at the same time share a strip of B or a few, so that few are mapped at once,
 * and each is fetched once. Each block has a tile of C for itself, writes all of it, and fetches nothing of it. */
#include <gvmem/device/region.h>

/* The same in region_matmul.c. */
typedef struct matmul_params {
    gvm_region_view a, b, c;             /* one region; strips of columns; tiles */
    uint32_t rows, inner, width, height; /* width and height of a tile */
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

    for (i = gvm_thread(); i < p->height * p->width; i += gvm_block_threads()) {
        const uint32_t row = i / p->width, column = i % p->width;
        float sum = 0;

        for (k = 0; k < p->inner; k++)
            sum += a[row * p->inner + k] * row_of(b, b_pitch, k)[column];
        *(float *)((char *)c + row * c_pitch + column * sizeof sum) = sum;
    }
}

GVM_KERNEL(matmul, matmul_params, p)
{
    const uint32_t down = p.rows / p.height, across = p.c.count / down;
    uint32_t i;

    GVM_REGION_SCOPE_BLOCK(const float *, a, &p.a, 0, GVM_REGION_READ)
        for (i = gvm_block(); i < p.c.count; i += gvm_block_count())
            GVM_REGION_SCOPE_BLOCK(const float *, b, &p.b, i / down, GVM_REGION_READ)
                GVM_REGION_SCOPE_BLOCK(float *, c, &p.c, i % down * across + i / down, GVM_REGION_WRITE)
                    multiply(&p, c, a + (uint64_t)(i % down) * p.height * p.inner, b);
}
