/* tests/unit/machine_lending.h - two devices of the keeper's machine that lend each other memory, and objects on them.
 */
#ifndef UNIT_MACHINE_LENDING_H
#define UNIT_MACHINE_LENDING_H

#include "keeper/machine/lend.h"
#include "tests/unit/machine_fixture.h"

/* Two devices, of four chunks and of so many, which lend to each other. Each keeps half a chunk for itself, and so a whole one. */
static inline void start_lending(fixture *w, uint64_t second, uint64_t host)
{
    gvmi_machine_config config = small_config(4, host);

    config.device_count = 2;
    config.devices[1] = config.devices[0];
    config.devices[1].uuid[0] = 8;
    config.devices[1].ordinal = 1;
    config.devices[1].budget_bytes = second * CHUNK;
    config.devices[0].lenders = 2;
    config.devices[1].lenders = 1;
    start_fixture_as(w, &config);
}

static inline const keep_device *lender(const fixture *w)
{
    return &w->machine->devices[1];
}

/* What is where, in chunks. */
static inline void check_places(fixture *w, actor *a, uint32_t slot, uint64_t device, uint64_t lent,
                                uint64_t host)
{
    const gvmi_snapshot_object it = info(w, a, slot);

    assert_int_equal(it.device_bytes, device * CHUNK);
    assert_int_equal(it.lent_bytes, lent * CHUNK);
    assert_int_equal(it.host_bytes, host * CHUNK);
}

static inline gvm_status create_on_second(fixture *w, actor *a, const char *name, uint64_t chunks,
                                          uint32_t *slot)
{
    gvm_status status;

    a->create_device = 1;
    status = create(w, a, name, chunks, 0, slot);
    a->create_device = 0;
    return status;
}

/* An object of six chunks, of which the second device lends two. */
static inline void start_with_lent(fixture *w, actor **a, uint32_t *slot, uint64_t host)
{
    start_lending(w, 4, host);
    *a = join(w, 1);
    assert_int_equal(create(w, *a, "/x", 6, 0, slot), GVM_OK);
    check_places(w, *a, *slot, 4, 2, 0);
    assert_int_equal(lender(w)->place.lent_bytes, 2 * CHUNK);
}

/* Ends held jobs; those fail that copy to a frame of that device. */
static inline void end_jobs_without_memory(fixture *w, uint32_t device)
{
    while (w->job_count > 0) {
        const uint64_t job = w->jobs[--w->job_count];
        const gvmi_frame_spec *to =
            &w->machine->frames[w->machine->jobs[job & 0xffffffff].frame - 1].spec;
        const bool fails = to->tier == GVM_TIER_DEVICE && to->device == device;

        gvmi_machine_job_done(w->machine, job, fails ? GVM_E_NOMEM : GVM_OK);
        run(w);
    }
}

#endif
