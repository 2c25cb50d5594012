/* What both sides say of each region, as text. */
#include <errno.h>
#include <stdlib.h>

#include "base/address.h"
#include "base/cancel.h"
#include "base/error.h"
#include "region/region.h"

static const char *state_of(uint64_t word, uint32_t flags)
{
    const bool used = (word & GVM_REGION_REFERENCES) != 0;

    if ((word & GVM_REGION_CROWDED) != 0)
        return "spoilt";
    if ((word & GVM_REGION_BUSY) != 0)
        return (word & GVM_REGION_RESIDENT) != 0 ? "evicting" : "fetching";
    if ((word & GVM_REGION_REMOTE) != 0)
        return "remote";
    if ((word & GVM_REGION_COPYING) != 0 && (word & GVM_REGION_DIRTY) == 0)
        return (word & GVM_REGION_RESIDENT) != 0 ? "cleaning" : "coming";
    if ((word & GVM_REGION_DIRTY) != 0)
        return used ? "modifying" : "modified";
    if ((word & GVM_REGION_RESIDENT) != 0)
        return used ? "sharing" : "shared";
    return (flags & GVM_REGION_LIVE) != 0 ? "invalid" : "unused";
}

static const char *cpu_state_of(const gvmi_region *r)
{
    if ((r->flags & GVMI_REGION_LIVE) == 0)
        return "unused";
    if ((r->flags & GVMI_REGION_WRITING) != 0)
        return "modifying";
    if ((r->flags & GVMI_REGION_CHANGED) != 0)
        return "modified";
    if ((r->flags & GVMI_REGION_FAR) != 0)
        return "invalid";
    return r->maps > 0 ? "sharing" : "shared";
}

typedef struct copies {
    uint64_t *words;
    gvm_region_record *records;
} copies;

static gvm_status read_arrays(gvm_collection *c, copies *out)
{
    const uint64_t base = gvmi_address(gvm_buffer_address(c->meta)), count = c->table.count;
    gvm_status status;

    out->words = malloc(count * sizeof *out->words);
    out->records = malloc(count * sizeof *out->records);
    if (out->words == NULL || out->records == NULL)
        return gvm_error_set(GVM_E_NOMEM, "out of host memory for a table of %llu regions",
                             (unsigned long long)count);
    status = gvm_buffer_copy_out(out->words, c->meta, c->table.words - base,
                                 count * sizeof *out->words);
    return status == GVM_OK ? gvm_buffer_copy_out(out->records, c->meta, c->table.records - base,
                                                  count * sizeof *out->records)
                            : status;
}

static void print_region(FILE *file, const gvm_collection *c, uint32_t i, const copies *seen)
{
    const gvmi_region *r = &c->regions[i];
    const uint64_t word = seen->words[i], home = gvmi_region_home(c, i);
    uint64_t place = 0;

    if ((word & (GVM_REGION_COPYING | GVM_REGION_RESIDENT | GVM_REGION_BUSY | GVM_REGION_REFERENCES)) ==
            0 &&
        r->maps == 0 && (r->flags & (GVMI_REGION_CHANGED | GVMI_REGION_FAR)) == 0)
        return;
    if ((word & GVM_REGION_REMOTE) != 0)
        place = home;
    else if ((word & GVM_REGION_RESIDENT) != 0)
        place = c->table.address +
                ((word & GVM_REGION_SLOT_MASK) >> GVM_REGION_SLOT_SHIFT) * c->table.stride_bytes;
    fprintf(file, "%8u  CPU %-9s v%-5u 0x%012llx  GPU %-9s v%-5u 0x%012llx  %u maps\n", i,
            cpu_state_of(r), r->version, (unsigned long long)home,
            state_of(word, seen->records[i].flags), seen->records[i].version,
            (unsigned long long)place, (unsigned)(word & GVM_REGION_REFERENCES));
}

static gvm_status dump_collection(gvm_collection *c, FILE *file)
{
    copies seen = {0};
    gvm_status status = read_arrays(c, &seen);

    if (status == GVM_OK) {
        fprintf(file, "collection of %u regions of %llu bytes, %u frames\n", c->table.count,
                (unsigned long long)c->table.region_bytes, c->table.frame_count);
        for (uint32_t i = 0; i < c->table.count; i++)
            print_region(file, c, i, &seen);
    }
    free(seen.words);
    free(seen.records);
    return status;
}

gvm_status gvm_space_dump(gvm_space *handle, FILE *file)
{
    GVMI_UNCANCELLED;
    gvm_status status;
    gvm_collection *c;
    gvm_space *space;

    if (file == NULL)
        return gvm_error_set(GVM_E_INVALID, "file is NULL");
    status = gvmi_space_hold(handle, &space);
    if (status != GVM_OK)
        return status;
    LIST_FOREACH(c, &space->collections, entry)
    {
        if (status == GVM_OK)
            status = dump_collection(c, file);
    }
    gvmi_space_drop(space);
    if (status == GVM_OK && (fflush(file) != 0 || ferror(file)))
        return gvmi_fail_system(GVM_E_SYSTEM, errno, "write", "cannot write what a space holds");
    return status;
}
