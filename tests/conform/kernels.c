/* Kernels of the conformance cases, in the dialect of gvmem/device/kernel.h. */
#include <gvmem/device/kernel.h>

#include "tests/conform/kernels.h"

#define WORDS32(address) ((uint32_t *)(uintptr_t)(address))
#define WORDS64(address) ((uint64_t *)(uintptr_t)(address))

GVM_GLOBAL(uint64_t, conform_word)

GVM_KERNEL(conform_touch_kernel, conform_touch, p)
{
    if (gvm_thread_global() == 0)
        gvm_store_release_u32_system(WORDS32(p.address), p.value);
}

GVM_KERNEL(conform_peek_kernel, conform_range, p)
{
    if (gvm_thread_global() == 0)
        *WORDS32(p.out) = gvm_load_acquire_u32_system(WORDS32(p.address));
}

GVM_KERNEL(conform_copy_kernel, conform_range, p)
{
    uint64_t i;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        WORDS32(p.out)[i] = WORDS32(p.address)[i];
}

GVM_KERNEL(conform_sum_kernel, conform_range, p)
{
    uint64_t i, sum = 0;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        sum += WORDS32(p.address)[i];
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(WORDS64(p.out), sum);
}

GVM_KERNEL(conform_fill_kernel, conform_fill, p)
{
    uint64_t i;
    for (i = gvm_thread_global(); i < p.words; i += gvm_thread_count())
        WORDS32(p.address)[i] = p.first + (uint32_t)i;
}

GVM_KERNEL(conform_count_kernel, conform_count, p)
{
    gvm_atomic_add_u64(WORDS64(p.out), 1);
}

GVM_KERNEL(conform_record_kernel, conform_count, p)
{
    if (gvm_thread() == 0 && gvm_block() < p.words)
        WORDS32(p.out)[gvm_block()] = gvm_block() + 1;
}

GVM_KERNEL(conform_reverse_kernel, conform_count, p)
{
    uint32_t *shared = (uint32_t *)gvm_shared();
    uint64_t i, sum = 0;
    for (i = gvm_thread(); i < p.words; i += gvm_block_threads())
        shared[p.words - 1 - i] = (uint32_t)i;
    gvm_block_sync();
    for (i = gvm_thread(); i < p.words; i += gvm_block_threads())
        sum += shared[i] * (i + 1);
    sum = gvm_block_sum_u64(sum);
    if (gvm_thread() == 0)
        gvm_atomic_add_u64(WORDS64(p.out), sum);
}

GVM_KERNEL(conform_slow_kernel, conform_slow, p)
{
    uint64_t start = gvm_clock_ns();
    if (gvm_thread_global() != 0)
        return;
    while (gvm_clock_ns() - start < p.nanoseconds)
        gvm_pause();
    gvm_store_release_u32_system(WORDS32(p.out), 1);
}

GVM_KERNEL(conform_global_kernel, conform_count, p)
{
    if (gvm_thread_global() == 0)
        *WORDS64(p.out) = conform_word + p.words;
}

GVM_KERNEL(conform_meet_kernel, conform_meet, p)
{
    uint64_t start = gvm_clock_ns();
    uint32_t round;
    if (gvm_thread() != 0)
        return;
    for (round = 1; round <= p.rounds; round++) {
        gvm_atomic_add_u64(WORDS64(p.counter), 1);
        while (gvm_load_acquire_u64(WORDS64(p.counter)) < (uint64_t)round * p.parties) {
            if (gvm_clock_ns() - start > p.limit_ns)
                return;
            gvm_pause();
        }
    }
    gvm_atomic_add_u64(WORDS64(p.out), 1);
}

