/* Collections whose regions are windows of an array. */
#include "base/error.h"
#include "base/size.h"
#include "region/region.h"

#define UNIT 16u /* of widths and pitches: what a thread copies at once */

/* a * b, or more than any array has. */
static uint64_t times(uint64_t a, uint64_t b)
{
    return a == 0 || b <= GVMI_SPAN_BYTES_MAX / a ? a * b : GVMI_SPAN_BYTES_MAX + 1;
}

static uint64_t parts(uint64_t n, uint64_t each)
{
    return (n + each - 1) / each;
}

static gvm_status check_units(const gvm_region_shape *s)
{
    if (s->width_bytes % UNIT == 0 && s->row_pitch_bytes % UNIT == 0 && s->slice_pitch_bytes % UNIT == 0)
        return GVM_OK;
    return gvm_error_set(
        GVM_E_INVALID,
        "width %llu, row pitch %llu and slice pitch %llu of regions are to be multiples of %u bytes",
        (unsigned long long)s->width_bytes, (unsigned long long)s->row_pitch_bytes,
        (unsigned long long)s->slice_pitch_bytes, UNIT);
}

/* The defaults, and what follows from pitches that do not overflow. */
static gvm_status complete_shape(gvm_collection *c, uint64_t count)
{
    gvm_region_shape *s = &c->table.shape;
    uint64_t columns, rows;

    s->height = s->height != 0 ? s->height : 1;
    s->depth = s->depth != 0 ? s->depth : 1;
    if (s->row_pitch_bytes == 0)
        s->row_pitch_bytes = times(count, s->width_bytes);
    columns = gvmi_min(count, s->row_pitch_bytes / s->width_bytes);
    if (columns == 0)
        return gvm_error_set(
            GVM_E_INVALID, "rows of %llu bytes have no room for regions %llu bytes wide",
            (unsigned long long)s->row_pitch_bytes, (unsigned long long)s->width_bytes);
    if (s->slice_pitch_bytes == 0)
        s->slice_pitch_bytes = times(times(s->height, s->row_pitch_bytes), parts(count, columns));
    rows = gvmi_min(count, s->slice_pitch_bytes / times(s->height, s->row_pitch_bytes));
    if (rows == 0)
        return gvm_error_set(GVM_E_INVALID,
                             "slices of %llu bytes have no room for %u rows of %llu bytes",
                             (unsigned long long)s->slice_pitch_bytes, s->height,
                             (unsigned long long)s->row_pitch_bytes);
    c->table.columns = (uint32_t)columns;
    c->table.rows = (uint32_t)rows;
    c->homes_bytes = times(times(s->depth, s->slice_pitch_bytes), parts(parts(count, columns), rows));
    return GVM_OK;
}

gvm_status gvmi_region_set_shape(gvm_collection *c, const gvm_region_shape *shape, uint64_t count,
                                 uint64_t *region_bytes)
{
    const uint64_t width = shape->width_bytes;
    const uint64_t bytes = times(times(width, gvmi_max(shape->height, 1)), gvmi_max(shape->depth, 1));
    gvm_status status = check_units(shape);

    if (width == 0)
        return shape->height == 0 && shape->depth == 0 && shape->row_pitch_bytes == 0 &&
                       shape->slice_pitch_bytes == 0
                   ? GVM_OK
                   : gvm_error_set(GVM_E_INVALID, "a shape of regions without a width");
    if (status != GVM_OK)
        return status;
    if (*region_bytes != 0 && *region_bytes != bytes)
        return gvm_error_set(GVM_E_INVALID, "regions of %llu bytes do not have a shape of %llu bytes",
                             (unsigned long long)*region_bytes, (unsigned long long)bytes);
    c->table.shape = *shape;
    status = complete_shape(c, count);
    if (status != GVM_OK)
        return status;
    if (c->homes_bytes > GVMI_SPAN_BYTES_MAX)
        return gvm_error_set(GVM_E_INVALID, "regions of that shape are an array of more than 128 TiB");
    *region_bytes = bytes;
    return GVM_OK;
}

uint64_t gvmi_region_home(const gvm_collection *c, uint32_t region)
{
    const gvm_region_table *t = &c->table;
    const uint64_t homes = t->address + t->home * t->stride_bytes;

    return homes + (t->columns != 0 ? GVM_REGION_WINDOW_AT(t, region) : region * t->stride_bytes);
}
