/* Voided processes: the keeper has ended their leases and openings (keeper/machine/ending.c), but they
 * run, and go on writing to the frames that they have mapped.
 *
 * What such a process writes is the object's as long as the frame is what the object consists of and
 * no copy of it has begun: the content that an interrupted writer leaves is not defined. But nobody
 * who got a lease later may have such a frame mapped. */
#include "tests/prop/keeper_simulation.h"

/* Until the machine has looked for those who are late, a client that hung up may not be voided. */
#define LOOKS_NS 300000000ll

/* Was process p voided when thread t got its lease? */
static bool got_later(const simulation *w, const process *p, const thread *t)
{
    if (p->cut)
        return t->since_step > p->cut_step;
    return t->since_ns > p->disconnected_ns + w->config.revoke_limit_ms * 1000000ll + LOOKS_NS;
}

static bool has_mapped(const opening *o, const frame *f)
{
    for (uint32_t i = 0; i < CHUNKS_MAX; i++)
        if (o->map[i] == f)
            return true;
    return false;
}

static void check_victims(simulation *w, const process *p, const thread *t, const frame *f)
{
    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *q = w->processes[i];

        for (uint32_t k = 0; k < q->thread_count && q != p && sim_lease_counts(w, q); k++) {
            const thread *u = &q->threads[k];

            if (u->leased && u->opening->object == t->opening->object &&
                has_mapped(u->opening, f) && got_later(w, p, u))
                sim_wrong(w, "process %u, which was voided, writes to frame %u, where process %u has a lease",
                          p->index, f->spec.frame, q->index);
        }
    }
}

/* Is a copy of the frame under way? */
static bool is_copied(const simulation *w, const frame *f)
{
    for (uint32_t d = 0; d < DEVICES_MAX; d++)
        for (unsigned l = 0; l < 2; l++)
            for (const job *j = w->movers[d][l]; j != NULL; j = j->next)
                if (j->from == f && j->started)
                    return true;
    return false;
}

bool voided_write(simulation *w, process *p, thread *t)
{
    const opening *o = t->opening;
    const uint64_t chunks = (o->bytes + o->chunk_bytes - 1) / o->chunk_bytes;
    object *model = model_find(w, o->object);
    uint64_t chunk;
    frame *f;

    if (chunks == 0 || (t->mode != GVM_LEASE_WRITE && (!model->untracked || o->readonly || o->sealed)))
        return false;
    chunk = sim_random(w, chunks);
    f = o->map[chunk];
    if (f == NULL)
        return false;
    check_victims(w, p, t, f);
    f->value = ++w->version;
    w->voided_writes++;
    if (model->shown[chunk] == f && !f->dropped) {
        f->disputed = is_copied(w, f);
        if (!f->disputed)
            model->values[chunk] = f->value;
    }
    sim_log(w, "process %u, voided, writes version %llu to chunk %llu of object %llu, frame %u",
            p->index, (unsigned long long)f->value, (unsigned long long)chunk,
            (unsigned long long)o->object, f->spec.frame);
    return true;
}

void voided_slot(const process *p, uint32_t slot)
{
    const known_opening *known = &p->known[slot];
    const uint64_t word = atomic_load(&p->leases[slot].word);

    if (known->object == NULL || known->readonly)
        return;
    if (gvmi_lease_writers(word) > 0 || known->untaken > 0 ||
        (known->object->untracked && gvmi_lease_any(word)))
        known->object->writers |= 1ull << p->index;
}

void voided_begin(const process *p)
{
    for (uint32_t slot = 0; slot < p->slot_end; slot++)
        voided_slot(p, slot);
}

bool voided_may_write(const simulation *w, const object *o)
{
    for (uint32_t i = 0; i < w->process_count; i++)
        if ((o->writers >> i & 1) != 0 && !w->processes[i]->exited)
            return true;
    return false;
}

/* ---- memory */

static bool is_theirs(const simulation *w, const frame *f)
{
    uint32_t mapped = 0, flying = 0;

    for (uint32_t i = 0; i < w->process_count; i++) {
        const process *p = w->processes[i];

        if (!p->honest || (!p->cut && !p->disconnected))
            continue;
        for (uint32_t s = 0; s < p->slot_end; s++)
            for (uint32_t c = 0; p->openings[s] != NULL && c < CHUNKS_MAX; c++)
                mapped += p->openings[s]->map[c] == f;
        for (const packet *in = p->in.first; in != NULL; in = in->next)
            for (uint32_t c = 0; c < in->frame_count; c++)
                flying += in->frames[c] == f;
        for (const packet *pending = p->pending.first; pending != NULL; pending = pending->next)
            for (uint32_t c = 0; c < pending->frame_count; c++)
                flying += pending->frames[c] == f;
        for (uint32_t c = 0; p->mapping != NULL && c < p->mapping->frame_count; c++)
            flying += p->mapping->frames[c] == f;
    }
    return mapped == f->mapped && flying == f->flying;
}

void voided_check_dropped(simulation *w)
{
    for (uint32_t i = 0; i < w->left_count; i++) {
        const frame *f = w->left[i];

        if ((f->mapped > 0 || f->flying > 0) && !is_theirs(w, f))
            sim_wrong(w, "frame %u was dropped, but %u places map it and %u messages carry it (object %llu, chunk %u)",
                      f->spec.frame, f->mapped, f->flying, (unsigned long long)f->object, f->chunk);
    }
}

static bool same_place(const frame *a, const frame *b)
{
    return a->spec.tier == b->spec.tier &&
           (a->spec.tier == GVM_TIER_HOST || a->spec.device == b->spec.device);
}

uint64_t voided_bytes(simulation *w, const frame *like)
{
    uint64_t bytes = 0;
    uint32_t left = 0;

    for (uint32_t i = 0; i < w->left_count; i++) {
        frame *f = w->left[i];

        if (f->mapped == 0 && f->flying == 0)
            continue;
        w->left[left++] = f;
        bytes += same_place(f, like) ? f->spec.bytes : 0;
    }
    w->left_count = left;
    return bytes;
}

void voided_check_forgotten(simulation *w, const process *p)
{
    for (uint32_t s = 0; s < p->slot_end && !p->gone; s++)
        for (uint32_t c = 0; p->openings[s] != NULL && c < CHUNKS_MAX; c++)
            if (p->openings[s]->map[c] != NULL) {
                sim_wrong(w, "process %u is forgotten, and has frame %u mapped", p->index,
                          p->openings[s]->map[c]->spec.frame);
                return;
            }
}
