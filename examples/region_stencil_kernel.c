/* The kernel of region_stencil.c: each cell becomes the mean of its four neighbours. */
#include <gvmem/device/region.h>

/* The same in region_stencil.c. */
typedef struct stencil_params {
    gvm_region_view from, to; /* strips of rows */
    uint32_t rows, width;     /* of a strip */
} stencil_params;

/* above and below: the neighbours of the strip, or the strip itself where the grid ends. */
GVM_DEVICE void step_strip(const stencil_params *p, uint32_t strip, float *to, const float *above,
                           const float *own, const float *below)
{
    const uint32_t width = p->width, first = strip * p->rows, last = p->to.count * p->rows - 1;
    uint32_t i;

    for (i = gvm_thread(); i < p->rows * width; i += gvm_block_threads()) {
        const uint32_t row = i / width, x = i % width;
        const float *up = row > 0 ? own + i - width : above + (p->rows - 1) * width + x;
        const float *down = row + 1 < p->rows ? own + i + width : below + x;

        /* The border of the grid stays. */
        if (x == 0 || x + 1 == width || first + row == 0 || first + row == last)
            to[i] = own[i];
        else
            to[i] = ((*up + *down) + (own[i - 1] + own[i + 1])) * 0.25f;
    }
}

GVM_KERNEL(stencil, stencil_params, p)
{
    const uint32_t last = p.to.count - 1;
    uint32_t strip;

    for (strip = gvm_block(); strip <= last; strip += gvm_block_count()) {
        const uint32_t before = strip > 0 ? strip - 1 : strip, after = strip < last ? strip + 1 : strip;

        GVM_REGION_SCOPE_BLOCK(const float *, above, &p.from, before, GVM_REGION_READ)
            GVM_REGION_SCOPE_BLOCK(const float *, own, &p.from, strip, GVM_REGION_READ)
                GVM_REGION_SCOPE_BLOCK(const float *, below, &p.from, after, GVM_REGION_READ)
                    GVM_REGION_SCOPE_BLOCK(float *, to, &p.to, strip, GVM_REGION_WRITE)
                        step_strip(&p, strip, to, above, own, below);
    }
}
