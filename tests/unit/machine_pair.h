/* tests/unit/machine_pair.h - an object of two chunks in the keeper's machine, and two clients that have it
 * open and mapped: one of its owner's, and another one.
 */
#ifndef UNIT_MACHINE_PAIR_H
#define UNIT_MACHINE_PAIR_H

#include "tests/unit/machine_fixture.h"

#define OWNER 1
#define OTHER 2

/* An object of two chunks, and a second client that has it mapped, too. */
typedef struct pair {
    fixture w;
    actor *a, *b;
    uint32_t a_slot, b_slot;
} pair;

static inline void start_pair_as(pair *p, const gvmi_machine_config *config, uint32_t flags,
                                 uint32_t uid, uint32_t open_flags)
{
    start_fixture_as(&p->w, config);
    p->a = join(&p->w, OWNER);
    p->b = join(&p->w, uid);
    p->a->create_flags = flags;
    assert_int_equal(create(&p->w, p->a, "/x", 2, 0666, &p->a_slot), GVM_OK);
    assert_int_equal(open_object(&p->w, p->b, "/x", open_flags, &p->b_slot), GVM_OK);
    map_object(&p->w, p->a, p->a_slot);
    map_object(&p->w, p->b, p->b_slot);
}

static inline void start_pair(pair *p, uint64_t device_chunks, uint64_t host_chunks, uint32_t flags,
                              uint32_t uid, uint32_t open_flags)
{
    const gvmi_machine_config config = small_config(device_chunks, host_chunks);

    start_pair_as(p, &config, flags, uid, open_flags);
}

static inline void cut_off(fixture *w, actor *a)
{
    gvmi_machine_violation(w->machine, a->number, "the test says so");
    run(w);
    assert_true(a->cut);
}

static inline const keep_object *only_object(const fixture *w)
{
    return w->machine->objects;
}

static inline uint32_t frame_of(const fixture *w, uint32_t chunk)
{
    return gvmi_keep_frame_where(&only_object(w)->chunks[chunk]);
}

static inline void note_frames(const fixture *w, uint32_t out[2])
{
    for (uint32_t i = 0; i < 2; i++)
        out[i] = frame_of(w, i);
}

static inline bool has_frame(const fixture *w, const uint32_t frames[2])
{
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t j = 0; j < 2; j++)
            if (frame_of(w, i) == frames[j])
                return true;
    return false;
}

static inline uint64_t used_bytes(const fixture *w, uint32_t uid)
{
    for (const keep_user *user = w->machine->users; user != NULL; user = user->next)
        if (user->uid == uid)
            return user->used_bytes;
    return 0;
}

#endif
