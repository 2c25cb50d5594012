/* tests/conform/kernels.h - arguments of the kernels in kernels.c, as the host and the kernels see
 * them.
 *
 * Device addresses are 64-bit numbers on both sides.
 */
#ifndef CONFORM_KERNELS_H
#define CONFORM_KERNELS_H

#include <stdint.h>

/* touch: one word at address becomes value. */
typedef struct conform_touch {
    uint64_t address;
    uint32_t value;
    uint32_t unused;
} conform_touch;

/* peek: the word at address goes to out; copy: words from address to out; sum: their sum is added
 * to the u64 at out. */
typedef struct conform_range {
    uint64_t address;
    uint64_t out;
    uint64_t words;
} conform_range;

/* fill: word i becomes first + i. */
typedef struct conform_fill {
    uint64_t address;
    uint64_t words;
    uint32_t first;
    uint32_t unused;
} conform_fill;

/* count: every thread adds 1 to the u64 at out; record: every block writes its index + 1 to the u32
 * at out[index]; reverse: every block reverses, through dynamic shared memory, the words 0 .. words
 * - 1 and adds what it read back to out. */
typedef struct conform_count {
    uint64_t out;
    uint64_t words;
} conform_count;

/* slow: one thread is busy for nanoseconds, then writes 1 to the u32 at out. */
typedef struct conform_slow {
    uint64_t out;
    uint64_t nanoseconds;
} conform_slow;

/* meet: every block adds 1 to the u64 at counter and waits until all parties have, rounds times;
 * the parties are the blocks of all launches on that counter. A block that got through within
 * limit_ns adds 1 to the u64 at out. */
typedef struct conform_meet {
    uint64_t counter;
    uint64_t out;
    uint64_t limit_ns;
    uint32_t parties;
    uint32_t rounds;
} conform_meet;

/* serve: a kernel that stays and does what the host asks through a mailbox in pinned host memory,
 * until told to stop or until limit_ns have passed, so that nothing spins for ever. Every word has
 * one writer. */
enum { CONFORM_ASK_STOP = 1, CONFORM_ASK_READ, CONFORM_ASK_WRITE };

typedef struct conform_mailbox {
    uint32_t request; /* host: number of the request, from 2 on */
    uint32_t what;    /* host: CONFORM_ASK_... */
    uint64_t address; /* host */
    uint32_t value;   /* host */
    uint32_t answer;  /* kernel: 1 when it runs, then the number of the request done */
    uint32_t result;  /* kernel: the word read */
    uint32_t unused;
} conform_mailbox;

typedef struct conform_serve {
    uint64_t mailbox;
    uint64_t limit_ns;
} conform_serve;

/* where, lanes, shared, gather, spin: what each thread finds, by CONFORM_..., goes to a u64 of its own at out, in the order of
 * blocks (x, y, z) and of threads in them. mask, n, width: of the operation; threads whose lane is not in mask leave
 * CONFORM_NOTHING. */
typedef struct conform_block {
    uint64_t out;
    uint32_t what, mask, n, width;
} conform_block;

#define CONFORM_NOTHING 0xfedcba9876543210u
#define CONFORM_PACK(x, y, z) ((uint64_t)(x) | (uint64_t)(y) << 20 | (uint64_t)(z) << 40)
/* What a thread passes to other lanes: all 64 bits differ between threads. */
#define CONFORM_VALUE(thread) (((uint64_t)(thread) + 1) * 0x9e3779b97f4a7c15u)
#define CONFORM_DOUBLE(thread) ((double)(thread) + 0.125)

/* where */
enum {
    CONFORM_THREAD,
    CONFORM_THREADS,
    CONFORM_BLOCK,
    CONFORM_BLOCKS,
    CONFORM_NUMBER, /* in the block, of how many */
    CONFORM_LANE,   /* lane, warp, lanes of a warp */
    CONFORM_GLOBAL, /* number in the launch, of how many */
};

