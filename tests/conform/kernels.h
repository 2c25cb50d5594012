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

/* Value that the module's global starts with is zero; global: out becomes it plus words. */
#define CONFORM_GLOBAL_NAME "conform_word"

#endif