GVM_KERNEL(conform_serve_kernel, conform_serve, p)
{
    conform_mailbox *box = (conform_mailbox *)(uintptr_t)p.mailbox;
    uint64_t start = gvm_clock_ns();
    uint32_t done = 1, request, what;
    if (gvm_thread_global() != 0)
        return;
    gvm_store_release_u32_system(&box->answer, done);
    while (gvm_clock_ns() - start < p.limit_ns) {
        request = gvm_load_acquire_u32_system(&box->request);
        if (request <= done) {
            gvm_pause();
            continue;
        }
        what = gvm_load_acquire_u32_system(&box->what);
        if (what == CONFORM_ASK_READ)
            box->result = gvm_load_acquire_u32_system(WORDS32(box->address));
        else if (what == CONFORM_ASK_WRITE)
            gvm_store_release_u32_system(WORDS32(box->address), box->value);
        done = request;
        gvm_store_release_u32_system(&box->answer, done);
        if (what == CONFORM_ASK_STOP)
            return;
    }
}

/* ---- blocks and warps */

/* Where the thread's result goes. */
GVM_DEVICE uint64_t *result_of(const conform_block *p)
{
    const uint64_t block = gvm_block_x() +
                           (uint64_t)gvm_blocks_x() *
                               (gvm_block_y() + (uint64_t)gvm_blocks_y() * gvm_block_z());

    return WORDS64(p->out) + block * gvm_block_threads() + gvm_thread();
}

GVM_KERNEL(conform_where_kernel, conform_block, p)
{
    uint64_t *out = result_of(&p);

    switch (p.what) {
    case CONFORM_THREAD: *out = CONFORM_PACK(gvm_thread_x(), gvm_thread_y(), gvm_thread_z()); break;
    case CONFORM_THREADS:
        *out = CONFORM_PACK(gvm_threads_x(), gvm_threads_y(), gvm_threads_z());
        break;
    case CONFORM_BLOCK: *out = CONFORM_PACK(gvm_block_x(), gvm_block_y(), gvm_block_z()); break;
    case CONFORM_BLOCKS: *out = CONFORM_PACK(gvm_blocks_x(), gvm_blocks_y(), gvm_blocks_z()); break;
    case CONFORM_NUMBER: *out = CONFORM_PACK(gvm_thread(), gvm_block_threads(), 0); break;
    case CONFORM_LANE: *out = CONFORM_PACK(gvm_lane(), gvm_warp(), gvm_warp_size()); break;
    case CONFORM_GLOBAL: *out = CONFORM_PACK(gvm_thread_global(), gvm_thread_count(), 0); break;
    }
}