/* lanes: n is the other lane, or how far away it is. The ways of shuffling, each with all types in this order */
#define CONFORM_TYPES 5
enum {
    CONFORM_INDEX_U32,
    CONFORM_INDEX_U64,
    CONFORM_INDEX_F64,
    CONFORM_INDEX_I32,
    CONFORM_INDEX_F32,
    CONFORM_UP_U32,
    CONFORM_UP_U64,
    CONFORM_UP_F64,
    CONFORM_UP_I32,
    CONFORM_UP_F32,
    CONFORM_DOWN_U32,
    CONFORM_DOWN_U64,
    CONFORM_DOWN_F64,
    CONFORM_DOWN_I32,
    CONFORM_DOWN_F32,
    CONFORM_XOR_U32,
    CONFORM_XOR_U64,
    CONFORM_XOR_F64,
    CONFORM_XOR_I32,
    CONFORM_XOR_F32,
    CONFORM_INDEX_OWN, /* a u32 of another lane for each: (5 * lane + n) % width */
    CONFORM_BALLOT,    /* bit i of n is what lane i says */
    CONFORM_ANY,
    CONFORM_ALL,
    CONFORM_ACTIVE,
    CONFORM_RANK,       /* rank, total */
    CONFORM_BEFORE_U32, /* of (thread + n): sum before, total */
    CONFORM_BEFORE_U64,
    CONFORM_BUTTERFLY, /* sum of thread + n by exchanges with each bit turned round */
    CONFORM_SCAN,      /* sum of thread + n over the lanes up to this one */
    CONFORM_HALVES, /* the lanes of mask shuffle up n times, the others down once, at the same time */
    CONFORM_LOOP,   /* lane i leaves a loop after i rounds; how many lanes were in each, summed */
    CONFORM_RETURNED, /* lanes not in mask return; the others vote with the mask n */
};

/* shared: n words of dynamic memory, or n rounds */
enum {
    CONFORM_STATIC,
    CONFORM_DYNAMIC,
    CONFORM_BOTH,
    CONFORM_LAST_WORD,
    CONFORM_ROUNDS,
    CONFORM_WRITERS,     /* in each round another thread writes */
    CONFORM_EXIT_WARPS,  /* warps of odd number return before the rounds */
    CONFORM_EXIT_LANES,  /* lanes of odd number do */
    CONFORM_EXIT_LATER,  /* thread i returns after i rounds */
    CONFORM_BRANCHES,    /* a barrier behind branches of different length */
    CONFORM_WARP_SYNC,   /* rounds between the lanes of a warp */
    CONFORM_BRANCH_SYNC, /* lanes of even number have n rounds among them, the others n + 1 */
    CONFORM_SUM_U64,     /* of the block, from its thread 0 */
    CONFORM_SUM_F64,
    CONFORM_GRID, /* rounds between all threads of a cooperative launch; the u64 behind the results counts */
};

/* gather: n times each thread; every thread then reads the word of its block */
enum {
    CONFORM_ADD_U32,
    CONFORM_ADD_U64,
    CONFORM_ADD_F64,
    CONFORM_ADD_F32,
    CONFORM_MIN_U32,
    CONFORM_MIN_U64,
    CONFORM_MAX_U32,
    CONFORM_MAX_U64,
    CONFORM_CAS_U32,
    CONFORM_CAS_U64,
    CONFORM_EXCHANGE, /* its own number for what the thread before it has left: each is got once */
};

/* spin: threads that wait for each other without a barrier, n times. 1: all came to its end; 0: not in time */
enum {
    CONFORM_LOCK_TWO,   /* the first two lanes */
    CONFORM_LOCK_ALL,   /* all threads of the block */
    CONFORM_PING_PONG,  /* the first and the last lane of a warp */
    CONFORM_WAIT_LOWER, /* lane i waits for lane i - 1 */
    CONFORM_WAIT_HIGHER,
    CONFORM_TICKETS, /* threads of the block go by numbers that they have drawn */
    CONFORM_WARPS,   /* the first warp waits for the last one */
    CONFORM_BRANCH, /* lanes of odd number, in one branch, wait for those of even number, in the other */
};
#define CONFORM_SPIN_LIMIT_NS 40000000000ull

/* Value that the module's global starts with is zero; global: out becomes it plus words. */
#define CONFORM_GLOBAL_NAME "conform_word"

#endif
