/* The kernel of region_stencil.c: each cell becomes the mean of its four neighbours. */
#include <gvmem/device/region.h>

/* The same in region_stencil.c. */
typedef struct stencil_params {
    gvm_region_view from, to; /* strips of rows */
    uint32_t rows, width;     /* of a strip */
} stencil_params;

/* What a strip and its neighbours hold; one that the grid does not have is the strip itself. */
typedef struct strips {
    const float *above, *own, *below;
} strips;

GVM_DEVICE void step_strip(const stencil_params *p, uint32_t strip, const strips *s, float *to)
{
    const uint32_t width = p->width, first = strip * p->rows, last = p->to.count * p->rows - 1;
    uint32_t i;

    for (i = gvm_thread(); i < p->rows * width; i += gvm_block_threads()) {
        const uint32_t row = i / width, x = i % width;
        const float *up = row > 0 ? s->own + i - width : s->above + (p->rows - 1) * width + x;
        const float *down = row + 1 < p->rows ? s->own + i + width : s->below + x;

        /* The border of the grid stays. */
        if (x == 0 || x + 1 == width || first + row == 0 || first + row == last)
            to[i] = s->own[i];
        else
            to[i] = ((*up + *down) + (s->own[i - 1] + s->own[i + 1])) * 0.25f;
    }
}

GVM_DEVICE const float *map_strip(const stencil_params *p, uint32_t strip)
{
    return (const float *)gvm_region_map_block(&p->from, strip, GVM_REGION_READ);
}

GVM_DEVICE void unmap_strip(const stencil_params *p, uint32_t strip, const float *address)
{
    if (address != (const float *)0)
        gvm_region_unmap_block(&p->from, strip);
}

GVM_KERNEL(stencil, stencil_params, p)
{
    const uint32_t last = p.to.count - 1;
    uint32_t strip;

    for (strip = gvm_block(); strip <= last; strip += gvm_block_count()) {
        const uint32_t before = strip > 0 ? strip - 1 : strip, after = strip < last ? strip + 1 : strip;
        const strips s = {map_strip(&p, before), map_strip(&p, strip), map_strip(&p, after)};
        float *to = (float *)gvm_region_map_block(&p.to, strip, GVM_REGION_WRITE);

        if (s.above != (const float *)0 && s.own != (const float *)0 &&
            s.below != (const float *)0 && to != (float *)0)
            step_strip(&p, strip, &s, to);
        unmap_strip(&p, before, s.above);
        unmap_strip(&p, strip, s.own);
        unmap_strip(&p, after, s.below);
        if (to != (float *)0)
            gvm_region_unmap_block(&p.to, strip);
    }
}