GVM_DEVICE uint64_t bits_of(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

GVM_DEVICE uint64_t bits_of_float(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

#define SHUFFLE(name, p, v, d, lane) \
    switch (p->what % CONFORM_TYPES) { \
    case 0: return gvm_warp_shuffle##name##u32(p->mask, (uint32_t)(v), lane, p->width); \
    case 1: return gvm_warp_shuffle##name##u64(p->mask, v, lane, p->width); \
    case 2: return bits_of(gvm_warp_shuffle##name##f64(p->mask, d, lane, p->width)); \
    case 3: \
        return (uint64_t)(int64_t)gvm_warp_shuffle##name##i32(p->mask, (int32_t)(v), lane, p->width); \
    default: return bits_of_float(gvm_warp_shuffle##name##f32(p->mask, (float)d, lane, p->width)); \
    }

GVM_DEVICE uint64_t shuffle(const conform_block *p)
{
    const uint64_t v = CONFORM_VALUE(gvm_thread());
    const double d = CONFORM_DOUBLE(gvm_thread());

    switch (p->what / CONFORM_TYPES) {
    case CONFORM_INDEX_U32 / CONFORM_TYPES: SHUFFLE(_, p, v, d, p->n)
    case CONFORM_UP_U32 / CONFORM_TYPES: SHUFFLE(_up_, p, v, d, p->n)
    case CONFORM_DOWN_U32 / CONFORM_TYPES: SHUFFLE(_down_, p, v, d, p->n)
    default: SHUFFLE(_xor_, p, v, d, p->n)
    }
}

/* The sum over the lanes, and of this one and those before it, step by step. */
GVM_DEVICE uint64_t sum_by_steps(const conform_block *p)
{
    uint32_t sum = gvm_thread() + p->n, other, step;

    for (step = 1; step < gvm_warp_size(); step *= 2) {
        if (p->what == CONFORM_BUTTERFLY) {
            sum += gvm_warp_shuffle_xor_u32(p->mask, sum, step, gvm_warp_size());
        } else {
            other = gvm_warp_shuffle_up_u32(p->mask, sum, step, gvm_warp_size());
            sum += gvm_lane() >= step ? other : 0;
        }
    }
    return sum;
}

GVM_DEVICE uint64_t shuffle_by_halves(const conform_block *p)
{
    const uint32_t others = gvm_warp_mask() & ~p->mask;
    uint32_t v = (uint32_t)CONFORM_VALUE(gvm_thread()), i;

    if (p->mask >> gvm_lane() & 1) {
        for (i = 0; i < p->n; i++)
            v = gvm_warp_shuffle_xor_u32(p->mask, v, 1, 2);
        return v;
    }
    return gvm_warp_shuffle_xor_u32(others, v, 1, 2);
}

/* The mask of each round names those that are still in the loop. */
GVM_DEVICE uint64_t leave_one_by_one(const conform_block *p)
{
    const uint32_t all = gvm_warp_mask() & p->mask;
    uint64_t sum = 0;
    uint32_t round;

    for (round = 0; round <= gvm_lane(); round++)
        sum += gvm_count_ones(gvm_warp_ballot(all & ~((1u << round) - 1), 1));
    return sum;
}

GVM_DEVICE uint64_t look_at_lanes(const conform_block *p)
{
    const int yes = (int)(p->n >> gvm_lane() & 1);
    uint64_t before, total;
    uint32_t total_u32;

    switch (p->what) {
    case CONFORM_INDEX_OWN:
        return gvm_warp_shuffle_u32(p->mask, (uint32_t)CONFORM_VALUE(gvm_thread()),
                                    (5 * gvm_lane() + p->n) % p->width, gvm_warp_size());
    case CONFORM_BALLOT: return gvm_warp_ballot(p->mask, yes);
    case CONFORM_ANY: return gvm_warp_any(p->mask, yes) != 0;
    case CONFORM_ALL: return gvm_warp_all(p->mask, yes) != 0;
    case CONFORM_ACTIVE: return gvm_warp_active();
    case CONFORM_RANK:
        before = gvm_warp_rank(yes, &total_u32);
        return CONFORM_PACK(before, total_u32, 0);
    case CONFORM_BEFORE_U32:
        before = gvm_warp_before_u32(gvm_thread() + p->n, &total_u32);
        return CONFORM_PACK(before, total_u32, 0);
    case CONFORM_BEFORE_U64:
        before = gvm_warp_before_u64(gvm_thread() + p->n, &total);
        return CONFORM_PACK(before, total, 0);
    case CONFORM_BUTTERFLY:
    case CONFORM_SCAN: return sum_by_steps(p);
    case CONFORM_LOOP: return leave_one_by_one(p);
    case CONFORM_RETURNED: return gvm_warp_ballot(p->n, 1);
    default: return shuffle(p);
    }
}

GVM_KERNEL(conform_lanes_kernel, conform_block, p)
{
    if (p.what == CONFORM_HALVES)
        *result_of(&p) = shuffle_by_halves(&p);
    else if (p.mask >> gvm_lane() & 1)
        *result_of(&p) = look_at_lanes(&p);
    else
        *result_of(&p) = CONFORM_NOTHING;
}

/* Rounds: each thread writes a word, and reads that of the next one that takes part. */
GVM_DEVICE uint64_t exchange_in_rounds(const conform_block *p, uint32_t *words, uint32_t step)
{
    const uint32_t t = gvm_thread(), threads = gvm_block_threads();
    const uint32_t next = t + step < threads ? t + step : t % step;
    uint64_t sum = 0;
    uint32_t round;

    for (round = 0; round < p->n; round++) {
        words[t] = t * 1000 + round;
        gvm_block_sync();
        sum += words[next];
        gvm_block_sync();
    }
    return sum;
}

/* The same between lanes of a mask, apart from each other by step. */
GVM_DEVICE uint64_t exchange_in_warp(uint32_t rounds, uint32_t *words, uint32_t mask, uint32_t step)
{
    const uint32_t lane = gvm_lane(), t = gvm_thread();
    const uint32_t next = lane + step < gvm_warp_size() ? t + step : t - lane + lane % step;
    uint64_t sum = 0;
    uint32_t round;

    for (round = 0; round < rounds; round++) {
        words[t] = t * 1000 + round;
        gvm_warp_sync_lanes(mask);
        sum += words[next];
        gvm_warp_sync_lanes(mask);
    }
    return sum;
}

GVM_DEVICE uint64_t write_in_turns(const conform_block *p, uint32_t *words)
{
    uint64_t sum = 0;
    uint32_t round;

    for (round = 0; round < p->n; round++) {
        if (gvm_thread() == round % gvm_block_threads())
            words[0] = round + 1;
        gvm_block_sync();
        sum += words[0];
        gvm_block_sync();
        if (p->what == CONFORM_EXIT_LATER && gvm_thread() == round)
            return sum;
    }
    return sum;
}

GVM_DEVICE uint64_t branch(uint32_t *words)
{
    const uint32_t t = gvm_thread();
    uint32_t i, v = 1;

    words[t] = 0;
    if (t % 3 == 0)
        for (i = 0; i < t; i++)
            gvm_atomic_add_u32(&words[t], 2);
    else if (t % 3 == 1)
        words[t] = v;
    gvm_block_sync();
    v = words[gvm_block_threads() - 1 - t];
    return v;
}

/* All threads of the launch meet: a barrier of each block, and its first thread with those of the others. */
GVM_DEVICE uint64_t meet_in_rounds(const conform_block *p)
{
    const uint64_t all = (uint64_t)gvm_blocks_x() * gvm_blocks_y() * gvm_blocks_z();
    const uint64_t start = gvm_clock_ns(), threads = all * gvm_block_threads();
    uint64_t *own = result_of(p), *counter = WORDS64(p->out) + threads;
    const uint64_t next = ((uint64_t)(own - WORDS64(p->out)) + gvm_block_threads()) % threads;
    uint64_t sum = 0;
    uint32_t round;

    for (round = 0; round < 2 * p->n; round++) {
        if (round % 2 == 0)
            gvm_store_release_u64(own, round);
        else
            sum += gvm_load_acquire_u64(WORDS64(p->out) + next);
        gvm_fence();
        gvm_block_sync();
        if (gvm_thread() == 0) {
            gvm_atomic_add_u64(counter, 1);
            while (gvm_load_acquire_u64(counter) < (round + 1) * all &&
                   gvm_clock_ns() - start < CONFORM_SPIN_LIMIT_NS)
                gvm_pause();
        }
        gvm_block_sync();
    }
    return sum;
}

GVM_DEVICE uint64_t use_shared(const conform_block *p)
{
    GVM_SHARED(uint32_t, words, 1024);
    uint32_t *dynamic = (uint32_t *)gvm_shared();
    const uint32_t t = gvm_thread(), threads = gvm_block_threads();
    uint64_t sum;

    switch (p->what) {
    case CONFORM_STATIC:
    case CONFORM_DYNAMIC:
    case CONFORM_BOTH:
        if (p->what != CONFORM_DYNAMIC)
            words[t] = gvm_block() * 2000 + t;
        if (p->what != CONFORM_STATIC)
            dynamic[t] = gvm_block() * 3000 + t;
        gvm_block_sync();
        sum = p->what != CONFORM_DYNAMIC ? words[threads - 1 - t] : 0;
        return sum + (p->what != CONFORM_STATIC ? (uint64_t)dynamic[(t + 1) % threads] << 32 : 0);
    case CONFORM_LAST_WORD:
        if (t == threads - 1)
            dynamic[p->n - 1] = gvm_block() + 77;
        gvm_block_sync();
        return dynamic[p->n - 1];
    case CONFORM_ROUNDS:
    case CONFORM_EXIT_WARPS: return exchange_in_rounds(p, words, 1);
    case CONFORM_EXIT_LANES: return exchange_in_rounds(p, words, 2);
    case CONFORM_WRITERS:
    case CONFORM_EXIT_LATER: return write_in_turns(p, words);
    case CONFORM_BRANCHES: return branch(words);
    case CONFORM_WARP_SYNC: return exchange_in_warp(p->n, words, gvm_warp_mask(), 1);
    case CONFORM_BRANCH_SYNC:
        if (gvm_lane() % 2 == 0)
            return exchange_in_warp(p->n, words, gvm_warp_mask() & 0x55555555u, 2);
        return exchange_in_warp(p->n + 1, words, gvm_warp_mask() & 0xaaaaaaaau, 2);
    case CONFORM_SUM_U64: return gvm_block_sum_u64(CONFORM_VALUE(t));
    case CONFORM_SUM_F64: return bits_of(gvm_block_sum_f64(CONFORM_DOUBLE(t)));
    default: return meet_in_rounds(p);
    }
}

GVM_KERNEL(conform_shared_kernel, conform_block, p)
{
    uint64_t *out = result_of(&p);

    gvm_store_release_u64(out, CONFORM_NOTHING); /* others of the grid read it */
    if ((p.what == CONFORM_EXIT_WARPS && gvm_warp() % 2 == 1) ||
        (p.what == CONFORM_EXIT_LANES && gvm_lane() % 2 == 1))
        return;
    gvm_store_release_u64(out, use_shared(&p));
}

GVM_DEVICE uint64_t gather(const conform_block *p, uint64_t *word)
{
    const uint32_t t = gvm_thread();
    double *number = (double *)(void *)word;
    uint32_t *half = (uint32_t *)(void *)word;
    uint64_t seen = CONFORM_NOTHING;
    uint32_t i, old;
    uint64_t old_u64;

    for (i = 0; i < p->n; i++) {
        switch (p->what) {
        case CONFORM_ADD_U32: gvm_atomic_add_u32(half, t + 1); break;
        case CONFORM_ADD_U64: gvm_atomic_add_u64(word, (uint64_t)(t + 1) << 33); break;
        case CONFORM_ADD_F64: gvm_atomic_add_f64(number, 0.5 * (t + 1)); break;
        case CONFORM_ADD_F32:
            gvm_atomic_add_f32((float *)(void *)word, 0.5f * (float)(t + 1));
            break;
        case CONFORM_MIN_U32: gvm_atomic_min_u32(half, 1000000 - t * (i + 1)); break;
        case CONFORM_MIN_U64: gvm_atomic_min_u64(word, 1000000 - t * (i + 1)); break;
        case CONFORM_MAX_U32: gvm_atomic_max_u32(half, 1000000 + t * (i + 1)); break;
        case CONFORM_MAX_U64: gvm_atomic_max_u64(word, 1000000 + t * (i + 1)); break;
        case CONFORM_CAS_U32:
            for (old = 0; old != (seen = gvm_atomic_cas_u32(half, old, old + 1)); old = (uint32_t)seen)
                ;
            break;
        case CONFORM_CAS_U64:
            for (old_u64 = 0; old_u64 != (seen = gvm_atomic_cas_u64(word, old_u64, old_u64 + 3));
                 old_u64 = seen)
                ;
            break;
        case CONFORM_EXCHANGE: seen = gvm_atomic_exchange_u32(half, t + 1); break;
        }
    }
    gvm_block_sync();
    return p->what == CONFORM_EXCHANGE ? CONFORM_PACK(seen, half[0], 0) : *word;
}

GVM_KERNEL(conform_gather_kernel, conform_block, p)
{
    GVM_SHARED(uint64_t, word, 1);

    if (gvm_thread() == 0)
        word[0] = p.what == CONFORM_MIN_U32 || p.what == CONFORM_MIN_U64 ? ~(uint64_t)0 : 0;
    gvm_block_sync();
    *result_of(&p) = gather(&p, word);
}

/* Words of a block that its threads wait on. */
typedef struct spin_words {
    uint32_t lock, count, ticket, serving;
    uint32_t turn[1024];
} spin_words;

GVM_DEVICE int is_late(uint64_t start)
{
    return gvm_clock_ns() - start > CONFORM_SPIN_LIMIT_NS;
}

/* Waits until the word is at least value. */
GVM_DEVICE int reaches(const uint32_t *word, uint32_t value, uint64_t start)
{
    while (gvm_load_acquire_u32(word) < value)
        if (is_late(start))
            return 0;
    return 1;
}

/* Adds 1 under a lock, by a load and a store. */
GVM_DEVICE int count_under_lock(spin_words *s, uint64_t start)
{
    while (gvm_atomic_cas_u32(&s->lock, 0, 1) != 0)
        if (is_late(start))
            return 0;
    gvm_fence();
    gvm_store_release_u32(&s->count, gvm_load_acquire_u32(&s->count) + 1);
    gvm_store_release_u32(&s->lock, 0);
    return 1;
}

GVM_DEVICE int serve_tickets(spin_words *s, uint64_t start)
{
    const uint32_t ticket = gvm_atomic_add_u32(&s->ticket, 1);

    if (!reaches(&s->serving, ticket, start))
        return 0;
    gvm_store_release_u32(&s->count, gvm_load_acquire_u32(&s->count) + 1);
    gvm_store_release_u32(&s->serving, ticket + 1);
    return 1;
}

/* One time of the thread, the round's number from 1 on. */
GVM_DEVICE int spin_once(const conform_block *p, spin_words *s, uint32_t round, uint64_t start)
{
    const uint32_t lane = gvm_lane(), t = gvm_thread(), last = gvm_warp_size() - 1;
    const uint32_t other = lane == 0 ? t + last : t - last;
    int good = 1;

    switch (p->what) {
    case CONFORM_LOCK_TWO: return t > 1 || count_under_lock(s, start);
    case CONFORM_LOCK_ALL: return count_under_lock(s, start);
    case CONFORM_TICKETS: return serve_tickets(s, start);
    case CONFORM_PING_PONG:
        if (lane == 0 && last > 0) {
            gvm_store_release_u32(&s->turn[t], round);
            good = reaches(&s->turn[other], round, start);
        } else if (lane == last && last > 0) {
            good = reaches(&s->turn[other], round, start);
            gvm_store_release_u32(&s->turn[t], round);
        }
        return good;
    case CONFORM_WAIT_LOWER: good = lane == 0 || reaches(&s->turn[t - 1], round, start); break;
    case CONFORM_WAIT_HIGHER: good = lane == last || reaches(&s->turn[t + 1], round, start); break;
    case CONFORM_WARPS:
        good = t >= gvm_warp_size() || gvm_block_threads() <= gvm_warp_size() ||
               reaches(&s->turn[gvm_block_threads() - 1], round, start);
        break;
    case CONFORM_BRANCH:
        if (lane % 2 == 1)
            good = reaches(&s->turn[t - 1], round, start);
        else
            gvm_pause();
        break;
    }
    gvm_store_release_u32(&s->turn[t], round);
    return good;
}

GVM_KERNEL(conform_spin_kernel, conform_block, p)
{
    GVM_SHARED(spin_words, words, 1);
    const uint64_t start = gvm_clock_ns();
    uint32_t round, parties = p.what == CONFORM_LOCK_TWO ? 2 : gvm_block_threads();
    int good = 1;

    if (gvm_thread() == 0)
        words->lock = words->count = words->ticket = words->serving = 0;
    words->turn[gvm_thread()] = 0;
    gvm_block_sync();
    for (round = 1; round <= p.n && good; round++)
        good = spin_once(&p, words, round, start);
    gvm_block_sync();
    if (p.what == CONFORM_LOCK_TWO || p.what == CONFORM_LOCK_ALL || p.what == CONFORM_TICKETS)
        good = good && words->count == p.n * parties;
    *result_of(&p) = (uint64_t)good;
}
